"""How a node's logs are read: the end of a file, systemd's journal, the kernel's ring buffer."""

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

from rbdagent.model import NotObserved
from rbdagent.observe.files import failure, names_in, read_bytes, read_text
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
    """False: what stands before it was not read, and the first line is a whole one all the same."""
    written_at: float
    """When the file was last written to."""


def read_tail(path: str | Path, most: int) -> Tail | NotObserved | None:
    """Read the last lines of a regular file; nothing else is opened: a pipe would wait for ever."""
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
    return NotObserved(reason=f"{path}: no regular file")


# --------------------------------------------------------------------------------------------------
# The journal
# --------------------------------------------------------------------------------------------------

PROGRAMS: Final = "/usr/bin:/bin:/usr/sbin:/sbin"
JOURNALS: Final = ("/var/log/journal", "/run/log/journal")
GUESSED_UNITS: Final = (
    "kubelet", "k3s", "k3s-agent", "rke2-server", "rke2-agent", "k0sworker", "k0scontroller",
    "snap.microk8s.daemon-kubelite", "snap.microk8s.daemon-kubelet",
)  # fmt: skip
"""The units in which distributions run kubelet; a running one tells its own."""

MOST_LINES: Final = 4000
_READ: Final = 1 << 16
_HIDDEN: Final = re.compile(rb"not seeing messages from other|insufficient permissions")
_NO_FILES: Final = b"No journal files were found"
_UNIT: Final = re.compile(r"/(?P<unit>[^/]+\.service)$", re.MULTILINE)


def kubelets_unit(procfs: Path, pid: int) -> str | None:
    """Give the unit in which a process runs, by its cgroup."""
    text = read_text(procfs / str(pid) / "cgroup")
    found = _UNIT.search(text) if isinstance(text, str) else None
    return found["unit"] if found else None


def read_journal(
    host_root: Path, units: Iterable[str], *, age_s: float, most: int, within_s: float
) -> bytes | NotObserved:
    """Have journalctl tell the newest lines of units, each with its time in seconds.

    The journal's files are a binary form with compressed parts: nobody else reads them here.

    Args:
        host_root: where the host's ``/`` is.
        units: their names; a unit that is not there says nothing.
        age_s: older lines are left out.
        most: bytes that are kept, the last ones.
        within_s: journalctl is ended after that.
    """
    if not any(names_in(f"{host_root}{each}") for each in JOURNALS):
        return NotObserved(reason=f"no journal in {' or '.join(JOURNALS)}")
    program = shutil.which("journalctl", path=PROGRAMS)
    if program is None:
        return NotObserved(
            reason="journalctl is not there, and the journal is read by nothing else",
            cure="on the node: journalctl --unit kubelet --since=-1h",
        )
    # Another root's journal is another machine's: its id is not this one's.
    root = () if str(host_root) == "/" else (f"--root={host_root}",)
    command = (
        program,
        *root,
        *(f"--unit={each}" for each in units),
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
            reason="the journal shows this user his own messages alone",
            cure="run as root, or as one of the group systemd-journal",
        )
    if code or _NO_FILES in raw:
        last = decoded(raw).strip().rpartition("\n")[2]
        return NotObserved(reason=f"journalctl ended with {code}: {last or 'it says nothing'}")
    return raw


def _output(command: tuple[str, ...], most: int, within_s: float) -> tuple[int, bytes]:
    """Run a program; give its exit code and the end of what it says."""
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
"""Above PRINTK_MESSAGE_MAX: a read into less fails (Documentation/ABI/testing/dev-kmsg)."""
_MOST_RECORDS: Final = 20_000
_READ_ALL, _SIZE_BUFFER = 3, 10
"""Of syslog(2)."""
_MOST_BUFFER: Final = 1 << 22
_MAY_NOT: Final = "run as root with CAP_SYSLOG (the chart: logs.enabled); on the node: dmesg"


def read_ring(host_root: Path, procfs: Path) -> tuple[KernelLine, ...] | NotObserved:
    """Read what the kernel said, the oldest line first; nothing is taken out of the buffer.

    A container may hold CAP_SYSLOG and still be kept from the device by its device rules: there
    syslog(2) tells the same. But it tells of this kernel alone, and the host may be another.
    """
    told = _device_lines(f"{host_root}/dev/kmsg")
    if not isinstance(told, NotObserved) or not _is_own_kernel(procfs):
        return told
    called = _called_lines()
    return told if isinstance(called, NotObserved) else called


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
    return tuple(line for each in lines if (line := parse_kmsg(decoded(each))) is not None)


def _records(read: Callable[[], bytes]) -> deque[bytes]:
    """Read a record a call, until there is none; EPIPE: the next one was overwritten meanwhile."""
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
    return NotObserved(reason=f"{path}: {error.strerror or error}", cure=_MAY_NOT)


def _is_own_kernel(procfs: Path) -> bool:
    """Tell whether the host's kernel is the one that runs this process: not so for a file tree."""
    boot_id = "sys/kernel/random/boot_id"
    own = read_bytes(f"/proc/{boot_id}")
    return isinstance(own, bytes) and own == read_bytes(procfs / boot_id)


def _called_lines() -> tuple[KernelLine, ...] | NotObserved:
    library = ctypes.CDLL(None, use_errno=True)
    size = library.klogctl(_SIZE_BUFFER, None, 0)
    buffer = ctypes.create_string_buffer(max(1, min(size, _MOST_BUFFER)))
    length = library.klogctl(_READ_ALL, buffer, len(buffer))
    if length < 0:
        return _refused("syslog(2)", OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno())))
    lines = buffer.raw[:length].split(b"\n")
    return tuple(line for each in lines if (line := parse_dmesg(decoded(each))) is not None)
