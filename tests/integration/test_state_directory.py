"""An agent whose state directory is full or read-only: it observes, and unmaps nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Final

import pytest

from rbdagent.model import UnmapRecord
from rbdagent.unmap.state_store import StateDir
from tests.lab.install import CHECKOUT
from tests.support.unmap_plans import identity, moment

if TYPE_CHECKING:
    from pathlib import Path

UNFINISHED: Final = UnmapRecord(
    boot_id="b001",
    begun=moment(30),
    by="agent",
    identity=identity(),
    persistent_volume=None,
    why="",
)
"""An unmap that began, without an outcome: the agent was killed."""
_FULL: Final = "mount -t tmpfs -o size=2m state $0 && cp -a $1/. $0/; cat /dev/zero >$0/fill"
_FEW_FILES: Final = "mount -t tmpfs -o nr_inodes=2 state $0 && cp $1/acts.json $0/"
_READ_ONLY: Final = "mount -t tmpfs state $0 && cp -a $1/. $0/ && mount -o remount,ro $0"
_EMPTY_READ_ONLY: Final = "mount -t tmpfs -o ro state $0"
_STATES: Final = {
    "full": (_FULL, "No space left on device"),
    "without inodes": (_FEW_FILES, "No space left on device"),
    "read-only": (_READ_ONLY, "Read-only file system"),
    "empty and read-only": (_EMPTY_READ_ONLY, "Read-only file system"),
}
_ASK: Final = """
import sys
from pathlib import Path
from rbdagent.unmap.state_store import StateDir
print(StateDir(Path(sys.argv[1])).unwritable())
"""


class Scene:
    """A state directory of an agent that was killed during an unmap, and a mount over it."""

    def __init__(self, path: Path) -> None:
        self.state, self._killed = path / "state", path / "killed"
        self.state.mkdir()
        StateDir(self._killed).save_act(UNFINISHED)

    def run(self, prepare: str, *command: str) -> subprocess.CompletedProcess[str]:
        """Run a program in a mount namespace in which the directory is on its own tmpfs."""
        script = f'{prepare}; shift; exec "$@"'
        given = ("sh", "-c", script, str(self.state), str(self._killed), sys.executable, *command)
        return subprocess.run(
            ["unshare", "--mount", "--propagation=private", *given],
            capture_output=True,
            text=True,
            check=False,
            cwd=CHECKOUT,
        )


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


@pytest.mark.parametrize(("prepare", "error"), _STATES.values(), ids=_STATES.keys())
def test_agent_observes_without_a_writable_state_directory(
    scene: Scene, prepare: str, error: str
) -> None:
    """Before, the start of the agent was "a defect of rbdagent", and systemd repeated it."""
    flags = ("--once", "--no-ceph", "--no-kube", f"--state-dir={scene.state}")
    done = scene.run(prepare, "-m", "rbdagent", "agent", *flags)
    lines = [json.loads(line) for line in done.stderr.splitlines() if line.startswith("{")]
    assert done.returncode == 0, done.stderr
    assert [line["event"] for line in lines].count("changed") == 1
    assert any(error in line["message"] for line in lines if line["event"] == "state"), lines
    assert "defect" not in done.stderr


@pytest.mark.parametrize(("prepare", "error"), _STATES.values(), ids=_STATES.keys())
def test_reason_against_an_unmap_is_the_state_of_the_directory(
    scene: Scene, prepare: str, error: str
) -> None:
    done = scene.run(prepare, "-c", _ASK, str(scene.state))
    assert done.stdout == f"{scene.state}: {error}\n", done.stderr


def test_nothing_speaks_against_a_directory_that_can_be_written(scene: Scene) -> None:
    assert StateDir(scene.state).unwritable() == ""
    assert StateDir(scene.state / "not" / "yet").unwritable() == ""
