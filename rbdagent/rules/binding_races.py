"""RBD634, RBD635: a claim whose volume depends on the order of two steps, before they happen.

The races are those of :data:`rbdagent.binding.RACES`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rbdagent.codes import Code
from rbdagent.commands import command
from rbdagent.correlate.pv_matching import is_reserved_for, objections, size_text
from rbdagent.model import (
    CollectScope,
    Finding,
    LifecycleStep,
    PersistentVolume,
    PersistentVolumeClaim,
    Severity,
    Subject,
    stated,
)
from rbdagent.rules.context import Rule, RuleContext, finding
from rbdagent.rules.entry import Entry
from rbdagent.rules.provisioner import server_version
from rbdagent.rules.pv_controller import (
    all_fitting,
    claims_of_target,
    describe_volume,
    knows_all_volumes,
    volumes_naming,
)
from rbdagent.rules.pvc_pending import NO_PROVISIONER, WAITS, class_of

if TYPE_CHECKING:
    from collections.abc import Iterator

ENTRIES: Final = (
    Entry(
        Code.FREE_VOLUME_NOT_RESERVED,
        Severity.INFO,
        "A free PV fits the claim, and nothing reserves it: the claim may get a new, empty volume.",
        remedy="If the claim is to get the data of this PV, write the claim's namespace and name "
        "into the PV's claimRef (spec.claimRef) before the first pod is created. The PV controller "
        "then binds the two at its next sync. If any volume will do, no action is needed.",
        recovery=None,
        step=LifecycleStep.PROVISION,
    ),
    Entry(
        Code.NEW_VOLUME_MAY_BE_RELEASED,
        Severity.INFO,
        "The claim was created again, and this version may release its new PV by mistake.",
        remedy="Wait until the claim is bound before data is written to it. Set Retain on the "
        "older PV if its data is needed. Update Kubernetes.",
        recovery=None,
        step=LifecycleStep.BIND,
    ),
)

_FIXED: Final = (1, 23)
"""Since this version, the PV controller asks the API server before it takes a claim with another
uid for a new one (kubernetes#105131, #105211)."""
_SHOWN: Final = 3


def _is_searching(claim: PersistentVolumeClaim) -> bool:
    """Return whether the PV controller searches a PV for a claim."""
    return (
        not claim.bind_completed
        and claim.phase == "Pending"
        and claim.volume_name is None
        and claim.deleting_since is None
    )


def free_volume(context: RuleContext) -> Iterator[Finding]:
    """Report RBD634: only the scheduler chooses a PV that is not reserved, or none.

    FindMatchingVolume (k8s.io/component-helpers/storage/volume/pv_helpers.go@v0.36.3) skips free
    PVs for the PV controller; FindPodVolumes
    (pkg/scheduler/framework/plugins/volumebinding/binder.go@v1.36.3) prefers them to a new volume.
    """
    for claim in claims_of_target(context):
        storage_class = class_of(context, claim)
        if (
            not _is_searching(claim)
            or claim.selected_node is not None
            or storage_class is None
            or storage_class.binding_mode != WAITS
            or storage_class.provisioner == NO_PROVISIONER
            or not knows_all_volumes(context)
            or _is_one_reserved(context, claim)
        ):
            continue
        free = [volume for volume in all_fitting(context, claim) if volume.claim is None]
        if free:
            yield _unreserved(claim, free, storage_class.provisioner)


def _is_one_reserved(context: RuleContext, claim: PersistentVolumeClaim) -> bool:
    return any(
        is_reserved_for(claim, volume) and not objections(claim, volume)
        for volume in volumes_naming(context, claim)
    )


def _unreserved(
    claim: PersistentVolumeClaim, free: list[PersistentVolume], provisioner: str
) -> Finding:
    more = " and more" if len(free) > _SHOWN else ""
    fits = "fits it and is free" if len(free) == 1 else "fit it and are free"
    return finding(
        Code.FREE_VOLUME_NOT_RESERVED,
        Subject.of_claim(claim.ref),
        stated(
            "Claim {claim} waits for its first pod, and {volumes}{} {}. Nothing reserves a PV for "
            "the claim. When the pod starts, the scheduler takes the smallest free PV that fits "
            "the claim and the node. If there is none at that moment, {provisioner} creates a "
            "new, empty volume.",
            more,
            fits,
            claim=claim.ref,
            volumes=[volume.name for volume in free[:_SHOWN]],
            provisioner=provisioner,
        ),
        evidence=(
            f"storage class {claim.storage_class}: {WAITS}",
            *(
                f"{volume.name} is {volume.phase}, {size_text(volume.capacity_bytes or 0)}, "
                "no claimRef"
                for volume in free[:_SHOWN]
            ),
            "the claim has no volume.kubernetes.io/selected-node",
        ),
        commands=(
            describe_volume(free[0]),
            command("rbdagent who-holds", f"pv/{free[0].name}"),
        )
        if len(free) == 1
        else (),
    )


def created_again(context: RuleContext) -> Iterator[Finding]:
    """Report RBD635: a claim that was deleted and created again, in Kubernetes before 1.23."""
    version = server_version(context)
    if version is None or version >= _FIXED:
        return
    shown = ".".join(map(str, version))
    for claim in claims_of_target(context):
        storage_class = class_of(context, claim)
        if not _is_searching(claim) or storage_class is None or claim.ref.uid is None:
            continue
        older = [
            volume
            for volume in volumes_naming(context, claim)
            if volume.claim is not None and volume.claim.uid not in (None, claim.ref.uid)
        ]
        if older and storage_class.provisioner != NO_PROVISIONER:
            yield finding(
                Code.NEW_VOLUME_MAY_BE_RELEASED,
                Subject.of_claim(claim.ref),
                stated(
                    "Claim {claim} has the name of an older claim. The PV controller of "
                    "Kubernetes {version} may still know only the older one when the new PV "
                    "appears: it then releases the new PV, and with reclaim policy Delete the "
                    "new image is deleted (kubernetes#105131).",
                    claim=claim.ref,
                    version=shown,
                ),
                evidence=(
                    f"Kubernetes {shown}: fixed in 1.23, perhaps in later patches of {shown}",
                    *(
                        f"{volume.name} is {volume.phase}, claimRef with uid "
                        f"{volume.claim.uid if volume.claim else ''}"
                        for volume in older[:_SHOWN]
                    ),
                    f"the claim's uid: {claim.ref.uid}",
                ),
                commands=(describe_volume(older[0]),),
            )


RULES: Final = (
    Rule(296, free_volume, CollectScope.STORAGE_CLASSES),
    Rule(304, created_again, CollectScope.STORAGE_CLASSES | CollectScope.VERSION),
)
