"""Watchers that this node cannot identify with certainty, and the nodes whose agents may."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rbdagent.correlate.holders import is_ceph_daemon
from rbdagent.model import Holder, observed_of

if TYPE_CHECKING:
    from rbdagent.model import Volume


def watchers_elsewhere(volume: Volume) -> tuple[Holder, ...]:
    """Return the watchers that are not transient, not on this node, and not daemons of Ceph."""
    return tuple(holder for holder in volume.holders if _is_elsewhere(holder))


def nodes_of_watchers_elsewhere(volume: Volume, node_name: str) -> tuple[str, ...]:
    """Return, in order, the other nodes whose agents may identify these watchers.

    The address of a watcher leads to a Node. If it does not, the watcher may be on any node to
    which the volume is attached. The number of nodes grows with the watchers, not with the cluster.
    """
    found = watchers_elsewhere(volume)
    names = {holder.node for holder in found if holder.node is not None}
    if any(holder.node is None for holder in found):
        names |= {attachment.node_name for attachment in observed_of(volume.attachments)}
    return tuple(sorted(names - {node_name}))


def _is_elsewhere(holder: Holder) -> bool:
    if holder.watcher is None or holder.is_local or holder.transient:
        return False
    return not is_ceph_daemon(holder)
