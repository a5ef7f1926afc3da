"""A list of monitors in a ConfigMap: how it is configured, requested and reported."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from rbdagent.collect.kube.kubeconfig import KubeAccess, MonitorList
from rbdagent.collect.kube.monitors import read_monitor_lists
from rbdagent.model import NotObserved
from tests.support.cli_runner import ask
from tests.support.fake_api import FakeApi, access_to, answer, refuse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Json = dict[str, Any]

CSI: Final = "/api/v1/namespaces/ceph-csi/configmaps/ceph-csi-config"
ROOK: Final = "/api/v1/namespaces/rook-ceph/configmaps/rook-ceph-mon-endpoints"
CLUSTERS: Final = json.dumps([{"clusterID": "east", "monitors": ["10.0.0.1:6789"]}])


@pytest.fixture
def api() -> Iterator[FakeApi]:
    fake = FakeApi()
    yield fake
    fake.stop()


@pytest.fixture
def access(api: FakeApi, tmp_path: Path) -> KubeAccess:
    return access_to(api, tmp_path, timeout_s=2)


def east(access: KubeAccess | None) -> MonitorList:
    return MonitorList(
        cluster="east",
        namespace="ceph-csi",
        config_map="ceph-csi-config",
        key="config.json",
        cluster_id="east",
        access=access,
    )


def rook(access: KubeAccess | None) -> MonitorList:
    return MonitorList(
        cluster="rook",
        namespace="rook-ceph",
        config_map="rook-ceph-mon-endpoints",
        key="data",
        cluster_id="",
        access=access,
    )


def serving(data: object) -> Callable[[Any], None]:
    return lambda handler: answer(handler, 200, {"kind": "ConfigMap", "data": data})


def test_each_list_is_requested_by_name_and_nothing_else(api: FakeApi, access: KubeAccess) -> None:
    api.broken |= {
        CSI: serving({"config.json": CLUSTERS}),
        ROOK: serving({"data": "a=10.96.0.1:6789"}),
    }
    found = read_monitor_lists((east(access), rook(access)))
    assert found == {"east": ("10.0.0.1:6789",), "rook": ("10.96.0.1:6789",)}
    assert sorted(api.requests) == [CSI, ROOK]


@pytest.mark.parametrize(
    ("handler", "reason", "hint"),
    [
        (refuse(403), "is forbidden", "kubectl -n ceph-csi auth can-i get configmaps/ceph-csi"),
        (refuse(404, "not found"), "not found", "correct monitors-from"),
        (serving({"other": CLUSTERS}), "there is no such key", "correct monitors-key"),
        (serving(None), "there is no such key", "correct monitors-key"),
        (serving([1]), "there is no such key", "correct monitors-key"),
        (serving({"config.json": 7}), "there is no such key", "correct monitors-key"),
        (serving({"config.json": "[]"}), "expected a cluster with clusterID east", ""),
        (lambda handler: answer(handler, 200, b"[" * 9999), "the answer is not JSON", ""),
    ],
)
def test_a_list_that_cannot_be_read_is_not_observed_and_does_not_hide_another(
    api: FakeApi,
    access: KubeAccess,
    handler: Callable[[Any], None],
    reason: str,
    hint: str,
) -> None:
    api.broken |= {CSI: handler, ROOK: serving({"data": "a=10.96.0.1:6789"})}
    found = read_monitor_lists((east(access), rook(access)))
    missing = found["east"]
    assert isinstance(missing, NotObserved)
    assert "ceph-csi-config" in missing.reason
    assert reason in missing.reason
    assert hint in missing.hint
    assert found["rook"] == ("10.96.0.1:6789",)


def test_without_the_api_no_list_is_observed(access: KubeAccess) -> None:
    """Each cluster names the reason: a kubeconfig that is gone, or --no-kube."""
    gone = KubeAccess(kubeconfig=Path("/none/kubeconfig"), context=None, timeout_s=1.0)
    found = read_monitor_lists((east(None), rook(gone)))
    reasons = [missing.reason for missing in found.values() if isinstance(missing, NotObserved)]
    assert len(reasons) == 2
    assert any("the Kubernetes API is not queried, as requested" in reason for reason in reasons)
    assert any("/none/kubeconfig" in reason for reason in reasons)


def config(tmp_path: Path, monitors_from: str) -> Path:
    conf = tmp_path / "ceph.conf"
    conf.write_text("[global]\n")
    path = tmp_path / "config.toml"
    path.write_text(
        f'no-node = true\n[[ceph]]\nname = "east"\nconf = "{conf}"\nkeyring = "{conf}"\n'
        f'monitors-from = "{monitors_from}"\ncluster-id = "east"\n'
    )
    return path


def test_check_reports_why_the_monitors_are_unknown(
    api: FakeApi, access: KubeAccess, tmp_path: Path
) -> None:
    api.broken[CSI] = refuse(403)
    path = config(tmp_path, "ceph-csi/ceph-csi-config")
    done = ask("check", f"--config={path}", f"--kubeconfig={access.kubeconfig}")
    said = " ".join(done.stdout.split())
    assert "east: ConfigMap ceph-csi/ceph-csi-config, key config.json: " in said
    assert "auth can-i get configmaps/ceph-csi-config" in done.stdout
    assert CSI in api.requests


@pytest.mark.parametrize("given", ["ceph-csi-config", "a/b/c", "/name", "namespace/", ""])
def test_a_place_that_is_no_config_map_is_refused(tmp_path: Path, given: str) -> None:
    done = ask("check", f"--config={config(tmp_path, given)}", "--no-kube")
    assert done.code == 2
    assert "[[ceph]] east: monitors-from names no ConfigMap" in done.stderr
    assert 'write monitors-from = "NAMESPACE/NAME"' in done.stderr
