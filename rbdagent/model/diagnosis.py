"""The conclusions about one volume: verdicts, findings, recovery, commands."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from msgspec import Struct

from rbdagent.model.common import Verdict
from rbdagent.model.kubernetes import PublishedMapping
from rbdagent.model.node import Mapping
from rbdagent.model.volume import Holder, Volume


class Severity(StrEnum):
    """Severity of a finding."""

    INFO = "info"
    WARNING = "warning"
    ERROR = "error"
    CRITICAL = "critical"
    """Data is in danger now."""


WEIGHT: Final = {
    Severity.CRITICAL: 0,
    Severity.ERROR: 1,
    Severity.WARNING: 2,
    Severity.INFO: 3,
}
"""The order of severities, the worst first."""


class Recovery(Struct, frozen=True, kw_only=True):
    """The automatic recovery from a problem, without an operator."""

    actor: str = ""
    """The component that recovers the object; empty if no component ever does."""
    condition: str = ""
    """A condition that must be met first, and that the component does not cause."""
    within_s: float | None = None
    """Upper bound in seconds; None if there is no bound."""
    note: str = ""

    def __str__(self) -> str:
        note = f": {self.note}" if self.note else ""
        if not self.actor:
            return f"not automatic{note}"
        within = "" if self.within_s is None else f", within {_spoken(self.within_s)}"
        condition = f", once {self.condition}" if self.condition else ""
        return f"{self.actor}{within}{condition}{note}"


def _spoken(seconds: float) -> str:
    """Format a duration as kubelet does: ``2m2s``."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    parts = ((hours, "h"), (minutes, "m"), (rest, "s"))
    return "".join(f"{count}{unit}" for count, unit in parts if count)


class Command(Struct, frozen=True, kw_only=True):
    """One command for a person or a program; `rbdagent.commands` creates and formats it."""

    argv: tuple[str, ...]
    """The words, unquoted; a program runs them without a shell."""
    node: str | None = None
    """The node to run the command on; None if it can run anywhere."""
    changes: bool
    """Whether the command changes something; True unless it is known to be read-only."""
    note: str = ""
    """When or why to run the command, in a few words."""


class Verb(Struct, frozen=True):
    """A verb of rbdagent that a text names without the target: no complete command."""

    name: str


Sentence = str | tuple[str | Command | Verb, ...]
"""A text, or its parts: a command in it is data until it is known where the text is read."""


class Finding(Struct, frozen=True, kw_only=True):
    """One problem or fact, with its evidence and its remedy."""

    code: str
    """``RBD101``; the catalogue explains it."""
    severity: Severity
    subject: str
    """The object of the finding: a device on a node, a PV, a pod."""
    message: str
    evidence: tuple[str, ...] = ()
    remedy: Sentence = ""
    commands: tuple[Command, ...] = ()
    """Commands to copy, in order."""
    recovery: Recovery | None = None
    """The automatic recovery; None if the finding has none."""


class HolderVerdict(Struct, frozen=True, kw_only=True):
    """A holder and its verdict."""

    holder: Holder
    verdict: Verdict
    reasons: tuple[str, ...] = ()
    """The evidence for the verdict, in short sentences."""
    reported: PublishedMapping | None = None
    """The report of the agent on the holder's node if the verdict is that of the report."""
    since: str | None = None
    """When this verdict was first observed; without a history, the time of the snapshot."""


class Diagnosis(Struct, frozen=True, kw_only=True):
    """The conclusions about one volume, before they are formatted for output."""

    volume: Volume
    verdict: Verdict
    holders: tuple[HolderVerdict, ...]
    findings: tuple[Finding, ...] = ()
    next_commands: tuple[Command, ...] = ()

    @property
    def local(self) -> tuple[HolderVerdict, ...]:
        """The holders on the observed node."""
        return tuple(holder for holder in self.holders if holder.holder.is_local)

    @property
    def mapped(self) -> tuple[tuple[HolderVerdict, Mapping], ...]:
        """The holders on the observed node that have an observed mapping, each with its mapping."""
        return tuple(
            (verdict, verdict.holder.mapping)
            for verdict in self.local
            if verdict.holder.mapping is not None
        )


class BlockedVolume(Struct, frozen=True, kw_only=True):
    """A volume that prevents the start of a pod on the observed node."""

    namespace: str
    pod: str
    persistent_volume: str
    cause: Verdict
    """The verdict on the holder that blocks the volume. It is ``StaleAttachment`` if only a
    VolumeAttachment to another node blocks it, and ``Undetermined`` if the holder was not
    observed."""
    holder_node: str | None
    """The node of that holder; None if it is unknown."""
    claim: str | None = None
    """The claim of the PV, in the namespace of the pod; None if the PV names none."""
    holder: Holder | None = None
    """The client that holds the image; None if no client was observed."""
