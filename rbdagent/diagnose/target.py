"""The verdict on the target as a whole: the worst and most telling of its holders, or none."""

from __future__ import annotations

from typing import Final

from rbdagent.correlate.holders import (
    FIRST_KERNEL_COOKIE,
    cluster_with,
    device_identity_unknown,
    has_fresh_report,
    is_ceph_daemon,
)
from rbdagent.correlate.identity import clusters_of, fsids_of
from rbdagent.correlate.names import (
    covers_claims,
    handle_of,
    knows_every_volume_of,
    names_of,
    names_of_use,
    node_named,
)
from rbdagent.diagnose.coverage import missing_of_nodes, reporting_nodes
from rbdagent.diagnose.times import age, is_young, spoken
from rbdagent.model import (
    Attachment,
    CsiSource,
    DeviceKind,
    Holder,
    ImagePresence,
    JudgedHolder,
    Mapping,
    Node,
    NotObserved,
    PersistentVolume,
    PublishedMapping,
    Snapshot,
    SourceState,
    Verdict,
    VolumeUse,
    observed_of,
)

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
"""What endangers data, then whoever uses it, then what nobody could see, then what lies idle.

A target is Orphaned only when everybody who holds it is: one user, or one unknown, outranks it.
"""

PODS_ELSEWHERE: Final = "pods on other nodes"
"""Missing where the target named no claim: then only this node's pods were listed."""


def target_verdict(use: VolumeUse, judged: tuple[JudgedHolder, ...], snapshot: Snapshot) -> Verdict:
    """Give the verdict on the target."""
    if use.unbacked:
        return Verdict.NOT_BACKED
    if conflicting(use, judged, snapshot):
        return Verdict.CONFLICT
    if is_ambiguous(use, snapshot):
        return Verdict.UNDETERMINED
    holding = [each for each in judged if not each.holder.passing]
    if not holding or only_ceph_itself(holding):
        # mgr and rbd-mirror come with the image: somebody else may still hold it unseen.
        return _verdict_of_nobody(use, snapshot)
    # The device of a killed rbd-nbd stays for ever; who has taken its place is what matters.
    holding = [each for each in holding if not is_left_behind(each)] or holding
    worst = next(each for each in ORDER if any(one.verdict is each for one in holding))
    is_shared = worst is Verdict.IN_USE and len(sharing(judged)) > 1
    return Verdict.SHARED if is_shared else worst


def is_left_behind(judged: JudgedHolder) -> bool:
    """Tell a dead nbd device that nothing is mounted from, and that nobody has open."""
    mapping = judged.holder.mapping
    return (
        judged.verdict is Verdict.DEAD
        and mapping is not None
        and mapping.kind is DeviceKind.NBD
        and mapping.mounts == mapping.openers == mapping.holders == ()
    )


def only_ceph_itself(holding: list[JudgedHolder]) -> bool:
    """Tell whether nobody but Ceph's own daemons watches."""
    return all(is_ceph_daemon(each.holder) for each in holding)


def sharing(judged: tuple[JudgedHolder, ...]) -> tuple[JudgedHolder, ...]:
    """Give the holders that are in use, each on a node of its own."""
    used = [each for each in judged if each.verdict is Verdict.IN_USE]
    return tuple({each.holder.node or str(each.holder.watcher): each for each in used}.values())


# --------------------------------------------------------------------------------------------------
# Conflict
# --------------------------------------------------------------------------------------------------


def conflicting(
    use: VolumeUse, judged: tuple[JudgedHolder, ...], snapshot: Snapshot
) -> tuple[JudgedHolder, ...]:
    """Give the holders that have it read-write on two nodes or more, where nothing allows that.

    Watches that pass by, librbd's (ceph-csi's own check, a shell) and unknown nodes prove nothing.
    """
    # Another PV of the image may allow it.
    if not knows_every_volume_of(use.image, snapshot.kubernetes) or may_share_writing(use):
        return ()
    writers = {
        each.holder.node: each
        for each in judged
        if each.holder.node and _writes(each, use, snapshot)
    }
    return tuple(writers[node] for node in sorted(writers)) if len(writers) > 1 else ()


def volumes_of_use(use: VolumeUse) -> tuple[PersistentVolume, ...]:
    """Give every PV of the image."""
    first = () if use.persistent_volume is None else (use.persistent_volume,)
    return (*first, *use.other_volumes)


def driver_of(use: VolumeUse) -> str | None:
    """Give the CSI driver of the PV; None without one."""
    volume = use.persistent_volume
    pair = handle_of(volume.source) if volume is not None else None
    return pair[0] if pair is not None else None


def may_share_writing(use: VolumeUse) -> bool:
    """Return whether several nodes may write the image through one of its PVs."""
    return any(_has_many_writers(volume) for volume in volumes_of_use(use))


def is_read_only(use: VolumeUse) -> bool:
    """Return whether each PV of the image is staged read-only: its mappings may take no watch."""
    volumes = volumes_of_use(use)
    return bool(volumes) and all(_has_readers_only(volume) for volume in volumes)


def may_be_shared(use: VolumeUse) -> bool:
    """Return whether several nodes may have the image: as raw block to write, or read-only."""
    return may_share_writing(use) or is_read_only(use)


def may_volume_be_shared(volume: PersistentVolume) -> bool:
    """Return the same of one PV."""
    return _has_many_writers(volume) or _has_readers_only(volume)


def _has_many_writers(volume: PersistentVolume) -> bool:
    """Return whether several nodes may write: ReadWriteMany on a raw block device, nothing else.

    Nothing attaches a ReadWriteMany file system to one node alone, but two nodes that write an ext4
    destroy it.
    """
    return "ReadWriteMany" in volume.access_modes and volume.volume_mode == "Block"


def _has_readers_only(volume: PersistentVolume) -> bool:
    """Return whether a PV is staged read-only.

    kubelet passes the first of a PV's access modes to the driver (csi_attacher.go, MountDevice).
    """
    first = volume.access_modes[:1]
    return getattr(volume.source, "read_only", False) or first == ("ReadOnlyMany",)


def maps_by_nbd(use: VolumeUse) -> bool:
    """Tell whether ceph-csi maps it by rbd-nbd, which watches as every librbd program does."""
    sources = (each.source for each in volumes_of_use(use))
    return any(
        isinstance(each, CsiSource) and dict(each.attributes).get("mounter") == DeviceKind.NBD
        for each in sources
    )


def is_writable(mapping: Mapping | None) -> bool | NotObserved:
    """Tell whether a mapping is read-write."""
    if mapping is None or mapping.snapshot is not None:
        return False
    if isinstance(mapping.read_only, NotObserved):
        return mapping.read_only
    return not mapping.read_only


def fresh_word(holder: Holder, snapshot: Snapshot) -> PublishedMapping | None:
    """Give what the agent of another node published of its holder, as long as that is fresh."""
    fresh = not holder.is_local and has_fresh_report(holder, snapshot)
    return holder.published if fresh else None


def report_of(holder: Holder, now: str) -> str:
    """Return what the agent of another node reported of its mapping and when; "" without that."""
    node, mapping = holder.published_by, holder.published
    if node is None or mapping is None:
        return ""
    since = spoken(age(node.observed_at, now))
    return f"the agent on {node.name} reported {mapping.device} {since} ago"


def _writes(judged: JudgedHolder, use: VolumeUse, snapshot: Snapshot) -> bool:
    holder = judged.holder
    if holder.passing or judged.verdict in (Verdict.FOREIGN, Verdict.DEAD, Verdict.NODE_DOWN):
        return False
    if holder.mapping is not None:
        return is_writable(holder.mapping) is True
    published = fresh_word(holder, snapshot)
    # A report of a client that has no watch now may be older than its unmap, unless its agent
    # saw it without one.
    is_mapped = holder.watcher is not None or judged.verdict is Verdict.UNWATCHED
    if published is not None and published.read_only is False and is_mapped:
        return True
    if holder.watcher is not None:
        by_kernel = holder.watcher.cookie >= FIRST_KERNEL_COOKIE
        return not holder.is_local and (by_kernel or judged.verdict is Verdict.IN_USE)
    return judged.verdict is Verdict.IN_USE and not is_read_only(use)


# --------------------------------------------------------------------------------------------------
# Nobody
# --------------------------------------------------------------------------------------------------


def _verdict_of_nobody(use: VolumeUse, snapshot: Snapshot) -> Verdict:
    if use.image is None:
        return Verdict.UNDETERMINED
    papers = attached_on_paper(use, snapshot)
    if papers:
        if any(about_to_stage(use, each) or under_way(use, each, snapshot) for each in papers):
            return Verdict.STAGED
        return Verdict.ATTACHED_ON_PAPER
    if missing_for_free(use, snapshot):
        return Verdict.UNDETERMINED
    # No node stages a volume before the attacher is done: this one is on its way there.
    return Verdict.STAGED if observed_of(use.attachments) else Verdict.FREE


def attached_on_paper(use: VolumeUse, snapshot: Snapshot) -> tuple[str, ...]:
    """Give the nodes that the control plane calls attached, and that certainly hold nothing.

    Certain is a node that was observed, by this snapshot or by a fresh report of its agent. No
    watch proves nothing: read-only mappings take none, and a client may have lost its own.
    """
    if missing_devices(snapshot) or is_ambiguous(use, snapshot):
        return ()
    attached = () if isinstance(use.attachments, NotObserved) else use.attachments
    nodes = {each.node_name for each in attached if each.attached}
    local = snapshot.node.node_name if snapshot.node is not None else None
    elsewhere = reporting_nodes(snapshot) if _no_watchers(use) else frozenset()
    return tuple(
        sorted(
            each
            for each in nodes
            if (each == local and _looked_here(snapshot)) or (each != local and each in elsewhere)
        )
    )


def under_way(use: VolumeUse, node: str, snapshot: Snapshot) -> bool:
    """Tell whether an attachment may be passing: young, lately being deleted, or still listed.

    kubelet tells up to ten seconds later what it has let go, and the controllers follow (recorded):
    as long as it lists the volume in volumesInUse, nothing is wrong with the books.
    """
    attached = () if isinstance(use.attachments, NotObserved) else use.attachments
    there = [each for each in attached if each.node_name == node and not each.detach_error]
    if there and is_listed(use, node, snapshot):
        return True
    return any(
        is_young(moment, snapshot.observed_at)
        for each in there
        for moment in (each.created_at, each.deleting_since)
    )


def is_listed(use: VolumeUse, node: str, snapshot: Snapshot) -> bool:
    """Tell whether the kubelet of a node that is Ready says that it has the volume in use."""
    found = node_named(node, snapshot)
    return (
        isinstance(found, Node)
        and found.ready is True
        and not names_of_use(use).in_use_names.isdisjoint(found.volumes_in_use)
    )


def about_to_stage(use: VolumeUse, node: str) -> bool:
    """Tell whether a pod on the node waits for the volume: attached, and its stage comes next."""
    return any(each.node_name == node for each in use.waiting_pods)


def missing_for_free(use: VolumeUse, snapshot: Snapshot) -> tuple[str, ...]:
    """Return what was not observed, or speaks against it, before a volume may be called free.

    `Free` is the word on which people start a second writer: everything that could hold the image
    must have been observed.
    """
    return (*missing_sources(use, snapshot), *missing_of_nodes(use, snapshot))


def missing_sources(use: VolumeUse, snapshot: Snapshot) -> tuple[str, ...]:
    """Return which of the sources that answer for a whole volume was not observed."""
    missing = []
    if not _no_watchers(use):
        missing.append("the watchers of the image")
    if not _every_cluster_answered(use, snapshot):
        missing.append("every cluster that may have an image of this name")
    if not _looked_here(snapshot):
        missing.append("the mappings of this node")
    missing += [f"which image {each.device} is" for each in missing_devices(snapshot)]
    kube = snapshot.kubernetes
    if not knows_every_volume_of(use.image, kube):
        missing.append("PersistentVolumes")
    if kube is None or isinstance(kube.pods, NotObserved):
        missing.append("pods")
    elif volumes_of_use(use) and not covers_claims(kube, names_of(use.image, (), kube)):
        missing.append(PODS_ELSEWHERE)
    if isinstance(use.attachments, NotObserved) or kube is None or not kube.attachments_complete:
        missing.append("VolumeAttachments")
    return tuple(missing)


def _no_watchers(use: VolumeUse) -> bool:
    """Tell whether the watchers were observed, and are Ceph's own daemons at most."""
    view = use.image_view
    if view is None or isinstance(view.watchers, NotObserved):
        return False
    if view.presence not in (ImagePresence.PRESENT, ImagePresence.TRASH):
        return False
    return all(
        each.passing or is_ceph_daemon(each) for each in use.holders if each.watcher is not None
    )


def _every_cluster_answered(use: VolumeUse, snapshot: Snapshot) -> bool:
    """An unknown cluster's image of the same name may be the one that was meant."""
    clusters = clusters_of(snapshot.ceph)
    fsid = use.image.fsid if use.image is not None else None
    if fsid is None or cluster_with(fsid, snapshot) is None:
        return False
    return all(each.fsid == fsid or each.source.state is SourceState.OBSERVED for each in clusters)


def _looked_here(snapshot: Snapshot) -> bool:
    node = snapshot.node
    return node is not None and not isinstance(node.mappings, NotObserved)


def missing_devices(snapshot: Snapshot) -> tuple[Mapping, ...]:
    """Give the devices of this node whose image was not observed."""
    return tuple(
        each
        for each in device_identity_unknown(snapshot.node)
        if each.kind is DeviceKind.KRBD or each.nbd is None or each.nbd.backend is None
    )


def is_ambiguous(use: VolumeUse, snapshot: Snapshot) -> bool:
    """Tell whether several clusters have an image of this name and nothing tells which is meant."""
    if use.image is None or use.image.fsid is not None:
        return False
    return len(fsids_of(use.image, snapshot.node, snapshot.ceph)) > 1


def attachment_of(holder: Holder) -> Attachment | None:
    """Give a holder's attachment where it was seen."""
    return None if isinstance(holder.attachment, NotObserved) else holder.attachment


def node_of(holder: Holder) -> Node | None:
    """Give a holder's Node object where it was seen."""
    return None if isinstance(holder.node_object, NotObserved) else holder.node_object
