"""Rows of the rules on mounts that fail on a node, by code: reported, or not."""

from __future__ import annotations

from typing import Any, Final

from msgspec.structs import replace

from rbdagent.model import (
    BlocklistEntry,
    ContainerState,
    CSINode,
    ImagePresence,
    InTreeRbdSource,
    KubeEvent,
    LockHolder,
    ObjectRef,
    Snapshot,
)
from tests.support.rule_tables import (
    NOTHING_ELSE,
    NotReported,
    Reported,
    attached,
    kubelet_event,
    listing,
    mounting,
    stage,
)
from tests.support.snapshots import (
    ADDRESS,
    DRIVER,
    HANDLE,
    JUST_NOW,
    LONG_AGO,
    NOW,
    PV,
    SPEC,
    UNSEEN,
    event,
    mount,
    node,
    pod,
    remote_watcher,
    unmapped,
    volume,
    waiting_pod,
    world,
)

NONE: Final = NOTHING_ELSE
MAP: Final = (
    "rbd: map failed with error an error (exit status {number}) occurred while running rbd args: "
    "[--id csi-rbd-node -m 10.77.0.1:6789 --keyfile=***stripped*** map k8s/csi-vol-1 --device-type "
    "krbd --options noudev], rbd error output: rbd: sysfs write failed\n"
    "rbd: map failed: ({number}) {text}"
)
NO_SECRET: Final = (
    f'MountVolume.MountDevice failed for volume "{PV}" : fetching NodeStageSecretRef '
    "ceph/csi-rbd-secret failed: kubernetes.io/csi: failed to find the secret csi-rbd-secret in "
    'the namespace ceph with error: secrets "csi-rbd-secret" not found'
)
NOT_REGISTERED: Final = (
    f'MountVolume.MountDevice failed for volume "{PV}" : kubernetes.io/csi: '
    f"attacher.MountDevice failed to create newCsiDriverClient: driver name {DRIVER} not found in "
    "the list of registered CSI drivers"
)
SOCKET: Final = (
    f'MountVolume.MountDevice failed for volume "{PV}" : rpc error: code = Unavailable desc = '
    'connection error: desc = "transport: Error while dialing: dial unix '
    f'/var/lib/kubelet/plugins/{DRIVER}/csi.sock: connect: connection refused"'
)
BEING_USED: Final = stage(f"rbd image {SPEC} is still being used")
IN_TREE: Final = (
    "Unable to attach or mount volumes: unmounted volumes=[data], unattached volumes=[], failed to "
    'process volumes=[data]: failed to get Plugin from volumeSpec for volume "data" err=no volume '
    "plugin matched"
)
WITHOUT: Final = (
    CSINode(node_name="worker-1", drivers=(DRIVER,)),
    CSINode(node_name="worker-2", drivers=("nfs.csi.k8s.io",)),
)
PULLING: Final = ContainerState(name="c", state="waiting", reason="ImagePullBackOff")
READ_ONLY: Final = {"mounts": (mount(read_only=True),)}
NO_KEY: Final = (
    # rbd 20.2.4 on kernels 6.1 and 5.10 with a key of type aes256k.
    "rbd: map failed with error an error (exit status {status}) occurred while running rbd args: "
    "[--id csi-rbd-node -m 10.77.0.1:6789 --keyfile=***stripped*** map k8s/csi-vol-1 --device-type "
    "krbd --options noudev], rbd error output: rbd: failed to add secret 'client.csi-rbd-node' to "
    "kernel\nrbd: map failed: ({number}) {text}"
)
MS_MODE: Final = (
    # rbd 16.2.15 and 18.2.7 without ms_mode, monitors of Ceph 20.2.4 with v2 addresses only.
    "rbd: map failed with error an error (exit status 2) occurred while running rbd args: [--id "
    "csi-rbd-node -m 10.77.0.1:3300 --keyfile=***stripped*** map k8s/csi-vol-1 --device-type krbd "
    "--options noudev], rbd error output: rbd: failed to get mon address (possible ms_mode "
    "mismatch)\nrbd: map failed: (2) No such file or directory"
)


def mapping_fails(number: int, text: str) -> Snapshot:
    return mounting(stage(MAP.format(number=number, text=text)))


DEAD_OWNER: Final = LockHolder(client=99, address=ADDRESS, lock_id="auto 18446462598732840961")
NOT_PERMITTED: Final[dict[str, Any]] = {
    "pods": (waiting_pod(),),
    "attachments": attached("worker-2"),
    "nodes": (node(), listing("worker-2")),
    "events": (kubelet_event(stage(MAP.format(number=13, text="Permission denied"))),),
}
REPORTED: Final[Reported] = {
    "RBD731": {
        "by CSINode": (mounting(csi_nodes=WITHOUT), NONE),
        "by CSINode and by kubelet": (mounting(NOT_REGISTERED, csi_nodes=WITHOUT), NONE),
        "by kubelet": (mounting(NOT_REGISTERED), NONE),
        "its socket is dead": (mounting(SOCKET), NONE),
        "according to the attacher": (
            mounting(
                attachments=attached(
                    "worker-2",
                    attached=False,
                    attach_error=f"CSINode worker-2 does not contain driver {DRIVER}",
                )
            ),
            NONE,
        ),
    },
    "RBD732": {
        "Rook's name elsewhere": (
            mounting(
                drivers=("rook-ceph.rbd.csi.ceph.com",),
                csi_nodes=(CSINode(node_name="worker-2", drivers=("rook-ceph.rbd.csi.ceph.com",)),),
            ),
            NONE,
        )
    },
    "RBD733": {
        "kubelet": (mounting(NO_SECRET), NONE),
        "the attacher": (
            mounting(
                attachments=attached(
                    "worker-2",
                    attached=False,
                    attach_error='failed to load secret "ceph/csi-rbd-secret": secrets '
                    '"csi-rbd-secret" not found',
                )
            ),
            NONE,
        ),
    },
    "RBD734": {
        "another cluster's PV": (
            mounting(stage(f'error generating volume {HANDLE}: missing configuration for cluster '
                           'ID "lab-ceph-1"')),
            NONE,
        )
    },
    "RBD735": {
        "librados": (
            mounting(stage("failed to establish the connection: failed to get connection: "
                           "connecting failed: rados: ret=-110, Connection timed out")),
            NONE,
        ),
        "rbd map": (mapping_fails(110, "Connection timed out"), NONE),
    },
    "RBD736": {
        "a wrong key": (
            mounting(stage("failed to establish the connection: failed to get connection: "
                           "connecting failed: rados: ret=-13, Permission denied")),
            NONE,
        ),
        "small caps": (mapping_fails(1, "Operation not permitted"), NONE),
        "another user's key, by rbd (tests/fixtures/life)": (
            mounting(stage(MAP.partition("rbd: sysfs")[0].format(number=13)
                           + "rbd: couldn't connect to the cluster!\n")),
            NONE,
        ),
    },
    "RBD737": {
        "gone": (mounting(stage(f"error generating volume {HANDLE}: pool not found")), NONE),
        "by id": (
            mounting(stage("pool not found: pool ID(7) not found in Ceph cluster")),
            NONE,
        ),
    },
    "RBD738": {
        "by ceph-csi": (
            mounting(stage(f"error generating volume {HANDLE}: Failed as image not found (internal "
                           "Failed as image not found: RBD image not found)")),
            NONE,
        ),
        "by rbd": (mapping_fails(2, "No such file or directory"), NONE),
    },
    "RBD739": {
        "a slim kernel": (
            mounting(stage("rbd: map failed with error an error (exit status 2) occurred while "
                           "running rbd args: [], rbd error output: modprobe: FATAL: Module rbd "
                           "not found in directory /lib/modules/6.1.0\nrbd: failed to load rbd "
                           "kernel module (1)\nrbd: sysfs write failed\nrbd: map failed: (2) No "
                           "such file or directory")),
            NONE,
        )
    },
    "RBD740": {
        "by the kernel": (
            mounting(stage("rbd: map failed with error an error (exit status 6) occurred while "
                           "running rbd args: [], rbd error output: rbd: sysfs write failed\nRBD "
                           "image feature set mismatch. You can disable features unsupported by "
                           'the kernel with "rbd feature disable k8s/x journaling".\nrbd: map '
                           "failed: (6) No such device or address")),
            NONE,
        ),
        "by ceph-csi": (mounting(stage("unsupported krbd Feature")), NONE),
        "by ceph-csi, of the PV": (
            mounting(stage("feature journaling requires rbd-nbd for mounter")),
            NONE,
        ),
    },
    "RBD741": {
        "invalid": (mapping_fails(22, "Invalid argument"), NONE),
        "not supported": (mapping_fails(95, "Operation not supported"), NONE),
    },
    "RBD742": {
        "according to its log alone (22)": (
            unmapped(of_image={"lockers": (DEAD_OWNER,)}, in_kube=NOT_PERMITTED), NONE
        ),
    },
    "RBD743": {
        "demoted": (mounting(stage(f"cannot map image {SPEC} it is not primary")), NONE),
    },
    "RBD744": {
        "an I/O error": (mapping_fails(5, "Input/output error"), NONE),
        "a container that may not add keys": (
            mounting(stage(NO_KEY.format(status=1, number=1, text="Operation not permitted"))),
            NONE,
        ),
    },
    "RBD745": {
        "a clone of a clone": (mounting(stage(f"flatten in progress: image {SPEC}")), NONE),
    },
    "RBD746": {
        "the KMS is gone": (
            mounting(stage(f'failed to fetch passphrase for "{SPEC}": failed to get secret')),
            NONE,
        )
    },
    "RBD747": {
        "the kernel checks the length": (
            mounting(stage(NO_KEY.format(status=22, number=22, text="Invalid argument"))),
            NONE,
        ),
        "the kernel checks the type": (
            mounting(stage(NO_KEY.format(status=12, number=524, text="Unknown error 524"))),
            NONE,
        ),
        "ceph-csi with librados 18": (
            mounting(stage("failed to establish the connection: failed to get connection: "
                           "connecting failed: rados: ret=-22, Invalid argument")),
            NONE,
        ),
    },
    "RBD748": {"msgr2 only, rbd of Ceph 18": (mounting(stage(MS_MODE)), NONE)},
    "RBD751": {
        "recorded (25-rollback-failing)": (mounting(stage("exit status 1")), NONE),
        "by mount-utils": (
            mounting(stage('format of disk "/dev/rbd0" failed: type:("xfs") target:("/x") '
                           'options:("defaults") errcode:(exit status 1) output:(agcount) ')),
            NONE,
        ),
    },
    "RBD752": {
        "damaged": (
            mounting(stage("'fsck' found errors on device /dev/rbd0 but could not correct them: "
                           "UNEXPECTED INCONSISTENCY")),
            NONE,
        )
    },
    "RBD764": {
        # Output of the tools for a loop device that a process has open with O_EXCL.
        "mke2fs 1.47.0": (
            mounting(stage('format of disk "/dev/rbd0" failed: type:("ext4") target:("/x") '
                           'options:("defaults") errcode:(exit status 1) output:(mke2fs 1.47.0 '
                           "(5-Feb-2023)\n/dev/rbd0 is apparently in use by the system; will not "
                           "make a filesystem here!\n) ")),
            NONE,
        ),
        "mkfs.xfs 6.1.0": (
            mounting(stage('format of disk "/dev/rbd0" failed: type:("xfs") target:("/x") '
                           'options:("defaults") errcode:(exit status 1) output:(mkfs.xfs: cannot '
                           "open /dev/rbd0: Device or resource busy\n) ")),
            NONE,
        ),
    },
    "RBD767": {
        "restored without its omap entry": (
            mounting(
                f'MountVolume.MountDevice failed for volume "{PV}" : rpc error: code = NotFound '
                f"desc = volume {HANDLE} not found"
            ),
            NONE,
        )
    },
    "RBD768": {
        "mount": (mounting(stage("mount: /o: can't read superblock on /dev/rbd0.")), NONE),
    },
    "RBD769": {
        "bind mount": (
            mounting(
                f'MountVolume.SetUp failed for volume "{PV}" : rpc error: code = Internal desc = '
                "mount failed: exit status 32\nOutput: mount: /m: special device "
                "/k/globalmount/0001-x does not exist."
            ),
            NONE,
        ),
    },
    "RBD766": {
        # ceph-csi nodeserver.go@52fcb7b: the status at the end is empty.
        "ceph-csi": (
            mounting(stage(f"rbd image {SPEC} found mounted with unexpected encryption status ")),
            NONE,
        )
    },
    "RBD753": {
        "by mount": (
            mounting(stage("mount failed: exit status 32\nMounting command: mount\nOutput: mount: "
                           "/x: wrong fs type, bad option, bad superblock on /dev/rbd0, missing "
                           "codepage or helper program, or other error.")),
            NONE,
        ),
        "by an old mount-utils": (
            mounting(stage('failed to mount the volume as "ext4", it already contains xfs. Mount '
                           "error: mount failed")),
            NONE,
        ),
    },
    "RBD754": {
        "without a writer": (
            mounting(stage("cannot mount unformatted disk /dev/rbd0 as we are manipulating it in "
                           "read-only mode")),
            NONE,
        )
    },
    "RBD755": {
        "under a running pod": (world(mapped=READ_ONLY, in_kube={"pods": (pod(),)}), NONE),
    },
    "RBD756": {
        "a static PV": (
            mounting(stage("rbd: RWX access mode request is only valid for volumes with access "
                           "type `block`")),
            NONE,
        )
    },
    "RBD757": {
        "a block volume as a directory": (
            mounting("Unable to attach or mount volumes: unmounted volumes=[data], unattached "
                     "volumes=[], failed to process volumes=[data]: volume data has volumeMode "
                     "Block, but is specified in volumeMounts"),
            NONE,
        )
    },
    "RBD758": {
        "read-only": (
            mounting(f'MountVolume.SetUp failed for volume "{PV}" : applyFSGroup failed for vol '
                     f"{HANDLE}: lchown /x: read-only file system"),
            NONE,
        )
    },
    "RBD759": {
        "two labels": (
            mounting("Unable to attach or mount volumes: failed to process volumes=[data]: "
                     f'conflicting SELinux labels of volume {PV}: "a" and "b"'),
            NONE,
        ),
        "the other is to go first": (
            mounting(f'waiting for unmount of volume "{PV}", because it is already mounted to a '
                     "different pod with a different SELinux label"),
            NONE,
        ),
    },
    "RBD760": {
        "1.31": (
            unmapped(
                in_kube={
                    "persistent_volumes": (volume(source=InTreeRbdSource(spec=SPEC)),),
                    "pods": (waiting_pod(),),
                    "events": (kubelet_event(IN_TREE),),
                }
            ),
            NONE,
        )
    },
    "RBD761": {
        "no room": (
            mounting(f'MountVolume.Setup failed while expanding volume for volume "{PV}" : resize '
                     "failed"),
            NONE,
        ),
        "denied by ext4": (
            mounting(f'MountVolume.Setup failed while expanding volume for volume "{PV}" : '
                     "resize2fs: Permission denied to resize filesystem"),
            NONE,
        ),
    },
    "RBD762": {
        "an unknown message": (mounting(stage("the moon is in the wrong house")), NONE),
        "a device": (
            mounting(
                events=(
                    kubelet_event(
                        f'MapVolume.SetUpDevice failed for volume "{PV}" : rpc error: '
                        "code = Internal desc = no",
                        reason="FailedMapVolume",
                    ),
                )
            ),
            NONE,
        ),
    },
    "RBD763": {
        "very many files": (
            mounting(
                events=(
                    kubelet_event(f"Setting volume ownership for {PV}, processed 100000 files.",
                         reason="VolumePermissionChangeInProgress"),
                )
            ),
            NONE,
        )
    },
}  # fmt: skip
ANOTHER: Final = NO_SECRET.replace(PV, "kube-api-access-abcde")


def events_of(*events: KubeEvent, **pods: Any) -> Snapshot:  # noqa: ANN401 - as the builders
    return mounting(events=events, **pods)


NOT_REPORTED: Final[NotReported] = {
    "RBD731": {
        "registered": mounting(),
        "the node came a moment ago": mounting(
            csi_nodes=WITHOUT, nodes=(node(), listing("worker-2", ready_changed_at=NOW))
        ),
        "CSINodes were not observed": mounting(csi_nodes=()),
        "no pod waits": mounting(csi_nodes=WITHOUT, pods=(pod(node="worker-2"),)),
    },
    "RBD732": {
        "drivers were not queried": mounting(csi_nodes=WITHOUT),
        "not every node was observed": mounting(
            csi_nodes=WITHOUT[1:], drivers=("nfs.csi.k8s.io",), nodes_complete=False
        ),
        "it is registered somewhere": mounting(csi_nodes=WITHOUT, drivers=("nfs.csi.k8s.io",)),
        "CSINodes were not observed: a driver needs no CSIDriver": mounting(
            NOT_REGISTERED, csi_nodes=UNSEEN, drivers=("nfs.csi.k8s.io",)
        ),
        "CSINodes were read by name: it may be registered elsewhere": mounting(
            NOT_REGISTERED,
            csi_nodes=WITHOUT[1:],
            csi_nodes_complete=False,
            drivers=("nfs.csi.k8s.io",),
        ),
    },
    "RBD733": {
        "another volume of the pod": mounting(ANOTHER),
        "the event is about the previous pod": events_of(
            kubelet_event(
                NO_SECRET, subject=ObjectRef(namespace="default", name="web-1", uid="older")
            )
        ),
        "the event is older than the pod": events_of(
            kubelet_event(NO_SECRET, last_seen=LONG_AGO), pods=(waiting_pod(created_at=JUST_NOW),)
        ),
        "the pod runs by now": events_of(
            kubelet_event(NO_SECRET), pods=(pod("web-1", "worker-2"),)
        ),
        "the pod's images are pulled already": events_of(
            kubelet_event(NO_SECRET),
            pods=(waiting_pod(containers=(PULLING,)),),
        ),
        "another cause has come since": events_of(
            kubelet_event(NO_SECRET, last_seen="2026-11-21T02:50:00Z"),
            kubelet_event(stage("exit status 1")),
        ),
    },
    "RBD742": {
        "the lock's owner watches the image": unmapped(
            of_image={"lockers": (DEAD_OWNER,), "watchers": (remote_watcher(client=99),)},
            in_kube=NOT_PERMITTED,
        ),
        "the lock was taken by hand": unmapped(
            of_image={"lockers": (replace(DEAD_OWNER, lock_id="by hand"),)}, in_kube=NOT_PERMITTED
        ),
        "the watchers were not observed": unmapped(
            of_image={"lockers": (DEAD_OWNER,), "watchers": UNSEEN}, in_kube=NOT_PERMITTED
        ),
    },
    "RBD738": {
        "according to Ceph itself (RBD301)": unmapped(
            of_image={"presence": ImagePresence.GONE, "image_id": None},
            in_kube={
                "pods": (waiting_pod(),),
                "attachments": attached("worker-2"),
                "events": (kubelet_event(stage("image not found")),),
            },
        )
    },
    "RBD739": {"the image alone is missing": mapping_fails(2, "No such file or directory")},
    "RBD755": {
        "the PV asks for it": world(
            mapped=READ_ONLY,
            in_kube={
                "pods": (pod(),),
                "persistent_volumes": (volume(mount_options=("noatime", "ro")),),
            },
        ),
        "the PV asks for it, in one entry with another option": world(
            mapped=READ_ONLY,
            in_kube={
                "pods": (pod(),),
                "persistent_volumes": (volume(mount_options=("noatime,ro",)),),
            },
        ),
        "it is mapped read-only": world(mapped={**READ_ONLY, "read_only": True}),
        "ReadOnlyMany": world(
            mapped=READ_ONLY,
            in_kube={"persistent_volumes": (volume(access_modes=("ReadOnlyMany",)),)},
        ),
        "its client is blocklisted (RBD103)": world(
            mapped=READ_ONLY,
            in_ceph={"blocklist": (BlocklistEntry(network=ADDRESS.ip, nonce=ADDRESS.nonce),)},
        ),
        "another mount is read-only, the super block is not": world(mapped={"mounts": (mount(),)}),
    },
    "RBD760": {"another volume of the pod is in-tree": mounting(IN_TREE)},
    "RBD762": {
        "it is known": mounting(BEING_USED),
        "the attachment was deleted under it, and comes again": mounting(
            f'MountVolume.WaitForAttach failed for volume "{PV}" : volume {HANDLE} has GET error '
            'for volume attachment csi-1: volumeattachments.storage.k8s.io "csi-1" not found'
        ),
        "another volume of the pod": mounting(stage("no").replace(PV, "other")),
        "no volume is named": mounting("Unable to attach or mount volumes: something"),
        "it is of attaching": events_of(
            event(f'AttachVolume.Attach failed for volume "{PV}" : something')
        ),
    },
}
