"""The result of one cycle of the agent, which every other part of it reads."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from rbdagent.model import (
        BlockedVolume,
        Diagnosis,
        History,
        NotObserved,
        Snapshot,
        UnmapRecord,
        UnmapRefusal,
    )


class CycleResult(Struct, frozen=True, kw_only=True):
    """The result of one cycle."""

    snapshot: Snapshot
    diagnoses: tuple[Diagnosis, ...]
    history: History | None
    took_s: float
    at: float
    """Seconds of the monotonic clock."""
    acts: tuple[UnmapRecord, ...] | NotObserved = ()
    """The recorded unmaps, the latest one last."""
    news: tuple[UnmapRecord, ...] = ()
    """The refusals and the results of the follow-up that are new in this cycle."""
    ended: dict[str, int] | NotObserved = {}
    """The number of recorded unmaps and refusals, by outcome."""
    refused: tuple[UnmapRefusal, ...] = ()
    """The last refusal of each orphan that stays mapped after its grace period."""
    blocked: tuple[BlockedVolume, ...] = ()
    """The volumes that prevent pods of this node from starting."""
    complete_at: str | None = None
    """The time of the last snapshot in which no source failed; None if there was none yet."""

    @property
    def verdicts(self) -> Counter[str]:
        """Count the mappings of this node by their verdict."""
        return Counter(
            str(holder_verdict.verdict)
            for diagnosis in self.diagnoses
            for holder_verdict in diagnosis.local
        )
