"""`diagnose -A`: its requests to the API and to Ceph, and its output for people and programs."""

from __future__ import annotations

import re
from random import Random
from typing import TYPE_CHECKING, Any, Final

import jsonschema
import pytest
from msgspec.structs import replace

from rbdagent.cli import run
from rbdagent.collect.kube.connection import Connection
from rbdagent.collect.kube.list_cluster import observe_cluster
from rbdagent.collector import _query_suspect_images
from rbdagent.correlate.index import index_of
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
from rbdagent.report.snapshot import dump_snapshot
from tests.lab.many import many
from tests.support.cli_runner import ORPHAN, Done
from tests.support.fake_api import FakeApi, access_to, refuse
from tests.support.random_clusters import Maker, address
from tests.support.sample_pages import ParsedPage
from tests.support.snapshots import (
    DRIVER,
    FAILED,
    LONG_AGO,
    OBSERVED,
    UNSEEN,
    cluster,
    node_view,
    world,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from rbdagent.collect.kube.kubeconfig import KubeAccess

    Ask = Callable[..., Done]

Json = dict[str, Any]
WHOLE: Final = Target(argument="-A", kind=TargetKind.NONE)
OF_CLUSTER: Final = (
    "/api/v1/persistentvolumes",
    "/api/v1/nodes",
    "/apis/storage.k8s.io/v1/csinodes",
    "/apis/storage.k8s.io/v1/volumeattachments",
    "/apis/storage.k8s.io/v1/storageclasses",
    "/apis/storage.k8s.io/v1/csidrivers",
    "/apis/rbdagent.dev/v1alpha1/rbdnodes",
    "/apis/rbdagent.dev/v1alpha1/rbdmappings",
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
    return access_to(api, tmp_path)


def look(access: KubeAccess, namespace: str | None = None) -> tuple[KubeView, Source]:
    view, source = observe_cluster(Connection(access), namespace=namespace, node_name="n1")
    assert view is not None
    return view, source


# --------------------------------------------------------------------------------------------------
# The API
# --------------------------------------------------------------------------------------------------


def test_every_kind_that_volumes_depend_on_is_listed_once(api: FakeApi, access: KubeAccess) -> None:
    view, source = look(access)
    assert source == Source(state=SourceState.OBSERVED)
    assert len(observed_of(view.persistent_volumes)) == 4
    assert len(observed_of(view.claims)) == 4
    assert [pod.labels for pod in observed_of(view.pods)] == [(("app", "app"),)] * 2
    assert [workload.name for workload in observed_of(view.workloads)] == ["Deployment/web"]
    assert [storage_class.name for storage_class in observed_of(view.storage_classes)] == ["rbd"]
    assert view.drivers == ("rbd.csi.ceph.com",)
    assert (view.pods_scope, view.consistent, view.published) == ("cluster", True, ())
    asked = [request.partition("?")[0] for request in api.requests]
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
    assert sum(request.startswith("/api/v1/events") for request in api.requests) == 3


def test_namespace_limits_the_lists_of_namespaced_objects(api: FakeApi, access: KubeAccess) -> None:
    view, _ = look(access, "default")
    asked = [
        request.partition("?")[0]
        for request in api.requests
        if request.partition("?")[0] not in OF_CLUSTER
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
    # The pods of this node are listed as well: they may use what is mapped here.
    assert {str(pod.ref) for pod in observed_of(view.pods)} == {"default/app", "shop/app"}
    assert view.pods_scope == "node/n1,namespace/default"


def test_role_alone_shows_the_namespace_and_leaves_cluster_gaps(
    api: FakeApi, access: KubeAccess
) -> None:
    for path in (*OF_CLUSTER, "/api/v1/pods"):
        api.broken[path] = refuse(403)
    view, source = look(access, "default")
    assert len(observed_of(view.claims)) == 4
    assert [str(pod.ref) for pod in observed_of(view.pods)] == ["default/app"]
    assert view.pods_scope == "namespace/default"
    assert {gap.fact for gap in source.gaps} == {
        "PersistentVolumes",
        "nodes",
        "CSINodes",
        "VolumeAttachments",
        "storage classes",
        "CSIDrivers",
        "RBDNodes",
    }
    assert all("docs/privileges.md" in gap.hint for gap in source.gaps)


def test_forbidden_events_of_volumes_are_a_separate_gap(api: FakeApi, access: KubeAccess) -> None:
    api.lists["events"] = [
        {
            "metadata": {"namespace": "shop", "name": "e"},
            "involvedObject": {"kind": "Pod", "namespace": "shop", "name": "app"},
            "reason": "FailedMount",
        }
    ]
    api.broken["/api/v1/namespaces/default/events"] = refuse(403)
    view, source = look(access, "shop")
    assert [event.reason for event in observed_of(view.events)] == ["FailedMount"]
    assert [gap.fact for gap in source.gaps] == ["events of PersistentVolumes"]


def test_missing_rbdnode_resource_is_not_a_gap(api: FakeApi, access: KubeAccess) -> None:
    for resource in ("rbdnodes", "rbdmappings"):
        api.broken[f"/apis/rbdagent.dev/v1alpha1/{resource}"] = refuse(404)
    view, source = look(access)
    assert (view.published, source.gaps) == ((), ())


def test_server_that_refuses_everything_is_a_failed_source(
    api: FakeApi, access: KubeAccess
) -> None:
    for path in ("/api/v1/pods", "/api/v1/persistentvolumeclaims", *OF_CLUSTER):
        api.broken[path] = refuse(403)
    view, source = observe_cluster(Connection(access), namespace=None, node_name="n1")
    assert view is None
    assert (source.state, source.gaps) == (SourceState.FAILED, ())
    assert "is forbidden" in source.reason
    assert "docs/privileges.md" in source.hint


# --------------------------------------------------------------------------------------------------
# Ceph
# --------------------------------------------------------------------------------------------------


class Ceph:
    """Answers with a blocklist, and records the images of each query."""

    def __init__(self, *blocklist: BlocklistEntry) -> None:
        self.asked: list[list[str]] = []
        self._view = CephView(clusters=(cluster(images=(), blocklist=blocklist),))

    def ask(self, images: tuple[ImageIdentity, ...]) -> tuple[CephView | None, Source]:
        self.asked.append([image.spec.name for image in images])
        return self._view, OBSERVED


def without_ceph(maker: Maker) -> Snapshot:
    return replace(maker.from_afar(), ceph=None)


def test_ceph_is_queried_only_about_suspects() -> None:
    maker, ceph = Maker(Random(0)), Ceph()
    maker.pods[2] = replace(maker.pods[2], phase="Pending")
    _query_suspect_images(index_of(without_ceph(maker)), (), ceph.ask)
    assert ceph.asked == [["image-2"]]


def test_ceph_is_queried_about_volumes_of_blocklisted_nodes() -> None:
    maker = Maker(Random(0))
    ceph = Ceph(BlocklistEntry(network=address("worker-2").ip, nonce=77))
    _query_suspect_images(index_of(without_ceph(maker)), (), ceph.ask)
    # Pods on worker-2 use data-1 and data-4.
    assert ceph.asked == [[], ["image-1", "image-4"]]


def test_suspects_above_the_limit_are_counted_as_not_observed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("rbdagent.collector._MOST_IMAGES", 2)
    maker, ceph = Maker(Random(0)), Ceph()
    for number in range(5):
        maker.pods[number] = replace(maker.pods[number], phase="Unknown")
    maker.pods[4] = replace(maker.pods[4], phase="Pending")
    _, source = _query_suspect_images(index_of(without_ceph(maker)), (), ceph.ask)
    assert ceph.asked == [["image-4", "image-1"]]
    (gap,) = source.gaps
    assert gap.fact == "the holders of 3 more images that may have problems"
    # A gap is text: a command in it would be wrong through the plugin.
    assert "-n NAMESPACE" in gap.hint
    assert "rbdagent" not in gap.hint


def test_ceph_that_does_not_answer_is_queried_once() -> None:
    asked = []

    def ask(images: tuple[ImageIdentity, ...]) -> tuple[CephView | None, Source]:
        asked.append(images)
        return None, FAILED

    assert _query_suspect_images(index_of(without_ceph(Maker(Random(0)))), (), ask) == (
        None,
        FAILED,
    )
    assert len(asked) == 1


# --------------------------------------------------------------------------------------------------
# The output
# --------------------------------------------------------------------------------------------------


@pytest.fixture
def ask(capsys: pytest.CaptureFixture[str]) -> Ask:
    def in_this_process(*args: str) -> Done:
        code = run(args)
        return Done(code, *capsys.readouterr())

    return in_this_process


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the snapshot file of a cluster with 400 broken volumes."""
    path = tmp_path_factory.mktemp("broken") / "file"
    path.write_text(dump_snapshot(many(volumes=600, broken=400, seed=1).snapshot))
    return str(path)


def written(directory: Path, snapshot: Snapshot) -> str:
    path = directory / "snapshot"
    path.write_text(dump_snapshot(snapshot))
    return str(path)


def silent(numbers: range, **changes: Any) -> Snapshot:  # noqa: ANN401 - of the snapshot
    """Return a snapshot of a cluster in which the provisioner reports nothing about some claims."""
    maker = Maker(Random(0))
    gone = {f"pv-{number}" for number in numbers}
    maker.volumes = [volume for volume in maker.volumes if volume.name not in gone]
    maker.attachments = [
        attachment for attachment in maker.attachments if attachment.persistent_volume not in gone
    ]
    for number in numbers:
        maker.claims[number] = replace(
            maker.claims[number],
            phase="Pending",
            volume_name=None,
            bind_completed=False,
            provisioner=DRIVER,
        )
        maker.pods[number] = replace(maker.pods[number], phase="Pending", node_name=None)
    return replace(maker.from_afar(), **changes)


def test_each_blocked_claim_has_a_row_with_the_pod_that_waits(ask: Ask, tmp_path: Path) -> None:
    done = ask("diagnose", "-A", "--from", written(tmp_path, silent(range(4))))
    first, _, rest = done.stdout.partition("\n\n")
    assert first == "At least 4 volumes need attention: 4 blocked."
    heading, *rows = rest.partition("\n\n")[0].splitlines()
    assert heading == "BLOCKED (a pod waits)"
    assert [row.split() for row in rows] == [
        ["-", f"{namespace}/data-{number}", "Provisioner", "reports", "nothing",
         f"web-{number}", "waits", "24h", "RBD606"]
        for namespace, number in (("bank", 1), ("bank", 3), ("shop", 0), ("shop", 2))
    ]  # fmt: skip
    assert done.stdout.endswith("Next:\n  rbdagent diagnose pvc/bank/data-1\n")
    assert done.code == 3


def test_details_show_each_cause_once(ask: Ask, tmp_path: Path) -> None:
    text = ask("diagnose", "-A", "--from", written(tmp_path, silent(range(4))), "-v").stdout
    assert text.count("RBD606 error") == 1
    assert "Affects 4: pvc/bank/data-1, pvc/bank/data-3, pvc/shop/data-0 and 1 more." in text


def test_rows_are_limited_and_wide_lists_all(ask: Ask, broken: str) -> None:
    text = ask("diagnose", "-A", "--from", broken).stdout
    wide = ask("diagnose", "-A", "--from", broken, "-o", "wide").stdout
    items = ask("diagnose", "-A", "--from", broken, "-o", "json").data["items"]
    assert len(text.splitlines()) < 100
    assert re.search(r"^  and \d+ more \(-o wide lists them\): \d+ RBD\d", text, re.MULTILINE)
    assert "-o wide lists them" not in wide
    rows = re.findall(r"^  \S.* RBD\d{3}$", wide, re.MULTILINE)
    assert len(rows) == len(items) == 400


def test_counts_of_the_answer_are_those_of_all_items(ask: Ask, broken: str) -> None:
    first = ask("diagnose", "-A", "--from", broken).stdout.partition("\n\n")[0]
    total, *counts = map(int, re.findall(r"\d+", first))
    assert total == sum(counts) == 400


def test_leftovers_are_counted_and_listed_with_details(ask: Ask, tmp_path: Path) -> None:
    path = written(tmp_path, replace(world(), target=WHOLE))
    text = ask("diagnose", "-A", "--from", path).stdout
    assert text.startswith("1 volume needs attention: 1 leftover.\n")
    heading = "LEFTOVERS (no pod waits)"
    assert f"{heading}\n  1 (-o wide lists them): 1 RBD101 Mapping orphaned\n" in text
    details = ask("diagnose", "-A", "--from", path, "-v").stdout
    assert re.search(rf"{re.escape(heading)}\n  worker-1  default/data  .*  RBD101\n", details)


def test_volume_is_no_leftover_if_pods_were_not_observed(ask: Ask, tmp_path: Path) -> None:
    unseen = replace(world(in_kube={"pods": UNSEEN}), target=WHOLE)
    text = ask("diagnose", "-A", "--from", written(tmp_path, unseen)).stdout
    assert text.startswith("At least 1 volume needs attention: 1 other.\n")
    assert re.search(r"OTHER PROBLEMS\n.*  pods not observed  +RBD\d+\n", text)


def test_json_lists_a_report_per_target_and_the_causes(ask: Ask, broken: str) -> None:
    done = ask("diagnose", "-A", "--from", broken, "-o", "json")
    answer = done.data
    jsonschema.validate(answer, ask("schema", "ClusterReport").data)
    assert all("sources" not in item for item in answer["items"])
    assert set(answer["sources"]) == {"node", "ceph", "kubernetes"}
    affected = [one for cause in answer["rootCauses"] for one in cause["affected"]]
    assert affected == [item["target"]["argument"] for item in answer["items"]]
    assert answer["examined"]["claims"] > 500


def test_names_are_targets_that_diagnose_takes(ask: Ask, broken: str) -> None:
    names = ask("diagnose", "-A", "--from", broken, "-o", "name").stdout.split()
    assert len(names) == 400
    listed = ask("diagnose", "-A", "--from", broken, "-o", "json").data["items"]
    for name in names[::40]:
        one = ask("diagnose", name, "--from", broken, "-o", "json").data
        same = next(item for item in listed if item["target"]["argument"] == name)
        # RBD119 on a volume that no pod waits for is reported only if the volume is the target.
        reported = [finding for finding in one["findings"] if finding["code"] != "RBD119"]
        assert reported == [finding for finding in same["findings"] if finding["code"] != "RBD119"]
        assert one["attachPath"] == same["attachPath"]


def test_exit_code_does_not_depend_on_the_format(ask: Ask, broken: str) -> None:
    codes = {
        ask("diagnose", "-A", "--from", broken, "-o", form).code
        for form in ("table", "wide", "json", "yaml", "name", "html")
    }
    assert codes == {3}


def test_page_of_a_namespace_states_its_selection(ask: Ask, tmp_path: Path) -> None:
    path = written(tmp_path, silent(range(4)))
    page = ParsedPage(ask("diagnose", "-n", "bank", "--from", path, "-o", "html").stdout)
    assert "At least 2 volumes in namespace bank need attention: 2 blocked." in page.text
    assert "shop/data-0" not in page.text
    watched = ask("diagnose", "-A", "--from", path, "-o", "html", "-w")
    assert (watched.code, watched.stdout) == (2, "")


def test_healthy_cluster_exits_0_and_prints_what_was_checked(ask: Ask, tmp_path: Path) -> None:
    done = ask("diagnose", "-A", "--from", written(tmp_path, silent(range(0))))
    assert done.code == 0
    assert done.stdout.startswith(
        "OK as far as observed: nothing is stuck. Not observed: this node (not queried,\n"
        "as requested).\n\nChecked 5 claims, 5 PVs and 5 pods"
    )


def test_answer_is_plainly_ok_only_if_everything_was_observed(ask: Ask, tmp_path: Path) -> None:
    snapshot = silent(range(0))
    seen = replace(
        snapshot,
        node=node_view(node_name="worker-9", mappings=()),
        sources=replace(snapshot.sources, node=OBSERVED),
    )
    done = ask("diagnose", "-A", "--from", written(tmp_path, seen))
    assert done.stdout.startswith("OK: nothing is stuck.\n")
    assert done.code == 0


def test_output_shows_how_to_query_ceph_about_healthy_volumes(ask: Ask, tmp_path: Path) -> None:
    snapshot = silent(range(0))
    assert snapshot.ceph is not None
    unasked = tuple(replace(ceph_cluster, images=()) for ceph_cluster in snapshot.ceph.clusters)
    snapshot = replace(snapshot, ceph=replace(snapshot.ceph, clusters=unasked))
    said = " ".join(ask("diagnose", "-A", "--from", written(tmp_path, snapshot)).stdout.split())
    assert "Ceph was queried about 0 images: volumes that seem healthy were not checked" in said
    assert "diagnose TARGET checks one" in said


def test_fail_on_warning_makes_warnings_a_failure(ask: Ask, tmp_path: Path) -> None:
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
def test_no_finding_with_unobserved_kinds_is_not_a_success(
    ask: Ask, tmp_path: Path, what: str
) -> None:
    maker = Maker(Random(0))
    maker.of_kube[what] = UNSEEN
    path = written(tmp_path, replace(maker.from_afar(), ceph=None))
    done = ask("diagnose", "-A", "--from", path)
    assert done.code == 1
    assert done.stdout.startswith("UNKNOWN whether anything is stuck: permission denied.")
    name = {"claims": "claims", "pods": "pods", "persistent_volumes": "PVs"}[what]
    assert f"; {name} were not observed." in done.stdout.replace("\n", " ")
    examined = ask("diagnose", "-A", "--from", path, "-o", "json").data["examined"]
    key = {"persistent_volumes": "persistentVolumes"}.get(what, what)
    assert [kind for kind, count in examined.items() if count is None] == [key]


@pytest.mark.parametrize(
    "lack",
    [{"ceph": FAILED}, {"kubernetes": replace(OBSERVED, gaps=(Gap(fact="nodes", reason="no"),))}],
    ids=["a source failed", "a list was refused"],
)
def test_no_finding_with_incomplete_sources_is_not_a_success(
    ask: Ask, tmp_path: Path, lack: dict[str, Source]
) -> None:
    snapshot = silent(range(0), ceph=None)
    snapshot = replace(snapshot, sources=replace(snapshot.sources, **lack))
    done = ask("diagnose", "-A", "--from", written(tmp_path, snapshot))
    assert done.code == 1
    assert done.stdout.startswith("OK as far as observed: nothing is stuck. Not observed: ")


def test_incomplete_observation_is_reported_with_the_findings(ask: Ask, tmp_path: Path) -> None:
    snapshot = silent(range(4), ceph=None)
    snapshot = replace(snapshot, sources=replace(snapshot.sources, ceph=FAILED))
    output = ask("diagnose", "-A", "--from", written(tmp_path, snapshot)).stdout
    assert output.startswith("At least 4 volumes need attention: 4 blocked.\n")


def test_excluded_ceph_limits_the_result_to_kubernetes(ask: Ask, tmp_path: Path) -> None:
    snapshot = silent(range(0), ceph=None)
    away = Source(state=SourceState.SKIPPED, reason="not queried, as requested")
    snapshot = replace(snapshot, sources=replace(snapshot.sources, ceph=away))
    done = ask("diagnose", "-A", "--from", written(tmp_path, snapshot))
    assert done.code == 0
    assert done.stdout.startswith("OK as far as observed: nothing is stuck. Not observed: ")
    assert "Ceph (not queried, as requested)" in done.stdout.replace("\n", " ")


def test_missing_namespace_is_not_reported_as_healthy(ask: Ask, tmp_path: Path) -> None:
    done = ask("diagnose", "-n", "shopp", "--from", written(tmp_path, silent(range(0))))
    assert done.code == 1
    assert done.stdout.startswith("There is nothing in namespace shopp to check")


def test_details_show_some_of_many_gaps_and_count_the_rest(ask: Ask, tmp_path: Path) -> None:
    snapshot = silent(range(1))
    gaps = tuple(Gap(fact=f"watchers of image {number}", reason="slow") for number in range(50))
    sources = replace(snapshot.sources, ceph=replace(OBSERVED, gaps=gaps))
    path = written(tmp_path, replace(snapshot, sources=sources))
    assert (
        "except watchers of image 0 and 49 more facts"
        in ask("diagnose", "-A", "--from", path).stdout
    )
    done = ask("diagnose", "-A", "--from", path, "-v")
    assert done.stdout.count("not observed: watchers of image") == 20
    assert "and 30 more facts were not observed" in done.stdout


# --------------------------------------------------------------------------------------------------
# Selection by namespace and labels
# --------------------------------------------------------------------------------------------------


def test_namespace_and_labels_narrow_the_output(ask: Ask, tmp_path: Path) -> None:
    snapshot = silent(range(4))
    assert snapshot.kubernetes is not None
    claims = tuple(
        replace(claim, labels=(("app", "db"),)) if claim.ref.name == "data-2" else claim
        for claim in observed_of(snapshot.kubernetes.claims)
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
    assert none.startswith("There is nothing in namespace bank with labels app=db to check")


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
def test_ambiguous_call_exits_2(ask: Ask, wrong: tuple[str, ...]) -> None:
    done = ask("diagnose", *wrong)
    assert (done.code, done.stdout) == (2, "")
    assert done.stderr


def test_call_without_a_target_lists_the_possible_ones(ask: Ask) -> None:
    message = ask("diagnose").stderr
    for form in ("-A", "-n NAMESPACE", "-l LABELS", "pvc/NAMESPACE/NAME"):
        assert form in message


def test_a_namespaces_snapshot_is_not_the_clusters(ask: Ask, tmp_path: Path) -> None:
    target = Target(argument="-n shop", kind=TargetKind.NONE, namespace="shop")
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
    of_node = written(tmp_path, silent(range(1), target=Target(argument="", kind=TargetKind.NONE)))
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
    assert f"{broken} contains nothing about pv/pvc-999999" in absent.stderr


# --------------------------------------------------------------------------------------------------
# Watching until nothing is stuck
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("what", [("-A",), ("pvc/shop/data-0",)], ids=" ".join)
def test_watch_ends_with_0_when_nothing_is_stuck(
    ask: Ask, monkeypatch: pytest.MonkeyPatch, what: tuple[str, ...]
) -> None:
    target = Target(
        argument="pvc/shop/data-0", kind=TargetKind.CLAIM, name="data-0", namespace="shop"
    )
    later = silent(range(1), observed_at="2026-11-21T05:07:09Z")
    looks = [silent(range(4)), silent(range(1)), later, silent(range(0))]
    if what != ("-A",):
        looks = [replace(snapshot, target=target) for snapshot in looks]
    left = iter(looks)
    slept: list[float] = []
    monkeypatch.setattr("rbdagent.cli.diagnose.snapshot_of", lambda *_, **__: next(left))
    monkeypatch.setattr("rbdagent.cli.output.time.sleep", slept.append)
    done = ask("diagnose", *what, "-w")
    assert done.code == 0
    assert len(slept) == 3
    assert next(left, None) is None
    if what == ("-A",):
        # A snapshot that differs only in its time is not printed again.
        assert re.findall(r"^At least (\d) volumes?", done.stdout, re.MULTILINE) == ["4", "1"]
        assert "\nOK as far as observed: nothing is stuck." in done.stdout


def test_watch_of_a_healthy_cluster_ends_at_once(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = iter([silent(range(0))])
    monkeypatch.setattr("rbdagent.cli.diagnose.snapshot_of", lambda *_, **__: next(looks))
    assert ask("diagnose", "-A", "-w").code == 0
