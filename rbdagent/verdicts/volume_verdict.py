"""The verdict on a target: that of its most severe holder, or the verdict without a holder."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from rbdagent.codes import Code
from rbdagent.correlate.holders import (
    cluster_with,
    device_identity_unknown,
    has_fresh_report,
    is_ceph_daemon,
)
from rbdagent.correlate.image_identity import are_mappings_observed, are_watchers_observed
from rbdagent.correlate.index import ceph_index, kube_index
from rbdagent.correlate.names import handle_of
from rbdagent.correlate.views import copies_text, copies_with, fsids_of
from rbdagent.correlate.volume_names import (
    names_of,
    names_of_volume,
    node_named,
    other_volume,
)
from rbdagent.model import (
    CsiSource,
    DeviceKind,
    Holder,
    HolderVerdict,
    ImagePresence,
    Mapping,
    Node,
    NotObserved,
    PersistentVolume,
    PublishedMapping,
    Snapshot,
    SourceState,
    Verdict,
    Volume,
    Watcher,
    derived,
    observed_of,
)
from rbdagent.parse.foreign import foreign_name, reported
from rbdagent.parse.volume import is_true
from rbdagent.verdicts.coverage import missing_of_nodes, reporting_nodes
from rbdagent.verdicts.timing import age, age_text, is_young
from rbdagent.verdicts.volume_traces import traces_here

ORDER: Final = (
    Verdict.UNWATCHED,
    Verdict.RETURNED_DIRTY,
    Verdict.DEAD,
    Verdict.IN_USE,
    Verdict.NODE_DOWN,
    Verdict.UNDETERMINED,
    Verdict.STAGED,
    Verdict.PINNED,
    Verdict.ORPHANED,
    Verdict.FOREIGN,
)
"""Danger for data first, then use, then facts that were not observed, then unused holders.

A target is Orphaned only if all its holders are. A user, or a holder whose state was not observed,
takes precedence.
"""

PODS_ELSEWHERE: Final = "pods on other nodes"
"""Not observed if the target names no claim: then only the pods of this node were listed."""


def target_verdict(
    volume: Volume, holder_verdicts: tuple[HolderVerdict, ...], snapshot: Snapshot
) -> Verdict:
    """Return the verdict on the target."""
    if volume.unbacked or any(is_not_backed(holder, snapshot) for holder in volume.holders):
        return Verdict.NOT_BACKED
    if conflicting(volume, holder_verdicts, snapshot):
        return Verdict.CONFLICT
    if is_ambiguous(volume, snapshot):
        return Verdict.UNDETERMINED
    holding = [candidate for candidate in holder_verdicts if not candidate.holder.transient]
    if not holding or only_ceph_itself(holding):
        # ceph-mgr and rbd-mirror may watch any image. Another client may hold it unobserved.
        return _verdict_without_holder(volume, snapshot)
    # The device of a killed rbd-nbd remains indefinitely. The client that replaced it matters.
    holding = [candidate for candidate in holding if not is_left_behind(candidate)] or holding
    verdicts = {candidate.verdict for candidate in holding}
    worst = next(verdict for verdict in ORDER if verdict in verdicts)
    is_shared = worst is Verdict.IN_USE and len(sharing(holder_verdicts)) > 1
    return Verdict.SHARED if is_shared else worst


NOT_BACKED: Final = Code.VOLUME_NOT_BACKED
"""The code of a container that writes to its node's own disk."""


def is_not_backed(holder: Holder, snapshot: Snapshot) -> bool:
    """Return whether the agent of another node reports that a container there lacks the volume."""
    mapping = fresh_report(holder, snapshot)
    return (
        mapping is not None and mapping.finding is not None and mapping.finding.code == NOT_BACKED
    )


def is_left_behind(holder_verdict: HolderVerdict) -> bool:
    """Return whether it is a dead nbd device that is not mounted, not open and not stacked on."""
    mapping, report = holder_verdict.holder.mapping, holder_verdict.reported
    if report is not None:
        return report.left_behind and holder_verdict.verdict is Verdict.DEAD
    return (
        holder_verdict.verdict is Verdict.DEAD
        and mapping is not None
        and mapping.kind is DeviceKind.NBD
        and mapping.mounts == mapping.openers == mapping.holders == ()
    )


def only_ceph_itself(holding: list[HolderVerdict]) -> bool:
    """Return whether all holders are Ceph's own daemons."""
    return all(is_ceph_daemon(holder_verdict.holder) for holder_verdict in holding)


def sharing(holder_verdicts: tuple[HolderVerdict, ...]) -> tuple[HolderVerdict, ...]:
    """Return the holders of the image that are in use, one per node."""
    used = [
        candidate
        for candidate in holder_verdicts
        if candidate.verdict is Verdict.IN_USE and candidate.holder.other_image is None
    ]
    by_node = {user.holder.node or str(user.holder.watcher): user for user in used}
    return tuple(by_node.values())


# --------------------------------------------------------------------------------------------------
# Conflict
# --------------------------------------------------------------------------------------------------


def conflicting(
    volume: Volume, holder_verdicts: tuple[HolderVerdict, ...], snapshot: Snapshot
) -> tuple[HolderVerdict, ...]:
    """Return the holders that have the image read-write on several nodes without permission.

    Short-lived watches, librbd watches (ceph-csi's in-use check, an ``rbd`` shell) and watches from
    unknown nodes are no proof. Two clients whose node is certain or probable are two writers. A
    running pod without a client is one more only if no client's node is only probable: that client
    may be the pod's.
    """
    # A PV of the image that was not observed may allow several writers.
    if not kube_index(snapshot.kubernetes).coverage.volumes(volume.image) or may_share_writing(
        volume
    ):
        return ()
    writers: dict[tuple[str | None, str | None] | None, dict[str, HolderVerdict]] = {}
    for candidate in holder_verdicts:
        if candidate.holder.node and _writes(candidate, volume, snapshot):
            other = candidate.holder.other_image
            key = None if other is None else (other.fsid, other.image_id)
            of_image = writers.setdefault(key, {})
            of_image[candidate.holder.node] = candidate
    for of_image in map(_distinct_writers, writers.values()):
        if len(of_image) > 1:
            return tuple(of_image[node] for node in sorted(of_image))
    return ()


def _distinct_writers(writers: dict[str, HolderVerdict]) -> dict[str, HolderVerdict]:
    """Return the writers by node, without those that may be a client on a probable node."""
    if not any(writer.holder.is_node_probable for writer in writers.values()):
        return writers
    return {node: writer for node, writer in writers.items() if _has_client(writer.holder)}


def _has_client(holder: Holder) -> bool:
    return any(found is not None for found in (holder.mapping, holder.watcher, holder.published))


def pvs_of(volume: Volume) -> tuple[PersistentVolume, ...]:
    """Return all PVs of the image."""
    first = () if volume.persistent_volume is None else (volume.persistent_volume,)
    return (*first, *volume.other_volumes)


def driver_of(volume: Volume) -> str | None:
    """Return the CSI driver of the PV; None without one."""
    persistent_volume = volume.persistent_volume
    pair = handle_of(persistent_volume.source) if persistent_volume is not None else None
    return pair[0] if pair is not None else None


def may_share_writing(volume: Volume) -> bool:
    """Return whether several nodes may write the image through one of its PVs."""
    return any(_has_many_writers(persistent_volume) for persistent_volume in pvs_of(volume))


def is_read_only(volume: Volume) -> bool:
    """Return whether all PVs of the image are staged read-only: such mappings take no watch."""
    volumes = pvs_of(volume)
    return bool(volumes) and all(
        _has_readers_only(persistent_volume) for persistent_volume in volumes
    )


def is_exclusive(volume: Volume) -> bool:
    """Return whether the volume may be attached to one node only, as in IsMultiAttachAllowed().

    ReadOnlyMany and ReadWriteMany disable the Multi-Attach check, and so does a PV without access
    modes (pkg/volume/util/util.go@v1.36.3).
    """
    volumes = pvs_of(volume)
    many = {"ReadOnlyMany", "ReadWriteMany"}
    return bool(volumes) and all(
        persistent_volume.access_modes and many.isdisjoint(persistent_volume.access_modes)
        for persistent_volume in volumes
    )


def may_be_shared(volume: Volume) -> bool:
    """Return whether several nodes may map the image: as a raw block device, or read-only."""
    return may_share_writing(volume) or is_read_only(volume)


def may_volume_be_shared(volume: PersistentVolume) -> bool:
    """Return whether several nodes may map the image of one PV."""
    return _has_many_writers(volume) or _has_readers_only(volume)


def _has_many_writers(volume: PersistentVolume) -> bool:
    """Return whether several nodes may write: only ReadWriteMany on a raw block device allows it.

    Kubernetes attaches a ReadWriteMany file system to several nodes too, but two nodes that write
    to the same ext4 destroy it.
    """
    return "ReadWriteMany" in volume.access_modes and volume.volume_mode == "Block"


def _has_readers_only(volume: PersistentVolume) -> bool:
    """Return whether a PV is staged read-only.

    kubelet passes the first of a PV's access modes to the driver (MountDevice() in
    pkg/volume/csi/csi_attacher.go@v1.36.3).
    """
    first = volume.access_modes[:1]
    return getattr(volume.source, "read_only", False) or first == ("ReadOnlyMany",)


def maps_by_nbd(volume: Volume) -> bool:
    """Return whether ceph-csi maps it by rbd-nbd, whose watch is that of any librbd client."""
    sources = (persistent_volume.source for persistent_volume in pvs_of(volume))
    return any(
        isinstance(source, CsiSource) and dict(source.attributes).get("mounter") == DeviceKind.NBD
        for source in sources
    )


def may_map_by_nbd(volume: Volume) -> bool:
    """Return whether ceph-csi maps it by rbd-nbd, or may.

    With tryOtherMounters, it maps an image whose features krbd lacks by rbd-nbd (populateRbdVol in
    internal/rbd/nodeserver.go@52fcb7b). A volume that was migrated from in-tree always has it.
    """
    sources = (persistent_volume.source for persistent_volume in pvs_of(volume))
    return maps_by_nbd(volume) or any(
        isinstance(source, CsiSource) and is_true(source.attribute("tryOtherMounters"))
        for source in sources
    )


def is_writable(mapping: Mapping | None) -> bool | NotObserved:
    """Return whether a mapping is read-write."""
    if mapping is None or mapping.snapshot is not None:
        return False
    return derived(mapping.read_only, lambda is_read_only: not is_read_only)


def fresh_report(holder: Holder, snapshot: Snapshot) -> PublishedMapping | None:
    """Return the mapping that the agent of another node published, if its report is fresh.

    Its sentences become parts of this node's answer.
    """
    mapping = holder.published
    if mapping is None or holder.is_local or not has_fresh_report(holder, snapshot):
        return None
    found = mapping.finding and replace(mapping.finding, message=reported(mapping.finding.message))
    return replace(mapping, reasons=tuple(map(reported, mapping.reasons)), finding=found)


def report_of(holder: Holder, now: str) -> str:
    """Return a phrase about the report of another node's agent and its age; "" without a report."""
    node, mapping = holder.published_by, holder.published
    if node is None or mapping is None:
        return ""
    since = age_text(age(node.observed_at, now))
    return f"the agent on {node.name} reported {mapping.device} {since} ago"


def _writes(holder_verdict: HolderVerdict, volume: Volume, snapshot: Snapshot) -> bool:
    holder = holder_verdict.holder
    if holder.transient or holder_verdict.verdict in (
        Verdict.FOREIGN,
        Verdict.DEAD,
        Verdict.NODE_DOWN,
    ):
        return False
    if holder.mapping is not None:
        return is_writable(holder.mapping) is True
    published = fresh_report(holder, snapshot)
    # If a client has no watch now, its report may be older than its unmap, unless the report
    # already shows the client without a watch.
    is_mapped = holder.watcher is not None or holder_verdict.verdict is Verdict.UNWATCHED
    if published is not None and published.read_only is False and is_mapped:
        return True
    if holder.watcher is not None:
        by_kernel = holder.watcher.is_of_kernel
        return not holder.is_local and (by_kernel or holder_verdict.verdict is Verdict.IN_USE)
    return holder_verdict.verdict is Verdict.IN_USE and not is_read_only(volume)


# --------------------------------------------------------------------------------------------------
# Without a holder
# --------------------------------------------------------------------------------------------------


def _verdict_without_holder(volume: Volume, snapshot: Snapshot) -> Verdict:
    if volume.image is None:
        return Verdict.UNDETERMINED
    nodes = nodes_of_stale_attachments(volume, snapshot)
    if nodes:
        if any(
            about_to_stage(volume, node) or is_attachment_in_transition(volume, node, snapshot)
            for node in nodes
        ):
            return Verdict.STAGED
        return Verdict.STALE_ATTACHMENT
    if missing_for_free(volume, snapshot):
        return Verdict.UNDETERMINED
    # No node stages a volume before the attacher is done: this volume is being attached.
    return Verdict.STAGED if observed_of(volume.attachments) else Verdict.FREE


def nodes_of_stale_attachments(volume: Volume, snapshot: Snapshot) -> tuple[str, ...]:
    """Return the nodes whose VolumeAttachment is attached and that certainly have no mapping.

    A node is certain if it was observed, by this snapshot or by a fresh report of its agent. The
    absence of a watch is no proof: read-only mappings take no watch, and a client may have lost its
    watch. Nor is the absence of a mapping one, while something else shows that the node uses the
    volume, unless the attachment is about to change.
    """
    if missing_devices(snapshot) or is_ambiguous(volume, snapshot) or namespace_doubt(volume):
        return ()
    attachments = observed_of(volume.attachments)
    attached = {attachment.node_name for attachment in attachments if attachment.attached}
    local = snapshot.node.node_name if snapshot.node is not None else None
    is_unwatched = _no_watchers(volume)
    return tuple(
        sorted(
            node
            for node in attached
            if (node == local and _is_certain_here(volume, node, snapshot))
            or (node != local and is_unwatched and node in reporting_nodes(snapshot))
        )
    )


def _is_certain_here(volume: Volume, node: str, snapshot: Snapshot) -> bool:
    if not are_mappings_observed(snapshot.node):
        return False
    return (
        about_to_stage(volume, node)
        or is_attachment_in_transition(volume, node, snapshot)
        or not traces_here(volume, snapshot)
    )


def is_attachment_in_transition(volume: Volume, node: str, snapshot: Snapshot) -> bool:
    """Return whether an attachment may be in transition: recent, being deleted, or still listed.

    kubelet updates volumesInUse up to ten seconds after it has released a volume, and the
    controllers follow (recording 02-fs-delete-normal). While kubelet lists the volume in
    volumesInUse, the attachment is correct.
    """
    there = [
        attachment
        for attachment in observed_of(volume.attachments)
        if attachment.node_name == node and not attachment.detach_error
    ]
    if there and is_listed(volume, node, snapshot):
        return True
    return any(
        is_young(moment, snapshot.observed_at)
        for attachment in there
        for moment in (attachment.created_at, attachment.deleting_since)
    )


def is_listed(volume: Volume, node: str, snapshot: Snapshot) -> bool:
    """Return whether the node is Ready and lists the volume in volumesInUse."""
    found = node_named(node, snapshot)
    return (
        isinstance(found, Node)
        and found.ready is True
        and not names_of_volume(volume).in_use_names.isdisjoint(found.names_in_use)
    )


def about_to_stage(volume: Volume, node: str) -> bool:
    """Return whether a pod on the node waits for the volume, which kubelet stages once attached."""
    return any(pod.node_name == node for pod in volume.waiting_pods)


def missing_for_free(volume: Volume, snapshot: Snapshot) -> tuple[str, ...]:
    """Return what must still be observed, or is a contradiction, before a volume may be `Free`.

    Users start a second writer when they read `Free`. Therefore everything that could hold the
    image must have been observed.
    """
    return (
        *missing_sources(volume, snapshot),
        *traces_here(volume, snapshot),
        *missing_of_nodes(volume, snapshot),
    )


def missing_sources(volume: Volume, snapshot: Snapshot) -> tuple[str, ...]:
    """Return which of the sources of a volume's state were not observed."""
    missing = [*namespace_doubt(volume)]
    names = names_of(volume.image, pvs_of(volume), snapshot)
    if names.may_be_of:
        missing.append(f"whether another volume is of this image: {other_volume(names)}")
    if not _are_watchers_known(volume):
        missing.append("the watchers of the image")
    missing += [
        f"whether client.{watcher.client} ({watcher.address}) holds the image: it watched it for a "
        "moment"
        for watcher in watches_for_a_moment(volume)
    ]
    fsid = volume.image.fsid if volume.image is not None else None
    copies = () if fsid is None else copies_with(fsid, snapshot.ceph)
    if copies:
        missing.append(f"which cluster has the image: {copies_text(copies)}")
    elif not _every_cluster_answered(fsid, snapshot):
        missing.append("every cluster that may have an image of this name")
    if not are_mappings_observed(snapshot.node):
        missing.append("the mappings of this node")
    missing += [f"the image of {mapping.device}" for mapping in missing_devices(snapshot)]
    coverage = kube_index(snapshot.kubernetes).coverage
    if not coverage.volumes(volume.image):
        missing.append("PersistentVolumes")
    if not coverage.pods:
        missing.append("pods")
    elif pvs_of(volume) and not coverage.pods_of(names_of(volume.image, (), snapshot).claims):
        missing.append(PODS_ELSEWHERE)
    if isinstance(volume.attachments, NotObserved) or not coverage.attachments():
        missing.append("VolumeAttachments")
    return tuple(missing)


def namespace_doubt(volume: Volume) -> tuple[str, ...]:
    """Return which fact decides in which RADOS namespace the image is, if that is unknown."""
    image = volume.image
    if image is None or image.namespace_by is None:
        return ()
    named = f"clusterID {foreign_name(image.namespace_by)}" if image.namespace_by else "clusterID"
    decides = f"the radosNamespace of its {named} in ceph-csi's configuration decides"
    return (f"the RADOS namespace of the image: of a static volume, {decides}",)


def _no_watchers(volume: Volume) -> bool:
    """Return whether the watchers were observed and all belong to Ceph's own daemons."""
    return _are_watchers_known(volume) and not watches_for_a_moment(volume)


def _are_watchers_known(volume: Volume) -> bool:
    """Return whether all watchers were observed, and those that stayed are Ceph's own daemons."""
    view = volume.image_view
    if view is None or not are_watchers_observed(view):
        return False
    if view.presence not in (ImagePresence.PRESENT, ImagePresence.TRASH):
        return False
    return all(
        holder.transient or is_ceph_daemon(holder)
        for holder in volume.holders
        if holder.watcher is not None
    )


def watches_for_a_moment(volume: Volume) -> tuple[Watcher, ...]:
    """Return the transient watches of clients that are not Ceph's own daemons.

    ceph-csi checks whether the image is in use, and then maps it: after its check, the image may be
    mapped at any moment.
    """
    return tuple(
        holder.watcher
        for holder in volume.holders
        if holder.watcher is not None and holder.transient and not is_ceph_daemon(holder)
    )


def _every_cluster_answered(fsid: str | None, snapshot: Snapshot) -> bool:
    """Return whether every cluster was observed that may have an image of this name.

    The target may be the image of a cluster that did not answer.
    """
    clusters = ceph_index(snapshot.ceph).clusters
    if fsid is None or cluster_with(fsid, snapshot) is None:
        return False
    return all(
        cluster.fsid == fsid or cluster.source.state is SourceState.OBSERVED for cluster in clusters
    )


def missing_devices(snapshot: Snapshot) -> tuple[Mapping, ...]:
    """Return the devices of this node whose image was not observed, and that may be written to.

    An nbd device that no process serves has no client of Ceph.
    """
    return tuple(
        mapping
        for mapping in device_identity_unknown(snapshot.node)
        if mapping.nbd is None or mapping.nbd.process is not None
    )


def is_ambiguous(volume: Volume, snapshot: Snapshot) -> bool:
    """Return whether several clusters have an image of this name and the target names none."""
    if volume.image is None or volume.image.fsid is not None:
        return False
    return len(fsids_of(volume.image, snapshot.node, snapshot.ceph)) > 1
