"""The answers that documents quote: what rbdagent says today of what was recorded.

``./dev docs`` writes them anew, so that whoever changes an answer sees the change in the document
and has it reviewed. Everything between them is written by hand.
"""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING, Final

from tests.contract.cli_runner import ROOT, process

if TYPE_CHECKING:
    from pathlib import Path

STORIES: Final = ROOT / "docs" / "stories"
_README: Final = ROOT / "README.md"

# The snapshot is told to whoever reads the page's source; the command is what the person typed.
_ANSWER: Final = re.compile(
    r"^<!-- answered from (?P<snapshot>\S+) -->\n"
    r"(?P<begin>```(?:console)?\n[\w-]*\$ rbdagent (?P<typed>[^\n]+)\n).*?^```$",
    re.DOTALL | re.MULTILINE,
)


def stories() -> list[Path]:
    """Give every story."""
    return [path for path in sorted(STORIES.glob("*.md")) if path.stem != "README"]


def quoting() -> list[Path]:
    """Give every document that quotes answers."""
    return [_README, *stories()]


def snapshots(document: Path) -> list[str]:
    """Give the snapshots that a document's answers are of."""
    return [each["snapshot"] for each in _ANSWER.finditer(document.read_text())]


def as_answered_today(document: Path) -> str:
    """Give a document with the answers that rbdagent gives now."""
    return _ANSWER.sub(_answer, document.read_text())


def _answer(found: re.Match[str]) -> str:
    done = process(*shlex.split(found["typed"]), "--from", found["snapshot"])
    comment = f"<!-- answered from {found['snapshot']} -->\n"
    return f"{comment}{found['begin']}{done.stdout}{done.stderr}```"


def write() -> None:
    """Write every document with today's answers."""
    for path in quoting():
        path.write_text(as_answered_today(path))
