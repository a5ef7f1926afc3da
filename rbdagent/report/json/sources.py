"""The state of the sources in an output."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rbdagent import model
from rbdagent.report.json.output import Object

if TYPE_CHECKING:
    from collections.abc import Iterable


class Gap(Object, frozen=True, kw_only=True):
    """One fact that is missing from a source that was otherwise observed."""

    fact: str
    reason: str
    hint: str


class Source(Object, frozen=True, kw_only=True):
    """The state of one source, and its gaps."""

    state: model.SourceState
    reason: str
    hint: str
    gaps: tuple[Gap, ...]


class Sources(Object, frozen=True, kw_only=True):
    """The state of each source."""

    node: Source
    ceph: Source
    kubernetes: Source


def sources(snapshot: model.Snapshot) -> Sources:
    """Return the state of each source of a snapshot."""
    return Sources(**{name: _source(source) for name, source in snapshot.sources.named})


def _source(source: model.Source) -> Source:
    return Source(
        state=source.state,
        reason=source.reason,
        hint=source.hint,
        gaps=gaps(source.gaps),
    )


def gaps(known: Iterable[model.Gap]) -> tuple[Gap, ...]:
    """Return facts that were not observed, in their order."""
    return tuple(Gap(fact=gap.fact, reason=gap.reason, hint=gap.hint) for gap in known)
