"""One image, every object that refers to it, and every client that holds it."""

from __future__ import annotations

from typing import NamedTuple

from msgspec import Struct

from rbdagent.correlate.holders import holders_of, local_holder
from rbdagent.correlate.image_identity import (
    clusters_of,
    identity_of_mapping,
    images_of,
    mappings_of,
    names,
    pods_of,
    settled,
    target_claims,
    target_volumes,
    views_of,
    volume_image,
)
from rbdagent.correlate.node_usage import (
    Directories,
    directories_of,
    known_names,
    leftovers_of,
    maps,
    names_without_volume,
    serving,
    unbacked_of,
    volumes_of_paths,
)
from rbdagent.correlate.published_reports import reported_mappings
from rbdagent.correlate.volume_names import (
    VolumeIndex,
    VolumeNames,
    attachments_of,
    claim_named,
    events_in,
    events_of,
    index_of,
    key_of,
    names_of,
    oldest_first,
    users_of,
)
from rbdagent.correlate.waiting_pods import waited_for
from rbdagent.model import (
    ImageIdentity,
    ImageView,
    KubeEvent,
    KubeView,
    Mapping,
    PersistentVolume,
    PersistentVolumeClaim,
    Pod,
    PodVolumeDirectory,
    Snapshot,
    Target,
    TargetKind,
    Volume,
)


class NodeUses(Struct, frozen=True, kw_only=True):
    """A snapshot with the uses of this node's volumes; a join is expensive, so it is kept."""

    snapshot: Snapshot
    mapped: tuple[Volume, ...]
    """See :func:`correlate_node`."""
    waited_for: tuple[Volume, ...]
    """See :func:`correlate_waiting`."""

    @property
    def all_volumes(self) -> tuple[Volume, ...]:
        """The mapped volumes, then the volumes that a pod waits for."""
        return (*self.mapped, *self.waited_for)


def uses_of_node(snapshot: Snapshot) -> NodeUses:
    """Join every volume that this node has mapped, or that a pod on it needs."""
    return NodeUses(
        snapshot=snapshot,
        mapped=correlate_node(snapshot),
        waited_for=correlate_waiting(snapshot),
    )


class Indexed(NamedTuple):
    """A snapshot and its indexes: a node with many mappings needs many lookups."""

    snapshot: Snapshot
    volumes: VolumeIndex
    directories: Directories
    mappings: tuple[Mapping, ...]


def indexed(snapshot: Snapshot, directories: Directories | None = None) -> Indexed:
    """Index the PVs and kubelet's directories of a snapshot; reuse the index of directories."""
    return Indexed(
        snapshot=snapshot,
        volumes=index_of(snapshot.kubernetes),
        directories=directories or directories_of(snapshot),
        mappings=mappings_of(snapshot.node),
    )


def correlate(snapshot: Snapshot, directories: Directories | None = None) -> Volume:
    """Join all facts about the target of a snapshot.

    For a pod with several RBD volumes, use the volume that its warning events name, else the first
    by name; the others are in ``further_volumes``.

    Args:
        snapshot: the snapshot.
        directories: the directories of its node, if several snapshots have the same node.
    """
    index = indexed(snapshot, directories)
    chosen = _chosen_volumes(snapshot)
    image = volume_image(chosen[0]) if chosen else None
    if image is None:
        image = next(iter(images_of(snapshot.target, snapshot.node, snapshot.kubernetes)), None)
        unnamed = _unnamed_device(snapshot)
        if image is None and unnamed is not None:
            return _use_of_mapping(unnamed, index)
    # The answer about a device is about the image of the device only.
    is_device = snapshot.target.kind is TargetKind.DEVICE
    return _use(image, chosen, index, snapshot.target, with_others=not is_device)


def correlate_node(snapshot: Snapshot) -> tuple[Volume, ...]:
    """Join all facts about every image that this node has mapped: one use for each image."""
    found: list[Volume] = []
    seen: set[Mapping] = set()
    index = indexed(snapshot)
    for mapping in index.mappings:
        if mapping in seen:
            continue
        use = _use_of_mapping(mapping, index)
        seen |= {holder.mapping for holder in use.holders if holder.mapping is not None}
        found.append(use)
    return tuple(found)


def correlate_waiting(snapshot: Snapshot) -> tuple[Volume, ...]:
    """Join all facts about every volume that a pod of this node may wait for.

    Return one use for each pod and volume: its target is the pod, and its PV is the PV of the pod.
    """
    waits = waited_for(snapshot)
    if not waits:
        return ()
    index = indexed(snapshot)
    return tuple(
        _use(volume_image(volume), (volume,), index, _target_of(pod), with_others=True)
        for pod, volume in waits
    )


def images_to_identify(snapshot: Snapshot) -> tuple[ImageIdentity, ...]:
    """Return the images of the target's devices for which Ceph was not queried: the ids differ.

    Ceph was queried for the name in the PV. A device that serves the PV, here or according to the
    report of an agent, may be of an image that was renamed: its id leads to its present name.
    """
    target, kube = snapshot.target, snapshot.kubernetes
    volumes = target_volumes(target, kube)
    named = [image for volume in volumes if (image := volume_image(volume)) is not None]
    named += [] if target.image is None else [ImageIdentity(spec=target.image, fsid=None)]
    if not named or target.kind is TargetKind.DEVICE:
        return ()
    known = names_of(named[0], volumes, kube)
    served = serving(mappings_of(snapshot.node), known, directories_of(snapshot))
    found = [image for device in served if (image := identity_of_mapping(device)) is not None]
    found += [
        mapping.image
        for _, mapping in reported_mappings(known, snapshot)
        if mapping.image is not None
    ]
    views = {
        (view.fsid, view.image_id)
        for cluster in clusters_of(snapshot.ceph)
        for view in cluster.images
    }
    return tuple(
        dict.fromkeys(
            image for image in found if image.image_id and (image.fsid, image.image_id) not in views
        )
    )


def _target_of(pod: Pod) -> Target:
    namespace, name = pod.ref.namespace, pod.ref.name
    return Target(argument=f"pod/{name}", kind=TargetKind.POD, name=name, namespace=namespace)


def further_volumes(use: Volume, snapshot: Snapshot) -> tuple[PersistentVolume, ...]:
    """Return the other RBD volumes of the target, which is a pod."""
    shown = {volume.name for volume in use.other_volumes}
    if use.persistent_volume is not None:
        shown.add(use.persistent_volume.name)
    return tuple(
        volume
        for volume in target_volumes(snapshot.target, snapshot.kubernetes)
        if volume.name not in shown and volume_image(volume) is not None
    )


def _chosen_volumes(snapshot: Snapshot) -> tuple[PersistentVolume, ...]:
    """Return the PVs of the target: RBD volumes first, of these first those with warning events."""
    volumes = target_volumes(snapshot.target, snapshot.kubernetes)
    events = events_in(snapshot.kubernetes)
    warned = " ".join(event.message for event in events if event.type == "Warning")
    ranked = sorted(
        volumes,
        key=lambda volume: (
            volume_image(volume) is None,
            f'"{volume.name}"' not in warned,
            volume.name,
        ),
    )
    if snapshot.target.kind is TargetKind.POD:
        return tuple(ranked[:1])
    return tuple(ranked)


def _unnamed_device(snapshot: Snapshot) -> Mapping | None:
    """Return the device that a device target names; its image was not observed."""
    if snapshot.target.kind is not TargetKind.DEVICE:
        return None
    return next(
        (mapping for mapping in mappings_of(snapshot.node) if names(snapshot.target, mapping)), None
    )


def _use_of_mapping(mapping: Mapping, index: Indexed) -> Volume:
    snapshot = index.snapshot
    target = Target(argument=mapping.device, kind=TargetKind.DEVICE, name=mapping.device)
    if snapshot.target.kind is not TargetKind.NONE:
        target = snapshot.target
    image, chosen = _image_and_volumes_of(mapping, index.volumes)
    if image is None:
        unknown = VolumeNames(image=None, volumes_seen=False)
        holder = local_holder(mapping, unknown, (), snapshot, index.directories, watch=None)
        return Volume(
            target=target,
            image=None,
            image_view=None,
            persistent_volume=None,
            holders=(holder,),
        )
    return _use(image, chosen, index, target, with_others=False)


def names_of_mapping(mapping: Mapping, index: Indexed) -> VolumeNames:
    """Return every name of a mapping's image, according to the API and to the node."""
    image, chosen = _image_and_volumes_of(mapping, index.volumes)
    names = names_of(image, chosen, index.snapshot.kubernetes, index.volumes, index.snapshot.ceph)
    return known_names(mapping, names, index.directories)[0]


def _image_and_volumes_of(
    mapping: Mapping, index: VolumeIndex
) -> tuple[ImageIdentity | None, tuple[PersistentVolume, ...]]:
    """Return the image of a mapping, and the PVs that the cookie of an nbd device names."""
    chosen = _volumes_by_backend(mapping, index)
    image = identity_of_mapping(mapping)
    return (volume_image(chosen[0]) if image is None and chosen else image), chosen


def _volumes_by_backend(mapping: Mapping, index: VolumeIndex) -> tuple[PersistentVolume, ...]:
    """Return the PVs whose handle is the cookie of an nbd device."""
    backend = mapping.nbd.backend if mapping.nbd is not None else None
    if backend is None:
        return ()
    return tuple(
        volume
        for (_, handle), volumes in index.by_handle.items()
        if handle == backend
        for volume in volumes
    )


def _use(
    image: ImageIdentity | None,
    chosen: tuple[PersistentVolume, ...],
    index: Indexed,
    target: Target,
    *,
    with_others: bool,
) -> Volume:
    """Join all facts about an image.

    Args:
        image: None if it is unknown.
        chosen: the PVs of the target.
        index: the snapshot.
        target: of the answer.
        with_others: whether devices of other images count that serve a PV of this image.
    """
    snapshot, kube = index.snapshot, index.snapshot.kubernetes
    known = names_of(image, chosen, kube, index.volumes, snapshot.ceph)
    views: tuple[ImageView, ...] = ()
    if image is not None:
        # A target that is only an image name may mean an image in any cluster, so do not choose.
        by_name = target.kind is TargetKind.IMAGE
        volume = known.volumes[0] if known.volumes and not by_name else None
        asked, image = image, settled(image, volume, snapshot.node, snapshot.ceph)
        if image != asked:
            known = names_of(image, chosen, kube, index.volumes, snapshot.ceph)
        views = views_of(image, snapshot.ceph)
    local = tuple(mapping for mapping in index.mappings if maps(mapping, known))
    more = _volumes_at_paths(local, known, index.volumes)
    if more:
        known = names_of(image, (*chosen, *more), kube, index.volumes, snapshot.ceph)
    others: tuple[Mapping, ...] = ()
    if with_others:
        known = names_without_volume(known, target, index.directories)
        served = serving(index.mappings, known, index.directories)
        others = tuple(mapping for mapping in served if mapping not in local)
    users = users_of(known, kube)
    volumes = known.volumes
    return Volume(
        target=target,
        image=image,
        image_view=views[0] if len(views) == 1 else None,
        persistent_volume=volumes[0] if volumes else None,
        other_volumes=volumes[1:],
        claim=_claim_of(known, snapshot, target),
        holders=()
        if image is None
        else holders_of(known, local, views, snapshot, index.directories, others),
        pods=users,
        waiting_pods=tuple(
            pod
            for pod in users or _pods_without_volume(known, target, kube)
            if pod.phase == "Pending" and pod.deleting_since is None
        ),
        attachments=attachments_of(known, snapshot),
        events=_events(known, users, snapshot),
        unbacked=unbacked_of(known, snapshot.node),
        leftovers=_leftovers(known, (*local, *others), index),
    )


def _volumes_at_paths(
    local: tuple[Mapping, ...], known: VolumeNames, index: VolumeIndex
) -> tuple[PersistentVolume, ...]:
    """Return the PVs at whose paths a mapping is mounted, and that the name of its image lacks."""
    found = dict.fromkeys(
        volume for mapping in local for volume in volumes_of_paths(mapping, index)
    )
    return tuple(volume for volume in found if volume not in known.volumes)


def _pods_without_volume(
    known: VolumeNames, target: Target, kube: KubeView | None
) -> tuple[Pod, ...]:
    """Return the pods that wait for the target's claim, if it has no PV or does not exist."""
    if known.volumes or known.image is not None:
        return ()
    wanted = {*target_claims(target, kube)}
    return tuple(
        pod
        for pod in pods_of(kube)
        if not wanted.isdisjoint((pod.ref.namespace, name) for name in pod.claims)
    )


def _claim_of(
    known: VolumeNames, snapshot: Snapshot, target: Target
) -> PersistentVolumeClaim | None:
    """Return the claim that the target names, else the claim to which the PV is bound."""
    kube = snapshot.kubernetes
    if target.kind is TargetKind.CLAIM:
        wanted = [(target.namespace, target.name)]
    elif known.volumes:
        wanted = [key_of(volume.claim) for volume in known.volumes if volume.claim is not None]
    else:
        wanted = [*target_claims(target, kube)]
    found = (claim_named(key, kube) for key in wanted)
    return next((claim for claim in found if claim is not None), None)


def _events(
    known: VolumeNames, users: tuple[Pod, ...], snapshot: Snapshot
) -> tuple[KubeEvent, ...]:
    """Return the events of the volume; with a target, the API was queried only for its events."""
    kube = snapshot.kubernetes
    if snapshot.target.kind is TargetKind.NONE:
        return events_of(known, users, kube)
    return oldest_first(events_in(kube))


def _leftovers(
    known: VolumeNames, local: tuple[Mapping, ...], index: Indexed
) -> tuple[PodVolumeDirectory, ...]:
    """Return the pod directories that are leftovers for every mapping."""
    found = [
        leftovers_of(mapping, known, index.snapshot, index.directories)
        for mapping in local or (None,)
    ]
    common = set(found[0]).intersection(*found[1:])
    return tuple(sorted(common, key=lambda leftover: leftover.path))
