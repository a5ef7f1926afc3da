"""What ``list -A`` shows: a selection of the mappings that all agents published, and how many."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct, field

from rbdagent.catalog import CATALOG
from rbdagent.correlate.published_reports import is_fresh
from rbdagent.model import NotObserved, Severity
from rbdagent.report.rbdnode import HEALTHY
from rbdagent.verdicts.timing import age, age_text, confirmed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rbdagent.model import PublishedMapping, PublishedNode, Verdict


class Row(Struct, frozen=True):
    """A published mapping, its node, and when its agent observed it."""

    node: str
    observed_at: str
    mapping: PublishedMapping


class Selection(Struct, frozen=True, kw_only=True):
    """Which published mappings a list shows; an empty set selects all."""

    nodes: frozenset[str] = frozenset()
    verdicts: frozenset[Verdict] = frozenset()
    volumes: frozenset[str] | None = None
    """Names of PersistentVolumes; None for mappings of any volume, or of none."""
    healthy: bool = True
    """Whether to show healthy mappings; those with a selected verdict are shown in any case."""


class Fleet(Struct, kw_only=True):
    """The numbers of the selected nodes and mappings; :func:`selected` counts them."""

    nodes: int = 0
    """The nodes whose mappings their agents reported recently."""
    unknown: list[tuple[str, str]] = field(default_factory=list)
    """The other nodes, each with the reason why its current mappings are unknown."""
    healthy: dict[Verdict, int] = field(default_factory=dict)
    unhealthy: dict[Verdict, int] = field(default_factory=dict)
    findings: set[str] = field(default_factory=set)
    """The codes of the findings about the mappings that are shown."""


def selected(report: PublishedNode, wanted: Selection, fleet: Fleet, *, now: str) -> Iterator[Row]:
    """Yield the mappings of a selected node that the list shows, and count all that are selected.

    An outdated report is shown, because it may be the only trace of a holder.
    """
    seen = age_text(age(report.observed_at, now))
    if isinstance(report.mappings, NotObserved):
        reason = f"not observed: {report.mappings.reason} ({seen} ago)"
        fleet.unknown.append((report.name, reason))
        return
    if report.incomplete:
        fleet.unknown.append((report.name, report.incomplete))
    elif is_fresh(report, now):
        fleet.nodes += 1
    else:
        fleet.unknown.append((report.name, f"its agent last {confirmed(report, now)}"))
    for mapping in report.mappings:
        if wanted.volumes is not None and mapping.persistent_volume not in wanted.volumes:
            continue
        if wanted.verdicts and mapping.verdict not in wanted.verdicts:
            continue
        is_fine = is_healthy(mapping)
        counts = fleet.healthy if is_fine else fleet.unhealthy
        counts[mapping.verdict] = counts.get(mapping.verdict, 0) + 1
        if wanted.healthy or wanted.verdicts or not is_fine:
            fleet.findings.update(mapping.findings)
            yield Row(report.name, report.observed_at, mapping)


def is_healthy(mapping: PublishedMapping) -> bool:
    """Return whether neither the verdict nor a finding of a mapping needs attention."""
    return mapping.verdict in HEALTHY and all(
        severity(code) is Severity.INFO for code in mapping.findings
    )


def severity(code: str) -> Severity:
    """Return the severity of a finding; of a code of a newer agent, ``error``."""
    entry = CATALOG.get(code)
    return Severity.ERROR if entry is None else entry.severity
