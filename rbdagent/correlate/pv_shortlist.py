"""Find the PVs that nearly fit a claim without comparing every PV with every claim.

PVs that are equal in every field that a claim compares form a sort. The first few PVs of a sort, by
name, are enough: no other PV of that sort fits better.
"""

from __future__ import annotations

import functools
from itertools import islice
from typing import TYPE_CHECKING, Final

from rbdagent.correlate.pv_matching import candidates
from rbdagent.model import PersistentVolume, PersistentVolumeClaim
from rbdagent.parse.selector import selects

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Iterator, Sequence

    from rbdagent.model import Selector

KEPT: Final = 8
"""Number of PVs to return; the output names fewer."""
_MOST_COMPARED: Final = 500
"""With more PVs than this, PVs of the claim's storage class and access modes come first."""
_MOST_SELECTED: Final = 2000
_OF_A_CLAIM_ALONE: Final = frozenset(
    {
        "ref",
        "phase",
        "volume_name",
        "deleting_since",
        "labels",
        "created_at",
        "finalizers",
        "bind_completed",
        "bound_by_controller",
        "selected_node",
        "provisioner",
        "has_data_source",
    }
)
_OF_A_VOLUME_ALONE: Final = frozenset(
    {
        "name",
        "uid",
        "source",
        "claim",
        "deleting_since",
        "created_at",
        "frozen",
        "labels",
        "finalizers",
        "migrated_to",
        "provisioner",
        "bound_by_controller",
        "phase_since",
        "reason",
    }
)
_WISHES: Final = tuple(sorted({*PersistentVolumeClaim.__struct_fields__} - _OF_A_CLAIM_ALONE))
"""Fields of a claim that a PV must match; the labels of a PV are compared separately."""
_QUALITIES: Final = tuple(sorted({*PersistentVolume.__struct_fields__} - _OF_A_VOLUME_ALONE))
"""Fields of a PV that a claim compares: every field that is not specific to one PV."""


class VolumeShortlist:
    """PVs, sorted once; equal requests of several claims are computed once."""

    def __init__(self, volumes: Sequence[PersistentVolume]) -> None:
        """Sort the PVs, which are given in order of their names."""
        self._volumes = volumes
        self._sorts = _by_sort(volumes)
        self._known: dict[
            Hashable, tuple[tuple[PersistentVolume, ...], PersistentVolume | None]
        ] = {}

    def nearest(self, claim: PersistentVolumeClaim) -> tuple[PersistentVolume, ...]:
        """Return the PVs that fit a claim best, without those whose claimRef names it.

        For a PV whose claimRef names the claim, only the claim decides whether it fits.
        """
        return self._compared(claim)[0]

    def smallest_fit(self, claim: PersistentVolumeClaim) -> PersistentVolume | None:
        """Return the smallest PV that fits a claim, of those whose claimRef does not name it."""
        return self._compared(claim)[1]

    def _compared(
        self, claim: PersistentVolumeClaim
    ) -> tuple[tuple[PersistentVolume, ...], PersistentVolume | None]:
        wants = tuple(getattr(claim, name) for name in _WISHES)
        if wants not in self._known:
            compared = candidates(claim, self._samples(claim))
            fits = (candidate.volume for candidate in compared if not candidate.objections)
            self._known[wants] = (
                tuple(candidate.volume for candidate in compared[:KEPT]),
                min(fits, key=lambda one: (one.capacity_bytes or 0, one.name), default=None),
            )
        return self._known[wants]

    def _samples(self, claim: PersistentVolumeClaim) -> Iterable[PersistentVolume]:
        samples = list(_first_of_each(self._sorts, claim))
        if claim.selector is not None:
            # A PV that has the labels fits better than the others of its sort.
            selected = islice(self._selected(claim.selector), _MOST_SELECTED)
            samples += _first_of_each(_by_sort(selected), claim)
        return dict.fromkeys(samples)

    def _selected(self, selector: Selector) -> Iterator[PersistentVolume]:
        """Return the PVs that a selector selects."""
        pool = self._volumes
        for requirement in selector:
            if requirement.operator == "In" and len(requirement.values) == 1:
                having = self._labelled.get((requirement.key, requirement.values[0]), [])
                pool = min(pool, having, key=len)
        return (volume for volume in pool if selects(selector, dict(volume.labels)))

    @functools.cached_property
    def _labelled(self) -> dict[tuple[str, str], list[PersistentVolume]]:
        found: dict[tuple[str, str], list[PersistentVolume]] = {}
        for volume in self._volumes:
            for label in volume.labels:
                found.setdefault(label, []).append(volume)
        return found


def _by_sort(volumes: Iterable[PersistentVolume]) -> dict[Hashable, list[PersistentVolume]]:
    found: dict[Hashable, list[PersistentVolume]] = {}
    for volume in volumes:
        found.setdefault(_sort_of(volume), []).append(volume)
    return found


def _sort_of(volume: PersistentVolume) -> Hashable:
    bound, leaving = volume.claim is not None, volume.deleting_since is not None
    return (bound, leaving, *(getattr(volume, name) for name in _QUALITIES))


def _first_of_each(
    sorts: dict[Hashable, list[PersistentVolume]], claim: PersistentVolumeClaim
) -> Iterator[PersistentVolume]:
    lists = list(sorts.values())
    if len(lists) * KEPT > _MOST_COMPARED:
        lists.sort(key=lambda entry: _strangeness(claim, entry[0]))
    samples = (volume for volumes in lists for volume in volumes[:KEPT])
    return islice(samples, _MOST_COMPARED)


def _strangeness(claim: PersistentVolumeClaim, volume: PersistentVolume) -> tuple[bool, bool, bool]:
    return (
        (claim.storage_class or "") != volume.storage_class,
        any(mode not in volume.access_modes for mode in claim.access_modes),
        volume.claim is not None,
    )
