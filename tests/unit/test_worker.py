"""Work in a separate process: its result is returned, and its death does not end the parent."""

from __future__ import annotations

import fcntl
import os
import resource
import signal
import struct
import subprocess
import sys
import termios
import textwrap
import time
from functools import partial
from typing import TYPE_CHECKING

import pytest

from rbdagent.collect import worker as worker_module
from rbdagent.collect.worker import (
    PersistentWorker,
    UninterruptibleError,
    Worker,
    WorkerExitedError,
)
from rbdagent.errors import SourceError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def soon() -> float:
    """Return a deadline that no test reaches."""
    return time.monotonic() + 60


def nothing(_: None) -> None:
    """Return None as the answer."""


def test_answer_to_each_question_is_returned() -> None:
    def answer(asked: tuple[str, ...]) -> list[str]:
        return [text * 100_000 for text in asked]

    with Worker(lambda: answer) as worker:
        assert worker.answer(("a", "b"), soon()) == ["a" * 100_000, "b" * 100_000]
        assert worker.answer(("c",), soon()) == ["c" * 100_000]


def test_answer_comes_in_a_program_with_more_than_1024_open_files() -> None:
    """Descriptors from 1024 on do not fit into the sets of select()."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4096), hard))
    many = [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]
    try:
        with Worker(lambda: str.upper) as worker:
            assert worker.answer("a", soon()) == "A"
    finally:
        for descriptor in many:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_process_loads_modules_before_it_receives_its_work(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")

    def load() -> None:
        (tmp_path / "pipe").write_text("loaded")

    with Worker[str, str](None, load=load) as worker:
        assert (tmp_path / "pipe").read_text() == "loaded"
        worker.begin(partial(partial, str.replace, "a.b.c", "."))
        assert worker.answer("/", soon()) == "a/b/c"


def test_work_for_a_process_that_has_ended_is_refused() -> None:
    with Worker[None, None](None) as worker:
        worker.finish()
        os.waitid(os.P_PID, worker.pid, os.WEXITED | os.WNOWAIT)
        with pytest.raises(WorkerExitedError):
            worker.begin(partial(partial, nothing))


def test_finished_process_is_reaped_at_the_end() -> None:
    worker = Worker(lambda: nothing)
    worker.finish()
    os.waitid(os.P_PID, worker.pid, os.WEXITED | os.WNOWAIT)
    assert worker.end()
    with pytest.raises(ChildProcessError):
        os.waitpid(worker.pid, 0)


def test_process_starts_work_before_the_first_question(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")

    def begin() -> Callable[[None], None]:
        (tmp_path / "pipe").write_text("begun")
        return nothing

    with Worker(begin) as worker:
        assert (tmp_path / "pipe").read_text() == "begun"
        worker.answer(None, soon())


def test_process_does_not_keep_the_standard_output_open() -> None:
    """Assert /dev/null: `kubectl exec` ends only when each process has closed its output."""

    def standard(_: None) -> list[str]:
        return [os.readlink(f"/proc/self/fd/{number}") for number in (0, 1)]

    with Worker(lambda: standard) as worker:
        assert worker.answer(None, soon()) == [os.devnull] * 2


def test_process_does_not_inherit_a_lock_of_the_parent(tmp_path: Path) -> None:
    """Assert that the next agent can start after an agent was killed while Ceph hung."""
    held = (tmp_path / "lock").open("w")
    fcntl.flock(held, fcntl.LOCK_EX)
    os.mkfifo(tmp_path / "pipe")

    def begin() -> Callable[[None], None]:
        (tmp_path / "pipe").write_text("begun")
        return nothing

    with Worker(begin) as worker:
        (tmp_path / "pipe").read_text()
        held.close()
        with (tmp_path / "lock").open("w") as again:
            fcntl.flock(again, fcntl.LOCK_EX | fcntl.LOCK_NB)
        worker.answer(None, soon())


def test_error_of_the_process_is_raised_in_the_parent() -> None:
    def refuse(_: None) -> None:
        raise SourceError("no such keyring", hint="pass one")

    with Worker(lambda: refuse) as worker:
        for _ in range(2):
            with pytest.raises(SourceError, match="no such keyring"):
                worker.answer(None, soon())


@pytest.mark.parametrize("asked_first", [True, False])
def test_death_of_the_process_is_an_error_in_the_parent(asked_first: bool) -> None:  # noqa: FBT001
    def die(_: None = None) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def begin() -> Callable[[None], None]:
        if not asked_first:
            die()
        return die

    with Worker(begin) as worker, pytest.raises(WorkerExitedError):
        worker.answer(None, soon())


def test_process_without_an_answer_in_time_is_ended(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")

    def hang(_: None) -> None:
        signal.pause()

    def begin() -> Callable[[None], None]:
        (tmp_path / "pipe").write_text(str(os.getpid()))
        return hang

    with Worker(begin) as worker:
        pid = int((tmp_path / "pipe").read_text())
        with pytest.raises(TimeoutError):
            worker.answer(None, time.monotonic())
    assert_gone(pid)


def test_answer_that_stops_in_the_middle_is_a_timeout() -> None:
    """Stop the process when its pipe is full: the deadline limits each part of the answer."""
    with Worker[int, bytes](lambda: bytes) as worker:
        worker.ask(1 << 20)
        while unread(worker) < fcntl.fcntl(worker._answer_in, fcntl.F_GETPIPE_SZ):
            time.sleep(0.01)
        os.kill(worker.pid, signal.SIGSTOP)
        with pytest.raises(TimeoutError):
            worker.receive(time.monotonic() + 0.1)
        pid = worker.pid
    assert_gone(pid)


def unread(worker: Worker[int, bytes]) -> int:
    """Return the number of bytes in the pipe of the answers (FIONREAD, pipe(7))."""
    answer = fcntl.ioctl(worker._answer_in, termios.FIONREAD, bytes(4))
    return int(struct.unpack("i", answer)[0])


def test_large_question_is_received() -> None:
    with Worker(lambda: len) as worker:
        assert worker.answer(bytes(1 << 20), soon()) == 1 << 20


def test_exit_of_the_parent_does_not_wait_for_the_process() -> None:
    """Assert it of a process that ignores SIGTERM and is stopped: it executes no signal handler."""
    program = """
        import os, signal
        from rbdagent.collect.worker import PersistentWorker

        def begin():
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            return lambda _: os.kill(os.getpid(), signal.SIGSTOP)

        worker = PersistentWorker(begin, answers=None)
        worker.ask(None)
        os.waitid(os.P_PID, worker._worker.pid, os.WSTOPPED)
        print(worker._worker.pid)
    """
    # With inherited standard streams, the stopped process would keep the pipe open, too.
    ended = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        stdout=subprocess.PIPE,
        timeout=60,
        check=True,
    )
    os.kill(int(ended.stdout), signal.SIGKILL)


def test_process_without_a_question_ends_with_its_context(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")

    def begin() -> Callable[[None], None]:
        (tmp_path / "pipe").write_text(str(os.getpid()))
        return nothing

    with Worker(begin):
        pid = int((tmp_path / "pipe").read_text())
    assert_gone(pid)


def test_process_that_hangs_or_dies_is_replaced() -> None:
    def answer(asked: str) -> int:
        if asked == "hang":
            signal.pause()
        if asked == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        return os.getpid()

    kept = PersistentWorker(lambda: answer, answers=int)
    first = kept.answer("who", soon())
    assert kept.answer("who", soon()) == first
    with pytest.raises(WorkerExitedError):
        kept.answer("die", soon())
    second = kept.answer("who", soon())
    assert second != first
    with pytest.raises(TimeoutError):
        kept.answer("hang", time.monotonic())
    assert_gone(second)
    third = kept.answer("who", soon())
    assert third != second
    kept.end()
    assert_gone(third)


def test_no_second_process_starts_beside_one_that_cannot_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Assert an error until the process ends: no signal ends an uninterruptible process."""
    kept: PersistentWorker[None, int] = PersistentWorker(lambda: lambda _: os.getpid(), answers=int)
    first = kept.answer(None, soon())
    with monkeypatch.context() as stuck:
        stuck.setattr(worker_module, "_is_closed", lambda *_: False)
        stuck.setattr(worker_module, "has_ended", lambda *_, **__: False)
        kept.end()
        for _ in range(2):
            with pytest.raises(UninterruptibleError, match=f"process {first} of rbdagent"):
                kept.answer(None, soon())
    os.waitid(os.P_PID, first, os.WEXITED | os.WNOWAIT)
    assert kept.answer(None, soon()) != first
    kept.end()


def test_answer_that_was_not_received_is_discarded() -> None:
    kept: PersistentWorker[str, str] = PersistentWorker(lambda: str.upper, answers=str)
    kept.ask("a")
    kept.end()
    assert kept.answer("b", soon()) == "B"
    kept.end()


@pytest.mark.parametrize("answer", [(1, "a"), (2**64, "a"), (1, "\ud800")])
def test_process_for_many_questions_returns_any_number_and_text(answer: tuple[int, str]) -> None:
    kept: PersistentWorker[None, tuple[int, str]] = PersistentWorker(
        lambda: lambda _: answer, answers=tuple[int, str]
    )
    assert kept.answer(None, soon()) == answer
    kept.end()


def assert_gone(pid: int) -> None:
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
