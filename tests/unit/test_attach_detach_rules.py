"""RBD401, RBD408 to RBD413, RBD71x: attach and detach findings that come from API objects."""

from __future__ import annotations

from typing import Any, Final

import pytest

from rbdagent.model import ContainerState, CSINode, KubeEvent, Severity, Snapshot
from tests.support.rule_tables import (
    NOTHING_ELSE,
    Quiet,
    Said,
    attached,
    listing,
    mounting,
    quiet_rows,
    said_rows,
    stage,
    trouble,
)
from tests.support.snapshots import (
    DRIVER,
    HANDLE,
    JUST_NOW,
    LONG_AGO,
    PV,
    UNSEEN,
    attachment,
    claim,
    codes,
    event,
    found,
    node,
    pod,
    unmapped,
    volume,
    waiting_pod,
    world,
)

NONE: Final = NOTHING_ELSE
LATELY: Final = "2026-11-21T02:59:30Z"
LONG_SINCE: Final = "2026-11-21T02:40:00Z"
MULTI_ATTACH: Final = event(
    f'Multi-Attach error for volume "{PV}" Volume is already exclusively attached to one node '
    "and can't be attached to another"
)
WAITS_FOR_DETACH: Final = event(
    f'Waiting for detach for volume "{PV}" Volume is already exclusively attached to one node, '
    "waiting on detach before it can be attached to another node"
)
USED_BY: Final = event(
    f'Multi-Attach error for volume "{PV}" Volume is already used by pod(s) web-0',
    last_seen=LONG_SINCE,
)
RWX: Final = (volume(access_modes=("ReadWriteMany",), volume_mode="Block"),)
ROX: Final = (volume(access_modes=("ReadOnlyMany",)),)
OTHERS: Final = attachment("worker-1", name="csi-other", persistent_volume="pvc-other")
"""The attachment of another volume: it shows that the driver attaches volumes."""
RWX_CLAIM: Final = claim(access_modes=("ReadWriteMany",), volume_mode="Block")
ROX_CLAIM: Final = claim(access_modes=("ReadOnlyMany",))
BOTH_LIST: Final = (listing("worker-1"), listing("worker-2"))
PULLING: Final = ContainerState(name="c", state="waiting", reason="ImagePullBackOff")
RUNNING: Final = ContainerState(name="c", state="running")


def waiting(*events: KubeEvent, **in_kube: Any) -> Snapshot:  # noqa: ANN401 - as the builders
    """Build a snapshot on worker-2: web-1 waits, worker-1 has the image attached and watches it."""
    parts = {
        "pods": (waiting_pod(), pod()),
        "attachments": attached("worker-1"),
        "nodes": (listing("worker-1"), node("worker-2")),
        "events": events,
        **in_kube,
    }
    on_node = {"node_name": "worker-2", "mappings": (), "addresses": ("10.77.0.12",)}
    return world(on_node=on_node, in_kube=parts)


def alone(*events: KubeEvent, **in_kube: Any) -> Snapshot:  # noqa: ANN401 - as the builders
    """Build the same snapshot without the old pod and without a watcher: no client has it."""
    parts = {
        "pods": (waiting_pod(),),
        "attachments": (),
        "events": events,
        **in_kube,
    }
    return unmapped(in_kube=parts)


SAID: Final[Said] = {
    "RBD401": {
        "an old pod has it, the event is long gone": (waiting(), {"RBD112"}),
        "an old pod has it, and the event says so": (waiting(USED_BY), {"RBD112"}),
        "the node's status alone says so": (waiting(attachments=()), {"RBD112"}),
        "attachments were not observed, the event says so": (
            waiting(MULTI_ATTACH, attachments=UNSEEN),
            {"RBD112"},
        ),
        "attachments were not observed, the event of Kubernetes 1.37 says so": (
            waiting(WAITS_FOR_DETACH, attachments=UNSEEN),
            {"RBD112"},
        ),
        "the event is so new that the books may still say so": (alone(MULTI_ATTACH), NONE),
    },
    "RBD409": {
        "a secret is gone": (
            waiting(
                attachments=attached(
                    "worker-1", deleting_since=JUST_NOW, detach_error='failed to load secret "a/b"'
                ),
                pods=(waiting_pod(),),
            ),
            {"RBD401", "RBD119"},
        )
    },
    "RBD711": {
        "the controller rests": (alone(attachments=(OTHERS,)), NONE),
        "the node's status shows that the driver attaches": (
            alone(nodes=(node(volumes_attached=(f"kubernetes.io/csi/{DRIVER}^x",)), node("b"))),
            NONE,
        ),
        "a volume for many": (
            alone(attachments=(OTHERS,), persistent_volumes=ROX, claims=(ROX_CLAIM,)),
            NONE,
        ),
    },
    "RBD712": {
        "the attacher rests": (alone(attachments=attached("worker-2", attached=False)), NONE),
        "by its event, where attachments were not observed": (
            alone(
                event(
                    f'AttachVolume.Attach failed for volume "{PV}" : timed out waiting for '
                    f"external-attacher of {DRIVER} CSI driver to attach volume {HANDLE}"
                ),
                attachments=UNSEEN,
            ),
            {"RBD119"},
        ),
    },
    "RBD713": {
        "the attacher rests": (
            waiting(
                attachments=attached(
                    "worker-1",
                    deleting_since=LONG_SINCE,
                    finalizers=("external-attacher/rbd-csi-ceph-com",),
                ),
                pods=(waiting_pod(),),
            ),
            {"RBD401", "RBD119"},
        ),
        "somebody's finalizer": (
            waiting(
                attachments=attached(
                    "worker-1", deleting_since=LONG_SINCE, finalizers=("example.org/hold",)
                ),
                pods=(waiting_pod(),),
            ),
            {"RBD401", "RBD119"},
        ),
        "nobody waits": (
            unmapped(in_kube={"attachments": attached("worker-1", deleting_since=LONG_SINCE)}),
            NONE,
        ),
    },
    "RBD714": {
        "it is to be attached elsewhere": (
            waiting(
                attachments=attached("worker-1", deleting_since=LATELY),
                pods=(waiting_pod(placed_at=LATELY),),
            ),
            NONE,
        ),
        "it is to be attached anew": (
            alone(attachments=attached("worker-2", deleting_since=LATELY)),
            NONE,
        ),
    },
    "RBD715": {
        "kubelet has let go, the controller has not": (
            waiting(pods=(waiting_pod(),), nodes=(node(), node("worker-2"))),
            {"RBD401", "RBD119"},
        )
    },
    "RBD716": {
        "removed by force": (
            alone(
                pods=(),
                attachments=(attachment("worker-1", persistent_volume="pvc-gone"),),
                nodes=(listing("worker-1"), node("worker-2")),
            ),
            NONE,
        )
    },
    "RBD717": {
        "a detach has failed": (
            waiting(attachments=attached("worker-1", "worker-2"), nodes=BOTH_LIST),
            {"RBD112"},
        )
    },
    "RBD718": {
        "kubelet hangs": (alone(attachments=attached("worker-2")), NONE),
    },
}


@pytest.mark.parametrize(("code", "seen", "beside"), said_rows(SAID))
def test_code_is_reported_and_only_the_expected_others(
    code: str, seen: Snapshot, beside: set[str]
) -> None:
    finding = found(seen, code)
    assert finding.remedy
    assert finding.recovery is not None
    assert "None" not in finding.message
    assert trouble(seen) - {code} == beside


QUIET: Final[Quiet] = {
    "RBD401": {
        "the event has outlived its cause": alone(USED_BY),
        "it has been attached since": waiting(
            MULTI_ATTACH, attachments=attached("worker-1", "worker-2"), nodes=BOTH_LIST
        ),
        "a volume for many": waiting(persistent_volumes=RWX, claims=(RWX_CLAIM,)),
        "it is read by many": waiting(persistent_volumes=ROX, claims=(ROX_CLAIM,)),
        "both pods are on one node": waiting(
            pods=(waiting_pod(node="worker-1"), pod()), attachments=attached("worker-1")
        ),
        "the pod has no node yet": waiting(pods=(waiting_pod(node=None), pod())),
        "the pod's volumes are there, its image is not": waiting(
            pods=(waiting_pod(containers=(PULLING,)), pod())
        ),
        "the pod has finished": waiting(pods=(pod("web-1", "worker-2", phase="Failed"), pod())),
    },
    "RBD408": {"a pod is about to start there": alone(attachments=attached("worker-2"))},
    "RBD711": {
        "a moment ago": alone(attachments=(OTHERS,), pods=(waiting_pod(placed_at=JUST_NOW),)),
        "the driver never attaches": alone(),
        "not every attachment was observed": alone(
            attachments=(OTHERS,), attachments_complete=False
        ),
        "another node has it (RBD401)": waiting(attachments=(*attached("worker-1"), OTHERS)),
        "the claim is not bound": alone(
            attachments=(OTHERS,), persistent_volumes=(volume(phase="Available"),)
        ),
    },
    "RBD712": {
        "a moment ago": alone(attachments=attached("worker-2", attached=False, created_at=LATELY)),
        "it has answered": alone(
            attachments=attached("worker-2", attached=False, attach_error="no")
        ),
        "nobody waits": alone(pods=(), attachments=attached("worker-2", attached=False)),
        "its driver is installed nowhere (RBD732)": alone(
            attachments=attached("worker-2", attached=False),
            csi_nodes=(CSINode(node_name="worker-2", drivers=()),),
            drivers=("nfs.csi.k8s.io",),
        ),
    },
    "RBD713": {
        "a moment ago": alone(attachments=attached("worker-2", deleting_since=LATELY)),
        "it has answered (RBD409)": alone(
            attachments=attached("worker-2", deleting_since=LONG_SINCE, detach_error="no")
        ),
    },
    "RBD714": {
        "nobody waits for it": alone(
            pods=(), attachments=attached("worker-2", deleting_since=LATELY)
        )
    },
    "RBD715": {
        "a pod is there": waiting(),
        "kubelet wants it (RBD724)": waiting(pods=(waiting_pod(),)),
        "the node is down (RBD113)": waiting(
            pods=(waiting_pod(),), nodes=(node(ready=None), node("worker-2"))
        ),
        "it was attached a moment ago": alone(
            pods=(), attachments=attached("worker-2", created_at=LATELY)
        ),
        "not every pod was observed": waiting(
            pods=(waiting_pod(),), nodes=(node(), node("worker-2")), pods_scope="node/worker-2"
        ),
        "its mapping was looked at (RBD101)": world(in_kube={"attachments": attached("worker-1")}),
    },
    "RBD716": {
        "not every PV was observed": alone(
            attachments=(attachment("worker-1", persistent_volume="pvc-gone"),),
            volumes_complete=False,
        )
    },
    "RBD717": {
        "a volume for many": waiting(
            attachments=attached("worker-1", "worker-2"),
            nodes=BOTH_LIST,
            persistent_volumes=RWX,
            claims=(RWX_CLAIM,),
        )
    },
    "RBD718": {
        "a moment ago": alone(attachments=attached("worker-2", created_at=LATELY)),
        "the pod came a moment ago": alone(
            attachments=attached("worker-2"), pods=(waiting_pod(placed_at=LATELY),)
        ),
        "kubelet is at it": mounting(),
        "kubelet has said something": mounting(stage("no"), nodes=(node(), node("worker-2"))),
        "the node is down": alone(
            attachments=attached("worker-2"), nodes=(node(), node("worker-2", ready=False))
        ),
    },
}


@pytest.mark.parametrize(("code", "seen"), quiet_rows(QUIET))
def test_similar_state_is_reported_without_the_code(code: str, seen: Snapshot) -> None:
    assert code not in codes(seen)


# --------------------------------------------------------------------------------------------------
# Messages, evidence and recovery
# --------------------------------------------------------------------------------------------------


def test_evidence_states_why_no_event_exists() -> None:
    finding = found(waiting(), "RBD401")
    assert "default/web-1 waits: the controller will not attach" in finding.message
    assert "while its cached state lists the volume on another node (worker-1)." in finding.message
    assert "no event shows it:" in finding.evidence[0]


def test_old_event_is_shown_with_its_age() -> None:
    evidence = found(waiting(USED_BY), "RBD401").evidence
    assert "Multi-Attach error" in evidence[0]
    assert evidence[1] == "sent 20m ago: the controller sends it once"


def test_recently_moved_pod_is_not_an_error() -> None:
    young = waiting_pod(placed_at=LATELY, created_at=LONG_AGO)
    assert found(waiting(pods=(young, pod())), "RBD401").severity is Severity.INFO
    ending = pod(deleting_since="2026-11-21T03:00:20Z", containers=(RUNNING,))
    assert trouble(waiting(pods=(waiting_pod(), ending))) == set()
    ended = pod(deleting_since="2026-11-21T03:00:20Z", phase="Succeeded")
    assert trouble(waiting(pods=(waiting_pod(), ended))) == set()


LETS_GO: Final = {"attachments": attached("worker-2"), "nodes": (node(), listing("worker-2"))}


@pytest.mark.parametrize(
    "seen",
    [
        pytest.param(alone(pods=(), **LETS_GO), id="scaled to none"),
        pytest.param(alone(pods=(pod(node="worker-2", phase="Succeeded"),), **LETS_GO), id="a Job"),
        pytest.param(
            alone(pods=(waiting_pod(node="worker-1", placed_at=LATELY),), **LETS_GO), id="a move"
        ),
        pytest.param(
            alone(pods=(), attachments=attached("worker-1"), nodes=(listing("worker-1"),)),
            id="on the node that looks",
        ),
    ],
)
def test_volume_that_kubelet_just_released_is_not_an_error(seen: Snapshot) -> None:
    """Assert no error: volumesInUse changes up to ten seconds after the watcher ends (recorded)."""
    assert trouble(seen) == set()
    assert "RBD120" in codes(seen)


def test_stale_attachment_is_an_error_once_a_pod_has_waited() -> None:
    """Assert INFO at first: one snapshot cannot show whether the controller is about to fix it."""
    stale = {"attachments": attached("worker-2"), "nodes": (node(), node("worker-2"))}
    assert found(alone(pods=(), **stale), "RBD408").severity is Severity.INFO
    moved = waiting_pod(node="worker-1", placed_at=LATELY)
    assert found(alone(pods=(moved,), **stale), "RBD408").severity is Severity.INFO
    waits = waiting_pod(node="worker-1")
    assert found(alone(pods=(waits,), **stale), "RBD408").severity is Severity.ERROR


def test_stale_attachment_to_a_node_that_is_down_is_a_problem() -> None:
    down = listing("worker-2", ready=False, ready_changed_at=LONG_AGO)
    seen = alone(pods=(), attachments=attached("worker-2"), nodes=(node(), down))
    assert "RBD408" in trouble(seen)


def test_abandoned_attach_is_not_an_error() -> None:
    """Assert no error: the object keeps the error of the last attempt until it is deleted."""
    given_up = attached("worker-2", attached=False, attach_error="no luck", deleting_since=LATELY)
    assert trouble(alone(pods=(), attachments=given_up)) == set()


def test_waiting_pods_are_named_together() -> None:
    seen = waiting(pods=(waiting_pod(), waiting_pod("web-2", "worker-3"), pod()))
    assert found(seen, "RBD401").message.startswith("default/web-1, default/web-2 wait: ")


def test_attacher_error_is_explained_like_an_event() -> None:
    error = "rpc error: code = ResourceExhausted desc = too many volumes"
    seen = alone(attachments=attached("worker-2", attached=False, attach_error=error))
    finding = found(seen, "RBD703")
    assert "worker-2: the node accepts no more volumes" in finding.message
    unknown = alone(attachments=attached("worker-2", attached=False, attach_error="no luck"))
    assert found(unknown, "RBD413").message == f"{PV} cannot be attached to worker-2: no luck"


def test_error_without_recovery_is_reported_as_not_automatic() -> None:
    gone = 'persistentvolume "x" not found'
    seen = alone(attachments=attached("worker-1", deleting_since=JUST_NOW, detach_error=gone))
    assert (
        str(found(seen, "RBD409").recovery)
        == "not automatic: external-attacher does not find the PV again"
    )


def test_attachment_to_a_deleted_node_ends_within_440_seconds() -> None:
    seen = alone(attachments=attached("worker-9"))
    recovery = found(seen, "RBD410").recovery
    assert recovery is not None
    assert recovery.within_s == 440


def test_attachment_to_a_deleted_node_is_an_error_if_a_pod_waits() -> None:
    waited = waiting(attachments=attached("worker-9"), pods=(waiting_pod(),))
    assert found(waited, "RBD410").severity is Severity.ERROR
    free = alone(pods=(), attachments=attached("worker-9"))
    assert found(free, "RBD410").severity is Severity.WARNING


def test_stale_attachment_to_a_down_node_is_force_detached() -> None:
    down = alone(pods=(), attachments=attached("worker-2"),
                 nodes=(node(), node("worker-2", ready=None)))  # fmt: skip
    finding = found(down, "RBD408")
    assert "by force six minutes after" in finding.message
    assert finding.recovery is not None
    assert finding.recovery.within_s == 360


def test_two_attachments_name_the_one_being_detached() -> None:
    leaving = attachment("worker-1", deleting_since=JUST_NOW)
    seen = waiting(attachments=(leaving, attachment("worker-2")), nodes=BOTH_LIST)
    assert "Being detached: worker-1." in found(seen, "RBD717").message
