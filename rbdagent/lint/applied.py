"""The cluster as it would be: the manifests applied, and PVs as the PV controller leaves them.

The API server gives each new object a uid, and ignores its status (BeforeCreate in
staging/src/k8s.io/apiserver/pkg/registry/rest/create.go, and the strategy of each kind). Of an
object that exists, only what can be changed is changed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

from msgspec.structs import replace

from rbdagent.correlate.names import key_of
from rbdagent.correlate.pv_matching import is_reserved_for, objections, refusals
from rbdagent.model import (
    KubeView,
    NotObserved,
    ObjectRef,
    PersistentVolume,
    PersistentVolumeClaim,
    Snapshot,
    StorageClass,
    derived,
    observed_of,
)

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Mapping

    from rbdagent.correlate.index import Key, KubeIndex
    from rbdagent.model.lint import Manifest, Manifests

_T = TypeVar("_T")

NEW_UID: Final = "given at creation"
"""The uid of an object that does not exist yet. It equals no uid that a manifest has."""
_CHANGEABLE: Final = (
    ("accessModes", "access_modes"),
    ("capacity", "capacity_bytes"),
    ("claimRef", "claim"),
    ("persistentVolumeReclaimPolicy", "reclaim_policy"),
    ("storageClassName", "storage_class"),
)
"""Fields of the spec of a PV, with their names in the model."""
_NEWEST: Final = "~"
"""After each time, as text: when a class is created that does not exist yet."""


def applied(snapshot: Snapshot, manifests: Manifests) -> Snapshot:
    """Return a snapshot of the cluster with the objects of the manifests.

    What was not observed stays so: a list that was not read is not the list of the manifests.
    """
    kube = snapshot.kubernetes
    if kube is None:
        return snapshot
    classes = derived(kube.storage_classes, lambda known: _merged_classes(known, manifests))
    with_classes = replace(kube, storage_classes=classes)
    claims = derived(kube.claims, lambda known: _merged_claims(known, manifests, with_classes))
    volumes = derived(
        kube.persistent_volumes, lambda known: _merged_volumes(known, manifests, claims)
    )
    drivers = derived(kube.drivers, lambda known: tuple(sorted({*known, *manifests.drivers})))
    return replace(
        snapshot,
        kubernetes=replace(
            with_classes, claims=claims, persistent_volumes=volumes, drivers=drivers
        ),
    )


def default_class(classes: Iterable[StorageClass]) -> StorageClass | None:
    """Return the class that a claim without one gets: the newest default, then by name.

    See GetDefaultClass in pkg/volume/util/storageclass.go.
    """
    found = sorted((one for one in classes if one.is_default), key=lambda one: one.name)
    return max(found, key=lambda one: one.created_at or _NEWEST, default=None)


def volume_of_claim(claim: PersistentVolumeClaim, kube: KubeIndex) -> PersistentVolume | None:
    """Return the PV to which a claim certainly binds; None if none is known.

    The order is that of syncUnboundClaim and syncBoundClaim. Without a name of a PV or a PV that is
    reserved for the claim, the PV controller may choose any that fits.
    """
    if claim.volume_name is not None:
        volume = kube.volume_by_name.get(claim.volume_name)
        return volume if volume is not None and _binds(claim, volume) else None
    if claim.bind_completed:
        return None
    reserved = kube.volumes_by_claim.get(key_of(claim.ref), ())
    fits = (volume for volume in reserved if is_reserved_for(claim, volume))
    return next((volume for volume in fits if not objections(claim, volume)), None)


def _binds(claim: PersistentVolumeClaim, volume: PersistentVolume) -> bool:
    """Return whether a claim binds to the PV that it names."""
    if claim.bind_completed:
        return volume.claim is None or volume.claim.uid == claim.ref.uid
    if volume.claim is None:
        return not refusals(claim, volume)
    return is_reserved_for(claim, volume)


# --------------------------------------------------------------------------------------------------
# One kind each
# --------------------------------------------------------------------------------------------------


def _merged(known: Mapping[Hashable, _T], added: Mapping[Hashable, _T]) -> tuple[_T, ...]:
    return tuple({**known, **added}.values())


def _merged_classes(
    known: tuple[StorageClass, ...], manifests: Manifests
) -> tuple[StorageClass, ...]:
    """Return the classes; the provisioner and the parameters of one that exists cannot change."""
    by_name: dict[Hashable, StorageClass] = {one.name: one for one in known}
    new: dict[Hashable, StorageClass] = {
        item.name: replace(item.object, created_at=None)
        for item in manifests.items
        if isinstance(item.object, StorageClass) and item.name not in by_name
    }
    return _merged(by_name, new)


def _merged_claims(
    known: tuple[PersistentVolumeClaim, ...], manifests: Manifests, kube: KubeView
) -> tuple[PersistentVolumeClaim, ...]:
    """Return the claims; of a claim that exists, only its size and an empty volumeName change."""
    by_key: dict[Hashable, PersistentVolumeClaim] = {key_of(one.ref): one for one in known}
    classes = observed_of(kube.storage_classes)
    changed: dict[Hashable, PersistentVolumeClaim] = {}
    for item in manifests.items:
        if not isinstance(item.object, PersistentVolumeClaim):
            continue
        key = key_of(item.object.ref)
        existing = by_key.get(key)
        changed[key] = (
            _new_claim(item.object, classes)
            if existing is None
            else replace(
                existing,
                volume_name=existing.volume_name or item.object.volume_name,
                requested_bytes=item.object.requested_bytes or existing.requested_bytes,
            )
        )
    return _merged(by_key, changed)


def _new_claim(
    claim: PersistentVolumeClaim, classes: tuple[StorageClass, ...]
) -> PersistentVolumeClaim:
    default = default_class(classes) if claim.storage_class is None else None
    return replace(
        claim,
        ref=replace(claim.ref, uid=NEW_UID),
        phase="Pending",
        # The admission plugin DefaultStorageClass sets it when the claim is created.
        storage_class=claim.storage_class if default is None else default.name,
        created_at=None,
        deleting_since=None,
        requested_at=None,
        capacity_bytes=None,
        growth="",
        growth_conditions=(),
    )


def _merged_volumes(
    known: tuple[PersistentVolume, ...],
    manifests: Manifests,
    claims: tuple[PersistentVolumeClaim, ...] | NotObserved,
) -> tuple[PersistentVolume, ...]:
    by_name: dict[Hashable, PersistentVolume] = {one.name: one for one in known}
    by_key = {key_of(claim.ref): claim for claim in observed_of(claims)}
    changed: dict[Hashable, PersistentVolume] = {}
    for item in manifests.items:
        if isinstance(item.object, PersistentVolume):
            existing = by_name.get(item.name)
            found = item.object if existing is None else _changed_volume(existing, item)
            changed[item.name] = _settled(found, existing, by_key)
    return _merged(by_name, changed)


def _changed_volume(existing: PersistentVolume, item: Manifest) -> PersistentVolume:
    """Return a PV that exists with what its manifest can change, and what that does not name.

    Its source and its volumeMode cannot be changed. An apply merges the claimRef: a uid that the
    manifest leaves out stays, unless kubectl itself applied it before.
    """
    changes = {
        name: getattr(item.object, name)
        for field, name in _CHANGEABLE
        if item.data["spec"].get(field) is not None
    }
    given, known = changes.get("claim"), existing.claim
    if given is not None and given.uid is None and known is not None:
        changes["claim"] = replace(given, uid=known.uid)
    return replace(existing, **changes)


def _settled(
    volume: PersistentVolume,
    existing: PersistentVolume | None,
    claims: Mapping[Key, PersistentVolumeClaim],
) -> PersistentVolume:
    """Return a PV in the phase that syncVolume gives it first."""
    phase = _phase(volume.claim, claims)
    if existing is not None:
        return replace(volume, phase=phase if phase == "Released" else existing.phase)
    return replace(
        volume,
        uid=NEW_UID,
        phase=phase,
        phase_since=None,
        created_at=None,
        deleting_since=None,
        reason="",
    )


def _phase(claim: ObjectRef | None, claims: Mapping[Key, PersistentVolumeClaim]) -> str:
    if claim is None or claim.uid is None:
        return "Available"
    found = claims.get(key_of(claim))
    return "Bound" if found is not None and found.ref.uid == claim.uid else "Released"
