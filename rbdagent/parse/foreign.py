r"""Text that others wrote, as a part of a sentence: quoted, so that it cannot finish the sentence.

Tenants choose command lines, program names, paths in their containers, and the messages of events.
``process 392 ("app) until 05:07:20, and is closed since then.")`` shows where such a text ends: a
quote in it is ``\"``, and a backslash ``\\``. A name without spaces and punctuation of sentences
stays as it is.
"""

from __future__ import annotations

import re
from typing import Final

from rbdagent.parse.excerpt import shortened
from rbdagent.parse.shown import shown

_NAME: Final = re.compile(r"[\w/.:@%+=~-]+|\[[\w/.:@%+=~-]+\]", re.ASCII)
"""Programs, kernel threads (``[jbd2/rbd0-8]``) and paths."""
_END_OF_SENTENCE: Final = (".", ":")
_QUOTED: Final = re.compile(r'"((?:[^"\\]|\\.)*)"')
_NEUTRAL: Final = "_"
"""Replaces each quoted character: neither a sentence nor a parenthesis ends there."""


def foreign(text: str) -> str:
    """Return a text in double quotes, on one line, with at most some 300 of its characters."""
    escaped = shortened(text).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{shown(escaped)}"'


def foreign_name(name: str) -> str:
    """Return a name as it is if it cannot be taken for a part of a sentence, else quoted."""
    is_plain = _NAME.fullmatch(name) and not name.endswith(_END_OF_SENTENCE) and len(name) <= 300
    return name if is_plain else foreign(name)


def quoted_names(names: dict[str, str]) -> dict[str, str]:
    """Return what a pattern found in a text of others, for use in a sentence; empty stays empty."""
    return {key: foreign_name(name) if name else name for key, name in names.items()}


def name_at(text: str, position: int) -> tuple[str, int] | None:
    """Read a name that :func:`foreign_name` left as it is, in parentheses; None if there is none.

    Returns:
        The name, and the position after it.
    """
    match = _NAME.match(text, position)
    if match is None or not text.startswith(")", match.end()):
        return None
    return match[0], match.end()


def foreign_at(text: str, position: int) -> tuple[str, int] | None:
    """Read what :func:`foreign` has quoted; None if no quoted text begins there.

    Returns:
        The text, with the escapes of :func:`shown`, and the position after its last quote.
    """
    match = _QUOTED.match(text, position)
    return None if match is None else (re.sub(r"\\([\"\\])", r"\1", match[1]), match.end())


def without_quotations(text: str) -> str:
    """Return a text of the same length in which nothing can be read that is quoted.

    If a quote has no partner, it is unknown which one: everything behind the first one is quoted.
    So is it if a backslash is outside of quotations, which may be the escape of a quote inside.
    """
    bare = _QUOTED.sub(lambda quoted: _NEUTRAL * len(quoted[0]), text)
    first = text.find('"')
    if first == -1 or not {'"', "\\"} & {*bare}:
        return bare
    return text[:first] + _NEUTRAL * (len(text) - first)


def is_in_quotation(beginning: str) -> bool:
    """Return whether the beginning of a sentence ends in a quotation."""
    return '"' in _QUOTED.sub("", beginning)


def bounded(text: str, most: int) -> str:
    """Return at most ``most`` characters of a sentence; a quotation that is cut ends there."""
    if len(text) <= most:
        return text
    kept = text[: most - 1]
    if not is_in_quotation(kept):
        return f"{kept}…"
    kept = text[: most - 2]
    half_an_escape = (len(kept) - len(kept.rstrip("\\"))) % 2
    return f'{kept[: len(kept) - half_an_escape]}…"' if is_in_quotation(kept) else f"{kept}…"
