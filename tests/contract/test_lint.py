"""`lint` on the command line: files, clusters, formats, exit codes, and what it asks the API."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any, Final

import jsonschema
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from rbdagent.model import (
    ClusterView,
    ImageIdentity,
    NotObserved,
    Snapshot,
    Source,
    SourceState,
    Target,
    TargetKind,
)
from rbdagent.parse.manifest import parse_manifests
from rbdagent.report.snapshot import dump_snapshot
from rbdagent.report.text.layout import Layout
from rbdagent.report.text.lint import lint_text
from tests.support.cli_runner import ROOT, Done, ask
from tests.support.fake_api import FakeApi, kubeconfig, refuse
from tests.support.hostile_texts import FORGED_LINE, ill_texts, is_clean
from tests.support.manifests import (
    BIND_COMPLETED,
    CLAIM_REF,
    SECRET,
    empty_cluster,
    linted,
    listed,
    pv,
    pvc,
)
from tests.support.snapshots import DRIVER, HANDLE, PV, image_view

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

Json = dict[str, Any]

BACKUP: Final = (
    pv(claimRef=CLAIM_REF, persistentVolumeReclaimPolicy="Delete"),
    pvc(meta=BIND_COMPLETED),
)
OFFLINE: Final = ("--no-ceph", "--no-kube")


@pytest.fixture
def snapshot(tmp_path: Path) -> str:
    return written(tmp_path / "snapshot.json", dump_snapshot(empty_cluster()))


def written(path: Path, text: str) -> str:
    path.write_text(text)
    return str(path)


def saved(tmp_path: Path, *objects: Json, name: str = "restore.json") -> str:
    return written(tmp_path / name, listed(*objects))


# --------------------------------------------------------------------------------------------------
# The answer
# --------------------------------------------------------------------------------------------------


def test_answer_begins_with_whether_to_apply(tmp_path: Path, snapshot: str) -> None:
    done = ask("lint", "-f", saved(tmp_path, *BACKUP), "--from", snapshot)
    assert done.code == 3
    assert done.stdout.startswith("DO NOT APPLY  1 critical and 1 error: ")
    assert "RBD801 critical  pv pvc-" in done.stdout
    assert "restore.json, document 1, item 1: spec.claimRef.uid" in " ".join(done.stdout.split())
    assert f"  rbdagent lint -f {tmp_path}/restore.json --print\n" in done.stdout


def test_clean_pair_of_print_is_accepted(tmp_path: Path, snapshot: str) -> None:
    printed = ask("lint", "-f", saved(tmp_path, *BACKUP), "--from", snapshot, "--print")
    assert printed.stdout.startswith("# the reclaim policy was Delete, and is Retain\napiVersion")
    clean = written(tmp_path / "clean.yaml", printed.stdout)
    done = ask("lint", "-f", clean, "--from", snapshot)
    assert "Would bind: shop/data to pvc-" in done.stdout
    # Secrets and ConfigMaps are in no snapshot.
    assert (done.code, done.stdout.split("  ")[0]) == (1, "NOT FULLY OBSERVED")


def test_print_as_json_is_a_list(tmp_path: Path, snapshot: str) -> None:
    file = saved(tmp_path, *BACKUP)
    done = ask("lint", "-f", file, "--from", snapshot, "--print", "-o", "json")
    assert done.data["kind"] == "List"
    assert [item["kind"] for item in done.data["items"]] == [
        "PersistentVolume",
        "PersistentVolumeClaim",
    ]
    assert done.stderr == "rbdagent: the reclaim policy was Delete, and is Retain\n"


def test_volume_without_a_pair_is_named(tmp_path: Path, snapshot: str) -> None:
    file = saved(tmp_path, pv(claimRef=None))
    done = ask("lint", "-f", file, "--from", snapshot, "--print")
    assert done.stdout == f"# {PV} is left out: no claim is known for it alone\n"


def test_json_and_yaml_have_the_same_data_and_match_the_schema(
    tmp_path: Path, snapshot: str
) -> None:
    command = ("lint", "-f", saved(tmp_path, *BACKUP), "--from", snapshot)
    answer = ask(*command, "-o", "json").data
    jsonschema.validate(answer, ask("schema", "LintReport").data)
    assert yaml.safe_load(ask(*command, "-o", "yaml").stdout) == answer
    first = answer["problems"][0]
    assert (first["code"], first["field"]) == ("RBD801", "spec.claimRef.uid")
    assert first["place"]["item"] == 1
    assert answer["complete"] is False


def test_manifests_come_from_stdin(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, snapshot: str
) -> None:
    stdin = io.TextIOWrapper(io.BytesIO(listed(*BACKUP).encode()))
    monkeypatch.setattr("sys.stdin", stdin)
    done = ask("lint", "-f", "-", "--from", snapshot)
    assert "stdin, document 1, item 1: spec.claimRef.uid" in done.stdout
    assert "Next:" not in done.stdout


def test_several_files_are_one_restore(tmp_path: Path, snapshot: str) -> None:
    one = saved(tmp_path, pv(), name="pv.json")
    two = saved(tmp_path, pvc(), name="pvc.json")
    done = ask("lint", "-f", one, "-f", two, "--from", snapshot)
    assert "Would bind: shop/data to pvc-" in done.stdout


@pytest.mark.parametrize(
    ("objects", "flags", "code"),
    [
        pytest.param(BACKUP, (), 3, id="an error"),
        pytest.param((pv(persistentVolumeReclaimPolicy="Delete"), pvc()), (), 1, id="a warning"),
        pytest.param(
            (pv(persistentVolumeReclaimPolicy="Delete"), pvc()),
            ("--fail-on", "warning"), 3, id="a warning that counts",
        ),
    ],
)  # fmt: skip
def test_exit_code(
    tmp_path: Path, snapshot: str, objects: tuple[Json, ...], flags: tuple[str, ...], code: int
) -> None:
    assert ask("lint", "-f", saved(tmp_path, *objects), "--from", snapshot, *flags).code == code


def test_everything_that_was_left_out_on_request_is_no_failure(tmp_path: Path) -> None:
    done = ask("lint", "-f", saved(tmp_path, pv(), pvc()), *OFFLINE)
    assert done.code == 0
    assert done.stdout.startswith("NOT FULLY OBSERVED  nothing speaks against applying")
    assert "the objects of this cluster: not queried, as requested" in done.stdout


def test_what_the_file_alone_shows_is_reported_without_a_cluster(tmp_path: Path) -> None:
    done = ask("lint", "-f", saved(tmp_path, *BACKUP), *OFFLINE)
    assert done.code == 3
    assert "(claims were not observed)" in " ".join(done.stdout.split())


# --------------------------------------------------------------------------------------------------
# Mistakes
# --------------------------------------------------------------------------------------------------


def test_without_a_file_the_usage_is_shown() -> None:
    done = ask("lint")
    assert done.code == 2
    assert "Missing option '--filename' / '-f'" in done.stderr


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("-f", "/none.yaml"), "/none.yaml: no such file"),
        (("-f", "/"), "/: cannot be read: it is a directory, not a regular file"),
        (("-f", "-", "--from", "-"), "-f - and --from - both read stdin"),
        (("-f", "a", "-f", "a"), "-f a is given twice"),
    ],
)
def test_mistake_in_the_command_is_explained(flags: tuple[str, ...], said: str) -> None:
    done = ask("lint", *flags)
    assert (done.code, done.stdout) == (2, "")
    assert said in done.stderr


def test_second_cluster_needs_the_api(tmp_path: Path) -> None:
    done = ask("lint", "-f", saved(tmp_path, *BACKUP), *OFFLINE, "--from-context", "x")
    assert done.code == 2
    assert "do not use --no-kube with it" in done.stderr


def test_bad_manifest_names_file_document_and_field(tmp_path: Path, snapshot: str) -> None:
    file = saved(tmp_path, pv(), pvc(volumeName=7))
    done = ask("lint", "-f", file, "--from", snapshot)
    assert (done.code, done.stdout) == (1, "")
    assert done.stderr.startswith(
        f"rbdagent: {file}, document 1, item 2: cannot read the field spec.volumeName of a "
        "PersistentVolumeClaim: expected a text or nothing, and found a number"
    )


def test_snapshot_of_one_target_is_refused(tmp_path: Path) -> None:
    one = replace(
        empty_cluster(), target=Target(argument=f"pv/{PV}", kind=TargetKind.PERSISTENT_VOLUME)
    )
    file = written(tmp_path / "one.json", dump_snapshot(one))
    done = ask("lint", "-f", saved(tmp_path, *BACKUP), "--from", file)
    assert done.code == 1
    assert "is a snapshot of pv/pvc-" in done.stderr


# --------------------------------------------------------------------------------------------------
# The API
# --------------------------------------------------------------------------------------------------


def config_map(cluster_id: str, monitor: str) -> Json:
    text = json.dumps([{"clusterID": cluster_id, "monitors": [monitor]}])
    return {
        "metadata": {"namespace": "ceph-csi", "name": "ceph-csi-config"},
        "data": {"config.json": text},
    }


def filled(fake: FakeApi, *, monitor: str) -> None:
    """Write to a fake API what a cluster with ceph-csi has, without PVs and claims."""
    for kind in ("persistentvolumes", "persistentvolumeclaims", "pods", "volumeattachments"):
        fake.lists[kind] = []
    fake.lists["events"] = []
    fake.lists["storageclasses"] = [{"metadata": {"name": "rbd"}, "provisioner": DRIVER}]
    fake.lists["csidrivers"] = [{"metadata": {"name": DRIVER}}]
    fake.lists["configmaps"] = [config_map("lab-ceph-1", monitor)]
    fake.lists["secrets"] = [{"metadata": {"namespace": SECRET[0], "name": SECRET[1]}}]
    fake.lists["namespaces"] = [{"metadata": {"name": "shop"}}]


@pytest.fixture
def here() -> Iterator[FakeApi]:
    fake = FakeApi()
    filled(fake, monitor="10.0.0.1:6789")
    yield fake
    fake.stop()


@pytest.fixture
def there() -> Iterator[FakeApi]:
    """Yield the cluster that the manifests came from: it still has the PV."""
    fake = FakeApi()
    filled(fake, monitor="10.9.9.9:6789")
    fake.lists["persistentvolumes"] = [
        pv(claimRef=CLAIM_REF, persistentVolumeReclaimPolicy="Delete")
    ]
    yield fake
    fake.stop()


@pytest.fixture
def query(here: FakeApi, there: FakeApi, tmp_path: Path) -> Callable[..., Done]:
    merged = kubeconfig(here.url)
    other = kubeconfig(there.url)
    merged["clusters"].append({**other["clusters"][0], "name": "other"})
    merged["contexts"] += [
        {"name": "other", "context": {"cluster": "other", "user": "u"}},
        {"name": "same", "context": {"cluster": "c", "user": "u"}},
    ]
    path = written(tmp_path / "kubeconfig", json.dumps(merged))

    def run(*flags: str, objects: tuple[Json, ...] = (pv(), pvc())) -> Done:
        file = saved(tmp_path, *objects)
        return ask("lint", "-f", file, "--kubeconfig", path, "--no-ceph", *flags)

    return run


def test_pair_that_has_everything_is_ok_but_for_ceph(query: Callable[..., Done]) -> None:
    done = query("-o", "json")
    assert (done.code, done.data["problems"], done.data["complete"]) == (0, [], True)
    assert {gap["reason"] for gap in done.data["notObserved"]} == {"not queried, as requested"}


def test_nothing_is_written_and_a_secret_is_asked_for_by_its_metadata(
    here: FakeApi, query: Callable[..., Done]
) -> None:
    accepted: list[str] = []

    def of_secret(handler: Any) -> None:  # noqa: ANN401 - http.server's own
        accepted.append(handler.headers["Accept"])
        refuse(404)(handler)

    path = f"/api/v1/namespaces/{SECRET[0]}/secrets/{SECRET[1]}"
    here.broken[path] = of_secret
    done = query()
    assert "RBD733 error" in done.stdout
    assert accepted == ["application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"]
    assert here.writes == []
    asked = [request for request in here.requests if "configmaps" in request]
    assert all("fieldSelector=metadata.name" in request for request in asked)


def test_what_may_not_be_read_is_not_observed(here: FakeApi, query: Callable[..., Done]) -> None:
    path = f"/api/v1/namespaces/{SECRET[0]}/secrets/{SECRET[1]}"
    here.broken |= {
        path: refuse(403), "/api/v1/configmaps": refuse(403), "/api/v1/namespaces/shop": refuse(403)
    }  # fmt: skip
    done = query()
    assert done.code == 1
    assert "RBD733" not in done.stdout
    for fact in ("ceph-csi's configuration here", "one of the secrets", "one of the namespaces"):
        assert fact in done.stdout


def test_config_that_is_no_json_is_not_observed(here: FakeApi, query: Callable[..., Done]) -> None:
    here.lists["configmaps"][0]["data"] = {"config.json": "{"}
    done = query()
    assert "ConfigMap ceph-csi/ceph-csi-config: cannot read the key config.json" in " ".join(
        done.stdout.split()
    )


def test_other_cluster_is_compared(query: Callable[..., Done]) -> None:
    done = query("--from-context", "other")
    assert done.code == 0
    said = " ".join(done.stdout.split())
    assert f"Cluster other still has {PV}, with the same handle." in said
    assert "has other monitors here than in cluster other" in said


def test_other_cluster_that_does_not_answer_is_not_observed(
    there: FakeApi, query: Callable[..., Done]
) -> None:
    there.stop()
    done = query("--from-context", "other")
    assert done.code == 1
    assert "the objects of cluster other" in done.stdout


def test_other_cluster_must_be_another_one(query: Callable[..., Done]) -> None:
    done = query("--from-context", "same")
    assert done.code == 2
    assert "is the cluster to which the manifests would be applied" in done.stderr


def test_unknown_context_is_not_observed(query: Callable[..., Done]) -> None:
    done = query("--from-context", "none")
    assert done.code == 1
    assert "the objects of cluster none" in done.stdout


# --------------------------------------------------------------------------------------------------
# Ceph
# --------------------------------------------------------------------------------------------------


def test_ceph_is_asked_about_the_images_of_the_files(
    monkeypatch: pytest.MonkeyPatch, here: FakeApi, tmp_path: Path
) -> None:
    questions: list[tuple[ImageIdentity, ...]] = []

    class Process:
        """Answers in place of the process that queries Ceph."""

        def answer(self, question: Any, *_: object, **__: object) -> object:  # noqa: ANN401
            questions.append(question[0])
            views = replace(OF_CEPH, images=(image_view(watchers=(), metadata=()),))
            return replace(CEPH, clusters=(views,)), Source(state=SourceState.OBSERVED)

        def finish(self) -> None: ...

        def end(self) -> None: ...

    monkeypatch.setattr("rbdagent.collect.ceph_process.connect", lambda *_: Process())
    path = written(tmp_path / "kubeconfig", json.dumps(kubeconfig(here.url)))
    done = ask("lint", "-f", saved(tmp_path, pv(), pvc()), "--kubeconfig", path)
    assert [image.spec.name for (image,) in questions] == [image_view().spec.name]
    assert (done.code, done.stdout.split("  ")[0]) == (0, "OK")


CEPH: Final = empty_cluster().ceph or pytest.fail("the empty cluster has a Ceph")
OF_CEPH: Final[ClusterView] = CEPH.clusters[0]


# --------------------------------------------------------------------------------------------------
# Text
# --------------------------------------------------------------------------------------------------


def many() -> tuple[Json, ...]:
    """Return manifests of twenty PVs with the same problem."""
    return tuple(
        pv(
            f"pv-{number}",
            claimRef={**CLAIM_REF, "name": f"data-{number}"},
            persistentVolumeReclaimPolicy="Delete",
            csi={"volumeHandle": HANDLE[:-2] + f"{number:02}"},
        )
        for number in range(20)
    )


def text_of(*objects: Json, into: Snapshot | None = None, layout: Layout) -> str:
    seen = empty_cluster() if into is None else into
    return lint_text(linted(*objects, into=seen), seen, layout, ("restore.json",))


def test_problem_of_many_objects_is_printed_three_times_and_counted() -> None:
    text = text_of(*many(), layout=Layout())
    assert text.count("RBD801 critical") == 3
    assert "RBD801 also: pv pv-3, pv pv-4, pv pv-5 and 14 more (-v has all)" in text
    assert text_of(*many(), layout=Layout(details=True)).count("RBD801 critical") == 20


@pytest.mark.parametrize("width", [60, 80, 200])
def test_lines_fit_the_terminal_except_commands_and_long_words(width: int) -> None:
    text = text_of(*many(), *BACKUP, layout=Layout(width=width))
    # A volume handle is one word of 74 characters.
    wide = [line for line in text.splitlines() if len(line) > width and len(line.split()) > 1]
    assert [line for line in wide if "->" not in line and "rbdagent lint" not in line] == []


def test_notes_are_only_in_the_details() -> None:
    objects = (pv(),)
    assert "RBD611" not in text_of(*objects, layout=Layout())
    assert "RBD611 info" in text_of(*objects, layout=Layout(details=True))


@settings(max_examples=40, deadline=None)
@given(ill=ill_texts, form=st.sampled_from(["table", "wide", "json", "yaml", "print"]))
def test_output_is_clean_whatever_a_file_contains(
    tmp_path_factory: pytest.TempPathFactory, ill: str, form: str
) -> None:
    directory = tmp_path_factory.mktemp("ill")
    attributes = {"clusterID": f"a{ill}", "pool": f"p{ill}", "imageName": f"i{ill}"}
    volume = pv(
        claimRef={**CLAIM_REF, "uid": f"u{ill}"},
        csi={"volumeHandle": f"h{ill}", "volumeAttributes": attributes},
        meta={"uid": f"u{ill}", "annotations": {f"k{ill}": f"v{ill}"}},
    )
    snapshot = written(directory / "snapshot.json", dump_snapshot(empty_cluster()))
    flags = ("--print",) if form == "print" else ("-o", form)
    file = saved(directory, volume, pvc())
    done = ask("lint", "-f", file, "--from", snapshot, *flags)
    assert is_clean(done.stdout), done.stdout
    assert is_clean(done.stderr), done.stderr
    assert "defect" not in done.stderr
    assert FORGED_LINE not in done.stdout
    if form in {"yaml", "print"}:
        assert list(yaml.safe_load_all(done.stdout))


def test_printed_pair_is_read_by_kubectls_parser_of_yaml(tmp_path: Path, snapshot: str) -> None:
    """PyYAML reads what the API's own types must accept: texts stay texts."""
    volume = pv(meta={"annotations": {"a": "yes", "b": "1", "c": "null", "d": "1:30"}})
    printed = ask("lint", "-f", saved(tmp_path, volume, pvc()), "--from", snapshot, "--print")
    (again,) = [
        item
        for item in parse_manifests(printed.stdout, file="f", namespace="default").items
        if item.kind == "PersistentVolume"
    ]
    assert again.data["metadata"]["annotations"] == volume["metadata"]["annotations"]


def test_unmapping_code_is_not_loaded(tmp_path: Path, snapshot: str) -> None:
    script = (
        "import sys; from rbdagent.cli import run; "
        f"run(['lint', '-f', {saved(tmp_path, *BACKUP)!r}, '--from', {snapshot!r}]); "
        "sys.exit('rbdagent.unmap.writer' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], check=False, capture_output=True, cwd=ROOT
    )
    assert done.returncode == 0


def test_reason_of_a_list_that_failed_is_printed(tmp_path: Path) -> None:
    failed = NotObserved(reason="403 forbidden", hint="grant list of persistentvolumes")
    file = written(tmp_path / "s.json", dump_snapshot(empty_cluster(persistent_volumes=failed)))
    done = ask("lint", "-f", saved(tmp_path, pv(), pvc()), "--from", file)
    assert "the PersistentVolumes of this cluster: 403 forbidden" in done.stdout
    assert "    -> grant list of persistentvolumes\n" in done.stdout
