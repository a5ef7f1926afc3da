"""rbdagent mcp."""

from __future__ import annotations

import gc
import os
from typing import TYPE_CHECKING, Final

import click
from click.core import ParameterSource

from rbdagent.cli.options import observing, option
from rbdagent.errors import RbdagentError

if TYPE_CHECKING:
    from collections.abc import Callable

    from rbdagent.config import Settings

_OF_VERBS: Final = {"RBDAGENT_DEBUG": "0", "RBDAGENT_WATCH": "0", "RBDAGENT_FAIL_ON": "error"}
"""A tool call has one answer, without tracebacks, and its exit code is not used."""


@click.command("mcp")
@option("--from", "source", type=click.Path(exists=True, dir_okay=False), metavar="FILE",
        help="Read a snapshot file instead of observing.")  # fmt: skip
@observing
def command(*, source: str | None, settings: Callable[[], Settings]) -> int:
    """Serve the verbs that only read as tools for assistants (MCP).

    An assistant or a script starts this program, and writes requests of the Model Context Protocol
    to its stdin. The tools are who_holds, diagnose, list, explain and check. None of them changes
    anything.
    """
    del source, settings
    try:
        from rbdagent.cli.mcp_server import serve
    except ImportError as error:
        raise RbdagentError(
            f"rbdagent mcp needs a package that is not installed: {error.name}",
            hint="in a checkout: pip install '.[mcp]' (docs/mcp.md)",
        ) from error
    # The program starts without the garbage collector, because other verbs end after one output.
    gc.enable()
    context = click.get_current_context()
    serve({**os.environ, **_given(context), **_OF_VERBS}, context.params["timeout"])
    return 0


def _given(context: click.Context) -> dict[str, str]:
    """Return the flags of the command line as variables of the environment, for the verbs."""
    return {
        str(parameter.envvar): _value(context.params[parameter.name])
        for parameter in context.command.params
        if parameter.name is not None
        and context.get_parameter_source(parameter.name) is ParameterSource.COMMANDLINE
    }


def _value(value: object) -> str:
    """Return the value of a flag as click reads it from a variable."""
    if isinstance(value, float):
        return f"{value}s"
    return " ".join(value) if isinstance(value, tuple) else str(value)
