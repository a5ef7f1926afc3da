"""What wakes an agent: this machine's own kernel, and the agent's other threads."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rbdagent.agent.wake import Wake

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def wake() -> Iterator[Wake]:
    """An agent has one as long as it lives; what it listens to is never closed."""
    made = Wake(Path("/proc"))
    yield made
    if made._uevents is not None:
        made._uevents.close()


def test_a_wait_without_any_time_tells_what_came_before(wake: Wake) -> None:
    """An agent rests after a look, perhaps as long as it would have waited."""
    assert wake.wait(0) == "time"
    wake.tell()
    assert wake.wait(0) == "change"
    assert wake.wait(0) == "time"


def test_the_end_comes_before_all_else(wake: Wake) -> None:
    wake.tell()
    wake.end()
    assert wake.rest(0)
    assert wake.wait(60) == "end"
