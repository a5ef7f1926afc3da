"""The clean pair: a PV and a claim that bind to each other, and to nothing else.

The claimRef has namespace and name, and no uid: syncVolume waits for the claim, and no other claim
gets the PV. The claim has volumeName, and no annotation of an earlier binding: syncUnboundClaim
finishes the binding whatever else differs. Retain keeps the image if anything goes wrong.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from rbdagent.codes import Code
from rbdagent.correlate.index import by_each
from rbdagent.correlate.names import key_of
from rbdagent.correlate.pv_matching import size_text
from rbdagent.lint.context import subject_of
from rbdagent.model import ObjectRef, PersistentVolume, PersistentVolumeClaim, Severity
from rbdagent.model.lint import CleanPair

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from rbdagent.correlate.index import Key
    from rbdagent.lint.context import LintContext
    from rbdagent.model.lint import Manifest, Problem

Json = dict[str, Any]

_OF_BINDING: Final = frozenset(
    {
        "kubectl.kubernetes.io/last-applied-configuration",
        "pv.kubernetes.io/bind-completed",
        "pv.kubernetes.io/bound-by-controller",
        "volume.beta.kubernetes.io/storage-provisioner",
        "volume.kubernetes.io/selected-node",
        "volume.kubernetes.io/storage-provisioner",
    }
)
"""Annotations that controllers write while they bind or provision, and kubectl while it applies."""
_KEPT_METADATA: Final = ("name", "namespace", "labels", "annotations")


class Pairs(NamedTuple):
    """The clean pairs, and the PVs that have none."""

    pairs: tuple[CleanPair, ...]
    without: tuple[str, ...]


def clean_pairs(context: LintContext, problems: Iterable[Problem]) -> Pairs:
    """Return a pair for each PV of the manifests whose claim is known.

    A claim that several PVs name has a pair with the first of them only.

    Args:
        context: the manifests.
        problems: what is wrong with them: a pair does not solve everything.
    """
    left = _left_by_subject(problems)
    claims = {key_of(claim.ref): item for item, claim in context.claims()}
    naming = by_each(
        (claim.volume_name, claim.ref) for _, claim in context.claims() if claim.volume_name
    )
    candidates = [(item, volume, _claim_of(item, naming)) for item, volume in context.volumes()]
    names = by_each((key_of(ref), item.name) for item, _, ref in candidates if ref is not None)
    pairs: dict[Key, CleanPair] = {}
    without = []
    for item, volume, ref in candidates:
        of_claim = None if ref is None else claims.get(key_of(ref))
        if ref is None or item.name != _chosen(of_claim, names[key_of(ref)]):
            without.append(item.name)
            continue
        notes = [
            *_kept_uid(context.existing(item)),
            *_notes(volume, of_claim),
            *left.get(subject_of(item), ()),
            *(() if of_claim is None else left.get(subject_of(of_claim), ())),
        ]
        pairs[key_of(ref)] = CleanPair(
            volume=_clean_volume(item, ref),
            claim=_clean_claim(volume, ref, of_claim),
            notes=tuple(dict.fromkeys(notes)),
        )
    return Pairs(tuple(pairs.values()), tuple(without))


def _kept_uid(existing: object) -> Iterator[str]:
    """Yield that an apply does not free a PV that exists: it merges the claimRef."""
    if isinstance(existing, PersistentVolume) and existing.claim is not None and existing.claim.uid:
        yield (
            f"{existing.name} exists here, and its claimRef has a uid, which an apply keeps: set "
            "its reclaim policy to Retain first, then remove spec.claimRef.uid by a JSON patch"
        )


def _chosen(claim: Manifest | None, names: Sequence[str]) -> str | None:
    """Return the PV that a claim gets: the one that it names, else the only one that names it."""
    named = (
        claim.object.volume_name
        if claim is not None and isinstance(claim.object, PersistentVolumeClaim)
        else None
    )
    if named is not None:
        return named
    return names[0] if len(names) == 1 else None


def _claim_of(item: Manifest, naming: Mapping[str, Sequence[ObjectRef]]) -> ObjectRef | None:
    """Return the claim of a PV: the one in its claimRef, else the only one that names it."""
    volume = item.object
    if isinstance(volume, PersistentVolume) and volume.claim is not None:
        return volume.claim
    found = naming.get(item.name, ())
    return found[0] if len(found) == 1 else None


_UNSOLVED: Final = frozenset({Severity.CRITICAL, Severity.ERROR})
SOLVED: Final = frozenset(
    {
        Code.BOUND_ALTHOUGH_DIFFERENT,
        Code.CLAIM_LOST,
        Code.DELETE_POLICY_RESTORED,
        Code.IMAGE_DELETED_ON_APPLY,
        Code.KEPT_VOLUME_REFUSED,
        Code.LEFTOVER_IDENTITY,
        Code.NAMED_VOLUME_REFUSED,
        Code.OPEN_TO_ANY_CLAIM,
        Code.OWNER_LEFT_BEHIND,
        Code.PROVISIONED_MEANWHILE,
        Code.REFERENCE_LOST,
        Code.RELEASED_ON_APPLY,
        Code.VOLUME_RESERVED,
    }
)
"""What a pair does not have."""


def _left_by_subject(problems: Iterable[Problem]) -> dict[object, list[str]]:
    """Return what a pair does not solve, by the object."""
    found: dict[object, list[str]] = {}
    for problem in problems:
        if problem.code not in SOLVED and problem.severity in _UNSOLVED:
            text = f"not solved: {problem.code} {problem.statement}"
            found.setdefault(problem.subject, []).append(text)
    return found


def _notes(volume: PersistentVolume, of_claim: Manifest | None) -> Iterator[str]:
    if volume.reclaim_policy != "Retain":
        yield f"the reclaim policy was {volume.reclaim_policy}, and is Retain"
    if of_claim is None:
        yield "the claim is not in the files: it is made from the PV"
        return
    claim = of_claim.object
    if not isinstance(claim, PersistentVolumeClaim):
        return
    if (claim.storage_class or "") != volume.storage_class:
        yield "the storage class of the claim is that of the PV"
    if not set(claim.access_modes) <= set(volume.access_modes):
        yield "the access modes of the claim are those of the PV"
    if claim.volume_mode != volume.volume_mode:
        yield "the volumeMode of the claim is that of the PV"
    if (claim.requested_bytes or 0) > (volume.capacity_bytes or 0):
        yield "the claim requests no more than the PV has"


def _metadata(data: Json) -> Json:
    """Return what a user writes: the API server and the controllers write the rest."""
    found = {key: data[key] for key in _KEPT_METADATA if data.get(key)}
    annotations = {
        key: value
        for key, value in (data.get("annotations") or {}).items()
        if key not in _OF_BINDING
    }
    found.pop("annotations", None)
    return found | ({"annotations": annotations} if annotations else {})


def _clean_volume(item: Manifest, claim: ObjectRef) -> Json:
    spec = {key: value for key, value in item.data["spec"].items() if value is not None}
    spec["claimRef"] = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "namespace": claim.namespace,
        "name": claim.name,
    }
    spec["persistentVolumeReclaimPolicy"] = "Retain"
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": _metadata(item.data["metadata"]),
        "spec": spec,
    }


def _clean_claim(volume: PersistentVolume, ref: ObjectRef, of_claim: Manifest | None) -> Json:
    known = {} if of_claim is None else of_claim.data
    metadata = {"name": ref.name} | _metadata(known.get("metadata") or {})
    given: Json = {
        key: value for key, value in (known.get("spec") or {}).items() if value is not None
    }
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": metadata | {"namespace": ref.namespace},
        "spec": given | _fitting(volume, None if of_claim is None else of_claim.object),
    }


def _fitting(volume: PersistentVolume, claim: object) -> Json:
    """Return the fields of a claim that fits a PV, with its own values where they fit."""
    modes, requested = volume.access_modes, volume.capacity_bytes
    if isinstance(claim, PersistentVolumeClaim):
        modes = claim.access_modes if set(claim.access_modes) <= set(modes) else modes
        requested = min(claim.requested_bytes or 0, requested or 0) or requested
    found: Json = {
        "accessModes": [*modes],
        # Without a class, and not with the default one, which the API server would set.
        "storageClassName": volume.storage_class,
        "volumeMode": volume.volume_mode,
        "volumeName": volume.name,
    }
    if requested:
        found["resources"] = {"requests": {"storage": size_text(requested)}}
    return found
