"""Workloads of a CSI driver for snapshots, as the parser returns them."""

from __future__ import annotations

from typing import Any, Final

from msgspec.structs import replace

from rbdagent.model import (
    DriverWorkload,
    KubeEvent,
    ObjectRef,
    Requirement,
    Toleration,
    WorkloadPod,
)
from tests.support.snapshots import DRIVER, LONG_AGO, NOW

_IN: Final = "rook-ceph"
_SELECTOR: Final = (Requirement(key="app", operator="In", values=("x",)),)
NO_ACCOUNT: Final = (
    'pods "csi-rbdplugin-" is forbidden: error looking up service account '
    'rook-ceph/rook-csi-rbd-plugin-sa: serviceaccount "rook-csi-rbd-plugin-sa" not found'
)
EVERY_TAINT: Final = Toleration(operator="Exists")
_PLUGIN: Final = DriverWorkload(
    kind="DaemonSet",
    ref=ObjectRef(namespace=_IN, name="csi-rbdplugin", uid="plugin-uid"),
    serves=(DRIVER,),
    containers=(
        "driver-registrar registry.k8s.io/sig-storage/csi-node-driver-registrar:v2.17.0",
        "csi-rbdplugin quay.io/cephcsi/cephcsi:v3.17.1",
    ),
    desired=2,
    current=2,
    ready=2,
    updated=2,
    selector=_SELECTOR,
)
_CONTROLLER: Final = DriverWorkload(
    kind="Deployment",
    ref=ObjectRef(namespace=_IN, name="csi-rbdplugin-provisioner", uid="controller-uid"),
    serves=(DRIVER,),
    containers=(
        "csi-provisioner registry.k8s.io/sig-storage/csi-provisioner:v6.3.0",
        "csi-attacher registry.k8s.io/sig-storage/csi-attacher:v4.12.0",
        "csi-resizer registry.k8s.io/sig-storage/csi-resizer:v2.2.0",
        "csi-rbdplugin quay.io/cephcsi/cephcsi:v3.17.1",
    ),
    desired=2,
    current=2,
    ready=2,
    updated=2,
    selector=_SELECTOR,
)


def plugin(**fields: Any) -> DriverWorkload:  # noqa: ANN401 - as the builders
    """Return a DaemonSet with a Ready pod on each of two nodes."""
    return replace(_PLUGIN, **fields)


def controller(**fields: Any) -> DriverWorkload:  # noqa: ANN401 - as the builders
    """Return a Deployment with two Ready pods."""
    return replace(_CONTROLLER, **fields)


def controller_down(**fields: Any) -> DriverWorkload:  # noqa: ANN401 - as the builders
    """Return a Deployment without pods, whose ServiceAccount is missing."""
    gone = {"current": 0, "ready": 0, "updated": 0, "failure": NO_ACCOUNT}
    return controller(**{**gone, **fields})


def not_created(text: str, **fields: Any) -> DriverWorkload:  # noqa: ANN401 - as the builders
    """Return a DaemonSet that creates its pods neither here nor there, and its event."""
    gone = {"current": 0, "ready": 0, "updated": 0}
    return plugin(**{**gone, "events": (failed_create(text),), **fields})


def failed_create(text: str, **fields: Any) -> KubeEvent:  # noqa: ANN401 - as the builders
    """Return the event of the DaemonSet controller for a pod that it cannot create."""
    made = KubeEvent(
        kind="DaemonSet",
        subject=_PLUGIN.ref,
        type="Warning",
        reason="FailedCreate",
        message=f"Error creating: {text}",
        last_seen=NOW,
        reporter="daemonset-controller",
    )
    return replace(made, **fields)


def plugin_pod(**fields: Any) -> WorkloadPod:  # noqa: ANN401 - as the builders
    """Return the pod of the DaemonSet on worker-2, which is not Ready."""
    made = WorkloadPod(
        ref=ObjectRef(namespace=_IN, name="csi-rbdplugin-x7k2p", uid="plugin-pod-uid"),
        node_name="worker-2",
        created_at=LONG_AGO,
    )
    return replace(made, **fields)


def one_missing(pod: WorkloadPod, **fields: Any) -> DriverWorkload:  # noqa: ANN401
    """Return a DaemonSet whose pod on worker-2 is not Ready."""
    return plugin(**{"ready": 1, "pods": (pod,), **fields})


def warning_of_pod(message: str) -> KubeEvent:
    """Return a warning of kubelet about that pod."""
    return KubeEvent(
        kind="Pod",
        subject=plugin_pod().ref,
        type="Warning",
        reason="FailedMount",
        message=message,
        last_seen=NOW,
        reporter="kubelet",
    )
