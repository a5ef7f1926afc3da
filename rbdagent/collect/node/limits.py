"""Limits of an observation: of time and of memory.

A tenant controls the amount of data. The kernel's time grows with the square of the number of
mounts stacked on one directory: 0.3 s for 8,000 of them, 2 s for 20,000 (measured on Linux 6.18),
because __prepend_path() in fs/d_path.c visits every mount below. A namespace may have 100,000
(sysctl_mount_max in fs/namespace.c). An area of memory costs 1 us, and a process may have 65,530 of
them (sysctl_max_map_count in mm/util.c); processes may share them, and descriptors, at no cost.

So files of the usual size are read first, of all processes. What is larger follows by size, with
the pods in turn, within one time limit for all pods together (`Limits`): a pod with many processes,
or many such pods, cannot delay the observation further. What exceeds the limit is not observed, and
names its process. The time is processor time of the thread that reads: a node that is slow or busy,
or another process that hangs, must not hide what a pod has.

The limit must not hide what ordinary pods have either: while a process is not observed, the agent
unmaps nothing that seems to be unused. A search engine has 30,000 areas or more, and so may look
like a hostile process. So the limit is what the rest of the observation leaves of `OBSERVATION_S`,
and it grows with the number of pods.
"""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

MOUNTINFO: Final = 1 << 24
"""The kernel allows 100,000 mounts (fs.mount-max), of some 150 bytes each."""
MAPS: Final = 1 << 26
"""262,144 mappings, which search engines require (vm.max_map_count), of some 120 bytes each."""
PROCESS_S: Final = 2.0
"""Processor time for one kind of files of a process without a pod."""
OBSERVATION_S: Final = 0.2
"""Processor time for the processes of a node, with the large files of mounts and of memory mappings
of all pods together.

An answer about a small node takes 0.29 to 0.43 s, of which its processes take 0.03 s (`./dev bench
hostile`), and pods must not make it take twice as long, also on a machine that is slow at system
calls. 10,000 areas of memory take 0.01 s, and so does the namespace of a CSI plugin with 250
volumes, some 2,000 mounts.
"""
POD_S: Final = 0.003
"""The large files may take this time for each pod, if that is more: on a node with 110 pods, the
time of 300,000 areas.
"""
LEAST_S: Final = 0.05
"""The large files may take this time in any case. All else that ten pods with 100 processes each
have takes 0.2 to 0.3 s, so that an answer beside them still takes less than twice as long.
"""
DESCRIPTORS_S: Final = 1.0
"""Processor time for threads and large tables of descriptors, of all pods together. A descriptor
takes 4 us.
"""
UNTIMED: Final = 256 << 10
"""Bytes of mountinfo for each pod that are of the usual size.

These are some 1,500 mounts; stacked on one directory, they take 0.01 s. A container has about 30.
"""
MAPS_SIZES: Final = (128 << 10, 512 << 10, 2 << 20, 8 << 20, MAPS)
"""The first is the usual size, and is read of each address space without a limit of time: a Python
process has some 50 KiB, which an emulated node read in more than 2 s.
"""
MOUNTINFO_SIZES: Final = (1 << 20, 4 << 20, MOUNTINFO)
DESCRIPTOR_COUNTS: Final = (256, 4096, 65536, math.inf)
"""The first is the usual number."""
ROOM: Final = 20_000
"""Limit of mounts and open files of volumes. 250 volumes are some 500 mounts in a namespace."""


class Budget:
    """Processor time for one kind of files, of one process or of all pods together."""

    def __init__(self, why: str, most_s: Callable[[], float]) -> None:
        """Set the limit.

        Args:
            why: a clause that states that the limit is exceeded. It is the same in each
                observation, also if the limit is not: agents publish a reason that changes.
            most_s: returns the limit.
        """
        self._why = why
        self._most_s = most_s
        self.used_s = 0.0

    def use(self, seconds: float) -> None:
        """Count time."""
        self.used_s += seconds

    @property
    def is_over(self) -> bool:
        """Whether the limit is exceeded."""
        return self.used_s > self._most_s()

    def reason(self, path: str) -> str:
        """Return why a file was not read to its end."""
        return f"{path}: not read to its end, because {self._why}"


class Room:
    """The number of mounts and open files of volumes that may still be stored for a pod."""

    def __init__(self) -> None:
        """Begin with `ROOM`, and with the bytes of mounts that are of the usual size."""
        self.left = ROOM
        self.untimed = UNTIMED


class Share:
    """What one process may use of a budget and of the room of its pod, in one thread."""

    def __init__(self, budget: Budget | None, room: Room, *, most: float, untimed: int = 0) -> None:
        """Start the clock.

        Args:
            budget: None without a limit of time.
            room: that of the process's pod.
            most: the limit of a file, in bytes, or of a directory, in names.
            untimed: bytes that are read without a limit of time.
        """
        self.most = most
        self._budget = budget
        self._room = room
        self._untimed = untimed
        self._last = time.thread_time()
        self._counted = 0

    def is_over(self) -> bool:
        """Count the time since the last call, and return whether the time limit is exceeded."""
        if self._budget is None:
            return False
        now = time.thread_time()
        self._budget.use(now - self._last)
        self._last = now
        return self._budget.is_over

    def reason(self, path: str) -> str:
        """Return why a file was not read to its end."""
        return "" if self._budget is None else self._budget.reason(path)

    def is_over_after(self, size: int) -> bool:
        """Count bytes of a file, and return whether the time limit is exceeded."""
        self._untimed -= size
        if self._budget is None:
            self._room.untimed -= size
        return self._untimed < 0 and self.is_over()

    def has_room(self, count: int) -> bool:
        """Count more mounts and open files; return whether they are within the limit."""
        self._counted += count
        self._room.left -= count
        return self._room.left >= 0

    def return_room(self) -> None:
        """Return what was counted: the file will be read again, from its beginning."""
        self._room.left += self._counted
        self._counted = 0


def share_of_process(most: float) -> Share:
    """Return the share of a process without a pod: it does not depend on other processes."""
    why = f"it takes longer than {PROCESS_S:g} s of processor time"
    return Share(Budget(why, lambda: PROCESS_S), Room(), most=most, untimed=UNTIMED)


class Limits:
    """The limits of one observation."""

    def __init__(self) -> None:
        """Begin with the whole time."""
        self._begun_s = time.process_time()
        self._large = Budget(
            "the large files of all pods together take too much processor time", self._most_large_s
        )
        self._descriptors = Budget(
            "the threads and large descriptor tables of all pods together take longer than"
            f" {DESCRIPTORS_S:g} s of processor time",
            lambda: DESCRIPTORS_S,
        )
        self._rooms: dict[str, Room] = {}
        """By pod: those of which something was read."""

    def _most_large_s(self) -> float:
        """Return the limit for the large files of all pods together."""
        others_s = time.process_time() - self._begun_s - self._large.used_s
        return max(LEAST_S, OBSERVATION_S - others_s, POD_S * len(self._rooms))

    def of_mounts(self, pod: str | None, most: int | None) -> Share:
        """Return the share for a mountinfo; of the usual size if ``most`` is None."""
        if pod is None:
            return share_of_process(MOUNTINFO_SIZES[-1])
        room = self._room_of(pod)
        if most is None:
            return Share(None, room, most=max(0, room.untimed))
        return Share(self._large, room, most=most)

    def of_maps(self, pod: str | None, most: int) -> Share:
        """Return the share for the memory mappings of a process."""
        if pod is None:
            return share_of_process(MAPS_SIZES[-1])
        budget = self._large if most > MAPS_SIZES[0] else None
        return Share(budget, self._room_of(pod), most=most)

    def of_descriptors(self, pod: str | None, most: float) -> Share:
        """Return the share for the descriptors of a process."""
        if pod is None:
            return share_of_process(math.inf)
        budget = self._descriptors if most > DESCRIPTOR_COUNTS[0] else None
        return Share(budget, self._room_of(pod), most=most)

    def of_threads(self, pod: str | None) -> Share:
        """Return the share for the threads of a process."""
        return self.of_descriptors(pod, math.inf)

    def _room_of(self, pod: str) -> Room:
        return self._rooms.setdefault(pod, Room())
