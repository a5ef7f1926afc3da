"""Pods that wait for a volume, how long they have waited, and their latest events."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from rbdagent.correlate.holders import is_finished, waits_for_volumes
from rbdagent.correlate.index import once
from rbdagent.correlate.volume_names import names_of_volume
from rbdagent.parse.faults import rank_of
from rbdagent.parse.foreign import foreign
from rbdagent.parse.recognised import Rank, Recognised
from rbdagent.rules.context import RuleContext, message_of, quoted
from rbdagent.verdicts.timing import MOVING, RETRY_S, age, age_text, seconds
from rbdagent.verdicts.volume_verdict import pvs_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from rbdagent.model import KubeEvent, ObjectRef, Pod, Snapshot

T = TypeVar("T")

_OF_VOLUMES: Final = frozenset(
    {
        "FailedAttachVolume",
        "FailedBinding",
        "FailedMapVolume",
        "FailedMount",
        "FileSystemResizeFailed",
        "VolumePermissionChangeInProgress",
        "VolumeResizeFailed",
    }
)
"""Reasons of a pod's events that concern its volumes."""
_AFTER_MOUNT: Final = frozenset(
    {
        "BackOff",
        "Created",
        "Failed",
        "FailedCreatePodSandBox",
        "Pulled",
        "Pulling",
        "SandboxChanged",
        "Started",
    }
)
"""Reasons of events that kubelet emits only after the volumes of a pod are mounted. SyncPod waits
for all volumes (WaitForAttachAndMount) before it creates the sandbox, pulls images or restarts a
container (pkg/kubelet/kubelet.go, kuberuntime/kuberuntime_manager.go, events/event.go)."""


class PodEvent(NamedTuple):
    """Holds the most specific event of a waiting pod about this volume."""

    pod: Pod | None
    """None if pods were not observed."""
    event: KubeEvent
    newest: KubeEvent | None = None
    """The newest event, if it is another one: a less specific one."""

    @property
    def text(self) -> str:
        """The message, without the prefix that client-go adds when it combines similar events."""
        return message_of(self.event)

    @property
    def node(self) -> str | None:
        """The node of the pod; None if it is unknown."""
        return self.pod.node_name if self.pod is not None else None


def waiters(context: RuleContext) -> tuple[Pod, ...]:
    """Return the pods that have a node and whose containers cannot start without their volumes."""
    return tuple(
        pod
        for pod in context.volume.waiting_pods
        if pod.node_name is not None and waits_for_volumes(pod)
    )


def waiters_elsewhere(context: RuleContext, node: str | None) -> tuple[Pod, ...]:
    """Return those of :func:`waiters` that are not on a node."""
    return tuple(pod for pod in waiters(context) if pod.node_name != node)


def unscheduled(context: RuleContext) -> tuple[Pod, ...]:
    """Return the pods that get no node for a reason that the scheduler reports, not just now."""
    return tuple(
        pod
        for pod in context.volume.waiting_pods
        if pod.node_name is None and pod.unschedulable and has_waited(pod, context.snapshot, MOVING)
    )


def scheduler_message(pod: Pod) -> str:
    """Return what the scheduler reports about a pod without a node, as evidence."""
    return f"the scheduler: {foreign(pod.unschedulable)}"


def has_waited(pod: Pod, snapshot: Snapshot, least: timedelta) -> bool:
    """Return whether a pod has had its node for at least this long; False if its age is unknown."""
    since = waited(pod, snapshot)
    return since is not None and since >= least


def has_any_waited(pods: Iterable[Pod], snapshot: Snapshot, least: timedelta) -> bool:
    """Return whether one of some pods has waited for at least this long."""
    return any(has_waited(pod, snapshot, least) for pod in pods)


def does_a_pod_start(context: RuleContext) -> bool:
    """Return whether a pod of the volume is about to start, and none has waited for a minute.

    A pod that is deleted before it ran is Pending too: its volume is mapped and formatted first.
    """
    pending = {pod for pod in context.volume.pods if pod.phase == "Pending"} | {
        *context.volume.waiting_pods
    }
    return bool(pending) and not has_any_waited(pending, context.snapshot, MOVING)


def is_about_hanging_call(text: str) -> bool:
    """Return whether a message reports a call of the driver that has not returned.

    The first call has not returned within 2m (pkg/volume/csi/csi_plugin.go@v1.36.3, csiTimeout);
    the driver accepts no other one until it has (internal/util/idlocker.go@52fcb7b of ceph-csi).
    """
    return Recognised.UNDER_WAY.is_in(text) or Recognised.DEADLINE.is_in(text)


def waited(pod: Pod, snapshot: Snapshot) -> timedelta | None:
    """Return how long a pod has had its node or, if that is not recorded, the age of the pod."""
    return age(pod.placed_at or pod.created_at, snapshot.observed_at)


def is_ending_in_time(pod: Pod, context: RuleContext) -> bool:
    """Return whether a pod is being deleted and not overdue.

    ``deletionTimestamp`` is the time of the request plus the grace period.
    """
    over = age(pod.deleting_since, context.snapshot.observed_at)
    return over is not None and over < MOVING


def knows_every_user(context: RuleContext) -> bool:
    """Return whether every pod that uses the volume was observed.

    Without its PV, no claim is known, and so no pod that names the claim.
    """
    volume, coverage = context.volume, context.kube.coverage
    if not pvs_of(volume) and not coverage.volumes(volume.image):
        return False
    return coverage.pods_of(names_of_volume(volume).claims)


def users_on(node: str, context: RuleContext) -> tuple[Pod, ...]:
    """Return the pods on a node that use the volume and have not finished."""
    return tuple(
        pod for pod in context.volume.pods if pod.node_name == node and not is_finished(pod)
    )


def decisive_pod_events(context: RuleContext) -> tuple[PodEvent, ...]:
    """Return the most specific event about this volume, for each pod that still waits.

    Only events of the current attempt count. An attempt ends when kubelet continues with the steps
    that need mounted volumes. If pods were not observed, every pod that has an event may still
    wait.
    """
    return once(context, _decisive_pod_events)


def _decisive_pod_events(context: RuleContext) -> tuple[PodEvent, ...]:
    if not context.kube.coverage.pods:
        by_pod: dict[ObjectRef, list[KubeEvent]] = {}
        for event in context.volume.events:
            _update(by_pod, event.subject, event, context)
        return tuple(PodEvent(None, *decisive_event(events, context)) for events in by_pod.values())
    waiting = {
        (pod.ref.namespace, pod.ref.name): pod
        for pod in context.volume.waiting_pods
        if waits_for_volumes(pod)
    }
    of_pod: dict[Pod, list[KubeEvent]] = {}
    for event in context.volume.events if waiting else ():
        waiter = waiting.get((event.subject.namespace, event.subject.name))
        if waiter is not None and is_of_pod(event, waiter):
            _update(of_pod, waiter, event, context)
    return tuple(PodEvent(pod, *decisive_event(events, context)) for pod, events in of_pod.items())


def _update(
    by_pod: dict[T, list[KubeEvent]], pod: T, event: KubeEvent, context: RuleContext
) -> None:
    """Record an event of a pod, and drop its events once its volumes are mounted.

    Call this with the oldest event first.
    """
    if _is_about_volume(event, context):
        by_pod.setdefault(pod, []).append(event)
    elif pod in by_pod and shows_mounted(event) and _is_newer(event, by_pod[pod][-1]):
        del by_pod[pod]


def decisive_event(
    events: list[KubeEvent], context: RuleContext, *, retry_s: float = RETRY_S
) -> tuple[KubeEvent, KubeEvent | None]:
    """Return the most specific event, and the newest one if that is another.

    A general text never hides another one, whatever their ages: it is repeated beside each error.
    Of two other texts, the newer one counts, unless they are of one round of retries: then the more
    specific one.

    Args:
        events: of one object in one attempt, the oldest first; at least one.
        context: the target.
        retry_s: the longest interval between two retries.
    """
    newest = events[-1]
    if len(events) == 1:
        return newest, None
    ranked = [(event, rank_of(message_of(event))) for event in events]
    step = next((found for event in reversed(events) if (found := _step(event))), "")
    telling = [
        (event, rank)
        for place, (event, rank) in enumerate(ranked)
        if rank is not Rank.GENERAL
        and _step(event) in {"", step}
        and not _is_overtaken(event, events[place + 1 :], context)
    ]
    if not telling:
        return newest, None
    latest = telling[-1][0].last_seen
    of_one_round = [
        (rank, place)
        for place, (event, rank) in enumerate(telling)
        if not _has_retried(event.last_seen, latest, retry_s)
    ]
    event = telling[max(of_one_round)[1]][0]
    return event, None if event is newest else newest


def _has_retried(earlier: str | None, later: str | None, retry_s: float) -> bool:
    """Return whether a retry came in between: an error that persists is repeated."""
    between = age(earlier, later) if later is not None else None
    return between is not None and between > 2 * seconds(retry_s)


def _step(event: KubeEvent) -> str:
    """Return the call of kubelet or a controller that failed; empty if a text names none."""
    if event.reason == "FailedAttachVolume":
        return "AttachVolume"
    if event.reason == "VolumePermissionChangeInProgress":
        return "SetUp"
    found = Recognised.STEP.named_in(message_of(event))
    return found["step"] if found is not None else ""


_ONE_CAUSE: Final = timedelta(minutes=15)
_BEFORE_A_CALL: Final = (
    Recognised.SECRET_MISSING,
    Recognised.SECRET_WITHOUT_NAMESPACE,
    Recognised.ONE_POD_ONLY,
    Recognised.SELINUX,
    Recognised.NODE_AFFINITY,
    Recognised.CLAIM_OF_POD,
    Recognised.WRONG_MODE,
    Recognised.NOT_THE_CLAIMS,
)
"""What prevents kubelet from calling the driver."""


def _is_overtaken(event: KubeEvent, later: list[KubeEvent], context: RuleContext) -> bool:
    """Return whether a later observation contradicts an event."""
    text = message_of(event)
    texts = [message_of(newer) for newer in later]
    is_answered = any(Recognised.DRIVER_ANSWERED.is_in(newer) for newer in texts)
    is_called = is_answered or any(Recognised.DEADLINE.is_in(newer) for newer in texts)
    if any(before.is_in(text) for before in _BEFORE_A_CALL):
        return is_called
    if Recognised.DRIVER_NOT_REGISTERED.is_in(text) or Recognised.DRIVER_SILENT.is_in(text):
        return is_answered
    view = context.volume.image_view
    if Recognised.IN_USE.is_in(text) and view is not None and view.watchers == ():
        return is_called
    if Recognised.FLATTENING.is_in(text) and view is not None and view.tasks == ():
        return is_called
    return any(_is_another_call(event, newer) for newer in later)


def _is_another_call(event: KubeEvent, newer: KubeEvent) -> bool:
    """Return whether a call that still runs began long after an event.

    Its own error will be another event. Within this time, the calls of one cause alternate.
    """
    runs = is_about_hanging_call(message_of(newer))
    between = age(event.last_seen, newer.last_seen) if newer.last_seen is not None else None
    return runs and between is not None and between > _ONE_CAUSE


def shows_mounted(event: KubeEvent) -> bool:
    """Return whether kubelet emits this event only for a pod whose volumes are mounted."""
    if event.kind != "Pod" or event.reporter != "kubelet" or event.reason not in _AFTER_MOUNT:
        return False
    return not Recognised.BEFORE_MOUNT.is_in(event.message)


def _is_newer(event: KubeEvent, other: KubeEvent) -> bool:
    """Return whether an event is newer; the order of events within one second is unknown."""
    if event.last_seen is None or other.last_seen is None:
        return False
    return event.last_seen > other.last_seen


def decisive_pod_event(context: RuleContext, is_meant: Callable[[str], bool]) -> PodEvent | None:
    """Return the newest of these events whose text matches; None without one."""
    found = [pod_event for pod_event in decisive_pod_events(context) if is_meant(pod_event.text)]
    return max(found, key=lambda pod_event: pod_event.event.last_seen or "", default=None)


def is_of_pod(event: KubeEvent, pod: Pod) -> bool:
    """Return whether an event is of this pod, not of an earlier pod with the same name.

    The pods of a StatefulSet keep their names.
    """
    if event.subject.uid is not None and pod.ref.uid is not None:
        return event.subject.uid == pod.ref.uid
    return (event.last_seen or "9") >= (pod.created_at or "")


def _is_about_volume(event: KubeEvent, context: RuleContext) -> bool:
    """Return whether an event may be about this volume, and not only about others of the pod."""
    if event.kind != "Pod" or event.reason not in _OF_VOLUMES:
        return False
    named = Recognised.OF_VOLUME.search(message_of(event))
    volumes = {volume.name for volume in pvs_of(context.volume)}
    return named is None or not volumes or named["name"] in volumes


def pod_event_evidence(pod_event: PodEvent, context: RuleContext) -> tuple[str, ...]:
    """Quote an event and state its age: an event remains after its cause has gone."""
    since = age(pod_event.event.last_seen, context.snapshot.observed_at)
    times = f"{pod_event.event.count} times, last " if pod_event.event.count > 1 else ""
    lines = (quoted(pod_event.event), f"reported {times}{age_text(since)} ago")
    return lines if pod_event.newest is None else (*lines, quoted(pod_event.newest))
