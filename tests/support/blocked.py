"""Snapshots of an agent on whose node a pod waits for a volume."""

# ruff: noqa: ANN401 - as the builders

from __future__ import annotations

from typing import Any, Final

from rbdagent.model import PublishedMapping, PublishedNode, Snapshot, TargetKind, Verdict
from tests.support.snapshots import (
    FSID,
    IMAGE_ID,
    NOW,
    REMOTE_ADDRESS,
    SPEC,
    remote_watcher,
    target,
    waiting_pod,
    world,
)

HERE: Final = "worker-1"
THERE: Final = "worker-2"
NONE: Final[dict[str, Any]] = {}


def waiting(
    *,
    on_node: dict[str, Any] = NONE,
    of_image: dict[str, Any] = NONE,
    in_kube: dict[str, Any] = NONE,
    **parts: Any,
) -> Snapshot:
    """Build the snapshot of an agent: a pod waits on its node for a volume that no client holds."""
    return world(
        target=target(argument="", kind=TargetKind.NONE, name=""),
        on_node={"mappings": ()} | on_node,
        of_image={"watchers": ()} | of_image,
        in_kube={"pods": (waiting_pod(node=HERE),), "pods_scope": f"node/{HERE}"} | in_kube,
        **parts,
    )


def held(**in_kube: Any) -> Snapshot:
    """Build the same snapshot with a client on the other node that watches the image."""
    return waiting(of_image={"watchers": (remote_watcher(),)}, in_kube=in_kube)


def report(verdict: Verdict, at: str = NOW, **mapped_as: Any) -> tuple[PublishedNode, ...]:
    """Return the report of the other node's agent about its mapping."""
    mapped = PublishedMapping(
        device="/dev/rbd7",
        verdict=verdict,
        fsid=FSID,
        spec=SPEC,
        image_id=IMAGE_ID,
        client_id=4239,
        client_address=REMOTE_ADDRESS,
        **mapped_as,
    )
    return (PublishedNode(name=THERE, observed_at=at, mappings=(mapped,)),)
