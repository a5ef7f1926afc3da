"""Tables of rules: which snapshot says which code, and what else it says."""

from __future__ import annotations

from typing import Any, Final

import pytest

from rbdagent.model import Snapshot, TargetKind
from tests.unit.builders import (
    IN_USE_NAME,
    PV,
    attachment,
    event,
    node,
    said,
    target,
    unmapped,
    waiting_pod,
)

Said = dict[str, dict[str, tuple[Snapshot, set[str]]]]
"""By code and a few words: a snapshot, and the other codes that are no mere information."""
Quiet = dict[str, dict[str, Snapshot]]

NOTHING_ELSE: Final[set[str]] = set()
BY_POD: Final = target(
    given="pod/default/web-1", kind=TargetKind.POD, namespace="default", name="web-1"
)


def said_rows(table: Said) -> list[Any]:
    """Give the rows of a table of what is said."""
    return [
        pytest.param(code, seen, beside, id=f"{code}: {name}")
        for code, rows in table.items()
        for name, (seen, beside) in rows.items()
    ]


def quiet_rows(table: Quiet) -> list[Any]:
    """Give the rows of a table of what is not said."""
    return [
        pytest.param(code, seen, id=f"{code}: {name}")
        for code, rows in table.items()
        for name, seen in rows.items()
    ]


def trouble(seen: Snapshot) -> set[str]:
    """Give the codes that are more than information."""
    return {each.code for each in said(seen).findings if each.severity != "info"}


def attached(*nodes: str, **overrides: Any) -> tuple[Any, ...]:  # noqa: ANN401 - as the builders
    """Give a VolumeAttachment to each node."""
    return tuple(attachment(each, **overrides) for each in nodes)


def listing(name: str, **overrides: Any) -> Any:  # noqa: ANN401 - as the builders
    """Give a node whose kubelet has the volume, or wants it."""
    lists = {"volumes_in_use": (IN_USE_NAME,), "volumes_attached": (IN_USE_NAME,)}
    return node(name, **{**lists, **overrides})


def told(message: str, **overrides: Any) -> Any:  # noqa: ANN401 - as the builders
    """Give what kubelet said to the pod that waits."""
    return event(message, **{"reason": "FailedMount", "reporter": "kubelet", **overrides})


def stage(text: str) -> str:
    """Say it as kubelet does of a NodeStage that failed."""
    return (
        f'MountVolume.MountDevice failed for volume "{PV}" : rpc error: code = Internal desc = '
        f"{text}"
    )


def mounting(*messages: str, **in_kube: Any) -> Snapshot:  # noqa: ANN401 - as the builders
    """Build a world in which a pod waits on worker-2, where its volume is attached."""
    parts = {
        "pods": (waiting_pod(),),
        "attachments": attached("worker-2"),
        "nodes": (node(), listing("worker-2")),
        "events": tuple(told(each) for each in messages),
        **in_kube,
    }
    return unmapped(in_kube=parts)
