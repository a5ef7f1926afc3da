"""Facts of the observed node about a volume: directories, processes, pods unknown to the API."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from msgspec.structs import replace

from rbdagent.correlate.directories import (
    observed_mounts,
    openers_of,
    paths_of_volumes,
    pod_uids_on,
    unbacked_in,
)
from rbdagent.correlate.image_identity import identity_of_mapping, in_order, may_be, same_image
from rbdagent.correlate.index import kube_index, node_index
from rbdagent.correlate.names import VolumeNames
from rbdagent.correlate.volume_names import source_not_observed, was_mapped_for
from rbdagent.model import (
    BlockHolder,
    BlockHolderKind,
    CsiImageMeta,
    ImageIdentity,
    InFlight,
    KubeletView,
    KubeView,
    Mapping,
    NodeView,
    NotObserved,
    PersistentVolume,
    PodVolumeDirectory,
    ProcessRef,
    Snapshot,
    StagingDirectory,
    Target,
    TargetKind,
    UnbackedMount,
    VolumeData,
    derived,
    first_unobserved,
    observed_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

_D = TypeVar("_D", StagingDirectory, PodVolumeDirectory)

MAPPER_PREFIX = "luks-rbd-"
"""Prefix of the name that ceph-csi gives a LUKS mapping; the volume handle follows."""
_PROVISIONED_NAMES = ("csi-vol-", "kubernetes-dynamic-pvc-")
_PROVISIONED_KEYS = ("csi.storage.k8s.io/", "csi.ceph.com/", ".rbd.csi.ceph.com/")


def stacked_on(mapping: Mapping | None) -> tuple[BlockHolder, ...]:
    """Return the observed block devices and swap areas on top of the device."""
    return () if mapping is None else observed_of(mapping.holders)


def kubelet_of(snapshot: Snapshot) -> KubeletView | NotObserved:
    """Return the files of kubelet on the node."""
    node = snapshot.node
    return (
        source_not_observed(snapshot.sources.node, "kubelet's directories")
        if node is None
        else (node.kubelet)
    )


def kubelet_process(snapshot: Snapshot) -> ProcessRef | NotObserved | None:
    """Return the process of kubelet on the node; None if kubelet does not run."""
    return derived(kubelet_of(snapshot), lambda kubelet: kubelet.process)


def _directories_named(index: dict[str, list[_D]], words: Iterable[str]) -> list[_D]:
    """Return the directories that one of the words may name, in order of their paths."""
    found = {id(directory): directory for word in words for directory in index.get(word, ())}
    return sorted(found.values(), key=lambda directory: directory.path)


class VolumeDirectories(NamedTuple):
    """Kubelet's directories of one volume on this node."""

    staging: tuple[StagingDirectory, ...] | NotObserved
    pod_volumes: tuple[PodVolumeDirectory, ...] | NotObserved
    """Below ``pods``."""


def directories_of_volume(
    mapping: Mapping | None, names: VolumeNames, node: NodeView | None
) -> VolumeDirectories:
    """Return the directories of the volume on this node."""
    directories = node_index(node).directories
    mounted, known = _mounted_in(mapping), _Known.of(names)
    return VolumeDirectories(
        staging=_belonging(directories.staging, mounted, known, _stages),
        pod_volumes=_belonging(directories.pod_volumes, mounted, known, _publishes),
    )


def _belonging(
    index: dict[str, list[_D]] | NotObserved,
    mounted: frozenset[str],
    known: _Known,
    is_of_volume: Callable[[_D, _Known], bool],
) -> tuple[_D, ...] | NotObserved:
    """Return the directories on which the device is mounted, and those that name the volume."""
    return derived(
        index,
        lambda by_name: tuple(
            directory
            for directory in _directories_named(by_name, mounted | known.words)
            if directory.path in mounted or is_of_volume(directory, known)
        ),
    )


class _Known(NamedTuple):
    """Names of a volume, computed once for the comparison with all directories."""

    volumes: frozenset[str]
    handles: frozenset[str]
    hashes: frozenset[str]
    image: ImageIdentity | None

    @classmethod
    def of(cls, names: VolumeNames) -> _Known:
        return cls(
            volumes=names.persistent_volumes,
            handles=names.volume_handles,
            hashes=names.handle_hashes,
            image=names.image,
        )

    @property
    def words(self) -> frozenset[str]:
        """Every name that may show that a directory belongs to the volume."""
        stashed = frozenset() if self.image is None else {self.image.spec.name}
        return self.volumes | self.handles | self.hashes | stashed


def _stages(directory: StagingDirectory, known: _Known) -> bool:
    if directory.volume_handle is not None and known.handles:
        return directory.volume_handle in known.handles
    if directory.handle_hash is not None and directory.handle_hash in known.hashes:
        return True
    if directory.persistent_volume in known.volumes:
        return True
    # A stash does not name its cluster, so it is used only if no better name is known.
    stash = directory.stash
    return (
        isinstance(stash, CsiImageMeta)
        and known.image is not None
        and stash.spec == known.image.spec
    )


def _mounted_in(mapping: Mapping | None) -> frozenset[str]:
    """Return the paths on which a device is mounted, and all their parent directories."""
    found: set[str] = set()
    for mount in observed_mounts(mapping):
        path = mount.path
        while path and path not in found:
            found.add(path)
            path = path.rpartition("/")[0]
    return frozenset(found)


def _publishes(directory: PodVolumeDirectory, known: _Known) -> bool:
    if directory.persistent_volume in known.volumes:
        return True
    volume = directory.volume_data
    return (
        isinstance(volume, VolumeData)
        and volume.volume_handle is not None
        and volume.volume_handle in known.handles
    )


def leftovers_of(
    mapping: Mapping | None, names: VolumeNames, snapshot: Snapshot
) -> tuple[PodVolumeDirectory, ...]:
    """Return the pod directories whose pod is not in the API and that are not mount points.

    The directory of a raw block device has a link, and the device is bound at another path that has
    the uid of the pod.
    """
    node, kube = snapshot.node, snapshot.kubernetes
    if node is None or not kube_index(kube).coverage.pods_on(node.node_name):
        return ()
    known = kube_index(kube).pod_by_uid
    using = frozenset(() if mapping is None else pod_uids_on(mapping))
    mounted, directories = _mounted_in(mapping), node_index(node).directories
    found = _belonging(directories.pod_volumes, mounted, _Known.of(names), _publishes)
    return tuple(
        directory
        for directory in observed_of(found)
        if directory.pod_uid not in known
        and directory.pod_uid not in using
        and directory.path not in mounted
    )


def unknown_pod_uids(mapping: Mapping, snapshot: Snapshot) -> tuple[str, ...]:
    """Return the uids of the pods that use the device, and that the API does not list.

    A forced delete while kubelet is down removes the pod from the API, but its containers keep
    running. An incomplete list of pods proves nothing: return no uid.
    """
    node = snapshot.node
    if node is None or not kube_index(snapshot.kubernetes).coverage.pods_on(node.node_name):
        return ()
    known = kube_index(snapshot.kubernetes).pod_by_uid
    return tuple(uid for uid in pod_uids_on(mapping) if uid not in known)


def processes_in_flight(
    mapping: Mapping, names: VolumeNames, snapshot: Snapshot
) -> tuple[InFlight, ...] | NotObserved:
    """Return the processes in flight that name the image, the device or the volume, or open it."""
    node = snapshot.node
    if node is None:
        return source_not_observed(snapshot.sources.node, "processes in flight")
    words = _names_for(mapping, names)
    own = mapping.server_pid
    opening = {opener.process.pid for opener in openers_of(mapping) if opener.on_device}
    return derived(
        node.in_flight,
        lambda entries: tuple(
            entry
            for entry in sorted(entries, key=lambda entry: entry.process.pid)
            if entry.process.pid != own
            and (
                entry.process.pid in opening
                or any(_names_it(argument, words) for argument in entry.names)
            )
        ),
    )


def maps_in_flight(image: ImageIdentity | None, snapshot: Snapshot) -> tuple[InFlight, ...]:
    """Return the processes on the observed node with which rbd maps an image.

    A process of rbd-nbd is none: it serves a device for as long as the image is mapped.
    """
    if image is None or snapshot.node is None:
        return ()
    words = frozenset({str(image.spec), image.spec.name})
    return tuple(
        entry
        for entry in observed_of(snapshot.node.in_flight)
        if entry.program == "rbd"
        and "map" in entry.process.command.split()
        and any(_names_it(argument, words) for argument in entry.names)
    )


def _names_for(mapping: Mapping, names: VolumeNames) -> frozenset[str]:
    words = {mapping.device, *names.volume_handles, *names.handle_hashes}
    words |= names.persistent_volumes
    image = identity_of_mapping(mapping)
    if image is not None:
        words |= {str(image.spec), image.spec.name}
    words |= {holder.label for holder in stacked_on(mapping) if holder.label}
    return frozenset(words)


def _names_it(argument: str, words: frozenset[str]) -> bool:
    """Compare whole parts of an argument: ``/dev/rbd1`` is not ``/dev/rbd10``."""
    if argument in words or re.sub(r"^(/dev/rbd\d+)p\d+$", r"\1", argument) in words:
        return True
    parts = re.split(r"[/@=,:]", argument)
    return any(word in parts for word in words if len(word) > 1)


def names_without_volume(names: VolumeNames, target: Target, node: NodeView | None) -> VolumeNames:
    """Return the names of a volume whose PV the API does not have, with those that the node has.

    A PV that was deleted by force leaves the device and kubelet's directories, which name the PV
    and the handle. The target may be either of them, or the image that a stash names.
    """
    if names.volumes:
        return names
    by_handle = {("", target.name)} if target.kind is TargetKind.VOLUME_HANDLE else set()
    by_name = {target.name} if target.kind is TargetKind.PERSISTENT_VOLUME else set()
    names = replace(names, handles=names.handles | by_handle, former_volumes=frozenset(by_name))
    names, found = known_names(None, names, node)
    return replace(names, former_volumes=names.former_volumes | _volumes_in(found))


def known_names(
    mapping: Mapping | None, names: VolumeNames, node: NodeView | None
) -> tuple[VolumeNames, VolumeDirectories]:
    """Return the names with the handles that only the node has, and the volume's directories.

    If the API is down or the PV is deleted, no other source than vol_data.json has the handle. The
    handle of a staging directory leads to the directories of pods.
    """
    found = directories_of_volume(mapping, names, node)
    handles = names.handles | {*_handles_in(found)}
    if handles == names.handles:
        return names, found
    names = replace(names, handles=handles)
    return names, directories_of_volume(mapping, names, node)


def _handles_in(found: VolumeDirectories) -> Iterator[tuple[str, str]]:
    for directory in observed_of(found.staging):
        if directory.driver and directory.volume_handle:
            yield directory.driver, directory.volume_handle
    for entry in observed_of(found.pod_volumes):
        data = entry.volume_data
        if isinstance(data, VolumeData) and data.driver and data.volume_handle:
            yield data.driver, data.volume_handle


def volumes_on_node(mapping: Mapping, node: NodeView | None) -> frozenset[str]:
    """Return the PVs that kubelet's directories of a mapping name, without use of the API."""
    backend = mapping.nbd.backend if mapping.nbd is not None else None
    handles = frozenset() if backend is None else frozenset({("", backend)})
    names = VolumeNames(image=identity_of_mapping(mapping), handles=handles)
    _, found = known_names(mapping, names, node)
    return _volumes_in(found)


def _volumes_in(found: VolumeDirectories) -> frozenset[str]:
    """Return the PVs that directories name."""
    volumes = {
        *(directory.persistent_volume for directory in observed_of(found.staging)),
        *(entry.persistent_volume for entry in observed_of(found.pod_volumes)),
    }
    return frozenset(volume for volume in volumes if volume is not None)


def made_by_kubernetes(
    mapping: Mapping | None,
    names: VolumeNames,
    staging: tuple[StagingDirectory, ...] | NotObserved,
    metadata: Iterable[tuple[str, str]],
) -> bool:
    """Return whether Kubernetes manages the image: by PV, stash, mapper name or image name."""
    if observed_of(staging) or names.volumes:
        return True
    if any(key.startswith(_PROVISIONED_KEYS) for key, _ in metadata):
        return True
    if names.image is not None and names.image.spec.name.startswith(_PROVISIONED_NAMES):
        return True
    return any(
        holder.kind in (BlockHolderKind.DM, BlockHolderKind.LUKS)
        and holder.label.startswith(MAPPER_PREFIX)
        for holder in stacked_on(mapping)
    )


def driver_registered(
    node_name: str | None, names: VolumeNames, snapshot: Snapshot, *, local: bool
) -> bool | NotObserved:
    """Return whether the CSI driver of the volume is available on the node.

    CSINode must list it and, on the observed node, its socket must listen. In-tree volumes need no
    driver.
    """
    drivers = {driver for driver, _ in names.handles if driver}
    if not drivers:
        return True
    kube = snapshot.kubernetes
    reason: NotObserved | None = None
    if kube is None:
        reason = source_not_observed(snapshot.sources.kubernetes, "CSINode")
    elif isinstance(kube.csi_nodes, NotObserved):
        reason = kube.csi_nodes
    else:
        csi_node = kube_index(kube).csi_nodes.get(node_name or "")
        if csi_node is None:
            reason = NotObserved(reason=f"no CSINode object for {node_name}")
        elif drivers.isdisjoint(csi_node.drivers):
            return False
    if not local:
        return True if reason is None else reason
    return _socket_listens(drivers, snapshot, reason)


def _socket_listens(
    drivers: set[str], snapshot: Snapshot, reason: NotObserved | None
) -> bool | NotObserved:
    sockets = derived(kubelet_of(snapshot), lambda kubelet: kubelet.sockets)
    if isinstance(sockets, NotObserved):
        return sockets
    states = [socket.listening for socket in sockets if socket.driver in drivers]
    if any(state is True for state in states):
        return True
    if any(state is False for state in states):
        return False
    return first_unobserved(states) or reason or True


def sibling_devices(mapping: Mapping, node: NodeView) -> tuple[str, ...]:
    """Return the other devices of the same client: krbd has one client for a node and a user."""
    if mapping.client_id is None:
        return ()
    return tuple(
        sorted(
            other.device
            for other in observed_of(node.mappings)
            if other.device != mapping.device
            and (other.fsid, other.client_id, other.client_address)
            == (mapping.fsid, mapping.client_id, mapping.client_address)
        )
    )


def unbacked_mounts_of(names: VolumeNames, node: NodeView | None) -> tuple[UnbackedMount, ...]:
    """Return the containers whose mount of this volume is on another device."""
    return tuple(
        sorted(
            (
                directory
                for directory in unbacked_in(node)
                if directory.persistent_volume in names.persistent_volumes
            ),
            key=lambda directory: (directory.pod_uid, directory.path),
        )
    )


def unbacked_on(snapshot: Snapshot) -> tuple[UnbackedMount, ...]:
    """Return all such containers of the observed node, even if the volume is not mapped there.

    Other drivers use the same directories: a PV that is not in the API may belong to one of them.
    """
    volumes = kube_index(snapshot.kubernetes).images
    return tuple(
        directory
        for directory in unbacked_in(snapshot.node)
        if directory.persistent_volume in volumes
    )


def mapped_here(names: VolumeNames, node: NodeView | None) -> tuple[Mapping, ...]:
    """Return the devices of the observed node that map the volume's image, in their order."""
    index, image = node_index(node), names.image
    found = [
        mapping
        for handle in names.volume_handles
        for mapping in index.mappings_by_backend.get(handle, ())
    ]
    if image is not None:
        found += index.mappings_by_image.get(image.spec.name, ())
        found += index.mappings_by_image_id.get(image.image_id or "", ())
    every = {id(mapping): mapping for mapping in found}.values()
    return in_order(mapping for mapping in every if maps(mapping, names))


def maps(mapping: Mapping, names: VolumeNames) -> bool:
    """Return whether a device is a mapping of the volume's image.

    rbd-nbd shows no image id and no cluster. Its cookie identifies the volume instead: ceph-csi
    sets it to the volume handle.
    """
    if mapping.nbd is not None and mapping.nbd.backend in names.volume_handles:
        return True
    image, spec = names.image, mapping.spec
    if image is None or isinstance(spec, NotObserved):
        return False
    if not may_be(image, spec.name, mapping.image_id):
        return False
    mapped = identity_of_mapping(mapping)
    return mapped is not None and same_image(image, mapped)


def volumes_of_paths(mapping: Mapping, kube: KubeView | None) -> Iterator[PersistentVolume]:
    """Yield the PVs at whose paths a device is mounted."""
    index = kube_index(kube)
    for path in paths_of_volumes(mapping):
        if path.persistent_volume in index.volume_by_name:
            yield index.volume_by_name[path.persistent_volume]
        if path.handle is not None:
            yield from index.volumes_by_handle.get(path.handle, ())


def serving(names: VolumeNames, node: NodeView | None) -> tuple[Mapping, ...]:
    """Return the devices that are of a PV of the volume, whatever image its name leads to today.

    A PV contains the name of an image, not its id. If the image was renamed while it was mapped,
    and another one was created with its name, the PV leads to the other one. The device is still
    mounted at the paths of the PV. And sysfs still shows the name with which it was mapped: only a
    map sets ``spec->image_name`` (drivers/block/rbd.c).
    """
    index = node_index(node)
    found = [
        mapping
        for word in names.persistent_volumes | names.handle_hashes
        for mapping in index.directories.devices.get(word, ())
    ]
    found += [
        mapping
        for name in names.image_names
        for mapping in index.mappings_by_image.get(name, ())
        if was_mapped_for(identity_of_mapping(mapping), names)
    ]
    return in_order({id(mapping): mapping for mapping in found}.values())
