"""The agent starts the prepared process when a command finds none (`rbdagent/prepared`)."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Final

from rbdagent.prepared import protocol

if TYPE_CHECKING:
    from pathlib import Path

    from rbdagent.log import Log

_ONLY_ROOT: Final = 0o700
_BACKLOG: Final = 8


def offer_answers(state_dir: Path, idle_s: float, log: Log) -> None:
    """Start the prepared process at the first question; a thread of this process waits for it.

    Args:
        state_dir: the directory of the agent's state, below which the sockets are.
        idle_s: the seconds without a question after which the prepared process ends.
        log: states why no answers are offered: the commands then run as without an agent.
    """
    directory = state_dir / protocol.DIRECTORY
    try:
        directory.mkdir(mode=_ONLY_ROOT, exist_ok=True)
        directory.chmod(_ONLY_ROOT)
        wake = _listening(directory / protocol.WAKE)
    except OSError as error:
        log.info("commands start their own process", path=str(directory), error=str(error))
        return
    threading.Thread(target=_wait, args=(wake, directory, idle_s, log), daemon=True).start()


def _listening(path: Path) -> socket.socket:
    path.unlink(missing_ok=True)
    wake = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    wake.bind(str(path))
    wake.listen(_BACKLOG)
    return wake


def _wait(wake: socket.socket, directory: Path, idle_s: float, log: Log) -> None:
    """Start the process at each connection, and wait until it has ended."""
    while True:
        wake.settimeout(None)
        wake.accept()[0].close()
        code = _process(directory, idle_s)
        log.debug("the prepared process ended", code=code)
        # These commands came while it started.
        wake.settimeout(0)
        with contextlib.suppress(BlockingIOError):
            while True:
                wake.accept()[0].close()


def _process(directory: Path, idle_s: float) -> int:
    """Run the process; it ends with this one, which alone has the other end of its pipe."""
    lifeline, kept = os.pipe()
    command = [sys.executable, "-m", "rbdagent.prepared.server", str(directory), f"{idle_s:g}"]
    try:
        return subprocess.run(
            [*command, str(lifeline)],
            pass_fds=(lifeline,),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            check=False,
        ).returncode
    finally:
        os.close(lifeline)
        os.close(kept)
