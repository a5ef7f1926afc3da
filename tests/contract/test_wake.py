"""What wakes an agent: the kernel of this machine, and other threads of the agent."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rbdagent.agent.kernel_events import Wake

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def wake() -> Iterator[Wake]:
    """Yield a `Wake` and close its socket afterwards; an agent keeps its socket until it exits."""
    made = Wake(Path("/proc"))
    yield made
    if made._uevents is not None:
        made._uevents.close()


def test_wait_of_zero_seconds_returns_the_earlier_cause(wake: Wake) -> None:
    """An agent rests after a cycle, possibly as long as it would have waited."""
    assert wake.wait(0) == "time"
    wake.tell()
    assert wake.wait(0) == "change"
    assert wake.wait(0) == "time"


def test_end_takes_precedence(wake: Wake) -> None:
    wake.tell()
    wake.end()
    assert wake.rest(0)
    assert wake.wait(60) == "end"
