"""The table of recognised texts: a real text proves each row and leads to its finding."""

from __future__ import annotations

import ast
import json
import re
from typing import TYPE_CHECKING, Any, Final

import pytest
from hypothesis import HealthCheck, given, settings, strategies

from rbdagent.parse.recognised import Recognised, _literals_of
from rbdagent.rules import ERROR_TEXTS
from rbdagent.rules.error_texts import ErrorText, meaning_of
from tests.lab.install import CHECKOUT
from tests.support.quoted_messages import PLAYS, QUOTES, Proof, Quote, pod_event
from tests.support.rows import each_row
from tests.support.snapshots import codes

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

FIXTURES: Final = CHECKOUT / "tests" / "fixtures"


def rows(of: Iterable[Recognised]) -> list[Any]:
    """Return the rows of the table with each of their quotes."""
    return [
        pytest.param(row, quote, id=f"{row.name}: {quote.text[:60]}")
        for row in of
        for quote in QUOTES[row]
    ]


def test_every_row_of_the_table_is_quoted_and_has_an_origin() -> None:
    assert set(QUOTES) == set(Recognised)
    for row in Recognised:
        assert QUOTES[row]
        assert row.origins
        assert all(origin.project and origin.version and origin.where for origin in row.origins)


@each_row(("row", "quote"), rows(QUOTES))
def test_real_text_is_recognised(row: Recognised, quote: Quote) -> None:
    assert row.is_in(quote.text)


@each_row(("row", "quote"), rows(QUOTES))
def test_quote_with_a_fixture_is_in_that_fixture(row: Recognised, quote: Quote) -> None:
    assert (quote.proof is Proof.RECORDING) == bool(quote.fixture)
    if quote.fixture:
        recorded = (FIXTURES / quote.fixture).read_text()
        assert quote.text in recorded or json.dumps(quote.text)[1:-1] in recorded


@each_row(("row", "quote"), rows(kind for kind in Recognised if kind.code is not None))
def test_real_text_leads_to_the_finding_of_its_row(row: Recognised, quote: Quote) -> None:
    play = PLAYS.get(row, pod_event)
    expected = set() if row is Recognised.OF_VOLUMES else {row.code}
    assert codes(play(quote.text)) & {row.code} == expected


# Order of the rows --------------------------------------------------------------------------------

BY_RULE: Final = {row for text in ERROR_TEXTS for row in text.kinds if isinstance(row, Recognised)}


@each_row(("row", "quote"), rows(kind for kind in Recognised if kind in BY_RULE))
def test_real_text_matches_no_row_before_its_own(row: Recognised, quote: Quote) -> None:
    meant = meaning_of(quote.text)
    assert meant is not None
    assert row in meant[0].kinds


@each_row("text", ERROR_TEXTS, ids=lambda text: f"{text.code} {text.kinds[0]}")
def test_error_text_has_the_code_of_its_rows(text: ErrorText) -> None:
    rows = [kind for kind in text.kinds if isinstance(kind, Recognised)]
    assert text.code is None or {row.code for row in rows} <= {text.code, None}


# Run time -----------------------------------------------------------------------------------------


def unbounded(pattern: str) -> Iterator[tuple[str, bool]]:
    """Yield each unlimited repetition of a pattern, and whether it takes linear time.

    A repetition takes linear time if the literals between the previous unlimited repetition and
    this one contain a character that this one cannot repeat: then no start of a match is inside
    the text that it repeats. A repetition at the end of a pattern is also linear: it cannot fail.
    """
    parsed = re._parser.parse(pattern)  # type: ignore[attr-defined]
    for way in _ways(parsed):
        yield from _of_way(way, parsed.state.flags)


def _ways(items: Any) -> list[list[tuple[str, Any]]]:  # noqa: ANN401 - of the parser
    """Return the sequence of items to match, for each path through the alternatives."""
    ways: list[list[tuple[str, Any]]] = [[]]
    for kind, value in items:
        match kind.name:
            case "SUBPATTERN":
                own = _ways(value[3])
            case "BRANCH":
                own = [way for branch in value[1] for way in _ways(branch)]
            case name:
                own = [[(name, value)]]
        ways = [[*before, *after] for before in ways for after in own]
    return ways


def _of_way(items: list[tuple[str, Any]], flags: int) -> Iterator[tuple[str, bool]]:
    before: list[str] = []
    looks_behind = False
    for at, (kind, value) in enumerate(items):
        if kind == "LITERAL":
            before.append(chr(value))
        elif (kind == "ASSERT_NOT" and value[0] < 0) or (kind, str(value)) == (
            "AT",
            "AT_BEGINNING_STRING",
        ):
            looks_behind = True
        elif kind in {"MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"}:
            _, most, what = value
            if most != re._constants.MAXREPEAT:  # type: ignore[attr-defined]
                continue
            repeats = re.compile(_written(what), flags)
            stops = any(repeats.fullmatch(char) is None for char in before)
            yield _written(what), looks_behind or stops or at == len(items) - 1
            before, looks_behind = [], False


def _written(what: Any) -> str:  # noqa: ANN401 - of the parser
    """Return a class of characters as a pattern."""
    ((kind, value),) = what
    if kind.name == "ANY":
        return "."
    if kind.name == "NOT_LITERAL":
        return f"[^{re.escape(chr(value))}]"
    assert kind.name == "IN", kind
    return f"[{''.join(_part(kind.name, value) for kind, value in value)}]"


def _part(kind: str, value: Any) -> str:  # noqa: ANN401 - of the parser
    match kind:
        case "NEGATE":
            return "^"
        case "LITERAL":
            return re.escape(chr(value))
        case "RANGE":
            return f"{re.escape(chr(value[0]))}-{re.escape(chr(value[1]))}"
        case _:
            return CATEGORIES[str(value)]


CATEGORIES: Final = {
    "CATEGORY_WORD": r"\w",
    "CATEGORY_DIGIT": r"\d",
    "CATEGORY_SPACE": r"\s",
    "CATEGORY_NOT_SPACE": r"\S",
}


@each_row("row", Recognised)
def test_each_pattern_takes_linear_time(row: Recognised) -> None:
    assert [what for what, is_linear in unbounded(row.pattern) if not is_linear] == []


@pytest.mark.parametrize(
    "pattern",
    [
        r"(?P<driver>\S+) CSI driver is not installed on the node",
        r"exit status 13\).* running rbd",
        r"failed to add secret 'x' to kernel[\s\S]*map failed: \((?P<number>\d+)\)",
        r"ResourceExhausted.*?(?P<image>\S+) has (?P<count>\d+) snapshots",
        r"found PV object .* does not point to claim",
        r"/dev/\S+ is in use\.",
        r'nodes "[^"]*" not found|csinode\S* "[^"]*" not found',
    ],
)
def test_pattern_that_takes_quadratic_time_is_found(pattern: str) -> None:
    assert not all(is_linear for _, is_linear in unbounded(pattern))


# Literals -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "literals"),
    [
        ("blocked for more than", ("blocked for more than",)),
        (r"pvc\(s\) of \d+ pools", ("pvc(s) of ",)),
        ("persistentvolumes? gone", ("persistentvolume",)),
        ("ab*cde+", ("cd",)),
        (r"\Arbd\d{1,6}: write", (": write",)),
        ("a{2}bc", ("bc",)),
        ("first one|the other", ("first one", "the other")),
        ("first|.", ("first", "")),
        ("(?:first|second) in (?:use)?", (" in ",)),
        (r"named [|\]x(]much longer|y", ("much longer", "y")),
        ("a(?P<b>b(c)d)ef", ("ef",)),
        ("(?i)Volume", ("",)),
        (r"\S+", ("",)),
    ],
)
def test_literals_are_outside_of_groups_and_of_what_may_be_left_out(
    pattern: str, literals: tuple[str, ...]
) -> None:
    assert _literals_of(pattern) == literals


@each_row("row", Recognised)
def test_each_match_contains_a_literal(row: Recognised) -> None:
    """A text without a literal is not searched: it must not be one that matches."""
    # Hypothesis knows no possessive quantifier; it matches no more than the greedy one.
    pattern = re.compile(re.sub(r"([*+?])\+", r"\1", row.pattern))

    @settings(max_examples=8, suppress_health_check=list(HealthCheck))
    @given(strategies.from_regex(pattern))
    def matches(text: str) -> None:
        assert any(literal in text for literal in row.literals)
        assert row.is_in(text) == (row.expression.search(text) is not None)

    matches()


# Place of recognition -----------------------------------------------------------------------------

OTHERS_WORDS: Final = {"message", "text", "unschedulable", "attach_error", "detach_error"}
OWN_PATTERNS: Final = {
    # Image names of former provisioners, versions, paths, and texts that rbdagent itself prints.
    "provisioner": {"_NEEDS_SELF_LINK", "_VERSION"},
    "cluster_report": {"AGES"},
    "evidence": {"_STAGING_PATH"},
    "log_evidence": {"_DETACH_CALLS"},
}


def modules() -> Iterator[tuple[str, ast.Module]]:
    for package in ("rules", "verdicts", "lifecycle"):
        for path in sorted((CHECKOUT / "rbdagent" / package).glob("*.py")):
            yield path.stem, ast.parse(path.read_text())


def names_of_patterns(module: ast.Module) -> set[str]:
    """Return the names of the patterns that a module passes to `re`; "" is one without a name."""
    uses = {
        id(syntax)
        for syntax in ast.walk(module)
        if isinstance(syntax, ast.Attribute)
        and isinstance(syntax.value, ast.Name)
        and syntax.value.id == "re"
        and syntax.attr not in {"Pattern", "Match"}
    }
    calls = [syntax for syntax in ast.walk(module) if isinstance(syntax, ast.Call)]
    patterns = [call.args[0] for call in calls if id(call.func) in uses]
    found = {pattern.id if isinstance(pattern, ast.Name) else "" for pattern in patterns}
    return found | ({""} if len(patterns) < len(uses) else set())


def test_no_rule_has_a_pattern_for_foreign_texts() -> None:
    found = {name: names_of_patterns(module) for name, module in modules()}
    assert {name: names for name, names in found.items() if names} == OWN_PATTERNS


def test_no_rule_searches_for_a_word_in_foreign_texts() -> None:
    found = [
        f"{name}:{part.lineno}"
        for name, module in modules()
        for part in ast.walk(module)
        if (
            isinstance(part, ast.Compare)
            and isinstance(part.ops[0], ast.In | ast.NotIn)
            and isinstance(part.left, ast.Constant)
            and isinstance(part.comparators[0], ast.Attribute)
            and part.comparators[0].attr in OTHERS_WORDS
        )
        or (
            isinstance(part, ast.Call)
            and isinstance(part.func, ast.Attribute)
            and part.func.attr in {"startswith", "endswith", "removeprefix", "find", "partition"}
            and isinstance(part.func.value, ast.Attribute)
            and part.func.value.attr in OTHERS_WORDS
        )
    ]
    assert found == []
