"""Measure what agents cost the API server and etcd, compared with the Leases of kubelets.

A thousand agents write through the real publisher to a real API server, and a thousand kubelets
renew the Lease of their node, in turns. Time is compressed: the benchmark measures the cost of one
write, whenever it comes; the number of writes in a second is calculated and printed. Requests are
those that the API server counted. Processor time is that of both server processes minus their idle
use.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import functools
import hashlib
import math
import os
import re
import resource
import shutil
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.cpu import cpu_s
from rbdagent.collect.kube.kubeconfig import Credentials, credentials
from rbdagent.collect.kube.requests import RBD_MAPPINGS, RBD_NODES
from tests.lab.controlplane import ControlPlane
from tests.lab.fleet import (
    LEASES,
    Agent,
    Connection,
    Fleet,
    Kubelet,
    Watch,
    together,
)
from tests.lab.install import CHECKOUT, bin_dir, cache_dir
from tests.lab.network import Network
from tests.lab.processes import Processes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_HEARTBEAT_S: Final = 300
_LEASE_S: Final = 10
_HISTORY_S: Final = 600
"""The API server compacts all revisions older than five minutes, every five minutes."""
_IDLE_S: Final = 5.0
_RENEWALS: Final = 2
"""Of each Lease in a round: they are cheap, and processor time is counted in ticks of 10 ms."""
_CHANGES_OF_A_LIFE: Final = 3.5
"""Changes of a mapping between its creation and its end: a volume that lives for a day is reported
five or six times."""
_QUESTIONS: Final = 20
_PUBLISHED: Final = ("rbdnodes", "rbdmappings", "leases")
"""The resources that agents write and readers request."""
_QUOTA: Final = 2 << 30
"""Default limit of etcd's database in bytes (--quota-backend-bytes)."""
_CLUSTERS: Final = (1000, 5000)
_PAGE: Final = 500
"""Objects that rbdagent requests at a time."""
_MIB: Final = 1 << 20
_NAMES: Final = {
    "Lease renewal": "lease",
    "heartbeat of an agent": "heartbeat",
    "change of one mapping": "change",
    "new mapping": "map",
    "mapping that is gone": "unmap",
}
_ETCD: Final = "http://127.0.0.1:2379"
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
_BYTES: Final = {
    "apiserver_request_body_size_bytes_sum": "sent",
    "apiserver_response_sizes_sum": "answered",
    "etcd_network_client_grpc_received_bytes_total": "to_etcd",
    "etcd_mvcc_db_total_size_in_bytes": "db",
}
"""Metrics of the API server and of etcd, with the field of :class:`_Cost` that each fills."""
_METRIC: Final = re.compile(r"(\w+)\{(.*)\} (\S+)")
_LABEL: Final = re.compile(r'(\w+)="([^"]*)"')


def main() -> int:
    """Measure, print the ratios, and return 1 if a bound is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--agents", type=int, default=1000)
    parser.add_argument("--mappings", type=int, default=50, help="on each node")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--writes", type=int, default=50, help="of each kind in a round")
    parser.add_argument(
        "--changes", type=float, default=0.2, help="of what is mapped, a node and minute"
    )
    parser.add_argument("--inside", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    names = [f"node-{number:05}" for number in range(given.agents)]
    if given.inside is not None:
        return _told(_measure(given, names), given)
    with _control_plane(names) as (state_dir, netns):
        command = ["nsenter", f"--net=/run/netns/{netns}", "--", sys.executable, *sys.argv]
        return subprocess.run([*command, "--inside", state_dir], check=False).returncode


@contextlib.contextmanager
def _control_plane(nodes: list[str]) -> Iterator[tuple[Path, str]]:
    """Run etcd and an API server without other clients; yield their directory and namespace.

    The controller manager makes the default service account and is then stopped: nodes without a
    kubelet and pods that never start would keep it and the API server busy.
    """
    state_dir = cache_dir() / "bench-agents"
    name = hashlib.sha256(str(state_dir).encode()).hexdigest()[:6]
    network = Network(f"rbdbench-{name}")
    processes = Processes(state_dir)
    with _alone(state_dir):
        _clean(processes, network, state_dir)
        try:
            network.create()
            plane = ControlPlane(
                processes, network.netns, state_dir / "k8s", bin_dir(), nodes=nodes
            )
            plane.start()
            plane.wait_ready()
            plane.close()
            processes.stop("kube-controller-manager")
            yield state_dir, network.netns
        finally:
            _clean(processes, network, state_dir)


@contextlib.contextmanager
def _alone(state_dir: Path) -> Iterator[None]:
    state_dir.parent.mkdir(parents=True, exist_ok=True)
    with state_dir.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _clean(processes: Processes, network: Network, state_dir: Path) -> None:
    """Stop and remove everything of this run, or of an earlier run that was killed."""
    processes.stop_all()
    network.remove()
    shutil.rmtree(state_dir / "k8s", ignore_errors=True)


# --------------------------------------------------------------------------------------------------
# Cost of the servers
# --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cost:
    """Cost of one operation for the servers, averaged over many."""

    requests: dict[str, float]
    """By verb and code, as the API server counted them."""
    apiserver_ms: float
    etcd_ms: float
    """Milliseconds of processor."""
    sent: float
    answered: float
    to_etcd: float
    db: float
    """Bytes: request bodies, answers to lists, data sent to etcd, and growth of etcd's file."""
    ran_s: float
    """Seconds that all operations took."""

    @property
    def ms(self) -> float:
        """Processor milliseconds of both servers."""
        return self.apiserver_ms + self.etcd_ms

    @property
    def asked(self) -> float:
        """Requests of every kind."""
        return sum(self.requests.values())


class _Servers:
    """The API server and etcd: their request metrics, processor time and memory."""

    def __init__(self, state_dir: Path, admin: Credentials) -> None:
        processes = Processes(state_dir)
        self._pids = []
        for name in ("kube-apiserver", "etcd"):
            found = processes.get(name)
            assert found is not None
            self._pids.append(found.pid)
        self._apiserver = Connection(admin)
        self._etcd = Connection(Credentials(server=_ETCD))
        # Cores that each uses without requests.
        self._idle = (0.0, 0.0)

    def rest(self) -> None:
        """Measure the idle use of both servers, which :meth:`cost` subtracts."""
        before = self._cpu()
        time.sleep(_IDLE_S)  # the idle time is what is measured
        api, etcd = (now - then for now, then in zip(self._cpu(), before, strict=True))
        self._idle = (api / _IDLE_S, etcd / _IDLE_S)

    def memory(self) -> int:
        """Return the resident bytes of the API server."""
        return int(Path(f"/proc/{self._pids[0]}/statm").read_text().split()[1]) * _PAGE_BYTES

    def cost(self, kinds: tuple[str, ...], times: int, work: Callable[[], object]) -> _Cost:
        """Return the cost of one operation on resources; ``work`` runs it ``times`` times."""
        # The metrics are megabytes: they are read before the first and after the last reading of
        # the clocks.
        metrics = self._metrics(kinds)
        cpu, start = self._cpu(), time.monotonic()
        work()
        ran_s, spent = time.monotonic() - start, self._cpu()
        after = self._metrics(kinds)
        done = {key: after[key] - metrics.get(key, 0.0) for key in after}
        api_ms, etcd_ms = (
            1000 * (now - then - idle * ran_s) / times
            for now, then, idle in zip(spent, cpu, self._idle, strict=True)
        )
        return _Cost(
            requests={
                key: value / times
                for key, value in done.items()
                if key not in _BYTES.values() and value
            },
            apiserver_ms=api_ms,
            etcd_ms=etcd_ms,
            ran_s=ran_s,
            **{field: done.get(field, 0.0) / times for field in _BYTES.values()},
        )

    def _cpu(self) -> tuple[float, float]:
        """Return the processor seconds of each server since it was started."""
        api, etcd = map(cpu_s, self._pids)
        return api, etcd

    def _metrics(self, kinds: tuple[str, ...]) -> dict[str, float]:
        """Return the requests to resources, by verb and code, and the transferred bytes."""
        found: dict[str, float] = defaultdict(float)
        for line in self._apiserver.get("/metrics").decode().splitlines():
            asked = any(f'resource="{kind}"' in line for kind in kinds)
            if not asked or 'verb="WATCH"' in line:
                continue
            name, labels, value = _METRIC.fullmatch(line).groups()  # type: ignore[union-attr]
            label = dict(_LABEL.findall(labels))
            if name == "apiserver_request_total":
                found[f"{label['verb']} {label['code']}"] += float(value)
            elif name in _BYTES:
                found[_BYTES[name]] += float(value)
        for line in self._etcd.get("/metrics").decode().splitlines():
            name, _, value = line.rpartition(" ")
            if name in _BYTES:
                found[_BYTES[name]] += float(value)
        return found


# --------------------------------------------------------------------------------------------------
# Played agents and kubelets
# --------------------------------------------------------------------------------------------------

_Round = dict[str, _Cost]
"""Costs of a ``lease``, and of an agent's ``heartbeat``, ``change``, ``map`` and ``unmap``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Measured:
    """All measurements that the tables are calculated from."""

    agents: int
    start: _Cost
    """Cost of an agent that has not published before."""
    connection_ms: float
    """Processor milliseconds for opening a connection, which every write does."""
    rounds: list[_Round]
    who_holds: _Cost
    """Cost of one question about an image that a node has mapped."""
    crowded: _Cost
    """Cost of the same question among the RBDNodes of the largest cluster."""
    no_holder: _Cost
    """Cost of the same question if no node has it mapped: all RBDNodes and Leases are listed."""
    listing: _Cost
    """Cost of listing all objects once."""
    reader_bytes: int
    """Resident bytes of the process that lists them."""
    memory_bytes: int
    """Growth of the API server's resident bytes during the measurement."""


def _measure(given: argparse.Namespace, names: list[str]) -> _Measured:
    fleet = Fleet(given.inside / "k8s", names, mappings=given.mappings)
    admin = fleet.access("admin")
    servers = _Servers(given.inside, credentials(admin))
    # In a cluster the garbage collector watches every resource; it does not run here.
    watches = [Watch(admin, path) for path in (RBD_NODES, RBD_MAPPINGS, LEASES)]
    try:
        _renew(fleet, 0)
        servers.rest()
        before = servers.memory()
        start = servers.cost(_PUBLISHED, len(names), lambda: _start(fleet.agents))
        connection_ms = _connection_ms(servers, fleet)
        writes = min(given.writes, len(names))
        rounds = [_round(servers, fleet, turn, writes) for turn in range(1, given.rounds + 1)]
        memory_bytes = servers.memory() - before
        asking = fleet.agents[:_QUESTIONS]
        who_holds = servers.cost(_PUBLISHED, len(asking), lambda: _ask(asking))
        no_holder = servers.cost(_PUBLISHED, 1, fleet.agents[0].without_holder)
        listing = servers.cost(_PUBLISHED, 1, lambda: _list_all(fleet))
        # Without their RBDMappings: nothing compares the labels of those.
        fleet.add_rbd_nodes(max(_CLUSTERS))
        crowded = servers.cost(_PUBLISHED, len(asking), lambda: _ask(asking))
    finally:
        for watch in watches:
            watch.end()
    return _Measured(
        agents=len(names),
        start=start,
        connection_ms=connection_ms,
        rounds=rounds,
        who_holds=who_holds,
        crowded=crowded,
        no_holder=no_holder,
        listing=listing,
        reader_bytes=resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024,
        memory_bytes=memory_bytes,
    )


def _connection_ms(servers: _Servers, fleet: Fleet) -> float:
    """Return the servers' cost of a connection: requests with minus requests without opening it."""
    count = len(fleet.agents)
    opened = servers.cost(_PUBLISHED, count, lambda: together(Agent.connect, fleet.agents))
    asked = servers.cost(_PUBLISHED, count, lambda: together(Agent.ask, fleet.agents))
    for agent in fleet.agents:
        agent.hang_up()
    return opened.ms - asked.ms


def _round(servers: _Servers, fleet: Fleet, turn: int, writes: int) -> _Round:
    """Play all Leases and some of the agents; every round plays other agents."""
    agents = [
        fleet.agents[number % len(fleet.agents)]
        for number in range(turn * writes, (turn + 1) * writes)
    ]
    renewals = _RENEWALS * len(fleet.kubelets)
    lease = servers.cost(("leases",), renewals, lambda: _renew(fleet, turn))
    # The first one reads each object that was written at the start, once.
    _beat(agents, 2 * turn)
    heartbeat = servers.cost(_PUBLISHED, writes, lambda: _beat(agents, 2 * turn + 1))
    costs = {
        what: servers.cost(_PUBLISHED, writes, functools.partial(_each, agents, work, turn))
        for what, work in (("change", Agent.change), ("map", Agent.map), ("unmap", Agent.unmap))
    }
    return {"lease": lease, "heartbeat": heartbeat, **costs}


def _each(agents: list[Agent], work: Callable[[Agent, int], None], turn: int) -> None:
    together(lambda agent: work(agent, turn), agents)


def _ask(agents: list[Agent]) -> None:
    for agent in agents:
        agent.holders_of(7)


def _renew(fleet: Fleet, turn: int) -> None:
    for renewal in range(_RENEWALS * turn, _RENEWALS * (turn + 1)):
        together(functools.partial(Kubelet.renew, turn=renewal), fleet.kubelets)


def _start(agents: list[Agent]) -> None:
    _publish(agents, 0)
    _beat(agents, 0)


def _publish(agents: list[Agent], turn: int) -> None:
    together(functools.partial(Agent.publish, turn=turn), agents)


def _beat(agents: list[Agent], turn: int) -> None:
    together(functools.partial(Agent.renew, turn=turn), agents)


def _list_all(fleet: Fleet) -> None:
    """List all mappings as a user with read-only rights."""
    done = subprocess.run(
        [sys.executable, "-m", "rbdagent", "list", "-A", "-o", "name", "--kube-timeout", "60s",
         "--timeout", "120s", "--kubeconfig", str(fleet.access("rbdagent").kubeconfig)],
        cwd=CHECKOUT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    # The simulated observations are of a fixed day: every report is old, which is exit code 1.
    assert done.returncode == 1, done.stderr
    mapped = sum(len(agent.published.mappings) for agent in fleet.agents)
    assert len(done.stdout.splitlines()) == mapped


# --------------------------------------------------------------------------------------------------
# Results
# --------------------------------------------------------------------------------------------------


def _told(measured: _Measured, given: argparse.Namespace) -> int:
    middle = _middle(measured.rounds)
    _tell_costs(measured, middle)
    changes = given.changes / 60
    for nodes in _CLUSTERS:
        _tell_cluster(nodes, measured, middle, changes)
    bounds = _bounds(measured, middle, changes)
    for what, found, most in bounds:
        print(f"{'kept' if found <= most else 'MISSED'}: {what}: {found:.3g} (bound {most:g})")
    return int(any(found > most for _, found, most in bounds))


def _middle(rounds: list[_Round]) -> _Round:
    """Return the median cost of each operation over the rounds."""
    return {
        what: sorted((costs[what] for costs in rounds), key=lambda cost: cost.ms)[len(rounds) // 2]
        for what in rounds[0]
    }


def _tell_costs(measured: _Measured, middle: _Round) -> None:
    print(
        f"{'one':<34}{'requests':>9}{'API server':>13}{'etcd':>10}"
        f"{'sent':>11}{'to etcd':>11}  / renewal"
    )
    for name, what in _NAMES.items():
        ratios = sorted(costs[what].ms / costs["lease"].ms for costs in measured.rounds)
        _tell_cost(name, middle[what], _spread(ratios))
    lease = middle["lease"].ms
    for name, cost in (
        ("agent that starts", measured.start),
        ("who-holds", measured.who_holds),
        (f"who-holds, {max(_CLUSTERS)} RBDNodes", measured.crowded),
        ("who-holds without a holder", measured.no_holder),
        (f"list -A of {measured.agents} nodes", measured.listing),
    ):
        _tell_cost(name, cost, f"{cost.ms / lease:.1f}")
    print(
        f"requests of a heartbeat: {_kinds(middle['heartbeat'])}; of a start: "
        f"{_kinds(measured.start)}; of list -A: {_kinds(measured.listing)}\n"
        f"each write opens a connection: {measured.connection_ms:.2f} ms of it, "
        f"{measured.connection_ms / lease:.1f} renewals\n"
        f"all {measured.agents} agents had started after {measured.start.ran_s:.0f} s; since then "
        f"the API server has {measured.memory_bytes / _MIB:.0f} MiB more\n"
        f"list -A took {measured.listing.ran_s:.1f} s, {measured.listing.answered / _MIB:.0f} MiB "
        f"of answers and {measured.reader_bytes / _MIB:.0f} MiB of who asked"
    )


def _tell_cost(name: str, cost: _Cost, ratio: str) -> None:
    print(
        f"{name:<34}{cost.asked:>9.2f}{cost.apiserver_ms:>10.2f} ms{cost.etcd_ms:>7.2f} ms"
        f"{cost.sent / 1024:>7.1f} KiB{cost.to_etcd / 1024:>7.1f} KiB  {ratio}"
    )


def _spread(ratios: list[float]) -> str:
    return f"{statistics.median(ratios):.1f} (from {ratios[0]:.1f} to {ratios[-1]:.1f})"


def _kinds(cost: _Cost) -> str:
    return ", ".join(f"{number:g} {kind}" for kind, number in sorted(cost.requests.items()))


def _tell_cluster(nodes: int, measured: _Measured, middle: _Round, changes: float) -> None:
    """Print the load of a cluster with so many nodes.

    Args:
        nodes: number of nodes; the cost of a write does not depend on it.
        measured: for the costs that grow with the number of objects.
        middle: for the cost of a write.
        changes: changes of each node in a second.
    """
    asked = _of_change(middle, lambda cost: cost.asked)
    ours, leases = nodes * (1 / _HEARTBEAT_S + changes * asked), nodes / _LEASE_S
    spent = nodes * _spent(middle, changes) / 1000
    share = nodes / measured.agents
    to_etcd = nodes * (
        middle["heartbeat"].to_etcd / _HEARTBEAT_S
        + changes * _of_change(middle, lambda cost: cost.to_etcd)
    )
    objects, history = _kept_bytes(nodes, measured, middle, changes)
    print(
        f"{nodes} nodes: {nodes / _HEARTBEAT_S:.1f} heartbeats + "
        f"{nodes * changes * asked:.1f} writes of changes = {ours:.1f} requests/s "
        f"beside {leases:.0f} of Leases\n"
        f"  {spent:.2f} cores of API server and etcd beside "
        f"{nodes * middle['lease'].ms / _LEASE_S / 1000:.2f} for Leases\n"
        f"  {to_etcd / _MIB:.2f} MiB/s to etcd beside "
        f"{nodes * middle['lease'].to_etcd / _LEASE_S / _MIB:.2f} of Leases\n"
        f"  in etcd {objects / _MIB:.0f} MiB of objects + {history / _MIB:.0f} MiB not yet "
        f"compacted\n"
        f"  list -A: {math.ceil(nodes / _PAGE)} requests, "
        f"{share * measured.listing.answered / _MIB:.0f} MiB, "
        f"{share * measured.listing.ms / 1000:.1f} s of processor there"
    )


def _spent(costs: _Round, changes: float) -> float:
    """Return the processor milliseconds that a node's agent costs both servers in a second."""
    return costs["heartbeat"].ms / _HEARTBEAT_S + changes * _of_change(costs, lambda cost: cost.ms)


def _of_change(costs: _Round, value: Callable[[_Cost], float]) -> float:
    """Return a value of a change, averaged over the life of a mapping: new, changed, gone."""
    life = value(costs["map"]) + value(costs["unmap"])
    return (life + _CHANGES_OF_A_LIFE * value(costs["change"])) / (2 + _CHANGES_OF_A_LIFE)


def _kept_bytes(
    nodes: int, measured: _Measured, middle: _Round, changes: float
) -> tuple[float, float]:
    """Return the bytes of all objects in etcd and of the old revisions that are not compacted."""
    written = middle["heartbeat"].db / _HEARTBEAT_S + changes * _of_change(
        middle, lambda cost: cost.db
    )
    objects = nodes * measured.listing.answered / measured.agents
    return objects, nodes * written * _HISTORY_S


def _bounds(measured: _Measured, middle: _Round, changes: float) -> list[tuple[str, float, float]]:
    """Return a description, the measured value and the upper bound of every bound."""
    asked = _of_change(middle, lambda cost: cost.asked)
    # What has changed is read again before the next heartbeat.
    requests = (middle["heartbeat"].asked / _HEARTBEAT_S + changes * (asked + 1)) * _LEASE_S
    largest = max(_CLUSTERS)
    kept = sum(_kept_bytes(largest, measured, middle, changes))
    who_holds = measured.crowded.ms / middle["lease"].ms
    return [
        # The RBDNode and one RBDMapping are read before the Lease confirms them.
        ("requests of a heartbeat", middle["heartbeat"].asked, 3),
        ("requests of a change", middle["change"].asked, 1),
        ("requests of agents / of Leases", requests, 0.2),
        ("processor time of idle agents / of Leases", _share(measured, 0), 0.25),
        ("processor time of agents / of Leases", _share(measured, changes), 0.5),
        (f"one who-holds among {largest} nodes / a Lease renewal", who_holds, 20),
        (f"etcd's file with {largest} nodes / its default quota", kept / _QUOTA, 1),
    ]


def _share(measured: _Measured, changes: float) -> float:
    """Return the processor time for agents, compared with that for the Leases of kubelets."""
    return statistics.median(
        _spent(costs, changes) / (costs["lease"].ms / _LEASE_S) for costs in measured.rounds
    )


if __name__ == "__main__":
    sys.exit(main())
