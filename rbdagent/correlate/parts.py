"""A look at a whole cluster, cut into small looks at one target each: so joining stays linear.

A part holds all that the joins and the rules ask of its target: its PVs and those of the same image
or handle, its claims, their pods and what these hang on, its attachments, events and watchers, and
of what is no volume's (Nodes, classes, drivers) everything. What it leaves out concerns other
volumes alone: so it is as complete as the look that it comes from.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeVar

from msgspec.structs import replace

from rbdagent.correlate.identity import (
    identity_of_mapping,
    mappings_of,
    names,
    volume_image,
)
from rbdagent.correlate.names import handle_of, key_of
from rbdagent.correlate.whole import (
    Key,
    Told,
    Views,
    Whole,
    by_each,
    client_of,
    keys_of_volume,
    spelled,
)
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
from rbdagent.parse.handle import staging_hash

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from rbdagent.model import (
        Attachment,
        KubeEvent,
        PersistentVolume,
        PublishedMapping,
        PublishedNode,
        Watcher,
        Workload,
    )

_T = TypeVar("_T")
_K = TypeVar("_K", str, Key)


class _Seed(NamedTuple):
    """What a target names."""

    volumes: tuple[PersistentVolume, ...] = ()
    claims: tuple[Key, ...] = ()
    pods: tuple[Pod, ...] = ()
    images: tuple[ImageIdentity, ...] = ()
    """Without a PV."""
    handles: tuple[Key, ...] = ()


class _Objects(NamedTuple):
    """What belongs to a target."""

    volumes: tuple[PersistentVolume, ...]
    claims: frozenset[Key]
    users: tuple[Pod, ...]
    images: frozenset[str]
    """Names."""
    views: tuple[tuple[tuple[int, ImageView], ...], ...]
    """A cluster each."""
    words: frozenset[str]


def part_of(whole: Whole, target: Target) -> Snapshot:
    """Give the small look at a target; what is not there, is not there either in the whole."""
    seed = _seed(whole, target)
    objects = _objects(whole, seed)
    is_local = _is_local(whole, target, objects)
    snapshot = whole.snapshot
    kube = snapshot.kubernetes
    return replace(
        snapshot,
        target=target,
        ceph=_ceph(whole, objects),
        kubernetes=None if kube is None else _kube(whole, kube, seed, objects, is_local=is_local),
        sources=_without_gaps(snapshot.sources),
    )


def is_here(whole: Whole, target: Target) -> bool:
    """Tell whether the node that looked has something of a target."""
    node = whole.snapshot.node
    objects = _objects(whole, _seed(whole, target))
    if _is_local(whole, target, objects):
        return True
    return node is not None and any(each.node_name == node.node_name for each in objects.users)


def _is_local(whole: Whole, target: Target, objects: _Objects) -> bool:
    """Tell whether that node itself shows something of it."""
    if target.kind is TargetKind.DEVICE:
        return True
    return not objects.words.isdisjoint(whole.here.words)


def images_meant(whole: Whole, target: Target) -> tuple[ImageIdentity, ...]:
    """Give the images that a target leads to."""
    seed = _seed(whole, target)
    found = (image for each in seed.volumes if (image := volume_image(each)) is not None)
    return tuple(dict.fromkeys((*found, *seed.images)))


def is_there(whole: Whole, target: Target) -> bool:
    """Tell whether the look saw what a target names."""
    key = (target.namespace, target.name)
    match target.kind:
        case TargetKind.CLAIM:
            return key in whole.claims.by_key
        case TargetKind.POD:
            return key in whole.pods.by_key
        case TargetKind.IMAGE:
            objects = _objects(whole, _seed(whole, target))
            return bool(objects.volumes or objects.users or any(objects.views))
        case _:
            seed = _seed(whole, target)
            return bool(seed.volumes or seed.images or seed.handles)


def _without_gaps(sources: Sources) -> Sources:
    """A gap is told once of the whole."""
    return Sources(
        node=_without_gaps_of(sources.node),
        ceph=_without_gaps_of(sources.ceph),
        kubernetes=_without_gaps_of(sources.kubernetes),
    )


def _without_gaps_of(source: Source) -> Source:
    return replace(source, gaps=())


# --------------------------------------------------------------------------------------------------
# What the target names
# --------------------------------------------------------------------------------------------------


def _seed(whole: Whole, target: Target) -> _Seed:
    key = (target.namespace, target.name)
    match target.kind:
        case TargetKind.CLAIM:
            return _Seed(volumes=tuple(_volumes_of_claim(whole, key)), claims=(key,))
        case TargetKind.POD:
            return _seed_of_pod(whole, whole.pods.by_key.get(key))
        case TargetKind.PERSISTENT_VOLUME:
            return _Seed(volumes=tuple(_known(whole.volumes.by_name, {target.name})))
        case TargetKind.DEVICE:
            return _seed_of_device(whole, target)
    images = [] if target.image is None else [ImageIdentity(spec=target.image, fsid=None)]
    handles = [each for each in whole.volumes.joins.by_handle if each[1] == target.name]
    return _Seed(images=tuple(images), volumes=tuple(_volumes_of_handles(whole, handles)))


def _volumes_of_claim(whole: Whole, key: Key) -> list[PersistentVolume]:
    """Its own volumeName leads, without the claim the claimRef."""
    claim = whole.claims.by_key.get(key)
    if claim is None:
        return whole.volumes.by_claim.get(key, [])
    volume = whole.volumes.by_name.get(claim.volume_name or "")
    return [] if volume is None else [volume]


def _seed_of_pod(whole: Whole, pod: Pod | None) -> _Seed:
    if pod is None:
        return _Seed()
    claims = tuple((pod.ref.namespace, each) for each in pod.claims)
    handles = (handle_of(each) for each in pod.inline_volumes)
    return _Seed(
        volumes=tuple(each for key in claims for each in _volumes_of_claim(whole, key)),
        claims=claims,
        pods=(pod,),
        images=tuple(ImageIdentity(spec=each.spec, fsid=None) for each in pod.inline_images),
        handles=tuple(each for each in handles if each is not None),
    )


def _seed_of_device(whole: Whole, target: Target) -> _Seed:
    mapping = next((each for each in mappings_of(whole.snapshot.node) if names(target, each)), None)
    if mapping is None:
        return _Seed()
    image = identity_of_mapping(mapping)
    backend = mapping.nbd.backend if mapping.nbd is not None else None
    return _Seed(
        images=() if image is None else (image,),
        handles=tuple(each for each in whole.volumes.joins.by_handle if each[1] == backend),
    )


# --------------------------------------------------------------------------------------------------
# What belongs to it
# --------------------------------------------------------------------------------------------------


def _objects(whole: Whole, seed: _Seed) -> _Objects:
    volumes = dict.fromkeys((*seed.volumes, *_volumes_of_handles(whole, seed.handles)))
    images = frozenset(_image_names((*volumes,), seed.images))
    volumes |= dict.fromkeys(
        each for name in images for each, _ in whole.volumes.joins.by_image_name.get(name, ())
    )
    handles = {pair for each in volumes if (pair := handle_of(each.source)) is not None}
    volumes |= dict.fromkeys(_volumes_of_handles(whole, handles))
    images |= frozenset(_image_names((*volumes,), ()))
    claims = {*seed.claims, *_claims_of(whole, volumes)}
    ids = {each.image_id for each in seed.images if each.image_id}
    views = tuple(_views_named(each, images, ids) for each in whole.views)
    ids |= {view.image_id for each in views for _, view in each if view.image_id}
    return _Objects(
        volumes=(*volumes,),
        claims=frozenset(claims),
        users=_users(whole, seed, claims, handles, images),
        images=images,
        views=views,
        words=frozenset(
            {
                *(each.name for each in volumes),
                *(handle for _, handle in handles),
                *(staging_hash(handle) for _, handle in handles),
                *images,
                *ids,
            }
        ),
    )


def _volumes_of_handles(whole: Whole, handles: Iterable[Key]) -> Iterator[PersistentVolume]:
    for each in handles:
        yield from whole.volumes.joins.by_handle.get(each, ())


def _image_names(
    volumes: Iterable[PersistentVolume], images: Iterable[ImageIdentity]
) -> Iterator[str]:
    for volume in volumes:
        image = volume_image(volume)
        if image is not None:
            yield image.spec.name
    for each in images:
        yield each.spec.name


def _claims_of(whole: Whole, volumes: Iterable[PersistentVolume]) -> Iterator[Key]:
    """By the PV's claimRef and by the claim's volumeName: one of the two may be wrong."""
    for each in volumes:
        if each.claim is not None:
            yield key_of(each.claim)
        for claim in whole.claims.of_volume.get(each.name, ()):
            yield key_of(claim.ref)


def _users(
    whole: Whole, seed: _Seed, claims: Iterable[Key], handles: Iterable[Key], images: Iterable[str]
) -> tuple[Pod, ...]:
    pods = whole.pods
    found = dict.fromkeys(seed.pods)
    for claim in claims:
        found |= dict.fromkeys(pods.of_claim.get(claim, ()))
    for handle in {*handles, *seed.handles}:
        found |= dict.fromkeys(pods.of_handle.get(handle, ()))
    for image in images:
        found |= dict.fromkeys(pods.of_image.get(image, ()))
    return (*found,)


def _views_named(
    views: Views, images: Iterable[str], image_ids: set[str]
) -> tuple[tuple[int, ImageView], ...]:
    """Give one cluster's views of the images; a renamed one is known by its id."""
    found = [each for name in images for each in views.by_name.get(name, ())]
    ids = image_ids | {view.image_id for _, view in found if view.image_id}
    found += [each for image_id in ids for each in views.by_id.get(image_id, ())]
    return tuple(sorted({number: (number, view) for number, view in found}.values(), key=_number))


def _number(numbered: tuple[int, object]) -> int:
    return numbered[0]


# --------------------------------------------------------------------------------------------------
# Ceph
# --------------------------------------------------------------------------------------------------


def _ceph(whole: Whole, objects: _Objects) -> CephView | None:
    ceph = whole.snapshot.ceph
    if ceph is None:
        return None
    return CephView(
        clusters=tuple(
            replace(
                each,
                images=tuple(view for _, view in views),
                source=_without_gaps_of(each.source),
            )
            for each, views in zip(ceph.clusters, objects.views, strict=True)
        )
    )


# --------------------------------------------------------------------------------------------------
# Kubernetes
# --------------------------------------------------------------------------------------------------


def _kube(
    whole: Whole, kube: KubeView, seed: _Seed, objects: _Objects, *, is_local: bool
) -> KubeView:
    published, attachments = _published(whole, objects), _attachments(whole, objects)
    pods = dict.fromkeys((*objects.users, *(whole.here.pods if is_local else ())))
    volumes = dict.fromkeys((*objects.volumes, *_further_volumes(whole, objects)))
    attached = {each.persistent_volume for each in attachments if each.persistent_volume}
    volumes |= dict.fromkeys(_known(whole.volumes.by_name, attached))
    if not objects.volumes:
        # Whose the image may be, every pod tells on the nodes where it is held.
        nodes = {each.node.name for each in published} | _nodes_of(whole, objects)
        pods |= dict.fromkeys(pod for node in nodes for pod in whole.pods.on_node.get(node, ()))
        volumes |= dict.fromkeys(_volumes_of_pods(whole, pods))
    claims = {*objects.claims, *_claims_of_pods(pods), *_claims_of(whole, volumes)}
    return replace(
        kube,
        # In order of their names, as the API lists them.
        persistent_volumes=_instead(
            kube.persistent_volumes, sorted(volumes, key=lambda each: each.name)
        ),
        claims=_instead(kube.claims, _known(whole.claims.by_key, claims)),
        pods=_instead(kube.pods, sorted(pods, key=lambda each: key_of(each.ref))),
        attachments=_instead(
            kube.attachments,
            sorted({*attachments, *_witnesses(whole, objects)}, key=lambda each: each.name),
        ),
        events=_instead(kube.events, _events(whole, seed)),
        workloads=_instead(kube.workloads, _workloads(whole, objects.users)),
        published=_instead(kube.published, _reports(whole, published)),
    )


def _instead(
    every: tuple[_T, ...] | NotObserved, some: Iterable[_T]
) -> tuple[_T, ...] | NotObserved:
    """Give some in place of all; what was not observed stays so."""
    return every if isinstance(every, NotObserved) else tuple(some)


def _known(index: dict[_K, _T], keys: Iterable[_K]) -> list[_T]:
    """Give what there is of that name, in order."""
    return [index[each] for each in sorted(keys) if each in index]


def _further_volumes(whole: Whole, objects: _Objects) -> Iterator[PersistentVolume]:
    """Give the PVs that name the claims, or that these name, and what comes near to their wish."""
    for key in objects.claims:
        yield from whole.volumes.by_claim.get(key, ())
        claim = whole.claims.by_key.get(key)
        if claim is None:
            continue
        yield from _known(whole.volumes.by_name, {claim.volume_name or ""})
        if claim.phase != "Bound":
            yield from whole.volumes.shelf.nearest(claim)


def _claims_of_pods(pods: Iterable[Pod]) -> Iterator[Key]:
    for pod in pods:
        for name in pod.claims:
            yield pod.ref.namespace, name


def _volumes_of_pods(whole: Whole, pods: Iterable[Pod]) -> Iterator[PersistentVolume]:
    for key in _claims_of_pods(pods):
        yield from whole.volumes.by_claim.get(key, ())


def _attachments(whole: Whole, objects: _Objects) -> list[Attachment]:
    """Give them by the PV that they name, and by the one that gives them their name."""
    known, names = whole.attachments, [each.name for each in objects.volumes]
    found = (
        each
        for name in names
        for each in (*known.of_volume.get(name, ()), *known.odd_of.get(name, ()))
    )
    return list(dict.fromkeys(found))


def _witnesses(whole: Whole, objects: _Objects) -> Iterator[Attachment]:
    """Give an attachment of each of its drivers, to whatever: volumes of these are attached."""
    for volume in objects.volumes:
        handle = handle_of(volume.source)
        if handle is not None:
            yield from _known(whole.attachments.of_driver, {handle[0]})


def _events(whole: Whole, seed: _Seed) -> Iterator[KubeEvent]:
    """Give the events of the target's own PVs, claims and pods."""
    claims = {*seed.claims, *(key_of(each.claim) for each in seed.volumes if each.claim)}
    pods = {key_of(pod.ref) for key in claims for pod in whole.pods.of_claim.get(key, ())}
    pods |= {key_of(each.ref) for each in seed.pods}
    volumes = {key for each in seed.volumes for key in keys_of_volume(each)}
    for key in sorted(claims | pods | volumes):
        yield from whole.events.get(key, ())


def _workloads(whole: Whole, pods: Iterable[Pod]) -> Iterable[Workload]:
    """Give the controllers of pods, and theirs."""
    found: dict[Key, Workload] = {}
    keys = {(pod.ref.namespace, owner) for pod in pods for owner in pod.owners}
    while keys:
        new = {
            key: whole.workloads[key] for key in sorted(keys - {*found}) if key in whole.workloads
        }
        found |= new
        keys = {(each.ref.namespace, owner) for each in new.values() for owner in each.owners}
    return found.values()


# --------------------------------------------------------------------------------------------------
# What agents published
# --------------------------------------------------------------------------------------------------


def _watchers(objects: _Objects) -> Iterator[tuple[ImageView, Watcher]]:
    for cluster in objects.views:
        for _, view in cluster:
            for each in (*observed_of(view.watchers), *view.passing_watchers):
                yield view, each


def _nodes_of(whole: Whole, objects: _Objects) -> set[str]:
    """Give the nodes of its pods, and those that have a watcher's address."""
    ips = {spelled(each.address.ip) for _, each in _watchers(objects)}
    nodes = {node.name for ip in ips for node in whole.nodes.by_ip.get(ip, ())}
    return nodes | {each.node_name for each in objects.users if each.node_name}


def _published(whole: Whole, objects: _Objects) -> list[Told]:
    """Give what agents published of the images, and of the clients that watch them."""
    known = whole.published
    told = [each for one in objects.volumes for each in known.of_volume.get(one.name, ())]
    told += [each for name in objects.images for each in known.of_image.get(name, ())]
    for view, watcher in _watchers(objects):
        theirs = known.of_client.get(client_of(watcher.client, watcher.address), [])
        # One of a client's mappings proves whose it is; those of the image are there already.
        ours = (each for each in theirs if each.mapping.fsid == view.fsid)
        first = next(ours, None)
        told += [] if first is None else [first]
        told += [each for each in theirs if _is_of(each, view)]
    return told


def _is_of(told: Told, view: ImageView) -> bool:
    return view.image_id is not None and told.mapping.image_id == view.image_id


def _reports(whole: Whole, told: Iterable[Told]) -> tuple[PublishedNode, ...]:
    """Return every node's report, with these mappings and those whose image is unknown.

    That a node's agent reports lately counts even where it has nothing of the target.
    """
    by_node: dict[int, list[Told]] = by_each((each.number, each) for each in told)
    if not by_node:
        return whole.published.reports
    found = list(whole.published.reports)
    for number, theirs in by_node.items():
        found[number] = replace(theirs[0].node, mappings=_in_order(theirs))
    return tuple(found)


def _in_order(told: list[Told]) -> tuple[PublishedMapping, ...]:
    wanted = {id(each.mapping) for each in told}
    return tuple(
        mapping
        for mapping in observed_of(told[0].node.mappings)
        if id(mapping) in wanted or mapping.image is None
    )
