"""The program: find the verb, run it, and return its exit code."""

from __future__ import annotations

import importlib
import io
from typing import TYPE_CHECKING, Final

import click

from rbdagent import __version__
from rbdagent.cli.output import complain, program
from rbdagent.collect.failure import is_debug
from rbdagent.commands import sentence_of
from rbdagent.errors import NotFoundError, RbdagentError, UsageError
from rbdagent.parse.shown import shown, shown_lines

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rbdagent.collect.ceph_process import CephProcess


_CONTEXT: Final = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


def run(arguments: Sequence[str], loading: list[CephProcess] | None = None) -> int:  # noqa: PLR0911 - one return for each way to end
    """Run one command and return its exit code; print a traceback only with ``--debug``.

    The exit codes: 0 success, with no finding at or above --fail-on; 1 no complete result; 2 usage
    error; 3 findings at or above --fail-on; 4 refused as unsafe.

    Args:
        arguments: the words after the name of the program.
        loading: a process for Ceph, which the verb removes from this list if it uses it.
    """
    debug = is_debug(arguments)
    try:
        code = cli.main(
            args=_decoded(arguments),
            prog_name=" ".join(program()),
            complete_var="_RBDAGENT_COMPLETE",
            standalone_mode=False,
            obj=loading,
        )
    except click.exceptions.Exit as error:
        return error.exit_code
    except click.ClickException as error:
        _add_origin(error)
        _show(_with_place(error))
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        return 130
    except (BrokenPipeError, SystemExit):
        # click raises SystemExit on a broken pipe: the reader needs no more output.
        return 0
    except RbdagentError as error:
        _complain(error, debug=debug)
        return error.exit_code
    except Exception as error:  # noqa: BLE001 - the outermost edge
        if debug:
            _print_traceback(error)
        complain(f"rbdagent: this is a defect of rbdagent: {type(error).__name__}: {error}")
        complain("  run it again with --debug and report what it prints")
        return 1
    return code if isinstance(code, int) else 0


def _decoded(arguments: Sequence[str]) -> list[str]:
    """Return the arguments, which must be UTF-8: they become part of the output, which may be JSON.

    Raises:
        UsageError: an argument is not UTF-8.
    """
    for argument in arguments:
        try:
            argument.encode()
        except UnicodeEncodeError:
            raise UsageError(f"the argument {shown(argument)} is not UTF-8") from None
    return list(arguments)


def _show(error: click.ClickException) -> None:
    """Print an error of click, escaped, because it quotes arguments, which may be pasted text."""
    message = io.StringIO()
    error.show(message)
    # click writes the choices of a missing argument in lines that begin with a tab.
    text = message.getvalue().replace("\n\t", " ")
    click.echo(shown_lines(text), err=True, nl=False)


def _add_origin(error: click.ClickException) -> None:
    """Add the origin of an invalid value to the error, if it is the file or a variable."""
    if not isinstance(error, click.BadParameter) or error.ctx is None or error.param is None:
        return
    origin = error.ctx.get_parameter_source(error.param.name or "")
    hint = error.param.get_error_hint(error.ctx)
    if origin is not None and origin.name == "DEFAULT_MAP":
        error.param_hint = f"{hint} in {error.ctx.meta.get('config')}"
    elif origin is not None and origin.name == "ENVIRONMENT":
        error.param_hint = f"{hint} in the environment's {error.param.envvar}"


def _with_place(error: click.ClickException) -> click.ClickException:
    """Return the error, about --node with where it exists; a similar flag selects no node."""
    if not isinstance(error, click.NoSuchOption) or error.option_name != "--node":
        return error
    place = "rbdagent observes the machine that it runs on; kubectl rbdagent has --node."
    return click.NoSuchOption(error.option_name, message=f"{error.message} {place}", ctx=error.ctx)


def _complain(error: RbdagentError, *, debug: bool) -> None:
    if debug:
        _print_traceback(error)
    complain(f"rbdagent: {error}")
    hint = sentence_of(error.advice, program())
    near = error.near if isinstance(error, NotFoundError) else ()
    if near and not any(name in hint for name in near):
        complain(f"  did you mean {' or '.join(near)}?")
    if hint:
        complain(f"  {hint}")


def _print_traceback(error: Exception) -> None:
    import traceback

    click.echo(shown_lines("".join(traceback.format_exception(error))), err=True, nl=False)


_VERBS: Final = (
    "who-holds",
    "diagnose",
    "list",
    "drain-check",
    "images",
    "lint",
    "unmap",
    "agent",
    "snapshot",
    "check",
    "bug-report",
    "explain",
    "mcp",
    "schema",
    "version",
    "completion",
)
"""In the order of the help; each verb is ``command`` in the module with its name."""


class _Group(click.Group):
    """Loads only the requested verb; suggests similar verbs after a typing error."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        return list(_VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        del ctx
        if cmd_name not in _VERBS:
            return None
        module = importlib.import_module(f"rbdagent.cli.{cmd_name.replace('-', '_')}")
        command: click.Command = module.command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            import difflib

            near = difflib.get_close_matches(args[0], self.list_commands(ctx), n=2)
            if near:
                raise click.UsageError(
                    f"{error.message} Did you mean {' or '.join(near)}?", ctx
                ) from error
            raise


@click.group(
    cls=_Group,
    context_settings=_CONTEXT,
    epilog="If a pod waits for its volume, begin with who-holds pvc/NAMESPACE/NAME. If the answer "
    "has gaps, run check.",
)
@click.version_option(__version__, "--version", message="rbdagent %(version)s")
def cli() -> None:
    """Show what holds a Ceph RBD volume, whether it should, and what to do next."""
