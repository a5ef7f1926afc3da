"""Whether the observed machine is the Node whose name rbdagent was given.

A wrong ``--node-name``, a cloned VM, or two machines with one host name join the devices of one
machine with the pods of another. The boot id distinguishes them: kubelet copies it from
``/proc/sys/kernel/random/boot_id`` to ``status.nodeInfo.bootID`` (MachineInfo() in
pkg/kubelet/nodestatus/setters.go@v1.36.3). After a boot, the two differ until kubelet reports.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from rbdagent.correlate.index import kube_index
from rbdagent.correlate.volume_names import node_named
from rbdagent.model import Node, NotObserved, OtherMachine, Snapshot, SourceState

if TYPE_CHECKING:
    from rbdagent.model import NodeView


def is_its_node(snapshot: Snapshot) -> bool | NotObserved:
    """Return whether the observed machine is the Node of its name.

    Without a Node, without an answer of the API and without one of the boot ids, this is not
    observed: a host outside Kubernetes has no Node. A machine with the boot id of a Node of another
    name is that Node: the name that rbdagent was given is wrong.
    """
    node = snapshot.node
    if snapshot.other_machine is not None:
        return False
    if node is None or not node.boot_id:
        return NotObserved(reason="the boot id of this machine was not observed")
    found = node_named(node.node_name, snapshot)
    if isinstance(found, NotObserved):
        return found
    if found is None and _node_of_machine(node, snapshot) is not None:
        return False
    if found is None or not found.boot_id:
        name = node.node_name
        missing = f"no Node is named {name}" if found is None else f"Node {name} has no boot id"
        return NotObserved(reason=missing)
    return found.boot_id == node.boot_id


def _node_of_machine(node: NodeView, snapshot: Snapshot) -> Node | None:
    """Return the Node with the boot id of the observed machine."""
    nodes = kube_index(snapshot.kubernetes).nodes
    return next((found for found in nodes if found.boot_id == node.boot_id), None)


def without_other_machine(snapshot: Snapshot) -> Snapshot:
    """Return a snapshot in which another machine than the Node counts as not observed.

    Its devices, mounts and processes are not those of the Node. Without them, the Node is one that
    only its own agent observes.
    """
    node = snapshot.node
    if node is None or is_its_node(snapshot) is not False:
        return snapshot
    named = node_named(node.node_name, snapshot)
    found = named if isinstance(named, Node) else _node_of_machine(node, snapshot)
    assert found is not None  # noqa: S101 - is_its_node() compared it
    other = OtherMachine(
        node_name=node.node_name,
        hostname=node.hostname,
        boot_id=node.boot_id or "",
        node_boot_id=found.boot_id or "",
        is_node="" if found is named else found.name,
    )
    source = replace(
        snapshot.sources.node,
        state=SourceState.FAILED,
        reason=other.reason,
        hint=other.hint,
        gaps=(),
    )
    return replace(
        snapshot,
        node=None,
        other_machine=other,
        sources=replace(snapshot.sources, node=source),
    )
