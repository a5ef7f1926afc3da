"""Ceph: an image's header, watchers and lockers, and the blocklist. Always read-only.

rbdagent opens images read-only, which sets no watch and no lock: a watch would make ceph-csi refuse
to stage the volume. librados waits indefinitely by default, so every call has a time limit. A call
that still hangs stays in a daemon thread, and its result is reported as not observed.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import itertools
import os
import re
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct
from msgspec.structs import replace

from rbdagent.collect.ceph.access import NOTHING_MAPPED, MappedHere
from rbdagent.collect.ceph.connection import (
    Cluster,
    caps_cure,
    fault_in,
    name_of,
    rados_module,
    rbd_module,
    reach_cure,
    read_blocklist,
    read_health,
    read_managers,
    read_monitors,
    read_pools,
)
from rbdagent.collect.ceph.daemons import MIRRORING, mirror_daemons, tasks_of
from rbdagent.collect.ceph.watch_reads import has_new_watch, watches_in
from rbdagent.collect.failure import failed, gaps_in, not_observed
from rbdagent.collect.parallel import all_of, once, start
from rbdagent.commands import command, line_of
from rbdagent.errors import SourceError
from rbdagent.model import (
    NOT_REQUESTED,
    BlocklistEntry,
    CephView,
    CheckResult,
    CheckState,
    ClusterView,
    EntityAddress,
    Gap,
    HealthCheck,
    ImageIdentity,
    ImagePresence,
    ImageSpec,
    ImageView,
    LockHolder,
    NotObserved,
    ServiceAddress,
    Source,
    SourceState,
    Watcher,
    observed_of,
)
from rbdagent.parse.address import (
    parse_address,
    parse_address_vector,
    parse_client,
)
from rbdagent.parse.handle import CLIENT_ADDRESS
from rbdagent.parse.trash import name_in_trash

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rbdagent.collect.ceph.access import CephAccess

    _DaemonsOf = Callable[[int, str], tuple[ServiceAddress, ...] | NotObserved]
    _WatchersOf = Callable[[ImageIdentity], tuple[Watcher, ...]]
    _Dump = dict[tuple[str, str], list[Watcher]]
    Handle = Any  # rados.Ioctx or rbd.Image: the bindings carry no types

_SECOND_CHECK_S: Final = 0.3
"""Seconds. ceph-csi's in-use check is visible as a watcher for some 0.15 s (recording
13-kubelet-restart-while-unstage-fails)."""
_MOST_READS: Final = 3

_MANY_IMAGES: Final = 8
"""From this number of images on, only the watches are requested, without opening the images."""

_A_DIRECTORY_OF_IMAGES: Final = 100
"""From this number of images on, a pool's whole directory is read. It may list many others."""

_WATCHES_ONLY: Final = NotObserved(
    reason="only the watches are queried where there are many images"
)

_NO_UNKNOWN_WATCHER: Final = NotObserved(
    reason="queried only where an unknown client watches the image"
)

_LONGEST_ID: Final = 256
_NEAR_NAMES: Final = 3
_MOST_POOLS: Final = 5
"""Maximum of pools that a line of check names."""
_MOST_NAMES: Final = 2000

_TRASH: Final = "rbd_trash"
_BY_ID: Final = "id_"
_PAGE: Final = 1000
_MOST_PAGES: Final = 20
_MOST_KEYS: Final = 256
_MOST_SNAPSHOTS: Final = 1024
"""krbd maps no image with more than 510 (RBD_MAX_SNAP_COUNT in drivers/block/rbd.c)."""
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
    "non-primary",
)
_UUID: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$")


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
        error = SourceError(f"{access.name}: no answer in time", hint=reach_cure(access))
    source = failed(error, access.name)
    missing = NotObserved(reason=source.reason, hint=source.hint)
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
        first = failed[0].source
        return replace(first, reason="; ".join(view.source.reason for view in failed))
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
        _calls(connected.cluster, wanted, known, deadline)
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


def _calls(
    cluster: Cluster,
    images: Sequence[ImageIdentity],
    known: MappedHere,
    deadline: float,
) -> list[Callable[[], ImageView]]:
    """Return one call per image; for many images the calls read the watches only.

    An image without a known id must be opened anyway, so its call reads all facts.
    """
    named = [image for image in images if image.image_id is not None]
    if len(named) < _MANY_IMAGES:
        return [lambda image=image: _image(cluster, image, known) for image in images]  # type: ignore[misc]
    dumping = start([lambda: _dump_of_watchers(cluster)])
    (exists,) = all_of([lambda: _existing(cluster, named, deadline)], deadline)
    if not callable(exists):
        exists = _is_not_known
    (dumped,) = dumping(deadline)
    dump = dumped if isinstance(dumped, dict) else None
    watchers = _watchers_by_request(cluster, deadline) if dump is None else _watchers_in(dump)
    daemons = once(functools.partial(_mirror_daemons, cluster, dump))
    return [
        lambda image=image: (  # type: ignore[misc]
            _image(cluster, image, known)
            if image.image_id is None or image.image_id in known.snapshots_of
            else _with_daemons(_watches_of(cluster, image, watchers, exists), known, daemons)
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
        if image.lockers not in (_WATCHES_ONLY, image.watchers)
    ]
    return gaps_in(facts)


# --------------------------------------------------------------------------------------------------
# One image
# --------------------------------------------------------------------------------------------------


def _view_or_gap(
    image: ImageIdentity, answer: ImageView | BaseException | None, cluster: Cluster
) -> ImageView | None:
    """Return the view; after a timeout or an error, a view whose facts are not observed."""
    if isinstance(answer, ImageView):
        return answer
    if answer is None:
        missing = NotObserved(
            reason=f"{image.spec}: no answer in time",
            hint=_silence_cure(cluster),
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
    """The cluster has no pool with that name, and so cannot have the image."""


def _image(cluster: Cluster, image: ImageIdentity, known: MappedHere | None) -> ImageView:
    """Open one image read-only and read its facts, or only its watches if ``known`` is None."""
    try:
        context = cluster.pool(image)
        if context is None:
            raise _NoPoolError(f"{cluster.access.name}: no pool {image.spec.pool or image.pool_id}")
        try:
            return _facts_of(cluster, context, image, known)
        except cluster.rbd.ImageNotFound:
            # The image was deleted, renamed or moved to the trash after it was opened: each read of
            # the header then fails, and does not show which of them.
            return _facts_of(cluster, context, image, known)
    except (cluster.rbd.Error, cluster.rados.Error) as error:
        raise _image_error(cluster, image.spec, error) from error


def _facts_of(
    cluster: Cluster,
    context: Handle,
    image: ImageIdentity,
    known: MappedHere | None,
) -> ImageView:
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


def _open(
    cluster: Cluster,
    context: Handle,
    image: ImageIdentity,
) -> tuple[Any | None, ImagePresence, ImageSpec]:
    """Open by name, else by id: an image that is in the trash or renamed keeps its id.

    Another image may have the name of a renamed one: an image with another id does not count.
    """
    rbd = cluster.rbd
    spec = replace(image.spec, pool=name_of(context.get_pool_name))
    with contextlib.suppress(rbd.ImageNotFound):
        opened = rbd.Image(context, spec.name, read_only=True)
        if _has_id(opened, image.image_id):
            return opened, ImagePresence.PRESENT, spec
        opened.close()
    name = _journaled_name(cluster, context, image)
    if name is not None:
        with contextlib.suppress(rbd.ImageNotFound):
            opened = rbd.Image(context, name, read_only=True)
            if _has_id(opened, image.image_id):
                written = name.decode(errors="backslashreplace")
                return opened, ImagePresence.PRESENT, replace(spec, name=written)
            opened.close()
    image_id = image.image_id or _id_in_trash(cluster, context, spec.name)
    if image_id is None:
        return None, ImagePresence.GONE, spec
    try:
        opened = rbd.Image(context, image_id=image_id, read_only=True)
    except rbd.ImageNotFound:
        return None, ImagePresence.GONE, spec
    if image.image_id is None or _is_in_trash(cluster, context, image_id):
        return opened, ImagePresence.TRASH, spec
    return opened, ImagePresence.PRESENT, replace(spec, name=name_of(opened.get_name))


def _has_id(opened: Handle, image_id: str | None) -> bool:
    """Return whether an opened image has an id, or none is known; format 1 has no ids."""
    if image_id is None:
        return True
    return not opened.old_format() and str(opened.id()) == image_id


def _is_in_trash(cluster: Cluster, context: Handle, image_id: str) -> bool:
    """Return whether an image is in the trash of a pool.

    The trash is the object ``rbd_trash`` with the keys ``id_<id>`` (cls_rbd.cc). ``RBD.trash_get``
    reads the same. But rbd.pyx converts its times with ``datetime.utcfromtimestamp``, which Python
    3.12 deprecates (python/cpython#103857).
    """
    return _omap_value(cluster, context, _TRASH, f"{_BY_ID}{image_id}") is not None


def _id_in_trash(cluster: Cluster, context: Handle, name: str) -> str | None:
    """Return the id of the only image in the trash of a pool that had a name; else None.

    None as well if the trash cannot be read: that no image has this name any more is known.
    """
    wanted = name.encode(errors="surrogateescape")
    try:
        found = [key for key, value in _trash(cluster, context) if name_in_trash(value) == wanted]
    except cluster.rados.Error:
        return None
    return found[0].removeprefix(_BY_ID) if len(found) == 1 else None


def _trash(cluster: Cluster, context: Handle) -> Iterator[tuple[str, bytes]]:
    """Yield the key and the entry of each image in the trash of a pool."""
    last = ""
    for _ in range(_MOST_PAGES):
        with cluster.rados.ReadOpCtx() as operation:
            entries, _ = context.get_omap_vals(operation, last, _BY_ID, _PAGE)
            try:
                context.operate_read_op(operation, _TRASH)
            except cluster.rados.ObjectNotFound:
                return
            page = [(str(key), value) for key, value in entries]
        yield from page
        if len(page) < _PAGE:
            return
        last = page[-1][0]


def _omap_value(cluster: Cluster, context: Handle, name: str, key: str) -> bytes | None:
    """Return the value of a key of an object; None if the object or the key does not exist."""
    with cluster.rados.ReadOpCtx() as operation:
        values, _ = context.get_omap_vals_by_keys(operation, (key,))
        try:
            context.operate_read_op(operation, name)
        except cluster.rados.ObjectNotFound:
            return None
        return next((value for _, value in values), None)


def _journaled_name(cluster: Cluster, context: Handle, image: ImageIdentity) -> bytes | None:
    """Return the image name in ceph-csi's journal: the prefix of image names is configurable.

    Object ``csi.volume.<uuid>``, omap key ``csi.imagename`` (internal/journal/voljournal.go@52fcb7b
    of ceph-csi). The name may not be UTF-8; rbd.pyx passes on a name of type bytes unchanged
    (``cstr``).
    """
    uuid = _UUID.search(image.spec.name)
    if uuid is None:
        return None
    try:
        return _omap_value(cluster, context, f"csi.volume.{uuid[0]}", "csi.imagename")
    except cluster.rados.Error:
        if image.image_id is None:
            # Without an id, only this name leads to the image. If the error was ignored, the image
            # would be reported as deleted.
            raise
        return None


def _facts(
    cluster: Cluster,
    opened: Handle,
    context: Handle,
    spec: ImageSpec,
    presence: ImagePresence,
    known: MappedHere | None,
) -> ImageView:
    old = bool(opened.old_format())
    image_id = None if old else str(opened.id())
    watchers, transient = (_watchers_now(opened), ()) if known is None else _watchers(opened, known)
    bits = int(opened.features())
    mirrored: bool | NotObserved = _WATCHES_ONLY
    primary: bool | None = None
    if known is not None:
        mirrored, primary = _mirrored(cluster, opened)
    daemons: tuple[ServiceAddress, ...] | NotObserved = ()
    if mirrored is True:
        daemons = mirror_daemons(cluster, context.get_pool_id(), spec.namespace)
    elif isinstance(mirrored, NotObserved):
        daemons = mirrored
    tasks: tuple[str, ...] | NotObserved = _NO_UNKNOWN_WATCHER
    is_watched = known is not None and _has_unknown_watcher(watchers, known)
    if (
        image_id is not None
        and known is not None
        and (is_watched or presence is ImagePresence.TRASH or _is_clone(cluster, opened))
    ):
        tasks = tasks_of(cluster, context, image_id)
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
        transient_watchers=transient,
        lockers=_WATCHES_ONLY if known is None else _lockers(opened, spec),
        metadata=_WATCHES_ONLY if known is None else _metadata(opened, of_nodes=is_watched),
        mirrored=mirrored,
        primary=primary,
        mirror_daemons=daemons,
        snapshots=_snapshots(cluster, opened, spec)
        if known is not None and (presence is ImagePresence.TRASH or image_id in known.snapshots_of)
        else NOT_REQUESTED,
        tasks=tasks,
    )


def _snapshots(cluster: Cluster, opened: Handle, spec: ImageSpec) -> tuple[int, ...] | NotObserved:
    """Return the ids of the snapshots; their names may not be UTF-8, and the binding then fails."""
    missing = f"snapshots of {spec}"
    try:
        found = itertools.islice(opened.list_snaps(), _MOST_SNAPSHOTS + 1)
        ids = tuple(int(snapshot["id"]) for snapshot in found)
    except UnicodeDecodeError:
        return NotObserved(reason=f"{missing}: the name of a snapshot is not UTF-8")
    except cluster.rbd.Error as error:
        return NotObserved(reason=f"{missing}: {error}")
    if len(ids) > _MOST_SNAPSHOTS:
        return NotObserved(reason=f"{missing}: there are more than {_MOST_SNAPSHOTS}")
    return ids


def _has_unknown_watcher(watchers: tuple[Watcher, ...], known: MappedHere) -> bool:
    """Return whether one of the watchers has no observed mapping."""
    return any(watcher.address not in known.clients for watcher in watchers)


def _watchers(
    opened: Handle,
    known: MappedHere,
) -> tuple[tuple[Watcher, ...], tuple[Watcher, ...]]:
    """Return lasting and transient watchers; read again if an unknown client watches.

    A third read shows whether a client of librbd that began meanwhile stays.
    """
    reads = [_watchers_now(opened)]
    if not _has_unknown_watcher(reads[0], known):
        return reads[0], ()
    while len(reads) < _MOST_READS and (len(reads) == 1 or has_new_watch(reads)):
        time.sleep(_SECOND_CHECK_S)
        reads.append(_watchers_now(opened))
    return watches_in(reads)


def _watchers_now(opened: Handle) -> tuple[Watcher, ...]:
    found = (
        Watcher(
            address=parse_address(entry["addr"], where="a watcher"),
            client=int(entry["id"]),
            cookie=int(entry["cookie"]),
        )
        for entry in opened.watchers_list()
    )
    return tuple(sorted(found, key=_by_client))


def _by_client(watcher: Watcher) -> tuple[int, int]:
    return watcher.client, watcher.cookie


def _lockers(opened: Handle, spec: ImageSpec) -> tuple[LockHolder, ...] | NotObserved:
    try:
        answer = opened.list_lockers()
    except UnicodeDecodeError:
        # If one name is invalid, the binding fails for all locks; clients choose the names.
        return NotObserved(
            reason=f"locks of {spec}: the name of a lock is not UTF-8",
            hint=f"{line_of(command('rbd lock ls', str(spec)))} shows them",
        )
    if not answer:
        return ()
    return tuple(
        LockHolder(
            client=parse_client(client, where="a locker"),
            address=parse_address(address, where="a locker"),
            lock_id=cookie,
            exclusive=bool(answer["exclusive"]),
        )
        for client, cookie, address in answer["lockers"]
    )


def _metadata(opened: Handle, *, of_nodes: bool) -> tuple[tuple[str, str], ...]:
    """Return the metadata, read key by key: metadata_list of 16.2 misaligns on empty values.

    Args:
        opened: the image.
        of_nodes: also read the addresses of the clients that ceph-csi records for each node.
    """
    keys = (*_METADATA_KEYS, *(_keys_of_nodes(opened) if of_nodes else ()))
    found = []
    for key in keys:
        with contextlib.suppress(KeyError):
            found.append((key, name_of(functools.partial(opened.metadata_get, key))))
    return tuple(sorted(found))


def _keys_of_nodes(opened: Handle) -> tuple[str, ...]:
    """Return the keys with the addresses of clients; none if a name is not UTF-8."""
    with contextlib.suppress(UnicodeDecodeError):
        listed = itertools.islice(opened.metadata_list(), _MOST_KEYS)
        return tuple(key for key, _ in listed if key.startswith(CLIENT_ADDRESS))
    return ()


def _mirrored(cluster: Cluster, opened: Handle) -> tuple[bool | NotObserved, bool | None]:
    """Return whether the image is mirrored and, if so, whether it is primary in this cluster."""
    try:
        info = opened.mirror_image_get_info()
    except cluster.rbd.Error as error:
        return NotObserved(reason=f"mirroring: {error}"), None
    # rbd-mirror also has the image open while its mirroring is being enabled or disabled.
    mirrored = bool(info["state"] != cluster.rbd.RBD_MIRROR_IMAGE_DISABLED)
    return mirrored, bool(info["primary"]) if mirrored else None


def _is_clone(cluster: Cluster, opened: Handle) -> bool:
    """Return whether the image has a parent: then Ceph's manager may be flattening it."""
    try:
        opened.get_parent_image_spec()
    except cluster.rbd.Error:
        # Also if the image has no parent: the answer only decides what else is asked.
        return False
    return True


def _image_error(cluster: Cluster, spec: ImageSpec, error: Exception) -> SourceError:
    return _osd_error(cluster, str(spec), error, line_of(command("rbd info", str(spec))))


def _silence_cure(cluster: Cluster) -> str:
    """Return a hint for an OSD that does not answer.

    The monitors give a user without osd caps no ticket for OSDs, and its requests then wait until
    their time limit (measured with Ceph 16.2.15 by
    tests/integration/test_observe_ceph.py).
    """
    shown = line_of(command("ceph auth get", f"client.{cluster.access.client_id}"))
    return (
        "ceph health detail shows placement groups and OSDs that are down; OSDs of most "
        f"releases never answer a user without osd caps, which {shown} shows"
    )


def _osd_error(cluster: Cluster, subject: str, error: Exception, more: str) -> SourceError:
    """Return the error that OSDs did not answer about an image or a pool.

    Args:
        cluster: the connection.
        subject: the image or the pool.
        error: of a binding.
        more: a command that may show the cause.
    """
    # The table of error numbers is loaded only after a failure.
    from rbdagent.parse.faults import Call, Fault

    user = f"client.{cluster.access.client_id}"
    match fault_in(Call.IMAGE, error):
        case Fault.BLOCKLISTED:
            return cluster.blocked(subject)
        case Fault.TIMED_OUT:
            return SourceError(
                f"{subject}: no answer within {cluster.access.timeout_s:g} s",
                hint=_silence_cure(cluster),
            )
        case Fault.DENIED:
            return SourceError(
                f"{subject}: {user} has no permission to read it",
                hint=caps_cure(user),
            )
        case _:
            return SourceError(f"{subject}: {error}", hint=f"{more} may show more")


def _dump_of_watchers(cluster: Cluster) -> _Dump | None:
    """Return the watchers of all objects by namespace and object; None without a dump."""
    dumped = cluster.dump_watchers()
    if isinstance(dumped, NotObserved):
        return None
    found: _Dump = {}
    for entry in dumped:
        watcher = Watcher(
            address=_dumped_address(entry["entity_addr_t"]),
            client=int(entry["entity_name"]["num"]),
            cookie=int(entry["cookie"]),
        )
        found.setdefault((entry.get("namespace", ""), entry["object"]), []).append(watcher)
    return found


def _watchers_in(dump: _Dump) -> _WatchersOf:
    """Return a function that finds an image's watchers; no other image has its id."""
    return lambda image: tuple(dump.get((image.spec.namespace, _header(image)), ()))


def _mirror_daemons(
    cluster: Cluster, dump: _Dump | None, pool_id: int, namespace: str
) -> tuple[ServiceAddress, ...] | NotObserved:
    """Return the rbd-mirror daemons of a pool, as `mirror_daemons`.

    A dump does not name the pool of an object. If it has no such object, no pool has a daemon, and
    the request with its own connection is not needed.
    """
    if dump is not None and (namespace, MIRRORING) not in dump:
        return ()
    return mirror_daemons(cluster, pool_id, namespace)


def _watchers_by_request(cluster: Cluster, deadline: float) -> _WatchersOf:
    """Return a function that reads an image's watchers with one operation, or by opening it."""
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


def _existing(
    cluster: Cluster, images: Sequence[ImageIdentity], deadline: float
) -> Callable[[ImageIdentity], bool]:
    """Return a function that checks whether an image exists with its name and its id."""
    if len(images) >= _A_DIRECTORY_OF_IMAGES:
        # The binding's iterator ends at a name that is not UTF-8.
        with contextlib.suppress(UnicodeDecodeError):
            found = _listed(cluster, images)
            return lambda image: (
                (image.pool_id, image.spec.namespace, image.spec.name, image.image_id) in found
            )
    reads = {image: _read_id(cluster, image) for image in images}
    return lambda image: _is_named(image, reads[image].wait(deadline))


def _is_not_known(_: ImageIdentity) -> bool:
    return False


class _IdRead:
    """A read of an image's object rbd_id.NAME, which librados does beside others."""

    def __init__(self) -> None:
        self._ended = threading.Event()
        self._answer: bytes | Exception | None = None

    def end(self, answer: bytes | Exception | None) -> None:
        """Set the content of the object, or why it was not read; None if it does not exist."""
        self._answer = answer
        self._ended.set()

    def on_complete(self, completion: Any, content: bytes | None) -> None:  # noqa: ANN401
        """Receive the content from librados, or None and a code."""
        code = completion.get_return_value()
        is_refused = content is None and code != -errno.ENOENT
        self.end(OSError(-code, os.strerror(-code)) if is_refused else content)

    def wait(self, deadline: float) -> bytes | None:
        """Return the content; None if the object does not exist.

        Raises:
            OSError: refused, or no answer in time.
        """
        if not self._ended.wait(max(0.0, deadline - time.monotonic())):
            raise OSError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT))
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer


def _read_id(cluster: Cluster, image: ImageIdentity) -> _IdRead:
    """Start to read an image's object rbd_id.NAME.

    A thread that waits for each of 50 reads takes 6.9 ms of processor time, and reads that run
    beside each other 2.3 ms.
    """
    read = _IdRead()
    try:
        context = None if image.pool_id is None else cluster.pool(image)
        if context is None:
            read.end(None)
        else:
            context.aio_read(f"rbd_id.{image.spec.name}", _LONGEST_ID, 0, read.on_complete)
    except Exception as error:  # noqa: BLE001 - wait() raises it: it concerns only this image
        read.end(error)
    return read


def _is_named(image: ImageIdentity, content: bytes | None) -> bool:
    """Return whether the content of the object rbd_id.NAME is the image's id.

    An image that was deleted, renamed or moved to the trash has no such object. Its content is the
    length of the id and the id (src/cls/rbd/cls_rbd.cc, set_id).
    """
    if content is None or image.image_id is None:
        return False
    encoded = image.image_id.encode()
    return content == len(encoded).to_bytes(4, "little") + encoded


def _listed(cluster: Cluster, images: Sequence[ImageIdentity]) -> frozenset[tuple[Any, ...]]:
    """Return pool, namespace, name and id of every image in the pools of the given images.

    A pool's directory names the images that are not in the trash, a thousand per answer.
    """
    found: set[tuple[Any, ...]] = set()
    pools = {(image.pool_id, image.spec.namespace): image for image in images}
    for (pool_id, namespace), image in pools.items():
        context = None if pool_id is None else cluster.pool(image)
        if context is not None:
            found |= {
                (pool_id, namespace, entry["name"], entry["id"])
                for entry in cluster.rbd.RBD().list2(context)
            }
    return frozenset(found)


def _watches_of(
    cluster: Cluster,
    image: ImageIdentity,
    watchers_of: _WatchersOf,
    exists: Callable[[ImageIdentity], bool],
) -> ImageView:
    """Return an image's watchers only.

    If no image with this name and id exists, the image is also searched in all other ways.
    """
    try:
        if not exists(image):
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


def _with_daemons(view: ImageView, known: MappedHere, daemons: _DaemonsOf) -> ImageView:
    """Add the rbd-mirror daemons of an image's pool if an unknown client watches the image."""
    if view.pool_id is None or not _has_unknown_watcher(observed_of(view.watchers), known):
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


def _readable_images(cluster: Cluster) -> tuple[CheckState, str, str]:
    """Read an image of each pool; return state, detail and hint of a line of `check_ceph`.

    The check fails if no pool can be read: caps may be limited to some pools on purpose.
    """
    from rbdagent.collect.ceph.first_images import (
        APPLICATIONS,
        pools_with_images,
        read_first_image,
    )

    used = cluster.monitor_or_gap(APPLICATIONS, pools_with_images)
    pools = cluster.monitor_or_gap("osd lspools", read_pools)
    for missing in (used, pools):
        if isinstance(missing, NotObserved):
            return CheckState.WARNING, missing.reason, missing.hint
    wanted = observed_of(used)
    named = sorted((name, number) for number, name in observed_of(pools) if name in wanted)
    if not named:
        return CheckState.SKIPPED, "no pool has the application rbd", ""
    answers = all_of(
        [functools.partial(read_first_image, cluster, number) for _, number in named],
        time.monotonic() + cluster.access.timeout_s + 1,
    )
    names = [name for name, _ in named]
    unread = [
        (name, answer) for name, answer in zip(names, answers, strict=True) if answer != "read"
    ]
    if not unread:
        return CheckState.OK, f"pools: {_few(names)}", ""
    error = _pool_error(cluster, *unread[0])
    others = f"; also not: {_few([name for name, _ in unread[1:]])}" if unread[1:] else ""
    state = CheckState.FAILED if len(unread) == len(named) else CheckState.WARNING
    return state, f"{error}{others}", error.hint


def _pool_error(cluster: Cluster, pool: str, answer: BaseException | str | None) -> SourceError:
    """Return why no image of a pool was read; the answer is None after the deadline."""
    subject = f"pool {pool}"
    if isinstance(answer, (cluster.rados.Error, cluster.rbd.Error)):
        return _osd_error(cluster, subject, answer, line_of(command("rbd ls", pool)))
    if isinstance(answer, BaseException):
        missing = not_observed(answer, subject)
        return SourceError(missing.reason, hint=missing.hint)
    return SourceError(
        f"{subject}: no answer in time",
        hint=_silence_cure(cluster),
    )


def _few(names: Sequence[str]) -> str:
    rest = len(names) - _MOST_POOLS
    return ", ".join(names[:_MOST_POOLS]) + (f" and {rest} more" if rest > 0 else "")


def check_ceph(
    access: CephAccess, *, note: Callable[[ClusterView], None] = lambda _: None
) -> tuple[CheckResult, ...]:
    """Check what rbdagent needs from one cluster; return one result per check.

    Args:
        access: how to query the cluster.
        note: called with the fsid and the monitors of a cluster that answers.
    """

    def line(
        sentence: str, failure: str, state: CheckState, detail: str = "", hint: str = ""
    ) -> CheckResult:
        return CheckResult(
            source="ceph", sentence=sentence, failure=failure, state=state, detail=detail, hint=hint
        )

    deadline = time.monotonic() + access.timeout_s + 1
    answers = (
        f"cluster {access.name} answers client.{access.client_id}",
        f"cluster {access.name} cannot be queried as client.{access.client_id}",
    )
    cluster = all_of([lambda: Cluster(access)], deadline)[0]
    if cluster is None:
        return (line(*answers, CheckState.FAILED, "no answer in time", reach_cure(access)),)
    if isinstance(cluster, BaseException):
        missing = not_observed(cluster, access.name)
        return (line(*answers, CheckState.FAILED, missing.reason, missing.hint),)
    results = [line(*answers, CheckState.OK, f"fsid {cluster.fsid}")]
    note(
        ClusterView(
            name=access.name,
            source=Source(state=SourceState.OBSERVED),
            fsid=cluster.fsid,
            monitors=cluster.monitor_or_gap("mon dump", read_monitors),
        )
    )
    blocked: list[BlocklistEntry | None] = []

    def read_own(values: tuple[object, ...]) -> None:
        blocked.append(cluster.entry_of_own(read_blocklist(values)))

    readers: tuple[tuple[str, str, Callable[[tuple[Any, ...]], object], CheckState], ...] = (
        ("the blocklist can be read", "osd blocklist ls", read_own, CheckState.FAILED),
        ("pools can be listed", "osd lspools", read_pools, CheckState.FAILED),
        ("the clients of the mgr can be listed", "mgr dump", read_managers, CheckState.WARNING),
    )
    for sentence, prefix, read, without in readers:
        found = cluster.monitor_or_gap(prefix, read)
        failure = sentence.replace(" can ", " cannot ")
        if isinstance(found, NotObserved):
            results.append(line(sentence, failure, without, found.reason, found.hint))
        else:
            results.append(line(sentence, failure, CheckState.OK))
    for entry in blocked:
        unlisted = "this node's client is not on the blocklist"
        listed = "this node's client is on the blocklist"
        error = None if entry is None else cluster.refused(access.name, entry)
        state = CheckState.OK if error is None else CheckState.FAILED
        hint = error.hint if error else ""
        results.append(line(unlisted, listed, state, str(error or ""), hint))
    state, detail, hint = _readable_images(cluster)
    results.append(line("images can be read", "images cannot be read", state, detail, hint))
    dumped = all_of([cluster.dump_watchers], deadline)[0]
    fast = isinstance(dumped, tuple)
    results.append(
        line(
            "all watches of an OSD can be read at once (faster for many images)",
            "",
            CheckState.OK if fast else CheckState.SKIPPED,
            "" if fast else "needs osd caps 'allow *', which rbdagent does not require",
        )
    )
    return tuple(results)
