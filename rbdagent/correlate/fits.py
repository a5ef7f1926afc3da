"""Whether a PV could be bound to a claim, and every reason against it.

The rules are those of ``FindMatchingVolume`` (k8s.io/component-helpers/storage/volume) and
``checkVolumeSatisfyClaim`` (pkg/controller/volume/persistentvolume), read in Kubernetes 1.36.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from rbdagent.parse.selector import selects

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rbdagent.model import Claim, PersistentVolume


class Candidate(Struct, frozen=True, kw_only=True):
    """A PV that a claim does not get, and why."""

    volume: PersistentVolume
    objections: tuple[str, ...]


def candidates(claim: Claim, volumes: Iterable[PersistentVolume]) -> tuple[Candidate, ...]:
    """Give every PV with what speaks against it, the nearest first."""
    found = (Candidate(volume=each, objections=objections(claim, each)) for each in volumes)
    return tuple(sorted(found, key=lambda each: (len(each.objections), each.volume.name)))


def objections(claim: Claim, volume: PersistentVolume) -> tuple[str, ...]:
    """Give every reason why the PV controller does not bind a PV to a claim."""
    return (*_not_to_be_had(claim, volume), *misfits(claim, volume))


def misfits(claim: Claim, volume: PersistentVolume) -> tuple[str, ...]:
    """Give in which respects a PV is not what a claim asks for."""
    found = []
    wanted, has = claim.requested_bytes, volume.capacity_bytes
    if wanted is not None and has is not None and has < wanted:
        found.append(f"has {spoken_size(has)}, the claim asks for {spoken_size(wanted)}")
    lacking = [each for each in claim.access_modes if each not in volume.access_modes]
    if lacking:
        offered = ", ".join(volume.access_modes) or "none"
        found.append(f"offers {offered}, the claim asks for {', '.join(lacking)}")
    if claim.volume_mode != volume.volume_mode:
        found.append(f"volumeMode {volume.volume_mode}, the claim asks for {claim.volume_mode}")
    if (claim.storage_class or "") != volume.storage_class:
        found.append(
            f'storage class "{volume.storage_class}", the claim asks for '
            f'"{claim.storage_class or ""}"'
        )
    if claim.selector is not None and not selects(claim.selector, dict(volume.labels)):
        found.append(f"the claim's selector ({_spoken(claim)}) does not match its labels")
    return tuple(found)


def _not_to_be_had(claim: Claim, volume: PersistentVolume) -> tuple[str, ...]:
    if volume.deleting_since is not None:
        return ("is being deleted",)
    if volume.claim is not None:
        same_name = str(volume.claim) == str(claim.ref)
        if not same_name:
            return (f"belongs to claim {volume.claim}",)
        if volume.claim.uid not in (None, claim.ref.uid):
            return ("belongs to an earlier claim of the same name",)
        return ()
    return () if volume.phase == "Available" else (f"is {volume.phase or 'of unknown phase'}",)


def _spoken(claim: Claim) -> str:
    return ", ".join(str(each) for each in claim.selector or ())


def spoken_size(size: int) -> str:
    """Write a size as Kubernetes does, in the largest unit that divides it."""
    for power, unit in ((4, "Ti"), (3, "Gi"), (2, "Mi"), (1, "Ki")):
        if size and size % 1024**power == 0:
            return f"{size // 1024**power}{unit}"
    return str(size)
