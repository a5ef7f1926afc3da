"""Label selectors, as kubectl's ``-l`` takes them.

https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#label-selectors
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from rbdagent.errors import ParseError

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
_BETWEEN: Final = re.compile(r",(?![^(]*\))")
_EXPECTED: Final = "KEY=VALUE, KEY!=VALUE, KEY in (A,B), KEY notin (A,B), KEY or !KEY, with commas"


class Requirement(Struct, frozen=True, kw_only=True):
    """One part of a selector."""

    key: str
    values: tuple[str, ...] | None
    """Values of which the label has one; None where only the key counts."""
    negated: bool
    """An object without the label matches then, whatever the values."""


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
    operator = match["operator"]
    values = tuple(value.strip() for value in match["values"].split(","))
    return Requirement(
        key=match["key"],
        values=None if operator in {"", "!"} else values,
        negated=operator in {"!", "!=", "notin"},
    )


def selects(selector: tuple[Requirement, ...], labels: Mapping[str, str]) -> bool:
    """Tell whether labels meet every requirement."""
    return all(_meets(each, labels) for each in selector)


def _meets(requirement: Requirement, labels: Mapping[str, str]) -> bool:
    value = labels.get(requirement.key)
    met = value is not None and (requirement.values is None or value in requirement.values)
    return met is not requirement.negated
