"""Pods of the node that looked that cannot start, because a volume of theirs is held."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rbdagent.correlate.strangers import strangers
from rbdagent.diagnose.evidence import evidence_of
from rbdagent.diagnose.target import (
    ORDER,
    is_ambiguous,
    is_left_behind,
    may_be_shared,
)
from rbdagent.diagnose.verdict import judge
from rbdagent.model import BlockedVolume, Holder, NotObserved, Snapshot, Verdict, VolumeUse

if TYPE_CHECKING:
    from collections.abc import Iterable

_Blocker = tuple[Verdict, str | None]
"""What is made of whoever is in the way, and its node."""


def blocked_volumes(snapshot: Snapshot, uses: Iterable[VolumeUse]) -> tuple[BlockedVolume, ...]:
    """Tell which volumes keep a pod from starting.

    Args:
        snapshot: a look that asked Ceph for the images of all these volumes.
        uses: one a pod that waits and volume of its, see
            :func:`rbdagent.correlate.correlate_waiting`.

    Returns:
        Those that somebody else holds, or of which that was not observed. One that nobody holds, or
        that this node is about to mount, is not among them: its pod waits as every pod does.
    """
    return tuple(
        BlockedVolume(
            namespace=use.target.namespace,
            pod=use.target.name,
            persistent_volume=use.persistent_volume.name,
            cause=blocker[0],
            holder_node=blocker[1],
        )
        for use in uses
        if use.persistent_volume is not None and (blocker := _blocker(use, snapshot)) is not None
    )


def _blocker(use: VolumeUse, snapshot: Snapshot) -> _Blocker | None:
    if may_be_shared(use):
        return None
    if any(_is_at_hand(each) for each in use.holders):
        return None
    if is_ambiguous(use, snapshot):
        return Verdict.UNDETERMINED, None
    mapped = [each for each in use.holders if each.mapping is not None]
    judged = [judge(each, use, snapshot) for each in (*mapped, *strangers(use))]
    holding = [each for each in judged if not is_left_behind(each)]
    if not holding:
        return _by_the_books(use, snapshot)
    worst = min(holding, key=lambda each: ORDER.index(each.verdict))
    return worst.verdict, worst.holder.node


def _is_at_hand(holder: Holder) -> bool:
    """Tell whether this node has it mapped, and kubelet or the driver goes on with it.

    What a failed stage has left, or somebody has mapped by hand, is in the driver's way instead.
    What was not observed may be at hand.
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


def _by_the_books(use: VolumeUse, snapshot: Snapshot) -> _Blocker | None:
    """Nobody was seen: what the controller takes for attached it attaches to no second node."""
    attached = () if isinstance(use.attachments, NotObserved) else use.attachments
    nodes = sorted(each.node_name for each in attached if each.attached)
    here = snapshot.node.node_name if snapshot.node is not None else None
    elsewhere = nodes[0] if nodes and here not in nodes else None
    view, kube = use.image_view, snapshot.kubernetes
    if view is None or isinstance(view.watchers, NotObserved):
        return Verdict.UNDETERMINED, elsewhere
    if elsewhere is not None:
        return Verdict.ATTACHED_ON_PAPER, elsewhere
    # To which other node it may be attached an agent has not asked: see docs/adr/0004.
    asked_for_all = kube is not None and kube.attachments_complete
    return None if here in nodes or asked_for_all else (Verdict.UNDETERMINED, None)
