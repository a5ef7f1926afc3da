"""Everything that is stuck: the life of whoever may be in trouble, and what many wait for at once.

Each is judged by the same rules as a single target, on the part of the look that concerns it.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from rbdagent.catalog import CATALOG
from rbdagent.correlate import correlate
from rbdagent.correlate.parts import part_of
from rbdagent.correlate.whole import Whole, whole_of
from rbdagent.diagnose import WEIGHT, next_commands, unseen
from rbdagent.diagnose.case import Case
from rbdagent.diagnose.life import life_of
from rbdagent.diagnose.node import of_node
from rbdagent.diagnose.subjects import EVERYTHING, Scope, subjects_of
from rbdagent.diagnose.suspects import Suspicion
from rbdagent.diagnose.times import AGES, MOVING
from rbdagent.diagnose.waiting import has_waited
from rbdagent.model import (
    Attachment,
    Cause,
    Finding,
    JudgedHolder,
    Life,
    LifeList,
    LifeStep,
    Node,
    NotObserved,
    Pod,
    Severity,
    Snapshot,
    Stuck,
    Target,
    TargetKind,
    Verdict,
    VolumeUse,
    observed_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_AROUND: Final = ".,:;()[]{}\"'"
_KINDS: Final = (
    TargetKind.CLAIM,
    TargetKind.DEVICE,
    TargetKind.IMAGE,
    TargetKind.PERSISTENT_VOLUME,
    TargetKind.POD,
)
"""By which name one and the same trouble is told: the first of these that it has."""
_OF_NODE: Final = frozenset({"RBD201", "RBD202"})
"""A node whose driver or kubelet is down: of volumes that are in use there it stops none."""
_UNSEEN: Final = "RBD119"
_UNTOLD: Final = frozenset({"RBD115", _UNSEEN})
"""Of what is no PV's: somebody's own mapping is his own affair."""


def stuck_in(snapshot: Snapshot, scope: Scope = EVERYTHING) -> LifeList:
    """Give everything that is stuck, the worst first.

    Args:
        snapshot: a look at all that there is, see :data:`rbdagent.model.Also.EVERYTHING`.
        scope: whose volumes are asked about.
    """
    whole = whole_of(snapshot)
    subjects, suspicion = subjects_of(whole, scope), Suspicion(whole)
    suspects = (each for each in subjects.targets if suspicion.falls_on(each))
    stuck = without_repetition(lives_that_are_stuck(whole, suspects))
    return LifeList(
        causes=_causes(stuck),
        findings=(*_of_node(snapshot, stuck), *_of_sources(snapshot)),
        claims=subjects.claims,
        volumes=subjects.volumes,
        pods=subjects.pods,
        others=subjects.others,
    )


def unseen_of(snapshot: Snapshot) -> str | None:
    """Give why nobody could tell that nothing is stuck; None: all that there is was seen."""
    kube = snapshot.kubernetes
    if kube is None:
        return snapshot.sources.kubernetes.reason or "Kubernetes was not asked"
    parts = (kube.claims, kube.pods, kube.persistent_volumes)
    return next((each.reason for each in parts if isinstance(each, NotObserved)), None)


def is_complete(found: LifeList) -> bool:
    """Tell whether all was observed that was to be; what was left out on purpose is mentioned."""
    return all(
        finding.severity is Severity.INFO
        for finding in found.findings
        if finding.code in unseen.CODES
    )


def is_empty(found: LifeList) -> bool:
    """Tell whether there was nothing to look at: who named a namespace may have mistyped it."""
    return not (found.claims or found.volumes or found.pods or found.others)


def lives_that_are_stuck(whole: Whole, targets: Iterable[Target]) -> Iterator[Stuck]:
    """Give those targets of which the rules say something at warning or above."""
    for each in targets:
        part = part_of(whole, each)
        life = among_all(life_of(correlate(part, whole.here.directories), part), part)
        serious = serious_findings(life)
        if serious:
            yield Stuck(life=life, finding=serious[0], since=_since(life, serious[0]))


def among_all(life: Life, snapshot: Snapshot) -> Life:
    """Leave out what a list says once, of the look as a whole, and what is no trouble in it."""
    untold = unseen.CODES | unseen.OF_ONE_VOLUME | _untold(life, snapshot)
    told = tuple(
        finding
        for finding in life.findings
        if finding.code not in untold and not _is_of_node(finding, snapshot)
    )
    diagnosis = replace(life.diagnosis, findings=told, next_commands=next_commands(told))
    return replace(life, diagnosis=diagnosis)


def _is_of_node(finding: Finding, snapshot: Snapshot) -> bool:
    """Return whether it is wrong with the node that looked, and keeps no volume there waiting."""
    node = snapshot.node
    return (
        node is not None
        and finding.code in _OF_NODE
        and finding.subject == f"node {node.node_name}"
        and finding.severity is Severity.WARNING
    )


def _of_node(snapshot: Snapshot, stuck: Iterable[Stuck]) -> tuple[Finding, ...]:
    """Return what is wrong with the node that looked, once, unless a volume waits for just that."""
    causes = {(cause.finding.code, cause.finding.subject) for cause in stuck}
    return tuple(
        finding for finding in of_node(snapshot) if (finding.code, finding.subject) not in causes
    )


def _untold(life: Life, snapshot: Snapshot) -> frozenset[str]:
    use = life.diagnosis.use
    if use.target.kind in {TargetKind.DEVICE, TargetKind.IMAGE}:
        return _UNTOLD
    holding = [each.holder for each in life.diagnosis.holders if not each.holder.passing]
    is_held = any(holder.mapping or holder.watcher or holder.published for holder in holding)
    waits = any(has_waited(each, snapshot, MOVING) for each in use.waiting_pods)
    # Whether anybody holds what nobody waits for, nobody has asked.
    return frozenset() if is_held or waits else frozenset({_UNSEEN})


def serious_findings(life: Life) -> tuple[Finding, ...]:
    """Give the findings for which a life is told of."""
    return tuple(each for each in life.findings if each.severity is not Severity.INFO)


def _of_sources(snapshot: Snapshot) -> tuple[Finding, ...]:
    use = VolumeUse(target=snapshot.target, image=None, image_view=None, persistent_volume=None)
    case = Case(use=use, snapshot=snapshot, judged=(), verdict=Verdict.UNDETERMINED)
    told = (*unseen.sources(case), *unseen.clusters(case), *unseen.gaps(case))
    return tuple(sorted(dict.fromkeys(told), key=lambda each: WEIGHT[each.severity]))


def without_repetition(stuck: Iterable[Stuck]) -> list[Stuck]:
    """Leave out PVs and pods of which nothing is said that is not said of a claim, or before."""
    told: list[Stuck] = []
    said: set[Finding] = set()
    by_kind = sorted(stuck, key=_place_of_kind)
    for _, alike in groupby(by_kind, key=_place_of_kind):
        new = [each for each in alike if not said.issuperset(serious_findings(each.life))]
        said.update(finding for each in new for finding in serious_findings(each.life))
        told += new
    return told


def _place_of_kind(stuck: Stuck) -> int:
    return _KINDS.index(stuck.life.diagnosis.use.target.kind)


# --------------------------------------------------------------------------------------------------
# Since when
# --------------------------------------------------------------------------------------------------


def _since(life: Life, finding: Finding) -> str | None:
    """Give since when at the earliest a life stands still, by what stands in its way."""
    use, step = life.diagnosis.use, CATALOG[finding.code].step
    claim, volume, pod = use.claim, use.persistent_volume, life.pod
    moments: list[str | None] = []
    if claim is not None:
        waits = step in {LifeStep.PROVISION, LifeStep.BIND, LifeStep.SCHEDULE}
        moments += [claim.created_at if waits else claim.deleting_since]
    if volume is not None and step in {LifeStep.RELEASE, LifeStep.RECLAIM}:
        moments += [volume.deleting_since, volume.phase_since]
    if step is LifeStep.DETACH:
        moments += [_leaving(observed_of(use.attachments))]
    moments += [_first(each.created_at for each in use.waiting_pods)]
    moments += [_first(_since_of_holder(each) for each in life.diagnosis.holders)]
    moments += [None if pod is None else pod.deleting_since]
    return next((each for each in moments if each is not None), None)


def _since_of_holder(judged: JudgedHolder) -> str | None:
    """Give since when its node is down, or its agent says what it says."""
    holder = judged.holder
    if isinstance(holder.node_object, Node) and holder.node_object.ready is not True:
        return holder.node_object.ready_changed_at
    return None if holder.published is None else holder.published.since


def _first(moments: Iterable[str | None]) -> str | None:
    return min((each for each in moments if each is not None), default=None)


def _leaving(attachments: Iterable[Attachment]) -> str | None:
    return _first(each.deleting_since for each in attachments)


# --------------------------------------------------------------------------------------------------
# What many wait for
# --------------------------------------------------------------------------------------------------


def _causes(stuck: Iterable[Stuck]) -> tuple[Cause, ...]:
    """Put together who waits for the same; data in danger comes first, then whoever has most."""
    found: dict[tuple[str, str], list[Stuck]] = {}
    for each in stuck:
        found.setdefault(_cause_of(each), []).append(each)
    causes = [
        Cause(finding=each[0].finding, victims=tuple(each))
        for each in (sorted(each, key=_place) for each in found.values())
    ]
    return tuple(sorted(causes, key=_badness))


def _place(stuck: Stuck) -> tuple[str, str]:
    target = stuck.life.diagnosis.use.target
    return (target.namespace, target.given)


def _badness(cause: Cause) -> tuple[int, int, str, tuple[str, str]]:
    return (
        WEIGHT[cause.finding.severity],
        -len(cause.victims),
        cause.finding.code,
        _place(cause.victims[0]),
    )


def _cause_of(stuck: Stuck) -> tuple[str, str]:
    """Give what tells a cause from others: its code, and what it is about.

    Where a finding is about something that is not the victim's own (a node, a Deployment), that is
    the cause. Else those wait for the same of whom the same is said but for their names and ages.
    """
    own, finding = _own_names(stuck), stuck.finding
    subject = _nameless(finding.subject, own)
    if subject == finding.subject:
        return finding.code, subject
    return finding.code, AGES.sub("*", _nameless(finding.message, own))


def _nameless(text: str, own: frozenset[str]) -> str:
    return " ".join("*" if each.strip(_AROUND) in own else each for each in text.split())


def _own_names(stuck: Stuck) -> frozenset[str]:
    life, use = stuck.life, stuck.life.diagnosis.use
    volumes = (use.persistent_volume, *use.other_volumes)
    pods = (life.pod, *use.waiting_pods, *_pods_of_holders(life))
    names = {each.name for each in volumes if each is not None}
    names |= {str(each.claim) for each in volumes if each is not None and each.claim is not None}
    names |= {str(each.ref) for each in pods if each is not None}
    names |= {each.name for each in observed_of(use.attachments)}
    names |= set() if use.claim is None else {str(use.claim.ref), use.claim.volume_name or ""}
    names |= set() if use.image is None else {str(use.image.spec), use.image.spec.name}
    return frozenset({*names, use.target.given, f"{use.target.namespace}/{use.target.name}"})


def _pods_of_holders(life: Life) -> Iterator[Pod]:
    for each in life.diagnosis.holders:
        yield from observed_of(each.holder.pods)
