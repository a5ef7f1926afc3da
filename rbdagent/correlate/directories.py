"""Kubelet's directories and the mounts of the observed node, by the names of volumes in them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeVar

from rbdagent.model import (
    CsiImageMeta,
    KubeletView,
    Mapping,
    Mount,
    NodeView,
    NotObserved,
    OpenFile,
    PodVolumeDirectory,
    StagingDirectory,
    UnbackedMount,
    VolumeData,
    derived,
    observed_of,
)
from rbdagent.parse.kubelet import VolumePath, pod_uid_of_path, volume_of_path

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_D = TypeVar("_D", StagingDirectory, PodVolumeDirectory)


def observed_mounts(mapping: Mapping | None) -> tuple[Mount, ...]:
    """Return the observed mounts."""
    return () if mapping is None else observed_of(mapping.mounts)


def openers_of(mapping: Mapping | None) -> tuple[OpenFile, ...]:
    """Return the observed openers."""
    return () if mapping is None else observed_of(mapping.openers)


class Directories(NamedTuple):
    """Index of kubelet's directories by their path and by every name that their volume may have.

    Each mapping needs several lookups, and a node may have many mappings.
    """

    staging: dict[str, list[StagingDirectory]] | NotObserved
    pod_volumes: dict[str, list[PodVolumeDirectory]] | NotObserved
    devices: dict[str, list[Mapping]]
    """The devices that are mounted at the paths of a volume, by its name in these paths: the name
    of the PV, or the hash of the handle."""


def directories_of(kubelet: KubeletView | NotObserved, mappings: Iterable[Mapping]) -> Directories:
    """Index the directories that kubelet keeps on a node, and the paths of its devices."""
    return Directories(
        staging=derived(kubelet, lambda view: _by_name(view.staging, _names_of_staging)),
        pod_volumes=derived(kubelet, lambda view: _by_name(view.pod_volumes, _names_of_pod_volume)),
        devices=_devices_by_path(mappings),
    )


def _devices_by_path(mappings: Iterable[Mapping]) -> dict[str, list[Mapping]]:
    found: dict[str, list[Mapping]] = {}
    for mapping in mappings:
        for path in paths_of_volumes(mapping):
            devices = found.setdefault(path.persistent_volume or path.handle_hash or "", [])
            if mapping not in devices[-1:]:
                devices.append(mapping)
    return found


def paths_of_volumes(mapping: Mapping) -> list[VolumePath]:
    """Return the volumes at whose paths a device, or its node, is mounted.

    Only mounts of the host count: a container can create any path in its own mount namespace.
    """
    return [
        path
        for mount in observed_of(mapping.mounts)
        if mount.namespace.is_host and (path := volume_of_path(mount.path)) is not None
    ]


def _by_name(
    directories: tuple[_D, ...] | NotObserved, words_of: Callable[[_D], Iterable[str | None]]
) -> dict[str, list[_D]] | NotObserved:
    if isinstance(directories, NotObserved):
        return directories
    found: dict[str, list[_D]] = {}
    for directory in directories:
        for word in words_of(directory):
            if word is not None:
                found.setdefault(word, []).append(directory)
    return found


def _names_of_staging(directory: StagingDirectory) -> Iterable[str | None]:
    stash = directory.stash
    named = stash.spec.name if isinstance(stash, CsiImageMeta) else None
    names = (directory.volume_handle, directory.handle_hash, directory.persistent_volume)
    return {directory.path, *names, named}


def _names_of_pod_volume(directory: PodVolumeDirectory) -> Iterable[str | None]:
    data = directory.volume_data
    handle = data.volume_handle if isinstance(data, VolumeData) else None
    return {directory.path, directory.persistent_volume, handle}


def pod_uids_on(mapping: Mapping) -> tuple[str, ...]:
    """Return the uids of the pods to which mounts and openers of the device belong."""
    uids = [mount.namespace.process.pod_uid for mount in observed_mounts(mapping)]
    uids += [
        opener.process.pod_uid
        for opener in openers_of(mapping)
        if opener.process.pid != mapping.server_pid
    ]
    uids += [pod_uid_of_path(mount.path) for mount in observed_mounts(mapping)]
    return tuple(sorted({uid for uid in uids if uid is not None}))


def unbacked_in(node: NodeView | None) -> tuple[UnbackedMount, ...]:
    """Return the observed containers whose mount of a volume is on another device."""
    return () if node is None else observed_of(node.unbacked)
