"""Escapes for text of tenants, which must not move the cursor, hide text or change its direction.

Tenants choose names, paths, command lines and messages. A character for which ``str.isprintable``
is false is written as its escape: the Unicode categories Other (control characters, direction
marks, zero-width characters, surrogates) and Separator, except the space.
"""

from __future__ import annotations

import operator
import re
from types import NoneType
from typing import TYPE_CHECKING, Final, TypeVar, cast

from msgspec import Struct, msgpack
from msgspec.structs import replace

from rbdagent.model import Command

if TYPE_CHECKING:
    from collections.abc import Callable

_T = TypeVar("_T")
_NO_TEXT: Final = frozenset({bool, int, float, NoneType})
_SURROGATE: Final = "[\ud800-\udfff]"


class _Escapes:
    """A table for ``str.translate``; it has no cache, because tenants could fill it."""

    def __init__(self, escape: Callable[[str], str]) -> None:
        self._escape = escape

    def __getitem__(self, code: int) -> str:
        character = chr(code)
        return character if character.isprintable() else self._escape(character)


def _as_python(character: str) -> str:
    return character.encode("unicode_escape").decode()


def _as_json(character: str) -> str:
    if (code := ord(character)) < 0x10000:
        return f"\\u{code:04x}"
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))


_AS_PYTHON: Final = _Escapes(_as_python)
_AS_JSON: Final = _Escapes(_as_json)


def shown(text: str) -> str:
    r"""Return a text on one line, with escapes such as ``\x1b`` or ``\u202e``."""
    return text if text.isprintable() else text.translate(_AS_PYTHON)


def shown_lines(text: str) -> str:
    """Escape each line of a text; keep its line breaks, which rbdagent wrote."""
    return "\n".join(map(shown, text.split("\n")))


_NOT_PLAIN: Final = re.compile(r"[^\n -~]")


def in_json(encoded: str) -> str:
    r"""Return encoded JSON with escapes such as ``\u202e``; parsers read the same data.

    JSON forbids raw control characters only up to U+001F (RFC 8259, section 7). Terminals also
    interpret DEL and U+0080 to U+009F, and change the direction of text at direction marks.
    """
    if _NOT_PLAIN.search(encoded) is None:
        return encoded
    # Line by line: translating every character of a large snapshot takes seconds.
    lines = encoded.split("\n")
    return "\n".join(line if line.isprintable() else line.translate(_AS_JSON) for line in lines)


def as_unicode(name: str) -> str:
    r"""Return a file name with an escape such as ``\xe9`` for each byte that is not UTF-8.

    Python represents such a byte as a lone surrogate (PEP 383). UTF-8 cannot encode a surrogate, so
    a single name would make the whole output fail.
    """
    if name.isascii() or not re.search(_SURROGATE, name):
        return name
    return re.sub(_SURROGATE, lambda match: f"\\x{ord(match[0]) & 0xFF:02x}", name)


def all_as_unicode(value: _T) -> _T:
    """Return a value of the model with :func:`as_unicode` applied to every text in it."""
    try:
        # UTF-8 refuses a lone surrogate. For the view of a node with 50 mappings, this takes 0.2 ms
        # of processor time, and a visit of every text 1.8 ms.
        msgpack.encode(value)
    except (OverflowError, UnicodeEncodeError):
        return in_all_texts(value, as_unicode)
    return value


def in_all_texts(value: _T, change: Callable[[str], str]) -> _T:
    """Return a value of the model, or plain data, with ``change`` applied to every text in it.

    Args:
        value: a text, or a Struct, tuple, list or dict. Other types stay unchanged, and so does a
            command: ``rbdagent.commands`` prints no command with characters that are not printable.
        change: returns the same object for a text without changes. If no text changes, this
            function also returns the same object.
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
