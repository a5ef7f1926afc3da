"""An agent with given snapshots, and what it logs, reports and exposes."""

# ruff: noqa: ANN401 - as the builders

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

import structlog
from msgspec.structs import replace

from rbdagent.agent import loop
from rbdagent.agent.cycle import CycleResult
from rbdagent.agent.loop import Agent
from rbdagent.agent.metrics import Metrics
from rbdagent.collector import Workers
from rbdagent.correlate import correlate
from rbdagent.model import (
    BootTime,
    Snapshot,
    Target,
    TargetKind,
    UnmapPolicy,
    UnmapRecord,
)
from rbdagent.rules import diagnose
from rbdagent.unmap.executor import UnmapContext
from rbdagent.unmap.state_store import StateDir
from tests.support.snapshots import (
    NOW,
    NOWHERE,
    opener,
    pod,
    target,
)
from tests.support.unmap_plans import GRACE_S, seen

if TYPE_CHECKING:
    from collections.abc import MutableMapping

    import pytest
    from prometheus_client.samples import Sample
    from structlog.typing import FilteringBoundLogger

    from rbdagent.config import Settings
    from tests.support.ceph_worker import FakeCephWorker


class Log:
    """Keeps what is logged, with the fields that are bound."""

    def __init__(self) -> None:
        self._kept = structlog.testing.LogCapture()
        self.logger: FilteringBoundLogger = structlog.wrap_logger(
            None,
            processors=[structlog.contextvars.merge_contextvars, self._kept],
            wrapper_class=structlog.make_filtering_bound_logger(logging.DEBUG),
        )

    @property
    def entries(self) -> list[MutableMapping[str, Any]]:
        return self._kept.entries

    def of(self, event: str) -> list[MutableMapping[str, Any]]:
        return [entry for entry in self.entries if entry["event"] == event]


class Times:
    """A clock that only the test advances."""

    def __init__(self) -> None:
        self.uptime_s = 5000.0

    def __call__(self) -> BootTime:
        return BootTime(at=NOW, uptime_s=self.uptime_s)


class Stage:
    """An agent with given snapshots, one after another; the last one is repeated."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch, *, may_unmap: bool) -> None:
        self.times, self.log, self.reported = Times(), Log(), list[CycleResult]()
        self.snapshots: list[Snapshot | Exception] = []
        self.asked_api: list[bool] = []
        self.state = StateDir(path)
        self.freeze_file = Path("/none")
        self.policy = UnmapPolicy(may_unmap=may_unmap, grace_s=GRACE_S)
        self.ceph: FakeCephWorker | None = None
        monkeypatch.setattr(loop, "collect_snapshot", self._snapshot)

    def _snapshot(self, asked: Target, _settings: Settings, **given: Any) -> Snapshot:
        self.asked_api.append(given.get("kube") is None)
        found = self.snapshots.pop(0) if len(self.snapshots) > 1 else self.snapshots[0]
        if isinstance(found, Exception):
            raise found
        node = found.node and replace(found.node, uptime_s=self.times.uptime_s)
        whole = target(argument="", kind=TargetKind.NONE, name="")
        of = whole if asked.kind is TargetKind.NONE else asked
        return replace(found, node=node, target=of)

    def watch(self, agent: Agent, *, minutes: int) -> None:
        """Run one cycle a minute for that many minutes."""
        for _ in range(minutes):
            rounds(agent, "time")
            self.times.uptime_s += 60

    def agent(self) -> Agent:
        leave = UnmapContext(
            by="agent", policy=self.policy, freeze_file=self.freeze_file, state=self.state
        )
        wake: Any = None
        return Agent(
            NOWHERE,
            leave,
            wake,
            resync_s=60.0,
            clock=self.times,
            report=self.reported.append,
            log=self.log.logger,
            workers=Workers(ceph=self.ceph, node=None),  # type: ignore[arg-type]
        )


IN_USE = seen(in_kube={"pods": (pod(),)})
ORPHAN = seen()
PINNED = seen(mapped={"openers": (opener(),)})


def rounds(agent: Agent, *why: str) -> None:
    """Run a cycle for each reason."""
    for reason in why:
        agent._cycle(reason)


def cycle_of(snapshot: Snapshot, *acts: UnmapRecord) -> CycleResult:
    """Return the result of a cycle with this snapshot and these unmap records."""
    diagnosis = diagnose(correlate(snapshot), snapshot)
    return CycleResult(
        snapshot=snapshot, diagnoses=(diagnosis,), history=None, acts=acts, took_s=0.1, at=0.0
    )


def samples(cycle: CycleResult, family: str) -> list[Sample]:
    """Return the samples of a metric after a cycle."""
    return [
        sample
        for metric in Metrics(lambda: cycle).collect()
        if metric.name == family
        for sample in metric.samples
    ]
