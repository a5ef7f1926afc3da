"""Real texts of other programs, and snapshots of a cluster in which each of them appears."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple

from rbdagent.model import InTreeRbdSource, ObjectRef, Snapshot, StorageClass
from rbdagent.parse.recognised import Recognised
from tests.support.rule_tables import BY_POD, attached, kubelet_event, mounting, stage
from tests.support.snapshots import (
    DRIVER,
    HANDLE,
    LONG_AGO,
    PV,
    SPEC,
    UNSEEN,
    claim,
    event,
    node,
    unmapped,
    volume,
    waiting_pod,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    Play = Callable[[str], Snapshot]


class Proof(StrEnum):
    """Where a quoted text is from."""

    RECORDING = "recorded: the fixture has it"
    TOOL = "printed by the real program, or among the strings of it"
    SOURCE = "a line of the source, with values filled in"


class Quote(NamedTuple):
    """A real text."""

    text: str
    proof: Proof
    fixture: str = ""


# Snapshots ----------------------------------------------------------------------------------------


def pod_event(text: str) -> Snapshot:
    return mounting(text)


def attach_error(text: str) -> Snapshot:
    return mounting(attachments=attached("worker-2", attached=False, attach_error=text))


def attacher_event(text: str) -> Snapshot:
    """Build a snapshot in which the event was observed and the attachments were not."""
    return mounting(text, attachments=UNSEEN)


def detach_error(text: str) -> Snapshot:
    return mounting(attachments=attached("worker-1", deleting_since=LONG_AGO, detach_error=text))


def controller_event(text: str) -> Snapshot:
    first = kubelet_event(text, reason="FailedAttachVolume", reporter="attachdetach-controller")
    return mounting(events=(first,), attachments=attached("worker-1"))


def scheduler_message(text: str) -> Snapshot:
    pods = (waiting_pod(node=None, unschedulable=text, claims=("data", "more")),)
    seen = (volume(labels=(("topology.kubernetes.io/zone", "a"),)),)
    return unmapped(in_kube={"pods": pods, "persistent_volumes": seen}, target=BY_POD)


def in_tree_event(text: str) -> Snapshot:
    old = (volume(source=InTreeRbdSource(spec=SPEC)),)
    in_kube = {
        "persistent_volumes": old,
        "pods": (waiting_pod(),),
        "events": (kubelet_event(text),),
    }
    return unmapped(in_kube=in_kube)


def rwop_event(text: str) -> Snapshot:
    return mounting(text, persistent_volumes=(volume(access_modes=("ReadWriteOncePod",)),))


CLAIM: Final = claim(
    phase="Pending", volume_name=None, created_at=LONG_AGO, requested_bytes=1, provisioner=DRIVER
)


def claim_event(text: str) -> Snapshot:
    failed = event(
        text,
        kind="PersistentVolumeClaim",
        subject=ObjectRef(namespace="default", name="data", uid="claim-uid"),
        reason="ProvisioningFailed",
        reporter=f"{DRIVER}_prov-0_1",
    )
    in_kube = {
        "claims": (CLAIM,),
        "persistent_volumes": (),
        "storage_classes": (StorageClass(name="rbd", provisioner=DRIVER),),
        "drivers": (DRIVER,),
        "events": (failed,),
        "pods": (waiting_pod(),),
    }
    return unmapped(in_kube=in_kube, target=BY_POD)


def gated_pod_event(text: str) -> Snapshot:
    late = StorageClass(name="rbd", provisioner=DRIVER, binding_mode="WaitForFirstConsumer")
    in_kube = {
        "claims": (CLAIM,),
        "persistent_volumes": (),
        "storage_classes": (late,),
        "pods": (waiting_pod(node=None, unschedulable=text),),
    }
    return unmapped(in_kube=in_kube, target=BY_POD)


def deletion_error(text: str) -> Snapshot:
    failed = event(
        text,
        kind="PersistentVolume",
        subject=ObjectRef(namespace="", name=PV, uid="pv-uid"),
        reason="VolumeFailedDelete",
    )
    released = volume(phase="Released", phase_since=LONG_AGO, reclaim_policy="Delete")
    in_kube = {
        "claims": (),
        "persistent_volumes": (released,),
        "events": (failed,),
        "nodes": (node(),),
    }
    return unmapped(in_kube=in_kube)


PLAYS: Final[dict[Recognised, Play]] = {
    **dict.fromkeys(
        (
            *(Recognised.CLAIM_NOT_READY, Recognised.CLAIMS_UNBOUND, Recognised.NO_VOLUME),
            *(Recognised.AFFINITY, Recognised.LIMIT, Recognised.NO_DRIVER, Recognised.OF_VOLUMES),
        ),
        scheduler_message,
    ),
    Recognised.GATES: gated_pod_event,
    **dict.fromkeys(
        (
            *(Recognised.ATTACH_FAILED, Recognised.ATTACHER_SILENT, Recognised.EXHAUSTED),
            Recognised.DRIVER_NOT_REGISTERED,
        ),
        attacher_event,
    ),
    Recognised.ONE_POD_ONLY: rwop_event,
    Recognised.MULTI_ATTACH: controller_event,
    Recognised.ATTACHERS_SECRET_MISSING: attach_error,
    Recognised.VOLUME_GONE: detach_error,
    Recognised.NO_PLUGIN: in_tree_event,
    Recognised.STILL_ATTACHED: deletion_error,
    Recognised.MGR_REFUSED: deletion_error,
    Recognised.HANDLE_OF_NO_JOURNAL: deletion_error,
    **dict.fromkeys(
        (
            *(Recognised.SELF_LINK, Recognised.CLONE_LIMIT, Recognised.CLASS_SECRET_MISSING),
            *(Recognised.CLASS_SECRET_HALF_NAMED, Recognised.NO_TOPOLOGY, Recognised.SELECTOR),
            *(Recognised.NO_CSI_NODE, Recognised.DENIED),
            *(Recognised.NO_RBD_SUPPORT, Recognised.SOURCE_IS_LARGER),
            *(Recognised.CREATION_FOUND_NOTHING, Recognised.INVALID_FEATURE),
            *(Recognised.MODE_OF_SOURCE_DIFFERS, Recognised.SNAPSHOTS_NOT_SERVED),
            *(Recognised.SNAPSHOT_GONE, Recognised.SNAPSHOT_NOT_BOUND),
            *(Recognised.SNAPSHOT_NOT_READY, Recognised.CLONE_SOURCE_GONE),
            *(Recognised.READ_ONLY_WITHOUT_SOURCE, Recognised.NO_TOPOLOGY_FOUND),
            *(Recognised.CREATION_REFUSED, Recognised.CLASS_LACKS_PARAMETER),
            *(Recognised.CLASS_PARAMETER_EMPTY, Recognised.FEATURE_NEEDS_ANOTHER),
            *(Recognised.ENCRYPTION_PARAMETER, Recognised.ENCRYPTION_OF_SOURCE_DIFFERS),
            *(Recognised.SOURCE_NOT_IN_JOURNAL, Recognised.NO_POOL_FOR_TOPOLOGY),
            *(Recognised.TENANT_TOKEN_MISSING, Recognised.TENANT_ACCOUNT_MISSING),
            *(Recognised.CLONE_SOURCE_UNBOUND, Recognised.CLONE_SOURCE_REFUSED),
            *(Recognised.SNAPSHOT_OF_ANOTHER_DRIVER, Recognised.UNKNOWN_CLASS_KEY),
        ),
        claim_event,
    ),
}
"""Where a text appears, if not in an event on a pod that waits on its node."""


# The table ----------------------------------------------------------------------------------------

RECORDING, TOOL, SOURCE = Proof.RECORDING, Proof.TOOL, Proof.SOURCE


def of_stage(text: str, proof: Proof = SOURCE) -> Quote:
    """Return the message of kubelet for a failed NodeStageVolume."""
    return Quote(stage(text), proof)


def of_kubelet(operation: str, text: str, proof: Proof = SOURCE) -> Quote:
    return Quote(f'{operation} failed for volume "{PV}" : {text}', proof)


def of_mkfs(text: str) -> Quote:
    return of_stage(
        'format of disk "/dev/rbd0" failed: type:("ext4") target:("/x") options:("defaults") '
        f"errcode:(exit status 1) output:({text}) ",
        TOOL,
    )


def of_map(number: int, text: str) -> str:
    """Return the message of ceph-csi for a failed map, with the standard error of rbd."""
    return (
        f"rbd: map failed with error an error (exit status {number}) occurred while running rbd "
        "args: [--id csi -m 10.77.0.1:6789 --keyfile=***stripped*** map k8s/x --device-type krbd "
        f"--options noudev], rbd error output: {text}"
    )


def of_class(text: str, proof: Proof = SOURCE) -> Quote:
    return Quote(f'failed to provision volume with StorageClass "rbd": {text}', proof)


QUOTES: Final[dict[Recognised, tuple[Quote, ...]]] = {
    Recognised.COMBINED: (
        Quote(
            f'(combined from similar events): MountVolume.SetUp failed for volume "{PV}" : no',
            SOURCE,
        ),
    ),
    Recognised.OF_VOLUME: (
        Quote(
            'MountVolume.MountDevice failed for volume "open-outside" : rpc error: code = Internal '
            "desc = rbd image k8s/open-outside is still being used",
            RECORDING,
            "life/open_outside.json",
        ),
    ),
    Recognised.NAMES_A_VOLUME: (
        Quote(
            'MountVolume.NodeAffinity check failed for volume "outside-of-its-affinity-402492" : '
            "no matching NodeSelectorTerms",
            RECORDING,
            "life/outside_of_its_affinity.json",
        ),
    ),
    Recognised.FAILED_FOR_VOLUME: (
        Quote(
            'AttachVolume.Attach failed for volume "attach-fails" : rpc error: code = Internal '
            "desc = no such thing here",
            RECORDING,
            "life/attach_fails.json",
        ),
    ),
    Recognised.STEP: (
        Quote(
            'AttachVolume.Attach failed for volume "attach-fails" : rpc error: code = Internal '
            "desc = no such thing here",
            RECORDING,
            "life/attach_fails.json",
        ),
    ),
    Recognised.NOT_MOUNTED_READ_ONLY: (
        of_stage(
            "mount failed: exit status 32\nMounting command: mount\nMounting arguments: -t ext4 -o "
            "_netdev,ro,defaults /dev/rbd0 /o\nOutput: mount: /o: cannot mount /dev/rbd0 "
            "read-only.",
            TOOL,
        ),
    ),
    Recognised.UNKNOWN_FILE_SYSTEM: (
        of_stage(
            "mount failed: exit status 32\nMounting command: mount\nMounting arguments: -t xfs "
            "/dev/rbd0 /o\nOutput: mount: /o: unknown filesystem type 'xfs'.",
            TOOL,
        ),
    ),
    Recognised.KUBELETS_DISK: (
        of_stage(
            f"failed to stash JSON image metadata for image ({SPEC}) at path "
            "(/k/globalmount/image-meta.json): open /k/globalmount/image-meta.json: no space left "
            "on device"
        ),
        of_stage("mkdir /k/globalmount/0001-x: no space left on device"),
        of_kubelet(
            "MountVolume.SetUp",
            'kubernetes.io/csi: mounter.SetUpAt failed to create dir "/k/pods":  mkdir /k/pods: '
            "read-only file system",
        ),
        of_kubelet(
            "MountVolume.SetUp",
            "kubernetes.io/csi: failed to open volume data file [/k/vol_data.json]: open "
            "/k/vol_data.json: no space left on device",
        ),
    ),
    Recognised.CONFIGURATION_UNREADABLE: (
        of_stage(
            f"error generating volume {HANDLE}: failed to fetch monitor list using clusterID (ceph)"
            ': error fetching configuration for cluster ID "ceph": open '
            "/etc/ceph-csi-config/config.json: no such file or directory"
        ),
    ),
    Recognised.CONFIGURATION_MALFORMED: (
        of_stage(
            f"error generating volume {HANDLE}: failed to fetch monitor list using clusterID (ceph)"
            ": unmarshal failed (invalid character ']' looking for beginning of value), raw buffer "
            'response: [{"clusterID": "ceph", "monitors": []},]'
        ),
        of_stage(
            "failed to fetch cluster mapping: unmarshal failed (json: cannot unmarshal object into "
            "Go value of type []util.ClusterMappingInfo), raw buffer response: {}"
        ),
    ),
    Recognised.NO_CLUSTER_ID: (of_stage("clusterID must be set"),),
    Recognised.NO_POOL_NAMED: (
        of_stage("empty pool name or topologyConstrainedPools to provision volume"),
    ),
    Recognised.UNKNOWN_MOUNTER: (
        of_kubelet(
            "MountVolume.MountDevice",
            "rpc error: code = Unknown desc = unknown mounter type: "
            '"read_from_replica=localize,crush_location=zone", please specify mounter type',
        ),
    ),
    Recognised.HANDLE_OF_ANOTHER_FORM: (
        of_stage(
            "error generating volume old-image: invalid VolumeID: error decoding volume ID (failed "
            "to decode CSI identifier, string underflow) (old-image)"
        ),
        of_stage(
            "error decoding volume ID (failed to decode CSI identifier, string underflow) (x)"
        ),
    ),
    Recognised.DRIVER_PANICKED: (
        of_stage("panic runtime error: invalid memory address or nil pointer dereference"),
    ),
    Recognised.NO_STAGE_SECRET: (
        of_kubelet(
            "MountVolume.MountDevice",
            "rpc error: code = InvalidArgument desc = stage secrets cannot be nil or empty",
        ),
    ),
    Recognised.VAULT_UNREACHABLE: (
        of_stage(
            f"error generating volume {HANDLE}: failed connecting to Vault: failed to get the "
            'authentication token: Put "https://vault.example:8200/v1/auth/kubernetes/login": dial '
            "tcp: lookup vault.example on 10.96.0.10:53: no such host"
        ),
    ),
    Recognised.KEY_NOT_IN_VAULT: (of_stage("No Secret Data found for Secret ID"),),
    Recognised.NO_KMS_ENTRY: (
        of_stage(
            f'error generating volume {HANDLE}: could not get KMS configuration for "vault-1" '
            "(have [vault-2 user-secret])"
        ),
    ),
    Recognised.KEY_NOT_DECRYPTED: (
        of_stage("failed to decrypt DEK: cipher: message authentication failed"),
        of_stage("failed to unwrap the DEK: 403 Forbidden"),
    ),
    Recognised.PASSPHRASE_REFUSED: (
        of_stage(
            "an error (exit status 2) occurred while running cryptsetup args: [luksOpen /dev/rbd0 "
            "luks-0001-x --disable-keyring -d /dev/stdin]"
        ),
    ),
    Recognised.RECOVERY_NEEDS_WRITES: (
        Quote(
            "EXT4-fs (rbd0): write access unavailable, cannot proceed (try mounting with noload)",
            SOURCE,
        ),
        Quote("XFS (rbd0): recovery required on read-only device.", SOURCE),
    ),
    Recognised.SUPER_BLOCK_UNREADABLE: (
        of_stage(
            "mount failed: exit status 32\nMounting command: mount\nMounting arguments: -t xfs "
            "/dev/rbd0 /o\nOutput: mount: /o: can't read superblock on /dev/rbd0.",
            TOOL,
        ),
    ),
    Recognised.NOTHING_STAGED: (
        of_kubelet(
            "MountVolume.SetUp",
            "rpc error: code = Internal desc = mount failed: exit status 32\nMounting command: "
            "mount\nMounting arguments: -t ext4 -o bind,_netdev /k/globalmount/0001-x /m\nOutput: "
            "mount: /m: special device /k/globalmount/0001-x does not exist.",
        ),
    ),
    Recognised.STAGING_PATH_FAILS: (
        of_stage(
            "rpc error: code = Internal desc = stat /k/globalmount/0001-x: input/output error"
        ),
    ),
    Recognised.RESIZE_REFUSED: (
        of_stage(
            "resize failed on path /g, error: resize of device /dev/rbd1 failed: exit status 1. "
            "resize2fs output: resize2fs 1.46.5 (30-Dec-2021)\nopen: Device or resource busy while "
            "opening /dev/rbd1",
            TOOL,
        ),
    ),
    Recognised.NO_RBD_SUPPORT: (
        of_class(
            "rpc error: code = Internal desc = failed to add task to manager: rados: ret=-95, "
            'Operation not supported: "rbd_support module is not running"'
        ),
        of_class(
            "rpc error: code = Internal desc = rados: ret=-11, Resource temporarily unavailable: "
            '"rbd_support module is not ready, try again"'
        ),
        of_class(
            "rpc error: code = Internal desc = rados: ret=-95, Operation not supported: "
            "\"Module 'rbd_support' is not enabled (required by command 'rbd task add flatten'): "
            'use `ceph mgr module enable rbd_support` to enable it"'
        ),
    ),
    Recognised.MGR_REFUSED: (
        Quote(
            "rpc error: code = Internal desc = rados: ret=-1, Operation not permitted: "
            '"[errno 1] RBD permission error (error retrieving image from trash)"',
            SOURCE,
        ),
    ),
    Recognised.NO_VOLUME_IN_JOURNAL: (
        of_kubelet(
            "MountVolume.MountDevice",
            f"rpc error: code = NotFound desc = volume {HANDLE} not found",
        ),
    ),
    Recognised.CREATION_FOUND_NOTHING: (
        of_class(
            "rpc error: code = Internal desc = failed to create rbd image: RBD image not found"
        ),
        of_class(
            "rpc error: code = Unknown desc = failed to create rbd clone: RBD image not found"
        ),
    ),
    Recognised.INVALID_FEATURE: (
        Quote(
            "rpc error: code = InvalidArgument desc = invalid feature no-such-feature",
            RECORDING,
            "claims/provisioning-badparam.json",
        ),
        of_class("rpc error: code = InvalidArgument desc = invalid feature"),
        of_class(
            "rpc error: code = InvalidArgument desc = missing required parameter imageFeatures"
        ),
    ),
    Recognised.CREATION_REFUSED: (
        of_class(
            "rpc error: code = Internal desc = failed to create rbd image: rbd: ret=-22, Invalid "
            "argument"
        ),
        of_class(
            "rpc error: code = Unknown desc = failed to create rbd clone: rbd: ret=-22, Invalid "
            "argument"
        ),
    ),
    Recognised.CLASS_LACKS_PARAMETER: (
        of_class(
            "rpc error: code = InvalidArgument desc = empty cluster ID to provision volume from"
        ),
        of_class(
            "rpc error: code = InvalidArgument desc = missing or empty pool name to provision "
            "volume from"
        ),
        of_class(
            "rpc error: code = InvalidArgument desc = empty pool name or topologyConstrainedPools "
            "to provision volume"
        ),
    ),
    Recognised.CLASS_PARAMETER_EMPTY: (
        of_class(
            "rpc error: code = InvalidArgument desc = empty datapool name to provision volume from"
        ),
        of_class(
            "rpc error: code = InvalidArgument desc = empty namespace name to provision volume from"
        ),
        of_class(
            "rpc error: code = InvalidArgument desc = empty volume name prefix to provision volume "
            "from"
        ),
        of_class("rpc error: code = InvalidArgument desc = empty imageFeatures parameter"),
    ),
    Recognised.FEATURE_NEEDS_ANOTHER: (
        of_class(
            "rpc error: code = InvalidArgument desc = feature object-map requires exclusive-lock "
            "to be set"
        ),
    ),
    Recognised.ENCRYPTION_PARAMETER: (
        of_class(
            'rpc error: code = InvalidArgument desc = strconv.ParseBool: parsing "yes": invalid '
            "syntax"
        ),
        of_class("rpc error: code = InvalidArgument desc = invalid encryption type"),
    ),
    Recognised.ENCRYPTION_OF_SOURCE_DIFFERS: (
        of_class(
            "rpc error: code = InvalidArgument desc = cannot clone from volume k8s/csi-vol-1: "
            'cannot create unencrypted volume from encrypted volume "k8s/csi-vol-1"'
        ),
        of_class(
            "rpc error: code = InvalidArgument desc = cannot restore from snapshot "
            "k8s/csi-vol-1@csi-snap-1: cannot create encrypted volume from unencrypted volume "
            '"k8s/csi-snap-1"'
        ),
    ),
    Recognised.SOURCE_NOT_IN_JOURNAL: (
        of_class(
            "rpc error: code = Internal desc = key not found: rados: ret=-2, No such file or "
            "directory"
        ),
        of_class(
            "rpc error: code = Internal desc = key not found: no snap source in omap for "
            '"csi.snap.967f1fb3-1f2c-11ee-be56-0242ac120002"'
        ),
    ),
    Recognised.NO_POOL_FOR_TOPOLOGY: (
        of_class(
            "rpc error: code = Internal desc = none of the topology constrained pools matched "
            "requested topology constraints : pools ([{PoolName:pool0 DataPoolName: "
            "DomainSegments:[{DomainLabel:zone DomainValue:a}]}]) requested topology "
            '(requisite:<segments:<key:"topology.rbd.csi.ceph.com/zone" value:"b" > > )'
        ),
        of_class(
            "rpc error: code = Internal desc = none of the configured topology pools "
            "(&[{PoolName:pool0 DataPoolName: DomainSegments:[]}]) matched passed in pool name (k)"
        ),
    ),
    Recognised.TENANT_TOKEN_MISSING: (
        of_class(
            "rpc error: code = InvalidArgument desc = invalid encryption kms configuration: failed "
            'fetching token from default/ceph-csi-kms-token: secrets "ceph-csi-kms-token" not found'
        ),
    ),
    Recognised.TENANT_ACCOUNT_MISSING: (
        of_class(
            "rpc error: code = InvalidArgument desc = invalid encryption kms configuration: failed "
            "setting up token for default/ceph-csi-vault-sa: failed to get ServiceAccount "
            'default/ceph-csi-vault-sa: serviceaccounts "ceph-csi-vault-sa" not found'
        ),
    ),
    Recognised.CLONE_SOURCE_UNBOUND: (
        of_class(
            "error getting handle for DataSource Type PersistentVolumeClaim by Name src: the PVC "
            "DataSource src must have a status of Bound.  Got {Pending [] map[] [] map[] map[] "
            "<nil> <nil>}"
        ),
    ),
    Recognised.CLONE_SOURCE_REFUSED: (
        of_class(
            "error getting handle for DataSource Type PersistentVolumeClaim by Name src: claim in "
            "dataSource not bound or invalid"
        ),
    ),
    Recognised.SNAPSHOT_OF_ANOTHER_DRIVER: (
        of_class(
            "error getting handle for DataSource Type VolumeSnapshot by Name data-snap: "
            "snapshotcontent snapcontent-1 for snapshot data-snap is not handled by CSI driver of "
            "StorageClass rbd"
        ),
    ),
    Recognised.UNKNOWN_CLASS_KEY: (
        of_class(
            "failed to strip CSI Parameters of prefixed keys: found unknown parameter key "
            '"csi.storage.k8s.io/provisioner-secret" with reserved namespace csi.storage.k8s.io/'
        ),
    ),
    Recognised.HANDLE_OF_NO_JOURNAL: (
        Quote(
            "rpc error: code = Internal desc = invalid VolumeID: error decoding volume ID (failed "
            "to decode CSI identifier, string underflow) (my-image)",
            SOURCE,
        ),
    ),
    Recognised.SECRET_FIELD_MISSING: (
        of_stage("rpc error: code = InvalidArgument desc = missing ID field 'userID' in secrets"),
    ),
    Recognised.VOLUME_IS_ENDING: (
        Quote(f'PersistentVolume "{PV}" is marked for deletion', SOURCE),
    ),
    Recognised.NO_STAGING_PATH: (
        of_stage(
            "rpc error: code = InvalidArgument desc = staging path "
            "/data/k8s/kubelet/plugins/kubernetes.io/csi/rbd.csi.ceph.com/967f1fb3/globalmount "
            "does not exist on node"
        ),
    ),
    Recognised.OF_DATA_SOURCE: (
        Quote(
            "error getting handle for DataSource Type VolumeSnapshot by Name absent: error getting",
            RECORDING,
            "claims/provisioning-snap.json",
        ),
    ),
    Recognised.MODE_OF_SOURCE_DIFFERS: (
        of_class(
            "error getting handle for DataSource Type VolumeSnapshot by Name data-snap: requested "
            "volume shop/data modifies the mode of the source volume but does not have permission "
            "to do so. snapshot.storage.kubernetes.io/allow-volume-mode-change annotation is not "
            "present on snapshotcontent snapcontent-1"
        ),
        of_class(
            "error getting handle for DataSource Type PersistentVolumeClaim by Name src: the "
            "source PVC and destination PVCs must have the same volume mode for cloning.  Source "
            "is Block, but new PVC requested Filesystem"
        ),
    ),
    Recognised.SNAPSHOTS_NOT_SERVED: (
        of_class(
            "error getting handle for DataSource Type VolumeSnapshot by Name absent: error getting "
            "snapshot absent from api server: the server could not find the requested resource "
            "(get volumesnapshots.snapshot.storage.k8s.io absent)"
        ),
    ),
    Recognised.SNAPSHOT_GONE: (
        Quote(
            "error getting snapshot absent from api server: "
            'volumesnapshots.snapshot.storage.k8s.io "absent" not found',
            RECORDING,
            "claims/provisioning-snap.json",
        ),
    ),
    Recognised.SNAPSHOT_NOT_BOUND: (
        of_class(
            "error getting handle for DataSource Type VolumeSnapshot by Name data-snap: snapshot "
            "data-snap not bound"
        ),
    ),
    Recognised.SNAPSHOT_NOT_READY: (
        of_class(
            "error getting handle for DataSource Type VolumeSnapshot by Name data-snap: snapshot "
            "data-snap is not Ready"
        ),
    ),
    Recognised.CLONE_SOURCE_GONE: (
        Quote(
            'error getting PVC absent (namespace "default") from api server: '
            'persistentvolumeclaim "absent" not found',
            RECORDING,
            "claims/provisioning-clone.json",
        ),
    ),
    Recognised.CLONE_SOURCE_IN_USE: (
        Quote("pod shop/virt-launcher-vm1 using PersistentVolumeClaim golden", SOURCE),
    ),
    Recognised.SOURCE_IS_LARGER: (
        of_class(
            "error getting handle for DataSource Type VolumeSnapshot by Name data-snap: requested "
            "volume size 10000000000 is less than the size 10737418240 for the source snapshot "
            "data-snap"
        ),
        of_class(
            "error getting handle for DataSource Type PersistentVolumeClaim by Name grow-xfs: "
            "error, new PVC request must be greater than or equal in size to the specified PVC "
            "data source, requested 67108864 but source is 419430400"
        ),
        of_class(
            "rpc error: code = InvalidArgument desc = cannot restore from snapshot "
            "k8s/csi-vol-1@csi-snap-1: volume size 1073741824 is smaller than source volume size "
            "2147483648"
        ),
    ),
    Recognised.FLATTENED: (
        of_class(
            "rpc error: code = Aborted desc = flatten in progress: flatten is in progress for "
            "image csi-vol-1f2c1e5e-9d1a-11ee-9d4b-0a580a800041"
        ),
    ),
    Recognised.DUPLICATE_UUID: (
        Quote(
            "XFS (rbd1): Filesystem has duplicate UUID 63a4b716-0000-4000-8000-000000000000 - "
            "can't mount",
            TOOL,
        ),
    ),
    Recognised.BAD_GEOMETRY: (
        Quote(
            "EXT4-fs (rbd0): bad geometry: block count 133120 exceeds size of device (65536 "
            "blocks)",
            TOOL,
        ),
        Quote("XFS (rbd0): last sector read failed", TOOL),
    ),
    Recognised.DRIVER_ANSWERED: (
        of_stage("rbd: map failed: (22) Invalid argument"),
        of_kubelet(
            "MountVolume.MountDevice",
            "rpc error: code = Aborted desc = an operation with the given Volume ID x already "
            "exists",
        ),
    ),
    Recognised.UNKNOWN_FEATURE: (
        Quote("XFS (rbd0): Superblock has unknown incompatible features (0xc0) enabled.", TOOL),
        Quote(
            "EXT4-fs (loop0): Couldn't mount because of unsupported optional features (2000000)",
            TOOL,
        ),
        Quote(
            "EXT4-fs (loop0): couldn't mount RDWR because of unsupported optional features "
            "(2000000)",
            TOOL,
        ),
    ),
    Recognised.FILE_SYSTEM_STOPPED: (
        Quote("EXT4-fs (rbd1): Remounting filesystem read-only", TOOL),
        Quote("XFS (rbd0): Filesystem has been shut down due to log error (0x2).", TOOL),
    ),
    Recognised.FILE_SYSTEM_CHANGED: (
        Quote(
            "EXT4-fs (rbd0): mounted filesystem with ordered data mode. Quota mode: none.",
            RECORDING,
            "logs/pinned.dmesg",
        ),
        Quote("EXT4-fs (rbd0): unmounting filesystem.", RECORDING, "logs/pinned.dmesg"),
        Quote("XFS (rbd0): Mounting V5 Filesystem 6d3d1c4e-7b1f-4c55-9d0e-4c1c2f0f3c11", SOURCE),
        Quote("XFS (rbd0): Unmounting Filesystem 6d3d1c4e-7b1f-4c55-9d0e-4c1c2f0f3c11", SOURCE),
    ),
    Recognised.WRITE_REFUSED: (
        Quote("rbd: rbd0: write at objno 5 1048576~4096 result -30", SOURCE),
    ),
    Recognised.GROWTH_CONDITION: (
        Quote(
            "failed to expand pvc with rpc error: code = Internal desc = failed to establish the "
            "connection",
            RECORDING,
            "claims/grow-controller-failed.json",
        ),
        Quote(
            "failed to expand pvc with Expander.NodeExpand failed to expand the volume : rpc error",
            RECORDING,
            "claims/grow-node-failed-pod-runs.json",
        ),
    ),
    Recognised.READ_ONLY_GROWTH: (
        Quote(
            'MountVolume.NodeExpandVolume failed for volume "pvc-23bde061-90dc-4740-9bbf-'
            '664bec6b826d" requested read-only file system',
            RECORDING,
            "claims/grow-read-only-pod-started.json",
        ),
    ),
    Recognised.INFEASIBLE: (
        Quote(
            "Volume provisioning failed with infeasible error. Retries will be delayed. rpc error",
            RECORDING,
            "claims/provisioning-badparam.json",
        ),
    ),
    Recognised.LEFT_TO_POPULATOR: (
        Quote(
            "Assuming an external populator will provision the volume",
            RECORDING,
            "claims/provisioning-xns.json",
        ),
    ),
    Recognised.POOL_IS_FULL: (Quote("pool 'qp' is full (running out of quota)", SOURCE),),
    Recognised.IO_PAUSED: (Quote("pauserd,pausewr flag(s) set", SOURCE),),
    Recognised.GROUP_INACTIVE: (
        Quote(
            "pg 5.0 is stuck inactive for 61s, current state undersized+degraded+peered, last "
            "acting [0]",
            SOURCE,
        ),
    ),
    Recognised.SPLIT_BRAIN: (
        Quote("split-brain", TOOL),
        Quote("split-brain detected", TOOL),
    ),
    Recognised.LOCAL_IS_PRIMARY: (Quote("local image is primary", TOOL),),
    Recognised.OSD_IS_DOWN: (Quote("osd.0 (root=default,host=node) is down", TOOL),),
    Recognised.OSD_NAMED: (
        Quote("1 slow ops, oldest one blocked for 284 sec, osd.1 has slow ops", SOURCE),
        Quote(
            "6 slow ops, oldest one blocked for 61 sec, daemons [osd.0,osd.12] have slow ops.",
            SOURCE,
        ),
        Quote("Slow OSD heartbeats on back from osd.7 [] to osd.4 [] 1468.955 msec", SOURCE),
    ),
    Recognised.RESIZE_FAILED: (
        Quote(
            f'resize volume "{PV}" by resizer "{DRIVER}" failed: rpc error: code = Internal '
            "desc = no",
            SOURCE,
        ),
    ),
    Recognised.CHECKSUM_BEHIND: (
        Quote(
            "resize2fs: Superblock checksum does not match superblock while trying to open "
            "/dev/rbd0",
            SOURCE,
        ),
    ),
    Recognised.RESIZE_DENIED: (Quote("resize2fs: Permission denied to resize filesystem", TOOL),),
    Recognised.RESIZE_IO_ERROR: (
        Quote("resize2fs: Input/output error while trying to open /dev/rbd0", TOOL),
    ),
    Recognised.SECRET_WITHOUT_NAMESPACE: (
        of_kubelet(
            "MountVolume.MountDevice",
            "fetching NodeStageSecretRef /ceph-secret-user failed: kubernetes.io/csi: failed to "
            "find the secret ceph-secret-user in the namespace  with error: an empty namespace may "
            "not be set when a resource name is provided",
        ),
    ),
    Recognised.NO_PROGRAM: (of_stage('exec: "mkfs.xfs": executable file not found in $PATH'),),
    Recognised.EXPAND_SECRET_EMPTY: (
        Quote("rpc error: code = InvalidArgument desc = provided secret is empty", SOURCE),
    ),
    Recognised.READ_ONLY_WITHOUT_SOURCE: (
        of_class(
            "rpc error: code = InvalidArgument desc = readOnly accessMode is supported only with "
            "content source"
        ),
    ),
    Recognised.NO_TOPOLOGY_FOUND: (
        of_class("error generating accessibility requirements: no available topology found"),
    ),
    Recognised.PASSPHRASE_NOT_IN_SECRET: (
        of_stage("invalid encryption kms configuration: missing encryption passphrase in secrets"),
        of_stage('missing "encryptionPassphrase" in storageclass secret'),
    ),
    Recognised.VAULT_REFUSES: (
        of_stage(
            "invalid encryption kms configuration: failed connecting to Vault: failed to get the "
            "authentication token: Error making API request.\n\nURL: PUT "
            "https://vault:8200/v1/auth/kubernetes/login\nCode: 403. Errors:\n\n* permission denied"
        ),
        of_class(
            "invalid encryption kms configuration: failed connecting to Vault: failed to get the "
            "authentication token: Error making API request.\n\nURL: PUT "
            "https://vault:8200/v1/auth/kubernetes/login\nCode: 400. Errors:\n\n* invalid role "
            'name "csi-kubernetes"'
        ),
    ),
    Recognised.STRUCTURE_NEEDS_CLEANING: (
        of_stage(
            "mount failed: exit status 32\nMounting command: mount\nMounting arguments: -t xfs -o "
            "_netdev,defaults /dev/rbd0 /g\nOutput: mount: /g: mount(2) system call failed: "
            "Structure needs cleaning.\n       dmesg(1) may have more information after failed "
            "mount system call."
        ),
        of_stage(
            "mount failed: exit status 32\nMounting command: mount\nMounting arguments: -t ext4 "
            "/dev/rbd0 /g\nOutput: mount: mount /dev/rbd0 on /g failed: Structure needs cleaning"
        ),
    ),
    Recognised.VOLUMES_NOT_READY: (
        Quote(
            "Unable to attach or mount volumes: unmounted volumes=[data], unattached volumes=[], "
            "failed to process volumes=[]: context deadline exceeded",
            SOURCE,
        ),
        Quote(
            "Unable to attach or mount volumes: unmounted volumes=[data], unattached "
            "volumes=[data kube-api-access-x7k2p]: timed out waiting for the condition",
            SOURCE,
        ),
        Quote(
            'Unable to mount volumes for pod "web-1_default(8d0f1c1e-1111-4222-8333-444455556666)"'
            ': timeout expired waiting for volumes to attach or mount for pod "default"/"web-1". '
            "list of unmounted volumes=[data]. list of unattached volumes=[data]",
            SOURCE,
        ),
    ),
    Recognised.RPC_STATUS: (
        Quote(
            "rpc error: code = Internal desc = no such thing here",
            RECORDING,
            "life/attach_fails.json",
        ),
    ),
    Recognised.ATTACH_FAILED: (
        of_kubelet("AttachVolume.Attach", "rpc error: code = Internal desc = no such thing here"),
    ),
    Recognised.BEFORE_MOUNT: (
        Quote(
            "error making pod data directories: mkdir /var/lib/kubelet/pods/x: read-only", SOURCE
        ),
    ),
    Recognised.PROVISIONING_FAILED: (
        Quote(
            'failed to provision volume with StorageClass "rbd": claim Selector is not supported',
            RECORDING,
            "life/selector_with_a_provisioner.json",
        ),
    ),
    Recognised.CLAIM_NOT_READY: (
        Quote(
            '0/3 nodes are available: persistentvolumeclaim "pods-claim-missing" not found.',
            RECORDING,
            "life/pods_claim_missing.json",
        ),
        Quote(
            '0/3 nodes are available: persistentvolumeclaim "pods-claim-being-deleted" is being '
            "deleted.",
            RECORDING,
            "life/pods_claim_being_deleted.json",
        ),
        Quote('persistentvolumeclaim "data" bound to non-existent persistentvolume "x"', SOURCE),
    ),
    Recognised.CLAIMS_UNBOUND: (
        Quote(
            "0/3 nodes are available: pod has unbound immediate PersistentVolumeClaims.",
            RECORDING,
            "life/claim_was_there_before_its_statefulset.json",
        ),
    ),
    Recognised.NO_VOLUME: (
        Quote(
            "0/1 nodes are available: 1 node(s) unavailable due to one or more pvc(s) bound to "
            "non-existent pv(s).",
            SOURCE,
        ),
    ),
    Recognised.AFFINITY: (
        Quote(
            "0/3 nodes are available: 3 node(s) didn't match PersistentVolume's node affinity.",
            RECORDING,
            "life/volume_tied_to_a_zone.json",
        ),
        Quote("0/2 nodes are available: 2 node(s) had volume node affinity conflict.", SOURCE),
        Quote("0/2 nodes are available: 2 node(s) had no available volume zone.", SOURCE),
    ),
    Recognised.LIMIT: (
        Quote(
            "0/3 nodes are available: 1 node(s) exceed max volume count, 2 node(s) didn't match "
            "Pod's node affinity/selector.",
            RECORDING,
            "life/volume_limit_reached.json",
        ),
    ),
    Recognised.NO_DRIVER: (
        Quote(
            f"0/2 nodes are available: 2 {DRIVER} CSI driver is not installed on the node.", SOURCE
        ),
    ),
    Recognised.NOT_OWNER: (
        Quote(
            "ephemeral volume scratch: PVC default/ephemeral-claims-name-taken-scratch was not "
            "created for pod default/ephemeral-claims-name-taken (pod is not owner)",
            RECORDING,
            "life/ephemeral_claims_name_taken.json",
        ),
    ),
    Recognised.OF_VOLUMES: (
        Quote("0/1 nodes are available: 1 node(s) did not have enough free storage.", SOURCE),
    ),
    Recognised.GATES: (
        Quote("Scheduling is blocked due to non-empty scheduling gates", SOURCE),
        Quote("waiting for scheduling gates: [example.com/gate]", SOURCE),
    ),
    Recognised.MULTI_ATTACH: (
        Quote(
            'Multi-Attach error for volume "pod-is-ending" Volume is already used by pod(s) '
            "pod-is-ending",
            RECORDING,
            "life/pod_is_ending.json",
        ),
        Quote(
            f'Waiting for detach for volume "{PV}" Volume is already exclusively attached to one '
            "node, waiting on detach before it can be attached to another node",
            SOURCE,
        ),
    ),
    Recognised.BEING_DETACHED: (
        Quote(
            'AttachVolume.Attach failed for volume "attach-during-its-own-detach" : volume '
            "attachment is being deleted",
            RECORDING,
            "life/attach_during_its_own_detach.json",
        ),
    ),
    Recognised.ATTACHER_SILENT: (
        of_kubelet(
            "AttachVolume.Attach",
            f"timed out waiting for external-attacher of {DRIVER} CSI driver to attach volume x",
        ),
    ),
    Recognised.VOLUME_GONE: (
        Quote('persistentvolume "pvc-1" not found', SOURCE),
        Quote('persistentvolumes "pvc-1" not found', SOURCE),
    ),
    Recognised.WAIT_FOR_ATTACH: (
        of_kubelet("MountVolume.WaitForAttach", "volume x has GET error for volume attachment y"),
    ),
    Recognised.ONE_POD_ONLY: (
        Quote(
            "volume uses the ReadWriteOncePod access mode and is already in use by another pod",
            RECORDING,
            "life/second_pod_of_a_volume_for_one.json",
        ),
    ),
    Recognised.NOT_THE_CLAIMS: (
        Quote(
            "Unable to attach or mount volumes: unmounted volumes=[data], unattached volumes=[], "
            "failed to process volumes=[data]: found PV object x but its pv.Spec.ClaimRef.UID u "
            "does not point to claim.UID v",
            SOURCE,
        ),
    ),
    Recognised.CLAIM_OF_POD: (
        Quote(
            "failed to process volumes=[v0]: error processing PVC "
            "default/restored-and-misbound-1fc9ba: PVC is not bound",
            RECORDING,
            "life/restored_and_misbound.json",
        ),
    ),
    Recognised.NODE_AFFINITY: (
        of_kubelet("MountVolume.NodeAffinity check", "no matching NodeSelectorTerms"),
    ),
    Recognised.DRIVER_NOT_REGISTERED: (
        Quote(
            "kubernetes.io/csi: attacher.MountDevice failed to create newCsiDriverClient: driver "
            "name second.rbd.csi.ceph.com not found in the list of registered CSI drivers",
            RECORDING,
            "life/driver_missing_on_its_node.json",
        ),
        of_kubelet("AttachVolume.Attach", f"CSINode worker-2 does not contain driver {DRIVER}"),
    ),
    Recognised.DRIVER_SILENT: (
        of_kubelet(
            "MountVolume.MountDevice",
            'rpc error: code = Unavailable desc = connection error: desc = "transport: Error while '
            f"dialing: dial unix /var/lib/kubelet/plugins/{DRIVER}/csi.sock: connect: connection "
            'refused"',
        ),
    ),
    Recognised.SECRET_MISSING: (
        Quote(
            "fetching NodeStageSecretRef default/secret-missing-6fe9db-secret failed: "
            "kubernetes.io/csi: failed to find the secret secret-missing-6fe9db-secret in the "
            "namespace default with error",
            RECORDING,
            "life/secret_missing.json",
        ),
    ),
    Recognised.ATTACHERS_SECRET_MISSING: (
        Quote(
            'failed to load secret "ceph/rbd": secrets "rbd" not found',
            RECORDING,
            "life/attachers_secret_missing.json",
        ),
    ),
    Recognised.WRONG_MODE: (
        Quote(
            "volume v0 has volumeMode Block, but is specified in volumeMounts",
            RECORDING,
            "life/device_used_as_a_directory.json",
        ),
        Quote(
            "volume v0 has volumeMode Filesystem, but is specified in volumeDevices",
            RECORDING,
            "life/directory_used_as_a_device.json",
        ),
    ),
    Recognised.SELINUX: (
        Quote(f'conflicting SELinux labels of volume {PV}: "a" and "b"', SOURCE),
        Quote(
            f'waiting for unmount of volume "{PV}", because it is already mounted to a different '
            "pod with a different SELinux label",
            SOURCE,
        ),
    ),
    Recognised.SETTING_OWNERSHIP: (
        Quote("Setting volume ownership for x/volumes/y, processed 1 files.", SOURCE),
    ),
    Recognised.OWNERSHIP_FAILED: (
        of_kubelet("MountVolume.SetUp", "applyFSGroup failed for vol x: lchown /x: read-only"),
    ),
    Recognised.EXPANSION_FAILED: (
        Quote(f'MountVolume.Setup failed while expanding volume for volume "{PV}" : no', SOURCE),
        Quote(f'NodeExpandVolume.NodeExpandVolume failed for volume "{PV}" : no', SOURCE),
    ),
    Recognised.NO_PLUGIN: (
        Quote(
            "unattached volumes=[], failed to process volumes=[v0]: failed to get Plugin from "
            'volumeSpec for volume "plugin-of-old-cb5826" err=no volume plugin matched',
            RECORDING,
            "life/plugin_of_old.json",
        ),
    ),
    Recognised.SELF_LINK: (
        Quote(
            "unexpected error getting claim reference: selfLink was empty, can't make reference",
            SOURCE,
        ),
    ),
    Recognised.DEVICE_IN_USE: (
        of_mkfs(
            "mke2fs 1.47.0 (5-Feb-2023)\n/dev/rbd0 is apparently in use by the system; will not "
            "make a filesystem here!\n"
        ),
        of_mkfs("mkfs.xfs: cannot open /dev/rbd0: Device or resource busy\n"),
        of_stage(
            "mount failed: exit status 32\nMounting command: mount\nMounting arguments: -t ext4 "
            "/dev/rbd0 /o\nOutput: mount: /o: /dev/rbd0 already mounted or mount point busy.",
            TOOL,
        ),
    ),
    Recognised.FSCK_FAILED: (
        Quote(
            "'fsck' found errors on device /dev/rbd0 but could not correct them: fsck from "
            "util-linux 2.38.1\n/dev/rbd0 contains a file system with errors, check forced.",
            RECORDING,
            "life/file_system_damaged.json",
        ),
        of_stage(
            "'xfs_repair' found errors on device /dev/rbd0 but could not correct them: Phase 1 - "
            "find and verify superblock...\nSorry, could not find valid secondary superblock\n"
        ),
    ),
    Recognised.XFS_LOG_NOT_REPLAYED: (
        of_stage(
            "'xfs_repair' found errors on device /dev/rbd0 but could not correct them: Phase 1 - "
            "find and verify superblock...\nPhase 2 - using internal log\n        - zero log...\n"
            "ERROR: The filesystem has valuable metadata changes in a log which needs to\nbe "
            "replayed.  Mount the filesystem to replay the log, and unmount it before\n",
            TOOL,
        ),
    ),
    Recognised.UNFORMATTED: (
        Quote(
            "cannot mount unformatted disk /dev/rbd0 as we are manipulating it in read-only mode",
            RECORDING,
            "life/empty_and_only_to_be_read.json",
        ),
    ),
    Recognised.ANOTHER_FILE_SYSTEM: (
        of_stage(
            'failed to mount the volume as "ext4", it already contains xfs. Mount error: mount '
            "failed: exit status 32"
        ),
        of_stage(
            'failed to mount the volume as "ext4", it already contains unknown data, probably '
            "partitions. Mount error: mount failed: exit status 32"
        ),
    ),
    Recognised.MOUNT_REFUSED: (
        Quote(
            "wrong fs type, bad option, bad superblock on /dev/rbd2",
            RECORDING,
            "life/another_file_system.json",
        ),
    ),
    Recognised.FORMAT_FAILED: (
        Quote(
            'format of disk "/dev/rbd0" failed: type:("xfs")',
            RECORDING,
            "life/image_too_small_for_its_file_system.json",
        ),
        Quote(
            "rpc error: code = Internal desc = exit status 1",
            RECORDING,
            "recordings/25-rollback-failing/kube.events",
        ),
    ),
    Recognised.IN_USE: (
        Quote(
            "rbd image k8s/open-outside is still being used", RECORDING, "life/open_outside.json"
        ),
    ),
    Recognised.STILL_ATTACHED: (
        Quote(f"persistentvolume {PV} is still attached to node worker-1", SOURCE),
    ),
    Recognised.UNDER_WAY: (
        of_kubelet(
            "MountVolume.MountDevice",
            "rpc error: code = Aborted desc = an operation with the given Volume ID x already "
            "exists",
        ),
    ),
    Recognised.DEADLINE: (
        of_kubelet(
            "MountVolume.MountDevice",
            "rpc error: code = DeadlineExceeded desc = context deadline exceeded",
        ),
    ),
    Recognised.EXHAUSTED: (
        of_kubelet(
            "AttachVolume.Attach", "rpc error: code = ResourceExhausted desc = too many volumes"
        ),
    ),
    Recognised.NO_CLUSTER: (
        Quote(
            'missing configuration for cluster ID "ceph-of-old"',
            RECORDING,
            "life/cluster_that_is_not_configured.json",
        ),
        of_stage("missing configuration for cluster ID (ceph-of-old)"),
    ),
    Recognised.UNMOUNT_REPORTED: (
        Quote(
            'UnmountDevice failed for volume "pvc-aecdb67e-cfd0-495c-b2cf-b726d8144a4c"',
            RECORDING,
            "logs/staging-busy.kubelet.log",
        ),
    ),
    Recognised.VOLUME_DATA_GONE: (
        Quote(
            "UnmountVolume.NewUnmounter failed for volume: kubernetes.io/csi: unmounter failed to "
            "load volume data file [/p/mount]: kubernetes.io/csi: failed to open volume data file "
            "[/p/vol_data.json]: open /p/vol_data.json: no such file or directory",
            SOURCE,
        ),
    ),
    Recognised.VOLUME_DATA_DAMAGED: (
        Quote(
            "UnmountVolume.NewUnmounter failed for volume: kubernetes.io/csi: unmounter failed to "
            "load volume data file [/p/mount]: kubernetes.io/csi: failed to parse volume data file "
            "[/p/vol_data.json]: EOF",
            SOURCE,
        ),
    ),
    Recognised.NO_MONITORS: (
        of_stage(
            "failed to fetch monitor list using clusterID (ceph-of-old): empty monitor list for "
            "cluster ID (ceph-of-old) in config"
        ),
    ),
    Recognised.NO_NETWORK_NAMESPACE: (
        of_stage(
            "rbd: map failed with error failed to get stat for {{ .kubeletDir }}/plugins/net stat "
            "{{ .kubeletDir }}/plugins/net: no such file or directory, rbd error output: "
        ),
    ),
    Recognised.PASSPHRASE_SECRET_GONE: (
        of_stage('failed to get Secret shop/storage-secret: secrets "storage-secret" not found'),
    ),
    Recognised.STAGED_READ_ONLY: (of_stage("chmod /k/globalmount/0001-x: read-only file system"),),
    Recognised.FLATTENING: (
        of_stage("flatten in progress: flatten is in progress for image csi-vol-1"),
    ),
    Recognised.NOT_PRIMARY: (of_stage(f"cannot map image {SPEC} it is not primary"),),
    Recognised.NEEDS_RBD_NBD: (of_stage("feature journaling requires rbd-nbd for mounter"),),
    Recognised.KRBD_LACKS_FEATURE: (
        Quote("unsupported krbd Feature", RECORDING, "life/features_that_krbd_lacks.json"),
        of_stage(
            of_map(
                6,
                "rbd: sysfs write failed\nRBD image feature set mismatch. You can disable features "
                'unsupported by the kernel with "rbd feature disable k8s/x journaling".\nrbd: map '
                "failed: (6) No such device or address",
            ),
            TOOL,
        ),
    ),
    Recognised.POOL_GONE: (
        Quote(
            "pool not found: pool (nowhere) not found in Ceph cluster",
            RECORDING,
            "life/pool_missing.json",
        ),
        of_stage("pool not found: pool ID(7) not found in Ceph cluster"),
        of_stage("pool ID (8) not found in Ceph cluster"),
    ),
    Recognised.IMAGE_GONE: (
        Quote(
            "Failed as image not found (internal RBD image not found: rbd: ret=-2, No such file or "
            "directory)",
            RECORDING,
            "life/image_missing.json",
        ),
    ),
    Recognised.ENCRYPTION_STATUS: (
        of_stage(f"rbd image {SPEC} found mounted with unexpected encryption status "),
    ),
    Recognised.ENCRYPTION_FAILED: (
        of_stage(f'failed to fetch passphrase for "{SPEC}": no'),
        of_stage("invalid encryption kms configuration: no"),
        of_stage(f"failed to save encryption status for {SPEC}: no"),
        of_stage(f'volume "{SPEC}" can not fetch DEK for "x"'),
        of_stage(f'error generating volume {HANDLE}: could not find KMS provider "vaults"'),
        of_stage(
            f"error generating volume {HANDLE}: failed fetching token from "
            'shop/ceph-csi-kms-token: secrets "ceph-csi-kms-token" not found'
        ),
        Quote(
            "failed to encrypt volume k8s/", RECORDING, "recordings/20-nbd-killed/kube.events.json"
        ),
    ),
    Recognised.MANY_WRITERS: (
        Quote(
            "rbd: RWX access mode request is only valid for volumes with access type `block`",
            RECORDING,
            "life/files_for_many_nodes.json",
        ),
        Quote(
            "multi node access modes are only supported on rbd `block` type volumes",
            RECORDING,
            "life/files_for_many_writers.json",
        ),
    ),
    Recognised.CLONE_LIMIT: (
        of_class("rpc error: code = ResourceExhausted desc = rbd image k8s/x has 500 snapshots"),
    ),
    Recognised.CLASS_SECRET_MISSING: (
        of_class('error getting secret s in namespace n: secrets "s" not found'),
    ),
    Recognised.CLASS_SECRET_HALF_NAMED: (
        of_class(
            "failed to get name and namespace template from params: either name and namespace"
        ),
    ),
    Recognised.NO_TOPOLOGY: (
        of_class("error generating accessibility requirements: no topology key found on CSINode n"),
        of_class("error generating accessibility requirements: no topology key found for node n"),
    ),
    Recognised.NO_CSI_NODE: (
        of_class('failed to get selected CSINode n: csinodes.storage.k8s.io "n" not found'),
        of_class('failed to get selected CSINode n: csinode.storage.k8s.io "n" not found'),
        of_class('error getting CSINode for selected node "n": no'),
        of_class('failed to get target node: nodes "n" not found'),
    ),
    Recognised.SELECTOR: (of_class("claim Selector is not supported"),),
    Recognised.MODULE_OF_OTHER_KERNEL: (
        of_stage(
            of_map(
                2,
                "modinfo: ERROR: could not get modinfo from 'rbd': Exec format error\nmodprobe: "
                "ERROR: could not insert 'rbd': Exec format error\nrbd: failed to load rbd kernel "
                "module (1)\nrbd: sysfs write failed\nrbd: map failed: (2) No such file or "
                "directory",
            )
        ),
    ),
    Recognised.NO_MODULE: (
        Quote(
            "modinfo: ERROR: Module rbd not found.",
            RECORDING,
            "life/kernel_without_the_module.json",
        ),
        of_stage(
            of_map(
                2,
                "modprobe: FATAL: Module rbd not found in directory /lib/modules/6.1.0\nrbd: "
                "failed to load rbd kernel module (1)\nrbd: sysfs write failed\nrbd: map failed: "
                "(2) No such file or directory",
            ),
            TOOL,
        ),
    ),
    Recognised.KEY_NOT_ADDED: (
        of_stage(
            of_map(
                1,
                "rbd: failed to add secret 'client.csi' to kernel\nrbd: map failed: (1) Operation "
                "not permitted",
            ),
            TOOL,
        ),
    ),
    Recognised.NO_ADDRESS: (
        of_stage(
            of_map(
                2,
                "rbd: failed to get mon address (possible ms_mode mismatch)\nrbd: map failed: (2) "
                "No such file or directory",
            ),
            TOOL,
        ),
    ),
    Recognised.MAP_FAILED: (
        of_stage(
            of_map(5, "rbd: sysfs write failed\nrbd: map failed: (5) Input/output error"), TOOL
        ),
    ),
    Recognised.MAP_NUMBER: (
        Quote(
            "rbd: map failed: (108) Cannot send after transport endpoint shutdown",
            RECORDING,
            "life/map_on_a_blocklisted_client.json",
        ),
    ),
    Recognised.RBD_EXITED: (
        Quote(
            "an error (exit status 108) occurred while running rbd args: [",
            RECORDING,
            "life/map_on_a_blocklisted_client.json",
        ),
        Quote(
            "an error (exit status 13) occurred while running nsenter args: [--net=/x -- rbd --id",
            SOURCE,
        ),
    ),
    Recognised.RBD_USER: (
        Quote("occurred while running rbd args: [--id csi-rbd-node -m 10.77.0.1:6789 map]", SOURCE),
    ),
    Recognised.CONNECT_NUMBER: (
        Quote(
            "connecting failed: rados: ret=-13, Permission denied",
            RECORDING,
            "life/key_of_somebody_else.json",
        ),
    ),
    Recognised.IMAGE_NUMBER: (
        Quote("rbd: ret=-2, No such file or directory", RECORDING, "life/image_missing.json"),
    ),
    Recognised.POOL_NUMBER: (
        Quote(
            "failed to open IOContext for pool k8s: rados: ret=-1, Operation not permitted", SOURCE
        ),
    ),
    Recognised.NO_NBD_MODULE: (
        of_stage(
            "modprobe: FATAL: Module nbd not found in directory /lib/modules/6.1.0\nrbd-nbd: "
            "failed to load nbd kernel module (1)"
        ),
    ),
    Recognised.TIMED_OUT: (
        Quote(
            "rados: ret=-110, Connection timed out", RECORDING, "life/monitors_out_of_reach.json"
        ),
    ),
    Recognised.DENIED: (
        Quote("rados: ret=-13, Permission denied", RECORDING, "life/key_of_somebody_else.json"),
    ),
    Recognised.UNMAP_BUSY: (Quote("rbd: unmap failed: (16) Device or resource busy", TOOL),),
    Recognised.UMOUNT_BUSY: (Quote("umount: /x: target is busy.", TOOL),),
    Recognised.WATCH_ENDED: (
        Quote("encountered watch error: -107", RECORDING, "logs/blocklisted.dmesg"),
    ),
    Recognised.KERNEL_BLOCKLISTED: (
        Quote("failed to reregister watch: -108", RECORDING, "logs/blocklisted.dmesg"),
    ),
    Recognised.MAP_BLOCKLISTED: (
        Quote("map failed: (108)", RECORDING, "life/map_on_a_blocklisted_client.json"),
    ),
    Recognised.BLOCKLIST_REFUSED: (
        Quote("rbd: rbd0: failed to blocklist client4393: -13", TOOL),
        Quote("rbd: rbd0: blocklist of client4393 failed: -13", SOURCE),
    ),
    Recognised.FEATURE_SET_MISMATCH: (
        Quote(
            "libceph: mon0 (1)10.77.0.1:6789 feature set mismatch, my 106b84a842a42 < server's "
            "40106b84a842a42, missing 400000000000000",
            SOURCE,
        ),
        Quote("libceph: mon0 (1)10.77.0.1:6789 missing required protocol features", SOURCE),
    ),
    Recognised.OTHER_CLUSTER_ANSWERS: (
        Quote(
            "libceph: bad fsid, had 50694798-7cee-5f76-a487-c8b372b8e58a got "
            "7d112cea-dc64-4604-876a-0d7dcec17d1a",
            SOURCE,
        ),
    ),
    Recognised.CONNECTION_LOST: (
        Quote("libceph: mon0 (1)10.77.0.1:6789 socket closed (con state V1_BANNER)", SOURCE),
        Quote("libceph: osd7 (1)10.77.0.7:6801 connect error", SOURCE),
    ),
    Recognised.CONNECT_REFUSED_HERE: (
        Quote("libceph: connect (1)10.77.0.1:6789 error -101", SOURCE),
        Quote("libceph: connect (2)[fd00:77::1]:3300 error -113", SOURCE),
        Quote("libceph: connect 10.77.0.1:6789 error -22", SOURCE),
    ),
    Recognised.FORMER_PROTOCOL_TO_MSGR2: (
        Quote("libceph: mon0 (1)10.77.0.1:3300 socket closed (con state V1_BANNER)", SOURCE),
        Quote("libceph: mon0 172.17.0.1:3300 socket closed (con state CONNECTING)", SOURCE),
    ),
    Recognised.UNKNOWN_MAP_OPTION: (
        Quote("libceph: bad option at 'ms_mode=legacy'", SOURCE),
        Quote("rbd: Unknown parameter 'ms_mode'", SOURCE),
    ),
    Recognised.TOO_MANY_PARENTS: (
        Quote("rbd: id 135dfba5eabd: parent chain is too long (17)", SOURCE),
    ),
    Recognised.POOL_FULL_FOR_CLIENT: (Quote("libceph: pool 4 is full or reached quota", TOOL),),
    Recognised.SECRET_TOO_BIG: (Quote("libceph: secret too big 32", TOOL),),
    Recognised.TASK_HUNG: (Quote("blocked for more than", RECORDING, "logs/hung.dmesg"),),
    Recognised.POD_WITHOUT_ACCOUNT: (
        Quote(
            'pods "csi-rbdplugin-provisioner-5dd69bb477-" is forbidden: error looking up service '
            "account rook-ceph/rook-csi-rbd-provisioner-sa: serviceaccount "
            '"rook-csi-rbd-provisioner-sa" not found',
            SOURCE,
        ),
    ),
    Recognised.POD_OVER_QUOTA: (
        Quote(
            'pods "csi-rbdplugin-" is forbidden: exceeded quota: storage, requested: pods=1, '
            "used: pods=4, limited: pods=4",
            SOURCE,
        ),
    ),
    Recognised.POD_OUTSIDE_QUOTA: (
        Quote(
            "Error creating: insufficient quota to match these scopes: [{PriorityClass In "
            "[system-node-critical system-cluster-critical]}]",
            SOURCE,
        ),
        Quote(
            'pods "csi-rbdplugin-" is forbidden: status unknown for quota: storage, resources: '
            "pods",
            SOURCE,
        ),
        Quote(
            'pods "csi-rbdplugin-" is forbidden: failed quota: storage: must specify limits.cpu '
            "for: csi-rbdplugin",
            SOURCE,
        ),
    ),
    Recognised.POD_INSECURE: (
        Quote(
            'pods "csi-rbdplugin-" is forbidden: violates PodSecurity "restricted:latest": host '
            "namespaces (hostNetwork=true)",
            SOURCE,
        ),
    ),
    Recognised.POD_WITHOUT_CONSTRAINT: (
        Quote(
            'Error creating: pods "csi-cephfsplugin-provisioner-5b6959d889-" is forbidden: unable '
            "to validate against any security context constraint: [spec.volumes[1]: Invalid "
            'value: "hostPath": hostPath volumes are not allowed to be used]',
            SOURCE,
        ),
    ),
    Recognised.POD_WITHOUT_PRIORITY: (
        Quote(
            'pods "csi-rbdplugin-" is forbidden: no PriorityClass with name storage was found',
            SOURCE,
        ),
    ),
    Recognised.WEBHOOK_FAILS: (
        Quote(
            'Internal error occurred: failed calling webhook "validate.kyverno.svc-fail": failed '
            'to call webhook: Post "https://kyverno-svc.kyverno.svc:443/validate/fail?'
            'timeout=10s": context deadline exceeded',
            SOURCE,
        ),
    ),
    Recognised.WEBHOOK_REFUSES: (
        Quote(
            'admission webhook "validate.kyverno.svc-fail" denied the request: privileged '
            "containers are not allowed",
            SOURCE,
        ),
    ),
}
