"""The agent's loop: observe, record, unmap if that is enabled, report; then wait for a change."""

from __future__ import annotations

import random
import secrets
import time
from typing import TYPE_CHECKING, Final, NamedTuple

from msgspec.structs import replace

from rbdagent.agent.cycle import CycleResult
from rbdagent.agent.follower import Follower, is_followed, is_under_way
from rbdagent.agent.neighbours import Neighbours
from rbdagent.agent.objects import OwnObjects
from rbdagent.agent.waiting_events import is_about_to_be_reported
from rbdagent.codes import Code
from rbdagent.collect.failure import as_source_error
from rbdagent.collector import collect_snapshot, only_ceph, with_images
from rbdagent.correlate import NodeVolumes, images_waited_for, volumes_of_node
from rbdagent.correlate.image_identity import mappings_of
from rbdagent.errors import RbdagentError
from rbdagent.lifecycle.blocked_pods import blocked_volumes
from rbdagent.log import bind, bound
from rbdagent.model import (
    BootTime,
    CollectScope,
    Diagnosis,
    History,
    KubeView,
    NotObserved,
    PreventingObject,
    Snapshot,
    Source,
    SourceState,
    Target,
    TargetKind,
    UnmapOutcome,
    UnmapPlan,
    UnmapRecord,
    UnmapRefusal,
    Verdict,
    observed_of,
)
from rbdagent.parse.brief import brief
from rbdagent.rules import diagnose
from rbdagent.unmap.executor import LONGEST_GAP_S, Attempt, UnmapContext
from rbdagent.unmap.orphan_history import remember
from rbdagent.unmap.preconditions import unmaps_of_last_hour
from rbdagent.unmap.state_store import unmaps_of
from rbdagent.unmap.writer import node_paths
from rbdagent.verdicts.momentary import momentary
from rbdagent.verdicts.timing import seconds

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Container

    from rbdagent.agent.kernel_events import Wake
    from rbdagent.collector import Workers
    from rbdagent.config import Settings
    from rbdagent.log import Log

_ALL: Final = Target(argument="", kind=TargetKind.NONE)
_KUBE_S: Final = 300.0
"""The API's last answer is reused for this time while nothing on the node changes."""
_JITTER: Final = 0.1
_RETRY_S: Final = 5.0
_UNSETTLED_S: Final = 10.0
"""Interval while the loop waits for the end of a process or for a time: neither wakes the loop."""
_LONGEST_REST_S: Final = 10.0
"""Upper limit of the pause after a cycle. The pause is three times the duration of the cycle;
changes collect during the pause."""
_LIMITED: Final = Code.NOT_YET_OR_NOT_ALLOWED
"""The condition that includes the limit of unmaps per hour."""
_RELEASED: Final = frozenset({Verdict.PINNED, Verdict.STAGED})


class UnmapAttempt(NamedTuple):
    """The result of one attempt to unmap an orphan."""

    acted: bool = False
    refused: UnmapRecord | None = None
    """A refusal that was not reported before."""


class Agent:
    """The agent of one node; :meth:`run` returns after :meth:`Wake.end`."""

    def __init__(
        self,
        settings: Settings,
        unmap_context: UnmapContext,
        wake: Wake,
        *,
        resync_s: float,
        clock: Callable[[], BootTime],
        report: Callable[[CycleResult], None],
        log: Log,
        workers: Workers | None = None,
    ) -> None:
        """Prepare the agent.

        Args:
            settings: the settings of the observations.
            unmap_context: the unmap policy, and the directory of the persistent state.
            wake: ends a wait.
            resync_s: the longest wait between two cycles; ten percent are random.
            clock: returns the time of the node.
            report: receives the result of every cycle; an error in it does not end the loop.
            log: receives the changes, the unmaps and the failures; each cycle only for debugging.
            workers: the long-running processes that observe the node and Ceph.
        """
        self._settings = settings
        self._unmap_context = unmap_context
        self._wake = wake
        self._resync_s = resync_s
        self._clock = clock
        self._report = report
        self._log = log
        self._workers = workers
        self._alive: Callable[[], None] = lambda: None
        self._kube: tuple[KubeView | None, Source] | None = None
        self._kube_at = 0.0
        self._asked_for: frozenset[tuple[str, str | None]] = frozenset()
        """The mappings at the time of the last API request."""
        self._objects = (
            None if settings.kube is None else OwnObjects(settings.kube, settings.node_name)
        )
        self._neighbours = Neighbours(settings.kube, settings.node_name)
        self._follower = Follower(unmap_context.state, self._collect_for_unmap, log)
        self._refused: dict[str, UnmapRefusal | None] = {}
        """The last refusal by device, after the grace period; reported again when it changes."""
        self._beat = time.monotonic()
        self.seen: CycleResult | None = None
        self._complete_at: str | None = None
        self._history = self._load_state()

    def _load_state(self) -> History | None:
        history, problem = self._unmap_context.state.history()
        acts = self._unmap_context.state.acts()
        if problem:
            self._log.warning("state", message=problem)
        if isinstance(acts, NotObserved):
            self._log.error("state", message=acts.reason, hint=acts.hint)
        for act in observed_of(acts):
            if act.outcome is None:
                self._close(act)
        return history

    def _close(self, act: UnmapRecord) -> None:
        """Record an unmap that a previous rbdagent process did not finish as failed."""
        message = "rbdagent ended before this unmap did; the next cycles show what is left of it"
        try:
            self._unmap_context.state.save_act(
                replace(act, outcome=UnmapOutcome.FAILED, message=message)
            )
        except (OSError, RbdagentError) as error:
            # The next start with a writable directory closes the record.
            self._log.error("state", message=f"the record of an unmap is not closed: {error}")
        self._log.warning("unmap interrupted", device=act.identity.device, begun=act.begun.at)

    @property
    def beat_age_s(self) -> float:
        """Seconds since the loop last made progress."""
        return time.monotonic() - self._beat

    def _report_progress(self) -> None:
        """Record that the loop made progress, for /livez and systemd's watchdog."""
        self._beat = time.monotonic()
        self._alive()

    def run(self, *, once: bool = False, alive: Callable[[], None] = lambda: None) -> bool:
        """Run cycles until :meth:`Wake.end` is called; return whether the last one succeeded.

        Args:
            once: return after one cycle.
            alive: is called whenever the loop makes progress.
        """
        self._alive = alive
        why, has_succeeded = "start", False
        while why != "end":
            # An id of random digits is unique after a restart too.
            with bound(cycle=secrets.token_hex(4)):
                pause = self._contained_cycle(why)
            has_succeeded = pause is not None
            self._report_progress()
            if once:
                break
            why = self._wait(_RETRY_S if pause is None else pause)
        return has_succeeded

    def _contained_cycle(self, why: str) -> float | None:
        """Run a cycle; return the seconds to the next one, or None if the cycle failed."""
        try:
            self._cycle(why)
            return self._pause()
        except RbdagentError as error:
            self._log.error("cycle failed", error=str(error), hint=error.hint)
        except Exception as error:  # noqa: BLE001 - a defect must not end the agent
            self._log.error("this is a defect of rbdagent", exc_info=error)
        return None

    def _wait(self, pause: float) -> str:
        """Wait for a change, in short steps, between which the loop reports progress."""
        deadline = time.monotonic() + pause
        rest = min(3 * self.seen.took_s, _LONGEST_REST_S, pause) if self.seen is not None else 0.0
        if self._wake.rest(rest):
            return "end"
        while True:
            left = max(deadline - time.monotonic(), 0.0)
            # Wait at least once, to read the changes that occurred during the pause above.
            why = self._wake.wait(min(left, _RETRY_S))
            self._report_progress()
            if why != "time" or left <= _RETRY_S:
                return why

    def _pause(self) -> float:
        """Return the seconds to the next cycle; fewer if a grace period ends earlier."""
        # Agents that were started together must not send their requests at the same time.
        resync = self._resync_s * random.uniform(1 - _JITTER, 1)  # noqa: S311
        due = [left_s for left_s in self._seconds_left().values() if left_s > 0]
        soon = [_UNSETTLED_S] if self._is_unsettled() else []
        return min([resync, *due, *soon])

    def _is_unsettled(self) -> bool:
        """Return whether the loop waits for a change that does not wake it."""
        if self.seen is not None and (
            is_under_way(observed_of(self.seen.acts)) or is_about_to_be_reported(self.seen)
        ):
            return True
        return self._unmap_context.policy.may_unmap and self._has(_RELEASED)

    def _seconds_left(self) -> dict[str, float]:
        """Return the seconds until each orphan's grace period ends, by device.

        Zero or less means that it has ended. The result is empty if the policy allows no unmap.
        """
        if self._history is None or not self._unmap_context.policy.may_unmap:
            return {}
        now = self._clock().uptime_s
        return {
            mapping.identity.device: mapping.orphaned_since.uptime_s
            + self._unmap_context.policy.grace_s
            - now
            for mapping in self._history.mappings
            if mapping.orphaned_since is not None
        }

    # One cycle ------------------------------------------------------------------------------------

    def _cycle(self, why: str) -> None:
        # An attempt takes a more detailed snapshot. So an orphan whose grace period has ended needs
        # no snapshot before the attempt.
        tried = self._act() if why == "time" else []
        result = self._observe("act" if _acted(tried) else why)
        if not tried:
            tried = self._act()
            if _acted(tried):
                # The unmapped device no longer exists, so observe again before the report.
                result = self._observe("act")
        refused = tuple(attempt.refused for attempt in tried if attempt.refused is not None)
        acts, ended = self._unmap_context.state.acts(), self._unmap_context.state.ended()
        still_refused = tuple(refusal for refusal in self._refused.values() if refusal is not None)
        result = replace(result, acts=acts, news=refused, ended=ended, refused=still_refused)
        result = self._follower.with_results(result)
        self._report_progress()
        self._log_cycle(why, result, self.seen)
        self.seen = result
        self._report(result)

    def _observe(self, why: str) -> CycleResult:
        started = time.monotonic()
        uses, diagnoses = self._judged(why)
        known = frozenset() if self.seen is None else momentary(self.seen.diagnoses)
        if momentary(diagnoses) - known:
            uses, diagnoses = self._judged("change")
        snapshot = uses.snapshot
        self._history = remember(self._history, diagnoses, snapshot, longest_gap_s=LONGEST_GAP_S)
        self._save()
        if not snapshot.sources.failed:
            self._complete_at = snapshot.observed_at
        return CycleResult(
            snapshot=snapshot,
            diagnoses=diagnoses,
            history=self._history,
            took_s=time.monotonic() - started,
            at=time.monotonic(),
            blocked=blocked_volumes(snapshot, uses.waited_for),
            complete_at=self._complete_at,
        )

    def _judged(self, why: str) -> tuple[NodeVolumes, tuple[Diagnosis, ...]]:
        uses = self._neighbours.with_results(self._collect(why))
        self._report_progress()
        grace = seconds(self._unmap_context.policy.grace_s)
        return uses, tuple(diagnose(volume, uses.snapshot, grace=grace) for volume in uses.mapped)

    def _collect(self, why: str) -> NodeVolumes:
        follows = self._follows()
        asks = why != "time" or follows or self._needs_api()
        # No mapping leads to the name of a volume that was unmapped.
        by_name = self._objects if asks and not follows else None
        snapshot = collect_snapshot(
            _ALL,
            self._settings,
            now=lambda: self._clock().at,
            kube=None if asks else self._kube,
            own=None if by_name is None else by_name.observe,
            workers=self._workers,
        )
        source = snapshot.sources.kubernetes
        ceph = self._workers and self._workers.ceph
        snapshot = with_images(snapshot, images_waited_for(snapshot), self._settings, ceph)
        uses = volumes_of_node(snapshot)
        if self._objects is not None:
            uses = self._objects.with_strangers(uses)
        if asks:
            self._neighbours.forget()
            self._kube_at = time.monotonic()
            self._asked_for = _mapped(uses.snapshot)
        view = uses.snapshot.kubernetes
        self._kube = (view and replace(view, consistent=False), source)
        return uses

    def _needs_api(self) -> bool:
        """Return whether the next snapshot needs new requests to the API."""
        if self._kube is None or time.monotonic() - self._kube_at > _KUBE_S:
            return True
        if self._kube[1].state is SourceState.FAILED or self.seen is None:
            return True
        if self.seen.snapshot.other_machine is not None:
            # kubelet may have reported the present boot since.
            return True
        if _mapped(self.seen.snapshot) != self._asked_for:
            return True
        # An unmap, by the agent or by a user, relies on every snapshot since the mapping became an
        # orphan: a pod that started and ended in between must be in one of them. The controller
        # detaches an unstaged volume after the last change on the node. Everything else changes
        # together with the node, which wakes the loop.
        return self._has({Verdict.ORPHANED, Verdict.STAGED})

    def _follows(self) -> bool:
        """Return whether the follow-up of an unmap has not ended."""
        return is_followed(observed_of(self._unmap_context.state.acts()), self._history)

    def _has(self, verdicts: Container[Verdict]) -> bool:
        """Return whether a mapping of this node had one of these verdicts in the last cycle."""
        return self.seen is not None and any(
            holder_verdict.verdict in verdicts
            for diagnosis in self.seen.diagnoses
            for holder_verdict in diagnosis.local
        )

    def _save(self) -> None:
        if self._history is None:
            return
        try:
            self._unmap_context.state.save_history(self._history)
        except OSError as error:
            self._log.error("state", message=f"{error.filename}: {error.strerror}")

    # Acting ---------------------------------------------------------------------------------------

    def _act(self) -> list[UnmapAttempt]:
        """Attempt to unmap every orphan whose grace period has ended, the oldest one first."""
        by_time_left = sorted(self._seconds_left().items(), key=lambda item: item[1])
        due = [device for device, left_s in by_time_left if left_s <= 0]
        self._refused = {device: self._refused[device] for device in due if device in self._refused}
        return [self._try(device) for device in due]

    def _is_at_limit(self) -> bool:
        """Return whether the limit of unmaps per hour is reached; True if the records are lost."""
        if self._history is None:
            return False
        begun = unmaps_of(self._unmap_context.state.acts(), self._history).unmaps
        if isinstance(begun, NotObserved):
            return True
        done = unmaps_of_last_hour(begun, self._clock())
        return done >= self._unmap_context.policy.most_unmaps_an_hour

    def _try(self, device: str) -> UnmapAttempt:
        last = self._refused.get(device)
        if last is not None and _LIMITED in last.codes and self._is_at_limit():
            # This limit ends only with time. The refusal is already reported, so no snapshot is
            # needed.
            return UnmapAttempt()
        attempt = Attempt(
            Target(argument=device, kind=TargetKind.DEVICE, name=device),
            self._collect_for_unmap,
            self._ask_ceph,
            unmap_context=self._unmap_context,
            history=self._history,
            clock=self._clock,
        )
        with bound(device=device, persistent_volume=None):
            return self._tried(device, attempt)

    def _tried(self, device: str, attempt: Attempt) -> UnmapAttempt:
        try:
            decided = attempt.decide()
            # Not the name in an earlier snapshot: the device may have another volume now.
            bind(persistent_volume=decided.persistent_volume)
            if not isinstance(decided, UnmapPlan):
                return self._refuse(device, attempt, decided)
            roots = self._settings.roots
            assert roots is not None  # noqa: S101 - a plan needs a snapshot of the node
            result = attempt.act(decided, node_paths(roots))
        except Exception as error:  # noqa: BLE001 - the next observation must still run
            found = as_source_error(error, device)
            self._log.error("unmap failed", error=str(found), hint=found.hint)
            return UnmapAttempt()
        self._report_progress()
        self._log.warning(
            "unmap",
            image=str(decided.identity.spec),
            outcome=str(result.outcome),
            message=result.message,
            **(_logged(result.refusal) if result.refusal is not None else {}),
        )
        if result.outcome is not UnmapOutcome.REFUSED:
            self._refused.pop(device, None)
            return UnmapAttempt(acted=True)
        is_new = self._is_new_refusal(device, result.refusal)
        return UnmapAttempt(acted=True, refused=attempt.recorded if is_new else None)

    def _refuse(self, device: str, attempt: Attempt, refusal: UnmapRefusal) -> UnmapAttempt:
        """Report why an orphan stays mapped after its grace period; record a new reason."""
        is_new = self._is_new_refusal(device, refusal)
        (self._log.info if is_new else self._log.debug)("unmap refused", **_logged(refusal))
        if not is_new:
            return UnmapAttempt()
        try:
            attempt.refuse(refusal)
        except RbdagentError as error:
            # The unmap record may be the reason of the refusal. Report the refusal anyway.
            self._log.error("state", message=str(error), hint=error.hint)
        return UnmapAttempt(refused=attempt.recorded)

    def _is_new_refusal(self, device: str, refusal: UnmapRefusal | None) -> bool:
        """Store the refusal of a device; return whether it differs from the previous one."""
        is_new = device not in self._refused or _why(self._refused[device]) != _why(refusal)
        self._refused[device] = refusal
        return is_new

    def _collect_for_unmap(self, target: Target) -> Snapshot:
        """Return a snapshot with consistent reads and with all facts that can forbid an unmap."""
        self._report_progress()
        return collect_snapshot(
            target,
            self._settings,
            now=lambda: self._clock().at,
            also=CollectScope.UNMAP_GUARDS,
            workers=self._workers,
        )

    def _ask_ceph(self, image: Target) -> Snapshot:
        self._report_progress()
        settings = only_ceph(self._settings)
        return collect_snapshot(
            image, settings, now=lambda: self._clock().at, workers=self._workers
        )

    def _log_cycle(self, why: str, result: CycleResult, before: CycleResult | None) -> None:
        took_s, failed = round(result.took_s, 3), result.snapshot.sources.failed
        self._log.debug("cycle", why=why, took_s=took_s, **result.verdicts, failed=failed)
        # The reason of a failure may contain a number that differs each time.
        if before is None or (before.verdicts, before.snapshot.sources.failed.keys()) != (
            result.verdicts,
            failed.keys(),
        ):
            self._log.info("changed", **result.verdicts, failed=failed)


def _mapped(snapshot: Snapshot) -> frozenset[tuple[str, str | None]]:
    """Return the identities of a snapshot's mappings, for comparison with another snapshot."""
    return frozenset(
        (mapping.device, mapping.incarnation) for mapping in mappings_of(snapshot.node)
    )


def _why(refusal: UnmapRefusal | None) -> tuple[tuple[str, ...], PreventingObject | None]:
    """Return the part of a refusal to compare; without the PID, as a program may restart often."""
    if refusal is None:
        return (), None
    return refusal.codes, refusal.prevented_by and replace(refusal.prevented_by, pid=None)


def _logged(refusal: UnmapRefusal) -> dict[str, str]:
    """Return the reasons of a refusal by their codes, as a line of the log has room for them."""
    return {code: brief(reason) for code, reason in refusal.reasons.items()}


def _acted(tried: list[UnmapAttempt]) -> bool:
    return any(attempt.acted for attempt in tried)


def run_until(agent: Agent, wake: Wake, ended: threading.Event, alive: Callable[[], None]) -> None:
    """Run the loop; at its end, also after an error, set ``ended`` and end every wait."""
    try:
        agent.run(alive=alive)
    finally:
        ended.set()
        wake.end()
