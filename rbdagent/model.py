"""The vocabulary: what was observed, what it joins to, and what is said about it.

Every type is a frozen msgspec.Struct: as many dataclasses would take a tenth of the whole answer to
make at import (docs/adr/0002-structs.md). Three states are three values: a value
is present, ``None`` (or an empty tuple) is absent, and :class:`NotObserved` says that nobody could
look. Times are ISO 8601 strings in UTC as ``2026-11-21T03:00:00Z``: the pure core has no clock and
orders them as text.
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
    """Nobody could look: never to be read as "none"."""

    reason: str
    """What was tried, on what, and what happened; one line."""
    cure: str = ""
    """What would make it observable: a capability, a cap, a permission, a command."""


def observed_of(found: tuple[_T, ...] | NotObserved) -> tuple[_T, ...]:
    """Give what was observed, for whoever concludes nothing from what is not among it."""
    return () if isinstance(found, NotObserved) else found


class SourceState(StrEnum):
    """How one look at one source went."""

    OBSERVED = "observed"
    FAILED = "failed"
    SKIPPED = "skipped"


class Gap(Struct, frozen=True, kw_only=True):
    """One fact that a source, observed otherwise, could not give."""

    fact: str
    """What is missing, as a user would name it: ``open descriptors of other users' processes``."""
    reason: str
    cure: str = ""


class Source(Struct, frozen=True, kw_only=True):
    """The state of one source (node, ceph, kubernetes) and the gaps within it."""

    state: SourceState
    reason: str = ""
    """Why it failed or was skipped; empty where it was observed."""
    cure: str = ""
    gaps: tuple[Gap, ...] = ()
    took_s: float | None = None
    """How long it took to answer; None where it was not asked."""


# --------------------------------------------------------------------------------------------------
# Identities
# --------------------------------------------------------------------------------------------------


class ImageSpec(Struct, frozen=True, kw_only=True, order=True):
    """The name of an RBD image within one cluster: ``pool[/namespace]/name``."""

    pool: str
    namespace: str = ""
    """RADOS namespace; empty is the default one."""
    name: str

    def __str__(self) -> str:
        return "/".join(part for part in (self.pool, self.namespace, self.name) if part)


class EntityAddress(Struct, frozen=True, kw_only=True, order=True):
    """An address of a Ceph entity, its type (``v1:``, ``v2:``, ``any:``) left out on purpose.

    krbd, watchers and the blocklist write the same client with different types: compare without.
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
    """How an image became a block device."""

    KRBD = "krbd"
    NBD = "rbd-nbd"


class ProcessRef(Struct, frozen=True, kw_only=True):
    """A process, and the pod and container that its cgroup names."""

    pid: int
    command: str
    """Command line, cut to 200 characters; for a kernel thread its name in brackets."""
    pod_uid: str | None = None
    container_id: str | None = None
    started_at: str | None = None
    state: str = ""
    """One letter of ``/proc/PID/stat``: ``D`` is uninterruptible sleep."""

    @property
    def program(self) -> str:
        """Return the name of its program, without directory and arguments."""
        first = self.command.partition(" ")[0]
        return first if first.startswith("[") else first.rpartition("/")[2]


class MountNamespace(Struct, frozen=True, kw_only=True):
    """A mount namespace, by its inode, and one process that lives in it."""

    inode: int
    """0 where ``/proc/PID/ns/mnt`` could not be read (needs CAP_SYS_PTRACE): grouped by content."""
    process: ProcessRef
    is_host: bool = False


class MountKind(StrEnum):
    """What is mounted."""

    FILE_SYSTEM = "file-system"
    DEVICE_BIND = "device-bind"
    """A bind of the device node itself (block-mode volumes): devtmpfs with root ``/rbdN``."""


class Mount(Struct, frozen=True, kw_only=True):
    """One line of one mount namespace's mountinfo that concerns a device."""

    path: str
    root: str = "/"
    """The directory of the file system, or the device node, that is seen at ``path``."""
    device: DeviceNumber
    """The mapped device, its partition or dm child; for a device bind the device that is bound."""
    kind: MountKind = MountKind.FILE_SYSTEM
    fs_type: str = ""
    source: str = ""
    read_only: bool = False
    """Of the super block: a mount's own flag differs between namespaces and proves nothing."""
    namespace: MountNamespace


class OpenHow(StrEnum):
    """In which way a process keeps a device, or a file system on it, busy."""

    DESCRIPTOR = "descriptor"
    CWD = "cwd"
    ROOT = "root"
    MAPPING = "mapping"
    EXECUTABLE = "executable"


class Opener(Struct, frozen=True, kw_only=True):
    """A process that has the device, or a file on it, open; named or detached from every mount."""

    process: ProcessRef
    how: OpenHow
    path: str
    """What the link in /proc says; ``/`` for a directory in a detached mount: no proof."""
    on_device: bool
    """True: the device node itself (``st_rdev``); False: something that lies on it (``st_dev``)."""
    device: DeviceNumber


class BlockHolderKind(StrEnum):
    """What is stacked upon a device inside the kernel."""

    DM = "dm"
    LUKS = "luks"
    LOOP = "loop"
    SWAP = "swap"
    MD = "md"
    OTHER = "other"


class BlockHolder(Struct, frozen=True, kw_only=True):
    """A block device, or swap, that holds the mapping (or one of its children) open."""

    kind: BlockHolderKind
    name: str
    """Kernel name: ``dm-0``, ``loop3``; for swap the device's own."""
    device: DeviceNumber | None = None
    label: str = ""
    """dm name (``luks-rbd-<volume handle>``) or a loop device's backing file."""
    of: str = ""
    """The kernel name of the device that is held: ``rbd0``, ``rbd0p1``, ``dm-0``."""


class NbdState(Struct, frozen=True, kw_only=True):
    """What is known of an rbd-nbd device's process; ``pid`` in sysfs lies both ways."""

    recorded_pid: int | None
    backend: str | None
    """``/sys/block/nbdN/backend``: the cookie, which ceph-csi sets to the volume handle."""
    process: ProcessRef | NotObserved | None
    """The rbd-nbd process that serves it, found by cookie or image; None: there is none."""


class IoCounters(Struct, frozen=True, kw_only=True):
    """What a block device has completed since it was made (Documentation/block/stat.rst)."""

    reads: int
    writes: int
    in_flight: int
    """Issued to the driver and not completed: no counter shows these yet."""
    discards: int | None = None
    """None: the kernel does not count them (before 4.18, commit bdca3c87fb7a)."""
    flushes: int | None = None
    """None: the kernel does not count them (before 5.5, commit b6866318657)."""


class Mapping(Struct, frozen=True, kw_only=True):
    """One ``/sys/bus/rbd/devices/N``, or one rbd-nbd device, and all that keeps it busy."""

    kind: DeviceKind
    device_id: int
    """N. Ids are re-used, lowest free first: never an identity by itself."""
    device: str
    number: DeviceNumber
    spec: ImageSpec | NotObserved
    image_id: str | None
    """None for format 1 and for rbd-nbd, whose sysfs does not tell."""
    pool_id: int | None
    fsid: str | None
    snapshot: str | None = None
    client_id: int | None = None
    client_address: EntityAddress | None = None
    user: str | None = None
    """CephX user of the mapping from ``config_info`` (root only); never the key."""
    read_only: bool | NotObserved = False
    size_bytes: int | None = None
    node_present: bool | NotObserved = True
    """Whether ``/dev/rbdN`` exists on the host."""
    incarnation: str | None = None
    """``diskseq:17`` (Linux 5.15), else ``sysfs:INODE``: a device that comes again has another."""
    partitions: tuple[DeviceNumber, ...] = ()
    holders: tuple[BlockHolder, ...] | NotObserved = ()
    mounts: tuple[Mount, ...] | NotObserved = ()
    openers: tuple[Opener, ...] | NotObserved = ()
    kernel_traces: tuple[str, ...] | NotObserved = ()
    """What betrays a live file system: ``/sys/fs/ext4/rbd0``, ``[jbd2/rbd0-8]``."""
    watch: bool | NotObserved = field(default_factory=lambda: NotObserved(reason="not looked"))
    """Whether the kernel itself holds a watch for it (``osdc``, ``LINGER REQUESTS``)."""
    hung_requests: tuple[str, ...] | NotObserved = field(
        default_factory=lambda: NotObserved(reason="not looked")
    )
    """``op object`` of requests of its client that concern this image, from ``osdc``."""
    io_counters: IoCounters | NotObserved = field(
        default_factory=lambda: NotObserved(reason="not looked")
    )
    """Of the whole device: I/O of its partitions and of what is stacked on it counts here too."""
    nbd: NbdState | None = None

    @property
    def kernel_name(self) -> str:
        """``rbd0`` of ``/dev/rbd0``."""
        return self.device.removeprefix("/dev/")


class VolumeData(Struct, frozen=True, kw_only=True):
    """kubelet's ``vol_data.json``; the staging one holds only driver and handle."""

    driver: str | None
    volume_handle: str | None
    persistent_volume: str | None = None
    """``specVolID``: the PV's name."""
    attachment: str | None = None
    node_name: str | None = None


class Stash(Struct, frozen=True, kw_only=True):
    """ceph-csi's ``image-meta.json``."""

    spec: ImageSpec
    encrypted: bool = False
    device: str | None = None


class StagingDirectory(Struct, frozen=True, kw_only=True):
    """One volume's directory below kubelet's ``plugins``: where a driver stages it."""

    path: str
    """The directory to be mounted (``globalmount/<volume handle>``), or block mode's file."""
    driver: str | None
    volume_handle: str | None
    """From vol_data.json or the directory's name; None where only the hash is known."""
    handle_hash: str | None = None
    """Hex sha256 of the volume handle: the name of the directory in file-system mode."""
    persistent_volume: str | None = None
    """Known for block mode, for layouts before 1.24 and for in-tree volumes."""
    block: bool = False
    volume_data: VolumeData | NotObserved | None = None
    stash: Stash | NotObserved | None = None
    path_present: bool = True


class PodVolumeDirectory(Struct, frozen=True, kw_only=True):
    """One volume's directory of one pod below kubelet's ``pods``."""

    path: str
    """The directory (or block file) that a container would see."""
    pod_uid: str
    persistent_volume: str
    """The directory's name: the PV for CSI, the volume's name in the pod for inline volumes."""
    plugin: str
    """``kubernetes.io~csi`` or ``kubernetes.io~rbd``."""
    block: bool = False
    volume_data: VolumeData | NotObserved | None = None


class PluginSocket(Struct, frozen=True, kw_only=True):
    """A CSI driver that registered with kubelet on this node."""

    driver: str
    path: str
    """Its own socket; that of its registrar where its own is not at the conventional path."""
    listening: bool | NotObserved
    """Whether the driver accepts connections."""


class KubeletView(Struct, frozen=True, kw_only=True):
    """What kubelet and the CSI drivers left on the node's disk."""

    roots: tuple[str, ...] = ()
    process: ProcessRef | NotObserved | None = None
    """The running kubelet, with its start."""
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
    """A running container sees a volume's directory that is not on the volume's device."""

    pod_uid: str
    persistent_volume: str
    path: str
    """Where the container sees it."""
    source: str
    process: ProcessRef


class Word(Struct, frozen=True, kw_only=True):
    """One complaint in a log of the node: cleaned, cut, and without what looks like a secret."""

    at: str
    text: str
    names: tuple[str, ...]
    """What of the volume the whole line names: PV, volume handle, image, device."""
    call: str = ""
    """What was being done: ``NodeUnstageVolume``, ``UnmountDevice``; empty where it is not told."""
    unanswered: bool = False
    """A call that has no answer in the log."""
    times: int = 1
    """How often it was said; ``at`` is the last time."""
    retry_at: str | None = None
    """Until when kubelet waits before it tries again."""


class Heard(Struct, frozen=True, kw_only=True):
    """What one log says of the volumes that were looked for."""

    since: str
    """How far back was looked: silence before then proves nothing."""
    words: tuple[Word, ...] = ()
    """The newest first, the last few of each volume."""


class NodeWords(Struct, frozen=True, kw_only=True):
    """The node's own words: a failing NodeUnstage is told nowhere else (measured)."""

    kubelet: Heard | NotObserved
    plugin: Heard | NotObserved
    """Of the CSI node plugin."""
    kernel: Heard | NotObserved


class NodeView(Struct, frozen=True, kw_only=True):
    """Everything seen on one node."""

    node_name: str
    hostname: str
    boot_id: str | None
    module_loaded: bool
    """``/sys/bus/rbd`` exists; without it nothing can be mapped by krbd, and that is certain."""
    mappings: tuple[Mapping, ...] | NotObserved
    kubelet: KubeletView | NotObserved
    addresses: tuple[str, ...] | NotObserved = ()
    """The node's own IP addresses, in textual compressed form."""
    in_flight: tuple[InFlight, ...] | NotObserved = ()
    unbacked: tuple[UnbackedMount, ...] | NotObserved = ()
    processes: tuple[ProcessRef, ...] = ()
    """Processes of containers whose pod uid is known; one a container suffices."""
    uptime_s: float | None = None
    """Seconds since boot, suspension included: ages are counted by it, a wall clock may jump."""
    words: NodeWords | NotObserved = field(default_factory=lambda: NotObserved(reason=_NOT_ASKED))


# --------------------------------------------------------------------------------------------------
# Ceph
# --------------------------------------------------------------------------------------------------


class Watcher(Struct, frozen=True, kw_only=True):
    """A watch on an image's header object."""

    address: EntityAddress
    client: int
    """4118 of ``client.4118``."""
    cookie: int
    """Changes when a watch is registered again: a hint of its kind, never an identity."""


class Locker(Struct, frozen=True, kw_only=True):
    """A holder of an advisory lock (the exclusive-lock feature, or an old kubelet's)."""

    client: int
    address: EntityAddress | None
    lock_id: str
    """``auto 18446462598732840961`` or ``kubelet_lock_magic_<node>``."""
    exclusive: bool = True


class BlocklistEntry(Struct, frozen=True, kw_only=True):
    """A blocklisted client, a whole host (port and nonce 0), or a range.

    ``str()`` is what ``ceph osd blocklist rm`` takes, of a range ``ceph osd blocklist range rm``.
    """

    network: str
    """An IP address, or a range in CIDR notation.

    The address of a range may have bits behind its prefix: Ceph finds an entry by its full address.
    """
    port: int = 0
    nonce: int = 0
    until: str = ""

    @property
    def is_range(self) -> bool:
        """Whether it was made by ``ceph osd blocklist range add``, as csi-addons' fencing does."""
        return "/" in self.network

    def __str__(self) -> str:
        if self.is_range:
            return self.network
        return str(EntityAddress(ip=self.network, port=self.port, nonce=self.nonce))


class ImagePresence(StrEnum):
    """Whether an image is there."""

    PRESENT = "present"
    TRASH = "trash"
    GONE = "gone"


class ImageView(Struct, frozen=True, kw_only=True):
    """One image of one cluster, looked at read-only."""

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
    """Watches that every look of this observation saw."""
    passing_watchers: tuple[Watcher, ...] = ()
    """Watches that only one look of two saw: somebody's short read-write open, not a holder."""
    lockers: tuple[Locker, ...] | NotObserved = ()
    metadata: tuple[tuple[str, str], ...] | NotObserved = ()
    """ceph-csi's keys only, sorted; can be stale."""
    mirrored: bool | NotObserved = False
    mirror_daemons: tuple[Watcher, ...] | NotObserved = ()
    """Clients of rbd-mirror, this cluster's and its peers'; only of an image that is mirrored."""


class ServiceAddress(Struct, frozen=True, kw_only=True):
    """A Ceph daemon: a mgr may watch images; a mon is known for safe advice."""

    kind: str
    """``mgr`` or ``mon``."""
    name: str
    address: EntityAddress
    client: int | None = None


class ClusterView(Struct, frozen=True, kw_only=True):
    """One Ceph cluster."""

    name: str
    """How the configuration calls it: the conf file, or the ``[[ceph]]`` table's name."""
    source: Source
    fsid: str | None = None
    images: tuple[ImageView, ...] = ()
    blocklist: tuple[BlocklistEntry, ...] | NotObserved = ()
    services: tuple[ServiceAddress, ...] | NotObserved = ()
    """Clients of the active mgr."""
    monitors: tuple[ServiceAddress, ...] | NotObserved = ()
    pools: tuple[tuple[int, str], ...] | NotObserved = ()
    """(pool id, pool name): ceph-csi handles carry the id."""
    image_names: tuple[ImageSpec, ...] = ()
    """Names near a target that was not found, for near matches."""


class CephView(Struct, frozen=True, kw_only=True):
    """Every cluster that was configured."""

    clusters: tuple[ClusterView, ...]


# --------------------------------------------------------------------------------------------------
# Kubernetes
# --------------------------------------------------------------------------------------------------


class ObjectRef(Struct, frozen=True, kw_only=True, order=True):
    """A namespaced name, with the uid where it is known."""

    namespace: str
    name: str
    uid: str | None = None

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class Requirement(Struct, frozen=True, kw_only=True):
    """One requirement on labels: of a selector, or of a node affinity."""

    key: str
    operator: str
    """``In``, ``NotIn``, ``Exists``, ``DoesNotExist``; for nodes ``Gt`` and ``Lt`` too."""
    values: tuple[str, ...] = ()

    def __str__(self) -> str:
        return " ".join((self.key, self.operator, ",".join(self.values))).rstrip()


Selector = tuple[Requirement, ...]
"""All of them; ``matchLabels`` are ``In`` with one value."""

NodeTerm = tuple[Requirement, ...]
"""All of them; ``metadata.name`` stands for a ``matchFields``."""


class CsiSource(Struct, frozen=True, kw_only=True):
    """``spec.csi`` of a PV (or what a migrated in-tree PV is translated to)."""

    driver: str
    volume_handle: str
    attributes: tuple[tuple[str, str], ...] = ()
    """volumeAttributes, sorted; never secrets, they are references elsewhere."""
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
    """A PV that is not RBD: named so that the answer can say whose it is."""

    kind: str
    """``nfs``, ``hostPath``, or a CSI driver's name."""
    volume_handle: str | None = None
    image: ImageSpec | None = None
    """What its attributes name as an RBD image; an NVMe-oF gateway serves one."""


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
    """It carries the annotation that forbids every act on it."""
    capacity_bytes: int | None = None
    node_affinity: tuple[NodeTerm, ...] = ()
    """Any of them is enough; empty: it can be used on every node."""
    labels: tuple[tuple[str, str], ...] = ()
    finalizers: tuple[str, ...] = ()
    bound_by_controller: bool = False
    """The PV controller, not a user, chose its claim (``pv.kubernetes.io/bound-by-controller``)."""
    phase_since: str | None = None
    """``lastPhaseTransitionTime`` (Kubernetes 1.28)."""
    reason: str = ""
    """Why it is Failed, by the one that failed: ``status.message``."""
    attributes_class: str = ""
    """The VolumeAttributesClass (Kubernetes 1.34)."""
    mount_options: tuple[str, ...] = ()


class Claim(Struct, frozen=True, kw_only=True):
    """A PVC."""

    ref: ObjectRef
    phase: str
    volume_name: str | None = None
    storage_class: str | None = None
    """None: it names none, and may be given the default one; empty: it wants none."""
    access_modes: tuple[str, ...] = ()
    volume_mode: str = "Filesystem"
    deleting_since: str | None = None
    labels: tuple[tuple[str, str], ...] = ()
    created_at: str | None = None
    requested_bytes: int | None = None
    selector: Selector | None = None
    finalizers: tuple[str, ...] = ()
    bind_completed: bool = False
    """The PV controller has once bound it (``pv.kubernetes.io/bind-completed``): without its PV it
    is Lost."""
    bound_by_controller: bool = False
    """The PV controller, not a user, chose its PV."""
    selected_node: str | None = None
    """Where the scheduler wants its volume (``volume.kubernetes.io/selected-node``)."""
    provisioner: str | None = None
    """Who was asked to make its volume (``volume.kubernetes.io/storage-provisioner``)."""
    has_data_source: bool = False
    """It is to be a clone, or restored from a snapshot."""
    attributes_class: str = ""


class ContainerState(Struct, frozen=True, kw_only=True):
    """A container's state as the API tells it."""

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
    """Names of the claims it mounts, generic ephemeral ones included, in its own namespace."""
    inline_images: tuple[InTreeRbdSource, ...] = ()
    inline_volumes: tuple[CsiSource, ...] = ()
    owners: tuple[str, ...] = ()
    """Controllers: ``ReplicaSet/web-5d4f``."""
    containers: tuple[ContainerState, ...] = ()
    created_at: str | None = None
    finalizers: tuple[str, ...] = ()
    grace_s: float | None = None
    """How long its containers are given to end; only while it is being deleted."""
    unschedulable: str = ""
    """Why the scheduler finds no node for it; empty where it said nothing, or found one."""
    node_selector: tuple[tuple[str, str], ...] = ()
    placed_at: str | None = None
    """When it got its node; None where it has none, or nobody noted it."""
    labels: tuple[tuple[str, str], ...] = ()


class Node(Struct, frozen=True, kw_only=True):
    """A Node."""

    name: str
    uid: str | None = None
    ready: bool | None
    """None: the API says Unknown (kubelet is silent)."""
    boot_id: str | None = None
    internal_ips: tuple[str, ...] = ()
    volumes_in_use: tuple[str, ...] = ()
    volumes_attached: tuple[str, ...] = ()
    out_of_service: bool = False
    ready_changed_at: str | None = None
    frozen: bool = False
    labels: tuple[tuple[str, str], ...] = ()
    unschedulable: bool = False


class CsiNode(Struct, frozen=True, kw_only=True):
    """The drivers that kubelet registered on a node."""

    node_name: str
    drivers: tuple[str, ...] = ()
    limits: tuple[tuple[str, int], ...] = ()
    """How many volumes of a driver the node takes, where the driver says so."""


class Attachment(Struct, frozen=True, kw_only=True):
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
    """An event that belongs to the target: its pods, claim, volume."""

    kind: str
    """Kind of the regarded object: ``Pod``."""
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
    """None: its agent did not see."""
    persistent_volume: str | None = None
    because: tuple[str, ...] = ()
    findings: tuple[str, ...] = ()
    """Codes of what is wrong with the mapping or its node."""
    since: str | None = None
    pods: tuple[str, ...] = ()

    @property
    def image(self) -> ImageIdentity | None:
        """What is mapped; None where its name is unknown."""
        if self.spec is None:
            return None
        return ImageIdentity(spec=self.spec, fsid=self.fsid, image_id=self.image_id)


class PublishedNode(Struct, frozen=True, kw_only=True):
    """An RBDNode: what one node's agent saw last; it may be old."""

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
    """A ReplicaSet, Deployment or StatefulSet: who makes the pods of a claim."""

    kind: str
    ref: ObjectRef
    owners: tuple[str, ...] = ()
    """Controllers: ``Deployment/web``."""
    replicas: int = 1
    strategy: str = ""
    """``RollingUpdate`` or ``Recreate``; of a ReplicaSet empty."""
    max_surge: str = ""
    """As it is written: ``1``, ``25%``."""
    max_unavailable: str = ""

    @property
    def name(self) -> str:
        """As a pod's owners name it: ``ReplicaSet/web-5d4f``."""
        return f"{self.kind}/{self.ref.name}"


class Lease(Struct, frozen=True, kw_only=True):
    """A lease: by it the replicas of a controller agree which one works, and show that it does."""

    namespace: str
    name: str
    holder: str = ""
    """The one that works: a controller of CSI names its pod, kube-controller-manager its host."""
    renewed_at: str | None = None
    duration_s: float = 15.0


class DriverPod(Struct, frozen=True, kw_only=True):
    """A pod that may be a provisioner's."""

    ref: ObjectRef
    node_name: str | None
    phase: str
    ready: bool = False
    images: tuple[str, ...] = ()
    serves: tuple[str, ...] = ()
    """Provisioners that its containers' arguments and environment name."""


_NOT_ASKED: Final = "not asked: only the life of a volume needs it"


class KubeView(Struct, frozen=True, kw_only=True):
    """What the API said; each kind may be missing on its own (a 403 on one resource)."""

    server: str
    persistent_volumes: tuple[PersistentVolume, ...] | NotObserved
    claims: tuple[Claim, ...] | NotObserved = ()
    pods: tuple[Pod, ...] | NotObserved = ()
    nodes: tuple[Node, ...] | NotObserved = ()
    csi_nodes: tuple[CsiNode, ...] | NotObserved = ()
    attachments: tuple[Attachment, ...] | NotObserved = ()
    events: tuple[KubeEvent, ...] | NotObserved = ()
    pods_scope: str = "cluster"
    """``cluster``, or the lists that were made: ``node/worker-1,namespace/default``."""
    volumes_complete: bool = True
    """False: only PVs that were known by name: there may be others of the same image."""
    attachments_complete: bool = True
    """False: only VolumeAttachments that were known by name."""
    nodes_complete: bool = True
    """False: only Nodes that were known by name."""
    searched: tuple[str, ...] = ()
    """What was looked for in all there is, where a kind here is not complete: images for their
    PVs, clients' addresses for their Nodes, VolumeAttachments and Nodes by name. What is not here
    of these is nowhere; what is not here of anything else was not observed."""
    consistent: bool = False
    """Everything was read from the API server's store itself (no resourceVersion), no cache."""
    frozen_namespaces: tuple[str, ...] | NotObserved = field(
        default_factory=lambda: NotObserved(reason="not asked: nobody wants to act")
    )
    """Namespaces that carry the annotation that forbids every act."""
    published: tuple[PublishedNode, ...] | NotObserved = ()
    """What agents published; empty as well where the cluster has no such resource, or where nobody
    asked: an agent asks its neighbours alone."""
    storage_classes: tuple[StorageClass, ...] | NotObserved = field(
        default_factory=lambda: NotObserved(reason=_NOT_ASKED)
    )
    workloads: tuple[Workload, ...] | NotObserved = field(
        default_factory=lambda: NotObserved(reason=_NOT_ASKED)
    )
    """The controllers of the pods that are here, and theirs."""
    drivers: tuple[str, ...] | NotObserved = field(
        default_factory=lambda: NotObserved(reason=_NOT_ASKED)
    )
    """The CSIDriver objects' names."""
    leases: tuple[Lease, ...] | NotObserved = field(
        default_factory=lambda: NotObserved(reason=_NOT_ASKED)
    )
    """kube-controller-manager's, and those of the provisioners that the target waits for."""
    driver_pods: tuple[DriverPod, ...] | NotObserved = field(
        default_factory=lambda: NotObserved(reason=_NOT_ASKED)
    )
    """Pods of provisioners: of those that the target waits for, as far as a lease or a label that
    is known leads there. What is not here may be there under another label."""
    version: str | NotObserved = field(default_factory=lambda: NotObserved(reason=_NOT_ASKED))
    """Of the API server: ``v1.36.3``."""


# --------------------------------------------------------------------------------------------------
# The target and the snapshot
# --------------------------------------------------------------------------------------------------


class TargetKind(StrEnum):
    """The forms in which a user may name a volume."""

    PERSISTENT_VOLUME = "pv"
    CLAIM = "pvc"
    POD = "pod"
    IMAGE = "image"
    VOLUME_HANDLE = "handle"
    DEVICE = "device"
    NONE = "none"
    """No single target: ``list`` of a node, or everything that there is (``given`` says which)."""


class Target(Struct, frozen=True, kw_only=True):
    """What the user asked about, parsed but not yet looked up."""

    given: str
    kind: TargetKind
    name: str = ""
    """PV, claim or pod name; volume handle; device path."""
    namespace: str = ""
    """Kubernetes namespace of a claim or pod; without a name, of everything that is asked about."""
    image: ImageSpec | None = None


class Also(Flag):
    """What a look asks the API for beyond who holds the volume."""

    NOTHING = 0
    SWITCHES = auto()
    """What forbids an act: somebody wants to act."""
    LIFE = auto()
    """What the life of the volume depends on, and the node's own words."""
    EVERYTHING = auto()
    """All that there is, of the cluster or of the target's namespace: no volume was named."""


class Snapshot(Struct, frozen=True, kw_only=True):
    """All that one look saw: the only input of the pure core, and a file that replays it."""

    observed_at: str
    tool_version: str
    target: Target
    node: NodeView | None
    ceph: CephView | None
    kubernetes: KubeView | None
    sources: Sources


class Sources(Struct, frozen=True, kw_only=True):
    """How the look at each source went."""

    node: Source
    ceph: Source
    kubernetes: Source

    @property
    def named(self) -> tuple[tuple[str, Source], ...]:
        """Each source with its name, in the order in which they are told."""
        return (("node", self.node), ("ceph", self.ceph), ("kubernetes", self.kubernetes))

    @property
    def failed(self) -> dict[str, str]:
        """Why each source that failed was not observed, by its name."""
        return {
            name: source.reason for name, source in self.named if source.state is SourceState.FAILED
        }


# --------------------------------------------------------------------------------------------------
# Joined
# --------------------------------------------------------------------------------------------------


class Confidence(StrEnum):
    """How sure a holder's node is."""

    CERTAIN = "certain"
    """Client id and address with nonce equal those of a mapping seen in sysfs."""
    PROBABLE = "probable"
    """A Node object has the watcher's IP."""
    UNKNOWN = "unknown"


class HolderKind(StrEnum):
    """What sort of client holds an image."""

    KRBD = "krbd"
    NBD = "rbd-nbd"
    LIBRBD = "librbd"
    MGR = "mgr"
    MIRROR = "rbd-mirror"
    UNKNOWN = "unknown"


class ImageIdentity(Struct, frozen=True, kw_only=True):
    """An image across clusters; what is unknown is None."""

    spec: ImageSpec
    fsid: str | None
    image_id: str | None = None
    pool_id: int | None = None


class Holder(Struct, frozen=True, kw_only=True):
    """One client that has the image mapped or open, with all that joins to it; no judgement."""

    kind: HolderKind
    node: str | None
    confidence: Confidence
    is_local: bool = False
    """Whether it is a mapping seen on the node that looked."""
    mapping: Mapping | None = None
    watcher: Watcher | None = None
    passing: bool = False
    """Seen in one look of two."""
    lockers: tuple[Locker, ...] = ()
    blocklisted_by: BlocklistEntry | NotObserved | None = None
    pods: tuple[Pod, ...] | NotObserved = ()
    """Pods on its node that use the volume, by the API."""
    lost_pod_uids: tuple[str, ...] = ()
    """Pod uids that the node's processes or mounts name and the API does not know."""
    attachment: Attachment | NotObserved | None = None
    staging: tuple[StagingDirectory, ...] | NotObserved = ()
    pod_volumes: tuple[PodVolumeDirectory, ...] | NotObserved = ()
    in_flight: tuple[InFlight, ...] | NotObserved = ()
    node_object: Node | NotObserved | None = None
    in_volumes_in_use: bool | NotObserved = False
    driver_registered: bool | NotObserved = True
    """The CSI driver answers on the node (CSINode, and its socket where the node was seen)."""
    kubernetes_made: bool = False
    """A PV, a stash, metadata or a provisioner's name says that Kubernetes made the image."""
    published_by: PublishedNode | None = None
    """Whose agent published a mapping with exactly this client."""
    published: PublishedMapping | None = None
    """That mapping, where it is one of this image."""
    sibling_devices: tuple[str, ...] = ()
    """Other mappings of the same client on the node: one blocklist entry hits them all."""


class VolumeUse(Struct, frozen=True, kw_only=True):
    """One image, the Kubernetes objects that stand for it, and every client that holds it."""

    target: Target
    image: ImageIdentity | None
    """None: the target leads to no image (yet): an unbound claim, another driver's PV."""
    image_view: ImageView | None
    """None where no cluster was asked or none answered."""
    persistent_volume: PersistentVolume | None
    other_volumes: tuple[PersistentVolume, ...] = ()
    """Further PVs that lead to the same image, or that share the driver and handle."""
    claim: Claim | None = None
    holders: tuple[Holder, ...] = ()
    pods: tuple[Pod, ...] = ()
    """Pods that use the volume, on whichever node and in whatever phase."""
    waiting_pods: tuple[Pod, ...] = ()
    """Those of them that do not run yet."""
    attachments: tuple[Attachment, ...] | NotObserved = ()
    events: tuple[KubeEvent, ...] = ()
    unbacked: tuple[UnbackedMount, ...] = ()
    leftovers: tuple[PodVolumeDirectory, ...] = ()
    """Pod directories of the volume without a pod in the API and without a mount."""


# --------------------------------------------------------------------------------------------------
# Said
# --------------------------------------------------------------------------------------------------


class Verdict(StrEnum):
    """What is said of one holder, or of the target as a whole."""

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
    ATTACHED_ON_PAPER = "AttachedOnPaper"
    NOT_BACKED = "NotBacked"


class Severity(StrEnum):
    """How bad a finding is."""

    INFO = "info"
    WARNING = "warning"
    ERROR = "error"
    CRITICAL = "critical"
    """Data is in danger, now."""


class LifeStep(StrEnum):
    """One step of the life of a volume, there and back."""

    PROVISION = "provision"
    BIND = "bind"
    SCHEDULE = "schedule"
    ATTACH = "attach"
    STAGE = "stage"
    """The image is mapped, and its file system mounted once a node."""
    PUBLISH = "publish"
    """It is mounted for a pod."""
    USE = "use"
    UNPUBLISH = "unpublish"
    UNSTAGE = "unstage"
    DETACH = "detach"
    RELEASE = "release"
    """The claim is gone, and its PV no longer bound to it."""
    RECLAIM = "reclaim"


class Heals(Struct, frozen=True, kw_only=True):
    """What happens next by itself."""

    by: str = ""
    """Who does it; empty: nobody ever will."""
    once: str = ""
    """What must have happened before, which is for somebody else to do."""
    within_s: float | None = None
    """After how many seconds at the latest; None: there is no bound."""
    note: str = ""

    def __str__(self) -> str:
        note = f": {self.note}" if self.note else ""
        if not self.by:
            return f"never{note}"
        within = "" if self.within_s is None else f", within {_spoken(self.within_s)}"
        once = f", once {self.once}" if self.once else ""
        return f"{self.by}{within}{once}{note}"


def _spoken(seconds: float) -> str:
    """Write a time as kubelet does: ``2m2s``."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    parts = ((hours, "h"), (minutes, "m"), (rest, "s"))
    return "".join(f"{count}{unit}" for count, unit in parts if count)


class Command(Struct, frozen=True, kw_only=True):
    """One command for a person or a program to run; `rbdagent.commands` makes and renders it."""

    argv: tuple[str, ...]
    """The words, unquoted: a program runs them without a shell."""
    node: str | None = None
    """The node to run it on; None where any place will do."""
    changes: bool
    """Whether it changes something; one that is not known to read only is taken to change."""
    note: str = ""
    """When or why to run it, in a few words."""


class Finding(Struct, frozen=True, kw_only=True):
    """One thing worth saying, with its evidence and its remedy."""

    code: str
    """``RBD101``; the catalogue explains it."""
    severity: Severity
    subject: str
    """What it is about: a device on a node, a PV, a pod."""
    message: str
    evidence: tuple[str, ...] = ()
    remedy: str = ""
    commands: tuple[Command, ...] = ()
    """To copy; in order."""
    heals: Heals | None = None
    """What happens next by itself; None where nothing is broken."""


class JudgedHolder(Struct, frozen=True, kw_only=True):
    """A holder and its verdict."""

    holder: Holder
    verdict: Verdict
    because: tuple[str, ...] = ()
    """The evidence for the verdict, a short sentence each."""
    since: str | None = None
    """When it was first seen so; with one look, that look."""


class Diagnosis(Struct, frozen=True, kw_only=True):
    """The answer, before it is rendered."""

    use: VolumeUse
    verdict: Verdict
    holders: tuple[JudgedHolder, ...]
    findings: tuple[Finding, ...] = ()
    next_commands: tuple[Command, ...] = ()

    @property
    def local(self) -> tuple[JudgedHolder, ...]:
        """The holders on the node that looked."""
        return tuple(each for each in self.holders if each.holder.is_local)

    @property
    def mapped(self) -> tuple[tuple[JudgedHolder, Mapping], ...]:
        """Those of them whose mapping was seen, each with it."""
        return tuple(
            (each, each.holder.mapping) for each in self.local if each.holder.mapping is not None
        )


class BlockedVolume(Struct, frozen=True, kw_only=True):
    """A volume that keeps a pod of the node that looked from starting."""

    namespace: str
    pod: str
    persistent_volume: str
    cause: Verdict
    """On whoever is in the way; ``AttachedOnPaper``: only a VolumeAttachment to another node is,
    ``Undetermined``: that was not observed."""
    holder_node: str | None
    """None where it is unknown."""


class StepState(StrEnum):
    """How far one step of a life is."""

    DONE = "done"
    WAITING = "waiting"
    """It is under way, or for somebody who comes by himself."""
    BROKEN = "broken"
    AHEAD = "ahead"
    """A step before it is not done."""
    UNSEEN = "not observed"
    UNNEEDED = "unneeded"


class LifeStage(Struct, frozen=True, kw_only=True):
    """One step of a life, and what was seen of it."""

    step: LifeStep
    state: StepState
    said: str
    """What was seen, in a few words."""
    codes: tuple[str, ...] = ()
    """The findings that stand in its way."""


class WayBack(Struct, frozen=True, kw_only=True):
    """How far a node has let go of a volume that it had."""

    node: str
    stages: tuple[LifeStage, ...]


CODES_OF_GAPS: Final = frozenset({"RBD901", "RBD902", "RBD903", "RBD904"})
"""Codes of the findings that say what was not observed: such a finding is no cause."""


class Life(Struct, frozen=True, kw_only=True):
    """The life of a volume, there and back, and where it is broken."""

    diagnosis: Diagnosis
    """Its findings in the order in which they block."""
    pod: Pod | None
    """Whose way it is: the target, else one that waits, else one that uses it."""
    there: tuple[LifeStage, ...]
    back: tuple[WayBack, ...] = ()

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What blocks first comes first."""
        return self.diagnosis.findings

    @property
    def first_broken(self) -> Finding | None:
        """The finding that everything else waits for; None: nothing that was observed is broken."""
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
        """The findings that say what was not observed."""
        return tuple(finding for finding in self.findings if finding.code in CODES_OF_GAPS)


class Stuck(Struct, frozen=True, kw_only=True):
    """A claim, PV, pod or device that does not get on."""

    life: Life
    finding: Finding
    """What it waits for first."""
    since: str | None
    """Since when at the earliest; None where nothing tells."""


class Cause(Struct, frozen=True, kw_only=True):
    """What one of them waits for, or very many."""

    finding: Finding
    """As it is said of the first of them."""
    victims: tuple[Stuck, ...]


class LifeList(Struct, frozen=True, kw_only=True):
    """Everything that is stuck in a cluster, or in a part of it."""

    causes: tuple[Cause, ...]
    """The worst first."""
    findings: tuple[Finding, ...] = ()
    """What could not be looked at, and what is wrong with the node that looked."""
    claims: int | None = None
    volumes: int | None = None
    pods: int | None = None
    """How many of each there were to look at, pods with volumes alone; None: not observed."""
    others: int = 0
    """PVs of other drivers, which were left out."""

    @property
    def stuck(self) -> tuple[Stuck, ...]:
        """All of them, the worst first."""
        return tuple(each for cause in self.causes for each in cause.victims)


# --------------------------------------------------------------------------------------------------
# Remembered from look to look
# --------------------------------------------------------------------------------------------------


class Moment(Struct, frozen=True, kw_only=True):
    """A point in time on one boot of one node."""

    at: str
    """To be shown."""
    uptime_s: float
    """To be reckoned with."""


class MappingIdentity(Struct, frozen=True, kw_only=True):
    """What must stay equal for two looks to have seen the same mapping."""

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
        """What is mapped; None where its name is unknown."""
        if self.spec is None:
            return None
        return ImageIdentity(
            spec=self.spec, fsid=self.fsid, image_id=self.image_id, pool_id=self.pool_id
        )


class ObservedIo(Struct, frozen=True, kw_only=True):
    """I/O of a device between two observations that both called its mapping orphaned."""

    since: Moment
    at: Moment
    before: IoCounters
    after: IoCounters


class Remembered(Struct, frozen=True, kw_only=True):
    """What earlier looks saw of one mapping."""

    identity: MappingIdentity
    first_seen: Moment
    orphaned_since: Moment | None = None
    """The first look of the unbroken row that called it orphaned; None: the last one did not."""
    needed_at: Moment | None = None
    """The last look at which a pod on this node needed it, or nobody could tell."""
    io_counters: IoCounters | None = None
    """Of the last observation; None: they were not observed then."""
    no_io_since: Moment | None = None
    """The first observation of the unbroken row that called it orphaned with these counters, and
    with no request in flight; None: the last one did not."""
    last_io: ObservedIo | None = None
    """The last I/O that was seen within that row."""


class History(Struct, frozen=True, kw_only=True):
    """What one node's rbdagent remembers; worthless after a reboot."""

    boot_id: str
    last_look: Moment
    mappings: tuple[Remembered, ...] = ()
    unmaps: tuple[Moment, ...] | NotObserved = ()
    """When unmaps were begun on this boot; which of them count is for who limits them to say."""


# --------------------------------------------------------------------------------------------------
# Planned
# --------------------------------------------------------------------------------------------------


class Policy(Struct, frozen=True, kw_only=True):
    """What whoever runs rbdagent allows it."""

    may_unmap: bool = False
    grace_s: float = 600.0
    most_unmaps_an_hour: int = 6
    may_unmount_staging: bool = False
    """The staged ladder: umount, luksClose, unmap."""


class Switches(Struct, frozen=True, kw_only=True):
    """What forbids every act, beside annotations."""

    freeze_file: str | NotObserved | None
    """Its path where it is there."""


class Condition(Struct, frozen=True, kw_only=True):
    """One of the conditions of an unmap, and what was seen of it."""

    number: int
    code: str
    demands: str
    """The sentence that must be true."""
    met: bool
    observed: tuple[str, ...]
    """What speaks for it or, where it is not met, against it."""
    passes: bool = False
    """It is not met, but time alone will cure that if nothing else happens."""


class StepKind(StrEnum):
    """One write to the node."""

    UMOUNT = "umount"
    LUKS_CLOSE = "luksClose"
    UNMAP = "unmap"


class Step(Struct, frozen=True, kw_only=True):
    """One write to the node; the next one only after it was seen to have worked."""

    kind: StepKind
    subject: str
    """A mount point, a mapper's name, or the device."""


class UnmapPlan(Struct, frozen=True, kw_only=True):
    """Every condition holds: what would be done, and what must follow."""

    node: str
    identity: MappingIdentity
    persistent_volume: str | None
    steps: tuple[Step, ...]
    conditions: tuple[Condition, ...]
    expects: tuple[str, ...] = ()
    """What others must do after it for the volume to be free."""
    io_counters: IoCounters
    """Of the device: they are compared once more directly before the write."""


class UnmapOutcome(StrEnum):
    """How an act ended."""

    UNMAPPED = "unmapped"
    """The device is gone from sysfs, and its watch from the header."""
    WATCH_LINGERS = "watch-lingers"
    """The device is gone, its watch is not (yet): a hung OSD keeps it."""
    REFUSED = "refused"
    """The look before a step no longer allowed it."""
    BUSY = "busy"
    """The kernel refused: somebody has the device open after all."""
    IN_PROGRESS = "in-progress"
    """The kernel is at it, or does not return: nothing more is tried."""
    FAILED = "failed"


class UnmapResult(Struct, frozen=True, kw_only=True):
    """What was done of a plan."""

    plan: UnmapPlan
    outcome: UnmapOutcome
    message: str
    done: tuple[Step, ...] = ()
    """Steps that were seen to have worked, in order."""
    refusal: UnmapRefusal | None = None


class Followed(StrEnum):
    """What came of an unmap for the volume: the others have a part to do after it."""

    PENDING = "pending"
    CLEARED = "cleared"
    BLOCKED = "still-blocked"
    UNSEEN = "not-observed"
    """The time to look for it is over, and nobody could see."""


class Act(Struct, frozen=True, kw_only=True):
    """One unmap that was begun, or refused, as it is kept: who, what, why, and how it ended."""

    boot_id: str
    begun: Moment
    by: str
    """``agent``, or the user of the command line."""
    identity: MappingIdentity
    persistent_volume: str | None
    why: str
    outcome: UnmapOutcome | None = None
    """None: it is under way, or rbdagent ended in the midst of it."""
    message: str = ""
    followed: Followed | None = None
    """None: nothing was unmapped that others would have to follow."""
    followed_because: tuple[str, ...] = ()

    @property
    def key(self) -> tuple[Moment, MappingIdentity]:
        """What tells it from every other act of its node."""
        return self.begun, self.identity


class UnmapRefusal(Struct, frozen=True, kw_only=True):
    """At least one condition does not hold: nothing will be done."""

    node: str
    identity: MappingIdentity | None
    persistent_volume: str | None
    conditions: tuple[Condition, ...]

    @property
    def codes(self) -> tuple[str, ...]:
        """The codes of what does not hold."""
        return tuple(each.code for each in self.conditions if not each.met)

    @property
    def reasons(self) -> dict[str, str]:
        """The first reason against it by each code."""
        return {each.code: each.observed[0] for each in self.conditions if not each.met}


# --------------------------------------------------------------------------------------------------
# check
# --------------------------------------------------------------------------------------------------


class CheckState(StrEnum):
    """How one check went."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"
    SKIPPED = "skipped"


class CheckResult(Struct, frozen=True, kw_only=True):
    """One line of ``check``: a sentence that should be true, and what to do where it is not."""

    source: str
    """``node``, ``ceph``, ``kubernetes`` or ``configuration``."""
    sentence: str
    state: CheckState
    detail: str = ""
    hint: str = ""
