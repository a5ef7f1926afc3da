"""Logs as text and as JSON contain no foreign characters that move, hide or reverse text."""

from __future__ import annotations

import io
import json
import logging
from typing import TYPE_CHECKING

from rbdagent.collect.failure import LOGGER
from rbdagent.log import Log, tracebacks_shown
from tests.support.hostile_texts import CLEAR_SCREEN, FORGED_LINE, TURNED, is_clean

if TYPE_CHECKING:
    import pytest

ILL = f"sleep{FORGED_LINE}{CLEAR_SCREEN}{TURNED}\x7f"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_text_entry_is_one_line_with_escapes(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    Log(node="n1").warning("refused", RBD503=ILL, failed=[ILL], by={"name": ILL})
    said = terminal.getvalue()
    assert said.count("\n") == 1
    assert is_clean(said)
    assert r"\u202e" in said


def test_json_entry_is_one_line_and_parses_to_its_values(
    capsys: pytest.CaptureFixture[str],
) -> None:
    Log(node="n1").warning("refused", RBD503=ILL)
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert is_clean(said)
    assert json.loads(said)["RBD503"] == ILL


def test_traceback_contains_no_control_characters(capsys: pytest.CaptureFixture[str]) -> None:
    with tracebacks_shown():
        logging.getLogger(LOGGER).debug("the node", exc_info=ValueError(f"x{CLEAR_SCREEN}{TURNED}"))
    assert is_clean(capsys.readouterr().err)
