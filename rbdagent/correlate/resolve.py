"""The objects that a target names: its pods, claims, PVs and images."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rbdagent.correlate.image_identity import (
    identity_of_mapping,
    pod_volumes_on,
    stashes_of,
    volume_image,
)
from rbdagent.correlate.index import derived_view, index_of, keys_of_volume, kube_index, node_index
from rbdagent.correlate.names import key_of
from rbdagent.correlate.views import with_namespace
from rbdagent.model import (
    CsiSource,
    ImageIdentity,
    ImageSpec,
    KubeEvent,
    KubeView,
    Mapping,
    NodeView,
    NotObserved,
    PersistentVolume,
    Pod,
    Snapshot,
    Target,
    TargetKind,
    VolumeData,
)
from rbdagent.parse.handle import composed_handle
from rbdagent.parse.volume import image_of

if TYPE_CHECKING:
    from collections.abc import Iterable


def images_of(
    target: Target, node: NodeView | None, kube: KubeView | None
) -> tuple[ImageIdentity, ...]:
    """Return the images of a target, before Ceph is queried (the fsid may be None).

    A pod may have several images, an unbound claim has none. Without a target (``list``), return
    the images of all mappings of the node.
    """
    match target.kind:
        case TargetKind.IMAGE:
            found = [ImageIdentity(spec=target.image, fsid=None)] if target.image else []
        case TargetKind.DEVICE:
            found = _images_of_devices(
                mapping for mapping in node_index(node).mappings if is_target(target, mapping)
            )
        case TargetKind.NONE:
            found = _images_of_devices(node_index(node).mappings)
        case _:
            found = _images_of_objects(target, node, kube)
    return tuple(dict.fromkeys(found))


def is_target(target: Target, mapping: Mapping) -> bool:
    """Return whether a device target means this mapping; ``rbd0`` is the same as ``/dev/rbd0``."""
    return target.name.removeprefix("/dev/") == mapping.kernel_name


def about(target: Target, snapshot: Snapshot) -> Snapshot:
    """Return the snapshot of a cluster as one about a target, with the events of that target only.

    Everything else is the same, and so is what was worked out once.
    """
    kube = snapshot.kubernetes
    if kube is not None and not isinstance(kube.events, NotObserved):
        kube = derived_view(kube, events=_events_of(target, kube))
    return derived_view(snapshot, target=target, kubernetes=kube)


def is_known(target: Target, snapshot: Snapshot) -> bool:
    """Return whether a snapshot contains the object that a target names."""
    index, key = index_of(snapshot), (target.namespace, target.name)
    kube = index.kube
    match target.kind:
        case TargetKind.CLAIM:
            return key in kube.claim_by_key
        case TargetKind.POD:
            return key in kube.pod_by_key
        case TargetKind.PERSISTENT_VOLUME:
            return target.name in kube.volume_by_name
        case TargetKind.VOLUME_HANDLE:
            return target.name in kube.handles_by_value
        case TargetKind.DEVICE:
            return any(is_target(target, mapping) for mapping in index.node.mappings)
    name = "" if target.image is None else target.image.name
    return (
        name in kube.volumes_by_image
        or name in kube.pods_by_image
        or any(name in cluster.by_name for cluster in index.ceph.views)
    )


def _events_of(target: Target, kube: KubeView) -> tuple[KubeEvent, ...]:
    """Return the events of the target's PVs and claims, and of all pods of these claims.

    A claim or a pod may be deleted, and its events still exist.
    """
    index = kube_index(kube)
    volumes = target_volumes(target, kube)
    claims = {*target_claims(target, kube)}
    claims |= {key_of(volume.claim) for volume in volumes if volume.claim is not None}
    pods = (pod for claim in claims for pod in index.pods_by_claim.get(claim, ()))
    subjects = {(target.namespace, target.name), *claims, *(key_of(pod.ref) for pod in pods)}
    subjects |= {key for volume in volumes for key in keys_of_volume(volume)}
    return tuple(
        event for subject in subjects for event in index.events_by_subject.get(subject, ())
    )


def _images_of_devices(mappings: Iterable[Mapping]) -> list[ImageIdentity]:
    return [image for mapping in mappings if (image := identity_of_mapping(mapping)) is not None]


def _images_of_objects(
    target: Target, node: NodeView | None, kube: KubeView | None
) -> list[ImageIdentity]:
    volumes = target_volumes(target, kube)
    found = [
        with_namespace(image, candidate, node, kube, None)
        for candidate in volumes
        if (image := volume_image(candidate)) is not None
    ]
    if target.kind is TargetKind.PERSISTENT_VOLUME and not volumes:
        found += _images_of_name(target.name, node)
    for volume in volumes:
        if isinstance(image_of(volume), NotObserved) and isinstance(volume.source, CsiSource):
            found += _images_of_handle(volume.source.volume_handle, node)
    if target.kind is TargetKind.POD:
        inline = (source for pod in target_pods(target, kube) for source in pod.inline_images)
        found += [ImageIdentity(spec=source.spec, fsid=None) for source in inline]
    if target.kind is TargetKind.VOLUME_HANDLE and not found:
        found += _images_of_handle(target.name, node)
    return found


def _images_of_name(name: str, node: NodeView | None) -> list[ImageIdentity]:
    """Resolve a PV's name without the API: a pod directory on the node contains it."""
    found: list[ImageIdentity] = []
    for entry in pod_volumes_on(node):
        data = entry.volume_data
        if entry.persistent_volume != name or not isinstance(data, VolumeData):
            continue
        if data.volume_handle is not None:
            found += _images_of_handle(data.volume_handle, node)
    return found


def _images_of_handle(handle: str, node: NodeView | None) -> list[ImageIdentity]:
    """Resolve a handle without its PV: by the stash, by the cookie of an nbd, by the pool id."""
    found = [ImageIdentity(spec=stash.spec, fsid=None) for stash in stashes_of(handle, node)]
    for mapping in node_index(node).mappings:
        if mapping.nbd is not None and mapping.nbd.backend == handle:
            found += _images_of_devices([mapping])
    return found or _image_by_handle_text(handle)


def _image_by_handle_text(handle: str) -> list[ImageIdentity]:
    parsed = composed_handle(handle)
    if parsed is None:
        return []
    name = f"csi-vol-{parsed.uuid}"
    spec = ImageSpec(pool="", name=name)
    return [ImageIdentity(spec=spec, fsid=None, pool_id=parsed.pool_id)]


def target_pods(target: Target, kube: KubeView | None) -> tuple[Pod, ...]:
    """Return the pod that a pod target names."""
    if target.kind is not TargetKind.POD:
        return ()
    pod = kube_index(kube).pod_by_key.get((target.namespace, target.name))
    return () if pod is None else (pod,)


def target_claims(target: Target, kube: KubeView | None) -> tuple[tuple[str, str], ...]:
    """Return namespace and name of the claims of a claim or pod target."""
    if target.kind is TargetKind.CLAIM:
        return ((target.namespace, target.name),)
    return tuple(
        (pod.ref.namespace, claim) for pod in target_pods(target, kube) for claim in pod.claims
    )


def target_volumes(target: Target, kube: KubeView | None) -> tuple[PersistentVolume, ...]:
    """Return the PVs of a PV, claim, pod or handle target."""
    index = kube_index(kube)
    if target.kind is TargetKind.PERSISTENT_VOLUME:
        volume = index.volume_by_name.get(target.name)
        return () if volume is None else (volume,)
    if target.kind is TargetKind.VOLUME_HANDLE:
        handles = index.handles_by_value.get(target.name, ())
        return tuple(volume for handle in handles for volume in index.volumes_by_handle[handle])
    claims = target_claims(target, kube)
    return tuple(dict.fromkeys(one for claim in claims for one in index.volumes_of_claim(claim)))
