"""The life of a volume, on snapshots of what real controllers had made."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from rbdagent.correlate import correlate
from rbdagent.diagnose.life import life_of
from rbdagent.model import Severity
from rbdagent.report.snapshot import load_snapshot

FIXTURES: Final = Path(__file__).parents[1] / "fixtures" / "life"

SAYS: Final[dict[str, frozenset[str]]] = {}
"""What is said at warning or above of each state of tests/integration/states.py."""

CURED: Final[tuple[str, ...]] = ()
"""States that end when the commands of their first finding are typed."""


@pytest.mark.parametrize("state", SAYS)
def test_a_recorded_state_is_recognised_from_its_file(state: str) -> None:
    file = FIXTURES / f"{state}.json"
    snapshot = load_snapshot(file.read_text(), where=file.name)
    life = life_of(correlate(snapshot), snapshot)
    told = {each.code for each in life.findings if each.severity is not Severity.INFO}
    assert told == SAYS[state]
