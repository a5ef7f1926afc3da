"""Every client that holds an image: mappings here, watchers elsewhere, running pods besides."""

from __future__ import annotations

from ipaddress import ip_address, ip_network
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from rbdagent.correlate.identity import clusters_of, identity_of_mapping, mappings_of
from rbdagent.correlate.local import (
    Directories,
    driver_registered,
    in_flight_of,
    known_handles,
    lost_pod_uids,
    made_by_kubernetes,
    pod_volumes_of,
    sibling_devices,
    staging_of,
)
from rbdagent.correlate.names import (
    VolumeNames,
    attachment_to,
    in_volumes_in_use,
    node_named,
    not_given,
    pods_on,
    users_of,
)
from rbdagent.correlate.reports import is_fresh, is_nbd, reported_mappings
from rbdagent.model import (
    BlocklistEntry,
    ClusterView,
    Confidence,
    DeviceKind,
    EntityAddress,
    Holder,
    HolderKind,
    ImageView,
    Locker,
    Mapping,
    NodeView,
    NotObserved,
    Pod,
    PublishedMapping,
    PublishedNode,
    ServiceAddress,
    Snapshot,
    Watcher,
    observed_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

FIRST_KERNEL_COOKIE: Final = 18446462598732840961
"""krbd counts its cookies up from here, librbd's look like heap addresses: a hint, no proof."""


_DAEMONS: Final = (HolderKind.MGR, HolderKind.MIRROR)


def holders_of(
    names: VolumeNames,
    local: tuple[Mapping, ...],
    views: tuple[ImageView, ...],
    snapshot: Snapshot,
    directories: Directories,
) -> tuple[Holder, ...]:
    """Give the holders: mappings of this node first, then watchers, then pods without either."""
    matched = match_watchers(local, views, snapshot.node)
    taken = {(id(view), watcher) for view, watcher in matched.values()}
    found = [
        local_holder(each, names, views, snapshot, directories, watch=matched.get(each))
        for each in local
    ]
    for view in views:
        found += [
            _remote_holder(watcher, names, view, snapshot, directories, passing=passing)
            for watcher, passing in _watches_of(view)
            if (id(view), watcher) not in taken
        ]
    reported = _reported_holders(names, found, views, snapshot, directories)
    found += [holder for holder in reported if has_fresh_report(holder, snapshot)]
    found += _holders_by_pods(names, found, snapshot, directories)
    if not any(_may_hold(holder) for holder in found):
        found += [holder for holder in reported if not has_fresh_report(holder, snapshot)]
    return tuple(found)


def has_fresh_report(holder: Holder, snapshot: Snapshot) -> bool:
    """Return whether the agent of the holder's node has reported lately."""
    return holder.published_by is not None and is_fresh(holder.published_by, snapshot.observed_at)


def _may_hold(holder: Holder) -> bool:
    """Return whether a holder is more than a short open or one of Ceph's own daemons."""
    return not holder.passing and not is_ceph_daemon(holder)


def is_ceph_daemon(holder: Holder) -> bool:
    """Return whether a holder is one of Ceph's own daemons, which open images as their work."""
    return holder.kind in _DAEMONS


def _watches_of(view: ImageView) -> list[tuple[Watcher, bool]]:
    """Give every watch that was seen, in order, and whether it only passed by."""
    standing = () if isinstance(view.watchers, NotObserved) else view.watchers
    return [
        *((each, False) for each in sorted(standing, key=_watcher_order)),
        *((each, True) for each in sorted(view.passing_watchers, key=_watcher_order)),
    ]


def _watcher_order(watcher: Watcher) -> tuple[int, str, int]:
    return (watcher.client, str(watcher.address), watcher.cookie)


# --------------------------------------------------------------------------------------------------
# Mapping <-> watcher
# --------------------------------------------------------------------------------------------------


def match_watchers(
    local: Iterable[Mapping], views: tuple[ImageView, ...], node: NodeView | None
) -> dict[Mapping, tuple[ImageView, Watcher]]:
    """Join mappings to watchers, exactly: client id, IP and nonce, within one cluster.

    Two mappings of one image by one client have two watches that only the cookie tells apart:
    they are dealt out in order. Read-only and snapshot mappings take no watch (kernel 5.5), so
    writable ones come first. A watch that passed by counts too: it may just be coming.
    """
    free = [(view, watcher) for view in views for watcher, _ in _watches_of(view)]
    matched: dict[Mapping, tuple[ImageView, Watcher]] = {}
    for mapping in sorted(local, key=_watch_claim):
        found = next((each for each in free if _is_watch_of(mapping, *each)), None)
        if found is not None:
            free.remove(found)
            matched[mapping] = found
    _match_nbd(local, free, node, matched)
    return matched


def _watch_claim(mapping: Mapping) -> tuple[bool, bool, bool, int]:
    return (
        mapping.snapshot is not None,
        mapping.read_only is True,
        mapping.watch is False,
        mapping.device_id,
    )


def _is_watch_of(mapping: Mapping, view: ImageView, watcher: Watcher) -> bool:
    if mapping.kind is not DeviceKind.KRBD or mapping.client_address is None:
        return False
    if mapping.fsid is not None and mapping.fsid != view.fsid:
        return False
    if mapping.client_id is not None and mapping.client_id != watcher.client:
        return False
    return same_client(mapping.client_address, watcher.address)


def same_client(one: EntityAddress, other: EntityAddress) -> bool:
    """Tell whether two addresses are one client's: the nonce is unique, the port is mostly 0."""
    return one.nonce == other.nonce and same_ip(one.ip, other.ip)


def same_ip(one: str, other: str) -> bool:
    """Compare IP addresses whatever their spelling; what is no address is compared as text."""
    if one == other:
        return True
    if ":" not in one or ":" not in other:
        # IPv4 has one spelling, and no address is both.
        return False
    try:
        return ip_address(one) == ip_address(other)
    except ValueError:
        return False


def _match_nbd(
    local: Iterable[Mapping],
    free: list[tuple[ImageView, Watcher]],
    node: NodeView | None,
    matched: dict[Mapping, tuple[ImageView, Watcher]],
) -> None:
    """rbd-nbd's client shows nowhere in sysfs: join it only where one fits, and one alone."""
    alive = [
        each
        for each in local
        if each.kind is DeviceKind.NBD and each.nbd is not None and each.nbd.process is not None
    ]
    own = () if node is None or isinstance(node.addresses, NotObserved) else node.addresses
    fitting = [
        each
        for each in free
        if each[1].cookie < FIRST_KERNEL_COOKIE
        and any(same_ip(each[1].address.ip, address) for address in own)
    ]
    if len(alive) == 1 and len(fitting) == 1:
        matched[alive[0]] = fitting[0]


# --------------------------------------------------------------------------------------------------
# One holder
# --------------------------------------------------------------------------------------------------


def local_holder(
    mapping: Mapping,
    names: VolumeNames,
    views: tuple[ImageView, ...],
    snapshot: Snapshot,
    directories: Directories,
    *,
    watch: tuple[ImageView, Watcher] | None,
) -> Holder:
    """Give the holder that a mapping of this node is."""
    node = snapshot.node
    if node is None:
        msg = "a local mapping needs the node that shows it"
        raise ValueError(msg)
    names = known_handles(mapping, names, directories)
    fsid = mapping.fsid or (names.image.fsid if names.image is not None else None)
    view = next((each for each in views if fsid is None or each.fsid == fsid), None)
    watcher = None if watch is None else watch[1]
    address = mapping.client_address or (None if watcher is None else watcher.address)
    client = mapping.client_id or (None if watcher is None else watcher.client)
    node_object = node_named(node.node_name, snapshot)
    staging = staging_of(mapping, names, directories)
    return Holder(
        kind=HolderKind.KRBD if mapping.kind is DeviceKind.KRBD else HolderKind.NBD,
        node=node.node_name,
        confidence=Confidence.CERTAIN,
        is_local=True,
        mapping=mapping,
        watcher=watcher,
        lockers=lockers_of(view, client, address),
        blocklisted_by=blocklisting(address, fsid, snapshot),
        pods=pods_on(node.node_name, names, snapshot),
        lost_pod_uids=lost_pod_uids(mapping, snapshot),
        attachment=attachment_to(node.node_name, names, snapshot),
        staging=staging,
        pod_volumes=pod_volumes_of(mapping, names, directories),
        in_flight=in_flight_of(mapping, names, snapshot),
        node_object=node_object,
        in_volumes_in_use=in_volumes_in_use(node_object, names),
        driver_registered=driver_registered(node.node_name, names, snapshot, local=True),
        kubernetes_made=made_by_kubernetes(mapping, names, staging, metadata_of(view)),
        sibling_devices=sibling_devices(mapping, node),
    )


def metadata_of(view: ImageView | None) -> tuple[tuple[str, str], ...]:
    """Give the image metadata that was seen."""
    return () if view is None or isinstance(view.metadata, NotObserved) else view.metadata


def _remote_holder(
    watcher: Watcher,
    names: VolumeNames,
    view: ImageView,
    snapshot: Snapshot,
    directories: Directories,
    *,
    passing: bool,
) -> Holder:
    """Give the holder that a watcher without a mapping on this node is."""
    kind = _kind_of(watcher, view, snapshot)
    publisher, published = published_client(watcher, view, snapshot)
    node = None if kind in _DAEMONS else node_at(watcher.address.ip, snapshot)
    if publisher is not None:
        node = publisher.name
    return replace(
        _holder_elsewhere(node, names, snapshot, directories),
        kind=kind,
        confidence=_confidence(node, publisher),
        watcher=watcher,
        passing=passing,
        published_by=publisher,
        published=published,
        lockers=lockers_of(view, watcher.client, watcher.address),
        blocklisted_by=blocklisting(watcher.address, view.fsid, snapshot),
        kubernetes_made=made_by_kubernetes(None, names, (), metadata_of(view)),
    )


def _holder_elsewhere(
    node: str | None, names: VolumeNames, snapshot: Snapshot, directories: Directories
) -> Holder:
    """Return what the API and this node show of a node whose mapping of the image was not seen."""
    is_local = node is not None and snapshot.node is not None and node == snapshot.node.node_name
    node_object = node_named(node, snapshot)
    unseen = NotObserved(reason="seen on its own node only")
    return Holder(
        kind=HolderKind.UNKNOWN,
        node=node,
        confidence=Confidence.PROBABLE,
        is_local=is_local,
        blocklisted_by=NotObserved(reason="its client is unknown"),
        pods=pods_on(node, names, snapshot),
        attachment=attachment_to(node, names, snapshot),
        staging=staging_of(None, names, directories) if is_local else unseen,
        pod_volumes=pod_volumes_of(None, names, directories) if is_local else unseen,
        in_flight=unseen,
        node_object=node_object,
        in_volumes_in_use=in_volumes_in_use(node_object, names),
        driver_registered=driver_registered(node, names, snapshot, local=is_local),
        kubernetes_made=True,
    )


def _confidence(node: str | None, publisher: PublishedNode | None) -> Confidence:
    if publisher is not None:
        return Confidence.CERTAIN
    return Confidence.UNKNOWN if node is None else Confidence.PROBABLE


def published_client(
    watcher: Watcher, view: ImageView, snapshot: Snapshot
) -> tuple[PublishedNode | None, PublishedMapping | None]:
    """Give the node whose agent published a watcher's client, and its mapping of the image.

    Client id and nonce are one client's within a cluster, for ever: the node is certain however
    old the word is; what it does there is as old as the word.
    """
    kube = snapshot.kubernetes
    nodes = () if kube is None or isinstance(kube.published, NotObserved) else kube.published
    for node in nodes:
        theirs = [
            each
            for each in (() if isinstance(node.mappings, NotObserved) else node.mappings)
            if _is_client_of(each, watcher, view)
        ]
        if theirs:
            of_image = [each for each in theirs if _is_of(each, view)]
            # A client that has it twice watches it for the mapping that it may write to.
            of_image.sort(key=lambda each: each.read_only is True)
            return node, next(iter(of_image), None)
    return None, None


def _is_of(mapping: PublishedMapping, view: ImageView) -> bool:
    """Tell whether it is a mapping of the image; format 1 has no ids, only names."""
    if view.image_id is None:
        return mapping.image_id is None and mapping.spec == view.spec
    return mapping.image_id == view.image_id


def _is_client_of(mapping: PublishedMapping, watcher: Watcher, view: ImageView) -> bool:
    return mapping.fsid == view.fsid and _has_client(mapping, watcher)


def _has_client(mapping: PublishedMapping, watcher: Watcher) -> bool:
    """Return whether a reported mapping has the client of a watch, within one cluster."""
    return (
        mapping.client_address is not None
        and mapping.client_id == watcher.client
        and same_client(mapping.client_address, watcher.address)
    )


def _reported_holders(
    names: VolumeNames,
    found: list[Holder],
    views: tuple[ImageView, ...],
    snapshot: Snapshot,
    directories: Directories,
) -> list[Holder]:
    """Return the mappings of the image that agents of other nodes report and that show no watch.

    A read-only mapping takes no watch. Neither does a client that lost its watch and can still
    write (recorded: a blocklist entry was lifted). Only the agent of that node sees them.
    """
    return [
        _reported_holder(node, mapping, names, views, snapshot, directories)
        for node, mapping in reported_mappings(names, snapshot)
        if not any(_is_the_same(holder, node, mapping) for holder in found)
    ]


def _is_the_same(holder: Holder, node: PublishedNode, mapping: PublishedMapping) -> bool:
    """Return whether a holder that was seen otherwise is the mapping that an agent reports.

    The client of rbd-nbd is not in sysfs: a librbd watcher of that node stands for its mapping.
    """
    if holder.passing or holder.node != node.name:
        return False
    if is_nbd(mapping):
        return holder.kind is HolderKind.LIBRBD
    return holder.watcher is not None and _has_client(mapping, holder.watcher)


def _reported_holder(
    node: PublishedNode,
    mapping: PublishedMapping,
    names: VolumeNames,
    views: tuple[ImageView, ...],
    snapshot: Snapshot,
    directories: Directories,
) -> Holder:
    fsid = mapping.fsid or (names.image.fsid if names.image is not None else None)
    view = next((view for view in views if fsid in (None, view.fsid)), None)
    return replace(
        _holder_elsewhere(node.name, names, snapshot, directories),
        kind=HolderKind.NBD if is_nbd(mapping) else HolderKind.KRBD,
        confidence=Confidence.CERTAIN,
        published_by=node,
        published=mapping,
        lockers=lockers_of(view, mapping.client_id, mapping.client_address),
        blocklisted_by=blocklisting(mapping.client_address, fsid, snapshot),
        kubernetes_made=made_by_kubernetes(None, names, (), metadata_of(view)),
    )


def _kind_of(watcher: Watcher, view: ImageView, snapshot: Snapshot) -> HolderKind:
    if manager_at(watcher, view.fsid, snapshot) is not None:
        return HolderKind.MGR
    if any(_is_one_client(daemon, watcher) for daemon in observed_of(view.mirror_daemons)):
        return HolderKind.MIRROR
    return HolderKind.KRBD if watcher.cookie >= FIRST_KERNEL_COOKIE else HolderKind.LIBRBD


def _is_one_client(one: Watcher, other: Watcher) -> bool:
    return one.client == other.client and same_client(one.address, other.address)


def _holders_by_pods(
    names: VolumeNames, found: list[Holder], snapshot: Snapshot, directories: Directories
) -> list[Holder]:
    """Give the nodes where a pod runs on the volume and where neither watch nor mapping was seen.

    Read-only mappings take no watch, and a mapping that lost its watch has none to show.
    """
    seen = {each.node for each in found if not each.passing and each.node is not None}
    nodes = {
        pod.node_name
        for pod in users_of(names, snapshot.kubernetes)
        if pod.node_name is not None and runs(pod)
    }
    return [_holder_elsewhere(each, names, snapshot, directories) for each in sorted(nodes - seen)]


def runs(pod: Pod) -> bool:
    """Tell whether containers of a pod run, or may run (``Unknown``), by the API's word."""
    if pod.phase in ("Running", "Unknown"):
        return True
    return pod.phase == "Pending" and any(each.state == "running" for each in pod.containers)


_MOUNTING: Final = frozenset({"", "ContainerCreating", "PodInitializing"})
"""Reasons of a container that waits before its volumes are mounted; later ones are not ours."""


def waits_for_volumes(pod: Pod) -> bool:
    """Tell whether a pod may be waiting for its volumes: no container starts without all of them.

    By the API's word; which of them it waits for only its node can tell.
    """
    if pod.phase != "Pending" or pod.deleting_since:
        return False
    return all(each.state == "waiting" and each.reason in _MOUNTING for each in pod.containers)


def is_finished(pod: Pod) -> bool:
    """Tell whether every container of a pod has ended for good, by the API's word."""
    return pod.phase in ("Succeeded", "Failed")


def is_terminated(pod: Pod) -> bool:
    """Tell whether the controllers count a pod as ended: the object may stay long after.

    As IsPodTerminated of pkg/volume/util: finished, or being deleted with no container that runs.
    """
    if is_finished(pod):
        return True
    ended = all(each.state != "running" for each in pod.containers)
    return pod.deleting_since is not None and ended


def needs_volumes(pod: Pod) -> bool:
    """Tell whether a pod needs its volumes.

    A finished pod needs nothing, unless it is being deleted: then kubelet is at work on it.
    """
    return not is_finished(pod) or bool(pod.deleting_since)


# --------------------------------------------------------------------------------------------------
# Addresses
# --------------------------------------------------------------------------------------------------


def cluster_with(fsid: str | None, snapshot: Snapshot) -> ClusterView | None:
    """Give the cluster of that fsid."""
    if fsid is None:
        return None
    return next((each for each in clusters_of(snapshot.ceph) if each.fsid == fsid), None)


def blocklisting(
    address: EntityAddress | None, fsid: str | None, snapshot: Snapshot
) -> BlocklistEntry | NotObserved | None:
    """Give the entry of the blocklist that hits a client: itself, its whole host or a range."""
    cluster = cluster_with(fsid, snapshot)
    if cluster is None:
        return not_given(snapshot.sources.ceph, "blocklist of the image's cluster")
    if isinstance(cluster.blocklist, NotObserved):
        return cluster.blocklist
    if address is None:
        return NotObserved(reason="the client's address is unknown")
    hits = (each for each in cluster.blocklist if entry_hits(each, address))
    return min(hits, key=lambda each: (each.nonce == 0, each.network, each.until), default=None)


def entry_hits(entry: BlocklistEntry, address: EntityAddress) -> bool:
    """Return whether an entry hits an address: ``ip:0/0`` is the whole host, ``ip/bits`` a range.

    As OSDMap::is_blocklisted (src/osd/OSDMap.cc): of a range neither port nor nonce counts.
    """
    if entry.is_range:
        try:
            return ip_address(address.ip) in ip_network(entry.network, strict=False)
        except ValueError:
            return False
    if not same_ip(entry.network, address.ip):
        return False
    if entry.nonce == 0:
        return entry.port in (0, address.port)
    return entry.nonce == address.nonce and (
        entry.port == address.port or 0 in (entry.port, address.port)
    )


def daemons_of(cluster: ClusterView | None) -> tuple[ServiceAddress, ...]:
    """Return the daemons of a cluster whose addresses were seen; OSDs are too many to ask for."""
    if cluster is None:
        return ()
    return (*observed_of(cluster.services), *observed_of(cluster.monitors))


def manager_at(watcher: Watcher, fsid: str, snapshot: Snapshot) -> ServiceAddress | None:
    """Return the mgr that a watcher is: by IP and nonce, or by its client id."""
    cluster = cluster_with(fsid, snapshot)
    if cluster is None or isinstance(cluster.services, NotObserved):
        return None
    return next(
        (
            each
            for each in cluster.services
            if same_client(each.address, watcher.address)
            or (
                each.client is not None
                and each.client == watcher.client
                and same_ip(each.address.ip, watcher.address.ip)
            )
        ),
        None,
    )


def node_at(ip: str, snapshot: Snapshot) -> str | None:
    """Give the node that has an address: this one by its interfaces, others by InternalIP.

    Two nodes with one address name none: better unknown than wrong.
    """
    found: set[str] = set()
    kube = snapshot.kubernetes
    if kube is not None and not isinstance(kube.nodes, NotObserved):
        found |= {each.name for each in kube.nodes for own in each.internal_ips if same_ip(ip, own)}
    node = snapshot.node
    own = () if node is None or isinstance(node.addresses, NotObserved) else node.addresses
    if not found and node is not None and any(same_ip(ip, each) for each in own):
        found.add(node.node_name)
    return found.pop() if len(found) == 1 else None


def lockers_of(
    view: ImageView | None, client: int | None, address: EntityAddress | None
) -> tuple[Locker, ...]:
    """Give the locks that one client holds."""
    if view is None or isinstance(view.lockers, NotObserved):
        return ()
    return tuple(
        each
        for each in sorted(view.lockers, key=lambda each: (each.lock_id, each.client))
        if (client is not None and each.client == client)
        or (address is not None and each.address is not None and same_client(each.address, address))
    )


def device_identity_unknown(node: NodeView | None) -> tuple[Mapping, ...]:
    """Give the devices whose image was not observed: any of them may be the one asked about."""
    return tuple(each for each in mappings_of(node) if identity_of_mapping(each) is None)
