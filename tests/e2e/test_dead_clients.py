"""Clients that can do no more I/O, or whose I/O no watch shows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.e2e.life import Asked, wait_recognised
from tests.lab.lab import POOL
from tests.lab.workloads import claim, pod

if TYPE_CHECKING:
    from tests.e2e.scene import Scene


@pytest.mark.alone
def test_blocklist_entry_makes_all_volumes_of_a_node_dead(scene: Scene) -> None:
    """scenarios.md 19, 20, 50, 51, recordings 23 and 30: Dead, then lifted: Unwatched."""
    first = scene.claim()
    scene.workloads.apply(claim(f"{scene.name}-2"))
    second = scene.workloads.wait_bound(f"{scene.name}-2")
    scene.undo(
        lambda: scene.workloads.delete("PersistentVolumeClaim", f"{scene.name}-2", wait=False)
    )
    scene.start_pod("worker-2")
    scene.workloads.apply(pod(f"{scene.name}-b", node="worker-2", claims=[f"{scene.name}-2"]))
    scene.undo(lambda: scene.workloads.delete("Pod", f"{scene.name}-b"))
    scene.workloads.wait_running(f"{scene.name}-worker-2")
    scene.workloads.wait_running(f"{scene.name}-b")

    address = scene.fence("worker-2", scene.look("worker-2", first).holder("worker-2"))
    dead = scene.wait_verdict("worker-2", first, "Dead")
    assert scene.look("worker-2", second).verdict == "Dead"
    assert dead.holder("worker-2")["clientAddress"] == address
    assert "RBD103" in dead.codes
    text = str(dead)
    assert "/dev/rbd0" in text
    assert "/dev/rbd1" in text
    assert not any("blocklist rm" in command for command in dead.next)
    with scene.agent("worker-2"):
        scene.assert_same_elsewhere(first, "worker-2", "Dead")

    # 51: the kernel shares one client among all mappings of a node, so a new mapping fails too.
    scene.claim("-3")
    late = scene.start_pod("worker-2", "-late", claim_suffix="-3")
    event = scene.workloads.wait_event(late, reason="FailedMount", contains="108")
    assert "map failed" in event["message"]
    asked = Asked(f"pod/default/{late}", "worker-2")
    wait_recognised(scene, "map_on_a_blocklisted_client", asked)

    scene.lab.ceph.ceph("osd", "blocklist", "rm", address)
    unwatched = scene.wait_verdict("worker-2", first, "Unwatched")
    assert unwatched.exit_code == 3
    assert "RBD105" in unwatched.codes
    assert unwatched.holder("worker-2")["watcher"] is None


def test_image_read_write_on_two_nodes_is_a_conflict(scene: Scene) -> None:
    """scenarios.md 32: an administrator maps an image on another node that a pod uses."""
    volume = scene.claim()
    scene.run_pod("worker-1")
    scene.map_by_hand("worker-2", f"{POOL}/{scene.image_of(volume).rpartition('/')[2]}")
    report = scene.look("worker-1", volume)
    assert report.verdict == "Conflict"
    assert report.exit_code == 3
    assert "RBD106" in report.codes
    assert {holder["node"] for holder in report.holders} == {"worker-1", "worker-2"}


def test_nbd_device_without_its_process_is_dead(scene: Scene) -> None:
    """scenarios.md 34, recording 20: sysfs keeps pid and backend; no process serves it.

    Deleting its pod takes five minutes of hanging I/O. The state after that (52) is judged from
    recordings 24, 28 and 30. The kernel removes an idle device automatically.
    """
    volume = scene.claim(storage_class="rbd-nbd")
    scene.run_pod("worker-2")
    alive = scene.look("worker-2", volume)
    holder = alive.holder("worker-2")
    assert alive.verdict == "InUse"
    assert holder["kind"] == "rbd-nbd"

    scene.kill_nbd("worker-2", scene.handle(volume))
    dead = scene.wait_verdict("worker-2", volume, "Dead")
    # The watch of its process remains for up to 30 s: that is a second line of the answer.
    mapped = [other for other in dead.holders if other["device"] == holder["device"]]
    assert [nbd["verdict"] for nbd in mapped] == ["Dead"]
    assert "RBD104" in dead.codes
    assert not any("unmap" in command for command in dead.next)


def test_clusters_with_equal_names_are_distinguished(scene: Scene) -> None:
    """scenarios.md 37: the fsid distinguishes them, even if pool and image have the same names."""
    volume = scene.claim()
    scene.run_pod("worker-1")
    image = scene.image_of(volume)
    second = scene.lab.start_second_cluster()
    scene.undo(lambda: scene.lab.stop_cluster(second))
    second.create_image(image)
    node = scene.lab.nodes["worker-1"]
    for path, data in second.files("rbdagent").items():
        node.put(path.replace("/etc/ceph/", "/etc/ceph/second/"), data, mode=0o600)
    node.put(
        "/etc/rbdagent/two.toml",
        (
            b'node-name = "worker-1"\nkubeconfig = "/etc/rbdagent/kubeconfig"\n'
            b'[[ceph]]\nname = "first"\nconf = "/etc/ceph/ceph.conf"\n'
            b'[[ceph]]\nname = "second"\nconf = "/etc/ceph/second/ceph.conf"\n'
            b'keyring = "/etc/ceph/second/ceph.client.rbdagent.keyring"\n'
        ),
    )
    report = scene.look("worker-1", volume, "--config", "/etc/rbdagent/two.toml")
    assert report.verdict == "InUse"
    assert report.data["image"]["fsid"] == scene.lab.ceph.fsid
    assert len(report.holders) == 1
