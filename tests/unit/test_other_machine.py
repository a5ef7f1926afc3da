"""A machine that is not its Node: nothing on it counts as observed, and nothing is unmapped."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from rbdagent.correlate import correlate
from rbdagent.correlate.machine import is_its_node, without_other_machine
from rbdagent.model import (
    NotObserved,
    Pod,
    PublishedMapping,
    PublishedNode,
    Snapshot,
    SourceState,
    UnmapRefusal,
    Verdict,
)
from rbdagent.rules import diagnose
from tests.support.agent_loop import ORPHAN, Stage, cycle_of, rounds, samples
from tests.support.snapshots import FSID, IMAGE_ID, NOW, SPEC, UNSEEN, node, pod
from tests.support.snapshots import unmapped as free
from tests.support.unmap_plans import history, planned, seen

OTHER: dict[str, Any] = {"boot_id": "b002"}
OWN_AGENT = PublishedNode(
    name="worker-1",
    observed_at=NOW,
    mappings=(
        PublishedMapping(
            device="/dev/rbd0", verdict=Verdict.IN_USE, fsid=FSID, spec=SPEC, image_id=IMAGE_ID,
            read_only=True,
        ),
    ),
)  # fmt: skip
"""What the agent of the real worker-1 reports: a mapping without a watch."""


def of_node(**changes: Any) -> Snapshot:  # noqa: ANN401 - fields of the Node
    return seen(in_kube={"nodes": (node(**changes), node("worker-2"))})


def test_equal_boot_ids_are_one_machine() -> None:
    assert is_its_node(seen()) is True
    assert without_other_machine(seen()) == seen()


@pytest.mark.parametrize(
    ("look", "reason"),
    [
        (seen(kubernetes=None), "nodes: connection refused"),
        (seen(in_kube={"nodes": UNSEEN}), UNSEEN.reason),
        (seen(in_kube={"nodes": (node("worker-2"),)}), "no Node is named worker-1"),
        (of_node(boot_id=None), "Node worker-1 has no boot id"),
        (of_node(boot_id=""), "Node worker-1 has no boot id"),
        (seen(on_node={"boot_id": None}), "the boot id of this machine was not observed"),
    ],
    ids=["no API", "nodes unseen", "no Node", "no id", "empty id", "own id unread"],
)
def test_machine_without_two_boot_ids_is_neither_the_node_nor_another(
    look: Snapshot, reason: str
) -> None:
    """A host outside Kubernetes has no Node; its devices are still observed."""
    found = is_its_node(look)
    assert isinstance(found, NotObserved)
    assert reason in found.reason
    assert without_other_machine(look) == look
    refusal = planned(look, remembered=history())
    assert isinstance(refusal, UnmapRefusal)
    assert any(
        observed.startswith("whether this machine is Node worker-1: not observed")
        for condition in refusal.conditions
        for observed in condition.observed
    )


@pytest.mark.parametrize("pods", [(pod(),), (pod(phase="Pending", ready=False),)])
def test_machine_with_the_boot_id_of_another_node_has_a_wrong_name(pods: tuple[Pod, ...]) -> None:
    """`--node-name` is the host name by default, and a Node may have another one."""
    reports = OWN_AGENT, PublishedNode(name="worker-2", observed_at=NOW)
    look = seen(
        on_node={"node_name": "worker-1.example"},
        in_kube={"nodes": (node(), node("worker-2")), "pods": pods, "published": reports},
    )
    assert is_its_node(look) is False
    found = without_other_machine(look)
    assert found.node is None
    assert found.sources.node.reason.startswith("this machine (worker-1) is Node worker-1, ")
    assert found.sources.node.hint == "pass --node-name worker-1"
    diagnosis = diagnose(correlate(found), found)
    assert diagnosis.verdict not in {Verdict.CONFLICT, Verdict.ORPHANED, Verdict.FREE}
    assert "RBD907" in {finding.code for finding in diagnosis.findings}


def test_another_machine_is_not_observed_as_the_node() -> None:
    look = without_other_machine(seen(on_node=OTHER))
    assert look.node is None
    assert look.sources.node.state is SourceState.FAILED
    assert "b002" in look.sources.node.reason
    assert "b001" in look.sources.node.reason
    assert "--node-name" in look.sources.node.hint
    assert is_its_node(look) is False
    assert without_other_machine(look) == look


def test_another_machine_gives_no_plan() -> None:
    """The condition compares the ids itself, whatever the snapshot's source has left out."""
    assert not isinstance(planned(seen(), remembered=history()), UnmapRefusal)
    refusal = planned(seen(on_node=OTHER), remembered=history())
    assert isinstance(refusal, UnmapRefusal)
    assert refusal.codes == ("RBD505",)
    assert "this machine is not Node worker-1: their boot ids differ" in refusal.reasons["RBD505"]


def test_no_volume_is_free_on_another_machine() -> None:
    """The devices of that machine are not those of the Node."""
    look = free()
    assert diagnose(correlate(look), look).verdict is Verdict.FREE
    look = without_other_machine(free(on_node=OTHER))
    diagnosis = diagnose(correlate(look), look)
    assert diagnosis.verdict is Verdict.UNDETERMINED
    codes = [finding.code for finding in diagnosis.findings]
    assert "RBD907" in codes
    assert "RBD901" not in codes


def test_report_of_the_nodes_own_agent_counts_on_another_machine() -> None:
    look = free(on_node=OTHER, in_kube={"published": (OWN_AGENT,)})
    look = without_other_machine(look)
    diagnosis = diagnose(correlate(look), look)
    assert [holder.holder.node for holder in diagnosis.holders] == ["worker-1"]
    assert diagnosis.verdict is Verdict.IN_USE


def test_agent_of_another_machine_unmaps_nothing_and_queries_the_api_again(
    acting: Stage, unmapped: list[str]
) -> None:
    acting.snapshots = [without_other_machine(replace(ORPHAN, node=replace(_node(), **OTHER)))]
    acting.watch(acting.agent(), minutes=20)
    assert unmapped == []
    assert set(acting.asked_api) == {True}


def _node() -> Any:  # noqa: ANN401 - it is never None here
    return ORPHAN.node


def test_node_that_reports_late_is_observed_as_soon_as_it_does(stage: Stage) -> None:
    """After a boot, the ids differ until kubelet reports."""
    stage.snapshots = [without_other_machine(seen(on_node=OTHER)), seen()]
    rounds(stage.agent(), "start", "time")
    assert [cycle.verdicts.total() for cycle in stage.reported] == [0, 1]
    assert stage.asked_api == [True, True]


@pytest.mark.parametrize(
    ("look", "values"),
    [
        (seen(), [1.0]),
        (without_other_machine(seen(on_node=OTHER)), [0.0]),
        (seen(in_kube={"nodes": UNSEEN}), []),
    ],
    ids=["it is", "it is not", "not observed"],
)
def test_metric_shows_whether_the_machine_is_its_node(look: Snapshot, values: list[float]) -> None:
    found = samples(cycle_of(look), "rbdagent_is_its_node")
    assert [sample.value for sample in found] == values
