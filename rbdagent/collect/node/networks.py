"""The network namespaces from which Ceph is used: their routes and connections to its daemons.

rbdagent sends no packet and enters no namespace: it reads ``/proc/PID/net``. A mapping keeps the
namespace of the process that mapped it (ceph_messenger_init() in net/ceph/messenger.c), but no file
shows which one that is: only the address of its client does. The MTU of an interface, firewalls and
rules (``ip rule``) are not observed.
"""

from __future__ import annotations

import functools
import ipaddress
import time
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from rbdagent.collect.failure import not_observed
from rbdagent.collect.files import (
    ARGUMENTS,
    LISTS,
    link_text,
    names_in,
    read_head,
    read_text,
)
from rbdagent.collect.node.plugin_pods import plugin_pods
from rbdagent.collect.node.processes import boot_time, read_entry
from rbdagent.collect.parallel import start
from rbdagent.errors import ParseError
from rbdagent.model import (
    ConnectionTo,
    NodeNetworks,
    NotObserved,
    ProcessNetwork,
    RouteTo,
    derived,
    first_unobserved,
    observed_of,
)
from rbdagent.parse.command_line import parse_command_line, program_of
from rbdagent.parse.network_namespace import (
    ESTABLISHED,
    Route,
    local_addresses,
    parse_fib_trie,
    parse_ipv4_interfaces,
    parse_ipv6_routes,
    parse_osd_addresses,
    parse_tcp,
    pinned_namespaces,
    way_to,
)
from rbdagent.parse.shown import all_as_unicode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from rbdagent.collect.node.roots import NodeRoots
    from rbdagent.correlate.ceph_peers import NetworkQuestion, Peer
    from rbdagent.model import NodeView, ProcessRef

_T = TypeVar("_T")
WITHIN_S: Final = 3.0
_MOST_PROCESSES: Final = 8
_MOST_NAMESPACES: Final = 4096
_MOST_CLIENTS: Final = 4
_MOST_OSDS: Final = 8
_MOST_OF_A_POD: Final = 1 << 20
"""Limit of a list in the namespace of any pod, whose tenant may add routes and addresses."""
_CEPH_CSI: Final = "cephcsi"
_OF_RBD: Final = frozenset({"--type=rbd", "--drivertype=rbd"})
_PTRACE: Final = "run as root with CAP_SYS_PTRACE"


class _Asked(NamedTuple):
    """What is looked for in each namespace."""

    peers: frozenset[Peer]
    addresses: tuple[str, ...]
    """Those to which a route is looked for."""


def begin_networks(
    roots: NodeRoots, view: NodeView, question: NetworkQuestion
) -> Callable[[float], NodeNetworks | NotObserved]:
    """Start to read the network namespaces; return a function that waits until a deadline."""
    begun = time.monotonic()
    limit = begun + WITHIN_S
    wait = start([functools.partial(observe_networks, roots, view, question, limit)])

    def networks(deadline: float) -> NodeNetworks | NotObserved:
        (answer,) = wait(min(deadline, limit))
        if answer is None:
            return NotObserved(reason=f"network namespaces: not read within {WITHIN_S:g} s")
        if isinstance(answer, BaseException):
            return not_observed(answer, "the network namespaces of this node")
        return answer

    return networks


def observe_networks(
    roots: NodeRoots, view: NodeView, question: NetworkQuestion, deadline: float
) -> NodeNetworks | NotObserved:
    """Return the networks of the CSI node plugin, of maps in progress, and of waiting clients.

    Args:
        roots: the paths of the host's file systems.
        view: the observed state of the node.
        question: the daemons of Ceph, and the clients that wait for them.
        deadline: of the monotonic clock.
    """
    plugins = _plugins(roots, view)
    if isinstance(plugins, NotObserved) and not question.maps and not question.clients:
        return plugins
    known = _osds(roots.sysfs, question)
    waited = _waited_for(known, question)
    strange = tuple(dict.fromkeys(client.address for client in question.clients if client.address))
    routed = (*question.monitors, *(known[name] for name in waited))
    asked = _Asked(
        frozenset((*question.monitors, *known.values())),
        tuple(dict.fromkeys((*(ip for ip, _ in routed), *strange))),
    )
    procfs = roots.procfs
    sought = _owners(procfs, strange, deadline)
    owners = () if isinstance(sought, NotObserved) else sought
    processes: dict[int, tuple[ProcessRef, bool]] = {}
    for process, is_plugin in (
        *((process, True) for process in (() if isinstance(plugins, NotObserved) else plugins)),
        *((process, False) for process in question.maps),
        *((owner.process, False) for owner in owners if owner.process is not None),
        *((process, False) for process in _host(procfs, question)),
    ):
        processes.setdefault(process.pid, (process, is_plugin))
    found = [
        network
        for process, is_plugin in [*processes.values()][:_MOST_PROCESSES]
        if (network := _network(procfs, process, asked, is_plugin=is_plugin)) is not None
    ]
    absent = derived(
        sought, lambda all_of: tuple(owner.address for owner in all_of if owner.process is None)
    )
    used = {(one.ip, one.port) for network in found for one in observed_of(network.connections)}
    osds = tuple(
        (name, *peer) for name, peer in sorted(known.items()) if name in waited or peer in used
    )
    return all_as_unicode(NodeNetworks(networks=tuple(found), osds=osds, absent=absent))


# --------------------------------------------------------------------------------------------------
# Whose namespaces
# --------------------------------------------------------------------------------------------------


def _plugins(roots: NodeRoots, view: NodeView) -> tuple[ProcessRef, ...] | NotObserved:
    """Return the processes of ceph-csi's node plugin for RBD, in pods that are proved to be its."""
    named = [process for process in view.processes if program_of(process.command) == _CEPH_CSI]
    uids = frozenset(process.pod_uid for process in named if process.pod_uid is not None)
    if not uids:
        return ()
    pods = plugin_pods(roots, view, uids)
    if isinstance(pods, NotObserved):
        return pods
    found = [process for process in named if process.pod_uid in pods.proved]
    return tuple(process for process in found if _serves_rbd(roots.procfs, process))


def _serves_rbd(procfs: Path, process: ProcessRef) -> bool:
    raw = read_head(procfs / str(process.pid) / "cmdline", ARGUMENTS)
    if not isinstance(raw, bytes) or not raw:
        return False
    return not _OF_RBD.isdisjoint(parse_command_line(raw, is_cut=len(raw) == ARGUMENTS))


def _osds(sysfs: Path, question: NetworkQuestion) -> dict[str, Peer]:
    """Return the addresses of OSDs that the kernel's clients know.

    A map in progress has a client already, and no device that names it.
    """
    directory = f"{sysfs}/kernel/debug/ceph"
    clients = [client.name for client in question.clients]
    if question.maps:
        names = names_in(directory)
        clients += [name for name in (names if isinstance(names, tuple) else ()) if "." in name]
    found: dict[str, set[Peer]] = {}
    for name in [*dict.fromkeys(clients)][:_MOST_CLIENTS]:
        text = read_text(f"{directory}/{name}/osdmap", LISTS)
        for osd, peer in (parse_osd_addresses(text) if isinstance(text, str) else {}).items():
            found.setdefault(osd, set()).add(peer)
    # Clients of two clusters give one name to two OSDs.
    return {osd: next(iter(peers)) for osd, peers in found.items() if len(peers) == 1}


def _waited_for(known: dict[str, Peer], question: NetworkQuestion) -> frozenset[str]:
    """Return the OSDs to which a route is looked for; a map may wait for any of them."""
    waited = {osd for client in question.clients for osd in client.osds} & known.keys()
    return frozenset(waited | set(sorted(known)[:_MOST_OSDS] if question.maps else ()))


class _Owner(NamedTuple):
    """An address of a client, and a process in a network namespace that has it."""

    address: str
    process: ProcessRef | None


def _owners(
    procfs: Path, addresses: tuple[str, ...], deadline: float
) -> tuple[_Owner, ...] | NotObserved:
    """Return for each address a process whose network namespace has it; None if none does.

    Not observed if a namespace could not be read, and one of the addresses was not found.
    """
    if not addresses:
        return ()
    boot = boot_time(procfs)
    hidden: NotObserved | None = None
    owners: dict[str, ProcessRef] = {}
    for pid, own in _all_namespaces(procfs, deadline):
        if isinstance(own, NotObserved):
            hidden = own
            continue
        found = own.intersection(addresses) - owners.keys()
        entry = read_entry(str(procfs), pid, boot, is_public=False) if found else None
        if entry is not None and not isinstance(entry, NotObserved):
            owners.update(dict.fromkeys(found, entry.process))
        if len(owners) == len(addresses):
            break
    if hidden is not None and len(owners) < len(addresses):
        return hidden
    return tuple(_Owner(address, owners.get(address)) for address in addresses)


def _all_namespaces(
    procfs: Path, deadline: float
) -> Iterator[tuple[int, frozenset[str] | NotObserved]]:
    """Yield one process of each network namespace, with the addresses of the namespace."""
    seen: set[str] = set()
    names = names_in(procfs)
    if not isinstance(names, tuple) or "1" not in names:
        yield 0, NotObserved(reason="the processes of the host were not listed", hint=_PTRACE)
        return
    for pid in sorted(int(name) for name in names if name.isdigit()):
        if time.monotonic() > deadline or len(seen) > _MOST_NAMESPACES:
            yield pid, NotObserved(reason="not all network namespaces were read in time")
            return
        link = link_text(procfs / str(pid) / "ns" / "net")
        if isinstance(link, NotObserved):
            yield pid, NotObserved(reason=link.reason, hint=_PTRACE)
        elif link is not None and link not in seen:
            own = _addresses(procfs, pid)
            # Else the process has ended, and another one may be in its namespace.
            if link_text(procfs / str(pid) / "ns" / "net") == link:
                seen.add(link)
                yield pid, own
    yield from _without_process(procfs, seen)


def _without_process(procfs: Path, seen: set[str]) -> Iterator[tuple[int, NotObserved]]:
    """Yield that a namespace without a process exists: no file shows its addresses.

    A container runtime keeps the namespace of a pod by a mount. CRI-O drops the pause process
    (drop_infra_ctr, test/drop_infra.bats of cri-o), so the network of a pod whose containers all
    restart has none, and is not gone. A mount that process 1 does not have is not seen.
    """
    text = _read(procfs / "1" / "mountinfo")
    if isinstance(text, NotObserved):
        yield 1, text
        return
    for name in pinned_namespaces(text):
        if name not in seen:
            yield (
                0,
                NotObserved(
                    reason=f"the network namespace {name} has no process that shows its addresses",
                    hint="lsns --type net; ip -br address, in that namespace",
                ),
            )
            return


def _addresses(procfs: Path, pid: int) -> frozenset[str] | NotObserved:
    trie = read_text(procfs / str(pid) / "net" / "fib_trie", _MOST_OF_A_POD)
    six = read_text(procfs / str(pid) / "net" / "if_inet6", _MOST_OF_A_POD)
    hidden = first_unobserved((trie, six))
    if hidden is not None:
        return hidden
    if trie is None:
        return NotObserved(reason=f"process {pid} has ended")
    return _parsed(lambda: frozenset(local_addresses(_of(trie), _of(six))))


def _host(procfs: Path, question: NetworkQuestion) -> Iterator[ProcessRef]:
    """Yield process 1 if a client that waits is in the network of the host."""
    if any(not client.address for client in question.clients):
        entry = read_entry(str(procfs), 1, boot_time(procfs), is_public=False)
        if entry is not None and not isinstance(entry, NotObserved):
            yield entry.process


# --------------------------------------------------------------------------------------------------
# One namespace
# --------------------------------------------------------------------------------------------------


def _network(
    procfs: Path, process: ProcessRef, asked: _Asked, *, is_plugin: bool
) -> ProcessNetwork | None:
    """Return the network of a process; None if the process has ended."""
    entry = read_entry(str(procfs), process.pid, boot_time(procfs), is_public=False)
    if not isinstance(entry, NotObserved) and (
        entry is None or entry.is_over or entry.process.started_at != process.started_at
    ):
        return None
    link = link_text(procfs / str(process.pid) / "ns" / "net")
    addresses = _addresses(procfs, process.pid)
    network = ProcessNetwork(
        process=process,
        is_plugin=is_plugin,
        is_host=_is_host(procfs, link),
        addresses=derived(addresses, lambda found: tuple(sorted(found))),
        routes=tuple(_routes(procfs, process.pid, asked.addresses)),
        connections=_connections(procfs, process.pid, asked.peers),
    )
    # Else another process has the pid now, or this one has entered another namespace.
    return network if link_text(procfs / str(process.pid) / "ns" / "net") == link else None


def _is_host(procfs: Path, link: str | NotObserved | None) -> bool | NotObserved:
    host = link_text(procfs / "1" / "ns" / "net")
    if isinstance(link, str) and isinstance(host, str):
        return link == host
    hidden = first_unobserved((link, host))
    return NotObserved(
        reason="the process has ended" if hidden is None else hidden.reason, hint=_PTRACE
    )


def _routes(procfs: Path, pid: int, addresses: tuple[str, ...]) -> Iterator[RouteTo]:
    """Yield the route of a namespace to each address."""
    tables: dict[int, tuple[tuple[Route, ...], tuple[Route, ...]] | NotObserved] = {}
    for ip in addresses:
        address = ipaddress.ip_address(ip)
        if address.version not in tables:
            tables[address.version] = _tables(procfs / str(pid) / "net", address.version)
        known = tables[address.version]
        if isinstance(known, NotObserved):
            yield RouteTo(ip=ip, kind=known)
            continue
        way = way_to(address, *known)
        yield RouteTo(
            ip=ip,
            kind=way.kind or NotObserved(reason=_RULES, hint="ip route get, in that namespace"),
            interface=way.interface,
            is_direct=way.is_direct,
        )


_RULES: Final = "several routing tables, or several routes, contradict each other: ip rule decides"


def _tables(net: Path, version: int) -> tuple[tuple[Route, ...], tuple[Route, ...]] | NotObserved:
    """Return the routes of a family, and those that name the interfaces."""
    if version == 6:
        text = _read(net / "ipv6_route")
        return derived(text, lambda read: _parsed(lambda: (parse_ipv6_routes(read), ())))
    trie, named = _read(net / "fib_trie"), _read(net / "route")
    if isinstance(trie, NotObserved):
        return trie
    if isinstance(named, NotObserved):
        return named
    return _parsed(lambda: (parse_fib_trie(trie), parse_ipv4_interfaces(named)))


def _connections(
    procfs: Path, pid: int, peers: frozenset[Peer]
) -> tuple[ConnectionTo, ...] | NotObserved:
    if not peers:
        return ()
    found: list[ConnectionTo] = []
    for name in ("tcp", "tcp6"):
        text = read_text(procfs / str(pid) / "net" / name, LISTS)
        if isinstance(text, NotObserved):
            return text
        # A kernel without IPv6 has no tcp6.
        parsed = _parsed(functools.partial(parse_tcp, _of(text)))
        if isinstance(parsed, NotObserved):
            return parsed
        found += [
            ConnectionTo(
                ip=one.ip,
                port=one.port,
                established=one.state == ESTABLISHED,
                retransmits=one.retransmits,
            )
            for one in parsed
            if (one.ip, one.port) in peers
        ]
    return tuple(dict.fromkeys(found))


def _read(path: Path) -> str | NotObserved:
    text = read_text(path, LISTS)
    return NotObserved(reason=f"{path}: no such file") if text is None else text


def _of(text: str | NotObserved | None) -> str:
    return text if isinstance(text, str) else ""


def _parsed(parse: Callable[[], _T]) -> _T | NotObserved:
    try:
        return parse()
    except ParseError as error:
        return NotObserved(reason=str(error))
