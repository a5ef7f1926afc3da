"""The messages in docs/troubleshooting.md are messages of rbdagent or of its plugin."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from tests.support.cli_runner import ROOT
from tests.support.printed_texts import printed_texts
from tests.support.rows import each_row

if TYPE_CHECKING:
    from collections.abc import Iterator

_TEXT: Final = (ROOT / "docs" / "troubleshooting.md").read_text()
_HEAD: Final = "| message |"
"""Begins a table whose first column has one message per row."""
_MESSAGE: Final = re.compile(r"\| `([^`]+)` \|")


def _rows() -> Iterator[str]:
    """Yield the rows of the tables of messages."""
    for block in _TEXT.split("\n\n"):
        if block.startswith(_HEAD):
            yield from block.strip().split("\n")[2:]


ROWS: Final = tuple(_rows())
MESSAGES: Final = tuple(found[1] for row in ROWS if (found := _MESSAGE.match(row)))


def test_every_row_begins_with_one_message() -> None:
    assert len(MESSAGES) == len(ROWS) == len({*MESSAGES})
    assert len(MESSAGES) > 40


@each_row("message", MESSAGES)
def test_message_is_in_the_program(message: str) -> None:
    assert any(message in text for text in printed_texts())


def test_message_that_is_not_in_the_program_is_found() -> None:
    assert not any("no agent is installed: there is a pod" in text for text in printed_texts())
