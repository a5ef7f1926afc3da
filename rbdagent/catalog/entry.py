"""What is known of a code: one row of the catalogue."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from rbdagent.model import Heals, LifeStep, Severity


class Entry(Struct, frozen=True):
    """One code."""

    code: str
    name: str
    """CamelCase: what an alert or an event would be called."""
    severity: Severity
    summary: str
    """One sentence."""
    cause: str
    evidence: str
    """What it is told by, and how sure that is."""
    risk: str
    remedy: str
    heals: Heals | None
    """What happens next by itself; None where nothing is broken."""
    step: LifeStep | None = None
    """Where in the life of a volume it stands in the way."""
