"""Everything that is stuck in a cluster: unhealthy objects, and the causes that several share.

The rules are the same as for a single target. Each object is diagnosed on the part of the snapshot
that concerns it.
"""

from __future__ import annotations

import re
from itertools import groupby
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from rbdagent.codes import Code
from rbdagent.correlate import correlate
from rbdagent.correlate.index import Index, index_of
from rbdagent.correlate.resolve import about
from rbdagent.lifecycle.steps import lifecycle_of
from rbdagent.lifecycle.targets import EVERYTHING, Scope, subjects_of
from rbdagent.lifecycle.triage import Triage
from rbdagent.model import (
    AGE,
    WEIGHT,
    AffectedObject,
    Argument,
    Cause,
    ClusterReport,
    Finding,
    HolderVerdict,
    Lifecycle,
    LifecycleStep,
    Node,
    Pod,
    Severity,
    Snapshot,
    Subject,
    Target,
    TargetKind,
    Verdict,
    Volume,
    VolumeAttachment,
    first_unobserved,
    observed_of,
)
from rbdagent.rules import FINDINGS, coverage_gaps, next_commands
from rbdagent.rules.context import RuleContext
from rbdagent.rules.node import of_node
from rbdagent.rules.pod_events import has_any_waited
from rbdagent.verdicts.timing import AGES, MOVING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_LEFT_OUT: Final = "*"
_PUNCTUATION: Final = ".,:;()[]{}\"'"
_KINDS: Final = (
    TargetKind.CLAIM,
    TargetKind.DEVICE,
    TargetKind.IMAGE,
    TargetKind.PERSISTENT_VOLUME,
    TargetKind.POD,
)
"""If several objects have the same findings, the object of the first of these kinds is reported."""
_OF_NODE: Final = frozenset({Code.CSI_DRIVER_DOWN, Code.KUBELET_DOWN})
"""The driver or kubelet of a node is down. Volumes that are in use there continue to work."""
_UNSEEN: Final = Code.HOLDER_UNDETERMINED
_OMITTED: Final = frozenset({Code.FOREIGN_HOLDER, _UNSEEN})
"""Not reported for a device or image without a PV: mappings outside Kubernetes are out of scope."""


def report_cluster(snapshot: Snapshot, scope: Scope = EVERYTHING) -> ClusterReport:
    """Return everything that is stuck, the worst first.

    Args:
        snapshot: a snapshot of the whole cluster, see `CollectScope.EVERYTHING`.
        scope: the namespace and labels of the volumes to diagnose.
    """
    index = index_of(snapshot)
    subjects, suspicion = subjects_of(index, scope), Triage(index)
    suspects = (target for target in subjects.targets if suspicion.falls_on(target))
    affected = without_repetition(affected_objects(index, suspects))
    return ClusterReport(
        causes=_causes(affected),
        findings=(*_of_node(snapshot, affected), *_of_sources(snapshot)),
        claims=subjects.claims,
        volumes=subjects.volumes,
        pods=subjects.pods,
        others=subjects.others,
    )


def missing_objects_reason(snapshot: Snapshot) -> str | None:
    """Return why objects that are stuck may be missing; None if all objects were observed."""
    kube = snapshot.kubernetes
    if kube is None:
        return snapshot.sources.kubernetes.reason or "Kubernetes was not queried"
    unseen = first_unobserved((kube.claims, kube.pods, kube.persistent_volumes))
    return None if unseen is None else unseen.reason


def is_complete(found: ClusterReport) -> bool:
    """Return whether everything requested was observed.

    A source that was skipped on request has a finding of severity INFO and does not count.
    """
    return all(
        finding.severity is Severity.INFO
        for finding in found.findings
        if finding.code in coverage_gaps.CODES
    )


def is_empty(found: ClusterReport) -> bool:
    """Return whether no object was in scope: the name of the namespace may be misspelled."""
    return not (found.claims or found.volumes or found.pods or found.others)


def affected_objects(index: Index, targets: Iterable[Target]) -> Iterator[AffectedObject]:
    """Yield the targets that have a finding of severity WARNING or above."""
    for target in targets:
        part = about(target, index.snapshot)
        lifecycle = among_all(lifecycle_of(correlate(part), part), part)
        serious = serious_findings(lifecycle)
        if serious:
            yield AffectedObject(
                life=lifecycle, finding=serious[0], since=_since(lifecycle, serious[0])
            )


def among_all(lifecycle: Lifecycle, snapshot: Snapshot) -> Lifecycle:
    """Return a lifecycle without the findings that the list reports once or does not report."""
    omitted = coverage_gaps.CODES | coverage_gaps.OF_ONE_VOLUME | _omitted(lifecycle, snapshot)
    kept = tuple(
        finding
        for finding in lifecycle.findings
        if finding.code not in omitted and not _is_of_node(finding, snapshot)
    )
    diagnosis = replace(lifecycle.diagnosis, findings=kept, next_commands=next_commands(kept))
    return replace(lifecycle, diagnosis=diagnosis)


def _is_of_node(finding: Finding, snapshot: Snapshot) -> bool:
    """Return whether a finding is about the observed node and no volume there waits for its fix."""
    node = snapshot.node
    return (
        node is not None
        and finding.code in _OF_NODE
        and finding.subject == Subject.of_node(node.node_name)
        and finding.severity is Severity.WARNING
    )


def _of_node(snapshot: Snapshot, affected: Iterable[AffectedObject]) -> tuple[Finding, ...]:
    """Return the findings about the observed node that are not the cause of a stuck volume."""
    causes = {(cause.finding.code, cause.finding.subject) for cause in affected}
    return tuple(
        finding for finding in of_node(snapshot) if (finding.code, finding.subject) not in causes
    )


def _omitted(lifecycle: Lifecycle, snapshot: Snapshot) -> frozenset[str]:
    volume = lifecycle.diagnosis.volume
    if volume.target.kind in {TargetKind.DEVICE, TargetKind.IMAGE}:
        return _OMITTED
    holding = [
        holder_verdict.holder
        for holder_verdict in lifecycle.diagnosis.holders
        if not holder_verdict.holder.transient
    ]
    is_held = any(holder.mapping or holder.watcher or holder.published for holder in holding)
    waits = has_any_waited(volume.waiting_pods, snapshot, MOVING)
    # Without a pod that waits, it does not matter that the holders are unknown.
    return frozenset() if is_held or waits else frozenset({_UNSEEN})


def serious_findings(lifecycle: Lifecycle) -> tuple[Finding, ...]:
    """Return the findings for which a lifecycle is reported."""
    return tuple(finding for finding in lifecycle.findings if finding.severity is not Severity.INFO)


def _of_sources(snapshot: Snapshot) -> tuple[Finding, ...]:
    volume = Volume(target=snapshot.target, image=None, image_view=None, persistent_volume=None)
    context = RuleContext(
        volume=volume, snapshot=snapshot, holder_verdicts=(), verdict=Verdict.UNDETERMINED
    )
    findings = (
        *coverage_gaps.sources(context),
        *coverage_gaps.clusters(context),
        *coverage_gaps.gaps(context),
    )
    return tuple(sorted(dict.fromkeys(findings), key=lambda finding: WEIGHT[finding.severity]))


def without_repetition(affected: Iterable[AffectedObject]) -> list[AffectedObject]:
    """Return the objects without those whose findings an object of an earlier kind already has."""
    kept: list[AffectedObject] = []
    reported: set[Finding] = set()
    by_kind = sorted(affected, key=_kind_order)
    for _, of_kind in groupby(by_kind, key=_kind_order):
        new = [item for item in of_kind if not reported.issuperset(serious_findings(item.life))]
        reported.update(finding for item in new for finding in serious_findings(item.life))
        kept += new
    return kept


def _kind_order(affected: AffectedObject) -> int:
    return _KINDS.index(affected.life.diagnosis.volume.target.kind)


# --------------------------------------------------------------------------------------------------
# Start times
# --------------------------------------------------------------------------------------------------


def _since(lifecycle: Lifecycle, finding: Finding) -> str | None:
    """Return the earliest time since which a volume is stuck, based on the step of its finding."""
    volume, step = lifecycle.diagnosis.volume, FINDINGS[finding.code].step
    claim, persistent_volume, pod = volume.claim, volume.persistent_volume, lifecycle.pod
    moments: list[str | None] = []
    if claim is not None:
        waits = step in {LifecycleStep.PROVISION, LifecycleStep.BIND, LifecycleStep.SCHEDULE}
        moments += [claim.created_at if waits else claim.deleting_since]
    if persistent_volume is not None and step in {LifecycleStep.RELEASE, LifecycleStep.RECLAIM}:
        moments += [persistent_volume.deleting_since, persistent_volume.phase_since]
    if step is LifecycleStep.DETACH:
        moments += [_detaching_since(observed_of(volume.attachments))]
    moments += [_first(waiter.created_at for waiter in volume.waiting_pods)]
    moments += [
        _first(_since_of_holder(holder_verdict) for holder_verdict in lifecycle.diagnosis.holders)
    ]
    moments += [None if pod is None else pod.deleting_since]
    return next((moment for moment in moments if moment is not None), None)


def _since_of_holder(holder_verdict: HolderVerdict) -> str | None:
    """Return since when the holder's node is down or its agent reports the same verdict."""
    holder = holder_verdict.holder
    if isinstance(holder.node_object, Node) and holder.node_object.ready is not True:
        return holder.node_object.ready_changed_at
    return None if holder.published is None else holder.published.since


def _first(moments: Iterable[str | None]) -> str | None:
    return min((moment for moment in moments if moment is not None), default=None)


def _detaching_since(attachments: Iterable[VolumeAttachment]) -> str | None:
    return _first(attachment.deleting_since for attachment in attachments)


# --------------------------------------------------------------------------------------------------
# Shared causes
# --------------------------------------------------------------------------------------------------


def _causes(stuck: Iterable[AffectedObject]) -> tuple[Cause, ...]:
    """Group objects by cause. Data in danger comes first, then the cause of most objects."""
    by_cause: dict[tuple[str, ...], list[AffectedObject]] = {}
    for item in stuck:
        by_cause.setdefault(_cause_of(item), []).append(item)
    causes = [
        Cause(finding=affected[0].finding, affected=tuple(affected))
        for affected in (sorted(group, key=_place) for group in by_cause.values())
    ]
    return tuple(sorted(causes, key=_cause_order))


def _place(affected: AffectedObject) -> tuple[str, str]:
    target = affected.life.diagnosis.volume.target
    return (target.namespace, target.argument)


def _cause_order(cause: Cause) -> tuple[int, int, str, tuple[str, str]]:
    return (
        WEIGHT[cause.finding.severity],
        -len(cause.affected),
        cause.finding.code,
        _place(cause.affected[0]),
    )


def _cause_of(affected: AffectedObject) -> tuple[str, ...]:
    """Return the key of a cause: the code of its finding, and its subject or statement.

    If the finding is about another object (a node, a Deployment), its subject is a part of the key.
    The rest is the statement without the object's own names and ages: objects with the same key
    have the same cause. One object never gives another one its advice: about one node, "set the
    taint" and "that machine may write" are two causes.
    """
    own, finding = _own_names(affected), affected.finding
    subject = str(finding.subject)
    about = subject if _nameless(subject, own) == subject else ""
    return finding.code, about, *(_shared(part, own) for part in finding.statement.parts)


def _shared(part: str | Argument, own: frozenset[str]) -> str:
    """Return a part of a statement as all objects with the same cause have it.

    The text of an error names the object itself, and times.
    """
    if isinstance(part, str):
        return part
    if part.name == AGE:
        return _LEFT_OUT
    return re.sub(AGES, _LEFT_OUT, _nameless(str(part), own))


def _nameless(text: str, own: frozenset[str]) -> str:
    return " ".join(_LEFT_OUT if word.strip(_PUNCTUATION) in own else word for word in text.split())


def _own_names(affected: AffectedObject) -> frozenset[str]:
    lifecycle, volume = affected.life, affected.life.diagnosis.volume
    volumes = (volume.persistent_volume, *volume.other_volumes)
    pods = (lifecycle.pod, *volume.waiting_pods, *_pods_of_holders(lifecycle))
    names = {
        persistent_volume.name for persistent_volume in volumes if persistent_volume is not None
    }
    claims = {
        persistent_volume.claim for persistent_volume in volumes if persistent_volume is not None
    }
    names |= {str(claim) for claim in claims if claim is not None}
    names |= {str(pod.ref) for pod in pods if pod is not None}
    names |= {attachment.name for attachment in observed_of(volume.attachments)}
    names |= (
        set() if volume.claim is None else {str(volume.claim.ref), volume.claim.volume_name or ""}
    )
    names |= set() if volume.image is None else {str(volume.image.spec), volume.image.spec.name}
    return frozenset(
        {*names, volume.target.argument, f"{volume.target.namespace}/{volume.target.name}"}
    )


def _pods_of_holders(lifecycle: Lifecycle) -> Iterator[Pod]:
    for holder_verdict in lifecycle.diagnosis.holders:
        yield from observed_of(holder_verdict.holder.pods)
