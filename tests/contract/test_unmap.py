"""``rbdagent unmap``: its output, and that a snapshot from a file never leads to an unmap."""

from __future__ import annotations

from typing import TYPE_CHECKING

import jsonschema
import psutil
import pytest

from rbdagent.cli import run
from rbdagent.report.schema import schema
from tests.support.cli_runner import ORPHAN, VOLUME, Done

if TYPE_CHECKING:
    from pathlib import Path

FROM = ("--from", str(ORPHAN))


def ask(capsys: pytest.CaptureFixture[str], *args: str) -> Done:
    code = run(args)
    return Done(code, *capsys.readouterr())


def test_refusal_lists_every_condition_with_its_reasons(
    capsys: pytest.CaptureFixture[str],
) -> None:
    done = ask(capsys, "unmap", VOLUME, *FROM, "-o", "json")
    refusal = done.data
    jsonschema.validate(refusal, schema("UnmapRefusal"))
    assert done.code == 4
    assert [condition["number"] for condition in refusal["conditions"]] == list(range(1, 11))
    assert {"RBD501", "RBD508", "RBD509"} <= set(refusal["codes"])
    met = {condition["code"] for condition in refusal["conditions"] if condition["met"]}
    assert {"RBD502", "RBD503", "RBD504", "RBD506", "RBD507"} == met
    assert all(condition["observed"] for condition in refusal["conditions"])


def test_snapshot_from_a_file_cannot_decide_what_needs_the_node(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A file shows neither the history of the mapping nor the present state of its node."""
    done = ask(capsys, "unmap", VOLUME, *FROM)
    first, *_ = done.stdout.splitlines()
    assert first == "Cannot be decided offline: 4 of 10 conditions need the node."
    assert f"/dev/rbd0 on worker-1 (pv/{VOLUME})." in done.stdout
    assert "kubelet started 31s ago" in done.stdout
    assert f"rbdagent unmap pv/{VOLUME}  # on worker-1" in done.stdout
    assert len(done.stdout.splitlines()) <= 20


def test_details_list_every_condition_and_reason(capsys: pytest.CaptureFixture[str]) -> None:
    refusal = ask(capsys, "unmap", VOLUME, *FROM, "-o", "json").data
    said = " ".join(ask(capsys, "unmap", VOLUME, *FROM, "-v").stdout.split())
    for condition in refusal["conditions"]:
        assert f"{condition['requirement']} ({condition['code']})" in said
        assert condition["met"] or all(reason in said for reason in condition["observed"])


@pytest.mark.parametrize("flag", ["--yes", "--wait"])
def test_snapshot_from_a_file_never_leads_to_an_unmap(
    capsys: pytest.CaptureFixture[str], flag: str
) -> None:
    done = ask(capsys, "unmap", VOLUME, *FROM, flag)
    assert (done.code, done.stdout) == (2, "")
    assert "--from prints the plan for a snapshot" in done.stderr


def test_process_that_queries_ceph_ends_with_the_command(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """In a container it would remain: the agent is process 1 there, and waits for no other."""
    before = set(psutil.Process().children())
    nowhere = [f"--{name}={tmp_path}" for name in ("procfs", "sysfs", "state-dir")]
    done = ask(capsys, "unmap", "/dev/rbd0", "--no-kube", f"--ceph-conf={tmp_path}/x", *nowhere)
    assert done.code == 1
    # A child of an earlier test may have ended meanwhile.
    assert set(psutil.Process().children()) <= before


def test_force_flag_does_not_exist(capsys: pytest.CaptureFixture[str]) -> None:
    done = ask(capsys, "unmap", VOLUME, *FROM, "--force")
    assert done.code == 2
    assert "No such option" in done.stderr


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("max-unmaps-per-hour = true", "expected a number"),
        ("unmap-staged = 1", "expected true or false"),
        ("grace-period = 5", "expected a string in quotes"),
        ('grace-period = "soon"', "not a duration"),
        ("grace-perod = '5m'", "did you mean grace-period"),
    ],
)
def test_a_wrong_setting_of_the_policy_is_named(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, line: str, words: str
) -> None:
    file = tmp_path / "config.toml"
    file.write_text(line + "\n")
    done = ask(capsys, "unmap", VOLUME, *FROM, "--config", str(file))
    assert done.code == 2
    assert words in done.stderr
