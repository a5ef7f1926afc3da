r"""Parser of ``/proc/PID/mountinfo`` (Documentation/filesystems/proc.rst, section 3.5).

One space ends a field, and a newline ends a line. The kernel escapes these two, tab and backslash
(mangle() in fs/proc_namespace.c). All other bytes of a path are unchanged, also ``\r``, ``\v`` and
``\f``, at which bytes.split() and bytes.splitlines() cut.
"""

from __future__ import annotations

import re
from typing import Final

from msgspec import Struct

from rbdagent.errors import ParseError
from rbdagent.model import DeviceNumber

_ESCAPE: Final = re.compile(rb"\\([0-7]{3})")
_MIN_FIELDS: Final = 10


_STOPPED: Final = frozenset({b"ro", b"emergency_ro", b"shutdown"})
"""Options of a super block that takes no writes. After an error, ext4 shows `emergency_ro` since
Linux 6.18, `ro` before 6.1, and neither in between (measured on 5.10, 6.1, 6.12, 6.18 and 7.2)."""


_QUOTAS_OF_PROJECTS: Final = (b"prjquota", b"pquota", b"prjjquota")
"""Options of a super block whose project quotas are enforced (fs/ext4/super.c, fs/xfs/xfs_super.c):
statfs(2) of a directory with a limited project then shows the limit."""


def limits_projects(line: bytes) -> bool:
    """Return whether a line of mountinfo is of a file system that enforces quotas of projects."""
    options = line.rpartition(b" ")[2].split(b",")
    return any(option.partition(b"=")[0] in _QUOTAS_OF_PROJECTS for option in options)


class MountLine(Struct, frozen=True, kw_only=True):
    """One mount as a process sees it."""

    mount_id: int
    parent_id: int
    """The id of the mount on which it is mounted."""
    device: DeviceNumber
    root: str
    path: str
    fs_type: str
    source: str
    read_only: bool
    """From the options of the super block, which follow file system type and source."""


def parse_mount_line(line: bytes, *, where: str) -> MountLine:
    r"""Parse one line; a byte that is not UTF-8 becomes ``\xe9`` or the like.

    Raises:
        ParseError: it has too few fields, no separator, or no device number.
    """
    fields = line.split(b" ")
    try:
        separator = fields.index(b"-", 6)
        major, minor = fields[2].split(b":")
        fs_type, source, options = fields[separator + 1 : separator + 4]
        return MountLine(
            mount_id=int(fields[0]),
            parent_id=int(fields[1]),
            device=DeviceNumber(major=int(major), minor=int(minor)),
            root=unescape(fields[3]),
            path=unescape(fields[4]),
            fs_type=unescape(fs_type),
            source=unescape(source),
            read_only=not _STOPPED.isdisjoint(options.split(b",")),
        )
    except ValueError as error:
        raise ParseError(
            what="a mount",
            where=where,
            text=line.decode(errors="backslashreplace"),
            expected=f"at least {_MIN_FIELDS} fields with MAJOR:MINOR and ' - '",
        ) from error


def unescape(field: bytes) -> str:
    r"""Undo the kernel's octal escapes of space, tab, newline and backslash (``\040``)."""
    raw = _ESCAPE.sub(lambda match: bytes((int(match[1], 8) & 0xFF,)), field)
    return raw.decode(errors="backslashreplace")
