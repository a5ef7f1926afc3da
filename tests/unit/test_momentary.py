"""A verdict that a change during the observation may explain is confirmed by a second one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest
from msgspec.structs import replace

from rbdagent.cli.data_source import settled_answer
from rbdagent.model import BlockHolder, BlockHolderKind, NotObserved, Verdict
from rbdagent.verdicts.momentary import momentary
from tests.support.agent_loop import rounds
from tests.support.snapshots import (
    LIBRBD_COOKIE,
    POD_PATH,
    POD_UID,
    container,
    diagnosis_of,
    from_worker_2,
    judged,
    mount,
    opener,
    pod,
    remote_watcher,
    unmapped,
    world,
)
from tests.support.unmap_plans import DEVICE, seen

if TYPE_CHECKING:
    from rbdagent.model import Snapshot
    from tests.support.agent_loop import Stage

TRACES: Final = {"kernel_traces": ("/proc/fs/ext4/rbd0",)}
UNWATCHED: Final = world(of_image={"watchers": ()})
UNMAPPED_MEANWHILE: Final = world(mapped={"watch": True}, of_image={"watchers": ()})
MOUNTING: Final = world(mapped=TRACES)
MOUNTED_MEANWHILE: Final = world(mapped={"mounts": (mount(namespace=container(None)),), **TRACES})
UNMOUNTED_MEANWHILE: Final = world(mapped={"mounts": (mount(path=POD_PATH),)})
NAMELESS: Final = BlockHolder(kind=BlockHolderKind.DM, name="dm-0", of="rbd0")
SNAPSHOT: Final = {"snapshot": "backup", "snapshot_id": 4}
REMOVED_MEANWHILE: Final = world(mapped=SNAPSHOT, of_image={"snapshots": ()})
IN_USE: Final = world(in_kube={"pods": (pod(),)})


@pytest.mark.parametrize(
    ("snapshot", "verdict"),
    [
        (UNWATCHED, Verdict.UNWATCHED),
        (UNMAPPED_MEANWHILE, Verdict.UNDETERMINED),
        (MOUNTING, Verdict.PINNED),
        (MOUNTED_MEANWHILE, Verdict.PINNED),
        (UNMOUNTED_MEANWHILE, Verdict.IN_USE),
        (REMOVED_MEANWHILE, Verdict.ORPHANED),
        (world(mapped={"holders": (NAMELESS,)}), Verdict.PINNED),
        (world(mapped={"device_node_present": False}), Verdict.ORPHANED),
        (world(mapped={"hung_requests": ("read rbd_data.1.5",)}), Verdict.STAGED),
    ],
    ids=[
        "the watch is read after the unmap",
        "the kernel's list is read before the unmap, the watch after it",
        "the mount is read before the file system",
        "the host's mounts are read before those of the plugin",
        "the mounts are read before the unmount, the pods after it",
        "the device is read before a backup unmaps its snapshot, the snapshots after it",
        "the device-mapper device is read while cryptsetup removes it",
        "the device is unmapped between the reads of sysfs and of /dev",
        "udev reads a device that nothing uses, and the kernel lists the request",
    ],
)
def test_change_during_the_observation_looks_like_a_danger(
    snapshot: Snapshot, verdict: Verdict
) -> None:
    assert judged(snapshot).verdict is verdict
    ((device, found, *_),) = momentary((diagnosis_of(snapshot),))
    assert (device, found) == (DEVICE, verdict)


@pytest.mark.parametrize(
    "snapshot",
    [
        IN_USE,
        world(),
        world(mapped={"openers": (opener(),)}),
        world(mapped={"mounts": (mount(path="/mnt"),), **TRACES}),
        from_worker_2(of_image={"watchers": (remote_watcher(),)}),
        world(mapped={"watch": True}, of_image={"watchers": NotObserved(reason="timed out")}),
        world(mapped={"openers": NotObserved(reason="access denied")}),
        world(mapped=SNAPSHOT, of_image={"snapshots": (4,)}),
        world(mapped={"holders": (replace(NAMELESS, label="vg-lv"),)}),
        world(
            mapped={"hung_requests": ("write rbd_data.1.5",), "mounts": (mount(path=POD_PATH),)},
            in_kube={"pods": (pod(),)},
        ),
    ],
    ids=[
        "in use",
        "orphaned",
        "kept by a process",
        "mounted elsewhere",
        "on another node",
        "Ceph does not answer",
        "the open files cannot be read",
        "of a snapshot",
        "under a logical volume",
        "a pod writes",
    ],
)
def test_lasting_state_is_observed_once(snapshot: Snapshot) -> None:
    assert momentary((diagnosis_of(snapshot),)) == set()


WATCHED_FOR_A_MOMENT: Final = unmapped(
    of_image={"transient_watchers": (remote_watcher(cookie=LIBRBD_COOKIE),)}
)


def test_volume_that_was_watched_for_a_moment_is_observed_again() -> None:
    assert diagnosis_of(WATCHED_FOR_A_MOMENT).verdict is Verdict.UNDETERMINED
    assert momentary((diagnosis_of(WATCHED_FOR_A_MOMENT),)) == {
        ("client.4239", Verdict.UNDETERMINED, False, (), ())
    }
    assert _settled([WATCHED_FOR_A_MOMENT, unmapped()]) == (Verdict.FREE, 0)
    mapped = unmapped(of_image={"watchers": (remote_watcher(),)})
    assert _settled([WATCHED_FOR_A_MOMENT, mapped]) == (diagnosis_of(mapped).verdict, 0)
    assert _settled([WATCHED_FOR_A_MOMENT] * 2) == (Verdict.UNDETERMINED, 0)


def test_watch_of_a_moment_beside_a_holder_is_observed_once() -> None:
    beside = {"transient_watchers": (remote_watcher(cookie=LIBRBD_COOKIE),)}
    assert momentary((diagnosis_of(world(of_image=beside)),)) == set()


def _settled(snapshots: list[Snapshot]) -> tuple[Verdict, int]:
    left = list(snapshots)
    _, diagnosis = settled_answer(
        lambda: left.pop(0), diagnosis_of, lambda diagnosis: (diagnosis,), source=None
    )
    return diagnosis.verdict, len(left)


def _observed(snapshots: list[Snapshot], source: str | None = None) -> tuple[Verdict, int]:
    """Return the verdict, and the number of observations that were left over."""
    left = list(snapshots)
    _, diagnosis = settled_answer(
        lambda: left.pop(0), diagnosis_of, lambda diagnosis: (diagnosis,), source=source
    )
    return diagnosis.holders[0].verdict, len(left)


def test_second_observation_answers_if_the_first_is_momentary() -> None:
    assert _observed([UNWATCHED, IN_USE]) == (Verdict.IN_USE, 0)


def test_watch_that_only_the_kernel_lists_is_observed_again() -> None:
    assert _observed([UNMAPPED_MEANWHILE, IN_USE]) == (Verdict.IN_USE, 0)
    assert _observed([UNMAPPED_MEANWHILE, UNMAPPED_MEANWHILE, IN_USE]) == (Verdict.UNDETERMINED, 1)


def test_each_step_of_kubelet_may_meet_an_observation() -> None:
    assert _observed([UNWATCHED, MOUNTING, IN_USE]) == (Verdict.IN_USE, 0)
    assert _observed([MOUNTED_MEANWHILE, MOUNTING, IN_USE]) == (Verdict.IN_USE, 0)
    assert _observed([UNWATCHED, MOUNTING, MOUNTING, IN_USE]) == (Verdict.PINNED, 1)


def test_pod_that_ends_during_the_observation_is_not_lost() -> None:
    assert _observed([UNMOUNTED_MEANWHILE, world(), IN_USE]) == (Verdict.ORPHANED, 1)


def test_another_lost_pod_is_observed_again() -> None:
    other = world(mapped={"mounts": (mount(path=POD_PATH.replace(POD_UID, "other")),)})
    assert _observed([UNMOUNTED_MEANWHILE, other, world()]) == (Verdict.ORPHANED, 0)


def test_danger_that_lasts_is_reported_after_two_observations() -> None:
    assert _observed([UNWATCHED, UNWATCHED, IN_USE]) == (Verdict.UNWATCHED, 1)


def test_snapshot_file_is_read_once() -> None:
    assert _observed([UNWATCHED, IN_USE], source="-") == (Verdict.UNWATCHED, 1)


def test_agent_confirms_a_new_danger_before_it_reports_it(stage: Stage) -> None:
    stage.snapshots = [seen(of_image={"watchers": ()}), seen(in_kube={"pods": (pod(),)})]
    rounds(stage.agent(), "start")
    assert [result.verdicts for result in stage.reported] == [{"InUse": 1}]


def test_agent_observes_a_danger_that_lasts_twice_in_its_first_cycle_only(stage: Stage) -> None:
    stage.snapshots = [seen(of_image={"watchers": ()})]
    rounds(stage.agent(), "start", "time", "time")
    assert [result.verdicts for result in stage.reported] == [{"Unwatched": 1}] * 3
    assert len(stage.asked_api) == 4


def test_request_that_the_next_observation_lacks_does_not_hang() -> None:
    asked = world(mapped={"hung_requests": ("read rbd_data.1.5",)})
    assert _observed([asked, world()]) == (Verdict.ORPHANED, 0)
    assert _observed([asked, asked, world()]) == (Verdict.STAGED, 1)
