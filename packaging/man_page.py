"""Print rbdagent(1) from the program's own help: ``man_page.py LIBRARY``.

LIBRARY is the directory that has rbdagent and its requirements. Each verb, argument and option is
read from click, so that the page has what ``--help`` has. An option of many verbs is described
once. The date is that of SOURCE_DATE_EPOCH.
"""

from __future__ import annotations

import inspect
import os
import sys
import time
from collections import Counter
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import click

COMMON: Final = 4
"""An option that so many verbs have in the same form is described once, for all of them."""

EXIT_STATUS: Final = {
    "0": "The answer is complete, with no finding at or above --fail-on.",
    "1": "There is no complete answer.",
    "2": "Usage error.",
    "3": "There are findings at or above --fail-on.",
    "4": "An unmap was refused as unsafe.",
}


class Verb(NamedTuple):
    """A verb of the program, as its help shows it."""

    usage: str
    text: str
    options: tuple[tuple[str, str], ...]
    """Names, and the description."""


def main() -> int:
    """Print the page."""
    sys.path.insert(0, sys.argv[1])
    from rbdagent import __version__
    from rbdagent.addresses import DOCUMENTATION
    from rbdagent.cli.main import cli

    seconds = int(os.environ.get("SOURCE_DATE_EPOCH", time.time()))
    date = time.strftime("%Y-%m-%d", time.gmtime(seconds))
    sys.stdout.write(page(cli, version=__version__, date=date, site=DOCUMENTATION))
    return 0


def page(cli: click.Group, *, version: str, date: str, site: str) -> str:
    """Return the manual page in roff.

    Args:
        cli: the program.
        version: of the program.
        date: of the page, such as ``2026-11-25``.
        site: where the documentation is.
    """
    verbs = tuple(verbs_of(cli))
    common = common_options(verbs)
    summary = (cli.help or "").rstrip(".")
    lines = (
        f'.TH RBDAGENT 1 "{date}" "rbdagent {roff(version)}" "User Commands"',
        *(".SH NAME", rf"rbdagent \- {roff(summary[:1].lower() + summary[1:])}"),
        *(".SH SYNOPSIS", ".B rbdagent", r".I VERB", "[OPTIONS] [ARGUMENTS]"),
        *(".SH DESCRIPTION", roff(f"{summary}.")),
        ".SH VERBS",
        *(line for verb in verbs for line in section(verb, common)),
        *(".SH COMMON OPTIONS", "These options belong to several verbs."),
        *described(common),
        *(".SH EXIT STATUS", *described(EXIT_STATUS.items())),
        *(".SH SEE ALSO", ".BR rbd (8),", ".BR ceph (8)", ".PP", roff(site)),
    )
    return "\n".join(lines) + "\n"


def verbs_of(cli: click.Group) -> Iterator[Verb]:
    """Yield the verbs, in the order of the help."""
    import click

    context = click.Context(cli, info_name="rbdagent", **cli.context_settings)
    for name in cli.list_commands(context):
        command = cli.get_command(context, name)
        if command is None or command.hidden:
            continue
        own = click.Context(command, info_name=name, parent=context, **command.context_settings)
        usage = " ".join((own.command_path, *command.collect_usage_pieces(own)))
        yield Verb(usage, command.help or "", tuple(options_of(command, own)))


def options_of(command: click.Command, context: click.Context) -> Iterator[tuple[str, str]]:
    """Yield the names and the description of each option of a verb."""
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        # The usage line shows the arguments, and the text describes them.
        if record is None or parameter.param_type_name == "argument":
            continue
        names, text = record
        variable = f" Variable: {parameter.envvar}." if parameter.envvar else ""
        yield names, text + variable


def common_options(verbs: Iterable[Verb]) -> tuple[tuple[str, str], ...]:
    """Return the options that many verbs have in the same form."""
    counted = Counter(option for verb in verbs for option in verb.options)
    return tuple(option for option, count in counted.items() if count >= COMMON)


def section(verb: Verb, common: tuple[tuple[str, str], ...]) -> Iterator[str]:
    """Yield the lines of one verb: its usage, text and the options that are not common."""
    yield f".SS {quoted(verb.usage)}"
    yield from paragraphs(verb.text)
    yield from described(option for option in verb.options if option not in common)
    if shared := [option for option in verb.options if option in common]:
        names = ", ".join(names.split(", ")[-1].split()[0] for names, _ in shared)
        yield from (".PP", roff(f"Common options: {names}."))


def paragraphs(text: str) -> Iterator[str]:
    r"""Yield the lines of a help text; ``\b`` of click begins a paragraph that is not wrapped."""
    for number, paragraph in enumerate(inspect.cleandoc(text).split("\n\n")):
        if number:
            yield ".PP"
        first, _, rest = paragraph.partition("\n")
        if first.strip() == "\b":
            yield from (".nf", *map(roff, rest.splitlines()), ".fi")
        else:
            yield from map(roff, paragraph.splitlines())


def described(rows: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Yield the lines of a list of terms, each with its description."""
    for term, text in rows:
        yield from (".TP", f".B {quoted(term)}", roff(text))


def quoted(text: str) -> str:
    """Return one argument of a macro."""
    return '"' + roff(text).replace('"', r"\(dq") + '"'


def roff(text: str) -> str:
    """Return a line of text that roff prints unchanged; a hyphen stays an ASCII hyphen."""
    escaped = text.replace("\\", r"\e").replace("-", r"\-").replace("'", r"\(aq")
    return rf"\&{escaped}" if escaped.startswith(".") else escaped


if __name__ == "__main__":
    sys.exit(main())
