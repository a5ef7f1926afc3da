"""Findings, sources and commands as text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rbdagent.commands import for_cluster, lines_of, sentence_of
from rbdagent.model import SourceState
from rbdagent.report.text.layout import BOLD, PAINT, Layout, painted, sentences, wrapped
from rbdagent.rules import coverage_gaps

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rbdagent.model import Command, Finding, Snapshot, Source

_MOST_GAPS: Final = 20
"""Maximum of gaps for one source: each of many images can be unreachable."""

OF_SOURCES: Final = coverage_gaps.CODES
"""Findings that repeat the line of the source, which shows the reason and the hint."""


def finding_text(finding: Finding, layout: Layout, printed: frozenset[str] = frozenset()) -> str:
    """Return a finding without the texts that the output already has in full.

    One sentence is not omitted alone: the others refer to it, as "when that ends" does.

    Args:
        finding: the finding.
        layout: the layout.
        printed: the texts and the lines of commands that precede it.
    """
    paint = PAINT.get(finding.severity, "")
    label = painted(f"{finding.code} {finding.severity}", paint, layout)
    lines = [f"{label}  {finding.subject}"]
    if not printed.issuperset(filter(None, (finding.cause, finding.consequence))):
        lines.append(wrapped(finding.message, layout, first="  ", rest="  "))
    fresh = [line for line in finding.evidence if line not in printed]
    lines += [wrapped(line, layout, first="  - ", rest="    ") for line in fresh]
    if finding.recovery is not None and str(finding.recovery) not in printed:
        lines.append(wrapped(f"Recovery: {finding.recovery}.", layout, first="  ", rest="  "))
    remedy = sentence_of(finding.remedy, layout.program)
    if not printed.issuperset(filter(None, sentences(remedy))):
        lines.append(wrapped(f"Remedy: {remedy}", layout, first="  ", rest="  "))
    lines += [
        f"    {line}" for line in command_lines(finding.commands, layout) if line not in printed
    ]
    return "\n".join(lines)


def command_lines(commands: Iterable[Command], layout: Layout) -> tuple[str, ...]:
    """Return commands as lines to copy, as they are typed in the place of the reader."""
    chosen = (for_cluster(one, layout.cluster_flags) for one in commands)
    return lines_of(chosen, layout.program)


def source_lines(snapshot: Snapshot, layout: Layout) -> str:
    """Return the state of each source, with one line for each fact that was not observed."""
    lines = ["Sources:"]
    for name, source in snapshot.sources.named:
        lines += _source(name, source, layout)
    return "\n".join(lines)


def _source(name: str, source: Source, layout: Layout) -> list[str]:
    state = "observed" if source.state is SourceState.OBSERVED else str(source.state).upper()
    reason = f": {source.reason}" if source.reason else ""
    lines = [wrapped(f"{name:<10} {state}{reason}", layout, first="  ", rest=" " * 13)]
    if source.hint:
        # Never wrap this line: users copy it.
        lines.append(f"{' ' * 13}-> {source.hint}")
    for gap in source.gaps[:_MOST_GAPS]:
        lines.append(
            wrapped(
                f"not observed: {gap.fact}: {gap.reason}", layout, first=" " * 13, rest=" " * 15
            )
        )
        if gap.hint:
            lines.append(f"{' ' * 15}-> {gap.hint}")
    if len(source.gaps) > _MOST_GAPS:
        omitted = len(source.gaps) - _MOST_GAPS
        lines.append(f"{' ' * 13}and {omitted} more facts were not observed: -o json lists all")
    return lines


def next_text(commands: Sequence[Command], layout: Layout) -> str:
    """Return the commands to run now."""
    lines = [
        painted("Next:", BOLD, layout),
        *(f"  {line}" for line in command_lines(commands, layout)),
    ]
    return "\n".join(lines)
