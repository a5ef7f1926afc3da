"""Logs for people and for programs hold nothing of others that moves, hides or turns."""

from __future__ import annotations

import io
import json
import logging
from typing import TYPE_CHECKING

import pytest

from rbdagent.log import agent_log, show_tracebacks
from rbdagent.observe.failure import LOGGER
from tests.unit.hostile import CLEAR_SCREEN, FORGED_LINE, TURNED, is_clean

if TYPE_CHECKING:
    from collections.abc import Iterator

ILL = f"sleep{FORGED_LINE}{CLEAR_SCREEN}{TURNED}\x7f"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_line_for_people_is_one_line_with_escapes(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    agent_log("n1").warning("refused", RBD503=ILL, failed=[ILL], by={"name": ILL})
    said = terminal.getvalue()
    assert said.count("\n") == 1
    assert is_clean(said)
    assert r"\u202e" in said


def test_a_line_for_programs_is_parsed_to_what_was_logged(
    capsys: pytest.CaptureFixture[str],
) -> None:
    agent_log("n1").warning("refused", RBD503=ILL)
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert is_clean(said)
    assert json.loads(said)["RBD503"] == ILL


@pytest.fixture
def logger() -> Iterator[logging.Logger]:
    found = logging.getLogger(LOGGER)
    before = found.level, found.handlers
    yield found
    found.setLevel(before[0])
    found.handlers = before[1]


def test_a_traceback_shows_what_it_quotes(
    logger: logging.Logger, capsys: pytest.CaptureFixture[str]
) -> None:
    show_tracebacks()
    logger.debug("the node", exc_info=ValueError(f"x{CLEAR_SCREEN}{TURNED}"))
    assert is_clean(capsys.readouterr().err)
