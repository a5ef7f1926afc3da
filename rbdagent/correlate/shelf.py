"""The PVs that come nearest to what a claim asks for, without holding each PV to each claim.

PVs that are alike in all that a claim may object to are put together: of each sort the first few by
name are enough, for none of the others can come nearer.
"""

from __future__ import annotations

import functools
from itertools import islice
from typing import TYPE_CHECKING, Final

from rbdagent.correlate.fits import candidates
from rbdagent.model import Claim, PersistentVolume
from rbdagent.parse.selector import selects

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Iterator, Sequence

    from rbdagent.model import Selector

KEPT: Final = 8
"""More than an answer names."""
_MOST_COMPARED: Final = 500
"""Where PVs come in so many sorts, those of the claim's class and modes are compared first."""
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
_WISHES: Final = tuple(sorted({*Claim.__struct_fields__} - _OF_A_CLAIM_ALONE))
"""What a claim may ask for; labels of a PV are compared apart."""
_QUALITIES: Final = tuple(sorted({*PersistentVolume.__struct_fields__} - _OF_A_VOLUME_ALONE))
"""What a claim may object to: whatever a PV does not have for itself alone."""


class Shelf:
    """PVs, sorted once; claims that ask for the same are answered once."""

    def __init__(self, volumes: Sequence[PersistentVolume]) -> None:
        """Sort them; they come in order of their names."""
        self._volumes = volumes
        self._sorts = _by_sort(volumes)
        self._known: dict[Hashable, tuple[PersistentVolume, ...]] = {}

    def nearest(self, claim: Claim) -> tuple[PersistentVolume, ...]:
        """Give the PVs that come nearest to a claim, those that name it by their claimRef aside.

        Of these only the claim itself can tell whether they are its own.
        """
        wants = tuple(getattr(claim, name) for name in _WISHES)
        found = self._known.get(wants)
        if found is None:
            compared = candidates(claim, self._samples(claim))
            found = tuple(each.volume for each in compared[:KEPT])
            self._known[wants] = found
        return found

    def _samples(self, claim: Claim) -> Iterable[PersistentVolume]:
        samples = list(_first_of_each(self._sorts, claim))
        if claim.selector is not None:
            # One that has the labels comes nearer than others of its sort.
            selected = islice(self._selected(claim.selector), _MOST_SELECTED)
            samples += _first_of_each(_by_sort(selected), claim)
        return dict.fromkeys(samples)

    def _selected(self, selector: Selector) -> Iterator[PersistentVolume]:
        """Give the PVs that a selector selects."""
        pool = self._volumes
        for each in selector:
            if each.operator == "In" and len(each.values) == 1:
                having = self._labelled.get((each.key, each.values[0]), [])
                pool = min(pool, having, key=len)
        return (each for each in pool if selects(selector, dict(each.labels)))

    @functools.cached_property
    def _labelled(self) -> dict[tuple[str, str], list[PersistentVolume]]:
        found: dict[tuple[str, str], list[PersistentVolume]] = {}
        for each in self._volumes:
            for label in each.labels:
                found.setdefault(label, []).append(each)
        return found


def _by_sort(volumes: Iterable[PersistentVolume]) -> dict[Hashable, list[PersistentVolume]]:
    found: dict[Hashable, list[PersistentVolume]] = {}
    for each in volumes:
        found.setdefault(_sort_of(each), []).append(each)
    return found


def _sort_of(volume: PersistentVolume) -> Hashable:
    bound, leaving = volume.claim is not None, volume.deleting_since is not None
    return (bound, leaving, *(getattr(volume, name) for name in _QUALITIES))


def _first_of_each(
    sorts: dict[Hashable, list[PersistentVolume]], claim: Claim
) -> Iterator[PersistentVolume]:
    lists = list(sorts.values())
    if len(lists) * KEPT > _MOST_COMPARED:
        lists.sort(key=lambda each: _strangeness(claim, each[0]))
    samples = (each for volumes in lists for each in volumes[:KEPT])
    return islice(samples, _MOST_COMPARED)


def _strangeness(claim: Claim, volume: PersistentVolume) -> tuple[bool, bool, bool]:
    return (
        (claim.storage_class or "") != volume.storage_class,
        any(each not in volume.access_modes for each in claim.access_modes),
        volume.claim is not None,
    )
