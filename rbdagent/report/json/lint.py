"""The output of ``lint``."""

from __future__ import annotations

from typing import Any, Literal

from rbdagent import model
from rbdagent.commands import sentence_of
from rbdagent.model import lint
from rbdagent.report.json.findings import Subject
from rbdagent.report.json.output import Code, Object, Output, Time
from rbdagent.report.json.sources import Gap, Sources, sources
from rbdagent.rules.entry import runbook


class Place(Object, frozen=True, kw_only=True):
    """Where a manifest is: documents and items of a List count from 1; no item: null."""

    file: str
    document: int
    item: int | None


class Problem(Object, frozen=True, kw_only=True):
    """What would go wrong with one object, and the field of its manifest that causes it."""

    code: Code
    severity: model.Severity
    subject: str
    about: Subject
    place: Place
    field: str
    message: str
    evidence: tuple[str, ...]
    remedy: str
    runbook: str


class Linted(Object, frozen=True, kw_only=True):
    """The number of objects of each kind in the files; omitted: those that are not examined."""

    claims: int
    persistent_volumes: int
    storage_classes: int
    volume_snapshot_contents: int
    omitted: dict[str, int]


class Binding(Object, frozen=True, kw_only=True):
    """A claim that would bind, and its PV."""

    namespace: str
    claim: str
    persistent_volume: str


class Pair(Object, frozen=True, kw_only=True):
    """The manifests of a PV and a claim that bind to each other and to nothing else."""

    persistent_volume: dict[str, Any]
    claim: dict[str, Any]
    notes: tuple[str, ...]


class LintReport(Output, frozen=True, kw_only=True):
    """The output of ``lint``: the problems, the most severe first, and manifests without them.

    `notRead` lists what rbdagent never reads. It has no influence on `complete`.
    """

    kind: Literal["LintReport"] = "LintReport"
    observed_at: Time
    examined: Linted
    problems: tuple[Problem, ...]
    bindings: tuple[Binding, ...]
    pairs: tuple[Pair, ...]
    without_pair: tuple[str, ...]
    not_observed: tuple[Gap, ...]
    not_read: tuple[Gap, ...]
    complete: bool
    sources: Sources


def lint_report(found: lint.LintReport, snapshot: model.Snapshot) -> LintReport:
    """Return the output of ``lint -o json``."""
    objects = [item.object for item in found.manifests.items]

    def count(kind: type) -> int:
        return sum(isinstance(one, kind) for one in objects)

    return LintReport(
        observed_at=snapshot.observed_at,
        examined=Linted(
            claims=count(model.PersistentVolumeClaim),
            persistent_volumes=count(model.PersistentVolume),
            storage_classes=count(model.StorageClass),
            volume_snapshot_contents=count(lint.ContentManifest),
            omitted=dict(found.manifests.others),
        ),
        problems=tuple(map(_problem, found.problems)),
        bindings=tuple(
            Binding(namespace=claim.namespace, claim=claim.name, persistent_volume=volume)
            for claim, volume in found.bindings
        ),
        pairs=tuple(
            Pair(persistent_volume=pair.volume, claim=pair.claim, notes=pair.notes)
            for pair in found.pairs
        ),
        without_pair=found.without_pair,
        not_observed=tuple(map(_gap, found.not_observed)),
        not_read=tuple(map(_gap, found.unread)),
        complete=found.is_complete,
        sources=sources(snapshot),
    )


def _problem(known: lint.Problem) -> Problem:
    return Problem(
        code=known.code,
        severity=known.severity,
        subject=str(known.subject),
        about=Subject(
            kind=known.subject.kind,
            name=known.subject.name,
            namespace=known.subject.namespace or None,
            node=known.subject.node,
        ),
        place=Place(file=known.place.file, document=known.place.document, item=known.place.item),
        field=known.field,
        message=known.statement,
        evidence=known.evidence,
        remedy=sentence_of(known.remedy),
        runbook=runbook(known.code),
    )


def _gap(known: model.Gap) -> Gap:
    return Gap(fact=known.fact, reason=known.reason, hint=known.hint)
