"""The last lines of an answer: its main finding, where details are, and its sources."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rbdagent.commands import command
from rbdagent.model import SourceState
from rbdagent.report.text.findings import command_lines, source_lines
from rbdagent.report.text.layout import Layout, wrapped
from rbdagent.rules import FINDINGS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rbdagent.model import Finding, Snapshot, Source


def footer(main: Finding | None, snapshot: Snapshot, layout: Layout) -> str:
    """Return the lines about the main finding, if there is one, and about the sources."""
    lines = [] if main is None else [_explanation(main, layout)]
    if not layout.details:
        return "\n".join([*lines, *_sources(snapshot, layout)])
    lines.append(f"observed {snapshot.observed_at}")
    return "\n\n".join([source_lines(snapshot, layout), "\n".join(lines)])


def _explanation(finding: Finding, layout: Layout) -> str:
    known = FINDINGS[finding.code]
    (explain,) = command_lines((command("rbdagent explain", finding.code),), layout)
    parts = [f"{finding.code} {known.name}", "details: -v", f"explain: {explain}"]
    if layout.details:
        del parts[1]
    line = "   ".join(parts)
    return line if len(line) <= layout.width else "\n".join((parts[0], "   ".join(parts[1:])))


def _sources(snapshot: Snapshot, layout: Layout) -> Iterator[str]:
    """Yield the state of each source; a source that was not observed has its own line."""
    named = snapshot.sources.named
    for name, source in named:
        if source.state is not SourceState.OBSERVED:
            yield from _missing(name, source, layout)
    seen = ", ".join(
        f"{name} ok{_except(source)}"
        for name, source in named
        if source.state is SourceState.OBSERVED
    )
    yield wrapped(f"{seen or 'no source ok'}   observed {snapshot.observed_at}", layout)


def _missing(name: str, source: Source, layout: Layout) -> Iterator[str]:
    reason = f": {source.reason}" if source.reason else ""
    yield wrapped(f"{name} {str(source.state).upper()}{reason}", layout, rest="  ")
    if source.hint:
        # Never wrap this line: users copy it.
        yield f"  -> {source.hint}"


def _except(source: Source) -> str:
    if not source.gaps:
        return ""
    first, *others = source.gaps
    more = f" and {len(others)} more facts" if others else ""
    return f" except {first.fact}{more}"
