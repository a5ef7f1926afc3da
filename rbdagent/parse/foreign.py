r"""Text that others wrote, as a part of a sentence: quoted, so that it cannot finish the sentence.

Tenants choose command lines, program names, paths in their containers, and the messages of events.
``process 392 ("app) until 05:07:20, and is closed since then.")`` shows where such a text ends: a
quote in it is ``\"``, and a backslash ``\\``. A name without spaces and punctuation of sentences
stays as it is.
"""

from __future__ import annotations

import re
from itertools import accumulate
from typing import TYPE_CHECKING, Final

from rbdagent.parse.excerpt import shortened
from rbdagent.parse.shown import shown

if TYPE_CHECKING:
    from collections.abc import Callable

_NAME: Final = re.compile(r"[\w/.:@%+=~-]+|\[[\w/.:@%+=~-]+\]", re.ASCII)
"""Programs, kernel threads (``[jbd2/rbd0-8]``) and paths."""
_END_OF_SENTENCE: Final = (".", ":")
_QUOTED: Final = re.compile(r'"((?:[^"\\]|\\.)*)"')
_ESCAPE: Final = re.compile(
    r"\\(?:(?P<itself>[\\\"])|(?P<control>[nrt])"
    r"|x(?P<byte>[0-9a-f]{2})|u(?P<short>[0-9a-f]{4})|U(?P<long>[0-9a-f]{8}))"
)
_CONTROL: Final = {"n": "\n", "r": "\r", "t": "\t"}
_MOST: Final = 4096
"""Characters of a quotation: a whole event of kubelet, with the output of the program that failed.
Where there is less room, :func:`rbdagent.parse.brief.brief` leaves more of it out."""
_LONGEST_NAME: Final = 300
_DEPTH: Final = {"(": 1, ")": -1}
_NEUTRAL: Final = "_"
"""Replaces each quoted character: neither a sentence nor a parenthesis ends there."""


def foreign(text: str) -> str:
    """Return a text in double quotes, on one line, with at most 4096 of its characters."""
    escaped = shortened(text, _MOST).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{shown(escaped)}"'


def foreign_name(name: str) -> str:
    """Return a name as it is if it cannot be taken for a part of a sentence, else quoted."""
    is_plain = _NAME.fullmatch(name) and not name.endswith(_END_OF_SENTENCE)
    return name if is_plain and len(name) <= _LONGEST_NAME else foreign(name)


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
        The text as it was before, and the position after its last quote.
    """
    match = _QUOTED.match(text, position)
    return None if match is None else (_unescaped(match[1]), match.end())


def _unescaped(quoted: str) -> str:
    return _ESCAPE.sub(_character, quoted)


def _character(escape: re.Match[str]) -> str:
    if escape["itself"] or escape["control"]:
        return escape["itself"] or _CONTROL[escape["control"]]
    return chr(int(escape["byte"] or escape["short"] or escape["long"], 16))


def with_quotations(text: str, change: Callable[[str], str]) -> str:
    """Return a sentence with ``change`` applied to each text of others that is quoted in it.

    If a quote has no partner, nothing is changed: it is unknown what is quoted.
    """
    if is_in_quotation(text):
        return text

    def changed(quotation: re.Match[str]) -> str:
        known = _unescaped(quotation[1])
        new = change(known)
        return quotation[0] if new == known else foreign(new)

    return _QUOTED.sub(changed, text)


def end_of_sentence(text: str) -> int:
    """Return where the first sentence of a text ends, or the length of a text with only one.

    Neither parentheses nor quotations are divided: tenants choose what is in them.
    """
    depth = 0
    bare = _without_quotations(text)
    for at, character in enumerate(bare[:-1]):
        depth += _DEPTH.get(character, 0)
        if depth == 0 and character == "." and bare[at + 1] == " ":
            return at + 1
    return len(text)


def _without_quotations(text: str) -> str:
    """Return a text of the same length in which nothing can be read that is quoted.

    If a quote has no partner, it is unknown which one: everything behind the first one is quoted.
    """
    bare = _QUOTED.sub(lambda quoted: _NEUTRAL * len(quoted[0]), text)
    if _has_pairs_of_quotes(text):
        return bare
    first = text.index('"')
    return text[:first] + _NEUTRAL * (len(text) - first)


def _has_pairs_of_quotes(text: str) -> bool:
    """Return whether it is known what is quoted in a text.

    It is unknown if a quote has no partner, or if a backslash is outside of quotations: it may be
    the escape of a quote inside.
    """
    return '"' not in text or not {'"', "\\"} & {*_QUOTED.sub("", text)}


def reported(sentence: str) -> str:
    """Return a sentence that the agent of another node wrote; quoted if it is not a single one.

    That agent has quoted what others wrote, so its sentence is the same on every node. A text that
    could end a sentence or a parenthesis of this node's answer is not such a sentence.
    """
    return sentence if _is_one_sentence(sentence) else foreign(sentence)


def _is_one_sentence(text: str) -> bool:
    if not (
        text.isprintable() and _has_pairs_of_quotes(text) and end_of_sentence(text) == len(text)
    ):
        return False
    depths = [*accumulate(_DEPTH.get(character, 0) for character in _without_quotations(text))]
    # A sentence that was too long for its object lacks its end.
    is_whole = not depths or depths[-1] == 0 or text.endswith(("…", '…"'))
    return is_whole and min(depths, default=0) >= 0


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
