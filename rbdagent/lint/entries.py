"""RBD80x, RBD81x: what would go wrong with manifests that are applied as they are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rbdagent.codes import Code
from rbdagent.model import LifecycleStep, Severity
from rbdagent.model.lint import Problem
from rbdagent.rules import FINDINGS
from rbdagent.rules.entry import Entry

if TYPE_CHECKING:
    from rbdagent.model import Sentence, Subject
    from rbdagent.model.lint import Manifest

_WITHOUT_UID: Final = "remove uid and resourceVersion from its claimRef"

ENTRIES: Final = (
    Entry(
        Code.IMAGE_DELETED_ON_APPLY,
        Severity.CRITICAL,
        "Applied as it is, the PV becomes Released, and its image is deleted.",
        remedy=f"Set persistentVolumeReclaimPolicy to Retain, and {_WITHOUT_UID}.",
        recovery=None,
        step=LifecycleStep.RECLAIM,
    ),
    Entry(
        Code.RELEASED_ON_APPLY,
        Severity.ERROR,
        "Applied as it is, the PV becomes Released: its claimRef has the uid of no claim.",
        remedy=f"Keep the policy Retain, and {_WITHOUT_UID}.",
        recovery=None,
        step=LifecycleStep.BIND,
    ),
    Entry(
        Code.DELETE_POLICY_RESTORED,
        Severity.WARNING,
        "What is restored has the policy Delete, and another cluster may have it, too.",
        remedy="Restore it with the policy Retain. Set Delete again when the data was verified, "
        "and no other cluster has the volume.",
        recovery=None,
        step=LifecycleStep.RECLAIM,
    ),
    # kubectl removes a resourceVersion when it creates an object (Helper.CreateWithOptions in
    # staging/src/k8s.io/cli-runtime/pkg/resource/helper.go), and the API server replaces the uid.
    # Server-side apply is refused: "uid mismatch: the provided object specified uid …, and no
    # existing object was found" (patch.go in staging/src/k8s.io/apiserver/pkg/endpoints/handlers).
    Entry(
        Code.LEFTOVER_IDENTITY,
        Severity.WARNING,
        "The manifest has the uid or the resourceVersion of a stored object.",
        remedy="Remove metadata.uid and metadata.resourceVersion.",
        recovery=None,
    ),
    Entry(
        Code.EXISTS_OTHERWISE,
        Severity.ERROR,
        "An object of that name exists, and differs where it cannot be changed.",
        remedy="Find out which of the two is needed. Use another name for the one that is "
        "restored, also in volumeName and claimRef.",
        recovery=None,
    ),
    Entry(
        Code.HANDLE_CONTRADICTS_ATTRIBUTES,
        Severity.ERROR,
        "The volumeHandle leads to another pool or cluster than volumeAttributes.",
        remedy="ceph-csi reads the handle. If the image is in another pool or cluster than the one "
        "that the handle names, create a static PV for it (staticVolume, with the image's name as "
        "volumeHandle), or map the ids in ceph-csi's cluster-mapping.json.",
        recovery=None,
        step=LifecycleStep.STAGE,
    ),
    Entry(
        Code.STILL_IN_ORIGIN,
        Severity.WARNING,
        "The cluster that the PV came from still has it.",
        remedy="In the other cluster, stop the pods, and set the PV to Retain before anything "
        "there is deleted.",
        recovery=None,
        step=LifecycleStep.STAGE,
    ),
    Entry(
        Code.OPEN_TO_ANY_CLAIM,
        Severity.WARNING,
        "The PV names no claim: any claim that fits gets it, with its data.",
        remedy="Name the claim in claimRef, with namespace and name, and without a uid.",
        recovery=None,
        step=LifecycleStep.BIND,
    ),
    Entry(
        Code.PROVISIONED_MEANWHILE,
        Severity.WARNING,
        "The claim names no PV: it may get a new, empty volume before its PV exists.",
        remedy="Name the PV in the claim (volumeName), or apply the PV first.",
        recovery=None,
        step=LifecycleStep.BIND,
    ),
    Entry(
        Code.CLASS_OF_ANOTHER_DRIVER,
        Severity.WARNING,
        "The storage class of the claim belongs to another driver than its PV.",
        remedy="Use a class of the PV's driver, or the same name without a class, in PV and claim.",
        recovery=None,
    ),
    Entry(
        Code.BOUND_ALTHOUGH_DIFFERENT,
        Severity.WARNING,
        "The claim and its PV name each other: they bind although they do not fit.",
        remedy="Make size, access modes, volumeMode and class of the claim those of the PV.",
        recovery=None,
        step=LifecycleStep.BIND,
    ),
    Entry(
        Code.OWNER_LEFT_BEHIND,
        Severity.ERROR,
        "The object has owners of another cluster: the garbage collector deletes it.",
        remedy="Remove metadata.ownerReferences.",
        recovery=None,
    ),
    Entry(
        Code.NAMESPACE_MISSING,
        Severity.ERROR,
        "The namespace of the claim does not exist.",
        remedy="Create the namespace first.",
        recovery=None,
    ),
    Entry(
        Code.SNAPSHOT_TAKEN_ANEW,
        Severity.WARNING,
        "The VolumeSnapshotContent names a volume: a new snapshot is taken of it.",
        remedy="Name the snapshot that exists in spec.source.snapshotHandle, instead of the volume "
        "in volumeHandle.",
        recovery=None,
    ),
    Entry(
        Code.CLUSTER_ID_MEANS_ANOTHER,
        Severity.WARNING,
        "The clusterID has other monitors here than in the cluster that the PV came from.",
        remedy="Compare the fsid of both Ceph clusters (`ceph fsid`). If they differ, the handle "
        "leads to another image here, or to none.",
        recovery=None,
        step=LifecycleStep.STAGE,
    ),
    # The attach/detach controller and kubelet know a volume by driver and handle
    # (GetUniqueVolumeNameFromSpec in pkg/volume/util/util.go).
    Entry(
        Code.IMAGE_OF_TWO_VOLUMES,
        Severity.ERROR,
        "Two PVs with different handles are one image.",
        remedy="Leave one of the PVs out. Set Retain on both before any of them is deleted.",
        recovery=None,
        step=LifecycleStep.STAGE,
    ),
    Entry(
        Code.BEING_DELETED,
        Severity.ERROR,
        "An object of that name is being deleted: what is applied to it goes away with it.",
        remedy="Wait until the object is gone, then apply. What it waits for: its finalizers, and "
        "for a claim the pods that use it. Set Retain on its PV "
        "first.",
        recovery=None,
    ),
    Entry(
        Code.NO_NODE_FITS,
        Severity.ERROR,
        "No node has the labels that the PV requires: no pod that uses it gets a node.",
        remedy="Write the labels of nodes of this cluster into spec.nodeAffinity before the PV is "
        "applied (`kubectl get nodes --show-labels`), or leave it out: it cannot be changed later.",
        recovery=None,
    ),
    # RequireNamespace in staging/src/k8s.io/cli-runtime/pkg/resource/visitor.go.
    Entry(
        Code.OTHER_NAMESPACE,
        Severity.ERROR,
        "kubectl apply -n refuses the claim: it is in another namespace.",
        remedy="Apply without -n: each claim names its namespace. To move it to the other "
        "namespace, change metadata.namespace, and the claimRef of its PV.",
        recovery=None,
    ),
)
_OWN: Final = {entry.code: entry for entry in ENTRIES}


def problem(
    code: Code,
    manifest: Manifest,
    field: str,
    statement: str,
    *,
    subject: Subject,
    evidence: tuple[str, ...] = (),
    severity: Severity | None = None,
    remedy: Sentence = "",
) -> Problem:
    """Return a problem; arguments that are not given are taken from the catalogue."""
    known = _OWN.get(code) or FINDINGS[code]
    return Problem(
        code=code,
        severity=severity or known.severity,
        subject=subject,
        place=manifest.place,
        field=field,
        statement=statement,
        evidence=tuple(dict.fromkeys(evidence)),
        remedy=remedy or known.remedy,
    )
