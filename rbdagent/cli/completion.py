"""rbdagent completion."""

from __future__ import annotations

import click

from rbdagent.cli.output import print_text
from rbdagent.errors import UsageError


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def command(*, shell: str) -> int:
    """Print a completion script for a shell.

    In bash, this command loads it: source <(rbdagent completion bash)
    """
    from click.shell_completion import get_completion_class

    found = get_completion_class(shell)
    if found is None:
        raise UsageError(f"no completion for {shell}")
    from rbdagent.cli.main import cli

    print_text(found(cli, {}, "rbdagent", "_RBDAGENT_COMPLETE").source())
    return 0
