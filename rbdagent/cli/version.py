"""rbdagent version."""

from __future__ import annotations

import click

from rbdagent import __version__
from rbdagent.cli.options import DEBUG, OUTPUT
from rbdagent.cli.output import data_text, print_text


@click.command("version")
@OUTPUT
@DEBUG
def command(*, output: str, debug: bool) -> int:
    """Print the version."""
    del debug
    if output == "table":
        print_text(f"rbdagent {__version__}\n")
        return 0
    import platform

    from rbdagent.report.json.version import Version

    print_text(data_text(Version(version=__version__, python=platform.python_version()), output))
    return 0
