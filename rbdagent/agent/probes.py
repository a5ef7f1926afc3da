"""The probes of kubelet, /livez and /readyz, on a port where no other client can delay them.

One thread serves all connections and never waits for one of them. A connection that has not sent
its request makes room for a new one, the oldest first, so idle connections neither use up a limit
nor fill the backlog. kubelet sends its request with the connection, and is answered at once.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
import time
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from rbdagent.errors import RbdagentError

if TYPE_CHECKING:
    from collections.abc import Callable

    from rbdagent.agent.cycle import CycleResult

HUNG_S: Final = 180.0
"""Longer than the time limit of any observation and of any step of an unmap."""
_MOST_CONNECTIONS: Final = 128
_MOST_BYTES: Final = 4096
"""Limit of a request. That of kubelet has less than 200 bytes
(pkg/probe/http/request.go@v1.36.3)."""
_WITHIN_S: Final = 5.0
"""Deadline for a client to send its request."""
_BACKLOG: Final = 1024
_REST_S: Final = 0.1
"""Pause if no connection can be accepted, for instance without a free descriptor."""


class Served(Protocol):
    """The part of an agent that the endpoint needs: its health, and its last cycle."""

    @property
    def seen(self) -> CycleResult | None:
        """The result of its last cycle; None before the first one."""

    @property
    def beat_age_s(self) -> float:
        """Seconds since its loop last made progress."""


class ProbeAnswer(NamedTuple):
    """Holds a status and a text, which ends with a newline."""

    status: int
    text: str


def health(path: str, agent: Served) -> ProbeAnswer | None:
    """Return the answer to a probe; None for another path."""
    match path.partition("?")[0]:
        case "/livez":
            age_s = agent.beat_age_s
            if age_s > HUNG_S:
                return ProbeAnswer(503, f"the loop hangs: no progress for {age_s:.0f} s\n")
            return ProbeAnswer(200, "ok\n")
        case "/readyz":
            if agent.seen is None:
                return ProbeAnswer(503, "no cycle has completed yet\n")
            return ProbeAnswer(200, "ok\n")
        case _:
            return None


def serve_probes(agent: Served, listen: str) -> None:
    """Serve the probes from a daemon thread.

    Args:
        agent: the agent.
        listen: ``ADDRESS:PORT``; an empty address means all addresses, also of IPv6 if the host
            has it.

    Raises:
        RbdagentError: the server cannot listen on this address.
    """
    host, _, port = listen.rpartition(":")
    try:
        server = _Server(host.strip("[]"), int(port), lambda path: health(path, agent))
    except (OSError, ValueError, OverflowError) as error:
        raise RbdagentError(
            f"cannot listen on {listen}: {error}", hint="--probes ADDRESS:PORT, as 127.0.0.1:9465"
        ) from error
    threading.Thread(target=server.serve, name="probes", daemon=True).start()


class _Client:
    """A connection that has not sent its whole request."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.deadline = time.monotonic() + _WITHIN_S
        self.received = b""


class _Server:
    """Answers GET requests, one per connection."""

    def __init__(self, host: str, port: int, answer: Callable[[str], ProbeAnswer | None]) -> None:
        six = ":" in host or (not host and socket.has_dualstack_ipv6())
        self._listener = socket.create_server(
            (host, port),
            family=socket.AF_INET6 if six else socket.AF_INET,
            backlog=_BACKLOG,
            dualstack_ipv6=six and not host,
        )
        self._listener.settimeout(0)
        self._answer = answer
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._clients: dict[int, _Client] = {}
        """By descriptor, the oldest first."""

    def serve(self) -> None:
        """Serve until the process ends."""
        while True:
            for key, _ in self._selector.select(self._longest_wait_s()):
                if key.data is None:
                    self._accept()
                elif key.fd in self._clients:
                    # Else it was closed for a new one in this turn.
                    self._receive(self._clients[key.fd])
            self._close_late()

    def _longest_wait_s(self) -> float | None:
        """Return the time until the oldest client is late; None without clients."""
        oldest = next(iter(self._clients.values()), None)
        return None if oldest is None else max(oldest.deadline - time.monotonic(), 0.0)

    def _accept(self) -> None:
        """Accept one connection; the others are accepted in the next turns, between requests."""
        try:
            connection, _ = self._listener.accept()
        except BlockingIOError:
            return
        except OSError:
            # The client is gone, or the process has no free descriptor.
            time.sleep(_REST_S)
            return
        connection.settimeout(0)
        if len(self._clients) >= _MOST_CONNECTIONS:
            self._close(next(iter(self._clients.values())))
        client = _Client(connection)
        self._clients[connection.fileno()] = client
        self._selector.register(connection, selectors.EVENT_READ, client)
        self._receive(client)

    def _receive(self, client: _Client) -> None:
        """Read what is there; answer a whole request, and close what ends or is too long."""
        try:
            part = client.connection.recv(_MOST_BYTES)
        except BlockingIOError:
            return
        except OSError:
            part = b""
        client.received += part
        is_whole = b"\r\n\r\n" in client.received
        if is_whole:
            # A response is smaller than the buffer of the socket, so this does not block.
            with contextlib.suppress(OSError):
                client.connection.sendall(_response(client.received, self._answer))
        if is_whole or not part or len(client.received) > _MOST_BYTES:
            self._close(client)

    def _close_late(self) -> None:
        now = time.monotonic()
        for client in [found for found in self._clients.values() if found.deadline <= now]:
            self._close(client)

    def _close(self, client: _Client) -> None:
        del self._clients[client.connection.fileno()]
        self._selector.unregister(client.connection)
        client.connection.close()


def _response(request: bytes, answer: Callable[[str], ProbeAnswer | None]) -> bytes:
    method, _, rest = request.partition(b"\r\n")[0].decode("latin-1").partition(" ")
    found = answer(rest.partition(" ")[0]) if method == "GET" else None
    status, text = found or ProbeAnswer(404, "/livez, /readyz\n")
    head = (
        f"HTTP/1.1 {status} {HTTPStatus(status).phrase}",
        "Content-Type: text/plain; charset=utf-8",
        f"Content-Length: {len(text.encode())}",
        "Connection: close",
    )
    return ("\r\n".join((*head, "", "")) + text).encode()
