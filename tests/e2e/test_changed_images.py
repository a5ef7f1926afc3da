"""Images and pools that are changed under real mappings: what the kernel does, and the answer."""

from __future__ import annotations

import functools
import json
from typing import TYPE_CHECKING, Any, Final

import pytest

from rbdagent.parse.recognised import Recognised
from tests.lab.errors import LabError
from tests.lab.lab import POOL
from tests.lab.processes import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.e2e.scene import Scene

Json = dict[str, Any]
_NODE: Final = "worker-1"


def asked(scene: Scene, target: str) -> Json:
    """Return the finding that leads the answer of `diagnose` on the node."""
    found: Json = scene.diagnose(_NODE, target)["findings"][0]
    return found


def wait_first(scene: Scene, target: str, code: str) -> Json:
    """Wait until a code leads the answer, and return its finding."""
    return wait_for(scene, target, lambda found: bool(found["code"] == code))


def wait_for(scene: Scene, target: str, is_wanted: Callable[[Json], bool]) -> Json:
    """Wait until the finding that leads the answer is as wanted, and return it."""
    seen: list[Json] = []

    def leads() -> bool:
        seen.append(asked(scene, target))
        return is_wanted(seen[-1])

    try:
        wait_until(leads, timeout_s=120, what="the answer", interval_s=2)
    except LabError as error:
        raise LabError(f"{error}; the answer is {seen[-1:]}") from error
    return seen[-1]


def codes(scene: Scene, volume: str) -> set[str]:
    return {found["code"] for found in scene.diagnose(_NODE, f"pv/{volume}")["findings"]}


def codes_of(scene: Scene, image: str) -> set[str]:
    return {found["code"] for found in scene.diagnose(_NODE, image)["findings"]}


@pytest.mark.alone
def test_image_that_is_demoted_under_a_pod_is_reported(scene: Scene) -> None:
    """`rbd mirror image demote` succeeds, and the kernel writes on without a message."""
    volume, ceph = scene.claim(), scene.lab.ceph
    pod = scene.run_pod(_NODE)
    image = scene.image_of(volume)
    ceph.rbd("mirror", "pool", "enable", POOL, "image")
    scene.undo(lambda: ceph.rbd("mirror", "pool", "disable", POOL))
    ceph.rbd("mirror", "image", "enable", image, "snapshot")
    scene.undo(lambda: ceph.rbd("mirror", "image", "disable", "--force", image))
    ceph.rbd("mirror", "image", "demote", image)
    path = scene.mount_of(pod, volume)
    scene.lab.nodes[_NODE].run(f"echo after >{path}/after; sync -f {path}")
    found = wait_first(scene, f"pv/{volume}", "RBD129")
    assert "which is not primary in this cluster any more" in found["message"]
    ceph.rbd("mirror", "image", "promote", "--force", image)
    assert "RBD129" not in codes(scene, volume)


def test_object_map_that_is_disabled_under_a_mapping_is_reported(scene: Scene) -> None:
    """Each read fails until the feature is enabled again."""
    volume, vm = scene.claim(storage_class="rbd-exclusive"), scene.lab.nodes[_NODE]
    image = scene.image_of(volume)
    scene.lab.ceph.rbd("feature", "enable", image, "object-map")
    scene.run_pod(_NODE)
    device = scene.look(_NODE, volume).holder(_NODE)["device"]
    read = f"dd if={device} of=/dev/null bs=4096 count=1 iflag=direct"
    scene.lab.ceph.rbd("feature", "disable", image, "object-map")
    wait_until(
        lambda: vm.run(read, check=False).exit_code != 0, timeout_s=30, what="reads of it to fail"
    )
    found = wait_first(scene, f"pv/{volume}", "RBD130")
    (command,) = found["commands"]
    scene.lab.ceph.rbd(*command["command"].split()[1:])
    wait_until(
        lambda: vm.run(read, check=False).exit_code == 0, timeout_s=30, what="reads to work again"
    )
    assert "RBD130" not in codes(scene, volume)


def test_lock_that_was_added_by_hand_is_named(scene: Scene) -> None:
    """Krbd answers 16: `locked by external mechanism`."""
    volume = scene.claim(storage_class="rbd-exclusive")
    image = scene.image_of(volume)
    scene.lab.ceph.rbd("lock", "add", image, "by-hand")
    pod = scene.start_pod(_NODE)
    scene.workloads.wait_event(pod, reason="FailedMount", contains="map failed: (16)")
    found = wait_first(scene, f"pod/default/{pod}", "RBD744")
    assert "was locked by hand" in found["message"]
    (lock,) = json.loads(scene.lab.ceph.rbd("lock", "ls", "--format", "json", image))
    scene.lab.ceph.rbd("lock", "rm", image, lock["id"], lock["locker"])
    scene.workloads.wait_running(pod)


def test_holder_that_keeps_its_lock_is_named(scene: Scene) -> None:
    """Krbd answers 30: `peer will not release lock`. The driver looks for no watcher of RWX."""
    volume = scene.claim(
        storage_class="rbd-exclusive", volume_mode="Block", access_mode="ReadWriteMany"
    )
    scene.map_by_hand("worker-2", scene.image_of(volume), "--exclusive")
    pod = scene.start_pod(_NODE, block=True)
    scene.workloads.wait_event(pod, reason="FailedMapVolume", contains="map failed: (30)")
    found = wait_first(scene, f"pod/default/{pod}", "RBD744")
    assert "has the exclusive lock of the image does not release it" in found["message"]


def test_snapshot_that_is_removed_under_its_mapping_is_reported(scene: Scene) -> None:
    """A read-only mapping has no watch: `rbd snap rm` succeeds.

    What was written since then reads as zeros, the rest as the image is now.
    """
    ceph, vm = scene.lab.ceph, scene.lab.nodes[_NODE]
    image = f"{POOL}/{scene.image(scene.name, formatted=True)}"
    ceph.rbd("snap", "create", "--no-progress", f"{image}@daily")
    writable = scene.map_by_hand(_NODE, image)
    vm.run(f"dd if=/dev/urandom of={writable} bs=1M count=1 oflag=direct")
    device = scene.map_by_hand(_NODE, f"{image}@daily")
    read = f"dd if={device} bs=1M count=1 iflag=direct status=none | tr -d '\\0' | wc -c"
    assert int(vm.run(read).stdout) > 0
    assert "RBD132" not in codes_of(scene, image)
    ceph.rbd("snap", "rm", "--no-progress", f"{image}@daily")
    assert int(vm.run(read).stdout) == 0, "it reads as zeros"
    assert "RBD132" in codes_of(scene, image)
    ceph.rbd("snap", "create", "--no-progress", f"{image}@daily")
    scene.undo(lambda: ceph.rbd("snap", "purge", "--no-progress", image))
    assert "RBD132" in codes_of(scene, image), "another snapshot has the name"


def test_target_of_a_migration_that_reads_as_zeros_is_reported(scene: Scene) -> None:
    """A writable map of it fails; a read-only one does not know of the source."""
    ceph, vm = scene.lab.ceph, scene.lab.nodes[_NODE]
    image = f"{POOL}/{scene.image(scene.name, formatted=True)}"
    ceph.rbd("migration", "prepare", image, f"{image}-new")
    scene.undo(lambda: ceph.rbd("migration", "abort", "--no-progress", f"{image}-new"))
    with pytest.raises(LabError, match="rbd: map failed"):
        scene.map_and_leave(_NODE, f"{image}-new")
    device = scene.map_by_hand(_NODE, f"{image}-new", "--read-only")
    read = f"dd if={device} bs=1M count=1 iflag=direct status=none | tr -d '\\0' | wc -c"
    assert int(vm.run(read).stdout) == 0, "it reads as zeros"
    assert "RBD132" in codes_of(scene, f"{image}-new")


def test_line_of_the_kernel_about_a_second_xfs_is_known(scene: Scene) -> None:
    """The driver mounts with nouuid, as ceph-csi does; other drivers do not."""
    volume, ceph = scene.claim(storage_class="rbd-xfs", size="512Mi"), scene.lab.ceph
    scene.run_pod(_NODE)
    image, vm = scene.image_of(volume), scene.lab.nodes[_NODE]
    mounts = []
    for number in range(2):
        copy, path = f"{POOL}/{scene.name}-copy{number}", f"/run/copy{number}"
        ceph.rbd("cp", "--no-progress", image, copy)
        scene.undo(functools.partial(ceph.rbd, "rm", "--no-progress", copy))
        device = scene.map_by_hand(_NODE, copy)
        scene.undo(functools.partial(vm.run, f"umount {path}", check=False))
        mounts.append(vm.run(f"mkdir -p {path} && mount {device} {path}", check=False).exit_code)
    assert mounts == [0, 32]
    assert Recognised.DUPLICATE_UUID.is_in(vm.run("dmesg").stdout)


def test_image_that_was_shrunk_is_to_be_grown_back(scene: Scene) -> None:
    """Advice to repair the file system would cost the data at its end."""
    volume = scene.claim()
    pod = scene.run_pod(_NODE)
    image = scene.image_of(volume)
    scene.workloads.delete("Pod", pod)
    wait_until(
        lambda: not scene.look(_NODE, volume).holders,
        timeout_s=120,
        what="the image to be released",
    )
    scene.lab.ceph.rbd("resize", "--no-progress", "--allow-shrink", "--size", "32M", image)
    late = scene.start_pod(_NODE, "-late")
    scene.workloads.wait_event(late, reason="FailedMount", contains="/dev/rbd")
    found = wait_for(scene, f"pod/default/{late}", lambda found: "was shrunk" in found["message"])
    assert "grow" in found["remedy"].lower()
    scene.lab.ceph.rbd("resize", "--no-progress", "--size", "64M", image)
    scene.workloads.wait_running(late)


@pytest.mark.alone
def test_pause_of_ceph_is_named_while_writes_wait(scene: Scene) -> None:
    """No program gets an error: the write ends with the pause."""
    volume, ceph = scene.claim(), scene.lab.ceph
    path = scene.mount_of(scene.run_pod(_NODE), volume)
    scene.undo(lambda: ceph.ceph("osd", "unpause"))
    ceph.ceph("osd", "pause")
    is_written = start_write(scene, path)
    found = wait_for(scene, f"pv/{volume}", lambda found: found["code"] in {"RBD131", "RBD203"})
    assert "Ceph's I/O is paused" in found["message"]
    assert not is_written(), "it waits"
    ceph.ceph("osd", "unpause")
    wait_until(is_written, timeout_s=120, what="the write to end", interval_s=1)


@pytest.mark.alone
def test_osd_that_does_not_answer_is_named_while_a_write_waits(scene: Scene) -> None:
    """The OSD keeps its connections: the kernel waits, and the program gets no error."""
    volume, ceph = scene.claim(), scene.lab.ceph
    path = scene.mount_of(scene.run_pod(_NODE), volume)
    scene.undo(ceph.resume_osd)
    ceph.pause_osd()
    is_written = start_write(scene, path)

    def is_named(found: Json) -> bool:
        return found["code"] == "RBD203" and "osd.0" in found["message"]

    found = wait_for(scene, f"pv/{volume}", is_named)
    for shown in found["commands"]:
        words = shown["command"].split()
        if words[0] == "ceph":
            assert ceph.ceph(*words[1:])
    assert not is_written()
    # The advice leads to the OSD, which runs on here.
    ceph.resume_osd()
    wait_until(is_written, timeout_s=120, what="the write to end", interval_s=1)
    wait_until(
        lambda: "RBD203" not in codes(scene, volume),
        timeout_s=60,
        what="the answer without a request that hangs",
        interval_s=1,
    )


def start_write(scene: Scene, path: str) -> Callable[[], bool]:
    """Write a block below a path of the node; return whether that has ended."""
    vm = scene.lab.nodes[_NODE]
    write = f"dd if=/dev/zero of={path}/late bs=4096 count=1 oflag=direct"
    pid = vm.run(["/bin/bash", "-c", f"{write} >/dev/null 2>&1 </dev/null & echo $!"]).stdout
    return lambda: vm.run(f"kill -0 {pid.strip()}", check=False).exit_code != 0


@pytest.mark.alone
@pytest.mark.parametrize("storage_class", ["rbd", "rbd-xfs"])
def test_file_system_that_stopped_is_reported(scene: Scene, storage_class: str) -> None:
    """Of a blocklisted client: after the entry is gone, I/O works, and the file system does not."""
    volume, vm = scene.claim(storage_class=storage_class, size="512Mi"), scene.lab.nodes[_NODE]
    pod = scene.run_pod(_NODE)
    path = scene.mount_of(pod, volume)
    vm.run(f"echo before >{path}/file; sync -f {path}")
    address = scene.fence(_NODE, scene.look(_NODE, volume).holder(_NODE))
    # The file is in memory: the journal cannot be written.
    vm.run(f"echo after >>{path}/file; sync -f {path}", check=False)
    # On Linux 6.1, ext4 still takes a write to a file that is in memory: it fails with a new file.
    wait_until(
        lambda: vm.run(f"echo more >{path}/further", check=False).exit_code != 0,
        timeout_s=60,
        what="writes to fail",
    )
    scene.lab.ceph.ceph("osd", "blocklist", "rm", address)
    scene.wait_verdict(_NODE, volume, "Unwatched")
    wait_until(lambda: "RBD755" in codes(scene, volume), timeout_s=60, what="RBD755", interval_s=2)
    if storage_class == "rbd-xfs":
        _unmount_by_hand(scene, pod, path)
        return
    vm.power_off()
    vm.start()
    vm.wait_until_ready()
    scene.workloads.wait_node_ready(_NODE)


def _unmount_by_hand(scene: Scene, pod: str, path: str) -> None:
    """End a pod of an XFS that is shut down: the driver asks lstat first, and gets EIO."""
    vm = scene.lab.nodes[_NODE]
    assert "Input/output error" in vm.run(f"stat {path} 2>&1", check=False).stdout
    device = vm.run(f"awk '$2 == \"{path}\" {{ print $1 }}' /proc/self/mounts").stdout.strip()
    scene.workloads.delete("Pod", pod, wait=False)

    def has_ended() -> bool:
        vm.run(f"umount --all-targets {device}", check=False)
        return scene.workloads.find("Pod", pod) is None

    wait_until(has_ended, timeout_s=180, what="the pod to end after the unmount", interval_s=5)
