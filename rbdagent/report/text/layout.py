"""The layout of text: width, tables, colours, and the escapes of everything that is printed."""

from __future__ import annotations

import functools
import textwrap
from typing import TYPE_CHECKING, Final, ParamSpec

from rbdagent.model import Severity, Verdict
from rbdagent.parse.shown import in_all_texts, shown

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_P = ParamSpec("_P")

WIDTH: Final = 100
NONE: Final = "<none>"
UNKNOWN: Final = "<unknown>"
NOT_OBSERVED: Final = "<not observed>"

RED, YELLOW, GREEN, BOLD, PLAIN = "\033[31m", "\033[33m", "\033[32m", "\033[1m", "\033[0m"
PAINT: Final = {Severity.CRITICAL: BOLD + RED, Severity.ERROR: RED, Severity.WARNING: YELLOW}
COLOURS: Final = {  # every other verdict is red
    Verdict.IN_USE: GREEN,
    Verdict.SHARED: GREEN,
    Verdict.FREE: GREEN,
    Verdict.STAGED: YELLOW,
    Verdict.FOREIGN: YELLOW,
    Verdict.UNDETERMINED: YELLOW,
}


def with_escaped_texts(answer: Callable[_P, str]) -> Callable[_P, str]:
    """Decorate a function that returns output as text: escape all texts in its arguments.

    Every text is escaped before the layout. So every unprintable character of the output comes from
    the layout: its line breaks, and its colours if they are requested.
    """

    @functools.wraps(answer)
    def escaped(*args: _P.args, **kwargs: _P.kwargs) -> str:
        return answer(*in_all_texts(args, shown), **in_all_texts(kwargs, shown))

    return escaped


def wrapped(text: str, *, first: str, rest: str) -> str:
    """Wrap a text to the width of the output."""
    return textwrap.fill(
        text,
        WIDTH,
        initial_indent=first,
        subsequent_indent=rest,
        break_long_words=False,
        break_on_hyphens=False,
    )


def verdict_table(
    head: Sequence[str],
    rows: Sequence[Sequence[str]],
    verdicts: Sequence[Verdict] | None,
    painted: int,
) -> str:
    """Align columns as kubectl does, with three spaces between them; colours have no width."""
    paints = [COLOURS.get(verdict, RED) for verdict in verdicts] if verdicts else [""] * len(rows)
    return "\n".join(aligned(head, rows, paints, painted))


def aligned(
    head: Sequence[str], rows: Sequence[Sequence[str]], paints: Sequence[str], painted: int
) -> list[str]:
    """Return a table's lines; one column has the colour of its row."""
    widths = [max(len(row[column]) for row in (head, *rows)) for column in range(len(head))]

    def line(row: Sequence[str], paint: str) -> str:
        cells = [text.ljust(width) for text, width in zip(row, widths, strict=True)]
        if paint:
            cells[painted] = f"{paint}{cells[painted]}{PLAIN}"
        return "   ".join(cells).rstrip()

    return [line(head, ""), *(line(row, paint) for row, paint in zip(rows, paints, strict=True))]


def painted(text: str, paint: str, *, colour: bool) -> str:
    """Return a coloured text, if colours may be shown."""
    return f"{paint}{text}{PLAIN}" if colour and paint else text
