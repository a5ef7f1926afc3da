"""The verdict on the target: the worst holder, and when the volume may be called free."""

from __future__ import annotations

from typing import Final

import pytest
from msgspec.structs import replace

from rbdagent.model import (
    CephView,
    EntityAddress,
    ImagePresence,
    ImageSpec,
    NotObserved,
    ObjectRef,
    PublishedMapping,
    ServiceAddress,
    Snapshot,
    Source,
    SourceState,
    TargetKind,
    UnbackedMount,
    Verdict,
)
from tests.support.snapshots import (
    IN_USE_NAME,
    JUST_NOW,
    LIBRBD_COOKIE,
    LONG_AGO,
    OTHER_FSID,
    PV,
    SPEC,
    UNSEEN,
    attachment,
    claim,
    cluster,
    event,
    image_view,
    mapping,
    node,
    opener,
    pod,
    process,
    remote_watcher,
    reported_by,
    said,
    target,
    unmapped,
    volume,
    waiting_pod,
    watcher,
    world,
)

Table = dict[str, Snapshot]

BY_IMAGE: Final = target(given=str(SPEC), kind=TargetKind.IMAGE, name="", image=SPEC)
MGR: Final = ServiceAddress(
    kind="mgr", name="x", address=EntityAddress(ip="10.77.0.1", nonce=77), client=900
)
MGR_WATCH: Final = watcher(address=MGR.address, client=900, cookie=LIBRBD_COOKIE)
REMOTE_POD: Final = pod("web-1", "worker-2")
BOTH_WATCH: Final = {"watchers": (watcher(), remote_watcher())}
OTHER_CLUSTER: Final = cluster(
    name="second", fsid=OTHER_FSID, images=(image_view(fsid=OTHER_FSID, metadata=()),)
)
DOWN_CLUSTER: Final = cluster(
    name="second",
    fsid=None,
    images=(),
    source=Source(state=SourceState.FAILED, reason="timed out"),
)
UNNAMED: Final = mapping(device="/dev/rbd9", device_id=9, spec=UNSEEN, image_id=None, fsid=None)


def shared_by(*modes: str, **overrides: object) -> Snapshot:
    return world(
        of_image=BOTH_WATCH,
        in_kube={
            "persistent_volumes": (volume(access_modes=modes, **overrides),),
            "pods": (pod(), REMOTE_POD),
        },
    )


EXPECTED: Final[dict[Verdict, Table]] = {
    Verdict.FREE: {
        "nobody, and everything was observed": unmapped(),
        "nobody but a manager": unmapped(
            of_image={"watchers": (MGR_WATCH,)}, in_ceph={"services": (MGR,)}
        ),
        "nobody but a watch that passed by": unmapped(
            of_image={"transient_watchers": (remote_watcher(cookie=LIBRBD_COOKIE),)}
        ),
        "the module is not loaded, so nothing can be mapped": unmapped(
            on_node={"module_loaded": False}
        ),
        "an image that no PV names": unmapped(
            in_kube={"persistent_volumes": (), "claims": ()}, target=BY_IMAGE
        ),
        "a finished pod": unmapped(in_kube={"pods": (pod(phase="Succeeded"),)}),
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


@pytest.mark.parametrize(
    ("expected", "seen"),
    [
        pytest.param(expected, seen, id=f"{expected}: {name}")
        for expected, table in EXPECTED.items()
        for name, seen in table.items()
    ],
)
def test_target_has_the_verdict(expected: Verdict, seen: Snapshot) -> None:
    answer = said(seen)
    assert answer.verdict is expected, [
        (holder.holder.node, holder.verdict, holder.reasons) for holder in answer.holders
    ]


NEVER_FREE: Final[Table] = {
    "Ceph": unmapped(ceph=None),
    "watchers": unmapped(of_image={"watchers": UNSEEN}),
    "the image's presence": unmapped(of_image={"presence": UNSEEN}),
    "the node": unmapped(node=None),
    "the node's mappings": unmapped(on_node={"mappings": UNSEEN}),
    "which image a device is": unmapped(on_node={"mappings": (UNNAMED,)}),
    "PersistentVolumes": unmapped(in_kube={"persistent_volumes": UNSEEN}, target=BY_IMAGE),
    "pods": unmapped(in_kube={"pods": UNSEEN}),
    "pods of other nodes": unmapped(in_kube={"pods_scope": "node/worker-1"}),
    "attachments": unmapped(in_kube={"attachments": UNSEEN}),
    "Kubernetes": unmapped(kubernetes=None, target=BY_IMAGE),
    "nodes": unmapped(in_kube={"nodes": UNSEEN}),
    "some nodes": unmapped(in_kube={"nodes_complete": False}),
    "what agents report": unmapped(in_kube={"published": UNSEEN}),
    "a node where no agent ever ran": unmapped(in_kube={"published": ()}),
    "a node whose agent is stale": unmapped(
        in_kube={"published": (reported_by("worker-2", observed_at=LONG_AGO),)}
    ),
    "a node whose agent sees no devices": unmapped(
        in_kube={"published": (reported_by("worker-2", mappings=UNSEEN),)}
    ),
    "which image a device of another node is": unmapped(
        in_kube={
            "published": (
                reported_by(
                    "worker-2",
                    mappings=(PublishedMapping(device="/dev/rbd0", verdict=Verdict.UNDETERMINED),),
                ),
            )
        }
    ),
    "whether a node that lists it in volumesInUse has it mapped": unmapped(
        in_kube={"nodes": (node(), node("worker-2", volumes_in_use=(IN_USE_NAME,)))}
    ),
    "whether a node that it is attached to has it mapped": unmapped(
        in_kube={"attachments": (attachment("worker-2"),), "published": ()}
    ),
    "whether a conflict that an agent warned of has ended": unmapped(
        in_kube={
            "events": (
                event(
                    "held read-write on worker-1, worker-2 at the same time",
                    kind="PersistentVolumeClaim",
                    subject=ObjectRef(namespace="default", name="data"),
                    reason="RBDConflict",
                    reporter="rbdagent",
                ),
            )
        }
    ),
    "a second cluster": unmapped(
        ceph=CephView(clusters=(cluster(images=(image_view(watchers=()),)), DOWN_CLUSTER)),
        target=BY_IMAGE,
    ),
}


def test_volume_that_is_being_attached_is_staged() -> None:
    """Assert Staged: kubelet stages a volume after the attach; until then no client holds it."""
    seen = unmapped(in_kube={"attachments": (attachment("worker-2", attached=False),)})
    assert said(seen).verdict is Verdict.STAGED


@pytest.mark.parametrize("seen", NEVER_FREE.values(), ids=NEVER_FREE.keys())
def test_volume_is_never_free_if_something_was_not_observed(seen: Snapshot) -> None:
    answer = said(seen)
    assert answer.verdict is Verdict.UNDETERMINED
    assert "RBD118" not in {finding.code for finding in answer.findings}


def test_metadata_of_ceph_csi_identifies_the_cluster_of_an_image() -> None:
    seen = unmapped(
        ceph=CephView(clusters=(cluster(images=(image_view(watchers=()),)), OTHER_CLUSTER))
    )
    assert said(seen).verdict is Verdict.FREE


def test_same_name_in_another_rados_namespace_is_not_a_holder() -> None:
    other = mapping(
        spec=ImageSpec(pool=SPEC.pool, namespace="tenant", name=SPEC.name), image_id="ffff"
    )
    assert said(unmapped(on_node={"mappings": (other,)})).verdict is Verdict.FREE


def test_device_with_a_read_only_client_is_not_a_writer() -> None:
    reader = mapping(read_only=True)
    seen = world(
        on_node={"mappings": (reader,)},
        of_image={"watchers": (remote_watcher(),)},
        in_kube={"pods": (REMOTE_POD,)},
    )
    assert said(seen).verdict is Verdict.IN_USE


def test_failed_source_does_not_hide_a_user() -> None:
    seen = world(in_kube={"pods": (pod(),), "attachments": NotObserved(reason="403")})
    assert said(seen).verdict is Verdict.IN_USE


def test_skipped_source_counts_as_not_observed() -> None:
    seen = unmapped(node=None)
    skipped = Source(state=SourceState.SKIPPED)
    seen = replace(seen, sources=replace(seen.sources, node=skipped))
    assert said(seen).verdict is Verdict.UNDETERMINED
