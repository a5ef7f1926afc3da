"""rbdagent snapshot."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from rbdagent.cli.flags import observing
from rbdagent.cli.output import say
from rbdagent.cli.source import snapshot_of
from rbdagent.model import Also

if TYPE_CHECKING:
    from collections.abc import Callable

    from rbdagent.config import Settings


@click.command("snapshot")
@click.argument("target", required=False)
@click.option("--namespace", "-n", help="Namespace of pvc/NAME and pod/NAME.")
@observing
def command(*, target: str | None, namespace: str | None, settings: Callable[[], Settings]) -> int:
    """Print what was observed, redacted, as one file; --from FILE replays it.

    Without TARGET it holds every mapping of this node, for `list --from`.
    """
    from rbdagent.model import Target, TargetKind
    from rbdagent.parse.target import parse_target
    from rbdagent.report.snapshot import dump_snapshot

    wanted = (
        parse_target(target, namespace=namespace)
        if target
        else Target(given="", kind=TargetKind.NONE)
    )
    say(dump_snapshot(snapshot_of(wanted, None, settings, also=Also.LIFE)))
    return 0
