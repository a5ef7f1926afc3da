"""Rules: functions that produce findings from the joined facts.

A rule is a function from a case to findings: one code, or a family of alternative codes. `RULES` is
the order in which the rules run. Then the findings are sorted only by their weight.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rbdagent.diagnose import (
    attaching,
    ceph,
    elsewhere,
    finalizers,
    holders,
    kubernetes,
    leaving,
    lost,
    mounting,
    node,
    pending,
    reclaiming,
    rivals,
    scheduling,
    unseen,
)
from rbdagent.diagnose.case import RuleContext
from rbdagent.diagnose.target import target_verdict
from rbdagent.diagnose.times import GRACE
from rbdagent.diagnose.verdict import judge
from rbdagent.model import Command, Diagnosis, Finding, NotObserved, Severity, Snapshot, Volume

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from datetime import timedelta

RULES: Final[tuple[Callable[[RuleContext], Iterator[Finding]], ...]] = (
    holders.not_backed,
    holders.conflict,
    elsewhere.from_outside,
    holders.unwatched,
    holders.returned_dirty,
    leaving.out_of_service,
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
    rivals.blocked_by_user,
    rivals.once_pod,
    leaving.node_down,
    leaving.ending,
    leaving.unmount_fails,
    holders.running_without_mapping,
    mounting.turned_read_only,
    node.hanging,
    ceph.image_gone,
    ceph.ambiguous,
    ceph.legacy_lock,
    kubernetes.not_rbd,
    pending.controller_down,
    pending.unbound,
    lost.lost,
    reclaiming.released,
    reclaiming.bound_elsewhere,
    reclaiming.failed,
    reclaiming.reserved,
    finalizers.protected,
    lost.older_volumes,
    scheduling.name_taken,
    scheduling.without_node,
    attaching.on_paper,
    attaching.idle,
    attaching.detach_fails,
    attaching.two_attachments,
    kubernetes.duplicate_handle,
    mounting.driver_wanted,
    attaching.attach_fails,
    attaching.attach_waits,
    mounting.map_refused,
    mounting.lock_not_broken,
    mounting.told,
    attaching.multi_attach,
    holders.foreign,
    mounting.still_being_used,
    kubernetes.target_not_seen,
    holders.undetermined,
    holders.unknown_whether_nobody,
    ceph.watch_lingers,
    ceph.lock_of_former_client,
    ceph.node_on_blocklist,
    node.device_node_missing,
    node.staged_without_volume_data,
    node.pod_directories_left,
    node.same_name_elsewhere,
    holders.shared,
    holders.between_steps,
    holders.in_use,
    holders.nobody,
    elsewhere.named_elsewhere,
    kubernetes.several_volumes,
    unseen.silence,
    unseen.sources,
    unseen.clusters,
    unseen.gaps,
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
    from rbdagent.diagnose.words import with_words

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
