"""The answers of ``diagnose -A`` as text and as a page, over recorded and generated clusters."""

from __future__ import annotations

import functools
import itertools
import re
from pathlib import Path
from typing import Final

import pytest
from msgspec.structs import replace

from rbdagent.addresses import RUNBOOKS
from rbdagent.commands import NOT_PRINTED
from rbdagent.lifecycle.cluster_report import report_cluster
from rbdagent.lifecycle.urgency import Urgency, by_urgency
from rbdagent.model import ClusterReport, Severity, Snapshot, SourceState, Target, TargetKind
from rbdagent.parse.shown import shown
from rbdagent.report.html.cluster import MOST_VOLUMES, cluster_page
from rbdagent.report.html.markup import el, nested
from rbdagent.report.snapshot import load_snapshot
from rbdagent.report.text.cluster import affected_table, next_commands_of_cluster, node_findings
from rbdagent.report.text.layout import Layout
from rbdagent.rules import FINDINGS
from tests.lab.many import many
from tests.support.cli_runner import ROOT
from tests.support.hostile_texts import TURNED, is_clean
from tests.support.rows import each_row
from tests.support.sample_pages import SCENES, ParsedPage, named

WHOLE: Final = Target(argument="-A", kind=TargetKind.NONE)
LATER: Final = "2026-12-01T00:00:00Z"
_FILES: Final = {
    path.stem: path
    for path in (
        *sorted((ROOT / "examples").glob("*.json")),
        *sorted((ROOT / "tests" / "fixtures" / "life").glob("*.json")),
    )
}
_MADE: Final = {
    "healthy": SCENES["in-use"],
    "broken": lambda: many(volumes=60, broken=24, seed=3).snapshot,
    "many-broken": lambda: many(volumes=600, broken=300, seed=3).snapshot,
    "documented": lambda: many(volumes=60, broken=16, seed=3).snapshot,
    "longest-names": lambda: named("n" * 253),
    "hostile-names": lambda: named(f"{TURNED}<script>\n"),
    "without-api": SCENES["without-api"],
}
NAMES: Final = (*_FILES, *_MADE)
_COMMAND: Final = re.compile(r"  (?:-> |rbdagent diagnose |\(a command is not printed)")
"""The beginning of a line to copy, which is never cut."""


@functools.cache
def loaded(name: str) -> tuple[ClusterReport, Snapshot]:
    """Return a recording as the snapshot of a cluster, and what is stuck in it."""
    if name in _FILES:
        snapshot = load_snapshot(Path(_FILES[name]).read_text(), where=name)
    else:
        snapshot = _MADE[name]()
    snapshot = replace(snapshot, target=WHOLE)
    return report_cluster(snapshot), snapshot


def text_of(name: str, width: int = 80, *, details: bool = False) -> str:
    return affected_table(*loaded(name), Layout(width=width, details=details))


@functools.cache
def page_of(name: str) -> str:
    return cluster_page(*loaded(name), now=LATER)


def test_counts_agree_with_their_nouns() -> None:
    assert "\nChecked 1 claim, 1 PV and 1 pod with volumes.\n" in text_of("multi-attach")
    words = " ".join(text_of("kept_by_another_pod").split())
    assert "Checked 1 claim, 15 PVs and 8 pods with volumes." in words
    assert "Ceph was queried about 1 image: " in words


def test_client_without_a_device_is_not_the_client_of_a_client() -> None:
    words = " ".join(text_of("broken", details=True).split())
    assert " client.4004 at 10.0.0.4:0/1004 (node-00004) is blocklisted: " in words
    assert "client of client" not in words


def test_cut_cell_keeps_how_long_a_pod_waits() -> None:
    ends = re.findall(r"\S+ waits \d+[smh](?=  )", text_of("kept_by_another_pod"))
    assert len(ends) == 3
    assert all("…" in end for end in ends)


every_name = each_row("name", NAMES)
every_width = each_row("width", [40, 80, 120, 200])


# --------------------------------------------------------------------------------------------------
# Text
# --------------------------------------------------------------------------------------------------


@every_width
@every_name
def test_no_line_is_longer_than_the_width(name: str, width: int) -> None:
    """A word of a reason, such as a path, may be longer: it has a line without other words."""
    long = [line for line in text_of(name, width).splitlines() if len(line) > width]
    assert [line for line in long if not _COMMAND.match(line) and len(line.split()) > 1] == []


@every_name
def test_first_line_is_the_answer(name: str) -> None:
    found, snapshot = loaded(name)
    first = " ".join(text_of(name, 200).partition("\n\n")[0].split())
    if found.causes:
        least = "At least " if found.findings != node_findings(found) else ""
        assert re.match(rf"{least}{len(found.stuck)} volumes? needs? attention: ", first)
        counts = [*map(int, re.findall(r"\d+", first))]
        assert sum(counts[1:]) == counts[0]
    sources = [source for _, source in snapshot.sources.named]
    is_seen = all(source.state is SourceState.OBSERVED and not source.gaps for source in sources)
    assert not first.startswith("OK") or not found.causes
    assert not first.startswith("OK:") or is_seen


@every_width
@every_name
def test_every_urgent_object_has_a_row(name: str, width: int) -> None:
    found, snapshot = loaded(name)
    groups = by_urgency(found, snapshot.kubernetes)
    text = text_of(name, width)
    assert ("DATA AT RISK" in text) is bool(groups[Urgency.AT_RISK])
    assert ("BLOCKED" in text) is bool(groups[Urgency.BLOCKED])
    for urgency, causes in groups.items():
        for cause in causes:
            codes = {affected.finding.code for affected in cause}
            limit = urgency is Urgency.LEFTOVER or len(found.stuck) > 20
            assert limit or all(f"  {code}\n" in text for code in codes)


@every_name
def test_details_have_every_object_and_message(name: str) -> None:
    found, _ = loaded(name)
    text = text_of(name, details=True)
    words = " ".join(text.split())
    rows = re.findall(r"^  \S.*  (RBD\d{3})$", text, re.MULTILINE)
    codes = [affected.finding.code for affected in found.stuck]
    assert sorted(rows) == sorted([*codes, *(finding.code for finding in node_findings(found))])
    for cause in found.causes:
        assert " ".join(shown(cause.finding.message).split()) in words


@every_name
def test_next_commands_only_read(name: str) -> None:
    found, _ = loaded(name)
    assert not [given for given in next_commands_of_cluster(found) if given.changes]
    assert bool(next_commands_of_cluster(found)) is bool(found.causes)


@every_name
def test_text_has_no_unsafe_characters(name: str) -> None:
    assert is_clean(text_of(name))
    assert is_clean(text_of(name, details=True))


def test_command_with_a_name_that_a_terminal_does_not_show_is_not_printed() -> None:
    assert next_commands_of_cluster(loaded("hostile-names")[0])
    assert text_of("hostile-names").endswith(f"Next:\n  {NOT_PRINTED}\n")


def test_narrow_rows_have_words_and_wide_rows_have_sentences() -> None:
    assert "  Client blocklisted  " in text_of("broken", 80)
    assert "  The node's Ceph client is on the blocklist: the mapping is unusable  " in text_of(
        "broken", 200
    )


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("RBD101", "Mapping orphaned"),
        ("RBD109", "Pod lost by API"),
        ("RBD201", "CSI driver down"),
        ("RBD407", "Not an RBD volume"),
        ("RBD759", "SELinux conflict"),
    ],
)
def test_name_of_a_finding_is_shown_in_words(code: str, words: str) -> None:
    assert FINDINGS[code].words == words


def test_document_quotes_the_current_answer() -> None:
    text = text_of("documented", 100)
    assert f"```\n{text}```\n" in (ROOT / "docs" / "diagnose.md").read_text()


# --------------------------------------------------------------------------------------------------
# Page
# --------------------------------------------------------------------------------------------------


@every_name
def test_page_has_the_answer_and_the_groups(name: str) -> None:
    found, _ = loaded(name)
    page = ParsedPage(page_of(name))
    first = " ".join(text_of(name, 10_000).partition("\n\n")[0].split())
    assert first in " ".join(page.text.split())
    assert "This is a snapshot, observed 2026" in page.text
    assert "before this page was made" in page.text
    assert page.values("class").count("volumes card") <= len(found.stuck)


@every_name
def test_page_is_well_formed_and_every_id_is_unique(name: str) -> None:
    text = page_of(name)
    assert text.isascii()
    page = ParsedPage(text)
    names = page.values("id")
    assert len(names) == len(set(names))
    within = {href.removeprefix("#") for href in page.values("href") if href.startswith("#")}
    assert within | set(page.values("aria-labelledby")) <= set(names)


@every_name
def test_page_loads_nothing_and_runs_nothing(name: str) -> None:
    page = ParsedPage(page_of(name))
    assert not {"script", "link", "img", "iframe", "object", "embed", "base"} & set(page.tags)
    attributes = {attribute for _, attribute, _ in page.attributes}
    assert not {"src", "srcset", "style", "background", "action"} & attributes
    assert not [attribute for attribute in attributes if attribute.startswith("on")]
    assert "default-src 'none'" in "".join(page.values("content"))
    elsewhere = [href for href in page.values("href") if not href.startswith("#")]
    assert [href for href in elsewhere if not href.startswith(RUNBOOKS)] == []


@every_name
def test_headings_of_the_page_are_in_order(name: str) -> None:
    page = ParsedPage(page_of(name))
    assert [page.tags.count(tag) for tag in ("title", "header", "main", "footer", "h1")] == [1] * 5
    levels = [int(tag[1]) for tag in page.tags if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1
    assert all(after - before <= 1 for before, after in itertools.pairwise(levels))


def test_each_volume_unfolds_to_the_content_of_its_page() -> None:
    found, _ = loaded("broken")
    page = ParsedPage(page_of("broken"))
    assert page.tags.count("details") == page.tags.count("summary") == len(found.stuck)
    for affected in found.stuck:
        for finding in affected.life.findings:
            assert finding.message in page.text
            assert [line for line in finding.evidence if line not in page.text] == []


def test_page_is_limited_to_the_most_urgent_volumes() -> None:
    found, _ = loaded("many-broken")
    page = ParsedPage(page_of("many-broken"))
    assert page.tags.count("details") == MOST_VOLUMES
    assert f"And {len(found.stuck) - MOST_VOLUMES} less urgent volumes" in page.text
    critical = [one for one in found.stuck if one.finding.severity is Severity.CRITICAL]
    assert page.values("class").count("critical") == len(critical)
    assert len(page_of("many-broken")) < 4_000_000


def test_page_of_a_healthy_cluster_is_good_only_if_all_was_observed() -> None:
    assert 'class="answer card done"' in page_of("healthy")
    found, snapshot = loaded("healthy")
    away = replace(snapshot.sources.ceph, state=SourceState.SKIPPED, reason="not queried")
    unseen = replace(snapshot, ceph=None, sources=replace(snapshot.sources, ceph=away))
    page = cluster_page(report_cluster(unseen), unseen, now=LATER)
    assert 'class="answer card warning"' in page
    assert found.causes == ()


def test_incomplete_numbers_of_the_page_are_marked() -> None:
    assert " or more" not in ParsedPage(page_of("broken")).text
    assert " or more" in ParsedPage(page_of("without-api")).text


def test_nested_content_keeps_its_text() -> None:
    text = '<h2 id="x"> href="#y" aria-labelledby="z"'
    part = nested(el("section", el("h2", text, id="x"), aria_labelledby="x"), "v7")
    page = ParsedPage(part)
    assert page.text == text
    assert page.tags == ["section", "h4"]
    assert [page.values("id"), page.values("aria-labelledby")] == [["v7-x"], ["v7-x"]]
