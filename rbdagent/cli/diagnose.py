"""rbdagent diagnose."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from rbdagent.cli.data_source import settled_answer, snapshot_of
from rbdagent.cli.options import (
    all_namespaces,
    cluster_target,
    label_requirements,
    observing,
    reading,
    target_argument,
)
from rbdagent.cli.output import (
    data_text,
    exit_code,
    exit_code_of_list,
    layout_of,
    now_utc,
    repeat,
)
from rbdagent.errors import UsageError
from rbdagent.model import CollectScope

if TYPE_CHECKING:
    from collections.abc import Callable

    from rbdagent.config import Settings
    from rbdagent.lifecycle.targets import Scope
    from rbdagent.model import ClusterReport, Lifecycle, Snapshot, Target


@click.command("diagnose")
@target_argument(required=False)
@all_namespaces
@click.option(
    "--namespace", "-n", help="Namespace of TARGET; without TARGET, report only this namespace."
)
@click.option("--selector", "-l", help="Report only claims and pods with these labels (-l app=db).")
@reading("html")
@observing
def command(
    *,
    target: str | None,
    every: bool,
    namespace: str | None,
    selector: str | None,
    watch: bool,
    **asked: Any,  # noqa: ANN401 - see _Request
) -> int:
    """Show which step of TARGET's life fails, why, and the fix.

    The steps are provision, bind, schedule, attach, stage, publish, and those of the detach path.
    TARGET has the same forms as in who-holds.

    Without TARGET, -A, -n or -l report everything that is stuck, the worst first. -w repeats until
    no step fails. -o html prints one page that needs no network, also of a whole cluster: redirect
    it to a file.
    """
    how = _Request(**asked)
    if how.output == "html" and watch:
        raise UsageError("-o html prints one page: omit --watch, and run it again to update it")
    if target is None:
        wanted = cluster_target(every=every, namespace=namespace, selector=selector)
        scope = _scope(namespace, selector)
        once = _diagnose_cluster(wanted, scope, _scope_text(namespace, selector), how)
    elif every or selector is not None:
        raise UsageError("-A and -l report everything that is stuck: omit TARGET")
    else:
        once = _of_target(target, namespace, how)
    return repeat(once, watch=watch and how.source is None, until_well=True)


class _Request(NamedTuple):
    """Holds the output format and the source of the data."""

    output: str
    source: str | None
    fail_on: str
    settings: Callable[[], Settings]


# --------------------------------------------------------------------------------------------------
# One
# --------------------------------------------------------------------------------------------------


def _of_target(target: str, namespace: str | None, how: _Request) -> Callable[[], tuple[str, int]]:
    from rbdagent.parse.target import parse_target

    wanted = parse_target(target, namespace=namespace)

    def once() -> tuple[str, int]:
        snapshot, lifecycle = settled_answer(
            lambda: snapshot_of(
                wanted,
                how.source,
                how.settings,
                prepare=lambda: _load(how.output),
                also=CollectScope.LIFECYCLE,
            ),
            _judge,
            lambda lifecycle: (lifecycle.diagnosis,),
            source=how.source,
        )
        return _render(lifecycle, snapshot, how.output), exit_code(
            (lifecycle.diagnosis,), how.fail_on
        )

    return once


def _judge(snapshot: Snapshot) -> Lifecycle:
    from rbdagent.correlate import correlate
    from rbdagent.lifecycle.steps import lifecycle_of

    return lifecycle_of(correlate(snapshot), snapshot)


def _load(output: str) -> None:
    """Import the modules for the output while Ceph answers."""
    importlib.import_module("rbdagent.lifecycle.steps")
    forms = {"json": "json.lifecycle", "yaml": "json.lifecycle", "html": "html.page"}
    importlib.import_module(f"rbdagent.report.{forms.get(output, 'text.lifecycle')}")


def _render(lifecycle: Lifecycle, snapshot: Snapshot, output: str) -> str:
    if output in {"json", "yaml"}:
        from rbdagent.report.json.lifecycle import lifecycle_report

        return data_text(lifecycle_report(lifecycle, snapshot), output)
    if output == "name":
        from rbdagent.report.text.holders import holder_names

        return holder_names(lifecycle.diagnosis.holders)
    if output == "html":
        from rbdagent.report.html.page import page

        return page(lifecycle, snapshot, layout_of().program)
    from rbdagent.report.text.lifecycle import story

    return story(lifecycle, snapshot, layout_of(output))


# --------------------------------------------------------------------------------------------------
# All
# --------------------------------------------------------------------------------------------------


def _scope(namespace: str | None, selector: str | None) -> Scope:
    from rbdagent.lifecycle.targets import Scope

    return Scope(namespace=namespace, selector=label_requirements(selector))


def _scope_text(namespace: str | None, selector: str | None) -> str:
    words = [] if namespace is None else [f"in namespace {namespace}"]
    return " ".join(words if selector is None else [*words, f"with labels {selector}"])


def _diagnose_cluster(
    wanted: Target, scope: Scope, words: str, how: _Request
) -> Callable[[], tuple[str, int]]:
    if how.fail_on == "info":
        raise UsageError(
            "stuck volumes have warnings and errors only: use --fail-on with one of these"
        )

    def once() -> tuple[str, int]:
        from rbdagent.lifecycle.cluster_report import report_cluster

        also = CollectScope.LIFECYCLE | CollectScope.EVERYTHING
        snapshot, found = settled_answer(
            lambda: snapshot_of(wanted, how.source, how.settings, also=also),
            lambda snapshot: report_cluster(snapshot, scope),
            lambda found: (affected.life.diagnosis for affected in found.stuck),
            source=how.source,
        )
        code = exit_code_of_list(found, snapshot, how.fail_on)
        return _render_all(found, snapshot, words, how.output), code

    return once


def _render_all(found: ClusterReport, snapshot: Snapshot, words: str, output: str) -> str:
    if output in {"json", "yaml"}:
        from rbdagent.report.json.lifecycle import cluster_report

        return data_text(cluster_report(found, snapshot), output)
    if output == "html":
        from rbdagent.report.html.cluster import cluster_page

        program = layout_of().program
        return cluster_page(found, snapshot, now=now_utc(), of=words, program=program)
    from rbdagent.report.text.cluster import affected_names, affected_table

    if output == "name":
        return affected_names(found)
    return affected_table(found, snapshot, layout_of(output), of=words)
