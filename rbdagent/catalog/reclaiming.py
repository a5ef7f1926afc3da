"""RBD405, RBD406, RBD611 to RBD614, RBD64x, RBD65x: a PV without its claim, and how both end."""

from __future__ import annotations

from typing import Final

from rbdagent.catalog.entry import Entry
from rbdagent.model import Heals, LifeStep, Severity

_PROVISIONER: Final = "external-provisioner"
_BINDER: Final = "the PV controller"
_SYNC_S: Final = 15
_RETRY_S: Final = 300

_RECLAIMING: Final = (
    Entry(
        "RBD405",
        "VolumeReleased",
        Severity.INFO,
        "The PV is Released: its claim is gone, and its reclaim policy keeps it.",
        cause="Its claim was deleted, or the PV was restored without it. Retain keeps it for ever.",
        evidence="Phase, claimRef and reclaim policy.",
        risk="None: the image stays, and nobody gets it.",
        remedy="To use it again: see that nobody has the image open; then put name and namespace "
        "of the new claim into its claimRef, without uid, and name the PV in the new claim "
        "(volumeName). Nothing is wiped: who gets it gets the data.",
        heals=Heals(note="Retain leaves it to you"),
        step=LifeStep.RECLAIM,
    ),
    Entry(
        "RBD406",
        "ReleasedButClaimLives",
        Severity.ERROR,
        "The PV is Released although its claim is alive.",
        cause="The PV controller was stopped in the midst, or a webhook refuses what it writes; "
        "before Kubernetes 1.20 also a race of its own.",
        evidence="claimRef.uid equals the living claim's uid.",
        risk="With reclaim policy Delete the provisioner deletes the image of a living claim.",
        remedy="Set Retain at once, and delete nothing. The PV controller makes it Bound at its "
        "next look: if it does not, it does not run. There is nothing to patch.",
        heals=Heals(by=_BINDER, within_s=_SYNC_S),
        step=LifeStep.BIND,
    ),
    Entry(
        "RBD611",
        "VolumeReserved",
        Severity.INFO,
        "The PV is kept for a claim that does not exist.",
        cause="Somebody wrote a claimRef into the PV; the claim was not made yet.",
        evidence="Phase Available with a claimRef, and no claim of that name.",
        risk="None.",
        remedy="Make the claim, or take the claimRef out of the PV: then any claim that fits may "
        "get it, and its data.",
        heals=Heals(by=_BINDER, once="a claim of that name fits", within_s=_SYNC_S),
        step=LifeStep.BIND,
    ),
    Entry(
        "RBD612",
        "ReclaimFailed",
        Severity.ERROR,
        "The PV is Failed: Kubernetes itself was to reclaim it, and cannot.",
        cause="A PV with an in-tree source (spec.rbd) and reclaim policy Delete, whose plugin is "
        "gone since 1.31; or the policy Recycle, which RBD does not know.",
        evidence="Phase Failed and the PV's status.message.",
        risk="None: the image is untouched. A provisioner leaves a Failed PV alone.",
        remedy="To use it again: set Retain, and take the claimRef away; the PV is then Available "
        "to any claim that fits, with its data. To be rid of it: delete the PV, then the image by "
        "hand.",
        heals=Heals(note="a Failed PV stays so until its claimRef is gone"),
        step=LifeStep.RECLAIM,
    ),
    Entry(
        "RBD640",
        "DeletionUnderWay",
        Severity.INFO,
        "The PV is Released, and its image is being deleted.",
        cause="Its claim was deleted, and its reclaim policy is Delete.",
        evidence="Phase, reclaim policy, and how long ago.",
        risk="The data goes within seconds. Retain may still save it.",
        remedy="Nothing to do. To keep the data: set Retain now.",
        heals=Heals(by=_PROVISIONER, within_s=_RETRY_S),
        step=LifeStep.RECLAIM,
    ),
    Entry(
        "RBD641",
        "DeletionHeld",
        Severity.ERROR,
        "The PV is to be deleted, and somebody has its image open.",
        cause="A mapping that was left, another cluster, a backup that runs, or rbd-mirror with "
        "more daemons than ceph-csi is told of.",
        evidence="Phase and reclaim policy, the image's watchers and attachments, and the event "
        "VolumeFailedDelete.",
        risk="The data goes as soon as the last holder does.",
        remedy="See what is said of the holder. To keep the data, set Retain first. Never remove "
        "the PV's finalizers: the image would be left behind.",
        heals=Heals(by=_PROVISIONER, once="nobody has the image open", within_s=_RETRY_S),
        step=LifeStep.RECLAIM,
    ),
    Entry(
        "RBD642",
        "DeletionFails",
        Severity.ERROR,
        "The PV is to be deleted, and deleting its image fails.",
        cause="What the event says: most often the provisioner's secret went with its namespace, "
        "or Ceph does not answer.",
        evidence="The event VolumeFailedDelete, verbatim.",
        risk="None. Without the PV object nobody would delete the image any more.",
        remedy="Repair what the event names. Never remove the PV's finalizers.",
        heals=Heals(by=_PROVISIONER, once="what it names is repaired", within_s=_RETRY_S),
        step=LifeStep.RECLAIM,
    ),
    Entry(
        "RBD643",
        "NobodyDeletes",
        Severity.ERROR,
        "The PV is to be deleted, and no provisioner is at it.",
        cause="The provisioner does not run; or the PV is another's: pv.kubernetes.io/"
        "provisioned-by names a driver that is not here, or it is static and external-provisioner "
        "is older than 3.5.",
        evidence="Phase and reclaim policy, for how long, and no event of a provisioner.",
        risk="Whenever a provisioner comes, it deletes the image.",
        remedy="Have the provisioner run. Or set Retain, save what is needed, and delete image and "
        "PV by hand.",
        heals=Heals(by=_PROVISIONER, once="it runs", within_s=_RETRY_S),
        step=LifeStep.RECLAIM,
    ),
    Entry(
        "RBD644",
        "BoundElsewhere",
        Severity.ERROR,
        "The PV names a claim that is bound to another PV.",
        cause="Two PVs came for one claim, as when a static one and a provisioner raced.",
        evidence="The PV's claimRef, and the claim's volumeName.",
        risk="The PV controller lets go of it: a provisioned one with reclaim policy Delete is "
        "deleted with its image.",
        remedy="If its data is wanted, set Retain at once.",
        heals=Heals(by=_BINDER, within_s=_SYNC_S),
        step=LifeStep.RELEASE,
    ),
)

_FINALIZERS: Final = (
    Entry(
        "RBD613",
        "ClaimProtected",
        Severity.WARNING,
        "The claim is being deleted, and waits for its pods to be gone.",
        cause="The finalizer pvc-protection keeps a claim as long as a pod on a node names it, "
        "even one that has ended.",
        evidence="deletionTimestamp, finalizers, and the pods with the claim.",
        risk="With reclaim policy Delete, the data goes with the last pod. If the finalizer is "
        "removed by hand, a pod goes on writing to a volume that is being deleted.",
        remedy="A deletion cannot be taken back: to keep the data, set the PV to Retain now. To "
        "finish it, delete the pods. New pods with the claim do not start.",
        heals=Heals(by="the PVC protection controller", once="no pod names it"),
        step=LifeStep.RELEASE,
    ),
    Entry(
        "RBD614",
        "VolumeProtected",
        Severity.WARNING,
        "The PV is being deleted before its claim.",
        cause="Somebody deleted a bound PV. The finalizer pv-protection keeps it while its phase "
        "is Bound.",
        evidence="deletionTimestamp, phase, reclaim policy and finalizers.",
        risk="With reclaim policy Delete the image goes when the claim goes; without a "
        "provisioner's finalizer it is left behind.",
        remedy="A deletion cannot be taken back. To keep the data, set Retain now and note the "
        "volumeHandle: a new PV with it can be made later. Never remove the finalizer: the claim "
        "would be Lost.",
        heals=Heals(by="the PV protection controller", once="the claim is gone"),
        step=LifeStep.RECLAIM,
    ),
    Entry(
        "RBD650",
        "ClaimIsSource",
        Severity.WARNING,
        "The claim is being deleted, and a clone or a snapshot of it is still being made.",
        cause="Its finalizer keeps it until whoever reads it is done.",
        evidence="deletionTimestamp and finalizers.",
        risk="If the finalizer is removed by hand, the clone or snapshot fails.",
        remedy="See why the clone's claim is not bound, or the snapshot not ready: does the "
        "snapshot controller run?",
        heals=Heals(by="whoever reads it", once="the clone is bound, or the snapshot ready"),
        step=LifeStep.RELEASE,
    ),
    Entry(
        "RBD651",
        "VolumeHeldByAttachment",
        Severity.WARNING,
        "The PV is being deleted, and is still attached.",
        cause="external-attacher keeps a PV as long as a VolumeAttachment names it.",
        evidence="The finalizer, and the VolumeAttachments of the PV.",
        risk="If the finalizer is removed by hand, the detach fails for ever: it needs the PV.",
        remedy="See why the node does not let go of the volume, or the detach fails.",
        heals=Heals(by="external-attacher", once="the last attachment is gone"),
        step=LifeStep.RECLAIM,
    ),
    Entry(
        "RBD652",
        "HeldByFinalizer",
        Severity.WARNING,
        "A claim or PV is being deleted, and a finalizer holds it that is not Kubernetes' own.",
        cause="A backup program or an operator has put it there, to finish its own work first.",
        evidence="deletionTimestamp and finalizers.",
        risk="If it is removed by hand, that work is not done.",
        remedy="Find out whose it is by its name, and see why that does not finish.",
        heals=Heals(by="whoever has set it"),
        step=LifeStep.RELEASE,
    ),
    Entry(
        "RBD653",
        "FinalizerLeft",
        Severity.ERROR,
        "A claim or PV is being deleted, and a finalizer is left whose reason is gone.",
        cause="The controller that takes it away does not work: kube-controller-manager for "
        "pvc-protection and pv-protection, else external-provisioner or external-attacher.",
        evidence="deletionTimestamp and finalizers, and nothing that would need them.",
        risk="None. A controller that does not work is the trouble, not the finalizer.",
        remedy="Have that controller run again, and look at its log.",
        heals=Heals(by="the finalizer's controller", once="it runs"),
        step=LifeStep.RELEASE,
    ),
    Entry(
        "RBD654",
        "PodHeldByFinalizer",
        Severity.WARNING,
        "A pod has ended, and its object is held by a finalizer.",
        cause="A program has put it there, to finish its own work first.",
        evidence="deletionTimestamp and finalizers, and containers that have all ended.",
        risk="None for the volume. A StatefulSet makes no new pod while the old one's object is "
        "there.",
        remedy="Find out whose finalizer it is by its name, and see why that does not finish.",
        heals=Heals(by="whoever has set it"),
        step=LifeStep.RELEASE,
    ),
)

ENTRIES: Final = (*_RECLAIMING, *_FINALIZERS)
