"""The alerts and the dashboard: complete, tested, linked, and based on exported metrics."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from rbdagent.rules.entry import runbook
from tests.documents.runbooks import ROOT, alerts, rules
from tests.support.recorded_agent import exposition, recorded_cycle

if TYPE_CHECKING:
    from pathlib import Path

Json = dict[str, Any]

ALERTS = {
    "RBDMappingOrphaned",
    "RBDMappingPinned",
    "RBDMappingDead",
    "RBDMappingUnwatched",
    "RBDVolumeConflict",
    "RBDVolumeMultiAttachStuck",
    "RBDVolumeNotBacked",
    "RBDNodeReturnedDirty",
    "RBDAgentObservationFailing",
    "RBDAgentDown",
}
DASHBOARD: Json = json.loads((ROOT / "helm/rbdagent/files/dashboard.json").read_text())
TESTS: list[Json] = yaml.safe_load((ROOT / "tests/integration/alerts_test.yaml").read_text())[
    "tests"
]


def panels() -> list[Json]:
    """Return every panel, including those of a collapsed row, which has them inside of it."""
    return [one for panel in DASHBOARD["panels"] for one in (panel, *panel.get("panels", ()))]


def asked_by_panels() -> list[str]:
    """Return every query of a panel."""
    return [target["expr"] for panel in panels() for target in panel.get("targets", ())]


def queries() -> list[str]:
    """Return every query of the dashboard, including those of its variables."""
    return asked_by_panels() + [
        variable["definition"] for variable in DASHBOARD["templating"]["list"][1:]
    ]


def test_alerts_are_the_documented_ones() -> None:
    assert set(alerts()) == ALERTS


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule["alert"])
def test_alert_has_severity_summary_command_and_runbook(
    rule: Json,
) -> None:
    annotations = rule["annotations"]
    assert rule["labels"].keys() == {"severity"}
    assert rule["labels"]["severity"] in {"critical", "warning"}
    assert annotations.keys() == {"summary", "description", "runbook_url"}
    assert "{{" not in annotations["summary"]
    assert re.search(r"Next(, with [^:]+)?: kubectl ", annotations["description"])
    assert annotations["runbook_url"] == runbook(rule["alert"])


@pytest.mark.parametrize("alert", sorted(ALERTS))
def test_promtool_cases_fire_and_resolve_each_alert(alert: str) -> None:
    rows = [
        [bool(case["exp_alerts"]) for case in test["alert_rule_test"] if case["alertname"] == alert]
        for test in TESTS
    ]
    assert any(not row[0] and any(row) and not row[-1] for row in rows if row)
    assert any(row and not any(row) for row in rows)


def test_promtool_cases_fire_each_severity() -> None:
    fired = {
        (case["alertname"], alert["exp_labels"]["severity"])
        for test in TESTS
        for case in test["alert_rule_test"]
        for alert in case["exp_alerts"]
    }
    assert fired == {(rule["alert"], rule["labels"]["severity"]) for rule in rules()}


def test_alerts_and_dashboard_use_exactly_the_exported_metrics(
    tmp_path: Path,
) -> None:
    text = exposition(recorded_cycle("12-pinned-by-cwd-invisible", "c12", root=tmp_path)).decode()
    exported = set(re.findall(r"^# TYPE (\S+)", text, flags=re.MULTILINE))
    asked = (*queries(), *(rule["expr"] for rule in rules()))
    named = {name for query in asked for name in re.findall(r"\brbdagent_\w+", query)}
    assert named == exported


def test_series_of_ceph_are_in_a_collapsed_row_only() -> None:
    """Assert that no open panel needs Ceph's manager, which Prometheus may not scrape."""
    (optional,) = (panel for panel in DASHBOARD["panels"] if panel.get("panels"))
    assert optional["collapsed"]
    shown = [panel for panel in DASHBOARD["panels"] if panel.get("targets")]
    assert "ceph_" not in json.dumps(shown)


def test_no_label_of_a_series_is_one_of_its_target(tmp_path: Path) -> None:
    """Assert that no Prometheus that overrides honor_labels replaces a label of the agent.

    The labels are those that Prometheus and its Operator give a target of a PodMonitor or a
    ServiceMonitor (generatePodMonitorConfig and generateServiceMonitorConfig,
    pkg/prometheus/promcfg.go of prometheus-operator), and the usual label of a cluster.
    """
    target = {"job", "instance", "namespace", "pod", "container", "service", "endpoint", "cluster"}
    used: set[str] = set()
    recordings = {"25-after": "cl", "25-rollback-failing": "cl", "26-not-backed": "cz"}
    for recording, claim in recordings.items():
        root = tmp_path / recording
        root.mkdir()
        text = exposition(recorded_cycle(recording, claim, root=root)).decode()
        used |= set(re.findall(r'[{,](\w+)="', text))
    assert {"waiting_pod", "writing_pod", "object_name"} <= used
    assert used & target == set()


def test_every_panel_and_variable_is_limited_to_the_chosen_clusters_and_jobs() -> None:
    (_, cluster, job, *variables) = DASHBOARD["templating"]["list"]
    assert (cluster["name"], job["name"]) == ("cluster", "job")
    limit = '{cluster=~"$cluster", job=~"$job"'
    for query in asked_by_panels():
        assert len(re.findall(r"\brbdagent_\w+", query)) == query.count(limit), query
    for variable in variables:
        assert 'cluster=~"$cluster", job=~"$job"' in variable["definition"]


def test_every_panel_about_volumes_is_limited_to_the_chosen_namespaces() -> None:
    of_volumes = r"\brbdagent_(mapping|volume|unmap_refused)"
    for query in asked_by_panels():
        limited = 'claim_namespace=~"$namespace"' in query
        assert limited is (re.search(of_volumes, query) is not None), query


def test_series_of_two_clusters_are_never_joined() -> None:
    for query in (*queries(), *(rule["expr"] for rule in rules())):
        for joined in re.findall(r"\bon \(([^)]*)\)", query):
            assert joined.split(", ")[0] == "cluster", query


def test_panels_do_not_overlap_and_query_the_chosen_source() -> None:
    ids = [panel["id"] for panel in panels()]
    assert len(set(ids)) == len(ids)
    asking = [panel for panel in panels() if panel["type"] != "row"]
    asked = {target["datasource"]["uid"] for panel in asking for target in panel["targets"]}
    assert asked == {"${datasource}"}
    taken = [
        (x, y)
        for grid in (panel["gridPos"] for panel in panels())
        for x in range(grid["x"], grid["x"] + grid["w"])
        for y in range(grid["y"], grid["y"] + grid["h"])
    ]
    assert len(set(taken)) == len(taken)
    assert max(x for x, _ in taken) < 24
