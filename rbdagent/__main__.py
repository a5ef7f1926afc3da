"""The entry point of the program."""

from __future__ import annotations

import contextlib
import gc
import os
import sys
from typing import TYPE_CHECKING, Final

from rbdagent.prepared.client import answered

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rbdagent.collect.ceph_process import CephProcess

_WITH_CEPH: Final = frozenset({"who-holds", "diagnose"})
_WITHOUT_CEPH: Final = ("-h", "--help", "--from", "--no-ceph")


def main() -> None:
    """Run the command line and exit: in the agent's prepared process if there is one, else here."""
    code = answered(sys.argv[1:])
    if code is not None:
        os._exit(code)
    run_here(sys.argv[1:])


def run_here(arguments: Sequence[str]) -> None:
    """Run the command line in this process and exit, even if a thread still hangs."""
    # Imports create no garbage, and a process that exits after one output needs no collector.
    gc.disable()
    if sys.stdout is None:
        # The caller closed stdout: only the exit code reaches it.
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - open until the program exits
    loading = _loading(arguments)
    from rbdagent.cli import run

    code = run(arguments, loading)
    for process in loading:
        process.finish()
    for stream in (sys.stdout, sys.stderr):
        # None if the caller closed it; a broken pipe if the reader has exited.
        with contextlib.suppress(OSError, AttributeError):
            stream.flush()
    # A librados call that hangs, and the destructors of librados, would block a normal exit.
    os._exit(code)


def _loading(arguments: Sequence[str]) -> list[CephProcess]:
    """Start the process for Ceph if the verb most likely needs it.

    It loads librados on another processor, while this process parses its command line. Not with
    --debug: the process would not write the tracebacks of its failures.
    """
    if not _WITH_CEPH.intersection(arguments[:1]) or any(
        argument.startswith(_WITHOUT_CEPH) for argument in arguments
    ):
        return []
    from rbdagent.collect.ceph_process import start_loading
    from rbdagent.collect.failure import is_debug

    return [] if is_debug(arguments) else [start_loading()]


if __name__ == "__main__":
    main()
