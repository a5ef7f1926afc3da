"""The table of states in docs/diagnose.md: each is there, and where it is proven, it is."""

from __future__ import annotations

import importlib
import re
from typing import Final, NamedTuple

import pytest

from rbdagent.catalog import CATALOG
from tests.contract.cli_runner import ROOT
from tests.integration.states import STATES
from tests.unit.test_life import CURED, CURED_ON_NODES, HEALS, SAYS, SAYS_ON_NODES, life

_ROW: Final = re.compile(
    r"^\| (?P<text>[^|]+) \| (?P<codes>RBD\d+(?:, RBD\d+)*)(?P<info> \(info\))? "
    r"\| (?P<made>(?:controllers|nodes)(?:, \*(?:cured|heals|fault)\*)*|built) "
    r"\| (?P<shown>[^|]+) \|$",
    re.MULTILINE,
)
_LINE: Final = re.compile(r"^\| .*RBD\d+.*\|$", re.MULTILINE)
_BUILT: Final = re.compile(r"`(?P<module>test_\w+)`, (?P<row>.+)")
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
        each["text"],
        frozenset(each["codes"].split(", ")),
        each["info"] is not None,
        each["made"],
        each["shown"],
    )
    for each in _ROW.finditer(_TEXT)
)
BY_CONTROLLERS: Final = {
    each.shown.strip("`"): each for each in ROWS if each.made.startswith("controllers")
}

BY_NODES: Final = {each.shown.strip("`"): each for each in ROWS if each.made.startswith("nodes")}


def _ids(row: Row) -> str:
    return row.text


def test_every_line_with_a_code_is_a_row() -> None:
    assert len(_LINE.findall(_TEXT)) == len(ROWS)


def test_each_state_that_controllers_make_is_recorded_and_has_one_row() -> None:
    made = [each.__name__ for each in STATES]
    assert len(made) == len({*made})
    assert {*made} == SAYS.keys() == BY_CONTROLLERS.keys()
    assert sum(each.made.startswith("controllers") for each in ROWS) == len(made)


@pytest.mark.parametrize("state", BY_CONTROLLERS)
def test_the_codes_of_a_recorded_state_are_those_in_the_table(state: str) -> None:
    row = BY_CONTROLLERS[state]
    if row.info:
        said = {each.code for each in life(state).findings}
        assert SAYS[state] == frozenset()
        assert row.codes <= said
    else:
        assert row.codes == SAYS[state]
    assert ("cured" in row.made) is (state in CURED)
    assert ("heals" in row.made) is (state in HEALS)


@pytest.mark.parametrize("row", [each for each in ROWS if each.made == "built"], ids=_ids)
def test_a_state_that_is_built_is_in_that_tests_table(row: Row) -> None:
    named = _BUILT.fullmatch(row.shown)
    assert named is not None
    table = importlib.import_module(f"tests.unit.{named['module']}").SAID
    (code,) = row.codes
    assert named["row"] in table[code]


def test_each_state_of_real_nodes_is_recorded_and_has_one_row() -> None:
    assert SAYS_ON_NODES.keys() == BY_NODES.keys()
    assert sum(each.made.startswith("nodes") for each in ROWS) == len(SAYS_ON_NODES)


@pytest.mark.parametrize("state", BY_NODES)
def test_the_codes_of_a_state_on_real_nodes_are_those_in_the_table(state: str) -> None:
    row = BY_NODES[state]
    assert row.codes == {*SAYS_ON_NODES[state]}
    assert ("cured" in row.made) is (state in CURED_ON_NODES)


def test_every_code_of_a_life_is_in_the_table() -> None:
    told = frozenset[str]().union(*(each.codes for each in ROWS))
    assert [code for code in CATALOG if code[:4] in {"RBD6", "RBD7"} and code not in told] == []


def test_enough_states_are_real() -> None:
    real = [each for each in ROWS if each.made != "built"]
    assert len(ROWS) >= 45
    assert len(real) >= 30
