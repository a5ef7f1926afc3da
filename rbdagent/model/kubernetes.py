"""The objects read from the Kubernetes API, reduced to the fields that rbdagent needs."""

from __future__ import annotations

from functools import cached_property
from typing import ClassVar

from rbdagent.model.common import (
    LIFECYCLE_NOT_REQUESTED,
    EntityAddress,
    ImageIdentity,
    ImageSpec,
    Int64,
    NotObserved,
    Stored,
    Verdict,
)


class ObjectRef(Stored, frozen=True, kw_only=True, order=True):
    """A namespaced name, with the uid if it is known."""

    namespace: str
    name: str
    uid: str | None = None

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class Requirement(Stored, frozen=True, kw_only=True):
    """One requirement for labels, in a selector or in a node affinity."""

    key: str
    operator: str
    """``In``, ``NotIn``, ``Exists``, ``DoesNotExist``; for nodes also ``Gt`` and ``Lt``."""
    values: tuple[str, ...] = ()

    def __str__(self) -> str:
        return " ".join((self.key, self.operator, ",".join(self.values))).rstrip()


Selector = tuple[Requirement, ...]
"""All requirements must be met; ``matchLabels`` are ``In`` with one value."""


NodeTerm = tuple[Requirement, ...]
"""All requirements must be met; the key ``metadata.name`` is from ``matchFields``."""


class CsiSource(Stored, frozen=True, kw_only=True, tag=True):
    """``spec.csi`` of a PV (or of the translation of a migrated in-tree PV)."""

    driver: str
    volume_handle: str
    attributes: tuple[tuple[str, str], ...] = ()
    """volumeAttributes, sorted. They contain no secrets: other fields refer to those."""
    fs_type: str | None = None
    read_only: bool = False

    def attribute(self, key: str) -> str | None:
        """Return the value of one volume attribute; None without it."""
        return dict(self.attributes).get(key)


class InTreeRbdSource(Stored, frozen=True, kw_only=True, tag=True):
    """``spec.rbd`` of a PV, or an inline ``rbd`` volume of a pod."""

    spec: ImageSpec
    monitors: tuple[str, ...] = ()
    read_only: bool = False


class OtherSource(Stored, frozen=True, kw_only=True, tag=True):
    """The source of a PV that is not RBD; the output names its driver."""

    kind: str
    """``nfs``, ``hostPath``, or a CSI driver's name."""
    volume_handle: str | None = None
    image: ImageSpec | None = None
    """The RBD image that its attributes name; an NVMe-oF gateway serves one."""


VolumeSource = CsiSource | InTreeRbdSource | OtherSource


class PersistentVolume(Stored, frozen=True, kw_only=True):
    """A PV."""

    name: str
    uid: str | None = None
    phase: str
    source: VolumeSource
    claim: ObjectRef | None = None
    access_modes: tuple[str, ...] = ()
    volume_mode: str = "Filesystem"
    reclaim_policy: str = ""
    storage_class: str = ""
    migrated_to: str | None = None
    provisioner: str | None = None
    deleting_since: str | None = None
    created_at: str | None = None
    frozen: bool = False
    """Whether it has the annotation that forbids every unmap of it."""
    capacity_bytes: Int64 | None = None
    node_affinity: tuple[NodeTerm, ...] = ()
    """One matching term is enough; if it is empty, every node can use the PV."""
    labels: tuple[tuple[str, str], ...] = ()
    finalizers: tuple[str, ...] = ()
    bound_by_controller: bool = False
    """Whether the PV controller, not a user, chose the claim (annotation
    ``pv.kubernetes.io/bound-by-controller``)."""
    phase_since: str | None = None
    """``lastPhaseTransitionTime`` (Kubernetes 1.28)."""
    reason: str = ""
    """Why the PV is Failed, according to the controller that failed: ``status.message``."""
    attributes_class: str = ""
    """The VolumeAttributesClass (Kubernetes 1.34)."""
    mount_options: tuple[str, ...] = ()


class ClaimCondition(Stored, frozen=True, kw_only=True):
    """A condition of a claim's growth that is True."""

    type: str
    message: str = ""
    changed_at: str | None = None


class PersistentVolumeClaim(Stored, frozen=True, kw_only=True):
    """A PVC."""

    ref: ObjectRef
    phase: str
    volume_name: str | None = None
    storage_class: str | None = None
    """None if the claim names no class: it may get the default class. Empty if the claim must have
    no class."""
    access_modes: tuple[str, ...] = ()
    volume_mode: str = "Filesystem"
    deleting_since: str | None = None
    labels: tuple[tuple[str, str], ...] = ()
    created_at: str | None = None
    requested_bytes: Int64 | None = None
    selector: Selector | None = None
    finalizers: tuple[str, ...] = ()
    bind_completed: bool = False
    """Whether the PV controller has bound the claim before (``pv.kubernetes.io/bind-completed``).
    Such a claim is Lost if its PV does not exist."""
    bound_by_controller: bool = False
    """Whether the PV controller, not a user, chose the PV."""
    selected_node: str | None = None
    """The node that the scheduler chose for its volume (``volume.kubernetes.io/selected-node``)."""
    provisioner: str | None = None
    """The provisioner that creates its volume (``volume.kubernetes.io/storage-provisioner``)."""
    has_data_source: bool = False
    """Whether its volume is a clone, or is restored from a snapshot."""
    populated_from: str = ""
    """A data source of another kind, which a populator reads: ``Thing.example.org NAME``."""
    requested_at: str | None = None
    """When the API server stored the requested size; None if it does not show it."""
    capacity_bytes: Int64 | None = None
    """The size that all steps of a growth have reached (status.capacity)."""
    growth: str = ""
    """The step of a growth: ``NodeResizePending``. Empty without a growth, and before 1.32."""
    growth_conditions: tuple[ClaimCondition, ...] = ()
    attributes_class: str = ""
    replication_group: str = ""
    """The VolumeGroupReplication of csi-addons that it belongs to
    (``replication.storage.openshift.io/volume-group-replication-name``)."""


class ContainerState(Stored, frozen=True, kw_only=True):
    """The state of a container according to the API."""

    name: str
    state: str
    """``waiting``, ``running`` or ``terminated``."""
    reason: str = ""
    message: str = ""


class Pod(Stored, frozen=True, kw_only=True):
    """A pod."""

    ref: ObjectRef
    node_name: str | None
    phase: str
    ready: bool = False
    deleting_since: str | None = None
    claims: tuple[str, ...] = ()
    """Names of the claims that it mounts, including those of generic ephemeral volumes."""
    read_only_claims: tuple[str, ...] = ()
    """Names of the claims that it mounts only as read-only volumes."""
    inline_images: tuple[InTreeRbdSource, ...] = ()
    inline_volumes: tuple[CsiSource, ...] = ()
    owners: tuple[str, ...] = ()
    """Controllers: ``ReplicaSet/web-5d4f``."""
    containers: tuple[ContainerState, ...] = ()
    created_at: str | None = None
    finalizers: tuple[str, ...] = ()
    grace_s: float | None = None
    """The grace period of its containers in seconds; only while the pod is being deleted."""
    unschedulable: str = ""
    """Why the scheduler finds no node; empty if it reports no reason, or has found a node."""
    node_selector: tuple[tuple[str, str], ...] = ()
    placed_at: str | None = None
    """When the pod was scheduled; None if it has no node, or if the time is not recorded."""
    labels: tuple[tuple[str, str], ...] = ()

    @property
    def placed(self) -> str:
        """The name, with the node if it has one: ``shop/web-1 on worker-1``."""
        return f"{self.ref} on {self.node_name}" if self.node_name else str(self.ref)


class Taint(Stored, frozen=True, kw_only=True):
    """A taint of a Node."""

    key: str
    effect: str
    """``NoSchedule``, ``PreferNoSchedule`` or ``NoExecute``."""
    value: str = ""

    def __str__(self) -> str:
        value = f"={self.value}" if self.value else ""
        return f"{self.key}{value}:{self.effect}"


class Toleration(Stored, frozen=True, kw_only=True):
    """A toleration of a pod; an empty key or effect tolerates each one."""

    key: str = ""
    operator: str = "Equal"
    """``Equal`` or ``Exists``."""
    value: str = ""
    effect: str = ""


class Node(Stored, frozen=True, kw_only=True, dict=True):
    """A Node; each volume of a cluster is compared with each of them."""

    name: str
    uid: str | None = None
    ready: bool | None
    """None if the status is Unknown (kubelet does not report)."""
    boot_id: str | None = None
    internal_ips: tuple[str, ...] = ()
    overlay_ips: tuple[str, ...] = ()
    """Addresses from which Calico, Cilium or flannel sends into the network of the pods."""
    interface_ips: tuple[tuple[str, str], ...] = ()
    """Addresses of the node's own interfaces, each with the annotation that lists it."""
    volumes_in_use: tuple[str, ...] = ()
    volumes_attached: tuple[str, ...] = ()
    out_of_service: bool = False
    ready_changed_at: str | None = None
    reported_at: str | None = None
    """When kubelet last reported the status, such as volumesInUse, of a node that is not Ready;
    None while it is Ready, so that an object does not change with each report."""
    frozen: bool = False
    labels: tuple[tuple[str, str], ...] = ()
    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()

    @cached_property
    def names_in_use(self) -> frozenset[str]:
        """The names in ``volumes_in_use``."""
        return frozenset(self.volumes_in_use)

    @cached_property
    def names_attached(self) -> frozenset[str]:
        """The names in ``volumes_attached``."""
        return frozenset(self.volumes_attached)


class CSINode(Stored, frozen=True, kw_only=True):
    """The drivers that kubelet registered on a node."""

    node_name: str
    drivers: tuple[str, ...] = ()
    limits: tuple[tuple[str, Int64], ...] = ()
    """The maximum number of volumes of a driver on the node, if the driver reports a limit."""


class VolumeAttachment(Stored, frozen=True, kw_only=True):
    """A VolumeAttachment."""

    name: str
    attacher: str
    node_name: str
    persistent_volume: str | None
    attached: bool
    deleting_since: str | None = None
    created_at: str | None = None
    attach_error: str = ""
    detach_error: str = ""
    finalizers: tuple[str, ...] = ()


class KubeEvent(Stored, frozen=True, kw_only=True):
    """An event about a pod, the claim or the volume of the target."""

    kind: str
    """Kind of the object that the event is about: ``Pod``."""
    subject: ObjectRef
    type: str
    reason: str
    message: str
    last_seen: str | None = None
    count: Int64 = 1
    reporter: str = ""
    first_seen: str | None = None


class PublishedFinding(Stored, frozen=True, kw_only=True):
    """The finding that explains a published verdict, as the node of the mapping has it."""

    code: str
    severity: str
    message: str
    """The first sentence, without command lines."""


class PublishedMapping(Stored, frozen=True, kw_only=True):
    """One mapping, as the agent of its node published it."""

    device: str
    verdict: Verdict
    fsid: str | None = None
    spec: ImageSpec | None = None
    image_id: str | None = None
    client_id: Int64 | None = None
    client_address: EntityAddress | None = None
    read_only: bool | None = None
    """None if the agent did not observe it."""
    persistent_volume: str | None = None
    reasons: tuple[str, ...] = ()
    findings: tuple[str, ...] = ()
    """Codes of the findings about the mapping or its node."""
    finding: PublishedFinding | None = None
    """The finding that explains the verdict; None without one."""
    left_behind: bool = False
    """Whether it is the device of an ended rbd-nbd that is not mounted, open or stacked on."""
    since: str | None = None
    pods: tuple[str, ...] = ()

    @property
    def image(self) -> ImageIdentity | None:
        """The mapped image; None if its name is unknown."""
        if self.spec is None:
            return None
        return ImageIdentity(spec=self.spec, fsid=self.fsid, image_id=self.image_id)


class PublishedSummary(Stored, frozen=True, kw_only=True):
    """An RBDNode: what the agent of one node published about all its mappings."""

    name: str
    observed_at: str
    """When the agent last confirmed it: it wrote the object, or renewed its Lease."""
    version: str | None = None
    """The version of the object, to compare with the one that the Lease confirms."""
    stored_at: str | None = None
    """When the API server stored the agent's last write, by its own clock; None if it does not
    show it."""
    undated: str = ""
    """Why the time of the last confirmation proves nothing; empty if it is reliable."""
    lease_namespace: str | None = None
    """The namespace of the agent's Lease, which has the name of the node."""
    lease: NotObserved | None = None
    """The reason why the Lease does not count; ``observed_at`` is then the last write."""
    boot_id: str | None = None
    mapped: int | None = None
    """The number of mappings; None if the agent did not observe its devices."""
    images: frozenset[str] | None = None
    """The keys of the mappings, see :func:`rbdagent.parse.labels.mapping_keys`; None if the
    agent did not observe its devices, or if another writer removed or added labels."""
    used: frozenset[str] = frozenset()
    """The keys of the volumes that the node does not map and may still use."""
    clients: frozenset[str] | None = None
    """The addresses of the clients of all mappings; None if they are not all known."""


class PublishedNode(Stored, frozen=True, kw_only=True):
    """What the agent of one node published, as far as it was requested; it may be old."""

    name: str
    observed_at: str
    """When the agent last confirmed the report: it wrote its RBDNode, or renewed its Lease."""
    lease: NotObserved | None = None
    """The reason why the Lease does not count; ``observed_at`` is then the last write."""
    boot_id: str | None = None
    mappings: tuple[PublishedMapping, ...] | NotObserved = ()
    incomplete: str = ""
    """Why a mapping that was requested may be missing; empty if none is."""
    every_client: bool = True
    """Whether a mapping of each client of the node is among the mappings."""


class StorageClass(Stored, frozen=True, kw_only=True):
    """A StorageClass."""

    name: str
    provisioner: str
    binding_mode: str = "Immediate"
    reclaim_policy: str = "Delete"
    is_default: bool = False
    created_at: str | None = None
    allowed_topologies: tuple[NodeTerm, ...] = ()
    pool: str = ""
    """The parameter ``pool`` of ceph-csi; empty without it."""
    data_pool: str = ""
    parameters: tuple[str, ...] | None = None
    """The names of its parameters that have a value; None if they were not observed."""
    cluster_id: str = ""
    """The parameter ``clusterID`` of ceph-csi; empty without it."""


class Workload(Stored, frozen=True, kw_only=True):
    """A ReplicaSet, Deployment or StatefulSet that creates the pods of a claim."""

    kind: str
    ref: ObjectRef
    owners: tuple[str, ...] = ()
    """Controllers: ``Deployment/web``."""
    replicas: Int64 = 1
    strategy: str = ""
    """``RollingUpdate`` or ``Recreate``; empty for a ReplicaSet."""
    max_surge: str = ""
    """The unparsed value: ``1``, ``25%``."""
    max_unavailable: str = ""

    @property
    def name(self) -> str:
        """Its name in the ``owners`` of a pod: ``ReplicaSet/web-5d4f``."""
        return f"{self.kind}/{self.ref.name}"


class DisruptionBudget(Stored, frozen=True, kw_only=True):
    """A PodDisruptionBudget, with the numbers that its controller last wrote."""

    ref: ObjectRef
    selector: Selector | None = None
    """None selects no pod, and an empty one all pods of the namespace (policy/v1)."""
    allowed: Int64 = 0
    """How many of its pods may be evicted now (``disruptionsAllowed``)."""
    healthy: Int64 = 0
    """Its pods that are Ready."""
    wanted: Int64 = 0
    """How many of them must be Ready."""
    evicts_unhealthy: bool = False
    """Whether pods that are not Ready may be evicted in any case (``AlwaysAllow``)."""


class Lease(Stored, frozen=True, kw_only=True):
    """A lease, with which the replicas of a controller elect a leader. The leader renews it."""

    namespace: str
    name: str
    holder: str = ""
    """The leader. A CSI controller writes the name of its pod, kube-controller-manager its host."""
    renewed_at: str | None = None
    """By the clock of the leader."""
    stored_at: str | None = None
    """When the API server stored ``renewed_at``, by its own clock; None if it does not show it."""
    duration_s: float = 15.0
    confirms: str | None = None
    """The version of the RBDNode that the agent confirms with it: ``UID/RESOURCEVERSION``."""


class DriverPod(Stored, frozen=True, kw_only=True):
    """A pod that may belong to a provisioner."""

    ref: ObjectRef
    node_name: str | None
    phase: str
    ready: bool = False
    images: tuple[str, ...] = ()
    serves: tuple[str, ...] = ()
    """Names of provisioners in the arguments and the environment of its containers."""


class WorkloadPod(Stored, frozen=True, kw_only=True):
    """A pod of a driver's workload."""

    ref: ObjectRef
    ready: bool = False
    node_name: str | None = None
    """Its node; of a DaemonSet's pod that has none yet, the node for which it was created."""
    created_at: str | None = None
    unschedulable: str = ""
    """Why the scheduler finds no node, as in :class:`Pod`."""
    container: str = ""
    """The name of its first container that waits."""
    waiting: str = ""
    """Why that container waits: ``ImagePullBackOff``."""
    message: str = ""
    """What kubelet reports about that container."""


class DriverWorkload(Stored, frozen=True, kw_only=True):
    """A Deployment or DaemonSet whose containers name CSI drivers in their arguments."""

    kind: str
    """``Deployment`` or ``DaemonSet``."""
    ref: ObjectRef
    serves: tuple[str, ...] = ()
    """The drivers that its containers name."""
    containers: tuple[str, ...] = ()
    """Name and image of each container: ``csi-attacher quay.io/csi-attacher:v4.8``."""
    owners: tuple[str, ...] = ()
    """Every owner, also one that is not its controller: ``Driver/rook-ceph.rbd.csi.ceph.com``."""
    desired: Int64 = 0
    """The replicas of a Deployment, or the nodes that a DaemonSet places a pod on."""
    current: Int64 = 0
    """Its pods, or the nodes that have one."""
    ready: Int64 = 0
    """Its pods that are Ready."""
    updated: Int64 = 0
    """Its pods that are of its newest template."""
    rolls: bool = True
    """Whether its controller replaces pods of an older template (not with ``OnDelete``)."""
    failure: str = ""
    """Why a Deployment has too few pods: its condition ``ReplicaFailure``."""
    node_selector: tuple[tuple[str, str], ...] = ()
    node_affinity: tuple[NodeTerm, ...] = ()
    """The required terms; one matching term is enough."""
    tolerations: tuple[Toleration, ...] = ()
    selector: Selector | None = None
    """The labels of its pods."""
    pods: tuple[WorkloadPod, ...] | NotObserved = ()
    """Requested only if one is missing or not Ready: of a Deployment, all; of a DaemonSet, those
    that do not run, and those on the nodes where something waits."""
    events: tuple[KubeEvent, ...] | NotObserved = ()
    """The warnings about it, and about the first pods that are not Ready; requested as these."""

    def __str__(self) -> str:
        """Return its name in output: ``DaemonSet rook-ceph/csi-rbdplugin``."""
        return f"{self.kind} {self.ref}"


class MachineMigration(Stored, frozen=True, kw_only=True):
    """A VirtualMachineInstanceMigration of KubeVirt: one live migration, which may have ended."""

    ref: ObjectRef
    """Its uid is in the label ``kubevirt.io/migrationJobUID`` of the target pod."""
    machine: str
    """The VirtualMachineInstance that it moves, in its namespace."""
    phase: str = ""
    """``Running`` and others; after ``Succeeded`` or ``Failed`` nothing changes any more."""
    since: str | None = None
    """When the phase began; of an older KubeVirt (before 0.59), when the object was created."""
    deleting_since: str | None = None
    """Its deletion cancels it: a finalizer keeps the object until its phase is final."""
    ended_at: str | None = None
    failure: str = ""
    """Why it failed, as KubeVirt reports it."""

    FINAL: ClassVar[frozenset[str]] = frozenset({"Succeeded", "Failed"})

    @property
    def is_over(self) -> bool:
        """Whether it has succeeded or failed."""
        return self.phase in self.FINAL


class VolumeReplication(Stored, frozen=True, kw_only=True):
    """A VolumeReplication of csi-addons: the role of the images of a claim, or of a group."""

    ref: ObjectRef
    source: str
    """``PersistentVolumeClaim/data``, or ``VolumeGroupReplication/group``, in its namespace."""
    wanted: str
    """The role that it demands: ``primary``, ``secondary`` or ``resync``."""
    state: str = ""
    """The role that csi-addons reports: ``Primary``, ``Secondary`` or ``Unknown``."""
    message: str = ""
    """What csi-addons reports of its last attempt."""
    failure: str = ""
    """The reason of the condition Completed if it is False: ``FailedToPromote``."""
    completed: bool = False
    """Whether the condition Completed is True."""
    is_current: bool = True
    """Whether csi-addons has acted on the last change of its spec (``observedGeneration``)."""
    owner: str = ""
    """What made it: ``VolumeReplicationGroup/drpc``, from its owner or the labels of Ramen."""


class KubeView(Stored, frozen=True, kw_only=True, dict=True):
    """The objects of the API; each kind may be missing independently (403 for one resource)."""

    server: str
    persistent_volumes: tuple[PersistentVolume, ...] | NotObserved
    claims: tuple[PersistentVolumeClaim, ...] | NotObserved = ()
    pods: tuple[Pod, ...] | NotObserved = ()
    nodes: tuple[Node, ...] | NotObserved = ()
    csi_nodes: tuple[CSINode, ...] | NotObserved = ()
    attachments: tuple[VolumeAttachment, ...] | NotObserved = ()
    events: tuple[KubeEvent, ...] | NotObserved = ()
    pods_scope: str = "cluster"
    """``cluster``, or the lists that were read: ``node/worker-1,namespace/default``."""
    volumes_complete: bool = True
    """False if PVs were read only by name: there may be other PVs of the same image."""
    attachments_complete: bool = True
    """False if VolumeAttachments were read only by name."""
    nodes_complete: bool = True
    """False if Nodes were read only by name."""
    csi_nodes_complete: bool = True
    """False if CSINodes were read only by name: a driver may be registered on other nodes."""
    searched: tuple[str, ...] = ()
    """Search terms for all objects of a kind that is incomplete here: images for their PVs,
    addresses of clients for their Nodes, names of VolumeAttachments and Nodes. If an object matches
    a term and is missing here, it does not exist. Any other missing object was not observed."""
    consistent: bool = False
    """Whether all objects were read from the store of the API server (no resourceVersion), not from
    a cache."""
    frozen_namespaces: tuple[str, ...] | NotObserved = NotObserved(
        reason="not requested: only an unmap needs it"
    )
    """Namespaces that have the annotation that forbids every unmap."""
    published: tuple[PublishedNode, ...] | NotObserved = ()
    """The RBDNodes of agents. It is also empty if the cluster has no such resource, or if RBDNodes
    were not requested: an agent requests only those of its neighbours."""
    storage_classes: tuple[StorageClass, ...] | NotObserved = LIFECYCLE_NOT_REQUESTED
    workloads: tuple[Workload, ...] | NotObserved = LIFECYCLE_NOT_REQUESTED
    """The controllers of the pods in this view, and the controllers of these controllers."""
    drivers: tuple[str, ...] | NotObserved = LIFECYCLE_NOT_REQUESTED
    """The names of the CSIDriver objects."""
    leases: tuple[Lease, ...] | NotObserved = LIFECYCLE_NOT_REQUESTED
    """The leases of kube-controller-manager and of the provisioners that the target waits for."""
    driver_pods: tuple[DriverPod, ...] | NotObserved = LIFECYCLE_NOT_REQUESTED
    """Pods of the provisioners that the target waits for, found by a lease or a known label. A pod
    that is missing here may exist with another label."""
    node_plugins: tuple[DriverWorkload, ...] | NotObserved = LIFECYCLE_NOT_REQUESTED
    """The DaemonSets of the drivers that something here waits for; a DaemonSet that is missing
    here may exist, and not name its driver in an argument."""
    controllers: tuple[DriverWorkload, ...] | NotObserved = LIFECYCLE_NOT_REQUESTED
    """Their Deployments, with the same limit."""
    version: str | NotObserved = LIFECYCLE_NOT_REQUESTED
    """Version of the API server: ``v1.36.3``."""
    budgets: tuple[DisruptionBudget, ...] | NotObserved = NotObserved(
        reason="not requested: only the check of a drain needs it"
    )
    """The PodDisruptionBudgets of all namespaces."""
    migrations: tuple[MachineMigration, ...] | NotObserved = LIFECYCLE_NOT_REQUESTED
    """Only in the namespaces in which two pods of one virtual machine use a volume."""
    replications: tuple[VolumeReplication, ...] | NotObserved = LIFECYCLE_NOT_REQUESTED
    """Only in the namespaces with claims of mirrored images."""
