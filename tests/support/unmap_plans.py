"""Builders for unmap attempts: every default allows the unmap, every keyword forbids it."""

# ruff: noqa: ANN401 - a builder takes any field of what it builds

from __future__ import annotations

from typing import Any, Final

from msgspec.structs import replace

from rbdagent.correlate import correlate
from rbdagent.model import (
    BootTime,
    DeviceNumber,
    FreezeState,
    History,
    IoCounters,
    MappingHistory,
    MappingIdentity,
    NotObserved,
    ObservedIo,
    Snapshot,
    TargetKind,
    UnmapPlan,
    UnmapPolicy,
    UnmapRefusal,
)
from rbdagent.rules import diagnose
from rbdagent.unmap.orphan_history import identity_of
from rbdagent.unmap.preconditions import plan_unmap
from tests.support.snapshots import (
    NO_IO,
    NOW,
    luks,
    mapping,
    target,
    world,
)

GRACE_S: Final = 600.0
UPTIME_S: Final = 5000.0
DEVICE: Final = "/dev/rbd0"
INCARNATION: Final = "diskseq:7"
DM: Final = DeviceNumber(major=254, minor=0)
LUKS: Final = luks(device=DM)
LAST_CYCLE: Final = BootTime(at=NOW, uptime_s=UPTIME_S)
LEAVE: Final = UnmapPolicy(may_unmap=True, grace_s=GRACE_S)
LADDER: Final = replace(LEAVE, may_unmount_staging=True)
NO_SWITCH: Final = FreezeState(freeze_file=None)


def moment(ago_s: float) -> BootTime:
    """Return the moment that many seconds before the snapshot."""
    return BootTime(at=f"{ago_s:g}s ago", uptime_s=UPTIME_S - ago_s)


def seen(
    *,
    mapped: dict[str, Any] | None = None,
    on_node: dict[str, Any] | None = None,
    in_kube: dict[str, Any] | None = None,
    **parts: Any,
) -> Snapshot:
    """Build a snapshot of the device that contains everything that a plan needs."""
    parts.setdefault("target", target(argument=DEVICE, kind=TargetKind.DEVICE, name=DEVICE))
    return world(
        mapped={"incarnation": INCARNATION} | (mapped or {}),
        on_node={"uptime_s": UPTIME_S} | (on_node or {}),
        in_kube={"consistent": True, "frozen_namespaces": ()} | (in_kube or {}),
        **parts,
    )


def identity(**changes: Any) -> MappingIdentity:
    """Return the identity of the default mapping."""
    return identity_of(mapping(incarnation=INCARNATION, **changes))


def history(
    *,
    of: MappingIdentity | None = None,
    first_seen: float = 2 * GRACE_S,
    orphaned_for: float | None = 2 * GRACE_S,
    needed_ago: float | None = None,
    unmaps: int = 0,
    no_io_for: float | None = 2 * GRACE_S,
    io_counters: IoCounters | None = NO_IO,
    last_io: ObservedIo | None = None,
) -> History:
    """Return the history of one mapping; ages are in seconds before the snapshot."""
    remembered = MappingHistory(
        identity=of or identity(),
        first_seen=moment(first_seen),
        orphaned_since=None if orphaned_for is None else moment(orphaned_for),
        needed_at=None if needed_ago is None else moment(needed_ago),
        io_counters=io_counters,
        no_io_since=None if no_io_for is None else moment(no_io_for),
        last_io=last_io,
    )
    return History(
        boot_id="b001",
        last_observed=LAST_CYCLE,
        mappings=(remembered,),
        unmaps=(moment(60),) * unmaps,
    )


def planned(
    look: Snapshot,
    *,
    remembered: History | None = None,
    policy: UnmapPolicy = LEAVE,
    freeze_file: str | NotObserved | None = None,
    decided_after: float | None = 1.0,
) -> UnmapPlan | UnmapRefusal:
    """Diagnose a snapshot, and plan the unmap of its first holder."""
    diagnosis = diagnose(correlate(look), look)
    return plan_unmap(
        diagnosis.holders[0],
        diagnosis.volume,
        look,
        history=remembered,
        policy=policy,
        switches=FreezeState(freeze_file=freeze_file),
        now=None if decided_after is None else moment(-decided_after),
    )
