"""Entries of the trash of a pool, the omap of ``rbd_trash``."""

from __future__ import annotations

import struct
from typing import Final

from rbdagent.model.inventory import TrashEntry, TrashSource
from rbdagent.parse.rbd_objects import time_of

_HEAD: Final = struct.Struct("<BBIBI")
"""Version, compatible version, length, source and length of the name (cls_rbd_types.cc,
TrashImageSpec::encode)."""
_TIME: Final = 8
"""Length of each of the two times that follow the name."""


_MIGRATION, _REMOVING = 2, 3
"""Of TrashImageSource: the source of a migration, and an image that `rbd rm` is deleting."""
_SOURCES: Final = (
    TrashSource.USER,
    TrashSource.MIRRORING,
    TrashSource.MIGRATION,
    TrashSource.REMOVING,
    TrashSource.USER_PARENT,
)
"""In the order of TrashImageSource."""


def name_in_trash(entry: bytes) -> bytes | None:
    """Return the name that an image had before it was moved to the trash.

    None if the entry is malformed, or if the image was not deleted by its name: the target of a
    migration may have the name of its source, and what is being removed cannot be restored.
    """
    head = _head_of(entry)
    if head is None:
        return None
    source, name = head
    return name if source not in {_MIGRATION, _REMOVING} else None


def trash_entry(entry: bytes) -> TrashEntry | None:
    """Return an entry with its times; None if it is malformed."""
    head = _head_of(entry)
    if head is None:
        return None
    source, name = head
    since = _HEAD.size + len(name)
    until = since + _TIME
    return TrashEntry(
        name=name.decode(errors="backslashreplace"),
        source=_SOURCES[source] if source < len(_SOURCES) else None,
        since=time_of(entry[since:until]),
        until=time_of(entry[until : until + _TIME]),
    )


def _head_of(entry: bytes) -> tuple[int, bytes] | None:
    """Return source and name; None if the entry ends before them."""
    if len(entry) < _HEAD.size:
        return None
    _, _, _, source, length = _HEAD.unpack_from(entry)
    name = entry[_HEAD.size : _HEAD.size + length]
    return (source, name) if len(name) == length else None
