"""Label selectors, as kubectl's ``-l`` takes them.

https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#label-selectors
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from rbdagent.errors import ParseError
from rbdagent.model import Requirement

if TYPE_CHECKING:
    from collections.abc import Mapping

_KEY: Final = r"(?P<key>(?:[A-Za-z0-9.-]+/)?[A-Za-z0-9](?:[\w.-]*[A-Za-z0-9])?)"
_VALUE: Final = r"(?:[A-Za-z0-9](?:[\w.-]*[A-Za-z0-9])?)?"
_FORMS: Final = tuple(
    re.compile(form, re.ASCII)
    for form in (
        rf"{_KEY}\s*(?P<operator>==|=|!=)\s*(?P<values>{_VALUE})",
        rf"{_KEY}\s+(?P<operator>in|notin)\s*\((?P<values>\s*{_VALUE}\s*(?:,\s*{_VALUE}\s*)*)\)",
        rf"(?P<operator>!?)\s*{_KEY}(?P<values>)",
    )
)
_OPERATORS: Final = {
    "=": "In",
    "==": "In",
    "in": "In",
    "!=": "NotIn",
    "notin": "NotIn",
    "": "Exists",
    "!": "DoesNotExist",
}
_BETWEEN: Final = re.compile(r",(?![^(]*\))")
_EXPECTED: Final = "KEY=VALUE, KEY!=VALUE, KEY in (A,B), KEY notin (A,B), KEY or !KEY, with commas"


def parse_selector(text: str) -> tuple[Requirement, ...]:
    """Read a selector; an empty one selects everything.

    Raises:
        ParseError: it is none.
    """
    if not text.strip():
        return ()
    return tuple(_requirement(part.strip(), text) for part in _BETWEEN.split(text))


def _requirement(part: str, text: str) -> Requirement:
    match = next((found for form in _FORMS if (found := form.fullmatch(part))), None)
    if match is None:
        raise ParseError(what="a selector", where="-l", text=text, expected=_EXPECTED)
    operator = _OPERATORS[match["operator"] or ""]
    values = tuple(value.strip() for value in match["values"].split(","))
    return Requirement(
        key=match["key"],
        operator=operator,
        values=() if operator in {"Exists", "DoesNotExist"} else values,
    )


def selects(selector: tuple[Requirement, ...], labels: Mapping[str, str]) -> bool:
    """Tell whether labels meet every requirement."""
    return all(meets(each, labels) for each in selector)


def meets(requirement: Requirement, labels: Mapping[str, str]) -> bool:
    """Tell whether labels meet a requirement; what asks for no value is met without the label."""
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
        (limit,) = (int(each) for each in limits)
        return int(value) > limit if operator == "Gt" else int(value) < limit
    except ValueError:
        return False
