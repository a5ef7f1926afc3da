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

    One node is probable if all attachments were observed and no other unknown client exists: the
    control plane prepared the volume there, and no other client of the image is known there. It is
    no proof, because a machine outside of the cluster may have the client (ceph-csi#4375).
    """
    found = _candidates(volume, snapshot)
    if not found:
        return ""
    if len(found) == 1 and not isinstance(volume.attachments, NotObserved) and _is_alone(volume):
        ((node, why),) = found.items()
        return f"probable: {node}, because {why} and no other client of it is known there"
    named = [f"{node} ({why})" for node, why in sorted(found.items())[:_MOST_NAMED]]
    more = len(found) - len(named)
    rest = f", and {more} more" if more > 0 else ""
    return f"candidates, where no client of the volume is known: {', '.join(named)}{rest}"


def _candidates(volume: Volume, snapshot: Snapshot) -> dict[str, str]:
    """Return the nodes, each with the reason; not those that have a known client or were observed.

    The mappings of the observed node are known: none of them has the client.
    """
    using = index_of(snapshot).kube.nodes_using
    found = {
        node.name: _IN_USE
        for name in names_of_volume(volume).in_use_names
        for node in using.get(name, ())
    }
    found |= {
        attachment.node_name: _ATTACHED
        for attachment in observed_of(volume.attachments)
        if attachment.attached
    }
    known = {
        holder.node
        for holder in volume.holders
        if holder.node is not None and (holder.mapping or holder.watcher or holder.published)
    }
    known |= {snapshot.node.node_name} if snapshot.node is not None else set()
    return {node: why for node, why in found.items() if node not in known}


def _is_alone(volume: Volume) -> bool:
    """Return whether only one client has no node; several cannot all be on one."""
    unknown = [
        holder
        for holder in volume.holders
        if holder.node is None and holder.watcher is not None and holder.daemon is None
    ]
    return len(unknown) == 1
