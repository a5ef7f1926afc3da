"""Users of a kubeconfig with a credential plugin: the client library loads each, and no other.

The plugin is a real program. The API server is played on loopback, and keeps what it is asked with.
"""

from __future__ import annotations

import base64
import json
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from rbdagent.observe.api import Api
from rbdagent.observe.kubeconfig import KubeAccess, credentials

if TYPE_CHECKING:
    from collections.abc import Iterator

Json = dict[str, Any]
ROOT: Final = Path(__file__).parents[2]
TOKEN: Final = "a-token-of-the-plugin"  # noqa: S105 - of the fake
EXEC_API: Final = "client.authentication.k8s.io/v1"

PLUGIN: Final = """\
#!/bin/sh
# An exec plugin: the credential is in its environment, and nothing else tells it.
printf '{"kind": "ExecCredential", "apiVersion": "%s", "status": %s}' "$1" "$STATUS"
"""

YEAR_2100: Final = 4_102_444_800


class ApiServer:
    """Answers each GET with an empty list, and keeps who asked."""

    def __init__(self) -> None:
        self.authorizations: list[str | None] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                server.authorizations.append(self.headers["Authorization"])
                body = b'{"items": [], "metadata": {}}'
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        return Handler


@pytest.fixture
def server() -> Iterator[ApiServer]:
    server = ApiServer()
    yield server
    server.stop()


def with_exec(status: Json) -> Json:
    """Return a user whose plugin is named as kubectl takes it: relative to the kubeconfig."""
    return {
        "exec": {
            "apiVersion": EXEC_API,
            "command": "./plugin",
            "args": [EXEC_API],
            "env": [{"name": "STATUS", "value": json.dumps(status)}],
            "interactiveMode": "Never",
        }
    }


def with_auth_provider() -> Json:
    """Return a user of OpenID Connect, with an id-token that need not be refreshed."""
    return {"auth-provider": {"name": "oidc", "config": {"id-token": ID_TOKEN}}}


def _part(content: Json) -> str:
    return base64.urlsafe_b64encode(json.dumps(content).encode()).decode().rstrip("=")


ID_TOKEN: Final = f"{_part({'alg': 'none'})}.{_part({'exp': YEAR_2100})}.c2lnbmVk"


def access_of(directory: Path, url: str, user: Json) -> KubeAccess:
    """Write a kubeconfig with this user, and the plugin beside it."""
    plugin = directory / "plugin"
    plugin.write_text(PLUGIN)
    plugin.chmod(0o755)
    path = directory / "kubeconfig"
    config = {
        "current-context": "lab",
        "clusters": [{"name": "c", "cluster": {"server": url}}],
        "users": [{"name": "u", "user": user}],
        "contexts": [{"name": "lab", "context": {"cluster": "c", "user": "u"}}],
    }
    path.write_text(json.dumps(config))
    return KubeAccess(kubeconfig=path, context=None, timeout_s=30)


@pytest.mark.parametrize(
    ("user", "token"),
    [
        pytest.param(with_exec({"token": TOKEN}), TOKEN, id="exec"),
        pytest.param(
            with_exec({"token": TOKEN, "expirationTimestamp": "2100-01-01T00:00:00Z"}),
            TOKEN,
            id="exec, expires",
        ),
        pytest.param(with_auth_provider(), ID_TOKEN, id="auth-provider"),
    ],
)
def test_the_token_of_a_credential_plugin_reaches_the_api_server(
    server: ApiServer, tmp_path: Path, user: Json, token: str
) -> None:
    found = credentials(access_of(tmp_path, server.url, user))
    Api(found, timeout_s=30).list("/api/v1/nodes").items()
    assert server.authorizations == [f"Bearer {token}"]


def test_the_certificate_of_an_exec_plugin_is_the_client_certificate(tmp_path: Path) -> None:
    user = with_exec({"clientCertificateData": "of the plugin", "clientKeyData": "its key"})
    found = credentials(access_of(tmp_path, "https://127.0.0.1:1", user))
    assert found.cert is not None
    assert [Path(each).read_text() for each in found.cert] == ["of the plugin", "its key"]
    assert found.token is None


_WHO_HOLDS: Final = """\
import sys
from rbdagent.cli import run
run(["who-holds", "pv/x", "--no-node", "--no-ceph", "--kubeconfig", sys.argv[1]])
print("loaded" if "kubernetes" in sys.modules else "not loaded")
"""


@pytest.mark.parametrize(
    ("user", "library"),
    [
        pytest.param({"token": TOKEN}, "not loaded", id="token"),
        pytest.param({"tokenFile": "token"}, "not loaded", id="tokenFile"),
        pytest.param({}, "not loaded", id="nothing"),
        pytest.param(with_exec({"token": TOKEN}), "loaded", id="exec"),
        pytest.param(with_auth_provider(), "loaded", id="auth-provider"),
        pytest.param({"token": TOKEN, **with_auth_provider()}, "loaded", id="token, auth-provider"),
    ],
)
def test_who_holds_loads_the_client_library_for_a_credential_plugin_alone(
    server: ApiServer, tmp_path: Path, user: Json, library: str
) -> None:
    """Its import costs an answer half a second (docs/adr/0001)."""
    (tmp_path / "token").write_text(TOKEN)
    path = access_of(tmp_path, server.url, user).kubeconfig
    done = subprocess.run(
        [sys.executable, "-c", _WHO_HOLDS, str(path)],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    )
    assert done.stdout.splitlines()[-1] == library
    assert server.authorizations, done.stderr
