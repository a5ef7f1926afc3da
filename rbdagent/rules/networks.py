"""RBD211 to RBD213: which network of the node does not reach which daemon of Ceph."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from rbdagent.codes import Code
from rbdagent.commands import command, inside_network, template
from rbdagent.correlate.ceph_peers import monitors_of
from rbdagent.correlate.node_usage import maps_in_flight
from rbdagent.model import (
    CollectScope,
    Command,
    Finding,
    LifecycleStep,
    Mapping,
    NodeNetworks,
    NotObserved,
    ProcessNetwork,
    Recovery,
    RouteKind,
    Severity,
    Statement,
    Subject,
    Words,
    derived,
    observed_of,
    stated,
)
from rbdagent.parse.foreign import foreign_name
from rbdagent.rules.context import Rule, RuleContext, cordon, finding, list_pods_on
from rbdagent.rules.entry import Entry
from rbdagent.rules.error_texts import KERNEL_LOG, NODE_PODS, ErrorText
from rbdagent.rules.facts import cluster_of_image
from rbdagent.verdicts.evidence import process_text
from rbdagent.verdicts.timing import RETRY_S

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rbdagent.correlate.ceph_peers import Peer
    from rbdagent.model import ConnectionTo, Holder, RouteTo

ENTRIES: Final = (
    Entry(
        Code.CLIENT_NETWORK_GONE,
        Severity.ERROR,
        "The network namespace of the node's Ceph client is gone with the pod from which it "
        "mapped.",
        remedy="Reboot the node: without the map option osd_request_timeout, nothing else ends "
        "these mappings. Their requests do not end, so an unmount, an unmap and an unmap with "
        "force wait too. Then run the CSI node plugin with "
        "hostNetwork, so that its pod may be replaced.",
        recovery=Recovery(note="a client does not change its network namespace"),
        step=LifecycleStep.USE,
    ),
    Entry(
        Code.NO_ROUTE_TO_CEPH,
        Severity.ERROR,
        "A network of the node from which Ceph is used has no route to it.",
        remedy="Give that network a route to the public network of Ceph: of the node (its routing "
        "table), or of the pod of the CSI node plugin (hostNetwork, or the NetworkAttachment"
        "Definition that it names). Then all operations continue.",
        recovery=Recovery(
            actor="Ceph's clients and kubelet", condition="the route exists", within_s=RETRY_S
        ),
        step=LifecycleStep.STAGE,
    ),
    Entry(
        Code.CEPH_OUT_OF_REACH,
        Severity.ERROR,
        "Daemons of Ceph do not answer the connections of a network of the node.",
        remedy="Look whether Ceph counts the daemons as up: start the machine or the pod of one "
        "that is not, else find what drops the packets between that network and these addresses. "
        "It may be a firewall, a NetworkPolicy, a switch or a former address of the daemon. "
        "Monitors have the ports 3300 and 6789, OSDs 6800 to 7568. A refused connection does not "
        "look like this. If a connection begins and "
        "then hangs, compare the MTU along the way. Do not restart the CSI node plugin for it.",
        recovery=Recovery(
            actor="Ceph's clients and kubelet",
            condition="the packets arrive",
            within_s=RETRY_S,
        ),
        step=LifecycleStep.STAGE,
    ),
)
_UNANSWERED: Final = 2
"""An attempt is sent again after 1 s and after 3 s (TCP_TIMEOUT_INIT in include/net/tcp.h). If no
machine has an address of the same network, the kernel ends the attempt after 3 s."""
_STALLED: Final = 5
"""Data is sent again after 0.2 s at the earliest, and each time after twice as long (tcp_rto_min):
for the fifth time after 6 s. A single loss is sent again once."""
_MOST_PEERS: Final = 3


class _Cut(NamedTuple):
    """A network, and the daemons that it does not reach."""

    code: Code
    network: ProcessNetwork
    peers: tuple[str, ...]
    """``192.0.2.10:3300``; of an OSD with its name."""
    address: str
    """That of the first one."""
    of_osds: bool
    is_rejected: bool = False
    is_established: bool = False
    evidence: tuple[str, ...] = ()


def is_explained(context: RuleContext) -> bool:
    """Return whether a rule of this family names why an operation waits for Ceph."""
    return bool(_gone(context)) or _cut(context) is not None


def is_network_cut(context: RuleContext, named: dict[str, str]) -> bool:
    """Return whether a network of the pod's node does not reach Ceph."""
    return named["node"] == context.here_if_known and _cut(context) is not None


BY_NETWORKS: Final = (is_network_cut, ErrorText((), None))
"""The cause of a text about Ceph that does not answer, if `out_of_reach` reports it."""
NO_ROUTE: Final = ErrorText(
    (),
    Code.NO_ROUTE_TO_CEPH,
    "its kernel has no route to Ceph from the network in which the image is mapped: it refuses to "
    "connect to the address that its log names (`connect … error -101`, or -113, -22, -13)",
    (KERNEL_LOG, template("ceph mon dump"), NODE_PODS),
)


def network_gone(context: RuleContext) -> Iterator[Finding]:
    """Yield RBD211 for mappings whose client lost its network with a pod."""
    for holder, mapping, network in _gone(context):
        address = "" if mapping.client_address is None else mapping.client_address.ip
        yield finding(
            Code.CLIENT_NETWORK_GONE,
            Subject.of_device(mapping.device, context.here),
            stated(
                "I/O on {device} on {node} hangs: client.{client} has the address {address} in a "
                "network of pods, and no network namespace there has it. The pod "
                "of the CSI node plugin that mapped the image is gone, and its network with it.",
                device=mapping.device,
                node=context.here,
                client=str(mapping.client_id),
                address=address,
            ),
            evidence=(
                f"{_named(network)} is in the same network, with {_all_addresses(network)}",
                *(
                    f"hanging request: {foreign_name(request)}"
                    for request in observed_of(mapping.hung_requests)[:_MOST_PEERS]
                ),
            ),
            commands=(*cordon(holder), list_pods_on(context.here)),
        )


def _gone(context: RuleContext) -> tuple[tuple[Holder, Mapping, ProcessNetwork], ...]:
    """Return the mappings of the volume whose network is gone, with the plugin's network of today.

    An address that no namespace has may also be one to which addresses are translated. A network
    of the plugin's own interfaces contains it only if it was that of an earlier pod.
    """
    networks = _networks(context)
    absent = () if networks is None else observed_of(networks.absent)
    found = []
    for holder_verdict in context.holder_verdicts if absent else ():
        holder, mapping = holder_verdict.holder, holder_verdict.holder.mapping
        if mapping is None or not holder.is_local or mapping.client_address is None:
            continue
        ip = mapping.client_address.ip
        if ip not in absent or not observed_of(mapping.hung_requests) or networks is None:
            continue
        today = next((one for one in networks.networks if _is_neighbour(one, ip)), None)
        if today is not None:
            found.append((holder, mapping, today))
    return tuple(found)


def _is_neighbour(network: ProcessNetwork, ip: str) -> bool:
    route = _route_to(network, ip)
    is_direct = route is not None and route.kind is RouteKind.FORWARDED and route.is_direct
    return network.is_host is False and network.is_plugin and is_direct


def whose_address(addresses: tuple[str, ...], context: RuleContext) -> Words:
    """Return what is known of addresses of krbd clients that the node does not have."""
    networks = _networks(context)
    for network in () if networks is None else networks.networks:
        if not set(addresses).isdisjoint(observed_of(network.addresses)):
            return stated(
                "the image was mapped from the network namespace of {process}, which still exists",
                process=process_text(network.process),
            )
    absent = () if networks is None else observed_of(networks.absent)
    if set(addresses) <= set(absent):
        return (
            "no network namespace there has it. Either the image was mapped from "
            "the network of a pod that is gone (a CSI node plugin without hostNetwork), or "
            "addresses are translated on the way to Ceph"
        )
    return (
        "the image was mapped from the network of a pod (a CSI node plugin without hostNetwork), "
        "which is gone if that pod was replaced, or addresses are translated on the way to Ceph"
    )


def out_of_reach(context: RuleContext) -> Iterator[Finding]:
    """Yield RBD212 or RBD213 for a network from which a waiting operation does not reach Ceph."""
    cut = None if _gone(context) else _cut(context)
    if cut is None:
        return
    yield finding(
        cut.code,
        Subject.of_volume(context.name),
        _message(cut, context),
        evidence=cut.evidence,
        commands=_commands(cut, context),
    )


def _message(cut: _Cut, context: RuleContext) -> Statement:
    where, peers = _where(cut.network, context), _peers(cut)
    answers = " Ceph answers rbdagent." if _is_ceph_there(context) else ""
    if cut.code is Code.NO_ROUTE_TO_CEPH and cut.is_rejected:
        return stated(
            "The {} has a route to {} that discards all packets (blackhole, unreachable or "
            "prohibit).{}",
            where,
            peers,
            answers,
        )
    if cut.code is Code.NO_ROUTE_TO_CEPH:
        return stated("The {} has no route to {}.{}", where, peers, answers)
    if cut.is_established:
        return stated(
            "A connection of the {} to {} is open, and nothing that is sent on it is acknowledged: "
            "either the machine there has stopped, or packets are dropped on the way, all or only "
            "large ones. {}{}",
            where,
            peers,
            _what_decides(cut),
            answers,
        )
    return stated(
        "Connection attempts of the {} to {} get no answer: either no machine that runs has that "
        "address, or packets are dropped on the way. {}{}",
        where,
        peers,
        _what_decides(cut),
        answers,
    )


def _what_decides(cut: _Cut) -> str:
    """Return which fact distinguishes a daemon that does not run from packets that are dropped.

    The other daemons of Ceph report one that they do not reach (osd_heartbeat_grace, 20 s; a
    monitor leaves the quorum after mon_lease, 5 s, and an election).
    """
    if cut.of_osds:
        return "`ceph osd tree` decides: it shows a daemon as down if the other OSDs miss it too."
    return "`ceph mon stat` decides: a monitor in the quorum runs."


def _where(network: ProcessNetwork, context: RuleContext) -> Statement:
    if network.is_host is True:
        return stated("network of {node}", node=context.here)
    if network.is_plugin:
        return stated("network of the CSI node plugin on {node}", node=context.here)
    return stated(
        "network namespace of process {pid} ({program}) on {node}",
        pid=str(network.process.pid),
        program=foreign_name(network.process.program),
        node=context.here,
    )


def _peers(cut: _Cut) -> Statement:
    shown = cut.peers[:_MOST_PEERS]
    if cut.of_osds:
        return stated("{osds}", osds=shown)
    return stated("Ceph's monitors at {monitors}", monitors=shown)


def _is_ceph_there(context: RuleContext) -> bool:
    cluster = cluster_of_image(context)
    return cluster is not None and bool(observed_of(cluster.monitors))


def _commands(cut: _Cut, context: RuleContext) -> tuple[Command, ...]:
    shown = [command("ip route get", cut.address, node=context.here)]
    if cut.code is Code.CEPH_OUT_OF_REACH:
        shown.append(command("ss -tno dst", cut.address, node=context.here))
    pid = cut.network.process.pid
    inside = shown if cut.network.is_host is True else [inside_network(pid, one) for one in shown]
    return (*_state_of_peers(cut), *inside, list_pods_on(context.here))


def _state_of_peers(cut: _Cut) -> tuple[Command, ...]:
    """Return the command whose output shows whether daemons run that do not answer."""
    if cut.code is not Code.CEPH_OUT_OF_REACH:
        return ()
    return (command("ceph osd tree") if cut.of_osds else command("ceph mon stat"),)


def _cut(context: RuleContext) -> _Cut | None:
    """Return a network from which a waiting operation of the volume does not reach Ceph."""
    networks = _networks(context)
    if networks is None:
        return None
    maps = {entry.process.pid for entry in maps_in_flight(context.volume.image, context.snapshot)}
    does_a_pod_wait = any(pod.node_name == context.here for pod in context.volume.waiting_pods)
    for network in networks.networks:
        if network.process.pid in maps:
            found = _to_monitors(network, context) or _to_any_osd(network, networks)
            if found is not None:
                return found
    if does_a_pod_wait or maps:
        found = _of_plugins(networks, context, is_mapping=bool(maps))
        if found is not None:
            return found
    return _of_mappings(networks, context)


def _of_mappings(networks: NodeNetworks, context: RuleContext) -> _Cut | None:
    """Return the OSDs that the network of a mapping of the volume does not reach."""
    for holder_verdict in context.holder_verdicts:
        mapping = holder_verdict.holder.mapping
        for network in networks.networks if mapping is not None else ():
            if mapping is not None and _is_of(network, mapping):
                found = _to_osds(network, mapping, networks)
                if found is not None:
                    return found
    return None


def _of_plugins(networks: NodeNetworks, context: RuleContext, *, is_mapping: bool) -> _Cut | None:
    """Return what the plugins do not reach: all of them, because one may serve another driver."""
    cuts = [
        _to_monitors(network, context) or (_to_any_osd(network, networks) if is_mapping else None)
        for network in networks.networks
        if network.is_plugin
    ]
    found = [cut for cut in cuts if cut is not None]
    return found[0] if found and len(found) == len(cuts) else None


def _networks(context: RuleContext) -> NodeNetworks | None:
    node = context.snapshot.node
    return None if node is None or isinstance(node.networks, NotObserved) else node.networks


def _to_monitors(network: ProcessNetwork, context: RuleContext) -> _Cut | None:
    """Return the monitors that a network does not reach, if it reaches none of them."""
    peers = monitors_of(network.process) or _known_monitors(context)
    cut = _without_route(network, {_text(peer): peer for peer in peers}, of_osds=False)
    if cut is not None:
        return cut
    connections = [one for one in observed_of(network.connections) if (one.ip, one.port) in peers]
    unanswered = [one for one in connections if _is_unanswered(one)]
    if not unanswered or len(unanswered) < len([one for one in connections if _is_old(one)]):
        return None
    return _unanswered(network, [(_text((one.ip, one.port)), one) for one in unanswered])


def _is_old(connection: ConnectionTo) -> bool:
    """Return whether a connection shows that the peer answers, or that it does not."""
    return connection.established or _is_unanswered(connection)


def _known_monitors(context: RuleContext) -> tuple[Peer, ...]:
    cluster = cluster_of_image(context)
    monitors = () if cluster is None else observed_of(cluster.monitors)
    return tuple((monitor.address.ip, monitor.address.port) for monitor in monitors)


def _is_of(network: ProcessNetwork, mapping: Mapping) -> bool:
    """Return whether the client of a mapping is in a network: it has the address of the client."""
    address = mapping.client_address
    return address is not None and address.ip in observed_of(network.addresses)


def _to_any_osd(network: ProcessNetwork, networks: NodeNetworks) -> _Cut | None:
    """Return OSDs that a network does not reach, while the plugin maps an image from it."""
    return _to_osds_named(network, networks, {name for name, _, _ in networks.osds})


def _to_osds(network: ProcessNetwork, mapping: Mapping, networks: NodeNetworks) -> _Cut | None:
    """Return the OSDs for which requests of a mapping wait, and that its network does not reach."""
    if not observed_of(mapping.hung_requests):
        return None
    wanted = {place.rpartition(" on ")[2] for place in mapping.hung_at}
    return _to_osds_named(network, networks, wanted)


def _to_osds_named(
    network: ProcessNetwork, networks: NodeNetworks, wanted: set[str]
) -> _Cut | None:
    peers = {
        f"{name} ({_text((ip, port))})": (ip, port)
        for name, ip, port in networks.osds
        if name in wanted
    }
    cut = _without_route(network, peers, of_osds=True)
    if cut is not None:
        return cut
    unanswered = [
        (text, one)
        for text, peer in peers.items()
        for one in observed_of(network.connections)
        if (one.ip, one.port) == peer and _is_unanswered(one)
    ]
    return _unanswered(network, unanswered, of_osds=True) if unanswered else None


def _without_route(
    network: ProcessNetwork, peers: dict[str, Peer], *, of_osds: bool
) -> _Cut | None:
    """Return the daemons if the network has a route to none of them."""
    routes = [_route_to(network, ip) for ip, _ in peers.values()]
    lost = {RouteKind.NONE, RouteKind.REJECTED}
    if not routes or any(route is None or route.kind not in lost for route in routes):
        return None
    kinds = {route.kind for route in routes if route is not None}
    is_rejected = RouteKind.NONE not in kinds
    lost_ips = ", ".join(sorted({ip for ip, _ in peers.values()}))
    why = "only a route that discards packets" if is_rejected else "no route"
    return _Cut(
        Code.NO_ROUTE_TO_CEPH,
        network,
        tuple(peers),
        next(iter(peers.values()))[0],
        of_osds,
        is_rejected=is_rejected,
        evidence=(f"{_named(network)}: {why} to {lost_ips} in any table",),
    )


def _unanswered(
    network: ProcessNetwork, found: list[tuple[str, ConnectionTo]], *, of_osds: bool = False
) -> _Cut:
    return _Cut(
        Code.CEPH_OUT_OF_REACH,
        network,
        tuple(dict.fromkeys(text for text, _ in found)),
        found[0][1].ip,
        of_osds,
        is_established=all(one.established for _, one in found),
        evidence=tuple(
            f"{_named(network)}: {text}, "
            f"{'data' if one.established else 'SYN'} sent again {one.retransmits} times"
            for text, one in found[:_MOST_PEERS]
        ),
    )


def _is_unanswered(connection: ConnectionTo) -> bool:
    least = _STALLED if connection.established else _UNANSWERED
    return connection.retransmits >= least


def _route_to(network: ProcessNetwork, ip: str) -> RouteTo | None:
    return next((route for route in network.routes if route.ip == ip), None)


def _named(network: ProcessNetwork) -> str:
    inside = derived(network.is_host, lambda is_host: "the host's" if is_host else "its own")
    which = "" if isinstance(inside, NotObserved) else f", in {inside} network namespace"
    return f"{process_text(network.process)}{which}"


def _all_addresses(network: ProcessNetwork) -> str:
    return ", ".join(sorted(observed_of(network.addresses)))


def _text(peer: Peer) -> str:
    ip, port = peer
    return f"[{ip}]:{port}" if ":" in ip else f"{ip}:{port}"


RULES: Final = (
    Rule(239, network_gone, CollectScope.LOGS),
    Rule(241, out_of_reach, CollectScope.LOGS),
)
