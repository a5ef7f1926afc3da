"""What the rules of binding and reclaiming share: what was seen, who is at work, what to type.

What these rules know was read in Kubernetes 1.36, pkg/controller/volume/persistentvolume
(syncUnboundClaim, syncBoundClaim, syncVolume), and in external-provisioner 5 and 6.
"""

from __future__ import annotations

import json
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from rbdagent.commands import command, kubectl
from rbdagent.correlate.fits import Candidate, Why, candidates, objections, spoken_size
from rbdagent.correlate.identity import target_claims
from rbdagent.correlate.names import VolumeNames, claims_of, covers_claims, pods_naming
from rbdagent.correlate.strangers import strangers
from rbdagent.diagnose.case import Case, quoted, subject_of
from rbdagent.diagnose.times import age, seconds, spoken
from rbdagent.model import (
    Claim,
    Command,
    Heals,
    Holder,
    KubeEvent,
    KubeView,
    Lease,
    NotObserved,
    ObjectRef,
    OtherSource,
    PersistentVolume,
    Pod,
    Severity,
    TargetKind,
    observed_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rbdagent.correlate.fits import Objection

BINDER: Final = "the PV controller"
PROVISIONER: Final = "external-provisioner"
SYNC_S: Final = 15.0
"""How often the PV controller looks at every claim and PV (``--pvclaimbinder-sync-period``)."""
RETRY_S: Final = 300.0
"""How far external-provisioner's tries are apart at most (``--retry-interval-max``)."""
YOUNG: Final = timedelta(seconds=30)
"""Two looks of the PV controller: what is younger may be about to change."""
SILENT: Final = timedelta(minutes=1)
"""Who is at work says so within seconds, and the PV controller has looked four times."""
WORDS_LAST: Final = timedelta(minutes=15)
"""A controller tries again within five minutes, and of what it repeats the recorder's spam filter
lets one word through every five minutes: who was last heard of before that has stopped."""
_LAPSED: Final = timedelta(minutes=1)
"""Four lengths of a lease, so that clocks which differ a little call nobody dead."""
_MOST_NEAR: Final = 5
_MOST_WORDS: Final = 2
_COMBINED: Final = "(combined from similar events): "
CONTROLLER_MANAGER: Final = "kube-controller-manager"


# --------------------------------------------------------------------------------------------------
# What was seen
# --------------------------------------------------------------------------------------------------


def claims_meant(case: Case) -> tuple[Claim, ...]:
    """Give the claims that the answer is about: a pod waits for every one of its own."""
    found = [] if case.use.claim is None else [case.use.claim]
    target, kube = case.snapshot.target, case.snapshot.kubernetes
    if target.kind is TargetKind.POD:
        wanted = target_claims(target, kube)
        found += [each for each in claims_of(kube) if (each.ref.namespace, each.ref.name) in wanted]
    return tuple(dict.fromkeys(found))


def asked_for_life(kube: KubeView | None) -> bool:
    """Tell whether the API was asked for what the life of a volume depends on."""
    return kube is not None and not (
        isinstance(kube.storage_classes, NotObserved) and isinstance(kube.drivers, NotObserved)
    )


def every_volume(case: Case) -> tuple[PersistentVolume, ...] | None:
    """Give all PVs of the cluster, in no order; None where there may be others."""
    kube = case.snapshot.kubernetes
    if kube is None or not asked_for_life(kube) or not kube.volumes_complete:
        return None
    found = kube.persistent_volumes
    return None if isinstance(found, NotObserved) else found


def volume_named(name: str, case: Case) -> PersistentVolume | NotObserved | None:
    """Give the PV of that name."""
    kube = case.snapshot.kubernetes
    volumes = () if kube is None else observed_of(kube.persistent_volumes)
    found = next((each for each in volumes if each.name == name), None)
    if found is not None or every_volume(case) is not None:
        return found
    if kube is not None and isinstance(kube.persistent_volumes, NotObserved):
        return kube.persistent_volumes
    # The PVs of a claim, and of a pod's claims, are asked for by their names.
    if kube is not None and case.snapshot.target.kind in {TargetKind.CLAIM, TargetKind.POD}:
        return None
    return NotObserved(reason=f"{name} was not asked for")


def volumes_seen(case: Case) -> tuple[PersistentVolume, ...]:
    """Give all PVs, or, where there may be others, the one that was asked about; in no order."""
    found = every_volume(case)
    if found is not None:
        return found
    return () if case.use.persistent_volume is None else (case.use.persistent_volume,)


def claim_named(ref: ObjectRef, case: Case) -> Claim | NotObserved | None:
    """Give the living claim that a PV of the target names, whatever its uid."""
    kube, kind = case.snapshot.kubernetes, case.snapshot.target.kind
    for each in claims_of(kube):
        if (each.ref.namespace, each.ref.name) == (ref.namespace, ref.name):
            return each
    if kube is None or isinstance(kube.claims, NotObserved) or kind is TargetKind.DEVICE:
        return NotObserved(reason=f"claim {ref} was not asked for")
    if kind is TargetKind.NONE and not asked_for_life(kube):
        return NotObserved(reason=f"claim {ref} was not asked for")
    return None


def users(case: Case, claim: Claim) -> tuple[Pod, ...]:
    """Give the pods that name a claim."""
    return pods_naming(claim.ref, case.snapshot.kubernetes)


def live_users(case: Case, claim: Claim) -> tuple[Pod, ...]:
    """Give those of them that still have something to do."""
    return tuple(
        each
        for each in users(case, claim)
        if each.phase not in {"Succeeded", "Failed"} and each.deleting_since is None
    )


def users_seen(case: Case, claim: Claim) -> bool:
    """Tell whether a pod that would use a claim must be among those that were seen."""
    kube = case.snapshot.kubernetes
    names = VolumeNames(image=None, claims=frozenset({(claim.ref.namespace, claim.ref.name)}))
    return kube is not None and covers_claims(kube, names)


def since(stamp: str | None, case: Case) -> timedelta | None:
    """Give how long ago something was; None: nobody knows."""
    return age(stamp, case.snapshot.observed_at)


def is_over(limit: timedelta, stamp: str | None, case: Case) -> bool:
    """Tell whether something was longer ago; what has no known age is not called young."""
    passed = since(stamp, case)
    return passed is None or passed >= limit


def weight(case: Case, stamp: str | None, limit: timedelta = YOUNG) -> Severity | None:
    """Give the catalogue's severity, or less as long as it may be passing."""
    return None if is_over(limit, stamp, case) else Severity.INFO


# --------------------------------------------------------------------------------------------------
# Events
# --------------------------------------------------------------------------------------------------


def told(case: Case, kind: str, ref: ObjectRef) -> tuple[KubeEvent, ...]:
    """Give an object's own events, the newest last; a PV's have no namespace."""
    return tuple(
        each
        for each in case.use.events
        if each.kind == kind
        and each.subject.name == ref.name
        and each.subject.namespace in {ref.namespace, ""}
        and each.subject.uid in (None, ref.uid)
    )


def told_of_claim(case: Case, claim: Claim) -> tuple[KubeEvent, ...]:
    """Give a claim's own events, the newest last."""
    return told(case, "PersistentVolumeClaim", claim.ref)


def told_of_volume(case: Case, volume: PersistentVolume) -> tuple[KubeEvent, ...]:
    """Give a PV's own events, the newest last."""
    ref = ObjectRef(namespace="", name=volume.name, uid=volume.uid)
    return told(case, "PersistentVolume", ref)


def is_fresh(event: KubeEvent, case: Case) -> bool:
    """Tell whether whoever said it is still at it, as far as that can be told."""
    passed = since(event.last_seen, case)
    return passed is None or passed < WORDS_LAST


def words(event: KubeEvent) -> str:
    """Give what an event says."""
    return event.message.removeprefix(_COMBINED)


def last_words(case: Case, claim: Claim) -> tuple[str, ...]:
    """Quote the newest events of a claim."""
    return tuple(quoted(each) for each in told_of_claim(case, claim)[-_MOST_WORDS:])


# --------------------------------------------------------------------------------------------------
# Who is at work
# --------------------------------------------------------------------------------------------------


def controller_lease(case: Case) -> Lease | None:
    """Give kube-controller-manager's lease; None where there is none, or nobody looked."""
    kube = case.snapshot.kubernetes
    leases = () if kube is None else observed_of(kube.leases)
    wanted = ("kube-system", CONTROLLER_MANAGER)
    return next((each for each in leases if (each.namespace, each.name) == wanted), None)


def lapsed(lease: Lease | None, case: Case) -> bool:
    """Tell whether nobody holds a lease any more: whoever did has stopped."""
    if lease is None or lease.renewed_at is None:
        return False
    passed = since(lease.renewed_at, case)
    return passed is not None and passed > max(_LAPSED, 4 * seconds(lease.duration_s))


def spoken_lease(lease: Lease, case: Case) -> str:
    """Tell of a lease."""
    who = f", held by {lease.holder}" if lease.holder else ""
    renewed = spoken(since(lease.renewed_at, case))
    return f"lease {lease.namespace}/{lease.name}{who}, renewed {renewed} ago"


def binder(case: Case, once: str = "", *, note: str = "") -> Heals:
    """Say that the PV controller does it at its next look, once something has happened."""
    runs = f"{CONTROLLER_MANAGER} runs again" if lapsed(controller_lease(case), case) else ""
    both = " and ".join(each for each in (once, runs) if each)
    return Heals(by=BINDER, once=both, within_s=SYNC_S, note=note)


# --------------------------------------------------------------------------------------------------
# PVs that come near
# --------------------------------------------------------------------------------------------------


def near(case: Case, claim: Claim, *, delayed: bool = False) -> tuple[Candidate, ...]:
    """Give the PVs that come nearest to a claim, with what is against each."""
    return candidates(claim, every_volume(case) or (), delayed=delayed)[:_MOST_NEAR]


def fitting(case: Case, claim: Claim) -> PersistentVolume | None:
    """Give the PV that the PV controller would choose for a claim: the smallest that fits."""
    fits = [each for each in every_volume(case) or () if not objections(claim, each)]
    return min(fits, key=lambda each: (each.capacity_bytes or 0, each.name), default=None)


def spoken_candidate(candidate: Candidate) -> str:
    """Tell why a PV is not it: what is asked first comes first."""
    return f"{candidate.volume.name} {spoken_objections(candidate.objections)}"


def spoken_objections(objections: Iterable[Objection]) -> str:
    """Tell every reason, to be read after a PV's name."""
    return "; ".join(str(each) for each in objections) or "would fit"


def changes(
    claim: Claim, volume: PersistentVolume, objections: tuple[Objection, ...], case: Case
) -> tuple[Command, ...]:
    """Give what would make a PV fit a claim; none where one thing cannot, or must not, be changed.

    A PV's access modes are what keeps a second node off: they are never widened beyond one node.
    """
    found = [_change(each.why, claim, volume, case) for each in objections]
    return tuple(each for each in found if each) if all(found) else ()


def _change(why: Why, claim: Claim, volume: PersistentVolume, case: Case) -> Command | None:
    match why:
        case Why.CLASS:
            return patch_volume(volume, {"storageClassName": claim.storage_class or ""})
        case Why.MODES if set(claim.access_modes) <= {"ReadWriteOnce", "ReadWriteOncePod"}:
            modes = dict.fromkeys((*volume.access_modes, *claim.access_modes))
            return patch_volume(volume, {"accessModes": [*modes]})
        case Why.SIZE if (_image_size(volume, case) or 0) >= (claim.requested_bytes or 0):
            size = spoken_size(claim.requested_bytes or 0)
            return patch_volume(volume, {"capacity": {"storage": size}})
        case Why.LABELS:
            return _label(claim, volume)
        case _:
            return None


def _image_size(volume: PersistentVolume, case: Case) -> int | None:
    """Give the size of the image itself: a PV's capacity is a mere word."""
    shown = case.use.persistent_volume
    view = case.use.image_view
    if shown is None or shown.name != volume.name or view is None:
        return None
    return view.size_bytes


def _label(claim: Claim, volume: PersistentVolume) -> Command | None:
    has = dict(volume.labels)
    lacking = [each for each in claim.selector or () if has.get(each.key) not in each.values]
    if not all(
        each.operator == "In" and len(each.values) == 1 and each.key not in has for each in lacking
    ):
        return None
    labels = [f"{term.key}={term.values[0]}" for term in lacking]
    return kubectl("label pv", volume.name, *labels)


# --------------------------------------------------------------------------------------------------
# What to type
# --------------------------------------------------------------------------------------------------


def describe_claim(claim: Claim) -> Command:
    """Show a claim."""
    return kubectl("describe pvc", claim.ref.name, namespace=claim.ref.namespace)


def describe_volume(volume: PersistentVolume) -> Command:
    """Show a PV."""
    return kubectl("describe pv", volume.name)


def patch_volume(volume: PersistentVolume, spec: dict[str, object]) -> Command:
    """Change a PV's spec."""
    return kubectl("patch pv", volume.name, options=_merged(spec))


def patch_claim(claim: Claim, spec: dict[str, object]) -> Command:
    """Change a claim's spec."""
    name, namespace = claim.ref.name, claim.ref.namespace
    return kubectl("patch pvc", name, namespace=namespace, options=_merged(spec))


def _merged(spec: dict[str, object]) -> tuple[str, ...]:
    return ("--type", "merge", "-p", _json({"spec": spec}))


def annotate_claim(claim: Claim, annotation: str) -> Command:
    """Set an annotation of a claim, or with a ``-`` behind its name take it away."""
    return kubectl("annotate pvc", claim.ref.name, annotation, namespace=claim.ref.namespace)


def retain(volume: PersistentVolume) -> tuple[Command, ...]:
    """Keep a PV's image from being deleted, where it is not kept already."""
    if volume.reclaim_policy == "Retain":
        return ()
    return (patch_volume(volume, {"persistentVolumeReclaimPolicy": "Retain"}),)


def free(volume: PersistentVolume) -> Command:
    """Take the claimRef out of a PV: whichever claim fits next gets it, with its data."""
    operation = [*_unchanged(volume), {"op": "remove", "path": "/spec/claimRef"}]
    return kubectl("patch pv", volume.name, options=("--type", "json", "-p", _json(operation)))


def give_to(claim: Claim, volume: PersistentVolume) -> Command:
    """Have a PV's claimRef mean this very claim, if it still says what was seen.

    Its uid must be the living claim's: without one, a claim that carries bind-completed stays Lost
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
    """Give what has the API server refuse a patch to a PV that is another claim's by now."""
    if volume.claim is None:
        return []
    parts = {"namespace": volume.claim.namespace, "name": volume.claim.name}
    return [
        {"op": "test", "path": f"/spec/claimRef/{key}", "value": value}
        for key, value in parts.items()
    ]


def _json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))


# --------------------------------------------------------------------------------------------------
# Before a PV changes hands
# --------------------------------------------------------------------------------------------------


def outsiders(case: Case, volume: PersistentVolume) -> tuple[Holder, ...] | NotObserved:
    """Give who watches a PV's image from no node of this cluster: perhaps the one it came from."""
    shown, view, kube = case.use.persistent_volume, case.use.image_view, case.snapshot.kubernetes
    if shown is None or shown.name != volume.name or view is None:
        return NotObserved(reason="its image was not looked at")
    if isinstance(view.watchers, NotObserved):
        return view.watchers
    if kube is None or isinstance(kube.nodes, NotObserved) or not kube.nodes_complete:
        return NotObserved(reason="which watchers are nodes of this cluster was not observed")
    return tuple(each for each in strangers(case.use) if each.node is None)


def spoken_outsiders(case: Case, volume: PersistentVolume) -> str:
    """Say whom of them there is, or that nobody could look."""
    found = outsiders(case, volume)
    if isinstance(found, NotObserved):
        return f"whether another cluster has the image of {volume.name} open: {found.reason}"
    if not found:
        return f"nobody outside this cluster has the image of {volume.name} open"
    named = ", ".join(subject_of(each) for each in found)
    return f"{volume.name}'s image is watched by {named}: an address that no node here lists"


def hand_over(case: Case, claim: Claim, volume: PersistentVolume) -> tuple[Command, ...]:
    """Give what binds a PV to a claim that it was not made for, in order.

    First the data is kept. As long as somebody outside has the image open, that is where to begin.
    """
    if isinstance(volume.source, OtherSource):
        return (*retain(volume), *((give_to(claim, volume),) if claim.ref.uid else ()))
    found = outsiders(case, volume)
    look = command("rbdagent who-holds", f"pv/{volume.name}")
    if found and not isinstance(found, NotObserved):
        return (*retain(volume), look)
    asked = (look,) if isinstance(found, NotObserved) else ()
    return (*retain(volume), *asked, *((give_to(claim, volume),) if claim.ref.uid else ()))
