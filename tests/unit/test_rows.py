"""A table of rows in one case: each row runs, and a failure names its rows."""

from __future__ import annotations

import inspect

import pytest

from tests.support.rows import each_row


def notes_of(group: BaseExceptionGroup) -> list[list[str]]:
    return [error.__notes__ for error in group.exceptions]


def test_each_failed_row_is_named_and_the_others_run() -> None:
    ran = []

    @each_row("number", [1, 2, 3, 4])
    def odd(number: int) -> None:
        ran.append(number)
        assert number % 2

    with pytest.raises(BaseExceptionGroup, match="2 of 4 rows failed") as failed:
        odd()
    assert ran == [1, 2, 3, 4]
    assert notes_of(failed.value) == [["row 2"], ["row 4"]]


def test_row_is_named_by_its_own_id_or_by_those_of_the_table() -> None:
    @each_row(("first", "second"), [pytest.param(1, 2, id="own"), (3, 4)], ids=["given"])
    def nothing(first: int, second: int) -> None:
        raise ValueError(first + second)

    with pytest.raises(BaseExceptionGroup) as failed:
        nothing()
    assert notes_of(failed.value) == [["row own"], ["row given"]]


def test_tables_are_combined_and_leave_the_fixtures() -> None:
    ran = []

    @each_row("width", [80, 200])
    @each_row("name", ["a", "b"])
    def both(tmp_path: str, name: str, width: int) -> None:
        ran.append((tmp_path, name, width))

    assert list(inspect.signature(both).parameters) == ["tmp_path"]
    both(tmp_path="here")
    assert sorted(ran) == [(*("here", name), width) for name in "ab" for width in (80, 200)]


def test_row_that_expects_an_error_in_vain_is_named() -> None:
    @each_row("number", [1])
    def quiet(number: int) -> None:
        with pytest.raises(ValueError, match=str(number)):
            pass

    with pytest.raises(BaseExceptionGroup) as failed:
        quiet()
    assert notes_of(failed.value) == [["row 1"]]
