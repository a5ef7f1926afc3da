"""Queries about the images of whole pools, by a process that can be ended.

A call of librados may never return, and a failed assertion in librados ends its process
(``ceph_process.py`` does the same for the image of a volume).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from msgspec import Struct

from rbdagent.collect.failure import not_observed
from rbdagent.collect.monitors import with_monitors
from rbdagent.collect.worker import Worker
from rbdagent.model import Gap, NotObserved
from rbdagent.model.inventory import (
    ImageFacts,
    JournalEntry,
    JournalKey,
    ListedImage,
    Listing,
    PoolRequest,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rbdagent.collect.ceph.access import CephAccess
    from rbdagent.collect.kube.kubeconfig import MonitorList

CEPH: Final = "Ceph"


class ListPools(Struct, frozen=True, kw_only=True):
    """The question for the images of pools."""

    requests: tuple[PoolRequest, ...]
    deadline: float


class ReadFacts(Struct, frozen=True, kw_only=True):
    """The question for the facts of images, and for entries of ceph-csi's journal."""

    images: tuple[ListedImage, ...]
    journal: tuple[JournalKey, ...]
    deadline: float


class Facts(NamedTuple):
    """Holds the answers to :class:`ReadFacts`, in the order of the question."""

    images: tuple[ImageFacts | NotObserved | None, ...]
    """None for an image that was removed after the pools were listed."""
    journal: tuple[JournalEntry | NotObserved | None, ...]


InventoryProcess = Worker[ListPools | ReadFacts, Listing | Facts]


def start_inventory(
    clusters: Sequence[CephAccess], lists: Sequence[MonitorList]
) -> InventoryProcess:
    """Start the process; it connects at once."""
    return Worker(partial(answers, tuple(clusters), tuple(lists)))


def answers(
    clusters: Sequence[CephAccess], lists: Sequence[MonitorList]
) -> Callable[[ListPools | ReadFacts], Listing | Facts]:
    """Start to connect to the clusters; return the function that answers questions."""
    from rbdagent.collect.ceph.inventory import InventoryReader

    # Catch it here: the parent process may be unable to unpickle an exception of the bindings.
    try:
        reader = InventoryReader(with_monitors(clusters, lists, {}))
    except Exception as error:  # noqa: BLE001 - reported as the reason why nothing is listed
        return partial(_nothing, not_observed(error, CEPH))

    def answer(question: ListPools | ReadFacts) -> Listing | Facts:
        try:
            if isinstance(question, ListPools):
                return reader.list_pools(question.requests, question.deadline)
            return Facts(
                reader.facts(question.images, question.deadline),
                reader.journal(question.journal, question.deadline),
            )
        except Exception as error:  # noqa: BLE001 - as above
            return _nothing(not_observed(error, CEPH), question)

    return answer


def _nothing(missing: NotObserved, question: ListPools | ReadFacts) -> Listing | Facts:
    """Return the answer if nothing was observed."""
    if isinstance(question, ListPools):
        return Listing(gaps=(Gap(fact="the images", reason=missing.reason, hint=missing.hint),))
    return Facts((missing,) * len(question.images), (missing,) * len(question.journal))
