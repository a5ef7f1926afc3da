"""rbdagent snapshot."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from rbdagent.cli.flags import all_namespaces, everything, observing
from rbdagent.cli.output import say
from rbdagent.cli.source import snapshot_of
from rbdagent.errors import UsageError
from rbdagent.model import Also

if TYPE_CHECKING:
    from collections.abc import Callable

    from rbdagent.config import Settings


@click.command("snapshot")
@click.argument("target", required=False)
@all_namespaces
@click.option("--namespace", "-n", help="Namespace of TARGET; without one: of all there is.")
@observing
def command(
    *, target: str | None, every: bool, namespace: str | None, settings: Callable[[], Settings]
) -> int:
    """Print what was observed, redacted, as one file; --from FILE replays it.

    Without TARGET it holds every mapping of this node, for `list --from`; with -A or -n all that
    there is, for `diagnose -A --from` and `diagnose -n NAMESPACE --from`.
    """
    from rbdagent.model import Target, TargetKind
    from rbdagent.parse.target import parse_target
    from rbdagent.report.snapshot import dump_snapshot

    also = Also.LIFE
    if target is not None and every:
        raise UsageError("-A is all there is: not with a TARGET")
    if target is not None:
        wanted = parse_target(target, namespace=namespace)
    elif every or namespace is not None:
        wanted = everything(every=every, namespace=namespace, selector=None)
        also |= Also.EVERYTHING
    else:
        wanted = Target(given="", kind=TargetKind.NONE)
    say(dump_snapshot(snapshot_of(wanted, None, settings, also=also)))
    return 0
