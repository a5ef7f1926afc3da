"""The controller part of the lab's CSI driver: provision, attach, detach, delete.

It simulates external-provisioner and external-attacher with ceph-csi behind them, as recorded:
names of images and volumes, annotations, finalizers, image metadata, the journal's omap, events (in
the words of external-provisioner 5 and ceph-csi 3.13). As with ceph-csi before 3.15 there is no
ControllerPublish: a VolumeAttachment is attached at once, and has no finalizer. A PV can be made to
fail. With the annotation ATTACH_ERROR its attach fails with the text of the annotation. With
DETACH_ERROR it has the attacher's finalizer, as with ceph-csi 3.15, and its detach fails with that
text while the annotation exists.

Run it as ``python -m tests.lab.csi_controller STATE_DIR``.
"""

from __future__ import annotations

import hashlib
import json
import sys
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.lab.api import ApiError
from tests.lab.errors import LabError
from tests.lab.workloads import DRIVER, collection

if TYPE_CHECKING:
    from tests.lab.api import Api, Json
    from tests.lab.ceph import CephCluster

CLUSTER_ID: Final = "lab-ceph-1"
"""ceph-csi's name of the cluster: not its fsid."""

TENANT_CLUSTER_ID: Final = "lab-ceph-1-tenant"
"""The same cluster under a second name: ceph-csi's clusterID for a RADOS namespace."""

RADOS_NAMESPACE: Final = "tenant"

SECRET: Final = "csi-rbd-secret"  # noqa: S105 - the name of a Secret object
PROVISIONED_BY: Final = "pv.kubernetes.io/provisioned-by"
_FINALIZER: Final = "external-provisioner.volume.kubernetes.io/finalizer"
ATTACH_ERROR: Final = "lab.example.org/attach-error"
DETACH_ERROR: Final = "lab.example.org/detach-error"
"""Annotations of a PV: the errors that the attacher reports for it."""
_ATTACHER: Final = "external-attacher/rbd-csi-ceph-com"
_TO_ENCRYPT: Final = ("rbd.csi.ceph.com/encrypted", "encryptionPrepared")
_POLL_S: Final = 0.25
_FIRST_PAUSE_S: Final = 2.0
_FIRST_PROVISION_PAUSE_S: Final = 1.0
_LONGEST_PAUSE_S: Final = 300.0
_PROVISIONER: Final = "volume.kubernetes.io/storage-provisioner"
_SELECTED_NODE: Final = "volume.kubernetes.io/selected-node"
_MODES_WITHOUT_FILE_SYSTEM: Final = "Block"


def main() -> None:
    """Run until stopped."""
    from tests.lab.lab import Lab

    lab = Lab(Path(sys.argv[1]))
    controller = Controller(lab.control_plane.client("csi"), lab.ceph)
    while True:
        try:
            controller.reconcile()
        except (LabError, OSError) as error:
            print(f"{type(error).__name__}: {error}", flush=True)
        time.sleep(_POLL_S)


class Controller:
    """One driver's controllers."""

    def __init__(self, api: Api, ceph: CephCluster) -> None:
        self._api = api
        self._ceph = ceph
        self._pool_ids: dict[str, int] = {}
        self._next_try: dict[str, tuple[float, float]] = {}

    def reconcile(self) -> None:
        """Read all objects once, and make the changes that are due."""
        attachments = self._api.items(collection("VolumeAttachment"))
        volumes = self._api.items(collection("PersistentVolume"))
        faults = {pv["metadata"]["name"]: pv["metadata"].get("annotations", {}) for pv in volumes}
        for attachment in attachments:
            if attachment["spec"]["attacher"] == DRIVER:
                named = attachment["spec"]["source"].get("persistentVolumeName", "")
                self._attach(attachment, faults.get(named, {}))
        for volume in volumes:
            self._delete_released(volume)
        known = {pv["metadata"]["name"] for pv in volumes}
        classes = {
            item["metadata"]["name"]: item
            for item in self._api.items(collection("StorageClass"))
            if item["provisioner"] == DRIVER
        }
        for claim in self._api.items("/api/v1/persistentvolumeclaims"):
            storage_class = classes.get(claim["spec"].get("storageClassName", ""))
            name = f"pvc-{claim['metadata']['uid']}"
            if storage_class and name not in known and _is_asked_for(claim, storage_class):
                self._try_to_provision(name, claim, storage_class)

    # Attach ---------------------------------------------------------------------------------------

    def _attach(self, attachment: Json, faults: Json) -> None:
        meta, status = attachment["metadata"], attachment.get("status", {})
        path = f"{collection('VolumeAttachment')}/{meta['name']}"
        if "deletionTimestamp" in meta:
            self._detach(attachment, faults)
        elif status.get("attached"):
            return
        elif faults.get(ATTACH_ERROR):
            self._fail(path, status, "attachError", faults[ATTACH_ERROR])
        else:
            if DETACH_ERROR in faults:
                self._api.patch(path, {"metadata": {"finalizers": [_ATTACHER]}})
            done = {"attached": True, "attachError": None}
            self._api.patch(f"{path}/status", {"status": done})

    def _detach(self, attachment: Json, faults: Json) -> None:
        meta = attachment["metadata"]
        path = f"{collection('VolumeAttachment')}/{meta['name']}"
        if _ATTACHER not in meta.get("finalizers", ()):
            return
        if faults.get(DETACH_ERROR):
            self._fail(path, attachment["status"], "detachError", faults[DETACH_ERROR])
        else:
            self._api.patch(path, {"metadata": {"finalizers": None}})

    def _fail(self, path: str, status: Json, kind: str, message: str) -> None:
        """Report an error in the status, unless the status already has it."""
        if status.get(kind, {}).get("message") != message:
            now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
            changed = {kind: {"message": message, "time": now}}
            self._api.patch(f"{path}/status", {"status": changed})

    # Provision ------------------------------------------------------------------------------------

    def _try_to_provision(self, name: str, claim: Json, storage_class: Json) -> None:
        if not self._is_due(name):
            return
        meta = claim["metadata"]
        message = f'External provisioner is provisioning volume for claim "{_path(meta)}"'
        self._report_event(claim, "PersistentVolumeClaim", "Normal", "Provisioning", message)
        why = self._objection(claim, storage_class)
        if why:
            self._later(name, _FIRST_PROVISION_PAUSE_S)
            named = storage_class["metadata"]["name"]
            message = f'failed to provision volume with StorageClass "{named}": {why}'
            self._report_event(
                claim, "PersistentVolumeClaim", "Warning", "ProvisioningFailed", message
            )
            return
        self._provision(name, claim, storage_class)
        message = f"Successfully provisioned volume {name}"
        self._report_event(
            claim, "PersistentVolumeClaim", "Normal", "ProvisioningSucceeded", message
        )

    def _objection(self, claim: Json, storage_class: Json) -> str:
        """Return external-provisioner's or ceph-csi's error for a claim; empty if there is none."""
        spec, pool = claim["spec"], storage_class["parameters"]["pool"]
        if spec.get("selector"):
            return "claim Selector is not supported"
        if (
            "ReadWriteMany" in spec["accessModes"]
            and spec.get("volumeMode") != _MODES_WITHOUT_FILE_SYSTEM
        ):
            return (
                "rpc error: code = InvalidArgument desc = multi node access modes are only "
                "supported on rbd `block` type volumes"
            )
        if pool not in self._pools():
            return (
                "rpc error: code = Internal desc = pool not found: pool "
                f"({pool}) not found in Ceph cluster"
            )
        return ""

    def _provision(self, name: str, claim: Json, storage_class: Json) -> None:
        parameters = storage_class.get("parameters", {})
        pool, cluster = parameters["pool"], parameters["clusterID"]
        namespace = RADOS_NAMESPACE if cluster == TENANT_CLUSTER_ID else ""
        identity = str(uuid.uuid4())
        image = f"csi-vol-{identity}"
        spec = "/".join(part for part in (pool, namespace, image) if part)
        self._ceph.create_image(
            spec,
            # Mi of Kubernetes is M of rbd.
            size=claim["spec"]["resources"]["requests"]["storage"].removesuffix("i"),
            features=parameters.get("imageFeatures", "layering"),
        )
        meta = claim["metadata"]
        for key, value in (
            ("csi.storage.k8s.io/pv/name", name),
            ("csi.storage.k8s.io/pvc/name", meta["name"]),
            ("csi.storage.k8s.io/pvc/namespace", meta["namespace"]),
        ):
            self._ceph.rbd("image-meta", "set", spec, key, value)
        where = ("-p", pool, *(("-N", namespace) if namespace else ()))
        for key, value in (("csi.imagename", image), ("csi.volname", name)):
            self._ceph.rados(*where, "setomapval", f"csi.volume.{identity}", key, value)
        if parameters.get("encrypted") == "true":
            # Its first NodeStage encrypts it.
            self._ceph.rbd("image-meta", "set", spec, *_TO_ENCRYPT)
        handle = f"0001-{len(cluster):04x}-{cluster}-{self._pools()[pool]:016x}-{identity}"
        self._api.create(
            collection("PersistentVolume"),
            _volume(name, handle, image, namespace, claim, storage_class),
        )

    def _pools(self) -> dict[str, int]:
        if not self._pool_ids:
            pools = self._ceph.ceph_json("osd", "lspools")
            self._pool_ids = {pool["poolname"]: pool["poolnum"] for pool in pools}
        return self._pool_ids

    # Retries --------------------------------------------------------------------------------------

    def _is_due(self, name: str) -> bool:
        return time.monotonic() >= self._next_try.get(name, (0.0, 0.0))[0]

    def _later(self, name: str, first_pause_s: float) -> None:
        """Retry later with a doubled delay, as their work queues do."""
        _, pause = self._next_try.get(name, (0.0, first_pause_s))
        self._next_try[name] = (time.monotonic() + pause, min(pause * 2, _LONGEST_PAUSE_S))

    # Delete ---------------------------------------------------------------------------------------

    def _delete_released(self, volume: Json) -> None:
        meta, spec = volume["metadata"], volume["spec"]
        name = meta["name"]
        ours = meta.get("annotations", {}).get(PROVISIONED_BY) == DRIVER
        released = volume["status"].get("phase") == "Released"
        if not (ours and released and spec["persistentVolumeReclaimPolicy"] == "Delete"):
            return
        if not self._is_due(name):
            return
        attributes = spec["csi"]["volumeAttributes"]
        image = attributes["imageName"]
        parts = (attributes["pool"], attributes.get("radosNamespace", ""), image)
        path = "/".join(part for part in parts if part)
        if json.loads(self._ceph.rbd("status", path, "--format", "json"))["watchers"]:
            self._later(name, _FIRST_PAUSE_S)
            why = f"rpc error: code = Internal desc = rbd {image} is still being used"
            self._report_event(volume, "PersistentVolume", "Warning", "VolumeFailedDelete", why)
            return
        self._ceph.rbd("rm", "--no-progress", path)
        self._api.delete(f"{collection('PersistentVolume')}/{name}")
        self._api.patch(
            f"{collection('PersistentVolume')}/{name}", {"metadata": {"finalizers": None}}
        )

    # Events ---------------------------------------------------------------------------------------

    def _report_event(
        self, regarded: Json, kind: str, weight: str, reason: str, message: str
    ) -> None:
        """Report an event; a repeated event increases its count, as client-go's recorder does."""
        meta = regarded["metadata"]
        namespace = meta.get("namespace", "default")
        events = f"/api/v1/namespaces/{namespace}/events"
        identity = f"{meta['uid']}{weight}{reason}{message}"
        name = f"{meta['name']}.{hashlib.sha256(identity.encode()).hexdigest()[:16]}"
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        before = self._api.find(f"{events}/{name}")
        try:
            if before is not None:
                again = {"count": before["count"] + 1, "lastTimestamp": now}
                self._api.patch(f"{events}/{name}", again)
                return
            event = {
                "metadata": {"name": name, "namespace": namespace},
                "involvedObject": {
                    "kind": kind,
                    "apiVersion": "v1",
                    "namespace": meta.get("namespace", ""),
                    "name": meta["name"],
                    "uid": meta["uid"],
                },
                "type": weight,
                "reason": reason,
                "message": message,
                "firstTimestamp": now,
                "lastTimestamp": now,
                "count": 1,
                "source": {"component": f"{DRIVER}_lab"},
            }
            self._api.create(events, event)
        except ApiError as error:
            print(f"event: {error}", flush=True)


def _is_asked_for(claim: Json, storage_class: Json) -> bool:
    """Return whether the PV controller asks for a PV, and the scheduler has chosen a node."""
    annotations = claim["metadata"].get("annotations", {})
    waits = storage_class.get("volumeBindingMode") == "WaitForFirstConsumer"
    return (
        claim["status"].get("phase") == "Pending"
        and not claim["spec"].get("volumeName")
        and "deletionTimestamp" not in claim["metadata"]
        and annotations.get(_PROVISIONER) == DRIVER
        and (not waits or _SELECTED_NODE in annotations)
    )


def _path(meta: Json) -> str:
    return f"{meta['namespace']}/{meta['name']}"


def _volume(
    name: str, handle: str, image: str, namespace: str, claim: Json, storage_class: Json
) -> Json:
    """Return the PersistentVolume that external-provisioner would create."""
    parameters = {
        key: value
        for key, value in storage_class.get("parameters", {}).items()
        if not key.startswith("csi.storage.k8s.io/")
    }
    meta, spec = claim["metadata"], claim["spec"]
    source: Json = {
        "driver": DRIVER,
        "volumeHandle": handle,
        "nodeStageSecretRef": {"name": SECRET, "namespace": "default"},
        "volumeAttributes": {
            **parameters,
            "imageName": image,
            "journalPool": parameters["pool"],
            **({"radosNamespace": namespace} if namespace else {}),
            "storage.kubernetes.io/csiProvisionerIdentity": f"lab-{DRIVER}",
        },
    }
    if spec.get("volumeMode") != _MODES_WITHOUT_FILE_SYSTEM:
        kind = storage_class.get("parameters", {}).get("csi.storage.k8s.io/fstype", "ext4")
        source["fsType"] = kind
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {
            "name": name,
            "annotations": {PROVISIONED_BY: DRIVER},
            "finalizers": [_FINALIZER],
        },
        "spec": {
            "accessModes": spec["accessModes"],
            "capacity": {"storage": spec["resources"]["requests"]["storage"]},
            "claimRef": {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "name": meta["name"],
                "namespace": meta["namespace"],
                "uid": meta["uid"],
            },
            "csi": source,
            "persistentVolumeReclaimPolicy": storage_class.get("reclaimPolicy", "Delete"),
            "storageClassName": spec.get("storageClassName", ""),
            "volumeMode": spec.get("volumeMode", "Filesystem"),
        },
    }


if __name__ == "__main__":
    main()
