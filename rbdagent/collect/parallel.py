"""Calls that may hang, in parallel or one after the other; late calls stay in their threads."""

from __future__ import annotations

import contextlib
import contextvars
import functools
import queue
import threading
import time
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator, Sequence

_T = TypeVar("_T")
Awaited = dict[str, float]
"""The sources that have not answered yet, each with the time limit of its calls in seconds."""
THREADS: Final = 32
_FIRST_THREADS: Final = 4
_SLOW_S: Final = 0.01
"""While calls wait for a thread, the number of threads doubles after each such time, up to the
limit above. 50 images of a quick cluster take a fifth less processor time in 4 threads than in 32.
"""
_QUICK_S: Final = 0.05
_MOST_HUNG: Final = 64


def all_of(calls: Sequence[Callable[[], _T]], deadline: float) -> list[_T | BaseException | None]:
    """Run calls in daemon threads and wait; None for each call without a result at the deadline.

    Args:
        calls: the functions; an exception is returned as the result.
        deadline: of the monotonic clock.
    """
    return start(calls)(deadline)


def start(
    calls: Sequence[Callable[[], _T]],
) -> Callable[[float], list[_T | BaseException | None]]:
    """Start calls in daemon threads; return a function that waits as :func:`all_of` does, once.

    The interpreter joins the threads of an executor at exit, so a librados call that hangs would
    prevent the exit of the program.
    """
    begun = _Calls(calls)
    begun.start_threads(_FIRST_THREADS)
    return begun.wait


class _Calls(Generic[_T]):
    """Calls in threads; slow calls get more threads."""

    def __init__(self, calls: Sequence[Callable[[], _T]]) -> None:
        self._calls = calls
        self._threads = 0
        self._waiting: queue.SimpleQueue[int] = queue.SimpleQueue()
        self._answers: list[_T | BaseException | None] = [None] * len(calls)
        self._left = len(calls)
        self._counting = threading.Lock()
        self._all_ended = threading.Event()
        for number in range(len(calls)):
            self._waiting.put(number)
        if not calls:
            self._all_ended.set()

    def start_threads(self, most: int) -> None:
        """Start threads, up to the given number in all."""
        for _ in range(self._threads, min(most, THREADS, len(self._calls))):
            # The fields that are bound to the caller's log are in its context.
            context = contextvars.copy_context()
            threading.Thread(target=context.run, args=(self._work,), daemon=True).start()
            self._threads += 1

    def _work(self) -> None:
        with contextlib.suppress(queue.Empty):
            while True:
                number = self._waiting.get_nowait()
                try:
                    self._answers[number] = self._calls[number]()
                except BaseException as error:  # noqa: BLE001 - passed on to the caller
                    self._answers[number] = error
                with self._counting:
                    self._left -= 1
                if not self._left:
                    self._all_ended.set()

    def wait(self, deadline: float) -> list[_T | BaseException | None]:
        """Return the results; None for each call without a result at the deadline.

        The caller sleeps until the last result: to wake up at each one takes longer than many calls
        themselves. While calls wait for a thread, it starts further threads.
        """
        while (left_s := deadline - time.monotonic()) > 0:
            are_waiting = not self._waiting.empty()
            if self._all_ended.wait(min(_SLOW_S, left_s) if are_waiting else left_s):
                break
            if are_waiting:
                self.start_threads(2 * self._threads)
        # A copy: a late call must not change it.
        return list(self._answers)


def once(call: Callable[..., _T]) -> Callable[..., _T]:
    """Return a function that calls ``call`` once for the same arguments, for all threads.

    Threads wait for a call that another thread has begun. The caches of functools do not:
    functools.cached_property has no lock since Python 3.12 (python/cpython#87634).
    """
    calling = threading.Lock()
    known = functools.cache(call)

    def call_once(*arguments: Hashable) -> _T:
        with calling:
            return known(*arguments)

    return call_once


@contextlib.contextmanager
def awaiting(awaited: Awaited, source: str, limit_s: float) -> Iterator[None]:
    """List a source as awaited while the context runs.

    Args:
        awaited: the list; another thread may change it at the same time.
        source: its name in a sentence.
        limit_s: the time limit of its calls.
    """
    awaited[source] = limit_s
    try:
        yield
    finally:
        awaited.pop(source, None)


_Item = TypeVar("_Item", bound="Hashable")


class Left(NamedTuple, Generic[_Item]):
    """Holds the items that were not processed."""

    hung: list[_Item]
    """Items that were started, now or earlier, and did not end in time."""
    waiting: list[_Item]
    """Items that were not started: the deadline had passed, or too many items hang."""


class InTurn(Generic[_Item]):
    """Processes items one after the other; a slow item continues in parallel with the next ones.

    An item that hangs stays in its thread, and is not started again while it hangs. So only items
    that hang keep a thread. These threads end with the process.
    """

    def __init__(self) -> None:
        self._hung: dict[_Item, _Runner[_Item]] = {}
        self.notes: dict[_Item, str] = {}
        """The caller's notes on items, kept while they hang."""

    def run(
        self,
        items: Sequence[_Item],
        work: Callable[[_Item], None],
        *,
        patience_s: float,
        deadline: float,
    ) -> Left[_Item]:
        """Process items.

        Args:
            items: without duplicates.
            work: processes an item, and never raises; it may end after this call has returned.
            patience_s: the time limit of one item.
            deadline: of the monotonic clock, for all items.
        """
        self._hung = {item: runner for item, runner in self._hung.items() if runner.is_alive()}
        self.notes = {item: note for item, note in self.notes.items() if item in self._hung}
        todo = iter([item for item in items if item not in self._hung])
        left = Left([item for item in items if item in self._hung], [])
        all_begun = threading.Event()
        runners = [_start_runner(todo, work, all_begun)]
        while not all_begun.wait(_QUICK_S):
            if time.monotonic() > deadline or len(self._hung) + len(runners) > _MOST_HUNG:
                break
            if runners[-1].is_slow:
                runners[-1].is_last = True
                runners = [runner for runner in runners if runner.is_alive()]
                runners.append(_start_runner(todo, work, all_begun))
        left.waiting.extend(todo)
        for runner in runners:
            until = min(runner.since + patience_s, deadline)
            runner.join(max(0.0, until - time.monotonic()))
            item = runner.item
            if runner.is_alive() and item is not None:
                self._hung[item] = runner
                left.hung.append(item)
        return left


class _Runner(threading.Thread, Generic[_Item]):
    """Processes items until another runner replaces it."""

    def __init__(
        self, todo: Iterator[_Item], work: Callable[[_Item], None], all_begun: threading.Event
    ) -> None:
        super().__init__(daemon=True)
        self._todo = todo
        self._work = work
        self._all_begun = all_begun
        self.since = time.monotonic()
        self.item: _Item | None = None
        self.is_last = False
        """Whether another runner has replaced this one."""

    @property
    def is_slow(self) -> bool:
        """Whether its item takes so long that another runner should process the others."""
        return self.item is not None and time.monotonic() - self.since > _QUICK_S

    def run(self) -> None:
        """Process items until the list is empty or another runner replaces this one."""
        while not self.is_last:
            # Another thread reads both fields, so the time must be set before the item.
            self.since = time.monotonic()
            # next() of a list's iterator is atomic under the interpreter's lock.
            self.item = next(self._todo, None)
            if self.item is None:
                self._all_begun.set()
                return
            self._work(self.item)
            self.item = None


def _start_runner(
    todo: Iterator[_Item], work: Callable[[_Item], None], all_begun: threading.Event
) -> _Runner[_Item]:
    runner = _Runner(todo, work, all_begun)
    runner.start()
    return runner
