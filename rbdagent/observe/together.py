"""Calls that may hang, made at once or in turn; what is late is left behind."""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator, Sequence

_T = TypeVar("_T")
THREADS: Final = 32
_QUICK_S: Final = 0.05
_MOST_HUNG: Final = 64


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


_Item = TypeVar("_Item", bound="Hashable")


class Left(NamedTuple, Generic[_Item]):
    """The items that were not worked off."""

    hung: list[_Item]
    """Begun, now or earlier, and not ended in time."""
    waiting: list[_Item]
    """Not begun: the time was over, or too many hang."""


class InTurn(Generic[_Item]):
    """Works items off one after the other; one that keeps the others waiting goes on beside them.

    What hangs is left behind in its thread, and is not begun again as long as it does: there are
    never more threads than items that hang. They end with the process.
    """

    def __init__(self) -> None:
        self._hung: dict[_Item, _Runner[_Item]] = {}
        self.notes: dict[_Item, str] = {}
        """What the caller notes of items that hang, as long as they do."""

    def run(
        self,
        items: Sequence[_Item],
        work: Callable[[_Item], None],
        *,
        patience_s: float,
        deadline: float,
    ) -> Left[_Item]:
        """Work items off.

        Args:
            items: each once.
            work: raises nothing. After what was left behind here it may still end.
            patience_s: how long each item may take.
            deadline: of the monotonic clock, for all of them.
        """
        self._hung = {item: runner for item, runner in self._hung.items() if runner.is_alive()}
        self.notes = {item: note for item, note in self.notes.items() if item in self._hung}
        todo = iter([item for item in items if item not in self._hung])
        left = Left([item for item in items if item in self._hung], [])
        all_begun = threading.Event()
        runners = [_begun(todo, work, all_begun)]
        while not all_begun.wait(_QUICK_S):
            if time.monotonic() > deadline or len(self._hung) + len(runners) > _MOST_HUNG:
                break
            if runners[-1].is_slow:
                runners[-1].is_last = True
                runners = [runner for runner in runners if runner.is_alive()]
                runners.append(_begun(todo, work, all_begun))
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
    """Works items off until another one takes over."""

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
        """Another runner has taken over."""

    @property
    def is_slow(self) -> bool:
        """Whether the others have waited long enough for its item."""
        return self.item is not None and time.monotonic() - self.since > _QUICK_S

    def run(self) -> None:
        """Work."""
        while not self.is_last:
            # Both are set by one runner and read by the other thread: the time before the item.
            self.since = time.monotonic()
            # next() of a list's iterator is one step under the interpreter's lock.
            self.item = next(self._todo, None)
            if self.item is None:
                self._all_begun.set()
                return
            self._work(self.item)
            self.item = None


def _begun(
    todo: Iterator[_Item], work: Callable[[_Item], None], all_begun: threading.Event
) -> _Runner[_Item]:
    runner = _Runner(todo, work, all_begun)
    runner.start()
    return runner
