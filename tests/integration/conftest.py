"""One Ceph cluster for all tests that only ask it questions."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import pytest

from tests.lab.ceph import READ_ONLY_CAPS, CephCluster
from tests.lab.processes import Processes

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def processes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Processes]:
    """Give what starts programs, and stop them all at the end."""
    processes = Processes(tmp_path_factory.mktemp("processes"))
    yield processes
    processes.stop_all()


def free_port() -> int:
    """Give a port of loopback that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


@pytest.fixture(scope="session")
def ceph(processes: Processes, tmp_path_factory: pytest.TempPathFactory) -> CephCluster:
    """Give a cluster with a pool and rbdagent's user; tests make images of their own."""
    cluster = CephCluster(
        processes, tmp_path_factory.mktemp("ceph"), port=free_port(), name="it-ceph"
    )
    cluster.start()
    cluster.wait_ready()
    cluster.create_pool("k8s")
    cluster.create_user("rbdagent", READ_ONLY_CAPS)
    return cluster
