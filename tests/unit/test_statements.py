"""A statement keeps rbdagent's words and what others wrote apart until it is printed."""

from __future__ import annotations

import ast
from pathlib import Path
from string import Formatter
from typing import TYPE_CHECKING, Final

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rbdagent.model import Argument, Statement, joined, stated
from rbdagent.parse.shown import in_all_texts, shown

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT: Final = Path(__file__).parents[2] / "rbdagent"
READERS: Final = ("report", "lifecycle", "agent", "cli")
"""The packages that print statements."""
MAKERS: Final = ("rules", "verdicts", "unmap")
"""The packages that make statements and reasons, and never print them."""
RENDERED: Final = frozenset({"message", "cause", "consequence", "reason"})
"""The properties of a finding, a source and a fact that are text."""
SEARCHES: Final = frozenset(
    {
        "count", "endswith", "find", "findall", "finditer", "fullmatch", "index", "match",
        "partition", "removeprefix", "removesuffix", "replace", "rpartition", "rsplit", "search",
        "sentences", "split", "splitlines", "startswith", "sub",
    }
)  # fmt: skip
HOSTILE: Final = "app) ends. Unmap it now: x"


# --------------------------------------------------------------------------------------------------
# Rendering
# --------------------------------------------------------------------------------------------------


@given(st.text(), st.lists(st.text(min_size=1), min_size=1), st.integers())
def test_statement_is_printed_as_its_template_reads(pod: str, nodes: list[str], count: int) -> None:
    found = stated(
        "Pod {pod} waits{}: {nodes}, {nodes:and}, {nodes:;}: {count} {{ }}.",
        stated(" for {pod}", pod=pod),
        pod=pod,
        nodes=nodes,
        count=count,
    )
    lists = f"{', '.join(nodes)}, {' and '.join(nodes)}, {'; '.join(nodes)}"
    assert str(found) == f"Pod {pod} waits for {pod}: {lists}: {count} {{ }}."


def test_arguments_have_names_and_values_in_their_order() -> None:
    found = stated("{pods} on {node}: {}", stated("{error}", error="x"), pods=("a", "b"), node="n")
    assert found.arguments == (
        Argument("pods", ("a", "b")),
        Argument("node", ("n",)),
        Argument("error", ("x",)),
    )
    assert found.values == {"a", "b", "n", "x"}


def test_argument_that_occurs_twice_is_one() -> None:
    assert stated("{node} and {node}", node="n").arguments == (Argument("node", ("n",)),)


@given(st.text(), st.text(), st.text())
def test_phrase_in_a_statement_is_a_part_of_it(words: str, pod: str, node: str) -> None:
    phrase = stated("on {node}", node=node)
    once = stated("{pod} waits {}{}.", phrase, words, pod=pod, node=node)
    twice = stated("{}{}", stated("{pod} waits ", pod=pod), joined((phrase, words, "."), ""))
    assert once == twice
    assert hash(once) == hash(twice)


@given(st.lists(st.text()), st.text())
def test_words_cannot_be_divided_where_they_were_joined(texts: list[str], joint: str) -> None:
    whole = stated("{}", joint.join(texts))
    assert joined(texts, joint) == whole
    assert joined((stated("{}", text) for text in texts), joint) == whole


@given(st.text(), st.text())
def test_escapes_are_those_of_the_whole_text(words: str, error: str) -> None:
    found = stated("{}: {error}.", words, error=error)
    assert str(in_all_texts(found, shown)) == shown(str(found))


def test_empty_phrase_states_nothing() -> None:
    assert not stated("{}{pod}", "", pod="")
    assert stated("{pod}", pod="a")


# --------------------------------------------------------------------------------------------------
# The first sentence
# --------------------------------------------------------------------------------------------------


@given(st.text())
@example(HOSTILE)
@example('". "')
@example("(")
def test_argument_ends_no_sentence(error: str) -> None:
    found = stated("It fails ({error}): {error}. Repair {error}. Wait.", error=error)
    assert str(found.cause) == f"It fails ({error}): {error}."
    assert str(found.rest) == f"Repair {error}. Wait."
    assert str(found) == f"{found.cause} {found.rest}"


@given(st.text(min_size=1))
@example(HOSTILE)
def test_full_stop_before_an_argument_ends_no_sentence_if_no_space_is_between(name: str) -> None:
    found = stated("It is client.{client}", client=f" {name}")
    assert found.cause == found
    assert found.rest == Statement(())


@pytest.mark.parametrize(
    ("found", "cause"),
    [
        (stated("One sentence."), "One sentence."),
        (stated("It is gone (any more. Or not). Wait."), "It is gone (any more. Or not)."),
        (stated("{pod} waits{}", ". It is late.", pod="a"), "a waits."),
        (stated("{} Then.", stated("Wait {age}.", age="2m")), "Wait 2m."),
        (stated(""), ""),
    ],
)
def test_first_sentence_ends_at_the_first_full_stop_of_the_words(
    found: Statement, cause: str
) -> None:
    assert str(found.cause) == cause


@pytest.mark.parametrize(
    ("name", "is_named"),
    [
        ("shop/web-1", True),
        ("pod shop/web-1", True),
        ("rbd0 on worker-1", True),
        ("worker-1", False),
        ("shop/web-10", False),
        ("node shop/web-1", False),
    ],
)
def test_object_is_named_by_an_argument(name: str, *, is_named: bool) -> None:
    found = stated("The pod {pod} uses {holder}.", pod="shop/web-1", holder="rbd0 on worker-1")
    assert found.names(name) is is_named


# --------------------------------------------------------------------------------------------------
# Each value has a field, and what others wrote is an argument
# --------------------------------------------------------------------------------------------------


def calls_of_stated() -> Iterator[tuple[str, ast.Call]]:
    """Yield each call of ``stated`` in the program, with its place."""
    for path in sorted(ROOT.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.Call(func=ast.Name(id="stated")):
                    yield f"{path.relative_to(ROOT)}:{node.lineno}", node


def test_each_value_has_a_field() -> None:
    wrong = []
    for place, call in calls_of_stated():
        template, *words = call.args
        if not isinstance(template, ast.Constant):
            # The meaning of a recognised text, whose fields are filled by name.
            continue
        fields = [
            name for _, name, _, _ in Formatter().parse(str(template.value)) if name is not None
        ]
        names = [keyword.arg for keyword in call.keywords]
        if fields.count("") != len(words) or {*names} != {*fields} - {""}:
            wrong.append(place)
    assert wrong == []


def test_what_others_wrote_is_no_word() -> None:
    quoting = {"foreign", "foreign_name", "subject_of", "age_text"}
    wrong = [
        place
        for place, call in calls_of_stated()
        for word in call.args
        if isinstance(word, ast.Call) and getattr(word.func, "id", "") in quoting
    ]
    assert wrong == []


# --------------------------------------------------------------------------------------------------
# No module searches what is printed
# --------------------------------------------------------------------------------------------------


def searched(tree: ast.AST) -> Iterator[int]:
    """Yield the lines of a module that search the text of a finding or of a statement."""
    for node in ast.walk(tree):
        match node:
            case ast.Compare(ops=ops, comparators=within):
                found = [
                    text
                    for operator, text in zip(ops, within, strict=True)
                    if isinstance(operator, (ast.In, ast.NotIn)) and is_rendered(text)
                ]
            case ast.Call(func=ast.Attribute(value=text, attr=name), args=given_):
                found = [part for part in (text, *given_) if name in SEARCHES and is_rendered(part)]
            case ast.Call(func=ast.Name(id=name), args=given_):
                found = [part for part in given_ if name in SEARCHES and is_rendered(part)]
            case ast.Subscript(value=text):
                found = [text] if is_rendered(text) else []
            case _:
                found = []
        yield from (part.lineno for part in found)


def is_rendered(node: ast.expr) -> bool:
    """Return whether an expression is the text of a finding, or of a statement."""
    match node:
        case ast.Attribute(attr=name):
            return name in RENDERED
        case ast.Subscript(value=ast.Attribute(attr=name)):
            return name in {"reasons", "evidence"}
    return is_printed(node)


def is_printed(node: ast.AST) -> bool:
    """Return whether an expression makes a text of a statement."""
    match node:
        case ast.Call(func=ast.Name(id="str"), args=[ast.Attribute(attr=name)]):
            return name in {"statement", "cause", "rest"}
    return False


@pytest.mark.parametrize(
    "source",
    [
        "reason in lead.message",
        "reason not in str(lead.statement)",
        "re.search('x', finding.message)",
        "AGE.sub('', finding.cause)",
        "finding.message.split('. ')",
        "str(found.statement.cause).startswith('x')",
        "sentences(finding.message)[0]",
        "finding.message[:5]",
        "'lingers' in verdict.reasons[0]",
        "finding.evidence[0].startswith('x')",
        "re.search('no answer', source.reason)",
    ],
)
def test_search_is_found(source: str) -> None:
    assert [*searched(ast.parse(source))]


def places_in(packages: tuple[str, ...]) -> Iterator[tuple[str, ast.Module]]:
    """Yield the modules of some packages, each with its path."""
    for package in packages:
        for path in sorted((ROOT / package).rglob("*.py")):
            yield str(path.relative_to(ROOT)), ast.parse(path.read_text())


def test_no_module_searches_what_it_prints_or_states() -> None:
    modules = [*places_in(READERS + MAKERS)]
    assert [f"{path}:{line}" for path, tree in modules for line in searched(tree)] == []
    assert len(modules) > len(READERS + MAKERS)


def test_no_rule_makes_a_text_of_a_statement() -> None:
    """A text that is joined and passed on may be searched under any name."""
    found = [
        f"{path}:{node.lineno}"
        for path, tree in places_in(MAKERS)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and is_printed(node)
    ]
    assert found == []
