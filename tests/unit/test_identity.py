"""What a path leads to, by statx(2), and what may be looked at below a mount."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from rbdagent.model import NotObserved, StagingDirectory
from rbdagent.observe import files, kubelet
from rbdagent.observe.files import identity_of, inode_of, is_mount_point, is_same
from tests.unit.trees import KUBELET, Tree

if TYPE_CHECKING:
    from pathlib import Path

STAGED = f"{KUBELET}/plugins/kubernetes.io/csi/other.csi/c0ffee/globalmount"


@pytest.mark.parametrize(
    "path", ["/", "/dev/null", "/proc/self/exe", "/proc/self/cwd", "/proc/self/ns/mnt", "/dev"]
)
def test_a_path_leads_to_what_stat_says(path: str) -> None:
    found, known = identity_of(path), os.stat(path)
    assert (found.mode, found.inode) == (known.st_mode, known.st_ino)
    assert os.makedev(*found.device) == known.st_dev
    assert os.makedev(*found.special) == known.st_rdev


@pytest.mark.parametrize(
    ("path", "error"), [("/none", FileNotFoundError), ("/dev/null/x", NotADirectoryError)]
)
def test_what_is_not_there_is_an_error_with_its_number(path: str, error: type[OSError]) -> None:
    with pytest.raises(error):
        identity_of(path)
    assert inode_of(path) is None


def test_two_names_of_one_file_are_the_same(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "other").touch()
    (tmp_path / "link").symlink_to("file")
    assert is_same(str(tmp_path / "file"), str(tmp_path / "link"))
    assert not is_same(str(tmp_path / "file"), str(tmp_path / "other"))
    assert not is_same(str(tmp_path / "file"), str(tmp_path / "none"))


@pytest.mark.parametrize("knows_roots", [True, False])
def test_a_mount_point_is_told_from_a_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, knows_roots: bool
) -> None:
    """A kernel before 5.8 does not say what a root is: there the file systems are compared."""
    if not knows_roots:
        real = identity_of
        monkeypatch.setattr(files, "identity_of", lambda path: real(path)._replace(is_root=None))
    assert is_mount_point("/proc")
    assert not is_mount_point(str(tmp_path))
    assert not is_mount_point(str(tmp_path / "none"))


# --------------------------------------------------------------------------------------------------
# kubelet's staging directories
# --------------------------------------------------------------------------------------------------


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    """Return a node where a volume holds what reads like ceph-csi's notes of another image."""
    made = Tree(tmp_path)
    made.process(9, "/usr/bin/kubelet")
    made.write(f"host{STAGED}/image-meta.json", '{"Version":3,"pool":"k8s","image":"image-0"}')
    made.write(f"host{STAGED}/handle/file", "")
    return made


def staging(tree: Tree) -> StagingDirectory:
    view, _ = tree.observe()
    assert not isinstance(view.kubelet, NotObserved)
    assert not isinstance(view.kubelet.staging, NotObserved)
    (found,) = view.kubelet.staging
    return found


def test_beside_what_ceph_csi_mounts_its_notes_are_read(tree: Tree) -> None:
    found = staging(tree)
    assert found.path == f"{STAGED}/handle"
    assert found.stash is not None


def test_in_what_another_driver_mounts_nothing_is_read(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its root is a tenant's: what he writes there is no note of ceph-csi."""
    monkeypatch.setattr(kubelet, "is_mount_point", lambda path: path.endswith(STAGED))
    listed: list[str] = []
    real = os.listdir

    def noted(path: str | Path) -> list[str]:
        listed.append(str(path))
        return real(path)

    monkeypatch.setattr(os, "listdir", noted)
    found = staging(tree)
    assert (found.path, found.stash, found.volume_handle) == (STAGED, None, None)
    assert not [path for path in listed if path.endswith("/globalmount")]
