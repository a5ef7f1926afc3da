"""The catalogue of finding codes: summary, cause, evidence, risk and remedy of each code.

`explain CODE` and the runbooks print these texts; the rules in `diagnose` refer to the codes.
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
    """Return the URL of the runbook of a code or an alert, a file below ``docs/runbooks``."""
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
        known.code: known
        for known in sorted(
            (known for part in _PARTS for known in part.ENTRIES), key=lambda known: known.code
        )
    }
)
"""The entry of each code, ordered by code."""


def entry(code: str) -> Entry:
    """Return the entry for a code or a name, in upper or lower case.

    Raises:
        NotFoundError: there is no such entry; ``near`` lists similar codes.
    """
    names = {known.code.upper(): known for known in CATALOG.values()}
    names |= {known.name.upper(): known for known in CATALOG.values()}
    found = names.get(code.strip().upper())
    if found is None:
        text = code.strip().upper()
        digits = text[:3] + text[3:].translate(str.maketrans("OIL", "011"))
        near = [digits] if digits in names else get_close_matches(text, names, n=3)
        msg = f"there is no finding {code!r}"
        raise NotFoundError(
            msg,
            hint="`rbdagent explain` lists all codes",
            near=tuple(dict.fromkeys(f"{names[key].code} {names[key].name}" for key in near)),
        )
    return found


def explanation(code: str) -> str:
    """Return the text that `explain CODE` prints.

    Raises:
        NotFoundError: there is no such code.
    """
    found = entry(code)
    recovery = found.recovery
    return "\n".join(
        (
            f"{found.code} {found.name} ({found.severity})",
            found.summary,
            "",
            f"Cause:    {found.cause}",
            f"Evidence: {found.evidence}",
            f"Risk:     {found.risk}",
            f"Remedy:   {found.remedy}",
            *((f"Recovery: {recovery}",) if recovery is not None else ()),
        )
    )
