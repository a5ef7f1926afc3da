"""bug-report: what is in the archive, what is masked in it, and what states why it is missing."""

from __future__ import annotations

import io
import json
import stat
import subprocess
import sys
import tarfile
from typing import TYPE_CHECKING, Any, Final

import pytest

from rbdagent.collect.kube import own_objects
from rbdagent.parse.ceph_keys import MASK
from rbdagent.report.bug_report import DIRECTORY, MANIFEST
from rbdagent.report.snapshot import load_snapshot
from tests.support.cli_runner import ROOT, Done, ask, on_terminal
from tests.support.fake_api import FakeApi, access_to, answer, refuse

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

Json = dict[str, Any]

SECRETS: Final = {
    "CephX key": "AQDk7Jxl4m2YKhAAzq7y0rV3cB8mT6p1sX9eWg==",
    "password": "hunter2-correct-horse",
    "token": "eyJhbGciOiJSUzI1NiIsImtpZCI6IkEifQ.eyJzdWIiOiJhIn0.c2lnbmF0dXJl",
    "issued token": "ghp_0123456789abcdefghijABCDEFGHIJ012345",
    "user of a URL": "proxyuser:proxypassword",
    "private key": "MIIEowIBAAKCAQEAplanted",
}
CONFIG: Final = f"""\
mode = "observe"
lease-namespace = "rbdagent"
secret-of-proxy = "{SECRETS["password"]}"
"""
PRIVATE: Final = f"""\
-----BEGIN RSA PRIVATE KEY-----
{SECRETS["private key"]}
-----END RSA PRIVATE KEY-----
"""
LOG: Final = f"""\
{{"event": "observed", "devices": 3}}
{{"event": "request", "authorization": "Bearer {SECRETS["token"]}"}}
mount failed: key={SECRETS["CephX key"]}
"""
LABELS: Final = {"app.kubernetes.io/name": "rbdagent"}
LOGS: Final = "/api/v1/namespaces/rbdagent/pods/rbdagent-{}/log"


def container() -> Json:
    return {
        "name": "rbdagent",
        "env": [
            {"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
            {"name": "PROXY_PASSWORD", "value": SECRETS["password"]},
            {"name": "HTTPS_PROXY", "value": f"http://{SECRETS['user of a URL']}@proxy:3128"},
            {"name": "EXTRA", "value": SECRETS["issued token"]},
        ],
    }


def pod(letter: str, node: str, **status: Any) -> Json:  # noqa: ANN401 - of any type
    return {
        "metadata": {"namespace": "rbdagent", "name": f"rbdagent-{letter}", "labels": LABELS},
        "spec": {"nodeName": node, "containers": [container()], "volumes": VOLUMES},
        "status": {"phase": "Running", **status},
    }


VOLUMES: Final = [
    {"name": "config", "configMap": {"name": "rbdagent"}},
    {"name": "api", "projected": {"sources": [{"configMap": {"name": "kube-root-ca.crt"}}]}},
]


@pytest.fixture
def api() -> Iterator[FakeApi]:
    """Yield an API with two agents, and a secret in each kind of place."""
    fake = FakeApi()
    meta = {"namespace": "rbdagent", "name": "rbdagent", "labels": LABELS, "managedFields": [{}]}
    template = {"spec": {"containers": [container()], "volumes": VOLUMES}}
    fake.lists["daemonsets"] = [{"metadata": meta, "spec": {"template": template}}]
    fake.lists["configmaps"] = [
        {"metadata": meta, "data": {"config.toml": CONFIG, "ca.pem": PRIVATE}}
    ]
    restarted = [{"name": "rbdagent", "restartCount": 1}]
    fake.lists["pods"] = [pod("b", "n2"), pod("a", "n1", containerStatuses=restarted)]
    status = {"leaseNamespace": "rbdagent", "observedAt": "2026-11-21T03:00:00Z"}
    fake.lists["rbdnodes"] = [
        {"metadata": {"name": name}, "status": status} for name in ("n1", "n2")
    ]
    fake.lists["rbdmappings"] = []
    fake.lists["events"][0]["message"] = f"cannot log in: password={SECRETS['password']}"
    fake.lists["events"][1]["message"] = f"rbd: key {SECRETS['CephX key']} was refused"
    for letter in "ab":
        fake.broken[LOGS.format(letter)] = lambda handler: answer(handler, 200, LOG.encode())
    yield fake
    fake.stop()


def report(api: FakeApi, directory: Path, *flags: str) -> tuple[Done, dict[str, str]]:
    """Run the verb; return what it prints, and the files in the archive."""
    path = directory / "report.tar.gz"
    access = access_to(api, directory)
    done = ask(
        *("bug-report", "--no-node", "--no-ceph", "--node-name", "n1"),
        *("--kubeconfig", str(access.kubeconfig), "-o", str(path), *flags),
    )
    return done, files(path.read_bytes()) if path.exists() else {}


def files(archive: bytes) -> dict[str, str]:
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        return {
            member.name.removeprefix(f"{DIRECTORY}/"): _text(tar, member)
            for member in tar.getmembers()
        }


def _text(tar: tarfile.TarFile, member: tarfile.TarInfo) -> str:
    file = tar.extractfile(member)
    assert file is not None
    return file.read().decode()


def test_archive_has_all_files_in_a_fixed_order(api: FakeApi, tmp_path: Path) -> None:
    done, found = report(api, tmp_path)
    assert done.code == 0
    assert [*found] == [
        MANIFEST,
        "versions.json",
        "check.txt",
        "snapshot.json",
        "diagnose.txt",
        "config.toml",
        "kubernetes/daemonsets.json",
        "kubernetes/configmaps.json",
        "kubernetes/pods.json",
        "kubernetes/rbdnodes.json",
        "kubernetes/rbdmappings.json",
        "logs/rbdagent-a.txt",
        "logs/rbdagent-a.previous.txt",
        "logs/rbdagent-b.txt",
        "logs/journal.txt",
    ]


def test_first_line_names_the_file_and_the_next_one_shows_its_manifest(
    api: FakeApi, tmp_path: Path
) -> None:
    done, _ = report(api, tmp_path)
    path = tmp_path / "report.tar.gz"
    first, second = done.stdout.splitlines()
    assert first.startswith(f"{path} has the bug report (")
    assert second == f"  tar -xOzf {path} {DIRECTORY}/{MANIFEST}"


def test_no_planted_secret_is_in_the_archive(api: FakeApi, tmp_path: Path) -> None:
    _, found = report(api, tmp_path)
    text = "\n".join(found.values())
    assert {name for name, secret in SECRETS.items() if secret in text} == set()
    assert MASK in found["kubernetes/configmaps.json"]


def test_what_is_no_secret_is_kept(api: FakeApi, tmp_path: Path) -> None:
    _, found = report(api, tmp_path)
    (config,) = json.loads(found["kubernetes/configmaps.json"])["items"]
    assert config["data"]["config.toml"].startswith('mode = "observe"\nlease-namespace = ')
    assert '{"event": "observed", "devices": 3}' in found["logs/rbdagent-a.txt"]
    assert "managedFields" not in found["kubernetes/daemonsets.json"]


def test_snapshot_in_the_archive_answers_elsewhere(api: FakeApi, tmp_path: Path) -> None:
    _, found = report(api, tmp_path)
    path = tmp_path / "snapshot.json"
    path.write_text(found["snapshot.json"])
    load_snapshot(found["snapshot.json"], where="snapshot.json")
    replayed = ask("diagnose", "-A", "-v", "--from", str(path))
    assert "".join(replayed.stdout.split()) == "".join(found["diagnose.txt"].split())


def test_configuration_file_is_masked(api: FakeApi, tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text('timeout = "7s"\nceph-id = "ghp_0123456789abcdefghijABCDEFGHIJ012345"\n')
    _, found = report(api, tmp_path, "--config", str(path))
    assert found["config.toml"].startswith('timeout = "7s"\n')
    assert "ghp_" not in "".join(found.values())


def test_versions_are_stated(api: FakeApi, tmp_path: Path) -> None:
    _, found = report(api, tmp_path)
    versions = json.loads(found["versions.json"])
    assert [*versions] == [
        "rbdagent", "python", "kernel", "machine", "cephLibraries", "kubernetes",
    ]  # fmt: skip


def test_only_the_owner_may_read_the_file(api: FakeApi, tmp_path: Path) -> None:
    report(api, tmp_path)
    assert stat.S_IMODE((tmp_path / "report.tar.gz").stat().st_mode) == 0o600


def test_existing_file_is_kept(api: FakeApi, tmp_path: Path) -> None:
    path = tmp_path / "report.tar.gz"
    path.write_text("mine")
    done = ask("bug-report", "--no-node", "--no-ceph", "--no-kube", "-o", str(path))
    assert (done.code, path.read_text()) == (2, "mine")
    assert "exists already\n  --overwrite replaces it" in done.stderr


def test_overwrite_replaces_a_file_and_its_mode(api: FakeApi, tmp_path: Path) -> None:
    path = tmp_path / "report.tar.gz"
    path.write_text("mine")
    path.chmod(0o644)
    done, found = report(api, tmp_path, "--overwrite")
    assert (done.code, stat.S_IMODE(path.stat().st_mode)) == (0, 0o600)
    assert MANIFEST in found


def test_link_is_not_followed(api: FakeApi, tmp_path: Path) -> None:
    """Root may write into a directory of another user."""
    target = tmp_path / "target"
    target.write_text("mine")
    (tmp_path / "report.tar.gz").symlink_to(target)
    done = ask(
        *("bug-report", "--no-node", "--no-ceph", "--no-kube", "--overwrite"),
        *("-o", str(tmp_path / "report.tar.gz")),
    )
    assert (done.code, target.read_text()) == (1, "mine")


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/apis/apps/v1/daemonsets", "kubernetes/daemonsets.json"),
        ("/api/v1/namespaces/rbdagent/configmaps/rbdagent", "kubernetes/configmaps.json"),
        ("/apis/rbdagent.dev/v1alpha1/rbdmappings", "kubernetes/rbdmappings.json"),
        (LOGS.format("b"), "logs/rbdagent-b.txt"),
    ],
)
def test_failing_source_is_stated_in_its_file_the_manifest_and_on_stderr(
    api: FakeApi, tmp_path: Path, path: str, name: str
) -> None:
    api.broken[path] = refuse(403)
    api.broken["/apis/apps/v1/namespaces/rbdagent/daemonsets"] = refuse(403)
    done, found = report(api, tmp_path)
    assert done.code == 0
    assert "is forbidden" in found[name]
    assert found[name].startswith(('{\n "notObserved": ', "not observed: "))
    assert "  Not observed: GET " in found[MANIFEST]
    assert f"not observed: {name}" in done.stderr


def test_daemon_set_is_read_in_the_agents_namespace_if_the_cluster_is_refused(
    api: FakeApi, tmp_path: Path
) -> None:
    """The rights of a user may be within that namespace: the chart's role for the plugin."""
    api.broken["/apis/apps/v1/daemonsets"] = refuse(403)
    _, found = report(api, tmp_path)
    assert len(json.loads(found["kubernetes/daemonsets.json"])["items"]) == 1


def test_pods_of_a_tenant_with_the_label_are_left_out(api: FakeApi, tmp_path: Path) -> None:
    theirs = pod("x", "n1")
    theirs["metadata"] |= {"namespace": "tenant"}
    api.lists["pods"].append(theirs)
    _, found = report(api, tmp_path)
    assert "tenant" not in found["kubernetes/pods.json"]
    assert not [request for request in api.requests if "/namespaces/tenant/" in request]


def test_kubernetes_that_is_down_is_stated_in_every_file(tmp_path: Path) -> None:
    path = tmp_path / "report.tar.gz"
    done = ask(
        *("bug-report", "--no-node", "--no-ceph", "-o", str(path)),
        *("--kubeconfig", str(tmp_path / "missing")),
    )
    found = files(path.read_bytes())
    assert done.code == 0
    assert "no such file" in found["kubernetes/pods.json"]
    assert "Not observed: kubernetes: " in " ".join(found[MANIFEST].split())
    assert "not observed: snapshot.json: kubernetes: " in done.stderr


def test_archive_goes_to_a_pipe(tmp_path: Path) -> None:
    command = (sys.executable, "-m", "rbdagent", "bug-report", "--no-node", "--no-ceph")
    done = subprocess.run(
        (*command, "--no-kube", "-o", "-"), capture_output=True, check=True, cwd=ROOT
    )
    assert MANIFEST in files(done.stdout)


def test_archive_does_not_go_to_a_terminal() -> None:
    text = on_terminal("bug-report", "--no-node", "--no-ceph", "--no-kube", "-o", "-")
    assert "\x1f" not in text


def test_objects_that_exceed_the_limit_are_cut(
    api: FakeApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(own_objects, "_MOST", 200)
    _, found = report(api, tmp_path)
    assert len(json.loads(found["kubernetes/rbdnodes.json"])["items"]) == 1
    assert "  Only the first 1: the limit of a file is reached.\n" in found[MANIFEST]


def test_logs_of_a_few_agents_are_read_that_of_this_node_first(
    api: FakeApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(own_objects, "_MOST_LOGS", 1)
    _, found = report(api, tmp_path)
    logs = [name for name in found if name.startswith("logs/rbdagent")]
    assert logs == ["logs/rbdagent-a.txt", "logs/rbdagent-a.previous.txt"]


def test_directory_that_does_not_exist_is_an_error(tmp_path: Path) -> None:
    done = ask(
        *("bug-report", "--no-node", "--no-ceph", "--no-kube"),
        *("-o", str(tmp_path / "no" / "report.tar.gz")),
    )
    assert done.code == 1
    assert "cannot be written: No such file or directory\n  -o - writes it to stdout" in done.stderr


def test_gather_calls_the_verb() -> None:
    """`oc adm must-gather` runs /usr/bin/gather, and copies /must-gather."""
    script = ROOT / "packaging" / "gather"
    first, last = script.read_text().splitlines()
    assert first == "#!/bin/sh"
    words = last.split()
    assert words[:3] == ["exec", "rbdagent", "bug-report"]
    assert words[-1].startswith("/must-gather/")
    assert script.stat().st_mode & 0o111
