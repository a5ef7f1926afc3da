"""What documents quote is what rbdagent says: an answer changes only under review."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.contract.answers import STORIES, as_answered_today, quoting, snapshots, stories

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("document", quoting(), ids=lambda path: path.stem)
def test_a_quoted_answer_is_the_one_that_rbdagent_gives(document: Path) -> None:
    assert snapshots(document)
    today = as_answered_today(document)
    assert document.read_text() == today, "review the change, then run ./dev docs"


@pytest.mark.parametrize("story", stories(), ids=lambda path: path.stem)
def test_a_story_is_answered_from_what_was_recorded(story: Path) -> None:
    assert all(each.startswith("tests/fixtures/") for each in snapshots(story))


def test_every_story_is_on_the_list() -> None:
    listed = (STORIES / "README.md").read_text()
    assert [path.name for path in stories() if f"]({path.name})" not in listed] == []
