"""The child process of a umount: the last check of the mount, and umount2(2) directly after it.

It runs as a file, in an interpreter that imports nothing from rbdagent (see the command in
writer.py). umount(8) would take whichever mount is on top of the path, and would run the helper of
its file system (``/sbin/umount.TYPE``).
"""

import ctypes
import errno
import os
import re
import sys

NOT_THE_TOP = 202
"""Exit code if the path has another mount than expected, or more than one; above every errno."""
_CLONE_NEWNS = 0x00020000
_UMOUNT_NOFOLLOW = 8
"""From include/uapi/linux/sched.h and include/linux/fs.h. MNT_FORCE and MNT_DETACH are never used:
a busy mount must stay."""


def main(namespace: str, path: str, device: str) -> int:
    """Unmount a path in a mount namespace, if exactly one mount is there, and it is the expected.

    Args:
        namespace: a mount namespace in /proc: ``/proc/1/ns/mnt``.
        path: the mount point in that namespace.
        device: the device of its file system: ``252:0``.

    Returns:
        0, an errno or :data:`NOT_THE_TOP`.
    """
    # Loaded before setns(2): the namespace may have no Python.
    libc = ctypes.CDLL(None, use_errno=True)
    try:
        descriptor = os.open(namespace, os.O_RDONLY | os.O_CLOEXEC)
        _succeeded(libc.setns(descriptor, _CLONE_NEWNS))
        if not _is_only_mount(os.fsencode(path), device.encode()):
            return NOT_THE_TOP
        _succeeded(libc.umount2(os.fsencode(path), _UMOUNT_NOFOLLOW))
    except OSError as error:
        return error.errno or errno.EIO
    return 0


def _is_only_mount(path: bytes, device: bytes) -> bool:
    """Return whether a path leads to the root of a mount of a device, the only mount at that path.

    mountinfo has a mount that another one hides too, so the id of the mount to which the path leads
    must be the one that is listed.
    """
    with open("/proc/self/mountinfo", "rb") as file:
        lines = [line.split(b" ") for line in file.read().split(b"\n") if line]
    there = [(fields[0], fields[2]) for fields in lines if _unescaped(fields[4]) == path]
    return there == [(_mount_id(path), device)]


def _mount_id(path: bytes) -> bytes:
    """Return the id of the mount to which a path leads.

    It is closed again: an open path keeps its mount busy.
    """
    descriptor = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        with open(f"/proc/self/fdinfo/{descriptor}", "rb") as file:
            facts = dict(line.split(b":\t", 1) for line in file.read().splitlines())
    finally:
        os.close(descriptor)
    return facts[b"mnt_id"]


def _unescaped(field: bytes) -> bytes:
    """Undo the octal escapes of space, tab, newline and backslash (fs/proc_namespace.c)."""
    return re.sub(rb"\\([0-7]{3})", lambda found: bytes((int(found[1], 8),)), field)


def _succeeded(result: int) -> None:
    """Raise the error of a call of libc that returned -1."""
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
