"""The child of an unmap: the last look at the device and the write, with nothing between them.

It is run as a file, by an interpreter that imports nothing of rbdagent: see the command in
``rbdagent.unmap``. What it imports itself is what the interpreter has loaded or built in.
"""

import errno
import fcntl
import os
import sys

NOT_THE_SAME = 200
"""Exit code where the device is another one now; above every errno."""
HAS_IO = 201
"""Exit code where the device had I/O since the observation before."""
_COUNTS = (0, 4, 8, 11, 15)
"""Columns of ``stat`` that count: reads, writes, in flight, discards, flushes."""
_DISKSEQ_IOCTL = 0x80081280
"""BLKGETDISKSEQ, include/uapi/linux/fs.h."""


def main(device: str, bus: str, number: str, incarnation: str, counts: str) -> int:
    """Write a device's id to ``remove``, if it is free, had no I/O, and is the planned one.

    Args:
        device: path of the device node.
        bus: path of ``/sys/bus/rbd``.
        number: the device's id.
        incarnation: ``diskseq:N``, or another kind with the inode of its directory in sysfs.
        counts: its reads, writes, requests in flight, discards and flushes at the observation
            before, with commas between them; what the kernel does not count is left out.

    Returns:
        0, an errno, :data:`NOT_THE_SAME` or :data:`HAS_IO`.
    """
    try:
        if not _is_free_and_the_same(device, bus, number, incarnation):
            return NOT_THE_SAME
        if _counts(f"{bus}/../../block/rbd{number}/stat") != counts:
            return HAS_IO
        single = f"{bus}/remove_single_major"
        target = single if os.path.exists(single) else f"{bus}/remove"
        descriptor = os.open(target, os.O_WRONLY)
        try:
            # The plain id: never "force".
            os.write(descriptor, number.encode())
        finally:
            os.close(descriptor)
    except OSError as error:
        return error.errno or errno.EIO
    return 0


def _is_free_and_the_same(device: str, bus: str, number: str, incarnation: str) -> bool:
    """Open it alone: EBUSY where it is mounted or held. It is closed again before the write."""
    descriptor = os.open(device, os.O_RDONLY | os.O_EXCL | os.O_NONBLOCK)
    try:
        kind, _, value = incarnation.partition(":")
        if kind == "diskseq":
            answer = fcntl.ioctl(descriptor, _DISKSEQ_IOCTL, bytes(8))
            return int.from_bytes(answer, sys.byteorder) == int(value)
        return os.stat(f"{bus}/devices/{number}").st_ino == int(value)
    finally:
        os.close(descriptor)


def _counts(path: str) -> str:
    """Read a device's counters. Opening the device to read only, and closing it, is no I/O."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        columns = os.read(descriptor, 4096).decode().split()
    finally:
        os.close(descriptor)
    return ",".join(columns[column] for column in _COUNTS if column < len(columns))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
