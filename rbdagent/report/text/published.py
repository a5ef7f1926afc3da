"""The output of ``list -A``: the mappings that the agents of all nodes published."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

from rbdagent.report.text.layout import (
    NONE,
    UNKNOWN,
    Layout,
    counted,
    shortened,
    verdict_table,
    with_escaped_texts,
)
from rbdagent.verdicts.timing import age, age_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rbdagent.model import Verdict
    from rbdagent.report.fleet import Fleet, Row

_HEAD: Final = ("NODE", "DEVICE", "VERDICT", "PV", "IMAGE", "CLIENT", "PODS", "SEEN")
_DETAILS: Final = ("ADDRESS", "SINCE")
_MOST: Final = 28
"""Characters of a name; -v shows whole names."""
_MOST_NODES: Final = 10
"""Nodes with unknown mappings that the summary names; -v names all."""


@with_escaped_texts
def fleet_table(rows: Sequence[Row], layout: Layout, *, now: str) -> str:
    """Return a table of published mappings, without a line break at its end."""
    head = (*_HEAD, *(_DETAILS if layout.details else ()))
    cells = [_cells(row, layout, now) for row in rows]
    return verdict_table(head, cells, [row.mapping.verdict for row in rows], layout)


def _cells(row: Row, layout: Layout, now: str) -> list[str]:
    mapping, most = row.mapping, sys.maxsize if layout.details else _MOST
    cells = [
        row.node,
        mapping.device,
        str(mapping.verdict),
        shortened(mapping.persistent_volume or UNKNOWN, most),
        shortened(str(mapping.spec or UNKNOWN), most),
        f"client.{mapping.client_id}" if mapping.client_id else UNKNOWN,
        ",".join(mapping.pods) or NONE,
        age_text(age(row.observed_at, now)),
    ]
    if layout.details:
        cells += [str(mapping.client_address or UNKNOWN), mapping.since or UNKNOWN]
    return cells


@with_escaped_texts
def fleet_summary(fleet: Fleet, layout: Layout, *, of: str = "") -> str:
    """Return how many mappings need attention, and which nodes did not report.

    Args:
        fleet: the numbers.
        layout: of the output.
        of: the selection, such as ``of namespace shop``; empty for all mappings.
    """
    total = _total(fleet.healthy) + _total(fleet.unhealthy)
    of = f" {of}" if of else ""
    urgent = _total(fleet.unhealthy)
    verb = "needs" if 1 in {urgent, total} else "need"
    attention = f"{urgent} of {counted(total, 'mapping')}{of} {verb} attention"
    where = f"on {counted(fleet.nodes + len(fleet.unknown), 'node')}"
    lines = [f"{attention}, {where}{_by_verdict(fleet.unhealthy)}."] if total else []
    if fleet.nodes and not total:
        lines.append(
            f"Nothing{of} is mapped on the {counted(fleet.nodes, 'node')} whose agents reported."
        )
    if fleet.unknown:
        lines.append(unknown_nodes(fleet, layout))
    return "\n".join(lines)


@with_escaped_texts
def unknown_nodes(fleet: Fleet, layout: Layout) -> str:
    """Return a sentence about the nodes whose current mappings are unknown, and their lines."""
    most = len(fleet.unknown) if layout.details else _MOST_NODES
    lines = [f"The current mappings of {counted(len(fleet.unknown), 'node')} are unknown:"]
    lines += [f"  {name}: {reason}" for name, reason in fleet.unknown[:most]]
    if (left := len(fleet.unknown) - most) > 0:
        lines.append(f"  and {left} more (-v)")
    return "\n".join(lines)


@with_escaped_texts
def fleet_rest(fleet: Fleet, *, shown: int, healthy: bool) -> str:
    """Return which of the selected mappings the table leaves out; empty if it has all."""
    lines = []
    listed = _total(fleet.unhealthy) + (_total(fleet.healthy) if healthy else 0)
    if shown < listed:
        lines.append(f"The table has the first {shown} of {listed} mappings (--all lists all).")
    if fleet.healthy and not healthy:
        count = counted(_total(fleet.healthy), "healthy mapping")
        lines.append(f"{count} not shown (--all){_by_verdict(fleet.healthy)}.")
    return "\n".join(lines)


def _total(counts: Mapping[Verdict, int]) -> int:
    return sum(counts.values())


def _by_verdict(counts: Mapping[Verdict, int]) -> str:
    most_first = sorted(counts.items(), key=lambda item: -item[1])
    words = ", ".join(f"{count} {verdict}" for verdict, count in most_first)
    return f": {words}" if words else ""


@with_escaped_texts
def published_names(rows: Sequence[Row]) -> str:
    """Return one ``NODE/DEVICE`` line for each mapping: ``worker-1/rbd0``."""
    return "".join(f"{row.node}/{row.mapping.device.removeprefix('/dev/')}\n" for row in rows)
