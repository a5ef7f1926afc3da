"""Facts that decide between the causes of one text.

Each fact is true only if it was observed: a source that was not read decides nothing. The second
argument is what the text names, and the node of the pod as ``node``.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final, NamedTuple

from rbdagent.correlate.holders import cluster_with
from rbdagent.correlate.image_identity import are_mappings_observed
from rbdagent.model import (
    ClusterView,
    CsiSource,
    InTreeRbdSource,
    LockHolder,
    NotObserved,
    observed_of,
)
from rbdagent.parse.excerpt import what_follows
from rbdagent.parse.foreign import foreign
from rbdagent.parse.handle import VolumeHandle, composed_handle
from rbdagent.parse.recognised import Recognised
from rbdagent.rules.pod_events import (
    decisive_pod_events,
    has_any_waited,
    is_about_hanging_call,
    shows_mounted,
)
from rbdagent.verdicts.evidence import evidence_of, foreign_mounts, is_kubelets_loop
from rbdagent.verdicts.timing import MOVING, age
from rbdagent.verdicts.volume_verdict import pvs_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from rbdagent.model import Holder, ImageView, LogEntry, LogExcerpt, Mapping, NodeLogs, Pod
    from rbdagent.rules.context import RuleContext
    from rbdagent.rules.error_texts import Fact
    from rbdagent.rules.pod_events import PodEvent

AUTOMATIC_LOCK: Final = "auto "
"""Prefix of locks that librbd and krbd take automatically (RBD_LOCK_COOKIE_PREFIX, rbd_types.h)."""
_LUKS: Final = "/dev/mapper/luks-"
"""The devices that ceph-csi opens for an encrypted volume (internal/util/cryptsetup)."""


def is_being_flattened(context: RuleContext, _named: dict[str, str]) -> bool:
    """Return whether Ceph's manager has a task that flattens the image."""
    view = context.volume.image_view
    return view is not None and "flatten" in observed_of(view.tasks)


def is_migrating(context: RuleContext, _named: dict[str, str]) -> bool:
    """Return whether the image is the target of a migration."""
    view = context.volume.image_view
    return view is not None and "migrating" in view.features


def is_non_primary(context: RuleContext, _named: dict[str, str]) -> bool:
    """Return whether the image is a mirror image that is not primary in this cluster."""
    view = context.volume.image_view
    return view is not None and (view.primary is False or "non-primary" in view.features)


def is_only_non_primary(context: RuleContext, named: dict[str, str]) -> bool:
    """Return whether nothing else keeps the kernel from mapping the image than the other side."""
    view = context.volume.image_view
    return is_non_primary(context, named) and view is not None and "journaling" not in view.features


def has_lock_by_hand(context: RuleContext, _named: dict[str, str]) -> bool:
    """Return whether a lock was added by hand: the kernel does not break it."""
    return bool(locks_by_hand(context.volume.image_view))


def locks_by_hand(view: ImageView | None) -> tuple[LockHolder, ...]:
    """Return the locks that were added by hand."""
    lockers = () if view is None else observed_of(view.lockers)
    return tuple(lock for lock in lockers if not lock.lock_id.startswith(AUTOMATIC_LOCK))


def is_locked(context: RuleContext, _named: dict[str, str]) -> bool:
    """Return whether a client that watches the image has its exclusive lock."""
    view = context.volume.image_view
    if view is None:
        return False
    watching = {watcher.client for watcher in observed_of(view.watchers)}
    return any(lock.client in watching for lock in observed_of(view.lockers))


def is_released(context: RuleContext, _named: dict[str, str]) -> bool:
    """Return whether no client watches the image and none has a lock on it."""
    view = context.volume.image_view
    return view is not None and view.watchers == () and view.lockers == ()


def is_shrunk(context: RuleContext, _named: dict[str, str]) -> bool:
    """Return whether the image is smaller than the capacity of its PV: it was larger once."""
    view, volume = context.volume.image_view, context.volume.persistent_volume
    if view is None or view.size_bytes is None or volume is None or not volume.capacity_bytes:
        return False
    # The capacity of a static PV is whatever its author wrote.
    return volume.provisioner is not None and view.size_bytes < volume.capacity_bytes


def is_on_the_blocklist(context: RuleContext, named: dict[str, str]) -> bool:
    """Return whether the client of the volume's mapping on the node is on the blocklist."""
    entries = (
        holder_verdict.holder.blocklisted_by
        for holder_verdict in context.holder_verdicts
        if holder_verdict.holder.node == named["node"]
    )
    return any(entry is not None and not isinstance(entry, NotObserved) for entry in entries)


def is_mounted_there(context: RuleContext, named: dict[str, str]) -> bool:
    """Return whether the node has an XFS file system of the image mounted."""
    return any(
        mount.fs_type == "xfs"
        for holder_verdict in context.holder_verdicts
        if holder_verdict.holder.node == named["node"] and holder_verdict.holder.mapping is not None
        for mount in observed_of(holder_verdict.holder.mapping.mounts)
    )


def is_stopped_there(context: RuleContext, named: dict[str, str]) -> bool:
    """Return whether the kernel stopped a file system of the image that the node has mounted."""
    if named["node"] != context.here_if_known:
        return False
    mappings = (
        holder_verdict.holder.mapping
        for holder_verdict in context.holder_verdicts
        if holder_verdict.holder.node == named["node"]
    )
    return any(
        mapping is not None and observed_of(mapping.mounts) and stops_of(context, mapping)
        for mapping in mappings
    )


def is_unmapped_there(context: RuleContext, named: dict[str, str]) -> bool:
    """Return whether the mappings of the node were observed, and none is of the image."""
    if named["node"] != context.here_if_known or context.volume.image is None:
        return False
    return are_mappings_observed(context.snapshot.node) and not any(
        holder_verdict.holder.node == named["node"] for holder_verdict in context.holder_verdicts
    )


def is_only_node(context: RuleContext, _named: dict[str, str]) -> bool:
    """Return whether the cluster has one node."""
    return context.kube.coverage.nodes() and len(context.kube.nodes) == 1


def is_cut_off(context: RuleContext, named: dict[str, str]) -> bool:
    """Return whether fsck reads behind the end of an image that is smaller than its PV."""
    return is_shrunk(context, named) and bool(named.get("beyond"))


def is_encrypted(_context: RuleContext, named: dict[str, str]) -> bool:
    """Return whether a text names the LUKS device of a volume."""
    return named.get("device", "").startswith(_LUKS)


def is_plain(context: RuleContext, _named: dict[str, str]) -> bool:
    """Return whether the PV does not ask ceph-csi for encryption."""
    volume = context.volume.persistent_volume
    if volume is None or not isinstance(volume.source, CsiSource):
        return False
    return dict(volume.source.attributes).get("encrypted") != "true"


def names_a_program(_context: RuleContext, named: dict[str, str]) -> bool:
    """Return whether a text names the program that is missing."""
    return bool(named.get("program"))


def is_no_file_system(_context: RuleContext, named: dict[str, str]) -> bool:
    """Return whether a type that libblkid found on a device is that of a volume manager or so.

    libblkid names the members of a RAID or of a volume manager ``…_member``.
    """
    kind = named.get("type", "")
    return kind.endswith("_member") or kind in {"crypto_LUKS", "BitLocker", "swap"}


def is_plain_xfs(context: RuleContext, _named: dict[str, str]) -> bool:
    """Return whether the PV asks for XFS without a mount option that could be refused."""
    volume = context.volume.persistent_volume
    if volume is None or volume.mount_options:
        return False
    return getattr(volume.source, "fs_type", None) == "xfs"


def is_raw_block(context: RuleContext, _named: dict[str, str]) -> bool:
    """Return whether the PV is a raw block device: no file system is made or mounted on it."""
    volume = context.volume.persistent_volume
    return volume is not None and volume.volume_mode == "Block"


def is_in_tree(context: RuleContext) -> bool:
    """Return whether the PV is of the in-tree RBD plugin: no CSI driver has a part in it."""
    volume = context.volume.persistent_volume
    return volume is not None and isinstance(volume.source, InTreeRbdSource)


def has_option_ro(context: RuleContext, _named: dict[str, str]) -> bool:
    """Return whether a PV has the mount option ro.

    An entry may hold several options: mount-utils joins all entries with commas for `mount -o`.
    """
    return any(
        "ro" in entry.split(",")
        for volume in pvs_of(context.volume)
        for entry in volume.mount_options
    )


def asks_for_many_readers(context: RuleContext, _named: dict[str, str]) -> bool:
    """Return whether the access modes of the PV contain ReadOnlyMany."""
    volume = context.volume.persistent_volume
    return volume is not None and "ReadOnlyMany" in volume.access_modes


def kernel_says(row: Recognised) -> Fact:
    """Return the fact that the kernel of the pod's node logged a text in the same attempt.

    The device may have been that of another volume before and after.
    """

    def holds(context: RuleContext, named: dict[str, str]) -> bool:
        if named["node"] != context.here_if_known:
            return False
        return any(
            row.is_in(entry.text) and of_attempt(entry, context) for entry in kernel_log(context)
        )

    return holds


def cluster_of_image(context: RuleContext) -> ClusterView | None:
    """Return the cluster of the image; if that is unknown, the only one that is configured."""
    fsid = context.volume.image.fsid if context.volume.image is not None else None
    clusters = () if context.snapshot.ceph is None else context.snapshot.ceph.clusters
    if fsid is None:
        return clusters[0] if len(clusters) == 1 else None
    return cluster_with(fsid, context.snapshot)


def needs_ms_mode(context: RuleContext, _named: dict[str, str]) -> bool:
    """Return whether all monitors have the port of msgr2 only, and the PV names no ms_mode."""
    options = _map_options(context)
    is_left_out = options is not None and "ms_mode" not in options
    return is_left_out and _ports_of_monitors(context) == {_MSGR2}


def has_no_msgr2(context: RuleContext, _named: dict[str, str]) -> bool:
    """Return whether all monitors have the port of v1 only, and the PV asks for msgr2.

    Each ms_mode but legacy needs an address of msgr2, prefer-crc and prefer-secure too
    (ceph_parse_param() in net/ceph/ceph_common.c).
    """
    options = _map_options(context) or ""
    asks = "ms_mode=" in options and "ms_mode=legacy" not in options
    return asks and _ports_of_monitors(context) == {_V1}


def _ports_of_monitors(context: RuleContext) -> set[int]:
    cluster = cluster_of_image(context)
    monitors = () if cluster is None else observed_of(cluster.monitors)
    return {monitor.address.port for monitor in monitors}


def _map_options(context: RuleContext) -> str | None:
    """Return the mapOptions of the PV; None if no PV of a CSI driver is known."""
    volume = context.volume.persistent_volume
    if volume is None or not isinstance(volume.source, CsiSource):
        return None
    return volume.source.attribute("mapOptions") or ""


_MSGR2: Final = 3300
_V1: Final = 6789
"""CEPH_MON_PORT_IANA and CEPH_MON_PORT_LEGACY (src/include/msgr.h)."""


def is_other_cluster(context: RuleContext, named: dict[str, str]) -> bool:
    """Return whether the kernel expected the cluster of the image, and another one answered."""
    fsid = context.volume.image.fsid if context.volume.image is not None else None
    if fsid is None or named["node"] != context.here_if_known:
        return False
    found = (
        Recognised.OTHER_CLUSTER_ANSWERS.named_in(entry.text)
        for entry in kernel_log(context)
        if of_attempt(entry, context)
    )
    return any(names is not None and names["had"] == fsid for names in found)


def of_attempt(entry: LogEntry, context: RuleContext) -> bool:
    """Return whether a line is of the attempt that the event of a waiting pod reports."""
    ends = (pod_event.event.last_seen for pod_event in decisive_pod_events(context))
    between = (age(entry.at, end) for end in ends if end is not None)
    return any(span is not None and _AT_ONCE[0] <= span <= _AT_ONCE[1] for span in between)


_AT_ONCE: Final = (timedelta(seconds=-2), timedelta(seconds=10))
"""From the kernel's line to kubelet's event of the same attempt; both have whole seconds."""


def kernel_log(context: RuleContext) -> tuple[LogEntry, ...]:
    """Return the lines of the observed node's kernel that name the volume; none if unread."""
    excerpt = _excerpt(context, lambda logs: logs.kernel)
    return () if excerpt is None else excerpt.lines


def stops_of(context: RuleContext, mapping: Mapping) -> tuple[LogEntry, ...]:
    """Return the kernel's lines about a stop after which it logged no other mount of the device.

    A line from before a later mount may be about an earlier mapping with the same device name.
    """
    types = {mount.fs_type for mount in observed_of(mapping.mounts) if mount.fs_type}
    devices = {mapping.kernel_name, *(dm.name for dm in observed_of(mapping.holders))}
    of_device = [entry for entry in kernel_log(context) if not devices.isdisjoint(entry.names)]
    changed = [entry.at for entry in of_device if Recognised.FILE_SYSTEM_CHANGED.is_in(entry.text)]
    return tuple(
        entry
        for entry in of_device
        if (names := Recognised.FILE_SYSTEM_STOPPED.named_in(entry.text)) is not None
        and entry.at > max(changed, default="")
        and ("xfs" in types) is bool(names.get("xfs"))
    )


def kubelet_log(context: RuleContext) -> tuple[LogEntry, ...]:
    """Return the lines of the observed node's kubelet that name the volume; none if unread."""
    excerpt = _kubelets(context)
    return () if excerpt is None else excerpt.lines


def kubelet_log_since(context: RuleContext) -> str | None:
    """Return since when the log of the observed node's kubelet was read; None if it was not."""
    excerpt = _kubelets(context)
    return None if excerpt is None else excerpt.since


def unmount_error(context: RuleContext, node: str | None) -> LogEntry | None:
    """Return the newest line of the observed node's kubelet about an unmount that fails."""
    if node != context.here_if_known:
        return None
    lines = (line for line in kubelet_log(context) if Recognised.UNMOUNT_REPORTED.is_in(line.text))
    return max(lines, key=lambda line: line.at, default=None)


def plugin_adds(pod_event: PodEvent, context: RuleContext) -> str:
    """Return what the observed node's CSI plugin logged after the error of an event; else "".

    ceph-csi returns the error of a program, and logs the output of the program behind it
    (internal/util/cryptsetup/cryptsetup.go, OpenEncryptedVolume in internal/rbd/encryption.go).
    """
    if pod_event.node != context.here_if_known:
        return ""
    error = Recognised.FAILED_FOR_VOLUME.left_out_of(pod_event.text).strip()
    error = Recognised.RPC_STATUS.left_out_of(error).strip().rstrip(".")
    if len(error) < _LEAST_ERROR:
        return ""
    added = (what_follows(line.text, error) for line in reversed(plugin_log(context)))
    return next(filter(None, added), "")


_LEAST_ERROR: Final = 20
"""A shorter error may be a part of any line."""


def is_being_torn_down(context: RuleContext, holder: Holder) -> bool:
    """Return whether only the kernel holds the device of a volume that kubelet still unstages.

    For a moment after the last unmount, the kernel keeps its file system (cleanup_mnt() runs as
    task work) or kubelet its own loop device, and the mount table has no mount. A pod that has
    waited for the volume, or anything else on the device, makes it an error.
    """
    mapping = holder.mapping
    if mapping is None or isinstance(mapping.openers, NotObserved):
        return False
    if has_any_waited(context.volume.waiting_pods, context.snapshot, MOVING):
        return False
    found = evidence_of(holder)
    of_others = (
        *found.openers,
        *foreign_mounts(found, holder),
        *found.other_mounts,
        *(device for device in found.stacked if not is_kubelets_loop(device)),
    )
    return holder.in_volumes_in_use is True and not of_others


def ownership_begun(context: RuleContext) -> tuple[LogEntry, Pod] | None:
    """Return the newest line of kubelet about the files of a pod that still waits, and the pod.

    kubelet logs no end. A sandbox is made after all mounts: its failure is one.
    """
    lines = [
        entry for entry in kubelet_log(context) if Recognised.SETTING_OWNERSHIP.is_in(entry.text)
    ]
    for entry in sorted(lines, key=lambda entry: entry.at, reverse=True):
        for pod in context.volume.waiting_pods:
            if pod.node_name != context.here_if_known or not pod.ref.uid:
                continue
            if pod.ref.uid in entry.text and not _is_mounted_since(context, pod, entry.at):
                return entry, pod
    return None


def _is_mounted_since(context: RuleContext, pod: Pod, since: str) -> bool:
    return any(
        shows_mounted(event)
        and event.subject.uid in ("", pod.ref.uid)
        and event.subject.name == pod.ref.name
        and (event.last_seen or "") > since
        for event in context.volume.events
    )


def plugin_log(context: RuleContext) -> tuple[LogEntry, ...]:
    """Return the lines of the observed node's CSI plugin about the volume; none if unread."""
    excerpt = _excerpt(context, lambda logs: logs.plugin)
    return () if excerpt is None else excerpt.lines


def has_logged_no_cause(context: RuleContext, since: str | None) -> bool:
    """Return whether the observed node's CSI plugin has logged only calls that wait, since a time.

    A log that begins later, or of which a part was not read, proves nothing.
    """
    excerpt = _excerpt(context, lambda logs: logs.plugin)
    if excerpt is None or excerpt.unread or since is None or excerpt.since > since:
        return False
    return all(line.unanswered or is_about_hanging_call(line.text) for line in excerpt.lines)


def _kubelets(context: RuleContext) -> LogExcerpt | None:
    return _excerpt(context, lambda logs: logs.kubelet)


def _excerpt(
    context: RuleContext, of: Callable[[NodeLogs], LogExcerpt | NotObserved]
) -> LogExcerpt | None:
    """Return one log of the observed node; None if it was not read."""
    node = context.snapshot.node
    logs = None if node is None else node.logs
    if logs is None or isinstance(logs, NotObserved):
        return None
    found = of(logs)
    return None if isinstance(found, NotObserved) else found


def kernel_line(entry: LogEntry) -> str:
    """Return a line of the kernel as evidence."""
    return f"the kernel at {entry.at}: {foreign(entry.text)}"


def is_present(context: RuleContext, _named: dict[str, str]) -> bool:
    """Return whether the image of the volume exists."""
    view = context.volume.image_view
    return view is not None and view.presence == "present"


# --------------------------------------------------------------------------------------------------
# The pool that a handle names
# --------------------------------------------------------------------------------------------------


class PoolOfHandle(NamedTuple):
    """A pool that a handle of ceph-csi names by its id, and the cluster that may have it."""

    handle: VolumeHandle
    cluster: ClusterView
    name: str
    """Empty if the cluster has no pool with that id."""


def handle_of_pv(context: RuleContext) -> VolumeHandle | None:
    """Return the handle of the PV; None if it is not one that ceph-csi has composed."""
    volume = context.volume.persistent_volume
    if volume is None or not isinstance(volume.source, CsiSource):
        return None
    return composed_handle(volume.source.volume_handle)


def pool_of_handle(context: RuleContext) -> PoolOfHandle | None:
    """Return the pool of the PV's handle; None if the pools of its cluster were not observed."""
    handle = handle_of_pv(context)
    if handle is None:
        return None
    # A clusterID is the fsid, or a name in ceph-csi's configuration.
    cluster = cluster_with(handle.cluster_id, context.snapshot) or cluster_of_image(context)
    pools = {} if cluster is None else dict(observed_of(cluster.pools))
    if cluster is None or not pools:
        return None
    return PoolOfHandle(handle, cluster, pools.get(handle.pool_id, ""))


def is_pool_gone(context: RuleContext, named: dict[str, str]) -> bool:
    """Return whether the cluster has no pool with the id that the handle, and the text, name."""
    pool = pool_of_handle(context)
    return pool is not None and not pool.name and _is_named(pool, named)


def is_pool_there(context: RuleContext, named: dict[str, str]) -> bool:
    """Return whether the cluster has the pool of the handle, with the image in it."""
    pool, view = pool_of_handle(context), context.volume.image_view
    if pool is None or view is None or not pool.name or not _is_named(pool, named):
        return False
    return is_present(context, named) and view.pool_id == pool.handle.pool_id


def _is_named(pool: PoolOfHandle, named: dict[str, str]) -> bool:
    """Return whether a text names this pool, or none: a journal may be in another pool."""
    number, name = named.get("pool_id"), named.get("pool_name")
    return number in {None, "", str(pool.handle.pool_id)} and name in {None, "", pool.name}
