"""What Ceph is asked beside the images of a look's own target."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from rbdagent.look import with_images
from rbdagent.model import CephView, ImageIdentity, ImageSpec, Snapshot, SourceState
from tests.unit.builders import FAILED, NOWHERE, OBSERVED, cluster, image_view, snapshot

OTHER = ImageSpec(pool="k8s", name="other")
ASKED = (ImageIdentity(spec=OTHER, fsid=None),)
SKIPPED = replace(
    snapshot().sources, ceph=replace(OBSERVED, state=SourceState.SKIPPED, reason="not asked")
)
FURTHER = CephView(clusters=(cluster(images=(image_view(spec=OTHER),)),))


class Ceph:
    """Stands in for the process that is connected to Ceph."""

    def __init__(self, view: CephView | None) -> None:
        self.view = view
        self.asked: list[Any] = []

    def answer(self, question: Any, _deadline: float) -> Any:  # noqa: ANN401 - as asked
        images, _, _ = question
        self.asked.append(images)
        if self.view is None:
            raise TimeoutError
        return self.view, OBSERVED


def closer(look: Snapshot, ceph: Ceph, images: tuple[ImageIdentity, ...] = ASKED) -> Snapshot:
    return with_images(look, images, NOWHERE, ceph)  # type: ignore[arg-type]


def specs(look: Snapshot) -> list[ImageSpec]:
    assert look.ceph is not None
    return [image.spec for cluster in look.ceph.clusters for image in cluster.images]


def test_further_images_are_added_to_those_of_their_cluster() -> None:
    look, ceph = snapshot(), Ceph(FURTHER)
    assert specs(closer(look, ceph)) == [*specs(look), OTHER]
    assert ceph.asked == [ASKED]


def test_they_are_all_there_is_where_nothing_else_was_asked_for() -> None:
    assert specs(closer(snapshot(ceph=None, sources=SKIPPED), Ceph(FURTHER))) == [OTHER]


def test_a_look_stays_as_it_is_where_ceph_has_no_answer() -> None:
    look = snapshot()
    assert closer(look, Ceph(None)) == look


def test_without_further_images_or_after_a_failure_ceph_is_not_asked() -> None:
    ceph = Ceph(FURTHER)
    closer(snapshot(), ceph, ())
    closer(snapshot(sources=replace(SKIPPED, ceph=FAILED)), ceph)
    assert ceph.asked == []
