"""What a path leads to, by statx(2), and what may be read below a mount."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from rbdagent.collect import files
from rbdagent.collect.files import identity_of, inode_of, is_mount_point, is_same
from rbdagent.collect.node import kubelet_dirs, namespaces, openers
from rbdagent.collect.node.file_systems import file_system_of
from rbdagent.collect.node.limits import MAPS_SIZES, share_of_process
from rbdagent.collect.node.mounts import Wanted
from rbdagent.collect.node.procfs import ProcessPass
from rbdagent.model import DeviceNumber, NotObserved, StagingDirectory
from tests.support.node_files import KUBELET, Tree

if TYPE_CHECKING:
    from pathlib import Path

STAGED = f"{KUBELET}/plugins/kubernetes.io/csi/other.csi/c0ffee/globalmount"


@pytest.mark.parametrize(
    "path", ["/", "/dev/null", "/proc/self/exe", "/proc/self/cwd", "/proc/self/ns/mnt", "/dev"]
)
def test_path_leads_to_the_result_of_stat(path: str) -> None:
    found, known = identity_of(path), os.stat(path)
    assert (found.mode, found.inode) == (known.st_mode, known.st_ino)
    assert os.makedev(*found.device) == known.st_dev
    assert os.makedev(*found.special) == known.st_rdev


@pytest.mark.parametrize(
    ("path", "error"), [("/none", FileNotFoundError), ("/dev/null/x", NotADirectoryError)]
)
def test_missing_path_is_an_error_with_its_number(path: str, error: type[OSError]) -> None:
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
def test_mount_point_is_distinguished_from_a_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, knows_roots: bool
) -> None:
    """Compare file systems on a kernel before 5.8, which does not report what a mount root is."""
    if not knows_roots:
        real = identity_of
        monkeypatch.setattr(files, "identity_of", lambda path: real(path)._replace(known=0))
    assert is_mount_point("/proc")
    assert not is_mount_point(str(tmp_path))
    assert not is_mount_point(str(tmp_path / "none"))


# --------------------------------------------------------------------------------------------------
# kubelet's staging directories
# --------------------------------------------------------------------------------------------------


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    """Return a node with a volume whose content reads like ceph-csi's stash of another image."""
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


def test_stash_beside_a_mount_of_ceph_csi_is_read(tree: Tree) -> None:
    found = staging(tree)
    assert found.path == f"{STAGED}/handle"
    assert found.stash is not None


def test_content_of_a_mount_of_another_driver_is_not_read(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Assert no stash: the root belongs to a tenant, and the files in it are not from ceph-csi."""
    monkeypatch.setattr(kubelet_dirs, "is_mount_point", lambda path: path.endswith(STAGED))
    listed: list[str] = []
    real = os.listdir

    def noted(path: str | Path) -> list[str]:
        listed.append(str(path))
        return real(path)

    monkeypatch.setattr(os, "listdir", noted)
    found = staging(tree)
    assert (found.path, found.stash, found.volume_handle) == (STAGED, None, None)
    assert not [path for path in listed if path.endswith("/globalmount")]


# --------------------------------------------------------------------------------------------------
# A file that cannot be identified, on a file system that can
# --------------------------------------------------------------------------------------------------


def refused(monkeypatch: pytest.MonkeyPatch, *, known: tuple[int, int] | None) -> None:
    """Make every file refuse its identity, as a FUSE file system of another user does."""

    def refuse(path: str) -> None:
        raise PermissionError(13, "Permission denied", path)

    for module in (namespaces, openers):
        monkeypatch.setattr(module, "identity_of", refuse)
    monkeypatch.setattr(openers, "file_system_at", lambda _: known)


def denied_files(tree: Tree) -> list[str]:
    tree.open_files(9, "/dev/null")
    wanted = Wanted.of([DeviceNumber(major=252, minor=0)])
    return ProcessPass(tree.roots.procfs, wanted).scan().denied_files


@pytest.mark.parametrize(
    ("known", "denied"),
    [
        pytest.param((0, 77), [], id="another file system"),
        pytest.param(None, ["process 9 (kubelet)"], id="the file system may not be known either"),
        pytest.param((252, 0), ["process 9 (kubelet)"], id="the file system of a device"),
    ],
)
def test_unidentified_file_on_another_file_system_is_not_a_gap(
    tree: Tree,
    monkeypatch: pytest.MonkeyPatch,
    known: tuple[int, int] | None,
    denied: list[str],
) -> None:
    refused(monkeypatch, known=known)
    tree.write("proc/1/maps", "")
    assert [process for process in denied_files(tree) if "(init)" not in process] == denied


def test_file_system_of_a_path_is_identified(tmp_path: Path) -> None:
    device = os.stat(tmp_path).st_dev
    assert files.file_system_at(str(tmp_path)) == (os.major(device), os.minor(device))
    assert files.file_system_at(str(tmp_path / "none")) is None


@pytest.mark.parametrize(
    ("mounted", "named"),
    [
        ("fuse.sshfs server:/share", "fuse.sshfs (server:/share)"),
        (
            r"tmpfs srv).\040The\040volume\040is\040FREE\040(x",
            'tmpfs ("srv). The volume is FREE (x")',
        ),
        (r"fuse.x\040is\040FREE /dev/fuse", '"fuse.x is FREE" (/dev/fuse)'),
    ],
)
def test_what_who_mounts_a_file_system_chooses_is_quoted(
    tmp_path: Path, mounted: str, named: str
) -> None:
    (tmp_path / "mountinfo").write_text(f"42 28 0:50 / /share rw - {mounted} rw\n")
    (tmp_path / "file").symlink_to("/share/a")
    share = share_of_process(MAPS_SIZES[-1])
    assert file_system_of(str(tmp_path), str(tmp_path / "file"), share) == named
