"""The types of the observed facts, the joined facts and the conclusions.

Every type is a frozen msgspec.Struct: as many dataclasses would need a tenth of a command's run
time at import (docs/adr/0002-structs.md). Three states have three values: a value is present,
``None`` (or an empty tuple) is absent, and :class:`NotObserved` is unknown. Times are ISO 8601
strings in UTC such as ``2026-11-21T03:00:00Z``: the pure core has no clock and orders them as text.
"""

from __future__ import annotations

from enum import Flag, StrEnum, auto
from typing import Final, TypeVar

from msgspec import Struct, field

API_VERSION: Final = "rbdagent.dev/v1alpha1"

# --------------------------------------------------------------------------------------------------
# Not observed
# --------------------------------------------------------------------------------------------------

_T = TypeVar("_T")


class NotObserved(Struct, frozen=True, kw_only=True):
    """A fact that could not be observed; it never means "none"."""

    reason: str
    """The attempt, its object, and the result, in one line."""
    hint: str = ""
    """What makes the fact observable: a Linux capability, a Ceph cap, a permission, a command."""


def observed_of(found: tuple[_T, ...] | NotObserved) -> tuple[_T, ...]:
    """Return the observed items, for a caller that concludes nothing from a missing item."""
    return () if isinstance(found, NotObserved) else found


class SourceState(StrEnum):
    """Result of the observation of one source."""

    OBSERVED = "observed"
    FAILED = "failed"
    SKIPPED = "skipped"


class Gap(Struct, frozen=True, kw_only=True):
    """One fact that is missing from a source that was otherwise observed."""

    fact: str
    """The missing fact, as output names it: ``open descriptors of other users' processes``."""
    reason: str
    hint: str = ""


class Source(Struct, frozen=True, kw_only=True):
    """The state of one source (node, ceph, kubernetes) and its gaps."""

    state: SourceState
    reason: str = ""
    """Why the source failed or was skipped; empty if it was observed."""
    hint: str = ""
    gaps: tuple[Gap, ...] = ()
    took_s: float | None = None
    """Seconds until the source answered; None if it was not queried."""


# --------------------------------------------------------------------------------------------------
# Identities
# --------------------------------------------------------------------------------------------------


class ImageSpec(Struct, frozen=True, kw_only=True, order=True):
    """The name of an RBD image within one cluster: ``pool[/namespace]/name``."""

    pool: str
    namespace: str = ""
    """RADOS namespace; empty for the default namespace."""
    name: str

    def __str__(self) -> str:
        return "/".join(part for part in (self.pool, self.namespace, self.name) if part)


class EntityAddress(Struct, frozen=True, kw_only=True, order=True):
    """An address of a Ceph entity without its type (``v1:``, ``v2:``, ``any:``).

    The type is omitted because krbd, watchers and the blocklist show the same client with different
    types.
    """

    ip: str
    """Compressed textual form, without brackets."""
    port: int = 0
    nonce: int = 0

    def __str__(self) -> str:
        host = f"[{self.ip}]" if ":" in self.ip else self.ip
        return f"{host}:{self.port}/{self.nonce}"


class DeviceNumber(Struct, frozen=True, kw_only=True, order=True):
    """``major:minor`` of a block device."""

    major: int
    minor: int

    def __str__(self) -> str:
        return f"{self.major}:{self.minor}"


# --------------------------------------------------------------------------------------------------
# The node
# --------------------------------------------------------------------------------------------------


class DeviceKind(StrEnum):
    """Driver that maps an image to a block device."""

    KRBD = "krbd"
    NBD = "rbd-nbd"


class ProcessRef(Struct, frozen=True, kw_only=True):
    """A process, and the pod and container that its cgroup names."""

    pid: int
    command: str
    """Command line, truncated to 200 characters; for a kernel thread its name in brackets."""
    pod_uid: str | None = None
    container_id: str | None = None
    started_at: str | None = None
    state: str = ""
    """One letter of ``/proc/PID/stat``: ``D`` is uninterruptible sleep."""

    @property
    def program(self) -> str:
        """The name of the program, without directory and arguments."""
        first = self.command.partition(" ")[0]
        return first if first.startswith("[") else first.rpartition("/")[2]


class MountNamespace(Struct, frozen=True, kw_only=True):
    """A mount namespace, identified by its inode, and one process in it."""

    inode: int
    """0 if ``/proc/PID/ns/mnt`` could not be read (it needs CAP_SYS_PTRACE). Then namespaces are
    distinguished by the content of mountinfo."""
    process: ProcessRef
    is_host: bool = False


class MountKind(StrEnum):
    """Type of a mount."""

    FILE_SYSTEM = "file-system"
    DEVICE_BIND = "device-bind"
    """A bind mount of the device node (block-mode volumes): devtmpfs with root ``/rbdN``."""


class Mount(Struct, frozen=True, kw_only=True):
    """One line of the mountinfo of one mount namespace that is about a device."""

    path: str
    root: str = "/"
    """The directory of the file system, or the device node, that is visible at ``path``."""
    device: DeviceNumber
    """The mapped device, its partition or dm child; for a device bind, the device of the node."""
    kind: MountKind = MountKind.FILE_SYSTEM
    fs_type: str = ""
    source: str = ""
    read_only: bool = False
    """The flag of the super block. The flag of a mount differs between namespaces and proves
    nothing."""
    namespace: MountNamespace


class OpenKind(StrEnum):
    """How a process keeps a device, or a file system on it, busy."""

    DESCRIPTOR = "descriptor"
    CWD = "cwd"
    ROOT = "root"
    MAPPING = "mapping"
    EXECUTABLE = "executable"


class OpenFile(Struct, frozen=True, kw_only=True):
    """A process that has the device, or a file on it, open; the file may be in a detached mount."""

    process: ProcessRef
    how: OpenKind
    path: str
    """The target of the link in /proc; ``/`` for a directory in a detached mount proves nothing."""
    on_device: bool
    """True for the device node (``st_rdev``), False for a file on the device (``st_dev``)."""
    device: DeviceNumber


class BlockHolderKind(StrEnum):
    """Type of a block device or swap area on top of a device."""

    DM = "dm"
    LUKS = "luks"
    LOOP = "loop"
    SWAP = "swap"
    MD = "md"
    OTHER = "other"


class BlockHolder(Struct, frozen=True, kw_only=True):
    """A block device, or swap area, that holds the mapping (or one of its children) open."""

    kind: BlockHolderKind
    name: str
    """Kernel name: ``dm-0``, ``loop3``; for swap the name of the device."""
    device: DeviceNumber | None = None
    label: str = ""
    """dm name (``luks-rbd-<volume handle>``), or the backing file of a loop device."""
    of: str = ""
    """The kernel name of the device that is held open: ``rbd0``, ``rbd0p1``, ``dm-0``."""


class NbdState(Struct, frozen=True, kw_only=True):
    """The process of an rbd-nbd device; ``pid`` in sysfs can be wrong, or present without one."""

    recorded_pid: int | None
    backend: str | None
    """``/sys/block/nbdN/backend``: the cookie, which ceph-csi sets to the volume handle."""
    process: ProcessRef | NotObserved | None
    """The rbd-nbd process that serves the device, found by cookie or image; None without one."""


class IoCounters(Struct, frozen=True, kw_only=True):
    """I/O that a block device has completed since its creation (Documentation/block/stat.rst)."""

    reads: int
    writes: int
    in_flight: int
    """Requests issued to the driver and not completed; the other counters do not include them."""
    discards: int | None = None
    """None if the kernel does not count them (before 4.18, commit bdca3c87fb7a)."""
    flushes: int | None = None
    """None if the kernel does not count them (before 5.5, commit b6866318657)."""


class Mapping(Struct, frozen=True, kw_only=True):
    """One ``/sys/bus/rbd/devices/N``, or one rbd-nbd device, and everything that keeps it busy."""

    kind: DeviceKind
    device_id: int
    """N. The kernel reuses ids, lowest free id first, so the id alone is never an identity."""
    device: str
    number: DeviceNumber
    spec: ImageSpec | NotObserved
    image_id: str | None
    """None for format 1 and for rbd-nbd, which has no image id in sysfs."""
    pool_id: int | None
    fsid: str | None
    snapshot: str | None = None
    client_id: int | None = None
    client_address: EntityAddress | None = None
    user: str | None = None
    """CephX user of the mapping from ``config_info`` (root only); never the key."""
    read_only: bool | NotObserved = False
    size_bytes: int | None = None
    device_node_present: bool | NotObserved = True
    """Whether ``/dev/rbdN`` exists on the host."""
    incarnation: str | None = None
    """``diskseq:17`` (Linux 5.15), else ``sysfs:INODE``; a new device with the same id differs."""
    partitions: tuple[DeviceNumber, ...] = ()
    holders: tuple[BlockHolder, ...] | NotObserved = ()
    mounts: tuple[Mount, ...] | NotObserved = ()
    openers: tuple[OpenFile, ...] | NotObserved = ()
    kernel_traces: tuple[str, ...] | NotObserved = ()
    """Signs of an active file system: ``/sys/fs/ext4/rbd0``, ``[jbd2/rbd0-8]``."""
    watch: bool | NotObserved = field(default_factory=lambda: NotObserved(reason="not requested"))
    """Whether the kernel client has a watch for the mapping (``osdc``, ``LINGER REQUESTS``)."""
    hung_requests: tuple[str, ...] | NotObserved = field(
        default_factory=lambda: NotObserved(reason="not requested")
    )
    """``op object`` for each request of its client for this image, from ``osdc``."""
    io_counters: IoCounters | NotObserved = field(
        default_factory=lambda: NotObserved(reason="not requested")
    )
    """Counters of the whole device, including its partitions and devices stacked on it."""
    nbd: NbdState | None = None

    @property
    def server_pid(self) -> int | None:
        """The pid of the rbd-nbd process that serves the device, and also has it open."""
        server = self.nbd.process if self.nbd is not None else None
        return server.pid if isinstance(server, ProcessRef) else None

    @property
    def kernel_name(self) -> str:
        """``rbd0`` for ``/dev/rbd0``."""
        return self.device.removeprefix("/dev/")


class VolumeData(Struct, frozen=True, kw_only=True):
    """kubelet's ``vol_data.json``; the file of a staging directory has only driver and handle."""

    driver: str | None
    volume_handle: str | None
    persistent_volume: str | None = None
    """``specVolID``: the name of the PV."""
    attachment: str | None = None
    node_name: str | None = None


class CsiImageMeta(Struct, frozen=True, kw_only=True):
    """ceph-csi's ``image-meta.json``."""

    spec: ImageSpec
    encrypted: bool = False
    device: str | None = None


class StagingDirectory(Struct, frozen=True, kw_only=True):
    """The directory of a volume below kubelet's ``plugins``, where a driver stages it."""

    path: str
    """The mount point (``globalmount/<volume handle>``), or the file of a block-mode volume."""
    driver: str | None
    volume_handle: str | None
    """From vol_data.json or the name of the directory; None if only the hash is known."""
    handle_hash: str | None = None
    """Hex sha256 of the volume handle: the name of the directory in file-system mode."""
    persistent_volume: str | None = None
    """Known for block mode, for layouts before Kubernetes 1.24 and for in-tree volumes."""
    block: bool = False
    volume_data: VolumeData | NotObserved | None = None
    stash: CsiImageMeta | NotObserved | None = None
    path_present: bool = True


class PodVolumeDirectory(Struct, frozen=True, kw_only=True):
    """The directory of a volume of one pod below kubelet's ``pods``."""

    path: str
    """The directory (or block file) that is visible in a container."""
    pod_uid: str
    persistent_volume: str
    """The name of the directory: the PV for CSI, the volume name in the pod for inline volumes."""
    plugin: str
    """``kubernetes.io~csi`` or ``kubernetes.io~rbd``."""
    block: bool = False
    volume_data: VolumeData | NotObserved | None = None


class PluginSocket(Struct, frozen=True, kw_only=True):
    """A CSI driver that registered with kubelet on this node."""

    driver: str
    path: str
    """The socket of the driver, or of its registrar if the driver's is not at the usual path."""
    listening: bool | NotObserved
    """Whether the driver accepts connections."""


class KubeletView(Struct, frozen=True, kw_only=True):
    """The files of kubelet and the CSI drivers on the disk of the node."""

    roots: tuple[str, ...] = ()
    process: ProcessRef | NotObserved | None = None
    """The running kubelet, with its start time."""
    staging: tuple[StagingDirectory, ...] | NotObserved = ()
    pod_volumes: tuple[PodVolumeDirectory, ...] | NotObserved = ()
    sockets: tuple[PluginSocket, ...] | NotObserved = ()


class InFlight(Struct, frozen=True, kw_only=True):
    """A process that maps, unmaps, formats, checks, mounts or unlocks, in any state."""

    process: ProcessRef
    program: str
    names: tuple[str, ...]
    """Arguments that name an image, a device or a path of a volume."""


class UnbackedMount(Struct, frozen=True, kw_only=True):
    """A running container whose directory of a volume is not on the device of that volume."""

    pod_uid: str
    persistent_volume: str
    path: str
    """The path of the directory in the container."""
    source: str
    process: ProcessRef


class LogEntry(Struct, frozen=True, kw_only=True):
    """One warning or error in a log of the node: cleaned, truncated, without possible secrets."""

    at: str
    text: str
    names: tuple[str, ...]
    """Names of the volume in the whole line: PV, volume handle, image, device."""
    call: str = ""
    """The operation: ``NodeUnstageVolume``, ``UnmountDevice``; empty if the line has none."""
    unanswered: bool = False
    """Whether it is a call that has no response in the log."""
    times: int = 1
    """How often the message occurs; ``at`` is the last time."""
    retry_at: str | None = None
    """When kubelet retries."""


class LogExcerpt(Struct, frozen=True, kw_only=True):
    """The lines of one log about the requested volumes."""

    since: str
    """Start of the part that was read; missing lines before this time prove nothing."""
    words: tuple[LogEntry, ...] = ()
    """The last few lines about each volume, newest first."""


class NodeLogs(Struct, frozen=True, kw_only=True):
    """Log lines of the node; a failing NodeUnstage is reported nowhere else (measured)."""

    kubelet: LogExcerpt | NotObserved
    plugin: LogExcerpt | NotObserved
    """The log of the CSI node plugin."""
    kernel: LogExcerpt | NotObserved


class NodeView(Struct, frozen=True, kw_only=True):
    """Everything observed on one node."""

    node_name: str
    hostname: str
    boot_id: str | None
    module_loaded: bool
    """Whether ``/sys/bus/rbd`` exists; if not, krbd certainly has no mapping."""
    mappings: tuple[Mapping, ...] | NotObserved
    kubelet: KubeletView | NotObserved
    addresses: tuple[str, ...] | NotObserved = ()
    """The IP addresses of the node, in compressed textual form."""
    in_flight: tuple[InFlight, ...] | NotObserved = ()
    unbacked: tuple[UnbackedMount, ...] | NotObserved = ()
    processes: tuple[ProcessRef, ...] = ()
    """One process for each container whose pod uid is known."""
    uptime_s: float | None = None
    """Seconds since boot, including suspension. Ages use it because the wall clock may jump."""
    words: NodeLogs | NotObserved = field(default_factory=lambda: NotObserved(reason=_NOT_ASKED))


# --------------------------------------------------------------------------------------------------
# Ceph
# --------------------------------------------------------------------------------------------------


class Watcher(Struct, frozen=True, kw_only=True):
    """A watch on an image's header object."""

    address: EntityAddress
    client: int
    """4118 for ``client.4118``."""
    cookie: int
    """It changes when a watch is registered again: a hint of its kind, never an identity."""


class LockHolder(Struct, frozen=True, kw_only=True):
    """A holder of an advisory lock (of the exclusive-lock feature, or of an old kubelet)."""

    client: int
    address: EntityAddress | None
    lock_id: str
    """``auto 18446462598732840961`` or ``kubelet_lock_magic_<node>``."""
    exclusive: bool = True


class BlocklistEntry(Struct, frozen=True, kw_only=True):
    """A blocklisted client, a whole host (port and nonce 0), or a range.

    ``str()`` is the argument of ``ceph osd blocklist rm``, or ``ceph osd blocklist range rm``.
    """

    network: str
    """An IP address, or a range in CIDR notation.

    The address of a range may have bits after its prefix, because Ceph finds an entry by its full
    address.
    """
    port: int = 0
    nonce: int = 0
    until: str = ""

    @property
    def is_range(self) -> bool:
        """Whether ``ceph osd blocklist range add`` created it, as csi-addons does for fencing."""
        return "/" in self.network

    def __str__(self) -> str:
        if self.is_range:
            return self.network
        return str(EntityAddress(ip=self.network, port=self.port, nonce=self.nonce))


class ServiceAddress(Struct, frozen=True, kw_only=True):
    """A client of a Ceph daemon, or a mon.

    mgr and rbd-mirror may watch images. With the mons, hints can warn against blocklisting an
    address on which Ceph runs.
    """

    kind: str
    """``mgr``, ``rbd-mirror`` or ``mon``."""
    name: str
    """``x`` for ``mgr.x``; empty for rbd-mirror, whose clients have no name."""
    address: EntityAddress
    client: int | None = None
    """None if the cluster reports only the address."""
    of_peer: bool = False
    """Whether it is a daemon of another cluster that copies images from this cluster."""


class ImagePresence(StrEnum):
    """Whether an image exists."""

    PRESENT = "present"
    TRASH = "trash"
    GONE = "gone"


class ImageView(Struct, frozen=True, kw_only=True):
    """One image of one cluster, observed read-only."""

    spec: ImageSpec
    fsid: str
    presence: ImagePresence | NotObserved
    image_id: str | None = None
    pool_id: int | None = None
    format: int = 2
    header: str | None = None
    """``rbd_header.<id>``, or ``<name>.rbd`` for format 1."""
    size_bytes: int | None = None
    features: tuple[str, ...] = ()
    watchers: tuple[Watcher, ...] | NotObserved = ()
    """Watches that every read of this observation returned."""
    transient_watchers: tuple[Watcher, ...] = ()
    """Watches that only one of two reads returned: a short read-write open, not a holder."""
    lockers: tuple[LockHolder, ...] | NotObserved = ()
    metadata: tuple[tuple[str, str], ...] | NotObserved = ()
    """Only the keys of ceph-csi, sorted; they can be stale."""
    mirrored: bool | NotObserved = False
    mirror_daemons: tuple[ServiceAddress, ...] | NotObserved = ()
    """Clients of rbd-mirror, of this cluster and of its peers; only for a mirrored image."""
    tasks: tuple[str, ...] | NotObserved = NotObserved(reason="not requested")
    """Tasks that the mgr has queued for the image: ``flatten``, ``trash remove`` and others."""


class ClusterView(Struct, frozen=True, kw_only=True):
    """One Ceph cluster."""

    name: str
    """Its name in the configuration: the conf file, or the name of the ``[[ceph]]`` table."""
    source: Source
    fsid: str | None = None
    images: tuple[ImageView, ...] = ()
    blocklist: tuple[BlocklistEntry, ...] | NotObserved = ()
    services: tuple[ServiceAddress, ...] | NotObserved = ()
    """Clients of the active mgr."""
    monitors: tuple[ServiceAddress, ...] | NotObserved = ()
    pools: tuple[tuple[int, str], ...] | NotObserved = ()
    """(pool id, pool name); the handles of ceph-csi contain the id."""
    image_names: tuple[ImageSpec, ...] = ()
    """Names that are similar to a target that was not found."""


class CephView(Struct, frozen=True, kw_only=True):
    """Every configured cluster."""

    clusters: tuple[ClusterView, ...]


# --------------------------------------------------------------------------------------------------
# Kubernetes
# --------------------------------------------------------------------------------------------------


class ObjectRef(Struct, frozen=True, kw_only=True, order=True):
    """A namespaced name, with the uid if it is known."""

    namespace: str
    name: str
    uid: str | None = None

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class Requirement(Struct, frozen=True, kw_only=True):
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


class CsiSource(Struct, frozen=True, kw_only=True):
    """``spec.csi`` of a PV (or of the translation of a migrated in-tree PV)."""

    driver: str
    volume_handle: str
    attributes: tuple[tuple[str, str], ...] = ()
    """volumeAttributes, sorted. They contain no secrets: other fields refer to those."""
    fs_type: str | None = None
    read_only: bool = False

    def attribute(self, key: str) -> str | None:
        """The value of one volume attribute."""
        return dict(self.attributes).get(key)


class InTreeRbdSource(Struct, frozen=True, kw_only=True):
    """``spec.rbd`` of a PV, or an inline ``rbd`` volume of a pod."""

    spec: ImageSpec
    monitors: tuple[str, ...] = ()
    read_only: bool = False


class OtherSource(Struct, frozen=True, kw_only=True):
    """The source of a PV that is not RBD; the output names its driver."""

    kind: str
    """``nfs``, ``hostPath``, or a CSI driver's name."""
    volume_handle: str | None = None
    image: ImageSpec | None = None
    """The RBD image that its attributes name; an NVMe-oF gateway serves one."""


VolumeSource = CsiSource | InTreeRbdSource | OtherSource


class PersistentVolume(Struct, frozen=True, kw_only=True):
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
    capacity_bytes: int | None = None
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


class PersistentVolumeClaim(Struct, frozen=True, kw_only=True):
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
    requested_bytes: int | None = None
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
    attributes_class: str = ""


class ContainerState(Struct, frozen=True, kw_only=True):
    """The state of a container according to the API."""

    name: str
    state: str
    """``waiting``, ``running`` or ``terminated``."""
    reason: str = ""
    message: str = ""


class Pod(Struct, frozen=True, kw_only=True):
    """A pod."""

    ref: ObjectRef
    node_name: str | None
    phase: str
    ready: bool = False
    deleting_since: str | None = None
    claims: tuple[str, ...] = ()
    """Names of the claims that it mounts, including those of generic ephemeral volumes."""
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


class Node(Struct, frozen=True, kw_only=True):
    """A Node."""

    name: str
    uid: str | None = None
    ready: bool | None
    """None if the status is Unknown (kubelet does not report)."""
    boot_id: str | None = None
    internal_ips: tuple[str, ...] = ()
    volumes_in_use: tuple[str, ...] = ()
    volumes_attached: tuple[str, ...] = ()
    out_of_service: bool = False
    ready_changed_at: str | None = None
    frozen: bool = False
    labels: tuple[tuple[str, str], ...] = ()
    unschedulable: bool = False


class CSINode(Struct, frozen=True, kw_only=True):
    """The drivers that kubelet registered on a node."""

    node_name: str
    drivers: tuple[str, ...] = ()
    limits: tuple[tuple[str, int], ...] = ()
    """The maximum number of volumes of a driver on the node, if the driver reports a limit."""


class VolumeAttachment(Struct, frozen=True, kw_only=True):
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


class KubeEvent(Struct, frozen=True, kw_only=True):
    """An event about a pod, the claim or the volume of the target."""

    kind: str
    """Kind of the object that the event is about: ``Pod``."""
    subject: ObjectRef
    type: str
    reason: str
    message: str
    last_seen: str | None = None
    count: int = 1
    reporter: str = ""
    first_seen: str | None = None


class PublishedMapping(Struct, frozen=True, kw_only=True):
    """One mapping, as the agent of its node published it."""

    device: str
    verdict: Verdict
    fsid: str | None = None
    spec: ImageSpec | None = None
    image_id: str | None = None
    client_id: int | None = None
    client_address: EntityAddress | None = None
    read_only: bool | None = None
    """None if the agent did not observe it."""
    persistent_volume: str | None = None
    reasons: tuple[str, ...] = ()
    findings: tuple[str, ...] = ()
    """Codes of the findings about the mapping or its node."""
    since: str | None = None
    pods: tuple[str, ...] = ()

    @property
    def image(self) -> ImageIdentity | None:
        """The mapped image; None if its name is unknown."""
        if self.spec is None:
            return None
        return ImageIdentity(spec=self.spec, fsid=self.fsid, image_id=self.image_id)


class PublishedNode(Struct, frozen=True, kw_only=True):
    """An RBDNode: the last observation of the agent of one node; it may be old."""

    name: str
    observed_at: str
    boot_id: str | None = None
    mappings: tuple[PublishedMapping, ...] | NotObserved = ()


class StorageClass(Struct, frozen=True, kw_only=True):
    """A StorageClass."""

    name: str
    provisioner: str
    binding_mode: str = "Immediate"
    reclaim_policy: str = "Delete"
    is_default: bool = False
    created_at: str | None = None
    allowed_topologies: tuple[NodeTerm, ...] = ()


class Workload(Struct, frozen=True, kw_only=True):
    """A ReplicaSet, Deployment or StatefulSet that creates the pods of a claim."""

    kind: str
    ref: ObjectRef
    owners: tuple[str, ...] = ()
    """Controllers: ``Deployment/web``."""
    replicas: int = 1
    strategy: str = ""
    """``RollingUpdate`` or ``Recreate``; empty for a ReplicaSet."""
    max_surge: str = ""
    """The unparsed value: ``1``, ``25%``."""
    max_unavailable: str = ""

    @property
    def name(self) -> str:
        """Its name in the ``owners`` of a pod: ``ReplicaSet/web-5d4f``."""
        return f"{self.kind}/{self.ref.name}"


class Lease(Struct, frozen=True, kw_only=True):
    """A lease, with which the replicas of a controller elect a leader. The leader renews it."""

    namespace: str
    name: str
    holder: str = ""
    """The leader. A CSI controller writes the name of its pod, kube-controller-manager its host."""
    renewed_at: str | None = None
    duration_s: float = 15.0


class DriverPod(Struct, frozen=True, kw_only=True):
    """A pod that may belong to a provisioner."""

    ref: ObjectRef
    node_name: str | None
    phase: str
    ready: bool = False
    images: tuple[str, ...] = ()
    serves: tuple[str, ...] = ()
    """Names of provisioners in the arguments and the environment of its containers."""


_NOT_ASKED: Final = "not requested: only the lifecycle of a volume needs it"


class KubeView(Struct, frozen=True, kw_only=True):
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
    searched: tuple[str, ...] = ()
    """Search terms for all objects of a kind that is incomplete here: images for their PVs,
    addresses of clients for their Nodes, names of VolumeAttachments and Nodes. If an object matches
    a term and is missing here, it does not exist. Any other missing object was not observed."""
    consistent: bool = False
    """Whether all objects were read from the store of the API server (no resourceVersion), not from
    a cache."""
    frozen_namespaces: tuple[str, ...] | NotObserved = field(
        default_factory=lambda: NotObserved(reason="not requested: only an unmap needs it")
    )
    """Namespaces that have the annotation that forbids every unmap."""
    published: tuple[PublishedNode, ...] | NotObserved = ()
    """The RBDNodes of agents. It is also empty if the cluster has no such resource, or if RBDNodes
    were not requested: an agent requests only those of its neighbours."""
    storage_classes: tuple[StorageClass, ...] | NotObserved = field(
        default_factory=lambda: NotObserved(reason=_NOT_ASKED)
    )
    workloads: tuple[Workload, ...] | NotObserved = field(
        default_factory=lambda: NotObserved(reason=_NOT_ASKED)
    )
    """The controllers of the pods in this view, and the controllers of these controllers."""
    drivers: tuple[str, ...] | NotObserved = field(
        default_factory=lambda: NotObserved(reason=_NOT_ASKED)
    )
    """The names of the CSIDriver objects."""
    leases: tuple[Lease, ...] | NotObserved = field(
        default_factory=lambda: NotObserved(reason=_NOT_ASKED)
    )
    """The leases of kube-controller-manager and of the provisioners that the target waits for."""
    driver_pods: tuple[DriverPod, ...] | NotObserved = field(
        default_factory=lambda: NotObserved(reason=_NOT_ASKED)
    )
    """Pods of the provisioners that the target waits for, found by a lease or a known label. A pod
    that is missing here may exist with another label."""
    version: str | NotObserved = field(default_factory=lambda: NotObserved(reason=_NOT_ASKED))
    """Version of the API server: ``v1.36.3``."""


# --------------------------------------------------------------------------------------------------
# The target and the snapshot
# --------------------------------------------------------------------------------------------------


class TargetKind(StrEnum):
    """How a user may name a volume."""

    PERSISTENT_VOLUME = "pv"
    CLAIM = "pvc"
    POD = "pod"
    IMAGE = "image"
    VOLUME_HANDLE = "handle"
    DEVICE = "device"
    NONE = "none"
    """No single target: ``list`` of a node, or all objects (``given`` has the option)."""


class Target(Struct, frozen=True, kw_only=True):
    """The target that the user gave, parsed but not yet resolved."""

    given: str
    kind: TargetKind
    name: str = ""
    """PV, claim or pod name; volume handle; device path."""
    namespace: str = ""
    """Kubernetes namespace of a claim or pod; if there is no name, of all requested objects."""
    image: ImageSpec | None = None


class CollectScope(Flag):
    """Requests to the API in addition to those for the holders of the volume."""

    NOTHING = 0
    UNMAP_GUARDS = auto()
    """The objects that can forbid an unmap, for a caller that may unmap."""
    LIFECYCLE = auto()
    """The objects that the lifecycle of the volume depends on, and the logs of the node."""
    EVERYTHING = auto()
    """All objects of the cluster or of the target's namespace, because no volume is named."""


class Snapshot(Struct, frozen=True, kw_only=True):
    """All facts that were observed at one time: the only input of the pure core, and a file."""

    observed_at: str
    tool_version: str
    target: Target
    node: NodeView | None
    ceph: CephView | None
    kubernetes: KubeView | None
    sources: Sources


class Sources(Struct, frozen=True, kw_only=True):
    """The state of each source of a snapshot."""

    node: Source
    ceph: Source
    kubernetes: Source

    @property
    def named(self) -> tuple[tuple[str, Source], ...]:
        """Each source with its name, in the order of the output."""
        return (("node", self.node), ("ceph", self.ceph), ("kubernetes", self.kubernetes))

    @property
    def failed(self) -> dict[str, str]:
        """Why each failed source was not observed, by its name."""
        return {
            name: source.reason for name, source in self.named if source.state is SourceState.FAILED
        }


# --------------------------------------------------------------------------------------------------
# Joined
# --------------------------------------------------------------------------------------------------


class Confidence(StrEnum):
    """How certain the node of a holder is."""

    CERTAIN = "certain"
    """Client id and address with nonce are equal to those of a mapping in sysfs."""
    PROBABLE = "probable"
    """A Node object has the IP of the watcher."""
    UNKNOWN = "unknown"


class HolderKind(StrEnum):
    """Type of client that holds an image."""

    KRBD = "krbd"
    NBD = "rbd-nbd"
    LIBRBD = "librbd"
    MGR = "mgr"
    MIRROR = "rbd-mirror"
    UNKNOWN = "unknown"


class ImageIdentity(Struct, frozen=True, kw_only=True):
    """The identity of an image across clusters; unknown parts are None."""

    spec: ImageSpec
    fsid: str | None
    image_id: str | None = None
    pool_id: int | None = None


class Holder(Struct, frozen=True, kw_only=True):
    """One client that has the image mapped or open, with everything joined to it; no verdict."""

    kind: HolderKind
    node: str | None
    confidence: Confidence
    is_local: bool = False
    """Whether it is on the observed node."""
    mapping: Mapping | None = None
    watcher: Watcher | None = None
    daemon: ServiceAddress | None = None
    """The Ceph daemon, if the client certainly belongs to one."""
    probably: HolderKind | None = None
    """The kind of daemon to which the client probably belongs: for output only, never a reason to
    unmap."""
    transient: bool = False
    """Whether only one of two reads returned its watch."""
    lockers: tuple[LockHolder, ...] = ()
    blocklisted_by: BlocklistEntry | NotObserved | None = None
    pods: tuple[Pod, ...] | NotObserved = ()
    """Pods on its node that use the volume, according to the API."""
    unknown_pod_uids: tuple[str, ...] = ()
    """Pod uids in processes or mounts of the node that do not exist in the API."""
    attachment: VolumeAttachment | NotObserved | None = None
    staging: tuple[StagingDirectory, ...] | NotObserved = ()
    pod_volumes: tuple[PodVolumeDirectory, ...] | NotObserved = ()
    in_flight: tuple[InFlight, ...] | NotObserved = ()
    node_object: Node | NotObserved | None = None
    in_volumes_in_use: bool | NotObserved = False
    driver_registered: bool | NotObserved = True
    """Whether the CSI driver is available on the node (CSINode, and its socket if observed)."""
    is_kubernetes_managed: bool = False
    """Whether a PV, a stash, metadata or the name pattern of a provisioner shows that Kubernetes
    created the image."""
    published_by: PublishedNode | None = None
    """The node whose agent published a mapping with exactly this client."""
    published: PublishedMapping | None = None
    """The published mapping, if it is a mapping of this image."""
    sibling_devices: tuple[str, ...] = ()
    """Other mappings of the same client on the node: one blocklist entry blocks all of them."""


class Volume(Struct, frozen=True, kw_only=True):
    """One image, the Kubernetes objects that refer to it, and every client that holds it."""

    target: Target
    image: ImageIdentity | None
    """None if the target has no image (yet): an unbound claim, a PV of another driver."""
    image_view: ImageView | None
    """None if no cluster was queried or none answered."""
    persistent_volume: PersistentVolume | None
    other_volumes: tuple[PersistentVolume, ...] = ()
    """Further PVs with the same image, or with the same driver and handle."""
    claim: PersistentVolumeClaim | None = None
    holders: tuple[Holder, ...] = ()
    pods: tuple[Pod, ...] = ()
    """Pods that use the volume, on all nodes and in any phase."""
    waiting_pods: tuple[Pod, ...] = ()
    """The pods among them that do not run yet."""
    attachments: tuple[VolumeAttachment, ...] | NotObserved = ()
    events: tuple[KubeEvent, ...] = ()
    unbacked: tuple[UnbackedMount, ...] = ()
    leftovers: tuple[PodVolumeDirectory, ...] = ()
    """Pod directories of the volume without a pod in the API and without a mount."""


# --------------------------------------------------------------------------------------------------
# Concluded
# --------------------------------------------------------------------------------------------------


class Verdict(StrEnum):
    """The verdict on one holder, or on the whole target."""

    IN_USE = "InUse"
    STAGED = "Staged"
    ORPHANED = "Orphaned"
    PINNED = "Pinned"
    DEAD = "Dead"
    UNWATCHED = "Unwatched"
    SHARED = "Shared"
    CONFLICT = "Conflict"
    FOREIGN = "Foreign"
    NODE_DOWN = "NodeDown"
    RETURNED_DIRTY = "ReturnedDirty"
    UNDETERMINED = "Undetermined"
    FREE = "Free"
    STALE_ATTACHMENT = "StaleAttachment"
    NOT_BACKED = "NotBacked"


class Severity(StrEnum):
    """Severity of a finding."""

    INFO = "info"
    WARNING = "warning"
    ERROR = "error"
    CRITICAL = "critical"
    """Data is in danger now."""


class LifecycleStep(StrEnum):
    """One step in the lifecycle of a volume, on the attach path or on the detach path."""

    PROVISION = "provision"
    BIND = "bind"
    SCHEDULE = "schedule"
    ATTACH = "attach"
    STAGE = "stage"
    """The image is mapped, and its file system is mounted once on the node."""
    PUBLISH = "publish"
    """It is mounted for a pod."""
    USE = "use"
    UNPUBLISH = "unpublish"
    UNSTAGE = "unstage"
    DETACH = "detach"
    RELEASE = "release"
    """The claim is deleted, and its PV is no longer bound."""
    RECLAIM = "reclaim"


class Recovery(Struct, frozen=True, kw_only=True):
    """The automatic recovery from a problem, without an operator."""

    actor: str = ""
    """The component that recovers the object; empty if no component ever does."""
    condition: str = ""
    """A condition that must be met first, and that the component does not cause."""
    within_s: float | None = None
    """Upper bound in seconds; None if there is no bound."""
    note: str = ""

    def __str__(self) -> str:
        note = f": {self.note}" if self.note else ""
        if not self.actor:
            return f"not automatic{note}"
        within = "" if self.within_s is None else f", within {_spoken(self.within_s)}"
        condition = f", once {self.condition}" if self.condition else ""
        return f"{self.actor}{within}{condition}{note}"


def _spoken(seconds: float) -> str:
    """Format a duration as kubelet does: ``2m2s``."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    parts = ((hours, "h"), (minutes, "m"), (rest, "s"))
    return "".join(f"{count}{unit}" for count, unit in parts if count)


class Command(Struct, frozen=True, kw_only=True):
    """One command for a person or a program; `rbdagent.commands` creates and formats it."""

    argv: tuple[str, ...]
    """The words, unquoted; a program runs them without a shell."""
    node: str | None = None
    """The node to run the command on; None if it can run anywhere."""
    changes: bool
    """Whether the command changes something; True unless it is known to be read-only."""
    note: str = ""
    """When or why to run the command, in a few words."""


class Finding(Struct, frozen=True, kw_only=True):
    """One problem or fact, with its evidence and its remedy."""

    code: str
    """``RBD101``; the catalogue explains it."""
    severity: Severity
    subject: str
    """The object of the finding: a device on a node, a PV, a pod."""
    message: str
    evidence: tuple[str, ...] = ()
    remedy: str = ""
    commands: tuple[Command, ...] = ()
    """Commands to copy, in order."""
    recovery: Recovery | None = None
    """The automatic recovery; None if the finding has none."""


class HolderVerdict(Struct, frozen=True, kw_only=True):
    """A holder and its verdict."""

    holder: Holder
    verdict: Verdict
    reasons: tuple[str, ...] = ()
    """The evidence for the verdict, in short sentences."""
    since: str | None = None
    """When this verdict was first observed; without a history, the time of the snapshot."""


class Diagnosis(Struct, frozen=True, kw_only=True):
    """The result, before it is formatted for output."""

    use: Volume
    verdict: Verdict
    holders: tuple[HolderVerdict, ...]
    findings: tuple[Finding, ...] = ()
    next_commands: tuple[Command, ...] = ()

    @property
    def local(self) -> tuple[HolderVerdict, ...]:
        """The holders on the observed node."""
        return tuple(holder for holder in self.holders if holder.holder.is_local)

    @property
    def mapped(self) -> tuple[tuple[HolderVerdict, Mapping], ...]:
        """The holders on the observed node that have an observed mapping, each with its mapping."""
        return tuple(
            (verdict, verdict.holder.mapping)
            for verdict in self.local
            if verdict.holder.mapping is not None
        )


class BlockedVolume(Struct, frozen=True, kw_only=True):
    """A volume that prevents the start of a pod on the observed node."""

    namespace: str
    pod: str
    persistent_volume: str
    cause: Verdict
    """The verdict on the holder that blocks the volume. It is ``StaleAttachment`` if only a
    VolumeAttachment to another node blocks it, and ``Undetermined`` if the holder was not
    observed."""
    holder_node: str | None
    """The node of that holder; None if it is unknown."""


class StepState(StrEnum):
    """State of one step in a lifecycle."""

    DONE = "done"
    WAITING = "waiting"
    """The step is in progress, or a component will do it without an operator."""
    FAILED = "failed"
    NOT_STARTED = "not started"
    """An earlier step is not done."""
    NOT_OBSERVED = "not observed"
    SKIPPED = "skipped"
    """The volume does not need the step."""


class StepStatus(Struct, frozen=True, kw_only=True):
    """One step in a lifecycle, with its observed state."""

    step: LifecycleStep
    state: StepState
    said: str
    """The observed facts, in a few words."""
    codes: tuple[str, ...] = ()
    """Codes of the findings that block the step."""


class DetachPath(Struct, frozen=True, kw_only=True):
    """How far a node that had a volume has released it."""

    node: str
    stages: tuple[StepStatus, ...]


CODES_OF_GAPS: Final = frozenset({"RBD901", "RBD902", "RBD903", "RBD904"})
"""Codes of the findings that report missing observations; such a finding is not a cause."""


class Lifecycle(Struct, frozen=True, kw_only=True):
    """The lifecycle of a volume, on the attach path and the detach path, and where it is broken."""

    diagnosis: Diagnosis
    """Its findings are in the order in which they block."""
    pod: Pod | None
    """The pod of the path: the target, else a pod that waits, else a pod that uses the volume."""
    there: tuple[StepStatus, ...]
    back: tuple[DetachPath, ...] = ()

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The findings; the finding that blocks first comes first."""
        return self.diagnosis.findings

    @property
    def first_failed(self) -> Finding | None:
        """The finding on which all others depend; None if nothing that was observed is broken."""
        return next(
            (
                finding
                for finding in self.findings
                if finding.severity is not Severity.INFO and finding.code not in CODES_OF_GAPS
            ),
            None,
        )

    @property
    def gaps(self) -> tuple[Finding, ...]:
        """The findings that report missing observations."""
        return tuple(finding for finding in self.findings if finding.code in CODES_OF_GAPS)


class AffectedObject(Struct, frozen=True, kw_only=True):
    """A claim, PV, pod or device that makes no progress."""

    life: Lifecycle
    finding: Finding
    """The first finding that blocks the object."""
    since: str | None
    """The earliest known time of the problem; None if it is unknown."""


class Cause(Struct, frozen=True, kw_only=True):
    """The cause that blocks one or more stuck objects."""

    finding: Finding
    """The finding as it is reported for the first object."""
    affected: tuple[AffectedObject, ...]


class ClusterReport(Struct, frozen=True, kw_only=True):
    """All stuck objects in a cluster, or in a part of it."""

    causes: tuple[Cause, ...]
    """The most severe first."""
    findings: tuple[Finding, ...] = ()
    """Findings about missing observations, and about the observed node."""
    claims: int | None = None
    volumes: int | None = None
    pods: int | None = None
    """The number of checked objects of each kind, only pods with volumes; None if not observed."""
    others: int = 0
    """PVs of other drivers, which were not checked."""

    @property
    def stuck(self) -> tuple[AffectedObject, ...]:
        """All stuck objects, the most severe first."""
        return tuple(victim for cause in self.causes for victim in cause.affected)


# --------------------------------------------------------------------------------------------------
# History
# --------------------------------------------------------------------------------------------------


class BootTime(Struct, frozen=True, kw_only=True):
    """A point in time on one boot of one node."""

    at: str
    """Wall-clock time, for output."""
    uptime_s: float
    """Seconds since boot, for calculation."""


class MappingIdentity(Struct, frozen=True, kw_only=True):
    """The fields that are equal in two snapshots if a mapping is the same mapping."""

    device: str
    incarnation: str | None
    fsid: str | None
    pool_id: int | None
    spec: ImageSpec | None
    image_id: str | None
    snapshot: str | None
    client_id: int | None

    @property
    def image(self) -> ImageIdentity | None:
        """The mapped image; None if its name is unknown."""
        if self.spec is None:
            return None
        return ImageIdentity(
            spec=self.spec, fsid=self.fsid, image_id=self.image_id, pool_id=self.pool_id
        )


class ObservedIo(Struct, frozen=True, kw_only=True):
    """I/O of a device between two observations that both found its mapping orphaned."""

    since: BootTime
    at: BootTime
    before: IoCounters
    after: IoCounters


class MappingHistory(Struct, frozen=True, kw_only=True):
    """The facts from earlier snapshots about one mapping."""

    identity: MappingIdentity
    first_seen: BootTime
    orphaned_since: BootTime | None = None
    """The first of the consecutive observations that found the mapping orphaned; None if the last
    observation did not."""
    needed_at: BootTime | None = None
    """Last observation in which a pod on this node needed the mapping, or in which that was
    unknown."""
    io_counters: IoCounters | None = None
    """Counters of the last observation; None if it did not observe them."""
    no_io_since: BootTime | None = None
    """The first of the consecutive observations that found the mapping orphaned with these counters
    and without a request in flight; None if the last observation did not."""
    last_io: ObservedIo | None = None
    """The last I/O that was observed while the mapping was orphaned."""


class History(Struct, frozen=True, kw_only=True):
    """The stored facts of rbdagent on one node; invalid after a reboot."""

    boot_id: str
    last_look: BootTime
    mappings: tuple[MappingHistory, ...] = ()
    unmaps: tuple[BootTime, ...] | NotObserved = ()
    """The start times of unmaps since boot; the check of the limit decides which of them count."""


# --------------------------------------------------------------------------------------------------
# Planned
# --------------------------------------------------------------------------------------------------


class UnmapPolicy(Struct, frozen=True, kw_only=True):
    """The actions that the operator allows."""

    may_unmap: bool = False
    grace_s: float = 600.0
    most_unmaps_an_hour: int = 6
    may_unmount_staging: bool = False
    """Whether the steps umount, luksClose and unmap are allowed, not only unmap."""


class FreezeState(Struct, frozen=True, kw_only=True):
    """Settings that forbid every unmap, in addition to annotations."""

    freeze_file: str | NotObserved | None
    """The path of the freeze file, if it exists."""


class Condition(Struct, frozen=True, kw_only=True):
    """One of the conditions of an unmap, with its evidence."""

    number: int
    code: str
    requirement: str
    """The statement that must be true."""
    met: bool
    observed: tuple[str, ...]
    """The facts that show that the condition is met or, if it is not met, the reasons."""
    pending: bool = False
    """Whether the condition is not met, but will be met after some time if nothing else changes."""


class Keeper(Struct, frozen=True, kw_only=True):
    """The only object that causes a refusal: without it, only time is missing."""

    kind: str
    """Kind in Kubernetes (``Pod``); ``Process`` for a process that belongs to no pod."""
    namespace: str = ""
    name: str
    """The name; for a pod that is not in the API, its uid; for a process, its program."""
    pid: int | None = None

    def __str__(self) -> str:
        """Return the name for use in a sentence."""
        if self.pid is not None:
            return f"process {self.pid} ({self.name})"
        return (
            f"{self.kind} {self.namespace}/{self.name}"
            if self.namespace
            else (f"{self.kind} {self.name}")
        )


class StepKind(StrEnum):
    """Type of a write to the node."""

    UMOUNT = "umount"
    LUKS_CLOSE = "luksClose"
    UNMAP = "unmap"


class Step(Struct, frozen=True, kw_only=True):
    """One write to the node; the next step begins only after this one was observed to succeed."""

    kind: StepKind
    subject: str
    """A mount point, the name of a mapper, or the device."""


class UnmapPlan(Struct, frozen=True, kw_only=True):
    """The plan if every condition is met: the steps, and the expected next actions."""

    node: str
    identity: MappingIdentity
    persistent_volume: str | None
    steps: tuple[Step, ...]
    conditions: tuple[Condition, ...]
    expects: tuple[str, ...] = ()
    """The actions of other components after which the volume is free."""
    io_counters: IoCounters
    """Counters of the device; they are compared again directly before the write."""


class UnmapOutcome(StrEnum):
    """The outcome of an act."""

    UNMAPPED = "unmapped"
    """The device is no longer in sysfs, and its watch has ended."""
    WATCH_LINGERS = "watch-lingers"
    """The device is gone, but its watch has not (yet) ended: an OSD that hangs keeps it."""
    REFUSED = "refused"
    """The plan before a step no longer allowed the step."""
    BUSY = "busy"
    """The kernel refused: a process has the device open."""
    IN_PROGRESS = "in-progress"
    """The kernel is still unmapping, or the call does not return: no further step is tried."""
    FAILED = "failed"


class UnmapResult(Struct, frozen=True, kw_only=True):
    """The result of a plan, which may have been executed only in part."""

    plan: UnmapPlan
    outcome: UnmapOutcome
    message: str
    done: tuple[Step, ...] = ()
    """Steps that were observed to succeed, in order."""
    refusal: UnmapRefusal | None = None


class Convergence(StrEnum):
    """State of a volume after an unmap, while other components must complete the detach."""

    PENDING = "pending"
    CLEARED = "cleared"
    BLOCKED = "still-blocked"
    NOT_OBSERVED = "not-observed"
    """The time for the observation is over, and the state was not observed."""


class UnmapRecord(Struct, frozen=True, kw_only=True):
    """Record of one unmap that began or was refused: caller, mapping, reason and outcome."""

    boot_id: str
    begun: BootTime
    by: str
    """``agent``, or the user of the command line."""
    identity: MappingIdentity
    persistent_volume: str | None
    why: str
    outcome: UnmapOutcome | None = None
    """None if the act is in progress, or if rbdagent ended during it."""
    message: str = ""
    convergence: Convergence | None = None
    """None if nothing was unmapped, so that no other component has to act."""
    convergence_reasons: tuple[str, ...] = ()

    @property
    def key(self) -> tuple[BootTime, MappingIdentity]:
        """The values that distinguish the act from every other act of its node."""
        return self.begun, self.identity


class UnmapRefusal(Struct, frozen=True, kw_only=True):
    """The refusal if at least one condition is not met: no step is executed."""

    node: str
    identity: MappingIdentity | None
    persistent_volume: str | None
    conditions: tuple[Condition, ...]
    keeper: Keeper | None = None
    """None if several objects prevent the unmap, or if the cause is not an object."""

    @property
    def codes(self) -> tuple[str, ...]:
        """The codes of the conditions that are not met."""
        return tuple(condition.code for condition in self.conditions if not condition.met)

    @property
    def first_code(self) -> str:
        """The code of the first unmet condition that does not end with time, else of the first."""
        unmet = [condition for condition in self.conditions if not condition.met]
        return next((condition.code for condition in unmet if not condition.pending), unmet[0].code)

    @property
    def only_keeper(self) -> str:
        """The sentence that names the only object that prevents the unmap; empty without one."""
        return "" if self.keeper is None else f"Apart from time, only {self.keeper} prevents it"

    @property
    def reasons(self) -> dict[str, str]:
        """The first reason for each code of an unmet condition."""
        return {
            condition.code: condition.observed[0]
            for condition in self.conditions
            if not condition.met
        }


# --------------------------------------------------------------------------------------------------
# check
# --------------------------------------------------------------------------------------------------


class CheckState(StrEnum):
    """Result of one check."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"
    SKIPPED = "skipped"


class CheckResult(Struct, frozen=True, kw_only=True):
    """One line of ``check``: a statement that should be true, with a hint if it is not."""

    source: str
    """``node``, ``ceph``, ``kubernetes`` or ``configuration``."""
    sentence: str
    state: CheckState
    detail: str = ""
    hint: str = ""
