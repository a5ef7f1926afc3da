"""The nodes that may have the client of a watcher, where its address leads to no Node."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rbdagent.correlate.index import index_of
from rbdagent.correlate.volume_names import names_of_volume
from rbdagent.model import NotObserved, observed_of

if TYPE_CHECKING:
    from rbdagent.model import Snapshot, Volume

_MOST_NAMED: Final = 3
_ATTACHED: Final = "it has a VolumeAttachment of the volume"
_IN_USE: Final = "its kubelet lists the volume in volumesInUse"


def candidates_text(volume: Volume, snapshot: Snapshot) -> str:
    """Return where an unknown client may be, and why; empty if nothing leads to a node.

    A node is probable if it is the only candidate for the only unknown client, and its kubelet
    lists the volume: kubelet does so until the volume is unstaged. A VolumeAttachment alone may be
    one that the controller has not removed yet. Neither is a proof, because a machine outside of
    the cluster may have the client (ceph-csi#4375).
    """
    found = _candidates(volume, snapshot)
    if not found:
        return ""
    is_complete = not isinstance(volume.attachments, NotObserved)
    if len(found) == 1 and is_complete and _is_alone(volume):
        ((node, reasons),) = found.items()
        if _IN_USE in reasons:
            why = " and ".join(reasons)
            return (
                f"its node is probably {node}, because {why}, and no other client of the volume is "
                "known there"
            )
    named = [f"{node} ({' and '.join(found[node])})" for node in sorted(found)[:_MOST_NAMED]]
    more = len(found) - len(named)
    rest = f", and {more} more" if more > 0 else ""
    return f"it may be on a node where no client of the volume is known: {', '.join(named)}{rest}"


def _candidates(volume: Volume, snapshot: Snapshot) -> dict[str, tuple[str, ...]]:
    """Return the nodes, each with the reasons; not those that have a known client or were observed.

    The mappings of the observed node are known: none of them has the client.
    """
    using = index_of(snapshot).kube.nodes_using
    reasons = {
        _ATTACHED: {one.node_name for one in observed_of(volume.attachments) if one.attached},
        _IN_USE: {
            node.name
            for name in names_of_volume(volume).in_use_names
            for node in using.get(name, ())
        },
    }
    known = {
        holder.node
        for holder in volume.holders
        if holder.node is not None and (holder.mapping or holder.watcher or holder.published)
    }
    known |= {snapshot.node.node_name} if snapshot.node is not None else set()
    return {
        node: tuple(reason for reason, nodes in reasons.items() if node in nodes)
        for node in set().union(*reasons.values()) - known
    }


def _is_alone(volume: Volume) -> bool:
    """Return whether only one client has no node; several cannot all be on one."""
    unknown = [
        holder
        for holder in volume.holders
        if holder.node is None and holder.watcher is not None and holder.daemon is None
    ]
    return len(unknown) == 1
