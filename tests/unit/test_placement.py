"""An image whose OSDs do not answer: the placement group and the OSD that it waits for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest
from msgspec.structs import replace

from rbdagent.collect.ceph.connection import read_health, read_placement
from rbdagent.model import CephView, HealthCheck, NotObserved, Placement
from tests.support.snapshots import diagnosis_of, found, unmapped, world

if TYPE_CHECKING:
    from rbdagent.model import Finding, Snapshot

LATE: Final = NotObserved(reason="k8s/x: no answer within 5 s", timed_out=True)
PLACE: Final = Placement(name="rbd_header.1", group="1.6", acting=(3, 4))
NO_OSD: Final = replace(PLACE, acting=())
DOWN: Final = HealthCheck(
    name="OSD_DOWN", texts=("1 osds down", "osd.3 (root=default,host=ceph-1) is down")
)
OTHER_DOWN: Final = HealthCheck(
    name="OSD_DOWN", texts=("1 osds down", "osd.33 (root=default,host=ceph-9) is down")
)
INACTIVE: Final = HealthCheck(
    name="PG_AVAILABILITY",
    texts=(
        "Reduced data availability: 2 pgs inactive",
        "pg 1.60 is stuck inactive for 10m, current state down, last acting [4]",
        "pg 1.6 is stuck inactive for 10m, current state down, last acting [3,4]",
    ),
)
OTHER_INACTIVE: Final = replace(INACTIVE, texts=INACTIVE.texts[:2])


def late(place: Placement | NotObserved, *checks: HealthCheck) -> Finding:
    """Return the finding about an image whose OSDs did not answer in time."""
    seen: Snapshot = unmapped()
    assert seen.ceph is not None
    (cluster,) = seen.ceph.clusters
    images = tuple(
        replace(image, presence=LATE, watchers=LATE, lockers=LATE, placement=place)
        for image in cluster.images
    )
    clusters = (replace(cluster, images=images, health=checks),)
    diagnosis = diagnosis_of(replace(seen, ceph=CephView(clusters=clusters)))
    return next(found for found in diagnosis.findings if found.code == "RBD905")


@pytest.mark.parametrize(
    ("place", "checks", "words"),
    [
        (PLACE, (), "rbd_header.1 is in PG 1.6, whose primary is osd.3"),
        (PLACE, (DOWN,), "rbd_header.1 is in PG 1.6, and osd.3 is down"),
        (PLACE, (OTHER_DOWN,), "rbd_header.1 is in PG 1.6, whose primary is osd.3"),
        (PLACE, (INACTIVE, DOWN), "rbd_header.1 is in PG 1.6, which serves no I/O"),
        (PLACE, (OTHER_INACTIVE,), "rbd_header.1 is in PG 1.6, whose primary is osd.3"),
        (NO_OSD, (), "rbd_header.1 is in PG 1.6, which no OSD serves"),
        (LATE, (), "k8s/x: no answer within 5 s"),
    ],
)
def test_placement_group_and_osd_are_named(
    place: Placement | NotObserved, checks: tuple[HealthCheck, ...], words: str
) -> None:
    assert f"in time ({words})" in late(place, *checks).message


def test_requests_that_hang_name_what_they_wait_for() -> None:
    """As the kernel lists them, also where the monitors have not noticed the OSD."""
    requests = {"hung_requests": ("write rbd_data.1",), "hung_at": ("PG 1.9 on osd.3",)}
    of_image = {"presence": LATE, "watchers": LATE, "placement": PLACE}
    hangs = found(world(mapped=requests, of_image=of_image), "RBD203")
    assert "Its requests wait for PG 1.9 on osd.3. Check Ceph first" in hangs.message
    assert hangs.commands[-1].argv == ("ceph", "osd", "find", "3")


def test_line_of_the_group_is_evidence() -> None:
    found = late(PLACE, INACTIVE, DOWN)
    assert any("pg 1.6 is stuck inactive" in line for line in found.evidence)
    assert not any("1.60" in line for line in found.evidence)


def test_command_names_an_osd_that_is_down_before_the_primary() -> None:
    down = HealthCheck(
        name="OSD_DOWN", texts=("1 osds down", "osd.4 (root=default,host=ceph-2) is down")
    )
    assert late(PLACE, down).commands[-1].argv == ("ceph", "osd", "find", "4")


def test_missing_osds_of_an_erasure_coded_pool_are_left_out() -> None:
    """Their number is that of CRUSH_ITEM_NONE."""
    answer = {
        "objname": "rbd_header.1",
        "pgid": "5.0",
        "acting": [2147483647, 2, 1],
        "acting_primary": 2,
    }
    assert read_placement((answer,)) == Placement(name="rbd_header.1", group="5.0", acting=(2, 1))
    none = answer | {"acting": [2147483647], "acting_primary": -1}
    assert read_placement((none,)).acting == ()


def test_osds_that_are_down_are_read_from_health() -> None:
    answer = {
        "checks": {
            "OSD_DOWN": {
                "summary": {"message": "1 osds down"},
                "detail": [{"message": "osd.3 (root=default,host=ceph-1) is down"}],
            }
        }
    }
    assert read_health((answer,)) == (DOWN,)


def test_osds_that_are_down_are_evidence_for_a_group_that_no_osd_serves() -> None:
    assert "ceph health: osd.3 is down" in late(NO_OSD, DOWN).evidence
