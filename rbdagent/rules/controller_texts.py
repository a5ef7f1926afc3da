"""What the errors of external-provisioner mean: for a volume to create, and for one to delete.

parse/recognised.py has the texts and their sources, parse/faults.py the error numbers of Ceph's
calls.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from rbdagent.commands import Template, template
from rbdagent.model import Recovery
from rbdagent.parse.faults import Call, Fault, Kind
from rbdagent.parse.recognised import Recognised
from rbdagent.rules.class_parameters import (
    lacks_parameters,
    lacks_secret,
    lacks_what_another_has,
    names_secret,
)
from rbdagent.rules.driver_version import is_client_too_old, may_be_too_old
from rbdagent.rules.facts import is_pool_gone, is_pool_there

if TYPE_CHECKING:
    from rbdagent.rules.context import RuleContext
    from rbdagent.rules.error_texts import Fact


class ControllerText(NamedTuple):
    """Texts or failed calls, and what they mean; groups fill the placeholders."""

    kinds: tuple[Kind, ...]
    means: str
    remedy: str
    command: Template | None = None
    recovery: Recovery | None = None
    """Only if it differs from the catalogue's."""
    causes: tuple[tuple[Fact, ControllerText], ...] = ()
    """As those of an ErrorText: the first fact that holds decides."""

    def decided(self, context: RuleContext, named: dict[str, str]) -> ControllerText:
        """Return the cause that a fact decides, else the text with its own meaning."""
        by_fact = (cause for holds, cause in self.causes if holds(context, named))
        return next(by_fact, self)


SHOW_SECRET: Final = template("kubectl get secret", "{name}", namespace="{namespace}")
_CLASSES: Final = template("kubectl get storageclasses -o yaml")
_FIXED_CLASS: Final = Recovery(note="a class's parameters cannot be changed")
ENCRYPTION_MEANS: Final = (
    "the secret {namespace}/{name}, which ceph-csi's encryption needs, does not exist or may "
    "not be read"
)
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

_CONFIG_MAPS: Final = template("kubectl get configmaps -A")
_CONFIG_REMEDY: Final = (
    "Correct the ConfigMap ceph-csi-config (Rook: rook-ceph-csi-config) in the namespace of the "
    "driver's pods: config.json in it (Rook: csi-cluster-config-json) is a JSON list of clusters, "
    "and the pods mount it at /etc/ceph-csi-config. ceph-csi reads the file at each call: no pod "
    "has to restart."
)
_CONFIG_MEANS: Final = "ceph-csi cannot read its list of clusters: {why}"
_CONFIG_TEXTS: Final = (Recognised.CONFIGURATION_UNREADABLE, Recognised.CONFIGURATION_MALFORMED)
_KMS_MEANS: Final = (
    "ceph-csi's configuration of the key management services (KMS) has no entry {kms}; it has "
    "{have}"
)
_TENANT_MEANS: Final = (
    "ceph-csi gets no Vault token of the claim's namespace: the secret {namespace}/{name} does not "
    "exist, may not be read, or has no key token"
)
_ACCOUNT_MEANS: Final = (
    "ceph-csi gets no Vault token of the claim's namespace: the service account {namespace}/{name} "
    "does not exist, or may not be read"
)
_SHOW_ACCOUNT: Final = template("kubectl get serviceaccount", "{name}", namespace="{namespace}")

_POOLS: Final = template("ceph osd pool ls detail")
_CSI_CONFIG: Final = template(
    "kubectl get configmaps -A -o yaml --field-selector", "metadata.name={config_map}"
)
_POOL_OF_ANOTHER_CLUSTER: Final = ControllerText(
    (),
    "ceph-csi does not find the pool {pool_id}, which its handle names. Cluster {fsid} has that "
    "pool, with the image: ceph-csi asks another cluster",
    "Correct the monitors of the clusterID {cluster} in ceph-csi's ConfigMap (ceph-csi-config, "
    "Rook: rook-ceph-csi-config). Leave the PV, and do not update ceph-csi before: since 2.0.1 it "
    "counts a pool that it does not find as deleted, and would leave the image behind.",
    _CSI_CONFIG,
)
# ErrPoolNotFound in DeleteVolume, pkg/rbd/controllerserver.go of ceph-csi v2.0.1: v2.0.0 does not
# have it. external-provisioner removes its finalizer from a PV with Retain
# (handleProtectionFinalizer, controller/controller.go of its library v8.0.1; an older one sets no
# finalizer).
_POOL_DELETED: Final = ControllerText(
    (),
    "cluster {fsid} has no pool {pool_id}, which its handle names. The pool was deleted there, and "
    "the image with it; a later pool of the same name has another id",
    "Make sure that the clusterID {cluster} leads to the cluster of the image (another cluster "
    "gives the same error), then update a ceph-csi that is older than 2.0.1: newer ones count a "
    "missing pool as deleted. Compare `ceph fsid` and the monitors of the cluster with those in "
    "ceph-csi's ConfigMap. Without the update, set the PV to Retain and delete it: "
    "external-provisioner then removes its finalizer. Remove a finalizer by hand only if none "
    "runs.",
    _CSI_CONFIG,
    Recovery(note="ceph-csi before 2.0.1 does not count a missing pool as deleted"),
)

_CLUSTER_IDS: Final = (
    "A clusterID is one of the ConfigMap ceph-csi-config (Rook: rook-ceph-csi-config). For the "
    "growth of its volumes, the class also needs csi.storage.k8s.io/controller-expand-secret-name "
    "and -namespace."
)
_OF_USERS: Final = (
    "csi.storage.k8s.io/provisioner-secret-name and -namespace, "
    "csi.storage.k8s.io/node-stage-secret-name and -namespace"
)
_LACKS: Final = "its class {class} lacks {lacks}"
_INCOMPLETE_CLASS: Final = (
    (
        lacks_what_another_has,
        ControllerText(
            (),
            _LACKS + ". The class {complete} of the same provisioner has all that ceph-csi needs",
            "Make the class again with the parameters that {complete} has, with the tool that made "
            "it, or delete the claim, which has no volume yet, and create it with the class "
            f"{{complete}}: neither a class's parameters nor a claim's class can be changed. "
            f"{_CLUSTER_IDS}",
            _CLASSES,
            _FIXED_CLASS,
        ),
    ),
    (
        lacks_parameters,
        ControllerText(
            (),
            _LACKS,
            "Make the class again with these parameters, with the tool that made it: a class's "
            f"parameters cannot be changed. {_CLUSTER_IDS}",
            _CLASSES,
            _FIXED_CLASS,
        ),
    ),
)
"""Without these parameters, ceph-csi reports one after the other."""

# doc/security/CVE-2021-20288.rst of Ceph has the versions of Ceph.
OLD_CLIENT: Final = (
    "The monitors refuse a client from before Ceph 16.2.1, 15.2.11 and 14.2.20 if `ceph config get "
    "mon auth_allow_insecure_global_id_reclaim` is false (CVE-2021-20288). Do not set it to true "
    "in place of the update."
)
_COMPARE_KEY: Final = (
    "Compare userID and userKey of that secret with `ceph auth get` of the user (it prints the "
    "key): if they differ, correct the secret; if they are equal, update ceph-csi to 3.3.1 or "
    f"newer. {OLD_CLIENT} The user also needs mon 'profile rbd' among its caps."
)
_RECLAIM: Final = template("ceph config get mon auth_allow_insecure_global_id_reclaim")
_LOGIN_REFUSED: Final = (
    (
        is_client_too_old,
        ControllerText(
            (),
            "Ceph refuses the login: the client in ceph-csi {version} is too old for monitors "
            "that forbid insecure global_id reclaim, or the user or the key in the secret is wrong",
            _COMPARE_KEY,
            _RECLAIM,
        ),
    ),
    (
        may_be_too_old,
        ControllerText(
            (),
            "Ceph refuses the login: the user or the key in the secret is wrong, or the client of "
            "ceph-csi is too old for monitors that forbid insecure global_id reclaim",
            _COMPARE_KEY,
            _RECLAIM,
        ),
    ),
)
"""If the version has a newer client, the key is the cause."""

PROVISIONING: Final = (
    ControllerText(
        (Recognised.SECRET_FIELD_MISSING,),
        "the secret that its class names has no field {field}",
        NEEDED_FIELDS,
        _CLASSES,
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
        _CLASSES,
        _FIXED_CLASS,
    ),
    ControllerText(
        (Recognised.EXPAND_SECRET_EMPTY,),
        "its class names no secret for the provisioner, or the secret that it names has no data",
        "Make the class again with csi.storage.k8s.io/provisioner-secret-name and -namespace, with "
        "the tool that made it: a class's parameters cannot be changed. If the class has both, put "
        "userID and userKey into that secret.",
        _CLASSES,
        causes=(
            (
                lacks_secret,
                ControllerText(
                    (),
                    "its class {class} lacks {lacks_secret}",
                    "Make the class again with the secret, with the tool that made it: a class's "
                    "parameters cannot be changed.",
                    _CLASSES,
                    _FIXED_CLASS,
                ),
            ),
            (
                names_secret,
                ControllerText(
                    (),
                    "the secret that its class {class} names for the provisioner has no data",
                    f"Put userID and userKey of a Ceph user into that secret. {NEEDED_FIELDS}",
                    _CLASSES,
                ),
            ),
        ),
    ),
    ControllerText(
        (Recognised.CLASS_LACKS_PARAMETER,),
        "its class names no {cluster}{pool}",
        f"Make the class again with clusterID, with pool or topologyConstrainedPools, and with "
        f"{_OF_USERS}, with the tool that made it: a class's parameters cannot be changed. "
        f"{_CLUSTER_IDS}",
        _CLASSES,
        _FIXED_CLASS,
        _INCOMPLETE_CLASS,
    ),
    ControllerText(
        (Recognised.CLASS_PARAMETER_EMPTY,),
        "its class has an empty {pool}{space}{prefix}{features}, which ceph-csi does not accept",
        "Make the class again without the empty parameter (dataPool, radosNamespace, "
        "volumeNamePrefix or imageFeatures), with the tool that made it: a class's parameters "
        "cannot be changed.",
        _CLASSES,
        _FIXED_CLASS,
    ),
    ControllerText(
        (Recognised.FEATURE_NEEDS_ANOTHER,),
        "the imageFeatures of its class have {feature} without {needed}, which it needs",
        "Make the class again with {needed} in imageFeatures, or without {feature}, with the tool "
        "that made it: a class's parameters cannot be changed.",
        _CLASSES,
        _FIXED_CLASS,
    ),
    ControllerText(
        (Recognised.ENCRYPTION_PARAMETER,),
        "its class has a value that ceph-csi does not know, for encrypted or encryptionType",
        'Make the class again with the tool that made it: encrypted is "true" or "false", and '
        "encryptionType is block or file, or is missing, which is block. An error of ParseBool in "
        "the event is about encrypted. A class's parameters cannot be changed.",
        _CLASSES,
        _FIXED_CLASS,
    ),
    ControllerText(
        (Recognised.CREATION_REFUSED,),
        "librbd refuses the parameters of the image (22): most likely, the erasure-coded pool of "
        "its data has no overwrites",
        "Look at the class's dataPool in `ceph osd pool ls detail`. If it is erasure-coded and "
        "has no flag ec_overwrites, set it (`ceph osd pool set POOL allow_ec_overwrites true`, "
        "which cannot be undone). Otherwise the cause is stripeUnit, stripeCount or objectSize of "
        "the class, or the pool has snapshots of `ceph osd pool mksnap`. The log of csi-rbdplugin "
        "beside the provisioner has librbd's own line.",
        template("ceph osd pool ls detail"),
    ),
    ControllerText(
        (Recognised.NO_KMS_ENTRY,),
        _KMS_MEANS,
        "Add the entry {kms} to the ConfigMap csi-kms-connection-details (config.json of "
        "ceph-csi-encryption-kms-config, if the pods mount that) in the namespace of the driver's "
        "pods, or make the class again with an encryptionKMSID that it has: a class's parameters "
        "cannot be changed.",
        _CONFIG_MAPS,
    ),
    ControllerText(
        (Recognised.TENANT_TOKEN_MISSING,),
        _TENANT_MEANS,
        "Create that secret in the namespace of the claim, with a Vault token as its key token. "
        "`forbidden` in the event means that ceph-csi's service account may not read it.",
        SHOW_SECRET,
    ),
    ControllerText(
        (Recognised.TENANT_ACCOUNT_MISSING,),
        _ACCOUNT_MEANS,
        "Create that service account in the namespace of the claim, and a role in Vault that it "
        "may use. `forbidden` in the event means that ceph-csi's own service account may not "
        "read it.",
        _SHOW_ACCOUNT,
    ),
    ControllerText(_CONFIG_TEXTS, _CONFIG_MEANS, _CONFIG_REMEDY, _CONFIG_MAPS),
    ControllerText(
        (Recognised.ENCRYPTION_OF_SOURCE_DIFFERS,),
        "its class asks for an {asked} volume, and its source is {has}",
        "Delete the claim, which has no volume yet, and create it again with a class whose "
        "`encrypted` is as that of the source: a claim's class cannot be changed. ceph-csi copies "
        "an image as it is. To change the encryption, copy the files into a new volume.",
        _CLASSES,
        Recovery(note="a claim's class cannot be changed"),
    ),
    ControllerText(
        (Recognised.SOURCE_NOT_IN_JOURNAL,),
        "ceph-csi's journal has no entry of its source: the source is of another Ceph cluster or "
        "RADOS namespace, or its entry is lost",
        "Check that the handle of the source (of its PV, or of its VolumeSnapshotContent) is of "
        "this Ceph cluster, and that the radosNamespace of its clusterID in ceph-csi's "
        "configuration is as it was when the source was made. The journal is in the pool and the "
        "RADOS namespace of the image. Delete nothing there.",
        _CONFIG_MAPS,
    ),
    ControllerText(
        (Recognised.HANDLE_OF_NO_JOURNAL,),
        "ceph-csi clones only images that it has made, and the handle {handle} of its source is "
        "not of its form: the PV of the source was made by hand",
        "Delete the claim, which has no volume yet, and create it without a source: a pod that "
        "mounts both claims copies the files. A claim's dataSource cannot be changed.",
        template("kubectl get pv -o wide"),
        Recovery(note="ceph-csi never clones a static volume"),
    ),
    ControllerText(
        (Recognised.NO_POOL_FOR_TOPOLOGY,),
        "no pool in the topologyConstrainedPools of its class is for the requested topology",
        "Compare the domainSegments of the class with the topology in the event. If the class is "
        "wrong, make it again with the tool that made it: a class's parameters cannot be changed. "
        "If the label of a node is wrong, correct it and restart csi-rbdplugin there, which reads "
        "the labels when it starts. From a snapshot, a volume is made only in the snapshot's own "
        "pool: the class has to have it, and the pod has to run in its topology.",
        template("kubectl get nodes --show-labels"),
    ),
    ControllerText(
        (Recognised.UNKNOWN_CLASS_KEY,),
        "its class has the parameter {key}, which external-provisioner does not know, and no other "
        "program may use its prefix",
        "Make the class again with the parameter spelled correctly, or without it, with the tool "
        "that made it: a class's parameters cannot be changed. A parameter of a newer "
        "external-provisioner needs that version.",
        _CLASSES,
        _FIXED_CLASS,
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
        _FIXED_CLASS,
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
        (Recognised.CLONE_SOURCE_UNBOUND,),
        "its source, the claim {source}, is not bound to a volume",
        "See why the claim {source} is not bound. A claim whose class has WaitForFirstConsumer "
        "waits for its first pod.",
        template("kubectl describe pvc", "{source}", namespace="{claim_namespace}"),
        Recovery(actor="external-provisioner", condition="the source is bound"),
    ),
    ControllerText(
        (Recognised.CLONE_SOURCE_REFUSED,),
        "external-provisioner refuses its source claim: most likely another driver made the volume "
        "of the source, and a driver clones only its own volumes",
        "Look at the PV of the source: its csi.driver has to be the provisioner of the claim's "
        "class, its phase Bound, and its claimRef the source. The log of csi-provisioner has the "
        "cause. Of a volume of another driver, a pod that mounts both copies the files.",
        template("kubectl get pv -o wide"),
    ),
    ControllerText(
        (Recognised.SNAPSHOT_OF_ANOTHER_DRIVER,),
        "its source, the VolumeSnapshot {snapshot}, is of another driver than its class",
        "Delete the claim, which has no volume yet, and create it again with a class of the driver "
        "in spec.driver of the VolumeSnapshotContent {content}: a claim's class cannot be changed. "
        "CephFS and RBD are two drivers, and Rook's have other names.",
        template("kubectl get volumesnapshotcontent", "{content}", options=("-o", "yaml")),
        Recovery(note="a claim's class cannot be changed"),
    ),
    ControllerText(
        (Recognised.SOURCE_IS_LARGER,),
        "it requests {asked}{request}{wanted} bytes, and its source {source}{clone}{image} has "
        "{least}{size}{needed}",
        "Delete the claim, which has no volume yet, and create it again with at least "
        "{least}{size}{needed} bytes: the size of a Pending claim cannot be changed.",
        recovery=Recovery(note="the size of a Pending claim cannot be changed"),
    ),
    ControllerText(
        (Recognised.CLASS_SECRET_MISSING,),
        "the secret {namespace}/{name} that its class names does not exist, or may not be read",
        "Create that secret (userID and userKey of a Ceph user with `profile rbd`), or create the "
        "class again with the correct name of the secret: a class's parameters cannot be changed.",
        SHOW_SECRET,
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
        causes=_LOGIN_REFUSED,
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
        ENCRYPTION_MEANS,
        "Create that secret: with the key encryptionPassphrase, or as the entry of this "
        "encryptionKMSID in csi-kms-connection-details needs it. If it existed before, restore it: "
        "another passphrase does not open the volumes that have the former one.",
        SHOW_SECRET,
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
        SHOW_SECRET,
    ),
    # external-provisioner calls the driver without a secret if it cannot read it, and only logs the
    # error (handleSecretsForDeletion of 6.3.0).
    ControllerText(
        (Recognised.EXPAND_SECRET_EMPTY,),
        "external-provisioner finds no secret for the deletion, or that secret has no data",
        "Create again the secret that the PV names in the annotations "
        "volume.kubernetes.io/provisioner-deletion-secret-name and -namespace, with userID and "
        "userKey of a Ceph user with `profile rbd`. A PV without them needs its class, or both "
        "annotations. The data remains until then.",
        _CLASSES,
    ),
    # A copy of a mirror that is up and replayed is left as it is, and only its entry in the journal
    # removed (cleanupRBDImage).
    ControllerText(
        (Recognised.NOT_PRIMARY,),
        "{image} is a copy of a mirror, is not primary here, and is not replayed (up+replaying)",
        "Start rbd-mirror here again, or see why it does not replay the image (`rbd mirror image "
        "status`): ceph-csi then leaves the image to the primary cluster, and the PV goes. A "
        "deletion of the volume on the primary cluster deletes this copy. Do not promote it only "
        "to delete it.",
        template("rbd mirror image status", "{image}"),
    ),
    # ceph-csi opens the KMS before it deletes the image (generateVolumeFromVolumeID).
    ControllerText(
        (Recognised.PASSPHRASE_NOT_IN_SECRET,),
        "the secret that the PV names has no encryptionPassphrase, which ceph-csi needs for a "
        "volume that is encrypted",
        "Restore the key encryptionPassphrase in that secret, with its former value: other volumes "
        "may need it.",
    ),
    ControllerText(
        (Recognised.NO_KMS_ENTRY,),
        _KMS_MEANS,
        "Restore the entry {kms} of the ConfigMap csi-kms-connection-details "
        "(ceph-csi-encryption-kms-config, if the pods mount that) in the namespace of the driver's "
        "pods: volumes that exist need it, too.",
        _CONFIG_MAPS,
    ),
    ControllerText(
        (Recognised.TENANT_TOKEN_MISSING,),
        _TENANT_MEANS,
        "Create that secret again, with a Vault token as its key token, and its namespace if that "
        "was deleted with the claim. ceph-csi opens the KMS before it deletes an image.",
        SHOW_SECRET,
    ),
    ControllerText(
        (Recognised.TENANT_ACCOUNT_MISSING,),
        _ACCOUNT_MEANS,
        "Create that service account again, and its namespace if that was deleted with the claim. "
        "ceph-csi opens the KMS before it deletes an image.",
        _SHOW_ACCOUNT,
    ),
    ControllerText(_CONFIG_TEXTS, _CONFIG_MEANS, _CONFIG_REMEDY, _CONFIG_MAPS),
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
        ENCRYPTION_MEANS,
        "Restore that secret or, if it held a passphrase that no other volume needs, create it "
        "with the key encryptionPassphrase and any value: a deletion opens no volume.",
        SHOW_SECRET,
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
        "Make sure that it is the cluster of the image: compare `ceph fsid` and its monitors with "
        "those in ceph-csi's ConfigMap. Then the pool ids of `ceph osd pool ls detail` decide: if "
        "the id in the PV's handle (16 hexadecimal digits before the last UUID) is not among them, "
        "the pool was deleted, and the image with it. Only then set the PV to Retain and delete "
        "it. Otherwise correct ceph-csi's ConfigMap, and keep the PV.",
        _POOLS,
        causes=((is_pool_there, _POOL_OF_ANOTHER_CLUSTER), (is_pool_gone, _POOL_DELETED)),
    ),
    _ON_THE_BLOCKLIST,
    ControllerText(
        (Fault.DENIED, Recognised.DENIED),
        "Ceph refuses the user of the secret that the PV names",
        "Compare `ceph auth get` of the user with the secret. The user needs mon 'profile rbd', "
        "osd 'profile rbd pool=POOL' and mgr 'profile rbd pool=POOL'.",
        causes=((is_client_too_old, _LOGIN_REFUSED[0][1]),),
    ),
    _OUT_OF_REACH,
)
"""In this order, as above."""
