"""Markup as a separate type: every other text is escaped."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from rbdagent.parse.shown import shown

if TYPE_CHECKING:
    from collections.abc import Iterable


class Html(str):
    """Markup. The methods of str (join, slice) return plain text, which is then escaped twice."""

    __slots__ = ()


def el(tag: str, *inside: str, **attributes: str) -> Html:
    """Return an element. ``class_`` and ``aria_label`` are names; empty attributes are left out."""
    written = "".join(
        f' {name.rstrip("_").replace("_", "-")}="{visible(value)}"'
        for name, value in attributes.items()
        if value
    )
    return Html(f"<{tag}{written}>{joined(inside)}</{tag}>")


def joined(parts: Iterable[str]) -> Html:
    """Join markup and text; text is escaped."""
    return Html("".join(part if isinstance(part, Html) else visible(part) for part in parts))


def visible(text: str) -> Html:
    """Return text as markup; invisible characters are escaped."""
    return Html(escape(shown(text)))
