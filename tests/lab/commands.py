"""Run programs. Standard library only: the installer uses it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from typing import TYPE_CHECKING

from tests.lab.errors import LabError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path
    from typing import IO

_TIMEOUT_S = 900.0


@contextlib.contextmanager
def interruptible(
    argv: Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str],
    stdin: int | None = subprocess.DEVNULL,
    output: IO[bytes] | None = None,
) -> Iterator[subprocess.Popen[bytes]]:
    """Start a program; if the block ends early, interrupt it and wait until it has ended.

    pytest stops its daemons and VMs at an interrupt; a kill, as subprocess.run sends it, leaves
    them.

    Args:
        argv: program and arguments.
        cwd: its working directory.
        env: its whole environment.
        stdin: by default empty; None is this process's own.
        output: takes its output; by default it goes where the output of this process goes.
    """
    child = subprocess.Popen(argv, stdin=stdin, stdout=output, stderr=output, cwd=cwd, env=env)
    try:
        yield child
    except BaseException:
        # After an interrupt from a terminal the program has the signal already.
        with contextlib.suppress(ProcessLookupError):
            child.send_signal(signal.SIGINT)
        child.wait()
        raise


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
        timeout_s: after it, the program is killed.

    Raises:
        LabError: it failed or took too long; with the end of its output.
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
        tail = "\n".join((*done.stdout.splitlines()[-12:], *done.stderr.splitlines()[-12:]))
        raise LabError(f"{' '.join(command)}: exit {done.returncode}: {tail.strip()}")
    return done.stdout
