"""rbdagent unmap."""

from __future__ import annotations

import getpass
import math
import os
import time
from typing import TYPE_CHECKING, Any, Final

import click

from rbdagent.cli.data_source import snapshot_of
from rbdagent.cli.options import COLOR, VERBOSE, observing, target_argument
from rbdagent.cli.output import complain, data_text, layout_of, moment, print_text
from rbdagent.cli.unmap_options import acting, unmap_context_of
from rbdagent.errors import UsageError
from rbdagent.model import CollectScope

if TYPE_CHECKING:
    from collections.abc import Callable

    from msgspec import Struct

    from rbdagent.config import Settings
    from rbdagent.model import Snapshot, Target, UnmapPlan, UnmapRefusal, UnmapResult
    from rbdagent.unmap.executor import Attempt

_REFUSED: Final = 4
_RETRY_S: Final = 10.0


@click.command("unmap")
@target_argument(required=True)
@click.option("--namespace", "-n", help="Namespace of pvc/NAME and pod/NAME.")
@click.option("--yes", is_flag=True, help="Execute the plan. Without it, print the plan only.")
@click.option(
    "--wait",
    is_flag=True,
    help="If nothing else prevents the unmap, wait for the grace period to end.",
)
@click.option("--output", "-o", type=click.Choice(["table", "json", "yaml"]), default="table",
              show_default=True, help="Output format.")  # fmt: skip
@click.option("--from", "source", metavar="FILE",
              help="Print the plan for a snapshot file; - is stdin.")  # fmt: skip
@VERBOSE
@COLOR
@acting
@observing
def command(
    *,
    target: str,
    namespace: str | None,
    yes: bool,
    wait: bool,
    output: str,
    source: str | None,
    settings: Callable[[], Settings],
    **allowed: Any,  # noqa: ANN401 - the flags of the policy
) -> int:
    """Print the plan to unmap TARGET's orphan; --yes executes it.

    An orphan is a mapping on this node that nothing uses. There is no --force. If rbdagent refuses
    to unmap, it prints every reason and exits with code 4.
    """
    from rbdagent.parse.target import parse_target

    if source is not None and (yes or wait):
        raise UsageError("--from prints the plan for a snapshot: do not use --yes or --wait")
    time_left = TimeLeft(settings)
    asked = parse_target(target, namespace=namespace)
    attempt = _attempt(asked, source, time_left.settings, allowed)
    decided = _decide(attempt, time_left, wait=wait)
    from rbdagent.model import UnmapPlan
    from rbdagent.unmap.writer import node_paths

    if not yes or not isinstance(decided, UnmapPlan):
        return _print(decided, output)
    roots = settings().roots
    assert roots is not None  # noqa: S101 - a plan requires that the node was observed
    result = attempt.act(decided, node_paths(roots), deadline=time_left.deadline)
    return _print(result, output)


class TimeLeft:
    """The remaining time of --timeout: one unmap needs several observations and steps."""

    def __init__(self, settings: Callable[[], Settings]) -> None:
        """Store the function that returns the settings of the flags."""
        self._settings = settings
        self.deadline = math.inf
        """Of the monotonic clock."""

    def begin(self) -> None:
        """Restart the deadline for the next output."""
        self.deadline = math.inf

    def settings(self) -> Settings:
        """Return the settings of an observation that ends before the deadline.

        Its sentences enter the record, which the agent publishes.
        """
        given = self._settings().published()
        now = time.monotonic()
        self.deadline = min(self.deadline, now + given.timeout_s)
        return given.within(max(self.deadline - now, 0.0))


def _attempt(
    target: Target, source: str | None, settings: Callable[[], Settings], allowed: dict[str, Any]
) -> Attempt:
    from rbdagent.unmap.executor import Attempt

    # The plan shows the actions of --yes.
    unmap_context = unmap_context_of(allowed, by=_user(), may_unmap=True)
    history, warning = (None, "") if source is not None else unmap_context.state.history()
    if warning:
        complain(f"rbdagent: {warning}")

    workers = None
    if source is None:
        from rbdagent.collector import start_workers

        # The execution of a plan needs several observations.
        workers = start_workers(settings())
        click.get_current_context().call_on_close(workers.end)

    def observe(at: Target) -> Snapshot:
        return snapshot_of(at, source, settings, also=CollectScope.UNMAP_GUARDS, workers=workers)

    def ask_ceph(image: Target) -> Snapshot:
        from rbdagent.collector import only_ceph

        return snapshot_of(image, source, lambda: only_ceph(settings()), workers=workers)

    return Attempt(
        target,
        observe,
        ask_ceph,
        unmap_context=unmap_context,
        history=history,
        clock=None if source is not None else moment,
    )


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid {os.getuid()}"


def _decide(attempt: Attempt, time_left: TimeLeft, *, wait: bool) -> UnmapPlan | UnmapRefusal:
    """Observe and plan; with ``wait`` repeat while only the grace period is missing."""
    from rbdagent.model import UnmapRefusal
    from rbdagent.unmap.executor import is_only_a_matter_of_time

    decided = attempt.decide()
    while wait and isinstance(decided, UnmapRefusal) and is_only_a_matter_of_time(decided):
        pending = "; ".join(f"{code}: {reason}" for code, reason in decided.reasons.items())
        complain(f"rbdagent: waiting for the grace period to pass: {pending}")
        time.sleep(_RETRY_S)
        time_left.begin()
        decided = attempt.decide()
    return decided


def _print(decided: UnmapPlan | UnmapRefusal | UnmapResult, output: str) -> int:
    print_text(_text(decided) if output == "table" else data_text(_data(decided), output))
    return _exit_code(decided)


def _text(decided: UnmapPlan | UnmapRefusal | UnmapResult) -> str:
    from rbdagent.model import UnmapPlan, UnmapRefusal
    from rbdagent.report.text.unmap import unmap_plan, unmap_refusal, unmap_result

    layout = layout_of()
    if isinstance(decided, UnmapPlan):
        return unmap_plan(decided, layout)
    if isinstance(decided, UnmapRefusal):
        return unmap_refusal(decided, layout)
    return unmap_result(decided, layout)


def _data(decided: UnmapPlan | UnmapRefusal | UnmapResult) -> Struct:
    from rbdagent.model import UnmapPlan, UnmapRefusal
    from rbdagent.report.json import unmap

    if isinstance(decided, UnmapPlan):
        return unmap.unmap_plan(decided)
    if isinstance(decided, UnmapRefusal):
        return unmap.unmap_refusal(decided)
    return unmap.unmap_result(decided)


def _exit_code(decided: UnmapPlan | UnmapRefusal | UnmapResult) -> int:
    from rbdagent.model import UnmapOutcome, UnmapPlan, UnmapRefusal

    if isinstance(decided, UnmapPlan):
        return 0
    if isinstance(decided, UnmapRefusal):
        return _REFUSED
    if decided.outcome in {UnmapOutcome.REFUSED, UnmapOutcome.BUSY}:
        return _REFUSED
    return int(decided.outcome is not UnmapOutcome.UNMAPPED)
