"""Lost nodes, controllers that lag, and what stays behind in Ceph and in the kernel."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.e2e.life import Asked, wait_recognised
from tests.lab.lab import POOL
from tests.lab.processes import wait_until
from tests.lab.workloads import RETRIED_S, collection

if TYPE_CHECKING:
    from tests.e2e.scene import Report, Scene

Json = dict[str, Any]
_LOST: Final = "worker-1"
_ASKED: Final = "worker-2"
_NODE: Final = f"{collection('Node')}/{_LOST}"
_OUT_OF_SERVICE: Final = "node.kubernetes.io/out-of-service"
_TAINT: Final = {"key": _OUT_OF_SERVICE, "value": "nodeshutdown", "effect": "NoExecute"}
_GRACE_MINUTES: Final = 11


def _wait_watched(scene: Scene, volume: str, *, watched: bool) -> Report:
    """Wait until Ceph lists a watch of the lost node, or none; return that answer."""

    def seen() -> Report | None:
        report = scene.look(_ASKED, volume)
        found = [one["watcher"] for one in report.holders if one["node"] == _LOST]
        return report if found and all(bool(one) is watched for one in found) else None

    what = f"Ceph to list {'a' if watched else 'no'} watch of {_LOST}"
    return wait_until(seen, timeout_s=90, what=what, interval_s=3)


@pytest.mark.alone
def test_tainted_node_comes_back_with_its_mappings(scene: Scene) -> None:
    """scenarios.md 17 and 23: cut off, tainted without proof, back, and rebooted as advised."""
    volume = scene.claim()
    pod = scene.run_pod(_LOST)
    vm = scene.lab.nodes[_LOST]
    # Like a hung server before a late unstage: the mapping stays.
    step, handle = "NodeUnstage.unmap", scene.handle(volume)
    scene.lab.set_fault(_LOST, step, "error", message="busy", volume=handle)
    scene.undo(lambda: scene.lab.clear_fault(_LOST, step, volume=handle))
    kubelet = vm.service("kubelet")
    kubelet.stop()
    vm.cut()
    scene.undo(kubelet.start)
    scene.undo(vm.mend)
    scene.workloads.wait_node_ready(_LOST, ready=False)

    gone = _wait_watched(scene, volume, watched=False)
    assert gone.verdict == "NodeDown"
    finding = gone.finding("RBD113")
    assert "Ceph lists no watch of that node" in finding["message"]
    assert "Prove that the machine is off, then set the out-of-service taint" in finding["message"]
    assert f"2. Power {_LOST} off. 3. Only then: kubectl taint node {_LOST}" in finding["remedy"]
    assert not any("unmap" in command for command in gone.next)

    api = scene.lab.control_plane.api
    api.patch(_NODE, {"spec": {"taints": [_TAINT]}})
    scene.undo(lambda: api.patch(_NODE, {"spec": {"taints": None}}))
    scene.wait_detached(volume, _LOST)
    scene.workloads.wait_gone("Pod", pod)
    vm.mend()
    alive = _wait_watched(scene, volume, watched=True)
    assert alive.verdict == "NodeDown"
    finding = alive.finding("RBD113")
    assert " is alive" in finding["message"]
    assert ": that machine runs and may write. Do not detach by force" in finding["message"]
    assert f"{_LOST} already has the out-of-service taint" in finding["message"]

    kubelet.start()
    scene.workloads.wait_node_ready(_LOST)
    for node in (_LOST, _ASKED):
        dirty = scene.wait_verdict(node, volume, "ReturnedDirty")
        finding = dirty.finding("RBD107")
        assert dirty.exit_code == 3
        assert finding["severity"] == "critical"
        assert f"{_LOST} was taken out of service, but it runs" in finding["message"]
        assert not any("unmap" in command for command in dirty.next)
    refused = scene.refused(_LOST, volume)
    assert refused

    vm.reboot()
    vm.wait_until_ready()
    clean = scene.look(_LOST, volume)
    assert all(one["device"] is None for one in clean.holders)
    api.patch(_NODE, {"spec": {"taints": None}})
    scene.workloads.wait_node_ready(_LOST)


@pytest.mark.alone
def test_stale_attachment_needs_no_unmap(scene: Scene) -> None:
    """scenarios.md 28 (kubernetes#131410): the node is clean, but the attachment remains.

    A controller with a stale cached state behaves like a stopped one: it does nothing. A restart
    fixes it.
    """
    volume = scene.claim()
    pod = scene.run_pod(_LOST)
    handle = scene.handle(volume)
    with scene.lab.control_plane.controller_manager_stopped():
        scene.workloads.delete("Pod", pod)
        wait_until(
            lambda: not any(handle in name for name in _volumes_in_use(scene)),
            timeout_s=RETRIED_S,
            what=f"kubelet to list {handle} no more",
            interval_s=0.5,
        )
        young = scene.look(_LOST, volume)
        old = scene.aged(_LOST, volume, minutes=_GRACE_MINUTES)
    assert scene.workloads.attachments(volume)
    assert young.verdict == "Staged"
    assert old.verdict == "StaleAttachment"
    finding = old.finding("RBD408")
    assert "An unmap will not help" in finding["message"]
    assert not any("unmap" in command for command in old.next)
    scene.wait_detached(volume, _LOST)


def _volumes_in_use(scene: Scene) -> list[str]:
    found: list[str] = scene.lab.control_plane.api.get(_NODE)["status"].get("volumesInUse", [])
    return found


def test_user_without_blocklist_cap_cannot_break_a_lock(scene: Scene) -> None:
    """scenarios.md 22 (ceph-csi#5150): the owner of the exclusive lock is dead, and keeps it.

    rbd_try_lock (drivers/block/rbd.c) adds the owner to the blocklist before it breaks the lock.
    Monitors allow that with `profile rbd`, and not with `allow r`.
    """
    image = scene.image(scene.name, formatted=True)
    path = f"{POOL}/{image}"
    scene.lab.ceph.rbd("feature", "enable", path, "exclusive-lock")
    # A separate client: other mappings share the node's client.
    device = scene.map_by_hand(_ASKED, path, "-o", "noshare")
    owner = scene.lab.nodes[_ASKED].get(
        f"/sys/bus/rbd/devices/{device.removeprefix('/dev/rbd')}/client_addr"
    )
    address = owner.decode().strip()
    scene.lab.ceph.ceph("osd", "blocklist", "add", address)
    scene.undo(lambda: scene.lab.ceph.ceph("osd", "blocklist", "rm", address))

    scene.lab.ceph.create_user(scene.name, {"mon": "allow r", "osd": "profile rbd"})
    scene.undo(lambda: scene.lab.ceph.ceph("auth", "rm", f"client.{scene.name}"))
    secret = scene.secret(user=scene.name, key=scene.lab.ceph.key_of(scene.name))
    scene.volume_by_hand(
        image=image,
        attributes={"imageFeatures": "layering,exclusive-lock"},
        source={"nodeStageSecretRef": secret},
    )
    pod = scene.start_pod(_LOST)
    scene.workloads.wait_event(pod, reason="FailedMount", contains="map failed: (13)")
    kernel = scene.lab.nodes[_LOST].run(["dmesg"]).stdout
    assert "failed to blocklist client" in kernel
    wait_recognised(scene, "lock_of_a_dead_client", Asked(f"pod/default/{pod}", _LOST, there=True))

    scene.lab.ceph.ceph(
        *("auth", "caps", f"client.{scene.name}", "mon", "profile rbd", "osd", "profile rbd")
    )
    scene.workloads.wait_running(pod)


def test_old_kubelet_lock_is_reported_with_removal_command(scene: Scene) -> None:
    """scenarios.md 29 (kubernetes#31790): in-tree RBD took such a lock, and a crash left it."""
    image = scene.image(scene.name)
    path = f"{POOL}/{image}"
    scene.lab.ceph.rbd("lock", "add", path, "kubelet_lock_magic_worker-9")
    volume = scene.volume_by_hand(image=image)
    finding = scene.look(_ASKED, volume).finding("RBD303")
    _, _, rest = finding["remedy"].partition("remove exactly that one: rbd ")
    command, _, _ = rest.partition(". If the lock")
    scene.lab.ceph.rbd(*shlex.split(command))
    assert "RBD303" not in scene.look(_ASKED, volume).codes


def test_image_deleted_while_mapped_is_reported_with_device(
    scene: Scene,
) -> None:
    """scenarios.md 16 (rook#8741): a read-only mapping has no watch, so rbd removes the image."""
    path = f"{POOL}/{scene.name}"
    scene.lab.ceph.create_image(path)
    # Not a static PV: its RADOS namespace would be the one of its clusterID.
    named = {"staticVolume": "false", "imageName": scene.name}
    volume = scene.volume_by_hand(image=scene.name, attributes=named)
    device = scene.map_and_leave(_ASKED, path, "-o", "ro")
    scene.lab.ceph.rbd("rm", "--no-progress", path)
    report = scene.look(_ASKED, volume)
    finding = report.finding("RBD301")
    assert f"{device} on {_ASKED} still maps it" in finding["message"]
    assert report.verdict != "Free"
    scene.lab.nodes[_ASKED].run(["rbd", "unmap", "-o", "noudev", device])


def test_file_system_kept_only_by_the_kernel_pins_the_device(scene: Scene) -> None:
    """scenarios.md 9 (incus#1087): lazily unmounted, and no process has a file of it open.

    The layer of an overlay is a private mount in no namespace (clone_private_mount of the kernel,
    fs/namespace.c): no mountinfo has the device, and it stays busy.
    """
    volume = scene.claim()
    pod = scene.run_pod(_ASKED)
    mount, vm = scene.mount_of(pod, volume), scene.lab.nodes[_ASKED]
    overlay = f"/run/{scene.name}-overlay"
    vm.run(f"mkdir -p {overlay} && mount -t overlay -o lowerdir={mount}:/run none {overlay}")
    scene.undo(lambda: vm.run(["umount", overlay]))
    vm.run(["umount", "-l", mount])
    scene.workloads.delete("Pod", pod)

    report = scene.wait_verdict(_ASKED, volume, "Pinned")
    holder = report.holder(_ASKED)
    assert (holder["mounts"], holder["openedBy"]) == ([], [])
    finding = report.finding("RBD102")
    assert not any("force" in given["command"] for given in finding["commands"])


@pytest.mark.alone
def test_container_writing_to_the_node_disk_is_not_backed(scene: Scene) -> None:
    """scenarios.md 12 (ceph-csi#4762), recording 26: unmounted by hand, and the container restarts.

    kubelet gives the new container the directory below the former mount.
    """
    volume = scene.claim()
    pod = scene.run_pod(_ASKED)
    vm = scene.lab.nodes[_ASKED]
    vm.run(["umount", scene.mount_of(pod, volume)])
    mounts = scene.look(_ASKED, volume).holder(_ASKED)["mounts"]
    inside = {one["mountNamespaceOf"]["pid"] for one in mounts if one["mountNamespaceOf"]["pod"]}
    vm.run(["kill", "-KILL", *map(str, inside)])

    report = scene.wait_verdict(_ASKED, volume, "NotBacked")
    finding = report.finding("RBD108")
    assert report.exit_code == 3
    assert "Do not delete the pod: that destroys the data that it wrote" in finding["message"]
    assert report.next[0].endswith("/root ./data")
    with scene.agent(_ASKED):
        scene.assert_same_elsewhere(volume, _ASKED, "NotBacked")
