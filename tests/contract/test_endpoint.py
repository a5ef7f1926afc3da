"""What the agent serves, over real sockets of both families."""

from __future__ import annotations

import http.client
import socket
from dataclasses import dataclass

import pytest

from rbdagent.agent.endpoint import serve
from rbdagent.errors import RbdagentError
from tests.lab.network import free_port


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


def test_where_nobody_can_listen_the_words_say_so() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as taken,
        pytest.raises(RbdagentError, match="cannot listen on"),
    ):
        serve(Served(), f"127.0.0.1:{taken.getsockname()[1]}")
