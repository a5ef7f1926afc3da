"""The safe unmap on the real kernel: what it unmaps, and everything that it refuses to unmap."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final

import pytest

from rbdagent.parse.krbd import parse_io_counters
from rbdagent.unmap import writer_child
from rbdagent.unmap.writer import counts_of
from tests.e2e.written_files import WORDS, read_back, write
from tests.lab.errors import LabError
from tests.lab.install import venv_python
from tests.lab.processes import wait_until
from tests.lab.workloads import collection

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.e2e.scene import Scene
    from tests.lab.vm import Completed, Service, Vm

_AT_ONCE: Final = ("--yes", "--wait", "--grace-period", "5s")


# --------------------------------------------------------------------------------------------------
# What it unmaps
# --------------------------------------------------------------------------------------------------


def test_attachment_is_removed_after_the_orphan_is_unmapped(scene: Scene) -> None:
    """scenarios.md 1: kubelet cannot unstage; its retry after the unmap succeeds."""
    volume = scene.claim()
    old = scene.run_pod("worker-1")
    write(scene, old, volume)
    step = "NodeUnstage.unmap"
    with scene.lab.fault(
        "worker-1", step, "error", message="exit status 16", volume=scene.handle(volume)
    ):
        scene.workloads.delete("Pod", old)
        new = scene.start_pod("worker-2")
        scene.workloads.wait_multi_attach(new)
        reason = scene.all_refusals("worker-1", volume)["RBD505"]
        assert re.search(r"VolumeAttachment csi-\S+ is (?:\d+m)?\d+s old", reason), reason
        result = scene.unmap("worker-1", volume, *_AT_ONCE)
    assert result["outcome"] == "unmapped", result
    assert any("retries NodeUnstage" in sentence for sentence in result["expects"])
    scene.workloads.wait_running(new, timeout_s=300)
    assert read_back(scene, new, volume) == WORDS


def test_attachment_being_deleted_does_not_block_the_unmap(scene: Scene) -> None:
    """Something keeps the object, and nothing needs the mapping."""
    volume = scene.claim()
    pod = scene.run_pod("worker-1")
    path = f"{collection('VolumeAttachment')}/{scene.attachment_of(volume)}"
    api = scene.lab.control_plane.api
    api.patch(path, {"metadata": {"finalizers": ["rbdagent.dev/kept"]}})
    scene.undo(lambda: api.patch(path, {"metadata": {"finalizers": None}}))
    step = "NodeUnstage.unmap"
    with scene.lab.fault("worker-1", step, "skip", volume=scene.handle(volume)):
        scene.workloads.delete("Pod", pod)
        wait_until(
            lambda: api.get(path)["metadata"].get("deletionTimestamp"),
            timeout_s=120,
            what="the attachment to be deleted",
        )
        plan = scene.unmap("worker-1", volume, *_AT_ONCE[1:])
        result = scene.unmap("worker-1", volume, *_AT_ONCE)
    assert plan["kind"] == "UnmapPlan", plan
    assert "is being deleted" in str(plan["conditions"])
    assert result["outcome"] == "unmapped", result


def test_orphan_of_an_in_tree_volume_is_unmapped(scene: Scene) -> None:
    """It has no stash and no metadata of a provisioner: only its PV object shows its origin."""
    image = scene.in_tree_volume()
    scene.map_by_hand("worker-1", image)
    result = scene.unmap("worker-1", scene.name, *_AT_ONCE)
    assert result["outcome"] == "unmapped", result


@pytest.mark.alone
def test_staged_orphan_is_unmapped_in_steps_if_allowed(scene: Scene) -> None:
    """scenarios.md 5 and 14 (kubernetes#121937): umount, luksClose, unmap."""
    volume = scene.claim(storage_class="rbd-luks")
    old = scene.run_pod("worker-1")
    write(scene, old, volume)
    step = "NodeUnstage.umount"
    with scene.lab.fault(
        "worker-1", step, "error", message="target is busy", volume=scene.handle(volume)
    ):
        scene.workloads.delete("Pod", old)
        scene.lab.nodes["worker-1"].service("kubelet").restart()
        scene.wait_detached(volume, "worker-1")
    refusals = scene.all_refusals("worker-1", volume)
    assert "mounted at" in refusals["RBD502"]
    assert "LUKS" in refusals["RBD503"]
    assert "kubelet started" in refusals["RBD505"]

    def unmapped() -> dict[str, Any]:
        """Unmap it, unless kubelet, which has just started, still looks at what is left."""
        done = scene.unmap("worker-1", volume, *_AT_ONCE, "--unmap-staged")
        if done.get("outcome") != "unmapped":
            raise LabError(str(done))
        return done

    result = wait_until(unmapped, timeout_s=120, what="the orphan to be unmapped")
    assert [step["kind"] for step in result["done"]] == ["umount", "luksClose", "unmap"]
    new = scene.run_pod("worker-2")
    assert read_back(scene, new, volume) == WORDS


# --------------------------------------------------------------------------------------------------
# What it refuses
# --------------------------------------------------------------------------------------------------


def test_users_of_an_orphan_on_the_node_cause_a_refusal(scene: Scene) -> None:
    """Conditions 2 and 3, one after another on one orphan."""
    volume = scene.claim()
    pod = scene.run_pod("worker-1")
    pin = scene.pin_by_cwd("worker-1", scene.mount_of(pod, volume))
    handle = scene.handle(volume)
    scene.lab.set_fault("worker-1", "NodeUnstage.unmap", "skip", volume=handle)
    scene.workloads.delete("Pod", pod)
    scene.wait_detached(volume, "worker-1")
    vm = scene.lab.nodes["worker-1"]
    device = str(scene.wait_verdict("worker-1", volume, "Pinned").holder("worker-1")["device"])
    # A process whose directory is in a detached copy of the mount: no mountinfo shows it.
    assert f"process {pin} (" in str(scene.refused("worker-1", volume))
    scene.kill("worker-1", pin)
    scene.wait_verdict("worker-1", volume, "Orphaned")

    refusals = {}
    mounted = scene.private_mount("worker-1", device)
    refusals["a mount in a private namespace"] = scene.refused("worker-1", volume)["RBD502"]
    scene.kill("worker-1", mounted)
    opener = scene.hold_open("worker-1", device)
    refusals["an open raw descriptor"] = scene.refused("worker-1", volume)["RBD503"]
    assert last_check(vm, device) == _BUSY, "the kernel refuses what is open, too"
    scene.kill("worker-1", opener)
    for what, make, undo in (
        ("a linear dm device", f"dmsetup create pin --table '0 8 linear {device} 0'",
         "dmsetup remove pin"),
        ("a loop device", f"losetup /dev/loop7 {device}", "losetup -d /dev/loop7"),
        ("swap", f"mkswap -q {device} && swapon {device}", f"swapoff {device}"),
    ):  # fmt: skip
        vm.run(make)
        refusals[what] = scene.refused("worker-1", volume)["RBD503"]
        assert last_check(vm, device) == _BUSY, what
        vm.run(undo)
    assert all(refusals.values()), refusals
    assert last_check(vm, device, incarnation="diskseq:1") == _ANOTHER, (
        "a device id that came again"
    )
    assert last_check(vm, device) == 0
    scene.lab.clear_fault("worker-1", "NodeUnstage.unmap", volume=handle)


_BUSY: Final = 16
_ANOTHER: Final = 200


def last_check(vm: Vm, device: str, *, incarnation: str | None = None) -> int:
    """Run the last step: open exclusively, compare, write. Return its result."""
    number = device.removeprefix("/dev/rbd")
    known = incarnation or f"diskseq:{vm.get(f'/sys/block/rbd{number}/diskseq').decode().strip()}"
    stat = vm.get(f"/sys/block/rbd{number}/stat").decode()
    counts = counts_of(parse_io_counters(stat, where=device))
    command = [str(venv_python()), "-I", "-S", writer_child.__file__, device, "/sys/bus/rbd"]
    done: Completed = vm.run([*command, number, known, counts], check=False)
    return done.exit_code


@pytest.mark.alone
def test_possible_users_and_freezes_cause_a_refusal(scene: Scene) -> None:
    """Conditions 5, 7, 8 and 9, one after another on one orphan."""
    volume = scene.claim()
    device = scene.leak_mapping("worker-1", volume, scene.run_pod("worker-1"))
    node = scene.lab.nodes["worker-1"]

    assert scene.refused("worker-1", volume) == {}, "but for history nothing is missing"
    for path in (
        "/api/v1/nodes/worker-1",
        f"/api/v1/persistentvolumes/{volume}",
        "/api/v1/namespaces/default",
    ):
        scene.freeze(path)
        assert "rbdagent.dev/freeze" in scene.refused("worker-1", volume)["RBD508"]
        scene.thaw(path)
    node.put("/run/frozen", b"")
    frozen = scene.refused("worker-1", volume, "--freeze-file", "/run/frozen")
    assert "/run/frozen" in frozen["RBD508"]
    limited = scene.refused("worker-1", volume, "--max-unmaps-per-hour", "0")
    assert "limit" in limited["RBD508"]
    assert set(scene.refused("worker-1", volume, "--no-ceph")) >= {"RBD509"}
    assert set(scene.refused("worker-1", device, "--no-kube")) >= {"RBD505", "RBD509"}

    node.cut()
    try:
        alone = scene.refused("worker-1", device, "--timeout", "20s")
    finally:
        node.mend()
    assert "ceph was not observed" in alone["RBD509"]
    assert "PersistentVolumes: not observed" in alone["RBD509"]

    mapping = scene.hanging_map("worker-1", scene.image_of(volume))
    assert "operates on it" in scene.refused("worker-1", volume)["RBD507"]
    scene.kill("worker-1", mapping)

    with scene.lab.fault("worker-1", "NodeStage.in-use-check", "hang", volume=scene.handle(volume)):
        pod = scene.start_pod("worker-1", "-again")
        wait_until(
            lambda: scene.workloads.attachments(volume),
            timeout_s=60,
            what="the volume to be attached again",
        )
        assert pod in scene.refused("worker-1", volume)["RBD505"]
        scene.keep_terminating(pod)
        assert pod in scene.refused("worker-1", volume)["RBD505"], "in Terminating too"


_READ_GRACE: Final = ("--grace-period", "15s")


@pytest.fixture
def agent(scene: Scene) -> Iterator[Service]:
    """Run an agent on worker-1 that shares its state with the scene's `rbdagent unmap`."""
    service = scene.lab.nodes["worker-1"].define_service(
        "rbdagent",
        [str(venv_python().parent / "rbdagent"), "agent", "--mode", "unmap", *_READ_GRACE,
         "--resync", "5s", "--state-dir", f"/run/{scene.name}-state"],
    )  # fmt: skip
    service.start()
    yield service
    service.stop()


@pytest.mark.alone
def test_orphan_read_between_observations_stays_mapped(scene: Scene, agent: Service) -> None:
    """Condition 10: an observation can miss the reader; the kernel's counters show the I/O."""
    volume = scene.claim()
    pod = scene.run_pod("worker-1")
    vm = scene.lab.nodes["worker-1"]
    device = str(scene.look("worker-1", volume).holder("worker-1")["device"])
    reader = scene.read_now_and_then("worker-1", device)
    with scene.lab.fault("worker-1", "NodeUnstage.unmap", "skip", volume=scene.handle(volume)):
        scene.workloads.delete("Pod", pod)
        scene.wait_detached(volume, "worker-1")
    refusal = wait_until(
        lambda: only_io_refuses(scene, volume), timeout_s=180, what="I/O alone to refuse it"
    )
    # An observation can see a read in flight: that is in the same sentence.
    assert re.search(r"reads went from \d+ to \d+.* between", refusal), refusal
    assert scene.reader_ended("worker-1") is None, "it was unmapped while it was read"
    scene.kill("worker-1", reader)

    def acts() -> list[tuple[str, str]]:
        found = json.loads(vm.get(f"/run/{scene.name}-state/acts.json"))["acts"]
        return [(act.get("outcome", ""), act.get("message", "")) for act in found]

    wait_until(
        lambda: "unmapped" in [outcome for outcome, _ in acts()[-1:]],
        timeout_s=180,
        what=f"{device} to be unmapped",
    )
    assert any(outcome == "refused" and "RBD510" in why for outcome, why in acts())


def only_io_refuses(scene: Scene, volume: str) -> str | None:
    """Return the reason of condition ten if no other condition refuses the unmap, else None."""
    decided = scene.unmap("worker-1", volume, *_READ_GRACE)
    assert decided["kind"] == "UnmapRefusal", decided
    if decided["codes"] != ["RBD510"]:
        return None
    return str(decided["conditions"][9]["observed"])


def test_reads_of_rbdagent_do_not_change_the_io_counters(scene: Scene) -> None:
    """Neither an observation nor the last open before the write changes the counters."""
    image = scene.in_tree_volume(formatted=True)
    device = scene.map_by_hand("worker-1", image)
    vm = scene.lab.nodes["worker-1"]
    path = f"/sys/block/{device.removeprefix('/dev/')}/stat"
    before = vm.get(path)
    scene.look("worker-1", device)
    scene.unmap("worker-1", device)
    assert last_check(vm, device, incarnation="diskseq:1") == _ANOTHER
    assert vm.get(path) == before


def test_image_mapped_by_an_administrator_is_never_unmapped(scene: Scene) -> None:
    """Condition 6: no PV, no stash, no name in a provisioner's format."""
    image = f"k8s/{scene.name}"
    scene.lab.ceph.create_image(image)
    device = scene.map_by_hand("worker-1", image)
    assert "by hand" in scene.refused("worker-1", device, "--grace-period", "1s")["RBD506"]


def test_unmap_needs_its_own_node_and_privileges(scene: Scene) -> None:
    """From worker-2 it refuses; without root it cannot see enough to plan."""
    volume = scene.claim()
    scene.leak_mapping("worker-1", volume, scene.run_pod("worker-1"))
    assert "only on its own node" in scene.refused("worker-2", volume)["RBD501"]
    less = ("setpriv", "--bounding-set=-all", "--inh-caps=-all")
    assert set(scene.refused("worker-1", volume, under=less)) >= {"RBD503", "RBD509"}
