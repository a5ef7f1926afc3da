"""The output of ``explain``: wrapped; the list of all codes has one line per code in a pipe."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rbdagent.report.text.layout import Layout, wrapped

if TYPE_CHECKING:
    from rbdagent.rules.entry import Entry

_MARGIN: Final = " " * 10
"""The width of a label such as ``Evidence:``."""
_BELOW: Final = " " * 9
"""In front of a summary that has its own lines: they begin below the severity."""


def explanation_lines(text: str, layout: Layout) -> str:
    """Return an explanation that is wrapped at the width; its labels stay in their column."""
    first, summary, *others = text.split("\n")
    parts = [
        first,
        wrapped(summary, layout),
        *(wrapped(line, layout, rest=_MARGIN) for line in others),
    ]
    return "\n".join(parts)


def list_line(entry: Entry) -> str:
    """Return an entry as one line of the list of all codes."""
    return f"{_columns(entry)}   {entry.summary}"


def list_lines(entry: Entry, layout: Layout) -> str:
    """Return an entry as :func:`list_line` does if that fits; else its summary below, wrapped."""
    line = list_line(entry)
    if len(line) <= layout.width:
        return line
    summary = wrapped(entry.summary, layout, first=_BELOW, rest=_BELOW)
    return f"{_columns(entry).rstrip()}\n{summary}"


def _columns(entry: Entry) -> str:
    return f"{entry.code}   {entry.severity:<8}   {entry.name:<28}"
