"""Items in turn: a hung item does not block the others, and is not started a second time."""

from __future__ import annotations

import math
import threading
from typing import TYPE_CHECKING, Final

import pytest

from rbdagent.collect import parallel
from rbdagent.collect.parallel import InTurn, Left

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

SOON_S: Final = 0.2
"""Patience with a hung item; no other item takes as long."""


class Work:
    """Does items; some hang until they are released."""

    def __init__(self, *hanging: str) -> None:
        self.hanging = set(hanging)
        self.begun: list[str] = []
        self.ended: list[str] = []
        self.threads: set[int] = set()
        self.released = threading.Event()

    def __call__(self, item: str) -> None:
        self.begun.append(item)
        self.threads.add(threading.get_ident())
        if item in self.hanging:
            self.released.wait()
        self.ended.append(item)


@pytest.fixture
def hung() -> Iterator[Callable[..., Work]]:
    made: list[Work] = []

    def make(*hanging: str) -> Work:
        made.append(Work(*hanging))
        return made[-1]

    yield make
    for work in made:
        work.released.set()


def run(
    turns: InTurn[str], items: Sequence[str], work: Work, deadline: float = math.inf
) -> Left[str]:
    return turns.run(items, work, patience_s=SOON_S, deadline=deadline)


def run_groups(turns: InTurn[str], items: Sequence[str], work: Work) -> Left[str]:
    """Run items whose group is their first letter; those that begin with a dash have none."""
    return turns.run(
        items,
        work,
        patience_s=SOON_S,
        deadline=math.inf,
        group_of=lambda item: None if item[0] == "-" else item[0],
    )


def test_items_are_done_in_order_by_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel, "_QUICK_S", 60.0)
    work, items = Work(), [str(number) for number in range(1000)]
    assert run(InTurn(), items, work) == Left([], [], [])
    assert work.ended == items


def test_no_items_leave_nothing() -> None:
    assert run(InTurn(), [], Work()) == Left([], [], [])


def test_hung_item_does_not_block_the_others(hung: Callable[..., Work]) -> None:
    work = hung("b", "c")
    assert run(InTurn(), "abcd", work) == Left(["b", "c"], [], [])
    assert work.ended == ["a", "d"]
    assert len(work.threads) == 3


def test_hung_item_is_not_started_again_until_it_ends(hung: Callable[..., Work]) -> None:
    work, turns = hung("b"), InTurn[str]()
    run(turns, "abc", work)
    turns.notes["b"] = "noted"
    assert run(turns, "abc", work) == Left(["b"], [], [])
    assert work.begun.count("b") == 1
    assert turns.notes == {"b": "noted"}
    work.released.set()
    for thread in threading.enumerate():
        if thread.ident in work.threads:
            thread.join()
    assert run(turns, "abc", work) == Left([], [], [])
    assert work.begun.count("b") == 2
    assert turns.notes == {}


def test_slow_item_is_done(hung: Callable[..., Work]) -> None:
    """Release the first item from the last one, long after another thread has continued."""
    work = hung("a")
    work_off = work.__call__

    def releasing(item: str) -> None:
        if item == "c":
            work.released.set()
        work_off(item)

    assert InTurn[str]().run("abc", releasing, patience_s=60, deadline=math.inf) == Left([], [], [])
    assert sorted(work.ended) == ["a", "b", "c"]


def test_too_many_hung_items_leave_the_rest_waiting(
    hung: Callable[..., Work], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parallel, "_MOST_HUNG", 2)
    work = hung(*"abcdef")
    left = run(InTurn(), "abcdef", work)
    assert (*left.hung, *left.waiting) == tuple("abcdef")
    assert len(left.hung) == len(work.threads) <= 3


def test_item_not_started_at_the_deadline_waits(hung: Callable[..., Work]) -> None:
    work = hung("a")
    left = run(InTurn(), "abc", work, deadline=-math.inf)
    assert (*left.hung, *left.waiting) == tuple("abc")
    assert "b" in left.waiting


def test_hung_items_of_earlier_runs_do_not_count(
    hung: Callable[..., Work], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parallel, "_MOST_HUNG", 2)
    work, turns = hung(*"abcdef"), InTurn[str]()
    while len(run(turns, "abcdef", work).hung) < 6:
        pass
    assert run(turns, "abcdefgh", work) == Left([*"abcdef"], [], [])
    assert work.ended == ["g", "h"]


def test_slow_items_continue_however_many_hang_since_earlier_runs(
    hung: Callable[..., Work], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Release the first two items from the third one, which begins when both are slow."""
    monkeypatch.setattr(parallel, "_MOST_THREADS", 3)
    turns = InTurn[str]()
    run(turns, "ABCDE", hung(*"ABCDE"))
    work = hung("a", "b")
    work_off = work.__call__

    def releasing(item: str) -> None:
        if item == "c":
            work.released.set()
        work_off(item)

    left = turns.run([*"abc", "d"], releasing, patience_s=60, deadline=math.inf)
    assert left == Left([], [], [])
    assert sorted(work.ended) == [*"abcd"]


def test_one_hung_item_skips_the_rest_of_its_group_if_many_hang(
    hung: Callable[..., Work], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The number of threads then grows by one for each group at most."""
    monkeypatch.setattr(parallel, "_MANY_HUNG", 2)
    items = ["a0", "a1", "b0", "b1"]
    work, turns = hung(*items), InTurn[str]()
    assert run_groups(turns, ["a0", "b0"], work) == Left(["a0", "b0"], [], [])
    items += ["c0", "c1", "d"]
    work.hanging |= {"c0", "c1"}
    left = run_groups(turns, items, work)
    assert left == Left(["a0", "b0", "c0"], [], ["a1", "b1", "c1"])
    assert work.ended == ["d"]


def test_three_hung_items_of_a_group_skip_the_rest_of_it(hung: Callable[..., Work]) -> None:
    items = [f"a{number}" for number in range(9)]
    work, turns = hung(*items), InTurn[str]()
    left = run_groups(turns, [*items, "b0", "-", "b1"], work)
    assert left == Left(items[:3], [], items[3:])
    assert work.ended == ["b0", "-", "b1"]
    assert run_groups(turns, [*items, "b2"], work) == left
    assert work.begun.count("a0") == 1


def test_items_without_a_group_are_not_skipped(hung: Callable[..., Work]) -> None:
    items = [f"-{number}" for number in range(9)]
    assert run_groups(InTurn(), items, hung(*items)).hung == items


def test_slow_items_of_a_group_do_not_skip_the_rest_of_it(hung: Callable[..., Work]) -> None:
    """Release the first items from another group's item, which begins when the rest is blocked."""
    work = hung("a0", "a1", "a2")
    work_off = work.__call__

    def releasing(item: str) -> None:
        if item == "b":
            work.released.set()
        work_off(item)

    left = InTurn[str]().run(
        ["a0", "a1", "a2", "a3", "b"],
        releasing,
        patience_s=60,
        deadline=math.inf,
        group_of=lambda item: item[0],
    )
    assert left == Left([], [], [])
    assert sorted(work.ended) == ["a0", "a1", "a2", "a3", "b"]
