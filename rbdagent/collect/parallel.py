"""Calls that may hang, in parallel or one after the other; late calls stay in their threads."""

from __future__ import annotations

import contextlib
import contextvars
import functools
import queue
import threading
import time
from collections import Counter, deque
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, Self, TypeVar

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
"""An item that takes longer no longer delays the others, unless the caller sets another limit."""
_MOST_HUNG: Final = 64
"""Limit of items that begin to hang in one call."""
_MOST_THREADS: Final = 192
"""Limit of all items that hang, apart from the next number: the systemd unit allows 256 threads
(``TasksMax=``)."""
_FEWEST_HUNG: Final = 16
"""So many items may be slow at once, or begin to hang, in each call: however many hang already."""
_MOST_OF_GROUP: Final = 3
_MANY_HUNG: Final = 96
"""From this number of items that hang on, the limit of a group is 1: then the number of threads
grows only by groups of which nothing hangs yet, and by items without a group."""


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


def once_for_all_threads(call: Callable[..., _T]) -> Callable[..., _T]:
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
    skipped: list[_Item]
    """Items that were not started, because other items of their group hang."""


class InTurn(Generic[_Item]):
    """Processes items one after the other; a slow item continues in parallel with the next ones.

    An item that hangs stays in its thread, and is not started again while it hangs. So only items
    that hang keep a thread. These threads end with the process. Items that hang since an earlier
    call never prevent this one: some items may always begin to hang. Otherwise, a sufficient number
    of them would make every later call end at its first slow items.
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
        group_of: Callable[[_Item], Hashable] = lambda _: None,
        quick_s: float | None = None,
    ) -> Left[_Item]:
        """Process items.

        Args:
            items: without duplicates.
            work: processes an item, and never raises; it may end after this call has returned.
            patience_s: the time limit of one item.
            deadline: of the monotonic clock, for all items.
            group_of: returns the group of an item, also of one that hangs since an earlier call.
                While three items of a group are slow, its other items are not started. None is the
                group without this limit.
            quick_s: after this time, an item is slow: others continue beside it.
        """
        quick_s = _QUICK_S if quick_s is None else quick_s
        self._hung = {item: runner for item, runner in self._hung.items() if runner.is_alive()}
        self.notes = {item: note for item, note in self.notes.items() if item in self._hung}
        known = [item for item in items if item in self._hung]
        of_group = _MOST_OF_GROUP if len(self._hung) < _MANY_HUNG else 1
        todo = _Todo([item for item in items if item not in self._hung], group_of, of_group)
        for item in self._hung:
            todo.block(item)
        most = min(_MOST_HUNG, max(_FEWEST_HUNG, _MOST_THREADS - len(self._hung)))
        runners = [_Runner.started(todo, work)]
        while not todo.is_over.wait(quick_s):
            if time.monotonic() > deadline or len(runners) > most:
                break
            if runners[-1].is_slow(quick_s) and todo.go_on_without(runners[-1]):
                runners = [runner for runner in runners if runner.is_alive()]
                runners.append(_Runner.started(todo, work))
            elif todo.is_blocked and not any(_is_awaited(runner, patience_s) for runner in runners):
                break
        left = Left(known, *todo.close())
        for runner in runners:
            until = min(runner.since + patience_s, deadline)
            runner.join(max(0.0, until - time.monotonic()))
            hung = runner.item
            if runner.is_alive() and hung is not None:
                self._hung[hung] = runner
                left.hung.append(hung)
        return left


def _is_awaited(runner: _Runner[_Item], patience_s: float) -> bool:
    return runner.item is not None and time.monotonic() < runner.since + patience_s


class _Todo(Generic[_Item]):
    """The items that are not started, for several threads."""

    def __init__(
        self, items: Sequence[_Item], group_of: Callable[[_Item], Hashable], most_of_group: int
    ) -> None:
        self._items = deque(items)
        self._group_of = group_of
        self._most_of_group = most_of_group
        self._slow: Counter[Hashable] = Counter()
        """The number of slow items by group."""
        self._blocked: dict[Hashable, list[_Item]] = {}
        """The items whose group has too many slow items."""
        self._changed = threading.Condition()
        self.is_over = threading.Event()
        """Set when every item is started."""

    def block(self, item: _Item) -> None:
        """Count an item that hangs."""
        self._slow[self._group_of(item)] += 1

    def next_for(self, runner: _Runner[_Item]) -> _Item | None:
        """Return the next item, and store it in its runner; None if there is no more."""
        with self._changed:
            while not self.is_over.is_set():
                while self._items:
                    item = self._items.popleft()
                    group = self._group_of(item)
                    if group is None or self._slow[group] < self._most_of_group:
                        # Another thread reads both fields, so the time must be set before the item.
                        runner.since = time.monotonic()
                        runner.item = item
                        return item
                    self._blocked.setdefault(group, []).append(item)
                if not self._blocked:
                    self.is_over.set()
                else:
                    self._changed.wait()
            self._changed.notify_all()
            return None

    @property
    def is_blocked(self) -> bool:
        """Whether the only items left are those of groups with too many slow items."""
        with self._changed:
            return bool(self._blocked) and not self._items

    def go_on_without(self, runner: _Runner[_Item]) -> bool:
        """Replace a slow runner, which ends after its item; return False if it has no item left."""
        with self._changed:
            if runner.item is None:
                return False
            runner.is_last = True
            self.block(runner.item)
            return True

    def end_item(self, runner: _Runner[_Item]) -> bool:
        """Record that an item has ended; return whether its runner takes another one."""
        with self._changed:
            item, runner.item = runner.item, None
            if runner.is_last and item is not None:
                group = self._group_of(item)
                self._slow[group] -= 1
                self._items.extendleft(reversed(self._blocked.pop(group, [])))
                self._changed.notify_all()
            return not runner.is_last

    def close(self) -> tuple[list[_Item], list[_Item]]:
        """Start no more items; return those that were not started, and those that are blocked."""
        with self._changed:
            waiting, self._items = list(self._items), deque()
            skipped = [item for items in self._blocked.values() for item in items]
            self._blocked.clear()
            self.is_over.set()
            self._changed.notify_all()
            return waiting, skipped


class _Runner(threading.Thread, Generic[_Item]):
    """Processes items until another runner replaces it."""

    def __init__(self, todo: _Todo[_Item], work: Callable[[_Item], None]) -> None:
        super().__init__(daemon=True)
        self._todo = todo
        self._work = work
        self.since = time.monotonic()
        self.item: _Item | None = None
        self.is_last = False
        """Whether another runner has replaced this one."""

    @classmethod
    def started(cls, todo: _Todo[_Item], work: Callable[[_Item], None]) -> Self:
        """Start a runner."""
        runner = cls(todo, work)
        runner.start()
        return runner

    def is_slow(self, quick_s: float) -> bool:
        """Return whether its item takes so long that another runner should process the others."""
        return self.item is not None and time.monotonic() - self.since > quick_s

    def run(self) -> None:
        """Process items until none is left or another runner replaces this one."""
        while (item := self._todo.next_for(self)) is not None:
            self._work(item)
            if not self._todo.end_item(self):
                return
