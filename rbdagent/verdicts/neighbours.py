"""Nodes whose reports are worth reading: only those that watch an image this node may write to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rbdagent.correlate.unknown_watchers import nodes_of_watchers_elsewhere
from rbdagent.verdicts.volume_verdict import is_writable, may_share_writing

if TYPE_CHECKING:
    from rbdagent.model import Volume


def neighbours(volume: Volume, node_name: str) -> tuple[str, ...]:
    """Return, in order, the other nodes whose reports may prove a conflict over an image.

    Empty if this node only reads, or if several nodes may write.
    """
    return nodes_of_watchers_elsewhere(volume, node_name) if would_conflict(volume) else ()


def would_conflict(volume: Volume) -> bool:
    """Return whether a second writer would be a conflict."""
    writes = any(
        is_writable(holder.mapping) is not False for holder in volume.holders if holder.mapping
    )
    return writes and not may_share_writing(volume)
