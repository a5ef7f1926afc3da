"""How urgent each stuck object is, which pods wait for it, and the node where the problem is."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Final

from rbdagent.correlate.holders import needs_volumes
from rbdagent.correlate.index import kube_index
from rbdagent.correlate.volume_names import names_of_volume
from rbdagent.lifecycle.steps import BACK
from rbdagent.model import (
    Severity,
    SubjectKind,
    Verdict,
)
from rbdagent.rules import FINDINGS
from rbdagent.rules.context import subject_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rbdagent.model import AffectedObject, ClusterReport, KubeView, Pod

_UNUSED: Final = frozenset({Verdict.ORPHANED, Verdict.PINNED, Verdict.STAGED})
"""Verdicts on a holder that no pod uses. The verdict Dead leaves that open."""


class Urgency(StrEnum):
    """The group of a stuck object, the most urgent first."""

    AT_RISK = "data at risk"
    """Its finding is critical."""
    BLOCKED = "blocked"
    """A pod waits for it."""
    OTHER = "other"
    """A pod or another client uses it, or it is not known whether a pod waits."""
    LEFTOVER = "leftovers"
    """Its pods were observed: none waits for it, and none uses it."""


def by_urgency(
    found: ClusterReport, kube: KubeView | None
) -> Mapping[Urgency, tuple[tuple[AffectedObject, ...], ...]]:
    """Return the objects of each group, one tuple for each of their causes, in order."""
    groups: dict[Urgency, list[tuple[AffectedObject, ...]]] = {urgency: [] for urgency in Urgency}
    for cause in found.causes:
        of_cause: dict[Urgency, list[AffectedObject]] = {}
        for affected in cause.affected:
            of_cause.setdefault(urgency_of(affected, kube), []).append(affected)
        for urgency, group in of_cause.items():
            groups[urgency].append(tuple(group))
    return {urgency: tuple(causes) for urgency, causes in groups.items()}


def urgency_of(affected: AffectedObject, kube: KubeView | None) -> Urgency:
    """Return the group of an object. It is a leftover only if its pods were observed."""
    if affected.finding.severity is Severity.CRITICAL:
        return Urgency.AT_RISK
    if waiting_for(affected):
        return Urgency.BLOCKED
    is_left = (
        are_pods_known(affected, kube) and not pods_affected(affected) and _is_unused(affected)
    )
    return Urgency.LEFTOVER if is_left else Urgency.OTHER


def waiting_for(affected: AffectedObject) -> tuple[Pod, ...]:
    """Return the pods that wait for an object; a pod that is being deleted does not wait."""
    pod, waiting = affected.life.pod, affected.life.diagnosis.volume.waiting_pods
    if waiting or pod is None or pod.phase != "Pending" or pod.deleting_since:
        return waiting
    return (pod,)


def pods_affected(affected: AffectedObject) -> tuple[Pod, ...]:
    """Return the pods that use an object or need it, and have not finished."""
    pod, pods = affected.life.pod, affected.life.diagnosis.volume.pods
    known = pods or (() if pod is None else (pod,))
    return tuple(user for user in known if needs_volumes(user))


def are_pods_known(affected: AffectedObject, kube: KubeView | None) -> bool:
    """Return whether every pod that may use an object was observed."""
    return kube_index(kube).coverage.pods_of(names_of_volume(affected.life.diagnosis.volume).claims)


def _is_unused(affected: AffectedObject) -> bool:
    holders = affected.life.diagnosis.holders
    return all(holder.verdict in _UNUSED for holder in holders if not holder.holder.transient)


def node_of(affected: AffectedObject) -> str | None:
    """Return the node where the problem is; None if it is on no node, or on an unknown one.

    That is the node in the finding's subject. Without one, it is the node that has not released the
    volume, the node of a holder, or the node of the pod.
    """
    life, subject = affected.life, affected.finding.subject
    holders = [found.holder for found in life.diagnosis.holders]
    if subject.kind is SubjectKind.NODE:
        return subject.node
    nodes = [holder.node for holder in holders if subject_of(holder) == subject]
    if FINDINGS[affected.finding.code].step in BACK:
        nodes += [path.node for path in life.detach_paths]
    nodes += [holder.node for holder in holders]
    nodes += [life.pod.node_name] if life.pod is not None else []
    return next((node for node in nodes if node is not None), None)
