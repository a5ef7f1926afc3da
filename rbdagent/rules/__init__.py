"""Rules: functions that produce findings from the joined facts.

A rule is a function from a case to findings: one code, or a family of alternative codes. `RULES` is
the order in which the rules run. Then the findings are sorted only by their weight.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rbdagent.model import Command, Diagnosis, Finding, NotObserved, Severity, Snapshot, Volume
from rbdagent.rules import (
    attach_detach,
    ceph_image,
    coverage_gaps,
    finalizers,
    foreign_clusters,
    holders,
    node,
    node_stage,
    pv_reclaim,
    pvc_lost,
    pvc_pending,
    rwo_contention,
    scheduling,
    target_resolution,
    termination,
)
from rbdagent.rules.context import RuleContext
from rbdagent.verdicts.holder_verdict import judge
from rbdagent.verdicts.timing import GRACE
from rbdagent.verdicts.volume_verdict import target_verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from datetime import timedelta

RULES: Final[tuple[Callable[[RuleContext], Iterator[Finding]], ...]] = (
    holders.not_backed,
    holders.conflict,
    foreign_clusters.from_outside,
    holders.unwatched,
    holders.returned_dirty,
    termination.out_of_service,
    holders.blocklisted,
    holders.dead_nbd,
    holders.lost_pod,
    holders.reported,
    node.driver_down,
    node.kubelet_down,
    holders.pinned,
    holders.orphaned,
    holders.published,
    holders.staging_left,
    rwo_contention.blocked_by_user,
    rwo_contention.once_pod,
    termination.node_down,
    termination.ending,
    termination.unmount_fails,
    holders.running_without_mapping,
    node_stage.turned_read_only,
    node.hanging,
    ceph_image.image_gone,
    ceph_image.ambiguous,
    ceph_image.legacy_lock,
    target_resolution.not_rbd,
    pvc_pending.controller_down,
    pvc_pending.unbound,
    pvc_lost.lost,
    pv_reclaim.released,
    pv_reclaim.bound_elsewhere,
    pv_reclaim.failed,
    pv_reclaim.reserved,
    finalizers.protected,
    pvc_lost.older_volumes,
    scheduling.name_taken,
    scheduling.without_node,
    attach_detach.on_paper,
    attach_detach.idle,
    attach_detach.detach_fails,
    attach_detach.two_attachments,
    target_resolution.duplicate_handle,
    node_stage.driver_wanted,
    attach_detach.attach_fails,
    attach_detach.attach_waits,
    node_stage.map_refused,
    node_stage.lock_not_broken,
    node_stage.told,
    attach_detach.multi_attach,
    holders.foreign,
    node_stage.still_being_used,
    target_resolution.target_not_seen,
    holders.undetermined,
    holders.unknown_whether_nobody,
    ceph_image.watch_lingers,
    ceph_image.lock_of_former_client,
    ceph_image.node_on_blocklist,
    node.device_node_missing,
    node.staged_without_volume_data,
    node.pod_directories_left,
    node.same_name_elsewhere,
    holders.shared,
    holders.between_steps,
    holders.in_use,
    holders.nobody,
    foreign_clusters.named_elsewhere,
    target_resolution.several_volumes,
    coverage_gaps.silence,
    coverage_gaps.sources,
    coverage_gaps.clusters,
    coverage_gaps.gaps,
)

WEIGHT: Final = {
    Severity.CRITICAL: 0,
    Severity.ERROR: 1,
    Severity.WARNING: 2,
    Severity.INFO: 3,
}
MOST_COMMANDS: Final = 5
"""Maximum number of next commands: an operator reads no more at three in the morning."""


def diagnose(use: Volume, snapshot: Snapshot, *, grace: timedelta = GRACE) -> Diagnosis:
    """Judge every holder and the target, and return the verdicts and findings.

    Args:
        use: the image, and all holders and objects that are related to it.
        snapshot: the snapshot from which ``use`` was built.
        grace: the time that kubelet and the controllers have to finish their work.
    """
    judged = tuple(judge(holder, use, snapshot, grace) for holder in use.holders)
    verdict = target_verdict(use, judged, snapshot)
    case = RuleContext(use=use, snapshot=snapshot, judged=judged, verdict=verdict)
    said = dict.fromkeys(finding for rule in RULES for finding in rule(case))
    findings = _with_words(tuple(sorted(said, key=lambda finding: WEIGHT[finding.severity])), case)
    return Diagnosis(
        use=use,
        verdict=verdict,
        holders=judged,
        findings=findings,
        next_commands=next_commands(findings),
    )


def _with_words(findings: tuple[Finding, ...], case: RuleContext) -> tuple[Finding, ...]:
    """Add log lines of the node if they were requested; else their module is not imported."""
    node = case.snapshot.node
    if node is None or isinstance(node.words, NotObserved):
        return findings
    from rbdagent.rules.log_evidence import with_words

    return with_words(findings, node.words, case)


def next_commands(findings: tuple[Finding, ...]) -> tuple[Command, ...]:
    """Return the commands to run now, in order: those of the weightiest finding that has commands.

    Findings of severity INFO count only if there are no others.
    """
    heavy = [item for item in findings if item.severity is not Severity.INFO] or list(findings)
    first = next((item for item in heavy if item.commands), None)
    if first is None:
        return ()
    return first.commands[:MOST_COMMANDS]
