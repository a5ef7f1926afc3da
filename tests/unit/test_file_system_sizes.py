"""The sizes of file systems: which mounts are asked, when, and what a question cannot disturb."""

from __future__ import annotations

import os
import signal
import time
from typing import TYPE_CHECKING, Any, Final

import pytest
from msgspec.structs import replace

from rbdagent.collect.node import file_system_sizes
from rbdagent.collect.node.file_system_sizes import size_on, start_size_worker, with_sizes
from rbdagent.model import (
    DeviceNumber,
    FileSystemSize,
    Mapping,
    Mount,
    MountKind,
    NodeView,
    NotObserved,
    observed_of,
)
from tests.support.node_files import Tree
from tests.support.rows import each_row
from tests.support.snapshots import (
    NEIGHBOUR,
    NO_IO,
    UNSEEN,
    container,
    kubelet,
    luks,
    mapping,
    mount,
    node_view,
)

if TYPE_CHECKING:
    from pathlib import Path

STAGED = "/var/lib/kubelet/plugins/kubernetes.io/csi/rbd.csi.ceph.com/0/globalmount"
ROOTS = ("/var/lib/kubelet",)
COUNTERS = "812 0 0 0 40 0 0 0 {} 0 0 3 0 0 0 5 0"


class Node:
    """A node whose staging path is a directory of this machine's disk."""

    def __init__(self, root: Path) -> None:
        self.tree = Tree(root)
        self.tree.device(0)
        self.path = self.tree.roots.host_root / STAGED.removeprefix("/")
        self.path.mkdir(parents=True)
        found = os.stat(self.path).st_dev
        self.number = DeviceNumber(major=os.major(found), minor=os.minor(found))
        self.options("rw")
        self.in_flight(0)
        self.tree.write("sys/block/rbd0/size", "131072\n")
        self.tree.write("sys/block/dm-0/size", "98304\n")

    def options(self, options: str) -> None:
        """Set the options of the super block in the host's mountinfo."""
        line = f"71 28 {self.number} / {STAGED} rw shared:9 - ext4 /dev/rbd0 {options}"
        self.tree.namespace("host", "28 1 8:1 / / rw - ext4 /dev/sda1 rw", line)

    def in_flight(self, requests: int) -> None:
        """Set the requests that the device has in flight now."""
        self.tree.write("sys/block/rbd0/queue/iostats", "1\n")
        self.tree.write("sys/block/rbd0/stat", COUNTERS.format(requests) + "\n")

    def mount(self, **overrides: Any) -> Mount:  # noqa: ANN401 - as the builders
        return mount(**{"path": STAGED, "device": self.number, **overrides})

    def mapping(self, **overrides: Any) -> Mapping:  # noqa: ANN401 - as the builders
        return mapping(**{"number": self.number, "mounts": (self.mount(),), **overrides})

    def size(self, **overrides: Any) -> FileSystemSize | NotObserved | None:  # noqa: ANN401 - as above
        """Ask for the size on the mapping with changes."""
        return size_on(self.mapping(**overrides), ROOTS, self.tree.roots)


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def test_size_is_that_of_statfs_beside_the_size_of_the_device(node: Node) -> None:
    found, shown = node.size(), os.statvfs(node.path)
    assert found == FileSystemSize(
        path=STAGED,
        fs_type="ext4",
        device="rbd0",
        device_bytes=64 << 20,
        total_bytes=shown.f_blocks * shown.f_frsize,
        inodes=shown.f_files,
    )


def test_size_on_a_luks_device_is_beside_that_of_the_luks_device(node: Node) -> None:
    below = DeviceNumber(major=252, minor=0)
    found = node.size(number=below, holders=(luks(device=node.number),))
    assert isinstance(found, FileSystemSize)
    assert (found.device, found.device_bytes) == ("dm-0", 48 << 20)


def test_device_without_a_file_system_on_the_host_has_none(node: Node) -> None:
    binds = (node.mount(kind=MountKind.DEVICE_BIND), node.mount(namespace=container()))
    assert [node.size(mounts=()), node.size(mounts=binds)] == [None, None]


NOT_ASKED: Final[dict[str, dict[str, Any]]] = {
    "elsewhere": {"path": "/mnt"},
    "below the directory of a pod": {"path": "/var/lib/kubelet/pods/u/volumes/x/mount"},
    "hidden by another mount": {"covered": True},
    "a directory of it": {"root": "/data"},
    "an unknown type": {"fs_type": "btrfs"},
}


@each_row("name", NOT_ASKED)
def test_only_a_known_file_system_at_a_staging_path_is_asked(name: str, tmp_path: Path) -> None:
    node = Node(tmp_path / name)
    found = node.size(mounts=(node.mount(**NOT_ASKED[name]),))
    assert isinstance(found, NotObserved)
    assert "only of ext4 and XFS at a staging path" in found.reason


def test_mounts_that_were_not_observed_are_the_reason(node: Node) -> None:
    assert node.size(mounts=UNSEEN) is UNSEEN


def test_device_that_completes_no_request_is_not_asked(node: Node) -> None:
    node.in_flight(2)
    found = node.size(io_counters=replace(NO_IO, in_flight=1))
    assert isinstance(found, NotObserved)
    assert found.reason.startswith("/dev/rbd0 has 2 requests in flight and completes none")


def test_busy_device_is_asked(node: Node) -> None:
    node.in_flight(2)
    assert isinstance(node.size(io_counters=replace(NO_IO, writes=39)), FileSystemSize)


def test_device_whose_requests_are_not_counted_is_not_asked(node: Node) -> None:
    assert node.size(io_counters=UNSEEN) is UNSEEN
    node.tree.write("sys/block/rbd0/queue/iostats", "0\n")
    assert isinstance(node.size(), NotObserved)


@each_row("option", ["prjquota", "pquota", "rw,prjjquota=aquota.project"])
def test_quota_of_a_project_is_not_taken_for_a_size(option: str, tmp_path: Path) -> None:
    node = Node(tmp_path / option)
    node.options(option)
    found = node.size()
    assert isinstance(found, NotObserved)
    assert "quotas of projects" in found.reason


def test_other_file_system_at_the_path_is_not_asked(node: Node) -> None:
    other = DeviceNumber(major=252, minor=0)
    found = node.size(number=other, mounts=(node.mount(device=other),))
    assert isinstance(found, NotObserved)
    assert found.reason.endswith("not the file system of the device")


def test_missing_path_is_not_observed(node: Node) -> None:
    node.path.rmdir()
    found = node.size()
    assert isinstance(found, NotObserved)
    assert "HostToContainer" in found.hint


def answered(node: Node, devices: frozenset[str], within_s: float = 60) -> NodeView:
    view = node_view(kubelet=kubelet(roots=ROOTS), mappings=(node.mapping(), NEIGHBOUR))
    with start_size_worker(node.tree.roots) as worker:
        return with_sizes(view, devices, worker, time.monotonic() + within_s)


def test_only_the_named_devices_are_asked(node: Node) -> None:
    asked, other = observed_of(answered(node, frozenset({"rbd0", "dm-7"})).mappings)
    assert isinstance(asked.file_system, FileSystemSize)
    assert other == NEIGHBOUR


@each_row(
    ("signal_number", "reason"),
    [
        (signal.SIGSTOP, "statfs of its file system did not answer in time"),
        (signal.SIGKILL, "the process that asks for its size ended without an answer"),
    ],
)
def test_question_without_an_answer_leaves_the_rest(
    signal_number: int, reason: str, tmp_path: Path
) -> None:
    node, patch = Node(tmp_path / str(signal_number)), pytest.MonkeyPatch()
    with patch.context() as patched:
        patched.setattr(
            file_system_sizes, "size_on", lambda *_: os.kill(os.getpid(), signal_number)
        )
        view = answered(node, frozenset({"rbd0"}), within_s=0.5 if "time" in reason else 60)
    asked, _ = observed_of(view.mappings)
    assert isinstance(asked.file_system, NotObserved)
    assert asked.file_system.reason == reason
    assert asked.mounts == node.mapping().mounts
