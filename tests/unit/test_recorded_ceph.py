"""Recorded states of real Ceph clusters, and what is reported first about each."""

from __future__ import annotations

from typing import Final

from rbdagent.correlate import correlate
from rbdagent.rules import diagnose
from tests.support.consistency import advice_that_loses_data, contradictions
from tests.support.recorded_ceph import RECORDED, recorded
from tests.support.rows import each_row

STATES: Final = {
    "osd-paused": ("RBD905", "rbd_id.placed is in PG 1.7, whose primary is osd.0"),
    "osd-down": ("RBD905", "rbd_id.placed is in PG 1.7, which no OSD serves"),
    "trash-kept-by-a-clone": ("RBD302", "It still has a snapshot"),
    "mirror-not-running": ("RBD135", "The rbd-mirror daemon of this cluster does not run"),
    "two-primaries": ("RBD134", "is primary in this cluster, and the peer cluster reported at"),
    "split-brain": ("RBD133", "A resync discards one side: decide which one first"),
}
"""Recording -> code and words of the finding that explains it."""
UNDETERMINED: Final = "RBD119"
"""It is before the code of a state in which Ceph does not show the holders."""


def test_each_recording_has_a_row() -> None:
    assert {path.stem for path in RECORDED.glob("*.json")} == STATES.keys()


@each_row("name", STATES)
def test_recorded_state_has_its_cause_first(name: str) -> None:
    code, words = STATES[name]
    seen = recorded(name)
    diagnosis = diagnose(correlate(seen), seen)
    first = next(found for found in diagnosis.findings if found.code != UNDETERMINED)
    assert first.code == code
    assert words in first.message
    assert list(contradictions(diagnosis)) == []
    assert advice_that_loses_data(diagnosis.findings) == []
