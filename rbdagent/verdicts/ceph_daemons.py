"""Ceph's own daemons among the holders: known for certain, supposed, or not observed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rbdagent.correlate.holders import cluster_with
from rbdagent.model import HolderKind, observed_of, unobserved

if TYPE_CHECKING:
    from rbdagent.model import Holder, ServiceAddress, Snapshot, Volume

_MGR: Final = "ceph-mgr"
_MIRROR: Final = "an rbd-mirror daemon"


def daemon_name(daemon: ServiceAddress, volume: Volume) -> str:
    """Return the name of a daemon, and what it does with the image."""
    if daemon.kind == HolderKind.MIRROR:
        return f"{_MIRROR} of {'a peer' if daemon.of_peer else 'this'} cluster"
    return f"{_MGR} {daemon.name} ({_tasks(volume) or 'tasks and schedules of RBD'})"


def supposed(holder: Holder, volume: Volume) -> str:
    """Return which daemon a librbd client probably is, and why; "" if no evidence shows it."""
    match holder.probable_kind:
        case HolderKind.MGR:
            return f"probably {_MGR}: it has a task of the image ({_tasks(volume)})"
        case HolderKind.MIRROR:
            return f"probably {_MIRROR}: the image is mirrored, and no other librbd client watches"
        case _:
            return ""


def _tasks(volume: Volume) -> str:
    view = volume.image_view
    return "" if view is None else ", ".join(sorted(set(observed_of(view.tasks))))


def not_excluded(volume: Volume, snapshot: Snapshot) -> tuple[str, ...]:
    """Return which daemons a librbd client may be, because their clients were not observed."""
    view = volume.image_view
    cluster = cluster_with(view.fsid if view is not None else None, snapshot)
    clients = [] if cluster is None else [(_MGR, cluster.services)]
    if view is not None and view.mirrored is not False:
        clients.append((_MIRROR, view.mirror_daemons))
    return tuple(
        f"whether it is {name} was not observed: {found.reason}"
        for name, found in unobserved(clients)
    )
