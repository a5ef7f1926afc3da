"""Whose agent is worth asking what it published: as few as watch what this node may write to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rbdagent.correlate.strangers import nodes_of_strangers
from rbdagent.diagnose.target import is_writable, may_share_writing

if TYPE_CHECKING:
    from rbdagent.model import VolumeUse


def neighbours(use: VolumeUse, node_name: str) -> tuple[str, ...]:
    """Give the other nodes whose RBDNode may make a conflict over an image certain, in order.

    None where this node only reads, or where several may write.
    """
    return nodes_of_strangers(use, node_name) if would_conflict(use) else ()


def would_conflict(use: VolumeUse) -> bool:
    """Tell whether a second writer would be one too many."""
    writes = any(is_writable(each.mapping) is not False for each in use.holders if each.mapping)
    return writes and not may_share_writing(use)
