"""What the PV controller, the API server and the garbage collector would do with the objects."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rbdagent.codes import Code
from rbdagent.correlate.names import key_of
from rbdagent.correlate.pv_matching import is_reserved_for, refusals
from rbdagent.lint.applied import NEW_UID, volume_of_claim
from rbdagent.lint.context import subject_of
from rbdagent.lint.entries import problem
from rbdagent.model import (
    CsiSource,
    NotObserved,
    OtherSource,
    PersistentVolume,
    PersistentVolumeClaim,
    Severity,
    observed_of,
)
from rbdagent.parse.foreign import foreign_name
from rbdagent.parse.handle import composed_handle
from rbdagent.parse.volume import image_of
from rbdagent.rules.scheduling import fits, term_text, ties_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rbdagent.lint.context import LintContext
    from rbdagent.model import ObjectRef
    from rbdagent.model.lint import Manifest, Problem

_WAITS: Final = "WaitForFirstConsumer"
_NO_PROVISIONER: Final = "kubernetes.io/no-provisioner"
_BRANCH: Final = (
    "syncVolume of the PV controller: a claim with that name and another uid, or none, means that "
    "the claim was deleted"
)


def claim_refs(context: LintContext) -> Iterator[Problem]:
    """Report RBD801, RBD802, RBD808: a PV whose claimRef has the uid of no claim, or is missing."""
    for item, volume in context.volumes():
        if volume.claim is None:
            yield from _without_claim(context, item, volume)
        elif volume.claim.uid is not None:
            yield from _with_uid(context, item, volume, volume.claim)


def _with_uid(
    context: LintContext, item: Manifest, volume: PersistentVolume, bound: ObjectRef
) -> Iterator[Problem]:
    """Report what syncVolume does with a PV whose claim does not exist."""
    if not _is_uid_of_no_claim(context, volume) or _is_unchanged(context, item, volume):
        return
    uid = foreign_name(bound.uid or "")
    if context.kube_after.coverage.claims:
        lead = (
            f"{volume.name} becomes Released as soon as it is applied, because its claimRef has "
            "the uid of a claim that does not exist."
        )
    else:
        lead = (
            f"Unless a claim here has the uid {uid} (claims were not observed), {volume.name} "
            "becomes Released as soon as it is applied."
        )
    evidence = (
        f"claimRef {bound}, uid {uid}",
        _named_claim(context, bound),
        f"reclaim policy {volume.reclaim_policy}",
        _BRANCH,
    )
    if volume.reclaim_policy != "Delete":
        yield problem(
            Code.RELEASED_ON_APPLY,
            item,
            "spec.claimRef.uid",
            f"{lead} A Released PV binds to no claim.",
            subject=subject_of(item),
            evidence=evidence,
        )
        return
    if _stays_when_deleted(volume):
        yield problem(
            Code.RELEASED_ON_APPLY,
            item,
            "spec.claimRef.uid",
            f"{lead} {_of_static(volume)} The PV stays Released, or becomes Failed.",
            subject=subject_of(item),
            evidence=evidence,
        )
        return
    driver = volume.source.driver if isinstance(volume.source, CsiSource) else "its driver"
    yield problem(
        Code.IMAGE_DELETED_ON_APPLY,
        item,
        "spec.claimRef.uid",
        f"{lead} Its reclaim policy is Delete: the provisioner of {driver} then deletes "
        f"{_image_text(volume)}, unless a client watches it.",
        subject=subject_of(item),
        evidence=evidence,
    )


def _is_uid_of_no_claim(context: LintContext, volume: PersistentVolume) -> bool:
    """Return whether the claimRef of a PV has a uid that no observed claim has."""
    if volume.claim is None or volume.claim.uid is None:
        return False
    known = context.kube_after.claim_by_key.get(key_of(volume.claim))
    return known is None or known.ref.uid != volume.claim.uid


def _is_unchanged(context: LintContext, item: Manifest, volume: PersistentVolume) -> bool:
    """Return whether a PV exists with the same claimRef and policy: nothing happens at apply."""
    existing = context.existing(item)
    return isinstance(existing, PersistentVolume) and (
        (existing.claim, existing.reclaim_policy) == (volume.claim, volume.reclaim_policy)
    )


def _image_text(volume: PersistentVolume) -> str:
    image = image_of(volume)
    if image is None or isinstance(image, NotObserved):
        return "its volume"
    return f"its image {foreign_name(str(image.spec))}"


def _stays_when_deleted(volume: PersistentVolume) -> bool:
    """Return whether ceph-csi cannot delete the image of a PV: its handle is not composed.

    DeleteVolume gets the handle alone, and returns the error of its decoding
    (checkErrAndUndoReserve in internal/rbd/controllerserver.go@52fcb7b). Before
    external-provisioner 3.5, nothing calls it for a PV without its annotation.
    """
    source = volume.source
    return (
        isinstance(source, CsiSource)
        and composed_handle(source.volume_handle) is None
        and not source.volume_handle.startswith("mig_")
    )


def _of_static(volume: PersistentVolume) -> str:
    return (
        f"Its reclaim policy is Delete, which does nothing for this static PV: ceph-csi cannot "
        f"delete {_image_text(volume)}, whose handle it did not compose."
    )


def _when_deleted(volume: PersistentVolume) -> str:
    if _stays_when_deleted(volume):
        return (
            f"its handle is not one of ceph-csi, which cannot delete {_image_text(volume)} by it. "
            "When its claim is deleted, the image stays, and the PV does, too: Released or Failed."
        )
    return (
        f"when its claim is deleted, {_image_text(volume)} is deleted, also for another cluster "
        "that still has it."
    )


def _named_claim(context: LintContext, bound: ObjectRef) -> str:
    if not context.kube_after.coverage.claims:
        return f"claim {bound}: not observed"
    known = context.kube_after.claim_by_key.get(key_of(bound))
    if known is None:
        return f"claim {bound} is neither in the cluster nor in the files"
    if known.ref.uid == NEW_UID:
        return f"claim {bound} is in the files, and gets a new uid"
    return f"claim {bound} exists, with uid {known.ref.uid}"


def _without_claim(
    context: LintContext, item: Manifest, volume: PersistentVolume
) -> Iterator[Problem]:
    if context.existing(item) is not None:
        return
    named_by = context.kube_after.claims_by_volume.get(volume.name, ())
    names = ", ".join(str(claim.ref) for claim in named_by)
    also = f" Until {names} binds to it," if names else ""
    yield problem(
        Code.OPEN_TO_ANY_CLAIM,
        item,
        "spec.claimRef",
        f"{volume.name} names no claim.{also} {'any' if also else 'Any'} pending claim of its "
        f"class that fits gets it, with its data.",
        subject=subject_of(item),
        evidence=(f"storageClassName {volume.storage_class or 'none'}",),
        severity=Severity.INFO if names else None,
    )


def policies(context: LintContext) -> Iterator[Problem]:
    """Report RBD803: what is restored is deleted with its claim or its snapshot."""
    for item, volume in context.volumes():
        existing = context.existing(item)
        is_kept = isinstance(existing, PersistentVolume) and existing.reclaim_policy == "Delete"
        if volume.reclaim_policy != "Delete" or is_kept:
            continue
        # RBD801 is about the same policy.
        if not _is_uid_of_no_claim(context, volume):
            yield problem(
                Code.DELETE_POLICY_RESTORED,
                item,
                "spec.persistentVolumeReclaimPolicy",
                f"{volume.name} has the reclaim policy Delete: {_when_deleted(volume)}",
                subject=subject_of(item),
                evidence=(f"reclaim policy {volume.reclaim_policy}",),
                severity=Severity.INFO if _stays_when_deleted(volume) else None,
            )
    for item, content in context.contents():
        if content.deletion_policy == "Delete":
            yield problem(
                Code.DELETE_POLICY_RESTORED,
                item,
                "spec.deletionPolicy",
                f"{content.name} has the deletion policy Delete: when it or its VolumeSnapshot is "
                "deleted, the snapshot in Ceph is deleted, also for another cluster that still "
                "has it.",
                subject=subject_of(item),
                evidence=("deletionPolicy Delete",),
            )


def identities(context: LintContext) -> Iterator[Problem]:
    """Report RBD804: a uid or resourceVersion that the API server compares or refuses."""
    for item in context.manifests.items:
        if not isinstance(item.object, PersistentVolume | PersistentVolumeClaim):
            continue
        uid = item.data["metadata"].get("uid")
        existing = context.existing(item)
        own = existing.ref.uid if isinstance(existing, PersistentVolumeClaim) else (
            None if existing is None else existing.uid
        )  # fmt: skip
        has_other_uid = bool(uid) and uid != own
        if not (has_other_uid or item.resource_version):
            continue
        fields = [
            *(["metadata.uid"] if has_other_uid else []),
            *(["metadata.resourceVersion"] if item.resource_version else []),
        ]
        named = " and ".join(fields)
        if existing is None:
            begin = f"{subject_of(item)} is new here and has {named}."
            if context.is_unread(item):
                begin = (
                    f"{subject_of(item)} has {named}. If it exists here, which was not observed, "
                    "the API server refuses to change it, unless they are those of that object. If "
                    "it is new:"
                )
            text = (
                f"{begin} kubectl create, and apply "
                "without --server-side, accept that: kubectl leaves out the resourceVersion, and "
                "the API server gives a new uid."
                + (
                    " Server-side apply, also that of Argo CD and Flux, refuses a uid that no "
                    "object has."
                    if has_other_uid
                    else ""
                )
            )
        else:
            text = (
                f"{subject_of(item)} exists, and the manifest has {named}: the API server refuses "
                "to change it, unless they are those of the object that exists."
            )
        yield problem(
            Code.LEFTOVER_IDENTITY,
            item,
            fields[0],
            text,
            subject=subject_of(item),
            evidence=(f"fields: {', '.join(fields)}",),
            severity=_weight_of_identity(is_new=existing is None, has_other_uid=has_other_uid),
        )


def _weight_of_identity(*, is_new: bool, has_other_uid: bool) -> Severity:
    if not has_other_uid:
        return Severity.INFO
    return Severity.WARNING if is_new else Severity.ERROR


def owners(context: LintContext) -> Iterator[Problem]:
    """Report RBD812: the garbage collector deletes an object of which no owner exists.

    See attemptToDeleteItem in pkg/controller/garbagecollector/garbagecollector.go.
    """
    view = context.before.kubernetes
    known = {pod.ref.uid for pod in context.kube_before.pods}
    known |= {one.ref.uid for one in (() if view is None else observed_of(view.workloads))}
    for item in context.manifests.items:
        if not item.owners or any(uid in known for _, uid in item.owners):
            continue
        names = ", ".join(name for name, _ in item.owners)
        yield problem(
            Code.OWNER_LEFT_BEHIND,
            item,
            "metadata.ownerReferences",
            f"{subject_of(item)} is owned by {names}. An owner is found by its uid: if no object "
            "of this cluster has one of these uids, the garbage collector deletes "
            f"{subject_of(item)}.",
            subject=subject_of(item),
            evidence=tuple(f"owner {name}, uid {foreign_name(uid)}" for name, uid in item.owners),
        )


def namespaces(context: LintContext) -> Iterator[Problem]:
    """Report RBD813: a claim in a namespace that does not exist."""
    for item, claim in context.claims():
        namespace = claim.ref.namespace
        if namespace in context.manifests.namespaces:
            continue
        if context.around.namespaces.get(namespace) is False:
            yield problem(
                Code.NAMESPACE_MISSING,
                item,
                "metadata.namespace",
                f"Namespace {namespace} of claim {claim.ref} does not exist: the API server "
                "refuses the claim.",
                subject=subject_of(item),
                evidence=(f"namespace {namespace}: not found",),
            )


def pairs_that_differ(context: LintContext) -> Iterator[Problem]:
    """Report RBD811: PV and claim name each other, which is all that the PV controller checks."""
    for item, claim in context.claims():
        volume = volume_of_claim(claim, context.kube_after)
        if volume is None or volume.claim is None or context.existing(item) is not None:
            continue
        against = refusals(claim, volume)
        if against:
            texts = "; ".join(str(objection) for objection in against)
            yield problem(
                Code.BOUND_ALTHOUGH_DIFFERENT,
                item,
                "spec",
                f"Claim {claim.ref} binds to {volume.name}, because they name each other, although "
                f"{volume.name} {texts}.",
                subject=subject_of(item),
                evidence=(f"claimRef of {volume.name}: {volume.claim}",),
            )


def claims_of_one_volume(context: LintContext) -> Iterator[Problem]:
    """Report RBD632: two claims name a PV that names none of them: one of them gets it."""
    named: dict[str, list[tuple[Manifest, PersistentVolumeClaim]]] = {}
    for item, claim in context.claims():
        volume = context.kube_after.volume_by_name.get(claim.volume_name or "")
        if volume is not None and volume.claim is None:
            named.setdefault(volume.name, []).append((item, claim))
    for name, claims in named.items():
        for item, claim in claims[1:]:
            yield problem(
                Code.CLAIMED_TWICE,
                item,
                "spec.volumeName",
                f"Claims {claims[0][1].ref} and {claim.ref} both name {name}, which names no "
                "claim: one of them gets it, and the other one waits.",
                subject=subject_of(item),
                evidence=(f"{name} has no claimRef",),
                remedy="Name another PV in one of the claims, or leave one of them out.",
            )


def provisioned_meanwhile(context: LintContext) -> Iterator[Problem]:
    """Report RBD809: a PV is reserved for a claim that does not name it, and it may come late."""
    view = context.view
    classes = {
        one.name: one
        for one in (
            () if isinstance(view, NotObserved) else observed_of(view.storage_classes)
        )
    }  # fmt: skip
    for item, claim in context.claims():
        if claim.volume_name is not None or claim.bind_completed or context.existing(item):
            continue
        found = classes.get(claim.storage_class or "")
        if found is None or found.provisioner == _NO_PROVISIONER or found.binding_mode == _WAITS:
            continue
        reserved = [
            volume
            for volume in context.kube_after.volumes_by_claim.get(key_of(claim.ref), ())
            if is_reserved_for(claim, volume)
            and volume.name not in context.kube_before.volume_by_name
        ]
        if reserved:
            yield problem(
                Code.PROVISIONED_MEANWHILE,
                item,
                "spec.volumeName",
                f"Claim {claim.ref} does not name {reserved[0].name}, which is reserved for it. If "
                f"the claim is applied first, {found.provisioner} creates a new, empty volume for "
                "it.",
                subject=subject_of(item),
                evidence=(
                    f"storage class {found.name}: {found.provisioner}, {found.binding_mode}",
                    f"claimRef of {reserved[0].name}: {claim.ref}",
                ),
            )


def classes_of_claims(context: LintContext) -> Iterator[Problem]:
    """Report RBD601, RBD810: the class of a claim that binds to a PV, whatever its class is."""
    view = context.view
    if isinstance(view, NotObserved) or isinstance(view.storage_classes, NotObserved):
        return
    classes = {one.name: one for one in view.storage_classes}
    for item, claim in context.claims():
        volume = volume_of_claim(claim, context.kube_after)
        if volume is None or not claim.storage_class or context.existing(item) is not None:
            continue
        found = classes.get(claim.storage_class)
        if found is None:
            yield problem(
                Code.STORAGE_CLASS_MISSING,
                item,
                "spec.storageClassName",
                f"Storage class {claim.storage_class} of claim {claim.ref} does not exist. The "
                f"claim binds to {volume.name} without it, and cannot grow.",
                subject=subject_of(item),
                evidence=(f"storage classes here: {', '.join(sorted(classes)) or 'none'}",),
                severity=Severity.WARNING,
                remedy="Create the class, with the driver of the PV, or write a class that exists "
                "into both.",
            )
        elif (driver := _driver(volume)) is not None and driver != found.provisioner:
            yield problem(
                Code.CLASS_OF_ANOTHER_DRIVER,
                item,
                "spec.storageClassName",
                f"Storage class {found.name} of claim {claim.ref} belongs to {found.provisioner}, "
                f"and its PV {volume.name} to {driver}.",
                subject=subject_of(item),
                evidence=(
                    f"storage class {found.name}: provisioner {found.provisioner}",
                    f"{volume.name}: driver {driver}",
                ),
            )


def _driver(volume: PersistentVolume) -> str | None:
    match volume.source:
        case CsiSource(driver=driver):
            return driver
        case OtherSource(kind=kind, volume_handle=handle):
            return None if handle is None else kind
        case _:
            return None


def nodes(context: LintContext) -> Iterator[Problem]:
    """Report RBD818: the scheduler finds no node for a pod that uses the PV."""
    known = context.kube_before.nodes
    if not known or not context.kube_before.coverage.nodes():
        return
    for item, volume in context.volumes():
        terms, existing = ties_of(volume), context.existing(item)
        if isinstance(existing, PersistentVolume) and ties_of(existing) == terms:
            continue
        if terms and not any(fits(volume, node) for node in known):
            text = " or ".join(term_text(term) for term in terms)
            field = "spec.nodeAffinity" if volume.node_affinity else "metadata.labels"
            yield problem(
                Code.NO_NODE_FITS,
                item,
                field,
                f"{volume.name} may be used only where {foreign_name(text)}, and no node here has "
                "these labels: a pod that uses it gets no node.",
                subject=subject_of(item),
                evidence=(f"{field}: {foreign_name(text)}", f"nodes here: {len(known)}"),
            )


def other_namespaces(context: LintContext) -> Iterator[Problem]:
    """Report RBD819: kubectl refuses an object of another namespace than that of -n."""
    wanted = context.manifests.required_namespace
    for item, claim in context.claims():
        if wanted and claim.ref.namespace != wanted:
            own = claim.ref.namespace
            yield problem(
                Code.OTHER_NAMESPACE,
                item,
                "metadata.namespace",
                f"Claim {claim.ref} names namespace {own}, and the files are applied with -n "
                f"{wanted}: kubectl refuses the claim, and applies the others.",
                subject=subject_of(item),
                evidence=(f"namespace of the manifest: {own}", f"-n {wanted}"),
            )


CHECKS: Final = (
    claim_refs,
    policies,
    identities,
    owners,
    namespaces,
    pairs_that_differ,
    claims_of_one_volume,
    provisioned_meanwhile,
    classes_of_claims,
    nodes,
    other_namespaces,
)
