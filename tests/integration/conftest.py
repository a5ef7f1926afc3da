"""One Ceph cluster and one control plane, shared by all tests that only query them."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

import pytest

from tests.integration.building import built, built_deb
from tests.lab.ceph import READ_ONLY_CAPS, CephCluster
from tests.lab.controlplane import ControlPlane
from tests.lab.install import bin_dir
from tests.lab.network import Network, free_port
from tests.lab.parts import chosen_parts, own_suite
from tests.lab.processes import Processes

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(scope="session")
def processes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Processes]:
    """Yield the starter of programs; stop all of them at the end."""
    processes = Processes(tmp_path_factory.mktemp("processes"))
    yield processes
    processes.stop_all()


@pytest.fixture(scope="session")
def ceph(processes: Processes, tmp_path_factory: pytest.TempPathFactory) -> CephCluster:
    """Return a cluster with a pool and the user of rbdagent; each test makes its images."""
    cluster = CephCluster(
        processes,
        tmp_path_factory.mktemp("ceph"),
        port=free_port(),
        msgr2_port=free_port(),
        name="it-ceph",
    )
    cluster.start()
    cluster.wait_ready()
    cluster.create_pool("k8s")
    cluster.create_user("rbdagent", READ_ONLY_CAPS)
    return cluster


@contextlib.contextmanager
def control_plane_alone(name: str, state: Path) -> Iterator[tuple[ControlPlane, Processes]]:
    """Run a control plane in a separate network namespace; yield it and its processes."""
    network = Network(f"{name}-{os.getpid()}")
    processes = Processes(state)
    plane = ControlPlane(processes, network.netns, state / "k8s", bin_dir())
    network.create()
    try:
        plane.start()
        plane.wait_ready()
        yield plane, processes
    finally:
        plane.close()
        processes.stop_all(grace_s=2)
        network.remove()


@pytest.fixture(scope="session")
def control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """Yield a control plane; each test makes its nodes."""
    with control_plane_alone("rbdagent-cp", tmp_path_factory.mktemp("control-plane")) as (plane, _):
        yield plane


@pytest.fixture(scope="session")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(tmp_path_factory.mktemp("dist"), "sdist", "wheel")


@pytest.fixture(scope="session")
def wheel(dist: Path) -> Path:
    (found,) = dist.glob("*.whl")
    return found


@pytest.fixture(scope="session")
def deb(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built_deb(wheel, tmp_path_factory.mktemp("deb"), own_suite())


@pytest.fixture(scope="session")
def deb_of_nodes(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the package for the Debian of the lab's nodes: it fits one minor version of Python."""
    return built_deb(wheel, tmp_path_factory.mktemp("deb-of-nodes"), chosen_parts().debian)
