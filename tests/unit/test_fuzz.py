"""./dev fuzz runs every parser, finds what it searches for, and is repeatable."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import random
import time
from typing import TYPE_CHECKING, Final

import pytest

import rbdagent.parse
from rbdagent.config import parse_duration
from rbdagent.errors import ParseError, UsageError
from rbdagent.parse.address import parse_address
from rbdagent.parse.logs import parse_cri
from rbdagent.parse.target import parse_target
from tests.fuzz.__main__ import report
from tests.fuzz.engine import Failure, Tally, literal, play
from tests.fuzz.inputs import Texts
from tests.fuzz.targets import TARGETS, Target, documented

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ANY_TIME: Final = float("inf")
READ_WITHIN_OTHERS: Final = {
    "in_all_texts",
    "csi_source",
    "in_tree_source",
    "is_frozen",
    "node_terms",
    "observation_stored_at",
    "peer_in",
    *("image_keys_in", "overlay_ips", "published_labels", "unmapped_keys_in"),
}
READ_NO_TEXT: Final = {
    *(
        "attachment_name",
        "attachment_names",
        "in_use_name",
        "migrated_handle",
        "staging_hash",
    ),  # compose names
    *("image_keys", "label_value", "mapping_name", "selectors"),  # compose names, too
    *("id_key", "image_label", "client_label", "devices_value", "mapping_keys", "volume_key"),
    *("image_of", "is_made_by_hand", "is_true", "meets", "way_to"),  # read parsed values
    "begun",  # begins a sentence
    *("fault_of", "iso_time"),  # read a number
}


def parsers() -> Iterator[str]:
    for module in pkgutil.iter_modules(rbdagent.parse.__path__, "rbdagent.parse."):
        for name, function in inspect.getmembers(importlib.import_module(module.name)):
            is_own = inspect.isfunction(function) and function.__module__ == module.name
            if is_own and not name.startswith("_"):
                yield name


def test_every_parser_is_fuzzed() -> None:
    fuzzed = {function.__name__.lstrip("_") for target in TARGETS for function in target.reads}
    assert set(parsers()) - fuzzed == READ_WITHIN_OTHERS | READ_NO_TEXT


def test_a_few_inputs_of_a_fixed_seed_are_read() -> None:
    tallies = [play(target, inputs=10, seed="1", most=ANY_TIME) for target in TARGETS]
    assert [str(failure) for tally in tallies for failure in tally.failures] == []
    assert {tally.inputs for tally in tallies} == {10}


def test_a_seed_repeats_its_inputs() -> None:
    for target in TARGETS:
        one, other = (random.Random("seed") for _ in range(2))
        assert [target.draw(one) for _ in range(20)] == [target.draw(other) for _ in range(20)]


def planted(read: Callable[[str], object]) -> Target:
    return Target(
        name="planted",
        reads=(),
        read=read,
        inputs=Texts(["key = value, more"]),
        documented=(ParseError,),
    )


def test_an_undocumented_error_is_found_with_its_shortest_input() -> None:
    def read(text: str) -> None:
        if text.count("=") > 1:
            raise KeyError(text)
        raise ParseError(what="it", where="here", text=text, expected="=")

    tally = play(planted(read), inputs=300, seed="1", most=ANY_TIME)
    assert {failure.text for failure in tally.failures} == {"=="}
    assert "planted: KeyError" in str(tally.failures[0])
    assert "\n    '=='" in str(tally.failures[0])


def test_an_input_that_costs_too_much_is_found() -> None:
    def read(text: str) -> None:
        end = time.thread_time() + (0.003 if "value, more" not in text else 0)
        while time.thread_time() < end:
            pass

    tally = play(planted(read), inputs=100, seed="1", most=2.0)
    assert "ms per KiB" in tally.failures[0].why
    assert "value, more" not in tally.failures[0].text


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (parse_address, (ParseError,)),
        (parse_target, (UsageError,)),
        (parse_duration, (ValueError,)),
        (parse_cri, ()),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_documented_errors_are_those_of_the_docstring(
    function: Callable[..., object], expected: tuple[type[Exception], ...]
) -> None:
    assert documented(function) == expected


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("", "''"),
        ("a\x7f", r"'a\x7f'"),
        (">" + "\x7f" * 5000 + "<", r"'>' + '\x7f' * 5000 + '<'"),
        ("x" * 40, "'x' * 40"),
    ],
)
def test_long_run_in_a_failing_input_is_printed_as_a_product(text: str, printed: str) -> None:
    assert literal(text) == printed


def test_a_report_has_seed_figures_and_failures(capsys: pytest.CaptureFixture[str]) -> None:
    failed = Tally("b", inputs=3, ms_per_kib=0.5, failures=[Failure("b", "\x00'", "KeyError")])
    assert report([Tally("a", inputs=2, ms_per_kib=0.25), failed], "7", 1.0) == 1
    assert capsys.readouterr().out.splitlines()[1:] == [
        "a         2  0.250",
        "b         3  0.500",
        "FAILED b: KeyError",
        """    "\\x00'\"""",
        "5 inputs, 2 parsers, seed 7, 1 s: 1 failed; slowest 0.500 ms per KiB (b)",
    ]
    assert report([Tally("a")], "7", 1.0) == 0
