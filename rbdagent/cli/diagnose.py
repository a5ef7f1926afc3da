"""rbdagent diagnose."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

import click

from rbdagent.cli.flags import observing, reading
from rbdagent.cli.output import data_text, exit_code, has_colour, repeat
from rbdagent.cli.source import snapshot_of
from rbdagent.errors import UsageError
from rbdagent.model import Also

if TYPE_CHECKING:
    from collections.abc import Callable

    from rbdagent.config import Settings
    from rbdagent.model import Life, Snapshot


@click.command("diagnose")
@click.argument("target", required=True)
@click.option("--namespace", "-n", help="Namespace of pvc/NAME and pod/NAME.")
@reading("html")
@observing
def command(
    *,
    target: str,
    namespace: str | None,
    output: str,
    source: str | None,
    fail_on: str,
    watch: bool,
    settings: Callable[[], Settings],
) -> int:
    """Follow the volume of TARGET through its life, and say where it broke, why, and what to do.

    Provision, bind, schedule, attach, stage, publish, and back. TARGET is what who-holds takes.
    -o html gives one page to look at, which needs no network: redirect it to a file.
    """
    from rbdagent.parse.target import parse_target

    wanted = parse_target(target, namespace=namespace)
    if output == "html" and watch:
        raise UsageError("-o html is one page: leave --watch out, and load it anew")

    def once() -> tuple[str, int]:
        snapshot = snapshot_of(
            wanted, source, settings, meanwhile=lambda: _load(output), also=Also.LIFE
        )
        from rbdagent.correlate import correlate
        from rbdagent.diagnose.life import life_of

        life = life_of(correlate(snapshot), snapshot)
        return _render(life, snapshot, output), exit_code((life.diagnosis,), fail_on)

    return repeat(once, watch=watch and source is None)


def _load(output: str) -> None:
    """Import what the answer takes."""
    importlib.import_module("rbdagent.diagnose.life")
    forms = {"json": "machine", "yaml": "machine", "html": "page"}
    importlib.import_module(f"rbdagent.report.{forms.get(output, 'story')}")


def _render(life: Life, snapshot: Snapshot, output: str) -> str:
    if output in {"json", "yaml"}:
        from rbdagent.report.machine import life_report

        return data_text(life_report(life, snapshot), output)
    if output == "name":
        from rbdagent.report.text import names

        return names(life.diagnosis.holders)
    if output == "html":
        from rbdagent.report.page import page

        return page(life, snapshot)
    from rbdagent.report.story import story

    return story(life, snapshot, wide=output == "wide", colour=has_colour())
