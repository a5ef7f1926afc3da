"""The files of the rules: each family has the text, the functions and the order of its codes."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Final

import pytest

from tests.lab.install import CHECKOUT

if TYPE_CHECKING:
    from pathlib import Path

RULE_FILES: Final = sorted((CHECKOUT / "rbdagent" / "rules").glob("*.py"))
COMPARED: Final = {
    "context": {"RBD118"},
    "holders": {"RBD101", "RBD102", "RBD103", "RBD104", "RBD105", "RBD110", "RBD123"},
    "log_evidence": {"RBD120", "RBD203", "RBD401"},
    "node_stage": {"RBD731", "RBD736", "RBD738"},
    "termination": {"RBD109", "RBD201", "RBD202"},
}
"""Codes of other families that a file only compares with those of a finding or of a report."""


def codes_in(syntax: ast.AST) -> set[str]:
    """Return the codes in string literals."""
    texts = {str(part.value) for part in ast.walk(syntax) if isinstance(part, ast.Constant)}
    return {text for text in texts if re.fullmatch(r"RBD\d{3}", text)}


def entries_and_rest(path: Path) -> tuple[set[str], set[str]]:
    """Return the codes in the entries of a file, and the codes in the rest of the file."""
    entries, rest = set[str](), set[str]()
    for statement in ast.parse(path.read_text()).body:
        place = entries if ast.unparse(statement).startswith("ENTRIES:") else rest
        place.update(codes_in(statement))
    return entries, rest


@pytest.mark.parametrize("path", RULE_FILES, ids=lambda path: path.stem)
def test_file_reports_only_codes_of_its_own_entries(path: Path) -> None:
    entries, rest = entries_and_rest(path)
    others = COMPARED.get(path.stem, set())
    assert rest - entries == others, "report a code in the file that has its entry"


def makes_findings(path: Path) -> bool:
    """Return whether a file imports the function that makes a finding."""
    return any(
        part.module == "rbdagent.rules.context" and "finding" in {name.name for name in part.names}
        for part in ast.walk(ast.parse(path.read_text()))
        if isinstance(part, ast.ImportFrom)
    )


def test_only_rules_report_findings() -> None:
    others = set((CHECKOUT / "rbdagent").rglob("*.py")) - set(RULE_FILES)
    assert [path for path in sorted(others) if makes_findings(path)] == []
