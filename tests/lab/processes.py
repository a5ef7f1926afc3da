"""Start the lab's programs, record them by pid and start time, stop exactly those again.

A pid alone is no identity: the kernel reuses it. Pid and start time (field 22 of
``/proc/PID/stat``) together are unique until the machine boots. They are in a file, so that another
invocation (``./dev lab down``), or the next one after a crash, can stop what is left.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import select
import signal
import subprocess
import threading
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from tests.lab.errors import LabError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

T = TypeVar("T")

_GRACE_S = 8.0
_KILL_WAIT_S = 10.0
_POLL_S = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """A program of the lab that was started; it may have ended since."""

    name: str
    pid: int
    start_time: int
    """Clock ticks between the machine's boot and the process's start."""
    boot_id: str
    log: str | None
    """Path of the file that has its stdout and stderr; None: they went to /dev/null."""

    def alive(self) -> bool:
        """Return whether this very process still runs (a zombie does not)."""
        if self.boot_id != _boot_id():
            return False
        stat = _stat(self.pid)
        return stat is not None and stat.start_time == self.start_time and stat.state not in "ZX"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stat:
    state: str
    start_time: int


class Processes:
    """Every process of one lab, recorded in ``state_dir/processes.json``.

    Safe to use from several threads and from several invocations at once.
    """

    def __init__(self, state_dir: Path) -> None:
        self._file = state_dir / "processes.json"
        self._lock_file = state_dir / "processes.lock"
        self._log_dir = state_dir / "log"
        self._children: dict[int, subprocess.Popen[bytes]] = {}
        self._lock = threading.Lock()

    def start(
        self,
        name: str,
        argv: Sequence[str | Path],
        *,
        netns: str | None = None,
        env: Mapping[str, str] | None = None,
        log: Path | None = None,
        cwd: Path | None = None,
    ) -> Process:
        """Start ``argv`` in a new session and record it under ``name``.

        Args:
            name: unique among the lab's running processes.
            argv: program and arguments.
            netns: name of a network namespace (``ip netns``) to run in; nsenter replaces itself by
                the program, so the pid is the program's.
            env: added to this process's environment.
            log: takes stdout and stderr, appended; by default ``state_dir/log/NAME.log``.
            cwd: working directory; by default ``/``, so that no directory is pinned.

        Raises:
            LabError: a process of that name runs already, or the program cannot be started.
        """
        log = log or self._log_dir / f"{name}.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        command = [str(word) for word in argv]
        if netns is not None:
            command = ["nsenter", f"--net=/run/netns/{netns}", "--", *command]
        with self._records() as records:
            if (known := records.get(name)) is not None and known.alive():
                raise LabError(f"{name} runs already (pid {known.pid})")
            with log.open("ab") as stream:
                try:
                    child = subprocess.Popen(
                        command,
                        stdin=subprocess.DEVNULL,
                        stdout=stream,
                        stderr=stream,
                        cwd=cwd or Path("/"),
                        env={**os.environ, **(env or {})},
                        start_new_session=True,
                    )
                except OSError as error:
                    raise LabError(f"{name}: cannot start {command[0]}: {error}") from error
            self._children[child.pid] = child
            stat = _stat(child.pid)
            # A child that already ended is a zombie until it is reaped: its stat is still there.
            start_time = stat.start_time if stat is not None else 0
            process = Process(
                name=name,
                pid=child.pid,
                start_time=start_time,
                boot_id=_boot_id(),
                log=str(log),
            )
            records[name] = process
        return process

    def get(self, name: str) -> Process | None:
        """Return the process recorded under ``name``, running or not."""
        with self._records() as records:
            return records.get(name)

    def running(self) -> tuple[Process, ...]:
        """Return every recorded process that still runs, in the order of their start."""
        with self._records() as records:
            return tuple(process for process in records.values() if process.alive())

    def stop(self, name: str, *, grace_s: float = _GRACE_S) -> None:
        """End the process recorded under ``name``: TERM, then KILL after ``grace_s`` seconds.

        A name that is not recorded, or whose process has ended, is no error.
        """
        with self._records() as records:
            process = records.get(name)
        if process is None:
            return
        self._end((process,), grace_s)
        self._forget((process,))

    def kill(self, name: str) -> None:
        """End the process recorded under ``name`` as a crash would: KILL at once."""
        self.stop(name, grace_s=0)

    def stop_all(self, *, grace_s: float = _GRACE_S) -> None:
        """End every recorded process, all at the same time."""
        with self._records() as records:
            processes = tuple(records.values())
        self._end(processes, grace_s)
        self._forget(processes)

    def _end(self, processes: Sequence[Process], grace_s: float) -> None:
        with contextlib.ExitStack() as stack:
            handles = {
                process.name: handle
                for process in processes
                if (handle := _open_handle(process)) is not None
            }
            for handle in handles.values():
                stack.callback(os.close, handle)
            if grace_s > 0:
                _signal(handles, signal.SIGTERM)
                _wait_ended(handles, grace_s)
            _signal(handles, signal.SIGKILL)
            alive = _wait_ended(handles, _KILL_WAIT_S)
        self._reap()
        if alive:
            raise LabError(f"still alive after SIGKILL: {', '.join(sorted(alive))}")

    def _reap(self) -> None:
        """Reap our children that ended, also those that another invocation stopped."""
        with self._lock:
            ended = [pid for pid, child in self._children.items() if child.poll() is not None]
            for pid in ended:
                del self._children[pid]

    def _forget(self, ended: Sequence[Process]) -> None:
        with self._records() as records:
            for process in ended:
                if records.get(process.name) == process:
                    del records[process.name]

    @contextlib.contextmanager
    def _records(self) -> Iterator[dict[str, Process]]:
        """Yield the recorded processes under a lock; changes are written back."""
        self._file.parent.mkdir(parents=True, exist_ok=True)
        with self._lock, self._lock_file.open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            before = self._read()
            records = dict(before)
            try:
                yield records
            finally:
                if records != before:
                    self._write(records)

    def _read(self) -> dict[str, Process]:
        try:
            entries = json.loads(self._file.read_text())
        except FileNotFoundError:
            return {}
        return {entry["name"]: Process(**entry) for entry in entries}

    def _write(self, records: Mapping[str, Process]) -> None:
        new = self._file.with_suffix(".new")
        new.write_text(json.dumps([asdict(process) for process in records.values()], indent=1))
        new.replace(self._file)


def patience() -> float:
    """Return the factor for every wait in the lab: RBDAGENT_LAB_PATIENCE, else 1.

    A timeout only ends a wait for something that never comes; on a slow or busy machine everything
    takes longer.
    """
    return float(os.environ.get("RBDAGENT_LAB_PATIENCE") or 1)


def wait_until(
    probe: Callable[[], T | None],
    *,
    timeout_s: float,
    what: str,
    process: Process | None = None,
    interval_s: float = _POLL_S,
) -> T:
    """Call ``probe`` repeatedly until it returns something other than None or False.

    Args:
        probe: a LabError that it raises counts as "not yet" and is shown after the timeout.
        timeout_s: the timeout, times :func:`patience`.
        what: what is waited for, to finish the sentence "waited N s for ...".
        process: the wait is over at once when this process ends; its log is shown on failure.
        interval_s: pause between two calls.

    Raises:
        LabError: it did not come in time, or ``process`` ended.
    """
    log = Path(process.log) if process is not None and process.log is not None else None
    started = time.monotonic()
    deadline_s = timeout_s * patience()
    last = ""
    while True:
        try:
            answer = probe()
        except LabError as error:
            answer, last = None, f"; last: {error}"
        if answer is not None and answer is not False:
            return answer
        elapsed = time.monotonic() - started
        if process is not None and not process.alive():
            raise LabError(
                f"{process.name} ended after {elapsed:.1f} s while waiting for {what}{last}",
                log=log,
            )
        if elapsed >= deadline_s:
            raise LabError(f"waited {elapsed:.0f} s for {what}, in vain{last}", log=log)
        time.sleep(interval_s)


def _boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def _stat(pid: int) -> _Stat | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The command name is in parentheses and may itself have spaces and parentheses.
    fields = text.rpartition(")")[2].split()
    return _Stat(state=fields[0], start_time=int(fields[19]))


def _open_handle(process: Process) -> int | None:
    """Open a pidfd of this very process, or return None when it has ended.

    The pidfd is opened first and the identity checked second: from then on the descriptor belongs
    to the process that was checked, even if its number is reused.
    """
    try:
        handle = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return None
    if process.alive():
        return handle
    os.close(handle)
    return None


def _signal(handles: Mapping[str, int], number: signal.Signals) -> None:
    for handle in handles.values():
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(handle, number)


def _wait_ended(handles: Mapping[str, int], timeout_s: float) -> set[str]:
    """Wait until every process ended; return the names of those that have not."""
    deadline = time.monotonic() + timeout_s
    waiting = dict(handles)
    while waiting and (left := deadline - time.monotonic()) > 0:
        poll = select.poll()
        names = {handle: name for name, handle in waiting.items()}
        for handle in names:
            poll.register(handle, select.POLLIN)
        for handle, _ in poll.poll(left * 1000):
            del waiting[names[handle]]
    return set(waiting)
