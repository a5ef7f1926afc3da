"""Rules: functions that produce findings from the joined facts.

A rule is a function from a context to findings: one code, or a family of alternative codes. Each
file holds a family: the texts of its codes (`ENTRIES`), its functions, and for each function its
rank and what it reads (`RULES`). Only that file reports these codes.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from rbdagent.model import (
    WEIGHT,
    Command,
    Diagnosis,
    Finding,
    NotObserved,
    Severity,
    Snapshot,
    Volume,
)
from rbdagent.rules import (
    attach_detach,
    between_steps,
    binding_races,
    ceph_health,
    ceph_image,
    coverage_gaps,
    csi_driver,
    data_at_risk,
    dead_mapping,
    encryption,
    error_texts,
    file_system,
    finalizers,
    foreign_clusters,
    growth,
    growth_on_node,
    holders,
    image_changed,
    image_in_use,
    image_renamed,
    map_errors,
    mirroring,
    networks,
    node,
    node_stage,
    other_clients,
    pod_containers,
    provisioner,
    pv_reclaim,
    pvc_lost,
    pvc_pending,
    replication,
    rwo_contention,
    scheduling,
    sharing,
    target_resolution,
    termination,
    undetermined,
    unused_mapping,
)
from rbdagent.rules.context import RuleContext
from rbdagent.rules.replication import with_replications
from rbdagent.rules.sharing import with_machines
from rbdagent.verdicts.holder_verdict import judge
from rbdagent.verdicts.timing import GRACE
from rbdagent.verdicts.volume_verdict import target_verdict

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import timedelta

    from rbdagent.rules.context import Rule
    from rbdagent.rules.entry import Entry

_FAMILIES: Final = (
    attach_detach,
    between_steps,
    binding_races,
    ceph_health,
    ceph_image,
    coverage_gaps,
    csi_driver,
    data_at_risk,
    dead_mapping,
    encryption,
    file_system,
    finalizers,
    foreign_clusters,
    growth,
    growth_on_node,
    holders,
    image_changed,
    image_in_use,
    image_renamed,
    map_errors,
    mirroring,
    networks,
    node,
    node_stage,
    other_clients,
    pod_containers,
    provisioner,
    pv_reclaim,
    pvc_lost,
    pvc_pending,
    replication,
    rwo_contention,
    scheduling,
    sharing,
    target_resolution,
    termination,
    undetermined,
    unused_mapping,
)
RULES: Final[tuple[Rule, ...]] = tuple(
    sorted((rule for family in _FAMILIES for rule in family.RULES), key=lambda rule: rule.rank)
)
"""All rules by ascending rank: of two findings of one severity, the lower rank comes first."""
FINDINGS: Final[Mapping[str, Entry]] = MappingProxyType(
    {entry.code: entry for family in _FAMILIES for entry in family.ENTRIES}
)
"""The entry of each code of a finding."""
ERROR_TEXTS: Final = (
    error_texts.OF_OTHER_RULES,
    *attach_detach.ERROR_TEXTS,
    *scheduling.ERROR_TEXTS,
    *node_stage.ERROR_TEXTS,
)
"""The meaning of each error text, in this order: the first that matches applies."""

MOST_COMMANDS: Final = 5
"""Maximum number of next commands: an operator reads no more at three in the morning."""


def diagnose(volume: Volume, snapshot: Snapshot, *, grace: timedelta = GRACE) -> Diagnosis:
    """Judge every holder and the target, and return the verdicts and findings.

    Args:
        volume: the image, and all holders and objects that are related to it.
        snapshot: the snapshot from which the volume was joined.
        grace: the time that kubelet and the controllers have to finish their work.
    """
    holder_verdicts = tuple(judge(holder, volume, snapshot, grace) for holder in volume.holders)
    verdict = target_verdict(volume, holder_verdicts, snapshot)
    context = RuleContext(
        volume=volume, snapshot=snapshot, holder_verdicts=holder_verdicts, verdict=verdict
    )
    found = dict.fromkeys(finding for rule in RULES for finding in rule.judge(context))
    ordered = tuple(sorted(found, key=lambda finding: WEIGHT[finding.severity]))
    findings = with_machines(with_replications(_with_log_lines(ordered, context), context), context)
    return Diagnosis(
        volume=volume,
        verdict=verdict,
        holders=holder_verdicts,
        findings=findings,
        next_commands=next_commands(findings),
    )


def _with_log_lines(findings: tuple[Finding, ...], context: RuleContext) -> tuple[Finding, ...]:
    """Add log lines of the node if they were requested; else their module is not imported."""
    node = context.snapshot.node
    if node is None or isinstance(node.logs, NotObserved):
        return findings
    from rbdagent.rules.log_evidence import with_log_lines

    return with_log_lines(findings, node.logs, context)


def next_commands(findings: tuple[Finding, ...]) -> tuple[Command, ...]:
    """Return the commands to run now, in order: those of the weightiest finding that has commands.

    Findings of severity INFO count only if there are no others.
    """
    heavy = [item for item in findings if item.severity is not Severity.INFO] or list(findings)
    first = next((item for item in heavy if item.commands), None)
    if first is None:
        return ()
    return first.commands[:MOST_COMMANDS]
