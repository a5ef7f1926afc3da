"""docs/problems.md: how the answer about each problem begins, as rbdagent prints it today.

``./dev docs`` writes the beginnings again. The text around them is written by hand.
"""

from __future__ import annotations

import importlib
import re
import shlex
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from rbdagent.report.snapshot import dump_snapshot
from tests.support.claims import recorded_claim
from tests.support.cli_runner import ROOT, node_snapshot, process
from tests.support.recordings import recorded_snapshot

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rbdagent.model import Snapshot
    from tests.support.cli_runner import Done

DOCUMENT: Final = ROOT / "docs" / "problems.md"
_COLUMNS: Final = 100
"""The width of the quoted answers."""
_NODE: Final = "n1"
"""The node that takes the snapshot of a recording."""
_REMEDY: Final = "Do this\n"
_TYPED: Final = r"\$ rbdagent (?P<typed>[^\n]+)\n"
_ANSWER: Final = re.compile(
    rf"^<!-- begins the answer from (?P<state>[^\n]+) -->\n(?P<begin>```console\n{_TYPED}).*?^```$",
    re.DOTALL | re.MULTILINE,
)
_CLAIM: Final = re.compile(r"tests/fixtures/claims/(?P<name>[\w-]+)\.json")
_RECORDING: Final = re.compile(r"tests/fixtures/recordings/(?P<name>[\w-]+), claim (?P<claim>\w+)")
_ROW: Final = re.compile(
    r"tests/support/rule_rows/(?P<family>\w+)\.py, (?P<code>RBD\d+) (?P<row>[^\n]+)"
)


class Quoted(NamedTuple):
    """A command in the document, and the state that it is answered from."""

    state: str
    typed: str


def quoted(text: str) -> list[Quoted]:
    """Return the commands in a text of the document, in their order."""
    return [Quoted(found["state"], found["typed"]) for found in _ANSWER.finditer(text)]


def with_current_answers(text: str) -> str:
    """Return the text of the document with the current beginnings of the answers."""
    return _ANSWER.sub(_begun, text)


def answer(question: Quoted) -> Done:
    """Return what rbdagent prints about a state."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        file = snapshot_file(question, directory)
        return process(*shlex.split(question.typed), "--from", str(file), columns=_COLUMNS)


def snapshot_file(question: Quoted, directory: Path) -> Path:
    """Return the file of a state; one that is no saved snapshot is written to the directory."""
    seen = _recorded_or_built(question, directory)
    if seen is None:
        return ROOT / question.state
    file = directory / "snapshot.json"
    file.write_text(dump_snapshot(seen))
    return file


def _recorded_or_built(question: Quoted, directory: Path) -> Snapshot | None:
    state = question.state
    if found := _CLAIM.fullmatch(state):
        return recorded_claim(found["name"])
    if found := _ROW.fullmatch(state):
        family = importlib.import_module(f"tests.support.rule_rows.{found['family']}")
        built: Snapshot = family.REPORTED[found["code"]][found["row"]]
        return built
    if found := _RECORDING.fullmatch(state):
        root = directory / "node"
        if question.typed.startswith("drain-check "):
            return node_snapshot(found["name"], found["claim"], root=root)
        return recorded_snapshot(found["name"], found["claim"], node_name=_NODE, root=root)
    return None


def _begun(found: re.Match[str]) -> str:
    done = answer(Quoted(found["state"], found["typed"]))
    beginning = "\n\n".join(_beginning(done.stdout))
    return (
        f"<!-- begins the answer from {found['state']} -->\n"
        f"{found['begin']}{beginning}\n{done.stderr}```"
    )


def _beginning(output: str) -> Iterator[str]:
    """Yield the first paragraph, and the remedy; the next paragraph of an answer without one."""
    first, *others = output.rstrip("\n").split("\n\n")
    yield first
    yield next((text for text in others if text.startswith(_REMEDY)), others[0])


def write() -> None:
    """Write the current beginnings into the document."""
    DOCUMENT.write_text(with_current_answers(DOCUMENT.read_text()))
