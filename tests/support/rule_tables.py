"""Tables of rule tests: the snapshots, the code that each leads to, and the other codes."""

from __future__ import annotations

from typing import Any, Final

import pytest

from rbdagent.model import Snapshot, TargetKind
from tests.support.snapshots import (
    IN_USE_NAME,
    PV,
    attachment,
    diagnosis_of,
    event,
    node,
    target,
    unmapped,
    waiting_pod,
)

Reported = dict[str, dict[str, tuple[Snapshot, set[str]]]]
"""By code and short description: a snapshot, and the other codes with a severity above INFO."""
Table = dict[str, Snapshot]
"""By short description."""
NotReported = dict[str, Table]

NOTHING_ELSE: Final[set[str]] = set()
BY_POD: Final = target(
    argument="pod/default/web-1", kind=TargetKind.POD, namespace="default", name="web-1"
)


def reported_rows(table: Reported) -> list[Any]:
    """Return the rows of a table of codes that are reported."""
    return [
        pytest.param(code, seen, beside, id=f"{code}: {name}")
        for code, rows in table.items()
        for name, (seen, beside) in rows.items()
    ]


def not_reported_rows(table: NotReported) -> list[Any]:
    """Return the rows of a table of codes that are not reported."""
    return [
        pytest.param(code, seen, id=f"{code}: {name}")
        for code, rows in table.items()
        for name, seen in rows.items()
    ]


def problem_codes(seen: Snapshot) -> set[str]:
    """Return the codes with a severity above INFO."""
    return {finding.code for finding in diagnosis_of(seen).findings if finding.severity != "info"}


def attached(*nodes: str, **overrides: Any) -> tuple[Any, ...]:  # noqa: ANN401 - as the builders
    """Return a VolumeAttachment to each node."""
    return tuple(attachment(name, **overrides) for name in nodes)


def listing(name: str, **overrides: Any) -> Any:  # noqa: ANN401 - as the builders
    """Return a node whose kubelet has the volume, or wants to have it."""
    lists = {"volumes_in_use": (IN_USE_NAME,), "volumes_attached": (IN_USE_NAME,)}
    return node(name, **{**lists, **overrides})


def kubelet_event(message: str, **overrides: Any) -> Any:  # noqa: ANN401 - as the builders
    """Return an event that kubelet sent on the waiting pod."""
    return event(message, **{"reason": "FailedMount", "reporter": "kubelet", **overrides})


def stage(text: str) -> str:
    """Return the message that kubelet sends for a failed NodeStage."""
    return (
        f'MountVolume.MountDevice failed for volume "{PV}" : rpc error: code = Internal desc = '
        f"{text}"
    )


def mounting(*messages: str, **in_kube: Any) -> Snapshot:  # noqa: ANN401 - as the builders
    """Build a snapshot in which a pod waits on worker-2, where its volume is attached."""
    parts = {
        "pods": (waiting_pod(),),
        "attachments": attached("worker-2"),
        "nodes": (node(), listing("worker-2")),
        "events": tuple(kubelet_event(message) for message in messages),
        **in_kube,
    }
    return unmapped(in_kube=parts)
