"""RBD73x to RBD76x: why a volume cannot be mapped or mounted, from the errors that kubelet gets."""

from __future__ import annotations

from typing import Final

from rbdagent.catalog.entry import Entry
from rbdagent.model import LifecycleStep, Recovery, Severity

_EVENT: Final = "kubelet's newest event of a pod that still waits, verbatim."
_NONE: Final = "None: the pod has not started."


def _retried(once: str) -> Recovery:
    """Return the recovery by kubelet's retries, 500 ms apart, doubled up to 2m2s.

    kubelet retries indefinitely (exponentialbackoff).
    """
    return Recovery(actor="kubelet", condition=once, within_s=122)


ENTRIES: Final = (
    Entry(
        "RBD731",
        "DriverDownWhereWanted",
        Severity.ERROR,
        "The CSI driver does not respond on the node where the pod waits.",
        cause="The pod of the node plugin is missing there (nodeSelector, taint), is not Ready, or "
        "crashed; or its registrar did not reach kubelet.",
        evidence="CSINode lacks the driver, or kubelet or external-attacher reports that the "
        "driver does not respond. A driver in CSINode may still be down: CSINode keeps its list "
        "while kubelet restarts.",
        risk=_NONE,
        remedy="Start the CSI node plugin on that node. The pod then starts automatically.",
        recovery=_retried("the driver responds there"),
        step=LifecycleStep.STAGE,
    ),
    Entry(
        "RBD732",
        "DriverNotInstalled",
        Severity.ERROR,
        "No CSI driver with the name that the volume requires is installed in this cluster.",
        cause="The YAML is from another cluster (Rook puts its namespace before the driver's "
        "name), or the driver was removed.",
        evidence="No CSIDriver object has that name, and no CSINode lists it.",
        risk="None from the missing driver. Volumes of a removed driver that are still mounted "
        "stay mounted.",
        remedy="Install the driver under exactly that name. Otherwise set the PV to Retain and "
        "create it again with the installed driver: the driver of a PV cannot be changed.",
        recovery=_retried("the driver is installed"),
        step=LifecycleStep.ATTACH,
    ),
    Entry(
        "RBD733",
        "SecretMissing",
        Severity.ERROR,
        "The secret that the driver needs for this volume is missing, or may not be read.",
        cause="The secret was deleted or renamed, or its namespace was. The PV refers to that "
        "name permanently.",
        evidence="The name in the message of kubelet or external-attacher.",
        risk=_NONE,
        remedy="Create the secret again under exactly that name and namespace, with the keys "
        "userID and userKey.",
        recovery=_retried("the secret exists"),
        step=LifecycleStep.STAGE,
    ),
    Entry(
        "RBD734",
        "ClusterNotConfigured",
        Severity.ERROR,
        "ceph-csi has no configuration for the clusterID that the volume names.",
        cause="config.json in the ConfigMap ceph-csi-config (Rook: rook-ceph-csi-config) lacks "
        "the clusterID, or has no monitors for it. The PV is from another cluster, or the "
        "configuration was created again.",
        evidence=_EVENT,
        risk=_NONE,
        remedy="Add the clusterID with the monitors of the right Ceph cluster. Make sure that it "
        "is the right one: different clusters can have the same pool IDs and image names.",
        recovery=_retried("the clusterID is configured"),
        step=LifecycleStep.STAGE,
    ),
    Entry(
        "RBD735",
        "MonitorsUnreachable",
        Severity.ERROR,
        "The node does not reach Ceph's monitors.",
        cause="Network, firewall, or monitors whose addresses have changed since they were "
        "configured.",
        evidence="110 (timed out) in kubelet's event.",
        risk="Other volumes on that node may hang as well.",
        remedy="Test the monitors' ports 3300 and 6789 from that node, and compare the addresses "
        "with `ceph mon dump`.",
        recovery=_retried("the node reaches the monitors"),
        step=LifecycleStep.STAGE,
    ),
    Entry(
        "RBD736",
        "CephRefusesUser",
        Severity.ERROR,
        "Ceph refuses the driver's user: its key is wrong, or its caps are not sufficient.",
        cause="The key in the secret is not the user's key (any more), the user does not exist, or "
        "it lacks `profile rbd` for this pool.",
        evidence="1 (not permitted) or 13 (permission denied) in kubelet's event.",
        risk=_NONE,
        remedy="Compare `ceph auth get` of the user with the secret. The user needs mon 'profile "
        "rbd' and osd 'profile rbd pool=POOL'.",
        recovery=_retried("the key and the caps are right"),
        step=LifecycleStep.STAGE,
    ),
    Entry(
        "RBD737",
        "PoolMissing",
        Severity.ERROR,
        "The pool of the image does not exist in the Ceph cluster that the driver uses.",
        cause="The pool was deleted or renamed, or the clusterID leads to another Ceph cluster.",
        evidence=_EVENT,
        risk="If it is the wrong cluster, nothing that is created there is found again.",
        remedy="Check that it is the right cluster (`ceph fsid`), and that the pool exists "
        "(`ceph osd pool ls`).",
        recovery=_retried("the pool exists"),
        step=LifecycleStep.STAGE,
    ),
    Entry(
        "RBD738",
        "ImageNotFound",
        Severity.ERROR,
        "The driver does not find the image.",
        cause="The image was deleted or renamed or is in the trash, or the PV leads to another "
        "cluster, pool or namespace.",
        evidence=_EVENT,
        risk="If the image is in the trash, it is removed permanently when its deferment time is "
        "over.",
        remedy="Check the trash (`rbd trash ls --all`) and restore the image from there. If it is "
        "not in the trash, check mirrors and backups.",
        recovery=Recovery(note="a deleted image does not come back"),
        step=LifecycleStep.STAGE,
    ),
    Entry(
        "RBD739",
        "KernelModuleMissing",
        Severity.ERROR,
        "The node's kernel has no rbd module, or may not load it.",
        cause="A minimal kernel without the module, a package of additional modules that is not "
        "installed, a kernel that was updated without a reboot, or locked modules.",
        evidence="The error of modprobe in kubelet's event.",
        risk=_NONE,
        remedy="Install the package with the kernel's additional modules, or reboot into the "
        "kernel whose modules are installed. `modprobe rbd` on that node shows the result at once.",
        recovery=_retried("the module is loaded"),
        step=LifecycleStep.STAGE,
    ),
    Entry(
        "RBD740",
        "ImageFeaturesUnsupported",
        Severity.ERROR,
        "The image has features that the node's kernel does not know.",
        cause="The imageFeatures of the StorageClass, or features of images that were created with "
        "other tools.",
        evidence="6 (feature set mismatch), or ceph-csi's own check.",
        risk="Without journaling, an image with journal-based mirroring is no longer mirrored.",
        remedy="Disable the features of the image that the kernel lacks: journaling with every "
        "kernel, deep-flatten before 5.1. rbd names them on its standard output, which ceph-csi "
        "drops; the kernel log shows them as a mask. Correct the imageFeatures of the "
        "StorageClass, or use the mounter rbd-nbd.",
        recovery=_retried("the features are disabled"),
        step=LifecycleStep.STAGE,
    ),
    Entry(
        "RBD741",
        "MapOptionsRefused",
        Severity.ERROR,
        "The node's kernel rejects the map options, or the parents of the image.",
        cause="mapOptions of the StorageClass or PV that this kernel does not know (ms_mode, "
        "compression_hint). The option may come from rbd itself: rbd of Ceph 20, which ceph-csi "
        "has since 3.16, passes ms_mode to every kernel. Or the image is a clone whose chain of "
        "parents is too long or is being flattened (rook#12312): krbd follows 16 parents.",
        evidence="22 (invalid argument) or 95 (not supported) in kubelet's event. The kernel log "
        "on that node names the cause (`rbd: Unknown parameter 'ms_mode'`).",
        risk=_NONE,
        remedy="Read the kernel log on that node: it names the option, or the parent chain (then "
        "wait for the flatten, or flatten the image). Compare mapOptions with the kernel's "
        "version: ms_mode needs 5.11. If mapOptions do not contain ms_mode and the kernel is "
        "older, the node needs a newer kernel, or a ceph-csi with Ceph 19 or older (3.15): rbd of "
        "Ceph 20 passes ms_mode=legacy too.",
        recovery=_retried("the kernel accepts the options"),
        step=LifecycleStep.STAGE,
    ),
    Entry(
        "RBD742",
        "BlocklistForbidden",
        Severity.ERROR,
        "The driver's user may not put the former owner of the lock on the blocklist.",
        cause="The driver's user has custom caps without `profile rbd` for the monitors: it cannot "
        "break the lock of a client that died.",
        evidence="`map failed: (13)` in the event, and the owner of the exclusive lock does not "
        "watch the image; `failed to blocklist` in the kernel log.",
        risk="None: the lock of the former owner keeps all other clients out.",
        remedy="Give the user mon 'profile rbd'. Do not remove the lock by hand while its owner "
        "may be alive.",
        recovery=_retried("the user has these caps"),
        step=LifecycleStep.STAGE,
    ),
    Entry(
        "RBD743",
        "ImageNotPrimary",
        Severity.ERROR,
        "The image is a non-primary mirror image: only the primary image can be mapped.",
        cause="Mirroring: the primary is in the other Ceph cluster, or was demoted and no image "
        "was promoted.",
        evidence=_EVENT,
        risk="A forced promotion while the other side is alive splits the two images permanently "
        "(split-brain).",
        remedy="Demote the image on the other side, then promote it here (`rbd mirror image "
        "promote`). Use force only if the other side is lost.",
        recovery=_retried("the image is promoted here"),
        step=LifecycleStep.STAGE,
    ),
    Entry(
        "RBD744",
        "MapFails",
        Severity.ERROR,
        "Mapping the image fails on the pod's node.",
        cause="See the error in the event.",
        evidence=_EVENT,
        risk=_NONE,
        remedy="Read rbd's error in the event, and the kernel log on that node.",
        recovery=_retried("the reported error is repaired"),
        step=LifecycleStep.STAGE,
    ),
    Entry(
        "RBD745",
        "ImageBeingFlattened",
        Severity.INFO,
        "The image is being flattened before it can be mapped.",
        cause="The image is a clone with more parents than ceph-csi maps, or with features that "
        "the kernel lacks: Ceph's manager copies the parents' data into it.",
        evidence="`flatten in progress` in kubelet's event.",
        risk="None.",
        remedy="Wait. `ceph rbd task list` shows the progress.",
        recovery=_retried("Ceph's manager has flattened it"),
        step=LifecycleStep.STAGE,
    ),
    Entry(
        "RBD746",
        "EncryptionFails",
        Severity.ERROR,
        "The passphrase of the encrypted volume is not available, or does not open the volume.",
        cause="The key management service (KMS) does not respond or no longer has the key, its "
        "configuration is missing, or the image lacks ceph-csi's metadata (it is a copy).",
        evidence=_EVENT,
        risk="Without its passphrase the data is lost: delete nothing in the KMS.",
        remedy="Restore the KMS and its configuration (ConfigMap csi-kms-connection-details).",
        recovery=_retried("the passphrase is available"),
        step=LifecycleStep.STAGE,
    ),
    Entry(
        "RBD747",
        "CephKeyUnusable",
        Severity.ERROR,
        "The node's kernel or the CSI driver cannot use the CephX key of the driver's user.",
        cause="A key of type aes256k, which Ceph 19.2.6 and 20.2.4 create by default "
        "(CVE-2025-30156). krbd can use it since kernel 7.0, or with a backport; ceph-csi since "
        "3.16.3 and 3.17.1, whose image has Ceph 20.2.4. Or the secret's userKey is not a key.",
        evidence="rbd's `failed to add secret` with 22 or, on older kernels, 524 in kubelet's "
        "event, and `libceph: secret too big 32` in the kernel log on that node; or ceph-csi's "
        "`rados: ret=-22` when it connects.",
        risk="Volumes that are already mapped keep working. A key that is rotated to aes256k makes "
        "every new map fail on such nodes.",
        remedy="Give the StorageClass's node-stage secret a new user whose key is of type aes "
        "(`ceph auth get-or-create client.USER-aes CAPS --key-type=aes`, if `ceph mon dump` "
        "lists aes in auth_allowed_ciphers; a user that exists keeps its key), or run the pods on "
        "nodes with kernel 7.0 or later. See docs/install.md, Key types.",
        recovery=_retried("the secret has a key that both can use"),
        step=LifecycleStep.STAGE,
    ),
    Entry(
        "RBD748",
        "MonitorAddressMissing",
        Severity.ERROR,
        "No monitor has an address for the ms_mode of the map.",
        cause="ms_mode=legacy needs a v1 address of the monitors (port 6789), and every other "
        "ms_mode a v2 address (port 3300). Without ms_mode, rbd before Ceph 20 uses legacy, which "
        "fails if the monitors support msgr2 only.",
        evidence="`failed to get mon address (possible ms_mode mismatch)` in kubelet's event. The "
        "`No such file or directory` that follows is not about the image.",
        risk=_NONE,
        remedy="Compare `ceph mon dump` with the map options. For new volumes set mapOptions of "
        "the StorageClass, for example `krbd:ms_mode=prefer-crc` (kernel 5.11 or later). The "
        "mapOptions of an existing PV cannot be changed: `ceph config set client "
        "rbd_default_map_options ms_mode=prefer-crc` applies to every map that names no ms_mode, "
        "on all nodes.",
        recovery=_retried("the monitors have an address for the ms_mode"),
        step=LifecycleStep.STAGE,
    ),
    Entry(
        "RBD751",
        "MkfsFails",
        Severity.ERROR,
        "Creating the file system on the new image fails.",
        cause="mkfsOptions that mkfs does not know, an image that is too small for them, a Ceph "
        "cluster that is full, or a device that does not respond.",
        evidence="A bare `exit status`: the output of mkfs is only in the CSI plugin's log.",
        risk="If the rollback also fails, the image stays mapped and no component knows of it.",
        remedy="Read `failed to run mkfs` in the log of the CSI node plugin on that node. Then "
        "correct the mkfsOptions of the StorageClass, the size, or Ceph (`ceph df`).",
        recovery=_retried("the error that mkfs reports is repaired"),
        step=LifecycleStep.STAGE,
    ),
    Entry(
        "RBD752",
        "FileSystemDamaged",
        Severity.ERROR,
        "The file system has errors that fsck does not correct automatically.",
        cause="Two nodes wrote at the same time, a node was cut off while it wrote, or Ceph lost "
        "data.",
        evidence=_EVENT,
        risk="A repair may lose more than it saves.",
        remedy="Scale the workload to zero, take a snapshot of the image (`rbd snap create`), and "
        "only then repair the file system by hand on one node.",
        recovery=Recovery(note="fsck leaves uncertain repairs to an administrator"),
        step=LifecycleStep.STAGE,
    ),
    Entry(
        "RBD764",
        "DeviceBusy",
        Severity.ERROR,
        "fsck, mkfs or mount finds the device in use on that node.",
        cause="Something on the node uses the device: a mount in another namespace, a process, "
        "device-mapper, or an earlier step that has not ended. The file system is not damaged.",
        evidence="`is in use`, `apparently in use by the system` or `Device or resource busy` in "
        "kubelet's event: e2fsck and mke2fs 1.47.0 and mkfs.xfs 6.1.0 print it for a device that "
        "is open exclusively.",
        risk="A repair or a format of a device in use destroys its data.",
        remedy="Do not repair and do not format. Run `rbdagent who-holds` on that node to see what "
        "uses the device, and end that.",
        recovery=_retried("nothing uses the device"),
        step=LifecycleStep.STAGE,
    ),
    Entry(
        "RBD765",
        "FsckTooOld",
        Severity.ERROR,
        "The CSI driver's e2fsprogs is older than the file system on the image.",
        cause="A newer mkfs created the file system: the mkfs of a newer ceph-csi on another node, "
        "or one that was run by hand. The file system has features that this e2fsck does not "
        "know, and is not damaged.",
        evidence="`unsupported feature(s)` and `Get a newer version of e2fsck` in kubelet's event "
        "(e2fsck 1.47.0, for a feature that it does not know).",
        risk="A repair by an old tool destroys what the tool does not know.",
        remedy="Run the newer ceph-csi on that node too, or mount the volume on the node where the "
        "file system was created. Do not repair the file system.",
        recovery=_retried("ceph-csi is updated there"),
        step=LifecycleStep.STAGE,
    ),
    Entry(
        "RBD766",
        "EncryptionUnfinished",
        Severity.ERROR,
        "The metadata of the image does not state that it is, or is to be, encrypted.",
        cause="The provisioner ended before it wrote the metadata (ceph-csi#3402), or the image is "
        "a copy that was made without its metadata.",
        evidence="`found mounted with unexpected encryption status` in kubelet's event "
        "(processEncryptedDevice, internal/rbd/nodeserver.go@52fcb7b of ceph-csi).",
        risk="None if no pod ever ran with the volume: then it holds no data.",
        remedy="Check whether a pod ever ran with the volume, and what the metadata is (`rbd "
        "image-meta list`). If no pod did: set the PV to Retain, delete the claim, and create it "
        "again. If the image is a copy: set its metadata to that of the original. Never format it.",
        recovery=Recovery(note="no step writes that metadata later"),
        step=LifecycleStep.STAGE,
    ),
    Entry(
        "RBD753",
        "WrongFileSystem",
        Severity.ERROR,
        "The file system on the image cannot be mounted as the PV specifies.",
        cause="A mount option that the file system does not know; the fsType of a static PV "
        "differs from the file system on the image; the image is encrypted or partitioned; its "
        "superblock is damaged; or the file system has a feature that is newer than the node's "
        "kernel.",
        evidence="The error in kubelet's event: `it already contains` and `unknown data` always "
        "mean another file system; `wrong fs type, bad option, bad superblock` is printed for each "
        "of these causes. The PV's mountOptions and fsType.",
        risk="The driver never formats an image that already has a signature; do not do it by "
        "hand.",
        remedy="Check the mount options first: spec.mountOptions of a PV can be changed. The "
        "node's kernel log names what was refused. Then check what is on the image (`blkid` on a "
        "read-only mapping): the fsType of a PV cannot be changed; set Retain and create the PV "
        "again.",
        recovery=Recovery(
            actor="kubelet", condition="the file system can be mounted as the PV specifies"
        ),
        step=LifecycleStep.STAGE,
    ),
    Entry(
        "RBD754",
        "EmptyImageReadOnly",
        Severity.ERROR,
        "The image is empty and is to be mounted read-only: it contains no file system to mount.",
        cause="ReadOnlyMany, readOnly or the mount option ro on an image that was never written.",
        evidence=_EVENT,
        risk="None.",
        remedy="Write to the image once through a ReadWriteOnce PV or claim, then use it "
        "read-only.",
        recovery=Recovery(note="an image that is only read is not formatted"),
        step=LifecycleStep.STAGE,
    ),
    Entry(
        "RBD755",
        "TurnedReadOnly",
        Severity.ERROR,
        "The file system became read-only while its pods were running.",
        cause="I/O errors: the kernel stops writing (errors=remount-ro). Possible reasons are a "
        "broken lock, a full pool, or lost objects.",
        evidence="The superblock is read-only, and neither the mapping nor the PV asks for that.",
        risk="Writes fail with EROFS; pods that do not check errors lose what they write.",
        remedy="Check the kernel log and Ceph. Then delete all pods with the volume on that node, "
        "so that it is unmounted: fsck runs when it is mounted again.",
        recovery=Recovery(note="only an unmount, and fsck at the next mount, end it"),
        step=LifecycleStep.USE,
    ),
    Entry(
        "RBD756",
        "SharedFileSystemRefused",
        Severity.ERROR,
        "The claim asks for a file system on many nodes, which RBD does not support.",
        cause="ReadWriteMany with volumeMode Filesystem.",
        evidence=_EVENT,
        risk="None: the refusal prevents a second writer.",
        remedy="Use ReadWriteOnce; or volumeMode Block for programs that coordinate their access "
        "to a shared disk; or CephFS for files that many nodes write.",
        recovery=Recovery(
            note="the access modes and volume mode of existing objects cannot be changed"
        ),
        step=LifecycleStep.STAGE,
    ),
    Entry(
        "RBD757",
        "VolumeModeMisused",
        Severity.ERROR,
        "The pod uses a raw block volume as a directory, or a file system as a device.",
        cause="volumeMounts name a claim with volumeMode Block, or volumeDevices one with "
        "Filesystem.",
        evidence=_EVENT,
        risk="None.",
        remedy="Correct the pod: volumeDevices for Block, volumeMounts for Filesystem.",
        recovery=Recovery(note="the containers of a pod cannot be changed"),
        step=LifecycleStep.PUBLISH,
    ),
    Entry(
        "RBD758",
        "OwnershipNotSet",
        Severity.ERROR,
        "kubelet cannot change the group of the volume's files to the pod's fsGroup.",
        cause="fsGroup on a volume that is read-only or returns errors.",
        evidence="`applyFSGroup failed` in kubelet's event.",
        risk=_NONE,
        remedy="If the volume is only to be read, omit fsGroup. If not, find out why it does not "
        "accept writes (RBD755, `ceph health detail`).",
        recovery=_retried("the volume can be written"),
        step=LifecycleStep.PUBLISH,
    ),
    Entry(
        "RBD759",
        "SELinuxConflict",
        Severity.ERROR,
        "Two pods use the volume on one node with different SELinux labels.",
        cause="Their securityContext differs, and the volume is mounted with one label for all "
        "pods.",
        evidence=_EVENT,
        risk="None.",
        remedy="Give both pods the same seLinuxOptions, or run them on different nodes if the "
        "volume allows that.",
        recovery=_retried("the other pod has ended"),
        step=LifecycleStep.PUBLISH,
    ),
    Entry(
        "RBD760",
        "InTreePluginGone",
        Severity.ERROR,
        "The volume uses Kubernetes' in-tree RBD plugin, which this version does not have.",
        cause="`rbd:` in a pod or PV; the plugin and its migration to CSI were removed in 1.31.",
        evidence="`no volume plugin matched` in kubelet's event.",
        risk="None: the image is untouched.",
        remedy="Create a static CSI PV of the same image: driver rbd.csi.ceph.com, volumeHandle "
        'the image\'s name, staticVolume "true", clusterID, pool, and Retain.',
        recovery=Recovery(note="the plugin does not come back"),
        step=LifecycleStep.STAGE,
    ),
    Entry(
        "RBD761",
        "ExpandFails",
        Severity.ERROR,
        "The file system cannot be expanded to the volume's new size.",
        cause="The image is not larger yet, the file system has errors, or the mapping does not "
        "show the new size.",
        evidence=_EVENT,
        risk="None for the data: the file system keeps its size.",
        remedy="Check the claim's conditions, and the image's size with `rbd info`. Run fsck if "
        "the file system reports errors.",
        recovery=_retried("the reported error is repaired"),
        step=LifecycleStep.PUBLISH,
    ),
    Entry(
        "RBD762",
        "MountFails",
        Severity.ERROR,
        "kubelet cannot map or mount the volume.",
        cause="rbdagent does not recognise this error; see the event.",
        evidence=_EVENT,
        risk=_NONE,
        remedy="Repair what the event names. The CSI node plugin's log on that node has more "
        "details.",
        recovery=_retried("the reported error is repaired"),
        step=LifecycleStep.STAGE,
    ),
    Entry(
        "RBD763",
        "OwnershipBeingSet",
        Severity.INFO,
        "kubelet is changing the group of the volume's files to the pod's fsGroup, file by file.",
        cause="fsGroup on a volume with very many files.",
        evidence="The event VolumePermissionChangeInProgress.",
        risk="None.",
        remedy="Wait. fsGroupChangePolicy: OnRootMismatch avoids it the next time.",
        recovery=Recovery(actor="kubelet"),
        step=LifecycleStep.PUBLISH,
    ),
)
