"""A pod that waits for a volume that a pod on another node rightly uses: who should give way."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tests.support.rows import each_row
from tests.support.snapshots import found, pod, volume, waiting_pod, world

if TYPE_CHECKING:
    from rbdagent.model import Snapshot

OF_JOB: Final = waiting_pod("backup-x", owners=("Job/backup",))


def wanted_by(*waiting: Any, **of_volume: Any) -> Snapshot:  # noqa: ANN401 - as the builders
    """Build a snapshot in which a pod on worker-1 uses the volume, and these pods wait."""
    in_kube = {
        "pods": (pod(owners=("StatefulSet/db",)), *waiting),
        "persistent_volumes": (volume(**of_volume),),
    }
    return world(in_kube=in_kube)


def test_job_runs_beside_the_user_or_waits() -> None:
    finding = found(wanted_by(OF_JOB), "RBD112")
    assert str(finding.remedy).startswith(
        "Run the pod of the Job on worker-1 too, where the volume is used by default/web-0, or wait"
    )
    assert str(finding.remedy).endswith("Stop default/web-0 only if its work may be interrupted.")
    assert "a waiting pod is of Job/backup" in finding.evidence


@each_row("owners", [(), ("ReplicaSet/web-5d4f",), ("StatefulSet/other",), ("example.org/Job",)])
def test_other_pods_get_no_advice_about_a_job(owners: tuple[str, ...]) -> None:
    finding = found(wanted_by(waiting_pod(owners=owners)), "RBD112")
    assert str(finding.remedy).startswith("Stop the pod that uses the volume, or run both")


def test_pods_of_a_job_and_of_a_workload_get_no_advice_about_a_job() -> None:
    other = waiting_pod("web-9", owners=("ReplicaSet/other-5d4f",))
    finding = found(wanted_by(OF_JOB, other), "RBD112")
    assert "Job on" not in str(finding.remedy)


@each_row("owners", [("Job/backup",), ("ReplicaSet/other-5d4f",)])
def test_one_node_does_not_help_two_pods_of_which_one_is_allowed(owners: tuple[str, ...]) -> None:
    seen = wanted_by(waiting_pod(owners=owners), access_modes=("ReadWriteOncePod",))
    finding = found(seen, "RBD112")
    assert "allows no second pod, not even on one node." in str(finding.remedy)
