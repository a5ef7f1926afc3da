"""The SVG of a terminal: well-formed, with the text and the colours of the output."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from typing import Final

import pytest

from rbdagent.report.text.layout import BOLD, GREEN, PLAIN, RED, YELLOW
from tests.lab.terminal import PROMPT, terminal

_NAMESPACE: Final = "{http://www.w3.org/2000/svg}"
COMMAND: Final = "rbdagent list"


def drawn(output: str, command: str = COMMAND) -> ET.Element:
    return ET.fromstring(terminal(command, output))  # noqa: S314 - the text is this project's


def rows(output: str, command: str = COMMAND) -> list[str]:
    """Return the text of each row that has one."""
    return ["".join(text.itertext()) for text in drawn(output, command).iter(f"{_NAMESPACE}text")]


def spans(output: str) -> list[tuple[str | None, str | None]]:
    """Return the classes and the text of each coloured span."""
    return [(span.get("class"), span.text) for span in drawn(output).iter(f"{_NAMESPACE}tspan")]


def width(output: str) -> float:
    return float(drawn(output).get("width", ""))


def test_command_and_lines_are_rows_of_text() -> None:
    assert rows("one\n\n  two\n") == [f"{PROMPT}{COMMAND}", "one", "  two"]


def test_markup_in_a_text_is_escaped() -> None:
    assert rows("a <b> & 'c' \"d\"\n", 'rbdagent <x> & "y"') == [
        f'{PROMPT}rbdagent <x> & "y"',
        "a <b> & 'c' \"d\"",
    ]


def test_empty_line_keeps_its_place() -> None:
    rows_of = drawn("one\n\ntwo\n").findall(f".//{_NAMESPACE}g/{_NAMESPACE}text")
    first, second = (int(row.get("y", "")) for row in rows_of)
    assert second - first == 40


@pytest.mark.parametrize(("paint", "name"), [(RED, "red"), (YELLOW, "yellow"), (GREEN, "green")])
def test_each_colour_of_the_output_has_its_class(paint: str, name: str) -> None:
    assert spans(f"a {paint}b{PLAIN} c\n") == [(name, "b")]


def test_escapes_add_up_until_the_plain_one() -> None:
    assert spans(f"{BOLD}{RED}a{PLAIN}b{BOLD}c\nd{PLAIN}e\n") == [
        ("bold red", "a"),
        ("bold", "c"),
        ("bold", "d"),
    ]


def test_unknown_escape_is_an_error() -> None:
    with pytest.raises(KeyError):
        terminal(COMMAND, "\033[35ma\n")


def test_width_is_that_of_the_longest_line_without_escapes() -> None:
    longest = "x" * 60
    assert width(f"{longest}\n") == width(f"a\n{RED}{longest}{PLAIN}\n")
    assert width(f"{longest}x\n") > width(f"{longest}\n")


def test_equal_input_has_equal_bytes() -> None:
    assert terminal(COMMAND, "a\n").encode() == terminal(COMMAND, "a\n").encode()


def test_picture_needs_no_script_no_font_and_no_network() -> None:
    text = terminal(COMMAND, "a\n")
    assert "<script" not in text
    assert "@font-face" not in text
    assert "url(" not in text
    assert text.count("http") == 1  # the name of SVG's namespace
