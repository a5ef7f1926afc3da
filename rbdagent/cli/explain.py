"""rbdagent explain."""

from __future__ import annotations

import sys

import click

from rbdagent.cli.candidates import codes
from rbdagent.cli.options import DEBUG, OUTPUT
from rbdagent.cli.output import data_text, layout_of, print_text, program


@click.command("explain")
@click.argument("code", required=False, shell_complete=codes)
@OUTPUT
@DEBUG
def command(*, code: str | None, output: str, debug: bool) -> int:
    """Explain the finding CODE; without CODE, list all findings.

    The explanation has the cause, the evidence, the risk, the remedy and the automatic recovery.
    """
    del debug
    from rbdagent.catalog import CATALOG, entry

    if output != "table":
        from rbdagent.report.json import explain

        if code is None:
            print_text(data_text(explain.explanation_list(CATALOG.values()), output))
        else:
            print_text(data_text(explain.explanation(entry(code)), output))
    else:
        print_text(_text(code))
    return 0


def _text(code: str | None) -> str:
    """Return the text for one code, or the list of all codes.

    An explanation is wrapped: at the width of the terminal, or at 80 columns in a pipe, as the
    kubectl plugin prints it, which answers without a cluster. A pipe gets one line for each code of
    the list: ``grep`` finds it.
    """
    from rbdagent.catalog import CATALOG, explanation
    from rbdagent.report.text.explain import explanation_lines, list_line, list_lines

    layout = layout_of()
    if code is not None:
        return f"{explanation_lines(explanation(code, program()), layout)}\n"
    is_terminal = sys.stdout.isatty()
    lines = (
        list_lines(known, layout) if is_terminal else list_line(known) for known in CATALOG.values()
    )
    return "".join(f"{line}\n" for line in lines)
