"""RBD71x: attaching and detaching, by the objects; RBD72x: pods and nodes that do not leave."""

from __future__ import annotations

from typing import Final

from rbdagent.catalog.entry import Entry
from rbdagent.model import Heals, LifeStep, Severity

_CONTROLLER: Final = "the attach/detach controller"
_ATTACHER: Final = "external-attacher"

ENTRIES: Final = (
    Entry(
        "RBD711",
        "AttachNotBegun",
        Severity.ERROR,
        "The pod has its node, and nobody has begun to attach its volume there.",
        cause="kube-controller-manager does not run, its books are stale, or the node's kubelet "
        "was told to attach by itself, which CSI volumes cannot.",
        evidence="No VolumeAttachment of the volume to the pod's node for three minutes, and none "
        "to any other node that would explain it; the driver does attach other volumes.",
        risk="None: the pod has not started.",
        remedy="Look whether kube-controller-manager runs and leads. If it does, restart it: it "
        "reads its books anew.",
        heals=Heals(by=_CONTROLLER, once="it runs"),
        step=LifeStep.ATTACH,
    ),
    Entry(
        "RBD712",
        "AttachNotPickedUp",
        Severity.ERROR,
        "The VolumeAttachment is there, and the attacher does not answer it.",
        cause="The external attacher does not run or does not lead; with ceph-csi it is a "
        "container of csi-rbdplugin-provisioner. Or it hangs in the driver's controller.",
        evidence="attached is false and there is no attachError, for longer than a minute.",
        risk="None: the pod has not started.",
        remedy="Bring the pods with the container csi-attacher back.",
        heals=Heals(by=_ATTACHER, once="it runs"),
        step=LifeStep.ATTACH,
    ),
    Entry(
        "RBD713",
        "DetachNotPickedUp",
        Severity.ERROR,
        "The VolumeAttachment is being deleted, and whoever must let it go is silent.",
        cause="The external attacher does not run (with ceph-csi a container of "
        "csi-rbdplugin-provisioner), or somebody else has put a finalizer on it.",
        evidence="deletionTimestamp, finalizers, and no detachError for longer than two minutes.",
        risk="After a detach that timed out the controller no longer counts this attachment: the "
        "next node is attached, and only ceph-csi's look at the watchers keeps two writers apart.",
        remedy="Bring the pods with the container csi-attacher back. Never remove the finalizer "
        "by hand: the mapping would stay without anybody who knows of it.",
        heals=Heals(by=_ATTACHER, once="it runs"),
        step=LifeStep.DETACH,
    ),
    Entry(
        "RBD714",
        "BeingDetached",
        Severity.INFO,
        "The volume is being detached.",
        cause="Its VolumeAttachment was deleted less than two minutes ago.",
        evidence="deletionTimestamp, and no detachError.",
        risk="None.",
        remedy="Wait, and look again.",
        heals=Heals(by=_ATTACHER, within_s=120),
    ),
    Entry(
        "RBD715",
        "AttachmentIdle",
        Severity.ERROR,
        "The volume is attached to a node that no longer wants it.",
        cause="The attach/detach controller does not run, or its books are stale: normally it "
        "detaches within a minute.",
        evidence="A VolumeAttachment that nobody deletes; no pod there, and the node, which is "
        "Ready, does not list the volume in volumesInUse.",
        risk="The next pod gets Multi-Attach. A mapping that kubelet forgot may still be there.",
        remedy="Look on that node first: what is mapped there must go. If nothing is, restart "
        "kube-controller-manager: it reads its books anew.",
        heals=Heals(
            by=_CONTROLLER,
            within_s=60,
            note="if its books are stale, only a restart of kube-controller-manager helps",
        ),
        step=LifeStep.DETACH,
    ),
    Entry(
        "RBD716",
        "AttachmentOfGoneVolume",
        Severity.WARNING,
        "A VolumeAttachment names a PV that does not exist.",
        cause="The PV was removed by force, or with its finalizers taken off, while attached.",
        evidence="The VolumeAttachment's PV against every PV.",
        risk="The image may still be mapped there, and no object tells of it.",
        remedy="Look for its watcher in Ceph and at that node. Once nothing there has it, a plain "
        "kubectl delete of the VolumeAttachment is what the controller itself would do.",
        heals=Heals(
            note="after its next restart kube-controller-manager skips an attachment without a PV"
        ),
        step=LifeStep.DETACH,
    ),
    Entry(
        "RBD717",
        "TwoAttachments",
        Severity.WARNING,
        "A volume for one node is attached to two: the controller's guard is off.",
        cause="A detach failed or timed out (Kubernetes 1.29 and later no longer count such an "
        "attachment), was forced, or two PVs stand for one volume.",
        evidence="Two VolumeAttachments of a volume that is neither ReadWriteMany nor "
        "ReadOnlyMany.",
        risk="Only ceph-csi's look at the watchers still keeps two writers apart.",
        remedy="Repair the detach of the node that no longer needs it. Until then do nothing that "
        "takes a watch away: no blocklist entry, no forced unmap.",
        heals=Heals(by=_ATTACHER, once="the older attachment can be detached", within_s=300),
        step=LifeStep.DETACH,
    ),
    Entry(
        "RBD718",
        "KubeletDoesNotTakeIt",
        Severity.ERROR,
        "The volume is attached to the pod's node, and kubelet there does not begin to mount it.",
        cause="kubelet hangs, or cannot write its Node's status: it mounts only what it has "
        "listed in volumesInUse, which takes it ten seconds.",
        evidence="attached is true for longer than two minutes, the node's volumesInUse lacks the "
        "volume, and kubelet has said nothing.",
        risk="None: the pod has not started.",
        remedy="Look at kubelet's log on that node, and whether it reaches the API server. Do not "
        "restart it while an unmount fails there: it would forget that volume.",
        heals=Heals(by="kubelet", once="it works again", within_s=10),
        step=LifeStep.STAGE,
    ),
    Entry(
        "RBD719",
        "ReplicasShareVolume",
        Severity.ERROR,
        "Two replicas of one controller name one claim, and the volume is for one node only.",
        cause="replicas > 1 with a ReadWriteOnce claim in the pod template: this is no rolling "
        "update, and no strategy helps.",
        evidence="Both pods have the same ReplicaSet or StatefulSet, and the same claim.",
        risk="None for the data: the wait protects it. Scaling down a StatefulSet whose "
        "persistentVolumeClaimRetentionPolicy has whenScaled: Delete deletes claims.",
        remedy="One replica; or a StatefulSet with volumeClaimTemplates, which gives each replica "
        "a volume of its own; or a volume for many (CephFS). Look at a StatefulSet's "
        "persistentVolumeClaimRetentionPolicy before scaling it down.",
        heals=Heals(by=_CONTROLLER, once="one of the two has ended", within_s=122),
        step=LifeStep.ATTACH,
    ),
    Entry(
        "RBD721",
        "PodEnding",
        Severity.INFO,
        "A pod with the volume is ending, and still within its time.",
        cause="It was deleted: its grace period, and then a minute to unmount, are not over.",
        evidence="deletionTimestamp, which is the request and the grace period together.",
        risk="None.",
        remedy="Wait, and look again. Never delete it by force.",
        heals=Heals(by="kubelet", within_s=60),
    ),
    Entry(
        "RBD722",
        "PodDoesNotEnd",
        Severity.ERROR,
        "A pod with the volume is past its grace period, and its containers still run.",
        cause="A process in uninterruptible sleep, most often because its I/O to Ceph hangs; or "
        "the container runtime does not answer.",
        evidence="deletionTimestamp a minute ago or more, a container that runs, and a Ready node.",
        risk="A force delete removes the API object alone: the process goes on, and may write.",
        remedy="Look at Ceph first (`ceph health detail`), then at the process on that node. If "
        "Ceph is well and the process does not end, reboot the node. Never delete the pod by "
        "force before that.",
        heals=Heals(by="kubelet", once="its processes have ended", within_s=122),
        step=LifeStep.UNPUBLISH,
    ),
    Entry(
        "RBD724",
        "UnmountFails",
        Severity.ERROR,
        "No container uses the volume there any more, and kubelet does not let it go.",
        cause="NodeUnpublish or NodeUnstage fails there: something keeps the mount or the device "
        "open, or the CSI driver fails or does not run. No event tells of it.",
        evidence="The node, which is Ready, still lists the volume in volumesInUse, or the pod "
        "has ended and its object stays without a finalizer.",
        risk="A Ready node is never detached by force: it lasts as long as its cause.",
        remedy="Look from that node: rbdagent there names what keeps it. kubelet's and the CSI "
        "plugin's logs there have the error itself.",
        heals=Heals(
            by="kubelet",
            once="it runs, the CSI driver answers there, and nothing keeps the volume open",
            within_s=133,
        ),
        step=LifeStep.UNSTAGE,
    ),
    Entry(
        "RBD725",
        "PodOnLostNode",
        Severity.ERROR,
        "A pod is Terminating on a node whose kubelet is silent: nobody ends it.",
        cause="The node is down or cut off. Only its kubelet can say that the containers have "
        "ended; until then the controller counts them as running.",
        evidence="deletionTimestamp a minute ago or more, and a Node that is not Ready.",
        risk="The machine may still run and write. A force delete of the pod starts the six "
        "minutes of the forced detach, whether the machine is off or not.",
        remedy="Bring the node back. If it stays away: look for its watch (`rbd status`); while "
        "that lives, the machine writes. Power it off, and only then set the out-of-service "
        "taint: the pod and its attachments go within 20 s. Take the taint away when the node is "
        "back.",
        heals=Heals(by="its kubelet", once="the node is back"),
        step=LifeStep.UNPUBLISH,
    ),
    Entry(
        "RBD726",
        "OutOfServiceNodeAlive",
        Severity.CRITICAL,
        "A node is Ready and carries the out-of-service taint.",
        cause="The taint was set on a node that was not off, or was not taken away after its "
        "return.",
        evidence="The taint, and the Node's condition Ready. The controller obeys the taint on a "
        "Ready node too, whatever its effect.",
        risk="Every volume whose pod leaves that node is detached without waiting for its "
        "unmount: the next node gets it while this one still writes.",
        remedy="If the machine was off since the taint was set, take the taint away. If not: stop "
        "the pods with volumes there and reboot it first.",
        heals=Heals(note="nobody takes the taint away"),
        step=LifeStep.UNPUBLISH,
    ),
)
