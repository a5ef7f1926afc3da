"""Rows of the rules on holders, attachments, Ceph and coverage, by code: reported, or not."""

# ruff: noqa: ANN401 - a builder takes any field of what it builds

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from rbdagent.correlate.machine import without_other_machine
from rbdagent.model import (
    BlocklistEntry,
    CephView,
    ConnectionTo,
    ContainerState,
    CSINode,
    CsiSource,
    HealthCheck,
    ImagePresence,
    ImageSpec,
    InTreeRbdSource,
    LockHolder,
    MachineMigration,
    MirrorSite,
    MirrorState,
    NbdState,
    NodeNetworks,
    NotObserved,
    ObjectRef,
    OtherSource,
    ProcessNetwork,
    ProcessRef,
    RouteKind,
    RouteTo,
    ServiceAddress,
    Snapshot,
    Source,
    Sources,
    SourceState,
    TargetKind,
    VolumeReplication,
    observed_of,
)
from tests.support.snapshots import (
    ADDRESS,
    BY_IMAGE,
    DRIVER,
    HANDLE,
    JUST_NOW,
    LIBRBD_COOKIE,
    LONG_AGO,
    NEIGHBOUR,
    OBSERVED,
    OTHER_FSID,
    PLUGIN_DOWN,
    POD_PATH,
    PV,
    SPEC,
    STRANGER_ADDRESS,
    UNBACKED,
    UNSEEN,
    attachment,
    claim,
    cluster,
    container,
    event,
    from_worker_2,
    gap,
    image_view,
    in_flight,
    mapping,
    mount,
    nbd_mapping,
    node,
    opener,
    pod,
    pod_directory,
    process,
    remote_watcher,
    reported_by,
    reported_mapping,
    staging,
    target,
    unmapped,
    volume,
    waiting_pod,
    watcher,
    world,
)

if TYPE_CHECKING:
    from rbdagent.model import Pod
    from tests.support.rule_tables import Table

MULTI_ATTACH: Final = event(
    f'Multi-Attach error for volume "{PV}" Volume is already exclusively attached to one node '
    "and can't be attached to another"
)
BEING_USED: Final = event(
    f'MountVolume.MountDevice failed for volume "{PV}" : rpc error: code = Internal desc = rbd '
    f"image {SPEC} is still being used",
    reason="FailedMount",
    reporter="kubelet",
)
EXISTS: Final = event(
    f"rpc error: code = Aborted desc = an operation with the given Volume ID {HANDLE} already "
    "exists",
    reason="FailedMount",
)
REFUSED: Final = event("rbd: map failed: (108) Cannot send after transport endpoint shutdown")
BY_POD: Final = target(
    argument="pod/default/web-0", kind=TargetKind.POD, namespace="default", name="web-0"
)
BY_CLAIM: Final = target(
    argument="pvc/default/data", kind=TargetKind.CLAIM, namespace="default", name="data"
)
FORMER: Final = LockHolder(client=99, address=replace(ADDRESS, nonce=1), lock_id="auto 184464")
OLD_LOCK: Final = LockHolder(client=12, address=None, lock_id="kubelet_lock_magic_worker-9")
OWN_ENTRY: Final = BlocklistEntry(network=ADDRESS.ip, nonce=ADDRESS.nonce, until="tomorrow")
DEAD_NBD: Final = nbd_mapping(nbd=NbdState(recorded_pid=700, backend=HANDLE, process=None))
OF_CLIENT: Final = reported_by("worker-1", mappings=(reported_mapping(),))
RENAMED_IMAGE: Final = image_view(spec=replace(SPEC, name="renamed"))
GONE_IMAGE: Final = image_view(presence=ImagePresence.GONE, image_id=None, watchers=())
BY_DEVICE: Final = target(argument="/dev/rbd0", kind=TargetKind.DEVICE, name="/dev/rbd0")
OTHER_PV: Final = volume(name="pv-copy", uid="other")
CSI: Final = CsiSource(driver=DRIVER, volume_handle="by-hand")
PRIMARY: Final = "local image is primary"


def site(description: str, **changes: Any) -> MirrorSite:
    """Return what an rbd-mirror daemon reports; of this cluster, and up and stopped by default."""
    reported = MirrorSite(
        is_local=True,
        state=MirrorState.STOPPED,
        description=description,
        is_up=True,
        last_update=JUST_NOW,
    )
    return replace(reported, **changes)


def mirrored(*sites: MirrorSite, primary: bool = False) -> Snapshot:
    """Return a node that has a mirrored image mapped, and what the sites report about it."""
    return world(of_image={"mirrored": True, "primary": primary, "mirror_sites": sites})


MANY: Final = volume(access_modes=("ReadWriteMany",), volume_mode="Block")


def launcher(
    suffix: str = "abcde", node_name: str = "worker-1", *, machine: str = "vm1", **changes: Any
) -> Pod:
    """Return a virt-launcher of a machine; ``made_by`` is the uid of its migration."""
    name, made_by = f"virt-launcher-{machine}-{suffix}", changes.pop("made_by", "")
    start = changes.pop("start", f"uid-of-{machine}")
    labels = {"kubevirt.io": "virt-launcher", "kubevirt.io/created-by": start}
    labels |= {"kubevirt.io/migrationJobUID": made_by} if made_by else {}
    default = pod(
        name,
        node_name,
        ref=ObjectRef(namespace="default", name=name, uid=f"uid-of-{name}"),
        owners=(f"VirtualMachineInstance/{machine}",),
        labels=tuple(labels.items()),
    )
    return replace(default, **changes)


def migration(phase: str = "Running", uid: str = "m1", **changes: Any) -> MachineMigration:
    """Return a migration of the machine vm1."""
    default = MachineMigration(
        ref=ObjectRef(namespace="default", name=f"migration-{uid}", uid=uid),
        machine="vm1",
        phase=phase,
    )
    return replace(default, **changes)


TARGET_POD: Final = launcher("fghij", "worker-2", made_by="m1", created_at=JUST_NOW)
OLD_TARGET: Final = replace(TARGET_POD, created_at=LONG_AGO)


def machines(*pods: Pod, **in_kube: Any) -> Snapshot:
    """Return two nodes that have a raw block volume for many nodes mapped, for these pods."""
    changes = {"persistent_volumes": (MANY,), "pods": pods, "migrations": (), **in_kube}
    return world(of_image={"watchers": (watcher(), remote_watcher())}, in_kube=changes)


def replication(**changes: Any) -> VolumeReplication:
    """Return the VolumeReplication of the claim: it demands primary, and csi-addons is done."""
    default = VolumeReplication(
        ref=ObjectRef(namespace="default", name="data", uid="r1"),
        source="PersistentVolumeClaim/data",
        wanted="primary",
        state="Primary",
        message="volume is marked primary",
        completed=True,
    )
    return replace(default, **changes)


FAILED_PROMOTION: Final = replication(
    state="Unknown", completed=False, failure="FailedToPromote", message="failed to promote volume"
)
COPY: Final = replication(wanted="secondary", state="Secondary", message="volume is degraded")


def replicated(*found: VolumeReplication, primary: bool | None = False, **more: Any) -> Snapshot:
    """Return a mirrored image that is not mapped, and the VolumeReplications of its claim."""
    role = {"mirrored": True, "primary": primary, "watchers": (), "mirror_sites": ()}
    return unmapped(of_image=role, in_kube={"replications": found, **more})


DEPLOYMENT: Final = ("ReplicaSet/web-5d4f", "ReplicaSet/web-77aa")


def waits(*events: Any) -> dict[str, Any]:
    return {"pods": (waiting_pod(),), "events": events}


def unanswered(ip: str, port: int) -> ConnectionTo:
    """Return an attempt to connect that was sent four times."""
    return ConnectionTo(ip=ip, port=port, established=False, retransmits=3)


def network_of_map(
    *,
    monitors: str = "192.0.2.10:3300",
    routes: tuple[RouteTo, ...] = (RouteTo(ip="192.0.2.10", kind=RouteKind.FORWARDED),),
    connections: tuple[ConnectionTo, ...] = (),
) -> ProcessNetwork:
    """Return the network namespace of a process of rbd that maps the image."""
    return ProcessNetwork(
        process=ProcessRef(
            pid=9000,
            command=f"rbd --id csi -m {monitors} map {SPEC} --options noudev",
            started_at="2026-11-21T02:00:00Z",
            state="S",
        ),
        is_host=False,
        addresses=("10.244.1.7",),
        routes=routes,
        connections=connections,
    )


def in_networks(network: ProcessNetwork) -> Snapshot:
    """Return a snapshot in which that process has been mapping the image for long."""
    flight = in_flight("rbd", "rbd map", process=network.process, names=(str(SPEC),))
    return unmapped(
        on_node={"in_flight": (flight,), "networks": NodeNetworks(networks=(network,))},
        in_kube={"pods": (waiting_pod(node="worker-1"),), "events": (EXISTS,)},
    )


CUT_OFF: Final = in_networks(
    network_of_map(routes=(RouteTo(ip="192.0.2.10", kind=RouteKind.NONE),))
)
"""Nothing leads from the network of a map to the monitor."""


def osd_lost(
    route: RouteKind, *connections: ConnectionTo, hung: tuple[str, ...] = ("read rbd_data.1",)
) -> Snapshot:
    """Return a snapshot in which requests wait for an OSD, in the network of the node."""
    network = ProcessNetwork(
        process=ProcessRef(pid=1, command="systemd"),
        is_host=True,
        addresses=(ADDRESS.ip,),
        routes=(RouteTo(ip="10.77.0.1", kind=route),),
        connections=connections,
    )
    networks = NodeNetworks(networks=(network,), osds=(("osd.0", "10.77.0.1", 6801),))
    return world(
        mapped={"hung_requests": hung, "hung_at": ("PG 1.6 on osd.0",)},
        on_node={"networks": networks},
    )


def with_networks(
    seen: Snapshot,
    *,
    absent: tuple[str, ...] | NotObserved | None = None,
    mapped: dict[str, Any] | None = None,
) -> Snapshot:
    """Return the snapshot with other facts of its networks, or of its mapping."""
    node_seen = seen.node
    assert node_seen is not None
    assert isinstance(node_seen.networks, NodeNetworks)
    mappings = tuple(replace(one, **(mapped or {})) for one in observed_of(node_seen.mappings))
    networks = replace(node_seen.networks, absent=absent or node_seen.networks.absent)
    return replace(seen, node=replace(node_seen, mappings=mappings, networks=networks))


GONE: Final = world(
    mapped={"hung_requests": ("write rbd_data.1",), "client_address": STRANGER_ADDRESS},
    of_image={"watchers": (watcher(address=STRANGER_ADDRESS),)},
    on_node={
        "networks": NodeNetworks(
            networks=(
                ProcessNetwork(
                    process=ProcessRef(pid=812, command="/usr/local/bin/cephcsi …"),
                    is_plugin=True,
                    is_host=False,
                    addresses=("192.0.2.8",),
                    routes=(
                        RouteTo(
                            ip=STRANGER_ADDRESS.ip,
                            kind=RouteKind.FORWARDED,
                            interface="net1",
                            is_direct=True,
                        ),
                    ),
                    connections=(),
                ),
            ),
            absent=(STRANGER_ADDRESS.ip,),
        )
    },
)
"""Today's pod of the plugin is in the network of the one that mapped the image."""


def crashing(reason: str) -> ContainerState:
    """Return a container that waits for this reason."""
    return ContainerState(name="c", state="waiting", reason=reason)


SLOW_OSD: Final = HealthCheck(
    name="SLOW_OPS", texts=("1 slow ops, oldest one blocked for 284 sec, osd.1 has slow ops",)
)
FULL_POOL: Final = HealthCheck(
    name="POOL_FULL", texts=("1 pool(s) full", "pool 'k8s' is full (running out of quota)")
)
REPORTED: Final[dict[str, Table]] = {
    "RBD100": {"a running pod": world(in_kube={"pods": (pod(),)})},
    "RBD101": {"the orphan": world()},
    "RBD102": {"a pin": world(mapped={"openers": (opener(),)})},
    "RBD103": {"blocklisted": world(in_ceph={"blocklist": (OWN_ENTRY,)})},
    "RBD104": {"rbd-nbd died": world(on_node={"mappings": (DEAD_NBD,)})},
    "RBD105": {"no watch": world(of_image={"watchers": ()})},
    "RBD106": {"two kernels": world(of_image={"watchers": (watcher(), remote_watcher())})},
    "RBD107": {"taint": world(in_kube={"nodes": (node(out_of_service=True), node("worker-2"))})},
    "RBD108": {"node's disk": unmapped(on_node={"unbacked": (UNBACKED,)})},
    "RBD109": {
        "lost container": world(mapped={"mounts": (mount(path="/d", namespace=container()),)}),
        "lost pod's path": world(mapped={"mounts": (mount(path=POD_PATH),)}),
    },
    "RBD110": {"staging alone": world(mapped={"mounts": (mount(),)})},
    "RBD111": {
        "two ReplicaSets of one Deployment (2)": world(
            in_kube={
                "pods": (pod(owners=DEPLOYMENT[:1]), waiting_pod(owners=DEPLOYMENT[1:])),
            }
        ),
    },
    "RBD112": {"two workloads": world(in_kube={"pods": (pod(), waiting_pod())})},
    "RBD113": {"NotReady": from_worker_2(in_kube={"nodes": (node(ready=None), node("worker-2"))})},
    "RBD125": {
        "reported by two agents": from_worker_2(
            in_kube={"published": (OF_CLIENT, replace(OF_CLIENT, name="worker-9"))}
        ),
        "its own, reported by another": world(
            in_kube={"published": (replace(OF_CLIENT, name="worker-2"),)}
        ),
    },
    "RBD114": {
        "raw block for many": world(
            of_image={"watchers": (watcher(), remote_watcher())},
            in_kube={
                "persistent_volumes": (
                    volume(access_modes=("ReadWriteMany",), volume_mode="Block"),
                ),
                "pods": (pod(), pod("b", "worker-2")),
            },
        )
    },
    "RBD133": {
        "of snapshots": mirrored(site("split-brain", state=MirrorState.ERROR)),
        "of a journal, by the peer": mirrored(
            site("split-brain detected", state=MirrorState.ERROR, is_local=False)
        ),
    },
    "RBD134": {"both promoted": mirrored(site(PRIMARY, is_local=False), primary=True)},
    "RBD135": {
        "an error": mirrored(site("failed to open", state=MirrorState.ERROR)),
        "no daemon here": mirrored(site("replaying, {}", is_up=False)),
        "no daemon at the peer": mirrored(
            site("stopped", is_up=False, is_local=False), primary=True
        ),
    },
    "RBD131": {
        "a pool at its quota": world(
            in_ceph={"health": (FULL_POOL,)},
            mapped={"mounts": (mount(),)},
            in_kube={"pods": (pod(),)},
        ),
    },
    "RBD129": {
        "demoted under a pod": world(
            of_image={"primary": False},
            mapped={"mounts": (mount(),)},
            in_kube={"pods": (pod(),)},
        ),
    },
    "RBD130": {
        "disabled under a pod": world(
            of_image={"features": ("layering", "exclusive-lock")},
            mapped={"mounts": (mount(),), "has_object_map": True},
            in_kube={"pods": (pod(),)},
        ),
    },
    "RBD132": {
        "the snapshot was removed": world(
            of_image={"snapshots": (4, 7)}, mapped={"snapshot": "daily", "snapshot_id": 5}
        ),
        "the target of a migration": world(
            of_image={"features": ("layering", "migrating")}, mapped={"read_only": True}
        ),
    },
    "RBD727": {
        "ends again and again": world(
            in_kube={"pods": (pod(containers=(crashing("CrashLoopBackOff"),)),)}
        ),
        "no image": world(
            in_kube={"pods": (pod(phase="Pending", containers=(crashing("ImagePullBackOff"),)),)}
        ),
    },
    "RBD128": {
        "two machines of KubeVirt": machines(
            launcher(), launcher("fghij", "worker-2", machine="vm2")
        ),
        "on one node, with a volume for one": world(
            in_kube={"pods": (launcher(), launcher("fghij", machine="vm2"))}
        ),
        "a disk that was added to both": machines(
            launcher(claims=()),
            launcher("fghij", "worker-2", machine="vm2", claims=()),
            pod("hp-volume-1", owners=("Pod/virt-launcher-vm1-abcde",)),
            pod("hp-volume-2", "worker-2", owners=("Pod/virt-launcher-vm2-fghij",)),
        ),
    },
    "RBD136": {
        "a live migration": machines(launcher(), TARGET_POD, migrations=(migration(),)),
        "of a disk that was added": machines(
            launcher(claims=()),
            replace(TARGET_POD, claims=()),
            pod("hp-volume-1", owners=("Pod/virt-launcher-vm1-abcde",)),
            pod("hp-volume-2", "worker-2", owners=("Pod/virt-launcher-vm1-fghij",)),
            migrations=(migration("TargetReady"),),
        ),
        "the second one": machines(
            launcher(made_by="m0"),
            TARGET_POD,
            migrations=(migration("Succeeded", "m0", ended_at=LONG_AGO), migration()),
        ),
        "the target waits for its volumes": machines(
            launcher(), replace(TARGET_POD, phase="Pending"), migrations=(migration("Scheduling"),)
        ),
        "the migrations were refused": machines(launcher(), TARGET_POD, migrations=UNSEEN),
        "it has just ended": machines(
            launcher(), TARGET_POD, migrations=(migration("Succeeded", ended_at=JUST_NOW),)
        ),
        "it has just failed": machines(
            launcher(), TARGET_POD, migrations=(migration("Failed", ended_at=JUST_NOW),)
        ),
        "its end has no time, and its target is young": machines(
            launcher(), TARGET_POD, migrations=(migration("Failed"),)
        ),
        "of an older KubeVirt, without the label": machines(
            launcher(), launcher("fghij", "worker-2"), migrations=(migration(),)
        ),
        "its phase has not changed for long": machines(
            launcher(), OLD_TARGET, migrations=(migration(since=LONG_AGO),)
        ),
        "it was cancelled long ago": machines(
            launcher(), TARGET_POD, migrations=(migration(deleting_since=LONG_AGO),)
        ),
    },
    "RBD137": {
        "its end has no time, and its target is old": machines(
            launcher(), OLD_TARGET, migrations=(migration("Failed"),)
        ),
        "the migration has failed": machines(
            launcher(),
            TARGET_POD,
            migrations=(migration("Failed", ended_at=LONG_AGO, failure="the domain is paused"),),
        ),
        "it has succeeded, and the source runs": machines(
            launcher(), TARGET_POD, migrations=(migration("Succeeded", ended_at=LONG_AGO),)
        ),
        "it was deleted": machines(launcher(), TARGET_POD),
        "another one runs": machines(
            launcher(), TARGET_POD, migrations=(migration("Running", "m2", machine="vm9"),)
        ),
        "a pod of an earlier start runs": machines(
            launcher(start="uid-of-an-earlier-start"), launcher("fghij", "worker-2")
        ),
        "a pod of an earlier start does not end": machines(
            launcher(
                start="uid-of-an-earlier-start",
                deleting_since=LONG_AGO,
                containers=(ContainerState(name="compute", state="running"),),
            ),
            replace(launcher("fghij", "worker-2"), phase="Pending"),
        ),
    },
    "RBD138": {
        "csi-addons fails to promote": replicated(FAILED_PROMOTION),
        "demoted by hand": replicated(replication()),
        "promoted by hand": replicated(COPY, primary=True),
        "not acted on yet": replicated(replication(is_current=False)),
        "a resync fails": replicated(
            replication(wanted="resync", completed=False, failure="FailedToResync")
        ),
        "of a group": replicated(
            replace(FAILED_PROMOTION, source="VolumeGroupReplication/group"),
            claims=(claim(replication_group="group"),),
        ),
        "made by Ramen": replicated(
            replace(FAILED_PROMOTION, owner="VolumeReplicationGroup/shop-drpc")
        ),
    },
    "RBD115": {
        "qemu": from_worker_2(
            of_image={"watchers": (watcher(address=STRANGER_ADDRESS, cookie=LIBRBD_COOKIE),)}
        )
    },
    "RBD116": {
        "mgr": unmapped(
            of_image={"watchers": (watcher(address=STRANGER_ADDRESS, client=3),)},
            in_ceph={"services": (ServiceAddress(kind="mgr", name="x", address=STRANGER_ADDRESS),)},
        ),
        "the copy of another cluster": unmapped(
            of_image={
                "watchers": (watcher(address=STRANGER_ADDRESS, client=3),),
                "mirrored": True,
                "primary": False,
                "mirror_daemons": (
                    ServiceAddress(kind="rbd-mirror", name="", address=STRANGER_ADDRESS, client=3),
                ),
            },
        ),
    },
    "RBD117": {
        "a transient watch": unmapped(
            of_image={"transient_watchers": (remote_watcher(cookie=LIBRBD_COOKIE),)}
        )
    },
    "RBD118": {"no pod": unmapped()},
    "RBD119": {
        "another node": from_worker_2(),
        "blind here": world(mapped={"openers": UNSEEN}),
        "blind everywhere": unmapped(ceph=None),
        "no node known": from_worker_2(of_image={"watchers": (watcher(address=STRANGER_ADDRESS),)}),
    },
    "RBD120": {"starting": world(in_kube={"pods": (waiting_pod(node="worker-1"),)})},
    "RBD201": {
        "plugin down (48)": world(mapped={"mounts": (mount(),)}, of_kubelet=PLUGIN_DOWN),
        "plugin down, the pod hangs": world(
            in_kube={"pods": (pod(deleting_since=JUST_NOW),)}, of_kubelet=PLUGIN_DOWN
        ),
        "the driver has another name now": world(
            in_kube={
                "pods": (pod(deleting_since=JUST_NOW),),
                "drivers": ("rook-ceph.rbd.csi.ceph.com",),
                "csi_nodes": (
                    CSINode(node_name="worker-1", drivers=("rook-ceph.rbd.csi.ceph.com",)),
                ),
            },
            of_kubelet={"sockets": ()},
        ),
    },
    "RBD202": {"kubelet down": world(of_kubelet={"process": None})},
    "RBD203": {
        "event (15)": world(in_kube=waits(EXISTS)),
        "an OSD is slow": world(in_kube=waits(EXISTS), in_ceph={"health": (SLOW_OSD,)}),
        "in D": world(
            on_node={
                "in_flight": (
                    in_flight("rbd", "rbd map x", process=process(state="D"), names=("/dev/rbd0",)),
                )
            }
        ),
        "osdc": world(
            mapped={"hung_requests": ("read rbd_data.1",), "hung_at": ("PG 1.6 on osd.0",)}
        ),
        "osdc under a running pod": world(
            mapped={"hung_requests": ("watch-ping rbd_header.1", "write rbd_data.1")},
            in_kube={"pods": (pod(),)},
        ),
    },
    "RBD211": {"its pod was replaced": GONE},
    "RBD212": {
        "of a map": CUT_OFF,
        "of the node, to an OSD": osd_lost(RouteKind.NONE),
        "a blackhole, to an OSD": osd_lost(RouteKind.REJECTED),
    },
    "RBD213": {
        "a monitor": in_networks(network_of_map(connections=(unanswered("192.0.2.10", 3300),))),
        "an OSD": osd_lost(RouteKind.FORWARDED, unanswered("10.77.0.1", 6801)),
    },
    "RBD204": {"no udev (13)": world(mapped={"device_node_present": False})},
    "RBD205": {"litter (11)": world(of_kubelet={"pod_volumes": (pod_directory(),)})},
    "RBD206": {
        "no JSON (6)": world(
            mapped={"mounts": (mount(),)}, of_kubelet={"staging": (staging(volume_data=None),)}
        )
    },
    "RBD123": {
        "renamed while a pod runs": world(
            mapped={"image_id": "9", "mounts": (mount(), mount(path=POD_PATH))},
            of_image={"watchers": ()},
            in_kube={"pods": (pod(),)},
        ),
        "renamed, nothing uses it": world(mapped={"image_id": "9"}, of_image={"watchers": ()}),
        "renamed, and no image has its name": world(
            in_ceph={"images": (GONE_IMAGE, RENAMED_IMAGE)}, in_kube={"pods": (pod(),)}
        ),
        "renamed, asked by its device": world(
            in_ceph={"images": (RENAMED_IMAGE,)}, in_kube={"pods": (pod(),)}, target=BY_DEVICE
        ),
        "at a path of the PV, mapped under another name": world(
            mapped={
                "spec": RENAMED_IMAGE.spec,
                "image_id": "9",
                "mounts": (mount(), mount(path=POD_PATH)),
            },
            of_image={"watchers": ()},
        ),
    },
    "RBD207": {
        "another cluster (37)": unmapped(on_node={"mappings": (mapping(fsid=OTHER_FSID),)}),
        "another namespace (38)": unmapped(
            on_node={"mappings": (mapping(spec=replace(SPEC, namespace="t"), image_id="9"),)}
        ),
        "made again, and no PV has the name": unmapped(
            on_node={"mappings": (mapping(image_id="9"),)},
            in_kube={"persistent_volumes": (), "claims": ()},
            target=BY_IMAGE,
        ),
    },
    "RBD301": {
        "gone": unmapped(of_image={"presence": ImagePresence.GONE, "image_id": None}),
        "gone while mapped (16)": world(
            of_image={"presence": ImagePresence.GONE, "image_id": None, "watchers": ()}
        ),
    },
    "RBD302": {"trash": unmapped(of_image={"presence": ImagePresence.TRASH})},
    "RBD303": {"old lock (29)": unmapped(of_image={"lockers": (OLD_LOCK,)})},
    "RBD304": {"own former client (21)": world(of_image={"lockers": (FORMER,)})},
    "RBD305": {"lingers (35)": world(on_node={"mappings": ()})},
    "RBD306": {
        "a former client (25)": world(
            in_ceph={"blocklist": (BlocklistEntry(network=ADDRESS.ip, nonce=7),)}
        )
    },
    "RBD307": {
        "two clusters": unmapped(
            ceph=CephView(
                clusters=(
                    cluster(),
                    cluster(name="b", fsid=OTHER_FSID, images=(image_view(fsid=OTHER_FSID),)),
                )
            ),
            target=BY_IMAGE,
        )
    },
    "RBD308": {"108 (51)": world(in_kube=waits(REFUSED))},
    "RBD401": {"Multi-Attach (1)": world(in_kube=waits(MULTI_ATTACH))},
    "RBD402": {"still being used (46)": world(in_kube=waits(BEING_USED))},
    "RBD407": {
        "nfs": unmapped(in_kube={"persistent_volumes": (volume(source=OtherSource(kind="nfs")),)})
    },
    "RBD408": {"stale (28)": unmapped(in_kube={"attachments": (attachment(),)})},
    "RBD409": {
        "detachError (26)": world(
            in_kube={
                "attachments": (attachment(deleting_since=JUST_NOW, detach_error="no secret"),)
            }
        )
    },
    "RBD410": {"no such node (27)": world(in_kube={"attachments": (attachment("worker-9"),)})},
    "RBD411": {"same handle (36)": world(in_kube={"persistent_volumes": (volume(), OTHER_PV)})},
    "RBD412": {
        "two volumes": world(
            in_kube={
                "pods": (pod(claims=("data", "more")),),
                "persistent_volumes": (
                    volume(),
                    volume(
                        name="zz",
                        source=InTreeRbdSource(spec=ImageSpec(pool="rbd", name="other")),
                        claim=ObjectRef(namespace="default", name="more"),
                    ),
                ),
            },
            target=BY_POD,
        )
    },
    "RBD413": {
        "attachError": world(
            in_kube={"attachments": (attachment("worker-2", attached=False, attach_error="no"),)}
        )
    },
    "RBD414": {"no name": unmapped(in_kube={"persistent_volumes": (volume(source=CSI),)})},
    "RBD415": {
        "the API is down": unmapped(kubernetes=None),
        "claims may not be read": unmapped(
            in_kube={"claims": UNSEEN, "persistent_volumes": (), "pods": ()}, target=BY_CLAIM
        ),
        "a pod without a volume": unmapped(in_kube={"pods": (pod(claims=()),)}, target=BY_POD),
    },
    "RBD416": {
        "runs elsewhere, no watch (50)": unmapped(in_kube={"pods": (pod("x", "worker-2"),)}),
        "runs here, no mapping": unmapped(in_kube={"pods": (pod(),)}),
    },
    "RBD901": {"no node": world(node=None)},
    "RBD902": {
        "no Ceph": world(ceph=None),
        "one cluster of two": world(
            ceph=CephView(
                clusters=(
                    cluster(),
                    cluster(
                        name="b",
                        fsid=None,
                        images=(),
                        source=Source(state=SourceState.FAILED, reason="timed out"),
                    ),
                )
            )
        ),
    },
    "RBD907": {"another machine": without_other_machine(world(on_node={"boot_id": "b002"}))},
    "RBD903": {"no API": world(kubernetes=None)},
    "RBD904": {
        "a gap": world(
            sources=Sources(
                node=replace(OBSERVED, gaps=(gap("open descriptors"),)),
                ceph=OBSERVED,
                kubernetes=OBSERVED,
            )
        )
    },
}
NOT_REPORTED: Final[dict[str, Table]] = {
    "RBD131": {
        "of another pool": world(
            in_ceph={"health": (replace(FULL_POOL, texts=("pool 'x' is full",)),)},
            in_kube={"pods": (pod(),)},
        ),
        "no pod uses it": world(in_ceph={"health": (FULL_POOL,)}),
    },
    "RBD727": {
        "it waits for its volumes": world(
            in_kube={"pods": (pod(phase="Pending", containers=(crashing("ContainerCreating"),)),)}
        ),
        "it runs": world(
            in_kube={"pods": (pod(containers=(ContainerState(name="c", state="running"),)),)}
        ),
        "the pod is being deleted": world(
            in_kube={
                "pods": (pod(deleting_since=OBSERVED, containers=(crashing("CrashLoopBackOff"),)),)
            }
        ),
    },
    "RBD128": {
        "one is a CD-ROM of both": machines(
            launcher(read_only_claims=("data",)),
            launcher("fghij", "worker-2", machine="vm2", read_only_claims=("data",)),
        ),
        "the other has ended": machines(
            launcher(), launcher("fghij", "worker-2", machine="vm2", phase="Succeeded")
        ),
        "the live migration of one": machines(launcher(), TARGET_POD, migrations=(migration(),)),
        "a machine of each of two namespaces with the same claim name": machines(
            launcher(),
            launcher(
                "fghij",
                "worker-2",
                ref=ObjectRef(namespace="other", name="virt-launcher-vm1-fghij", uid="o"),
            ),
        ),
    },
    "RBD136": {
        "one pod": machines(launcher()),
        "two machines": machines(launcher(), launcher("fghij", "worker-2", machine="vm2")),
        "the source has ended": machines(
            launcher(phase="Succeeded"), TARGET_POD, migrations=(migration("Succeeded"),)
        ),
        "its end has no time, and its target is old": machines(
            launcher(), OLD_TARGET, migrations=(migration("Succeeded"),)
        ),
        "two attachment pods of one virt-launcher": machines(
            launcher(claims=()),
            pod("hp-volume-1", owners=("Pod/virt-launcher-vm1-abcde",)),
            pod("hp-volume-2", owners=("Pod/virt-launcher-vm1-abcde",)),
        ),
    },
    "RBD137": {
        "a live migration": machines(launcher(), TARGET_POD, migrations=(migration(),)),
        "the migrations were refused": machines(launcher(), TARGET_POD, migrations=UNSEEN),
        "an earlier start is ending": machines(
            launcher(start="uid-of-an-earlier-start", deleting_since=JUST_NOW),
            launcher("fghij", "worker-2", phase="Pending"),
        ),
        "a pod of no machine": machines(pod(), pod("b", "worker-2")),
    },
    "RBD138": {
        "a copy that is not synchronised yet": replicated(COPY),
        "primary as demanded": replicated(replication(), primary=True),
        "the role was not observed": replicated(replication(), primary=None),
        "no VolumeReplication": replicated(),
        "they were refused": replicated(replications=UNSEEN),
        "of another claim": replicated(
            replace(FAILED_PROMOTION, source="PersistentVolumeClaim/other")
        ),
        "of another group": replicated(
            replace(FAILED_PROMOTION, source="VolumeGroupReplication/other"),
            claims=(claim(replication_group="group"),),
        ),
    },
    "RBD133": {
        "the first copy": mirrored(
            site("bootstrapping, IMAGE_SYNC/COPY_IMAGE 24%", state=MirrorState.SYNCING)
        ),
        "another error": mirrored(site("failed to open", state=MirrorState.ERROR)),
        "the status was not observed": world(
            of_image={
                "mirrored": True,
                "primary": False,
                "mirror_sites": NotObserved(reason="the status of mirroring: no answer"),
            }
        ),
        "no report": mirrored(),
    },
    "RBD134": {
        "primary here": mirrored(site(PRIMARY), primary=True),
        "primary there": mirrored(site(PRIMARY, is_local=False)),
        "the peer was demoted": mirrored(
            site("remote image is not primary", state=MirrorState.UNKNOWN, is_local=False),
            primary=True,
        ),
        "the peer's daemon is gone": mirrored(
            site(PRIMARY, is_local=False, is_up=False), primary=True
        ),
    },
    "RBD135": {
        "replaying": mirrored(site("replaying, {}", state=MirrorState.REPLAYING)),
        "split brain": mirrored(site("split-brain", state=MirrorState.ERROR)),
        "no report": mirrored(primary=True),
        "of the primary itself": mirrored(
            site("failed to open", state=MirrorState.ERROR),
            site("replaying, {}", state=MirrorState.REPLAYING, is_local=False),
            primary=True,
        ),
        "before the first report": mirrored(
            site("status not found", state=MirrorState.UNKNOWN, is_up=False)
        ),
    },
    "RBD129": {
        "primary": world(of_image={"primary": True}, in_kube={"pods": (pod(),)}),
        "mapped read-only": world(
            of_image={"primary": False}, mapped={"read_only": True}, in_kube={"pods": (pod(),)}
        ),
    },
    "RBD130": {
        "both have it": world(
            of_image={"features": ("exclusive-lock", "object-map")},
            mapped={"has_object_map": True},
        ),
        "the features of the image were not observed": world(mapped={"has_object_map": True}),
    },
    "RBD132": {
        "the snapshot is there": world(
            of_image={"snapshots": (4, 5)}, mapped={"snapshot": "daily", "snapshot_id": 5}
        ),
        "the snapshots were not observed": world(mapped={"snapshot": "daily", "snapshot_id": 5}),
        "the id of the mapped snapshot was not observed": world(
            of_image={"snapshots": ()}, mapped={"snapshot": "daily"}
        ),
        "a writable mapping": world(of_image={"features": ("layering", "migrating")}),
        "after the commit of a migration": world(
            of_image={"features": ("layering",)}, mapped={"read_only": True}
        ),
    },
    "RBD125": {
        "in one report": from_worker_2(in_kube={"published": (OF_CLIENT,)}),
        "in the report of the same node": world(in_kube={"published": (OF_CLIENT,)}),
        "of another cluster": from_worker_2(
            in_kube={
                "published": (
                    OF_CLIENT,
                    reported_by("worker-9", mappings=(reported_mapping(fsid=OTHER_FSID),)),
                )
            }
        ),
    },
    "RBD123": {
        "its image has its name": world(in_kube={"pods": (pod(),)}),
        "no PV names the image": world(
            in_ceph={"images": (RENAMED_IMAGE,)},
            in_kube={"persistent_volumes": (), "claims": ()},
            target=BY_DEVICE,
        ),
        "its name is in the journal of ceph-csi": world(
            mapped={"spec": replace(SPEC, name="prefix-1")},
            of_image={"spec": replace(SPEC, name="prefix-1")},
            target=BY_DEVICE,
        ),
        "another device": world(on_node={"mappings": (mapping(), NEIGHBOUR)}),
    },
    "RBD203": {
        "a pod writes": world(
            mapped={"hung_requests": ("write rbd_data.1",)}, in_kube={"pods": (pod(),)}
        ),
        "an OSD is slow, and nothing waits": world(
            in_kube={"pods": (pod(),)}, in_ceph={"health": (SLOW_OSD,)}
        ),
        "mkfs writes": world(
            mapped={"hung_requests": ("write rbd_data.1",)},
            on_node={"in_flight": (in_flight("mkfs.ext4", "mkfs.ext4 /dev/rbd0"),)},
        ),
    },
    "RBD211": {
        "no request waits": with_networks(GONE, mapped={"hung_requests": ()}),
        "namespaces are not all known": with_networks(GONE, absent=UNSEEN),
    },
    "RBD212": {
        "a route": in_networks(network_of_map()),
        "an OSD, and no request waits": osd_lost(RouteKind.NONE, hung=()),
    },
    "RBD213": {
        "it answers": in_networks(network_of_map()),
        "another OSD": osd_lost(RouteKind.FORWARDED, unanswered("10.77.0.9", 6801)),
    },
    "RBD401": {
        "no pod waits any more": world(in_kube={"events": (MULTI_ATTACH,)}),
    },
    "RBD402": {"no pod waits any more": world(in_kube={"events": (BEING_USED,)})},
    "RBD101": {"staging is mounted": world(mapped={"mounts": (mount(),)})},
    "RBD106": {
        "its check from the waiting node": world(
            of_image={"watchers": (watcher(), remote_watcher(cookie=LIBRBD_COOKIE))},
            in_kube={"pods": (waiting_pod(),)},
        ),
        "the API is down": world(
            of_image={"watchers": (watcher(), remote_watcher())}, kubernetes=None
        ),
    },
    "RBD118": {"a mapping": world()},
    "RBD205": {
        "its pod lives": world(
            of_kubelet={"pod_volumes": (pod_directory(),)}, in_kube={"pods": (pod(),)}
        ),
        "pods are not all known": world(
            of_kubelet={"pod_volumes": (pod_directory(),)},
            in_kube={"pods_scope": "namespace/default"},
        ),
    },
    "RBD303": {
        "its kubelet watches": unmapped(
            of_image={"lockers": (OLD_LOCK,), "watchers": (remote_watcher(client=12),)}
        )
    },
    "RBD304": {
        "its own lock": world(
            of_image={"lockers": (replace(FORMER, client=4393, address=ADDRESS),)}
        )
    },
    "RBD409": {"no error": world(in_kube={"attachments": (attachment(deleting_since=JUST_NOW),)})},
    "RBD410": {
        "nodes unknown": world(in_kube={"attachments": (attachment("worker-9"),), "nodes": UNSEEN})
    },
    "RBD416": {
        "kubelet stages by the first access mode: this one to read": unmapped(
            in_kube={
                "pods": (pod("x", "worker-2"),),
                "persistent_volumes": (volume(access_modes=("ReadOnlyMany", "ReadWriteOnce")),),
            }
        ),
        "it was deleted, and its containers have ended": unmapped(
            in_kube={
                "pods": (
                    pod(
                        "x",
                        "worker-2",
                        deleting_since="2026-11-21T02:50:00Z",
                        containers=(ContainerState(name="c", state="terminated"),),
                    ),
                )
            }
        ),
        "read-only takes no watch": unmapped(
            in_kube={
                "pods": (pod("x", "worker-2"),),
                "persistent_volumes": (volume(access_modes=("ReadOnlyMany",)),),
            }
        ),
    },
}
