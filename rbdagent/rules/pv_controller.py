"""Shared parts of the rules of binding and reclaiming: observations, controllers, commands.

These rules follow the source code of Kubernetes 1.36 (syncUnboundClaim, syncBoundClaim and
syncVolume in pkg/controller/volume/persistentvolume/pv_controller.go), and of external-provisioner
5 and 6.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

import msgspec

from rbdagent.commands import command, kubectl
from rbdagent.correlate.names import key_of
from rbdagent.correlate.pv_matching import Candidate, Why, candidates, objections, size_text
from rbdagent.correlate.resolve import target_claims
from rbdagent.correlate.unknown_watchers import watchers_elsewhere
from rbdagent.model import (
    Command,
    Holder,
    KubeEvent,
    Lease,
    NotObserved,
    ObjectRef,
    OtherSource,
    PersistentVolume,
    PersistentVolumeClaim,
    Pod,
    Recovery,
    Severity,
    TargetKind,
    Words,
    observed_of,
    stated,
)
from rbdagent.rules.context import RuleContext, quoted, subject_of
from rbdagent.verdicts.timing import age, age_text, seconds

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rbdagent.correlate.pv_matching import Objection

BINDER: Final = "the PV controller"
PROVISIONER: Final = "external-provisioner"
SYNC_S: Final = 15
"""The interval between two syncs of the PV controller (``--pvclaimbinder-sync-period``;
pkg/controller/volume/persistentvolume/config/v1alpha1/defaults.go@v1.36.3)."""
RETRY_S: Final = 300
"""The longest interval between two tries of external-provisioner (``--retry-interval-max``;
cmd/csi-provisioner/csi-provisioner.go@v6.3.0)."""
YOUNG: Final = timedelta(seconds=30)
"""Two syncs of the PV controller: the state of a younger object may be about to change."""
SILENT: Final = timedelta(minutes=1)
"""A working component reports within seconds, and the PV controller has synced four times."""
WORDS_LAST: Final = timedelta(minutes=15)
"""A controller retries within five minutes, and the spam filter of the event recorder passes one
repeated event every five minutes (defaultSpamQPS, tools/record/events_cache.go@v0.36.3 of
client-go): a controller with no event in this time has stopped."""
_EXPIRED: Final = timedelta(minutes=1)
"""Four lengths of a lease, so that a small difference between clocks is not read as a failure."""
_MAX_CANDIDATES: Final = 5
_MAX_EVENTS: Final = 2
CONTROLLER_MANAGER: Final = "kube-controller-manager"


# --------------------------------------------------------------------------------------------------
# Observations
# --------------------------------------------------------------------------------------------------


def claims_of_target(context: RuleContext) -> tuple[PersistentVolumeClaim, ...]:
    """Return the claims of the target: a pod waits for all of its claims."""
    found = [] if context.volume.claim is None else [context.volume.claim]
    target, kube = context.snapshot.target, context.snapshot.kubernetes
    if target.kind is TargetKind.POD:
        keys = target_claims(target, kube)
        found += [
            context.kube.claim_by_key[key] for key in keys if key in context.kube.claim_by_key
        ]
    return tuple(dict.fromkeys(found))


def knows_all_volumes(context: RuleContext) -> bool:
    """Return whether all PVs of the cluster were observed."""
    return context.kube.coverage.lifecycle and context.kube.coverage.volumes()


def volume_named(name: str, context: RuleContext) -> PersistentVolume | NotObserved | None:
    """Return the PV with a name."""
    kube = context.snapshot.kubernetes
    found = context.kube.volume_by_name.get(name)
    if found is not None or knows_all_volumes(context):
        return found
    if kube is not None and isinstance(kube.persistent_volumes, NotObserved):
        return kube.persistent_volumes
    # The PVs of a claim, and of a pod's claims, are requested by name.
    if kube is not None and context.snapshot.target.kind in {TargetKind.CLAIM, TargetKind.POD}:
        return None
    return NotObserved(reason=f"{name} was not requested")


def volumes_naming(context: RuleContext, claim: PersistentVolumeClaim) -> list[PersistentVolume]:
    """Return the PVs whose claimRef has the name of a claim, in order of their names.

    If there may be more PVs, these are none but the target's PV.
    """
    found = context.kube.volumes_by_claim.get(key_of(claim.ref), [])
    own = context.volume.persistent_volume
    return [volume for volume in found if volume == own or knows_all_volumes(context)]


def claim_named(ref: ObjectRef, context: RuleContext) -> PersistentVolumeClaim | NotObserved | None:
    """Return the existing claim that a PV of the target names, whatever its uid."""
    kind = context.snapshot.target.kind
    claim = context.kube.claim_by_key.get(key_of(ref))
    if claim is not None:
        return claim
    if not context.kube.coverage.claims or kind is TargetKind.DEVICE:
        return NotObserved(reason=f"claim {ref} was not requested")
    if kind is TargetKind.NONE and not context.kube.coverage.lifecycle:
        return NotObserved(reason=f"claim {ref} was not requested")
    return None


def is_claim_gone(volume: PersistentVolume, context: RuleContext) -> bool:
    """Return whether a PV is Bound for a claim that was observed not to exist.

    A PV that was bound a moment ago was perhaps read after the claims.
    """
    return (
        volume.phase == "Bound"
        and volume.claim is not None
        and volume.claim.uid is not None
        and is_over(YOUNG, volume.phase_since, context)
        # Only the claims of PVs with the name of an image are requested, and not of one that was
        # found by the path of its mount.
        and context.snapshot.target.kind is not TargetKind.IMAGE
        and claim_named(volume.claim, context) is None
    )


def users(context: RuleContext, claim: PersistentVolumeClaim) -> tuple[Pod, ...]:
    """Return the pods that name a claim."""
    return tuple(context.kube.pods_by_claim.get(key_of(claim.ref), ()))


def live_users(context: RuleContext, claim: PersistentVolumeClaim) -> tuple[Pod, ...]:
    """Return the pods that name a claim, have not finished and are not being deleted."""
    return tuple(
        pod
        for pod in users(context, claim)
        if pod.phase not in {"Succeeded", "Failed"} and pod.deleting_since is None
    )


def are_users_observed(context: RuleContext, claim: PersistentVolumeClaim) -> bool:
    """Return whether every pod that uses a claim was observed."""
    return context.kube.coverage.pods_of((key_of(claim.ref),))


def since(stamp: str | None, context: RuleContext) -> timedelta | None:
    """Return how long ago a time was; None if it is unknown."""
    return age(stamp, context.snapshot.observed_at)


def is_over(limit: timedelta, stamp: str | None, context: RuleContext) -> bool:
    """Return whether a time is at least as long ago as a limit; True if its age is unknown."""
    passed = since(stamp, context)
    return passed is None or passed >= limit


def weight(context: RuleContext, stamp: str | None, limit: timedelta = YOUNG) -> Severity | None:
    """Return None for the catalogue's severity, or INFO while the state may be transient."""
    return None if is_over(limit, stamp, context) else Severity.INFO


# --------------------------------------------------------------------------------------------------
# Events
# --------------------------------------------------------------------------------------------------


def events_about(context: RuleContext, kind: str, ref: ObjectRef) -> tuple[KubeEvent, ...]:
    """Return the events of an object, the newest last; events of a PV have no namespace."""
    return tuple(
        event
        for event in context.volume.events
        if event.kind == kind
        and event.subject.name == ref.name
        and event.subject.namespace in {ref.namespace, ""}
        and event.subject.uid in (None, ref.uid)
    )


def events_of_claim(context: RuleContext, claim: PersistentVolumeClaim) -> tuple[KubeEvent, ...]:
    """Return the events of a claim, the newest last."""
    return events_about(context, "PersistentVolumeClaim", claim.ref)


def events_of_volume(context: RuleContext, volume: PersistentVolume) -> tuple[KubeEvent, ...]:
    """Return the events of a PV, the newest last."""
    ref = ObjectRef(namespace="", name=volume.name, uid=volume.uid)
    return events_about(context, "PersistentVolume", ref)


def is_recent(event: KubeEvent, context: RuleContext) -> bool:
    """Return whether the reporter of an event may still be working, as far as that is known."""
    passed = since(event.last_seen, context)
    return passed is None or passed < WORDS_LAST


def newest_events(context: RuleContext, claim: PersistentVolumeClaim) -> tuple[str, ...]:
    """Return the newest events of a claim, quoted."""
    return tuple(quoted(event) for event in events_of_claim(context, claim)[-_MAX_EVENTS:])


# --------------------------------------------------------------------------------------------------
# Controllers
# --------------------------------------------------------------------------------------------------


def loss_events(context: RuleContext, claim: PersistentVolumeClaim) -> tuple[str, ...]:
    """Return the event of the loss: it is recorded once, and Kubernetes keeps it for an hour."""
    reasons = {"ClaimLost", "ClaimMisbound"}
    return tuple(
        quoted(event) for event in events_of_claim(context, claim) if event.reason in reasons
    )[-1:]


def running_pods_text(context: RuleContext, claim: PersistentVolumeClaim) -> Words:
    """Return a sentence about running pods: kubelet does not unmount for a claim's phase."""
    running = [pod for pod in users(context, claim) if pod.phase == "Running"]
    if not running:
        return ""
    return stated(
        " Pods that still use the volume: {pods}. They cannot start again without the claim.",
        pods=[pod.ref for pod in running],
    )


def controller_lease(context: RuleContext) -> Lease | None:
    """Return the lease of kube-controller-manager; None if there is none or it was not observed."""
    kube = context.snapshot.kubernetes
    leases = () if kube is None else observed_of(kube.leases)
    wanted = ("kube-system", CONTROLLER_MANAGER)
    return next((lease for lease in leases if (lease.namespace, lease.name) == wanted), None)


def lapsed(lease: Lease | None, context: RuleContext) -> bool:
    """Return whether a lease has expired: its last holder has stopped."""
    if lease is None or lease.renewed_at is None:
        return False
    passed = since(lease.renewed_at, context)
    return passed is not None and passed > max(_EXPIRED, 4 * seconds(lease.duration_s))


def lease_line(lease: Lease, context: RuleContext) -> str:
    """Return a lease as a line of evidence."""
    holder = f", held by {lease.holder}" if lease.holder else ""
    renewed = age_text(since(lease.renewed_at, context))
    return f"lease {lease.namespace}/{lease.name}{holder}, renewed {renewed} ago"


def binder(context: RuleContext, once: str = "", *, note: str = "") -> Recovery:
    """Return the recovery by the PV controller at its next sync, after a condition is met."""
    runs = f"{CONTROLLER_MANAGER} runs again" if lapsed(controller_lease(context), context) else ""
    both = " and ".join(condition for condition in (once, runs) if condition)
    return Recovery(actor=BINDER, condition=both, within_s=SYNC_S, note=note)


# --------------------------------------------------------------------------------------------------
# PVs that are close to a claim's requirements
# --------------------------------------------------------------------------------------------------


def near(
    context: RuleContext, claim: PersistentVolumeClaim, *, delayed: bool = False
) -> tuple[Candidate, ...]:
    """Return the PVs that are closest to a claim's requirements, with the objections to them."""
    return candidates(claim, _nearest(context, claim), delayed=delayed)[:_MAX_CANDIDATES]


def _nearest(context: RuleContext, claim: PersistentVolumeClaim) -> Iterable[PersistentVolume]:
    """Return the PVs that fit a claim best, and those that name it; none if there may be more."""
    if not knows_all_volumes(context):
        return ()
    return dict.fromkeys((*context.kube.shortlist.nearest(claim), *volumes_naming(context, claim)))


def all_fitting(context: RuleContext, claim: PersistentVolumeClaim) -> tuple[PersistentVolume, ...]:
    """Return PVs that fit a claim: all, or so many that there certainly are several."""
    return tuple(volume for volume in _nearest(context, claim) if not objections(claim, volume))


def fitting(context: RuleContext, claim: PersistentVolumeClaim) -> PersistentVolume | None:
    """Return the PV that the PV controller would choose for a claim: the smallest that fits."""
    if not knows_all_volumes(context):
        return None
    smallest = context.kube.shortlist.smallest_fit(claim)
    fits = [*all_fitting(context, claim), *([] if smallest is None else [smallest])]
    return min(fits, key=lambda volume: (volume.capacity_bytes or 0, volume.name), default=None)


def candidate_text(candidate: Candidate) -> str:
    """Return why a claim does not get a PV, in the order of the controller's checks."""
    return f"{candidate.volume.name} {objections_text(candidate.objections)}"


def objections_text(objections: tuple[Objection, ...]) -> Words:
    """Return all reasons as words that follow the name of a PV."""
    return stated("{objections:;}", objections=objections) if objections else "would fit"


def changes(
    claim: PersistentVolumeClaim,
    volume: PersistentVolume,
    objections: tuple[Objection, ...],
    context: RuleContext,
) -> tuple[Command, ...]:
    """Return the commands that make a PV fit a claim; none if a change is impossible or unsafe.

    The access modes of a PV keep a second node from using it: they are never widened beyond one
    node.
    """
    found = [_change(objection.why, claim, volume, context) for objection in objections]
    return tuple(patch for patch in found if patch) if all(found) else ()


def _change(
    why: Why, claim: PersistentVolumeClaim, volume: PersistentVolume, context: RuleContext
) -> Command | None:
    match why:
        case Why.CLASS:
            return patch_volume(volume, {"storageClassName": claim.storage_class or ""})
        case Why.MODES if set(claim.access_modes) <= {"ReadWriteOnce", "ReadWriteOncePod"}:
            modes = dict.fromkeys((*volume.access_modes, *claim.access_modes))
            return patch_volume(volume, {"accessModes": [*modes]})
        case Why.SIZE if (_image_size(volume, context) or 0) >= (claim.requested_bytes or 0):
            size = size_text(claim.requested_bytes or 0)
            return patch_volume(volume, {"capacity": {"storage": size}})
        case Why.LABELS:
            return _label(claim, volume)
        case _:
            return None


def _image_size(volume: PersistentVolume, context: RuleContext) -> int | None:
    """Return the size of the image itself: a PV's capacity is only a declaration."""
    shown = context.volume.persistent_volume
    view = context.volume.image_view
    if shown is None or shown.name != volume.name or view is None:
        return None
    return view.size_bytes


def _label(claim: PersistentVolumeClaim, volume: PersistentVolume) -> Command | None:
    has = dict(volume.labels)
    lacking = [term for term in claim.selector or () if has.get(term.key) not in term.values]
    if not all(
        term.operator == "In" and len(term.values) == 1 and term.key not in has for term in lacking
    ):
        return None
    labels = [f"{term.key}={term.values[0]}" for term in lacking]
    return kubectl("label pv", volume.name, *labels)


# --------------------------------------------------------------------------------------------------
# Commands
# --------------------------------------------------------------------------------------------------


def describe_claim(claim: PersistentVolumeClaim) -> Command:
    """Return the command that shows a claim."""
    return kubectl("describe pvc", claim.ref.name, namespace=claim.ref.namespace)


def describe_volume(volume: PersistentVolume) -> Command:
    """Return the command that shows a PV."""
    return kubectl("describe pv", volume.name)


def patch_volume(volume: PersistentVolume, spec: dict[str, object]) -> Command:
    """Return the command that changes the spec of a PV."""
    return kubectl("patch pv", volume.name, options=_merged(spec))


def patch_claim(claim: PersistentVolumeClaim, spec: dict[str, object]) -> Command:
    """Return the command that changes the spec of a claim."""
    name, namespace = claim.ref.name, claim.ref.namespace
    return kubectl("patch pvc", name, namespace=namespace, options=_merged(spec))


def _merged(spec: dict[str, object]) -> tuple[str, ...]:
    return ("--type", "merge", "-p", _json({"spec": spec}))


def annotate_claim(claim: PersistentVolumeClaim, annotation: str) -> Command:
    """Return the command that sets an annotation of a claim; a trailing ``-`` removes it."""
    return kubectl("annotate pvc", claim.ref.name, annotation, namespace=claim.ref.namespace)


def retain(volume: PersistentVolume) -> tuple[Command, ...]:
    """Return the command that sets Retain, unless the PV already has it."""
    if volume.reclaim_policy == "Retain":
        return ()
    return (patch_volume(volume, {"persistentVolumeReclaimPolicy": "Retain"}),)


def remove_claim_ref(volume: PersistentVolume) -> Command:
    """Return the command that removes a PV's claimRef: the next claim that fits gets its data."""
    operation = [*_unchanged(volume), {"op": "remove", "path": "/spec/claimRef"}]
    return kubectl("patch pv", volume.name, options=("--type", "json", "-p", _json(operation)))


def point_volume_at_claim(claim: PersistentVolumeClaim, volume: PersistentVolume) -> Command:
    """Return the command that points a PV's claimRef at a claim, if it has not changed since.

    It sets the uid of the existing claim: without it, a claim with bind-completed stays Lost
    (syncBoundClaim, binder_test.go "3-4").
    """
    operation: list[dict[str, object]] = _unchanged(volume)
    if volume.claim is not None and str(volume.claim) == str(claim.ref):
        operation.append({"op": "add", "path": "/spec/claimRef/uid", "value": claim.ref.uid})
    else:
        reference = {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "namespace": claim.ref.namespace,
            "name": claim.ref.name,
            "uid": claim.ref.uid,
        }
        operation.append({"op": "add", "path": "/spec/claimRef", "value": reference})
    return kubectl("patch pv", volume.name, options=("--type", "json", "-p", _json(operation)))


def _unchanged(volume: PersistentVolume) -> list[dict[str, object]]:
    """Return the tests that let the API server reject a patch if the claimRef has changed."""
    if volume.claim is None:
        return []
    parts = {"namespace": volume.claim.namespace, "name": volume.claim.name}
    return [
        {"op": "test", "path": f"/spec/claimRef/{key}", "value": value}
        for key, value in parts.items()
    ]


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


# --------------------------------------------------------------------------------------------------
# Checks before a PV is bound to another claim
# --------------------------------------------------------------------------------------------------


def external_watchers(
    context: RuleContext, volume: PersistentVolume
) -> tuple[Holder, ...] | NotObserved:
    """Return the watchers of a PV's image outside this cluster, perhaps in its original cluster.

    A watcher whose node is only probable may be outside too.
    """
    shown, view = context.volume.persistent_volume, context.volume.image_view
    if shown is None or shown.name != volume.name or view is None:
        return NotObserved(reason="its image was not observed")
    if isinstance(view.watchers, NotObserved):
        return view.watchers
    if not context.kube.coverage.nodes():
        return NotObserved(reason="the nodes of this cluster were not observed")
    return tuple(
        holder
        for holder in watchers_elsewhere(context.volume)
        if holder.node is None or holder.is_node_probable
    )


def external_watchers_text(context: RuleContext, volume: PersistentVolume) -> str:
    """Return the watchers outside this cluster as text, or why they were not observed."""
    found = external_watchers(context, volume)
    if isinstance(found, NotObserved):
        return (
            f"not known whether another cluster has the image of {volume.name} open: {found.reason}"
        )
    if not found:
        return f"no client outside this cluster has the image of {volume.name} open"
    named = ", ".join(str(subject_of(holder)) for holder in found)
    where = "no node of this cluster lists the address"
    if any(holder.is_node_probable for holder in found):
        where = "no Node of this cluster has the address as its InternalIP"
    return f"{volume.name}'s image is watched by {named}: {where}"


def hand_over(
    context: RuleContext, claim: PersistentVolumeClaim, volume: PersistentVolume
) -> tuple[Command, ...]:
    """Return the commands that bind a PV to a claim that it was not created for, in order.

    The first command keeps the data. If a client outside this cluster has the image open, the
    commands only show that client and do not bind the PV.
    """
    if isinstance(volume.source, OtherSource):
        return (
            *retain(volume),
            *((point_volume_at_claim(claim, volume),) if claim.ref.uid else ()),
        )
    found = external_watchers(context, volume)
    holders = command("rbdagent who-holds", f"pv/{volume.name}")
    if observed_of(found):
        return (*retain(volume), holders)
    check = (holders,) if isinstance(found, NotObserved) else ()
    return (
        *retain(volume),
        *check,
        *((point_volume_at_claim(claim, volume),) if claim.ref.uid else ()),
    )
