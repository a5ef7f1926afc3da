"""Following what was unmapped until the volume is free, or until it is clear that it is not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from rbdagent.errors import NotFoundError, RbdagentError
from rbdagent.follow import Outlook, follow
from rbdagent.model import Act, Followed, History, NotObserved, Target, TargetKind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from rbdagent.agent.loop import Seen
    from rbdagent.model import Snapshot
    from rbdagent.state import StateDir

FOLLOWED_S: Final = 900.0
"""Whoever has not done his part by then is told of, and waits for a person."""


class Follower:
    """Follows the acts on record, whoever did them: the agent, or the command line."""

    def __init__(
        self,
        state: StateDir,
        look_closely: Callable[[Target], Snapshot],
        log: Any,  # noqa: ANN401 - structlog's bound logger
    ) -> None:
        """Take where acts are kept, and what looks at one volume with all pods of its claims."""
        self._state = state
        self._look_closely = look_closely
        self._log = log

    def told_of(self, seen: Seen) -> Seen:
        """Give a look with what came of the acts, and those of which there is news."""
        history, known = seen.history, seen.acts
        if history is None or isinstance(known, NotObserved):
            return seen
        looked = [(act, self._outlook(act, seen, history)) for act in _followed(known)]
        changed = [
            replace(act, followed=outlook.state, followed_because=outlook.because)
            for act, outlook in looked
            if outlook is not None
            and (outlook.state, outlook.because) != (act.followed, act.followed_because)
        ]
        for act in changed:
            self._keep(act)
        news = tuple(each for each in changed if each.followed is not Followed.PENDING)
        for act in news:
            self._log.warning(
                "followed",
                device=act.identity.device,
                persistent_volume=act.persistent_volume,
                state=str(act.followed),
                because="; ".join(act.followed_because),
            )
        acts = {each.key: each for each in (*known, *changed)}
        return replace(seen, acts=tuple(acts.values()), news=(*seen.news, *news))

    def _outlook(self, act: Act, seen: Seen, history: History) -> Outlook | None:
        """Look what came of an act; None where nobody follows it any more."""
        waited_s = history.last_look.uptime_s - act.begun.uptime_s
        if act.boot_id != history.boot_id or waited_s > FOLLOWED_S:
            if act.followed is not Followed.PENDING:
                return None
            said = (*act.followed_because, "it is not followed any longer")
            return Outlook(state=Followed.UNSEEN, because=said)
        outlook = follow(act, seen.snapshot, waited_s=waited_s)
        if outlook.state is not Followed.CLEARED or act.persistent_volume is None:
            return outlook
        # The agent's own looks list the pods of its node alone: who waits elsewhere this one tells.
        name = act.persistent_volume
        volume = Target(given=f"pv/{name}", kind=TargetKind.PERSISTENT_VOLUME, name=name)
        try:
            closely = self._look_closely(volume)
        except NotFoundError:
            return outlook
        except RbdagentError as error:
            return Outlook(state=Followed.PENDING, because=(f"not observed: {error}",))
        return follow(act, closely, waited_s=waited_s)

    def _keep(self, act: Act) -> None:
        try:
            self._state.save_act(act)
        except OSError as error:
            self._log.error("state", message=f"{error.filename}: {error.strerror}")


def is_under_way(acts: Iterable[Act]) -> bool:
    """Tell whether somebody still has to do his part after one of these acts."""
    return any(each.followed is Followed.PENDING for each in acts)


def is_followed(acts: Iterable[Act], history: History | None) -> bool:
    """Tell whether what came of one of these acts is still looked for."""
    return history is not None and any(
        each.boot_id == history.boot_id
        and history.last_look.uptime_s - each.begun.uptime_s <= FOLLOWED_S
        for each in _followed(acts)
    )


def _followed(acts: Iterable[Act]) -> tuple[Act, ...]:
    return tuple(each for each in acts if each.followed in {Followed.PENDING, Followed.BLOCKED})
