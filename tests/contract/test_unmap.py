"""``rbdagent unmap``: what it answers, and that a look from a file never leads to an act."""

from __future__ import annotations

from typing import TYPE_CHECKING

import jsonschema
import psutil
import pytest

from rbdagent.cli import run
from rbdagent.report.schema import schema
from tests.contract.cli_runner import ORPHAN, Done
from tests.contract.test_cli import VOLUME

if TYPE_CHECKING:
    from pathlib import Path

FROM = ("--from", str(ORPHAN))


def ask(capsys: pytest.CaptureFixture[str], *args: str) -> Done:
    code = run(args)
    return Done(code, *capsys.readouterr())


def test_a_recorded_orphan_is_refused_with_every_condition_and_its_reasons(
    capsys: pytest.CaptureFixture[str],
) -> None:
    done = ask(capsys, "unmap", VOLUME, *FROM, "-o", "json")
    refusal = done.data
    jsonschema.validate(refusal, schema("UnmapRefusal"))
    assert done.code == 4
    assert [each["number"] for each in refusal["conditions"]] == list(range(1, 11))
    assert {"RBD501", "RBD508", "RBD509"} <= set(refusal["codes"])
    met = {each["code"] for each in refusal["conditions"] if each["met"]}
    assert {"RBD502", "RBD503", "RBD504", "RBD506", "RBD507"} == met
    assert all(each["observed"] for each in refusal["conditions"])


def test_the_refusal_in_words_names_the_device_and_what_to_read(
    capsys: pytest.CaptureFixture[str],
) -> None:
    done = ask(capsys, "unmap", VOLUME, *FROM)
    assert done.stdout.startswith(f"Not unmapped: /dev/rbd0 on worker-1 (pv/{VOLUME}).")
    assert "kubelet started 31s ago" in done.stdout
    assert "rbdagent explain RBD509" in done.stdout


@pytest.mark.parametrize("flag", ["--yes", "--wait"])
def test_a_look_from_a_file_leads_to_no_act(capsys: pytest.CaptureFixture[str], flag: str) -> None:
    done = ask(capsys, "unmap", VOLUME, *FROM, flag)
    assert (done.code, done.stdout) == (2, "")
    assert "--from shows what would be decided" in done.stderr


def test_the_process_that_asks_ceph_ends_with_it(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """In a container it would stay behind: the agent there is process 1, and waits for no other."""
    before = set(psutil.Process().children())
    nowhere = [f"--{each}={tmp_path}" for each in ("procfs", "sysfs", "state-dir")]
    done = ask(capsys, "unmap", "/dev/rbd0", "--no-kube", f"--ceph-conf={tmp_path}/x", *nowhere)
    assert done.code == 1
    # A child of an earlier test may have ended meanwhile.
    assert set(psutil.Process().children()) <= before


def test_there_is_no_force(capsys: pytest.CaptureFixture[str]) -> None:
    done = ask(capsys, "unmap", VOLUME, *FROM, "--force")
    assert done.code == 2
    assert "No such option" in done.stderr


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("max-unmaps-per-hour = true", "expected a number"),
        ("unmap-staged = 1", "expected true or false"),
        ("grace-period = 5", "expected a text in quotes"),
        ('grace-period = "soon"', "no duration"),
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
