"""The Event on a pod that waits for its volume: who holds the volume, and the command to run next.

`kubectl describe pod` is where an incident begins. The Events of Kubernetes there report that the
volume is attached or used elsewhere, and not by which client.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rbdagent.agent.sent_event import SentEvent, event_message
from rbdagent.commands import PROGRAM, command, reached_as, text_of
from rbdagent.correlate.index import kube_index
from rbdagent.model import Verdict, observed_of
from rbdagent.parse.foreign import foreign_name
from rbdagent.verdicts.timing import MOVING, age

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rbdagent.agent.cycle import CycleResult
    from rbdagent.model import BlockedVolume, Holder, Pod, Snapshot

REASON: Final = "RBDVolumeHeld"
REPEAT_S: Final = 1800.0
"""The API server deletes an Event an hour after its last change (--event-ttl of kube-apiserver): an
Event about a pod that still waits is repeated before that."""
MOST: Final = 32
"""Events of one cycle. The others follow in later cycles: a tenant may create many pods."""
_PODS: Final = 2
"""Pods that an Event names."""

_STATES: Final = {
    Verdict.IN_USE: "{where} uses it{pods}",
    Verdict.STAGED: "it is still staged{on}, and no pod uses it there",
    Verdict.ORPHANED: "it is still mapped{on}, and nothing there uses it",
    Verdict.PINNED: "it is still mapped{on}, and something there keeps the device open",
    Verdict.DEAD: "it is mapped{on} by a client whose I/O fails",
    Verdict.UNWATCHED: "it is mapped read-write{on} without a watch: do not start a second writer",
    Verdict.RETURNED_DIRTY: (
        "it is still mapped{on}, a node that was taken for lost and returned without a reboot"
    ),
    Verdict.NODE_DOWN: "{where} holds it, and that node is not Ready",
    Verdict.FOREIGN: "{where} holds it, and Kubernetes did not map it there",
    Verdict.STALE_ATTACHMENT: (
        "a VolumeAttachment attaches it to {where}, and no client watches its image"
    ),
    Verdict.UNDETERMINED: "{where} holds it, and whether it still needs it was not observed",
}
"""What holds the volume, by the verdict on the holder; without times, which change each cycle."""


class WaitingEvents:
    """Selects the Events about waiting pods that are due: new ones, and old ones to repeat."""

    def __init__(self, program: Sequence[str] = PROGRAM) -> None:
        """Start without a written Event.

        Args:
            program: the words that start rbdagent in the place of the reader.
        """
        self._program = program
        self._written: dict[SentEvent, float] = {}
        """When each Event was written last."""

    def due(self, now: CycleResult) -> tuple[SentEvent, ...]:
        """Return the Events to write now.

        A cause that alternates repeats no Event: its earlier Event is still there.
        """
        self._written = {event: at for event, at in self._written.items() if now.at - at < REPEAT_S}
        found = waiting_events(now, self._program)
        return tuple(event for event in found if event not in self._written)[:MOST]

    def answered(self, event: SentEvent, now: CycleResult) -> None:
        """Record that the API server accepted or refused an Event of :meth:`due`."""
        self._written[event] = now.at


def waiting_events(result: CycleResult, program: Sequence[str] = PROGRAM) -> tuple[SentEvent, ...]:
    """Return an Event for each pod of this node and each volume that the pod waits for.

    A pod has no Event while no client and no VolumeAttachment was observed that holds its volume: a
    source that failed holds nothing. The longest wait comes first.

    Args:
        result: the cycle.
        program: the words that start rbdagent in the place of the reader.
    """
    found = [pair for pair in _held(result) if _has_waited(pair[0], result.snapshot)]
    found.sort(
        key=lambda pair: (_since(pair[0]) or "", str(pair[0].ref), pair[1].persistent_volume)
    )
    return tuple(_event(pod, blocked, program) for pod, blocked in found)


def is_about_to_be_reported(result: CycleResult) -> bool:
    """Return whether a pod waits for a held volume, and not yet long enough for an Event."""
    return any(not _has_waited(pod, result.snapshot) for pod, _ in _held(result))


def _held(result: CycleResult) -> list[tuple[Pod, BlockedVolume]]:
    """Return the waiting pods with their volumes for which a holder was observed."""
    if not result.blocked:
        return []
    pods = {
        (pod.ref.namespace, pod.ref.name): pod
        for pod in kube_index(result.snapshot.kubernetes).pods
    }
    return [
        (pod, blocked)
        for blocked in result.blocked
        if (pod := pods.get((blocked.namespace, blocked.pod))) is not None and _is_observed(blocked)
    ]


def _is_observed(blocked: BlockedVolume) -> bool:
    """Return whether something was observed that holds the volume."""
    return blocked.holder is not None or blocked.cause is Verdict.STALE_ATTACHMENT


def _since(pod: Pod) -> str | None:
    return pod.placed_at or pod.created_at


def _has_waited(pod: Pod, snapshot: Snapshot) -> bool:
    """Return whether a pod has waited longer than a move without a problem takes."""
    waited = age(_since(pod), snapshot.observed_at)
    return waited is not None and waited >= MOVING


def _event(pod: Pod, blocked: BlockedVolume, program: Sequence[str]) -> SentEvent:
    state = _STATES.get(blocked.cause, _STATES[Verdict.UNDETERMINED])
    where = _where(blocked)
    is_probable = blocked.holder is not None and blocked.holder.is_node_probable
    text = state.format(
        where=f"a client probably on {where}" if is_probable else where or "a client",
        on=f"{' probably' if is_probable else ''} on {where}" if where else "",
        pods=_pods(blocked.holder, blocked.namespace),
    )
    target = f"pvc/{blocked.claim}" if blocked.claim else f"pv/{blocked.persistent_volume}"
    scope = ("-n", blocked.namespace) if blocked.claim else ()
    ask = command("rbdagent who-holds", target, options=scope)
    return SentEvent(
        kind="Pod",
        namespace=pod.ref.namespace,
        name=pod.ref.name,
        uid=pod.ref.uid or "",
        reason=REASON,
        message=event_message(
            f"The pod waits for volume {blocked.persistent_volume}: {text} ({blocked.cause}). "
            f"Next: {text_of(reached_as(program, ask))}"
        ),
        warns=True,
    )


def _where(blocked: BlockedVolume) -> str:
    """Return the node, the device and the client that hold a volume, as far as they are known."""
    holder = blocked.holder
    if holder is None:
        return blocked.holder_node or ""
    mapped = holder.mapping or holder.published
    parts = [mapped.device] if mapped is not None else []
    if holder.watcher is not None:
        parts.append(f"client.{holder.watcher.client} at {holder.watcher.address}")
    known = ", ".join(parts)
    if blocked.holder_node is None:
        return known
    return f"{blocked.holder_node} ({known})" if known else blocked.holder_node


def _pods(holder: Holder | None, namespace: str) -> str:
    """Return the pods of a namespace that use the volume, as the end of a sentence.

    Pods of other namespaces are not named: who may read this Event may not read those.
    """
    if holder is None:
        return ""
    names = {str(pod.ref) for pod in observed_of(holder.pods)}
    names.update(holder.published.pods if holder.published is not None else ())
    own = sorted(name for name in names if name.startswith(f"{namespace}/"))[:_PODS]
    return f", in pod {', '.join(map(foreign_name, own))}" if own else ""
