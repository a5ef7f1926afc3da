"""Volumes in regular use, some of them by several clients for a good reason."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.lab.csi import static_volume
from tests.lab.lab import POOL
from tests.lab.workloads import claim, deployment, pod_spec

if TYPE_CHECKING:
    from tests.e2e.scene import Scene


def test_rolling_update_with_surge_blocks_itself(scene: Scene) -> None:
    """scenarios.md 2: the old pod runs, the new pod of the same owner waits on another node."""
    volume = scene.claim()
    old = pod_spec(node="worker-1", claims=[scene.name])
    scene.workloads.apply(deployment(scene.name, template=old, max_surge=1))
    scene.undo(lambda: scene.workloads.delete("Deployment", scene.name, wait=False))
    scene.wait_verdict("worker-1", volume, "InUse")

    new = pod_spec(node="worker-2", claims=[scene.name])
    scene.workloads.apply(deployment(scene.name, template=new, max_surge=1))
    waiting = scene.workloads.wait_pod_of(scene.name, "worker-2")
    event = scene.workloads.wait_event(waiting, reason="FailedAttachVolume")
    assert "Volume is already used by pod(s)" in event["message"]

    report = scene.look("worker-1", volume)
    assert report.verdict == "InUse"
    assert "RBD111" in report.codes
    assert any(
        "maxSurge" in finding["remedy"] + finding["message"] for finding in report.data["findings"]
    )


def test_block_volume_on_two_nodes_is_shared(scene: Scene) -> None:
    """scenarios.md 31: RWX block, two watchers, both legitimate (recording 24)."""
    volume = scene.claim(access_mode="ReadWriteMany", volume_mode="Block")
    first = scene.start_pod("worker-1", block=True)
    second = scene.start_pod("worker-2", block=True)
    scene.workloads.wait_running(first)
    scene.workloads.wait_running(second)

    report = scene.look("worker-1", volume)
    assert report.verdict == "Shared"
    assert "RBD114" in report.codes
    assert report.holder("worker-1")["confidence"] == "certain"
    assert report.holder("worker-2")["confidence"] == "probable"
    binds = {mount["kind"] for mount in report.holder("worker-1")["mounts"]}
    assert binds == {"device-bind"}


def test_read_only_mapping_without_watcher_is_in_use(scene: Scene) -> None:
    """A static ROX volume (recording 24): mapped read-only, no watcher, and still InUse."""
    image = f"{scene.name}-image"
    scene.lab.ceph.create_image(f"{POOL}/{image}")
    scene.undo(lambda: scene.lab.ceph.rbd("rm", "--no-progress", f"{POOL}/{image}"))
    scene.format_image("worker-1", f"{POOL}/{image}")
    volume = static_volume(scene.name, pool=POOL, image=image, access_mode="ReadOnlyMany")
    scene.workloads.apply(volume)
    scene.undo(lambda: scene.workloads.delete("PersistentVolume", scene.name, wait=False))
    scene.workloads.apply(
        claim(scene.name, storage_class="", access_mode="ReadOnlyMany", volume_name=scene.name)
    )
    scene.undo(lambda: scene.workloads.delete("PersistentVolumeClaim", scene.name, wait=False))
    scene.workloads.wait_bound(scene.name)
    scene.run_pod("worker-1", read_only=True)

    report = scene.look("worker-1", scene.name)
    holder = report.holder("worker-1")
    assert report.verdict == "InUse"
    assert holder["readOnly"]
    assert holder["watcher"] is None


def test_client_outside_the_cluster_is_foreign(scene: Scene) -> None:
    """scenarios.md 18 and 33: a librbd client whose address no Node has and no agent reports."""
    volume = scene.claim()
    image = scene.image_of(volume)
    with scene.librbd_client(image):
        report = scene.look("worker-1", volume)
    assert report.verdict == "Foreign"
    assert "RBD115" in report.codes
    holder = report.holder(None)
    assert holder["confidence"] == "unknown"
    assert holder["clientAddress"].startswith(f"{scene.lab.ceph.host}:")
    assert not any("unmap" in command for command in report.next)


def test_images_in_two_rados_namespaces_are_distinguished(scene: Scene) -> None:
    """scenarios.md 38: the same image name in two namespaces is two images."""
    volume = scene.claim(storage_class="rbd-namespace")
    scene.run_pod("worker-1")
    report = scene.look("worker-1", volume)
    image = report.data["image"]
    assert image["radosNamespace"] == "tenant"
    assert report.verdict == "InUse"

    twin = f"{POOL}/{image['name']}"
    scene.lab.ceph.create_image(twin)
    scene.undo(lambda: scene.lab.ceph.rbd("rm", "--no-progress", twin))
    assert scene.look("worker-1", twin).holders == []


def test_migrated_volume_is_found_by_both_names(scene: Scene) -> None:
    """scenarios.md 39: an in-tree PV that a CSI driver serves under another handle."""
    image = scene.in_tree_volume()
    scene.map_by_hand("worker-1", image)

    by_name = scene.look("worker-1", scene.name)
    by_image = scene.look("worker-1", image)
    assert by_name.holder("worker-1")["device"] == by_image.holder("worker-1")["device"]
    assert by_image.data["target"]["persistentVolume"] == scene.name
