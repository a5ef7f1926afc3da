"""The images of whole pools: the directory and the trash of each RADOS namespace. Read-only.

A pool may have thousands of images, of several Kubernetes clusters and of other programs. Only
their names and ids are listed here; ``image_facts.py`` reads the facts of those that matter. Images
of format 1 are not listed: no release that rbdagent supports makes them.
"""

from __future__ import annotations

import functools
import itertools
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from rbdagent.collect.ceph.check import APPLICATIONS, pools_with_images
from rbdagent.collect.ceph.connection import osd_error, read_pools, silence_cure
from rbdagent.collect.ceph.omap import omap_entries
from rbdagent.collect.ceph.open_image import BY_ID, DIRECTORY, TRASH
from rbdagent.collect.failure import not_observed
from rbdagent.collect.parallel import all_of
from rbdagent.commands import command, line_of
from rbdagent.errors import SourceError
from rbdagent.model import Gap, ImageIdentity, ImageSpec, NotObserved
from rbdagent.model.inventory import ListedImage, ListedPool
from rbdagent.parse.rbd_objects import name_in_directory
from rbdagent.parse.trash import trash_entry

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rbdagent.collect.ceph.connection import Cluster
    from rbdagent.model.inventory import PoolRequest

    Handle = Any  # rados.Ioctx: the bindings carry no types

MOST_IMAGES: Final = 20_000
"""Maximum of images, and of entries of the trash, that are listed in one namespace of a pool."""
_MOST_NAMESPACES: Final = 256
_DEFAULT_NAMESPACE: Final = ("",)


def list_pools(
    cluster: Cluster, requests: Sequence[PoolRequest], deadline: float
) -> tuple[tuple[ListedPool, ...], tuple[Gap, ...], tuple[str, ...] | NotObserved]:
    """Return the images of the requested pools; without a request, of all pools for RBD.

    Args:
        cluster: the connection.
        requests: the pools that the user named.
        deadline: of the monotonic clock.

    Returns:
        The pools that exist, what else was not observed, and the names of all pools.
    """
    known = cluster.monitor_or_gap("osd lspools", read_pools)
    if isinstance(known, NotObserved):
        return (), (_gap(f"the pools of {cluster.access.name}", known),), known
    names = tuple(name for _, name in known)
    pools = _requested(known, requests) if requests else _of_rbd(cluster, known)
    if isinstance(pools, NotObserved):
        return (), (_gap(f"the pools for RBD of {cluster.access.name}", pools),), names
    calls = [functools.partial(_namespaces, cluster, pool, wanted) for pool, wanted in pools]
    listed, gaps = [], []
    for (pool, _), answer in zip(pools, all_of(calls, deadline), strict=True):
        namespaces, gap = _namespaces_or_gap(cluster, pool[1], answer)
        listed += [(pool, namespace) for namespace in namespaces]
        gaps += gap
    found = all_of(
        [functools.partial(_list_pool, cluster, *pool, namespace) for pool, namespace in listed],
        deadline,
    )
    answers = zip(listed, found, strict=True)
    return (
        tuple(
            answer if isinstance(answer, ListedPool) else _unlisted(cluster, *pool, where, answer)
            for (pool, where), answer in answers
        ),
        tuple(gaps),
        names,
    )


_Pool = tuple[int, str]
_Wanted = list[tuple[_Pool, tuple[str, ...] | None]]
"""Pools, each with the namespaces that the user named; None for all of them."""


def _requested(known: Iterable[_Pool], requests: Sequence[PoolRequest]) -> _Wanted:
    wanted: _Wanted = []
    for pool in known:
        named = [request.namespace for request in requests if request.pool == pool[1]]
        if not named:
            continue
        namespaces = tuple(dict.fromkeys(name for name in named if name is not None))
        wanted.append((pool, None if None in named else namespaces))
    return wanted


def _of_rbd(cluster: Cluster, known: Iterable[_Pool]) -> _Wanted | NotObserved:
    used = cluster.monitor_or_gap(APPLICATIONS, pools_with_images)
    if isinstance(used, NotObserved):
        return used
    return [(pool, None) for pool in known if pool[1] in used]


def _namespaces(cluster: Cluster, pool: _Pool, wanted: tuple[str, ...] | None) -> tuple[str, ...]:
    if wanted is not None:
        return wanted
    context = _context(cluster, *pool, "")
    found = itertools.islice(cluster.rbd.RBD().namespace_list(context), _MOST_NAMESPACES + 1)
    return (*_DEFAULT_NAMESPACE, *sorted(found))


def _namespaces_or_gap(
    cluster: Cluster, pool: str, answer: tuple[str, ...] | BaseException | None
) -> tuple[tuple[str, ...], list[Gap]]:
    """Return the namespaces to list, and what was left out; only the default one after an error."""
    fact = f"the RADOS namespaces of pool {pool}"
    if not isinstance(answer, tuple):
        return _DEFAULT_NAMESPACE, [
            _gap(fact, _missing(cluster, fact, answer, "rbd namespace ls", pool))
        ]
    if len(answer) > _MOST_NAMESPACES:
        reason = f"only the first {_MOST_NAMESPACES} are listed"
        hint = "name one: POOL/NAMESPACE"
        return answer[:_MOST_NAMESPACES], [Gap(fact=fact, reason=reason, hint=hint)]
    return answer, []


def _list_pool(cluster: Cluster, pool_id: int, pool: str, namespace: str) -> ListedPool:
    """Return the images of one namespace.

    Raises:
        Error: of the binding; the pool or its directory cannot be read.
    """
    context = _context(cluster, pool_id, pool, namespace)
    where = ListedPool(
        cluster=cluster.access.name,
        fsid=cluster.fsid,
        pool=pool,
        pool_id=pool_id,
        namespace=namespace,
    )
    listed = _entries(cluster, context, DIRECTORY)
    images = {
        image_id: _listed(where, image_id, name)
        for image_id, value in listed
        if (name := name_in_directory(value)) is not None
    }
    gaps = _left_out(f"images of {where}", listed, images)
    try:
        thrown = _entries(cluster, context, TRASH)
    except cluster.rados.Error as error:
        missing = _missing(cluster, f"the trash of {where}", error, "rbd trash ls", str(where))
        gaps = (*gaps, _gap(f"the trash of {where}", missing))
    else:
        trash = {
            image_id: _listed(where, image_id, entry.name, trash=entry)
            for image_id, value in thrown
            if (entry := trash_entry(value)) is not None
        }
        gaps = (*gaps, *_left_out(f"images in the trash of {where}", thrown, trash))
        # An image that was moved to the trash between the two reads is in both.
        images |= trash
    found = sorted(images.values(), key=lambda image: (image.spec, image.image_id))
    return replace(where, images=tuple(found), gaps=gaps)


def _entries(cluster: Cluster, context: Handle, name: str) -> list[tuple[str, bytes]]:
    """Return ids with values: entries of the directory or of the trash, one more than the limit."""
    found = omap_entries(cluster, context, name, BY_ID, most_pages=MOST_IMAGES // 1000 + 1)
    some = itertools.islice(found, MOST_IMAGES + 1)
    return [(key.removeprefix(BY_ID), value) for key, value in some]


def _left_out(
    fact: str, entries: Sequence[tuple[str, bytes]], images: dict[str, ListedImage]
) -> tuple[Gap, ...]:
    """Return what is missing in a list: the rest after the limit, and malformed entries."""
    gaps = []
    if len(entries) > MOST_IMAGES:
        reason = f"only the first {MOST_IMAGES} are listed, in order of their ids"
        gaps.append(Gap(fact=fact, reason=reason))
    if malformed := len(entries) - len(images):
        gaps.append(Gap(fact=fact, reason=f"{malformed} entries have an unknown form"))
    return tuple(gaps)


def _listed(where: ListedPool, image_id: str, name: str, **trash: Any) -> ListedImage:  # noqa: ANN401
    spec = ImageSpec(pool=where.pool, namespace=where.namespace, name=name)
    return ListedImage(
        spec=spec,
        image_id=image_id,
        fsid=where.fsid,
        cluster=where.cluster,
        pool_id=where.pool_id,
        **trash,
    )


def _context(cluster: Cluster, pool_id: int, pool: str, namespace: str) -> Handle:
    """Open a namespace of a pool.

    Raises:
        SourceError: the pool was deleted, or renamed, after the pools were listed.
    """
    spec = ImageSpec(pool=pool, namespace=namespace, name="")
    context = cluster.pool(ImageIdentity(spec=spec, fsid=None, pool_id=pool_id))
    if context is None:
        raise SourceError(f"pool {pool}: it was deleted or renamed meanwhile")
    return context


def _unlisted(
    cluster: Cluster, pool_id: int, pool: str, namespace: str, answer: BaseException | None
) -> ListedPool:
    """Return a namespace whose images were not listed."""
    where = ListedPool(
        cluster=cluster.access.name,
        fsid=cluster.fsid,
        pool=pool,
        pool_id=pool_id,
        namespace=namespace,
    )
    missing = _missing(cluster, f"pool {where}", answer, "rbd ls", str(where))
    return replace(where, images=missing, gaps=(_gap(f"the images of {where}", missing),))


def _missing(
    cluster: Cluster, subject: str, answer: BaseException | None, begin: str, pool: str
) -> NotObserved:
    """Return why something of a pool was not read; the answer is None after the deadline.

    Args:
        cluster: the connection.
        subject: what was not read.
        answer: the error.
        begin: the beginning of a command that may show the cause.
        pool: its argument.
    """
    if answer is None:
        return NotObserved(
            reason=f"{subject}: no answer in time", hint=silence_cure(cluster), timed_out=True
        )
    if isinstance(answer, (cluster.rados.Error, cluster.rbd.Error)):
        answer = osd_error(cluster, subject, answer, line_of(command(begin, pool)))
    return not_observed(answer, subject)


def _gap(fact: str, missing: NotObserved) -> Gap:
    return Gap(fact=fact, reason=missing.reason, hint=missing.hint)
