"""All that is stuck in a cluster as one HTML page: causes by node, each with its volume's page."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Final

from rbdagent.commands import PROGRAM, lines_of
from rbdagent.lifecycle.urgency import Urgency, by_urgency, node_of
from rbdagent.model import Severity
from rbdagent.report.html.document import command_block, document, icon, section, sources
from rbdagent.report.html.markup import Html, el, joined, nested
from rbdagent.report.html.volume import finding_card, volume_sections
from rbdagent.report.text.cluster import (
    ClusterHeadline,
    counts,
    coverage,
    headline_of_cluster,
    is_all_observed,
    next_commands_of_cluster,
    node_findings,
    row_of,
    unobserved_facts,
)
from rbdagent.verdicts.timing import age, age_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rbdagent.model import AffectedObject, ClusterReport, Finding, Snapshot

    Placed = tuple[Urgency, AffectedObject]
    """A stuck object with its group."""

MOST_VOLUMES: Final = 200
"""Maximum of volumes with their content: a page of 200 has some megabytes."""
_TONES: Final = {
    Urgency.AT_RISK: "critical",
    Urgency.BLOCKED: "error",
    Urgency.OTHER: "warning",
    Urgency.LEFTOVER: "plain",
}
_NOTES: Final = {
    Urgency.AT_RISK: "data may be lost or damaged",
    Urgency.BLOCKED: "a pod waits for the volume",
    Urgency.OTHER: "in use, or use not observed",
    Urgency.LEFTOVER: "no pod waits for the volume",
}
_NO_NODE: Final = "no node"


def cluster_page(
    found: ClusterReport,
    snapshot: Snapshot,
    *,
    now: str,
    of: str = "",
    program: Sequence[str] = PROGRAM,
) -> str:
    """Return the output of ``diagnose -A -o html``.

    Args:
        found: the stuck objects and their causes.
        snapshot: the snapshot in which they were found.
        now: the current time: the page shows how old the snapshot was when it was made.
        of: describes the selection, if there is one.
        program: the words that start rbdagent in the place of the reader.
    """
    answer = headline_of_cluster(found, snapshot, of)
    placed = [
        (urgency, affected)
        for urgency, causes in by_urgency(found, snapshot.kubernetes).items()
        for affected in chain.from_iterable(causes)
    ]
    return document(
        f"rbdagent diagnose: {answer}",
        joined(
            (
                el("p", "rbdagent diagnose ", el("code", of or "-A")),
                el("p", _observed(snapshot, now)),
            )
        ),
        joined(
            (
                _answer(answer, found, snapshot),
                _tiles(found, snapshot),
                *_nodes(placed[:MOST_VOLUMES], snapshot, program),
                *_omitted(len(placed) - MOST_VOLUMES),
                *_node_findings(node_findings(found), program),
                *_next(found, program),
                sources(snapshot),
            )
        ),
        snapshot,
    )


def _observed(snapshot: Snapshot, now: str) -> str:
    since = age(snapshot.observed_at, now)
    passed = "" if since is None else f", {age_text(since)} before this page was made"
    return f"This is a snapshot, observed {snapshot.observed_at}{passed}."


def _answer(answer: ClusterHeadline, found: ClusterReport, snapshot: Snapshot) -> Html:
    class_name = _class_of(answer, found)
    return el(
        "div",
        icon(class_name),
        el("div", el("h1", str(answer)), el("p", coverage(found, snapshot))),
        class_=f"answer card {class_name}",
    )


def _class_of(answer: ClusterHeadline, found: ClusterReport) -> str:
    """Return the class of the answer in ``page.css``; "done" only if everything was observed."""
    if found.causes:
        return "warning" if found.causes[0].finding.severity is Severity.WARNING else "failed"
    return "done" if answer.is_ok and not unobserved_facts(found) else "warning"


# --------------------------------------------------------------------------------------------------
# Tiles
# --------------------------------------------------------------------------------------------------


def _tiles(found: ClusterReport, snapshot: Snapshot) -> Html:
    is_all = is_all_observed(found, snapshot)
    tiles = (
        _tile(urgency, number, is_all=is_all) for urgency, number in counts(found, snapshot).items()
    )
    return el("ul", *tiles, class_="tiles")


def _tile(urgency: Urgency, number: int, *, is_all: bool) -> Html:
    """Return the tile of a group; a number that may be too small is marked as such."""
    more = () if is_all else (el("span", " or more", class_="more"),)
    return el(
        "li",
        el("p", el("b", str(number)), *more, class_="number"),
        el("p", urgency, class_="label"),
        el("p", _NOTES[urgency], class_="note"),
        class_=f"tile card {_TONES[urgency] if number else 'plain'}",
    )


# --------------------------------------------------------------------------------------------------
# Nodes and their volumes
# --------------------------------------------------------------------------------------------------


def _nodes(placed: Sequence[Placed], snapshot: Snapshot, program: Sequence[str]) -> Iterator[Html]:
    """Yield a section for each node, that of the most urgent volume first."""
    by_node: dict[str, list[Html]] = {}
    for number, (urgency, affected) in enumerate(placed):
        node = node_of(affected) or _NO_NODE
        content = nested(volume_sections(affected.life, snapshot, program), f"v{number}")
        by_node.setdefault(node, []).append(_volume(urgency, affected, snapshot, content))
    for node, volumes in by_node.items():
        count = f"{len(volumes)} {'volume' if len(volumes) == 1 else 'volumes'}"
        heading = el("h2", el("span", node, class_="names"), " ", el("small", count))
        yield el("section", heading, el("div", *volumes, class_="volumes card"))


def _volume(urgency: Urgency, affected: AffectedObject, snapshot: Snapshot, content: Html) -> Html:
    row = row_of(affected, snapshot)
    is_warning = row.severity is Severity.WARNING
    summary = el(
        "summary",
        icon("warning" if is_warning else "failed"),
        el("span", row.name, class_="names"),
        el("span", row.summary, class_="fact"),
        el("span", str(row.waits), class_="waits"),
        el("span", urgency.removesuffix("s"), class_=f"pill {_TONES[urgency]}"),
        el("code", row.code),
    )
    return el("details", summary, el("div", content, class_="content"), class_=str(row.severity))


def _omitted(number: int) -> Iterator[Html]:
    if number > 0:
        text = f"And {number} less urgent volumes, which this page does not show: "
        yield el("p", text, el("code", "-o wide"), " lists all.", class_="rest")


def _node_findings(findings: Sequence[Finding], program: Sequence[str]) -> Iterator[Html]:
    if findings:
        cards = (finding_card(finding, program, is_target=False) for finding in findings)
        yield section("Nodes", el("div", *cards, class_="findings"))


def _next(found: ClusterReport, program: Sequence[str]) -> Iterator[Html]:
    commands = lines_of(next_commands_of_cluster(found), program)
    if commands:
        yield section("Next", *(command_block(line) for line in commands))
