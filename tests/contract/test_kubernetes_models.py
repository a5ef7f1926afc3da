"""The Kubernetes client as oracle: its models read each recorded object as rbdagent does."""

from __future__ import annotations

import json
import math
from collections import Counter
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

import pytest
from kubernetes import client
from kubernetes.utils.quantity import parse_quantity

from rbdagent.model import CsiSource, InTreeRbdSource
from rbdagent.parse import kubernetes as read
from rbdagent.parse.ceph_keys import without_keys

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rbdagent.model import ContainerState, NodeTerm

FIXTURES: Final = Path(__file__).parents[1] / "fixtures"
Json = dict[str, Any]
_NODE_INFO: Final = (
    "architecture", "bootID", "containerRuntimeVersion", "kernelVersion", "kubeProxyVersion",
    "kubeletVersion", "machineID", "operatingSystem", "osImage", "systemUUID",
)  # fmt: skip
_CONTAINER: Final[Json] = {"image": "", "imageID": "", "ready": False, "restartCount": 0}


def recorded(value: object) -> Iterator[Json]:
    """Yield the Kubernetes objects in the content of a file; the API server answered with each."""
    if isinstance(value, list):
        for part in value:
            yield from recorded(part)
    elif isinstance(value, dict):
        kind = value.get("kind")
        if isinstance(kind, str) and "metadata" in value and "items" not in value:
            yield value
        else:
            yield from recorded(list(value.values()))


def objects() -> dict[str, list[Json]]:
    """Return the recorded objects by kind; an object of the format of snapshots is none."""
    found: dict[str, list[Json]] = {}
    for path in sorted(FIXTURES.rglob("*.json")):
        for data in recorded(json.loads(path.read_text())):
            if data["kind"] in ORACLES:
                found.setdefault(data["kind"], []).append(data)
    return found


def untrimmed(data: Json) -> Json:
    """Add the required fields that the recorders left out, because rbdagent reads none of them."""
    whole: Json = json.loads(json.dumps(data))
    status = whole.get("status") or {}
    if "nodeInfo" in status:
        status["nodeInfo"] = dict.fromkeys(_NODE_INFO, "") | status["nodeInfo"]
    for kind in ("initContainerStatuses", "containerStatuses"):
        status |= {kind: [_CONTAINER | one for one in status[kind]]} if kind in status else {}
    return whole


def model_of(data: Json) -> Any:  # noqa: ANN401 - the client has a class for each kind
    """Return an object as the client reads it; its models are those of pydantic from 37 on."""
    data = untrimmed(data)
    name = f"CoreV1{data['kind']}" if data["kind"] == "Event" else f"V1{data['kind']}"
    model = getattr(client, name)
    if hasattr(model, "from_dict"):
        return model.from_dict(data)
    return client.ApiClient().deserialize(SimpleNamespace(data=json.dumps(data)), name)


def quantity(text: str | None) -> int | None:
    """Return a quantity in bytes; Kubernetes rounds a fraction up."""
    return None if text is None else math.ceil(parse_quantity(text))


def reference(model: Any) -> tuple[str, str, str | None] | None:  # noqa: ANN401 - of any kind
    """Return the namespace, name and uid that a reference or the metadata of an object has."""
    if model is None:
        return None
    return model.namespace or "", model.name or "", model.uid


def terms(selector: Any) -> list[list[tuple[str, str, list[str]]]]:  # noqa: ANN401 - a model or None
    """Return the requirements of each term of a NodeSelector."""
    return [
        [
            (one.key, one.operator, one.values or [])
            for one in [*(term.match_expressions or []), *(term.match_fields or [])]
        ]
        for term in (selector.node_selector_terms if selector is not None else [])
    ]


def terms_read(found: tuple[NodeTerm, ...]) -> list[list[tuple[str, str, list[str]]]]:
    return [[(one.key, one.operator, list(one.values)) for one in term] for term in found]


def ready(conditions: list[Any] | None) -> str | None:
    return next((one.status for one in conditions or [] if one.type == "Ready"), None)


def metadata(meta: Any) -> Json:  # noqa: ANN401 - V1ObjectMeta
    """Return the fields that the structs of several kinds have."""
    return {
        "created_at": meta.creation_timestamp,
        "deleting_since": meta.deletion_timestamp,
        "finalizers": tuple(meta.finalizers or ()),
    }


def of_volume(model: Any) -> Json:  # noqa: ANN401 - V1PersistentVolume
    spec, status = model.spec, model.status
    required = spec.node_affinity.required if spec.node_affinity is not None else None
    return metadata(model.metadata) | {
        "name": model.metadata.name,
        "uid": model.metadata.uid,
        "phase": status.phase or "",
        "source": of_source(spec),
        "claim": reference(spec.claim_ref),
        "access_modes": tuple(spec.access_modes or ()),
        "volume_mode": spec.volume_mode,
        "reclaim_policy": spec.persistent_volume_reclaim_policy,
        "storage_class": spec.storage_class_name or "",
        "capacity_bytes": quantity((spec.capacity or {}).get("storage")),
        "node_affinity": terms(required),
        "phase_since": status.last_phase_transition_time,
        "labels": tuple((model.metadata.labels or {}).items()),
    }


def of_source(spec: Any) -> object:  # noqa: ANN401 - V1PersistentVolumeSpec
    """Return the source, if it is of CSI or of the in-tree driver."""
    if spec.csi is not None:
        attributes = tuple(sorted((spec.csi.volume_attributes or {}).items()))
        return spec.csi.driver, spec.csi.volume_handle, attributes, spec.csi.fs_type
    return None if spec.rbd is None else (spec.rbd.pool, spec.rbd.image)


def source_read(source: object) -> object:
    if isinstance(source, CsiSource):
        return source.driver, source.volume_handle, source.attributes, source.fs_type
    if isinstance(source, InTreeRbdSource):
        return source.spec.pool, source.spec.name
    return None


def of_claim(model: Any) -> Json:  # noqa: ANN401 - V1PersistentVolumeClaim
    spec = model.spec
    requests = spec.resources.requests if spec.resources is not None else None
    return metadata(model.metadata) | {
        "ref": reference(model.metadata),
        "phase": model.status.phase or "",
        "volume_name": spec.volume_name,
        "storage_class": spec.storage_class_name,
        "access_modes": tuple(spec.access_modes or ()),
        "volume_mode": spec.volume_mode,
        "requested_bytes": quantity((requests or {}).get("storage")),
        "labels": tuple((model.metadata.labels or {}).items()),
    }


def of_pod(model: Any) -> Json:  # noqa: ANN401 - V1Pod
    spec, status = model.spec, model.status
    used = [volume.persistent_volume_claim for volume in spec.volumes or []]
    return metadata(model.metadata) | {
        "ref": reference(model.metadata),
        "node_name": spec.node_name,
        "phase": status.phase or "",
        "ready": ready(status.conditions) == "True",
        "claims": tuple(one.claim_name for one in used if one is not None),
        "containers": [
            of_container(one)
            for one in [
                *(status.init_container_statuses or []),
                *(status.container_statuses or []),
            ]
        ],
        "grace_s": model.metadata.deletion_grace_period_seconds,
        "owners": tuple(
            f"{owner.kind}/{owner.name}"
            for owner in model.metadata.owner_references or []
            if owner.controller
        ),
    }


def of_container(status: Any) -> tuple[str, str, str]:  # noqa: ANN401 - V1ContainerStatus
    for state in ("running", "terminated", "waiting"):
        if (detail := getattr(status.state, state)) is not None:
            return status.name, state, getattr(detail, "reason", None) or ""
    return status.name, "waiting", ""


def container_read(found: ContainerState) -> tuple[str, str, str]:
    return found.name, found.state, found.reason


def of_node(model: Any) -> Json:  # noqa: ANN401 - V1Node
    status = model.status
    return {
        "name": model.metadata.name,
        "uid": model.metadata.uid,
        "ready": {"True": True, "False": False}.get(ready(status.conditions) or ""),
        "boot_id": status.node_info.boot_id,
        "internal_ips": tuple(
            one.address for one in status.addresses or [] if one.type == "InternalIP"
        ),
        "overlay_ips": (),
        "interface_ips": (),
        "volumes_in_use": tuple(status.volumes_in_use or ()),
        "volumes_attached": tuple(one.name for one in status.volumes_attached or []),
        "ready_changed_at": next(
            one.last_transition_time for one in status.conditions if one.type == "Ready"
        ),
        "unschedulable": bool(model.spec.unschedulable),
        "labels": tuple((model.metadata.labels or {}).items()),
    }


def of_csi_node(model: Any) -> Json:  # noqa: ANN401 - V1CSINode
    counts = [
        (one.name, one.allocatable.count if one.allocatable is not None else None)
        for one in model.spec.drivers
    ]
    return {
        "node_name": model.metadata.name,
        "drivers": tuple(name for name, _ in counts),
        "limits": tuple((name, count) for name, count in counts if count is not None),
    }


def of_attachment(model: Any) -> Json:  # noqa: ANN401 - V1VolumeAttachment
    status = model.status
    errors = (
        error.message or "" if error is not None else ""
        for error in (status.attach_error, status.detach_error)
    )
    attach_error, detach_error = map(without_keys, errors)
    return metadata(model.metadata) | {
        "name": model.metadata.name,
        "attacher": model.spec.attacher,
        "node_name": model.spec.node_name,
        "persistent_volume": model.spec.source.persistent_volume_name,
        "attached": bool(status.attached),
        "attach_error": attach_error,
        "detach_error": detach_error,
    }


def of_event(model: Any) -> Json:  # noqa: ANN401 - CoreV1Event
    times = (
        model.series.last_observed_time if model.series is not None else None,
        model.last_timestamp,
        model.event_time,
        model.first_timestamp,
        model.metadata.creation_timestamp,
    )
    return {
        "kind": model.involved_object.kind,
        "subject": reference(model.involved_object),
        "type": model.type,
        "reason": model.reason,
        "message": without_keys(model.message or ""),
        "last_seen": next(one for one in times if one is not None),
        "count": (model.series.count if model.series is not None else model.count) or 1,
    }


ORACLES: Final[dict[str, tuple[Callable[[Json], object], Callable[[Any], Json]]]] = {
    "PersistentVolume": (read.persistent_volume, of_volume),
    "PersistentVolumeClaim": (read.claim, of_claim),
    "Pod": (read.pod, of_pod),
    "Node": (read.node, of_node),
    "CSINode": (read.csi_node, of_csi_node),
    "VolumeAttachment": (read.attachment, of_attachment),
    "Event": (read.event, of_event),
}
"""By kind: how rbdagent reads an object, and the same fields of the client's model."""

_READ: Final[dict[str, Callable[[Any], object]]] = {
    "source": source_read,
    "node_affinity": terms_read,
    "containers": lambda found: [container_read(one) for one in found],
    "claim": lambda found: found and (found.namespace, found.name, found.uid),
    "ref": lambda found: (found.namespace, found.name, found.uid),
    "subject": lambda found: (found.namespace, found.name, found.uid),
}
"""How a field of rbdagent's struct is written for the comparison."""


def as_read(name: str, value: object, expected: object) -> object:
    """Return a field of rbdagent's struct in the form that the model has."""
    if name in _READ:
        return _READ[name](value)
    if isinstance(expected, datetime) and isinstance(value, str):
        return datetime.fromisoformat(value)
    return value


@pytest.mark.parametrize("kind", ORACLES)
def test_the_clients_models_read_the_same(kind: str) -> None:
    parse, oracle = ORACLES[kind]
    found = objects()[kind]
    for data in found:
        expected, parsed = oracle(model_of(data)), parse(data)
        seen = {name: as_read(name, getattr(parsed, name), expected[name]) for name in expected}
        assert seen == expected, data["metadata"]["name"]
    assert Counter(one["kind"] for one in found)[kind] >= 25
