"""A process whose files do not answer is a gap that names it; all the others are observed."""

from __future__ import annotations

import errno
import os
import threading
from typing import TYPE_CHECKING, Final

import pytest

from rbdagent.collect import parallel
from rbdagent.collect.files import Identity, identity_of
from rbdagent.collect.node import namespaces, openers, procfs
from rbdagent.collect.node.processes import read_command
from rbdagent.collect.node.procfs import Turns
from rbdagent.model import COMMAND_LINES, NotObserved, observed_of
from tests.support.node_files import (
    FILES,
    MOUNTS,
    OTHER_POD,
    POD,
    ROOT_MOUNT,
    Tree,
    gap_of,
    volume_path,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterator, Sequence
    from pathlib import Path

    from rbdagent.collect.node.processes import ProcessEntry
    from rbdagent.collect.parallel import Left

    Item = tuple[str, int]

USED: Final = f"40 28 252:0 / {volume_path(POD, 'a')} rw - ext4 /dev/rbd0 rw"
OWN: Final = "41 28 252:16 / /data rw - ext4 /dev/rbd1 rw"
SHARE: Final = "42 28 0:50 / /share rw - fuse.sshfs server:/share rw"
WHO: Final = f"process 66 (app) of pod {OTHER_POD}"


class Hang:
    """Blocks every reader of one file or one link, and counts them."""

    def __init__(self) -> None:
        self.path: str | tuple[str, ...] = ""
        self.only: Container[int] | None = None
        self.times = 0
        self.released = threading.Event()

    def __call__(self, path: str) -> None:
        *_, pid, _ = path.rsplit("/", 2)
        if self.path and path.endswith(self.path) and (not self.only or int(pid) in self.only):
            self.times += 1
            self.released.wait()


@pytest.fixture
def hang(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hang]:
    made = Hang()
    real_open = os.open

    def opened(path: str, flags: int) -> int:
        made(str(path))
        return real_open(path, flags)

    def identity(path: str) -> Identity:
        made(path)
        return identity_of(path)

    monkeypatch.setattr(os, "open", opened)
    for module in (namespaces, openers):
        monkeypatch.setattr(module, "identity_of", identity)
    monkeypatch.setattr(procfs, "_PATIENCE_S", 0.2)
    monkeypatch.setattr(procfs, "_COMMAND_S", 0.2)
    yield made
    made.released.set()


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    """Return a node with three images: a pod uses the first, the hung process the second."""
    made = Tree(tmp_path)
    for number in range(3):
        made.device(number)
    made.namespace("host", ROOT_MOUNT, USED)
    made.namespace("hung", ROOT_MOUNT, SHARE, OWN)
    made.process(66, "/app", namespace="hung", pod=OTHER_POD)
    made.open_files(66, "/share/file")
    made.namespace("own", ROOT_MOUNT)
    made.process(77, "/app", namespace="own", pod=POD)
    made.process(78, "/sbin/mkfs.ext4", "/dev/rbd9")
    return made


_FILES: Final = ("/66/fd/0", "/66/cwd", "/66/maps")
HUNG: Final = pytest.mark.parametrize("path", ["/66/cmdline", *_FILES])


@HUNG
def test_hung_process_is_a_gap_that_names_it(tree: Tree, hang: Hang, path: str) -> None:
    hang.path = path
    _, source = tree.observe()
    reason = gap_of(source, FILES if path in _FILES else COMMAND_LINES).reason
    assert reason.startswith(f"{WHO}: ")
    assert f"{path} does not answer" in reason


@HUNG
def test_other_processes_are_observed(tree: Tree, hang: Hang, path: str) -> None:
    before, _ = tree.observe()
    hang.path = path
    after, _ = tree.observe()
    assert {process.pid for process in after.processes} == {66, 77}
    assert after.in_flight == before.in_flight != ()


@HUNG
def test_mounts_of_a_hung_process_are_evidence(tree: Tree, hang: Hang, path: str) -> None:
    hang.path = path
    view, source = tree.observe()
    assert MOUNTS not in {gap.fact for gap in source.gaps}
    assert not isinstance(view.mappings, NotObserved)
    paths = [observed_paths(mapping.mounts) for mapping in view.mappings]
    assert paths == [[volume_path(POD, "a")], ["/data"], []]


def observed_paths(mounts: object) -> list[str]:
    assert isinstance(mounts, tuple)
    return [mount.path for mount in mounts]


def test_a_command_line_that_does_not_answer_hides_no_open_file(tree: Tree, hang: Hang) -> None:
    """Otherwise, any tenant could keep the agent from every unmap on the node."""
    tree.write("proc/66/maps", "7f0000000000-7f0000001000 r--p 00000000 fc:10 12 /data/file\n")
    hang.path = "/66/cmdline"
    openers = [mapping.openers for mapping in tree.mappings()]
    assert openers[::2] == [(), ()]
    assert [opener.process.command for opener in observed_of(openers[1])] == ["app"]


@pytest.mark.parametrize("path", _FILES)
def test_open_files_of_a_hung_process_are_not_observed(tree: Tree, hang: Hang, path: str) -> None:
    hang.path = path
    for mapping in tree.mappings():
        assert isinstance(mapping.openers, NotObserved)
        assert WHO in mapping.openers.reason


def test_a_mount_namespace_that_does_not_answer_is_a_gap(tree: Tree, hang: Hang) -> None:
    hang.path = "/66/mountinfo"
    view, source = tree.observe()
    assert f"mount namespace of {WHO}" in gap_of(source, MOUNTS).reason
    assert not isinstance(view.mappings, NotObserved)
    assert isinstance(view.mappings[2].mounts, NotObserved)
    assert observed_paths(view.mappings[0].mounts) == [volume_path(POD, "a")]


def test_process_whose_state_does_not_answer_is_a_gap(tree: Tree, hang: Hang) -> None:
    hang.path = "/66/stat"
    view, source = tree.observe()
    for fact in (MOUNTS, FILES):
        assert "/66 does not answer" in gap_of(source, fact).reason
    assert {process.pid for process in view.processes} == {77}


@pytest.mark.parametrize("path", ["/78/cmdline", "/78/stat"])
def test_names_of_a_hung_worker_are_not_observed(tree: Tree, hang: Hang, path: str) -> None:
    hang.path = path
    view, _ = tree.observe()
    assert isinstance(view.in_flight, NotObserved)


def test_hung_process_is_not_read_again_while_it_hangs(tree: Tree, hang: Hang) -> None:
    turns = Turns()
    hang.path = "/66/cmdline"
    (_, first), (_, second) = tree.observe(turns), tree.observe(turns)
    assert hang.times == 1
    assert gap_of(second, COMMAND_LINES) == gap_of(first, COMMAND_LINES)


def release(hang: Hang) -> None:
    """Release the hung process, and wait until it has been observed."""
    before = threading.enumerate()
    hang.released.set()
    for thread in before:
        if isinstance(thread, parallel._Runner):
            thread.join()


def test_a_process_that_answers_again_is_observed(tree: Tree, hang: Hang) -> None:
    turns = Turns()
    hang.path = "/66/cmdline"
    tree.observe(turns)
    hang.path = ""
    release(hang)
    _, source = tree.observe(turns)
    assert COMMAND_LINES not in {gap.fact for gap in source.gaps}


def test_the_file_system_that_does_not_answer_is_named(tree: Tree, hang: Hang) -> None:
    hang.path = "/66/fd/0"
    _, source = tree.observe()
    reason = gap_of(source, FILES).reason
    assert reason.endswith("/66/fd/0 does not answer, on fuse.sshfs (server:/share)")


@pytest.mark.parametrize(("name", "fact"), [("cmdline", COMMAND_LINES), ("maps", FILES)])
def test_three_hung_processes_of_a_pod_skip_only_the_rest_of_this_pod(
    tree: Tree, hang: Hang, name: str, fact: str
) -> None:
    """They stay skipped in later observations, and the number of threads does not grow."""
    evil = f"33333333{OTHER_POD[8:]}"
    for pid in range(200, 270):
        tree.process(pid, "/evil", pod=evil)
    tree.process(300, "/sbin/mkfs.ext4", "/dev/rbd8", pod=POD)
    turns, before = Turns(), threading.active_count()
    for _ in range(3):
        hang.path = f"/{name}"
        hang.only = range(200, 270)
        view, source = tree.observe(turns)
        assert hang.times == 3
        reason = gap_of(source, fact).reason
        assert f"process 200 (evil) of pod {evil}: " in reason
        assert "/200/" in reason
        assert "and 67 more" in reason
        assert not isinstance(view.in_flight, NotObserved)
        assert [found.process.pid for found in view.in_flight] == [78, 300]
    assert threading.active_count() == before + 3


def test_hung_processes_of_a_pod_count_for_the_later_parts(tree: Tree, hang: Hang) -> None:
    """Otherwise, the number of threads of a pod would grow with that of the parts."""
    pids = range(200, 210)
    for pid in pids:
        tree.process(pid, "/evil", pod=OTHER_POD)
    turns, before = Turns(), threading.active_count()
    hang.path, hang.only = ("/maps", "/cmdline"), pids
    for _ in range(3):
        view, source = tree.observe(turns)
        # Threads of an earlier test may end meanwhile.
        assert threading.active_count() <= before + 3
    assert "other processes of its pod do not answer" in gap_of(source, COMMAND_LINES).reason
    assert {process.pid for process in view.processes} == {66, 77}


def test_hung_processes_of_a_pod_do_not_count_for_the_earlier_parts(tree: Tree, hang: Hang) -> None:
    pids = range(200, 210)
    for pid in pids:
        tree.process(pid, "/evil", pod=OTHER_POD)
    tree.write("proc/209/maps", "7f0000000000-7f0000001000 r--p 00000000 fc:20 12 /data/file\n")
    turns = Turns()
    hang.path, hang.only = "/cmdline", pids
    for _ in range(3):
        view, source = tree.observe(turns)
    assert hang.times == 3
    assert FILES not in {gap.fact for gap in source.gaps}
    assert not isinstance(view.mappings, NotObserved)
    assert [opener.process.pid for opener in observed_of(view.mappings[2].openers)] == [209]


def test_the_reasons_why_files_are_not_observed_stay_apart(
    tree: Tree, hang: Hang, monkeypatch: pytest.MonkeyPatch
) -> None:
    hang.path = "/66/maps"
    tree.process(67, "/large", pod=OTHER_POD)
    tree.process(68, "/denied", pod=OTHER_POD)
    tree.write("proc/67/maps", "x" * 100)
    for module in (openers, procfs):
        monkeypatch.setattr(module, "MAPS_SIZES", (99,))
    real = os.open

    def refused(path: str, flags: int) -> int:
        if str(path).endswith("/68/maps"):
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return real(path, flags)

    monkeypatch.setattr(os, "open", refused)
    gap = gap_of(tree.observe()[1], FILES)
    denied, hung, large = gap.reason.split("; ")
    assert denied == f"open files of process 68 (denied) of pod {OTHER_POD} cannot be read"
    assert hung.startswith(WHO)
    assert hung.endswith("/66/maps does not answer")
    assert large.startswith(f"process 67 (large) of pod {OTHER_POD}: ")
    assert "/67/maps: larger than" in large
    assert [hint.partition(":")[0] for hint in gap.hint.split("; ")[-2:]] == [
        "check that process",
        "check that process",
    ]
    assert "does not answer" in gap.hint
    assert "exceeds the read limits" in gap.hint


def test_process_that_answers_before_the_search_of_its_file_system_is_a_gap(
    tree: Tree, hang: Hang, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Turns.run

    def run(
        turns: Turns, items: Sequence[Item], work: Callable[[Item], None], **limits: float
    ) -> Left[Item]:
        if items == [("place", 66)]:
            release(hang)
        return real(turns, items, work, **limits)  # type: ignore[arg-type]

    monkeypatch.setattr(parallel.InTurn, "run", run)
    hang.path = "/66/fd/0"
    _, source = tree.observe()
    assert "/66/fd/0 does not answer" in gap_of(source, FILES).reason


def test_error_of_one_process_does_not_affect_the_others(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:

    def read(entry: ProcessEntry) -> None:
        if entry.ref.pid == 66:
            raise ValueError("unexpected")
        read_command(entry)

    monkeypatch.setattr(procfs, "read_command", read)
    view, source = tree.observe()
    assert f"{WHO}: process 66: ValueError: unexpected" in gap_of(source, FILES).reason
    assert {process.pid for process in view.processes} == {66, 77}
