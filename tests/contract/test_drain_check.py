"""``drain-check`` on the command line: its requests, exit codes, files, and refused calls."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final
from urllib.parse import urlparse

import jsonschema
import pytest
from msgspec.structs import replace

from rbdagent.cli.output import now_utc
from rbdagent.model import Snapshot, Target, TargetKind
from rbdagent.report.snapshot import dump_snapshot
from tests.support.cli_runner import ask
from tests.support.fake_api import FakeApi, Json, access_to, refuse
from tests.support.published import publish
from tests.support.recordings import recorded_snapshot
from tests.support.snapshots import (
    POD_PATH,
    mapping,
    mount,
    node_view,
    opener,
    pod,
    unmapped,
    world,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.support.cli_runner import Done

BUDGETS: Final = "/apis/policy/v1/poddisruptionbudgets"
NO_TARGET: Final = Target(argument="", kind=TargetKind.NONE)
MOUNTS: Final = (mount(), mount(path=POD_PATH))
OF_NODE: Final = {"pods": (pod(owners=("StatefulSet/web",)),), "budgets": (), "workloads": ()}


def in_use(**mapped: object) -> Snapshot:
    return world(target=NO_TARGET, mapped={"mounts": MOUNTS, **mapped}, in_kube=OF_NODE)


def drained() -> Snapshot:
    return unmapped(target=NO_TARGET, in_kube={**OF_NODE, "pods": ()})


@pytest.fixture
def saved(tmp_path: Path) -> Callable[[Snapshot], str]:
    """Return a function that writes a snapshot to a file, and returns its path."""

    def save(snapshot: Snapshot) -> str:
        path = tmp_path / "snapshot.json"
        path.write_text(dump_snapshot(snapshot))
        return str(path)

    return save


@pytest.fixture
def api() -> Iterator[FakeApi]:
    fake = FakeApi()
    yield fake
    fake.stop()


@pytest.fixture
def live(api: FakeApi, tmp_path: Path) -> Callable[..., Done]:
    """Return a function that runs it about a node of the API, on a machine that is not the node."""
    kubeconfig = str(access_to(api, tmp_path).kubeconfig)
    return lambda *words: ask("drain-check", *words, "--kubeconfig", kubeconfig, "--no-ceph")


@pytest.mark.parametrize(
    ("snapshot", "flags", "code", "word"),
    [
        (in_use(), (), 0, "CLEAR"),
        (in_use(openers=(opener(),)), (), 3, "BLOCKED"),
        (world(target=NO_TARGET, ceph=None, in_kube=OF_NODE), (), 1, "UNKNOWN"),
        (drained(), ("--after",), 0, "CLEAN"),
        (in_use(), ("--after",), 3, "NOT CLEAN"),
        (unmapped(target=NO_TARGET, node=None, in_kube=OF_NODE), ("--after",), 1, "UNKNOWN"),
    ],
)
def test_the_exit_code_is_the_answer(
    saved: Callable[[Snapshot], str],
    snapshot: Snapshot,
    flags: tuple[str, ...],
    code: int,
    word: str,
) -> None:
    done = ask("drain-check", "worker-1", *flags, "--from", saved(snapshot))
    assert (done.code, done.stderr) == (code, "")
    assert done.stdout.startswith(f"{word}  ")


@pytest.mark.parametrize("flags", [(), ("--after",)], ids=["before", "after"])
def test_json_matches_the_schema(saved: Callable[[Snapshot], str], flags: tuple[str, ...]) -> None:
    snapshot = in_use(openers=(opener(),))
    done = ask("drain-check", "worker-1", *flags, "--from", saved(snapshot), "-o", "json")
    jsonschema.validate(done.data, ask("schema", "DrainReport").data)
    assert (done.code, done.data["state"]) == (3, "blocked")


def test_the_check_before_is_compared(saved: Callable[[Snapshot], str], tmp_path: Path) -> None:
    before = tmp_path / "before.json"
    before.write_text(
        ask("drain-check", "worker-1", "--from", saved(in_use()), "-o", "json").stdout
    )
    done = ask(
        "drain-check", "node/worker-1", "--after", "--before", str(before), "--from",
        saved(drained()), "-o", "json",
    )  # fmt: skip
    assert done.code == 0
    assert done.data["boot"] == {"id": "b001", "earlierID": "b001", "isNew": False}


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("--before", "x"), 2, "--before is for the check after a drain"),
        (("--after", "--before", "missing"), 2, "missing: cannot be read"),
        (("--after", "--before", "-", "--from", "-"), 2, "cannot both read stdin"),
    ],
)
def test_a_wrong_call_is_refused(words: tuple[str, ...], code: int, message: str) -> None:
    done = ask("drain-check", "worker-1", *words)
    assert (done.code, done.stdout) == (code, "")
    assert message in done.stderr


def test_a_node_that_does_not_exist_is_not_clear(live: Callable[..., Done]) -> None:
    done = live("n1x")
    assert (done.code, done.stdout) == (1, "")
    assert "no Node is named n1x" in done.stderr
    assert "did you mean n1?" in done.stderr


def test_it_reads_only_and_asks_for_one_node(api: FakeApi, live: Callable[..., Done]) -> None:
    live("n1")
    assert api.writes == []
    pods = [path for path in api.requests if urlparse(path).path == "/api/v1/pods"]
    assert pods == ["/api/v1/pods?fieldSelector=spec.nodeName%3Dn1&limit=500"]
    assert [path for path in api.requests if "rbdmappings" in path and "n1" not in path] == []


def test_another_machine_takes_the_report_of_the_agent(
    api: FakeApi, live: Callable[..., Done]
) -> None:
    publish(api, "n1", {"device": "/dev/rbd0", "verdict": "Orphaned"}, at=now_utc())
    api.lists["rbdnodes"][0]["status"]["bootID"] = "f3236283-2359-4784-bff6-cc56d0bcf0d4"
    done = live("n1", "-o", "json")
    assert (done.code, done.data["state"]) == (3, "blocked")
    assert [item["step"] for item in done.data["items"]] == ["unused-mapping"]
    assert done.data["sources"]["node"]["reason"].startswith("this machine is not n1")


def test_without_an_agent_the_mappings_are_not_observed(
    api: FakeApi, live: Callable[..., Done]
) -> None:
    api.lists["rbdnodes"] = []
    done = live("n1")
    assert done.code == 1
    assert "what is mapped on n1: no agent has published its mappings" in done.stdout


def test_a_refused_list_of_budgets_is_not_observed(api: FakeApi, live: Callable[..., Done]) -> None:
    api.broken[BUDGETS] = refuse(403)
    done = live("n1")
    assert done.code == 1
    assert "PodDisruptionBudgets: " in done.stdout
    assert "can-i list poddisruptionbudgets" in done.stdout


@pytest.mark.parametrize(
    ("recording", "claim", "node", "expected"),
    [
        ("12-pinned-by-cwd-invisible", "c12", "n1", [("pinned", "RBD102")]),
        ("09b-pinned", "c1", "n1", [("pinned", "RBD102")]),
        ("15-plugin-stopped", "c1", "n1", [("node-service-down", "RBD201")]),
        (
            "05-force-delete-kubelet-stopped",
            "c1",
            "n1",
            [("pinned", "RBD109"), ("node-service-down", "RBD202")],
        ),
        (
            "28-orphan-blocks-delete",
            "cq",
            "n2",
            [("lost-client", "RBD104"), ("unused-mapping", "RBD101")],
        ),
        ("26-not-backed", "cz", "n1", [("data-at-risk", "RBD108"), ("refused-pod", None)]),
        ("01-fs-running", "c1", "n1", [("refused-pod", None)]),
    ],
)
def test_recorded_nodes_have_the_blocker_that_was_played(
    saved: Callable[[Snapshot], str],
    tmp_path: Path,
    recording: str,
    claim: str,
    node: str,
    expected: list[tuple[str, str | None]],
) -> None:
    recorded = recorded_snapshot(recording, claim, node_name=node, root=tmp_path / "tree")
    seen = replace(recorded, target=NO_TARGET)
    done = ask("drain-check", node, "--from", saved(seen), "-o", "json")
    assert [(item["step"], item["code"]) for item in done.data["items"]] == expected


def running(name: str, **metadata: object) -> Json:
    return {
        "metadata": {"name": name, "namespace": "shop", "uid": f"uid-{name}", **metadata},
        "spec": {"nodeName": "n1"},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
    }


def owned_by(kind: str, name: str) -> dict[str, object]:
    return {"ownerReferences": [{"kind": kind, "name": name, "controller": True}]}


def test_a_budget_and_a_missing_controller_are_read_from_the_api(
    api: FakeApi, live: Callable[..., Done]
) -> None:
    labels = {"app": "db"}
    api.lists["pods"] = [
        running("alone"),
        running("db-0", labels=labels, **owned_by("StatefulSet", "db")),
        running("log-x", **owned_by("DaemonSet", "log")),
    ]
    api.lists["poddisruptionbudgets"] = [
        {
            "metadata": {"name": "db", "namespace": "shop"},
            "spec": {"selector": {"matchLabels": labels}},
            "status": {"disruptionsAllowed": 0, "currentHealthy": 1, "desiredHealthy": 1},
        }
    ]
    done = live("n1", "-o", "json")
    found = [(item["step"], item["about"]["name"]) for item in done.data["items"]]
    assert found == [("refused-pod", "alone"), ("refused-pod", "db-0")]
    assert done.data["items"][1]["commands"][0]["changes"] is False


def test_every_kind_of_a_node_is_in_a_snapshot_of_the_cluster(api: FakeApi, tmp_path: Path) -> None:
    kubeconfig = str(access_to(api, tmp_path).kubeconfig)
    flags = ("--kubeconfig", kubeconfig, "--no-ceph", "--no-node")
    file = tmp_path / "cluster.json"
    file.write_text(ask("snapshot", "-A", *flags).stdout)
    assert "budgets" in json.loads(file.read_text())["kubernetes"]
    done = ask("drain-check", "n1", "--from", str(file), "-o", "json")
    assert [gap["fact"] for gap in done.data["notObserved"]] == ["what is mapped on n1"]


def test_the_device_of_the_observed_node_is_no_answer_about_another_one(
    saved: Callable[[Snapshot], str],
) -> None:
    seen = world(
        target=NO_TARGET,
        node=node_view(mappings=(mapping(openers=(opener(),)),)),
        in_kube=OF_NODE,
    )
    done = ask("drain-check", "worker-2", "--from", saved(seen), "-o", "json")
    assert done.data["items"] == []


def test_refused_budgets_are_no_gap_for_the_other_verbs(api: FakeApi, tmp_path: Path) -> None:
    flags = ("--kubeconfig", str(access_to(api, tmp_path).kubeconfig), "--no-ceph", "--no-node")
    file = tmp_path / "cluster.json"
    answers = []
    for _ in range(2):
        file.write_text(ask("snapshot", "-A", *flags).stdout)
        done = ask("diagnose", "-A", "--from", str(file), "-o", "json")
        answers.append((done.code, done.data["sources"]["kubernetes"]["gaps"]))
        api.broken[BUDGETS] = refuse(403)
    assert answers[0] == answers[1]
    assert ask("drain-check", "n1", "--from", str(file)).code == 1
