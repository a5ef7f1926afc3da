"""kubelet's probes are answered whatever other clients do on the agent's ports."""

from __future__ import annotations

import contextlib
import http.client
import socket
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Final

import pytest

from rbdagent.agent import http as endpoint
from rbdagent.agent import probes
from rbdagent.agent.http import serve
from rbdagent.agent.probes import serve_probes
from rbdagent.errors import RbdagentError
from tests.lab.network import free_port
from tests.lab.processes import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

_PROBES: Final = 20
_FLOOD: Final = """
import collections, ctypes, itertools, signal, socket, sys
ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
held = collections.deque()
for number, port in enumerate(itertools.cycle(map(int, sys.argv[1:]))):
    one = socket.socket()
    one.settimeout(0.5)
    try:
        one.connect(("127.0.0.1", port))
        one.sendall(b"GET /metrics HTTP/1.1\\r\\n" + (b"", b"\\r\\n", b"\\r\\n")[number % 3])
    except OSError:
        pass
    held.append(one)
    if len(held) > 600:
        held.popleft().close()
    if number == 1200:
        print("flooded", flush=True)
"""
"""Opens connections without end and keeps the last 600: with half a request, and with an unread
answer. It ends with its parent: an interrupt of the tests kills that without a clean-up."""
_SCRAPE_S: Final = 0.05
"""Processor time of a scrape of a node with some hundred mappings."""


class Agent:
    """What the probes read from an agent."""

    seen = None
    beat_age_s = 0.0


class Ports:
    """The two ports of an agent."""

    def __init__(self) -> None:
        self.agent = Agent()
        self.metrics, self.probes = free_port(), free_port()
        serve(self.agent, f"127.0.0.1:{self.metrics}")
        serve_probes(self.agent, f"127.0.0.1:{self.probes}")

    def probe(self, path: str = "/livez", method: str = "GET") -> tuple[int, str]:
        connection = http.client.HTTPConnection("127.0.0.1", self.probes, timeout=30)
        try:
            connection.request(method, path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()


@pytest.fixture
def ports() -> Ports:
    return Ports()


def connected(port: int, sent: bytes = b"") -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port), 30)
    connection.sendall(sent)
    return connection


@pytest.fixture
def flood(ports: Ports) -> Iterator[None]:
    """Run a process that opens connections to both ports without end."""
    command = [sys.executable, "-c", _FLOOD, str(ports.metrics), str(ports.probes)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as attacker:
        assert attacker.stdout is not None
        assert attacker.stdout.readline() == "flooded\n"
        yield
        attacker.kill()


def scrape(_: object) -> bytes:
    end = time.thread_time() + _SCRAPE_S
    while time.thread_time() < end:
        pass
    return b"x" * 500_000


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint, "generate_latest", scrape)


@pytest.mark.usefixtures("large", "flood")
def test_flood_of_connections_does_not_delay_the_probes(ports: Ports) -> None:
    """Without a NetworkPolicy, any pod can connect to both ports.

    Probes of the metrics port had no answer in 5 s, and kubelet restarted the agent.
    """
    assert [ports.probe() for _ in range(_PROBES)] == [(200, "ok\n")] * _PROBES


@pytest.mark.parametrize("sent", [b"", b"GET /livez HTTP/1.1\r\nHost: x\r\n"], ids=["idle", "half"])
def test_hundreds_of_open_connections_do_not_delay_the_probes(ports: Ports, sent: bytes) -> None:
    with contextlib.ExitStack() as stack:
        for port in (ports.metrics, ports.probes):
            for _ in range(400):
                stack.enter_context(connected(port, sent))
        assert ports.probe() == (200, "ok\n")


def test_probes_show_a_loop_that_hangs_and_one_that_has_not_begun(ports: Ports) -> None:
    assert ports.probe("/readyz") == (503, "no cycle has completed yet\n")
    ports.agent.beat_age_s = probes.HUNG_S + 1
    assert ports.probe("/livez?verbose") == (503, "the loop hangs: no progress for 181 s\n")


def test_nothing_else_is_served(ports: Ports) -> None:
    assert ports.probe("/metrics")[0] == 404
    assert ports.probe("/livez", "POST")[0] == 404


@pytest.mark.parametrize(
    "sent", [b"GET /livez HTTP/1.1\r\n" + b"x" * probes._MOST_BYTES, b"\xff\r\n\r\n", b"\r\n\r\n"]
)
def test_request_that_is_no_probe_ends_its_connection(ports: Ports, sent: bytes) -> None:
    with connected(ports.probes, sent) as connection:
        answer = b""
        with contextlib.suppress(ConnectionResetError):
            while part := connection.recv(4096):
                answer += part
    assert answer == b"" or b" 404 " in answer
    assert ports.probe()[0] == 200


def test_connection_without_a_request_is_closed(
    ports: Ports, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probes, "_WITHIN_S", 0.05)
    with connected(ports.probes) as connection:
        assert connection.recv(1) == b""


def test_request_may_arrive_byte_by_byte(ports: Ports) -> None:
    with connected(ports.probes) as connection:
        for byte in b"GET /livez HTTP/1.1\r\n\r\n":
            connection.sendall(bytes((byte,)))
        assert connection.recv(12) == b"HTTP/1.1 200"


def test_client_that_resets_its_connection_ends_nothing(ports: Ports) -> None:
    connection = connected(ports.probes, b"GET")
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    connection.close()
    wait_until(lambda: ports.probe()[0] == 200, timeout_s=60, what="an answer")


def test_both_address_families_are_served() -> None:
    port = free_port()
    serve_probes(Agent(), f":{port}")
    hosts = ["127.0.0.1", "::1"] if socket.has_dualstack_ipv6() else ["127.0.0.1"]
    for host in hosts:
        with socket.create_connection((host, port), 30) as connection:
            connection.sendall(b"GET /livez HTTP/1.0\r\n\r\n")
            assert connection.recv(12) == b"HTTP/1.1 200"


def test_address_in_use_is_reported() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as taken,
        pytest.raises(RbdagentError, match="cannot listen on"),
    ):
        serve_probes(Agent(), f"127.0.0.1:{taken.getsockname()[1]}")
