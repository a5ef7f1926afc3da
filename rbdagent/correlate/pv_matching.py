"""Check whether a PV can be bound to a claim, and return every reason against it.

The rules are those of ``FindMatchingVolume`` (k8s.io/component-helpers/storage/volume) and
``checkVolumeSatisfyClaim`` (pkg/controller/volume/persistentvolume), read in Kubernetes 1.36.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

from msgspec import Struct

from rbdagent.parse.selector import selects

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rbdagent.model import PersistentVolume, PersistentVolumeClaim


class Why(StrEnum):
    """The field that prevents a claim from getting a PV."""

    CLAIMED = "claimRef"
    MODES = "accessModes"
    SIZE = "capacity"
    MODE = "volumeMode"
    ATTRIBUTES = "volumeAttributesClassName"
    DELETED = "deletionTimestamp"
    DELAYED = "volumeBindingMode"
    PHASE = "phase"
    LABELS = "selector"
    CLASS = "storageClassName"


class Objection(Struct, frozen=True):
    """One reason why a claim does not get a PV."""

    why: Why
    text: str
    """A predicate; its subject is the name of the PV."""

    def __str__(self) -> str:
        return self.text


class Candidate(Struct, frozen=True, kw_only=True):
    """Holds a PV that a claim does not get, and the reasons."""

    volume: PersistentVolume
    objections: tuple[Objection, ...]


def candidates(
    claim: PersistentVolumeClaim, volumes: Iterable[PersistentVolume], *, delayed: bool = False
) -> tuple[Candidate, ...]:
    """Return every PV with the reasons against it; the PV with the fewest reasons comes first."""
    found = (
        Candidate(volume=volume, objections=objections(claim, volume, delayed=delayed))
        for volume in volumes
    )
    return tuple(
        sorted(found, key=lambda candidate: (len(candidate.objections), candidate.volume.name))
    )


def is_reserved_for(claim: PersistentVolumeClaim, volume: PersistentVolume) -> bool:
    """Return whether a PV's claimRef refers to exactly this claim: ``IsVolumeBoundToClaim``.

    The name must be equal, and the uid if the claimRef has one. Without a uid, the PV is reserved
    for any claim with that name.
    """
    bound = volume.claim
    return bound is not None and _same_name(claim, volume) and bound.uid in (None, claim.ref.uid)


def objections(
    claim: PersistentVolumeClaim, volume: PersistentVolume, *, delayed: bool = False
) -> tuple[Objection, ...]:
    """Return every reason why the PV controller does not choose a PV for a claim.

    Without a reason, the controller chooses the PV, or a smaller one that also fits.

    Args:
        claim: a claim that names no PV and was never bound.
        volume: any PV.
        delayed: whether the storage class leaves the choice to the scheduler
            (WaitForFirstConsumer).
    """
    found = [
        *_claimed(claim, volume),
        *_lacking_modes(claim, volume),
        *_too_small(claim, volume),
        *_mode(claim, volume),
        *_attributes(claim, volume),
        *_being_deleted(volume),
    ]
    if is_reserved_for(claim, volume):
        # The controller binds the PV without a check of phase, labels and class.
        return tuple(found)
    if delayed:
        text = "is chosen by the scheduler, together with a node for the first pod"
        found.append(Objection(Why.DELAYED, text))
    if volume.phase != "Available":
        found.append(Objection(Why.PHASE, f"is {volume.phase or 'without a phase yet'}"))
    if claim.selector is not None and not selects(claim.selector, dict(volume.labels)):
        required = ", ".join(str(requirement) for requirement in claim.selector)
        text = f"does not have the labels that the claim's selector requires ({required})"
        found.append(Objection(Why.LABELS, text))
    return (*found, *_class(claim, volume))


def refusals(claim: PersistentVolumeClaim, volume: PersistentVolume) -> tuple[Objection, ...]:
    """Return every reason why a claim does not get the PV that it names; the PV names no claim."""
    return (
        *_being_deleted(volume),
        *_too_small(claim, volume),
        *_class(claim, volume),
        *_attributes(claim, volume),
        *_mode(claim, volume),
        *_lacking_modes(claim, volume),
    )


def _claimed(claim: PersistentVolumeClaim, volume: PersistentVolume) -> list[Objection]:
    if volume.claim is None or is_reserved_for(claim, volume):
        return []
    if _same_name(claim, volume):
        text = "still names an older claim of the same name, with another uid"
    else:
        text = f"belongs to claim {volume.claim}"
    return [Objection(Why.CLAIMED, text)]


def _same_name(claim: PersistentVolumeClaim, volume: PersistentVolume) -> bool:
    return str(volume.claim) == str(claim.ref)


def _lacking_modes(claim: PersistentVolumeClaim, volume: PersistentVolume) -> list[Objection]:
    lacking = [mode for mode in claim.access_modes if mode not in volume.access_modes]
    if not lacking:
        return []
    offered = ", ".join(volume.access_modes) or "no access mode"
    text = f"offers {offered}, the claim requests {', '.join(lacking)}"
    return [Objection(Why.MODES, text)]


def _too_small(claim: PersistentVolumeClaim, volume: PersistentVolume) -> list[Objection]:
    wanted, has = claim.requested_bytes, volume.capacity_bytes
    if wanted is None or has is None or has >= wanted:
        return []
    text = f"has {size_text(has)}, the claim requests {size_text(wanted)}"
    return [Objection(Why.SIZE, text)]


def _mode(claim: PersistentVolumeClaim, volume: PersistentVolume) -> list[Objection]:
    if claim.volume_mode == volume.volume_mode:
        return []
    text = f"has volumeMode {volume.volume_mode}, the claim requests {claim.volume_mode}"
    return [Objection(Why.MODE, text)]


def _attributes(claim: PersistentVolumeClaim, volume: PersistentVolume) -> list[Objection]:
    if claim.attributes_class == volume.attributes_class:
        return []
    text = (
        f"has volumeAttributesClassName {_named(volume.attributes_class)}, the claim requests "
        f"{_named(claim.attributes_class)}"
    )
    return [Objection(Why.ATTRIBUTES, text)]


def _class(claim: PersistentVolumeClaim, volume: PersistentVolume) -> list[Objection]:
    # A claim without a class matches a PV without a class.
    if (claim.storage_class or "") == volume.storage_class:
        return []
    text = (
        f"is of storage class {_named(volume.storage_class)}, the claim requests "
        f"{_named(claim.storage_class or '')}"
    )
    return [Objection(Why.CLASS, text)]


def _named(name: str) -> str:
    return name or "none"


def _being_deleted(volume: PersistentVolume) -> list[Objection]:
    return [] if volume.deleting_since is None else [Objection(Why.DELETED, "is being deleted")]


def size_text(size: int) -> str:
    """Format a size as Kubernetes does, in the largest unit that divides it."""
    for power, unit in ((4, "Ti"), (3, "Gi"), (2, "Mi"), (1, "Ki")):
        if size and size % 1024**power == 0:
            return f"{size // 1024**power}{unit}"
    return str(size)
