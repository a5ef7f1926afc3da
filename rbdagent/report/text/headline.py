"""The first lines of an answer: the verdict with its cause, and who waits."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from rbdagent.codes import Code
from rbdagent.model import (
    WEIGHT,
    Severity,
    Statement,
    Subject,
    Verdict,
    stated,
)
from rbdagent.report.text.findings import OF_SOURCES
from rbdagent.report.text.layout import enumerated
from rbdagent.report.text.verdicts import WORDS
from rbdagent.rules.context import subject_of
from rbdagent.verdicts.timing import age, age_text
from rbdagent.verdicts.volume_verdict import ORDER

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rbdagent.model import (
        Diagnosis,
        Finding,
        HolderVerdict,
        PersistentVolumeClaim,
        Pod,
        Snapshot,
    )

_MOST_WAITING: Final = 3
"""Maximum of waiting pods in the second line."""

EXPLAINED_BY: Final = {
    Verdict.IN_USE: (Code.POD_LOST_BY_API, Code.IMAGE_RENAMED),
    Verdict.STAGED: (Code.BETWEEN_STEPS,),
    Verdict.ORPHANED: (Code.MAPPING_ORPHANED, Code.STAGING_LEFT_MOUNTED),
    Verdict.PINNED: (Code.MAPPING_PINNED,),
    Verdict.DEAD: (Code.CLIENT_BLOCKLISTED, Code.NBD_PROCESS_GONE),
    Verdict.UNWATCHED: (Code.MAPPING_UNWATCHED,),
    Verdict.SHARED: (Code.VOLUME_SHARED,),
    Verdict.CONFLICT: (Code.VOLUME_CONFLICT,),
    Verdict.FOREIGN: (Code.FOREIGN_HOLDER, Code.CEPH_DAEMON_WATCHES, Code.WATCH_PASSED_BY),
    Verdict.NODE_DOWN: (Code.HOLDER_NODE_DOWN,),
    Verdict.RETURNED_DIRTY: (Code.NODE_RETURNED_DIRTY,),
    Verdict.UNDETERMINED: (Code.HOLDER_UNDETERMINED, Code.TARGET_NOT_SEEN),
    Verdict.FREE: (Code.NO_HOLDER,),
    Verdict.NOT_BACKED: (Code.VOLUME_NOT_BACKED,),
}
"""The findings whose message is the verdict's sentence, with the object that causes it."""

_OF_ITS_HOLDER: Final = {Verdict.UNDETERMINED: (Code.HOLDER_NODE_DOWN,)}
"""The findings that explain a verdict only if their subject is the holder that causes it: here a
client that is probably on a node that is not Ready."""

WITH_FORECAST: Final = frozenset(
    {Code.MAPPING_ORPHANED, Code.MAPPING_PINNED, Code.STAGING_LEFT_MOUNTED}
)
"""Findings whose message repeats their recovery after its first sentence."""


def verdict_word(verdict: Verdict) -> str:
    """Return a verdict in capitals: ``IN USE``."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", str(verdict)).upper()


def findings_of(diagnosis: Diagnosis) -> tuple[Finding, ...]:
    """Return the findings, the weightiest first, without those that repeat a source's line."""
    found = (finding for finding in diagnosis.findings if finding.code not in OF_SOURCES)
    return tuple(sorted(found, key=lambda finding: WEIGHT[finding.severity]))


def culprits_first(diagnosis: Diagnosis) -> tuple[HolderVerdict, ...]:
    """Return the holders, those that cause the verdict on the volume first."""

    def rank(found: HolderVerdict) -> tuple[bool, int]:
        return found.verdict is not diagnosis.verdict, ORDER.index(found.verdict)

    return tuple(sorted(diagnosis.holders, key=rank))


def verdict_finding(diagnosis: Diagnosis) -> Finding | None:
    """Return the finding that explains the verdict; None if no finding does."""
    codes = EXPLAINED_BY.get(diagnosis.verdict, ())
    holders = culprits_first(diagnosis)
    subject = subject_of(holders[0].holder) if holders else None
    of_holder = (*codes, *_OF_ITS_HOLDER.get(diagnosis.verdict, ()))
    found = [finding for finding in diagnosis.findings if finding.code in codes]
    return next(
        (one for one in diagnosis.findings if one.code in of_holder and one.subject == subject),
        None,
    ) or next(iter(found), None)


def verdict_statement(diagnosis: Diagnosis) -> Statement:
    """Return the verdict's sentence if no finding explains it."""
    holders = culprits_first(diagnosis)
    if holders and diagnosis.verdict is holders[0].verdict:
        report = holders[0].reported
        if report is not None and report.reasons:
            # As on the node of the mapping, whose agent reports its device and its reasons.
            return stated(
                "{device} on {node}: {reason}.",
                device=report.device,
                node=holders[0].holder.node,
                reason=report.reasons[0],
            )
        return stated(
            "{holder}: {reason}.",
            holder=subject_of(holders[0].holder),
            reason=holders[0].reasons[0],
        )
    volume = diagnosis.volume
    if volume.image is None and volume.claim is not None and _has_no_volume(volume.claim):
        return stated("Claim {claim} has no volume yet.", claim=volume.claim.ref)
    if volume.image is None and diagnosis.verdict is Verdict.UNDETERMINED:
        return stated(
            "{target} does not lead to an RBD image that could be queried.",
            target=volume.target.argument,
        )
    name = volume.persistent_volume.name if volume.persistent_volume else volume.target.argument
    return stated("{volume}: {}.", WORDS[diagnosis.verdict], volume=name)


def _has_no_volume(claim: PersistentVolumeClaim) -> bool:
    return claim.phase == "Pending" and claim.volume_name is None


def first_lines(
    lead: Finding, diagnosis: Diagnosis, snapshot: Snapshot
) -> tuple[list[str], list[str]]:
    """Return the paragraphs of the headline, and the text for the label Recovery.

    The first paragraph is the cause, the second one the consequence: who waits, else the rest of
    the message, else how it recovers.
    """
    pods = waiting_pods(diagnosis)
    # The line about who waits names these pods.
    is_named = {pod.ref for pod in lead.waiting} == {pod.ref for pod in pods}
    cause, rest = lead.cause, str(lead.statement.rest) if is_named else lead.consequence
    waiting = [*waiting_line(diagnosis, snapshot)]
    recovery = [*_recovery(lead)]
    if _is_step_that_fails(lead, diagnosis):
        # "Wait" is advice for a step that is in progress, not for one that fails.
        return [cause, *waiting], []
    if lead.code == Code.HOLDER_UNDETERMINED:
        # "No holder was observed" is true only together with what was not observed.
        return [f"{cause} {rest}".rstrip(), *waiting], recovery
    if rest and lead.code not in WITH_FORECAST:
        return [cause, *waiting, rest], recovery
    if recovery and not waiting:
        return [cause, f"Recovery: {recovery[0]}."], []
    return [cause, *waiting], recovery


def _is_step_that_fails(lead: Finding, diagnosis: Diagnosis) -> bool:
    return lead.code == Code.BETWEEN_STEPS and any(map(_is_error, diagnosis.findings))


def _is_error(finding: Finding) -> bool:
    return WEIGHT[finding.severity] <= WEIGHT[Severity.ERROR]


def _recovery(lead: Finding) -> Iterator[str]:
    if lead.recovery is not None:
        yield str(lead.recovery)


def waiting_pods(diagnosis: Diagnosis) -> tuple[Pod, ...]:
    """Return the pods that wait for the culprit; a pod on the culprit's own node does not."""
    holders = culprits_first(diagnosis)
    node = holders[0].holder.node if holders else None
    return tuple(pod for pod in diagnosis.volume.waiting_pods if pod.node_name != node or not node)


def waiting_line(diagnosis: Diagnosis, snapshot: Snapshot) -> Iterator[str]:
    """Yield the sentence that names the pods that wait, how long, and the finding about them."""
    pods = waiting_pods(diagnosis)
    if not pods:
        return
    names = [pod.placed for pod in _named(pods)]
    if len(pods) > _MOST_WAITING:
        names.append(f"{len(pods) - _MOST_WAITING} more")
    begun = [pod.placed_at or pod.created_at for pod in pods]
    longest = age(min((time for time in begun if time), default=None), snapshot.observed_at)
    verb = "has waited" if len(pods) == 1 else "have waited"
    duration = "" if longest is None else f" {age_text(longest)}"
    codes = sorted(codes_about(diagnosis, pods))
    code = f" ({', '.join(codes)})" if codes else ""
    yield f"{enumerated(names)} {verb}{duration} for the volume{code}."


def _named(pods: tuple[Pod, ...]) -> tuple[Pod, ...]:
    """Return the waiting pods that the line about them names."""
    return pods[:_MOST_WAITING]


def named_in_headline(lead: Finding | None, diagnosis: Diagnosis) -> frozenset[str]:
    """Return what the headline names: objects, the reasons for a verdict, and the pods that wait.

    Args:
        lead: the finding of the headline; None if no finding explains the verdict.
        diagnosis: the diagnosis.
    """
    waiting = {str(pod.ref) for pod in _named(waiting_pods(diagnosis))}
    if lead is None:
        return verdict_statement(diagnosis).values | waiting
    if lead.code in WITH_FORECAST or _is_step_that_fails(lead, diagnosis):
        return lead.statement.cause.values | waiting
    return lead.statement.values | waiting | {str(pod.ref) for pod in lead.waiting}


def codes_about(diagnosis: Diagnosis, pods: tuple[Pod, ...]) -> frozenset[str]:
    """Return the codes of the findings about the pods that wait."""
    subjects = {Subject.of_pod(pod.ref) for pod in pods}
    return frozenset(
        finding.code for finding in findings_of(diagnosis) if finding.subject in subjects
    )
