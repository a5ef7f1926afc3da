"""States that people reported in public threads: the cause is in the first finding.

Files with a number are of that issue. Names, addresses and times are invented.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from rbdagent.correlate import correlate
from rbdagent.lifecycle.steps import lifecycle_of
from rbdagent.model import (
    CsiSource,
    LogEntry,
    LogExcerpt,
    MirrorSite,
    MirrorState,
    NodeLogs,
    NotObserved,
    PersistentVolume,
    observed_of,
)
from rbdagent.report.snapshot import load_snapshot
from rbdagent.report.text.layout import Layout
from rbdagent.report.text.lifecycle import story
from rbdagent.rules import diagnose
from tests.support.rows import each_row

if TYPE_CHECKING:
    from rbdagent.model import Diagnosis, ImageView, Snapshot

FIXTURES: Final = Path(__file__).parents[1] / "fixtures" / "reported"
LONG_BEFORE: Final = "2026-11-20T00:00:00Z"
CAUSES: Final = {
    "ceph-csi-1217": ("RBD762", "it is not mkfs, since the volume is a raw block device"),
    "ceph-csi-2552": ("RBD780", "has room for 29Gi only"),
    "ceph-csi-3000": ("RBD753", "its journal has to be replayed"),
    "ceph-csi-3268": ("RBD138", "The promotion itself is done"),
    "kubernetes-104785": ("RBD102", "/usr/bin/cadvisor"),
    "kubernetes-108217": ("RBD724", "is empty or damaged, so each try fails"),
    "kubernetes-47325": ("RBD106", "Stop /dev/rbd0 on worker-1 first"),
    "kubernetes-72107": ("RBD120", "If its event lists this volume as unmounted, restart"),
    "rook-13306": ("RBD724", "has not released the pod's volumes for 28d"),
    "rook-2547": ("RBD203", "the kernel logged it at"),
    "velero-7223": ("RBD301", "does not exist"),
    "volume-replication-operator-100": ("RBD641", "is a copy that is not primary here"),
    "ceph-csi-5306": ("RBD762", '"Failed to open key file". The log of the CSI node plugin'),
    "ceph-csi-859": ("RBD753", "A mount replays it: this alone is no damage"),
    "ceph-csi-935": ("RBD776", "names no secret for it"),
    "fence-gone-plugin-not-restarted": ("RBD308", "stays refused after the entry is gone"),
    "hetzner-kube-84": ("RBD615", "no class is the default"),
    "kubernetes-110163": ("RBD724", "device-mapper device dm-2 (datavg-datalv) is open on it"),
    "kubernetes-107214": ("RBD614", "A deletion cannot be undone"),
    "kubernetes-119608": ("RBD724", "nothing of the volume is left on worker-1"),
    "kubernetes-70175": ("RBD405", "its reclaim policy (Retain) keeps the PV"),
    "kubernetes-89910": ("RBD701", "its claim shop/data-app-0 does not exist"),
    "rook-12923": ("RBD308", "worker-1 is on Ceph's blocklist by range"),
    "rook-17644": ("RBD712", "the ServiceAccount rook-ceph/rbd-ctrlplugin-sa does not exist"),
    "rook-17651": ("RBD732", "is not installed in this cluster"),
    "rook-8728": ("RBD607", "is not ready"),
    "ceph-csi-858": ("RBD119", "No holder of"),
    "ceph-csi-899": ("RBD205", "nothing is mounted in the directory"),
    "cloudnative-pg-7997": ("RBD778", "kubelet grows it when one starts"),
    "home-4010": ("RBD628", "ReplicationDestination.volsync.backube app-dst"),
    "kubernetes-114207": ("RBD641", "waits until it is detached from worker-2"),
    "kubernetes-97230": ("RBD641", "waits until it is detached from worker-2"),
    "ocs-ci-5825": ("RBD607", 'Vault refuses the request (400): "invalid role name'),
    "rook-12915": ("RBD743", "is not primary in this cluster, and rbd-mirror writes to it"),
    "rook-2517": ("RBD113", "its watch on"),
    "rook-2261": ("RBD201", "nothing can be unmounted there"),
    "rook-3580": ("RBD752", "the metadata of its file system (xfs) is damaged"),
    "rook-3617": ("RBD617", "no provisioner in this cluster has that name"),
    "ceph-csi-3593": ("RBD302", "It still has 10 snapshots: it remains until they are gone"),
    "ceph-csi-4242": ("RBD642", "Ceph refuses the user of the secret that the PV names"),
    "kubevirt-3908": ("RBD100", "used by pod default/virt-launcher-vmapp-x8d4k on worker-1"),
    "rook-12394": ("RBD618", "whose container csi-rbdplugin does not run (CrashLoopBackOff)"),
    "rook-14278": ("RBD203", "placement groups of pool replicapool serve no I/O"),
    "rook-4772": ("RBD402", "client.844113 at 10.77.0.12:0/3052741168 (worker-2)"),
    "rook-6639": ("RBD775", "no external-resizer for its driver acts on it"),
    "rook-6371": ("RBD201", "names the CSI driver rook-ceph-system.rbd.csi.ceph.com, which is not"),
    "rook-6371-start": ("RBD732", "Installed drivers: rook-ceph.cephfs.csi.ceph.com, rook-ceph"),
    "rook-6457": ("RBD712", "it does not run, or it may not write it"),
    "secondary-image-locked": ("RBD743", "a non-primary mirror image"),
    "structure-needs-cleaning": ("RBD752", "Structure needs cleaning"),
    "velero-5141": ("RBD624", "belongs to an older claim of the same name"),
    "ceph-csi-1240": ("RBD607", "the plugin's ConfigMap has no cluster"),
    "ceph-csi-2301": ("RBD619", "the pool was never initialised, or the provisioner's pod"),
    "ceph-csi-3416": ("RBD302", "It still has 2 snapshots: it remains until they are gone"),
    "ceph-csi-3728": ("RBD607", "the VolumeSnapshot rbd-pvc-snapshot, is not bound"),
    "ceph-csi-4563": ("RBD607", "Ceph does not accept the key of the class's secret"),
    "external-snapshotter-1305": ("RBD650", "or until the VolumeSnapshot is deleted"),
    "kubevirt-11163": ("RBD621", "a file system that several nodes can write to"),
    "osd-full": ("RBD131", "pool k8s is full (no space)"),
    "primus-safe-730": ("RBD731", "is not registered with kubelet there"),
    "rook-3133": ("RBD779", "it was enlarged past Kubernetes"),
    "rook-3748": ("RBD601", "which does not exist. Existing storage classes"),
    "rook-4371": ("RBD113", "attached and is not Ready"),
    "volume-replication-operator-101": ("RBD116", "and reports the state replaying"),
    "velero-2519": ("RBD631", "whether it exists decides what to do"),
    "ceph-csi-157": ("RBD643", "external-provisioner has not removed its finalizer"),
    "ceph-csi-684": ("RBD740", "does not support all features of the image"),
    "ceph-csi-4712": ("RBD105", "its watch is gone"),
    "ceph-csi-4800": ("RBD606", "has reported nothing"),
    "external-attacher-66": ("RBD651", "which was never attached"),
    "k8s-tew-26": ("RBD607", "has no field userID"),
    "rook-11795": ("RBD748", "the PV has no ms_mode in its mapOptions"),
    "rook-12219": ("RBD731", "the directory of kubelet is"),
    "rook-2746": ("RBD613", "These pods have ended"),
    "rook-5902": ("RBD113", "Prove that the machine is off"),
    "rook-9928": ("RBD203", "placement groups of pool"),
    "velero-9515": ("RBD607", "is not ready"),
    "ceph-csi-1285": ("RBD752", "errors that fsck does not correct automatically"),
    "ceph-csi-1937": ("RBD607", "does not accept the imageFeatures of its class"),
    "ceph-csi-2781": ("RBD607", "does not find the pool of its data, or the RADOS namespace"),
    "ceph-csi-4382": ("RBD731", "kubelet has its directories at /data/k8s/kubelet"),
    "ceph-csi-5073": ("RBD619", "does not reach the monitors or OSDs from its own network"),
    "ceph-csi-6489": ("RBD642", "the handle my-image of this PV is not of its form"),
    "ceph-csi-834": ("RBD618", "does not run"),
    "cert-exporter-88": ("RBD102", "is kept open: mounted at"),
    "growth-secret-is-missing": ("RBD776", "the secret rook-ceph/rook-ceph-csi that"),
    "kubernetes-118503": ("RBD101", "is mapped, and nothing there uses it"),
    "rook-18254": ("RBD747", "of a type that the driver's librados does not support (aes256k)"),
    "snapshotter-is-missing": ("RBD607", "have no container csi-snapshotter"),
    "valkey-helm-28": ("RBD111", "both belong to one workload"),
    "cdi-3719": ("RBD628", "CDI waits until pod shop/virt-launcher-vm1-zx9mj"),
    "ceph-csi-1047": ("RBD203", "and to all OSDs (ports 6800 to 7568)"),
    "ceph-csi-1062": ("RBD619", "Ceph reports that pool k8s is full"),
    "ceph-csi-1323": ("RBD203", "it runs without the option noudev"),
    "ceph-csi-1490": ("RBD607", "the VolumeSnapshot data-snap, is not bound"),
    "ceph-csi-2044": ("RBD738", "and rbdagent finds"),
    "ceph-csi-2204": ("RBD755", "has become read-only: writes of shop/app-0 fail"),
    "ceph-csi-2712": ("RBD619", "does not reach the monitors or OSDs from its own network"),
    "ceph-csi-3931": ("RBD607", "does not serve the version of VolumeSnapshot"),
    "ceph-csi-4013": ("RBD741", "a clone with more than 16 parents"),
    "ceph-csi-4312": ("RBD402", "Only rbd-mirror watches the image"),
    "ceph-csi-6179": ("RBD607", "the VolumeSnapshot snap-2, is not ready"),
    "ceph-csi-634": ("RBD735", "refuse its kernel, which is too old"),
    "kubrix-389": ("RBD620", "Velero restores claim shop/data into another claim"),
    "mongodb-kubernetes-operator-829": (
        "RBD620",
        "A pod of StatefulSet/app, which MongoDBCommunity/app makes, uses it",
    ),
    "ocs-ci-11605": ("RBD607", "its volumeMode differs from that of its source"),
    "ocs-ci-13690": ("RBD308", "is on Ceph's blocklist by range 10.77.0.11/32"),
    "ramen-302": ("RBD652", "csi-addons has set it, and removes it with its VolumeReplication"),
    "rook-11626": ("RBD203", "osd.1 has slow ops"),
    "rook-1110": ("RBD739", "cannot load the rbd module of its kernel"),
    "rook-11490": ("RBD763", "is changing the group of the volume's files"),
    "rook-11541": ("RBD741", "does not know an option of the map"),
    "rook-12991": ("RBD736", "Ceph refuses the driver's user"),
    "rook-14440": ("RBD100", "is in use"),
    "rook-14514": ("RBD607", "the VolumeSnapshot data-snap, is not ready"),
    "rook-3751": ("RBD735", "refuse its kernel, which is too old"),
    "rook-4062": ("RBD779", "was enlarged past Kubernetes"),
    "rook-7188": ("RBD607", "most likely it is erasure-coded"),
    "rook-7423": ("RBD619", "placement groups of pool k8s serve no I/O"),
    "rook-7861": ("RBD203", "was mapped from the network of a pod"),
    "tcmu-runner-293": ("RBD641", "Clients that have it open"),
    "ceph-csi-1705": ("RBD607", "the user of the class's secret may not use the pool"),
    "ceph-csi-1771": ("RBD607", "expects topology labels, and no node reports any"),
    "ceph-csi-1820": ("RBD203", "waits for udev, whose events do not reach"),
    "ceph-csi-2104": ("RBD619", "pod does not reach the monitors or OSDs"),
    "ceph-csi-3759": ("RBD746", "although the PV is not encrypted"),
    "ceph-csi-427": ("RBD621", "RBD has none"),
    "ceph-csi-4809": ("RBD733", "without its namespace"),
    "ceph-csi-4853": ("RBD607", "requests ReadOnlyMany without a snapshot or a claim"),
    "ceph-csi-710": ("RBD731", "the directory of kubelet is /opt/cke/kubelet"),
    "ceph-csi-87": ("RBD762", "a program is missing in the image of the CSI node plugin"),
    "ceph-csi-966": ("RBD753", "features that this kernel does not know"),
    "create-rbd-support-not-loaded": ("RBD607", "module rbd_support of ceph-mgr does not run"),
    "create-source-being-flattened": ("RBD745", "Ceph's manager has flattened its source"),
    "ceph-csi-4009": ("RBD619", "does not return, although Ceph's monitors answer rbdagent"),
    "kubevirt-velero-plugin-117": ("RBD607", "its source, the VolumeSnapshot"),
    "kubernetes-72604": ("RBD724", "its log has no try to unmount it"),
    "kubernetes-64869": ("RBD113", "its watch on"),
    "kubernetes-72335": ("RBD641", "a Node that no longer exists"),
    "rook-12759": ("RBD735", "its kernel does not reach Ceph"),
    "ceph-csi-2397": ("RBD735", "Ceph's monitors refuse its kernel, which is too old"),
    "rook-8058": ("RBD752", "errors that fsck does not correct"),
    "rook-12090": ("RBD402", "while the image has another watcher"),
    "ceph-csi-3700": ("RBD727", "ends again and again"),
    "ceph-csi-5132": ("RBD642", "has snapshots or clones (39)"),
    "rook-15078": ("RBD607", "has the cluster rook-ceph, and no monitors of it"),
    "rook-15078-stage": ("RBD734", "contains the cluster rook-ceph, and no monitors of it"),
    "ceph-csi-operator-80": ("RBD607", "topology"),
    "ceph-csi-4010": ("RBD610", "is of storage class none, the claim requests rook-ceph-block"),
    "ceph-csi-740": ("RBD113", "worker-2 is not Ready"),
    "ceph-csi-5402": ("RBD732", "which is not installed in this cluster"),
    "ceph-csi-3113": ("RBD734", "sends the map into the network namespace"),
    "ceph-csi-1406": ("RBD754", "its access modes contain ReadOnlyMany"),
    "ceph-csi-952": ("RBD753", "its PV has the mount option ro"),
    "ceph-csi-3472": ("RBD618", "does not run"),
    "kubernetes-93385": ("RBD402", "client.5604016 at 10.132.29.1:0/4129336760"),
    "kubernetes-116847": ("RBD724", "vol_data.json in the pod's directory, is gone"),
    "ceph-csi-1384": ("RBD778", "its status has not: no pod runs with it"),
    "ceph-csi-5148": ("RBD642", "which ceph-csi's encryption needs, does not exist"),
    "ceph-csi-5148-create": ("RBD607", "which ceph-csi's encryption needs, does not exist"),
    "ceph-csi-5148-stage": ("RBD746", "which ceph-csi's encryption needs, does not exist"),
    "prometheus-operator-3631": ("RBD727", "ends again and again"),
    "ceph-csi-2075": ("RBD769", "that node has not mapped the image"),
    "ceph-csi-568": ("RBD768", "the kernel has stopped its file system after I/O errors"),
    "rook-3579": ("RBD642", "does not return: Ceph reports that pool k8s is full (no space)"),
    "delete-34": ("RBD642", "is longer than the driver expects (34)"),
    "delete-95-ceph-too-old": ("RBD642", "Ceph is older than this ceph-csi supports"),
    "delete-mgr-key-without-osd-caps": ("RBD642", "the key of ceph-mgr itself has no rights"),
    "demoted-under-a-running-pod": ("RBD755", "not primary in this cluster any more"),
    "driver-on-no-node": ("RBD731", "is registered on no node. Look at the DaemonSet"),
    "encrypted-wrong-fs-type": ("RBD753", "what is on the LUKS device /dev/mapper/luks-rbd-"),
    "force-deleted-and-kubelet-runs": ("RBD109", "has forgotten the pod"),
    "fs-cannot-read-superblock": ("RBD768", "each read of the device fails"),
    "fs-duplicate-uuid-or-newer-feature": ("RBD753", "same UUID (a clone), or it has features"),
    "grow-no-resizer": ("RBD775", "no external-resizer for its driver acts on it"),
    "grow-node-fails-under-a-running-pod": ("RBD777", "The data is not damaged"),
    "grow-resizer-refused": ("RBD776", "encrypted volumes do not support resize"),
    "io-hangs-under-a-running-pod": ("RBD203", "although Ceph answers rbdagent"),
    "map-22-clone-being-flattened": ("RBD745", "is flattening the image"),
    "map-30-sysfs-read-only": ("RBD744", "/sys is most likely read-only in the container"),
    "mgr-watches-and-nothing-can-be-asked": (
        "RBD115",
        "find its owner (ceph-mgr? mon caps 'allow r')",
    ),
    "newest-event-hides-still-being-used": ("RBD402", "client.5200 at 10.77.0.12:0/777 (worker-2)"),
    "newest-event-is-general": ("RBD733", "shop/csi-rbd-secret"),
    "osds-out-of-reach-of-this-node": ("RBD203", "this node does not reach that OSD"),
    "plugin-cannot-load-the-module": ("RBD731", "has not loaded the module rbd"),
    "plugin-network-without-its-osds": ("RBD213", "to osd.0 (198.51.100.20:6801) get no answer"),
    "plugin-without-its-ceph-network": ("RBD203", "network namespace of the plugin's pod"),
    "resize-at-stage-device-busy": ("RBD761", "forbids writes to a device that is mounted"),
    "rook-5379": ("RBD776", "names no secret for it"),
    "rook-7362": ("RBD607", "the pool that its class names does not exist"),
    "rook-8749": ("RBD619", "was never initialised"),
    "snapshot-larger-than-the-claim": ("RBD607", "its source data-snap has 10737418240"),
    "ceph-csi-2063": ("RBD607", "the client in ceph-csi 3.3.0 is too old for monitors"),
    "external-storage-903": ("RBD113", "Ceph lists no watch of that node"),
    "ocs-ci-8831": ("RBD113", "Ceph lists no watch of that node"),
    "external-resizer-316": ("RBD776", "is a static volume (staticVolume in its volumeAttributes)"),
    "rook-5311": ("RBD607", "is not bound to a VolumeSnapshotContent"),
    "primus-safe-730-no-plugin-pod": ("RBD731", "is not registered with kubelet there"),
    "wazuh-kubernetes-432": ("RBD607", "The class general of the same provisioner has all that"),
    "k8up-978": ("RBD112", "waits for the volume that shop/gitlab-postgresql-0 on worker-2 uses"),
    "rook-12556": ("RBD731", "kubelet has its directories at /mnt/disk1/kubelet"),
    "rook-4660": ("RBD642", "has no pool 8, which its handle names"),
    "stage-volume-not-found-after-restore": (
        "RBD767",
        "restored without its journal entry, or",
    ),
    "two-virtual-machines-on-one-disk": ("RBD128", "these are different machines"),
    "watcher-on-an-overlay-named-by-metadata": (
        "RBD402",
        "client.5200 at 100.64.0.5:0/777 (probably worker-2)",
    ),
}


def asked(name: str) -> Diagnosis:
    """Diagnose a reported state as `rbdagent diagnose TARGET --from FILE` does."""
    path = FIXTURES / f"{name}.json"
    snapshot = load_snapshot(path.read_text(), where=str(path))
    return diagnose(correlate(snapshot), snapshot)


def test_each_reported_state_has_a_row() -> None:
    assert {path.stem for path in FIXTURES.glob("*.json")} == CAUSES.keys()


@each_row("name", CAUSES)
def test_first_finding_names_the_cause(name: str) -> None:
    code, words = CAUSES[name]
    found = asked(name).findings
    assert found[0].code == code
    assert words in found[0].message


NOTES: Final = {
    "ceph-csi-858": "No PV in this cluster has",
    "cloudnative-pg-7997": "The image of claim shop/data has grown",
}


@each_row("name", NOTES)
def test_what_a_free_volume_waits_for_comes_before_its_holders(name: str) -> None:
    path = FIXTURES / f"{name}.json"
    snapshot = load_snapshot(path.read_text(), where=str(path))
    said = story(lifecycle_of(correlate(snapshot), snapshot), snapshot, Layout(width=100))
    assert said.startswith(f"INFO  {NOTES[name]}")
    assert "No holder of" in said


REMEDIES: Final = {
    "ceph-csi-859": "Update ceph-csi: 2.1.0 and newer do not run xfs_repair",
    "kubernetes-108217": "`umount` (never lazily) the volume's mount below",
    "kubernetes-116847": "Restart kubelet on that node: it then finds out from the node itself",
    "kubernetes-72107": "Restart kubelet on that node: it then reads from the node",
    "ceph-csi-935": "Add controllerExpandSecretRef to the PV",
    "k8up-978": "Run the pod of the Job on worker-2 too",
    "rook-2517": "Start kubelet on worker-2",
    "rook-6371": "Install the driver again under exactly the name that the PV has",
    "kubernetes-93385": "Find the machine that has the address 10.132.29.1",
    "kubernetes-70175": "To use it again, write the name and namespace of the new claim",
    "kubernetes-89910": "Delete the pod: StatefulSet/app then creates the claim again",
    "ceph-csi-2301": "rados stat rbd_info --pool=kubernetes",
    "ceph-csi-2063": "if they are equal, update ceph-csi to 3.3.1 or newer",
    "rook-5311": "Check that a Deployment snapshot-controller runs",
    "primus-safe-730-no-plugin-pod": "compare the node's taints and labels with its tolerations",
    "wazuh-kubernetes-432": "and create it with the class general",
    "rook-12556": "if only this node has it there, drain the node and set --root-dir",
    "rook-4660": "then update a ceph-csi that is older than 2.0.1",
}


@each_row("name", REMEDIES)
def test_advice_is_shown_where_no_component_ends_the_state(name: str) -> None:
    path = FIXTURES / f"{name}.json"
    snapshot = load_snapshot(path.read_text(), where=str(path))
    said = story(lifecycle_of(correlate(snapshot), snapshot), snapshot, Layout(width=100))
    assert REMEDIES[name] in " ".join(said.split())


def test_pool_with_a_volume_of_the_driver_was_initialised() -> None:
    path = FIXTURES / "ceph-csi-2301.json"
    seen = load_snapshot(path.read_text(), where=str(path))
    assert seen.kubernetes is not None
    (of_class,) = observed_of(seen.kubernetes.storage_classes)
    source = CsiSource(
        driver=of_class.provisioner, volume_handle="h", attributes=(("pool", of_class.pool),)
    )
    made = PersistentVolume(
        name="pvc-1", phase="Bound", source=source, provisioner=of_class.provisioner
    )
    kube = replace(seen.kubernetes, persistent_volumes=(made,))
    found = replace(seen, kubernetes=kube)
    message = diagnose(correlate(found), found).findings[0].message
    assert "most likely the provisioner's pod does not reach" in message
    assert "initialised" not in message


def test_in_tree_volume_has_no_volume_attachment() -> None:
    """Its Node lists it as attached: external-storage#903 (Kubernetes 1.11)."""
    path = FIXTURES / "external-storage-903.json"
    seen = load_snapshot(path.read_text(), where=str(path))
    steps = lifecycle_of(correlate(seen), seen)
    assert "Node worker-1 does not list it as attached" in [one.detail for one in steps.attach_path]
    (leaving,) = steps.detach_paths
    assert "Node worker-2 lists it as attached" in [one.detail for one in leaving.stages]


def test_kubelet_whose_call_has_not_returned_has_tried() -> None:
    """The error of a call that hangs is logged when its time is over."""
    path = FIXTURES / "kubernetes-72604.json"
    seen = load_snapshot(path.read_text(), where=str(path))
    assert seen.node is not None
    assert isinstance(seen.node.logs, NodeLogs)
    call = LogEntry(at=seen.observed_at, text="", names=(), call="NodeUnstage", unanswered=True)
    plugin = LogExcerpt(since=seen.observed_at, lines=(call,))
    hanging = replace(seen, node=replace(seen.node, logs=replace(seen.node.logs, plugin=plugin)))
    messages = [finding.message for finding in diagnose(correlate(hanging), hanging).findings]
    assert not any("has no try" in message for message in messages)


def seen_in(name: str) -> Snapshot:
    path = FIXTURES / f"{name}.json"
    return load_snapshot(path.read_text(), where=str(path))


def messages_of(seen: Snapshot) -> dict[str, str]:
    return {finding.code: finding.message for finding in diagnose(correlate(seen), seen).findings}


def image_of(seen: Snapshot) -> ImageView:
    assert seen.ceph is not None
    (cluster,) = seen.ceph.clusters
    (view,) = cluster.images
    return view


def with_image(seen: Snapshot, view: ImageView) -> Snapshot:
    assert seen.ceph is not None
    (cluster,) = seen.ceph.clusters
    return replace(seen, ceph=replace(seen.ceph, clusters=(replace(cluster, images=(view,)),)))


def test_requests_that_were_read_decide_more_than_the_kernels_line() -> None:
    """The kernel does not log that a wait has ended."""
    seen = seen_in("rook-2547")
    assert seen.node is not None
    (mapping,) = observed_of(seen.node.mappings)
    read = replace(seen, node=replace(seen.node, mappings=(replace(mapping, hung_requests=()),)))
    assert "RBD203" not in messages_of(read)


def test_status_of_a_program_is_of_mkfs_on_a_volume_with_a_file_system() -> None:
    seen = seen_in("ceph-csi-1217")
    assert seen.kubernetes is not None
    (made,) = observed_of(seen.kubernetes.persistent_volumes)
    kube = replace(seen.kubernetes, persistent_volumes=(replace(made, volume_mode="Filesystem"),))
    assert "no file system can be created" in messages_of(replace(seen, kubernetes=kube))["RBD751"]


def test_daemons_that_hold_a_primary_image_are_counted() -> None:
    seen = seen_in("volume-replication-operator-100")
    view = image_of(seen)
    features = tuple(name for name in view.features if name != "non-primary")
    primary = replace(view, primary=True, features=features)
    assert "mirrorDaemonCount" in messages_of(with_image(seen, primary))["RBD641"]


def test_promotion_that_another_cluster_follows_waits_for_none() -> None:
    seen = seen_in("ceph-csi-3268")
    peer = MirrorSite(
        is_local=False, state=MirrorState.REPLAYING, description="replaying", is_up=True
    )
    followed = with_image(seen, replace(image_of(seen), mirror_sites=(peer,)))
    message = messages_of(followed)["RBD138"]
    assert "The promotion itself is done" in message
    assert "No other cluster" not in message


def test_silence_of_kubelets_log_is_that_of_a_log_with_no_line_of_the_volume() -> None:
    seen = seen_in("kubernetes-72107")
    assert seen.node is not None
    assert isinstance(seen.node.logs, NodeLogs)
    line = LogEntry(at=seen.observed_at, text="MountVolume started", names=())
    for kubelet in (
        LogExcerpt(since=LONG_BEFORE, lines=(line,)),
        LogExcerpt(since=seen.observed_at),
        NotObserved(reason="no journal"),
    ):
        logs = replace(seen.node.logs, kubelet=kubelet)
        message = messages_of(replace(seen, node=replace(seen.node, logs=logs)))["RBD120"]
        assert "nothing that was observed shows why: read its log." in message


def test_kubelet_that_reports_another_volume_is_not_to_be_restarted() -> None:
    seen = seen_in("kubernetes-72107")
    assert seen.kubernetes is not None
    (waits,) = observed_of(seen.kubernetes.events)
    text = 'MountVolume.SetUp failed for volume "config" : configmap "app" not found'
    kube = replace(seen.kubernetes, events=(waits, replace(waits, message=text)))
    assert "restart kubelet" not in messages_of(replace(seen, kubernetes=kube))["RBD120"]


def test_in_tree_staging_has_no_volume_data() -> None:
    assert "RBD206" not in messages_of(seen_in("kubernetes-47325"))
