"""``diagnose -A`` reads all reports of agents, and keeps only some: its answer must be the same."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pytest

from rbdagent.collect.kube.connection import Connection
from rbdagent.collect.kube.list_cluster import observe_cluster
from rbdagent.collect.kube.requests import BUDGETS
from rbdagent.collect.kube.stored_reports import STORED, StoredReports
from rbdagent.model import NotObserved
from tests.support.cli_runner import ask
from tests.support.fake_api import VOLUME, FakeApi, access_to, refuse
from tests.support.published import add_mapping, publish, rbd_mappings
from tests.support.snapshots import NOW

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from rbdagent.collect.kube.kubeconfig import KubeAccess
    from rbdagent.model import KubeView, PublishedNode, Source

Json = dict[str, Any]
_RESOURCES: Final = ("rbdnodes", "rbdmappings")
_PATH: Final = "/apis/rbdagent.dev/v1alpha1"


def mapping(number: int, verdict: str = "InUse", **more: object) -> Json:
    return {
        "device": f"/dev/rbd{number}",
        "verdict": verdict,
        "image": {"pool": "k8s", "name": f"csi-vol-{number}", "id": f"{number:x}"},
        "clientID": 4000,
        "clientAddress": "10.0.0.1:0/7",
        "persistentVolume": f"pv-{number}",
        "pods": ["shop/web-0"],
        **more,
    }


@pytest.fixture
def api() -> Iterator[FakeApi]:
    """Yield an API server whose pages end within the mappings of a node."""
    fake = FakeApi()
    fake.page = 2
    publish(fake, "n1", mapping(1), mapping(2, "Orphaned", findings=["RBD101"]))
    publish(fake, "n2", mapping(3), mapping(4), mapping(5, persistentVolume=VOLUME))
    publish(fake, "n3", mapping(6, image={}), at="2026-01-01T00:00:00Z")
    yield fake
    fake.stop()


@pytest.fixture
def access(api: FakeApi, tmp_path: Path) -> KubeAccess:
    return access_to(api, tmp_path)


def view_of(access: KubeAccess, stored: StoredReports | None = None) -> tuple[KubeView, Source]:
    view, source = observe_cluster(
        Connection(access), namespace=None, node_name="n9", stored=stored
    )
    assert view is not None
    return view, source


def stored_in(access: KubeAccess) -> tuple[PublishedNode, ...] | NotObserved:
    """Return the reports as they are stored; they can be read again."""
    stored = StoredReports()
    view, source = view_of(access, stored)
    assert source.gaps == view_of(access)[1].gaps
    if view.published != STORED:
        assert isinstance(view.published, NotObserved)
        return view.published
    assert list(stored) == list(stored)
    return tuple(stored)


def complete(access: KubeAccess) -> tuple[PublishedNode, ...] | NotObserved:
    """Return the reports as a snapshot file has them."""
    return view_of(access)[0].published


def _remove_mapping(api: FakeApi) -> None:
    del api.lists["rbdmappings"][1]


def _rename_label(api: FakeApi) -> None:
    labels = api.lists["rbdnodes"][0]["metadata"]["labels"]
    labels[next(iter(labels)) + "0"] = labels.pop(next(iter(labels)))


def _remove_node(api: FakeApi) -> None:
    del api.lists["rbdnodes"][1]


def _hide_devices(api: FakeApi) -> None:
    publish(api, "n4", observed=False)


def _separate(api: FakeApi) -> None:
    """Place a mapping of one node behind those of another, as a list by name may have it."""
    api.lists["rbdmappings"] += rbd_mappings("n1", mapping(8))
    api.lists["rbdnodes"][0]["status"]["mapped"] += 1


def _add_same_image(api: FakeApi) -> None:
    add_mapping(api, "n2", mapping(7, image={"pool": "k8s", "name": "csi-vol-1"}))


def _clear(api: FakeApi) -> None:
    for resource in _RESOURCES:
        api.lists[resource] = []


def _no_resources(api: FakeApi) -> None:
    for resource in _RESOURCES:
        api.broken[f"{_PATH}/{resource}"] = refuse(404)


def _refused(api: FakeApi) -> None:
    api.broken[f"{_PATH}/rbdmappings"] = refuse(403)


def _nodes_refused(api: FakeApi) -> None:
    api.broken[f"{_PATH}/rbdnodes"] = refuse(403)


def _no_device(api: FakeApi) -> None:
    del api.lists["rbdmappings"][3]["status"]["device"]


CHANGES: Final = (
    lambda _: None,
    _remove_mapping,
    _rename_label,
    _remove_node,
    _hide_devices,
    _separate,
    _add_same_image,
    _clear,
    _no_resources,
    _refused,
    _nodes_refused,
    _no_device,
)
each_change = pytest.mark.parametrize("become", CHANGES, ids=lambda change: change.__name__)


@each_change
def test_stored_reports_are_those_of_a_snapshot_file(
    api: FakeApi, access: KubeAccess, become: Callable[[FakeApi], None]
) -> None:
    become(api)
    assert stored_in(access) == complete(access)


def paths(api: FakeApi) -> list[str]:
    return [request.partition("?")[0] for request in api.requests]


def test_each_page_is_requested_once(api: FakeApi, access: KubeAccess) -> None:
    view, _ = view_of(access, StoredReports())
    # Not "none": they must be added later.
    assert view.published == STORED
    asked = [path for path in paths(api) if path.startswith(_PATH)]
    assert sorted(asked) == [f"{_PATH}/rbdmappings"] * 3 + [f"{_PATH}/rbdnodes"] * 2


@pytest.mark.parametrize("scope", [("-A",), ("-n", "default")], ids=" ".join)
@each_change
def test_answer_is_the_same_as_from_a_file_with_all_reports(
    api: FakeApi,
    access: KubeAccess,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    become: Callable[[FakeApi], None],
    scope: tuple[str, ...],
) -> None:
    become(api)
    monkeypatch.setattr("rbdagent.cli.data_source.now_utc", lambda: NOW)
    sources = ("--kubeconfig", str(access.kubeconfig), "--no-node", "--no-ceph")
    live = ask("diagnose", *scope, *sources, "-o", "json")
    requested = sorted(paths(api))
    api.requests.clear()
    path = tmp_path / "snapshot"
    path.write_text(ask("snapshot", *scope, *sources).stdout)
    # A check of a drain may read the file too.
    further = [] if "-n" in scope else [BUDGETS]
    wanted = [*requested, *further]
    if become is _no_device:
        # The page behind one that cannot be read is requested ahead: the API may get it or not.
        assert {*paths(api)} == {*wanted}
    else:
        assert sorted(paths(api)) == sorted(wanted)
    filed = ask("diagnose", *scope, "--from", str(path), "-o", "json")
    assert (live.code, without_times(live.data)) == (filed.code, without_times(filed.data))


def without_times(answer: Json) -> Json:
    kubernetes = {**answer["sources"]["kubernetes"], "tookSeconds": None}
    gaps = sorted(map(str, kubernetes.get("gaps", ())))
    sources = {**answer["sources"], "kubernetes": {**kubernetes, "gaps": gaps}}
    return {**answer, "sources": sources}
