"""Values in the objects of librbd and of ceph-csi: the directory of a pool, times, pool numbers."""

from __future__ import annotations

import struct
from typing import Final

from rbdagent.parse.times import iso_time

_LENGTH: Final = struct.Struct("<I")
_TIME: Final = struct.Struct("<II")
"""Seconds and nanoseconds (utime_t, src/include/utime.h)."""


def name_in_directory(value: bytes) -> str | None:
    r"""Return the name of an image, the value of ``id_<id>`` in ``rbd_directory``.

    A byte that is not UTF-8 is ``\xff``. None if the value is malformed.
    """
    if len(value) < _LENGTH.size:
        return None
    (length,) = _LENGTH.unpack_from(value)
    name = value[_LENGTH.size : _LENGTH.size + length]
    return name.decode(errors="backslashreplace") if len(name) == length else None


def time_of(value: bytes) -> str | None:
    """Return a time as ISO 8601 in UTC; None if it is malformed, or zero, which means unset."""
    if len(value) < _TIME.size:
        return None
    seconds, _ = _TIME.unpack_from(value)
    return iso_time(seconds) if seconds else None
