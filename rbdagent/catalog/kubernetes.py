"""RBD4xx: attaching, and the meaning of events."""

from __future__ import annotations

from typing import Final

from rbdagent.catalog.entry import Entry
from rbdagent.model import LifecycleStep, Recovery, Severity

ENTRIES: Final = (
    Entry(
        "RBD401",
        "MultiAttach",
        Severity.ERROR,
        "The attach/detach controller will not attach the volume: its cached state still lists it "
        "on another node.",
        cause="The other node's pod still runs, or its kubelet could not finish NodeUnstage and "
        "keeps the volume in volumesInUse.",
        evidence="A pod that waits without a VolumeAttachment to its node, a VolumeAttachment to "
        "another node, and access modes that allow only one. Also the event, if it still exists: "
        "`Multi-Attach error`, since Kubernetes 1.37 `Waiting for detach`. The controller sends it "
        "once, and it expires after an hour. The controller checks VolumeAttachments and the "
        "status of the nodes, never Ceph.",
        risk="None for the data. A Ready node is never detached by force, so the wait may last "
        "indefinitely.",
        remedy="See the findings about the holder. Once the holder has released the volume, the "
        "controller attaches it automatically after kubelet's next retry (at most 2m2s later).",
        recovery=Recovery(
            actor="the attach/detach controller",
            condition="the other node has released the volume",
            within_s=122,
        ),
        step=LifecycleStep.ATTACH,
    ),
    Entry(
        "RBD402",
        "StillBeingUsed",
        Severity.ERROR,
        "ceph-csi refuses to stage the volume: the image has another watcher.",
        cause="A client has the image open: a forgotten mapping, a node that was detached by "
        "force, another cluster, a shell. At each try, ceph-csi waits 54 s for the watch to end.",
        evidence="The newest event of a pod that still waits, and the image's watchers. The watch "
        "of a dead client ends after 30 s. Every other watch stays until its client releases the "
        "image.",
        risk="None: the refusal prevents a second writer.",
        remedy="See the findings about the holder. Once the holder has released the image, the "
        "waiting NodeStage continues within seconds.",
        recovery=Recovery(
            actor="kubelet", condition="that client has released the image", within_s=122
        ),
        step=LifecycleStep.STAGE,
    ),
    Entry(
        "RBD407",
        "NotAnRBDVolume",
        Severity.ERROR,
        "The volume is not an RBD image.",
        cause="Another driver or volume type created it.",
        evidence="The PV's source.",
        risk="None.",
        remedy="Use the tools of that driver.",
        recovery=None,
    ),
    Entry(
        "RBD408",
        "StaleAttachment",
        Severity.ERROR,
        "The control plane reports the volume as attached, but the node does not hold it.",
        cause="The controller's cached state is stale, or its detach never ends "
        "(kubernetes#131410).",
        evidence="A VolumeAttachment, and neither a mapping nor a watch of that node.",
        risk="The next pod gets a Multi-Attach error although no node holds the volume.",
        remedy="If no pod on that node needs the volume, restart kube-controller-manager: it then "
        "rebuilds its cached state. Never remove the attachment's finalizer by hand.",
        recovery=Recovery(note="the controller does not check again"),
        step=LifecycleStep.DETACH,
    ),
    Entry(
        "RBD409",
        "DetachFails",
        Severity.ERROR,
        "The VolumeAttachment is being deleted, and its detach fails.",
        cause="external-attacher cannot finish the detach: a secret is missing, it is not running, "
        "or permissions are missing.",
        evidence="deletionTimestamp and detachError.",
        risk="Removing the finalizer by hand orphans the mapping.",
        remedy="Repair what the error names. Never remove the finalizer.",
        recovery=Recovery(
            actor="external-attacher", condition="what the error names is repaired", within_s=300
        ),
        step=LifecycleStep.DETACH,
    ),
    Entry(
        "RBD410",
        "AttachmentOfGoneNode",
        Severity.WARNING,
        "A VolumeAttachment names a node that does not exist.",
        cause="The Node object was deleted before its volumes were detached.",
        evidence="No Node has that name.",
        risk="The machine may still run and hold the image.",
        remedy="Prove that the machine is off. The controller then cleans up.",
        recovery=Recovery(
            actor="the attach/detach controller",
            within_s=440,
            note="80 s until the node's pods are removed, and six minutes from then, or from the "
            "start of kube-controller-manager",
        ),
        step=LifecycleStep.DETACH,
    ),
    Entry(
        "RBD411",
        "DuplicateHandle",
        Severity.ERROR,
        "Two PVs have the same driver and volume handle.",
        cause="Static PVs were written by hand with the same handle (ceph-csi#4526).",
        evidence="The PVs' sources.",
        risk="kubelet and external-attacher treat both as one volume: the second pod gets the "
        "wrong one, or none.",
        remedy="Set the reclaim policy Retain on all of these PVs first: they are one image, and "
        "the deletion of any of their claims would delete the image. Then find out which claim "
        "the data belongs to, delete the other PV, and create it again with a different handle.",
        recovery=Recovery(note="a handle cannot be changed"),
        step=LifecycleStep.BIND,
    ),
    Entry(
        "RBD412",
        "SeveralVolumes",
        Severity.INFO,
        "The pod has further RBD volumes.",
        cause="A pod may use several volumes; rbdagent reports on one of them.",
        evidence="The pod's claims.",
        risk="None.",
        remedy="Run rbdagent for each of the other volumes.",
        recovery=None,
    ),
    Entry(
        "RBD413",
        "AttachFails",
        Severity.ERROR,
        "The volume cannot be attached.",
        cause="external-attacher reports an error.",
        evidence="attachError of the VolumeAttachment.",
        risk="The pod waits.",
        remedy="Repair what the error names.",
        recovery=Recovery(
            actor="external-attacher and the attach/detach controller",
            condition="what the error names is repaired",
            within_s=422,
        ),
        step=LifecycleStep.ATTACH,
    ),
    Entry(
        "RBD414",
        "ImageNameUnknown",
        Severity.ERROR,
        "The image that the PV refers to is unknown.",
        cause="Its volume handle does not have ceph-csi's format, and it has no image name.",
        evidence="The PV's source.",
        risk="None.",
        remedy="Name the image itself: POOL/IMAGE.",
        recovery=None,
    ),
    Entry(
        "RBD415",
        "TargetNotSeen",
        Severity.WARNING,
        "The target was not found in the sources that were observed.",
        cause="A typo, or a source that was not observed.",
        evidence="The state of each source.",
        risk="None.",
        remedy="Check the name, and the sources that failed.",
        recovery=None,
    ),
    Entry(
        "RBD416",
        "RunningWithoutMapping",
        Severity.ERROR,
        "A pod runs with the volume, but its node shows no mapping or watch of the image.",
        cause="The mapping lost its watch (RBD105), the volume was unmounted under the running pod "
        "(RBD108), or the node reaches Ceph from an address that no Node object lists.",
        evidence="The pod in the API; the watchers; the sysfs of this node, if the pod runs here.",
        risk="Until the cause is known, a second writer may get the volume.",
        remedy="Run rbdagent on the pod's node before anything else.",
        recovery=Recovery(note="no other component checks this"),
        step=LifecycleStep.USE,
    ),
)
