"""The lifecycle of a volume, and the stuck objects of a cluster."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from msgspec import Struct

from rbdagent.codes import Code
from rbdagent.model.diagnosis import Diagnosis, Finding, Severity
from rbdagent.model.kubernetes import Pod


class LifecycleStep(StrEnum):
    """One step in the lifecycle of a volume, on the attach path or on the detach path."""

    PROVISION = "provision"
    BIND = "bind"
    SCHEDULE = "schedule"
    ATTACH = "attach"
    STAGE = "stage"
    """The image is mapped, and its file system is mounted once on the node."""
    PUBLISH = "publish"
    """It is mounted for a pod."""
    USE = "use"
    UNPUBLISH = "unpublish"
    UNSTAGE = "unstage"
    DETACH = "detach"
    RELEASE = "release"
    """The claim is deleted, and its PV is no longer bound."""
    RECLAIM = "reclaim"


class StepState(StrEnum):
    """State of one step in a lifecycle."""

    DONE = "done"
    WAITING = "waiting"
    """The step is in progress, or a component will do it without an operator."""
    FAILED = "failed"
    NOT_STARTED = "not started"
    """An earlier step is not done."""
    NOT_OBSERVED = "not observed"
    SKIPPED = "skipped"
    """The volume does not need the step."""


class StepStatus(Struct, frozen=True, kw_only=True):
    """One step in a lifecycle, with its observed state."""

    step: LifecycleStep
    state: StepState
    detail: str
    """The observed facts, in a few words."""
    codes: tuple[str, ...] = ()
    """Codes of the findings that block the step."""


class DetachPath(Struct, frozen=True, kw_only=True):
    """How far a node that had a volume has released it."""

    node: str
    stages: tuple[StepStatus, ...]


CODES_OF_GAPS: Final = frozenset(
    {
        Code.NODE_NOT_OBSERVED,
        Code.CEPH_NOT_OBSERVED,
        Code.KUBERNETES_NOT_OBSERVED,
        Code.FACT_NOT_OBSERVED,
        Code.NOT_THIS_NODE,
    }
)
"""Codes of the findings that report missing observations; such a finding is not a cause."""


class Lifecycle(Struct, frozen=True, kw_only=True):
    """The lifecycle of a volume, on the attach path and the detach path, and where it is broken."""

    diagnosis: Diagnosis
    """Its findings are in the order in which they block."""
    pod: Pod | None
    """The pod of the path: the target, else a pod that waits, else a pod that uses the volume."""
    attach_path: tuple[StepStatus, ...]
    detach_paths: tuple[DetachPath, ...] = ()

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The findings; the finding that blocks first comes first."""
        return self.diagnosis.findings

    @property
    def first_failed(self) -> Finding | None:
        """The finding on which all others depend; None if nothing that was observed is broken."""
        return next(
            (
                finding
                for finding in self.findings
                if finding.severity is not Severity.INFO and finding.code not in CODES_OF_GAPS
            ),
            None,
        )

    @property
    def gaps(self) -> tuple[Finding, ...]:
        """The findings that report missing observations."""
        return tuple(finding for finding in self.findings if finding.code in CODES_OF_GAPS)


class AffectedObject(Struct, frozen=True, kw_only=True):
    """A claim, PV, pod or device that makes no progress."""

    life: Lifecycle
    finding: Finding
    """The first finding that blocks the object."""
    since: str | None
    """The earliest known time of the problem; None if it is unknown."""


class Cause(Struct, frozen=True, kw_only=True):
    """The cause that blocks one or more stuck objects."""

    finding: Finding
    """The finding as it is reported for the first object."""
    affected: tuple[AffectedObject, ...]


class ClusterReport(Struct, frozen=True, kw_only=True):
    """All stuck objects in a cluster, or in a part of it."""

    causes: tuple[Cause, ...]
    """The most severe first."""
    findings: tuple[Finding, ...] = ()
    """Findings about missing observations, and about the observed node."""
    claims: int | None = None
    volumes: int | None = None
    pods: int | None = None
    """The number of checked objects of each kind, only pods with volumes; None if not observed."""
    others: int = 0
    """PVs of other drivers, which were not checked."""

    @property
    def stuck(self) -> tuple[AffectedObject, ...]:
        """All stuck objects, the most severe first."""
        return tuple(victim for cause in self.causes for victim in cause.affected)
