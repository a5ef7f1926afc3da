"""The ten conditions of an unmap, all of which must be met.

Each condition is one function, one code and one table of tests. It checks observed facts. It never
relies on the outcome of another condition or on the verdict alone: one error must not be enough to
unmap. If a fact was not observed, its condition is not met.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct

from rbdagent.codes import Code
from rbdagent.correlate.directories import observed_mounts, openers_of
from rbdagent.correlate.holders import needs_volumes
from rbdagent.correlate.image_identity import mappings_of
from rbdagent.correlate.index import kube_index
from rbdagent.correlate.machine import is_its_node
from rbdagent.correlate.node_usage import MAPPER_PREFIX, kubelet_process, stacked_on
from rbdagent.model import (
    COMMAND_LINES,
    BlockHolder,
    BlockHolderKind,
    BootTime,
    Condition,
    DeviceKind,
    FreezeState,
    History,
    Holder,
    HolderVerdict,
    IoCounters,
    Mapping,
    MappingHistory,
    Mount,
    MountKind,
    Node,
    NotObserved,
    ObservedIo,
    PersistentVolume,
    PreventingObject,
    ProcessRef,
    Severity,
    Snapshot,
    SourceState,
    Step,
    StepKind,
    UnmapPlan,
    UnmapPolicy,
    UnmapRefusal,
    Verb,
    Verdict,
    Volume,
    VolumeAttachment,
    observed_of,
    unobserved,
)
from rbdagent.parse.excerpt import shortened
from rbdagent.parse.foreign import foreign, foreign_name
from rbdagent.parse.kubelet import pod_uid_of_path
from rbdagent.rules.entry import Entry
from rbdagent.unmap.orphan_history import identity_of, moment_of
from rbdagent.verdicts.evidence import (
    block_holder_text,
    is_staging_path,
    mount_text,
    opener_text,
    pod_names,
    process_text,
)
from rbdagent.verdicts.timing import age

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

ENTRIES: Final = (
    Entry(
        Code.NOT_SURELY_THE_SAME_MAPPING,
        Severity.INFO,
        "Not unmapped: two observations a grace period apart have not found the same mapping.",
        remedy=("Let the agent run, or run `", Verb("unmap"), "` with --wait."),
        recovery=None,
    ),
    Entry(
        Code.STILL_MOUNTED,
        Severity.INFO,
        "Not unmapped: the device is mounted, or the kernel has a live file system on it.",
        remedy="End the pod or process that has the device mounted. With --unmap-staged, rbdagent "
        "also unmounts a staging mount if it is the only mount left.",
        recovery=None,
    ),
    Entry(
        Code.STILL_HELD_OPEN,
        Severity.INFO,
        "Not unmapped: a process has the device open, or a block device is stacked on it.",
        remedy="End the named process, or remove the named stacked device.",
        recovery=None,
    ),
    Entry(
        Code.STILL_IN_KUBELETS_DIRECTORIES,
        Severity.INFO,
        "Not unmapped: kubelet's directories still list the volume for a pod.",
        remedy="Delete the named pod gracefully and let kubelet finish.",
        recovery=None,
    ),
    Entry(
        Code.STILL_WANTED,
        Severity.INFO,
        "Not unmapped: a pod on the node needs the volume, or the VolumeAttachment is too new.",
        remedy="Wait for the grace period, or delete the named pod.",
        recovery=None,
    ),
    Entry(
        Code.NOT_KUBERNETES,
        Severity.INFO,
        "Not unmapped: nothing shows that Kubernetes created the image.",
        remedy="Find the user who mapped the image. That user can run `rbd unmap`.",
        recovery=None,
    ),
    Entry(
        Code.AT_WORK,
        Severity.INFO,
        "Not unmapped: a program is working on the device, or a request to Ceph hangs.",
        remedy="Wait until the program ends. If it hangs, check Ceph: ceph -s.",
        recovery=None,
    ),
    Entry(
        Code.NOT_YET_OR_NOT_ALLOWED,
        Severity.INFO,
        "Not unmapped: the grace period is not over, or a setting forbids the unmap.",
        remedy="Wait, or remove the named obstacle. Create a missing freeze directory. Move a "
        "damaged record (acts.json in the state directory) elsewhere, an hour after the last "
        "unmap. Make the state directory writable, and free space in its file system.",
        recovery=None,
    ),
    Entry(
        Code.NOT_FULLY_OBSERVED,
        Severity.INFO,
        "Not unmapped: the decision needs facts that were not observed just now.",
        remedy=("`", Verb("check"), "` shows what is missing."),
        recovery=None,
    ),
    Entry(
        Code.STILL_READ_OR_WRITTEN,
        Severity.INFO,
        "Not unmapped: the device had I/O within the grace period, or its I/O counters were not "
        "observed during all of it.",
        remedy="Where the counters changed, find the process on the node: `blktrace` or `biosnoop` "
        "(bcc) shows the process that does the I/O. The grace period starts again with the last "
        "observed I/O.",
        recovery=None,
    ),
)

FREEZE: Final = "rbdagent.dev/freeze"
FRESH_S: Final = 30.0
"""Seconds. An older snapshot does not show the present state."""
_HOUR_S: Final = 3600.0
_SEPARATE: Final = ("the kernel's own list of watches and hung requests", COMMAND_LINES)
"""Gaps that are no reason alone: the conditions that need such a fact check it."""


class Candidate(Struct, frozen=True, kw_only=True):
    """Holds the mapping to unmap, and all known facts about it."""

    holder_verdict: HolderVerdict
    volume: Volume
    snapshot: Snapshot
    history: History | None
    policy: UnmapPolicy
    switches: FreezeState
    now: BootTime | None
    """When the decision is made; None if the snapshot comes from a file."""

    @property
    def holder(self) -> Holder:
        """The client that owns the mapping."""
        return self.holder_verdict.holder

    @property
    def mapping(self) -> Mapping:
        """The mapping, which is always on this node: rbdagent unmaps only on its own node."""
        mapping = self.holder_verdict.holder.mapping
        assert mapping is not None  # noqa: S101 - plan_unmap() checked it
        return mapping

    @property
    def remembered(self) -> MappingHistory | None:
        """The facts from earlier snapshots about exactly this mapping."""
        identity = identity_of(self.mapping)
        known = self.history.mappings if self.history is not None else ()
        return next((entry for entry in known if entry.identity == identity), None)

    def since(self, then: BootTime | None) -> float | None:
        """Return the seconds from an earlier moment to the snapshot; None if unknown."""
        observed = moment_of(self.snapshot)
        return None if then is None or observed is None else observed.uptime_s - then.uptime_s


class Outcome(Struct, frozen=True, kw_only=True):
    """Holds the result of one condition: the reasons against the unmap, else the facts for it."""

    against: tuple[str, ...] = ()
    not_yet: tuple[str, ...] = ()
    """Reasons against the unmap that end automatically when enough time has passed."""
    follows: tuple[str, ...] = ()
    """Reasons against the unmap that result from another reported fact."""
    prevented_by: tuple[PreventingObject | None, ...] = ()
    """The object that causes each reason in ``against``; empty if no reason has an object."""
    evidence: tuple[str, ...] = ()


def plan_unmap(
    holder_verdict: HolderVerdict,
    volume: Volume,
    snapshot: Snapshot,
    *,
    history: History | None,
    policy: UnmapPolicy,
    switches: FreezeState,
    now: BootTime | None,
) -> UnmapPlan | UnmapRefusal:
    """Return the plan for a mapping of the observed node, or every reason against the unmap.

    Args:
        holder_verdict: the holder that owns the mapping; a holder that is not a mapping of
            this node is refused.
        volume: the image that it holds.
        snapshot: the snapshot in which both were observed.
        history: the facts from all snapshots up to and including this one; None if there is no
            history.
        policy: the unmap policy.
        switches: the settings that forbid every unmap.
        now: the time of the decision; None for a snapshot from a file.
    """
    if holder_verdict.holder.mapping is None or not holder_verdict.holder.is_local:
        return _not_of_this_node(volume, snapshot)
    candidate = Candidate(
        holder_verdict=holder_verdict,
        volume=volume,
        snapshot=snapshot,
        history=history,
        policy=policy,
        switches=switches,
        now=now,
    )
    outcomes = tuple(holds(candidate) for _, _, holds in CONDITIONS)
    conditions = _conditions(outcomes, is_offline=now is None)
    counters = candidate.mapping.io_counters
    if isinstance(counters, NotObserved) or not all(condition.met for condition in conditions):
        return UnmapRefusal(
            node=_node_of(snapshot),
            identity=identity_of(candidate.mapping),
            persistent_volume=_volume_of(volume),
            conditions=conditions,
            prevented_by=_only_preventing_object(outcomes),
        )
    return UnmapPlan(
        node=_node_of(snapshot),
        identity=identity_of(candidate.mapping),
        persistent_volume=_volume_of(volume),
        steps=_steps(candidate),
        conditions=conditions,
        expects=_expects(candidate),
        io_counters=counters,
    )


def _not_of_this_node(volume: Volume, snapshot: Snapshot) -> UnmapRefusal:
    """Return the refusal for a holder that is not a mapping of the observed node."""
    node = _node_of(snapshot)
    code, requirement, _ = CONDITIONS[0]
    elsewhere = Condition(
        number=1,
        code=code,
        requirement=requirement,
        met=False,
        observed=(f"it is not a mapping of {node}: rbdagent unmaps only on its own node",),
    )
    return UnmapRefusal(
        node=node, identity=None, persistent_volume=_volume_of(volume), conditions=(elsewhere,)
    )


def _node_of(snapshot: Snapshot) -> str:
    return snapshot.node.node_name if snapshot.node is not None else "this node"


def _volume_of(volume: Volume) -> str | None:
    return volume.persistent_volume.name if volume.persistent_volume is not None else None


def _conditions(outcomes: Iterable[Outcome], *, is_offline: bool) -> tuple[Condition, ...]:
    """Return every condition with its outcome, in the order of their numbers."""
    return tuple(
        _condition(number, code, requirement, outcome, is_offline=is_offline)
        for number, ((code, requirement, _), outcome) in enumerate(
            zip(CONDITIONS, outcomes, strict=True), start=1
        )
    )


def _condition(
    number: int, code: str, requirement: str, outcome: Outcome, *, is_offline: bool
) -> Condition:
    met = not (outcome.against or outcome.follows or outcome.not_yet)
    return Condition(
        number=number,
        code=code,
        requirement=requirement,
        met=met,
        observed=(*outcome.against, *outcome.follows, *outcome.not_yet) or outcome.evidence,
        pending=bool(outcome.not_yet) and not (outcome.against or outcome.follows),
        needs_node=is_offline and not met and code in _OF_THE_PRESENT,
    )


def _only_preventing_object(outcomes: Iterable[Outcome]) -> PreventingObject | None:
    """Return the only object that causes every reason except time; None if there is none."""
    prevented_by = {
        cause
        for outcome in outcomes
        for cause in outcome.prevented_by or (None,) * len(outcome.against)
    }
    return prevented_by.pop() if len(prevented_by) == 1 else None


def _against(
    not_observed: Iterable[str], reasons: Iterable[tuple[str, PreventingObject | None]]
) -> tuple[tuple[str, ...], tuple[PreventingObject | None, ...]]:
    """Return the reasons and their objects; a fact that was not observed has no object."""
    both = [*((reason, None) for reason in not_observed), *reasons]
    return tuple(reason for reason, _ in both), tuple(cause for _, cause in both)


def _process(candidate: Candidate, process: ProcessRef) -> PreventingObject:
    """Return the pod of a process, else the process.

    The pod still identifies the keeper after the process has exited.
    """
    if process.pod_uid is None:
        return PreventingObject(kind="Process", name=shortened(process.program), pid=process.pid)
    return _pod(candidate, process.pod_uid)


def _pod(candidate: Candidate, uid: str) -> PreventingObject:
    for pod in kube_index(candidate.snapshot.kubernetes).pods:
        if pod.ref.uid == uid:
            return PreventingObject(kind="Pod", namespace=pod.ref.namespace, name=pod.ref.name)
    return PreventingObject(kind="Pod", name=uid)


def _not_observed(*facts: tuple[str, object]) -> tuple[str, ...]:
    return tuple(f"{what}: not observed ({fact.reason})" for what, fact in unobserved(facts))


# --------------------------------------------------------------------------------------------------
# 1 to 4: the mapping
# --------------------------------------------------------------------------------------------------


def is_the_same(candidate: Candidate) -> Outcome:
    """1. It is the same mapping of the same image as at least one grace period ago."""
    mapping, remembered = candidate.mapping, candidate.remembered
    against = list(_not_observed(("its image", mapping.spec)))
    if mapping.kind is not DeviceKind.KRBD:
        against.append(f"{mapping.device} is not a krbd device: its rbd-nbd process must unmap it")
    parts = {
        "the cluster's fsid": mapping.fsid,
        "the pool's id": mapping.pool_id,
        "the client's id": mapping.client_id,
        "the kernel's number for this device instance": mapping.incarnation,
    }
    against += [f"{what} is unknown" for what, value in parts.items() if value is None]
    image = candidate.volume.image
    if image is None or (image.fsid is not None and image.fsid != mapping.fsid):
        against.append("the image that was queried is not the image that is mapped")
    elif candidate.holder.other_image is not None:
        against.append(
            f"it is not of the image that is {image.spec} now: to unmap it, name {mapping.device}"
        )
    not_yet: tuple[str, ...] = ()
    evidence = [f"{mapping.device} has been {mapping.spec} since the first observation"]
    if remembered is None:
        not_yet = ("no earlier observation has this mapping: one observation has no history",)
    else:
        seen_for = candidate.since(remembered.first_seen) or 0.0
        evidence.append(f"first seen at {remembered.first_seen.at}")
        if seen_for < candidate.policy.grace_s:
            not_yet = (
                (
                    f"first seen {_seconds(seen_for)} ago, and two observations must be"
                    f" {_seconds(candidate.policy.grace_s)} apart"
                ),
            )
    return Outcome(against=tuple(against), not_yet=not_yet, evidence=tuple(evidence))


def is_not_mounted(candidate: Candidate) -> Outcome:
    """2. No mount namespace has a mount of it or of its device node; no file system is active.

    A detached mount is in no mountinfo, but its file system is active (recordings
    12-pinned-by-cwd-invisible and 22-xfs-lazy).
    """
    mapping = candidate.mapping
    staged = staging_mount(candidate)
    mounts = [
        mount for mount in observed_mounts(mapping) if staged is None or not _copies(mount, staged)
    ]
    reasons = [(_mount_text(mount), _of_mount(candidate, mount)) for mount in mounts]
    # If the device is mounted, the mount is the reason for the active file system.
    shown = tuple(
        f"the kernel has an active file system on it: {foreign_name(trace)}"
        for trace in observed_of(mapping.kernel_traces)
    )
    follows = shown if staged is None and mounts else ()
    if staged is None and not mounts:
        reasons += [(text, None) for text in shown]
    not_observed = _not_observed(
        ("mounts in all mount namespaces", mapping.mounts),
        ("active file systems in the kernel", mapping.kernel_traces),
    )
    against, prevented_by = _against(not_observed, reasons)
    evidence = (
        "no mount of it was found, and no trace of an active file system in the kernel (ext4, xfs, "
        "btrfs and f2fs leave one)"
    )
    if staged is not None:
        evidence = (
            f"its staging mount {foreign_name(staged.path)} is its only mount, and may be unmounted"
        )
    return Outcome(
        against=against, prevented_by=prevented_by, follows=follows, evidence=(evidence,)
    )


def _mount_text(mount: Mount) -> str:
    hidden = ", and another mount at that path hides it" if mount.covered else ""
    return f"{mount_text(mount)}{hidden}"


def _of_mount(candidate: Candidate, mount: Mount) -> PreventingObject | None:
    uid = pod_uid_of_path(mount.path)
    if uid is not None:
        return _pod(candidate, uid)
    return None if mount.namespace.is_host else _process(candidate, mount.namespace.process)


def staging_mount(candidate: Candidate) -> Mount | None:
    """Return the staging mount that the unmap steps may unmount: the only mount on the host."""
    if not candidate.policy.may_unmount_staging:
        return None
    on_host = [mount for mount in observed_mounts(candidate.mapping) if mount.namespace.is_host]
    if len(on_host) != 1 or on_host[0].kind is not MountKind.FILE_SYSTEM:
        return None
    (only,) = on_host
    if not is_staging_path(only.path) or pod_uid_of_path(only.path) is not None:
        return None
    return None if _other_mounts_at(only, candidate) else only


def _other_mounts_at(mount: Mount, candidate: Candidate) -> bool:
    """Return whether the host has another mount at the same path: umount would take the upper."""
    others = (
        other
        for mapping in mappings_of(candidate.snapshot.node)
        for other in observed_mounts(mapping)
        if other.namespace.is_host and other.path == mount.path and other != mount
    )
    return mount.covered or next(others, None) is not None


def _copies(mount: Mount, of: Mount) -> bool:
    """Return whether a mount is ``of``, or its copy in another mount namespace.

    If umount leaves a copy behind, the next observation shows it, and no further step is executed.
    """
    return mount.path == of.path and mount.device == of.device and mount.kind is of.kind


def is_not_open(candidate: Candidate) -> Outcome:
    """3. No block device is stacked on it, and no process has it, or a file on it, open."""
    mapping = candidate.mapping
    mapper = luks_mapper(candidate)
    not_observed = _not_observed(
        ("device-mapper, loop and swap on it", mapping.holders),
        ("processes that have it open", mapping.openers),
    )
    reasons: list[tuple[str, PreventingObject | None]] = [
        (block_holder_text(device), None) for device in stacked_on(mapping) if device != mapper
    ]
    reasons += [
        (opener_text(opener), _process(candidate, opener.process)) for opener in openers_of(mapping)
    ]
    against, prevented_by = _against(not_observed, reasons)
    evidence = "no process was seen with it open, and nothing is stacked on it"
    if mapper is not None:
        evidence = (
            f"only its LUKS mapping {foreign_name(mapper.label)} is on it, and no process was seen "
            "with that open"
        )
    return Outcome(against=against, prevented_by=prevented_by, evidence=(evidence,))


def luks_mapper(candidate: Candidate) -> BlockHolder | None:
    """Return the LUKS mapping of the volume, if the unmap steps may close it."""
    holders = stacked_on(candidate.mapping)
    if not candidate.policy.may_unmount_staging or len(holders) != 1:
        return None
    (only,) = holders
    ours = only.kind is BlockHolderKind.LUKS and only.label.startswith(MAPPER_PREFIX)
    return only if ours and only.of == candidate.mapping.kernel_name else None


def is_not_in_kubelet_directories(candidate: Candidate) -> Outcome:
    """4. No staging, publish or block path is mounted; every pod directory of it is a leftover."""
    holder, snapshot = candidate.holder, candidate.snapshot
    not_observed = _not_observed(
        ("kubelet's staging directories", holder.staging),
        ("kubelet's pod directories", holder.pod_volumes),
    )
    leftovers = {leftover.path for leftover in candidate.volume.leftovers}
    complete = kube_index(snapshot.kubernetes).coverage.pods_on(holder.node)
    kube = snapshot.kubernetes
    certain = complete and kube is not None and kube.consistent
    reasons: list[tuple[str, PreventingObject | None]] = [
        (f"a pod directory of it exists: {directory.path}", _pod(candidate, directory.pod_uid))
        for directory in observed_of(holder.pod_volumes)
        if directory.path not in leftovers or not certain
    ]
    staged = staging_mount(candidate)
    mounted = {mount.path for mount in observed_mounts(candidate.mapping)}
    reasons += [
        (f"its staging path is mounted: {foreign_name(mount.path)}", None)
        for mount in observed_of(holder.staging)
        if mount.path in mounted and (staged is None or mount.path != staged.path)
    ]
    evidence = ["no kubelet path is mounted"]
    evidence += [
        f"a leftover, which does not prevent the unmap: {path}" for path in sorted(leftovers)
    ]
    against, prevented_by = _against(not_observed, reasons)
    return Outcome(against=against, prevented_by=prevented_by, evidence=tuple(evidence))


# --------------------------------------------------------------------------------------------------
# 5 to 7: what needs the mapping, what created the image, and what is in progress
# --------------------------------------------------------------------------------------------------


def is_not_needed(candidate: Candidate) -> Outcome:
    """5. No pod on the node needs it or needed it recently.

    Its VolumeAttachment does not exist, is being deleted or is idle. volumesInUse is no condition:
    kubelet also lists a volume that it only waits for (GetVolumesInUse() in
    pkg/kubelet/volumemanager/volume_manager.go@v1.36.3).
    """
    not_observed = (*_pods_not_observed(candidate), *_kubelet(candidate))
    against, prevented_by = _against(not_observed, (*_pods(candidate), *_attachment(candidate)))
    lately = (*_pods_lately(candidate), *_attachment_lately(candidate), *_kubelet_lately(candidate))
    attachment = candidate.holder.attachment
    state = "no VolumeAttachment attaches it to this node"
    if isinstance(attachment, VolumeAttachment):
        leaving = attachment.deleting_since is not None
        state = f"VolumeAttachment {attachment.name} is {'being deleted' if leaving else 'idle'}"
    reason = [f"no pod on {candidate.holder.node} needs it", state]
    if candidate.holder.in_volumes_in_use is True:
        reason.append(f"{candidate.holder.node} still lists it in volumesInUse")
    return Outcome(
        against=against, prevented_by=prevented_by, not_yet=lately, evidence=tuple(reason)
    )


def _pods_not_observed(candidate: Candidate) -> Iterable[str]:
    holder, kube = candidate.holder, candidate.snapshot.kubernetes
    yield from _not_observed(("pods on this node", holder.pods))
    is_node = is_its_node(candidate.snapshot)
    yield from _not_observed((f"whether this machine is Node {holder.node}", is_node))
    if is_node is False:
        yield f"this machine is not Node {holder.node}: their boot ids differ"
    if kube is None or not kube_index(kube).coverage.pods_on(holder.node):
        yield "not every pod of this node was listed"
    elif not kube.consistent:
        yield "pods were read from a cache, not from the API server's store"
    elif not kube.volumes_complete:
        yield "PersistentVolumes were read by name: the image may have others"


def _pods(candidate: Candidate) -> Iterable[tuple[str, PreventingObject | None]]:
    holder = candidate.holder
    pods = observed_of(holder.pods)
    needing = [pod for pod in pods if needs_volumes(pod)]
    if needing:
        first, *others = needing
        cause = PreventingObject(kind="Pod", namespace=first.ref.namespace, name=first.ref.name)
        yield f"needed by {pod_names(pods)}", None if others else cause
    if holder.unknown_pod_uids:
        uid, *more = holder.unknown_pod_uids
        reason = f"a container of pod {uid} uses it, and the API server has no such pod"
        yield reason, None if more else _pod(candidate, uid)


def _pods_lately(candidate: Candidate) -> Iterable[str]:
    remembered = candidate.remembered
    if remembered is None:
        return
    ago = candidate.since(remembered.needed_at)
    if ago is not None and ago < candidate.policy.grace_s:
        yield f"a pod needed it {_seconds(ago)} ago"


def _attachment(candidate: Candidate) -> Iterable[tuple[str, PreventingObject | None]]:
    for reason in _not_observed(("its VolumeAttachment", candidate.holder.attachment)):
        yield reason, None
    for tie in _ties(candidate):
        if age(tie.created_at, candidate.snapshot.observed_at) is None:
            cause = PreventingObject(kind="VolumeAttachment", name=tie.name)
            yield f"VolumeAttachment {tie.name} has no readable creation time", cause


def _ties(candidate: Candidate) -> tuple[VolumeAttachment, ...]:
    """Return the attachments that belong, or may belong, to the volume and are not being deleted.

    After a PV was deleted by force, nothing leads from its attachment to its image.
    """
    own, kube = candidate.holder.attachment, candidate.snapshot.kubernetes
    ties = [own] if isinstance(own, VolumeAttachment) else []
    if candidate.volume.persistent_volume is None and kube is not None:
        # Without the PVs, every attachment to the node may belong to the volume.
        known = {volume.name for volume in observed_of(kube.persistent_volumes)}
        ties += [
            attachment
            for attachment in observed_of(kube.attachments)
            if attachment.node_name == candidate.holder.node
            and attachment.persistent_volume not in known
        ]
    return tuple(tie for tie in ties if tie.deleting_since is None)


def _attachment_lately(candidate: Candidate) -> Iterable[str]:
    remembered = candidate.remembered
    idle_for = candidate.since(remembered.first_seen) if remembered is not None else None
    for tie in _ties(candidate):
        old = age(tie.created_at, candidate.snapshot.observed_at)
        if old is not None and old.total_seconds() < candidate.policy.grace_s:
            yield f"VolumeAttachment {tie.name} is {_seconds(old.total_seconds())} old"
        if idle_for is None or idle_for < candidate.policy.grace_s:
            yield f"VolumeAttachment {tie.name} was not observed idle for the grace period"


def _kubelet(candidate: Candidate) -> Iterable[str]:
    process = kubelet_process(candidate.snapshot)
    yield from _not_observed(("kubelet's process", process))
    if process is None:
        yield "kubelet does not run: when it starts, it may need the volume"
    elif isinstance(process, ProcessRef) and _running_s(process, candidate) is None:
        yield "the start time of kubelet is unknown"


def _kubelet_lately(candidate: Candidate) -> Iterable[str]:
    """Yield a reason if kubelet started recently: kubelet may be about to find the volume.

    After a start it reads the pods' directories (reconstructVolumes() in
    pkg/kubelet/volumemanager/reconciler/reconstruct.go@v1.36.3).
    """
    process = kubelet_process(candidate.snapshot)
    running_s = _running_s(process, candidate) if isinstance(process, ProcessRef) else None
    if running_s is not None and running_s < candidate.policy.grace_s:
        yield f"kubelet started {_seconds(running_s)} ago"


def _running_s(process: ProcessRef, candidate: Candidate) -> float | None:
    running = age(process.started_at, candidate.snapshot.observed_at)
    return None if running is None else running.total_seconds()


def is_kubernetes_own(candidate: Candidate) -> Outcome:
    """6. A PV, a stash, metadata or a name shows that a provisioner created the image."""
    volume = candidate.volume.persistent_volume
    why = f"PersistentVolume {volume.name}" if volume is not None else "its name or metadata"
    against = ("nothing shows that Kubernetes created the image: it may be mapped by hand",)
    return Outcome(
        against=() if candidate.holder.is_kubernetes_managed else against,
        evidence=(f"Kubernetes created the image, according to {why}",),
    )


def is_not_being_changed(candidate: Candidate) -> Outcome:
    """7. No map, unmap, mkfs, fsck, mount or cryptsetup runs on it, and no request hangs."""
    flights = candidate.holder.in_flight
    own = candidate.mapping.server_pid
    reasons: list[tuple[str, PreventingObject | None]] = [
        (f"{process_text(flight.process)} operates on it", _process(candidate, flight.process))
        for flight in observed_of(flights)
        if flight.process.pid != own
    ]
    hung = candidate.mapping.hung_requests
    reasons += [
        (f"a request to Ceph hangs: {foreign(request)}", None) for request in observed_of(hung)
    ]
    against, prevented_by = _against(_not_observed(("processes in flight", flights)), reasons)
    evidence = ["no rbd, mkfs, fsck, mount or cryptsetup process names it"]
    if isinstance(hung, NotObserved):
        evidence.append(f"hung requests cannot be observed here ({hung.reason})")
    return Outcome(against=against, prevented_by=prevented_by, evidence=tuple(evidence))


# --------------------------------------------------------------------------------------------------
# 8 and 9: permission to unmap, and whether everything was observed
# --------------------------------------------------------------------------------------------------


def may_be_done_now(candidate: Candidate) -> Outcome:
    """8. Continuously orphaned for the grace period; under the limit; not frozen; allowed."""
    policy, remembered = candidate.policy, candidate.remembered
    not_observed, reasons = tuple(_guards_not_observed(candidate)), list(_frozen(candidate))
    if not policy.may_unmap:
        reasons.append(("the mode is observe: rbdagent is not allowed to unmap", None))
    verdict = candidate.holder_verdict.verdict
    follows: tuple[str, ...] = ()
    if verdict not in {Verdict.ORPHANED, Verdict.STAGED}:
        follows = (f"the verdict is {verdict}",)
    row = candidate.since(remembered.orphaned_since) if remembered is not None else None
    not_yet: tuple[str, ...] = ()
    if not_observed or reasons or follows:
        not_yet = ()
    elif verdict is Verdict.STAGED and candidate.holder.driver_registered is False:
        # Time does not end this state: kubelet cannot unmount without the driver.
        follows = ("the verdict is Staged, and the CSI driver does not respond",)
    elif verdict is Verdict.STAGED:
        not_yet = ("the verdict is Staged: kubelet or the CSI driver may be between two steps",)
    elif row is None:
        not_yet = ("it was not observed continuously orphaned",)
    elif row < policy.grace_s:
        not_yet = (
            f"orphaned for {_seconds(row)}, and the grace period is {_seconds(policy.grace_s)}",
        )
    observed, history = moment_of(candidate.snapshot), candidate.history
    unmaps = history.unmaps if history else ()
    done = unmaps_of_last_hour(observed_of(unmaps), observed)
    if done >= policy.most_unmaps_an_hour:
        reason = f"{done} unmaps in the last hour, and the limit is {policy.most_unmaps_an_hour}"
        reasons.append((reason, None))
    not_observed += _not_observed(("the record of unmaps", unmaps))
    against, prevented_by = _against(not_observed, reasons)
    evidence = f"continuously orphaned for {_seconds(row or 0)}; {done} unmaps in the last hour"
    return Outcome(
        against=against,
        prevented_by=prevented_by,
        follows=follows,
        not_yet=not_yet,
        evidence=(evidence,),
    )


def unmaps_of_last_hour(unmaps: Iterable[BootTime], now: BootTime | None) -> int:
    """Return the number of unmaps in the last hour, or of all if the present time is unknown."""
    return sum(now is None or now.uptime_s - begun.uptime_s < _HOUR_S for begun in unmaps)


def _guards_not_observed(candidate: Candidate) -> Iterable[str]:
    node, kube = candidate.holder.node_object, candidate.snapshot.kubernetes
    yield from _not_observed(
        ("the file that freezes this node", candidate.switches.freeze_file),
        ("annotations of the Node", node),
    )
    if node is None:
        yield "this node has no Node object"
    if kube is not None and _claim_namespaces(candidate):
        yield from _not_observed(("annotations of the claim's namespace", kube.frozen_namespaces))


def _frozen(candidate: Candidate) -> Iterable[tuple[str, PreventingObject | None]]:
    file, node = candidate.switches.freeze_file, candidate.holder.node_object
    if isinstance(file, str):
        yield f"frozen by the file {file}", None
    if candidate.switches.unwritable:
        yield f"an unmap cannot be recorded: {candidate.switches.unwritable}", None
    frozen = [
        PreventingObject(kind="PersistentVolume", name=volume.name)
        for volume in _volumes(candidate)
        if volume.frozen
    ]
    if isinstance(node, Node) and node.frozen:
        frozen.append(PreventingObject(kind="Node", name=node.name))
    kube = candidate.snapshot.kubernetes
    names = () if kube is None else observed_of(kube.frozen_namespaces)
    frozen += [
        PreventingObject(kind="Namespace", name=name)
        for name in sorted(_claim_namespaces(candidate).intersection(names))
    ]
    for frozen_object in frozen:
        what = (
            f"namespace {frozen_object.name}"
            if frozen_object.kind == "Namespace"
            else str(frozen_object)
        )
        yield f"{what} has the annotation {FREEZE}", frozen_object


def _volumes(candidate: Candidate) -> tuple[PersistentVolume, ...]:
    volumes = (candidate.volume.persistent_volume, *candidate.volume.other_volumes)
    return tuple(volume for volume in volumes if volume is not None)


def _claim_namespaces(candidate: Candidate) -> frozenset[str]:
    return frozenset(volume.claim.namespace for volume in _volumes(candidate) if volume.claim)


def is_fully_observed(candidate: Candidate) -> Outcome:
    """9. Every source was observed just now, without a gap."""
    against = []
    for name, source in candidate.snapshot.sources.named:
        if source.state is not SourceState.OBSERVED:
            against.append(f"{name} was not observed: {source.reason or source.state}")
        # Facts that only debugfs shows count only if they were observed (condition 7).
        against += [
            f"{gap.fact}: not observed ({gap.reason})"
            for gap in source.gaps
            if gap.fact not in _SEPARATE
        ]
    holder, view = candidate.holder, candidate.volume.image_view
    against += _not_observed(("the Ceph blocklist", holder.blocklisted_by))
    if view is None:
        against.append(_image_not_seen(candidate.snapshot))
    else:
        against += _not_observed(("whether its image exists", view.presence))
        against += _not_observed(("the watchers of its image", view.watchers))
    against += _not_fresh(candidate)
    return Outcome(
        against=tuple(against), evidence=("node, Ceph and Kubernetes were all observed",)
    )


def _image_not_seen(snapshot: Snapshot) -> str:
    clusters = () if snapshot.ceph is None else snapshot.ceph.clusters
    failed = [c.name for c in clusters if c.source.state is not SourceState.OBSERVED]
    if len(failed) == len(clusters):
        return "no Ceph cluster answered for its image"
    gap = f"; {', '.join(failed)} did not answer" if failed else ""
    return f"no single cluster was found that has its image{gap}"


def _not_fresh(candidate: Candidate) -> Iterable[str]:
    observed, now = moment_of(candidate.snapshot), candidate.now
    if observed is None:
        yield "the uptime of the node is unknown: so is the age of the snapshot"
    elif now is None:
        yield "the snapshot comes from a file: it does not show the present state"
    elif not 0 <= now.uptime_s - observed.uptime_s <= FRESH_S:
        yield f"the snapshot is {_seconds(now.uptime_s - observed.uptime_s)} old"


# --------------------------------------------------------------------------------------------------
# 10: use that no observation of processes shows
# --------------------------------------------------------------------------------------------------


def has_no_io(candidate: Candidate) -> Outcome:
    """10. Its I/O counters are equal in every observation of the grace period, and now.

    A process that opens, reads and closes the device between two observations appears in neither
    observation. I/O restarts the grace period: the kernel counts I/O, but does not show which
    process caused it (Documentation/block/stat.rst).
    """
    counters = candidate.mapping.io_counters
    if isinstance(counters, NotObserved):
        return Outcome(against=_not_observed(("its I/O counters", counters)))
    completed = ", ".join(
        f"{count} {name}" for name, count in _counts(counters).items() if count is not None
    )
    return Outcome(
        not_yet=tuple(_io_lately(candidate, counters)),
        evidence=(f"no I/O for the grace period: {completed} at every observation",),
    )


def _io_lately(candidate: Candidate, counters: IoCounters) -> Iterable[str]:
    remembered, grace_s = candidate.remembered, candidate.policy.grace_s
    if counters.in_flight > 0:
        yield f"{counters.in_flight} of its requests are in flight"
    if remembered is None or remembered.io_counters is None:
        yield "no earlier observation has its I/O counters"
    elif remembered.io_counters != counters:
        yield f"{_changes(remembered.io_counters, counters)} since the last observation"
    elif remembered.no_io_since is None:
        yield "no observation has found it orphaned and without I/O"
    else:
        quiet_s = candidate.since(remembered.no_io_since)
        if quiet_s is None or quiet_s < grace_s:
            yield _io_text(remembered.last_io, quiet_s or 0.0, grace_s)


def _io_text(observed: ObservedIo | None, quiet_s: float, grace_s: float) -> str:
    quiet, grace = _seconds(quiet_s), _seconds(grace_s)
    if observed is None:
        return f"observed without I/O for {quiet}, and the grace period is {grace}"
    return (
        f"{_changes(observed.before, observed.after)} between {observed.since.at} and "
        f"{observed.at.at}; that I/O,"
        f" {quiet} ago, restarts the grace period ({grace})"
    )


def _changes(before: IoCounters, after: IoCounters) -> str:
    old = _counts(before) | {"requests in flight": before.in_flight}
    new = _counts(after) | {"requests in flight": after.in_flight}
    return ", ".join(
        f"{name} went from {_count(old[name])} to {_count(new[name])}"
        for name in old
        if old[name] != new[name]
    )


def _counts(counters: IoCounters) -> dict[str, int | None]:
    return {
        "reads": counters.reads,
        "writes": counters.writes,
        "discards": counters.discards,
        "flushes": counters.flushes,
    }


def _count(value: int | None) -> str:
    return "not counted" if value is None else str(value)


CONDITIONS: Final[tuple[tuple[str, str, Callable[[Candidate], Outcome]], ...]] = (
    (
        Code.NOT_SURELY_THE_SAME_MAPPING,
        "it is the same mapping as one grace period ago",
        is_the_same,
    ),
    (Code.STILL_MOUNTED, "it is not mounted", is_not_mounted),
    (Code.STILL_HELD_OPEN, "no process and no block device uses it", is_not_open),
    (Code.STILL_IN_KUBELETS_DIRECTORIES, "no kubelet path uses it", is_not_in_kubelet_directories),
    (Code.STILL_WANTED, "no pod and no VolumeAttachment needs it", is_not_needed),
    (Code.NOT_KUBERNETES, "Kubernetes created the image", is_kubernetes_own),
    (Code.AT_WORK, "no operation on it is in progress", is_not_being_changed),
    (Code.NOT_YET_OR_NOT_ALLOWED, "the unmap is allowed now", may_be_done_now),
    (Code.NOT_FULLY_OBSERVED, "every source was observed just now", is_fully_observed),
    (Code.STILL_READ_OR_WRITTEN, "it had no I/O for the grace period", has_no_io),
)
"""Code, requirement and function of each condition, in the order of their numbers."""

_OF_THE_PRESENT: Final = frozenset(
    {
        Code.NOT_SURELY_THE_SAME_MAPPING,
        Code.NOT_YET_OR_NOT_ALLOWED,
        Code.NOT_FULLY_OBSERVED,
        Code.STILL_READ_OR_WRITTEN,
    }
)
"""Conditions that no snapshot file can show: the history on the node, and its present state."""


# --------------------------------------------------------------------------------------------------
# The steps, and what is expected after them
# --------------------------------------------------------------------------------------------------


def _steps(candidate: Candidate) -> tuple[Step, ...]:
    steps = []
    staged, mapper = staging_mount(candidate), luks_mapper(candidate)
    if staged is not None:
        steps.append(Step(kind=StepKind.UMOUNT, subject=staged.path, device=staged.device))
    if mapper is not None:
        steps.append(Step(kind=StepKind.LUKS_CLOSE, subject=mapper.label))
    steps.append(Step(kind=StepKind.UNMAP, subject=candidate.mapping.device))
    return tuple(steps)


def _expects(candidate: Candidate) -> tuple[str, ...]:
    holder = candidate.holder
    if not isinstance(holder.attachment, VolumeAttachment):
        waiting = [pod for pod in candidate.volume.waiting_pods if pod.node_name != holder.node]
        return tuple(
            f"pod {pod.ref} on {pod.node_name}: NodeStage succeeds, because the image is free"
            for pod in waiting
        )
    reason = []
    if holder.attachment.deleting_since is None:
        reason.append(
            f"kubelet on {holder.node} retries NodeUnstage (within 2m2s), finds no mapping, "
            "and removes the volume from volumesInUse"
        )
        if holder.driver_registered is False:
            reason.append(
                f"NodeUnstage needs the CSI driver on {holder.node}, which does not run now"
            )
    reason.append(f"the controller deletes VolumeAttachment {holder.attachment.name}")
    return tuple(reason)


def _seconds(value: float) -> str:
    minutes, seconds = divmod(int(value), 60)
    return f"{minutes}m{seconds}s" if minutes else f"{seconds}s"
