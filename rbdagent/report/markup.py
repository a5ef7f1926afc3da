"""Markup as a type of its own: whatever is not markup is text, and escaped."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from rbdagent.parse.shown import shown

if TYPE_CHECKING:
    from collections.abc import Iterable


class Html(str):
    """Markup. What str makes of it (a join, a slice) is text again: a slip escapes twice."""

    __slots__ = ()


def el(tag: str, *inside: str, **attributes: str) -> Html:
    """Give an element. ``class_`` and ``aria_label`` are names; an empty attribute is left out."""
    given = "".join(
        f' {name.rstrip("_").replace("_", "-")}="{visible(value)}"'
        for name, value in attributes.items()
        if value
    )
    return Html(f"<{tag}{given}>{several(inside)}</{tag}>")


def several(parts: Iterable[str]) -> Html:
    """Give markup and text in a row."""
    return Html("".join(each if isinstance(each, Html) else visible(each) for each in parts))


def visible(text: str) -> Html:
    """Return text as markup, with what would not be seen of it."""
    return Html(escape(shown(text)))
