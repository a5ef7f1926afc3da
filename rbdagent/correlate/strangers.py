"""Watchers that the node that looked cannot name for certain, and whose agents could."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rbdagent.correlate.holders import is_ceph_daemon
from rbdagent.model import Holder, NotObserved

if TYPE_CHECKING:
    from rbdagent.model import VolumeUse


def strangers(use: VolumeUse) -> tuple[Holder, ...]:
    """Give the watchers that stay, are not this node's, and are none of Ceph's own daemons."""
    return tuple(each for each in use.holders if _is_stranger(each))


def nodes_of_strangers(use: VolumeUse, node_name: str) -> tuple[str, ...]:
    """Give the other nodes whose agents may know them, in order.

    A watcher's address leads to a Node; one that leads to none may be any node's that the volume
    is attached to. Their number grows with the watchers, never with the cluster.
    """
    found = strangers(use)
    names = {each.node for each in found if each.node is not None}
    if any(each.node is None for each in found):
        attached = () if isinstance(use.attachments, NotObserved) else use.attachments
        names |= {each.node_name for each in attached}
    return tuple(sorted(names - {node_name}))


def _is_stranger(holder: Holder) -> bool:
    if holder.watcher is None or holder.is_local or holder.passing:
        return False
    return not is_ceph_daemon(holder)
