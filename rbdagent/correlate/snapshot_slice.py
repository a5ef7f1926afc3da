"""Cut the snapshot of a cluster into small snapshots of one target, so that joins stay linear.

A part contains all objects that the joins and the rules need for its target: its PVs and the PVs of
the same image or handle, its claims, their pods and the objects these depend on, its attachments,
events and watchers. It also contains all objects that belong to no volume (Nodes, classes,
drivers). It leaves out only objects of other volumes, so a part is as complete as its snapshot.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeVar

from msgspec.structs import replace

from rbdagent.correlate.image_identity import identity_of_mapping, mappings_of, volume_image
from rbdagent.correlate.index import (
    ClientKey,
    Index,
    Key,
    PublishedEntry,
    Views,
    attachments_about,
    by_each,
    client_of,
    clients_in,
    keys_of_volume,
)
from rbdagent.correlate.names import handle_of, key_of
from rbdagent.correlate.node_usage import volumes_of_paths
from rbdagent.correlate.resolve import names
from rbdagent.model import (
    CephView,
    ImageIdentity,
    ImageView,
    KubeView,
    NotObserved,
    Pod,
    Snapshot,
    Source,
    Sources,
    Target,
    TargetKind,
    observed_of,
)
from rbdagent.parse.address import spelled
from rbdagent.parse.handle import staging_hash

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from rbdagent.model import (
        KubeEvent,
        Mapping,
        PersistentVolume,
        PublishedNode,
        VolumeAttachment,
        Watcher,
        Workload,
    )

_T = TypeVar("_T")
_K = TypeVar("_K", str, Key)


class _Seed(NamedTuple):
    """Objects that a target names."""

    volumes: tuple[PersistentVolume, ...] = ()
    claims: tuple[Key, ...] = ()
    pods: tuple[Pod, ...] = ()
    images: tuple[ImageIdentity, ...] = ()
    """Images that have no PV."""
    handles: tuple[Key, ...] = ()


class _Objects(NamedTuple):
    """Objects that belong to a target."""

    volumes: tuple[PersistentVolume, ...]
    claims: frozenset[Key]
    users: tuple[Pod, ...]
    images: frozenset[str]
    """Image names."""
    image_ids: frozenset[str]
    views: tuple[tuple[tuple[int, ImageView], ...], ...]
    """For each cluster, its numbered views."""
    words: frozenset[str]


def part_of(index: Index, target: Target) -> Snapshot:
    """Return the part for a target; if it lacks an object of the target, so does the whole."""
    seed = _seed(index, target)
    objects = _objects(index, seed)
    is_local = _is_local(index, target, objects)
    snapshot = index.snapshot
    kube = snapshot.kubernetes
    return replace(
        snapshot,
        target=target,
        ceph=_ceph(index, objects),
        kubernetes=None if kube is None else _kube(index, kube, seed, objects, is_local=is_local),
        sources=_without_gaps(snapshot.sources),
    )


def is_on_observed_node(index: Index, target: Target) -> bool:
    """Return whether the observed node has an object or a pod of a target."""
    node = index.snapshot.node
    objects = _objects(index, _seed(index, target))
    if _is_local(index, target, objects):
        return True
    return node is not None and any(user.node_name == node.node_name for user in objects.users)


def _is_local(index: Index, target: Target, objects: _Objects) -> bool:
    """Return whether the observed node shows an object of a target."""
    if target.kind is TargetKind.DEVICE:
        return True
    return not objects.words.isdisjoint(index.node.words)


def images_of_target(index: Index, target: Target) -> tuple[ImageIdentity, ...]:
    """Return the images of a target."""
    seed = _seed(index, target)
    found = (image for volume in seed.volumes if (image := volume_image(volume)) is not None)
    return tuple(dict.fromkeys((*found, *seed.images)))


def contains_target(index: Index, target: Target) -> bool:
    """Return whether the snapshot contains the object that a target names."""
    key = (target.namespace, target.name)
    match target.kind:
        case TargetKind.CLAIM:
            return key in index.kube.claim_by_key
        case TargetKind.POD:
            return key in index.kube.pod_by_key
        case TargetKind.IMAGE:
            objects = _objects(index, _seed(index, target))
            return bool(objects.volumes or objects.users or any(objects.views))
        case _:
            seed = _seed(index, target)
            return bool(seed.volumes or seed.images or seed.handles)


def _without_gaps(sources: Sources) -> Sources:
    """Return sources without gaps: a gap is reported once, for the whole snapshot."""
    return Sources(
        node=_without_gaps_of(sources.node),
        ceph=_without_gaps_of(sources.ceph),
        kubernetes=_without_gaps_of(sources.kubernetes),
    )


def _without_gaps_of(source: Source) -> Source:
    return replace(source, gaps=())


# --------------------------------------------------------------------------------------------------
# The objects that the target names
# --------------------------------------------------------------------------------------------------


def _seed(index: Index, target: Target) -> _Seed:
    key = (target.namespace, target.name)
    match target.kind:
        case TargetKind.CLAIM:
            return _Seed(volumes=tuple(_volumes_of_claim(index, key)), claims=(key,))
        case TargetKind.POD:
            return _seed_of_pod(index, index.kube.pod_by_key.get(key))
        case TargetKind.PERSISTENT_VOLUME:
            return _Seed(volumes=tuple(_known(index.kube.volume_by_name, {target.name})))
        case TargetKind.DEVICE:
            return _seed_of_device(index, target)
    images = [] if target.image is None else [ImageIdentity(spec=target.image, fsid=None)]
    handles = index.kube.handles_by_value.get(target.name, [])
    return _Seed(images=tuple(images), volumes=tuple(_volumes_of_handles(index, handles)))


def _volumes_of_claim(index: Index, key: Key) -> list[PersistentVolume]:
    """Return the PV by the claim's volumeName; if there is no claim, the PVs by their claimRef."""
    claim = index.kube.claim_by_key.get(key)
    if claim is None:
        return index.kube.volumes_by_claim.get(key, [])
    volume = index.kube.volume_by_name.get(claim.volume_name or "")
    return [] if volume is None else [volume]


def _seed_of_pod(index: Index, pod: Pod | None) -> _Seed:
    if pod is None:
        return _Seed()
    claims = tuple((pod.ref.namespace, claim) for claim in pod.claims)
    handles = (handle_of(source) for source in pod.inline_volumes)
    return _Seed(
        volumes=tuple(volume for key in claims for volume in _volumes_of_claim(index, key)),
        claims=claims,
        pods=(pod,),
        images=tuple(ImageIdentity(spec=source.spec, fsid=None) for source in pod.inline_images),
        handles=tuple(handle for handle in handles if handle is not None),
    )


def _seed_of_device(index: Index, target: Target) -> _Seed:
    mapping = next(
        (candidate for candidate in mappings_of(index.snapshot.node) if names(target, candidate)),
        None,
    )
    if mapping is None:
        return _Seed()
    image = identity_of_mapping(mapping)
    backend = mapping.nbd.backend if mapping.nbd is not None else None
    return _Seed(
        images=() if image is None else (image,),
        handles=tuple(index.kube.handles_by_value.get(backend or "", ())),
    )


# --------------------------------------------------------------------------------------------------
# The objects that belong to the target
# --------------------------------------------------------------------------------------------------


def _objects(index: Index, seed: _Seed) -> _Objects:
    volumes = dict.fromkeys((*seed.volumes, *_volumes_of_handles(index, seed.handles)))
    images = frozenset(_image_names((*volumes,), seed.images))
    volumes |= dict.fromkeys(
        volume for name in images for volume, _ in index.kube.volumes_by_image.get(name, ())
    )
    handles = {pair for volume in volumes if (pair := handle_of(volume.source)) is not None}
    volumes |= dict.fromkeys(_volumes_of_handles(index, handles))
    images |= frozenset(_image_names((*volumes,), ()))
    ids = {image.image_id for image in seed.images if image.image_id}
    ids |= _ids_in(_all_views_named(index, images, ids))
    for device in _devices(index, volumes, images, ids):
        volumes |= dict.fromkeys(volumes_of_paths(device, index.snapshot.kubernetes))
    handles = {pair for volume in volumes if (pair := handle_of(volume.source)) is not None}
    volumes |= dict.fromkeys(_volumes_of_handles(index, handles))
    images |= frozenset(_image_names((*volumes,), ()))
    others = [*_reported_images(index, volumes, images)]
    mapped = map(identity_of_mapping, _devices(index, volumes, images, ids))
    others += [image for image in mapped if image is not None]
    ids |= {image.image_id for image in others if image.image_id}
    claims = {*seed.claims, *_claims_of(index, volumes)}
    views = _all_views_named(index, images | {image.spec.name for image in others}, ids)
    ids |= _ids_in(views)
    return _Objects(
        volumes=(*volumes,),
        claims=frozenset(claims),
        users=_users(index, seed, claims, handles, images),
        images=images,
        image_ids=frozenset(ids),
        views=views,
        words=frozenset(
            {
                *(volume.name for volume in volumes),
                *(handle for _, handle in handles),
                *(staging_hash(handle) for _, handle in handles),
                *images,
                *ids,
            }
        ),
    )


def _devices(
    index: Index,
    volumes: Iterable[PersistentVolume],
    images: Iterable[str],
    image_ids: Iterable[str],
) -> dict[Mapping, None]:
    """Return the devices of this node that have an image of the target, or serve its PVs."""
    here = index.node
    found = [device for name in images for device in here.mappings_by_image.get(name, ())]
    found += [device for one in image_ids for device in here.mappings_by_image_id.get(one, ())]
    for volume in volumes:
        handle = handle_of(volume.source)
        words = (volume.name,) if handle is None else (volume.name, staging_hash(handle[1]))
        found += [device for word in words for device in here.directories.devices.get(word, ())]
    return dict.fromkeys(found)


def _reported_images(
    index: Index, volumes: Iterable[PersistentVolume], images: Iterable[str]
) -> Iterator[ImageIdentity]:
    """Yield the images that agents report for PVs, or by the names in them."""
    known = index.reports
    entries = [entry for volume in volumes for entry in known.by_volume.get(volume.name, ())]
    entries += [entry for name in images for entry in known.by_image.get(name, ())]
    yield from (image for entry in entries if (image := entry.mapping.image) is not None)


def _volumes_of_handles(index: Index, handles: Iterable[Key]) -> Iterator[PersistentVolume]:
    for handle in handles:
        yield from index.kube.volumes_by_handle.get(handle, ())


def _image_names(
    volumes: Iterable[PersistentVolume], images: Iterable[ImageIdentity]
) -> Iterator[str]:
    for volume in volumes:
        image = volume_image(volume)
        if image is not None:
            yield image.spec.name
    for image in images:
        yield image.spec.name


def _claims_of(index: Index, volumes: Iterable[PersistentVolume]) -> Iterator[Key]:
    """Yield the claims by claimRef of a PV and by volumeName of a claim; either may be wrong."""
    for volume in volumes:
        if volume.claim is not None:
            yield key_of(volume.claim)
        for claim in index.kube.claims_by_volume.get(volume.name, ()):
            yield key_of(claim.ref)


def _users(
    index: Index,
    seed: _Seed,
    claims: Iterable[Key],
    handles: Iterable[Key],
    images: Iterable[str],
) -> tuple[Pod, ...]:
    pods = index.kube
    found = dict.fromkeys(seed.pods)
    for claim in claims:
        found |= dict.fromkeys(pods.pods_by_claim.get(claim, ()))
    for handle in {*handles, *seed.handles}:
        found |= dict.fromkeys(pods.pods_by_handle.get(handle, ()))
    for image in images:
        found |= dict.fromkeys(pods.pods_by_image.get(image, ()))
    return (*found,)


def _all_views_named(
    index: Index, images: Iterable[str], image_ids: set[str]
) -> tuple[tuple[tuple[int, ImageView], ...], ...]:
    """Return, for each cluster, the numbered views of the images."""
    return tuple(_views_named(views, images, image_ids) for views in index.ceph.views)


def _ids_in(views: Iterable[tuple[tuple[int, ImageView], ...]]) -> set[str]:
    return {view.image_id for found in views for _, view in found if view.image_id}


def _views_named(
    views: Views, images: Iterable[str], image_ids: set[str]
) -> tuple[tuple[int, ImageView], ...]:
    """Return the views of the images in one cluster; the id identifies a renamed image."""
    found = [view for name in images for view in views.by_name.get(name, ())]
    ids = image_ids | {view.image_id for _, view in found if view.image_id}
    found += [view for image_id in ids for view in views.by_id.get(image_id, ())]
    return tuple(sorted({number: (number, view) for number, view in found}.values(), key=_number))


def _number(numbered: tuple[int, object]) -> int:
    return numbered[0]


# --------------------------------------------------------------------------------------------------
# Ceph
# --------------------------------------------------------------------------------------------------


def _ceph(index: Index, objects: _Objects) -> CephView | None:
    ceph = index.snapshot.ceph
    if ceph is None:
        return None
    return CephView(
        clusters=tuple(
            replace(
                cluster,
                images=tuple(view for _, view in views),
                source=_without_gaps_of(cluster.source),
            )
            for cluster, views in zip(ceph.clusters, objects.views, strict=True)
        )
    )


# --------------------------------------------------------------------------------------------------
# Kubernetes
# --------------------------------------------------------------------------------------------------


def _kube(
    index: Index, kube: KubeView, seed: _Seed, objects: _Objects, *, is_local: bool
) -> KubeView:
    published, attachments = _published(index, objects), _attachments(index, objects)
    pods = dict.fromkeys((*objects.users, *(_pods_here(index) if is_local else ())))
    volumes = dict.fromkeys((*objects.volumes, *_further_volumes(index, objects)))
    attached = {
        attachment.persistent_volume for attachment in attachments if attachment.persistent_volume
    }
    volumes |= dict.fromkeys(_known(index.kube.volume_by_name, attached))
    if not objects.volumes:
        # The owner of the image is unknown: it may be any pod on a node that holds the image.
        nodes = {entry.node.name for entry in published} | _nodes_of(index, objects)
        pods |= dict.fromkeys(
            pod for node in nodes for pod in index.kube.pods_on_node.get(node, ())
        )
        volumes |= dict.fromkeys(_volumes_of_pods(index, pods))
    claims = {*objects.claims, *_claims_of_pods(pods), *_claims_of(index, volumes)}
    return replace(
        kube,
        # In order of their names, as the API lists them.
        persistent_volumes=_instead(
            kube.persistent_volumes, sorted(volumes, key=lambda volume: volume.name)
        ),
        claims=_instead(kube.claims, _known(index.kube.claim_by_key, claims)),
        pods=_instead(kube.pods, sorted(pods, key=lambda pod: key_of(pod.ref))),
        attachments=_instead(
            kube.attachments,
            sorted(
                {*attachments, *_witnesses(index, objects)}, key=lambda attachment: attachment.name
            ),
        ),
        events=_instead(kube.events, _events(index, seed)),
        workloads=_instead(kube.workloads, _workloads(index, objects.users)),
        published=_instead(kube.published, _reports(index, published)),
    )


def _instead(
    every: tuple[_T, ...] | NotObserved, some: Iterable[_T]
) -> tuple[_T, ...] | NotObserved:
    """Return some objects in place of all, or NotObserved if they were not observed."""
    return every if isinstance(every, NotObserved) else tuple(some)


def _known(index: dict[_K, _T], keys: Iterable[_K]) -> list[_T]:
    """Return the indexed objects that have one of the keys, in order of the keys."""
    return [index[key] for key in sorted(keys) if key in index]


def _further_volumes(index: Index, objects: _Objects) -> Iterator[PersistentVolume]:
    """Yield the PVs that name the claims or that the claims name, and the PVs that nearly fit."""
    for key in objects.claims:
        yield from index.kube.volumes_by_claim.get(key, ())
        claim = index.kube.claim_by_key.get(key)
        if claim is None:
            continue
        yield from _known(index.kube.volume_by_name, {claim.volume_name or ""})
        if claim.phase != "Bound":
            yield from index.kube.shortlist.nearest(claim)


def _claims_of_pods(pods: Iterable[Pod]) -> Iterator[Key]:
    for pod in pods:
        for name in pod.claims:
            yield pod.ref.namespace, name


def _volumes_of_pods(index: Index, pods: Iterable[Pod]) -> Iterator[PersistentVolume]:
    for key in _claims_of_pods(pods):
        yield from index.kube.volumes_by_claim.get(key, ())


def _attachments(index: Index, objects: _Objects) -> list[VolumeAttachment]:
    """Return the attachments by the PV that they name, and by the PV that gives their name."""
    found = (
        attachment
        for volume in objects.volumes
        for attachment in attachments_about(volume, index.kube)
    )
    return list(dict.fromkeys(found))


def _pods_here(index: Index) -> Iterator[Pod]:
    """Yield the pods of the observed node, and the pods whose uid occurs on it."""
    node, kube = index.snapshot.node, index.kube
    yield from () if node is None else kube.pods_on_node.get(node.node_name, ())
    yield from (kube.pod_by_uid[uid] for uid in index.node.pod_uids if uid in kube.pod_by_uid)


def _witnesses(index: Index, objects: _Objects) -> Iterator[VolumeAttachment]:
    """Yield any attachment of each driver: it shows that volumes of the driver are attached."""
    for volume in objects.volumes:
        handle = handle_of(volume.source)
        if handle is not None:
            yield from _known(index.kube.attachment_of_driver, {handle[0]})


def _events(index: Index, seed: _Seed) -> Iterator[KubeEvent]:
    """Yield the events of the PVs, claims and pods of the target."""
    claims = {*seed.claims, *(key_of(volume.claim) for volume in seed.volumes if volume.claim)}
    pods = {key_of(pod.ref) for key in claims for pod in index.kube.pods_by_claim.get(key, ())}
    pods |= {key_of(pod.ref) for pod in seed.pods}
    volumes = {key for volume in seed.volumes for key in keys_of_volume(volume)}
    for key in sorted(claims | pods | volumes):
        yield from index.kube.events_by_subject.get(key, ())


def _workloads(index: Index, pods: Iterable[Pod]) -> Iterable[Workload]:
    """Return the controllers of pods, and the controllers of those controllers."""
    found: dict[Key, Workload] = {}
    keys = {(pod.ref.namespace, owner) for pod in pods for owner in pod.owners}
    while keys:
        new = {
            key: index.kube.workloads[key]
            for key in sorted(keys - {*found})
            if key in index.kube.workloads
        }
        found |= new
        keys = {(pod.ref.namespace, owner) for pod in new.values() for owner in pod.owners}
    return found.values()


# --------------------------------------------------------------------------------------------------
# The reports of agents
# --------------------------------------------------------------------------------------------------


class WantedReports(NamedTuple):
    """What the mappings that agents report have in common with a target."""

    volumes: frozenset[str]
    """Names of PVs."""
    images: frozenset[str]
    """Names of images."""
    image_ids: frozenset[str]
    """An image that was renamed since it was mapped has its former name on the node, and its id."""
    clients: frozenset[tuple[ClientKey, str]]
    """Clients that watch an image, and their clusters: one mapping of a client proves its node."""


def wanted_reports(index: Index, targets: Iterable[Target]) -> WantedReports:
    """Return what the mappings that the parts for these targets contain have in common with them.

    The parts also contain what :func:`with_common_only` keeps.
    """
    found = [_wanted(_objects(index, _seed(index, target))) for target in targets]
    return WantedReports(
        volumes=frozenset().union(*(wanted.volumes for wanted in found)),
        images=frozenset().union(*(wanted.images for wanted in found)),
        image_ids=frozenset().union(*(wanted.image_ids for wanted in found)),
        clients=frozenset().union(*(wanted.clients for wanted in found)),
    )


def _wanted(objects: _Objects) -> WantedReports:
    return WantedReports(
        volumes=frozenset(volume.name for volume in objects.volumes),
        images=objects.images,
        image_ids=objects.image_ids,
        clients=frozenset(
            (client_of(watcher.client, watcher.address), view.fsid)
            for view, watcher in _watchers(objects)
        ),
    )


def _watchers(objects: _Objects) -> Iterator[tuple[ImageView, Watcher]]:
    for cluster in objects.views:
        for _, view in cluster:
            for watcher in (*observed_of(view.watchers), *view.transient_watchers):
                yield view, watcher


def _nodes_of(index: Index, objects: _Objects) -> set[str]:
    """Return the nodes of the pods, and the nodes that have the address of a watcher."""
    ips = {spelled(watcher.address.ip) for _, watcher in _watchers(objects)}
    nodes = {node.name for ip in ips for node in index.kube.nodes_by_ip.get(ip, ())}
    return nodes | {user.node_name for user in objects.users if user.node_name}


def _published(index: Index, objects: _Objects) -> list[PublishedEntry]:
    """Return the reports of agents about the images, and about the clients that watch them."""
    known, wanted = index.reports, _wanted(objects)
    entries = [entry for name in wanted.volumes for entry in known.by_volume.get(name, ())]
    entries += [entry for name in wanted.images for entry in known.by_image.get(name, ())]
    entries += [entry for one in wanted.image_ids for entry in known.by_image_id.get(one, ())]
    for client, fsid in wanted.clients:
        theirs = [one for one in known.by_client.get(client, ()) if one.mapping.fsid == fsid]
        # One of each node: the client of one node in the reports of two is a finding.
        entries += {entry.number: entry for entry in reversed(theirs)}.values()
    return [*entries, *_disputed(index, objects, entries)]


def _disputed(
    index: Index, objects: _Objects, entries: Iterable[PublishedEntry]
) -> Iterator[PublishedEntry]:
    """Yield the reports of other nodes about the clients of the target's mappings."""
    known = index.reports
    if not known.disputed:
        return
    here = _devices(index, objects.volumes, objects.images, objects.image_ids)
    common = (mapping for report in known.common for mapping in observed_of(report.mappings))
    theirs = {*clients_in((*here, *(entry.mapping for entry in entries), *common))}
    for client, fsid in theirs & known.disputed:
        yield from (one for one in known.by_client.get(client, ()) if one.mapping.fsid == fsid)


def _reports(index: Index, entries: Iterable[PublishedEntry]) -> tuple[PublishedNode, ...]:
    """Return the reports of all nodes, with these mappings and those that any target may need.

    A recent report of a node counts even if it contains nothing about the target.
    """
    by_node: dict[int, list[PublishedEntry]] = by_each((entry.number, entry) for entry in entries)
    if not by_node:
        return index.reports.common
    found = list(index.reports.common)
    for number, theirs in by_node.items():
        common = observed_of(found[number].mappings)
        wanted = {id(one) for one in (*common, *(entry.mapping for entry in theirs))}
        every = observed_of(index.reports.nodes[number].mappings)
        found[number] = replace(
            found[number], mappings=tuple(one for one in every if id(one) in wanted)
        )
    return tuple(found)
