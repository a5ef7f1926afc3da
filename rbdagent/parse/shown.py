"""Text of others, as people may see it: nothing in it moves the cursor, hides, or turns around.

Names, paths, command lines and messages are chosen by tenants. What ``str.isprintable`` calls not
printable is written as its escape: the Unicode categories Other (controls, marks of direction,
characters of no width, surrogates) and Separator, but for the space.
"""

from __future__ import annotations

import operator
import re
from types import NoneType
from typing import TYPE_CHECKING, Final, TypeVar, cast

from msgspec import Struct
from msgspec.structs import replace

from rbdagent.model import Command

if TYPE_CHECKING:
    from collections.abc import Callable

_T = TypeVar("_T")
_NO_TEXT: Final = frozenset({bool, int, float, NoneType})
_SURROGATE: Final = re.compile("[\ud800-\udfff]")


class _Escapes:
    """A table for ``str.translate``. It remembers nothing: tenants choose among a million."""

    def __init__(self, escape: Callable[[str], str]) -> None:
        self._escape = escape

    def __getitem__(self, code: int) -> str:
        character = chr(code)
        return character if character.isprintable() else self._escape(character)


def _as_python(character: str) -> str:
    return character.encode("unicode_escape").decode()


def _as_json(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))


_AS_PYTHON: Final = _Escapes(_as_python)
_AS_JSON: Final = _Escapes(_as_json)


def shown(text: str) -> str:
    r"""Return a text on one line, with ``\x1b`` or ``\u202e`` for what cannot be seen."""
    return text if text.isprintable() else text.translate(_AS_PYTHON)


def shown_lines(text: str) -> str:
    """Return the same of a text whose line breaks are those of its layout."""
    return "\n".join(map(shown, text.split("\n")))


def in_json(encoded: str) -> str:
    r"""Return encoded JSON with ``\u202e`` for what cannot be seen; it is parsed to the same data.

    JSON itself forbids raw controls up to U+001F only (RFC 8259, section 7). Terminals also obey
    DEL and U+0080 to U+009F, and turn text around at marks of direction.
    """
    # A line at a time: to look up each character of a large snapshot takes seconds.
    lines = encoded.split("\n")
    return "\n".join(line if line.isprintable() else line.translate(_AS_JSON) for line in lines)


def as_unicode(name: str) -> str:
    r"""Return a file's name with ``\xe9`` for each byte that is not UTF-8, as it can be encoded.

    Python has a lone surrogate for such a byte (PEP 383). No encoder takes one, so that a single
    name would cost a whole answer.
    """
    if name.isascii() or not _SURROGATE.search(name):
        return name
    return _SURROGATE.sub(lambda match: f"\\x{ord(match[0]) & 0xFF:02x}", name)


def in_all_texts(value: _T, change: Callable[[str], str]) -> _T:
    """Return a value of the model, or plain data, with every text in it changed.

    Args:
        value: a text, or a Struct, tuple, list or dict; anything else stays as it is, and so does a
            command: ``rbdagent.commands`` prints none whose words cannot be seen.
        change: returns the same object for a text that needs no change, and then so does this.
    """
    if isinstance(value, str):
        return cast("_T", change(value))
    if isinstance(value, Command):
        return value
    if isinstance(value, Struct):
        different = {}
        for name in value.__struct_fields__:
            old = getattr(value, name)
            # A snapshot of a large cluster has a million fields.
            new = old if type(old) in _NO_TEXT else in_all_texts(old, change)
            if new is not old:
                different[name] = new
        return replace(value, **different) if different else value
    if isinstance(value, (tuple, list)):
        parts = [in_all_texts(part, change) for part in value]
        return value if all(map(operator.is_, parts, value)) else cast("_T", type(value)(parts))
    if isinstance(value, dict):
        return cast("_T", {key: in_all_texts(part, change) for key, part in value.items()})
    return value
