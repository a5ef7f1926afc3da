"""One pass over /proc: who has which device open, in which mount namespace, for which pod.

Nothing here touches a path inside a volume: a stat below a dead device hangs for minutes. Links of
``/proc/PID`` lead to inodes that are in memory already.
"""

from __future__ import annotations

import datetime as dt
import errno
import functools
import os
import re
import stat
from typing import TYPE_CHECKING, Final

from msgspec import Struct, field

from rbdagent.model import (
    DeviceNumber,
    InFlight,
    NotObserved,
    Opener,
    OpenHow,
    ProcessRef,
)
from rbdagent.observe.files import (
    ARGUMENTS,
    COMMAND_LINE,
    LISTS,
    MAPS,
    UnreadError,
    inode_of,
    read_blocks,
    read_bytes,
    read_head,
)
from rbdagent.observe.mounts import Namespace, Wanted, read_mounts
from rbdagent.parse.excerpt import printable, shortened
from rbdagent.parse.secrets import command_without_secrets, without_secrets

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
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


class ProcessEntry(Struct, frozen=True, kw_only=True):
    """What the pass keeps of one process."""

    ref: ProcessRef
    name: str
    """``comm``: cut to 15 letters by the kernel."""
    arguments: tuple[str, ...]
    """Of a program whose arguments matter; of others the first one, the program."""
    is_kernel_thread: bool
    directory: str
    """Where it is looked at below /proc: where its first thread has ended, another one's."""
    threads: int = 1
    is_cut: bool = False
    """Its command line is longer than what was read."""
    is_over: bool = False
    """It has ended and waits for its parent: it keeps nothing busy, and its files are gone."""


class ProcessScan(Struct, kw_only=True):
    """The result of the pass."""

    entries: list[ProcessEntry] = field(default_factory=list)
    namespaces: list[Namespace] = field(default_factory=list)
    openers: list[Opener] = field(default_factory=list)
    unreadable_links: int = 0
    """Processes whose descriptors, cwd, root or mappings this user may not look at."""
    unread_files: list[str] = field(default_factory=list)
    """Processes of which not all was read, and why."""
    unreadable_namespaces: int = 0
    unreadable_mounts: int = 0


def scan_processes(procfs: Path, wanted: Wanted) -> ProcessScan:
    """Look at every process once, for the devices that somebody may have mounted or open."""
    scan = ProcessScan()
    columns = _Columns.of(wanted.numbers)
    boot = _boot_time(procfs)
    root = str(procfs)
    seen: dict[int | bytes, Namespace] = {}
    for pid in _pids(root):
        entry = _entry(root, pid, boot)
        if entry is None:
            continue
        if isinstance(entry, NotObserved):
            scan.unreadable_links += 1
            scan.unreadable_mounts += 1
            continue
        scan.entries.append(entry)
        if entry.is_over:
            continue
        _join_namespace(scan, seen, entry, entry.directory, wanted)
        if wanted.numbers and not entry.is_kernel_thread:
            _join_openers(scan, entry, entry.directory, columns)
    _mark_host(scan, root)
    return scan


def scan_threads(procfs: Path, wanted: Wanted, scan: ProcessScan) -> bool:
    """Look for threads in mount namespaces of their own, and tell whether there were any.

    unshare(2) and setns(2) move one thread: a runtime's thread that stays in a namespace keeps
    what is mounted there, and its process does not show it.
    """
    columns = _Columns.of(wanted.numbers)
    seen: dict[int | bytes, Namespace] = {each.key: each for each in scan.namespaces}
    known = len(scan.namespaces)
    for entry in scan.entries:
        if entry.threads == 1 or entry.is_kernel_thread:
            continue
        for directory in _threads(f"{procfs}/{entry.ref.pid}"):
            if inode_of(f"{directory}/ns/mnt") in {None, *seen}:
                # Where it may not be told, open files may not be either: a gap as it is.
                continue
            _join_namespace(scan, seen, entry, directory, wanted)
            _join_openers(scan, entry, directory, columns)
    _mark_host(scan, str(procfs))
    return len(scan.namespaces) > known


def _threads(directory: str) -> list[str]:
    """Give the threads of a process; none where it is gone, or they are hidden."""
    try:
        return [f"{directory}/task/{each}" for each in sorted(os.listdir(f"{directory}/task"))]
    except OSError:
        return []


class _Columns(Struct, frozen=True, kw_only=True):
    """The devices that are looked for, in the forms in which /proc shows them."""

    by_number: dict[int, DeviceNumber]
    columns: dict[bytes, DeviceNumber]
    """``MAJOR:MINOR`` of maps: in hex, two digits at least (fs/proc/task_mmu.c)."""
    majors: tuple[bytes, ...]
    """The beginnings of these columns: files without any of them have no such line."""

    @classmethod
    def of(cls, numbers: frozenset[DeviceNumber]) -> _Columns:
        return cls(
            by_number={os.makedev(each.major, each.minor): each for each in numbers},
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
    arguments: tuple[str, ...] = ()
    is_cut = False
    pod_uid = container = None
    if not is_thread:
        arguments, is_cut = _command_line(f"{living or directory}/cmdline")
        pod_uid, container = _container_of(read_bytes(f"{root}/{pid}/cgroup"))
    ref = ProcessRef(
        pid=pid,
        command=_shown(arguments, is_cut=is_cut) if arguments else f"[{name}]",
        pod_uid=pod_uid,
        container_id=container,
        started_at=_started_at(boot, int(fields[19])),
        state=fields[0],
    )
    return ProcessEntry(
        ref=ref,
        name=name,
        arguments=arguments if arguments and _matters(arguments[0]) else arguments[:1],
        is_kernel_thread=is_thread,
        directory=living or directory,
        threads=int(fields[17]),
        is_cut=is_cut,
        is_over=living is None,
    )


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
    if not isinstance(line, bytes) or not line:
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


# --------------------------------------------------------------------------------------------------
# Mount namespaces
# --------------------------------------------------------------------------------------------------


def _join_namespace(
    scan: ProcessScan,
    seen: dict[int | bytes, Namespace],
    entry: ProcessEntry,
    directory: str,
    wanted: Wanted,
) -> None:
    """Read each namespace's mountinfo once; where namespaces are hidden, tell them by content."""
    try:
        inode = os.stat(f"{directory}/ns/mnt").st_ino
    except PermissionError:
        inode = 0
        scan.unreadable_namespaces += 1
    except OSError:
        return
    if inode and inode in seen:
        _prefer(seen[inode], entry)
        return
    try:
        shown = read_mounts(f"{directory}/mountinfo", wanted)
    except UnreadError:
        scan.unreadable_mounts += 1
        return
    if shown is None or (entry.is_kernel_thread and not shown.mounts):
        return
    key = inode or shown.digest
    if key in seen:
        _prefer(seen[key], entry)
        return
    seen[key] = Namespace(key=key, process=entry.ref, mounts=shown.mounts)
    scan.namespaces.append(seen[key])


def _prefer(namespace: Namespace, entry: ProcessEntry) -> None:
    """Name a namespace by a container's process rather than by a passer-by without a pod."""
    if namespace.process.pod_uid is None and entry.ref.pod_uid is not None:
        namespace.process = entry.ref


def _mark_host(scan: ProcessScan, root: str) -> None:
    key: int | bytes | None
    try:
        key = os.stat(f"{root}/1/ns/mnt").st_ino
    except OSError:
        key = _digest_of(f"{root}/1/mountinfo")
    for namespace in scan.namespaces:
        namespace.is_host = namespace.key == key


def _digest_of(path: str) -> bytes | None:
    try:
        shown = read_mounts(path, Wanted())
    except UnreadError:
        return None
    return None if shown is None else shown.digest


# --------------------------------------------------------------------------------------------------
# Openers
# --------------------------------------------------------------------------------------------------


def _join_openers(
    scan: ProcessScan, entry: ProcessEntry, directory: str, columns: _Columns
) -> None:
    denied = False
    for name, how in (
        ("cwd", OpenHow.CWD),
        ("root", OpenHow.ROOT),
        ("exe", OpenHow.EXECUTABLE),
    ):
        denied |= _look(scan, entry, f"{directory}/{name}", how, columns)
    try:
        descriptors = os.listdir(f"{directory}/fd")
    except PermissionError:
        descriptors, denied = [], True
    except OSError:
        descriptors = []
    for number in descriptors:
        denied |= _look(scan, entry, f"{directory}/fd/{number}", OpenHow.DESCRIPTOR, columns)
    try:
        for opener in _mappings(entry, f"{directory}/maps", columns):
            scan.openers.append(opener)
    except UnreadError as error:
        if error.what is not None and error.number is None:
            scan.unread_files.append(f"{named(entry.ref)}: {error.what.reason}")
        denied |= error.what is not None and error.number is not None
    scan.unreadable_links += denied


def _look(
    scan: ProcessScan, entry: ProcessEntry, link: str, how: OpenHow, columns: _Columns
) -> bool:
    """Follow one link of a process; tell whether that was denied."""
    try:
        found = os.stat(link)
    except OSError as error:
        return error.errno in {errno.EACCES, errno.EPERM}
    on_device = stat.S_ISBLK(found.st_mode) and found.st_rdev in columns.by_number
    if not on_device and found.st_dev not in columns.by_number:
        return False
    try:
        path = os.readlink(link)
    except OSError:
        path = ""
    scan.openers.append(
        Opener(
            process=entry.ref,
            how=how,
            path=path,
            on_device=on_device,
            device=columns.by_number[found.st_rdev if on_device else found.st_dev],
        )
    )
    return False


def _mappings(entry: ProcessEntry, path: str, columns: _Columns) -> Iterator[Opener]:
    """Yield one opener for each device that some memory mapping's file lies on.

    The device is the fourth field. The path is the rest of the line and may hold anything but a
    newline (show_map_vma() in fs/proc/task_mmu.c), also what reads like a device.

    Raises:
        UnreadError: it was not read to its end.
    """
    left = dict(columns.columns)
    for block in read_blocks(path, MAPS):
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


def in_flight_of(entries: Iterable[ProcessEntry]) -> tuple[InFlight, ...] | NotObserved:
    """Return the processes that map, unmap, format, check, mount or unlock, in any state."""
    found = []
    for entry in entries:
        program = os.path.basename(entry.arguments[0]) if entry.arguments else ""
        if not _is_worker(program) or is_nbd_server(entry):
            continue
        if entry.is_cut:
            return NotObserved(
                reason=f"{named(entry.ref)}: its command line is larger than {ARGUMENTS >> 10} KiB"
            )
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
