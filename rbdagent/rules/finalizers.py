"""RBD613, RBD614, RBD65x: objects that are being deleted and remain.

No event reports them, so objects are compared.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from rbdagent.codes import Code
from rbdagent.commands import Template, filled, kubectl, template
from rbdagent.model import (
    Command,
    Finding,
    LifecycleStep,
    NotObserved,
    PersistentVolume,
    PersistentVolumeClaim,
    Pod,
    Recovery,
    Severity,
    Statement,
    Subject,
    VolumeAttachment,
    stated,
)
from rbdagent.parse.foreign import foreign
from rbdagent.rules.context import ATTACHER, Rule, RuleContext, delete_pod, finding
from rbdagent.rules.entry import Entry
from rbdagent.rules.pv_controller import (
    PROVISIONER,
    SILENT,
    YOUNG,
    are_users_observed,
    claims_of_target,
    describe_claim,
    describe_volume,
    is_over,
    retain,
    since,
    users,
)
from rbdagent.verdicts.timing import MOVING, age_text

if TYPE_CHECKING:
    from collections.abc import Iterator

ENTRIES: Final = (
    Entry(
        Code.CLAIM_PROTECTED,
        Severity.WARNING,
        "The claim is being deleted, and waits until its pods are gone.",
        remedy="A deletion cannot be undone. To keep the data, set the PV to Retain now. To "
        "complete the deletion, delete the pods. New pods that use the claim do not start.",
        recovery=Recovery(
            actor="the PVC protection controller", condition="no pod names the claim"
        ),
        step=LifecycleStep.RELEASE,
    ),
    Entry(
        Code.VOLUME_PROTECTED,
        Severity.WARNING,
        "The PV is being deleted before its claim.",
        remedy="A deletion cannot be undone. To keep the data, set Retain now and note the "
        "volumeHandle: a new PV with this handle can be created later. Never remove the "
        "finalizer: the claim would become Lost.",
        recovery=Recovery(actor="the PV protection controller", condition="the claim is gone"),
        step=LifecycleStep.RECLAIM,
    ),
    Entry(
        Code.CLAIM_IS_SOURCE,
        Severity.WARNING,
        "The claim is being deleted, and a clone or a snapshot of it is not complete.",
        remedy="Repair that VolumeSnapshot (its status has the error: a VolumeSnapshotClass that "
        "does not exist, csi-snapshotter or snapshot-controller that does not run), or delete it "
        "if it is not needed. The same holds for the claim of a clone. The claim then goes. Do not "
        "remove the finalizer by hand.",
        recovery=Recovery(
            actor="external-provisioner or the snapshot controller",
            condition="the clone is bound, or the snapshot is ready, or it is deleted",
        ),
        step=LifecycleStep.RELEASE,
    ),
    Entry(
        Code.VOLUME_HELD_BY_ATTACHMENT,
        Severity.WARNING,
        "The PV is being deleted, and is still attached.",
        remedy="Find out why the node does not release the volume, or why the detach fails.",
        recovery=Recovery(actor=ATTACHER, condition="the last attachment is gone"),
        step=LifecycleStep.RECLAIM,
    ),
    Entry(
        Code.HELD_BY_FINALIZER,
        Severity.WARNING,
        "A claim or PV is being deleted, and a finalizer that is not from Kubernetes holds it.",
        remedy="Find out from the name of the finalizer which program set it, and why the work "
        "of that program does not finish.",
        recovery=Recovery(actor="the program that set the finalizer"),
        step=LifecycleStep.RELEASE,
    ),
    Entry(
        Code.FINALIZER_LEFT,
        Severity.ERROR,
        "A claim or PV is being deleted, and a finalizer remains although its reason is gone.",
        remedy="Get that controller running again, and read its log.",
        recovery=Recovery(
            actor="the controller that removes the finalizer", condition="it runs again"
        ),
        step=LifecycleStep.RELEASE,
    ),
    Entry(
        Code.POD_HELD_BY_FINALIZER,
        Severity.WARNING,
        "A pod has ended, and a finalizer holds its object.",
        remedy="Find out from the name of the finalizer which program set it, and why the work "
        "of that program does not finish.",
        recovery=Recovery(actor="the program that set the finalizer"),
        step=LifecycleStep.RELEASE,
    ),
)

PVC_PROTECTION: Final = "kubernetes.io/pvc-protection"
PV_PROTECTION: Final = "kubernetes.io/pv-protection"
_CLONES: Final = "provisioner.storage.kubernetes.io/cloning-protection"
_SNAPSHOTS: Final = "snapshot.storage.kubernetes.io/pvc-as-source-protection"
_ATTACHER: Final = "external-attacher/"
_DELETES: Final = frozenset(
    {"external-provisioner.volume.kubernetes.io/finalizer", "kubernetes.io/pv-controller"}
)
"""The component that deletes the image keeps the PV until then (HonorPVReclaimPolicy;
kubernetes-csi/external-provisioner#679)."""
_PVC_PROTECTION: Final = "the PVC protection controller"
_PV_PROTECTION: Final = "the PV protection controller"
_CONTROLLERS: Final = (kubectl("get lease kube-controller-manager", namespace="kube-system"),)
_YAML: Final = ("-o", "yaml")
_SOME: Final = 5


def protected(context: RuleContext) -> Iterator[Finding]:
    """Report RBD613, RBD614, RBD650 to RBD654: what a claim, PV or pod under deletion waits for."""
    for claim in claims_of_target(context):
        if claim.deleting_since is not None and claim.finalizers:
            yield from _claim(context, claim)
        yield from _ended_pods(context, claim)
    volume = context.volume.persistent_volume
    if volume is not None and volume.deleting_since is not None and volume.finalizers:
        yield from _volume(context, volume)


# --------------------------------------------------------------------------------------------------
# A claim
# --------------------------------------------------------------------------------------------------


def _claim(context: RuleContext, claim: PersistentVolumeClaim) -> Iterator[Finding]:
    # A pod without a node has mounted nothing: the protection checks only pods with a nodeName
    # (podUsesPVCForDeletion() in pvcprotection/pvc_protection_controller.go@v1.36.3).
    pods = [pod for pod in users(context, claim) if pod.node_name is not None]
    if PVC_PROTECTION in claim.finalizers:
        if pods:
            yield _claim_used(context, claim, pods)
        elif are_users_observed(context, claim) and is_over(YOUNG, claim.deleting_since, context):
            yield _remaining(context, claim, PVC_PROTECTION, _PVC_PROTECTION)
    if not is_over(YOUNG, claim.deleting_since, context):
        return
    if {_CLONES, _SNAPSHOTS} & {*claim.finalizers}:
        yield _source(context, claim)
    for finalizer in claim.finalizers:
        if finalizer not in {PVC_PROTECTION, _CLONES, _SNAPSHOTS}:
            yield _foreign(context, claim, finalizer)


def _claim_used(context: RuleContext, claim: PersistentVolumeClaim, pods: list[Pod]) -> Finding:
    """Report RBD613: finished pods keep a claim as well, and a waiting pod never gets the claim."""
    named = [f"{pod.ref} ({pod.phase})" for pod in pods[:_SOME]]
    more = stated(" and {count} more", count=len(pods) - _SOME) if len(pods) > _SOME else stated("")
    refs = ", ".join(str(pod.ref) for pod in pods[:_SOME])
    waiting = [
        pod
        for pod in users(context, claim)
        if pod.phase == "Pending" and pod.deleting_since is None
    ]
    never = stated(" {pods} will not start.", pods=[pod.ref for pod in waiting]) if waiting else ""
    finished = [pod for pod in pods if pod.phase in {"Succeeded", "Failed"}]
    # Who deletes a pod removes its object a moment after its containers have ended.
    going = [pod for pod in finished if pod.deleting_since is not None]
    all_finished = len(finished) == len(pods) and all(
        is_over(MOVING, pod.deleting_since, context) for pod in going
    )
    left = [pod for pod in finished if pod not in going] if all_finished else []
    return finding(
        Code.CLAIM_PROTECTED,
        Subject.of_claim(claim.ref),
        stated(
            "Claim {claim} is being deleted, and remains until its pods are gone: {pods}{}.{}{}",
            more,
            " These pods have ended, but their objects were not removed." if all_finished else "",
            never,
            claim=claim.ref,
            pods=named,
        ),
        evidence=(_deleted(context, claim), f"finalizers {', '.join(claim.finalizers)}"),
        pods=tuple(str(pod.ref) for pod in pods[:_SOME]),
        commands=(
            describe_claim(claim),
            *map(delete_pod, left[:_SOME]),
        ),
        recovery=Recovery(actor=_PVC_PROTECTION, condition=f"{refs}{more} {_is(pods)} gone"),
        severity=None if waiting or all_finished else Severity.INFO,
    )


def _is(pods: list[Pod]) -> str:
    return "is" if len(pods) == 1 else "are"


def _source(context: RuleContext, claim: PersistentVolumeClaim) -> Finding:
    made = [kind for kind in _MADE if kind.finalizer in claim.finalizers]
    return finding(
        Code.CLAIM_IS_SOURCE,
        Subject.of_claim(claim.ref),
        stated(
            "Claim {claim} is being deleted, and {}. The claim remains until that ends, or until "
            "{} {} deleted.",
            " and ".join(kind.state for kind in made),
            " and ".join(kind.name for kind in made),
            "is" if len(made) == 1 else "are",
            claim=claim.ref,
        ),
        evidence=(f"finalizers {', '.join(claim.finalizers)}", _deleted(context, claim)),
        commands=filled((kind.listing for kind in made), {"namespace": claim.ref.namespace}),
        recovery=Recovery(
            actor=" and ".join(kind.actor for kind in made),
            condition=" and ".join(kind.end for kind in made),
        ),
    )


class _Made(NamedTuple):
    """What is made from a claim, and keeps it until it is complete."""

    finalizer: str
    state: str
    name: str
    listing: Template
    """The command that lists it: a cluster without snapshots has no VolumeSnapshot."""
    actor: str
    end: str


_MADE: Final = (
    _Made(
        _CLONES,
        "a clone of it is not bound",
        "the clone's claim",
        template("kubectl get pvc", namespace="{namespace}"),
        PROVISIONER,
        "the clone's claim is bound or deleted",
    ),
    _Made(
        _SNAPSHOTS,
        "a snapshot of it is not ready",
        "the VolumeSnapshot",
        template("kubectl get volumesnapshot", namespace="{namespace}"),
        "the snapshot controller",
        "the snapshot is ready or deleted",
    ),
)


def _remaining(
    context: RuleContext,
    held: PersistentVolumeClaim | PersistentVolume,
    finalizer: str,
    controller: str,
) -> Finding:
    """Report RBD653: the finalizer is no longer needed, and its controller has not removed it."""
    subject, what, show = _named(held)
    return finding(
        Code.FINALIZER_LEFT,
        subject,
        stated(
            "{} is being deleted, and its finalizer {finalizer} remains although nothing needs "
            "it: {} removes it, and seems not to work.",
            what,
            controller,
            finalizer=finalizer,
        ),
        evidence=(f"finalizers {', '.join(held.finalizers)}", _deleted(context, held)),
        commands=(show, *(_CONTROLLERS if controller in {_PVC_PROTECTION, _PV_PROTECTION} else ())),
        recovery=Recovery(actor=controller, condition="it runs again"),
    )


def _foreign(
    context: RuleContext, held: PersistentVolumeClaim | PersistentVolume, finalizer: str
) -> Finding:
    subject, what, show = _named(held)
    owner, kind = _owner_of(finalizer)
    sets = stated(": {} has set it, and removes it with its {}", owner, kind) if kind else ""
    view = context.volume.image_view
    return finding(
        Code.HELD_BY_FINALIZER,
        subject,
        stated(
            "{} is being deleted, and the finalizer {finalizer} holds it{}.",
            what,
            sets,
            finalizer=finalizer,
        ),
        evidence=(
            f"finalizers {', '.join(held.finalizers)}",
            _deleted(context, held),
            *(
                (f"the image {view.spec} is not primary in this cluster",)
                if view is not None and view.primary is False
                else ()
            ),
        ),
        remedy=_LEAVE_IT.format(owner=owner, kind=kind) if kind else "",
        commands=(show,),
        recovery=Recovery(
            actor=owner or f"the program that set {finalizer}",
            condition=f"its {kind} is gone" if kind else "",
        ),
    )


_LEAVE_IT: Final = (
    "Look at the {kind} of this claim: its status has what {owner} waits for. Do not remove the "
    "finalizer by hand."
)
_FINALIZERS: Final = (
    ("volumereplicationgroups.ramendr.openshift.io/", "Ramen", "VolumeReplicationGroup"),
    ("replication.storage.openshift.io/vgr-", "csi-addons", "VolumeGroupReplication"),
    ("replication.storage.openshift.io/", "csi-addons", "VolumeReplication"),
)
"""Prefixes of finalizers, and who sets them for what: kubernetes-csi-addons,
internal/controller/replication.storage/finalizers.go; Ramen, internal/controller/vrg_volrep.go."""


def _owner_of(finalizer: str) -> tuple[str, str]:
    """Return the program that sets a finalizer and the kind of its object; empty if unknown."""
    for prefix, owner, kind in _FINALIZERS:
        if finalizer.startswith(prefix):
            return owner, kind
    return "", ""


def _named(held: PersistentVolumeClaim | PersistentVolume) -> tuple[Subject, Statement, Command]:
    """Return the subject, the name in a sentence, and the command that shows the object."""
    if isinstance(held, PersistentVolumeClaim):
        return (
            Subject.of_claim(held.ref),
            stated("Claim {claim}", claim=held.ref),
            describe_claim(held),
        )
    return Subject.of_pv(held.name), stated("{volume}", volume=held.name), describe_volume(held)


def _deleted(context: RuleContext, held: PersistentVolumeClaim | PersistentVolume) -> str:
    return f"deleted {age_text(since(held.deleting_since, context))} ago"


# --------------------------------------------------------------------------------------------------
# A PV
# --------------------------------------------------------------------------------------------------


def _volume(context: RuleContext, volume: PersistentVolume) -> Iterator[Finding]:
    if volume.phase == "Bound":
        # The protection checks only the phase (isBeingUsed() in
        # pvprotection/pv_protection_controller.go@v1.36.3).
        if PV_PROTECTION in volume.finalizers:
            yield _before_its_claim(context, volume)
        return
    if not is_over(YOUNG, volume.deleting_since, context):
        return
    if PV_PROTECTION in volume.finalizers:
        yield _remaining(context, volume, PV_PROTECTION, _PV_PROTECTION)
    for finalizer in volume.finalizers:
        if finalizer.startswith(_ATTACHER):
            yield from _of_attacher(context, volume, finalizer)
        elif finalizer in _DELETES:
            # With Delete the deletion is in progress: the findings of reclaiming report it.
            if volume.reclaim_policy != "Delete":
                yield _remaining(context, volume, finalizer, PROVISIONER)
        elif finalizer != PV_PROTECTION:
            yield _foreign(context, volume, finalizer)


def _before_its_claim(context: RuleContext, volume: PersistentVolume) -> Finding:
    """Report RBD614: policy and finalizers of the PV decide whether the image is deleted."""
    is_reclaimed = bool(_DELETES & {*volume.finalizers})
    if volume.reclaim_policy != "Delete":
        fate = "Its image stays."
    elif is_reclaimed:
        fate = "Its image is deleted with it."
    else:
        fate = "Its image is left behind: no controller will delete it."
    return finding(
        Code.VOLUME_PROTECTED,
        Subject.of_pv(volume.name),
        stated(
            "{volume} is being deleted while claim {claim} is bound to it. A deletion cannot be "
            "undone: the PV remains as long as that claim does. {}",
            fate,
            volume=volume.name,
            claim=volume.claim,
        ),
        evidence=(
            f"{_deleted(context, volume)}, phase Bound, reclaim policy {volume.reclaim_policy}",
            f"finalizers {', '.join(volume.finalizers)}",
        ),
        commands=(
            kubectl("get pv", volume.name, options=_YAML),
            *(retain(volume) if is_reclaimed else ()),
        ),
        remedy="" if is_reclaimed else _KEEP_IT,
        recovery=Recovery(actor=_PV_PROTECTION, condition=f"claim {volume.claim} is gone"),
    )


_KEEP_IT: Final = (
    "Keep the claim as long as the volume is needed: its pods work. Note the volumeHandle: a new "
    "PV with this handle can be created later. Never remove the finalizer: the claim would become "
    "Lost."
)


def _of_attacher(
    context: RuleContext, volume: PersistentVolume, finalizer: str
) -> Iterator[Finding]:
    """Report RBD651: the PV remains until its last VolumeAttachment is gone."""
    attached, kube = context.volume.attachments, context.snapshot.kubernetes
    if isinstance(attached, NotObserved) or kube is None:
        return
    named = [attachment for attachment in attached if attachment.persistent_volume == volume.name]
    if named:
        yield _attached(context, volume, finalizer, named)
    elif context.kube.coverage.attachments():
        yield _remaining(context, volume, finalizer, ATTACHER)


_NEVER_ATTACHED: Final = (
    "Run `rbdagent who-holds` for the volume first. If no pod uses the claim, no node lists the "
    "volume in volumesInUse, and no client has the image, the VolumeAttachment can be deleted: "
    "external-attacher then removes its finalizers. While a pod needs the volume, the controller "
    "makes it again."
)


def _attached(
    context: RuleContext, volume: PersistentVolume, finalizer: str, named: list[VolumeAttachment]
) -> Finding:
    nodes = sorted({attachment.node_name for attachment in named})
    attached = any(attachment.attached for attachment in named)
    state = (
        stated("is still attached to {nodes}", nodes=nodes)
        if attached
        else stated("has a VolumeAttachment for {nodes}, which was never attached", nodes=nodes)
    )
    return finding(
        Code.VOLUME_HELD_BY_ATTACHMENT,
        Subject.of_pv(volume.name),
        stated("{volume} is being deleted and {}.", state, volume=volume.name),
        evidence=(
            f"finalizer {finalizer}",
            _deleted(context, volume),
            *(
                f"VolumeAttachment {attachment.name}: {attachment.node_name}"
                + (", being deleted" if attachment.deleting_since else "")
                + (f", {foreign(attachment.detach_error)}" if attachment.detach_error else "")
                for attachment in named
            ),
        ),
        remedy="" if attached else _NEVER_ATTACHED,
        commands=tuple(
            kubectl("describe volumeattachment", attachment.name) for attachment in named[:_SOME]
        ),
    )


# --------------------------------------------------------------------------------------------------
# A pod
# --------------------------------------------------------------------------------------------------


def _ended_pods(context: RuleContext, claim: PersistentVolumeClaim) -> Iterator[Finding]:
    """Report RBD654: all containers of a pod have ended, and its object remains."""
    for pod in users(context, claim):
        ended = pod.containers and all(
            container.state == "terminated" for container in pod.containers
        )
        # The deletionTimestamp of a pod already includes its grace period.
        if not (pod.finalizers and ended and pod.deleting_since is not None):
            continue
        if not is_over(SILENT, pod.deleting_since, context):
            continue
        yield finding(
            Code.POD_HELD_BY_FINALIZER,
            Subject.of_pod(pod.ref),
            stated(
                "Pod {pod} is being deleted, all its containers have ended, and finalizers hold "
                "it: {finalizers}. It no longer uses its volumes. Its replacement may wait for it.",
                pod=pod.ref,
                finalizers=pod.finalizers,
            ),
            evidence=(
                f"deleted at {pod.deleting_since}, finalizers {', '.join(pod.finalizers)}",
                *(f"owned by {owner}" for owner in pod.owners),
            ),
            commands=(
                kubectl("get pod", pod.ref.name, namespace=pod.ref.namespace, options=_YAML),
            ),
            recovery=Recovery(actor=f"the program that set {', '.join(pod.finalizers)}"),
        )


RULES: Final = (Rule(360, protected),)
