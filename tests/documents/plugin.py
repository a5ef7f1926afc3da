"""The findings and the help of the verbs at the end of the kubectl plugin, without a cluster.

They are comments: the plugin is one file, and a shell does not parse them before the program exits.
"""

from __future__ import annotations

import os
import runpy
from typing import Final
from unittest import mock

import click

from rbdagent.catalog import CATALOG, explanation
from rbdagent.cli import cli
from rbdagent.report.text.explain import explanation_lines, list_line
from rbdagent.report.text.layout import Layout
from tests.support.cli_runner import ROOT, ask

PLUGIN: Final = ROOT / "plugin" / "kubectl-rbdagent"
ELSEWHERE: Final = frozenset({"agent", "mcp", "completion"})
"""Verbs for the local node only, or verbs that kubectl does not run."""
VERBS: Final = tuple(
    verb for verb in cli.list_commands(click.Context(cli)) if verb not in ELSEWHERE
)
_RELEASE: Final = ROOT / "plugin" / "release.py"
_HEAD: Final = (
    "# The findings and the help, for answers without a cluster: ./dev docs writes these lines.\n"
)


def as_generated(text: str) -> str:
    """Return the text of the plugin with the current findings and help."""
    program, head, _ = text.partition(_HEAD)
    assert head, "the plugin has no head of the generated lines"
    return program + head + _findings() + _help()


def _findings() -> str:
    r"""Return the findings: ``#= `` and the line of a list, then the explanation behind ``#: ``."""
    return "".join(
        f"#= {list_line(entry)}\n"
        + "".join(f"#: {line}".rstrip() + "\n" for line in _explanation(entry.code))
        for entry in CATALOG.values()
    )


def _help() -> str:
    """Return the help of each verb: ``#> `` and its name, then its lines behind ``#| ``."""
    return "".join(
        f"#> {verb}\n" + "".join(f"#| {line}".rstrip() + "\n" for line in help_lines(verb))
        for verb in VERBS
    )


def help_lines(verb: str) -> list[str]:
    """Return the help of a verb as a user of the plugin reads it, at 80 columns."""
    environment = {"RBDAGENT_PROGRAM": "kubectl rbdagent", "COLUMNS": "80"}
    with mock.patch.dict(os.environ, environment):
        return ask(verb, "--help").stdout.splitlines()


def _explanation(code: str) -> list[str]:
    """Return the lines of an explanation, with commands as a user of the plugin types them."""
    text = explanation(code, ("kubectl", "rbdagent"))
    return explanation_lines(text, Layout(width=80)).split("\n")


def write() -> None:
    """Write these lines into the plugin, and the digest of its archive into the manifest."""
    PLUGIN.write_text(as_generated(PLUGIN.read_text()))
    release = runpy.run_path(str(_RELEASE))
    release["write_digest"]()
