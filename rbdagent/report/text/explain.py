"""The output of ``explain`` on a terminal."""

from __future__ import annotations

from typing import Final

from rbdagent.report.text.layout import Layout, wrapped

_MARGIN: Final = " " * 10
"""The width of a label such as ``Evidence:``."""


def explanation_lines(text: str, layout: Layout) -> str:
    """Return an explanation that is wrapped at the width; its labels stay in their column."""
    first, summary, *others = text.split("\n")
    parts = [
        first,
        wrapped(summary, layout),
        *(wrapped(line, layout, rest=_MARGIN) for line in others),
    ]
    return "\n".join(parts)
