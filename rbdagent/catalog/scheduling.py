"""RBD70x: why a pod gets no node for its volume, or may not use it beside another pod."""

from __future__ import annotations

from typing import Final

from rbdagent.catalog.entry import Entry
from rbdagent.model import Heals, LifeStep, Severity

_SCHEDULER: Final = "the scheduler"

ENTRIES: Final = (
    Entry(
        "RBD701",
        "PodClaimNotReady",
        Severity.ERROR,
        "A claim that the pod names is not bound, is being deleted, or does not exist.",
        cause="The claim is Pending or Lost, somebody deleted it, or the pod's YAML names another. "
        "It may be another claim than the one that was asked about.",
        evidence="The scheduler's or kubelet's own words, and the pod's claims.",
        risk="None: the pod has not started.",
        remedy="Ask for that claim: what keeps it is said there.",
        heals=Heals(by="the scheduler and kubelet", once="the claim is bound", within_s=122),
        step=LifeStep.SCHEDULE,
    ),
    Entry(
        "RBD702",
        "VolumeTiedToOtherNodes",
        Severity.ERROR,
        "The volume may be used on certain nodes only, and the pod can go to none of them.",
        cause="The PV has a node affinity: the topology it was provisioned for, or what somebody "
        "wrote. No node has these labels (any more), the pod may not go there, or it was put on "
        "another node by spec.nodeName.",
        evidence="The PV's nodeAffinity against the labels of every Node, and the scheduler's or "
        "kubelet's own words.",
        risk="None: the pod has not started.",
        remedy="Give a node the labels back, or let the pod go where they are. The affinity of a "
        "PV cannot be changed: to lift it, set the PV to Retain and make it anew without.",
        heals=Heals(by=_SCHEDULER, once="a node with these labels can take the pod"),
        step=LifeStep.SCHEDULE,
    ),
    Entry(
        "RBD703",
        "VolumeLimitReached",
        Severity.ERROR,
        "Every node that could run the pod has as many volumes as its driver allows.",
        cause="The CSI node plugin announces a limit (ceph-csi: --maxvolumespernode, 0 is none), "
        "and attachments of pods that are gone count as well.",
        evidence="The scheduler's or attacher's own words; what the nodes' status calls attached "
        "against CSINode's limit.",
        risk="None: the pod has not started.",
        remedy="Look for attachments that nobody needs, add a node, or raise the driver's limit.",
        heals=Heals(by=_SCHEDULER, once="a volume has left one of these nodes"),
        step=LifeStep.SCHEDULE,
    ),
    Entry(
        "RBD704",
        "OncePodInUse",
        Severity.ERROR,
        "The volume allows one pod at a time, and another pod uses it.",
        cause="Access mode ReadWriteOncePod: also on one and the same node a second pod waits. A "
        "rolling update with maxSurge > 0 waits for itself.",
        evidence="The PV's access modes, both pods, and the scheduler's or kubelet's own words.",
        risk="None for the data: the wait protects it.",
        remedy="End the other pod; of a Deployment set the strategy to Recreate.",
        heals=Heals(by="the scheduler and kubelet", once="the other pod has ended", within_s=122),
        step=LifeStep.SCHEDULE,
    ),
    Entry(
        "RBD705",
        "EphemeralClaimNameTaken",
        Severity.ERROR,
        "The pod's ephemeral volume gets no claim: another one has its name.",
        cause="A generic ephemeral volume's claim is called POD-VOLUME. One of that name exists "
        "and was not made for this pod: an older pod's, or somebody's own. For a moment after a "
        "StatefulSet has made its pod again it may be that of the pod before.",
        evidence="`pod is not owner` in the pod's event or condition.",
        risk="Kubernetes refuses so that nobody writes into a stranger's volume.",
        remedy="Rename the pod or its volume. Or, if nothing needs that claim: set its PV to "
        "Retain, and delete the claim.",
        heals=Heals(note="nobody renames a claim"),
        step=LifeStep.PROVISION,
    ),
    Entry(
        "RBD706",
        "NotScheduledForOtherReasons",
        Severity.INFO,
        "The scheduler finds no node for the pod, and says nothing of its volumes.",
        cause="Resources, taints, affinity of the pod itself, or a scheduling gate.",
        evidence="The pod's condition PodScheduled.",
        risk="None.",
        remedy="See what the scheduler says of the pod: its volumes are not the cause.",
        heals=None,
        step=LifeStep.SCHEDULE,
    ),
)
