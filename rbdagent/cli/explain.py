"""rbdagent explain."""

from __future__ import annotations

import click

from rbdagent.cli.candidates import codes
from rbdagent.cli.options import DEBUG, OUTPUT
from rbdagent.cli.output import data_text, print_text


@click.command("explain")
@click.argument("code", required=False, shell_complete=codes)
@OUTPUT
@DEBUG
def command(*, code: str | None, output: str, debug: bool) -> int:
    """Explain the finding CODE; without CODE, list all findings.

    The explanation has the cause, the evidence, the risk, the remedy and the automatic recovery.
    """
    del debug
    from rbdagent.catalog import CATALOG, entry, explanation

    if output != "table":
        from rbdagent.report.json import explain

        if code is None:
            print_text(data_text(explain.explanation_list(CATALOG.values()), output))
        else:
            print_text(data_text(explain.explanation(entry(code)), output))
    elif code is None:
        for known in CATALOG.values():
            print_text(f"{known.code}   {known.severity:<8}   {known.name:<28}   {known.summary}\n")
    else:
        print_text(explanation(code) + "\n")
    return 0
