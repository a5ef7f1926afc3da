"""rbdagent(1): it is made from the program's help and escaped for roff."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import Any, Final

import click
import pytest

from rbdagent.cli.main import cli

CHECKOUT: Final = Path(__file__).parents[2]
SCRIPT: Final[dict[str, Any]] = runpy.run_path(str(CHECKOUT / "packaging" / "man_page.py"))
# click keeps the help option of the first context, which needs the settings of the program.
CONTEXT: Final = click.Context(cli, info_name="rbdagent", **cli.context_settings)
VERBS: Final = cli.list_commands(CONTEXT)
PAGE: Final[str] = SCRIPT["page"](
    cli, version="0.1.0", date="2026-11-25", site="https://docs.example"
)
PLAIN: Final = PAGE.replace(r"\-", "-")


def part_of(verb: str) -> str:
    """Return the part of the page about one verb, and the common options."""
    sections = re.split(r"^\.S[SH] ", PLAIN, flags=re.MULTILINE)
    (own,) = [text for text in sections if text.startswith(f'"rbdagent {verb} ')]
    (common,) = [text for text in sections if text.startswith("COMMON OPTIONS")]
    return own + common


def test_page_has_the_sections_of_a_command() -> None:
    titles = re.findall(r"^\.SH (.+)$", PLAIN, re.MULTILINE)
    assert titles == [
        "NAME", "SYNOPSIS", "DESCRIPTION", "VERBS", "COMMON OPTIONS", "EXIT STATUS", "SEE ALSO"
    ]  # fmt: skip
    assert PLAIN.startswith('.TH RBDAGENT 1 "2026-11-25" "rbdagent 0.1.0" "User Commands"\n')


@pytest.mark.parametrize("verb", VERBS)
def test_page_describes_every_option_of_a_verb(verb: str) -> None:
    command = cli.get_command(CONTEXT, verb)
    assert command is not None
    part = part_of(verb)
    options = [param for param in command.get_params(CONTEXT) if isinstance(param, click.Option)]
    assert options
    for option in options:
        for name in (*option.opts, *option.secondary_opts):
            assert re.search(rf'^\.B "(?:.*[ /])?{name}[ ,/"]', part, re.MULTILINE), name
        for variable in [option.envvar] if option.envvar else []:
            assert f"Variable: {variable}." in part


@pytest.mark.parametrize("verb", VERBS)
def test_page_shows_the_help_text_of_a_verb(verb: str) -> None:
    command = cli.get_command(CONTEXT, verb)
    assert command is not None
    assert command.help is not None
    first = command.help.strip().splitlines()[0]
    assert SCRIPT["roff"](first) in PAGE


@pytest.mark.parametrize(
    ("text", "escaped"),
    [
        ("--fail-on", r"\-\-fail\-on"),
        (".profile", r"\&.profile"),
        ("'quoted'", r"\(aqquoted\(aq"),
        (r"a\b", r"a\eb"),
    ],
)
def test_text_that_roff_interprets_is_escaped(text: str, escaped: str) -> None:
    assert SCRIPT["roff"](text) == escaped
