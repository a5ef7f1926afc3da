"""`diagnose -A`: what it asks the API and Ceph for, and what it says, to people and to programs."""

from __future__ import annotations

import json
from random import Random
from typing import TYPE_CHECKING, Any, Final

import jsonschema
import pytest
from msgspec.structs import replace

from rbdagent.cli import run
from rbdagent.correlate.whole import whole_of
from rbdagent.look import _of_suspects
from rbdagent.model import (
    BlocklistEntry,
    CephView,
    Gap,
    ImageIdentity,
    KubeView,
    Snapshot,
    Source,
    SourceState,
    Target,
    TargetKind,
    observed_of,
)
from rbdagent.observe.every import observe_everything
from rbdagent.observe.kubeconfig import KubeAccess
from rbdagent.report.snapshot import dump_snapshot
from tests.contract.cli_runner import ORPHAN, Done
from tests.contract.test_observe_kube import FakeApi, kubeconfig, refuse
from tests.lab.many import many
from tests.unit.builders import DRIVER, FAILED, LONG_AGO, OBSERVED, UNSEEN, cluster
from tests.unit.clusters import Maker, address

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    Ask = Callable[..., Done]

Json = dict[str, Any]
OF_CLUSTER: Final = (
    "/api/v1/persistentvolumes",
    "/api/v1/nodes",
    "/apis/storage.k8s.io/v1/csinodes",
    "/apis/storage.k8s.io/v1/volumeattachments",
    "/apis/storage.k8s.io/v1/storageclasses",
    "/apis/storage.k8s.io/v1/csidrivers",
    "/apis/rbdagent.dev/v1alpha1/rbdnodes",
    "/version",
)


@pytest.fixture
def api() -> Iterator[FakeApi]:
    fake = FakeApi()
    meta = {"namespace": "default", "name": "web"}
    fake.lists["pods"] = [_pod("default", "app", "n2"), _pod("shop", "app", "n1")]
    fake.lists["deployments"] = [{"metadata": meta, "spec": {"replicas": 2}}]
    fake.lists["storageclasses"] = [
        {"metadata": {"name": "rbd"}, "provisioner": "rbd.csi.ceph.com"}
    ]
    fake.lists["csidrivers"] = [{"metadata": {"name": "rbd.csi.ceph.com"}}]
    yield fake
    fake.stop()


def _pod(namespace: str, name: str, node: str) -> Json:
    return {
        "metadata": {"namespace": namespace, "name": name, "labels": {"app": name}},
        "spec": {"nodeName": node},
        "status": {"phase": "Running"},
    }


@pytest.fixture
def access(api: FakeApi, tmp_path: Path) -> KubeAccess:
    path = tmp_path / "kubeconfig"
    path.write_text(json.dumps(kubeconfig(api.url)))
    return KubeAccess(kubeconfig=path, context=None, timeout_s=30)


def look(access: KubeAccess, namespace: str | None = None) -> tuple[KubeView, Source]:
    view, source = observe_everything(access, namespace=namespace, node_name="n1")
    assert view is not None
    return view, source


# --------------------------------------------------------------------------------------------------
# The API
# --------------------------------------------------------------------------------------------------


def test_everything_that_volumes_hang_on_is_listed_once(api: FakeApi, access: KubeAccess) -> None:
    view, source = look(access)
    assert source == Source(state=SourceState.OBSERVED)
    assert len(observed_of(view.persistent_volumes)) == 4
    assert len(observed_of(view.claims)) == 4
    assert [each.labels for each in observed_of(view.pods)] == [(("app", "app"),)] * 2
    assert [each.name for each in observed_of(view.workloads)] == ["Deployment/web"]
    assert [each.name for each in observed_of(view.storage_classes)] == ["rbd"]
    assert view.drivers == ("rbd.csi.ceph.com",)
    assert (view.pods_scope, view.consistent, view.published) == ("cluster", True, ())
    asked = [each.partition("?")[0] for each in api.requests]
    assert sorted(asked) == sorted(
        [
            *OF_CLUSTER,
            "/api/v1/pods",
            "/api/v1/events",
            "/api/v1/persistentvolumeclaims",
            "/apis/apps/v1/replicasets",
            "/apis/apps/v1/deployments",
            "/apis/apps/v1/statefulsets",
        ]
    )


def test_long_lists_are_read_page_by_page(api: FakeApi, access: KubeAccess) -> None:
    whole, _ = look(access)
    api.requests.clear()
    api.page = 3
    assert look(access)[0] == whole
    assert sum(each.startswith("/api/v1/events") for each in api.requests) == 3


def test_of_a_namespace_only_its_own_claims_pods_events_and_controllers_are_listed(
    api: FakeApi, access: KubeAccess
) -> None:
    view, _ = look(access, "default")
    asked = [
        each.partition("?")[0] for each in api.requests if each.partition("?")[0] not in OF_CLUSTER
    ]
    own = "/api/v1/namespaces/default"
    apps = "/apis/apps/v1/namespaces/default"
    assert sorted(asked) == sorted(
        [
            "/api/v1/pods",
            f"{own}/pods",
            f"{own}/events",
            f"{own}/events",
            f"{own}/persistentvolumeclaims",
            f"{apps}/replicasets",
            f"{apps}/deployments",
            f"{apps}/statefulsets",
        ]
    )
    # The pods of this node are known as well: what is mapped here may be theirs.
    assert {str(each.ref) for each in observed_of(view.pods)} == {"default/app", "shop/app"}
    assert view.pods_scope == "node/n1,namespace/default"


def test_with_a_role_alone_the_namespace_is_seen_and_what_is_the_clusters_is_a_gap(
    api: FakeApi, access: KubeAccess
) -> None:
    for path in (*OF_CLUSTER, "/api/v1/pods"):
        api.broken[path] = refuse(403)
    view, source = look(access, "default")
    assert len(observed_of(view.claims)) == 4
    assert [str(each.ref) for each in observed_of(view.pods)] == ["default/app"]
    assert view.pods_scope == "namespace/default"
    assert {each.fact for each in source.gaps} == {
        "PersistentVolumes",
        "nodes",
        "CSINodes",
        "VolumeAttachments",
        "storage classes",
        "CSIDrivers",
        "RBDNodes",
    }
    assert all("docs/privileges.md" in each.cure for each in source.gaps)


def test_events_of_volumes_that_may_not_be_read_are_a_gap_of_their_own(
    api: FakeApi, access: KubeAccess
) -> None:
    api.lists["events"] = [
        {
            "metadata": {"namespace": "shop", "name": "e"},
            "involvedObject": {"kind": "Pod", "namespace": "shop", "name": "app"},
            "reason": "FailedMount",
        }
    ]
    api.broken["/api/v1/namespaces/default/events"] = refuse(403)
    view, source = look(access, "shop")
    assert [each.reason for each in observed_of(view.events)] == ["FailedMount"]
    assert [each.fact for each in source.gaps] == ["events of PersistentVolumes"]


def test_without_agents_there_is_nothing_published_and_nothing_is_missing(
    api: FakeApi, access: KubeAccess
) -> None:
    api.broken["/apis/rbdagent.dev/v1alpha1/rbdnodes"] = refuse(404)
    view, source = look(access)
    assert (view.published, source.gaps) == ((), ())


def test_a_server_that_refuses_everything_has_told_nothing_and_the_reason_once(
    api: FakeApi, access: KubeAccess
) -> None:
    for path in ("/api/v1/pods", "/api/v1/persistentvolumeclaims", *OF_CLUSTER):
        api.broken[path] = refuse(403)
    view, source = observe_everything(access, namespace=None, node_name="n1")
    assert view is None
    assert (source.state, source.gaps) == (SourceState.FAILED, ())
    assert "is forbidden" in source.reason
    assert "docs/privileges.md" in source.cure


# --------------------------------------------------------------------------------------------------
# Ceph
# --------------------------------------------------------------------------------------------------


class Ceph:
    """Answers with what is on the blocklist, and remembers what it was asked."""

    def __init__(self, *blocklist: BlocklistEntry) -> None:
        self.asked: list[list[str]] = []
        self._view = CephView(clusters=(cluster(images=(), blocklist=blocklist),))

    def ask(self, images: tuple[ImageIdentity, ...]) -> tuple[CephView | None, Source]:
        self.asked.append([each.spec.name for each in images])
        return self._view, OBSERVED


def without_ceph(maker: Maker) -> Snapshot:
    return replace(maker.from_afar(), ceph=None)


def test_ceph_is_asked_about_suspects_alone() -> None:
    maker, ceph = Maker(Random(0)), Ceph()
    maker.pods[2] = replace(maker.pods[2], phase="Pending")
    _of_suspects(whole_of(without_ceph(maker)), (), ceph.ask)
    assert ceph.asked == [["image-2"]]


def test_whom_the_blocklist_hits_ceph_is_asked_about_afterwards() -> None:
    maker = Maker(Random(0))
    ceph = Ceph(BlocklistEntry(network=address("worker-2").ip, nonce=77))
    _of_suspects(whole_of(without_ceph(maker)), (), ceph.ask)
    # data-1 and data-4 are used there.
    assert ceph.asked == [[], ["image-1", "image-4"]]


def test_more_suspects_than_are_asked_about_are_counted_as_not_observed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("rbdagent.look._MOST_IMAGES", 2)
    maker, ceph = Maker(Random(0)), Ceph()
    for number in range(5):
        maker.pods[number] = replace(maker.pods[number], phase="Unknown")
    maker.pods[4] = replace(maker.pods[4], phase="Pending")
    _, source = _of_suspects(whole_of(without_ceph(maker)), (), ceph.ask)
    assert ceph.asked == [["image-4", "image-1"]]
    assert [each.fact for each in source.gaps] == ["who holds 3 more images that may be in trouble"]


def test_a_ceph_that_does_not_answer_is_asked_once() -> None:
    asked = []

    def ask(images: tuple[ImageIdentity, ...]) -> tuple[CephView | None, Source]:
        asked.append(images)
        return None, FAILED

    assert _of_suspects(whole_of(without_ceph(Maker(Random(0)))), (), ask) == (None, FAILED)
    assert len(asked) == 1


# --------------------------------------------------------------------------------------------------
# The answer
# --------------------------------------------------------------------------------------------------


@pytest.fixture
def ask(capsys: pytest.CaptureFixture[str]) -> Ask:
    def in_this_process(*args: str) -> Done:
        code = run(args)
        return Done(code, *capsys.readouterr())

    return in_this_process


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A cluster in which very much is broken, as a file."""
    path = tmp_path_factory.mktemp("broken") / "file"
    path.write_text(dump_snapshot(many(volumes=600, broken=400, seed=1).snapshot))
    return str(path)


def written(directory: Path, snapshot: Snapshot) -> str:
    path = directory / "snapshot"
    path.write_text(dump_snapshot(snapshot))
    return str(path)


def silent(numbers: range, **changes: Any) -> Snapshot:  # noqa: ANN401 - of the snapshot
    """Give a look at a cluster in which the provisioner is silent about some claims."""
    maker = Maker(Random(0))
    gone = {f"pv-{each}" for each in numbers}
    maker.volumes = [each for each in maker.volumes if each.name not in gone]
    maker.attachments = [each for each in maker.attachments if each.persistent_volume not in gone]
    for each in numbers:
        maker.claims[each] = replace(
            maker.claims[each],
            phase="Pending",
            volume_name=None,
            bind_completed=False,
            provisioner=DRIVER,
        )
        maker.pods[each] = replace(maker.pods[each], phase="Pending", node_name=None)
    return replace(maker.from_afar(), **changes)


def test_a_row_each_and_one_paragraph_for_all_that_wait_for_the_same(
    ask: Ask, tmp_path: Path
) -> None:
    done = ask("diagnose", "-A", "--from", written(tmp_path, silent(range(4))))
    head, *rows = done.stdout.partition("\n\n")[0].splitlines()
    assert head.split() == [
        "NAMESPACE", "CLAIM/POD", "PERSISTENTVOLUME", "STEP", "CODE", "SINCE", "WHAT",
    ]  # fmt: skip
    assert [row.split()[:6] for row in rows] == [
        ["bank", "pvc/data-1", "<none>", "provision", "RBD606", "24h"],
        ["bank", "pvc/data-3", "<none>", "provision", "RBD606", "24h"],
        ["shop", "pvc/data-0", "<none>", "provision", "RBD606", "24h"],
        ["shop", "pvc/data-2", "<none>", "provision", "RBD606", "24h"],
    ]
    assert "Stuck: 4, for 1 cause." in done.stdout
    assert done.stdout.count("RBD606 error") == 1
    assert "So of 4: pvc/bank/data-1, pvc/bank/data-3, pvc/shop/data-0 and 1 more." in done.stdout
    assert "rbdagent diagnose pvc/bank/data-1" in done.stdout.partition("Next:")[2]
    assert done.code == 3


def test_of_very_many_rows_of_one_cause_the_first_are_shown_and_wide_shows_them_all(
    ask: Ask, broken: str
) -> None:
    told = ask("diagnose", "-A", "--from", broken).stdout
    wide = ask("diagnose", "-A", "--from", broken, "-o", "wide").stdout
    items = ask("diagnose", "-A", "--from", broken, "-o", "json").data["items"]
    assert "more of the same (RBD" in told
    assert "further causes" in told
    assert "more of the same" not in wide
    assert "further causes" not in wide
    assert len(wide.partition("\n\n")[0].splitlines()) == len(items) + 1 == 401


def test_json_is_a_life_each_without_the_sources_and_what_they_wait_for(
    ask: Ask, broken: str
) -> None:
    done = ask("diagnose", "-A", "--from", broken, "-o", "json")
    answer = done.data
    jsonschema.validate(answer, ask("schema", "LifeList").data)
    assert all("sources" not in each for each in answer["items"])
    assert set(answer["sources"]) == {"node", "ceph", "kubernetes"}
    victims = [one for each in answer["causes"] for one in each["victims"]]
    assert victims == [each["target"]["given"] for each in answer["items"]]
    assert answer["lookedAt"]["claims"] > 500


def test_names_are_targets_that_diagnose_takes(ask: Ask, broken: str) -> None:
    names = ask("diagnose", "-A", "--from", broken, "-o", "name").stdout.split()
    assert len(names) == 400
    listed = ask("diagnose", "-A", "--from", broken, "-o", "json").data["items"]
    for name in names[::40]:
        one = ask("diagnose", name, "--from", broken, "-o", "json").data
        same = next(each for each in listed if each["target"]["given"] == name)
        # Whether a volume that no pod waits for is free, only who asks about it wants to know.
        told = [each for each in one["findings"] if each["code"] != "RBD119"]
        assert told == [each for each in same["findings"] if each["code"] != "RBD119"]
        assert one["there"] == same["there"]


def test_yaml_and_table_exit_as_json_does(ask: Ask, broken: str) -> None:
    codes = {
        ask("diagnose", "-A", "--from", broken, "-o", form).code
        for form in ("table", "wide", "json", "yaml", "name")
    }
    assert codes == {3}


def test_a_cluster_at_peace_exits_0_and_says_how_much_it_looked_at(
    ask: Ask, tmp_path: Path
) -> None:
    done = ask("diagnose", "-A", "--from", written(tmp_path, silent(range(0))))
    assert done.code == 0
    assert done.stdout.startswith("Nothing is stuck.\n\nLooked at 5 claims, 5 PVs and 5 pods")


def test_of_whom_ceph_was_not_asked_it_says_so_and_how_to_ask(ask: Ask, tmp_path: Path) -> None:
    snapshot = silent(range(0))
    assert snapshot.ceph is not None
    unasked = tuple(replace(each, images=()) for each in snapshot.ceph.clusters)
    snapshot = replace(snapshot, ceph=replace(snapshot.ceph, clusters=unasked))
    said = " ".join(ask("diagnose", "-A", "--from", written(tmp_path, snapshot)).stdout.split())
    assert "Of volumes that look well Ceph was not asked" in said
    assert "`rbdagent diagnose TARGET` tells" in said


def test_warnings_alone_fail_where_warnings_are_to_fail(ask: Ask, tmp_path: Path) -> None:
    maker = Maker(Random(0))
    maker.volumes[0] = replace(
        maker.volumes[0],
        deleting_since=LONG_AGO,
        finalizers=("kubernetes.io/pv-protection",),
    )
    path = written(tmp_path, maker.from_afar())
    assert ask("diagnose", "-A", "--from", path).code == 0
    assert ask("diagnose", "-A", "--from", path, "--fail-on", "warning").code == 3


@pytest.mark.parametrize("what", ["claims", "pods", "persistent_volumes"])
def test_nothing_found_where_not_everything_was_seen_is_no_success(
    ask: Ask, tmp_path: Path, what: str
) -> None:
    maker = Maker(Random(0))
    maker.of_kube[what] = UNSEEN
    path = written(tmp_path, replace(maker.from_afar(), ceph=None))
    done = ask("diagnose", "-A", "--from", path)
    assert done.code == 1
    assert done.stdout.startswith("Whether anything is stuck was not observed: permission denied.")
    name = {"claims": "claims", "pods": "pods", "persistent_volumes": "PVs"}[what]
    assert f"; {name} were not observed." in done.stdout
    looked = ask("diagnose", "-A", "--from", path, "-o", "json").data["lookedAt"]
    key = {"persistent_volumes": "persistentVolumes"}.get(what, what)
    assert [each for each, count in looked.items() if count is None] == [key]


@pytest.mark.parametrize(
    "lack",
    [{"ceph": FAILED}, {"kubernetes": replace(OBSERVED, gaps=(Gap(fact="nodes", reason="no"),))}],
    ids=["a source failed", "a list was refused"],
)
def test_nothing_found_where_not_every_source_told_all_is_no_success(
    ask: Ask, tmp_path: Path, lack: dict[str, Source]
) -> None:
    snapshot = silent(range(0), ceph=None)
    snapshot = replace(snapshot, sources=replace(snapshot.sources, **lack))
    done = ask("diagnose", "-A", "--from", written(tmp_path, snapshot))
    assert done.code == 1
    assert done.stdout.startswith("Nothing that was observed is stuck; not everything was")


def test_where_something_is_stuck_and_not_everything_was_seen_there_may_be_more(
    ask: Ask, tmp_path: Path
) -> None:
    snapshot = silent(range(4), ceph=None)
    snapshot = replace(snapshot, sources=replace(snapshot.sources, ceph=FAILED))
    told = ask("diagnose", "-A", "--from", written(tmp_path, snapshot)).stdout
    assert "Stuck: 4, for 1 cause. Not everything was observed: there may be more." in told


def test_where_ceph_was_left_out_on_purpose_nothing_is_stuck_as_far_as_kubernetes_tells(
    ask: Ask, tmp_path: Path
) -> None:
    snapshot = silent(range(0), ceph=None)
    away = Source(state=SourceState.SKIPPED, reason="looked away on purpose")
    snapshot = replace(snapshot, sources=replace(snapshot.sources, ceph=away))
    done = ask("diagnose", "-A", "--from", written(tmp_path, snapshot))
    assert done.code == 0
    assert done.stdout.startswith("Nothing is stuck, as far as Kubernetes tells: Ceph was not")


def test_a_namespace_that_is_not_there_is_not_called_well(ask: Ask, tmp_path: Path) -> None:
    done = ask("diagnose", "-n", "shopp", "--from", written(tmp_path, silent(range(0))))
    assert done.code == 1
    assert done.stdout.startswith("There is nothing in namespace shopp to look at")


def test_of_a_source_with_very_many_gaps_some_are_shown_and_the_rest_counted(
    ask: Ask, tmp_path: Path
) -> None:
    snapshot = silent(range(1))
    gaps = tuple(Gap(fact=f"watchers of image {each}", reason="slow") for each in range(50))
    sources = replace(snapshot.sources, ceph=replace(OBSERVED, gaps=gaps))
    told = ask("diagnose", "-A", "--from", written(tmp_path, replace(snapshot, sources=sources)))
    assert told.stdout.count("not observed: watchers of image") == 20
    assert "and 30 facts more were not observed" in told.stdout


# --------------------------------------------------------------------------------------------------
# Whose
# --------------------------------------------------------------------------------------------------


def test_a_namespace_and_labels_narrow_what_is_told(ask: Ask, tmp_path: Path) -> None:
    snapshot = silent(range(4))
    assert snapshot.kubernetes is not None
    claims = tuple(
        replace(each, labels=(("app", "db"),)) if each.ref.name == "data-2" else each
        for each in observed_of(snapshot.kubernetes.claims)
    )
    snapshot = replace(snapshot, kubernetes=replace(snapshot.kubernetes, claims=claims))
    path = written(tmp_path, snapshot)
    named = ask("diagnose", "-n", "bank", "--from", path, "-o", "name").stdout.split()
    assert named == ["pvc/bank/data-1", "pvc/bank/data-3"]
    labelled = ask("diagnose", "-l", "app=db", "--from", path, "-o", "name").stdout.split()
    assert labelled == ["pvc/shop/data-2"]
    both = ask("diagnose", "-n", "shop", "-l", "app!=db", "--from", path, "-o", "name").stdout
    assert both.split() == ["pvc/shop/data-0"]
    none = ask("diagnose", "-n", "bank", "-l", "app=db", "--from", path).stdout
    assert none.startswith("There is nothing in namespace bank with labels app=db to look at")


@pytest.mark.parametrize(
    "wrong",
    [
        (),
        ("-A", "-n", "shop"),
        ("pvc/shop/data", "-A"),
        ("pvc/shop/data", "-l", "app"),
        ("-l", "app in db"),
        ("-A", "--fail-on", "info"),
    ],
    ids=" ".join,
)
def test_a_call_that_does_not_say_what_is_meant_exits_2(ask: Ask, wrong: tuple[str, ...]) -> None:
    done = ask("diagnose", *wrong)
    assert (done.code, done.stdout) == (2, "")
    assert done.stderr


def test_a_call_without_anything_is_told_all_that_it_may_name(ask: Ask) -> None:
    told = ask("diagnose").stderr
    for form in ("-A", "-n NAMESPACE", "-l LABELS", "pvc/NAMESPACE/NAME"):
        assert form in told


def test_a_namespaces_snapshot_is_not_the_clusters(ask: Ask, tmp_path: Path) -> None:
    target = Target(given="-n shop", kind=TargetKind.NONE, namespace="shop")
    path = written(tmp_path, silent(range(4), target=target))
    assert ask("diagnose", "-n", "shop", "--from", path).code == 3
    for wrong in (("-A",), ("-n", "bank")):
        done = ask("diagnose", *wrong, "--from", path)
        assert (done.code, done.stdout) == (1, "")
        assert f"rbdagent diagnose -n shop --from {path}" in done.stderr


def test_a_snapshot_of_one_volume_or_node_is_not_the_clusters(ask: Ask, tmp_path: Path) -> None:
    done = ask("diagnose", "-A", "--from", str(ORPHAN))
    assert (done.code, done.stdout) == (1, "")
    assert "rbdagent diagnose pv/" in done.stderr
    of_node = written(tmp_path, silent(range(1), target=Target(given="", kind=TargetKind.NONE)))
    done = ask("diagnose", "-A", "--from", of_node)
    assert (done.code, done.stdout) == (1, "")
    assert f"rbdagent list --from {of_node}" in done.stderr


def test_the_clusters_snapshot_answers_the_other_verbs_too(ask: Ask, broken: str) -> None:
    held = ask("who-holds", "pv/pvc-000000", "--from", broken, "-o", "json").data
    assert held["verdict"] == "Orphaned"
    listed = ask("list", "--from", broken, "-o", "json").data
    assert len(listed["items"]) > 30
    absent = ask("who-holds", "pv/pvc-999999", "--from", broken)
    assert (absent.code, absent.stdout) == (1, "")
    assert f"{broken} holds nothing about pv/pvc-999999" in absent.stderr


# --------------------------------------------------------------------------------------------------
# Until it is well
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("what", [("-A",), ("pvc/shop/data-0",)], ids=" ".join)
def test_watching_ends_with_0_when_it_is_well(
    ask: Ask, monkeypatch: pytest.MonkeyPatch, what: tuple[str, ...]
) -> None:
    target = Target(given="pvc/shop/data-0", kind=TargetKind.CLAIM, name="data-0", namespace="shop")
    later = silent(range(1), observed_at="2026-11-21T05:07:09Z")
    looks = [silent(range(4)), silent(range(1)), later, silent(range(0))]
    if what != ("-A",):
        looks = [replace(each, target=target) for each in looks]
    left = iter(looks)
    slept: list[float] = []
    monkeypatch.setattr("rbdagent.cli.diagnose.snapshot_of", lambda *_, **__: next(left))
    monkeypatch.setattr("rbdagent.cli.output.time.sleep", slept.append)
    done = ask("diagnose", *what, "-w")
    assert done.code == 0
    assert len(slept) == 3
    assert next(left, None) is None
    if what == ("-A",):
        # What has only become older is not said again.
        assert done.stdout.count("Stuck: ") == 2
        assert done.stdout.rstrip().partition("Nothing is stuck.")[1]


def test_what_is_well_already_is_watched_no_further(
    ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = iter([silent(range(0))])
    monkeypatch.setattr("rbdagent.cli.diagnose.snapshot_of", lambda *_, **__: next(looks))
    assert ask("diagnose", "-A", "-w").code == 0
