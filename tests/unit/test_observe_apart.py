"""Work in a process of its own: its answer comes back, its death does not come along."""

from __future__ import annotations

import os
import signal
import time
from typing import TYPE_CHECKING

import pytest

from rbdagent.errors import SourceError
from rbdagent.observe.apart import Apart, GoneError

if TYPE_CHECKING:
    from collections.abc import Callable


def soon() -> float:
    """Give a deadline that no test reaches."""
    return time.monotonic() + 60


def test_the_answer_to_the_question_comes_back() -> None:
    def work(ask: Callable[[], tuple[str, ...]]) -> list[str]:
        return [each * 100_000 for each in ask()]

    with Apart(work) as apart:
        assert apart.answer(("a", "b"), soon()) == ["a" * 100_000, "b" * 100_000]


def test_it_begins_before_it_is_asked() -> None:
    read, write = os.pipe()

    def work(ask: Callable[[], None]) -> None:
        os.write(write, b"begun")
        ask()

    with Apart(work) as apart:
        assert os.read(read, 5) == b"begun"
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


def test_who_does_not_answer_in_time_is_left_and_ended() -> None:
    read, write = os.pipe()

    def work(ask: Callable[[], None]) -> None:
        ask()
        signal.pause()

    with Apart(work) as apart, pytest.raises(TimeoutError):
        apart.answer(None, time.monotonic())
    os.close(write)
    # Its end of the pipe is closed too: it is gone.
    assert os.read(read, 1) == b""


def test_who_is_never_asked_ends_with_the_one_who_would_have() -> None:
    read, write = os.pipe()

    def work(ask: Callable[[], None]) -> None:
        ask()

    with Apart(work):
        os.close(write)
    assert os.read(read, 1) == b""
