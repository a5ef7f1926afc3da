"""The Kubernetes objects of the lab's CSI driver, and its faults."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from tests.lab.addresses import NETWORKS, bracketed
from tests.lab.csi_controller import CLUSTER_ID, RADOS_NAMESPACE, SECRET, TENANT_CLUSTER_ID
from tests.lab.parts import chosen_parts
from tests.lab.workloads import DRIVER

if TYPE_CHECKING:
    from pathlib import Path

    from tests.lab.api import Json

FAULTS: Final = "/run/csi-rbd-lab/faults"
"""Directory of faults in a guest: one file per step (tests/lab/go/csi-rbd-lab/README.md)."""

CONFIG: Final = "/etc/ceph-csi-config/config.json"

FAR_CLUSTER_ID: Final = "lab-ceph-far"
"""A cluster in config.json whose monitors have an address that no machine has."""

FAR_USER: Final = "far"
CEPH_CONF: Final = f"[client.{FAR_USER}]\nclient_mount_timeout = 15\n"
"""Appended to the ceph.conf of the driver: its client times out before kubelet does (2 minutes).

librados waits 300 s by default. Then no event shows its error: kubelet reports DeadlineExceeded,
and after that an operation that already exists.
"""

_CLASSES: Final[dict[str, dict[str, str]]] = {
    "rbd": {},
    "rbd-xfs": {"csi.storage.k8s.io/fstype": "xfs"},
    "rbd-luks": {"encrypted": "true"},
    "rbd-nbd": {"mounter": "rbd-nbd"},
    "rbd-exclusive": {"imageFeatures": "layering,exclusive-lock"},
    "rbd-namespace": {"clusterID": TENANT_CLUSTER_ID},
    "rbd-first-pod": {},
    "rbd-no-pool": {"pool": "nowhere"},
}
_SECRETS: Final = {
    f"csi.storage.k8s.io/{step}-secret-{part}": value
    for step in ("provisioner", "controller-expand", "node-stage")
    for part, value in (("name", SECRET), ("namespace", "default"))
}
WAITS_FOR_POD: Final = "rbd-first-pod"


def driver_objects(pool: str, *, user: str, key: str) -> tuple[Json, ...]:
    """Return CSIDriver, Secret and every StorageClass, as a ceph-csi installation has them."""
    classes = tuple(_storage_class(name, pool, extra) for name, extra in _CLASSES.items())
    return (
        {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "CSIDriver",
            "metadata": {"name": DRIVER},
            "spec": {"attachRequired": True, "podInfoOnMount": False, "fsGroupPolicy": "File"},
        },
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": SECRET, "namespace": "default"},
            "stringData": {"userID": user, "userKey": key, "encryptionPassphrase": "lab"},
        },
        *classes,
    )


def _storage_class(name: str, pool: str, extra: dict[str, str]) -> Json:
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": name},
        "provisioner": DRIVER,
        "reclaimPolicy": "Delete",
        "volumeBindingMode": "WaitForFirstConsumer" if name == WAITS_FOR_POD else "Immediate",
        "allowVolumeExpansion": True,
        "parameters": {
            "clusterID": CLUSTER_ID,
            "pool": pool,
            "imageFeatures": "layering",
            **_SECRETS,
            **extra,
        },
    }


def static_volume(
    name: str,
    *,
    pool: str,
    image: str,
    access_mode: str = "ReadWriteOnce",
    volume_mode: str = "Filesystem",
    handle: str | None = None,
) -> Json:
    """Return a static PersistentVolume of an image; its handle is the image's name by default."""
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": {
            "accessModes": [access_mode],
            "capacity": {"storage": "64Mi"},
            "csi": {
                "driver": DRIVER,
                "volumeHandle": handle or image,
                "nodeStageSecretRef": {"name": SECRET, "namespace": "default"},
                "volumeAttributes": {
                    "clusterID": CLUSTER_ID,
                    "pool": pool,
                    "imageName": image,
                    "staticVolume": "true",
                    "imageFeatures": "layering",
                },
            },
            "persistentVolumeReclaimPolicy": "Retain",
            "storageClassName": "",
            "volumeMode": volume_mode,
        },
    }


def driver_config(monitor: str) -> dict[str, bytes]:
    """Return the driver's files in a guest: ceph-csi's config.json."""
    family = NETWORKS[chosen_parts().network][-1]
    clusters = [
        {"clusterID": CLUSTER_ID, "monitors": [monitor]},
        {
            "clusterID": TENANT_CLUSTER_ID,
            "monitors": [monitor],
            "rbd": {"radosNamespace": RADOS_NAMESPACE},
        },
        {"clusterID": FAR_CLUSTER_ID, "monitors": [f"{bracketed(family.nowhere)}:6789"]},
    ]
    return {CONFIG: json.dumps(clusters).encode()}


def node_command(
    program: str, node: str, *, in_use_delay: str, cephcsi: Path | None
) -> tuple[str, ...]:
    """Return the command line of the node part of the driver in a guest.

    Args:
        program: csi-rbd-lab.
        node: its name.
        in_use_delay: the first of nine growing pauses; ceph-csi's 1s makes 49 s in all.
        cephcsi: a real ceph-csi to run instead of the test driver.
    """
    real = () if cephcsi is None else ("--cephcsi", str(cephcsi))
    return (program, "--node-id", node, "--config", CONFIG, "--faults", FAULTS,
            "--in-use-delay", in_use_delay, *real)  # fmt: skip
