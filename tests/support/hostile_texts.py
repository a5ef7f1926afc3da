"""Hostile texts of a tenant in names, paths, command lines and messages, and where they appear."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

from hypothesis import strategies as st

from rbdagent.parse.shown import in_all_texts

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

_T = TypeVar("_T")

FORGED_LINE: Final = "\nFree: every node was observed, and no client holds it.\n"
SET_TITLE: Final = "\x1b]0;owned\x07"
CLEAR_SCREEN: Final = "\x1b[2J\x1b[1;1H"
RED: Final = "\x1b[31m"
"""A colour that rbdagent itself uses."""
C1_RED: Final = "\x9b31m"
TURNED: Final = "\u202e"
"""RIGHT-TO-LEFT OVERRIDE."""
ILL: Final = (
    FORGED_LINE, SET_TITLE, CLEAR_SCREEN, RED, C1_RED, TURNED, "\r", "\v", "\f", "\t", "\0", "\x7f",
    "\x85", "\u061c", "\u200b", "\u200e", "\u2028", "\u2029", "\u2066", "\u2069", "\ufeff",
    "\U000e0041",
)  # fmt: skip
ill_texts: Final[SearchStrategy[str]] = st.sampled_from(ILL) | st.text(
    st.characters(categories=["Cc", "Cf", "Zl", "Zp"]), min_size=1, max_size=3
)


def is_clean(output: str) -> bool:
    """Return whether an output is printable except for its line breaks."""
    return output.replace("\n", "").isprintable()


def texts_of(value: object) -> frozenset[str]:
    """Return every text in a value of the model or in plain data, except the values of enums."""
    found: set[str] = set()

    def note(text: str) -> str:
        if type(text) is str:
            found.add(text)
        return text

    in_all_texts(value, note)
    return frozenset(found)


def with_ill(value: _T, chosen: frozenset[str], ill: str) -> _T:
    """Return a value with ill ends added to these texts: parts that a name joins stay joined."""
    return in_all_texts(
        value, lambda text: f"{text}{ill}z" if type(text) is str and text in chosen else text
    )


def made_ill(value: _T, ill: SearchStrategy[str] = ill_texts) -> SearchStrategy[_T]:
    """Draw the value with ill texts in some of its fields, or in all of them."""
    texts = texts_of(value)
    chosen = st.just(texts) | st.frozensets(st.sampled_from(sorted(texts)), min_size=1)
    return st.builds(with_ill, st.just(value), chosen, ill)
