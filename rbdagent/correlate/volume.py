"""One image, every object that refers to it, and every client that holds it."""

from __future__ import annotations

from msgspec import Struct

from rbdagent.correlate.holders import holders_of, local_holder
from rbdagent.correlate.image_identity import by_name, identity_of_mapping, volume_image
from rbdagent.correlate.index import ceph_index, kube_index, node_index
from rbdagent.correlate.names import VolumeNames, key_of
from rbdagent.correlate.node_usage import (
    known_names,
    leftovers_of,
    mapped_here,
    names_without_volume,
    serving,
    unbacked_mounts_of,
    volumes_of_paths,
)
from rbdagent.correlate.published_reports import reported_mappings
from rbdagent.correlate.resolve import (
    images_of,
    is_target,
    target_claims,
    target_volumes,
)
from rbdagent.correlate.views import settled_identity, views_of
from rbdagent.correlate.volume_names import (
    attachments_of,
    events_in,
    events_of,
    names_of,
    oldest_first,
    users_of,
)
from rbdagent.correlate.waiting_pods import waited_for
from rbdagent.model import (
    ImageIdentity,
    ImageView,
    KubeEvent,
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


class NodeVolumes(Struct, frozen=True, kw_only=True):
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


def volumes_of_node(snapshot: Snapshot) -> NodeVolumes:
    """Join every volume that this node has mapped, or that a pod on it needs."""
    return NodeVolumes(
        snapshot=snapshot,
        mapped=correlate_node(snapshot),
        waited_for=correlate_waiting(snapshot),
    )


def correlate(snapshot: Snapshot) -> Volume:
    """Join all facts about the target of a snapshot.

    For a pod with several RBD volumes, use the volume that its warning events name, else the first
    by name; the others are in ``further_volumes``.
    """
    chosen = _chosen_volumes(snapshot)
    image = volume_image(chosen[0]) if chosen else None
    if image is None:
        image = next(iter(images_of(snapshot.target, snapshot.node, snapshot.kubernetes)), None)
        unnamed = _unnamed_device(snapshot)
        if image is None and unnamed is not None:
            return _volume_of_mapping(unnamed, snapshot)
    # The answer about a device is about the image of the device only.
    is_device = snapshot.target.kind is TargetKind.DEVICE
    return _joined(image, chosen, snapshot, snapshot.target, with_others=not is_device)


def correlate_node(snapshot: Snapshot) -> tuple[Volume, ...]:
    """Join all facts about every image that this node has mapped: one use for each image."""
    found: list[Volume] = []
    seen: set[Mapping] = set()
    for mapping in node_index(snapshot.node).mappings:
        if mapping in seen:
            continue
        volume = _volume_of_mapping(mapping, snapshot)
        seen |= {holder.mapping for holder in volume.holders if holder.mapping is not None}
        found.append(volume)
    return tuple(found)


def correlate_waiting(snapshot: Snapshot) -> tuple[Volume, ...]:
    """Join all facts about every volume that a pod of this node may wait for.

    Return one use for each pod and volume: its target is the pod, and its PV is the PV of the pod.
    """
    return tuple(
        _joined(volume_image(volume), (volume,), snapshot, _target_of(pod), with_others=True)
        for pod, volume in waited_for(snapshot)
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
    known = names_of(named[0], volumes, snapshot)
    served = serving(known, snapshot.node)
    found = [image for device in served if (image := identity_of_mapping(device)) is not None]
    found += [
        mapping.image
        for _, mapping in reported_mappings(known, snapshot)
        if mapping.image is not None
    ]
    views = {
        (view.fsid, view.image_id)
        for cluster in ceph_index(snapshot.ceph).clusters
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


def further_volumes(volume: Volume, snapshot: Snapshot) -> tuple[PersistentVolume, ...]:
    """Return the other RBD volumes of the target, which is a pod."""
    shown = {persistent_volume.name for persistent_volume in volume.other_volumes}
    if volume.persistent_volume is not None:
        shown.add(volume.persistent_volume.name)
    return tuple(
        persistent_volume
        for persistent_volume in target_volumes(snapshot.target, snapshot.kubernetes)
        if persistent_volume.name not in shown and volume_image(persistent_volume) is not None
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
        (
            mapping
            for mapping in node_index(snapshot.node).mappings
            if is_target(snapshot.target, mapping)
        ),
        None,
    )


def _volume_of_mapping(mapping: Mapping, snapshot: Snapshot) -> Volume:
    target = Target(argument=mapping.device, kind=TargetKind.DEVICE, name=mapping.device)
    if snapshot.target.kind is not TargetKind.NONE:
        target = snapshot.target
    image, chosen = _image_and_volumes_of(mapping, snapshot)
    if image is None:
        unknown = VolumeNames(image=None, volumes_seen=False)
        return Volume(
            target=target,
            image=None,
            image_view=None,
            persistent_volume=None,
            holders=(local_holder(mapping, unknown, (), snapshot, watch=None),),
        )
    return _joined(image, chosen, snapshot, target, with_others=False)


def names_of_mapping(mapping: Mapping, snapshot: Snapshot) -> VolumeNames:
    """Return every name of a mapping's image, according to the API and to the node."""
    names = names_of(*_image_and_volumes_of(mapping, snapshot), snapshot)
    return known_names(mapping, names, snapshot.node)[0]


def _image_and_volumes_of(
    mapping: Mapping, snapshot: Snapshot
) -> tuple[ImageIdentity | None, tuple[PersistentVolume, ...]]:
    """Return the image of a mapping, and the PVs that the cookie of an nbd device names."""
    kube = kube_index(snapshot.kubernetes)
    backend = mapping.nbd.backend if mapping.nbd is not None else None
    chosen = tuple(
        volume
        for handle in kube.handles_by_value.get(backend or "", ())
        for volume in kube.volumes_by_handle[handle]
    )
    image = identity_of_mapping(mapping)
    return (volume_image(chosen[0]) if image is None and chosen else image), chosen


def _joined(
    image: ImageIdentity | None,
    chosen: tuple[PersistentVolume, ...],
    snapshot: Snapshot,
    target: Target,
    *,
    with_others: bool,
) -> Volume:
    """Join all facts about an image.

    Args:
        image: None if it is unknown.
        chosen: the PVs of the target.
        snapshot: the facts.
        target: of the answer.
        with_others: whether devices of other images count that serve a PV of this image.
    """
    known = names_of(image, chosen, snapshot)
    views: tuple[ImageView, ...] = ()
    if image is not None:
        # A target that is only an image name may mean an image in any cluster, so do not choose.
        is_named = target.kind is TargetKind.IMAGE
        volume = known.volumes[0] if known.volumes and not is_named else None
        asked, image = image, _settled(image, volume, snapshot)
        if image != asked:
            known = names_of(image, chosen, snapshot)
        views = views_of(image, snapshot.ceph)
    local = mapped_here(known, snapshot.node)
    more = _volumes_at_paths(local, known, snapshot)
    if more:
        known = names_of(image, (*chosen, *more), snapshot)
    others: tuple[Mapping, ...] = ()
    if with_others:
        known = names_without_volume(known, target, snapshot.node)
        others = tuple(one for one in serving(known, snapshot.node) if one not in local)
    users = users_of(known, snapshot)
    volumes = known.volumes
    return Volume(
        target=target,
        image=image,
        image_view=views[0] if len(views) == 1 else None,
        persistent_volume=volumes[0] if volumes else None,
        other_volumes=volumes[1:],
        claim=_claim_of(known, snapshot, target),
        holders=() if image is None else holders_of(known, local, views, snapshot, others),
        pods=users,
        waiting_pods=tuple(
            pod
            for pod in users or _pods_without_volume(known, target, snapshot)
            if pod.phase == "Pending" and pod.deleting_since is None
        ),
        attachments=attachments_of(known, snapshot),
        events=_events(known, users, snapshot),
        unbacked=unbacked_mounts_of(known, snapshot.node),
        leftovers=_leftovers(known, (*local, *others), snapshot),
    )


def _settled(
    image: ImageIdentity, volume: PersistentVolume | None, snapshot: Snapshot
) -> ImageIdentity:
    return settled_identity(image, volume, snapshot.node, snapshot.kubernetes, snapshot.ceph)


def _volumes_at_paths(
    local: tuple[Mapping, ...], known: VolumeNames, snapshot: Snapshot
) -> tuple[PersistentVolume, ...]:
    """Return the PVs at whose paths a mapping is mounted, and that the name of its image lacks."""
    found = dict.fromkeys(
        volume for mapping in local for volume in volumes_of_paths(mapping, snapshot.kubernetes)
    )
    return tuple(volume for volume in found if volume not in known.volumes)


def _pods_without_volume(known: VolumeNames, target: Target, snapshot: Snapshot) -> tuple[Pod, ...]:
    """Return the pods that wait for the target's claim, if it has no PV or does not exist."""
    if known.volumes or known.image is not None:
        return ()
    kube = kube_index(snapshot.kubernetes)
    claims = target_claims(target, snapshot.kubernetes)
    found = (pod for claim in claims for pod in kube.pods_by_claim.get(claim, ()))
    return by_name({id(pod): pod for pod in found}.values())


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
    found = (kube_index(kube).claim_by_key.get(key) for key in wanted)
    return next((claim for claim in found if claim is not None), None)


def _events(
    known: VolumeNames, users: tuple[Pod, ...], snapshot: Snapshot
) -> tuple[KubeEvent, ...]:
    """Return the events of the volume; with a target, the API was queried only for its events."""
    if snapshot.target.kind is TargetKind.NONE:
        return events_of(known, users, snapshot)
    return oldest_first(events_in(snapshot.kubernetes))


def _leftovers(
    known: VolumeNames, local: tuple[Mapping, ...], snapshot: Snapshot
) -> tuple[PodVolumeDirectory, ...]:
    """Return the pod directories that are leftovers for every mapping."""
    found = [leftovers_of(mapping, known, snapshot) for mapping in local or (None,)]
    common = set(found[0]).intersection(*found[1:])
    return tuple(sorted(common, key=lambda leftover: leftover.path))
