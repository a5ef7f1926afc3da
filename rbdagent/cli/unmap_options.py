"""The flags that limit what ``unmap`` and ``agent`` may change, and what is built from them.

They are apart from the flags of the other verbs: no verb that only reads imports the writer.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from rbdagent.cli.options import Duration, option, with_options

if TYPE_CHECKING:
    from collections.abc import Callable

    from rbdagent.unmap.executor import UnmapContext
    from rbdagent.unmap.state_store import StateDir

_F = TypeVar("_F", bound="Callable[..., Any]")


def acting(command: _F) -> _F:
    """Add the flags that limit what a verb may change on the node."""
    options = (
        option("--grace-period", type=Duration(), default="10m", show_default=True,
               help="How long a mapping must have been orphaned without interruption."),
        option("--max-unmaps-per-hour", type=click.IntRange(min=0), default=6, show_default=True,
               help="Maximum number of unmaps per hour on this node."),
        option("--unmap-staged", is_flag=True,
               help="Allow unmounting a leftover staging mount."),
        option("--state-dir", default="/var/lib/rbdagent", show_default=True,
               help="Directory of the mapping history and the record of unmaps."),
        option("--freeze-file", default="/etc/rbdagent/freeze", show_default=True,
               help="If this file exists, nothing is unmapped."),
    )  # fmt: skip
    return with_options(options, command)


def state_of(allowed: dict[str, Any]) -> StateDir:
    """Return the state directory that the flags of ``acting`` name."""
    from rbdagent.unmap.state_store import StateDir

    return StateDir(Path(allowed["state_dir"]))


def unmap_context_of(allowed: dict[str, Any], *, by: str, may_unmap: bool) -> UnmapContext:
    """Return the unmap policy and its context, from the values of the flags of ``acting``."""
    from rbdagent.model import UnmapPolicy
    from rbdagent.unmap.executor import UnmapContext

    return UnmapContext(
        by=by,
        policy=UnmapPolicy(
            may_unmap=may_unmap,
            grace_s=allowed["grace_period"],
            most_unmaps_an_hour=allowed["max_unmaps_per_hour"],
            may_unmount_staging=allowed["unmap_staged"],
        ),
        freeze_file=Path(allowed["freeze_file"]),
        state=state_of(allowed),
    )
