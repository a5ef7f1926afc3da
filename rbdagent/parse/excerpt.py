"""A text of another program, as an answer quotes it: on one line, and not too long."""

from __future__ import annotations

from typing import Final

_SHOWN: Final = 300
_HEAD: Final = 100
_CUT: Final = " … "


def printable(text: str) -> str:
    """Return a text on one line, without characters that are invisible or hide others."""
    return " ".join("".join(each if each.isprintable() else " " for each in text).split())


def shortened(text: str) -> str:
    """Cut the middle out of what is too long: errors begin with what failed, and end with why."""
    if len(text) <= _SHOWN:
        return text
    return text[:_HEAD] + _CUT + text[len(_CUT) + _HEAD - _SHOWN :]
