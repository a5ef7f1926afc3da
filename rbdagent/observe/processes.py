"""One pass over /proc: who has which device open, in which mount namespace, for which pod.

Nothing here touches a path inside a volume: a stat below a dead device hangs for minutes. Links of
``/proc/PID`` lead to inodes that are in memory already, and no server is asked about them.
"""

from __future__ import annotations

import datetime as dt
import errno
import functools
import math
import os
import re
import stat
from collections import Counter
from typing import TYPE_CHECKING, Final

from msgspec import Struct, field
from msgspec.structs import replace

from rbdagent.model import (
    DeviceNumber,
    InFlight,
    NotObserved,
    Opener,
    OpenHow,
    ProcessRef,
)
from rbdagent.observe.failure import not_observed
from rbdagent.observe.files import (
    ARGUMENTS,
    COMMAND_LINE,
    LISTS,
    MAPS,
    UnreadError,
    identity_of,
    inode_of,
    read_blocks,
    read_bytes,
    read_head,
)
from rbdagent.observe.mounts import Namespace, Shown, Wanted, read_mounts
from rbdagent.observe.places import file_system_of
from rbdagent.observe.shares import PROCESS_S, ROOM, Share, Shares
from rbdagent.observe.together import InTurn
from rbdagent.parse.excerpt import printable, shortened
from rbdagent.parse.secrets import command_without_secrets, without_secrets

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

_COMMAND_CHARACTERS: Final = 200
_KERNEL_THREAD: Final = 0x00200000
"""PF_KTHREAD in the flags of ``/proc/PID/stat`` (include/linux/sched.h)."""

_ENDED: Final = frozenset("ZX")
"""States of ``/proc/PID/stat``: ended, and nobody has asked how yet (proc(5))."""

# kubepods-besteffort-pod<uid with _>.slice (systemd) or kubepods/besteffort/pod<uid> (cgroupfs).
_POD: Final = re.compile(
    r"pod(?P<uid>[0-9a-f]{8}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{12}|[0-9a-f]{32})"
)
_CONTAINER: Final = re.compile(r"(?<![0-9a-f])(?P<id>[0-9a-f]{64})(?![0-9a-f])")
_PROGRAMS: Final = frozenset(
    {"rbd", "rbd-nbd", "mount", "umount", "blkid", "cryptsetup", "fsck", "e2fsck", "xfs_repair",
     "resize2fs", "xfs_growfs", "tune2fs", "dumpe2fs", "wipefs"}
)  # fmt: skip


_KUBELETS: Final = frozenset({"kubelet", "k3s", "k0s"})


class ProcessEntry(Struct, kw_only=True):
    """What was observed of one process: as far as that has come."""

    ref: ProcessRef
    """Its command is the program's name until the command line was read."""
    name: str
    """``comm``: cut to 15 letters by the kernel."""
    is_kernel_thread: bool
    directory: str
    """Where it is looked at below /proc: where its first thread has ended, another one's."""
    threads: int = 1
    is_over: bool = False
    """It has ended and waits for its parent: it keeps nothing busy, and its files are gone."""
    arguments: tuple[str, ...] = ()
    """Of a program whose arguments matter; of others the first one, the program."""
    is_cut: bool = False
    """Its command line was not read, or not to its end."""
    namespaces: list[int | bytes] = field(default_factory=list)
    """Its mount namespace, and those that only threads of it live in."""
    openers: list[Opener] = field(default_factory=list)
    found: Counter[DeviceNumber] = field(default_factory=Counter)
    """How many openers of each device."""
    has_denied_mounts: bool = False
    has_denied_files: bool = False
    """Descriptors, cwd, root or mappings may not be looked at."""
    at: str = ""
    """The file that was looked at last."""
    unread: str = ""
    """Why not all of it was observed."""


class ProcessScan(Struct, kw_only=True):
    """The result of the pass."""

    entries: list[ProcessEntry]
    namespaces: list[Namespace]
    openers: list[Opener]
    unknown: list[str]
    """The processes of which nothing was observed, and why."""
    denied_mounts: int
    """How many processes' mounts may not be looked at."""
    denied_files: int
    """How many processes' descriptors, cwd, root or mappings may not be looked at."""
    unread_mounts: list[str]
    """The processes of which the mount namespace was not observed, and why."""
    unread_files: list[str]
    """The processes of which not all files were observed, and why."""


Turns = InTurn[tuple[str, int]]
"""A part of the observation of a process, and its pid."""


class ProcessPass:
    """One pass over the processes of a node, for the devices that they may have mounted or open."""

    def __init__(
        self,
        procfs: Path,
        wanted: Wanted,
        *,
        turns: Turns | None = None,
        deadline: float = math.inf,
    ) -> None:
        """Prepare it.

        Args:
            procfs: the host's /proc.
            wanted: what is looked for.
            turns: remembers the processes that still hang since an earlier pass.
            deadline: of the monotonic clock; a process that was not observed by then is left out.
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
        self._shown: dict[int | bytes, Shown] = {}
        self._shares = Shares()

    def scan(self) -> ProcessScan:
        """Observe every process."""
        self._run("process", _pids(self._root), self._observe)
        living = [
            pid
            for pid, entry in self._entries.items()
            if not (entry.is_over or entry.is_kernel_thread)
        ]
        self._run("files", living, self._observe_files)
        return self._scan()

    def scan_threads(self) -> ProcessScan | None:
        """Observe the threads in mount namespaces of their own; None: there are none.

        unshare(2) and setns(2) move one thread: a runtime's thread that stays in a namespace keeps
        what is mounted there, and its process does not show it.
        """
        known = len(self._shown)
        many = [
            pid
            for pid, entry in self._entries.items()
            if entry.threads > 1 and not entry.is_kernel_thread
        ]
        self._run("threads", many, self._observe_threads)
        return self._scan() if len(self._shown) > known else None

    # In turn --------------------------------------------------------------------------------------

    def _run(self, what: str, pids: Sequence[int], observe: Callable[[int], None]) -> None:
        """Observe a part of processes, of each in turn, and note which of them hang."""
        left = self._turns.run(
            [(what, pid) for pid in pids],
            lambda item: self._contained(item[1], observe),
            patience_s=_PATIENCE_S,
            deadline=self._deadline,
        )
        if left.waiting and what != "place":
            self._unread.append(f"{len(left.waiting)} processes were not observed in time")
        new = [item for item in left.hung if item not in self._turns.notes]
        for item in new:
            entry = self._entries.get(item[1])
            at = entry.at if entry else f"{self._root}/{item[1]}"
            self._turns.notes[item] = f"{at} does not answer"
        if what == "files" and new:
            self._run("place", [pid for _, pid in new[:_MOST_PLACES]], self._describe)
        for item in left.hung:
            self._leave(item[1], self._turns.notes[item])

    def _contained(self, pid: int, observe: Callable[[int], None]) -> None:
        try:
            observe(pid)
        except Exception as error:  # noqa: BLE001 - one process never hides the others
            self._leave(pid, not_observed(error, f"process {pid}").reason)

    def _leave(self, pid: int, why: str) -> None:
        """Note why a process was not observed."""
        entry = self._entries.get(pid)
        if entry is None:
            self._unread.append(f"process {pid}: {why}")
        else:
            entry.unread = why

    def _describe(self, pid: int) -> None:
        """Add to what is noted of a process the file system that does not answer."""
        entry = self._entries[pid]
        found = file_system_of(entry.directory, entry.at, Shares().of(None))
        if found:
            self._turns.notes["files", pid] += f", on {found}"

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
            share = self._shares.of(entry.ref.pod_uid)
            self._join_namespace(entry, entry.directory, share)
            share.end()

    def _observe_files(self, pid: int) -> None:
        entry = self._entries[pid]
        share = self._shares.of(entry.ref.pod_uid)
        _read_command(entry)
        if self._wanted.numbers:
            self._join_openers(entry, entry.directory, share)
        share.end()

    def _observe_threads(self, pid: int) -> None:
        entry = self._entries[pid]
        share = self._shares.of(entry.ref.pod_uid)
        for directory in _threads(f"{self._root}/{pid}"):
            if share.is_over:
                entry.unread = share.reason(f"{self._root}/{pid}/task")
                break
            inode = inode_of(f"{directory}/ns/mnt")
            if inode is None or inode in self._shown:
                # Where it may not be told, open files may not be either: a gap as it is.
                continue
            self._join_namespace(entry, directory, share)
            self._join_openers(entry, directory, share)
        share.end()

    def _scan(self) -> ProcessScan:
        """Join what was observed, in the order of the pids."""
        entries = [self._entries[pid] for pid in sorted(self._entries)]
        namespaces: dict[int | bytes, Namespace] = {}
        for entry in entries:
            for key in entry.namespaces:
                if key not in namespaces:
                    shown = self._shown.get(key, _NOT_SHOWN)
                    namespaces[key] = Namespace(key=key, process=entry.ref, mounts=shown.mounts)
                found = namespaces[key]
                if found.process.pod_uid is None and entry.ref.pod_uid is not None:
                    # A container's process names it better than a passer-by without a pod.
                    found.process = entry.ref
        self._mark_host(namespaces)
        return ProcessScan(
            entries=entries,
            namespaces=list(namespaces.values()),
            openers=[opener for entry in entries for opener in entry.openers],
            unknown=[f"the state of process {pid} may not be read" for pid in sorted(self._hidden)]
            + self._unread,
            denied_mounts=len(self._hidden) + sum(entry.has_denied_mounts for entry in entries),
            denied_files=len(self._hidden) + sum(entry.has_denied_files for entry in entries),
            unread_mounts=self._unread
            + [_said(entry) for entry in entries if entry.unread and not entry.namespaces],
            unread_files=self._unread + [_said(entry) for entry in entries if entry.unread],
        )

    # Mount namespaces -----------------------------------------------------------------------------

    def _mark_host(self, namespaces: dict[int | bytes, Namespace]) -> None:
        """Mark the namespace of pid 1: by its inode, or where that is hidden by what it shows."""
        init = self._entries.get(1)
        for own in init.namespaces[:1] if init else ():
            for key, namespace in namespaces.items():
                shown = self._shown.get(key, _NOT_SHOWN)
                namespace.is_host = own in (key, shown.digest)

    def _join_namespace(self, entry: ProcessEntry, directory: str, share: Share) -> None:
        """Read each namespace's mountinfo once; hidden namespaces are told apart by content."""
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
        if inode:
            # A process that is observed meanwhile does not read it again.
            unread = NotObserved(reason=f"{entry.at} does not answer")
            self._shown[inode] = Shown(unread, b"")
            entry.namespaces.append(inode)
        try:
            shown = read_mounts(entry.at, self._wanted, share)
        except UnreadError:
            shown = None
            entry.has_denied_mounts = True
        if shown is not None and (shown.digest or not entry.is_kernel_thread):
            self._shown[inode or shown.digest] = shown
            if not inode:
                entry.namespaces.append(shown.digest)
        elif inode:
            del self._shown[inode]
            entry.namespaces.remove(inode)

    # Openers --------------------------------------------------------------------------------------

    def _join_openers(self, entry: ProcessEntry, directory: str, share: Share) -> None:
        for name, how in _LINKS:
            self._join_link(entry, f"{directory}/{name}", how, share)
        try:
            entry.at = f"{directory}/fd"
            with os.scandir(entry.at) as descriptors:
                for number, descriptor in enumerate(descriptors):
                    if number % _OFTEN == 0 and share.is_over:
                        entry.unread = share.reason(f"{directory}/fd")
                        return
                    self._join_link(entry, descriptor.path, OpenHow.DESCRIPTOR, share)
        except PermissionError:
            entry.has_denied_files = True
        except OSError:
            pass
        entry.at = f"{directory}/maps"
        try:
            for opener in _mappings(entry, entry.at, self._columns, share):
                _add(entry, opener, share)
        except UnreadError as error:
            if error.number is not None:
                entry.has_denied_files |= error.what is not None
            elif error.what is not None:
                entry.unread = error.what.reason

    def _join_link(self, entry: ProcessEntry, link: str, how: OpenHow, share: Share) -> None:
        """Follow one link of a process."""
        entry.at = link
        try:
            found = identity_of(link)
        except OSError as error:
            entry.has_denied_files |= error.errno in {errno.EACCES, errno.EPERM}
            return
        by_number = self._columns.by_number
        on_device = found.special in by_number and stat.S_ISBLK(found.mode)
        if not on_device and found.device not in by_number:
            return
        device = by_number[found.special if on_device else found.device]
        if entry.found[device] >= _MOST_ALIKE:
            return
        try:
            path = os.readlink(link)
        except OSError:
            path = ""
        _add(
            entry,
            Opener(process=entry.ref, how=how, path=path, on_device=on_device, device=device),
            share,
        )


def _add(entry: ProcessEntry, opener: Opener, share: Share) -> None:
    if share.has_room(1):
        entry.found[opener.device] += 1
        entry.openers.append(opener)
    else:
        entry.unread = f"more open files and mounts of volumes than {ROOM}"


def _said(entry: ProcessEntry) -> str:
    return f"{named(entry.ref)}: {entry.unread}"


_NOT_SHOWN: Final = Shown(NotObserved(reason="the process that showed it has ended"), b"")
_PATIENCE_S: Final = PROCESS_S + 0.5
"""Of a process that reads on, its share is over before."""
_MOST_PLACES: Final = 3
_OFTEN: Final = 256
_MOST_ALIKE: Final = 100
"""Open files of one process on one device: more of them prove nothing more."""
_LINKS: Final = (
    ("cwd", OpenHow.CWD),
    ("root", OpenHow.ROOT),
    ("exe", OpenHow.EXECUTABLE),
)


def _threads(directory: str) -> list[str]:
    """Give the threads of a process; none where it is gone, or they are hidden."""
    try:
        return [f"{directory}/task/{each}" for each in sorted(os.listdir(f"{directory}/task"))]
    except OSError:
        return []


class _Columns(Struct, frozen=True, kw_only=True):
    """The devices that are looked for, in the forms in which /proc shows them."""

    by_number: dict[tuple[int, int], DeviceNumber]
    columns: dict[bytes, DeviceNumber]
    """``MAJOR:MINOR`` of maps: in hex, two digits at least (fs/proc/task_mmu.c)."""
    majors: tuple[bytes, ...]
    """The beginnings of these columns: files without any of them have no such line."""

    @classmethod
    def of(cls, numbers: frozenset[DeviceNumber]) -> _Columns:
        return cls(
            by_number={(each.major, each.minor): each for each in numbers},
            columns={f"{each.major:02x}:{each.minor:02x}".encode(): each for each in numbers},
            majors=tuple({f" {each.major:02x}:".encode() for each in numbers}),
        )


def _pids(root: str) -> list[int]:
    return sorted(int(name) for name in os.listdir(root) if name.isdigit())


def _boot_time(procfs: Path) -> int | None:
    # One number for each interrupt line of the machine: more than a small file.
    raw = read_bytes(procfs / "stat", LISTS)
    for line in raw.splitlines() if isinstance(raw, bytes) else ():
        if line.startswith(b"btime "):
            return int(line.split()[1])
    return None


def _entry(root: str, pid: int, boot: int | None) -> ProcessEntry | NotObserved | None:
    """Read a process: None where it is gone, NotObserved where it is hidden (hidepid, proc(5))."""
    directory = f"{root}/{pid}"
    raw = read_bytes(f"{directory}/stat")
    if not isinstance(raw, bytes):
        return raw
    # The name stands in parentheses and may itself hold spaces and parentheses.
    head, _, tail = raw.decode(errors="replace").rpartition(")")
    name, fields = head.partition("(")[2], tail.split()
    is_thread = bool(int(fields[6]) & _KERNEL_THREAD)
    living = _living_thread(directory) if fields[0] in _ENDED else directory
    pod_uid, container = (
        (None, None) if is_thread else _container_of(read_bytes(f"{root}/{pid}/cgroup"))
    )
    return ProcessEntry(
        ref=ProcessRef(
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
        is_over=living is None,
        is_cut=not is_thread and living is not None,
    )


def _read_command(entry: ProcessEntry) -> None:
    """Read a process's command line; of a process without one its name is shown."""
    entry.at = f"{entry.directory}/cmdline"
    arguments, entry.is_cut = _command_line(entry.at)
    if not arguments:
        entry.ref = replace(entry.ref, command=f"[{entry.name}]")
        return
    entry.ref = replace(entry.ref, command=_shown(arguments, is_cut=entry.is_cut))
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
    # Half a secret does not look like one: a word that was cut off is left out.
    whole = line.rpartition(b"\0")[0] or line if is_cut else line.rstrip(b"\0")
    return tuple(word.decode(errors="replace") for word in whole.split(b"\0")), is_cut


def _matters(argument: str) -> bool:
    """Return whether the arguments of a program count, by the first one."""
    program = os.path.basename(argument)
    return program in _KUBELETS or _is_worker(program)


def _shown(arguments: tuple[str, ...], *, is_cut: bool) -> str:
    text = command_without_secrets(arguments)
    if len(text) <= _COMMAND_CHARACTERS and not is_cut:
        return text
    return f"{text[: _COMMAND_CHARACTERS - 2]} …"


def _living_thread(directory: str) -> str | None:
    """Give a thread that lives on where the first one has ended: only there are its files.

    The process itself then shows none (fs/proc/fd.c, fs/proc_namespace.c: the leader has let go).
    """
    for each in _threads(directory):
        raw = read_bytes(f"{each}/stat")
        if isinstance(raw, bytes) and raw.rpartition(b")")[2].split()[0].decode() not in _ENDED:
            return each
    return None


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
    moment = boot + ticks / os.sysconf("SC_CLK_TCK")
    return dt.datetime.fromtimestamp(moment, tz=dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _mappings(entry: ProcessEntry, path: str, columns: _Columns, share: Share) -> Iterator[Opener]:
    """Yield one opener for each device that some memory mapping's file lies on.

    The device is the fourth field. The path is the rest of the line and may hold anything but a
    newline (show_map_vma() in fs/proc/task_mmu.c), also what reads like a device.

    Raises:
        UnreadError: it was not read to its end.
    """
    left = dict(columns.columns)
    for block in read_blocks(path, MAPS, share):
        if not any(major in block for major in columns.majors):
            continue
        for line in block.split(b"\n"):
            fields = line.split(None, 5)
            number = left.pop(fields[3], None) if len(fields) > 3 else None
            if number is not None:
                name = fields[5].decode(errors="replace") if len(fields) > 5 else ""
                yield Opener(
                    process=entry.ref,
                    how=OpenHow.MAPPING,
                    path=name,
                    on_device=False,
                    device=number,
                )


# --------------------------------------------------------------------------------------------------
# What the entries tell
# --------------------------------------------------------------------------------------------------


def _is_worker(program: str) -> bool:
    """Return whether a program maps, unmaps, formats, checks, mounts or unlocks."""
    return program in _PROGRAMS or program.startswith(("mkfs", "mke2fs", "fsck"))


def in_flight_of(scan: ProcessScan) -> tuple[InFlight, ...] | NotObserved:
    """Return the processes that map, unmap, format, check, mount or unlock, in any state."""
    if scan.unknown:
        return NotObserved(reason=scan.unknown[0])
    found = []
    for entry in scan.entries:
        unread = entry.name if entry.is_cut else ""
        program = os.path.basename(entry.arguments[0]) if entry.arguments else unread
        if not _is_worker(program) or is_nbd_server(entry):
            continue
        if entry.is_cut:
            why = f"its command line is larger than {ARGUMENTS >> 10} KiB"
            return NotObserved(reason=f"{named(entry.ref)}: {entry.unread or why}")
        names = (word for word in entry.arguments[1:] if "/" in word or "rbd" in word)
        found.append(
            InFlight(
                process=entry.ref,
                program=program,
                names=tuple(without_secrets(word) for word in names if "key" not in word.lower()),
            )
        )
    return tuple(found)


def named(process: ProcessRef) -> str:
    """Name a process by its pid, program and pod; arguments may hold what no report should."""
    program = shortened(printable(os.path.basename(process.command.partition(" ")[0])))
    pod = f" of pod {process.pod_uid}" if process.pod_uid else ""
    return f"process {process.pid} ({program}){pod}"


def is_nbd_server(entry: ProcessEntry) -> bool:
    """Tell the rbd-nbd process that serves a device from one that unmaps or lists."""
    arguments = entry.arguments
    return (
        bool(arguments)
        and os.path.basename(arguments[0]) == "rbd-nbd"
        and bool({"map", "attach"} & set(arguments))
    )


def thread_traces(entries: Iterable[ProcessEntry]) -> Iterator[tuple[str, str]]:
    """Give the device and the name of kernel threads of a live file system: ``[jbd2/rbd0-8]``.

    Names are cut to 15 letters, so that xfs's lose the device's number: sysfs tells there.
    """
    for entry in entries:
        if entry.is_kernel_thread and "/" in entry.name:
            device = entry.name.partition("/")[2]
            for name in {device, device.rpartition("-")[0]}:
                yield name, f"[{entry.name}]"


def find_kubelet(entries: Sequence[ProcessEntry]) -> ProcessEntry | None:
    """Find kubelet by its program's name; the oldest where a wrapper has the same."""
    for entry in entries:
        if entry.arguments and os.path.basename(entry.arguments[0]) in _KUBELETS:
            return entry
    return None


def flag_value(arguments: Sequence[str], flag: str) -> str | None:
    """Give the value of ``--flag=VALUE`` or ``--flag VALUE``."""
    for word, following in zip(arguments, (*arguments[1:], ""), strict=True):
        if word == flag:
            return following or None
        if word.startswith(f"{flag}="):
            return word.partition("=")[2] or None
    return None
