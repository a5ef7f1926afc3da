"""The Ceph daemons that work on an image, read from objects of its pool. Always read-only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Struct

from rbdagent.model import HolderKind, NotObserved, ServiceAddress

if TYPE_CHECKING:
    from typing import Any

    from rbdagent.collect.ceph.connection import Cluster
    from rbdagent.collect.ceph.list_watchers import Watches
    from rbdagent.model import EntityAddress

MIRRORING: Final = "rbd_mirroring"
"""The object that rbd-mirror daemons watch, in each pool and namespace."""
_LEADER: Final = "rbd_mirror_leader"
_TASKS: Final = "rbd_task"
_MOST_TASKS: Final = 1000


def mirror_daemons(
    cluster: Cluster, pool_id: int, namespace: str
) -> tuple[ServiceAddress, ...] | NotObserved:
    """Return the clients that watch ``rbd_mirroring`` of a pool: only rbd-mirror does.

    An rbd-mirror daemon watches this object and the headers of the pool's images with one client,
    in its own cluster and in the peer's (tools/rbd_mirror/PoolWatcher.cc). In its own cluster it
    also watches ``rbd_mirror_leader``; a pool has one such object for all its namespaces
    (LeaderWatcher.cc). Measured with Ceph 16.2, 18.2 and 20.2. The service map does not help: it
    names another client of the daemon, and no daemons of a peer.
    """
    watches = cluster.watches
    if watches is None:
        return NotObserved(reason="this librados cannot list the watches of an object")
    try:
        clients = _clients(watches, pool_id, namespace, MIRRORING)
        own = _clients(watches, pool_id, "", _LEADER) if clients else frozenset()
    except OSError as error:
        return NotObserved(reason=f"{MIRRORING}: {error}")
    return tuple(
        ServiceAddress(
            kind=HolderKind.MIRROR,
            name="",
            address=address,
            client=client,
            of_peer=(client, address) not in own,
        )
        for client, address in sorted(clients)
    )


def _clients(
    watches: Watches, pool_id: int, namespace: str, name: str
) -> frozenset[tuple[int, EntityAddress]]:
    """Return the clients that watch an object; empty if it does not exist."""
    try:
        found = watches.of(pool_id, namespace, name)
    except FileNotFoundError:
        return frozenset()
    return frozenset((watcher.client, watcher.address) for watcher in found)


class _Refs(Struct, frozen=True):
    """The action and image of a task; there is no id if the task refers only to a name."""

    action: str
    image_id: str = ""


class _Task(Struct, frozen=True):
    """An entry of ``rbd_task``."""

    refs: _Refs


def tasks_of(
    cluster: Cluster,
    context: Any,  # noqa: ANN401 - rados.Ioctx
    image_id: str,
) -> tuple[str, ...] | NotObserved:
    """Return the pending tasks of the mgr for an image: ``flatten``, ``trash remove`` and others.

    The queue of ``rbd task add`` is in the omap of ``rbd_task``, an object of the image's pool and
    namespace, the oldest task first (pybind/mgr/rbd_support/task.py). A user with permission to
    read images may read it; ``rbd task list`` needs mgr caps. Measured with Ceph 16.2 and 20.2.
    """
    return tasks_in(queued_tasks(cluster, context), image_id)


Tasks = tuple[tuple[tuple[str, str], ...], NotObserved | None] | NotObserved
"""Actions with the ids of their images, and why others may be missing."""


def queued_tasks(cluster: Cluster, context: Any) -> Tasks:  # noqa: ANN401 - rados.Ioctx
    """Return the queue of the mgr in a pool and namespace."""
    try:
        values = _queue(cluster, context)
        refs = [msgspec.json.decode(value, type=_Task).refs for value in values]
    except (cluster.rados.Error, msgspec.DecodeError, RecursionError) as error:
        return NotObserved(reason=f"{_TASKS}: {error}")
    rest = NotObserved(
        reason=f"{_TASKS} has more than {_MOST_TASKS} tasks, and only these were read"
    )
    found = tuple((task.action, task.image_id) for task in refs)
    return found, rest if len(values) >= _MOST_TASKS else None


def tasks_in(queue: Tasks, image_id: str) -> tuple[str, ...] | NotObserved:
    """Return the tasks for an image in a queue."""
    if isinstance(queue, NotObserved):
        return queue
    tasks, rest = queue
    found = tuple(action for action, of_image in tasks if of_image == image_id)
    return rest if rest is not None and not found else found


def _queue(cluster: Cluster, context: Any) -> list[bytes]:  # noqa: ANN401 - rados.Ioctx
    with cluster.rados.ReadOpCtx() as operation:
        values, _ = context.get_omap_vals(operation, "", "", _MOST_TASKS)
        try:
            context.operate_read_op(operation, _TASKS)
        except cluster.rados.ObjectNotFound:
            return []
        return [value for _, value in values]
