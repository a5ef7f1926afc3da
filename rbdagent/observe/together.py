"""Calls that may hang, made at once; what is late is left behind."""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_T = TypeVar("_T")
THREADS: Final = 32


def all_of(calls: Sequence[Callable[[], _T]], deadline: float) -> list[_T | BaseException | None]:
    """Make calls in daemon threads and wait; None for each that has not ended at the deadline.

    Args:
        calls: an exception that one raises is its answer.
        deadline: of the monotonic clock.
    """
    return start(calls)(deadline)


def start(
    calls: Sequence[Callable[[], _T]],
) -> Callable[[float], list[_T | BaseException | None]]:
    """Begin calls in daemon threads; give what waits for them as :func:`all_of` does, once.

    An executor's threads are joined when the interpreter ends: one hung librados call would keep
    the program from ending.
    """
    waiting: queue.SimpleQueue[int] = queue.SimpleQueue()
    done: queue.SimpleQueue[tuple[int, _T | BaseException]] = queue.SimpleQueue()
    for number in range(len(calls)):
        waiting.put(number)

    def work() -> None:
        with contextlib.suppress(queue.Empty):
            while True:
                number = waiting.get_nowait()
                try:
                    done.put((number, calls[number]()))
                except BaseException as error:  # noqa: BLE001 - carried over to the caller
                    done.put((number, error))

    for _ in range(min(THREADS, len(calls))):
        threading.Thread(target=work, daemon=True).start()

    def wait(deadline: float) -> list[_T | BaseException | None]:
        answers: list[_T | BaseException | None] = [None] * len(calls)
        for _ in calls:
            try:
                number, answer = done.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                break
            answers[number] = answer
        return answers

    return wait
