"""A program in a root sees the intended files and leaves no mount."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.lab.initramfs import BUSYBOX
from tests.lab.processes import wait_until
from tests.lab.roots import Root

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.lab.processes import Processes


@pytest.fixture
def root(request: pytest.FixtureRequest) -> Iterator[Root]:
    """Make a root that contains only busybox, outside the directory of temporary files."""
    path = Path("/var/tmp") / f"rbdagent-{request.node.name}"  # noqa: S108  (removed below)
    for directory in ("usr/bin", "bin", "proc", "sys", "dev", "tmp"):
        (path / directory).mkdir(parents=True)
    for program in ("bin/busybox", "bin/sh", "bin/cat", "bin/sleep", "usr/bin/env"):
        shutil.copy(BUSYBOX, path / program)
    yield Root(path)
    shutil.rmtree(path)


def test_shared_and_mounted_files_are_seen(root: Root, tmp_path: Path) -> None:
    (tmp_path / "here").write_text("by its own path ")
    other = Path("/var/tmp") / f"{root.path.name}-other"  # noqa: S108  (as the root)
    other.write_text("elsewhere")
    try:
        command = root.command(
            ["cat", tmp_path / "here", "/etc/named/file"], mounted={Path("/etc/named/file"): other}
        )
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    finally:
        other.unlink()
    assert done.stdout == "by its own path elsewhere"


def test_the_root_of_a_program_is_a_mount(root: Root) -> None:
    """A program in a root can enter another root: unshare needs a mount to set its propagation."""
    done = subprocess.run(
        root.command(["cat", "/proc/self/mountinfo"]), capture_output=True, text=True, check=True
    )
    assert any(line.split()[4] == "/" for line in done.stdout.splitlines())


def test_a_killed_program_leaves_no_mount(root: Root, processes: Processes) -> None:
    started = processes.start("in-a-root", root.command(["sleep", "1000"]))
    # Its pid is that of the programs before it, too: chroot and env.
    wait_until(
        lambda: (
            Path(f"/proc/{started.pid}/root").samefile(root.path)
            and Path(f"/proc/{started.pid}/cmdline").read_bytes() == b"sleep\x001000\x00"
        ),
        timeout_s=20,
        what="the program to run in its root",
        process=started,
    )
    processes.kill("in-a-root")
    assert str(root.path) not in Path("/proc/self/mountinfo").read_text()


@pytest.mark.parametrize("own", [False, True], ids=["another root", "the machine's own root"])
def test_a_contained_program_writes_to_one_directory(
    root: Root, tmp_path: Path, *, own: bool
) -> None:
    """The nodes of a machine that has their Debian run on its own root."""
    state = tmp_path / "state"
    state.mkdir()
    script = (
        f"for place in {tmp_path} {state} /bin /proc/sys; do "
        'cat </dev/null 2>/dev/null >"$place/new" && echo "$place"; done; :'
    )
    command = (Root(Path("/")) if own else root).contained(
        ["sh", "-c", script], mounted={tmp_path: tmp_path}, writable=state
    )
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(state)]
    assert [path.name for path in tmp_path.iterdir()] == ["state"]
