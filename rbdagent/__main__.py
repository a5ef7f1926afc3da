"""The program."""

from __future__ import annotations

import contextlib
import gc
import os
import sys


def main() -> None:
    """Run the command line and end, whatever still hangs in a thread."""
    # Imports make no garbage, and a process that lives for one answer needs no collector.
    gc.disable()
    from rbdagent.cli import run

    if sys.stdout is None:
        # The caller closed it: there is nobody to answer, and the exit code is all.
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - as long as the program
    code = run(sys.argv[1:])
    for stream in (sys.stdout, sys.stderr):
        # None where the caller closed it; broken where the reader has gone.
        with contextlib.suppress(OSError, AttributeError):
            stream.flush()
    # A librados call that hangs would keep the interpreter from ending, and its destructors too.
    os._exit(code)


if __name__ == "__main__":
    main()
