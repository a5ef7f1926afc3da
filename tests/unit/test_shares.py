"""Limits of time and size, so that other processes and pods are still observed."""

from __future__ import annotations

import contextlib
import math
import os
from collections import Counter
from types import SimpleNamespace
from typing import TYPE_CHECKING, Final

import pytest

from rbdagent.collect.node import limits, mounts, namespaces, openers, procfs
from rbdagent.collect.node.limits import LEAST_S, OBSERVATION_S, POD_S, UNTIMED, Limits
from rbdagent.collect.node.mounts import Wanted
from rbdagent.collect.node.openers import Openers
from rbdagent.collect.node.procfs import ProcessPass
from rbdagent.model import DeviceNumber, NotObserved
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
    from pathlib import Path

    from rbdagent.collect.node.processes import ProcessEntry
    from rbdagent.model import Gap, Mapping

USED: Final = f"40 28 252:0 / {volume_path(POD, 'a')} rw - ext4 /dev/rbd0 rw"
OWN: Final = "41 28 252:0 / /data rw - ext4 /dev/rbd0 rw"
_READ: Final = os.read
ALL_PODS: Final = "because the large files of all pods together take too much processor time"
PAGE: Final = 4096
PAGE_S: Final = 37e-6
"""Processor time for a page of maps, as measured: 33 us in the kernel."""


class Clock:
    """A fake clock: a test sets it, and each call advances it by ``step``."""

    def __init__(self) -> None:
        self.now = self.step = 0.0

    def __call__(self) -> float:
        self.now += self.step
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(limits, "time", SimpleNamespace(thread_time=made, process_time=made))
    return made


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    """Return a node with two mapped images and two pods: one uses the first, one is hostile."""
    made = Tree(tmp_path)
    for number in (0, 1):
        made.device(number)
    made.namespace("host", ROOT_MOUNT, USED)
    made.namespace("own", ROOT_MOUNT, OWN)
    made.namespace("hostile", *(ROOT_MOUNT for _ in range(100)))
    made.process(66, "/evil", namespace="hostile", pod=OTHER_POD)
    made.process(77, "/app", namespace="own", pod=POD)
    return made


@pytest.fixture
def slow(clock: Clock, monkeypatch: pytest.MonkeyPatch, tree: Tree) -> Tree:
    """Return the tree; each block of the files of the hostile process takes a second to read."""

    def read(descriptor: int, size: int) -> bytes:
        path = os.readlink(f"/proc/self/fd/{descriptor}")
        if "/66/" not in path or path.endswith(("/stat", "/cgroup", "/cmdline")):
            return _READ(descriptor, size)
        clock.now += 1.0
        return _READ(descriptor, 100)

    monkeypatch.setattr(os, "read", read)
    only_large(monkeypatch)
    return tree


def only_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make every file larger than usual, except for a mountinfo of two lines."""
    monkeypatch.setattr(limits, "UNTIMED", 200)
    for module in (limits, openers, procfs):
        monkeypatch.setattr(module, "MAPS_SIZES", (0, 10_000, 1 << 20))
        monkeypatch.setattr(module, "DESCRIPTOR_COUNTS", (0, 10, math.inf))


def gap(tree: Tree, fact: str) -> Gap:
    return gap_of(tree.observe()[1], fact)


def assert_only_the_unused_is_unseen(mappings: tuple[Mapping, ...], fact: str) -> None:
    used, unused = mappings
    if fact == MOUNTS:
        assert not isinstance(used.mounts, NotObserved)
        assert [mount.namespace.process.pid for mount in used.mounts] == [1, 77]
    assert isinstance(unused.mounts if fact == MOUNTS else unused.openers, NotObserved)


@pytest.mark.parametrize(("path", "fact"), [("mountinfo", MOUNTS), ("maps", FILES)])
def test_file_that_takes_too_long_is_a_gap(slow: Tree, path: str, fact: str) -> None:
    slow.write("proc/66/maps", f"{ROOT_MOUNT}\n" * (100 if path == "maps" else 0))
    if path == "maps":
        slow.namespace("hostile", ROOT_MOUNT)
    reason = gap(slow, fact).reason
    assert f"process 66 (evil) of pod {OTHER_POD}" in reason
    assert f"/66/{path}: not read to its end, {ALL_PODS}" in reason
    assert_only_the_unused_is_unseen(slow.mappings(), fact)


def test_process_without_a_pod_has_a_limit_of_its_own(slow: Tree) -> None:
    slow.write("proc/66/cgroup", "0::/system\n")
    slow.namespace("hostile", ROOT_MOUNT)
    slow.write("proc/66/maps", f"{ROOT_MOUNT}\n" * 100)
    reason = gap(slow, FILES).reason
    assert "/66/maps: not read to its end, because it takes longer than 2 s" in reason


def test_descriptors_that_take_too_long_are_a_gap(
    tree: Tree, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(openers, "_OFTEN", 1)
    only_large(monkeypatch)
    clock.step = 0.1
    tree.open_files(66, *["/dev/null"] * 30)
    assert "/66/fd: not read to its end, because the threads and large" in gap(tree, FILES).reason
    assert_only_the_unused_is_unseen(tree.mappings(), FILES)


def test_all_pods_have_one_limit(tree: Tree, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """Assert the reads: one of each file, until it is known to be large, and three more in all."""
    only_large(monkeypatch)
    pods = range(20, 60)
    for number in pods:
        tree.process(number, "/evil", pod=f"{number}{OTHER_POD[2:]}")
        tree.write(f"proc/{number}/maps", f"{ROOT_MOUNT}\n" * 100)
    read_of: Counter[str] = Counter()

    def read(descriptor: int, size: int) -> bytes:
        name = os.path.basename(os.readlink(f"/proc/self/fd/{descriptor}"))
        read_of[name] += 1
        clock.now += 0.05 if name == "maps" else 0
        return _READ(descriptor, 100 if name == "maps" else size)

    monkeypatch.setattr(os, "read", read)
    gap = gap_of(tree.observe()[1], FILES)
    assert ALL_PODS in gap.reason
    assert f"and {len(pods) - 3} more" in gap.reason
    assert read_of["maps"] <= len(pods) + 3 + 3


def reads(tree: Tree, monkeypatch: pytest.MonkeyPatch, name: str) -> list[int]:
    """Observe a node; return the pid of each block that is read of files with a name."""
    pids: list[int] = []

    def read(descriptor: int, size: int) -> bytes:
        *_, pid, file = os.readlink(f"/proc/self/fd/{descriptor}").split("/")
        if file == name and (not pids or pids[-1] != int(pid)):
            pids.append(int(pid))
        return _READ(descriptor, size)

    monkeypatch.setattr(os, "read", read)
    tree.observe()
    return pids


def test_small_files_are_read_first_and_pods_in_turn(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    only_large(monkeypatch)
    for pid in (61, 62, 63):
        tree.process(pid, "/evil", pod=OTHER_POD)
        tree.write(f"proc/{pid}/maps", f"{ROOT_MOUNT}\n" * 1000)
    for pid in (71, 78):
        tree.process(pid, "/app", pod=POD)
        tree.write(f"proc/{pid}/maps", f"{ROOT_MOUNT}\n" * (1000 if pid == 71 else 10))
    order = reads(tree, monkeypatch, "maps")
    assert order[-4:] == [61, 71, 62, 63]
    assert order.index(78) < len(order) - 4


def test_large_mounts_of_one_pod_do_not_hide_smaller_ones_of_another(
    tree: Tree, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    only_large(monkeypatch)
    for module in (limits, namespaces):
        monkeypatch.setattr(module, "MOUNTINFO_SIZES", (1000, 1 << 20))

    def read(descriptor: int, size: int) -> bytes:
        if os.readlink(f"/proc/self/fd/{descriptor}").endswith("/66/mountinfo"):
            clock.now += 0.01
            return _READ(descriptor, 100)
        return _READ(descriptor, size)

    monkeypatch.setattr(os, "read", read)
    assert f"process 66 (evil) of pod {OTHER_POD}" in gap(tree, MOUNTS).reason
    assert_only_the_unused_is_unseen(tree.mappings(), MOUNTS)


def test_descriptors_are_continued_by_their_number(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process closes its first descriptors before the others are read."""
    for module in (limits, openers, procfs):
        monkeypatch.setattr(module, "DESCRIPTOR_COUNTS", (2, math.inf))
    tree.open_files(77, *["/dev/null"] * 5)
    read: list[str] = []
    scandir = os.scandir

    def listing(path: str) -> contextlib.AbstractContextManager[list[os.DirEntry[str]]]:
        with scandir(path) as found:
            names = sorted(found, key=lambda entry: entry.name)
        return contextlib.nullcontext(names[2:] if read and "/77/" in path else names)

    def join(_: Openers, entry: ProcessEntry, link: str, share: object) -> None:
        if entry.process.pid == 77:
            read.append(os.path.basename(link))

    monkeypatch.setattr(os, "scandir", listing)
    monkeypatch.setattr(Openers, "_join_descriptor", join)
    tree.observe()
    assert read == ["0", "1", "2", "3", "4"]


def test_small_namespace_is_read_to_its_end_on_a_slow_node(tree: Tree, clock: Clock) -> None:
    """A read took longer than the limit in an emulated node: nothing could be unmapped there."""
    clock.step = 10.0
    assert not any(isinstance(mapping.mounts, NotObserved) for mapping in tree.mappings())


def test_bytes_without_a_time_limit_are_those_of_all_processes_of_a_pod() -> None:
    found = Limits()
    found.of_mounts(POD, None).is_over_after(UNTIMED - 10)
    assert found.of_mounts(POD, None).most == 10
    assert found.of_mounts(OTHER_POD, None).most == UNTIMED


def test_time_is_that_of_the_thread_that_reads(clock: Clock) -> None:
    """A node that runs something else, or a process that hangs, must not hide what a pod has."""
    found = Limits()
    share = found.of_maps(POD, 1 << 20)
    assert not share.is_over()
    clock.now += OBSERVATION_S + 0.01
    assert share.is_over()
    assert found.of_mounts(OTHER_POD, 1 << 20).is_over()
    assert not found.of_mounts(None, None).is_over()
    assert not found.of_descriptors(OTHER_POD, math.inf).is_over()


@pytest.mark.parametrize(
    ("others_s", "pods", "most_s"),
    [
        pytest.param(0.03, 2, OBSERVATION_S - 0.03, id="a small node"),
        pytest.param(0.2, 11, LEAST_S, id="ten pods with very many processes"),
        pytest.param(0.2, 110, 110 * POD_S, id="a large node"),
    ],
)
def test_time_of_large_files_is_what_the_observation_leaves(
    clock: Clock, others_s: float, pods: int, most_s: float
) -> None:
    found = Limits()
    for number in range(pods - 1):
        found.of_mounts(f"{number:03}{OTHER_POD[3:]}", None)
    clock.now += others_s
    share = found.of_maps(POD, 1 << 20)
    clock.now += most_s - 0.001
    assert not share.is_over()
    clock.now += 0.002
    assert share.is_over()


@pytest.mark.parametrize(
    ("pods", "pages"),
    [
        pytest.param(30, 80, id="2,500 areas in each of 30 pods"),
        pytest.param(2, 900, id="30,000 areas in each of 2 pods"),
    ],
)
def test_large_memory_of_ordinary_pods_is_read(
    tree: Tree, clock: Clock, monkeypatch: pytest.MonkeyPatch, pods: int, pages: int
) -> None:
    line = f"{'7f0000000000-7f0000001000 r--s 00000000 08:01 12 /file'.ljust(PAGE - 1)}\n"
    for pid in range(200, 200 + pods):
        tree.process(pid, "/search", pod=f"{pid}{OTHER_POD[3:]}")
        tree.write(f"proc/{pid}/maps", line * pages + line.replace("08:01", "fc:00"))
    read_of: Counter[int] = Counter()

    def read(descriptor: int, size: int) -> bytes:
        *_, pid, name = os.readlink(f"/proc/self/fd/{descriptor}").split("/")
        if name != "maps":
            return _READ(descriptor, size)
        clock.now += PAGE_S
        read_of[int(pid)] += 1
        return _READ(descriptor, PAGE)

    monkeypatch.setattr(os, "read", read)
    view, source = tree.observe()
    assert FILES not in {gap.fact for gap in source.gaps}
    assert not isinstance(view.mappings, NotObserved)
    openers = view.mappings[0].openers
    assert not isinstance(openers, NotObserved)
    assert [opener.process.pid for opener in openers] == [*range(200, 200 + pods)]
    # Each page once, and the end.
    assert {read_of[pid] for pid in range(200, 200 + pods)} == {pages + 2}


def test_memory_whose_file_cannot_stay_open_is_read_again(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    only_large(monkeypatch)
    monkeypatch.setattr(openers, "_MOST_BEGUN", 0)
    tree.write("proc/77/maps", "7f0000000000-7f0000001000 r--p 00000000 fc:10 12 /data/db\n")
    found = tree.mappings()[1].openers
    assert not isinstance(found, NotObserved)
    assert [opener.path for opener in found] == ["/data/db"]


def test_no_file_stays_open_after_the_observation(
    slow: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    for pid in (66, 77):
        slow.write(f"proc/{pid}/maps", f"{ROOT_MOUNT}\n" * 1000)
    for module in (openers, procfs):
        monkeypatch.setattr(module, "MAPS_SIZES", (0, 100))
    before = os.listdir("/proc/self/fd")
    slow.observe()
    assert os.listdir("/proc/self/fd") == before


def test_mounts_of_a_pod_are_limited(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "ROOM", 3)
    monkeypatch.setattr(mounts, "ROOM", 3)
    lines = [f"4{number} 28 252:16 / /m/{number} rw - ext4 /dev/rbd1 rw" for number in range(5)]
    tree.namespace("hostile", *lines)
    assert "more mounts of volumes than 3" in gap(tree, MOUNTS).reason
    assert_only_the_unused_is_unseen(tree.mappings(), MOUNTS)


def test_openers_of_a_device_are_limited_per_process(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Assert the limit: more openers would add no evidence. A later device is still found."""
    monkeypatch.setattr(openers, "_MOST_ALIKE", 2)
    (tree.root / "file").touch()
    tree.open_files(77, *[str(tree.root / "file")] * 5, "/proc")
    numbers = [device_of(path) for path in (tree.root, "/proc")]
    wanted = Wanted.of(numbers)
    found = ProcessPass(tree.roots.procfs, wanted).scan().openers
    assert Counter(opener.device for opener in found) == {numbers[0]: 2, numbers[1]: 1}


def device_of(path: Path | str) -> DeviceNumber:
    number = os.stat(path).st_dev
    return DeviceNumber(major=os.major(number), minor=os.minor(number))
