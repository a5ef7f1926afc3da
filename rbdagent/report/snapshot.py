"""Snapshots as JSON: one file from which all output can be produced again, byte for byte.

The format follows the model. A class is an object with camelCase keys. A field with its default
value is omitted. A value that was not observed has the reason in ``notObserved`` and may have a
hint. If a field can have one of several classes, ``type`` contains the name of the class.
"""

from __future__ import annotations

import functools
import json
import types
import typing
from enum import Enum
from typing import Any, Final, TypeVar, cast

import msgspec
from msgspec import NODEFAULT, Struct
from msgspec.structs import FieldInfo, fields

from rbdagent import model
from rbdagent.errors import ParseError
from rbdagent.model import API_VERSION, NotObserved, Snapshot
from rbdagent.parse.shown import in_json

KIND: Final = "Snapshot"
_HINT: Final = "write the file again with `rbdagent snapshot` of this version"
_S = TypeVar("_S", bound=Struct)


def dump_snapshot(snapshot: Snapshot) -> str:
    """Return a snapshot as indented JSON with a final newline."""
    head = {"apiVersion": API_VERSION, "kind": KIND}
    body = encode(snapshot)
    text = json.dumps(head | cast("dict[str, Any]", body), indent=1, ensure_ascii=False)
    return in_json(text) + "\n"


def load_snapshot(text: str, *, where: str) -> Snapshot:
    """Parse a snapshot; errors do not quote the file, which may be any file that root can read.

    Args:
        text: the file's content.
        where: its name, for errors.

    Raises:
        ParseError: it is truncated, not a snapshot, of another version, or a field is wrong; the
            error names the field.
    """
    try:
        data = msgspec.json.decode(text)
    except (ValueError, RecursionError) as error:
        expected = f"JSON, as `rbdagent snapshot` writes it ({_no_json(text, error)})"
        raise _no_snapshot(where, expected) from error
    if not isinstance(data, dict) or data.get("kind") != KIND:
        kind = _own_kind(data.get("kind")) if isinstance(data, dict) else _kind_of(data)
        raise _no_snapshot(
            where, f"kind: {KIND}, as `rbdagent snapshot` writes it, and found {kind}"
        )
    if data.get("apiVersion") != API_VERSION:
        raise _no_snapshot(
            where, f"apiVersion: {API_VERSION}; it was written by another version of rbdagent"
        )
    body = {key: value for key, value in data.items() if key not in {"apiVersion", "kind"}}
    return decode(Snapshot, body, where=where, path="$")


def _no_snapshot(where: str, expected: str) -> ParseError:
    return ParseError(what="a snapshot", where=where, text=None, expected=expected, hint=_HINT)


def _no_json(text: str, error: Exception) -> str:
    """Return why a text is not JSON; the message of msgspec has an offset and quotes no byte."""
    if not text.strip():
        return "the file is empty"
    if isinstance(error, RecursionError):
        return "the file is nested too deeply"
    is_truncated = text.lstrip().startswith("{") and not text.rstrip().endswith("}")
    return "the file ends too early" if is_truncated else str(error)


def _own_kind(kind: object) -> str:
    """Return the kind if it is an output of rbdagent; the kind of another file is not quoted."""
    from rbdagent.report.schema import KINDS

    return f"kind: {kind}" if isinstance(kind, str) and kind in KINDS else "another one"


# --------------------------------------------------------------------------------------------------
# Encoding
# --------------------------------------------------------------------------------------------------


def encode(value: object) -> object:
    """Return a value of the model as plain JSON data."""
    if isinstance(value, NotObserved):
        return {"notObserved": value.reason} | ({"hint": value.hint} if value.hint else {})
    if isinstance(value, Struct):
        encoded: dict[str, object] = {}
        if type(value).__name__ in _tagged():
            encoded["type"] = type(value).__name__
        for field in _fields(type(value)):
            content = getattr(value, field.name)
            if not _is_default(field, content):
                encoded[camel(field.name)] = encode(content)
        return encoded
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, tuple):
        return [encode(item) for item in value]
    return value


@functools.cache
def _fields(kind: type[Struct]) -> tuple[FieldInfo, ...]:
    """Return the fields of a class, cached: finding them takes ten times as long as writing."""
    return fields(kind)


def _is_default(field: FieldInfo, content: object) -> bool:
    if field.default is not NODEFAULT:
        return bool(content == field.default)
    if field.default_factory is not NODEFAULT:
        return bool(content == field.default_factory())
    return False


@functools.cache
def camel(name: str) -> str:
    """Return ``client_id`` as ``clientID``, as Kubernetes writes initialisms."""
    head, *rest = name.split("_")
    return head + "".join("ID" if word == "id" else word.capitalize() for word in rest)


@functools.cache
def _tagged() -> frozenset[str]:
    """Return the classes that share a field with another class."""
    return frozenset(kind.__name__ for kind in typing.get_args(model.VolumeSource))


# --------------------------------------------------------------------------------------------------
# Decoding
# --------------------------------------------------------------------------------------------------


def decode(kind: type[_S], data: object, *, where: str, path: str) -> _S:
    """Return one class of the model from plain JSON data.

    Raises:
        ParseError: a field is missing, unknown, or of another type; ``path`` leads to it.
    """
    if not isinstance(data, dict):
        raise _wrong(where, path, data, "an object")
    hints, defaults = _shape(kind)
    by_key = {camel(name): name for name in hints}
    if any(key not in by_key and key != "type" for key in data):
        raise _wrong(where, path, data, f"no other fields than {', '.join(by_key)}")
    values = {}
    for key, name in by_key.items():
        if key in data:
            values[name] = _value(hints[name], data[key], where, f"{path}.{key}")
        elif name not in defaults:
            raise _wrong(where, f"{path}.{key}", None, "a value")
    return kind(**values)


@functools.cache
def _shape(kind: type[Struct]) -> tuple[dict[str, Any], frozenset[str]]:
    known = fields(kind)
    optional = frozenset(field.name for field in known if not field.required)
    hints = typing.get_type_hints(kind)
    return {field.name: hints[field.name] for field in known}, optional


def _value(hint: Any, data: object, where: str, path: str) -> object:  # noqa: ANN401 - a type hint
    origin = typing.get_origin(hint)
    if origin in {types.UnionType, typing.Union}:
        return _one_of(typing.get_args(hint), data, where, path)
    if origin is tuple:
        return _items(typing.get_args(hint), data, where, path)
    if isinstance(hint, type) and issubclass(hint, Struct):
        return decode(hint, data, where=where, path=path)
    if isinstance(hint, type) and issubclass(hint, Enum):
        try:
            return hint(data)
        except ValueError:
            known = ", ".join(str(member.value) for member in hint)
            raise _wrong(where, path, data, f"one of {known}") from None
    # Integers are unbounded in Python, and later code converts them to times and floats.
    is_number = type(data) is int and data.bit_length() <= _MOST_BITS
    if hint in {int, float} and is_number:
        return hint(data)
    if isinstance(data, hint) and hint is not int:
        return data
    raise _wrong(where, path, data, _WORDS.get(hint, str(hint)))


_MOST_BITS: Final = 64


_WORDS: Final = {
    str: "a text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    dict: "an object",
    list: "a list",
    types.NoneType: "nothing",
}


def _kind_of(data: object) -> str:
    return _WORDS.get(type(data), type(data).__name__)


def _one_of(hints: tuple[Any, ...], data: object, where: str, path: str) -> object:
    if data is None and types.NoneType in hints:
        return None
    if isinstance(data, dict) and "notObserved" in data and NotObserved in hints:
        reason, hint = data["notObserved"], data.get("hint", "")
        if not (isinstance(reason, str) and isinstance(hint, str)):
            raise _wrong(where, path, data, "notObserved and cure as texts")
        return NotObserved(reason=reason, hint=hint)
    rest = [
        alternative for alternative in hints if alternative not in {types.NoneType, NotObserved}
    ]
    if len(rest) > 1:
        named = {alternative.__name__: alternative for alternative in rest}
        kind = data.get("type") if isinstance(data, dict) else None
        if not isinstance(kind, str) or kind not in named:
            raise _wrong(where, f"{path}.type", kind, f"one of {', '.join(named)}")
        return decode(named[kind], data, where=where, path=path)
    return _value(rest[0], data, where, path)


def _items(hints: tuple[Any, ...], data: object, where: str, path: str) -> tuple[object, ...]:
    if not isinstance(data, list):
        raise _wrong(where, path, data, "a list")
    if len(hints) == 2 and hints[1] is Ellipsis:
        hints = (hints[0],) * len(data)
    if len(hints) != len(data):
        raise _wrong(where, path, data, f"a list of {len(hints)}")
    return tuple(
        _value(hint, item, where, f"{path}[{number}]")
        for number, (hint, item) in enumerate(zip(hints, data, strict=True))
    )


def _wrong(where: str, path: str, data: object, expected: str) -> ParseError:
    return ParseError(
        what=f"the field {path} of a snapshot",
        where=where,
        text=None,
        expected=f"{expected}, and found {_kind_of(data)}",
        hint=_HINT,
    )
