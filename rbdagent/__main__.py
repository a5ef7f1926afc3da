"""The program."""

from __future__ import annotations

import os
import sys
import threading


def main() -> None:
    """Run the command line and end, whatever still hangs in a thread."""
    from rbdagent.cli import run

    code = run(sys.argv[1:])
    sys.stdout.flush()
    sys.stderr.flush()
    if threading.active_count() > 1:
        # A librados call that hangs would keep the interpreter from ending (and its destructors).
        os._exit(code)
    sys.exit(code)


if __name__ == "__main__":
    main()
