"""A cluster of any size as one snapshot: healthy, except for a known set of faults.

No part of it is recorded: it is generated for counting, finding and measuring. Each broken volume
has one of the kinds in ``KINDS``, and the code of that kind is reported. The same seed gives the
same cluster. Legitimate but unusual states (``LEGIT``) are there as well, and must not be reported.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import cycle
from random import Random
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from rbdagent.model import (
    BlocklistEntry,
    CephView,
    ClusterView,
    ContainerState,
    CSINode,
    CsiSource,
    DeviceKind,
    DeviceNumber,
    DriverPod,
    EntityAddress,
    ImagePresence,
    ImageSpec,
    ImageView,
    InTreeRbdSource,
    KubeEvent,
    KubeletView,
    KubeView,
    Lease,
    LockHolder,
    Mapping,
    Mount,
    MountNamespace,
    Node,
    NodeView,
    ObjectRef,
    OpenFile,
    OpenKind,
    PersistentVolume,
    PersistentVolumeClaim,
    PluginSocket,
    Pod,
    PodVolumeDirectory,
    ProcessRef,
    PublishedMapping,
    PublishedNode,
    Requirement,
    Snapshot,
    Sources,
    StagingDirectory,
    StorageClass,
    Target,
    TargetKind,
    UnbackedMount,
    Verdict,
    VolumeAttachment,
    VolumeData,
    Watcher,
    Workload,
)
from rbdagent.parse.handle import attachment_name, in_use_name, staging_hash
from tests.support.snapshots import (
    DRIVER,
    FSID,
    LIBRBD_COOKIE,
    LONG_AGO,
    NOW,
    OBSERVED,
    OTHER_FSID,
    snapshot,
)

if TYPE_CHECKING:
    from collections.abc import Callable

JUST_NOW: Final = "2026-11-21T02:59:30Z"
LATELY: Final = "2026-11-21T02:30:00Z"
GIB: Final = 1 << 30
KERNEL_COOKIE: Final = 18446462598732840961
HOST: Final = MountNamespace(inode=1, process=ProcessRef(pid=1, command="/sbin/init"), is_host=True)
RUNS: Final = ContainerState(name="web", state="running")
ENDED: Final = ContainerState(name="web", state="terminated")
ELSEWHERE: Final = "block.example.org"
"""A provisioner that was never installed."""
DOWN: Final = "down.rbd.csi.ceph.com"
"""A provisioner that has stopped."""
NAMESPACES: Final = 50
VOLUMES_A_NODE: Final = 50
HERE: Final = 40
"""The number of volumes that are mapped on the observing node, however large the cluster is."""


@dataclass(slots=True)
class Cell:
    """One volume with its objects; None or () if it has none of a kind."""

    number: int
    node: str
    claim: PersistentVolumeClaim | None
    volume: PersistentVolume | None
    pods: tuple[Pod, ...]
    attachments: tuple[VolumeAttachment, ...]
    events: tuple[KubeEvent, ...] = ()
    view: ImageView | None = None
    """Ceph's view of its image; None: Ceph was not asked."""
    other_view: ImageView | None = None
    """The view of the second cluster."""
    published: tuple[tuple[str, PublishedMapping], ...] = ()
    mapping: Mapping | None = None
    """On the observing node."""
    staging: tuple[StagingDirectory, ...] = ()
    pod_volumes: tuple[PodVolumeDirectory, ...] = ()
    unbacked: tuple[UnbackedMount, ...] = ()
    workloads: tuple[Workload, ...] = ()
    is_used_on: tuple[str, ...] = ()
    """Nodes that list it in addition to those where a pod of it runs."""

    @property
    def space(self) -> str:
        return f"team-{self.number % NAMESPACES}"

    @property
    def handle(self) -> str:
        return f"0001-0003-lab-0000000000000001-{_uuid(self.number)}"

    @property
    def image(self) -> ImageSpec:
        return ImageSpec(pool="k8s", name=f"csi-vol-{_uuid(self.number)}")

    @property
    def image_id(self) -> str:
        return f"1d{self.number:08x}"

    @property
    def pv(self) -> str:
        return f"pvc-{self.number:06}"

    @property
    def device(self) -> str:
        return f"/dev/rbd{self.number}"

    @property
    def the_claim(self) -> PersistentVolumeClaim:
        assert self.claim is not None
        return self.claim

    @property
    def the_volume(self) -> PersistentVolume:
        assert self.volume is not None
        return self.volume

    @property
    def given(self) -> str:
        """Its target for ``diagnose``: its claim, or else its PV."""
        if self.claim is not None:
            return f"pvc/{self.claim.ref}"
        return f"pv/{self.the_volume.name}"

    # States of a volume ---------------------------------------------------------------------------

    def with_claim(self, **changes: Any) -> None:  # noqa: ANN401 - any field
        self.claim = replace(self.the_claim, **changes)

    def with_volume(self, **changes: Any) -> None:  # noqa: ANN401 - any field
        self.volume = replace(self.the_volume, **changes)

    def with_pod(self, **changes: Any) -> None:  # noqa: ANN401 - any field
        self.pods = (replace(self.pods[0], **changes), *self.pods[1:])

    def with_attachment(self, **changes: Any) -> None:  # noqa: ANN401 - any field
        self.attachments = (replace(self.attachments[0], **changes),)

    def unused(self) -> None:
        """Remove its pods and attachments."""
        self.pods, self.attachments = (), ()

    def moves(self, **old: Any) -> None:  # noqa: ANN401 - any field
        """Make its pod wait for another node; the caller sets the state of the old pod."""
        new = _pod(self, node=_next_node(self.node), name="new", phase="Pending")
        gone = old.pop("gone", False)
        self.pods = (new,) if gone else (new, replace(self.pods[0], **old))

    def is_watched(self, *watchers: Watcher, **changes: Any) -> None:  # noqa: ANN401 - any field
        """Set Ceph's view of its image, with these watchers."""
        self.view = ImageView(
            spec=self.image,
            fsid=FSID,
            presence=ImagePresence.PRESENT,
            image_id=self.image_id,
            pool_id=1,
            watchers=watchers,
        )
        self.view = replace(self.view, **changes)

    def is_watched_by_its_node(self) -> None:
        self.is_watched(_watcher(self.node))

    def has_event(self, reason: str, message: str, *, kind: str = "Pod", **changes: Any) -> None:  # noqa: ANN401
        subject = {
            "Pod": lambda: self.pods[0].ref,
            "PersistentVolumeClaim": lambda: self.the_claim.ref,
            "PersistentVolume": lambda: ObjectRef(namespace="", name=self.pv),
        }[kind]()
        made = KubeEvent(
            kind=kind,
            subject=subject,
            type="Warning",
            reason=reason,
            message=message,
            last_seen=JUST_NOW,
        )
        self.events = (*self.events, replace(made, **changes))

    def is_published(self, verdict: Verdict) -> None:
        """Record that the agent of its node has published it."""
        mapping = PublishedMapping(
            device=self.device,
            verdict=verdict,
            fsid=FSID,
            spec=self.image,
            image_id=self.image_id,
            client_id=_client(self.node),
            client_address=_address(self.node),
            read_only=False,
            persistent_volume=self.pv,
            reasons=("it was seen there",),
        )
        self.published = ((self.node, mapping),)

    def is_mapped_here(self, **changes: Any) -> None:  # noqa: ANN401 - any field
        """Map, stage and watch it on the observing node."""
        self.is_watched_by_its_node()
        self.staging = (
            StagingDirectory(
                path=self._staging_path,
                driver=DRIVER,
                volume_handle=self.handle,
                handle_hash=staging_hash(self.handle),
                volume_data=VolumeData(driver=DRIVER, volume_handle=self.handle),
            ),
        )
        made = Mapping(
            kind=DeviceKind.KRBD,
            device_id=self.number,
            device=self.device,
            number=DeviceNumber(major=252, minor=self.number),
            spec=self.image,
            image_id=self.image_id,
            pool_id=1,
            fsid=FSID,
            client_id=_client(self.node),
            client_address=_address(self.node),
            hung_requests=(),
            mounts=(self.mount(self._staging_path),),
        )
        self.mapping = replace(made, **changes)

    def is_left_here(self, **changes: Any) -> None:  # noqa: ANN401 - any field
        """Leave it mapped on the observing node, without a record in kubelet."""
        self.unused()
        self.is_mapped_here(**{"mounts": (), **changes})

    @property
    def _staging_path(self) -> str:
        plugin = "/var/lib/kubelet/plugins/kubernetes.io/csi"
        return f"{plugin}/{DRIVER}/{staging_hash(self.handle)}/globalmount/{self.handle}"

    def pod_path(self, uid: str) -> str:
        return f"/var/lib/kubelet/pods/{uid}/volumes/kubernetes.io~csi/{self.pv}/mount"

    def mount(self, path: str) -> Mount:
        number = DeviceNumber(major=252, minor=self.number)
        return Mount(path=path, device=number, fs_type="ext4", namespace=HOST)

    def opener(self) -> OpenFile:
        return OpenFile(
            process=ProcessRef(pid=5000 + self.number, command="sleep"),
            kind=OpenKind.CWD,
            path="/",
            on_device=False,
            device=DeviceNumber(major=252, minor=self.number),
        )


def _uuid(number: int) -> str:
    return f"00000000-0000-0000-0000-{number:012x}"


def _ip(node: str) -> str:
    number = _number(node)
    return f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}"


def _number(node: str) -> int:
    return int(node.rpartition("-")[2])


def _next_node(node: str) -> str:
    """Return the other node of the pair, to which a pod moves."""
    return f"node-{_number(node) ^ 1:05}"


def _client(node: str) -> int:
    return 4000 + _number(node)


def _address(node: str) -> EntityAddress:
    return EntityAddress(ip=_ip(node), nonce=1000 + _number(node))


def _watcher(node: str, **changes: Any) -> Watcher:  # noqa: ANN401 - any field
    made = Watcher(address=_address(node), client=_client(node), cookie=KERNEL_COOKIE)
    return replace(made, **changes)


def _pod(cell: Cell, *, node: str | None, name: str, phase: str) -> Pod:
    return Pod(
        ref=ObjectRef(
            namespace=cell.space, name=f"{name}-{cell.number}", uid=f"{name}-{cell.number}-uid"
        ),
        node_name=node,
        phase=phase,
        ready=phase == "Running",
        claims=(f"data-{cell.number}",),
        owners=(f"ReplicaSet/{name}-{cell.number}",),
        containers=(RUNS,) if phase == "Running" else (),
        created_at=LATELY,
        placed_at=None if node is None else LATELY,
    )


def _attachment(cell: Cell, node: str) -> VolumeAttachment:
    return VolumeAttachment(
        name=attachment_name(cell.handle, DRIVER, node),
        attacher=DRIVER,
        node_name=node,
        persistent_volume=cell.pv,
        attached=True,
        created_at=LONG_AGO,
    )


def _cell(number: int, node: str) -> Cell:
    """Create a healthy volume: a pod runs with it."""
    cell = Cell(number=number, node=node, claim=None, volume=None, pods=(), attachments=())
    ref = ObjectRef(namespace=cell.space, name=f"data-{number}", uid=f"claim-{number}")
    cell.claim = PersistentVolumeClaim(
        ref=ref,
        phase="Bound",
        volume_name=cell.pv,
        storage_class="rbd",
        access_modes=("ReadWriteOnce",),
        created_at=LONG_AGO,
        requested_bytes=GIB,
        bind_completed=True,
    )
    cell.volume = PersistentVolume(
        name=cell.pv,
        uid=f"pv-{number}",
        phase="Bound",
        source=CsiSource(
            driver=DRIVER,
            volume_handle=cell.handle,
            attributes=(
                ("clusterID", "lab"),
                ("imageName", cell.image.name),
                ("pool", cell.image.pool),
            ),
        ),
        claim=ref,
        access_modes=("ReadWriteOnce",),
        reclaim_policy="Delete",
        storage_class="rbd",
        provisioner=DRIVER,
        capacity_bytes=GIB,
    )
    cell.pods = (_pod(cell, node=node, name="web", phase="Running"),)
    cell.attachments = (_attachment(cell, node),)
    return cell


# --------------------------------------------------------------------------------------------------
# What is broken
# --------------------------------------------------------------------------------------------------


def _orphaned_elsewhere(cell: Cell) -> None:
    cell.unused()
    cell.is_watched_by_its_node()
    cell.is_published(Verdict.ORPHANED)


def _pinned_elsewhere(cell: Cell) -> None:
    _orphaned_elsewhere(cell)
    cell.is_published(Verdict.PINNED)


def _conflict(cell: Cell) -> None:
    other = _next_node(cell.node)
    cell.pods = (*cell.pods, _pod(cell, node=other, name="more", phase="Running"))
    cell.is_watched(_watcher(cell.node), _watcher(other))


def _waiting_for_user(cell: Cell) -> None:
    cell.moves()
    cell.is_watched_by_its_node()


def _foreign(cell: Cell) -> None:
    cell.unused()
    stranger = EntityAddress(ip="192.0.2.7", nonce=cell.number)
    cell.is_watched(Watcher(address=stranger, client=77, cookie=LIBRBD_COOKIE))
    cell.pods = (_pod(cell, node=None, name="new", phase="Pending"),)


def _hidden_holder(cell: Cell) -> None:
    """A kernel client on another node, without a pod there and without an agent that reports it."""
    cell.unused()
    cell.is_watched(_watcher(_next_node(cell.node)))


def _hangs(cell: Cell) -> None:
    cell.moves(gone=True)
    cell.attachments = (_attachment(cell, str(cell.pods[0].node_name)),)
    cell.has_event(
        "FailedMount",
        f"rpc error: an operation with the given Volume ID {cell.handle} already exists",
    )
    cell.is_watched()


def _image_gone(cell: Cell) -> None:
    _moved(cell)
    cell.is_watched(presence=ImagePresence.GONE, image_id=None)


def _image_in_trash(cell: Cell) -> None:
    _image_gone(cell)
    cell.is_watched(presence=ImagePresence.TRASH)


def _old_lock(cell: Cell) -> None:
    _moved(cell)
    cell.is_watched(
        lockers=(LockHolder(client=12, address=None, lock_id="kubelet_lock_magic_node-00002"),)
    )


def _ambiguous(cell: Cell) -> None:
    cell.unused()
    cell.with_volume(source=replace(cell.the_volume.source, attributes=_ATTRIBUTES(cell)))
    cell.is_watched()
    assert cell.view is not None
    cell.other_view = replace(cell.view, fsid=OTHER_FSID, image_id="other")


def _ATTRIBUTES(cell: Cell) -> tuple[tuple[str, str], ...]:  # noqa: N802 - as a constant of a cell
    return (("imageName", cell.image.name), ("pool", cell.image.pool))


def _map_refused(cell: Cell) -> None:
    _hangs(cell)
    cell.events = ()
    cell.has_event("FailedMount", "rbd: map failed: (108) Cannot send after transport endpoint")


def _multi_attach(cell: Cell) -> None:
    cell.moves(gone=True)
    cell.has_event(
        "FailedAttachVolume",
        f'Multi-Attach error for volume "{cell.pv}" Volume is already exclusively attached',
    )
    cell.is_watched_by_its_node()


def _still_used(cell: Cell) -> None:
    cell.moves(gone=True)
    cell.attachments = (_attachment(cell, str(cell.pods[0].node_name)),)
    cell.has_event("FailedMount", f"rbd image {cell.image} is still being used")
    cell.is_watched_by_its_node()


def _misbound(cell: Cell) -> None:
    cell.unused()
    cell.with_claim(phase="Lost")
    cell.with_volume(phase="Released", claim=replace(cell.the_claim.ref, uid="an-earlier-one"))


def _lost_its_volume(cell: Cell) -> None:
    cell.unused()
    cell.with_claim(phase="Lost")
    cell.volume = None


def _released(cell: Cell) -> None:
    cell.unused()
    cell.claim = None
    cell.with_volume(phase="Released", phase_since=LONG_AGO)
    cell.has_event("VolumeFailedDelete", "rbd image is still being used", kind="PersistentVolume")
    cell.is_watched(_watcher(_next_node(cell.node)))


def _released_though_claimed(cell: Cell) -> None:
    cell.unused()
    cell.with_volume(phase="Released")


def _on_paper(cell: Cell) -> None:
    cell.moves(gone=True)
    cell.is_watched()


def _detach_fails(cell: Cell) -> None:
    cell.pods = ()
    cell.with_attachment(deleting_since=LATELY, detach_error="failed to load secret")
    cell.is_watched()


def _attached_to_nowhere(cell: Cell) -> None:
    cell.pods = ()
    cell.attachments = (_attachment(cell, "node-99999"),)
    cell.is_watched()


def _attach_fails(cell: Cell) -> None:
    cell.with_pod(phase="Pending", ready=False)
    cell.with_attachment(attached=False, attach_error="CSINode does not contain driver")
    cell.is_watched()


def _nameless(cell: Cell) -> None:
    cell.unused()
    cell.with_volume(source=CsiSource(driver=DRIVER, volume_handle=f"by-hand-{cell.number}"))


def _runs_without_watch(cell: Cell) -> None:
    cell.has_event("FailedMount", "something went wrong a while ago")
    cell.is_watched()


def _unbound(cell: Cell, **changes: Any) -> None:  # noqa: ANN401 - any field
    """Its claim was never bound; the provisioner was asked."""
    cell.unused()
    cell.volume = None
    fresh = {
        "phase": "Pending",
        "volume_name": None,
        "bind_completed": False,
        "provisioner": DRIVER,
    }
    cell.with_claim(**{**fresh, **changes})


def _refused(message: str, **changes: Any) -> Callable[[Cell], None]:  # noqa: ANN401 - any field
    """Return the function that makes its provisioner fail with these words."""

    def become(cell: Cell) -> None:
        _unbound(cell, **changes)
        cell.has_event(
            "ProvisioningFailed",
            f'failed to provision volume with StorageClass "rbd": {message}',
            kind="PersistentVolumeClaim",
            reporter=f"{DRIVER}_provisioner-0_1",
        )

    return become


def _no_class(cell: Cell) -> None:
    _unbound(cell, storage_class="none-such", provisioner=None)


def _nothing_fits(cell: Cell) -> None:
    size = (cell.number % 7 + 2) * GIB
    _unbound(cell, storage_class="manual", requested_bytes=size, provisioner=None)


def _not_scheduled(cell: Cell) -> None:
    _unbound(cell, storage_class="first-pod", provisioner=None)
    pod = _pod(cell, node=None, name="new", phase="Pending")
    cell.pods = (replace(pod, unschedulable="0/200 nodes are available: 200 Insufficient cpu."),)


def _past_the_scheduler(cell: Cell) -> None:
    _unbound(cell, storage_class="first-pod", provisioner=None)
    cell.pods = (_pod(cell, node=cell.node, name="new", phase="Pending"),)


def _selected_node_gone(cell: Cell) -> None:
    _unbound(cell, storage_class="first-pod", selected_node="node-99999")


def _silent(cell: Cell) -> None:
    _unbound(cell)


def _plugin_removed(cell: Cell) -> None:
    _unbound(cell, storage_class="in-tree", provisioner="kubernetes.io/rbd")


def _never_installed(cell: Cell) -> None:
    _unbound(cell, storage_class="elsewhere", provisioner=ELSEWHERE)


def _provisioner_down(cell: Cell) -> None:
    _unbound(cell, storage_class="down", provisioner=DOWN)


def _not_handed_over(cell: Cell) -> None:
    _unbound(cell, provisioner=None)


def _names_nothing(cell: Cell) -> None:
    _unbound(cell, volume_name=f"pv-of-old-{cell.number}", provisioner=None)


def _names(cell: Cell, **changes: Any) -> None:  # noqa: ANN401 - any field
    """Its claim names its PV, which is not bound; no other claim has that class."""
    cell.unused()
    cell.with_claim(phase="Pending", bind_completed=False, storage_class="by-name")
    cell.with_volume(phase="Available", claim=None, storage_class="by-name", **changes)


def _names_what_does_not_fit(cell: Cell) -> None:
    _names(cell, access_modes=("ReadOnlyMany",))


def _names_what_fits(cell: Cell) -> None:
    _names(cell)


def _names_an_older_ones(cell: Cell) -> None:
    _names(cell)
    older = replace(cell.the_claim.ref, uid="an-older-one")
    cell.with_volume(phase="Released", claim=older, reclaim_policy="Retain")


def _kept_and_too_small(cell: Cell) -> None:
    cell.unused()
    cell.with_volume(
        phase="Available", claim=replace(cell.the_claim.ref, uid=None), capacity_bytes=1
    )
    cell.with_claim(phase="Pending", volume_name=None, bind_completed=False, provisioner=DRIVER)


def _lost_its_reference(cell: Cell) -> None:
    cell.unused()
    cell.with_claim(phase="Lost", volume_name=None)
    cell.volume = None


def _gone(cell: Cell, **changes: Any) -> None:  # noqa: ANN401 - any field
    """Its claim is gone, and its PV is to be deleted."""
    cell.unused()
    cell.claim = None
    cell.with_volume(**{"phase": "Released", "phase_since": LONG_AGO, **changes})
    cell.is_watched()


def _nobody_deletes(cell: Cell) -> None:
    _gone(cell)


def _deleting_fails(cell: Cell) -> None:
    _gone(cell)
    cell.has_event(
        "VolumeFailedDelete",
        'error getting secret s in namespace n: secrets "s" not found',
        kind="PersistentVolume",
        reporter=f"{DRIVER}_provisioner-0_1",
    )


def _reclaim_failed(cell: Cell) -> None:
    source = InTreeRbdSource(spec=cell.image)
    _gone(cell, phase="Failed", reason="no volume plugin matched", source=source)


def _claim_left_to_finalizer(*finalizers: str) -> Callable[[Cell], None]:
    def become(cell: Cell) -> None:
        cell.unused()
        cell.with_claim(deleting_since=LONG_AGO, finalizers=finalizers)
        cell.is_watched()

    return become


def _claim_protected(cell: Cell) -> None:
    cell.attachments = ()
    cell.with_claim(deleting_since=LONG_AGO, finalizers=("kubernetes.io/pvc-protection",))
    cell.with_pod(phase="Succeeded", ready=False)
    cell.is_watched()


def _volume_protected(cell: Cell) -> None:
    cell.with_volume(deleting_since=LONG_AGO, finalizers=("kubernetes.io/pv-protection",))
    cell.is_watched_by_its_node()


def _pod_held(cell: Cell) -> None:
    cell.attachments = ()
    cell.with_pod(
        phase="Succeeded",
        ready=False,
        deleting_since=LONG_AGO,
        finalizers=("example.org/hold",),
        containers=(ENDED,),
    )
    cell.is_watched()


# Pods, attachments and mounts ---------------------------------------------------------------------


def _claim_never_made(cell: Cell) -> None:
    """Its pod names a second claim that does not exist."""
    cell.attachments = ()
    pod = _pod(cell, node=None, name="new", phase="Pending")
    missing = f"never-made-{cell.number}"
    cell.pods = (
        replace(
            pod,
            claims=(*pod.claims, missing),
            unschedulable=f'persistentvolumeclaim "{missing}" not found',
        ),
    )
    cell.is_watched()


def _gets_no_node(why: str, **of_volume: Any) -> Callable[[Cell], None]:  # noqa: ANN401 - any field
    """Return the function that makes the scheduler refuse its pod with these words."""

    def become(cell: Cell) -> None:
        cell.attachments = ()
        pod = _pod(cell, node=None, name="new", phase="Pending")
        claim = f"{cell.space}/data-{cell.number}"
        cell.pods = (replace(pod, unschedulable=why.format(claim=claim, pod=pod.ref)),)
        cell.with_volume(**of_volume)
        cell.is_watched()

    return become


def _used_once(cell: Cell) -> None:
    """Only one pod may use it, and one pod uses it; another pod waits for a node."""
    cell.with_claim(access_modes=("ReadWriteOncePod",))
    cell.with_volume(access_modes=("ReadWriteOncePod",))
    cell.pods = (_pod(cell, node=None, name="new", phase="Pending"), *cell.pods)
    cell.is_watched_by_its_node()


def _of_a_driver_that_is_not_there(cell: Cell) -> None:
    cell.with_volume(source=replace(cell.the_volume.source, driver="other.csi.example.org"))
    cell.moves(gone=True)
    cell.attachments = ()
    cell.is_watched()


def _written_by_two_clusters(cell: Cell) -> None:
    stranger = EntityAddress(ip="192.0.2.7", nonce=cell.number)
    outside = Watcher(address=stranger, client=77, cookie=KERNEL_COOKIE)
    cell.is_watched(_watcher(cell.node), outside)


def _moved(cell: Cell) -> None:
    """Its pod waits on another node, to which it is attached; no node has it any more."""
    cell.moves(gone=True)
    cell.attachments = (_attachment(cell, str(cell.pods[0].node_name)),)
    cell.is_watched()


def _attach_not_begun(cell: Cell) -> None:
    _moved(cell)
    cell.attachments = ()


def _attach_not_picked_up(cell: Cell) -> None:
    _moved(cell)
    cell.with_attachment(attached=False, created_at=LATELY)


def _detach_not_picked_up(cell: Cell) -> None:
    cell.moves(gone=True)
    cell.with_attachment(deleting_since=LATELY, finalizers=("external-attacher/rbd-csi-ceph-com",))
    cell.is_watched_by_its_node()


def _attached_idly(cell: Cell) -> None:
    cell.moves(gone=True)
    cell.is_watched_by_its_node()


def _attached_to_what_is_gone(cell: Cell) -> None:
    """Its VolumeAttachment names its former PV, which no longer exists."""
    cell.pods = ()
    cell.with_attachment(persistent_volume=f"{cell.pv}-of-old")
    cell.is_watched()


def _attached_twice(cell: Cell) -> None:
    cell.moves(gone=True)
    cell.attachments = (
        replace(cell.attachments[0], deleting_since=LATELY, detach_error="no secret"),
        _attachment(cell, _next_node(cell.node)),
    )
    cell.is_watched_by_its_node()


def _not_taken(cell: Cell) -> None:
    _moved(cell)


def _rolling_update(cell: Cell) -> None:
    """A Deployment's new pod waits for the volume, the old pod waits until the new one is ready."""
    cell.moves()
    name = f"web-{cell.number}"
    old, new = f"ReplicaSet/{name}-a", f"ReplicaSet/{name}-b"
    cell.pods = tuple(
        replace(pod, owners=(owner,)) for pod, owner in zip(cell.pods, (new, old), strict=True)
    )
    ref = ObjectRef(namespace=cell.space, name=name)
    sets = (
        Workload(
            kind="ReplicaSet",
            ref=replace(ref, name=f"{name}-{suffix}"),
            owners=(f"Deployment/{name}",),
        )
        for suffix in ("a", "b")
    )
    deployment = Workload(
        kind="Deployment",
        ref=ref,
        strategy="RollingUpdate",
        max_surge="25%",
        max_unavailable="25%",
    )
    cell.workloads = (*sets, deployment)
    cell.is_watched_by_its_node()


def _replicas(cell: Cell) -> None:
    cell.moves()
    owner = f"StatefulSet/web-{cell.number}"
    cell.pods = tuple(replace(pod, owners=(owner,)) for pod in cell.pods)
    cell.is_watched_by_its_node()


def _does_not_end(cell: Cell) -> None:
    cell.moves(deleting_since=LATELY, containers=(RUNS,))
    cell.is_watched_by_its_node()


def _unmount_fails(cell: Cell) -> None:
    cell.moves(deleting_since=LATELY, phase="Failed", containers=(ENDED,))
    cell.is_used_on = (cell.node,)
    cell.is_watched_by_its_node()


def _from_outside(cell: Cell) -> None:
    """Another cluster made it, and has it mapped."""
    cell.unused()
    stranger = EntityAddress(ip="192.0.2.7", nonce=cell.number)
    cell.is_watched(
        Watcher(address=stranger, client=77, cookie=KERNEL_COOKIE),
        metadata=(
            ("csi.ceph.com/cluster/name", "east"),
            ("csi.storage.k8s.io/pv/name", "pvc-of-east"),
        ),
    )


def _fails_to_mount(words: str) -> Callable[[Cell], None]:
    """Return the function that makes kubelet report these words."""

    def become(cell: Cell) -> None:
        _moved(cell)
        message = words.format(pv=cell.pv, image=cell.image, handle=cell.handle)
        cell.has_event("FailedMount", message, reporter="kubelet")

    return become


def _of_a_plugin_of_old(cell: Cell) -> None:
    """Its PV needs Kubernetes' own plugin, which exists only before 1.31; no driver attaches it."""
    fails = 'failed to get Plugin from volumeSpec for volume "{pv}" err=no volume plugin matched'
    _fails_to_mount(fails)(cell)
    cell.with_volume(source=InTreeRbdSource(spec=cell.image))
    cell.attachments = ()


def _stage(words: str) -> Callable[[Cell], None]:
    return _fails_to_mount(
        f'MountVolume.MountDevice failed for volume "{{pv}}" : rpc error: code = Internal desc = '
        f"{words}"
    )


def _map(number: int, words: str) -> Callable[[Cell], None]:
    return _stage(
        f"rbd: map failed with error an error (exit status {number}) occurred while running rbd "
        f"args: [], rbd error output: rbd: sysfs write failed\nrbd: map failed: ({number}) {words}"
    )


_OF_VOLUMES: Final = "Unable to attach or mount volumes: failed to process volumes=[data]: "

KINDS: Final[dict[str, tuple[str, Callable[[Cell], None]]]] = {
    "an orphan, reported by its agent": ("RBD101", _orphaned_elsewhere),
    "a pin, reported by its agent": ("RBD102", _pinned_elsewhere),
    "two nodes write": ("RBD106", _conflict),
    "a rolling update": ("RBD111", _rolling_update),
    "another pod has it": ("RBD112", _waiting_for_user),
    "a foreign client has it": ("RBD115", _foreign),
    "a node without an agent has it": ("RBD119", _hidden_holder),
    "a step hangs": ("RBD203", _hangs),
    "the image is gone": ("RBD301", _image_gone),
    "the image is in the trash": ("RBD302", _image_in_trash),
    "an old kubelet's lock": ("RBD303", _old_lock),
    "two clusters have it": ("RBD307", _ambiguous),
    "a map is refused": ("RBD308", _map_refused),
    "Multi-Attach": ("RBD401", _multi_attach),
    "still being used": ("RBD402", _still_used),
    "misbound": ("RBD404", _misbound),
    "released, and claimed": ("RBD406", _released_though_claimed),
    "a stale attachment": ("RBD408", _on_paper),
    "its detach fails": ("RBD409", _detach_fails),
    "attached to a node that is gone": ("RBD410", _attached_to_nowhere),
    "its attach fails": ("RBD413", _attach_fails),
    "its image has no name": ("RBD414", _nameless),
    "its pod runs without a watch": ("RBD416", _runs_without_watch),
    "no such class": ("RBD601", _no_class),
    "no PV fits": ("RBD602", _nothing_fits),
    "its first pod has no node": ("RBD604", _not_scheduled),
    "the provisioner does not answer": ("RBD606", _silent),
    "the provisioner fails": (
        "RBD607",
        _refused("rpc error: code = NotFound desc = pool not found"),
    ),
    "the provisioner is too old": ("RBD608", _refused("selfLink was empty, can't make reference")),
    "it names a PV that does not exist": ("RBD609", _names_nothing),
    "it names a PV that does not fit": ("RBD610", _names_what_does_not_fit),
    "its reclaiming failed": ("RBD612", _reclaim_failed),
    "its claim waits for a pod that has ended": ("RBD613", _claim_protected),
    "it waits for its claim": ("RBD614", _volume_protected),
    "its class's plugin was removed": ("RBD616", _plugin_removed),
    "its provisioner was never installed": ("RBD617", _never_installed),
    "its provisioner does not run": ("RBD618", _provisioner_down),
    "its provisioning hangs": (
        "RBD619",
        _refused("rpc error: code = DeadlineExceeded desc = context deadline exceeded"),
    ),
    "it selects, and its class provisions": (
        "RBD620",
        _refused(
            "claim Selector is not supported",
            selector=(Requirement(key="disk", operator="In", values=("ssd",)),),
        ),
    ),
    "a file system for many writers": (
        "RBD621",
        _refused(
            "rpc error: code = InvalidArgument desc = multi node access modes are only supported "
            "on rbd `block` type volumes",
            access_modes=("ReadWriteMany",),
        ),
    ),
    "the node that was selected is gone": ("RBD622", _selected_node_gone),
    "its pod went past the scheduler": ("RBD623", _past_the_scheduler),
    "it names an older claim's PV": ("RBD624", _names_an_older_ones),
    "a PV is kept for it, and too small": ("RBD625", _kept_and_too_small),
    "it names a PV that fits": ("RBD626", _names_what_fits),
    "the provisioner was not asked": ("RBD627", _not_handed_over),
    "it has lost its PV's name": ("RBD630", _lost_its_reference),
    "its PV is gone": ("RBD631", _lost_its_volume),
    "released, and watched": ("RBD641", _released),
    "its deletion fails": ("RBD642", _deleting_fails),
    "no controller deletes it": ("RBD643", _nobody_deletes),
    "a clone of it is being made": (
        "RBD650",
        _claim_left_to_finalizer("provisioner.storage.kubernetes.io/cloning-protection"),
    ),
    "another program's finalizer holds it": (
        "RBD652",
        _claim_left_to_finalizer("backup.example.org/hold"),
    ),
    "a finalizer is left": ("RBD653", _claim_left_to_finalizer("kubernetes.io/pvc-protection")),
    "a finalizer holds its pod": ("RBD654", _pod_held),
    "its pod names a claim that was never made": ("RBD701", _claim_never_made),
    "its nodes do not exist": (
        "RBD702",
        _gets_no_node(
            "0/200 nodes are available: 200 node(s) didn't match PersistentVolume's node affinity.",
            node_affinity=((Requirement(key="zone", operator="In", values=("nowhere",)),),),
        ),
    ),
    "nodes have reached their volume limit": (
        "RBD703",
        _gets_no_node("0/200 nodes are available: 200 node(s) exceed max volume count."),
    ),
    "only one pod may use it, and two want it": ("RBD704", _used_once),
    "its name is that of an ephemeral volume": (
        "RBD705",
        _gets_no_node("PVC {claim} was not created for pod {pod} (pod is not owner)"),
    ),
    "its attach does not begin": ("RBD711", _attach_not_begun),
    "the attacher does not answer": ("RBD712", _attach_not_picked_up),
    "the attacher does not detach": ("RBD713", _detach_not_picked_up),
    "an unused attachment": ("RBD715", _attached_idly),
    "its attachment names a PV that is gone": ("RBD716", _attached_to_what_is_gone),
    "it is attached twice": ("RBD717", _attached_twice),
    "kubelet does not pick it up": ("RBD718", _not_taken),
    "two replicas want it": ("RBD719", _replicas),
    "its pod does not end": ("RBD722", _does_not_end),
    "its unmount fails": ("RBD724", _unmount_fails),
    "its driver is installed nowhere": ("RBD732", _of_a_driver_that_is_not_there),
    "the driver does not listen": (
        "RBD731",
        _stage(
            'connection error: desc = "transport: Error while dialing: dial unix '
            '/var/lib/kubelet/plugins/rbd/csi.sock: connect: connection refused"'
        ),
    ),
    "no such secret": (
        "RBD733",
        _fails_to_mount(
            'MountVolume.MountDevice failed for volume "{pv}" : fetching NodeStageSecretRef n/s '
            "failed: kubernetes.io/csi: failed to find the secret s in the namespace n with error: "
            'secrets "s" not found'
        ),
    ),
    "no such cluster": ("RBD734", _stage('missing configuration for cluster ID "lab"')),
    "no monitor": ("RBD735", _map(110, "Connection timed out")),
    "a wrong key": ("RBD736", _map(1, "Operation not permitted")),
    "no such pool": ("RBD737", _stage("error generating volume {handle}: pool not found")),
    "no such image": ("RBD738", _map(2, "No such file or directory")),
    "no kernel module": (
        "RBD739",
        _stage("failed to load rbd kernel module: modprobe: FATAL: Module rbd not found"),
    ),
    "features that the kernel lacks": ("RBD740", _map(6, "No such device or address")),
    "options that are refused": ("RBD741", _map(22, "Invalid argument")),
    # The locks of the image show what Ceph refuses (RBD742): an event does not.
    "a user without a right in Ceph": ("RBD736", _map(13, "Permission denied")),
    "a demoted image": ("RBD743", _stage("cannot map image {image} it is not primary")),
    "a map that fails": ("RBD744", _map(5, "Input/output error")),
    "no passphrase": ("RBD746", _stage("missing encryption passphrase in secrets")),
    "a key that the kernel cannot use": (
        "RBD747",
        _stage(
            "rbd: map failed with error an error (exit status 22) occurred while running rbd args: "
            "[], rbd error output: rbd: failed to add secret 'client.csi-rbd-node' to kernel\n"
            "rbd: map failed: (22) Invalid argument"
        ),
    ),
    "monitors without an address for the ms_mode": (
        "RBD748",
        _stage(
            "rbd: map failed with error an error (exit status 2) occurred while running rbd args: "
            "[], rbd error output: rbd: failed to get mon address (possible ms_mode mismatch)\n"
            "rbd: map failed: (2) No such file or directory"
        ),
    ),
    "mkfs fails": ("RBD751", _stage("exit status 1")),
    "a damaged file system": (
        "RBD752",
        _stage("'fsck' found errors on device /dev/rbd0 but could not correct them: x"),
    ),
    "another file system": (
        "RBD753",
        _stage('failed to mount the volume as "ext4", it already contains xfs. Mount error: x'),
    ),
    "an empty image, read-only": ("RBD754", _stage("cannot mount unformatted disk /dev/rbd0")),
    "a file system for many nodes": (
        "RBD756",
        _stage("multi node access modes are only supported on rbd `block` type volumes"),
    ),
    "a block volume as a directory": (
        "RBD757",
        _fails_to_mount(
            f"{_OF_VOLUMES}volume data has volumeMode Block, but is specified in volumeMounts"
        ),
    ),
    "files whose owner cannot change": (
        "RBD758",
        _fails_to_mount('MountVolume.SetUp failed for volume "{pv}" : applyFSGroup failed: chown'),
    ),
    "another SELinux label": (
        "RBD759",
        _fails_to_mount(
            'MountVolume.SetUp failed for volume "{pv}" : conflicting SELinux labels of volume'
        ),
    ),
    "a plugin that kubelet no longer has": ("RBD760", _of_a_plugin_of_old),
    "a file system that does not grow": (
        "RBD761",
        _fails_to_mount('NodeExpandVolume.NodeExpandVolume failed for volume "{pv}" : x'),
    ),
    "an unknown error": ("RBD762", _stage("the moon is in the wrong house")),
    "another cluster has it": ("RBD771", _from_outside),
    "two clusters write": ("RBD774", _written_by_two_clusters),
}
"""The name of a fault, its code, and the function that applies it to a healthy volume."""


def _orphaned_here(cell: Cell) -> None:
    cell.is_left_here()


def _pinned_here(cell: Cell) -> None:
    cell.is_left_here(openers=(cell.opener(),))


def _unwatched_here(cell: Cell) -> None:
    cell.is_left_here(watch=False)
    cell.is_watched()


def _not_backed_here(cell: Cell) -> None:
    uid = str(cell.pods[0].ref.uid)
    process = ProcessRef(pid=7, command="db", pod_uid=uid)
    cell.is_watched()
    cell.unbacked = (
        UnbackedMount(
            pod_uid=uid,
            persistent_volume=cell.pv,
            path="/data",
            source="/dev/vda1",
            process=process,
        ),
    )


def _lost_pod_here(cell: Cell) -> None:
    cell.is_left_here(mounts=(cell.mount(cell.pod_path("absent")),))


def _staging_left_here(cell: Cell) -> None:
    cell.is_mapped_here()
    cell.unused()


def _no_device_node_here(cell: Cell) -> None:
    cell.is_mapped_here(device_node_present=False)


def _directory_left_here(cell: Cell) -> None:
    cell.unused()
    cell.is_watched()
    cell.pod_volumes = (
        PodVolumeDirectory(
            path=cell.pod_path("absent"),
            pod_uid="absent",
            persistent_volume=cell.pv,
            plugin="kubernetes.io~csi",
        ),
    )


def _no_volume_data_here(cell: Cell) -> None:
    cell.is_mapped_here()
    cell.staging = tuple(replace(directory, volume_data=None) for directory in cell.staging)


def _former_lock_here(cell: Cell) -> None:
    cell.is_mapped_here()
    former = replace(_address(cell.node), nonce=1)
    cell.is_watched(
        _watcher(cell.node), lockers=(LockHolder(client=99, address=former, lock_id="auto 184464"),)
    )


def _read_only_here(cell: Cell) -> None:
    path = cell.pod_path(str(cell.pods[0].ref.uid))
    cell.is_mapped_here(mounts=(replace(cell.mount(path), read_only=True),))


KINDS_HERE: Final[dict[str, tuple[str, Callable[[Cell], None]]]] = {
    "an orphan": ("RBD101", _orphaned_here),
    "a pin": ("RBD102", _pinned_here),
    "a mapping without its watch": ("RBD105", _unwatched_here),
    "a pod that writes to the node's disk": ("RBD108", _not_backed_here),
    "a pod without its API object": ("RBD109", _lost_pod_here),
    "a leftover staging mount": ("RBD110", _staging_left_here),
    "a device without its node": ("RBD204", _no_device_node_here),
    "a leftover pod directory": ("RBD205", _directory_left_here),
    "a staging directory without vol_data.json": ("RBD206", _no_volume_data_here),
    "a lock of a former client": ("RBD304", _former_lock_here),
    "a file system that turned read-only": ("RBD755", _read_only_here),
}
"""The same on the observing node; one of each, however large the cluster is."""


@dataclass(slots=True, frozen=True)
class SickNode:
    """An unhealthy node: all volumes on it are affected."""

    code: str
    changes: dict[str, Any] = field(default_factory=dict)
    drivers: tuple[str, ...] = (DRIVER,)
    is_blocklisted: bool = False
    moves: bool = False
    of_pod: dict[str, Any] = field(default_factory=dict)


SICK: Final[dict[str, SickNode]] = {
    "a client on the blocklist": SickNode("RBD103", is_blocklisted=True),
    "a node that came back": SickNode("RBD107", {"out_of_service": True}, moves=True),
    "a node that is down": SickNode("RBD113", {"ready": None, "ready_changed_at": LATELY}),
    "a node without the driver": SickNode("RBD201", drivers=()),
    "a node that is down, with Terminating pods": SickNode(
        "RBD725", {"ready": None, "ready_changed_at": LATELY}, of_pod={"deleting_since": LATELY}
    ),
    "a node that runs, with the out-of-service taint": SickNode("RBD726", {"out_of_service": True}),
}


# --------------------------------------------------------------------------------------------------
# Legitimate, but unusual
# --------------------------------------------------------------------------------------------------


def _idle(cell: Cell) -> None:
    """A StatefulSet that was scaled down keeps its claims."""
    cell.unused()


def _waits_for_first_pod(cell: Cell) -> None:
    _unbound(cell, storage_class="first-pod", provisioner=None)


def _kept_for_a_claim_to_come(cell: Cell) -> None:
    cell.unused()
    cell.claim = None
    to_come = ObjectRef(namespace=cell.space, name=f"to-come-{cell.number}")
    cell.with_volume(phase="Available", claim=to_come)


def _retained(cell: Cell) -> None:
    cell.unused()
    cell.claim = None
    cell.with_volume(phase="Released", reclaim_policy="Retain", phase_since=LONG_AGO)


def _going_with_its_pod(cell: Cell) -> None:
    """Its claim is deleted, and exists as long as the pod runs."""
    cell.with_claim(deleting_since=LONG_AGO, finalizers=("kubernetes.io/pvc-protection",))
    cell.is_watched_by_its_node()


def _being_made(cell: Cell) -> None:
    _unbound(cell, created_at=JUST_NOW)


def _finished(cell: Cell) -> None:
    cell.attachments = ()
    cell.with_pod(phase="Succeeded", ready=False)


def _ending(cell: Cell) -> None:
    cell.with_pod(deleting_since=NOW, grace_s=30.0)
    cell.is_watched_by_its_node()


def _read_by_many(cell: Cell) -> None:
    cell.with_claim(access_modes=("ReadOnlyMany",))
    cell.with_volume(access_modes=("ReadOnlyMany",))
    other = _next_node(cell.node)
    cell.pods = (*cell.pods, _pod(cell, node=other, name="more", phase="Running"))
    cell.attachments = (*cell.attachments, _attachment(cell, other))


def _written_by_many(cell: Cell) -> None:
    _read_by_many(cell)
    modes: dict[str, Any] = {"access_modes": ("ReadWriteMany",), "volume_mode": "Block"}
    cell.with_claim(**modes)
    cell.with_volume(**modes)


def _two_on_one_node(cell: Cell) -> None:
    cell.pods = (*cell.pods, _pod(cell, node=cell.node, name="more", phase="Running"))


def _to_be_had(cell: Cell) -> None:
    cell.unused()
    cell.claim = None
    labels = (("disk", f"d{cell.number % 9}"),)
    cell.with_volume(phase="Available", claim=None, storage_class="manual", labels=labels)


LEGIT: Final[tuple[Callable[[Cell], None], ...]] = (
    _idle,
    _waits_for_first_pod,
    _kept_for_a_claim_to_come,
    _retained,
    _going_with_its_pod,
    _being_made,
    _finished,
    _ending,
    _read_by_many,
    _written_by_many,
    _two_on_one_node,
    _to_be_had,
)


# --------------------------------------------------------------------------------------------------
# The cluster
# --------------------------------------------------------------------------------------------------


@dataclass(slots=True, frozen=True)
class Many:
    """A snapshot of a cluster, and its faults."""

    snapshot: Snapshot
    broken: dict[str, str]
    """The target for ``diagnose``, and the code that must be reported."""


def many(*, volumes: int, broken: int, seed: int) -> Many:
    """Create a cluster with so many claims, almost all with a PV, and twice as many pods."""
    random = Random(seed)
    pairs = -(-(volumes - HERE) // (2 * VOLUMES_A_NODE))
    nodes = [f"node-{number:05}" for number in range(2 + 2 * pairs + len(SICK))]
    cells = [_cell(number, _home(number, nodes)) for number in range(volumes)]
    away = [cell for cell in cells if cell.number >= HERE]
    for cell in cells[len(KINDS_HERE) : HERE]:
        cell.is_mapped_here(mounts=(cell.mount(cell.pod_path(str(cell.pods[0].ref.uid))),))
    expected = _break_here(cells) | _break(random, away, nodes, broken - len(KINDS_HERE))
    quiet = [
        volume
        for volume in away
        if volume.given not in expected and volume.node not in _sick(nodes)
    ]
    for number, volume in enumerate(random.sample(quiet, len(quiet) // 10)):
        LEGIT[number % len(LEGIT)](volume)
    return Many(snapshot=_snapshot_of(cells, nodes), broken=expected)


def _home(number: int, nodes: list[str]) -> str:
    """Return a node for a volume: the first node is the observing one, the last are unhealthy.

    Nodes come in pairs: no pod moves to the observing node.
    """
    if number < HERE:
        return nodes[0]
    others = nodes[2 : len(nodes) - len(SICK)]
    return others[number % len(others)]


def _sick(nodes: list[str]) -> dict[str, SickNode]:
    return dict(zip(nodes[len(nodes) - len(SICK) :], SICK.values(), strict=True))


def _break_here(cells: list[Cell]) -> dict[str, str]:
    expected = {}
    for cell, (code, become) in zip(cells, KINDS_HERE.values(), strict=False):
        become(cell)
        expected[cell.given] = code
    return expected


def _break(random: Random, cells: list[Cell], nodes: list[str], count: int) -> dict[str, str]:
    """Break so many volumes, the same number of each kind; a tenth fail through their node."""
    chosen = random.sample(cells, count)
    expected = {}
    sick = list(_sick(nodes).items())
    kinds = cycle(KINDS.values())
    for number, cell in enumerate(chosen):
        if number % 10 == 0:
            node, how = sick[number // 10 % len(sick)]
            _move(cell, node, how)
            expected[cell.given] = how.code
        else:
            code, become = next(kinds)
            become(cell)
            expected[cell.given] = code
    return expected


def _move(cell: Cell, node: str, how: SickNode) -> None:
    """Move a volume to an unhealthy node."""
    cell.node = node
    cell.with_pod(node_name=node, **how.of_pod)
    cell.attachments = (_attachment(cell, node),)
    if how.moves:
        cell.unused()
    cell.is_watched_by_its_node()
    if how.code == "RBD103":
        # Its agent reports it: in the API its pod runs.
        cell.is_published(Verdict.DEAD)


def _snapshot_of(cells: list[Cell], nodes: list[str]) -> Snapshot:
    sick = _sick(nodes)
    return snapshot(
        target=Target(argument="-A", kind=TargetKind.NONE),
        node=_node_view(cells, nodes[0]),
        ceph=_ceph(cells, sick),
        kubernetes=_kube(cells, nodes, sick),
        sources=Sources(node=OBSERVED, ceph=OBSERVED, kubernetes=OBSERVED),
    )


def _node_view(cells: list[Cell], node: str) -> NodeView:
    return NodeView(
        node_name=node,
        hostname=node,
        boot_id="b001",
        module_loaded=True,
        mappings=tuple(cell.mapping for cell in cells if cell.mapping is not None),
        kubelet=KubeletView(
            roots=("/var/lib/kubelet",),
            process=ProcessRef(pid=300, command="kubelet", started_at=LONG_AGO),
            staging=tuple(one for cell in cells for one in cell.staging),
            pod_volumes=tuple(one for cell in cells for one in cell.pod_volumes),
            sockets=(PluginSocket(driver=DRIVER, path="/csi/csi.sock", listening=True),),
        ),
        addresses=(_ip(node),),
        unbacked=tuple(one for cell in cells for one in cell.unbacked),
    )


def _ceph(cells: list[Cell], sick: dict[str, SickNode]) -> CephView:
    blocklist = tuple(
        BlocklistEntry(network=_ip(node), nonce=1000 + _number(node))
        for node, how in sick.items()
        if how.is_blocklisted
    )
    one = ClusterView(
        name="ceph",
        source=OBSERVED,
        fsid=FSID,
        images=tuple(cell.view for cell in cells if cell.view is not None),
        blocklist=blocklist,
        pools=((1, "k8s"),),
    )
    other = ClusterView(
        name="other",
        source=OBSERVED,
        fsid=OTHER_FSID,
        images=tuple(cell.other_view for cell in cells if cell.other_view is not None),
        pools=((1, "k8s"),),
    )
    return CephView(clusters=(one, other))


def _kube(cells: list[Cell], nodes: list[str], sick: dict[str, SickNode]) -> KubeView:
    pods = [pod for cell in cells for pod in cell.pods]
    return KubeView(
        server="https://api",
        persistent_volumes=tuple(cell.volume for cell in cells if cell.volume is not None),
        claims=tuple(cell.claim for cell in cells if cell.claim is not None),
        pods=(*pods, *_pods_without_volumes(2 * len(cells) - len(pods), nodes)),
        nodes=_nodes(cells, nodes, sick),
        csi_nodes=tuple(
            CSINode(node_name=name, drivers=sick[name].drivers if name in sick else (DRIVER,))
            for name in nodes
        ),
        attachments=tuple(one for cell in cells for one in cell.attachments),
        events=tuple(one for cell in cells for one in cell.events),
        consistent=True,
        published=_published(cells, nodes),
        storage_classes=(
            StorageClass(name="rbd", provisioner=DRIVER, is_default=True),
            StorageClass(name="first-pod", provisioner=DRIVER, binding_mode="WaitForFirstConsumer"),
            StorageClass(name="manual", provisioner="kubernetes.io/no-provisioner"),
            StorageClass(name="in-tree", provisioner="kubernetes.io/rbd"),
            StorageClass(name="elsewhere", provisioner=ELSEWHERE),
            StorageClass(name="down", provisioner=DOWN),
        ),
        workloads=(
            *(Workload(kind="ReplicaSet", ref=replace(pod.ref, uid=None)) for pod in pods),
            *(one for cell in cells for one in cell.workloads),
        ),
        drivers=(DRIVER, DOWN),
        leases=(
            Lease(namespace="kube-system", name="kube-controller-manager", renewed_at=NOW),
            _lease(DRIVER, "provisioner-0", NOW),
            _lease(DOWN, "provisioner-1", LONG_AGO),
        ),
        driver_pods=(
            DriverPod(
                ref=ObjectRef(namespace="ceph", name="provisioner-0"),
                node_name=nodes[2],
                phase="Running",
                ready=True,
                images=("registry.k8s.io/sig-storage/csi-provisioner:v5.3.0",),
                serves=(DRIVER,),
            ),
            DriverPod(
                ref=ObjectRef(namespace="ceph", name="provisioner-1"),
                node_name=nodes[3],
                phase="Running",
                serves=(DOWN,),
            ),
        ),
        version="v1.36.3",
    )


def _lease(driver: str, holder: str, renewed_at: str) -> Lease:
    name = driver.replace(".", "-")
    return Lease(namespace="ceph", name=name, holder=holder, renewed_at=renewed_at)


def _nodes(cells: list[Cell], nodes: list[str], sick: dict[str, SickNode]) -> tuple[Node, ...]:
    """Return the nodes; each lists the volumes of its pods."""
    used: dict[str, list[str]] = {name: [] for name in nodes}
    for cell in cells:
        running = {pod.node_name for pod in cell.pods if pod.phase == "Running"}
        for node in running.union(cell.is_used_on):
            used[str(node)].append(in_use_name(DRIVER, cell.handle))
    return tuple(
        Node(
            name=name,
            internal_ips=(_ip(name),),
            volumes_in_use=tuple(used[name]),
            volumes_attached=tuple(used[name]),
            **{"ready": True, "boot_id": "b001", **(sick[name].changes if name in sick else {})},
        )
        for name in nodes
    )


def _pods_without_volumes(count: int, nodes: list[str]) -> tuple[Pod, ...]:
    return tuple(
        Pod(
            ref=ObjectRef(
                namespace=f"team-{number % NAMESPACES}", name=f"api-{number}", uid=f"api-{number}"
            ),
            node_name=nodes[number % len(nodes)],
            phase="Running",
            ready=True,
            created_at=LONG_AGO,
        )
        for number in range(count)
    )


def _published(cells: list[Cell], nodes: list[str]) -> tuple[PublishedNode, ...]:
    """Return a PublishedNode for every node, with the mappings that its cells publish."""
    by_node: dict[str, list[PublishedMapping]] = {name: [] for name in nodes}
    for cell in cells:
        for node, mapping in cell.published:
            by_node[node].append(mapping)
    return tuple(
        PublishedNode(name=node, observed_at=JUST_NOW, mappings=tuple(mappings))
        for node, mappings in by_node.items()
    )
