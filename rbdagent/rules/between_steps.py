"""RBD120: kubelet or the driver is between two steps of the volume, or has been for too long."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final, NamedTuple

from rbdagent.codes import Code
from rbdagent.model import (
    CollectScope,
    Finding,
    Holder,
    Recovery,
    Severity,
    Subject,
    Verdict,
    Words,
    observed_of,
    stated,
)
from rbdagent.parse.faults import rank_of
from rbdagent.parse.kubelet import pod_uid_of_path
from rbdagent.parse.recognised import Rank, Recognised
from rbdagent.rules.context import (
    Rule,
    RuleContext,
    finding,
    identity_lines,
    query_again,
    subject_of,
)
from rbdagent.rules.entry import Entry
from rbdagent.rules.facts import (
    is_in_tree,
    kubelet_log,
    kubelet_log_since,
    ownership_begun,
    plugin_log,
)
from rbdagent.rules.node import hanging
from rbdagent.rules.pod_events import (
    decisive_pod_events,
    has_waited,
    is_about_hanging_call,
    waiters,
)
from rbdagent.verdicts.timing import age, age_text
from rbdagent.verdicts.volume_verdict import nodes_of_stale_attachments

if TYPE_CHECKING:
    from collections.abc import Iterator

ENTRIES: Final = (
    Entry(
        Code.BETWEEN_STEPS,
        Severity.INFO,
        "kubelet or the CSI driver is between two steps of this volume.",
        remedy="Wait, then run rbdagent again.",
        recovery=Recovery(actor="kubelet and the CSI driver"),
    ),
)


def between_steps(context: RuleContext) -> Iterator[Finding]:
    """Yield RBD120 for a holder between two steps."""
    staged = [*context.observed_with(Verdict.STAGED)]
    explained = _explained_nodes(context) if staged else set()
    for holder_verdict in staged:
        holder = holder_verdict.holder
        if holder.driver_registered is False or holder.node in explained:
            continue
        advice = _WAIT if _is_published(context, holder) else _advice(context, holder.node)
        yield finding(
            Code.BETWEEN_STEPS,
            subject_of(holder_verdict.holder),
            stated(
                "{holder} is between two steps: {reason}. {}",
                advice.sentence,
                holder=subject_of(holder_verdict.holder),
                reason=holder_verdict.reasons[0],
            ),
            severity=advice.severity,
            remedy=advice.remedy,
            recovery=advice.recovery,
            evidence=(*holder_verdict.reasons, *identity_lines(context, holder_verdict.holder)),
            pods=holder_verdict.pods,
            commands=(query_again(context),),
        )


class _Advice(NamedTuple):
    """Holds what to do about a step that is not done."""

    sentence: Words
    remedy: str = ""
    severity: Severity | None = None
    recovery: Recovery | None = None


_WAIT: Final = _Advice("Wait, then run the command again.")


def _advice(context: RuleContext, node: str | None) -> _Advice:
    """Return what to do about a node between two steps: to wait, only for the time of a step."""
    if next(hanging(context), None) is not None:
        return _Advice("An operation of this step hangs.", _OF_THE_HANG)
    waited = _waited(context, node)
    if waited is None:
        return _WAIT
    if _has_no_line(context, node):
        return _Advice(
            stated(
                "kubelet has reported for {age} that it fails, and its log has no line about this "
                "volume. If its event lists this volume as unmounted, restart kubelet on that "
                "node.",
                age=age_text(waited),
            ),
            _RESTART if is_in_tree(context) else f"{_RESTART} {_IF_NOT}",
            Severity.WARNING,
            Recovery(note="kubelet has logged no step of the volume"),
        )
    return _Advice(
        stated(
            "kubelet has reported for {age} that it fails, and nothing that was observed shows "
            "why: read its log{}.",
            "" if is_in_tree(context) else ", and that of the CSI node plugin",
            age=age_text(waited),
        ),
        _READ_KUBELETS_LOG if is_in_tree(context) else _READ_THE_LOGS,
        Severity.WARNING,
    )


def _has_no_line(context: RuleContext, node: str | None) -> bool:
    """Return whether a log of this node's kubelet, read for long enough, does not name the volume.

    kubelet logs each step of a volume that fails. A kubelet that only waits for the volumes of a
    pod logs no step (kubernetes#72107).
    """
    begun = age(kubelet_log_since(context), context.snapshot.observed_at)
    is_long = begun is not None and begun > _LONG_STEP
    is_silent = is_long and not kubelet_log(context) and not plugin_log(context)
    is_here = node is not None and node == context.here_if_known
    return is_silent and is_here and not _is_of_another(context)


def _is_of_another(context: RuleContext) -> bool:
    """Return whether a pod that waits has an event about a volume: it is of another one.

    Another finding reports one about this volume.
    """
    waiting = {(pod.ref.namespace, pod.ref.name) for pod in waiters(context)}
    return any(
        Recognised.OF_VOLUME.is_in(event.message)
        for event in context.volume.events
        if (event.subject.namespace, event.subject.name) in waiting
    )


_OF_THE_HANG: Final = "Follow the finding about the operation that hangs."
_RESTART: Final = (
    "Restart kubelet on that node: it then reads from the node what is attached and mounted, and "
    "tries again. Pods that run keep running. Do not evict the client of this node from Ceph, nor "
    "delete the claim."
)
_IF_NOT: Final = "If that does not help, restart the pod of the CSI node plugin there."
_READ_KUBELETS_LOG: Final = (
    "Read the log of kubelet on that node: rbdagent reads it as root on the node."
)
_READ_THE_LOGS: Final = (
    "Read the log of kubelet on that node, and that of the CSI node plugin: rbdagent reads both as "
    "root on the node."
)


def _is_published(context: RuleContext, holder: Holder) -> bool:
    """Return whether each pod that waits has the volume at its path: it waits for another one."""
    paths = observed_of(holder.mapping.mounts) if holder.mapping is not None else ()
    there = {pod_uid_of_path(mount.path) for mount in paths}
    waiting = [pod for pod in context.volume.waiting_pods if pod.node_name == holder.node]
    return bool(waiting) and all(pod.ref.uid in there for pod in waiting)


def _explained_nodes(context: RuleContext) -> set[str | None]:
    """Return the nodes on which an event has the cause: a finding about it reports that."""
    found = {
        pod_event.node
        for pod_event in decisive_pod_events(context)
        if rank_of(pod_event.text) is not Rank.GENERAL
    }
    if (begun := ownership_begun(context)) is not None:
        found.add(begun[1].node_name)
    return found


_LONG_STEP: Final = timedelta(minutes=10)
"""kubelet gives a mount about two minutes for each try; a map that waits for Ceph is RBD203."""


def _waited(context: RuleContext, node: str | None) -> timedelta | None:
    """Return for how long kubelet has reported failed mounts on a node; None if not for long."""
    firsts = [
        pod_event.event.first_seen
        for pod_event in decisive_pod_events(context)
        if pod_event.node == node
        and pod_event.event.reason == "FailedMount"
        # RBD203 reports a call that does not return.
        and not is_about_hanging_call(pod_event.text)
    ]
    waited = age(
        min((first for first in firsts if first), default=None), context.snapshot.observed_at
    )
    return waited if waited is not None and waited > _LONG_STEP else None


def attached_not_mapped(context: RuleContext) -> Iterator[Finding]:
    """Yield RBD120 for an attachment of a node that does not have the image mapped.

    The controller detaches a moment after kubelet has reported what it released.
    """
    if context.verdict is not Verdict.STAGED or context.holders_with(Verdict.STAGED):
        return
    attached = observed_of(context.volume.attachments)
    explained = _explained_nodes(context)
    for node in nodes_of_stale_attachments(context.volume, context.snapshot):
        if node in explained:
            # A finding about the failed mount has the cause.
            continue
        attachment = next(found for found in attached if found.node_name == node)
        leaving = attachment.deleting_since
        advice = _advice_without_mapping(context, node)
        yield finding(
            Code.BETWEEN_STEPS,
            Subject.of_node(node),
            stated(
                "{volume} is attached to {node}, but is not mapped there yet, or is not mapped "
                "any more. {}",
                advice.sentence,
                volume=context.name,
                node=node,
            ),
            severity=advice.severity,
            remedy=advice.remedy,
            recovery=advice.recovery,
            evidence=(
                f"VolumeAttachment {attachment.name}: created {attachment.created_at}"
                + (f", being deleted since {leaving}" if leaving else ""),
            ),
            commands=(query_again(context),),
        )


def _advice_without_mapping(context: RuleContext, node: str) -> _Advice:
    """Return what to do about a node that has the volume attached, and no mapping of it."""
    advice = _advice(context, node)
    late = [
        pod
        for pod in waiters(context)
        if pod.node_name == node and has_waited(pod, context.snapshot, _LONG_STEP)
    ]
    if advice is not _WAIT or not late:
        return advice
    return _Advice(
        stated(
            "{pods} waits there for longer than a map takes, and nothing that was observed shows "
            "why: read the log of kubelet, and that of the CSI node plugin.",
            pods=[pod.ref for pod in late],
        ),
        _READ_THE_LOGS,
    )


RULES: Final = (
    Rule(405, attached_not_mapped, CollectScope.LOGS),
    Rule(650, between_steps, CollectScope.LOGS),
)
