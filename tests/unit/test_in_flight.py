"""Which processes of a node count as mapping, formatting, mounting or unlocking."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

import pytest

from rbdagent.model import NotObserved
from tests.support.node_files import POD, Tree

if TYPE_CHECKING:
    from pathlib import Path

# Capabilities of a container with the runtime's defaults, and of a privileged one (Linux 6.12).
DEFAULT: Final = "00000000a80425fb"
PRIVILEGED: Final = "000001ffffffffff"
NONE: Final = "0000000000000000"
INITIAL: Final = "user:[4026531837]"
OTHER: Final = "user:[4026532451]"


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    made = Tree(tmp_path)
    user_namespace(made, 1, INITIAL)
    return made


def user_namespace(tree: Tree, pid: int, name: str) -> None:
    (tree.root / f"proc/{pid}/ns/user").symlink_to(name)


def mkfs(tree: Tree, *, pod: str | None, user: str | None, permitted: str | None) -> None:
    tree.process(9, "mkfs.ext4", "/dev/rbd0", pod=pod)
    if user is not None:
        user_namespace(tree, 9, user)
    if permitted is not None:
        status = tree.root / "proc/9/status"
        status.write_text(f"{status.read_text()}CapInh:\t{PRIVILEGED}\nCapPrm:\t{permitted}\n")


def flights(tree: Tree) -> list[str]:
    view, _ = tree.observe()
    assert not isinstance(view.in_flight, NotObserved)
    return [flight.program for flight in view.in_flight]


@pytest.mark.parametrize(
    ("pod", "user", "permitted"),
    [
        pytest.param(POD, INITIAL, DEFAULT, id="without CAP_SYS_ADMIN"),
        pytest.param(POD, INITIAL, NONE, id="without any capability"),
        pytest.param(POD, OTHER, PRIVILEGED, id="in its own user namespace"),
        pytest.param(POD, None, DEFAULT, id="its user namespace cannot be read"),
    ],
)
def test_pod_process_that_may_not_mount_is_not_in_flight(
    tree: Tree, pod: str, user: str | None, permitted: str
) -> None:
    mkfs(tree, pod=pod, user=user, permitted=permitted)
    assert flights(tree) == []


@pytest.mark.parametrize(
    ("pod", "user", "permitted"),
    [
        pytest.param(POD, INITIAL, PRIVILEGED, id="of a CSI node plugin"),
        pytest.param(POD, INITIAL, None, id="its capabilities cannot be read"),
        pytest.param(POD, None, PRIVILEGED, id="its user namespace cannot be read"),
        pytest.param(None, INITIAL, NONE, id="of no pod"),
        pytest.param(None, OTHER, PRIVILEGED, id="of no pod, in its own user namespace"),
    ],
)
def test_process_that_may_mount_or_has_no_pod_is_in_flight(
    tree: Tree, pod: str | None, user: str | None, permitted: str | None
) -> None:
    mkfs(tree, pod=pod, user=user, permitted=permitted)
    assert flights(tree) == ["mkfs.ext4"]


def test_huge_command_line_of_a_pod_leaves_in_flight_observed(tree: Tree) -> None:
    mkfs(tree, pod=POD, user=OTHER, permitted=PRIVILEGED)
    tree.write("proc/9/cmdline", b"mkfs.ext4\0" + b"x" * (1 << 22))
    assert flights(tree) == []


def device_open_in_9(tree: Tree) -> None:
    device = os.stat(tree.root).st_dev
    tree.write("sys/bus/rbd/devices/0/pool", "k8s\n")
    tree.write("sys/bus/rbd/devices/0/name", "image-0\n")
    tree.write("sys/bus/rbd/devices/0/major", f"{os.major(device)}\n")
    tree.write("sys/bus/rbd/devices/0/minor", f"{os.minor(device)}\n")
    tree.write("sys/block/rbd0/dev", f"{os.major(device)}:{os.minor(device)}\n")
    tree.write("host/dev/rbd0", "")
    tree.open_files(9, str(tree.root / "host/dev/rbd0"))


@pytest.mark.parametrize("opens", [True, False])
def test_process_that_ends_is_in_flight_while_it_has_the_device_open(
    tree: Tree, *, opens: bool
) -> None:
    """Its command line is empty by then; a thread of the kernel has none either."""
    tree.process(9, "fsck.ext4", "/dev/rbd0")
    tree.write("proc/9/cmdline", "")
    if opens:
        device_open_in_9(tree)
    assert flights(tree) == (["fsck.ext4"] if opens else [])


def test_pod_process_with_the_device_open_is_an_opener(tree: Tree) -> None:
    """A process that has the device open holds the volume, even if it may not mount."""
    mkfs(tree, pod=POD, user=OTHER, permitted=PRIVILEGED)
    device_open_in_9(tree)
    (mapping,) = tree.mappings()
    assert isinstance(mapping.openers, tuple)
    assert [opener.process.pid for opener in mapping.openers] == [9]
