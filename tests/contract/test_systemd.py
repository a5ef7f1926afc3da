"""The units in systemd/, as systemd itself reads and rates them."""

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

from rbdagent.agent import endpoint
from rbdagent.cli.agent import command

if TYPE_CHECKING:
    from collections.abc import Callable

UNITS: Final = Path(__file__).parents[2] / "systemd"
CHART: Final = UNITS.parent / "helm" / "rbdagent"
UNMAP: Final = "rbdagent-unmap.conf"
STAGED: Final = "rbdagent-unmap-staged.conf"

# What is added to rbdagent.service, and the highest exposure that systemd may then see.
MODES: Final = {"observe": ((), 2.0), "unmap": ((UNMAP,), 2.4), "staged": ((UNMAP, STAGED), 2.7)}


# As systemd names them, which has the likes of CAP_DAC_READ_SEARCH in one line.
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
    """Give what lays the units of a mode out as they are installed, with a program that is here."""

    def lay_out(mode: str) -> Path:
        unit = tmp_path / "rbdagent.service"
        text = (UNITS / unit.name).read_text()
        unit.write_text(text.replace("/usr/bin/rbdagent", sys.executable))
        beside = tmp_path / "rbdagent.service.d"
        beside.mkdir()
        for each in MODES[mode][0]:
            shutil.copy(UNITS / each, beside)
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
    """Give every setting of a unit file with its values in their order."""
    found: dict[str, list[str]] = {}
    for line in (UNITS / name).read_text().splitlines():
        key, equals, value = line.partition("=")
        if equals and not key.startswith("#"):
            found.setdefault(key, []).append(value)
    return found


def test_systemd_has_nothing_to_say_against_them(
    installed: Callable[[str], Path], mode: str
) -> None:
    # Without the option it also reads this machine's own units, and prints what is wrong with them.
    done = analyze("--recursive-errors=no", "verify", installed(mode))
    assert (done.returncode, done.stdout) == (0, "")


def test_the_exposure_stays_as_low_as_it_is(installed: Callable[[str], Path], mode: str) -> None:
    """interfaces.md: at most 2.0 for observe."""
    limit = round(MODES[mode][1] * 10)
    done = analyze("security", "--offline=yes", f"--threshold={limit}", installed(mode))
    assert done.returncode == 0, done.stdout
    assert f"rbdagent.service: {MODES[mode][1]}" in done.stdout


def test_every_drop_in_belongs_to_a_mode() -> None:
    assert {each.name for each in UNITS.glob("*.conf")} == {UNMAP, STAGED}


def test_the_watchdog_waits_as_long_as_livez() -> None:
    assert settings("rbdagent.service")["WatchdogSec"] == [f"{endpoint._HUNG_S:g}"]


def test_an_agent_takes_no_more_of_the_node_than_the_charts_may() -> None:
    """Both write binary units: M and Mi are 1024 KiB (systemd.resource-control(5))."""
    unit = settings("rbdagent.service")
    limits = yaml.safe_load((CHART / "values.yaml").read_text())["resources"]["limits"]
    assert [f"{each}i" for each in unit["MemoryMax"]] == [limits["memory"]] == ["512Mi"]
    (tasks,) = map(int, unit["TasksMax"])
    # Beside the endpoint's a thread for each source, and librados's of each cluster: 20 or so.
    assert 2 * endpoint._MOST_CONNECTIONS < tasks <= 256


def test_no_drop_in_lifts_a_limit() -> None:
    for each in (UNMAP, STAGED):
        assert not settings(each).keys() & {"MemoryMax", "TasksMax", "MemoryHigh"}


def test_no_mode_has_a_capability_that_its_facts_or_acts_do_not_need() -> None:
    """docs/privileges.md: nobody's two for what is seen, root's for the act."""
    observe = settings("rbdagent.service")
    seen = ["CAP_SYS_PTRACE CAP_DAC_READ_SEARCH"]
    assert observe["AmbientCapabilities"] == observe["CapabilityBoundingSet"] == seen
    assert observe["DynamicUser"] == ["yes"]
    unmap = settings(UNMAP)
    assert unmap["User"] == ["root"]
    assert unmap["CapabilityBoundingSet"] == ["~CAP_DAC_READ_SEARCH", "CAP_SYS_ADMIN"]
    # The empty value takes back what stood before.
    assert unmap["AmbientCapabilities"] == [""]
    assert settings(STAGED)["CapabilityBoundingSet"] == ["CAP_SYS_CHROOT"]


def test_the_files_of_a_mode_leave_its_capabilities_in_the_order_that_systemd_reads_them(
    installed: Callable[[str], Path], mode: str
) -> None:
    done = analyze("security", "--offline=yes", "--json=short", installed(mode))
    kept = {each["name"].partition("=~")[2] for each in json.loads(done.stdout) if not each["set"]}
    assert {each for each in kept if each.startswith("CAP_")} == CAPABILITIES[mode]


def test_only_a_drop_in_may_unmap_or_write_to_sysfs() -> None:
    observe = settings("rbdagent.service")
    assert observe["ProtectKernelTunables"] == ["yes"]
    assert "ReadWritePaths" not in observe
    assert not any("MODE" in each for each in observe["Environment"])
    assert settings(UNMAP)["Environment"] == ["RBDAGENT_MODE=unmap"]
    assert settings(UNMAP)["ReadWritePaths"] == ["/sys/bus/rbd"]


@pytest.mark.parametrize("unit", ["rbdagent.service", UNMAP, STAGED])
def test_every_variable_of_ours_is_that_of_a_flag(unit: str) -> None:
    known = {each.envvar for each in command.params}
    variables = [each.partition("=")[0] for each in settings(unit)["Environment"]]
    assert {each for each in variables if each.startswith("RBDAGENT_")} <= known


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGABRT, -6)])
def test_an_agent_is_ready_alive_and_at_its_end_as_systemd_hears_it(
    tmp_path: Path, number: signal.Signals, code: int
) -> None:
    """SIGABRT is the watchdog's: the log then tells where the loop was."""
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
