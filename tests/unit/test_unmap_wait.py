"""`rbdagent unmap --wait`: it waits a grace period after the last I/O, and reports that I/O."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from rbdagent.cli import unmap as command
from rbdagent.model import BootTime, Snapshot, Target, UnmapPlan, UnmapPolicy
from rbdagent.unmap.executor import Attempt, UnmapContext
from rbdagent.unmap.state_store import StateDir
from tests.support.snapshots import NO_IO, NOW, NOWHERE
from tests.support.unmap_plans import UPTIME_S, seen

if TYPE_CHECKING:
    import pytest

GRACE_S = 120.0
ORPHAN = seen()
READ = seen(mapped={"io_counters": replace(NO_IO, reads=NO_IO.reads + 1)})


def test_wait_reports_io_and_ends_a_grace_period_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    uptime = [UPTIME_S]
    looks = [ORPHAN, ORPHAN, READ, READ, READ]

    def look(_: Target) -> Snapshot:
        taken = looks.pop(0)
        assert taken.node is not None
        return replace(taken, node=replace(taken.node, uptime_s=uptime[0]))

    def sleep(_: float) -> None:
        uptime[0] += 60

    attempt = Attempt(
        ORPHAN.target,
        look,
        look,
        unmap_context=UnmapContext(
            by="root",
            policy=UnmapPolicy(may_unmap=True, grace_s=GRACE_S),
            freeze_file=Path("/none"),
            state=StateDir(tmp_path),
        ),
        history=None,
        clock=lambda: BootTime(at=NOW, uptime_s=uptime[0]),
    )
    monkeypatch.setattr("time.sleep", sleep)
    assert isinstance(
        command._decide(attempt, command.TimeLeft(lambda: NOWHERE), wait=True), UnmapPlan
    )
    assert looks == []
    lines = capsys.readouterr().err.splitlines()
    assert [f"reads went from {NO_IO.reads}" in line for line in lines] == [
        False,
        False,
        True,
        True,
    ]
