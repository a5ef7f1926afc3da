"""Snapshots with the verdict that each leads to: the verdict on the target."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from rbdagent.model import (
    CephView,
    EntityAddress,
    ImagePresence,
    ServiceAddress,
    Snapshot,
    TargetKind,
    UnbackedMount,
    Verdict,
)
from tests.support.snapshots import (
    BY_IMAGE,
    JUST_NOW,
    LIBRBD_COOKIE,
    MGR,
    MGR_WATCH,
    OTHER_FSID,
    PV,
    UNSEEN,
    attachment,
    claim,
    cluster,
    image_view,
    node,
    opener,
    pod,
    process,
    remote_watcher,
    target,
    unmapped,
    volume,
    waiting_pod,
    watcher,
    world,
)

if TYPE_CHECKING:
    from tests.support.rule_tables import Table

REMOTE_POD: Final = pod("web-1", "worker-2")
BOTH_WATCH: Final = {"watchers": (watcher(), remote_watcher())}
OTHER_CLUSTER: Final = cluster(
    name="second", fsid=OTHER_FSID, images=(image_view(fsid=OTHER_FSID, metadata=()),)
)


def shared_by(*modes: str, **overrides: object) -> Snapshot:
    return world(
        of_image=BOTH_WATCH,
        in_kube={
            "persistent_volumes": (volume(access_modes=modes, **overrides),),
            "pods": (pod(), REMOTE_POD),
        },
    )


MONITORS: Final = (ServiceAddress(kind="mon", name="a", address=EntityAddress(ip="10.77.0.1")),)


def twice(**second: object) -> Snapshot:
    """Return the state of a free volume if two configured clusters have one fsid."""
    images = (image_view(watchers=()),)
    first = cluster(images=images, monitors=MONITORS)
    changes = {"name": "second", "monitors": MONITORS, "images": images, **second}
    return unmapped(ceph=CephView(clusters=(first, cluster(**changes))))


EXPECTED: Final[dict[Verdict, Table]] = {
    Verdict.FREE: {
        "no client, and everything was observed": unmapped(),
        "no client but a manager": unmapped(
            of_image={"watchers": (MGR_WATCH,)}, in_ceph={"services": (MGR,)}
        ),
        "no client but a manager, whose watch is transient": unmapped(
            of_image={"transient_watchers": (MGR_WATCH,)}, in_ceph={"services": (MGR,)}
        ),
        "the module is not loaded, so nothing can be mapped": unmapped(
            on_node={"module_loaded": False}
        ),
        "an image that no PV names": unmapped(
            in_kube={"persistent_volumes": (), "claims": ()}, target=BY_IMAGE
        ),
        "a finished pod": unmapped(in_kube={"pods": (pod(phase="Succeeded"),)}),
        "one cluster that is configured twice": twice(),
    },
    Verdict.STALE_ATTACHMENT: {
        "attached to the node that looked (28)": unmapped(in_kube={"attachments": (attachment(),)}),
        "attached to another node, whose agent reports no mapping": unmapped(
            in_kube={"attachments": (attachment("worker-2"),)}
        ),
        "its detach does not end (26)": unmapped(
            in_kube={"attachments": (attachment(deleting_since=JUST_NOW, detach_error="x"),)}
        ),
        "attached to this node, Ceph is down": unmapped(
            in_kube={"attachments": (attachment(),)}, ceph=None
        ),
    },
    Verdict.STAGED: {
        "attached, and its pod is about to start there": unmapped(
            in_kube={
                "attachments": (attachment("worker-2"),),
                "pods": (waiting_pod(),),
            }
        ),
        "attached a moment ago, and nothing there yet, or any more": unmapped(
            in_kube={"attachments": (attachment(created_at=JUST_NOW),)}
        ),
        "its detach has just begun": unmapped(
            in_kube={"attachments": (attachment(deleting_since=JUST_NOW),)}
        ),
    },
    Verdict.CONFLICT: {
        "two kernel clients on two nodes (32)": world(of_image=BOTH_WATCH),
        "two pods on two nodes": shared_by("ReadWriteOnce"),
        "read-write-many on a file system": shared_by("ReadWriteMany"),
        "one lost its watch, the other has its own (50)": world(
            of_image={"watchers": (remote_watcher(),)}, in_kube={"pods": (pod(), REMOTE_POD)}
        ),
        "seen from the second node, the first shows no watch (50)": world(
            of_image={"watchers": (watcher(),)}, in_kube={"pods": (pod(), REMOTE_POD)}
        ),
        "no PV allows it": world(
            of_image=BOTH_WATCH,
            in_kube={"persistent_volumes": (), "claims": ()},
            target=BY_IMAGE,
        ),
    },
    Verdict.SHARED: {
        "read-write-many on a raw block device (31)": shared_by(
            "ReadWriteMany", volume_mode="Block"
        ),
        "read-only on both (31)": world(
            mapped={"read_only": True},
            of_image={"watchers": ()},
            in_kube={
                "persistent_volumes": (volume(access_modes=("ReadOnlyMany",)),),
                "pods": (pod(), REMOTE_POD),
            },
        ),
    },
    Verdict.NOT_BACKED: {
        "a container writes to the node's disk (12)": unmapped(
            on_node={
                "unbacked": (
                    UnbackedMount(
                        pod_uid="u",
                        persistent_volume=PV,
                        path="/data",
                        source="/dev/vda1",
                        process=process(),
                    ),
                )
            },
            in_kube={"pods": (pod(),)},
        ),
    },
    Verdict.IN_USE: {
        "used elsewhere, and a stranger by librbd": world(
            of_image={
                "watchers": (
                    watcher(),
                    watcher(address=EntityAddress(ip="192.0.2.1", nonce=3), cookie=LIBRBD_COOKIE),
                )
            },
            in_kube={"pods": (pod(),)},
        ),
        "used here, and ceph-csi's own check from the waiting node (49)": world(
            of_image={"watchers": (watcher(), remote_watcher(cookie=LIBRBD_COOKIE))},
            in_kube={"pods": (pod(), waiting_pod())},
        ),
        "used here while Ceph is down": world(in_kube={"pods": (pod(),)}, ceph=None),
        "two pods on one node": world(
            in_kube={"pods": (pod(), pod("web-2"))},
        ),
    },
    Verdict.UNDETERMINED: {
        "an orphan here, and an unknown kernel client": world(
            of_image={
                "watchers": (
                    watcher(),
                    remote_watcher(address=EntityAddress(ip="192.0.2.1", nonce=3)),
                )
            }
        ),
        "a copy of its cluster, with an image of the same name in use": twice(
            monitors=(replace(MONITORS[0], address=EntityAddress(ip="10.99.0.1")),),
            images=(image_view(image_id="another", metadata=()),),
        ),
        "a copy of its cluster, which did not answer about its monitors": twice(
            monitors=UNSEEN, images=()
        ),
        "no client but a transient watch": unmapped(
            of_image={"transient_watchers": (remote_watcher(cookie=LIBRBD_COOKIE),)}
        ),
        "attached elsewhere, and a transient watch": unmapped(
            of_image={"transient_watchers": (remote_watcher(cookie=LIBRBD_COOKIE),)},
            in_kube={"attachments": (attachment("worker-2"),)},
        ),
        "the image does not exist": unmapped(of_image={"presence": ImagePresence.GONE}),
        "two clusters have the image, and only its name was given": unmapped(
            ceph=CephView(clusters=(cluster(images=(image_view(watchers=()),)), OTHER_CLUSTER)),
            target=BY_IMAGE,
        ),
        "the claim has no volume": unmapped(
            in_kube={
                "persistent_volumes": (),
                "claims": (claim(phase="Pending", volume_name=None),),
            },
            target=target(kind=TargetKind.CLAIM, namespace="default", name="data"),
        ),
    },
    Verdict.PINNED: {"pinned here": world(mapped={"openers": (opener(),)})},
    Verdict.NODE_DOWN: {
        "an orphan here, and a node that is down": world(
            of_image=BOTH_WATCH,
            in_kube={"nodes": (node(), node("worker-2", ready=False))},
        )
    },
}
