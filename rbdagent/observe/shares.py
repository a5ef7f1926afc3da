"""How much of an observation each process, and each pod, may take: of its time and of its memory.

A tenant chooses how much there is to read. The kernel's time grows with the square of the mounts
that are stacked on one directory: 0.3 s for 8,000 of them, 2 s for 20,000 (measured on Linux 6.18),
and a namespace may have 100,000. A descriptor costs 6 us, and processes may share a million of
them. So each process has a bound, and each pod has one for all of its processes: what it hides by
more than that is its own.
"""

from __future__ import annotations

import time
from typing import Final

PROCESS_S: Final = 2.0
POD_S: Final = 4.0
ROOM: Final = 20_000
"""Mounts and open files of volumes. 250 volumes on a node are some 500 mounts in a namespace."""


class Share:
    """What is left for one process."""

    def __init__(self, pod: _Taken) -> None:
        """Begin it, with what is left for its pod."""
        self._pod = pod
        self._begun = time.monotonic()
        self._of_pod = pod.left_s(self._begun)
        self._until = self._begun + min(PROCESS_S, self._of_pod)
        pod.begun.append(self._begun)

    def end(self) -> None:
        """Return what was not taken."""
        self._pod.begun.remove(self._begun)
        self._pod.seconds += time.monotonic() - self._begun

    @property
    def is_over(self) -> bool:
        """Whether its time is over."""
        return time.monotonic() > self._until

    def reason(self, path: str) -> str:
        """Return why a file was not read to its end."""
        if self._of_pod < PROCESS_S:
            return f"{path}: not read to its end, the pod takes longer than {POD_S:g} s"
        return f"{path}: not read to its end, that takes longer than {PROCESS_S:g} s"

    def has_room(self, count: int) -> bool:
        """Take room for so many more mounts and open files; return whether there was any."""
        self._pod.room -= count
        return self._pod.room >= 0


class _Taken:
    """What the processes of one pod have taken."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.room = ROOM
        self.begun: list[float] = []
        """Of those that are being observed."""

    def left_s(self, now: float) -> float:
        left = POD_S - self.seconds
        return left - sum(now - begun for begun in self.begun) if self.begun else left


class Shares:
    """The shares of all processes in one observation; several may be observed at a time."""

    def __init__(self) -> None:
        self._pods: dict[str, _Taken] = {}

    def of(self, pod_uid: str | None) -> Share:
        """Lend a process its share, and have it end it."""
        if pod_uid is None:
            return Share(_Taken())
        return Share(self._pods.setdefault(pod_uid, _Taken()))
