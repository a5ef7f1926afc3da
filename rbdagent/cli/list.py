"""rbdagent list."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from rbdagent.cli.flags import observing, reading
from rbdagent.cli.output import data_text, exit_code, has_colour, repeat
from rbdagent.cli.source import snapshot_of
from rbdagent.errors import RbdagentError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rbdagent.config import Settings
    from rbdagent.model import Diagnosis, Snapshot


@click.command("list")
@click.option("--all-nodes", "-A", is_flag=True, help="Of all nodes, from what agents published.")
@click.option("--namespace", "-n", help="Only volumes whose claim is in this namespace.")
@reading
@observing
def command(
    *,
    all_nodes: bool,
    namespace: str | None,
    output: str,
    source: str | None,
    fail_on: str,
    watch: bool,
    settings: Callable[[], Settings],
) -> int:
    """List the mappings of this node, with verdicts."""
    if all_nodes:
        raise RbdagentError(
            "list -A reads what the agents of all nodes published, and no agent publishes yet",
            hint="run rbdagent list on each node; who-holds names holders on other nodes",
        )
    from rbdagent.model import Target, TargetKind

    def once() -> tuple[str, int]:
        from rbdagent.correlate import correlate_node
        from rbdagent.diagnose import diagnose

        snapshot = snapshot_of(Target(given="", kind=TargetKind.NONE), source, settings)
        diagnoses = [diagnose(use, snapshot) for use in correlate_node(snapshot)]
        if namespace is not None:
            diagnoses = _of_namespace(diagnoses, snapshot, namespace)
        code = exit_code(diagnoses, fail_on)
        if code == 0 and not _devices_seen(snapshot):
            code = 1
        return _render_mappings(diagnoses, snapshot, output, namespace), code

    return repeat(once, watch=watch and source is None)


def _of_namespace(
    diagnoses: list[Diagnosis], snapshot: Snapshot, namespace: str
) -> list[Diagnosis]:
    """Keep what belongs to a namespace; whose claim nobody could look up belongs to any."""
    from rbdagent.model import NotObserved

    kube = snapshot.kubernetes
    unseen = "Kubernetes was not observed" if kube is None else ""
    for part in () if kube is None else (kube.persistent_volumes, kube.claims):
        unseen = part.reason if isinstance(part, NotObserved) else unseen
    if unseen:
        raise RbdagentError(
            f"which mappings are of namespace {namespace} cannot be told: {unseen}",
            hint="rbdagent list without --namespace shows them all; rbdagent check tells more",
        )
    return [
        each
        for each in diagnoses
        if each.use.claim is not None and each.use.claim.ref.namespace == namespace
    ]


def _devices_seen(snapshot: Snapshot) -> bool:
    from rbdagent.model import NotObserved

    return snapshot.node is not None and not isinstance(snapshot.node.mappings, NotObserved)


def _render_mappings(
    diagnoses: Sequence[Diagnosis], found: Snapshot, output: str, namespace: str | None
) -> str:
    if output in {"json", "yaml"}:
        from rbdagent.report.machine import mapping_list

        return data_text(mapping_list(diagnoses, found), output)
    from rbdagent.report import text

    if output == "name":
        local = [each for one in diagnoses for each in one.holders if each.holder.is_local]
        return text.names(local)
    return text.mapping_table(
        diagnoses, found, wide=output == "wide", colour=has_colour(), namespace=namespace
    )
