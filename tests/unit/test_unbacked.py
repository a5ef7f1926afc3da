"""A container that writes to the disk of the node: only the directory of kubelet proves it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from rbdagent.model import NotObserved
from tests.support.node_files import KUBELET, OTHER_POD, POD, ROOT_MOUNT, Tree, volume_path

if TYPE_CHECKING:
    from pathlib import Path

    from rbdagent.model import UnbackedMount

VICTIM: Final = "pvc-victim"
OWN: Final = volume_path(POD, VICTIM)
FORGED: Final = volume_path(OTHER_POD, VICTIM)
_EMPTY_DIR: Final = f"{KUBELET}/pods/{OTHER_POD}/volumes/kubernetes.io~empty-dir/data"


def bare(root: str, device: str = "8:1", fs_type: str = "ext4") -> str:
    return f"60 50 {device} {root} /data rw,relatime - {fs_type} /dev/sda1 rw"


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    made = Tree(tmp_path)
    made.device(0)
    made.write(f"host{KUBELET}/pods/x", "")
    made.process(9, "/usr/bin/kubelet")
    return made


def container(tree: Tree, pid: int, pod: str, *lines: str) -> None:
    tree.namespace(f"ns-{pid}", ROOT_MOUNT, *lines)
    tree.process(pid, "/app", namespace=f"ns-{pid}", pod=pod)


def unbacked(tree: Tree) -> tuple[UnbackedMount, ...]:
    view, _ = tree.observe()
    assert not isinstance(view.unbacked, NotObserved)
    return view.unbacked


def test_pod_with_its_bare_volume_directory_writes_to_the_node(tree: Tree) -> None:
    container(tree, 70, POD, bare(OWN))
    (found,) = unbacked(tree)
    assert (found.pod_uid, found.persistent_volume, found.path) == (POD, VICTIM, "/data")
    assert found.process.pid == 70


@pytest.mark.parametrize(
    ("mounts", "root"),
    [
        pytest.param(["41 28 8:1 /kubelet /var/lib/kubelet rw - ext4 /dev/sda1 rw"],
                     OWN.replace(KUBELET, "/kubelet"), id="a directory of the disk is bound there"),
        pytest.param(["41 28 8:1 / /var/lib rw - ext4 /dev/sda1 rw"],
                     OWN.removeprefix("/var/lib"), id="its own disk above"),
        pytest.param(["41 28 8:9 / /var/lib/kubelet rw - ext4 /dev/sdb rw",
                      "42 28 8:1 / /var/lib/kubelet rw - ext4 /dev/sda1 rw"],
                     OWN.removeprefix(KUBELET), id="of two on one directory the last one shows"),
        pytest.param(["41 28 8:9 / /var/lib/kubelet2 rw - ext4 /dev/sdb rw"], OWN,
                     id="a name that begins so is another one"),
    ],
)  # fmt: skip
def test_kubelet_directory_is_recognised_by_its_file_system(
    tree: Tree, mounts: list[str], root: str
) -> None:
    tree.namespace("host", ROOT_MOUNT, *mounts)
    container(tree, 70, POD, bare(root))
    assert [found.persistent_volume for found in unbacked(tree)] == [VICTIM]


@pytest.mark.parametrize(
    "line",
    [
        pytest.param(bare(FORGED, "0:50", "tmpfs"), id="of a tmpfs in the pod"),
        pytest.param(bare(FORGED, "8:9"), id="of another disk"),
        pytest.param(bare(FORGED.removeprefix(KUBELET)), id="elsewhere on the disk"),
        pytest.param(bare(f"{_EMPTY_DIR}{FORGED}"), id="in his emptyDir"),
        pytest.param(bare(f"{_EMPTY_DIR}/pods/{OTHER_POD}/volumes/kubernetes.io~csi/v/mount"),
                     id="in its emptyDir, of this pod"),
        pytest.param(bare(f"{FORGED}/below"), id="a directory in it"),
    ],
)  # fmt: skip
def test_tenant_cannot_forge_an_unbacked_mount(tree: Tree, line: str) -> None:
    container(tree, 66, OTHER_POD, line)
    assert unbacked(tree) == ()


def test_pod_with_the_directory_of_another_is_not_reported(tree: Tree) -> None:
    """Assert none for a CSI plugin or a debugging pod, which may mount all kubelet directories."""
    container(tree, 66, OTHER_POD, bare(OWN))
    assert unbacked(tree) == ()


def test_unbacked_mounts_need_the_mounts_of_the_host(tree: Tree) -> None:
    container(tree, 70, POD, bare(OWN))
    (tree.root / "proc/1/mountinfo").unlink()
    (tree.root / "proc/1/mountinfo").mkdir()
    view, _ = tree.observe()
    assert isinstance(view.unbacked, NotObserved)
