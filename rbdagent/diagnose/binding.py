"""RBD6xx: from a claim to its volume and back, as the PV controller and the provisioner do it.

Read in Kubernetes 1.36, pkg/controller/volume/persistentvolume (syncUnboundClaim, syncBoundClaim,
syncVolume), and in external-provisioner 5.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

from rbdagent.correlate.fits import Candidate, candidates, misfits
from rbdagent.correlate.identity import pods_of, volumes_of
from rbdagent.diagnose.case import Case, finding, quoted
from rbdagent.diagnose.times import age, spoken
from rbdagent.model import (
    Claim,
    Finding,
    Heals,
    KubeEvent,
    NotObserved,
    PersistentVolume,
    Pod,
    Severity,
    StorageClass,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

NO_PROVISIONER: Final = "kubernetes.io/no-provisioner"
WAITS: Final = "WaitForFirstConsumer"
_SILENT: Final = timedelta(minutes=1)
"""A provisioner that runs says within seconds that it has begun, or why it failed."""
_MOST_CANDIDATES: Final = 3


def unbound(case: Case) -> Iterator[Finding]:
    """RBD601 to RBD610: why a claim that was never bound has no volume."""
    claim = case.use.claim
    if claim is None or claim.phase == "Lost" or claim.bind_completed:
        return
    if claim.volume_name is not None:
        yield from _named_volume(case, claim)
        return
    yield from _without_volume(case, claim)


def _without_volume(case: Case, claim: Claim) -> Iterator[Finding]:
    """Follow syncUnboundClaim: a class that waits, a PV that fits, the class's provisioner."""
    classes = None if case.snapshot.kubernetes is None else case.snapshot.kubernetes.storage_classes
    if classes is None or isinstance(classes, NotObserved):
        yield _pending(case, claim)
        return
    name = claim.storage_class
    found = next((each for each in classes if each.name == name), None)
    if found is not None and found.binding_mode == WAITS and claim.selected_node is None:
        yield _waits_for_pod(case, claim, found)
    elif name and found is None:
        yield _class_missing(case, claim, classes)
    elif found is None or found.provisioner == NO_PROVISIONER:
        yield _nothing_fits(case, claim, classes)
    else:
        yield _provisioning(case, claim, found)


def _pending(case: Case, claim: Claim) -> Finding:
    """RBD403: all that can be said where the classes were not observed."""
    told = _told(case, claim)
    why = f" {told[-1].message}" if told else ""
    storage_class = f"storage class {claim.storage_class}" if claim.storage_class else "no class"
    return finding(
        "RBD403",
        f"pvc {claim.ref}",
        f"Claim {claim.ref} is {claim.phase} and has no volume yet: there is nothing that anybody "
        f"could hold.{why}",
        evidence=(
            f"phase {claim.phase}, {storage_class}, {', '.join(claim.access_modes) or 'no modes'}",
            *(quoted(each) for each in told[-3:]),
        ),
        commands=(_describe(claim),),
    )


def _class_missing(case: Case, claim: Claim, classes: tuple[StorageClass, ...]) -> Finding:
    known = ", ".join(sorted(each.name for each in classes)) or "none"
    return finding(
        "RBD601",
        f"pvc {claim.ref}",
        f"Claim {claim.ref} asks for storage class {claim.storage_class}, and there is none of "
        f"that name. There are: {known}.",
        evidence=(*_last_words(case, claim), *_near(case, claim)),
        commands=(f"kubectl get storageclass {claim.storage_class}",),
    )


def _nothing_fits(case: Case, claim: Claim, classes: tuple[StorageClass, ...]) -> Finding:
    near = _near(case, claim)
    seen = volumes_of(case.snapshot.kubernetes)
    count = f"None of the {len(seen)} PVs fits" if seen else "There is no PV"
    if claim.storage_class:
        why = f"storage class {claim.storage_class} makes none ({NO_PROVISIONER})"
    else:
        default = next((each.name for each in classes if each.is_default), None)
        why = "it names no storage class, so nobody makes one"
        why += (
            f"; the default class is {default}" if default and claim.storage_class is None else ""
        )
    return finding(
        "RBD602",
        f"pvc {claim.ref}",
        f"Claim {claim.ref} waits for a PV that fits, and {why}. {count}.",
        evidence=(*near, *_last_words(case, claim)),
        commands=(_describe(claim), "kubectl get pv"),
    )


def _waits_for_pod(case: Case, claim: Claim, found: StorageClass) -> Finding:
    users = _users(case, claim)
    if not users:
        return finding(
            "RBD603",
            f"pvc {claim.ref}",
            f"Claim {claim.ref} waits for its first pod: storage class {found.name} makes a volume "
            "only when the scheduler has chosen a node. No pod uses the claim yet.",
            evidence=_last_words(case, claim),
        )
    pod = users[0]
    why = pod.unschedulable or "the scheduler has said nothing of it"
    return finding(
        "RBD604",
        f"pod {pod.ref}",
        f"Claim {claim.ref} waits for {pod.ref} to get a node, and it gets none: {why}",
        evidence=(
            f"storage class {found.name}: {WAITS}",
            f"pod {pod.ref}: PodScheduled is False, {why}",
            *_last_words(case, claim),
        ),
        commands=(f"kubectl -n {pod.ref.namespace} describe pod {pod.ref.name}",),
    )


def _provisioning(case: Case, claim: Claim, found: StorageClass) -> Finding:
    told = _told(case, claim)
    failed = [each for each in told if each.reason == "ProvisioningFailed"]
    if failed:
        return _fails(claim, found, failed[-1])
    since = age(claim.created_at, case.snapshot.observed_at)
    begun = any(each.reason == "Provisioning" for each in told)
    if since is not None and since < _SILENT:
        return finding(
            "RBD605",
            f"pvc {claim.ref}",
            f"The volume of claim {claim.ref} is being made by {found.provisioner}, since "
            f"{spoken(since)}.",
            evidence=_last_words(case, claim),
        )
    return finding(
        "RBD606",
        f"pvc {claim.ref}",
        f"Claim {claim.ref} waits for {found.provisioner} to make its volume, for {spoken(since)}"
        + (": it has begun, and not ended." if begun else ", and that has said nothing.")
        + _is_installed(case, found.provisioner),
        evidence=_last_words(case, claim),
        commands=(_describe(claim), "kubectl get pods -A | grep -i provisioner"),
    )


def _fails(claim: Claim, found: StorageClass, event: KubeEvent) -> Finding:
    if "selfLink was empty" in event.message:
        return finding(
            "RBD608",
            f"pvc {claim.ref}",
            f"Claim {claim.ref} waits for a provisioner that is too old for this cluster: it asks "
            "for the object's selfLink, and Kubernetes gives none since 1.20.",
            evidence=(quoted(event), f"storage class {found.name}: {found.provisioner}"),
            commands=(f"kubectl get storageclass {found.name} -o yaml",),
        )
    return finding(
        "RBD607",
        f"pvc {claim.ref}",
        f"{found.provisioner} cannot make the volume of claim {claim.ref}: {event.message}",
        evidence=(quoted(event), f"{event.count} times, last at {event.last_seen}"),
        commands=(_describe(claim),),
    )


def _is_installed(case: Case, provisioner: str) -> str:
    kube = case.snapshot.kubernetes
    drivers = None if kube is None else kube.drivers
    if drivers is None or isinstance(drivers, NotObserved) or provisioner in drivers:
        return " Its pods run elsewhere in the cluster: look whether they do."
    return f" No CSIDriver object is named {provisioner}: it is not installed."


# --------------------------------------------------------------------------------------------------
# volumeName
# --------------------------------------------------------------------------------------------------


def _named_volume(case: Case, claim: Claim) -> Iterator[Finding]:
    """RBD609, RBD610: a claim that a user, or a race, has given the name of a PV."""
    kube = case.snapshot.kubernetes
    if kube is None or isinstance(kube.persistent_volumes, NotObserved):
        return
    volume = next(
        (each for each in kube.persistent_volumes if each.name == claim.volume_name), None
    )
    if volume is None:
        yield finding(
            "RBD609",
            f"pvc {claim.ref}",
            f"Claim {claim.ref} asks for {claim.volume_name} by name, and there is no such PV.",
            evidence=(f"phase {claim.phase}, volumeName {claim.volume_name}",),
            commands=("kubectl get pv", _describe(claim)),
        )
        return
    taken = volume.claim is not None and (
        str(volume.claim) != str(claim.ref) or volume.claim.uid not in (None, claim.ref.uid)
    )
    against = (f"it belongs to claim {volume.claim}",) if taken else misfits(claim, volume)
    if not against:
        return
    yield finding(
        "RBD610",
        f"pvc {claim.ref}",
        f"Claim {claim.ref} asks for {volume.name} by name, and cannot have it: "
        f"{'; '.join(against)}.",
        evidence=(f"{volume.name} is {volume.phase}", *_last_words(case, claim)),
        commands=(f"kubectl describe pv {volume.name}", _describe(claim)),
    )


# --------------------------------------------------------------------------------------------------
# The PV's side
# --------------------------------------------------------------------------------------------------


def reserved(case: Case) -> Iterator[Finding]:
    """RBD611: a PV that waits for one claim by name."""
    volume, claim = case.use.persistent_volume, case.use.claim
    if volume is None or volume.phase != "Available" or volume.claim is None:
        return
    if claim is None:
        why = "and there is no such claim"
    else:
        against = misfits(claim, volume)
        if not against:
            return
        why = f"and that claim does not fit: {'; '.join(against)}"
    yield finding(
        "RBD611",
        f"pv {volume.name}",
        f"{volume.name} is kept for claim {volume.claim}, {why}. No other claim gets it.",
        evidence=(f"phase Available, claimRef {volume.claim}, uid {volume.claim.uid or 'none'}",),
        commands=(f"kubectl describe pv {volume.name}",),
    )


def failed(case: Case) -> Iterator[Finding]:
    """RBD612: a PV whose reclaiming failed for good."""
    volume = case.use.persistent_volume
    if volume is None or volume.phase != "Failed":
        return
    yield finding(
        "RBD612",
        f"pv {volume.name}",
        f"{volume.name} is Failed: {volume.reason or 'its status says no reason'}.",
        evidence=(f"reclaim policy {volume.reclaim_policy}, claimRef {volume.claim}",),
        commands=(f"kubectl describe pv {volume.name}",),
    )


def protected(case: Case) -> Iterator[Finding]:
    """RBD613, RBD614: what is being deleted, and waits for whoever uses it."""
    claim, volume = case.use.claim, case.use.persistent_volume
    if claim is not None and claim.deleting_since is not None and claim.finalizers:
        users = [each for each in _users(case, claim) if each.phase in {"Pending", "Running", ""}]
        named = ", ".join(str(each.ref) for each in users)
        yield finding(
            "RBD613",
            f"pvc {claim.ref}",
            f"Claim {claim.ref} is being deleted, and waits "
            + (f"for its pods to end: {named}." if users else "for its finalizers."),
            evidence=(
                f"deleted at {claim.deleting_since}, finalizers {', '.join(claim.finalizers)}",
            ),
            severity=None if not users else Severity.WARNING,
            heals=Heals(by="the PVC protection controller", once=f"{named} is gone")
            if users
            else None,
            commands=tuple(
                f"kubectl -n {each.ref.namespace} get pod {each.ref.name}" for each in users[:3]
            ),
        )
    if volume is not None and volume.deleting_since is not None and volume.finalizers:
        yield finding(
            "RBD614",
            f"pv {volume.name}",
            f"{volume.name} is being deleted, and waits "
            + (
                f"for its claim {volume.claim} to go."
                if volume.phase == "Bound"
                else f"for its finalizers: {', '.join(volume.finalizers)}."
            ),
            evidence=(
                f"deleted at {volume.deleting_since}, phase {volume.phase}",
                f"finalizers {', '.join(volume.finalizers)}",
            ),
            commands=(f"kubectl describe pv {volume.name}",),
        )


# --------------------------------------------------------------------------------------------------
# Words
# --------------------------------------------------------------------------------------------------


def _near(case: Case, claim: Claim) -> tuple[str, ...]:
    """Tell of the PVs that come nearest why they are not it."""
    found = candidates(claim, volumes_of(case.snapshot.kubernetes))
    return tuple(_told_of(each) for each in found[:_MOST_CANDIDATES])


def _told_of(candidate: Candidate) -> str:
    return f"{candidate.volume.name} {'; '.join(candidate.objections) or 'would fit'}"


def _users(case: Case, claim: Claim) -> tuple[Pod, ...]:
    return tuple(
        each
        for each in pods_of(case.snapshot.kubernetes)
        if each.ref.namespace == claim.ref.namespace and claim.ref.name in each.claims
    )


def _told(case: Case, claim: Claim) -> list[KubeEvent]:
    """Give the claim's own events, the newest last."""
    return [
        each
        for each in case.use.events
        if each.kind == "PersistentVolumeClaim"
        and str(each.subject) == str(claim.ref)
        and each.subject.uid in (None, claim.ref.uid)
    ]


def _last_words(case: Case, claim: Claim) -> tuple[str, ...]:
    return tuple(quoted(each) for each in _told(case, claim)[-2:])


def _describe(claim: Claim) -> str:
    return f"kubectl -n {claim.ref.namespace} describe pvc {claim.ref.name}"


def volume_named(name: str | None, case: Case) -> PersistentVolume | None:
    """Give the PV of that name."""
    return next((each for each in volumes_of(case.snapshot.kubernetes) if each.name == name), None)
