"""What is being deleted and stays: no event tells of any of it, only objects do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rbdagent.commands import kubectl
from rbdagent.diagnose.binding import (
    PROVISIONER,
    SILENT,
    YOUNG,
    claims_meant,
    describe_claim,
    describe_volume,
    is_over,
    retain,
    since,
    users,
    users_seen,
)
from rbdagent.diagnose.case import Case, delete_pod, finding
from rbdagent.diagnose.times import spoken
from rbdagent.model import (
    Attachment,
    Claim,
    Command,
    Finding,
    Heals,
    NotObserved,
    PersistentVolume,
    Pod,
    Severity,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

PVC_PROTECTION: Final = "kubernetes.io/pvc-protection"
PV_PROTECTION: Final = "kubernetes.io/pv-protection"
_CLONES: Final = "provisioner.storage.kubernetes.io/cloning-protection"
_SNAPSHOTS: Final = "snapshot.storage.kubernetes.io/pvc-as-source-protection"
_ATTACHER: Final = "external-attacher/"
_DELETES: Final = frozenset(
    {"external-provisioner.volume.kubernetes.io/finalizer", "kubernetes.io/pv-controller"}
)
"""Whoever is to delete the image keeps its PV until that is done (HonorPVReclaimPolicy)."""
_PVC_PROTECTION: Final = "the PVC protection controller"
_PV_PROTECTION: Final = "the PV protection controller"
_CONTROLLERS: Final = (kubectl("get lease kube-controller-manager", namespace="kube-system"),)
_YAML: Final = ("-o", "yaml")
_SOME: Final = 5


def protected(case: Case) -> Iterator[Finding]:
    """RBD613, RBD614, RBD650 to RBD654: whom a claim, a PV or a pod that is to go waits for."""
    for claim in claims_meant(case):
        if claim.deleting_since is not None and claim.finalizers:
            yield from _claim(case, claim)
        yield from _pods(case, claim)
    volume = case.use.persistent_volume
    if volume is not None and volume.deleting_since is not None and volume.finalizers:
        yield from _volume(case, volume)


# --------------------------------------------------------------------------------------------------
# A claim
# --------------------------------------------------------------------------------------------------


def _claim(case: Case, claim: Claim) -> Iterator[Finding]:
    # Whoever is on no node has mounted nothing: the protection asks for pods with a nodeName.
    pods = [each for each in users(case, claim) if each.node_name is not None]
    if PVC_PROTECTION in claim.finalizers:
        if pods:
            yield _claim_used(case, claim, pods)
        elif users_seen(case, claim) and is_over(YOUNG, claim.deleting_since, case):
            yield _left(case, claim, PVC_PROTECTION, _PVC_PROTECTION)
    if not is_over(YOUNG, claim.deleting_since, case):
        return
    if {_CLONES, _SNAPSHOTS} & {*claim.finalizers}:
        yield _source(case, claim)
    for each in claim.finalizers:
        if each not in {PVC_PROTECTION, _CLONES, _SNAPSHOTS}:
            yield _strange(case, claim, each)


def _claim_used(case: Case, claim: Claim, pods: list[Pod]) -> Finding:
    """RBD613: finished pods keep a claim as well; a waiting one never gets it."""
    named = ", ".join(f"{each.ref} ({each.phase})" for each in pods[:_SOME])
    more = f" and {len(pods) - _SOME} more" if len(pods) > _SOME else ""
    refs = ", ".join(str(each.ref) for each in pods[:_SOME])
    waiting = [each for each in users(case, claim) if each.phase == "Pending"]
    never = f" {', '.join(str(each.ref) for each in waiting)} will not start." if waiting else ""
    finished = [each for each in pods if each.phase in {"Succeeded", "Failed"}]
    forgotten = len(finished) == len(pods)
    return finding(
        "RBD613",
        f"pvc {claim.ref}",
        f"Claim {claim.ref} is being deleted, and goes when its pods are gone: {named}{more}."
        + (" They have ended, and nobody removes them." if forgotten else "")
        + never,
        evidence=(_deleted(case, claim), f"finalizers {', '.join(claim.finalizers)}"),
        commands=(
            describe_claim(claim),
            *(delete_pod(each) for each in finished[:_SOME] if forgotten),
        ),
        heals=Heals(by=_PVC_PROTECTION, once=f"{refs}{more} {_is(pods)} gone"),
        severity=None if waiting or forgotten else Severity.INFO,
    )


def _is(pods: list[Pod]) -> str:
    return "is" if len(pods) == 1 else "are"


def _source(case: Case, claim: Claim) -> Finding:
    clones = _CLONES in claim.finalizers
    what = "a clone of it" if clones else "a snapshot of it"
    return finding(
        "RBD650",
        f"pvc {claim.ref}",
        f"Claim {claim.ref} is being deleted, and {what} is still being made.",
        evidence=(f"finalizers {', '.join(claim.finalizers)}", _deleted(case, claim)),
        commands=(
            kubectl("get pvc", namespace=claim.ref.namespace),
            kubectl("get volumesnapshot", namespace=claim.ref.namespace),
        ),
        heals=Heals(
            by=PROVISIONER if clones else "the snapshot controller",
            once="the clone's claim is bound" if clones else "the snapshot is ready",
        ),
    )


def _left(case: Case, held: Claim | PersistentVolume, finalizer: str, whose: str) -> Finding:
    """RBD653: what the finalizer was for is over, and whoever takes it away has not done so."""
    subject, what, show = _named(held)
    return finding(
        "RBD653",
        subject,
        f"{what} is being deleted, and {finalizer} is still there although nothing needs it any "
        f"more: {whose} takes it away, and seems not to work.",
        evidence=(f"finalizers {', '.join(held.finalizers)}", _deleted(case, held)),
        commands=(show, *(_CONTROLLERS if whose in {_PVC_PROTECTION, _PV_PROTECTION} else ())),
        heals=Heals(by=whose, once="it runs"),
    )


def _strange(case: Case, held: Claim | PersistentVolume, finalizer: str) -> Finding:
    subject, what, show = _named(held)
    return finding(
        "RBD652",
        subject,
        f"{what} is being deleted, and is held by {finalizer}.",
        evidence=(f"finalizers {', '.join(held.finalizers)}", _deleted(case, held)),
        commands=(show,),
        heals=Heals(by=f"whoever has set {finalizer}"),
    )


def _named(held: Claim | PersistentVolume) -> tuple[str, str, Command]:
    """Give subject, name in a sentence, and how to show it."""
    if isinstance(held, Claim):
        return f"pvc {held.ref}", f"Claim {held.ref}", describe_claim(held)
    return f"pv {held.name}", held.name, describe_volume(held)


def _deleted(case: Case, held: Claim | PersistentVolume) -> str:
    return f"deleted {spoken(since(held.deleting_since, case))} ago"


# --------------------------------------------------------------------------------------------------
# A PV
# --------------------------------------------------------------------------------------------------


def _volume(case: Case, volume: PersistentVolume) -> Iterator[Finding]:
    if volume.phase == "Bound":
        # That is all that the protection looks at.
        if PV_PROTECTION in volume.finalizers:
            yield _before_its_claim(case, volume)
        return
    if not is_over(YOUNG, volume.deleting_since, case):
        return
    if PV_PROTECTION in volume.finalizers:
        yield _left(case, volume, PV_PROTECTION, _PV_PROTECTION)
    for each in volume.finalizers:
        if each.startswith(_ATTACHER):
            yield from _of_attacher(case, volume, each)
        elif each in _DELETES:
            # With Delete it is at work: reclaiming tells.
            if volume.reclaim_policy != "Delete":
                yield _left(case, volume, each, PROVISIONER)
        elif each != PV_PROTECTION:
            yield _strange(case, volume, each)


def _before_its_claim(case: Case, volume: PersistentVolume) -> Finding:
    """RBD614: what becomes of the image depends on the policy, and on who is told of the PV."""
    told = bool(_DELETES & {*volume.finalizers})
    if volume.reclaim_policy != "Delete":
        fate = "Its image stays."
    elif told:
        fate = "Its image is deleted with it."
    else:
        fate = "Its image is left behind: nobody is told to delete it."
    return finding(
        "RBD614",
        f"pv {volume.name}",
        f"{volume.name} is being deleted while claim {volume.claim} is bound to it, and goes when "
        f"that claim goes. {fate}",
        evidence=(
            f"{_deleted(case, volume)}, phase Bound, reclaim policy {volume.reclaim_policy}",
            f"finalizers {', '.join(volume.finalizers)}",
        ),
        commands=(kubectl("get pv", volume.name, options=_YAML), *(retain(volume) if told else ())),
        heals=Heals(by=_PV_PROTECTION, once=f"claim {volume.claim} is gone"),
    )


def _of_attacher(case: Case, volume: PersistentVolume, finalizer: str) -> Iterator[Finding]:
    """RBD651: held until the last VolumeAttachment is gone."""
    attached, kube = case.use.attachments, case.snapshot.kubernetes
    if isinstance(attached, NotObserved) or kube is None:
        return
    named = [each for each in attached if each.persistent_volume == volume.name]
    if named:
        yield _attached(case, volume, finalizer, named)
    elif kube.attachments_complete:
        yield _left(case, volume, finalizer, "external-attacher")


def _attached(
    case: Case, volume: PersistentVolume, finalizer: str, named: list[Attachment]
) -> Finding:
    nodes = ", ".join(sorted({each.node_name for each in named}))
    return finding(
        "RBD651",
        f"pv {volume.name}",
        f"{volume.name} is being deleted, and is still attached to {nodes}.",
        evidence=(
            f"finalizer {finalizer}",
            _deleted(case, volume),
            *(
                f"VolumeAttachment {each.name}: {each.node_name}"
                + (", being deleted" if each.deleting_since else "")
                + (f", {each.detach_error}" if each.detach_error else "")
                for each in named
            ),
        ),
        commands=tuple(
            kubectl("describe volumeattachment", attachment.name) for attachment in named[:_SOME]
        ),
    )


# --------------------------------------------------------------------------------------------------
# A pod
# --------------------------------------------------------------------------------------------------


def _pods(case: Case, claim: Claim) -> Iterator[Finding]:
    """RBD654: its containers are done with its volumes, and its object stays."""
    for pod in users(case, claim):
        ended = pod.containers and all(each.state == "terminated" for each in pod.containers)
        # A pod's deletionTimestamp has its grace period in it already.
        if not (pod.finalizers and ended and pod.deleting_since is not None):
            continue
        if not is_over(SILENT, pod.deleting_since, case):
            continue
        yield finding(
            "RBD654",
            f"pod {pod.ref}",
            f"Pod {pod.ref} is being deleted, all its containers have ended, and it is held by "
            f"{', '.join(pod.finalizers)}. It uses its volumes no more; whoever is to replace it "
            "may wait for it.",
            evidence=(
                f"deleted at {pod.deleting_since}, finalizers {', '.join(pod.finalizers)}",
                *(f"owned by {each}" for each in pod.owners),
            ),
            commands=(
                kubectl("get pod", pod.ref.name, namespace=pod.ref.namespace, options=_YAML),
            ),
            heals=Heals(by=f"whoever has set {', '.join(pod.finalizers)}"),
        )
