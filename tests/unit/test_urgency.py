"""The groups of ``diagnose -A``: data at risk, blocked, other, leftovers; and the node of each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rbdagent.lifecycle.cluster_report import report_cluster
from rbdagent.lifecycle.urgency import Urgency, by_urgency, node_of, urgency_of, waiting_for
from rbdagent.model import Severity, TargetKind
from tests.support.random_clusters import some_cluster
from tests.support.snapshots import (
    LONG_AGO,
    UNSEEN,
    attachment,
    mount,
    node,
    opener,
    pod,
    remote_watcher,
    target,
    waiting_pod,
    watcher,
    world,
)

if TYPE_CHECKING:
    from rbdagent.model import AffectedObject, Snapshot

CLUSTERS: Final = st.builds(
    some_cluster, st.randoms(use_true_random=False), st.integers(min_value=0, max_value=8)
)


def whole(**parts: Any) -> Snapshot:  # noqa: ANN401 - as the builders
    return world(target=target(argument="-A", kind=TargetKind.NONE, name=""), **parts)


def only(snapshot: Snapshot) -> AffectedObject:
    (affected,) = report_cluster(snapshot).stuck
    return affected


WAITS: Final = {"pods": (waiting_pod("web-1", "worker-2"),)}
NODES: Final = {"nodes": (node("worker-1"), node("worker-2"))}
STATES: Final = {
    "orphan": ({}, Urgency.LEFTOVER),
    "pinned": ({"mapped": {"openers": (opener(),)}}, Urgency.LEFTOVER),
    "orphan that blocks a pod": ({"in_kube": WAITS | NODES}, Urgency.BLOCKED),
    "orphan, pods not observed": ({"in_kube": {"pods": UNSEEN}}, Urgency.OTHER),
    "orphan, pods of one node observed": ({"in_kube": {"pods_scope": "node/n1"}}, Urgency.OTHER),
    "pod that does not end": (
        {
            "mapped": {"mounts": (mount(),)},
            "of_kubelet": {"process": None},
            "in_kube": {
                "pods": (pod(deleting_since=LONG_AGO),),
                "attachments": (attachment(),),
            },
        },
        Urgency.OTHER,
    ),
    "two writers": (
        {
            "of_image": {"watchers": (watcher(), remote_watcher())},
            "in_kube": {
                "pods": (pod("web-0", "worker-2"), waiting_pod("web-1", "worker-3")),
                "attachments": (attachment("worker-2"),),
                "nodes": tuple(node(f"worker-{number}") for number in (1, 2, 3)),
            },
        },
        Urgency.AT_RISK,
    ),
}


@pytest.mark.parametrize(("parts", "urgency"), STATES.values(), ids=STATES)
def test_object_is_in_the_group_of_its_pods(parts: dict[str, Any], urgency: Urgency) -> None:
    snapshot = whole(**parts)
    assert urgency_of(only(snapshot), snapshot.kubernetes) is urgency


def test_pods_that_wait_are_those_of_the_volume() -> None:
    waiting = waiting_for(only(whole(in_kube=WAITS | NODES)))
    assert [str(waiter.ref) for waiter in waiting] == ["default/web-1"]


def test_node_is_the_holders_node_and_not_that_of_the_waiting_pod() -> None:
    assert node_of(only(whole(in_kube=WAITS | NODES))) == "worker-1"


@given(CLUSTERS)
def test_groups_have_each_object_once(snapshot: Snapshot) -> None:
    found = report_cluster(snapshot)
    groups = by_urgency(found, snapshot.kubernetes)
    grouped = [affected for causes in groups.values() for cause in causes for affected in cause]
    assert sorted(map(id, grouped)) == sorted(map(id, found.stuck))
    for urgency, causes in groups.items():
        for affected in (affected for cause in causes for affected in cause):
            is_critical = affected.finding.severity is Severity.CRITICAL
            assert (urgency is Urgency.AT_RISK) is is_critical
            if urgency is Urgency.LEFTOVER:
                assert not affected.life.diagnosis.volume.waiting_pods
