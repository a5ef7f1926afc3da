"""Recordings of claims of real clusters with their events, pod and PV, as snapshots.

Kubernetes 1.36.3 and 1.37.2, csi-provisioner 6.3.0, csi-resizer 2.2.0, ceph-csi 52fcb7b (see
tests/fixtures/claims/README.md).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from rbdagent.model import FileSystemSize, StorageClass, Target, TargetKind
from rbdagent.parse import kubernetes as read
from tests.support.rule_rows.pv_controller import CONTROLLERS, LEADS, PROVISIONER
from tests.support.snapshots import DRIVER, ROOT, STAGING_PATH, mapping, mount, watcher, world
from tests.support.snapshots import volume as volume_of_builders

if TYPE_CHECKING:
    from rbdagent.model import Snapshot

CLAIMS: Final = Path(__file__).parents[1] / "fixtures" / "claims"


def _is_watched(found: dict[str, Any]) -> bool:
    """Return whether a client watched the image; where that was not recorded, whether a pod ran."""
    return bool(found.get("image", {}).get("watchers", "pod" in found))


def _sizes(found: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of the mapping: what sysfs and statfs showed on the node of the pod."""
    seen = found.get("node")
    if seen is None:
        return {}
    mapped: dict[str, Any] = {"size_bytes": seen["size"], "watch": _is_watched(found)}
    if "blocks" not in seen:
        return mapped
    size = FileSystemSize(
        path=STAGING_PATH,
        fs_type=seen["fsType"],
        device="rbd0",
        device_bytes=seen["size"],
        total_bytes=seen["blocks"] * seen["blockSize"],
        inodes=seen["inodes"],
    )
    return {**mapped, "file_system": size}


def recorded_claim(name: str, *, at: str | None = None, events: bool = True) -> Snapshot:
    """Return the snapshot of a recorded claim; its pod runs on the observed node.

    The image of its PV is that of the builders in :mod:`tests.support.snapshots`.

    Args:
        name: of the recording.
        at: the time of the snapshot; by default that of the newest event.
        events: False without the recorded events: the API server keeps them for an hour.
    """
    found: dict[str, Any] = json.loads((CLAIMS / f"{name}.json").read_text())
    claim = read.claim(found["claim"])
    words = tuple(map(read.event, found["events"]))
    pods = [read.pod(found["pod"])] if "pod" in found else []
    volumes = [read.persistent_volume(found["pv"])] if "pv" in found else []
    paths = [
        f"{ROOT}/pods/{pod.ref.uid}/volumes/kubernetes.io~csi/{volume.name}/mount"
        for pod in pods
        for volume in volumes
    ]
    mapped = mapping(mounts=tuple(mount(path=path) for path in paths), **_sizes(found))
    now = at or max(event.last_seen or "" for event in words)
    return world(
        observed_at=now,
        target=Target(
            argument=f"pvc/{claim.ref}",
            kind=TargetKind.CLAIM,
            name=claim.ref.name,
            namespace=claim.ref.namespace,
        ),
        on_node={"mappings": (mapped,) if pods else ()},
        of_image={
            "watchers": (watcher(),) if _is_watched(found) else (),
            "size_bytes": found.get("image", {}).get("size"),
        },
        in_kube={
            "storage_classes": (StorageClass(name=claim.storage_class or "", provisioner=DRIVER),),
            "drivers": (DRIVER,),
            "workloads": (),
            "leases": (replace(CONTROLLERS, renewed_at=now), replace(LEADS, renewed_at=now)),
            "driver_pods": (PROVISIONER,),
            "version": "v1.36.3",
            "published": (),
            "claims": (claim,),
            "persistent_volumes": tuple(
                replace(volume, source=volume_of_builders().source) for volume in volumes
            ),
            "pods": tuple(replace(pod, node_name="worker-1") for pod in pods),
            "events": words if events else (),
        },
    )
