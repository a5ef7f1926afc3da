"""The verdict on the target: the worst holder, and when the volume may be called free."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest
from msgspec.structs import replace

from rbdagent.model import (
    CephView,
    ImageSpec,
    NotObserved,
    ObjectRef,
    PublishedMapping,
    Snapshot,
    Source,
    SourceState,
    Verdict,
)
from tests.support.rule_rows.target_verdicts import (
    EXPECTED,
    OTHER_CLUSTER,
    REMOTE_POD,
)
from tests.support.snapshots import (
    BY_IMAGE,
    FSID,
    IMAGE_ID,
    IN_USE_NAME,
    LONG_AGO,
    SPEC,
    UNSEEN,
    attachment,
    cluster,
    diagnosis_of,
    event,
    image_view,
    mapping,
    node,
    pod,
    remote_watcher,
    reported_by,
    unmapped,
    world,
)

if TYPE_CHECKING:
    from tests.support.rule_tables import Table

DOWN_CLUSTER: Final = cluster(
    name="second",
    fsid=None,
    images=(),
    source=Source(state=SourceState.FAILED, reason="timed out"),
)
UNNAMED: Final = mapping(device="/dev/rbd9", device_id=9, spec=UNSEEN, image_id=None, fsid=None)


@pytest.mark.parametrize(
    ("expected", "seen"),
    [
        pytest.param(expected, seen, id=f"{expected}: {name}")
        for expected, table in EXPECTED.items()
        for name, seen in table.items()
    ],
)
def test_target_has_the_verdict(expected: Verdict, seen: Snapshot) -> None:
    answer = diagnosis_of(seen)
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
    "a mapping that an RBDNode names and that has no RBDMapping": unmapped(
        in_kube={"published": (reported_by("worker-2", incomplete="not found"),)}
    ),
    "an image of the same name and id in a pool that may have been renamed": unmapped(
        in_kube={
            "published": (
                reported_by(
                    "worker-2",
                    mappings=(
                        PublishedMapping(
                            device="/dev/rbd0",
                            verdict=Verdict.IN_USE,
                            fsid=FSID,
                            spec=replace(SPEC, pool="former"),
                            image_id=IMAGE_ID,
                        ),
                    ),
                ),
            )
        }
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
    assert diagnosis_of(seen).verdict is Verdict.STAGED


@pytest.mark.parametrize("seen", NEVER_FREE.values(), ids=NEVER_FREE.keys())
def test_volume_is_never_free_if_something_was_not_observed(seen: Snapshot) -> None:
    answer = diagnosis_of(seen)
    assert answer.verdict is Verdict.UNDETERMINED
    assert "RBD118" not in {finding.code for finding in answer.findings}


def test_metadata_of_ceph_csi_identifies_the_cluster_of_an_image() -> None:
    seen = unmapped(
        ceph=CephView(clusters=(cluster(images=(image_view(watchers=()),)), OTHER_CLUSTER))
    )
    assert diagnosis_of(seen).verdict is Verdict.FREE


def test_same_name_in_another_rados_namespace_is_not_a_holder() -> None:
    other = mapping(
        spec=ImageSpec(pool=SPEC.pool, namespace="tenant", name=SPEC.name), image_id="ffff"
    )
    assert diagnosis_of(unmapped(on_node={"mappings": (other,)})).verdict is Verdict.FREE


def test_device_with_a_read_only_client_is_not_a_writer() -> None:
    reader = mapping(read_only=True)
    seen = world(
        on_node={"mappings": (reader,)},
        of_image={"watchers": (remote_watcher(),)},
        in_kube={"pods": (REMOTE_POD,)},
    )
    assert diagnosis_of(seen).verdict is Verdict.IN_USE


def test_failed_source_does_not_hide_a_user() -> None:
    seen = world(in_kube={"pods": (pod(),), "attachments": NotObserved(reason="403")})
    assert diagnosis_of(seen).verdict is Verdict.IN_USE


def test_skipped_source_counts_as_not_observed() -> None:
    seen = unmapped(node=None)
    skipped = Source(state=SourceState.SKIPPED)
    seen = replace(seen, sources=replace(seen.sources, node=skipped))
    assert diagnosis_of(seen).verdict is Verdict.UNDETERMINED
