"""States of a CSI driver whose DaemonSet or Deployment has no pods, and of what waits for it.

The controllers of DaemonSets and Deployments and the API server's admission are real. Each state
has its own driver, and a node that is meant for its pods alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tests.integration.states.making import LONG_S
from tests.lab.csi import static_volume
from tests.lab.lab import POOL
from tests.lab.processes import wait_until
from tests.lab.workloads import DRIVER, collection

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.integration.states.making import Making
    from tests.lab.api import Json

_SIDECARS: Final = ("csi-provisioner", "csi-attacher", "csi-resizer")
_CEPH_CSI: Final = "quay.io/cephcsi/cephcsi:v3.17.1"
_QUOTA: Final = {"pods": "0"}


# --------------------------------------------------------------------------------------------------
# The node plugin
# --------------------------------------------------------------------------------------------------


def node_plugin_without_account(making: Making) -> None:
    """The DaemonSet of the node plugin names a ServiceAccount that does not exist (rook#18081)."""
    node = _driver(making, attaches=False)
    _node_plugin(making, node, serviceAccountName=f"{making.name}-sa")
    _waits_on(making, node)


def node_plugin_kept_off_by_its_selector(making: Making) -> None:
    """The nodeSelector of the DaemonSet asks for a label that the pod's node does not have."""
    node = _driver(making, attaches=False)
    _node_plugin(making, node, nodeSelector={"example.org/storage": making.name})
    _waits_on(making, node)


def node_plugin_kept_off_by_a_taint(making: Making) -> None:
    """The pod tolerates the taint of its node, and the DaemonSet of the node plugin does not."""
    node = _driver(making, attaches=False)
    taint = {"key": "example.org/gpu", "value": "yes", "effect": "NoSchedule"}
    making.patch("Node", node, {"spec": {"taints": [taint]}})
    _node_plugin(making, node)
    _waits_on(making, node)


def node_plugin_refused_by_pod_security(making: Making) -> None:
    """The namespace of the driver enforces the restricted level of PodSecurity."""
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    _namespace(making, labels)
    node = _driver(making, attaches=False)
    _node_plugin(making, node, namespace=making.name)
    _waits_on(making, node)


# --------------------------------------------------------------------------------------------------
# The controllers
# --------------------------------------------------------------------------------------------------


def attacher_without_account(making: Making) -> None:
    """As after an upgrade to Rook 1.20 without the chart ceph-csi-drivers (rook#17644)."""
    node = _driver(making, registered=True)
    _controller(making, serviceAccountName=f"{making.name}-sa")
    _waits_on(making, node)


def attacher_scaled_to_none(making: Making) -> None:
    """The Deployment of the driver's controller was scaled to 0."""
    node = _driver(making, registered=True)
    _controller(making, replicas=0)
    _waits_on(making, node)

    def afterwards() -> None:
        name = making.pod_of_owner()
        making.place(name, node)
        making.nodes.runs(name)
        _mark_attached(making)

    making.afterwards = afterwards


def provisioner_over_quota(making: Making) -> None:
    """A ResourceQuota of the driver's namespace allows no pods."""
    _namespace(making)
    quota = making.create(
        {
            "kind": "ResourceQuota",
            "metadata": {"name": making.name, "namespace": making.name},
            "spec": {"hard": _QUOTA},
        }
    )
    # The controller of quotas does not run here: what it would write.
    path = f"{collection('ResourceQuota', making.name)}/{quota['metadata']['name']}/status"
    making.api.patch(path, {"status": {"hard": _QUOTA, "used": _QUOTA}})
    _driver(making)
    _controller(making, namespace=making.name)
    making.claim(storage_class=making.storage_class(_name(making)))


# --------------------------------------------------------------------------------------------------
# Objects
# --------------------------------------------------------------------------------------------------


def _name(making: Making) -> str:
    return f"{making.name}.{DRIVER}"


def _driver(making: Making, *, attaches: bool = True, registered: bool = False) -> str:
    """Make the CSIDriver, and a node for the pods of the state; return the name of the node."""
    making.create(
        {
            "kind": "CSIDriver",
            "metadata": {"name": _name(making)},
            "spec": {"attachRequired": attaches},
        }
    )
    drivers = (_name(making),) if registered else ()
    return making.nodes.add(f"played-for-{making.name}", drivers=drivers)


def _namespace(making: Making, labels: dict[str, str] | None = None) -> None:
    """Make a namespace with the name of the state, and wait for its ServiceAccount."""
    making.create({"kind": "Namespace", "metadata": {"name": making.name, "labels": labels or {}}})
    account = f"{collection('ServiceAccount', making.name)}/default"
    wait_until(lambda: making.api.find(account), timeout_s=60, what=f"{account} to exist")


def _node_plugin(making: Making, node: str, *, namespace: str = "default", **spec: object) -> None:
    """Make a DaemonSet as the manifests of ceph-csi have it, for one node."""
    plugin = {
        "name": "csi-rbdplugin",
        "image": _CEPH_CSI,
        "args": ["--nodeserver=true", f"--drivername={_name(making)}"],
        "securityContext": {"privileged": True},
    }
    registrar = {
        "name": "driver-registrar",
        "image": "registry.k8s.io/sig-storage/csi-node-driver-registrar:v2.17.0",
    }
    chosen = {"nodeSelector": {"kubernetes.io/hostname": node}}
    template = {"containers": [registrar, plugin], **chosen, **spec}
    _workload(making, "DaemonSet", namespace, template, {})


def _controller(
    making: Making, *, namespace: str = "default", replicas: int = 2, **spec: object
) -> None:
    """Make a Deployment as the manifests of ceph-csi have it."""
    plugin = {
        "name": "csi-rbdplugin",
        "image": _CEPH_CSI,
        "args": ["--controllerserver=true", f"--drivername={_name(making)}"],
    }
    sidecars = [
        {"name": name, "image": f"registry.k8s.io/sig-storage/{name}:v6.3.0"} for name in _SIDECARS
    ]
    template = {"containers": [*sidecars, plugin], **spec}
    _workload(making, "Deployment", namespace, template, {"replicas": replicas})


def _workload(
    making: Making, kind: str, namespace: str, template: Json, spec: dict[str, object]
) -> None:
    labels = {"app": making.name}
    making.create(
        {
            "apiVersion": "apps/v1",
            "kind": kind,
            "metadata": {"name": making.name, "namespace": namespace},
            "spec": {
                **spec,
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": template},
            },
        }
    )


def _waits_on(making: Making, node: str) -> None:
    """Make a volume of the driver, and a pod on the node that waits for it."""
    made = static_volume(making.name, pool=POOL, image=making.name)
    making.bound(csi=made["spec"]["csi"] | {"driver": _name(making)})
    making.waiting(node, for_s=LONG_S)


def _mark_attached(making: Making) -> None:
    """Mark the volume as attached, as external-attacher does when it runs again."""
    attachments = collection("VolumeAttachment")
    for found in making.api.items(attachments):
        if found["spec"]["source"].get("persistentVolumeName") == making.name:
            path = f"{attachments}/{found['metadata']['name']}/status"
            making.api.patch(path, {"status": {"attached": True}})


STATES: Final[tuple[Callable[[Making], None], ...]] = (
    node_plugin_without_account,
    node_plugin_kept_off_by_its_selector,
    node_plugin_kept_off_by_a_taint,
    node_plugin_refused_by_pod_security,
    attacher_without_account,
    attacher_scaled_to_none,
    provisioner_over_quota,
)
