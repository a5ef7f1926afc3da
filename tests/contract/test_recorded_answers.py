"""Answers from snapshots that tests on real parts wrote: tests/fixtures/{drain,lint,ceph}."""

from __future__ import annotations

from typing import Final

import pytest

from tests.support.cli_runner import ROOT, Done, ask

FIXTURES: Final = ROOT / "tests" / "fixtures"
DRAINS: Final = {
    ("budget-refuses", ()): ("blocked", ["refused-pod"]),
    ("left-mapped", ("--after",)): ("blocked", ["mapped"]),
    ("clean", ("--after",)): ("clear", []),
}
"""tests/integration/test_drain_check.py records them."""
FINDINGS: Final = {
    "lint/released_by_a_restore": ("diagnose", "pvc/default/restored", "RBD404"),
    "ceph/trash-kept-by-a-clone": ("who-holds", "k8s/deleted", "RBD302"),
}
"""test_lint.py and test_ceph_daemons.py of that folder record them."""


def answer(recording: str, *words: str) -> Done:
    return ask(*words, "--from", str(FIXTURES / f"{recording}.json"), "-o", "json")


@pytest.mark.parametrize(("recording", "flags"), DRAINS, ids="".join)
def test_recorded_drain_is_in_its_state(recording: str, flags: tuple[str, ...]) -> None:
    found = answer(f"drain/{recording}", "drain-check", "played-drained", *flags).data
    steps = [item["step"] for item in found["items"]]
    assert (found["state"], steps) == DRAINS[recording, flags]


@pytest.mark.parametrize("recording", FINDINGS)
def test_recorded_state_has_its_finding(recording: str) -> None:
    verb, target, code = FINDINGS[recording]
    assert code in [finding["code"] for finding in answer(recording, verb, target).data["findings"]]
