"""What the node that looked shows of a volume: directories, processes, pods the API lost."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from msgspec.structs import replace

from rbdagent.correlate.identity import (
    identity_of_mapping,
    may_be,
    pods_of,
    same_image,
    volume_image,
    volumes_of,
)
from rbdagent.correlate.names import VolumeNames, knows_every_pod_on, not_given
from rbdagent.model import (
    BlockHolderKind,
    ImageIdentity,
    InFlight,
    KubeletView,
    Mapping,
    Mount,
    NodeView,
    NotObserved,
    Opener,
    PodVolumeDirectory,
    Snapshot,
    StagingDirectory,
    UnbackedMount,
    observed_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_D = TypeVar("_D", StagingDirectory, PodVolumeDirectory)

_POD_UID = re.compile(r"/pods/([^/]+)/volume(?:s|Devices)/")
"""A pod's own directory below kubelet's root, wherever that is."""
_BLOCK_POD_UID = re.compile(r"/volumeDevices/(?:publish/[^/]+|[^/]+/dev)/([^/]+)$")
"""Block mode: the binds of the device node below ``plugins/kubernetes.io/csi/volumeDevices``."""
MAPPER_PREFIX = "luks-rbd-"
"""Of the name that ceph-csi gives a LUKS mapping; its volume handle follows."""
_PROVISIONED_NAMES = ("csi-vol-", "kubernetes-dynamic-pvc-")
_PROVISIONED_KEYS = ("csi.storage.k8s.io/", "csi.ceph.com/", ".rbd.csi.ceph.com/")


def pod_uid_of_path(path: str) -> str | None:
    """Give the uid of the pod at whose path a volume is mounted, by kubelet's layout."""
    found = _POD_UID.search(path) or _BLOCK_POD_UID.search(path)
    return found.group(1) if found else None


def mounts_of(mapping: Mapping | None) -> tuple[Mount, ...]:
    """Give the mounts that were seen."""
    return () if mapping is None or isinstance(mapping.mounts, NotObserved) else mapping.mounts


def openers_of(mapping: Mapping | None) -> tuple[Opener, ...]:
    """Give the openers that were seen."""
    return () if mapping is None or isinstance(mapping.openers, NotObserved) else mapping.openers


def kubelet_of(snapshot: Snapshot) -> KubeletView | NotObserved:
    """Give what kubelet left on the node."""
    node = snapshot.node
    return (
        not_given(snapshot.sources.node, "kubelet's directories")
        if node is None
        else (node.kubelet)
    )


class Directories(NamedTuple):
    """Kubelet's directories by every word that may name their volume, and by their path.

    A node with many mappings asks several times a mapping.
    """

    staging: dict[str, list[StagingDirectory]] | NotObserved
    pod_volumes: dict[str, list[PodVolumeDirectory]] | NotObserved


def directories_of(snapshot: Snapshot) -> Directories:
    """Index what kubelet left on the node."""
    kubelet = kubelet_of(snapshot)
    if isinstance(kubelet, NotObserved):
        return Directories(staging=kubelet, pod_volumes=kubelet)
    return Directories(
        staging=_by_words(kubelet.staging, _words_of_staging),
        pod_volumes=_by_words(kubelet.pod_volumes, _words_of_pod_volume),
    )


def _by_words(
    directories: tuple[_D, ...] | NotObserved, words_of: Callable[[_D], Iterable[str | None]]
) -> dict[str, list[_D]] | NotObserved:
    if isinstance(directories, NotObserved):
        return directories
    found: dict[str, list[_D]] = {}
    for each in directories:
        for word in words_of(each):
            if word is not None:
                found.setdefault(word, []).append(each)
    return found


def _words_of_staging(directory: StagingDirectory) -> Iterable[str | None]:
    stash = directory.stash
    named = None if stash is None or isinstance(stash, NotObserved) else stash.spec.name
    names = (directory.volume_handle, directory.handle_hash, directory.persistent_volume)
    return {directory.path, *names, named}


def _words_of_pod_volume(directory: PodVolumeDirectory) -> Iterable[str | None]:
    data = directory.volume_data
    handle = None if data is None or isinstance(data, NotObserved) else data.volume_handle
    return {directory.path, directory.persistent_volume, handle}


def _called(index: dict[str, list[_D]], words: Iterable[str]) -> list[_D]:
    """Give the directories that one of the words may mean, in order of their paths."""
    found = {id(each): each for word in words for each in index.get(word, ())}
    return sorted(found.values(), key=lambda each: each.path)


def staging_of(
    mapping: Mapping | None, names: VolumeNames, directories: Directories
) -> tuple[StagingDirectory, ...] | NotObserved:
    """Give the staging directories of the volume on this node."""
    if isinstance(directories.staging, NotObserved):
        return directories.staging
    mounted, known = _mounted_in(mapping), _Known.of(names)
    return tuple(
        each
        for each in _called(directories.staging, mounted | known.words)
        if each.path in mounted or _stages(each, known)
    )


class _Known(NamedTuple):
    """Names of a volume, made once for all the directories that are compared."""

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
        """Every word by which a directory may be known to be the volume's."""
        stashed = frozenset() if self.image is None else {self.image.spec.name}
        return self.volumes | self.handles | self.hashes | stashed


def _stages(directory: StagingDirectory, known: _Known) -> bool:
    if directory.volume_handle is not None and known.handles:
        return directory.volume_handle in known.handles
    if directory.handle_hash is not None and directory.handle_hash in known.hashes:
        return True
    if directory.persistent_volume in known.volumes:
        return True
    # The stash knows no cluster: it decides only where nothing better is known.
    stash = directory.stash
    return (
        stash is not None
        and not isinstance(stash, NotObserved)
        and known.image is not None
        and stash.spec == known.image.spec
    )


def _mounted_in(mapping: Mapping | None) -> frozenset[str]:
    """Give the paths where a device is mounted, and every directory above them."""
    found: set[str] = set()
    for each in mounts_of(mapping):
        path = each.path
        while path and path not in found:
            found.add(path)
            path = path.rpartition("/")[0]
    return frozenset(found)


def pod_volumes_of(
    mapping: Mapping | None, names: VolumeNames, directories: Directories
) -> tuple[PodVolumeDirectory, ...] | NotObserved:
    """Give the directories of the volume below kubelet's ``pods`` on this node."""
    if isinstance(directories.pod_volumes, NotObserved):
        return directories.pod_volumes
    mounted, known = _mounted_in(mapping), _Known.of(names)
    return tuple(
        each
        for each in _called(directories.pod_volumes, mounted | known.words)
        if each.path in mounted or _publishes(each, known)
    )


def _publishes(directory: PodVolumeDirectory, known: _Known) -> bool:
    if directory.persistent_volume in known.volumes:
        return True
    volume = directory.volume_data
    if volume is None or isinstance(volume, NotObserved):
        return False
    return volume.volume_handle is not None and volume.volume_handle in known.handles


def leftovers_of(
    mapping: Mapping | None, names: VolumeNames, snapshot: Snapshot, directories: Directories
) -> tuple[PodVolumeDirectory, ...]:
    """Give pod directories without a pod in the API and with nothing mounted at them."""
    published = pod_volumes_of(mapping, names, directories)
    node, kube = snapshot.node, snapshot.kubernetes
    if isinstance(published, NotObserved) or node is None:
        return ()
    if not knows_every_pod_on(kube, node.node_name):
        return ()
    known = {each.ref.uid for each in pods_of(kube)}
    mounted = _mounted_in(mapping)
    return tuple(
        each for each in published if each.pod_uid not in known and each.path not in mounted
    )


def pod_uids_on(mapping: Mapping) -> tuple[str, ...]:
    """Give the uids of pods that the device's mounts and openers name."""
    uids = [each.namespace.process.pod_uid for each in mounts_of(mapping)]
    uids += [
        each.process.pod_uid
        for each in openers_of(mapping)
        if each.process.pid != server_pid(mapping)
    ]
    uids += [pod_uid_of_path(each.path) for each in mounts_of(mapping)]
    return tuple(sorted({each for each in uids if each is not None}))


def server_pid(mapping: Mapping | None) -> int | None:
    """Give the pid of the rbd-nbd process that serves a device; it has its own device open."""
    if mapping is None or mapping.nbd is None:
        return None
    server = mapping.nbd.process
    return None if server is None or isinstance(server, NotObserved) else server.pid


def lost_pod_uids(mapping: Mapping, snapshot: Snapshot) -> tuple[str, ...]:
    """Give the uids of pods that live on the device while the API does not know them.

    A force delete while kubelet is down takes the pod out of the API; its containers run on. A
    list of pods that is not whole proves nothing: then nobody is called lost.
    """
    node = snapshot.node
    if node is None or not knows_every_pod_on(snapshot.kubernetes, node.node_name):
        return ()
    known = {each.ref.uid for each in pods_of(snapshot.kubernetes)}
    return tuple(each for each in pod_uids_on(mapping) if each not in known)


def in_flight_of(
    mapping: Mapping, names: VolumeNames, snapshot: Snapshot
) -> tuple[InFlight, ...] | NotObserved:
    """Give the processes in flight that name the image, the device or the volume."""
    node = snapshot.node
    if node is None:
        return not_given(snapshot.sources.node, "processes in flight")
    if isinstance(node.in_flight, NotObserved):
        return node.in_flight
    words = _words_for(mapping, names)
    own = server_pid(mapping)
    return tuple(
        each
        for each in sorted(node.in_flight, key=lambda each: each.process.pid)
        if each.process.pid != own and any(_names_it(argument, words) for argument in each.names)
    )


def _words_for(mapping: Mapping, names: VolumeNames) -> frozenset[str]:
    words = {mapping.device, *names.volume_handles, *names.handle_hashes}
    words |= names.persistent_volumes
    if not isinstance(mapping.spec, NotObserved):
        words |= {str(mapping.spec), mapping.spec.name}
    holders = () if isinstance(mapping.holders, NotObserved) else mapping.holders
    words |= {each.label for each in holders if each.label}
    return frozenset(words)


def _names_it(argument: str, words: frozenset[str]) -> bool:
    """Compare whole parts of an argument: ``/dev/rbd1`` is not ``/dev/rbd10``."""
    if argument in words or re.sub(r"^(/dev/rbd\d+)p\d+$", r"\1", argument) in words:
        return True
    parts = re.split(r"[/@=,:]", argument)
    return any(word in parts for word in words if len(word) > 1)


def known_handles(mapping: Mapping, names: VolumeNames, directories: Directories) -> VolumeNames:
    """Add what the node alone knows: the handle in vol_data.json, the PV in a pod's directory.

    With the API down, or the PV deleted, that is all that is left of the volume's names.
    """
    handles = set(names.handles)
    staging = staging_of(mapping, names, directories)
    for each in () if isinstance(staging, NotObserved) else staging:
        if each.driver and each.volume_handle:
            handles.add((each.driver, each.volume_handle))
    published = pod_volumes_of(mapping, names, directories)
    for directory in () if isinstance(published, NotObserved) else published:
        data = directory.volume_data
        if data is None or isinstance(data, NotObserved):
            continue
        if data.driver and data.volume_handle:
            handles.add((data.driver, data.volume_handle))
    return replace(names, handles=frozenset(handles))


def volumes_on_node(mapping: Mapping, directories: Directories) -> frozenset[str]:
    """Give the PVs whose names kubelet's directories of a mapping bear, without the API's word."""
    backend = mapping.nbd.backend if mapping.nbd is not None else None
    handles = frozenset() if backend is None else frozenset({("", backend)})
    names = VolumeNames(image=identity_of_mapping(mapping), handles=handles)
    # The handle of a staging directory leads to the pods' directories.
    names = known_handles(mapping, names, directories)
    staging = staging_of(mapping, names, directories)
    published = pod_volumes_of(mapping, names, directories)
    found = {
        *(each.persistent_volume for each in observed_of(staging)),
        *(each.persistent_volume for each in observed_of(published)),
    }
    return frozenset(each for each in found if each is not None)


def made_by_kubernetes(
    mapping: Mapping | None,
    names: VolumeNames,
    staging: tuple[StagingDirectory, ...] | NotObserved,
    metadata: Iterable[tuple[str, str]],
) -> bool:
    """Tell whether the image is Kubernetes': by a PV, a stash, a mapper's name or its own name."""
    if names.volumes or (staging and not isinstance(staging, NotObserved)):
        return True
    if any(key.startswith(_PROVISIONED_KEYS) for key, _ in metadata):
        return True
    if names.image is not None and names.image.spec.name.startswith(_PROVISIONED_NAMES):
        return True
    holders = () if mapping is None or isinstance(mapping.holders, NotObserved) else mapping.holders
    return any(
        each.kind in (BlockHolderKind.DM, BlockHolderKind.LUKS)
        and each.label.startswith(MAPPER_PREFIX)
        for each in holders
    )


def driver_registered(
    node_name: str | None, names: VolumeNames, snapshot: Snapshot, *, local: bool
) -> bool | NotObserved:
    """Tell whether the volume's CSI driver answers on the node.

    CSINode must list it and, on the node that looked, its socket must listen. In-tree volumes need
    no driver.
    """
    drivers = {driver for driver, _ in names.handles}
    if not drivers:
        return True
    kube = snapshot.kubernetes
    unseen: NotObserved | None = None
    if kube is None:
        unseen = not_given(snapshot.sources.kubernetes, "CSINode")
    elif isinstance(kube.csi_nodes, NotObserved):
        unseen = kube.csi_nodes
    else:
        for each in kube.csi_nodes:
            if each.node_name == node_name and drivers.isdisjoint(each.drivers):
                return False
        if all(each.node_name != node_name for each in kube.csi_nodes):
            unseen = NotObserved(reason=f"no CSINode object for {node_name}")
    if not local:
        return True if unseen is None else unseen
    return _socket_listens(drivers, snapshot, unseen)


def _socket_listens(
    drivers: set[str], snapshot: Snapshot, unseen: NotObserved | None
) -> bool | NotObserved:
    kubelet = kubelet_of(snapshot)
    if isinstance(kubelet, NotObserved):
        return kubelet
    if isinstance(kubelet.sockets, NotObserved):
        return kubelet.sockets
    states = [each.listening for each in kubelet.sockets if each.driver in drivers]
    if any(state is True for state in states):
        return True
    if any(state is False for state in states):
        return False
    blind = next((each for each in states if isinstance(each, NotObserved)), None)
    return blind or unseen or True


def sibling_devices(mapping: Mapping, node: NodeView) -> tuple[str, ...]:
    """Give the other devices of the same client: krbd shares one client a node and user."""
    if mapping.client_id is None or isinstance(node.mappings, NotObserved):
        return ()
    return tuple(
        sorted(
            each.device
            for each in node.mappings
            if each.device != mapping.device
            and (each.fsid, each.client_id, each.client_address)
            == (mapping.fsid, mapping.client_id, mapping.client_address)
        )
    )


def unbacked_of(names: VolumeNames, node: NodeView | None) -> tuple[UnbackedMount, ...]:
    """Give the containers whose mount of this volume lies on another device."""
    if node is None or isinstance(node.unbacked, NotObserved):
        return ()
    return tuple(
        sorted(
            (each for each in node.unbacked if each.persistent_volume in names.persistent_volumes),
            key=lambda each: (each.pod_uid, each.path),
        )
    )


def unbacked_on(snapshot: Snapshot) -> tuple[UnbackedMount, ...]:
    """Give such containers of the node that looked, whether the volume is mapped there or not.

    Other drivers mount in the same place: a PV that the API does not tell of may be theirs.
    """
    node = snapshot.node
    if node is None or isinstance(node.unbacked, NotObserved):
        return ()
    volumes = {each.name for each in volumes_of(snapshot.kubernetes) if volume_image(each)}
    return tuple(each for each in node.unbacked if each.persistent_volume in volumes)


def maps(mapping: Mapping, names: VolumeNames) -> bool:
    """Tell whether a device is a mapping of the volume's image.

    rbd-nbd shows no image id and no cluster: its cookie, which ceph-csi sets to the volume handle,
    is as good as a name.
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
