"""Random small clusters, some changes away from a healthy one, for the properties of ``-A``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from rbdagent.model import (
    BlocklistEntry,
    CephView,
    ContainerState,
    CSINode,
    CsiSource,
    DriverPod,
    EntityAddress,
    ImagePresence,
    ImageSpec,
    ImageView,
    InTreeRbdSource,
    KubeEvent,
    KubeView,
    Lease,
    Mapping,
    Node,
    NodeView,
    ObjectRef,
    OtherSource,
    PersistentVolume,
    PersistentVolumeClaim,
    Pod,
    PublishedMapping,
    PublishedNode,
    Requirement,
    Snapshot,
    Source,
    Sources,
    SourceState,
    StorageClass,
    Target,
    TargetKind,
    UnbackedMount,
    Verdict,
    VolumeAttachment,
    Watcher,
    Workload,
)
from rbdagent.parse.handle import attachment_name, in_use_name, staging_hash
from tests.support.snapshots import (
    COOKIE,
    DRIVER,
    FSID,
    JUST_NOW,
    LIBRBD_COOKIE,
    LONG_AGO,
    NOW,
    OBSERVED,
    OTHER_FSID,
    UNSEEN,
    cluster,
    container,
    gap,
    kubelet,
    mapping,
    mount,
    node_view,
    pod_directory,
    process,
    snapshot,
    staging,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

NODES: Final = ("worker-1", "worker-2", "worker-3")
GONE: Final = "worker-9"
SPACES: Final = ("shop", "bank")
COUNT: Final = 5
GIB: Final = 1 << 30
EVERYTHING: Final = Target(argument="-A", kind=TargetKind.NONE)
_MESSAGES: Final = (
    'Multi-Attach error for volume "{pv}" Volume is already used by pod(s) x',
    "rbd image k8s/{image} is still being used",
    "an operation with the given Volume ID {handle} already exists",
    "rbd: map failed: (108) Cannot send after transport endpoint shutdown",
    "failed to provision volume: selfLink was empty, can't make reference",
    "something else",
)
_REASONS: Final = (
    "FailedAttachVolume",
    "FailedMount",
    "ProvisioningFailed",
    "Provisioning",
    "Killing",
    "VolumeFailedDelete",
    "Unhealthy",
)
_OTHERS: Final = frozenset({"Provisioning", "Killing", "Unhealthy"})
"""Events with these reasons have type Normal and a message that concerns no volume."""


def address(node: str) -> EntityAddress:
    """Return the address of the Ceph client on a node."""
    return EntityAddress(ip=f"10.0.0.{node[-1]}", nonce=int(node[-1]))


class Maker:
    """Builds one cluster: healthy at first, then with changes."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.volumes = [self._volume(number) for number in range(COUNT)]
        self.claims = [self._claim(number) for number in range(COUNT)]
        self.pods = [self._pod(number) for number in range(COUNT)]
        self.attachments = [self._attachment(number) for number in range(COUNT)]
        self.nodes = [self._node(name) for name in NODES]
        self.csi_nodes = [CSINode(node_name=name, drivers=(DRIVER,)) for name in NODES]
        self.events: list[KubeEvent] = []
        self.published: list[PublishedNode] = []
        self.workloads = [
            Workload(
                kind="ReplicaSet",
                ref=ObjectRef(namespace=space, name="web-1"),
                owners=("Deployment/web",),
            )
            for space in SPACES
        ]
        self.views: list[ImageView] = []
        self.other_views: list[ImageView] = []
        self.blocklist: list[BlocklistEntry] = []
        self.mapped: list[Mapping] = []
        self.on_node: dict[str, Any] = {}
        self.of_kubelet: dict[str, Any] = {"staging": (), "pod_volumes": ()}
        self.of_kube: dict[str, Any] = {}

    def one_of(self, *values: Any) -> Any:  # noqa: ANN401 - of any kind
        return self.random.choice(values)

    def number(self) -> int:
        return self.random.randrange(COUNT)

    # Healthy --------------------------------------------------------------------------------------

    def _space(self, number: int) -> str:
        return SPACES[number % 2]

    def _ref(self, number: int, **other: Any) -> ObjectRef:  # noqa: ANN401 - any field
        name, uid = f"data-{number}", f"claim-{number}"
        return replace(ObjectRef(namespace=self._space(number), name=name, uid=uid), **other)

    def _source(self, number: int) -> CsiSource:
        return CsiSource(
            driver=DRIVER,
            volume_handle=f"handle-{number}",
            attributes=(("imageName", f"image-{number}"), ("pool", "k8s")),
        )

    def _volume(self, number: int) -> PersistentVolume:
        return PersistentVolume(
            name=f"pv-{number}",
            phase="Bound",
            source=self._source(number),
            claim=self._ref(number),
            access_modes=("ReadWriteOnce",),
            storage_class="rbd",
            capacity_bytes=GIB,
            reclaim_policy="Delete",
            provisioner=DRIVER,
        )

    def _claim(self, number: int) -> PersistentVolumeClaim:
        return PersistentVolumeClaim(
            ref=self._ref(number),
            phase="Bound",
            volume_name=f"pv-{number}",
            storage_class="rbd",
            access_modes=("ReadWriteOnce",),
            requested_bytes=GIB,
            created_at=LONG_AGO,
            bind_completed=True,
        )

    def _pod(self, number: int) -> Pod:
        return Pod(
            ref=ObjectRef(namespace=self._space(number), name=f"web-{number}", uid=f"pod-{number}"),
            node_name=NODES[number % 3],
            phase="Running",
            claims=(f"data-{number}",),
            owners=("ReplicaSet/web-1",),
            created_at=LONG_AGO,
            placed_at=LONG_AGO,
            containers=(ContainerState(name="web", state="running"),),
        )

    def _attachment(self, number: int, node: str | None = None) -> VolumeAttachment:
        node = node or NODES[number % 3]
        return VolumeAttachment(
            name=attachment_name(f"handle-{number}", DRIVER, node),
            attacher=DRIVER,
            node_name=node,
            persistent_volume=f"pv-{number}",
            attached=True,
            created_at=LONG_AGO,
        )

    def _node(self, name: str) -> Node:
        return Node(name=name, ready=True, internal_ips=(address(name).ip,))

    # Changes --------------------------------------------------------------------------------------

    def change(self) -> None:
        """Apply one change at random."""
        self.random.choice(_CHANGES)(self)

    def a_volume(self) -> None:
        number = self.number()
        other = self.number()
        changes: dict[str, Any] = self.one_of(
            {"phase": self.one_of("Available", "Released", "Failed", "Pending")},
            {"phase": "Available", "claim": None},
            {"phase": "Available", "claim": self._ref(number, uid=None)},
            {"phase": "Released", "reclaim_policy": "Retain"},
            {"claim": self._ref(number, uid="another")},
            {"claim": self._ref(number, uid=None)},
            {"claim": self._ref(number, name="absent")},
            {"claim": self._ref(other)},
            {"source": self._source(other)},
            {"source": replace(self._source(number), volume_handle=f"handle-{other}")},
            {"source": replace(self._source(number), read_only=True)},
            {"source": CsiSource(driver=DRIVER, volume_handle="by-hand")},
            {"source": InTreeRbdSource(spec=ImageSpec(pool="k8s", name=f"image-{other}"))},
            {"source": OtherSource(kind="nfs")},
            {"access_modes": ("ReadWriteMany",)},
            {"access_modes": ("ReadWriteMany",), "volume_mode": "Block"},
            {"access_modes": ("ReadOnlyMany",)},
            {"access_modes": ("ReadWriteOncePod",)},
            {"deleting_since": JUST_NOW, "finalizers": ("kubernetes.io/pv-protection",)},
            {"node_affinity": ((Requirement(key="zone", operator="In", values=("a",)),),)},
            {"capacity_bytes": 5 * GIB, "labels": (("disk", "fast"),)},
        )
        self.volumes[number] = replace(self.volumes[number], **changes)

    def spare_volumes(self) -> None:
        """Add more PVs than any output names."""
        first = 100 + len(self.volumes)
        for number in range(first, first + self.one_of(3, 12, 30)):
            changes = {
                "phase": self.one_of("Available", "Available", "Bound", "Released"),
                "claim": self.one_of(None, self._ref(number), self._ref(self.number())),
                "storage_class": self.one_of("manual", "rbd", ""),
                "capacity_bytes": self.one_of(GIB, 2 * GIB, 3 * GIB),
                "labels": self.one_of((), (("disk", "fast"),)),
            }
            self.volumes.append(replace(self._volume(number), **changes))

    def a_claim(self) -> None:
        number = self.number()
        fresh = {"phase": "Pending", "volume_name": None, "bind_completed": False}
        changes: dict[str, Any] = self.one_of(
            fresh,
            {**fresh, "storage_class": self.one_of("first", "none", None, "")},
            {**fresh, "created_at": JUST_NOW},
            {**fresh, "volume_name": f"pv-{self.number()}"},
            {**fresh, "requested_bytes": 2 * GIB, "storage_class": "manual"},
            {**fresh, "selector": (Requirement(key="disk", operator="In", values=("fast",)),)},
            {**fresh, "storage_class": "first", "selected_node": self.one_of(*NODES, GONE)},
            {"phase": "Lost"},
            {"volume_name": "pv-nowhere"},
            {"volume_name": f"pv-{self.number()}"},
            {"deleting_since": JUST_NOW, "finalizers": ("kubernetes.io/pvc-protection",)},
            {"ref": self._ref(number, uid="made-again")},
        )
        self.claims[number] = replace(self.claims[number], **changes)

    def a_pod(self) -> None:
        node = self.one_of(*NODES, GONE, None)
        number = self.number()
        if number >= len(self.pods):
            return
        changes: dict[str, Any] = self.one_of(
            {"phase": "Pending", "node_name": node, "containers": ()},
            {"phase": "Pending", "node_name": node, "placed_at": JUST_NOW, "containers": ()},
            {"deleting_since": LONG_AGO, "containers": (), "finalizers": ("example.org/hold",)},
            {"phase": "Pending", "node_name": None, "unschedulable": "0/3 nodes are available"},
            {"phase": self.one_of("Succeeded", "Failed", "Unknown")},
            {"node_name": node or NODES[0]},
            {"deleting_since": self.one_of(JUST_NOW, LONG_AGO)},
            {"phase": "Failed", "deleting_since": JUST_NOW},
            {"claims": (f"data-{number}", f"data-{(number + 2) % COUNT}")},
            {"claims": ("missing",)},
            {
                "claims": (),
                "inline_images": (
                    InTreeRbdSource(spec=ImageSpec(pool="k8s", name=f"image-{self.number()}")),
                ),
            },
        )
        self.pods[number] = replace(self.pods[number], **changes)

    def a_further_pod(self) -> None:
        number = self.number()
        made = replace(
            self._pod(number),
            ref=ObjectRef(
                namespace=self._space(number), name=f"more-{number}", uid=f"more-{number}"
            ),
            node_name=self.one_of(*NODES, None),
            phase=self.one_of("Pending", "Running", "Succeeded"),
        )
        # Names are unique.
        self.pods = [*(pod for pod in self.pods if pod.ref != made.ref), made]

    def no_pod(self) -> None:
        """Remove some pods from the end of the list."""
        self.pods = self.pods[: self.number()]

    def an_attachment(self) -> None:
        number, node = self.number(), self.one_of(*NODES, GONE)
        made = replace(
            self._attachment(number, node),
            **self.one_of(
                {},
                {"attached": False, "attach_error": "no secret"},
                {"deleting_since": JUST_NOW, "detach_error": "no secret"},
                {"deleting_since": LONG_AGO},
                {"created_at": JUST_NOW},
                {"persistent_volume": "pv-nowhere"},
                {"persistent_volume": f"pv-{self.number()}"},
                {"name": "csi-odd"},
            ),
        )
        if self.random.random() < 0.5:
            self.no_attachment()
        # Names are unique.
        self.attachments = [
            attachment for attachment in self.attachments if attachment.name != made.name
        ]
        self.attachments.append(made)

    def no_attachment(self) -> None:
        self.attachments = self.attachments[1:]

    def a_node(self) -> None:
        number = self.random.randrange(3)
        if number >= len(self.nodes):
            return
        changes: dict[str, Any] = self.one_of(
            {"ready": False},
            {"ready": None},
            {"out_of_service": True},
            {"internal_ips": ()},
            {"internal_ips": (address(NODES[0]).ip,)},
        )
        self.nodes[number] = replace(self.nodes[number], **changes)

    def a_volume_in_use(self) -> None:
        """List a volume in the status of a node, whether a pod uses it there or not."""
        number = self.random.randrange(3)
        if number >= len(self.nodes):
            return
        name = in_use_name(DRIVER, f"handle-{self.number()}")
        used, attached = self.one_of(((name,), (name,)), ((name,), ()), ((), (name,)))
        self.nodes[number] = replace(
            self.nodes[number], volumes_in_use=used, volumes_attached=attached
        )

    def who_works(self) -> None:
        """Set leases, driver pods and the version; some may be unobserved or out of date."""
        renewed = self.one_of(NOW, NOW, LONG_AGO)
        leases = [
            Lease(namespace="kube-system", name="kube-controller-manager", renewed_at=renewed),
            Lease(
                namespace="ceph",
                name="rbd-csi-ceph-com",
                holder="provisioner-0",
                renewed_at=self.one_of(NOW, LONG_AGO),
            ),
        ]
        ref = ObjectRef(namespace="ceph", name="provisioner-0")
        driver_pod = DriverPod(
            ref=ref, node_name=NODES[1], phase="Running", ready=True, serves=(DRIVER,)
        )
        self.of_kube |= {
            "leases": self.one_of(UNSEEN, (), tuple(leases)),
            "driver_pods": self.one_of(UNSEEN, (), (driver_pod,)),
            "version": self.one_of(UNSEEN, "v1.36.3"),
        }

    def no_node(self) -> None:
        self.nodes = self.nodes[: self.one_of(1, 2)]

    def a_csi_node(self) -> None:
        number = self.random.randrange(3)
        self.csi_nodes[number] = CSINode(node_name=NODES[number], drivers=())

    def an_event(self) -> None:
        number = self.number()
        kind, namespace, name = self.one_of(
            ("Pod", self._space(number), f"web-{number}"),
            ("PersistentVolumeClaim", self._space(number), f"data-{number}"),
            ("PersistentVolume", self.one_of("", "default"), f"pv-{number}"),
        )
        reason = self.one_of(*_REASONS)
        message = self.one_of(*(_MESSAGES if reason not in _OTHERS else _MESSAGES[-1:])).format(
            pv=f"pv-{number}", image=f"image-{number}", handle=f"handle-{number}"
        )
        self.events.append(
            KubeEvent(
                kind=kind,
                subject=ObjectRef(namespace=namespace, name=name),
                type="Normal" if reason in _OTHERS else "Warning",
                reason=reason,
                message=message,
                last_seen=self.one_of(JUST_NOW, LONG_AGO),
            )
        )

    def a_view(self) -> None:
        number = self.number()
        image_id = self.one_of(f"id-{number}", f"id-{number}", "id-0")
        views = self.one_of(self.views, self.views, self.views, self.other_views)
        views.append(
            ImageView(
                spec=ImageSpec(pool="k8s", name=f"image-{number}"),
                fsid=FSID if views is self.views else OTHER_FSID,
                presence=self.one_of(*[ImagePresence.PRESENT] * 3, *ImagePresence, UNSEEN),
                image_id=image_id,
                pool_id=1,
                watchers=self.one_of(UNSEEN, (), *[(self._watcher(number),)] * 3),
                transient_watchers=self.one_of((), (), (self._watcher(number),)),
            )
        )

    def _watcher(self, number: int) -> Watcher:
        node = self.one_of(NODES[number % 3], *NODES, GONE)
        cookie = self.one_of(COOKIE, COOKIE, LIBRBD_COOKIE)
        return Watcher(address=address(node), client=int(node[-1]), cookie=cookie)

    def a_published(self) -> None:
        number, node = self.number(), self.one_of(*NODES, GONE)
        made = PublishedMapping(
            device="/dev/rbd0",
            verdict=self.one_of(Verdict.IN_USE, Verdict.IN_USE, *Verdict),
            fsid=FSID,
            spec=ImageSpec(pool="k8s", name=self.one_of(f"image-{number}", "image-nowhere")),
            image_id=f"id-{number}",
            client_id=int(node[-1]),
            client_address=address(node),
            read_only=self.one_of(*(False, True, None)),
            persistent_volume=self.one_of(f"pv-{number}", None),
            findings=self.one_of((), (), ("RBD123",)),
        )
        mappings = self.one_of((made,), (made,), UNSEEN)
        seen_at = self.one_of(JUST_NOW, LONG_AGO)
        self.published.append(PublishedNode(name=node, observed_at=seen_at, mappings=mappings))

    def a_blocklist_entry(self) -> None:
        node = self.one_of(*NODES)
        self.blocklist.append(
            self.one_of(
                BlocklistEntry(network=address(node).ip, nonce=address(node).nonce),
                BlocklistEntry(network=address(node).ip),
                BlocklistEntry(network="10.0.0.0/30"),
            )
        )

    def a_mapping(self) -> None:
        number, other = self.number(), self.number()
        device = len(self.mapped)
        kubelet_root = "/var/lib/kubelet"
        of_pod = f"{kubelet_root}/pods/x/volumes/kubernetes.io~csi/pv-{other}/mount"
        hashed = staging_hash(f"handle-{other}")
        staged = f"{kubelet_root}/plugins/kubernetes.io/csi/{DRIVER}/{hashed}/globalmount"
        self.mapped.append(
            mapping(
                device=f"/dev/rbd{device}",
                device_id=device,
                spec=self.one_of(
                    *[ImageSpec(pool="k8s", name=f"image-{number}")] * 3,
                    ImageSpec(pool="k8s", name="image-nowhere"),
                    UNSEEN,
                ),
                image_id=self.one_of(*[f"id-{number}"] * 3, f"id-{other}"),
                client_id=1,
                client_address=address(NODES[0]),
                mounts=self.one_of(
                    (),
                    (),
                    (mount(path="/d", namespace=container(f"pod-{self.number()}")),),
                    (mount(path=of_pod),),
                    (mount(path=f"{staged}/handle-{other}"),),
                ),
            )
        )

    def a_directory(self) -> None:
        number = self.number()
        made = pod_directory(
            path=f"/var/lib/kubelet/pods/x/volumes/kubernetes.io~csi/pv-{number}/mount",
            pod_uid=self.one_of("absent", f"pod-{self.number()}"),
            persistent_volume=f"pv-{number}",
            volume_data=None,
        )
        self.of_kubelet["pod_volumes"] = (*self.of_kubelet["pod_volumes"], made)

    def a_staging(self) -> None:
        number = self.number()
        made = staging(
            path=f"/staging/{number}",
            volume_handle=f"handle-{number}",
            handle_hash=None,
            stash=None,
            volume_data=None,
        )
        self.of_kubelet["staging"] = (*self.of_kubelet["staging"], made)

    def an_unbacked(self) -> None:
        number = self.number()
        made = UnbackedMount(
            pod_uid=f"pod-{number}",
            persistent_volume=f"pv-{number}",
            path="/data",
            source="/dev/vda1",
            process=process(),
        )
        self.on_node["unbacked"] = (made,)

    def a_blind_spot(self) -> None:
        field = self.one_of(
            "persistent_volumes",
            "claims",
            "pods",
            "nodes",
            "csi_nodes",
            "attachments",
            "events",
            "storage_classes",
            "workloads",
            "published",
        )
        self.of_kube[field] = UNSEEN

    def an_incomplete_list(self) -> None:
        self.of_kube |= self.one_of(
            {"pods_scope": "node/worker-1,namespace/shop"},
            {"nodes_complete": False},
            {"attachments_complete": False},
        )

    # All of it ------------------------------------------------------------------------------------

    def made(self) -> Snapshot:
        """Return a snapshot of the cluster."""
        kube = KubeView(
            server="https://api",
            # In order of their names, as the API lists them.
            persistent_volumes=tuple(sorted(self.volumes, key=lambda volume: volume.name)),
            claims=tuple(sorted(self.claims, key=lambda claim: claim.ref)),
            pods=tuple(sorted(self.pods, key=lambda pod: pod.ref)),
            nodes=tuple(self.nodes),
            csi_nodes=tuple(self.csi_nodes),
            attachments=tuple(sorted(self.attachments, key=lambda attachment: attachment.name)),
            events=tuple(self.events),
            published=tuple(self.published),
            storage_classes=(
                StorageClass(name="rbd", provisioner=DRIVER),
                StorageClass(name="first", provisioner=DRIVER, binding_mode="WaitForFirstConsumer"),
                StorageClass(name="manual", provisioner="kubernetes.io/no-provisioner"),
            ),
            drivers=(DRIVER,),
            workloads=tuple(self.workloads),
        )
        return snapshot(
            target=EVERYTHING,
            node=self._node_view(),
            ceph=self._ceph(),
            kubernetes=replace(kube, **self.of_kube),
        )

    def from_afar(self) -> Snapshot:
        """Return a snapshot from a machine that is not a node."""
        seen = self.made()
        away = Source(state=SourceState.SKIPPED, reason="not queried, as requested")
        return replace(
            seen,
            node=None,
            ceph=self._clusters(),
            sources=Sources(node=away, ceph=OBSERVED, kubernetes=OBSERVED),
        )

    def _node_view(self) -> NodeView | None:
        if self.random.random() < 0.3:
            return None
        return replace(
            node_view(
                node_name=NODES[0],
                addresses=(address(NODES[0]).ip,),
                kubelet=kubelet(**self.of_kubelet),
                mappings=self.one_of(*[tuple(self.mapped)] * 5, UNSEEN),
            ),
            **self.on_node,
        )

    def _ceph(self) -> CephView | None:
        return None if self.random.random() < 0.2 else self._clusters()

    def _clusters(self) -> CephView:
        # What both report as not observed is reported once, for the whole snapshot.
        made = cluster(images=tuple(self.views), blocklist=tuple(self.blocklist), pools=())
        if self.views:
            made = replace(made, source=replace(made.source, gaps=(gap("watchers"),)))
        if not self.other_views:
            return CephView(clusters=(made,))
        other = cluster(name="other", fsid=OTHER_FSID, images=tuple(self.other_views), pools=())
        return CephView(clusters=(made, other))


_CHANGES: Final[tuple[Callable[[Maker], None], ...]] = (
    *[Maker.a_volume] * 3,
    Maker.spare_volumes,
    *[Maker.a_claim] * 3,
    *[Maker.a_pod] * 3,
    *[Maker.an_event] * 2,
    *[Maker.a_view] * 3,
    *[Maker.a_mapping] * 2,
    *[Maker.an_attachment] * 2,
    Maker.no_attachment,
    Maker.a_further_pod,
    Maker.no_pod,
    Maker.a_node,
    Maker.no_node,
    Maker.a_volume_in_use,
    Maker.who_works,
    Maker.a_csi_node,
    Maker.a_published,
    Maker.a_blocklist_entry,
    Maker.a_directory,
    Maker.a_staging,
    Maker.an_unbacked,
    Maker.a_blind_spot,
    Maker.an_incomplete_list,
)


def some_cluster(random: Random, changes: int) -> Snapshot:
    """Build a cluster that is that many changes away from a healthy one."""
    maker = Maker(random)
    for _ in range(changes):
        maker.change()
    return maker.made()
