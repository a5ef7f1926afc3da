"""One attempt to unmap: take a snapshot, plan, execute the plan if it is allowed, and record it.

The command line and the agent both use this module. They differ only in their history.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from rbdagent.commands import command
from rbdagent.correlate import correlate
from rbdagent.errors import NotFoundError, RbdagentError, UsageError
from rbdagent.model import (
    BootTime,
    Convergence,
    Diagnosis,
    FreezeState,
    History,
    HolderVerdict,
    MappingIdentity,
    NotObserved,
    Snapshot,
    Step,
    Target,
    TargetKind,
    UnmapOutcome,
    UnmapPlan,
    UnmapPolicy,
    UnmapRecord,
    UnmapRefusal,
    UnmapResult,
    Verdict,
    derived,
)
from rbdagent.report.public import public_text
from rbdagent.rules import diagnose
from rbdagent.unmap.orphan_history import remember
from rbdagent.unmap.preconditions import plan_unmap
from rbdagent.unmap.state_store import unmaps_of
from rbdagent.unmap.writer import NodePaths, carry_out
from rbdagent.verdicts.timing import seconds

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from rbdagent.unmap.state_store import StateDir

LONGEST_GAP_S: Final = 150.0
"""Seconds. Two snapshots that are further apart prove nothing about the time between them.

It is two and a half times the interval of the agent.
"""
_GONE: Final = frozenset({UnmapOutcome.UNMAPPED, UnmapOutcome.WATCH_LINGERS})


class UnmapContext(Struct, frozen=True, kw_only=True):
    """Holds the caller that unmaps, its unmap policy, and the location of its state."""

    by: str
    policy: UnmapPolicy
    freeze_file: Path
    state: StateDir


class Attempt:
    """One attempt to unmap one target on this node."""

    def __init__(
        self,
        target: Target,
        look: Callable[[Target], Snapshot],
        ask_ceph: Callable[[Target], Snapshot],
        *,
        unmap_context: UnmapContext,
        history: History | None,
        clock: Callable[[], BootTime] | None,
    ) -> None:
        """Prepare the attempt.

        Args:
            target: the volume to unmap; it must be mapped exactly once on this node.
            look: takes a new snapshot of a target from every source, with consistent reads.
            ask_ceph: takes a snapshot of Ceph only, for the clients that watch an image.
            unmap_context: the unmap policy and its context.
            history: the facts from earlier snapshots.
            clock: None if snapshots come from a file, which does not show the present state.
        """
        self._target = target
        self._collect = look
        self._ask_ceph = ask_ceph
        self._unmap_context = unmap_context
        self._history = history
        self._clock = clock
        self.recorded: UnmapRecord | None = None
        """The last record of this attempt."""

    def decide(self, *, after: Step | None = None) -> UnmapPlan | UnmapRefusal:
        """Take a snapshot and plan.

        Args:
            after: the step of this attempt since its last decision. The I/O of that step does not
                count as use: umount writes the super block, and luksClose reads the LUKS header.

        Raises:
            RbdagentError: the target is not mapped here, or is mapped more than once.
        """
        snapshot = self._collect(self._target)
        grace = seconds(self._unmap_context.policy.grace_s)
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
            _mapping_to_unmap(diagnosis, snapshot),
            diagnosis.volume,
            snapshot,
            history=history,
            policy=self._unmap_context.policy,
            switches=FreezeState(
                freeze_file=self._freeze_file(),
                unwritable="" if self._clock is None else self._unmap_context.state.unwritable(),
            ),
            now=self._clock() if self._clock is not None else None,
        )

    def _other_acts(self) -> tuple[UnmapRecord, ...] | NotObserved:
        """Return the recorded acts without the act of this attempt."""
        own = None if self.recorded is None else self.recorded.key
        acts = self._unmap_context.state.acts()
        return derived(acts, lambda known: tuple(act for act in known if act.key != own))

    def _freeze_file(self) -> str | NotObserved | None:
        if self._clock is None:
            return NotObserved(reason="the snapshot comes from a file")
        return _present(self._unmap_context.freeze_file)

    def act(self, plan: UnmapPlan, paths: NodePaths, *, deadline: float = math.inf) -> UnmapResult:
        """Execute a plan, and record it before the first step.

        Args:
            plan: the decision.
            paths: the paths at which the host is visible.
            deadline: in seconds of the monotonic clock, see `writer.carry_out`.

        Raises:
            RbdagentError: another rbdagent operates on the image, or the record cannot be written.
        """
        assert self._clock is not None  # noqa: S101 - a snapshot from a file gives no plan
        why = "; ".join(
            reason for condition in plan.conditions for reason in condition.observed[:1]
        )
        begun = self._begun(plan.identity, plan.persistent_volume, self._clock(), why)
        with self._unmap_context.state.only_one_on(_name_of(plan)):
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
                    convergence=Convergence.PENDING if result.outcome in _GONE else None,
                )
            )
        return result

    def refuse(self, refusal: UnmapRefusal) -> None:
        """Record a refusal: the unmap was due, and no step began.

        Raises:
            RbdagentError: the record cannot be written.
        """
        if self._clock is None or refusal.identity is None:
            return
        why = "its grace period is over"
        begun = self._begun(refusal.identity, refusal.persistent_volume, self._clock(), why)
        self._record(replace(begun, outcome=UnmapOutcome.REFUSED, message=_reasons(refusal)))

    def _begun(
        self, identity: MappingIdentity, volume: str | None, now: BootTime, why: str
    ) -> UnmapRecord:
        return UnmapRecord(
            boot_id=self._history.boot_id if self._history is not None else "",
            begun=now,
            by=self._unmap_context.by,
            identity=identity,
            persistent_volume=volume,
            why=why,
        )

    def _record(self, act: UnmapRecord) -> None:
        # An agent publishes the record.
        act = replace(act, why=public_text(act.why), message=public_text(act.message))
        self.recorded = act
        try:
            self._unmap_context.state.save_act(act)
        except OSError as error:
            raise self._unmap_context.state.cannot_record(error) from error

    def _watched(self, plan: UnmapPlan) -> bool | NotObserved:
        """Return whether the client of the mapping still watches the image."""
        spec = plan.identity.spec
        # The image is the target: the device no longer exists.
        image = Target(argument=str(spec), kind=TargetKind.IMAGE, image=spec)
        try:
            view = correlate(self._ask_ceph(image)).image_view
        except NotFoundError:
            # Every cluster answered, and none has the image: no client watches it.
            return False
        if view is None:
            return NotObserved(reason=f"which cluster has {spec} was not observed")
        if view.image_id != plan.identity.image_id:
            return NotObserved(reason=f"another image has the name {spec} now")
        own = plan.identity.client_id
        return derived(
            view.watchers, lambda watchers: any(watcher.client == own for watcher in watchers)
        )


def _reasons(refusal: UnmapRefusal | None) -> str:
    if refusal is None:
        return ""
    reasons = "; ".join(f"{code}: {reason}" for code, reason in refusal.reasons.items())
    return ". ".join(filter(None, (reasons, refusal.prevented_by_text)))


def _mapping_to_unmap(diagnosis: Diagnosis, snapshot: Snapshot) -> HolderVerdict:
    """Return the only mapping of the target on this node, else another holder, which is refused."""
    given = diagnosis.volume.target.argument
    other = snapshot.other_machine
    if other is not None:
        raise RbdagentError(f"nothing is unmapped here: {other.reason}", hint=other.hint)
    node = snapshot.node.node_name if snapshot.node is not None else None
    ask = command("rbdagent who-holds", given, node=node)
    local = [verdict for verdict, _ in diagnosis.mapped]
    if len(local) > 1:
        devices = " or ".join(mapping.device for _, mapping in diagnosis.mapped)
        raise UsageError(
            f"{given} is mapped here more than once",
            hint=(
                "name the device: ",
                command("rbdagent unmap", "DEVICE", node=node),
                f", where DEVICE is {devices}",
            ),
        )
    chosen = local or list(diagnosis.holders)
    if not chosen and diagnosis.verdict is Verdict.FREE:
        raise RbdagentError(
            f"{given} is not mapped here, and no client holds it",
            hint=(ask, " shows more"),
        )
    if not chosen:
        raise RbdagentError(
            f"no mapping of {given} was observed here, and not every other holder was observed",
            hint=(ask, " shows what was not observed; or name the device"),
        )
    return chosen[0]


def _name_of(plan: UnmapPlan) -> str:
    identity = plan.identity
    return f"{identity.fsid}-{identity.pool_id}-{identity.image_id}"


def _present(path: Path) -> str | NotObserved | None:
    """Return the path of a file if it exists; not observed if its directory does not exist.

    A missing directory may be a missing mount, which may contain the file.
    """
    from rbdagent.collect.files import names_in

    found = names_in(path.parent)
    if found is None:
        return NotObserved(
            reason=f"{path.parent}: no such directory; create it, or set another --freeze-file"
        )
    return derived(found, lambda names: str(path) if path.name in names else None)


def is_only_a_matter_of_time(decided: UnmapPlan | UnmapRefusal) -> bool:
    """Return whether only time is missing: the refusal becomes a plan if nothing else changes."""
    return isinstance(decided, UnmapRefusal) and all(
        condition.met or condition.pending for condition in decided.conditions
    )
