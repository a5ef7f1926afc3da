"""The plugin with the real kubectl and the real rbdagent: a verb's output arrives unchanged.

Only the API server is played, because no kubelet runs: it serves two pods and runs their commands
on this machine. It uses the real protocol (v5.channel.k8s.io: a channel byte, then data).
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import pty
import struct
import subprocess
import sys
import threading
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.lab.install import CHECKOUT, bin_dir
from tests.support.cli_runner import ORPHAN, process, read_terminal
from tests.support.whole_plugin import plugin_directory

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator
    from pathlib import Path

STDIN, STDOUT, STDERR, ERROR, CLOSE = 0, 1, 2, 3, 255
_BINARY, _END = 0x82, 0x88
_PROTOCOL: Final = "v5.channel.k8s.io"


_RUNNING: Final = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}


def _pod(number: int) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"agent-{number}",
            "namespace": "rbdagent",
            "ownerReferences": [{"kind": "DaemonSet", "uid": "uid-1", "controller": True}],
        },
        "spec": {
            "nodeName": f"worker-{number}",
            "serviceAccountName": "rbdagent",
            "containers": [{"name": "rbdagent"}],
        },
        "status": {
            "phase": "Running",
            "conditions": [{"type": "Ready", "status": "True"}],
            "containerStatuses": [{"name": "rbdagent", "state": _RUNNING}],
        },
    }


BINDING: Final = {
    "subjects": [{"kind": "ServiceAccount", "namespace": "rbdagent", "name": "rbdagent"}]
}
DAEMON_SET: Final = {
    "metadata": {"name": "rbdagent", "namespace": "rbdagent", "uid": "uid-1"},
    "spec": {"template": {"spec": {"serviceAccountName": "rbdagent"}}},
}


def _resources(group: str, name: str, kind: str, *, namespaced: bool = True) -> dict[str, Any]:
    resource = {
        "name": name,
        "kind": kind,
        "namespaced": namespaced,
        "singularName": kind.lower(),
        "verbs": ["get", "list"],
    }
    return {"kind": "APIResourceList", "groupVersion": group, "resources": [resource]}


def _list(group: str, kind: str, *items: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": group, "kind": f"{kind}List", "items": [*items]}


def _group(version: str) -> dict[str, Any]:
    named = {"groupVersion": version, "version": "v1"}
    return {"name": version.partition("/")[0], "versions": [named], "preferredVersion": named}


_RBAC: Final = "rbac.authorization.k8s.io/v1"
ANSWERS: Final[dict[str, dict[str, Any]]] = {
    "/api": {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []},
    "/apis": {
        "kind": "APIGroupList",
        "apiVersion": "v1",
        "groups": [_group("apps/v1"), _group(_RBAC)],
    },
    "/api/v1": _resources("v1", "pods", "Pod"),
    "/apis/apps/v1": _resources("apps/v1", "daemonsets", "DaemonSet"),
    f"/apis/{_RBAC}": _resources(
        _RBAC, "clusterrolebindings", "ClusterRoleBinding", namespaced=False
    ),
    f"/apis/{_RBAC}/clusterrolebindings": _list(_RBAC, "ClusterRoleBinding", BINDING),
    "/apis/apps/v1/namespaces/rbdagent/daemonsets": _list("apps/v1", "DaemonSet", DAEMON_SET),
    "/api/v1/namespaces/rbdagent/pods": _list("v1", "Pod", _pod(1), _pod(2)),
    "/api/v1/namespaces/rbdagent/pods/agent-1": _pod(1),
    "/api/v1/namespaces/rbdagent/pods/agent-2": _pod(2),
}


class ApiServer(BaseHTTPRequestHandler):
    """HTTP handler that answers kubectl."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        path, _, query = self.path.partition("?")
        if path.endswith("/exec"):
            self._upgrade()
            asked = urllib.parse.parse_qs(query)
            terminal = "tty" in asked
            streamed = "stdin" in asked and not terminal
            _Channels(self.connection).run(asked["command"], with_stdin=streamed, terminal=terminal)
            self.close_connection = True
            return
        missing = {"kind": "Status", "status": "Failure", "reason": "NotFound", "code": 404}
        body = json.dumps(ANSWERS.get(path, missing)).encode()
        self.send_response(200 if path in ANSWERS else 404)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _upgrade(self) -> None:
        # RFC 6455, 4.2.2
        key = self.headers["Sec-WebSocket-Key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
        accept = base64.b64encode(hashlib.sha1(key.encode()).digest())  # noqa: S324
        self.send_response(101)
        self.send_header("Upgrade", "websocket")
        self.send_header("Connection", "Upgrade")
        self.send_header("Sec-WebSocket-Accept", accept.decode())
        self.send_header("Sec-WebSocket-Protocol", _PROTOCOL)
        self.end_headers()
        self.wfile.flush()

    def log_message(self, *_: object) -> None:
        """Log nothing."""


class _Channels:
    """One exec: a websocket and the command that runs at its end."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection

    def run(self, command: list[str], *, with_stdin: bool, terminal: bool) -> None:
        assert command[0] == "rbdagent"
        given = self._stdin() if with_stdin else b""
        done = subprocess.run(
            [sys.executable, "-m", *command],
            input=given,
            capture_output=True,
            check=False,
            cwd=CHECKOUT,
        )
        self._send(STDOUT, done.stdout)
        # A terminal merges both streams.
        self._send(STDOUT if terminal else STDERR, done.stderr)
        self._send(ERROR, json.dumps(_status(done.returncode)).encode())
        self._frame(_END, struct.pack("!H", 1000))

    def _send(self, channel: int, data: bytes) -> None:
        for start in range(0, len(data), 32768):
            self._frame(_BINARY, bytes([channel]) + data[start : start + 32768])

    def _frame(self, kind: int, data: bytes) -> None:
        length = bytes([len(data)]) if len(data) < 126 else struct.pack("!BH", 126, len(data))
        self._connection.sendall(bytes([kind]) + length + data)

    def _stdin(self) -> bytes:
        """Read what kubectl sends until it closes the channel."""
        given = b""
        while True:
            channel, *data = self._received()
            if channel == CLOSE:
                return given
            assert channel == STDIN
            given += bytes(data)

    def _received(self) -> bytes:
        _, length = self._read(2)
        size = length & 0x7F
        if size > 125:
            size = int.from_bytes(self._read(2 if size == 126 else 8), "big")
        mask = self._read(4)
        return bytes(byte ^ mask[i % 4] for i, byte in enumerate(self._read(size)))

    def _read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            more = self._connection.recv(size - len(data))
            assert more, "kubectl hung up"
            data += more
        return data


def _status(code: int) -> dict[str, Any]:
    """Return the exit status of a command as the API server reports it."""
    if code == 0:
        return {"metadata": {}, "status": "Success"}
    cause = {"reason": "ExitCode", "message": str(code)}
    status = {"status": "Failure", "reason": "NonZeroExitCode", "details": {"causes": [cause]}}
    return {
        "metadata": {},
        "message": f"command terminated with non-zero exit code: {code}",
        **status,
    }


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    listening = ThreadingHTTPServer(("127.0.0.1", 0), ApiServer)
    listening.daemon_threads = True
    threading.Thread(target=listening.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{listening.server_port}"
    listening.shutdown()
    listening.server_close()


@pytest.mark.parametrize(
    "verb",
    [
        ["version"],
        ["explain", "RBD999"],
        ["version", "--no-such-flag"],
        ["who-holds", "pvc/default/data", "--from", str(ORPHAN), "-o", "json"],
        ["unmap", "pvc/default/data", "--from", str(ORPHAN)],
    ],
    ids=" ".join,
)
def test_a_verb_prints_the_same_as_on_the_node(
    server: str, verb: list[str], tmp_path: Path
) -> None:
    """Compare stdout, stderr and exit code; the verbs end with 0, 1, 2, 3 and 4."""
    done = subprocess.run(
        ["kubectl", "rbdagent", "--server", server, *verb],
        env=_environment(tmp_path),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    here = process(*verb)
    assert (done.returncode, done.stdout, done.stderr) == (here.code, here.stdout, here.stderr)


def test_a_verb_works_on_a_terminal(server: str, tmp_path: Path) -> None:
    leader, follower = pty.openpty()
    with subprocess.Popen(
        ["kubectl", "rbdagent", "--server", server, "explain", "RBD999"],
        env=_environment(tmp_path),
        stdin=follower,
        stdout=follower,
        stderr=follower,
        start_new_session=True,
    ) as running:
        os.close(follower)
        shown = read_terminal(leader)
    here = process("explain", "RBD999")
    assert (running.returncode, shown) == (here.code, here.stdout + here.stderr)


def _environment(home: Path) -> dict[str, str]:
    path = f"{bin_dir()}:{plugin_directory()}:/usr/bin:/bin"
    return {"PATH": path, "HOME": str(home), "KUBECONFIG": os.devnull}
