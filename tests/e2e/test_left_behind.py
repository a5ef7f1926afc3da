"""Mappings of which Kubernetes has no record, or that something on the node keeps."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.e2e.life import Asked, wait_recognised
from tests.lab.processes import wait_until
from tests.lab.workloads import RETRIED_S

if TYPE_CHECKING:
    from tests.e2e.scene import Report, Scene

_GRACE_MINUTES = 11


def test_bind_mount_in_another_namespace_pins_the_device(scene: Scene) -> None:
    """scenarios.md 3 and 4, recording 09b: repeated EBUSY, and no mount on the host."""
    volume = scene.claim()
    pod = scene.run_pod("worker-1")
    pin = scene.pin_by_bind("worker-1", scene.mount_of(pod, volume))
    scene.workloads.delete("Pod", pod)

    report = scene.wait_verdict("worker-1", volume, "Pinned")
    holder = report.holder("worker-1")
    assert pin in [mount["mountNamespaceOf"]["pid"] for mount in holder["mounts"]]
    assert "RBD102" in report.codes
    plugin = scene.lab.nodes["worker-1"].service("csi")
    # The first unmap may come after the pod is gone: kubelet unstages when it next reconciles.
    wait_until(
        lambda: "Device or resource busy" in plugin.logs(),
        timeout_s=RETRIED_S,
        what="the plugin to be refused by the kernel",
        interval_s=1,
    )


@pytest.mark.alone
def test_leftover_staging_mount_is_an_orphan_after_a_delay(scene: Scene) -> None:
    """scenarios.md 5, recording 18 (kubernetes#121937): staged, without a record in kubelet."""
    volume = scene.claim()
    pod = scene.run_pod("worker-1")
    step = "NodeUnstage.umount"
    with scene.lab.fault(
        "worker-1", step, "error", message="target is busy", volume=scene.handle(volume)
    ):
        scene.workloads.delete("Pod", pod)
        scene.lab.nodes["worker-1"].service("kubelet").restart()
        scene.wait_detached(volume, "worker-1")
    young = scene.look("worker-1", volume)
    assert young.verdict == "Staged"
    assert young.holder("worker-1")["mounts"]

    old = scene.aged("worker-1", volume, minutes=_GRACE_MINUTES)
    assert old.verdict == "Orphaned"
    assert "RBD110" in old.codes
    assert not any(command.startswith("rbd unmap") for command in old.next[:1])
    scene.clean_mapping("worker-1", old.holder("worker-1"))


def test_mapping_leaked_by_failed_rollback_is_an_orphan(scene: Scene) -> None:
    """scenarios.md 7, recording 25: no stash, no staging directory, no attachment."""
    volume = scene.claim()
    handle = scene.handle(volume)
    # ceph-csi writes the error of mkfs to its log; kubelet shows only this.
    error = "exit status 1"
    scene.lab.set_fault("worker-1", "NodeStage.mkfs", "error", message=error, volume=handle)
    scene.lab.set_fault("worker-1", "NodeStage.rollback-unmap", "skip", volume=handle)
    pod = scene.start_pod("worker-1")
    scene.workloads.wait_event(pod, reason="FailedMount", contains=error)
    scene.workloads.delete("Pod", pod)
    scene.wait_detached(volume, "worker-1")
    scene.lab.clear_fault("worker-1", "NodeStage.mkfs", volume=handle)
    scene.lab.clear_fault("worker-1", "NodeStage.rollback-unmap", volume=handle)

    report = scene.wait_verdict("worker-1", volume, "Orphaned")
    assert "RBD101" in report.codes
    scene.clean_mapping("worker-1", report.holder("worker-1"))


def test_lazily_unmounted_file_system_pins_the_device(scene: Scene) -> None:
    """scenarios.md 9 in its nearest form, recording 22: `umount -l` with a file open."""
    # mkfs.xfs fails below 300 MiB.
    volume = scene.claim(storage_class="rbd-xfs", size="320Mi")
    pod = scene.run_pod("worker-1")
    mount = scene.mount_of(pod, volume)
    pin = scene.hold_file_open("worker-1", f"{mount}/held")
    scene.lab.nodes["worker-1"].run(["umount", "-l", mount])
    scene.workloads.delete("Pod", pod)

    report = scene.wait_verdict("worker-1", volume, "Pinned")
    holder = report.holder("worker-1")
    assert holder["mounts"] == []
    assert pin in [opener["pid"] for opener in holder["openedBy"]]


def test_open_luks_device_pins_the_device(scene: Scene) -> None:
    """scenarios.md 14, recording 21: a process has the dm child open."""
    volume = scene.claim(storage_class="rbd-luks")
    pod = scene.run_pod("worker-1")
    running = scene.look("worker-1", volume)
    held = running.holder("worker-1")["heldBy"]
    assert running.verdict == "InUse"
    assert [device["kind"] for device in held] == ["luks"]
    assert held[0]["label"] == f"luks-rbd-{scene.handle(volume)}"

    pin = scene.hold_open("worker-1", f"/dev/mapper/{held[0]['label']}")
    scene.workloads.delete("Pod", pod)
    report = scene.wait_verdict("worker-1", volume, "Pinned")
    assert pin in [opener["pid"] for opener in report.holder("worker-1")["openedBy"]]
    assert "RBD102" in report.codes


@pytest.mark.alone
def test_container_of_a_force_deleted_pod_is_still_in_use(scene: Scene) -> None:
    """scenarios.md 44 and 47, recording 05: force delete while kubelet is down."""
    volume = scene.claim()
    pod = scene.run_pod("worker-1")
    uid = scene.uid(pod)
    kubelet = scene.lab.nodes["worker-1"].service("kubelet")
    kubelet.stop()
    try:
        scene.workloads.force_delete(pod)
        scene.workloads.wait_gone("Pod", pod)
        report = scene.look("worker-1", volume)
        refused = scene.refused("worker-1", volume)
    finally:
        kubelet.start()
    holder = report.holder("worker-1")
    assert report.verdict == "InUse"
    assert "the API server has no such pod" in refused["RBD505"]
    assert holder["pods"] == []
    assert any(uid in str(mount["mountNamespaceOf"]["pod"]) for mount in holder["mounts"])
    (lost,) = (found for found in report.data["findings"] if found["code"] == "RBD109")
    assert f"its pod ({uid}) is no longer in the API: it was force-deleted" in lost["message"]
    assert lost["commands"][0]["command"].startswith("systemctl start kubelet")
    assert not any("unmap" in command for command in report.next)


@pytest.mark.alone
def test_dead_plugin_leaves_the_volume_staged(scene: Scene) -> None:
    """scenarios.md 48, recording 15: the pod hangs, both mounts stay, the driver must run again."""
    volume = scene.claim()
    pod = scene.run_pod("worker-1")
    csi = scene.lab.nodes["worker-1"].service("csi")
    csi.stop()
    try:
        scene.workloads.delete("Pod", pod, wait=False)
        report = scene.wait_verdict("worker-1", volume, "Staged")
        asked = Asked(f"pod/default/{pod}", "worker-1", there=True)
        wait_recognised(scene, "plugin_that_does_not_run", asked)
    finally:
        csi.start()
    assert any("driver" in reason for reason in report.holder("worker-1")["reasons"])
    scene.workloads.wait_gone("Pod", pod)


@pytest.mark.alone
def test_kernel_without_the_module_is_recognised(scene: Scene) -> None:
    """The module is unloaded, and modprobe finds none: a kernel update without a reboot.

    The driver runs; at its start it has read the features that krbd supports. A restart would end
    it.
    """
    vm = scene.lab.nodes["worker-1"]
    wait_until(
        lambda: not vm.run("ls /sys/bus/rbd/devices").stdout.split(),
        timeout_s=RETRIED_S,
        what="every mapping on worker-1 to be gone",
    )
    vm.run("modprobe -r rbd && mount -t tmpfs none /lib/modules/$(uname -r)")
    scene.undo(lambda: vm.run("umount /lib/modules/$(uname -r) && modprobe rbd"))
    scene.claim()
    pod = scene.start_pod("worker-1")
    scene.workloads.wait_event(pod, reason="FailedMount", contains="Module rbd not found")
    asked = Asked(f"pod/default/{pod}", "worker-1", there=True)
    wait_recognised(scene, "kernel_without_the_module", asked)


@pytest.mark.alone
def test_hanging_stage_is_reported(scene: Scene) -> None:
    """scenarios.md 15: a call hangs, and each retry reports that an operation already exists."""
    volume = scene.claim()
    with scene.lab.fault("worker-1", "NodeStage.after-map", "hang", volume=scene.handle(volume)):
        pod = scene.start_pod("worker-1")
        wait_until(
            lambda: any(holder["device"] for holder in scene.look("worker-1", volume).holders),
            timeout_s=90,
            what="the image to be mapped",
        )
        # kubelet's timeout for a call is two minutes; after a restart it retries at once.
        scene.lab.nodes["worker-1"].service("kubelet").restart()
        scene.workloads.wait_event(pod, reason="FailedMount", contains="already exists")
        wait_recognised(
            scene, "stage_that_hangs", Asked(f"pod/default/{pod}", "worker-1", there=True)
        )
        report = scene.look("worker-1", volume)
        assert report.verdict == "Staged"
        assert report.holder("worker-1")["device"]
        assert "already exists" in str(report), "the event is part of the answer"
    scene.workloads.wait_running(pod)


def test_transient_watch_of_waiting_node_is_no_second_writer(
    scene: Scene,
) -> None:
    """scenarios.md 49, recording 13: ceph-csi's own in-use check, next to the pod that holds it."""
    volume = scene.claim()
    scene.run_pod("worker-1")
    scene.start_pod("worker-2")
    with scene.flashing_client("worker-2", scene.image_of(volume)):

        def seen() -> Report | None:
            report = scene.look("worker-1", volume)
            return (
                report if any(holder["node"] == "worker-2" for holder in report.holders) else None
            )

        report = wait_until(seen, timeout_s=120, what="the client on worker-2 to be seen")
    assert report.verdict == "InUse"
    assert report.codes.isdisjoint({"RBD106", "RBD110"})
    (there,) = {holder["verdict"] for holder in report.holders if holder["node"] == "worker-2"}
    assert there == "Foreign"


def test_deleted_claim_waits_for_its_orphan(scene: Scene) -> None:
    """scenarios.md 42, recording 28: Released, VolumeFailedDelete, and its holder."""
    volume = scene.claim()
    pod = scene.run_pod("worker-1")
    handle = scene.handle(volume)
    scene.lab.set_fault("worker-1", "NodeUnstage.unmap", "skip", volume=handle)
    scene.workloads.delete("Pod", pod)
    scene.wait_detached(volume, "worker-1")
    scene.lab.clear_fault("worker-1", "NodeUnstage.unmap", volume=handle)
    scene.workloads.delete("PersistentVolumeClaim", scene.name)
    scene.workloads.wait_event(volume, reason="VolumeFailedDelete", contains="still being used")
    report = scene.wait_verdict("worker-1", volume, "Orphaned")
    assert {"RBD101", "RBD641"} <= report.codes
    scene.clean_mapping("worker-1", report.holder("worker-1"))
    wait_until(
        lambda: scene.workloads.find("PersistentVolume", volume) is None,
        timeout_s=60,
        what="the PV to go once its image is free",
    )
