"""Labelled lines that answers share: the names of the volume, and further findings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rbdagent.model import Severity
from rbdagent.report.text.headline import codes_about, findings_of, waiting_pods
from rbdagent.report.text.layout import (
    MARGIN,
    Layout,
    labelled,
    limited,
    shortened,
)
from rbdagent.rules import coverage_gaps

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rbdagent.model import Diagnosis, Finding, Volume

MOST_LINES: Final = 2
"""Maximum of lines of one label: the details have the rest."""
_MOST_OTHERS: Final = 3
"""Maximum of further findings."""
_GAPS: Final = frozenset(entry.code for entry in coverage_gaps.ENTRIES)
"""Findings about missing observations: what was not observed, and what that means, is printed."""
_SHORTEST: Final = 9
"""Least length of a shortened id."""


def volume_line(volume: Volume, layout: Layout) -> str:
    """Return the names of the volume: claim, PV and image.

    They have one line: ids are shortened, and the last one is omitted if it has no room. With
    details, each name is complete.
    """
    claim = [str(volume.claim.ref)] if volume.claim is not None else []
    ids = [("pv", volume.persistent_volume.name)] if volume.persistent_volume is not None else []
    ids += [("image", str(volume.image.spec))] if volume.image is not None else []
    if layout.details:
        names = [*claim, *(f"{kind} {name}" for kind, name in ids)] or [volume.target.argument]
        labels = ("Volume", *[""] * len(names))
        return "\n".join(labelled(*pair, layout) for pair in zip(labels, names, strict=False))
    for count in range(len(ids), 0, -1):
        fixed = sum(len(part) + 3 for part in claim) + sum(len(kind) + 4 for kind, _ in ids[:count])
        room = (layout.width - MARGIN - fixed) // count
        if room >= _SHORTEST:
            named = (f"{kind} {shortened(name, room)}" for kind, name in ids[:count])
            return labelled("Volume", "   ".join([*claim, *named]), layout)
    return labelled("Volume", " ".join(claim) or volume.target.argument, layout)


def also_lines(diagnosis: Diagnosis, lead: Finding | None, layout: Layout) -> Iterator[str]:
    """Yield the first sentence of each further problem; with details, all findings follow.

    Args:
        diagnosis: the diagnosis.
        lead: the finding of the headline.
        layout: the layout.
    """
    others = [] if layout.details else [*_others(diagnosis, lead)]
    for finding in others[:_MOST_OTHERS]:
        is_gap = finding.code in _GAPS
        message = finding.message if is_gap else finding.cause
        text = labelled("Also", f"{finding.code} {message}", layout)
        yield text if is_gap or finding is others[0] else limited(text, MOST_LINES, layout)
    if len(others) > _MOST_OTHERS:
        yield labelled("", f"and {len(others) - _MOST_OTHERS} more with -v", layout)


def _others(diagnosis: Diagnosis, lead: Finding | None) -> Iterator[Finding]:
    """Yield the problems that neither the headline nor its line about waiting pods has."""
    about_waiting = codes_about(diagnosis, waiting_pods(diagnosis))
    for number, finding in enumerate(findings_of(diagnosis)):
        is_main = number == 0
        is_new = finding != lead and (is_main or finding.code not in about_waiting)
        if is_new and finding.severity is not Severity.INFO:
            yield finding
