"""Parser of API objects (JSON); a field that the API server omits has an empty value."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, TypeVar

from rbdagent.errors import ParseError
from rbdagent.model import (
    ClaimCondition,
    ContainerState,
    CSINode,
    CsiSource,
    DisruptionBudget,
    DriverPod,
    DriverWorkload,
    ImageSpec,
    InTreeRbdSource,
    KubeEvent,
    Lease,
    MachineMigration,
    Node,
    ObjectRef,
    OtherSource,
    PersistentVolume,
    PersistentVolumeClaim,
    Pod,
    PublishedFinding,
    PublishedMapping,
    PublishedSummary,
    Requirement,
    Severity,
    StorageClass,
    Taint,
    Toleration,
    Verdict,
    VolumeAttachment,
    VolumeReplication,
    VolumeSource,
    Workload,
    WorkloadPod,
)
from rbdagent.model.inventory import SnapshotContent
from rbdagent.parse.address import parse_address
from rbdagent.parse.ceph_keys import without_keys
from rbdagent.parse.labels import image_keys_in, unmapped_keys_in
from rbdagent.parse.node_networks import interface_ips, overlay_ips
from rbdagent.parse.quantity import parse_quantity
from rbdagent.parse.volume import is_rbd_driver

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from rbdagent.model import EntityAddress, NodeTerm, Selector

Json = dict[str, Any]
_T = TypeVar("_T")

_OUT_OF_SERVICE: Final = "node.kubernetes.io/out-of-service"
_REVISION_DIGITS: Final = 20
"""A revision of etcd is a number of 64 bits."""
CONFIRMS: Final = "rbdagent.dev/confirms"
"""The annotation of an agent's Lease with the version of the RBDNode that it confirms."""
_MIGRATED_TO: Final = "pv.kubernetes.io/migrated-to"
_PROVISIONED_BY: Final = "pv.kubernetes.io/provisioned-by"
_FREEZE: Final = "rbdagent.dev/freeze"
_OF_GROWTH: Final = frozenset(
    {"Resizing", "FileSystemResizePending", "ControllerResizeError", "NodeResizeError"}
)
_LONGEST_MESSAGE: Final = 4096
_PROVISIONED_FROM: Final = frozenset(
    {"PersistentVolumeClaim.", "VolumeSnapshot.snapshot.storage.k8s.io"}
)
_BIND_COMPLETED: Final = "pv.kubernetes.io/bind-completed"
_BOUND_BY_CONTROLLER: Final = "pv.kubernetes.io/bound-by-controller"
_SELECTED_NODE: Final = "volume.kubernetes.io/selected-node"
_PROVISIONER: Final = "volume.kubernetes.io/storage-provisioner"
_OLD_PROVISIONER: Final = "volume.beta.kubernetes.io/storage-provisioner"
_OLD_CLASS: Final = "volume.beta.kubernetes.io/storage-class"
"""The annotation has precedence over the field (GetPersistentVolumeClaimClass)."""
_SERVES: Final = re.compile(r"--?(?:drivername|provisioner)[= ](?P<name>\S+)")
_VARIABLE: Final = re.compile(r"\$\((?P<name>[^()]+)\)")
_DEFAULT_DRIVER: Final = "rbd.csi.ceph.com"
_SERVES_BY_NAME: Final = "PROVISIONER_NAME"
"""The variable from which the provisioners of external-storage read their name."""
_DEFAULT_CLASS: Final = (
    "storageclass.kubernetes.io/is-default-class",
    "storageclass.beta.kubernetes.io/is-default-class",
)
_REPLICATION_GROUP: Final = "replication.storage.openshift.io/volume-group-replication-name"
"""csi-addons writes the name of the group, and wrote ``NAME/NAMESPACE`` at first
(internal/controller/replication.storage/pvc.go of kubernetes-csi-addons)."""
_OWNER_OF_RAMEN: Final = "ramendr.openshift.io/owner-name"
"""The label with the VolumeReplicationGroup, which has no owner reference if it is in the namespace
of Ramen (createVR() in internal/controller/vrg_volrep.go)."""
_NOT_SCHEDULED: Final = frozenset({"Unschedulable", "SchedulingGated", "SchedulerError"})
SPEC_FIELDS: Final = frozenset(
    {
        "accessModes",
        "capacity",
        "claimRef",
        "mountOptions",
        "nodeAffinity",
        "persistentVolumeReclaimPolicy",
        "storageClassName",
        "volumeAttributesClassName",
        "volumeMode",
    }
)
"""Fields of a PV's spec other than its source."""


def parse_object(read: Callable[[Json], _T], data: object, *, what: str) -> _T:
    """Parse one object; a malformed object always raises the same error.

    Raises:
        ParseError: a required field is missing, or has another shape.
    """
    try:
        return read(dict(data))  # type: ignore[call-overload]
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise ParseError(
            what=what,
            where="the API server's answer",
            text=str(data)[:200],
            expected=f"a Kubernetes object ({type(error).__name__}: {error})",
        ) from error


def persistent_volume(data: Json) -> PersistentVolume:
    """Read a PersistentVolume."""
    meta, spec = data["metadata"], data["spec"]
    claim = spec.get("claimRef")
    annotations = meta.get("annotations") or {}
    return PersistentVolume(
        name=meta["name"],
        uid=meta.get("uid"),
        phase=(data.get("status") or {}).get("phase", ""),
        source=_source(spec),
        claim=ObjectRef(
            namespace=claim.get("namespace", ""), name=claim["name"], uid=claim.get("uid") or None
        )
        if claim
        else None,
        access_modes=tuple(spec.get("accessModes") or ()),
        volume_mode=spec.get("volumeMode") or "Filesystem",
        reclaim_policy=spec.get("persistentVolumeReclaimPolicy") or "",
        storage_class=annotations.get(_OLD_CLASS, spec.get("storageClassName")) or "",
        migrated_to=annotations.get(_MIGRATED_TO),
        provisioner=annotations.get(_PROVISIONED_BY),
        deleting_since=meta.get("deletionTimestamp"),
        created_at=meta.get("creationTimestamp"),
        frozen=is_frozen(data),
        capacity_bytes=_bytes((spec.get("capacity") or {}).get("storage")),
        node_affinity=node_terms((spec.get("nodeAffinity") or {}).get("required")),
        labels=_labels(meta),
        finalizers=tuple(meta.get("finalizers") or ()),
        bound_by_controller=_BOUND_BY_CONTROLLER in annotations,
        phase_since=(data.get("status") or {}).get("lastPhaseTransitionTime"),
        reason=without_keys((data.get("status") or {}).get("message") or ""),
        attributes_class=spec.get("volumeAttributesClassName") or "",
        mount_options=tuple(spec.get("mountOptions") or ()),
    )


def snapshot_content(data: Json) -> SnapshotContent:
    """Read a VolumeSnapshotContent, of v1 or v1beta1.

    Its source is a volume, of which the driver makes a snapshot, or the handle of one that exists.
    """
    spec, status = data["spec"], data.get("status") or {}
    snapshot = spec.get("volumeSnapshotRef") or {}
    source = spec.get("source") or {}
    return SnapshotContent(
        name=data["metadata"]["name"],
        driver=spec.get("driver") or "",
        handle=status.get("snapshotHandle") or source.get("snapshotHandle") or None,
        volume_handle=source.get("volumeHandle") or None,
        snapshot=ObjectRef(
            namespace=snapshot.get("namespace") or "",
            name=snapshot.get("name") or "",
            uid=snapshot.get("uid") or None,
        )
        if snapshot
        else None,
    )


def is_frozen(data: Json) -> bool:
    """Return whether the annotation of an object forbids every action on it.

    Any value but "false" freezes the object: a mistyped value must not allow an action.
    """
    value = (data["metadata"].get("annotations") or {}).get(_FREEZE)
    return value is not None and str(value).strip().lower() != "false"


def _source(spec: Json) -> VolumeSource:
    if (csi := spec.get("csi")) is not None:
        return csi_source(csi)
    if (rbd := spec.get("rbd")) is not None:
        return in_tree_source(rbd)
    kinds = sorted(spec.keys() - SPEC_FIELDS)
    return OtherSource(kind=kinds[0] if kinds else "unknown")


def csi_source(csi: Json) -> CsiSource | OtherSource:
    """Parse ``spec.csi``; the volume of another driver has only driver, handle and served image."""
    attributes = {
        str(key): str(value) for key, value in (csi.get("volumeAttributes") or {}).items()
    }
    if not is_rbd_driver(csi["driver"], attributes):
        return OtherSource(
            kind=csi["driver"],
            volume_handle=csi.get("volumeHandle"),
            image=_image_served(attributes),
        )
    return CsiSource(
        driver=csi["driver"],
        volume_handle=csi["volumeHandle"],
        attributes=tuple(sorted(attributes.items())),
        fs_type=csi.get("fsType"),
        read_only=bool(csi.get("readOnly")),
    )


def _image_served(attributes: dict[str, str]) -> ImageSpec | None:
    """Return the RBD image that an NVMe-oF gateway serves; None if the attributes name none."""
    pool, name = attributes.get("pool"), attributes.get("imageName")
    if not pool or not name:
        return None
    return ImageSpec(pool=pool, namespace=attributes.get("radosNamespace") or "", name=name)


def in_tree_source(rbd: Json) -> InTreeRbdSource:
    """Parse ``spec.rbd`` of a PV, or ``rbd`` of a pod's volume; the default pool is ``rbd``."""
    return InTreeRbdSource(
        spec=ImageSpec(pool=rbd.get("pool") or "rbd", name=rbd["image"]),
        monitors=tuple(rbd.get("monitors") or ()),
        read_only=bool(rbd.get("readOnly")),
    )


def claim(data: Json) -> PersistentVolumeClaim:
    """Read a PersistentVolumeClaim."""
    meta, spec = data["metadata"], data.get("spec") or {}
    annotations = meta.get("annotations") or {}
    requests = (spec.get("resources") or {}).get("requests") or {}
    status = data.get("status") or {}
    return PersistentVolumeClaim(
        ref=_ref(data),
        phase=status.get("phase", ""),
        volume_name=spec.get("volumeName") or None,
        storage_class=annotations.get(_OLD_CLASS, spec.get("storageClassName")),
        access_modes=tuple(spec.get("accessModes") or ()),
        volume_mode=spec.get("volumeMode") or "Filesystem",
        deleting_since=meta.get("deletionTimestamp"),
        labels=_labels(meta),
        created_at=meta.get("creationTimestamp"),
        requested_bytes=_bytes(requests.get("storage")),
        selector=_selector(spec.get("selector")),
        finalizers=tuple(meta.get("finalizers") or ()),
        bind_completed=_BIND_COMPLETED in annotations,
        bound_by_controller=_BOUND_BY_CONTROLLER in annotations,
        selected_node=annotations.get(_SELECTED_NODE),
        provisioner=annotations.get(_PROVISIONER) or annotations.get(_OLD_PROVISIONER),
        has_data_source=bool(spec.get("dataSource") or spec.get("dataSourceRef")),
        populated_from=_populated_from(spec.get("dataSourceRef") or {}),
        attributes_class=spec.get("volumeAttributesClassName") or "",
        replication_group=str(annotations.get(_REPLICATION_GROUP) or "").partition("/")[0],
        requested_at=max(
            _times_of(meta, "f:spec", "f:resources", "f:requests", "f:storage"), default=None
        ),
        capacity_bytes=_bytes((status.get("capacity") or {}).get("storage")),
        growth=(status.get("allocatedResourceStatuses") or {}).get("storage") or "",
        growth_conditions=tuple(
            ClaimCondition(
                type=condition["type"],
                message=str(condition.get("message") or "")[:_LONGEST_MESSAGE],
                changed_at=condition.get("lastTransitionTime"),
            )
            for condition in status.get("conditions") or ()
            if condition.get("type") in _OF_GROWTH and condition.get("status") == "True"
        ),
    )


def _populated_from(source: Json) -> str:
    """Return a data source that no external-provisioner reads itself; empty without one.

    It reads claims and VolumeSnapshots (pkg/controller/controller.go@v6.3.0).
    """
    kind, group = str(source.get("kind") or ""), source.get("apiGroup") or ""
    if not kind or f"{kind}.{group}" in _PROVISIONED_FROM:
        return ""
    return f"{kind}.{group}".rstrip(".") + f" {source.get('name') or ''}"


def _labels(meta: Json) -> tuple[tuple[str, str], ...]:
    return tuple((str(key), str(value)) for key, value in (meta.get("labels") or {}).items())


def _bytes(quantity: object) -> int | None:
    return None if quantity is None else parse_quantity(str(quantity))


def _selector(selector: Json | None) -> Selector | None:
    if not selector:
        return None
    labels = sorted((selector.get("matchLabels") or {}).items())
    exact = (Requirement(key=key, operator="In", values=(value,)) for key, value in labels)
    return (*exact, *_requirements(selector.get("matchExpressions")))


def node_terms(selector: Json | None) -> tuple[NodeTerm, ...]:
    """Parse a NodeSelector: a node matches if any of its terms matches."""
    terms = (selector or {}).get("nodeSelectorTerms") or ()
    return tuple(
        (*_requirements(term.get("matchExpressions")), *_requirements(term.get("matchFields")))
        for term in terms
    )


def _requirements(expressions: list[Json] | None) -> tuple[Requirement, ...]:
    return tuple(
        Requirement(
            key=expression["key"],
            operator=expression["operator"],
            values=tuple(expression.get("values") or ()),
        )
        for expression in expressions or ()
    )


def pod(data: Json) -> Pod:
    """Parse a Pod; of its volumes, only claims and RBD images are kept."""
    meta, spec, status = data["metadata"], data["spec"], data.get("status") or {}
    volumes = spec.get("volumes") or ()
    conditions = {condition["type"]: condition for condition in status.get("conditions") or ()}
    scheduled = conditions.get("PodScheduled") or {}
    statuses = [
        *(status.get("initContainerStatuses") or ()),
        *(status.get("containerStatuses") or ()),
    ]
    return Pod(
        ref=_ref(data),
        node_name=spec.get("nodeName") or None,
        phase=status.get("phase", ""),
        ready=(conditions.get("Ready") or {}).get("status") == "True",
        deleting_since=meta.get("deletionTimestamp"),
        claims=tuple(name for volume in volumes if (name := _claim_name(meta["name"], volume))),
        read_only_claims=_read_only_claims(meta["name"], volumes),
        inline_images=tuple(
            in_tree_source(volume["rbd"]) for volume in volumes if volume.get("rbd")
        ),
        owners=_owners(meta),
        containers=tuple(_container(container) for container in statuses),
        created_at=meta.get("creationTimestamp"),
        finalizers=tuple(meta.get("finalizers") or ()),
        grace_s=meta.get("deletionGracePeriodSeconds"),
        unschedulable=scheduled.get("message") or ""
        if scheduled.get("reason") in _NOT_SCHEDULED and scheduled.get("status") == "False"
        else "",
        node_selector=tuple(sorted((spec.get("nodeSelector") or {}).items())),
        placed_at=scheduled.get("lastTransitionTime")
        if scheduled.get("status") == "True"
        else None,
        labels=_labels(meta),
    )


def _read_only_claims(pod_name: str, volumes: Iterable[Json]) -> tuple[str, ...]:
    """Return the claims that each volume of theirs mounts read-only, by name."""
    modes: dict[str, bool] = {}
    for volume in volumes:
        if name := _claim_name(pod_name, volume):
            source = volume.get("persistentVolumeClaim") or {}
            modes[name] = modes.get(name, True) and bool(source.get("readOnly"))
    return tuple(name for name, is_read_only in modes.items() if is_read_only)


def _claim_name(pod_name: str, volume: Json) -> str | None:
    if (source := volume.get("persistentVolumeClaim")) is not None:
        return str(source["claimName"])
    if volume.get("ephemeral") is not None:
        # The claim of a generic ephemeral volume is named after its pod and volume.
        return f"{pod_name}-{volume['name']}"
    return None


def _container(data: Json) -> ContainerState:
    state, detail = next(iter((data.get("state") or {"waiting": {}}).items()))
    return ContainerState(
        name=data["name"],
        state=state,
        reason=(detail or {}).get("reason") or "",
        message=without_keys((detail or {}).get("message") or ""),
    )


def driver_pod(data: Json) -> DriverPod:
    """Parse a pod of a driver: its images, and the driver names in its arguments and variables."""
    spec, status = data["spec"], data.get("status") or {}
    containers = spec.get("containers") or ()
    ready: Json = next(
        (condition for condition in status.get("conditions") or () if condition["type"] == "Ready"),
        {},
    )
    return DriverPod(
        ref=_ref(data),
        node_name=spec.get("nodeName") or None,
        phase=status.get("phase", ""),
        ready=ready.get("status") == "True",
        images=tuple(container.get("image") or "" for container in containers),
        serves=tuple(
            dict.fromkeys(name for container in containers for name in _served(container))
        ),
    )


def driver_workload(data: Json, *, kind: str) -> DriverWorkload:
    """Parse a Deployment or DaemonSet; without a driver in its arguments, it serves none."""
    meta, spec, status = data["metadata"], data.get("spec") or {}, data.get("status") or {}
    template = (spec.get("template") or {}).get("spec") or {}
    containers = template.get("containers") or ()
    affinity = ((template.get("affinity") or {}).get("nodeAffinity") or {}).get(
        "requiredDuringSchedulingIgnoredDuringExecution"
    )
    strategy = (spec.get("strategy") or spec.get("updateStrategy") or {}).get("type")
    counts = _pod_counts(spec, status, kind)
    return DriverWorkload(
        kind=kind,
        ref=_ref(data),
        serves=tuple(
            dict.fromkeys(
                name
                for container in containers
                for name in (*_served(container), *_served_by_default(container))
            )
        ),
        containers=tuple(
            f"{container['name']} {container.get('image') or ''}" for container in containers
        ),
        owners=tuple(
            f"{owner['kind']}/{owner['name']}" for owner in meta.get("ownerReferences") or ()
        ),
        desired=counts["desired"],
        current=counts["current"],
        ready=counts["ready"],
        updated=counts["updated"],
        rolls=strategy != "OnDelete",
        failure=_replica_failure(status),
        node_selector=tuple(sorted((template.get("nodeSelector") or {}).items())),
        node_affinity=node_terms(affinity),
        tolerations=tuple(
            Toleration(
                key=one.get("key") or "",
                operator=one.get("operator") or "Equal",
                value=one.get("value") or "",
                effect=one.get("effect") or "",
            )
            for one in template.get("tolerations") or ()
        ),
        selector=_selector(spec.get("selector")),
    )


def _pod_counts(spec: Json, status: Json, kind: str) -> dict[str, int]:
    """Return how many pods a workload has; a Deployment omits a number that is 0."""
    if kind == "DaemonSet":
        names = ("desired", "current", "updated")
        counts = {name: int(status.get(f"{name}NumberScheduled") or 0) for name in names}
        return {**counts, "ready": int(status.get("numberReady") or 0)}
    return {
        "desired": 1 if spec.get("replicas") is None else int(spec["replicas"]),
        "current": int(status.get("replicas") or 0),
        "updated": int(status.get("updatedReplicas") or 0),
        "ready": int(status.get("readyReplicas") or 0),
    }


def _replica_failure(status: Json) -> str:
    for condition in status.get("conditions") or ():
        if condition["type"] == "ReplicaFailure" and condition.get("status") == "True":
            return without_keys(condition.get("message") or "")
    return ""


def workload_pod(data: Json) -> WorkloadPod | None:
    """Parse a pod of a driver's workload; None if it is being deleted, or has ended."""
    meta, spec, status = data["metadata"], data["spec"], data.get("status") or {}
    conditions = {condition["type"]: condition for condition in status.get("conditions") or ()}
    # A Deployment leaves pods that were evicted.
    if meta.get("deletionTimestamp") or status.get("phase") in {"Failed", "Succeeded"}:
        return None
    scheduled = conditions.get("PodScheduled") or {}
    statuses = (
        *(status.get("initContainerStatuses") or ()),
        *(status.get("containerStatuses") or ()),
    )
    waiting = next((one for one in map(_container, statuses) if one.state == "waiting"), None)
    return WorkloadPod(
        ref=_ref(data),
        ready=(conditions.get("Ready") or {}).get("status") == "True",
        node_name=spec.get("nodeName") or _node_of_daemon(spec),
        created_at=meta.get("creationTimestamp"),
        unschedulable=scheduled.get("message") or ""
        if scheduled.get("reason") in _NOT_SCHEDULED
        else "",
        container=waiting.name if waiting is not None else "",
        waiting=waiting.reason if waiting is not None else "",
        message=waiting.message if waiting is not None else "",
    )


def _node_of_daemon(spec: Json) -> str | None:
    """Return the node that the DaemonSet controller chose for a pod.

    It writes an affinity to it (pkg/controller/daemon/util/daemonset_util.go@v1.36.3,
    ReplaceDaemonSetPodNodeNameNodeAffinity).
    """
    affinity = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(
        "requiredDuringSchedulingIgnoredDuringExecution"
    )
    for term in node_terms(affinity):
        for requirement in term:
            if requirement.key == "metadata.name" and len(requirement.values) == 1:
                return requirement.values[0]
    return None


def _served_by_default(container: Json) -> Iterator[str]:
    """Yield the name that ceph-csi has without an argument (cmd/cephcsi.go@52fcb7b)."""
    words = _words_of(container)
    if "--type=rbd" in words and not any("drivername" in one for one in words):
        yield _DEFAULT_DRIVER


def _words_of(container: Json) -> list[str]:
    """Return command and arguments; kubelet puts the value of a variable in place of `$(NAME)`.

    The chart of ceph-csi names the driver so (templates/nodeplugin-daemonset.yaml). A variable
    whose value is elsewhere stays as it is.
    """
    values = {one["name"]: one["value"] for one in container.get("env") or () if one.get("value")}
    return [
        _VARIABLE.sub(lambda match: values.get(match["name"], match[0]), word)
        for word in (*(container.get("command") or ()), *(container.get("args") or ()))
    ]


def _served(container: Json) -> Iterator[str]:
    words = " ".join(_words_of(container))
    yield from (match["name"] for match in _SERVES.finditer(words))
    for variable in container.get("env") or ():
        if variable["name"] == _SERVES_BY_NAME and variable.get("value"):
            yield variable["value"]


def lease(data: Json) -> Lease:
    """Read a Lease."""
    meta, spec = data["metadata"], data.get("spec") or {}
    return Lease(
        namespace=meta["namespace"],
        name=meta["name"],
        holder=spec.get("holderIdentity") or "",
        renewed_at=spec.get("renewTime"),
        stored_at=_stored_at(meta, "f:spec", "f:renewTime"),
        duration_s=float(spec.get("leaseDurationSeconds") or 15),
        confirms=(meta.get("annotations") or {}).get(CONFIRMS),
    )


def version_of(data: Json) -> str | None:
    """Return the version of an object, as the Lease of an agent names it; None without one.

    The uid differs for an object that was created again, and the resourceVersion for each write.
    """
    uid, version = data["metadata"].get("uid"), data["metadata"].get("resourceVersion")
    return f"{uid}/{version}" if uid and version else None


def revision_of(data: Json) -> int | None:
    """Return the resourceVersion as a number; None if it is none.

    Of one resource, a later write has a greater number ("Resource versions" in the Kubernetes API
    concepts; the revision of etcd), except after etcd was restored from a backup.
    """
    version = str(data["metadata"].get("resourceVersion") or "")
    is_number = version.isascii() and version.isdecimal() and len(version) <= _REVISION_DIGITS
    return int(version) if is_number else None


def _stored_at(metadata: Json, *path: str) -> str | None:
    """Return when the API server stored a field, by its own clock; None if it does not show it.

    If several writers have set the field, the earliest time counts.
    """
    return min(_times_of(metadata, *path), default=None)


def _times_of(metadata: Json, *path: str) -> Iterator[str]:
    """Yield when each writer of a field was stored.

    Each entry of managedFields has the fields that one writer has set, and the time of its last
    change of one of them (Update() in apimachinery's pkg/util/managedfields/internal/
    managedfieldsupdater.go).
    """
    for entry in metadata.get("managedFields") or ():
        fields = entry.get("fieldsV1")
        for key in path:
            fields = fields.get(key) if isinstance(fields, dict) else None
        if fields is not None and entry.get("time"):
            yield str(entry["time"])


def version(data: Json) -> str:
    """Return the version of the API server from ``/version``."""
    return str(data["gitVersion"])


def node(data: Json) -> Node:
    """Parse a Node; Ready ``Unknown`` (kubelet is not reporting) becomes None.

    kubelet dates all its conditions with each report of its status. The node lifecycle controller
    keeps the time when it sets them to Unknown (tryUpdateNodeHealth in
    pkg/controller/nodelifecycle/node_lifecycle_controller.go@v1.36.3).
    """
    status, spec = data.get("status") or {}, data.get("spec") or {}
    annotations: Json = data["metadata"].get("annotations") or {}
    ready: Json = next(
        (condition for condition in status.get("conditions") or () if condition["type"] == "Ready"),
        {},
    )
    is_ready = {"True": True, "False": False}.get(ready.get("status", ""))
    return Node(
        name=data["metadata"]["name"],
        uid=data["metadata"].get("uid"),
        ready=is_ready,
        boot_id=(status.get("nodeInfo") or {}).get("bootID"),
        internal_ips=tuple(
            address["address"]
            for address in status.get("addresses") or ()
            if address["type"] == "InternalIP"
        ),
        overlay_ips=overlay_ips(annotations, spec.get("podCIDRs") or ()),
        interface_ips=interface_ips(annotations),
        volumes_in_use=tuple(status.get("volumesInUse") or ()),
        volumes_attached=tuple(
            attached["name"] for attached in status.get("volumesAttached") or ()
        ),
        out_of_service=any(
            taint.get("key") == _OUT_OF_SERVICE for taint in spec.get("taints") or ()
        ),
        ready_changed_at=ready.get("lastTransitionTime"),
        reported_at=None if is_ready else ready.get("lastHeartbeatTime"),
        frozen=is_frozen(data),
        labels=_labels(data["metadata"]),
        unschedulable=bool(spec.get("unschedulable")),
        taints=tuple(
            Taint(key=taint["key"], effect=taint["effect"], value=taint.get("value") or "")
            for taint in spec.get("taints") or ()
        ),
    )


def csi_node(data: Json) -> CSINode:
    """Read a CSINode."""
    drivers = (data.get("spec") or {}).get("drivers") or ()
    limits = (
        (driver["name"], (driver.get("allocatable") or {}).get("count")) for driver in drivers
    )
    return CSINode(
        node_name=data["metadata"]["name"],
        drivers=tuple(driver["name"] for driver in drivers),
        limits=tuple((name, count) for name, count in limits if count is not None),
    )


def attachment(data: Json) -> VolumeAttachment:
    """Read a VolumeAttachment."""
    meta, spec, status = data["metadata"], data["spec"], data.get("status") or {}
    return VolumeAttachment(
        name=meta["name"],
        attacher=spec["attacher"],
        node_name=spec["nodeName"],
        persistent_volume=(spec.get("source") or {}).get("persistentVolumeName"),
        attached=bool(status.get("attached")),
        deleting_since=meta.get("deletionTimestamp"),
        created_at=meta.get("creationTimestamp"),
        attach_error=without_keys((status.get("attachError") or {}).get("message") or ""),
        detach_error=without_keys((status.get("detachError") or {}).get("message") or ""),
        finalizers=tuple(meta.get("finalizers") or ()),
    )


def event(data: Json) -> KubeEvent:
    """Read a core/v1 Event."""
    regarded, series = data.get("involvedObject") or {}, data.get("series") or {}
    reporter = data.get("reportingComponent") or (data.get("source") or {}).get("component") or ""
    return KubeEvent(
        kind=regarded.get("kind", ""),
        subject=ObjectRef(
            namespace=regarded.get("namespace", ""),
            name=regarded.get("name", ""),
            uid=regarded.get("uid"),
        ),
        type=data.get("type", ""),
        reason=data.get("reason", ""),
        message=without_keys(data.get("message", "")),
        last_seen=series.get("lastObservedTime")
        or data.get("lastTimestamp")
        or data.get("eventTime")
        or data.get("firstTimestamp")
        or data["metadata"].get("creationTimestamp"),
        count=int(series.get("count") or data.get("count") or 1),
        reporter=reporter,
        first_seen=data.get("firstTimestamp") or data.get("eventTime"),
    )


def object_name(data: Json) -> str:
    """Return the name of an object."""
    return str(data["metadata"]["name"])


def storage_class(data: Json) -> StorageClass:
    """Read a StorageClass."""
    meta = data["metadata"]
    annotations, parameters = meta.get("annotations") or {}, data.get("parameters") or {}
    return StorageClass(
        name=meta["name"],
        provisioner=data["provisioner"],
        binding_mode=data.get("volumeBindingMode") or "Immediate",
        reclaim_policy=data.get("reclaimPolicy") or "Delete",
        is_default="true" in {annotations.get(key) for key in _DEFAULT_CLASS},
        created_at=meta.get("creationTimestamp"),
        allowed_topologies=tuple(
            tuple(
                Requirement(key=one["key"], operator="In", values=tuple(one["values"]))
                for one in term.get("matchLabelExpressions") or ()
            )
            for term in data.get("allowedTopologies") or ()
        ),
        pool=str(parameters.get("pool") or ""),
        data_pool=str(parameters.get("dataPool") or ""),
        parameters=tuple(sorted(name for name, value in parameters.items() if value)),
        cluster_id=str(parameters.get("clusterID") or ""),
    )


def workload(data: Json, *, kind: str) -> Workload:
    """Parse a ReplicaSet, Deployment or StatefulSet; the items of a list do not name their kind."""
    spec = data.get("spec") or {}
    strategy = spec.get("strategy") or spec.get("updateStrategy") or {}
    rolling = strategy.get("rollingUpdate") or {}
    return Workload(
        kind=kind,
        ref=_ref(data),
        owners=_owners(data["metadata"]),
        replicas=1 if spec.get("replicas") is None else int(spec["replicas"]),
        strategy=strategy.get("type") or "",
        max_surge=str(rolling.get("maxSurge", "")),
        max_unavailable=str(rolling.get("maxUnavailable", "")),
    )


def disruption_budget(data: Json) -> DisruptionBudget:
    """Parse a PodDisruptionBudget of policy/v1; without a status, it allows no eviction."""
    spec, status = data.get("spec") or {}, data.get("status") or {}
    given = spec.get("selector")
    return DisruptionBudget(
        ref=_ref(data),
        # An empty selector selects all pods, and a missing one none (since policy/v1).
        selector=None if given is None else (_selector(given) or ()),
        allowed=int(status.get("disruptionsAllowed") or 0),
        healthy=int(status.get("currentHealthy") or 0),
        wanted=int(status.get("desiredHealthy") or 0),
        evicts_unhealthy=spec.get("unhealthyPodEvictionPolicy") == "AlwaysAllow",
    )


def machine_migration(data: Json) -> MachineMigration:
    """Read a VirtualMachineInstanceMigration of KubeVirt (api/core/v1/types.go).

    Only a final phase shows that it has ended: virt-controller copies ``migrationState`` from the
    VirtualMachineInstance afterwards (updateStatus() in pkg/virt-controller/watch/migration).
    """
    meta, status = data["metadata"], data.get("status") or {}
    state, phase = status.get("migrationState") or {}, _text(status.get("phase"))
    times = {
        _text(one.get("phase")): _text(one.get("phaseTransitionTimestamp"))
        for one in status.get("phaseTransitionTimestamps") or ()
    }
    ended = times.get(phase) if phase in MachineMigration.FINAL else None
    return MachineMigration(
        ref=_ref(data),
        machine=_text((data.get("spec") or {}).get("vmiName")),
        phase=phase,
        since=times.get(phase) or _text(meta.get("creationTimestamp")) or None,
        deleting_since=meta.get("deletionTimestamp"),
        ended_at=ended or _text(state.get("endTimestamp")) or None,
        failure=_text(state.get("failureReason")),
    )


def volume_replication(data: Json) -> VolumeReplication:
    """Read a VolumeReplication of csi-addons (replication.storage.openshift.io/v1alpha1).

    The condition Degraded counts for nothing: it is True of every copy until it is synchronised
    (setDemotedCondition() in internal/controller/replication.storage/status.go).
    """
    meta, spec, status = data["metadata"], data.get("spec") or {}, data.get("status") or {}
    source = spec.get("dataSource") or {}
    completed: Json = next(
        (one for one in status.get("conditions") or () if one.get("type") == "Completed"), {}
    )
    has_failed = completed.get("status") == "False"
    observed = status.get("observedGeneration")
    ramen = _text((meta.get("labels") or {}).get(_OWNER_OF_RAMEN))
    return VolumeReplication(
        ref=_ref(data),
        source=f"{source.get('kind') or ''}/{source.get('name') or ''}",
        wanted=_text(spec.get("replicationState")),
        state=_text(status.get("state")),
        message=_text(status.get("message")) or _text(completed.get("message")),
        failure=(_text(completed.get("reason")) or "Failed") if has_failed else "",
        completed=completed.get("status") == "True",
        is_current=observed is not None and int(observed) >= int(meta.get("generation") or 0),
        owner=next(iter(_owners(meta)), f"VolumeReplicationGroup/{ramen}" if ramen else ""),
    )


def _text(value: object) -> str:
    """Return the text of a field that only a CustomResourceDefinition bounds."""
    return without_keys(str(value or ""))[:_LONGEST_MESSAGE]


def _owners(meta: Json) -> tuple[str, ...]:
    return tuple(
        f"{owner['kind']}/{owner['name']}"
        for owner in meta.get("ownerReferences") or ()
        if owner.get("controller")
    )


def _ref(data: Json) -> ObjectRef:
    meta = data["metadata"]
    return ObjectRef(namespace=meta.get("namespace", ""), name=meta["name"], uid=meta.get("uid"))


def observation_stored_at(data: Json) -> str | None:
    """Return when the API server stored the time in an RBDNode; None if it does not show it."""
    return _stored_at(data["metadata"], "f:status", "f:observedAt")


def rbd_node(data: Json) -> PublishedSummary:
    """Parse an RBDNode; before the first write of its agent, the mappings are not observed."""
    status = data.get("status") or {}
    mapped, clients = status.get("mapped"), status.get("clients")
    labels = data["metadata"].get("labels") or {}
    keys, used = image_keys_in(labels), unmapped_keys_in(labels)
    return PublishedSummary(
        name=data["metadata"]["name"],
        observed_at=status.get("observedAt") or data["metadata"]["creationTimestamp"],
        version=version_of(data),
        stored_at=observation_stored_at(data)
        if status.get("observedAt")
        else data["metadata"]["creationTimestamp"],
        lease_namespace=status.get("leaseNamespace"),
        boot_id=status.get("bootID"),
        mapped=None if mapped is None else int(mapped),
        images=keys - used if len(keys) == status.get("imageLabels") else None,
        used=used,
        clients=None if clients is None else frozenset(map(str, clients)),
    )


def _address_or_none(text: str) -> EntityAddress | None:
    """Return the address of a client; None, as for an unknown one, if it cannot be read.

    The schema of RBDMapping admits any text: that of one node must not hide the reports of others.
    """
    try:
        return parse_address(text, where="an RBDMapping")
    except ParseError:
        return None


def _published_finding(data: Json | None) -> PublishedFinding | None:
    """Return the finding of an RBDMapping; the schema admits only known severities."""
    if data is None:
        return None
    return PublishedFinding(
        code=data["code"], severity=Severity(data["severity"]), message=data["message"]
    )


def rbd_mapping(data: Json) -> PublishedMapping:
    """Parse the status of an RBDMapping."""
    image, address = data.get("image") or {}, data.get("clientAddress")
    return PublishedMapping(
        device=data["device"],
        verdict=Verdict(data["verdict"]),
        fsid=image.get("fsid"),
        spec=ImageSpec(
            pool=image.get("pool", ""),
            namespace=image.get("radosNamespace", ""),
            name=image["name"],
        )
        if image.get("name")
        else None,
        image_id=image.get("id"),
        client_id=data.get("clientID"),
        client_address=_address_or_none(address) if address else None,
        read_only=data.get("readOnly"),
        persistent_volume=data.get("persistentVolume"),
        reasons=tuple(data.get("reasons") or ()),
        findings=tuple(data.get("findings") or ()),
        left_behind=data.get("leftBehind") is True,
        finding=_published_finding(data.get("finding")),
        since=data.get("since"),
        pods=tuple(data.get("pods") or ()),
    )
