"""Users of a kubeconfig with a credential plugin: only they need the client library.

The plugin is a real program. The API server is a fake on loopback, which records the requests.
"""

from __future__ import annotations

import base64
import json
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

import pytest

from rbdagent.collect.kube import plugins
from rbdagent.collect.kube.client import Api
from rbdagent.collect.kube.kubeconfig import KubeAccess, credentials
from tests.lab.processes import wait_until
from tests.support.fake_api import VOLUME, FakeApi

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
    """Answers each GET with an empty list, and records its Authorization header."""

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
                """Log nothing."""

        return Handler


@pytest.fixture
def server() -> Iterator[ApiServer]:
    server = ApiServer()
    yield server
    server.stop()


def with_exec(status: Json) -> Json:
    """Return a user whose plugin has a path relative to the kubeconfig, as kubectl expects it."""
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


def test_certificate_of_an_exec_plugin_is_the_client_certificate(tmp_path: Path) -> None:
    user = with_exec({"clientCertificateData": "of the plugin", "clientKeyData": "its key"})
    found = credentials(access_of(tmp_path, "https://127.0.0.1:1", user))
    assert found.cert_data == (b"of the plugin", b"its key")
    assert found.token is None


_WHO_HOLDS: Final = """\
import sys
from rbdagent.collect.kube import plugin_child
begun = []
def watch(event, args):
    if event == "subprocess.Popen":
        begun.append(plugin_child.__file__ in args[1])
sys.addaudithook(watch)
from rbdagent.cli import run
run(["who-holds", "pv/x", "--no-node", "--no-ceph", "--kubeconfig", sys.argv[1]])
assert "kubernetes" not in sys.modules
print("loaded" if any(begun) else "not loaded")
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
def test_client_library_is_loaded_only_for_a_credential_plugin(
    server: ApiServer, tmp_path: Path, user: Json, library: str
) -> None:
    """Its import delays an answer by half a second (docs/adr/0001)."""
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


# --------------------------------------------------------------------------------------------------
# How often a plugin runs, and for how long
# --------------------------------------------------------------------------------------------------

COUNTS: Final = """\
#!/bin/sh
echo run >> runs
printf '{"kind": "ExecCredential", "apiVersion": "%s", "status": %s}' "$1" "$STATUS"
"""
HANGS: Final = """\
#!/bin/sh
# Its own child hangs, and it waits for that one.
echo $$ >> pids
sleep 1000 &
echo $! >> pids
wait
"""


@pytest.fixture
def cluster() -> Iterator[FakeApi]:
    """Yield a fake API server with a volume; rbdagent requests the reports of agents later."""
    fake = FakeApi()
    yield fake
    fake.stop()


def who_holds(directory: Path, url: str, plugin: str, *flags: str) -> Json:
    """Return the answer of who-holds with a plugin that runs in this directory."""
    kubeconfig = access_of(directory, url, with_exec({"token": TOKEN})).kubeconfig
    (directory / "plugin").write_text(plugin)
    given = [f"pv/{VOLUME}", "--no-ceph", "--kubeconfig", str(kubeconfig), "-o", "json", *flags]
    done = subprocess.run(
        [sys.executable, "-m", "rbdagent", "who-holds", *given],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    assert done.stdout, done.stderr
    answer: Json = json.loads(done.stdout)
    return answer


def test_a_plugin_runs_once_for_an_answer(cluster: FakeApi, tmp_path: Path) -> None:
    found = who_holds(tmp_path, cluster.url, COUNTS, "--no-node")
    assert found["sources"]["kubernetes"]["state"] == "observed"
    assert any("rbdnodes" in request for request in cluster.requests), (
        "the API was asked once alone"
    )
    assert (tmp_path / "runs").read_text() == "run\n"


def test_a_plugin_runs_again_for_a_later_answer(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    access = access_of(tmp_path, "https://127.0.0.1:1", with_exec({"token": TOKEN}))
    (tmp_path / "plugin").write_text(COUNTS)
    runs = []
    for now in (100.0, 129.0, 130.0):
        monkeypatch.setattr(plugins, "time", SimpleNamespace(monotonic=lambda now=now: now))
        assert credentials(access).token == TOKEN
        runs.append((tmp_path / "runs").read_text().count("run"))
    assert (access.answer_s, runs) == (30.0, [1, 1, 2])


def is_running(pid: str) -> bool:
    """Return whether a process runs; a process that has ended may still be a zombie."""
    try:
        return Path("/proc", pid, "stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_hanging_plugin_fails_only_kubernetes_and_is_killed(
    cluster: FakeApi, tmp_path: Path
) -> None:
    found = who_holds(tmp_path, cluster.url, HANGS, "--timeout", "8s")
    failed = found["sources"]["kubernetes"]
    assert failed["state"] == "failed"
    assert "(./plugin) did not answer within 7.5 s, and was killed" in failed["reason"]
    assert found["sources"]["node"]["state"] == "observed"
    assert cluster.requests == []
    pids = (tmp_path / "pids").read_text().split()
    assert len(pids) == 2
    assert [pid for pid in pids if is_running(pid)] == []


def test_plugin_ends_when_rbdagent_is_killed(cluster: FakeApi, tmp_path: Path) -> None:
    kubeconfig = access_of(tmp_path, cluster.url, with_exec({"token": TOKEN})).kubeconfig
    (tmp_path / "plugin").write_text(HANGS)
    given = ["who-holds", "pv/x", "--no-ceph", "--no-node", "--timeout", "8s"]
    begun = subprocess.Popen(
        [sys.executable, "-m", "rbdagent", *given, "--kubeconfig", str(kubeconfig)], cwd=ROOT
    )

    def pids() -> list[str]:
        path = tmp_path / "pids"
        return path.read_text().split() if path.exists() else []

    wait_until(lambda: len(pids()) == 2, what="the plugin runs", timeout_s=60)
    begun.kill()
    begun.wait()
    wait_until(lambda: not any(map(is_running, pids())), what="the plugin has ended", timeout_s=60)
