"""Everything that a look at a whole cluster saw, by what joins it: indexed once for all volumes."""

from __future__ import annotations

from ipaddress import ip_address
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from msgspec.structs import replace

from rbdagent.correlate.identity import mappings_of, pods_of, volumes_of
from rbdagent.correlate.local import Directories, directories_of, pod_uids_on
from rbdagent.correlate.names import (
    VolumeIndex,
    VolumeNames,
    claims_of,
    handle_of,
    index_of,
    key_of,
)
from rbdagent.correlate.shelf import Shelf
from rbdagent.model import (
    Attachment,
    CephView,
    Claim,
    ClusterView,
    CsiNode,
    EntityAddress,
    ImageView,
    KubeEvent,
    KubeView,
    Node,
    NodeView,
    NotObserved,
    OtherSource,
    PersistentVolume,
    Pod,
    PublishedMapping,
    PublishedNode,
    Snapshot,
    Workload,
    observed_of,
)
from rbdagent.parse.handle import attachment_name

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Iterator


_T = TypeVar("_T")
_K = TypeVar("_K", bound="Hashable")

Key = tuple[str, str]
"""Namespace and name."""


class Volumes(NamedTuple):
    """The PVs."""

    every: tuple[PersistentVolume, ...]
    joins: VolumeIndex
    by_name: dict[str, PersistentVolume]
    by_claim: dict[Key, list[PersistentVolume]]
    """By their claimRef."""
    shelf: Shelf


class Claims(NamedTuple):
    """The claims."""

    by_key: dict[Key, Claim]
    of_volume: dict[str, list[Claim]]
    """By their volumeName."""


class Pods(NamedTuple):
    """The pods."""

    by_key: dict[Key, Pod]
    of_claim: dict[Key, list[Pod]]
    of_handle: dict[Key, list[Pod]]
    """With an inline volume, by its driver and handle."""
    of_image: dict[str, list[Pod]]
    """With an inline image, by its name."""
    on_node: dict[str, list[Pod]]
    by_uid: dict[str, Pod]


class Attachments(NamedTuple):
    """The VolumeAttachments."""

    of_volume: dict[str, list[Attachment]]
    odd: frozenset[str]
    """Names of those that have not the one that their PV gives them: that was made anew."""
    odd_of: dict[str, list[Attachment]]
    """By the PV that gives them their names: not the one that they name."""
    of_driver: dict[str, Attachment]
    """One of each: there is an attacher, and it has worked."""


class Nodes(NamedTuple):
    """The Nodes and CSINodes."""

    by_name: dict[str, Node]
    by_ip: dict[str, list[Node]]
    csi: dict[str, CsiNode]
    listing: dict[str, list[str]]
    """Whose status lists a volume as in use or attached, by the name that it has there."""


class Told(NamedTuple):
    """One mapping as its agent published it; nodes are numbered in their order."""

    number: int
    node: PublishedNode
    mapping: PublishedMapping


class Published(NamedTuple):
    """What agents published."""

    of_client: dict[tuple[int | None, int], list[Told]]
    """By client id and nonce."""
    of_volume: dict[str, list[Told]]
    of_image: dict[str, list[Told]]
    """By the image's name."""
    reports: tuple[PublishedNode, ...]
    """Every node's, with the devices alone whose image its agent did not see: each may be any."""


class Views(NamedTuple):
    """One cluster's images; they are numbered in their order."""

    by_name: dict[str, list[tuple[int, ImageView]]]
    by_id: dict[str, list[tuple[int, ImageView]]]


class Here(NamedTuple):
    """What belongs to the node that looked."""

    words: frozenset[str]
    """Names of volumes and images that anything here bears."""
    pods: tuple[Pod, ...]
    """Of this node, and those that anything here names by uid."""
    directories: Directories


class Whole(NamedTuple):
    """A look, and what finds things in it."""

    snapshot: Snapshot
    volumes: Volumes
    claims: Claims
    pods: Pods
    attachments: Attachments
    nodes: Nodes
    events: dict[Key, list[KubeEvent]]
    """By whom they regard, of whatever kind."""
    workloads: dict[Key, Workload]
    """By namespace, and kind and name as a pod's owners have them."""
    published: Published
    views: tuple[Views, ...]
    here: Here


def whole_of(snapshot: Snapshot) -> Whole:
    """Index a look."""
    kube = snapshot.kubernetes
    volumes, pods = _volumes(kube), _pods(kube)
    return Whole(
        snapshot=snapshot,
        volumes=volumes,
        claims=_claims(kube),
        pods=pods,
        attachments=_attachments(kube, volumes),
        nodes=_nodes(kube),
        events={}
        if kube is None
        else by_each((key_of(each.subject), each) for each in observed_of(kube.events)),
        workloads={}
        if kube is None
        else {(each.ref.namespace, each.name): each for each in observed_of(kube.workloads)},
        published=_published(kube),
        views=_all_views(snapshot.ceph),
        here=_here(snapshot, pods),
    )


def with_ceph(whole: Whole, ceph: CephView | None) -> Whole:
    """Give the same with what Ceph says by now."""
    snapshot = replace(whole.snapshot, ceph=ceph)
    return whole._replace(snapshot=snapshot, views=_all_views(ceph))


def by_each(pairs: Iterable[tuple[_K, _T]]) -> dict[_K, list[_T]]:
    """Put together what has the same key."""
    found: dict[_K, list[_T]] = {}
    for key, each in pairs:
        found.setdefault(key, []).append(each)
    return found


def keys_of_volume(volume: PersistentVolume) -> tuple[Key, Key]:
    """Give how an event names a PV: without a namespace, though it lies in one itself."""
    return ("", volume.name), ("default", volume.name)


def _volumes(kube: KubeView | None) -> Volumes:
    every = volumes_of(kube)
    return Volumes(
        every=every,
        joins=index_of(kube),
        by_name={each.name: each for each in every},
        by_claim=by_each((key_of(each.claim), each) for each in every if each.claim is not None),
        shelf=Shelf(every),
    )


def _claims(kube: KubeView | None) -> Claims:
    every = claims_of(kube)
    return Claims(
        by_key={key_of(each.ref): each for each in every},
        of_volume=by_each((each.volume_name, each) for each in every if each.volume_name),
    )


def _pods(kube: KubeView | None) -> Pods:
    every = pods_of(kube)
    return Pods(
        by_key={key_of(each.ref): each for each in every},
        of_claim=by_each(
            ((each.ref.namespace, name), each) for each in every for name in set(each.claims)
        ),
        of_handle=by_each(
            (handle, each)
            for each in every
            for source in each.inline_volumes
            if (handle := handle_of(source)) is not None
        ),
        of_image=by_each(
            (source.spec.name, each) for each in every for source in each.inline_images
        ),
        on_node=by_each((each.node_name, each) for each in every if each.node_name),
        by_uid={each.ref.uid: each for each in every if each.ref.uid},
    )


def _attachments(kube: KubeView | None, volumes: Volumes) -> Attachments:
    every = () if kube is None else observed_of(kube.attachments)
    drivers = frozenset(driver for driver, _ in volumes.joins.by_handle)
    odd = [each for each in every if not _is_named_by_its_volume(each, volumes, drivers)]
    return Attachments(
        of_volume=by_each(
            (each.persistent_volume, each) for each in every if each.persistent_volume
        ),
        odd=frozenset(each.name for each in odd),
        odd_of=by_each(_named_by_others(odd, volumes)),
        of_driver={each.attacher: each for each in every},
    )


def _is_named_by_its_volume(
    attachment: Attachment, volumes: Volumes, drivers: frozenset[str]
) -> bool:
    volume = volumes.by_name.get(attachment.persistent_volume or "")
    if volume is None:
        return False
    if isinstance(volume.source, OtherSource):
        # Another driver's name is its own affair.
        return attachment.attacher not in drivers
    return attachment.name in _names(volume).attachment_names(attachment.node_name)


def _named_by_others(
    odd: Iterable[Attachment], volumes: Volumes
) -> Iterator[tuple[str, Attachment]]:
    """Give each with the PV that would name it so; a name is a hash, so each PV is asked."""
    wanted = {(each.node_name, each.name): each for each in odd}
    nodes = {node for node, _ in wanted}
    for volume in volumes.every if nodes else ():
        for driver, handle in _names(volume).attached_handles:
            for node in nodes:
                found = wanted.get((node, attachment_name(handle, driver, node)))
                if found is not None:
                    yield volume.name, found


def names_in_status(volume: PersistentVolume) -> frozenset[str]:
    """Give what a Node's status would call a PV."""
    return _names(volume).in_use_names


def _names(volume: PersistentVolume) -> VolumeNames:
    handle = handle_of(volume.source)
    handles = frozenset(() if handle is None else (handle,))
    return VolumeNames(image=None, volumes=(volume,), handles=handles)


def _nodes(kube: KubeView | None) -> Nodes:
    every = () if kube is None else observed_of(kube.nodes)
    csi = () if kube is None else observed_of(kube.csi_nodes)
    return Nodes(
        by_name={each.name: each for each in every},
        by_ip=by_each((spelled(ip), each) for each in every for ip in each.internal_ips),
        csi={each.node_name: each for each in csi},
        listing=by_each(
            (name, each.name)
            for each in every
            for name in (*each.volumes_in_use, *each.volumes_attached)
        ),
    )


def spelled(ip: str) -> str:
    """Give the one spelling of an IP address; what is none stays as it is."""
    try:
        return str(ip_address(ip))
    except ValueError:
        return ip


def _published(kube: KubeView | None) -> Published:
    nodes = () if kube is None else observed_of(kube.published)
    told = [
        Told(number, node, mapping)
        for number, node in enumerate(nodes)
        for mapping in observed_of(node.mappings)
    ]
    return Published(
        of_client=by_each(
            (client_of(each.mapping.client_id, address), each)
            for each in told
            if (address := each.mapping.client_address) is not None
        ),
        of_volume=by_each(
            (each.mapping.persistent_volume, each)
            for each in told
            if each.mapping.persistent_volume
        ),
        of_image=by_each((each.mapping.spec.name, each) for each in told if each.mapping.spec),
        reports=tuple(_without_images(node) for node in nodes),
    )


def _without_images(node: PublishedNode) -> PublishedNode:
    if isinstance(node.mappings, NotObserved):
        return node
    unknown = tuple(mapping for mapping in node.mappings if mapping.image is None)
    return replace(node, mappings=unknown)


def client_of(client_id: int | None, address: EntityAddress) -> tuple[int | None, int]:
    """Give what tells a client from all others, but for the spelling of its address."""
    return client_id, address.nonce


def _all_views(ceph: CephView | None) -> tuple[Views, ...]:
    return () if ceph is None else tuple(_views(each) for each in ceph.clusters)


def _views(cluster: ClusterView) -> Views:
    numbered = list(enumerate(cluster.images))
    return Views(
        by_name=by_each((each.spec.name, (number, each)) for number, each in numbered),
        by_id=by_each(
            (each.image_id, (number, each)) for number, each in numbered if each.image_id
        ),
    )


# --------------------------------------------------------------------------------------------------
# The node that looked
# --------------------------------------------------------------------------------------------------


def _here(snapshot: Snapshot, pods: Pods) -> Here:
    node = snapshot.node
    directories = directories_of(snapshot)
    own = [] if node is None else pods.on_node.get(node.node_name, [])
    named = [pods.by_uid[uid] for uid in _uids_on(node) if uid in pods.by_uid]
    return Here(
        words=frozenset(_words_on(node, directories)),
        pods=tuple(dict.fromkeys((*own, *named))),
        directories=directories,
    )


def _words_on(node: NodeView | None, directories: Directories) -> set[str]:
    words: set[str] = set()
    for index in directories:
        words.update(() if isinstance(index, NotObserved) else index)
    for each in mappings_of(node):
        words |= set() if isinstance(each.spec, NotObserved) else {each.spec.name}
        words |= {each.image_id} if each.image_id else set()
        words |= {each.nbd.backend} if each.nbd is not None and each.nbd.backend else set()
    unbacked = () if node is None else observed_of(node.unbacked)
    return words | {each.persistent_volume for each in unbacked}


def _uids_on(node: NodeView | None) -> list[str]:
    if node is None:
        return []
    published = () if isinstance(node.kubelet, NotObserved) else node.kubelet.pod_volumes
    uids = [uid for each in mappings_of(node) for uid in pod_uids_on(each)]
    uids += [each.pod_uid for each in observed_of(published)]
    uids += [each.pod_uid for each in observed_of(node.unbacked)]
    uids += [each.pod_uid for each in node.processes if each.pod_uid]
    return uids
