"""Run a program that is expected to succeed. Standard library only: the installer uses it."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

from tests.lab.errors import LabError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_TIMEOUT_S = 900.0


def output(
    *argv: str | Path,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    timeout_s: float = _TIMEOUT_S,
) -> str:
    """Run a program and return its stdout.

    Args:
        argv: program and arguments.
        cwd: its working directory.
        env: added to this process's environment.
        timeout_s: then the program is killed.

    Raises:
        LabError: it failed or took too long; with the end of what it printed.
    """
    command = [str(word) for word in argv]
    try:
        done = subprocess.run(
            command,
            cwd=cwd,
            env={**os.environ, **(env or {})},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise LabError(f"{' '.join(command)}: killed after {timeout_s:.0f} s") from None
    if done.returncode != 0:
        # debootstrap and dpkg report on stdout.
        said = "\n".join((*done.stdout.splitlines()[-12:], *done.stderr.splitlines()[-12:]))
        raise LabError(f"{' '.join(command)}: exit {done.returncode}: {said.strip()}")
    return done.stdout
