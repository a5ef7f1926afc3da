"""What the agent serves, over real sockets of both families."""

from __future__ import annotations

import contextlib
import http.client
import socket
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pytest

from rbdagent.agent import endpoint
from rbdagent.agent.endpoint import serve
from rbdagent.errors import RbdagentError
from tests.lab.network import free_port
from tests.lab.processes import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@dataclass(frozen=True)
class Served:
    """What the endpoint asks of an agent that has not looked yet."""

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
    """Tell whether this machine's loopback has IPv6."""
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


LISTENS: dict[str, tuple[str, ...]] = {"": ("127.0.0.1",), "127.0.0.1": ("127.0.0.1",)}
if has_six():
    LISTENS |= {"": ("127.0.0.1", "::1"), "[::1]": ("::1",)}


@pytest.mark.parametrize(("listen", "reached"), LISTENS.items())
def test_an_agent_listens_where_it_is_told_in_both_families(
    listen: str, reached: tuple[str, ...]
) -> None:
    port = free_port()
    serve(Served(), f"{listen}:{port}")
    for host in reached:
        assert status(host, port, "/livez") == 200
        assert status(host, port, "/readyz") == 503
        assert status(host, port, "/") == 404


HALF: Final = b"GET /metrics HTTP/1.1\r\nHost: agent\r\n"
"""A request without its end."""


@pytest.fixture
def port() -> int:
    found = free_port()
    serve(Served(), f"127.0.0.1:{found}")
    return found


@pytest.fixture
def half_sent(port: int) -> Iterator[Callable[[int], list[socket.socket]]]:
    """Return what opens connections that send half a request."""
    with contextlib.ExitStack() as stack:

        def connect(count: int) -> list[socket.socket]:
            found = []
            for _ in range(count):
                found.append(stack.enter_context(socket.create_connection(("127.0.0.1", port), 30)))
                found[-1].sendall(HALF)
            return found

        yield connect


def test_900_half_sent_requests_leave_it_answering_with_a_bound_on_threads(
    port: int, half_sent: Callable[[int], list[socket.socket]]
) -> None:
    before = threading.active_count()
    half_sent(900)
    assert {status("127.0.0.1", port, path) for path in ("/metrics", "/livez")} == {200}
    assert threading.active_count() - before <= endpoint._MOST_CONNECTIONS


def test_a_request_that_is_sent_byte_by_byte_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
    half_sent: Callable[[int], list[socket.socket]],
) -> None:
    """Each byte comes in time, and the end of them does not."""
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


def test_no_more_is_read_of_a_request_than_a_request_needs() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(b"x" * 2 * endpoint._MOST_BYTES)
        with pytest.raises(ConnectionError):
            endpoint._Request(ours).readall()
        assert len(ours.recv(2 * endpoint._MOST_BYTES)) == endpoint._MOST_BYTES


def test_what_is_sent_by_half_and_left_is_not_answered(
    half_sent: Callable[[int], list[socket.socket]],
) -> None:
    (connection,) = half_sent(1)
    connection.shutdown(socket.SHUT_WR)
    assert connection.recv(1) == b""


def test_a_connection_that_has_asked_stays_where_others_have_not(
    port: int,
    half_sent: Callable[[int], list[socket.socket]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A scrape is not cut off by who opens connections after it."""
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


def test_where_nobody_can_listen_the_words_say_so() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as taken,
        pytest.raises(RbdagentError, match="cannot listen on"),
    ):
        serve(Served(), f"127.0.0.1:{taken.getsockname()[1]}")
