"""Snapshots as JSON: one file from which all output can be produced again, byte for byte.

The format follows the model: msgspec encodes and decodes its types. A type is an object with
camelCase keys. A field may be omitted if it has its default value. A type that shares a field with
another type has its name in ``type``, and so has ``NotObserved``.
"""

from __future__ import annotations

import re
from typing import Any, Final, TypeVar

import msgspec

from rbdagent.commands import command
from rbdagent.errors import ParseError
from rbdagent.model import API_VERSION, Sentence, Snapshot, Stored
from rbdagent.parse.shown import in_json

KIND: Final = "Snapshot"
_HINT: Final = ("write the file again with `", command("rbdagent snapshot"), "` of this version")
_S = TypeVar("_S", bound=Stored)


def dump_snapshot(snapshot: Snapshot) -> str:
    """Return a snapshot as indented JSON with a final newline."""
    head = {"apiVersion": API_VERSION, "kind": KIND}
    encoded = msgspec.json.encode(head | encode(snapshot))
    return in_json(msgspec.json.format(encoded, indent=1).decode()) + "\n"


def load_snapshot(text: str, *, where: str) -> Snapshot:
    """Parse a snapshot; errors do not quote the file, which may be any file that root can read.

    Args:
        text: the file's content.
        where: its name, for errors.

    Raises:
        ParseError: it is truncated, not a snapshot, of another version, or a field is wrong; the
            error names the field.
    """
    head = _head(text, where)
    if head.kind != KIND:
        raise _no_snapshot(
            where,
            f"kind: {KIND}, as the verb snapshot writes it, and found {_own_kind(head.kind)}",
        )
    if head.api_version != API_VERSION:
        raise _no_snapshot(
            where, f"apiVersion: {API_VERSION}; it was written by another version of rbdagent"
        )
    listed = f"[{text}]"
    # The text of a large cluster takes half of the memory of its objects: it is needed once.
    del text
    file = _decoded(_File, listed, what="a snapshot", where=where, path="$", hint=_HINT)
    return Snapshot(**{name: getattr(file, name) for name in Snapshot.__struct_fields__})


class _Head(msgspec.Struct, rename="camel"):
    """The fields that every output of rbdagent has, whatever its other fields."""

    api_version: object = None
    kind: object = None


class _File(Snapshot, frozen=True, kw_only=True):
    """A snapshot with the head of its file."""

    api_version: str
    kind: str


def _head(text: str, where: str) -> _Head:
    """Return the head of a file; msgspec checks the rest of the JSON, and keeps nothing of it."""
    try:
        return msgspec.json.decode(text, type=_Head)
    except msgspec.ValidationError:
        expected = f"kind: {KIND}, as the verb snapshot writes it, and found no object"
        raise _no_snapshot(where, expected) from None
    except (ValueError, RecursionError) as error:
        expected = f"JSON, as the verb snapshot writes it ({_no_json(text, error)})"
        raise _no_snapshot(where, expected) from error


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

    if kind is None:
        return "none"
    return f"kind: {kind}" if isinstance(kind, str) and kind in KINDS else "another one"


# --------------------------------------------------------------------------------------------------
# The types of the model as plain JSON data
# --------------------------------------------------------------------------------------------------


def encode(value: Stored) -> dict[str, Any]:
    """Return a value of the model as plain JSON data."""
    encoded: dict[str, Any] = msgspec.to_builtins(value)
    return encoded


def decode(
    kind: type[_S], data: object, *, what: str, where: str, path: str, hint: Sentence = ""
) -> _S:
    """Return one type of the model from plain JSON data, as msgspec.json.decode returns it.

    Args:
        kind: the type.
        data: its fields.
        what: what the file contains, for errors.
        where: the name of the file, for errors.
        path: the path of the data in the file, for errors.
        hint: how to get a correct file, for errors.

    Raises:
        ParseError: a field is missing, unknown, or of another type; ``path`` leads to it.
    """
    # msgspec.convert would do without JSON, but its versions 0.19 to 0.21 do not check the error of
    # PyLong_AsDouble (convert_int in _core.c): an integer may be too large for a float.
    text = msgspec.json.encode([data])
    return _decoded(kind, text, what=what, where=where, path=path, hint=hint)


def _decoded(
    kind: type[_S], text: str | bytes, *, what: str, where: str, path: str, hint: Sentence
) -> _S:
    """Return the only element of a JSON list as a type of the model.

    In a list, every message of msgspec ends with a path, so that no key of the file can imitate
    one. The cause is dropped: it quotes the file, and --debug would print it.
    """
    try:
        (decoded,) = msgspec.json.decode(text, type=list[kind])  # type: ignore[valid-type]
    except msgspec.ValidationError as error:
        message, _, place = str(error).rpartition(" - at `$[0]")
        path, expected = _wrong(message, path + place.removesuffix("`"))
        raise ParseError(
            what=f"the field {path} of {what}",
            where=where,
            text=None,
            expected=expected,
            hint=hint,
        ) from None
    return decoded


_TYPE: Final = re.compile("`([^`]*)`")
_WORDS: Final = {
    "str": "a text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "object": "an object",
    "array": "a list",
    "null": "nothing",
}


def _wrong(message: str, path: str) -> tuple[str, str]:
    """Return the field that a message of msgspec is about, and what it expects there.

    Neither contains what the message may quote.

    "Expected `int`, got `str`" and "Object missing required field `pid`" contain only names of
    types and fields of the model. Any other message may contain a value or a key of the file.
    """
    if message.startswith("Expected "):
        expected = _TYPE.sub(_in_words, message.removeprefix("Expected "))
        expected = expected.replace(", got ", ", and found ")
    elif message.startswith("Object missing required field"):
        path += "." + message.split("`")[1]
        expected = "a value, and found nothing"
    elif message.startswith("Object contains unknown field"):
        expected = "only fields that this version knows"
    else:
        expected = "a value that this version knows"
    return path, expected


def _in_words(types: re.Match[str]) -> str:
    return " or ".join(_WORDS.get(name, name) for name in types[1].split(" | "))
