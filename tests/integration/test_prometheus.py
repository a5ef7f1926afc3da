"""A real Prometheus scrapes agents, evaluates the alerts and answers the dashboard's queries.

The agents serve what the agents of the recorded nodes observed.
"""

from __future__ import annotations

import http.client
import http.server
import json
import subprocess
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast
from urllib.parse import urlencode

import pytest
import yaml
from msgspec.structs import replace

from rbdagent.agent.http import serve
from rbdagent.correlate.image_identity import mappings_of
from rbdagent.model import NotObserved, SourceState
from tests.documents.runbooks import ALERTS, ROOT, alerts
from tests.lab.errors import LabError
from tests.lab.network import free_port
from tests.lab.processes import Processes, wait_until
from tests.support.recorded_agent import exposition, recorded_cycle

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rbdagent.agent.cycle import CycleResult

Json = dict[str, Any]

RECORDED: Final = (
    ("12-pinned-by-cwd-invisible", "c12", "n1"),
    ("25-after", "cl", "n1"),
    ("23-blocklisted", "cb1", "n1"),
    ("20-nbd-killed", "cn", "n2"),
    ("25-rollback-failing", "cl", "n1"),
    ("26-not-backed", "cz", "n1"),
    ("30-two-writers-after-blocklist-rm", "ch", "n1"),
)
"""Recording, claim and node of the agent: together they cover nearly every alert."""
NOT_RECORDED: Final = {"RBDNodeReturnedDirty"}
DASHBOARD: Final[Json] = json.loads((ROOT / "helm/rbdagent/files/dashboard.json").read_text())
PANELS: Final = [
    one
    for panel in DASHBOARD["panels"]
    for one in (panel, *panel.get("panels", ()))
    if one["type"] != "row"
]


@dataclass(frozen=True)
class Served:
    """The attributes that the endpoint reads from an agent."""

    seen: CycleResult
    beat_age_s: float = 0.0


@dataclass(frozen=True)
class Prometheus:
    """A running Prometheus."""

    port: int

    def get(self, path: str, **parameters: str) -> Json:
        """Query its API.

        Raises:
            LabError: it does not answer (yet), or it answers with an error.
        """
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.request("GET", f"/api/v1/{path}?{urlencode(parameters)}")
            answer = connection.getresponse()
            body = answer.read()
        except OSError as error:
            raise LabError(f"Prometheus does not answer: {error}") from error
        finally:
            connection.close()
        if answer.status != http.client.OK:
            raise LabError(f"{path}: {body.decode(errors='replace')}")
        data: Json = json.loads(body)["data"]
        return data


@pytest.fixture(scope="module")
def looks(tmp_path_factory: pytest.TempPathFactory) -> tuple[CycleResult, ...]:
    """Return what the recorded agents observed, and an extra agent that cannot query Ceph."""
    found = tuple(
        recorded_cycle(recording, claim, node_name=node, root=tmp_path_factory.mktemp("node"))
        for recording, claim, node in RECORDED
    )
    sources = found[0].snapshot.sources
    failed = replace(sources.ceph, state=SourceState.FAILED, reason="no route")
    broken = replace(found[0].snapshot, sources=replace(sources, ceph=failed))
    return (*found, replace(found[0], snapshot=broken))


def of_manager(looks: tuple[CycleResult, ...]) -> str:
    """Return the series of Ceph's manager about the images that the agents have mapped.

    The names and labels are those of get_rbd_stats() in src/pybind/mgr/prometheus/module.py.
    """
    specs = {
        mapping.spec
        for look in looks
        for mapping in mappings_of(look.snapshot.node)
        if not isinstance(mapping.spec, NotObserved)
    }
    return "".join(
        f"# TYPE ceph_rbd_{what} counter\n"
        + "".join(
            f'ceph_rbd_{what}{{pool="{spec.pool}",namespace="{spec.namespace}",image="{spec.name}"}}'
            " 4096.0\n"
            for spec in sorted(specs, key=str)
        )
        for what in ("read_bytes", "write_bytes", "read_ops", "write_ops")
    )


def serve_text(text: str, port: int) -> None:
    """Serve a text of metrics until the process ends."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(http.HTTPStatus.OK)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_: object) -> None:
            """Write nothing."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()


ONE_CLUSTER: Final[tuple[Json, ...]] = ({},)
OF_OPENSHIFT: Final = {"namespace": "rbdagent", "pod": "rbdagent-x7k2p", "container": "rbdagent"}
"""Labels that user workload monitoring adds to each target, and writes over those of a series."""
TWO_CLUSTERS: Final = tuple({"cluster": name, **OF_OPENSHIFT} for name in ("east", "west"))


@pytest.fixture(
    scope="module",
    params=[ONE_CLUSTER, TWO_CLUSTERS],
    ids=["one cluster", "two clusters, labels overridden"],
)
def targets(request: pytest.FixtureRequest) -> tuple[Json, ...]:
    """Return the labels of the targets: the same agents are scraped once for each element."""
    found: tuple[Json, ...] = request.param
    return found


@pytest.fixture(scope="module")
def prometheus(
    looks: tuple[CycleResult, ...],
    targets: tuple[Json, ...],
    processes: Processes,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Prometheus]:
    """Run a Prometheus that scrapes those agents and an agent that is down.

    The same addresses serve for both clusters: their series differ in the label cluster alone.
    """
    agents = [free_port() for _ in looks]
    for port, seen in zip(agents, looks, strict=True):
        serve(Served(seen), f"127.0.0.1:{port}")
    manager = free_port()
    serve_text(of_manager(looks), manager)
    directory = tmp_path_factory.mktemp("prometheus")
    addresses = [f"127.0.0.1:{port}" for port in (*agents, free_port())]
    scrape = {
        "job_name": "storage",
        "static_configs": [{"targets": addresses, "labels": labels} for labels in targets],
    }
    config = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(ALERTS)],
        "scrape_configs": [
            scrape,
            {
                "job_name": "ceph",
                "static_configs": [
                    {"targets": [f"127.0.0.1:{manager}"], "labels": labels} for labels in targets
                ],
            },
        ],
    }
    (directory / "prometheus.yml").write_text(yaml.safe_dump(config))
    port = free_port()
    started = processes.start(
        "prometheus",
        [
            "prometheus",
            f"--config.file={directory}/prometheus.yml",
            f"--storage.tsdb.path={directory}/data",
            f"--web.listen-address=127.0.0.1:{port}",
            "--log.level=warn",
        ],
    )
    running = Prometheus(port)

    def scraped() -> bool:
        up = {target["health"] for target in running.get("targets")["activeTargets"]}
        return up == {"up", "down"}

    wait_until(scraped, timeout_s=120, what="the first scrape of every agent", process=started)
    yield running
    processes.stop("prometheus")


def promtool(*args: str | Path, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(["promtool", *args], input=stdin, capture_output=True, check=False)


def output(done: subprocess.CompletedProcess[bytes]) -> str:
    return (done.stdout + done.stderr).decode()


def test_promtool_accepts_the_metrics_of_an_agent(looks: tuple[CycleResult, ...]) -> None:
    for seen in looks:
        done = promtool("check", "metrics", stdin=exposition(seen))
        assert (done.returncode, output(done)) == (0, "")


def test_promtool_accepts_the_alerts() -> None:
    done = promtool("check", "rules", "--lint-fatal", ALERTS)
    assert done.returncode == 0, output(done)


def test_each_alert_fires_and_does_not_fire_and_resolves() -> None:
    done = promtool("test", "rules", Path(__file__).with_name("alerts_test.yaml"))
    assert done.returncode == 0, output(done)


def labels_of(rules: list[Json], name: str) -> list[Json]:
    """Return the labels of the alerts of a name, which two rules may have."""
    return [alert["labels"] for rule in rules if rule["name"] == name for alert in rule["alerts"]]


def test_every_rule_is_evaluated_on_the_recorded_agents(
    prometheus: Prometheus, targets: tuple[Json, ...]
) -> None:
    clusters = {labels.get("cluster") for labels in targets}

    def evaluated() -> list[Json]:
        (group,) = prometheus.get("rules")["groups"]
        rules: list[Json] = group["rules"]
        failed = [rule["lastError"] for rule in rules if rule.get("lastError")]
        assert failed == []
        for name in alerts().keys() - NOT_RECORDED:
            found = {labels.get("cluster") for labels in labels_of(rules, name)}
            if found != clusters:
                raise LabError(f"of {name} there are those of {sorted(map(str, found))}")
        return rules

    rules = wait_until(evaluated, timeout_s=60, what="each alert that was recorded to be pending")
    assert {rule["health"] for rule in rules} == {"ok"}
    assert all(not labels_of(rules, name) for name in NOT_RECORDED)
    pending = {rule["name"]: labels_of(rules, rule["name"]) for rule in rules}
    assert len(pending["RBDAgentDown"]) == len(clusters)
    assert {labels["claim_namespace"] for labels in pending["RBDVolumeMultiAttachStuck"]} == {
        "default"
    }


def every(query: str) -> str:
    """Return a query as Grafana sends it while each variable is "All"."""
    variables = [variable["name"] for variable in DASHBOARD["templating"]["list"]]
    for name in variables:
        query = query.replace(f"${name}", ".*")
    assert "$" not in query
    return query


@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: panel["title"])
def test_every_panel_of_the_dashboard_has_data(prometheus: Prometheus, panel: Json) -> None:
    asked = [target["expr"] for target in panel["targets"]]
    queries = [every(query) for query in asked]
    wait_until(
        lambda: all(prometheus.get("query", query=query)["result"] for query in queries),
        timeout_s=60,
        what=f"series of each of {queries}",
    )


def test_every_variable_of_the_dashboard_has_values(
    prometheus: Prometheus, targets: tuple[Json, ...]
) -> None:
    """Without the label cluster, Grafana shows only "All", which selects every series."""
    for variable in DASHBOARD["templating"]["list"][1:]:
        series, _, label = variable["definition"][len("label_values(") : -1].rpartition(", ")
        now = str(time.time())
        found = prometheus.get("series", **{"match[]": every(series), "start": "0", "end": now})
        values = {one.get(label, "") for one in cast("list[Json]", found)} - {""}
        expected = {labels["cluster"] for labels in targets if "cluster" in labels}
        assert values == expected if label == "cluster" else values
