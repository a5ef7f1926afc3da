"""The file system of a path, according to the mounts of a process."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from rbdagent.collect.files import MAPS, MOUNTINFO, UnreadError, read_blocks, read_bytes
from rbdagent.errors import ParseError
from rbdagent.parse.excerpt import printable, shortened
from rbdagent.parse.mountinfo import parse_mount_line

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rbdagent.collect.node.limits import Share
    from rbdagent.parse.mountinfo import MountLine

_ARG_START = 45
"""Field 48 of ``/proc/PID/stat`` (proc(5)), counted from the state, which is field 3."""


def file_system_of(directory: str, at: str, share: Share) -> str:
    """Return type and source of the file system of a process's file; empty if it is unknown.

    Args:
        directory: the process's directory below /proc.
        at: a link in it, or ``cmdline``. The kernel reads ``cmdline`` from the process's memory,
            where a file may be mapped (prctl(PR_SET_MM_MAP)).
        share: the time limit.
    """
    try:
        path = _path_of_arguments(directory, share) if at.endswith("/cmdline") else os.readlink(at)
        mount = mount_of(path, f"{directory}/mountinfo", share) if path.startswith("/") else None
    except (OSError, UnreadError, ParseError):
        return ""
    return "" if mount is None else shortened(printable(f"{mount.fs_type} ({mount.source})"))


def _path_of_arguments(directory: str, share: Share) -> str:
    raw = read_bytes(f"{directory}/stat")
    fields = raw.rpartition(b")")[2].split() if isinstance(raw, bytes) else []
    begin = int(fields[_ARG_START]) if len(fields) > _ARG_START else 0
    for line in _lines(f"{directory}/maps", MAPS, share):
        first, _, last = line.partition(b" ")[0].partition(b"-")
        if int(first, 16) <= begin < int(last, 16):
            words = line.split(None, 5)
            return os.fsdecode(words[5]) if len(words) > 5 else ""
    return ""


def mount_of(path: str, mountinfo: str, share: Share) -> MountLine | None:
    """Return the mount that contains a path; of several on one directory, the last one.

    Raises:
        ParseError: a line cannot be parsed.
        UnreadError: mountinfo was not read to its end.
    """
    found: MountLine | None = None
    for line in _lines(mountinfo, MOUNTINFO, share):
        mount = parse_mount_line(line, where=mountinfo)
        above = mount.path.rstrip("/")
        if path != above and not path.startswith(f"{above}/"):
            continue
        if found is None or len(mount.path) >= len(found.path):
            found = mount
    return found


def _lines(path: str, most: int, share: Share) -> Iterator[bytes]:
    for block in read_blocks(path, most, share):
        yield from block.split(b"\n")
