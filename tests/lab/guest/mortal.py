"""An agent that is killed repeatedly at random points, and started again at once.

The points are those of tests/unit/test_killed.py: before and after each step that removes
something, each file on disk, each rename of a file. Each life is a fork, so a start costs no
imports. Run as ``-m tests.lab.guest.mortal SEED agent FLAGS``; TERM ends it.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rbdagent.__main__ import main as program
from rbdagent.unmap import writer
from tests.lab.guest.warm import import_all

if TYPE_CHECKING:
    from collections.abc import Callable

_REST_S = 0.2


def main() -> None:
    """Run the agent, kill it, and start it again until TERM arrives."""
    import_all()
    chance = random.Random(sys.argv[1])
    sys.argv[1:2] = []
    living = 0

    def end(*_: object) -> None:
        os.kill(living, signal.SIGTERM)
        os.waitpid(living, 0)
        os._exit(0)

    while True:
        kind, most = chance.choice((("step", 12), ("file", 100)))
        doom = (kind, chance.randrange(most))
        living = os.fork()
        if living == 0:
            _live(*doom)
        signal.signal(signal.SIGTERM, end)
        _, status = os.waitpid(living, 0)
        _log(f"a life ended with {os.waitstatus_to_exitcode(status)}")
        time.sleep(_REST_S)


def _live(kind: str, at: int) -> None:
    """Run an agent that is killed at the point of that kind and number."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    passed = 0

    def instant(what: str) -> None:
        nonlocal passed
        if passed == at:
            _log(f"killed {what} ({kind} {at})")
            os.kill(os.getpid(), signal.SIGKILL)
        passed += 1

    def around(what: str, does: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*args: Any, **named: Any) -> Any:  # noqa: ANN401 - whatever it takes
            instant(f"before {what}")
            given = does(*args, **named)
            instant(f"after {what}")
            return given

        return wrapped

    if kind == "step":
        writer._do = around("a step", writer._do)
    else:
        os.fsync = around("a file is on disk", os.fsync)
        Path.replace = around("a file takes its name", Path.replace)  # type: ignore[method-assign]
    program()


def _log(what: str) -> None:
    print(f"mortal: {what} at {datetime.now(UTC).isoformat()}", flush=True)


if __name__ == "__main__":
    main()
