"""What the agent serves over HTTP: /metrics, /livez, /readyz, and nothing else."""

from __future__ import annotations

import socket
import socketserver
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Final, Protocol

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from rbdagent.agent.metrics import Metrics
from rbdagent.errors import RbdagentError

if TYPE_CHECKING:
    from rbdagent.agent.loop import Seen

_HUNG_S: Final = 180.0
"""Longer than any look and any step of an act may take, each with its own time limit."""

_POLL_S: Final = 3600.0
"""How often the server looks whether it shall stop, which nobody asks of it."""


class Served(Protocol):
    """What is asked of an agent: is it well, and what has it seen?"""

    @property
    def seen(self) -> Seen | None:
        """Its last look."""

    @property
    def beat_age_s(self) -> float:
        """Seconds since its last step."""


def serve(agent: Served, listen: str) -> None:
    """Serve an agent's health and metrics from a thread that nobody waits for.

    Args:
        agent: whose.
        listen: ``ADDRESS:PORT``; an empty address is every one, of IPv6 too where there is any.

    Raises:
        RbdagentError: it cannot be listened there.
    """
    host, _, port = listen.rpartition(":")
    registry = CollectorRegistry()
    registry.register(Metrics(lambda: agent.seen))

    class Handler(BaseHTTPRequestHandler):
        """Answers one request."""

        def do_GET(self) -> None:
            """Answer GET."""
            status, kind, body = _answer(self.path, agent, registry)
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_args: object) -> None:
            """Say nothing: one line a scrape is no news."""

    try:
        server = _Server(host.strip("[]"), int(port), Handler)
    except (OSError, ValueError, OverflowError) as error:
        raise RbdagentError(
            f"cannot listen on {listen}: {error}", hint="--listen ADDRESS:PORT, as 127.0.0.1:9464"
        ) from error
    threading.Thread(target=server.serve_forever, args=(_POLL_S,), daemon=True).start()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, host: str, port: int, handler: type[BaseHTTPRequestHandler]) -> None:
        """Listen; one socket takes both families where no address is given."""
        self._takes_both = not host and socket.has_dualstack_ipv6()
        six = self._takes_both or ":" in host
        self.address_family = socket.AF_INET6 if six else socket.AF_INET
        super().__init__((host, port), handler)

    def server_bind(self) -> None:
        """Bind, and ask no name server who we are, as HTTPServer would."""
        if self._takes_both:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        socketserver.TCPServer.server_bind(self)

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing of a client that hung up before it had all."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]


def _answer(path: str, agent: Served, registry: CollectorRegistry) -> tuple[int, str, bytes]:
    plain = "text/plain; charset=utf-8"
    match path.partition("?")[0]:
        case "/metrics":
            return 200, CONTENT_TYPE_LATEST, generate_latest(registry)
        case "/livez":
            age_s = agent.beat_age_s
            if age_s > _HUNG_S:
                return 503, plain, f"the loop hangs: no step for {age_s:.0f} s\n".encode()
            return 200, plain, b"ok\n"
        case "/readyz":
            if agent.seen is None:
                return 503, plain, b"nothing was observed yet\n"
            return 200, plain, b"ok\n"
        case _:
            return 404, plain, b"/metrics, /livez, /readyz\n"
