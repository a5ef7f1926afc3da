"""RBD77x: one image, and machines that are not nodes of this cluster."""

from __future__ import annotations

import pytest

from rbdagent.commands import lines_of
from rbdagent.model import (
    Severity,
    Snapshot,
)
from tests.support.rule_rows.foreign_clusters import (
    MADE_ELSEWHERE,
    METADATA,
    NOT_REPORTED,
    OWN_OTHER_NETWORK,
    REPORTED,
    WAITS,
    outside,
)
from tests.support.rule_tables import (
    not_reported_rows,
    problem_codes,
    reported_rows,
)
from tests.support.snapshots import (
    FSID,
    HANDLE,
    PV,
    SPEC,
    codes,
    diagnosis_of,
    found,
    unmapped,
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


@pytest.mark.parametrize("name", OWN_OTHER_NETWORK)
def test_client_that_may_be_a_cluster_node_is_reported_as_rbd119(name: str) -> None:
    assert "RBD119" in codes(OWN_OTHER_NETWORK[name])


def test_stranger_is_named_by_cluster_client_and_address() -> None:
    finding = found(outside(of_image={"metadata": METADATA}), "RBD771")
    assert f"image {SPEC} in Ceph cluster {FSID}" in finding.evidence
    assert "watched by client.77 192.0.2.7:0/5, which no Node lists" in finding.evidence
    assert "ceph-csi wrote into the image: cluster east" in finding.evidence
    assert "ceph-csi wrote into the image: PV pvc-of-east, claim shop/data" in finding.evidence


def test_client_on_a_possible_second_network_is_not_a_stranger() -> None:
    finding = found(MADE_ELSEWHERE, "RBD772")
    assert finding.severity is Severity.INFO
    assert "mapped by client.77 at 192.0.2.7:0/5: that may be a machine" in finding.message
    assert "a node of this cluster that has this address on a second network" in finding.message
    known = outside(of_image={"metadata": METADATA})
    for seen in (known, unmapped(of_image={"metadata": METADATA})):
        assert "second network" not in found(seen, "RBD772").message


def test_commands_keep_the_data_first_and_then_find_the_other_pv() -> None:
    commands = lines_of(found(outside(), "RBD771").commands)
    retain = '{"spec":{"persistentVolumeReclaimPolicy":"Retain"}}'
    assert commands[0] == f"kubectl patch pv {PV} --type merge -p '{retain}'"
    assert SPEC.name in commands[1]
    assert HANDLE in commands[2]
    assert all(line.endswith("# in the other cluster") for line in commands[1:3])
    kept = outside(in_kube={"persistent_volumes": (volume(reclaim_policy="Retain"),)})
    assert not any("patch" in line for line in lines_of(found(kept, "RBD771").commands))


def test_waiting_pod_makes_the_finding_an_error() -> None:
    assert found(outside(), "RBD771").severity is Severity.WARNING
    finding = found(outside(in_kube=WAITS), "RBD771")
    assert finding.severity is Severity.ERROR
    assert "default/web-1 waits for it" in finding.message
    assert diagnosis_of(outside(in_kube=WAITS)).findings[0].code == "RBD771"
