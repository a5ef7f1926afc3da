"""Manifests as kubectl prints them of a cluster, and an empty cluster to restore them into."""

# ruff: noqa: ANN401 - a builder takes any field of what it builds

from __future__ import annotations

import json
from typing import Any, Final

from msgspec.structs import replace

from rbdagent.lint.report import lint
from rbdagent.model import CephView, NotObserved, Snapshot, StorageClass, Target, TargetKind
from rbdagent.model.lint import CsiConfig, LintReport, Manifests, Problem, Surroundings
from rbdagent.parse.manifest import joined_manifests, parse_manifests
from tests.support.snapshots import DRIVER, HANDLE, PV, SPEC, cluster, image_view, unmapped

Json = dict[str, Any]

WHOLE: Final = Target(argument="-A", kind=TargetKind.NONE)
CLUSTER_ID: Final = "lab-ceph-1"
CONFIG: Final = CsiConfig(
    clusters=((CLUSTER_ID, ("10.0.0.1:6789",)),), places=("ceph-csi/ceph-csi-config",)
)
SECRET: Final = ("ceph-csi", "csi-rbd-secret")
AROUND: Final = Surroundings(
    csi_config=CONFIG, secrets={SECRET: True}, namespaces={"default": True, "shop": True}
)
"""Everything that the manifests name exists."""
UNASKED: Final = NotObserved(reason="not queried, as requested")
RBD: Final = StorageClass(name="rbd", provisioner=DRIVER, pool="k8s", cluster_id=CLUSTER_ID)
OLD_UID: Final = "6a1f0c52-0000-4000-8000-000000000001"


def pv(name: str = PV, *, csi: Json | None = None, meta: Json | None = None, **spec: Any) -> Json:
    """Return the manifest of a PV that binds; a field that is None is left out."""
    source = {
        "driver": DRIVER,
        "fsType": "ext4",
        "nodeStageSecretRef": {"namespace": SECRET[0], "name": SECRET[1]},
        "volumeAttributes": {"clusterID": CLUSTER_ID, "pool": SPEC.pool, "imageName": SPEC.name},
        "volumeHandle": HANDLE,
        **(csi or {}),
    }
    default: Json = {
        "accessModes": ["ReadWriteOnce"],
        "capacity": {"storage": "1Gi"},
        "claimRef": {"namespace": "shop", "name": "data"},
        "csi": source,
        "persistentVolumeReclaimPolicy": "Retain",
        "storageClassName": "rbd",
        "volumeMode": "Filesystem",
    }
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name, **(meta or {})},
        "spec": {key: value for key, value in (default | spec).items() if value is not None},
    }


def pvc(
    name: str = "data", *, namespace: str = "shop", meta: Json | None = None, **spec: Any
) -> Json:
    """Return the manifest of a claim that binds to that PV."""
    default: Json = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}},
        "storageClassName": "rbd",
        "volumeMode": "Filesystem",
        "volumeName": PV,
    }
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": namespace, **(meta or {})},
        "spec": {key: value for key, value in (default | spec).items() if value is not None},
    }


BIND_COMPLETED: Final[Json] = {"annotations": {"pv.kubernetes.io/bind-completed": "yes"}}
CLAIM_REF: Final = {"namespace": "shop", "name": "data", "uid": OLD_UID}


def content(name: str = "snapcontent-1", **spec: Any) -> Json:
    """Return the manifest of a VolumeSnapshotContent."""
    default: Json = {
        "driver": DRIVER,
        "deletionPolicy": "Retain",
        "source": {"snapshotHandle": HANDLE},
        "volumeSnapshotRef": {"namespace": "shop", "name": "before"},
    }
    return {
        "apiVersion": "snapshot.storage.k8s.io/v1",
        "kind": "VolumeSnapshotContent",
        "metadata": {"name": name},
        "spec": default | spec,
    }


def storage_class(name: str = "fast", **fields: Any) -> Json:
    """Return the manifest of a StorageClass."""
    default: Json = {
        "provisioner": DRIVER,
        "parameters": {"clusterID": CLUSTER_ID, "pool": SPEC.pool},
    }
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": name},
        **(default | fields),
    }


def listed(*objects: Json) -> str:
    """Return objects as `kubectl get -o json` prints several."""
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})


def read(*objects: Json) -> Manifests:
    """Return the manifests of one file."""
    return joined_manifests(
        [parse_manifests(listed(*objects), file="restore.json", namespace="default")]
    )


def empty_cluster(*, of_ceph: Json | None = None, **in_kube: Any) -> Snapshot:
    """Return a cluster with the driver and the class, and without PVs and claims.

    Its Ceph has the image, and no client has that open.
    """
    parts = {
        "persistent_volumes": (),
        "claims": (),
        "storage_classes": (RBD,),
        "drivers": (DRIVER,),
        "leases": (),
        "version": "v1.36.3",
        "published": (),
        **in_kube,
    }
    views = {"images": (image_view(watchers=(), metadata=()),), **(of_ceph or {})}
    seen = unmapped(in_kube=parts, ceph=CephView(clusters=(cluster(**views),)))
    return replace(seen, target=WHOLE, node=None)


def linted(
    *objects: Json, into: Snapshot | None = None, around: Surroundings = AROUND
) -> LintReport:
    """Return what applying the objects would lead to."""
    return lint(empty_cluster() if into is None else into, read(*objects), around)


def problem_in(found: LintReport, code: str) -> Problem:
    """Return the problem with a code; fail with the reported codes if it is missing."""
    for problem in found.problems:
        if problem.code == code:
            return problem
    codes = [(problem.code, problem.statement) for problem in found.problems]
    message = f"{code} was not reported, but {codes}"
    raise AssertionError(message)


def codes_of(found: LintReport) -> set[str]:
    """Return the codes of the problems above INFO."""
    return {problem.code for problem in found.problems if problem.severity != "info"}
