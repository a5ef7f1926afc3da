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

    if output != "table":
        from rbdagent.report.json import explain

        if code is None:
            say(data_text(explain.explanation_list(CATALOG.values()), output))
        else:
            say(data_text(explain.explanation(entry(code)), output))
    elif code is None:
        for known in CATALOG.values():
            say(f"{known.code}   {known.severity:<8}   {known.name:<28}   {known.summary}\n")
    else:
        say(explanation(code) + "\n")
    return 0
