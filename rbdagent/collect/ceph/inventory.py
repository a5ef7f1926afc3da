"""The images of whole pools in every configured cluster, all clusters in parallel. Read-only."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from rbdagent.collect.ceph.connection import Cluster, rados_module, reach_cure
from rbdagent.collect.ceph.image_facts import ABSENT, journal_of, read_facts
from rbdagent.collect.ceph.pool_images import list_pools
from rbdagent.collect.failure import not_observed
from rbdagent.collect.parallel import all_of, start
from rbdagent.model import Gap, NotObserved
from rbdagent.model.inventory import JournalEntry, Listing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rbdagent.collect.ceph.access import CephAccess
    from rbdagent.model.inventory import (
        ImageFacts,
        JournalKey,
        ListedImage,
        ListedPool,
        PoolRequest,
    )


class InventoryReader:
    """Lists the images of pools, then reads the facts of some; it connects at once."""

    def __init__(self, clusters: Sequence[CephAccess]) -> None:
        """Start to connect.

        Raises:
            SourceError: Ceph's bindings are not installed.
        """
        rados_module()
        self._clusters = clusters
        self._begun = start([functools.partial(Cluster, access) for access in clusters])
        self._connected: dict[str, Cluster] = {}

    def list_pools(self, requests: Sequence[PoolRequest], deadline: float) -> Listing:
        """Return the images of the requested pools; without a request, of all pools for RBD.

        Args:
            requests: the pools that the user named.
            deadline: of the monotonic clock; what is not known by then is a gap.
        """
        gaps = self._connect(deadline)
        calls = [
            functools.partial(list_pools, cluster, requests, deadline)
            for cluster in self._connected.values()
        ]
        pools: list[ListedPool] = []
        known: set[str] = set()
        is_known = not gaps
        for cluster, answer in zip(self._connected.values(), all_of(calls, deadline), strict=True):
            if not isinstance(answer, tuple):
                gaps.append(_late(cluster.access, answer, "the images"))
                is_known = False
                continue
            listed, missing, names = answer
            pools += listed
            gaps += [*missing, *(gap for pool in listed for gap in pool.gaps)]
            if isinstance(names, NotObserved):
                is_known = False
            else:
                known |= {*names}
        return Listing(
            pools=tuple(pools),
            gaps=tuple(gaps),
            clusters=tuple(cluster.access.name for cluster in self._connected.values()),
            absent=tuple(one for one in requests if is_known and one.pool not in known),
        )

    def _connect(self, deadline: float) -> list[Gap]:
        """Wait for the connections; return one gap for each cluster that was not reached."""
        gaps = []
        for access, answer in zip(self._clusters, self._begun(deadline), strict=True):
            if isinstance(answer, Cluster):
                # Two names in the configuration may lead to one cluster.
                self._connected.setdefault(answer.fsid, answer)
            else:
                gaps.append(_late(access, answer, "cluster"))
        return gaps

    def facts(
        self, images: Sequence[ListedImage], deadline: float
    ) -> tuple[ImageFacts | NotObserved | None, ...]:
        """Return the facts of listed images in their order; None for a removed image."""
        found: dict[int, ImageFacts | NotObserved | None] = {}
        for fsid, cluster in self._connected.items():
            theirs = [number for number, image in enumerate(images) if image.fsid == fsid]
            answers = read_facts(cluster, [images[number] for number in theirs], deadline)
            found |= zip(theirs, answers, strict=True)
        return tuple(found[number] for number in range(len(images)))

    def journal(
        self, keys: Sequence[JournalKey], deadline: float
    ) -> tuple[JournalEntry | NotObserved | None, ...]:
        """Return entries of ceph-csi's journal in the order of the keys; None without an entry."""
        calls = [functools.partial(journal_of, self._connected[key.pool.fsid], key) for key in keys]
        answers = all_of(calls, deadline)
        return tuple(_entry(key, answer) for key, answer in zip(keys, answers, strict=True))


def _entry(key: JournalKey, answer: object) -> JournalEntry | NotObserved | None:
    """Return an entry; the answer is "absent" without one, and None after the deadline."""
    if isinstance(answer, (JournalEntry, NotObserved)):
        return answer
    if answer == ABSENT:
        return None
    subject = f"the journal of pool {key.pool}"
    if isinstance(answer, BaseException):
        return not_observed(answer, subject)
    return NotObserved(reason=f"{subject}: no answer in time", timed_out=True)


def _late(access: CephAccess, answer: object, fact: str) -> Gap:
    """Return the gap for a cluster that was not reached, or has not answered in time."""
    if isinstance(answer, BaseException):
        missing = not_observed(answer, access.name)
        return Gap(fact=f"{fact} {access.name}", reason=missing.reason, hint=missing.hint)
    return Gap(fact=f"{fact} {access.name}", reason="no answer in time", hint=reach_cure(access))
