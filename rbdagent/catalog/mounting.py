"""RBD73x to RBD76x: why a volume cannot be mapped or mounted, by what kubelet was told."""

from __future__ import annotations

from typing import Final

from rbdagent.catalog.entry import Entry
from rbdagent.model import Heals, LifeStep, Severity

_EVENT: Final = "kubelet's newest event of a pod that still waits, verbatim."
_NONE: Final = "None: the pod has not started."


def _retried(once: str) -> Heals:
    """Kubelet tries again for ever, 500 ms doubled up to 2m2s apart (exponentialbackoff)."""
    return Heals(by="kubelet", once=once, within_s=122)


ENTRIES: Final = (
    Entry(
        "RBD731",
        "DriverDownWhereWanted",
        Severity.ERROR,
        "The CSI driver does not answer on the node where the pod waits.",
        cause="The node plugin's pod is not there (nodeSelector, taint), not Ready, or crashed; "
        "or its registrar did not reach kubelet.",
        evidence="CSINode lacks the driver, or kubelet or the attacher says that it does not "
        "answer. CSINode alone proves no driver: it keeps its list while kubelet restarts.",
        risk=_NONE,
        remedy="Bring the CSI node plugin up on that node; the pod then starts by itself.",
        heals=_retried("the driver answers there"),
        step=LifeStep.STAGE,
    ),
    Entry(
        "RBD732",
        "DriverNotInstalled",
        Severity.ERROR,
        "No CSI driver of the name that the volume asks for is installed in this cluster.",
        cause="YAML of another cluster (Rook puts its namespace before the driver's name), or the "
        "driver was removed.",
        evidence="No CSIDriver object of that name, and no CSINode that lists it.",
        risk="None by itself. Volumes of a removed driver that are still mounted stay so.",
        remedy="Install the driver under exactly that name; the driver of a PV cannot be changed: "
        "else set the PV to Retain and make it anew with the driver that there is.",
        heals=_retried("the driver is installed"),
        step=LifeStep.ATTACH,
    ),
    Entry(
        "RBD733",
        "SecretMissing",
        Severity.ERROR,
        "The secret that the driver needs for this volume is not there, or may not be read.",
        cause="It was deleted or renamed, or its namespace was; the PV names it for ever.",
        evidence="The name in kubelet's or the attacher's words.",
        risk=_NONE,
        remedy="Make the secret again under exactly that name and namespace, with the keys userID "
        "and userKey.",
        heals=_retried("the secret is there"),
        step=LifeStep.STAGE,
    ),
    Entry(
        "RBD734",
        "ClusterNotConfigured",
        Severity.ERROR,
        "ceph-csi has no configuration for the clusterID that the volume names.",
        cause="config.json in the ConfigMap ceph-csi-config (Rook: rook-ceph-csi-config) lacks "
        "the clusterID: another cluster's PV, or a configuration that was made anew.",
        evidence=_EVENT,
        risk=_NONE,
        remedy="Add the clusterID with the monitors of the right Ceph cluster. Make sure that it "
        "is the right one: pool ids and image names repeat from cluster to cluster.",
        heals=_retried("the clusterID is configured"),
        step=LifeStep.STAGE,
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
        remedy="Try the monitors' ports 3300 and 6789 from that node, and compare the addresses "
        "with `ceph mon dump`.",
        heals=_retried("the monitors answer there"),
        step=LifeStep.STAGE,
    ),
    Entry(
        "RBD736",
        "CephRefusesUser",
        Severity.ERROR,
        "Ceph refuses the driver's user: its key is wrong, or its caps are too small.",
        cause="The key in the secret is not the user's (any more), the user does not exist, or it "
        "lacks `profile rbd` for this pool.",
        evidence="1 (not permitted) or 13 (permission denied) in kubelet's event.",
        risk=_NONE,
        remedy="Compare `ceph auth get` of the user with the secret. Needed are mon 'profile rbd' "
        "and osd 'profile rbd pool=POOL'.",
        heals=_retried("key and caps are right"),
        step=LifeStep.STAGE,
    ),
    Entry(
        "RBD737",
        "PoolMissing",
        Severity.ERROR,
        "The pool of the image does not exist in the cluster that was asked.",
        cause="It was deleted or renamed, or the clusterID leads to another Ceph cluster.",
        evidence=_EVENT,
        risk="If the cluster is the wrong one, nothing that is made there is found again.",
        remedy="Look whether it is the right cluster (`ceph fsid`), and for the pool "
        "(`ceph osd pool ls`).",
        heals=_retried("the pool is there"),
        step=LifeStep.STAGE,
    ),
    Entry(
        "RBD738",
        "ImageNotFound",
        Severity.ERROR,
        "The driver does not find the image.",
        cause="It was deleted or renamed, is in the trash, or the PV leads to another cluster, "
        "pool or namespace.",
        evidence=_EVENT,
        risk="If it is in the trash, it is removed for good when its time is over.",
        remedy="Look into the trash (`rbd trash ls --all`) and restore it from there; else look "
        "at mirrors and backups.",
        heals=Heals(note="an image that is gone stays so"),
        step=LifeStep.STAGE,
    ),
    Entry(
        "RBD739",
        "KernelModuleMissing",
        Severity.ERROR,
        "The node's kernel has no module rbd, or may not load it.",
        cause="A slim kernel without it, a package of further modules that is missing, a kernel "
        "that was updated without a reboot, or modules that are locked.",
        evidence="modprobe's words in kubelet's event.",
        risk=_NONE,
        remedy="Install the package with the kernel's further modules, or reboot into the kernel "
        "whose modules are installed; `modprobe rbd` on that node shows it at once.",
        heals=_retried("the module is loaded"),
        step=LifeStep.STAGE,
    ),
    Entry(
        "RBD740",
        "ImageFeaturesUnsupported",
        Severity.ERROR,
        "The image has features that the node's kernel does not know.",
        cause="The class's imageFeatures, or features of images that were made with other tools.",
        evidence="6 (feature set mismatch), or ceph-csi's own check.",
        risk="An image that is mirrored by its journal is no longer mirrored without journaling.",
        remedy="Disable on the image what the kernel lacks: journaling with every kernel, "
        "deep-flatten before 5.1. rbd names it on its standard output, which ceph-csi drops, and "
        "the kernel's log as a mask. Correct the class's imageFeatures, or use the mounter "
        "rbd-nbd.",
        heals=_retried("the features are disabled"),
        step=LifeStep.STAGE,
    ),
    Entry(
        "RBD741",
        "MapOptionsRefused",
        Severity.ERROR,
        "The node's kernel refuses how the image is to be mapped.",
        cause="mapOptions of the class or PV that this kernel does not know (ms_mode, "
        "compression_hint). Or none: rbd of Ceph 20, which ceph-csi has since 3.16, passes ms_mode "
        "to every kernel. Or a clone whose chain of parents is too long or is being flattened "
        "(rook#12312): krbd follows 16 parents.",
        evidence="22 (invalid argument) or 95 (not supported) in kubelet's event; the kernel's own "
        "log on that node says which (`rbd: Unknown parameter 'ms_mode'`).",
        risk=_NONE,
        remedy="Read the kernel's log on that node: it names the option, or the parent chain "
        "(then wait for the flatten, or flatten the image). Compare mapOptions with the kernel's "
        "version: ms_mode needs 5.11. Where mapOptions "
        "name no ms_mode, and the kernel is older, the node needs a newer kernel, or a ceph-csi "
        "with Ceph 19 or older (3.15): rbd of Ceph 20 passes ms_mode=legacy too.",
        heals=_retried("the options fit"),
        step=LifeStep.STAGE,
    ),
    Entry(
        "RBD742",
        "BlocklistForbidden",
        Severity.ERROR,
        "A client may not put the lock's former owner on the blocklist.",
        cause="The driver's user has caps of its own making, without `profile rbd` for the "
        "monitors: it cannot break the lock of a client that died.",
        evidence="`failed to blocklist` in the event or in the kernel's log. Or `map failed: "
        "(13)`, and the owner of the exclusive lock does not watch the image.",
        risk="None: the lock of the former owner keeps everybody else out.",
        remedy="Give the user mon 'profile rbd'. Do not remove the lock by hand while its owner "
        "may live.",
        heals=_retried("the user has its caps"),
        step=LifeStep.STAGE,
    ),
    Entry(
        "RBD743",
        "ImageNotPrimary",
        Severity.ERROR,
        "The image is a mirror's copy: only its primary can be mapped.",
        cause="Mirroring: the primary is in the other Ceph cluster, or was demoted and nobody was "
        "promoted.",
        evidence=_EVENT,
        risk="Promoting by force while the other side lives splits the two for good.",
        remedy="Demote the image on the other side, then promote it here (`rbd mirror image "
        "promote`); by force only if the other side is lost.",
        heals=_retried("the image is promoted here"),
        step=LifeStep.STAGE,
    ),
    Entry(
        "RBD744",
        "MapFails",
        Severity.ERROR,
        "Mapping the image fails on the pod's node.",
        cause="What the event says.",
        evidence=_EVENT,
        risk=_NONE,
        remedy="Read the words of rbd in the event and the kernel's log on that node.",
        heals=_retried("what it names is repaired"),
        step=LifeStep.STAGE,
    ),
    Entry(
        "RBD745",
        "ImageBeingFlattened",
        Severity.INFO,
        "The image is being flattened before it can be mapped.",
        cause="It is a clone with more parents than ceph-csi maps, or with features that the "
        "kernel lacks: Ceph's manager copies the parents' data into it.",
        evidence="`flatten in progress` in kubelet's event.",
        risk="None.",
        remedy="Wait. `ceph rbd task list` shows how far it is.",
        heals=_retried("Ceph's manager has flattened it"),
        step=LifeStep.STAGE,
    ),
    Entry(
        "RBD746",
        "EncryptionFails",
        Severity.ERROR,
        "The passphrase of the encrypted volume cannot be had, or does not open it.",
        cause="The key management service does not answer or has forgotten the key, its "
        "configuration is not there, or the image lacks ceph-csi's metadata (a copy of it).",
        evidence=_EVENT,
        risk="Without its passphrase the data is lost: delete nothing in the KMS.",
        remedy="Bring the KMS and its configuration (ConfigMap csi-kms-connection-details) back.",
        heals=_retried("the passphrase is there"),
        step=LifeStep.STAGE,
    ),
    Entry(
        "RBD747",
        "CephKeyUnusable",
        Severity.ERROR,
        "The node's kernel or the CSI driver cannot use the CephX key of the driver's user.",
        cause="A key of type aes256k, which Ceph 19.2.6 and 20.2.4 create by default "
        "(CVE-2025-30156). krbd can use it since kernel 7.0, or with a backport; ceph-csi since "
        "3.16.3 and 3.17.1, whose image has Ceph 20.2.4. Or the secret's userKey is no key.",
        evidence="rbd's `failed to add secret` with 22 or, on older kernels, 524 in kubelet's "
        "event, and `libceph: secret too big 32` in the kernel's log on that node; or ceph-csi's "
        "`rados: ret=-22` when it connects.",
        risk="Volumes that are mapped already keep working. A key that is rotated to aes256k makes "
        "every new map fail on such nodes.",
        remedy="Give the StorageClass's node-stage secret a new user whose key is of type aes "
        "(`ceph auth get-or-create client.USER-aes CAPS --key-type=aes`, where `ceph mon dump` "
        "lists aes in auth_allowed_ciphers; a user that exists keeps its key), or run the pods on "
        "nodes with kernel 7.0 or later. See docs/install.md, Key types.",
        heals=_retried("the secret has a key that both can use"),
        step=LifeStep.STAGE,
    ),
    Entry(
        "RBD748",
        "MonitorAddressMissing",
        Severity.ERROR,
        "No monitor has an address for the ms_mode of the map.",
        cause="ms_mode=legacy needs a v1 address of the monitors (port 6789), and every other "
        "ms_mode a v2 address (port 3300). Without ms_mode, rbd before Ceph 20 takes legacy, which "
        "fails where the monitors speak msgr2 only.",
        evidence="`failed to get mon address (possible ms_mode mismatch)` in kubelet's event. The "
        "`No such file or directory` that follows is not about the image.",
        risk=_NONE,
        remedy="Compare `ceph mon dump` with the map options. For new volumes set mapOptions of "
        "the StorageClass, as `krbd:ms_mode=prefer-crc` (kernel 5.11 or later). The mapOptions of "
        "an existing PV cannot be changed: `ceph config set client rbd_default_map_options "
        "ms_mode=prefer-crc` applies to every map that names no ms_mode, on all nodes.",
        heals=_retried("the monitors have an address for the ms_mode"),
        step=LifeStep.STAGE,
    ),
    Entry(
        "RBD751",
        "MkfsFails",
        Severity.ERROR,
        "Making the file system on the new image fails.",
        cause="mkfsOptions that mkfs does not know, an image that is too small for them, a Ceph "
        "that is full, or a device that does not answer.",
        evidence="A bare `exit status`: mkfs's own words are in the CSI plugin's log alone.",
        risk="Where the roll-back fails as well, the image stays mapped and nobody knows of it.",
        remedy="Read `failed to run mkfs` in the log of the CSI node plugin on that node, and "
        "correct the class's mkfsOptions, size, or Ceph (`ceph df`).",
        heals=_retried("what mkfs says is repaired"),
        step=LifeStep.STAGE,
    ),
    Entry(
        "RBD752",
        "FileSystemDamaged",
        Severity.ERROR,
        "The file system has errors that fsck does not correct by itself.",
        cause="Two nodes wrote at once, a node was cut off while it wrote, or Ceph lost data.",
        evidence=_EVENT,
        risk="Repairing may lose more than it saves.",
        remedy="Scale the workload to zero, take a snapshot of the image (`rbd snap create`), and "
        "only then repair it by hand on one node.",
        heals=Heals(note="fsck leaves what it is not sure of to a person"),
        step=LifeStep.STAGE,
    ),
    Entry(
        "RBD764",
        "DeviceBusy",
        Severity.ERROR,
        "fsck, mkfs or mount finds the device in use on that node.",
        cause="Something on the node has the device: a mount in another namespace, a process, "
        "device-mapper, or an earlier step that has not ended. The file system is not damaged.",
        evidence="`is in use`, `apparently in use by the system` or `Device or resource busy` in "
        "kubelet's event: e2fsck and mke2fs 1.47.0 and mkfs.xfs 6.1.0 of a device that is open "
        "exclusively.",
        risk="A repair or a format of a device in use destroys its data.",
        remedy="Do not repair and do not format. Ask `rbdagent who-holds` on that node what has "
        "the device, and end that.",
        heals=_retried("nothing has the device"),
        step=LifeStep.STAGE,
    ),
    Entry(
        "RBD765",
        "FsckTooOld",
        Severity.ERROR,
        "The CSI driver's e2fsprogs is older than the file system on the image.",
        cause="The file system was made by a newer mkfs: by a newer ceph-csi on another node, or "
        "by hand. It has features that this e2fsck does not know, and is not damaged.",
        evidence="`unsupported feature(s)` and `Get a newer version of e2fsck` in kubelet's event "
        "(e2fsck 1.47.0 of a feature that it does not know).",
        risk="A repair by an old tool destroys what it does not know.",
        remedy="Run the newer ceph-csi on that node too, or mount the volume where it was made. "
        "Do not repair the file system.",
        heals=_retried("ceph-csi is updated there"),
        step=LifeStep.STAGE,
    ),
    Entry(
        "RBD766",
        "EncryptionUnfinished",
        Severity.ERROR,
        "The metadata of the image does not say that it is, or is to be, encrypted.",
        cause="The provisioner ended before it wrote that (ceph-csi#3402), or the image is a copy "
        "that was made without its metadata.",
        evidence="`found mounted with unexpected encryption status` in kubelet's event "
        "(processEncryptedDevice, internal/rbd/nodeserver.go@52fcb7b of ceph-csi).",
        risk="None, where no pod ever ran with the volume: it holds no data then.",
        remedy="See whether a pod ever ran with the volume, and what the metadata is (`rbd "
        "image-meta list`). If no pod did: set the PV to Retain, delete the claim, and create it "
        "again. Of a copy: set its metadata to that of the original. Never format it.",
        heals=Heals(note="no step writes that metadata later"),
        step=LifeStep.STAGE,
    ),
    Entry(
        "RBD753",
        "WrongFileSystem",
        Severity.ERROR,
        "The file system on the image cannot be mounted as the PV asks for it.",
        cause="A mount option that the file system does not know; fsType of a static PV differs "
        "from what the image was made with; the image is encrypted or partitioned; its superblock "
        "is damaged; or the file system has a feature that is newer than the node's kernel.",
        evidence="The words in kubelet's event: `it already contains` and `unknown data` are of "
        "another file system for certain; `wrong fs type, bad option, bad superblock` is said of "
        "each of these causes. The PV's mountOptions and fsType.",
        risk="The driver never formats what already bears a signature; do not do it by hand.",
        remedy="Look at the mount options first: spec.mountOptions of a PV can be changed. The "
        "node's kernel log says what was refused. Then see what is there (`blkid` on a read-only "
        "mapping): the fsType of a PV cannot be changed; set Retain and make the PV anew.",
        heals=Heals(by="kubelet", once="what the PV asks for is what can be mounted"),
        step=LifeStep.STAGE,
    ),
    Entry(
        "RBD754",
        "EmptyImageReadOnly",
        Severity.ERROR,
        "The image is empty, and is to be mounted read-only: there is nothing to mount.",
        cause="ReadOnlyMany, readOnly or the mount option ro on an image that nobody has written.",
        evidence=_EVENT,
        risk="None.",
        remedy="Write it once through a ReadWriteOnce PV or claim, then use it read-only.",
        heals=Heals(note="nobody formats an image that is only read"),
        step=LifeStep.STAGE,
    ),
    Entry(
        "RBD755",
        "TurnedReadOnly",
        Severity.ERROR,
        "The file system has turned read-only under its pods.",
        cause="I/O errors: the kernel stops writing (errors=remount-ro). A lock that was taken "
        "away, a full pool, or lost objects.",
        evidence="The super block is read-only, and neither the mapping nor the PV asks for that.",
        risk="Writes fail with EROFS; pods that do not look at errors lose what they write.",
        remedy="Look at the kernel's log and at Ceph. Then delete all pods with the volume on that "
        "node, so that it is unmounted: fsck runs when it is mounted again.",
        heals=Heals(note="only an unmount, and fsck with the next mount, end it"),
        step=LifeStep.USE,
    ),
    Entry(
        "RBD756",
        "SharedFileSystemRefused",
        Severity.ERROR,
        "The claim asks for a file system on many nodes, which RBD does not give.",
        cause="ReadWriteMany with volumeMode Filesystem.",
        evidence=_EVENT,
        risk="None: the refusal prevents a second writer.",
        remedy="ReadWriteOnce; or volumeMode Block for programs that share a disk by themselves; "
        "or CephFS for files that many write.",
        heals=Heals(note="access modes and volume mode of what exists do not change"),
        step=LifeStep.STAGE,
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
        heals=Heals(note="a pod's containers do not change"),
        step=LifeStep.PUBLISH,
    ),
    Entry(
        "RBD758",
        "OwnershipNotSet",
        Severity.ERROR,
        "kubelet cannot give the volume's files to the pod's group.",
        cause="fsGroup on a volume that is read-only or answers with errors.",
        evidence="`applyFSGroup failed` in kubelet's event.",
        risk=_NONE,
        remedy="If the volume is to be read only, leave fsGroup away; else look why it does not "
        "take writes (RBD755, `ceph health detail`).",
        heals=_retried("the volume can be written"),
        step=LifeStep.PUBLISH,
    ),
    Entry(
        "RBD759",
        "SELinuxConflict",
        Severity.ERROR,
        "Two pods want the volume on one node with different SELinux labels.",
        cause="Their securityContext differs, and the volume is mounted with one label for all.",
        evidence=_EVENT,
        risk="None.",
        remedy="Give both the same seLinuxOptions, or put them on different nodes if the volume "
        "allows that.",
        heals=_retried("the other pod has ended"),
        step=LifeStep.PUBLISH,
    ),
    Entry(
        "RBD760",
        "InTreePluginGone",
        Severity.ERROR,
        "The volume is of Kubernetes' own RBD plugin, and this Kubernetes has none.",
        cause="`rbd:` in a pod or PV; the plugin and its migration to CSI were removed in 1.31.",
        evidence="`no volume plugin matched` in kubelet's event.",
        risk="None: the image is untouched.",
        remedy="Make a static CSI PV of the same image: driver rbd.csi.ceph.com, volumeHandle the "
        'image\'s name, staticVolume "true", clusterID, pool, and Retain.',
        heals=Heals(note="the plugin does not come back"),
        step=LifeStep.STAGE,
    ),
    Entry(
        "RBD761",
        "ExpandFails",
        Severity.ERROR,
        "The file system cannot be grown to the volume's new size.",
        cause="The image is not larger yet, the file system has errors, or the mapping does not "
        "show the new size.",
        evidence=_EVENT,
        risk="None for the data: the file system stays as large as it was.",
        remedy="Look at the claim's conditions, and at `rbd info` for the image's size. fsck, if "
        "the file system complains.",
        heals=_retried("what it names is repaired"),
        step=LifeStep.PUBLISH,
    ),
    Entry(
        "RBD762",
        "MountFails",
        Severity.ERROR,
        "kubelet cannot map or mount the volume.",
        cause="What the event says; nothing here knows these words.",
        evidence=_EVENT,
        risk=_NONE,
        remedy="Repair what the event names; the CSI node plugin's log on that node says more.",
        heals=_retried("what it names is repaired"),
        step=LifeStep.STAGE,
    ),
    Entry(
        "RBD763",
        "OwnershipBeingSet",
        Severity.INFO,
        "kubelet is giving the volume's files to the pod's group, one by one.",
        cause="fsGroup on a volume with very many files.",
        evidence="The event VolumePermissionChangeInProgress.",
        risk="None.",
        remedy="Wait; fsGroupChangePolicy: OnRootMismatch spares it the next time.",
        heals=Heals(by="kubelet"),
        step=LifeStep.PUBLISH,
    ),
)
