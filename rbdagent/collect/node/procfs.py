"""One pass over /proc: the processes that have a device open, with mount namespace and pod.

This module decides in which order what is read, and notes which processes do not answer in time.
"""

from __future__ import annotations

import functools
import itertools
import math
import time
from typing import TYPE_CHECKING, Final

from rbdagent.collect.failure import not_observed
from rbdagent.collect.node.file_systems import file_system_of
from rbdagent.collect.node.kcmp import Kind
from rbdagent.collect.node.limits import (
    DESCRIPTOR_COUNTS,
    MAPS_SIZES,
    PROCESS_S,
    Limits,
    share_of_process,
)
from rbdagent.collect.node.namespaces import Namespaces
from rbdagent.collect.node.openers import Openers
from rbdagent.collect.node.process_scan import SKIPPED, scan_of
from rbdagent.collect.node.processes import (
    boot_time,
    pids_in,
    read_command,
    read_entry,
    threads_in,
)
from rbdagent.collect.parallel import InTurn
from rbdagent.model import NotObserved

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from rbdagent.collect.node.mounts import Wanted
    from rbdagent.collect.node.process_scan import ProcessScan
    from rbdagent.collect.node.processes import ProcessEntry

_PATIENCE_S: Final = PROCESS_S + 0.5
"""Longer than the share of a process: only a read that hangs takes this long."""
_COMMAND_S: Final = 0.1
"""A command line may take this long, or a quarter of the time of all before it, if that is more.

It takes 20 us. With a fixed limit, those that hang would make an observation of a quick node take
several times as long, or those of a slow node would seem to hang.
"""
_QUICK_COMMAND_S: Final = 0.005
_MOST_PLACES: Final = 3
_LATE: Final = "not observed in time"
_PARTS: Final = {
    **dict.fromkeys(("place", "process"), 0),
    **dict.fromkeys(("namespace", "mounts", "host"), 1),
    **dict.fromkeys(("files", "shared files"), 2),
    **dict.fromkeys(("maps", "shared maps"), 3),
    "threads": 4,
    "command": 5,
}
"""The parts of the observation, from the one that the others need most to the last one."""

Turns = InTurn[tuple[str, int]]
"""The keys are the part of the observation and the pid."""


class ProcessPass:
    """One pass over a node's processes, for the given devices that they have mounted or open."""

    def __init__(
        self,
        procfs: Path,
        wanted: Wanted,
        *,
        turns: Turns | None = None,
        deadline: float = math.inf,
        is_public: bool = False,
    ) -> None:
        """Store the parameters, and read the boot time.

        Args:
            procfs: the host's /proc.
            wanted: the devices to search.
            turns: contains the processes that hang since an earlier pass.
            deadline: of the monotonic clock; a process that was not observed by then is reported
                as not observed.
            is_public: whether sentences about the processes are published.
        """
        self._root = str(procfs)
        self._is_public = is_public
        self._wanted = wanted
        self._turns = turns or InTurn()
        self._deadline = deadline
        self._boot = boot_time(procfs)
        self._entries: dict[int, ProcessEntry] = {}
        self._hidden: set[int] = set()
        self._unread: list[str] = []
        self._late = 0
        """The number of processes of which nothing was read before the deadline."""
        self._limits = Limits()
        self._namespaces = Namespaces(self._entries, wanted, self._limits)
        self._openers = Openers(self._entries, wanted.numbers, self._limits, procfs)

    def scan(self) -> ProcessScan:
        """Observe every process.

        The parts that cannot wait for a process come first, and ``cmdline``, which waits for the
        process's memory, comes last: what does not answer then hides nothing else.
        """
        begun = time.monotonic()
        self._run("process", pids_in(self._root), self._observe)
        self._read_larger_mounts()
        self._run("namespace", self._namespaces.without_mounts(), self._namespaces.join_again)
        self._read_larger_mounts()
        self._run("host", self._namespaces.init(), self._namespaces.read_host_again)
        living = self._in_turn(
            pid
            for pid, entry in self._entries.items()
            if not (entry.is_over or entry.is_kernel_thread)
        )
        if self._wanted.numbers:
            self._run_by_size("files", living, DESCRIPTOR_COUNTS, self._openers.join_files)
            self._run_joined("shared files", Kind.FILES, self._openers.join_shared_files)
            self._run_by_size("maps", living, MAPS_SIZES, self._openers.join_mappings)
            self._run_joined("shared maps", Kind.VM, self._openers.join_shared_mappings)
            self._openers.close_maps()
        self._observe_commands(living, max(_COMMAND_S, (time.monotonic() - begun) / 4))
        return self._scan()

    def scan_threads(self) -> ProcessScan | None:
        """Observe what single threads have, and their process has not; None without any thread.

        unshare(2) and setns(2) give a single thread its own mount namespace, directories or table
        of descriptors. A thread of a container runtime that stays in a namespace keeps the mounts
        there busy, and the files of the process do not show it.
        """
        known = len(self._namespaces)
        many = self._in_turn(
            pid
            for pid, entry in self._entries.items()
            if entry.threads > 1 and not entry.is_kernel_thread
        )
        if not many:
            return None
        self._run("threads", many, self._observe_threads)
        self._read_larger_mounts()
        if len(self._namespaces) > known:
            self._run("host", self._namespaces.init(), self._namespaces.read_host_again)
        return self._scan()

    # Run ------------------------------------------------------------------------------------------

    def _in_turn(self, pids: Iterable[int]) -> list[int]:
        """Return processes without a pod, then one of each pod, the next one of each, and so on."""
        by_pod: dict[str | None, list[int]] = {None: []}
        for pid in pids:
            by_pod.setdefault(self._pod_of(pid), []).append(pid)
        first = by_pod.pop(None)
        turns = itertools.chain.from_iterable(itertools.zip_longest(*by_pod.values()))
        return first + [pid for pid in turns if pid is not None]

    def _pod_of(self, pid: int) -> str | None:
        entry = self._entries.get(pid)
        return entry.process.pod_uid if entry else None

    def _groups_at(self, what: str) -> Callable[[tuple[str, int]], str | None]:
        """Return a function that returns the pod of an item, for one part of the observation.

        An item that hangs counts for its own part and for the later ones, so that the number of
        threads of a pod does not grow with that of the parts. It does not count for the earlier
        ones: a command line that does not answer hides no file.
        """
        part = _PARTS[what]
        return lambda item: self._pod_of(item[1]) if _PARTS[item[0]] <= part else None

    def _run_by_size(
        self,
        what: str,
        pids: Sequence[int],
        sizes: Sequence[float],
        observe: Callable[[int, float], None],
    ) -> None:
        """Observe one part of the given processes: those with small files first."""
        for most in sizes:
            self._openers.larger = []
            self._run(what, pids, functools.partial(_call, observe, most))
            pids = self._in_turn(self._openers.larger)
            if not pids:
                return

    def _run_joined(self, what: str, kind: Kind, observe: Callable[[int], None]) -> None:
        """Observe one part of the processes for which another one was read."""
        self._run(what, self._in_turn(self._openers.joined(kind)), observe)

    def _read_larger_mounts(self) -> None:
        """Read the mount namespaces of more than the usual size: the small ones first."""
        for larger, read in self._namespaces.by_size():
            self._run("mounts", self._in_turn(larger), read)

    def _run(self, what: str, pids: Sequence[int], observe: Callable[[int], None]) -> None:
        """Observe one part of the given processes, and record which processes hang."""
        if not pids:
            return
        left = self._turns.run(
            [(what, pid) for pid in pids],
            lambda item: self._contained(item[1], observe),
            patience_s=_PATIENCE_S,
            deadline=self._deadline,
            group_of=self._groups_at(what),
        )
        for _, pid in left.waiting if what != "place" else ():
            self._mark_late(pid)
        new = self._note(left.hung)
        for item in left.hung:
            self._mark_hung(item[1], self._turns.notes[item])
        for _, pid in left.skipped:
            self._entries[pid].is_skipped = True
        if what == "files" and new:
            self._run("place", [pid for _, pid in new[:_MOST_PLACES]], self._describe)

    def _observe_commands(self, pids: Sequence[int], patience_s: float) -> None:
        """Read the command lines of the given processes, each within a time.

        Everything else is observed by now. A command line that does not answer is missing itself,
        and makes no other fact of its process uncertain.
        """
        left = self._turns.run(
            [("command", pid) for pid in pids],
            lambda item: self._contained(item[1], self._observe_command),
            patience_s=patience_s,
            deadline=self._deadline,
            group_of=self._groups_at("command"),
            quick_s=_QUICK_COMMAND_S,
        )
        self._note(left.hung)
        for item in left.hung:
            self._entries[item[1]].no_command = self._turns.notes[item]
        for _, pid in left.skipped:
            self._entries[pid].no_command = SKIPPED
        for _, pid in left.waiting:
            self._entries[pid].no_command = _LATE

    def _note(self, hung: Sequence[tuple[str, int]]) -> list[tuple[str, int]]:
        """Keep which file does not answer; return the items that did not hang before."""
        new = [item for item in hung if item not in self._turns.notes]
        for item in new:
            entry = self._entries.get(item[1])
            at = entry.at if entry else f"{self._root}/{item[1]}"
            self._turns.notes[item] = f"{at} does not answer"
        return new

    def _contained(self, pid: int, observe: Callable[[int], None]) -> None:
        try:
            observe(pid)
        except Exception as error:  # noqa: BLE001 - a failed process must not hide the others
            self._mark_unread(pid, not_observed(error, f"process {pid}").reason)

    def _mark_unread(self, pid: int, why: str) -> None:
        """Record why a process was not observed."""
        entry = self._entries.get(pid)
        if entry is None:
            self._unread.append(f"process {pid}: {why}")
        else:
            entry.unread = why

    def _mark_hung(self, pid: int, why: str) -> None:
        """Record that a process does not answer."""
        entry = self._entries.get(pid)
        if entry is None:
            self._unread.append(f"process {pid}: {why}")
        else:
            entry.hung = entry.hung or why

    def _mark_late(self, pid: int) -> None:
        """Record that the deadline of the observation was over before a process was read."""
        entry = self._entries.get(pid)
        if entry is None:
            self._late += 1
        else:
            entry.beyond = entry.beyond or _LATE

    def _describe(self, pid: int) -> None:
        """Add the file system that does not answer to the reason of a hanging process.

        The process may have answered meanwhile: then it has no note any more.
        """
        entry = self._entries[pid]
        at = entry.at
        found = file_system_of(entry.directory, at, share_of_process(MAPS_SIZES[-1]))
        if found:
            entry.hung = f"{at} does not answer, on {found}"
            self._turns.notes["files", pid] = entry.hung

    # One process ----------------------------------------------------------------------------------

    def _observe(self, pid: int) -> None:
        entry = read_entry(self._root, pid, self._boot, is_public=self._is_public)
        if entry is None:
            return
        if isinstance(entry, NotObserved):
            self._hidden.add(pid)
            return
        self._entries[pid] = entry
        if not entry.is_over:
            self._namespaces.join(entry, entry.directory)

    def _observe_threads(self, pid: int) -> None:
        entry = self._entries[pid]
        share = self._limits.of_threads(entry.process.pod_uid)
        compare = self._openers.comparison(entry)
        for directory in threads_in(f"{self._root}/{pid}"):
            self._namespaces.join_thread(entry, directory)
            self._openers.join_thread(entry, directory, compare, share)
            if share.is_over():
                entry.beyond = share.reason(f"{self._root}/{pid}/task")
                return

    def _observe_command(self, pid: int) -> None:
        """Read the command line of a process; once for processes that share their memory."""
        entry = self._entries[pid]
        twin = self._openers.twin_of(pid, Kind.VM)
        if twin is not None and twin.is_command_read:
            entry.command_line, entry.arguments = twin.command_line, twin.arguments
            entry.is_cut, entry.is_command_read = twin.is_cut, True
            return
        read_command(entry)

    def _scan(self) -> ProcessScan:
        """Return the result of the pass, in the order of the pids."""
        entries = [self._entries[pid] for pid in sorted(self._entries)]
        late = [f"{self._late} processes were not observed in time"] if self._late else []
        return scan_of(
            entries,
            self._namespaces.found(entries),
            hidden=self._hidden,
            unknown=late + self._unread,
        )


def _call(observe: Callable[[int, float], None], most: float, pid: int) -> None:
    observe(pid, most)
