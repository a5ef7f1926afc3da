"""RBD404, RBD63x: claims that were bound once and have lost their PV.

The order is that of ``syncBoundClaim``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rbdagent.codes import Code
from rbdagent.commands import command, kubectl
from rbdagent.correlate.pv_matching import is_reserved_for
from rbdagent.model import (
    CollectScope,
    Command,
    Finding,
    LifecycleStep,
    NotObserved,
    OtherSource,
    PersistentVolume,
    PersistentVolumeClaim,
    Recovery,
    Severity,
    Subject,
    stated,
)
from rbdagent.parse.volume import DRIVER_SUFFIX
from rbdagent.rules.context import Rule, RuleContext, finding
from rbdagent.rules.entry import Entry
from rbdagent.rules.pv_controller import (
    BINDER,
    SYNC_S,
    binder,
    claim_named,
    claims_of_target,
    describe_claim,
    describe_volume,
    external_watchers_text,
    hand_over,
    knows_all_volumes,
    loss_events,
    patch_claim,
    retain,
    running_pods_text,
    volume_named,
    volumes_naming,
)
from rbdagent.rules.pvc_pending import binding_due, class_of, volume_not_observed

if TYPE_CHECKING:
    from collections.abc import Iterator

ENTRIES: Final = (
    Entry(
        Code.CLAIM_LOST,
        Severity.ERROR,
        "The claim names a PV, but the PV's claimRef does not match the claim.",
        remedy="Set the PV to Retain first. Make sure that no other cluster uses the volume. "
        "Then write the uid of the existing claim into the PV's claimRef. It does not help to "
        "remove the uid: a claim that was bound once accepts only a PV with the claim's own uid, "
        "or without any claimRef.",
        recovery=Recovery(
            actor=BINDER, condition="the PV's claimRef contains the claim's uid", within_s=SYNC_S
        ),
        step=LifecycleStep.BIND,
    ),
    Entry(
        Code.REFERENCE_LOST,
        Severity.ERROR,
        "The claim is marked as bound, and names no PV.",
        remedy="Set the claim's volumeName again. Or remove the annotation bind-completed: the "
        "claim is then bound like a new one, and a class with a provisioner creates a new, empty "
        "volume for it.",
        recovery=Recovery(actor=BINDER, condition="volumeName is set again", within_s=SYNC_S),
        step=LifecycleStep.BIND,
    ),
    Entry(
        Code.VOLUME_GONE,
        Severity.ERROR,
        "The PV of a bound claim no longer exists.",
        remedy="Create the PV again with the same name: with the same driver and volumeHandle, "
        "reclaim policy Retain, and the uid of the existing claim in its claimRef.",
        recovery=Recovery(
            actor=BINDER, condition="a PV with that name exists and fits", within_s=SYNC_S
        ),
        step=LifecycleStep.BIND,
    ),
    Entry(
        Code.CLAIMED_TWICE,
        Severity.ERROR,
        "Two existing claims name the same PV.",
        remedy="Delete this claim, which deletes no image because the PV belongs to the other "
        "claim. Create the claim again with a separate PV: a clone or a snapshot, if it needs the "
        "same data. Never create a second PV of the same image.",
        recovery=Recovery(note="the PV stays bound to the other claim"),
        step=LifecycleStep.BIND,
    ),
    Entry(
        Code.OLDER_VOLUME_LEFT,
        Severity.INFO,
        "The claim is bound, and another PV still names a claim with the same name.",
        remedy="If the data is in the other PV: set both PVs to Retain, stop the pods, delete "
        "the claim, and create it again with volumeName.",
        recovery=None,
    ),
)


def lost(context: RuleContext) -> Iterator[Finding]:
    """Report RBD404, RBD630 to RBD632: a claim is or will be Lost; RBD626: soon bound again."""
    for claim in claims_of_target(context):
        going = claim.deleting_since is not None
        if not going and (claim.bind_completed or claim.phase == "Lost"):
            yield from _without_its_volume(context, claim)


def _without_its_volume(context: RuleContext, claim: PersistentVolumeClaim) -> Iterator[Finding]:
    if claim.volume_name is None:
        yield _without_volume_name(context, claim)
        return
    volume = volume_named(claim.volume_name, context)
    if volume is None:
        yield _gone(context, claim, claim.volume_name)
    elif isinstance(volume, NotObserved):
        if claim.phase == "Lost":
            yield volume_not_observed(context, claim, volume)
    elif volume.claim is not None and not _has_uid_of(claim, volume):
        yield _misbound(context, claim, volume)
    elif claim.phase != "Bound":
        yield binding_due(context, claim, volume)


def _has_uid_of(claim: PersistentVolumeClaim, volume: PersistentVolume) -> bool:
    """Return whether a PV's claimRef contains the claim's uid: the name is not enough."""
    return volume.claim is not None and volume.claim.uid == claim.ref.uid


_YAML: Final = ("-o", "yaml")


def _without_volume_name(context: RuleContext, claim: PersistentVolumeClaim) -> Finding:
    """Report RBD630: only YAML can create this state: volumeName cannot be removed from a claim."""
    named = volumes_naming(context, claim) if knows_all_volumes(context) else []
    fix: tuple[Command, ...] = ()
    if len(named) == 1:
        volume = named[0]
        rebind = () if _has_uid_of(claim, volume) else hand_over(context, claim, volume)
        fix = (*rebind, patch_claim(claim, {"volumeName": volume.name}))
    return finding(
        Code.REFERENCE_LOST,
        Subject.of_claim(claim.ref),
        stated(
            "Claim {claim} is marked as bound but names no PV.{}{}",
            stated(" PVs that name it: {volumes}.", volumes=[volume.name for volume in named])
            if named
            else "",
            running_pods_text(context, claim),
            claim=claim.ref,
        ),
        evidence=(
            f"phase {claim.phase}, pv.kubernetes.io/bind-completed, no volumeName",
            *loss_events(context, claim),
        ),
        commands=fix or (describe_claim(claim), kubectl("get pv")),
        recovery=binder(context, "the claim's volumeName is set again"),
    )


def _gone(context: RuleContext, claim: PersistentVolumeClaim, name: str) -> Finding:
    """Report RBD631: deleting a PV object deletes no data, whatever the event states."""
    return finding(
        Code.VOLUME_GONE,
        Subject.of_claim(claim.ref),
        stated(
            "Claim {claim} was bound to {volume}, and this PV no longer exists. That alone "
            "deletes no image: whether it exists decides what to do.{}",
            running_pods_text(context, claim),
            claim=claim.ref,
            volume=name,
        ),
        evidence=(
            f"phase {claim.phase}, volumeName {name}",
            f"the claim's uid: {claim.ref.uid}",
            *loss_events(context, claim),
        ),
        remedy=f"If the image exists, create PV {name} again, from a backup of its YAML or by "
        "hand: with the same driver, volumeHandle and volumeAttributes, reclaim policy Retain, and "
        f"in spec.claimRef the claim's name and its uid {claim.ref.uid}. Without that uid the "
        "claim stays Lost. Search for the image first: the journal of ceph-csi has its uuid under "
        "the name of the PV, unless the pool, the RADOS namespace or the name was another one. "
        "Only if the image certainly does not exist, as after a restore into a cluster whose PVs "
        "were deleted with their images: delete the claim, and create it again without "
        "volumeName. That makes an empty volume.",
        commands=(
            *_journal_entry(context, claim, name),
            kubectl("get pv", name),
            kubectl("get pvc", claim.ref.name, namespace=claim.ref.namespace, options=_YAML),
        ),
        recovery=binder(
            context,
            f"a PV {name} exists whose claimRef contains the claim's uid, or that has no claimRef",
        ),
    )


def _journal_entry(
    context: RuleContext, claim: PersistentVolumeClaim, name: str
) -> tuple[Command, ...]:
    """Return the command that shows whether ceph-csi knows an image of a PV.

    The key exists as long as the image does (internal/journal/voljournal.go@52fcb7b, ReserveName
    and UndoReservation).
    """
    found = class_of(context, claim)
    if found is None or not found.pool or not found.provisioner.endswith(DRIVER_SUFFIX):
        return ()
    key = f"csi.volume.{name}"
    pool = f"--pool={found.pool}"
    return (command("rados getomapval csi.volumes.default", key, options=(pool,)),)


def _misbound(
    context: RuleContext, claim: PersistentVolumeClaim, volume: PersistentVolume
) -> Finding:
    """Report RBD404 and RBD632: a restored claim, or two existing claims."""
    bound = volume.claim
    other = None if bound is None else claim_named(bound, context)
    uid = "none" if bound is None or bound.uid is None else bound.uid
    evidence = (
        f"claimRef of {volume.name}: {bound}, uid {uid}",
        f"the claim's uid: {claim.ref.uid}",
        f"claim {claim.phase}, {volume.name} {volume.phase}, policy {volume.reclaim_policy}",
        *loss_events(context, claim),
    )
    same_name = str(bound) == str(claim.ref)
    if (
        not same_name
        and isinstance(other, PersistentVolumeClaim)
        and is_reserved_for(other, volume)
    ):
        return finding(
            Code.CLAIMED_TWICE,
            Subject.of_claim(claim.ref),
            stated(
                "Claims {claim} and {other_claim} both name {volume}, which belongs to "
                "{other_claim}.{}",
                running_pods_text(context, claim),
                claim=claim.ref,
                other_claim=other.ref,
                volume=volume.name,
            ),
            evidence=evidence,
            commands=(describe_volume(volume), describe_claim(other), describe_claim(claim)),
        )
    known = same_name or other is None
    restored = " YAML that is restored into another cluster has this effect." if same_name else ""
    contained = "no uid" if uid == "none" else stated("another uid ({uid})", uid=uid)
    danger_text = "its data is deleted" if _is_of_another_driver(volume) else _IMAGE_DELETED
    danger = (
        stated(
            " {volume} is Released with reclaim policy Delete: {}.", danger_text, volume=volume.name
        )
        if volume.reclaim_policy == "Delete" and volume.phase == "Released"
        else ""
    )
    return finding(
        Code.CLAIM_LOST,
        Subject.of_claim(claim.ref),
        stated(
            "Claim {claim} names {volume}, but the PV's claimRef contains {}.{}{}{}",
            contained,
            restored,
            danger,
            running_pods_text(context, claim),
            claim=claim.ref,
            volume=volume.name,
        ),
        evidence=(
            *evidence,
            *(
                (external_watchers_text(context, volume),)
                if known and not _is_of_another_driver(volume)
                else ()
            ),
        ),
        commands=hand_over(context, claim, volume)
        if known
        else (*retain(volume), describe_volume(volume), describe_claim(claim)),
        recovery=binder(context, f"the claimRef of {volume.name} contains this claim's uid"),
    )


_IMAGE_DELETED: Final = "its image is deleted as soon as no client watches it"


def _is_of_another_driver(volume: PersistentVolume) -> bool:
    return isinstance(volume.source, OtherSource)


def older_volumes(context: RuleContext) -> Iterator[Finding]:
    """Report RBD633: a claim has a volume, and its name is reserved on a PV that may have data."""
    for claim in claims_of_target(context):
        if claim.phase != "Bound" or claim.volume_name is None:
            continue
        older = [
            volume
            for volume in volumes_naming(context, claim)
            if volume.name != claim.volume_name
            and volume.phase in {"Available", "Released"}
            and volume.claim is not None
            and volume.claim.uid != claim.ref.uid
        ]
        for volume in older:
            uid = volume.claim.uid if volume.claim else None
            yield finding(
                Code.OLDER_VOLUME_LEFT,
                Subject.of_pv(volume.name),
                stated(
                    "Claim {claim} is bound to {volume}. {other_volume} is {phase} and names a "
                    "claim with the same name. Data that is missing in one of the two PVs may be "
                    "in the other.",
                    claim=claim.ref,
                    volume=claim.volume_name,
                    other_volume=volume.name,
                    phase=volume.phase,
                ),
                evidence=(
                    f"{volume.name} was created {volume.created_at or 'at an unknown time'}",
                    f"claimRef of {volume.name}: {claim.ref}, uid {uid or 'none'}",
                ),
                commands=(describe_volume(volume), kubectl("describe pv", str(claim.volume_name))),
            )


RULES: Final = (
    Rule(310, lost, CollectScope.PROVISIONERS | CollectScope.STORAGE_CLASSES),
    Rule(370, older_volumes),
)
