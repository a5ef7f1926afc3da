"""Which processes and threads share an address space, a table of descriptors, or directories.

kcmp(2) compares two tasks of the caller's pid namespace, with the right to trace both. It is not
available if /proc shows another pid namespace (in a container without ``hostPID``), if the kernel
was built without it (kernel/kcmp.c: CONFIG_KCMP, CONFIG_CHECKPOINT_RESTORE before Linux 5.12), or
if seccomp refuses it.
"""

from __future__ import annotations

import ctypes
import enum
import os
import platform
from typing import TYPE_CHECKING, Final, Self

from rbdagent.collect.files import inode_of

if TYPE_CHECKING:
    from pathlib import Path

_NUMBERS: Final = {"x86_64": 312, "aarch64": 272, "riscv64": 272, "ppc64le": 354, "s390x": 343}
"""Of the system call, by machine (arch/*/kernel/syscalls/*.tbl, include/uapi/asm-generic/unistd.h).
"""
_EQUAL: Final = 0
_LESS: Final = 1
_GREATER: Final = 2


class Kind(enum.IntEnum):
    """What two tasks may share: enum kcmp_type (include/uapi/linux/kcmp.h)."""

    VM = 1
    FILES = 2
    FS = 3


class Kcmp:
    """The system call, for the pids of a /proc that shows the caller's pid namespace."""

    def __init__(self, number: int) -> None:
        """Store the number of the system call."""
        self._number = number
        self._call = ctypes.CDLL(None, use_errno=True).syscall

    @classmethod
    def of(cls, procfs: Path) -> Self | None:
        """Return the system call; None if it is not available for the pids of this /proc."""
        own = inode_of("/proc/self/ns/pid")
        number = _NUMBERS.get(platform.machine())
        if number is None or own is None or inode_of(f"{procfs}/1/ns/pid") != own:
            return None
        made = cls(number)
        return made if made.order(os.getpid(), os.getpid(), Kind.FILES) == _EQUAL else None

    def order(self, first: int, second: int, kind: Kind) -> int:
        """Return 0 if two tasks share it, else how the kernel orders them: 1, 2, or 3 for neither.

        Returns:
            -1 if one of the tasks has ended, or access is denied.
        """
        result: int = self._call(self._number, first, second, int(kind), 0, 0)
        return result

    def is_shared(self, first: int, second: int, kind: Kind) -> bool | None:
        """Return whether two tasks share it; None if one has ended, or access is denied."""
        result = self.order(first, second, kind)
        return None if result < 0 else result == _EQUAL


class Twins:
    """The first process of each address space, or of each table, by pod.

    The kernel's order is that of addresses, obfuscated, and the same until the next boot
    (kptr_obfuscate() in kernel/kcmp.c). So a process is compared with few of its pod.
    """

    def __init__(self, kcmp: Kcmp | None, kind: Kind) -> None:
        """Begin without processes."""
        self._kcmp = kcmp
        self._kind = kind
        self._sorted: dict[str, list[int]] = {}
        self._first: dict[int, int] = {}
        """The process that is read instead of another one, because they share it."""

    def first_of(self, pid: int, pod: str) -> int | None:
        """Return an earlier process of the pod that shares it with this one.

        Returns:
            None without any. Then this process is the first one for the next ones.
        """
        if self._kcmp is None:
            return None
        # A copy: another thread may add a process meanwhile. Then its twins may not be found.
        known = list(self._sorted.get(pod, ()))
        low, high = 0, len(known)
        while low < high:
            middle = (low + high) // 2
            order = self._kcmp.order(known[middle], pid, self._kind)
            if order == _EQUAL:
                return known[middle]
            if order == _LESS:
                low = middle + 1
            elif order == _GREATER:
                high = middle
            elif order < 0 and self._kcmp.order(pid, pid, self._kind) == _EQUAL:
                del known[middle]
                high -= 1
            else:
                return None
        known.insert(low, pid)
        self._sorted[pod] = known
        return None

    def joins(self, pid: int, pod: str) -> bool:
        """Return whether an earlier process of the pod shares it, and is read instead."""
        first = self.first_of(pid, pod)
        if first is not None:
            self._first[pid] = first
        return first is not None

    @property
    def joined(self) -> tuple[int, ...]:
        """The processes for which another one is read."""
        return tuple(self._first)

    def twin_of(self, pid: int) -> int | None:
        """Return the process that was read instead, if they still share it.

        A process may have ended, or executed another program, before the other one was read. The
        other one existed before, so that it cannot share what this one has since then.
        """
        first = self._first.get(pid)
        if first is None or self._kcmp is None:
            return None
        return first if self._kcmp.is_shared(first, pid, self._kind) else None
