"""The facts that only a series of snapshots shows: since when, and whether continuously.

Ages are based on the uptime of the node, because the wall clock may jump. A reboot ends every
mapping.
"""

from __future__ import annotations

from msgspec.structs import replace

from rbdagent.correlate.holders import needs_volumes
from rbdagent.correlate.image_identity import identity_of_mapping
from rbdagent.model import (
    BootTime,
    Diagnosis,
    History,
    Holder,
    HolderVerdict,
    Mapping,
    MappingHistory,
    MappingIdentity,
    NotObserved,
    ObservedIo,
    Snapshot,
    Verdict,
)


def identity_of(mapping: Mapping) -> MappingIdentity:
    """Return the fields that are equal in every snapshot if a mapping is the same mapping."""
    image = identity_of_mapping(mapping)
    return MappingIdentity(
        device=mapping.device,
        incarnation=mapping.incarnation,
        fsid=mapping.fsid,
        pool_id=mapping.pool_id,
        spec=None if image is None else image.spec,
        image_id=mapping.image_id,
        snapshot=mapping.snapshot,
        client_id=mapping.client_id,
    )


def moment_of(snapshot: Snapshot) -> BootTime | None:
    """Return the time of a snapshot; None if the uptime of the node is unknown."""
    if snapshot.node is None or snapshot.node.uptime_s is None:
        return None
    return BootTime(at=snapshot.observed_at, uptime_s=snapshot.node.uptime_s)


def remember(
    earlier: History | None,
    diagnoses: tuple[Diagnosis, ...],
    snapshot: Snapshot,
    *,
    longest_gap_s: float,
    own_io: MappingIdentity | None = None,
) -> History | None:
    """Return the history with one snapshot added.

    Args:
        earlier: the history before this snapshot.
        diagnoses: the diagnoses of every mapping of this node in the snapshot.
        snapshot: the snapshot.
        longest_gap_s: two snapshots that are further apart are not continuous.
        own_io: the mapping that a step of rbdagent has read or written since ``earlier``.

    Returns:
        The new history; ``earlier`` if the snapshot has no usable node.
    """
    now, node = moment_of(snapshot), snapshot.node
    if now is None or node is None or not node.boot_id:
        return earlier
    before = earlier if earlier is not None and _same_boot(earlier, node.boot_id, now) else None
    unbroken = before is not None and now.uptime_s - before.last_observed.uptime_s <= longest_gap_s
    last_observed = before.last_observed if before is not None and unbroken else None
    known = {mapping.identity: mapping for mapping in before.mappings} if before is not None else {}
    return History(
        boot_id=node.boot_id,
        last_observed=now,
        mappings=tuple(
            _remembered(verdict, mapping, known, now, last_observed=last_observed, own_io=own_io)
            for diagnosis in diagnoses
            for verdict, mapping in diagnosis.mapped
        ),
        unmaps=before.unmaps if before is not None else (),
    )


def _same_boot(earlier: History, boot_id: str, now: BootTime) -> bool:
    return earlier.boot_id == boot_id and earlier.last_observed.uptime_s <= now.uptime_s


def _remembered(
    holder_verdict: HolderVerdict,
    mapping: Mapping,
    known: dict[MappingIdentity, MappingHistory],
    now: BootTime,
    *,
    last_observed: BootTime | None,
    own_io: MappingIdentity | None,
) -> MappingHistory:
    identity = identity_of(mapping)
    before = known.get(identity)
    needed_at = before.needed_at if before is not None else None
    orphaned_since = (
        before.orphaned_since if before is not None and last_observed is not None else None
    )
    remembered = MappingHistory(
        identity=identity,
        first_seen=before.first_seen if before is not None else now,
        orphaned_since=(orphaned_since or now)
        if holder_verdict.verdict is Verdict.ORPHANED
        else None,
        needed_at=now if is_needed(holder_verdict.holder) else needed_at,
        io_counters=None if isinstance(mapping.io_counters, NotObserved) else mapping.io_counters,
    )
    if remembered.orphaned_since is None:
        return remembered
    if before is None or last_observed is None or before.orphaned_since is None:
        return _with_io(remembered, now)
    if identity == own_io:
        return _with_io(remembered, before.no_io_since or now, last_io=before.last_io)
    return _compared(remembered, before, now, last_observed)


def _compared(
    remembered: MappingHistory, before: MappingHistory, now: BootTime, last_observed: BootTime
) -> MappingHistory:
    """Compare an orphan's I/O counters with those of the previous snapshot of the series."""
    old, new = before.io_counters, remembered.io_counters
    if old == new:
        return _with_io(remembered, before.no_io_since or now, last_io=before.last_io)
    if old is None or new is None:
        return _with_io(remembered, now)
    seen = ObservedIo(since=last_observed, at=now, before=old, after=new)
    return _with_io(remembered, now, last_io=seen)


def _with_io(
    remembered: MappingHistory, no_io_since: BootTime, *, last_io: ObservedIo | None = None
) -> MappingHistory:
    """Set since when there is no I/O; unset if a request is in flight or I/O was not counted."""
    counters = remembered.io_counters
    quiet = counters is not None and counters.in_flight == 0
    return replace(remembered, no_io_since=no_io_since if quiet else None, last_io=last_io)


def is_needed(holder: Holder) -> bool:
    """Return whether a pod on the holder's node needs the volume; True if that is unknown."""
    return isinstance(holder.pods, NotObserved) or any(map(needs_volumes, holder.pods))
