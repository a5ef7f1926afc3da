"""Network namespaces: what their files show, and which network does not reach which daemon."""

from __future__ import annotations

import ipaddress
import os
from typing import TYPE_CHECKING, Any, Final

import pytest
from msgspec.structs import replace

from rbdagent.collect.node.networks import observe_networks
from rbdagent.collect.node.roots import NodeRoots
from rbdagent.commands import lines_of
from rbdagent.correlate.ceph_peers import NetworkQuestion, WaitingClient, network_question
from rbdagent.errors import ParseError
from rbdagent.model import (
    ConnectionTo,
    NodeNetworks,
    NotObserved,
    ProcessNetwork,
    ProcessRef,
    RouteKind,
    RouteTo,
    ServiceAddress,
    Snapshot,
)
from rbdagent.parse.network_namespace import (
    local_addresses,
    parse_fib_trie,
    parse_ipv4_interfaces,
    parse_ipv6_routes,
    parse_osd_addresses,
    parse_tcp,
    peers_in,
    pinned_namespaces,
    way_to,
)
from rbdagent.report.snapshot import load_snapshot
from tests.lab.install import CHECKOUT
from tests.support import network_files
from tests.support.rows import each_row
from tests.support.rule_rows.diagnose import (
    CUT_OFF,
    EXISTS,
    GONE,
    in_networks,
    network_of_map,
    osd_lost,
    unanswered,
)
from tests.support.snapshots import ADDRESS, diagnosis_of, waiting_pod, world

if TYPE_CHECKING:
    from pathlib import Path

# --------------------------------------------------------------------------------------------------
# Files
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("address", "kind", "interface"),
    [
        ("10.9.0.7", RouteKind.FORWARDED, "eth0"),
        ("10.13.0.1", RouteKind.FORWARDED, "eth0"),
        ("10.10.0.1", RouteKind.REJECTED, ""),
        ("10.11.0.1", RouteKind.REJECTED, ""),
        ("10.12.0.1", RouteKind.REJECTED, ""),
        ("10.14.0.1", RouteKind.FORWARDED, ""),
        ("10.99.0.1", RouteKind.NONE, ""),
        ("fd00:1::9", RouteKind.FORWARDED, "eth0"),
        ("fd00:2::9", RouteKind.REJECTED, ""),
        ("fd00:9::9", RouteKind.NONE, ""),
    ],
)
def test_route_to_an_address(address: str, kind: RouteKind, interface: str) -> None:
    four = (
        parse_fib_trie(network_files.FIB_TRIE),
        parse_ipv4_interfaces(network_files.ROUTE),
    )
    six = (parse_ipv6_routes(network_files.IPV6_ROUTE), ())
    parsed = ipaddress.ip_address(address)
    way = way_to(parsed, *(four if parsed.version == 4 else six))
    assert (way.kind, way.interface) == (kind, interface)


def test_direct_network_is_told_from_one_behind_a_gateway() -> None:
    routes = parse_fib_trie(network_files.FIB_TRIE)
    assert way_to(ipaddress.ip_address("10.9.0.7"), routes).is_direct
    assert not way_to(ipaddress.ip_address("10.13.0.1"), routes).is_direct


def test_tables_that_contradict_each_other_prove_nothing() -> None:
    """A rule decides which of them counts, and no file of /proc shows rules."""
    other = network_files.FIB_TRIE.replace("10.14.0.0", "10.10.0.0")
    assert way_to(ipaddress.ip_address("10.10.0.1"), parse_fib_trie(other)).kind is None


def test_addresses_of_a_namespace() -> None:
    found = local_addresses(network_files.FIB_TRIE, network_files.IF_INET6)
    assert found == ("10.9.0.2", "127.0.0.1", "fd00:1::2")


def test_connections_of_both_families() -> None:
    found = (*parse_tcp(network_files.TCP), *parse_tcp(network_files.TCP6))
    assert [(one.ip, one.port, one.state, one.retransmits) for one in found] == [
        ("10.13.0.1", 3300, "02", 3),
        ("10.13.0.2", 3300, "01", 0),
        ("fd00:1::9", 6789, "02", 3),
        ("10.13.0.1", 6789, "01", 6),
    ]


def test_addresses_of_osds() -> None:
    assert parse_osd_addresses(network_files.OSDMAP) == {
        "osd.0": ("10.77.0.1", 6801),
        "osd.1": ("fd00:77::1", 6802),
    }


@pytest.mark.parametrize(
    ("text", "peers"),
    [
        ("10.77.0.1:6789,[fd00::1]:3300", (("10.77.0.1", 6789), ("fd00::1", 3300))),
        ("[v2:10.77.0.1:3300/0,v1:10.77.0.1:6789/0]", (("10.77.0.1", 3300), ("10.77.0.1", 6789))),
        ("10.77.0.1", (("10.77.0.1", 3300),)),
        ("mon.example.org:6789,10.77.0.1:99999,fe80::1%eth0:3300,\x1b[2J", ()),
    ],
)
def test_monitors_in_a_command_line(text: str, peers: tuple[tuple[str, int], ...]) -> None:
    assert peers_in(text) == peers


@pytest.mark.parametrize(
    ("parse", "text"),
    [
        (parse_fib_trie, "  |-- 10.0.0\n"),
        (parse_fib_trie, "  |-- 10.0.0.0\n     /33 link UNICAST\n"),
        (parse_ipv4_interfaces, "heading\neth0 0000090A\n"),
        (parse_ipv6_routes, "fd00 40\n"),
        (parse_tcp, "heading\n 0: 0A:1 zz:1 02 0 0 0 0 0 0 0\n"),
    ],
)
def test_cut_line_is_no_empty_table(parse: Any, text: str) -> None:  # noqa: ANN401 - any parser
    with pytest.raises(ParseError):
        parse(text)


# --------------------------------------------------------------------------------------------------
# Processes
# --------------------------------------------------------------------------------------------------

_STAT: Final = "{pid} (rbd) S 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 {ticks} 0 0 0 0 0 0 0 0"
HOST, OF_POD = "net:[1]", "net:[2]"
MONITORS: Final = (("10.13.0.1", 3300), ("10.99.0.1", 3300))


def add_process(procfs: Path, pid: int, namespace: str | None, **files: str) -> None:
    """Write the files of a process; without a namespace, its link cannot be read."""
    own = procfs / str(pid)
    (own / "net").mkdir(parents=True)
    (own / "ns").mkdir()
    (own / "stat").write_text(_STAT.format(pid=pid, ticks=100 * pid))
    (own / "cgroup").write_text("0::/\n")
    if namespace is not None:
        (own / "ns" / "net").symlink_to(namespace)
    for name, text in files.items():
        (own / "net" / name).write_text(text)


@pytest.fixture
def roots(tmp_path: Path) -> NodeRoots:
    """Return a host with process 1 and process 20, which is in its own namespace."""
    procfs = tmp_path / "proc"
    (procfs / "1").mkdir(parents=True)
    (procfs / "1" / "mountinfo").write_text(network_files.MOUNTINFO)
    empty = {"fib_trie": "Main:\n", "route": "Iface\n", "if_inet6": "", "tcp": "h\n", "tcp6": "h\n"}
    add_process(procfs, 1, HOST, **empty)
    add_process(
        procfs,
        20,
        OF_POD,
        fib_trie=network_files.FIB_TRIE,
        route=network_files.ROUTE,
        if_inet6=network_files.IF_INET6,
        ipv6_route=network_files.IPV6_ROUTE,
        tcp=network_files.TCP,
        tcp6=network_files.TCP6,
    )
    return NodeRoots(procfs=procfs, sysfs=tmp_path / "sys", host_root=tmp_path)


def observed(roots: NodeRoots, question: NetworkQuestion) -> NodeNetworks:
    view = world().node
    assert view is not None
    found = observe_networks(roots, view, question, float("inf"))
    assert isinstance(found, NodeNetworks)
    return found


MAP: Final = ProcessRef(pid=20, command="rbd -m 10.13.0.1:3300 map k8s/csi-vol-1", state="S")


def test_network_of_a_map_is_read(roots: NodeRoots) -> None:
    (network,) = observed(roots, NetworkQuestion(MONITORS, (), (MAP,))).networks
    assert network.is_host is False
    assert network.addresses == ("10.9.0.2", "127.0.0.1", "fd00:1::2")
    assert [(route.ip, route.kind, route.interface) for route in network.routes] == [
        ("10.13.0.1", RouteKind.FORWARDED, "eth0"),
        ("10.99.0.1", RouteKind.NONE, ""),
    ]
    assert network.connections == (
        ConnectionTo(ip="10.13.0.1", port=3300, established=False, retransmits=3),
    )


def test_table_that_cannot_be_read_is_no_missing_route(roots: NodeRoots) -> None:
    (roots.procfs / "20" / "net" / "fib_trie").unlink()
    (network,) = observed(roots, NetworkQuestion(MONITORS, (), (MAP,))).networks
    assert all(isinstance(route.kind, NotObserved) for route in network.routes)


def test_another_process_with_the_pid_is_not_read(roots: NodeRoots) -> None:
    earlier = replace(MAP, started_at="2020-01-01T00:00:00Z")
    assert observed(roots, NetworkQuestion(MONITORS, (), (earlier,))).networks == ()


def client(address: str) -> WaitingClient:
    return WaitingClient("fsid.client7", frozenset({"osd.0"}), address)


def test_namespace_with_a_clients_address_is_found(roots: NodeRoots) -> None:
    found = observed(roots, NetworkQuestion((), (client("10.9.0.2"), client("10.9.0.3")), ()))
    assert [network.process.pid for network in found.networks] == [20]
    assert found.absent == ("10.9.0.3",)


def test_namespace_that_cannot_be_read_hides_an_address(roots: NodeRoots) -> None:
    (roots.procfs / "20" / "net" / "fib_trie").unlink()
    found = observed(roots, NetworkQuestion((), (client("10.9.0.3"),), ()))
    assert isinstance(found.absent, NotObserved)


def test_namespace_without_a_process_hides_an_address(roots: NodeRoots) -> None:
    """CRI-O drops pause processes: a mount keeps the network of a pod whose containers restart."""
    kept = "35 24 0:4 net:[3] /run/netns/cni-3 rw - nsfs nsfs rw\n"
    (roots.procfs / "1" / "mountinfo").write_text(network_files.MOUNTINFO + kept)
    found = observed(roots, NetworkQuestion((), (client("10.9.0.2"), client("10.9.0.3")), ()))
    assert isinstance(found.absent, NotObserved)
    assert "net:[3] has no process" in found.absent.reason
    known = observed(roots, NetworkQuestion((), (client("10.9.0.2"),), ()))
    assert known.absent == ()


def test_mounts_that_cannot_be_read_hide_an_address(roots: NodeRoots) -> None:
    (roots.procfs / "1" / "mountinfo").unlink()
    found = observed(roots, NetworkQuestion((), (client("10.9.0.3"),), ()))
    assert isinstance(found.absent, NotObserved)


def test_namespaces_that_mounts_keep_are_named() -> None:
    assert pinned_namespaces(network_files.MOUNTINFO) == ("net:[1]", "net:[2]")


def test_osds_of_waiting_requests_are_looked_for_in_the_hosts_network(roots: NodeRoots) -> None:
    directory = roots.sysfs / "kernel" / "debug" / "ceph" / "fsid.client7"
    directory.mkdir(parents=True)
    (directory / "osdmap").write_text(network_files.OSDMAP)
    found = observed(roots, NetworkQuestion((), (client(""),), ()))
    assert found.osds == (("osd.0", "10.77.0.1", 6801),)
    assert [(network.process.pid, network.is_host) for network in found.networks] == [(1, True)]


def test_nothing_is_read_without_a_client(roots: NodeRoots) -> None:
    assert observed(roots, NetworkQuestion(MONITORS, (), ())).networks == ()


def test_question_names_monitors_and_waiting_clients() -> None:
    seen = world(
        mapped={"hung_requests": ("read x",), "hung_at": ("PG 1.6 on osd.0",)},
        on_node={"addresses": ("10.0.0.1",)},
    )
    asked = network_question(seen)
    assert [(one.osds, one.address) for one in asked.clients] == [
        (frozenset({"osd.0"}), ADDRESS.ip)
    ]


def test_no_process_of_this_machine_is_needed(roots: NodeRoots) -> None:
    """The pids of the fixture are no processes that run here."""
    assert str(os.getpid()) not in {path.name for path in roots.procfs.iterdir()}


# --------------------------------------------------------------------------------------------------
# Rules
# --------------------------------------------------------------------------------------------------


@each_row(("name", "code"), [("missing-route", "RBD212"), ("dropped-packets", "RBD213")])
def test_recorded_network_is_named(name: str, code: str) -> None:
    """Recorded by tests/integration/test_ceph_networks.py: rbd in a namespace, on Linux 6.18."""
    path = CHECKOUT / "tests" / "fixtures" / "networks" / f"{name}.json"
    seen = load_snapshot(path.read_text(), where=name)
    assert next(found.code for found in diagnosis_of(seen).findings) == code


def message_of(seen: Snapshot, code: str) -> str:
    return next(found.message for found in diagnosis_of(seen).findings if found.code == code)


def test_network_without_a_route_is_named() -> None:
    assert message_of(CUT_OFF, "RBD212") == (
        "The network namespace of process 9000 (rbd) on worker-1 has no route to Ceph's monitors "
        "at 192.0.2.10:3300."
    )


@pytest.mark.parametrize(
    ("kinds", "code"),
    [
        ((RouteKind.NONE, RouteKind.NONE), "RBD212"),
        ((RouteKind.REJECTED, RouteKind.REJECTED), "RBD212"),
        ((RouteKind.NONE, RouteKind.FORWARDED), "RBD203"),
        ((RouteKind.NONE, NotObserved(reason="ip rule decides")), "RBD203"),
    ],
)
def test_only_a_network_that_reaches_no_monitor_is_cut_off(
    kinds: tuple[RouteKind | NotObserved, ...], code: str
) -> None:
    monitors = ("192.0.2.10", "192.0.2.11")
    routes = tuple(RouteTo(ip=ip, kind=kind) for ip, kind in zip(monitors, kinds, strict=True))
    network = network_of_map(monitors="192.0.2.10:3300,192.0.2.11:3300", routes=routes)
    found = {finding.code for finding in diagnosis_of(in_networks(network)).findings}
    assert found & {"RBD203", "RBD212", "RBD213"} == {code}


@pytest.mark.parametrize(
    ("connections", "code"),
    [
        (((False, 2),), "RBD213"),
        (((False, 1),), "RBD203"),
        (((True, 0),), "RBD203"),
        (((True, 5),), "RBD213"),
        (((True, 2),), "RBD203"),
        (((False, 4), (True, 0)), "RBD203"),
        ((), "RBD203"),
    ],
)
def test_only_connections_without_any_answer_are_out_of_reach(
    connections: tuple[tuple[bool, int], ...], code: str
) -> None:
    made = tuple(
        ConnectionTo(ip="192.0.2.10", port=3300, established=established, retransmits=times)
        for established, times in connections
    )
    seen = in_networks(network_of_map(connections=made))
    found = {finding.code for finding in diagnosis_of(seen).findings}
    assert found & {"RBD203", "RBD212", "RBD213"} == {code}


SILENT: Final = {
    "a monitor": (
        in_networks(network_of_map(connections=(unanswered("192.0.2.10", 3300),))),
        "`ceph mon stat` decides: a monitor in the quorum runs.",
        "ceph mon stat",
    ),
    "an OSD": (
        osd_lost(RouteKind.FORWARDED, unanswered("10.77.0.1", 6801)),
        "`ceph osd tree` decides: it shows a daemon as down if the other OSDs miss it too.",
        "ceph osd tree",
    ),
    "an OSD with an open connection": (
        osd_lost(
            RouteKind.FORWARDED,
            ConnectionTo(ip="10.77.0.1", port=6801, established=True, retransmits=9),
        ),
        "either the machine there has stopped, or packets are dropped on the way",
        "ceph osd tree",
    ),
}


@each_row("name", SILENT)
def test_daemon_that_is_silent_may_be_off(name: str) -> None:
    seen, words, line = SILENT[name]
    item = next(one for one in diagnosis_of(seen).findings if one.code == "RBD213")
    assert words in item.message
    assert ("no machine that runs" in item.message) is ("open" not in name)
    assert lines_of(item.commands)[0] == line
    assert not any(one.changes for one in item.commands)


def test_commands_enter_the_network_of_the_process() -> None:
    found = next(one for one in diagnosis_of(CUT_OFF).findings if one.code == "RBD212")
    first = found.commands[0]
    assert first.argv == (
        "nsenter", "--target", "9000", "--net", "ip", "route", "get", "192.0.2.10",
    )  # fmt: skip
    assert not first.changes


def test_gone_network_needs_a_neighbour() -> None:
    """Without today's network of the plugin, addresses may be translated on the way to Ceph."""
    assert "RBD211" in {found.code for found in diagnosis_of(GONE).findings}
    node = GONE.node
    assert node is not None
    assert isinstance(node.networks, NodeNetworks)
    alone = replace(GONE, node=replace(node, networks=replace(node.networks, networks=())))
    found = {one.code: one.message for one in diagnosis_of(alone).findings}
    assert "RBD211" not in found
    assert "no network namespace there has it" in found["RBD203"]


def test_network_of_another_cluster_is_not_blamed() -> None:
    """The plugin's network is compared with the monitors of the image's cluster."""
    network = ProcessNetwork(
        process=ProcessRef(pid=812, command="/usr/local/bin/cephcsi …"),
        is_plugin=True,
        is_host=False,
        addresses=("10.244.1.7",),
        routes=(RouteTo(ip="198.51.100.1", kind=RouteKind.NONE),),
        connections=(),
    )
    monitor = ServiceAddress(kind="mon", name="a", address=replace(ADDRESS, ip="192.0.2.10"))
    seen = world(
        in_kube={"pods": (waiting_pod(node="worker-1"),), "events": (EXISTS,)},
        in_ceph={"monitors": (monitor,)},
        on_node={"networks": NodeNetworks(networks=(network,))},
    )
    assert "RBD212" not in {found.code for found in diagnosis_of(seen).findings}


def test_osds_are_looked_for_while_an_image_is_mapped(roots: NodeRoots) -> None:
    """The client of a map in progress has a directory, and no device names it (rook#16427)."""
    directory = roots.sysfs / "kernel" / "debug" / "ceph" / "fsid.client9"
    directory.mkdir(parents=True)
    (directory / "osdmap").write_text(network_files.OSDMAP)
    found = observed(roots, NetworkQuestion(MONITORS, (), (MAP,)))
    assert [name for name, _, _ in found.osds] == ["osd.0", "osd.1"]
    (network,) = found.networks
    assert {route.ip for route in network.routes} >= {"10.77.0.1", "fd00:77::1"}


def test_map_that_reaches_monitors_and_no_osd_names_the_osd() -> None:
    reached = ConnectionTo(ip="192.0.2.10", port=3300, established=True, retransmits=0)
    lost = ConnectionTo(ip="192.0.2.20", port=6801, established=False, retransmits=4)
    seen = in_networks(network_of_map(connections=(reached, lost)))
    node = seen.node
    assert node is not None
    assert isinstance(node.networks, NodeNetworks)
    networks = replace(node.networks, osds=(("osd.4", "192.0.2.20", 6801),))
    message = message_of(replace(seen, node=replace(node, networks=networks)), "RBD213")
    assert "to osd.4 (192.0.2.20:6801) get no answer" in message
