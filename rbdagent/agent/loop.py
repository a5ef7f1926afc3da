"""The loop: look, remember, act where that was switched on, tell; then wait for a change."""

from __future__ import annotations

import random
import time
import traceback
from collections import Counter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from rbdagent.act import LONGEST_GAP_S, Attempt, Leave
from rbdagent.agent.follower import Follower, is_followed, is_under_way
from rbdagent.agent.neighbours import Neighbours
from rbdagent.agent.objects import OwnObjects
from rbdagent.correlate import NodeUses, images_waited_for, uses_of_node
from rbdagent.correlate.identity import mappings_of
from rbdagent.diagnose import diagnose
from rbdagent.diagnose.blocked import blocked_volumes
from rbdagent.diagnose.times import seconds
from rbdagent.errors import RbdagentError
from rbdagent.history import remember
from rbdagent.look import look, only_ceph, with_images
from rbdagent.model import (
    Act,
    Also,
    BlockedVolume,
    Diagnosis,
    History,
    KubeView,
    Moment,
    NotObserved,
    Snapshot,
    Source,
    SourceState,
    Target,
    TargetKind,
    UnmapOutcome,
    UnmapPlan,
    UnmapRefusal,
    Verdict,
    observed_of,
)
from rbdagent.observe.failure import as_source_error
from rbdagent.plan import unmaps_of_last_hour
from rbdagent.state import unmaps_of
from rbdagent.unmap import node_paths

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Container

    from rbdagent.agent.wake import Wake
    from rbdagent.config import Settings
    from rbdagent.look import KeptCeph

_ALL: Final = Target(given="", kind=TargetKind.NONE)
_KUBE_S: Final = 300.0
"""What the API told stays so long, while nothing on the node changes."""
_JITTER: Final = 0.1
_RETRY_S: Final = 5.0
_UNSETTLED_S: Final = 10.0
"""A process that ends, and a time that passes, wake nobody: look for them where they matter."""
_LONGEST_REST_S: Final = 10.0
"""After a look the agent rests three times as long as that took: changes gather meanwhile."""
_LIMITED: Final = "RBD508"
"""The condition that the limit of unmaps an hour belongs to."""
_LETTING_GO: Final = frozenset({Verdict.PINNED, Verdict.STAGED})


class Seen(Struct, frozen=True, kw_only=True):
    """What one look showed, for whoever tells of it."""

    snapshot: Snapshot
    diagnoses: tuple[Diagnosis, ...]
    history: History | None
    took_s: float
    at: float
    """Of the monotonic clock."""
    acts: tuple[Act, ...] | NotObserved = ()
    """Those on record, the last act last."""
    news: tuple[Act, ...] = ()
    """Of which this cycle has learnt: what is refused, and what came of acts."""
    ended: dict[str, int] | NotObserved = {}
    """All acts and refusals on record, by how they ended."""
    blocked: tuple[BlockedVolume, ...] = ()
    """What keeps pods of this node from starting."""
    complete_at: str | None = None
    """When the last look was made that no source failed; None: there was none yet."""

    @property
    def verdicts(self) -> Counter[str]:
        """Count the mappings of this node by their verdict."""
        return Counter(
            str(each.verdict) for diagnosis in self.diagnoses for each in diagnosis.local
        )


class Tried(NamedTuple):
    """What came of one try at an orphan."""

    acted: bool = False
    refused: Act | None = None
    """A refusal that was not told before."""


class Agent:
    """One node's agent; :meth:`run` ends when the wake is told to."""

    def __init__(
        self,
        settings: Settings,
        leave: Leave,
        wake: Wake,
        *,
        resync_s: float,
        clock: Callable[[], Moment],
        tell: Callable[[Seen], None],
        log: Any,  # noqa: ANN401 - structlog's bound logger
        ceph: KeptCeph | None = None,
    ) -> None:
        """Prepare it.

        Args:
            settings: where to look.
            leave: what it may do, and where it keeps what it remembers.
            wake: what ends a wait.
            resync_s: the longest wait between two looks; ten percent are random.
            clock: gives the time of the node.
            tell: is given every look; what it raises ends nothing.
            log: gets one line a cycle, and one an act.
            ceph: who stays connected to Ceph.
        """
        self._settings = settings
        self._leave = leave
        self._wake = wake
        self._resync_s = resync_s
        self._clock = clock
        self._tell = tell
        self._log = log
        self._ceph = ceph
        self._alive: Callable[[], None] = lambda: None
        self._kube: tuple[KubeView | None, Source] | None = None
        self._kube_at = 0.0
        self._asked_for: frozenset[tuple[str, str | None]] = frozenset()
        """What was mapped when the API was asked."""
        self._objects = (
            None if settings.kube is None else OwnObjects(settings.kube, settings.node_name)
        )
        self._neighbours = Neighbours(settings.kube, settings.node_name)
        self._follower = Follower(leave.state, self._look_closely, log)
        self._refused: dict[str, tuple[str, ...]] = {}
        """Why each device was refused that is due; told again when the reasons change."""
        self._beat = time.monotonic()
        self.seen: Seen | None = None
        self._complete_at: str | None = None
        self._history = self._remembered()

    def _remembered(self) -> History | None:
        history, told = self._leave.state.history()
        acts = self._leave.state.acts()
        if told:
            self._log.warning("state", message=told)
        if isinstance(acts, NotObserved):
            self._log.error("state", message=acts.reason, hint=acts.cure)
        for each in observed_of(acts):
            if each.outcome is None:
                self._close(each)
        return history

    def _close(self, act: Act) -> None:
        """Tell of an act in the midst of which rbdagent ended; the next look shows what is left."""
        message = "rbdagent ended before this act did; the next looks tell what is left of it"
        self._leave.state.save_act(replace(act, outcome=UnmapOutcome.FAILED, message=message))
        self._log.warning("interrupted", device=act.identity.device, begun=act.begun.at)

    @property
    def beat_age_s(self) -> float:
        """How long ago the loop last went round, or came one step further."""
        return time.monotonic() - self._beat

    def _go_on(self) -> None:
        """Let the heart beat."""
        self._beat = time.monotonic()
        self._alive()

    def run(self, *, once: bool = False, alive: Callable[[], None] = lambda: None) -> None:
        """Go round until the wake is told to end.

        Args:
            once: end after one cycle.
            alive: is called whenever the loop goes round or comes one step further.
        """
        self._alive = alive
        why = "start"
        while why != "end":
            try:
                self._cycle(why)
                pause = self._pause()
            except RbdagentError as error:
                self._log.error("cycle failed", error=str(error), hint=error.hint)
                pause = _RETRY_S
            except Exception as error:  # noqa: BLE001 - a defect must not end who watches
                where = traceback.format_exc(limit=-3)
                self._log.error("this is a defect of rbdagent", error=repr(error), where=where)
                pause = _RETRY_S
            self._go_on()
            if once:
                return
            why = self._wait(pause)

    def _wait(self, pause: float) -> str:
        """Wait in pieces: the heart beats also while nothing happens."""
        deadline = time.monotonic() + pause
        rest = min(3 * self.seen.took_s, _LONGEST_REST_S, pause) if self.seen is not None else 0.0
        if self._wake.rest(rest):
            return "end"
        while True:
            left = max(deadline - time.monotonic(), 0.0)
            # Once at least: what came while it rested waits to be seen.
            why = self._wake.wait(min(left, _RETRY_S))
            self._go_on()
            if why != "time" or left <= _RETRY_S:
                return why

    def _pause(self) -> float:
        """Give the time to the next look: sooner where an orphan's grace period ends sooner."""
        # Agents that were started together must not all ask at once.
        resync = self._resync_s * random.uniform(1 - _JITTER, 1)  # noqa: S311
        due = [left_s for left_s in self._dues().values() if left_s > 0]
        soon = [_UNSETTLED_S] if self._is_unsettled() else []
        return min([resync, *due, *soon])

    def _is_unsettled(self) -> bool:
        """Tell whether something is about to change that wakes nobody, and is waited for."""
        if self.seen is not None and is_under_way(observed_of(self.seen.acts)):
            return True
        return self._leave.policy.may_unmap and self._has(_LETTING_GO)

    def _dues(self) -> dict[str, float]:
        """Give the seconds until each orphan's grace period is over, by device; below zero: it is.

        Empty where nothing may be unmapped.
        """
        if self._history is None or not self._leave.policy.may_unmap:
            return {}
        now = self._clock().uptime_s
        return {
            each.identity.device: each.orphaned_since.uptime_s + self._leave.policy.grace_s - now
            for each in self._history.mappings
            if each.orphaned_since is not None
        }

    # One cycle ------------------------------------------------------------------------------------

    def _cycle(self, why: str) -> None:
        # Each attempt looks for itself, and more closely: what is due waits for no look before it.
        tried = self._act() if why == "time" else []
        seen = self._observe("act" if _acted(tried) else why)
        if not tried:
            tried = self._act()
            if _acted(tried):
                # What was unmapped is no longer there: look again before anybody is told.
                seen = self._observe("act")
        refused = tuple(each.refused for each in tried if each.refused is not None)
        acts, ended = self._leave.state.acts(), self._leave.state.ended()
        seen = replace(seen, acts=acts, news=refused, ended=ended)
        seen = self._follower.told_of(seen)
        self._go_on()
        self.seen = seen
        self._log_cycle(why, seen)
        self._tell(seen)

    def _observe(self, why: str) -> Seen:
        started = time.monotonic()
        uses = self._neighbours.told_of(self._look(why))
        snapshot = uses.snapshot
        self._go_on()
        grace = seconds(self._leave.policy.grace_s)
        diagnoses = tuple(diagnose(each, snapshot, grace=grace) for each in uses.mapped)
        self._history = remember(self._history, diagnoses, snapshot, longest_gap_s=LONGEST_GAP_S)
        self._save()
        if not snapshot.sources.failed:
            self._complete_at = snapshot.observed_at
        return Seen(
            snapshot=snapshot,
            diagnoses=diagnoses,
            history=self._history,
            took_s=time.monotonic() - started,
            at=time.monotonic(),
            blocked=blocked_volumes(snapshot, uses.waited_for),
            complete_at=self._complete_at,
        )

    def _look(self, why: str) -> NodeUses:
        follows = self._follows()
        asks = why != "time" or follows or self._wants_api()
        # What an act has freed is mapped no more, and no name leads there.
        by_name = self._objects if asks and not follows else None
        taken = look(
            _ALL,
            self._settings,
            now=lambda: self._clock().at,
            kube=None if asks else self._kube,
            own=None if by_name is None else by_name.observe,
            ceph=self._ceph,
        )
        source = taken.sources.kubernetes
        taken = with_images(taken, images_waited_for(taken), self._settings, self._ceph)
        uses = uses_of_node(taken)
        if self._objects is not None:
            uses = self._objects.with_strangers(uses)
        if asks:
            self._neighbours.forget()
            self._kube_at = time.monotonic()
            self._asked_for = _mapped(uses.snapshot)
        view = uses.snapshot.kubernetes
        self._kube = (view and replace(view, consistent=False), source)
        return uses

    def _wants_api(self) -> bool:
        """Tell whether what the API told last is not good enough for one more look."""
        if self._kube is None or time.monotonic() - self._kube_at > _KUBE_S:
            return True
        if self._kube[1].state is SourceState.FAILED or self.seen is None:
            return True
        if _mapped(self.seen.snapshot) != self._asked_for:
            return True
        # Whoever unmaps it, agent or not, relies on every look since: a pod that came and went
        # must have been seen. A volume that was let go is detached after the last change on the
        # node. All else changes with the node, and that wakes.
        return self._has({Verdict.ORPHANED, Verdict.STAGED})

    def _follows(self) -> bool:
        """Tell whether what came of an act is still looked for."""
        return is_followed(observed_of(self._leave.state.acts()), self._history)

    def _has(self, verdicts: Container[Verdict]) -> bool:
        """Tell whether the last look gave a mapping of this node one of these verdicts."""
        return self.seen is not None and any(
            each.verdict in verdicts
            for diagnosis in self.seen.diagnoses
            for each in diagnosis.local
        )

    def _save(self) -> None:
        if self._history is None:
            return
        try:
            self._leave.state.save_history(self._history)
        except OSError as error:
            self._log.error("state", message=f"{error.filename}: {error.strerror}")

    # Acting ---------------------------------------------------------------------------------------

    def _act(self) -> list[Tried]:
        """Try every orphan whose grace period is over, the longest waiting first."""
        dues = sorted(self._dues().items(), key=lambda each: each[1])
        due = [device for device, left_s in dues if left_s <= 0]
        self._refused = {each: self._refused[each] for each in due if each in self._refused}
        return [self._try(each) for each in due]

    def _is_at_limit(self) -> bool:
        """Return whether the limit of unmaps an hour is reached; without the record it may be."""
        if self._history is None:
            return False
        begun = unmaps_of(self._leave.state.acts(), self._history).unmaps
        if isinstance(begun, NotObserved):
            return True
        done = unmaps_of_last_hour(begun, self._clock())
        return done >= self._leave.policy.most_unmaps_an_hour

    def _try(self, device: str) -> Tried:
        if _LIMITED in self._refused.get(device, ()) and self._is_at_limit():
            # Only time ends that: it has been refused and told, and need not be observed closely.
            return Tried()
        attempt = Attempt(
            Target(given=device, kind=TargetKind.DEVICE, name=device),
            self._look_closely,
            self._ask_ceph,
            leave=self._leave,
            history=self._history,
            clock=self._clock,
        )
        try:
            decided = attempt.decide()
            if not isinstance(decided, UnmapPlan):
                return self._refuse(device, attempt, decided)
            roots = self._settings.roots
            assert roots is not None  # noqa: S101 - a plan rests on a look at the node
            result = attempt.act(decided, node_paths(roots))
        except Exception as error:  # noqa: BLE001 - the look that follows must not be lost
            found = as_source_error(error, device)
            self._log.error("unmap failed", device=device, error=str(found), hint=found.cure)
            return Tried()
        self._go_on()
        self._log.warning(
            "unmap",
            device=device,
            persistent_volume=decided.persistent_volume,
            image=str(decided.identity.spec),
            outcome=str(result.outcome),
            message=result.message,
            **(result.refusal.reasons if result.refusal is not None else {}),
        )
        if result.outcome is not UnmapOutcome.REFUSED:
            return Tried(acted=True)
        codes = result.refusal.codes if result.refusal is not None else ()
        is_new = self._is_new_refusal(device, codes)
        return Tried(acted=True, refused=attempt.recorded if is_new else None)

    def _refuse(self, device: str, attempt: Attempt, refusal: UnmapRefusal) -> Tried:
        """Tell why an orphan whose grace period is over stays: on record where that is news."""
        self._log.info("refused", device=device, **refusal.reasons)
        if not self._is_new_refusal(device, refusal.codes):
            return Tried()
        try:
            attempt.refuse(refusal)
        except RbdagentError as error:
            # The record itself may be the reason: it is told all the same.
            self._log.error("state", message=str(error), hint=error.hint)
        return Tried(refused=attempt.recorded)

    def _is_new_refusal(self, device: str, codes: tuple[str, ...]) -> bool:
        """Remember why a device was refused; tell whether that is not why it was the last time."""
        last = self._refused.get(device)
        self._refused[device] = codes
        return last != codes

    def _look_closely(self, target: Target) -> Snapshot:
        """Look with consistent reads, and at all that forbids an act."""
        self._go_on()
        return look(
            target,
            self._settings,
            now=lambda: self._clock().at,
            also=Also.SWITCHES,
            ceph=self._ceph,
        )

    def _ask_ceph(self, image: Target) -> Snapshot:
        self._go_on()
        settings = only_ceph(self._settings)
        return look(image, settings, now=lambda: self._clock().at, ceph=self._ceph)

    def _log_cycle(self, why: str, seen: Seen) -> None:
        took_s, failed = round(seen.took_s, 3), seen.snapshot.sources.failed
        self._log.info("cycle", why=why, took_s=took_s, **seen.verdicts, failed=failed)


def _mapped(snapshot: Snapshot) -> frozenset[tuple[str, str | None]]:
    """Give what tells the mappings of a look from those of another."""
    return frozenset((each.device, each.incarnation) for each in mappings_of(snapshot.node))


def _acted(tried: list[Tried]) -> bool:
    return any(each.acted for each in tried)


def run_until(agent: Agent, wake: Wake, ended: threading.Event, alive: Callable[[], None]) -> None:
    """Run the loop, and say when it has ended, however it did."""
    try:
        agent.run(alive=alive)
    finally:
        ended.set()
        wake.end()
