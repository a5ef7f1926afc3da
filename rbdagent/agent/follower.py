"""Follow-up of an unmap, until the volume is free or the time for the follow-up has passed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from rbdagent.errors import NotFoundError, RbdagentError
from rbdagent.model import Convergence, History, NotObserved, Target, TargetKind, UnmapRecord
from rbdagent.unmap.followup import FollowupState, follow

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from rbdagent.agent.cycle import CycleResult
    from rbdagent.log import Log
    from rbdagent.model import Snapshot
    from rbdagent.unmap.state_store import StateDir

FOLLOWED_S: Final = 900.0
"""After this time the agent stops the follow-up and reports what still blocks the volume."""


class Follower:
    """Follows the recorded unmaps, both the agent's and those of the command line."""

    def __init__(
        self,
        state: StateDir,
        look_closely: Callable[[Target], Snapshot],
        log: Log,
    ) -> None:
        """Store the state and the collaborators.

        Args:
            state: contains the unmap records.
            look_closely: returns a snapshot of one volume with all pods of its claims.
            log: receives a line for each result.
        """
        self._state = state
        self._collect_for_unmap = look_closely
        self._log = log

    def with_results(self, observed: CycleResult) -> CycleResult:
        """Return a cycle's result with the present state of the unmaps, and which ones changed."""
        history, known = observed.history, observed.acts
        if history is None or isinstance(known, NotObserved):
            return observed
        outlooks = [(act, self._followup_state(act, observed, history)) for act in _followed(known)]
        changed = [
            replace(act, convergence=outlook.state, convergence_reasons=outlook.reasons)
            for act, outlook in outlooks
            if outlook is not None
            and (outlook.state, outlook.reasons) != (act.convergence, act.convergence_reasons)
        ]
        for act in changed:
            self._save(act)
        news = tuple(act for act in changed if act.convergence is not Convergence.PENDING)
        for act in news:
            self._log.warning(
                "unmap followed up",
                device=act.identity.device,
                persistent_volume=act.persistent_volume,
                state=str(act.convergence),
                reasons="; ".join(act.convergence_reasons),
            )
        acts = {act.key: act for act in (*known, *changed)}
        return replace(observed, acts=tuple(acts.values()), news=(*observed.news, *news))

    def _followup_state(
        self, act: UnmapRecord, observed: CycleResult, history: History
    ) -> FollowupState | None:
        """Return the present result of an unmap; None if its follow-up has ended."""
        waited_s = history.last_observed.uptime_s - act.begun.uptime_s
        if act.boot_id != history.boot_id or waited_s > FOLLOWED_S:
            if act.convergence is not Convergence.PENDING:
                return None
            reasons = (*act.convergence_reasons, "the follow-up has ended")
            return FollowupState(state=Convergence.NOT_OBSERVED, reasons=reasons)
        outlook = follow(act, observed.snapshot, waited_s=waited_s)
        if outlook.state is not Convergence.CLEARED or act.persistent_volume is None:
            return outlook
        # The agent's own snapshots list only the pods of its node. A snapshot of the volume also
        # shows the pods that wait on other nodes.
        name = act.persistent_volume
        volume = Target(argument=f"pv/{name}", kind=TargetKind.PERSISTENT_VOLUME, name=name)
        try:
            closely = self._collect_for_unmap(volume)
        except NotFoundError:
            return outlook
        except RbdagentError as error:
            return FollowupState(state=Convergence.PENDING, reasons=(f"not observed: {error}",))
        return follow(act, closely, waited_s=waited_s)

    def _save(self, act: UnmapRecord) -> None:
        try:
            self._state.save_act(act)
        except (OSError, RbdagentError) as error:
            self._log.error("state", message=f"the follow-up of an unmap is not recorded: {error}")


def is_under_way(acts: Iterable[UnmapRecord]) -> bool:
    """Return whether the follow-up of one of these unmaps still waits for another component."""
    return any(act.convergence is Convergence.PENDING for act in acts)


def is_followed(acts: Iterable[UnmapRecord], history: History | None) -> bool:
    """Return whether the follow-up of one of these unmaps has not ended."""
    return history is not None and any(
        act.boot_id == history.boot_id
        and history.last_observed.uptime_s - act.begun.uptime_s <= FOLLOWED_S
        for act in _followed(acts)
    )


def _followed(acts: Iterable[UnmapRecord]) -> tuple[UnmapRecord, ...]:
    return tuple(
        act for act in acts if act.convergence in {Convergence.PENDING, Convergence.BLOCKED}
    )
