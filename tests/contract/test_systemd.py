"""The units in systemd/, as systemd reads and rates them."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
import yaml

from rbdagent.agent import http, probes
from rbdagent.cli.agent import command

if TYPE_CHECKING:
    from collections.abc import Callable

UNITS: Final = Path(__file__).parents[2] / "systemd"
CHART: Final = UNITS.parent / "helm" / "rbdagent"
UNMAP: Final = "rbdagent-unmap.conf"
STAGED: Final = "rbdagent-unmap-staged.conf"

# The drop-ins of each mode for rbdagent.service, and the highest exposure that systemd may report.
MODES: Final = {"observe": ((), 2.0), "unmap": ((UNMAP,), 2.4), "staged": ((UNMAP, STAGED), 2.6)}


# systemd-analyze has one line for CAP_DAC_READ_SEARCH and similar capabilities.
_UNMAPS: Final = {"CAP_SYS_PTRACE", "CAP_SYS_ADMIN"}
CAPABILITIES: Final = {
    "observe": {"CAP_SYS_PTRACE", "CAP_(DAC_*|FOWNER|IPC_OWNER)"},
    "unmap": _UNMAPS,
    "staged": _UNMAPS | {"CAP_SYS_CHROOT"},
}


@pytest.fixture(params=MODES)
def mode(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def installed(tmp_path: Path) -> Callable[[str], Path]:
    """Return a function that writes the units of a mode as installed, with an existing program."""

    def lay_out(mode: str) -> Path:
        unit = tmp_path / "rbdagent.service"
        text = (UNITS / unit.name).read_text()
        unit.write_text(text.replace("/usr/bin/rbdagent", sys.executable))
        beside = tmp_path / "rbdagent.service.d"
        beside.mkdir()
        for name in MODES[mode][0]:
            shutil.copy(UNITS / name, beside)
        return unit

    return lay_out


def analyze(*args: object) -> subprocess.CompletedProcess[str]:
    """Run systemd-analyze, which needs no systemd to run."""
    return subprocess.run(
        ["systemd-analyze", "--no-pager", "--man=no", *map(str, args)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )


def settings(name: str) -> dict[str, list[str]]:
    """Return every setting of a unit file with its values in order."""
    found: dict[str, list[str]] = {}
    for line in (UNITS / name).read_text().splitlines():
        key, equals, value = line.partition("=")
        if equals and not key.startswith("#"):
            found.setdefault(key, []).append(value)
    return found


@pytest.mark.needs("systemd-analyze")
def test_systemd_verify_reports_nothing(installed: Callable[[str], Path], mode: str) -> None:
    # Without the option it also reads the units of this machine, and prints their errors.
    done = analyze("--recursive-errors=no", "verify", installed(mode))
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.needs("systemd-analyze")
def test_exposure_does_not_increase(installed: Callable[[str], Path], mode: str) -> None:
    """The limits are those of ``MODES``: at most 2.0 in mode observe."""
    limit = round(MODES[mode][1] * 10)
    done = analyze("security", "--offline=yes", f"--threshold={limit}", installed(mode))
    assert done.returncode == 0, done.stdout
    assert f"rbdagent.service: {MODES[mode][1]}" in done.stdout


def test_every_drop_in_belongs_to_a_mode() -> None:
    assert {path.name for path in UNITS.glob("*.conf")} == {UNMAP, STAGED}


def test_watchdog_timeout_equals_the_limit_of_livez() -> None:
    assert settings("rbdagent.service")["WatchdogSec"] == [f"{probes.HUNG_S:g}"]


def test_unit_limits_are_those_of_the_chart() -> None:
    """Both write binary units: M and Mi are 1024 KiB (systemd.resource-control(5))."""
    unit = settings("rbdagent.service")
    limits = yaml.safe_load((CHART / "values.yaml").read_text())["resources"]["limits"]
    assert [f"{size}i" for size in unit["MemoryMax"]] == [limits["memory"]] == ["512Mi"]
    (tasks,) = map(int, unit["TasksMax"])
    # The other threads are one for each source, and those of librados for each cluster: about 20.
    assert 2 * http._MOST_CONNECTIONS < tasks <= 256


def test_no_drop_in_lifts_a_limit() -> None:
    for name in (UNMAP, STAGED):
        assert not settings(name).keys() & {"MemoryMax", "TasksMax", "MemoryHigh"}


def test_each_mode_has_only_the_capabilities_that_it_needs() -> None:
    """Mode observe needs a user with two capabilities, mode unmap root (docs/privileges.md)."""
    observe = settings("rbdagent.service")
    seen = ["CAP_SYS_PTRACE CAP_DAC_READ_SEARCH"]
    assert observe["AmbientCapabilities"] == observe["CapabilityBoundingSet"] == seen
    assert observe["DynamicUser"] == ["yes"]
    unmap = settings(UNMAP)
    assert unmap["User"] == ["root"]
    assert unmap["CapabilityBoundingSet"] == ["~CAP_DAC_READ_SEARCH", "CAP_SYS_ADMIN"]
    # The empty value resets the earlier values.
    assert unmap["AmbientCapabilities"] == [""]
    assert settings(STAGED)["CapabilityBoundingSet"] == ["CAP_SYS_CHROOT"]


@pytest.mark.needs("systemd-analyze")
def test_unit_files_of_a_mode_leave_only_its_capabilities(
    installed: Callable[[str], Path], mode: str
) -> None:
    done = analyze("security", "--offline=yes", "--json=short", installed(mode))
    kept = {
        check["name"].partition("=~")[2] for check in json.loads(done.stdout) if not check["set"]
    }
    assert {name for name in kept if name.startswith("CAP_")} == CAPABILITIES[mode]


def test_only_a_drop_in_may_unmap_or_write_to_sysfs() -> None:
    observe = settings("rbdagent.service")
    assert observe["ProtectKernelTunables"] == ["yes"]
    assert "ReadWritePaths" not in observe
    assert not any("MODE" in variable for variable in observe["Environment"])
    assert settings(UNMAP)["Environment"] == ["RBDAGENT_MODE=unmap"]
    assert settings(UNMAP)["ReadWritePaths"] == ["/sys/bus/rbd"]


@pytest.mark.parametrize("unit", ["rbdagent.service", UNMAP, STAGED])
def test_every_rbdagent_variable_belongs_to_a_flag(unit: str) -> None:
    known = {parameter.envvar for parameter in command.params}
    variables = [assignment.partition("=")[0] for assignment in settings(unit)["Environment"]]
    assert {variable for variable in variables if variable.startswith("RBDAGENT_")} <= known


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGABRT, -6)])
def test_agent_notifies_systemd_of_its_state(
    tmp_path: Path, number: signal.Signals, code: int
) -> None:
    """The watchdog sends SIGABRT. The log then shows where the loop was."""
    agent = ["agent", "--no-ceph", "--no-kube", "--listen", "127.0.0.1:0"]
    address = str(tmp_path / "notify")
    environment = {**os.environ, "NOTIFY_SOCKET": address, "WATCHDOG_USEC": "180000000"}
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(address)
        systemd.settimeout(60)
        with subprocess.Popen(
            [sys.executable, "-m", "rbdagent", *agent, "--state-dir", str(tmp_path / "state")],
            env=environment,
            stderr=subprocess.PIPE,
            text=True,
        ) as running:
            try:
                heard = ""
                while "READY=1" not in heard:
                    heard += systemd.recv(4096).decode()
                running.send_signal(number)
                _, said = running.communicate(timeout=60)
            finally:
                running.kill()
        assert "WATCHDOG=1" in heard
        assert running.returncode == code
        if number is signal.SIGABRT:
            assert "Fatal Python error: Aborted" in said
            assert 'rbdagent/agent/loop.py", line' in said
        else:
            while "STOPPING=1" not in heard:
                heard += systemd.recv(4096).decode()
