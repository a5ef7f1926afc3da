"""The history of the mappings of a node, and the plans, results and records of unmaps."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

from rbdagent.model.common import (
    DeviceNumber,
    ImageIdentity,
    ImageSpec,
    Int64,
    NotObserved,
    Stored,
)
from rbdagent.model.node import IoCounters


class BootTime(Stored, frozen=True, kw_only=True):
    """A point in time on one boot of one node."""

    at: str
    """Wall-clock time, for output."""
    uptime_s: float
    """Seconds since boot, for calculation."""


class MappingIdentity(Stored, frozen=True, kw_only=True):
    """The fields that are equal in two snapshots if a mapping is the same mapping."""

    device: str
    incarnation: str | None
    fsid: str | None
    pool_id: Int64 | None
    spec: ImageSpec | None
    image_id: str | None
    snapshot: str | None
    client_id: Int64 | None

    @property
    def image(self) -> ImageIdentity | None:
        """The mapped image; None if its name is unknown."""
        if self.spec is None:
            return None
        return ImageIdentity(
            spec=self.spec, fsid=self.fsid, image_id=self.image_id, pool_id=self.pool_id
        )


class ObservedIo(Stored, frozen=True, kw_only=True):
    """I/O of a device between two observations that both found its mapping orphaned."""

    since: BootTime
    at: BootTime
    before: IoCounters
    after: IoCounters


class MappingHistory(Stored, frozen=True, kw_only=True):
    """The facts from earlier snapshots about one mapping."""

    identity: MappingIdentity
    first_seen: BootTime
    orphaned_since: BootTime | None = None
    """The first of the consecutive observations that found the mapping orphaned; None if the last
    observation did not."""
    needed_at: BootTime | None = None
    """Last observation in which a pod on this node needed the mapping, or in which that was
    unknown."""
    io_counters: IoCounters | None = None
    """Counters of the last observation; None if it did not observe them."""
    no_io_since: BootTime | None = None
    """The first of the consecutive observations that found the mapping orphaned with these counters
    and without a request in flight; None if the last observation did not."""
    last_io: ObservedIo | None = None
    """The last I/O that was observed while the mapping was orphaned."""


class History(Stored, frozen=True, kw_only=True):
    """The stored facts of rbdagent on one node; invalid after a reboot."""

    boot_id: str
    last_observed: BootTime
    mappings: tuple[MappingHistory, ...] = ()
    unmaps: tuple[BootTime, ...] | NotObserved = ()
    """The start times of unmaps since boot; the check of the limit decides which of them count."""


class UnmapPolicy(Struct, frozen=True, kw_only=True):
    """The actions that the operator allows."""

    may_unmap: bool = False
    grace_s: float = 600.0
    most_unmaps_an_hour: int = 6
    may_unmount_staging: bool = False
    """Whether the steps umount, luksClose and unmap are allowed, not only unmap."""


class FreezeState(Struct, frozen=True, kw_only=True):
    """What forbids every unmap on this node, in addition to annotations."""

    freeze_file: str | NotObserved | None
    """The path of the freeze file, if it exists."""
    unwritable: str = ""
    """Why an unmap cannot be recorded; empty if nothing speaks against it."""


class Condition(Struct, frozen=True, kw_only=True):
    """One of the conditions of an unmap, with its evidence."""

    number: int
    code: str
    requirement: str
    """The statement that must be true."""
    met: bool
    observed: tuple[str, ...]
    """The facts that show that the condition is met or, if it is not met, the reasons."""
    pending: bool = False
    """Whether the condition is not met, but will be met after some time if nothing else changes."""
    needs_node: bool = False
    """Whether a snapshot file cannot show that it is met: it is about the node's present state."""


class PreventingObject(Struct, frozen=True, kw_only=True):
    """The only object that causes a refusal: without it, only time is missing."""

    kind: str
    """Kind in Kubernetes (``Pod``); ``Process`` for a process that belongs to no pod."""
    namespace: str = ""
    name: str
    """The name; for a pod that is not in the API, its uid; for a process, its program."""
    pid: int | None = None

    def __str__(self) -> str:
        """Return the name for use in a sentence."""
        if self.pid is not None:
            return f"process {self.pid} ({self.name})"
        return (
            f"{self.kind} {self.namespace}/{self.name}"
            if self.namespace
            else (f"{self.kind} {self.name}")
        )


class StepKind(StrEnum):
    """Type of a write to the node."""

    UMOUNT = "umount"
    LUKS_CLOSE = "luksClose"
    UNMAP = "unmap"


class Step(Struct, frozen=True, kw_only=True):
    """One write to the node; the next step begins only after this one was observed to succeed."""

    kind: StepKind
    subject: str
    """A mount point, the name of a mapper, or the device."""
    device: DeviceNumber | None = None
    """Of the file system at the mount point; None for the other steps."""


class UnmapPlan(Struct, frozen=True, kw_only=True):
    """The plan if every condition is met: the steps, and the expected next actions."""

    node: str
    identity: MappingIdentity
    persistent_volume: str | None
    steps: tuple[Step, ...]
    conditions: tuple[Condition, ...]
    expects: tuple[str, ...] = ()
    """The actions of other components after which the volume is free."""
    io_counters: IoCounters
    """Counters of the device; they are compared again directly before the write."""


class UnmapRefusal(Struct, frozen=True, kw_only=True):
    """The refusal if at least one condition is not met: no step is executed."""

    node: str
    identity: MappingIdentity | None
    persistent_volume: str | None
    conditions: tuple[Condition, ...]
    prevented_by: PreventingObject | None = None
    """None if several objects prevent the unmap, or if the cause is not an object."""

    @property
    def codes(self) -> tuple[str, ...]:
        """The codes of the conditions that are not met."""
        return tuple(condition.code for condition in self.conditions if not condition.met)

    @property
    def first_code(self) -> str:
        """The code of the first unmet condition that does not end with time, else of the first."""
        unmet = [condition for condition in self.conditions if not condition.met]
        return next((condition.code for condition in unmet if not condition.pending), unmet[0].code)

    @property
    def prevented_by_text(self) -> str:
        """The sentence that names the only object that prevents the unmap; empty without one."""
        return (
            ""
            if self.prevented_by is None
            else f"Apart from time, only {self.prevented_by} prevents it"
        )

    @property
    def reasons(self) -> dict[str, str]:
        """The first reason for each code of an unmet condition."""
        return {
            condition.code: condition.observed[0]
            for condition in self.conditions
            if not condition.met
        }


class UnmapOutcome(StrEnum):
    """The outcome of an unmap."""

    UNMAPPED = "unmapped"
    """The device is no longer in sysfs, and its watch has ended."""
    WATCH_LINGERS = "watch-lingers"
    """The device is gone, but its watch has not (yet) ended: an OSD that hangs keeps it."""
    REFUSED = "refused"
    """The plan before a step no longer allowed the step."""
    BUSY = "busy"
    """The kernel refused: a process has the device open."""
    IN_PROGRESS = "in-progress"
    """The kernel is still unmapping, or the call does not return: no further step is tried."""
    FAILED = "failed"


class UnmapResult(Struct, frozen=True, kw_only=True):
    """The result of a plan, which may have been executed only in part."""

    plan: UnmapPlan
    outcome: UnmapOutcome
    message: str
    done: tuple[Step, ...] = ()
    """Steps that were observed to succeed, in order."""
    refusal: UnmapRefusal | None = None


class Convergence(StrEnum):
    """State of a volume after an unmap, while other components must complete the detach."""

    PENDING = "pending"
    CLEARED = "cleared"
    BLOCKED = "still-blocked"
    NOT_OBSERVED = "not-observed"
    """The time for the observation is over, and the state was not observed."""


class UnmapRecord(Stored, frozen=True, kw_only=True):
    """Record of one unmap that began or was refused: caller, mapping, reason and outcome."""

    boot_id: str
    begun: BootTime
    by: str
    """``agent``, or the user of the command line."""
    identity: MappingIdentity
    persistent_volume: str | None
    why: str
    outcome: UnmapOutcome | None = None
    """None if the unmap is in progress, or if rbdagent ended during it."""
    message: str = ""
    convergence: Convergence | None = None
    """None if nothing was unmapped, so that no other component has to act."""
    convergence_reasons: tuple[str, ...] = ()

    @property
    def key(self) -> tuple[BootTime, MappingIdentity]:
        """The values that distinguish the unmap from every other unmap of its node."""
        return self.begun, self.identity
