"""The alerts and the dashboard: complete, tested, linked, and of metrics that an agent exports."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from rbdagent.catalog import runbook
from tests.contract.recorded_agent import exposition, recorded_look
from tests.contract.runbooks import ROOT, alerts, rules

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


def queries() -> list[str]:
    """Give every query of the dashboard, those of its variables too."""
    found = [each["expr"] for panel in DASHBOARD["panels"] for each in panel.get("targets", ())]
    return found + [each["definition"] for each in DASHBOARD["templating"]["list"][1:]]


def test_the_alerts_are_those_that_are_documented() -> None:
    assert set(alerts()) == ALERTS


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule["alert"])
def test_an_alert_says_how_bad_it_is_what_it_is_what_to_type_and_where_to_read_on(
    rule: Json,
) -> None:
    told = rule["annotations"]
    assert rule["labels"].keys() == {"severity"}
    assert rule["labels"]["severity"] in {"critical", "warning"}
    assert told.keys() == {"summary", "description", "runbook_url"}
    assert "{{" not in told["summary"]
    assert re.search(r"Next(, on [^:]+)?: (rbdagent|kubectl) ", told["description"])
    assert told["runbook_url"] == runbook(rule["alert"])


@pytest.mark.parametrize("alert", sorted(ALERTS))
def test_promtool_has_each_alert_fire_and_resolve_and_elsewhere_not_fire(alert: str) -> None:
    rows = [
        [bool(case["exp_alerts"]) for case in each["alert_rule_test"] if case["alertname"] == alert]
        for each in TESTS
    ]
    assert any(not row[0] and any(row) and not row[-1] for row in rows if row)
    assert any(row and not any(row) for row in rows)


def test_each_severity_of_an_alert_is_seen_to_fire() -> None:
    fired = {
        (case["alertname"], alert["exp_labels"]["severity"])
        for each in TESTS
        for case in each["alert_rule_test"]
        for alert in case["exp_alerts"]
    }
    assert fired == {(each["alert"], each["labels"]["severity"]) for each in rules()}


def test_every_metric_of_the_alerts_and_of_the_dashboard_is_one_that_an_agent_exports(
    tmp_path: Path,
) -> None:
    text = exposition(recorded_look("12-pinned-by-cwd-invisible", "c12", root=tmp_path)).decode()
    exported = set(re.findall(r"^# TYPE (\S+)", text, flags=re.MULTILINE))
    asked = (*queries(), *(each["expr"] for each in rules()))
    named = {name for each in asked for name in re.findall(r"\brbdagent_\w+", each)}
    assert named - exported == {"rbdagent_volume_"}  # of a pattern, in a variable
    assert exported - named == set()


def test_every_panel_has_a_place_of_its_own_and_asks_the_chosen_data_source() -> None:
    ids = [each["id"] for each in DASHBOARD["panels"]]
    assert len(set(ids)) == len(ids)
    asking = [each for each in DASHBOARD["panels"] if each["type"] != "row"]
    asked = {target["datasource"]["uid"] for each in asking for target in each["targets"]}
    assert asked == {"${datasource}"}
    taken = [
        (x, y)
        for grid in (each["gridPos"] for each in DASHBOARD["panels"])
        for x in range(grid["x"], grid["x"] + grid["w"])
        for y in range(grid["y"], grid["y"] + grid["h"])
    ]
    assert len(set(taken)) == len(taken)
    assert max(x for x, _ in taken) < 24
