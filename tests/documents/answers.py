"""The answers that documents quote: the current output of rbdagent for saved snapshots.

``./dev docs`` writes them again, so that a change of the output is visible in the documents and
gets a review. The text between the answers is written by hand.
"""

from __future__ import annotations

import re
import shlex
import subprocess
from typing import TYPE_CHECKING, Final

from tests.support.cli_runner import ROOT, process

if TYPE_CHECKING:
    from pathlib import Path

STORIES: Final = ROOT / "docs" / "stories"
_BY_HAND: Final = tuple(
    ROOT / name for name in ("README.md", "docs/json.md", "docs/lint.md", "docs/unmap.md")
)
_COLUMNS: Final = 100
"""The width of the quoted answers."""

# The snapshot is named in a comment, which only the source of the page shows. The command is shown
# as a user types it.
_ANSWER: Final = re.compile(
    r"^<!-- answered from (?P<snapshot>\S+) -->\n"
    r"(?P<begin>```(?:console)?\n[\w-]*\$ rbdagent (?P<typed>[^\n]+)\n).*?^```$",
    re.DOTALL | re.MULTILINE,
)


def stories() -> list[Path]:
    """Return the path of every story."""
    return [path for path in sorted(STORIES.glob("*.md")) if path.stem != "README"]


def quoting() -> list[Path]:
    """Return the path of every document that quotes answers."""
    return [*_BY_HAND, *stories()]


def snapshots(document: Path) -> list[str]:
    """Return the snapshots from which the answers of a document come."""
    return [answer["snapshot"] for answer in _ANSWER.finditer(document.read_text())]


def as_answered_today(document: Path) -> str:
    """Return the text of a document with the current answers of rbdagent."""
    return _ANSWER.sub(_answer, document.read_text())


def _answer(found: re.Match[str]) -> str:
    typed, _, jq = found["typed"].partition(" | ")
    done = process(*shlex.split(typed), "--from", found["snapshot"], columns=_COLUMNS)
    output = _filtered(done.stdout, jq) if jq else done.stdout
    comment = f"<!-- answered from {found['snapshot']} -->\n"
    return f"{comment}{found['begin']}{output}{done.stderr}```"


def _filtered(output: str, jq: str) -> str:
    """Return what the jq command of a document prints for an output of rbdagent."""
    argv = shlex.split(jq)
    return subprocess.run(argv, input=output, capture_output=True, text=True, check=True).stdout


def write() -> None:
    """Write the current answers into every document."""
    for path in quoting():
        path.write_text(as_answered_today(path))
