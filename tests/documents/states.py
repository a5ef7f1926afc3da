"""The table of states in docs/diagnose.md: a row for each lifecycle code that has none.

A new row has the summary of the code, and the first state of its test. Both may be edited by hand.
"""

from __future__ import annotations

import re
from typing import Final

from rbdagent.catalog import CATALOG
from tests.support.cli_runner import ROOT
from tests.support.rule_rows.families import FAMILIES

DOCUMENT: Final = ROOT / "docs" / "diagnose.md"
LIFECYCLE: Final = ("RBD6", "RBD7")
"""Beginnings of the codes that the table lists."""
_ROW: Final = re.compile(r"^\| .*RBD\d+.*\|\n", re.MULTILINE)


def with_missing_rows(text: str) -> str:
    """Return the text of the document with the missing rows at the end of its last table."""
    for family in FAMILIES:
        for code, states in family.REPORTED.items():
            rows = [*_ROW.finditer(text)]
            if code.startswith(LIFECYCLE) and not any(code in row[0] for row in rows):
                end = rows[-1].end()
                text = text[:end] + _row(code, family.__name__, next(iter(states))) + text[end:]
    return text


def _row(code: str, module: str, state: str) -> str:
    family = module.rpartition(".")[2]
    summary = CATALOG[code].summary.removesuffix(".")
    return f"| {summary} | {code} | built | `test_{family}_rules`, {state} |\n"


def write() -> None:
    """Write the missing rows into the document."""
    DOCUMENT.write_text(with_missing_rows(DOCUMENT.read_text()))
