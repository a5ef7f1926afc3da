"""Documents quote the current output of rbdagent: an answer changes only after a review."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.documents.answers import STORIES, as_answered_today, quoting, snapshots, stories

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.needs("jq")
@pytest.mark.parametrize("document", quoting(), ids=lambda path: path.stem)
def test_quoted_answer_is_the_current_output(document: Path) -> None:
    assert snapshots(document)
    today = as_answered_today(document)
    assert document.read_text() == today, "review the change, then run ./dev docs"


@pytest.mark.parametrize("story", stories(), ids=lambda path: path.stem)
def test_story_quotes_only_recorded_snapshots(story: Path) -> None:
    assert all(name.startswith("tests/fixtures/") for name in snapshots(story))


def test_every_story_is_listed() -> None:
    listed = (STORIES / "README.md").read_text()
    assert [path.name for path in stories() if f"]({path.name})" not in listed] == []
