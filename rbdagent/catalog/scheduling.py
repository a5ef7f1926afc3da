"""RBD70x: pods that get no node for their volume, or share a volume that allows one pod."""

from __future__ import annotations

from typing import Final

from rbdagent.catalog.entry import Entry
from rbdagent.model import LifecycleStep, Recovery, Severity

_SCHEDULER: Final = "the scheduler"

ENTRIES: Final = (
    Entry(
        "RBD701",
        "PodClaimNotReady",
        Severity.ERROR,
        "A claim that the pod names is not bound, is being deleted, or does not exist.",
        cause="The claim is Pending or Lost, the claim was deleted, or the pod's YAML names "
        "another claim. It may be a different claim than the one that was asked about.",
        evidence="The message of the scheduler or kubelet, and the pod's claims.",
        risk="None: the pod has not started.",
        remedy="Run `rbdagent diagnose` for that claim: it reports why the claim is not ready.",
        recovery=Recovery(
            actor="the scheduler and kubelet", condition="the claim is bound", within_s=122
        ),
        step=LifecycleStep.SCHEDULE,
    ),
    Entry(
        "RBD702",
        "VolumeTiedToOtherNodes",
        Severity.ERROR,
        "The volume may be used on certain nodes only, and the pod can run on none of them.",
        cause="The PV has a node affinity: the topology it was provisioned for, or an affinity "
        "that was set by hand. No node has these labels (any more), the pod may not run on a node "
        "that has them, or spec.nodeName put the pod on another node.",
        evidence="The PV's nodeAffinity compared with the labels of every Node, and the message "
        "of the scheduler or kubelet.",
        risk="None: the pod has not started.",
        remedy="Restore the labels on a node, or let the pod run on the nodes that have them. "
        "The affinity of a PV cannot be changed: to remove it, set the PV to Retain and create "
        "the PV again without it.",
        recovery=Recovery(actor=_SCHEDULER, condition="a node with these labels can take the pod"),
        step=LifecycleStep.SCHEDULE,
    ),
    Entry(
        "RBD703",
        "VolumeLimitReached",
        Severity.ERROR,
        "Every node that could run the pod has as many volumes as its driver allows.",
        cause="The CSI node plugin reports a limit (ceph-csi: --maxvolumespernode, 0 means no "
        "limit). Attachments of pods that are gone count as well.",
        evidence="The message of the scheduler or attacher; the attached volumes in the status "
        "of each Node compared with the limit in its CSINode.",
        risk="None: the pod has not started.",
        remedy="Look for attachments that no pod needs, add a node, or raise the driver's limit.",
        recovery=Recovery(
            actor=_SCHEDULER, condition="a volume was detached from one of these nodes"
        ),
        step=LifecycleStep.SCHEDULE,
    ),
    Entry(
        "RBD704",
        "OncePodInUse",
        Severity.ERROR,
        "The volume allows one pod at a time, and another pod uses it.",
        cause="The access mode is ReadWriteOncePod: a second pod waits even on the same node. A "
        "rolling update with maxSurge > 0 waits for itself.",
        evidence="The PV's access modes, both pods, and the message of the scheduler or kubelet.",
        risk="None for the data: the wait protects it.",
        remedy="End the other pod. For a Deployment, set the strategy to Recreate.",
        recovery=Recovery(
            actor="the scheduler and kubelet", condition="the other pod has ended", within_s=122
        ),
        step=LifecycleStep.SCHEDULE,
    ),
    Entry(
        "RBD705",
        "EphemeralClaimNameTaken",
        Severity.ERROR,
        "The pod's ephemeral volume gets no claim: another claim already has its name.",
        cause="The claim of a generic ephemeral volume has the name POD-VOLUME. A claim with "
        "that name exists and was not created for this pod: it belongs to an older pod, or was "
        "created separately. Shortly after a StatefulSet has created its pod again, it may be the "
        "claim of the previous pod.",
        evidence="`pod is not owner` in the pod's event or condition.",
        risk="Kubernetes refuses the claim so that the pod does not write into the volume of "
        "another owner.",
        remedy="Rename the pod or its volume. Or, if nothing needs that claim: set its PV to "
        "Retain, and delete the claim.",
        recovery=Recovery(note="a claim cannot be renamed"),
        step=LifecycleStep.PROVISION,
    ),
    Entry(
        "RBD706",
        "NotScheduledForOtherReasons",
        Severity.INFO,
        "The scheduler finds no node for the pod, and its message does not name a volume.",
        cause="Resources, taints, affinity of the pod itself, or a scheduling gate.",
        evidence="The pod's condition PodScheduled.",
        risk="None.",
        remedy="Read the scheduler's message for the pod. Its volumes are not the cause.",
        recovery=None,
        step=LifecycleStep.SCHEDULE,
    ),
)
