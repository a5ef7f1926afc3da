"""rbdagent schema."""

from __future__ import annotations

import click

from rbdagent.cli.candidates import kinds
from rbdagent.cli.options import DEBUG
from rbdagent.cli.output import data_text, print_text


@click.command("schema")
@click.argument("kind", required=False, shell_complete=kinds)
@DEBUG
def command(*, kind: str | None, debug: bool) -> int:
    """Print the JSON Schema of KIND; without KIND, list the kinds.

    A KIND is a type of JSON output: its key `kind`.
    """
    del debug
    from rbdagent.report.schema import KINDS
    from rbdagent.report.schema import schema as schema_of

    if kind is None:
        print_text("".join(f"{name}\n" for name in KINDS))
    else:
        print_text(data_text(schema_of(kind), "json"))
    return 0
