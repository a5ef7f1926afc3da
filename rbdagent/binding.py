"""The state machine of a claim and its PV: the source of ``explain binding`` and its picture.

An edge is one branch of a function of the PV controller, or the step of another component between
two of its branches. The branches are those of Kubernetes 1.36.3; 1.37.1 has the same file
(pkg/controller/volume/persistentvolume/pv_controller.go). Branches without an effect, and those of
an API server that refuses a write, are left out: the controller tries again.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from msgspec import Struct

from rbdagent.codes import Code

TOPIC: Final = "binding"
"""The word behind ``explain``."""


class State(StrEnum):
    """The phase of a claim or of a PV; ``no`` and ``gone`` are objects that do not exist."""

    CLAIM_PENDING = "claim Pending"
    CLAIM_BOUND = "claim Bound"
    CLAIM_LOST = "claim Lost"
    CLAIM_GONE = "claim gone"
    PV_NONE = "no PV"
    PV_PENDING = "PV Pending"
    PV_AVAILABLE = "PV Available"
    PV_BOUND = "PV Bound"
    PV_RELEASED = "PV Released"
    PV_FAILED = "PV Failed"
    PV_GONE = "PV gone"


class Function(StrEnum):
    """What decides: a function of the PV controller, or another component."""

    UNBOUND = "syncUnboundClaim"
    SCHEDULER = "kube-scheduler"
    PROVISIONER = "external-provisioner"
    BOUND = "syncBoundClaim"
    CLAIM_PROTECTION = "PVC protection controller"
    VOLUME = "syncVolume"
    RECLAIM = "reclaimVolume"
    VOLUME_PROTECTION = "PV protection controller"


RUNS: Final = {
    Function.UNBOUND: "for a claim without the annotation bind-completed",
    Function.SCHEDULER: "for the first pod of a claim whose class has WaitForFirstConsumer",
    Function.PROVISIONER: "for claims and PVs with the name of its driver",
    Function.BOUND: "for a claim with the annotation bind-completed",
    Function.CLAIM_PROTECTION: "for a claim that is being deleted",
    Function.VOLUME: "for each PV",
    Function.RECLAIM: "for a PV that syncVolume has found to be released",
    Function.VOLUME_PROTECTION: "for a PV that is being deleted",
}
"""When each function runs; syncs of the PV controller repeat every 15 s."""


class Edge(Struct, frozen=True, kw_only=True):
    """One branch: it leads from a state to another one, or it waits in a state."""

    function: Function
    sources: tuple[State, ...]
    """The phases in which the branch has an effect, or waits."""
    condition: str
    target: State | None = None
    """None if the phase stays."""
    other: State | None = None
    """The phase of the other object, if it is written too."""
    writes: str = ""
    """What is written beside the phase; empty if nothing is."""
    event: str = ""
    """Type and reason of the event; empty if there is none."""
    taken: tuple[Code, ...] = ()
    """The codes that report that the branch was taken, or that the object waits in it."""
    stuck: tuple[Code, ...] = ()
    """The codes that report that the step is due, and is not taken, or not yet."""

    @property
    def states(self) -> tuple[State, ...]:
        """The states that the branch leads to; none if it waits."""
        return tuple(state for state in (self.target, self.other) if state is not None)

    @property
    def branch(self) -> str:
        """The branch in one line: ``syncBoundClaim: the PV does not exist -> claim Lost``."""
        target = f" -> {' and '.join(self.states)}" if self.states else ""
        reason = self.event.partition(" ")[2]
        event = f", event {reason}" if reason else ""
        return f"{self.function}: {self.condition}{target}{event}"


class Race(Struct, frozen=True, kw_only=True):
    """A precondition under which the order of two steps decides, and its outcome."""

    precondition: str
    outcome: str
    prevention: str
    source: str
    codes: tuple[Code, ...]
    """The codes that report the precondition or the outcome."""


_PENDING: Final = (State.CLAIM_PENDING,)
_ONCE_BOUND: Final = (State.CLAIM_BOUND, State.CLAIM_LOST)
_BOTH: Final = "claimRef with uid, then volumeName and annotation bind-completed"

EDGES: Final = (
    # syncUnboundClaim -----------------------------------------------------------------------------
    Edge(
        function=Function.UNBOUND,
        sources=_PENDING,
        condition="volumeName names a PV that does not exist",
        taken=(Code.NAMED_VOLUME_MISSING,),
    ),
    Edge(
        function=Function.UNBOUND,
        sources=_PENDING,
        condition="volumeName names a PV without claimRef that is being deleted, or whose class, "
        "attributes class, size or modes do not fit",
        event="Warning VolumeMismatch",
        taken=(Code.NAMED_VOLUME_REFUSED,),
    ),
    Edge(
        function=Function.UNBOUND,
        sources=_PENDING,
        condition="volumeName names a PV without claimRef that fits",
        target=State.CLAIM_BOUND,
        other=State.PV_BOUND,
        writes=_BOTH,
        stuck=(Code.BINDING_DUE,),
    ),
    Edge(
        function=Function.UNBOUND,
        sources=_PENDING,
        condition="volumeName names a PV whose claimRef names the claim, without uid or with its "
        "uid: nothing else is compared",
        target=State.CLAIM_BOUND,
        other=State.PV_BOUND,
        writes=_BOTH,
        stuck=(Code.BINDING_DUE,),
    ),
    Edge(
        function=Function.UNBOUND,
        sources=_PENDING,
        condition="volumeName names a PV whose claimRef has another name or another uid",
        event="Warning FailedBinding",
        taken=(Code.NAMED_VOLUME_TAKEN,),
    ),
    Edge(
        function=Function.UNBOUND,
        sources=_PENDING,
        condition="no volumeName, and the claimRef of a PV that fits in size and modes names the "
        "claim: class, labels and phase are not compared",
        target=State.CLAIM_BOUND,
        other=State.PV_BOUND,
        writes=_BOTH,
        stuck=(Code.BINDING_DUE,),
    ),
    Edge(
        function=Function.UNBOUND,
        sources=_PENDING,
        condition="no volumeName, and the claimRef of a PV names the claim, but size, modes or "
        "attributes class do not fit: the search goes on as if there were no such PV",
        taken=(Code.KEPT_VOLUME_REFUSED,),
    ),
    Edge(
        function=Function.UNBOUND,
        sources=_PENDING,
        condition="no volumeName, and an Available PV without claimRef fits: the smallest one; not "
        "if the class has WaitForFirstConsumer",
        target=State.CLAIM_BOUND,
        other=State.PV_BOUND,
        writes=f"{_BOTH}; annotation bound-by-controller on both",
        stuck=(Code.BINDING_DUE,),
    ),
    Edge(
        function=Function.UNBOUND,
        sources=_PENDING,
        condition="no PV fits, the claim names no class, and a class is the default",
        writes="storageClassName",
        stuck=(Code.CLAIM_WITHOUT_CLASS,),
    ),
    Edge(
        function=Function.UNBOUND,
        sources=_PENDING,
        condition="no PV that fits names the claim, the class has WaitForFirstConsumer, and the "
        "claim has no annotation selected-node",
        event="Normal WaitForFirstConsumer or WaitForPodScheduled",
        taken=(Code.WAITS_FOR_FIRST_POD, Code.FIRST_POD_NOT_SCHEDULED, Code.POD_PAST_SCHEDULER),
    ),
    Edge(
        function=Function.UNBOUND,
        sources=_PENDING,
        condition="no PV fits, and the claim has no class",
        event="Normal FailedBinding",
        taken=(Code.NO_VOLUME_FITS, Code.CLAIM_WITHOUT_CLASS),
    ),
    Edge(
        function=Function.UNBOUND,
        sources=_PENDING,
        condition="no PV fits, and the claim's class does not exist",
        event="Warning ProvisioningFailed",
        taken=(Code.STORAGE_CLASS_MISSING,),
    ),
    Edge(
        function=Function.UNBOUND,
        sources=_PENDING,
        condition="no PV fits, and no plugin has the provisioner of the class, which begins with "
        "kubernetes.io/",
        event="Warning ProvisioningFailed",
        taken=(Code.NO_VOLUME_FITS, Code.PLUGIN_REMOVED),
    ),
    Edge(
        function=Function.UNBOUND,
        sources=_PENDING,
        condition="no PV fits, and the provisioner of the class is an external one",
        writes="annotation storage-provisioner",
        event="Normal ExternalProvisioning",
        taken=(Code.BEING_PROVISIONED,),
        stuck=(Code.CONTROLLER_DOWN,),
    ),
    # kube-scheduler -------------------------------------------------------------------------------
    Edge(
        function=Function.SCHEDULER,
        sources=_PENDING,
        condition="a node fits the pod, and an Available PV fits the claim and the node",
        writes="the PV's claimRef with uid, annotation bound-by-controller",
        stuck=(Code.FIRST_POD_NOT_SCHEDULED, Code.POD_PAST_SCHEDULER),
    ),
    Edge(
        function=Function.SCHEDULER,
        sources=_PENDING,
        condition="a node fits the pod, no PV fits, and the class has a provisioner",
        writes="annotation selected-node: from now on, no free PV is considered",
        stuck=(Code.FIRST_POD_NOT_SCHEDULED, Code.POD_PAST_SCHEDULER),
    ),
    # external-provisioner, for a claim ------------------------------------------------------------
    Edge(
        function=Function.PROVISIONER,
        sources=(State.PV_NONE,),
        condition="storage-provisioner names its driver, and the driver has created the image",
        target=State.PV_PENDING,
        writes="a PV whose claimRef has the claim's uid",
        event="Normal ProvisioningSucceeded",
        taken=(Code.BEING_PROVISIONED,),
        stuck=(
            Code.PROVISIONER_REPORTS_NOTHING,
            Code.PROVISIONING_FAILS,
            Code.PROVISIONER_TOO_OLD,
            Code.PROVISIONER_MISSING,
            Code.PROVISIONER_DOWN,
            Code.PROVISIONING_HANGS,
            Code.SELECTOR_NOT_SUPPORTED,
            Code.MODE_NOT_PROVISIONED,
            Code.SELECTED_NODE_STUCK,
            Code.WAITS_FOR_POPULATOR,
        ),
    ),
    # syncBoundClaim -------------------------------------------------------------------------------
    Edge(
        function=Function.BOUND,
        sources=_ONCE_BOUND,
        condition="volumeName is empty",
        target=State.CLAIM_LOST,
        event="Warning ClaimLost",
        taken=(Code.REFERENCE_LOST,),
    ),
    Edge(
        function=Function.BOUND,
        sources=_ONCE_BOUND,
        condition="the PV does not exist",
        target=State.CLAIM_LOST,
        event="Warning ClaimLost",
        taken=(Code.VOLUME_GONE,),
    ),
    Edge(
        function=Function.BOUND,
        sources=_ONCE_BOUND,
        condition="the PV has no claimRef",
        target=State.CLAIM_BOUND,
        other=State.PV_BOUND,
        writes="claimRef with uid",
        stuck=(Code.BINDING_DUE,),
    ),
    Edge(
        function=Function.BOUND,
        sources=_ONCE_BOUND,
        condition="claimRef.uid is the claim's uid",
        target=State.CLAIM_BOUND,
        other=State.PV_BOUND,
        stuck=(Code.BINDING_DUE, Code.RELEASED_BUT_CLAIM_LIVES),
    ),
    Edge(
        function=Function.BOUND,
        sources=_ONCE_BOUND,
        condition="claimRef.uid differs, or claimRef has no uid",
        target=State.CLAIM_LOST,
        event="Warning ClaimMisbound",
        taken=(Code.CLAIM_LOST, Code.CLAIMED_TWICE),
    ),
    # PVC protection -------------------------------------------------------------------------------
    Edge(
        function=Function.CLAIM_PROTECTION,
        sources=(State.CLAIM_PENDING, *_ONCE_BOUND),
        condition="no pod with a node names the claim, and it has no other finalizer",
        target=State.CLAIM_GONE,
        writes="removes the finalizer pvc-protection",
        stuck=(
            Code.CLAIM_PROTECTED,
            Code.CLAIM_IS_SOURCE,
            Code.HELD_BY_FINALIZER,
            Code.FINALIZER_LEFT,
        ),
    ),
    # syncVolume -----------------------------------------------------------------------------------
    Edge(
        function=Function.VOLUME,
        sources=(State.PV_PENDING, State.PV_BOUND, State.PV_RELEASED, State.PV_FAILED),
        condition="claimRef is empty",
        target=State.PV_AVAILABLE,
        stuck=(Code.CONTROLLER_DOWN,),
    ),
    Edge(
        function=Function.VOLUME,
        sources=(State.PV_PENDING, State.PV_BOUND, State.PV_RELEASED, State.PV_FAILED),
        condition="claimRef has no uid: the PV is reserved for the name",
        target=State.PV_AVAILABLE,
        taken=(Code.VOLUME_RESERVED, Code.OLDER_VOLUME_LEFT),
    ),
    Edge(
        function=Function.VOLUME,
        sources=(State.PV_PENDING, State.PV_AVAILABLE, State.PV_BOUND),
        condition="no claim has that name, or the claim with that name has another uid",
        target=State.PV_RELEASED,
        taken=(Code.VOLUME_RELEASED, Code.OLDER_VOLUME_LEFT),
        stuck=(Code.BOUND_TO_GONE_CLAIM,),
    ),
    Edge(
        function=Function.VOLUME,
        sources=(State.PV_PENDING, State.PV_AVAILABLE),
        condition="the claim has no volumeName, and its volumeMode differs",
        event="Warning VolumeMismatch",
        taken=(Code.KEPT_VOLUME_REFUSED,),
    ),
    Edge(
        function=Function.VOLUME,
        sources=(State.PV_PENDING, State.PV_AVAILABLE),
        condition="the claim has no volumeName: its sync is queued",
        stuck=(Code.BINDING_DUE,),
    ),
    Edge(
        function=Function.VOLUME,
        sources=(State.PV_PENDING, State.PV_AVAILABLE, State.PV_RELEASED, State.PV_FAILED),
        condition="the claim's volumeName is the PV",
        target=State.PV_BOUND,
        stuck=(Code.RELEASED_BUT_CLAIM_LIVES,),
    ),
    Edge(
        function=Function.VOLUME,
        sources=(State.PV_AVAILABLE, State.PV_BOUND),
        condition="the claim's volumeName is another PV; this one has provisioned-by and Delete",
        target=State.PV_RELEASED,
        taken=(Code.BOUND_ELSEWHERE,),
    ),
    Edge(
        function=Function.VOLUME,
        sources=(State.PV_BOUND, State.PV_RELEASED),
        condition="the claim's volumeName is another PV; this one has bound-by-controller",
        target=State.PV_AVAILABLE,
        writes="removes claimRef: any claim that fits may get the PV with its data",
        stuck=(Code.BOUND_ELSEWHERE,),
    ),
    Edge(
        function=Function.VOLUME,
        sources=(State.PV_BOUND, State.PV_RELEASED),
        condition="the claim's volumeName is another PV; this one has no bound-by-controller",
        target=State.PV_AVAILABLE,
        writes="removes claimRef.uid: the PV stays reserved for the claim's name",
        taken=(Code.OLDER_VOLUME_LEFT,),
        stuck=(Code.BOUND_ELSEWHERE,),
    ),
    # reclaimVolume --------------------------------------------------------------------------------
    Edge(
        function=Function.RECLAIM,
        sources=(State.PV_RELEASED,),
        condition="the reclaim policy is Retain",
        taken=(Code.VOLUME_RELEASED,),
    ),
    Edge(
        function=Function.RECLAIM,
        sources=(State.PV_RELEASED,),
        condition="the reclaim policy is Recycle, which no plugin offers for RBD",
        target=State.PV_FAILED,
        event="Warning VolumeFailedRecycle",
        taken=(Code.RECLAIM_FAILED,),
    ),
    Edge(
        function=Function.RECLAIM,
        sources=(State.PV_RELEASED,),
        condition="the reclaim policy is Delete, and the PV is an in-tree one whose plugin is gone",
        target=State.PV_FAILED,
        event="Warning VolumeFailedDelete",
        taken=(Code.RECLAIM_FAILED,),
    ),
    Edge(
        function=Function.RECLAIM,
        sources=(State.PV_RELEASED,),
        condition="the reclaim policy is Delete, and the PV is of CSI or migrated: left to the "
        "provisioner",
        taken=(Code.DELETION_UNDER_WAY,),
    ),
    # external-provisioner, for a PV ---------------------------------------------------------------
    Edge(
        function=Function.PROVISIONER,
        sources=(State.PV_RELEASED,),
        condition="the PV is its driver's, with Delete, no VolumeAttachment names it, and the "
        "driver has deleted the image",
        target=State.PV_GONE,
        writes="deletes the PV, removes its finalizer",
        taken=(Code.DELETION_UNDER_WAY,),
        stuck=(Code.DELETION_HELD, Code.DELETION_FAILS, Code.NO_PROVISIONER_DELETES),
    ),
    # PV protection --------------------------------------------------------------------------------
    Edge(
        function=Function.VOLUME_PROTECTION,
        sources=(State.PV_AVAILABLE, State.PV_BOUND, State.PV_RELEASED, State.PV_FAILED),
        condition="the phase is not Bound, and the PV has no other finalizer",
        target=State.PV_GONE,
        writes="removes the finalizer pv-protection",
        stuck=(
            Code.VOLUME_PROTECTED,
            Code.VOLUME_HELD_BY_ATTACHMENT,
            Code.HELD_BY_FINALIZER,
            Code.FINALIZER_LEFT,
        ),
    ),
)
"""All edges: those of a function in the order in which it tests its conditions."""

ON_NO_EDGE: Final = {
    Code.CLAIM_UNBOUND: "the classes or the PVs were not observed, so the branch is unknown",
    Code.DUPLICATE_HANDLE: "no branch compares volume handles",
    Code.POD_HELD_BY_FINALIZER: "it is about a pod",
    Code.EPHEMERAL_CLAIM_NAME_TAKEN: "the claim of the pod was never created",
    Code.IMAGE_NAMES_ANOTHER_VOLUME: "its PV is in another cluster",
    Code.FREE_VOLUME_NOT_RESERVED: "it names the precondition of a race",
    Code.NEW_VOLUME_MAY_BE_RELEASED: "it names the precondition of a race",
}
"""The codes of these steps that no edge has, and why."""

RACES: Final = (
    Race(
        precondition="The class has WaitForFirstConsumer and a provisioner, and a PV that fits the "
        "claim is Available without claimRef.",
        outcome="The scheduler decides when the first pod starts: it takes a free PV that fits, "
        "not necessarily this one. If none is free at that moment, it writes selected-node, and "
        "the claim gets a new, empty volume, whatever becomes Available later.",
        prevention="Write the claim's namespace and name into the PV's claimRef before the first "
        "pod exists: the PV controller then binds the two without the scheduler.",
        source="FindMatchingVolume in k8s.io/component-helpers/storage/volume/pv_helpers.go; "
        "FindPodVolumes in pkg/scheduler/framework/plugins/volumebinding/binder.go",
        codes=(Code.FREE_VOLUME_NOT_RESERVED,),
    ),
    Race(
        precondition="Two PVs name one claim, and the one that loses has no annotation "
        "bound-by-controller: a user or a backup wrote its claimRef.",
        outcome="It becomes Available and stays reserved for the claim's name: the next claim with "
        "this name gets it, with its old data. With the annotation, any claim that fits may get "
        "it. With provisioned-by and Delete, its image is deleted.",
        prevention="Set Retain on both PVs. Name the PV in the claim (volumeName) when the claim "
        "is created.",
        source="syncVolume and unbindVolume",
        codes=(Code.BOUND_ELSEWHERE, Code.VOLUME_RESERVED, Code.OLDER_VOLUME_LEFT),
    ),
    Race(
        precondition="kube-controller-manager is older than 1.20, and the creator of the claim "
        "sets storage-provisioner itself.",
        outcome="The controller may see the new PV before its claim: it releases the PV, and with "
        "Delete the new image is deleted.",
        prevention="Update Kubernetes.",
        source="kubernetes#95909",
        codes=(Code.RELEASED_BUT_CLAIM_LIVES,),
    ),
    Race(
        precondition="kube-controller-manager is older than 1.23, and a claim is deleted and "
        "created again at once with the same name.",
        outcome="The controller may compare the new PV with the old claim: it releases the PV, and "
        "with Delete the new image is deleted.",
        prevention="Update Kubernetes, or wait until the old PV is Released before the claim is "
        "created again.",
        source="kubernetes#105131, fixed by kubernetes#105211",
        codes=(Code.NEW_VOLUME_MAY_BE_RELEASED, Code.RELEASED_BUT_CLAIM_LIVES),
    ),
    Race(
        precondition="Any version until 1.37: a claim or PV is deleted while the controller's own "
        "write to it is on its way.",
        outcome="The controller may keep the deleted object in its cache: a PV stays Bound, and is "
        "not released.",
        prevention="Restart kube-controller-manager: it reads all objects again.",
        source="kubernetes#124224, which is open",
        codes=(Code.BOUND_TO_GONE_CLAIM,),
    ),
    Race(
        precondition="Any version until 1.37: claim and PV name each other before they are bound.",
        outcome="Two syncs may write at once, and one is refused: binding may take until the "
        "second sync, 30 s.",
        prevention="Wait: nothing is lost.",
        source="kubernetes#85659, which is open",
        codes=(Code.BINDING_DUE,),
    ),
)


def edges_of(code: str) -> tuple[Edge, ...]:
    """Return the edges that a code reports as taken, then those that it reports as stuck."""
    return (
        *(edge for edge in EDGES if code in edge.taken),
        *(edge for edge in EDGES if code in edge.stuck),
    )


def branch_lines(code: str) -> tuple[str, ...]:
    """Return the branches that a code rests on, one a line: and whether one is not taken yet."""
    return tuple(
        edge.branch if code in edge.taken else f"{edge.branch} (not taken yet)"
        for edge in edges_of(code)
    )


def number_of(edge: Edge) -> int:
    """Return the number of an edge, from 1, as the text and the picture have it."""
    return EDGES.index(edge) + 1
