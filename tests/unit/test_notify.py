"""Notifications to systemd, read from a socket like that of systemd."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace

from rbdagent.agent.systemd import ServiceManager
from rbdagent.errors import RbdagentError
from rbdagent.model import Source, SourceState
from tests.support.agent_loop import IN_USE, Stage
from tests.support.snapshots import FAILED

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from rbdagent.agent.cycle import CycleResult
    from rbdagent.agent.loop import Agent


class Listener:
    """A datagram socket and the datagrams that it received."""

    def __init__(self, address: str) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        self.socket.bind(address)

    @property
    def heard(self) -> list[str]:
        """Return the datagrams that arrived since the last call."""
        found = []
        while True:
            try:
                found.append(self.socket.recv(4096).decode())
            except BlockingIOError:
                return found


@pytest.fixture
def listener(tmp_path: Path) -> Iterator[Listener]:
    listener = Listener(str(tmp_path / "notify"))
    yield listener
    listener.socket.close()


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stage:
    return Stage(tmp_path / "state", monkeypatch, may_unmap=False)


def manager(listener: Listener, **environment: str) -> ServiceManager:
    return ServiceManager({"NOTIFY_SOCKET": listener.socket.getsockname(), **environment})


class Rounds:
    """A fake wake that ends the loop after a number of waits."""

    def __init__(self, waits: int) -> None:
        self.left = waits

    def rest(self, _seconds: float) -> bool:
        return False

    def wait(self, _seconds: float) -> str:
        self.left -= 1
        return "end" if self.left <= 0 else "change"


def agent_of(stage: Stage, wake: Any, service: ServiceManager) -> Agent:  # noqa: ANN401 - a fake
    agent = stage.agent()
    agent._wake, agent._report = wake, service.send_status
    return agent


def one_cycle(stage: Stage) -> CycleResult:
    """Return the result of one cycle of an agent."""
    stage.agent().run(once=True)
    return stage.reported[-1]


def test_first_cycle_reports_ready_and_each_reports_a_status(
    listener: Listener, stage: Stage
) -> None:
    stage.snapshots = [IN_USE]
    seen = one_cycle(stage)
    service = manager(listener)
    assert listener.heard == []
    service.send_status(seen)
    service.send_status(seen)
    status = "STATUS=1 mapped: 1 InUse"
    assert listener.heard == [f"READY=1\n{status}", status]


def test_status_is_one_line_and_names_unobserved_sources(listener: Listener, stage: Stage) -> None:
    why = Source(state=SourceState.FAILED, reason="two\nlines")
    sources = replace(IN_USE.sources, kubernetes=why, ceph=FAILED)
    stage.snapshots = [replace(IN_USE, sources=sources)]
    manager(listener).send_status(one_cycle(stage))
    (heard,) = listener.heard
    assert heard.splitlines()[1].endswith("; not observed: ceph, kubernetes")


def test_loop_feeds_the_watchdog(listener: Listener, stage: Stage) -> None:
    stage.snapshots = [IN_USE]
    service = manager(listener, WATCHDOG_USEC="180000000")
    agent_of(stage, Rounds(2), service).run(alive=service.alive)
    heard = listener.heard
    assert heard.count("WATCHDOG=1") > 2
    assert heard[0] == "WATCHDOG=1"


def test_loop_with_failing_cycles_is_alive_but_not_ready(listener: Listener, stage: Stage) -> None:
    stage.snapshots = [RbdagentError("broken")]
    service = manager(listener, WATCHDOG_USEC="180000000")
    agent_of(stage, Rounds(2), service).run(alive=service.alive)
    assert set(listener.heard) == {"WATCHDOG=1"}


def test_cycle_that_hangs_does_not_feed_the_watchdog(
    listener: Listener, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = manager(listener, WATCHDOG_USEC="180000000")
    agent = agent_of(stage, Rounds(1), service)
    during: list[list[str]] = []

    def hang(*_given: object, **_named: object) -> None:
        during.append(listener.heard)
        raise RbdagentError("it hung, and now it ends")

    monkeypatch.setattr("rbdagent.agent.loop.collect_snapshot", hang)
    agent.run(alive=service.alive)
    assert during == [[]]


def test_step_is_not_reported_without_a_watchdog(listener: Listener) -> None:
    manager(listener).alive()
    assert listener.heard == []


def test_end_is_reported(listener: Listener) -> None:
    manager(listener).stopping()
    assert listener.heard == ["STOPPING=1"]


def test_abstract_address_is_written_with_an_at(tmp_path: Path) -> None:
    name = f"rbdagent-test{tmp_path}"[:100]
    listener = Listener(f"\0{name}")
    ServiceManager({"NOTIFY_SOCKET": f"@{name}"}).stopping()
    assert listener.heard == ["STOPPING=1"]
    listener.socket.close()


@pytest.mark.parametrize("environment", [{}, {"NOTIFY_SOCKET": "/none"}, {"NOTIFY_SOCKET": "@"}])
def test_notification_without_a_listener_does_nothing(environment: dict[str, str]) -> None:
    ServiceManager(environment).stopping()
