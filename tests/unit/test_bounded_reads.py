"""No file makes rbdagent read beyond its bound, and what lies beyond never counts as "none"."""

from __future__ import annotations

import os
from contextlib import nullcontext
from typing import TYPE_CHECKING, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rbdagent.collect.files import (
    ARGUMENTS,
    COMMAND_LINE,
    SMALL,
    Blocks,
    TooLargeError,
    UnreadError,
    read_blocks,
    read_bytes,
    read_file,
    read_head,
)
from rbdagent.collect.node import limits, namespaces, openers, procfs
from rbdagent.model import InFlight, NotObserved
from tests.support.node_files import FILES, MOUNTS, POD, ROOT_MOUNT, Tree, gap_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from types import ModuleType

HUGE: Final = 8 << 20


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    """Return a node with an image mapped and not used, and a process of a pod."""
    made = Tree(tmp_path)
    made.device(0)
    made.namespace("own", ROOT_MOUNT)
    made.process(7, "/app", "--serve", namespace="own", pod=POD)
    return made


class Counted:
    """Counts the bytes that are read."""

    def __init__(self) -> None:
        self.bytes = 0

    def read(self, descriptor: int, size: int) -> bytes:
        chunk = _READ(descriptor, size)
        self.bytes += len(chunk)
        return chunk


_READ = os.read


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Counted:
    made = Counted()
    monkeypatch.setattr(os, "read", made.read)
    return made


# --------------------------------------------------------------------------------------------------
# Files
# --------------------------------------------------------------------------------------------------


def test_file_of_exactly_its_bound_is_read(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x" * SMALL)
    assert read_bytes(tmp_path / "file") == b"x" * SMALL


def test_a_larger_file_is_not_observed(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x" * (SMALL + 1))
    found = read_bytes(tmp_path / "file")
    assert isinstance(found, NotObserved)
    assert found.reason == f"{tmp_path}/file: larger than 64 KiB"


def test_head_of_a_file_is_read_and_no_more(tmp_path: Path, counted: Counted) -> None:
    (tmp_path / "file").write_bytes(b"x" * HUGE)
    assert read_head(tmp_path / "file", 100) == b"x" * 100
    assert counted.bytes == 100


def fifo(path: Path) -> None:
    os.mkfifo(path)


def device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def directory(path: Path) -> None:
    path.mkdir()


@pytest.mark.parametrize("make", [fifo, device, directory])
def test_only_regular_files_are_read(tmp_path: Path, make: Callable[[Path], None]) -> None:
    """Assert an immediate error: a pipe without a writer would block the reader."""
    make(tmp_path / "file")
    found = read_file(tmp_path / "file")
    assert isinstance(found, NotObserved)
    assert found.reason == f"{tmp_path}/file: not a regular file"


def test_pipe_in_place_of_a_proc_file_blocks_no_reader(tmp_path: Path) -> None:
    fifo(tmp_path / "file")
    assert read_bytes(tmp_path / "file") == b""


@given(
    content=st.lists(st.sampled_from([b"", b"a", b"bc\r", b"\n", b"def\n"])).map(b"".join),
    size=st.integers(min_value=1, max_value=9),
)
def test_blocks_are_the_lines_of_the_file_at_any_read_size(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, size: int
) -> None:
    path = tmp_path_factory.getbasetemp() / "blocks"
    path.write_bytes(content)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "read", lambda descriptor, _: _READ(descriptor, size))
        blocks = list(read_blocks(path, len(content)))
    lines = content.split(b"\n")
    assert [line for block in blocks for line in block.split(b"\n")] == (
        lines[:-1] if not lines[-1] else lines
    )


def test_blocks_before_the_bound_are_followed_by_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"line\n" * 1000)
    blocks = read_blocks(tmp_path / "file", 10)
    with pytest.raises(UnreadError) as caught:
        list(blocks)
    assert caught.value.what is not None
    assert caught.value.number is None


@given(
    content=st.lists(st.sampled_from([b"", b"a", b"bc\r", b"\n", b"def\n"])).map(b"".join),
    sizes=st.lists(st.integers(min_value=0, max_value=30)).map(sorted),
)
def test_parts_of_a_file_are_its_lines(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, sizes: list[int]
) -> None:
    """If the last part has nothing new, it is the whole file again."""
    path = tmp_path_factory.getbasetemp() / "parts"
    path.write_bytes(content)
    blocks, found = Blocks(path), Counted()
    lines: list[bytes] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "read", lambda descriptor, _: found.read(descriptor, 3))
        for most in [*(size for size in sizes if size < len(content)), len(content)]:
            with pytest.raises(TooLargeError) if most < len(content) else nullcontext():
                for block in blocks.up_to(most):
                    lines += block.split(b"\n")
    whole = content.removesuffix(b"\n").split(b"\n") if content else []
    assert lines[-len(whole) :] == whole
    assert (len(lines), found.bytes) in {
        (len(whole), len(content)),
        (len(lines), 2 * len(content)),
    }


@pytest.mark.parametrize("content", [b"new\n", None])
def test_a_file_that_ends_between_two_parts_is_opened_again(
    tmp_path: Path, content: bytes | None
) -> None:
    """The process executes another program, or ends."""
    path = tmp_path / "maps"
    path.write_bytes(b"old\n" * 1000)
    blocks = Blocks(path)
    with pytest.raises(TooLargeError):
        list(blocks.up_to(100))
    os.truncate(path, 0)
    path.unlink()
    if content is None:
        with pytest.raises(UnreadError) as caught:
            list(blocks.up_to(HUGE))
        assert caught.value.what is None
    else:
        path.write_bytes(content)
        assert list(blocks.up_to(HUGE))[-1] == b"new"


# --------------------------------------------------------------------------------------------------
# Processes
# --------------------------------------------------------------------------------------------------


def test_head_of_a_command_line_is_read_and_the_cut_is_shown(tree: Tree, counted: Counted) -> None:
    tree.observe()
    before, counted.bytes = counted.bytes, 0
    tree.write("proc/7/cmdline", b"/app\0" + b"x" * HUGE)
    view, source = tree.observe()
    assert counted.bytes - before < 2 * COMMAND_LINE
    (process,) = view.processes
    assert process.command == "/app …"
    assert source.gaps == tree_gaps(tree)


def tree_gaps(tree: Tree) -> tuple[object, ...]:
    """Return the gaps of the tree without the long command line."""
    tree.write("proc/7/cmdline", "/app\0")
    return tree.observe()[1].gaps


def test_half_a_secret_at_the_cut_is_not_shown(tree: Tree) -> None:
    words = b"/bin/cat\0--password=" + b"x" * (COMMAND_LINE - 40) + b"\0--token\0SECRET" + b"x" * 99
    tree.write("proc/7/cmdline", words)
    (process,) = tree.observe()[0].processes
    assert "SECRET" not in process.command
    assert process.command.endswith("…")


def test_a_long_command_line_shows_that_it_was_cut(tree: Tree) -> None:
    tree.write("proc/7/cmdline", b"/bin/cat\0" + b"y" * 300)
    (process,) = tree.observe()[0].processes
    assert len(process.command) == 200
    assert process.command.endswith("y …")


@pytest.mark.parametrize("size", [100, COMMAND_LINE + 100])
def test_names_of_a_worker_are_read_beyond_the_first_words(tree: Tree, size: int) -> None:
    tree.process(8, "/sbin/mkfs.ext4", "-x" * (size // 2), "/dev/rbd0")
    (flight,) = in_flight(tree)
    assert flight.names == ("/dev/rbd0",)


def test_names_of_a_worker_beyond_the_bound_are_not_observed(tree: Tree) -> None:
    tree.process(8, "/sbin/mkfs.ext4", "-x" * ARGUMENTS, "/dev/rbd0")
    view, source = tree.observe()
    assert isinstance(view.in_flight, NotObserved)
    assert "process 8 (mkfs.ext4)" in view.in_flight.reason
    assert "processes in flight" in {gap.fact for gap in source.gaps}


def in_flight(tree: Tree) -> tuple[InFlight, ...]:
    view, _ = tree.observe()
    assert not isinstance(view.in_flight, NotObserved)
    return view.in_flight


@pytest.mark.parametrize(
    ("bound", "readers", "path", "fact"),
    [
        ("MOUNTINFO_SIZES", (namespaces,), "namespaces/own", MOUNTS),
        ("MAPS_SIZES", (openers, procfs), "proc/7/maps", FILES),
    ],
)
def test_data_beyond_a_bound_is_not_observed_and_is_named(
    tree: Tree,
    monkeypatch: pytest.MonkeyPatch,
    bound: str,
    readers: tuple[ModuleType, ...],
    path: str,
    fact: str,
) -> None:
    monkeypatch.setattr(limits, "UNTIMED", SMALL)
    for module in (limits, *readers):
        monkeypatch.setattr(module, bound, (SMALL,))
    tree.write(path, f"{ROOT_MOUNT}\n".encode() * 2000)
    view, source = tree.observe()
    gap = gap_of(source, fact)
    assert f"process 7 (app) of pod {POD}" in gap.reason
    assert "larger than 64 KiB" in gap.reason
    assert not isinstance(view.mappings, NotObserved)
    (mapping,) = view.mappings
    hidden = mapping.mounts if fact == MOUNTS else mapping.openers
    assert isinstance(hidden, NotObserved)


def test_file_mapped_before_the_bound_is_evidence(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (openers, procfs):
        monkeypatch.setattr(module, "MAPS_SIZES", (100,))
    line = b"7f0000000000-7f0000001000 r--p 00000000 fc:00 12   /db\n"
    monkeypatch.setattr(os, "read", lambda descriptor, _: _READ(descriptor, len(line)))
    tree.write("proc/7/maps", line * 10)
    (mapping,) = tree.mappings()
    assert not isinstance(mapping.openers, NotObserved)
    assert [opener.path for opener in mapping.openers] == ["/db"]


def test_process_that_serves_an_nbd_device_is_not_proof_of_use(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (openers, procfs):
        monkeypatch.setattr(module, "MAPS_SIZES", (SMALL,))
    tree.write("sys/block/nbd0/pid", "9\n")
    tree.write("sys/block/nbd0/dev", "43:0\n")
    tree.process(9, "/usr/bin/rbd-nbd", "map", "k8s/image", "--device", "/dev/nbd0")
    tree.write("proc/9/maps", "7f0000000000-7f0000001000 r--p 00000000 2b:00 12   /dev/nbd0\n")
    nbd = tree.mappings()[1]
    assert not isinstance(nbd.openers, NotObserved)
    assert [opener.process.pid for opener in nbd.openers] == [9]
    tree.write("proc/7/maps", b"x" * SMALL + b"\n" * 10)
    assert isinstance(tree.mappings()[1].openers, NotObserved)


def test_addresses_are_not_observed_if_one_family_is_not(tree: Tree) -> None:
    tree.write("proc/1/net/fib_trie", "")
    tree.write("proc/1/net/if_inet6", b"x" * (1 << 24) + b"x")
    view, _ = tree.observe()
    assert isinstance(view.addresses, NotObserved)
