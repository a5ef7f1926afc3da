"""The daemons of Ceph that a node's clients need: what to look for in its network namespaces."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from rbdagent.correlate.image_identity import mappings_of
from rbdagent.model import observed_of
from rbdagent.parse.network_namespace import peers_in

if TYPE_CHECKING:
    from rbdagent.model import InFlight, Mapping, ProcessRef, Snapshot

Peer = tuple[str, int]
"""IP address and port."""


class WaitingClient(NamedTuple):
    """A kernel client with requests that wait for OSDs."""

    name: str
    """Of its directory in debugfs: ``FSID.client4118``."""
    osds: frozenset[str]
    """``osd.3``."""
    address: str
    """Its own IP address, if the node does not have it; empty if the node has it."""


class NetworkQuestion(NamedTuple):
    """What to look for in the network namespaces of a node."""

    monitors: tuple[Peer, ...]
    clients: tuple[WaitingClient, ...]
    maps: tuple[ProcessRef, ...]
    """The processes of rbd that map an image."""


def network_question(snapshot: Snapshot) -> NetworkQuestion:
    """Return what to look for on the observed node."""
    node = snapshot.node
    flights = () if node is None else observed_of(node.in_flight)
    maps = tuple(entry.process for entry in flights if is_map(entry))
    monitors = [*_of_clusters(snapshot)]
    for process in maps:
        monitors += monitors_of(process)
    own = () if node is None else observed_of(node.addresses)
    clients = [
        _client(mapping, mapping.client_address.ip, own)
        for mapping in mappings_of(node)
        if observed_of(mapping.hung_requests) and own and mapping.client_address is not None
    ]
    return NetworkQuestion(
        tuple(dict.fromkeys(monitors)), tuple(dict.fromkeys(clients)), tuple(maps)
    )


def is_map(entry: InFlight) -> bool:
    """Return whether a process in flight is rbd, and maps an image."""
    return entry.program == "rbd" and "map" in entry.process.command.split()


def monitors_of(process: ProcessRef) -> tuple[Peer, ...]:
    """Return the monitors in the command line of rbd; a name of a host is left out."""
    words = process.command.split()
    named = next((after for word, after in pairwise(words) if word == "-m"), "")
    return peers_in(named)


def _of_clusters(snapshot: Snapshot) -> tuple[Peer, ...]:
    clusters = () if snapshot.ceph is None else snapshot.ceph.clusters
    return tuple(
        (monitor.address.ip, monitor.address.port)
        for cluster in clusters
        for monitor in observed_of(cluster.monitors)
    )


def _client(mapping: Mapping, address: str, own: tuple[str, ...]) -> WaitingClient:
    return WaitingClient(
        f"{mapping.fsid}.client{mapping.client_id}",
        frozenset(place.rpartition(" on ")[2] for place in mapping.hung_at),
        "" if address in own else address,
    )
