"""The factory of snapshots: the defaults describe the true orphan, a keyword something else.

The orphan is the recorded one (kubelet restarted while NodeUnstage failed): an image of ceph-csi,
mapped on worker-1. Its stash and vol_data.json are left; it has no pod, mount or VolumeAttachment.
"""

# ruff: noqa: ANN401 - a builder takes any field of what it builds

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from msgspec.structs import replace

from rbdagent.collect.node.roots import NodeRoots
from rbdagent.config import Settings
from rbdagent.correlate import correlate
from rbdagent.model import (
    BlockHolder,
    BlockHolderKind,
    CephView,
    ClusterView,
    CsiImageMeta,
    CSINode,
    CsiSource,
    DeviceKind,
    DeviceNumber,
    Diagnosis,
    EntityAddress,
    Finding,
    Gap,
    HolderVerdict,
    ImagePresence,
    ImageSpec,
    ImageView,
    InFlight,
    IoCounters,
    KubeEvent,
    KubeletView,
    KubeView,
    Mapping,
    Mount,
    MountNamespace,
    NbdState,
    Node,
    NodeView,
    NotObserved,
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
    ServiceAddress,
    Snapshot,
    Source,
    Sources,
    SourceState,
    StagingDirectory,
    Target,
    TargetKind,
    UnbackedMount,
    Verdict,
    VolumeAttachment,
    VolumeData,
    Watcher,
)
from rbdagent.parse.handle import attachment_name, in_use_name, staging_hash
from rbdagent.rules import diagnose

if TYPE_CHECKING:
    from collections.abc import Mapping as MappingType

NOW: Final = "2026-11-21T03:00:00Z"
NOWHERE: Final = Settings(
    node_name="worker-1",
    roots=NodeRoots(procfs=Path("/none"), sysfs=Path("/none"), host_root=Path("/none")),
    clusters=(),
    kube=None,
    timeout_s=10.0,
    version="test",
)
"""Settings under which nothing is observed: for code that gets its snapshots elsewhere."""
LONG_AGO: Final = "2026-11-20T03:00:00Z"
JUST_NOW: Final = "2026-11-21T02:58:00Z"
FSID: Final = "7d112cea-dc64-4604-876a-0d7dcec17d1a"
OTHER_FSID: Final = "11111111-2222-3333-4444-555555555555"
DRIVER: Final = "rbd.csi.ceph.com"
HANDLE: Final = "0001-000a-lab-ceph-1-0000000000000001-a5aedea1-28da-40b4-92b8-33fd7de38647"
PV: Final = "pvc-7d6d4e77-8106-4cb4-948f-997d0d5f6de1"
SPEC: Final = ImageSpec(pool="k8s", name="csi-vol-a5aedea1-28da-40b4-92b8-33fd7de38647")
IMAGE_ID: Final = "101d576e3eb2"
AES_KEY: Final = "AQDFggNrngdREBAAAAAAAAAAAAAAAAAAAAAAAA=="
"""Head of a key that ceph-authtool 20.2.4 made with --key-type=aes; its secret is overwritten."""
AES256K_KEY: Final = "AgC7ggNru4AWKSAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="
"""The same for a key made without --key-type."""
CLIENT: Final = 4393
ADDRESS: Final = EntityAddress(ip="10.77.0.11", port=0, nonce=2632773861)
REMOTE_ADDRESS: Final = EntityAddress(ip="10.77.0.12", port=0, nonce=1932216381)
STRANGER_ADDRESS: Final = EntityAddress(ip="192.0.2.7", nonce=5)
"""The address of a client on none of the nodes."""
COOKIE: Final = 18446462598732840961
LIBRBD_COOKIE: Final = 94310735552
POD_UID: Final = "9eb33a05-ca49-4781-8d19-597499b70291"
UNSEEN: Final = NotObserved(reason="permission denied", hint="CAP_SYS_PTRACE")
ROOT: Final = "/var/lib/kubelet"
STAGING: Final = f"{ROOT}/plugins/kubernetes.io/csi/{DRIVER}/{staging_hash(HANDLE)}/globalmount"
STAGING_PATH: Final = f"{STAGING}/{HANDLE}"
POD_PATH: Final = f"{ROOT}/pods/{POD_UID}/volumes/kubernetes.io~csi/{PV}/mount"
OBSERVED: Final = Source(state=SourceState.OBSERVED)
FAILED: Final = Source(state=SourceState.FAILED, reason="connection refused", hint="try later")

T = TypeVar("T")


def _made(default: T, overrides: MappingType[str, Any]) -> T:
    return replace(default, **overrides)  # type: ignore[type-var]


# --------------------------------------------------------------------------------------------------
# The node
# --------------------------------------------------------------------------------------------------


def process(**overrides: Any) -> ProcessRef:
    return _made(ProcessRef(pid=4623, command="sleep 100000"), overrides)


HOST: Final = MountNamespace(
    inode=4026531841, process=ProcessRef(pid=1, command="/sbin/init"), is_host=True
)


def container(pod_uid: str | None = POD_UID, **overrides: Any) -> MountNamespace:
    inside = ProcessRef(pid=6790, command="/bin/app", pod_uid=pod_uid, container_id="c0ffee")
    return _made(MountNamespace(inode=4026532251, process=inside), overrides)


def mount(**overrides: Any) -> Mount:
    default = Mount(
        path=STAGING_PATH,
        device=DeviceNumber(major=252, minor=0),
        fs_type="ext4",
        source="/dev/rbd0",
        namespace=HOST,
    )
    return _made(default, overrides)


def opener(**overrides: Any) -> OpenFile:
    default = OpenFile(
        process=process(),
        kind=OpenKind.CWD,
        path="/",
        on_device=False,
        device=DeviceNumber(major=252, minor=0),
    )
    return _made(default, overrides)


NO_IO: Final = IoCounters(reads=812, writes=40, in_flight=0, discards=3, flushes=5)
"""The counters of a device that has no I/O: the same at every observation."""


def mapping(**overrides: Any) -> Mapping:
    default = Mapping(
        kind=DeviceKind.KRBD,
        device_id=0,
        device="/dev/rbd0",
        number=DeviceNumber(major=252, minor=0),
        spec=SPEC,
        image_id=IMAGE_ID,
        pool_id=1,
        fsid=FSID,
        client_id=CLIENT,
        client_address=ADDRESS,
        user="csi-rbd-node",
        size_bytes=67108864,
        hung_requests=(),
        io_counters=NO_IO,
    )
    return _made(default, overrides)


def nbd_mapping(**overrides: Any) -> Mapping:
    server = ProcessRef(pid=700, command=f"rbd-nbd map {SPEC} --cookie={HANDLE}")
    default = Mapping(
        kind=DeviceKind.NBD,
        device_id=0,
        device="/dev/nbd0",
        number=DeviceNumber(major=43, minor=0),
        spec=SPEC,
        image_id=None,
        pool_id=None,
        fsid=None,
        nbd=NbdState(recorded_pid=700, backend=HANDLE, process=server),
    )
    return _made(default, overrides)


NEIGHBOUR: Final = mapping(
    device="/dev/rbd1",
    device_id=1,
    number=DeviceNumber(major=252, minor=16),
    spec=ImageSpec(pool="k8s", name="csi-vol-other"),
    image_id="2222",
)
"""Another volume: it shows the address from which worker-1 reaches Ceph."""


def luks(**overrides: Any) -> BlockHolder:
    """Return the dm-crypt device that the CSI driver opens on the mapping."""
    default = BlockHolder(
        kind=BlockHolderKind.LUKS, name="dm-0", label=f"luks-rbd-{HANDLE}", of="rbd0"
    )
    return _made(default, overrides)


def staging(**overrides: Any) -> StagingDirectory:
    default = StagingDirectory(
        path=STAGING_PATH,
        driver=DRIVER,
        volume_handle=HANDLE,
        handle_hash=staging_hash(HANDLE),
        volume_data=VolumeData(driver=DRIVER, volume_handle=HANDLE),
        stash=CsiImageMeta(spec=SPEC),
        path_present=False,
    )
    return _made(default, overrides)


def pod_directory(**overrides: Any) -> PodVolumeDirectory:
    default = PodVolumeDirectory(
        path=POD_PATH,
        pod_uid=POD_UID,
        persistent_volume=PV,
        plugin="kubernetes.io~csi",
        volume_data=VolumeData(driver=DRIVER, volume_handle=HANDLE, persistent_volume=PV),
    )
    return _made(default, overrides)


def kubelet(**overrides: Any) -> KubeletView:
    default = KubeletView(
        roots=(ROOT,),
        process=ProcessRef(pid=300, command="kubelet", started_at=LONG_AGO),
        staging=(staging(),),
        pod_volumes=(),
        sockets=(PluginSocket(driver=DRIVER, path="/csi/csi.sock", listening=True),),
    )
    return _made(default, overrides)


PLUGIN_DOWN: Final = {
    "sockets": (PluginSocket(driver=DRIVER, path="/csi/csi.sock", listening=False),)
}
"""Change of kubelet's directories: the driver does not listen on its socket."""

UNBACKED: Final = UnbackedMount(
    pod_uid=POD_UID, persistent_volume=PV, path="/data", source="/dev/vda1", process=process()
)


def node_view(**overrides: Any) -> NodeView:
    default = NodeView(
        node_name="worker-1",
        hostname="worker-1",
        boot_id="b001",
        module_loaded=True,
        mappings=(mapping(),),
        kubelet=kubelet(),
        addresses=("10.77.0.11",),
    )
    return _made(default, overrides)


def in_flight(program: str, command: str, **overrides: Any) -> InFlight:
    default = InFlight(
        process=ProcessRef(pid=9000, command=command),
        program=program,
        names=tuple(word for word in command.split() if "/" in word),
    )
    return _made(default, overrides)


# --------------------------------------------------------------------------------------------------
# Ceph
# --------------------------------------------------------------------------------------------------


def watcher(**overrides: Any) -> Watcher:
    return _made(Watcher(address=ADDRESS, client=CLIENT, cookie=COOKIE), overrides)


def remote_watcher(**overrides: Any) -> Watcher:
    return _made(Watcher(address=REMOTE_ADDRESS, client=4239, cookie=COOKIE), overrides)


MGR: Final = ServiceAddress(
    kind="mgr", name="x", address=EntityAddress(ip="10.77.0.1", nonce=77), client=900
)
MGR_WATCH: Final = watcher(address=MGR.address, client=900, cookie=LIBRBD_COOKIE)


def mirror_daemon(watching: Watcher, **overrides: Any) -> ServiceAddress:
    """Return the rbd-mirror of a watcher's client; by default a daemon of the image's cluster."""
    default = ServiceAddress(
        kind="rbd-mirror", name="", address=watching.address, client=watching.client
    )
    return _made(default, overrides)


def image_view(**overrides: Any) -> ImageView:
    default = ImageView(
        spec=SPEC,
        fsid=FSID,
        presence=ImagePresence.PRESENT,
        image_id=IMAGE_ID,
        pool_id=1,
        header=f"rbd_header.{IMAGE_ID}",
        watchers=(watcher(),),
        metadata=(("csi.storage.k8s.io/pv/name", PV),),
    )
    return _made(default, overrides)


def cluster(**overrides: Any) -> ClusterView:
    default = ClusterView(
        name="ceph",
        source=OBSERVED,
        fsid=FSID,
        images=(image_view(),),
        pools=((1, "k8s"),),
    )
    return _made(default, overrides)


# --------------------------------------------------------------------------------------------------
# Kubernetes
# --------------------------------------------------------------------------------------------------


def volume(**overrides: Any) -> PersistentVolume:
    default = PersistentVolume(
        name=PV,
        uid="pv-uid",
        phase="Bound",
        source=CsiSource(
            driver=DRIVER,
            volume_handle=HANDLE,
            attributes=(
                ("clusterID", "lab-ceph-1"),
                ("imageName", SPEC.name),
                ("pool", SPEC.pool),
            ),
        ),
        claim=ObjectRef(namespace="default", name="data", uid="claim-uid"),
        access_modes=("ReadWriteOnce",),
        reclaim_policy="Delete",
        storage_class="rbd",
        provisioner=DRIVER,
    )
    return _made(default, overrides)


def claim(**overrides: Any) -> PersistentVolumeClaim:
    default = PersistentVolumeClaim(
        ref=ObjectRef(namespace="default", name="data", uid="claim-uid"),
        phase="Bound",
        volume_name=PV,
        storage_class="rbd",
        access_modes=("ReadWriteOnce",),
    )
    return _made(default, overrides)


def pod(name: str = "web-0", node: str | None = "worker-1", **overrides: Any) -> Pod:
    default = Pod(
        ref=ObjectRef(namespace="default", name=name, uid=POD_UID),
        node_name=node,
        phase="Running",
        ready=True,
        claims=("data",),
        created_at=LONG_AGO,
    )
    return _made(default, overrides)


def waiting_pod(name: str = "web-1", node: str | None = "worker-2", **overrides: Any) -> Pod:
    ref = ObjectRef(namespace="default", name=name, uid=f"{name}-uid")
    return pod(name, node, **{"ref": ref, "phase": "Pending", "ready": False, **overrides})


def node(name: str = "worker-1", **overrides: Any) -> Node:
    address = {"worker-1": "10.77.0.11", "worker-2": "10.77.0.12"}.get(name, "10.77.0.99")
    boot_id = {"worker-1": "b001", "worker-2": "b002"}.get(name, f"b-{name}")
    return _made(Node(name=name, ready=True, boot_id=boot_id, internal_ips=(address,)), overrides)


def attachment(node_name: str = "worker-1", **overrides: Any) -> VolumeAttachment:
    default = VolumeAttachment(
        name=attachment_name(HANDLE, DRIVER, node_name),
        attacher=DRIVER,
        node_name=node_name,
        persistent_volume=PV,
        attached=True,
        created_at=LONG_AGO,
    )
    return _made(default, overrides)


def event(message: str, **overrides: Any) -> KubeEvent:
    default = KubeEvent(
        kind="Pod",
        subject=ObjectRef(namespace="default", name="web-1"),
        type="Warning",
        reason="FailedAttachVolume",
        message=message,
        last_seen=JUST_NOW,
        reporter="attachdetach-controller",
    )
    return _made(default, overrides)


def reported_by(node_name: str, **overrides: Any) -> PublishedNode:
    """Return the fresh report of a node's agent; by default it has nothing mapped."""
    return _made(PublishedNode(name=node_name, observed_at=NOW), overrides)


def reported_mapping(**overrides: Any) -> PublishedMapping:
    """Return the default mapping as the agent of its node reports it."""
    default = PublishedMapping(
        device="/dev/rbd0",
        verdict=Verdict.ORPHANED,
        fsid=FSID,
        spec=SPEC,
        image_id=IMAGE_ID,
        client_id=CLIENT,
        client_address=ADDRESS,
        read_only=False,
        persistent_volume=PV,
        reasons=("nothing uses it",),
    )
    return _made(default, overrides)


def kube(**overrides: Any) -> KubeView:
    default = KubeView(
        server="https://10.77.0.1:6443",
        persistent_volumes=(volume(),),
        claims=(claim(),),
        nodes=(node("worker-1"), node("worker-2")),
        csi_nodes=(
            CSINode(node_name="worker-1", drivers=(DRIVER,)),
            CSINode(node_name="worker-2", drivers=(DRIVER,)),
        ),
        published=(reported_by("worker-2"),),
    )
    return _made(default, overrides)


IN_USE_NAME: Final = in_use_name(DRIVER, HANDLE)


# --------------------------------------------------------------------------------------------------
# The snapshot and its diagnosis
# --------------------------------------------------------------------------------------------------


def target(**overrides: Any) -> Target:
    return _made(Target(argument=f"pv/{PV}", kind=TargetKind.PERSISTENT_VOLUME, name=PV), overrides)


BY_IMAGE: Final = target(argument=str(SPEC), kind=TargetKind.IMAGE, name="", image=SPEC)


def snapshot(**overrides: Any) -> Snapshot:
    """Build a snapshot; ``node=None``, ``ceph=None`` or ``kubernetes=None``: that source failed."""
    default = Snapshot(
        observed_at=NOW,
        tool_version="0.1.0",
        target=target(),
        node=node_view(),
        ceph=CephView(clusters=(cluster(),)),
        kubernetes=kube(),
        sources=Sources(node=OBSERVED, ceph=OBSERVED, kubernetes=OBSERVED),
    )
    made = _made(default, overrides)
    if "sources" in overrides:
        return made
    return replace(
        made,
        sources=Sources(
            node=OBSERVED if made.node is not None else FAILED,
            ceph=OBSERVED if made.ceph is not None else FAILED,
            kubernetes=OBSERVED if made.kubernetes is not None else FAILED,
        ),
    )


def world(
    *,
    mapped: MappingType[str, Any] | None = None,
    on_node: MappingType[str, Any] | None = None,
    of_kubelet: MappingType[str, Any] | None = None,
    in_ceph: MappingType[str, Any] | None = None,
    of_image: MappingType[str, Any] | None = None,
    in_kube: MappingType[str, Any] | None = None,
    **overrides: Any,
) -> Snapshot:
    """Build a snapshot from changes to its parts: the mapping, the node, the image, the API."""
    seen = node_view(kubelet=kubelet(**(of_kubelet or {})), mappings=(mapping(**(mapped or {})),))
    images = {"images": (image_view(**(of_image or {})),)}
    return snapshot(
        **{
            "node": replace(seen, **(on_node or {})),
            "ceph": CephView(clusters=(cluster(**(images | dict(in_ceph or {}))),)),
            "kubernetes": kube(**(in_kube or {})),
            **overrides,
        }
    )


def from_worker_2(**parts: Any) -> Snapshot:
    """Build a snapshot on worker-2, where nothing is mapped; the watcher is on worker-1."""
    on_node = {"node_name": "worker-2", "mappings": (), "addresses": ("10.77.0.12",)}
    return world(on_node={"boot_id": "b002", **on_node}, **parts)


def unmapped(**parts: Any) -> Snapshot:
    """Build a snapshot in which no client holds the image: no mapping, no watcher."""
    on_node = {"mappings": (), **parts.pop("on_node", {})}
    of_image = {"watchers": (), **parts.pop("of_image", {})}
    return world(on_node=on_node, of_image=of_image, **parts)


def in_reverse_order(seen: Snapshot) -> Snapshot:
    """Return the snapshot with every tuple in reverse order."""

    def turn(value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(turn(item) for item in reversed(value))
        if hasattr(value, "__struct_fields__"):
            return replace(
                value, **{name: turn(getattr(value, name)) for name in value.__struct_fields__}
            )
        return value

    around: Snapshot = turn(seen)
    return around


def diagnosis_of(seen: Snapshot) -> Diagnosis:
    """Correlate and diagnose a snapshot."""
    return diagnose(correlate(seen), seen)


def judged(seen: Snapshot) -> HolderVerdict:
    """Return the verdict on the first holder."""
    return diagnosis_of(seen).holders[0]


def found(seen: Snapshot, code: str) -> Finding:
    """Return the finding of a code; fail with the reported codes if it is missing."""
    diagnosis = diagnosis_of(seen)
    for finding in diagnosis.findings:
        if finding.code == code:
            return finding
    codes = [finding.code for finding in diagnosis.findings]
    message = f"{code} was not reported, but {codes} and {diagnosis.verdict}"
    raise AssertionError(message)


def codes(seen: Snapshot) -> set[str]:
    """Return the codes that are reported."""
    return {finding.code for finding in diagnosis_of(seen).findings}


def gap(fact: str) -> Gap:
    return Gap(fact=fact, reason="permission denied", hint="run as root")
