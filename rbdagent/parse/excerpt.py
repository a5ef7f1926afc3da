"""Text of another program, as rbdagent quotes it: on one line, and not too long."""

from __future__ import annotations

from typing import Final

_SHOWN: Final = 300
_HEAD: Final = 100
_CUT: Final = " … "


def printable(text: str) -> str:
    """Return a text on one line, without characters that are invisible or hide others."""
    return " ".join(
        "".join(character if character.isprintable() else " " for character in text).split()
    )


def what_follows(text: str, part: str) -> str:
    """Return what a line of a log has after a part of it, such as an error; "" without it."""
    return text.partition(part)[2].strip(" ):\n").rstrip(".")


def shortened(text: str, most: int = _SHOWN) -> str:
    """Cut the middle out of a long text: an error begins with what failed and ends with why."""
    if len(text) <= most:
        return text
    return text[:_HEAD] + _CUT + text[len(_CUT) + _HEAD - most :]
