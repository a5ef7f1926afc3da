"""A /proc that hides processes (hidepid=1, proc(5)) never reads as one without them."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from rbdagent.collect.node import namespaces, process_scan
from rbdagent.collect.node.mounts import Wanted, read_mounts
from rbdagent.collect.node.procfs import ProcessPass
from rbdagent.model import DeviceNumber, NotObserved, observed_of
from rbdagent.parse import command_line
from tests.support.node_files import ROOT_MOUNT, Tree
from tests.support.snapshots import POD_UID

if TYPE_CHECKING:
    from pathlib import Path

    from rbdagent.collect.node.limits import Share
    from rbdagent.collect.node.mounts import Shown

RBD0 = Wanted.of([DeviceNumber(major=252, minor=0)])


def test_process_with_an_unreadable_state_counts_as_unobserved(
    tmp_path: Path,
) -> None:
    """Replace the file by a directory: root cannot read that either."""
    (tmp_path / "17" / "stat").mkdir(parents=True)
    scan = ProcessPass(tmp_path, RBD0).scan()
    assert (scan.entries, scan.denied_files, scan.denied_mounts) == (
        [],
        ["process 17"],
        ["process 17"],
    )


def test_process_that_is_gone_does_not_count(tmp_path: Path) -> None:
    (tmp_path / "17").mkdir()
    scan = ProcessPass(tmp_path, RBD0).scan()
    assert (scan.entries, scan.denied_files, scan.denied_mounts) == ([], [], [])


def test_process_that_ends_does_not_hide_the_mounts_of_the_others_in_its_namespace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The read of process 17's mountinfo is slow. Process 18 relies on it, then 17 ends."""
    tree = Tree(tmp_path)
    tree.namespace("shared", ROOT_MOUNT, "40 28 252:0 / /data rw - ext4 /dev/rbd0 rw")
    tree.process(17, "/plugin", namespace="shared")
    tree.process(18, "/plugin", namespace="shared")
    relies = threading.Event()

    class Pass(ProcessPass):
        def _observe(self, pid: int) -> None:
            super()._observe(pid)
            if pid == 18:
                relies.set()

    def read(path: str, wanted: Wanted, share: Share | None = None) -> Shown | None:
        if path.endswith("/17/mountinfo"):
            assert relies.wait(10)
            return None
        return read_mounts(path, wanted, share)

    monkeypatch.setattr(namespaces, "read_mounts", read)
    scan = Pass(tree.roots.procfs, RBD0).scan()
    assert scan.unread_mounts == []
    (shared,) = (namespace for namespace in scan.namespaces if not namespace.is_host)
    assert (shared.process.pid, [mount.path for mount in observed_of(shared.mounts)]) == (
        18,
        ["/data"],
    )


@pytest.mark.parametrize("is_first", [True, False], ids=["unmounted", "mounted"])
def test_mount_that_changes_during_the_scan_is_in_the_host_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_first: bool
) -> None:
    """A mount of the CSI plugin is in its namespace and in the host's, which is read twice."""
    used = "40 28 252:0 / /data rw - ext4 /dev/rbd0 rw"
    tree = Tree(tmp_path)
    tree.namespace("host", ROOT_MOUNT, *((used,) if is_first else ()))
    tree.namespace("plugin", ROOT_MOUNT, used)
    tree.process(17, "/plugin", namespace="plugin")

    def read(path: str, wanted: Wanted, share: Share | None = None) -> Shown | None:
        found = read_mounts(path, wanted, share)
        if path.endswith("/17/mountinfo"):
            tree.write("namespaces/host", f"{ROOT_MOUNT}\n" + ("" if is_first else f"{used}\n"))
        return found

    monkeypatch.setattr(namespaces, "read_mounts", read)
    scan = ProcessPass(tree.roots.procfs, RBD0).scan()
    for namespace in scan.namespaces:
        assert [mount.path for mount in observed_of(namespace.mounts)] == ["/data"]


def test_mounts_of_the_host_that_cannot_be_read_again_are_not_observed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a new mount of the CSI plugin would seem to be in its namespace only."""
    tree = Tree(tmp_path)
    tree.namespace("host", ROOT_MOUNT)
    tree.namespace("plugin", ROOT_MOUNT)
    tree.process(17, "/plugin", namespace="plugin")

    def read(path: str, wanted: Wanted, share: Share | None = None) -> Shown | None:
        found = read_mounts(path, wanted, share)
        if path.endswith("/17/mountinfo"):
            tree.write("namespaces/host", "cut\n")
        return found

    monkeypatch.setattr(namespaces, "read_mounts", read)
    scan = ProcessPass(tree.roots.procfs, RBD0).scan()
    unread = [isinstance(namespace.mounts, NotObserved) for namespace in scan.namespaces]
    assert unread == [namespace.is_host for namespace in scan.namespaces] == [True, False]


def test_command_line_that_cannot_be_masked_is_a_gap_of_its_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = Tree(tmp_path)
    tree.namespace("own", ROOT_MOUNT)
    tree.process(17, "/bin/dd", "--token=x", namespace="own")
    tree.process(18, "/bin/cat", "--token=x", namespace="host")
    tree.write("proc/18/maps", "7f00-7f10 r--p 00000000 fc:00 12 /data/db\n")

    def mask(arguments: tuple[str, ...]) -> str:
        if arguments[0] == "/bin/dd":
            raise ValueError(arguments)
        return " ".join(arguments).replace("=x", "=***")

    monkeypatch.setattr(command_line, "command_without_secrets", mask)
    scan = ProcessPass(tree.roots.procfs, RBD0).scan()
    (gap,) = scan.unread_files
    assert gap == "process 17 (dd): secrets could not be masked: ValueError"
    commands = {entry.process.pid: entry.ref.command for entry in scan.entries}
    assert (commands[17], commands[18]) == ("dd", "/bin/cat --token=***")


def test_command_lines_of_few_processes_of_a_pod_are_masked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pod may have any number of processes with open files, and long command lines."""
    tree = Tree(tmp_path)
    count = process_scan._MOST_COMMANDS + 5
    for pid in range(100, 100 + count):
        tree.process(pid, "/bin/cat", "--flag", pod=POD_UID, namespace="host")
        tree.write(f"proc/{pid}/maps", "7f00-7f10 r--p 00000000 fc:00 12 /data/db\n")
    masked: list[tuple[str, ...]] = []

    def mask(arguments: tuple[str, ...]) -> str:
        masked.append(arguments)
        return " ".join(arguments)

    monkeypatch.setattr(command_line, "command_without_secrets", mask)
    scan = ProcessPass(tree.roots.procfs, RBD0).scan()
    commands = [opener.process.command for opener in scan.openers]
    assert commands == ["/bin/cat --flag"] * process_scan._MOST_COMMANDS + ["cat"] * 5
    assert masked.count(("/bin/cat", "--flag")) == process_scan._MOST_COMMANDS
