"""Queries of Ceph for further images, which the target of a snapshot does not name."""

from __future__ import annotations

from msgspec.structs import replace

from rbdagent.collector import with_images
from rbdagent.model import CephView, ImageIdentity, ImageSpec, Snapshot, SourceState
from tests.support.ceph_worker import FakeCephWorker
from tests.support.snapshots import FAILED, NOWHERE, OBSERVED, cluster, image_view, snapshot

OTHER = ImageSpec(pool="k8s", name="other")
ASKED = (ImageIdentity(spec=OTHER, fsid=None),)
SKIPPED = replace(
    snapshot().sources, ceph=replace(OBSERVED, state=SourceState.SKIPPED, reason="not asked")
)
FURTHER = CephView(clusters=(cluster(images=(image_view(spec=OTHER),)),))


def closer(
    look: Snapshot, ceph: FakeCephWorker, images: tuple[ImageIdentity, ...] = ASKED
) -> Snapshot:
    return with_images(look, images, NOWHERE, ceph)  # type: ignore[arg-type]


def specs(look: Snapshot) -> list[ImageSpec]:
    assert look.ceph is not None
    return [image.spec for cluster in look.ceph.clusters for image in cluster.images]


def test_further_images_are_added_to_those_of_their_cluster() -> None:
    look, ceph = snapshot(), FakeCephWorker(FURTHER)
    assert specs(closer(look, ceph)) == [*specs(look), OTHER]
    assert ceph.asked == [ASKED]


def test_further_images_are_the_only_ones_if_ceph_was_skipped() -> None:
    assert specs(closer(snapshot(ceph=None, sources=SKIPPED), FakeCephWorker(FURTHER))) == [OTHER]


def test_snapshot_is_unchanged_if_ceph_does_not_answer() -> None:
    look = snapshot()
    assert closer(look, FakeCephWorker(None)) == look


def test_ceph_is_not_queried_without_images_or_after_a_failure() -> None:
    ceph = FakeCephWorker(FURTHER)
    closer(snapshot(), ceph, ())
    closer(snapshot(sources=replace(SKIPPED, ceph=FAILED)), ceph)
    assert ceph.asked == []
