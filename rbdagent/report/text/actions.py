"""The block ``Do this``: the remedy of a finding and its commands, numbered."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rbdagent.commands import PROGRAM, sentence_of
from rbdagent.model import Severity
from rbdagent.report.text.findings import command_lines
from rbdagent.report.text.layout import BOLD, Layout, painted, sentences, wrapped

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rbdagent.model import Command, Finding


def remedy_of(
    finding: Finding, commands: Sequence[Command], layout: Layout, *, is_headline: bool = True
) -> str:
    """Return the first sentence of the remedy; "" if a command does it.

    The remedy of a warning or a note is for the case that it becomes a problem: no advice for now,
    unless no component ends the state without help.

    Args:
        finding: the finding that the answer is about.
        commands: the commands to run now.
        layout: the layout.
        is_headline: whether the first lines are about the finding: else a note needs no advice.
    """
    is_done_by_command = any(
        given.changes and given.argv[: len(_PREPARES)] != _PREPARES for given in commands
    )
    is_left_alone = is_headline and finding.recovery is not None and not finding.recovery.actor
    is_note = finding.severity in {Severity.INFO, Severity.WARNING}
    if is_done_by_command or (is_note and not is_left_alone):
        return ""
    return sentences(sentence_of(finding.remedy, layout.program))[0]


_PREPARES: Final = ("rbd", "snap", "create")
"""A copy before the remedy, and not the remedy."""


def do_this(remedy: str, commands: Sequence[Command], layout: Layout) -> str:
    """Return the numbered commands: what each does, and where it runs. They are never wrapped."""
    lines = [painted("Do this", BOLD, layout)]
    if remedy:
        lines.append(wrapped(remedy, layout, first="  ", rest="  "))
    for number, given in enumerate(commands, start=1):
        (line,) = command_lines((given,), layout)
        lines.append(f"  {number}. {_purpose(given, number):<7} {line}")
    return "\n".join(lines)


def _purpose(given: Command, number: int) -> str:
    """Return whether a command changes something, or shows its object or the result."""
    if given.changes:
        return "change"
    is_repeated_question = given.argv[:1] == PROGRAM and given.argv[1:2] == ("who-holds",)
    return "check" if is_repeated_question and number > 1 else "see"
