"""Work in a process of its own: its answer comes back, its death does not come along."""

from __future__ import annotations

import fcntl
import os
import signal
import time
from typing import TYPE_CHECKING

import pytest

from rbdagent.errors import SourceError
from rbdagent.observe.apart import Apart, GoneError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def soon() -> float:
    """Give a deadline that no test reaches."""
    return time.monotonic() + 60


def test_the_answer_to_the_question_comes_back() -> None:
    def work(ask: Callable[[], tuple[str, ...]]) -> list[str]:
        return [each * 100_000 for each in ask()]

    with Apart(work) as apart:
        assert apart.answer(("a", "b"), soon()) == ["a" * 100_000, "b" * 100_000]


def test_it_begins_before_it_is_asked(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")

    def work(ask: Callable[[], None]) -> None:
        (tmp_path / "pipe").write_text("begun")
        ask()

    with Apart(work) as apart:
        assert (tmp_path / "pipe").read_text() == "begun"
        apart.answer(None, soon())


def test_a_lock_of_the_parent_does_not_live_on_there(tmp_path: Path) -> None:
    """An agent that is killed while Ceph hangs must not keep the next one from starting."""
    held = (tmp_path / "lock").open("w")
    fcntl.flock(held, fcntl.LOCK_EX)
    os.mkfifo(tmp_path / "pipe")

    def work(ask: Callable[[], None]) -> None:
        (tmp_path / "pipe").write_text("begun")
        ask()

    with Apart(work) as apart:
        (tmp_path / "pipe").read_text()
        held.close()
        with (tmp_path / "lock").open("w") as again:
            fcntl.flock(again, fcntl.LOCK_EX | fcntl.LOCK_NB)
        apart.answer(None, soon())


def test_what_is_raised_there_is_raised_here() -> None:
    def work(ask: Callable[[], None]) -> None:
        ask()
        raise SourceError("no such keyring", cure="pass one")

    with Apart(work) as apart, pytest.raises(SourceError, match="no such keyring"):
        apart.answer(None, soon())


@pytest.mark.parametrize("asked_first", [True, False])
def test_a_process_that_dies_takes_nobody_with_it(asked_first: bool) -> None:  # noqa: FBT001
    def work(ask: Callable[[], None]) -> None:
        if asked_first:
            ask()
        os.kill(os.getpid(), signal.SIGKILL)

    with Apart(work) as apart, pytest.raises(GoneError):
        apart.answer(None, soon())


def test_who_does_not_answer_in_time_is_left_and_ended(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"

    def work(ask: Callable[[], None]) -> None:
        pid_file.write_text(str(os.getpid()))
        ask()
        signal.pause()

    with Apart(work) as apart, pytest.raises(TimeoutError):
        apart.answer(None, time.monotonic())
    # It is reaped, if it ever came so far as to say who it is.
    if pid_file.exists():
        assert_gone(int(pid_file.read_text()))


def test_who_is_never_asked_ends_with_the_one_who_would_have(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")

    def work(ask: Callable[[], None]) -> None:
        (tmp_path / "pipe").write_text(str(os.getpid()))
        ask()

    with Apart(work):
        pid = int((tmp_path / "pipe").read_text())
    assert_gone(pid)


def assert_gone(pid: int) -> None:
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
