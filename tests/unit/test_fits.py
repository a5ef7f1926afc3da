"""Compare rbdagent's choice of a PV for a claim with a copy of the PV controller's code.

The two functions here follow FindMatchingVolume (k8s.io/component-helpers v0.36.3,
storage/volume/pv_helpers.go:186, with the access modes that its caller asks for,
pkg/controller/volume/persistentvolume/index.go:75) and checkVolumeSatisfyClaim (pv_controller.go:
260) line by line, and share nothing with rbdagent.correlate.pv_matching.
"""

from __future__ import annotations

from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from rbdagent.correlate.pv_matching import (
    Why,
    candidates,
    is_reserved_for,
    objections,
    refusals,
    size_text,
)
from rbdagent.model import ObjectRef, PersistentVolume, PersistentVolumeClaim, Requirement
from tests.support.snapshots import claim, volume

OURS: Final = ObjectRef(namespace="ns", name="data", uid="u1")


def is_bound_to(pv: PersistentVolume, pvc: PersistentVolumeClaim) -> bool:
    """Return whether the PV is bound to the claim (IsVolumeBoundToClaim)."""
    if pv.claim is None:
        return False
    if pvc.ref.name != pv.claim.name or pvc.ref.namespace != pv.claim.namespace:
        return False
    return not (pv.claim.uid and pvc.ref.uid != pv.claim.uid)


def has_labels(pv: PersistentVolume, pvc: PersistentVolumeClaim) -> bool:
    labels = dict(pv.labels)
    for requirement in pvc.selector or ():
        if requirement.operator == "In" and labels.get(requirement.key) not in requirement.values:
            return False
        if (
            requirement.operator == "NotIn"
            and requirement.key in labels
            and labels[requirement.key] in requirement.values
        ):
            return False
        if requirement.operator == "Exists" and requirement.key not in labels:
            return False
        if requirement.operator == "DoesNotExist" and requirement.key in labels:
            return False
    return True


def find_matching_volume(  # noqa: C901, PLR0912 - as it is written there
    pvc: PersistentVolumeClaim, pvs: list[PersistentVolume], *, delayed: bool
) -> PersistentVolume | None:
    smallest: PersistentVolume | None = None
    smallest_size = 0
    requested_size = pvc.requested_bytes or 0
    requested_class = pvc.storage_class or ""
    for pv in pvs:
        # index.go: only PVs that have every mode of the claim come here.
        if any(mode not in pv.access_modes for mode in pvc.access_modes):
            continue
        # Skip volumes bound to other claims.
        if pv.claim is not None and not is_bound_to(pv, pvc):
            continue
        size = pv.capacity_bytes or 0
        if size < requested_size:
            continue
        if pvc.volume_mode != pv.volume_mode:
            continue
        if pvc.attributes_class != pv.attributes_class:
            continue
        if pv.deleting_since is not None:
            continue
        if is_bound_to(pv, pvc):
            return pv
        if delayed:
            continue
        if pv.phase != "Available":
            continue
        if pvc.selector is not None and not has_labels(pv, pvc):
            continue
        if pv.storage_class != requested_class:
            continue
        if smallest is None or smallest_size > size:
            smallest, smallest_size = pv, size
    return smallest


def check_volume_satisfy_claim(  # noqa: PLR0911 - as it is written there
    pv: PersistentVolume, pvc: PersistentVolumeClaim
) -> str:
    """Return its error; empty if there is none."""
    if pv.deleting_since is not None:
        return "the volume is marked for deletion"
    if (pv.capacity_bytes or 0) < (pvc.requested_bytes or 0):
        return "requested PV is too small"
    if pv.storage_class != (pvc.storage_class or ""):
        return "storageClassName does not match"
    if pv.attributes_class != pvc.attributes_class:
        return "volumeAttributesClassName does not match"
    if pv.volume_mode != pvc.volume_mode:
        return "incompatible volumeMode"
    for mode in pvc.access_modes:
        if mode not in pv.access_modes:
            return "incompatible accessMode"
    return ""


ERRORS: Final = {
    Why.DELETED: "the volume is marked for deletion",
    Why.SIZE: "requested PV is too small",
    Why.CLASS: "storageClassName does not match",
    Why.ATTRIBUTES: "volumeAttributesClassName does not match",
    Why.MODE: "incompatible volumeMode",
    Why.MODES: "incompatible accessMode",
}

MODES: Final = st.sampled_from(
    [(), ("ReadWriteOnce",), ("ReadWriteOnce", "ReadOnlyMany"), ("ReadWriteMany",)]
)
COMMON: Final[dict[str, Any]] = {
    "access_modes": MODES,
    "volume_mode": st.sampled_from(["Filesystem", "Block"]),
    "attributes_class": st.sampled_from(["", "slow"]),
}
SELECTORS: Final = st.sampled_from(
    [
        None,
        (),
        (Requirement(key="tier", operator="In", values=("gold",)),),
        (Requirement(key="tier", operator="NotIn", values=("gold",)),),
        (Requirement(key="tier", operator="Exists"),),
        (Requirement(key="tier", operator="DoesNotExist"),),
    ]
)
CLAIMS: Final = st.builds(
    claim,
    ref=st.just(OURS),
    phase=st.just("Pending"),
    volume_name=st.none(),
    requested_bytes=st.sampled_from([1, 2]),
    storage_class=st.sampled_from([None, "", "rbd"]),
    selector=SELECTORS,
    **COMMON,
)
VOLUMES: Final = st.builds(
    volume,
    capacity_bytes=st.sampled_from([1, 2, 3]),
    storage_class=st.sampled_from(["", "rbd"]),
    labels=st.sampled_from([(), (("tier", "gold"),), (("tier", "iron"),)]),
    phase=st.sampled_from(["Available", "Bound", "Released", "Failed", "Pending", ""]),
    deleting_since=st.sampled_from([None, None, "2026-11-21T03:00:00Z"]),
    claim=st.sampled_from(
        [
            None,
            OURS,
            replace(OURS, uid=None),
            replace(OURS, uid="u0"),
            replace(OURS, name="other"),
            replace(OURS, namespace="elsewhere"),
        ]
    ),
    **COMMON,
)
MANY: Final = settings(max_examples=1000)


@MANY
@given(pvc=CLAIMS, pv=VOLUMES, delayed=st.booleans())
def test_controller_takes_a_pv_exactly_if_it_has_no_objection(
    pvc: PersistentVolumeClaim, pv: PersistentVolume, *, delayed: bool
) -> None:
    taken = find_matching_volume(pvc, [pv], delayed=delayed)
    assert (objections(pvc, pv, delayed=delayed) == ()) == (taken is pv)
    assert is_reserved_for(pvc, pv) == is_bound_to(pv, pvc)


@MANY
@given(pvc=CLAIMS, pvs=st.lists(VOLUMES, max_size=4), delayed=st.booleans())
def test_controller_takes_one_of_the_pvs_without_objection(
    pvc: PersistentVolumeClaim, pvs: list[PersistentVolume], *, delayed: bool
) -> None:
    taken = find_matching_volume(pvc, pvs, delayed=delayed)
    free = [
        candidate for candidate in candidates(pvc, pvs, delayed=delayed) if not candidate.objections
    ]
    assert (taken is not None) == bool(free)
    assert taken is None or taken in [candidate.volume for candidate in free]


@MANY
@given(pvc=CLAIMS, pv=VOLUMES)
def test_first_refusal_of_a_named_pv_is_the_text_of_its_event(
    pvc: PersistentVolumeClaim, pv: PersistentVolume
) -> None:
    against = refusals(pvc, pv)
    said = ERRORS[against[0].why] if against else ""
    assert said == check_volume_satisfy_claim(pv, pvc)


@MANY
@given(pvc=CLAIMS, pv=VOLUMES, delayed=st.booleans())
def test_objections_are_independent(
    pvc: PersistentVolumeClaim, pv: PersistentVolume, *, delayed: bool
) -> None:
    """Assert that no objection is repeated, and that a fixed one leaves the others unchanged."""
    found = objections(pvc, pv, delayed=delayed)
    assert len({objection.why for objection in found}) == len(found)
    cured = replace(pv, volume_mode=pvc.volume_mode)
    left = [objection for objection in found if objection.why is not Why.MODE]
    assert list(objections(pvc, cured, delayed=delayed)) == left


@pytest.mark.parametrize(
    ("size", "words"), [(1024**3, "1Gi"), (1536 * 1024**2, "1536Mi"), (1000, "1000"), (0, "0")]
)
def test_size_is_written_as_in_kubernetes(size: int, words: str) -> None:
    assert size_text(size) == words
