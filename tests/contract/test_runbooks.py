"""The runbooks match the catalogue and the alerts, and every link to a runbook leads to a page."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from rbdagent.addresses import RUNBOOKS
from rbdagent.catalog import CATALOG, explanation
from rbdagent.commands import sentence_of
from rbdagent.rules.entry import runbook
from tests.documents.runbooks import MARKER, ROOT, alerts, pages
from tests.documents.runbooks import RUNBOOKS as FOLDER
from tests.support.rows import each_row

if TYPE_CHECKING:
    from pathlib import Path

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
    (tmp_path / "RBD101.md").write_text(f"# Old\n{MARKER}\nOur storage team: 555.\n")
    monkeypatch.setattr("tests.documents.runbooks.RUNBOOKS", tmp_path)
    page = pages()[tmp_path / "RBD101.md"]
    assert page.startswith("# RBD101 MappingOrphaned\n")
    assert page.endswith(f"{MARKER}\nOur storage team: 555.\n")


@each_row("code", CATALOG)
def test_page_of_a_finding_contains_the_text_of_explain(code: str) -> None:
    page = (FOLDER / f"{code}.md").read_text()
    title = page.partition("\n")[0].removeprefix("# ")
    assert explanation(code).startswith(f"{title} (")
    words = " ".join(page.split())
    entry = CATALOG[code]
    for said in (entry.summary, entry.cause, entry.evidence, entry.risk, sentence_of(entry.remedy)):
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
