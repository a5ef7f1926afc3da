"""Bounded reads below a given root, with the reason if a file cannot be read.

A tenant controls the size of many files in /proc: the command line by prctl(PR_SET_MM_MAP), the
mounts, the memory mappings. So every read has a limit, and a larger file is not observed.
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

    from rbdagent.collect.node.limits import Share

SMALL: Final = 1 << 16
"""An attribute of sysfs has at most a page. JSON files of kubelet and ceph-csi are smaller than
this limit, and so are the files of /proc that describe one process in a few lines."""
LISTS: Final = 1 << 24
"""Lists that grow with the node: sockets, routes, requests to Ceph."""
COMMAND_LINE: Final = 1 << 12
"""The part of a command line that is read; 200 characters of it are shown."""
ARGUMENTS: Final = 1 << 14
"""For programs whose arguments are parsed. A path has at most 4,095 bytes, mount options a page."""

_CHUNK: Final = 1 << 16
_LINE: Final = 1 << 20
_FLAGS: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK
"""With O_NONBLOCK, open does not wait at a pipe."""


_LAST: Final[list[str | Path]] = [""]


def last_path() -> str:
    """Return the file or directory that was read last; if a read hangs, this path is the cause."""
    return str(_LAST[0])


class UnreadError(Exception):
    """A file could not be read to its end."""

    def __init__(self, what: NotObserved | None, number: int | None = None) -> None:
        super().__init__(what.reason if what else "")
        self.what = what
        """The reason; None if the file does not exist, or no longer exists."""
        self.number = number
        """The errno, if the kernel returned one."""


class TooLargeError(UnreadError):
    """A file is larger than the given limit."""


def read_bytes(path: str | Path, most: int = SMALL) -> bytes | NotObserved | None:
    """Read a whole file: None if it does not exist, NotObserved if it cannot be read.

    Args:
        path: a file of /proc or /sys; for other files use `read_file`, which checks the type.
        most: the limit in bytes; a larger file is not observed.
    """
    raw = read_head(path, most + 1)
    return _too_large(path, most) if isinstance(raw, bytes) and len(raw) > most else raw


def read_file(path: str | Path, most: int = SMALL) -> bytes | NotObserved | None:
    """Read a whole file on a disk, as `read_bytes`; a pipe, device or directory is not observed."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            return NotObserved(reason=f"{path}: not a regular file")
    except OSError as error:
        return failure(path, error)
    return read_bytes(path, most)


def read_head(path: str | Path, most: int) -> bytes | NotObserved | None:
    """Read the first bytes of a file, up to ``most``; the file may be longer."""
    _LAST[0] = path
    try:
        descriptor = os.open(path, _FLAGS)
    except OSError as error:
        return failure(path, error)
    try:
        head = os.read(descriptor, min(most, _CHUNK))
        while 0 < len(head) < most and (chunk := os.read(descriptor, min(most, _CHUNK))):
            head += chunk
    except OSError as error:
        return failure(path, error)
    finally:
        os.close(descriptor)
    return head[:most]


def read_blocks(path: str | Path, most: float, share: Share | None = None) -> Iterator[bytes]:
    """Yield blocks of whole lines, without the last newline, while the file is read.

    Args:
        path: a file of /proc.
        most: the limit, as for `read_bytes`.
        share: the time limit.

    Raises:
        TooLargeError: the file is larger than ``most``.
        UnreadError: the file was not read to its end.
    """
    blocks = Blocks(path)
    try:
        yield from blocks.up_to(most, share)
    finally:
        blocks.close()


class Blocks:
    """A file of /proc that is read in one or several parts, each in blocks of whole lines.

    A large file is read in parts, with parts of other files in between. To read it from its
    beginning each time would nearly double the time.
    """

    def __init__(self, path: str | Path) -> None:
        """Store the path; the first part opens the file."""
        self._path = path
        self._descriptor: int | None = None
        self._size = 0
        self._rest = b""
        """The bytes that were read, and are not part of a block yet."""

    def up_to(self, most: float, share: Share | None = None) -> Iterator[bytes]:
        """Yield the next blocks.

        A file may end where the last part ended because the process has executed another program,
        or has ended: its memory was released, and with it the file. So this file is opened again.

        Args:
            most: the limit of the whole file, as for `read_bytes`.
            share: the time limit.

        Raises:
            TooLargeError: the file is larger than ``most``; a call with a higher limit continues.
            UnreadError: the file was not read to its end.
        """
        _LAST[0] = self._path
        before = self._size
        try:
            if self._descriptor is None:
                self._descriptor = os.open(self._path, _FLAGS)
            yield from self._complete(most)
            # The kernel returns at most a page per read (seq_read_iter() in fs/seq_file.c).
            while chunk := os.read(self._descriptor, _CHUNK):
                self._size += len(chunk)
                self._rest += chunk
                yield from self._complete(most)
                if share is not None and share.is_over_after(len(chunk)):
                    raise UnreadError(NotObserved(reason=share.reason(str(self._path))))
        except OSError as error:
            raise UnreadError(failure(self._path, error), error.errno) from error
        rest, self._rest = self._rest, b""
        if rest:
            yield rest
        if self._size == before > 0:
            self.close()
            yield from self.up_to(most, share)

    def _complete(self, most: float) -> Iterator[bytes]:
        """Yield the block of whole lines that were read, if there is one."""
        if self._size > most:
            raise TooLargeError(_too_large(self._path, most))
        block, newline, self._rest = self._rest.rpartition(b"\n")
        if newline:
            yield block
        if len(self._rest) > _LINE:
            raise UnreadError(NotObserved(reason=f"{self._path}: a line of more than 1 MiB"))

    def close(self) -> None:
        """Close the file; the next part begins at its beginning."""
        descriptor, self._descriptor, self._size = self._descriptor, None, 0
        if descriptor is not None:
            os.close(descriptor)

    __del__ = close
    """An observation may end while a part of a file is read, which takes too long."""


def _too_large(path: str | Path, most: float) -> NotObserved:
    size = f"{most / 2**20:.0f} MiB" if most >= 1 << 20 else f"{most / 2**10:.0f} KiB"
    return NotObserved(reason=f"{path}: larger than {size}")


def read_text(path: str | Path, most: int = SMALL) -> str | NotObserved | None:
    r"""Read a text file without its last newline; a byte that is not UTF-8 becomes ``\xe9``."""
    raw = read_bytes(path, most)
    # As in parse.mountinfo: the backing file of a loop device is compared with paths of mounts.
    return raw.decode(errors="backslashreplace").rstrip("\n") if isinstance(raw, bytes) else raw


def names_in(path: str | Path) -> tuple[str, ...] | NotObserved | None:
    """Return the sorted names in a directory, without access to its entries."""
    _LAST[0] = path
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
"""The kernel's limit (MAXSYMLINKS)."""


def followed(host_root: str | Path, path: str) -> str:
    """Return the target of a path on the host, with links resolved below the host's root.

    Args:
        host_root: the path of the host's ``/``.
        path: an absolute path on the host.
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
    """The file that a path leads to: fields of struct statx."""

    attributes: int
    mode: int
    inode: int
    known: int
    """Which attributes the file system reports."""
    special_major: int
    """Of a device node."""
    special_minor: int
    major: int
    """Of the file system."""
    minor: int

    @property
    def device(self) -> tuple[int, int]:
        """Major and minor number of the file system."""
        return self.major, self.minor

    @property
    def special(self) -> tuple[int, int]:
        """Major and minor number of a device node."""
        return self.special_major, self.special_minor

    @property
    def is_root(self) -> bool | None:
        """Whether it is the root of a mount; None if the kernel does not report it."""
        return bool(self.attributes & _MOUNT_ROOT) if self.known & _MOUNT_ROOT else None


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
"""In the order of `Identity`."""


def identity_of(path: str) -> Identity:
    """Return the file that a path leads to, from the inode that this kernel has in memory.

    stat(2) sends a request to the server of a FUSE, NFS or Ceph file system, and waits until it
    answers. statx(2) with AT_STATX_DONT_SYNC does not (Linux 4.11, commit a528d35e8bfc; glibc
    2.28): measured 60 us for an inode of a FUSE server that never answers, and 4 us elsewhere, the
    same as stat(2).

    Raises:
        OSError: it does not exist, or access is denied.
    """
    return _statx(path, _WANTED)


def file_system_at(path: str) -> tuple[int, int] | None:
    """Return the device of the file system that a path leads to, even if the file is hidden.

    A FUSE file system of a user, or of a user namespace, reports only this fact about a file to
    other users, and only if the request contains nothing else (fuse_getattr() in fs/fuse/dir.c).
    Measured on Linux 6.18: root gets EACCES, but not for this request. A security module refuses
    both.
    """
    try:
        return _statx(path, 0).device
    except OSError:
        return None


def _statx(path: str, wanted: int) -> Identity:
    buffer = _Buffer()
    if _STATX(_AT_FDCWD, os.fsencode(path), _DONT_ASK, wanted, buffer):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), path)
    return Identity._make(_FIELDS(buffer))


def is_same(path: str, other: str) -> bool:
    """Return whether two names lead to the same file; False if access to one is denied."""
    try:
        first, second = identity_of(path), identity_of(other)
    except OSError:
        return False
    return (first.device, first.inode) == (second.device, second.inode)


def is_mount_point(directory: str) -> bool:
    """Return whether a file system is mounted on a directory, and so contains the files in it."""
    try:
        found = identity_of(directory)
        if found.is_root is not None:
            return found.is_root
        return found.device != identity_of(os.path.dirname(directory)).device
    except OSError:
        return False


def inode_of(path: str) -> int | None:
    """Return the inode of the file that a path leads to."""
    try:
        return identity_of(path).inode
    except OSError:
        return None


def listed(path: str | Path) -> tuple[str, ...]:
    """Return the names in a directory; empty if the directory cannot be read or does not exist."""
    names = names_in(path)
    return names if isinstance(names, tuple) else ()


def text_or_none(path: str | Path) -> str | None:
    """Return the text of a file; None if it cannot be read or does not exist."""
    text = read_text(path)
    return text if isinstance(text, str) else None


def failure(path: str | Path, error: OSError) -> NotObserved | None:
    """Return why a file was not read; None if it does not exist, or no longer exists."""
    # ESRCH and ENODEV: the process or device ended during the read.
    if error.errno in {errno.ENOENT, errno.ENOTDIR, errno.ESRCH, errno.ENODEV, errno.ENXIO}:
        return None
    return NotObserved(reason=f"{path}: {error.strerror or error}", hint=_cure(error))


def _cure(error: OSError) -> str:
    if error.errno in {errno.EACCES, errno.EPERM}:
        return "run as root, or grant CAP_DAC_READ_SEARCH"
    return ""
