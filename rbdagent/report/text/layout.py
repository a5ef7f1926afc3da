"""The layout of text: width, tables, colours, and the escapes of everything that is printed."""

from __future__ import annotations

import functools
import re
import textwrap
from typing import TYPE_CHECKING, Final, ParamSpec

from msgspec import Struct

from rbdagent.commands import PROGRAM
from rbdagent.model import Severity, Verdict
from rbdagent.parse.brief import brief
from rbdagent.parse.foreign import end_of_sentence, is_in_quotation
from rbdagent.parse.shown import in_all_texts, shown

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_P = ParamSpec("_P")

NONE: Final = "<none>"
UNKNOWN: Final = "<unknown>"
NOT_OBSERVED: Final = "<not observed>"
_GAP: Final = "   "
"""Between two columns, as kubectl prints them."""
MARGIN: Final = 12
"""In front of a text with a label."""
_CUT: Final = " … (-v)"
_CUT_QUOTATION: Final = ' …" (-v)'
_ESCAPED: Final = re.compile(r"\\.")
_MOST_CHARACTERS: Final = 400
"""Maximum of the first paragraph of the headline: it may list any number of nodes."""

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


class Layout(Struct, frozen=True, kw_only=True):
    """The properties of the output that do not depend on the data."""

    width: int = 80
    """In columns."""
    colour: bool = False
    details: bool = False
    """Whether to add evidence, addresses, sources and further findings."""
    program: tuple[str, ...] = PROGRAM
    """The words with which the reader starts rbdagent."""
    cluster_flags: Mapping[str, tuple[str, ...]] = {}
    """By program: the flags with which the reader chose the clusters."""


def with_escaped_texts(answer: Callable[_P, str]) -> Callable[_P, str]:
    """Decorate a function that returns output as text: escape all texts in its arguments.

    Every text is escaped before the layout. So every unprintable character of the output comes from
    the layout: its line breaks, and its colours if they are requested.
    """

    @functools.wraps(answer)
    def escaped(*args: _P.args, **kwargs: _P.kwargs) -> str:
        return answer(*in_all_texts(args, shown), **in_all_texts(kwargs, shown))

    return escaped


def painted(text: str, paint: str, layout: Layout) -> str:
    """Return a coloured text, if colours may be shown."""
    return f"{paint}{text}{PLAIN}" if layout.colour and paint else text


def wrapped(text: str, layout: Layout, *, first: str = "", rest: str = "") -> str:
    """Wrap a text at its spaces to the width of the output; a word is never broken.

    With details, what others wrote is complete.
    """
    return textwrap.fill(
        text if layout.details else brief(text),
        layout.width,
        initial_indent=first,
        subsequent_indent=rest,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _fitted(text: str, layout: Layout, *, first: str, rest: str) -> str:
    """Wrap a text; without details, shorten each word that is wider than its line."""
    room = layout.width - len(rest)
    words = brief(text).split(" ") if not layout.details else []
    text = " ".join(_narrowed(word, room) for word in words) or text
    return wrapped(text, layout, first=first, rest=rest)


def _narrowed(word: str, most: int) -> str:
    """Shorten a word of a sentence, but not if it would lose a quote; an escape is not cut.

    Without its quote, the rest of what others wrote would read like rbdagent's own text.
    """
    if len(word) <= most or not {'"', "\\"} & {*word}:
        return shortened(word, most)
    end = len(word) - (most - 1) // 2
    end += _backslashes(word[:end]) % 2
    begin = most - 1 - (most - 1) // 2
    begin -= _backslashes(word[:begin]) % 2
    is_quote_lost = '"' in _ESCAPED.sub("", word[begin:end])
    return word if is_quote_lost else f"{word[:begin]}…{word[end:]}"


def _backslashes(text: str) -> int:
    """Return how many backslashes are at the end of a text."""
    return len(text) - len(text.rstrip("\\"))


def labelled(label: str, text: str, layout: Layout) -> str:
    """Return a text with a label on its left."""
    margin = " " * MARGIN
    return _fitted(text, layout, first=f"  {label}".ljust(MARGIN), rest=margin)


def limited(lines: str, most: int, layout: Layout) -> str:
    """Return at most ``most`` lines, and an ellipsis in place of the others; with details, all."""
    shown = lines.split("\n")
    if layout.details or len(shown) <= most:
        return lines
    before, last = shown[: most - 1], shown[most - 1]
    while len(last) + len(_cut_after(before, last)) > layout.width:
        last = last.rpartition(" ")[0]
    return "\n".join([*before, last + _cut_after(before, last)])


def _cut_after(lines: Sequence[str], last: str) -> str:
    """Return the ellipsis behind some lines; it ends a quotation that it is in."""
    return _CUT_QUOTATION if is_in_quotation("\n".join([*lines, last])) else _CUT


def headed(word: str, paint: str, paragraphs: Sequence[str], layout: Layout) -> str:
    """Return a coloured word with paragraphs on its right; only the first one is limited."""
    margin = " " * (len(word) + 2)
    begin, *others = [_fitted(text, layout, first=margin, rest=margin) for text in paragraphs]
    begin = limited(begin, _MOST_CHARACTERS // (layout.width - len(margin)), layout)
    return "\n".join([painted(word, paint, layout) + begin[len(word) :], *others])


def enumerated(words: Sequence[str]) -> str:
    """Return words as a part of a sentence: ``one, two and three``."""
    *first, last = words
    return f"{', '.join(first)} and {last}" if first else last


def counted(count: int, noun: str) -> str:
    """Return a number and its noun: ``1 node``, ``2 nodes``."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def shortened(name: str, most: int) -> str:
    """Return a name of at most ``most`` characters: its middle is cut, its ends remain."""
    if len(name) <= most:
        return name
    end = (most - 1) // 2
    return f"{name[: most - 1 - end]}…{name[len(name) - end :]}"


def cut(line: str, layout: Layout) -> str:
    """Return a line that fits the width: an ellipsis replaces the words that do not fit."""
    if layout.details or len(line) <= layout.width:
        return line
    return f"{line[: layout.width - 1].rpartition(' ')[0].rstrip()} …"


def sentences(text: str) -> tuple[str, str]:
    """Return the first sentence of a remedy, and the others: a finding knows its own."""
    end = end_of_sentence(text)
    return text[:end], text[end + 1 :]


def verdict_table(
    head: Sequence[str],
    rows: Sequence[Sequence[str]],
    verdicts: Sequence[Verdict],
    layout: Layout,
) -> str:
    """Return a table whose column VERDICT has the colour of the verdict of its row."""
    paints = [COLOURS.get(verdict, RED) if layout.colour else "" for verdict in verdicts]
    return "\n".join(aligned(head, rows, paints, head.index("VERDICT")))


def aligned(
    head: Sequence[str], rows: Sequence[Sequence[str]], paints: Sequence[str], painted: int
) -> list[str]:
    """Return a table's lines; one column has the colour of its row."""
    widths = [max(len(row[column]) for row in (head, *rows)) for column in range(len(head))]

    def line(row: Sequence[str], paint: str) -> str:
        cells = [text.ljust(width) for text, width in zip(row, widths, strict=True)]
        if paint:
            cells[painted] = f"{paint}{cells[painted]}{PLAIN}"
        return _GAP.join(cells).rstrip()

    return [line(head, ""), *(line(row, paint) for row, paint in zip(rows, paints, strict=True))]
