"""The images of whole pools: list them, read what refers to them, then the facts of the others.

Kubernetes is read after the pools. An image whose PV was created meanwhile then has its PV; the
other order would call it unclaimed.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, TypeVar

from rbdagent.collect.failure import not_observed
from rbdagent.collect.inventory_process import (
    CEPH,
    Facts,
    InventoryProcess,
    ListPools,
    ReadFacts,
    start_inventory,
)
from rbdagent.collect.kube.connection import Connection
from rbdagent.collect.parallel import Awaited, awaiting, start
from rbdagent.collect.worker import WorkerExitedError
from rbdagent.correlate.image_references import (
    ImageReferences,
    Observed,
    facts_to_read,
    place_of,
    renamed_images,
)
from rbdagent.model import Gap, NotObserved
from rbdagent.model.inventory import Listing, PoolRequest, References

if TYPE_CHECKING:
    from collections.abc import Callable

    from rbdagent.config import Settings

_T = TypeVar("_T")
_API = "the Kubernetes API"
_EXTRA_S = 1.0
"""Extra time after the deadline, in which the process that queries Ceph reports its late requests.
"""
_SKIPPED = NotObserved(reason="the Kubernetes API was not queried, as requested")


def collect_inventory(
    requests: tuple[PoolRequest, ...],
    settings: Settings,
    *,
    show: Callable[[Awaited], None] = lambda _: None,
) -> Observed:
    """Return all facts about the images of the requested pools.

    Args:
        requests: the pools; without any, all pools for RBD.
        settings: the sources, their credentials, and the overall deadline.
        show: called once; the list of awaited sources stays current.
    """
    deadline = time.monotonic() + settings.timeout_s
    awaited: Awaited = {}
    # The process must start before this one has threads.
    with start_inventory(settings.clusters or (), settings.monitor_lists) as process:
        show(awaited)
        with awaiting(awaited, CEPH, settings.timeout_s):
            listing = _listing(process, ListPools(requests=requests, deadline=deadline))
        with awaiting(awaited, _API, settings.timeout_s):
            references = _references(settings, deadline)
        known = ImageReferences(references)
        wanted = facts_to_read(listing, known)
        question = ReadFacts(images=wanted.images, journal=wanted.journal, deadline=deadline)
        with awaiting(awaited, CEPH, settings.timeout_s):
            facts = _facts(process, question)
    return Observed(
        listing=listing,
        references=references,
        facts=dict(zip(map(place_of, wanted.images), facts.images, strict=True)),
        renamed=renamed_images(
            listing, known, dict(zip(wanted.journal, facts.journal, strict=True))
        ),
    )


def _listing(process: InventoryProcess, question: ListPools) -> Listing:
    answer = _answer(process, question, question.deadline, Listing)
    if isinstance(answer, Listing):
        return answer
    return Listing(gaps=(Gap(fact="the images", reason=answer.reason, hint=answer.hint),))


def _facts(process: InventoryProcess, question: ReadFacts) -> Facts:
    if not question.images and not question.journal:
        return Facts((), ())
    answer = _answer(process, question, question.deadline, Facts)
    if isinstance(answer, Facts):
        return answer
    return Facts((answer,) * len(question.images), (answer,) * len(question.journal))


def _answer(
    process: InventoryProcess, question: ListPools | ReadFacts, deadline: float, kind: type[_T]
) -> _T | NotObserved:
    """Return an answer of a kind, or why there is none; send no question after a timeout."""
    try:
        answer = process.answer(question, deadline + _EXTRA_S)
    except TimeoutError:
        return NotObserved(
            reason="Ceph: no answer in time",
            hint="ceph -s shows whether the cluster answers at all; a longer --timeout may help",
            timed_out=True,
        )
    except WorkerExitedError:
        return NotObserved(
            reason="Ceph: the process that queried it ended without an answer",
            hint="stderr has its last output; librados or librbd ended it",
        )
    except Exception as error:  # noqa: BLE001 - a failure must not end the report
        return not_observed(error, CEPH)
    if not isinstance(answer, kind):
        raise TypeError(kind)
    return answer


def _references(settings: Settings, deadline: float) -> References:
    from rbdagent.collect.kube.list_references import list_references, unobserved_references

    access = settings.kube
    if access is None:
        return unobserved_references(_SKIPPED)
    (answer,) = start([lambda: list_references(Connection(access))])(deadline)
    if isinstance(answer, References):
        return answer
    if answer is None:
        reason = f"the Kubernetes API did not answer within {settings.timeout_s:g} s"
        return unobserved_references(NotObserved(reason=reason, hint="a longer --timeout may help"))
    return unobserved_references(not_observed(answer, _API))
