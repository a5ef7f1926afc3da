"""The agent's HTTP endpoint: only /metrics, /livez and /readyz.

Its connections are limited, and a client that is slow delays the others. So kubelet's probes have
another port: `probes.py`.
"""

from __future__ import annotations

import contextlib
import io
import socket
import socketserver
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Final

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from rbdagent.agent.metrics import Metrics
from rbdagent.agent.probes import Served, health
from rbdagent.agent.processes import ProcessMetrics
from rbdagent.collector import Workers
from rbdagent.errors import RbdagentError
from rbdagent.log import logger

if TYPE_CHECKING:
    from typing_extensions import Buffer


_POLL_S: Final = 3600.0
"""Interval at which the server checks for a request to stop. The agent never sends one."""

_WITHIN_S: Final = 5.0
"""Deadline for a client to send the whole request, and to read the whole response. The probes of
kubelet have the same timeout (timeoutSeconds in the chart)."""
_MOST_BYTES: Final = 8192
"""Limit of a request. Without it, http.server reads up to a hundred headers of 64 KiB each."""
_MOST_CONNECTIONS: Final = 32
"""Limit of open connections, each with a thread; Prometheus and kubelet have one or two."""


def serve(
    agent: Served, listen: str, *, problems_only: bool = False, workers: Workers | None = None
) -> None:
    """Serve an agent's health and metrics from a daemon thread.

    Args:
        agent: the agent.
        listen: ``ADDRESS:PORT``; an empty address means all addresses, also of IPv6 if the host
            has it.
        problems_only: see :class:`Metrics`.
        workers: the agent's processes that observe.

    Raises:
        RbdagentError: the server cannot listen on this address.
    """
    host, _, port = listen.rpartition(":")
    registry = CollectorRegistry()
    registry.register(Metrics(lambda: agent.seen, problems_only=problems_only))
    registry.register(ProcessCollector(registry=None))
    registry.register(ProcessMetrics(workers or Workers(ceph=None, node=None)))

    class Handler(BaseHTTPRequestHandler):
        """Answers one request."""

        def setup(self) -> None:
            """Limit the size of the request and the time to read it."""
            super().setup()
            self.rfile.close()
            self.rfile = io.BufferedReader(_Request(self.connection))

        def do_GET(self) -> None:
            """Answer GET."""
            server.request_sent(self.connection)
            self.connection.settimeout(_WITHIN_S)
            status, kind, body = _answer(self.path, agent, registry)
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_args: object) -> None:
            """Write nothing: a line for every scrape is useless."""

    try:
        server = _Server(host.strip("[]"), int(port), Handler)
    except (OSError, ValueError, OverflowError) as error:
        raise RbdagentError(
            f"cannot listen on {listen}: {error}", hint="--listen ADDRESS:PORT, as 127.0.0.1:9464"
        ) from error
    threading.Thread(target=server.serve_forever, args=(_POLL_S,), daemon=True).start()


class _Request(io.RawIOBase):
    """A client's request, with limits of size and time; an early end is an error."""

    def __init__(self, connection: socket.socket) -> None:
        """Start the clock."""
        self._connection = connection
        self._deadline = time.monotonic() + _WITHIN_S
        self._left = _MOST_BYTES

    def readable(self) -> bool:
        """Return True: BufferedReader refuses any other stream."""
        return True

    def readinto(self, buffer: Buffer) -> int:
        """Read the available bytes, or wait for some; io's hook.

        Raises:
            TimeoutError: the deadline of the whole request has passed.
            ConnectionError: the request is too long, or the client closed the connection before
                its end.
        """
        left_s = self._deadline - time.monotonic()
        if left_s <= 0:
            raise TimeoutError
        self._connection.settimeout(left_s)
        # A size of 0 would mean the whole buffer.
        wanted = min(len(memoryview(buffer)), self._left)
        count = self._connection.recv_into(buffer, wanted) if wanted else 0
        if not count:
            # http.server would answer an incomplete request.
            raise ConnectionAbortedError
        self._left -= count
        return count


class _Server(ThreadingHTTPServer):
    """Serves a limited number of connections; closes those without a request first."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, host: str, port: int, handler: type[BaseHTTPRequestHandler]) -> None:
        """Listen; without an address, one socket accepts both IPv4 and IPv6."""
        self._open: dict[object, bool] = {}
        """The open connections, the oldest first, and whether each one has sent a request."""
        self._changed = threading.Condition()
        self._takes_both = not host and socket.has_dualstack_ipv6()
        six = self._takes_both or ":" in host
        self.address_family = socket.AF_INET6 if six else socket.AF_INET
        super().__init__((host, port), handler)

    def server_bind(self) -> None:
        """Bind without a lookup of the host name, which HTTPServer does."""
        if self._takes_both:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        socketserver.TCPServer.server_bind(self)

    def process_request(self, request: Any, client_address: Any) -> None:  # noqa: ANN401 - stdlib's
        """Serve a connection in a separate thread."""
        with self._changed:
            if len(self._open) >= _MOST_CONNECTIONS:
                self._drop_one()
            self._open[request] = False
        super().process_request(request, client_address)

    def _drop_one(self) -> None:
        """Close the oldest connection without a request, else the oldest.

        Raises:
            TimeoutError: its thread does not end. The new connection is then refused.
        """
        chosen: Any = min(self._open, key=self._open.__getitem__)
        with contextlib.suppress(OSError):
            chosen.shutdown(socket.SHUT_RDWR)
        if not self._changed.wait_for(lambda: chosen not in self._open, timeout=_WITHIN_S):
            raise TimeoutError

    def request_sent(self, request: object) -> None:
        """Record that a connection has sent its request."""
        with self._changed:
            self._open[request] = True

    def shutdown_request(self, request: Any) -> None:  # noqa: ANN401 - stdlib's
        """Close a connection, also after an error."""
        super().shutdown_request(request)
        with self._changed:
            self._open.pop(request, None)
            self._changed.notify_all()

    def handle_error(self, request: object, client_address: object) -> None:
        """Log an error, except for a client that closed the connection or was too slow."""
        del request, client_address
        if not isinstance(sys.exc_info()[1], (ConnectionError, TimeoutError)):
            logger().exception("the HTTP server failed: this is a defect of rbdagent")


def _answer(path: str, agent: Served, registry: CollectorRegistry) -> tuple[int, str, bytes]:
    plain = "text/plain; charset=utf-8"
    match path.partition("?")[0]:
        case "/metrics":
            return 200, CONTENT_TYPE_LATEST, generate_latest(registry)
        case _:
            found = health(path, agent)
            if found is None:
                return 404, plain, b"/metrics, /livez, /readyz\n"
            return found.status, plain, found.text.encode()
