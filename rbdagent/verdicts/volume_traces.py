"""What remains of a PV on the observed node: it prevents `Free`, whatever image the PV leads to.

A PV contains the name of an image. If that image was renamed while it was mapped, Ceph and sysfs
show no client of the image that has its name now. Only the node shows that the PV is still used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rbdagent.correlate.image_identity import mappings_of
from rbdagent.correlate.node_usage import (
    directories_of_volume,
    kubelet_of,
    names_without_volume,
    unbacked_on,
)
from rbdagent.correlate.volume_names import in_volumes_in_use, names_of_volume, node_named
from rbdagent.model import (
    NotObserved,
    PodVolumeDirectory,
    StagingDirectory,
    VolumeData,
    first_unobserved,
    observed_of,
    unobserved,
)
from rbdagent.parse import labels
from rbdagent.parse.volume import DRIVER_SUFFIX

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from rbdagent.correlate.names import VolumeNames
    from rbdagent.model import Diagnosis, NodeView, Snapshot, Volume


def traces_here(volume: Volume, snapshot: Snapshot) -> tuple[str, ...]:
    """Return what remains of a volume's PVs on this node, and what would show it.

    The caller has found no holder: no device is mounted at a path of the PVs, as far as the mounts
    were observed.
    """
    return (*left_here(volume, snapshot), *listed_here(volume, snapshot))


def listed_here(volume: Volume, snapshot: Snapshot) -> tuple[str, ...]:
    """Return that kubelet on this node lists the volume, as `traces_here` does."""
    node = snapshot.node
    if node is None:
        return ()
    names = names_without_volume(names_of_volume(volume), volume.target, node)
    return tuple(_in_volumes_in_use(names, node, snapshot))


def left_here(volume: Volume, snapshot: Snapshot, *, besides: str | None = None) -> tuple[str, ...]:
    """Return what remains of a volume's PVs in directories, containers and mounts of this node.

    Args:
        volume: the volume.
        snapshot: of the node.
        besides: the uid of a pod whose own directories do not count.
    """
    node = snapshot.node
    if node is None:
        return ()
    names = names_without_volume(names_of_volume(volume), volume.target, node)
    return (
        *_in_directories(names, node, besides),
        *_in_containers(volume, node),
        *_of_unknown_mounts(node),
    )


def keys_of_traces(diagnoses: Iterable[Diagnosis], snapshot: Snapshot) -> frozenset[str]:
    """Return the keys of the volumes that this node does not map and may still use.

    An agent publishes them, so that no other node takes these volumes for free.
    """
    kubelet, devices = kubelet_of(snapshot), mappings_of(snapshot.node)
    if isinstance(kubelet, NotObserved) or first_unobserved(
        (kubelet.staging, kubelet.pod_volumes, *(device.mounts for device in devices))
    ):
        return frozenset({labels.UNKNOWN_VOLUME})
    mapped = [names_of_volume(diagnosis.volume) for diagnosis in diagnoses]
    known = frozenset[str]().union(
        *(names.persistent_volumes | names.volume_handles for names in mapped)
    )
    used = {
        *_volumes_of_pods(observed_of(kubelet.pod_volumes)),
        *_staged_volumes(observed_of(kubelet.staging)),
        *((unbacked.persistent_volume,) for unbacked in unbacked_on(snapshot)),
    }
    return frozenset(
        labels.volume_key(name) for names in used if known.isdisjoint(names) for name in names
    )


def _volumes_of_pods(found: Iterable[PodVolumeDirectory]) -> Iterator[tuple[str, ...]]:
    """Yield PV and handle of each RBD volume that has a directory of a pod."""
    for directory in found:
        data = directory.volume_data
        driver = data.driver if isinstance(data, VolumeData) else None
        if driver is None or driver.endswith(DRIVER_SUFFIX):
            handle = data.volume_handle if isinstance(data, VolumeData) else None
            yield tuple(name for name in (directory.persistent_volume, handle) if name)


def _staged_volumes(found: Iterable[StagingDirectory]) -> Iterator[tuple[str, ...]]:
    """Yield PV and handle of each RBD volume whose mount point of the staging exists."""
    for directory in found:
        if directory.path_present and (directory.driver or "").endswith(DRIVER_SUFFIX):
            names = directory.persistent_volume, directory.volume_handle
            yield tuple(name for name in names if name)


def _in_directories(names: VolumeNames, node: NodeView, besides: str | None) -> Iterator[str]:
    """Yield kubelet's directories of the PVs.

    A staging directory without its mount point does not count: NodeUnstage removes the mount point
    after the umount, and no component removes the rest after kubelet has restarted (recording
    13-after-kubelet-restart).
    """
    found = directories_of_volume(None, names, node)
    unseen = unobserved(
        (
            ("kubelet's staging directories", found.staging),
            ("kubelet's pod directories", found.pod_volumes),
        )
    )
    yield from (f"{what} ({why.reason})" for what, why in unseen)
    for directory in observed_of(found.pod_volumes):
        if directory.pod_uid == besides:
            continue
        yield f"whether pod {directory.pod_uid} still uses it: {directory.path} exists"
    for staged in observed_of(found.staging):
        if staged.path_present:
            yield f"whether it is still staged: {staged.path} exists"


def _in_containers(volume: Volume, node: NodeView) -> Iterator[str]:
    """Yield the containers of its pods that run here, whatever the API reports of the pods."""
    pods = {pod.ref.uid: pod for pod in volume.pods if pod.ref.uid}
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
