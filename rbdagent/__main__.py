"""The entry point of the program."""

from __future__ import annotations

import contextlib
import gc
import os
import sys


def main() -> None:
    """Run the command line and exit, even if a thread still hangs."""
    # Imports create no garbage, and a process that exits after one output needs no collector.
    gc.disable()
    from rbdagent.cli import run

    if sys.stdout is None:
        # The caller closed stdout: only the exit code reaches it.
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - open until the program exits
    code = run(sys.argv[1:])
    for stream in (sys.stdout, sys.stderr):
        # None if the caller closed it; a broken pipe if the reader has exited.
        with contextlib.suppress(OSError, AttributeError):
            stream.flush()
    # A librados call that hangs, and the destructors of librados, would block a normal exit.
    os._exit(code)


if __name__ == "__main__":
    main()
