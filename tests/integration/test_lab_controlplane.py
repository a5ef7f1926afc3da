"""The lab's control plane is real: it binds, attaches, reports Multi-Attach and refuses calls."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import pytest

from tests.lab.api import ApiError
from tests.lab.errors import LabError
from tests.lab.processes import wait_until
from tests.lab.workloads import (
    DRIVER,
    Workloads,
    claim,
    collection,
    multi_attach_words,
    pod,
)

if TYPE_CHECKING:
    from tests.lab.api import Json
    from tests.lab.controlplane import ControlPlane

HANDLE = "0001-000a-lab-ceph-1-0000000000000001-81bd820f-8403-4433-9d6e-9ce7ebece68f"
UNIQUE_NAME = f"kubernetes.io/csi/{DRIVER}^{HANDLE}"


@pytest.fixture(scope="module")
def workloads(control_plane: ControlPlane) -> Workloads:
    return Workloads(control_plane.api)


def test_rbdagents_role_reads_no_secrets_and_writes_nothing(control_plane: ControlPlane) -> None:
    client = control_plane.client("rbdagent")
    try:
        client.items("/api/v1/pods")
        client.items("/apis/storage.k8s.io/v1/volumeattachments")
        for path in ("/api/v1/secrets", "/api/v1/configmaps", "/api/v1/serviceaccounts"):
            with pytest.raises(ApiError) as refused:
                client.get(path)
            assert refused.value.status == 403
        with pytest.raises(ApiError) as refused:
            client.create(collection("Pod"), pod("p", node="worker-1", claims=()))
        assert refused.value.status == 403
    finally:
        client.close()


@pytest.mark.parametrize(
    ("user", "status"),
    [("stranger", 403), ("expired", 401)],
)
def test_users_without_rights_are_refused(
    control_plane: ControlPlane, user: str, status: int
) -> None:
    client = control_plane.client(user)
    try:
        with pytest.raises(ApiError) as refused:
            client.get("/api/v1/namespaces/default/pods")
    finally:
        client.close()
    assert refused.value.status == status


def test_kubectl_uses_the_given_user(control_plane: ControlPlane) -> None:
    assert control_plane.kubectl("auth", "whoami", user="worker-1").count("system:nodes") == 1
    with pytest.raises(LabError, match="Forbidden"):
        control_plane.kubectl("get", "secrets", user="rbdagent")


def test_multi_attach_is_raised_by_the_real_controller(workloads: Workloads) -> None:
    """A volume in use on worker-1 is not attached to worker-2, and an event shows the reason."""
    _make_nodes_and_volume(workloads)
    workloads.apply(pod("first", node="worker-1", claims=("c1",)))
    _attach("worker-1", workloads)
    workloads.force_delete("first")
    workloads.wait_gone("Pod", "first")
    workloads.apply(pod("second", node="worker-2", claims=("c1",)))

    event = workloads.wait_event("second", reason="FailedAttachVolume", timeout_s=60)

    assert f"{multi_attach_words()} for volume" in event["message"]
    assert [item["spec"]["nodeName"] for item in workloads.attachments("pv-c1")] == ["worker-1"]


def _make_nodes_and_volume(workloads: Workloads) -> None:
    for name in ("worker-1", "worker-2"):
        _make_node(workloads, name)
    workloads.apply(
        {
            "kind": "CSIDriver",
            "apiVersion": "storage.k8s.io/v1",
            "metadata": {"name": DRIVER},
            "spec": {"attachRequired": True},
        },
        {
            "kind": "PersistentVolume",
            "apiVersion": "v1",
            "metadata": {"name": "pv-c1"},
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "capacity": {"storage": "64Mi"},
                "storageClassName": "rbd",
                "persistentVolumeReclaimPolicy": "Retain",
                "csi": {"driver": DRIVER, "volumeHandle": HANDLE},
            },
        },
        claim("c1", volume_name="pv-c1"),
    )
    assert workloads.wait_bound("c1") == "pv-c1"


def _make_node(workloads: Workloads, name: str) -> None:
    """Register a node as its kubelet would; nothing runs on it."""
    node = workloads.api.create(
        "/api/v1/nodes",
        {
            "metadata": {
                "name": name,
                "annotations": {"volumes.kubernetes.io/controller-managed-attach-detach": "true"},
            }
        },
    )
    owner = {"apiVersion": "v1", "kind": "Node", "name": name, "uid": node["metadata"]["uid"]}
    workloads.api.create(
        "/apis/storage.k8s.io/v1/csinodes",
        {
            "metadata": {"name": name, "ownerReferences": [owner]},
            "spec": {"drivers": [{"name": DRIVER, "nodeID": name, "topologyKeys": []}]},
        },
    )


def _attach(node: str, workloads: Workloads) -> None:
    """Play external-attacher and kubelet: report the volume as attached and in use."""
    digest = hashlib.sha256(f"{HANDLE}{DRIVER}{node}".encode()).hexdigest()
    path = f"{collection('VolumeAttachment')}/csi-{digest}"

    def attachment() -> Json | None:
        return workloads.api.find(path)

    wait_until(attachment, timeout_s=30, what=f"an attachment to {node}, named by its parts")
    workloads.api.patch(f"{path}/status", {"status": {"attached": True}})
    workloads.api.patch(f"/api/v1/nodes/{node}/status", {"status": {"volumesInUse": [UNIQUE_NAME]}})
    wait_until(
        lambda: workloads.api.get(f"/api/v1/nodes/{node}")["status"].get("volumesAttached"),
        timeout_s=30,
        what=f"the controller to report the volume attached to {node}",
    )
