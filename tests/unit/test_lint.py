"""What `lint` reports: one table of states for each code, and what it must not report."""

# ruff: noqa: ANN401 - a builder takes any field of what it builds

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
from msgspec.structs import replace

from rbdagent.codes import Code
from rbdagent.errors import ParseError
from rbdagent.lint.applied import applied
from rbdagent.lint.by_rules import ADVICE
from rbdagent.lint.entries import ENTRIES
from rbdagent.lint.report import lint
from rbdagent.model import (
    CSINode,
    ImagePresence,
    KubeView,
    Node,
    NotObserved,
    ObjectRef,
    Severity,
    Snapshot,
    Source,
    SourceState,
    Workload,
    observed_of,
)
from rbdagent.model.lint import CsiConfig, LintReport, PoolMapping, SourceCluster, Surroundings
from rbdagent.parse.manifest import joined_manifests, parse_manifests
from rbdagent.rules import FINDINGS
from tests.support.manifests import (
    AROUND,
    BIND_COMPLETED,
    CLAIM_REF,
    CONFIG,
    OLD_UID,
    RBD,
    SECRET,
    UNASKED,
    codes_of,
    content,
    empty_cluster,
    linted,
    problem_in,
    pv,
    pvc,
    read,
    storage_class,
)
from tests.support.snapshots import (
    DRIVER,
    FSID,
    HANDLE,
    PV,
    SPEC,
    STRANGER_ADDRESS,
    attachment,
    claim,
    image_view,
    volume,
    watcher,
)

Json = dict[str, Any]

OTHER_ID: Final = "0001-0006-site-b-0000000000000001-a5aedea1-28da-40b4-92b8-33fd7de38647"
OF_B: Final = HANDLE.replace("000a-lab-ceph-1", "0006-site-b")
OTHER_POOL: Final = "0001-000a-lab-ceph-1-0000000000000007-a5aedea1-28da-40b4-92b8-33fd7de38647"
OF_FSID: Final = f"0001-0024-{FSID}-0000000000000007-a5aedea1-28da-40b4-92b8-33fd7de38647"
PAIR: Final = (pv(), pvc())
OWNER: Final = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "db", "uid": "owner-uid"}
EXISTING: Final = empty_cluster(
    persistent_volumes=(
        volume(
            claim=ObjectRef(namespace="shop", name="data", uid="u"),
            source=replace(volume().source, fs_type="ext4"),
        ),
    ),
    claims=(claim(ref=ObjectRef(namespace="shop", name="data", uid="u")),),
)
"""The cluster has both objects of the pair, bound to each other."""
NAMESPACE: Final = "{kind: Namespace, apiVersion: v1, metadata: {name: x}}"
NO_UID: Final = {"namespace": "shop", "name": "data"}
DELETED: Final = empty_cluster(
    persistent_volumes=tuple(
        replace(one, deleting_since="2026-11-20T03:00:00Z")
        for one in observed_of(EXISTING.kubernetes.persistent_volumes)  # type: ignore[union-attr]
    ),
    claims=tuple(
        replace(one, deleting_since="2026-11-20T03:00:00Z")
        for one in observed_of(EXISTING.kubernetes.claims)  # type: ignore[union-attr]
    ),
)
RELEASED: Final = empty_cluster(
    persistent_volumes=(
        volume(
            claim=ObjectRef(namespace="shop", name="data", uid=OLD_UID),
            source=replace(volume().source, fs_type="ext4"),
            phase="Released",
            reclaim_policy="Retain",
        ),
    ),
)
"""The cluster has the PV, and its claim is gone."""


class Row(NamedTuple):
    """A state in which a code is reported."""

    objects: tuple[Json, ...]
    code: Code
    severity: str
    field: str
    text: str
    into: Snapshot | None = None
    around: Surroundings = AROUND


def around(**fields: Any) -> Surroundings:
    return replace(AROUND, **fields)


def of_origin(config: CsiConfig | NotObserved = CONFIG, **in_kube: Any) -> Surroundings:
    view = KubeView(server="https://other:6443", persistent_volumes=(volume(),), **in_kube)
    return around(origin=SourceCluster(name="site-a", view=view, csi_config=config))


def stored(exists: Json, *last: Json) -> Surroundings:
    """Return that the API server has an object, with what the last apply had."""
    meta = {**exists["metadata"], "uid": "u"}
    if last:
        text = json.dumps(last[0])
        meta["annotations"] = {"kubectl.kubernetes.io/last-applied-configuration": text}
    key = (exists["kind"], meta.get("namespace", ""), meta["name"])
    return around(stored={key: exists | {"metadata": meta}})


def zone(name: str) -> Json:
    key = "topology.kubernetes.io/zone"
    term = {"matchExpressions": [{"key": key, "operator": "In", "values": [name]}]}
    return {"required": {"nodeSelectorTerms": [term]}}


OF_ZONE: Final = empty_cluster(
    nodes=(
        Node(name="worker-1", ready=True, labels=(("topology.kubernetes.io/zone", "a"),)),
    )
)  # fmt: skip
STATIC: Final[Json] = {
    "volumeHandle": SPEC.name,
    "volumeAttributes": {"staticVolume": "true", "clusterID": "lab-ceph-1", "pool": "k8s"},
}
STATIC_OF_SITE_B: Final[Json] = {
    "volumeHandle": SPEC.name,
    "volumeAttributes": {"staticVolume": "true", "clusterID": "site-b", "pool": "k8s"},
}
EXISTING_IN_TENANT: Final = empty_cluster(
    persistent_volumes=(
        volume(
            source=replace(
                volume().source,
                attributes=(*volume().source.attributes, ("radosNamespace", "tenant")),  # type: ignore[union-attr]
            )
        ),
    ),
)
"""The cluster has the PV, and its image is in a RADOS namespace."""
OF_SITE_B: Final = {
    "volumeHandle": OF_B,
    "volumeAttributes": {"clusterID": "site-b", "pool": "k8s", "imageName": SPEC.name},
}

ROWS: Final = {
    "Delete, and the uid of another cluster": Row(
        (pv(claimRef=CLAIM_REF, persistentVolumeReclaimPolicy="Delete"), pvc()),
        Code.IMAGE_DELETED_ON_APPLY, "critical", "spec.claimRef.uid",
        "the provisioner of rbd.csi.ceph.com then deletes its image k8s/csi-vol-",
    ),
    "Delete, and no claim of that name": Row(
        (pv(claimRef=CLAIM_REF, persistentVolumeReclaimPolicy="Delete"),),
        Code.IMAGE_DELETED_ON_APPLY, "critical", "spec.claimRef.uid", "becomes Released as soon",
    ),
    "Delete, and claims were not observed": Row(
        (pv(claimRef=CLAIM_REF, persistentVolumeReclaimPolicy="Delete"), pvc()),
        Code.IMAGE_DELETED_ON_APPLY, "critical", "spec.claimRef.uid",
        f"Unless a claim here has the uid {OLD_UID} (claims were not observed)",
        into=empty_cluster(claims=NotObserved(reason="403")),
    ),
    "an existing PV that is edited to another claim": Row(
        (pv(claimRef=CLAIM_REF, persistentVolumeReclaimPolicy="Delete"),),
        Code.IMAGE_DELETED_ON_APPLY, "critical", "spec.claimRef.uid", "becomes Released",
        into=EXISTING,
    ),
    "an existing PV that is Released, and is set to Delete": Row(
        (pv(claimRef=CLAIM_REF, persistentVolumeReclaimPolicy="Delete"),),
        Code.IMAGE_DELETED_ON_APPLY,
        "critical",
        "spec.claimRef.uid",
        "becomes Released",
        into=RELEASED,
    ),
    "an existing Released PV, whose manifest leaves out the uid: an apply keeps it": Row(
        (pv(claimRef=NO_UID, persistentVolumeReclaimPolicy="Delete"),),
        Code.IMAGE_DELETED_ON_APPLY,
        "critical",
        "spec.claimRef.uid",
        "becomes Released",
        into=RELEASED,
    ),
    "an existing PV with Delete, whose manifest has no policy": Row(
        (pv(claimRef=CLAIM_REF, persistentVolumeReclaimPolicy=None),),
        Code.IMAGE_DELETED_ON_APPLY,
        "critical",
        "spec.claimRef.uid",
        "becomes Released",
        into=EXISTING,
    ),
    "Retain, and the uid of another cluster": Row(
        (pv(claimRef=CLAIM_REF), pvc()),
        Code.RELEASED_ON_APPLY, "error", "spec.claimRef.uid", "A Released PV binds to no claim.",
    ),
    "the policy Delete alone": Row(
        (pv(persistentVolumeReclaimPolicy="Delete"), pvc()),
        Code.DELETE_POLICY_RESTORED, "warning", "spec.persistentVolumeReclaimPolicy",
        "when its claim is deleted, its image k8s/csi-vol-",
    ),
    "the policy Delete of a snapshot": Row(
        (content(deletionPolicy="Delete"),),
        Code.DELETE_POLICY_RESTORED, "warning", "spec.deletionPolicy", "the snapshot in Ceph",
    ),
    "a resourceVersion": Row(
        (pv(meta={"resourceVersion": "7"}), pvc()),
        Code.LEFTOVER_IDENTITY, "info", "metadata.resourceVersion", "leaves out the resourceV",
    ),
    "a uid": Row(
        (pv(), pvc(meta={"uid": OLD_UID})),
        Code.LEFTOVER_IDENTITY, "warning", "metadata.uid", "Server-side apply",
    ),
    "a uid that is not that of the object": Row(
        (pv(meta={"uid": OLD_UID}), pvc()),
        Code.LEFTOVER_IDENTITY, "error", "metadata.uid", "refuses to change it", into=EXISTING,
    ),
    "a PV that exists with another handle": Row(
        (pv(csi={"volumeHandle": OTHER_POOL}),),
        Code.EXISTS_OTHERWISE, "error", "spec.csi", "differs from the manifest in spec.csi",
        into=EXISTING,
    ),
    "a claim that exists with another PV": Row(
        (pvc(volumeName="pv-2"),),
        Code.EXISTS_OTHERWISE, "error", "spec.volumeName", "in spec.volumeName", into=EXISTING,
    ),
    "a class that exists with another provisioner": Row(
        (storage_class("rbd", provisioner="cephfs.csi.ceph.com"),),
        Code.EXISTS_OTHERWISE, "error", "provisioner", "in provisioner",
    ),
    "volumeAttributes of another cluster": Row(
        (pv(csi={"volumeAttributes": {"clusterID": "site-b", "pool": "k8s", "imageName": "i"}}),),
        Code.HANDLE_CONTRADICTS_ATTRIBUTES, "error", "spec.csi.volumeHandle",
        "names clusterID lab-ceph-1, and its volumeAttributes name site-b",
    ),
    "volumeAttributes of another pool": Row(
        (pv(csi={"volumeHandle": OTHER_POOL}), pvc()),
        Code.HANDLE_CONTRADICTS_ATTRIBUTES, "error", "spec.csi.volumeHandle",
        "leads to pool fast (id 7), and its volumeAttributes name pool k8s",
        into=empty_cluster(of_ceph={"pools": ((1, "k8s"), (7, "fast"))}),
    ),
    "a pool id that no pool has": Row(
        (pv(csi={"volumeHandle": OTHER_POOL}), pvc()),
        Code.POOL_MISSING, "error", "spec.csi.volumeHandle", "names pool id 7",
    ),
    "a pool id that no pool has, by the fsid": Row(
        (pv(csi={"volumeHandle": OF_FSID, "volumeAttributes": {"pool": "k8s"}}),),
        Code.POOL_MISSING, "error", "spec.csi.volumeHandle", "names pool id 7",
        around=around(csi_config=UNASKED),
    ),
    "a pool id of a snapshot that no pool has": Row(
        (content(source={"snapshotHandle": OTHER_POOL}),),
        Code.POOL_MISSING, "error", "spec.source.snapshotHandle", "names pool id 7",
    ),
    "a clusterID that is not configured": Row(
        (pv(csi={"volumeHandle": OTHER_ID}), pvc()),
        Code.CLUSTER_NOT_CONFIGURED, "error", "spec.csi.volumeHandle",
        "needs clusterID site-b, for which ceph-csi has no configuration here",
    ),
    "a clusterID that is only mapped": Row(
        (pv(csi={"volumeHandle": OTHER_ID}), pvc()),
        Code.CLUSTER_NOT_CONFIGURED, "error", "spec.csi.volumeHandle",
        "Its cluster-mapping.json maps it to lab-ceph-1",
        around=around(
            csi_config=replace(
                CONFIG, mappings=(PoolMapping(clusters=(("site-b", "lab-ceph-1"),)),)
            )
        ),
    ),
    "a clusterID that no object here has": Row(
        (pv(csi={"volumeHandle": OTHER_ID}), pvc()),
        Code.CLUSTER_NOT_CONFIGURED, "warning", "spec.csi.volumeHandle",
        "which no PV and no storage class of this cluster has",
        around=around(csi_config=UNASKED),
    ),
    "a clusterID of a static volume": Row(
        (
            pv(
                csi={
                    "volumeHandle": "img",
                    "volumeAttributes": {
                        "staticVolume": "true", "clusterID": "site-b", "pool": "k8s",
                    },
                }
            ),
        ),
        Code.CLUSTER_NOT_CONFIGURED, "error", "spec.csi.volumeAttributes.clusterID", "site-b",
    ),
    "a clusterID of a class": Row(
        (storage_class(parameters={"clusterID": "site-b", "pool": "k8s"}),),
        Code.CLUSTER_NOT_CONFIGURED, "error", "parameters.clusterID", "site-b",
    ),
    "the other cluster still has it": Row(
        PAIR, Code.STILL_IN_ORIGIN, "warning", "spec.csi.volumeHandle",
        f"Cluster site-a still has {PV}, with the same handle. Its reclaim policy there is Delete",
        around=of_origin(),
    ),
    "the other cluster still uses it": Row(
        PAIR, Code.STILL_IN_ORIGIN, "error", "spec.csi.volumeHandle",
        "It is attached to worker-1 there: two clusters would write to one image.",
        around=of_origin(attachments=(attachment(),)),
    ),
    "the clusterID has other monitors there": Row(
        PAIR, Code.CLUSTER_ID_MEANS_ANOTHER, "warning", "spec.csi.volumeHandle",
        "it may be another Ceph cluster",
        around=of_origin(replace(CONFIG, clusters=(("lab-ceph-1", ("10.9.9.9:6789",)),))),
    ),
    "a PV without a claimRef": Row(
        (pv(claimRef=None),),
        Code.OPEN_TO_ANY_CLAIM, "warning", "spec.claimRef", "Any pending claim of its class",
    ),
    "a claim that does not name its PV": Row(
        (pv(), pvc(volumeName=None)),
        Code.PROVISIONED_MEANWHILE, "warning", "spec.volumeName", "creates a new, empty volume",
    ),
    "a class of another driver": Row(
        PAIR, Code.CLASS_OF_ANOTHER_DRIVER, "warning", "spec.storageClassName",
        "belongs to other.example.org, and its PV",
        into=empty_cluster(storage_classes=(replace(RBD, provisioner="other.example.org"),)),
    ),
    "a pair that differs": Row(
        (pv(), pvc(accessModes=["ReadWriteMany"], volumeMode="Block")),
        Code.BOUND_ALTHOUGH_DIFFERENT, "warning", "spec",
        "has volumeMode Filesystem, the claim requests Block; offers ReadWriteOnce",
    ),
    "an owner of another cluster": Row(
        (pv(), pvc(meta={"ownerReferences": [OWNER]})),
        Code.OWNER_LEFT_BEHIND, "error", "metadata.ownerReferences",
        "is owned by StatefulSet/db",
    ),
    "a static PV of an image that a provisioned PV of the files has": Row(
        (pv(), pv("pv-2", claimRef={"namespace": "shop", "name": "two"}, csi=STATIC), pvc()),
        Code.IMAGE_OF_TWO_VOLUMES, "error", "spec.csi.volumeHandle",
        f"{PV} and pv-2, which is in the files, are one image: k8s/csi-vol-",
    ),
    "a static PV of an image that a PV here has": Row(
        (pv("pv-2", claimRef={"namespace": "shop", "name": "two"}, csi=STATIC),),
        Code.IMAGE_OF_TWO_VOLUMES, "error", "spec.csi.volumeHandle",
        f"pv-2 and {PV}, which is here, are one image", into=EXISTING,
    ),
    "a static PV whose clusterID has the RADOS namespace of a PV": Row(
        (pv("pv-2", claimRef={"namespace": "shop", "name": "two"}, csi=STATIC),),
        Code.IMAGE_OF_TWO_VOLUMES, "error", "spec.csi.volumeHandle",
        "which is here, are one image: k8s/tenant/csi-vol-", into=EXISTING_IN_TENANT,
        around=around(csi_config=replace(CONFIG, namespaces=(("lab-ceph-1", "tenant"),))),
    ),
    "a static PV of the clusterID of a PV in a RADOS namespace, which is not observed": Row(
        (pv("pv-2", claimRef={"namespace": "shop", "name": "two"}, csi=STATIC),),
        Code.IMAGE_OF_TWO_VOLUMES, "error", "spec.csi.volumeHandle",
        "which is here, are one image: k8s/csi-vol-", into=EXISTING_IN_TENANT,
        around=around(csi_config=UNASKED),
    ),
    "a static PV whose clusterID may have the RADOS namespace of a PV": Row(
        (pv("pv-2", claimRef={"namespace": "shop", "name": "two"}, csi=STATIC_OF_SITE_B),),
        Code.IMAGE_OF_TWO_VOLUMES, "warning", "spec.csi.volumeHandle",
        "if both mean one Ceph cluster and one RADOS namespace, which was not observed",
        into=EXISTING_IN_TENANT, around=around(csi_config=UNASKED),
    ),
    "the same handle with another clusterID": Row(
        (pv("pv-2", csi=OF_SITE_B),),
        Code.IMAGE_OF_TWO_VOLUMES, "warning", "spec.csi.volumeHandle",
        "are one image, if both mean one Ceph cluster, which was not observed", into=EXISTING,
    ),
    "the same handle with another clusterID of the same monitors": Row(
        (pv("pv-2", csi=OF_SITE_B),),
        Code.IMAGE_OF_TWO_VOLUMES, "error", "spec.csi.volumeHandle",
        "which is here, are one image: ", into=EXISTING,
        around=around(csi_config=replace(CONFIG, clusters=(
            *CONFIG.clusters, ("site-b", CONFIG.clusters[0][1]),
        ))),
    ),
    "a PV that is being deleted": Row(
        (pv(claimRef={**CLAIM_REF, "uid": "u"}),),
        Code.BEING_DELETED, "error", "metadata.name", "is being deleted since 2026", into=DELETED,
    ),
    "a claim that is being deleted": Row(
        (pvc(),), Code.BEING_DELETED, "error", "metadata.name", "goes away", into=DELETED,
    ),
    "a nodeAffinity of another cluster": Row(
        (pv(nodeAffinity=zone("b")), pvc()),
        Code.NO_NODE_FITS, "error", "spec.nodeAffinity",
        'used only where "topology.kubernetes.io/zone In b", and no node here has these labels',
        into=OF_ZONE,
    ),
    "another class of the same name": Row(
        (storage_class("rbd", parameters={"clusterID": "lab-ceph-1", "pool": "fast"}),),
        Code.EXISTS_OTHERWISE, "error", "parameters", "in parameters",
    ),
    "another reclaim policy of a class": Row(
        (storage_class("rbd", reclaimPolicy="Retain"),),
        Code.EXISTS_OTHERWISE, "error", "reclaimPolicy", "in reclaimPolicy",
    ),
    "another binding mode of a class": Row(
        (storage_class("rbd", volumeBindingMode="WaitForFirstConsumer"),),
        Code.EXISTS_OTHERWISE, "error", "volumeBindingMode", "in volumeBindingMode",
    ),
    "a parameter that only the API server shows": Row(
        (storage_class("rbd"),),
        Code.EXISTS_OTHERWISE, "error", "parameters", "in parameters",
        around=stored(storage_class("rbd", parameters={
            "clusterID": "lab-ceph-1", "pool": "k8s", "imageFeatures": "layering",
        }), storage_class("rbd", parameters={
            "clusterID": "lab-ceph-1", "pool": "k8s", "imageFeatures": "layering",
        })),
    ),
    "another secret of a PV": Row(
        (pv(claimRef=CLAIM_REF, csi={"nodeStageSecretRef": {"namespace": "a", "name": "b"}}),),
        Code.EXISTS_OTHERWISE, "error", "spec.csi", "in spec.csi", into=EXISTING,
        around=stored(pv()),
    ),
    "an order of access modes": Row(
        (pvc(accessModes=["ReadWriteOnce", "ReadOnlyMany"]),),
        Code.EXISTS_OTHERWISE, "error", "spec.accessModes", "in spec.accessModes", into=EXISTING,
        around=stored(pvc(accessModes=["ReadOnlyMany", "ReadWriteOnce"])),
    ),
    "a namespace that does not exist": Row(
        PAIR, Code.NAMESPACE_MISSING, "error", "metadata.namespace", "Namespace shop",
        around=around(namespaces={"shop": False}),
    ),
    "a content that names a volume": Row(
        (content(source={"volumeHandle": HANDLE}),),
        Code.SNAPSHOT_TAKEN_ANEW, "warning", "spec.source.volumeHandle", "takes a new snapshot",
    ),
    "a driver that is not installed": Row(
        (pv(csi={"driver": "rook-ceph.rbd.csi.ceph.com"}), pvc()),
        Code.DRIVER_NOT_INSTALLED, "error", "spec.csi.driver", "rook-ceph.rbd.csi.ceph.com, which",
    ),
    "a driver of another kind of storage": Row(
        (pv(csi={"driver": "ebs.csi.aws.com", "volumeAttributes": {}}), pvc()),
        Code.DRIVER_NOT_INSTALLED, "error", "spec.csi.driver", "ebs.csi.aws.com, which",
    ),
    "a secret that does not exist": Row(
        PAIR, Code.SECRET_MISSING, "error", "spec.csi.nodeStageSecretRef",
        "refers to secret ceph-csi/csi-rbd-secret, which does not exist",
        around=around(secrets={SECRET: False}),
    ),
    "two claims for one PV": Row(
        (pv(claimRef=None), pvc("a"), pvc("b")),
        Code.CLAIMED_TWICE, "error", "spec.volumeName", "one of them gets it",
    ),
    "a class that does not exist, of a pair": Row(
        (pv(storageClassName="gone"), pvc(storageClassName="gone")),
        Code.STORAGE_CLASS_MISSING, "warning", "spec.storageClassName", "and cannot grow",
    ),
    # By the rules ---------------------------------------------------------------------------------
    "a claim of a backup with its PV": Row(
        (pv(claimRef=CLAIM_REF), pvc(meta=BIND_COMPLETED)),
        Code.CLAIM_LOST, "error",
        "metadata.annotations[pv.kubernetes.io/bind-completed]",
        f"names {PV}, but the PV's claimRef contains another uid ({OLD_UID})",
    ),
    "a claim of a backup, and a claimRef without a uid": Row(
        (pv(), pvc(meta=BIND_COMPLETED)),
        Code.CLAIM_LOST, "error",
        "metadata.annotations[pv.kubernetes.io/bind-completed]", "contains no uid",
    ),
    "a claim of a backup without volumeName": Row(
        (pvc(meta=BIND_COMPLETED, volumeName=None),),
        Code.REFERENCE_LOST, "error", "spec.volumeName", "marked as bound but names no PV",
    ),
    "a claim of a backup without its PV": Row(
        (pvc(meta=BIND_COMPLETED),),
        Code.VOLUME_GONE, "error", "spec.volumeName", "this PV no longer exists",
    ),
    "a claim of a backup, and a PV of an existing claim": Row(
        (pvc("copy", meta=BIND_COMPLETED),),
        Code.CLAIMED_TWICE, "error", "spec.volumeName", "both name", into=EXISTING,
    ),
    "a claim without its PV": Row(
        (pvc(),),
        Code.NAMED_VOLUME_MISSING, "error", "spec.volumeName", "there is no such PV",
    ),
    "a claim that is larger than its PV": Row(
        (pv(claimRef=None), pvc(resources={"requests": {"storage": "2Gi"}})),
        Code.NAMED_VOLUME_REFUSED, "error", "spec.volumeName", "has 1Gi, the claim requests 2Gi",
    ),
    "a claim whose PV belongs to another": Row(
        (pvc("other"),),
        Code.NAMED_VOLUME_TAKEN, "error", "spec.volumeName", "belongs to claim shop/data, which",
        into=EXISTING,
    ),
    "a PV that does not fit its claim": Row(
        (pv(accessModes=["ReadOnlyMany"]), pvc(volumeName=None)),
        Code.KEPT_VOLUME_REFUSED, "error", "spec.claimRef", "is reserved for claim shop/data and",
    ),
    "a PV without its claim": Row(
        (pv(),), Code.VOLUME_RESERVED, "info", "spec.claimRef", "which does not exist",
    ),
    "a class that does not exist": Row(
        (pvc(volumeName=None, storageClassName="gone"),),
        Code.STORAGE_CLASS_MISSING, "error", "spec.storageClassName", "requests storage class gone",
    ),
    "two PVs of one handle": Row(
        (pv(), pv("pv-2", claimRef={"namespace": "shop", "name": "two"}), pvc()),
        Code.DUPLICATE_HANDLE, "error", "spec.csi.volumeHandle", "have the same volume handle",
    ),
    "a handle that a PV here has": Row(
        (pv("pv-2", claimRef={"namespace": "shop", "name": "two"}),),
        Code.DUPLICATE_HANDLE, "error", "spec.csi.volumeHandle", "have the same volume handle",
        into=EXISTING,
    ),
    "an image that does not exist": Row(
        PAIR, Code.IMAGE_GONE, "error", "spec.csi.volumeHandle", "does not exist in cluster",
        into=empty_cluster(of_ceph={"images": (image_view(presence=ImagePresence.GONE),)}),
    ),
    "an image in the trash": Row(
        PAIR, Code.IMAGE_IN_TRASH, "error", "spec.csi.volumeHandle", "trash",
        into=empty_cluster(
            of_ceph={"images": (image_view(presence=ImagePresence.TRASH, watchers=()),)}
        ),
    ),
    "an image that another machine has open": Row(
        PAIR, Code.HOLDER_UNDETERMINED, "error", "spec.csi.volumeHandle",
        "client.4393 at 192.0.2.7:0/5 holds",
        into=empty_cluster(
            of_ceph={"images": (image_view(watchers=(watcher(address=STRANGER_ADDRESS),)),)}
        ),
    ),
}  # fmt: skip


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_code_is_reported_with_its_field(row: Row) -> None:
    found = problem_in(linted(*row.objects, into=row.into, around=row.around), row.code)
    assert (found.severity, found.field) == (row.severity, row.field)
    assert row.text in found.statement
    assert found.remedy
    assert found.evidence or found.code in FINDINGS


def test_every_code_of_its_own_has_a_row() -> None:
    # The namespace of -n is no object: it has its own test.
    codes = {row.code for row in ROWS.values()} | {Code.OTHER_NAMESPACE}
    assert {entry.code for entry in ENTRIES} <= codes


def test_every_code_of_the_rules_exists() -> None:
    assert set(ADVICE) <= set(FINDINGS)


# --------------------------------------------------------------------------------------------------
# What is not reported
# --------------------------------------------------------------------------------------------------

WELL: Final[dict[str, tuple[tuple[Json, ...], Snapshot | None, Surroundings]]] = {
    "a pair": (PAIR, None, AROUND),
    "a pair, claim first": ((pvc(), pv()), None, AROUND),
    "objects that exist as they are": (
        (pv(claimRef={**CLAIM_REF, "uid": "u"}), pvc(meta=BIND_COMPLETED)), EXISTING, AROUND,
    ),
    "a PV that is set to Retain": (
        (pv(claimRef={**CLAIM_REF, "uid": "u"}),), EXISTING, AROUND,
    ),
    "a PV that is Released as it was saved": (
        (pv(claimRef=CLAIM_REF),), RELEASED, AROUND,
    ),
    "a PV that exists, and claims that were not observed": (
        (pv(claimRef={**CLAIM_REF, "uid": "u"}, persistentVolumeReclaimPolicy="Delete"),),
        replace(
            EXISTING,
            kubernetes=EXISTING.kubernetes
            and replace(EXISTING.kubernetes, claims=NotObserved(reason="403")),
        ),
        AROUND,
    ),
    "a PV without claimRef that a claim of a backup names": (
        (pv(claimRef=None), pvc(meta=BIND_COMPLETED)), None, AROUND,
    ),
    "a namespace, a secret and a driver of the files": (
        (
            *PAIR,
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}},
            {"apiVersion": "v1", "kind": "Secret",
             "metadata": {"namespace": SECRET[0], "name": SECRET[1]}},
            {"apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": {"name": DRIVER}},
        ),
        empty_cluster(drivers=()),
        around(namespaces={"shop": False}, secrets={SECRET: False}),
    ),
    "a driver that is only registered on a node": (
        PAIR,
        empty_cluster(
            drivers=(), csi_nodes=(CSINode(node_name="worker-1", drivers=(DRIVER,)),)
        ),
        AROUND,
    ),
    "a class of the files": (
        (pv(storageClassName="fast"), pvc(storageClassName="fast"), storage_class()), None, AROUND,
    ),
    "an owner that exists": (
        (pv(), pvc(meta={"ownerReferences": [OWNER]})),
        empty_cluster(
            workloads=(
                Workload(
                    kind="StatefulSet",
                    ref=ObjectRef(namespace="shop", name="db", uid="owner-uid"),
                ),
            )
        ),
        AROUND,
    ),
    "a pool id that is mapped": (
        (pv(csi={"volumeHandle": OTHER_POOL}), pvc()),
        None,
        around(
            csi_config=replace(
                CONFIG,
                mappings=(
                    PoolMapping(clusters=(("site-b", "lab-ceph-1"),), pools=(("7", "1"),)),
                ),
            )
        ),
    ),
    "a static volume": (
        (
            pv(
                csi={
                    "volumeHandle": "csi-vol-a5aedea1-28da-40b4-92b8-33fd7de38647",
                    "volumeAttributes": {
                        "staticVolume": "true", "clusterID": "lab-ceph-1", "pool": "k8s",
                    },
                }
            ),
            pvc(),
        ),
        None,
        AROUND,
    ),
    "a nodeAffinity that a node has": ((pv(nodeAffinity=zone("a")), pvc()), OF_ZONE, AROUND),
    "a claim that exists, with fields that an apply leaves alone": (
        (pvc(volumeName=None, volumeMode=None),), EXISTING, stored(pvc(volumeName=PV)),
    ),
    "a PV that exists, whose manifest has fewer attributes": (
        (pv(claimRef={**CLAIM_REF, "uid": "u"}, csi={"fsType": None, "volumeAttributes": {}}),),
        EXISTING, stored(pv()),
    ),
    "a PV that exists, and gets the secret to grow": (
        (
            pv(
                claimRef={**CLAIM_REF, "uid": "u"},
                csi={"controllerExpandSecretRef": {"namespace": SECRET[0], "name": SECRET[1]}},
            ),
        ),
        EXISTING, stored(pv()),
    ),
    "an image of the same name in another pool": (
        (pv(), pvc(), pv("pv-2", claimRef={"namespace": "shop", "name": "two"}, csi={
            **STATIC, "volumeAttributes": {**STATIC["volumeAttributes"], "pool": "other"},
        }), pvc("two", volumeName="pv-2")), None, AROUND,
    ),
    "another cluster without the volume": (
        PAIR, None,
        around(
            origin=SourceCluster(
                name="site-a",
                view=KubeView(server="https://other:6443", persistent_volumes=()),
                csi_config=CONFIG,
            )
        ),
    ),
}  # fmt: skip


@pytest.mark.parametrize(("objects", "into", "surroundings"), WELL.values(), ids=WELL)
def test_nothing_is_reported(
    objects: tuple[Json, ...], into: Snapshot | None, surroundings: Surroundings
) -> None:
    found = linted(*objects, into=into, around=surroundings)
    assert codes_of(found) == set(), [problem.statement for problem in found.problems]


@pytest.mark.parametrize(
    ("objects", "into"),
    [
        pytest.param(PAIR, None, id="a pair"),
        pytest.param((pv(), pvc(volumeName=None)), None, id="a claim without volumeName"),
        pytest.param(
            (pv(claimRef=None), pvc(meta=BIND_COMPLETED)), None, id="a PV without claimRef"
        ),
        pytest.param((pvc(),), EXISTING, id="a claim that is bound"),
    ],
)
def test_claim_that_binds_is_named_with_its_volume(
    objects: tuple[Json, ...], into: Snapshot | None
) -> None:
    found = linted(*objects, into=into)
    assert [(str(ref), name) for ref, name in found.bindings] == [("shop/data", PV)]


@pytest.mark.parametrize(
    "objects",
    [
        pytest.param((pv(claimRef=CLAIM_REF), pvc()), id="the uid of another cluster"),
        pytest.param((pv(), pvc(meta=BIND_COMPLETED)), id="bound before, and no uid"),
        pytest.param((pvc(),), id="no PV"),
        pytest.param((pv(claimRef=None), pvc(volumeMode="Block")), id="a PV that does not fit"),
    ],
)
def test_claim_that_does_not_bind_is_not_named(objects: tuple[Json, ...]) -> None:
    assert linted(*objects).bindings == ()


def test_what_diagnose_reports_today_is_not_repeated() -> None:
    lost = empty_cluster(
        claims=(
            claim(
                ref=ObjectRef(namespace="shop", name="data", uid="u"),
                bind_completed=True, phase="Lost",
            ),
        )
    )  # fmt: skip
    assert codes_of(linted(pvc(meta=BIND_COMPLETED), into=lost)) == set()


# --------------------------------------------------------------------------------------------------
# What was not observed
# --------------------------------------------------------------------------------------------------


def facts(found: LintReport) -> str:
    return "; ".join(gap.fact for gap in found.not_observed)


def test_no_rule_judges_a_cluster_whose_claims_were_not_observed() -> None:
    found = linted(pvc(), into=empty_cluster(persistent_volumes=NotObserved(reason="403")))
    assert codes_of(found) == set()
    assert "the PersistentVolumes of this cluster" in facts(found)
    assert not found.is_complete


def test_files_alone_are_judged_without_kubernetes() -> None:
    sources = replace(
        empty_cluster().sources, kubernetes=Source(state=SourceState.FAILED, reason="refused")
    )
    into = replace(empty_cluster(), kubernetes=None, sources=sources)
    volume_with_uid = pv(claimRef=CLAIM_REF, persistentVolumeReclaimPolicy="Delete")
    found = linted(volume_with_uid, pvc(meta=BIND_COMPLETED), into=into)
    assert codes_of(found) == {Code.IMAGE_DELETED_ON_APPLY}
    assert "the objects of this cluster" in facts(found)
    assert not found.is_complete


@pytest.mark.parametrize(
    ("into", "surroundings", "fact"),
    [
        (empty_cluster(claims=UNASKED), AROUND, "the claims of this cluster"),
        (empty_cluster(storage_classes=UNASKED), AROUND, "the storage classes of this cluster"),
        (empty_cluster(drivers=UNASKED), AROUND, "the CSI drivers of this cluster"),
        (None, around(csi_config=UNASKED), "ceph-csi's configuration here"),
        (None, around(secrets={SECRET: UNASKED}), "whether one of the secrets exists"),
        (None, around(namespaces={"shop": UNASKED}), "whether one of the namespaces exists"),
        (
            None,
            around(origin=SourceCluster(name="site-a", view=UNASKED, csi_config=UNASKED)),
            "the objects of cluster site-a",
        ),
        (empty_cluster(of_ceph={"images": ()}), AROUND, "whether the image exists, and which"),
        (
            empty_cluster(of_ceph={"pools": UNASKED}),
            AROUND,
            "whether the pool ids in the handles are those of this Ceph cluster",
        ),
    ],
)
def test_fact_that_was_not_observed_is_named(
    into: Snapshot | None, surroundings: Surroundings, fact: str
) -> None:
    found = linted(*PAIR, into=into, around=surroundings)
    assert fact in facts(found)
    assert not found.is_complete


def test_nothing_is_missing_if_everything_was_observed() -> None:
    found = linted(*PAIR)
    assert (found.not_observed, found.is_complete) == ((), True)


def test_ceph_that_was_skipped_on_request_is_named_and_no_failure() -> None:
    skipped = Source(state=SourceState.SKIPPED, reason="not queried, as requested")
    into = replace(
        empty_cluster(), ceph=None, sources=replace(empty_cluster().sources, ceph=skipped)
    )
    found = linted(*PAIR, into=into)
    assert "whether the image exists" in facts(found)
    assert found.is_complete


def test_pool_of_a_clusterid_that_may_be_another_cluster_is_not_judged() -> None:
    two = replace(CONFIG, clusters=(("lab-ceph-1", ("10.0.0.1:6789",)), ("b", ("10.0.0.2:6789",))))
    found = linted(pv(csi={"volumeHandle": OTHER_POOL}), pvc(), around=around(csi_config=two))
    assert Code.POOL_MISSING not in codes_of(found)
    assert "whether the pool ids" in facts(found)


def test_the_journal_is_never_read_and_the_command_shows_it() -> None:
    (gap,) = linted(*PAIR).unread
    assert gap.hint == (
        "rados getomapval csi.volume.a5aedea1-28da-40b4-92b8-33fd7de38647 csi.imagename --pool=k8s"
    )


# --------------------------------------------------------------------------------------------------
# The cluster as it would be
# --------------------------------------------------------------------------------------------------


def test_claim_without_a_class_gets_the_default_one() -> None:
    classes = (replace(RBD, is_default=True), replace(RBD, name="other"))
    into = empty_cluster(storage_classes=classes)
    view = applied(into, read(pvc(storageClassName=None))).kubernetes
    assert view is not None
    assert [one.storage_class for one in observed_of(view.claims)] == ["rbd"]


def test_status_of_a_manifest_is_ignored() -> None:
    manifests = read(pv() | {"status": {"phase": "Bound"}}, pvc() | {"status": {"phase": "Bound"}})
    view = applied(empty_cluster(), manifests).kubernetes
    assert view is not None
    assert [one.phase for one in observed_of(view.persistent_volumes)] == ["Available"]
    assert [one.phase for one in observed_of(view.claims)] == ["Pending"]


def test_lists_that_were_not_observed_stay_so() -> None:
    into = empty_cluster(claims=UNASKED, storage_classes=UNASKED)
    view = applied(into, read(*PAIR, storage_class())).kubernetes
    assert view is not None
    assert (view.claims, view.storage_classes) == (UNASKED, UNASKED)


def test_worst_problem_comes_first() -> None:
    found = linted(
        pv(claimRef=CLAIM_REF, persistentVolumeReclaimPolicy="Delete", meta={"uid": OLD_UID}),
        pvc(meta=BIND_COMPLETED),
    )
    severities = [problem.severity for problem in found.problems]
    assert severities == sorted(severities, key=[*reversed(Severity)].index)
    assert found.problems[0].code == Code.IMAGE_DELETED_ON_APPLY


def test_every_code_of_manifests_is_tested_here() -> None:
    names = {entry.code.name for entry in ENTRIES}
    assert {name for name in names if f"Code.{name}" not in Path(__file__).read_text()} == set()


def test_own_pair_of_a_bound_volume_changes_nothing_here() -> None:
    """An apply keeps the uid in the claimRef, which the pair leaves out."""
    found = linted(pv(claimRef=NO_UID, persistentVolumeReclaimPolicy="Retain"), into=EXISTING)
    assert {one.code for one in found.problems}.isdisjoint(
        {Code.CLAIM_LOST, Code.RELEASED_ON_APPLY}
    )


def test_policy_that_becomes_delete_is_reported() -> None:
    kube = EXISTING.kubernetes
    assert kube is not None
    kept = tuple(
        replace(one, reclaim_policy="Retain") for one in observed_of(kube.persistent_volumes)
    )
    into = replace(EXISTING, kubernetes=replace(kube, persistent_volumes=kept))
    found = linted(pv(claimRef=NO_UID, persistentVolumeReclaimPolicy="Delete"), into=into)
    assert Code.DELETE_POLICY_RESTORED in {one.code for one in found.problems}


def test_files_without_an_object_to_examine_are_no_answer() -> None:
    with pytest.raises(ParseError):
        joined_manifests([parse_manifests(NAMESPACE, file="f", namespace="default")])


def test_list_in_a_list_is_read() -> None:
    inner = {"apiVersion": "v1", "kind": "List", "items": [pv()]}
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": [inner]})
    assert [item.kind for item in parse_manifests(text, file="f", namespace="x").items] == [
        "PersistentVolume"
    ]


def test_claim_of_another_namespace_than_that_of_n_is_refused() -> None:
    manifests = replace(read(*PAIR), required_namespace="billing")
    found = lint(empty_cluster(), manifests, AROUND)
    refused = problem_in(found, Code.OTHER_NAMESPACE)
    assert (refused.severity, refused.field) == ("error", "metadata.namespace")
    assert "applied with -n billing: kubectl refuses the claim" in refused.statement
    assert Code.OTHER_NAMESPACE not in codes_of(
        lint(empty_cluster(), replace(manifests, required_namespace="shop"), AROUND)
    )


def test_nodes_that_were_not_observed_are_a_gap() -> None:
    found = linted(pv(nodeAffinity=zone("b")), pvc(), into=empty_cluster(nodes=UNASKED))
    assert Code.NO_NODE_FITS not in codes_of(found)
    assert "whether a node has the labels that a PV requires" in facts(found)


def test_objects_that_were_not_read_whole_are_a_gap() -> None:
    key = ("PersistentVolume", "", PV)
    found = linted(
        pv(claimRef={**CLAIM_REF, "uid": "u"}), into=EXISTING, around=around(stored={key: UNASKED})
    )
    assert "whether 1 object that exists here differ" in facts(found)


@pytest.mark.parametrize("code", [Code.LEFTOVER_IDENTITY, Code.OPEN_TO_ANY_CLAIM])
def test_object_is_not_called_new_if_that_was_not_observed(code: str) -> None:
    volume_ = pv(claimRef=None, meta={"uid": OLD_UID})
    text = problem_in(
        linted(volume_, into=empty_cluster(persistent_volumes=UNASKED)), code
    ).statement
    assert "is new here" not in text
    assert "not observed" in text


def test_images_of_files_are_compared_without_the_cluster() -> None:
    into = empty_cluster(persistent_volumes=UNASKED)
    static = pv("pv-2", claimRef={"namespace": "shop", "name": "two"}, csi=STATIC)
    problem_in(linted(pv(), static, into=into), Code.IMAGE_OF_TWO_VOLUMES)


def test_image_of_a_static_volume_is_not_called_deleted() -> None:
    static = pv(claimRef=CLAIM_REF, persistentVolumeReclaimPolicy="Delete", csi=STATIC)
    found = linted(static)
    assert Code.IMAGE_DELETED_ON_APPLY not in codes_of(found)
    text = problem_in(found, Code.RELEASED_ON_APPLY).statement
    assert "ceph-csi cannot delete its image k8s/csi-vol-" in text


def test_policy_of_a_static_volume_is_a_note() -> None:
    found = problem_in(
        linted(pv(persistentVolumeReclaimPolicy="Delete", csi=STATIC), pvc()),
        Code.DELETE_POLICY_RESTORED,
    )
    assert found.severity == "info"
    assert "the image stays" in found.statement


def test_each_of_many_volumes_of_one_handle_is_reported() -> None:
    many = [pv(f"pv-{n}", claimRef={"namespace": "shop", "name": f"d-{n}"}) for n in range(20)]
    found = linted(*many)
    names = {one.subject.name for one in found.problems if one.code == Code.DUPLICATE_HANDLE}
    assert len(names) == 20


def test_driver_without_a_csidriver_is_unknown_where_csinodes_were_refused() -> None:
    """A driver needs no CSIDriver: only the CSINodes show that it is registered nowhere."""
    into = empty_cluster()
    assert into.kubernetes is not None
    refused = NotObserved(reason="csinodes is forbidden")
    blind = replace(into, kubernetes=replace(into.kubernetes, csi_nodes=refused))
    manifest = pv(csi={"driver": "other.example.org"})
    assert "RBD732" in codes_of(linted(manifest, into=into))
    found = linted(manifest, into=blind)
    assert "RBD732" not in codes_of(found)
    assert "the CSI drivers on the nodes of this cluster" in {
        gap.fact for gap in found.not_observed
    }
    assert "the CSI drivers on the nodes of this cluster" not in {
        gap.fact for gap in linted(pv(), into=blind).not_observed
    }
