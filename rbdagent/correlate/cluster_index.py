"""Index of the snapshot of a cluster by the names that join its objects, for all volumes."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeVar

from msgspec.structs import replace

from rbdagent.correlate.image_identity import (
    clusters_of,
    identity_of_mapping,
    mappings_of,
    nodes_of,
    pod_volumes_on,
    pods_of,
    volumes_of,
)
from rbdagent.correlate.node_usage import Directories, directories_of, pod_uids_on, unbacked_in
from rbdagent.correlate.pv_shortlist import VolumeShortlist
from rbdagent.correlate.volume_names import (
    VolumeIndex,
    VolumeNames,
    claims_of,
    events_in,
    handle_of,
    index_of,
    key_of,
)
from rbdagent.model import (
    CephView,
    ClusterView,
    CSINode,
    EntityAddress,
    ImageView,
    KubeEvent,
    KubeView,
    Mapping,
    Node,
    NodeView,
    NotObserved,
    OtherSource,
    PersistentVolume,
    PersistentVolumeClaim,
    Pod,
    PublishedMapping,
    PublishedNode,
    Snapshot,
    VolumeAttachment,
    Workload,
    observed_of,
)
from rbdagent.parse.address import spelled
from rbdagent.parse.handle import attachment_name

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator


_T = TypeVar("_T")
_K = TypeVar("_K", bound="Hashable")

Key = tuple[str, str]
"""Namespace and name."""
ClientKey = tuple[int | None, int, str]
"""Id, nonce and IP address of a client.

Id and nonce are unique in a cluster. Still, the report of a compromised agent may contain those of
another node's client: it must not replace the report of that node.
"""

ClusterClient = tuple[ClientKey, str | None]
"""A client, and the fsid of its cluster."""


class Volumes(NamedTuple):
    """The PVs."""

    all_volumes: tuple[PersistentVolume, ...]
    joins: VolumeIndex
    by_name: dict[str, PersistentVolume]
    by_claim: dict[Key, list[PersistentVolume]]
    """PVs by their claimRef."""
    shelf: VolumeShortlist


class Claims(NamedTuple):
    """The claims."""

    by_key: dict[Key, PersistentVolumeClaim]
    of_volume: dict[str, list[PersistentVolumeClaim]]
    """Claims by their volumeName."""


class Pods(NamedTuple):
    """The pods."""

    by_key: dict[Key, Pod]
    of_claim: dict[Key, list[Pod]]
    of_handle: dict[Key, list[Pod]]
    """Pods with an inline volume, by its driver and handle."""
    of_image: dict[str, list[Pod]]
    """Pods with an inline image, by its name."""
    on_node: dict[str, list[Pod]]
    by_uid: dict[str, Pod]


class Attachments(NamedTuple):
    """The VolumeAttachments."""

    of_volume: dict[str, list[VolumeAttachment]]
    odd: frozenset[str]
    """Names of attachments whose name does not follow from their PV, which was created again."""
    odd_of: dict[str, list[VolumeAttachment]]
    """Attachments by the PV from which their name follows: not the PV that they name."""
    of_driver: dict[str, VolumeAttachment]
    """One attachment of each driver, which shows that the driver has a working attacher."""


class Nodes(NamedTuple):
    """The Nodes and CSINodes."""

    by_name: dict[str, Node]
    by_ip: dict[str, list[Node]]
    csi: dict[str, CSINode]
    listing: dict[str, list[str]]
    """Nodes whose status lists a volume as in use or attached, by its name in that status."""


class PublishedEntry(NamedTuple):
    """One mapping as its agent published it; ``number`` is the position of the node."""

    number: int
    node: PublishedNode
    mapping: PublishedMapping


class Published(NamedTuple):
    """Reports that agents published."""

    of_client: dict[ClientKey, list[PublishedEntry]]
    of_volume: dict[str, list[PublishedEntry]]
    of_image: dict[str, list[PublishedEntry]]
    """Entries by image name."""
    of_image_id: dict[str, list[PublishedEntry]]
    disputed: frozenset[ClusterClient]
    """Clients that several nodes have, see :func:`disputed_clients`."""
    reports: tuple[PublishedNode, ...]
    """The reports of all nodes, only with the mappings that any target may need, see
    :func:`with_common_only`."""


class Views(NamedTuple):
    """The images of one cluster, with their positions."""

    by_name: dict[str, list[tuple[int, ImageView]]]
    by_id: dict[str, list[tuple[int, ImageView]]]


class LocalIndex(NamedTuple):
    """Objects that belong to the observed node."""

    words: frozenset[str]
    """Names of volumes and images that occur on this node."""
    pods: tuple[Pod, ...]
    """Pods of this node, and pods whose uid occurs on this node."""
    directories: Directories
    of_image: dict[str, list[Mapping]]
    """Devices by the name with which their image was mapped."""
    of_image_id: dict[str, list[Mapping]]


class ClusterIndex(NamedTuple):
    """A snapshot and its indexes."""

    snapshot: Snapshot
    volumes: Volumes
    claims: Claims
    pods: Pods
    attachments: Attachments
    nodes: Nodes
    events: dict[Key, list[KubeEvent]]
    """Events by the object that they are about, of any kind."""
    workloads: dict[Key, Workload]
    """Workloads by namespace, and by kind and name as in the owners of a pod."""
    published: Published
    views: tuple[Views, ...]
    here: LocalIndex


def cluster_index_of(snapshot: Snapshot) -> ClusterIndex:
    """Index a snapshot."""
    kube = snapshot.kubernetes
    volumes, pods = _volumes(kube), _pods(kube)
    return ClusterIndex(
        snapshot=snapshot,
        volumes=volumes,
        claims=_claims(kube),
        pods=pods,
        attachments=_attachments(kube, volumes),
        nodes=_nodes(kube),
        events=by_each((key_of(event.subject), event) for event in events_in(kube)),
        workloads={}
        if kube is None
        else {
            (workload.ref.namespace, workload.name): workload
            for workload in observed_of(kube.workloads)
        },
        published=_published(snapshot),
        views=_all_views(snapshot.ceph),
        here=_local_index(snapshot, pods),
    )


def with_ceph(index: ClusterIndex, ceph: CephView | None) -> ClusterIndex:
    """Return the index with a newer view of Ceph."""
    snapshot = replace(index.snapshot, ceph=ceph)
    published = index.published._replace(reports=_common_reports(snapshot))
    return index._replace(snapshot=snapshot, published=published, views=_all_views(ceph))


def with_reports(index: ClusterIndex, reports: tuple[PublishedNode, ...]) -> ClusterIndex:
    """Return the index with other reports of agents; unchanged if the API was not observed."""
    kube = index.snapshot.kubernetes
    if kube is None:
        return index
    snapshot = replace(index.snapshot, kubernetes=replace(kube, published=reports))
    return index._replace(snapshot=snapshot, published=_published(snapshot))


def by_each(pairs: Iterable[tuple[_K, _T]]) -> dict[_K, list[_T]]:
    """Group values by key."""
    found: dict[_K, list[_T]] = {}
    for key, value in pairs:
        found.setdefault(key, []).append(value)
    return found


def keys_of_volume(volume: PersistentVolume) -> tuple[Key, Key]:
    """Return the two keys of a PV in events: without a namespace, or with the event's namespace."""
    return ("", volume.name), ("default", volume.name)


def _volumes(kube: KubeView | None) -> Volumes:
    every = volumes_of(kube)
    return Volumes(
        all_volumes=every,
        joins=index_of(kube),
        by_name={volume.name: volume for volume in every},
        by_claim=by_each(
            (key_of(volume.claim), volume) for volume in every if volume.claim is not None
        ),
        shelf=VolumeShortlist(every),
    )


def _claims(kube: KubeView | None) -> Claims:
    every = claims_of(kube)
    return Claims(
        by_key={key_of(claim.ref): claim for claim in every},
        of_volume=by_each((claim.volume_name, claim) for claim in every if claim.volume_name),
    )


def _pods(kube: KubeView | None) -> Pods:
    every = pods_of(kube)
    return Pods(
        by_key={key_of(pod.ref): pod for pod in every},
        of_claim=by_each(
            ((pod.ref.namespace, name), pod) for pod in every for name in set(pod.claims)
        ),
        of_handle=by_each(
            (handle, pod)
            for pod in every
            for source in pod.inline_volumes
            if (handle := handle_of(source)) is not None
        ),
        of_image=by_each((source.spec.name, pod) for pod in every for source in pod.inline_images),
        on_node=by_each((pod.node_name, pod) for pod in every if pod.node_name),
        by_uid={pod.ref.uid: pod for pod in every if pod.ref.uid},
    )


def _attachments(kube: KubeView | None, volumes: Volumes) -> Attachments:
    every = () if kube is None else observed_of(kube.attachments)
    drivers = frozenset(driver for driver, _ in volumes.joins.by_handle)
    odd = [
        attachment
        for attachment in every
        if not _is_named_by_its_volume(attachment, volumes, drivers)
    ]
    return Attachments(
        of_volume=by_each(
            (attachment.persistent_volume, attachment)
            for attachment in every
            if attachment.persistent_volume
        ),
        odd=frozenset(attachment.name for attachment in odd),
        odd_of=by_each(_named_by_others(odd, volumes)),
        of_driver={attachment.attacher: attachment for attachment in every},
    )


def _is_named_by_its_volume(
    attachment: VolumeAttachment, volumes: Volumes, drivers: frozenset[str]
) -> bool:
    volume = volumes.by_name.get(attachment.persistent_volume or "")
    if volume is None:
        return False
    if isinstance(volume.source, OtherSource):
        # How the name follows from a PV of another driver is unknown.
        return attachment.attacher not in drivers
    return attachment.name in _names(volume).attachment_names(attachment.node_name)


def _named_by_others(
    odd: Iterable[VolumeAttachment], volumes: Volumes
) -> Iterator[tuple[str, VolumeAttachment]]:
    """Yield each attachment with the PV that gives its name; a name is a hash, so try every PV."""
    wanted = {(attachment.node_name, attachment.name): attachment for attachment in odd}
    nodes = {node for node, _ in wanted}
    for volume in volumes.all_volumes if nodes else ():
        for driver, handle in _names(volume).attached_handles:
            for node in nodes:
                found = wanted.get((node, attachment_name(handle, driver, node)))
                if found is not None:
                    yield volume.name, found


def names_in_status(volume: PersistentVolume) -> frozenset[str]:
    """Return the names under which the status of a Node lists a PV."""
    return _names(volume).in_use_names


def _names(volume: PersistentVolume) -> VolumeNames:
    handle = handle_of(volume.source)
    handles = frozenset(() if handle is None else (handle,))
    return VolumeNames(image=None, volumes=(volume,), handles=handles)


def _nodes(kube: KubeView | None) -> Nodes:
    every = nodes_of(kube)
    csi = () if kube is None else observed_of(kube.csi_nodes)
    return Nodes(
        by_name={node.name: node for node in every},
        by_ip=by_each((spelled(ip), node) for node in every for ip in node.internal_ips),
        csi={csi_node.node_name: csi_node for csi_node in csi},
        listing=by_each(
            (name, node.name)
            for node in every
            for name in (*node.volumes_in_use, *node.volumes_attached)
        ),
    )


def _published(snapshot: Snapshot) -> Published:
    kube = snapshot.kubernetes
    nodes = () if kube is None else observed_of(kube.published)
    entries = [
        PublishedEntry(number, node, mapping)
        for number, node in enumerate(nodes)
        for mapping in observed_of(node.mappings)
    ]
    return Published(
        of_client=by_each(
            (client_of(entry.mapping.client_id, address), entry)
            for entry in entries
            if (address := entry.mapping.client_address) is not None
        ),
        of_volume=by_each(
            (entry.mapping.persistent_volume, entry)
            for entry in entries
            if entry.mapping.persistent_volume
        ),
        of_image=by_each(
            (entry.mapping.spec.name, entry) for entry in entries if entry.mapping.spec
        ),
        of_image_id=by_each(
            (entry.mapping.image_id, entry) for entry in entries if entry.mapping.image_id
        ),
        disputed=disputed_clients(nodes, snapshot.node),
        reports=_common_reports(snapshot),
    )


def disputed_clients(
    reports: Iterable[PublishedNode], node: NodeView | None
) -> frozenset[ClusterClient]:
    """Return the clients that several nodes have, according to their agents or to sysfs.

    Args:
        reports: of all agents.
        node: the observed node.
    """
    found: dict[ClusterClient, str] = {}
    if node is not None:
        found |= dict.fromkeys(clients_in(mappings_of(node)), node.node_name)
    return frozenset(
        client
        for report in reports
        for client in clients_in(observed_of(report.mappings))
        if found.setdefault(client, report.name) != report.name
    )


def clients_in(mappings: Iterable[Mapping | PublishedMapping]) -> Iterator[ClusterClient]:
    """Yield the clients of mappings that have a known client."""
    for mapping in mappings:
        address = mapping.client_address
        if mapping.client_id is not None and address is not None:
            yield (client_of(mapping.client_id, address), mapping.fsid)


def _common_reports(snapshot: Snapshot) -> tuple[PublishedNode, ...]:
    kube, nonces = snapshot.kubernetes, blocklisted_nonces(snapshot.ceph)
    nodes = () if kube is None else observed_of(kube.published)
    return tuple(with_common_only(node, nonces) for node in nodes)


def blocklisted_nonces(ceph: CephView | None) -> frozenset[int]:
    """Return the nonces of the single clients on a blocklist; few other clients have the same."""
    return frozenset(
        entry.nonce
        for cluster in clusters_of(ceph)
        for entry in observed_of(cluster.blocklist)
        if entry.nonce
    )


def with_common_only(
    report: PublishedNode,
    nonces: frozenset[int],
    is_kept: Callable[[PublishedMapping], bool] = lambda _: False,
) -> PublishedNode:
    """Return a report with the mappings that any target may need, and those that are kept.

    Any target may need a device whose image is unknown, because it may be any image, and the
    mappings of a client that is on a blocklist, because RBD306 names all devices of that client.
    ``every_client`` is then true if no mapping of such a client may be missing.

    Args:
        report: of a node.
        nonces: of the clients on a blocklist.
        is_kept: whether another mapping is kept.
    """
    if isinstance(report.mappings, NotObserved):
        return report
    kept = (
        mapping
        for mapping in report.mappings
        if mapping.spec is None or _has_nonce(mapping, nonces) or is_kept(mapping)
    )
    are_known = all(mapping.client_address is not None for mapping in report.mappings)
    return replace(report, mappings=tuple(kept), every_client=report.every_client and are_known)


def _has_nonce(mapping: PublishedMapping, nonces: frozenset[int]) -> bool:
    return mapping.client_address is not None and mapping.client_address.nonce in nonces


def client_of(client_id: int | None, address: EntityAddress) -> ClientKey:
    """Return a key for a client in a cluster, independent of the spelling of its address."""
    return client_id, address.nonce, spelled(address.ip)


def _all_views(ceph: CephView | None) -> tuple[Views, ...]:
    return () if ceph is None else tuple(_views(cluster) for cluster in ceph.clusters)


def _views(cluster: ClusterView) -> Views:
    numbered = list(enumerate(cluster.images))
    return Views(
        by_name=by_each((view.spec.name, (number, view)) for number, view in numbered),
        by_id=by_each(
            (view.image_id, (number, view)) for number, view in numbered if view.image_id
        ),
    )


# --------------------------------------------------------------------------------------------------
# The observed node
# --------------------------------------------------------------------------------------------------


def _local_index(snapshot: Snapshot, pods: Pods) -> LocalIndex:
    node = snapshot.node
    directories = directories_of(snapshot)
    own = [] if node is None else pods.on_node.get(node.node_name, [])
    named = [pods.by_uid[uid] for uid in _uids_on(node) if uid in pods.by_uid]
    return LocalIndex(
        words=frozenset(_names_on(node, directories)),
        pods=tuple(dict.fromkeys((*own, *named))),
        directories=directories,
        of_image=by_each(
            (mapping.spec.name, mapping)
            for mapping in mappings_of(node)
            if not isinstance(mapping.spec, NotObserved)
        ),
        of_image_id=by_each(
            (mapping.image_id, mapping) for mapping in mappings_of(node) if mapping.image_id
        ),
    )


def _names_on(node: NodeView | None, directories: Directories) -> set[str]:
    words: set[str] = set()
    for index in directories:
        words.update(() if isinstance(index, NotObserved) else index)
    for mapping in mappings_of(node):
        image = identity_of_mapping(mapping)
        words |= set() if image is None else {image.spec.name}
        words |= {mapping.image_id} if mapping.image_id else set()
        words |= {mapping.nbd.backend} if mapping.nbd is not None and mapping.nbd.backend else set()
    return words | {directory.persistent_volume for directory in unbacked_in(node)}


def _uids_on(node: NodeView | None) -> list[str]:
    if node is None:
        return []
    uids = [uid for mapping in mappings_of(node) for uid in pod_uids_on(mapping)]
    uids += [entry.pod_uid for entry in pod_volumes_on(node)]
    uids += [directory.pod_uid for directory in unbacked_in(node)]
    uids += [process.pod_uid for process in node.processes if process.pod_uid]
    return uids
