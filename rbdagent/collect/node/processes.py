"""Processes: name, pod, start, user, rights and command line, by plain reads of ``/proc/PID``."""

from __future__ import annotations

import contextlib
import functools
import os
from typing import TYPE_CHECKING

from msgspec import Struct, field
from msgspec.structs import replace

from rbdagent.collect.files import ARGUMENTS, COMMAND_LINE, LISTS, SMALL, read_bytes, read_head
from rbdagent.model import DeviceNumber, NotObserved, OpenFile, ProcessRef
from rbdagent.parse.command_line import (
    first_argument,
    has_parsed_arguments,
    parse_command_line,
    program_of,
    shown_command,
)
from rbdagent.parse.foreign import foreign_name
from rbdagent.parse.proc import (
    Container,
    lacks_sys_admin,
    parse_boot_time,
    parse_cgroup,
    parse_stat,
    parse_uids,
)
from rbdagent.parse.times import iso_time

if TYPE_CHECKING:
    from pathlib import Path


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
                command = shown_command(command_line, is_cut=self.is_cut)
                self.process = replace(self.process, command=command)
            except Exception as error:  # noqa: BLE001 - a failed process must not hide the others
                # Its message may quote a secret.
                self.unread = f"secrets could not be masked: {type(error).__name__}"
        return self.process


def named(process: ProcessRef) -> str:
    """Return pid, program and pod of a process; without arguments, which may contain secrets."""
    program = foreign_name(program_of(process.command))
    pod = f" of pod {process.pod_uid}" if process.pod_uid else ""
    return f"process {process.pid} ({program}){pod}"


def pids_in(root: str) -> list[int]:
    """Return the processes that a /proc shows."""
    return sorted(int(name) for name in os.listdir(root) if name.isdigit())


def boot_time(procfs: Path) -> int | None:
    """Return the Unix time of the boot; None if it cannot be read."""
    # The file has a number for every interrupt of the machine, and may exceed the small limit.
    raw = read_bytes(procfs / "stat", LISTS)
    return parse_boot_time(raw) if isinstance(raw, bytes) else None


def read_entry(
    root: str, pid: int, boot: int | None, *, is_public: bool
) -> ProcessEntry | NotObserved | None:
    """Read a process; None if it has ended, NotObserved if hidepid hides it (proc(5))."""
    directory = f"{root}/{pid}"
    raw = read_bytes(f"{directory}/stat")
    if not isinstance(raw, bytes):
        return raw
    stat = parse_stat(raw)
    living = _running_thread(directory) if stat.is_ended else directory
    cgroup = b"" if stat.is_kernel_thread else read_bytes(f"{directory}/cgroup")
    container = parse_cgroup(cgroup) if isinstance(cgroup, bytes) else Container()
    return ProcessEntry(
        process=ProcessRef(
            pid=pid,
            command=f"[{stat.name}]" if stat.is_kernel_thread else stat.name,
            pod_uid=container.pod_uid,
            container_id=container.container_id,
            started_at=_started_at(boot, stat.ticks),
            is_public=is_public,
            state=stat.state,
        ),
        name=stat.name,
        is_kernel_thread=stat.is_kernel_thread,
        directory=living or directory,
        threads=stat.threads,
        ticks=stat.ticks,
        parent_pid=stat.parent_pid,
        has_cgroup=isinstance(cgroup, bytes),
        is_over=living is None,
        is_cut=not stat.is_kernel_thread and living is not None,
        layout=stat.layout,
    )


def _running_thread(directory: str) -> str | None:
    """Return a running thread of a process whose first thread has ended.

    Only the directory of such a thread shows the files. The directory of the process shows none,
    because the leader has released them (fs/proc/fd.c, fs/proc_namespace.c).
    """
    for thread in threads_in(directory):
        raw = read_bytes(f"{thread}/stat")
        if isinstance(raw, bytes) and not parse_stat(raw).is_ended:
            return thread
    return None


def threads_in(directory: str) -> list[str]:
    """Return the threads of a process; empty if it has ended, or access is denied."""
    try:
        return [f"{directory}/task/{thread}" for thread in sorted(os.listdir(f"{directory}/task"))]
    except OSError:
        return []


@functools.lru_cache(maxsize=4096)
def _started_at(boot: int | None, ticks: int) -> str | None:
    if boot is None:
        return None
    return iso_time(boot + ticks / os.sysconf("SC_CLK_TCK"))


def start_ticks(procfs: Path, pid: int) -> int | None:
    """Return the start time of the process that has a pid now; None if it cannot be read."""
    raw = read_bytes(procfs / str(pid) / "stat")
    return parse_stat(raw).ticks if isinstance(raw, bytes) and raw else None


def uids_of(procfs: Path, entry: ProcessEntry) -> tuple[bytes, ...] | None:
    """Return the real, effective, saved and file system uid of a process.

    Returns:
        Empty if access is denied, None if the process has ended.
    """
    status = read_head(procfs / str(entry.process.pid) / "status", SMALL)
    found = parse_uids(status) if isinstance(status, bytes) else None
    if found is None:
        return None if status is None else ()
    return found


def lacks_rights(procfs: Path, entry: ProcessEntry) -> bool:
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
    return isinstance(status, bytes) and lacks_sys_admin(status)


def read_command(entry: ProcessEntry) -> None:
    """Read a process's command line; without one, show the process's name."""
    entry.at = f"{entry.directory}/cmdline"
    arguments, entry.is_cut = _command_line(entry.at)
    entry.is_command_read = True
    if not arguments:
        name = entry.name if entry.is_cut else f"[{entry.name}]"
        entry.process = replace(entry.process, command=name)
        return
    entry.command_line = arguments
    entry.arguments = arguments if has_parsed_arguments(arguments[0]) else arguments[:1]


def _command_line(path: str) -> tuple[tuple[str, ...], bool]:
    """Return a process's arguments, and whether there are more."""
    most = COMMAND_LINE
    line = read_head(path, most)
    if isinstance(line, bytes) and len(line) == most and has_parsed_arguments(first_argument(line)):
        most = ARGUMENTS
        line = read_head(path, most)
    if not isinstance(line, bytes):
        return (), line is not None
    if not line:
        return (), False
    is_cut = len(line) == most
    return parse_command_line(line, is_cut=is_cut), is_cut
