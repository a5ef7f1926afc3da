"""Claims that were bound once, and are without their PV: judged in the order of syncBoundClaim."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rbdagent.commands import kubectl
from rbdagent.correlate.fits import is_kept_for
from rbdagent.diagnose.binding import (
    binder,
    claim_named,
    claims_meant,
    describe_claim,
    describe_volume,
    every_volume,
    hand_over,
    patch_claim,
    retain,
    spoken_outsiders,
    told_of_claim,
    users,
    volume_named,
    volumes_seen,
)
from rbdagent.diagnose.case import Case, finding, quoted
from rbdagent.diagnose.pending import due
from rbdagent.model import Claim, Command, Finding, NotObserved, OtherSource, PersistentVolume

if TYPE_CHECKING:
    from collections.abc import Iterator


def lost(case: Case) -> Iterator[Finding]:
    """RBD404, RBD630 to RBD632: Lost, or about to be; RBD626: about to be bound again."""
    for claim in claims_meant(case):
        going = claim.deleting_since is not None
        if not going and (claim.bind_completed or claim.phase == "Lost"):
            yield from _without_its_volume(case, claim)


def _without_its_volume(case: Case, claim: Claim) -> Iterator[Finding]:
    if claim.volume_name is None:
        yield _nameless(case, claim)
        return
    volume = volume_named(claim.volume_name, case)
    if volume is None:
        yield _gone(case, claim, claim.volume_name)
    elif isinstance(volume, NotObserved):
        if claim.phase == "Lost":
            yield _unseen(case, claim, volume)
    elif volume.claim is not None and not _is_its(claim, volume):
        yield _misbound(case, claim, volume)
    elif claim.phase != "Bound":
        yield due(case, claim, volume)


def _is_its(claim: Claim, volume: PersistentVolume) -> bool:
    """Tell whether a PV's claimRef carries the claim's uid: its name alone is not enough."""
    return volume.claim is not None and volume.claim.uid == claim.ref.uid


def _said(case: Case, claim: Claim) -> tuple[str, ...]:
    """Quote what was said when it was lost; that is said once, and forgotten within the hour."""
    reasons = {"ClaimLost", "ClaimMisbound"}
    return tuple(quoted(each) for each in told_of_claim(case, claim) if each.reason in reasons)[-1:]


def _still_runs(case: Case, claim: Claim) -> str:
    """Say that a pod works on: kubelet unmounts nothing for a claim's phase."""
    running = [each for each in users(case, claim) if each.phase == "Running"]
    if not running:
        return ""
    named = ", ".join(str(each.ref) for each in running)
    return f" {named} works on with the volume, and will not start again without the claim."


_YAML: Final = ("-o", "yaml")


def _volume_of(claim: Claim, *options: str) -> Command:
    return kubectl("get pv", str(claim.volume_name), options=options)


def _unseen(case: Case, claim: Claim, why: NotObserved) -> Finding:
    """RBD403: Lost, and nobody could look why."""
    return finding(
        "RBD403",
        f"pvc {claim.ref}",
        f"Claim {claim.ref} is Lost, and its PV could not be looked at.{_still_runs(case, claim)}",
        evidence=(f"volumeName {claim.volume_name}: {why.reason}", *_said(case, claim)),
        commands=(_volume_of(claim, *_YAML), describe_claim(claim)),
    )


def _nameless(case: Case, claim: Claim) -> Finding:
    """RBD630: only YAML can make it: volumeName cannot be taken out of a claim."""
    named = [
        each
        for each in every_volume(case) or ()
        if each.claim is not None and str(each.claim) == str(claim.ref)
    ]
    cure: tuple[Command, ...] = ()
    if len(named) == 1:
        its = named[0]
        hand = () if _is_its(claim, its) else hand_over(case, claim, its)
        cure = (*hand, patch_claim(claim, {"volumeName": its.name}))
    return finding(
        "RBD630",
        f"pvc {claim.ref}",
        f"Claim {claim.ref} is marked as bound, and names no PV."
        + (f" {', '.join(each.name for each in named)} names it." if named else "")
        + _still_runs(case, claim),
        evidence=(
            f"phase {claim.phase}, pv.kubernetes.io/bind-completed, no volumeName",
            *_said(case, claim),
        ),
        commands=cure or (describe_claim(claim), kubectl("get pv")),
        heals=binder(case, "the claim's volumeName is set again"),
    )


def _gone(case: Case, claim: Claim, name: str) -> Finding:
    """RBD631: whatever the event says, no data went with a mere PV object."""
    return finding(
        "RBD631",
        f"pvc {claim.ref}",
        f"Claim {claim.ref} was bound to {name}, and there is no such PV any more. That deletes "
        f"no image: look for it before you give it up.{_still_runs(case, claim)}",
        evidence=(
            f"phase {claim.phase}, volumeName {name}",
            f"the claim's uid: {claim.ref.uid}",
            *_said(case, claim),
        ),
        remedy=f"Make a PV {name} again, from a backup of its YAML or by hand: the same driver, "
        "volumeHandle and volumeAttributes, reclaim policy Retain, and in spec.claimRef the "
        f"claim's name and its uid {claim.ref.uid}. Without that uid the claim stays Lost.",
        commands=(
            kubectl("get pv", name),
            kubectl("get pvc", claim.ref.name, namespace=claim.ref.namespace, options=_YAML),
        ),
        heals=binder(
            case, f"a PV {name} exists whose claimRef carries the claim's uid, or that has none"
        ),
    )


def _misbound(case: Case, claim: Claim, volume: PersistentVolume) -> Finding:
    """RBD404 and RBD632: a restore, or truly two claims."""
    bound = volume.claim
    other = None if bound is None else claim_named(bound, case)
    uid = "none" if bound is None or bound.uid is None else bound.uid
    evidence = (
        f"claimRef of {volume.name}: {bound}, uid {uid}",
        f"the claim's uid: {claim.ref.uid}",
        f"claim {claim.phase}, {volume.name} {volume.phase}, policy {volume.reclaim_policy}",
        *_said(case, claim),
    )
    same_name = str(bound) == str(claim.ref)
    if not same_name and isinstance(other, Claim) and is_kept_for(other, volume):
        return finding(
            "RBD632",
            f"pvc {claim.ref}",
            f"Claims {claim.ref} and {other.ref} both call {volume.name} theirs, and it is "
            f"{other.ref}'s.{_still_runs(case, claim)}",
            evidence=evidence,
            commands=(describe_volume(volume), describe_claim(other), describe_claim(claim)),
        )
    known = same_name or other is None
    restored = " That is what restoring YAML into another cluster leaves." if same_name else ""
    carries = "no uid" if uid == "none" else f"another uid ({uid})"
    goes = "its data is deleted" if _is_of_another_driver(volume) else _IMAGE_GOES
    danger = (
        f" {volume.name} is Released with reclaim policy Delete: {goes}."
        if volume.reclaim_policy == "Delete" and volume.phase == "Released"
        else ""
    )
    return finding(
        "RBD404",
        f"pvc {claim.ref}",
        f"Claim {claim.ref} and {volume.name} do not belong together: the PV's claimRef carries "
        f"{carries}.{restored}{danger}"
        f"{_still_runs(case, claim)}",
        evidence=(
            *evidence,
            *(
                (spoken_outsiders(case, volume),)
                if known and not _is_of_another_driver(volume)
                else ()
            ),
        ),
        commands=hand_over(case, claim, volume)
        if known
        else (*retain(volume), describe_volume(volume), describe_claim(claim)),
        heals=binder(case, f"the claimRef of {volume.name} carries this claim's uid"),
    )


_IMAGE_GOES: Final = "its image is deleted as soon as no client watches it"


def _is_of_another_driver(volume: PersistentVolume) -> bool:
    return isinstance(volume.source, OtherSource)


def older_volumes(case: Case) -> Iterator[Finding]:
    """RBD633: a claim has a volume, and another one is kept for its name: where is the data?"""
    for claim in claims_meant(case):
        if claim.phase != "Bound" or claim.volume_name is None:
            continue
        kept = [
            each
            for each in sorted(volumes_seen(case), key=lambda each: each.name)
            if each.name != claim.volume_name
            and each.phase in {"Available", "Released"}
            and each.claim is not None
            and str(each.claim) == str(claim.ref)
            and each.claim.uid != claim.ref.uid
        ]
        for volume in kept:
            uid = volume.claim.uid if volume.claim else None
            yield finding(
                "RBD633",
                f"pv {volume.name}",
                f"Claim {claim.ref} is bound to {claim.volume_name}, and {volume.name}, which is "
                f"{volume.phase}, names a claim of the same name. Data that is missed in the one "
                "may be in the other.",
                evidence=(
                    f"{volume.name} was made {volume.created_at or 'at an unknown time'}",
                    f"claimRef of {volume.name}: {claim.ref}, uid {uid or 'none'}",
                ),
                commands=(describe_volume(volume), kubectl("describe pv", str(claim.volume_name))),
            )
