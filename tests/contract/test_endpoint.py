"""The HTTP endpoint of the agent, over real sockets of both address families."""

from __future__ import annotations

import contextlib
import http.client
import socket
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pytest

from rbdagent.agent import http as endpoint
from rbdagent.agent.http import serve
from rbdagent.errors import RbdagentError
from tests.lab.network import free_port
from tests.lab.processes import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@dataclass(frozen=True)
class Served:
    """What the endpoint reads from an agent that has no snapshot yet."""

    seen: None = None
    beat_age_s: float = 0.0


def status(host: str, port: int, path: str) -> int:
    connection = http.client.HTTPConnection(host, port, timeout=30)
    try:
        connection.request("GET", path)
        return connection.getresponse().status
    finally:
        connection.close()


def has_six() -> bool:
    """Return whether the loopback interface of this machine has IPv6."""
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


LISTENS: dict[str, tuple[str, ...]] = {"": ("127.0.0.1",), "127.0.0.1": ("127.0.0.1",)}
if has_six():
    LISTENS |= {"": ("127.0.0.1", "::1"), "[::1]": ("::1",)}


@pytest.mark.parametrize(("listen", "reached"), LISTENS.items())
def test_agent_listens_on_the_given_address_in_both_families(
    listen: str, reached: tuple[str, ...]
) -> None:
    port = free_port()
    serve(Served(), f"{listen}:{port}")
    for host in reached:
        assert status(host, port, "/livez") == 200
        assert status(host, port, "/readyz") == 503
        assert status(host, port, "/") == 404


def test_metrics_contain_the_footprint_of_the_agent() -> None:
    """The standard names of Prometheus' client libraries, from /proc/self."""
    port = free_port()
    serve(Served(), f"127.0.0.1:{port}")
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request("GET", "/metrics")
        lines = connection.getresponse().read().decode().splitlines()
    finally:
        connection.close()
    values = dict(line.split() for line in lines if line.startswith("process_"))
    assert float(values["process_resident_memory_bytes"]) > 1 << 20
    assert float(values["process_open_fds"]) > 3
    assert {"process_cpu_seconds_total", "process_start_time_seconds"} <= values.keys()


HALF: Final = b"GET /metrics HTTP/1.1\r\nHost: agent\r\n"
"""A request without its end."""


@pytest.fixture
def port() -> int:
    found = free_port()
    serve(Served(), f"127.0.0.1:{found}")
    return found


@pytest.fixture
def half_sent(port: int) -> Iterator[Callable[[int], list[socket.socket]]]:
    """Yield a function that opens connections that send half a request."""
    with contextlib.ExitStack() as stack:

        def connect(count: int) -> list[socket.socket]:
            found = []
            for _ in range(count):
                found.append(stack.enter_context(socket.create_connection(("127.0.0.1", port), 30)))
                found[-1].sendall(HALF)
            return found

        yield connect


def test_900_half_sent_requests_do_not_block_the_endpoint(
    port: int, half_sent: Callable[[int], list[socket.socket]]
) -> None:
    before = threading.active_count()
    half_sent(900)
    assert {status("127.0.0.1", port, path) for path in ("/metrics", "/livez")} == {200}
    assert threading.active_count() - before <= endpoint._MOST_CONNECTIONS


def test_request_sent_byte_by_byte_is_disconnected(
    monkeypatch: pytest.MonkeyPatch,
    half_sent: Callable[[int], list[socket.socket]],
) -> None:
    """Each byte arrives in time, but the end of the request does not."""
    monkeypatch.setattr(endpoint, "_WITHIN_S", 0.2)
    (connection,) = half_sent(1)
    connection.settimeout(0.05)

    def is_ended() -> bool:
        try:
            connection.sendall(b"x")
            return not connection.recv(1)
        except TimeoutError:
            return False
        except ConnectionError:
            return True

    wait_until(is_ended, timeout_s=60, what="the end of the connection")


def test_request_is_read_up_to_its_limit() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(b"x" * 2 * endpoint._MOST_BYTES)
        with pytest.raises(ConnectionError):
            endpoint._Request(ours).readall()
        assert len(ours.recv(2 * endpoint._MOST_BYTES)) == endpoint._MOST_BYTES


def test_incomplete_request_is_not_answered(
    half_sent: Callable[[int], list[socket.socket]],
) -> None:
    (connection,) = half_sent(1)
    connection.shutdown(socket.SHUT_WR)
    assert connection.recv(1) == b""


def test_scrape_survives_many_half_sent_requests(
    port: int,
    half_sent: Callable[[int], list[socket.socket]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Connections that are opened later do not interrupt a scrape."""
    begun, go_on = threading.Event(), threading.Event()

    def answer(*_: object) -> tuple[int, str, bytes]:
        begun.set()
        assert go_on.wait(60)
        return 200, "text/plain", b"ok\n"

    monkeypatch.setattr(endpoint, "_answer", answer)
    scrape = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    scrape.request("GET", "/metrics")
    assert begun.wait(60)
    half_sent(2 * endpoint._MOST_CONNECTIONS)
    go_on.set()
    assert scrape.getresponse().status == 200
    scrape.close()


def test_address_in_use_is_reported() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as taken,
        pytest.raises(RbdagentError, match="cannot listen on"),
    ):
        serve(Served(), f"127.0.0.1:{taken.getsockname()[1]}")
