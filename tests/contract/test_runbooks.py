"""The runbooks match the catalogue and the alerts, and every link to a runbook leads to a page."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from rbdagent.addresses import RUNBOOKS
from rbdagent.catalog import CATALOG, explanation
from rbdagent.cli.pages import page_of
from rbdagent.commands import sentence_of
from rbdagent.pages import HEADINGS, MARKER, sections
from rbdagent.rules.entry import runbook
from tests.documents.runbooks import ROOT, alerts, pages
from tests.documents.runbooks import RUNBOOKS as FOLDER
from tests.support.rows import each_row

if TYPE_CHECKING:
    from pathlib import Path

_NO_PARAGRAPH = re.compile(r"^(?:\s|$|#|[-*+>|] |```)", re.MULTILINE)
"""An empty or indented line, or one that begins a heading, a list, a quote, a table or code."""
_HEADINGS = [
    "What it means",
    "Who is affected",
    "What to check",
    "What to do",
    "When it recovers",
    "When to escalate",
]


def test_every_page_matches_the_catalogue_and_the_alerts() -> None:
    wanted = pages()
    found = {path: path.read_text() for path in FOLDER.glob("*.md")}
    other = sorted(
        str(path.relative_to(ROOT))
        for path in wanted.keys() | found.keys()
        if wanted.get(path) != found.get(path)
    )
    assert other == [], "run ./dev docs, and remove the pages of what is no more"


def test_handwritten_text_is_kept_when_a_page_is_generated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_hand = "## Cause\n\nWe\nknow.\n\n## Evidence\n\nOurs.\n\n## Risk\n\nNone.\n"
    below = f"{MARKER}\n\n## Cause\n\nOur storage team: 555.\n"
    (tmp_path / "RBD101.md").write_text(f"# Old\n\n{by_hand}\n## Remedy\n\nOld.\n\n{below}")
    monkeypatch.setattr("tests.documents.runbooks.RUNBOOKS", tmp_path)
    page = pages()[tmp_path / "RBD101.md"]
    assert page.startswith("# RBD101 MappingOrphaned\n")
    assert f"\n\n{by_hand}\n## Remedy\n\n" in page
    assert page.endswith(f"\n\n{below}")
    assert "Old" not in page


def test_page_of_a_new_code_has_empty_sections(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.documents.runbooks.RUNBOOKS", tmp_path)
    page = pages()[tmp_path / "RBD101.md"]
    assert "\n\n## Cause\n\n## Evidence\n\n## Risk\n\n## Remedy\n\n" in page


def test_each_section_by_hand_is_one_paragraph() -> None:
    """`explain` prints it as one: an empty line, a list or a heading in it would be lost."""
    found = {code: sections((FOLDER / f"{code}.md").read_text()) for code in CATALOG}
    wrong = [
        f"docs/runbooks/{code}.md: {heading}"
        for code, written in found.items()
        for heading in HEADINGS
        if _NO_PARAGRAPH.search(written.get(heading, ""))
    ]
    assert wrong == [], "write one paragraph below each of these headings"


@each_row("code", CATALOG)
def test_page_of_a_finding_contains_the_text_of_explain(code: str) -> None:
    page = (FOLDER / f"{code}.md").read_text()
    title = page.partition("\n")[0].removeprefix("# ")
    entry, by_hand = CATALOG[code], page_of(code)
    assert explanation(entry, by_hand).startswith(f"{title} (")
    words = " ".join(page.split())
    texts = (by_hand.cause, by_hand.evidence, by_hand.risk)
    for said in (entry.summary, *texts, sentence_of(entry.remedy)):
        assert " ".join(said.split()) in words


@pytest.mark.parametrize("alert", alerts())
def test_page_of_an_alert_has_all_headings_in_order(alert: str) -> None:
    by_hand = (FOLDER / f"{alert}.md").read_text().partition(MARKER)[2]
    parts = re.split(r"^## (.+)\n", by_hand, flags=re.MULTILINE)
    assert parts[1::2] == _HEADINGS
    assert all(part.strip() for part in parts[2::2])


@each_row("name", [*CATALOG, *alerts()])
def test_link_of_a_finding_or_an_alert_leads_to_a_page(name: str) -> None:
    assert (FOLDER / runbook(name).removeprefix(RUNBOOKS)).exists()
    assert RUNBOOKS.endswith(f"/blob/main/{FOLDER.relative_to(ROOT)}/")
