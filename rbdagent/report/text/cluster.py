"""The output of ``diagnose -A``: how many volumes need attention, and which, the worst first."""

from __future__ import annotations

from collections import Counter
from itertools import chain
from typing import TYPE_CHECKING, Final, NamedTuple

from rbdagent.codes import Code
from rbdagent.commands import command
from rbdagent.lifecycle.cluster_report import is_empty, missing_objects_reason
from rbdagent.lifecycle.urgency import (
    Urgency,
    are_pods_known,
    by_urgency,
    node_of,
    pods_affected,
    waiting_for,
)
from rbdagent.model import Command, Severity, TargetKind
from rbdagent.parse.brief import begun
from rbdagent.report.text.findings import finding_text, next_text
from rbdagent.report.text.footer import footer
from rbdagent.report.text.layout import (
    BOLD,
    GREEN,
    PAINT,
    YELLOW,
    Layout,
    counted,
    cut,
    enumerated,
    painted,
    shortened,
    with_escaped_texts,
    wrapped,
)
from rbdagent.rules import FINDINGS, coverage_gaps
from rbdagent.verdicts.timing import age, age_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from rbdagent.model import AffectedObject, Cause, ClusterReport, Finding, Pod, Snapshot

    Causes = Sequence[Sequence[AffectedObject]]
    """The objects of one group, by their cause."""

_MOST_OF_CAUSE: Final = 5
"""Maximum of rows for one cause: five hundred objects can have the same cause."""
_MOST_ROWS: Final = 20
"""Maximum of rows in one group."""
_MOST_NAMED: Final = 3
_MOST_COMMANDS: Final = 3
_IN_SENTENCE: Final = {"This node": "this node", "The Kubernetes API": "the Kubernetes API"}
"""Subjects of findings about sources, inside a sentence."""
_SENTENCE: Final = 48
"""Least width of a column of sentences: in a narrower one, their beginnings mean too little."""
_FACT: Final = 2
"""The column of what is wrong."""
_NO_NODE: Final = "-"
_GAP: Final = "  "

_HEADINGS: Final = {
    Urgency.AT_RISK: "DATA AT RISK",
    Urgency.BLOCKED: "BLOCKED (a pod waits)",
    Urgency.OTHER: "OTHER PROBLEMS",
    Urgency.LEFTOVER: "LEFTOVERS (no pod waits)",
}
_PAINT_OF: Final = {
    Urgency.AT_RISK: PAINT[Severity.CRITICAL],
    Urgency.BLOCKED: BOLD + PAINT[Severity.ERROR],
}


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
    return _answer(found, snapshot, layout, of, next_commands_of_cluster(found))


@with_escaped_texts
def _answer(
    found: ClusterReport,
    snapshot: Snapshot,
    layout: Layout,
    of: str,
    commands: tuple[Command, ...],
) -> str:
    """Return the output; the words of the commands are not escaped."""
    parts = [_first_line(found, snapshot, layout, of)]
    parts += _groups(found, snapshot, layout)
    if layout.details:
        parts += [finding_text(finding, layout) for finding in node_findings(found)]
        parts += [_cause(cause, layout) for cause in found.causes]
    parts.append(wrapped(coverage(found, snapshot), layout))
    parts.append(footer(None, snapshot, layout))
    if commands:
        parts.append(next_text(commands, layout))
    return "\n\n".join(parts) + "\n"


@with_escaped_texts
def affected_names(found: ClusterReport) -> str:
    """Return the output of ``-o name``: one TARGET of ``diagnose`` per line."""
    return "".join(f"{_target(affected)}\n" for affected in found.stuck)


def _target(affected: AffectedObject) -> str:
    """Return a stuck object as a TARGET."""
    return affected.life.diagnosis.volume.target.argument


# --------------------------------------------------------------------------------------------------
# The answer
# --------------------------------------------------------------------------------------------------


class ClusterHeadline(NamedTuple):
    """The answer about a cluster: its state, and the rest of the sentence."""

    state: str
    rest: str
    is_ok: bool = False
    """Whether nothing needs attention; a fact that was not observed may still hide something."""

    def __str__(self) -> str:
        """Return the sentence."""
        return self.state + self.rest


def headline_of_cluster(found: ClusterReport, snapshot: Snapshot, of: str = "") -> ClusterHeadline:
    """Return the answer; where a source was not observed, it states that."""
    selection = f" {of}" if of else ""
    if found.causes:
        return _attention(found, snapshot, selection)
    if (reason := missing_objects_reason(snapshot)) is not None:
        return ClusterHeadline(f"UNKNOWN whether anything{selection} is stuck", f": {reason}.")
    if is_empty(found):
        nothing = f"There is nothing{selection} to check"
        return ClusterHeadline(nothing, ": no claim, no PV, no pod with volumes.")
    unseen = unobserved_facts(found)
    limit = f" Not observed: {_listed(unseen)}." if unseen else ""
    if (nodes := len(node_findings(found))) > 0:
        state = "1 node needs attention" if nodes == 1 else f"{nodes} nodes need attention"
        extent = " as far as observed" if unseen else ""
        return ClusterHeadline(state, f"; nothing{selection} is stuck{extent}.{limit}")
    state = "OK as far as observed" if unseen else "OK"
    return ClusterHeadline(state, f": nothing{selection} is stuck.{limit}", is_ok=True)


def _attention(found: ClusterReport, snapshot: Snapshot, selection: str) -> ClusterHeadline:
    """Return how many volumes need attention; a part that was not observed may have more."""
    count = len(found.stuck)
    least = "" if is_all_observed(found, snapshot) else "At least "
    begin = f"{least}{count} {'volume' if count == 1 else 'volumes'}"
    groups = ", ".join(
        f"{number} {urgency.removesuffix('s') if number == 1 else urgency}"
        for urgency, number in counts(found, snapshot).items()
        if number
    )
    state = f"{begin}{selection} {'needs' if count == 1 else 'need'} attention"
    return ClusterHeadline(state, f": {groups}.")


def counts(found: ClusterReport, snapshot: Snapshot) -> Mapping[Urgency, int]:
    """Return the number of stuck objects in each group."""
    groups = by_urgency(found, snapshot.kubernetes)
    return {urgency: sum(map(len, causes)) for urgency, causes in groups.items()}


def is_all_observed(found: ClusterReport, snapshot: Snapshot) -> bool:
    """Return whether no volume with a problem can be missing because of a source."""
    return not unobserved_facts(found) and missing_objects_reason(snapshot) is None


def unobserved_facts(found: ClusterReport) -> tuple[str, ...]:
    """Return each source and fact that was not observed, with its reason."""
    return tuple(
        _unobserved(finding) for finding in found.findings if finding.code in coverage_gaps.CODES
    )


def _unobserved(finding: Finding) -> str:
    reason = f" ({finding.evidence[0]})" if finding.evidence else ""
    if finding.code == Code.FACT_NOT_OBSERVED:
        return f"{finding.fact}{reason}"
    return f"{_IN_SENTENCE.get(finding.subject.name, str(finding.subject))}{reason}"


def _listed(names: Sequence[str]) -> str:
    """Return the first names, and the number of the others."""
    more = len(names) - _MOST_NAMED
    return enumerated([*names[:_MOST_NAMED], *([f"{more} more"] if more > 0 else [])])


def node_findings(found: ClusterReport) -> tuple[Finding, ...]:
    """Return the findings about this node; the end of the output shows the sources."""
    return tuple(finding for finding in found.findings if finding.code not in coverage_gaps.CODES)


def _first_line(found: ClusterReport, snapshot: Snapshot, layout: Layout, of: str) -> str:
    """Return the answer; its state has the colour of what is worst."""
    answer = headline_of_cluster(found, snapshot, of)
    if answer.is_ok:
        paint = BOLD + (YELLOW if unobserved_facts(found) else GREEN)
    else:
        paint = BOLD + PAINT.get(found.causes[0].finding.severity, "") if found.causes else BOLD
    lines, state = wrapped(str(answer), layout), answer.state
    if len(state) > layout.width:
        return lines
    return f"{painted(state, paint, layout)}{lines[len(state) :]}"


# --------------------------------------------------------------------------------------------------
# The groups
# --------------------------------------------------------------------------------------------------


class Waits(NamedTuple):
    """Who waits for an object, and how long; else who uses it, and how long it is stuck."""

    name: str
    rest: str = ""
    """What follows the name, and is never cut."""

    def __str__(self) -> str:
        """Return the cell."""
        return self.name + self.rest


class Row(NamedTuple):
    """The cells about one stuck object."""

    node: str
    name: str
    """Of the claim; else the TARGET."""
    summary: str
    words: str
    """What is wrong, in a sentence and in two or three words."""
    waits: Waits
    code: str
    severity: Severity


def row_of(affected: AffectedObject, snapshot: Snapshot) -> Row:
    """Return the cells about a stuck object."""
    known, target = FINDINGS[affected.finding.code], affected.life.diagnosis.volume.target
    is_claim = target.kind is TargetKind.CLAIM
    return Row(
        node=node_of(affected) or _NO_NODE,
        name=f"{target.namespace}/{target.name}" if is_claim else target.argument,
        summary=known.summary.removesuffix("."),
        words=known.words,
        waits=_waits(affected, snapshot),
        code=affected.finding.code,
        severity=affected.finding.severity,
    )


def _node_row(finding: Finding) -> Row:
    known = FINDINGS[finding.code]
    return Row(
        node=finding.subject.node or "",
        name="",
        summary=known.summary.removesuffix("."),
        words=known.words,
        waits=Waits(""),
        code=finding.code,
        severity=finding.severity,
    )


def _waits(affected: AffectedObject, snapshot: Snapshot) -> Waits:
    """Return who waits and how long; else how many pods use the object, and how long it is stuck.

    A pod in the namespace of the target is named without it.
    """
    waiting, now = waiting_for(affected), snapshot.observed_at
    if waiting:
        begun = (pod.placed_at or pod.created_at for pod in waiting)
        since = age(min((time for time in begun if time), default=None), now)
        verb = "waits" if len(waiting) == 1 else "wait"
        duration = "" if since is None else f" {age_text(since)}"
        return Waits(_pods(waiting, affected), f" {verb}{duration}")
    since = age(affected.since, now)
    duration = "" if since is None else f"for {age_text(since)}"
    users = len(pods_affected(affected))
    if users:
        pods = f"{users} pod" if users == 1 else f"{users} pods"
    else:
        pods = "" if are_pods_known(affected, snapshot.kubernetes) else "pods not observed"
    return Waits(", ".join(part for part in (pods, duration) if part))


def _pods(pods: Sequence[Pod], affected: AffectedObject) -> str:
    first, *others = pods
    namespace = affected.life.diagnosis.volume.target.namespace
    name = first.ref.name if first.ref.namespace == namespace else str(first.ref)
    return f"{name} +{len(others)}" if others else name


def _groups(found: ClusterReport, snapshot: Snapshot, layout: Layout) -> list[str]:
    """Return each group with its heading; the columns of all groups are aligned."""
    groups = by_urgency(found, snapshot.kubernetes)
    shown = {urgency: _shown(urgency, causes, layout) for urgency, causes in groups.items()}
    rows = {
        urgency: [row_of(affected, snapshot) for affected in objects]
        for urgency, objects in shown.items()
    }
    nodes = [_node_row(finding) for finding in node_findings(found)]
    lines = iter(_aligned([*chain.from_iterable(rows.values()), *nodes], layout))
    parts = []
    for urgency, causes in groups.items():
        if not causes:
            continue
        part = [painted(_HEADINGS[urgency], _PAINT_OF.get(urgency, BOLD), layout)]
        part += [next(lines) for _ in rows[urgency]]
        part += _omitted(causes, shown[urgency], layout)
        parts.append("\n".join(part))
    if nodes:
        heading = "NODES (volumes in use there continue to work)"
        parts.append("\n".join((painted(heading, BOLD, layout), *lines)))
    return parts


def _shown(urgency: Urgency, causes: Causes, layout: Layout) -> list[AffectedObject]:
    """Return the objects that have a row: with details all, else the first ones of each cause."""
    if layout.details:
        return [*chain.from_iterable(causes)]
    if urgency is Urgency.LEFTOVER:
        return []
    return [*chain.from_iterable(cause[:_MOST_OF_CAUSE] for cause in causes)][:_MOST_ROWS]


def _omitted(causes: Causes, shown: Sequence[AffectedObject], layout: Layout) -> Iterator[str]:
    """Yield one line with the number of objects that have no row, by their code."""
    codes = Counter(affected.finding.code for affected in chain.from_iterable(causes))
    codes.subtract(affected.finding.code for affected in shown)
    total = codes.total()
    if not total:
        return
    kinds = ", ".join(
        f"{number} {code} {FINDINGS[code].words}" for code, number in codes.most_common() if number
    )
    begin = f"and {total} more" if shown else str(total)
    yield cut(f"  {begin} (-o wide lists them): {kinds}", layout)


def _aligned(rows: Sequence[Row], layout: Layout) -> list[str]:
    """Return the lines of a table that fits the width, whose widest columns are cut.

    It has the summaries if there is room for their beginnings, else the names in words. With
    details, nothing is cut.
    """
    if not rows:
        return []
    cells = [[row.node, row.name, row.summary, str(row.waits), row.code] for row in rows]
    widths = _widths(cells)
    if not layout.details:
        room = layout.width - len(_GAP) * len(widths)
        natural, widths = widths, _narrowed(widths, room)
        if widths[_FACT] < min(natural[_FACT], _SENTENCE):
            cells = [[row.node, row.name, row.words, str(row.waits), row.code] for row in rows]
            widths = _narrowed(_widths(cells), room)
    return [_line(row, line, widths, layout) for row, line in zip(rows, cells, strict=True)]


def _widths(rows: Iterable[Sequence[str]]) -> list[int]:
    return [max(map(len, column)) for column in zip(*rows, strict=True)]


def _narrowed(widths: Sequence[int], room: int) -> list[int]:
    """Return the widths of columns that fit into the room; the widest become narrower."""
    narrowed = list(widths)
    while sum(narrowed) > room:
        narrowed[narrowed.index(max(narrowed))] -= 1
    return narrowed


def _line(row: Row, cells: Sequence[str], widths: Sequence[int], layout: Layout) -> str:
    """Return the line of a row: names lose their middle, the fact its end. The code is not cut."""

    def waiting(_: str, most: int) -> str:
        return _waiting(row.waits, most)

    fits = (shortened, shortened, _begin, waiting)
    fitted = [
        fit(cell, width).ljust(width) for fit, cell, width in zip(fits, cells, widths, strict=False)
    ]
    code = painted(cells[-1], PAINT.get(row.severity, ""), layout)
    return _GAP.join(("", *fitted, code))


def _waiting(waits: Waits, most: int) -> str:
    """Return who waits, in at most ``most`` characters: only the name is cut."""
    room = most - len(waits.rest)
    if not waits.rest or room <= 1:
        return shortened(str(waits), most)
    return f"{shortened(waits.name, room)}{waits.rest}"


def _begin(text: str, most: int) -> str:
    """Return a text of at most ``most`` characters; an ellipsis replaces its last words."""
    if len(text) <= most:
        return text
    begin = text[: most - 1]
    return f"{begin.rpartition(' ')[0].rstrip(',:') or begin}…"


# --------------------------------------------------------------------------------------------------
# Coverage, causes, commands
# --------------------------------------------------------------------------------------------------


def coverage(found: ClusterReport, snapshot: Snapshot) -> str:
    """Return what was checked, what was not observed, and for which volumes Ceph was queried."""
    kinds = (
        ("claim", "", found.claims),
        ("PV", "", found.volumes),
        ("pod", " with volumes", found.pods),
    )
    checked = [f"{counted(count, kind)}{more}" for kind, more, count in kinds if count is not None]
    unseen = [f"{kind}s" for kind, _, count in kinds if count is None]
    parts = [f"Checked {enumerated(checked)}"] if checked else []
    if found.others:
        verb = "was" if found.others == 1 else "were"
        parts.append(f"{counted(found.others, 'PV')} of other drivers {verb} left out")
    parts += [f"{enumerated(unseen)} were not observed"] if unseen else []
    sentence = f"{begun('; '.join(parts))}."
    if snapshot.ceph is None or not found.volumes:
        return sentence
    queried = {image.spec for cluster in snapshot.ceph.clusters for image in cluster.images}
    if len(queried) >= found.volumes:
        return sentence
    return (
        f"{sentence} Ceph was queried about {counted(len(queried), 'image')}: volumes that seem "
        "healthy were not checked there; diagnose TARGET checks one."
    )


def _cause(cause: Cause, layout: Layout) -> str:
    text = finding_text(cause.finding, layout)
    if len(cause.affected) == 1:
        return text
    first, _, rest = text.partition("\n")
    names = _listed([_target(affected) for affected in cause.affected])
    affected = wrapped(f"Affects {len(cause.affected)}: {names}.", layout, first="  ", rest="  ")
    return f"{first}\n{affected}\n{rest}"


def next_commands_of_cluster(found: ClusterReport) -> tuple[Command, ...]:
    """Return the commands to run now: ``diagnose`` of the first objects of the worst causes."""
    worst = found.causes[:_MOST_COMMANDS]
    return tuple(_diagnose_command(cause.affected[0]) for cause in worst)


def _diagnose_command(affected: AffectedObject) -> Command:
    """Return the command that diagnoses a stuck object; the name of a device needs its node."""
    diagnosis = affected.life.diagnosis
    is_device = diagnosis.volume.target.kind is TargetKind.DEVICE
    nodes = [one.holder.node for one in diagnosis.local] if is_device else []
    return command("rbdagent diagnose", _target(affected), node=next(iter(nodes), None))
