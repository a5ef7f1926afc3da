"""Run inputs on a target; report those that raise an undocumented error or take too long."""

from __future__ import annotations

import itertools
import random
import signal
import time
import traceback
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Self

if TYPE_CHECKING:
    from types import FrameType

    from tests.fuzz.targets import Target

MS_PER_KIB: Final = 1.0
"""Most milliseconds for each KiB of an input; a smaller input counts as one KiB."""
_HANGS_S: Final = 5.0
_MOST_FAILURES: Final = 5
"""Most failures that a target keeps in a round: usually they have the same cause."""
_LONG_RUN: Final = 40


@dataclass(frozen=True)
class Failure:
    """An input on which a target failed."""

    target: str
    text: str
    why: str

    def __str__(self) -> str:
        return f"{self.target}: {self.why}\n    {literal(self.text)}"


def literal(text: str) -> str:
    """Return a text as a Python expression, with a long run of a character as a product.

    A slow input often has many KiB of the same character: its plain literal would fill a terminal.
    """
    parts: list[str] = []
    between = ""
    for character, run in itertools.groupby(text):
        size = len(list(run))
        if size < _LONG_RUN:
            between += character * size
            continue
        parts += [*([repr(between)] if between else []), f"{character!r} * {size}"]
        between = ""
    if between or not parts:
        parts.append(repr(between))
    return " + ".join(parts)


@dataclass
class Tally:
    """The result of a round of inputs."""

    target: str
    inputs: int = 0
    ms_per_kib: float = 0.0
    """Rate of the slowest input."""
    slowest: str = ""
    failures: list[Failure] = field(default_factory=list)

    def add(self, other: Tally) -> None:
        """Add the result of another round of the same target."""
        self.inputs += other.inputs
        if other.ms_per_kib > self.ms_per_kib:
            self.ms_per_kib, self.slowest = other.ms_per_kib, other.slowest
        self.failures += other.failures


class _HangsError(BaseException):
    """An input takes longer than the time limit."""


def play(target: Target, *, inputs: int, seed: str, most: float = MS_PER_KIB) -> Tally:
    """Run inputs on a target and return the result.

    Args:
        target: the parser.
        inputs: number of inputs.
        seed: decides the inputs.
        most: most milliseconds of processor time for a KiB, in the best of three tries.
    """
    chance = random.Random(f"{seed} {target.name}")
    tally = Tally(target.name)
    with _Watchdog() as watchdog:
        for _ in range(inputs):
            text = target.draw(chance)
            watchdog.beat()
            tally.inputs += 1
            failure = _played(target, text, tally, most)
            if failure is not None and len(tally.failures) < _MOST_FAILURES:
                tally.failures.append(failure)
    return tally


def _played(target: Target, text: str, tally: Tally, most: float) -> Failure | None:
    try:
        rate = _rate(target, text)
        if rate > tally.ms_per_kib:
            # A busy machine slows one try, not three.
            rate = min(rate, _rate(target, text), _rate(target, text))
    except _HangsError:
        return Failure(target.name, text, f"takes more than {_HANGS_S:g} s")
    except Exception as error:  # noqa: BLE001 - this is what it looks for
        return Failure(target.name, _shrunk(target, text, type(error)), _origin(error))
    if rate > tally.ms_per_kib:
        tally.ms_per_kib, tally.slowest = rate, text
    return Failure(target.name, text, f"{rate:.2f} ms per KiB") if rate > most else None


def _rate(target: Target, text: str) -> float:
    size = max(len(text.encode(errors="surrogateescape")), 1024)
    started = time.thread_time_ns()
    target.play(text)
    return (time.thread_time_ns() - started) / 1e6 / (size / 1024)


def _origin(error: Exception) -> str:
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {str(error)[:120]!r} at {frame.filename}:{frame.lineno}"


def _shrunk(target: Target, text: str, kind: type[Exception]) -> str:
    """Return a shorter text that raises the same kind of error."""
    size = len(text)
    while size := size // 2:
        begin = 0
        while begin < len(text):
            shorter = text[:begin] + text[begin + size :]
            if _fails(target, shorter, kind):
                text = shorter
            else:
                begin += size
    return text


def _fails(target: Target, text: str, kind: type[Exception]) -> bool:
    try:
        target.play(text)
    except kind:
        return True
    except (_HangsError, Exception):  # noqa: BLE001 - another fault than the one to be shown
        return False
    return False


class _Watchdog:
    """Timer that interrupts an input which is still running after two ticks."""

    def __init__(self) -> None:
        self._beats = self._seen = 0

    def __enter__(self) -> Self:
        self._before = signal.signal(signal.SIGPROF, self._tick)
        signal.setitimer(signal.ITIMER_PROF, _HANGS_S, _HANGS_S)
        return self

    def __exit__(self, *_: object) -> None:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, self._before)

    def beat(self) -> None:
        """Record the start of a new input."""
        self._beats += 1

    def _tick(self, _number: int, _frame: FrameType | None) -> None:
        if self._beats == self._seen:
            raise _HangsError
        self._seen = self._beats
