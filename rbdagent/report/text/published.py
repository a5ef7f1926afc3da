"""The output of ``list -A``: the mappings that the agents of all nodes published."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rbdagent.correlate.published_reports import is_fresh
from rbdagent.model import NotObserved
from rbdagent.report.text.layout import UNKNOWN, Layout, verdict_table, with_escaped_texts
from rbdagent.verdicts.timing import age, age_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rbdagent.model import PublishedNode


@with_escaped_texts
def published_table(nodes: Sequence[PublishedNode], layout: Layout, *, now: str) -> str:
    """Return a table of published mappings, and a line for each outdated or missing report."""
    head = ["NODE", "DEVICE", "VERDICT", "PV", "IMAGE", "CLIENT", "PODS", "SEEN"]
    head += ["ADDRESS", "SINCE"] if layout.details else []
    rows, verdicts, notes = [], [], []
    for node in sorted(nodes, key=lambda node: node.name):
        since = age(node.observed_at, now)
        seen = age_text(since)
        if isinstance(node.mappings, NotObserved):
            notes.append(f"{node.name}: not observed: {node.mappings.reason} (reported {seen} ago)")
            continue
        if not is_fresh(node, now):
            notes.append(f"{node.name}: last report {seen} ago: its current mappings are unknown")
        for mapping in node.mappings:
            row = [
                node.name,
                mapping.device,
                str(mapping.verdict),
                mapping.persistent_volume or UNKNOWN,
                str(mapping.spec or UNKNOWN),
                f"client.{mapping.client_id}" if mapping.client_id else UNKNOWN,
                ",".join(mapping.pods) or "none",
                seen,
            ]
            row += (
                [str(mapping.client_address or UNKNOWN), mapping.since or UNKNOWN]
                if layout.details
                else []
            )
            rows.append(row)
            verdicts.append(mapping.verdict)
    if not nodes:
        return "No agent has published anything yet.\n"
    table = verdict_table(head, rows, verdicts, layout)
    if not rows:
        reported = sum(not isinstance(node.mappings, NotObserved) for node in nodes)
        table = f"Nothing is mapped on the {reported} nodes whose agents reported."
    return "\n".join([table.rstrip(), *([""] if notes else []), *notes]) + "\n"


@with_escaped_texts
def published_names(nodes: Sequence[PublishedNode]) -> str:
    """Return one ``NODE DEVICE`` line for each published mapping."""
    return "".join(
        f"{node.name} {mapping.device}\n"
        for node in nodes
        if not isinstance(node.mappings, NotObserved)
        for mapping in node.mappings
    )
