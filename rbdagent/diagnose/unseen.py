"""RBD9xx: what was not observed, each as a line of the answer."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from rbdagent.commands import command
from rbdagent.correlate.holders import cluster_with
from rbdagent.correlate.identity import clusters_of
from rbdagent.diagnose.case import Case, finding
from rbdagent.model import CODES_OF_GAPS, Finding, NotObserved, Severity, Source, SourceState

if TYPE_CHECKING:
    from collections.abc import Iterator

CODES: Final = CODES_OF_GAPS
"""Findings on a look as a whole, whatever it was taken for."""

OF_ONE_VOLUME: Final = frozenset({"RBD905"})
"""What they mean for one volume; of many it is said once, by those of the look as a whole."""


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


_SILENCE: Final = re.compile(r"\bno (?:monitor answered|answer)\b")
"""In the reasons of what did not answer in time, and in no other."""


def silence(case: Case) -> Iterator[Finding]:
    """RBD905: what it means for this volume that Ceph did not answer in time."""
    image, late = case.use.image, _late(case)
    if image is None or late is None:
        return
    yield finding(
        "RBD905",
        f"image {image.spec}",
        f"Ceph did not answer about {image.spec} in time ({late.reason}). Who holds it elsewhere "
        "is unknown: do not take it for free. I/O on it may hang as well.",
        evidence=(late.reason,),
        commands=(command("ceph -s"), command("ceph health detail")),
    )


def _late(case: Case) -> NotObserved | Source | None:
    """Return what of the image's own cluster did not answer in time."""
    source, view = case.snapshot.sources.ceph, case.use.image_view
    if source.state is SourceState.FAILED:
        return source if _SILENCE.search(source.reason) else None
    if view is not None:
        facts = (view.watchers, view.presence)
        late = (fact for fact in facts if isinstance(fact, NotObserved))
        return next((fact for fact in late if _SILENCE.search(fact.reason)), None)
    fsid = None if case.use.image is None else case.use.image.fsid
    if cluster_with(fsid, case.snapshot) is not None:
        return None
    # Nothing is known of a cluster that failed, not even which one it is.
    unnamed = [view for view in clusters_of(case.snapshot.ceph) if view.fsid is None]
    return next((view.source for view in unnamed if _SILENCE.search(view.source.reason)), None)


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
