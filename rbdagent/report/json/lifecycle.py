"""The outputs of ``diagnose``: the lifecycle of one volume, and all stuck objects of a cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from msgspec.structs import asdict

from rbdagent import model
from rbdagent.report.json.findings import Command, Finding, commands, finding, findings
from rbdagent.report.json.holders import VolumeReport, holders
from rbdagent.report.json.output import Code, Object, Output, Time
from rbdagent.report.json.sources import Sources, sources
from rbdagent.report.json.volume import Pod, image, pod, target
from rbdagent.report.pod_names import pod_names_by_uid

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


class StepStatus(Object, frozen=True, kw_only=True):
    """One step in the lifecycle of a volume, and the codes of the findings that block it."""

    step: model.LifecycleStep
    state: model.StepState
    detail: str
    codes: tuple[Code, ...]


class DetachPath(Object, frozen=True, kw_only=True):
    """How far a node that had the volume has released it."""

    node: str
    steps: tuple[StepStatus, ...]


class Lifecycle(VolumeReport, frozen=True, kw_only=True):
    """The lifecycle of a volume: its steps, and the finding on which all others depend."""

    kind: Literal["LifecycleReport"] = "LifecycleReport"
    next: tuple[Command, ...]
    pod: Pod | None
    attach_path: tuple[StepStatus, ...]
    detach_paths: tuple[DetachPath, ...]
    root_cause: Finding | None


class LifecycleReport(Lifecycle, frozen=True, kw_only=True):
    """The output of ``diagnose TARGET``: that of ``who-holds``, and the lifecycle."""

    sources: Sources


class StuckLifecycle(Lifecycle, frozen=True, kw_only=True):
    """The lifecycle of a stuck object; the sources are in the list."""

    since: str | None


class RootCause(Finding, frozen=True, kw_only=True):
    """A finding that blocks one or more objects."""

    affected: tuple[str, ...]


class Examined(Object, frozen=True, kw_only=True):
    """The number of examined objects of each kind; null if they were not observed.

    PersistentVolumes of other drivers are omitted.
    """

    claims: int | None
    persistent_volumes: int | None
    pods: int | None
    omitted: int


class ClusterReport(Output, frozen=True, kw_only=True):
    """The output of ``diagnose -A``: root causes and stuck objects, the most severe first."""

    kind: Literal["ClusterReport"] = "ClusterReport"
    observed_at: Time
    examined: Examined
    root_causes: tuple[RootCause, ...]
    items: tuple[StuckLifecycle, ...]
    findings: tuple[Finding, ...]
    sources: Sources


def lifecycle_report(life: model.Lifecycle, snapshot: model.Snapshot) -> LifecycleReport:
    """Return the output of ``diagnose TARGET -o json``."""
    lifecycle = _lifecycle(life, snapshot, pod_names_by_uid(snapshot))
    return LifecycleReport(**asdict(lifecycle), sources=sources(snapshot))


def cluster_report(found: model.ClusterReport, snapshot: model.Snapshot) -> ClusterReport:
    """Return the output of ``diagnose -A -o json``."""
    names = pod_names_by_uid(snapshot)
    return ClusterReport(
        observed_at=snapshot.observed_at,
        examined=Examined(
            claims=found.claims,
            persistent_volumes=found.volumes,
            pods=found.pods,
            omitted=found.others,
        ),
        root_causes=tuple(_root_cause(cause) for cause in found.causes),
        items=tuple(
            StuckLifecycle(**asdict(_lifecycle(stuck.life, snapshot, names)), since=stuck.since)
            for stuck in found.stuck
        ),
        findings=findings(found.findings),
        sources=sources(snapshot),
    )


def _root_cause(cause: model.Cause) -> RootCause:
    affected = tuple(stuck.life.diagnosis.volume.target.argument for stuck in cause.affected)
    return RootCause(**asdict(finding(cause.finding)), affected=affected)


def _lifecycle(
    lifecycle: model.Lifecycle, snapshot: model.Snapshot, names: Mapping[str, str]
) -> Lifecycle:
    diagnosis = lifecycle.diagnosis
    return Lifecycle(
        observed_at=snapshot.observed_at,
        target=target(diagnosis.volume),
        image=image(diagnosis.volume.image),
        verdict=diagnosis.verdict,
        holders=holders(diagnosis, names),
        findings=findings(diagnosis.findings),
        next=commands(diagnosis.next_commands),
        pod=None if lifecycle.pod is None else pod(lifecycle.pod),
        attach_path=_steps(lifecycle.attach_path),
        detach_paths=tuple(
            DetachPath(node=path.node, steps=_steps(path.stages)) for path in lifecycle.detach_paths
        ),
        root_cause=None if lifecycle.first_failed is None else finding(lifecycle.first_failed),
    )


def _steps(steps: Iterable[model.StepStatus]) -> tuple[StepStatus, ...]:
    return tuple(
        StepStatus(step=status.step, state=status.state, detail=status.detail, codes=status.codes)
        for status in steps
    )
