"""The life of a volume states nothing unobserved, and blames no node for another node's state."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rbdagent.correlate import correlate
from rbdagent.lifecycle.steps import lifecycle_of
from rbdagent.model import LifecycleStep, StepState, Target, TargetKind
from tests.support.snapshots import (
    SPEC,
    UNSEEN,
    attachment,
    node,
    pod,
    remote_watcher,
    snapshot,
    unmapped,
    waiting_pod,
    watcher,
    world,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rbdagent.model import Lifecycle, Snapshot, StepStatus

IMAGE = Target(argument=str(SPEC), kind=TargetKind.IMAGE, image=SPEC)


def life(seen: Snapshot) -> Lifecycle:
    return lifecycle_of(correlate(seen), seen)


def states(stages: Iterable[StepStatus]) -> dict[LifecycleStep, StepState]:
    return {stage.step: stage.state for stage in stages}


def back_from(name: str, seen: Snapshot) -> dict[LifecycleStep, StepState]:
    return next(states(way.stages) for way in life(seen).detach_paths if way.node == name)


def test_bind_and_schedule_are_unseen_without_the_api() -> None:
    there = states(life(snapshot(kubernetes=None, target=IMAGE)).attach_path)
    assert there[LifecycleStep.PROVISION] is StepState.DONE
    assert there[LifecycleStep.BIND] is StepState.NOT_OBSERVED
    assert there[LifecycleStep.SCHEDULE] is StepState.NOT_OBSERVED


def test_provision_of_a_pv_is_unseen_without_the_api() -> None:
    assert (
        states(life(snapshot(kubernetes=None)).attach_path)[LifecycleStep.PROVISION]
        is StepState.NOT_OBSERVED
    )


def test_schedule_is_unseen_without_pods() -> None:
    there = states(life(world(in_kube={"pods": UNSEEN})).attach_path)
    assert there[LifecycleStep.SCHEDULE] is StepState.NOT_OBSERVED


def test_detach_is_unseen_without_attachments() -> None:
    seen = world(in_kube={"attachments": UNSEEN})
    assert back_from("worker-1", seen)[LifecycleStep.DETACH] is StepState.NOT_OBSERVED


def test_unstage_is_unseen_without_watchers() -> None:
    seen = unmapped(
        of_image={"watchers": UNSEEN}, in_kube={"attachments": (attachment("worker-2"),)}
    )
    assert back_from("worker-2", seen)[LifecycleStep.UNSTAGE] is StepState.NOT_OBSERVED


def test_unstage_is_unseen_if_a_watcher_may_be_on_the_node() -> None:
    seen = unmapped(
        of_image={"watchers": (remote_watcher(),)},
        in_kube={"attachments": (attachment("worker-2"),), "nodes": (node(),)},
    )
    assert back_from("worker-2", seen)[LifecycleStep.UNSTAGE] is StepState.NOT_OBSERVED


def test_orphan_on_one_node_breaks_no_step_of_another_node() -> None:
    seen = world(
        of_image={"watchers": (watcher(), remote_watcher())},
        in_kube={
            "pods": (pod("web-0", "worker-2"), waiting_pod("web-1", "worker-3")),
            "attachments": (attachment("worker-2"),),
            "nodes": (node("worker-1"), node("worker-2"), node("worker-3")),
        },
    )
    assert back_from("worker-1", seen)[LifecycleStep.UNSTAGE] is StepState.FAILED
    assert StepState.FAILED not in back_from("worker-2", seen).values()


def test_node_that_is_down_breaks_no_step_of_another_node() -> None:
    seen = world(
        of_image={"watchers": (watcher(), remote_watcher())},
        in_kube={
            "pods": (waiting_pod("web-1", "worker-3"),),
            "attachments": (attachment("worker-1"), attachment("worker-2")),
            "nodes": (node("worker-1"), node("worker-2", ready=None), node("worker-3")),
        },
    )
    assert back_from("worker-2", seen)[LifecycleStep.DETACH] is StepState.FAILED
    codes = [
        code
        for way in life(seen).detach_paths
        if way.node == "worker-1"
        for stage in way.stages
        for code in stage.codes
    ]
    assert "RBD113" not in codes
