"""Bounded reads below an injected root; what cannot be read says why.

A tenant chooses how large many files of /proc are: his command line by prctl(PR_SET_MM_MAP), his
mounts, his memory mappings. So each read has a bound, and a larger file is not observed.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
import struct
from typing import TYPE_CHECKING, Final, NamedTuple

from rbdagent.model import NotObserved

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from rbdagent.observe.shares import Share

SMALL: Final = 1 << 16
"""An attribute of sysfs has a page at most. JSON files of kubelet and ceph-csi have less, and so
have the files of /proc that tell of one process in a few lines."""
LISTS: Final = 1 << 24
"""Lists that grow with the node: sockets, routes, requests to Ceph."""
COMMAND_LINE: Final = 1 << 12
"""As much of a command line as is looked at: 200 characters of it are shown."""
ARGUMENTS: Final = 1 << 14
"""Of programs whose arguments matter. A path has 4,095 bytes at most, mount options a page."""
MOUNTINFO: Final = 1 << 24
"""The kernel allows 100,000 mounts (fs.mount-max), of some 150 bytes each."""
MAPS: Final = 1 << 26
"""262,144 mappings, which search engines ask for (vm.max_map_count), of some 120 bytes each."""

_CHUNK: Final = 1 << 20


class UnreadError(Exception):
    """A file could not be read to its end."""

    def __init__(self, what: NotObserved | None, number: int | None = None) -> None:
        super().__init__(what.reason if what else "")
        self.what = what
        """Why; None: there is no such file, or not any more."""
        self.number = number
        """The error's number, where the kernel gave one."""


def read_bytes(path: str | Path, most: int = SMALL) -> bytes | NotObserved | None:
    """Read a whole file: None where there is none, NotObserved where it may not be read.

    Args:
        path: a regular file.
        most: bytes; a larger file is not observed.
    """
    try:
        return b"".join(_chunks(path, most))
    except UnreadError as error:
        return error.what


def read_head(path: str | Path, most: int) -> bytes | NotObserved | None:
    """Read the first bytes of a file; what has ``most`` of them may have more."""
    head = bytearray()
    try:
        for chunk in _chunks(path, None, size=most):
            head += chunk
            if len(head) >= most:
                break
    except UnreadError as error:
        return error.what
    return bytes(head[:most])


def read_blocks(path: str | Path, most: int, share: Share | None = None) -> Iterator[bytes]:
    """Yield whole lines, many at once and without the last newline, as they are read.

    Args:
        path: as of `read_bytes`.
        most: as of `read_bytes`.
        share: the time that it may take.

    Raises:
        UnreadError: it was not read to its end.
    """
    rest = b""
    for chunk in _chunks(path, most):
        block, newline, tail = chunk.rpartition(b"\n")
        if newline:
            yield rest + block
            rest = tail
        else:
            rest += chunk
        if share is not None and share.is_over:
            raise UnreadError(NotObserved(reason=share.reason(str(path))))
    if rest:
        yield rest


def _chunks(path: str | Path, most: int | None, *, size: int = _CHUNK) -> Iterator[bytes]:
    """Yield a file as the kernel gives it: of /proc a page at a time (fs/seq_file.c)."""
    try:
        # A pipe does not keep the open waiting then.
        flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK
        descriptor = os.open(path, flags)
    except OSError as error:
        raise UnreadError(failure(path, error), error.errno) from error
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise UnreadError(NotObserved(reason=f"{path}: no regular file"))
        left = most
        while chunk := os.read(descriptor, size):
            if left is not None:
                left -= len(chunk)
                if left < 0:
                    reason = f"{path}: larger than {_spoken(most)}"
                    raise UnreadError(NotObserved(reason=reason))
            yield chunk
    except OSError as error:
        raise UnreadError(failure(path, error), error.errno) from error
    finally:
        os.close(descriptor)


def _spoken(size: int | None) -> str:
    assert size is not None  # noqa: S101 - the caller looked
    return f"{size >> 20} MiB" if size >= 1 << 20 else f"{size >> 10} KiB"


def read_text(path: str | Path, most: int = SMALL) -> str | NotObserved | None:
    r"""Read a text file without its last newline; ``\xe9`` stands for a byte not UTF-8."""
    raw = read_bytes(path, most)
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


class Identity(NamedTuple):
    """What a path leads to."""

    mode: int
    inode: int
    is_root: bool | None
    """Whether it is the root of what is mounted there; None: the kernel does not say (5.8)."""
    special: tuple[int, int]
    """Major and minor of a device node."""
    device: tuple[int, int]
    """Major and minor of the file system."""


_STATX: Final = ctypes.CDLL(None, use_errno=True).statx
_STATX.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_uint, ctypes.c_char_p)
_AT_FDCWD: Final = -100
_DONT_ASK: Final = 0x4000 | 0x800
"""AT_STATX_DONT_SYNC and AT_NO_AUTOMOUNT (include/uapi/linux/fcntl.h)."""
_WANTED: Final = 0x1 | 0x100
"""STATX_TYPE and STATX_INO (include/uapi/linux/stat.h)."""
_MOUNT_ROOT: Final = 0x2000
"""STATX_ATTR_MOUNT_ROOT (Linux 5.8, commit 80340fe3605c)."""
_Buffer = ctypes.c_char * 256
_FIELDS: Final = struct.Struct("=8xQ12xH2xQ16xQ64x4I").unpack_from
"""Attributes, mode, inode, which attributes are known, and two device numbers (struct statx)."""


def identity_of(path: str) -> Identity:
    """Return what a path leads to, by what this kernel has in memory of it.

    stat(2) asks the server of a FUSE, NFS or Ceph file system, and waits for as long as it does not
    answer. statx(2) with AT_STATX_DONT_SYNC does not (Linux 4.11, glibc 2.28): measured 60 us for
    an inode of a FUSE server that never answers, and 4 us elsewhere, as long as stat(2) takes.

    Raises:
        OSError: it is not there, or may not be looked at.
    """
    buffer = _Buffer()
    if _STATX(_AT_FDCWD, os.fsencode(path), _DONT_ASK, _WANTED, buffer):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), path)
    attributes, mode, inode, known, *numbers = _FIELDS(buffer)
    return Identity(
        mode,
        inode,
        bool(attributes & _MOUNT_ROOT) if known & _MOUNT_ROOT else None,
        (numbers[0], numbers[1]),
        (numbers[2], numbers[3]),
    )


def is_same(path: str, other: str) -> bool:
    """Return whether two names lead to one file; no where either cannot be looked at."""
    try:
        first, second = identity_of(path), identity_of(other)
    except OSError:
        return False
    return (first.device, first.inode) == (second.device, second.inode)


def is_mount_point(directory: str) -> bool:
    """Return whether something is mounted on a directory: what is in it is another's."""
    try:
        found = identity_of(directory)
        if found.is_root is not None:
            return found.is_root
        return found.device != identity_of(os.path.dirname(directory)).device
    except OSError:
        return False


def inode_of(path: str) -> int | None:
    """Return the inode of what a path leads to."""
    try:
        return identity_of(path).inode
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
