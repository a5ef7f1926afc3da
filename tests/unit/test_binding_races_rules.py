"""RBD634, RBD635: what decides about a claim's volume before it is bound."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rbdagent.commands import lines_of
from rbdagent.model import Severity
from tests.support.rows import each_row
from tests.support.rule_rows.binding_races import NOT_REPORTED, REPORTED, waiting
from tests.support.rule_rows.pv_controller import free
from tests.support.rule_tables import not_reported_rows, problem_codes, reported_rows
from tests.support.snapshots import codes, found

if TYPE_CHECKING:
    from rbdagent.model import Snapshot


@each_row(("code", "seen", "beside"), reported_rows(REPORTED))
def test_code_is_reported_and_only_the_expected_others(
    code: str, seen: Snapshot, beside: set[str]
) -> None:
    finding = found(seen, code)
    assert finding.severity is Severity.INFO
    assert problem_codes(seen) - {code} == beside


@each_row(("code", "seen"), not_reported_rows(NOT_REPORTED))
def test_similar_state_is_reported_without_the_code(code: str, seen: Snapshot) -> None:
    assert code not in codes(seen)


def test_no_command_binds_a_volume_that_the_claim_may_not_want() -> None:
    """Which data the claim is to get is not in a snapshot."""
    one, two = (found(seen, "RBD634") for seen in (waiting(free()), waiting(free(), free("b"))))
    shown = ("kubectl describe pv pv-free", "rbdagent who-holds pv/pv-free")
    assert lines_of(one.commands) == shown
    assert two.commands == ()


def test_finding_names_what_the_scheduler_chooses_from() -> None:
    text = found(waiting(free(), free("b")), "RBD634").message
    assert "b, pv-free fit it" in text or "pv-free, b fit it" in text
    assert "creates a new, empty volume" in text
