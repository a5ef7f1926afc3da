"""RBD111 to RBD113, RBD704, RBD719, RBD72x: pods that share one volume or do not release it."""

from __future__ import annotations

from typing import Any, Final

import pytest
from msgspec.structs import replace

from rbdagent.commands import lines_of, sentence_of
from rbdagent.model import (
    CSINode,
    CsiSource,
    ProcessRef,
    Severity,
    Snapshot,
)
from tests.support.rows import each_row
from tests.support.rule_rows.termination import (
    ENDED,
    LATELY,
    LONG_SINCE,
    NEW,
    NOT_REPORTED,
    OLD,
    ONCE,
    REPORTED,
    RUNNING,
    SOON,
    deployment,
    leaving,
    replica_set,
    rolling,
    waiting,
)
from tests.support.rule_tables import (
    attached,
    listing,
    mounting,
    not_reported_rows,
    problem_codes,
    reported_rows,
)
from tests.support.snapshots import (
    ADDRESS,
    DRIVER,
    JUST_NOW,
    LIBRBD_COOKIE,
    PV,
    SPEC,
    UNSEEN,
    codes,
    diagnosis_of,
    found,
    node,
    pod,
    remote_watcher,
    volume,
    waiting_pod,
    world,
)


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


def test_rolling_update_deadlock_has_a_patch_of_the_deployment() -> None:
    finding = found(rolling(deployment()), "RBD111")
    assert "both belong to one workload, Deployment web" in finding.message
    patch = "kubectl -n default patch deployment web --type merge -p"
    recreate = '{"type":"Recreate","rollingUpdate":null}'
    no_surge = '{"type":"RollingUpdate","rollingUpdate":{"maxSurge":0,"maxUnavailable":1}}'
    assert lines_of(finding.commands) == (
        f"""{patch} '{{"spec":{{"strategy":{recreate}}}}}'""",
        f"""{patch} '{{"spec":{{"strategy":{no_surge}}}}}'  # instead, to keep rolling""",
    )
    assert (
        "Deployment/web: RollingUpdate, maxSurge 25%, maxUnavailable 25%, replicas 1"
        in finding.evidence
    )


def test_first_command_ends_the_rolling_update_deadlock() -> None:
    assert "Recreate" in lines_of(diagnosis_of(rolling(deployment())).next_commands)[0]


def test_replicas_are_reported_with_their_deployment() -> None:
    finding = found(REPORTED["RBD719"]["two replicas of a Deployment"][0], "RBD719")
    assert "replicas of Deployment web" in finding.message
    assert lines_of(finding.commands) == ("kubectl -n default scale deployment web --replicas 1",)


def test_no_command_scales_down_a_stateful_set() -> None:
    seen = REPORTED["RBD719"]["a StatefulSet with one claim for all"][0]
    finding = found(seen, "RBD719")
    policy = "-o 'jsonpath={.spec.persistentVolumeClaimRetentionPolicy}'"
    assert lines_of(finding.commands) == (f"kubectl -n default get statefulset web {policy}",)
    assert "whenScaled: Delete" in finding.remedy
    assert not any(
        "scale" in line
        for finding in diagnosis_of(seen).findings
        for line in lines_of(finding.commands)
    )


def test_rolling_update_with_rwop_deadlocks_on_one_node() -> None:
    seen = mounting(
        pods=(waiting_pod(owners=(NEW,)), pod(node="worker-2", owners=(OLD,))),
        workloads=(replica_set(OLD), replica_set(NEW), deployment()),
        **ONCE,
    )
    finding = found(seen, "RBD704")
    assert "patch deployment web" in lines_of(finding.commands)[0]
    assert str(finding.recovery) == "not automatic: each of the two pods waits for the other"


def test_pod_within_its_grace_period_is_shown_with_its_end() -> None:
    finding = found(leaving(deleting_since=SOON), "RBD721")
    assert "Waiting for the volume: default/web-1 on worker-2." in finding.message
    assert str(finding.recovery) == "kubelet, within 1m20s"


def test_process_that_does_not_end_is_named_on_its_node() -> None:
    asleep = ProcessRef(pid=7, command="tar", pod_uid=pod().ref.uid, state="D")
    seen = world(
        on_node={"processes": (asleep,)},
        in_kube={"pods": (pod(deleting_since=LONG_SINCE, containers=(RUNNING,)),)},
    )
    assert 'process 7 ("tar") is in uninterruptible sleep' in found(seen, "RBD722").evidence


def test_remedy_for_a_down_node_is_ordered_and_not_a_command() -> None:
    seen = REPORTED["RBD725"]["the node is not reporting"][0]
    for code in ("RBD113", "RBD725"):
        finding = found(seen, code)
        remedy = sentence_of(finding.remedy)
        order = [remedy.index(text) for text in ("watch is alive", "off. 3.", "taint")]
        assert order == sorted(order)
        assert lines_of(finding.commands) == (
            "ssh worker-1 systemctl status kubelet",
            f"rbd status {SPEC}",
        )
    assert "that machine runs and may write" in found(seen, "RBD725").message
    assert "stays attached there indefinitely" in found(seen, "RBD725").message


def test_taint_is_reported_with_a_node_that_still_watches() -> None:
    seen = waiting(
        waiting_pod(), nodes=(listing("worker-1", ready=False, out_of_service=True), node("b"))
    )
    finding = found(seen, "RBD113")
    assert "already has the out-of-service taint" in finding.message
    assert "has detached its volumes already" in str(finding.recovery)


def test_remedy_for_a_returned_node_removes_its_taint() -> None:
    seen = waiting(
        waiting_pod(node="worker-1"),
        nodes=(listing("worker-1", out_of_service=True, ready_changed_at=LATELY), node("worker-2")),
    )
    finding = found(seen, "RBD726")
    assert "kubectl taint node worker-1 node.kubernetes.io/out-of-service-" in finding.remedy


def test_node_that_never_reported_ready_has_an_unknown_time() -> None:
    seen = waiting(
        waiting_pod(),
        pod(deleting_since=LONG_SINCE, containers=(RUNNING,)),
        nodes=(node(ready=None), node("worker-2")),
    )
    assert "Ready is Unknown since an unknown time" in str(found(seen, "RBD725").evidence)


def test_ending_pod_may_release_the_image_between_observations() -> None:
    ending = pod("web-9", "worker-1", deleting_since=SOON, containers=(RUNNING,))
    seen = waiting(ending, of_image={"watchers": ()})
    assert found(seen, "RBD416").severity is Severity.INFO
    assert problem_codes(seen) == set()
    stays = waiting(pod("web-9", "worker-1"), of_image={"watchers": ()})
    assert found(stays, "RBD416").severity is Severity.ERROR


def test_unmount_that_no_pod_waits_for_long_is_info() -> None:
    assert found(waiting(), "RBD724").severity is Severity.INFO
    lately = waiting(waiting_pod(placed_at=JUST_NOW))
    assert found(lately, "RBD724").severity is Severity.INFO


@pytest.mark.parametrize(
    ("since", "severity"),
    [("2026-11-21T02:58:30Z", Severity.INFO), ("2026-11-21T02:56:30Z", Severity.ERROR)],
)
def test_unmount_of_a_busy_node_is_no_failure(since: str, severity: Severity) -> None:
    """One took 67 s without an error, on a node with many pods that ended."""
    finding = found(leaving(phase="Failed", containers=(ENDED,), deleting_since=since), "RBD724")
    assert finding.severity is severity
    assert (
        "an unmount is in progress there, or fails, of this volume or of another" in finding.message
    )


def test_watcher_that_kubelet_may_soon_unmap_is_info() -> None:
    """Assert INFO: each Recreate has this state between pod deletion and detach (recorded)."""
    moved = waiting_pod(placed_at=LATELY)
    for seen in (waiting(), waiting(moved)):
        finding = found(seen, "RBD119")
        assert finding.severity is Severity.INFO
        assert "may be about to unmap it" in finding.message
        assert finding.recovery is not None
        assert problem_codes(seen) == set()


def test_watcher_of_rbd_nbd_is_info_but_not_of_other_librbd() -> None:
    source = volume().source
    assert isinstance(source, CsiSource)
    by_nbd = replace(source, attributes=(*source.attributes, ("mounter", "rbd-nbd")))
    watched = {"watchers": (remote_watcher(address=ADDRESS, cookie=LIBRBD_COOKIE),)}
    seen = waiting(persistent_volumes=(volume(source=by_nbd),), of_image=watched)
    assert found(seen, "RBD119").severity is Severity.INFO
    assert found(waiting(of_image=watched), "RBD119").severity is Severity.WARNING


@pytest.mark.parametrize(
    "seen",
    [
        pytest.param(waiting(waiting_pod()), id="a pod has waited longer than a move takes"),
        pytest.param(waiting(attachments=()), id="nothing ties it to the node"),
        pytest.param(waiting(attachments=UNSEEN), id="attachments were not observed"),
        pytest.param(
            waiting(attachments=attached("worker-1", detach_error="no secret")), id="detach fails"
        ),
        pytest.param(waiting(pods=UNSEEN), id="pods were not observed"),
    ],
)
def test_watcher_that_no_kubelet_will_unmap_is_a_warning(seen: Snapshot) -> None:
    finding = found(seen, "RBD119")
    assert finding.severity is Severity.WARNING
    assert finding.recovery is None


def test_first_command_leads_to_the_node_with_the_volume() -> None:
    finding = found(waiting(waiting_pod()), "RBD724")
    assert lines_of(finding.commands)[0] == f"ssh worker-1 rbdagent who-holds pv/{PV}"


def test_driver_that_is_down_is_an_error_if_a_pod_waits() -> None:
    rest = (CSINode(node_name="worker-1"), CSINode(node_name="worker-2", drivers=(DRIVER,)))
    kept = waiting(waiting_pod(), csi_nodes=rest)
    assert found(kept, "RBD201").severity is Severity.ERROR
    in_use = waiting(waiting_pod(), pod(), csi_nodes=rest)
    assert found(in_use, "RBD201").severity is Severity.WARNING


LOST: Final[dict[str, tuple[dict[str, Any], bool, bool]]] = {
    "its kubelet does not report": ({"ready": None}, True, True),
    "its kubelet reports a problem": ({"ready": False}, True, False),
    "it has no watch": ({"ready": None}, False, False),
    "its volumes are detached by force": ({"ready": None, "out_of_service": True}, True, False),
}


@each_row("case", LOST)
def test_kubelet_of_a_machine_that_runs_is_the_first_step(case: str) -> None:
    of_node, has_watch, is_first = LOST[case]
    seen = waiting(
        waiting_pod(),
        pod(deleting_since=LONG_SINCE, containers=(RUNNING,)),
        of_image=None if has_watch else {"watchers": ()},
        nodes=(listing("worker-1", ready_changed_at=LONG_SINCE, **of_node), node("worker-2")),
    )
    reported = [one for one in diagnosis_of(seen).findings if one.code in {"RBD113", "RBD725"}]
    assert reported
    for finding in reported:
        first = lines_of(finding.commands)[0]
        assert (first == "ssh worker-1 systemctl status kubelet") is is_first
        assert str(finding.remedy).startswith("Start kubelet on worker-1") is is_first
        assert "keep to this order" in str(finding.remedy)
