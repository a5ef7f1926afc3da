"""The RBD images of whole pools, what refers to them in Kubernetes, and the verdict on each."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

from rbdagent.model.ceph import ServiceAddress, Watcher
from rbdagent.model.common import Gap, ImageSpec, NotObserved
from rbdagent.model.kubernetes import (
    InTreeRbdSource,
    ObjectRef,
    PersistentVolume,
    PersistentVolumeClaim,
)

# --------------------------------------------------------------------------------------------------
# Ceph
# --------------------------------------------------------------------------------------------------


class TrashSource(StrEnum):
    """Who moved an image to the trash (TrashImageSource, src/cls/rbd/cls_rbd_types.h)."""

    USER = "user"
    MIRRORING = "mirroring"
    MIGRATION = "migration"
    """It is the source of a live migration, whose target has its name."""
    REMOVING = "removing"
    """``rbd rm`` is removing it."""
    USER_PARENT = "user, with its clones"
    """librbd moved it when it was removed while it had clones."""


class TrashEntry(Struct, frozen=True, kw_only=True):
    """An entry of the trash of a pool."""

    name: str
    """The name that the image had, with ``\\xff`` for each byte that is not UTF-8."""
    source: TrashSource | None
    """None if a later Ceph writes another number."""
    since: str | None = None
    until: str | None = None
    """Until then, ``rbd trash purge`` and ``rbd trash rm`` without ``--force`` keep it."""


class PoolRequest(Struct, frozen=True, kw_only=True):
    """A pool that the user named."""

    pool: str
    namespace: str | None = None
    """A RADOS namespace; None for all namespaces of the pool."""

    def __str__(self) -> str:
        return self.pool if self.namespace is None else f"{self.pool}/{self.namespace}"


class ListedImage(Struct, frozen=True, kw_only=True):
    """An image in the directory or the trash of a pool; format 1 is in neither."""

    spec: ImageSpec
    image_id: str
    fsid: str
    cluster: str
    """The name of the Ceph cluster in the configuration."""
    pool_id: int
    trash: TrashEntry | None = None


class ListedPool(Struct, frozen=True, kw_only=True):
    """One RADOS namespace of a pool."""

    cluster: str
    fsid: str
    pool: str
    pool_id: int
    namespace: str = ""
    images: tuple[ListedImage, ...] | NotObserved = ()
    gaps: tuple[Gap, ...] = ()

    def __str__(self) -> str:
        return f"{self.pool}/{self.namespace}" if self.namespace else self.pool

    @property
    def is_complete(self) -> bool:
        """Whether all its images are listed, those in the trash included."""
        return not self.gaps and not isinstance(self.images, NotObserved)


class Listing(Struct, frozen=True, kw_only=True):
    """The images of all requested pools of all clusters."""

    pools: tuple[ListedPool, ...] = ()
    gaps: tuple[Gap, ...] = ()
    """What was not observed, those of the pools included."""
    clusters: tuple[str, ...] = ()
    """The names of the clusters that answered."""
    absent: tuple[PoolRequest, ...] = ()
    """Requested pools that no cluster has; empty unless every cluster answered."""


class JournalKey(Struct, frozen=True, kw_only=True):
    """A volume in ceph-csi's journal, and the pool that its entry is in."""

    pool: ListedPool
    uuid: str


class JournalEntry(Struct, frozen=True, kw_only=True):
    """What ceph-csi's journal contains about an image: ``csi.volume.UUID`` or ``csi.snap.UUID``."""

    object_name: str
    request: str = ""
    """The name that the CSI sidecar gave the volume or snapshot: ``pvc-UID``, ``snapshot-UID``."""
    image_name: str = ""
    image_id: str = ""


class ImageFacts(Struct, frozen=True, kw_only=True):
    """The facts of one image that decide whether it is in use; read-only and bounded."""

    size_bytes: int | NotObserved
    created_at: str | NotObserved | None
    """None in an image that was created before Ceph 13."""
    watchers: tuple[Watcher, ...] | NotObserved
    daemons: tuple[ServiceAddress, ...] | NotObserved
    """Clients of the mgr and of rbd-mirror, which may watch an image that is not in use."""
    parent: str | NotObserved | None
    """The snapshot that it is a clone of: ``POOL/IMAGE@SNAPSHOT``."""
    snapshots: tuple[str, ...] | NotObserved
    """Their names."""
    children: tuple[str, ...] | NotObserved
    """Its clones, those in the trash included."""
    metadata: tuple[tuple[str, str], ...] | NotObserved
    """Only the keys of ceph-csi, sorted."""
    journal: JournalEntry | NotObserved | None
    mirrored: bool | NotObserved
    primary: bool | None = None
    """None unless it is mirrored."""
    migrating: bool = False
    tasks: tuple[str, ...] | NotObserved = ()
    """What the mgr has queued for it: ``trash remove``, ``flatten``."""


# --------------------------------------------------------------------------------------------------
# Kubernetes
# --------------------------------------------------------------------------------------------------


class SnapshotContent(Struct, frozen=True, kw_only=True):
    """A VolumeSnapshotContent."""

    name: str
    driver: str
    handle: str | None = None
    """Of the snapshot; None until the driver has created it."""
    volume_handle: str | None = None
    """``spec.source.volumeHandle``: of the volume of which the driver makes the snapshot."""
    snapshot: ObjectRef | None = None
    """The VolumeSnapshot; its uid is in the name that the driver was given."""


class InlineVolume(Struct, frozen=True, kw_only=True):
    """An RBD volume that a pod names itself, without a PV."""

    pod: ObjectRef
    source: InTreeRbdSource


class References(Struct, frozen=True, kw_only=True):
    """All objects of a Kubernetes cluster that may refer to an RBD image."""

    server: str = ""
    volumes: tuple[PersistentVolume, ...] | NotObserved
    claims: tuple[PersistentVolumeClaim, ...] | NotObserved
    """The image of a claim that is being provisioned exists before its PV."""
    inline: tuple[InlineVolume, ...] | NotObserved
    snapshots: tuple[SnapshotContent, ...] | NotObserved


# --------------------------------------------------------------------------------------------------
# Conclusions
# --------------------------------------------------------------------------------------------------


class ImageVerdict(StrEnum):
    """The verdict on one image of a pool."""

    REFERRED = "Referred"
    """An object of this Kubernetes cluster refers to it."""
    UNCLAIMED = "Unclaimed"
    """ceph-csi or Kubernetes made it, nothing of this cluster refers to it, and nothing that was
    observed uses it."""
    IN_USE = "InUse"
    """A client watches it."""
    SOURCE = "Source"
    """It has clones, or snapshots that ceph-csi did not make for it."""
    TEMPORARY = "Temporary"
    """The temporary image between a volume and its clone."""
    MIRRORED_COPY = "MirroredCopy"
    """rbd-mirror copies it from another cluster."""
    NOT_OF_CEPH_CSI = "NotOfCephCsi"
    """Nothing about it is ceph-csi's: it has another owner."""
    NOT_JUDGED = "NotJudged"
    """A fact that decides was not observed, or two facts contradict each other."""


class Origin(StrEnum):
    """Whose an unclaimed image was, by the cluster name that ceph-csi writes to its metadata."""

    THIS_CLUSTER = "ThisCluster"
    OTHER_CLUSTER = "OtherCluster"
    UNKNOWN = "Unknown"


class JudgedImage(Struct, frozen=True, kw_only=True):
    """One image with its verdict."""

    image: ListedImage
    facts: ImageFacts | NotObserved
    verdict: ImageVerdict
    reason: str
    """One sentence: why."""
    hint: str = ""
    """What makes a missing fact observable."""
    references: tuple[str, ...] = ()
    """The objects that refer to it: ``pv/NAME``, ``volumesnapshotcontent/NAME``."""
    names: str = ""
    """The PV or VolumeSnapshotContent that its metadata or the journal names."""
    origin: Origin | None = None
    """None unless it is unclaimed."""


class ImageReport(Struct, frozen=True, kw_only=True):
    """The verdicts on all images of some pools."""

    observed_at: str
    images: tuple[JudgedImage, ...]
    pools: tuple[ListedPool, ...]
    own_names: tuple[str, ...]
    """The cluster names in the metadata of images that PVs of this cluster refer to."""
    missing: NotObserved | None = None
    """Why no image can be called unclaimed."""
    lost: tuple[str, ...] = ()
    """PVs of RBD images that are in none of the pools: the image may have another name now."""
    gaps: tuple[Gap, ...] = ()

    @property
    def is_complete(self) -> bool:
        """Whether every image has a verdict, and nothing was left out."""
        judged = all(one.verdict is not ImageVerdict.NOT_JUDGED for one in self.images)
        return judged and not self.gaps and self.missing is None
