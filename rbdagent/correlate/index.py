"""The index of a snapshot: the objects of each source by the names that join them.

Each target of a cluster needs its objects out of lists of all objects. A part of the index is built
when it is first asked for, and kept with the view that it is about: a snapshot with a newer answer
of Ceph keeps the index of its objects in Kubernetes. No part refers to its view, so that both are
freed at once.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from msgspec.structs import replace

from rbdagent.correlate.coverage import Coverage
from rbdagent.correlate.directories import Directories, directories_of, unbacked_in
from rbdagent.correlate.image_identity import (
    are_mappings_observed,
    distinct,
    identity_of_mapping,
    in_order,
    volume_image,
)
from rbdagent.correlate.names import handle_of, key_of, names_of_pv
from rbdagent.correlate.pv_shortlist import VolumeShortlist
from rbdagent.model import (
    LIFECYCLE_NOT_REQUESTED,
    CephView,
    ClusterView,
    CSINode,
    EntityAddress,
    ImageIdentity,
    ImageSpec,
    ImageView,
    KubeEvent,
    KubeView,
    MachineMigration,
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
    VolumeReplication,
    Workload,
    derived,
    observed_of,
)
from rbdagent.parse.address import spelled
from rbdagent.parse.handle import attachment_name, attachment_names, in_use_name

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator

_T = TypeVar("_T")
_K = TypeVar("_K", bound="Hashable")
_V = TypeVar("_V")
_S = TypeVar("_S", Snapshot, KubeView)

Key = tuple[str, str]
"""Namespace and name."""
ClientKey = tuple[int | None, int, str]
"""Id, nonce and IP address of a client.

Id and nonce are unique in a cluster. Still, the report of a compromised agent may contain those of
another node's client: it must not replace the report of that node.
"""
_KEPT: Final = "kept"
"""The attribute of a view that has the results of :func:`once`, by their functions."""
_REPORTED: Final = "reported_specs"
"""The attribute of a view that has the result of :func:`reported_specs`."""
ClusterClient = tuple[ClientKey, str | None]
"""A client, and the fsid of its cluster."""


class Index(NamedTuple):
    """The only way to ask a snapshot about objects by their names."""

    snapshot: Snapshot
    kube: KubeIndex
    node: NodeIndex
    ceph: CephIndex
    reports: ReportIndex


def index_of(snapshot: Snapshot) -> Index:
    """Return the index of a snapshot; its parts are built once."""
    return Index(
        snapshot=snapshot,
        kube=kube_index(snapshot.kubernetes),
        node=node_index(snapshot.node),
        ceph=ceph_index(snapshot.ceph),
        reports=once(snapshot, ReportIndex),
    )


def derived_view(view: _S, **changes: object) -> _S:
    """Return a view with other fields, on which nothing that is kept with it depends."""
    other = replace(view, **changes)
    vars(other)[_KEPT] = vars(view).setdefault(_KEPT, {})
    return other


def kube_index(view: KubeView | None) -> KubeIndex:
    """Return the index of the objects of Kubernetes."""
    return _NO_OBJECTS if view is None else once(view, KubeIndex)


def node_index(view: NodeView | None) -> NodeIndex:
    """Return the index of the observed node."""
    return NodeIndex(None) if view is None else once(view, NodeIndex)


def ceph_index(view: CephView | None) -> CephIndex:
    """Return the index of the clusters."""
    return CephIndex(None) if view is None else once(view, CephIndex)


def once(view: _V, function: Callable[[_V], _T]) -> _T:
    """Return what a function returns for a view; call it once, and keep the result with the view.

    The result must not refer to the view: else both live until the garbage is collected.
    """
    kept: dict[Callable[[_V], _T], _T] = vars(view).setdefault(_KEPT, {})
    if function not in kept:
        kept[function] = function(view)
    return kept[function]


def reported_specs(view: KubeView) -> dict[str, list[ImageSpec]]:
    """Return the images that agents report, by the PV that they name.

    They are kept with this view alone: one that is derived from it may have other reports.
    """
    kept = vars(view)
    if _REPORTED not in kept:
        kept[_REPORTED] = by_each(
            (mapping.persistent_volume, mapping.spec)
            for report in observed_of(view.published)
            for mapping in observed_of(report.mappings)
            if mapping.persistent_volume is not None and mapping.spec is not None
        )
    found: dict[str, list[ImageSpec]] = kept[_REPORTED]
    return found


def with_ceph(index: Index, ceph: CephView | None) -> Index:
    """Return the index of the snapshot with a newer view of Ceph."""
    return index_of(replace(index.snapshot, ceph=ceph))


def with_reports(index: Index, reports: tuple[PublishedNode, ...]) -> Index:
    """Return the index with other reports of agents; unchanged if the API was not observed."""
    kube = index.snapshot.kubernetes
    if kube is None:
        return index
    other = derived_view(kube, published=reports)
    return index_of(replace(index.snapshot, kubernetes=other))


def by_each(pairs: Iterable[tuple[_K, _T]]) -> dict[_K, list[_T]]:
    """Group values by key."""
    found: dict[_K, list[_T]] = {}
    for key, value in pairs:
        known = found.get(key)
        if known is None:
            # Most lists have one element, and an empty list takes room for four.
            found[key] = [value]
        else:
            known.append(value)
    return found


# --------------------------------------------------------------------------------------------------
# Kubernetes
# --------------------------------------------------------------------------------------------------


class KubeIndex:
    """The objects of Kubernetes; what was not observed has no entries."""

    def __init__(self, view: KubeView | None) -> None:
        """Take the lists of a view; nothing is indexed yet."""
        self.coverage = Coverage(view)
        self._volumes = () if view is None else observed_of(view.persistent_volumes)
        self._claims = () if view is None else observed_of(view.claims)
        self._pods = () if view is None else observed_of(view.pods)
        self._attachments = () if view is None else observed_of(view.attachments)
        self.nodes = () if view is None else observed_of(view.nodes)
        self._csi_nodes = () if view is None else observed_of(view.csi_nodes)
        self._events = () if view is None else observed_of(view.events)
        self._workloads = () if view is None else observed_of(view.workloads)
        self._migrations = LIFECYCLE_NOT_REQUESTED if view is None else view.migrations
        self._replications = LIFECYCLE_NOT_REQUESTED if view is None else view.replications

    # PersistentVolumes

    @cached_property
    def volumes(self) -> tuple[PersistentVolume, ...]:
        """The PVs in order of their names."""
        return tuple(sorted(self._volumes, key=lambda volume: volume.name))

    @cached_property
    def volume_by_name(self) -> dict[str, PersistentVolume]:
        """The PVs by their name."""
        return {volume.name: volume for volume in self.volumes}

    @cached_property
    def volumes_by_claim(self) -> dict[Key, list[PersistentVolume]]:
        """PVs by their claimRef."""
        return by_each(
            (key_of(volume.claim), volume) for volume in self.volumes if volume.claim is not None
        )

    @cached_property
    def volumes_by_handle(self) -> dict[Key, list[PersistentVolume]]:
        """PVs by their driver and handle."""
        return by_each(
            (handle, volume)
            for volume in self.volumes
            if (handle := handle_of(volume.source)) is not None
        )

    @cached_property
    def handles_by_value(self) -> dict[str, list[Key]]:
        """Drivers with handle, by the handle alone."""
        return by_each((handle, (driver, handle)) for driver, handle in self.volumes_by_handle)

    @cached_property
    def images(self) -> dict[str, ImageIdentity]:
        """The image of each PV that has a known one, by the name of the PV."""
        return {
            volume.name: image
            for volume in self.volumes
            if (image := volume_image(volume)) is not None
        }

    @cached_property
    def volumes_by_image(self) -> dict[str, list[tuple[PersistentVolume, ImageIdentity]]]:
        """PVs with their image, by its name."""
        return by_each(
            (image.spec.name, (volume, image))
            for volume in self.volumes
            if (image := self.images.get(volume.name)) is not None
        )

    @cached_property
    def shortlist(self) -> VolumeShortlist:
        """The PVs that nearly fit a claim."""
        return VolumeShortlist(self.volumes)

    # Claims

    @cached_property
    def claims(self) -> tuple[PersistentVolumeClaim, ...]:
        """The claims in order of their names."""
        return tuple(sorted(self._claims, key=lambda claim: key_of(claim.ref)))

    @cached_property
    def claim_by_key(self) -> dict[Key, PersistentVolumeClaim]:
        """The claims by namespace and name."""
        return {key_of(claim.ref): claim for claim in self.claims}

    @cached_property
    def claims_by_volume(self) -> dict[str, list[PersistentVolumeClaim]]:
        """Claims by their volumeName."""
        return by_each((claim.volume_name, claim) for claim in self.claims if claim.volume_name)

    def volumes_of_claim(self, key: Key) -> list[PersistentVolume]:
        """Return the PV that a claim names; if there is no such claim, the PVs that name it."""
        claim = self.claim_by_key.get(key)
        if claim is None:
            return self.volumes_by_claim.get(key, [])
        volume = self.volume_by_name.get(claim.volume_name or "")
        return [] if volume is None else [volume]

    # Pods

    @cached_property
    def pods(self) -> tuple[Pod, ...]:
        """The pods in order of their names."""
        return tuple(sorted(self._pods, key=lambda pod: key_of(pod.ref)))

    @cached_property
    def pod_by_key(self) -> dict[Key, Pod]:
        """The pods by namespace and name."""
        return {key_of(pod.ref): pod for pod in self.pods}

    @cached_property
    def pod_by_uid(self) -> dict[str, Pod]:
        """The pods that have a uid, by it."""
        return {pod.ref.uid: pod for pod in self.pods if pod.ref.uid}

    @cached_property
    def pods_by_claim(self) -> dict[Key, list[Pod]]:
        """Pods by the claims that they name."""
        return by_each(
            ((pod.ref.namespace, name), pod) for pod in self.pods for name in set(pod.claims)
        )

    @cached_property
    def pods_by_handle(self) -> dict[Key, list[Pod]]:
        """Pods with an inline volume, by its driver and handle."""
        return by_each(
            (handle, pod)
            for pod in self.pods
            for source in pod.inline_volumes
            if (handle := handle_of(source)) is not None
        )

    @cached_property
    def pods_by_image(self) -> dict[str, list[Pod]]:
        """Pods with an inline image, by its name."""
        return by_each((source.spec.name, pod) for pod in self.pods for source in pod.inline_images)

    @cached_property
    def pods_on_node(self) -> dict[str, list[Pod]]:
        """Pods by the node to which they are bound."""
        return by_each((pod.node_name, pod) for pod in self.pods if pod.node_name)

    # VolumeAttachments

    @cached_property
    def attachments_by_volume(self) -> dict[str, list[VolumeAttachment]]:
        """Attachments by the PV that they name."""
        return by_each(
            (attachment.persistent_volume, attachment)
            for attachment in self._attachments
            if attachment.persistent_volume
        )

    @cached_property
    def attachment_of_driver(self) -> dict[str, VolumeAttachment]:
        """One attachment of each driver, which shows that the driver has a working attacher."""
        return {attachment.attacher: attachment for attachment in self._attachments}

    @cached_property
    def misnamed_attachments(self) -> dict[str, list[VolumeAttachment]]:
        """Attachments by their name, if it does not follow from their PV: it was created again."""
        drivers = frozenset(driver for driver, _ in self.volumes_by_handle)
        return by_each(
            (attachment.name, attachment)
            for attachment in self._attachments
            if not self._is_named_by_its_volume(attachment, drivers)
        )

    @cached_property
    def _nodes_of_misnamed(self) -> frozenset[str]:
        found = self.misnamed_attachments.values()
        return frozenset(attachment.node_name for every in found for attachment in every)

    def attachments_named_after(self, handle: Key) -> Iterator[VolumeAttachment]:
        """Yield the attachments whose name, which is a hash, follows from a driver and a handle."""
        driver, value = handle
        for volume in self.volumes_by_handle.get(handle, ()):
            for attachment in self.attachments_by_volume.get(volume.name, ()):
                if attachment.name == attachment_name(value, driver, attachment.node_name):
                    yield attachment
        for name in attachment_names(value, driver, self._nodes_of_misnamed):
            yield from self.misnamed_attachments.get(name, ())

    def _is_named_by_its_volume(
        self, attachment: VolumeAttachment, drivers: frozenset[str]
    ) -> bool:
        volume = self.volume_by_name.get(attachment.persistent_volume or "")
        if volume is None:
            return False
        if isinstance(volume.source, OtherSource):
            # How the name follows from a PV of another driver is unknown.
            return attachment.attacher not in drivers
        return attachment.name in names_of_pv(volume).attachment_names(attachment.node_name)

    # Nodes

    @cached_property
    def node_by_name(self) -> dict[str, Node]:
        """The Node objects by their name."""
        return {node.name: node for node in self.nodes}

    @cached_property
    def nodes_by_ip(self) -> dict[str, list[Node]]:
        """The Node objects by each InternalIP, in its canonical spelling."""
        return by_each((spelled(ip), node) for node in self.nodes for ip in node.internal_ips)

    @cached_property
    def nodes_by_overlay_ip(self) -> dict[str, list[Node]]:
        """The Node objects by each of their addresses in an overlay network."""
        return by_each((spelled(ip), node) for node in self.nodes for ip in node.overlay_ips)

    @cached_property
    def nodes_by_interface_ip(self) -> dict[str, list[Node]]:
        """The Node objects by each address of their interfaces that an annotation lists."""
        return by_each((spelled(ip), node) for node in self.nodes for ip, _ in node.interface_ips)

    @cached_property
    def nodes_using(self) -> dict[str, list[Node]]:
        """The Node objects whose kubelet lists a volume in volumesInUse, by its name there."""
        return by_each((name, node) for node in self.nodes for name in node.names_in_use)

    @cached_property
    def nodes_attaching(self) -> dict[str, list[Node]]:
        """The Node objects that list a volume in volumesAttached, by its name there."""
        return by_each((name, node) for node in self.nodes for name in node.names_attached)

    @cached_property
    def _attaching(self) -> frozenset[str]:
        return frozenset(name.partition("^")[0] for name in self.nodes_attaching)

    def attaches(self, driver: str) -> bool:
        """Return whether volumes of a driver are attached at all, to any node."""
        head = in_use_name(driver, "").partition("^")[0]
        return driver in self.attachment_of_driver or head in self._attaching

    @cached_property
    def registered_drivers(self) -> frozenset[str]:
        """The drivers that any CSINode lists."""
        return frozenset(driver for one in self._csi_nodes for driver in one.drivers)

    @cached_property
    def csi_nodes(self) -> dict[str, CSINode]:
        """The CSINodes by the name of their Node."""
        return {csi_node.node_name: csi_node for csi_node in self._csi_nodes}

    # Events, and the owners of pods

    @cached_property
    def events_by_subject(self) -> dict[Key, list[KubeEvent]]:
        """Events by the object that they are about, of any kind."""
        return by_each((key_of(event.subject), event) for event in self._events)

    @cached_property
    def workloads(self) -> dict[Key, Workload]:
        """Workloads by namespace, and by kind and name as in the owners of a pod."""
        return {(workload.ref.namespace, workload.name): workload for workload in self._workloads}

    # What operators add: KubeVirt, csi-addons

    @cached_property
    def migrations(self) -> dict[Key, list[MachineMigration]] | NotObserved:
        """Migrations by namespace and name of the VirtualMachineInstance that they move."""
        return derived(
            self._migrations,
            lambda found: by_each(((one.ref.namespace, one.machine), one) for one in found),
        )

    @cached_property
    def replications(self) -> dict[Key, list[VolumeReplication]] | NotObserved:
        """VolumeReplications by namespace, and by kind and name of what they replicate."""
        return derived(
            self._replications,
            lambda found: by_each(((one.ref.namespace, one.source), one) for one in found),
        )


_NO_OBJECTS = KubeIndex(None)


def attachments_about(volume: PersistentVolume, kube: KubeIndex) -> Iterator[VolumeAttachment]:
    """Yield the attachments that name a PV, and those whose name follows from it."""
    yield from kube.attachments_by_volume.get(volume.name, ())
    for handle in names_of_pv(volume).attached_handles:
        for attachment in kube.attachments_named_after(handle):
            if attachment.persistent_volume != volume.name:
                yield attachment


def keys_of_volume(volume: PersistentVolume) -> tuple[Key, Key]:
    """Return the two keys of a PV in events: without a namespace, or with the event's namespace."""
    return ("", volume.name), ("default", volume.name)


# --------------------------------------------------------------------------------------------------
# The observed node
# --------------------------------------------------------------------------------------------------


class NodeIndex:
    """The devices and directories of the observed node."""

    def __init__(self, view: NodeView | None) -> None:
        """Take the facts of a view; nothing is indexed yet."""
        self._kubelet = NotObserved(reason="no node was observed") if view is None else view.kubelet
        self._unbacked = unbacked_in(view)
        self._mappings = () if view is None else observed_of(view.mappings)

    @cached_property
    def mappings(self) -> tuple[Mapping, ...]:
        """The mappings in order of their device."""
        return in_order(self._mappings)

    @cached_property
    def directories(self) -> Directories:
        """Kubelet's directories by the names of volumes in them."""
        return directories_of(self._kubelet, self._mappings)

    @cached_property
    def mappings_by_image(self) -> dict[str, list[Mapping]]:
        """Devices by the name with which their image was mapped."""
        return by_each(
            (mapping.spec.name, mapping)
            for mapping in self.mappings
            if not isinstance(mapping.spec, NotObserved)
        )

    @cached_property
    def mappings_by_image_id(self) -> dict[str, list[Mapping]]:
        """Devices by the id of their image."""
        return by_each((mapping.image_id, mapping) for mapping in self.mappings if mapping.image_id)

    @cached_property
    def mappings_by_backend(self) -> dict[str, list[Mapping]]:
        """Devices of rbd-nbd by their cookie, to which ceph-csi sets the volume handle."""
        return by_each(
            (mapping.nbd.backend, mapping)
            for mapping in self.mappings
            if mapping.nbd is not None and mapping.nbd.backend is not None
        )

    @cached_property
    def mappings_by_client(self) -> dict[ClientKey, list[Mapping]]:
        """Devices by their client."""
        return by_each(
            (client_of(mapping.client_id, address), mapping)
            for mapping in self.mappings
            if (address := mapping.client_address) is not None
        )

    @cached_property
    def words(self) -> frozenset[str]:
        """Names of volumes and images that occur on this node."""
        words: set[str] = set()
        for names in self.directories:
            words.update(() if isinstance(names, NotObserved) else names)
        for mapping in self.mappings:
            image = identity_of_mapping(mapping)
            backend = None if mapping.nbd is None else mapping.nbd.backend
            words |= set() if image is None else {image.spec.name}
            words |= {word for word in (mapping.image_id, backend) if word}
        return frozenset(words | {found.persistent_volume for found in self._unbacked})


# --------------------------------------------------------------------------------------------------
# Ceph
# --------------------------------------------------------------------------------------------------


class CephIndex:
    """The images of the clusters."""

    def __init__(self, view: CephView | None) -> None:
        """Take the clusters of a view; nothing is indexed yet."""
        self._clusters = () if view is None else view.clusters

    @cached_property
    def clusters(self) -> tuple[ClusterView, ...]:
        """The clusters in order of their names, one that is named twice once."""
        return distinct(self._clusters)

    @cached_property
    def views(self) -> tuple[Views, ...]:
        """The images of each cluster, in the order of the view."""
        return tuple(map(Views, self._clusters))

    @cached_property
    def _views_in_order(self) -> tuple[Views, ...]:
        by_cluster = dict(zip(map(id, self._clusters), self.views, strict=True))
        return tuple(by_cluster[id(cluster)] for cluster in self.clusters)

    def views_of(self, image: ImageIdentity) -> Iterator[list[ImageView]]:
        """Yield for each distinct cluster, in order, the views that have the name or the id."""
        for found in self._views_in_order:
            named = found.by_name.get(image.spec.name, ())
            numbered = found.by_id.get(image.image_id or "", ())
            every = dict((*named, *numbered))
            yield [every[number] for number in sorted(every)]

    @cached_property
    def blocklisted_nonces(self) -> frozenset[int]:
        """The nonces of the single clients on a blocklist; few other clients have the same."""
        return frozenset(
            entry.nonce
            for cluster in self.clusters
            for entry in observed_of(cluster.blocklist)
            if entry.nonce
        )


class Views:
    """The images of one cluster, with their positions."""

    def __init__(self, cluster: ClusterView) -> None:
        """Take the images; nothing is indexed yet."""
        self._numbered = tuple(enumerate(cluster.images))

    @cached_property
    def by_name(self) -> dict[str, list[tuple[int, ImageView]]]:
        """Images by their name."""
        return by_each((view.spec.name, (number, view)) for number, view in self._numbered)

    @cached_property
    def by_id(self) -> dict[str, list[tuple[int, ImageView]]]:
        """Images by their id."""
        return by_each(
            (view.image_id, (number, view)) for number, view in self._numbered if view.image_id
        )


# --------------------------------------------------------------------------------------------------
# The reports of agents
# --------------------------------------------------------------------------------------------------


class PublishedEntry(NamedTuple):
    """One mapping as its agent published it, with the positions of its node and of itself."""

    number: int
    place: int
    node: PublishedNode
    """Without its mappings, and without what :func:`with_common_only` derives from them."""
    mapping: PublishedMapping


class ReportIndex:
    """The reports that agents published."""

    def __init__(self, snapshot: Snapshot) -> None:
        """Take the reports, the observed node and the blocklists; nothing is indexed yet."""
        kube, here = snapshot.kubernetes, snapshot.node
        self.nodes = () if kube is None else observed_of(kube.published)
        self._own = None if here is None else here.node_name
        self._is_observed = are_mappings_observed(here)
        self._mappings = () if here is None else observed_of(here.mappings)
        self._ceph = ceph_index(snapshot.ceph)

    @cached_property
    def of_others(self) -> tuple[PublishedNode, ...]:
        """The reports of the nodes whose mappings this snapshot did not observe."""
        return tuple(filter(self.is_of_another, self.nodes))

    def is_of_another(self, report: PublishedNode) -> bool:
        """Return whether a report is of a node whose mappings this snapshot did not observe."""
        return not self._is_observed or report.name != self._own

    @cached_property
    def _entries(self) -> tuple[PublishedEntry, ...]:
        return tuple(
            PublishedEntry(number, place, head, mapping)
            for number, node in enumerate(self.nodes)
            for head in (replace(node, mappings=(), every_client=True),)
            for place, mapping in enumerate(observed_of(node.mappings))
        )

    @cached_property
    def by_client(self) -> dict[ClientKey, list[PublishedEntry]]:
        """Entries by the client of their mapping."""
        return by_each(
            (client_of(entry.mapping.client_id, address), entry)
            for entry in self._entries
            if (address := entry.mapping.client_address) is not None
        )

    @cached_property
    def by_volume(self) -> dict[str, list[PublishedEntry]]:
        """Entries by the PV that they name."""
        return by_each(
            (entry.mapping.persistent_volume, entry)
            for entry in self._entries
            if entry.mapping.persistent_volume
        )

    @cached_property
    def by_image(self) -> dict[str, list[PublishedEntry]]:
        """Entries by image name."""
        return by_each(
            (entry.mapping.spec.name, entry) for entry in self._entries if entry.mapping.spec
        )

    @cached_property
    def by_image_id(self) -> dict[str, list[PublishedEntry]]:
        """Entries by image id."""
        return by_each(
            (entry.mapping.image_id, entry) for entry in self._entries if entry.mapping.image_id
        )

    @cached_property
    def disputed(self) -> frozenset[ClusterClient]:
        """Clients that several nodes have, see :func:`disputed_clients`."""
        return disputed_clients(self.nodes, self._own, self._mappings)

    @cached_property
    def common(self) -> tuple[PublishedNode, ...]:
        """The reports of all nodes, only with the mappings that any target may need."""
        nonces = self._ceph.blocklisted_nonces
        return tuple(with_common_only(node, nonces) for node in self.nodes)


def disputed_clients(
    reports: Iterable[PublishedNode], here: str | None, mappings: Iterable[Mapping]
) -> frozenset[ClusterClient]:
    """Return the clients that several nodes have, according to their agents or to sysfs.

    Args:
        reports: of all agents.
        here: the observed node; None if there is none.
        mappings: of the observed node.
    """
    found: dict[ClusterClient, str] = {}
    if here is not None:
        found |= dict.fromkeys(clients_in(mappings), here)
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


def client_of(client_id: int | None, address: EntityAddress) -> ClientKey:
    """Return a key for a client in a cluster, independent of the spelling of its address."""
    return client_id, address.nonce, spelled(address.ip)


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
