"""The snapshots, the steps and the wait for the watcher of an unmap share one deadline."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
from msgspec.structs import replace

from rbdagent.cli import unmap as command
from rbdagent.model import (
    NotObserved,
    Step,
    StepKind,
    UnmapOutcome,
    UnmapPlan,
    UnmapResult,
)
from rbdagent.unmap import writer
from tests.support.snapshots import NO_IO, NOWHERE
from tests.support.unmap_plans import identity

if TYPE_CHECKING:
    from collections.abc import Callable

PATHS: Final = writer.NodePaths(sysfs=Path("/none"), procfs=Path("/none"), host_root=Path("/none"))
UMOUNT: Final = Step(kind=StepKind.UMOUNT, subject="/staging")
PLAN: Final = UnmapPlan(
    node="worker-1",
    identity=identity(),
    persistent_volume=None,
    steps=(UMOUNT,),
    conditions=(),
    io_counters=NO_IO,
)
NO_STEPS: Final = replace(PLAN, steps=())
LINGERS: Final = NotObserved(reason="Ceph: no answer in time")


class Clock:
    """A fake clock that only ``sleep`` advances."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(writer, "time", made)
    monkeypatch.setattr(command, "time", made)
    return made


class Hangs:
    """A fake process in uninterruptible sleep."""

    patience: tuple[float, ...] = ()

    def __init__(self, *_: Any, **__: Any) -> None:  # noqa: ANN401 - as subprocess.Popen
        """Start the process."""

    def communicate(self, timeout: float) -> None:
        Hangs.patience = (*Hangs.patience, timeout)
        raise subprocess.TimeoutExpired("umount", timeout)


def carried_out(
    plan: UnmapPlan, deadline: float, again: Callable[..., UnmapPlan] = lambda **_: PLAN
) -> UnmapResult:
    return writer.carry_out(
        plan, again=again, watched=lambda: LINGERS, paths=PATHS, deadline=deadline
    )


@pytest.mark.parametrize(("left_s", "patience_s"), [(7.0, 7.0), (100.0, 30.0)])
def test_step_that_does_not_return_is_abandoned_at_the_deadline(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, left_s: float, patience_s: float
) -> None:
    monkeypatch.setattr(Hangs, "patience", ())
    monkeypatch.setattr(subprocess, "Popen", Hangs)
    result = carried_out(PLAN, clock.now + left_s)
    assert (result.outcome, Hangs.patience) == (UnmapOutcome.IN_PROGRESS, (patience_s,))


@pytest.mark.parametrize("took_s", [0.0, 8.0], ids=["before the snapshot", "by the snapshot"])
def test_no_step_starts_after_the_deadline(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, took_s: float
) -> None:
    monkeypatch.setattr(Hangs, "patience", ())
    monkeypatch.setattr(subprocess, "Popen", Hangs)

    def look(**_: Any) -> UnmapPlan:  # noqa: ANN401 - as it is called
        clock.sleep(took_s)
        return PLAN

    result = carried_out(PLAN, clock.now + (7.0 if took_s else 0.0), look)
    assert (result.outcome, Hangs.patience) == (UnmapOutcome.REFUSED, ())
    assert result.message == "no time was left before umount"


@pytest.mark.parametrize(("left_s", "waited_s"), [(7.0, 7.0), (100.0, 40.0)])
def test_unmap_waits_for_the_watcher_until_the_deadline(
    clock: Clock, left_s: float, waited_s: float
) -> None:
    """Assert the last reason in the message: an OSD that hangs keeps the watcher."""
    began = clock.now
    result = carried_out(NO_STEPS, began + left_s)
    assert result.outcome is UnmapOutcome.WATCH_LINGERS
    assert LINGERS.reason in result.message
    assert clock.now - began == waited_s


def test_snapshots_of_one_command_share_its_time(clock: Clock) -> None:
    time_left = command.TimeLeft(lambda: replace(NOWHERE, timeout_s=30.0))
    assert time_left.settings().timeout_s == 30.0
    clock.sleep(12)
    assert time_left.settings().timeout_s == 18.0
    clock.sleep(60)
    assert time_left.settings().timeout_s == 0.0
    time_left.begin()
    assert time_left.settings().timeout_s == 30.0


def test_step_whose_program_cannot_be_started_has_failed(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Assert FAILED: each cycle left an unfinished act while the package was being replaced."""

    def missing(command: list[str], **_: Any) -> None:  # noqa: ANN401 - as subprocess.Popen
        raise FileNotFoundError(2, "No such file or directory", command[0])

    monkeypatch.setattr(subprocess, "Popen", missing)
    result = carried_out(PLAN, clock.now + 60)
    assert result.outcome is UnmapOutcome.FAILED
    assert "No such file or directory" in result.message
    assert result.done == ()
