"""The picture of a terminal in the README shows the current answer."""

from __future__ import annotations

from tests.documents.picture import PICTURE, drawn_today
from tests.support.cli_runner import ROOT


def test_picture_shows_the_current_answer() -> None:
    assert PICTURE.read_text() == drawn_today(), "review the change, then run ./dev docs"


def test_picture_is_small_and_in_the_readme() -> None:
    assert PICTURE.stat().st_size <= 40 * 1024
    assert f'"{PICTURE.relative_to(ROOT)}"' in (ROOT / "README.md").read_text()
