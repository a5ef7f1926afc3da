"""The lab stops exactly the processes that it started, also from another invocation."""

from __future__ import annotations

import itertools
import json
import os
import time
from typing import TYPE_CHECKING

import pytest

from tests.lab.errors import LabError
from tests.lab.processes import Processes, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    started = Processes(tmp_path)
    yield started
    started.stop_all(grace_s=1)


def test_another_invocation_stops_what_this_one_started(
    processes: Processes, tmp_path: Path
) -> None:
    process = processes.start("sleeper", ["sleep", "60"])
    Processes(tmp_path).stop("sleeper")
    assert not process.alive()


def test_process_that_ignores_sigterm_is_killed_after_the_grace(processes: Processes) -> None:
    code = "import signal, time; signal.signal(15, signal.SIG_IGN); print('deaf'); time.sleep(60)"
    process = processes.start("deaf", ["/usr/bin/python3", "-uc", code])
    log = process.log
    assert log is not None
    wait_until(lambda: "deaf" in _text(log), timeout_s=10, what="the signal to be ignored")
    processes.stop("deaf", grace_s=0.2)
    assert not process.alive()


def test_process_with_a_reused_pid_is_not_stopped(processes: Processes, tmp_path: Path) -> None:
    bystander = processes.start("bystander", ["sleep", "60"])
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    stale = {
        "name": "old",
        "pid": bystander.pid,
        "start_time": bystander.start_time - 1,
        "boot_id": bystander.boot_id,
        "log": None,
    }
    (elsewhere / "processes.json").write_text(json.dumps([stale]))
    Processes(elsewhere).stop_all()
    assert bystander.alive()


def test_process_with_a_pid_of_an_earlier_boot_is_not_stopped(tmp_path: Path) -> None:
    own = {"name": "me", "pid": os.getpid(), "start_time": 1, "boot_id": "earlier", "log": None}
    (tmp_path / "processes.json").write_text(json.dumps([own]))
    processes = Processes(tmp_path)
    processes.stop_all()
    assert processes.running() == ()


def test_process_that_runs_is_not_started_twice(processes: Processes) -> None:
    processes.start("sleeper", ["sleep", "60"])
    with pytest.raises(LabError, match="sleeper runs already"):
        processes.start("sleeper", ["sleep", "60"])


def test_wait_ends_with_its_process_and_shows_the_log(
    processes: Processes,
) -> None:
    process = processes.start("broken", ["sh", "-c", "echo no such key; exit 3"])
    with pytest.raises(LabError, match=r"(?s)broken ended .* the port to open.*no such key"):
        wait_until(lambda: None, timeout_s=30, what="the port to open", process=process)


def test_wait_that_times_out_reports_its_goal_and_last_error() -> None:
    def refused() -> bool:
        raise LabError("connection refused")

    with pytest.raises(LabError, match=r"for the port to open, in vain; last: connection refused"):
        wait_until(refused, timeout_s=0.05, what="the port to open", interval_s=0.01)


def _text(path: str) -> str:
    with open(path, encoding="utf-8") as stream:
        return stream.read()


def test_wait_is_longer_on_a_slow_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = itertools.count()
    monkeypatch.setattr(time, "monotonic", lambda: next(clock))
    monkeypatch.setenv("RBDAGENT_LAB_PATIENCE", "3")
    with pytest.raises(LabError, match="waited 6 s"):
        wait_until(lambda: None, timeout_s=2, what="nothing", interval_s=0)
