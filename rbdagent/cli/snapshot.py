"""rbdagent snapshot."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from rbdagent.cli.data_source import snapshot_of
from rbdagent.cli.options import all_namespaces, cluster_target, observing
from rbdagent.cli.output import print_text
from rbdagent.errors import UsageError
from rbdagent.model import CollectScope

if TYPE_CHECKING:
    from collections.abc import Callable

    from rbdagent.config import Settings


@click.command("snapshot")
@click.argument("target", required=False)
@all_namespaces
@click.option(
    "--namespace", "-n", help="Namespace of TARGET; without TARGET, observe only this one."
)
@observing
def command(
    *, target: str | None, every: bool, namespace: str | None, settings: Callable[[], Settings]
) -> int:
    """Print what was observed as one redacted file; --from FILE replays it.

    Without TARGET the file holds every mapping of this node, for `list --from`. With -A or -n it
    holds the cluster or the namespace, for `diagnose -A --from` and `diagnose -n NAMESPACE --from`.
    """
    from rbdagent.model import Target, TargetKind
    from rbdagent.parse.target import parse_target
    from rbdagent.report.snapshot import dump_snapshot

    also = CollectScope.LIFECYCLE
    if target is not None and every:
        raise UsageError("-A means all namespaces: do not give a TARGET")
    if target is not None:
        wanted = parse_target(target, namespace=namespace)
    elif every or namespace is not None:
        wanted = cluster_target(every=every, namespace=namespace, selector=None)
        also |= CollectScope.EVERYTHING
    else:
        wanted = Target(argument="", kind=TargetKind.NONE)
    print_text(dump_snapshot(snapshot_of(wanted, None, settings, also=also)))
    return 0
