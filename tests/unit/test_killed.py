"""After a kill at any instant, the next start of the agent finishes what was left half done.

The unmap steps of a staged LUKS orphan run on a file that replaces the node. A forked agent is
ended before and after every write to the node and to its state directory, one instant at a time.
As with SIGKILL, none of its code runs after that. The next agent starts with what is left.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
from msgspec.structs import replace

from rbdagent.agent import loop
from rbdagent.model import NotObserved, Snapshot, UnmapOutcome, observed_of
from rbdagent.unmap import writer
from rbdagent.unmap.state_store import StateDir
from tests.support.agent_loop import Stage
from tests.support.snapshots import NO_IO, mount
from tests.support.unmap_plans import DM, LADDER, LUKS, seen

if TYPE_CHECKING:
    from collections.abc import Callable

KILLED: Final = 9
MOST_ROUNDS: Final = 40
STAGED: Final = ("umount", "luksClose", "unmap")
"""What is still to be removed, as the steps that remove it."""


class Node:
    """What is mapped, open and mounted, in a file that outlives the process that writes it."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @property
    def left(self) -> tuple[str, ...]:
        return tuple(json.loads(self._path.read_text())) if self._path.exists() else STAGED

    def take_down(self, step: str) -> None:
        assert self.left[0] == step, f"{step} before {self.left[0]}"
        self._path.write_text(json.dumps(self.left[1:]))

    def look(self) -> Snapshot:
        left = self.left
        if not left:
            return seen(on_node={"mappings": ()}, of_image={"watchers": ()})
        return seen(
            mapped={
                "mounts": (mount(device=DM),) if "umount" in left else (),
                "holders": (LUKS,) if "luksClose" in left else (),
                # umount writes and luksClose reads: each step is I/O on the device.
                "io_counters": replace(NO_IO, reads=NO_IO.reads + len(STAGED) - len(left)),
            }
        )


class Instants:
    """Counts the instants at which a process may be killed; ends it at one of them."""

    def __init__(self, at: int | None) -> None:
        self.passed: list[str] = []
        self._at = at

    def __call__(self, what: str) -> None:
        if len(self.passed) == self._at:
            os._exit(KILLED)
        self.passed.append(what)

    def around(self, what: str, does: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*args: Any, **named: Any) -> Any:  # noqa: ANN401 - whatever it takes
            self(f"before {what}")
            given = does(*args, **named)
            self(f"after {what}")
            return given

        return wrapped


def agent_on(
    node: Node, path: Path, monkeypatch: pytest.MonkeyPatch, kill: Instants
) -> tuple[Stage, loop.Agent]:
    """Return an agent whose snapshots and steps are those of the node."""
    stage = Stage(path, monkeypatch, may_unmap=True)
    stage.policy = replace(LADDER, grace_s=600.0)
    taken = stage._snapshot

    def look(*args: Any, **named: Any) -> Snapshot:  # noqa: ANN401 - whatever it takes
        stage.snapshots = [node.look()]
        return taken(*args, **named)

    def step(expected: Any, *_: Any) -> None:  # noqa: ANN401 - a Step
        node.take_down(str(expected.kind))

    monkeypatch.setattr(loop, "collect_snapshot", look)
    monkeypatch.setattr(writer, "_WATCH_EVERY_S", 0.0)
    monkeypatch.setattr(writer, "_do", kill.around("a step", step))
    monkeypatch.setattr(os, "fsync", kill.around("a file is on disk", lambda _: None))
    rename = Path.replace
    monkeypatch.setattr(Path, "replace", kill.around("a file takes its name", rename))
    return stage, stage.agent()


def round_and_round(stage: Stage, agent: loop.Agent, node: Node) -> None:
    for _ in range(MOST_ROUNDS):
        agent._cycle("time")
        stage.times.uptime_s += 60
        if not node.left:
            return


def killed_at(instant: int, node: Node, path: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    """Run an agent in a child process until it is killed or done; return its exit code."""
    pid = os.fork()
    if pid == 0:
        try:
            stage, agent = agent_on(node, path, monkeypatch, Instants(instant))
            round_and_round(stage, agent, node)
            os._exit(0)
        finally:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def all_instants(path: Path) -> list[str]:
    """Return the names of all instants of one complete unmap."""
    with pytest.MonkeyPatch.context() as patch:
        kill, node = Instants(None), Node(path / "node")
        stage, agent = agent_on(node, path / "state", patch, kill)
        round_and_round(stage, agent, node)
        assert node.left == ()
    return kill.passed


def test_io_of_its_own_steps_does_not_stop_the_unmap(tmp_path: Path) -> None:
    all_instants(tmp_path)
    (act,) = observed_of(StateDir(tmp_path / "state").acts())
    assert act.outcome is UnmapOutcome.UNMAPPED


def test_next_agent_finishes_and_records_what_a_kill_left(
    tmp_path: Path,
) -> None:
    instants = all_instants(tmp_path)
    # While the agent only waits, its cycles are alike: begin at the last save before the first
    # step.
    first = instants.index("before a step") - 12
    assert instants.count("before a step") == len(STAGED)
    for instant in range(max(first, 0), len(instants)):
        where = tmp_path / str(instant)
        where.mkdir()
        node, state = Node(where / "node"), StateDir(where / "state")
        with pytest.MonkeyPatch.context() as patch:
            assert killed_at(instant, node, where / "state", patch) == KILLED, instants[instant]
        with pytest.MonkeyPatch.context() as patch:
            stage, agent = agent_on(node, where / "state", patch, Instants(None))
            left = node.left
            round_and_round(stage, agent, node)
        case = f"killed {instants[instant]} ({instant}), with {left} left"
        assert node.left == (), case
        acts = state.acts()
        assert not isinstance(acts, NotObserved), case
        assert all(act.outcome is not None for act in acts), case
        if left:
            assert acts[-1].outcome is UnmapOutcome.UNMAPPED, case
        assert state.history()[1] == "", case
        assert len(acts) <= 2, case
