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

SAYS: Final[dict[str, frozenset[str]]] = {
    "no_class": frozenset({"RBD602"}),
    "class_missing": frozenset({"RBD601"}),
    "class_of_a_removed_plugin": frozenset({"RBD616"}),
    "class_that_makes_none": frozenset({"RBD602"}),
    "nothing_fits": frozenset({"RBD602"}),
    "selector_with_a_provisioner": frozenset({"RBD620"}),
    "provisioner_silent": frozenset({"RBD617"}),
    "pool_missing": frozenset({"RBD607"}),
    "files_for_many_writers": frozenset({"RBD621"}),
    "first_pod_missing": frozenset(),
    "first_pod_without_node": frozenset({"RBD604"}),
    "first_pod_past_the_scheduler": frozenset({"RBD623"}),
    "selected_node_gone": frozenset({"RBD622"}),
    "named_volume_missing": frozenset({"RBD609"}),
    "named_volume_taken": frozenset({"RBD624"}),
    "named_volume_too_small": frozenset({"RBD610"}),
    "kept_volume_does_not_fit": frozenset({"RBD625"}),
    "lost_its_volume_name": frozenset({"RBD630"}),
    "lost_its_volume": frozenset({"RBD631"}),
    "misbound_after_a_restore": frozenset({"RBD404"}),
    "kept_for_nobody": frozenset(),
    "released_and_retained": frozenset(),
    "released_and_wanted_again": frozenset({"RBD624"}),
    "deleted_while_watched": frozenset({"RBD115", "RBD641"}),
    "deleted_by_nobody": frozenset({"RBD643"}),
    "reclaim_failed": frozenset({"RBD612"}),
    "claim_kept_by_a_pod": frozenset({"RBD613"}),
    "claim_kept_by_a_strange_finalizer": frozenset({"RBD652"}),
    "volume_deleted_before_its_claim": frozenset({"RBD614"}),
}
"""What is said at warning or above of each state of tests/integration/states.py."""

SAYS_OF_THE_FOUNDING_INCIDENT: Final[dict[str, frozenset[str]]] = {
    "founding_pinned": frozenset({"RBD102"}),
    "founding_orphan": frozenset({"RBD101", "RBD402"}),
}
"""The same of tests/e2e/test_founding_incident.py."""

CURED: Final = (
    "nothing_fits",
    "first_pod_past_the_scheduler",
    "selected_node_gone",
    "misbound_after_a_restore",
    "released_and_wanted_again",
    "deleted_by_nobody",
    "reclaim_failed",
)
"""States that end when the commands of their first finding are typed."""


def test_each_state_that_is_made_has_a_file_and_no_other() -> None:
    assert {each.stem for each in FIXTURES.glob("*.json")} == (
        SAYS | SAYS_OF_THE_FOUNDING_INCIDENT
    ).keys()


@pytest.mark.parametrize("state", SAYS | SAYS_OF_THE_FOUNDING_INCIDENT)
def test_a_recorded_state_is_recognised_from_its_file(state: str) -> None:
    file = FIXTURES / f"{state}.json"
    snapshot = load_snapshot(file.read_text(), where=file.name)
    life = life_of(correlate(snapshot), snapshot)
    told = {each.code for each in life.findings if each.severity is not Severity.INFO}
    assert told == (SAYS | SAYS_OF_THE_FOUNDING_INCIDENT)[state]
