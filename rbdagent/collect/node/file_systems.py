"""The file system of a path, according to the mounts of a process."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from rbdagent.collect.files import UnreadError, read_blocks
from rbdagent.collect.node.limits import MOUNTINFO
from rbdagent.errors import ParseError
from rbdagent.parse.excerpt import printable, shortened
from rbdagent.parse.foreign import foreign_name
from rbdagent.parse.mountinfo import parse_mount_line

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rbdagent.collect.node.limits import Share
    from rbdagent.parse.mountinfo import MountLine


def file_system_of(directory: str, at: str, share: Share) -> str:
    """Return type and source of the file system of a process's file; empty if it is unknown.

    Args:
        directory: the process's directory below /proc.
        at: a link in it.
        share: the time limit.
    """
    try:
        path = os.readlink(at)
        mount = mount_of(path, f"{directory}/mountinfo", share) if path.startswith("/") else None
    except (OSError, UnreadError, ParseError):
        return ""
    return "" if mount is None else f"{_named(mount.fs_type)} ({_named(mount.source)})"


def _named(name: str) -> str:
    """Return a name that who mounts a file system chooses: its source, or the subtype of FUSE."""
    return foreign_name(shortened(printable(name)))


def mount_of(path: str, mountinfo: str, share: Share) -> MountLine | None:
    """Return the mount that contains a path; of several on one directory, the last one.

    Raises:
        ParseError: a line cannot be parsed.
        UnreadError: mountinfo was not read to its end.
    """
    found: MountLine | None = None
    for line in _lines(mountinfo, share):
        mount = parse_mount_line(line, where=mountinfo)
        above = mount.path.rstrip("/")
        if path != above and not path.startswith(f"{above}/"):
            continue
        if found is None or len(mount.path) >= len(found.path):
            found = mount
    return found


def _lines(path: str, share: Share) -> Iterator[bytes]:
    for block in read_blocks(path, MOUNTINFO, share):
        yield from block.split(b"\n")
