"""Mounts of mount namespaces, also with paths that an attacker chose to mislead the parser."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from rbdagent.collect.files import Identity, identity_of
from rbdagent.collect.node import namespaces
from rbdagent.model import NotObserved, SourceState
from rbdagent.parse.mountinfo import parse_mount_line
from tests.support.node_files import MOUNTS, OTHER_POD, POD, ROOT_MOUNT, Tree, gap_of, volume_path

if TYPE_CHECKING:
    from pathlib import Path

    from rbdagent.model import Mapping, Mount

STAGING: Final = "/var/lib/kubelet/plugins/kubernetes.io/csi/rbd.csi.ceph.com/c0ffee/globalmount/h"
SEPARATORS: Final = (b"\r", b"\v", b"\f")
UNREADABLE: Final = b"31 28 0:40 /x"


def mounted(path: str, number: int = 0) -> str:
    return f"40 28 252:{16 * number} / {path} rw,relatime - ext4 /dev/rbd{number} rw"


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    """Return a node with two mapped images that are staged; a pod has the first one mounted."""
    made = Tree(tmp_path)
    for number in (0, 1):
        made.device(number)
    lines = (mounted(f"{STAGING}0"), mounted(f"{STAGING}1", 1), mounted(volume_path(POD, "a")))
    made.namespace("host", ROOT_MOUNT, *lines)
    made.process(7, "/app", namespace="host")
    made.namespace("own", ROOT_MOUNT, mounted("/data"))
    made.process(8, "/app", namespace="own", pod=POD)
    return made


def hostile(tree: Tree, *lines: bytes) -> None:
    tree.namespace("hostile", ROOT_MOUNT, *lines)
    tree.process(66, "/evil", namespace="hostile", pod=OTHER_POD)


def mounts(mapping: Mapping) -> tuple[Mount, ...]:
    assert not isinstance(mapping.mounts, NotObserved)
    return mapping.mounts


@pytest.mark.parametrize("byte", SEPARATORS)
def test_path_keeps_bytes_that_the_kernel_does_not_escape(byte: bytes) -> None:
    line = b"40 28 0:33 / /a" + byte + b"b rw - tmpfs none rw"
    assert parse_mount_line(line, where="test").path == f"/a{byte.decode()}b"


def test_empty_source_is_parsed() -> None:
    assert parse_mount_line(b"40 28 0:33 / /a rw - tmpfs  ro", where="test").source == ""


@pytest.mark.parametrize("byte", SEPARATORS)
def test_path_forges_no_bind_mount_of_a_device_node(tree: Tree, byte: bytes) -> None:
    """Assert no change: a file named rbd0 is bound at a path that reads like the rest of a line."""
    before = tree.mappings()
    path = byte.join((b"/x", b"rw", b"-", b"devtmpfs", b"udev", b"rw"))
    hostile(tree, b"41 28 0:33 /rbd0 " + path + b" rw,relatime - tmpfs none rw")
    assert tree.mappings() == before


@pytest.mark.parametrize("byte", SEPARATORS)
def test_mount_at_a_path_with_a_separator_is_evidence(tree: Tree, byte: bytes) -> None:
    hostile(tree, mounted("/da").encode().replace(b"/da", b"/da" + byte + b"ta"))
    (first, _) = tree.mappings()
    paths = [mount.path for mount in mounts(first) if mount.namespace.process.pid == 66]
    assert paths == [f"/da{byte.decode()}ta"]


def test_line_that_cannot_be_parsed_is_a_gap_of_its_namespace(tree: Tree) -> None:
    hostile(tree, UNREADABLE)
    view, source = tree.observe()
    assert source.state is SourceState.OBSERVED
    gap = gap_of(source, MOUNTS)
    assert f"process 66 (evil) of pod {OTHER_POD}" in gap.reason
    assert {process.pod_uid for process in view.processes} == {POD, OTHER_POD}


def test_gap_of_a_namespace_keeps_the_mounts_of_others(tree: Tree) -> None:
    before = mounts(tree.mappings()[0])
    hostile(tree, UNREADABLE)
    assert mounts(tree.mappings()[0]) == before


def test_gap_of_a_namespace_never_reads_as_no_mount(tree: Tree) -> None:
    """Assert not observed: only the staging mount of the second image was found.

    The namespace that cannot be parsed may use the image.
    """
    assert [mount.path for mount in mounts(tree.mappings()[1])] == [f"{STAGING}1"]
    hostile(tree, UNREADABLE)
    unseen = tree.mappings()[1].mounts
    assert isinstance(unseen, NotObserved)
    assert "process 66 (evil)" in unseen.reason


def test_copy_of_a_staging_mount_in_a_container_is_no_use(tree: Tree) -> None:
    tree.namespace("plugin", ROOT_MOUNT, mounted(f"/host{STAGING}1", 1))
    tree.process(9, "/plugin", namespace="plugin", pod=OTHER_POD)
    hostile(tree, UNREADABLE)
    assert isinstance(tree.mappings()[1].mounts, NotObserved)


def test_many_gaps_of_namespaces_are_counted(tree: Tree) -> None:
    for number in range(70, 75):
        tree.namespace(f"ns-{number}", UNREADABLE, str(number))
        tree.process(number, "/evil", namespace=f"ns-{number}", pod=OTHER_POD)
    _, source = tree.observe()
    gap = gap_of(source, MOUNTS)
    assert "process 72" in gap.reason
    assert "process 73" not in gap.reason
    assert gap.reason.endswith("and 2 more")


@pytest.mark.parametrize("hidden", ["1", "7"])
def test_host_namespace_is_recognised_without_its_inode(
    tree: Tree, monkeypatch: pytest.MonkeyPatch, hidden: str
) -> None:
    def identity(path: str) -> Identity:
        if path.endswith(f"/{hidden}/ns/mnt"):
            raise PermissionError(13, "Permission denied", path)
        return identity_of(path)

    monkeypatch.setattr(namespaces, "identity_of", identity)
    host = [mount.path for mount in mounts(tree.mappings()[0]) if mount.namespace.is_host]
    assert set(host) == {f"{STAGING}0", volume_path(POD, "a")}
    others = [mount for mount in mounts(tree.mappings()[0]) if not mount.namespace.is_host]
    assert [mount.path for mount in others if mount.path == "/data"] == ["/data"]


@pytest.mark.parametrize(
    ("line", "covered"),
    [
        ("60 40 0:50 / {} rw - tmpfs none rw", True),
        ("60 40 252:16 / {} rw - ext4 /dev/rbd1 rw", True),
        ("60 40 0:50 / {}/lost+found rw - tmpfs none rw", False),
        ("60 28 0:50 / /elsewhere rw - tmpfs none rw", False),
    ],
    ids=["tmpfs", "another volume", "below it", "elsewhere"],
)
def test_mount_on_top_of_another_hides_it(tree: Tree, line: str, covered: bool) -> None:  # noqa: FBT001 - a table
    """The kernel lists the lower mount too; the upper one has it as its parent."""
    tree.namespace("host", ROOT_MOUNT, mounted(f"{STAGING}0"), line.format(f"{STAGING}0"))
    (first, *_) = tree.mappings()
    (mount,) = (found for found in mounts(first) if found.path == f"{STAGING}0")
    assert mount.covered is covered
