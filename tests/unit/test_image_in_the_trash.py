"""An image in the trash of its pool: who needs it, and what becomes of it."""

from __future__ import annotations

from typing import Any, Final

import pytest

from rbdagent.model import ImagePresence, Severity, Snapshot
from tests.support.rows import each_row
from tests.support.snapshots import (
    BY_IMAGE,
    LONG_AGO,
    UNSEEN,
    found,
    unmapped,
    volume,
    world,
)

REMOVED: Final = {"presence": ImagePresence.TRASH, "tasks": ("trash remove",), "snapshots": ()}
RELEASED: Final = (volume(phase="Released", reclaim_policy="Delete", claim=None),)


def trashed(**of_image: Any) -> Snapshot:  # noqa: ANN401 - a view's own
    return unmapped(of_image=REMOVED | of_image)


def test_image_of_a_volume_that_is_needed_is_about_to_be_lost() -> None:
    seen = found(trashed(), "RBD302")
    assert seen.severity is Severity.ERROR
    assert "its data is about to be deleted" in seen.message
    assert seen.remedy.index("task cancel") < seen.remedy.index("trash restore")


@pytest.mark.parametrize("volumes", [(), RELEASED], ids=["no PV", "a PV that is being deleted"])
def test_image_of_a_deleted_volume_needs_no_action(volumes: tuple[Any, ...]) -> None:
    in_kube = {"persistent_volumes": volumes, "claims": ()}
    seen = unmapped(of_image=REMOVED, in_kube=in_kube, target=BY_IMAGE)
    told = found(seen, "RBD302")
    assert told.severity is Severity.INFO
    assert str(told.remedy).startswith("No action is needed")


KEPT: Final = {
    "none": ((), ""),
    "one": ((4,), "It still has a snapshot: it remains until they are gone."),
    "two": ((4, 9), "It still has 2 snapshots"),
    "not observed": (UNSEEN, "Whether it has snapshots, which keep it, was not observed."),
}


@each_row("name", KEPT)
def test_snapshots_that_keep_it_are_counted(name: str) -> None:
    snapshots, words = KEPT[name]
    message = found(trashed(snapshots=snapshots), "RBD302").message
    assert words in message
    assert words or "snapshot" not in message


def test_no_advice_deletes_what_was_made_from_it() -> None:
    """VolumeSnapshots and clones may be the only copies that are left."""
    assert "Delete" not in found(trashed(snapshots=(4,)), "RBD302").remedy


def test_mapping_of_it_is_named() -> None:
    seen = world(of_image={**REMOVED, "tasks": (), "watchers": ()})
    assert "/dev/rbd0 on worker-1 still maps it" in found(seen, "RBD302").message


def test_image_without_a_task_can_be_restored() -> None:
    seen = found(trashed(tasks=()), "RBD302")
    assert seen.severity is Severity.WARNING
    assert "trash restore" in seen.remedy


def test_deleting_volume_makes_it_no_alarm() -> None:
    """The driver moves the image before external-provisioner deletes the PV."""
    ending = (volume(deleting_since=LONG_AGO, reclaim_policy="Delete"),)
    seen = unmapped(
        of_image={"presence": ImagePresence.TRASH}, in_kube={"persistent_volumes": ending}
    )
    assert found(seen, "RBD302").severity is Severity.INFO
