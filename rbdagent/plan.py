"""Whether a mapping may be unmapped: ten conditions, all of which must hold.

Each condition is one function, one code and one table of tests. It looks at what was observed and
never at another condition's outcome or at the verdict alone: an error in one place must not be
enough. A fact that was not observed is a condition that does not hold.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct

from rbdagent.correlate.local import MAPPER_PREFIX, mounts_of, pod_uid_of_path, server_pid
from rbdagent.correlate.names import knows_every_pod_on
from rbdagent.diagnose.evidence import (
    is_staging_path,
    pod_names,
    said_of_mount,
    said_of_opener,
    said_of_process,
    said_of_stacked,
)
from rbdagent.diagnose.times import age
from rbdagent.history import identity_of, is_needed, moment_of
from rbdagent.model import (
    Attachment,
    BlockHolder,
    BlockHolderKind,
    Condition,
    DeviceKind,
    History,
    Holder,
    IoCounters,
    JudgedHolder,
    KubeletView,
    Mapping,
    Moment,
    Mount,
    MountKind,
    Node,
    NotObserved,
    ObservedIo,
    Policy,
    ProcessRef,
    Remembered,
    Snapshot,
    SourceState,
    Step,
    StepKind,
    Switches,
    UnmapPlan,
    UnmapRefusal,
    Verdict,
    VolumeUse,
    observed_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

FREEZE: Final = "rbdagent.dev/freeze"
FRESH_S: Final = 30.0
"""A look that is older than this proves nothing of now."""
_HOUR_S: Final = 3600.0
_DEBUGFS: Final = "the kernel's own list of watches and hung requests"


class Attempt(Struct, frozen=True, kw_only=True):
    """One mapping that somebody would like to be gone, and all that is known of it."""

    judged: JudgedHolder
    use: VolumeUse
    snapshot: Snapshot
    history: History | None
    policy: Policy
    switches: Switches
    now: Moment | None
    """When the decision is made; None where the look is replayed from a file."""

    @property
    def holder(self) -> Holder:
        """The client whose mapping it is."""
        return self.judged.holder

    @property
    def mapping(self) -> Mapping:
        """The mapping itself; an attempt is made on this node's own mappings only."""
        mapping = self.judged.holder.mapping
        assert mapping is not None  # noqa: S101 - plan_unmap() looked
        return mapping

    @property
    def remembered(self) -> Remembered | None:
        """What earlier looks saw of exactly this mapping."""
        identity = identity_of(self.mapping)
        known = self.history.mappings if self.history is not None else ()
        return next((each for each in known if each.identity == identity), None)

    def since(self, then: Moment | None) -> float | None:
        """Give the seconds from a remembered moment to the look; None where one is unknown."""
        look = moment_of(self.snapshot)
        return None if then is None or look is None else look.uptime_s - then.uptime_s


class Outcome(Struct, frozen=True, kw_only=True):
    """What a condition's function says: what speaks against it, else what speaks for it."""

    against: tuple[str, ...] = ()
    not_yet: tuple[str, ...] = ()
    """What speaks against it, and will not any more when time has passed."""
    speaks: tuple[str, ...] = ()


def plan_unmap(
    judged: JudgedHolder,
    use: VolumeUse,
    snapshot: Snapshot,
    *,
    history: History | None,
    policy: Policy,
    switches: Switches,
    now: Moment | None,
) -> UnmapPlan | UnmapRefusal:
    """Give the plan for a mapping of the node that looked, or every reason against one.

    Args:
        judged: the mapping's holder; one that is no mapping of this node is refused.
        use: the image that it holds.
        snapshot: the look that both come from.
        history: what earlier looks saw, that look included; None: there were none.
        policy: what rbdagent is allowed.
        switches: what forbids every act.
        now: when the decision is made; None for a look from a file.
    """
    node = snapshot.node.node_name if snapshot.node is not None else "this node"
    volume = use.persistent_volume.name if use.persistent_volume is not None else None
    if judged.holder.mapping is None or not judged.holder.is_local:
        elsewhere = Condition(
            number=1,
            code=CONDITIONS[0][0],
            demands=CONDITIONS[0][1],
            met=False,
            observed=(f"it is no mapping of {node}: rbdagent unmaps on its own node only",),
        )
        return UnmapRefusal(
            node=node, identity=None, persistent_volume=volume, conditions=(elsewhere,)
        )
    attempt = Attempt(
        judged=judged,
        use=use,
        snapshot=snapshot,
        history=history,
        policy=policy,
        switches=switches,
        now=now,
    )
    conditions = tuple(
        _condition(number, code, demands, holds(attempt))
        for number, (code, demands, holds) in enumerate(CONDITIONS, start=1)
    )
    identity, counters = identity_of(attempt.mapping), attempt.mapping.io_counters
    if isinstance(counters, NotObserved) or not all(each.met for each in conditions):
        return UnmapRefusal(
            node=node, identity=identity, persistent_volume=volume, conditions=conditions
        )
    return UnmapPlan(
        node=node,
        identity=identity,
        persistent_volume=volume,
        steps=_steps(attempt),
        conditions=conditions,
        expects=_expects(attempt),
        io_counters=counters,
    )


def _condition(number: int, code: str, demands: str, outcome: Outcome) -> Condition:
    return Condition(
        number=number,
        code=code,
        demands=demands,
        met=not outcome.against and not outcome.not_yet,
        observed=(*outcome.against, *outcome.not_yet) or outcome.speaks,
        passes=bool(outcome.not_yet) and not outcome.against,
    )


def _unseen(*facts: tuple[str, object]) -> tuple[str, ...]:
    return tuple(
        f"{what}: not observed ({fact.reason})"
        for what, fact in facts
        if isinstance(fact, NotObserved)
    )


# --------------------------------------------------------------------------------------------------
# 1 to 4: the mapping itself
# --------------------------------------------------------------------------------------------------


def is_the_same(attempt: Attempt) -> Outcome:
    """1. The same mapping of the same image in two looks a grace period apart, and now."""
    mapping, remembered = attempt.mapping, attempt.remembered
    against = list(_unseen(("its image", mapping.spec)))
    if mapping.kind is not DeviceKind.KRBD:
        against.append(f"{mapping.device} is no krbd device: its rbd-nbd process must be told")
    parts = {
        "the cluster's fsid": mapping.fsid,
        "the pool's id": mapping.pool_id,
        "the client's id": mapping.client_id,
        "the kernel's number of this very device": mapping.incarnation,
    }
    against += [f"{what} is unknown" for what, value in parts.items() if value is None]
    image = attempt.use.image
    if image is None or (image.fsid is not None and image.fsid != mapping.fsid):
        against.append("the image that was looked up is not the one that is mapped")
    not_yet: tuple[str, ...] = ()
    speaks = [f"{mapping.device} is {mapping.spec} since the first look"]
    if remembered is None:
        not_yet = ("no earlier look saw this mapping: one look has no history",)
    else:
        seen_for = attempt.since(remembered.first_seen) or 0.0
        speaks.append(f"first seen at {remembered.first_seen.at}")
        if seen_for < attempt.policy.grace_s:
            not_yet = (
                (
                    f"first seen {_seconds(seen_for)} ago, and two looks must lie"
                    f" {_seconds(attempt.policy.grace_s)} apart"
                ),
            )
    return Outcome(against=tuple(against), not_yet=not_yet, speaks=tuple(speaks))


def is_mounted_nowhere(attempt: Attempt) -> Outcome:
    """2. No mount in any namespace, no bind of the device node, no live file system."""
    mapping = attempt.mapping
    staged = staging_mount(attempt)
    mounts = [each for each in mounts_of(mapping) if staged is None or not _copies(each, staged)]
    traces = () if isinstance(mapping.kernel_traces, NotObserved) else mapping.kernel_traces
    against = _unseen(
        ("mounts in all mount namespaces", mapping.mounts),
        ("live file systems in the kernel", mapping.kernel_traces),
    )
    against += tuple(said_of_mount(each) for each in mounts)
    if staged is None:
        against += tuple(f"the kernel has a live file system on it: {each}" for each in traces)
    speaks = "mounted nowhere, and the kernel has no file system on it"
    if staged is not None:
        speaks = f"its staging mount {staged.path} is the only one, and may be unmounted"
    return Outcome(against=against, speaks=(speaks,))


def staging_mount(attempt: Attempt) -> Mount | None:
    """Give the one staging mount that the staged ladder may unmount."""
    if not attempt.policy.may_unmount_staging:
        return None
    on_host = [each for each in mounts_of(attempt.mapping) if each.namespace.is_host]
    if len(on_host) != 1 or on_host[0].kind is not MountKind.FILE_SYSTEM:
        return None
    (only,) = on_host
    if not is_staging_path(only.path) or pod_uid_of_path(only.path) is not None:
        return None
    return only


def _copies(mount: Mount, of: Mount) -> bool:
    """Tell whether a mount is that one, or what other namespaces have as its copy.

    A copy that does not go with it is seen by the look after umount, and stops the ladder there.
    """
    return mount.path == of.path and mount.device == of.device and mount.kind is of.kind


def is_kept_open_by_nobody(attempt: Attempt) -> Outcome:
    """3. Nothing is stacked on it, and no process has it, or anything on it, open."""
    mapping = attempt.mapping
    against = _unseen(
        ("device-mapper, loop and swap on it", mapping.holders),
        ("processes that have it open", mapping.openers),
    )
    mapper = luks_mapper(attempt)
    stacked = () if isinstance(mapping.holders, NotObserved) else mapping.holders
    openers = () if isinstance(mapping.openers, NotObserved) else mapping.openers
    against += tuple(said_of_stacked(each) for each in stacked if each != mapper)
    against += tuple(said_of_opener(each) for each in openers)
    speaks = "no process has it open, and nothing is stacked on it"
    if mapper is not None:
        speaks = f"only its LUKS mapping {mapper.label} is on it, which nobody has open"
    return Outcome(against=against, speaks=(speaks,))


def luks_mapper(attempt: Attempt) -> BlockHolder | None:
    """Give the volume's own LUKS mapping, where the staged ladder may close it."""
    holders = attempt.mapping.holders
    if not attempt.policy.may_unmount_staging or isinstance(holders, NotObserved):
        return None
    if len(holders) != 1:
        return None
    (only,) = holders
    ours = only.kind is BlockHolderKind.LUKS and only.label.startswith(MAPPER_PREFIX)
    return only if ours and only.of == attempt.mapping.kernel_name else None


def is_nowhere_in_kubelets_directories(attempt: Attempt) -> Outcome:
    """4. No mounted staging, publish or block path; a pod's directory only as a leftover."""
    holder, snapshot = attempt.holder, attempt.snapshot
    against = list(
        _unseen(
            ("kubelet's staging directories", holder.staging),
            ("kubelet's pod directories", holder.pod_volumes),
        )
    )
    leftovers = {each.path for each in attempt.use.leftovers}
    directories = () if isinstance(holder.pod_volumes, NotObserved) else holder.pod_volumes
    complete = knows_every_pod_on(snapshot.kubernetes, holder.node or "")
    kube = snapshot.kubernetes
    certain = complete and kube is not None and kube.consistent
    against += [
        f"a pod's directory of it is there: {each.path}"
        for each in directories
        if each.path not in leftovers or not certain
    ]
    staged = staging_mount(attempt)
    mounted = {each.path for each in mounts_of(attempt.mapping)}
    staging = () if isinstance(holder.staging, NotObserved) else holder.staging
    against += [
        f"its staging path is mounted: {each.path}"
        for each in staging
        if each.path in mounted and (staged is None or each.path != staged.path)
    ]
    speaks = ["no path of kubelet's is mounted"]
    speaks += [f"left over, and refuses nothing: {each}" for each in sorted(leftovers)]
    return Outcome(against=tuple(against), speaks=tuple(speaks))


# --------------------------------------------------------------------------------------------------
# 5 to 7: whose it is, and who is at work
# --------------------------------------------------------------------------------------------------


def is_wanted_by_nobody(attempt: Attempt) -> Outcome:
    """5. No pod on the node needs it, now or lately; no attachment but none, leaving or idle."""
    against = (*_pods(attempt), *_attachment(attempt), *_kubelet(attempt))
    lately = (*_pods_lately(attempt), *_attachment_lately(attempt), *_kubelet_lately(attempt))
    attachment = attempt.holder.attachment
    state = "no VolumeAttachment ties it to this node"
    if isinstance(attachment, Attachment):
        leaving = attachment.deleting_since is not None
        state = f"VolumeAttachment {attachment.name} is {'being deleted' if leaving else 'idle'}"
    said = [f"no pod on {attempt.holder.node} needs it", state]
    if attempt.holder.in_volumes_in_use is True:
        said.append(f"{attempt.holder.node} still lists it in volumesInUse")
    return Outcome(against=against, not_yet=lately, speaks=tuple(said))


def _pods(attempt: Attempt) -> Iterable[str]:
    holder, kube = attempt.holder, attempt.snapshot.kubernetes
    yield from _unseen(("pods on this node", holder.pods))
    if kube is None or not knows_every_pod_on(kube, holder.node or ""):
        yield "not every pod of this node was listed"
    elif not kube.consistent:
        yield "pods were read from a cache, not from the API server's store"
    elif not kube.volumes_complete:
        yield "PersistentVolumes were asked for by name: the image may have others"
    if not isinstance(holder.pods, NotObserved) and is_needed(holder):
        yield f"needed by {pod_names(holder.pods)}"
    if holder.lost_pod_uids:
        yield f"a container of pod {holder.lost_pod_uids[0]} runs on it, which the API has lost"


def _pods_lately(attempt: Attempt) -> Iterable[str]:
    remembered = attempt.remembered
    if remembered is None:
        return
    ago = attempt.since(remembered.needed_at)
    if ago is not None and ago < attempt.policy.grace_s:
        yield f"a pod needed it {_seconds(ago)} ago"


def _attachment(attempt: Attempt) -> Iterable[str]:
    yield from _unseen(("its VolumeAttachment", attempt.holder.attachment))
    for each in _ties(attempt):
        if age(each.created_at, attempt.snapshot.observed_at) is None:
            yield f"VolumeAttachment {each.name} does not tell how old it is"


def _ties(attempt: Attempt) -> tuple[Attachment, ...]:
    """Give the attachments that nobody deletes: the volume's own, and those that may be its own.

    A PV that was deleted by force takes the way from an attachment to its image with it.
    """
    own, kube = attempt.holder.attachment, attempt.snapshot.kubernetes
    ties = [own] if isinstance(own, Attachment) else []
    if attempt.use.persistent_volume is None and kube is not None:
        volumes, attachments = kube.persistent_volumes, kube.attachments
        known = {each.name for each in (() if isinstance(volumes, NotObserved) else volumes)}
        ties += [
            each
            for each in (() if isinstance(attachments, NotObserved) else attachments)
            if each.node_name == attempt.holder.node and each.persistent_volume not in known
        ]
    return tuple(each for each in ties if each.deleting_since is None)


def _attachment_lately(attempt: Attempt) -> Iterable[str]:
    remembered = attempt.remembered
    idle_for = attempt.since(remembered.first_seen) if remembered is not None else None
    for each in _ties(attempt):
        old = age(each.created_at, attempt.snapshot.observed_at)
        if old is not None and old.total_seconds() < attempt.policy.grace_s:
            yield f"VolumeAttachment {each.name} is {_seconds(old.total_seconds())} old"
        if idle_for is None or idle_for < attempt.policy.grace_s:
            yield f"VolumeAttachment {each.name} was not seen idle for the grace period"


def _kubelet(attempt: Attempt) -> Iterable[str]:
    process = _kubelet_process(attempt)
    yield from _unseen(("kubelet's process", process))
    if process is None:
        yield "kubelet does not run: when it starts, it may want the volume"
    elif not isinstance(process, NotObserved) and _running_s(process, attempt) is None:
        yield "kubelet does not tell when it started"


def _kubelet_lately(attempt: Attempt) -> Iterable[str]:
    """A start of kubelet restarts the clock: it may be about to find the volume."""
    process = _kubelet_process(attempt)
    if process is None or isinstance(process, NotObserved):
        return
    running_s = _running_s(process, attempt)
    if running_s is not None and running_s < attempt.policy.grace_s:
        yield f"kubelet started {_seconds(running_s)} ago"


def _kubelet_process(attempt: Attempt) -> ProcessRef | NotObserved | None:
    node = attempt.snapshot.node
    kubelet = node.kubelet if node is not None else NotObserved(reason="no node")
    return kubelet.process if isinstance(kubelet, KubeletView) else kubelet


def _running_s(process: ProcessRef, attempt: Attempt) -> float | None:
    running = age(process.started_at, attempt.snapshot.observed_at)
    return None if running is None else running.total_seconds()


def is_kubernetes_own(attempt: Attempt) -> Outcome:
    """6. A PV, a stash, metadata or a name says that a provisioner made the image."""
    volume = attempt.use.persistent_volume
    why = f"PersistentVolume {volume.name}" if volume is not None else "its name or metadata"
    against = ("nothing says that Kubernetes made it: somebody mapped it by hand",)
    return Outcome(
        against=() if attempt.holder.kubernetes_made else against,
        speaks=(f"Kubernetes made it, by {why}",),
    )


def is_left_in_peace(attempt: Attempt) -> Outcome:
    """7. No map, unmap, mkfs, fsck, mount or cryptsetup at work on it, and no hung request."""
    flights = attempt.holder.in_flight
    against = list(_unseen(("processes in flight", flights)))
    own = server_pid(attempt.mapping)
    against += [
        f"{said_of_process(each.process)} is at work on it"
        for each in (() if isinstance(flights, NotObserved) else flights)
        if each.process.pid != own
    ]
    hung = attempt.mapping.hung_requests
    if not isinstance(hung, NotObserved):
        against += [f"a request to Ceph hangs: {each}" for each in hung]
    speaks = ["no rbd, mkfs, fsck, mount or cryptsetup process names it"]
    if isinstance(hung, NotObserved):
        speaks.append(f"hung requests cannot be seen here ({hung.reason})")
    return Outcome(against=tuple(against), speaks=tuple(speaks))


# --------------------------------------------------------------------------------------------------
# 8 and 9: leave to act, and whether everything was seen
# --------------------------------------------------------------------------------------------------


def may_be_done_now(attempt: Attempt) -> Outcome:
    """8. Orphaned without a break for the grace period, under the limit, not frozen, allowed."""
    policy, remembered = attempt.policy, attempt.remembered
    against = list(_frozen(attempt))
    if not policy.may_unmap:
        against.append("the mode is observe: rbdagent was not allowed to unmap")
    verdict = attempt.judged.verdict
    if verdict not in {Verdict.ORPHANED, Verdict.STAGED}:
        against.append(f"the verdict is {verdict}")
    row = attempt.since(remembered.orphaned_since) if remembered is not None else None
    not_yet: tuple[str, ...] = ()
    if against:
        not_yet = ()
    elif verdict is Verdict.STAGED:
        not_yet = ("kubelet or the CSI driver may be between two steps: it is Staged",)
    elif row is None:
        not_yet = ("it was not seen orphaned without a break",)
    elif row < policy.grace_s:
        not_yet = (
            f"orphaned for {_seconds(row)}, and the grace period is {_seconds(policy.grace_s)}",
        )
    look, history = moment_of(attempt.snapshot), attempt.history
    unmaps = history.unmaps if history else ()
    against += _unseen(("the record of unmaps", unmaps))
    done = unmaps_of_last_hour(observed_of(unmaps), look)
    if done >= policy.most_unmaps_an_hour:
        against.append(
            f"{done} unmaps in the last hour, and the limit is {policy.most_unmaps_an_hour}"
        )
    speaks = f"orphaned without a break for {_seconds(row or 0)}; {done} unmaps in the last hour"
    return Outcome(against=tuple(against), not_yet=not_yet, speaks=(speaks,))


def unmaps_of_last_hour(unmaps: Iterable[Moment], now: Moment | None) -> int:
    """Return how many unmaps were begun in the last hour; without a time all of them count."""
    return sum(now is None or now.uptime_s - begun.uptime_s < _HOUR_S for begun in unmaps)


def _frozen(attempt: Attempt) -> Iterable[str]:
    file = attempt.switches.freeze_file
    yield from _unseen(("the file that freezes this node", file))
    if isinstance(file, str):
        yield f"frozen by the file {file}"
    volumes = (attempt.use.persistent_volume, *attempt.use.other_volumes)
    for volume in volumes:
        if volume is not None and volume.frozen:
            yield f"PersistentVolume {volume.name} carries {FREEZE}"
    node = attempt.holder.node_object
    yield from _unseen(("annotations of the Node", node))
    if isinstance(node, Node) and node.frozen:
        yield f"Node {node.name} carries {FREEZE}"
    if node is None:
        yield "there is no Node object of this node"
    claims = {each.claim.namespace for each in volumes if each is not None and each.claim}
    kube = attempt.snapshot.kubernetes
    if not claims or kube is None:
        return
    frozen = kube.frozen_namespaces
    yield from _unseen(("annotations of the claim's namespace", frozen))
    for name in sorted(claims.intersection(() if isinstance(frozen, NotObserved) else frozen)):
        yield f"namespace {name} carries {FREEZE}"


def is_fully_observed(attempt: Attempt) -> Outcome:
    """9. Every source was observed, without a gap, and just now."""
    against = []
    for name, source in attempt.snapshot.sources.named:
        if source.state is not SourceState.OBSERVED:
            against.append(f"{name} was not observed: {source.reason or source.state}")
        # What debugfs alone shows counts where it is seen (condition 7).
        against += [
            f"{each.fact}: not observed ({each.reason})"
            for each in source.gaps
            if each.fact != _DEBUGFS
        ]
    holder, view = attempt.holder, attempt.use.image_view
    against += _unseen(("the Ceph blocklist", holder.blocklisted_by))
    if view is None:
        against.append("no cluster told of its image")
    else:
        against += _unseen(("whether its image exists", view.presence))
        against += _unseen(("the watchers of its image", view.watchers))
    against += _not_fresh(attempt)
    return Outcome(against=tuple(against), speaks=("node, Ceph and Kubernetes were all observed",))


def _not_fresh(attempt: Attempt) -> Iterable[str]:
    look, now = moment_of(attempt.snapshot), attempt.now
    if look is None:
        yield "the node did not tell its uptime: nobody knows how old the look is"
    elif now is None:
        yield "the look comes from a file: it says nothing of now"
    elif not 0 <= now.uptime_s - look.uptime_s <= FRESH_S:
        yield f"the look is {_seconds(now.uptime_s - look.uptime_s)} old"


# --------------------------------------------------------------------------------------------------
# 10: what no observation of processes shows
# --------------------------------------------------------------------------------------------------


def has_no_io(attempt: Attempt) -> Outcome:
    """10. Its I/O counters are equal at every observation of the grace period, and now.

    A process that opens the device, reads and closes it between two observations is in none of
    them. I/O restarts the grace period: the kernel counts it, and does not record whose it was.
    """
    counters = attempt.mapping.io_counters
    if isinstance(counters, NotObserved):
        return Outcome(against=_unseen(("its I/O counters", counters)))
    completed = ", ".join(
        f"{count} {name}" for name, count in _counts(counters).items() if count is not None
    )
    return Outcome(
        not_yet=tuple(_io_lately(attempt, counters)),
        speaks=(f"no I/O for the grace period: {completed} at every observation",),
    )


def _io_lately(attempt: Attempt, counters: IoCounters) -> Iterable[str]:
    remembered, grace_s = attempt.remembered, attempt.policy.grace_s
    if counters.in_flight > 0:
        yield f"{counters.in_flight} of its requests are in flight"
    if remembered is None or remembered.io_counters is None:
        yield "no earlier observation has its I/O counters"
    elif remembered.io_counters != counters:
        yield f"{_changes(remembered.io_counters, counters)} since the last observation"
    elif remembered.no_io_since is None:
        yield "no observation has found it orphaned and without I/O"
    else:
        quiet_s = attempt.since(remembered.no_io_since)
        if quiet_s is None or quiet_s < grace_s:
            yield _said_of_io(remembered.last_io, quiet_s or 0.0, grace_s)


def _said_of_io(seen: ObservedIo | None, quiet_s: float, grace_s: float) -> str:
    quiet, grace = _seconds(quiet_s), _seconds(grace_s)
    if seen is None:
        return f"observed without I/O for {quiet}, and the grace period is {grace}"
    return (
        f"{_changes(seen.before, seen.after)} between {seen.since.at} and {seen.at.at}; the grace"
        f" period ({grace}) starts again with that I/O, {quiet} ago"
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


CONDITIONS: Final[tuple[tuple[str, str, Callable[[Attempt], Outcome]], ...]] = (
    ("RBD501", "it is the same mapping as a grace period ago", is_the_same),
    ("RBD502", "it is mounted nowhere", is_mounted_nowhere),
    ("RBD503", "nobody keeps it open", is_kept_open_by_nobody),
    ("RBD504", "no path of kubelet's shows it", is_nowhere_in_kubelets_directories),
    ("RBD505", "no pod and no attachment wants it", is_wanted_by_nobody),
    ("RBD506", "Kubernetes made it", is_kubernetes_own),
    ("RBD507", "nobody is at work on it", is_left_in_peace),
    ("RBD508", "it may be done, and now", may_be_done_now),
    ("RBD509", "everything was observed, just now", is_fully_observed),
    ("RBD510", "it has had no I/O for the grace period", has_no_io),
)
"""Code, demand and function of each, in the order of their numbers."""


# --------------------------------------------------------------------------------------------------
# What would be done
# --------------------------------------------------------------------------------------------------


def _steps(attempt: Attempt) -> tuple[Step, ...]:
    steps = []
    staged, mapper = staging_mount(attempt), luks_mapper(attempt)
    if staged is not None:
        steps.append(Step(kind=StepKind.UMOUNT, subject=staged.path))
    if mapper is not None:
        steps.append(Step(kind=StepKind.LUKS_CLOSE, subject=mapper.label))
    steps.append(Step(kind=StepKind.UNMAP, subject=attempt.mapping.device))
    return tuple(steps)


def _expects(attempt: Attempt) -> tuple[str, ...]:
    holder = attempt.holder
    if not isinstance(holder.attachment, Attachment):
        waiting = [each for each in attempt.use.waiting_pods if each.node_name != holder.node]
        return tuple(
            f"pod {each.ref} on {each.node_name}: its NodeStage finds the image free"
            for each in waiting
        )
    said = []
    if holder.attachment.deleting_since is None:
        said.append(
            f"kubelet on {holder.node} retries NodeUnstage (within 2m2s), finds nothing mapped, "
            "and takes the volume out of volumesInUse"
        )
        if holder.driver_registered is False:
            said.append(f"the CSI driver must run on {holder.node} for that, and it does not now")
    said.append(f"the controller deletes VolumeAttachment {holder.attachment.name}")
    return tuple(said)


def _seconds(value: float) -> str:
    minutes, seconds = divmod(int(value), 60)
    return f"{minutes}m{seconds}s" if minutes else f"{seconds}s"
