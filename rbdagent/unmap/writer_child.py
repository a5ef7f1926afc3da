"""The child process of an unmap: the last check of the device, and the write directly after it.

It runs as a file, in an interpreter that imports nothing from rbdagent (see the command in
writer.py). It imports only modules that are built in or that the interpreter has loaded.
"""

import errno
import fcntl
import os
import sys

NOT_THE_SAME = 200
"""Exit code if the device now has another identity; above every errno."""
HAS_IO = 201
"""Exit code if the device had I/O since the previous observation."""
_COUNTS = (0, 4, 8, 11, 15)
"""Columns of ``stat`` to compare: reads, writes, in flight, discards, flushes
(Documentation/block/stat.rst)."""
_DISKSEQ_IOCTL = 0x80081280
"""BLKGETDISKSEQ, include/uapi/linux/fs.h."""


def main(device: str, bus: str, number: str, incarnation: str, counts: str) -> int:
    """Write a device's id to ``remove``, if it is free, had no I/O, and is the planned device.

    Args:
        device: path of the device node.
        bus: path of ``/sys/bus/rbd``.
        number: the device's id.
        incarnation: ``diskseq:N``, or another prefix and the inode of its directory in sysfs.
        counts: its reads, writes, requests in flight, discards and flushes at the previous
            observation, separated by commas; without those that the kernel does not count.

    Returns:
        0, an errno, :data:`NOT_THE_SAME` or :data:`HAS_IO`.
    """
    try:
        single = f"{bus}/remove_single_major"
        target = single if os.path.exists(single) else f"{bus}/remove"
        # Opened first, so that no call that may wait is between the checks and the write.
        descriptor = os.open(target, os.O_WRONLY)
        try:
            if not _is_free_and_the_same(device, bus, number, incarnation):
                return NOT_THE_SAME
            if _counts(f"{bus}/../../block/rbd{number}/stat") != counts:
                return HAS_IO
            # Only the id, never "force", which makes do_rbd_remove() in drivers/block/rbd.c ignore
            # that the device is open. Without it, the kernel checks this under the device's lock.
            os.write(descriptor, number.encode())
        finally:
            os.close(descriptor)
    except OSError as error:
        return error.errno or errno.EIO
    return 0


def _is_free_and_the_same(device: str, bus: str, number: str, incarnation: str) -> bool:
    """Check a device by an exclusive open, which fails with EBUSY if it is mounted or held.

    The device is closed before the write.
    """
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
    """Read a device's counters. Opening and closing the device read-only causes no I/O."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        columns = os.read(descriptor, 4096).decode().split()
    finally:
        os.close(descriptor)
    return ",".join(columns[column] for column in _COUNTS if column < len(columns))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
