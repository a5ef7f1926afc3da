"""Rows of the rules on termination of pods and nodes, by code: reported, or not."""

from __future__ import annotations

from typing import Any, Final

from rbdagent.model import (
    ContainerState,
    CSINode,
    ObjectRef,
    Snapshot,
    Workload,
)
from tests.support.rule_tables import (
    NOTHING_ELSE,
    NotReported,
    Reported,
    attached,
    kubelet_event,
    listing,
    mounting,
)
from tests.support.snapshots import (
    DRIVER,
    JUST_NOW,
    PV,
    claim,
    node,
    opener,
    pod,
    remote_watcher,
    unmapped,
    volume,
    waiting_pod,
    world,
)

NONE: Final = NOTHING_ELSE
SOON: Final = "2026-11-21T03:00:20Z"
LATELY: Final = "2026-11-21T02:59:30Z"
LONG_SINCE: Final = "2026-11-21T02:40:00Z"
RUNNING: Final = ContainerState(name="app", state="running")
ENDED: Final = ContainerState(name="app", state="terminated")
ONCE: Final = {
    "persistent_volumes": (volume(access_modes=("ReadWriteOncePod",)),),
    "claims": (claim(access_modes=("ReadWriteOncePod",)),),
}
RWX: Final = {
    "persistent_volumes": (volume(access_modes=("ReadWriteMany",), volume_mode="Block"),),
    "claims": (claim(access_modes=("ReadWriteMany",), volume_mode="Block"),),
}
HELD: Final = pod(
    phase="Succeeded",
    deleting_since=LONG_SINCE,
    finalizers=("example.org/hold",),
    containers=(ENDED,),
)
IN_USE_ONCE: Final = (
    f'MountVolume.SetUp failed for volume "{PV}" : volume uses the ReadWriteOncePod access mode '
    "and is already in use by another pod"
)
DOWN: Final = (listing("worker-1", ready=None, ready_changed_at=LONG_SINCE), node("worker-2"))


def waiting(*pods: Any, of_image: Any = None, **in_kube: Any) -> Snapshot:  # noqa: ANN401 - as the builders
    """Build a snapshot on worker-2: a pod waits, worker-1 has the image attached and watches it."""
    parts = {
        "pods": pods,
        "attachments": attached("worker-1"),
        "nodes": (listing("worker-1"), node("worker-2")),
        **in_kube,
    }
    on_node = {"node_name": "worker-2", "mappings": (), "addresses": ("10.77.0.12",)}
    return world(on_node=on_node, of_image=of_image, in_kube=parts)


def leaving(**of_pod: Any) -> Snapshot:  # noqa: ANN401 - as the builders
    """Build the same snapshot; the old pod is being deleted."""
    parts = {"deleting_since": LONG_SINCE, "containers": (RUNNING,), **of_pod}
    return waiting(waiting_pod(), pod(**parts))


# --------------------------------------------------------------------------------------------------
# Workloads
# --------------------------------------------------------------------------------------------------

OLD, NEW = "ReplicaSet/web-5d4f", "ReplicaSet/web-77aa"


def replica_set(name: str, owner: str = "Deployment/web") -> Workload:
    ref = ObjectRef(namespace="default", name=name.removeprefix("ReplicaSet/"))
    return Workload(kind="ReplicaSet", ref=ref, owners=(owner,))


def deployment(**overrides: Any) -> Workload:  # noqa: ANN401 - as the builders
    parts = {"strategy": "RollingUpdate", "max_surge": "25%", "max_unavailable": "25%"}
    ref = ObjectRef(namespace="default", name="web")
    return Workload(kind="Deployment", ref=ref, **{**parts, **overrides})


def rolling(*workloads: Workload, new: dict[str, Any] | None = None) -> Snapshot:
    """Build a rolling update; without workloads they were not requested, as in who-holds."""
    known = {"workloads": (replica_set(OLD), replica_set(NEW), *workloads)} if workloads else {}
    return waiting(waiting_pod(owners=(NEW,), **(new or {})), pod(owners=(OLD,)), **known)


REPORTED: Final[Reported] = {
    "RBD111": {
        "a Deployment's defaults": (rolling(deployment()), {"RBD401"}),
        "three replicas of one claim": (rolling(deployment(replicas=3)), {"RBD401"}),
        "the workloads were not requested": (rolling(), {"RBD401"}),
        "figures": (rolling(deployment(max_surge="1", max_unavailable="0")), {"RBD401"}),
    },
    "RBD112": {
        "another workload": (waiting(waiting_pod(), pod()), {"RBD401"}),
        "a rolling update that lets the old pod go": (
            rolling(deployment(max_unavailable="1")),
            {"RBD401"},
        ),
        "the old pod came back, and the new one runs": (
            rolling(deployment(), new={"created_at": "2026-11-19T00:00:00Z"}),
            {"RBD401"},
        ),
    },
    "RBD113": {
        "NotReady": (
            waiting(waiting_pod(), nodes=DOWN),
            {"RBD401"},
        )
    },
    "RBD704": {
        "before it has a node": (
            unmapped(
                in_kube={
                    **ONCE,
                    "pods": (
                        waiting_pod(
                            node=None,
                            unschedulable="0/2 nodes are available: 1 node(s) unavailable due to "
                            "PersistentVolumeClaim with ReadWriteOncePod access mode already "
                            "in-use by another pod",
                        ),
                        pod(node="worker-2"),
                    ),
                },
                of_image={"watchers": (remote_watcher(),)},
            ),
            NONE,
        ),
        "on one node, according to kubelet": (
            unmapped(
                in_kube={
                    **ONCE,
                    "pods": (waiting_pod(), pod(node="worker-2")),
                    "attachments": attached("worker-2"),
                    "nodes": (node(), listing("worker-2")),
                    "events": (kubelet_event(IN_USE_ONCE),),
                },
                of_image={"watchers": (remote_watcher(),)},
            ),
            NONE,
        ),
        "according to kubelet, and the other pod is gone": (
            mounting(IN_USE_ONCE, **ONCE),
            NONE,
        ),
    },
    "RBD719": {
        "a StatefulSet with one claim for all": (
            waiting(waiting_pod(owners=("StatefulSet/web",)), pod(owners=("StatefulSet/web",))),
            {"RBD401"},
        ),
        "two replicas of a Deployment": (
            waiting(
                waiting_pod(owners=(OLD,)),
                pod(owners=(OLD,)),
                workloads=(replica_set(OLD), deployment(replicas=2)),
            ),
            {"RBD401"},
        ),
    },
    "RBD721": {
        "within its grace period": (leaving(deleting_since=SOON), NONE),
        "a moment after it": (leaving(deleting_since=LATELY), NONE),
    },
    "RBD722": {"its process hangs": (leaving(), {"RBD401"})},
    "RBD724": {
        "a finalizer holds the pod, and its unmount fails as well (RBD654)": (
            waiting(HELD, attachments=(), nodes=(node(), node("worker-2"))),
            {"RBD654"},
        ),
        "the pod has ended, its mounts have not": (
            leaving(phase="Failed", containers=(ENDED,)),
            {"RBD401"},
        ),
        "the pod is gone": (waiting(waiting_pod()), {"RBD401", "RBD119"}),
    },
    "RBD725": {
        "the node is not reporting": (
            waiting(
                waiting_pod(),
                pod(deleting_since=LONG_SINCE, containers=(RUNNING,)),
                nodes=DOWN,
            ),
            {"RBD113", "RBD401"},
        )
    },
    "RBD726": {
        "a taint on a living node": (
            waiting(pod(), nodes=(listing("worker-1", out_of_service=True), node("worker-2"))),
            NONE,
        )
    },
}
NOT_REPORTED: Final[NotReported] = {
    "RBD111": {
        "Recreate": rolling(deployment(strategy="Recreate", max_surge="", max_unavailable="")),
        "one may be unavailable": rolling(deployment(max_unavailable="1")),
        "four replicas of which a quarter may be": rolling(deployment(replicas=4)),
        "two Deployments": waiting(
            waiting_pod(owners=(NEW,)),
            pod(owners=(OLD,)),
            workloads=(replica_set(OLD, "Deployment/api"), replica_set(NEW), deployment()),
        ),
        "the old pod is ending": waiting(
            waiting_pod(owners=(NEW,)), pod(owners=(OLD,), deleting_since=SOON)
        ),
        "a volume for many": waiting(
            waiting_pod(owners=(NEW,)), pod(owners=(OLD,)), attachments=attached("worker-1"), **RWX
        ),
    },
    "RBD112": {
        "a volume for many": waiting(waiting_pod(), pod(), **RWX),
        "the other is ending": leaving(deleting_since=SOON),
        "it has its volumes, and waits for its image": waiting(
            waiting_pod(
                containers=(ContainerState(name="c", state="waiting", reason="ImagePullBackOff"),)
            ),
            pod(),
        ),
        "it has no node yet": waiting(waiting_pod(node=None), pod()),
    },
    "RBD704": {
        "the other has finished": mounting(
            pods=(waiting_pod(), pod(node="worker-2", phase="Succeeded")), **ONCE
        ),
        "the other is ending in time": mounting(
            pods=(
                waiting_pod(),
                pod(node="worker-2", deleting_since=SOON, containers=(RUNNING,)),
            ),
            **ONCE,
        ),
        "two pods on one node by right": mounting(pods=(waiting_pod(), pod(node="worker-2"))),
        "a moment ago": mounting(
            pods=(waiting_pod(placed_at=LATELY), pod(node="worker-2")), **ONCE
        ),
    },
    "RBD719": {
        "on one node": mounting(
            pods=(
                waiting_pod(owners=("StatefulSet/web",)),
                pod(node="worker-2", owners=("StatefulSet/web",)),
            )
        )
    },
    "RBD722": {
        "in time": leaving(deleting_since=LATELY),
        "its containers have ended": leaving(containers=(ENDED,)),
        "the node is not reporting (RBD725)": waiting(
            pod(deleting_since=LONG_SINCE, containers=(RUNNING,)), nodes=DOWN
        ),
        "the nodes are unknown": waiting(
            pod(deleting_since=LONG_SINCE, containers=(RUNNING,)),
            nodes=(node("worker-2"),),
            nodes_complete=False,
        ),
    },
    "RBD724": {
        "a finalizer alone holds the pod (RBD654)": unmapped(in_kube={"pods": (HELD,)}),
        "a finalizer alone, and another pod there uses the volume": waiting(HELD, pod("web-9")),
        "the driver is down there (RBD201)": waiting(
            waiting_pod(),
            csi_nodes=(
                CSINode(node_name="worker-1"),
                CSINode(node_name="worker-2", drivers=(DRIVER,)),
            ),
        ),
        "what keeps it is known (RBD102)": world(
            mapped={"openers": (opener(),)},
            in_kube={
                "attachments": attached("worker-1"),
                "nodes": (listing("worker-1"), node("worker-2")),
            },
        ),
        "a pod only waits there": waiting(
            waiting_pod(), attachments=attached("worker-2"), nodes=(node(), listing("worker-2"))
        ),
        "it is being detached": waiting(
            waiting_pod(), attachments=attached("worker-1", deleting_since=JUST_NOW)
        ),
        "pods of other namespaces are unknown": waiting(waiting_pod(), pods_scope="node/worker-2"),
        "a finished pod that is not deleted": waiting(
            pod(phase="Succeeded"), attachments=(), nodes=(node(), node("worker-2"))
        ),
    },
    "RBD725": {
        "the node is Ready": leaving(),
        "in time": waiting(pod(deleting_since=SOON), nodes=DOWN),
        "the node is gone, and podgc at work": waiting(
            pod(deleting_since=LONG_SINCE, containers=(RUNNING,)), nodes=(node("worker-2"),)
        ),
        "it has no node": waiting(waiting_pod(node=None, deleting_since=LONG_SINCE)),
    },
    "RBD726": {
        "the node is off": waiting(
            pod(), nodes=(node(ready=None, out_of_service=True), node("worker-2"))
        ),
        "another node": waiting(pod(), nodes=(node(), node("worker-9", out_of_service=True))),
        "only a pod that has finished was there": unmapped(
            in_kube={
                "pods": (pod("web-9", "worker-2", phase="Succeeded"),),
                "nodes": (node(), node("worker-2", out_of_service=True)),
            }
        ),
        "it holds what was taken from it (RBD107)": world(
            in_kube={"nodes": (node(out_of_service=True), node("worker-2"))}
        ),
    },
}
