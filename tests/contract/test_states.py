"""The table of states in docs/diagnose.md: it is complete, and the tests that it names exist."""

from __future__ import annotations

import importlib
import re
from typing import Final, NamedTuple

import pytest

from rbdagent.catalog import CATALOG
from tests.documents.states import LIFECYCLE, with_missing_rows
from tests.integration.states import STATES
from tests.support.cli_runner import ROOT
from tests.support.lifecycle_states import (
    CODES,
    CODES_ON_NODES,
    FIXED,
    FIXED_ON_NODES,
    RECOVERY,
    lifecycle_of,
)
from tests.support.rows import each_row

_ROW: Final = re.compile(
    r"^\| (?P<text>[^|]+) \| (?P<codes>RBD\d+(?:, RBD\d+)*)(?P<info> \(info\))? "
    r"\| (?P<made>(?:controllers|nodes)(?:, \*(?:fixed|recovery|fault)\*)*|built) "
    r"\| (?P<shown>[^|]+) \|$",
    re.MULTILINE,
)
_LINE: Final = re.compile(r"^\| .*RBD\d+.*\|$", re.MULTILINE)
_BUILT: Final = re.compile(r"`test_(?P<family>\w+)_rules`, (?P<row>.+)")
_TEXT: Final = (ROOT / "docs" / "diagnose.md").read_text()


class Row(NamedTuple):
    """A row of the table."""

    text: str
    codes: frozenset[str]
    info: bool
    made: str
    shown: str


ROWS: Final = tuple(
    Row(
        found["text"],
        frozenset(found["codes"].split(", ")),
        found["info"] is not None,
        found["made"],
        found["shown"],
    )
    for found in _ROW.finditer(_TEXT)
)
BY_CONTROLLERS: Final = {
    row.shown.strip("`"): row for row in ROWS if row.made.startswith("controllers")
}

BY_NODES: Final = {row.shown.strip("`"): row for row in ROWS if row.made.startswith("nodes")}


def _ids(row: Row) -> str:
    return row.text


def test_every_line_with_a_code_is_a_row() -> None:
    assert len(_LINE.findall(_TEXT)) == len(ROWS)


def test_each_state_made_by_controllers_has_one_row() -> None:
    made = [state.__name__ for state in STATES]
    assert len(made) == len({*made})
    assert {*made} == CODES.keys() == BY_CONTROLLERS.keys()
    assert sum(row.made.startswith("controllers") for row in ROWS) == len(made)


@each_row("state", BY_CONTROLLERS)
def test_the_codes_of_a_recorded_state_are_those_in_the_table(state: str) -> None:
    row = BY_CONTROLLERS[state]
    if row.info:
        said = {finding.code for finding in lifecycle_of(state).findings}
        assert CODES[state] == frozenset()
        assert row.codes <= said
    else:
        assert row.codes == CODES[state]
    assert ("fixed" in row.made) is (state in FIXED)
    assert ("recovery" in row.made) is (state in RECOVERY)


@each_row("row", [entry for entry in ROWS if entry.made == "built"], ids=_ids)
def test_built_state_is_in_the_table_of_its_test(row: Row) -> None:
    named = _BUILT.fullmatch(row.shown)
    assert named is not None
    table = importlib.import_module(f"tests.support.rule_rows.{named['family']}").REPORTED
    (code,) = row.codes
    assert named["row"] in table[code]


def test_each_state_of_real_nodes_is_recorded_and_has_one_row() -> None:
    assert CODES_ON_NODES.keys() == BY_NODES.keys()
    assert sum(row.made.startswith("nodes") for row in ROWS) == len(CODES_ON_NODES)


@pytest.mark.parametrize("state", BY_NODES)
def test_the_codes_of_a_state_on_real_nodes_are_those_in_the_table(state: str) -> None:
    row = BY_NODES[state]
    assert row.codes == {*CODES_ON_NODES[state]}
    assert ("fixed" in row.made) is (state in FIXED_ON_NODES)


def test_every_lifecycle_code_is_in_the_table() -> None:
    reported = frozenset[str]().union(*(row.codes for row in ROWS))
    missing = [code for code in CATALOG if code.startswith(LIFECYCLE) and code not in reported]
    assert missing == [], "run ./dev docs"


def test_lifecycle_code_without_a_row_gets_one() -> None:
    (row,) = [line for line in _LINE.findall(_TEXT) if "RBD766" in line]
    written = with_missing_rows(_TEXT.replace(f"{row}\n", ""))
    found = next(found for found in _ROW.finditer(written) if "RBD766" in found["codes"])
    assert found["text"] == CATALOG["RBD766"].summary.removesuffix(".")
    assert found["made"] == "built"
    assert with_missing_rows(written) == written


def test_table_without_a_missing_code_stays_as_it_is() -> None:
    assert with_missing_rows(_TEXT) == _TEXT


def test_enough_states_are_real() -> None:
    real = [row for row in ROWS if row.made != "built"]
    assert len(ROWS) >= 45
    assert len(real) >= 30
