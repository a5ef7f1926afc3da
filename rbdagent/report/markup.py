"""Markup as a type of its own: whatever is not markup is text, and escaped."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

# Control characters and lone surrogates have no place in HTML; marks of direction turn a text
# around, so that it reads as another one.
_CONTROLS: Final = (*range(9), *range(0x0B, 0x20), *range(0x7F, 0xA0))
_DIRECTIONS: Final = (0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
_SHOWN: Final = {
    each: f"\\u{each:04x}" for each in (*_CONTROLS, *_DIRECTIONS, *range(0xD800, 0xE000))
}


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
    """Give text as markup, with what would not be seen of it."""
    return Html(escape(text.translate(_SHOWN)))
