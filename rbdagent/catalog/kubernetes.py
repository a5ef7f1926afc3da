"""RBD4xx: attaching, and what the events mean."""

from __future__ import annotations

from typing import Final

from rbdagent.catalog.entry import Entry
from rbdagent.model import Heals, LifeStep, Severity

ENTRIES: Final = (
    Entry(
        "RBD401",
        "MultiAttach",
        Severity.ERROR,
        "The controller does not attach the volume: by its books another node has it.",
        cause="The other node's pod still runs, or its kubelet could not finish NodeUnstage and "
        "keeps the volume in volumesInUse.",
        evidence="A pod that waits without a VolumeAttachment to its node, one to another node, "
        "and access modes that allow one. The event, if it is still there: `Multi-Attach error`, "
        "since Kubernetes 1.37 `Waiting for detach`. It is said once, and lives an hour. The "
        "controller asks VolumeAttachments and the nodes' status, never Ceph.",
        risk="None for the data. A Ready node is never detached by force, so it may last for ever.",
        remedy="See what is said of the holder. Once it has let go, the controller attaches by "
        "itself, after kubelet's next retry (at most 2m2s later).",
        heals=Heals(
            by="the attach/detach controller", once="the other node has let go", within_s=122
        ),
        step=LifeStep.ATTACH,
    ),
    Entry(
        "RBD402",
        "StillBeingUsed",
        Severity.ERROR,
        "ceph-csi refuses to stage: the image has another watcher.",
        cause="Some client has the image open: a forgotten mapping, a node that was detached by "
        "force, another cluster, a shell. ceph-csi waits 54 s for it to go, at each try.",
        evidence="The newest event of a pod that still waits, and the image's watchers. A dead "
        "client's watch goes after 30 s; every other stays until its owner lets go.",
        risk="None: the refusal prevents a second writer.",
        remedy="See what is said of the holder. Once it has let go, the waiting NodeStage goes on "
        "within seconds.",
        heals=Heals(by="kubelet", once="that client has let go", within_s=122),
        step=LifeStep.STAGE,
    ),
    Entry(
        "RBD407",
        "NotAnRBDVolume",
        Severity.ERROR,
        "The volume is not an RBD image.",
        cause="Another driver or volume type made it.",
        evidence="The PV's source.",
        risk="None.",
        remedy="Ask that driver's tools.",
        heals=None,
    ),
    Entry(
        "RBD408",
        "AttachedOnPaper",
        Severity.ERROR,
        "The control plane says attached, and the node has nothing.",
        cause="The controller's books are stale, or its detach never ends (kubernetes#131410).",
        evidence="A VolumeAttachment, and neither a mapping nor a watch on that node.",
        risk="The next pod gets Multi-Attach although nobody holds the volume.",
        remedy="If no pod on that node needs it, restart kube-controller-manager, which reads its "
        "books anew. Never remove the attachment's finalizer by hand.",
        heals=Heals(note="the controller does not look again"),
        step=LifeStep.DETACH,
    ),
    Entry(
        "RBD409",
        "DetachFails",
        Severity.ERROR,
        "The VolumeAttachment is being deleted and its detach fails.",
        cause="The external attacher cannot finish: a missing secret, no attacher, no rights.",
        evidence="deletionTimestamp and detachError.",
        risk="Removing the finalizer by hand orphans the mapping.",
        remedy="Repair what the error names. Never remove the finalizer.",
        heals=Heals(by="external-attacher", once="what the error names is repaired", within_s=300),
        step=LifeStep.DETACH,
    ),
    Entry(
        "RBD410",
        "AttachmentOfGoneNode",
        Severity.WARNING,
        "A VolumeAttachment names a node that does not exist.",
        cause="The Node object was deleted before its volumes were detached.",
        evidence="No Node of that name.",
        risk="The machine may still run and hold the image.",
        remedy="Prove that the machine is off. The controller then cleans up.",
        heals=Heals(
            by="the attach/detach controller",
            within_s=440,
            note="80 s until its pods are cleared away, and six minutes from then on, or from the "
            "start of kube-controller-manager",
        ),
        step=LifeStep.DETACH,
    ),
    Entry(
        "RBD411",
        "DuplicateHandle",
        Severity.ERROR,
        "Two PVs share one driver and volume handle.",
        cause="Static PVs that were written by hand with the same handle (ceph-csi#4526).",
        evidence="The PVs' sources.",
        risk="kubelet and the attacher take both for one volume: the second pod gets the wrong "
        "one, or none.",
        remedy="Set reclaim policy Retain on all of these PVs first: they are one image, and the "
        "deletion of any of their claims would delete it. Then find out which claim the "
        "data belongs to, delete the other PV, and create it again with a handle of its "
        "own.",
        heals=Heals(note="a handle cannot be changed"),
        step=LifeStep.BIND,
    ),
    Entry(
        "RBD412",
        "SeveralVolumes",
        Severity.INFO,
        "The pod has further RBD volumes.",
        cause="A pod may use several; an answer speaks of one.",
        evidence="The pod's claims.",
        risk="None.",
        remedy="Ask for each of them.",
        heals=None,
    ),
    Entry(
        "RBD413",
        "AttachFails",
        Severity.ERROR,
        "The volume cannot be attached.",
        cause="The external attacher reports an error.",
        evidence="attachError of the VolumeAttachment.",
        risk="The pod waits.",
        remedy="Repair what the error names.",
        heals=Heals(
            by="external-attacher and the attach/detach controller",
            once="what the error names is repaired",
            within_s=422,
        ),
        step=LifeStep.ATTACH,
    ),
    Entry(
        "RBD414",
        "ImageNameUnknown",
        Severity.ERROR,
        "Which image the PV stands for cannot be told.",
        cause="Its volume handle does not follow ceph-csi's form, and it carries no image name.",
        evidence="The PV's source.",
        risk="None.",
        remedy="Name the image itself: POOL/IMAGE.",
        heals=None,
    ),
    Entry(
        "RBD415",
        "TargetNotSeen",
        Severity.WARNING,
        "The target was not found where it could be looked for.",
        cause="A typo, or a source that was not observed.",
        evidence="Each source's state.",
        risk="None.",
        remedy="Check the name, and the sources that failed.",
        heals=None,
    ),
    Entry(
        "RBD416",
        "RunningWithoutMapping",
        Severity.ERROR,
        "A pod runs with the volume, and its node shows no mapping or watch of it.",
        cause="The mapping lost its watch (RBD105), was taken away under the pod (RBD108), or the "
        "node reaches Ceph from an address that no Node object lists.",
        evidence="The pod in the API; the watchers; this node's sysfs where it is this node.",
        risk="Until it is known which, a second writer may be let in.",
        remedy="Run rbdagent on the pod's node before anything else.",
        heals=Heals(note="nobody else looks"),
        step=LifeStep.USE,
    ),
)
