"""rbdagent unmap."""

from __future__ import annotations

import getpass
import math
import os
import time
from typing import TYPE_CHECKING, Any, Final

import click
from msgspec.structs import replace

from rbdagent.cli.flags import acting, leave_of, observing
from rbdagent.cli.output import complain, data_text, has_colour, moment, say
from rbdagent.cli.source import snapshot_of
from rbdagent.errors import UsageError
from rbdagent.model import Also

if TYPE_CHECKING:
    from collections.abc import Callable

    from rbdagent.act import Attempt
    from rbdagent.config import Settings
    from rbdagent.model import Snapshot, Target, UnmapPlan, UnmapRefusal, UnmapResult

_REFUSED: Final = 4
_LOOK_EVERY_S: Final = 10.0


@click.command("unmap")
@click.argument("target", required=True)
@click.option("--namespace", "-n", help="Namespace of pvc/NAME and pod/NAME.")
@click.option("--yes", is_flag=True, help="Act, if the plan stands. Without it: say what would be.")
@click.option("--wait", is_flag=True, help="Look on for the grace period where nobody did before.")
@click.option("--output", "-o", type=click.Choice(["table", "json", "yaml"]), default="table",
              show_default=True, help="Form of the answer.")  # fmt: skip
@click.option("--from", "source", metavar="FILE", help="Plan for a snapshot; - is stdin.")
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
    """Unmap the orphan behind TARGET on this node: print the plan or the refusal, with --yes act.

    There is no --force. What is refused exits 4.
    """
    from rbdagent.parse.target import parse_target

    if source is not None and (yes or wait):
        raise UsageError("--from shows what would be decided; it cannot act or wait")
    time_left = TimeLeft(settings)
    asked = parse_target(target, namespace=namespace)
    attempt = _attempt(asked, source, time_left.settings, allowed)
    decided = _decide(attempt, time_left, wait=wait)
    from rbdagent.model import UnmapPlan
    from rbdagent.unmap import node_paths

    if not yes or not isinstance(decided, UnmapPlan):
        return _tell(decided, output)
    roots = settings().roots
    assert roots is not None  # noqa: S101 - a plan rests on a look at the node
    result = attempt.act(decided, node_paths(roots), deadline=time_left.deadline)
    return _tell(result, output)


class TimeLeft:
    """What is left of --timeout: an act takes several looks and steps, and is one answer."""

    def __init__(self, settings: Callable[[], Settings]) -> None:
        """Take the settings that the flags give; they are read when they are needed."""
        self._settings = settings
        self.deadline = math.inf
        """Of the monotonic clock."""

    def begin(self) -> None:
        """Start the clock of the next answer."""
        self.deadline = math.inf

    def settings(self) -> Settings:
        """Return the settings of a look that ends with the answer."""
        given = self._settings()
        now = time.monotonic()
        self.deadline = min(self.deadline, now + given.timeout_s)
        return replace(given, timeout_s=max(self.deadline - now, 0.0))


def _attempt(
    target: Target, source: str | None, settings: Callable[[], Settings], allowed: dict[str, Any]
) -> Attempt:
    from rbdagent.act import Attempt

    # Who asks for a plan wants to know what --yes would do.
    leave = leave_of(allowed, by=_user(), may_unmap=True)
    history, told = (None, "") if source is not None else leave.state.history()
    if told:
        complain(f"rbdagent: {told}")

    ceph = None
    if source is None:
        from rbdagent.look import keep_ceph

        # A plan that is carried out takes several looks.
        ceph = keep_ceph(settings())
        if ceph is not None:
            click.get_current_context().call_on_close(ceph.end)

    def look(at: Target) -> Snapshot:
        return snapshot_of(at, source, settings, also=Also.SWITCHES, ceph=ceph)

    def ask_ceph(image: Target) -> Snapshot:
        from rbdagent.look import only_ceph

        return snapshot_of(image, source, lambda: only_ceph(settings()), ceph=ceph)

    return Attempt(
        target,
        look,
        ask_ceph,
        leave=leave,
        history=history,
        clock=None if source is not None else moment,
    )


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid {os.getuid()}"


def _decide(attempt: Attempt, time_left: TimeLeft, *, wait: bool) -> UnmapPlan | UnmapRefusal:
    """Look and plan; with ``wait`` again and again while only time is missing."""
    from rbdagent.act import is_only_a_matter_of_time
    from rbdagent.model import UnmapRefusal

    decided = attempt.decide()
    while wait and isinstance(decided, UnmapRefusal) and is_only_a_matter_of_time(decided):
        pending = "; ".join(f"{code}: {reason}" for code, reason in decided.reasons.items())
        complain(f"rbdagent: waiting for the grace period to pass: {pending}")
        time.sleep(_LOOK_EVERY_S)
        time_left.begin()
        decided = attempt.decide()
    return decided


def _tell(decided: UnmapPlan | UnmapRefusal | UnmapResult, output: str) -> int:
    from rbdagent.model import UnmapOutcome, UnmapPlan, UnmapRefusal
    from rbdagent.report import machine, text

    colour = has_colour()
    if isinstance(decided, UnmapPlan):
        data, words = machine.unmap_plan(decided), text.unmap_plan(decided, colour=colour)
        code = 0
    elif isinstance(decided, UnmapRefusal):
        data, words = machine.unmap_refusal(decided), text.unmap_refusal(decided, colour=colour)
        code = _REFUSED
    else:
        data, words = machine.unmap_result(decided), text.unmap_result(decided, colour=colour)
        refused = decided.outcome in {UnmapOutcome.REFUSED, UnmapOutcome.BUSY}
        code = _REFUSED if refused else int(decided.outcome is not UnmapOutcome.UNMAPPED)
    say(words if output == "table" else data_text(data, output))
    return code
