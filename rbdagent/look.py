"""One look: drive the observers, all at once where they can be, and give a snapshot.

What has not answered at the deadline is left behind and reported; nothing here judges.
"""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, TypeVar

from msgspec.structs import replace

from rbdagent.commands import command, line_of
from rbdagent.errors import NotFoundError
from rbdagent.model import (
    Also,
    CephView,
    EntityAddress,
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
)
from rbdagent.observe.apart import Apart, GoneError, Kept
from rbdagent.observe.failure import failed, not_observed
from rbdagent.observe.together import start

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rbdagent.config import Settings
    from rbdagent.correlate.whole import Whole
    from rbdagent.correlate.words import Called
    from rbdagent.diagnose.subjects import Scope
    from rbdagent.observe.cluster import CephAccess

_T = TypeVar("_T")
KubeAnswer = tuple[KubeView | None, Source]
_LATE_REPORTS = NotObserved(
    reason="the Kubernetes API listed no RBDNodes in time", cure="a longer --timeout may help"
)
_SKIPPED = "looked away on purpose"
_CEPH = "Ceph"
_NOT_YET = Source(state=SourceState.SKIPPED, reason="not asked yet")
_MOST_IMAGES = 500
"""Each is opened, 32 at a time, and looked at twice, a third of a second apart, where somebody whom
nobody knows watches it: with all of them some seconds."""
_PATIENCE_S = 1.0
"""What is late in Ceph is told by whom it is late for: that word is waited for a little. So are the
node's own: where the API gives no answer they are all there is."""


def look(
    target: Target,
    settings: Settings,
    *,
    now: Callable[[], str],
    meanwhile: Callable[[], None] = lambda: None,
    also: Also = Also.NOTHING,
    kube: KubeAnswer | None = None,
    own: Callable[[NodeView | None], KubeAnswer] | None = None,
    ceph: KeptCeph | None = None,
) -> Snapshot:
    """Observe what belongs to the target.

    Args:
        target: what the user named.
        settings: where to look, as whom, and for how long.
        now: the clock, as an ISO 8601 text in UTC.
        meanwhile: what needs nothing of the look, done while the sources answer.
        also: what to ask for beyond who holds the volume.
        kube: what the API told before, where it need not be asked anew.
        own: asks the API of what the node shows alone, in place of all there is.
        ceph: who stays connected, for whoever looks often.

    Raises:
        NotFoundError: a source that would know the target answered, and it is not there.
    """
    deadline = time.monotonic() + settings.timeout_s
    # Who waits longest for others begins first; Ceph's process before there are threads.
    with _begin_ceph(settings, ceph) as ceph_begun:
        everything = [lambda: kube or _timed(lambda: _kube(target, settings, also))]
        kube_begun = start(everything if own is None else [])
        node_begun = start([lambda: _timed(lambda: _node(settings))])
        from rbdagent.correlate import images_of

        meanwhile()
        node, node_source = _ended(node_begun(deadline), "the node", settings)
        if own is not None:
            kube_begun = start([lambda: _timed(lambda: own(node))])
        told, kube_source = _ended(kube_begun(deadline), "the Kubernetes API", settings)
        images = images_of(target, node, told)
        seen = Snapshot(
            observed_at=now(),
            tool_version=settings.version,
            target=target,
            node=node,
            ceph=None,
            kubernetes=told,
            sources=Sources(node=node_source, ceph=_NOT_YET, kubernetes=kube_source),
        )
        whole = _indexed(seen) if Also.EVERYTHING in also else None
        # Logs, like Ceph, are asked by the volume's names, which are known from here on.
        with_words = _begin_words(seen, settings, also, whole)
        reports = _begin_reports(seen, settings, also)

        def ask(wanted: tuple[ImageIdentity, ...]) -> _CephAnswer:
            return _ceph(ceph_begun, wanted, node, deadline, to_all=whole is not None)

        if whole is None:
            ceph_view, ceph_source = _timed(lambda: ask(images))
        else:
            ceph_view, ceph_source = _timed(lambda: _of_suspects(whole, images, ask))
    snapshot = replace(
        seen,
        observed_at=now(),
        node=with_words(deadline),
        ceph=ceph_view,
        sources=replace(seen.sources, ceph=ceph_source),
    )
    _must_be_there(snapshot, images, settings)
    return with_published(snapshot, found) if (found := reports(deadline)) else snapshot


def _begin_words(
    seen: Snapshot, settings: Settings, also: Also, whole: Whole | None
) -> Callable[[float], NodeView | None]:
    """Begin to read the node's logs, where the volume's life is asked for."""
    node, roots = seen.node, settings.roots
    if Also.LIFE not in also or node is None or roots is None:
        return lambda _: node
    from rbdagent.correlate.words import called_in
    from rbdagent.observe.words import begin_words

    calls = called_in(seen) if whole is None else _calls_of_suspects(whole)
    words = begin_words(roots, node, calls, now=seen.observed_at)
    patience = time.monotonic() + _PATIENCE_S
    return lambda deadline: replace(node, words=words(max(deadline, patience)))


def _begin_reports(
    seen: Snapshot, settings: Settings, also: Also
) -> Callable[[float], Sequence[PublishedNode | NotObserved]]:
    """Begin to list what the agents of all nodes report of the target.

    Ceph shows no client that lost its watch, and no read-only one: only the agents of their nodes
    do. So all are asked, not only those of nodes that have a watch. All of this node, and an act on
    it, need no other node's report.
    """
    access = settings.kube
    not_wanted = seen.target.kind is TargetKind.NONE or Also.SWITCHES in also
    if access is None or not_wanted or seen.kubernetes is None:
        return lambda _: ()
    from rbdagent.correlate import correlate
    from rbdagent.correlate.names import names_of_use
    from rbdagent.correlate.reports import about
    from rbdagent.observe.kube import published_or_gap

    names = names_of_use(correlate(seen))
    begun = start([lambda: published_or_gap(access, lambda report: about(report, names))])

    def reports(deadline: float) -> Sequence[PublishedNode | NotObserved]:
        (answer,) = begun(deadline)
        if isinstance(answer, tuple):
            return answer
        return [_LATE_REPORTS if answer is None else _without_reports(answer)]

    return reports


def _without_reports(answer: NotObserved | BaseException) -> NotObserved:
    return answer if isinstance(answer, NotObserved) else not_observed(answer, "RBDNodes")


def _indexed(snapshot: Snapshot) -> Whole:
    from rbdagent.correlate.whole import whole_of

    return whole_of(snapshot)


def _scope(whole: Whole) -> Scope:
    from rbdagent.diagnose.subjects import Scope

    return Scope(namespace=whole.snapshot.target.namespace or None)


def _calls_of_suspects(whole: Whole) -> tuple[Called, ...]:
    """Give what the node's logs call those volumes of its own that may be in trouble."""
    from rbdagent.correlate import correlate
    from rbdagent.correlate.parts import is_here, part_of
    from rbdagent.correlate.words import called
    from rbdagent.diagnose.suspects import suspects_of

    own = (each for each in suspects_of(whole, _scope(whole)) if is_here(whole, each))
    uses = (correlate(part_of(whole, each), whole.here.directories) for each in own)
    found = (called(each) for each in uses)
    return tuple(dict.fromkeys(each for each in found if each.volume or each.kernel))


def _of_suspects(
    whole: Whole,
    mapped: tuple[ImageIdentity, ...],
    ask: Callable[[tuple[ImageIdentity, ...]], _CephAnswer],
) -> _CephAnswer:
    """Ask Ceph of those volumes alone that may be in trouble, and of so many at most.

    Whom the blocklist hits only Ceph can tell: these are asked about afterwards.
    """
    from rbdagent.correlate.whole import with_ceph
    from rbdagent.diagnose.suspects import images_of_suspects

    scope = _scope(whole)
    first = tuple(dict.fromkeys((*mapped, *images_of_suspects(whole, scope))))
    asked = first[:_MOST_IMAGES]
    view, source = ask(asked)
    if view is None:
        return view, source
    wanted = dict.fromkeys((*first, *images_of_suspects(with_ceph(whole, view), scope)))
    left = tuple(wanted)[len(asked) :]
    room = _MOST_IMAGES - len(asked)
    further, later = ask(left[:room]) if left[:room] else (None, source)
    if further is not None:
        view, left = _joined(view, further), left[room:]
    gaps = dict.fromkeys((*source.gaps, *later.gaps, *_unasked(len(left))))
    return view, replace(source, gaps=tuple(gaps))


def _unasked(count: int) -> tuple[Gap, ...]:
    if not count:
        return ()
    return (
        Gap(
            fact=f"who holds {count} more images that may be in trouble",
            reason=f"{_MOST_IMAGES} are asked about at most, those that a pod waits for first",
            cure="rbdagent diagnose -n NAMESPACE asks about fewer, and with a TARGET about it",
        ),
    )


def _joined(one: CephView, more: CephView) -> CephView:
    """Join two answers: both have every cluster that is configured, in the same order."""
    both = zip(one.clusters, more.clusters, strict=True)
    return CephView(
        clusters=tuple(replace(each, images=(*each.images, *more.images)) for each, more in both)
    )


def only_ceph(settings: Settings) -> Settings:
    """Give settings that look at nothing but Ceph."""
    return replace(settings, roots=None, kube=None)


def with_published(snapshot: Snapshot, answers: Sequence[PublishedNode | NotObserved]) -> Snapshot:
    """Give a look with what agents published; what was not observed of it is a gap."""
    kube, sources = snapshot.kubernetes, snapshot.sources
    if kube is None:
        return snapshot
    unseen = [each for each in answers if isinstance(each, NotObserved)]
    found = tuple(each for each in answers if not isinstance(each, NotObserved))
    gaps = tuple(Gap(fact="RBDNodes", reason=each.reason, cure=each.cure) for each in unseen)
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
    ceph: KeptCeph | None,
) -> Snapshot:
    """Give a look with what Ceph says of further images; as it is where Ceph says nothing."""
    if not images or snapshot.sources.ceph.state is SourceState.FAILED:
        return snapshot
    further, _ = _ceph(ceph, images, snapshot.node, time.monotonic() + settings.timeout_s)
    if further is None:
        return snapshot
    if snapshot.ceph is None:
        return replace(snapshot, ceph=further)
    return replace(snapshot, ceph=_joined(snapshot.ceph, further))


def _timed(call: Callable[[], tuple[_T, Source]]) -> tuple[_T, Source]:
    """Make a call, and say in its source how long it took."""
    began = time.monotonic()
    view, source = call()
    return view, replace(source, took_s=round(time.monotonic() - began, 3))


def _ended(
    answers: list[tuple[_T | None, Source] | BaseException | None], what: str, settings: Settings
) -> tuple[_T | None, Source]:
    (answer,) = answers
    if isinstance(answer, NotFoundError):
        # No failure of the source: it answered, and the target is not there.
        raise answer
    if isinstance(answer, BaseException):
        return None, failed(answer, what)
    if answer is not None:
        return answer
    return None, Source(
        state=SourceState.FAILED,
        reason=f"{what} gave no answer within {settings.timeout_s:g} s",
        cure="a longer --timeout may help; something is slow or hangs",
    )


def _node(settings: Settings) -> tuple[NodeView | None, Source]:
    if settings.roots is None:
        return None, Source(state=SourceState.SKIPPED, reason=_SKIPPED)
    from rbdagent.observe.node import observe_node

    return observe_node(settings.roots, node_name=settings.node_name)


def _kube(target: Target, settings: Settings, also: Also) -> KubeAnswer:
    if settings.kube is None:
        return None, Source(state=SourceState.SKIPPED, reason=_SKIPPED)
    if Also.EVERYTHING in also:
        from rbdagent.observe.every import observe_everything

        return observe_everything(
            settings.kube, namespace=target.namespace or None, node_name=settings.node_name
        )
    from rbdagent.observe.kube import observe_kube

    return observe_kube(settings.kube, target, node_name=settings.node_name, also=also)


_Question = tuple[tuple[ImageIdentity, ...], frozenset[EntityAddress], float]
_CephAnswer = tuple[CephView | None, Source]
KeptCeph = Kept[_Question, _CephAnswer]


def keep_ceph(settings: Settings) -> KeptCeph | None:
    """Connect to Ceph, and stay so; None where it is looked away from on purpose."""
    return None if settings.clusters is None else Kept(_asking(settings.clusters))


def _begin_ceph(
    settings: Settings, kept: KeptCeph | None
) -> contextlib.AbstractContextManager[Apart[_Question, _CephAnswer] | KeptCeph | None]:
    """Connect while the others look: which images to ask for, they will tell."""
    if kept is not None or settings.clusters is None:
        return contextlib.nullcontext(kept)
    return Apart(_asking(settings.clusters))


def _asking(
    clusters: Sequence[CephAccess],
) -> Callable[[], Callable[[_Question], _CephAnswer]]:
    def begin() -> Callable[[_Question], _CephAnswer]:
        from rbdagent.observe.ceph import CephLook

        # Contained here: an exception of the bindings need not survive the way to the parent.
        try:
            begun = CephLook(clusters)
        except Exception as error:  # noqa: BLE001 - whatever it is, the other sources go on
            failure = failed(error, _CEPH)
            return lambda _: (None, failure)

        def answer(question: _Question) -> _CephAnswer:
            images, known, deadline = question
            try:
                return begun.images(images, known=known, deadline=deadline)
            except Exception as error:  # noqa: BLE001 - as above
                return None, failed(error, _CEPH)

        return answer

    return begin


def _ceph(
    begun: Apart[_Question, _CephAnswer] | KeptCeph | None,
    images: tuple[ImageIdentity, ...],
    node: NodeView | None,
    deadline: float,
    *,
    to_all: bool = False,
) -> _CephAnswer:
    """Ask of some images; ``to_all``: what concerns every one is wanted though there be none."""
    if begun is None:
        return None, Source(state=SourceState.SKIPPED, reason=_SKIPPED)
    if not images and not to_all:
        reason = "not asked: the target leads to no image"
        return None, Source(state=SourceState.SKIPPED, reason=reason)
    mappings = () if node is None or isinstance(node.mappings, NotObserved) else node.mappings
    known = frozenset(each.client_address for each in mappings if each.client_address is not None)
    try:
        answer = begun.answer((images, known, deadline), deadline + _PATIENCE_S)
    except TimeoutError:
        reason, cure = "Ceph: no answer in time", "ceph -s tells whether the cluster answers at all"
    except GoneError:
        reason = "Ceph: the process that asked it ended without an answer"
        cure = "its last words are on stderr; librados or librbd ended it"
    except Exception as error:  # noqa: BLE001 - as above
        return None, failed(error, _CEPH)
    else:
        if isinstance(begun, Kept) and _is_lacking(answer[1]):
            # A new connection reads the configuration and the key anew, and forgets what hung.
            begun.end()
        return answer
    return None, Source(state=SourceState.FAILED, reason=reason, cure=cure)


def _is_lacking(source: Source) -> bool:
    return source.state is SourceState.FAILED or bool(source.gaps)


def _must_be_there(
    snapshot: Snapshot, images: tuple[ImageIdentity, ...], settings: Settings
) -> None:
    """Refuse an answer about something that does not exist: a typo is no free volume."""
    match snapshot.target.kind:
        case TargetKind.DEVICE:
            _must_be_mapped(snapshot)
        case TargetKind.VOLUME_HANDLE if not images and snapshot.kubernetes is not None:
            raise NotFoundError(
                f"{snapshot.target.given}: no PersistentVolume has this volume handle",
                hint="kubectl get pv -o custom-columns=NAME:.metadata.name,"
                "HANDLE:.spec.csi.volumeHandle lists them",
            )
        case TargetKind.IMAGE:
            _must_exist(snapshot, settings)
        case _:
            pass


def _must_be_mapped(snapshot: Snapshot) -> None:
    node = snapshot.node
    if node is None or isinstance(node.mappings, NotObserved):
        return
    devices = tuple(each.device for each in node.mappings)
    if snapshot.target.name not in devices:
        raise NotFoundError(
            f"{snapshot.target.given}: no such device on {node.node_name}",
            hint=f"mapped here: {', '.join(devices) or 'nothing'}",
            near=devices,
        )


def _must_exist(snapshot: Snapshot, settings: Settings) -> None:
    """An image that no cluster has, no device shows and no PV means is a typo."""
    target, ceph = snapshot.target, snapshot.ceph
    if ceph is None or target.image is None or settings.clusters is None:
        return
    if any(each.source.state is not SourceState.OBSERVED for each in ceph.clusters):
        return
    views = [view for cluster in ceph.clusters for view in cluster.images]
    if any(each.presence is not ImagePresence.GONE for each in views):
        return
    from rbdagent.correlate import images_of

    mapped = images_of(replace(target, kind=TargetKind.NONE), snapshot.node, None)
    if any(each.spec == target.image for each in mapped):
        return
    from rbdagent.observe.ceph import near_images

    near = near_images(settings.clusters, target.image, deadline_s=settings.timeout_s)
    clusters = ", ".join(each.name for each in ceph.clusters)
    raise NotFoundError(
        f"{target.given}: no such image in {clusters}",
        hint=f"did you mean {' or '.join(near)}?"
        if near
        else line_of(command("rbd ls", target.image.pool)),
        near=near,
    )
