"""Watchers and the blocklist if monitors speak only one messenger or have IPv6 addresses."""

from __future__ import annotations

import contextlib
import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import pytest
from msgspec.structs import replace

from rbdagent.collect.node.networks import observe_networks
from rbdagent.collect.node.observer import observe_node
from rbdagent.collect.node.roots import NodeRoots
from rbdagent.commands import line_of
from rbdagent.correlate.ceph_peers import network_question
from rbdagent.correlate.holders import entry_hits, same_client
from rbdagent.model import SourceState, observed_of
from rbdagent.parse.address import parse_address, parse_address_vector
from rbdagent.report.snapshot import dump_snapshot
from tests.integration.clients import access, observe_ceph, said, start_client, wanted
from tests.lab.ceph import READ_ONLY_CAPS, CephCluster
from tests.lab.install import CHECKOUT
from tests.lab.network import ADDRESS, Network, free_port
from tests.lab.processes import Processes, patience, wait_until
from tests.support.rule_rows.diagnose import EXISTS
from tests.support.snapshots import SPEC, diagnosis_of, unmapped, waiting_pod

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rbdagent.model import Finding, Snapshot
    from tests.lab.processes import Process

_NETWORKS: Final[dict[str, tuple[str, tuple[str, ...]]]] = {
    "messenger v1 alone": ("127.0.0.1", ("v1",)),
    "msgr2 alone": ("127.0.0.1", ("v2",)),
    "IPv6": ("::1", ("v2", "v1")),
}


@pytest.fixture(scope="module", params=_NETWORKS)
def cluster(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[CephCluster]:
    """Run a cluster whose monitor can be reached in only one way."""
    address, speaks = _NETWORKS[request.param]
    processes = Processes(tmp_path_factory.mktemp("processes"))
    made = CephCluster(
        processes,
        tmp_path_factory.mktemp("ceph"),
        address=address,
        port=free_port(),
        msgr2_port=free_port(),
        name="networks",
        speaks=speaks,
    )
    try:
        made.start()
        made.wait_ready()
        made.create_pool("k8s")
        made.create_user("rbdagent", READ_ONLY_CAPS)
        yield made
    finally:
        processes.stop_all()


def test_a_watcher_matches_its_client_by_address_and_nonce(cluster: CephCluster) -> None:
    cluster.create_image("k8s/held")
    client = start_client(cluster, "k8s/held")
    try:
        addresses, number = said(client)
        view, source = observe_ceph([access(cluster)], [wanted("held")], deadline_s=20 * patience())
    finally:
        client.kill()
        client.communicate()
    assert source.state is SourceState.OBSERVED
    assert view is not None
    (image,) = view.clusters[0].images
    (watcher,) = observed_of(image.watchers)
    assert watcher.client == number
    assert same_client(watcher.address, parse_address_vector(addresses, where="the client"))


def test_a_blocklist_range_matches_a_client_inside_it(cluster: CephCluster) -> None:
    """NetworkFence of csi-addons adds such a range; no client of this test is in its network."""
    is_ipv6 = cluster.monitor.startswith("[")
    network, inside = ("fd00:7::/64", "[fd00:7::9]") if is_ipv6 else ("10.7.0.0/24", "10.7.0.9")
    cluster.ceph("osd", "blocklist", "range", "add", network, "3600")
    view, _ = observe_ceph([access(cluster)], [], deadline_s=20 * patience())
    assert view is not None
    (entry,) = observed_of(view.clusters[0].blocklist)
    assert str(entry) == network
    assert entry_hits(entry, parse_address(f"{inside}:0/77", where="a client"))


# --------------------------------------------------------------------------------------------------
# Networks that do not reach Ceph
# --------------------------------------------------------------------------------------------------

_CLIENT: Final = "10.77.0.9"


class Node(NamedTuple):
    """A cluster in a network, and a machine on it that has the network namespace of a client."""

    ceph: CephCluster
    network: Network
    machine: str
    processes: Processes

    def ip(self, *words: str, of: str = "") -> None:
        """Change the addresses or routes of the machine, or of Ceph's side."""
        subprocess.run(["ip", "-n", of or self.machine, *words], check=True)

    @contextlib.contextmanager
    def mapping(self, monitor: str = "") -> Iterator[Process]:
        """Map an image: rbd asks the monitors for its options, and waits for them."""
        self.processes.start(
            "map",
            [
                "/usr/bin/rbd", "--id", "admin", "-m", monitor or self.ceph.monitor,
                "-c", self.ceph.conf, "--keyring", self.ceph.admin_keyring,
                "map", str(SPEC), "--device-type", "krbd", "--options", "noudev",
            ],
            netns=self.machine,
        )  # fmt: skip
        process = self.processes.get("map")
        assert process is not None
        try:
            yield process
        finally:
            self.processes.stop("map")


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """Run a cluster in a separate network, and a machine beside it."""
    processes = Processes(tmp_path_factory.mktemp("processes"))
    network = Network(f"rbdnet-{os.getpid()}")
    network.create()
    try:
        made = CephCluster(
            processes, tmp_path_factory.mktemp("ceph"), address=ADDRESS, netns=network.netns
        )
        made.start()
        made.wait_ready()
        yield Node(made, network, network.add_machine(_CLIENT), processes)
    finally:
        processes.stop_all()
        network.remove()


def diagnosed(node: Node) -> Snapshot:
    """Observe this machine's processes, as the node on which a pod waits for the map."""
    roots = NodeRoots(procfs=Path("/proc"), sysfs=Path("/sys"), host_root=Path("/"))
    view, _ = observe_node(roots, node_name="worker-1")
    assert view is not None
    flights = tuple(
        flight
        for flight in observed_of(view.in_flight)
        if flight.program == "rbd" and ADDRESS in flight.process.command
    )
    seen = unmapped(
        on_node={"in_flight": flights},
        in_kube={"pods": (waiting_pod(node="worker-1"),), "events": (EXISTS,)},
    )
    assert seen.node is not None
    networks = observe_networks(roots, seen.node, network_question(seen), float("inf"))
    return replace(seen, node=replace(seen.node, networks=networks))


def cut_off(node: Node) -> dict[str, Finding]:
    """Return the findings about a map that waits; none before rbd runs, and after its end."""
    seen = diagnosed(node)
    if seen.node is None or not observed_of(seen.node.in_flight):
        return {}
    found = diagnosis_of(seen).findings
    return {one.code: one for one in found if one.code in {"RBD203", "RBD212", "RBD213"}}


def record(name: str, seen: Snapshot) -> None:
    """Write a snapshot to the fixtures, with RBDAGENT_RECORD=1; see tests/unit/test_networks.py."""
    if os.environ.get("RBDAGENT_RECORD"):
        (CHECKOUT / "tests" / "fixtures" / "networks" / f"{name}.json").write_text(
            dump_snapshot(seen)
        )


def typed(finding: Finding, word: str) -> subprocess.CompletedProcess[str]:
    """Run a printed command in a shell."""
    line = next(line_of(command) for command in finding.commands if word in command.argv)
    return subprocess.run(
        ["bash", "-c", line], capture_output=True, text=True, check=False, timeout=60
    )


def test_missing_route_is_named_until_it_is_added(node: Node) -> None:
    node.ip("route", "flush", "table", "main")
    with node.mapping() as process:
        found = wait_until(lambda: cut_off(node) or None, timeout_s=60, what="the map to wait")
        assert set(found) == {"RBD212"}
        record("missing-route", diagnosed(node))
        message = found["RBD212"].message
        assert f"process {process.pid} (rbd) on worker-1 has no route to" in message
        assert node.ceph.monitor in message
        shown = typed(found["RBD212"], "route")
        assert "Network is unreachable" in shown.stderr

        node.ip("route", "add", "10.77.0.0/16", "dev", "eth0")
        assert ADDRESS in typed(found["RBD212"], "route").stdout
        wait_until(lambda: "RBD212" not in cut_off(node), timeout_s=60, what="the route to count")
        wait_until(lambda: not process.alive(), timeout_s=60, what="rbd to reach the monitor")


@pytest.mark.parametrize("kind", ["blackhole", "unreachable", "prohibit"])
def test_route_that_discards_packets_is_named(node: Node, kind: str) -> None:
    node.ip("route", "add", kind, ADDRESS)
    try:
        with node.mapping():
            found = wait_until(lambda: cut_off(node) or None, timeout_s=60, what="the map to wait")
    finally:
        node.ip("route", "del", kind, ADDRESS)
    assert set(found) == {"RBD212"}
    assert "discards all packets" in found["RBD212"].message


def test_dropped_packets_are_told_from_a_missing_route(node: Node) -> None:
    """The answers of Ceph are dropped on its side, as a firewall drops them."""
    dropped = ("route", "add", "blackhole", _CLIENT)
    node.ip(*dropped, of=node.network.netns)
    with node.mapping() as process:
        found = wait_until(
            lambda: cut_off(node).get("RBD213"), timeout_s=60, what="attempts without an answer"
        )
        record("dropped-packets", diagnosed(node))
        assert "get no answer" in found.message
        assert "SYN-SENT" in typed(found, "ss").stdout
        assert ADDRESS in typed(found, "route").stdout

        node.ip("route", "del", "blackhole", _CLIENT, of=node.network.netns)
        wait_until(lambda: "RBD213" not in cut_off(node), timeout_s=60, what="an answer")
        wait_until(lambda: not process.alive(), timeout_s=60, what="rbd to reach the monitor")


def test_refused_connection_is_no_dropped_one(node: Node) -> None:
    """Nothing listens on the port: each attempt ends at once, and none is left open."""
    with node.mapping(f"{ADDRESS}:{free_port()}") as process:
        found = wait_until(lambda: cut_off(node) or None, timeout_s=60, what="the map to wait")
        assert process.alive()
    assert set(found) == {"RBD203"}
