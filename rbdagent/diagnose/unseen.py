"""RBD9xx: what was not observed, each as a line of the answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rbdagent.correlate.identity import clusters_of
from rbdagent.diagnose.case import Case, finding
from rbdagent.model import Finding, Severity, Source, SourceState

if TYPE_CHECKING:
    from collections.abc import Iterator

CODES: Final = frozenset({"RBD901", "RBD902", "RBD903", "RBD904"})
"""Findings on a look as a whole, whatever it was taken for."""


def sources(case: Case) -> Iterator[Finding]:
    """RBD901 to RBD903: a whole source; one that was left out on purpose is only mentioned."""
    states = case.snapshot.sources
    yield from _source("RBD901", "This node", states.node, "mappings here")
    yield from _source("RBD902", "Ceph", states.ceph, "holders on other nodes")
    yield from _source("RBD903", "The Kubernetes API", states.kubernetes, "pods and attachments")


def _source(code: str, name: str, source: Source, hidden: str) -> Iterator[Finding]:
    if source.state is SourceState.OBSERVED:
        return
    skipped = source.state is SourceState.SKIPPED
    what = "was not asked" if skipped else "could not be asked"
    yield finding(
        code,
        name,
        f"{name} {what}: {hidden} were not seen{f' ({source.reason})' if source.reason else ''}.",
        evidence=(source.reason,) if source.reason else (),
        remedy=source.cure,
        severity=Severity.INFO if skipped else None,
    )


def clusters(case: Case) -> Iterator[Finding]:
    """RBD902: one cluster of several."""
    for each in clusters_of(case.snapshot.ceph):
        if each.source.state is SourceState.OBSERVED:
            continue
        if case.snapshot.sources.ceph.state is not SourceState.OBSERVED and (
            each.source.reason == case.snapshot.sources.ceph.reason
        ):
            continue
        yield finding(
            "RBD902",
            f"cluster {each.name}",
            f"Ceph cluster {each.name} could not be asked: its watchers were not seen"
            f"{f' ({each.source.reason})' if each.source.reason else ''}.",
            evidence=(each.source.reason,) if each.source.reason else (),
            remedy=each.source.cure,
        )


def gaps(case: Case) -> Iterator[Finding]:
    """RBD904: a fact within a source that was observed otherwise."""
    states = case.snapshot.sources
    found = [
        (name, gap)
        for name, source in (
            ("node", states.node),
            ("Ceph", states.ceph),
            ("Kubernetes", states.kubernetes),
        )
        for gap in source.gaps
    ]
    found += [
        (f"cluster {each.name}", gap)
        for each in clusters_of(case.snapshot.ceph)
        for gap in each.source.gaps
        if gap not in states.ceph.gaps
    ]
    for name, gap in found:
        yield finding(
            "RBD904",
            name,
            f"Not observed: {gap.fact} ({gap.reason}).",
            evidence=(gap.reason,),
            remedy=gap.cure,
        )
