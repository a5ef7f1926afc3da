"""The umount step on real mounts of this kernel: only the expected mount, on top and alone."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rbdagent.unmap import umount_child

if TYPE_CHECKING:
    from collections.abc import Iterator


class Host:
    """A mount namespace with a staging path; tmpfs mounts replace the volumes."""

    def __init__(self, staging: Path) -> None:
        self.staging = staging
        self._shell = subprocess.Popen(
            ["unshare", "--mount", "--propagation=private", "sh"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )

    def run(self, script: str) -> str:
        """Run a line of shell in the namespace; return its output in one line."""
        assert self._shell.stdin is not None
        assert self._shell.stdout is not None
        self._shell.stdin.write(f"x=$({script}) && echo ok $x || echo failed\n")
        state, _, output = self._shell.stdout.readline().rstrip("\n").partition(" ")
        assert state == "ok", script
        return output

    def mount(self, name: str, path: Path | None = None) -> str:
        """Mount a tmpfs; return its device number."""
        self.run(f"mount -t tmpfs {name} '{path or self.staging}'")
        return self.run(f"mountpoint -d '{path or self.staging}'")

    @property
    def mounted(self) -> list[str]:
        """The names of the file systems at the staging path, from the bottom to the top."""
        lines = Path(f"/proc/{self._shell.pid}/mountinfo").read_text().splitlines()
        escaped = str(self.staging).replace(" ", "\\040")
        return [line.split(" - tmpfs ")[1].split()[0] for line in lines if f" {escaped} " in line]

    def umount(self, device: str) -> int:
        """Run the child; return its exit code."""
        namespace = f"/proc/{self._shell.pid}/ns/mnt"
        command = [sys.executable, "-I", "-S", umount_child.__file__]
        return subprocess.run(
            [*command, namespace, str(self.staging), device], check=False
        ).returncode

    def end(self) -> None:
        self._shell.kill()
        self._shell.communicate()


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    staging = tmp_path / "a staging path"
    staging.mkdir()
    made = Host(staging)
    yield made
    made.end()


def test_expected_mount_is_unmounted(host: Host) -> None:
    device = host.mount("victim")
    assert host.umount(device) == 0
    assert host.mounted == []


def test_mount_of_another_volume_on_top_stays(host: Host) -> None:
    """umount(8) would have taken the upper one, which no process has open."""
    device, other = host.mount("orphan"), host.mount("in-use")
    assert host.umount(device) == umount_child.NOT_THE_TOP
    assert host.umount(other) == umount_child.NOT_THE_TOP
    assert host.mounted == ["orphan", "in-use"]


def test_another_volume_at_the_path_stays(host: Host) -> None:
    host.mount("in-use")
    assert host.umount("252:0") == umount_child.NOT_THE_TOP
    assert host.mounted == ["in-use"]


def test_mount_below_a_hidden_directory_stays(host: Host) -> None:
    """The path leads into the file system that hides the directory, and mountinfo lists both."""
    device = host.mount("orphan")
    host.mount("above", host.staging.parent)
    host.run(f"mkdir '{host.staging}'")
    assert host.umount(device) == umount_child.NOT_THE_TOP
    assert host.mounted == ["orphan"]


def test_busy_mount_stays(host: Host) -> None:
    device = host.mount("in-use")
    user = int(host.run(f"cd '{host.staging}'; sleep infinity >/dev/null & echo $!"))
    assert host.umount(device) == errno.EBUSY
    assert host.mounted == ["in-use"]
    os.kill(user, signal.SIGKILL)


def test_symbolic_link_at_the_path_is_not_followed(host: Host) -> None:
    elsewhere = host.staging.parent / "elsewhere"
    elsewhere.mkdir()
    device = host.mount("in-use", elsewhere)
    host.staging.rmdir()
    host.staging.symlink_to(elsewhere)
    assert host.umount(device) == umount_child.NOT_THE_TOP


def test_missing_path_is_an_error_with_its_number(host: Host) -> None:
    """The list of mounts has the path, and the directory is hidden by an empty file system."""
    device = host.mount("orphan")
    host.mount("above", host.staging.parent)
    assert host.umount(device) == errno.ENOENT
    assert host.mounted == ["orphan"]
