"""The stories in docs/stories end as rbdagent tells them: an answer changes only under review."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.contract.cli_runner import ROOT
from tests.contract.stories import STORIES, as_answered_today, snapshots, told

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("story", told(), ids=lambda path: path.stem)
def test_a_story_has_the_answer_that_rbdagent_gives(story: Path) -> None:
    assert story.read_text() == as_answered_today(story), "review the change, then run ./dev docs"


@pytest.mark.parametrize("story", told(), ids=lambda path: path.stem)
def test_a_story_is_answered_from_what_was_recorded(story: Path) -> None:
    found = snapshots(story)
    assert found
    assert all((ROOT / each).is_relative_to(ROOT / "tests" / "fixtures") for each in found)


def test_every_story_is_on_the_list() -> None:
    listed = (STORIES / "README.md").read_text()
    assert [path.name for path in told() if f"]({path.name})" not in listed] == []
