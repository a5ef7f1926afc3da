"""A life tells nothing of what nobody saw, and blames no node for what another one does."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rbdagent.correlate import correlate
from rbdagent.diagnose.life import life_of
from rbdagent.model import LifeStep, StepState, Target, TargetKind
from tests.unit.builders import (
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

    from rbdagent.model import Life, LifeStage, Snapshot

IMAGE = Target(given=str(SPEC), kind=TargetKind.IMAGE, image=SPEC)


def life(seen: Snapshot) -> Life:
    return life_of(correlate(seen), seen)


def states(stages: Iterable[LifeStage]) -> dict[LifeStep, StepState]:
    return {each.step: each.state for each in stages}


def back_from(name: str, seen: Snapshot) -> dict[LifeStep, StepState]:
    return next(states(way.stages) for way in life(seen).back if way.node == name)


def test_without_the_api_neither_a_claim_nor_a_pod_is_said_to_be_none() -> None:
    there = states(life(snapshot(kubernetes=None, target=IMAGE)).there)
    assert there[LifeStep.PROVISION] is StepState.DONE
    assert there[LifeStep.BIND] is StepState.UNSEEN
    assert there[LifeStep.SCHEDULE] is StepState.UNSEEN


def test_a_volume_that_could_not_be_looked_for_is_not_said_to_be_missing() -> None:
    assert states(life(snapshot(kubernetes=None)).there)[LifeStep.PROVISION] is StepState.UNSEEN


def test_a_pod_that_could_not_be_looked_for_is_not_said_to_be_none() -> None:
    there = states(life(world(in_kube={"pods": UNSEEN})).there)
    assert there[LifeStep.SCHEDULE] is StepState.UNSEEN


def test_a_detach_is_not_done_where_nobody_saw_the_attachments() -> None:
    seen = world(in_kube={"attachments": UNSEEN})
    assert back_from("worker-1", seen)[LifeStep.DETACH] is StepState.UNSEEN


def test_a_node_has_not_unstaged_where_nobody_saw_the_watchers() -> None:
    seen = unmapped(
        of_image={"watchers": UNSEEN}, in_kube={"attachments": (attachment("worker-2"),)}
    )
    assert back_from("worker-2", seen)[LifeStep.UNSTAGE] is StepState.UNSEEN


def test_a_node_has_not_unstaged_where_a_watcher_of_no_known_node_may_be_there() -> None:
    seen = unmapped(
        of_image={"watchers": (remote_watcher(),)},
        in_kube={"attachments": (attachment("worker-2"),), "nodes": (node(),)},
    )
    assert back_from("worker-2", seen)[LifeStep.UNSTAGE] is StepState.UNSEEN


def test_an_orphan_on_one_node_breaks_no_step_of_the_node_that_uses_the_volume() -> None:
    seen = world(
        of_image={"watchers": (watcher(), remote_watcher())},
        in_kube={
            "pods": (pod("web-0", "worker-2"), waiting_pod("web-1", "worker-3")),
            "attachments": (attachment("worker-2"),),
            "nodes": (node("worker-1"), node("worker-2"), node("worker-3")),
        },
    )
    assert back_from("worker-1", seen)[LifeStep.UNSTAGE] is StepState.BROKEN
    assert StepState.BROKEN not in back_from("worker-2", seen).values()


def test_a_node_that_is_down_breaks_no_step_of_another_one() -> None:
    seen = world(
        of_image={"watchers": (watcher(), remote_watcher())},
        in_kube={
            "pods": (waiting_pod("web-1", "worker-3"),),
            "attachments": (attachment("worker-1"), attachment("worker-2")),
            "nodes": (node("worker-1"), node("worker-2", ready=None), node("worker-3")),
        },
    )
    assert back_from("worker-2", seen)[LifeStep.DETACH] is StepState.BROKEN
    codes = [
        code
        for way in life(seen).back
        if way.node == "worker-1"
        for each in way.stages
        for code in each.codes
    ]
    assert "RBD113" not in codes
