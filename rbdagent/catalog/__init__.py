"""The codes of everything that is worth saying: cause, evidence, risk and remedy of each.

`explain CODE` and the runbooks print from here; the rules in `diagnose` name the codes.
"""

from __future__ import annotations

from difflib import get_close_matches
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from rbdagent.catalog import (
    attaching,
    binding,
    ceph,
    elsewhere,
    holders,
    kubernetes,
    mounting,
    node,
    reclaiming,
    refusals,
    scheduling,
    unseen,
)
from rbdagent.errors import NotFoundError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rbdagent.catalog.entry import Entry

RUNBOOKS: Final = "https://github.com/rbdagent/rbdagent/blob/main/docs/runbooks/"


def runbook(name: str) -> str:
    """Give the page of a code or an alert: one file each below ``docs/runbooks``."""
    return f"{RUNBOOKS}{name}.md"


_PARTS: Final = (
    holders,
    node,
    ceph,
    kubernetes,
    refusals,
    binding,
    reclaiming,
    scheduling,
    attaching,
    mounting,
    elsewhere,
    unseen,
)
CATALOG: Final[Mapping[str, Entry]] = MappingProxyType(
    {
        each.code: each
        for each in sorted(
            (each for part in _PARTS for each in part.ENTRIES), key=lambda each: each.code
        )
    }
)
"""Every code, in order."""


def entry(code: str) -> Entry:
    """Give a code's entry; code or name, in any case.

    Raises:
        NotFoundError: there is none; ``near`` has what comes close.
    """
    names = {each.code.upper(): each for each in CATALOG.values()}
    names |= {each.name.upper(): each for each in CATALOG.values()}
    found = names.get(code.strip().upper())
    if found is None:
        text = code.strip().upper()
        digits = text[:3] + text[3:].translate(str.maketrans("OIL", "011"))
        near = [digits] if digits in names else get_close_matches(text, names, n=3)
        msg = f"there is no finding {code!r}"
        raise NotFoundError(
            msg,
            hint="`rbdagent explain` lists them all",
            near=tuple(dict.fromkeys(f"{names[each].code} {names[each].name}" for each in near)),
        )
    return found


def explanation(code: str) -> str:
    """Give the text that `explain CODE` prints.

    Raises:
        NotFoundError: there is no such code.
    """
    found = entry(code)
    return "\n".join(
        (
            f"{found.code} {found.name} ({found.severity})",
            found.summary,
            "",
            f"Cause:    {found.cause}",
            f"Evidence: {found.evidence}",
            f"Risk:     {found.risk}",
            f"Remedy:   {found.remedy}",
            *((f"Itself:   {found.heals}",) if found.heals is not None else ()),
        )
    )
