"""Pods of the observed node that cannot start because another client holds their volume."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rbdagent.correlate.image_identity import are_watchers_observed
from rbdagent.correlate.index import kube_index
from rbdagent.correlate.unknown_watchers import watchers_elsewhere
from rbdagent.model import (
    BlockedVolume,
    Holder,
    NotObserved,
    Snapshot,
    Verdict,
    Volume,
    observed_of,
)
from rbdagent.verdicts.evidence import evidence_of
from rbdagent.verdicts.holder_verdict import judge
from rbdagent.verdicts.volume_verdict import (
    ORDER,
    is_ambiguous,
    is_left_behind,
    may_be_shared,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

_Blocker = tuple[Verdict, str | None, Holder | None]
"""The verdict on the client that blocks the volume, the node of that client, and the client."""


def blocked_volumes(snapshot: Snapshot, uses: Iterable[Volume]) -> tuple[BlockedVolume, ...]:
    """Return the volumes that keep a pod from starting.

    Args:
        snapshot: the snapshot, for which Ceph was queried for the images of all these volumes.
        uses: one for each waiting pod and each of its volumes, see
            :func:`rbdagent.correlate.correlate_waiting`.

    Returns:
        The volumes that another client holds, or for which that was not observed. A volume that no
        client holds, or that this node is about to mount, is not among them: its pod waits as every
        pod does.
    """
    return tuple(
        BlockedVolume(
            namespace=volume.target.namespace,
            pod=volume.target.name,
            persistent_volume=volume.persistent_volume.name,
            cause=blocker[0],
            holder_node=blocker[1],
            claim=_claim_of(volume),
            holder=blocker[2],
        )
        for volume in uses
        if volume.persistent_volume is not None
        and (blocker := _blocker(volume, snapshot)) is not None
    )


def _claim_of(volume: Volume) -> str | None:
    persistent_volume = volume.persistent_volume
    return (
        None
        if persistent_volume is None or persistent_volume.claim is None
        else persistent_volume.claim.name
    )


def _blocker(volume: Volume, snapshot: Snapshot) -> _Blocker | None:
    if may_be_shared(volume):
        return None
    if any(_is_at_hand(holder) for holder in volume.holders):
        return None
    if is_ambiguous(volume, snapshot):
        return Verdict.UNDETERMINED, None, None
    mapped = [holder for holder in volume.holders if holder.mapping is not None]
    holder_verdicts = [
        judge(holder, volume, snapshot) for holder in (*mapped, *watchers_elsewhere(volume))
    ]
    holding = [entry for entry in holder_verdicts if not is_left_behind(entry)]
    if not holding:
        return _blocking_attachment(volume, snapshot)
    worst = min(holding, key=lambda entry: ORDER.index(entry.verdict))
    return worst.verdict, worst.holder.node, worst.holder


def _is_at_hand(holder: Holder) -> bool:
    """Return whether this node has it mapped, and kubelet or the driver continues to work on it.

    A mapping that a failed stage left behind, or that was made by hand, blocks the driver instead.
    If the mounts or the calls in flight were not observed, the result is True.
    """
    mapping, found = holder.mapping, evidence_of(holder)
    if mapping is None:
        return False
    if isinstance(mapping.mounts, NotObserved) or isinstance(holder.in_flight, NotObserved):
        return True
    return bool(
        found.staging_mounts
        or found.pod_mounts
        or found.container_mounts
        or found.bringing_up
        or found.tearing_down
    )


def _blocking_attachment(volume: Volume, snapshot: Snapshot) -> _Blocker | None:
    """Return the blocker according to the VolumeAttachments, if no holder was observed.

    The controller does not attach a volume to a second node while it considers the volume attached
    to the first.
    """
    attached = observed_of(volume.attachments)
    nodes = sorted(attachment.node_name for attachment in attached if attachment.attached)
    here = snapshot.node.node_name if snapshot.node is not None else None
    elsewhere = nodes[0] if nodes and here not in nodes else None
    kube = snapshot.kubernetes
    if not are_watchers_observed(volume.image_view):
        return Verdict.UNDETERMINED, elsewhere, None
    if elsewhere is not None:
        return Verdict.STALE_ATTACHMENT, elsewhere, None
    # An agent does not request the attachments to other nodes: see docs/adr/0004.
    asked_for_all = kube_index(kube).coverage.attachments()
    return None if here in nodes or asked_for_all else (Verdict.UNDETERMINED, None, None)
