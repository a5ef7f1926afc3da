"""A pool that the PV's handle names by its id, and that ceph-csi does not find."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from rbdagent.commands import lines_of
from rbdagent.correlate import correlate
from rbdagent.lifecycle.steps import lifecycle_of
from rbdagent.model import ImagePresence, LifecycleStep
from tests.support.rows import each_row
from tests.support.rule_rows.pv_controller import PROVISIONER, of_volume, to_volume
from tests.support.snapshots import (
    FSID,
    OTHER_FSID,
    UNSEEN,
    cluster,
    codes,
    found,
    volume,
    world,
)

if TYPE_CHECKING:
    from rbdagent.model import Snapshot

OF_OLD: Final = "rpc error: code = Internal desc = pool ID (1) not found in Ceph cluster"
NEWER: Final = "pool not found: pool ID(1) not found in Ceph cluster"
MADE_AGAIN: Final = ((10, "device_health"), (11, "k8s"))
GONE: Final = {"presence": ImagePresence.GONE, "image_id": None, "pool_id": 11, "watchers": ()}


def deletion(text: str = OF_OLD, pools: Any = MADE_AGAIN, **fields: Any) -> Snapshot:  # noqa: ANN401 - as the builders
    """Build a snapshot of a PV to be deleted, whose handle names the pool 1."""
    fields.setdefault("of_image", GONE)
    seen = of_volume(in_kube={"events": (to_volume(text),), **fields.pop("in_kube", {})}, **fields)
    return with_clusters(seen, cluster(pools=pools, images=images_of(seen)))


def images_of(seen: Snapshot) -> Any:  # noqa: ANN401 - as the builders
    assert seen.ceph is not None
    return seen.ceph.clusters[0].images


def with_clusters(seen: Snapshot, *clusters: Any) -> Snapshot:  # noqa: ANN401 - as the builders
    assert seen.ceph is not None
    return replace(seen, ceph=replace(seen.ceph, clusters=clusters))


@each_row("text", [OF_OLD, NEWER])
def test_pool_that_the_cluster_does_not_have_was_deleted(text: str) -> None:
    finding = found(deletion(text), "RBD642")
    assert f"cluster {FSID} has no pool 1, which its handle names." in finding.message
    assert str(finding.remedy).startswith("Make sure that the clusterID lab-ceph-1 leads to")
    assert finding.recovery is not None
    assert not finding.recovery.actor
    assert any("10 device_health, 11 k8s" in line for line in finding.evidence)
    assert "metadata.name=ceph-csi-config" in lines_of(finding.commands)[0]


def test_configuration_of_rook_has_another_name() -> None:
    source = replace(volume().source, driver="rook-ceph.rbd.csi.ceph.com")
    finding = found(deletion(source=source), "RBD642")
    assert "metadata.name=rook-ceph-csi-config" in lines_of(finding.commands)[0]


def test_image_that_was_not_queried_is_not_needed() -> None:
    """The pool is opened by the id in the handle: rbdagent asks for no image of a missing pool."""
    seen = with_clusters(deletion(), cluster(pools=MADE_AGAIN, images=()))
    assert "has no pool 1, which its handle" in found(seen, "RBD642").message
    assert "RBD301" not in codes(seen)


def test_pool_with_the_image_leads_to_the_cluster_of_the_driver() -> None:
    finding = found(deletion(pools=((1, "k8s"),), of_image={"watchers": ()}), "RBD642")
    assert "ceph-csi asks another cluster" in finding.message
    assert "Leave the PV" in str(finding.remedy)
    assert "Retain" not in str(finding.remedy)


UNDECIDED: Final = {
    "pools unseen": deletion(pools=UNSEEN),
    "an old snapshot": deletion(pools=()),
    "another pool": deletion(OF_OLD.replace("(1)", "(7)")),
    "the pool without the image": deletion(
        pools=((1, "k8s"),), of_image={**GONE, "pool_id": 1}
    ),
    "a handle of another form": deletion(source=replace(volume().source, volume_handle="x")),
    "Ceph was not queried": replace(deletion(), ceph=None),
    "several clusters": with_clusters(
        deletion(), cluster(images=()), cluster(name="other", fsid=OTHER_FSID, images=())
    ),
}  # fmt: skip


@each_row("name", UNDECIDED)
def test_answer_names_the_fact_that_decides(name: str) -> None:
    finding = found(UNDECIDED[name], "RBD642")
    assert "does not exist in the Ceph cluster that the driver uses" in finding.message
    assert "the pool ids of `ceph osd pool ls detail` decide" in str(finding.remedy)
    assert "{" not in finding.message + str(finding.remedy)


def test_cluster_id_that_is_an_fsid_chooses_among_clusters() -> None:
    handle = f"0001-0024-{OTHER_FSID}-0000000000000001-a5aedea1-28da-40b4-92b8-33fd7de38647"
    seen = deletion(source=replace(volume().source, volume_handle=handle))
    other = cluster(name="other", fsid=OTHER_FSID, images=(), pools=MADE_AGAIN)
    finding = found(with_clusters(seen, cluster(images=()), other), "RBD642")
    assert f"cluster {OTHER_FSID} has no pool 1, which its handle" in finding.message


@each_row(
    ("images", "version"),
    [
        (("quay.io/cephcsi/cephcsi:v1.2.2",), "1.2.2"),
        (("quay.io/cephcsi/cephcsi:canary",), ""),
        (("quay.io/cephcsi/cephcsi:v1.2.2", "quay.io/cephcsi/cephcsi:v2.1.2"), ""),
    ],
)
def test_version_of_the_driver_is_evidence(images: tuple[str, ...], version: str) -> None:
    pods = (replace(PROVISIONER, images=images),)
    lines = found(deletion(in_kube={"driver_pods": pods}), "RBD642").evidence
    seen = [line for line in lines if "run ceph-csi" in line]
    assert seen == ([f"the pods of the driver run ceph-csi {version}"] if version else [])


# The image of such a pool -------------------------------------------------------------------------


def test_pool_of_the_same_name_is_not_that_of_the_image() -> None:
    finding = found(deletion(), "RBD301")
    assert "the cluster has no pool 1, which the handle of its PV names." in finding.message
    assert "k8s" not in " ".join(
        (str(finding.subject), finding.message, *lines_of(finding.commands))
    )
    assert "Unmap" not in str(finding.remedy)


def test_image_of_a_pool_that_was_not_queried_is_not_gone() -> None:
    seen = deletion(pools=((1, "old"), (11, "k8s")))
    assert "RBD301" not in codes(seen)
    assert "RBD301" not in codes(deletion(pools=UNSEEN))


def test_remaining_mapping_is_named_and_unmapped() -> None:
    seen = world(of_image={"presence": ImagePresence.GONE})
    assert "still maps it" in found(seen, "RBD301").message
    assert "Unmap" in str(found(seen, "RBD301").remedy)
    lost = with_clusters(seen, cluster(pools=MADE_AGAIN, images=()))
    assert "RBD301" not in codes(lost)


def test_image_without_a_mapping_has_nothing_to_unmap() -> None:
    seen = deletion(pools=((1, "k8s"),), of_image={**GONE, "pool_id": 1})
    assert "Unmap" not in str(found(seen, "RBD301").remedy)


# The binding of a Released PV ---------------------------------------------------------------------


@each_row(
    ("phase", "state", "said"),
    [
        ("Released", "skipped", "its claim default/data is gone"),
        ("Failed", "skipped", "its claim default/data is gone"),
        ("Available", "waiting", "its claim default/data does not exist"),
        ("Bound", "waiting", "its claim default/data does not exist"),
    ],
)
def test_released_volume_waits_for_no_claim(phase: str, state: str, said: str) -> None:
    seen = of_volume(phase=phase, reclaim_policy="Retain")
    found_steps = lifecycle_of(correlate(seen), seen).attach_path
    (bind,) = [step for step in found_steps if step.step is LifecycleStep.BIND]
    assert (bind.state, bind.detail) == (state, said)
