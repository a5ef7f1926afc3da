"""Work in a process of its own: its answer comes back, its death does not come along."""

from __future__ import annotations

import fcntl
import os
import signal
import time
from typing import TYPE_CHECKING

import pytest

from rbdagent.errors import SourceError
from rbdagent.observe.apart import Apart, GoneError, Kept

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def soon() -> float:
    """Give a deadline that no test reaches."""
    return time.monotonic() + 60


def nothing(_: None) -> None:
    """Answer."""


def test_the_answer_to_the_question_comes_back() -> None:
    def answer(asked: tuple[str, ...]) -> list[str]:
        return [each * 100_000 for each in asked]

    with Apart(lambda: answer) as apart:
        assert apart.answer(("a", "b"), soon()) == ["a" * 100_000, "b" * 100_000]
        assert apart.answer(("c",), soon()) == ["c" * 100_000]


def test_it_begins_before_it_is_asked(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")

    def begin() -> Callable[[None], None]:
        (tmp_path / "pipe").write_text("begun")
        return nothing

    with Apart(begin) as apart:
        assert (tmp_path / "pipe").read_text() == "begun"
        apart.answer(None, soon())


def test_a_lock_of_the_parent_does_not_live_on_there(tmp_path: Path) -> None:
    """An agent that is killed while Ceph hangs must not keep the next one from starting."""
    held = (tmp_path / "lock").open("w")
    fcntl.flock(held, fcntl.LOCK_EX)
    os.mkfifo(tmp_path / "pipe")

    def begin() -> Callable[[None], None]:
        (tmp_path / "pipe").write_text("begun")
        return nothing

    with Apart(begin) as apart:
        (tmp_path / "pipe").read_text()
        held.close()
        with (tmp_path / "lock").open("w") as again:
            fcntl.flock(again, fcntl.LOCK_EX | fcntl.LOCK_NB)
        apart.answer(None, soon())


def test_what_is_raised_there_is_raised_here() -> None:
    def refuse(_: None) -> None:
        raise SourceError("no such keyring", cure="pass one")

    with Apart(lambda: refuse) as apart:
        for _ in range(2):
            with pytest.raises(SourceError, match="no such keyring"):
                apart.answer(None, soon())


@pytest.mark.parametrize("asked_first", [True, False])
def test_a_process_that_dies_takes_nobody_with_it(asked_first: bool) -> None:  # noqa: FBT001
    def die(_: None = None) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def begin() -> Callable[[None], None]:
        if not asked_first:
            die()
        return die

    with Apart(begin) as apart, pytest.raises(GoneError):
        apart.answer(None, soon())


def test_who_does_not_answer_in_time_is_left_and_ended(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")

    def hang(_: None) -> None:
        signal.pause()

    def begin() -> Callable[[None], None]:
        (tmp_path / "pipe").write_text(str(os.getpid()))
        return hang

    with Apart(begin) as apart:
        pid = int((tmp_path / "pipe").read_text())
        with pytest.raises(TimeoutError):
            apart.answer(None, time.monotonic())
    assert_gone(pid)


def test_who_is_never_asked_ends_with_the_one_who_would_have(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")

    def begin() -> Callable[[None], None]:
        (tmp_path / "pipe").write_text(str(os.getpid()))
        return nothing

    with Apart(begin):
        pid = int((tmp_path / "pipe").read_text())
    assert_gone(pid)


def test_one_that_hangs_or_dies_is_followed_by_another() -> None:
    def answer(asked: str) -> int:
        if asked == "hang":
            signal.pause()
        if asked == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        return os.getpid()

    kept = Kept(lambda: answer)
    first = kept.answer("who", soon())
    assert kept.answer("who", soon()) == first
    with pytest.raises(GoneError):
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


def assert_gone(pid: int) -> None:
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
