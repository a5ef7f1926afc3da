"""rbdagent explain."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from rbdagent.binding import TOPIC
from rbdagent.cli.candidates import codes
from rbdagent.cli.options import DEBUG, OUTPUT
from rbdagent.cli.output import data_text, layout_of, print_text, program

if TYPE_CHECKING:
    from rbdagent.report.json.binding import StateMachine
    from rbdagent.report.json.explain import Explanation, ExplanationList


@click.command("explain")
@click.argument("code", required=False, shell_complete=codes)
@OUTPUT
@DEBUG
def command(*, code: str | None, output: str, debug: bool) -> int:
    """Explain the finding CODE; without CODE, list all findings.

    The explanation has the cause, the evidence, the risk, the remedy, the automatic recovery, and
    the branch of the PV controller that the finding rests on.

    `explain binding` prints all of these branches: how a claim and a PV are bound, released and
    reclaimed, and which finding reports which branch.
    """
    del debug
    print_text(_text(code) if output == "table" else data_text(_data(code), output))
    return 0


def _is_topic(code: str | None) -> bool:
    return code is not None and code.strip().lower() == TOPIC


def _data(code: str | None) -> Explanation | ExplanationList | StateMachine:
    """Return the output for one code, for all, or for the topic."""
    if _is_topic(code):
        from rbdagent.report.json.binding import binding_machine

        return binding_machine()
    from rbdagent.catalog import CATALOG, entry
    from rbdagent.cli.pages import page_of
    from rbdagent.report.json.explain import explanation, explanation_list

    if code is None:
        return explanation_list((known, page_of(known.code)) for known in CATALOG.values())
    known = entry(code)
    return explanation(known, page_of(known.code))


def _text(code: str | None) -> str:
    """Return the text for one code, the list of all codes, or the text for the topic.

    An explanation is wrapped: at the width of the terminal, or at 80 columns in a pipe, as the
    kubectl plugin prints it, which answers without a cluster. A pipe gets one line for each code of
    the list: ``grep`` finds it.
    """
    from rbdagent.catalog import CATALOG, entry, explanation
    from rbdagent.cli.pages import page_of
    from rbdagent.report.text.explain import explanation_lines, list_line, list_lines

    layout = layout_of()
    if _is_topic(code):
        from rbdagent.report.text.binding import binding_text

        return binding_text(layout)
    if code is not None:
        known = entry(code)
        text = explanation(known, page_of(known.code), program())
        return f"{explanation_lines(text, layout)}\n"
    is_terminal = sys.stdout.isatty()
    lines = (
        list_lines(known, layout) if is_terminal else list_line(known) for known in CATALOG.values()
    )
    return "".join(f"{line}\n" for line in lines)
