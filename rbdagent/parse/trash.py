"""Entries of the trash of a pool, the omap of ``rbd_trash``."""

from __future__ import annotations

import struct
from typing import Final

_HEAD: Final = struct.Struct("<BBIBI")
"""Version, compatible version, length, source and length of the name (cls_rbd_types.cc,
TrashImageSpec::encode)."""


def name_in_trash(entry: bytes) -> bytes | None:
    """Return the name that an image had before it was moved to the trash; None if malformed."""
    if len(entry) < _HEAD.size:
        return None
    *_, length = _HEAD.unpack_from(entry)
    name = entry[_HEAD.size : _HEAD.size + length]
    return name if len(name) == length else None
