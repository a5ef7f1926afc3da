"""What was asked for by name is not all there is: absence is read only out of what was searched."""

# ruff: noqa: ANN401 - as the builders

from __future__ import annotations

from typing import Any

import pytest

from rbdagent.follow import follow
from rbdagent.model import (
    Act,
    Followed,
    ImageSpec,
    InTreeRbdSource,
    Snapshot,
    UnmapRefusal,
    Verdict,
)
from rbdagent.parse.handle import attachment_name, migrated_handle
from tests.unit.builders import (
    DRIVER,
    HANDLE,
    LIBRBD_COOKIE,
    PV,
    REMOTE_ADDRESS,
    SPEC,
    attachment,
    codes,
    judged,
    node,
    remote_watcher,
    said,
    volume,
    watcher,
    world,
)
from tests.unit.plans import history, identity, moment, planned, seen

OWN_ATTACHMENT = attachment_name(HANDLE, DRIVER, "worker-1")


def by_name(*searched: str, **parts: Any) -> dict[str, Any]:
    """Give what an agent asked for: its own Node, its PV; and what lists were searched for."""
    asked = {
        "volumes_complete": False,
        "attachments_complete": False,
        "nodes_complete": False,
        "searched": searched,
        "nodes": (node(),),
        "pods_scope": "node/worker-1",
    }
    return asked | parts


def test_an_orphan_is_one_where_its_attachment_was_asked_for_and_is_not_there() -> None:
    assert judged(world(in_kube=by_name(OWN_ATTACHMENT))).verdict is Verdict.ORPHANED


def test_an_attachment_that_was_not_asked_for_is_not_absent() -> None:
    assert judged(world(in_kube=by_name())).verdict is Verdict.UNDETERMINED


def test_an_image_without_a_volume_is_an_orphan_only_where_all_volumes_were_searched() -> None:
    lost: dict[str, Any] = {"persistent_volumes": (), "claims": ()}
    searched = seen(in_kube=by_name(OWN_ATTACHMENT, str(SPEC), **lost))
    unsearched = seen(in_kube=by_name(OWN_ATTACHMENT, **lost))
    assert judged(searched).verdict is Verdict.ORPHANED
    assert judged(unsearched).verdict is Verdict.UNDETERMINED


def test_an_administrators_map_is_one_only_where_all_volumes_were_searched() -> None:
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


def test_an_in_tree_volume_s_attachment_has_a_computed_name_too() -> None:
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


def test_a_node_that_was_not_asked_for_is_not_gone() -> None:
    other = attachment("worker-2")
    told = said(world(of_image=WATCHED, in_kube=by_name(OWN_ATTACHMENT, attachments=(other,))))
    assert Verdict.NODE_DOWN not in [each.verdict for each in told.holders]
    assert "RBD410" not in [each.code for each in told.findings]


def test_the_own_node_that_was_asked_for_and_is_not_there_is_gone() -> None:
    lost = by_name(OWN_ATTACHMENT, "worker-1", nodes=(), attachments=(attachment(),))
    assert "RBD410" in codes(world(in_kube=lost))


def test_a_second_writer_is_no_conflict_while_another_volume_may_allow_it() -> None:
    nodes = (node(), node("worker-2"))
    unsearched = said(world(of_image=WATCHED, in_kube=by_name(OWN_ATTACHMENT, nodes=nodes)))
    searched = said(
        world(of_image=WATCHED, in_kube=by_name(OWN_ATTACHMENT, str(SPEC), nodes=nodes))
    )
    assert (unsearched.verdict, searched.verdict) == (Verdict.UNDETERMINED, Verdict.CONFLICT)


@pytest.mark.parametrize(
    ("searched", "expected"),
    [((), Verdict.UNDETERMINED), ((str(REMOTE_ADDRESS),), Verdict.FOREIGN)],
)
def test_an_address_is_no_node_s_only_where_all_nodes_were_searched(
    searched: tuple[str, ...], expected: Verdict
) -> None:
    stranger = {"watchers": (watcher(), remote_watcher(cookie=LIBRBD_COOKIE))}
    told = said(world(of_image=stranger, in_kube=by_name(OWN_ATTACHMENT, *searched)))
    assert told.holders[-1].verdict is expected


def test_nobody_plans_an_unmap_by_what_was_asked_for_by_name() -> None:
    look = seen(in_kube=by_name(OWN_ATTACHMENT, str(SPEC)))
    assert judged(look).verdict is Verdict.ORPHANED
    refused = planned(look, remembered=history())
    assert isinstance(refused, UnmapRefusal)
    assert refused.codes == ("RBD505",)


def test_an_act_is_not_cleared_by_an_attachment_that_nobody_asked_for() -> None:
    act = Act(
        boot_id="b001",
        begun=moment(10),
        by="root",
        identity=identity(),
        persistent_volume=PV,
        why="",
    )
    freed: dict[str, Any] = {"on_node": {"mappings": ()}, "of_image": {"watchers": ()}}
    assert follow(act, seen(**freed), waited_s=10).state is Followed.CLEARED
    narrow = seen(**freed, in_kube=by_name(persistent_volumes=()))
    assert follow(act, narrow, waited_s=10).state is Followed.PENDING
