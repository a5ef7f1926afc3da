"""The node is observed in a child process: what hangs in it ends with it."""

from __future__ import annotations

import os
import signal
import threading
import time
from typing import TYPE_CHECKING

import pytest

from rbdagent.collect.files import read_bytes
from rbdagent.collect.node import observer as observed
from rbdagent.collect.node.contained import node_begun, start_node_worker
from rbdagent.model import COMMAND_LINES, NotObserved, SourceState
from tests.support.node_files import Tree, gap_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from rbdagent.collect.node.contained import KeptNode, NodeAnswer
    from rbdagent.collect.node.processes import ProcessEntry
    from rbdagent.model import NodeView, Source


def soon() -> float:
    """Return a deadline that no test reaches."""
    return time.monotonic() + 60


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    made = Tree(tmp_path)
    made.device(0)
    return made


@pytest.fixture
def keep(tree: Tree) -> Iterator[Callable[[], KeptNode]]:
    made: list[KeptNode] = []

    def begin() -> KeptNode:
        made.append(start_node_worker(tree.roots, "n1"))
        return made[-1]

    yield begin
    for kept in made:
        kept.end()


def ask(tree: Tree, kept: KeptNode | None = None, deadline: float | None = None) -> NodeAnswer:
    with node_begun(tree.roots, "n1", deadline or soon(), kept) as answer:
        return answer()


def hang(*_: object, **__: object) -> None:
    read_bytes("/proc/self/comm")
    signal.pause()


def replaced(monkeypatch: pytest.MonkeyPatch, by: Callable[..., object]) -> None:
    monkeypatch.setattr(observed, "observe_node", by)


def test_result_equals_an_observation_in_this_process(tree: Tree) -> None:
    view, source = ask(tree)
    assert (view, source.gaps) == (tree.observe()[0], tree.observe()[1].gaps)
    assert source.took_s is not None


def test_an_observation_leaves_no_process_and_no_thread(tree: Tree) -> None:
    before = (threading.active_count(), children())
    ask(tree)
    assert (threading.active_count(), children()) == before


def children() -> str:
    with open(f"/proc/self/task/{threading.get_native_id()}/children") as file:
        return file.read()


def test_hung_process_fails_with_the_file_that_does_not_answer(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    replaced(monkeypatch, hang)
    before = (threading.active_count(), children())
    view, source = ask(tree, deadline=time.monotonic() + 1)
    assert view is None
    assert_failed(source, "/proc/self/comm did not answer within 1 s")
    assert (threading.active_count(), children()) == before


def test_process_that_blocks_the_interpreter_is_ended(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stop the process: in an endless regular expression, too, no other thread of it runs."""
    replaced(monkeypatch, lambda *_, **__: os.kill(os.getpid(), signal.SIGSTOP))
    _, source = ask(tree, deadline=time.monotonic() + 0.3)
    assert_failed(source, "the node was not observed in time")
    assert children() == ""


def test_killed_process_fails_and_another_one_follows(
    tree: Tree, keep: Callable[[], KeptNode], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        replaced(patch, lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL))
        kept = keep()
        _, source = ask(tree, kept)
    assert_failed(source, "the process that observed the node ended without an answer")
    view, _ = ask(tree, kept)
    assert view is not None


def test_kept_process_observes_again(tree: Tree, keep: Callable[[], KeptNode]) -> None:
    kept = keep()
    first, _ = ask(tree, kept)
    tree.device(1)
    second, _ = ask(tree, kept)
    assert first is not None
    assert second is not None
    assert [len(mappings(view)) for view in (first, second)] == [1, 2]


def mappings(view: NodeView) -> tuple[object, ...]:
    assert not isinstance(view.mappings, NotObserved)
    return view.mappings


def test_unread_answer_is_not_returned_to_a_later_query(
    tree: Tree, keep: Callable[[], KeptNode]
) -> None:
    kept = keep()
    with pytest.raises(ValueError, match="meanwhile"), node_begun(tree.roots, "n1", soon(), kept):
        raise ValueError("meanwhile")
    tree.device(1)
    view, _ = ask(tree, kept)
    assert view is not None
    assert len(mappings(view)) == 2


def test_kept_process_remembers_what_hangs(
    tree: Tree, keep: Callable[[], KeptNode], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from rbdagent.collect.node import procfs
    from rbdagent.collect.node.processes import read_command

    tree.process(66, "/app")

    def read(entry: ProcessEntry) -> None:
        if entry.ref.pid == 66:
            with (tmp_path / "times").open("a") as times:
                times.write("once ")
            threading.Event().wait()
        read_command(entry)

    monkeypatch.setattr(procfs, "read_command", read)
    monkeypatch.setattr(procfs, "_COMMAND_S", 0.2)
    kept = keep()
    gaps = [gap_of(ask(tree, kept)[1], COMMAND_LINES) for _ in range(3)]
    assert gaps[0] == gaps[1] == gaps[2]
    assert "process 66 (app)" in gaps[0].reason
    assert (tmp_path / "times").read_text() == "once "


def assert_failed(source: Source, reason: str) -> None:
    assert source.state is SourceState.FAILED
    assert reason in source.reason
