"""On which file system a process keeps what does not answer."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from rbdagent.errors import ParseError
from rbdagent.observe.files import MAPS, MOUNTINFO, UnreadError, read_blocks, read_bytes
from rbdagent.parse.excerpt import printable, shortened
from rbdagent.parse.mountinfo import parse_mount_line

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rbdagent.observe.shares import Share
    from rbdagent.parse.mountinfo import MountLine

_ARG_START = 45
"""Field 48 of ``/proc/PID/stat`` (proc(5)), counted from the state, the third."""


def file_system_of(directory: str, at: str, share: Share) -> str:
    """Return type and source of the file system behind a file of a process; empty: not known.

    Args:
        directory: the process's, below /proc.
        at: a link of it, or its ``cmdline``, which is read from its memory: a file may be mapped
            where the kernel looks for it (prctl(PR_SET_MM_MAP)).
        share: the time that it may take.
    """
    try:
        path = _path_of_arguments(directory, share) if at.endswith("/cmdline") else os.readlink(at)
        mount = _mount_of(path, directory, share) if path.startswith("/") else None
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


def _mount_of(path: str, directory: str, share: Share) -> MountLine | None:
    """Return the mount that shows a path; of several on one directory the last one does."""
    found: MountLine | None = None
    for line in _lines(f"{directory}/mountinfo", MOUNTINFO, share):
        mount = parse_mount_line(line, where=directory)
        above = mount.path.rstrip("/")
        if path != above and not path.startswith(f"{above}/"):
            continue
        if found is None or len(mount.path) >= len(found.path):
            found = mount
    return found


def _lines(path: str, most: int, share: Share) -> Iterator[bytes]:
    for block in read_blocks(path, most, share):
        yield from block.split(b"\n")
