"""Entries of the trash of a pool, the omap of ``rbd_trash``."""

from __future__ import annotations

import struct
from typing import Final

_HEAD: Final = struct.Struct("<BBIBI")
"""Version, compatible version, length, source and length of the name (cls_rbd_types.cc,
TrashImageSpec::encode)."""


_MIGRATION, _REMOVING = 2, 3
"""Of TrashImageSource: the source of a migration, and an image that `rbd rm` is deleting."""


def name_in_trash(entry: bytes) -> bytes | None:
    """Return the name that an image had before it was moved to the trash.

    None if the entry is malformed, or if the image was not deleted by its name: the target of a
    migration may have the name of its source, and what is being removed cannot be restored.
    """
    if len(entry) < _HEAD.size:
        return None
    _, _, _, source, length = _HEAD.unpack_from(entry)
    name = entry[_HEAD.size : _HEAD.size + length]
    is_whole = len(name) == length
    return name if is_whole and source not in {_MIGRATION, _REMOVING} else None
