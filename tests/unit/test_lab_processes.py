"""What the lab started is stopped again, by another invocation too, and nothing else is."""

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


def test_a_process_that_ignores_term_is_killed_after_the_grace_time(processes: Processes) -> None:
    code = "import signal, time; signal.signal(15, signal.SIG_IGN); print('deaf'); time.sleep(60)"
    process = processes.start("deaf", ["/usr/bin/python3", "-uc", code])
    log = process.log
    assert log is not None
    wait_until(lambda: "deaf" in _text(log), timeout_s=10, what="the signal to be ignored")
    processes.stop("deaf", grace_s=0.2)
    assert not process.alive()


def test_a_pid_that_was_handed_out_again_is_left_alone(
    processes: Processes, tmp_path: Path
) -> None:
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


def test_a_record_of_an_earlier_boot_is_left_alone(tmp_path: Path) -> None:
    own = {"name": "me", "pid": os.getpid(), "start_time": 1, "boot_id": "earlier", "log": None}
    (tmp_path / "processes.json").write_text(json.dumps([own]))
    processes = Processes(tmp_path)
    processes.stop_all()
    assert processes.running() == ()


def test_a_name_that_runs_is_not_started_twice(processes: Processes) -> None:
    processes.start("sleeper", ["sleep", "60"])
    with pytest.raises(LabError, match="sleeper runs already"):
        processes.start("sleeper", ["sleep", "60"])


def test_waiting_ends_with_the_process_that_was_waited_for_and_shows_its_log(
    processes: Processes,
) -> None:
    process = processes.start("broken", ["sh", "-c", "echo no such key; exit 3"])
    with pytest.raises(LabError, match=r"(?s)broken ended .* the port to open.*no such key"):
        wait_until(lambda: None, timeout_s=30, what="the port to open", process=process)


def test_waiting_in_vain_tells_what_for_and_the_last_obstacle() -> None:
    def refused() -> bool:
        raise LabError("connection refused")

    with pytest.raises(LabError, match=r"for the port to open, in vain; last: connection refused"):
        wait_until(refused, timeout_s=0.05, what="the port to open", interval_s=0.01)


def _text(path: str) -> str:
    with open(path, encoding="utf-8") as stream:
        return stream.read()


def test_on_a_slow_machine_a_wait_goes_on_for_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = itertools.count()
    monkeypatch.setattr(time, "monotonic", lambda: next(clock))
    monkeypatch.setenv("RBDAGENT_LAB_PATIENCE", "3")
    with pytest.raises(LabError, match="waited 6 s"):
        wait_until(lambda: None, timeout_s=2, what="nothing", interval_s=0)
