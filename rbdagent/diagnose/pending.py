"""Why a claim that was never bound has no volume: judged in the order of ``syncUnboundClaim``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rbdagent.commands import command, kubectl
from rbdagent.correlate.fits import is_kept_for, objections, refusals
from rbdagent.diagnose import provisioning
from rbdagent.diagnose.binding import (
    BINDER,
    CONTROLLER_MANAGER,
    SILENT,
    SYNC_S,
    annotate_claim,
    asked_for_life,
    binder,
    changes,
    claim_named,
    claims_meant,
    controller_lease,
    describe_claim,
    describe_volume,
    every_volume,
    fitting,
    hand_over,
    is_over,
    lapsed,
    last_words,
    live_users,
    near,
    patch_claim,
    since,
    spoken_candidate,
    spoken_lease,
    spoken_objections,
    spoken_outsiders,
    told_of_claim,
    users_seen,
    volume_named,
    weight,
)
from rbdagent.diagnose.case import Case, finding, quoted
from rbdagent.diagnose.times import spoken
from rbdagent.model import (
    Claim,
    Command,
    Finding,
    Heals,
    NotObserved,
    PersistentVolume,
    Pod,
    Severity,
    StorageClass,
    observed_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

NO_PROVISIONER: Final = "kubernetes.io/no-provisioner"
WAITS: Final = "WaitForFirstConsumer"
_IN_TREE: Final = "kubernetes.io/"
_REMOVED: Final = {"kubernetes.io/rbd": (1, 31)}
"""In-tree plugins without a CSI driver that has taken over, and the version that lacks them."""
_NO_PLUGIN: Final = "no volume plugin matched"
_GIVES_DEFAULT: Final = (1, 26)
"""Since then a default class is given to claims that are there already."""
_GATES: Final = "scheduling gates"


def unbound(case: Case) -> Iterator[Finding]:
    """RBD403, RBD601 to RBD626: why a claim that was never bound has no volume."""
    for claim in claims_meant(case):
        if _is_pending(claim):
            yield from _pending(case, claim)


def _is_pending(claim: Claim) -> bool:
    return (
        not claim.bind_completed
        and claim.phase not in {"Bound", "Lost"}
        and claim.deleting_since is None
    )


def _pending(case: Case, claim: Claim) -> Iterator[Finding]:
    """Ask first for the PV that it names, then for PVs that name it, then for its class."""
    if claim.volume_name is not None:
        yield from _named(case, claim, claim.volume_name)
        return
    too_old = provisioning.said_too_old(case, claim)
    if too_old is not None:
        yield too_old
        return
    kube = case.snapshot.kubernetes
    if kube is None or isinstance(kube.storage_classes, NotObserved):
        yield _unexplained(case, claim)
        return
    kept = [each for each in every_volume(case) or () if is_kept_for(claim, each)]
    if kept:
        yield from _kept(case, claim, sorted(kept, key=lambda each: each.name))
        return
    yield from _by_class(case, claim, kube.storage_classes)


def _unexplained(case: Case, claim: Claim) -> Finding:
    """RBD403: all that can be said where the classes were not observed."""
    events = told_of_claim(case, claim)
    why = f" {events[-1].message}" if events else ""
    storage_class = f"storage class {claim.storage_class}" if claim.storage_class else "no class"
    return finding(
        "RBD403",
        f"pvc {claim.ref}",
        f"Claim {claim.ref} is {claim.phase or 'new'} and has no volume yet: there is nothing that "
        f"anybody could hold.{why}",
        evidence=(
            f"phase {claim.phase}, {storage_class}, {', '.join(claim.access_modes) or 'no modes'}",
            *(quoted(each) for each in events[-3:]),
        ),
        commands=(
            *(() if asked_for_life(case.snapshot.kubernetes) else (_diagnose(claim),)),
            describe_claim(claim),
        ),
        severity=weight(case, claim.created_at),
    )


def _diagnose(claim: Claim) -> Command:
    return command("rbdagent diagnose", f"pvc/{claim.ref.namespace}/{claim.ref.name}")


# --------------------------------------------------------------------------------------------------
# volumeName
# --------------------------------------------------------------------------------------------------


def _named(case: Case, claim: Claim, name: str) -> Iterator[Finding]:
    """RBD609, RBD610, RBD624: a claim that names a PV, by its user's or its backup's will."""
    volume = volume_named(name, case)
    if isinstance(volume, NotObserved):
        yield _unexplained(case, claim)
    elif volume is None:
        yield finding(
            "RBD609",
            f"pvc {claim.ref}",
            f"Claim {claim.ref} asks for PV {name} by name, and there is none. No event says so.",
            evidence=(f"phase {claim.phase}, volumeName {name}",),
            commands=(kubectl("get pv"), describe_claim(claim)),
            heals=binder(case, f"a PV {name} exists that is free or names this claim"),
            severity=weight(case, claim.created_at),
        )
    elif is_kept_for(claim, volume):
        yield due(case, claim, volume)
    elif volume.claim is not None:
        yield _taken(case, claim, volume)
    else:
        against = refusals(claim, volume)
        if not against:
            yield due(case, claim, volume)
            return
        yield finding(
            "RBD610",
            f"pvc {claim.ref}",
            f"Claim {claim.ref} asks for PV {volume.name} by name, and cannot have it: that "
            f"{spoken_objections(against)}.",
            evidence=(f"{volume.name} is {volume.phase}", *last_words(case, claim)),
            commands=changes(claim, volume, against, case)
            or (describe_volume(volume), describe_claim(claim)),
            heals=binder(case, f"{volume.name} is as the claim asks for"),
            severity=weight(case, claim.created_at),
        )


def _taken(case: Case, claim: Claim, volume: PersistentVolume) -> Finding:
    """RBD624: with the way to get it only where whoever had it is gone for certain."""
    bound = volume.claim
    other = None if bound is None else claim_named(bound, case)
    same_name = str(bound) == str(claim.ref)
    if same_name:
        whose = f"an older claim of the same name, whose uid was {bound.uid if bound else ''}"
    elif isinstance(other, Claim) and is_kept_for(other, volume):
        whose = f"claim {bound}, which lives"
    elif other is None:
        whose = f"claim {bound}, which is gone"
    else:
        whose = f"claim {bound}"
    gone = same_name or other is None
    return finding(
        "RBD624",
        f"pvc {claim.ref}",
        f"Claim {claim.ref} asks for PV {volume.name} by name, and that belongs to {whose}.",
        evidence=(
            f"{volume.name} is {volume.phase}, reclaim policy {volume.reclaim_policy}",
            *((spoken_outsiders(case, volume),) if gone else ()),
            *last_words(case, claim),
        ),
        remedy="Make sure that nobody uses the image in another cluster. Set the PV to Retain, "
        "then let its claimRef mean this claim; it binds by itself."
        if gone
        else "",
        commands=hand_over(case, claim, volume)
        if gone
        else (describe_volume(volume), describe_claim(claim)),
        heals=binder(case, f"the claimRef of {volume.name} means this claim, or is gone"),
        severity=weight(case, claim.created_at),
    )


# --------------------------------------------------------------------------------------------------
# A PV that names the claim, or fits it
# --------------------------------------------------------------------------------------------------


def _kept(case: Case, claim: Claim, kept: list[PersistentVolume]) -> Iterator[Finding]:
    """RBD625, RBD626: PVs whose claimRef means this claim."""
    fits = next((each for each in kept if not objections(claim, each)), None)
    if fits is not None:
        yield due(case, claim, fits)
        return
    makes = _provisioner_of(case, claim)
    danger = f" Meanwhile {makes} makes it another volume, an empty one." if makes else ""
    for volume in kept:
        against = objections(claim, volume)
        yield finding(
            "RBD625",
            f"pv {volume.name}",
            f"{volume.name} is kept for claim {claim.ref}, and does not fit it: it "
            f"{spoken_objections(against)}.{danger}",
            evidence=(
                f"{volume.name} is {volume.phase}, claimRef {volume.claim}",
                *last_words(case, claim),
            ),
            commands=changes(claim, volume, against, case)
            or (describe_volume(volume), describe_claim(claim)),
            heals=binder(case, f"{volume.name} is as the claim asks for"),
            severity=weight(case, claim.created_at),
        )


def _provisioner_of(case: Case, claim: Claim) -> str:
    """Name who makes volumes of a claim's class; empty: nobody."""
    found = _class_of(case, claim)
    if found is None or found.provisioner == NO_PROVISIONER:
        return ""
    return found.provisioner


def _class_of(case: Case, claim: Claim) -> StorageClass | None:
    kube = case.snapshot.kubernetes
    classes = () if kube is None else observed_of(kube.storage_classes)
    return next((each for each in classes if each.name == claim.storage_class), None)


def due(case: Case, claim: Claim, volume: PersistentVolume) -> Finding:
    """Say RBD626: everything is as it must be; only what was just changed may still be unseen."""
    stamps = (claim.created_at, volume.created_at, volume.phase_since)
    late = all(is_over(SILENT, each, case) for each in stamps)
    return finding(
        "RBD626",
        f"pvc {claim.ref}",
        f"Claim {claim.ref} gets {volume.name}: {BINDER} binds them at its next look, at most "
        f"{SYNC_S:.0f} s away. If nothing was changed in the last minute, it does not run.",
        evidence=(
            f"claim {claim.phase or 'without a phase'}, {volume.name} {volume.phase}",
            f"claimRef of {volume.name}: {volume.claim or 'none'}",
        ),
        commands=(_diagnose(claim),),
        heals=binder(case),
        severity=None if late else Severity.INFO,
    )


# --------------------------------------------------------------------------------------------------
# The class
# --------------------------------------------------------------------------------------------------


def _by_class(case: Case, claim: Claim, classes: tuple[StorageClass, ...]) -> Iterator[Finding]:
    """Follow the rest of syncUnboundClaim: a class that waits, a PV that fits, a provisioner."""
    found = next((each for each in classes if each.name == claim.storage_class), None)
    if found is not None and found.binding_mode == WAITS and claim.selected_node is None:
        yield from _delayed(case, claim, found)
        return
    fits = fitting(case, claim)
    if fits is not None:
        yield due(case, claim, fits)
    elif claim.storage_class and found is None:
        yield _class_missing(case, claim, classes)
    elif found is None or found.provisioner == NO_PROVISIONER:
        yield _only_a_volume(case, claim, found, classes)
    elif _is_removed(case, claim, found):
        yield _plugin_removed(case, claim, found)
    elif not _is_unasked(case, claim, found):
        yield from provisioning.explained(case, claim, found)


def _only_a_volume(
    case: Case, claim: Claim, found: StorageClass | None, classes: tuple[StorageClass, ...]
) -> Finding:
    """RBD602, RBD615: a claim for which nobody makes a volume."""
    if every_volume(case) is None:
        return _unexplained(case, claim)
    if found is not None:
        why = f"storage class {found.name} makes none ({NO_PROVISIONER})"
        return _nothing_fits(case, claim, why)
    if claim.storage_class is not None:
        return _nothing_fits(case, claim, 'it wants no storage class (storageClassName "")')
    return _without_class(case, claim, classes)


def _class_missing(case: Case, claim: Claim, classes: tuple[StorageClass, ...]) -> Finding:
    known = ", ".join(sorted(each.name for each in classes)) or "none"
    return finding(
        "RBD601",
        f"pvc {claim.ref}",
        f"Claim {claim.ref} asks for storage class {claim.storage_class}, and there is none of "
        f"that name. There are: {known}.",
        evidence=(*last_words(case, claim), *_near(case, claim)),
        commands=(
            kubectl("get storageclass", str(claim.storage_class)),
            kubectl("get storageclass"),
        ),
        heals=binder(case, f"a storage class {claim.storage_class} exists, or a PV of it fits"),
        severity=weight(case, claim.created_at),
    )


def _without_class(case: Case, claim: Claim, classes: tuple[StorageClass, ...]) -> Finding:
    default = next((each.name for each in classes if each.is_default), None)
    if default is None:
        why = "no class is the default"
        heals = binder(case, "a class is made the default, or a PV fits")
        name = classes[0].name if len(classes) == 1 else None
    elif _is_before(case, _GIVES_DEFAULT):
        why = f"{default} became the default later than it was made"
        heals = Heals(note="this version gives a default class to new claims only")
        name = default
    else:
        why = f"the default class {default} is not given to it yet"
        heals = binder(case)
        name = default
    give = () if name is None else (patch_claim(claim, {"storageClassName": name}),)
    return finding(
        "RBD615",
        f"pvc {claim.ref}",
        f"Claim {claim.ref} names no storage class, {why}, and no PV fits.",
        evidence=(*_near(case, claim), *last_words(case, claim)),
        commands=(kubectl("get storageclass"), *give),
        heals=heals,
        severity=weight(case, claim.created_at),
    )


def _is_before(case: Case, version: tuple[int, int]) -> bool:
    """Tell whether the API server is older for certain."""
    found = provisioning.server_version(case)
    return found is not None and found < version


def _nothing_fits(case: Case, claim: Claim, why: str) -> Finding:
    nearest = near(case, claim)
    seen = every_volume(case)
    # How many there are, the part of a look does not know: it has those that come nearest.
    count = "Not one of the PVs does" if seen else "There is no PV"
    # Of several that come equally near nobody can tell which is meant.
    one = [each for each in nearest if len(each.objections) == 1]
    cure = changes(claim, one[0].volume, one[0].objections, case) if len(one) == 1 else ()
    return finding(
        "RBD602",
        f"pvc {claim.ref}",
        f"Claim {claim.ref} waits for a PV that fits: {why}. {count}.",
        evidence=(*(spoken_candidate(each) for each in nearest), *last_words(case, claim)),
        commands=(describe_claim(claim), kubectl("get pv"), *cure),
        heals=binder(case, "a PV fits"),
        severity=weight(case, claim.created_at),
    )


def _near(case: Case, claim: Claim, *, delayed: bool = False) -> tuple[str, ...]:
    return tuple(spoken_candidate(each) for each in near(case, claim, delayed=delayed))


def _is_removed(case: Case, claim: Claim, found: StorageClass) -> bool:
    """Tell whether Kubernetes itself was to make the volume, and cannot any more."""
    if not found.provisioner.startswith(_IN_TREE):
        return False
    since_version = _REMOVED.get(found.provisioner)
    version = provisioning.server_version(case)
    if since_version is not None and version is not None:
        return version >= since_version
    return any(_NO_PLUGIN in each.message for each in told_of_claim(case, claim))


def _plugin_removed(case: Case, claim: Claim, found: StorageClass) -> Finding:
    return finding(
        "RBD616",
        f"pvc {claim.ref}",
        f"Claim {claim.ref} waits for {found.provisioner}, and Kubernetes has no such plugin any "
        f"more: nobody makes volumes of storage class {found.name}.",
        evidence=(
            f"storage class {found.name}: {found.provisioner}",
            *last_words(case, claim),
            *_near(case, claim),
        ),
        commands=(kubectl("get storageclass", found.name, options=("-o", "yaml")),),
        severity=weight(case, claim.created_at),
    )


# --------------------------------------------------------------------------------------------------
# WaitForFirstConsumer
# --------------------------------------------------------------------------------------------------


def _delayed(case: Case, claim: Claim, found: StorageClass) -> Iterator[Finding]:
    """RBD603, RBD604, RBD623: a class that leaves the choice to the first pod's node."""
    live = live_users(case, claim)
    unscheduled = [each for each in live if each.node_name is None]
    if unscheduled:
        yield _not_scheduled(case, claim, found, unscheduled)
    elif live:
        yield _past_the_scheduler(case, claim, found, live[0])
    else:
        seen = users_seen(case, claim)
        yield finding(
            "RBD603",
            f"pvc {claim.ref}",
            f"Claim {claim.ref} waits for its first pod: storage class {found.name} makes a volume "
            "only when the scheduler has chosen a node. "
            + ("No pod uses the claim yet." if seen else "Whether a pod uses it was not observed."),
            evidence=last_words(case, claim),
        )


def _not_scheduled(case: Case, claim: Claim, found: StorageClass, pods: list[Pod]) -> Finding:
    pod = next((each for each in pods if each.unschedulable), pods[0])
    why = pod.unschedulable or "the scheduler has said nothing of it"
    by_wish = _GATES in pod.unschedulable
    young = weight(case, pod.created_at) if not pod.unschedulable else None
    static = found.provisioner == NO_PROVISIONER
    return finding(
        "RBD604",
        f"pod {pod.ref}",
        f"Claim {claim.ref} waits for {pod.ref} to get a node, and it gets none: {why}",
        evidence=(
            f"storage class {found.name}: {WAITS}",
            f"pod {pod.ref}: PodScheduled is False, {why}"
            if pod.unschedulable
            else f"pod {pod.ref} has no node",
            *(_near(case, claim) if static else ()),
            *last_words(case, claim),
        ),
        commands=(kubectl("describe pod", pod.ref.name, namespace=pod.ref.namespace),),
        severity=Severity.INFO if by_wish else young,
        heals=Heals(by="the scheduler", once="the pod's scheduling gates are gone")
        if by_wish
        else None,
    )


def _past_the_scheduler(case: Case, claim: Claim, found: StorageClass, pod: Pod) -> Finding:
    """RBD623: only the scheduler tells the node of a claim's first pod."""
    if found.provisioner != NO_PROVISIONER:
        node = f"volume.kubernetes.io/selected-node={pod.node_name}"
        cure: tuple[Command, ...] = (annotate_claim(claim, node),)
        heals = Heals(note="only the scheduler chooses a node for the volume, and it never asks")
    else:
        fits = [each for each in every_volume(case) or () if not objections(claim, each)]
        cure = (patch_claim(claim, {"volumeName": fits[0].name}),) if len(fits) == 1 else ()
        heals = Heals(note="only the scheduler chooses a PV for the claim, and it never asks")
    return finding(
        "RBD623",
        f"pvc {claim.ref}",
        f"Claim {claim.ref} waits for the scheduler, which never saw pod {pod.ref}: that was put "
        f"on {pod.node_name} by its nodeName. The pod waits for the claim, and the claim for it.",
        evidence=(
            f"storage class {found.name}: {WAITS}",
            f"pod {pod.ref}: nodeName {pod.node_name}, phase {pod.phase}",
            "the claim carries no volume.kubernetes.io/selected-node",
            *last_words(case, claim),
        ),
        commands=cure or (describe_claim(claim),),
        heals=heals,
        severity=weight(case, pod.created_at),
    )


# --------------------------------------------------------------------------------------------------
# The controller itself
# --------------------------------------------------------------------------------------------------


def _is_unasked(case: Case, claim: Claim, found: StorageClass) -> bool:
    """Tell whether the PV controller has not even handed a claim over to its provisioner.

    When the scheduler chose a node for one that waited nobody knows: it may be just now.
    """
    passed = since(claim.created_at, case)
    return (
        not found.provisioner.startswith(_IN_TREE)
        and found.binding_mode != WAITS
        and claim.provisioner is None
        and passed is not None
        and passed >= SILENT
        and is_over(SILENT, found.created_at, case)
    )


def controller_down(case: Case) -> Iterator[Finding]:
    """RBD627: one finding for the cluster, however much waits for it."""
    kube = case.snapshot.kubernetes
    if kube is None:
        return
    lease = controller_lease(case)
    evidence = (*_untouched(case), *_unasked(case))
    if lapsed(lease, case) and _is_unsettled(case):
        evidence += (f"{lease and spoken_lease(lease, case)}: whoever held it has stopped",)
    if not evidence:
        return
    if lease is not None:
        evidence += (spoken_lease(lease, case),)
    yield finding(
        "RBD627",
        CONTROLLER_MANAGER,
        f"{BINDER[0].upper()}{BINDER[1:]} does not work: {evidence[0]}. Until it does, nothing is "
        "bound, released or handed to a provisioner.",
        evidence=evidence,
        commands=(
            kubectl("get lease", CONTROLLER_MANAGER, namespace="kube-system"),
            kubectl("get pods -l", f"component={CONTROLLER_MANAGER}", namespace="kube-system"),
        ),
    )


def _untouched(case: Case) -> tuple[str, ...]:
    """Tell of PVs that have no phase yet: they get one within moments."""
    kube = case.snapshot.kubernetes
    volumes = () if kube is None else observed_of(kube.persistent_volumes)
    old = [
        each
        for each in volumes
        if each.phase in {"", "Pending"}
        and (passed := since(each.phase_since or each.created_at, case)) is not None
        and passed >= SILENT
    ]
    if not old:
        return ()
    first = min(old, key=lambda each: each.name)
    more = f", and {len(old) - 1} more" if len(old) > 1 else ""
    made = spoken(since(first.phase_since or first.created_at, case))
    return (f"{first.name} has been without a phase for {made}{more}",)


def _unasked(case: Case) -> tuple[str, ...]:
    return tuple(
        f"claim {each.ref} of storage class {found.name} was not handed to {found.provisioner} in "
        f"{spoken(since(each.created_at, case))}"
        for each in claims_meant(case)
        if _is_pending(each)
        and each.volume_name is None
        and (found := _class_of(case, each)) is not None
        and found.provisioner != NO_PROVISIONER
        and _is_unasked(case, each, found)
        and fitting(case, each) is None
    )


def _is_unsettled(case: Case) -> bool:
    """Tell whether the PV controller has anything left to do for the target."""
    volume = case.use.persistent_volume
    if volume is not None and volume.phase == "Available" and volume.claim is None:
        # It is to be had: that is for a claim to begin.
        volume = None
    return any(each.phase != "Bound" for each in claims_meant(case)) or (
        volume is not None and volume.phase != "Bound"
    )
