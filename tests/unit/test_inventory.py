"""The order of the observations of whole pools, and what a late source leaves."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
from msgspec.structs import replace

from rbdagent.collect.inventory_process import Facts, ListPools, ReadFacts
from rbdagent.collect.kube.kubeconfig import KubeAccess
from rbdagent.collect.worker import WorkerExitedError
from rbdagent.correlate.image_references import place_of
from rbdagent.inventory import collect_inventory
from rbdagent.model import NotObserved
from tests.support.pool_images import facts, listed, listing, references
from tests.support.snapshots import NOWHERE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rbdagent.model.inventory import Listing, References

ACCESS: Final = KubeAccess(kubeconfig=Path("/none"), context=None, timeout_s=1)
IMAGE: Final = listed()


class Process:
    """Answers in place of the process that queries Ceph, and records what is asked."""

    def __init__(self, asked: list[str], *answers: object) -> None:
        self._asked = asked
        self._answers = iter(answers)

    def answer(self, question: ListPools | ReadFacts, deadline: float) -> Any:  # noqa: ANN401, ARG002
        self._asked.append("pools" if isinstance(question, ListPools) else "facts")
        found = next(self._answers)
        if isinstance(found, Exception):
            raise found
        return found


def observed(monkeypatch: pytest.MonkeyPatch, *answers: object) -> tuple[Any, list[str]]:
    """Return what was observed, and the order of the questions."""
    asked: list[str] = []

    @contextlib.contextmanager
    def started(*_: object) -> Iterator[Process]:
        yield Process(asked, *answers)

    def listed_references(_: object) -> References:
        asked.append("kubernetes")
        return references()

    monkeypatch.setattr("rbdagent.inventory.start_inventory", started)
    monkeypatch.setattr("rbdagent.collect.kube.list_references.list_references", listed_references)
    return collect_inventory((), replace(NOWHERE, kube=ACCESS)), asked


def pool() -> Listing:
    return listing(IMAGE)


def test_kubernetes_is_read_after_the_pools(monkeypatch: pytest.MonkeyPatch) -> None:
    """A PV that is created after the list of PVs would leave its image unclaimed."""
    found, asked = observed(monkeypatch, pool(), Facts((facts(),), ()))
    assert asked == ["pools", "kubernetes", "facts"]
    assert found.facts == {place_of(IMAGE): facts()}


@pytest.mark.parametrize("error", [TimeoutError(), WorkerExitedError(), ValueError("x")])
def test_an_image_without_an_answer_has_no_facts(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    found, _ = observed(monkeypatch, pool(), error)
    assert isinstance(found.facts[place_of(IMAGE)], NotObserved)


@pytest.mark.parametrize("error", [TimeoutError(), WorkerExitedError(), ValueError("x")])
def test_pools_without_an_answer_are_a_gap(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """After a timeout no further question is sent: its late answer would be taken for that."""
    found, asked = observed(monkeypatch, error)
    assert (asked, len(found.listing.gaps)) == (["pools", "kubernetes"], 1)
