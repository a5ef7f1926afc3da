"""What remains of a PV on the observed node: it prevents `Free`, whatever image the PV leads to.

A PV contains the name of an image. If that image was renamed while it was mapped, Ceph and sysfs
show no client of the image that has its name now. Only the node shows that the PV is still used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rbdagent.correlate.image_identity import mappings_of
from rbdagent.correlate.node_usage import directories_of, directories_of_volume
from rbdagent.correlate.volume_names import in_volumes_in_use, names_of_use, node_named
from rbdagent.model import NotObserved, observed_of, unobserved

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rbdagent.correlate.volume_names import VolumeNames
    from rbdagent.model import NodeView, Snapshot, Volume


def traces_here(use: Volume, snapshot: Snapshot) -> tuple[str, ...]:
    """Return what remains of a volume's PVs on this node, and what would show it.

    The caller has found no holder: no device is mounted at a path of the PVs, as far as the mounts
    were observed.
    """
    node, names = snapshot.node, names_of_use(use)
    if node is None or not names.volumes:
        return ()
    return (
        *_in_directories(names, snapshot),
        *_in_containers(use, node),
        *_in_volumes_in_use(names, node, snapshot),
        *_of_unknown_mounts(node),
    )


def _in_directories(names: VolumeNames, snapshot: Snapshot) -> Iterator[str]:
    """Yield kubelet's directories of the PVs.

    A staging directory without its mount point does not count: NodeUnstage removes the mount point
    after the umount, and no component removes the rest after kubelet has restarted (recording
    13-after-kubelet-restart).
    """
    found = directories_of_volume(None, names, directories_of(snapshot))
    unseen = unobserved(
        (
            ("kubelet's staging directories", found.staging),
            ("kubelet's pod directories", found.pod_volumes),
        )
    )
    yield from (f"{what} ({why.reason})" for what, why in unseen)
    for directory in observed_of(found.pod_volumes):
        yield f"whether pod {directory.pod_uid} still uses it: {directory.path} exists"
    for staged in observed_of(found.staging):
        if staged.path_present:
            yield f"whether it is still staged: {staged.path} exists"


def _in_containers(use: Volume, node: NodeView) -> Iterator[str]:
    """Yield the containers of its pods that run here, whatever the API reports of the pods."""
    pods = {pod.ref.uid: pod for pod in use.pods if pod.ref.uid}
    for process in node.processes:
        if process.pod_uid in pods:
            yield (
                f"whether pod {pods[process.pod_uid].ref} still uses it: process {process.pid} of "
                "its container runs"
            )


def _in_volumes_in_use(names: VolumeNames, node: NodeView, snapshot: Snapshot) -> Iterator[str]:
    listed = in_volumes_in_use(node_named(node.node_name, snapshot), names)
    if listed is True:
        yield f"whether {node.node_name} has it mapped: its kubelet lists it in volumesInUse"


def _of_unknown_mounts(node: NodeView) -> Iterator[str]:
    """Yield the devices that may be mounted at a path of the PVs."""
    for mapping in mappings_of(node):
        if isinstance(mapping.mounts, NotObserved):
            yield f"where {mapping.device} is mounted ({mapping.mounts.reason})"
