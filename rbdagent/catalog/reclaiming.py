"""RBD405, RBD406, RBD611 to RBD614, RBD64x, RBD65x: PVs without a claim, and deletion."""

from __future__ import annotations

from typing import Final

from rbdagent.catalog.entry import Entry
from rbdagent.model import LifecycleStep, Recovery, Severity

_PROVISIONER: Final = "external-provisioner"
_BINDER: Final = "the PV controller"
_SYNC_S: Final = 15
_RETRY_S: Final = 300

_RECLAIMING: Final = (
    Entry(
        "RBD405",
        "VolumeReleased",
        Severity.INFO,
        "The PV is Released: its claim is gone, and its reclaim policy keeps the PV.",
        cause="Its claim was deleted, or the PV was restored without its claim. Retain keeps the "
        "PV indefinitely.",
        evidence="The PV's phase, claimRef and reclaim policy.",
        risk="None: the image stays, and no claim gets it.",
        remedy="To use it again: check that no client has the image open. Then write the name "
        "and namespace of the new claim into the PV's claimRef, without a uid, and name the PV in "
        "the new claim (volumeName). Nothing is wiped: the new claim gets the data.",
        recovery=Recovery(note="a PV with Retain needs manual action"),
        step=LifecycleStep.RECLAIM,
    ),
    Entry(
        "RBD406",
        "ReleasedButClaimLives",
        Severity.ERROR,
        "The PV is Released although its claim exists.",
        cause="The PV controller was stopped in the middle of its work, or a webhook rejects its "
        "writes. Before Kubernetes 1.20, a race in the controller could also cause this.",
        evidence="claimRef.uid equals the uid of the existing claim.",
        risk="With reclaim policy Delete, the provisioner deletes the image of an existing claim.",
        remedy="Set Retain at once, and delete nothing. The PV controller sets the PV to Bound "
        "at its next sync. If it does not, it is not running. There is nothing to patch.",
        recovery=Recovery(actor=_BINDER, within_s=_SYNC_S),
        step=LifecycleStep.BIND,
    ),
    Entry(
        "RBD611",
        "VolumeReserved",
        Severity.INFO,
        "The PV is reserved for a claim that does not exist.",
        cause="A claimRef was written into the PV, and the claim was not created yet.",
        evidence="Phase Available with a claimRef, and no claim of that name.",
        risk="None.",
        remedy="Create the claim, or remove the claimRef from the PV: then any claim that fits "
        "may get the PV and its data.",
        recovery=Recovery(
            actor=_BINDER, condition="a claim with that name exists and fits", within_s=_SYNC_S
        ),
        step=LifecycleStep.BIND,
    ),
    Entry(
        "RBD612",
        "ReclaimFailed",
        Severity.ERROR,
        "The PV is Failed: Kubernetes itself had to reclaim it, and cannot.",
        cause="The PV has an in-tree source (spec.rbd) and reclaim policy Delete, and its plugin "
        "was removed in 1.31. Or its policy is Recycle, which RBD does not support.",
        evidence="Phase Failed, and the PV's status.message.",
        risk="None: the image is untouched. A provisioner ignores a Failed PV.",
        remedy="To use it again: set Retain, and remove the claimRef. The PV is then Available, "
        "with its data, to any claim that fits. To get rid of it: delete the PV, then delete the "
        "image by hand.",
        recovery=Recovery(note="a PV stays Failed until its claimRef is removed"),
        step=LifecycleStep.RECLAIM,
    ),
    Entry(
        "RBD640",
        "DeletionUnderWay",
        Severity.INFO,
        "The PV is Released, and its image is being deleted.",
        cause="Its claim was deleted, and its reclaim policy is Delete.",
        evidence="The PV's phase and reclaim policy, and the time since its release.",
        risk="The data is deleted within seconds. Retain may still save it.",
        remedy="No action is needed. To keep the data, set Retain now.",
        recovery=Recovery(actor=_PROVISIONER, within_s=_RETRY_S),
        step=LifecycleStep.RECLAIM,
    ),
    Entry(
        "RBD641",
        "DeletionHeld",
        Severity.ERROR,
        "The PV is to be deleted, and its image is still in use.",
        cause="A mapping that was left behind, another cluster, a running backup, or rbd-mirror "
        "with more daemons than ceph-csi is configured for.",
        evidence="The PV's phase and reclaim policy, the image's watchers and attachments, and "
        "the event VolumeFailedDelete.",
        risk="The data is deleted as soon as the last holder releases the image.",
        remedy="Read the findings about the holder. To keep the data, set Retain first. Never "
        "remove the PV's finalizers: the image would be left behind.",
        recovery=Recovery(
            actor=_PROVISIONER, condition="no client has the image open", within_s=_RETRY_S
        ),
        step=LifecycleStep.RECLAIM,
    ),
    Entry(
        "RBD642",
        "DeletionFails",
        Severity.ERROR,
        "The PV is to be deleted, and the deletion of its image fails.",
        cause="The cause is in the event: most often the provisioner's secret was deleted with "
        "its namespace, or Ceph does not answer.",
        evidence="The event VolumeFailedDelete, verbatim.",
        risk="None. Without the PV object, no controller would delete the image.",
        remedy="Fix what the event names. Never remove the PV's finalizers.",
        recovery=Recovery(
            actor=_PROVISIONER, condition="the cause in the event is fixed", within_s=_RETRY_S
        ),
        step=LifecycleStep.RECLAIM,
    ),
    Entry(
        "RBD643",
        "NobodyDeletes",
        Severity.ERROR,
        "The PV is to be deleted, and no provisioner deletes it.",
        cause="The provisioner does not run. Or the PV belongs to another provisioner: "
        "pv.kubernetes.io/provisioned-by names a driver that is not in this cluster. Or the PV is "
        "static, and external-provisioner is older than 3.5.",
        evidence="The PV's phase and reclaim policy, the time since its release, and no event "
        "from a provisioner.",
        risk="As soon as a provisioner for the PV runs, it deletes the image.",
        remedy="Get the provisioner running. Or set Retain, save the data that is needed, and "
        "delete the image and the PV by hand.",
        recovery=Recovery(actor=_PROVISIONER, condition="it runs", within_s=_RETRY_S),
        step=LifecycleStep.RECLAIM,
    ),
    Entry(
        "RBD644",
        "BoundElsewhere",
        Severity.ERROR,
        "The PV names a claim that is bound to another PV.",
        cause="Two PVs were created for one claim, for example in a race between a static PV and "
        "a provisioner.",
        evidence="The PV's claimRef, and the claim's volumeName.",
        risk="The PV controller releases this PV. If it was provisioned with reclaim policy "
        "Delete, it is deleted with its image.",
        remedy="If the data is needed, set Retain at once.",
        recovery=Recovery(actor=_BINDER, within_s=_SYNC_S),
        step=LifecycleStep.RELEASE,
    ),
)

_FINALIZERS: Final = (
    Entry(
        "RBD613",
        "ClaimProtected",
        Severity.WARNING,
        "The claim is being deleted, and waits until its pods are gone.",
        cause="The finalizer pvc-protection keeps a claim as long as a pod on a node names it, "
        "even a pod that has ended.",
        evidence="deletionTimestamp, finalizers, and the pods that use the claim.",
        risk="With reclaim policy Delete, the data is deleted when the last pod is gone. If the "
        "finalizer is removed by hand, a pod continues to write to a volume that is being deleted.",
        remedy="A deletion cannot be undone. To keep the data, set the PV to Retain now. To "
        "complete the deletion, delete the pods. New pods that use the claim do not start.",
        recovery=Recovery(
            actor="the PVC protection controller", condition="no pod names the claim"
        ),
        step=LifecycleStep.RELEASE,
    ),
    Entry(
        "RBD614",
        "VolumeProtected",
        Severity.WARNING,
        "The PV is being deleted before its claim.",
        cause="A bound PV was deleted. The finalizer pv-protection keeps it while its phase is "
        "Bound.",
        evidence="deletionTimestamp, phase, reclaim policy and finalizers.",
        risk="With reclaim policy Delete, the image is deleted when the claim is deleted. "
        "Without a provisioner's finalizer, the image is left behind.",
        remedy="A deletion cannot be undone. To keep the data, set Retain now and note the "
        "volumeHandle: a new PV with this handle can be created later. Never remove the "
        "finalizer: the claim would become Lost.",
        recovery=Recovery(actor="the PV protection controller", condition="the claim is gone"),
        step=LifecycleStep.RECLAIM,
    ),
    Entry(
        "RBD650",
        "ClaimIsSource",
        Severity.WARNING,
        "The claim is being deleted, and a clone or a snapshot of it is still being created.",
        cause="Its finalizer keeps it until the clone or the snapshot is complete.",
        evidence="deletionTimestamp and finalizers.",
        risk="If the finalizer is removed by hand, the clone or snapshot fails.",
        remedy="Find out why the clone's claim is not bound, or why the snapshot is not ready. "
        "Does the snapshot controller run?",
        recovery=Recovery(
            actor="external-provisioner or the snapshot controller",
            condition="the clone is bound, or the snapshot is ready",
        ),
        step=LifecycleStep.RELEASE,
    ),
    Entry(
        "RBD651",
        "VolumeHeldByAttachment",
        Severity.WARNING,
        "The PV is being deleted, and is still attached.",
        cause="external-attacher keeps a PV as long as a VolumeAttachment names it.",
        evidence="The finalizer, and the VolumeAttachments of the PV.",
        risk="If the finalizer is removed by hand, the detach fails indefinitely: it needs the PV.",
        remedy="Find out why the node does not release the volume, or why the detach fails.",
        recovery=Recovery(actor="external-attacher", condition="the last attachment is gone"),
        step=LifecycleStep.RECLAIM,
    ),
    Entry(
        "RBD652",
        "HeldByFinalizer",
        Severity.WARNING,
        "A claim or PV is being deleted, and a finalizer that is not from Kubernetes holds it.",
        cause="A backup program or an operator has set the finalizer, to finish its work first.",
        evidence="deletionTimestamp and finalizers.",
        risk="If the finalizer is removed by hand, that work is not done.",
        remedy="Find out from the name of the finalizer which program set it, and why the work "
        "of that program does not finish.",
        recovery=Recovery(actor="the program that set the finalizer"),
        step=LifecycleStep.RELEASE,
    ),
    Entry(
        "RBD653",
        "FinalizerLeft",
        Severity.ERROR,
        "A claim or PV is being deleted, and a finalizer remains although its reason is gone.",
        cause="The controller that removes the finalizer does not work: kube-controller-manager "
        "for pvc-protection and pv-protection, otherwise external-provisioner or "
        "external-attacher.",
        evidence="deletionTimestamp and finalizers, and no object that needs them.",
        risk="None. The problem is the controller that does not work, not the finalizer.",
        remedy="Get that controller running again, and read its log.",
        recovery=Recovery(actor="the finalizer's controller", condition="it runs"),
        step=LifecycleStep.RELEASE,
    ),
    Entry(
        "RBD654",
        "PodHeldByFinalizer",
        Severity.WARNING,
        "A pod has ended, and a finalizer holds its object.",
        cause="A program has set the finalizer, to finish its work first.",
        evidence="deletionTimestamp and finalizers, and containers that have all ended.",
        risk="None for the volume. A StatefulSet creates no new pod as long as the object of the "
        "old pod exists.",
        remedy="Find out from the name of the finalizer which program set it, and why the work "
        "of that program does not finish.",
        recovery=Recovery(actor="the program that set the finalizer"),
        step=LifecycleStep.RELEASE,
    ),
)

ENTRIES: Final = (*_RECLAIMING, *_FINALIZERS)
