"""The type of a catalogue entry: the documentation of one finding code."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from rbdagent.addresses import RUNBOOKS

if TYPE_CHECKING:
    from rbdagent.model import LifecycleStep, Recovery, Sentence, Severity

_WORD: Final = r"(?<=[a-z])(?=[A-Z])|(?<=CSI)(?=[A-Z])|(?<=RBD)(?=[A-Z])"
"""Matches between two words of a name, also after an abbreviation."""


def runbook(name: str) -> str:
    """Return the URL of the runbook of a code or an alert, a file below ``docs/runbooks``."""
    return f"{RUNBOOKS}{name}.md"


class Entry(Struct, frozen=True):
    """Holds the documentation of one code."""

    code: str
    name: str
    """CamelCase: the name that an alert or an event uses."""
    severity: Severity
    summary: str
    """One sentence."""
    cause: str
    evidence: str
    """The observations that the finding is based on, and how certain they are."""
    risk: str
    remedy: Sentence
    recovery: Recovery | None
    """The recovery without a user; None if nothing is broken."""
    step: LifecycleStep | None = None
    """The step of the volume lifecycle that the fault blocks."""

    @property
    def words(self) -> str:
        """The name in words, for a table without room for the summary: ``Mapping orphaned``."""
        first, *others = re.split(_WORD, self.name)
        lower = (word if word[:2].isupper() else word.lower() for word in others)
        return " ".join((first, *lower))
