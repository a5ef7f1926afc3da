"""RBD100: who uses the volume, and what agents of other nodes report of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rbdagent.codes import Code
from rbdagent.correlate.holders import have_containers_ended
from rbdagent.model import (
    Finding,
    HolderVerdict,
    Recovery,
    Severity,
    Verdict,
    stated,
)
from rbdagent.rules.context import (
    Rule,
    RuleContext,
    at_least,
    entries,
    finding,
    identity_lines,
    query_on_node,
    reported_finding,
    subject_of,
    unknown_finding,
    waiting_elsewhere,
)
from rbdagent.rules.dead_mapping import pods_of_dead_nbd
from rbdagent.rules.entry import Entry
from rbdagent.rules.image_renamed import renamed
from rbdagent.rules.undetermined import of_newer_agent
from rbdagent.rules.unused_mapping import once_released, recovery_of_orphan
from rbdagent.verdicts.evidence import evidence_of
from rbdagent.verdicts.volume_verdict import NOT_BACKED, is_left_behind

if TYPE_CHECKING:
    from collections.abc import Iterator

ENTRIES: Final = (
    Entry(
        Code.IN_USE,
        Severity.INFO,
        "A pod uses the volume, and the volume is mapped on the pod's node as expected.",
        remedy="Nothing to do. To move the volume, delete or scale down the pod that uses it.",
        recovery=None,
    ),
)


def reported(context: RuleContext) -> Iterator[Finding]:
    """Yield what another node's agent reports of its mapping: the same sentence as on that node."""
    for holder_verdict in context.holder_verdicts:
        holder = holder_verdict.holder
        found = reported_finding(holder, context.snapshot)
        if holder.published is None or holder.node is None:
            continue
        if unknown := unknown_finding(holder, context.snapshot):
            yield of_newer_agent(unknown, holder_verdict, context)
        if found is None:
            continue
        is_leading = found.code == NOT_BACKED or holder_verdict.reported is not None
        # Ceph shows here too that the image was renamed, and which image the name leads to.
        is_shown = found.code == Code.IMAGE_RENAMED and subject_of(holder) in {
            one.subject for one in renamed(context)
        }
        if is_leading and not is_shown:
            yield finding(
                Code(found.code),
                subject_of(holder),
                # An argument: another agent has written the sentence.
                stated("{report}", report=found.message),
                waiting=waiting_elsewhere(context, holder.node),
                evidence=(*holder_verdict.reasons, *identity_lines(context, holder)),
                pods=holder_verdict.pods,
                commands=(query_on_node(context, holder.node),),
                severity=at_least(
                    _least_severity(found.code, holder_verdict, context), found.severity
                ),
                recovery=_recovery_elsewhere(holder_verdict),
            )
        for code in holder.published.findings:
            if code in _ALSO_REPORTED and not (is_leading and code == found.code):
                yield finding(
                    Code(code),
                    subject_of(holder),
                    stated(
                        "{device} on {node} has another problem, {code}, as the agent there "
                        "reports.",
                        device=holder.published.device,
                        node=holder.node,
                        code=code,
                    ),
                    waiting=waiting_elsewhere(context, holder.node),
                    evidence=identity_lines(context, holder),
                    commands=(query_on_node(context, holder.node),),
                )


def _least_severity(code: str, holder_verdict: HolderVerdict, context: RuleContext) -> Severity:
    """Return the least severity that the rule of a code gives, whatever another agent reports."""
    if code == Code.NBD_PROCESS_GONE:
        is_unused = is_left_behind(holder_verdict) and not pods_of_dead_nbd(holder_verdict, context)
        return Severity.WARNING if is_unused else entries()[code].severity
    # Of RBD123, it is that of a PV whose image does not exist.
    return Severity.ERROR if code == Code.IMAGE_RENAMED else entries()[code].severity


def _recovery_elsewhere(holder_verdict: HolderVerdict) -> Recovery | None:
    """Return who recovers a holder of another node; None if the entry of the finding has it."""
    match holder_verdict.verdict:
        case Verdict.PINNED:
            return once_released(holder_verdict.holder)[1]
        case Verdict.ORPHANED:
            return recovery_of_orphan(holder_verdict.holder)
        case _:
            return None


_ALSO_REPORTED: Final = frozenset(
    {
        Code.MAPPING_ORPHANED,
        Code.MAPPING_PINNED,
        Code.CLIENT_BLOCKLISTED,
        Code.NBD_PROCESS_GONE,
        Code.MAPPING_UNWATCHED,
        Code.STAGING_LEFT_MOUNTED,
    }
)
"""Codes of a mapping that are shown beside the one that explains the verdict of its agent."""


def in_use(context: RuleContext) -> Iterator[Finding]:
    """Yield RBD100 for a holder that a pod uses as expected."""
    for holder_verdict in context.observed_with(Verdict.IN_USE):
        if (
            holder_verdict.holder.unknown_pod_uids
            and not evidence_of(holder_verdict.holder).running
        ):
            continue
        if context.volume.unbacked and holder_verdict.holder.is_local:
            # The pod's container does not use this device, whatever the API reports.
            continue
        has_ended = have_containers_ended(evidence_of(holder_verdict.holder).running)
        yield finding(
            Code.IN_USE,
            subject_of(holder_verdict.holder),
            stated(
                "{holder} is {}: {reason}.",
                "not free yet" if has_ended else "in use",
                holder=subject_of(holder_verdict.holder),
                reason=holder_verdict.reasons[0],
            ),
            evidence=(*holder_verdict.reasons, *identity_lines(context, holder_verdict.holder)),
            pods=holder_verdict.pods,
            remedy=_OF_AN_ENDED_POD if has_ended else "",
        )


_OF_AN_ENDED_POD: Final = (
    "kubelet unmounts the volume within a minute after the containers have ended. After that, "
    "follow the finding about the pod."
)


RULES: Final = (
    Rule(145, reported),
    Rule(660, in_use),
)
