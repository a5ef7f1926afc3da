"""Ceph: every cluster that may have the images, all of them in parallel. Always read-only.

librados waits indefinitely by default, so every call has a time limit. A call that still hangs
stays in a daemon thread, and its result is reported as not observed.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from rbdagent.collect.ceph.access import NOTHING_MAPPED, MappedHere
from rbdagent.collect.ceph.connection import (
    Cluster,
    rados_module,
    rbd_module,
    reach_cure,
    read_blocklist,
    read_health,
    read_managers,
    read_monitors,
    read_pools,
    silence_cure,
)
from rbdagent.collect.ceph.image import WATCHES_ONLY, NoPoolError, UnansweredError
from rbdagent.collect.ceph.many_images import calls_for
from rbdagent.collect.failure import failed, gaps_in, not_observed
from rbdagent.collect.parallel import all_of, start
from rbdagent.errors import SourceError
from rbdagent.model import (
    NOT_REQUESTED,
    BlocklistEntry,
    CephView,
    ClusterView,
    Gap,
    HealthCheck,
    ImageIdentity,
    ImageSpec,
    ImageView,
    NotObserved,
    ServiceAddress,
    Source,
    SourceState,
    observed_of,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rbdagent.collect.ceph.access import CephAccess

_NEAR_NAMES: Final = 3
_MOST_NAMES: Final = 2000


class CephReader:
    """Observes every cluster; connections and requests that need no image start immediately.

    The connections stay open for the next snapshot.
    """

    def __init__(self, clusters: Sequence[CephAccess], *, opens_images: bool = True) -> None:
        """Start to connect to the configured clusters.

        Args:
            clusters: the configured clusters.
            opens_images: load librbd while the connections start, not when the first image is
                opened.
        """
        self._clusters = clusters
        self._connected: dict[CephAccess, Cluster] = {}
        self._begun: _Begun | None = self._begin()
        if opens_images:
            with contextlib.suppress(SourceError):
                rbd_module()

    def _begin(self) -> _Begun:
        return start(
            [lambda access=access: self._ask(access) for access in self._clusters]  # type: ignore[misc]
        )

    def _ask(self, access: CephAccess) -> _Connected:
        """Connect to a cluster, and query its monitors for the facts that need no image."""
        if access in self._connected:
            cluster = self._connected[access]
            # A pool may have been deleted, and another one created with the same name.
            cluster.forget_pools()
        else:
            cluster = self._connected[access] = Cluster(access)
        return _Connected(
            cluster=cluster,
            blocklist=cluster.monitor_or_gap("osd blocklist ls", read_blocklist),
            pools=cluster.monitor_or_gap("osd lspools", read_pools),
            services=cluster.monitor_or_gap("mgr dump", read_managers),
            monitors=cluster.monitor_or_gap("mon dump", read_monitors),
            health=cluster.monitor_or_gap("health", read_health, detail="detail"),
        )

    def images(
        self,
        images: Sequence[ImageIdentity],
        *,
        deadline: float,
        known: MappedHere = NOTHING_MAPPED,
    ) -> tuple[CephView | None, Source]:
        """Query every cluster that may have the images, all of them in parallel.

        Args:
            images: an identity without fsid is searched in every cluster.
            deadline: of the monotonic clock; a request without an answer by then is not observed.
            known: the clients whose mappings were observed. Watchers are read again after
                a short pause if another client is among them: a client of librbd that is gone by
                then opened the image for a moment.

        Returns:
            The view and the state of the source, which is failed only if every cluster failed.
        """
        try:
            rados_module()
        except SourceError as error:
            return None, Source(state=SourceState.FAILED, reason=str(error), hint=error.hint)
        begun, self._begun = self._begun or self._begin(), None
        answers = begun(deadline)
        connected = [answer for answer in answers if isinstance(answer, _Connected)]
        observed = iter(_of_clusters(connected, images, deadline, known))
        views = tuple(
            next(observed) if isinstance(answer, _Connected) else _failed(access, answer)
            for access, answer in zip(self._clusters, answers, strict=True)
        )
        return CephView(clusters=views), _source(views)


class _Connected(Struct, frozen=True, kw_only=True):
    """Holds a cluster and the answers of its monitors."""

    cluster: Cluster
    blocklist: tuple[BlocklistEntry, ...] | NotObserved
    pools: tuple[tuple[int, str], ...] | NotObserved
    services: tuple[ServiceAddress, ...] | NotObserved
    monitors: tuple[ServiceAddress, ...] | NotObserved
    health: tuple[HealthCheck, ...] | NotObserved


_Begun = Callable[[float], list[_Connected | BaseException | None]]


def _failed(access: CephAccess, error: BaseException | None) -> ClusterView:
    if error is None:
        error = SourceError(
            f"{access.name}: no answer in time", hint=reach_cure(access), timed_out=True
        )
    source = failed(error, access.name)
    missing = NotObserved(reason=source.reason, hint=source.hint, timed_out=source.timed_out)
    return ClusterView(
        name=access.name,
        source=source,
        blocklist=missing,
        services=missing,
        monitors=missing,
        pools=missing,
        health=missing,
    )


def _source(views: Sequence[ClusterView]) -> Source:
    failed = [view for view in views if view.source.state is SourceState.FAILED]
    if views and len(failed) == len(views):
        return replace(
            failed[0].source,
            reason="; ".join(view.source.reason for view in failed),
            timed_out=any(view.source.timed_out for view in failed),
        )
    gaps = [
        Gap(fact=f"cluster {view.name}", reason=view.source.reason, hint=view.source.hint)
        for view in failed
    ]
    gaps += [gap for view in views if view not in failed for gap in view.source.gaps]
    return Source(state=SourceState.OBSERVED, gaps=tuple(gaps))


def _of_clusters(
    clusters: Sequence[_Connected],
    images: Sequence[ImageIdentity],
    deadline: float,
    known: MappedHere,
) -> list[ClusterView]:
    images_of = [
        [image for image in images if image.fsid in (None, connected.cluster.fsid)]
        for connected in clusters
    ]
    calls_of = [
        calls_for(connected.cluster, wanted, known, deadline)
        for connected, wanted in zip(clusters, images_of, strict=True)
    ]
    answers = all_of([call for calls in calls_of for call in calls], deadline)
    views, first = [], 0
    for connected, wanted in zip(clusters, images_of, strict=True):
        part = answers[first : first + len(wanted)]
        first += len(wanted)
        found = [
            _view_or_gap(image, answer, connected.cluster)
            for image, answer in zip(wanted, part, strict=True)
        ]
        views.append(_view(connected, tuple(view for view in found if view is not None)))
    return views


def _view(connected: _Connected, images: tuple[ImageView, ...]) -> ClusterView:
    view = ClusterView(
        name=connected.cluster.access.name,
        source=Source(state=SourceState.OBSERVED),
        fsid=connected.cluster.fsid,
        images=images,
        blocklist=connected.blocklist,
        services=connected.services,
        monitors=connected.monitors,
        pools=connected.pools,
        health=connected.health,
    )
    gaps = gaps_in((("the list of monitors", connected.cluster.access.monitors_missing),))
    return replace(view, source=replace(view.source, gaps=(*gaps, *_gaps(view))))


def _gaps(view: ClusterView) -> tuple[Gap, ...]:
    facts: list[tuple[str, object]] = [("the blocklist", view.blocklist)]
    facts += [(f"watchers of {image.spec}", image.watchers) for image in view.images]
    facts += [
        (f"locks of {image.spec}", image.lockers)
        for image in view.images
        if image.lockers not in (WATCHES_ONLY, image.watchers)
    ]
    return gaps_in(facts)


def _view_or_gap(
    image: ImageIdentity, answer: ImageView | BaseException | None, cluster: Cluster
) -> ImageView | None:
    """Return the view; after a timeout or an error, a view whose facts are not observed."""
    if isinstance(answer, ImageView):
        return answer
    if answer is None:
        missing = NotObserved(
            reason=f"{image.spec}: no answer in time",
            hint=silence_cure(cluster),
            timed_out=True,
        )
    elif isinstance(answer, NoPoolError):
        return None
    else:
        missing = not_observed(answer, str(image.spec))
    placement = answer.placement if isinstance(answer, UnansweredError) else NOT_REQUESTED
    return ImageView(
        spec=image.spec,
        fsid=cluster.fsid,
        presence=missing,
        image_id=image.image_id,
        pool_id=image.pool_id,
        watchers=missing,
        lockers=missing,
        metadata=missing,
        mirrored=missing,
        mirror_daemons=missing,
        placement=placement,
    )


def near_images(
    clusters: Sequence[CephAccess], spec: ImageSpec, *, deadline_s: float
) -> tuple[str, ...]:
    """Return names of images that are similar to the name of a missing image."""

    def names(access: CephAccess) -> list[str]:
        cluster = Cluster(access)
        context = cluster.pool(ImageIdentity(spec=spec, fsid=None))
        if context is None:
            pools = cluster.monitor_or_gap("osd lspools", read_pools)
            return [f"{pool}/{spec.name}" for _, pool in observed_of(pools)]
        prefix = str(replace(spec, name="x"))[:-1]
        return [prefix + name for name in cluster.rbd.RBD().list(context)[:_MOST_NAMES]]

    calls = [lambda access=access: names(access) for access in clusters]
    answers = all_of(calls, time.monotonic() + deadline_s)
    found = [name for answer in answers if isinstance(answer, list) for name in answer]
    import difflib

    return tuple(difflib.get_close_matches(str(spec), found, n=_NEAR_NAMES, cutoff=0.5))
