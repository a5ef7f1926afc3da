"""The follow-up of an unmap: only an observation clears it, and a late step is named."""

from __future__ import annotations

from typing import Any, Final

import pytest
from msgspec.structs import replace

from rbdagent.model import ContainerState, Convergence, CSINode, Snapshot, UnmapOutcome, UnmapRecord
from rbdagent.unmap.followup import PATIENCE_S, FollowupState, follow
from tests.support.snapshots import (
    CLIENT,
    IN_USE_NAME,
    JUST_NOW,
    OTHER_FSID,
    PV,
    UNSEEN,
    attachment,
    mapping,
    node,
    pod,
    remote_watcher,
    unmapped,
    waiting_pod,
    watcher,
)
from tests.support.unmap_plans import identity, moment

PENDING, CLEARED, BLOCKED = Convergence.PENDING, Convergence.CLEARED, Convergence.BLOCKED
ACT: Final = UnmapRecord(
    boot_id="b001",
    begun=moment(30),
    by="agent",
    identity=identity(),
    persistent_volume=PV,
    why="Orphaned",
    outcome=UnmapOutcome.UNMAPPED,
)


def in_kube(**kube: Any) -> Snapshot:  # noqa: ANN401 - as the builders
    return unmapped(in_kube=kube)


def on_node(**node_view: Any) -> Snapshot:  # noqa: ANN401 - as the builders
    return unmapped(on_node=node_view)


def mounting(reason: str, state: str = "waiting") -> Snapshot:
    """Build a snapshot of a pod on another node whose only container is in that state."""
    container = ContainerState(name="app", state=state, reason=reason)
    return in_kube(pods=(waiting_pod(containers=(container,)),))


FREE: Final[dict[str, Snapshot]] = {
    "no attachment, no mapping": unmapped(),
    "attached elsewhere: the pod that waited has it": in_kube(
        attachments=(attachment("worker-2"),)
    ),
    "another image is mapped": on_node(mappings=(mapping(fsid=OTHER_FSID),)),
    "another client watches it": unmapped(of_image={"watchers": (remote_watcher(),)}),
    "the pod elsewhere runs": in_kube(pods=(pod("web-1", "worker-2"),)),
    "the pod elsewhere pulls its image": mounting("ImagePullBackOff"),
    "the pod elsewhere has run before": mounting("", "running"),
    "the pod on the other node is being deleted": in_kube(
        pods=(waiting_pod(deleting_since=JUST_NOW),)
    ),
    "a pod waits for the scheduler": in_kube(pods=(waiting_pod(node=None),)),
    "its PV is gone too": in_kube(persistent_volumes=(), claims=()),
    "a pod on this node runs with it again": unmapped(
        on_node={"mappings": (mapping(),)},
        in_kube={"pods": (pod(),), "attachments": (attachment(),)},
    ),
}

KEPT: Final[dict[str, tuple[Snapshot, str]]] = {
    "its attachment is there": (
        in_kube(attachments=(attachment(),)),
        "VolumeAttachment csi-",
    ),
    "kubelet has not finished NodeUnstage": (
        in_kube(attachments=(attachment(),), nodes=(node(volumes_in_use=(IN_USE_NAME,)),)),
        "keeps it in volumesInUse",
    ),
    "the controller has not detached": (
        in_kube(attachments=(attachment(),)),
        "has released it, and the controller has not detached it",
    ),
    "the detach fails": (
        in_kube(attachments=(attachment(deleting_since=JUST_NOW, detach_error="no secret"),)),
        'is being deleted ("no secret")',
    ),
    "the CSI driver is missing": (
        unmapped(
            in_kube={
                "attachments": (attachment(),),
                "csi_nodes": (CSINode(node_name="worker-1", drivers=()),),
            },
            of_kubelet={"sockets": ()},
        ),
        "the CSI driver does not answer on worker-1, and NodeUnstage needs it",
    ),
    "kubelet is down": (
        unmapped(in_kube={"attachments": (attachment(),)}, of_kubelet={"process": None}),
        "kubelet does not run on worker-1",
    ),
    "a pod there needs it again": (
        in_kube(attachments=(attachment(),), pods=(waiting_pod("web-2", "worker-1"),)),
        "default/web-2 on worker-1 needs it",
    ),
    "its PV is gone, its attachment is not": (
        in_kube(persistent_volumes=(), claims=(), attachments=(attachment(),)),
        "VolumeAttachment csi-",
    ),
    "it is mapped again": (on_node(mappings=(mapping(),)), "mapped on worker-1 as /dev/rbd0"),
    "its watch lingers": (
        unmapped(of_image={"watchers": (watcher(),)}),
        f"client.{CLIENT}, which had it mapped, still watches it",
    ),
    "a pod elsewhere waits": (
        in_kube(pods=(waiting_pod(),)),
        "default/web-1 on worker-2 still waits for it",
    ),
    "a pod elsewhere creates its container": (
        mounting("ContainerCreating"),
        "default/web-1 on worker-2 still waits for it",
    ),
}

NOT_SEEN: Final[dict[str, Snapshot]] = {
    "the node": unmapped(node=None),
    "the API": unmapped(kubernetes=None),
    "its devices": on_node(mappings=UNSEEN),
    "which image a device is": on_node(mappings=(mapping(spec=UNSEEN),)),
    "attachments": in_kube(attachments=UNSEEN),
}


@pytest.mark.parametrize("case", FREE)
@pytest.mark.parametrize("waited_s", [0.0, 2 * PATIENCE_S])
def test_unmap_is_cleared_if_no_step_is_left(case: str, waited_s: float) -> None:
    assert follow(ACT, FREE[case], waited_s=waited_s).state is CLEARED


@pytest.mark.parametrize("case", KEPT)
def test_remaining_step_gets_time_and_is_then_named(case: str) -> None:
    seen, words = KEPT[case]
    early, late = (follow(ACT, seen, waited_s=waited) for waited in (PATIENCE_S - 1, PATIENCE_S))
    assert (early.state, late.state) == (PENDING, BLOCKED)
    assert words in "; ".join(late.reasons)
    # Equal reasons are reported once: none of them may contain a time.
    assert early.reasons == late.reasons


@pytest.mark.parametrize("case", NOT_SEEN)
@pytest.mark.parametrize("waited_s", [0.0, 2 * PATIENCE_S])
def test_unobserved_part_is_neither_cleared_nor_blocked(case: str, waited_s: float) -> None:
    outlook = follow(ACT, NOT_SEEN[case], waited_s=waited_s)
    assert outlook.state is PENDING
    assert all(reason.startswith("not observed: ") for reason in outlook.reasons)


def test_unobserved_part_is_reported_after_the_observed_ones() -> None:
    seen = unmapped(on_node={"mappings": UNSEEN}, in_kube={"attachments": (attachment(),)})
    reasons = follow(ACT, seen, waited_s=PATIENCE_S).reasons
    assert reasons[0].startswith("VolumeAttachment")
    assert reasons[-1].startswith("not observed: ")


def test_pods_of_one_node_do_not_show_which_pods_wait_elsewhere() -> None:
    """Assert CLEARED: for pods on other nodes, the agent takes a second snapshot of the volume."""
    seen = in_kube(pods=(waiting_pod(),), pods_scope="node/worker-1")
    assert follow(ACT, seen, waited_s=0).state is CLEARED


def test_image_without_a_volume_waits_only_for_its_mapping() -> None:
    bare = replace(ACT, persistent_volume=None)
    none = in_kube(persistent_volumes=(), claims=(), attachments=(attachment(),))
    assert follow(bare, none, waited_s=0).state is CLEARED
    unseen = in_kube(persistent_volumes=UNSEEN, claims=())
    assert follow(bare, unseen, waited_s=0) == FollowupState(
        state=PENDING,
        reasons=("not observed: PersistentVolumes: the VolumeAttachment of the image is unknown",),
    )
