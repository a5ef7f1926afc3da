"""States of attaching: two pods that want one volume, and what the attach/detach controller does.

That controller and those of Deployments and StatefulSets are real; kubelets and the attacher are
played.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tests.integration.states.making import HERE, LONG_S, ROOK, THERE
from tests.lab.clients import librbd_client
from tests.lab.csi import static_volume
from tests.lab.csi_controller import ATTACH_ERROR, DETACH_ERROR
from tests.lab.lab import POOL
from tests.lab.workloads import DRIVER

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.integration.states.making import Making

_ONCE: Final = "ReadWriteOncePod"
_SECOND_ADDRESS: Final = "10.77.0.91"
_UNKNOWN_ADDRESS: Final = "10.77.0.92"
"""Addresses that no Node has as its InternalIP."""


# --------------------------------------------------------------------------------------------------
# Two pods, one volume
# --------------------------------------------------------------------------------------------------


def rolling_update(making: Making) -> None:
    """A Deployment with maxSurge 1 and a ReadWriteOnce volume: its new pod is on another node."""
    making.bound()
    making.deployment(HERE)
    old = making.pod_of_owner(HERE)
    making.starts(old, HERE)
    change = {"spec": {"template": {"spec": {"nodeName": THERE}}}}
    making.patch("Deployment", making.name, change)
    new = making.pod_of_owner(THERE)
    making.waits(new, THERE)
    making.afterwards = lambda: making.hands_over(old, new, THERE)


def two_replicas(making: Making) -> None:
    """A Deployment of two replicas whose template names a ReadWriteOnce claim."""
    making.bound()
    making.deployment(replicas=2)
    for node in (HERE, THERE):
        name = making.pod_of_owner()
        making.place(name, node)
        if node == HERE:
            making.starts(name, node)
        else:
            making.waits(name, node)


def used_by_another_workload(making: Making) -> None:
    """Two pods of different workloads."""
    making.bound()
    making.running(HERE)
    making.waiting()


def one_pod_at_a_time(making: Making) -> None:
    """Two pods on one node, and a ReadWriteOncePod volume."""
    making.bound(mode=_ONCE)
    making.running(HERE)
    making.kubelet_says(making.waiting(HERE), "FailedMount", _once_refused(making))


def rolling_update_with_one_pod_at_a_time(making: Making) -> None:
    """A Deployment with maxSurge 1 and a ReadWriteOncePod volume, all of it on one node."""
    making.bound(mode=_ONCE)
    making.deployment(HERE)
    old = making.pod_of_owner(HERE)
    making.starts(old, HERE)
    change = {"spec": {"template": {"metadata": {"labels": {"version": "2"}}}}}
    making.patch("Deployment", making.name, change)
    new = making.pod_of_owner(HERE, but=old)
    making.waits(new, HERE)
    making.kubelet_says(new, "FailedMount", _once_refused(making))
    making.afterwards = lambda: making.hands_over(old, new, HERE)


def _once_refused(making: Making) -> str:
    return (
        f'MountVolume.SetUp failed for volume "{making.name}" : rpc error: code = '
        f"FailedPrecondition desc = volume uses the {_ONCE} access mode and is already in use by "
        "another pod"
    )


# --------------------------------------------------------------------------------------------------
# Attaching
# --------------------------------------------------------------------------------------------------


def attach_fails(making: Making) -> None:
    """The attacher reports an error of the driver."""
    making.bound()
    _told(making, ATTACH_ERROR, "rpc error: code = Internal desc = no such thing here")
    making.waiting()


def attachers_secret_missing(making: Making) -> None:
    """The secret of ControllerPublish was deleted."""
    making.bound()
    _told(making, ATTACH_ERROR, 'failed to load secret "ceph/rbd": secrets "rbd" not found')
    making.waiting()


def attached_by_nobody(making: Making) -> None:
    """A driver whose attacher does not run."""
    made = static_volume(making.name, pool=POOL, image=making.name)
    making.bound(csi=made["spec"]["csi"] | {"driver": ROOK})
    making.waiting()


def attach_not_begun(making: Making) -> None:
    """A node whose kubelet is configured to attach volumes, which does not work for CSI volumes."""
    node = making.nodes.add("played-alone", managed=False)
    making.bound()
    making.waiting(node, for_s=LONG_S)


def kubelet_does_not_begin(making: Making) -> None:
    """Kubelet renews its lease but does not write the status of its node."""
    making.bound()
    making.pod(THERE)
    making.attachment(THERE)


def driver_gone_from_the_old_node(making: Making) -> None:
    """The CSI node plugin no longer runs on the node where the volume has to be unmounted."""
    node = making.nodes.add("played-unplugged")
    making.bound()
    old = making.running(node)
    registered = making.get("CSINode", node)["spec"]
    making.patch("CSINode", node, {"spec": {"drivers": []}})
    making.force_delete(old)
    making.waiting(for_s=LONG_S)

    def back() -> None:
        making.patch("CSINode", node, {"spec": registered})
        making.nodes.lets_go(node, making.unique_name())

    making.repair = back


def driver_not_on_the_node(making: Making) -> None:
    """A node on which no CSI driver is registered."""
    node = making.nodes.add("played-bare", drivers=())
    making.bound()
    making.waiting(node)


def two_volumes_one_handle(making: Making) -> None:
    """A static PV was copied, and only its name was changed."""
    making.bound()
    copy = making.get("PersistentVolume", making.name)
    making.volume("-copy", csi=copy["spec"]["csi"])


# --------------------------------------------------------------------------------------------------
# Detaching
# --------------------------------------------------------------------------------------------------


def detach_fails(making: Making) -> None:
    """The attacher cannot detach; after its first failure the controller attaches elsewhere."""
    making.bound()
    _told(making, DETACH_ERROR, 'failed to load secret "ceph/rbd": secrets "rbd" not found')
    old = making.running(HERE)
    making.is_taken_down(old, HERE)
    making.waiting()
    making.attachment(THERE)


def detach_held(making: Making) -> None:
    """A foreign finalizer holds the VolumeAttachment, and no pod waits for the volume."""
    making.bound()
    old = making.running(HERE)
    making.hold(HERE)
    making.is_taken_down(old, HERE)


def attach_during_its_own_detach(making: Making) -> None:
    """The next pod is on the same node, and the old VolumeAttachment is not removed."""
    making.bound()
    old = making.running(HERE)
    making.hold(HERE)
    making.is_taken_down(old, HERE)
    making.wait_detaching(HERE)
    making.waiting(HERE)


def attachment_of_a_deleted_node(making: Making) -> None:
    """The Node object was deleted while its machine runs; a pod on another node waits."""
    node = making.nodes.add("played-gone")
    making.bound()
    old = making.running(node)
    making.force_delete(old)
    making.nodes.remove(node)
    making.waiting(for_s=LONG_S)


def attachment_of_a_deleted_volume(making: Making) -> None:
    """Claim and PV were deleted while kubelet could not unmount; a new PV has the same handle."""
    made, _ = making.bound()
    old = making.running(HERE)
    making.force_delete(old)
    making.delete("PersistentVolumeClaim", making.name)
    making.wait("PersistentVolume", making.name, "Released")
    making.delete("PersistentVolume", making.name)
    making.volume("-again", csi=made["spec"]["csi"])
    making.target = f"pv/{making.name}-again"


def volume_kept_by_its_attachment(making: Making) -> None:
    """Claim and PV were deleted while kubelet could not unmount; a finalizer holds the PV.

    external-attacher sets this finalizer for drivers with ControllerPublish.
    """
    making.bound()
    finalizers = ["kubernetes.io/pv-protection", f"external-attacher/{DRIVER.replace('.', '-')}"]
    making.patch("PersistentVolume", making.name, {"metadata": {"finalizers": finalizers}})
    old = making.running(HERE)
    making.force_delete(old)
    making.delete("PersistentVolumeClaim", making.name)
    making.wait("PersistentVolume", making.name, "Released")
    making.delete("PersistentVolume", making.name)
    making.of_volume()


def attachment_idle(making: Making) -> None:
    """A VolumeAttachment that was restored from YAML: the controller does not know it."""
    making.bound()
    spec = {
        "attacher": DRIVER,
        "nodeName": HERE,
        "source": {"persistentVolumeName": making.name},
    }
    meta = {"name": f"csi-{making.name}"}
    making.create({"kind": "VolumeAttachment", "metadata": meta, "spec": spec})
    making.waiting(for_s=LONG_S)
    making.attachment(THERE)


def _told(making: Making, fault: str, message: str) -> None:
    """Make the attacher fail until ``making.repair`` runs."""

    def annotate(value: str | None) -> None:
        annotations = {"metadata": {"annotations": {fault: value}}}
        making.patch("PersistentVolume", making.name, annotations)

    annotate(message)
    making.repair = lambda: annotate(None)


# --------------------------------------------------------------------------------------------------
# Clients outside the cluster
# --------------------------------------------------------------------------------------------------


def open_outside(making: Making) -> None:
    """A program outside the cluster has the image open, and a pod waits for it."""
    making.bound()
    making.undo.enter_context(librbd_client(making.lab, f"{POOL}/{making.name}", making.name))
    name = making.waiting()
    making.attachment(THERE)
    making.kubelet_says(name, "FailedMount", _still_used(making))


def open_outside_and_used_here(making: Making) -> None:
    """A program outside the cluster has an image open that a pod uses."""
    making.bound()
    making.undo.enter_context(librbd_client(making.lab, f"{POOL}/{making.name}", making.name))
    making.running(HERE)


def client_on_a_second_network(making: Making) -> None:
    """A node reaches Ceph from its second network, whose address only an annotation lists."""
    node = making.nodes.add("played-network")
    listed = {"k8s.ovn.org/host-cidrs": f'["{_SECOND_ADDRESS}/24"]'}
    making.patch("Node", node, {"metadata": {"annotations": listed}})
    making.bound()
    _client_at(making, _SECOND_ADDRESS)
    making.kubelet_says(making.waiting(), "FailedMount", _still_used(making))


def client_at_an_unknown_address(making: Making) -> None:
    """Only the kubelet of one node lists the volume, whose client has an address of no Node.

    rbd-nbd maps the volume, so that its watch is that of any librbd client.
    """
    node = making.nodes.add("played-unknown")
    source = static_volume(making.name, pool=POOL, image=making.name)["spec"]["csi"]
    source["volumeAttributes"]["mounter"] = "rbd-nbd"
    making.bound(csi=source)
    old = str(making.pod(node)["metadata"]["name"])
    making.waits(old, node)
    making.attachment(node)
    making.nodes.runs(old)
    _client_at(making, _UNKNOWN_ADDRESS)
    making.force_delete(old)
    making.waiting()


def _client_at(making: Making, address: str) -> None:
    """Open the image from an address; the repair is the end of that client."""
    machine = making.lab.network.add_machine(address)
    image = f"{POOL}/{making.name}"
    making.undo.enter_context(librbd_client(making.lab, image, making.name, netns=machine))
    making.repair = lambda: making.lab.processes.stop(f"librbd-{making.name}")


def _still_used(making: Making) -> str:
    return (
        f'MountVolume.MountDevice failed for volume "{making.name}" : rpc error: code = Internal '
        f"desc = rbd image {POOL}/{making.name} is still being used"
    )


STATES: Final[tuple[Callable[[Making], None], ...]] = (
    rolling_update,
    two_replicas,
    used_by_another_workload,
    one_pod_at_a_time,
    rolling_update_with_one_pod_at_a_time,
    attach_fails,
    attachers_secret_missing,
    attached_by_nobody,
    attach_not_begun,
    driver_not_on_the_node,
    driver_gone_from_the_old_node,
    two_volumes_one_handle,
    detach_fails,
    attachment_idle,
    attachment_of_a_deleted_volume,
    volume_kept_by_its_attachment,
    open_outside,
    client_on_a_second_network,
    client_at_an_unknown_address,
    open_outside_and_used_here,
    kubelet_does_not_begin,
    detach_held,
    attach_during_its_own_detach,
)
