"""The snapshots in examples/, recorded on real systems: they need no Ceph, network or root."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from rbdagent.report.schema import schema
from rbdagent.report.snapshot import dump_snapshot, load_snapshot

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.json"))
ORPHAN = next(path for path in EXAMPLES if path.stem == "true-orphan")


def rbdagent(*args: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "rbdagent", *args],
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
        cwd=ORPHAN.parents[1],
    )


def target_of(path: Path) -> str:
    return str(json.loads(path.read_text())["target"]["argument"])


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_replays_byte_for_byte(path: Path) -> None:
    text = path.read_text()
    assert dump_snapshot(load_snapshot(text, where=path.name)) == text


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example_and_its_report_match_the_published_schemas(path: Path) -> None:
    jsonschema.validate(json.loads(path.read_text()), schema("Snapshot"))
    done = rbdagent("who-holds", target_of(path), "--from", str(path), "-o", "json")
    jsonschema.validate(json.loads(done.stdout), schema("HolderReport"))


def test_cookie_is_a_text_because_jq_keeps_53_bits_of_a_number() -> None:
    done = rbdagent("who-holds", target_of(ORPHAN), "--from", str(ORPHAN), "-o", "json")
    watcher = json.loads(done.stdout)["holders"][0]["watcher"]
    assert watcher["cookie"] == "18446462598732840961"
    assert float(watcher["cookie"]) != int(watcher["cookie"])


@pytest.mark.parametrize(
    ("name", "verdict", "first"),
    [
        ("multi-attach", "Pinned", "ps -o"),
        ("true-orphan", "Orphaned", "rbdagent unmap pv/"),
    ],
)
def test_the_answer_names_the_verdict_and_the_next_command(
    name: str, verdict: str, first: str
) -> None:
    path = ORPHAN.with_name(f"{name}.json")
    done = rbdagent("who-holds", target_of(path), "--from", str(path), "-o", "json")
    report: dict[str, Any] = json.loads(done.stdout)
    assert done.returncode == 3
    assert report["verdict"] == verdict
    assert report["holders"][0]["node"] == "worker-1"
    assert report["next"][0]["command"].startswith(first)


def test_finding_has_the_pods_that_wait_as_data() -> None:
    done = rbdagent("who-holds", target_of(ORPHAN), "--from", str(ORPHAN), "-o", "json")
    (lead, *_) = json.loads(done.stdout)["findings"]
    assert lead["waiting"] == [{"namespace": "default", "name": "app-2", "node": "worker-2"}]
    assert lead["message"].endswith(" Waiting for the volume: default/app-2 on worker-2.")


def test_every_name_of_the_volume_leads_to_the_same_holder() -> None:
    data = json.loads(ORPHAN.read_text())
    volume = data["kubernetes"]["persistentVolumes"][0]
    mapping = data["node"]["mappings"][0]
    spec = mapping["spec"]
    for target in (
        volume["name"],
        f"pv/{volume['name']}",
        f"pvc/{volume['claim']['namespace']}/{volume['claim']['name']}",
        f"{spec['pool']}/{spec['name']}",
        volume["source"]["volumeHandle"],
        mapping["device"],
    ):
        done = rbdagent("who-holds", target, "--from", str(ORPHAN), "-o", "name")
        assert done.stdout == f"worker-1/{mapping['device'].removeprefix('/dev/')}\n", (
            target,
            done.stderr,
        )


def test_yaml_and_json_contain_the_same_data() -> None:
    args = ("who-holds", target_of(ORPHAN), "--from", str(ORPHAN), "-o")
    assert yaml.safe_load(rbdagent(*args, "yaml").stdout) == json.loads(
        rbdagent(*args, "json").stdout
    )


def test_a_snapshot_can_come_from_stdin() -> None:
    done = rbdagent("who-holds", target_of(ORPHAN), "--from", "-", stdin=ORPHAN.read_text())
    assert "Orphaned" in done.stdout


def test_target_that_is_not_in_the_snapshot_is_an_error() -> None:
    done = rbdagent("who-holds", "k8s/other", "--from", str(ORPHAN))
    assert done.returncode == 1
    assert "contains nothing about k8s/other" in done.stderr


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"kind": "Snapshot", "apiVersion": "rbdagent.dev/v1al', "ends too early"),
        ('{"kind": "Pod", "apiVersion": "v1"}', "kind: Snapshot"),
        ('{"kind": "Snapshot", "apiVersion": "rbdagent.dev/v9"}', "another version"),
        ('{"kind": "Snapshot", "apiVersion": "rbdagent.dev/v1alpha1"}', "$.observedAt"),
        ("not json", "JSON"),
    ],
)
def test_error_about_a_bad_snapshot_names_the_expected_form(text: str, words: str) -> None:
    done = rbdagent("who-holds", "pv/x", "--from", "-", stdin=text)
    assert done.returncode == 1
    assert words in done.stderr
    assert "Traceback" not in done.stderr


def test_help_and_version_import_neither_kubernetes_nor_rados() -> None:
    code = (
        "import sys; from rbdagent.cli import run; run(sys.argv[1:]);"
        "heavy = {'kubernetes', 'rados', 'rbd', 'psutil', 'urllib3',"
        "'structlog'} & sys.modules.keys();"
        "assert not heavy, heavy"
    )
    for verb in ("--help", "version"):
        subprocess.run([sys.executable, "-c", code, verb], check=True, capture_output=True)


def test_an_observing_verb_imports_no_types_of_other_verbs() -> None:
    code = (
        "import sys; from rbdagent.cli import run; run(sys.argv[1:]);"
        "print(sorted(name for name in sys.modules if name.startswith('rbdagent.model.')))"
    )
    words = ("who-holds", "pvc/default/data", "--no-ceph", "--no-kube")
    done = subprocess.run(
        [sys.executable, "-c", code, *words], check=True, capture_output=True, text=True
    )
    loaded = done.stdout.splitlines()[-1]
    assert "'rbdagent.model.kubernetes'" in loaded
    assert [name for name in ("drain", "inventory", "lint") if f"model.{name}'" in loaded] == []


@pytest.mark.parametrize(
    ("flags", "is_logged"), [((), False), (("--log-format=json",), False), (("--debug",), True)]
)
def test_an_observing_verb_imports_structlog_only_to_log(
    flags: tuple[str, ...], *, is_logged: bool
) -> None:
    code = (
        "import sys; from rbdagent.cli import run; run(sys.argv[1:]);"
        "print('structlog' in sys.modules, 'psutil' in sys.modules)"
    )
    words = ("who-holds", "pvc/default/data", "--no-ceph", "--no-kube", *flags)
    done = subprocess.run(
        [sys.executable, "-c", code, *words], check=True, capture_output=True, text=True
    )
    assert done.stdout.splitlines()[-1] == f"{is_logged} False"
