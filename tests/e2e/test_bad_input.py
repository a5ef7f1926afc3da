"""Bad input and a broken environment on real parts: errors are reported, never "not in use"."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.e2e.scene import Report
from tests.lab.lab import POOL
from tests.lab.workloads import DRIVER, claim

if TYPE_CHECKING:
    from tests.e2e.scene import Scene
    from tests.lab.api import Json
    from tests.lab.vm import Completed

_NODE = "worker-1"


def ask(scene: Scene, *arguments: str) -> Completed:
    """Run `who-holds` on a node; its output must never be a traceback."""
    done = scene.lab.rbdagent_warm(_NODE, "who-holds", *arguments)
    assert "Traceback" not in done.stderr
    assert "defect" not in done.stderr
    return done


def static_volume(scene: Scene, source: Json) -> str:
    """Create a PV by hand and return its name."""
    name = f"{scene.name}-static"
    scene.workloads.apply(
        {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": name},
            "spec": {
                "capacity": {"storage": "64Mi"},
                "accessModes": ["ReadWriteOnce"],
                "persistentVolumeReclaimPolicy": "Retain",
                "claimRef": {"namespace": "default", "name": f"{name}-missing"},
                **source,
            },
        }
    )
    scene.undo(lambda: scene.workloads.delete("PersistentVolume", name, wait=False))
    return name


def csi_source(handle: str, **attributes: str) -> Json:
    """Return a PV's source as ceph-csi's provisioner writes it."""
    return {"csi": {"driver": DRIVER, "volumeHandle": handle, "volumeAttributes": attributes}}


def test_missing_volume_is_not_reported_as_free(scene: Scene) -> None:
    done = ask(scene, "pvc-00000000-no-such-volume", "-o", "json")
    assert done.exit_code == 1
    assert done.stdout == ""
    assert "no such PersistentVolume" in done.stderr


def test_misspelled_target_suggests_the_right_name(scene: Scene) -> None:
    volume = scene.claim()
    done = ask(scene, volume[:-2])
    assert done.exit_code == 1
    assert f"did you mean pv/{volume}" in done.stderr
    claimed = ask(scene, f"pvc/default/{scene.name}x")
    assert f"pvc/{scene.name}" in claimed.stderr


def test_volume_of_another_driver_gets_no_verdict(scene: Scene) -> None:
    name = static_volume(scene, {"hostPath": {"path": "/nowhere"}})
    report = scene.look(_NODE, name)
    assert report.verdict == "Undetermined"
    assert "RBD407" in report.codes
    assert "hostPath" in str(report)
    assert report.data["sources"]["ceph"]["state"] == "skipped"


def test_volume_without_its_image_reports_the_missing_image(scene: Scene) -> None:
    name = static_volume(
        scene,
        csi_source(
            "0001-0003-lab-0000000000000001-00000000-dead-4000-8000-000000000000",
            pool=POOL,
            imageName="csi-vol-00000000-dead-4000-8000-000000000000",
        ),
    )
    report = scene.look(_NODE, name)
    assert report.verdict != "Free"
    assert report.exit_code == 3
    (finding,) = [
        candidate for candidate in report.data["findings"] if candidate["code"] == "RBD301"
    ]
    assert "does not exist in cluster" in finding["message"]


def test_unbound_claim_reports_why_it_has_no_image(scene: Scene) -> None:
    name = f"{scene.name}-unbound"
    scene.workloads.apply(claim(name, storage_class="no-such-class"))
    scene.undo(lambda: scene.workloads.delete("PersistentVolumeClaim", name, wait=False))
    report = scene.look(_NODE, f"pvc/default/{name}")
    assert report.data["image"] is None
    assert report.verdict == "Undetermined"
    assert "Pending" in str(report)


def test_malformed_volume_handle_is_quoted_with_the_format(scene: Scene) -> None:
    name = static_volume(scene, csi_source("not-a-handle"))
    report = scene.look(_NODE, name)
    assert report.verdict == "Undetermined"
    assert "not-a-handle" in str(report)


@pytest.mark.parametrize(
    ("user", "words"),
    [("expired", "401 Unauthorized"), ("stranger", "forbidden")],
)
def test_refused_credentials_fail_only_that_source(scene: Scene, user: str, words: str) -> None:
    volume = scene.claim()
    path = f"/run/{user}.kubeconfig"
    scene.lab.nodes[_NODE].put(path, scene.lab.control_plane.kubeconfig(user).read_bytes(), 0o600)
    done = ask(scene, volume, "-o", "json", "--kubeconfig", path)
    report = Report(json.loads(done.stdout), done.exit_code).data
    assert done.exit_code == 1
    assert report["verdict"] == "Undetermined"
    assert report["sources"]["kubernetes"]["state"] == "failed"
    assert words in report["sources"]["kubernetes"]["reason"]
    assert report["sources"]["node"]["state"] == "observed"


def test_missing_kubeconfig_is_named(scene: Scene) -> None:
    volume = scene.claim()
    done = ask(scene, volume, "--kubeconfig", "/none/kubeconfig")
    assert done.exit_code == 1
    assert "/none/kubeconfig: no such file" in done.stdout


@pytest.mark.alone
def test_refused_resource_is_a_gap_without_a_verdict(scene: Scene) -> None:
    """The API server returns 403 only for pods: no volume may be reported as unused."""
    volume = scene.claim()
    scene.run_pod(_NODE)
    with scene.without_right("pods"):
        report = scene.look(_NODE, volume)
    kubernetes = report.data["sources"]["kubernetes"]
    assert kubernetes["state"] == "observed"
    assert "pods" in {gap["fact"] for gap in kubernetes["gaps"]}
    assert report.verdict in {"InUse", "Undetermined"}
    assert "docs/privileges.md" in str(kubernetes)


@pytest.mark.alone
def test_unreachable_cluster_is_not_observed_after_the_timeout(scene: Scene) -> None:
    volume = scene.claim()
    vm = scene.lab.nodes["worker-2"]
    vm.cut()
    scene.undo(vm.mend)
    done = scene.lab.rbdagent("worker-2", "who-holds", volume, "-o", "json", "--timeout", "4s")
    vm.mend()
    report = Report(json.loads(done.stdout), done.exit_code).data
    assert done.exit_code == 1
    assert report["verdict"] == "Undetermined"
    assert report["sources"]["ceph"]["state"] != "observed"
    assert report["sources"]["kubernetes"]["state"] == "failed"
    scene.workloads.wait_node_ready("worker-2")


def test_node_without_the_module_certainly_has_no_mapping(scene: Scene) -> None:
    """The VM's real sysfs, without the rbd bus."""
    volume = scene.claim()
    vm = scene.lab.nodes[_NODE]
    vm.run("mkdir -p /run/no-module/kernel /run/no-module/block")
    done = ask(scene, volume, "-o", "json", "--sysfs", "/run/no-module")
    report = Report(json.loads(done.stdout), done.exit_code).data
    assert report["sources"]["node"]["state"] == "observed"
    # No agent reports from worker-2: this alone keeps the volume from being reported as free.
    (unseen,) = (found for found in report["findings"] if found["code"] == "RBD119")
    (fact,) = unseen["evidence"]
    assert fact.startswith("not observed: what is mapped on worker-2")
    check = scene.lab.rbdagent(_NODE, "check", "--sysfs", "/run/no-module")
    assert "no /sys/bus/rbd" in check.stdout
    nothing = scene.lab.rbdagent(_NODE, "who-holds", "/dev/rbd77")
    assert nothing.exit_code == 1
    assert "no such device" in nothing.stderr
