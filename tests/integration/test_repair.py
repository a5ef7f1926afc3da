"""The commands of docs/repair.md, typed on images of a real cluster with damaged file systems.

This machine's kernel has no krbd. So `rbd map` exports the image to a file with a loop device, and
`rbd unmap` writes the file to the image if it was changed; all other commands are the real ones.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.lab.ceph import CephCluster

PAGE: Final = Path(__file__).parents[2] / "docs" / "repair.md"
FILES: Final = 40
DAMAGED: Final = "file-7"
STATES: Final = ("before", "repair")
SIZE: Final = 64 << 20


def blocks() -> dict[str, list[list[str]]]:
    """Return the commands of the page, in blocks below their headings."""
    found: dict[str, list[list[str]]] = {}
    for part in re.split(r"^## ", PAGE.read_text(), flags=re.MULTILINE)[1:]:
        heading, _, text = part.partition("\n")
        code = re.findall(r"^```sh\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)
        found[heading] = [[line for line in lines.splitlines() if line] for lines in code]
    return found


BLOCKS: Final = blocks()


class Shell:
    """A shell whose variables last from one command to the next."""

    def __init__(self, ceph: CephCluster, directory: Path, image: str) -> None:
        self._ceph = ceph
        self._directory = directory
        self.image = image
        self._variables = {"IMAGE": image}
        self._mapped: dict[str, tuple[str, Path]] = {}

    def type(self, heading: str, block: int = 0) -> list[int]:
        """Type the commands of a block of the page; return their exit codes."""
        return [self.line(line) for line in BLOCKS[heading][block]]

    def line(self, line: str) -> int:
        """Type one line; return its exit code."""
        line = line.partition(" #")[0].strip()
        for name, value in self._variables.items():
            line = line.replace(f"${name}", value)
        line = re.sub("/(?:mnt|tmp)/", f"{self._directory}/", line)
        assigned = re.fullmatch(r"(\w+)=\$\(rbd map (.*)\)", line)
        if assigned is not None:
            self._variables[assigned[1]] = self._map(*shlex.split(assigned[2]))
        elif re.fullmatch(r"IMAGE=\S+", line):
            pass
        elif line.startswith("rbd unmap "):
            self._unmap(line.split()[-1])
        elif line.startswith("rbd "):
            self._ceph.rbd(*shlex.split(line)[1:])
        else:
            return subprocess.run(["bash", "-c", line], check=False).returncode
        return 0

    def _map(self, *words: str) -> str:
        image = words[-1]
        file = self._directory / f"mapped-{len(list(self._directory.iterdir()))}"
        self._ceph.rbd("export", "--no-progress", image, str(file))
        read_only = ["--read-only"] if "--read-only" in words else []
        device = subprocess.run(
            ["losetup", "--find", "--show", *read_only, file],
            check=True, capture_output=True, text=True,
        ).stdout.strip()  # fmt: skip
        self._mapped[device] = image, file
        return device

    def _unmap(self, device: str) -> None:
        image, file = self._mapped.pop(device)
        subprocess.run(["losetup", "--detach", device], check=True)
        if "@" not in image:
            diff = self._directory / "diff"
            write_diff(diff, exported(self._ceph, image), file.read_bytes())
            self._ceph.rbd("import-diff", "--no-progress", str(diff), image)

    def end(self) -> None:
        """Unmount and detach what a failed test has left."""
        for name in ("before", "repair"):
            subprocess.run(
                ["umount", "-q", f"{self._directory}/{name}"], check=False, capture_output=True
            )
        for device in self._mapped:
            subprocess.run(["losetup", "--detach", device], check=False)


def write_diff(path: Path, before: bytes, after: bytes) -> None:
    """Write the difference of two images as `rbd export-diff` does (doc/dev/rbd-diff.rst)."""
    step = 1 << 20
    with path.open("wb") as file:
        file.write(b"rbd diff v1\n")
        file.write(b"s" + len(after).to_bytes(8, "little"))
        for at in range(0, len(after), step):
            part = after[at : at + step]
            if part != before[at : at + step]:
                file.write(b"w" + at.to_bytes(8, "little") + len(part).to_bytes(8, "little") + part)
        file.write(b"e")


def exported(ceph: CephCluster, image: str) -> bytes:
    """Return the content of an image."""
    with tempfile.TemporaryDirectory() as directory:
        copy = Path(directory) / "image"
        ceph.rbd("export", "--no-progress", image, str(copy))
        return copy.read_bytes()


def content_of(number: int) -> bytes:
    return hashlib.sha256(str(number).encode()).digest() * 512


def make(kind: str, path: Path, directory: Path) -> None:
    """Make a file system with files, and damage it."""
    with path.open("wb") as file:
        file.truncate(SIZE if kind == "ext4" else 300 << 20)
    options = ["-q", "-F"] if kind == "ext4" else ["-q"]
    subprocess.run([f"mkfs.{kind}", *options, path], check=True)
    point = directory / "made"
    point.mkdir()
    subprocess.run(["mount", "-o", "loop", path, point], check=True)
    try:
        for number in range(FILES):
            (point / f"file-{number}").write_bytes(content_of(number))
    finally:
        subprocess.run(["umount", point], check=True)
    if kind == "ext4":
        for request in (f"clri {DAMAGED}", "set_super_value state 2"):
            subprocess.run(["debugfs", "-w", "-R", request, path], check=True, capture_output=True)
    else:
        script = ["-x", "-c", "agf 0", "-c", "write -d freeblks 1"]
        subprocess.run(["xfs_db", *script, path], check=True, capture_output=True)


@pytest.fixture
def shell(ceph: CephCluster, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Shell]:
    """Make an image with a damaged file system; its type is the parameter."""
    kind: str = request.param
    file = tmp_path / "made.image"
    make(kind, file, tmp_path)
    image = f"k8s/damaged-{kind}-{os.getpid()}"
    ceph.rbd("import", "--no-progress", "--image-feature", "layering", str(file), image)
    made = Shell(ceph, tmp_path, image)
    yield made
    made.end()


def sums(shell: Shell, image: str, directory: Path, options: str) -> dict[str, bytes]:
    """Return the content of the files of an image."""
    with tempfile.TemporaryDirectory(dir=directory) as place:
        copy, point = Path(place) / "copy", Path(place) / "point"
        copy.write_bytes(exported(shell._ceph, image))
        point.mkdir()
        subprocess.run(["mount", "-o", f"loop,{options}", copy, point], check=True)
        try:
            return {file.name: file.read_bytes() for file in point.iterdir() if file.is_file()}
        finally:
            subprocess.run(["umount", point], check=True)


@pytest.mark.parametrize("shell", ["ext4"], indirect=True)
def test_repair_of_ext4_changes_the_image_in_its_last_step_alone(
    ceph: CephCluster, shell: Shell, tmp_path: Path
) -> None:
    damaged = exported(ceph, shell.image)
    shell.type("Nothing uses the image")
    shell.type("Make a clone")
    assert shell.type("Repair the clone: ext4") == [4, 1, 0]
    shell.type("Compare the files")
    before, repaired = ((tmp_path / f"{name}.names").read_text().split() for name in STATES)
    assert set(before) - set(repaired) == {f"./{DAMAGED}"}
    before, repaired = ((tmp_path / f"{name}.sums").read_text().splitlines() for name in STATES)
    assert before == repaired
    assert len(repaired) == FILES - 1
    assert exported(ceph, shell.image) == damaged, "until now, the image was only read"
    assert shell.type("Repair the image") == [0, 0, 1, 0, 0]
    files = sums(shell, shell.image, tmp_path, "ro")
    expected = {f"file-{number}": content_of(number) for number in range(FILES)}
    del expected[DAMAGED]
    assert files == expected, "each file that was not damaged has its content"
    shell.type("Repair the image", 1)
    assert exported(ceph, shell.image) == damaged, "the snapshot undoes the repair"
    shell.type("Repair the image", 2)
    assert ceph.rbd("snap", "ls", shell.image).strip() == ""


@pytest.mark.parametrize("shell", ["xfs"], indirect=True)
def test_repair_of_a_clone_with_xfs_leaves_the_image(
    ceph: CephCluster, shell: Shell, tmp_path: Path
) -> None:
    damaged = exported(ceph, shell.image)
    shell.type("Nothing uses the image")
    shell.type("Make a clone")
    _, _, found, repaired = shell.type("Repair the clone: XFS")
    assert (found, repaired) == (1, 0)
    shell.line("rbd unmap $DEVICE")
    assert exported(ceph, shell.image) == damaged
    files = sums(shell, f"{shell.image}-repair", tmp_path, "ro,nouuid")
    assert files == {f"file-{number}": content_of(number) for number in range(FILES)}
