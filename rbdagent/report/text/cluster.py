"""Everything that is stuck, as text: a table, then the root causes, the worst first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rbdagent.commands import command
from rbdagent.lifecycle.cluster_report import is_complete, is_empty, missing_objects_reason
from rbdagent.model import Command, SourceState, TargetKind
from rbdagent.report.text.findings import finding_text, next_text, source_lines
from rbdagent.report.text.layout import (
    BOLD,
    GREEN,
    NONE,
    PAINT,
    UNKNOWN,
    Layout,
    aligned,
    painted,
    with_escaped_texts,
    wrapped,
)
from rbdagent.rules import FINDINGS, MOST_COMMANDS, coverage_gaps
from rbdagent.verdicts.timing import age, age_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rbdagent.model import AffectedObject, Cause, ClusterReport, Finding, Snapshot

_MOST_ROWS: Final = 5
"""Maximum of rows for one cause: five hundred objects can have the same cause."""
_MOST_CAUSES: Final = 5
_MOST_NAMED: Final = 3


@with_escaped_texts
def affected_table(
    found: ClusterReport, snapshot: Snapshot, layout: Layout, *, of: str = ""
) -> str:
    """Return the output of ``diagnose -A``.

    Args:
        found: the stuck objects and their causes.
        snapshot: the snapshot in which they were found.
        layout: the layout; with details, it shows every row, every cause and every message.
        of: describes the selection, if there is one.
    """
    parts = [_rows(found, snapshot, layout)] if found.causes else []
    parts.append(painted(_headline(found, snapshot, of), _headline_paint(found), layout))
    parts.append(_coverage(found, snapshot))
    parts += [finding_text(finding, layout) for finding in _node_findings(found)]
    shown = found.causes if layout.details else found.causes[:_MOST_CAUSES]
    parts += [_cause(cause, layout) for cause in shown]
    if len(shown) < len(found.causes):
        parts.append(_further_causes(found.causes[len(shown) :]))
    parts.append(source_lines(snapshot, layout))
    commands = _commands(found)
    if commands:
        parts.append(next_text(commands, layout))
    return "\n\n".join(parts) + "\n"


@with_escaped_texts
def affected_names(found: ClusterReport) -> str:
    """Return the output of ``-o name``: one TARGET of ``diagnose`` per line."""
    return "".join(f"{_target(affected)}\n" for affected in found.stuck)


def _target(affected: AffectedObject) -> str:
    return affected.life.diagnosis.use.target.argument


# --------------------------------------------------------------------------------------------------
# The table
# --------------------------------------------------------------------------------------------------


def _rows(found: ClusterReport, snapshot: Snapshot, layout: Layout) -> str:
    """Return the table of stuck objects, with only the first ones of many with the same cause."""
    head = ["NAMESPACE", "CLAIM/POD", "PERSISTENTVOLUME", "STEP", "CODE", "SINCE", "WHAT"]
    shown = [
        cause.affected if layout.details else cause.affected[:_MOST_ROWS] for cause in found.causes
    ]
    rows = [_row(stuck, snapshot, layout) for affected in shown for stuck in affected]
    paints = [
        PAINT.get(stuck.finding.severity, "") if layout.colour else ""
        for affected in shown
        for stuck in affected
    ]
    first, *lines = aligned(head, rows, paints, head.index("CODE"))
    table = [first]
    for cause, affected in zip(found.causes, shown, strict=True):
        table += lines[: len(affected)]
        del lines[: len(affected)]
        omitted = len(cause.affected) - len(affected)
        if omitted:
            table.append(f"... and {omitted} more of the same ({cause.finding.code})")
    return "\n".join(table)


def _row(affected: AffectedObject, snapshot: Snapshot, layout: Layout) -> list[str]:
    use, known = affected.life.diagnosis.use, FINDINGS[affected.finding.code]
    target, volume = use.target, use.persistent_volume
    namespaced = target.kind in {TargetKind.CLAIM, TargetKind.POD}
    name = f"{target.kind}/{target.name}" if namespaced else NONE
    if target.kind in {TargetKind.DEVICE, TargetKind.IMAGE}:
        name = target.argument
    since = age(affected.since, snapshot.observed_at)
    return [
        target.namespace or NONE,
        name,
        volume.name if volume is not None else NONE,
        str(known.step) if known.step is not None else NONE,
        affected.finding.code,
        UNKNOWN if since is None else age_text(since),
        affected.finding.message if layout.details else known.summary.rstrip("."),
    ]


# --------------------------------------------------------------------------------------------------
# Root causes
# --------------------------------------------------------------------------------------------------


def _headline(found: ClusterReport, snapshot: Snapshot, of: str) -> str:
    """Return the number of stuck objects; "nothing" only if all sources were observed."""
    selection = f" {of}" if of else ""
    missing = missing_objects_reason(snapshot)
    if found.causes:
        count, causes = len(found.stuck), len(found.causes)
        more = "" if is_complete(found) else " Not everything was observed: there may be more."
        return (
            f"Stuck{selection}: {count}, for {causes} {'causes' if causes > 1 else 'cause'}.{more}"
        )
    if missing is not None:
        return f"It is unknown whether anything{selection} is stuck: {missing}."
    if is_empty(found):
        return f"There is nothing{selection} to check: no claim, no PV, no pod with volumes."
    if not is_complete(found):
        return (
            f"Nothing{selection} is stuck as far as observed: "
            "some sources are incomplete, see below."
        )
    if snapshot.sources.ceph.state is SourceState.SKIPPED:
        return f"Nothing{selection} is stuck according to Kubernetes. Ceph was not queried."
    return f"Nothing{selection} is stuck."


def _is_healthy(found: ClusterReport) -> bool:
    has_findings = bool(found.causes or _node_findings(found))
    return not has_findings and not is_empty(found) and is_complete(found)


def _node_findings(found: ClusterReport) -> tuple[Finding, ...]:
    """Return the findings about this node; the end of the output shows the sources."""
    return tuple(finding for finding in found.findings if finding.code not in coverage_gaps.CODES)


def _headline_paint(found: ClusterReport) -> str:
    return BOLD + GREEN if _is_healthy(found) else BOLD


def _coverage(found: ClusterReport, snapshot: Snapshot) -> str:
    counts = (("claims", found.claims), ("PVs", found.volumes), ("pods with volumes", found.pods))
    checked = [f"{count} {kind}" for kind, count in counts if count is not None]
    unobserved = [kind.partition(" ")[0] for kind, count in counts if count is None]
    parts = [f"Checked {_joined(checked)}"] if checked else []
    parts += [f"{found.others} PVs of other drivers were left out"] if found.others else []
    parts += [f"{_joined(unobserved)} were not observed"] if unobserved else []
    sentence = f"{_capital('; '.join(parts))}."
    if snapshot.ceph is None or not found.volumes:
        return sentence
    queried = {image.spec for cluster in snapshot.ceph.clusters for image in cluster.images}
    if len(queried) >= found.volumes:
        return sentence
    return (
        f"{sentence} Ceph was not queried about volumes that seem healthy: to see their other "
        "holders, run `rbdagent diagnose TARGET`."
    )


def _joined(words: Sequence[str]) -> str:
    *first, last = words
    return f"{', '.join(first)} and {last}" if first else last


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _cause(cause: Cause, layout: Layout) -> str:
    text = finding_text(cause.finding, layout)
    if len(cause.affected) == 1:
        return text
    first, _, rest = text.partition("\n")
    affected = wrapped(
        f"Affects {len(cause.affected)}: {_affected_names(cause)}.", layout, first="  ", rest="  "
    )
    return f"{first}\n{affected}\n{rest}"


def _affected_names(cause: Cause) -> str:
    names = ", ".join(_target(affected) for affected in cause.affected[:_MOST_NAMED])
    omitted = len(cause.affected) - _MOST_NAMED
    return f"{names} and {omitted} more" if omitted > 0 else names


def _further_causes(causes: Sequence[Cause]) -> str:
    """Return one line for each further cause, as many as fit a screen."""
    lines = [f"And {len(causes)} further causes (-o wide shows them in full):"]
    for cause in causes[: 4 * _MOST_CAUSES]:
        known = FINDINGS[cause.finding.code]
        lines.append(f"  {cause.finding.code} {known.name}: {_affected_names(cause)}")
    omitted = len(causes) - 4 * _MOST_CAUSES
    return "\n".join([*lines, *([f"  and {omitted} more"] if omitted > 0 else [])])


def _commands(found: ClusterReport) -> tuple[Command, ...]:
    """Return the next commands: those of the worst cause, then one ``diagnose`` for each cause."""
    if not found.causes:
        return ()
    worst = found.causes[0].finding.commands[:_MOST_NAMED]
    return tuple(dict.fromkeys((*worst, *_diagnose_commands(found.causes))))[:MOST_COMMANDS]


def _diagnose_commands(causes: Sequence[Cause]) -> Iterator[Command]:
    for cause in causes:
        yield command("rbdagent diagnose", _target(cause.affected[0]))
