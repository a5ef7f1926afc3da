"""The type of a catalogue entry: severity, summary, remedy and recovery of one code."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct

from rbdagent.addresses import RUNBOOKS

if TYPE_CHECKING:
    from rbdagent.codes import Code
    from rbdagent.model import LifecycleStep, Recovery, Sentence, Severity

_ABBREVIATIONS: Final = frozenset({"API", "CSI", "RBD"})
_SPELLED: Final = {"SELINUX": "SELinux"}


def runbook(name: str) -> str:
    """Return the URL of the runbook of a code or an alert, a file below ``docs/runbooks``."""
    return f"{RUNBOOKS}{name}.md"


class Entry(Struct, frozen=True):
    """Holds what is known of one code beside its page in ``docs/runbooks``."""

    code: Code
    severity: Severity
    summary: str
    """One sentence."""
    remedy: Sentence
    recovery: Recovery | None
    """The recovery without a user; None if nothing is broken."""
    step: LifecycleStep | None = None
    """The step of the volume lifecycle that the fault blocks."""

    @property
    def name(self) -> str:
        """The name that an alert or an Event uses: ``MappingOrphaned``."""
        return "".join(map(_capitalized, self.code.name.split("_")))

    @property
    def words(self) -> str:
        """The name in words, for a table without room for the summary: ``Mapping orphaned``."""
        first, *others = self.code.name.split("_")
        lower = (word if word in _ABBREVIATIONS else word.lower() for word in others)
        return " ".join((_capitalized(first), *lower))


def _capitalized(word: str) -> str:
    return word if word in _ABBREVIATIONS else _SPELLED.get(word, word.capitalize())
