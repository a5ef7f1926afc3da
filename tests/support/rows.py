"""Tests over a table: one case for all rows, which names every row that fails."""

from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

_T = TypeVar("_T")

chosen: dict[str, int] = {}
"""Has ``--rows`` as ``most``, if it is given."""


def some_of(rows: Sequence[_T]) -> Sequence[_T]:
    """Return at most ``--rows`` rows of a table, evenly from it."""
    most = chosen.get("most", len(rows))
    if len(rows) <= most:
        return rows
    return [rows[number * len(rows) // most] for number in range(most)]


def each_row(
    names: str | Sequence[str],
    rows: Iterable[Any],
    *,
    ids: Iterable[str] | Callable[[Any], object] = str,
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator that runs a test once for each row of a table, in one case.

    Use it as ``pytest.mark.parametrize``, where the rows are many and share their fixtures: a case
    for each of 300 rows shows no more, and takes longer.

    Args:
        names: of the parameters that a row fills.
        rows: the table; a row with an id may be a ``pytest.param``.
        ids: of the rows, or what returns the id of a value.

    Raises:
        BaseExceptionGroup: what failed, each with a note that names its row.
    """
    table = [*_table(names, rows, ids)]
    assert table, "a table without rows tests nothing"

    def decorated(test: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(test)
        def run(**fixtures: object) -> None:
            failed: list[BaseException] = []
            for row_id, values in some_of(table):
                try:
                    test(**fixtures, **values)
                except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001 - all rows run
                    error.add_note(f"row {row_id}")
                    failed.append(error)
            if failed:
                raise BaseExceptionGroup(f"{len(failed)} of {len(table)} rows failed", failed)

        signature = inspect.signature(test)
        others = [one for name, one in signature.parameters.items() if name not in table[0][1]]
        run.__signature__ = signature.replace(parameters=others)  # type: ignore[attr-defined]
        return run

    return decorated


def _table(
    names: str | Sequence[str], rows: Iterable[Any], ids: Iterable[str] | Callable[[Any], object]
) -> Iterable[tuple[str, dict[str, object]]]:
    """Yield the id of each row, and its values by the names of their parameters."""
    words = [names] if isinstance(names, str) else [*names]
    given = None if callable(ids) else iter(ids)
    for row in rows:
        is_param = isinstance(row, type(pytest.param()))
        values = row.values if is_param else [row] if isinstance(names, str) else row
        row_id = row.id if is_param else None
        if given is not None:
            row_id = row_id or next(given)
        elif callable(ids):
            row_id = row_id or "-".join(str(ids(value)) for value in values)
        yield str(row_id), dict(zip(words, values, strict=True))
