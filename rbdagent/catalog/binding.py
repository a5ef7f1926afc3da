"""RBD403, RBD404, RBD60x to RBD63x: how a claim gets its volume, and how it loses it."""

from __future__ import annotations

from typing import Final

from rbdagent.catalog.entry import Entry
from rbdagent.model import Heals, LifeStep, Severity

_PROVISIONER: Final = "external-provisioner"
_BINDER: Final = "the PV controller"
_SYNC_S: Final = 15
_RETRY_S: Final = 300
_NOTHING_HELD: Final = "None: there is nothing to hold."

_PENDING: Final = (
    Entry(
        "RBD403",
        "ClaimUnbound",
        Severity.ERROR,
        "The claim is not bound, and why could not be observed.",
        cause="No matching PV, no StorageClass, a provisioner that fails, a class that waits for "
        "the first pod, or a PV that is bound to another claim.",
        evidence="Phase and events of the claim.",
        risk=_NOTHING_HELD,
        remedy="Ask `rbdagent diagnose`, which looks at classes and PVs as well; or read the "
        "claim's events.",
        heals=Heals(by=_BINDER, once="a volume fits, or is made"),
        step=LifeStep.BIND,
    ),
    Entry(
        "RBD601",
        "StorageClassMissing",
        Severity.ERROR,
        "The claim's storage class does not exist.",
        cause="A typo, a class that was deleted or renamed, or YAML of another cluster.",
        evidence="The claim's storageClassName against every StorageClass. A claim may well be "
        "bound to a PV of a class that does not exist: none fits.",
        risk=_NOTHING_HELD,
        remedy="Create the class under that name; or offer a PV of that class. A claim's class "
        "cannot be changed: the other way is to delete the claim, which has no volume yet, "
        "and to create it again with a class that exists.",
        heals=Heals(by=_BINDER, once="the class exists", within_s=_SYNC_S),
        step=LifeStep.PROVISION,
    ),
    Entry(
        "RBD602",
        "NoVolumeFits",
        Severity.ERROR,
        "No PersistentVolume fits the claim, and nobody makes one.",
        cause="The claim wants no storage class, or one without a provisioner, and every PV is "
        "too small, of another class or mode, taken, or not selected.",
        evidence="Each PV against the claim, by the rules of the PV controller; the nearest are "
        "named with what is against them. Kubernetes itself says nothing of any of them.",
        risk=_NOTHING_HELD,
        remedy="Create a PV that fits, or change the nearest one: class, capacity, access modes "
        "and labels of a PV can be changed, its volumeMode cannot. Or delete the claim, "
        "which has no volume yet, and create it again with a class that has a provisioner.",
        heals=Heals(by=_BINDER, once="a PV fits", within_s=_SYNC_S),
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
        "its volumes. The claim is not the cause.",
        evidence="The class's volumeBindingMode and the pod's condition PodScheduled.",
        risk=_NOTHING_HELD,
        remedy="See what the scheduler says of the pod; the volume follows by itself.",
        heals=Heals(by="the scheduler", once="a node fits the pod"),
        step=LifeStep.SCHEDULE,
    ),
    Entry(
        "RBD605",
        "BeingProvisioned",
        Severity.INFO,
        "The claim's volume is being made.",
        cause="The provisioner was asked less than a minute ago, or is at it: clones and restores "
        "take minutes.",
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
        cause="It has another name than the class says (--drivername), may not watch claims, waits "
        "for its plugin's socket, or is of a version that needs selfLink: all of that it says in "
        "its log alone.",
        evidence="The claim's age, and no event of the provisioner on it within fifteen minutes; "
        "its lease and pods, where these were found.",
        risk=_NOTHING_HELD,
        remedy="Look at the log of the provisioner that leads (container csi-provisioner). "
        "Restarting it does no harm: another one leads within 15 s.",
        heals=Heals(by=_PROVISIONER, once="it runs under that name"),
        step=LifeStep.PROVISION,
    ),
    Entry(
        "RBD607",
        "ProvisioningFails",
        Severity.ERROR,
        "The provisioner fails to make the volume.",
        cause="What its event says: a missing pool or secret, a wrong clusterID or key, monitors "
        "that are not reached.",
        evidence="The event ProvisioningFailed, verbatim.",
        risk="None for data. Delete the claim only while the provisioner runs: it keeps a call "
        "whose end is unknown in memory, and a restart would leak that image.",
        remedy="Repair what the event names. The provisioner tries again by itself; only its "
        "restart makes it try at once.",
        heals=Heals(by=_PROVISIONER, once="what it names is repaired", within_s=_RETRY_S),
        step=LifeStep.PROVISION,
    ),
    Entry(
        "RBD608",
        "ProvisionerTooOld",
        Severity.ERROR,
        "The provisioner needs selfLink, which Kubernetes does not give any more.",
        cause="A provisioner built on client libraries before 2020: csi-provisioner before 1.4, "
        "and every one of external-storage (rbd-provisioner, nfs-client-provisioner). Kubernetes "
        "1.20 stopped filling metadata.selfLink, 1.24 removed the way back.",
        evidence="The image of the provisioner's pod. Its error (`selfLink was empty, can't make "
        "reference`) stands in its log: the event that would tell of it cannot be made either.",
        risk="None for volumes that exist.",
        remedy="Replace it: csi-provisioner 1.4 or newer; for NFS nfs-subdir-external-provisioner "
        "4.0 or newer; for RBD ceph-csi (rbd.csi.ceph.com), and a class that names it. The volumes "
        "of the old class stay as they are.",
        heals=Heals(note="no update of Kubernetes brings selfLink back"),
        step=LifeStep.PROVISION,
    ),
    Entry(
        "RBD609",
        "NamedVolumeMissing",
        Severity.ERROR,
        "The claim asks for a PV by name that does not exist.",
        cause="A typo, a PV that was deleted, or YAML that was restored without its PV.",
        evidence="The claim's volumeName against the PVs. There is no event.",
        risk="None: the claim was never bound.",
        remedy="Create the PV of that name (its image may still exist), with no claimRef or one "
        "that names this claim; or delete the claim, which has no volume yet, and create it"
        " again without volumeName.",
        heals=Heals(by=_BINDER, once="the PV exists", within_s=_SYNC_S),
        step=LifeStep.BIND,
    ),
    Entry(
        "RBD610",
        "NamedVolumeRefused",
        Severity.ERROR,
        "The claim asks for a PV by name, and the PV is not what it asks for.",
        cause="Another size, class, access mode, volumeMode or volumeAttributesClassName; often a "
        "claim without a class was given the default one meanwhile.",
        evidence="The PV against the claim, and the event VolumeMismatch.",
        risk="None: nothing is bound.",
        remedy="Change the PV: its class, capacity and access modes can be changed. Its volumeMode"
        " cannot, nor can a claim's volumeName: delete the claim, which has no volume yet, "
        "and create it again.",
        heals=Heals(by=_BINDER, once="the PV is as the claim asks for", within_s=_SYNC_S),
        step=LifeStep.BIND,
    ),
    Entry(
        "RBD615",
        "ClaimWithoutClass",
        Severity.ERROR,
        "The claim names no storage class, none is the default, and no PV fits.",
        cause="storageClassName was left out, and no class is marked as the default; or a class "
        "became the default later, on Kubernetes before 1.26.",
        evidence="The claim, the classes' annotations, and each PV against the claim.",
        risk=_NOTHING_HELD,
        remedy="Give the claim a class: that is allowed once, from none. Or mark a class as the "
        "default, which every claim without a class then gets.",
        heals=Heals(by=_BINDER, once="a class is made the default", within_s=_SYNC_S),
        step=LifeStep.PROVISION,
    ),
    Entry(
        "RBD616",
        "PluginRemoved",
        Severity.ERROR,
        "The claim's storage class names a plugin that Kubernetes does not have any more.",
        cause="In-tree plugins left Kubernetes; kubernetes.io/rbd with 1.31.",
        evidence="The class's provisioner and the version of the API server, or the event `no "
        "volume plugin matched`.",
        risk="None for volumes that exist, as long as they were migrated to CSI.",
        remedy="Delete the class and make it again under its name, with provisioner "
        "rbd.csi.ceph.com and its parameters: pending claims then get their volumes. Or use "
        "another class, in a new claim.",
        heals=Heals(note="the plugin does not come back"),
        step=LifeStep.PROVISION,
    ),
    Entry(
        "RBD617",
        "ProvisionerMissing",
        Severity.ERROR,
        "Nothing in the cluster goes by the name of the class's provisioner.",
        cause="The driver was never installed, or under another name: Rook calls it by its "
        "operator's namespace (rook-ceph.rbd.csi.ceph.com).",
        evidence="No CSIDriver and no lease of that name, and no pod that is known to be its.",
        risk=_NOTHING_HELD,
        remedy="Install the driver, or make the class anew with the name of the one that is there.",
        heals=Heals(by=_PROVISIONER, once="the driver is installed"),
        step=LifeStep.PROVISION,
    ),
    Entry(
        "RBD618",
        "ProvisionerDown",
        Severity.ERROR,
        "The provisioner does not run.",
        cause="Its pods are gone, not ready, or on a node that is.",
        evidence="Its lease, which it renews every few seconds, and its pods.",
        risk=_NOTHING_HELD,
        remedy="Have its pods run again (with ceph-csi: the deployment csi-rbdplugin-provisioner).",
        heals=Heals(by=_PROVISIONER, once="it runs"),
        step=LifeStep.PROVISION,
    ),
    Entry(
        "RBD619",
        "ProvisioningHangs",
        Severity.ERROR,
        "The provisioner has begun to make the volume, and its call to Ceph does not end.",
        cause="Ceph does not answer it: no monitor is reached, the cluster is down, or a pool has "
        "inactive placement groups.",
        evidence="The event: DeadlineExceeded, then `an operation with the given Volume ID ... "
        "already exists`.",
        risk="None. The call goes on inside the plugin; deleting the claim now may leave its "
        "image.",
        remedy="Get Ceph to answer the plugin's pod. Then it ends by itself.",
        heals=Heals(by=_PROVISIONER, once="Ceph answers it", within_s=_RETRY_S),
        step=LifeStep.PROVISION,
    ),
    Entry(
        "RBD620",
        "SelectorNotSupported",
        Severity.ERROR,
        "The claim selects its PV by labels, and its class makes volumes: that excludes each "
        "other.",
        cause="spec.selector is for PVs that are there already.",
        evidence="The event: `claim Selector is not supported`.",
        risk=_NOTHING_HELD,
        remedy="Create a PV of that class with those labels; or delete the claim, which has no "
        "volume yet, and create it again without a selector.",
        heals=Heals(by=_BINDER, once="a PV of that class carries the labels", within_s=_SYNC_S),
        step=LifeStep.PROVISION,
    ),
    Entry(
        "RBD621",
        "ModeNotProvisioned",
        Severity.ERROR,
        "The claim asks for a file system that several nodes write to, and RBD has none.",
        cause="ReadWriteMany with volumeMode Filesystem: two kernels on one ext4 or xfs would "
        "destroy it.",
        evidence="The event of ceph-csi: `multi node access modes are only supported on rbd "
        "block type volumes`.",
        risk=_NOTHING_HELD,
        remedy="Delete the claim, which has no volume yet, and create it again: ReadWriteOnce; or "
        "ReadWriteMany with volumeMode Block, if the program shares a block device itself; "
        "or a class of CephFS for shared files.",
        heals=Heals(note="a claim's access modes and volumeMode cannot be changed"),
        step=LifeStep.PROVISION,
    ),
    Entry(
        "RBD622",
        "SelectedNodeStuck",
        Severity.ERROR,
        "The volume is to be made for a node where it cannot be made.",
        cause="The scheduler chose a node (WaitForFirstConsumer), and that was removed, or never "
        "had the driver. The choice stays in the claim, and no other node fits it any more.",
        evidence="The annotation volume.kubernetes.io/selected-node, the nodes, and the drivers "
        "of their CSINodes.",
        risk=_NOTHING_HELD,
        remedy="Take the annotation away: the scheduler then chooses anew. A volume that is just "
        "being made for the old node may still come; of RBD without topology that does no harm.",
        heals=Heals(note="external-provisioner keeps the choice whatever goes wrong"),
        step=LifeStep.PROVISION,
    ),
    Entry(
        "RBD623",
        "PodPastScheduler",
        Severity.ERROR,
        "The claim waits for the scheduler, and its pod was put on a node without it.",
        cause="The pod's nodeName was written by hand, or by a tool. With WaitForFirstConsumer "
        "only the scheduler hands the claim on to its provisioner.",
        evidence="The class's volumeBindingMode, a pod with a node, and no selected-node in the "
        "claim.",
        risk=_NOTHING_HELD,
        remedy="Make the pod with a nodeSelector instead of nodeName. Or say in the scheduler's "
        "place for which node the volume is.",
        heals=Heals(note="only the scheduler hands the claim on, and it never sees the pod"),
        step=LifeStep.PROVISION,
    ),
    Entry(
        "RBD624",
        "NamedVolumeTaken",
        Severity.ERROR,
        "The claim asks for a PV by name, and the PV belongs to another claim.",
        cause="The PV is another's; or it still names an older claim of the same name, as after "
        "the claim was deleted and made again.",
        evidence="The PV's claimRef, with its uid, against the claim's.",
        risk="Who gives a PV to another claim gives it the data as well.",
        remedy="Name another PV: a claim's volumeName cannot be changed, so delete the claim, "
        "which has no volume yet, and create it again.",
        heals=Heals(by=_BINDER, once="the PV's claimRef means this claim", within_s=_SYNC_S),
        step=LifeStep.BIND,
    ),
    Entry(
        "RBD625",
        "KeptVolumeRefused",
        Severity.ERROR,
        "A PV is kept for the claim, and does not fit it.",
        cause="The PV's claimRef names the claim, and its size, access modes, volumeMode or "
        "volumeAttributesClassName are not what the claim asks for.",
        evidence="The PV against the claim. There is no event, but for another volumeMode.",
        risk="A class with a provisioner makes the claim another volume, an empty one, and the "
        "data looks lost.",
        remedy="Change the PV's capacity or access modes. A claim that is to get no other PV "
        'names it (volumeName), or wants no class (storageClassName "").',
        heals=Heals(by=_BINDER, once="the PV is as the claim asks for", within_s=_SYNC_S),
        step=LifeStep.BIND,
    ),
    Entry(
        "RBD626",
        "BindingDue",
        Severity.WARNING,
        "Claim and PV fit each other, and are not bound yet.",
        cause="One of them was changed just now; or the PV controller does not run.",
        evidence="Claim and PV, by the rules of the PV controller.",
        risk="None.",
        remedy="Wait half a minute, and look again. If nothing has changed then, look whether "
        "kube-controller-manager runs, and what it logs.",
        heals=Heals(by=_BINDER, within_s=_SYNC_S),
        step=LifeStep.BIND,
    ),
    Entry(
        "RBD627",
        "ControllerDown",
        Severity.ERROR,
        "The PV controller does not work: what it does within seconds is not done.",
        cause="kube-controller-manager is down, has no leader, or was started without its "
        "controller persistentvolume-binder; or a webhook refuses what it writes.",
        evidence="PVs without a phase, claims that nobody handed to their provisioner, and its "
        "lease in kube-system.",
        risk="None at once. Nothing is bound, released, attached or cleaned up in the whole "
        "cluster.",
        remedy="Have kube-controller-manager run again, and look at its log.",
        heals=Heals(by=_BINDER, once="kube-controller-manager runs again", within_s=_SYNC_S),
        step=LifeStep.BIND,
    ),
)

_LOST: Final = (
    Entry(
        "RBD404",
        "ClaimLost",
        Severity.ERROR,
        "The claim and its PV do not agree that they belong together.",
        cause="The PV's claimRef carries another claim's uid: most often YAML was restored into a "
        "new cluster with the old uid (event ClaimMisbound).",
        evidence="The claim's uid against PV.spec.claimRef.uid.",
        risk="With reclaim policy Delete the PV counts as released: its data is deleted (an RBD "
        "image as soon as no client watches it), in this cluster or the one it came from.",
        remedy="Set the PV to Retain first. Make sure that no other cluster uses the volume. Then "
        "write the living claim's uid into the PV's claimRef. To strip the uid does not help: a "
        "claim that was bound once takes only a PV with its own uid, or without any claimRef.",
        heals=Heals(by=_BINDER, once="the PV's claimRef carries the claim's uid", within_s=_SYNC_S),
        step=LifeStep.BIND,
    ),
    Entry(
        "RBD630",
        "ReferenceLost",
        Severity.ERROR,
        "The claim is marked as bound, and names no PV.",
        cause="It was made from YAML with the annotation pv.kubernetes.io/bind-completed and "
        "without volumeName.",
        evidence="The claim's annotation and its empty volumeName.",
        risk="None for the data, whatever the event says.",
        remedy="Set the claim's volumeName again. Or take the annotation bind-completed away: the "
        "claim is then bound like a new one, and a class with a provisioner makes it a new, empty "
        "volume.",
        heals=Heals(by=_BINDER, once="volumeName is set again", within_s=_SYNC_S),
        step=LifeStep.BIND,
    ),
    Entry(
        "RBD631",
        "VolumeGone",
        Severity.ERROR,
        "The PV of a bound claim does not exist any more.",
        cause="It was deleted by force (its finalizer taken away), or a backup was restored "
        "without PVs.",
        evidence="The claim's volumeName, and no PV of that name.",
        risk="None yet: the event says `Data on the volume is lost!`, but deleting a PV object "
        "deletes no image.",
        remedy="Make the PV again under its name: same driver and volumeHandle, Retain, and the "
        "living claim's uid in its claimRef.",
        heals=Heals(by=_BINDER, once="a fitting PV of that name exists", within_s=_SYNC_S),
        step=LifeStep.BIND,
    ),
    Entry(
        "RBD632",
        "ClaimedTwice",
        Severity.ERROR,
        "Two living claims call one PV theirs.",
        cause="A claim was copied with its volumeName and annotations under another name.",
        evidence="The PV's claimRef means the other claim, by name and uid.",
        risk="None as long as the PV stays the other's.",
        remedy="Delete this claim, which deletes no image because the PV belongs to the other "
        "claim, and create it again with a PV of its own: a clone or a snapshot, if it is "
        "to have the same data. Never a second PV of the same image.",
        heals=Heals(note="the PV stays the other claim's"),
        step=LifeStep.BIND,
    ),
    Entry(
        "RBD633",
        "OlderVolumeLeft",
        Severity.INFO,
        "The claim is bound, and another PV is left that names a claim of the same name.",
        cause="The claim was made anew, and a provisioner was faster than the PV that was kept; "
        "or an older volume was retained on purpose.",
        evidence="The PVs' claimRefs.",
        risk="Who finds the new volume empty may think that the data is lost.",
        remedy="If the data is in the other one: set both PVs to Retain, stop the pods, delete the"
        " claim, and create it again with volumeName.",
        heals=None,
    ),
)

ENTRIES: Final = (*_PENDING, *_LOST)
