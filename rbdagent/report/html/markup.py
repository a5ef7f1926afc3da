"""Markup as a separate type: every other text is escaped."""

from __future__ import annotations

import re
from html import escape
from typing import TYPE_CHECKING, Final

from rbdagent.parse.shown import shown

if TYPE_CHECKING:
    from collections.abc import Iterable


_REFERENCE: Final = re.compile(r' (id="|aria-labelledby="|href="#)')
"""Matches the begin of an id and of a reference to one. Text and values have no bare quotes."""
_HEADING: Final = re.compile(r"<(/?)h([1-4])(?=[ >])")
_LOWER: Final = 2
"""Levels from a heading of a volume's page to the same heading below the heading of a node."""


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


def nested(markup: Html, anchor: str) -> Html:
    """Return the content of a page as a part of another page.

    Args:
        markup: the content.
        anchor: begins its ids, so that they differ from those of other parts.
    """
    own = _REFERENCE.sub(rf" \g<1>{anchor}-", markup)
    return Html(_HEADING.sub(lambda found: f"<{found[1]}h{int(found[2]) + _LOWER}", own))
