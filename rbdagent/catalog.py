"""The catalogue of all codes: of findings, of the conditions of an unmap, and of manifests.

`explain CODE` and the runbooks print its texts. Those of an entry are in the file of the rule or
condition, and the others on the page of the code (``pages.py``).
"""

from __future__ import annotations

from difflib import get_close_matches
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from rbdagent.addresses import RUNBOOKS
from rbdagent.binding import branch_lines
from rbdagent.commands import PROGRAM, command, sentence_of
from rbdagent.errors import NotFoundError
from rbdagent.lint import entries as manifests
from rbdagent.rules import FINDINGS
from rbdagent.unmap import preconditions

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rbdagent.pages import Page
    from rbdagent.rules.entry import Entry

CATALOG: Final[Mapping[str, Entry]] = MappingProxyType(
    {
        known.code: known
        for known in sorted(
            (*FINDINGS.values(), *preconditions.ENTRIES, *manifests.ENTRIES),
            key=lambda known: known.code,
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
        # Names of alerts begin with RBD, names of findings do not: RBDMappingPinned, MappingPinned.
        is_alert = text.startswith("RBD") and text[3:].isalpha() and digits not in names
        sought = text[3:] if is_alert else text
        near = [digits] if digits in names else get_close_matches(sought, names, n=3)
        msg = f"there is no finding {code!r}"
        raise NotFoundError(
            msg,
            hint=(
                "`",
                command("rbdagent explain"),
                "` lists all codes",
                f"; alerts have runbooks: {RUNBOOKS}README.md" if is_alert else "",
            ),
            near=tuple(dict.fromkeys(f"{names[key].code} {names[key].name}" for key in near)),
        )
    return found


def explanation(found: Entry, page: Page, program: Sequence[str] = PROGRAM) -> str:
    """Return the text that `explain CODE` prints.

    Args:
        found: the entry of the code.
        page: the page of the code.
        program: the words that start rbdagent in the place of the reader.
    """
    recovery = found.recovery
    return "\n".join(
        (
            f"{found.code} {found.name} ({found.severity})",
            found.summary,
            "",
            f"Cause:    {page.cause}",
            f"Evidence: {page.evidence}",
            f"Risk:     {page.risk}",
            f"Remedy:   {sentence_of(found.remedy, program)}",
            *((f"Recovery: {recovery}",) if recovery is not None else ()),
            *(f"Branch:   {line}" for line in branch_lines(found.code)),
        )
    )
