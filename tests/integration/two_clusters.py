"""Two Ceph clusters with a manager each, for tests of rbd-mirror."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Final, NamedTuple

from tests.lab.ceph import READ_ONLY_CAPS, CephCluster
from tests.lab.network import free_port
from tests.lab.processes import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.lab.processes import Processes

_READY_S: Final = 60.0
_CEPH: Final = "20.2"
"""The mgr of Debian 13 loads no module: python3-bcrypt refuses its interpreters (PyO3 #576)."""


class Pair(NamedTuple):
    """Two clusters, each with a mgr and a pool ``k8s``."""

    primary: CephCluster
    secondary: CephCluster


def two_clusters(
    processes: Processes, directory: Callable[[str], Path], *, prefix: str = ""
) -> Pair:
    """Start two clusters and wait until both have a manager.

    Args:
        processes: stops the daemons after the tests.
        directory: makes a directory for a cluster of that name.
        prefix: of the names of the clusters: each daemon of a test run has its own name.
    """
    made = Pair(
        *(
            CephCluster(
                processes,
                directory(f"{prefix}{name}"),
                port=free_port(),
                msgr2_port=free_port(),
                name=f"{prefix}{name}",
                ceph=_CEPH,
            )
            for name in Pair._fields
        )
    )
    for cluster in made:
        cluster.start()
    for cluster in made:
        cluster.wait_ready()
        cluster.start_manager()
        cluster.create_pool("k8s")
        cluster.create_user("rbdagent", READ_ONLY_CAPS)
    for cluster in made:
        wait_until(
            functools.partial(_has_manager, cluster), timeout_s=_READY_S, what=f"{cluster.name}-mgr"
        )
    return made


def _has_manager(cluster: CephCluster) -> bool:
    return bool(cluster.ceph_json("mgr", "dump")["available"])
