"""Rows of the rules on attach and detach, by code: reported, or not."""

from __future__ import annotations

from typing import Any, Final

from rbdagent.model import ContainerState, CSINode, KubeEvent, Snapshot
from tests.support.rule_tables import (
    NOTHING_ELSE,
    NotReported,
    Reported,
    attached,
    listing,
    mounting,
    stage,
)
from tests.support.snapshots import (
    DRIVER,
    HANDLE,
    JUST_NOW,
    PV,
    UNSEEN,
    attachment,
    claim,
    event,
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


REPORTED: Final[Reported] = {
    "RBD401": {
        "an old pod has it, the event is long gone": (waiting(), {"RBD112"}),
        "an old pod has it, according to the event": (waiting(USED_BY), {"RBD112"}),
        "according to the node's status alone": (waiting(attachments=()), {"RBD112"}),
        "attachments were not observed, according to the event": (
            waiting(MULTI_ATTACH, attachments=UNSEEN),
            {"RBD112"},
        ),
        "attachments were not observed, according to the event of Kubernetes 1.37": (
            waiting(WAITS_FOR_DETACH, attachments=UNSEEN),
            {"RBD112"},
        ),
        "the event is so new that the cached state may still be old": (alone(MULTI_ATTACH), NONE),
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
        "a finalizer of another program": (
            waiting(
                attachments=attached(
                    "worker-1", deleting_since=LONG_SINCE, finalizers=("example.org/hold",)
                ),
                pods=(waiting_pod(),),
            ),
            {"RBD401", "RBD119"},
        ),
        "no pod waits": (
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
        "it is to be attached again": (
            alone(attachments=attached("worker-2", deleting_since=LATELY)),
            NONE,
        ),
    },
    "RBD715": {
        "kubelet has unmounted it, the controller has not detached it": (
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
NOT_REPORTED: Final[NotReported] = {
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
        "no pod waits": alone(pods=(), attachments=attached("worker-2", attached=False)),
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
        "no pod waits for it": alone(
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
        "kubelet has reported an event": mounting(stage("no"), nodes=(node(), node("worker-2"))),
        "the node is down": alone(
            attachments=attached("worker-2"), nodes=(node(), node("worker-2", ready=False))
        ),
    },
}
