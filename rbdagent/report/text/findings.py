"""Findings, sources and commands as text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rbdagent.commands import lines_of
from rbdagent.model import SourceState
from rbdagent.report.text.layout import BOLD, PAINT, painted, wrapped
from rbdagent.rules import coverage_gaps

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rbdagent.model import Command, Finding, Snapshot, Source

_MOST_GAPS: Final = 20
"""Maximum of gaps for one source: each of many images can be unreachable."""

OF_SOURCES: Final = coverage_gaps.CODES
"""Findings that repeat the line of the source, which shows the reason and the hint."""


def finding_text(finding: Finding, reasons: frozenset[str] = frozenset(), *, colour: bool) -> str:
    """Return a finding, without the evidence that the reasons of its holder already show."""
    paint = PAINT.get(finding.severity, "")
    label = painted(f"{finding.code} {finding.severity}", paint, colour=colour)
    lines = [f"{label}  {finding.subject}", wrapped(finding.message, first="  ", rest="  ")]
    fresh = [line for line in finding.evidence if line not in reasons]
    lines += [wrapped(line, first="  - ", rest="    ") for line in fresh]
    if finding.recovery is not None:
        lines.append(wrapped(f"Recovery: {finding.recovery}.", first="  ", rest="  "))
    if finding.remedy:
        lines.append(wrapped(f"Remedy: {finding.remedy}", first="  ", rest="  "))
    lines += [f"    {line}" for line in lines_of(finding.commands)]
    return "\n".join(lines)


def source_lines(snapshot: Snapshot) -> str:
    """Return the state of each source, with one line for each fact that was not observed."""
    lines = ["Sources:"]
    for name, source in snapshot.sources.named:
        lines += _source(name, source)
    return "\n".join(lines)


def _source(name: str, source: Source) -> list[str]:
    state = "observed" if source.state is SourceState.OBSERVED else str(source.state).upper()
    reason = f": {source.reason}" if source.reason else ""
    lines = [wrapped(f"{name:<10} {state}{reason}", first="  ", rest=" " * 13)]
    if source.hint:
        # Never wrap this line: users copy it.
        lines.append(f"{' ' * 13}-> {source.hint}")
    for gap in source.gaps[:_MOST_GAPS]:
        lines.append(
            wrapped(f"not observed: {gap.fact}: {gap.reason}", first=" " * 13, rest=" " * 15)
        )
        if gap.hint:
            lines.append(f"{' ' * 15}-> {gap.hint}")
    if len(source.gaps) > _MOST_GAPS:
        omitted = len(source.gaps) - _MOST_GAPS
        lines.append(f"{' ' * 13}and {omitted} more facts were not observed: -o json lists all")
    return lines


def next_text(commands: Sequence[Command], *, colour: bool) -> str:
    """Return the commands to run now."""
    lines = [painted("Next:", BOLD, colour=colour), *(f"  {line}" for line in lines_of(commands))]
    return "\n".join(lines)
