"""The answers in docs/stories: what rbdagent says today of what was recorded.

``./dev docs`` writes them anew, so that whoever changes an answer sees the change in the story and
has it reviewed. Everything between them is written by hand.
"""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING, Final

from tests.contract.cli_runner import ROOT, process

if TYPE_CHECKING:
    from pathlib import Path

STORIES: Final = ROOT / "docs" / "stories"

# The snapshot is told to whoever reads the page's source; the command is what the person typed.
_ANSWER: Final = re.compile(
    r"^<!-- answered from (?P<snapshot>\S+) -->\n"
    r"```console\n\$ rbdagent (?P<typed>[^\n]+)\n.*?^```$",
    re.DOTALL | re.MULTILINE,
)


def told() -> list[Path]:
    """Give every story."""
    return [path for path in sorted(STORIES.glob("*.md")) if path.stem != "README"]


def snapshots(story: Path) -> list[str]:
    """Give the snapshots that a story's answers are of."""
    return [each["snapshot"] for each in _ANSWER.finditer(story.read_text())]


def as_answered_today(story: Path) -> str:
    """Give a story with the answers that rbdagent gives now."""
    return _ANSWER.sub(_answer, story.read_text())


def _answer(found: re.Match[str]) -> str:
    snapshot, typed = found["snapshot"], found["typed"]
    done = process(*shlex.split(typed), "--from", snapshot)
    head = f"<!-- answered from {snapshot} -->\n```console\n$ rbdagent {typed}\n"
    return f"{head}{done.stdout}{done.stderr}```"


def write() -> None:
    """Write every story with today's answers."""
    for path in told():
        path.write_text(as_answered_today(path))
