"""rbdagent explain."""

from __future__ import annotations

import click

from rbdagent.cli.options import DEBUG, OUTPUT
from rbdagent.cli.output import data_text, say


@click.command("explain")
@click.argument("code", required=False)
@OUTPUT
@DEBUG
def command(*, code: str | None, output: str, debug: bool) -> int:
    """Print cause, evidence, risk and remedy of a finding; without CODE, list all findings."""
    del debug
    from rbdagent.catalog import CATALOG, entry, explanation
    from rbdagent.report import machine

    if code is None and output != "table":
        say(data_text(machine.explanations(tuple(CATALOG.values())), output))
    elif code is None:
        for known in CATALOG.values():
            say(f"{known.code}   {known.severity:<8}   {known.name:<28}   {known.summary}\n")
    elif output == "table":
        say(explanation(code) + "\n")
    else:
        say(data_text(machine.explanation(entry(code)), output))
    return 0
