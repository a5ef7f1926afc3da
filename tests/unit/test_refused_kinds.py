"""Recorded states without one kind of object: what was not observed is no cause.

A user may lack the right for any kind. The state then has its cause, or less: no code that the
whole state does not have, but for those that state what is missing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from rbdagent.correlate import correlate
from rbdagent.lifecycle.steps import lifecycle_of
from rbdagent.model import CODES_OF_GAPS, NotObserved, Severity
from rbdagent.report.snapshot import load_snapshot
from tests.support.lifecycle_states import FIXTURES
from tests.support.rows import each_row

if TYPE_CHECKING:
    from rbdagent.model import Snapshot

STATES: Final = sorted(file.stem for file in FIXTURES.glob("*.json"))
KINDS: Final = (
    "persistent_volumes", "claims", "pods", "nodes", "csi_nodes", "attachments", "events",
    "storage_classes", "workloads", "drivers", "leases", "driver_pods", "published",
)  # fmt: skip
REFUSED: Final = NotObserved(reason="is forbidden", hint="grant the permission")
LESS: Final = CODES_OF_GAPS | {"RBD119", "RBD403", "RBD415", "RBD606", "RBD640"}
"""Codes that state what was not observed, or no more than a part of the state."""
ALSO_TRUE: Final[dict[str, set[str]]] = {
    "claims": {"RBD701"},
    "persistent_volumes": {"RBD401", "RBD601", "RBD736", "RBD738"},
    "pods": {"RBD401", "RBD701", "RBD736", "RBD738"},
    "attachments": {"RBD401"},
    "csi_nodes": {"RBD724"},
    "drivers": {"RBD731"},
    # RBD416 names the clients of no known node: tests/unit/test_diagnose_rules.py.
    "nodes": {"RBD416", "RBD617"},
}
"""Codes that are true of the whole state too, where a code with more details replaces them."""


def problem_codes(snapshot: Snapshot) -> set[str]:
    found = lifecycle_of(correlate(snapshot), snapshot).findings
    return {str(one.code) for one in found if one.severity is not Severity.INFO}


@each_row("state", STATES)
def test_refused_kind_leads_to_no_other_cause(state: str) -> None:
    seen = load_snapshot((FIXTURES / f"{state}.json").read_text(), where=state)
    assert seen.kubernetes is not None
    whole = problem_codes(seen)
    for kind in KINDS:
        if isinstance(getattr(seen.kubernetes, kind), NotObserved):
            continue
        without = replace(seen, kubernetes=replace(seen.kubernetes, **{kind: REFUSED}))
        assert problem_codes(without) - whole - LESS - ALSO_TRUE.get(kind, set()) == set(), kind
