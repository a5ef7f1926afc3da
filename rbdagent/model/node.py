"""The facts observed on one node: mappings, their users, kubelet's directories, logs."""

from __future__ import annotations

from enum import StrEnum

from msgspec import field

from rbdagent.model.common import (
    LIFECYCLE_NOT_REQUESTED,
    NOT_REQUESTED,
    DeviceNumber,
    EntityAddress,
    ImageSpec,
    Int64,
    NotObserved,
    Stored,
)


class DeviceKind(StrEnum):
    """Driver that maps an image to a block device."""

    KRBD = "krbd"
    NBD = "rbd-nbd"


class ParentProcess(Stored, frozen=True, kw_only=True, tag=True):
    """The process that started another one, or that adopted it when the starter ended."""

    pid: Int64
    program: str


class ProcessRef(Stored, frozen=True, kw_only=True, tag=True):
    """A process, and the pod and container that its cgroup names."""

    pid: Int64
    command: str
    """Command line, truncated to 200 characters; for a kernel thread its name in brackets."""
    pod_uid: str | None = None
    container_id: str | None = None
    started_at: str | None = None
    state: str = ""
    """One letter of ``/proc/PID/stat``: ``D`` is uninterruptible sleep."""
    user: str | NotObserved = NOT_REQUESTED
    """The effective user of a process that holds a device: its name in the host's ``/etc/passwd``,
    else the uid. For a process of a pod it is always the uid."""
    parent: ParentProcess | NotObserved | None = NOT_REQUESTED
    """The parent of a process that holds a device; None if it has none, as process 1."""
    is_public: bool = False
    """Whether sentences about it are published, and so have its program only."""

    @property
    def program(self) -> str:
        """The name of the program, without directory and arguments."""
        first = self.command.partition(" ")[0]
        return first if first.startswith("[") else first.rpartition("/")[2]


class MountNamespace(Stored, frozen=True, kw_only=True):
    """A mount namespace, identified by its inode, and one process in it."""

    inode: Int64
    """0 if ``/proc/PID/ns/mnt`` could not be read (it needs CAP_SYS_PTRACE). Then namespaces are
    distinguished by the content of mountinfo."""
    process: ProcessRef
    is_host: bool = False


class MountKind(StrEnum):
    """Type of a mount."""

    FILE_SYSTEM = "file-system"
    DEVICE_BIND = "device-bind"
    """A bind mount of the device node (block-mode volumes): devtmpfs with root ``/rbdN``."""


class Mount(Stored, frozen=True, kw_only=True):
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
    covered: bool = False
    """Whether another mount at the same path hides it."""
    namespace: MountNamespace


class OpenKind(StrEnum):
    """How a process keeps a device, or a file system on it, busy."""

    DESCRIPTOR = "descriptor"
    CWD = "cwd"
    ROOT = "root"
    MAPPING = "mapping"
    EXECUTABLE = "executable"


class OpenFile(Stored, frozen=True, kw_only=True):
    """A process that has the device, or a file on it, open; the file may be in a detached mount."""

    process: ProcessRef
    kind: OpenKind
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


class BlockHolder(Stored, frozen=True, kw_only=True):
    """A block device, or swap area, that holds the mapping (or one of its children) open."""

    kind: BlockHolderKind
    name: str
    """Kernel name: ``dm-0``, ``loop3``; for swap the name of the device."""
    device: DeviceNumber | None = None
    label: str = ""
    """dm name (``luks-rbd-<volume handle>``), or the backing file of a loop device."""
    of: str = ""
    """The kernel name of the device that is held open: ``rbd0``, ``rbd0p1``, ``dm-0``."""
    size_bytes: Int64 | None = None
    """The size of a LUKS device, which is smaller than the device below by its header."""


class NbdState(Stored, frozen=True, kw_only=True):
    """The process of an rbd-nbd device; ``pid`` in sysfs can be wrong, or present without one."""

    recorded_pid: Int64 | None
    backend: str | None
    """``/sys/block/nbdN/backend``: the cookie, which ceph-csi sets to the volume handle."""
    process: ProcessRef | NotObserved | None
    """The rbd-nbd process that serves the device, found by cookie or image; None without one."""


class IoCounters(Stored, frozen=True, kw_only=True, tag=True):
    """I/O that a block device has completed since its creation (Documentation/block/stat.rst)."""

    reads: Int64
    writes: Int64
    in_flight: Int64
    """Requests issued to the driver and not completed; the other counters do not include them."""
    discards: Int64 | None = None
    """None if the kernel does not count them (before 4.18, commit bdca3c87fb7a)."""
    flushes: Int64 | None = None
    """None if the kernel does not count them (before 5.5, commit b6866318657)."""


class IoBytes(Stored, frozen=True, kw_only=True, tag=True):
    """Bytes that a block device has read and written since its creation, and when that was read.

    They are apart from `IoCounters`, whose equality is a condition of an unmap (RBD510).
    """

    read: Int64
    written: Int64
    uptime_s: float
    """Seconds since boot, including suspension, when the counters were read: a rate needs the time
    of the counters, not that of the observation, which ends seconds later."""


class FileSystemSize(Stored, frozen=True, kw_only=True, tag=True):
    """The size of a mounted file system, and of the device that it is on, read at the same time."""

    path: str
    """The mount point, a staging path of kubelet."""
    fs_type: str
    device: str
    """The kernel name of the mapping, or of a LUKS device on it."""
    device_bytes: Int64
    total_bytes: Int64
    """What statfs(2) reports, as df does: the file system without the space for its own use (inode
    tables and journal of ext4, log of XFS)."""
    inodes: Int64
    """Of ext4, as many as its inode tables have room for; of XFS, a limit."""


class Mapping(Stored, frozen=True, kw_only=True):
    """One ``/sys/bus/rbd/devices/N``, or one rbd-nbd device, and what keeps it busy."""

    kind: DeviceKind
    device_id: Int64
    """N. The kernel reuses ids, lowest free id first, so the id alone is never an identity."""
    device: str
    number: DeviceNumber
    spec: ImageSpec | NotObserved
    image_id: str | None
    """None for format 1 and for rbd-nbd, which has no image id in sysfs."""
    pool_id: Int64 | None
    fsid: str | None
    snapshot: str | None = None
    snapshot_id: Int64 | None = None
    """The id of the mapped snapshot; its name may be given again after it was removed."""
    client_id: Int64 | None = None
    client_address: EntityAddress | None = None
    user: str | None = None
    """CephX user of the mapping from ``config_info`` (root only); never the key."""
    read_only: bool | NotObserved = False
    size_bytes: Int64 | None = None
    has_object_map: bool = False
    """Whether the image had the feature object-map when it was mapped; sysfs keeps that."""
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
    watch: bool | NotObserved = NOT_REQUESTED
    """Whether the kernel client has a watch for the mapping (``osdc``, ``LINGER REQUESTS``)."""
    hung_requests: tuple[str, ...] | NotObserved = NOT_REQUESTED
    """``op object`` for each request of its client for this image, from ``osdc``."""
    hung_at: tuple[str, ...] = ()
    """The placement groups and OSDs of these requests: ``PG 5.0 on osd.3``."""
    io_counters: IoCounters | NotObserved = NOT_REQUESTED
    """Counters of the device, including its partitions and devices stacked on it."""
    io_bytes: IoBytes | NotObserved = NOT_REQUESTED
    """Bytes of the same reads and writes."""
    file_system: FileSystemSize | NotObserved | None = NOT_REQUESTED
    """The size of the file system that is staged; None if no file system of the device is mounted
    on the host."""
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


class VolumeData(Stored, frozen=True, kw_only=True, tag=True):
    """kubelet's ``vol_data.json``; the file of a staging directory has only driver and handle."""

    driver: str | None
    volume_handle: str | None
    persistent_volume: str | None = None
    """``specVolID``: the name of the PV."""
    attachment: str | None = None
    node_name: str | None = None


class CsiImageMeta(Stored, frozen=True, kw_only=True, tag=True):
    """ceph-csi's ``image-meta.json``."""

    spec: ImageSpec
    encrypted: bool = False
    device: str | None = None


class StagingDirectory(Stored, frozen=True, kw_only=True):
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


class PodVolumeDirectory(Stored, frozen=True, kw_only=True):
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
    changed_at: str | None = None
    """When it was made, or an entry of the volume's directory was last made or removed; None in a
    snapshot file of an earlier version, or if that was not observed."""


class PluginSocket(Stored, frozen=True, kw_only=True):
    """A CSI driver that registered with kubelet on this node."""

    driver: str
    path: str
    """The socket of the driver, or of its registrar if the driver's is not at the usual path."""
    listening: bool | NotObserved
    """Whether the driver accepts connections."""


class KubeletView(Stored, frozen=True, kw_only=True, tag=True):
    """The files of kubelet and the CSI drivers on the disk of the node."""

    roots: tuple[str, ...] = ()
    process: ProcessRef | NotObserved | None = None
    """The running kubelet, with its start time."""
    staging: tuple[StagingDirectory, ...] | NotObserved = ()
    pod_volumes: tuple[PodVolumeDirectory, ...] | NotObserved = ()
    sockets: tuple[PluginSocket, ...] | NotObserved = ()


class InFlight(Stored, frozen=True, kw_only=True):
    """A process that maps, unmaps, formats, checks, mounts or unlocks, in any state."""

    process: ProcessRef
    program: str
    names: tuple[str, ...]
    """Arguments that name an image, a device or a path of a volume."""


class UnbackedMount(Stored, frozen=True, kw_only=True):
    """A running container whose directory of a volume is not on the device of that volume."""

    pod_uid: str
    persistent_volume: str
    path: str
    """The path of the directory in the container."""
    source: str
    process: ProcessRef


class RouteKind(StrEnum):
    """What a network namespace does with packets for an address."""

    FORWARDED = "forwarded"
    REJECTED = "rejected"
    """A route of type blackhole, unreachable or prohibit."""
    NONE = "none"
    """No route of any table covers the address."""


class RouteTo(Stored, frozen=True, kw_only=True):
    """The route of a network namespace to one address."""

    ip: str
    kind: RouteKind | NotObserved
    interface: str = ""
    is_direct: bool = False
    """Whether the address is in a network of the namespace's own interfaces."""


class ConnectionTo(Stored, frozen=True, kw_only=True):
    """A TCP connection of a network namespace to a daemon of Ceph, or an attempt to make one."""

    ip: str
    port: Int64
    established: bool
    """False for an attempt: the peer has not answered yet (SYN_SENT)."""
    retransmits: Int64
    """How often the oldest packet without an answer was sent again; 0 after any answer."""


class ProcessNetwork(Stored, frozen=True, kw_only=True):
    """The network namespace of a process from which Ceph is used, as ``/proc/PID/net`` shows it."""

    process: ProcessRef
    is_plugin: bool = False
    """Whether it is the CSI node plugin; else it maps an image, or has a client's address."""
    is_host: bool | NotObserved
    """Whether it is the network of the host: that of process 1."""
    addresses: tuple[str, ...] | NotObserved
    routes: tuple[RouteTo, ...]
    """To monitors, to OSDs, and to the addresses of clients that wait."""
    connections: tuple[ConnectionTo, ...] | NotObserved
    """Those to the daemons of Ceph that are known."""


class NodeNetworks(Stored, frozen=True, kw_only=True, tag=True):
    """The network namespaces of the node from which Ceph is used."""

    networks: tuple[ProcessNetwork, ...]
    osds: tuple[tuple[str, str, Int64], ...] = ()
    """(``osd.3``, IP address, port), as the kernel knows them: those for which requests wait, those
    that are in a connection, and some more while an image is being mapped."""
    absent: tuple[str, ...] | NotObserved = ()
    """The addresses of the node's krbd clients that wait, and that no network namespace has. Not
    observed while a mount keeps a namespace without a process: no file shows its addresses."""


class LogEntry(Stored, frozen=True, kw_only=True):
    """One warning or error in a log of the node: cleaned, truncated, without possible secrets."""

    at: str
    text: str
    names: tuple[str, ...]
    """Names of the volume in the untruncated line: PV, volume handle, image, device."""
    call: str = ""
    """The operation: ``NodeUnstageVolume``, ``UnmountDevice``; empty if the line has none."""
    unanswered: bool = False
    """Whether it is a call that has no response in the log."""
    times: Int64 = 1
    """How often the message occurs; ``at`` is the last time."""
    retry_at: str | None = None
    """When kubelet retries."""


class LogExcerpt(Stored, frozen=True, kw_only=True, tag=True):
    """The lines of one log about the requested volumes."""

    since: str
    """Start of the part that was read; missing lines before this time prove nothing."""
    lines: tuple[LogEntry, ...] = field(default=(), name="words")
    """The last few lines about each volume, newest first."""
    unread: tuple[str, ...] = ()
    """Logs that were not read although they may belong here, each with the reason."""


class NodeLogs(Stored, frozen=True, kw_only=True, tag=True):
    """Log lines of the node; a failing NodeUnstage is reported nowhere else (measured)."""

    kubelet: LogExcerpt | NotObserved
    plugin: LogExcerpt | NotObserved
    """The log of the CSI node plugin."""
    kernel: LogExcerpt | NotObserved


class NodeView(Stored, frozen=True, kw_only=True, dict=True):
    """The facts observed on one node."""

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
    networks: NodeNetworks | NotObserved = LIFECYCLE_NOT_REQUESTED
    uptime_s: float | None = None
    """Seconds since boot, including suspension. Ages use it because the wall clock may jump."""
    # Snapshots that were taken before the field had its name are still read.
    logs: NodeLogs | NotObserved = field(default=LIFECYCLE_NOT_REQUESTED, name="words")
