"""RBD401, RBD408 to RBD413, RBD71x: attach and detach findings that come from API objects."""

from __future__ import annotations

from typing import Final

import pytest

from rbdagent.model import ContainerState, Severity, Snapshot
from tests.support.rule_rows.attach_detach import (
    BOTH_LIST,
    LATELY,
    NOT_REPORTED,
    REPORTED,
    USED_BY,
    alone,
    waiting,
)
from tests.support.rule_tables import (
    attached,
    listing,
    not_reported_rows,
    problem_codes,
    reported_rows,
)
from tests.support.snapshots import (
    BY_IMAGE,
    JUST_NOW,
    LONG_AGO,
    PV,
    UNSEEN,
    attachment,
    codes,
    found,
    node,
    pod,
    unmapped,
    waiting_pod,
)

RUNNING: Final = ContainerState(name="c", state="running")


@pytest.mark.parametrize(("code", "seen", "beside"), reported_rows(REPORTED))
def test_code_is_reported_and_only_the_expected_others(
    code: str, seen: Snapshot, beside: set[str]
) -> None:
    finding = found(seen, code)
    assert finding.remedy
    assert finding.recovery is not None
    assert "None" not in finding.message
    assert problem_codes(seen) - {code} == beside


@pytest.mark.parametrize(("code", "seen"), not_reported_rows(NOT_REPORTED))
def test_similar_state_is_reported_without_the_code(code: str, seen: Snapshot) -> None:
    assert code not in codes(seen)


# --------------------------------------------------------------------------------------------------
# Messages, evidence and recovery
# --------------------------------------------------------------------------------------------------


def test_evidence_states_why_no_event_exists() -> None:
    finding = found(waiting(), "RBD401")
    assert "default/web-1 waits: the controller will not attach" in finding.message
    assert "while its cached state lists the volume on another node (worker-1)." in finding.message
    assert "no event shows it:" in finding.evidence[0]


def test_old_event_is_shown_with_its_age() -> None:
    evidence = found(waiting(USED_BY), "RBD401").evidence
    assert "Multi-Attach error" in evidence[0]
    assert evidence[1] == "sent 20m ago: the controller sends it once"


def test_recently_moved_pod_is_not_an_error() -> None:
    young = waiting_pod(placed_at=LATELY, created_at=LONG_AGO)
    assert found(waiting(pods=(young, pod())), "RBD401").severity is Severity.INFO
    ending = pod(deleting_since="2026-11-21T03:00:20Z", containers=(RUNNING,))
    assert problem_codes(waiting(pods=(waiting_pod(), ending))) == set()
    ended = pod(deleting_since="2026-11-21T03:00:20Z", phase="Succeeded")
    assert problem_codes(waiting(pods=(waiting_pod(), ended))) == set()


LETS_GO: Final = {"attachments": attached("worker-2"), "nodes": (node(), listing("worker-2"))}


@pytest.mark.parametrize(
    "seen",
    [
        pytest.param(alone(pods=(), **LETS_GO), id="scaled to none"),
        pytest.param(alone(pods=(pod(node="worker-2", phase="Succeeded"),), **LETS_GO), id="a Job"),
        pytest.param(
            alone(pods=(waiting_pod(node="worker-1", placed_at=LATELY),), **LETS_GO), id="a move"
        ),
        pytest.param(
            alone(pods=(), attachments=attached("worker-1"), nodes=(listing("worker-1"),)),
            id="on the observing node",
        ),
    ],
)
def test_volume_that_kubelet_just_released_is_not_an_error(seen: Snapshot) -> None:
    """Assert no error: volumesInUse changes up to ten seconds after the watcher ends (recorded)."""
    assert problem_codes(seen) == set()
    assert "RBD120" in codes(seen)


def test_stale_attachment_is_an_error_once_a_pod_has_waited() -> None:
    """Assert INFO at first: one snapshot cannot show whether the controller is about to fix it."""
    stale = {"attachments": attached("worker-2"), "nodes": (node(), node("worker-2"))}
    assert found(alone(pods=(), **stale), "RBD408").severity is Severity.INFO
    moved = waiting_pod(node="worker-1", placed_at=LATELY)
    assert found(alone(pods=(moved,), **stale), "RBD408").severity is Severity.INFO
    waits = waiting_pod(node="worker-1")
    assert found(alone(pods=(waits,), **stale), "RBD408").severity is Severity.ERROR


def test_stale_attachment_to_a_node_that_is_down_is_a_problem() -> None:
    down = listing("worker-2", ready=False, ready_changed_at=LONG_AGO)
    seen = alone(pods=(), attachments=attached("worker-2"), nodes=(node(), down))
    assert "RBD408" in problem_codes(seen)


def test_abandoned_attach_is_not_an_error() -> None:
    """Assert no error: the object keeps the error of the last attempt until it is deleted."""
    given_up = attached("worker-2", attached=False, attach_error="no luck", deleting_since=LATELY)
    assert problem_codes(alone(pods=(), attachments=given_up)) == set()


def test_waiting_pods_are_named_together() -> None:
    seen = waiting(pods=(waiting_pod(), waiting_pod("web-2", "worker-3"), pod()))
    assert found(seen, "RBD401").message.startswith("default/web-1, default/web-2 wait: ")


def test_attacher_error_is_explained_like_an_event() -> None:
    error = "rpc error: code = ResourceExhausted desc = too many volumes"
    seen = alone(attachments=attached("worker-2", attached=False, attach_error=error))
    finding = found(seen, "RBD703")
    assert "worker-2: the node accepts no more volumes" in finding.message
    unknown = alone(attachments=attached("worker-2", attached=False, attach_error="no luck"))
    assert found(unknown, "RBD413").message == f'{PV} cannot be attached to worker-2: "no luck".'


def test_error_without_recovery_is_reported_as_not_automatic() -> None:
    gone = 'persistentvolume "x" not found'
    seen = alone(attachments=attached("worker-1", deleting_since=JUST_NOW, detach_error=gone))
    assert (
        str(found(seen, "RBD409").recovery)
        == "not automatic: external-attacher does not find the PV again"
    )


def test_attachment_to_a_deleted_node_ends_within_440_seconds() -> None:
    seen = alone(attachments=attached("worker-9"))
    recovery = found(seen, "RBD410").recovery
    assert recovery is not None
    assert recovery.within_s == 440


def test_attachment_to_a_deleted_node_is_an_error_if_a_pod_waits() -> None:
    waited = waiting(attachments=attached("worker-9"), pods=(waiting_pod(),))
    assert found(waited, "RBD410").severity is Severity.ERROR
    free = alone(pods=(), attachments=attached("worker-9"))
    assert found(free, "RBD410").severity is Severity.WARNING


def test_stale_attachment_to_a_down_node_is_force_detached() -> None:
    down = alone(pods=(), attachments=attached("worker-2"),
                 nodes=(node(), node("worker-2", ready=None)))  # fmt: skip
    finding = found(down, "RBD408")
    assert "by force six minutes after" in finding.message
    assert finding.recovery is not None
    assert finding.recovery.within_s == 360


def test_two_attachments_name_the_one_being_detached() -> None:
    leaving = attachment("worker-1", deleting_since=JUST_NOW)
    seen = waiting(attachments=(leaving, attachment("worker-2")), nodes=BOTH_LIST)
    assert "Being detached: worker-1." in found(seen, "RBD717").message


@pytest.mark.parametrize(
    ("created_at", "severity"), [(LATELY, Severity.INFO), (LONG_AGO, Severity.WARNING)]
)
def test_two_attachments_are_a_warning_once_they_have_lasted(
    created_at: str, severity: Severity
) -> None:
    """Random use had two for a moment: the volume followed its pod on a busy control plane."""
    there = attachment("worker-1"), attachment("worker-2", created_at=created_at)
    seen = waiting(attachments=there, nodes=BOTH_LIST)
    assert found(seen, "RBD717").severity is severity


@pytest.mark.parametrize(("deleting_since", "expected"), [(LONG_AGO, "RBD409"), (None, "RBD410")])
def test_attachment_to_a_node_that_is_gone_is_reported_once(
    deleting_since: str | None, expected: str
) -> None:
    """A detachError remains after an attachment is no longer being detached."""
    there = attachment("worker-9", detach_error="no such node", deleting_since=deleting_since)
    seen = waiting(attachments=(there,), nodes=BOTH_LIST)
    assert codes(seen) & {"RBD409", "RBD410"} == {expected}


def test_attachment_is_not_called_idle_while_the_claim_of_the_volume_is_unknown() -> None:
    seen = unmapped(
        target=BY_IMAGE,
        in_kube={
            "persistent_volumes": UNSEEN,
            "attachments": (attachment("worker-2"),),
            "pods": (pod(node="worker-2"),),
        },
    )
    assert "RBD715" not in codes(seen)
