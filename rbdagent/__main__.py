"""The program."""

from __future__ import annotations

import gc
import os
import sys


def main() -> None:
    """Run the command line and end, whatever still hangs in a thread."""
    # Imports make no garbage, and a process that lives for one answer needs no collector.
    gc.disable()
    from rbdagent.cli import run

    code = run(sys.argv[1:])
    sys.stdout.flush()
    sys.stderr.flush()
    # A librados call that hangs would keep the interpreter from ending, and its destructors too.
    os._exit(code)


if __name__ == "__main__":
    main()
