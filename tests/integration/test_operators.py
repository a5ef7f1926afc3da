"""The objects of operators, as a real API server has them: its paths, its rights, a missing CRD.

KubeVirt, csi-addons and Ramen do not run here: this test writes the objects that they would write,
under its own CustomResourceDefinitions with the names and versions of theirs. So this proves how
rbdagent reads them, and not what these controllers do. The rules that judge them are tested in
tests/unit/test_diagnose_rules.py. RBDAGENT_RECORD=1 writes tests/fixtures/operators again.
"""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Final

import pytest

from tests.lab.api import ApiError
from tests.lab.controlplane import RBDAGENT_ROLE, RBDAGENT_RULES
from tests.lab.install import CHECKOUT
from tests.lab.processes import wait_until
from tests.lab.workloads import DRIVER

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.lab.api import Api, Json
    from tests.lab.controlplane import ControlPlane

FIXTURES: Final = CHECKOUT / "tests" / "fixtures" / "operators"
SPACE: Final = "machines"
CRDS: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
MIGRATIONS: Final = f"/apis/kubevirt.io/v1/namespaces/{SPACE}/virtualmachineinstancemigrations"
REPLICATIONS: Final = (
    f"/apis/replication.storage.openshift.io/v1alpha1/namespaces/{SPACE}/volumereplications"
)
ROLE: Final = f"/apis/rbac.authorization.k8s.io/v1/clusterroles/{RBDAGENT_ROLE}"
NOW: Final = "2026-01-01T00:00:00Z"


def definition(plural: str, group: str, version: str, kind: str) -> Json:
    """Return a definition that keeps any field, with a status as a subresource."""
    return {
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"plural": plural, "singular": kind.lower(), "kind": kind},
            "versions": [
                {
                    "name": version,
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "schema": {
                        "openAPIV3Schema": {
                            "type": "object",
                            "x-kubernetes-preserve-unknown-fields": True,
                        }
                    },
                }
            ],
        },
    }


OF_KUBEVIRT: Final = definition(
    "virtualmachineinstancemigrations",
    "kubevirt.io",
    "v1",
    "VirtualMachineInstanceMigration",
)
OF_ADDONS: Final = definition(
    "volumereplications", "replication.storage.openshift.io", "v1alpha1", "VolumeReplication"
)


def launcher(api: Api, suffix: str, claim: str, labels: dict[str, str]) -> Json:
    """Create a virt-launcher as KubeVirt writes it; nothing runs it, so that it is Pending."""
    owner: Json = {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstance",
        "name": "vm1",
        "uid": "6a1e8a6e-6f07-4a0e-9c0e-5d3b6f5c9a01",
        "controller": True,
        "blockOwnerDeletion": True,
    }
    labels = {
        "kubevirt.io": "virt-launcher",
        "kubevirt.io/created-by": str(owner["uid"]),
        "vm.kubevirt.io/name": "vm1",
        **labels,
    }
    return api.create(
        f"/api/v1/namespaces/{SPACE}/pods",
        {
            "metadata": {
                "name": f"virt-launcher-vm1-{suffix}",
                "labels": labels,
                "ownerReferences": [owner],
                "annotations": {"kubevirt.io/domain": "vm1"},
            },
            "spec": {
                "containers": [{"name": "compute", "image": "example.org/none"}],
                "volumes": [{"name": "disk", "persistentVolumeClaim": {"claimName": claim}}],
            },
        },
    )


def volume(api: Api, name: str) -> None:
    """Create a claim with its PV, a raw block device for many nodes, and bind them."""
    handle = (
        f"0001-000a-lab-ceph-1-0000000000000001-{'0' * 7}{len(name)}-8403-4433-9d6e-9ce7ebece68f"
    )
    spec = {"accessModes": ["ReadWriteMany"], "volumeMode": "Block", "storageClassName": "rbd"}
    api.create(
        "/api/v1/persistentvolumes",
        {
            "metadata": {"name": f"pv-{name}"},
            "spec": {
                **spec,
                "capacity": {"storage": "64Mi"},
                "persistentVolumeReclaimPolicy": "Retain",
                "claimRef": {"namespace": SPACE, "name": name},
                "csi": {"driver": DRIVER, "volumeHandle": handle},
            },
        },
    )
    api.create(
        f"/api/v1/namespaces/{SPACE}/persistentvolumeclaims",
        {
            "metadata": {"name": name},
            "spec": {
                **spec,
                "volumeName": f"pv-{name}",
                "resources": {"requests": {"storage": "64Mi"}},
            },
        },
    )
    path = f"/api/v1/namespaces/{SPACE}/persistentvolumeclaims/{name}"
    wait_until(
        lambda: api.get(path)["status"].get("phase") == "Bound",
        timeout_s=60,
        what=f"claim {name} to be bound",
    )


@pytest.fixture(scope="module")
def plane(control_plane: ControlPlane) -> Iterator[ControlPlane]:
    """Yield a control plane with a machine that has two pods, and a pod of a mirrored image."""
    api = control_plane.api
    api.create("/api/v1/namespaces", {"metadata": {"name": SPACE}})
    wait_until(
        lambda: api.find(f"/api/v1/namespaces/{SPACE}/serviceaccounts/default"),
        timeout_s=60,
        what="the default service account",
    )
    for name in ("disk", "mirrored"):
        volume(api, name)
    launcher(api, "source", "disk", {})
    waiting = launcher(api, "waiting", "mirrored", {})
    api.create(
        f"/api/v1/namespaces/{SPACE}/events",
        {
            "metadata": {"name": "not-primary"},
            "involvedObject": {
                "kind": "Pod",
                "namespace": SPACE,
                "name": waiting["metadata"]["name"],
                "uid": waiting["metadata"]["uid"],
            },
            "type": "Warning",
            "reason": "FailedMount",
            "message": 'MountVolume.MountDevice failed for volume "pv-mirrored" : rpc error: code ='
            " Internal desc = cannot map image k8s/csi-vol-1 it is not primary",
            "lastTimestamp": NOW,
            "source": {"component": "kubelet"},
        },
    )
    yield control_plane
    api.patch(ROLE, {"rules": list(RBDAGENT_RULES)})
    for made in (OF_KUBEVIRT, OF_ADDONS):
        if api.find(f"{CRDS}/{made['metadata']['name']}") is not None:
            api.delete(f"{CRDS}/{made['metadata']['name']}")


def snapshot(plane: ControlPlane, claim: str, user: str = "rbdagent") -> Json:
    """Return the snapshot of a claim, as `rbdagent snapshot` of a user observes it."""
    done = plane.laptop(user).run(
        *("env", f"PYTHONPATH={CHECKOUT}", sys.executable, "-m", "rbdagent"),
        *("snapshot", f"pvc/{SPACE}/{claim}", "--no-ceph", "--no-node"),
    )
    assert done.stdout, done.stderr
    found: Json = json.loads(done.stdout)
    return found


def record(name: str, seen: Json) -> None:
    """Keep a snapshot for tests/unit/test_machines.py, if it is to be recorded."""
    if os.environ.get("RBDAGENT_RECORD"):
        FIXTURES.mkdir(exist_ok=True)
        (FIXTURES / f"{name}.json").write_text(f"{json.dumps(seen, indent=1)}\n")


def gaps(seen: Json) -> dict[str, Json]:
    return {gap["fact"]: gap for gap in seen["sources"]["kubernetes"].get("gaps", ())}


def define(plane: ControlPlane, made: Json, path: str) -> None:
    """Create a definition, and wait until the API server serves it."""
    plane.api.create(CRDS, made)
    wait_until(lambda: plane.api.find(path) is not None, timeout_s=60, what=f"{path} to be served")


def test_objects_of_operators_are_read_from_a_real_api_server(plane: ControlPlane) -> None:
    """In one test: each step changes what the API server has for the next one."""
    api = plane.api
    # One virt-launcher, and no definition: nothing is asked.
    assert "migrations" not in snapshot(plane, "disk")["kubernetes"]

    launcher(api, "target", "disk", {"kubevirt.io/migrationJobUID": "not-yet"})
    absent = snapshot(plane, "disk")
    assert absent["kubernetes"]["migrations"] == []
    assert snapshot(plane, "mirrored")["kubernetes"]["replications"] == []
    assert not {"live migrations of virtual machines", "VolumeReplications"} & gaps(absent).keys()

    define(plane, OF_KUBEVIRT, MIGRATIONS)
    define(plane, OF_ADDONS, REPLICATIONS)
    made = api.create(
        MIGRATIONS,
        {
            "apiVersion": "kubevirt.io/v1",
            "kind": "VirtualMachineInstanceMigration",
            "metadata": {"name": "move"},
            "spec": {"vmiName": "vm1"},
        },
    )
    api.patch(f"{MIGRATIONS}/move/status", {"status": {"phase": "Running"}})
    api.patch(
        f"/api/v1/namespaces/{SPACE}/pods/virt-launcher-vm1-target",
        {"metadata": {"labels": {"kubevirt.io/migrationJobUID": made["metadata"]["uid"]}}},
    )
    seen = snapshot(plane, "disk")
    record("live-migration", seen)
    (migration,) = seen["kubernetes"]["migrations"]
    assert (migration["machine"], migration["phase"]) == ("vm1", "Running")
    assert migration["ref"]["uid"] == made["metadata"]["uid"]

    api.create(
        REPLICATIONS,
        {
            "apiVersion": "replication.storage.openshift.io/v1alpha1",
            "kind": "VolumeReplication",
            "metadata": {"name": "mirrored"},
            "spec": {
                "replicationState": "secondary",
                "dataSource": {"kind": "PersistentVolumeClaim", "name": "mirrored"},
            },
        },
    )
    (before,) = snapshot(plane, "mirrored")["kubernetes"]["replications"]
    assert (before["wanted"], before["isCurrent"]) == ("secondary", False)
    status = {
        "state": "Secondary",
        "observedGeneration": 1,
        "conditions": [{"type": "Completed", "status": "True", "reason": "Demoted"}],
    }
    api.patch(f"{REPLICATIONS}/mirrored/status", {"status": status})
    seen = snapshot(plane, "mirrored")
    record("secondary", seen)
    (after,) = seen["kubernetes"]["replications"]
    assert (after["state"], after["completed"]) == ("Secondary", True)
    assert "isCurrent" not in after

    refuse_both(plane)
    refused = snapshot(plane, "disk")
    assert refused["kubernetes"]["migrations"]["type"] == "NotObserved"
    missing = gaps(refused)["live migrations of virtual machines"]
    assert 'cannot list resource "virtualmachineinstancemigrations"' in missing["reason"]
    assert "can-i list virtualmachineinstancemigrations" in missing["hint"]
    refused = snapshot(plane, "mirrored")
    assert refused["kubernetes"]["replications"]["type"] == "NotObserved"
    assert "can-i list volumereplications" in gaps(refused)["VolumeReplications"]["hint"]


def refuse_both(plane: ControlPlane) -> None:
    """Take the rights to both lists from the role of rbdagent."""
    role = plane.api.get(ROLE)
    rights = [
        rule
        for rule in role["rules"]
        if not {"kubevirt.io", "replication.storage.openshift.io"} & {*rule["apiGroups"]}
    ]
    assert len(rights) == len(role["rules"]) - 2
    plane.api.patch(ROLE, {"rules": rights})
    client = plane.client("rbdagent")
    try:
        wait_until(
            lambda: _is_refused(client, MIGRATIONS) and _is_refused(client, REPLICATIONS),
            timeout_s=60,
            what="the rights to be gone",
        )
    finally:
        client.close()


def _is_refused(client: Api, path: str) -> bool:
    try:
        client.get(path)
    except ApiError as error:
        return error.status == 403
    return False
