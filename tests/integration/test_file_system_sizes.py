"""What statfs(2) shows of real file systems, and that none that fills its device seems smaller.

The file systems are on loop devices of this machine, in files without content.
"""

from __future__ import annotations

import itertools
import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from rbdagent.collect.node.file_system_sizes import size_on
from rbdagent.collect.node.roots import NodeRoots
from rbdagent.model import (
    DeviceKind,
    DeviceNumber,
    FileSystemSize,
    IoCounters,
    Mapping,
    Mount,
    MountNamespace,
    NotObserved,
    ProcessRef,
)
from rbdagent.rules.growth_on_node import ends_before
from tests.support.snapshots import SPEC

if TYPE_CHECKING:
    from collections.abc import Iterator

MIB: Final = 1 << 20
EXT4: Final = (
    (), ("-m0",), ("-b4096",), ("-Tnews",), ("-i1024",), ("-I1024",), ("-O^has_journal",),
    ("-Obigalloc",), ("-O^resize_inode",), ("-Jsize=256",),
)  # fmt: skip
"""The defaults, and options that change what the file system needs for itself."""
XFS: Final = ((), ("-lsize=256m",), ("-mreflink=0",), ("-dagcount=1",))
SIZES_OF_EXT4: Final = (4, 8, 16, 64, 300, 511, 512, 1024, 10240, 102400, 1048576)
SIZES_OF_XFS: Final = (300, 400, 1024, 10240, 1048576, 8388608)
NO_IO: Final = IoCounters(reads=0, writes=0, in_flight=0)


class Disk:
    """A loop device on a file without content, and a staging path of kubelet."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.file = directory
        self.made = itertools.count()
        self.path = directory / "kubelet" / "plugins" / "kubernetes.io" / "csi" / "globalmount"
        self.path.mkdir(parents=True)
        self.device = self.kind = ""

    def make(self, kind: str, mebibytes: int, options: tuple[str, ...] = ()) -> bool:
        """Make a file system and mount it; return whether mkfs accepts the options."""
        self.end()
        self.kind = kind
        # Never the file of the last one: another mount namespace may still have that one mounted,
        # and a file system that is unmounted late writes its superblock.
        self.file = self.directory / f"disk-{next(self.made)}"
        with self.file.open("wb") as file:
            file.truncate(mebibytes * MIB)
        force = ("-F",) if kind == "ext4" else ("-f",)
        made = subprocess.run(
            [f"mkfs.{kind}", "-q", *force, *options, self.file], check=False, capture_output=True
        )
        if made.returncode:
            return False
        found = subprocess.run(
            ["losetup", "--find", "--show", self.file], check=True, capture_output=True, text=True
        )
        self.device = found.stdout.strip()
        subprocess.run(["mount", self.device, self.path], check=True)
        return True

    def grow(self, mebibytes: int) -> None:
        """Enlarge the device under its file system, as krbd does after `rbd resize`."""
        os.truncate(self.file, mebibytes * MIB)
        subprocess.run(["losetup", "--set-capacity", self.device], check=True)

    def grow_file_system(self) -> None:
        """Grow the file system; an ext4 while it is not mounted (else: CAP_SYS_RESOURCE)."""
        if self.kind == "xfs":
            subprocess.run(["xfs_growfs", self.path], check=True, capture_output=True)
            return
        subprocess.run(["umount", self.path], check=True)
        subprocess.run(["resize2fs", "-f", self.device], check=True, capture_output=True)
        subprocess.run(["mount", self.device, self.path], check=True)

    def size(self) -> FileSystemSize | NotObserved | None:
        """Ask the file system for its size, as rbdagent does."""
        kind = self.kind
        found = os.stat(self.device)
        number = DeviceNumber(major=os.major(found.st_rdev), minor=os.minor(found.st_rdev))
        host = MountNamespace(inode=1, process=ProcessRef(pid=1, command="init"), is_host=True)
        mount = Mount(path=str(self.path), device=number, fs_type=kind, namespace=host)
        mapping = Mapping(
            kind=DeviceKind.KRBD,
            device_id=0,
            device=self.device,
            number=number,
            spec=SPEC,
            image_id=None,
            pool_id=None,
            fsid=None,
            mounts=(mount,),
            io_counters=NO_IO,
        )
        roots = NodeRoots(procfs=Path("/proc"), sysfs=Path("/sys"), host_root=Path("/"))
        return size_on(mapping, (f"{self.directory}/kubelet",), roots)

    def end(self) -> None:
        """Unmount and detach."""
        if self.device:
            subprocess.run(["umount", "-q", self.path], check=False)
            subprocess.run(["losetup", "--detach", self.device], check=True)
            self.file.unlink()
            self.device = ""


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    made = Disk(tmp_path)
    yield made
    made.end()


def observed(disk: Disk) -> FileSystemSize:
    found = disk.size()
    assert isinstance(found, FileSystemSize), found
    return found


@pytest.mark.parametrize(
    ("kind", "sizes", "options"),
    [("ext4", SIZES_OF_EXT4, EXT4), ("xfs", SIZES_OF_XFS, XFS)],
    ids=["ext4", "xfs"],
)
def test_no_file_system_that_fills_its_device_seems_smaller(
    disk: Disk, kind: str, sizes: tuple[int, ...], options: tuple[tuple[str, ...], ...]
) -> None:
    wrong, asked = [], 0
    for one in options:
        for size in sizes:
            if disk.make(kind, size, one):
                found, asked = observed(disk), asked + 1
                if found.device_bytes != size * MIB or ends_before(found, size * MIB):
                    wrong.append((one, size, found))
    assert wrong == []
    assert asked > len(sizes) * len(options) / 2


@pytest.mark.parametrize(
    ("kind", "before", "after"),
    [
        ("ext4", 64, 128), ("ext4", 128, 256), ("ext4", 1024, 2048), ("ext4", 10240, 20480),
        ("ext4", 102400, 112640), ("xfs", 300, 600), ("xfs", 1024, 2048), ("xfs", 102400, 112640),
    ],
)  # fmt: skip
def test_file_system_that_was_not_grown_is_seen_until_it_is(
    disk: Disk, kind: str, before: int, after: int
) -> None:
    disk.make(kind, before)
    disk.grow(after)
    assert ends_before(observed(disk), after * MIB)
    disk.grow_file_system()
    assert not ends_before(observed(disk), after * MIB)


def test_staging_path_that_has_another_file_system_is_not_asked(disk: Disk) -> None:
    disk.make("ext4", 64)
    subprocess.run(["umount", disk.path], check=True)
    found = disk.size()
    assert isinstance(found, NotObserved)
    assert found.reason.endswith("not the file system of the device")


def test_question_leaves_no_mount_busy(disk: Disk) -> None:
    disk.make("ext4", 64)
    observed(disk)
    subprocess.run(["umount", disk.path], check=True)
