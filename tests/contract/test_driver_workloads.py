"""The Deployments and DaemonSets of a CSI driver: what is requested of the API, and when."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pytest

from rbdagent.collect.kube.connection import Connection
from rbdagent.collect.kube.list_cluster import observe_cluster
from rbdagent.collect.kube.list_drivers import (
    NOTHING_WAITS_FOR_IT,
    DriverWorkloads,
    label_selector,
    workloads_of_drivers,
)
from rbdagent.model import NotObserved, Requirement, observed_of
from tests.support.fake_api import FakeApi, access_to, refuse
from tests.support.snapshots import DRIVER

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from rbdagent.collect.kube.kubeconfig import KubeAccess

Json = dict[str, Any]
CSI: Final = "rook-ceph"
APPS: Final = "/apis/apps/v1"


def _workload(name: str, status: Json, *arguments: str, namespace: str = CSI, **spec: Any) -> Json:  # noqa: ANN401
    labels = {"app": name}
    container = {"name": "csi-rbdplugin", "image": "cephcsi", "args": list(arguments)}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    return {
        "metadata": {"namespace": namespace, "name": name},
        "spec": {"selector": {"matchLabels": labels}, "template": template, **spec},
        "status": status,
    }


def _pod(name: str, node: str | None, phase: str, **status: Any) -> Json:  # noqa: ANN401
    return {
        "metadata": {"namespace": CSI, "name": name, "labels": {"app": "csi-rbdplugin"}},
        "spec": {"nodeName": node} if node else {},
        "status": {"phase": phase, **status},
    }


@pytest.fixture
def api() -> Iterator[FakeApi]:
    fake = FakeApi()
    few = {"desiredNumberScheduled": 2, "currentNumberScheduled": 1, "numberReady": 0}
    fake.lists["daemonsets"] = [
        _workload("csi-rbdplugin", few, f"--drivername={DRIVER}"),
        _workload("csi-cephfsplugin", few, "--drivername=cephfs.csi.ceph.com"),
        _workload("kube-proxy", few, namespace="kube-system"),
    ]
    fake.lists["deployments"] = [
        _workload("provisioner", {"readyReplicas": 2}, f"--drivername={DRIVER}", replicas=2),
        _workload("web", {}, namespace="shop"),
    ]
    fake.lists["pods"] = [_pod("csi-rbdplugin-a", "n2", "Pending")]
    yield fake
    fake.stop()


@pytest.fixture
def access(api: FakeApi, tmp_path: Path) -> KubeAccess:
    return access_to(api, tmp_path)


def look(access: KubeAccess, *nodes: str) -> DriverWorkloads:
    return workloads_of_drivers(Connection(access).api(), [DRIVER], nodes)


def paths(api: FakeApi) -> list[str]:
    return [request.partition("?")[0] for request in api.requests]


def test_only_workloads_of_the_driver_are_kept(access: KubeAccess) -> None:
    found = look(access)
    assert [str(one) for one in observed_of(found.node_plugins)] == [
        "DaemonSet rook-ceph/csi-rbdplugin"
    ]
    assert [str(one) for one in observed_of(found.controllers)] == [
        "Deployment rook-ceph/provisioner"
    ]


def test_deployments_are_listed_where_the_daemon_sets_are(api: FakeApi, access: KubeAccess) -> None:
    look(access)
    deployments = [path for path in paths(api) if path.endswith("/deployments")]
    assert deployments == [f"{APPS}/namespaces/{CSI}/deployments"]


def test_deployments_of_another_namespace_are_found(api: FakeApi, access: KubeAccess) -> None:
    for one in api.lists["deployments"]:
        one["metadata"]["namespace"] = "elsewhere"
    found = look(access)
    assert paths(api).count(f"{APPS}/deployments") == 1
    assert [str(one) for one in observed_of(found.controllers)] == [
        "Deployment elsewhere/provisioner"
    ]


def test_pods_and_warnings_are_requested_only_of_a_workload_with_too_few(
    api: FakeApi, access: KubeAccess
) -> None:
    (plugin,) = observed_of(look(access, "n2").node_plugins)
    assert [pod.node_name for pod in observed_of(plugin.pods)] == ["n2"]
    assert sum(path.endswith("/pods") for path in paths(api)) == 2
    assert sum(path.endswith("/events") for path in paths(api)) == 2
    api.requests.clear()
    api.lists["daemonsets"][0]["status"]["numberReady"] = 2
    look(access, "n2")
    assert sorted(paths(api)) == [f"{APPS}/daemonsets", f"{APPS}/namespaces/{CSI}/deployments"]


def test_requests_do_not_grow_with_the_nodes_that_wait(api: FakeApi, access: KubeAccess) -> None:
    look(access, *(f"n{number}" for number in range(100)))
    assert sum(path.endswith("/pods") for path in paths(api)) == 9


def test_forbidden_list_is_not_observed_and_hides_no_other(
    api: FakeApi, access: KubeAccess
) -> None:
    api.broken[f"{APPS}/daemonsets"] = refuse(403)
    found = look(access)
    assert isinstance(found.node_plugins, NotObserved)
    assert "docs/privileges.md" in found.node_plugins.hint
    assert len(observed_of(found.controllers)) == 1


def test_forbidden_pods_are_not_none(api: FakeApi, access: KubeAccess) -> None:
    api.broken[f"/api/v1/namespaces/{CSI}/pods"] = refuse(403)
    (plugin,) = observed_of(look(access).node_plugins)
    assert isinstance(plugin.pods, NotObserved)


def test_cluster_in_which_nothing_waits_is_not_asked_for_daemon_sets(
    api: FakeApi, access: KubeAccess
) -> None:
    api.lists["pods"] = [_pod("web", "n2", "Running")]
    for kind in ("persistentvolumeclaims", "volumeattachments"):
        api.lists[kind] = []
    view, source = observe_cluster(Connection(access), namespace=None, node_name="n1")
    assert view is not None
    assert (view.node_plugins, view.controllers) == (NOTHING_WAITS_FOR_IT, NOTHING_WAITS_FOR_IT)
    assert f"{APPS}/daemonsets" not in paths(api)
    assert source.gaps == ()


def test_selector_is_written_as_the_api_takes_it() -> None:
    requirements = (
        Requirement(key="app", operator="In", values=("a", "b")),
        Requirement(key="tier", operator="NotIn", values=("c",)),
        Requirement(key="x", operator="Exists"),
        Requirement(key="y", operator="DoesNotExist"),
    )
    assert label_selector(requirements) == "app in (a,b),tier notin (c),x,!y"
