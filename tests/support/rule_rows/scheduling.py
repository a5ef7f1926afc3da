"""Rows of the rules on scheduling, by code: reported, or not."""

from __future__ import annotations

from typing import Any, Final

from rbdagent.model import (
    CSINode,
    CsiSource,
    ObjectRef,
    Requirement,
    Snapshot,
)
from tests.support.rule_tables import (
    BY_POD,
    NOTHING_ELSE,
    NotReported,
    Reported,
    mounting,
)
from tests.support.snapshots import (
    DRIVER,
    PV,
    claim,
    event,
    node,
    pod,
    unmapped,
    volume,
    waiting_pod,
)

NONE: Final = NOTHING_ELSE
LATELY: Final = "2026-11-21T02:59:30Z"
ZONE_A: Final = ((Requirement(key="zone", operator="In", values=("a",)),),)
TIED: Final = (volume(node_affinity=ZONE_A),)
AFFINITY: Final = (
    "0/2 nodes are available: 2 node(s) didn't match PersistentVolume's node affinity."
)
OF_OLD: Final = "0/2 nodes are available: 2 node(s) had volume node affinity conflict."
FULL: Final = "0/2 nodes are available: 2 node(s) exceed max volume count."
NO_DRIVER: Final = "0/2 nodes are available: 2 {driver} CSI driver is not installed on the node."
UNBOUND: Final = "0/2 nodes are available: pod has unbound immediate PersistentVolumeClaims."
POORLY: Final = "0/2 nodes are available: 2 Insufficient cpu. preemption: not helpful."
MORE: Final = ObjectRef(namespace="default", name="more", uid="more-uid")
EBS: Final = "ebs.csi.aws.com"
OF_ANOTHER: Final[dict[str, Any]] = {
    "of_pod": {"claims": ("data", "more")},
    "claims": (claim(), claim(ref=MORE, volume_name="pv-ebs")),
    "persistent_volumes": (
        volume(),
        volume(name="pv-ebs", claim=MORE, source=CsiSource(driver=EBS, volume_handle="vol-1")),
    ),
}
"""The pod also has a volume of another driver."""
NOT_OWNER: Final = (
    "PVC default/web-1-scratch was not created for pod default/web-1 (pod is not owner)"
)


def unplaced(why: str, **in_kube: Any) -> Snapshot:  # noqa: ANN401 - as the builders
    """Build a snapshot in which the scheduler finds no node for a pod."""
    of_pod = in_kube.pop("of_pod", {})
    pods = (waiting_pod(node=None, unschedulable=why, **of_pod),)
    return unmapped(in_kube={"pods": pods, **in_kube}, target=BY_POD)


REPORTED: Final[Reported] = {
    "RBD701": {
        "another claim of the pod is Pending": (
            unplaced(
                UNBOUND,
                of_pod={"claims": ("data", "more")},
                claims=(claim(), claim(ref=MORE, phase="Pending", volume_name=None)),
            ),
            {"RBD403"},
        ),
        "another claim, which was not requested": (
            unplaced(UNBOUND, of_pod={"claims": ("data", "more")}),
            NONE,
        ),
        "a claim that there is not": (
            unplaced('persistentvolumeclaim "more" not found', of_pod={"claims": ("data", "more")}),
            NONE,
        ),
        "the only claim that it names, and there is not": (
            unplaced(
                'persistentvolumeclaim "data" not found',
                claims=(),
                persistent_volumes=(),
            ),
            NONE,
        ),
        "according to kubelet": (
            mounting(
                "Unable to attach or mount volumes: unmounted volumes=[more], unattached "
                "volumes=[], failed to process volumes=[more]: error processing PVC default/more: "
                "PVC is not bound"
            ),
            NONE,
        ),
    },
    "RBD702": {
        "no node has the labels": (unplaced(AFFINITY, persistent_volumes=TIED), NONE),
        "a scheduler of before": (unplaced(OF_OLD, persistent_volumes=TIED), NONE),
        "by the labels of its zone": (
            unplaced(
                "0/2 nodes are available: 2 node(s) had no available volume zone.",
                persistent_volumes=(
                    volume(labels=(("topology.kubernetes.io/zone", "a__b"), ("app", "web"))),
                ),
            ),
            NONE,
        ),
        "spec.nodeName put it elsewhere": (
            mounting(
                f'MountVolume.NodeAffinity check failed for volume "{PV}" : no matching '
                "NodeSelectorTerms",
                persistent_volumes=TIED,
            ),
            NONE,
        ),
    },
    "RBD703": {
        "every node is full": (
            unplaced(
                FULL,
                csi_nodes=(
                    CSINode(node_name="worker-1", drivers=(DRIVER,), limits=((DRIVER, 1),)),
                    CSINode(node_name="worker-2", drivers=(DRIVER,), limits=((DRIVER, 2),)),
                ),
                nodes=(
                    node("worker-1", volumes_attached=(f"kubernetes.io/csi/{DRIVER}^other",)),
                    node("worker-2", volumes_attached=("kubernetes.io/csi/nfs.csi.k8s.io^x",)),
                ),
            ),
            NONE,
        )
    },
    "RBD731": {
        "the scheduler knows": (
            unplaced(NO_DRIVER.format(driver=DRIVER)),
            NONE,
        ),
        "of one of two drivers": (
            unplaced(
                f"{NO_DRIVER.format(driver=EBS)} {NO_DRIVER.format(driver=DRIVER)}", **OF_ANOTHER
            ),
            NONE,
        ),
    },
    "RBD705": {
        "by the controller's event": (
            unplaced(
                "",
                events=(
                    event(
                        f"ephemeral volume scratch: {NOT_OWNER}",
                        reason="FailedBinding",
                        reporter="ephemeral_volume",
                    ),
                ),
            ),
            NONE,
        ),
        "by the scheduler": (unplaced(f"0/2 nodes are available: {NOT_OWNER}."), NONE),
    },
    "RBD706": {
        "no processor is free": (unplaced(POORLY), NONE),
        "the node's own disk is full": (
            unplaced("0/2 nodes are available: 2 Insufficient ephemeral-storage."),
            NONE,
        ),
        "a gate": (unplaced("Scheduling is blocked due to non-empty scheduling gates"), NONE),
    },
}
NOT_REPORTED: Final[NotReported] = {
    "RBD701": {
        "a moment ago": unplaced(UNBOUND, of_pod={"created_at": LATELY}),
        "the pod has a node": mounting(),
        "its own claim is Lost, and that is reported": mounting(
            "Unable to attach or mount volumes: unmounted volumes=[data], unattached volumes=[], "
            "failed to process volumes=[data]: error processing PVC default/data: PVC is not bound",
            claims=(claim(phase="Lost"),),
        ),
    },
    "RBD702": {
        "the volume may go anywhere": unplaced(AFFINITY),
        "a moment ago": unplaced(AFFINITY, persistent_volumes=TIED, of_pod={"created_at": LATELY}),
        "the pod runs": unmapped(
            in_kube={"persistent_volumes": TIED, "pods": (pod(node="worker-2"),)}
        ),
    },
    "RBD703": {"another reason": unplaced(POORLY)},
    "RBD731": {
        "another volume's driver": unplaced(NO_DRIVER.format(driver=EBS), **OF_ANOTHER),
        "a driver whose name ends alike": unplaced(NO_DRIVER.format(driver=f"second.{DRIVER}")),
    },
    "RBD705": {"its own claim": unplaced(POORLY)},
    "RBD706": {
        "its volume is the reason": unplaced(FULL),
        "the driver of another volume is the reason": unplaced(
            NO_DRIVER.format(driver=EBS), **OF_ANOTHER
        ),
        "its claim is the reason": unplaced(
            "0/2 nodes are available: 2 node(s) didn't find available persistent volumes to bind."
        ),
        "a disk is the reason": unplaced("0/1 nodes are available: node(s) had no available disk."),
        "the scheduler has reported nothing": unplaced(""),
        "a moment ago": unplaced(POORLY, of_pod={"created_at": LATELY}),
    },
}
