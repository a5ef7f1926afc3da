"""Readers of a node's logs: the end of a file, systemd's journal, the kernel's ring buffer."""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import stat
import subprocess
import threading
from collections import deque
from typing import IO, TYPE_CHECKING, Final, NamedTuple, cast

from rbdagent.collect.files import failure, names_in, read_bytes, read_text
from rbdagent.model import NotObserved
from rbdagent.parse.logs import KernelLine, decoded, parse_dmesg, parse_kmsg

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

# --------------------------------------------------------------------------------------------------
# Files
# --------------------------------------------------------------------------------------------------


class Tail(NamedTuple):
    """The end of a file."""

    raw: bytes
    is_all: bool
    """False if earlier lines were not read. The first line is complete in any case."""
    written_at: float
    """The time of the last write to the file."""


def read_tail(path: str | Path, most: int) -> Tail | NotObserved | None:
    """Read the last lines of a regular file; no other file is opened: a pipe could block."""
    try:
        if not stat.S_ISREG(os.lstat(path).st_mode):
            return _irregular(path)
        flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK | os.O_NOFOLLOW
        descriptor = os.open(path, flags)
    except OSError as error:
        return failure(path, error)
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            return _irregular(path)
        begin = max(0, found.st_size - most)
        raw = os.pread(descriptor, most, begin)
    except OSError as error:
        return failure(path, error)
    finally:
        os.close(descriptor)
    whole = raw if not begin else raw[raw.find(b"\n") + 1 :] if b"\n" in raw else b""
    return Tail(whole, not begin, found.st_mtime)


def _irregular(path: str | Path) -> NotObserved:
    return NotObserved(reason=f"{path}: not a regular file")


# --------------------------------------------------------------------------------------------------
# The journal
# --------------------------------------------------------------------------------------------------

PROGRAMS: Final = "/usr/bin:/bin:/usr/sbin:/sbin"
JOURNALS: Final = ("/var/log/journal", "/run/log/journal")
GUESSED_UNITS: Final = (
    "kubelet", "k3s", "k3s-agent", "rke2-server", "rke2-agent", "k0sworker", "k0scontroller",
    "snap.microk8s.daemon-kubelite", "snap.microk8s.daemon-kubelet",
)  # fmt: skip
"""The units of kubelet in the distributions; the cgroup of a running kubelet names its unit."""

MOST_LINES: Final = 4000
_READ: Final = 1 << 16
_HIDDEN: Final = re.compile(rb"not seeing messages from other|insufficient permissions")
_NO_FILES: Final = b"No journal files were found"
_UNIT: Final = re.compile(r"/(?P<unit>[^/]+\.service)$", re.MULTILINE)


def kubelets_unit(procfs: Path, pid: int) -> str | None:
    """Return the systemd unit of a process, from its cgroup."""
    text = read_text(procfs / str(pid) / "cgroup")
    found = _UNIT.search(text) if isinstance(text, str) else None
    return found["unit"] if found else None


def read_journal(
    host_root: Path, units: Iterable[str], *, age_s: float, most: int, within_s: float
) -> bytes | NotObserved:
    """Read the newest lines of units with journalctl, with their times in seconds.

    The journal's files are binary with compressed parts: only journalctl reads them here.

    Args:
        host_root: the path of the host's ``/``.
        units: their names; a unit that does not exist has no lines.
        age_s: older lines are omitted.
        most: the limit in bytes; the last bytes are kept.
        within_s: the time limit, after which journalctl is killed.
    """
    if not any(names_in(f"{host_root}{path}") for path in JOURNALS):
        return NotObserved(reason=f"no journal in {' or '.join(JOURNALS)}")
    program = shutil.which("journalctl", path=PROGRAMS)
    if program is None:
        return NotObserved(
            reason="journalctl is not installed, and only journalctl can read the journal",
            hint="on the node: journalctl --unit kubelet --since=-1h",
        )
    # The journal below another root belongs to another machine with another machine id.
    root = () if str(host_root) == "/" else (f"--root={host_root}",)
    command = (
        program,
        *root,
        *(f"--unit={unit}" for unit in units),
        f"--since=-{age_s:.0f}s",
        f"--lines={MOST_LINES}",
        "--output=short-unix",
        "--no-pager",
    )
    try:
        code, raw = _output(command, most, within_s)
    except OSError as error:
        return NotObserved(reason=f"{program}: {error.strerror or error}")
    if _HIDDEN.search(raw):
        return NotObserved(
            reason="the journal shows this user only the user's own messages",
            hint="run as root, or as a member of the group systemd-journal",
        )
    if code or _NO_FILES in raw:
        last = decoded(raw).strip().rpartition("\n")[2]
        return NotObserved(reason=f"journalctl exited with {code}: {last or 'no output'}")
    return raw


def _output(command: tuple[str, ...], most: int, within_s: float) -> tuple[int, bytes]:
    """Run a program; return its exit code and the end of its output."""
    kept: deque[bytes] = deque(maxlen=-(-most // _READ))
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={"LC_ALL": "C.UTF-8", "PATH": PROGRAMS},
    ) as process:
        ending = threading.Timer(within_s, process.kill)
        ending.daemon = True
        ending.start()
        kept.extend(iter(lambda: cast("IO[bytes]", process.stdout).read(_READ), b""))
        ending.cancel()
    return process.returncode, b"".join(kept)


# --------------------------------------------------------------------------------------------------
# The ring buffer
# --------------------------------------------------------------------------------------------------

_KMSG: Final = os.makedev(1, 11)
_RECORD: Final = 8192
"""Above PRINTK_MESSAGE_MAX: a smaller read fails (Documentation/ABI/testing/dev-kmsg)."""
_MOST_RECORDS: Final = 20_000
_READ_ALL, _SIZE_BUFFER = 3, 10
"""Actions of syslog(2)."""
_MOST_BUFFER: Final = 1 << 22
_NO_ACCESS: Final = "run as root with CAP_SYSLOG (the chart: logs.enabled); on the node: dmesg"


def read_ring(host_root: Path, procfs: Path) -> tuple[KernelLine, ...] | NotObserved:
    """Read the kernel's log, the oldest line first; the read removes nothing from the buffer.

    A container may have CAP_SYSLOG although its device rules forbid the device. Then syslog(2)
    returns the same lines. But syslog(2) always reads this kernel, and the root may belong to
    another host.
    """
    device_lines = _device_lines(f"{host_root}/dev/kmsg")
    if not isinstance(device_lines, NotObserved) or not _is_own_kernel(procfs):
        return device_lines
    lines = _syslog_lines()
    return device_lines if isinstance(lines, NotObserved) else lines


def _device_lines(path: str) -> tuple[KernelLine, ...] | NotObserved:
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK | os.O_NOFOLLOW
    try:
        found = os.lstat(path)
        if not (stat.S_ISREG(found.st_mode) or found.st_rdev == _KMSG):
            return NotObserved(reason=f"{path}: not the kernel's log")
        descriptor = os.open(path, flags)
    except OSError as error:
        return _refused(path, error)
    try:
        records = _records(lambda: os.read(descriptor, _RECORD))
    except OSError as error:
        return _refused(path, error)
    finally:
        os.close(descriptor)
    lines = b"".join(records).split(b"\n")
    return tuple(line for record in lines if (line := parse_kmsg(decoded(record))) is not None)


def _records(read: Callable[[], bytes]) -> deque[bytes]:
    """Read one record per call until there is none; on EPIPE, a record was overwritten."""
    kept: deque[bytes] = deque(maxlen=_MOST_RECORDS)
    for _ in range(4 * _MOST_RECORDS):
        try:
            record = read()
        except BlockingIOError:
            break
        except BrokenPipeError:
            continue
        if not record:
            break
        kept.append(record)
    return kept


def _refused(path: str, error: OSError) -> NotObserved:
    return NotObserved(reason=f"{path}: {error.strerror or error}", hint=_NO_ACCESS)


def _is_own_kernel(procfs: Path) -> bool:
    """Return whether this process runs on the host's kernel; False for a copy of a file tree."""
    boot_id = "sys/kernel/random/boot_id"
    own = read_bytes(f"/proc/{boot_id}")
    return isinstance(own, bytes) and own == read_bytes(procfs / boot_id)


def _syslog_lines() -> tuple[KernelLine, ...] | NotObserved:
    library = ctypes.CDLL(None, use_errno=True)
    size = library.klogctl(_SIZE_BUFFER, None, 0)
    buffer = ctypes.create_string_buffer(max(1, min(size, _MOST_BUFFER)))
    length = library.klogctl(_READ_ALL, buffer, len(buffer))
    if length < 0:
        return _refused("syslog(2)", OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno())))
    lines = buffer.raw[:length].split(b"\n")
    return tuple(line for text in lines if (line := parse_dmesg(decoded(text))) is not None)
