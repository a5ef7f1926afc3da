"""Every client that holds an image: mappings of this node, other watchers, nodes with its pods."""

from __future__ import annotations

from ipaddress import ip_address, ip_network
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from rbdagent.correlate.image_identity import identity_of_mapping, mappings_of, same_image
from rbdagent.correlate.index import ceph_index, client_of, index_of, kube_index
from rbdagent.correlate.node_usage import (
    VolumeDirectories,
    directories_of_volume,
    driver_registered,
    known_names,
    made_by_kubernetes,
    processes_in_flight,
    sibling_devices,
    unknown_pod_uids,
)
from rbdagent.correlate.published_reports import is_fresh, is_nbd, reported_mappings
from rbdagent.correlate.views import copies_text, copies_with, views_of
from rbdagent.correlate.volume_names import (
    attachment_to,
    in_volumes_in_use,
    node_named,
    pods_on,
    source_not_observed,
    users_of,
)
from rbdagent.model import (
    BlocklistEntry,
    ClusterView,
    Confidence,
    ContainerState,
    DeviceKind,
    EntityAddress,
    Holder,
    HolderKind,
    ImageIdentity,
    ImageView,
    LockHolder,
    Mapping,
    NodeView,
    NotObserved,
    Pod,
    PublishedMapping,
    PublishedNode,
    ServiceAddress,
    Snapshot,
    Verdict,
    Watcher,
    observed_of,
)
from rbdagent.parse.address import same_ip, spelled
from rbdagent.parse.handle import node_in_key

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rbdagent.correlate.names import VolumeNames


def holders_of(
    names: VolumeNames,
    local: tuple[Mapping, ...],
    views: tuple[ImageView, ...],
    snapshot: Snapshot,
    others: tuple[Mapping, ...] = (),
) -> tuple[Holder, ...]:
    """Return the holders: mappings of this node, then watchers, then nodes that only have pods.

    Args:
        names: of the volume.
        local: the mappings of its image on this node.
        views: of its image.
        snapshot: the snapshot.
        others: the devices of this node that serve the volume and are of another image.
    """
    found = _of_one_image(names, local, views, snapshot)
    found += _of_other_images(names, snapshot, others)
    found = _with_nbd_reports(found, names, snapshot)
    reported = _reported_holders(names, found, views, snapshot)
    found += [holder for holder in reported if has_fresh_report(holder, snapshot)]
    found += _holders_by_pods(names, found, snapshot)
    if not any(_may_hold(holder) for holder in found):
        found += [holder for holder in reported if not has_fresh_report(holder, snapshot)]
    return tuple(found)


def _of_one_image(
    names: VolumeNames,
    local: tuple[Mapping, ...],
    views: tuple[ImageView, ...],
    snapshot: Snapshot,
) -> list[Holder]:
    """Return the mappings of an image on this node, then its other watchers."""
    matched = match_watchers(local, views, snapshot.node)
    taken = {(id(view), watcher) for view, watcher in matched.values()}
    found = [
        local_holder(mapping, names, views, snapshot, watch=matched.get(mapping))
        for mapping in local
    ]
    for view in views:
        remote = [
            _remote_holder(watcher, names, view, snapshot, transient=transient)
            for watcher, transient in _watches_of(view)
            if (id(view), watcher) not in taken
        ]
        found += _with_supposed(remote, view, snapshot)
    return found


def _of_other_images(
    names: VolumeNames,
    snapshot: Snapshot,
    others: tuple[Mapping, ...],
) -> list[Holder]:
    """Return the devices that serve the volume and are of another image, and its other watchers."""
    found: list[Holder] = []
    for image in dict.fromkeys(identity_of_mapping(mapping) for mapping in others):
        theirs = tuple(mapping for mapping in others if identity_of_mapping(mapping) == image)
        views = () if image is None else views_of(image, snapshot.ceph)
        holders = _of_one_image(names, theirs, views, snapshot)
        view = views[0] if len(views) == 1 else None
        found += [replace(holder, other_image=image, other_view=view) for holder in holders]
    return found


def has_fresh_report(holder: Holder, snapshot: Snapshot) -> bool:
    """Return whether the agent of the holder's node has reported recently."""
    return holder.published_by is not None and is_fresh(holder.published_by, snapshot.observed_at)


def _may_hold(holder: Holder) -> bool:
    """Return whether a holder is neither a transient watch nor a daemon of Ceph."""
    return not holder.transient and not is_ceph_daemon(holder)


def is_ceph_daemon(holder: Holder) -> bool:
    """Return whether a holder is a daemon of Ceph, which opens images for its own tasks."""
    return holder.daemon is not None


def _watches_of(view: ImageView) -> list[tuple[Watcher, bool]]:
    """Return every observed watch in order, and whether it was transient.

    A watch of krbd belongs to a mapped device: it is never transient, also in a snapshot file of an
    earlier version.
    """
    lasting = observed_of(view.watchers)
    return [
        *((watcher, False) for watcher in sorted(lasting, key=_watcher_order)),
        *(
            (watcher, not watcher.is_of_kernel)
            for watcher in sorted(view.transient_watchers, key=_watcher_order)
        ),
    ]


def _watcher_order(watcher: Watcher) -> tuple[int, str, int]:
    return (watcher.client, str(watcher.address), watcher.cookie)


# --------------------------------------------------------------------------------------------------
# Mapping <-> watcher
# --------------------------------------------------------------------------------------------------


def match_watchers(
    local: Iterable[Mapping], views: tuple[ImageView, ...], node: NodeView | None
) -> dict[Mapping, tuple[ImageView, Watcher]]:
    """Match mappings to watchers exactly: by client id, IP and nonce, within one cluster.

    If one client maps an image twice, it has two watches that differ only in the cookie: they are
    assigned in order. Read-only and snapshot mappings take no watch (kernel 5.5), so writable
    mappings come first. A transient watch counts too: it may be a watch that has just begun.
    """
    free = [(view, watcher) for view in views for watcher, _ in _watches_of(view)]
    matched: dict[Mapping, tuple[ImageView, Watcher]] = {}
    for mapping in sorted(local, key=_watch_claim):
        found = next((watch for watch in free if _is_watch_of(mapping, *watch)), None)
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
    """Return whether two addresses are of one client: nonces are unique, the port is mostly 0."""
    return one.nonce == other.nonce and same_ip(one.ip, other.ip)


def _match_nbd(
    local: Iterable[Mapping],
    free: list[tuple[ImageView, Watcher]],
    node: NodeView | None,
    matched: dict[Mapping, tuple[ImageView, Watcher]],
) -> None:
    """Match rbd-nbd, whose client is not in sysfs, only if exactly one watch and one device fit."""
    alive = [
        mapping
        for mapping in local
        if mapping.kind is DeviceKind.NBD
        and mapping.nbd is not None
        and mapping.nbd.process is not None
    ]
    own = () if node is None else observed_of(node.addresses)
    fitting = [
        watch
        for watch in free
        if not watch[1].is_of_kernel
        and any(same_ip(watch[1].address.ip, address) for address in own)
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
    *,
    watch: tuple[ImageView, Watcher] | None,
) -> Holder:
    """Return a mapping of this node as a holder."""
    node = snapshot.node
    if node is None:
        msg = "a local mapping needs the node that shows it"
        raise ValueError(msg)
    names, found = known_names(mapping, names, node)
    fsid = mapping.fsid or (names.image.fsid if names.image is not None else None)
    view = next((candidate for candidate in views if fsid is None or candidate.fsid == fsid), None)
    watcher = None if watch is None else watch[1]
    address = mapping.client_address or (None if watcher is None else watcher.address)
    client = mapping.client_id or (None if watcher is None else watcher.client)
    node_object = node_named(node.node_name, snapshot)
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
        unknown_pod_uids=unknown_pod_uids(mapping, snapshot),
        attachment=attachment_to(node.node_name, names, snapshot),
        staging=found.staging,
        pod_volumes=found.pod_volumes,
        in_flight=processes_in_flight(mapping, names, snapshot),
        node_object=node_object,
        in_volumes_in_use=in_volumes_in_use(node_object, names),
        driver_registered=driver_registered(node.node_name, names, snapshot, local=True),
        is_kubernetes_managed=made_by_kubernetes(mapping, names, found.staging, metadata_of(view)),
        claimed_by=claimants(client, address, fsid, snapshot),
        sibling_devices=sibling_devices(mapping, node),
    )


def metadata_of(view: ImageView | None) -> tuple[tuple[str, str], ...]:
    """Return the observed image metadata."""
    return () if view is None else observed_of(view.metadata)


def _remote_holder(
    watcher: Watcher,
    names: VolumeNames,
    view: ImageView,
    snapshot: Snapshot,
    *,
    transient: bool,
) -> Holder:
    """Return a watcher that has no mapping on this node as a holder."""
    daemon = daemon_of(watcher, view, snapshot)
    node, probable_by = None, ""
    if daemon is None:
        node, probable_by = _probable_node(watcher, names, view, snapshot)
    claimed_by = claimants(watcher.client, watcher.address, view.fsid, snapshot)
    publisher, published = published_client(watcher, view, snapshot)
    if publisher is not None and node is not None and node != publisher.name:
        # A compromised agent may report the client of another Node, whose agent does not.
        claimed_by = tuple(sorted({node, publisher.name, *claimed_by}))
    if claimed_by:
        publisher, published = None, None
    elif publisher is not None:
        node, probable_by = publisher.name, ""
    elif node is None and daemon is None:
        node, probable_by = _node_of_interface(watcher, snapshot)
    return replace(
        _holder_elsewhere(node, names, snapshot),
        kind=_kind_of(watcher, daemon),
        confidence=_confidence(node, publisher),
        probable_by=probable_by,
        watcher=watcher,
        daemon=daemon,
        transient=transient,
        published_by=publisher,
        published=published,
        claimed_by=claimed_by,
        lockers=lockers_of(view, watcher.client, watcher.address),
        blocklisted_by=blocklisting(watcher.address, view.fsid, snapshot),
        is_kubernetes_managed=made_by_kubernetes(None, names, (), metadata_of(view)),
    )


def _probable_node(
    watcher: Watcher, names: VolumeNames, view: ImageView, snapshot: Snapshot
) -> tuple[str | None, str]:
    """Return the node to which the address of a watcher leads, and why."""
    node = node_at(watcher.address.ip, snapshot)
    if node is not None:
        return node, ""
    node = _node_in_metadata(watcher, names, view, snapshot)
    why = f"ceph-csi wrote into the image that {watcher.address} is its client on {node}"
    return node, why if node is not None else ""


def _node_of_interface(watcher: Watcher, snapshot: Snapshot) -> tuple[str | None, str]:
    """Return the only Node with an annotation that lists an address, and why.

    A second network has no InternalIP. The addresses may be private ones that another machine has
    too, so a report of an agent and the image's metadata, which both have the nonce, come first.
    The interfaces of the observed node are known: if one of them had the address, node_at() had
    found it.
    """
    ip = spelled(watcher.address.ip)
    found = kube_index(snapshot.kubernetes).nodes_by_interface_ip.get(ip, [])
    own = snapshot.node.node_name if snapshot.node is not None else None
    if len({node.name for node in found}) != 1 or found[0].name == own:
        return None, ""
    node = found[0]
    annotation = next(name for listed, name in node.interface_ips if spelled(listed) == ip)
    return node.name, f"the annotation {annotation} of Node {node.name} lists {watcher.address.ip}"


def _node_in_metadata(
    watcher: Watcher, names: VolumeNames, view: ImageView, snapshot: Snapshot
) -> str | None:
    """Return the Node that the image's metadata names for the address of a watcher.

    An overlay network or a NAT gives a client an address that no Node has. ceph-csi records the
    address of its client with the nonce, so an entry of an earlier client does not match. Another
    Kubernetes cluster with the same image has another handle, and may have Nodes of the same names.
    """
    nodes = kube_index(snapshot.kubernetes).node_by_name
    found = {
        named[1]
        for key, value in metadata_of(view)
        if value == str(watcher.address)
        and (named := node_in_key(key)) is not None
        and named[0] in names.volume_handles
        and named[1] in nodes
    }
    own = snapshot.node.node_name if snapshot.node is not None else None
    # The mappings of the observed node are known: none of them has this client.
    return found.pop() if len(found) == 1 and own not in found else None


def _holder_elsewhere(node: str | None, names: VolumeNames, snapshot: Snapshot) -> Holder:
    """Return a holder for a node whose mapping was not observed, from the API and this node."""
    is_local = node is not None and snapshot.node is not None and node == snapshot.node.node_name
    node_object = node_named(node, snapshot)
    unseen = NotObserved(reason="can be observed only on its own node")
    found = VolumeDirectories(unseen, unseen)
    if is_local:
        found = directories_of_volume(None, names, snapshot.node)
    return Holder(
        kind=HolderKind.UNKNOWN,
        node=node,
        confidence=Confidence.PROBABLE,
        is_local=is_local,
        blocklisted_by=NotObserved(reason="its client is unknown"),
        pods=pods_on(node, names, snapshot),
        attachment=attachment_to(node, names, snapshot),
        staging=found.staging,
        pod_volumes=found.pod_volumes,
        in_flight=unseen,
        node_object=node_object,
        in_volumes_in_use=in_volumes_in_use(node_object, names),
        driver_registered=driver_registered(node, names, snapshot, local=is_local),
        is_kubernetes_managed=True,
    )


def _confidence(node: str | None, publisher: PublishedNode | None) -> Confidence:
    if publisher is not None:
        return Confidence.CERTAIN
    return Confidence.UNKNOWN if node is None else Confidence.PROBABLE


def published_client(
    watcher: Watcher, view: ImageView, snapshot: Snapshot
) -> tuple[PublishedNode | None, PublishedMapping | None]:
    """Return the node whose agent published a watcher's client, and its mapping of the image.

    Within a cluster, client id and nonce never belong to another client. The node is therefore
    certain, even if the report is old. The published mapping is only as recent as the report.
    """
    client = client_of(watcher.client, watcher.address)
    found = [
        entry
        for entry in index_of(snapshot).reports.by_client.get(client, ())
        if entry.mapping.fsid == view.fsid
    ]
    if not found:
        return None, None
    first = found[0].number
    theirs = (entry.mapping for entry in found if entry.number == first)
    # A client that maps the image twice holds the watch for its writable mapping.
    of_image = sorted(
        (mapping for mapping in theirs if _is_of(mapping, view)),
        key=lambda mapping: mapping.read_only is True,
    )
    return found[0].node, next(iter(of_image), None)


def claimants(
    client: int | None, address: EntityAddress | None, fsid: str | None, snapshot: Snapshot
) -> tuple[str, ...]:
    """Return the nodes that have a client, if they are several; else nothing.

    They are the nodes whose agents report it, and the observed node if one of its devices has it.
    Client id and nonce never belong to two clients of a cluster: a compromised agent may report
    those of another node.
    """
    if client is None or address is None:
        return ()
    index, node = index_of(snapshot), snapshot.node
    key = client_of(client, address)
    found = {
        entry.node.name
        for entry in index.reports.by_client.get(key, ())
        if entry.mapping.fsid == fsid
    }
    here = index.node.mappings_by_client.get(key, ())
    if node is not None and any(mapping.fsid == fsid for mapping in here):
        found.add(node.node_name)
    return tuple(sorted(found)) if len(found) > 1 else ()


def _is_of(mapping: PublishedMapping, view: ImageView) -> bool:
    """Return whether a mapping is one of the image; images of format 1 have names but no ids."""
    if view.image_id is None:
        return mapping.image_id is None and mapping.spec == view.spec
    return mapping.image_id == view.image_id


def _has_client(mapping: PublishedMapping, watcher: Watcher) -> bool:
    """Return whether a reported mapping has the client of a watch, within one cluster."""
    return (
        mapping.client_address is not None
        and mapping.client_id == watcher.client
        and same_client(mapping.client_address, watcher.address)
    )


def _with_nbd_reports(found: list[Holder], names: VolumeNames, snapshot: Snapshot) -> list[Holder]:
    """Return the holders, each librbd watch with the nbd device that its node reports.

    The client of rbd-nbd is not in sysfs: they belong together only if both are the only ones of
    their node, as in :func:`_match_nbd`.
    """
    if not any(holder.kind is HolderKind.LIBRBD for holder in found):
        return found
    reported: dict[str, list[tuple[PublishedNode, PublishedMapping]]] = {}
    for node, mapping in reported_mappings(names, snapshot):
        if is_nbd(mapping) and mapping.verdict is not Verdict.DEAD:
            reported.setdefault(node.name, []).append((node, mapping))
    watching = [
        holder.node for holder in found if holder.kind is HolderKind.LIBRBD and not holder.transient
    ]
    return [
        replace(
            holder, published_by=reported[holder.node][0][0], published=reported[holder.node][0][1]
        )
        if holder.kind is HolderKind.LIBRBD
        and not holder.transient
        and not holder.is_local
        and holder.node is not None
        and holder.published is None
        and watching.count(holder.node) == len(reported.get(holder.node, ())) == 1
        else holder
        for holder in found
    ]


def _reported_holders(
    names: VolumeNames,
    found: list[Holder],
    views: tuple[ImageView, ...],
    snapshot: Snapshot,
) -> list[Holder]:
    """Return the mappings of the image that agents of other nodes report and that have no watch.

    A read-only mapping takes no watch. A client that has lost its watch and can still write has
    none either (recorded: a blocklist entry was removed). Only the agent of that node observes such
    mappings.
    """
    return [
        _reported_holder(node, mapping, names, views, snapshot)
        for node, mapping in reported_mappings(names, snapshot)
        if not any(
            _has_image(holder, _other_image(mapping, names)) and _is_the_same(holder, node, mapping)
            for holder in found
        )
    ]


def _has_image(holder: Holder, other: ImageIdentity | None) -> bool:
    """Return whether a holder is of the volume's image (None), or of the same other image."""
    if holder.other_image is None or other is None:
        return holder.other_image is other
    return same_image(holder.other_image, other)


def _is_the_same(holder: Holder, node: PublishedNode, mapping: PublishedMapping) -> bool:
    """Return whether a holder from another source is the mapping that an agent reports.

    The client of rbd-nbd is not in sysfs, so a librbd watcher of that node counts as its mapping.
    """
    if holder.claimed_by and holder.watcher is not None and _has_client(mapping, holder.watcher):
        return True
    if holder.transient or holder.node != node.name:
        return False
    if is_nbd(mapping):
        # An nbd device without its process has no watch.
        return holder.kind is HolderKind.LIBRBD and mapping.verdict is not Verdict.DEAD
    return holder.watcher is not None and _has_client(mapping, holder.watcher)


def _reported_holder(
    node: PublishedNode,
    mapping: PublishedMapping,
    names: VolumeNames,
    views: tuple[ImageView, ...],
    snapshot: Snapshot,
) -> Holder:
    other = _other_image(mapping, names)
    if other is not None:
        views = views_of(other, snapshot.ceph)
    fsid = mapping.fsid or (names.image.fsid if names.image is not None else None)
    view = next((view for view in views if fsid in (None, view.fsid)), None)
    claimed_by = claimants(mapping.client_id, mapping.client_address, mapping.fsid, snapshot)
    return replace(
        _holder_elsewhere(node.name, names, snapshot),
        other_image=other,
        other_view=None if other is None else view,
        watcher=None if other is None else _watch_of_client(mapping, view),
        kind=HolderKind.NBD if is_nbd(mapping) else HolderKind.KRBD,
        confidence=Confidence.PROBABLE if claimed_by else Confidence.CERTAIN,
        published_by=node,
        published=mapping,
        claimed_by=claimed_by,
        lockers=lockers_of(view, mapping.client_id, mapping.client_address),
        blocklisted_by=blocklisting(mapping.client_address, fsid, snapshot),
        is_kubernetes_managed=made_by_kubernetes(None, names, (), metadata_of(view)),
    )


def _watch_of_client(mapping: PublishedMapping, view: ImageView | None) -> Watcher | None:
    """Return the watch of a reported mapping's client on another image, which no holder has."""
    watches = () if view is None else _watches_of(view)
    return next((watcher for watcher, _ in watches if _has_client(mapping, watcher)), None)


def _other_image(mapping: PublishedMapping, names: VolumeNames) -> ImageIdentity | None:
    """Return the image of a reported mapping, if it is not the image of the volume."""
    image = mapping.image
    if image is None or names.image is None or same_image(names.image, image):
        return None
    return image


def _kind_of(watcher: Watcher, daemon: ServiceAddress | None) -> HolderKind:
    if daemon is not None:
        return HolderKind.MIRROR if daemon.kind == HolderKind.MIRROR else HolderKind.MGR
    return HolderKind.KRBD if watcher.is_of_kernel else HolderKind.LIBRBD


_TASKS_OF_A_WATCHER: Final = frozenset({"flatten", "trash remove"})
"""``remove`` is not in this list: it waits in the queue while another client watches the image."""


def _with_supposed(holders: list[Holder], view: ImageView, snapshot: Snapshot) -> list[Holder]:
    """Return the holders; if exactly one uses librbd, with the daemon that it probably is.

    The assumption replaces clients of daemons that were not observed. It changes no verdict: the
    client may be any librbd program.
    """
    unnamed = [
        holder for holder in holders if holder.kind is HolderKind.LIBRBD and not holder.transient
    ]
    kind = _supposed_kind(view, snapshot)
    if kind is None or len(unnamed) != 1 or observed_of(unnamed[0].pods):
        return holders
    return [
        replace(holder, probable_kind=kind) if holder.kind is HolderKind.LIBRBD else holder
        for holder in holders
    ]


def _supposed_kind(view: ImageView, snapshot: Snapshot) -> HolderKind | None:
    """Return the daemon that probably uses an image, if daemons were not observed."""
    cluster = cluster_with(view.fsid, snapshot)
    tasks = _TASKS_OF_A_WATCHER.intersection(observed_of(view.tasks))
    by_mgr = bool(tasks) and cluster is not None and isinstance(cluster.services, NotObserved)
    by_mirror = view.mirrored is True and isinstance(view.mirror_daemons, NotObserved)
    if by_mgr == by_mirror:
        return None
    return HolderKind.MGR if by_mgr else HolderKind.MIRROR


def daemon_of(watcher: Watcher, view: ImageView, snapshot: Snapshot) -> ServiceAddress | None:
    """Return the daemon of Ceph that is a watcher's client: by IP and nonce, and by client id."""
    cluster = cluster_with(view.fsid, snapshot)
    managers = () if cluster is None else observed_of(cluster.services)
    return next(
        (
            daemon
            for daemon in (*managers, *observed_of(view.mirror_daemons))
            if same_client(daemon.address, watcher.address)
            and daemon.client in (None, watcher.client)
        ),
        None,
    )


def _holders_by_pods(names: VolumeNames, found: list[Holder], snapshot: Snapshot) -> list[Holder]:
    """Return as holders the nodes on which a pod of the volume runs and no holder was observed.

    Read-only mappings take no watch, and a mapping may have lost its watch.
    """
    seen = {holder.node for holder in found if not holder.transient and holder.node is not None}
    nodes = {
        pod.node_name
        for pod in users_of(names, snapshot)
        if pod.node_name is not None and runs(pod)
    }
    return [_holder_elsewhere(node, names, snapshot) for node in sorted(nodes - seen)]


def runs(pod: Pod) -> bool:
    """Return whether containers of a pod run, or may run (``Unknown``), according to the API."""
    if pod.phase in ("Running", "Unknown"):
        return True
    return pod.phase == "Pending" and any(
        container.state == "running" for container in pod.containers
    )


_MOUNTING: Final = frozenset({"", "ContainerCreating", "PodInitializing"})
"""Reasons of a container that waits before its volumes are mounted; later reasons do not count."""


def waits_for_volumes(pod: Pod) -> bool:
    """Return whether a pod may be waiting for its volumes, according to the API.

    No container starts without all of them. Only the node knows which volume the pod waits for.
    """
    if pod.phase != "Pending" or pod.deleting_since:
        return False
    return all(
        container.state == "waiting" and not past_mount(container) for container in pod.containers
    )


def past_mount(container: ContainerState) -> bool:
    """Return whether a container waits for something that kubelet does after it mounted all."""
    return container.state == "waiting" and container.reason not in _MOUNTING


def is_finished(pod: Pod) -> bool:
    """Return whether every container of a pod has ended permanently, according to the API."""
    return pod.phase in ("Succeeded", "Failed")


def is_terminated(pod: Pod) -> bool:
    """Return whether the controllers count a pod as terminated; its object may exist much longer.

    As IsPodTerminated of pkg/volume/util: finished, or being deleted with no running container.
    """
    if is_finished(pod):
        return True
    ended = all(container.state != "running" for container in pod.containers)
    return pod.deleting_since is not None and ended


def have_containers_ended(pods: tuple[Pod, ...]) -> bool:
    """Return whether there are pods, and no container of them runs any more.

    Their phase may be Running until kubelet has released their volumes. A pod without containers in
    its status proves nothing.
    """
    return bool(pods) and all(pod.containers and is_terminated(pod) for pod in pods)


def needs_volumes(pod: Pod) -> bool:
    """Return whether a pod needs its volumes.

    A finished pod needs none, unless it is being deleted: then kubelet still operates on them.
    """
    return not is_finished(pod) or bool(pod.deleting_since)


# --------------------------------------------------------------------------------------------------
# Addresses
# --------------------------------------------------------------------------------------------------


def cluster_with(fsid: str | None, snapshot: Snapshot) -> ClusterView | None:
    """Return the cluster with that fsid; None if several clusters have it."""
    if fsid is None or copies_with(fsid, snapshot.ceph):
        return None
    return next(
        (cluster for cluster in ceph_index(snapshot.ceph).clusters if cluster.fsid == fsid), None
    )


def blocklisting(
    address: EntityAddress | None, fsid: str | None, snapshot: Snapshot
) -> BlocklistEntry | NotObserved | None:
    """Return the blocklist entry that matches a client: the client, its whole host or a range."""
    copies = () if fsid is None else copies_with(fsid, snapshot.ceph)
    if copies:
        return NotObserved(reason=f"blocklist of the image's cluster: {copies_text(copies)}")
    cluster = cluster_with(fsid, snapshot)
    if cluster is None:
        return source_not_observed(snapshot.sources.ceph, "blocklist of the image's cluster")
    if isinstance(cluster.blocklist, NotObserved):
        return cluster.blocklist
    if address is None:
        return NotObserved(reason="the client's address is unknown")
    hits = (entry for entry in cluster.blocklist if entry_hits(entry, address))
    return min(hits, key=lambda entry: (entry.nonce == 0, entry.network, entry.until), default=None)


def entry_hits(entry: BlocklistEntry, address: EntityAddress) -> bool:
    """Return whether an entry matches an address; ``ip:0/0`` is a host, ``ip/bits`` a range.

    As OSDMap::is_blocklisted (src/osd/OSDMap.cc): a range ignores port and nonce.
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
    """Return the daemons of a cluster with an observed address; OSDs are too many to query."""
    if cluster is None:
        return ()
    return (*observed_of(cluster.services), *observed_of(cluster.monitors))


def node_at(ip: str, snapshot: Snapshot) -> str | None:
    """Return the node that has an address: this node by its interfaces, others by InternalIP.

    If two nodes have the address, the right one is unknown: return None.
    """
    named = kube_index(snapshot.kubernetes).nodes_by_ip.get(spelled(ip), ())
    found = {candidate.name for candidate in named}
    node = snapshot.node
    own = () if node is None else observed_of(node.addresses)
    if not found and node is not None and any(same_ip(ip, own_ip) for own_ip in own):
        found.add(node.node_name)
    return found.pop() if len(found) == 1 else None


def overlay_node_at(address: EntityAddress, snapshot: Snapshot) -> str | None:
    """Return the only node that has an address in an overlay network of this cluster.

    Another cluster may use the same addresses: this is no proof, but no reason to look elsewhere.
    """
    found = kube_index(snapshot.kubernetes).nodes_by_overlay_ip.get(spelled(address.ip), ())
    names = {node.name for node in found}
    return names.pop() if len(names) == 1 else None


def lockers_of(
    view: ImageView | None, client: int | None, address: EntityAddress | None
) -> tuple[LockHolder, ...]:
    """Return the locks that one client holds."""
    lockers = () if view is None else observed_of(view.lockers)
    return tuple(
        holder
        for holder in sorted(lockers, key=lambda locker: (locker.lock_id, locker.client))
        if (client is not None and holder.client == client)
        or (
            address is not None
            and holder.address is not None
            and same_client(holder.address, address)
        )
    )


def device_identity_unknown(node: NodeView | None) -> tuple[Mapping, ...]:
    """Return the devices whose image was not observed: any of them may map the target."""
    return tuple(mapping for mapping in mappings_of(node) if identity_of_mapping(mapping) is None)
