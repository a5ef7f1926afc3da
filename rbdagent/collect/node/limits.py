"""Limits of an observation per process and per pod: of time and of memory.

A tenant controls the amount of data. The kernel's time grows with the square of the number of
mounts stacked on one directory: 0.3 s for 8,000 of them, 2 s for 20,000 (measured on Linux 6.18),
because __prepend_path() in fs/d_path.c visits every mount below. A namespace may have 100,000
(sysctl_mount_max in fs/namespace.c). A descriptor costs 6 us, and processes may share a million of
them. So every process has a limit, and every pod has one for all of its processes: a pod that
exceeds its limit hides only its own facts. The limit of a pod's mounts is lower: 8,000 mounts on
different directories take 0.014 s. It must not hide the mounts of a pod that does nothing unusual,
on a node that is slow or busy: it is of processor time. All limits begin after `UNTIMED` bytes.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, Self

if TYPE_CHECKING:
    from collections.abc import Callable

PROCESS_S: Final = 2.0
POD_S: Final = 4.0
MOUNTS_S: Final = 0.05
"""Processor time for one mount namespace of a pod; all namespaces of the pod have twice that.

An observation of a small node takes 0.11 s (`./dev bench hostile`), and a pod must not make it
take twice as long. The namespace of a CSI plugin with 250 volumes, some 2,000 mounts, takes 0.01 s.
"""
UNTIMED: Final = 256 << 10
"""Bytes of mountinfo, and of maps, for each pod that are read without a limit of time.

These are some 1,500 mounts; stacked on one directory, they take 0.01 s. A container has about 30.
A Python process has some 50 KiB of maps, which an emulated node read in more than 2 s.
"""
ROOM: Final = 20_000
"""Limit of mounts and open files of volumes. 250 volumes are some 500 mounts in a namespace."""


class Share:
    """The remaining time and room of one process."""

    def __init__(self, pod: _Taken, most_s: float, clock: Callable[[], float]) -> None:
        """Start the clock, with the time that is left for the pod."""
        self._pod = pod
        self._most_s = most_s
        self._clock = clock
        self._begun = clock()
        self._of_pod = pod.left_s(self._begun)
        self._until = self._begun + min(most_s, self._of_pod)
        pod.begun.append(self._begun)

    def end(self) -> None:
        """Stop the clock, and add the time to that of the pod."""
        self._pod.begun.remove(self._begun)
        self._pod.seconds += self._clock() - self._begun

    @property
    def is_over(self) -> bool:
        """Whether the time limit is exceeded."""
        return self._clock() > self._until

    def reason(self, path: str) -> str:
        """Return why a file was not read to its end."""
        if self._of_pod < self._most_s:
            reason, most_s = "the pod's processes take", self._pod.most_s
        else:
            reason, most_s = "it takes", self._most_s
        return f"{path}: not read to its end, because {reason} longer than {most_s:g} s"

    def is_over_after(self, size: int) -> bool:
        """Count bytes of a file, and return whether the time limit is exceeded."""
        self._pod.untimed -= size
        return self._pod.untimed < 0 and self.is_over

    def has_room(self, count: int) -> bool:
        """Count more mounts and open files; return whether they are within the limit."""
        self._pod.room -= count
        return self._pod.room >= 0


class _Taken:
    """Holds the time and room that the processes of one pod have used."""

    def __init__(self, most_s: float = POD_S, untimed: int = 0) -> None:
        self.most_s = most_s
        self.untimed = untimed
        self.seconds = 0.0
        self.room = ROOM
        self.begun: list[float] = []
        """Start times of the observations in progress."""

    def left_s(self, now: float) -> float:
        left = self.most_s - self.seconds
        return left - sum(now - begun for begun in self.begun) if self.begun else left


class Shares:
    """The shares of all processes in one observation; several may be observed in parallel."""

    @classmethod
    def of_files(cls) -> Self:
        """Return the shares for the open files of processes."""
        return cls(untimed=UNTIMED)

    @classmethod
    def of_mounts(cls) -> Self:
        """Return the shares for the mounts of processes."""
        # Of the whole process, because the observations of several threads count for one pod.
        return cls(MOUNTS_S, 2 * MOUNTS_S, time.process_time, UNTIMED)

    def __init__(
        self,
        process_s: float = PROCESS_S,
        pod_s: float = POD_S,
        clock: Callable[[], float] | None = None,
        untimed: int = 0,
    ) -> None:
        """Set the limits.

        Args:
            process_s: seconds for each process of a pod.
            pod_s: seconds for all processes of a pod together.
            clock: returns seconds; the monotonic clock by default.
            untimed: bytes for each pod that are read without a limit of time.
        """
        self._process_s = process_s
        self._pod_s = pod_s
        self._clock = clock or time.monotonic
        self._untimed = untimed
        self._pods: dict[str, _Taken] = {}

    def of(self, pod_uid: str | None) -> Share:
        """Return a process's share, which the caller ends; `PROCESS_S` if it has no pod."""
        if pod_uid is None:
            return Share(_Taken(untimed=self._untimed), PROCESS_S, time.monotonic)
        pod = self._pods.setdefault(pod_uid, _Taken(self._pod_s, self._untimed))
        return Share(pod, self._process_s, self._clock)
