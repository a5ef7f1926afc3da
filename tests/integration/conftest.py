"""One Ceph cluster, and one control plane, for all tests that only ask them questions."""

from __future__ import annotations

import os
import socket
import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.lab.ceph import READ_ONLY_CAPS, CephCluster
from tests.lab.controlplane import ControlPlane
from tests.lab.install import bin_dir
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


_ADDRESS = "10.77.0.1"


@pytest.fixture(scope="session")
def control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """Give a control plane in a network namespace of its own; tests make nodes of their own."""
    netns = f"rbdagent-cp-{os.getpid()}"
    state = tmp_path_factory.mktemp("control-plane")
    processes = Processes(state)
    plane = ControlPlane(processes, netns, state / "k8s", bin_dir(), _ADDRESS)
    subprocess.run(["ip", "netns", "add", netns], check=True)
    try:
        for command in (
            "link set lo up",
            "link add br0 type bridge",
            f"addr add {_ADDRESS}/24 dev br0",
            "link set br0 up",
        ):
            subprocess.run(["ip", "-n", netns, *command.split()], check=True)
        plane.start()
        plane.wait_ready()
        yield plane
    finally:
        plane.close()
        processes.stop_all(grace_s=2)
        subprocess.run(["ip", "netns", "delete", netns], check=True)
