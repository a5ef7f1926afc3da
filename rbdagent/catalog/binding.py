"""RBD403, RBD404, RBD60x to RBD63x: claims that have no volume yet, and claims that lost it."""

from __future__ import annotations

from typing import Final

from rbdagent.catalog.entry import Entry
from rbdagent.model import LifecycleStep, Recovery, Severity

_PROVISIONER: Final = "external-provisioner"
_BINDER: Final = "the PV controller"
_SYNC_S: Final = 15
_RETRY_S: Final = 300
_NO_VOLUME: Final = "None: the claim has no volume that a client could hold."

_PENDING: Final = (
    Entry(
        "RBD403",
        "ClaimUnbound",
        Severity.ERROR,
        "The claim is not bound, and the reason was not observed.",
        cause="No PV fits, the storage class does not exist, its provisioner fails, the class "
        "waits for the first pod, or the PV is bound to another claim.",
        evidence="The claim's phase and events.",
        risk=_NO_VOLUME,
        remedy="Run `rbdagent diagnose`, which also reads the storage classes and PVs; or read "
        "the claim's events.",
        recovery=Recovery(actor=_BINDER, condition="a PV fits or is provisioned"),
        step=LifecycleStep.BIND,
    ),
    Entry(
        "RBD601",
        "StorageClassMissing",
        Severity.ERROR,
        "The claim's storage class does not exist.",
        cause="The name is misspelled, the class was deleted or renamed, or the YAML comes from "
        "another cluster.",
        evidence="The claim's storageClassName compared with every StorageClass. A claim can "
        "bind to a PV of a class that does not exist, but no such PV fits.",
        risk=_NO_VOLUME,
        remedy="Create a storage class with that name, or create a PV of that class. A claim's "
        "class cannot be changed. The alternative is to delete the claim, which has no volume "
        "yet, and to create it again with a class that exists.",
        recovery=Recovery(actor=_BINDER, condition="the class exists", within_s=_SYNC_S),
        step=LifecycleStep.PROVISION,
    ),
    Entry(
        "RBD602",
        "NoVolumeFits",
        Severity.ERROR,
        "No PersistentVolume fits the claim, and no provisioner creates one.",
        cause="The claim requests no storage class, or one without a provisioner. Every PV is "
        "too small, has another class or mode, is already claimed, or does not match the claim's "
        "selector.",
        evidence="Each PV compared with the claim, by the rules of the PV controller. The "
        "closest PVs are listed with the reasons why they do not fit. Kubernetes reports none of "
        "these reasons.",
        risk=_NO_VOLUME,
        remedy="Create a PV that fits, or change the closest one: a PV's class, capacity, access "
        "modes and labels can be changed, its volumeMode cannot. Or delete the claim, which has "
        "no volume yet, and create it again with a class that has a provisioner.",
        recovery=Recovery(actor=_BINDER, condition="a PV fits", within_s=_SYNC_S),
        step=LifecycleStep.BIND,
    ),
    Entry(
        "RBD603",
        "WaitsForFirstPod",
        Severity.INFO,
        "The claim has no volume because no pod uses it yet.",
        cause="Its storage class binds a claim only when the first pod uses it "
        "(WaitForFirstConsumer).",
        evidence="The class's volumeBindingMode, and no pod that uses the claim.",
        risk="None.",
        remedy="No action is needed. To get a volume, start a pod that uses the claim.",
        recovery=None,
        step=LifecycleStep.PROVISION,
    ),
    Entry(
        "RBD604",
        "FirstPodNotScheduled",
        Severity.ERROR,
        "The claim waits for its first pod, and the scheduler finds no node for that pod.",
        cause="No node meets the pod's requirements: resources, taints, affinity, or the "
        "topology of its volumes. The claim is not the cause.",
        evidence="The class's volumeBindingMode and the pod's condition PodScheduled.",
        risk=_NO_VOLUME,
        remedy="Read the scheduler's message for the pod. When the pod has a node, the claim "
        "gets its volume automatically.",
        recovery=Recovery(actor="the scheduler", condition="a node fits the pod"),
        step=LifecycleStep.SCHEDULE,
    ),
    Entry(
        "RBD605",
        "BeingProvisioned",
        Severity.INFO,
        "The claim's volume is being provisioned.",
        cause="The provisioner was asked less than a minute ago, or is still working: clones and "
        "restores take minutes.",
        evidence="The claim's age, and no failure among its events.",
        risk="None.",
        remedy="Wait, then run the command again.",
        recovery=None,
        step=LifecycleStep.PROVISION,
    ),
    Entry(
        "RBD606",
        "ProvisionerSilent",
        Severity.ERROR,
        "The provisioner was asked for a volume and has reported nothing.",
        cause="The provisioner runs under another name than the class states (--drivername), may "
        "not watch claims, waits for its plugin's socket, or is a version that needs selfLink. It "
        "reports each of these in its log only.",
        evidence="The claim's age, and no event from the provisioner on it within fifteen "
        "minutes; the provisioner's lease and pods, if they were found.",
        risk=_NO_VOLUME,
        remedy="Read the log of the leading provisioner (container csi-provisioner). Restarting "
        "it does no harm: another one becomes the leader within 15 s.",
        recovery=Recovery(actor=_PROVISIONER, condition="it runs under that name"),
        step=LifecycleStep.PROVISION,
    ),
    Entry(
        "RBD607",
        "ProvisioningFails",
        Severity.ERROR,
        "The provisioner fails to create the volume.",
        cause="The cause is in its event: a missing pool or secret, a wrong clusterID or key, or "
        "monitors that cannot be reached.",
        evidence="The event ProvisioningFailed, verbatim.",
        risk="None for data. Delete the claim only while the provisioner runs: it keeps a call "
        "with an unknown result in memory only, and a restart would leak that image.",
        remedy="Fix what the event names. The provisioner retries automatically. Only a restart "
        "of the provisioner makes it retry at once.",
        recovery=Recovery(
            actor=_PROVISIONER, condition="the cause in its event is fixed", within_s=_RETRY_S
        ),
        step=LifecycleStep.PROVISION,
    ),
    Entry(
        "RBD608",
        "ProvisionerTooOld",
        Severity.ERROR,
        "The provisioner needs selfLink, which Kubernetes no longer sets.",
        cause="The provisioner was built with client libraries from before 2020: csi-provisioner "
        "before 1.4, and every provisioner of external-storage (rbd-provisioner, "
        "nfs-client-provisioner). Kubernetes 1.20 stopped setting metadata.selfLink, and 1.24 "
        "removed the option to turn it on again.",
        evidence="The image of the provisioner's pod. Its error (`selfLink was empty, can't make "
        "reference`) is in its log: the event that would report the error cannot be created "
        "either.",
        risk="None for existing volumes.",
        remedy="Replace the provisioner: with csi-provisioner 1.4 or newer; for NFS with "
        "nfs-subdir-external-provisioner 4.0 or newer; for RBD with ceph-csi (rbd.csi.ceph.com) "
        "and a class that names it. The volumes of the old class stay as they are.",
        recovery=Recovery(note="no update of Kubernetes restores selfLink"),
        step=LifecycleStep.PROVISION,
    ),
    Entry(
        "RBD609",
        "NamedVolumeMissing",
        Severity.ERROR,
        "The claim requests a PV by name, and that PV does not exist.",
        cause="The name is misspelled, the PV was deleted, or YAML was restored without its PV.",
        evidence="The claim's volumeName compared with the PVs. Kubernetes records no event.",
        risk="None: the claim was never bound.",
        remedy="Create a PV with that name (its image may still exist), with no claimRef or with "
        "one that names this claim. Or delete the claim, which has no volume yet, and create it "
        "again without volumeName.",
        recovery=Recovery(actor=_BINDER, condition="the PV exists", within_s=_SYNC_S),
        step=LifecycleStep.BIND,
    ),
    Entry(
        "RBD610",
        "NamedVolumeRefused",
        Severity.ERROR,
        "The claim requests a PV by name, and that PV does not meet its requirements.",
        cause="The PV has another size, class, access mode, volumeMode or "
        "volumeAttributesClassName. Often a claim without a class has received the default class "
        "in the meantime.",
        evidence="The PV compared with the claim, and the event VolumeMismatch.",
        risk="None: nothing is bound.",
        remedy="Change the PV: its class, capacity and access modes can be changed. Its "
        "volumeMode cannot be changed, and neither can a claim's volumeName: delete the claim, "
        "which has no volume yet, and create it again.",
        recovery=Recovery(
            actor=_BINDER, condition="the PV meets the claim's requirements", within_s=_SYNC_S
        ),
        step=LifecycleStep.BIND,
    ),
    Entry(
        "RBD615",
        "ClaimWithoutClass",
        Severity.ERROR,
        "The claim names no storage class, no class is the default, and no PV fits.",
        cause="storageClassName is not set, and no class is marked as the default. Or a class "
        "became the default later, on Kubernetes before 1.26.",
        evidence="The claim, the annotations of the storage classes, and each PV compared with "
        "the claim.",
        risk=_NO_VOLUME,
        remedy="Set the claim's class: Kubernetes allows this once, while no class is set. Or "
        "mark a class as the default: every claim without a class then gets it.",
        recovery=Recovery(
            actor=_BINDER, condition="a class is marked as the default", within_s=_SYNC_S
        ),
        step=LifecycleStep.PROVISION,
    ),
    Entry(
        "RBD616",
        "PluginRemoved",
        Severity.ERROR,
        "The claim's storage class names a plugin that Kubernetes has removed.",
        cause="Kubernetes removed its in-tree plugins; kubernetes.io/rbd with 1.31.",
        evidence="The class's provisioner and the version of the API server, or the event `no "
        "volume plugin matched`.",
        risk="None for existing volumes, provided that they were migrated to CSI.",
        remedy="Delete the class and create it again with the same name, with provisioner "
        "rbd.csi.ceph.com and its parameters: pending claims then get their volumes. Or use "
        "another class in a new claim.",
        recovery=Recovery(note="Kubernetes does not bring the plugin back"),
        step=LifecycleStep.PROVISION,
    ),
    Entry(
        "RBD617",
        "ProvisionerMissing",
        Severity.ERROR,
        "The cluster has no provisioner with the name that the storage class states.",
        cause="The driver was never installed, or has another name: Rook puts its operator's "
        "namespace in front of the name (rook-ceph.rbd.csi.ceph.com).",
        evidence="No CSIDriver and no lease with that name, and no pod that is known to serve it.",
        risk=_NO_VOLUME,
        remedy="Install the driver, or create the class again with the name of the installed "
        "driver.",
        recovery=Recovery(actor=_PROVISIONER, condition="the driver is installed"),
        step=LifecycleStep.PROVISION,
    ),
    Entry(
        "RBD618",
        "ProvisionerDown",
        Severity.ERROR,
        "The provisioner is not running.",
        cause="Its pods, or the node that they are on, are gone or not ready.",
        evidence="Its lease, which it renews every few seconds, and its pods.",
        risk=_NO_VOLUME,
        remedy="Get its pods running again (with ceph-csi: the Deployment "
        "csi-rbdplugin-provisioner).",
        recovery=Recovery(actor=_PROVISIONER, condition="it runs"),
        step=LifecycleStep.PROVISION,
    ),
    Entry(
        "RBD619",
        "ProvisioningHangs",
        Severity.ERROR,
        "The provisioner has started to create the volume, and its call to Ceph does not return.",
        cause="Ceph does not answer it: no monitor can be reached, the cluster is down, or a "
        "pool has inactive placement groups.",
        evidence="The event: DeadlineExceeded, then `an operation with the given Volume ID ... "
        "already exists`.",
        risk="None. The call continues inside the plugin. If the claim is deleted now, its image "
        "may be left behind.",
        remedy="Make sure that Ceph answers the plugin's pod. The call then ends, and no other "
        "action is needed.",
        recovery=Recovery(actor=_PROVISIONER, condition="Ceph answers it", within_s=_RETRY_S),
        step=LifecycleStep.PROVISION,
    ),
    Entry(
        "RBD620",
        "SelectorNotSupported",
        Severity.ERROR,
        "The claim selects its PV by labels, but its class provisions volumes. The two exclude "
        "each other.",
        cause="spec.selector is for PVs that already exist.",
        evidence="The event: `claim Selector is not supported`.",
        risk=_NO_VOLUME,
        remedy="Create a PV of that class with those labels. Or delete the claim, which has no "
        "volume yet, and create it again without a selector.",
        recovery=Recovery(
            actor=_BINDER, condition="a PV of that class has the labels", within_s=_SYNC_S
        ),
        step=LifecycleStep.PROVISION,
    ),
    Entry(
        "RBD621",
        "ModeNotProvisioned",
        Severity.ERROR,
        "The claim requests a file system that several nodes can write to, and RBD has none.",
        cause="ReadWriteMany with volumeMode Filesystem: two kernels that use one ext4 or xfs "
        "file system at the same time would destroy it.",
        evidence="The event of ceph-csi: `multi node access modes are only supported on rbd "
        "block type volumes`.",
        risk=_NO_VOLUME,
        remedy="Delete the claim, which has no volume yet, and create it again with one of "
        "these: ReadWriteOnce; ReadWriteMany with volumeMode Block, if the program itself "
        "coordinates access to a shared block device; or a class of CephFS for shared files.",
        recovery=Recovery(note="a claim's access modes and volumeMode cannot be changed"),
        step=LifecycleStep.PROVISION,
    ),
    Entry(
        "RBD622",
        "SelectedNodeStuck",
        Severity.ERROR,
        "The volume must be provisioned for a node where this is not possible.",
        cause="The scheduler chose a node (WaitForFirstConsumer). That node was removed, or "
        "never had the driver. The choice stays in the claim, and no other node fits the claim "
        "any more.",
        evidence="The annotation volume.kubernetes.io/selected-node, the nodes, and the drivers "
        "of their CSINodes.",
        risk=_NO_VOLUME,
        remedy="Remove the annotation: the scheduler then chooses a node again. A volume that is "
        "being provisioned for the old node may still be created. For RBD without topology, this "
        "does no harm.",
        recovery=Recovery(note="external-provisioner keeps the choice after every error"),
        step=LifecycleStep.PROVISION,
    ),
    Entry(
        "RBD623",
        "PodPastScheduler",
        Severity.ERROR,
        "The claim waits for the scheduler, but its pod was assigned to a node without the "
        "scheduler.",
        cause="The pod's nodeName was set by hand, or by a tool. With WaitForFirstConsumer, only "
        "the scheduler passes the claim on to its provisioner.",
        evidence="The class's volumeBindingMode, a pod with a node, and no selected-node "
        "annotation on the claim.",
        risk=_NO_VOLUME,
        remedy="Create the pod with a nodeSelector instead of nodeName. Or set the node of the "
        "volume by hand, in place of the scheduler.",
        recovery=Recovery(note="only the scheduler passes the claim on, and it never sees the pod"),
        step=LifecycleStep.PROVISION,
    ),
    Entry(
        "RBD624",
        "NamedVolumeTaken",
        Severity.ERROR,
        "The claim requests a PV by name, and that PV belongs to another claim.",
        cause="The PV belongs to another claim. Or it still names an older claim with the same "
        "name, which was deleted and created again.",
        evidence="The PV's claimRef, with its uid, compared with the claim.",
        risk="If a PV is given to another claim, that claim gets its data as well.",
        remedy="Name another PV. A claim's volumeName cannot be changed: delete the claim, which "
        "has no volume yet, and create it again.",
        recovery=Recovery(
            actor=_BINDER, condition="the PV's claimRef refers to this claim", within_s=_SYNC_S
        ),
        step=LifecycleStep.BIND,
    ),
    Entry(
        "RBD625",
        "KeptVolumeRefused",
        Severity.ERROR,
        "A PV is reserved for the claim and does not fit it.",
        cause="The PV's claimRef names the claim, but its size, access modes, volumeMode or "
        "volumeAttributesClassName do not meet the claim's requirements.",
        evidence="The PV compared with the claim. Kubernetes records an event only if the "
        "volumeMode differs.",
        risk="A class with a provisioner creates another, empty volume for the claim, and the "
        "data seems to be lost.",
        remedy="Change the PV's capacity or access modes. If the claim must get no other PV, "
        'name the PV in the claim (volumeName), or request no class (storageClassName "").',
        recovery=Recovery(
            actor=_BINDER, condition="the PV meets the claim's requirements", within_s=_SYNC_S
        ),
        step=LifecycleStep.BIND,
    ),
    Entry(
        "RBD626",
        "BindingDue",
        Severity.WARNING,
        "The claim and the PV fit each other, and are not bound yet.",
        cause="One of them was changed just now, or the PV controller does not run.",
        evidence="The claim and the PV, compared by the rules of the PV controller.",
        risk="None.",
        remedy="Wait half a minute, then run the command again. If nothing has changed, check "
        "whether kube-controller-manager runs, and read its log.",
        recovery=Recovery(actor=_BINDER, within_s=_SYNC_S),
        step=LifecycleStep.BIND,
    ),
    Entry(
        "RBD627",
        "ControllerDown",
        Severity.ERROR,
        "The PV controller does not work: work that it does within seconds is not done.",
        cause="kube-controller-manager is down, has no leader, or was started without its "
        "controller persistentvolume-binder. Or a webhook rejects its writes.",
        evidence="PVs without a phase, claims that were not handed to their provisioner, and the "
        "lease of kube-controller-manager in kube-system.",
        risk="None at once. Nothing is bound, released, attached or cleaned up in the whole "
        "cluster.",
        remedy="Get kube-controller-manager running again, and read its log.",
        recovery=Recovery(
            actor=_BINDER, condition="kube-controller-manager runs again", within_s=_SYNC_S
        ),
        step=LifecycleStep.BIND,
    ),
)

_LOST: Final = (
    Entry(
        "RBD404",
        "ClaimLost",
        Severity.ERROR,
        "The claim names a PV, but the PV's claimRef does not match the claim.",
        cause="The PV's claimRef contains the uid of another claim. Most often YAML was restored "
        "into a new cluster with the old uid (event ClaimMisbound).",
        evidence="The claim's uid compared with PV.spec.claimRef.uid.",
        risk="With reclaim policy Delete, Kubernetes treats the PV as released: its data is "
        "deleted (an RBD image as soon as no client watches it), in this cluster or the one it "
        "came from.",
        remedy="Set the PV to Retain first. Make sure that no other cluster uses the volume. "
        "Then write the uid of the existing claim into the PV's claimRef. It does not help to "
        "remove the uid: a claim that was bound once accepts only a PV with the claim's own uid, "
        "or without any claimRef.",
        recovery=Recovery(
            actor=_BINDER, condition="the PV's claimRef contains the claim's uid", within_s=_SYNC_S
        ),
        step=LifecycleStep.BIND,
    ),
    Entry(
        "RBD630",
        "ReferenceLost",
        Severity.ERROR,
        "The claim is marked as bound, and names no PV.",
        cause="It was created from YAML with the annotation pv.kubernetes.io/bind-completed and "
        "without volumeName.",
        evidence="The claim's annotation and its empty volumeName.",
        risk="None for the data, whatever the event states.",
        remedy="Set the claim's volumeName again. Or remove the annotation bind-completed: the "
        "claim is then bound like a new one, and a class with a provisioner creates a new, empty "
        "volume for it.",
        recovery=Recovery(actor=_BINDER, condition="volumeName is set again", within_s=_SYNC_S),
        step=LifecycleStep.BIND,
    ),
    Entry(
        "RBD631",
        "VolumeGone",
        Severity.ERROR,
        "The PV of a bound claim no longer exists.",
        cause="The PV was deleted by force (its finalizer was removed), or a backup was restored "
        "without PVs.",
        evidence="The claim's volumeName, and no PV with that name.",
        risk="None yet: the event states `Data on the volume is lost!`, but deleting a PV object "
        "deletes no image.",
        remedy="Create the PV again with the same name: with the same driver and volumeHandle, "
        "reclaim policy Retain, and the uid of the existing claim in its claimRef.",
        recovery=Recovery(
            actor=_BINDER, condition="a PV with that name exists and fits", within_s=_SYNC_S
        ),
        step=LifecycleStep.BIND,
    ),
    Entry(
        "RBD632",
        "ClaimedTwice",
        Severity.ERROR,
        "Two existing claims name the same PV.",
        cause="A claim was copied under another name, with its volumeName and annotations.",
        evidence="The PV's claimRef refers to the other claim, by name and uid.",
        risk="None as long as the PV belongs to the other claim.",
        remedy="Delete this claim, which deletes no image because the PV belongs to the other "
        "claim. Create the claim again with a separate PV: a clone or a snapshot, if it needs the "
        "same data. Never create a second PV of the same image.",
        recovery=Recovery(note="the PV stays bound to the other claim"),
        step=LifecycleStep.BIND,
    ),
    Entry(
        "RBD633",
        "OlderVolumeLeft",
        Severity.INFO,
        "The claim is bound, and another PV still names a claim with the same name.",
        cause="The claim was created again, and a provisioner was faster than the PV that was "
        "kept. Or an older volume was retained on purpose.",
        evidence="The claimRefs of the PVs.",
        risk="The new volume is empty, so the data may seem to be lost.",
        remedy="If the data is in the other PV: set both PVs to Retain, stop the pods, delete "
        "the claim, and create it again with volumeName.",
        recovery=None,
    ),
)

ENTRIES: Final = (*_PENDING, *_LOST)
