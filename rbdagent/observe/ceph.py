"""Ceph: an image's header, its watchers and lockers, the blocklist. Read-only, always.

An image that is opened read-only gets no watch and no lock from us: a watch of ours would make
ceph-csi refuse to stage. librados waits for ever by default, so every call has a time limit, and
what still hangs is left behind in a daemon thread and reported as not observed.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import re
import shlex
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct
from msgspec.structs import replace

from rbdagent.commands import command, line_of
from rbdagent.errors import SourceError
from rbdagent.model import (
    BlocklistEntry,
    CephView,
    CheckResult,
    CheckState,
    ClusterView,
    EntityAddress,
    Gap,
    ImageIdentity,
    ImagePresence,
    ImageSpec,
    ImageView,
    Locker,
    NotObserved,
    ServiceAddress,
    Source,
    SourceState,
    Watcher,
    observed_of,
)
from rbdagent.observe.cluster import (
    CAPS,
    CephAccess,
    Cluster,
    bindings,
    is_shutdown,
    reach_cure,
    read_blocklist,
    read_managers,
    read_monitors,
    read_pools,
)
from rbdagent.observe.failure import failed, not_observed
from rbdagent.observe.together import all_of, start
from rbdagent.parse.address import (
    parse_address,
    parse_address_vector,
    parse_client,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    _DaemonsOf = Callable[[int, str], tuple[Watcher, ...] | NotObserved]
    _WatchersOf = Callable[[ImageIdentity], tuple[Watcher, ...]]
    Handle = Any  # rados.Ioctx or rbd.Image: the bindings carry no types

_SECOND_LOOK_S: Final = 0.3
"""ceph-csi's own in-use check shows as a watcher for some 0.15 s (recorded)."""

_MANY_IMAGES: Final = 8
"""From here on only watches are asked for, without opening the images."""

_A_DIRECTORY_OF_IMAGES: Final = 100
"""From here on a pool's whole directory is read, which may name many that nobody asked for."""

_WATCHES_ONLY: Final = NotObserved(reason="of many images only the watches are asked for")

_LONGEST_ID: Final = 256
_MIRRORING: Final = "rbd_mirroring"
_MGR_CURE: Final = "mon caps 'allow r' beside the profile"
_NEAR_NAMES: Final = 3
_MOST_NAMES: Final = 2000

_METADATA_KEYS: Final = (
    "csi.ceph.com/cluster/name",
    "csi.storage.k8s.io/pv/name",
    "csi.storage.k8s.io/pvc/name",
    "csi.storage.k8s.io/pvc/namespace",
)
# librbd's feature bits (src/include/rbd/features.h).
_FEATURES: Final = (
    "layering",
    "striping",
    "exclusive-lock",
    "object-map",
    "fast-diff",
    "deep-flatten",
    "journaling",
    "data-pool",
    "operations",
    "migrating",
)
_UUID: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$")


class CephLook:
    """Looks at every cluster; what needs no image, the connection above all, begins at once.

    Connections stay for the next look.
    """

    def __init__(self, clusters: Sequence[CephAccess]) -> None:
        """Begin to connect to those that were configured."""
        self._clusters = clusters
        self._connected: dict[CephAccess, Cluster] = {}
        self._begun: _Begun | None = self._begin()

    def _begin(self) -> _Begun:
        return start(
            [lambda access=access: self._ask(access) for access in self._clusters]  # type: ignore[misc]
        )

    def _ask(self, access: CephAccess) -> _Connected:
        """Ask a cluster's monitors what concerns every image."""
        if access in self._connected:
            cluster = self._connected[access]
            # A pool may have gone, and another come by its name.
            cluster.forget_pools()
        else:
            cluster = self._connected[access] = Cluster(access)
        return _Connected(
            cluster=cluster,
            blocklist=cluster.monitor_or_gap("osd blocklist ls", read_blocklist),
            pools=cluster.monitor_or_gap("osd lspools", read_pools),
            services=cluster.monitor_or_gap("mgr dump", read_managers, cure="mon caps 'allow r'"),
            monitors=cluster.monitor_or_gap("mon dump", read_monitors),
        )

    def images(
        self,
        images: Sequence[ImageIdentity],
        *,
        deadline: float,
        known: frozenset[EntityAddress] = frozenset(),
    ) -> tuple[CephView | None, Source]:
        """Ask every cluster that may have the images, all of them at once.

        Args:
            images: an identity without fsid is sought in every cluster.
            deadline: of the monotonic clock; what has not answered by then is not observed.
            known: addresses of clients whose mappings were seen. Any other watcher is looked at
                twice, a moment apart: somebody's short read-write open is no holder.

        Returns:
            The view and the state of the source: failed only where every cluster failed.
        """
        try:
            bindings()
        except SourceError as error:
            return None, Source(state=SourceState.FAILED, reason=str(error), cure=error.cure)
        begun, self._begun = self._begun or self._begin(), None
        answers = begun(deadline)
        there = [each for each in answers if isinstance(each, _Connected)]
        seen = iter(_of_clusters(there, images, deadline, known))
        views = tuple(
            next(seen) if isinstance(answer, _Connected) else _failed(access, answer)
            for access, answer in zip(self._clusters, answers, strict=True)
        )
        return CephView(clusters=views), _source(views)


class _Connected(Struct, frozen=True, kw_only=True):
    """A cluster, and what its monitors told."""

    cluster: Cluster
    blocklist: tuple[BlocklistEntry, ...] | NotObserved
    pools: tuple[tuple[int, str], ...] | NotObserved
    services: tuple[ServiceAddress, ...] | NotObserved
    monitors: tuple[ServiceAddress, ...] | NotObserved


_Begun = Callable[[float], list[_Connected | BaseException | None]]


def _failed(access: CephAccess, error: BaseException | None) -> ClusterView:
    if error is None:
        error = SourceError(f"{access.name}: no answer in time", cure=reach_cure(access))
    source = failed(error, access.name)
    missing = NotObserved(reason=source.reason, cure=source.cure)
    return ClusterView(
        name=access.name,
        source=source,
        blocklist=missing,
        services=missing,
        monitors=missing,
        pools=missing,
    )


def _source(views: Sequence[ClusterView]) -> Source:
    failed = [each for each in views if each.source.state is SourceState.FAILED]
    if views and len(failed) == len(views):
        first = failed[0].source
        return replace(first, reason="; ".join(each.source.reason for each in failed))
    gaps = [
        Gap(fact=f"cluster {each.name}", reason=each.source.reason, cure=each.source.cure)
        for each in failed
    ]
    gaps += [gap for each in views if each not in failed for gap in each.source.gaps]
    return Source(state=SourceState.OBSERVED, gaps=tuple(gaps))


def _of_clusters(
    there: Sequence[_Connected],
    images: Sequence[ImageIdentity],
    deadline: float,
    known: frozenset[EntityAddress],
) -> list[ClusterView]:
    ours = [
        [image for image in images if image.fsid in (None, each.cluster.fsid)] for each in there
    ]
    looks = [
        _calls(each.cluster, wanted, known, deadline)
        for each, wanted in zip(there, ours, strict=True)
    ]
    answers = all_of([call for calls in looks for call in calls], deadline)
    views, first = [], 0
    for each, wanted in zip(there, ours, strict=True):
        part = answers[first : first + len(wanted)]
        first += len(wanted)
        found = [
            _view_or_gap(image, answer, each.cluster)
            for image, answer in zip(wanted, part, strict=True)
        ]
        views.append(_view(each, tuple(view for view in found if view is not None)))
    return views


def _calls(
    cluster: Cluster,
    images: Sequence[ImageIdentity],
    known: frozenset[EntityAddress],
    deadline: float,
) -> list[Callable[[], ImageView]]:
    """Give a call an image: of many only their watches are asked for.

    Whose id nobody knows must be opened anyway, and is looked at as one of few is.
    """
    named = [each for each in images if each.image_id is not None]
    if len(named) < _MANY_IMAGES:
        return [lambda image=image: _image(cluster, image, known) for image in images]  # type: ignore[misc]
    dumping = start([lambda: _dumped(cluster)])
    (there,) = all_of([lambda: _there(cluster, named)], deadline)
    if not callable(there):
        there = _is_not_known
    (dumped,) = dumping(deadline)
    watchers = dumped if callable(dumped) else _asked(cluster, deadline)

    @functools.cache
    def daemons(pool_id: int, namespace: str) -> tuple[Watcher, ...] | NotObserved:
        return _mirror_daemons(cluster, pool_id, namespace)

    return [
        lambda image=image: (  # type: ignore[misc]
            _image(cluster, image, known)
            if image.image_id is None
            else _with_daemons(_watches_of(cluster, image, watchers, there), known, daemons)
        )
        for image in images
    ]


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
    )
    return replace(view, source=replace(view.source, gaps=_gaps(view)))


def _gaps(view: ClusterView) -> tuple[Gap, ...]:
    gaps = []
    if isinstance(view.blocklist, NotObserved):
        gaps.append(
            Gap(fact="the blocklist", reason=view.blocklist.reason, cure=view.blocklist.cure)
        )
    gaps += [
        Gap(
            fact=f"watchers of {image.spec}",
            reason=image.watchers.reason,
            cure=image.watchers.cure,
        )
        for image in view.images
        if isinstance(image.watchers, NotObserved)
    ]
    return tuple(gaps)


# --------------------------------------------------------------------------------------------------
# One image
# --------------------------------------------------------------------------------------------------


def _view_or_gap(
    image: ImageIdentity, answer: ImageView | BaseException | None, cluster: Cluster
) -> ImageView | None:
    """Give the view; one that hung or was refused is there, and says that it was not observed."""
    if isinstance(answer, ImageView):
        return answer
    if answer is None:
        missing = NotObserved(
            reason=f"{image.spec}: no answer in time",
            cure="ceph health detail shows placement groups and OSDs that are down",
        )
    elif isinstance(answer, _NoPoolError):
        return None
    else:
        missing = not_observed(answer, str(image.spec))
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
    )


class _NoPoolError(SourceError):
    """The cluster has no pool of that name: it cannot have the image."""


def _image(
    cluster: Cluster, image: ImageIdentity, known: frozenset[EntityAddress] | None
) -> ImageView:
    """Open one image read-only and read its facts; where known is None its watches alone."""
    try:
        context = cluster.pool(image)
        if context is None:
            raise _NoPoolError(f"{cluster.access.name}: no pool {image.spec.pool or image.pool_id}")
        opened, presence, spec = _open(cluster, context, image)
        if opened is None:
            return ImageView(
                spec=spec,
                fsid=cluster.fsid,
                presence=ImagePresence.GONE,
                image_id=image.image_id,
                pool_id=context.get_pool_id(),
            )
        with opened:
            return _facts(cluster, opened, context, spec, presence, known)
    except (cluster.rbd.Error, cluster.rados.Error) as error:
        raise _image_error(cluster, image.spec, error) from error


def _open(
    cluster: Cluster,
    context: Handle,
    image: ImageIdentity,
) -> tuple[Any | None, ImagePresence, ImageSpec]:
    """Open by name, else by id: an image in the trash, or renamed, keeps its id."""
    rbd = cluster.rbd
    spec = replace(image.spec, pool=context.get_pool_name())
    with contextlib.suppress(rbd.ImageNotFound):
        return rbd.Image(context, spec.name, read_only=True), ImagePresence.PRESENT, spec
    name = _journaled_name(cluster, context, spec.name)
    if name is not None:
        with contextlib.suppress(rbd.ImageNotFound):
            opened = rbd.Image(context, name, read_only=True)
            return opened, ImagePresence.PRESENT, replace(spec, name=name)
    if image.image_id is None:
        return None, ImagePresence.GONE, spec
    try:
        opened = rbd.Image(context, image_id=image.image_id, read_only=True)
    except rbd.ImageNotFound:
        return None, ImagePresence.GONE, spec
    if _is_in_trash(cluster, context, image.image_id):
        return opened, ImagePresence.TRASH, spec
    return opened, ImagePresence.PRESENT, replace(spec, name=opened.get_name())


def _is_in_trash(cluster: Cluster, context: Handle, image_id: str) -> bool:
    """Return whether a pool's trash holds an image (cls_rbd.cc, trash: ``rbd_trash``, ``id_<id>``).

    ``RBD.trash_get`` asks the same. But rbd.pyx converts the times of its answer with
    ``datetime.utcfromtimestamp``, which Python 3.12 deprecates (python/cpython#103857).
    """
    return _omap_value(cluster, context, "rbd_trash", f"id_{image_id}") is not None


def _omap_value(cluster: Cluster, context: Handle, name: str, key: str) -> bytes | None:
    """Return the value of a key of an object; None where the object or the key does not exist."""
    with cluster.rados.ReadOpCtx() as operation:
        values, _ = context.get_omap_vals_by_keys(operation, (key,))
        try:
            context.operate_read_op(operation, name)
        except cluster.rados.ObjectNotFound:
            return None
        return next((value for _, value in values), None)


def _journaled_name(cluster: Cluster, context: Handle, name: str) -> str | None:
    """Give the name that ceph-csi's journal has for a volume: its prefix is configurable.

    Object ``csi.volume.<uuid>``, omap key ``csi.imagename`` (ceph-csi, internal/journal).
    """
    uuid = _UUID.search(name)
    if uuid is None:
        return None
    try:
        value = _omap_value(cluster, context, f"csi.volume.{uuid[0]}", "csi.imagename")
    except cluster.rados.Error:
        return None
    return None if value is None else value.decode()


def _facts(
    cluster: Cluster,
    opened: Handle,
    context: Handle,
    spec: ImageSpec,
    presence: ImagePresence,
    known: frozenset[EntityAddress] | None,
) -> ImageView:
    old = bool(opened.old_format())
    image_id = None if old else str(opened.id())
    watchers, passing = (_watchers_now(opened), ()) if known is None else _watchers(opened, known)
    bits = int(opened.features())
    mirrored = _WATCHES_ONLY if known is None else _mirrored(cluster, opened)
    daemons: tuple[Watcher, ...] | NotObserved = ()
    if mirrored is True:
        daemons = _mirror_daemons(cluster, context.get_pool_id(), spec.namespace)
    elif isinstance(mirrored, NotObserved):
        daemons = mirrored
    return ImageView(
        spec=spec,
        fsid=cluster.fsid,
        presence=presence,
        image_id=image_id,
        pool_id=context.get_pool_id(),
        format=1 if old else 2,
        header=f"{spec.name}.rbd" if old else f"rbd_header.{image_id}",
        size_bytes=int(opened.size()),
        features=tuple(name for bit, name in enumerate(_FEATURES) if bits & 1 << bit),
        watchers=watchers,
        passing_watchers=passing,
        lockers=_WATCHES_ONLY if known is None else _lockers(opened),
        metadata=_WATCHES_ONLY if known is None else _metadata(opened),
        mirrored=mirrored,
        mirror_daemons=daemons,
    )


def _watchers(
    opened: Handle,
    known: frozenset[EntityAddress],
) -> tuple[tuple[Watcher, ...], tuple[Watcher, ...]]:
    """Look once, and again where somebody unknown watches: who is there only once passes by."""
    first = _watchers_now(opened)
    if all(each.address in known for each in first):
        return first, ()
    time.sleep(_SECOND_LOOK_S)
    second = _watchers_now(opened)
    clients = {(each.address, each.client) for each in second}
    before = {(each.address, each.client) for each in first}
    staying = tuple(each for each in second if (each.address, each.client) in before)
    passing = [each for each in first if (each.address, each.client) not in clients]
    passing += [each for each in second if (each.address, each.client) not in before]
    return staying, tuple(passing)


def _watchers_now(opened: Handle) -> tuple[Watcher, ...]:
    found = (
        Watcher(
            address=parse_address(each["addr"], where="a watcher"),
            client=int(each["id"]),
            cookie=int(each["cookie"]),
        )
        for each in opened.watchers_list()
    )
    return tuple(sorted(found, key=_by_client))


def _by_client(watcher: Watcher) -> tuple[int, int]:
    return watcher.client, watcher.cookie


def _lockers(opened: Handle) -> tuple[Locker, ...]:
    answer = opened.list_lockers()
    if not answer:
        return ()
    return tuple(
        Locker(
            client=parse_client(client, where="a locker"),
            address=parse_address(address, where="a locker"),
            lock_id=cookie,
            exclusive=bool(answer["exclusive"]),
        )
        for client, cookie, address in answer["lockers"]
    )


def _metadata(opened: Handle) -> tuple[tuple[str, str], ...]:
    """Ask for keys by name: metadata_list of 16.2 misaligns on empty values."""
    found = []
    for key in _METADATA_KEYS:
        with contextlib.suppress(KeyError):
            found.append((key, str(opened.metadata_get(key))))
    return tuple(found)


def _mirrored(cluster: Cluster, opened: Handle) -> bool | NotObserved:
    try:
        state = opened.mirror_image_get_info()["state"]
    except cluster.rbd.Error as error:
        return NotObserved(reason=f"mirroring: {error}")
    # A daemon has it open while its mirroring is being set up or taken away as well.
    return bool(state != cluster.rbd.RBD_MIRROR_IMAGE_DISABLED)


def _mirror_daemons(
    cluster: Cluster, pool_id: int, namespace: str
) -> tuple[Watcher, ...] | NotObserved:
    """Return the clients that watch ``rbd_mirroring`` of a pool: rbd-mirror's alone.

    A daemon watches it and the headers of its images by one client, in its own cluster and in the
    peer's (tools/rbd_mirror/PoolWatcher.cc; measured with Ceph 18.2 and 20.2). The service map of
    the monitors has another client of it, and none of the daemons of a peer.
    """
    try:
        watches = cluster.watches
        if watches is None:
            return NotObserved(reason="this librados lists no watches of an object")
        return watches.of(pool_id, namespace, _MIRRORING)
    except FileNotFoundError:
        return ()
    except OSError as error:
        return NotObserved(reason=f"{_MIRRORING}: {error}")


def _image_error(cluster: Cluster, spec: ImageSpec, error: Exception) -> SourceError:
    who = f"client.{cluster.access.client_id}"
    if is_shutdown(error):
        return cluster.blocked(str(spec))
    number = abs(getattr(error, "errno", None) or 0)
    if number == errno.ETIMEDOUT:
        return SourceError(
            f"{spec}: no answer within {cluster.access.timeout_s:g} s",
            cure="ceph health detail shows placement groups and OSDs that are down",
        )
    if number in {errno.EPERM, errno.EACCES}:
        return SourceError(
            f"{spec}: {who} may not read it",
            cure=line_of(command("ceph auth caps", who, *shlex.split(CAPS))),
        )
    return SourceError(
        f"{spec}: {error}", cure=f"{line_of(command('rbd info', str(spec)))} may show more"
    )


def _dumped(cluster: Cluster) -> _WatchersOf | None:
    """Return what finds watchers in all watches; None where these cannot be had."""
    dumped = cluster.dump_watchers()
    if isinstance(dumped, NotObserved):
        return None
    found: dict[tuple[str, str], list[Watcher]] = {}
    for each in dumped:
        watcher = Watcher(
            address=_dumped_address(each["entity_addr_t"]),
            client=int(each["entity_name"]["num"]),
            cookie=int(each["cookie"]),
        )
        found.setdefault((each.get("namespace", ""), each["object"]), []).append(watcher)
    return lambda image: tuple(found.get((image.spec.namespace, _header(image)), ()))


def _asked(cluster: Cluster, deadline: float) -> _WatchersOf:
    """Give watchers by an operation an image; by opening it where that cannot be had."""
    watches = all_of([lambda: cluster.watches], deadline)[0]
    if watches is None or isinstance(watches, BaseException):
        return lambda image: _opened_watchers(cluster, image)
    return lambda image: watches.of(image.pool_id or 0, image.spec.namespace, _header(image))


def _opened_watchers(cluster: Cluster, image: ImageIdentity) -> tuple[Watcher, ...]:
    context = cluster.pool(image)
    with cluster.rbd.Image(context, image_id=image.image_id, read_only=True) as opened:
        return _watchers_now(opened)


def _header(image: ImageIdentity) -> str:
    return f"rbd_header.{image.image_id}"


def _there(cluster: Cluster, images: Sequence[ImageIdentity]) -> Callable[[ImageIdentity], bool]:
    """Give what tells of an image whether it is plainly there, under its name and with its id."""
    if len(images) < _A_DIRECTORY_OF_IMAGES:
        return lambda image: _is_named(cluster, image)
    found = _listed(cluster, images)
    return lambda image: (
        (image.pool_id, image.spec.namespace, image.spec.name, image.image_id) in found
    )


def _is_not_known(_: ImageIdentity) -> bool:
    return False


def _is_named(cluster: Cluster, image: ImageIdentity) -> bool:
    """Read the object rbd_id.NAME: an image that is gone, renamed or in the trash has none.

    Its content is the id behind its length (src/cls/rbd/cls_rbd.cc, set_id).
    """
    context = None if image.pool_id is None else cluster.pool(image)
    if context is None or image.image_id is None:
        return False
    encoded = image.image_id.encode()
    try:
        content = context.read(f"rbd_id.{image.spec.name}", length=_LONGEST_ID)
    except cluster.rados.ObjectNotFound:
        return False
    return bool(content == len(encoded).to_bytes(4, "little") + encoded)


def _listed(cluster: Cluster, images: Sequence[ImageIdentity]) -> frozenset[tuple[Any, ...]]:
    """Give pool, namespace, name and id of every image of the pools in question.

    A pool's directory names what is neither gone nor in the trash, a thousand images an answer.
    """
    found: set[tuple[Any, ...]] = set()
    pools = {(each.pool_id, each.spec.namespace): each for each in images}
    for (pool_id, namespace), image in pools.items():
        context = None if pool_id is None else cluster.pool(image)
        if context is not None:
            found |= {
                (pool_id, namespace, each["name"], each["id"])
                for each in cluster.rbd.RBD().list2(context)
            }
    return frozenset(found)


def _watches_of(
    cluster: Cluster,
    image: ImageIdentity,
    watchers_of: _WatchersOf,
    there: Callable[[ImageIdentity], bool],
) -> ImageView:
    """Give an image's watchers alone.

    One that is not plainly there, under its name and with its id, is looked for in every way.
    """
    try:
        if not there(image):
            return _image(cluster, image, None)
        watchers = watchers_of(image)
    except (OSError, cluster.rbd.Error, cluster.rados.Error) as error:
        raise _image_error(cluster, image.spec, error) from error
    return ImageView(
        spec=image.spec,
        fsid=cluster.fsid,
        presence=ImagePresence.PRESENT,
        image_id=image.image_id,
        pool_id=image.pool_id,
        header=_header(image),
        watchers=tuple(sorted(watchers, key=_by_client)),
        lockers=_WATCHES_ONLY,
        metadata=_WATCHES_ONLY,
        mirrored=_WATCHES_ONLY,
        mirror_daemons=_WATCHES_ONLY,
    )


def _with_daemons(
    view: ImageView, known: frozenset[EntityAddress], daemons: _DaemonsOf
) -> ImageView:
    """Add the rbd-mirror daemons of an image's pool, where an unknown client watches the image."""
    if view.pool_id is None or all(
        watcher.address in known for watcher in observed_of(view.watchers)
    ):
        return view
    return replace(view, mirror_daemons=daemons(view.pool_id, view.spec.namespace))


def _dumped_address(data: dict[str, Any]) -> EntityAddress:
    return parse_address_vector(f"{data['addr']}/{data['nonce']}", where="dump_watchers")


# --------------------------------------------------------------------------------------------------
# Near matches and check
# --------------------------------------------------------------------------------------------------


def near_images(
    clusters: Sequence[CephAccess], spec: ImageSpec, *, deadline_s: float
) -> tuple[str, ...]:
    """Give names of images that come close to one that is not there."""

    def names(access: CephAccess) -> list[str]:
        cluster = Cluster(access)
        context = cluster.pool(ImageIdentity(spec=spec, fsid=None))
        if context is None:
            pools = cluster.monitor_or_gap("osd lspools", read_pools)
            known = () if isinstance(pools, NotObserved) else pools
            return [f"{pool}/{spec.name}" for _, pool in known]
        prefix = str(replace(spec, name="x"))[:-1]
        return [prefix + name for name in cluster.rbd.RBD().list(context)[:_MOST_NAMES]]

    calls = [lambda access=access: names(access) for access in clusters]
    answers = all_of(calls, time.monotonic() + deadline_s)
    found = [name for answer in answers if isinstance(answer, list) for name in answer]
    import difflib

    return tuple(difflib.get_close_matches(str(spec), found, n=_NEAR_NAMES, cutoff=0.5))


def check_ceph(access: CephAccess) -> tuple[CheckResult, ...]:
    """Try what rbdagent needs of one cluster: a line each."""

    def line(sentence: str, state: CheckState, detail: str = "", hint: str = "") -> CheckResult:
        return CheckResult(source="ceph", sentence=sentence, state=state, detail=detail, hint=hint)

    deadline = time.monotonic() + access.timeout_s + 1
    answers = f"cluster {access.name} answers client.{access.client_id}"
    cluster = all_of([lambda: Cluster(access)], deadline)[0]
    if cluster is None:
        return (line(answers, CheckState.FAILED, "no answer in time", reach_cure(access)),)
    if isinstance(cluster, BaseException):
        missing = not_observed(cluster, access.name)
        return (line(answers, CheckState.FAILED, missing.reason, missing.cure),)
    results = [line(answers, CheckState.OK, f"fsid {cluster.fsid}")]
    blocked: list[BlocklistEntry | None] = []

    def read_own(values: tuple[object, ...]) -> None:
        blocked.append(cluster.entry_of_own(read_blocklist(values)))

    readers: tuple[tuple[str, str, Callable[[tuple[Any, ...]], object], str | None], ...] = (
        ("the blocklist can be read", "osd blocklist ls", read_own, None),
        ("pools can be listed", "osd lspools", read_pools, None),
        ("the mgr's own clients are known", "mgr dump", read_managers, _MGR_CURE),
    )
    for sentence, prefix, read, cure in readers:
        found = cluster.monitor_or_gap(prefix, read, cure=cure)
        if isinstance(found, NotObserved):
            state = CheckState.FAILED if cure is None else CheckState.WARNING
            results.append(line(sentence, state, found.reason, found.cure))
        else:
            results.append(line(sentence, CheckState.OK))
    for entry in blocked:
        sentence = "this node's client is not on the blocklist"
        error = None if entry is None else cluster.refused(access.name, entry)
        state = CheckState.OK if error is None else CheckState.FAILED
        results.append(line(sentence, state, str(error or ""), error.cure if error else ""))
    dumped = all_of([cluster.dump_watchers], deadline)[0]
    fast = isinstance(dumped, tuple)
    results.append(
        line(
            "all watches of an OSD can be read at once (faster where many images are asked)",
            CheckState.OK if fast else CheckState.SKIPPED,
            "" if fast else "needs osd caps 'allow *', which rbdagent does not ask for",
        )
    )
    return tuple(results)
