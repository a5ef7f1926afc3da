"""The files of the rules: each family has the text, the functions and the order of its codes."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Final

import pytest

from rbdagent.catalog import CATALOG
from rbdagent.codes import Code
from tests.lab.install import CHECKOUT

if TYPE_CHECKING:
    from pathlib import Path

RULE_FILES: Final = sorted((CHECKOUT / "rbdagent" / "rules").glob("*.py"))
COMPARED: Final = {
    "context": {Code.NO_HOLDER},
    "holders": {
        Code.MAPPING_ORPHANED,
        Code.MAPPING_PINNED,
        Code.CLIENT_BLOCKLISTED,
        Code.NBD_PROCESS_GONE,
        Code.MAPPING_UNWATCHED,
        Code.STAGING_LEFT_MOUNTED,
        Code.IMAGE_RENAMED,
    },
    "log_evidence": {Code.BETWEEN_STEPS, Code.OPERATION_HANGS, Code.MULTI_ATTACH},
    "node_stage": {Code.DRIVER_DOWN_WHERE_WANTED, Code.CEPH_REFUSES_USER, Code.IMAGE_NOT_FOUND},
    "replication": {
        Code.IMAGE_NOT_PRIMARY,
        Code.DEMOTED_WHILE_MAPPED,
        Code.MIRROR_SPLIT_BRAIN,
        Code.TWO_PRIMARIES,
    },
    "sharing": {Code.IN_USE},
    "termination": {Code.POD_LOST_BY_API, Code.CSI_DRIVER_DOWN, Code.KUBELET_DOWN},
}
"""Codes of other families that a file only compares with those of a finding or of a report."""
IN_QUOTES: Final = re.compile(r"RBD\d{3}")


def codes_in(syntax: ast.AST) -> set[Code]:
    """Return the codes that are named."""
    return {
        Code[part.attr]
        for part in ast.walk(syntax)
        if isinstance(part, ast.Attribute) and ast.unparse(part.value) == "Code"
    }


def entries_and_rest(path: Path) -> tuple[set[Code], set[Code]]:
    """Return the codes in the entries of a file, and the codes in the rest of the file."""
    entries, rest = set[Code](), set[Code]()
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


def test_each_code_has_an_entry() -> None:
    assert sorted(CATALOG) == sorted(Code)


def test_a_code_is_written_by_its_name() -> None:
    found = [
        f"{path.relative_to(CHECKOUT)}:{part.lineno}: {part.value!r}"
        for path in sorted((CHECKOUT / "rbdagent").rglob("*.py"))
        if path.name != "codes.py"
        for part in ast.walk(ast.parse(path.read_text()))
        if isinstance(part, ast.Constant) and IN_QUOTES.fullmatch(str(part.value))
    ]
    assert found == [], "write Code.NAME: a reader can follow it, and mypy checks it"
