"""What several reads of an image's watches show together."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rbdagent.model import EntityAddress, Watcher

Watches = tuple["Watcher", ...]


def watches_in(reads: Sequence[Watches]) -> tuple[Watches, Watches]:
    """Return the lasting and the transient watches of reads that follow each other.

    A watch that is new in the last read is a lasting one: ceph-csi maps an image right after its
    in-use check, and a migration opens it at any time. Only a watch that is gone in the last read
    may be transient. If it was one of krbd, it is a lasting one too: a mapped client that has just
    lost its watch can still write.

    Args:
        reads: the watches of one image, the first read first; at least one.

    Returns:
        The lasting watches, and the transient ones, each client of an earlier read once.
    """
    last = reads[-1]
    there = {_client(watcher) for watcher in last}
    earlier = {_client(watcher): watcher for read in reads[:-1] for watcher in read}
    gone = [watcher for client, watcher in earlier.items() if client not in there]
    lasting = (*last, *(watcher for watcher in gone if watcher.is_of_kernel))
    return lasting, tuple(watcher for watcher in gone if not watcher.is_of_kernel)


def has_new_watch(reads: Sequence[Watches]) -> bool:
    """Return whether the last read has a client of librbd that the read before it has not."""
    *_, before, last = reads
    known = {_client(watcher) for watcher in before}
    return any(_client(watcher) not in known for watcher in last if not watcher.is_of_kernel)


def _client(watcher: Watcher) -> tuple[EntityAddress, int]:
    return watcher.address, watcher.client
