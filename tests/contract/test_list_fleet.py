"""``list -A``: what agents published, selected, counted and limited."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qs, urlparse

import jsonschema
import pytest

from rbdagent.cli.kept_output import KeptOutput
from rbdagent.cli.output import data_text, now_utc
from rbdagent.collect.kube.list_reports import published_nodes
from rbdagent.collect.kube.requests import RBD_MAPPINGS
from rbdagent.model import observed_of
from rbdagent.report.json.mappings import PublishedList, published_node
from rbdagent.report.schema import schema
from tests.support.cli_runner import FORMS, ask
from tests.support.fake_api import FakeApi, access_to, answer, refuse
from tests.support.published import add_mapping, publish, publish_only

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from http.server import BaseHTTPRequestHandler
    from pathlib import Path

    from rbdagent.collect.kube.kubeconfig import KubeAccess
    from rbdagent.model import PublishedNode
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
    now = now_utc()
    publish(fake, "n1", mapping(1), mapping(2, "Orphaned", findings=["RBD101"]), at=now)
    dead = mapping(5, "Dead", findings=["RBD103"])
    publish(fake, "n2", mapping(3), mapping(4, "Shared"), dead, at=now)
    publish(fake, "n3", mapping(6, "Staged"), at=OLD)
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


def test_selection_by_verdict_is_a_part_of_a_sentence(listed: Callable[..., Done]) -> None:
    first, *_ = listed("--verdict", "Dead").stdout.splitlines()
    assert first == "1 of 1 mapping with verdict Dead needs attention, on 3 nodes: 1 Dead."
    first, *_ = listed("--verdict", "Free", "--verdict", "Pinned").stdout.splitlines()
    nothing = "Nothing with verdict Free or Pinned is mapped on the 2 nodes whose agents reported."
    assert first == nothing


def test_only_unhealthy_mappings_are_listed(listed: Callable[..., Done]) -> None:
    done = listed()
    assert rows(done) == [("n1", "/dev/rbd2"), ("n2", "/dev/rbd5")]
    assert "4 healthy mappings not shown (--all): 2 InUse, 1 Shared, 1 Staged." in done.stdout


def test_healthy_verdict_with_a_finding_needs_attention(
    api: FakeApi, listed: Callable[..., Done]
) -> None:
    publish_only(api, ("n1", (mapping(1, findings=["RBD103"]), mapping(2))))
    assert rows(listed()) == [("n1", "/dev/rbd1")]


def test_node_without_a_recent_report_is_unknown(listed: Callable[..., Done]) -> None:
    done = listed("--verdict", "Staged")
    assert rows(done) == [("n3", "/dev/rbd6")]
    assert "mappings of 1 node are unknown:\n  n3: its agent last reported " in done.stdout


def test_report_without_observed_devices_does_not_mean_none(
    api: FakeApi, listed: Callable[..., Done]
) -> None:
    publish_only(api)
    publish(api, "n1", observed=False)
    done = listed()
    first, second = done.stdout.splitlines()
    assert first == "The current mappings of 1 node are unknown:"
    assert second.startswith("  n1: not observed: its agent has not seen its devices")
    assert done.code == 1


@pytest.mark.parametrize("form", FORMS)
def test_no_report_does_not_mean_none(api: FakeApi, listed: Callable[..., Done], form: str) -> None:
    publish_only(api)
    done = listed("-o", form)
    assert (done.code, done.stdout) == (1, "")
    assert "no agent has published any mappings: the Kubernetes API has no RBDNode" in done.stderr
    assert "each node needs an agent" in done.stderr
    assert "on a node, rbdagent list observes its mappings" in done.stderr


def test_hint_names_the_node_through_the_plugin(
    api: FakeApi, listed: Callable[..., Done], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without --node, the plugin refuses `kubectl rbdagent list` in a cluster of several nodes."""
    monkeypatch.setenv("RBDAGENT_PROGRAM", "kubectl rbdagent")
    publish_only(api)
    assert "; on a node, kubectl rbdagent list --node NODE observes its mappings" in listed().stderr


@pytest.mark.parametrize("form", FORMS)
def test_selected_nodes_without_report_are_an_error(
    api: FakeApi, listed: Callable[..., Done], form: str
) -> None:
    publish_only(api, ("worker-1", ()), ("worker-2", ()))
    done = listed("-o", form, "--on-node", "wroker-1", "--on-node", "other")
    assert (done.code, done.stdout) == (1, "")
    assert "of the nodes other and wroker-1; RBDNodes of other nodes" in done.stderr
    assert "that were read: 2" in done.stderr
    assert "did you mean worker-1 or worker-2?" in done.stderr
    assert "kubectl get rbdnodes lists the nodes with an agent" in done.stderr


def test_selected_node_without_report_is_unknown(listed: Callable[..., Done]) -> None:
    flags = ("--on-node", "n2", "--on-node", "n9", "--fail-on", "critical", "--verdict", "InUse")
    unknown = "The current mappings of 1 node are unknown:\n  n9: no agent has published"
    done, names = listed(*flags), listed(*flags, "-o", "name")
    assert unknown in done.stdout
    assert f"rbdagent: {unknown}" in names.stderr
    assert names.stdout == "n2/rbd3\n"
    assert (done.code, names.code) == (1, 1)


def test_unknown_nodes_are_limited(api: FakeApi, listed: Callable[..., Done]) -> None:
    publish_only(api, *((f"n{number}", ()) for number in range(15)))
    assert "  and 5 more (-v)" in listed().stdout
    assert "n14: its agent last reported" in listed("-v").stdout


def test_node_whose_mappings_are_missing_is_unknown(
    api: FakeApi, listed: Callable[..., Done]
) -> None:
    """Its RBDNode counts a mapping that has no RBDMapping: it was deleted, or may not be read."""
    del api.lists["rbdmappings"][0]
    done = listed("--all", "--on-node", "n1")
    assert rows(done) == [("n1", "/dev/rbd2")]
    assert "n1: not all of its RBDMappings were found" in done.stdout
    (item,) = json.loads(listed("-o", "json", "--on-node", "n1").stdout)["items"]
    assert item["incomplete"] == "not all of its RBDMappings were found"


def test_mapping_of_a_node_without_an_rbdnode_is_listed(
    api: FakeApi, listed: Callable[..., Done]
) -> None:
    del api.lists["rbdnodes"][0]
    done = listed("--all", "--on-node", "n1")
    assert rows(done) == [("n1", "/dev/rbd1"), ("n1", "/dev/rbd2")]
    assert "n1: the RBDNode of its agent was not found" in done.stdout


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


# --------------------------------------------------------------------------------------------------
# JSON and YAML, part by part
# --------------------------------------------------------------------------------------------------

_HOSTILE: Final = "a\u202eb\x1b[31m\u2028\n---\n- x: [] # \U000e0041"


def whole(nodes: Sequence[PublishedNode], output: str, *, complete: bool = True) -> str:
    """Return the text of a list of reports that is written at once."""
    items = tuple(published_node(node) for node in nodes)
    return data_text(PublishedList(items=items, complete=complete), output)


@pytest.fixture
def access(api: FakeApi, tmp_path: Path) -> KubeAccess:
    return access_to(api, tmp_path)


def fail_from(api: FakeApi, page: int) -> None:
    """Refuse the requests for a page of RBDMappings and for those after it."""
    path = RBD_MAPPINGS
    asked: list[str] = []

    def play(handler: BaseHTTPRequestHandler) -> None:
        asked.append(handler.path)
        if len(asked) >= page:
            refuse(403)(handler)
        else:
            answer(handler, *api.answer(path, parse_qs(urlparse(handler.path).query)))

    api.broken[path] = play


@pytest.mark.parametrize("output", ["json", "yaml"])
def test_parts_are_the_text_that_is_written_at_once(
    api: FakeApi, access: KubeAccess, listed: Callable[..., Done], output: str
) -> None:
    publish(api, "n4", observed=False)
    publish(api, "n5")
    publish(api, "n6", mapping(7, pods=[_HOSTILE], reasons=["x" * 300, _HOSTILE * 20]))
    nodes = list(published_nodes(access))
    assert [node.name for node in nodes] == ["n1", "n2", "n3", "n6", "n4", "n5"]
    assert listed("-o", output).stdout == whole(nodes, output)


def test_mappings_of_a_node_between_those_of_another_are_one_report(
    api: FakeApi, access: KubeAccess
) -> None:
    """The API server lists objects by name, and a node may be named like another and a domain."""
    publish_only(
        api, ("a", (mapping(0, device="/dev/nbd0"), mapping(1))), ("a.r", (mapping(2),)), ("b", ())
    )
    api.lists["rbdmappings"].sort(key=lambda item: item["metadata"]["name"])
    nodes = {node.name: node for node in published_nodes(access)}
    assert list(nodes) == ["a.r", "a", "b"]
    assert [len(observed_of(node.mappings)) for node in nodes.values()] == [1, 2, 0]
    assert not any(node.incomplete for node in nodes.values())


def test_list_matches_its_schema(listed: Callable[..., Done]) -> None:
    done = listed("-o", "json")
    jsonschema.validate(done.data, schema("PublishedList"))
    assert list(done.data) == ["apiVersion", "kind", "items", "complete"]


@pytest.mark.parametrize("output", ["json", "yaml"])
def test_failure_after_a_page_closes_the_document(
    api: FakeApi, access: KubeAccess, listed: Callable[..., Done], output: str
) -> None:
    """The first two pages have all mappings of the first node, and some of the second one."""
    first, *_ = published_nodes(access)
    fail_from(api, page=3)
    done = listed("-o", output)
    assert done.stdout == whole([first], output, complete=False)
    assert done.code == 1
    assert "the list is incomplete: GET " in done.stderr
    assert "forbidden" in done.stderr


@pytest.mark.parametrize("output", ["json", "yaml"])
def test_failure_of_the_first_page_prints_no_document(
    api: FakeApi, listed: Callable[..., Done], output: str
) -> None:
    fail_from(api, page=1)
    done = listed("-o", output)
    assert (done.code, done.stdout) == (1, "")


@pytest.mark.parametrize("at_once", [1, 2, 1000])
@pytest.mark.parametrize("form", ["table", "name"])
def test_failure_after_a_page_prints_the_rows_that_were_read(
    api: FakeApi,
    listed: Callable[..., Done],
    monkeypatch: pytest.MonkeyPatch,
    form: str,
    at_once: int,
) -> None:
    """What was read of the second node is no report: its mappings are not complete."""
    monkeypatch.setattr("rbdagent.cli.list_fleet._AT_ONCE", at_once)
    fail_from(api, page=3)
    done = listed("--all", "-o", form, "--fail-on", "info")
    found = (
        done.stdout.split()
        if form == "name"
        else [node + device[4:] for node, device in rows(done)]
    )
    assert found == ["n1/rbd1", "n1/rbd2"]
    assert "need attention" not in done.stdout
    assert done.stderr.startswith("rbdagent: the list is incomplete: GET ")
    assert "can-i list" in done.stderr
    assert done.code == 1


@pytest.mark.parametrize("flags", [(), ("--all",), ("-o", "name")], ids=str)
def test_failure_before_a_row_prints_only_the_error(
    api: FakeApi, listed: Callable[..., Done], flags: tuple[str, ...]
) -> None:
    fail_from(api, page=1)
    done = listed(*flags)
    assert (done.code, done.stdout) == (1, "")
    assert "incomplete" not in done.stderr


def test_summary_of_an_incomplete_list_is_not_printed(
    api: FakeApi, listed: Callable[..., Done]
) -> None:
    fail_from(api, page=3)
    done = listed()
    assert (done.code, done.stdout) == (1, "")


def test_parts_are_written_before_the_next_page_is_requested(
    api: FakeApi, listed: Callable[..., Done], monkeypatch: pytest.MonkeyPatch
) -> None:
    requests: list[int] = []
    monkeypatch.setattr(
        "rbdagent.cli.output.print_text", lambda _: requests.append(len(api.requests))
    )
    listed("-o", "json")
    # The RBDNodes have two pages. A report ends where the mappings of another node begin: that of
    # the first node on the second of three pages.
    assert requests == [4, 5, 5, 5]


# --------------------------------------------------------------------------------------------------
# Watch
# --------------------------------------------------------------------------------------------------


def test_kept_output_is_unchanged() -> None:
    kept, texts = KeptOutput(), [f"{number} \u20ac\U0001f600\n" * 500 for number in range(50)]
    for text in texts:
        kept.add(text)
    assert "".join(kept.texts()) == "".join(texts)


def watched(
    listed: Callable[..., Done],
    monkeypatch: pytest.MonkeyPatch,
    changes: Sequence[Callable[[], object]],
    *more: str,
) -> Done:
    """Return the output of a watch; each wait makes the next change, and the last one ends it."""
    left = iter(changes)

    def change(_: float) -> None:
        made = next(left, None)
        if made is None:
            raise KeyboardInterrupt
        made()

    monkeypatch.setattr("rbdagent.cli.output.time.sleep", change)
    return listed(*more, "-w")


def test_watch_follows_claims_that_are_created_later(
    api: FakeApi, listed: Callable[..., Done], monkeypatch: pytest.MonkeyPatch
) -> None:
    claims = api.lists["persistentvolumeclaims"]
    done = watched(
        listed, monkeypatch,
        [lambda: claims.append(claim("new", 1)), lambda: claims.pop(0)],
        "-n", "shop", "-o", "name",
    )  # fmt: skip
    assert [line for line in done.stdout.splitlines() if line and not line.startswith("---")] == [
        "n1/rbd2", "n1/rbd1", "n1/rbd2", "n1/rbd1",
    ]  # fmt: skip
    assert done.stderr.count("n3: its agent last reported") == 1


@pytest.mark.parametrize("output", ["json", "yaml", "table", "name"])
def test_watch_prints_only_outputs_that_differ(
    api: FakeApi,
    access: KubeAccess,
    listed: Callable[..., Done],
    monkeypatch: pytest.MonkeyPatch,
    output: str,
) -> None:
    reports = api.lists["rbdnodes"]

    def renew() -> None:
        reports[0]["status"]["observedAt"] = "2026-11-26T01:02:03Z"

    def orphan() -> None:
        add_mapping(api, "n2", mapping(9, "Orphaned", findings=["RBD101"]))

    reports[0]["status"]["observedAt"] = "2026-11-26T01:02:00Z"
    done = watched(listed, monkeypatch, [renew, orphan], "-o", output)
    first, *later = done.stdout.split("\n--- ")
    (second,) = later
    assert "rbd9" not in first
    assert "rbd9" in second
    if output in {"json", "yaml"}:
        assert second.partition("\n")[2] == whole(list(published_nodes(access)), output)


def end_connection(handler: BaseHTTPRequestHandler) -> None:
    """End the connection without an answer, as an API server does that is stopped."""
    handler.close_connection = True


def not_refreshed(done: Done) -> list[str]:
    """Return the reasons of the lines about failed attempts; no other line is on stderr.

    click ends the line on which a terminal shows ^C.
    """
    line = re.compile(r"rbdagent: not refreshed at \d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ: (.+)")
    found = [line.fullmatch(text) for text in done.stderr.splitlines() if text]
    assert all(found), done.stderr
    return [match[1] for match in found if match]


def test_missing_resource_is_answered_with_the_installation_of_the_agents(
    api: FakeApi, listed: Callable[..., Done]
) -> None:
    api.broken[RBD_MAPPINGS] = refuse(404)
    done = listed()
    assert (done.code, done.stdout) == (1, "")
    hint = "  install the agents (docs/install.md); without Helm, first kubectl apply -f "
    assert hint in done.stderr


def test_hint_about_a_missing_kubeconfig_names_only_what_helps(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The command refuses --no-kube."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)
    done = ask("list", "-A")
    assert (done.code, done.stdout) == (1, "")
    assert done.stderr.endswith("\n  pass --kubeconfig FILE, or set KUBECONFIG\n")


@pytest.mark.parametrize(
    ("failure", "reason"),
    [
        (end_connection, "Empty reply from server"),
        (refuse(401), "the API server does not accept the credentials"),
        (refuse(403), "is forbidden"),
        (refuse(404), "has no resource rbdnodes.rbdagent.dev"),
        (refuse(503), "is forbidden"),
    ],
    ids=["no answer", "401", "403", "404", "503"],
)
def test_watch_goes_on_after_a_refresh_that_failed(
    api: FakeApi,
    listed: Callable[..., Done],
    monkeypatch: pytest.MonkeyPatch,
    failure: Callable[[BaseHTTPRequestHandler], None],
    reason: str,
) -> None:
    def fail() -> None:
        api.broken[RBD_MAPPINGS] = failure

    def recover() -> None:
        api.broken.clear()
        add_mapping(api, "n2", mapping(9, "Orphaned", findings=["RBD101"]))

    done = watched(listed, monkeypatch, [fail, lambda: None, recover], "--all")
    _, *later = done.stdout.split("\n--- ")
    (second,) = later
    assert "rbd9" in second
    assert [reason in line for line in not_refreshed(done)] == [True, True]
    assert done.code == 130


@pytest.mark.parametrize("output", ["table", "name", "json"])
def test_watch_prints_no_part_of_a_refresh_that_failed(
    api: FakeApi, listed: Callable[..., Done], monkeypatch: pytest.MonkeyPatch, output: str
) -> None:
    once = listed("--all", "-o", output).stdout
    done = watched(
        listed, monkeypatch, [lambda: fail_from(api, page=3), api.broken.clear],
        "--all", "-o", output,
    )  # fmt: skip
    assert "\n--- " not in done.stdout
    assert done.stdout.count("rbd1") == once.count("rbd1")
    assert done.stderr.count("not refreshed at ") == 1
    assert "Z: the list is incomplete: GET " in done.stderr
    assert done.code == 130


def test_line_about_a_failed_refresh_is_bounded_and_escaped(
    api: FakeApi, listed: Callable[..., Done], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        api.broken[RBD_MAPPINGS] = refuse(503, _HOSTILE + "x" * 900)

    done = watched(listed, monkeypatch, [fail], "--all")
    (reason,) = not_refreshed(done)
    assert reason.isprintable()
    assert len(reason) < 400


@pytest.mark.parametrize(
    ("failure", "reason"),
    [
        (lambda api: fail_from(api, page=1), "forbidden"),
        (publish_only, "no agent has published any mappings"),
    ],
    ids=["refused", "nothing published"],
)
def test_watch_needs_a_first_answer(
    api: FakeApi,
    listed: Callable[..., Done],
    failure: Callable[[FakeApi], object],
    reason: str,
) -> None:
    failure(api)
    done = listed("-w")
    assert (done.code, done.stdout) == (1, "")
    assert reason in done.stderr


def test_watch_ends_if_all_reports_are_gone(
    api: FakeApi, listed: Callable[..., Done], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The API server has answered: this is no failed refresh."""
    done = watched(listed, monkeypatch, [lambda: publish_only(api)])
    assert done.code == 1
    assert "no agent has published any mappings" in done.stderr


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
    publish_only(api, ("n1", tuple(orphans)))
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
