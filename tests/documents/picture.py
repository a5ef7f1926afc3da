"""docs/who-holds.svg: a command in a terminal, with the current answer for a saved snapshot."""

from __future__ import annotations

import shlex
from typing import Final

from tests.lab.terminal import terminal
from tests.support.cli_runner import ROOT, process

PICTURE: Final = ROOT / "docs" / "who-holds.svg"
_COMMAND: Final = "rbdagent who-holds pvc/default/data --from examples/multi-attach.json"
_COLUMNS: Final = 80


def drawn_today() -> str:
    """Return the picture with the current answer of rbdagent."""
    done = process(*shlex.split(_COMMAND)[1:], "--color", "always", columns=_COLUMNS)
    return terminal(_COMMAND, done.stdout)


def write() -> None:
    """Write the picture."""
    PICTURE.write_text(drawn_today())
