"""RBD6xx: how a claim gets its volume, and how both end."""

from __future__ import annotations

from typing import Final

from rbdagent.catalog.entry import Entry
from rbdagent.model import Heals, LifeStep, Severity

_PROVISIONER: Final = "external-provisioner"
_BINDER: Final = "the PV controller"

ENTRIES: Final = (
    Entry(
        "RBD601",
        "StorageClassMissing",
        Severity.ERROR,
        "The claim's storage class does not exist.",
        cause="A typo, a class that was deleted or renamed, or YAML of another cluster.",
        evidence="The claim's storageClassName against every StorageClass.",
        risk="None: there is nothing to hold.",
        remedy="Create the class; or, since a claim's class cannot be changed, delete the claim "
        "and make it anew with one that exists.",
        heals=Heals(by=_BINDER, once="the class exists", within_s=15),
        step=LifeStep.PROVISION,
    ),
    Entry(
        "RBD602",
        "NoVolumeFits",
        Severity.ERROR,
        "No PersistentVolume fits the claim, and nobody makes one.",
        cause="The claim names no storage class (or one without a provisioner), and every PV is "
        "too small, of another class or mode, taken, or not selected.",
        evidence="Each PV against the claim, by the rules of the PV controller; the nearest are "
        "named with what is against them.",
        risk="None: there is nothing to hold.",
        remedy="Make a PV that fits, or make the claim anew with a class that has a provisioner.",
        heals=Heals(by=_BINDER, once="a PV fits", within_s=15),
        step=LifeStep.BIND,
    ),
    Entry(
        "RBD603",
        "WaitsForFirstPod",
        Severity.INFO,
        "The claim has no volume because no pod uses it yet.",
        cause="Its class binds with the first pod (WaitForFirstConsumer).",
        evidence="The class's volumeBindingMode, and no pod with the claim.",
        risk="None.",
        remedy="Nothing to do: start a pod that uses it.",
        heals=None,
        step=LifeStep.PROVISION,
    ),
    Entry(
        "RBD604",
        "FirstPodNotScheduled",
        Severity.ERROR,
        "The claim waits for its first pod to get a node, and the pod gets none.",
        cause="No node has what the pod asks for: resources, taints, affinity, or the topology of "
        "its volumes.",
        evidence="The class's volumeBindingMode and the pod's condition PodScheduled.",
        risk="None: there is nothing to hold.",
        remedy="See what the scheduler says of the pod; the volume follows by itself.",
        heals=Heals(by="the scheduler", once="a node fits the pod"),
        step=LifeStep.SCHEDULE,
    ),
    Entry(
        "RBD605",
        "BeingProvisioned",
        Severity.INFO,
        "The claim's volume is being made.",
        cause="The provisioner was asked less than a minute ago.",
        evidence="The claim's age, and no failure among its events.",
        risk="None.",
        remedy="Wait, and look again.",
        heals=None,
        step=LifeStep.PROVISION,
    ),
    Entry(
        "RBD606",
        "ProvisionerSilent",
        Severity.ERROR,
        "The provisioner was asked for a volume, and says nothing.",
        cause="It does not run, is not installed, watches under another name, or hangs in Ceph.",
        evidence="The class's provisioner, the claim's age and its events.",
        risk="None: there is nothing to hold.",
        remedy="Look whether the provisioner's pods (csi-rbdplugin-provisioner) run, and at the "
        "log of the one that leads.",
        heals=Heals(by=_PROVISIONER, once="it runs"),
        step=LifeStep.PROVISION,
    ),
    Entry(
        "RBD607",
        "ProvisioningFails",
        Severity.ERROR,
        "The provisioner fails to make the volume.",
        cause="What its event says: a missing pool or secret, a wrong clusterID, no rights in "
        "Ceph, a full cluster.",
        evidence="The event ProvisioningFailed, verbatim.",
        risk="None: there is nothing to hold.",
        remedy="Repair what the event names. The provisioner tries again by itself, at most five "
        "minutes apart.",
        heals=Heals(by=_PROVISIONER, once="what it names is repaired", within_s=300),
        step=LifeStep.PROVISION,
    ),
    Entry(
        "RBD608",
        "ProvisionerTooOld",
        Severity.ERROR,
        "The provisioner needs selfLink, which Kubernetes does not give any more.",
        cause="A provisioner built on client libraries before 2020 (rbd-provisioner, old NFS and "
        "EFS provisioners). Kubernetes 1.20 stopped filling metadata.selfLink, 1.24 removed the "
        "way back.",
        evidence="`selfLink was empty` in the claim's event.",
        risk="None for volumes that exist.",
        remedy="Replace the provisioner: ceph-csi (rbd.csi.ceph.com) for RBD, and a class that "
        "names it. The old class's volumes live on.",
        heals=Heals(note="no update of Kubernetes brings selfLink back"),
        step=LifeStep.PROVISION,
    ),
    Entry(
        "RBD609",
        "NamedVolumeMissing",
        Severity.ERROR,
        "The claim asks for a PV by name that does not exist.",
        cause="A typo, a PV that was deleted, or YAML that was restored without its PV.",
        evidence="The claim's volumeName against every PV.",
        risk="None: the claim was never bound.",
        remedy="Make the PV of that name (its image may still be there), or delete the claim and "
        "make it anew without volumeName.",
        heals=Heals(by=_BINDER, once="the PV exists", within_s=15),
        step=LifeStep.BIND,
    ),
    Entry(
        "RBD610",
        "NamedVolumeRefused",
        Severity.ERROR,
        "The claim asks for a PV by name, and cannot have it.",
        cause="The PV belongs to another claim, or is not what the claim asks for.",
        evidence="The PV's claimRef, size, modes and class against the claim's.",
        risk="None: nothing is bound.",
        remedy="Name another PV, or free this one first. A claim's volumeName cannot be changed: "
        "delete the claim and make it anew.",
        heals=Heals(by=_BINDER, once="the PV is free and fits", within_s=15),
        step=LifeStep.BIND,
    ),
    Entry(
        "RBD611",
        "VolumeReserved",
        Severity.WARNING,
        "The PV is kept for a claim that does not take it.",
        cause="Somebody wrote a claimRef into the PV; the claim was never made, or does not fit.",
        evidence="Phase Available with a claimRef.",
        risk="None.",
        remedy="Make the claim as the PV needs it, or take the claimRef out of the PV.",
        heals=Heals(by=_BINDER, once="a claim of that name fits", within_s=15),
        step=LifeStep.BIND,
    ),
    Entry(
        "RBD612",
        "ReclaimFailed",
        Severity.ERROR,
        "The PV is Failed: it could not be reclaimed.",
        cause="Deleting failed for good: no plugin deletes this kind of volume, or the recycler "
        "gave up.",
        evidence="Phase Failed and the PV's status.message.",
        risk="Deleting the PV object leaves the image behind.",
        remedy="Repair what the message names; or set Retain, save what is needed, and delete "
        "image and PV by hand.",
        heals=Heals(note="a Failed PV is not tried again"),
        step=LifeStep.RECLAIM,
    ),
    Entry(
        "RBD613",
        "ClaimProtected",
        Severity.WARNING,
        "The claim is being deleted, and waits for what uses it.",
        cause="The finalizer pvc-protection keeps a claim as long as a pod uses it.",
        evidence="deletionTimestamp, finalizers, and the pods with the claim.",
        risk="With reclaim policy Delete, the data goes when the last pod ends.",
        remedy="To delete it: end the pods. A deletion cannot be taken back: to keep the data, set "
        "the PV to Retain now.",
        heals=Heals(by="the PVC protection controller", once="no pod uses it"),
        step=LifeStep.RELEASE,
    ),
    Entry(
        "RBD614",
        "VolumeProtected",
        Severity.WARNING,
        "The PV is being deleted, and waits for what uses it.",
        cause="The finalizer pv-protection keeps a PV that is bound; others belong to the "
        "provisioner and the attacher.",
        evidence="deletionTimestamp, phase and finalizers.",
        risk="With reclaim policy Delete, the image goes with it.",
        remedy="To keep the data, set the PV to Retain now. Never remove a finalizer by hand.",
        heals=Heals(by="the PV protection controller", once="the claim is gone"),
        step=LifeStep.RECLAIM,
    ),
)
