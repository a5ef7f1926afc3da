"""Objects queried by name are not all objects: only what was searched for can be absent."""

# ruff: noqa: ANN401 - as the builders

from __future__ import annotations

from typing import Any

import pytest

from rbdagent.model import (
    Convergence,
    ImageSpec,
    InTreeRbdSource,
    Snapshot,
    UnmapRecord,
    UnmapRefusal,
    Verdict,
)
from rbdagent.parse.handle import attachment_name, migrated_handle
from rbdagent.unmap.followup import follow
from tests.support.snapshots import (
    DRIVER,
    HANDLE,
    LIBRBD_COOKIE,
    PV,
    REMOTE_ADDRESS,
    SPEC,
    attachment,
    codes,
    diagnosis_of,
    judged,
    node,
    remote_watcher,
    volume,
    watcher,
    world,
)
from tests.support.unmap_plans import history, identity, moment, planned, seen

OWN_ATTACHMENT = attachment_name(HANDLE, DRIVER, "worker-1")


def by_name(*searched: str, **parts: Any) -> dict[str, Any]:
    """Return what an agent queries: its Node, its PV, and the names that it searches lists for."""
    asked = {
        "volumes_complete": False,
        "attachments_complete": False,
        "nodes_complete": False,
        "searched": searched,
        "nodes": (node(),),
        "pods_scope": "node/worker-1",
    }
    return asked | parts


def test_mapping_is_orphaned_if_its_attachment_was_not_found() -> None:
    assert judged(world(in_kube=by_name(OWN_ATTACHMENT))).verdict is Verdict.ORPHANED


def test_attachment_that_was_not_queried_is_not_absent() -> None:
    assert judged(world(in_kube=by_name())).verdict is Verdict.UNDETERMINED


def test_image_without_pv_is_orphaned_only_after_a_full_search() -> None:
    lost: dict[str, Any] = {"persistent_volumes": (), "claims": ()}
    searched = seen(in_kube=by_name(OWN_ATTACHMENT, str(SPEC), **lost))
    unsearched = seen(in_kube=by_name(OWN_ATTACHMENT, **lost))
    assert judged(searched).verdict is Verdict.ORPHANED
    assert judged(unsearched).verdict is Verdict.UNDETERMINED


def test_manual_map_is_foreign_only_after_a_full_search() -> None:
    spec = ImageSpec(pool="k8s", name="scratch")

    def mapped_by_hand(*searched: str) -> Snapshot:
        return seen(
            mapped={"spec": spec},
            of_kubelet={"staging": ()},
            of_image={"spec": spec, "metadata": ()},
            in_kube=by_name(*searched, persistent_volumes=(), claims=()),
        )

    assert judged(mapped_by_hand(str(spec))).verdict is Verdict.FOREIGN
    assert judged(mapped_by_hand()).verdict is Verdict.UNDETERMINED


def test_attachment_of_an_in_tree_volume_has_a_computed_name() -> None:
    source = InTreeRbdSource(spec=SPEC, monitors=("10.77.0.1:6789",))
    handle = migrated_handle(source.monitors, SPEC.pool, SPEC.name)
    name = attachment_name(handle, DRIVER, "worker-1")
    found = world(
        in_kube=by_name(OWN_ATTACHMENT, name, persistent_volumes=(volume(source=source),))
    )
    assert judged(found).verdict is Verdict.ORPHANED
    missed = world(in_kube=by_name(OWN_ATTACHMENT, persistent_volumes=(volume(source=source),)))
    assert judged(missed).verdict is Verdict.UNDETERMINED


WATCHED = {"watchers": (watcher(), remote_watcher())}


def test_node_that_was_not_queried_is_not_absent() -> None:
    other = attachment("worker-2")
    diagnosis = diagnosis_of(
        world(of_image=WATCHED, in_kube=by_name(OWN_ATTACHMENT, attachments=(other,)))
    )
    assert Verdict.NODE_DOWN not in [holder.verdict for holder in diagnosis.holders]
    assert "RBD410" not in [finding.code for finding in diagnosis.findings]


def test_own_node_that_was_queried_and_not_found_is_absent() -> None:
    lost = by_name(OWN_ATTACHMENT, "worker-1", nodes=(), attachments=(attachment(),))
    assert "RBD410" in codes(world(in_kube=lost))


def test_second_writer_is_a_conflict_only_after_a_full_search() -> None:
    nodes = (node(), node("worker-2"))
    unsearched = diagnosis_of(world(of_image=WATCHED, in_kube=by_name(OWN_ATTACHMENT, nodes=nodes)))
    searched = diagnosis_of(
        world(of_image=WATCHED, in_kube=by_name(OWN_ATTACHMENT, str(SPEC), nodes=nodes))
    )
    assert (unsearched.verdict, searched.verdict) == (Verdict.UNDETERMINED, Verdict.CONFLICT)


@pytest.mark.parametrize(
    ("searched", "expected"),
    [((), Verdict.UNDETERMINED), ((str(REMOTE_ADDRESS),), Verdict.FOREIGN)],
)
def test_address_is_foreign_only_after_a_search_of_all_nodes(
    searched: tuple[str, ...], expected: Verdict
) -> None:
    stranger = {"watchers": (watcher(), remote_watcher(cookie=LIBRBD_COOKIE))}
    diagnosis = diagnosis_of(world(of_image=stranger, in_kube=by_name(OWN_ATTACHMENT, *searched)))
    assert diagnosis.holders[-1].verdict is expected


def test_unmap_is_not_planned_from_objects_queried_by_name() -> None:
    look = seen(in_kube=by_name(OWN_ATTACHMENT, str(SPEC)))
    assert judged(look).verdict is Verdict.ORPHANED
    refused = planned(look, remembered=history())
    assert isinstance(refused, UnmapRefusal)
    assert refused.codes == ("RBD505",)


def test_unmap_is_not_cleared_if_attachments_were_not_queried() -> None:
    act = UnmapRecord(
        boot_id="b001",
        begun=moment(10),
        by="root",
        identity=identity(),
        persistent_volume=PV,
        why="",
    )
    freed: dict[str, Any] = {"on_node": {"mappings": ()}, "of_image": {"watchers": ()}}
    assert follow(act, seen(**freed), waited_s=10).state is Convergence.CLEARED
    narrow = seen(**freed, in_kube=by_name(persistent_volumes=()))
    assert follow(act, narrow, waited_s=10).state is Convergence.PENDING
