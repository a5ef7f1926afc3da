"""One attempt at unmapping: look, plan, and perhaps act, keeping a record of it.

The command line and the agent go the same way here; only what they remember before it differs.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from rbdagent.commands import command, line_of
from rbdagent.correlate import correlate
from rbdagent.diagnose import diagnose
from rbdagent.diagnose.times import seconds
from rbdagent.errors import NotFoundError, RbdagentError, UsageError
from rbdagent.history import remember
from rbdagent.model import (
    Act,
    Diagnosis,
    Followed,
    History,
    JudgedHolder,
    MappingIdentity,
    Moment,
    NotObserved,
    Policy,
    Snapshot,
    Step,
    Switches,
    Target,
    TargetKind,
    UnmapOutcome,
    UnmapPlan,
    UnmapRefusal,
    UnmapResult,
    Verdict,
)
from rbdagent.parse.shown import shown
from rbdagent.plan import plan_unmap
from rbdagent.report.public import PublicText
from rbdagent.state import unmaps_of
from rbdagent.unmap import NodePaths, carry_out

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from rbdagent.state import StateDir

LONGEST_GAP_S: Final = 150.0
"""Looks that lie further apart saw no unbroken row: two of the agent's own, and a half."""
_GONE: Final = frozenset({UnmapOutcome.UNMAPPED, UnmapOutcome.WATCH_LINGERS})


class Leave(Struct, frozen=True, kw_only=True):
    """Who acts, what he is allowed, and where it is kept."""

    by: str
    policy: Policy
    freeze_file: Path
    state: StateDir


class Attempt:
    """One try at one target of this node."""

    def __init__(
        self,
        target: Target,
        look: Callable[[Target], Snapshot],
        ask_ceph: Callable[[Target], Snapshot],
        *,
        leave: Leave,
        history: History | None,
        clock: Callable[[], Moment] | None,
    ) -> None:
        """Prepare it.

        Args:
            target: what to unmap; it must be mapped here once.
            look: looks at everything anew, for a target, with consistent reads.
            ask_ceph: looks at Ceph alone: who watches an image.
            leave: what is allowed.
            history: what earlier looks saw.
            clock: None where looks come from a file, which proves nothing of now.
        """
        self._target = target
        self._look = look
        self._ask_ceph = ask_ceph
        self._leave = leave
        self._history = history
        self._clock = clock
        self._public: Callable[[str], str] = shown
        """Makes what the last look says fit for the record: an agent publishes that."""
        self.recorded: Act | None = None
        """What this attempt has put on record last."""

    def decide(self, *, after: Step | None = None) -> UnmapPlan | UnmapRefusal:
        """Look and plan.

        Args:
            after: the step of this attempt that was done since the last time. Its I/O is no sign
                of use: umount writes the super block, luksClose reads the LUKS header.

        Raises:
            RbdagentError: nothing of the target is mapped, or it cannot be told which is meant.
        """
        snapshot = self._look(self._target)
        self._public = PublicText(snapshot)
        grace = seconds(self._leave.policy.grace_s)
        diagnosis = diagnose(correlate(snapshot), snapshot, grace=grace)
        if self._clock is not None:
            self._history = remember(
                self._history,
                (diagnosis,),
                snapshot,
                longest_gap_s=LONGEST_GAP_S,
                own_io=self.recorded.identity if self.recorded and after else None,
            )
        history = self._history and unmaps_of(self._other_acts(), self._history)
        return plan_unmap(
            _the_one(diagnosis),
            diagnosis.use,
            snapshot,
            history=history,
            policy=self._leave.policy,
            switches=Switches(freeze_file=self._freeze_file()),
            now=self._clock() if self._clock is not None else None,
        )

    def _other_acts(self) -> tuple[Act, ...] | NotObserved:
        """Return the acts on record; what this attempt has begun itself is not one more of them."""
        acts = self._leave.state.acts()
        if isinstance(acts, NotObserved) or self.recorded is None:
            return acts
        own = self.recorded.key
        return tuple(act for act in acts if act.key != own)

    def _freeze_file(self) -> str | NotObserved | None:
        if self._clock is None:
            return NotObserved(reason="the look comes from a file")
        return _present(self._leave.freeze_file)

    def act(self, plan: UnmapPlan, paths: NodePaths, *, deadline: float = math.inf) -> UnmapResult:
        """Carry a plan out; it is on record from before the first step.

        Args:
            plan: what was decided.
            paths: where the host is seen.
            deadline: of the monotonic clock, see :func:`rbdagent.unmap.carry_out`.

        Raises:
            RbdagentError: another rbdagent is at work on the image, or no record can be kept.
        """
        assert self._clock is not None  # noqa: S101 - a look from a file gives no plan
        why = "; ".join(said for each in plan.conditions for said in each.observed[:1])
        begun = self._begun(plan.identity, plan.persistent_volume, self._clock(), why)
        with self._leave.state.only_one_on(_name_of(plan)):
            self._record(begun)
            try:
                result = carry_out(
                    plan,
                    again=self.decide,
                    watched=lambda: self._watched(plan),
                    paths=paths,
                    deadline=deadline,
                )
            except RbdagentError as error:
                self._record(replace(begun, outcome=UnmapOutcome.FAILED, message=str(error)))
                raise
            self._record(
                replace(
                    begun,
                    outcome=result.outcome,
                    message=": ".join(filter(None, (result.message, _reasons(result.refusal)))),
                    followed=Followed.PENDING if result.outcome in _GONE else None,
                )
            )
        return result

    def refuse(self, refusal: UnmapRefusal) -> None:
        """Put a refusal on record: it was time to act, and nothing was begun.

        Raises:
            RbdagentError: no record can be kept.
        """
        if self._clock is None or refusal.identity is None:
            return
        why = "its grace period is over"
        begun = self._begun(refusal.identity, refusal.persistent_volume, self._clock(), why)
        self._record(replace(begun, outcome=UnmapOutcome.REFUSED, message=_reasons(refusal)))

    def _begun(self, identity: MappingIdentity, volume: str | None, now: Moment, why: str) -> Act:
        return Act(
            boot_id=self._history.boot_id if self._history is not None else "",
            begun=now,
            by=self._leave.by,
            identity=identity,
            persistent_volume=volume,
            why=why,
        )

    def _record(self, act: Act) -> None:
        act = replace(act, why=self._public(act.why), message=self._public(act.message))
        self.recorded = act
        try:
            self._leave.state.save_act(act)
        except OSError as error:
            raise RbdagentError(
                f"{error.filename or self._leave.state.path}: {error.strerror}: what is done must "
                "be written down first",
                hint="--state-dir names a directory that rbdagent may write to",
            ) from error

    def _watched(self, plan: UnmapPlan) -> bool | NotObserved:
        """Look whether the mapping's client still watches the image."""
        spec = plan.identity.spec
        # By its image: the device that was asked about is gone.
        image = Target(given=str(spec), kind=TargetKind.IMAGE, image=spec)
        try:
            view = correlate(self._ask_ceph(image)).image_view
        except NotFoundError:
            # Every cluster answered, and none has the image any more: nobody watches it either.
            return False
        if view is None:
            return NotObserved(reason="no cluster told of the image")
        if isinstance(view.watchers, NotObserved):
            return view.watchers
        return any(each.client == plan.identity.client_id for each in view.watchers)


def _reasons(refusal: UnmapRefusal | None) -> str:
    told = refusal.reasons if refusal is not None else {}
    return "; ".join(f"{code}: {reason}" for code, reason in told.items())


def _the_one(diagnosis: Diagnosis) -> JudgedHolder:
    """Give the one mapping of the target on this node; else a holder, which will be refused."""
    given = diagnosis.use.target.given
    asked = command("rbdagent who-holds", given)
    local = [each for each, _ in diagnosis.mapped]
    if len(local) > 1:
        devices = " or ".join(mapping.device for _, mapping in diagnosis.mapped)
        raise UsageError(
            f"{given} is mapped here more than once",
            hint=f"name the device: rbdagent unmap DEVICE, of {devices}",
        )
    chosen = local or list(diagnosis.holders)
    if not chosen and diagnosis.verdict is Verdict.FREE:
        raise RbdagentError(
            f"{given} is not mapped here, and no client holds it",
            hint=f"{line_of(asked)} shows more",
        )
    if not chosen:
        raise RbdagentError(
            f"no mapping of {given} was seen here; who else holds it was not fully observed",
            hint=f"{line_of(asked)} shows what was not; or name the device",
        )
    return chosen[0]


def _name_of(plan: UnmapPlan) -> str:
    identity = plan.identity
    return f"{identity.fsid}-{identity.pool_id}-{identity.image_id}"


def _present(path: Path) -> str | NotObserved | None:
    """Return the path of a file that is there; without its directory that is not known.

    The directory may be a mount that is missing now, and the file in it.
    """
    from rbdagent.observe.files import names_in

    found = names_in(path.parent)
    if found is None:
        return NotObserved(
            reason=f"{path.parent}: no such directory; make it, or name another by --freeze-file"
        )
    if isinstance(found, NotObserved):
        return found
    return str(path) if path.name in found else None


def is_only_a_matter_of_time(decided: UnmapPlan | UnmapRefusal) -> bool:
    """Tell whether time alone will make a plan of it, if nothing else happens."""
    return isinstance(decided, UnmapRefusal) and all(
        each.met or each.passes for each in decided.conditions
    )
