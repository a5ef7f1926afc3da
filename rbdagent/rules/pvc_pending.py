"""RBD403, RBD60x to RBD62x: claims that were never bound and have no volume.

The order is that of ``syncUnboundClaim``. The codes of provisioners are in provisioner.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rbdagent.codes import Code
from rbdagent.commands import command, kubectl
from rbdagent.correlate.index import kube_index, once
from rbdagent.correlate.pv_matching import is_reserved_for, objections, refusals
from rbdagent.model import (
    CollectScope,
    Command,
    Finding,
    LifecycleStep,
    NotObserved,
    PersistentVolume,
    PersistentVolumeClaim,
    Pod,
    Recovery,
    Severity,
    Snapshot,
    StorageClass,
    Subject,
    Verb,
    Words,
    observed_of,
    stated,
)
from rbdagent.parse.brief import begun
from rbdagent.parse.foreign import foreign
from rbdagent.parse.recognised import Recognised
from rbdagent.rules import provisioner as provisioning
from rbdagent.rules.context import Rule, RuleContext, finding, quoted
from rbdagent.rules.entry import Entry
from rbdagent.rules.pv_controller import (
    BINDER,
    CONTROLLER_MANAGER,
    SILENT,
    SYNC_S,
    all_fitting,
    annotate_claim,
    are_users_observed,
    binder,
    candidate_text,
    changes,
    claim_named,
    claims_of_target,
    controller_lease,
    describe_claim,
    describe_volume,
    events_of_claim,
    external_watchers_text,
    fitting,
    hand_over,
    is_claim_gone,
    is_over,
    knows_all_volumes,
    lapsed,
    lease_line,
    live_users,
    loss_events,
    near,
    newest_events,
    objections_text,
    patch_claim,
    running_pods_text,
    since,
    volume_named,
    volumes_naming,
    weight,
)
from rbdagent.verdicts.timing import age, age_text

if TYPE_CHECKING:
    from collections.abc import Iterator

ENTRIES: Final = (
    Entry(
        Code.CLAIM_UNBOUND,
        Severity.ERROR,
        "The claim is not bound, and the reason was not observed.",
        remedy=(
            "Run `",
            Verb("diagnose"),
            "`, which also reads the storage classes and PVs; or read the claim's events.",
        ),
        recovery=Recovery(actor=BINDER, condition="a PV fits or is provisioned"),
        step=LifecycleStep.BIND,
    ),
    Entry(
        Code.STORAGE_CLASS_MISSING,
        Severity.ERROR,
        "The claim's storage class does not exist.",
        remedy="Create a storage class with that name, or create a PV of that class. A claim's "
        "class cannot be changed. The alternative is to delete the claim, which has no volume "
        "yet, and to create it again with a class that exists.",
        recovery=Recovery(actor=BINDER, condition="the class exists", within_s=SYNC_S),
        step=LifecycleStep.PROVISION,
    ),
    Entry(
        Code.NO_VOLUME_FITS,
        Severity.ERROR,
        "No PersistentVolume fits the claim, and no provisioner creates one.",
        remedy="Create a PV that fits, or change the closest one: a PV's class, capacity, access "
        "modes and labels can be changed, its volumeMode cannot. Or delete the claim, which has "
        "no volume yet, and create it again with a class that has a provisioner.",
        recovery=Recovery(actor=BINDER, condition="a PV fits", within_s=SYNC_S),
        step=LifecycleStep.BIND,
    ),
    Entry(
        Code.WAITS_FOR_FIRST_POD,
        Severity.INFO,
        "The claim has no volume because no pod uses it yet.",
        remedy="No action is needed. To get a volume, start a pod that uses the claim.",
        recovery=None,
        step=LifecycleStep.PROVISION,
    ),
    Entry(
        Code.FIRST_POD_NOT_SCHEDULED,
        Severity.ERROR,
        "The claim waits for its first pod, and the scheduler finds no node for that pod.",
        remedy="Read the scheduler's message for the pod. When the pod has a node, the claim "
        "gets its volume automatically.",
        recovery=Recovery(actor="the scheduler", condition="a node fits the pod"),
        step=LifecycleStep.SCHEDULE,
    ),
    Entry(
        Code.NAMED_VOLUME_MISSING,
        Severity.ERROR,
        "The claim requests a PV by name, and that PV does not exist.",
        remedy="Create a PV with that name (its image may still exist), with no claimRef or with "
        "one that names this claim. Or delete the claim, which has no volume yet, and create it "
        "again without volumeName.",
        recovery=Recovery(actor=BINDER, condition="the PV exists", within_s=SYNC_S),
        step=LifecycleStep.BIND,
    ),
    Entry(
        Code.NAMED_VOLUME_REFUSED,
        Severity.ERROR,
        "The claim requests a PV by name, and that PV does not meet its requirements.",
        remedy="Change the PV: its class, capacity and access modes can be changed. Its "
        "volumeMode cannot be changed, and neither can a claim's volumeName: delete the claim, "
        "which has no volume yet, and create it again.",
        recovery=Recovery(
            actor=BINDER, condition="the PV meets the claim's requirements", within_s=SYNC_S
        ),
        step=LifecycleStep.BIND,
    ),
    Entry(
        Code.CLAIM_WITHOUT_CLASS,
        Severity.ERROR,
        "The claim names no storage class, no class is the default, and no PV fits.",
        remedy="Set the claim's class: Kubernetes allows this once, while no class is set. Or "
        "mark a class as the default: every claim without a class then gets it.",
        recovery=Recovery(
            actor=BINDER, condition="a class is marked as the default", within_s=SYNC_S
        ),
        step=LifecycleStep.PROVISION,
    ),
    Entry(
        Code.PLUGIN_REMOVED,
        Severity.ERROR,
        "The claim's storage class names a plugin that Kubernetes has removed.",
        remedy="Delete the class and create it again with the same name, with provisioner "
        "rbd.csi.ceph.com and its parameters: pending claims then get their volumes. Or use "
        "another class in a new claim.",
        recovery=Recovery(note="Kubernetes does not bring the plugin back"),
        step=LifecycleStep.PROVISION,
    ),
    Entry(
        Code.POD_PAST_SCHEDULER,
        Severity.ERROR,
        "The claim waits for the scheduler, but its pod was assigned to a node without the "
        "scheduler.",
        remedy="Create the pod with a nodeSelector instead of nodeName. Or set the node of the "
        "volume by hand, in place of the scheduler.",
        recovery=Recovery(note="only the scheduler passes the claim on, and it never sees the pod"),
        step=LifecycleStep.PROVISION,
    ),
    Entry(
        Code.NAMED_VOLUME_TAKEN,
        Severity.ERROR,
        "The claim requests a PV by name, and that PV belongs to another claim.",
        remedy="Name another PV. A claim's volumeName cannot be changed: delete the claim, which "
        "has no volume yet, and create it again.",
        recovery=Recovery(
            actor=BINDER, condition="the PV's claimRef refers to this claim", within_s=SYNC_S
        ),
        step=LifecycleStep.BIND,
    ),
    Entry(
        Code.KEPT_VOLUME_REFUSED,
        Severity.ERROR,
        "A PV is reserved for the claim and does not fit it.",
        remedy="Change the PV's capacity or access modes. If the claim must get no other PV, "
        'name the PV in the claim (volumeName), or request no class (storageClassName "").',
        recovery=Recovery(
            actor=BINDER, condition="the PV meets the claim's requirements", within_s=SYNC_S
        ),
        step=LifecycleStep.BIND,
    ),
    Entry(
        Code.BINDING_DUE,
        Severity.WARNING,
        "The claim and the PV fit each other, but are not bound yet.",
        remedy="Wait half a minute, then run the command again. If nothing has changed, check "
        "whether kube-controller-manager runs, and read its log.",
        recovery=Recovery(actor=BINDER, within_s=SYNC_S),
        step=LifecycleStep.BIND,
    ),
    Entry(
        Code.CONTROLLER_DOWN,
        Severity.ERROR,
        "The PV controller is not working: what it normally does within seconds is not done.",
        remedy="Get kube-controller-manager running again, and read its log.",
        recovery=Recovery(
            actor=BINDER, condition="kube-controller-manager runs again", within_s=SYNC_S
        ),
        step=LifecycleStep.BIND,
    ),
)

NO_PROVISIONER: Final = "kubernetes.io/no-provisioner"
WAITS: Final = "WaitForFirstConsumer"
_IN_TREE: Final = "kubernetes.io/"
_REMOVED: Final = {"kubernetes.io/rbd": (1, 31)}
"""In-tree plugins that no CSI driver has replaced, and the first version without them
(kubernetes#124546)."""
_SETS_DEFAULT_LATER: Final = (1, 26)
"""Since this version, existing claims without a class also get the default class
(RetroactiveDefaultStorageClass, kubernetes#113329)."""


def unbound(context: RuleContext) -> Iterator[Finding]:
    """Report RBD403, RBD601 to RBD626: why a claim that was never bound has no volume."""
    for claim in claims_of_target(context):
        if _is_pending(claim):
            yield from _pending(context, claim)


def _is_pending(claim: PersistentVolumeClaim) -> bool:
    return (
        not claim.bind_completed
        and claim.phase not in {"Bound", "Lost"}
        and claim.deleting_since is None
    )


def _pending(context: RuleContext, claim: PersistentVolumeClaim) -> Iterator[Finding]:
    """Check the PV that the claim names, then PVs that name the claim, then its class."""
    if claim.volume_name is not None:
        yield from _named(context, claim, claim.volume_name)
        return
    too_old = provisioning.reported_too_old(context, claim)
    if too_old is not None:
        yield too_old
        return
    kube = context.snapshot.kubernetes
    if kube is None or isinstance(kube.storage_classes, NotObserved):
        yield _unexplained(context, claim)
        return
    named = volumes_naming(context, claim) if knows_all_volumes(context) else []
    reserved = [volume for volume in named if is_reserved_for(claim, volume)]
    if reserved:
        yield from _reserved(context, claim, reserved)
        return
    yield from _by_class(context, claim, kube.storage_classes)


def _unexplained(context: RuleContext, claim: PersistentVolumeClaim) -> Finding:
    """Report RBD403: the storage classes or PVs were not observed."""
    events = events_of_claim(context, claim)
    why = stated(" {event}", event=foreign(events[-1].message)) if events else ""
    storage_class = f"storage class {claim.storage_class}" if claim.storage_class else "no class"
    return finding(
        Code.CLAIM_UNBOUND,
        Subject.of_claim(claim.ref),
        stated(
            "Claim {claim} is {phase} and has no volume yet. There is no image that a client could "
            "hold.{}",
            why,
            claim=claim.ref,
            phase=claim.phase or "new",
        ),
        evidence=(
            f"phase {claim.phase}, {storage_class}, {', '.join(claim.access_modes) or 'no modes'}",
            *(quoted(event) for event in events[-3:]),
        ),
        commands=(
            *(() if context.kube.coverage.lifecycle else (_diagnose(claim),)),
            describe_claim(claim),
        ),
        severity=weight(context, claim.created_at),
    )


def volume_not_observed(
    context: RuleContext, claim: PersistentVolumeClaim, why: NotObserved
) -> Finding:
    """Report RBD403: the claim is Lost, and its PV was not observed."""
    show = kubectl("get pv", str(claim.volume_name), options=("-o", "yaml"))
    return finding(
        Code.CLAIM_UNBOUND,
        Subject.of_claim(claim.ref),
        stated(
            "Claim {claim} is Lost, and its PV was not observed.{}",
            running_pods_text(context, claim),
            claim=claim.ref,
        ),
        evidence=(f"volumeName {claim.volume_name}: {why.reason}", *loss_events(context, claim)),
        commands=(show, describe_claim(claim)),
    )


def _diagnose(claim: PersistentVolumeClaim) -> Command:
    return command("rbdagent diagnose", f"pvc/{claim.ref.namespace}/{claim.ref.name}")


# --------------------------------------------------------------------------------------------------
# volumeName
# --------------------------------------------------------------------------------------------------


def _named(context: RuleContext, claim: PersistentVolumeClaim, name: str) -> Iterator[Finding]:
    """Report RBD609, RBD610, RBD624: a claim whose user or backup has set volumeName."""
    volume = volume_named(name, context)
    if isinstance(volume, NotObserved):
        yield _unexplained(context, claim)
    elif volume is None:
        yield finding(
            Code.NAMED_VOLUME_MISSING,
            Subject.of_claim(claim.ref),
            stated(
                "Claim {claim} requests PV {volume} by name, and there is no such PV. Kubernetes "
                "records no event for this.",
                claim=claim.ref,
                volume=name,
            ),
            evidence=(f"phase {claim.phase}, volumeName {name}",),
            commands=(kubectl("get pv"), describe_claim(claim)),
            recovery=binder(context, f"a PV {name} exists that is free or names this claim"),
            severity=weight(context, claim.created_at),
        )
    elif is_reserved_for(claim, volume):
        yield binding_due(context, claim, volume)
    elif volume.claim is not None:
        yield _already_bound(context, claim, volume)
    else:
        against = refusals(claim, volume)
        if not against:
            yield binding_due(context, claim, volume)
            return
        yield finding(
            Code.NAMED_VOLUME_REFUSED,
            Subject.of_claim(claim.ref),
            stated(
                "Claim {claim} requests PV {volume} by name and cannot get it: {volume} {}.",
                objections_text(against),
                claim=claim.ref,
                volume=volume.name,
            ),
            evidence=(f"{volume.name} is {volume.phase}", *newest_events(context, claim)),
            commands=changes(claim, volume, against, context)
            or (describe_volume(volume), describe_claim(claim)),
            recovery=binder(context, f"{volume.name} meets the claim's requirements"),
            severity=weight(context, claim.created_at),
        )


def _already_bound(
    context: RuleContext, claim: PersistentVolumeClaim, volume: PersistentVolume
) -> Finding:
    """Report RBD624: the commands rebind the PV only if its earlier claim is certainly gone."""
    bound = volume.claim
    other = None if bound is None else claim_named(bound, context)
    same_name = str(bound) == str(claim.ref)
    if same_name:
        owner = stated(
            "an older claim of the same name, whose uid was {uid}", uid=bound.uid if bound else ""
        )
    elif isinstance(other, PersistentVolumeClaim) and is_reserved_for(other, volume):
        owner = stated("claim {other_claim}, which exists", other_claim=bound)
    elif other is None:
        owner = stated("claim {other_claim}, which is gone", other_claim=bound)
    else:
        owner = stated("claim {other_claim}", other_claim=bound)
    gone = same_name or other is None
    return finding(
        Code.NAMED_VOLUME_TAKEN,
        Subject.of_claim(claim.ref),
        stated(
            "Claim {claim} requests PV {volume} by name, but that PV belongs to {}.",
            owner,
            claim=claim.ref,
            volume=volume.name,
        ),
        evidence=(
            f"{volume.name} is {volume.phase}, reclaim policy {volume.reclaim_policy}",
            *((external_watchers_text(context, volume),) if gone else ()),
            *newest_events(context, claim),
        ),
        remedy="Make sure that no client in another cluster uses the image. Set the PV to Retain, "
        "then change its claimRef to this claim. The PV controller then binds them."
        if gone
        else "",
        commands=hand_over(context, claim, volume)
        if gone
        else (describe_volume(volume), describe_claim(claim)),
        recovery=binder(
            context, f"the claimRef of {volume.name} refers to this claim, or is removed"
        ),
        severity=weight(context, claim.created_at),
    )


# --------------------------------------------------------------------------------------------------
# A PV that names the claim or fits it
# --------------------------------------------------------------------------------------------------


def _reserved(
    context: RuleContext, claim: PersistentVolumeClaim, reserved: list[PersistentVolume]
) -> Iterator[Finding]:
    """Report RBD625, RBD626: PVs whose claimRef refers to this claim."""
    fits = next((volume for volume in reserved if not objections(claim, volume)), None)
    if fits is not None:
        yield binding_due(context, claim, fits)
        return
    provisioner = _provisioner_of(context, claim)
    danger = (
        stated(
            " Meanwhile {provisioner} creates another, empty volume for the claim.",
            provisioner=provisioner,
        )
        if provisioner
        else ""
    )
    for volume in reserved:
        against = objections(claim, volume)
        yield finding(
            Code.KEPT_VOLUME_REFUSED,
            Subject.of_pv(volume.name),
            stated(
                "{volume} is reserved for claim {claim} and does not fit it: {volume} {}.{}",
                objections_text(against),
                danger,
                volume=volume.name,
                claim=claim.ref,
            ),
            evidence=(
                f"{volume.name} is {volume.phase}, claimRef {volume.claim}",
                *newest_events(context, claim),
            ),
            commands=changes(claim, volume, against, context)
            or (describe_volume(volume), describe_claim(claim)),
            recovery=binder(context, f"{volume.name} meets the claim's requirements"),
            severity=weight(context, claim.created_at),
        )


def _provisioner_of(context: RuleContext, claim: PersistentVolumeClaim) -> str:
    """Return the name of the provisioner of a claim's class; empty if it has none."""
    found = class_of(context, claim)
    if found is None or found.provisioner == NO_PROVISIONER:
        return ""
    return found.provisioner


def class_of(context: RuleContext, claim: PersistentVolumeClaim) -> StorageClass | None:
    """Return the class that a claim names; None if it was not observed."""
    kube = context.snapshot.kubernetes
    classes = () if kube is None else observed_of(kube.storage_classes)
    return next(
        (storage_class for storage_class in classes if storage_class.name == claim.storage_class),
        None,
    )


def binding_due(
    context: RuleContext, claim: PersistentVolumeClaim, volume: PersistentVolume
) -> Finding:
    """Return RBD626: claim and PV fit, and the PV controller has not bound them yet."""
    stamps = (claim.created_at, volume.created_at, volume.phase_since)
    late = all(is_over(SILENT, stamp, context) for stamp in stamps)
    return finding(
        Code.BINDING_DUE,
        Subject.of_claim(claim.ref),
        stated(
            "Claim {claim} gets {volume}: {} binds them at its next sync, within {} s. If nothing "
            "was changed in the last minute, the controller does not run.",
            BINDER,
            f"{SYNC_S:.0f}",
            claim=claim.ref,
            volume=volume.name,
        ),
        evidence=(
            f"claim {claim.phase or 'without a phase'}, {volume.name} {volume.phase}",
            f"claimRef of {volume.name}: {volume.claim or 'none'}",
        ),
        commands=(_diagnose(claim),),
        recovery=binder(context),
        severity=None if late else Severity.INFO,
    )


# --------------------------------------------------------------------------------------------------
# The class
# --------------------------------------------------------------------------------------------------


def _by_class(
    context: RuleContext, claim: PersistentVolumeClaim, classes: tuple[StorageClass, ...]
) -> Iterator[Finding]:
    """Check the rest of syncUnboundClaim: delayed binding, a PV that fits, a provisioner."""
    found = next(
        (storage_class for storage_class in classes if storage_class.name == claim.storage_class),
        None,
    )
    if found is not None and found.binding_mode == WAITS and claim.selected_node is None:
        yield from _delayed(context, claim, found)
        return
    fits = fitting(context, claim)
    if fits is not None:
        yield binding_due(context, claim, fits)
    elif claim.storage_class and found is None:
        yield _class_missing(context, claim, classes)
    elif found is None or found.provisioner == NO_PROVISIONER:
        yield _without_provisioner(context, claim, found, classes)
    elif _is_removed(context, claim, found):
        yield _plugin_removed(context, claim, found)
    elif not _is_not_handed_over(context, claim, found):
        yield from provisioning.explained(context, claim, found)


def _without_provisioner(
    context: RuleContext,
    claim: PersistentVolumeClaim,
    found: StorageClass | None,
    classes: tuple[StorageClass, ...],
) -> Finding:
    """Report RBD602, RBD615: no provisioner creates a volume for the claim."""
    if not knows_all_volumes(context):
        return _unexplained(context, claim)
    if found is not None:
        why = stated(
            "storage class {storage_class} provisions none ({})",
            NO_PROVISIONER,
            storage_class=found.name,
        )
        return _nothing_fits(context, claim, why)
    if claim.storage_class is not None:
        return _nothing_fits(context, claim, 'it requests no storage class (storageClassName "")')
    return _without_class(context, claim, classes)


def _class_missing(
    context: RuleContext, claim: PersistentVolumeClaim, classes: tuple[StorageClass, ...]
) -> Finding:
    names = sorted(storage_class.name for storage_class in classes)
    known = stated("{classes}", classes=names) if names else "none"
    return finding(
        Code.STORAGE_CLASS_MISSING,
        Subject.of_claim(claim.ref),
        stated(
            "Claim {claim} requests storage class {storage_class}, which does not exist. Existing "
            "storage classes: {}.",
            known,
            claim=claim.ref,
            storage_class=claim.storage_class,
        ),
        evidence=(*newest_events(context, claim), *_near(context, claim)),
        commands=(
            kubectl("get storageclass", str(claim.storage_class)),
            kubectl("get storageclass"),
        ),
        recovery=binder(context, f"storage class {claim.storage_class} exists, or a PV of it fits"),
        severity=weight(context, claim.created_at),
    )


def _without_class(
    context: RuleContext, claim: PersistentVolumeClaim, classes: tuple[StorageClass, ...]
) -> Finding:
    default = next(
        (storage_class.name for storage_class in classes if storage_class.is_default), None
    )
    if default is None:
        why = stated("no class is the default")
        recovery = binder(context, "a class is marked as the default, or a PV fits")
        name = classes[0].name if len(classes) == 1 else None
    elif _is_before(context, _SETS_DEFAULT_LATER):
        why = stated(
            "{default_class} became the default after the claim was created", default_class=default
        )
        recovery = Recovery(note="this version sets the default class on new claims only")
        name = default
    else:
        why = stated(
            "the default class {default_class} is not set on it yet", default_class=default
        )
        recovery = binder(context)
        name = default
    set_class = () if name is None else (patch_claim(claim, {"storageClassName": name}),)
    return finding(
        Code.CLAIM_WITHOUT_CLASS,
        Subject.of_claim(claim.ref),
        stated("Claim {claim} names no storage class, {}, and no PV fits.", why, claim=claim.ref),
        evidence=(*_near(context, claim), *newest_events(context, claim)),
        commands=(kubectl("get storageclass"), *set_class),
        recovery=recovery,
        severity=weight(context, claim.created_at),
    )


def _is_before(context: RuleContext, version: tuple[int, int]) -> bool:
    """Return whether the API server is certainly older than a version."""
    found = provisioning.server_version(context)
    return found is not None and found < version


def _nothing_fits(context: RuleContext, claim: PersistentVolumeClaim, why: Words) -> Finding:
    nearest = near(context, claim)
    count = "No PV fits" if context.kube.volumes else "There is no PV"
    # If several PVs are equally close, it is unknown which of them the user intended.
    one = [candidate for candidate in nearest if len(candidate.objections) == 1]
    fix = changes(claim, one[0].volume, one[0].objections, context) if len(one) == 1 else ()
    return finding(
        Code.NO_VOLUME_FITS,
        Subject.of_claim(claim.ref),
        stated("Claim {claim} waits for a PV that fits: {}. {}.", why, count, claim=claim.ref),
        evidence=(
            *(candidate_text(candidate) for candidate in nearest),
            *newest_events(context, claim),
        ),
        commands=(describe_claim(claim), kubectl("get pv"), *fix),
        recovery=binder(context, "a PV fits"),
        severity=weight(context, claim.created_at),
    )


def _near(
    context: RuleContext, claim: PersistentVolumeClaim, *, delayed: bool = False
) -> tuple[str, ...]:
    return tuple(candidate_text(candidate) for candidate in near(context, claim, delayed=delayed))


def _is_removed(context: RuleContext, claim: PersistentVolumeClaim, found: StorageClass) -> bool:
    """Return whether an in-tree plugin had to create the volume, and no longer exists."""
    if not found.provisioner.startswith(_IN_TREE):
        return False
    since_version = _REMOVED.get(found.provisioner)
    version = provisioning.server_version(context)
    if since_version is not None and version is not None:
        return version >= since_version
    return any(
        Recognised.NO_PLUGIN.is_in(event.message) for event in events_of_claim(context, claim)
    )


def _plugin_removed(
    context: RuleContext, claim: PersistentVolumeClaim, found: StorageClass
) -> Finding:
    return finding(
        Code.PLUGIN_REMOVED,
        Subject.of_claim(claim.ref),
        stated(
            "Claim {claim} waits for {provisioner}, and Kubernetes has removed this plugin: no "
            "provisioner creates volumes of storage class {storage_class}.",
            claim=claim.ref,
            provisioner=found.provisioner,
            storage_class=found.name,
        ),
        evidence=(
            f"storage class {found.name}: {found.provisioner}",
            *newest_events(context, claim),
            *_near(context, claim),
        ),
        commands=(kubectl("get storageclass", found.name, options=("-o", "yaml")),),
        severity=weight(context, claim.created_at),
    )


# --------------------------------------------------------------------------------------------------
# WaitForFirstConsumer
# --------------------------------------------------------------------------------------------------


def _delayed(
    context: RuleContext, claim: PersistentVolumeClaim, found: StorageClass
) -> Iterator[Finding]:
    """Report RBD603, RBD604, RBD623: a class with delayed binding (WaitForFirstConsumer)."""
    live = live_users(context, claim)
    unscheduled = [pod for pod in live if pod.node_name is None]
    if unscheduled:
        yield _not_scheduled(context, claim, found, unscheduled)
    elif live:
        yield _scheduler_bypassed(context, claim, found, live[0])
    else:
        seen = are_users_observed(context, claim)
        yield finding(
            Code.WAITS_FOR_FIRST_POD,
            Subject.of_claim(claim.ref),
            stated(
                "Claim {claim} waits for its first pod: storage class {storage_class} provisions a "
                "volume only after the scheduler has chosen a node. {}",
                "No pod uses the claim yet."
                if seen
                else "It was not observed whether a pod uses it.",
                claim=claim.ref,
                storage_class=found.name,
            ),
            evidence=newest_events(context, claim),
        )


def _not_scheduled(
    context: RuleContext, claim: PersistentVolumeClaim, found: StorageClass, pods: list[Pod]
) -> Finding:
    pod = next((pod for pod in pods if pod.unschedulable), pods[0])
    why = stated("the scheduler has reported nothing about it")
    if pod.unschedulable:
        why = stated("{reason}", reason=foreign(pod.unschedulable))
    by_wish = Recognised.GATES.is_in(pod.unschedulable)
    young = weight(context, pod.created_at) if not pod.unschedulable else None
    static = found.provisioner == NO_PROVISIONER
    return finding(
        Code.FIRST_POD_NOT_SCHEDULED,
        Subject.of_pod(pod.ref),
        stated(
            "Claim {claim} waits for a node for pod {pod}, and the pod gets none: {}",
            why,
            claim=claim.ref,
            pod=pod.ref,
        ),
        evidence=(
            f"storage class {found.name}: {WAITS}",
            f"pod {pod.ref}: PodScheduled is False, {why}"
            if pod.unschedulable
            else f"pod {pod.ref} has no node",
            *(_near(context, claim) if static else ()),
            *newest_events(context, claim),
        ),
        commands=(kubectl("describe pod", pod.ref.name, namespace=pod.ref.namespace),),
        severity=Severity.INFO if by_wish else young,
        recovery=Recovery(actor="the scheduler", condition="the pod's scheduling gates are gone")
        if by_wish
        else None,
    )


def _scheduler_bypassed(
    context: RuleContext, claim: PersistentVolumeClaim, found: StorageClass, pod: Pod
) -> Finding:
    """Report RBD623: only the scheduler writes the node of the first pod into the claim."""
    if found.provisioner != NO_PROVISIONER:
        node = f"volume.kubernetes.io/selected-node={pod.node_name}"
        fix: tuple[Command, ...] = (annotate_claim(claim, node),)
        recovery = Recovery(
            note="only the scheduler chooses a node for the volume, and it never sees the pod"
        )
    else:
        fits = all_fitting(context, claim)
        fix = (patch_claim(claim, {"volumeName": fits[0].name}),) if len(fits) == 1 else ()
        recovery = Recovery(
            note="only the scheduler chooses a PV for the claim, and it never sees the pod"
        )
    return finding(
        Code.POD_PAST_SCHEDULER,
        Subject.of_claim(claim.ref),
        stated(
            "Claim {claim} waits for the scheduler, which never saw pod {pod}: its nodeName put "
            "the pod on {node}. The pod and the claim wait for each other.",
            claim=claim.ref,
            pod=pod.ref,
            node=pod.node_name,
        ),
        evidence=(
            f"storage class {found.name}: {WAITS}",
            f"pod {pod.ref}: nodeName {pod.node_name}, phase {pod.phase}",
            "the claim has no volume.kubernetes.io/selected-node",
            *newest_events(context, claim),
        ),
        commands=fix or (describe_claim(claim),),
        recovery=recovery,
        severity=weight(context, pod.created_at),
    )


# --------------------------------------------------------------------------------------------------
# The controller itself
# --------------------------------------------------------------------------------------------------


def _is_not_handed_over(
    context: RuleContext, claim: PersistentVolumeClaim, found: StorageClass
) -> bool:
    """Return whether the PV controller has not handed a claim over to its provisioner.

    Claims with delayed binding are left out: the time when the scheduler chose a node is unknown,
    and may be just now.
    """
    passed = since(claim.created_at, context)
    return (
        not found.provisioner.startswith(_IN_TREE)
        and found.binding_mode != WAITS
        and claim.provisioner is None
        and passed is not None
        and passed >= SILENT
        and is_over(SILENT, found.created_at, context)
    )


def controller_down(context: RuleContext) -> Iterator[Finding]:
    """Report RBD627: one finding for the cluster, whatever the number of waiting objects."""
    kube = context.snapshot.kubernetes
    if kube is None:
        return
    lease = controller_lease(context)
    evidence = (*once(context.snapshot, _untouched), *_not_handed_over(context))
    if lapsed(lease, context) and _is_unsettled(context):
        evidence += (f"{lease and lease_line(lease, context)}: its holder has stopped",)
    if not evidence:
        return
    if lease is not None:
        evidence += (lease_line(lease, context),)
    yield finding(
        Code.CONTROLLER_DOWN,
        Subject.of_controller(CONTROLLER_MANAGER),
        stated(
            "{} does not work: {evidence}. Until it does, nothing is bound, released or handed "
            "to a provisioner.",
            begun(BINDER),
            evidence=evidence[0],
        ),
        evidence=evidence,
        commands=(
            kubectl("get lease", CONTROLLER_MANAGER, namespace="kube-system"),
            kubectl("get pods -l", f"component={CONTROLLER_MANAGER}", namespace="kube-system"),
        ),
    )


def _untouched(snapshot: Snapshot) -> tuple[str, ...]:
    """Return a line about PVs without a phase: the PV controller sets one within moments."""
    now = snapshot.observed_at
    old = [
        volume
        for volume in kube_index(snapshot.kubernetes).volumes
        if volume.phase in {"", "Pending"}
        and (passed := age(volume.phase_since or volume.created_at, now)) is not None
        and passed >= SILENT
    ]
    if not old:
        return ()
    first, *further = old
    more = f", and {len(further)} more" if further else ""
    waited = age_text(age(first.phase_since or first.created_at, now))
    return (f"{first.name} has been without a phase for {waited}{more}",)


def _not_handed_over(context: RuleContext) -> tuple[str, ...]:
    return tuple(
        f"claim {claim.ref} of storage class {found.name} was not handed to {found.provisioner} in "
        f"{age_text(since(claim.created_at, context))}"
        for claim in claims_of_target(context)
        if _is_pending(claim)
        and claim.volume_name is None
        and (found := class_of(context, claim)) is not None
        and found.provisioner != NO_PROVISIONER
        and _is_not_handed_over(context, claim, found)
        and fitting(context, claim) is None
    )


def _is_unsettled(context: RuleContext) -> bool:
    """Return whether the PV controller has work left for the target."""
    volume = context.volume.persistent_volume
    if volume is not None and volume.phase == "Available" and volume.claim is None:
        # The PV is free: the next step is a claim, not the PV controller.
        volume = None
    return any(claim.phase != "Bound" for claim in claims_of_target(context)) or (
        volume is not None and (volume.phase != "Bound" or is_claim_gone(volume, context))
    )


RULES: Final = (
    Rule(290, controller_down, CollectScope.PROVISIONERS | CollectScope.STORAGE_CLASSES),
    Rule(
        300,
        unbound,
        CollectScope.STORAGE_CLASSES
        | CollectScope.PROVISIONERS
        | CollectScope.DRIVER_WORKLOADS
        | CollectScope.VERSION
        | CollectScope.CSI_DRIVERS
        | CollectScope.WORKLOADS,
    ),
)
