"""rbdagent check."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from rbdagent.cli.options import (
    COLOR,
    OF_ONE_CLUSTER,
    OUTPUT,
    VERBOSE_CHECK,
    ceph_tables,
    observing,
)
from rbdagent.cli.output import data_text, layout_of, print_text, progress

if TYPE_CHECKING:
    from collections.abc import Callable

    from rbdagent.collect.parallel import Awaited
    from rbdagent.config import Settings
    from rbdagent.model import CheckResult


@click.command("check")
@OUTPUT
@VERBOSE_CHECK
@COLOR
@observing
def command(*, output: str, settings: Callable[[], Settings]) -> int:
    """Check what rbdagent needs here, and print what is missing.

    Exits with code 1 if a required check fails. A warning means only that answers lack details.
    """
    from rbdagent.model import CheckState
    from rbdagent.preflight import check_all

    chosen = settings()
    awaited: Awaited = {}
    with progress(chosen.timeout_s) as show:
        show(awaited)
        results = (*flag_origins(), *check_all(chosen, awaited))
    if output == "table":
        from rbdagent.report.text.check import check_lines

        layout = layout_of()
        own = _own_process() if layout.details else ()
        print_text(check_lines((*results, *own), layout))
    else:
        from rbdagent.report.json.check import check_report

        print_text(data_text(check_report(results), output))
    return int(any(result.state is CheckState.FAILED for result in results))


def _own_process() -> tuple[CheckResult, ...]:
    """Return what this check has used."""
    from rbdagent.collect.own_processes import use_of_self
    from rbdagent.model import CheckResult, CheckState

    volume = use_of_self(with_ended_children=True)
    if volume is None:
        return ()
    return (
        CheckResult(
            source="configuration",
            sentence=f"this check uses {volume.pss_bytes / 2**20:.0f} MiB of memory (Pss), "
            f"{volume.cpu_s:.2f} s of processor time and {volume.descriptors} file descriptors",
            state=CheckState.OK,
            detail="rbdagent's own process",
        ),
    )


def flag_origins() -> tuple[CheckResult, ...]:
    """Return the value of every flag and where it comes from; a key in a wrong place is masked."""
    from rbdagent.model import CheckResult, CheckState
    from rbdagent.parse.secrets import without_secrets

    context = click.get_current_context()
    words = {
        "COMMANDLINE": "flag",
        "ENVIRONMENT": "environment",
        "DEFAULT_MAP": str(context.meta.get("config", "")),
        "DEFAULT": "default",
    }
    tables = ceph_tables()
    results = [
        CheckResult(
            source="configuration",
            sentence=f"[[ceph]] names cluster {table.get('name') or table.get('conf')}",
            state=CheckState.OK,
            detail=str(context.meta.get("config", "")),
        )
        for table in tables
    ]
    for name, value in context.params.items():
        origin = context.get_parameter_source(name)
        if (
            name in {"debug", "output", "overwrite"}
            or origin is None
            or (tables and name in OF_ONE_CLUSTER)
        ):
            continue
        shown = f"{value:g}s" if isinstance(value, float) else value
        results.append(
            CheckResult(
                source="configuration",
                sentence=f"--{name.replace('_', '-')} is {without_secrets(_plain(shown))}",
                state=CheckState.OK,
                detail=words.get(origin.name, origin.name.lower()),
            )
        )
    return tuple(results)


def _plain(value: object) -> str:
    if value in {None, ()}:
        return "not set"
    if isinstance(value, bool):
        return "on" if value else "off"
    return " ".join(map(str, value)) if isinstance(value, tuple) else str(value)
