"""Time and size limits per process and per pod, so that the others are still observed."""

from __future__ import annotations

import os
from collections import Counter
from types import SimpleNamespace
from typing import TYPE_CHECKING, Final

import pytest

from rbdagent.collect.node import limits, mounts, procfs
from rbdagent.collect.node.limits import POD_S, PROCESS_S, UNTIMED, Shares
from rbdagent.collect.node.mounts import Wanted
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

    from rbdagent.model import Gap, Mapping

USED: Final = f"40 28 252:0 / {volume_path(POD, 'a')} rw - ext4 /dev/rbd0 rw"
OWN: Final = "41 28 252:0 / /data rw - ext4 /dev/rbd0 rw"
_READ: Final = os.read


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
    monkeypatch.setattr(limits, "time", SimpleNamespace(monotonic=made, process_time=made))
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
    monkeypatch.setattr(limits, "UNTIMED", 0)
    return tree


def gap(tree: Tree, fact: str) -> Gap:
    return gap_of(tree.observe()[1], fact)


def assert_only_the_unused_is_unseen(mappings: tuple[Mapping, ...], fact: str) -> None:
    used, unused = mappings
    if fact == MOUNTS:
        assert not isinstance(used.mounts, NotObserved)
        assert [mount.namespace.process.pid for mount in used.mounts] == [1, 77]
    assert isinstance(unused.mounts if fact == MOUNTS else unused.openers, NotObserved)


@pytest.mark.parametrize(
    ("path", "fact", "seconds"), [("mountinfo", MOUNTS, 0.05), ("maps", FILES, 2)]
)
def test_file_that_takes_too_long_is_a_gap(
    slow: Tree, path: str, fact: str, seconds: float
) -> None:
    slow.write("proc/66/maps", f"{ROOT_MOUNT}\n" * (100 if path == "maps" else 0))
    if path == "maps":
        slow.namespace("hostile", ROOT_MOUNT)
    reason = gap(slow, fact).reason
    assert f"process 66 (evil) of pod {OTHER_POD}" in reason
    assert f"/66/{path}: not read to its end, because it takes longer than {seconds} s" in reason
    assert_only_the_unused_is_unseen(slow.mappings(), fact)


def test_descriptors_that_take_too_long_are_a_gap(
    tree: Tree, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(procfs, "_OFTEN", 1)
    clock.step = 0.1
    tree.open_files(66, *["/dev/null"] * 30)
    assert (
        "/66/fd: not read to its end, because it takes longer than 2 s" in gap(tree, FILES).reason
    )
    assert_only_the_unused_is_unseen(tree.mappings(), FILES)


def test_pod_has_one_share_for_all_its_processes(slow: Tree, clock: Clock) -> None:
    """Assert the time: the third namespace of the pod is not read; that of the other pod is."""
    for number in (67, 68, 69):
        slow.namespace(f"ns-{number}", ROOT_MOUNT, str(number))
        slow.process(number, "/evil", namespace="hostile", pod=OTHER_POD)
    begun = clock.now
    slow.observe()
    assert clock.now - begun <= POD_S + 1


def test_share_ends_with_the_time_of_its_process(clock: Clock) -> None:
    share = Shares().of(POD)
    clock.now += PROCESS_S
    assert not share.is_over
    clock.now += 0.1
    assert share.is_over


def test_unfinished_process_counts_against_its_pod(clock: Clock) -> None:
    """Assert that the time of the pod continues while its first process hangs."""
    found = Shares()
    found.of(POD)
    clock.now += POD_S - 1
    second = found.of(POD)
    clock.now += 1.1
    assert second.is_over
    assert "because the pod's processes take longer than 4 s" in second.reason("/proc/7/maps")


def test_small_namespace_is_read_to_its_end_on_a_slow_node(tree: Tree, clock: Clock) -> None:
    """A read took longer than the limit in an emulated node: nothing could be unmapped there."""
    clock.step = 10.0
    assert not any(isinstance(mapping.mounts, NotObserved) for mapping in tree.mappings())


def test_bytes_without_a_time_limit_are_those_of_all_processes_of_a_pod(clock: Clock) -> None:
    found = Shares.of_mounts()
    first, second, other = found.of(POD), found.of(POD), found.of(OTHER_POD)
    clock.now += 10
    assert not first.is_over_after(UNTIMED)
    assert second.is_over_after(1)
    assert not other.is_over_after(1)


def test_mounts_are_limited_in_processor_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node that runs something else for a second must not hide an innocent pod's mounts."""
    wall, processor = Clock(), Clock()
    monkeypatch.setattr(limits, "time", SimpleNamespace(monotonic=wall, process_time=processor))
    share = Shares.of_mounts().of(POD)
    wall.now += 1
    assert not share.is_over
    processor.now += 1
    assert share.is_over


@pytest.mark.parametrize("other", [OTHER_POD, None])
def test_pod_does_not_use_the_share_of_another_pod(clock: Clock, other: str | None) -> None:
    found = Shares()
    first = found.of(POD)
    clock.now += 2 * POD_S
    first.end()
    share = found.of(other)
    clock.now += PROCESS_S
    assert not share.is_over


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
    monkeypatch.setattr(procfs, "_MOST_ALIKE", 2)
    (tree.root / "file").touch()
    tree.open_files(77, *[str(tree.root / "file")] * 5, "/proc")
    numbers = [device_of(path) for path in (tree.root, "/proc")]
    wanted = Wanted.of(numbers)
    found = ProcessPass(tree.roots.procfs, wanted).scan().openers
    assert Counter(opener.device for opener in found) == {numbers[0]: 2, numbers[1]: 1}


def device_of(path: Path | str) -> DeviceNumber:
    number = os.stat(path).st_dev
    return DeviceNumber(major=os.major(number), minor=os.minor(number))
