"""Calls in threads: slow calls get more threads, and late calls have no result."""

from __future__ import annotations

import threading
import time

from rbdagent.collect.parallel import THREADS, all_of


def soon() -> float:
    """Return a deadline that no test reaches."""
    return time.monotonic() + 60


def test_results_are_in_the_order_of_their_calls() -> None:
    numbers = range(5 * THREADS)
    assert all_of([lambda number=number: number for number in numbers], soon()) == [*numbers]  # type: ignore[misc]


def test_error_is_the_result_of_its_call() -> None:
    error = ValueError("unexpected")

    def fail() -> int:
        raise error

    assert all_of([fail, lambda: 1], soon()) == [error, 1]


def test_slow_calls_get_a_thread_each_up_to_the_limit() -> None:
    together = threading.Barrier(THREADS)
    found = all_of([lambda: together.wait(60) >= 0] * 2 * THREADS, soon())
    assert found == [True] * 2 * THREADS


def test_calls_that_hang_delay_no_other_call() -> None:
    released = threading.Event()
    hung = [lambda: released.wait(60)] * (THREADS - 1)
    assert all_of([*hung, released.set], soon()) == [True] * (THREADS - 1) + [None]


def test_call_without_a_result_at_the_deadline_is_none() -> None:
    released = threading.Event()
    try:
        assert all_of([lambda: released.wait(60)], time.monotonic()) == [None]
    finally:
        released.set()
