"""Lists of monitors: which texts are read, and what a connection uses if none is."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Final

import pytest
from msgspec.structs import replace

from rbdagent.collect.ceph import connection
from rbdagent.collect.ceph import images as ceph_images
from rbdagent.collect.ceph.access import NOTHING_MAPPED
from rbdagent.collect.ceph.connection import Cluster, reach_cure
from rbdagent.collect.ceph.images import CephReader
from rbdagent.collect.ceph_process import KeptCeph
from rbdagent.collect.kube import monitors as kube_monitors
from rbdagent.collect.kube.kubeconfig import MonitorList
from rbdagent.collect.monitors import monitors_in, with_monitors
from rbdagent.errors import ParseError, SourceError
from rbdagent.model import (
    CephView,
    ClusterView,
    EntityAddress,
    NotObserved,
    ServiceAddress,
    Source,
    SourceState,
)
from rbdagent.parse.monitors import parse_monitor_list
from tests.support.ceph_bindings import ceph
from tests.support.ceph_queries import access, identity, image
from tests.support.snapshots import NOWHERE

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from rbdagent.collect.ceph.access import CephAccess

ID: Final = "b9127830"
UNREAD: Final = NotObserved(reason="forbidden", hint="grant it")
LIST: Final = MonitorList(
    cluster="ceph",
    namespace="ceph-csi",
    config_map="ceph-csi-config",
    key="config.json",
    cluster_id=ID,
    access=None,
)


def clusters(*monitors: object, cluster_id: str = ID) -> str:
    """Return the list of a CSI driver, with another cluster before it."""
    other = {"clusterID": "other", "monitors": None, "cephFS": {"subvolumeGroup": "csi"}}
    return json.dumps([other, {"clusterID": cluster_id, "monitors": monitors}])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (clusters("10.0.0.1:6789", "10.0.0.2"), ("10.0.0.1:6789", "10.0.0.2")),
        (clusters("[fd00::1]:3300", "mon-a.ceph:6789"), ("[fd00::1]:3300", "mon-a.ceph:6789")),
        (clusters("v2:10.0.0.1:3300/0"), ("v2:10.0.0.1:3300/0",)),
        (
            clusters("[v2:10.0.0.1:3300,v1:10.0.0.1:6789]"),
            ("[v2:10.0.0.1:3300,v1:10.0.0.1:6789]",),
        ),
        ("a=10.0.0.1:6789,b=[fd00::2]:6789", ("10.0.0.1:6789", "[fd00::2]:6789")),
        ("a=10.0.0.1:6789\n", ("10.0.0.1:6789",)),
    ],
)
def test_a_list_of_either_driver_is_read(text: str, expected: tuple[str, ...]) -> None:
    assert parse_monitor_list(text, cluster_id=ID, where="w") == expected


def test_the_first_cluster_with_the_id_counts() -> None:
    both = [
        {"clusterID": ID, "monitors": ["10.0.0.1"]},
        {"clusterID": ID, "monitors": ["10.0.0.2"]},
    ]
    assert parse_monitor_list(json.dumps(both), cluster_id=ID, where="w") == ("10.0.0.1",)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "a monitor"),
        ("10.0.0.1:6789", "a monitor"),
        ("a=", "a monitor"),
        ("a=10.0.0.1:6789,", "a monitor"),
        ("[]", f"expected a cluster with clusterID {ID}"),
        ("[" * 100_000, "expected a JSON list of objects with clusterID and monitors"),
        ('[{"clusterID": 7}]', "expected a JSON list of objects with clusterID and monitors"),
        (clusters("10.0.0.1", cluster_id="x"), "from 'other, x': expected a cluster"),
        (clusters(), "from '0 entries': expected 1 to 64"),
        (clusters(*["10.0.0.1"] * 65), "from '65 entries': expected 1 to 64"),
        (",".join(["a=10.0.0.1"] * 100_000), "at most 1 MiB"),
        (",".join(["a=10.0.0.1"] * 1000), "from '65 entries'"),
        (clusters("10.0.0.1 --keyring=/etc/shadow"), "a monitor"),
        (clusters("10.0.0.1,10.0.0.2"), "a monitor"),
        (clusters("10.0.0.1\nauth_client_required = none"), "a monitor"),
        (clusters("$host"), "a monitor"),
        (clusters("[v2:10.0.0.1:3300,10.0.0.2]"), "a monitor"),
        (clusters("[fd00:::1]:6789"), "a monitor"),
        (clusters("fd00::1"), "a monitor"),
        (clusters("-m"), "a monitor"),
        (clusters("a" * 300), "a monitor"),
        (clusters("10.0.0.1:6789", 7), "expected a JSON list"),
    ],
)
def test_a_list_that_is_wrong_in_any_part_is_not_read(text: str, message: str) -> None:
    with pytest.raises(ParseError) as refused:
        parse_monitor_list(text, cluster_id=ID, where="ConfigMap ns/name")
    assert str(refused.value).startswith("ConfigMap ns/name: cannot read ")
    assert message in str(refused.value)
    assert str(refused.value).isprintable()
    assert len(str(refused.value)) < 600


@pytest.fixture
def listed(monkeypatch: pytest.MonkeyPatch) -> dict[str, tuple[str, ...] | NotObserved]:
    """Return the answers of the API by the name of the cluster, to be filled by the test."""
    answers: dict[str, tuple[str, ...] | NotObserved] = {}

    def read(lists: Sequence[MonitorList]) -> dict[str, tuple[str, ...] | NotObserved]:
        return {wanted.cluster: answers[wanted.cluster] for wanted in lists}

    monkeypatch.setattr(kube_monitors, "read_monitor_lists", read)
    return answers


def test_a_list_replaces_the_monitors_of_its_cluster_only(
    tmp_path: Path, listed: dict[str, tuple[str, ...] | NotObserved]
) -> None:
    listed["ceph"] = ("10.0.0.9",)
    both = (access(tmp_path), access(tmp_path, name="west"))
    east, west = with_monitors(both, (LIST,), {"ceph": ("10.0.0.1",), "west": ("10.0.0.2",)})
    assert (east.monitors, east.monitors_missing) == (("10.0.0.9",), None)
    assert west == both[1]


def test_without_a_list_the_api_is_not_queried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(kube_monitors, "read_monitor_lists")
    east = access(tmp_path)
    assert with_monitors((east,), (), {}) == (east,)
    assert with_monitors((east,), (replace(LIST, cluster="other"),), {}) == (east,)


def test_an_unread_list_leaves_the_last_known_monitors_and_a_gap(
    tmp_path: Path,
    listed: dict[str, tuple[str, ...] | NotObserved],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    listed["ceph"] = UNREAD
    ceph(image("one")).install(monkeypatch)
    (found,) = with_monitors((access(tmp_path),), (LIST,), {"ceph": ("10.0.0.1:6789",)})
    assert found.monitors == ("10.0.0.1:6789",)
    reader = CephReader([found])
    view, source = reader.images([identity("one")], deadline=time.monotonic() + 60)
    assert view is not None
    assert view.clusters[0].source.state is SourceState.OBSERVED
    assert [(gap.fact, gap.reason) for gap in source.gaps] == [
        ("the list of monitors", "forbidden")
    ]


def test_an_unread_list_without_known_monitors_is_a_failed_source(
    tmp_path: Path,
    listed: dict[str, tuple[str, ...] | NotObserved],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A cluster that is not queried has no holder list: nothing reads it as "no holder"."""
    listed["ceph"] = UNREAD
    ceph(image("one")).install(monkeypatch)
    (found,) = with_monitors((access(tmp_path),), (LIST,), {})
    with pytest.raises(SourceError, match="ceph: forbidden") as refused:
        Cluster(found)
    assert refused.value.hint == "grant it"
    _, source = CephReader([found]).images([identity("one")], deadline=time.monotonic() + 60)
    assert (source.state, source.reason) == (SourceState.FAILED, "ceph: forbidden")


def test_monitors_override_those_of_the_configuration_file(tmp_path: Path) -> None:
    plain, given = access(tmp_path), access(tmp_path, monitors=("10.0.0.1", "[fd00::1]:3300"))
    assert "mon_host" not in connection._settings(plain)
    assert connection._settings(given)["mon_host"] == "10.0.0.1,[fd00::1]:3300"
    assert "-m 10.0.0.1" not in reach_cure(plain)
    assert "-m '10.0.0.1,[fd00::1]:3300'" in reach_cure(given)


class FakeReader:
    """Fake of the connections: reports a monitor, and in the reason those that it began with."""

    def __init__(self, clusters: Sequence[CephAccess], **_: object) -> None:
        self._clusters = clusters

    def images(self, *_: object, **__: object) -> tuple[CephView, Source]:
        reason = " ".join(self._clusters[0].monitors)
        source = Source(state=SourceState.OBSERVED, reason=reason)
        address = EntityAddress(ip="10.0.0.5", port=6789)
        monitor = ServiceAddress(kind="mon", name="a", address=address)
        view = ClusterView(name="ceph", source=source, monitors=(monitor,))
        return CephView(clusters=(view,)), source


def test_the_next_process_begins_with_the_list_or_else_with_the_last_monitors(
    tmp_path: Path,
    listed: dict[str, tuple[str, ...] | NotObserved],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ceph_images, "CephReader", FakeReader)
    listed["ceph"] = ("10.0.0.1",)
    settings = replace(NOWHERE, clusters=(access(tmp_path),), monitor_lists=(LIST,))
    kept = KeptCeph(settings.clusters or (), settings.monitor_lists)
    begun_with = []
    for found in (UNREAD, ("10.0.0.9",)):
        _, source = kept.answer(((), NOTHING_MAPPED, 0.0), time.monotonic() + 60)
        begun_with.append(source.reason)
        kept.end()
        listed["ceph"] = found
    _, source = kept.answer(((), NOTHING_MAPPED, 0.0), time.monotonic() + 60)
    kept.end()
    assert [*begun_with, source.reason] == ["10.0.0.1", "10.0.0.5:6789", "10.0.0.9"]


def test_the_monitors_of_an_answer_are_known_for_the_next_connection() -> None:
    def monitor(ip: str, port: int) -> ServiceAddress:
        return ServiceAddress(kind="mon", name="a", address=EntityAddress(ip=ip, port=port))

    def view(name: str, monitors: tuple[ServiceAddress, ...] | NotObserved) -> ClusterView:
        return ClusterView(name=name, source=Source(state=SourceState.OBSERVED), monitors=monitors)

    east = view("east", (monitor("10.0.0.1", 3300), monitor("fd00::1", 6789)))
    answer = CephView(clusters=(east, view("west", UNREAD), view("north", ())))
    assert monitors_in(answer) == {"east": ("10.0.0.1:3300", "[fd00::1]:6789")}
    assert monitors_in(None) == {}
