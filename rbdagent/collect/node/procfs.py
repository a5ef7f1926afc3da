"""One pass over /proc: the processes that have a device open, with mount namespace and pod.

This module accesses no path inside a volume: a stat below a dead device hangs for minutes. Links of
``/proc/PID`` lead to inodes that are already in memory, and cause no request to a file server.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import itertools
import math
import os
import re
import stat
import time
from collections import Counter
from typing import TYPE_CHECKING, Final

from msgspec import Struct, field
from msgspec.structs import replace

from rbdagent.collect.failure import not_observed
from rbdagent.collect.files import (
    ARGUMENTS,
    COMMAND_LINE,
    LISTS,
    SMALL,
    Blocks,
    TooLargeError,
    UnreadError,
    file_system_at,
    identity_of,
    inode_of,
    is_same,
    read_bytes,
    read_head,
)
from rbdagent.collect.node.file_systems import file_system_of
from rbdagent.collect.node.kcmp import Kcmp, Kind, Twins
from rbdagent.collect.node.limits import (
    DESCRIPTOR_COUNTS,
    MAPS_SIZES,
    MOUNTINFO_SIZES,
    PROCESS_S,
    ROOM,
    Limits,
    Share,
    share_of_process,
)
from rbdagent.collect.node.mounts import Namespace, Shown, Wanted, read_mounts
from rbdagent.collect.parallel import InTurn
from rbdagent.model import (
    DeviceNumber,
    InFlight,
    NotObserved,
    OpenFile,
    OpenKind,
    ProcessRef,
)
from rbdagent.parse.foreign import foreign_name
from rbdagent.parse.secrets import command_without_secrets, without_secrets
from rbdagent.parse.times import iso_time

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

_COMMAND_CHARACTERS: Final = 200
_KERNEL_THREAD: Final = 0x00200000
"""PF_KTHREAD in the flags of ``/proc/PID/stat`` (include/linux/sched.h)."""

_ENDED: Final = frozenset("ZX")
"""States of ``/proc/PID/stat``: ended, but not yet reaped by the parent (proc(5))."""

# kubepods-besteffort-pod<uid with _>.slice (systemd) or kubepods/besteffort/pod<uid> (cgroupfs):
# pkg/kubelet/cm/cgroup_manager_linux.go@v1.36.3.
_POD: Final = re.compile(
    r"pod(?P<uid>[0-9a-f]{8}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{12}|[0-9a-f]{32})"
)
_CONTAINER: Final = re.compile(r"(?<![0-9a-f])(?P<id>[0-9a-f]{64})(?![0-9a-f])")
_PROGRAMS: Final = frozenset(
    {"rbd", "rbd-nbd", "mount", "umount", "blkid", "cryptsetup", "fsck", "e2fsck", "xfs_repair",
     "resize2fs", "xfs_growfs", "tune2fs", "dumpe2fs", "wipefs"}
)  # fmt: skip


KUBELETS: Final = frozenset({"kubelet", "k3s", "rke2", "k0s"})
"""Programs that are kubelet or contain it."""


class ProcessEntry(Struct, kw_only=True):
    """Holds the facts observed so far of one process."""

    process: ProcessRef
    """Its ``command`` is the program's name. `ref` also has the command line."""
    name: str
    """``comm``: the kernel cuts it to 15 characters."""
    is_kernel_thread: bool
    directory: str
    """Its directory below /proc; that of another thread if the first one has ended."""
    threads: int = 1
    ticks: int = 0
    """Its start time, in clock ticks since boot."""
    parent_pid: int = 0
    """0 without a parent in the pid namespace of /proc: process 1, kthreadd."""
    has_cgroup: bool = True
    """Whether its cgroup was read. If the cgroup names no pod, the process belongs to no pod."""
    is_over: bool = False
    """Whether it is a zombie: it keeps no device busy, and has no files."""
    command_line: tuple[str, ...] = ()
    """As it was read: it may contain secrets, and only `ref` shows it."""
    arguments: tuple[str, ...] = ()
    """All arguments of a program whose arguments are parsed; for others, only the program."""
    is_cut: bool = False
    """Whether its command line was not read, or only in part."""
    namespaces: list[int | bytes] = field(default_factory=list)
    """Its mount namespace, and those of its threads."""
    openers: list[OpenFile] = field(default_factory=list)
    found: dict[DeviceNumber, int] = field(default_factory=dict)
    """The number of openers by device."""
    has_denied_mounts: bool = False
    has_denied_files: bool = False
    """Whether access to its descriptors, cwd, root or mappings is denied."""
    at: str = ""
    """The file that was read last."""
    hung: str = ""
    """Which file does not answer."""
    is_skipped: bool = False
    """Whether it was not read because other processes of its pod do not answer."""
    beyond: str = ""
    """Which file was not read to its end, because it exceeds a limit."""
    unread: str = ""
    """Why the process was not observed completely, for any other reason."""
    layout: tuple[str, ...] = ()
    """Addresses in its address space, which a process with the same address space shows too."""
    next_descriptor: int = 0
    """The first descriptor that was not read yet."""
    is_command_read: bool = False
    no_command: str = ""
    """Why its command line was not read in time."""

    @property
    def ref(self) -> ProcessRef:
        """The process with its command line, without secrets.

        The secrets are masked here, because few of a node's processes are shown.
        """
        if command_line := self.command_line:
            self.command_line = ()
            try:
                command = _shown(command_line, is_cut=self.is_cut)
                self.process = replace(self.process, command=command)
            except Exception as error:  # noqa: BLE001 - a failed process must not hide the others
                # Its message may quote a secret.
                self.unread = f"secrets could not be masked: {type(error).__name__}"
        return self.process


class ProcessScan(Struct, kw_only=True):
    """The result of the pass."""

    entries: list[ProcessEntry]
    namespaces: list[Namespace]
    openers: list[OpenFile]
    unknown: list[str]
    """The processes that were not observed at all, with the reason."""
    denied_mounts: list[str]
    """The processes with denied access to their mounts."""
    denied_files: list[str]
    """The processes with denied access to their descriptors, cwd, root or mappings."""
    unread_mounts: list[str]
    """The processes whose mount namespace was not observed, with the reason."""
    hung_files: list[str]
    """The processes whose files do not answer, with the reason."""
    beyond_files: list[str]
    """The processes whose files exceed the limits, with the reason."""
    unread_files: list[str]
    """The processes whose files were not all observed for another reason, with the reason."""
    unread_commands: list[str]
    """The processes whose command line was not read in time, with the reason."""


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
    ) -> None:
        """Store the parameters, and read the boot time.

        Args:
            procfs: the host's /proc.
            wanted: the devices to search.
            turns: contains the processes that hang since an earlier pass.
            deadline: of the monotonic clock; a process that was not observed by then is reported
                as not observed.
        """
        self._root = str(procfs)
        self._wanted = wanted
        self._columns = _Columns.of(wanted.numbers)
        self._turns = turns or InTurn()
        self._deadline = deadline
        self._boot = _boot_time(procfs)
        self._entries: dict[int, ProcessEntry] = {}
        self._hidden: set[int] = set()
        self._unread: list[str] = []
        self._late = 0
        """The number of processes of which nothing was read before the deadline."""
        self._shown: dict[int | bytes, Shown] = {}
        self._limits = Limits()
        self._larger: list[int] = []
        """The processes with a file of more than the usual size, which is read later."""
        self._larger_mounts: dict[int, list[tuple[str, int]]] = {}
        """The same for mount namespaces: directory and inode, by process."""
        self._large_layouts: set[tuple[object, ...]] = set()
        self._begun_maps: dict[int, Blocks] = {}
        """The maps of which a part was read, by process."""
        self._first: dict[tuple[Kind, int], int] = {}
        """The process that was read instead of another one, because they share what was read."""
        self._kcmp = Kcmp.of(procfs)
        self._twins = {kind: Twins(self._kcmp, kind) for kind in (Kind.VM, Kind.FILES)}

    def scan(self) -> ProcessScan:
        """Observe every process.

        The parts that cannot wait for a process come first, and ``cmdline``, which waits for the
        process's memory, comes last: what does not answer then hides nothing else.
        """
        begun = time.monotonic()
        self._run("process", _pids(self._root), self._observe)
        self._read_larger_mounts()
        self._run("namespace", self._without_mounts(), self._join_namespace_again)
        self._read_larger_mounts()
        self._run("host", self._init(), self._read_host_again)
        living = self._in_turn(
            pid
            for pid, entry in self._entries.items()
            if not (entry.is_over or entry.is_kernel_thread)
        )
        if self._wanted.numbers:
            self._run_by_size("files", living, DESCRIPTOR_COUNTS, self._join_files)
            self._run("shared files", self._joined(Kind.FILES), self._join_shared_files)
            self._run_by_size("maps", living, MAPS_SIZES, self._join_mappings)
            self._run("shared maps", self._joined(Kind.VM), self._join_shared_mappings)
            self._begun_maps.clear()
        self._observe_commands(living, max(_COMMAND_S, (time.monotonic() - begun) / 4))
        return self._scan()

    def scan_threads(self) -> ProcessScan | None:
        """Observe what single threads have, and their process has not; None without any thread.

        unshare(2) and setns(2) give a single thread its own mount namespace, directories or table
        of descriptors. A thread of a container runtime that stays in a namespace keeps the mounts
        there busy, and the files of the process do not show it.
        """
        known = len(self._shown)
        many = self._in_turn(
            pid
            for pid, entry in self._entries.items()
            if entry.threads > 1 and not entry.is_kernel_thread
        )
        if not many:
            return None
        self._run("threads", many, self._observe_threads)
        self._read_larger_mounts()
        if len(self._shown) > known:
            self._run("host", self._init(), self._read_host_again)
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
            self._larger = []
            self._run(what, pids, functools.partial(_call, observe, most))
            pids = self._in_turn(self._larger)
            if not pids:
                return

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
            self._entries[pid].no_command = _SKIPPED
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
        entry = _entry(self._root, pid, self._boot)
        if entry is None:
            return
        if isinstance(entry, NotObserved):
            self._hidden.add(pid)
            return
        self._entries[pid] = entry
        if not entry.is_over:
            self._join_namespace(entry, entry.directory)

    def _observe_threads(self, pid: int) -> None:
        entry = self._entries[pid]
        share = self._limits.of_threads(entry.process.pod_uid)
        compare = _Comparison(entry, self._kcmp)
        for directory in _threads(f"{self._root}/{pid}"):
            inode = inode_of(f"{directory}/ns/mnt")
            if inode is not None and inode not in self._shown:
                # If access to the namespace is denied, access to the open files is denied too. That
                # is already a gap.
                self._join_namespace(entry, directory)
            try:
                for link, how in compare.own_links(directory) if self._wanted.numbers else ():
                    self._join_any(entry, link, how, share)
                    if share.is_over():
                        break
            except PermissionError:
                entry.has_denied_files = True
            if share.is_over():
                entry.beyond = share.reason(f"{self._root}/{pid}/task")
                return

    def _scan(self) -> ProcessScan:
        """Return the result of the pass, in the order of the pids."""
        entries = [self._entries[pid] for pid in sorted(self._entries)]
        late = [f"{self._late} processes were not observed in time"] if self._late else []
        unknown = late + self._unread
        namespaces: dict[int | bytes, Namespace] = {}
        for entry in entries:
            for key in entry.namespaces:
                if key not in namespaces:
                    shown = self._shown.get(key, _UNREAD)
                    namespaces[key] = Namespace(key=key, process=entry.ref, mounts=shown.mounts)
                found = namespaces[key]
                if found.process.pod_uid is None and entry.process.pod_uid is not None:
                    # A process of a container identifies the namespace better than a process
                    # without a pod that entered the namespace.
                    found.process = entry.ref
        self._mark_host(namespaces)
        hidden = [f"process {pid}" for pid in sorted(self._hidden)]
        return ProcessScan(
            entries=entries,
            namespaces=list(namespaces.values()),
            openers=[
                opener for entry in _with_few_commands(entries) for opener in _openers_of(entry)
            ],
            unknown=[f"the state of {process} cannot be read" for process in hidden] + unknown,
            denied_mounts=hidden + _named_some(entries, lambda entry: entry.has_denied_mounts),
            denied_files=hidden + _named_some(entries, lambda entry: entry.has_denied_files),
            unread_mounts=unknown
            + _reasons(
                entries,
                lambda entry: (
                    ""
                    if entry.namespaces
                    else entry.hung or _skipped(entry) or entry.beyond or entry.unread
                ),
            ),
            hung_files=_reasons(entries, lambda entry: entry.hung)
            + _reasons(entries, lambda entry: "" if entry.hung else _skipped(entry)),
            beyond_files=_reasons(entries, lambda entry: entry.beyond),
            unread_files=unknown + _reasons(entries, lambda entry: entry.unread),
            unread_commands=_reasons(entries, lambda entry: entry.no_command),
        )

    # Mount namespaces -----------------------------------------------------------------------------

    def _mark_host(self, namespaces: dict[int | bytes, Namespace]) -> None:
        """Mark the namespace of pid 1: by its inode, or by the digest if the inode is hidden."""
        for pid in self._init():
            own = self._entries[pid].namespaces[0]
            for key, namespace in namespaces.items():
                shown = self._shown.get(key, _UNREAD)
                namespace.is_host = own in (key, shown.digest)

    def _init(self) -> list[int]:
        """Return pid 1, in the host's mount namespace; empty if it was not observed."""
        init = self._entries.get(1)
        return [1] if init is not None and init.namespaces else []

    def _read_host_again(self, pid: int) -> None:
        """Add the host's mounts of now to those that were read before the other namespaces.

        A mount of the CSI plugin is in its own namespace and in the host's. If it appeared or
        disappeared between the reads of the two, it would seem to be in the plugin's only.
        """
        entry = self._entries[pid]
        key = entry.namespaces[0]
        before = self._shown.get(key, _UNREAD)
        if isinstance(before.mounts, NotObserved):
            return
        now = self._mounts_of(entry, entry.directory)
        if now is None:
            return
        mounts = now.mounts
        if not isinstance(mounts, NotObserved):
            known = set(before.mounts)
            mounts = (*before.mounts, *(mount for mount in mounts if mount not in known))
        self._shown[key] = before._replace(mounts=mounts)

    def _without_mounts(self) -> list[int]:
        """Return the processes that relied on the read of another one, which ended during it."""
        return [
            pid
            for pid, entry in self._entries.items()
            if not self._shown.keys() >= set(entry.namespaces)
        ]

    def _join_namespace_again(self, pid: int) -> None:
        entry = self._entries[pid]
        entry.namespaces.clear()
        self._join_namespace(entry, entry.directory)

    def _join_namespace(self, entry: ProcessEntry, directory: str) -> None:
        """Read the mountinfo of a new namespace; the digest identifies a hidden namespace."""
        entry.at = f"{directory}/mountinfo"
        try:
            inode = identity_of(f"{directory}/ns/mnt").inode
        except PermissionError:
            inode = 0
        except OSError:
            return
        if inode and inode in self._shown:
            entry.namespaces.append(inode)
            return
        most = None
        if inode:
            # Meanwhile, other processes of this namespace must not read the file again.
            unread = NotObserved(reason=f"{entry.at} does not answer")
            self._shown[inode] = Shown(unread, b"")
            entry.namespaces.append(inode)
        else:
            most = MOUNTINFO_SIZES[-1]
        try:
            shown = self._mounts_of(entry, directory, most)
        except TooLargeError as error:
            if inode and error.what is not None:
                self._shown[inode] = Shown(error.what, b"")
            self._larger_mounts.setdefault(entry.process.pid, []).append((directory, inode))
            return
        self._store_mounts(entry, inode, shown)

    def _store_mounts(self, entry: ProcessEntry, inode: int, shown: Shown | None) -> None:
        if shown is not None and (inode or shown.digest or not entry.is_kernel_thread):
            self._shown[inode or shown.digest] = shown
            if not inode:
                entry.namespaces.append(shown.digest)
        elif inode:
            del self._shown[inode]
            entry.namespaces.remove(inode)

    def _read_larger_mounts(self) -> None:
        """Read the mount namespaces of more than the usual size: the small ones first."""
        for most in MOUNTINFO_SIZES:
            larger, self._larger_mounts = self._larger_mounts, {}
            read = functools.partial(self._read_namespaces, larger, most)
            self._run("mounts", self._in_turn(larger), read)

    def _read_namespaces(
        self, namespaces: dict[int, list[tuple[str, int]]], most: int, pid: int
    ) -> None:
        entry = self._entries[pid]
        for directory, inode in namespaces[pid]:
            try:
                shown = self._mounts_of(entry, directory, most)
            except TooLargeError as error:
                if most < MOUNTINFO_SIZES[-1]:
                    self._larger_mounts.setdefault(pid, []).append((directory, inode))
                    continue
                shown = Shown(error.what or _UNREAD.mounts, b"")
            self._store_mounts(entry, inode, shown)

    def _mounts_of(
        self, entry: ProcessEntry, directory: str, most: int | None = None
    ) -> Shown | None:
        """Read a process's mounts; None if it has ended, or if access is denied.

        Raises:
            TooLargeError: there are more than ``most`` bytes, or than the usual size.
        """
        entry.at = f"{directory}/mountinfo"
        share = self._limits.of_mounts(entry.process.pod_uid, most)
        try:
            return read_mounts(entry.at, self._wanted, share)
        except TooLargeError:
            share.return_room()
            raise
        except UnreadError:
            entry.has_denied_mounts = True
            return None

    # Openers --------------------------------------------------------------------------------------

    def _join_files(self, pid: int, most: float) -> None:
        """Record what a process has open, if it has at most the given number of descriptors."""
        entry = self._entries[pid]
        pod = entry.process.pod_uid
        share = self._limits.of_descriptors(pod, most)
        if most == DESCRIPTOR_COUNTS[0]:
            for name, how in _LINKS:
                self._join_link(entry, f"{entry.directory}/{name}", how, share)
        elif most == DESCRIPTOR_COUNTS[1] and pod is not None and self._has_twin(entry, Kind.FILES):
            return
        self._join_descriptors(entry, share)

    def _join_descriptors(self, entry: ProcessEntry, share: Share) -> None:
        """Record the descriptors from the first unread one; note a process that has too many."""
        directory = f"{entry.directory}/fd"
        entry.at = directory
        first = entry.next_descriptor
        try:
            # The kernel lists descriptors in their order (proc_readfd_common() in fs/proc/fd.c).
            with os.scandir(directory) as descriptors:
                for number, descriptor in enumerate(descriptors):
                    if number >= share.most:
                        self._larger.append(entry.process.pid)
                        return
                    if number % _OFTEN == 0 and share.is_over():
                        entry.beyond = share.reason(directory)
                        return
                    # By its number: descriptors before it may have been closed meanwhile.
                    if (own := int(descriptor.name)) >= first:
                        self._join_descriptor(entry, descriptor.path, share)
                        entry.next_descriptor = own + 1
        except PermissionError:
            entry.has_denied_files = True
        except OSError:
            pass

    def _join_mappings(self, pid: int, most: float) -> None:
        """Record the mapped files of an address space of at most the given size, once."""
        entry = self._entries[pid]
        pod = entry.process.pod_uid
        key = (pod, *entry.layout)
        if pod is None:
            most = MAPS_SIZES[-1]
        elif most == MAPS_SIZES[0]:
            if self._has_twin(entry, Kind.VM):
                return
            if self._kcmp is None and entry.layout and key in self._large_layouts:
                self._larger.append(pid)
                return
        try:
            self._read_mappings(entry, int(most))
        except TooLargeError as error:
            if most < MAPS_SIZES[-1]:
                self._larger.append(pid)
                self._large_layouts.add(key)
            else:
                entry.beyond = str(error)

    def _read_mappings(self, entry: ProcessEntry, most: int) -> None:
        """Record the mapped files.

        Raises:
            TooLargeError: the file is larger than ``most``.
        """
        entry.at = f"{entry.directory}/maps"
        blocks = self._begun_maps.pop(entry.process.pid, None) or Blocks(entry.at)
        share = self._limits.of_maps(entry.process.pod_uid, most)
        if share.is_over():
            entry.beyond = share.reason(entry.at)
            return
        known = {opener.device for opener in entry.openers if opener.kind is OpenKind.MAPPING}
        try:
            for opener in _mappings(entry, blocks.up_to(share.most, share), self._columns, known):
                _add(entry, opener, share)
        except TooLargeError:
            if len(self._begun_maps) < _MOST_BEGUN:
                self._begun_maps[entry.process.pid] = blocks
            raise
        except UnreadError as error:
            if error.number is not None:
                entry.has_denied_files |= error.what is not None
            elif error.what is not None:
                entry.beyond = error.what.reason

    # What processes share -------------------------------------------------------------------------

    def _has_twin(self, entry: ProcessEntry, kind: Kind) -> bool:
        """Return whether another process of the pod is read instead, because they share it."""
        pid, pod = entry.process.pid, entry.process.pod_uid
        first = self._twins[kind].first_of(pid, pod) if pod else None
        if first is not None:
            self._first[kind, pid] = first
        return first is not None

    def _joined(self, kind: Kind) -> list[int]:
        """Return the processes for which another one was read."""
        return self._in_turn(pid for shared, pid in self._first if shared is kind)

    def _twin(self, pid: int, kind: Kind) -> ProcessEntry | None:
        """Return the process that was read instead, if they still share it.

        A process may have ended, or executed another program, before the other one was read. The
        other one existed before, so that it cannot share what this one has since then.
        """
        first = self._first.get((kind, pid))
        if first is None or not self._twins[kind].are_equal(first, pid):
            return None
        return self._entries[first]

    def _join_shared_files(self, pid: int) -> None:
        entry, twin = self._entries[pid], self._twin(pid, Kind.FILES)
        share = self._limits.of_descriptors(entry.process.pod_uid, math.inf)
        if twin is None:
            self._join_descriptors(entry, share)
            return
        entry.openers = [
            opener for opener in entry.openers if opener.kind is not OpenKind.DESCRIPTOR
        ]
        _copy(entry, twin, OpenKind.DESCRIPTOR, share)

    def _join_shared_mappings(self, pid: int) -> None:
        entry, twin = self._entries[pid], self._twin(pid, Kind.VM)
        if twin is None:
            try:
                self._read_mappings(entry, MAPS_SIZES[-1])
            except TooLargeError as error:
                entry.beyond = str(error)
            return
        _copy(entry, twin, OpenKind.MAPPING, self._limits.of_maps(entry.process.pod_uid, 0))

    # Command lines --------------------------------------------------------------------------------

    def _observe_command(self, pid: int) -> None:
        """Read the command line of a process; once for processes that share their memory."""
        entry = self._entries[pid]
        twin = self._twin(pid, Kind.VM)
        if twin is not None and twin.is_command_read:
            entry.command_line, entry.arguments = twin.command_line, twin.arguments
            entry.is_cut, entry.is_command_read = twin.is_cut, True
            return
        _read_command(entry)

    def _join_any(self, entry: ProcessEntry, link: str, how: OpenKind, share: Share) -> None:
        if how is OpenKind.DESCRIPTOR:
            self._join_descriptor(entry, link, share)
        else:
            self._join_link(entry, link, how, share)

    def _join_descriptor(self, entry: ProcessEntry, link: str, share: Share) -> None:
        """Check a descriptor if it leads to a file.

        Sockets, pipes and anonymous inodes have special names, ``socket:[4711]``. The name of every
        file begins with a slash (d_path() in fs/d_path.c).
        """
        try:
            is_file = os.readlink(link).startswith("/")
        except OSError:
            # The path may be longer than a page. The link can be followed nevertheless.
            is_file = True
        if is_file:
            self._join_link(entry, link, OpenKind.DESCRIPTOR, share)

    def _join_link(self, entry: ProcessEntry, link: str, how: OpenKind, share: Share) -> None:
        """Record an opener if a link of a process leads to a device or to a file system on it."""
        entry.at = link
        try:
            found = identity_of(link)
        except OSError as error:
            if error.errno in {errno.EACCES, errno.EPERM}:
                shown = file_system_at(link)
                entry.has_denied_files |= shown is None or shown in self._columns.by_number
            return
        by_number = self._columns.by_number
        on_device = stat.S_ISBLK(found.mode) and found.special in by_number
        if not on_device and found.device not in by_number:
            return
        device = by_number[found.special if on_device else found.device]
        if entry.found.get(device, 0) >= _MOST_ALIKE:
            return
        try:
            path = os.readlink(link)
        except OSError:
            path = ""
        _add(
            entry,
            OpenFile(
                process=entry.process, kind=how, path=path, on_device=on_device, device=device
            ),
            share,
        )


def _add(entry: ProcessEntry, opener: OpenFile, share: Share) -> None:
    if share.has_room(1):
        entry.found[opener.device] = entry.found.get(opener.device, 0) + 1
        entry.openers.append(opener)
    else:
        entry.beyond = f"more open files and mounts of volumes than {ROOM}"


def _named_some(
    entries: Iterable[ProcessEntry], is_meant: Callable[[ProcessEntry], bool]
) -> list[str]:
    """Return the processes for which a function is true: the first ones with program and pod.

    To name a process, secrets in its command line are masked. That takes longer than its read.
    """
    meant = [entry for entry in entries if is_meant(entry)]
    return [named(entry.ref) for entry in meant[:MOST_NAMED]] + [
        f"process {entry.process.pid}" for entry in meant[MOST_NAMED:]
    ]


def _skipped(entry: ProcessEntry) -> str:
    return _SKIPPED if entry.is_skipped else ""


_SKIPPED: Final = "not read, because other processes of its pod do not answer"
_LATE: Final = "not observed in time"


def _reasons(
    entries: Iterable[ProcessEntry], reason_of: Callable[[ProcessEntry], str]
) -> list[str]:
    """Return the processes that have a reason, with it, as `_named_some` does."""
    reasons = {entry.process.pid: why for entry in entries if (why := reason_of(entry))}
    names = _named_some(entries, lambda entry: entry.process.pid in reasons)
    return [f"{name}: {why}" for name, why in zip(names, reasons.values(), strict=True)]


def _copy(entry: ProcessEntry, twin: ProcessEntry, kind: OpenKind, share: Share) -> None:
    """Record for a process what was read of another one, and why not all was read."""
    for opener in twin.openers:
        if opener.kind is kind:
            _add(entry, opener, share)
    entry.hung = entry.hung or twin.hung
    entry.is_skipped |= twin.is_skipped
    entry.beyond = entry.beyond or twin.beyond
    entry.unread = entry.unread or twin.unread
    entry.has_denied_files |= twin.has_denied_files


def _with_few_commands(entries: Iterable[ProcessEntry]) -> Iterator[ProcessEntry]:
    """Yield the processes, of each pod only the first ones with their command lines.

    To mask the secrets of a command line takes 1 ms per KiB, and a pod may have any number of
    processes with open files. The others are shown with their names.
    """
    commands: Counter[str] = Counter()
    for entry in entries:
        pod = entry.process.pod_uid
        if pod is not None and entry.openers:
            commands[pod] += 1
            if commands[pod] > _MOST_COMMANDS:
                entry.command_line = ()
        yield entry


def _openers_of(entry: ProcessEntry) -> Iterator[OpenFile]:
    """Yield the open files of a process, with its command line, which was read after them."""
    for opener in entry.openers:
        yield replace(opener, process=entry.ref)


def _call(observe: Callable[[int, float], None], most: float, pid: int) -> None:
    observe(pid, most)


class _Comparison:
    """Compares the threads of a process with the one whose directory shows its files."""

    def __init__(self, entry: ProcessEntry, kcmp: Kcmp | None) -> None:
        self._directory = entry.directory
        self._kcmp = kcmp
        self._own = int(os.path.basename(entry.directory))
        self._names: set[str] | None = None
        self._count = -1
        """The number of descriptors of the process; -1 if the kernel does not show it."""

    def _shares(self, directory: str, kind: Kind) -> bool | None:
        """Return whether a thread shares it; None if that is unknown."""
        thread = int(os.path.basename(directory))
        if thread == self._own:
            return True
        return self._kcmp.is_shared(self._own, thread, kind) if self._kcmp else None

    def own_links(self, directory: str) -> Iterator[tuple[str, OpenKind]]:
        """Yield cwd, root and descriptors of a thread that the process may not have.

        Raises:
            PermissionError: access to its descriptors is denied.
        """
        shares = self._shares(directory, Kind.FS)
        for name, how in _DIRECTORIES if not shares else ():
            link = f"{directory}/{name}"
            if shares is False or not is_same(link, f"{self._directory}/{name}"):
                yield link, how
        for name in self._own_descriptors(directory):
            yield f"{directory}/fd/{name}", OpenKind.DESCRIPTOR

    def _own_descriptors(self, directory: str) -> Iterable[str]:
        """Return the descriptors of a thread with a separate table.

        Without kcmp(2), these are the ones whose number the process does not have. A thread with
        as many descriptors as the process counts as sharing them: to list the 700 of each of 1,000
        threads takes 0.3 s.
        """
        shares = self._shares(directory, Kind.FILES)
        if shares:
            return ()
        if shares is False:
            return _descriptors(directory)
        if self._names is None:
            self._names = set(_descriptors(self._directory))
            if self._names and _descriptor_count(self._directory) == len(self._names):
                self._count = len(self._names)
        if _descriptor_count(directory) == self._count:
            return ()
        names = _descriptors(directory)
        if not self._names.issuperset(names):
            # The process may have opened them meanwhile.
            self._names.update(_descriptors(self._directory))
        return [name for name in names if name not in self._names]


def _descriptors(directory: str) -> list[str]:
    """Return the descriptors of a process or thread; none if it has ended.

    Raises:
        PermissionError: access is denied.
    """
    try:
        return os.listdir(f"{directory}/fd")
    except PermissionError:
        raise
    except OSError:
        return []


def _descriptor_count(directory: str) -> int | None:
    """Return the size of a table's directory; None if it cannot be read.

    It is the number of descriptors since Linux 6.2 (commit f1f1f2569901), and 0 before.
    """
    try:
        return os.stat(f"{directory}/fd").st_size
    except OSError:
        return None


_UNREAD: Final = Shown(NotObserved(reason="the process in this namespace has ended"), b"")
_PATIENCE_S: Final = PROCESS_S + 0.5
"""Longer than the share of a process: only a read that hangs takes this long."""
_COMMAND_S: Final = 0.1
"""A command line may take this long, or a quarter of the time of all before it, if that is more.

It takes 20 us. With a fixed limit, those that hang would make an observation of a quick node take
several times as long, or those of a slow node would seem to hang.
"""
_QUICK_COMMAND_S: Final = 0.005
_MOST_PLACES: Final = 3
_MOST_COMMANDS: Final = 16
"""Limit of the processes of one pod whose command lines are shown because they have open files."""
_MOST_BEGUN: Final = 64
"""Limit of files that are open between the parts in which they are read. Others are read again."""
MOST_NAMED: Final = 3
"""Limit of processes that are named in one reason."""
_OFTEN: Final = 256
_MOST_ALIKE: Final = 100
"""Limit of open files per process and device: more files would add no evidence."""
_PARTS: Final = {
    **dict.fromkeys(("place", "process"), 0),
    **dict.fromkeys(("namespace", "mounts", "host"), 1),
    **dict.fromkeys(("files", "shared files"), 2),
    **dict.fromkeys(("maps", "shared maps"), 3),
    "threads": 4,
    "command": 5,
}
"""The parts of the observation, from the one that the others need most to the last one."""
_DIRECTORIES: Final = (("cwd", OpenKind.CWD), ("root", OpenKind.ROOT))
_LINKS: Final = (*_DIRECTORIES, ("exe", OpenKind.EXECUTABLE))


def _threads(directory: str) -> list[str]:
    """Return the threads of a process; empty if it has ended, or access is denied."""
    try:
        return [f"{directory}/task/{thread}" for thread in sorted(os.listdir(f"{directory}/task"))]
    except OSError:
        return []


class _Columns(Struct, frozen=True, kw_only=True):
    """Holds the devices to search, in the formats of /proc."""

    by_number: dict[tuple[int, int], DeviceNumber]
    columns: dict[bytes, DeviceNumber]
    """``MAJOR:MINOR`` of maps: in hex, at least two digits (fs/proc/task_mmu.c)."""
    majors: tuple[bytes, ...]
    """The first parts of these columns: a file without any of them has no such line."""

    @classmethod
    def of(cls, numbers: frozenset[DeviceNumber]) -> _Columns:
        return cls(
            by_number={(number.major, number.minor): number for number in numbers},
            columns={
                f"{number.major:02x}:{number.minor:02x}".encode(): number for number in numbers
            },
            majors=tuple({f" {number.major:02x}:".encode() for number in numbers}),
        )


def _pids(root: str) -> list[int]:
    return sorted(int(name) for name in os.listdir(root) if name.isdigit())


def _boot_time(procfs: Path) -> int | None:
    # The file has a number for every interrupt of the machine, and may exceed the small limit.
    raw = read_bytes(procfs / "stat", LISTS)
    for line in raw.splitlines() if isinstance(raw, bytes) else ():
        if line.startswith(b"btime "):
            return int(line.split()[1])
    return None


def _entry(root: str, pid: int, boot: int | None) -> ProcessEntry | NotObserved | None:
    """Read a process; None if it has ended, NotObserved if hidepid hides it (proc(5))."""
    directory = f"{root}/{pid}"
    raw = read_bytes(f"{directory}/stat")
    if not isinstance(raw, bytes):
        return raw
    # The name is in parentheses and may contain spaces and parentheses.
    head, _, tail = raw.decode(errors="replace").rpartition(")")
    name, fields = head.partition("(")[2], tail.split()
    is_thread = bool(int(fields[6]) & _KERNEL_THREAD)
    living = _running_thread(directory) if fields[0] in _ENDED else directory
    cgroup = b"" if is_thread else read_bytes(f"{root}/{pid}/cgroup")
    # The processes of a container have one text.
    pod_uid, container = _container_of(cgroup)
    return ProcessEntry(
        process=ProcessRef(
            pid=pid,
            command=f"[{name}]" if is_thread else name,
            pod_uid=pod_uid,
            container_id=container,
            started_at=_started_at(boot, int(fields[19])),
            state=fields[0],
        ),
        name=name,
        is_kernel_thread=is_thread,
        directory=living or directory,
        threads=int(fields[17]),
        ticks=int(fields[19]),
        parent_pid=int(fields[1]),
        has_cgroup=isinstance(cgroup, bytes),
        is_over=living is None,
        is_cut=not is_thread and living is not None,
        layout=tuple(fields[_START_CODE : _START_STACK + 1]),
    )


def start_ticks(procfs: Path, pid: int) -> int | None:
    """Return the start time of the process that has a pid now; None if it cannot be read."""
    raw = read_bytes(procfs / str(pid) / "stat")
    return int(raw.rpartition(b")")[2].split()[19]) if isinstance(raw, bytes) and raw else None


_UIDS: Final = re.compile(rb"^Uid:((?:\t\d+){4})$", re.MULTILINE)
"""At the start of a line: a process may have the name ``Uid:\\t0\\t0\\t0``. The kernel escapes a
newline in a name, but no tab (proc_task_name() in fs/proc/array.c)."""


def uids_of(procfs: Path, entry: ProcessEntry) -> tuple[bytes, ...] | None:
    """Return the real, effective, saved and file system uid of a process.

    Returns:
        Empty if access is denied, None if the process has ended.
    """
    status = read_head(procfs / str(entry.process.pid) / "status", SMALL)
    found = _UIDS.search(status) if isinstance(status, bytes) else None
    if found is None:
        return None if status is None else ()
    return tuple(found[1].split())


_START_CODE: Final = 23
_START_STACK: Final = 25
"""Fields 26 and 28 of ``/proc/PID/stat`` (proc(5)), counted from the state, which is field 3."""


def _read_command(entry: ProcessEntry) -> None:
    """Read a process's command line; without one, show the process's name."""
    entry.at = f"{entry.directory}/cmdline"
    arguments, entry.is_cut = _command_line(entry.at)
    entry.is_command_read = True
    if not arguments:
        name = entry.name if entry.is_cut else f"[{entry.name}]"
        entry.process = replace(entry.process, command=name)
        return
    entry.command_line = arguments
    entry.arguments = arguments if _matters(arguments[0]) else arguments[:1]


def _command_line(path: str) -> tuple[tuple[str, ...], bool]:
    """Return a process's arguments, and whether there are more."""
    most = COMMAND_LINE
    line = read_head(path, most)
    if (
        isinstance(line, bytes)
        and len(line) == most
        and _matters(line.partition(b"\0")[0].decode(errors="replace"))
    ):
        most = ARGUMENTS
        line = read_head(path, most)
    if not isinstance(line, bytes):
        return (), line is not None
    if not line:
        return (), False
    is_cut = len(line) == most
    # Part of a secret is not recognised as a secret: an incomplete argument is omitted.
    whole = line.rpartition(b"\0")[0] or line if is_cut else line.rstrip(b"\0")
    return tuple(word.decode(errors="replace") for word in whole.split(b"\0")), is_cut


def _matters(argument: str) -> bool:
    """Return whether the arguments of a program are parsed, according to the first one.

    k3s and RKE2 put all of their arguments into the first one: ``/usr/local/bin/k3s server``.
    """
    program = os.path.basename(argument.partition(" ")[0])
    return program in KUBELETS or _is_worker(program)


def _shown(arguments: tuple[str, ...], *, is_cut: bool) -> str:
    text = command_without_secrets(arguments)
    if len(text) <= _COMMAND_CHARACTERS and not is_cut:
        return text
    return f"{text[: _COMMAND_CHARACTERS - 2]} …"


def _running_thread(directory: str) -> str | None:
    """Return a running thread of a process whose first thread has ended.

    Only the directory of such a thread shows the files. The directory of the process shows none,
    because the leader has released them (fs/proc/fd.c, fs/proc_namespace.c).
    """
    for thread in _threads(directory):
        raw = read_bytes(f"{thread}/stat")
        if isinstance(raw, bytes) and raw.rpartition(b")")[2].split()[0].decode() not in _ENDED:
            return thread
    return None


@functools.lru_cache(maxsize=256)
def _container_of(cgroup: object) -> tuple[str | None, str | None]:
    if not isinstance(cgroup, bytes) or b"pod" not in cgroup:
        return None, None
    text = cgroup.decode(errors="replace")
    pod = _POD.search(text)
    if pod is None:
        return None, None
    container = _CONTAINER.search(text)
    return pod["uid"].replace("_", "-"), container["id"] if container else None


@functools.lru_cache(maxsize=4096)
def _started_at(boot: int | None, ticks: int) -> str | None:
    if boot is None:
        return None
    return iso_time(boot + ticks / os.sysconf("SC_CLK_TCK"))


def _mappings(
    entry: ProcessEntry, blocks: Iterable[bytes], columns: _Columns, known: Iterable[DeviceNumber]
) -> Iterator[OpenFile]:
    """Yield one opener per device that has the file of a memory mapping.

    The device is the fourth field. The path is the rest of the line and may contain any character
    except a newline (show_map_vma() in fs/proc/task_mmu.c), also text in the format of a device.

    Args:
        entry: the process.
        blocks: parts of its maps, in whole lines.
        columns: the devices to search.
        known: the devices that were found already.
    """
    left = {column: device for column, device in columns.columns.items() if device not in known}
    for block in blocks:
        if not any(major in block for major in columns.majors):
            continue
        for line in block.split(b"\n"):
            fields = line.split(None, 5)
            number = left.pop(fields[3], None) if len(fields) > 3 else None
            if number is not None:
                name = fields[5].decode(errors="replace") if len(fields) > 5 else ""
                yield OpenFile(
                    process=entry.process,
                    kind=OpenKind.MAPPING,
                    path=name,
                    on_device=False,
                    device=number,
                )


# --------------------------------------------------------------------------------------------------
# Facts from the entries
# --------------------------------------------------------------------------------------------------


def _is_worker(program: str) -> bool:
    """Return whether a program maps, unmaps, formats, checks, mounts or unlocks."""
    return program in _PROGRAMS or program.startswith(("mkfs", "mke2fs", "fsck"))


def in_flight_of(procfs: Path, scan: ProcessScan) -> tuple[InFlight, ...] | NotObserved:
    """Return the processes that map, unmap, format, check, mount or unlock, in any state."""
    if scan.unknown:
        return NotObserved(reason=scan.unknown[0])
    found = []
    opening = {opener.process.pid for opener in scan.openers}
    for entry in scan.entries:
        # A process that ends has no command line for a moment, and still has its files open:
        # do_exit() calls exit_mm() before exit_files() (kernel/exit.c).
        is_known_by_name = entry.is_cut or entry.process.pid in opening
        name = entry.name if is_known_by_name else ""
        program = os.path.basename(entry.arguments[0]) if entry.arguments else name
        if not _is_worker(program) or is_nbd_server(entry) or _lacks_rights(procfs, entry):
            continue
        if entry.is_cut:
            if entry.is_command_read:
                why = f"its command line is larger than {ARGUMENTS >> 10} KiB"
            else:
                why = entry.no_command or entry.unread or "its command line was not read"
            return NotObserved(reason=f"{named(entry.ref)}: {why}")
        names = (word for word in entry.arguments[1:] if "/" in word or "rbd" in word)
        found.append(
            InFlight(
                process=entry.ref,
                program=program,
                names=tuple(without_secrets(word) for word in names if "key" not in word.lower()),
            )
        )
    return tuple(found)


_PERMITTED: Final = re.compile(rb"^CapPrm:\t([0-9a-f]+)$", re.MULTILINE)
_SYS_ADMIN: Final = 1 << 21
"""CAP_SYS_ADMIN (include/uapi/linux/capability.h)."""


def _lacks_rights(procfs: Path, entry: ProcessEntry) -> bool:
    """Return whether a pod's process has no right to map, mount or unlock, whatever its name.

    These need CAP_SYS_ADMIN in the initial user namespace: rbd_add() since commit f44d04e696fe,
    a mount of a block device's file system (FS_USERNS_MOUNT in fs/super.c), ctl_ioctl() in
    drivers/md/dm-ioctl.c. A process that formats or checks without this capability has the device
    open, and is found as an opener.

    Returns:
        False if the rights cannot be read.
    """
    if entry.process.pod_uid is None:
        return False
    own = procfs / str(entry.process.pid)
    with contextlib.suppress(OSError):
        if os.readlink(own / "ns" / "user") != os.readlink(procfs / "1" / "ns" / "user"):
            return True
    status = read_head(own / "status", SMALL)
    permitted = _PERMITTED.search(status) if isinstance(status, bytes) else None
    return permitted is not None and not int(permitted[1], 16) & _SYS_ADMIN


def named(process: ProcessRef) -> str:
    """Return pid, program and pod of a process; without arguments, which may contain secrets."""
    program = foreign_name(os.path.basename(process.command.partition(" ")[0]))
    pod = f" of pod {process.pod_uid}" if process.pod_uid else ""
    return f"process {process.pid} ({program}){pod}"


NBD_SERVER: Final = "rbd-nbd"


def is_nbd_server(entry: ProcessEntry) -> bool:
    """Return whether a process is rbd-nbd and serves a device: it does not unmap or list."""
    arguments = entry.arguments
    return (
        bool(arguments)
        and os.path.basename(arguments[0]) == NBD_SERVER
        and bool({"map", "attach"} & set(arguments))
    )


def thread_traces(entries: Iterable[ProcessEntry]) -> Iterator[tuple[str, str]]:
    """Yield device and name of the kernel threads of active file systems: ``[jbd2/rbd0-8]``.

    Names are cut to 15 characters, so that those of xfs lack the device's number. sysfs shows the
    file systems of type xfs.
    """
    for entry in entries:
        if entry.is_kernel_thread and "/" in entry.name:
            device = entry.name.partition("/")[2]
            for name in {device, device.rpartition("-")[0]}:
                yield name, f"[{entry.name}]"


def flag_value(arguments: Sequence[str], flag: str) -> str | None:
    """Return the value of ``--flag=VALUE`` or ``--flag VALUE``."""
    for word, following in zip(arguments, (*arguments[1:], ""), strict=True):
        if word == flag:
            return following or None
        if word.startswith(f"{flag}="):
            return word.partition("=")[2] or None
    return None
