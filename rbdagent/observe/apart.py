"""A look in a process of its own.

Two processors share the work, and what hangs or crashes in a library there takes nobody with it: a
process can be ended, a thread that waits inside librados cannot.
"""

from __future__ import annotations

import os
import pickle
import select
import signal
import time
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

_Question = TypeVar("_Question")
_Answer = TypeVar("_Answer")
_CHUNK = 1 << 16


class GoneError(Exception):
    """The other process ended, or let go, before it had said all."""


class Apart(Generic[_Question, _Answer]):
    """Work in a forked process; begin it before this one has threads."""

    def __init__(self, begin: Callable[[], Callable[[_Question], _Answer]]) -> None:
        """Begin.

        Args:
            begin: called there, does what needs no question, and gives what answers questions.
                Question and answer are pickled on their way.
        """
        question_in, self._question_out = os.pipe()
        self._answer_in, answer_out = os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            _close_all_but(question_in, answer_out)
            _work(begin, question_in, answer_out)
        os.close(question_in)
        os.close(answer_out)

    def __enter__(self) -> Apart[_Question, _Answer]:
        """Lend it."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End it."""
        self.end()

    def end(self) -> None:
        """End the process, whatever it is at."""
        os.close(self._question_out)
        os.close(self._answer_in)
        os.kill(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)

    def answer(self, question: _Question, deadline: float) -> _Answer:
        """Ask, and wait for the answer.

        Args:
            question: what is not answered in time is never asked again here: the late answer would
                be taken for that of the next question.
            deadline: of the monotonic clock.

        Raises:
            TimeoutError: there is none yet.
            GoneError: the process ended without one.
        """
        try:
            _write(self._question_out, question)
        except BrokenPipeError:
            raise GoneError from None
        answer, error = _read(self._answer_in, deadline)
        if error is not None:
            raise error
        given: _Answer = answer
        return given


class Kept(Generic[_Question, _Answer]):
    """The same, for whoever asks again and again: one that failed is followed by a new one."""

    def __init__(self, begin: Callable[[], Callable[[_Question], _Answer]]) -> None:
        """Begin, see :class:`Apart`."""
        self._begin = begin
        self._apart: Apart[_Question, _Answer] | None = Apart(begin)

    def answer(self, question: _Question, deadline: float) -> _Answer:
        """Ask, and wait for the answer, see :meth:`Apart.answer`."""
        if self._apart is None:
            self._apart = Apart(self._begin)
        try:
            return self._apart.answer(question, deadline)
        except (TimeoutError, GoneError):
            self.end()
            raise

    def end(self) -> None:
        """End the process; the next question begins another."""
        if self._apart is not None:
            self._apart.end()
            self._apart = None


def _close_all_but(*kept: int) -> None:
    """Let go of what the parent has open: its locks and sockets must not outlive it here."""
    first = _FIRST_OWN
    for each in sorted(kept):
        os.closerange(first, each)
        first = each + 1
    os.closerange(first, os.sysconf("SC_OPEN_MAX"))


_LENGTH = 8
_FIRST_OWN = 3


def _write(descriptor: int, value: object) -> None:
    """Write a value behind its length."""
    data = pickle.dumps(value)
    data = len(data).to_bytes(_LENGTH, "little") + data
    while data:
        data = data[os.write(descriptor, data) :]


def _read(descriptor: int, deadline: float | None = None) -> Any:  # noqa: ANN401 - any value
    """Read what :func:`_write` wrote at the other end.

    Raises:
        TimeoutError: it is not whole at the deadline.
        GoneError: the other end was closed before it was whole.
    """
    received = bytearray()
    while not _is_whole(received):
        patience = None if deadline is None else max(0.0, deadline - time.monotonic())
        if not select.select([descriptor], [], [], patience)[0]:
            raise TimeoutError
        chunk = os.read(descriptor, _CHUNK)
        if not chunk:
            raise GoneError
        received += chunk
    return pickle.loads(received[_LENGTH:])  # noqa: S301 - parent and child are one program


def _is_whole(received: bytearray) -> bool:
    if len(received) < _LENGTH:
        return False
    return len(received) - _LENGTH >= int.from_bytes(received[:_LENGTH], "little")


def _work(
    begin: Callable[[], Callable[[_Question], _Answer]], question_in: int, answer_out: int
) -> None:
    """Answer until nobody asks any more, and end: no buffer or handler of the parent's is run."""
    try:
        answer = begin()
        while True:
            question: _Question = _read(question_in)
            try:
                told: tuple[object, Exception | None] = (answer(question), None)
            except Exception as error:  # noqa: BLE001 - carried over to the parent
                told = (None, error)
            _write(answer_out, told)
    except (GoneError, BrokenPipeError):
        os._exit(0)
    finally:
        os._exit(1)
