"""What the errors of external-provisioner mean: for a volume to create, and for one to delete.

parse/recognised.py has the texts and their sources, parse/faults.py the error numbers of Ceph's
calls.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from rbdagent.commands import Template, template
from rbdagent.model import Recovery
from rbdagent.parse.faults import Call, Fault, Kind
from rbdagent.parse.recognised import Recognised


class ControllerText(NamedTuple):
    """Texts or failed calls, and what they mean; groups fill the placeholders."""

    kinds: tuple[Kind, ...]
    means: str
    remedy: str
    command: Template | None = None
    recovery: Recovery | None = None
    """Only if it differs from the catalogue's."""


VAULT_MEANS: Final = "Vault refuses the request ({number}): {why}"
VAULT_REMEDY: Final = (
    "Compare the entry of this encryptionKMSID in ceph-csi's configuration "
    "(csi-kms-connection-details: vaultAuthPath, vaultRole, vaultBackendPath) with the role and "
    "the policy in Vault. The service account that logs in is ceph-csi's or, with vaulttenantsa, "
    "one in the claim's namespace. 503 means that Vault is sealed. Delete nothing in Vault."
)
_DESCRIBE_SNAPSHOT: Final = template(
    "kubectl describe volumesnapshot", "{snapshot}", namespace="{claim_namespace}"
)
_ON_THE_BLOCKLIST: Final = ControllerText(
    (Fault.BLOCKLISTED,),
    "the Ceph client of the provisioner's node is on the blocklist",
    "`ceph osd blocklist ls` shows the entry. Restart the provisioner's pod: it then connects "
    "as a new client.",
    template("ceph osd blocklist ls"),
)
_OUT_OF_REACH: Final = ControllerText(
    (Fault.TIMED_OUT, Recognised.TIMED_OUT),
    "the monitors of the Ceph cluster cannot be reached",
    "Check the monitors' addresses in the plugin's ConfigMap, and the network between its "
    "pods and the monitors.",
    template("ceph -s"),
)

NO_MONITORS_REMEDY: Final = (
    "Rook writes the monitors into rook-ceph-csi-config itself, once one runs: look at the "
    "CephCluster and at the operator's log; without Rook, write them into ceph-csi-config, in the "
    "namespace of the driver's pods. A monitor never uses a volume of the same cluster."
)
_NO_MONITORS: Final = ControllerText(
    (Recognised.NO_MONITORS,),
    "the plugin's ConfigMap has the cluster {cluster}, and no monitors of it",
    NO_MONITORS_REMEDY,
    template("kubectl get configmaps -A --field-selector metadata.name=rook-ceph-csi-config"),
)
NEEDED_FIELDS: Final = (
    "A secret for RBD has the fields userID (without `client.`) and userKey; one for CephFS has "
    "adminID and adminKey, one of the in-tree driver has key. `kubectl describe secret` shows the "
    "fields and no value. Complete the secret, or name the right one."
)

PROVISIONING: Final = (
    ControllerText(
        (Recognised.SECRET_FIELD_MISSING,),
        "the secret that its class names has no field {field}",
        NEEDED_FIELDS,
        template("kubectl get storageclasses -o yaml"),
    ),
    ControllerText(
        (Recognised.NO_RBD_SUPPORT,),
        "the module rbd_support of ceph-mgr does not run, and ceph-csi needs it to flatten clones",
        "See why the module does not run: `ceph mgr module ls`, `ceph health detail`, and the log "
        "of the active mgr. `ceph mgr fail` starts another mgr.",
        template("ceph mgr module ls"),
    ),
    ControllerText((Recognised.VAULT_REFUSES,), VAULT_MEANS, VAULT_REMEDY),
    ControllerText(
        (Recognised.PASSPHRASE_NOT_IN_SECRET,),
        "the secret that its class names for encryption has no encryptionPassphrase",
        "Add the key encryptionPassphrase to that secret.",
    ),
    ControllerText(
        (Recognised.ENCRYPTION_FAILED,),
        "the key management service (KMS) of its class, or its configuration, is not available",
        "Check the encryptionKMSID of the class and its entry in csi-kms-connection-details, and "
        "that the provisioner's pod reaches the KMS: the end of the error in the event names it.",
        template("kubectl describe pvc", "{claim_name}", namespace="{claim_namespace}"),
    ),
    ControllerText(
        (Recognised.CREATION_FOUND_NOTHING,),
        "Ceph does not find the pool of its data, or the RADOS namespace",
        "Compare the class's dataPool with `ceph osd pool ls`, and the radosNamespace of its "
        "clusterID in ceph-csi's configuration with `rbd namespace ls`. Create what is missing, "
        "with the tool that makes it (a CephBlockPoolRadosNamespace of Rook, for example).",
        template("ceph osd pool ls"),
    ),
    ControllerText(
        (Recognised.INVALID_FEATURE,),
        "this ceph-csi does not accept the imageFeatures of its class",
        "ceph-csi accepts layering, and further features by its version; older versions need the "
        "parameter. A class's parameters cannot be changed: make a new class with imageFeatures: "
        "layering, with the tool that made this one, or update ceph-csi.",
        template("kubectl get storageclasses -o yaml"),
        Recovery(note="a class's parameters cannot be changed"),
    ),
    ControllerText(
        (Recognised.READ_ONLY_WITHOUT_SOURCE,),
        "it requests ReadOnlyMany without a snapshot or a claim as its source, and an empty volume "
        "that is only read has no use",
        "Delete the claim, which has no volume yet, and create it again: with ReadWriteOnce, or "
        "with a dataSource. A claim's access modes cannot be changed.",
        recovery=Recovery(note="a claim's access modes cannot be changed"),
    ),
    ControllerText(
        (Recognised.NO_TOPOLOGY_FOUND,),
        "external-provisioner expects topology labels, and no node reports any",
        "If every node can reach the same pools, start csi-provisioner with "
        "--feature-gates=Topology=false. Otherwise label the nodes, and start csi-rbdplugin with "
        "--domainlabels.",
        template("kubectl get csinodes -o yaml"),
    ),
    ControllerText(
        ((Call.POOL, Fault.NO_OMAP),),
        "the pool that its class names cannot hold the journal of ceph-csi (95): most likely it is "
        "erasure-coded, and only a replicated pool has omap",
        "`ceph osd pool ls detail` shows the type of the pool. A class needs a replicated pool as "
        "`pool`, and may name an erasure-coded one as `dataPool`. A class's parameters cannot be "
        "changed: make another class, with the tool that made this one.",
        template("ceph osd pool ls detail"),
        Recovery(note="a class's parameters cannot be changed"),
    ),
    ControllerText(
        (Recognised.MODE_OF_SOURCE_DIFFERS,),
        "its volumeMode differs from that of its source",
        "The volumeMode of a claim cannot be changed. Who makes the claim (a person, a backup "
        "tool, CDI) makes another one with the mode of the source. Do not annotate the "
        "VolumeSnapshotContent to allow the change: it protects the data from being read as "
        "another kind of volume.",
        recovery=Recovery(note="a claim's volumeMode cannot be changed"),
    ),
    ControllerText(
        (Recognised.SNAPSHOTS_NOT_SERVED,),
        "the API server does not serve the version of VolumeSnapshot that csi-provisioner reads",
        "The CRDs of the snapshots are missing, or of another generation than csi-provisioner: "
        "update them with the tool that installed them. Never delete these CRDs: with them go all "
        "VolumeSnapshots, and with their deletionPolicy the data.",
        template("kubectl api-resources --api-group=snapshot.storage.k8s.io"),
        Recovery(actor="external-provisioner", condition="the version is served"),
    ),
    ControllerText(
        (Recognised.SNAPSHOT_GONE,),
        "its source, the VolumeSnapshot {snapshot}, does not exist",
        "Create that VolumeSnapshot, or delete the claim, which has no volume yet, and create it "
        "from another source.",
        recovery=Recovery(actor="external-provisioner", condition="the snapshot exists"),
    ),
    ControllerText(
        (Recognised.SNAPSHOT_NOT_BOUND,),
        "its source, the VolumeSnapshot {snapshot}, is not bound to a VolumeSnapshotContent",
        "Check that a Deployment snapshot-controller runs. It is a separate program: most clusters "
        "need it installed apart from the CSI driver, whose csi-snapshotter is another one. "
        "Without it the VolumeSnapshot has no status. If it runs, the field status.error has the "
        "cause, or the content belongs to another snapshot or driver.",
        _DESCRIBE_SNAPSHOT,
        Recovery(actor="snapshot-controller", condition="the snapshot is bound"),
    ),
    ControllerText(
        (Recognised.SNAPSHOT_NOT_READY,),
        "its source, the VolumeSnapshot {snapshot}, is not ready",
        "The field status.error of the VolumeSnapshot {snapshot} has the cause, or it is still "
        "being made. `provided secret is empty` there: its VolumeSnapshotContent names no "
        "VolumeSnapshotClass (velero#9515), or the class names no secret.",
        _DESCRIBE_SNAPSHOT,
        recovery=Recovery(actor="external-provisioner", condition="the snapshot is ready"),
    ),
    ControllerText(
        (Recognised.CLONE_SOURCE_GONE,),
        "its source, the claim {source}, does not exist in its namespace",
        "Delete the claim, which has no volume yet, and create it from a claim that exists: its "
        "dataSource cannot be changed.",
        recovery=Recovery(actor="external-provisioner", condition="the source exists"),
    ),
    ControllerText(
        (Recognised.SOURCE_IS_LARGER,),
        "it requests {asked}{request} bytes, and its source {source}{clone} has {least}{size}",
        "Delete the claim, which has no volume yet, and create it again with at least "
        "{least}{size} bytes: the size of a Pending claim cannot be changed.",
        recovery=Recovery(note="the size of a Pending claim cannot be changed"),
    ),
    ControllerText(
        (Recognised.CLASS_SECRET_MISSING,),
        "the secret {namespace}/{name} that its class names does not exist, or may not be read",
        "Create that secret (userID and userKey of a Ceph user with `profile rbd`), or create the "
        "class again with the correct name of the secret: a class's parameters cannot be changed.",
        template("kubectl get secret", "{name}", namespace="{namespace}"),
    ),
    ControllerText(
        (Recognised.CLASS_SECRET_HALF_NAMED,),
        "its class states the name of a secret without its namespace, or the reverse",
        "Create the class again with both csi.storage.k8s.io/provisioner-secret-name and "
        "-namespace: a class's parameters cannot be changed.",
    ),
    ControllerText(
        (Fault.NO_CONFIGURATION,),
        "its driver finds no monitors or no keyring for the connection",
        "Check the ConfigMap with the driver's ceph.conf and keyring (ceph-config), which its "
        "Deployment mounts at /etc/ceph, and the secret that the class names.",
        template("kubectl get configmap -A --field-selector metadata.name=ceph-config -o yaml"),
    ),
    _ON_THE_BLOCKLIST,
    ControllerText(
        ((Call.POOL, Fault.DENIED), (Call.IMAGE, Fault.DENIED)),
        "the user of the class's secret may not use the pool",
        "Give that user the caps that ceph-csi needs (mon 'profile rbd', osd 'profile rbd "
        "pool=POOL', mgr 'profile rbd pool=POOL'): `ceph auth get client.NAME` shows what it has.",
    ),
    ControllerText(
        (Fault.DENIED, Recognised.DENIED),
        "Ceph does not accept the key of the class's secret",
        "Write the correct userID and userKey into the secret that the class names: neither has "
        "quotes or a line end, and userKey is the key only.",
    ),
    _OUT_OF_REACH,
    ControllerText(
        (Fault.UNUSABLE,),
        "the user's key is malformed or of a type that the driver's librados does not know, or the "
        "name of a monitor cannot be resolved",
        "Check the secret's userKey and the monitors in the plugin's ConfigMap.",
    ),
    _NO_MONITORS,
    ControllerText(
        (Recognised.PASSPHRASE_SECRET_GONE,),
        "the secret {namespace}/{name}, which ceph-csi's encryption needs, does not exist or may "
        "not be read",
        "Create that secret: with the key encryptionPassphrase, or as the entry of this "
        "encryptionKMSID in csi-kms-connection-details needs it. If it existed before, restore it: "
        "another passphrase does not open the volumes that have the former one.",
        template("kubectl get secret", "{name}", namespace="{namespace}"),
    ),
    ControllerText(
        (Recognised.NO_CLUSTER,),
        "the plugin's ConfigMap has no cluster {cluster}",
        "Add that clusterID with its monitors to the ConfigMap ceph-csi-config (Rook: "
        "rook-ceph-csi-config) in the namespace of the driver's pods, or create the class again "
        "with a clusterID from it.",
        template("kubectl get configmap -A --field-selector metadata.name=ceph-csi-config -o yaml"),
    ),
    ControllerText(
        (Recognised.POOL_GONE, Fault.NO_POOL),
        "the pool that its class names does not exist",
        "Create the pool, or create the class again with a pool that exists.",
        template("ceph osd pool ls"),
    ),
    ControllerText(
        (Recognised.IMAGE_GONE, Fault.NO_IMAGE),
        "an image that it needs is not in its pool: its source, or a parent of the source",
        "Check the source of the claim (its dataSource), and whether its image exists.",
    ),
    ControllerText(
        (Recognised.NEEDS_RBD_NBD,),
        "its class requests the image feature {feature}, which ceph-csi supports with rbd-nbd only",
        "Create the class again with mounter: rbd-nbd, or without that feature in imageFeatures: "
        "a class's parameters cannot be changed.",
    ),
    ControllerText(
        (Recognised.NO_TOPOLOGY,),
        "external-provisioner expects topology labels, and the node plugin on {node} reports none",
        "If csi-rbdplugin is not registered on {node}, run it there. If every node can reach the "
        "same pools, start csi-provisioner with --feature-gates=Topology=false; otherwise start "
        "csi-rbdplugin with --domainlabels (ceph-csi#4777).",
        template("kubectl get csinode", "{node}", options=("-o", "yaml")),
    ),
    ControllerText(
        (Recognised.NO_CSI_NODE,),
        "the driver's node plugin is not registered on the requested nodes",
        "Run the driver's node plugin (csi-rbdplugin) on these nodes. It then registers.",
        template("kubectl get csinodes"),
    ),
    ControllerText(
        (Recognised.CLONE_LIMIT,),
        "its source {image} has {count} snapshots and clones, which is the limit of ceph-csi",
        "Wait while Ceph's manager flattens clones (`ceph rbd task list`), delete snapshots that "
        "are not needed, or raise the driver's --maxsnapshotsonimage.",
        template("ceph rbd task list"),
    ),
    ControllerText(
        (Recognised.EXHAUSTED,),
        "there is no space left for the volume",
        "Free space, or add capacity.",
        template("ceph df"),
    ),
)
"""In this order; of two phrases of one rank, the first that matches applies."""

DELETION: Final = (
    ControllerText(
        (Recognised.SECRET_FIELD_MISSING,),
        "the secret that the PV names has no field {field}",
        NEEDED_FIELDS,
    ),
    ControllerText(
        (Recognised.HANDLE_OF_NO_JOURNAL,),
        "ceph-csi deletes only images that it has made, and the handle {handle} of this PV is not "
        "of its form: the PV was made by hand",
        "Set the reclaim policy of the PV to Retain: external-provisioner then gives up its "
        "finalizer, the PV goes, and the image stays. Delete the image with rbd, if its data is "
        "not needed.",
        template("kubectl get pv -o wide"),
        Recovery(note="ceph-csi never deletes a static volume"),
    ),
    ControllerText(
        (Recognised.CLASS_SECRET_MISSING,),
        "the secret {namespace}/{name} that the PV names does not exist, or may not be read",
        "Create that secret again (userID and userKey of a Ceph user with `profile rbd`): the PV "
        "names it in the annotation volume.kubernetes.io/provisioner-deletion-secret-name.",
        template("kubectl get secret", "{name}", namespace="{namespace}"),
    ),
    ControllerText(
        (Recognised.MGR_REFUSED,),
        "the key of ceph-mgr itself has no rights on the pool (1), and the mgr removes images from "
        "the trash",
        "Give the active mgr the caps that Ceph gives it by default: `ceph auth caps mgr.NAME mon "
        "'allow profile mgr' osd 'allow *' mds 'allow *'`. The user of ceph-csi is not the cause.",
    ),
    ControllerText(
        (Recognised.NO_RBD_SUPPORT,),
        "the module rbd_support of ceph-mgr does not run, and it removes images from the trash",
        "See why the module does not run: `ceph mgr module ls`, `ceph health detail`, and the log "
        "of the active mgr. `ceph mgr fail` starts another mgr.",
        template("ceph mgr module ls"),
    ),
    ControllerText(
        ((Call.IMAGE, Fault.OLD_CEPH),),
        "the OSDs do not know an operation that ceph-csi uses on {image} (95): Ceph is older than "
        "this ceph-csi supports",
        "Compare `ceph versions` with the versions that this ceph-csi supports. Update Ceph, or "
        "delete the image with the rbd of that Ceph and then the PV.",
        template("ceph versions"),
    ),
    ControllerText(
        ((Call.IMAGE, Fault.TOO_SHORT),),
        "a list of {image} is longer than the driver expects (34): its snapshots, clones, locks, "
        "watchers or metadata",
        "The log of csi-rbdplugin beside the provisioner names the step. `rbd snap ls --all`, `rbd "
        "children --all`, `rbd lock ls`, `rbd status` and `rbd image-meta ls` show which list is "
        "long. A newer ceph-csi may read it.",
        template("rbd snap ls --all", "{image}"),
    ),
    ControllerText(
        ((Call.IMAGE, Fault.HAS_CHILDREN),),
        "{image}, or the temporary clone that ceph-csi made of it, has snapshots or clones (39)",
        "Ceph's manager flattens them if the user of ceph-csi has mgr caps: `access denied to Ceph "
        "MGR-based rbd commands` in the log of csi-rbdplugin means that it has none (mgr 'profile "
        "rbd').",
        template("rbd children --all", "{image}"),
    ),
    ControllerText(
        ((Call.IMAGE, Fault.BUSY),),
        "a client has {image} open, or locked (16)",
        "Find the client, and end its use of the image.",
        template("rbdagent who-holds", "{image}"),
    ),
    _NO_MONITORS,
    # ceph-csi reads the passphrase before it deletes the image (ceph-csi#5148).
    ControllerText(
        (Recognised.PASSPHRASE_SECRET_GONE,),
        "the secret {namespace}/{name}, which ceph-csi's encryption needs, does not exist or may "
        "not be read",
        "Restore that secret or, if it held a passphrase that no other volume needs, create it "
        "with the key encryptionPassphrase and any value: a deletion opens no volume.",
        template("kubectl get secret", "{name}", namespace="{namespace}"),
    ),
    ControllerText(
        (Recognised.NO_CLUSTER,),
        "the plugin's ConfigMap has no cluster {cluster}",
        "Add that clusterID with its monitors to the ConfigMap ceph-csi-config (Rook: "
        "rook-ceph-csi-config) in the namespace of the driver's pods. Make sure that it is the "
        "right cluster.",
        template("kubectl get configmap -A --field-selector metadata.name=ceph-csi-config -o yaml"),
    ),
    ControllerText(
        (Recognised.POOL_GONE, (Call.POOL, Fault.NO_POOL)),
        "the pool of the image does not exist in the Ceph cluster that the driver uses",
        "Check that it is the right cluster (`ceph fsid`). If the pool was deleted, set the PV to "
        "Retain and delete it.",
        template("ceph osd pool ls"),
    ),
    _ON_THE_BLOCKLIST,
    ControllerText(
        (Fault.DENIED, Recognised.DENIED),
        "Ceph refuses the user of the secret that the PV names",
        "Compare `ceph auth get` of the user with the secret. The user needs mon 'profile rbd', "
        "osd 'profile rbd pool=POOL' and mgr 'profile rbd pool=POOL'.",
    ),
    _OUT_OF_REACH,
)
"""In this order, as above."""
