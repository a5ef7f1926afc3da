"""The facts observed on Ceph clusters: images, watchers, lock holders, the blocklist."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from rbdagent.model.common import (
    NOT_REQUESTED,
    EntityAddress,
    ImageSpec,
    Int64,
    NotObserved,
    Source,
    Stored,
)

_FIRST_KERNEL_COOKIE: Final = 18446462598732840961
"""The cookies of krbd count up from this number; those of librbd are like heap addresses."""


class Watcher(Stored, frozen=True, kw_only=True):
    """A watch on an image's header object."""

    address: EntityAddress
    client: Int64
    """4118 for ``client.4118``."""
    cookie: int
    """It changes when a watch is registered again: a hint of its kind, never an identity."""

    def __post_init__(self) -> None:
        # An unsigned number in Ceph (watch_item_t). The bounds of msgspec are signed.
        if self.cookie.bit_length() > 64:
            raise ValueError("Expected `int` of 64 bits")

    @property
    def is_of_kernel(self) -> bool:
        """Whether krbd numbers its watches so: a hint of the client's kind, and no proof."""
        return self.cookie >= _FIRST_KERNEL_COOKIE


class LockHolder(Stored, frozen=True, kw_only=True):
    """A holder of an advisory lock (of the exclusive-lock feature, or of an old kubelet)."""

    client: Int64
    address: EntityAddress | None
    lock_id: str
    """``auto 18446462598732840961`` or ``kubelet_lock_magic_<node>``."""
    exclusive: bool = True


class BlocklistEntry(Stored, frozen=True, kw_only=True):
    """A blocklisted client, host (port and nonce 0), or range.

    ``str()`` is the argument of ``ceph osd blocklist rm``, or ``ceph osd blocklist range rm``.
    """

    network: str
    """An IP address, or a range in CIDR notation.

    The address of a range may have bits after its prefix, because Ceph finds an entry by its full
    address.
    """
    port: Int64 = 0
    nonce: Int64 = 0
    until: str = ""

    @property
    def is_range(self) -> bool:
        """Whether ``ceph osd blocklist range add`` created it, as csi-addons does for fencing."""
        return "/" in self.network

    def __str__(self) -> str:
        if self.is_range:
            return self.network
        return str(EntityAddress(ip=self.network, port=self.port, nonce=self.nonce))


class ServiceAddress(Stored, frozen=True, kw_only=True):
    """A client of a Ceph daemon, or a mon.

    mgr and rbd-mirror may watch images. With the mons, hints can warn against blocklisting an
    address on which Ceph runs.
    """

    kind: str
    """``mgr``, ``rbd-mirror`` or ``mon``."""
    name: str
    """``x`` for ``mgr.x``; empty for rbd-mirror, whose clients have no name."""
    address: EntityAddress
    client: Int64 | None = None
    """None if the cluster reports only the address."""
    of_peer: bool = False
    """Whether it is a daemon of another cluster that copies images from this cluster."""


class ImagePresence(StrEnum):
    """Whether an image exists."""

    PRESENT = "present"
    TRASH = "trash"
    GONE = "gone"


class MirrorState(StrEnum):
    """The state that an rbd-mirror daemon reports of a copy (mirror_image_status_state_t)."""

    UNKNOWN = "unknown"
    ERROR = "error"
    SYNCING = "syncing"
    STARTING_REPLAY = "starting_replay"
    REPLAYING = "replaying"
    STOPPING_REPLAY = "stopping_replay"
    STOPPED = "stopped"


class MirrorSite(Stored, frozen=True, kw_only=True):
    """What the rbd-mirror daemon of one site reports about its copy of an image."""

    is_local: bool
    """Whether it is the daemon of this cluster."""
    state: MirrorState
    description: str
    is_up: bool
    """Whether the daemon runs."""
    last_update: str | None = None


class Placement(Stored, frozen=True, kw_only=True, tag=True):
    """The placement group of an object, and the OSDs that serve it."""

    name: str
    """Of the object: ``rbd_header.<id>``, or ``rbd_id.<name>`` while the id is not known."""
    group: str
    """``5.0``."""
    acting: tuple[Int64, ...] = ()
    """The OSDs, the primary first; empty if no OSD serves it."""


class ImageView(Stored, frozen=True, kw_only=True):
    """One image of one cluster, observed read-only."""

    spec: ImageSpec
    fsid: str
    presence: ImagePresence | NotObserved
    image_id: str | None = None
    pool_id: Int64 | None = None
    format: Int64 = 2
    header: str | None = None
    """``rbd_header.<id>``, or ``<name>.rbd`` for format 1."""
    size_bytes: Int64 | None = None
    features: tuple[str, ...] = ()
    watchers: tuple[Watcher, ...] | NotObserved = ()
    """Watches that the last read of this observation returned, and those of krbd that only an
    earlier read returned."""
    transient_watchers: tuple[Watcher, ...] = ()
    """Watches of librbd that an earlier read returned, and the last read did not: a short
    read-write open."""
    lockers: tuple[LockHolder, ...] | NotObserved = ()
    metadata: tuple[tuple[str, str], ...] | NotObserved = ()
    """Only the keys of ceph-csi, sorted; they can be stale."""
    mirrored: bool | NotObserved = False
    primary: bool | None = None
    """Whether a mirrored image is primary in this cluster; None if it is not mirrored, or if this
    was not observed."""
    mirror_daemons: tuple[ServiceAddress, ...] | NotObserved = ()
    """Clients of rbd-mirror, of this cluster and of its peers; only for a mirrored image."""
    mirror_sites: tuple[MirrorSite, ...] | NotObserved = NOT_REQUESTED
    """Only for a mirrored image. Empty without a daemon here and a report of a peer: what the
    copies are is then not known (measured with Ceph 18.2 and 20.2)."""
    snapshots: tuple[Int64, ...] | NotObserved = NOT_REQUESTED
    """Snapshots in all of the image's namespaces of snapshots, its trash included."""
    tasks: tuple[str, ...] | NotObserved = NOT_REQUESTED
    """Tasks that the mgr has queued for the image: ``flatten``, ``trash remove`` and others."""
    placement: Placement | NotObserved = NOT_REQUESTED
    """Of the object that leads to the image; only if the OSDs did not answer about it in time."""


class HealthCheck(Stored, frozen=True, kw_only=True):
    """A check of ``ceph health`` that failed and that can make I/O wait."""

    name: str
    """``POOL_FULL``."""
    texts: tuple[str, ...] = ()
    """Its summary and its first details."""


class ClusterView(Stored, frozen=True, kw_only=True):
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
    pools: tuple[tuple[Int64, str], ...] | NotObserved = ()
    """(pool id, pool name); the handles of ceph-csi contain the id."""
    health: tuple[HealthCheck, ...] | NotObserved = NOT_REQUESTED
    image_names: tuple[ImageSpec, ...] = ()
    """Names that are similar to a target that was not found."""


class CephView(Stored, frozen=True, kw_only=True, dict=True):
    """Every configured cluster."""

    clusters: tuple[ClusterView, ...]
