"""Redaction of everything in a bug report: API objects, logs, snapshots.

It masks the same texts as the collectors do (:mod:`rbdagent.parse.secrets`), in every text: what
others wrote in an object or an event is not masked in a snapshot.
"""

from __future__ import annotations

from typing import Any, Final

from rbdagent.parse.secrets import without_secrets

Json = dict[str, Any]

_FIELDS: Final = frozenset({"key", "secretName", "topologyKey"})
"""Fields of the Kubernetes API that name an object or a label, although they look like secrets."""
_LEFT_OUT: Final = frozenset({"managedFields", "kubectl.kubernetes.io/last-applied-configuration"})
"""Fields that repeat the object; the second one as one text, which no name in it protects."""
_PRIVATE: Final = "PRIVATE KEY-----"


def redacted_object(found: Json) -> Json:
    """Return an object of the API without secrets, and without what repeats the object.

    The data of a ConfigMap has keys that its author chose: any of them may name a secret.
    """
    return {
        name: _masked(value, name, fields=frozenset() if name == "data" else _FIELDS)
        for name, value in found.items()
        if name not in _LEFT_OUT
    }


def redacted_data(value: object) -> object:
    """Return a snapshot as data, with its texts masked again: also those of events.

    Its keys name no secret. A text of an event is a sentence, and may be what explains a failure.
    """
    match value:
        case str():
            return without_secrets(value, is_sentence=True)
        case dict():
            return {key: redacted_data(part) for key, part in value.items()}
        case list():
            return [redacted_data(part) for part in value]
        case _:
            return value


def redacted_text(text: str) -> str:
    """Return a text without secrets, line by line: a secret in one line hides no other line."""
    return _lines(text, "")


def _masked(value: object, name: str, *, fields: frozenset[str]) -> object:
    match value:
        case str():
            return _lines(value, "" if name in fields else name)
        case dict():
            # An environment variable has its name in another field.
            variable = value.get("name")
            named = variable if isinstance(variable, str) else "value"
            return {
                key: _masked(part, named if key == "value" else key, fields=fields)
                for key, part in value.items()
                if key not in _LEFT_OUT
            }
        case list():
            return [_masked(part, name, fields=fields) for part in value]
        case _:
            return value


def _lines(text: str, name: str) -> str:
    if _PRIVATE in text:
        # Its lines do not show what they are.
        return without_secrets(text)
    prefix = f"{name}=" if name else ""
    return "\n".join(
        without_secrets(f"{prefix}{line}").removeprefix(prefix) for line in text.split("\n")
    )
