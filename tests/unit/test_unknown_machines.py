"""Clients whose address no Node lists: how to find their machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from rbdagent.commands import lines_of
from rbdagent.model import EntityAddress
from tests.support.rule_tables import attached, kubelet_event, stage
from tests.support.snapshots import found, node, remote_watcher, unmapped, waiting_pod, watcher

if TYPE_CHECKING:
    from rbdagent.model import Snapshot, Watcher

STRANGER: Final = watcher(address=EntityAddress(ip="10.132.29.1", nonce=77), client=5604016)
FIND: Final = "Find the machine that has the address 10.132.29.1"


def still_used(*watchers: Watcher, **in_kube: Any) -> Snapshot:  # noqa: ANN401 - as the builders
    """Return worker-1, where ceph-csi refuses to stage the image because of its watchers."""
    parts = {
        "pods": (waiting_pod(node="worker-1"),),
        "events": (kubelet_event(stage("rbd image k8s/x is still being used")),),
        "attachments": attached("worker-1"),
        "nodes": (node("worker-1"), node("worker-2")),
        **in_kube,
    }
    return unmapped(of_image={"watchers": watchers}, in_kube=parts)


def test_search_for_an_unknown_machine_is_the_step_of_the_pod_that_waits() -> None:
    seen = still_used(STRANGER)
    refused, holder = found(seen, "RBD402"), found(seen, "RBD119")
    assert str(refused.remedy).startswith(FIND)
    assert refused.remedy == holder.remedy
    assert lines_of(refused.commands) == ("ssh worker-2 ip -br address",)
    assert refused.commands == holder.commands
    assert any("fence only this client: 10.132.29.1:0/77" in line for line in holder.evidence)


def test_client_of_a_known_node_is_looked_at_there() -> None:
    for watchers in ((remote_watcher(),), (remote_watcher(), STRANGER)):
        refused = found(still_used(*watchers), "RBD402")
        assert str(refused.remedy).startswith("See the findings about the holder")


def test_nodes_that_may_have_the_client_come_first() -> None:
    seen = still_used(STRANGER, attachments=attached("worker-2"))
    assert lines_of(found(seen, "RBD402").commands)[0].startswith("ssh worker-2 rbdagent who-holds")


def test_no_command_is_printed_for_each_of_many_nodes() -> None:
    many = tuple(node(f"worker-{number}") for number in range(1, 9))
    refused = found(still_used(STRANGER, nodes=many), "RBD402")
    assert refused.commands == ()
    assert str(refused.remedy).startswith(FIND)
