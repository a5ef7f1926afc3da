"""Whose agent is worth asking what it published: as few as watch what this node may write to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rbdagent.diagnose.target import is_writable, may_share_writing
from rbdagent.model import Holder, HolderKind, NotObserved

if TYPE_CHECKING:
    from rbdagent.model import VolumeUse


def neighbours(use: VolumeUse, node_name: str) -> tuple[str, ...]:
    """Give the other nodes whose RBDNode may make a conflict over an image certain, in order.

    A watcher's address leads to a Node; one that leads to none may be any node's that the volume
    is attached to. None where nobody else watches, or where several may write: their number grows
    with what this node has mapped, never with the cluster.
    """
    writes = any(is_writable(each.mapping) is not False for each in use.holders if each.mapping)
    strangers = [each for each in use.holders if _is_stranger(each)]
    if not writes or not strangers or may_share_writing(use):
        return ()
    names = {each.node for each in strangers if each.node is not None}
    if any(each.node is None for each in strangers):
        attached = () if isinstance(use.attachments, NotObserved) else use.attachments
        names |= {each.node_name for each in attached}
    return tuple(sorted(names - {node_name}))


def _is_stranger(holder: Holder) -> bool:
    """Tell a watcher that stays, is not this node's, and is none of Ceph's own daemons."""
    if holder.watcher is None or holder.is_local or holder.passing:
        return False
    return holder.kind not in (HolderKind.MGR, HolderKind.MIRROR)
