"""What becomes of a PV without its claim: judged in the order of ``syncVolume``."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

from rbdagent.commands import command
from rbdagent.diagnose.binding import (
    PROVISIONER,
    RETRY_S,
    SILENT,
    asked_for_life,
    binder,
    claim_named,
    claims_meant,
    describe_claim,
    describe_volume,
    free,
    is_fresh,
    is_over,
    outsiders,
    retain,
    since,
    told_of_volume,
    volumes_seen,
    words,
)
from rbdagent.diagnose.case import Case, finding, quoted, subject_of
from rbdagent.diagnose.provisioning import look_for, signs_of
from rbdagent.diagnose.times import spoken
from rbdagent.model import (
    Claim,
    Command,
    CsiSource,
    Finding,
    Heals,
    HolderKind,
    KubeEvent,
    NotObserved,
    PersistentVolume,
    Severity,
    Verdict,
    observed_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

_FAILED: Final = "VolumeFailedDelete"
_USED: Final = ("is still being used", "still attached to node")
_UNSTAGING: Final = timedelta(minutes=2)
"""The last pod's node may still be at its unstage: two tries of kubelet."""
_DELETING: Final = timedelta(minutes=3)
"""ceph-csi's provisioner gives one call 150 s; after that it says that it failed."""


def reserved(case: Case) -> Iterator[Finding]:
    """RBD611: a PV that waits for a claim by name, which was never made."""
    volume = case.use.persistent_volume
    if volume is None or volume.phase != "Available" or volume.claim is None:
        return
    if claim_named(volume.claim, case) is not None:
        return
    yield finding(
        "RBD611",
        f"pv {volume.name}",
        f"{volume.name} is kept for claim {volume.claim}, and there is no such claim. No other "
        "claim gets it.",
        evidence=(f"phase Available, claimRef {volume.claim}, uid {volume.claim.uid or 'none'}",),
        commands=(describe_volume(volume),),
        heals=binder(case, f"a claim {volume.claim} exists that fits it"),
    )


def failed(case: Case) -> Iterator[Finding]:
    """RBD612: Kubernetes itself was to delete the image, and cannot."""
    volume = case.use.persistent_volume
    if volume is None or volume.phase != "Failed" or volume.deleting_since is not None:
        return
    events = [each for each in told_of_volume(case, volume) if each.type == "Warning"]
    why = volume.reason or (words(events[-1]) if events else "its status says no reason")
    yield finding(
        "RBD612",
        f"pv {volume.name}",
        f"{volume.name} is Failed: {why}. Its image is untouched.",
        evidence=(
            f"reclaim policy {volume.reclaim_policy}, claimRef {volume.claim}",
            *(quoted(each) for each in events[-1:]),
        ),
        commands=(describe_volume(volume), *retain(volume), free(volume)),
    )


def released(case: Case) -> Iterator[Finding]:
    """RBD405, RBD406, RBD640 to RBD643: whose PV it was, and what is done with its image."""
    volume = case.use.persistent_volume
    if volume is None or volume.phase not in {"Released", "Bound"} or volume.claim is None:
        return
    found = claim_named(volume.claim, case)
    living = found if isinstance(found, Claim) else None
    if living is not None and living.ref.uid is not None and living.ref.uid == volume.claim.uid:
        yield from _of_living(case, volume, living)
    elif volume.phase == "Released" and not _is_wanted(case, volume):
        yield from _of_dead(case, volume)


def _is_wanted(case: Case, volume: PersistentVolume) -> bool:
    """Tell whether a claim asks for the very PV: what is between the two is said of the claim."""
    return any(each.volume_name == volume.name for each in claims_meant(case))


def _of_living(case: Case, volume: PersistentVolume, claim: Claim) -> Iterator[Finding]:
    """RBD406: the claim lives; the PV controller rights it at its next look."""
    if claim.volume_name != volume.name or volume.phase == "Bound":
        return
    overdue = is_over(SILENT, volume.phase_since, case)
    heals = binder(case)
    if overdue and not heals.once:
        heals = binder(case, "it works again")
    yield finding(
        "RBD406",
        f"pv {volume.name}",
        f"{volume.name} is Released although its claim {claim.ref} lives, for "
        f"{spoken(since(volume.phase_since, case))}. Do not delete it."
        + (" The PV controller, which rights that within 15 s, does not work." if overdue else ""),
        evidence=(f"claimRef.uid and the claim's uid are both {claim.ref.uid}",),
        commands=(*retain(volume), describe_volume(volume)),
        heals=heals,
        severity=_at_first(case, volume),
    )


def _at_first(case: Case, volume: PersistentVolume) -> Severity | None:
    """Give less than an error as long as the PV controller may not have looked again."""
    return None if is_over(SILENT, volume.phase_since, case) else Severity.WARNING


def bound_elsewhere(case: Case) -> Iterator[Finding]:
    """RBD644: two PVs came for one claim; the PV controller lets go of one at its next look."""
    for claim in claims_meant(case):
        for volume in volumes_seen(case):
            bound = volume.claim
            if claim.volume_name in (None, volume.name) or claim.ref.uid is None:
                continue
            if bound != claim.ref:
                continue
            yield _elsewhere(case, volume, claim)


def _elsewhere(case: Case, volume: PersistentVolume, claim: Claim) -> Finding:
    goes = volume.reclaim_policy == "Delete" and volume.provisioner is not None
    return finding(
        "RBD644",
        f"pv {volume.name}",
        f"{volume.name} is {volume.phase} for claim {claim.ref}, and that claim is bound to "
        f"{claim.volume_name}."
        + (" It was provisioned with reclaim policy Delete: its image goes." if goes else ""),
        evidence=(
            f"claimRef.uid and the claim's uid are both {claim.ref.uid}",
            f"the claim's volumeName: {claim.volume_name}",
        ),
        commands=(*retain(volume), describe_volume(volume), describe_claim(claim)),
        heals=binder(case, note="it gives its image up" if goes else "it frees the PV"),
        severity=_at_first(case, volume),
    )


def _of_dead(case: Case, volume: PersistentVolume) -> Iterator[Finding]:
    if volume.reclaim_policy == "Delete":
        yield _to_be_deleted(case, volume)
        return
    if volume.deleting_since is not None:
        # Its object goes, the image stays: whatever holds it, its finalizers tell.
        return
    yield finding(
        "RBD405",
        f"pv {volume.name}",
        f"{volume.name} is Released: its claim {volume.claim} is gone, and its reclaim policy "
        f"({volume.reclaim_policy or 'unknown'}) keeps it and its data.",
        evidence=(f"claimRef {volume.claim}, reclaim policy {volume.reclaim_policy}",),
        commands=(describe_volume(volume), *_look_first(case, volume)),
    )


def _look_first(case: Case, volume: PersistentVolume) -> tuple[Command, ...]:
    """Before anybody else gets it: is it free?"""
    if isinstance(outsiders(case, volume), NotObserved):
        return (command("rbdagent who-holds", f"pv/{volume.name}"),)
    return ()


# --------------------------------------------------------------------------------------------------
# Delete
# --------------------------------------------------------------------------------------------------


def _to_be_deleted(case: Case, volume: PersistentVolume) -> Finding:
    """RBD640 to RBD643: under way, held by somebody, failing, or nobody's business."""
    events = [each for each in told_of_volume(case, volume) if each.reason == _FAILED]
    event = events[-1] if events and is_fresh(events[-1], case) else None
    if event is not None and not any(each in event.message for each in _USED):
        return _deletion_fails(volume, event)
    if event is not None or (_holders(case) and not _only_mirror(case)):
        return _held(case, volume, event)
    stranger = _of_a_stranger(case, volume)
    young = not is_over(SILENT if stranger else _DELETING, volume.phase_since, case)
    kube = case.snapshot.kubernetes
    blind = kube is None or isinstance(kube.events, NotObserved)
    if young or blind:
        unseen = "" if young else " Whether anybody is at it was not observed: no events."
        return finding(
            "RBD640",
            f"pv {volume.name}",
            f"{volume.name} is Released, and its image is to be deleted, for "
            f"{spoken(since(volume.phase_since, case))}.{unseen}",
            evidence=(f"claimRef {volume.claim}, reclaim policy Delete",),
            commands=(describe_volume(volume),),
            severity=Severity.WARNING if unseen else None,
        )
    return _nobody_deletes(case, volume, stranger, events)


def _holders(case: Case) -> list[str]:
    """Name who has the image open; Ceph's own daemons come and go with it."""
    return [
        subject_of(each.holder)
        for each in case.judged
        if not each.holder.passing and each.holder.kind is not HolderKind.MGR
    ]


def _only_mirror(case: Case) -> bool:
    kinds = {each.holder.kind for each in case.judged if not each.holder.passing}
    return bool(kinds) and kinds <= {HolderKind.MIRROR, HolderKind.MGR}


def _held(case: Case, volume: PersistentVolume, event: KubeEvent | None) -> Finding:
    holding = _holders(case)
    attached = observed_of(case.use.attachments)
    nodes = sorted({each.node_name for each in attached if each.persistent_volume == volume.name})
    who = f" {', '.join(holding)} has it open." if holding else ""
    if not holding and nodes:
        who = f" By the controller's books {', '.join(nodes)} has it."
    mirror = (
        " It is rbd-mirror's daemons alone: ceph-csi counts those beyond mirrorDaemonCount of its "
        "ConfigMap (1, where it says nothing) as users."
        if _only_mirror(case)
        else ""
    )
    # A node that is still unstaging ends by itself; a client outside, or one that stays, does not.
    found = outsiders(case, volume)
    outside = bool(found) and not isinstance(found, NotObserved)
    stays = outside or bool(case.those(*_STAYS))
    passing = not stays and not is_over(_UNSTAGING, volume.phase_since, case)
    return finding(
        "RBD641",
        f"pv {volume.name}",
        f"{volume.name} is Released and is to be deleted; that waits until nobody has its image "
        f"open.{who}{mirror}",
        evidence=(
            f"claimRef {volume.claim}, reclaim policy Delete",
            *(f"VolumeAttachment {each.name}: {each.node_name}" for each in attached),
            *((quoted(event),) if event is not None else ()),
        ),
        commands=(command("rbdagent who-holds", f"pv/{volume.name}"),),
        heals=Heals(
            by=PROVISIONER,
            once=f"{holding[0]} has let go" if len(holding) == 1 else "nobody has the image open",
            within_s=RETRY_S,
        ),
        severity=Severity.INFO if passing else None,
    )


_STAYS: Final = (Verdict.ORPHANED, Verdict.PINNED, Verdict.RETURNED_DIRTY)


def _deletion_fails(volume: PersistentVolume, event: KubeEvent) -> Finding:
    return finding(
        "RBD642",
        f"pv {volume.name}",
        f"{volume.name} is Released and is to be deleted, and deleting its image fails: "
        f"{words(event)}",
        evidence=(
            quoted(event),
            f"{event.count} times, last at {event.last_seen}",
            f"claimRef {volume.claim}, reclaim policy Delete",
        ),
        commands=(describe_volume(volume),),
    )


def _of_a_stranger(case: Case, volume: PersistentVolume) -> str:
    """Say why no provisioner that is here takes the PV for its own, where that is certain."""
    driver = volume.source.driver if isinstance(volume.source, CsiSource) else None
    if volume.migrated_to is not None or driver is None:
        return ""
    if volume.provisioner not in (None, driver):
        return f"it is marked as {volume.provisioner}'s, and its driver is {driver}"
    kube = case.snapshot.kubernetes
    if kube is None or not asked_for_life(kube) or isinstance(kube.drivers, NotObserved):
        return ""
    return "" if driver in kube.drivers else f"no CSIDriver {driver} is installed"


def _nobody_deletes(
    case: Case, volume: PersistentVolume, stranger: str, events: list[KubeEvent]
) -> Finding:
    static = (
        "it is a static PV: external-provisioner deletes such images since 3.5 only"
        if volume.provisioner is None and not stranger
        else ""
    )
    why = stranger or static
    unknown = volume.phase_since is None
    driver = volume.source.driver if isinstance(volume.source, CsiSource) else volume.provisioner
    return finding(
        "RBD643",
        f"pv {volume.name}",
        f"{volume.name} has been Released and to be deleted for "
        f"{spoken(since(volume.phase_since, case))}, and nobody deletes it"
        f"{f': {why}' if why else ''}.",
        evidence=(
            f"claimRef {volume.claim}, reclaim policy Delete",
            f"made by {volume.provisioner or 'hand'}",
            *(signs_of(case, driver) if driver else ()),
            *(f"{quoted(each)}, last at {each.last_seen}" for each in events[-1:]),
        ),
        commands=(*(look_for(case, driver) if driver else ()), *retain(volume)),
        heals=Heals(note=why) if stranger else None,
        severity=Severity.WARNING if unknown else None,
    )
