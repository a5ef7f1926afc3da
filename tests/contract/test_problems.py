"""docs/problems.md: the answers are those of today, and what each row states is true."""

from __future__ import annotations

import ast
import functools
import re
from collections import Counter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from tests.documents.problems import (
    DOCUMENT,
    Quoted,
    answer,
    quoted,
    snapshot_file,
    with_current_answers,
)
from tests.support.cli_runner import ROOT
from tests.support.lifecycle_states import CODES, CODES_ON_NODES
from tests.support.rows import each_row

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_ROWS: Final = 25
_TEXT: Final = DOCUMENT.read_text()
_COUNTS: Final = re.compile(
    r"Of (\d+) problems it names\s+the cause of (\d+), and of (\d+) in part"
)
_SECTION: Final = re.compile(
    r"^### (?P<number>\d+) (?P<heading>[^\n]+)\n\n(?P<rest>.*?)(?=^##|\Z)", re.DOTALL | re.MULTILINE
)
_FACTS: Final = re.compile(
    r"^\[(?P<code>RBD\d+)\]\(runbooks/(?P=code)\.md\)\. Cause: (?P<cause>named|in part)\. "
    r"State: (?P<made>controllers|nodes|reported|built)(?: \([^)]+\))?\. Tests: (?P<tests>.+)\."
)
_THREAD: Final = re.compile(
    r"\[(?P<name>[\w-]+)#(?P<number>\d+)\]\(https://github\.com/[\w-]+/(?P<repository>[\w-]+)"
    r"/issues/(?P<issue>\d+)\)"
)
_TEST: Final = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")
_LEADING: Final = re.compile(r"^(RBD\d+) \w+   details:", re.MULTILINE)
_QUOTED_TEXT: Final = re.compile("`([^`]+)`")
_FROM_THREADS: Final = {
    "rbd resize",
    "rbd mirror image status",
    "RBD image has snapshots (error deleting image from trash)",
    "device or resource busy",
    "libceph: … socket error on write",
    "Lost",
    "Read-only file system",
    "Input/output error",
    "write result -108",
    "Watchers: none",
}
"""Texts in headings that only the thread has: the state has another fact instead, or none."""


class Row(NamedTuple):
    """A problem of the document."""

    number: int
    heading: str
    rest: str
    question: Quoted
    facts: re.Match[str]

    def __str__(self) -> str:
        return str(self.number)


def _row(found: re.Match[str]) -> Row:
    (question,) = quoted(found["rest"])
    last = " ".join(found["rest"].strip().rpartition("\n\n")[2].split())
    facts = _FACTS.fullmatch(last)
    assert facts is not None, last
    return Row(int(found["number"]), found["heading"], found["rest"], question, facts)


ROWS: Final = tuple(_row(found) for found in _SECTION.finditer(_TEXT))


def test_quoted_answers_begin_as_those_of_today() -> None:
    assert with_current_answers(_TEXT) == _TEXT, "review the change, then run ./dev docs"


def test_every_problem_has_one_row_and_the_counts_are_theirs() -> None:
    assert [row.number for row in ROWS] == list(range(1, _ROWS + 1))
    counted = Counter(row.facts["cause"] for row in ROWS)
    found = _COUNTS.search(_TEXT)
    assert found is not None
    stated = tuple(int(number) for number in found.groups())
    assert stated == (_ROWS, counted["named"], counted["in part"])


@each_row("row", ROWS)
def test_code_of_a_row_leads_its_answer(row: Row) -> None:
    printed = answer(row.question).stdout
    leading = _LEADING.search(printed)
    # The answers of other verbs have no line about one code: their first code leads them.
    first = leading or re.search(r"(RBD\d+)", printed)
    assert first is not None
    assert first[1] == row.facts["code"]


@each_row("row", ROWS)
def test_threads_are_linked_by_their_names(row: Row) -> None:
    threads = [*_THREAD.finditer(row.rest)]
    assert threads
    assert [
        found[0]
        for found in threads
        if (found["name"], found["number"]) != (found["repository"], found["issue"])
    ] == []


@each_row("row", ROWS)
def test_state_of_a_row_is_made_by_what_it_names(row: Row) -> None:
    path = row.question.state.partition(",")[0]
    folder, stem = path.split("/")[-2:]
    name = stem.removesuffix(".json")
    makes = {
        "life": "controllers" if name in CODES else "nodes" if name in CODES_ON_NODES else "",
        "recordings": "nodes",
        "claims": "nodes",
        "reported": "reported",
    }
    assert makes.get(folder, "built") == row.facts["made"]
    assert (ROOT / path).exists()


@each_row("row", ROWS)
def test_each_test_exists(row: Row) -> None:
    tests = _TEST.findall(row.facts["tests"])
    assert tests
    assert [name for path, name in tests if name not in _functions(path)] == []


def test_rows_that_are_built_are_made_on_real_parts_or_recorded() -> None:
    for row in ROWS:
        if row.facts["made"] == "built":
            assert re.search(r"tests/integration/|test_lint_recorded", row.facts["tests"])


@functools.cache
def _functions(path: str) -> frozenset[str]:
    nodes = ast.parse((ROOT / path).read_text()).body
    return frozenset(node.name for node in nodes if isinstance(node, ast.FunctionDef))


def test_texts_that_people_search_for_are_in_the_state(tmp_path: Path) -> None:
    missing: set[str] = set()
    for row in ROWS:
        directory = tmp_path / str(row.number)
        directory.mkdir()
        said = "\n".join(_strings(msgspec.json.decode(_content(row, directory))))
        missing |= {
            text
            for text in _QUOTED_TEXT.findall(row.heading)
            if not all(part.strip() in said for part in text.split("…"))
        }
    assert missing == _FROM_THREADS


def _content(row: Row, directory: Path) -> bytes:
    return snapshot_file(row.question, directory).read_bytes()


def _strings(value: Any) -> Iterator[str]:  # noqa: ANN401 - parsed JSON
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _strings(item)
    elif isinstance(value, list):
        for item in value:
            yield from _strings(item)


def test_answer_of_another_day_is_noticed() -> None:
    section = next(found[0] for found in _SECTION.finditer(_TEXT) if "osd.1 has" in found[0])
    assert with_current_answers(section.replace("osd.1 has", "osd.7 has")) == section
