"""One image: its facts from the header, its watchers and lockers. Always read-only."""

from __future__ import annotations

import contextlib
import functools
import itertools
import time
import warnings
from typing import TYPE_CHECKING, Any, Final

from rbdagent.collect.ceph.connection import is_late, name_of, osd_error, read_placement
from rbdagent.collect.ceph.daemons import mirror_daemons, tasks_of
from rbdagent.collect.ceph.open_image import open_image
from rbdagent.commands import command, line_of
from rbdagent.errors import SourceError
from rbdagent.model import (
    NOT_REQUESTED,
    ImagePresence,
    ImageView,
    LockHolder,
    MirrorSite,
    MirrorState,
    NotObserved,
    Placement,
    Watcher,
)
from rbdagent.parse.address import parse_address, parse_client
from rbdagent.parse.excerpt import shortened
from rbdagent.parse.handle import CLIENT_ADDRESS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rbdagent.collect.ceph.access import MappedHere
    from rbdagent.collect.ceph.connection import Cluster
    from rbdagent.model import EntityAddress, ImageIdentity, ImageSpec, ServiceAddress

    Handle = Any  # rados.Ioctx or rbd.Image: the bindings carry no types
    _Watches = tuple[Watcher, ...]

_SECOND_CHECK_S: Final = 0.3
"""Seconds. ceph-csi's in-use check is visible as a watcher for some 0.15 s (recording
13-kubelet-restart-while-unstage-fails)."""
_MOST_READS: Final = 3

WATCHES_ONLY: Final = NotObserved(reason="only the watches are queried where there are many images")

_NO_UNKNOWN_WATCHER: Final = NotObserved(
    reason="queried only where an unknown client watches the image"
)

_MOST_KEYS: Final = 256
_MOST_SITES: Final = 8
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


class NoPoolError(SourceError):
    """The cluster has no pool with that name, and so cannot have the image."""


class UnansweredError(SourceError):
    """The OSDs did not answer about an image in time; the monitors know which OSDs have it."""

    def __init__(self, error: SourceError, placement: Placement | NotObserved) -> None:
        """Take over the text and the hint of an error."""
        super().__init__(str(error), hint=error.hint, timed_out=error.timed_out)
        self.placement = placement


def read_image(cluster: Cluster, image: ImageIdentity, known: MappedHere | None) -> ImageView:
    """Open one image read-only and read its facts, or only its watches if ``known`` is None."""
    try:
        context = cluster.pool(image)
        if context is None:
            raise NoPoolError(f"{cluster.access.name}: no pool {image.spec.pool or image.pool_id}")
        try:
            return _facts_of(cluster, context, image, known)
        except cluster.rbd.ImageNotFound:
            # The image was deleted, renamed or moved to the trash after it was opened: each read of
            # the header then fails, and does not show which of them.
            return _facts_of(cluster, context, image, known)
    except (cluster.rbd.Error, cluster.rados.Error) as error:
        failure = image_error(cluster, image.spec, error)
        if is_late(error):
            failure = UnansweredError(failure, _placement(cluster, image))
        raise failure from error


def _placement(cluster: Cluster, image: ImageIdentity) -> Placement | NotObserved:
    """Ask the monitors which OSDs have the object that leads to an image.

    An image is opened by its name through ``rbd_id.<name>``, and by its id through the header.
    """
    spec, image_id = image.spec, image.image_id
    name = f"rbd_id.{spec.name}" if image_id is None else f"rbd_header.{image_id}"
    context = cluster.pool(image)
    pool = image.spec.pool if context is None else name_of(context.get_pool_name)
    space = {"nspace": spec.namespace} if spec.namespace else {}
    return cluster.monitor_or_gap("osd map", read_placement, pool=pool, object=name, **space)


def _facts_of(
    cluster: Cluster,
    context: Handle,
    image: ImageIdentity,
    known: MappedHere | None,
) -> ImageView:
    opened, presence, spec = open_image(cluster, context, image)
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
    watchers, transient = (watchers_now(opened), ()) if known is None else _watchers(opened, known)
    bits = int(opened.features())
    mirrored: bool | NotObserved = WATCHES_ONLY
    primary: bool | None = None
    if known is not None:
        mirrored, primary = mirroring(cluster, opened)
    daemons: tuple[ServiceAddress, ...] | NotObserved = ()
    sites: tuple[MirrorSite, ...] | NotObserved = NOT_REQUESTED
    if mirrored is True:
        daemons = mirror_daemons(cluster, context.get_pool_id(), spec.namespace)
        sites = _sites(cluster, opened)
    elif isinstance(mirrored, NotObserved):
        daemons = mirrored
    tasks: tuple[str, ...] | NotObserved = _NO_UNKNOWN_WATCHER
    is_watched = known is not None and has_unknown_watcher(watchers, known)
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
        lockers=WATCHES_ONLY if known is None else _lockers(opened, spec),
        metadata=WATCHES_ONLY if known is None else _metadata(opened, of_nodes=is_watched),
        mirrored=mirrored,
        primary=primary,
        mirror_daemons=daemons,
        mirror_sites=sites,
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


def has_unknown_watcher(watchers: tuple[Watcher, ...], known: MappedHere) -> bool:
    """Return whether one of the watchers has no observed mapping."""
    return any(watcher.address not in known.clients for watcher in watchers)


def _watchers(
    opened: Handle,
    known: MappedHere,
) -> tuple[tuple[Watcher, ...], tuple[Watcher, ...]]:
    """Return lasting and transient watchers; read again if an unknown client watches.

    A third read shows whether a client of librbd that began meanwhile stays.
    """
    reads = [watchers_now(opened)]
    if not has_unknown_watcher(reads[0], known):
        return reads[0], ()
    while len(reads) < _MOST_READS and (len(reads) == 1 or _has_new_watch(reads)):
        time.sleep(_SECOND_CHECK_S)
        reads.append(watchers_now(opened))
    return watches_in(reads)


def watchers_now(opened: Handle) -> tuple[Watcher, ...]:
    """Return the watchers of an opened image."""
    found = (
        Watcher(
            address=parse_address(entry["addr"], where="a watcher"),
            client=int(entry["id"]),
            cookie=int(entry["cookie"]),
        )
        for entry in opened.watchers_list()
    )
    return tuple(sorted(found, key=by_client))


def by_client(watcher: Watcher) -> tuple[int, int]:
    """Return the key by which watchers are sorted."""
    return watcher.client, watcher.cookie


def watches_in(reads: Sequence[_Watches]) -> tuple[_Watches, _Watches]:
    """Return the lasting and the transient watches of reads that follow each other.

    A watch that is new in the last read is a lasting one: ceph-csi maps an image right after its
    in-use check, and a migration opens it at any time. Only a watch that is gone in the last read
    may be transient. If it was one of krbd, it is a lasting one too: a mapped client that has just
    lost its watch can still write.

    Args:
        reads: the watches of one image, the first read first; at least one.

    Returns:
        The lasting watches, and the transient ones, each client of an earlier read once.
    """
    last = reads[-1]
    there = {_client(watcher) for watcher in last}
    earlier = {_client(watcher): watcher for read in reads[:-1] for watcher in read}
    gone = [watcher for client, watcher in earlier.items() if client not in there]
    lasting = (*last, *(watcher for watcher in gone if watcher.is_of_kernel))
    return lasting, tuple(watcher for watcher in gone if not watcher.is_of_kernel)


def _has_new_watch(reads: Sequence[_Watches]) -> bool:
    """Return whether the last read has a client of librbd that the read before it has not."""
    *_, before, last = reads
    known = {_client(watcher) for watcher in before}
    return any(_client(watcher) not in known for watcher in last if not watcher.is_of_kernel)


def _client(watcher: Watcher) -> tuple[EntityAddress, int]:
    return watcher.address, watcher.client


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


def mirroring(cluster: Cluster, opened: Handle) -> tuple[bool | NotObserved, bool | None]:
    """Return whether the image is mirrored and, if so, whether it is primary in this cluster."""
    try:
        info = opened.mirror_image_get_info()
    except cluster.rbd.Error as error:
        return NotObserved(reason=f"mirroring: {error}"), None
    # rbd-mirror also has the image open while its mirroring is being enabled or disabled.
    mirrored = bool(info["state"] != cluster.rbd.RBD_MIRROR_IMAGE_DISABLED)
    return mirrored, bool(info["primary"]) if mirrored else None


def _sites(cluster: Cluster, opened: Handle) -> tuple[MirrorSite, ...] | NotObserved:
    """Return what the daemon of each site reports about its copy of a mirrored image.

    The binding has the report of the local daemon beside those of the others, if there is one.
    """
    try:
        with warnings.catch_warnings():
            # rbd.pyx converts times with datetime.utcfromtimestamp (python/cpython#103857).
            warnings.simplefilter("ignore", DeprecationWarning)
            status = opened.mirror_image_get_status()
    except (cluster.rbd.Error, UnicodeDecodeError) as error:
        return NotObserved(reason=f"the status of mirroring: {error}")
    own = (_site(status, is_local=True),) if "state" in status else ()
    others = itertools.islice(status["remote_statuses"], _MOST_SITES)
    return (*own, *(_site(site, is_local=False) for site in others))


def _site(status: dict[str, Any], *, is_local: bool) -> MirrorSite:
    states = tuple(MirrorState)
    number, updated = int(status["state"]), status.get("last_update")
    return MirrorSite(
        is_local=is_local,
        state=states[number] if number < len(states) else MirrorState.UNKNOWN,
        description=shortened(str(status["description"])),
        is_up=bool(status["up"]),
        last_update=None if updated is None else f"{updated:%Y-%m-%dT%H:%M:%SZ}",
    )


def _is_clone(cluster: Cluster, opened: Handle) -> bool:
    """Return whether the image has a parent: then Ceph's manager may be flattening it."""
    try:
        opened.get_parent_image_spec()
    except cluster.rbd.Error:
        # Also if the image has no parent: the answer only decides what else is asked.
        return False
    return True


def image_error(cluster: Cluster, spec: ImageSpec, error: Exception) -> SourceError:
    """Return the error that OSDs did not answer about an image."""
    return osd_error(cluster, str(spec), error, line_of(command("rbd info", str(spec))))
