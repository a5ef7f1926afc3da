"""Foreign text is shown with escapes, and its JSON is parsed to the original text."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from rbdagent.model import Severity
from rbdagent.parse.shown import all_as_unicode, in_all_texts, in_json, shown, shown_lines
from rbdagent.report.html.markup import el
from rbdagent.report.text.holders import answer, holder_names
from rbdagent.report.text.layout import Layout
from rbdagent.report.text.mappings import mapping_table
from tests.support.hostile_texts import FORGED_LINE, RED, is_clean
from tests.support.snapshots import diagnosis_of, mapping, opener, process, target, world

ESCAPES = {
    "\0": r"\x00",
    "\n": r"\n",
    "\r": r"\r",
    "\t": r"\t",
    "\x1b": r"\x1b",
    "\x7f": r"\x7f",
    "\x85": r"\x85",
    "\x9b": r"\x9b",
    "\xa0": r"\xa0",
    "\u061c": r"\u061c",
    "\u200b": r"\u200b",
    "\u200e": r"\u200e",
    "\u2028": r"\u2028",
    "\u2029": r"\u2029",
    "\u202a": r"\u202a",
    "\u202e": r"\u202e",
    "\u2066": r"\u2066",
    "\u2069": r"\u2069",
    "\ufeff": r"\ufeff",
    "\udce9": r"\udce9",
    "\U000e0041": r"\U000e0041",
}


@pytest.mark.parametrize(("character", "escape"), ESCAPES.items(), ids=map(ascii, ESCAPES))
def test_invisible_character_is_shown_as_its_escape(character: str, escape: str) -> None:
    assert shown(f"a{character}b") == f"a{escape}b"


def test_visible_text_is_returned_as_the_same_object() -> None:
    for text_ in ("", "/dev/rbd0", "Größe … 日本 😀", r"a\x1b"):
        assert shown(text_) is text_


@given(st.text(st.characters()))
def test_shown_text_is_printable_and_on_one_line(text_: str) -> None:
    assert shown(text_).isprintable()
    assert shown_lines(text_).count("\n") == text_.count("\n")
    assert is_clean(shown_lines(text_))


@given(st.text(st.characters()))
def test_json_has_no_invisible_characters_and_equal_content(text_: str) -> None:
    printed = in_json(json.dumps([text_], ensure_ascii=False, indent=1))
    assert is_clean(printed)
    assert json.loads(printed) == [text_]


def test_all_texts_of_a_value_are_changed_and_no_other_part() -> None:
    value = (process(command="a\x1b"), [Severity.ERROR, {"key": "b\x1b", "none": None, "one": 1}])
    changed = in_all_texts(value, shown)
    assert changed == (
        process(command=r"a\x1b"),
        [Severity.ERROR, {"key": r"b\x1b", "none": None, "one": 1}],
    )
    assert changed[1][0] is Severity.ERROR


def test_value_without_such_texts_is_the_same_object() -> None:
    seen = world(mapped={"openers": (opener(),)})
    assert in_all_texts(seen, shown) is seen


@pytest.mark.parametrize("number", [1, 2**64])
def test_bytes_that_are_not_utf8_are_escaped_in_all_texts(number: int) -> None:
    name = b"caf\xe9".decode(errors="surrogateescape")
    assert all_as_unicode((number, process(command=name))) == (
        number,
        process(command=r"caf\xe9"),
    )


@pytest.mark.parametrize("number", [1, 2**64])
def test_value_in_unicode_is_the_same_object(number: int) -> None:
    seen = (number, process(command="caf\xe9"))
    assert all_as_unicode(seen) is seen


def pinned_by(command: str) -> str:
    seen = world(mapped={"openers": (opener(process=process(command=command)),)})
    return answer(diagnosis_of(seen), seen, layout=Layout(colour=True))


def test_command_line_forges_no_line_of_the_output() -> None:
    """Assert it for tables and for wrapped text."""
    diagnosis = pinned_by(f"sleep{FORGED_LINE}")
    assert FORGED_LINE.strip() not in diagnosis.splitlines()
    assert f'"sleep{shown(FORGED_LINE).split()[0]}' in diagnosis


def test_command_line_sets_no_terminal_colour() -> None:
    assert pinned_by(f"sleep{RED}").count("\x1b") == pinned_by("sleep").count("\x1b")


def test_name_adds_no_line_to_the_list_of_names() -> None:
    seen = world(on_node={"mappings": (mapping(device="/dev/rbd0\t\nworker-9 /dev/rbd9"),)})
    assert holder_names(diagnosis_of(seen).holders).count("\n") == 1


def test_target_text_of_the_user_is_escaped() -> None:
    seen = replace(world(on_node={"mappings": ()}), target=target(argument=f"x{FORGED_LINE}"))
    table = mapping_table([], seen, layout=Layout(), of=f"of namespace x{FORGED_LINE}")
    assert is_clean(table)
    assert FORGED_LINE not in table


def test_markup_has_the_same_escapes() -> None:
    assert el("p", "a\u200b\x1b<\n", title="\u202e") == (r'<p title="\u202e">a\u200b\x1b&lt;\n</p>')
