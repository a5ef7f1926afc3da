"""RBD71x: attach and detach, from the API objects; RBD72x: pods and nodes that keep a volume."""

from __future__ import annotations

from typing import Final

from rbdagent.catalog.entry import Entry
from rbdagent.model import LifecycleStep, Recovery, Severity

_CONTROLLER: Final = "the attach/detach controller"
_ATTACHER: Final = "external-attacher"

ENTRIES: Final = (
    Entry(
        "RBD711",
        "AttachNotBegun",
        Severity.ERROR,
        "The pod has a node, but no VolumeAttachment of its volume to that node exists.",
        cause="kube-controller-manager is not running, its cached state is stale, or kubelet on "
        "that node is configured to attach volumes without the controller, which is not possible "
        "for CSI volumes.",
        evidence="For three minutes there has been no VolumeAttachment of the volume to the pod's "
        "node, and none to another node that would explain it. The driver does attach other "
        "volumes.",
        risk="None: the pod has not started.",
        remedy="Check that kube-controller-manager is running and is the leader. If it is, restart "
        "it: it then rebuilds its cached state.",
        recovery=Recovery(actor=_CONTROLLER, condition="it is running"),
        step=LifecycleStep.ATTACH,
    ),
    Entry(
        "RBD712",
        "AttachNotPickedUp",
        Severity.ERROR,
        "The VolumeAttachment exists, but external-attacher does not respond to it.",
        cause="external-attacher is not running or is not the leader. With ceph-csi it is a "
        "container of csi-rbdplugin-provisioner. Or its call to the driver's controller hangs.",
        evidence="attached has been false for more than a minute, and there is no attachError.",
        risk="None: the pod has not started.",
        remedy="Restore the pods that have the container csi-attacher.",
        recovery=Recovery(actor=_ATTACHER, condition="it is running"),
        step=LifecycleStep.ATTACH,
    ),
    Entry(
        "RBD713",
        "DetachNotPickedUp",
        Severity.ERROR,
        "The VolumeAttachment is being deleted, but its finalizer stays and no error is reported.",
        cause="external-attacher is not running (with ceph-csi it is a container of "
        "csi-rbdplugin-provisioner), or another component has put a finalizer on the "
        "VolumeAttachment.",
        evidence="deletionTimestamp is more than two minutes old, finalizers are set, and there is "
        "no detachError.",
        risk="After a detach has timed out, the controller no longer counts this attachment. It "
        "then attaches the volume to the next node, and only ceph-csi's check of the watchers "
        "prevents two writers.",
        remedy="Restore the pods that have the container csi-attacher. Never remove the finalizer "
        "by hand: the mapping would stay on the node, and no component would know of it.",
        recovery=Recovery(actor=_ATTACHER, condition="it is running"),
        step=LifecycleStep.DETACH,
    ),
    Entry(
        "RBD714",
        "BeingDetached",
        Severity.INFO,
        "The volume is being detached.",
        cause="Its VolumeAttachment was deleted less than two minutes ago.",
        evidence="deletionTimestamp is set, and there is no detachError.",
        risk="None.",
        remedy="Wait, then run the command again.",
        recovery=Recovery(actor=_ATTACHER, within_s=120),
    ),
    Entry(
        "RBD715",
        "AttachmentIdle",
        Severity.ERROR,
        "The volume is attached to a node that no longer needs it.",
        cause="The attach/detach controller is not running, or its cached state is stale. Normally "
        "it detaches within a minute.",
        evidence="A VolumeAttachment that is not being deleted. No pod on that node uses the "
        "volume. The node is Ready and does not list the volume in volumesInUse.",
        risk="The next pod gets a Multi-Attach error. The node may still have a mapping that "
        "kubelet has forgotten.",
        remedy="Check that node first: if the image is mapped there, the mapping must be removed. "
        "If it is not mapped, restart kube-controller-manager: it then rebuilds its cached state.",
        recovery=Recovery(
            actor=_CONTROLLER,
            within_s=60,
            note="if its cached state is stale, only a restart of kube-controller-manager helps",
        ),
        step=LifecycleStep.DETACH,
    ),
    Entry(
        "RBD716",
        "AttachmentOfGoneVolume",
        Severity.WARNING,
        "A VolumeAttachment names a PV that does not exist.",
        cause="The PV was removed by force, or its finalizers were removed, while it was attached.",
        evidence="No PV has the name that the VolumeAttachment contains.",
        risk="The image may still be mapped on that node, and no object shows it.",
        remedy="Check Ceph for a watcher from that node, and check the node itself. Once nothing "
        "there has the image, delete the VolumeAttachment with a plain kubectl delete: the "
        "controller itself would do the same.",
        recovery=Recovery(
            note="after its next restart, kube-controller-manager skips an attachment without a PV"
        ),
        step=LifecycleStep.DETACH,
    ),
    Entry(
        "RBD717",
        "TwoAttachments",
        Severity.WARNING,
        "A volume for one node is attached to two nodes: the controller does not prevent it.",
        cause="A detach failed or timed out (Kubernetes 1.29 and later no longer count such an "
        "attachment), a detach was forced, or two PVs refer to one volume.",
        evidence="Two VolumeAttachments of a volume that is neither ReadWriteMany nor "
        "ReadOnlyMany.",
        risk="Only ceph-csi's check of the watchers still prevents two writers.",
        remedy="Repair the detach from the node that no longer needs the volume. Until then, do "
        "nothing that removes a watch: no blocklist entry, no forced unmap.",
        recovery=Recovery(
            actor=_ATTACHER, condition="the older attachment can be detached", within_s=300
        ),
        step=LifecycleStep.DETACH,
    ),
    Entry(
        "RBD718",
        "KubeletDoesNotTakeIt",
        Severity.ERROR,
        "The volume is attached to the pod's node, but kubelet there does not start to mount it.",
        cause="kubelet hangs, or cannot update the status of its Node. kubelet mounts a volume "
        "only after it has listed it in volumesInUse, which takes ten seconds.",
        evidence="attached has been true for more than two minutes, the node's volumesInUse does "
        "not list the volume, and kubelet has reported no event.",
        risk="None: the pod has not started.",
        remedy="Check kubelet's log on that node, and whether kubelet reaches the API server. Do "
        "not restart kubelet while an unmount fails there: it would forget that volume.",
        recovery=Recovery(actor="kubelet", condition="it works again", within_s=10),
        step=LifecycleStep.STAGE,
    ),
    Entry(
        "RBD719",
        "ReplicasShareVolume",
        Severity.ERROR,
        "Two replicas of one controller use one claim, and the volume is for one node only.",
        cause="replicas > 1 with a ReadWriteOnce claim in the pod template. This is not a rolling "
        "update, and no update strategy helps.",
        evidence="Both pods belong to the same ReplicaSet or StatefulSet, and use the same claim.",
        risk="None for the data: the waiting pod does not start. Scaling down a StatefulSet whose "
        "persistentVolumeClaimRetentionPolicy has whenScaled: Delete deletes claims.",
        remedy="Run one replica; or use a StatefulSet with volumeClaimTemplates, which creates a "
        "separate volume for each replica; or use a volume for many nodes (CephFS). Check a "
        "StatefulSet's persistentVolumeClaimRetentionPolicy before scaling it down.",
        recovery=Recovery(
            actor=_CONTROLLER, condition="one of the two pods has ended", within_s=122
        ),
        step=LifecycleStep.ATTACH,
    ),
    Entry(
        "RBD721",
        "PodEnding",
        Severity.INFO,
        "A pod with the volume is terminating, and its time limit is not over yet.",
        cause="The pod was deleted. Its grace period, plus one minute to unmount, is not over.",
        evidence="deletionTimestamp, which is the time of the request plus the grace period.",
        risk="None.",
        remedy="Wait, then run the command again. Never delete the pod by force.",
        recovery=Recovery(actor="kubelet", within_s=60),
    ),
    Entry(
        "RBD722",
        "PodDoesNotEnd",
        Severity.ERROR,
        "A pod with the volume is past its grace period, and its containers are still running.",
        cause="A process is in uninterruptible sleep, usually because its I/O to Ceph hangs; or "
        "the container runtime does not respond.",
        evidence="deletionTimestamp is one minute ago or more, a container is running, and the "
        "node is Ready.",
        risk="A force delete removes only the API object: the process continues, and may write.",
        remedy="Check Ceph first (`ceph health detail`), then the process on that node. If Ceph is "
        "healthy and the process does not end, reboot the node. Never delete the pod by force "
        "before that.",
        recovery=Recovery(
            actor="kubelet", condition="the pod's processes have ended", within_s=122
        ),
        step=LifecycleStep.UNPUBLISH,
    ),
    Entry(
        "RBD724",
        "UnmountFails",
        Severity.ERROR,
        "No container on that node uses the volume any more, but kubelet has not released it.",
        cause="NodeUnpublish or NodeUnstage fails there: something keeps the mount or the device "
        "open, or the CSI driver fails or is not running. No event reports it.",
        evidence="The node is Ready and still lists the volume in volumesInUse; or the pod has "
        "ended, and its object still exists and has no finalizer.",
        risk="A Ready node is never detached by force: the problem lasts as long as its cause.",
        remedy="Run rbdagent on that node: it names what keeps the volume there. The error itself "
        "is in the logs of kubelet and of the CSI plugin on that node.",
        recovery=Recovery(
            actor="kubelet",
            condition="it is running, the CSI driver responds there, "
            "and nothing keeps the volume open",
            within_s=133,
        ),
        step=LifecycleStep.UNSTAGE,
    ),
    Entry(
        "RBD725",
        "PodOnLostNode",
        Severity.ERROR,
        "A pod is stuck Terminating because kubelet on its node is not reporting.",
        cause="The node is down or disconnected. Only its kubelet can report that the containers "
        "have ended. Until then the controller counts them as running.",
        evidence="deletionTimestamp is one minute ago or more, and the Node is not Ready.",
        risk="The machine may still run and write. A force delete of the pod starts the six "
        "minutes of the forced detach, whether the machine is off or not.",
        remedy="Bring the node back. If it does not come back, check its watch (`rbd status`): "
        "while the watch is alive, the machine writes. Power the machine off, and only then set "
        "the out-of-service taint: the pod and its attachments are removed within 20 s. Remove "
        "the taint when the node is back.",
        recovery=Recovery(actor="its kubelet", condition="the node is back"),
        step=LifecycleStep.UNPUBLISH,
    ),
    Entry(
        "RBD726",
        "OutOfServiceNodeAlive",
        Severity.CRITICAL,
        "A node is Ready and has the out-of-service taint.",
        cause="The taint was set on a node that was not off, or was not removed after the node "
        "came back.",
        evidence="The taint, and the Node's condition Ready. The controller acts on the taint on a "
        "Ready node too, whatever the effect of the taint is.",
        risk="Every volume whose pod leaves that node is detached without waiting for its "
        "unmount: the next node gets the volume while this node still writes.",
        remedy="If the machine was off at any time since the taint was set, remove the taint. If "
        "not: stop the pods with volumes there and reboot the machine first.",
        recovery=Recovery(note="no component removes the taint"),
        step=LifecycleStep.UNPUBLISH,
    ),
)
