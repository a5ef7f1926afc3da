"""The command line, run in this process, in a separate process, and on a terminal."""

from __future__ import annotations

import contextlib
import io
import json
import os
import pty
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from msgspec.structs import replace

from rbdagent.cli import run
from rbdagent.model import NotObserved, Snapshot, Target, TargetKind
from tests.support.recordings import recorded_ceph, recorded_snapshot

ROOT: Final = Path(__file__).parents[2]
FORMS: Final = ("table", "wide", "name", "json", "yaml")
OF_TARGET: Final = (
    *(("who-holds", form) for form in FORMS),
    *(("diagnose", form) for form in (*FORMS, "html")),
    *(("unmap", form) for form in ("table", "json", "yaml")),
)
"""The verbs that take one target, with each of their output formats."""
ORPHAN: Final = ROOT / "examples" / "true-orphan.json"
VOLUME: Final = str(json.loads(ORPHAN.read_text())["kubernetes"]["persistentVolumes"][0]["name"])
"""The PV of that snapshot."""


@dataclass(frozen=True)
class Done:
    """The exit code of a command, and its output."""

    code: int
    stdout: str
    stderr: str

    @property
    def data(self) -> dict[str, Any]:
        """Return the parsed output of ``-o json``."""
        found: dict[str, Any] = json.loads(self.stdout)
        return found


def ask(*args: str) -> Done:
    """Run rbdagent in this process."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run(args)
    return Done(code, out.getvalue(), err.getvalue())


def process(*args: str, columns: int | None = None) -> Done:
    """Run rbdagent in a separate process, with pipes, and a width for its text."""
    environment = dict(os.environ) | ({} if columns is None else {"COLUMNS": str(columns)})
    done = subprocess.run(
        _command(args), capture_output=True, text=True, check=False, cwd=ROOT, env=environment
    )
    return Done(done.returncode, done.stdout, done.stderr)


def on_terminal(*args: str) -> str:
    """Return the output of rbdagent on a terminal."""
    leader, follower = pty.openpty()
    with subprocess.Popen(_command(args), stdout=follower, cwd=ROOT):
        os.close(follower)
        return read_terminal(leader)


def read_terminal(leader: int) -> str:
    """Return the output on a terminal until no other process has it open, and close it."""
    with open(leader, "rb") as terminal:
        shown = b"".join(iter(lambda: _read(terminal.fileno()), b""))
    return shown.decode().replace("\r\n", "\n")


def _read(terminal: int) -> bytes:
    """Read the next bytes; the kernel reports the end of a terminal as an error."""
    try:
        return os.read(terminal, 65536)
    except OSError:
        return b""


def read_and_leave(*args: str, lines: int) -> str:
    """Read some lines of rbdagent's output, close the pipe, and return what it prints to stderr."""
    reader, writer = os.pipe()
    with open(reader) as pipe:
        if not lines:
            pipe.close()
        with subprocess.Popen(
            _command(args), stdout=writer, stderr=subprocess.PIPE, text=True, cwd=ROOT
        ) as running:
            os.close(writer)
            for _ in range(lines):
                pipe.readline()
            pipe.close()
            _, stderr = running.communicate()
    return stderr


def _command(args: tuple[str, ...]) -> list[str]:
    return [sys.executable, "-m", "rbdagent", *args]


def modules_of(*args: str) -> set[str]:
    """Return the modules that a command imports."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", *_command(args)[1:]],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    )
    return {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}


def node_snapshot(recording: str, claim: str, *, root: Path) -> Snapshot:
    """Return what `rbdagent snapshot` without TARGET writes on the first node of a recording."""
    found = recorded_snapshot(recording, claim, node_name="n1", root=root)
    assert found.node is not None
    assert not isinstance(found.node.mappings, NotObserved)
    specs = [mapping.spec for mapping in found.node.mappings]
    images = frozenset(spec.name for spec in specs if not isinstance(spec, NotObserved))
    return replace(
        found,
        target=Target(argument="", kind=TargetKind.NONE),
        ceph=recorded_ceph(recording, images),
    )
