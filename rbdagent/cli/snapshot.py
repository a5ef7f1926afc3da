"""rbdagent snapshot."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from rbdagent.cli.data_source import snapshot_of
from rbdagent.cli.options import all_namespaces, cluster_target, observing, target_argument
from rbdagent.cli.output import complain, print_text
from rbdagent.errors import UsageError
from rbdagent.model import CollectScope

if TYPE_CHECKING:
    from collections.abc import Callable

    from rbdagent.config import Settings


@click.command("snapshot")
@target_argument(required=False)
@all_namespaces
@click.option(
    "--namespace", "-n", help="Namespace of TARGET; without TARGET, observe only this namespace."
)
@observing
def command(
    *, target: str | None, every: bool, namespace: str | None, settings: Callable[[], Settings]
) -> int:
    """Print a snapshot as one file that --from of a verb reads.

    Secrets in it are masked. Without TARGET, the file contains every mapping of this node, for
    `list --from`. With -A or -n, it contains the cluster or the namespace, for `diagnose -A --from`
    or `diagnose -n NAMESPACE --from`.
    """
    from rbdagent.model import Target, TargetKind
    from rbdagent.parse.target import parse_target
    from rbdagent.report.snapshot import dump_snapshot

    also = CollectScope.LIFECYCLE
    if target is not None and every:
        raise UsageError("-A means all namespaces: omit TARGET")
    if target is not None:
        wanted = parse_target(target, namespace=namespace)
    elif every or namespace is not None:
        wanted = cluster_target(every=every, namespace=namespace, selector=None)
        # Another verb may read the file later, about any volume.
        also |= CollectScope.EVERYTHING | CollectScope.ALL_REPORTS | CollectScope.BUDGETS
    else:
        wanted = Target(argument="", kind=TargetKind.NONE)
    found = snapshot_of(wanted, None, settings, also=also)
    print_text(dump_snapshot(found))
    failed = found.sources.failed
    for name, reason in failed.items():
        complain(f"not in this file: {name}: {reason}")
    is_empty = found.node is None and found.ceph is None and found.kubernetes is None
    return 1 if failed and is_empty else 0
