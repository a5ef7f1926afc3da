"""Small reads below an injected root; what cannot be read says why."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

from rbdagent.model import NotObserved

if TYPE_CHECKING:
    from pathlib import Path

_CHUNK = 1 << 20


def read_bytes(path: str | Path, *, gone: int | None = None) -> bytes | NotObserved | None:
    """Read a whole file: None where there is none, NotObserved where it may not be read.

    ``gone`` is one more error number that says, of this file, that it is not there any more.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY)
    except OSError as error:
        return None if error.errno == gone else failure(path, error)
    try:
        chunks = []
        while chunk := os.read(descriptor, _CHUNK):
            chunks.append(chunk)
    except OSError as error:
        return failure(path, error)
    finally:
        os.close(descriptor)
    return b"".join(chunks)


def read_text(path: str | Path) -> str | NotObserved | None:
    r"""Read a small text file without its last newline; ``\xe9`` stands for a byte not UTF-8."""
    raw = read_bytes(path)
    # As parse.mountinfo has it: a loop device's file is compared with the paths of mounts.
    return raw.decode(errors="backslashreplace").rstrip("\n") if isinstance(raw, bytes) else raw


def names_in(path: str | Path) -> tuple[str, ...] | NotObserved | None:
    """Give the sorted names in a directory; it is listed, nothing in it is touched."""
    try:
        return tuple(sorted(os.listdir(path)))
    except OSError as error:
        return failure(path, error)


def link_text(path: str | Path) -> str | NotObserved | None:
    """Read a symbolic link."""
    try:
        return os.readlink(path)
    except OSError as error:
        return failure(path, error)


_MOST_LINKS = 40
"""As many as the kernel follows (MAXSYMLINKS)."""


def followed(host_root: str | Path, path: str) -> str:
    """Give where a path of the host leads there; below another root an absolute link would not.

    Args:
        host_root: where the host's ``/`` is.
        path: an absolute one, as the host names it.
    """
    left, done, links = path.split("/"), "", 0
    while left:
        part = left.pop(0)
        if part in {"", "."}:
            continue
        if part == "..":
            done = done.rpartition("/")[0]
            continue
        target = link_text(f"{host_root}{done}/{part}") if links < _MOST_LINKS else None
        if isinstance(target, str):
            links += 1
            left = target.split("/") + left
            done = "" if target.startswith("/") else done
        else:
            done = f"{done}/{part}"
    return done or "/"


def is_same(path: str, other: str) -> bool:
    """Tell whether two names lead to one file; no where either cannot be looked at."""
    try:
        return os.path.samefile(path, other)
    except OSError:
        return False


def inode_of(path: str | Path) -> int | None:
    """Give the inode of what a path leads to."""
    try:
        return os.stat(path).st_ino
    except OSError:
        return None


def listed(path: str | Path) -> tuple[str, ...]:
    """Give the names in a directory where "cannot look" and "is not there" come to the same."""
    names = names_in(path)
    return names if isinstance(names, tuple) else ()


def text_or_none(path: str | Path) -> str | None:
    """Give a text where "cannot look" and "is not there" come to the same."""
    text = read_text(path)
    return text if isinstance(text, str) else None


def failure(path: str | Path, error: OSError) -> NotObserved | None:
    """Tell why a file was not read; None: it is not there, or not any more."""
    # ESRCH and ENODEV: the process or device went away while we looked.
    if error.errno in {errno.ENOENT, errno.ENOTDIR, errno.ESRCH, errno.ENODEV, errno.ENXIO}:
        return None
    return NotObserved(reason=f"{path}: {error.strerror or error}", cure=_cure(error))


def _cure(error: OSError) -> str:
    if error.errno in {errno.EACCES, errno.EPERM}:
        return "run as root, or grant CAP_DAC_READ_SEARCH"
    return ""
