"""Clients that can do no I/O any more, or do it unseen."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.e2e.life import Asked, wait_recognised
from tests.lab.lab import POOL
from tests.lab.workloads import claim, pod

if TYPE_CHECKING:
    from tests.e2e.scene import Scene


@pytest.mark.alone
def test_one_blocklist_entry_kills_every_volume_of_a_node(scene: Scene) -> None:
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
    address = scene.look("worker-2", first).holder("worker-2")["clientAddress"]

    scene.lab.ceph.ceph("osd", "blocklist", "add", address)
    scene.undo(lambda: scene.lab.ceph.ceph("osd", "blocklist", "rm", address))
    dead = scene.wait_verdict("worker-2", first, "Dead")
    assert scene.look("worker-2", second).verdict == "Dead"
    assert dead.holder("worker-2")["clientAddress"] == address
    assert "RBD103" in dead.codes
    text = str(dead)
    assert "/dev/rbd0" in text
    assert "/dev/rbd1" in text
    assert not any("blocklist rm" in each for each in dead.next)

    # 51: the kernel shares one client among all mappings of a node, so no new one works either.
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


def test_the_same_image_read_write_on_two_nodes_is_a_conflict(scene: Scene) -> None:
    """scenarios.md 32: an administrator maps what a pod uses elsewhere."""
    volume = scene.claim()
    scene.run_pod("worker-1")
    scene.map_by_hand("worker-2", f"{POOL}/{scene.image_of(volume).rpartition('/')[2]}")
    report = scene.look("worker-1", volume)
    assert report.verdict == "Conflict"
    assert report.exit_code == 3
    assert "RBD106" in report.codes
    assert {each["node"] for each in report.holders} == {"worker-1", "worker-2"}


def test_an_nbd_device_without_its_process_is_dead(scene: Scene) -> None:
    """scenarios.md 34, recording 20: sysfs keeps pid and backend; no process serves it.

    Its deletion takes five minutes of hanging I/O: what that leaves (52) is judged from recordings
    24, 28 and 30. An idle device the kernel clears away itself.
    """
    volume = scene.claim(storage_class="rbd-nbd")
    scene.run_pod("worker-2")
    alive = scene.look("worker-2", volume)
    holder = alive.holder("worker-2")
    assert alive.verdict == "InUse"
    assert holder["kind"] == "rbd-nbd"

    scene.kill_nbd("worker-2", scene.handle(volume))
    dead = scene.wait_verdict("worker-2", volume, "Dead")
    # The watch of its process lingers up to 30 s: that is a second line of the answer.
    mapped = [each for each in dead.holders if each["device"] == holder["device"]]
    assert [each["verdict"] for each in mapped] == ["Dead"]
    assert "RBD104" in dead.codes
    assert not any("unmap" in each for each in dead.next)


def test_two_clusters_with_equal_names_are_kept_apart(scene: Scene) -> None:
    """scenarios.md 37: the fsid tells them apart, also where pool and image are called alike."""
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
