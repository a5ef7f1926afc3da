"""Redaction of API objects, snapshots and logs for a bug report."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import pytest

from rbdagent.report.redacted import redacted_data, redacted_object, redacted_text
from rbdagent.report.snapshot import load_snapshot
from tests.support.cli_runner import ROOT
from tests.support.rows import each_row
from tests.support.snapshots import codes

if TYPE_CHECKING:
    from pathlib import Path


STATES: Final = sorted(
    path
    for name in ("life", "reported")
    for path in (ROOT / "tests/fixtures" / name).glob("*.json")
)


def container(**fields: Any) -> dict[str, Any]:  # noqa: ANN401 - of any type
    return {"spec": {"template": {"spec": {"containers": [{"name": "rbdagent", **fields}]}}}}


def of_container(found: dict[str, Any]) -> dict[str, Any]:
    masked: dict[str, Any] = redacted_object(found)["spec"]["template"]["spec"]["containers"][0]
    return masked


@pytest.mark.parametrize("name", ["PROXY_PASSWORD", "API_TOKEN", "AWS_SECRET_ACCESS_KEY"])
def test_value_of_an_environment_variable_is_masked_by_its_name(name: str) -> None:
    found = of_container(container(env=[{"name": name, "value": "hunter2"}]))
    assert found["env"][0]["name"] == name
    assert "hunter2" not in json.dumps(found)


def test_other_variables_are_kept() -> None:
    env = [{"name": "RBDAGENT_TIMEOUT", "value": "5s"}]
    assert of_container(container(env=env))["env"] == env


def test_names_of_objects_are_kept() -> None:
    """`key` of a toleration and `secretName` of a volume name no secret value."""
    spec = {
        "tolerations": [{"key": "node-role.kubernetes.io/control-plane", "operator": "Exists"}],
        "volumes": [{"name": "ceph", "secret": {"secretName": "rbdagent-ceph"}}],
    }
    assert redacted_object({"spec": spec}) == {"spec": spec}


@pytest.mark.parametrize("key", ["key", "secretName", "password"])
def test_data_of_a_config_map_has_no_harmless_key(key: str) -> None:
    assert "hunter2" not in json.dumps(redacted_object({"data": {key: "hunter2"}}))


def test_secret_in_a_file_of_a_config_map_is_masked_alone() -> None:
    text = 'mode = "observe"\npassword = "hunter2"\ntimeout = "5s"'
    masked = redacted_object({"data": {"config.toml": text}})["data"]["config.toml"]
    assert masked.startswith('mode = "observe"\npassword = ')
    assert masked.endswith('\ntimeout = "5s"')
    assert "hunter2" not in masked


def test_copies_of_the_object_are_left_out() -> None:
    last = "kubectl.kubernetes.io/last-applied-configuration"
    metadata = {"name": "x", "managedFields": [1], "annotations": {last: "{}", "a": "b"}}
    assert redacted_object({"metadata": metadata}) == {
        "metadata": {"name": "x", "annotations": {"a": "b"}}
    }


def test_private_key_is_masked_with_all_its_lines() -> None:
    text = "a\n-----BEGIN RSA PRIVATE KEY-----\nMIIEowIBAAKCAQ\n-----END RSA PRIVATE KEY-----\n"
    assert "MIIE" not in redacted_text(text)


def test_line_without_a_secret_stays() -> None:
    line = '{"event": "observed", "devices": 3}\n'
    assert redacted_text(f"{line}token=abcdef {{\n{line}").startswith(line)
    assert redacted_text(f"{line}token=abcdef {{\n{line}").endswith(line)


def test_text_in_a_snapshot_is_masked_wherever_it_is() -> None:
    data = {"events": [{"message": "login failed: password=hunter2"}], "count": 1, "none": None}
    masked = redacted_data(data)
    assert "hunter2" not in json.dumps(masked)
    assert json.dumps(masked).startswith('{"events": [{"message": "login failed: password=')


@pytest.mark.parametrize("name", ["true-orphan", "multi-attach"])
def test_snapshot_without_a_secret_is_unchanged(name: str) -> None:
    data = json.loads((ROOT / "examples" / f"{name}.json").read_text())
    assert redacted_data(data) == data


@each_row("path", STATES, ids=lambda path: path.stem)
def test_findings_are_the_same_from_the_redacted_snapshot(path: Path) -> None:
    """What explains a failure is in the texts of events."""
    text = path.read_text()
    as_observed = load_snapshot(text, where=path.name)
    redacted = load_snapshot(json.dumps(redacted_data(json.loads(text))), where=path.name)
    assert codes(redacted) == codes(as_observed)
