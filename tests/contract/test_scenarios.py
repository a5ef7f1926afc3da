"""The table of docs/scenarios.md has every scenario, and each test that it names exists."""

from __future__ import annotations

import ast
import functools
import re
from collections import Counter
from typing import TYPE_CHECKING, Final, NamedTuple

from rbdagent.catalog import CATALOG
from rbdagent.model import Verdict
from tests.support.cli_runner import ROOT
from tests.support.lifecycle_states import CODES, CODES_ON_NODES
from tests.support.rows import each_row

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_TEXT: Final = (ROOT / "docs" / "scenarios.md").read_text()
_ROW: Final = re.compile(
    r"^\| (?P<number>\d+) \| (?P<seen>.+) \| (?P<said>\w+(?:, \w+)*|—) "
    r"\| (?P<parts>real|recorded|built) \| (?P<tests>`\S+`(?:, `\S+`)*) \|$",
    re.MULTILINE,
)
_COUNTS: Final = re.compile(
    r"Of (\d+) scenarios (\d+) are real, (\d+) (?:is|are) recorded, and (\d+) are built\."
)
_SCENARIOS: Final = 53


class Row(NamedTuple):
    """A row of the table."""

    number: int
    said: tuple[str, ...]
    parts: str
    tests: tuple[str, ...]


ROWS: Final = tuple(
    Row(
        int(found["number"]),
        tuple(re.findall(r"\w+", found["said"])),
        found["parts"],
        tuple(re.findall(r"`(\S+)`", found["tests"])),
    )
    for found in _ROW.finditer(_TEXT)
)


def _number(row: Row) -> str:
    return str(row.number)


@functools.cache
def _functions(path: str) -> dict[str, str]:
    """Return the functions of a file by name, each with its text."""
    text = (ROOT / path).read_text()
    return {
        node.name: ast.get_source_segment(text, node) or ""
        for node in ast.parse(text).body
        if isinstance(node, ast.FunctionDef)
    }


def _asserted(test: str) -> str:
    """Return what a test of the lab asserts: its own text, and the codes of its states."""
    path, _, function = test.partition("::")
    text = _functions(path)[function]
    tables: dict[str, Mapping[str, Iterable[str]]] = {
        "test_a_state_that_controllers_have_made_is_recognised": CODES,
        "test_state_of_a_node_is_recognised": CODES_ON_NODES,
    }
    played = tables.get(function) or {
        state: codes for state, codes in CODES_ON_NODES.items() if f'"{state}"' in text
    }
    return " ".join((text, *(code for codes in played.values() for code in codes)))


def test_every_scenario_has_one_row() -> None:
    assert [row.number for row in ROWS] == list(range(1, _SCENARIOS + 1))


def test_the_counts_are_those_of_the_table() -> None:
    counted = Counter(row.parts for row in ROWS)
    found = _COUNTS.search(_TEXT)
    assert found is not None
    stated = tuple(int(number) for number in found.groups())
    assert stated == (len(ROWS), counted["real"], counted["recorded"], counted["built"])


@each_row("row", ROWS, ids=_number)
def test_each_test_exists(row: Row) -> None:
    for test in row.tests:
        path, _, function = test.partition("::")
        assert function in _functions(path), test


@each_row("row", ROWS, ids=_number)
def test_verdicts_and_codes_exist(row: Row) -> None:
    assert [word for word in row.said if word not in CATALOG and word not in {*Verdict}] == []


@each_row("row", [row for row in ROWS if row.parts == "real"], ids=_number)
def test_real_scenarios_are_tested_in_the_lab(row: Row) -> None:
    assert all(test.startswith(("tests/e2e/", "tests/integration/")) for test in row.tests)
    asserted = " ".join(_asserted(test) for test in row.tests)
    assert [word for word in row.said if word not in asserted] == []
