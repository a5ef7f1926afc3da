"""The state machine of a claim and its PV: its edges, and the codes on them."""

from __future__ import annotations

from typing import Final

import pytest

from rbdagent.binding import EDGES, ON_NO_EDGE, RACES, RUNS, State, branch_lines, edges_of
from rbdagent.catalog import CATALOG, explanation
from rbdagent.cli.pages import page_of
from rbdagent.codes import Code
from rbdagent.model import LifecycleStep
from rbdagent.report.snapshot import load_snapshot
from rbdagent.report.text.binding import binding_text
from rbdagent.report.text.layout import Layout
from rbdagent.rules import FINDINGS
from tests.support.cli_runner import ROOT

LIFE: Final = ROOT / "tests" / "fixtures" / "life"
STEPS: Final = {
    LifecycleStep.PROVISION,
    LifecycleStep.BIND,
    LifecycleStep.RELEASE,
    LifecycleStep.RECLAIM,
}
ON_EDGES: Final = {code for edge in EDGES for code in (*edge.taken, *edge.stuck)}


def test_every_code_of_the_steps_is_on_an_edge_or_exempt() -> None:
    wanted = {entry.code for entry in FINDINGS.values() if entry.step in STEPS}
    assert wanted - ON_EDGES == set(ON_NO_EDGE)


def test_no_code_on_an_edge_is_exempt() -> None:
    assert ON_EDGES & set(ON_NO_EDGE) == set()


def test_every_code_that_is_named_is_in_the_catalogue() -> None:
    of_races = {code for race in RACES for code in race.codes}
    assert (ON_EDGES | set(ON_NO_EDGE) | of_races) - set(CATALOG) == set()


def _object(state: State) -> str:
    return "claim" if state.startswith("claim") else "PV"


def test_an_edge_changes_one_object_and_may_bind_the_other() -> None:
    for edge in EDGES:
        phases = [*edge.sources, *([] if edge.target is None else [edge.target])]
        assert len({_object(phase) for phase in phases}) == 1, edge.branch
        if edge.other is not None:
            assert _object(edge.other) != _object(edge.sources[0]), edge.branch


def test_no_two_edges_of_a_function_have_the_same_condition() -> None:
    branches = [(edge.function, edge.condition) for edge in EDGES]
    assert len(branches) == len({*branches})


def test_every_edge_does_something_or_is_reported() -> None:
    assert [edge.branch for edge in EDGES if not (edge.states or edge.taken or edge.stuck)] == []


def test_every_function_has_an_edge() -> None:
    assert {edge.function for edge in EDGES} == set(RUNS)


def test_every_state_is_on_an_edge() -> None:
    assert {state for edge in EDGES for state in (*edge.sources, *edge.states)} == set(State)


def test_branch_names_function_condition_phase_and_event() -> None:
    (branch,) = branch_lines(Code.CLAIM_LOST)
    condition = "claimRef.uid differs, or claimRef has no uid"
    assert branch == f"syncBoundClaim: {condition} -> claim Lost, event ClaimMisbound"


def test_branch_that_is_only_due_says_so() -> None:
    assert all(line.endswith(" (not taken yet)") for line in branch_lines(Code.BINDING_DUE))


def test_code_without_an_edge_has_no_branch() -> None:
    assert branch_lines(Code.MAPPING_ORPHANED) == ()


def test_explanation_ends_with_the_branch() -> None:
    text = explanation(CATALOG[Code.VOLUME_GONE], page_of(Code.VOLUME_GONE))
    assert text.endswith(
        "\nBranch:   syncBoundClaim: the PV does not exist -> claim Lost, event ClaimLost"
    )


@pytest.mark.parametrize("width", [80, 100, 250])
def test_text_has_at_most_100_columns(width: int) -> None:
    assert max(map(len, binding_text(Layout(width=width)).splitlines())) <= min(width, 100)


def test_text_names_every_code() -> None:
    text = binding_text(Layout(width=100))
    assert {code for code in ON_EDGES | set(ON_NO_EDGE) if code not in text} == set()


@pytest.mark.parametrize(
    ("recording", "code"),
    [
        ("class_missing", Code.STORAGE_CLASS_MISSING),
        ("class_of_a_removed_plugin", Code.PLUGIN_REMOVED),
        ("class_that_makes_none", Code.NO_VOLUME_FITS),
        ("claimed_twice", Code.CLAIMED_TWICE),
        ("first_pod_missing", Code.WAITS_FOR_FIRST_POD),
        ("first_pod_without_node", Code.FIRST_POD_NOT_SCHEDULED),
        ("lost_its_volume", Code.VOLUME_GONE),
        ("lost_its_volume_name", Code.REFERENCE_LOST),
        ("misbound_after_a_restore", Code.CLAIM_LOST),
        ("named_volume_taken", Code.NAMED_VOLUME_TAKEN),
        ("named_volume_too_small", Code.NAMED_VOLUME_REFUSED),
        ("no_class", Code.NO_VOLUME_FITS),
        ("reclaim_failed", Code.RECLAIM_FAILED),
    ],
)
def test_real_controllers_recorded_the_event_of_the_branch(recording: str, code: Code) -> None:
    """The recordings are of the PV controller of Kubernetes 1.36."""
    path = LIFE / f"{recording}.json"
    kube = load_snapshot(path.read_text(), where=path.name).kubernetes
    assert kube is not None
    assert isinstance(kube.events, tuple)
    recorded = {event.reason for event in kube.events}
    assert recorded & {word for edge in edges_of(code) for word in edge.event.split()}


def test_a_named_volume_that_is_missing_has_no_event() -> None:
    path = LIFE / "named_volume_missing.json"
    kube = load_snapshot(path.read_text(), where=path.name).kubernetes
    assert kube is not None
    assert kube.events == ()
    assert [edge.event for edge in edges_of(Code.NAMED_VOLUME_MISSING)] == [""]
