"""Label selectors, as kubectl's ``-l`` takes them.

https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#label-selectors
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from rbdagent.errors import ParseError
from rbdagent.model import Requirement

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_KEY: Final = r"(?P<key>(?:[A-Za-z0-9.-]+/)?[A-Za-z0-9](?:[\w.-]*[A-Za-z0-9])?)"
_VALUE: Final = r"(?a:[A-Za-z0-9](?:[\w.-]*[A-Za-z0-9])?)?"
_EXISTS: Final = rf"(?a)(?P<no>!?)\s*{_KEY}"
_EQUALS: Final = rf"(?a){_KEY}\s*(?P<operator>==|=|!=)(?P<values>[^,]*)"
_LISTED: Final = rf"(?a){_KEY}\s+(?P<operator>in|notin)\s*\((?P<values>[^()]*)\)"
_OPERATORS: Final = {"=": "In", "==": "In", "in": "In", "!=": "NotIn", "notin": "NotIn"}
_PART: Final = re.compile(r"[^,(]*(?:\([^)]*\)?[^,(]*)*")
"""A part up to the next comma that is not in parentheses."""
_EXPECTED: Final = "KEY=VALUE, KEY!=VALUE, KEY in (A,B), KEY notin (A,B), KEY or !KEY, with commas"


def parse_selector(text: str) -> tuple[Requirement, ...]:
    """Parse a selector; an empty selector selects all objects.

    Raises:
        ParseError: the text is not a selector.
    """
    if not text.strip():
        return ()
    parts = _parts(text) if "(" in text else text.split(",")
    return tuple(_requirement(part.strip(), text) for part in parts)


def _parts(text: str) -> Iterator[str]:
    at = 0
    while (part := _PART.match(text, at)) is not None:
        yield part[0]
        if part.end() == len(text):
            return
        at = part.end() + 1


def _requirement(part: str, text: str) -> Requirement:
    found = re.fullmatch(_EXISTS, part)
    if found is not None:
        operator = "DoesNotExist" if found["no"] else "Exists"
        return Requirement(key=found["key"], operator=operator, values=())
    found = re.fullmatch(_EQUALS, part) or re.fullmatch(_LISTED, part)
    values = () if found is None else tuple(map(str.strip, found["values"].split(",")))
    if found is None or not all(re.fullmatch(_VALUE, value) for value in values):
        raise ParseError(what="a selector", where="-l", text=text, expected=_EXPECTED)
    return Requirement(key=found["key"], operator=_OPERATORS[found["operator"]], values=values)


def selects(selector: tuple[Requirement, ...], labels: Mapping[str, str]) -> bool:
    """Return whether labels meet every requirement."""
    return all(meets(requirement, labels) for requirement in selector)


def meets(requirement: Requirement, labels: Mapping[str, str]) -> bool:
    """Return whether labels meet a requirement; NotIn and DoesNotExist match a missing label."""
    value = labels.get(requirement.key)
    match requirement.operator:
        case "In":
            return value in requirement.values
        case "NotIn":
            return value not in requirement.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt" as operator:
            return value is not None and _compares(operator, value, requirement.values)
        case _:
            return False


def _compares(operator: str, value: str, limits: tuple[str, ...]) -> bool:
    try:
        (limit,) = (int(text) for text in limits)
        return int(value) > limit if operator == "Gt" else int(value) < limit
    except ValueError:
        return False
