"""Rows of the rules on clients of other clusters, by code: reported, or not."""

from __future__ import annotations

from typing import Any, Final

from msgspec.structs import replace

from rbdagent.model import (
    ServiceAddress,
    Snapshot,
)
from tests.support.rule_tables import (
    NOTHING_ELSE,
    NotReported,
    Reported,
    attached,
    kubelet_event,
    stage,
)
from tests.support.snapshots import (
    LIBRBD_COOKIE,
    NEIGHBOUR,
    SPEC,
    STRANGER_ADDRESS,
    UNSEEN,
    claim,
    node,
    pod,
    remote_watcher,
    unmapped,
    volume,
    waiting_pod,
    watcher,
    world,
)

NONE: Final = NOTHING_ELSE
STRANGER: Final = watcher(address=STRANGER_ADDRESS, client=77)
METADATA: Final = (
    ("csi.ceph.com/cluster/name", "east"),
    ("csi.storage.k8s.io/pv/name", "pvc-of-east"),
    ("csi.storage.k8s.io/pvc/name", "data"),
    ("csi.storage.k8s.io/pvc/namespace", "shop"),
)
RWX: Final = {
    "persistent_volumes": (volume(access_modes=("ReadWriteMany",), volume_mode="Block"),),
    "claims": (claim(access_modes=("ReadWriteMany",), volume_mode="Block"),),
}
ROX: Final = {
    "persistent_volumes": (volume(access_modes=("ReadOnlyMany",)),),
    "claims": (claim(access_modes=("ReadOnlyMany",)),),
}
BEING_USED: Final = kubelet_event(stage(f"rbd image {SPEC} is still being used"))
WAITS: Final = {
    "pods": (waiting_pod(),),
    "attachments": attached("worker-2"),
    "events": (BEING_USED,),
}


def outside(**parts: Any) -> Snapshot:  # noqa: ANN401 - as the builders
    """Build a snapshot on worker-1, which reaches Ceph from its own address; a stranger watches."""
    of_image = {"watchers": (STRANGER,), "metadata": (), **parts.pop("of_image", {})}
    on_node = {"mappings": (NEIGHBOUR,), **parts.pop("on_node", {})}
    return unmapped(of_image=of_image, on_node=on_node, **parts)


MADE_ELSEWHERE: Final = outside(of_image={"metadata": METADATA}, on_node={"mappings": ()})
"""The addresses from which nodes of this cluster reach Ceph were not observed."""
REPORTED: Final[Reported] = {
    "RBD771": {
        "a pod waits for it": (outside(in_kube=WAITS), {"RBD402"}),
        "no pod waits for it yet": (outside(), NONE),
    },
    "RBD772": {
        "made by another cluster": (unmapped(of_image={"metadata": METADATA}), NONE),
        "and mapped by an unknown client": (MADE_ELSEWHERE, {"RBD119"}),
    },
    "RBD773": {
        "raw block for many": (outside(in_kube=RWX), NONE),
        "read by many": (outside(in_kube=ROX), NONE),
    },
    "RBD774": {
        "both write": (
            world(
                of_image={"watchers": (watcher(), STRANGER)},
                in_kube={"pods": (pod(),), "attachments": attached("worker-1")},
            ),
            NONE,
        ),
        "by the watch of another node of this cluster": (
            outside(
                of_image={"watchers": (remote_watcher(), STRANGER)},
                in_kube={
                    "pods": (pod(node="worker-2"),),
                    "attachments": attached("worker-2"),
                },
            ),
            NONE,
        ),
    },
}
OWN_OTHER_NETWORK: Final = {
    "its own address is not in its Node either": outside(
        in_kube={"nodes": (node(internal_ips=("10.1.0.1",)), node("worker-2"))}
    ),
    "not every Node was observed": outside(in_kube={"nodes_complete": False}),
    "Nodes were not observed": outside(in_kube={"nodes": UNSEEN}),
    "a pod runs here without its own watch": outside(in_kube={"pods": (pod(node="worker-2"),)}),
    "it is attached here, and no watch shows it": outside(
        in_kube={"attachments": attached("worker-2")}
    ),
}
"""Snapshots in which the stranger may be a node of this cluster."""
NOT_REPORTED: Final[NotReported] = {
    "RBD771": {
        **OWN_OTHER_NETWORK,
        "only the image names another cluster": MADE_ELSEWHERE,
        "its watch is transient": outside(
            of_image={
                "watchers": (),
                "transient_watchers": (replace(STRANGER, cookie=LIBRBD_COOKIE),),
            }
        ),
        "a program, not a mapping": outside(
            of_image={"watchers": (replace(STRANGER, cookie=LIBRBD_COOKIE),)}
        ),
        "a node of this cluster": outside(of_image={"watchers": (remote_watcher(),)}),
        "no PV is known": outside(in_kube={"persistent_volumes": (), "claims": ()}),
        "a daemon of Ceph": outside(
            in_ceph={"services": (ServiceAddress(kind="mgr", name="x", address=STRANGER.address),)}
        ),
    },
    "RBD772": {
        "its own": unmapped(),
        "only the cluster's name is there": unmapped(of_image={"metadata": (METADATA[0],)}),
        "PVs were not all observed": unmapped(
            of_image={"metadata": METADATA}, in_kube={"volumes_complete": False}
        ),
        "the metadata were not observed": unmapped(of_image={"metadata": UNSEEN}),
    },
    "RBD773": {"for one node": outside()},
    "RBD774": {
        "no pod here uses it": outside(),
        "raw block for many": world(
            of_image={"watchers": (watcher(), STRANGER)}, in_kube={"pods": (pod(),), **RWX}
        ),
    },
}
