"""rbdagent who-holds."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

import click

from rbdagent.cli.data_source import settled_answer, snapshot_of
from rbdagent.cli.options import observing, reading, target_argument
from rbdagent.cli.output import data_text, exit_code, layout_of, repeat
from rbdagent.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from rbdagent.config import Settings
    from rbdagent.model import Diagnosis, Snapshot


@click.command("who-holds")
@target_argument(required=True)
@click.option("--namespace", "-n", help="Namespace of pvc/NAME and pod/NAME.")
@click.option("--print-runbook", is_flag=True,
              help="Print plain commands (kubectl, rbd, rados, grep) that lead to the same answer, "
              "for a node without an agent.")  # fmt: skip
@reading()
@observing
def command(
    *,
    target: str,
    namespace: str | None,
    print_runbook: bool,
    output: str,
    source: str | None,
    fail_on: str,
    watch: bool,
    settings: Callable[[], Settings],
) -> int:
    """List every holder of TARGET's image, and what to do next.

    Each holder has a verdict with its evidence; each problem has the commands to run next.

    TARGET is pv/NAME or NAME, pvc/NAMESPACE/NAME, pod/NAMESPACE/NAME, POOL[/NAMESPACE]/IMAGE, a CSI
    volume handle, or /dev/rbdN. As in kubectl, a type and a name may be two words: pvc data.
    """
    from rbdagent.parse.target import parse_target

    wanted = parse_target(target, namespace=namespace)
    if print_runbook and (watch or output not in {"table", "wide"}):
        raise UsageError("--print-runbook prints commands once, as text: omit -w and -o")

    def observed() -> Snapshot:
        return snapshot_of(wanted, source, settings, prepare=lambda: _load(output))

    def once() -> tuple[str, int]:
        if print_runbook:
            from rbdagent.correlate import correlate
            from rbdagent.report.text.runbook import runbook

            # A runbook has no verdict: it needs no second observation.
            return runbook(correlate(observed()), layout_of()), 0
        snapshot, diagnosis = settled_answer(
            observed, _judge, lambda diagnosis: (diagnosis,), source=source
        )
        return _render_holders(diagnosis, snapshot, output), exit_code((diagnosis,), fail_on)

    return repeat(once, watch=watch and source is None)


def _judge(snapshot: Snapshot) -> Diagnosis:
    from rbdagent.correlate import correlate
    from rbdagent.rules import diagnose

    return diagnose(correlate(snapshot), snapshot)


def _load(output: str) -> None:
    """Import the modules for the output while Ceph answers."""
    importlib.import_module("rbdagent.rules")
    is_data = output in {"json", "yaml"}
    importlib.import_module(f"rbdagent.report.{'json.holders' if is_data else 'text.holders'}")


def _render_holders(diagnosis: Diagnosis, found: Snapshot, output: str) -> str:
    if output in {"json", "yaml"}:
        from rbdagent.report.json.holders import holder_report

        return data_text(holder_report(diagnosis, found), output)
    from rbdagent.report.text.holders import answer, holder_names

    if output == "name":
        return holder_names(diagnosis.holders)
    return answer(diagnosis, found, layout_of(output))
