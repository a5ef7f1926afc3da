"""One snapshot: run the observers, in parallel where possible, and collect their answers.

A source that has not answered at the deadline is reported as not observed. This module contains no
verdicts and no rules.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import time
from functools import cache, partial
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from msgspec.structs import replace

from rbdagent.collect.ceph.access import MappedHere
from rbdagent.collect.ceph_process import CEPH, CephAnswer, CephProcess, KeptCeph, connect
from rbdagent.collect.failure import failed, gaps_in, not_observed
from rbdagent.collect.kube.connection import Connection
from rbdagent.collect.monitors import with_monitors
from rbdagent.collect.node.contained import KeptNode, NodeAnswer, node_begun, start_node_worker
from rbdagent.collect.parallel import Awaited, awaiting, start
from rbdagent.collect.worker import PersistentWorker, Worker, WorkerExitedError
from rbdagent.commands import command, line_of
from rbdagent.errors import NotFoundError
from rbdagent.model import (
    CephView,
    CollectScope,
    Gap,
    ImageIdentity,
    ImagePresence,
    KubeView,
    NodeView,
    NotObserved,
    PublishedNode,
    Snapshot,
    Source,
    Sources,
    SourceState,
    Target,
    TargetKind,
    observed_of,
    separated,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rbdagent.collect.kube.list_reports import FoundMappings
    from rbdagent.collect.kube.stored_reports import StoredReports
    from rbdagent.collect.node.file_system_sizes import SizeWorker
    from rbdagent.config import Settings
    from rbdagent.correlate.index import Index
    from rbdagent.correlate.log_names import LogNames
    from rbdagent.model import Holder
    from rbdagent.parse.labels import Lookup

_T = TypeVar("_T")
KubeAnswer = tuple[KubeView | None, Source]
_LATE_REPORTS = NotObserved(
    reason="the Kubernetes API did not return what agents published in time",
    hint="a longer --timeout may help",
)
_SKIPPED = "not queried, as requested"
_API = "the Kubernetes API"
_LOGS = "the logs of this node"
_NODE = "this node"
_NOT_QUERIED_YET = Source(state=SourceState.SKIPPED, reason="not queried yet")
_MOST_IMAGES = 500
"""Each of these images is opened, 32 at a time. An image with an unknown watcher is observed twice,
a third of a second apart. Together, they take some seconds."""
_OF_OPERATORS = CollectScope.MIGRATIONS | CollectScope.REPLICATIONS
_EXTRA_S = 1.0
"""Extra time after the deadline, in which the process that queries Ceph reports its late requests.
If the API does not answer, the node's logs may be the only source."""


class Meanwhile(NamedTuple):
    """What a caller does while the sources answer."""

    show: Callable[[Awaited], None] = lambda _: None
    """Called once; the list of awaited sources stays current."""
    prepare: Callable[[], None] = lambda: None
    """Called while Ceph answers: before that, the threads that lead to the names of the images
    would wait for it."""


_NOTHING = Meanwhile()


def collect_snapshot(  # noqa: PLR0913 - each changes another step
    target: Target,
    settings: Settings,
    *,
    now: Callable[[], str],
    meanwhile: Meanwhile = _NOTHING,
    also: CollectScope = CollectScope.NOTHING,
    kube: KubeAnswer | None = None,
    own: Callable[[NodeView | None], KubeAnswer] | None = None,
    further_images: Callable[[Snapshot], tuple[ImageIdentity, ...]] = lambda _: (),
    workers: Workers | None = None,
) -> Snapshot:
    """Return a snapshot of all objects that belong to the target.

    Args:
        target: the target that the user named.
        settings: the sources, their credentials, and the overall deadline.
        now: returns the time as an ISO 8601 text in UTC.
        meanwhile: what the caller does while the sources answer.
        also: the requests in addition to those for the holders of the volume.
        kube: an earlier answer of the API, to use instead of new requests.
        own: requests only the API objects that belong to the node's view, instead of all objects.
        further_images: returns images about which Ceph is queried in addition to those of the
            target, from the snapshot without Ceph's answer.
        workers: processes that observe; this call starts and ends those that are missing.

    Raises:
        NotFoundError: a source that would know the target answered, and the target does not exist.
    """
    deadline = time.monotonic() + settings.timeout_s
    awaited: Awaited = {}
    # The source with the longest waits starts first. Processes must start before threads do.
    with (
        _begin_ceph(settings, workers and workers.ceph) as ceph_begun,
        _begin_node(settings, workers and workers.node, deadline) as node_answer,
        _begin_sizes(settings, also) as size_worker,
    ):
        stored = _begin_stored(also)
        connection = None if settings.kube is None else Connection(settings.kube)
        ask_kube = partial(_kube, target, settings, also, connection, stored)
        kube_answer = _begin_kube(ask_kube, settings, kube, own, awaited)
        from rbdagent.correlate import images_of
        from rbdagent.correlate.machine import without_other_machine

        meanwhile.show(awaited)
        with awaiting(awaited, _NODE, settings.timeout_s):
            node_view, node_source = node_answer()
        kube_view, kube_source = kube_answer(node_view, deadline)
        seen = without_other_machine(
            Snapshot(
                observed_at=now(),
                tool_version=settings.version,
                target=target,
                node=node_view,
                ceph=None,
                kubernetes=kube_view,
                sources=Sources(node=node_source, ceph=_NOT_QUERIED_YET, kubernetes=kube_source),
            )
        )
        named = (*images_of(target, seen.node, kube_view), *further_images(seen))
        images = tuple(dict.fromkeys(named))
        index = _indexed(seen, stored) if CollectScope.EVERYTHING in also else None
        seen = seen if index is None else index.snapshot
        # Logs, like Ceph, are searched by the names of the volume, which are known from here on.
        calls = _log_names(seen, also, index)
        with_logs = _begin_logs(seen, settings, also, calls)
        begin_reports = cache(partial(_begin_reports, seen, settings, also, connection, awaited))

        def while_ceph_answers() -> None:
            begin_reports()
            meanwhile.prepare()

        with awaiting(awaited, CEPH, _limit_of_ceph_s(settings)):
            with_ceph = _query_ceph(seen, images, index, ceph_begun, deadline, while_ceph_answers)
        if index is None:
            known = with_published(with_ceph, begin_reports().found(deadline))
            with_ceph = _with_identified(with_ceph, known, ceph_begun, deadline)
        if ceph_begun is not None:
            ceph_begun.finish()
        with_networks = _begin_networks(with_ceph, settings, also)
        with awaiting(awaited, _LOGS, settings.timeout_s):
            node = with_networks(with_logs(deadline), deadline)
            snapshot = replace(with_ceph, observed_at=now(), node=node)
        snapshot = _with_sizes(snapshot, calls, size_worker, deadline)
        _check_target_exists(snapshot, images, settings)
        if index is not None:
            snapshot = _with_needed(snapshot, index, stored)
        else:
            # They begin here if Ceph was not queried.
            found = begin_reports().of_all(snapshot, deadline)
            snapshot = with_published(snapshot, found) if found else snapshot
    if connection is None or not also & _OF_OPERATORS:
        return snapshot
    from rbdagent.collect.kube.list_operators import with_operators

    # Ceph may have used all the time.
    return with_operators(snapshot, connection, also, max(deadline, time.monotonic() + _EXTRA_S))


def _limit_of_api_s(settings: Settings) -> float:
    """Return the time limit of one request to the API."""
    given = settings.timeout_s if settings.kube is None else settings.kube.timeout_s
    return min(given, settings.timeout_s)


def _limit_of_ceph_s(settings: Settings) -> float:
    """Return the time limit of one call to Ceph."""
    limits = [access.timeout_s for access in settings.clusters or ()]
    return min(max(limits, default=settings.timeout_s), settings.timeout_s)


def _begin_stored(also: CollectScope) -> StoredReports | None:
    """Return where the reports of all agents are kept until it is known which are needed.

    None if the view has all reports, or no report.
    """
    if CollectScope.EVERYTHING not in also or CollectScope.ALL_REPORTS in also:
        return None
    from rbdagent.collect.kube.stored_reports import StoredReports

    return StoredReports()


def _begin_kube(
    ask_all: Callable[[], KubeAnswer],
    settings: Settings,
    known: KubeAnswer | None,
    own: Callable[[NodeView | None], KubeAnswer] | None,
    awaited: Awaited,
) -> Callable[[NodeView | None, float], KubeAnswer]:
    """Start the requests to the API; return a function that waits for the answer.

    The requests for only the objects of the node start when the view of the node is known.
    """
    if own is None:
        if settings.kube is not None and known is None:
            _load_requests()

        def ask() -> KubeAnswer:
            with awaiting(awaited, _API, _limit_of_api_s(settings)):
                return known or _with_duration(ask_all)

        begun = start([ask])
        return lambda _, deadline: _kube_answer(begun(deadline), settings)

    def of_node(node: NodeView | None, deadline: float) -> KubeAnswer:
        begun = start([lambda: _with_duration(lambda: own(node))])
        return _kube_answer(begun(deadline), settings)

    return of_node


def _load_requests() -> None:
    """Import the modules that query the API, before a thread does.

    While two threads import modules, they take the interpreter from each other: that costs a
    snapshot 5 ms of 165 ms of processor time. The thread reports a module that is missing.
    """
    with contextlib.suppress(ImportError):
        importlib.import_module("rbdagent.collect.kube.list_target")


def _query_ceph(
    seen: Snapshot,
    images: tuple[ImageIdentity, ...],
    index: Index | None,
    begun: CephProcess | KeptCeph | None,
    deadline: float,
    prepare: Callable[[], None],
) -> Snapshot:
    """Return the snapshot with Ceph's answer.

    Ceph is queried about the given images or, in a snapshot of a cluster, also about the images of
    the volumes that may have problems.
    """

    def ask(wanted: tuple[ImageIdentity, ...]) -> CephAnswer:
        return _ceph(
            begun, wanted, seen.node, deadline, to_all=index is not None, meanwhile=prepare
        )

    view, source = _with_duration(
        lambda: ask(images) if index is None else _query_suspect_images(index, images, ask)
    )
    return replace(seen, ceph=view, sources=replace(seen.sources, ceph=source))


def _with_identified(
    snapshot: Snapshot,
    known: Snapshot,
    begun: CephProcess | KeptCeph | None,
    deadline: float,
) -> Snapshot:
    """Return the snapshot with Ceph's answer about devices whose image has another id.

    Args:
        snapshot: with Ceph's answer about the target.
        known: the same, with the RBDMappings that were found.
        begun: the process that queries Ceph.
        deadline: of the monotonic clock.
    """
    from rbdagent.correlate import images_to_identify

    if snapshot.ceph is None:
        return snapshot
    images = images_to_identify(known)
    further, _ = _ceph(begun, images, snapshot.node, deadline) if images else (None, None)
    return snapshot if further is None else replace(snapshot, ceph=_joined(snapshot.ceph, further))


def _log_names(seen: Snapshot, also: CollectScope, index: Index | None) -> tuple[LogNames, ...]:
    """Return the names of the volumes whose logs, and whose file systems, are requested."""
    if not (CollectScope.LOGS | CollectScope.FILE_SYSTEMS) & also or seen.node is None:
        return ()
    if index is None:
        from rbdagent.correlate.log_names import log_names_in

        return log_names_in(seen)
    from rbdagent.questions import log_names_of_suspects

    return log_names_of_suspects(index)


def _begin_sizes(
    settings: Settings, also: CollectScope
) -> contextlib.AbstractContextManager[SizeWorker | None]:
    """Start the process that asks file systems for their size, if that is requested."""
    if CollectScope.FILE_SYSTEMS not in also or settings.roots is None:
        return contextlib.nullcontext()
    from rbdagent.collect.node.file_system_sizes import start_size_worker

    return start_size_worker(settings.roots)


def _with_sizes(
    snapshot: Snapshot, calls: tuple[LogNames, ...], worker: SizeWorker | None, deadline: float
) -> Snapshot:
    """Return the snapshot with the sizes of the file systems of its volumes.

    They are read after Ceph's answer: an image that has grown since is not larger there.
    """
    if worker is None or snapshot.node is None:
        return snapshot
    from rbdagent.collect.node.file_system_sizes import with_sizes

    devices = frozenset(name for call in calls for name in call.kernel)
    shortest = time.monotonic() + _EXTRA_S
    node = with_sizes(snapshot.node, devices, worker, max(deadline, shortest))
    return replace(snapshot, node=node)


def _begin_logs(
    seen: Snapshot, settings: Settings, also: CollectScope, calls: tuple[LogNames, ...]
) -> Callable[[float], NodeView | None]:
    """Start to read the node's logs, if they are requested."""
    node, roots = seen.node, settings.roots
    if CollectScope.LOGS not in also or node is None or roots is None:
        return lambda _: node
    from rbdagent.collect.node.volume_logs import begin_logs

    logs = begin_logs(roots, node, calls, now=seen.observed_at)
    shortest = time.monotonic() + _EXTRA_S
    return lambda deadline: replace(node, logs=logs(max(deadline, shortest)))


def _begin_networks(
    snapshot: Snapshot, settings: Settings, also: CollectScope
) -> Callable[[NodeView | None, float], NodeView | None]:
    """Start to read the network namespaces of Ceph's clients, if the node's logs are requested.

    Ceph's answer names the monitors.
    """
    view, roots = snapshot.node, settings.roots
    if CollectScope.LOGS not in also or view is None or roots is None:
        return lambda node, _: node
    from rbdagent.collect.node.networks import begin_networks
    from rbdagent.correlate.ceph_peers import network_question

    networks = begin_networks(roots, view, network_question(snapshot))
    shortest = time.monotonic() + _EXTRA_S

    def with_networks(node: NodeView | None, deadline: float) -> NodeView | None:
        found = networks(max(deadline, shortest))
        return None if node is None else replace(node, networks=found)

    return with_networks


def _begin_reports(
    seen: Snapshot,
    settings: Settings,
    also: CollectScope,
    connection: Connection | None,
    awaited: Awaited,
) -> _Reports:
    """Start to request the RBDMappings of the target.

    Ceph shows no client that has lost its watch, and no read-only client. Only the agents on their
    nodes report such clients. So the mappings of the image on all nodes are requested, not only
    those of nodes with a watch. A snapshot of this node, or for an unmap, needs no report of other
    nodes.
    """
    not_wanted = seen.target.kind is TargetKind.NONE or CollectScope.UNMAP_GUARDS in also
    if connection is None or not_wanted or seen.kubernetes is None:
        return _Reports()
    from rbdagent.correlate import correlate
    from rbdagent.correlate.published_reports import lookup_of
    from rbdagent.correlate.volume_names import names_of_volume

    lookup = lookup_of(names_of_volume(correlate(seen)))
    return _RequestedReports(connection, lookup, settings, awaited)


class _Reports:
    """The reports of agents about the target: none, because none is needed."""

    def found(self, _deadline: float, /) -> Sequence[PublishedNode]:
        """Return what the RBDMappings that were found show, without their RBDNodes."""
        return ()

    def of_all(
        self, _snapshot: Snapshot, _deadline: float, /
    ) -> Sequence[PublishedNode | NotObserved]:
        """Return the reports, with those to which the answer of Ceph leads."""
        return ()


class _RequestedReports(_Reports):
    """The reports of agents about the target; the first requests begin at once."""

    def __init__(
        self, connection: Connection, lookup: Lookup, settings: Settings, awaited: Awaited
    ) -> None:
        from rbdagent.collect.kube.list_reports import mappings_with

        self._connection = connection
        self._awaited = awaited
        self._limit_s = _limit_of_api_s(settings)
        self._begun = start([lambda: mappings_with(connection, lookup)])
        self._answer: FoundMappings | NotObserved | BaseException | None = None

    def _first(self, deadline: float) -> FoundMappings | NotObserved | BaseException | None:
        if self._answer is None:
            with awaiting(self._awaited, _API, self._limit_s):
                (self._answer,) = self._begun(deadline)
        return self._answer

    def found(self, deadline: float, /) -> Sequence[PublishedNode]:
        """Return what the first RBDMappings show."""
        from rbdagent.collect.kube.list_reports import FoundMappings, reports_of

        found = self._first(deadline)
        return reports_of(found) if isinstance(found, FoundMappings) else ()

    def of_all(
        self, snapshot: Snapshot, deadline: float, /
    ) -> Sequence[PublishedNode | NotObserved]:
        """Return all reports about the target."""
        from rbdagent.collect.kube.list_reports import FoundMappings, reports_of

        found = self._first(deadline)
        if not isinstance(found, FoundMappings):
            return [_without_reports(found)]
        with awaiting(self._awaited, _API, self._limit_s):
            further = start([lambda: _further_reports(snapshot, self._connection, found)])
            # Ceph may have used all the time.
            (answer,) = further(max(deadline, time.monotonic() + _EXTRA_S))
        return (
            answer if isinstance(answer, list) else [*reports_of(found), _without_reports(answer)]
        )


def _further_reports(
    snapshot: Snapshot, connection: Connection, found: FoundMappings
) -> list[PublishedNode | NotObserved]:
    """Return the reports about the target, with the mappings that Ceph's answer leads to.

    If any client holds the image, only the RBDNodes of its holders are requested. Only "no holder"
    needs those of all nodes.
    """
    from rbdagent.collect.kube.list_reports import mappings_with, reports_about, reports_of
    from rbdagent.correlate import correlate
    from rbdagent.correlate.published_reports import further_lookup, keys_of, reduced_to
    from rbdagent.correlate.unknown_watchers import nodes_of_watchers_elsewhere
    from rbdagent.correlate.volume_names import names_of_volume

    ceph, node = snapshot.ceph, snapshot.node
    views = () if ceph is None else [view for one in ceph.clusters for view in one.images]
    lookup = further_lookup(views, [one.mapping for one in found.mappings])
    more = mappings_with(connection, lookup, known=found)
    if not isinstance(more, NotObserved):
        found = found.with_more(more)
    volume = correlate(with_published(snapshot, reports_of(found)))
    names, nodes = names_of_volume(volume), None
    if any(_holds(holder) for holder in volume.holders):
        here = "" if node is None else node.node_name
        nodes = {*found.nodes, *nodes_of_watchers_elsewhere(volume, here)}
    reports = reports_about(connection, found, keys_of(names, views), nodes)
    if isinstance(reports, NotObserved):
        return [reports]
    observed, unseen = separated(reports)
    reduced = [reduced_to(report, names) for report in observed]
    if isinstance(more, NotObserved):
        # Another mapping of the image may exist on each of these nodes.
        return [*(replace(report, incomplete=more.reason) for report in reduced), *unseen, more]
    return [*reduced, *unseen]


def _holds(holder: Holder) -> bool:
    """Return whether a client holds the image, so that a verdict names it.

    The daemons of Ceph may watch any image, beside another client or none.
    """
    from rbdagent.correlate.holders import is_ceph_daemon

    if holder.mapping is not None or holder.published is not None:
        return True
    return holder.watcher is not None and not holder.transient and not is_ceph_daemon(holder)


def _without_reports(answer: NotObserved | BaseException | None) -> NotObserved:
    if answer is None:
        return _LATE_REPORTS
    return answer if isinstance(answer, NotObserved) else not_observed(answer, "RBDNodes")


def _indexed(snapshot: Snapshot, stored: StoredReports | None) -> Index:
    """Return the index of a cluster.

    Args:
        snapshot: of the cluster.
        stored: its reports, if they are not in the snapshot.
    """
    from rbdagent.questions import index_of_suspects

    return index_of_suspects(snapshot, stored if _are_reports_stored(snapshot) else None)


def _are_reports_stored(snapshot: Snapshot) -> bool:
    """Return whether the reports were observed, and are not in the snapshot."""
    from rbdagent.collect.kube.stored_reports import STORED

    return snapshot.kubernetes is not None and snapshot.kubernetes.published is STORED


def _with_needed(snapshot: Snapshot, index: Index, stored: StoredReports | None) -> Snapshot:
    """Return the snapshot of a cluster with the reports that are needed after Ceph's answer."""
    kube = snapshot.kubernetes
    if stored is None or kube is None or isinstance(kube.published, NotObserved):
        return snapshot
    from rbdagent.questions import reports_after_ceph

    return with_published(snapshot, reports_after_ceph(index, snapshot.ceph, stored))


def _query_suspect_images(
    index: Index,
    mapped: tuple[ImageIdentity, ...],
    ask: Callable[[tuple[ImageIdentity, ...]], CephAnswer],
) -> CephAnswer:
    """Query Ceph only about the volumes that may have problems, up to a maximum number.

    Only Ceph shows which clients are on the blocklist, so their images are queried afterwards.
    """
    from rbdagent.questions import images_of_suspects

    first = tuple(dict.fromkeys((*mapped, *images_of_suspects(index))))
    asked = first[:_MOST_IMAGES]
    view, source = ask(asked)
    if view is None:
        return view, source
    wanted = dict.fromkeys((*first, *images_of_suspects(index, view)))
    left = tuple(wanted)[len(asked) :]
    room = _MOST_IMAGES - len(asked)
    further, later = ask(left[:room]) if left[:room] else (None, source)
    if further is not None:
        view, left = _joined(view, further), left[room:]
    gaps = dict.fromkeys((*source.gaps, *later.gaps, *_images_not_queried(len(left))))
    return view, replace(source, gaps=tuple(gaps))


def _images_not_queried(count: int) -> tuple[Gap, ...]:
    if not count:
        return ()
    return (
        Gap(
            fact=f"the holders of {count} more images that may have problems",
            reason=f"at most {_MOST_IMAGES} images are queried; those that a pod waits for come "
            "first",
            hint="diagnose one namespace (-n NAMESPACE) to query fewer images, or one TARGET",
        ),
    )


def _joined(one: CephView, more: CephView) -> CephView:
    """Merge two answers: both have every configured cluster, in the same order."""
    both = zip(one.clusters, more.clusters, strict=True)
    return CephView(
        clusters=tuple(
            replace(cluster, images=(*cluster.images, *more.images)) for cluster, more in both
        )
    )


def only_ceph(settings: Settings) -> Settings:
    """Return settings that query Ceph only."""
    return replace(settings, roots=None, kube=None)


def with_published(snapshot: Snapshot, answers: Sequence[PublishedNode | NotObserved]) -> Snapshot:
    """Return a snapshot with the given reports; each report that was not observed is a gap."""
    kube, sources = snapshot.kubernetes, snapshot.sources
    if kube is None:
        return snapshot
    found, unseen = separated(answers)
    gaps = gaps_in(("RBDNodes", answer) for answer in unseen)
    source = sources.kubernetes
    return replace(
        snapshot,
        kubernetes=replace(kube, published=unseen[0] if unseen and not found else found),
        sources=replace(sources, kubernetes=replace(source, gaps=(*source.gaps, *gaps))),
    )


def with_images(
    snapshot: Snapshot,
    images: tuple[ImageIdentity, ...],
    settings: Settings,
    ceph: KeptCeph | CephProcess | None,
) -> Snapshot:
    """Return a snapshot with Ceph's answer about further images; unchanged without an answer."""
    if not images or snapshot.sources.ceph.state is SourceState.FAILED:
        return snapshot
    further, _ = _ceph(ceph, images, snapshot.node, time.monotonic() + settings.timeout_s)
    if further is None:
        return snapshot
    if snapshot.ceph is None:
        return replace(snapshot, ceph=further)
    return replace(snapshot, ceph=_joined(snapshot.ceph, further))


def with_ceph_about(
    snapshot: Snapshot,
    images: tuple[ImageIdentity, ...],
    settings: Settings,
    ceph: CephProcess | None,
) -> Snapshot:
    """Return a snapshot with Ceph's answer about some images, and its pools; of the first 500.

    Args:
        snapshot: without an answer of Ceph.
        images: that objects name which are in no snapshot.
        settings: the time limit.
        ceph: the process that queries Ceph; None if it is skipped: the snapshot is unchanged.
    """
    if ceph is None:
        return snapshot
    deadline = time.monotonic() + settings.timeout_s
    asked = images[:_MOST_IMAGES]
    view, source = _with_duration(lambda: _ceph(ceph, asked, None, deadline, to_all=True))
    ceph.finish()
    return replace(snapshot, ceph=view, sources=replace(snapshot.sources, ceph=source))


def _with_duration(call: Callable[[], tuple[_T, Source]]) -> tuple[_T, Source]:
    """Call an observer, and add the duration to its source."""
    began = time.monotonic()
    view, source = call()
    return view, replace(source, took_s=round(time.monotonic() - began, 3))


def _kube_answer(
    answers: list[KubeAnswer | BaseException | None], settings: Settings
) -> KubeAnswer:
    (answer,) = answers
    if isinstance(answer, NotFoundError):
        # The source did not fail: it answered that the target does not exist.
        raise answer
    if isinstance(answer, BaseException):
        return None, failed(answer, _API)
    if answer is not None:
        return answer
    return None, Source(
        state=SourceState.FAILED,
        reason=f"the Kubernetes API did not answer within {settings.timeout_s:g} s",
        hint="a longer --timeout may help; the API server is slow or hangs",
    )


def _begin_node(
    settings: Settings, kept: KeptNode | None, deadline: float
) -> contextlib.AbstractContextManager[Callable[[], NodeAnswer]]:
    """Start to observe the node in parallel with the other sources, unless it is skipped."""
    if settings.roots is None:
        skipped = Source(state=SourceState.SKIPPED, reason=_SKIPPED)
        return contextlib.nullcontext(lambda: (None, skipped))
    return node_begun(settings.roots, settings.node_name, deadline, kept)


def _kube(
    target: Target,
    settings: Settings,
    also: CollectScope,
    connection: Connection | None,
    stored: StoredReports | None,
) -> KubeAnswer:
    if connection is None:
        return None, Source(state=SourceState.SKIPPED, reason=_SKIPPED)
    if CollectScope.EVERYTHING in also:
        from rbdagent.collect.kube.list_cluster import observe_cluster

        return observe_cluster(
            connection,
            namespace=target.namespace or None,
            node_name=settings.node_name,
            also=also,
            stored=stored,
        )
    from rbdagent.collect.kube.list_target import observe_kube

    return observe_kube(connection, target, node_name=settings.node_name, also=also)


class Workers(NamedTuple):
    """Processes that observe; start them before this process has threads."""

    ceph: KeptCeph | CephProcess | None
    """The process that stays connected to Ceph, or one that was started early, for one snapshot.

    None if Ceph is skipped, or if each snapshot starts a process.
    """
    node: KeptNode | None

    def end(self) -> None:
        """End the processes."""
        for worker in self:
            if worker is not None:
                worker.end()


def start_workers(settings: Settings) -> Workers:
    """Start the processes."""
    # Imported before the fork: all processes then share these modules' memory.
    importlib.import_module("rbdagent.collect.node.observer")
    importlib.import_module("rbdagent.collect.ceph.connection")
    # The garbage collector of this process would write to these pages, which copies them.
    gc.freeze()
    roots = settings.roots
    return Workers(
        ceph=None
        if settings.clusters is None
        else KeptCeph(settings.clusters, settings.monitor_lists),
        node=None if roots is None else start_node_worker(roots, settings.node_name),
    )


def _begin_ceph(
    settings: Settings, given: KeptCeph | CephProcess | None
) -> contextlib.AbstractContextManager[CephProcess | KeptCeph | None]:
    """Start to connect to Ceph; the other sources name the images to query."""
    if settings.clusters is None or not (given is None or isinstance(given, Worker)):
        return contextlib.nullcontext(given)
    return connect(settings.clusters, settings.monitor_lists, given)


def _ceph(
    begun: CephProcess | KeptCeph | None,
    images: tuple[ImageIdentity, ...],
    node: NodeView | None,
    deadline: float,
    *,
    to_all: bool = False,
    meanwhile: Callable[[], None] = lambda: None,
) -> CephAnswer:
    """Query Ceph about images; with ``to_all``, query the general facts even without an image.

    ``meanwhile`` is called after the question was sent.
    """
    if begun is None:
        return None, Source(state=SourceState.SKIPPED, reason=_SKIPPED)
    if not images and not to_all:
        reason = "not queried: no image to query was found"
        return None, Source(state=SourceState.SKIPPED, reason=reason)
    mappings = () if node is None else observed_of(node.mappings)
    known = MappedHere(
        clients=frozenset(
            mapping.client_address for mapping in mappings if mapping.client_address is not None
        ),
        snapshots_of=frozenset(
            mapping.image_id
            for mapping in mappings
            if mapping.image_id is not None and mapping.snapshot is not None
        ),
    )
    try:
        question = images, known, deadline
        answer = begun.answer(question, deadline + _EXTRA_S, meanwhile=meanwhile)
    except TimeoutError:
        return None, Source(
            state=SourceState.FAILED,
            reason="Ceph: no answer in time",
            hint="ceph -s shows whether the cluster answers at all",
            timed_out=True,
        )
    except WorkerExitedError:
        return None, Source(
            state=SourceState.FAILED,
            reason="Ceph: the process that queried it ended without an answer",
            hint="stderr has its last output; librados or librbd ended it",
        )
    except Exception as error:  # noqa: BLE001 - as above
        return None, failed(error, CEPH)
    else:
        if isinstance(begun, PersistentWorker) and _is_incomplete(answer[1]):
            # A new process reads the configuration, the key and the list of monitors again, and
            # drops requests that hang.
            begun.end()
        return answer


def _is_incomplete(source: Source) -> bool:
    return source.state is SourceState.FAILED or bool(source.gaps)


def _check_target_exists(
    snapshot: Snapshot, images: tuple[ImageIdentity, ...], settings: Settings
) -> None:
    """Raise NotFoundError if the target does not exist: a typing error is not a free volume."""
    match snapshot.target.kind:
        case TargetKind.DEVICE:
            _check_mapped(snapshot)
        case TargetKind.VOLUME_HANDLE if not images and snapshot.kubernetes is not None:
            raise NotFoundError(
                f"{snapshot.target.argument}: no PersistentVolume has this volume handle",
                hint="kubectl get pv -o custom-columns=NAME:.metadata.name,"
                "HANDLE:.spec.csi.volumeHandle lists them",
            )
        case TargetKind.IMAGE:
            _check_image_exists(snapshot, settings)
        case _:
            pass


def _check_mapped(snapshot: Snapshot) -> None:
    node = snapshot.node
    if node is None or isinstance(node.mappings, NotObserved):
        return
    devices = tuple(mapping.device for mapping in node.mappings)
    if snapshot.target.name not in devices:
        raise NotFoundError(
            f"{snapshot.target.argument}: no such device on {node.node_name}",
            hint=f"mapped here: {', '.join(devices) or 'nothing'}",
            near=devices,
        )


def _check_image_exists(snapshot: Snapshot, settings: Settings) -> None:
    """Raise NotFoundError for an image that no cluster has and no device or PV refers to."""
    target, ceph = snapshot.target, snapshot.ceph
    if ceph is None or target.image is None or settings.clusters is None:
        return
    if any(cluster.source.state is not SourceState.OBSERVED for cluster in ceph.clusters):
        return
    views = [view for cluster in ceph.clusters for view in cluster.images]
    if any(image.presence is not ImagePresence.GONE for image in views):
        return
    from rbdagent.correlate import images_of

    mapped = images_of(replace(target, kind=TargetKind.NONE), snapshot.node, None)
    if any(identity.spec == target.image for identity in mapped):
        return
    from rbdagent.collect.ceph.images import near_images

    located = with_monitors(settings.clusters, settings.monitor_lists, {})
    near = near_images(located, target.image, deadline_s=settings.timeout_s)
    clusters = ", ".join(cluster.name for cluster in ceph.clusters)
    raise NotFoundError(
        f"{target.argument}: no such image in {clusters}",
        hint=f"did you mean {' or '.join(near)}?"
        if near
        else line_of(command("rbd ls", target.image.pool)),
        near=near,
    )
