"""``list -A``: what agents published, selected, counted and limited."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import pytest

from rbdagent.cli.output import now_utc
from tests.support.cli_runner import ask
from tests.support.fake_api import FakeApi, access_to, refuse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.support.cli_runner import Done

Json = dict[str, Any]
OLD: Final = "2026-01-01T00:00:00Z"


def mapping(number: int, verdict: str = "InUse", **more: object) -> Json:
    return {
        "device": f"/dev/rbd{number}",
        "verdict": verdict,
        "image": {"pool": "k8s", "name": f"csi-vol-{number}"},
        "clientID": 4000 + number,
        "persistentVolume": f"pv-{number}",
        "pods": ["shop/web-0"],
        **more,
    }


def report(name: str, *mappings: Json, at: str = "", observed: bool = True) -> Json:
    status = {"observedAt": at or now_utc(), "mappings": list(mappings) if observed else None}
    return {"metadata": {"name": name}, "status": status}


def claim(name: str, number: int, namespace: str = "shop") -> Json:
    return {
        "metadata": {"name": name, "namespace": namespace, "uid": f"uid-{name}"},
        "spec": {"volumeName": f"pv-{number}"},
        "status": {"phase": "Bound"},
    }


@pytest.fixture
def api() -> Iterator[FakeApi]:
    """Yield an API server with the reports of three nodes, one of them outdated."""
    fake = FakeApi()
    fake.page = 2
    fake.lists["rbdnodes"] = [
        report("n1", mapping(1), mapping(2, "Orphaned", findings=["RBD101"])),
        report("n2", mapping(3), mapping(4, "Shared"), mapping(5, "Dead", findings=["RBD103"])),
        report("n3", mapping(6, "Staged"), at=OLD),
    ]
    fake.lists["persistentvolumeclaims"] = [claim("data", 2), claim("logs", 3, "other")]
    yield fake
    fake.stop()


@pytest.fixture
def listed(api: FakeApi, tmp_path: Path) -> Callable[..., Done]:
    """Return a function that runs ``list -A`` with further flags."""
    kubeconfig = str(access_to(api, tmp_path).kubeconfig)
    return lambda *more: ask("list", "-A", "--kubeconfig", kubeconfig, *more)


def rows(done: Done) -> list[tuple[str, str]]:
    """Return node and device of the rows of a table."""
    lines = [line.split() for line in done.stdout.splitlines()]
    return [(line[0], line[1]) for line in lines if line[1:2] and line[1].startswith("/dev/")]


def test_the_first_line_counts_what_needs_attention(listed: Callable[..., Done]) -> None:
    first, *_ = listed().stdout.splitlines()
    assert first == "2 of 6 mappings need attention, on 3 nodes: 1 Orphaned, 1 Dead."


def test_only_unhealthy_mappings_are_listed(listed: Callable[..., Done]) -> None:
    done = listed()
    assert rows(done) == [("n1", "/dev/rbd2"), ("n2", "/dev/rbd5")]
    assert "4 healthy mappings not shown (--all): 2 InUse, 1 Shared, 1 Staged." in done.stdout


def test_healthy_verdict_with_a_finding_needs_attention(
    api: FakeApi, listed: Callable[..., Done]
) -> None:
    api.lists["rbdnodes"] = [report("n1", mapping(1, findings=["RBD103"]), mapping(2))]
    assert rows(listed()) == [("n1", "/dev/rbd1")]


def test_node_without_a_recent_report_is_unknown(listed: Callable[..., Done]) -> None:
    done = listed("--verdict", "Staged")
    assert rows(done) == [("n3", "/dev/rbd6")]
    assert "mappings of 1 node are unknown:\n  n3: its agent last reported " in done.stdout


def test_report_without_observed_devices_does_not_mean_none(
    api: FakeApi, listed: Callable[..., Done]
) -> None:
    api.lists["rbdnodes"] = [report("n1", observed=False)]
    done = listed()
    assert done.stdout.startswith("Nothing is mapped on the 0 nodes whose agents reported.")
    assert "n1: not observed: its agent has not seen its devices" in done.stdout
    assert done.code == 1


def test_no_report_does_not_mean_none(api: FakeApi, listed: Callable[..., Done]) -> None:
    api.lists["rbdnodes"] = []
    assert listed().stdout == "No agent has published anything yet.\n"


def test_unknown_nodes_are_limited(api: FakeApi, listed: Callable[..., Done]) -> None:
    api.lists["rbdnodes"] = [report(f"n{number}", at=OLD) for number in range(15)]
    assert "  and 5 more (-v)" in listed().stdout
    assert "n14: its agent last reported" in listed("-v").stdout


@pytest.mark.parametrize(
    ("flags", "devices"),
    [
        (("--all",), [1, 2, 3, 4, 5, 6]),
        (("--on-node", "n1", "--all"), [1, 2]),
        (("--on-node", "n1", "--on-node", "n3", "--all"), [1, 2, 6]),
        (("--verdict", "inuse"), [1, 3]),
        (("--verdict", "Dead", "--verdict", "Shared"), [4, 5]),
        (("-n", "shop"), [2]),
        (("-n", "other", "--all"), [3]),
        (("-n", "none"), []),
        (("--on-node", "none"), []),
    ],
    ids=str,
)
def test_flags_select_mappings(
    listed: Callable[..., Done], flags: tuple[str, ...], devices: list[int]
) -> None:
    assert [device for _, device in rows(listed(*flags))] == [f"/dev/rbd{n}" for n in devices]


def test_labels_are_selected_by_the_server(api: FakeApi, listed: Callable[..., Done]) -> None:
    listed("-l", "app in (db)")
    assert any("labelSelector=app+in+%28db%29" in path for path in api.requests)


def test_machine_formats_list_healthy_mappings_too(listed: Callable[..., Done]) -> None:
    items = json.loads(listed("-o", "json", "--verdict", "InUse").stdout)["items"]
    assert [[one["device"] for one in item["mappings"]] for item in items] == [
        ["/dev/rbd1"], ["/dev/rbd3"], [],
    ]  # fmt: skip
    assert listed("-o", "name").stdout.split() == [
        "n1/rbd1", "n1/rbd2", "n2/rbd3", "n2/rbd4", "n2/rbd5", "n3/rbd6",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("flags", "code"),
    [
        ((), 3),
        (("--on-node", "n1", "--fail-on", "critical"), 0),
        (("--on-node", "n2", "--fail-on", "critical"), 3),
        (("--on-node", "n3"), 1),
        (("--verdict", "Shared", "--on-node", "n2"), 0),
    ],
    ids=str,
)
def test_exit_code_follows_the_listed_findings(
    listed: Callable[..., Done], flags: tuple[str, ...], code: int
) -> None:
    assert listed(*flags).code == code


def test_table_has_at_most_200_mappings(api: FakeApi, listed: Callable[..., Done]) -> None:
    orphans = [mapping(number, "Orphaned") for number in range(250)]
    api.lists["rbdnodes"] = [report("n1", *orphans)]
    done = listed()
    assert len(rows(done)) == 200
    assert "The table has the first 200 of 250 mappings (--all lists all)." in done.stdout
    assert len(rows(listed("--all"))) == 250


def test_refused_claims_are_an_error(api: FakeApi, listed: Callable[..., Done]) -> None:
    api.broken["/api/v1/namespaces/shop/persistentvolumeclaims"] = refuse(403)
    done = listed("-n", "shop")
    assert (done.code, done.stdout) == (1, "")
    assert "forbidden" in done.stderr


def test_flags_of_the_fleet_need_all_nodes() -> None:
    done = ask("list", "--verdict", "Dead")
    assert (done.code, done.stdout) == (2, "")
    assert "list -A" in done.stderr
