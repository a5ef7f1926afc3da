"""The verdict on one holder: an ordered list of checks, from data in danger to safe to release.

The first check that returns a verdict decides. `Orphaned` is the last one: it is returned only when
every check before it observed its facts and found nothing. A fact that was not observed ends the
list before `Orphaned`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct

from rbdagent.correlate.blocklist import entry_text
from rbdagent.correlate.holders import have_containers_ended, is_finished, overlay_node_at
from rbdagent.correlate.image_identity import are_watchers_observed, identity_of_mapping
from rbdagent.correlate.index import kube_index
from rbdagent.correlate.node_usage import kubelet_process
from rbdagent.correlate.published_reports import is_nbd
from rbdagent.correlate.views import has_assumed_namespace
from rbdagent.model import (
    BlocklistEntry,
    DeviceKind,
    Holder,
    HolderKind,
    HolderVerdict,
    ImagePresence,
    ImageView,
    Node,
    NotObserved,
    PersistentVolume,
    Pod,
    ProcessRef,
    PublishedMapping,
    Snapshot,
    Verdict,
    Volume,
    VolumeAttachment,
    first_unobserved,
    observed_of,
    unobserved,
)
from rbdagent.parse.foreign import foreign, foreign_name
from rbdagent.parse.kubelet import pod_uid_of_path
from rbdagent.verdicts.ceph_daemons import daemon_name, supposed
from rbdagent.verdicts.evidence import (
    Evidence,
    block_holder_text,
    evidence_of,
    is_kubelets_loop,
    kubelets_loops_alone,
    lost_processes,
    mount_text,
    own_processes,
    pins,
    pod_names,
    process_text,
    unsorted_processes,
)
from rbdagent.verdicts.timing import GRACE, age, age_text, is_young
from rbdagent.verdicts.volume_verdict import (
    ORDER,
    fresh_report,
    may_map_by_nbd,
    pvs_of,
    report_of,
)
from rbdagent.verdicts.watcher_candidates import candidates_text

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import timedelta


class HolderContext(Struct, frozen=True, kw_only=True):
    """Holds the input of one check: a holder, its evidence, the volume and the snapshot."""

    holder: Holder
    found: Evidence
    volume: Volume
    snapshot: Snapshot
    grace: timedelta

    @property
    def now(self) -> str:
        """The time of the snapshot."""
        return self.snapshot.observed_at

    @property
    def view(self) -> ImageView | None:
        """What Ceph shows of the image that the holder holds."""
        return self.holder.view(self.volume)

    @property
    def report(self) -> str:
        """What the agent of the holder's node reported, and when."""
        return report_of(self.holder, self.now)


class RungResult(Struct, frozen=True, kw_only=True):
    """Holds the result of a check: a verdict and its evidence."""

    verdict: Verdict
    reasons: tuple[str, ...]
    pods: tuple[str, ...] = ()
    """The pods that the reasons name."""
    is_lingering: bool = False
    """Whether only a watch is left."""
    reported: PublishedMapping | None = None
    """The report that has the same verdict."""


def judge(
    holder: Holder, volume: Volume, snapshot: Snapshot, grace: timedelta = GRACE
) -> HolderVerdict:
    """Return the verdict on a holder, with its evidence."""
    context = HolderContext(
        holder=holder, found=evidence_of(holder), volume=volume, snapshot=snapshot, grace=grace
    )
    checks = LOCAL if holder.mapping is not None else REMOTE
    result = next(result for check in checks if (result := check(context)) is not None)
    return HolderVerdict(
        holder=holder,
        verdict=result.verdict,
        reasons=(*result.reasons[:1], *_probable_by(holder), *result.reasons[1:]),
        pods=result.pods,
        is_lingering=result.is_lingering,
        reported=result.reported,
        since=snapshot.observed_at,
    )


def _probable_by(holder: Holder) -> tuple[str, ...]:
    """Return why the node is probable, if that is not the address that its Node lists."""
    if not holder.is_node_probable:
        return ()
    return (f"{holder.node} is probable, because {holder.probable_by}",)


# --------------------------------------------------------------------------------------------------
# Mappings of the node that was observed
# --------------------------------------------------------------------------------------------------


def unknown_image(context: HolderContext) -> RungResult | None:
    """Return `Undetermined` for a device whose image was not observed."""
    mapping = context.holder.mapping
    if mapping is None or not isinstance(mapping.spec, NotObserved):
        return None
    if context.volume.image is not None and mapping.nbd is not None:
        return None
    return RungResult(
        verdict=Verdict.UNDETERMINED,
        reasons=(f"the image of {mapping.device} was not observed: {mapping.spec.reason}",),
    )


def dead_nbd(context: HolderContext) -> RungResult | None:
    """Return `Dead` for an nbd device without its process.

    sysfs keeps the pid and the backend indefinitely (recording 20-nbd-killed).
    """
    mapping = context.holder.mapping
    if mapping is None or mapping.nbd is None or mapping.nbd.process is not None:
        return None
    recorded = mapping.nbd.recorded_pid
    noted = f" (sysfs shows the pid {recorded} of a process that has ended)" if recorded else ""
    return RungResult(
        verdict=Verdict.DEAD,
        reasons=(f"no rbd-nbd process serves {mapping.device}{noted}",),
    )


def blocklisted(context: HolderContext) -> RungResult | None:
    """Return `Dead` for a blocklisted client.

    Such a client keeps its mappings and mounts; every write fails with -108 (recording
    23-blocklisted).
    """
    entry = context.holder.blocklisted_by
    if not isinstance(entry, BlocklistEntry):
        return None
    return RungResult(
        verdict=Verdict.DEAD,
        reasons=(f"its client is on the blocklist: {entry_text(entry)}",),
    )


def is_watch_observed(holder: Holder, view: ImageView | None) -> bool | NotObserved | None:
    """Return whether the mapping has its watch on the header; None if it does not take a watch.

    Read-only and snapshot mappings do not take a watch (kernel 5.5, commit b9ef2b8858a0). An image
    that is gone has no header to watch. The client of rbd-nbd is not in sysfs, so its watch cannot
    be identified.
    """
    mapping = holder.mapping
    if mapping is None or mapping.kind is not DeviceKind.KRBD:
        return None
    if mapping.snapshot is not None or mapping.read_only is True:
        return None
    if holder.watcher is not None:
        return True
    if _is_gone(view):
        return None
    facts = (view.presence, view.watchers) if view is not None else (_NO_VIEW,)
    facts = (*facts, mapping.read_only, mapping.client_address or _NO_ADDRESS)
    unseen = first_unobserved(facts)
    return False if unseen is None else unseen


_MOST_PODS: Final = 5
"""Maximum of pods that a reason names; the answer lists all of them beside their holder."""
_LONGEST_NAMES: Final = 250
"""Characters of their names."""
_NO_VIEW: Final = NotObserved(reason="the watchers of its image were not observed")
_NO_ADDRESS: Final = NotObserved(reason="the address of its client was not observed")


def unwatched(context: HolderContext) -> RungResult | None:
    """Return `Unwatched` for a writable mapping whose watch is gone: Ceph does not list its client.

    After a blocklist entry is removed, I/O works again, but the watch does not return (recording
    30-two-writers-after-blocklist-rm): rbd_reregister_watch() in drivers/block/rbd.c does not
    retry for a blocklisted client.
    """
    holder, mapping = context.holder, context.holder.mapping
    seen = is_watch_observed(holder, context.view)
    if mapping is None or mapping.kind is not DeviceKind.KRBD or seen is None or seen is True:
        return None
    if isinstance(mapping.read_only, NotObserved):
        return None
    if mapping.watch is False:
        return RungResult(
            verdict=Verdict.UNWATCHED, reasons=_without_watch(context, "the kernel lists no")
        )
    moving = context.found.bringing_up or context.found.tearing_down
    if seen is not False or mapping.watch is True or moving:
        # The node and Ceph are observed one after the other. A mapping that appears or disappears
        # between the two observations has not lost its watch.
        return None
    if isinstance(holder.blocklisted_by, NotObserved):
        reason = holder.blocklisted_by.reason
        return RungResult(
            verdict=Verdict.UNDETERMINED,
            reasons=(
                f"{mapping.device} is mapped read-write, but Ceph lists no watch of its client",
                f"whether that client is blocklisted was not observed: {reason}",
            ),
        )
    return RungResult(verdict=Verdict.UNWATCHED, reasons=_without_watch(context, "Ceph lists no"))


def _without_watch(context: HolderContext, source: str) -> tuple[str, ...]:
    mapping = context.holder.mapping
    assert mapping is not None  # noqa: S101 - the caller checked it
    client = f"client.{mapping.client_id} {mapping.client_address}"
    lines = [f"{mapping.device} is mapped read-write, but {source} watch of {client} on its header"]
    if isinstance(context.holder.blocklisted_by, NotObserved):
        lines.append(
            "whether the client is blocklisted was not observed: if it is, the verdict is Dead"
        )
    else:
        lines.append("the client is not on the blocklist, or no longer: it can write")
    return tuple(lines)


def returned_dirty(context: HolderContext) -> RungResult | None:
    """Return `ReturnedDirty` for a node that was declared lost and still has the image mapped."""
    holder = context.holder
    node = holder.node_object
    if not isinstance(node, Node) or not node.out_of_service:
        return None
    if isinstance(holder.pods, NotObserved) or context.found.running:
        return None
    if holder.attachment is not None:
        # An attachment exists, or may exist: it was not observed.
        return None
    lines = [
        f"node {node.name} has the out-of-service taint, so its volumes were force-detached",
        "the node still has this image mapped",
    ]
    boot_id = context.snapshot.node.boot_id if context.snapshot.node is not None else None
    if boot_id and node.boot_id == boot_id:
        lines.append("the node has not rebooted since kubelet last reported")
    return RungResult(verdict=Verdict.RETURNED_DIRTY, reasons=tuple(lines))


def in_use(context: HolderContext) -> RungResult | None:
    """Return `InUse` if a pod, a container or a pod's path uses the volume, or may use it."""
    holder, found = context.holder, context.found
    if found.running:
        return RungResult(
            verdict=Verdict.IN_USE,
            reasons=(
                _use_by(found.running, holder.node),
                *(
                    block_holder_text(device)
                    for device in found.stacked
                    if not is_kubelets_loop(device)
                ),
            ),
            pods=_named(found.running),
        )
    groups: tuple[tuple[str, tuple[ProcessRef, ...]], ...] = (
        ("a container of its pod still uses the device", own_processes(found, holder)),
        (
            "a container of a pod that the API does not list uses the device",
            lost_processes(found, holder),
        ),
        (
            "a container uses the device, and whether its pod uses the volume was not observed",
            unsorted_processes(found, holder, context.snapshot),
        ),
    )
    for reason, processes in groups:
        if processes:
            lines = tuple(process_text(process) for process in processes)
            return RungResult(verdict=Verdict.IN_USE, reasons=(reason, *lines))
    return _in_use_by_path(context) or _in_use_by_directory(context)


def _use_by(pods: tuple[Pod, ...], node: str | None) -> str:
    """Describe the use by pods whose phase is Running: it is, until kubelet has cleaned up."""
    if have_containers_ended(pods):
        return f"the containers of {_pods(pods)} on {node} have ended, and it is not released"
    return f"used by {_pods(pods)} on {node}"


def _in_use_by_path(context: HolderContext) -> RungResult | None:
    """Return `InUse` for a mount at a pod's path.

    It does not apply if the API lists the pod, or if the plugin is down and cannot unmount.
    """
    holder, found = context.holder, context.found
    pods = () if isinstance(holder.pods, NotObserved) else holder.pods
    explained = {pod.ref.uid for pod in pods}
    unexplained = [
        mount for mount in found.pod_mounts if pod_uid_of_path(mount.path) not in explained
    ]
    driver_is_down = holder.driver_registered is False and not isinstance(holder.pods, NotObserved)
    if not unexplained or driver_is_down:
        return None
    return RungResult(
        verdict=Verdict.IN_USE,
        reasons=tuple(f"{mount_text(mount)}, a volume path of a pod" for mount in unexplained),
    )


def _in_use_by_directory(context: HolderContext) -> RungResult | None:
    """Return `InUse` for a pod that has not finished and has a directory of the volume.

    The directory counts as use, whichever claims the pod has according to the API.
    """
    seen = context.holder.pods
    known = set() if isinstance(seen, NotObserved) else {pod.ref.uid for pod in seen}
    pods = kube_index(context.snapshot.kubernetes).pod_by_uid
    used = tuple(
        (pod, directory)
        for directory in observed_of(context.holder.pod_volumes)
        if (pod := pods.get(directory.pod_uid)) is not None
        and not is_finished(pod)
        and directory.pod_uid not in known
    )
    if not used:
        return None
    return RungResult(
        verdict=Verdict.IN_USE,
        reasons=tuple(
            f"kubelet has a volume directory of pod {pod.ref}: {foreign_name(directory.path)}"
            for pod, directory in used
        ),
        pods=tuple(str(pod.ref) for pod, _ in used),
    )


def _pods(pods: tuple[Pod, ...]) -> str:
    """Name some pods of a volume, and state how many others there are."""
    named = _named(pods)
    left = len(pods) - len(named)
    more = f" and {left} more" if left else ""
    return f"{'pod' if len(pods) == 1 else 'pods'} {', '.join(named)}{more}"


def _named(pods: tuple[Pod, ...]) -> tuple[str, ...]:
    """Return the first pods by name: an RBDMapping has room for one reason with their names."""
    named = pods[:_MOST_PODS]
    while len(named) > 1 and len(pod_names(named)) > _LONGEST_NAMES:
        named = named[:-1]
    return tuple(str(pod.ref) for pod in named)


def _pods_are(pods: tuple[Pod, ...]) -> str:
    return f"{_pods(pods)} {'is' if len(pods) == 1 else 'are'}"


def between_steps(context: HolderContext) -> RungResult | None:
    """Return `Staged` while kubelet or the driver works on the volume or waits to retry."""
    found, node = context.found, context.holder.node
    if found.waiting:
        return RungResult(
            verdict=Verdict.STAGED,
            reasons=(f"{_pods_are(found.waiting)} scheduled to {node} but not running yet",),
            pods=_named(found.waiting),
        )
    if found.ending:
        return RungResult(
            verdict=Verdict.STAGED,
            reasons=(
                f"{_pods_are(found.ending)} finished and being deleted on {node}",
                *_plugin(context),
            ),
            pods=_named(found.ending),
        )
    if _plugin(context):
        return RungResult(verdict=Verdict.STAGED, reasons=_plugin(context))
    if found.bringing_up:
        return RungResult(
            verdict=Verdict.STAGED,
            reasons=tuple(
                f"{process_text(flight.process)} is working on it" for flight in found.bringing_up
            ),
        )
    if found.pod_mounts:
        lines = tuple(mount_text(mount) for mount in found.pod_mounts)
        return RungResult(verdict=Verdict.STAGED, reasons=("its pod has finished", *lines))
    return None


def released_by_kubelet(context: HolderContext) -> RungResult | None:
    """Return `Staged` while only kubelet's own loop device is on a raw block volume.

    kubelet takes it for each block volume, and detaches it a moment after the volume is unpublished
    (UnmapDevice in pkg/volume/util/operationexecutor). It lists the volume in volumesInUse until
    then.
    """
    found, holder = context.found, context.holder
    if holder.in_volumes_in_use is not True or isinstance(holder.pods, NotObserved):
        return None
    own = kubelets_loops_alone(found, holder)
    if not own or kubelet_process(context.snapshot) is None:
        return None
    return RungResult(
        verdict=Verdict.STAGED,
        reasons=(
            (
                f"kubelet's own loop device {own[0].name} is on it, and kubelet lists the volume "
                "in volumesInUse: it has not released it yet"
            ),
        ),
    )


def _plugin(context: HolderContext) -> tuple[str, ...]:
    """Return a line if the driver is down and kubelet therefore cannot unmount the volume."""
    holder, found = context.holder, context.found
    if holder.driver_registered is not False:
        return ()
    if not (
        found.staging_mounts or found.pod_mounts or isinstance(holder.attachment, VolumeAttachment)
    ):
        return ()
    return (
        f"the CSI driver on {holder.node} does not respond, so kubelet cannot unmount the volume",
    )


def administrators(context: HolderContext) -> RungResult | None:
    """Return `Foreign` if nothing shows that Kubernetes created the image.

    The agent never unmaps the mapping of an administrator.
    """
    holder = context.holder
    if isinstance(holder.pods, NotObserved):
        return None
    if (assumed := _assumed_owner(context)) is not None:
        return RungResult(
            verdict=Verdict.UNDETERMINED,
            reasons=(
                (
                    f"whether {assumed.name} is of this image was not observed: it is a static "
                    "volume, and the radosNamespace of its clusterID in ceph-csi's configuration "
                    "decides in which RADOS namespace its image is"
                ),
            ),
        )
    if holder.is_kubernetes_managed:
        return None
    return RungResult(
        verdict=Verdict.FOREIGN,
        reasons=(
            (
                "no PersistentVolume, staging directory, image metadata or name shows that "
                "Kubernetes created the image: it was mapped manually"
            ),
            *pins(context.found, holder),
        ),
    )


def _assumed_owner(context: HolderContext) -> PersistentVolume | None:
    """Return the PV of a device if only an assumed RADOS namespace leads from it to the image."""
    holder, seen = context.holder, context.snapshot
    volumes = pvs_of(context.volume)
    if holder.mapping is None or not volumes or observed_of(holder.staging):
        return None
    is_assumed = all(has_assumed_namespace(one, seen.node, seen.kubernetes) for one in volumes)
    return volumes[0] if is_assumed else None


def pinned(context: HolderContext) -> RungResult | None:
    """Return `Pinned` if no pod uses the device, but something else keeps it busy."""
    holder = context.holder
    kept = pins(context.found, holder)
    if not kept:
        return None
    if isinstance(holder.pods, NotObserved):
        return RungResult(
            verdict=Verdict.UNDETERMINED,
            reasons=(*kept, f"whether a pod uses it was not observed: {holder.pods.reason}"),
        )
    return RungResult(verdict=Verdict.PINNED, reasons=kept)


def finishing(context: HolderContext) -> RungResult | None:
    """Return `Staged` while a process unmounts or unmaps the device, or a request hangs."""
    found = context.found
    if found.tearing_down:
        lines = tuple(
            f"{process_text(flight.process)} is unmounting, closing or unmapping it"
            for flight in found.tearing_down
        )
        return RungResult(verdict=Verdict.STAGED, reasons=lines)
    if found.hung:
        return RungResult(
            verdict=Verdict.STAGED,
            reasons=(f"requests to Ceph hang: {', '.join(map(foreign, found.hung[:3]))}",),
        )
    return None


def not_observed(context: HolderContext) -> RungResult | None:
    """Return `Undetermined` if a fact that `Orphaned` requires was not observed."""
    missing = missing_facts(context)
    if not missing:
        return None
    return RungResult(
        verdict=Verdict.UNDETERMINED,
        reasons=tuple(f"not observed: {what} ({why.reason})" for what, why in missing),
    )


def missing_facts(context: HolderContext) -> tuple[tuple[str, NotObserved], ...]:
    """Return the facts that `Orphaned` requires and that were not observed."""
    holder, mapping = context.holder, context.holder.mapping
    assert mapping is not None  # noqa: S101 - only the checks of LOCAL call this
    process = mapping.nbd.process if mapping.nbd is not None else None
    facts: tuple[tuple[str, object], ...] = (
        ("mounts in all mount namespaces", mapping.mounts),
        ("processes that have it open", mapping.openers),
        ("device-mapper, loop and swap on it", mapping.holders),
        ("live file systems in the kernel", mapping.kernel_traces),
        ("its rbd-nbd process", process),
        ("running map, mount and unmap processes", holder.in_flight),
        ("kubelet's staging directories", holder.staging),
        ("kubelet's pod directories", holder.pod_volumes),
        ("pods on this node", holder.pods),
        ("VolumeAttachments", holder.attachment),
        ("the Ceph blocklist", holder.blocklisted_by),
        ("its watch on the image", is_watch_observed(holder, context.view)),
        ("whether the image exists", _presence(context.view)),
    )
    missing = list(unobserved(facts))
    if is_watch_observed(holder, context.view) is False:
        # The kernel lists the watch, Ceph does not: one of the two observations is out of date.
        reason = "the kernel lists it and Ceph does not: run the command again"
        missing.append(("its watch on the image", NotObserved(reason=reason)))
    return tuple(missing)


def _presence(view: ImageView | None) -> ImagePresence | NotObserved:
    return (
        NotObserved(reason="no Ceph cluster reported this image") if view is None else view.presence
    )


def young(context: HolderContext) -> RungResult | None:
    """Return `Staged` within the grace period, so that kubelet and the controller can finish."""
    holder, now = context.holder, context.now
    attachment = holder.attachment
    has_attachment = isinstance(attachment, VolumeAttachment) and attachment.deleting_since is None
    found = context.found
    left = bool(found.staging_mounts or found.own_luks or observed_of(holder.pod_volumes))
    if not has_attachment and not left:
        # kubelet cleans up a mapping that has an attachment, a staging mount or a pod's directory.
        # kubelet does not know a mapping with none of them, even if kubelet started only just now
        # (recording 13-after-kubelet-restart).
        return None
    lines: list[str] = []
    created = attachment.created_at if isinstance(attachment, VolumeAttachment) else None
    if has_attachment and is_young(created, now, context.grace) is not False:
        lines.append(f"its VolumeAttachment is {age_text(age(created, now))} old")
    lines += _recent_kill(context)
    lines += _kubelet_cleanup(context)
    if not lines:
        return None
    if lines == [_KUBELET_UNSEEN]:
        return RungResult(verdict=Verdict.UNDETERMINED, reasons=tuple(lines))
    return RungResult(
        verdict=Verdict.STAGED,
        reasons=(
            *lines,
            (
                f"within the grace period of {age_text(context.grace)}: wait, then run the command "
                "again"
            ),
        ),
    )


_KUBELET_UNSEEN: Final = (
    "when kubelet started was not observed: kubelet may still be working on this volume"
)


def _kubelet_cleanup(context: HolderContext) -> list[str]:
    """Return a line if kubelet may still clean up the volume.

    The grace period starts again when kubelet starts. A kubelet that is down finishes nothing until
    it runs again.
    """
    process = kubelet_process(context.snapshot)
    if isinstance(process, NotObserved):
        return [_KUBELET_UNSEEN]
    if process is None:
        return [
            f"kubelet is not running on {context.holder.node}: it finishes this after it starts"
        ]
    fresh = is_young(process.started_at, context.now, context.grace)
    if fresh is None:
        return [_KUBELET_UNSEEN]
    if fresh:
        return [f"kubelet started {age_text(age(process.started_at, context.now))} ago"]
    return []


def _recent_kill(context: HolderContext) -> list[str]:
    """Return a line if kubelet stopped a pod here recently: its cleanup may still be running."""
    return [
        f"pod {event.subject} was stopped {age_text(age(event.last_seen, context.now))} ago"
        for event in context.volume.events
        if event.kind == "Pod"
        and event.reason == "Killing"
        and is_young(event.last_seen, context.now, context.grace)
        and event.reporter in ("", "kubelet", f"kubelet, {context.holder.node}")
    ][:1]


def orphaned(context: HolderContext) -> RungResult | None:
    """Return `Orphaned`: everything that could use the device was observed, and nothing does."""
    holder, found = context.holder, context.found
    own = found.own_luks
    lines = [
        (
            "no pod on this node uses it, no container has it mounted, no process was seen with it "
            "open, "
            f"and nothing{' else' if own else ''} is stacked on it"
        )
    ]
    lines += [
        f"its LUKS mapping {foreign_name(device.label)} remains, and no process was seen with it "
        "open"
        for device in own
    ]
    if found.staging_mounts:
        lines.append(f"only its staging mount remains: {found.staging_mounts[0].path}")
    else:
        lines.append("it is not mounted anywhere")
    attachment = holder.attachment
    if isinstance(attachment, VolumeAttachment):
        state = "is being deleted" if attachment.deleting_since else "exists, but no pod needs it"
        lines.append(f"VolumeAttachment {attachment.name} {state}")
    else:
        lines.append("no VolumeAttachment refers to this node, so no controller will clean it up")
    lines.append(f"observed once, at {context.now}")
    return RungResult(verdict=Verdict.ORPHANED, reasons=tuple(lines))


LOCAL: Final[tuple[Callable[[HolderContext], RungResult | None], ...]] = (
    dead_nbd,
    unknown_image,
    blocklisted,
    unwatched,
    returned_dirty,
    in_use,
    between_steps,
    administrators,
    released_by_kubelet,
    pinned,
    finishing,
    not_observed,
    young,
    orphaned,
)
"""In this order; `orphaned` always returns a result."""


# --------------------------------------------------------------------------------------------------
# Other holders: watchers, and pods whose node shows neither a watch nor a mapping
# --------------------------------------------------------------------------------------------------


def passing_by(context: HolderContext) -> RungResult | None:
    """Return `Foreign` for a short open of the image.

    ceph-csi's in-use check opens the image for a moment, repeatedly (isInUse() in
    internal/rbd/rbd_util.go@52fcb7b; recording 13-kubelet-restart-while-unstage-fails).
    """
    if not context.holder.transient:
        return None
    return RungResult(
        verdict=Verdict.FOREIGN,
        reasons=("seen in one of two observations: a short open, such as ceph-csi's in-use check",),
    )


def ceph_service(context: HolderContext) -> RungResult | None:
    """Return `Foreign` for ceph-mgr and rbd-mirror, which watch images as part of their work."""
    daemon = context.holder.daemon
    if daemon is None:
        return None
    return RungResult(verdict=Verdict.FOREIGN, reasons=(daemon_name(daemon, context.volume),))


def lingering(context: HolderContext) -> RungResult | None:
    """Return the verdict on a watch from this node's address that belongs to no mapping here.

    It is a librbd program, or a watch that has not expired yet.
    """
    holder, node = context.holder, context.snapshot.node
    if not holder.is_local or holder.watcher is None or node is None:
        return None
    if isinstance(node.mappings, NotObserved):
        reason = f"the mappings of {holder.node} were not observed: {node.mappings.reason}"
        return RungResult(verdict=Verdict.UNDETERMINED, reasons=(reason,))
    unnamed = [mapping.device for mapping in node.mappings if identity_of_mapping(mapping) is None]
    if unnamed:
        reason = f"the image of {', '.join(unnamed)} was not observed"
        return RungResult(verdict=Verdict.UNDETERMINED, reasons=(reason,))
    if holder.kind is HolderKind.KRBD:
        return RungResult(
            verdict=Verdict.UNDETERMINED,
            reasons=(
                (
                    f"the watch comes from {holder.node}, and no mapping there belongs to its "
                    "client: a watch lingers for up to 30s after its client died"
                ),
            ),
            is_lingering=True,
        )
    program = supposed(holder, context.volume) or "rbd, qemu"
    return RungResult(
        verdict=Verdict.FOREIGN,
        reasons=(f"a librbd program on {holder.node} ({program}), not a mapped device",),
    )


def unknown_node(context: HolderContext) -> RungResult | None:
    """Return the verdict on a client whose address no Node object lists.

    Its address may be in an overlay network or another cluster, or its client an ``rbd`` shell. If
    ceph-csi maps the volume by rbd-nbd, a librbd client may be the device of a node.
    """
    holder, kube = context.holder, context.snapshot.kubernetes
    if holder.node is not None or holder.watcher is None:
        return None
    ip = holder.watcher.address.ip
    if not kube_index(kube).coverage.nodes(str(holder.watcher.address)):
        reason = f"the nodes of the cluster are unknown, so {ip} may be the address of any of them"
        return RungResult(verdict=Verdict.UNDETERMINED, reasons=(reason,))
    if holder.kind is HolderKind.LIBRBD and not _may_be_nbd(context):
        program = supposed(holder, context.volume) or "qemu, an rbd shell"
        return RungResult(
            verdict=Verdict.FOREIGN,
            reasons=(f"no node has the address {ip}; the client is probably librbd ({program})",),
        )
    likely = overlay_node_at(holder.watcher.address, context.snapshot)
    where = (
        "it belongs to a second network or an overlay of a node, or to a machine outside this "
        "cluster"
        if likely is None
        else f"{likely} has it in the overlay network of its pods"
    )
    unlisted = f"no Node object lists the address {ip}: {where}"
    candidates = "" if likely else candidates_text(context.volume, context.snapshot)
    reasons = (candidates, unlisted) if candidates else (unlisted,)
    return RungResult(verdict=Verdict.UNDETERMINED, reasons=reasons)


def _may_be_nbd(context: HolderContext) -> bool:
    """Return whether a librbd client may be a device of a node, and is no daemon of Ceph.

    A PV that was not observed may have the mounter rbd-nbd.
    """
    volume = context.volume
    known = pvs_of(volume) or kube_index(context.snapshot.kubernetes).coverage.volumes(volume.image)
    return (may_map_by_nbd(volume) or not known) and not supposed(context.holder, volume)


def node_down(context: HolderContext) -> RungResult | None:
    """Return `NodeDown` if the node is gone or not Ready: its kubelet does not report holders.

    If the node is only probable, the client may be on another machine: `Undetermined`.
    """
    holder = context.holder
    node = holder.node_object
    if isinstance(node, NotObserved) or holder.node is None:
        return None
    if node is None:
        if holder.is_local:
            return None
        lines = [f"there is no Node object {holder.node}"]
        lines += [f"{context.report}: {holder.published.verdict}"] if holder.published else []
        return RungResult(verdict=Verdict.NODE_DOWN, reasons=tuple(lines))
    if node.ready is True or holder.is_local:
        return None
    state = "NotReady" if node.ready is False else "Unknown: its kubelet has not reported"
    since = (
        f" for {age_text(age(node.ready_changed_at, context.now))}" if node.ready_changed_at else ""
    )
    lines = [f"node {node.name} is {state}{since}"]
    if holder.is_node_probable:
        lines.append("its watch is alive: the machine that has the client runs and may write")
        return RungResult(verdict=Verdict.UNDETERMINED, reasons=tuple(lines))
    if holder.watcher is not None:
        lines.append("its watch is alive: according to Ceph, the machine is running and may write")
    elif holder.published is not None:
        lines.append(f"{context.report}: {holder.published.verdict}")
    return RungResult(verdict=Verdict.NODE_DOWN, reasons=tuple(lines))


def blocklisted_elsewhere(context: HolderContext) -> RungResult | None:
    """Return `Dead` for a blocklisted client, by the report of its agent if that is the same."""
    found, mapping = blocklisted(context), fresh_report(context.holder, context.snapshot)
    if found is None or mapping is None or mapping.verdict is not Verdict.DEAD:
        return found
    return RungResult(verdict=found.verdict, reasons=found.reasons, reported=mapping)


def returned_remotely(context: HolderContext) -> RungResult | None:
    """Return `ReturnedDirty` for a node with the out-of-service taint that is alive.

    Its watch or its agent shows that it is alive. A client whose node is only probable shows
    nothing of that node.
    """
    holder = context.holder
    node = holder.node_object
    if not isinstance(node, Node) or not node.out_of_service or holder.is_node_probable:
        return None
    if holder.attachment is not None or context.found.running:
        # An attachment exists, or may exist: it was not observed.
        return None
    if holder.watcher is not None:
        proof = "a client at its address still watches the image"
    elif fresh_report(holder, context.snapshot) is not None:
        proof = context.report
    else:
        return None
    return RungResult(
        verdict=Verdict.RETURNED_DIRTY,
        reasons=(f"node {node.name} is Ready and has the out-of-service taint", proof),
    )


def own_check(context: HolderContext) -> RungResult | None:
    """Return `Foreign` for the client of NodeStage: it opens the image by librbd before it maps."""
    holder = context.holder
    if holder.kind is not HolderKind.LIBRBD or context.volume.persistent_volume is None:
        return None
    if not context.found.waiting or context.found.running or may_map_by_nbd(context.volume):
        return None
    return RungResult(
        verdict=Verdict.FOREIGN,
        reasons=(
            (
                f"{_pods_are(context.found.waiting)} waiting on {holder.node}: this is probably "
                "ceph-csi's own in-use check there"
            ),
        ),
        pods=_named(context.found.waiting),
    )


def pods_on_holder_node(context: HolderContext) -> RungResult | None:
    """Return the verdict that follows from the pods on the holder's node, according to the API."""
    holder, found = context.holder, context.found
    if found.running:
        named = _named(found.running)
        lines = [f"{_use_by(found.running, holder.node)}, according to the API"]
        if holder.watcher is None:
            lines.append("no watch of that node was observed")
        if holder.is_local and holder.mapping is None:
            lines.append(f"no mapping of the image was observed on {holder.node}")
            return RungResult(verdict=Verdict.UNDETERMINED, reasons=tuple(lines), pods=named)
        return RungResult(verdict=Verdict.IN_USE, reasons=tuple(lines), pods=named)
    if found.waiting or found.ending:
        pods = found.waiting or found.ending
        state = "starting" if found.waiting else "terminating"
        reason = f"{_pods_are(pods)} {state} on {holder.node}"
        return RungResult(verdict=Verdict.STAGED, reasons=(reason,), pods=_named(pods))
    return None


def claimed_by_several(context: HolderContext) -> RungResult | None:
    """Return `Undetermined` for a client that several nodes have, by reports or by its address."""
    holder = context.holder
    if not holder.claimed_by:
        return None
    return RungResult(
        verdict=Verdict.UNDETERMINED,
        reasons=(
            (
                f"{' and '.join(holder.claimed_by)} have the same client according to its address "
                "and what agents report, and a client is on one node"
            ),
        ),
    )


_DANGERS: Final = frozenset({Verdict.UNWATCHED, Verdict.RETURNED_DIRTY, Verdict.DEAD})
"""These endanger data, so they take precedence over a running pod and over a node that is not
Ready."""


def reported_danger(context: HolderContext) -> RungResult | None:
    """Return the fresh report of the agent on that node, if its verdict means danger for the data.

    Ceph's own answer is newer: a watch that has returned, or a blocklist entry that is gone.
    """
    holder = context.holder
    mapping = fresh_report(holder, context.snapshot)
    if mapping is None or mapping.verdict not in _DANGERS:
        return None
    if mapping.verdict is Verdict.UNWATCHED and holder.watcher is not None:
        return None
    if _lives_again(context, mapping):
        return None
    if mapping.verdict is not Verdict.DEAD or is_nbd(mapping) or holder.blocklisted_by is not None:
        return published(context)
    return RungResult(
        verdict=Verdict.UNWATCHED,
        reasons=(
            f"{context.report}: Dead, and Ceph no longer lists a blocklist entry of its client",
            "after its entry is removed, a client can write again, but its watch does not return",
        ),
    )


def reported_use(context: HolderContext) -> RungResult | None:
    """Return the fresh report of the agent on that node, which observed more than the API shows.

    A running pod in the API is newer than a report of another verdict than `InUse`.
    """
    mapping = fresh_report(context.holder, context.snapshot)
    if mapping is None or _newer_in_ceph(context, mapping):
        return None
    if context.found.running and mapping.verdict is not Verdict.IN_USE:
        return None
    return published(context)


def published(context: HolderContext) -> RungResult | None:
    """Return the verdict that the agent of the holder's node reported, if the report is fresh."""
    mapping = fresh_report(context.holder, context.snapshot)
    if mapping is None or mapping.verdict not in ORDER:
        return None
    if newer := _newer_in_ceph(context, mapping):
        return RungResult(
            verdict=Verdict.UNDETERMINED,
            reasons=(
                f"{context.report}: {mapping.verdict}",
                newer,
                *mapping.reasons,
            ),
            pods=pods_in_report(context.holder, mapping),
        )
    return RungResult(
        verdict=mapping.verdict,
        reasons=(context.report, *mapping.reasons),
        pods=pods_in_report(context.holder, mapping),
        reported=mapping,
    )


def pods_in_report(holder: Holder, mapping: PublishedMapping) -> tuple[str, ...]:
    """Return the pods that the reasons of a report name.

    A report lists all pods of the mapping. Its reasons name those that the API shows here too, and
    only if they explain its verdict.
    """
    found = evidence_of(holder)
    match mapping.verdict:
        case Verdict.IN_USE:
            return _named(found.running)
        case Verdict.STAGED:
            return _named(found.waiting or found.ending)
    return ()


def _newer_in_ceph(context: HolderContext, mapping: PublishedMapping) -> str:
    """Return what Ceph shows now that the report of an agent could not know; "" if nothing."""
    if _lacks_its_watch(context, mapping):
        return (
            "Ceph lists no watch of that client now: the device was unmapped since then, or the "
            "client lost its watch and can still write"
        )
    if _lives_again(context, mapping):
        seen = "a watch of that client now, and "
        if isinstance(context.holder.blocklisted_by, NotObserved):
            return f"Ceph lists {seen}its blocklist was not observed: it may write again"
        return f"Ceph lists {seen}no blocklist entry: it can write again"
    return ""


def _lives_again(context: HolderContext, mapping: PublishedMapping) -> bool:
    """Return whether a client that was on the blocklist has its watch again.

    The kernel notices a lost watch with its next ping, after up to 5 s (osdkeepalive of libceph).
    If the entry is removed before that, rbd_reregister_watch() in drivers/block/rbd.c succeeds.
    """
    return (
        mapping.verdict is Verdict.DEAD
        and context.holder.watcher is not None
        and not isinstance(context.holder.blocklisted_by, BlocklistEntry)
        and not is_nbd(mapping)
    )


def _lacks_its_watch(context: HolderContext, mapping: PublishedMapping) -> bool:
    """Return whether a mapping that takes a watch is reported, but Ceph lists no watch of it.

    Read-only mappings take no watch (kernel 5.5, commit b9ef2b8858a0); the client of rbd-nbd is
    not in sysfs.
    """
    return (
        context.holder.watcher is None
        and are_watchers_observed(context.view)
        and mapping.read_only is not True
        and mapping.verdict not in {Verdict.UNWATCHED, Verdict.UNDETERMINED}
        and not is_nbd(mapping)
        and not _is_gone(context.volume.image_view)
    )


def _is_gone(view: ImageView | None) -> bool:
    """Return whether the image was deleted: no client can have a watch on its header."""
    return view is not None and view.presence is ImagePresence.GONE


def holder_node_not_observed(context: HolderContext) -> RungResult | None:
    """Return `Undetermined`: only the holder's own node shows what the holder does."""
    holder = context.holder
    if holder.node is None:
        return RungResult(verdict=Verdict.UNDETERMINED, reasons=("its node is unknown",))
    lines = [f"its use on {holder.node} can be observed only on that node"]
    if holder.is_node_probable:
        lines = [f"its use can be observed only on its own node, probably {holder.node}"]
    node, mapping = holder.published_by, holder.published
    if node is not None and mapping is not None:
        ago = age_text(age(node.observed_at, context.now))
        lines.append(f"the last report of the agent there is {ago} old: {mapping.verdict}")
    if isinstance(holder.pods, NotObserved):
        lines.append(f"pods there were not observed: {holder.pods.reason}")
    else:
        lines.append(f"according to the API, no pod on {holder.node} uses the volume")
    if holder.attachment is None and holder.is_node_probable:
        lines.append(f"no VolumeAttachment refers to {holder.node}: another machine may have it")
    elif holder.attachment is None:
        lines.append(
            f"no VolumeAttachment refers to {holder.node}: if it is a mapping, kubelet there has "
            "most likely forgotten it"
        )
    return RungResult(verdict=Verdict.UNDETERMINED, reasons=tuple(lines))


REMOTE: Final[tuple[Callable[[HolderContext], RungResult | None], ...]] = (
    passing_by,
    ceph_service,
    blocklisted_elsewhere,
    reported_danger,
    node_down,
    returned_remotely,
    claimed_by_several,
    unknown_node,
    reported_use,
    own_check,
    pods_on_holder_node,
    lingering,
    published,
    holder_node_not_observed,
)
"""In this order; `holder_node_not_observed` always returns a result.

Danger comes before `claimed_by_several`: a compromised agent that reports the client of another
node must not hide what the agent there reports.
"""
