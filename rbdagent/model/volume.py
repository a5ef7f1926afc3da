"""The joined facts: one image, its Kubernetes objects, and every client that holds it."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

from rbdagent.model.ceph import BlocklistEntry, ImageView, LockHolder, ServiceAddress, Watcher
from rbdagent.model.common import ImageIdentity, NotObserved
from rbdagent.model.kubernetes import (
    KubeEvent,
    Node,
    PersistentVolume,
    PersistentVolumeClaim,
    Pod,
    PublishedMapping,
    PublishedNode,
    VolumeAttachment,
)
from rbdagent.model.node import (
    InFlight,
    Mapping,
    PodVolumeDirectory,
    StagingDirectory,
    UnbackedMount,
)
from rbdagent.model.snapshot import Target


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


class Holder(Struct, frozen=True, kw_only=True):
    """One client that has the image mapped or open, with the facts joined to it; no verdict."""

    kind: HolderKind
    node: str | None
    confidence: Confidence
    probable_by: str = ""
    """Why the node is probable, as a part of a sentence; empty if the address is its InternalIP."""
    is_local: bool = False
    """Whether it is on the observed node."""
    mapping: Mapping | None = None
    watcher: Watcher | None = None
    daemon: ServiceAddress | None = None
    """The Ceph daemon, if the client certainly belongs to one."""
    probable_kind: HolderKind | None = None
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
    claimed_by: tuple[str, ...] = ()
    """The nodes whose agents report this client, and the Node with its address, if they are
    several: one client is on one node."""
    sibling_devices: tuple[str, ...] = ()
    """Other mappings of the same client on the node: one blocklist entry blocks all of them."""
    other_image: ImageIdentity | None = None
    """The image that the client holds, if it is not the image to which the name of the volume
    leads: the image was renamed, or deleted and created again, while it was mapped."""
    other_view: ImageView | None = None
    """What Ceph shows of that image; None if it was not queried."""

    @property
    def is_node_by_address(self) -> bool:
        """Whether the node rests on the address of the client alone: it is the Node's InternalIP.

        kubelet lists it, so the client is there unless another cluster uses the same addresses.
        """
        return (
            self.watcher is not None
            and not self.is_local
            and self.confidence is Confidence.PROBABLE
            and not self.probable_by
        )

    @property
    def is_node_probable(self) -> bool:
        """Whether the node rests on an annotation of its Node or on the image's metadata alone.

        Another machine may have the address, so nothing that would be wrong on it may follow.
        """
        return bool(self.probable_by) and self.published_by is None

    def view(self, volume: Volume) -> ImageView | None:
        """Return what Ceph shows of the image that the client holds."""
        return volume.image_view if self.other_image is None else self.other_view


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
