"""RBD701 to RBD703, RBD705, RBD706: reasons why a pod with a volume is not scheduled."""

from __future__ import annotations

from typing import Any, Final

import pytest
from msgspec.structs import replace

from rbdagent.commands import lines_of
from rbdagent.model import (
    CSINode,
    ObjectRef,
    PersistentVolumeClaim,
    Requirement,
    Severity,
    Snapshot,
)
from rbdagent.rules.scheduling import fits
from tests.support.rule_rows.scheduling import (
    AFFINITY,
    EBS,
    FULL,
    LATELY,
    MORE,
    NOT_OWNER,
    NOT_REPORTED,
    OF_ANOTHER,
    REPORTED,
    TIED,
    ZONE_A,
    unplaced,
)
from tests.support.rule_tables import (
    mounting,
    not_reported_rows,
    problem_codes,
    reported_rows,
)
from tests.support.snapshots import (
    DRIVER,
    JUST_NOW,
    LONG_AGO,
    UNSEEN,
    claim,
    codes,
    found,
    node,
    volume,
)


@pytest.mark.parametrize(("code", "seen", "beside"), reported_rows(REPORTED))
def test_code_is_reported_and_only_the_expected_others(
    code: str, seen: Snapshot, beside: set[str]
) -> None:
    finding = found(seen, code)
    assert finding.remedy
    assert finding.recovery is not None or finding.severity is Severity.INFO
    assert "None" not in finding.message
    assert problem_codes(seen) - {code} == beside


@pytest.mark.parametrize(("code", "seen"), not_reported_rows(NOT_REPORTED))
def test_similar_state_is_reported_without_the_code(code: str, seen: Snapshot) -> None:
    assert code not in codes(seen)


def test_command_diagnoses_the_other_claim() -> None:
    finding = found(REPORTED["RBD701"]["another claim of the pod is Pending"][0], "RBD701")
    assert finding.message == ("default/web-1 gets no node: its claim default/more is Pending.")
    assert lines_of(finding.commands) == ("rbdagent diagnose pvc/default/more",)
    assert lines_of(
        found(REPORTED["RBD701"]["according to kubelet"][0], "RBD701").commands
    ) == lines_of(finding.commands)


def test_claim_that_is_the_target_makes_rbd701_info() -> None:
    seen = unplaced('persistentvolumeclaim "data" is being deleted')
    assert found(seen, "RBD701").severity is Severity.INFO


def test_kubelet_error_about_the_target_makes_rbd701_info() -> None:
    seen = mounting("error processing PVC default/data: PVC is not bound")
    assert found(seen, "RBD701").severity is Severity.INFO


def test_pod_whose_only_claim_is_missing_is_not_rbd415() -> None:
    seen = REPORTED["RBD701"]["the only claim that it names, and there is not"][0]
    assert "RBD415" not in codes(seen)
    finding = found(seen, "RBD701")
    assert finding.message == "default/web-1 gets no node: its claim default/data does not exist."
    assert finding.remedy == "Create the claim, or correct its name in the YAML that makes the pod."
    assert lines_of(finding.commands) == ("kubectl -n default get pvc",)


def test_rejected_nodes_with_matching_labels_are_named() -> None:
    nodes = (node("worker-1", labels=(("zone", "a"),)), node("worker-2"))
    seen = unplaced(
        "0/2 nodes are available: 1 Insufficient cpu, 1 node(s) didn't match PersistentVolume's "
        "node affinity.",
        persistent_volumes=TIED,
        nodes=nodes,
    )
    finding = found(seen, "RBD702")
    assert finding.severity is Severity.WARNING
    assert (
        "where zone In a. It may be used on worker-1, and the scheduler rejects" in finding.message
    )


def test_incomplete_node_list_proves_no_missing_labels() -> None:
    seen = unplaced(AFFINITY, persistent_volumes=TIED, nodes_complete=False)
    assert "No node" not in found(seen, "RBD702").message


def test_fullest_node_is_shown_with_its_numbers() -> None:
    finding = found(REPORTED["RBD703"]["every node is full"][0], "RBD703")
    assert "(worker-1: 1 of 1)" in finding.message
    assert "worker-2: 0 of 2" in finding.evidence


SCRATCH: Final = claim(ref=ObjectRef(namespace="default", name="web-1-scratch"))
LEAVING: Final = replace(SCRATCH, deleting_since="2026-11-21T02:58:00Z")
NEVER: Final = "not automatic: a claim cannot be renamed"
COLLECTED: Final = (
    "the garbage collector and the ephemeral-volume controller: if the claim belongs to the "
    "previous pod"
)
WHEN_GONE: Final = "the ephemeral-volume controller, once that claim is gone"


@pytest.mark.parametrize(
    ("there", "since", "severity", "recovery"),
    [
        (LEAVING, LATELY, Severity.INFO, WHEN_GONE),
        (replace(LEAVING, deleting_since=LONG_AGO), LONG_AGO, Severity.ERROR, WHEN_GONE),
        (SCRATCH, LATELY, Severity.INFO, COLLECTED),
        (SCRATCH, JUST_NOW, Severity.ERROR, NEVER),
        (claim(), JUST_NOW, Severity.INFO, COLLECTED),
        (claim(), LONG_AGO, Severity.ERROR, NEVER),
    ],
    ids=[
        "the claim of the previous pod is being deleted",
        "something keeps it",
        "the garbage collector has not seen it yet",
        "it stays",
        "it was not seen, and the pod is young",
        "it was not seen",
    ],
)
def test_claim_of_the_previous_pod_is_info_during_collection(
    there: PersistentVolumeClaim, since: str, severity: Severity, recovery: str
) -> None:
    seen = unplaced(NOT_OWNER, of_pod={"created_at": since}, claims=(claim(), there))
    finding = found(seen, "RBD705")
    assert finding.severity is severity
    assert str(finding.recovery) == recovery


def test_command_diagnoses_the_claim_being_deleted() -> None:
    finding = found(unplaced(NOT_OWNER, claims=(claim(), LEAVING)), "RBD705")
    assert finding.message.endswith("It is being deleted.")
    assert lines_of(finding.commands) == ("rbdagent diagnose pvc/default/web-1-scratch",)


def limits(*drivers: str) -> tuple[CSINode, ...]:
    return (
        CSINode(
            node_name="worker-1",
            drivers=(DRIVER, EBS),
            limits=tuple((driver, 25) for driver in drivers),
        ),
    )


@pytest.mark.parametrize(
    ("parts", "named"),
    [
        ({"csi_nodes": limits()}, True),
        ({"csi_nodes": limits(EBS), **OF_ANOTHER}, False),
        ({"csi_nodes": limits(DRIVER, EBS), **OF_ANOTHER}, True),
        ({"csi_nodes": UNSEEN, **OF_ANOTHER}, False),
        ({"csi_nodes": limits(EBS), "of_pod": {"claims": ("data", "more")}}, False),
    ],
    ids=[
        "the pod has volumes of no other driver",
        "the other driver alone has a limit",
        "this one has a limit",
        "the limits are unknown",
        "the other claim was not seen",
    ],
)
def test_limit_is_ascribed_to_the_driver_only_if_possible(
    parts: dict[str, Any], *, named: bool
) -> None:
    message = found(unplaced(FULL, **parts), "RBD703").message
    assert (f"at the volume limit of {DRIVER}" in message) is named
    assert ("another volume of the pod may be the cause" in message) is not named


@pytest.mark.parametrize(
    ("terms", "there"),
    [
        ((), True),
        (ZONE_A, True),
        (((Requirement(key="zone", operator="NotIn", values=("a",)),), *ZONE_A), True),
        (((*ZONE_A[0], Requirement(key="disk", operator="Exists")),), False),
        (((Requirement(key="metadata.name", operator="In", values=("worker-1",)),),), True),
        (((Requirement(key="rack", operator="Gt", values=("3",)),),), True),
        (((Requirement(key="rack", operator="Lt", values=("3",)),),), False),
        (((),), False),
    ],
)
def test_node_must_match_all_requirements_of_one_term(terms: Any, *, there: bool) -> None:  # noqa: ANN401
    labels = (("zone", "a"), ("rack", "4"))
    assert fits(volume(node_affinity=terms), node(labels=labels)) is there


@pytest.mark.parametrize(("zone", "there"), [("a", True), ("b", True), ("c", False)])
def test_volume_of_two_zones_fits_in_either_zone(zone: str, *, there: bool) -> None:
    key = "topology.kubernetes.io/zone"
    assert fits(volume(labels=((key, "a__b"),)), node(labels=((key, zone),))) is there


def test_pod_with_a_missing_claim_beside_others_is_not_rbd415() -> None:
    seen = REPORTED["RBD701"]["the only claim that it names, and there is not"][0]
    kube = seen.kubernetes
    assert kube is not None
    beside = replace(kube, claims=(claim(ref=MORE),))
    assert "RBD415" not in codes(replace(seen, kubernetes=beside))
