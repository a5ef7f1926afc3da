"""Whether a CSI driver answers on its node, tested with real unix sockets below a kubelet root."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from rbdagent.collect.node.kubelet_dirs import observe_kubelet
from rbdagent.model import KubeletView, NotObserved, PluginSocket
from tests.support.recordings import bound_socket

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator
    from pathlib import Path

ROOT: Final = "/var/lib/kubelet"
DRIVER: Final = "rbd.csi.ceph.com"
OWN: Final = f"{ROOT}/plugins/{DRIVER}/csi.sock"
REGISTRAR: Final = f"{ROOT}/plugins_registry/{DRIVER}-reg.sock"


class Node:
    """A node's file system with sockets on it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.open: list[socket.socket] = []
        self.table("")

    def table(self, rows: str) -> None:
        """Write /proc/net/unix."""
        path = self.root / "proc/1/net/unix"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"Num RefCount Protocol Flags Type St Inode Path\n{rows}")

    def listens(self, path: str) -> None:
        """Listen on a socket that was bound under the name it has in a container."""
        inside = self.root / "csi" / path.rpartition("/")[2]
        self.open.append(bound_socket(inside))
        self.open[-1].listen()
        self._at(path).parent.mkdir(parents=True, exist_ok=True)
        inside.rename(self._at(path))

    def died(self, path: str) -> None:
        """Create the file of a socket whose process has ended."""
        bound_socket(self._at(path)).close()

    def file(self, path: str) -> None:
        """Create a file to which no connection is possible."""
        self._at(path).parent.mkdir(parents=True, exist_ok=True)
        self._at(path).touch()

    def driver(self) -> PluginSocket:
        """Return the observed socket of the only driver."""
        seen = self.observed().sockets
        assert not isinstance(seen, NotObserved)
        return seen[0]

    def observed(self) -> KubeletView:
        """Observe the directories of kubelet."""
        return observe_kubelet(self.root, self.root / "proc", roots=(ROOT,), process=None)

    def _at(self, path: str) -> Path:
        return self.root / path.lstrip("/")


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    made = Node(tmp_path / ("a-long-name-" * 10))
    yield made
    for listener in made.open:
        listener.close()


def test_a_dead_driver_is_seen_while_its_registrar_runs(node: Node) -> None:
    """One container of the plugin's pod restarts in a loop: the other one keeps listening."""
    node.died(OWN)
    node.listens(REGISTRAR)
    assert node.driver() == PluginSocket(driver=DRIVER, path=OWN, listening=False)


def test_driver_answers_under_any_socket_name_in_its_container(node: Node) -> None:
    """ceph-csi binds /csi/csi.sock: /proc/net/unix has no other name."""
    node.table("0: 00000002 00000000 00010000 0001 01 1 /csi/csi.sock\n")
    node.listens(OWN)
    node.listens(REGISTRAR)
    assert node.driver() == PluginSocket(driver=DRIVER, path=OWN, listening=True)


def test_a_driver_answers_while_its_registrar_restarts(node: Node) -> None:
    node.listens(OWN)
    node.died(REGISTRAR)
    assert node.driver().listening is True


def test_endpoint_at_another_path_is_not_observed(node: Node) -> None:
    node.listens(REGISTRAR)
    seen = node.driver().listening
    assert isinstance(seen, NotObserved)
    assert OWN in seen.reason


def test_a_driver_without_socket_is_down_with_its_registrar(node: Node) -> None:
    node.died(REGISTRAR)
    assert node.driver() == PluginSocket(driver=DRIVER, path=REGISTRAR, listening=False)


@pytest.mark.parametrize("name", [OWN, OWN.replace("/csi.sock", "//csi.sock")])
def test_kernel_table_shows_a_listener_without_a_connection(node: Node, name: str) -> None:
    node.file(OWN)
    node.listens(REGISTRAR)
    assert isinstance(node.driver().listening, NotObserved)
    node.table(f"0: 00000002 00000000 00010000 0001 01 1 {name}\n")
    assert node.driver().listening is True
