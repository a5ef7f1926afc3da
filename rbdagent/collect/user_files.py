"""Reads of files that a user names: snapshots, configuration, kubeconfigs."""

from __future__ import annotations

import errno
import os
import stat
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

_CHUNK: Final = 1 << 20
_KINDS: Final = {
    stat.S_IFDIR: "a directory",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
}


def read_user_file(path: Path, *, most: int) -> bytes:
    """Read a regular file of at most ``most`` bytes.

    Devices and FIFOs are not opened: reading a device may never end, and opening a FIFO may block.

    Raises:
        OSError: it cannot be read, is not a regular file, or is larger; ``strerror`` has the cause.
    """
    kind = stat.S_IFMT(os.stat(path).st_mode)
    if kind != stat.S_IFREG:
        found = _KINDS.get(kind, "something else")
        raise OSError(errno.EINVAL, f"it is {found}, not a regular file", str(path))
    # Files of /proc are regular, and a read of some of them (kmsg) waits for more data.
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK)
    content = bytearray()
    try:
        while len(content) <= most and (chunk := os.read(descriptor, _CHUNK)):
            content += chunk
    finally:
        os.close(descriptor)
    check_size(len(content), most=most)
    return bytes(content)


def check_size(size: int, *, most: int) -> None:
    """Raise an OSError if a file or stream of ``size`` bytes is larger than ``most``."""
    if size > most:
        raise OSError(errno.EFBIG, f"it is larger than {most >> 10} KiB")
