"""The nodes that may have the client of a watcher, where its address leads to no Node."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from rbdagent.correlate.holders import runs
from rbdagent.correlate.index import index_of
from rbdagent.correlate.volume_names import names_of_volume
from rbdagent.model import NotObserved, observed_of
from rbdagent.verdicts.timing import is_young

if TYPE_CHECKING:
    from rbdagent.model import Node, Snapshot, Volume

_MOST_NAMED: Final = 3
_ATTACHED: Final = "it has a VolumeAttachment of the volume"
_IN_USE: Final = "its kubelet lists the volume in volumesInUse"
_AWAITED: Final = "its kubelet lists the volume in volumesInUse, and a pod there waits for it"
_LISTED: Final = "its kubelet listed the volume in volumesInUse when it last reported"
_RUNS: Final = "a pod with the volume runs there"


class Candidate(NamedTuple):
    """A node that may have an unknown client of a volume, and why."""

    node: str
    reasons: tuple[str, ...]
    """Without times, so that the sentences about a state stay the same while it lasts."""
    dated: tuple[str, ...]
    """The reasons, with the time of the last report of a kubelet that is not Ready."""
    is_probable: bool
    """Whether it is probably this node; else it only may be."""


def candidates_of(volume: Volume, snapshot: Snapshot) -> tuple[Candidate, ...]:
    """Return the nodes that may have an unknown client; not those with a known one.

    A node is probable if it is the only candidate for the only unknown client, and its kubelet
    lists the volume: kubelet does so until the volume is unstaged, but also while a pod only waits
    for it. The list of a kubelet that is not Ready is as old as its last report: after the grace
    period, it makes no node probable. A VolumeAttachment alone may be one that the controller has
    not removed yet. Neither is a proof, because a machine outside of the cluster may have the
    client (ceph-csi#4375).
    """
    found = _candidates(volume, snapshot)
    listing = _listing(volume, snapshot)
    is_complete = not isinstance(volume.attachments, NotObserved)
    is_only_one = len(found) == 1 and is_complete and _is_alone(volume)
    return tuple(
        Candidate(
            node=node,
            reasons=reasons,
            dated=_dated(reasons, listing.get(node)),
            is_probable=is_only_one and _is_evidence(reasons, listing.get(node), snapshot),
        )
        for node, reasons in sorted(found.items())
    )


def candidates_text(volume: Volume, snapshot: Snapshot) -> str:
    """Return where an unknown client may be, and why; empty if nothing leads to a node."""
    found = candidates_of(volume, snapshot)
    if not found:
        return ""
    first = found[0]
    if first.is_probable:
        why = " and ".join(first.dated)
        return (
            f"its node is probably {first.node}, because {why}, and no other client of the volume "
            "is known there"
        )
    named = [f"{one.node} ({' and '.join(one.dated)})" for one in found[:_MOST_NAMED]]
    more = len(found) - len(named)
    rest = f", and {more} more" if more > 0 else ""
    return f"it may be on a node where no client of the volume is known: {', '.join(named)}{rest}"


def _candidates(volume: Volume, snapshot: Snapshot) -> dict[str, tuple[str, ...]]:
    """Return the nodes, each with the reasons; not those that have a known client or were observed.

    The mappings of the observed node are known: none of them has the client.
    """
    waiting = {pod.node_name for pod in volume.waiting_pods}
    found: dict[str, list[str]] = {}
    for attachment in observed_of(volume.attachments):
        if attachment.attached and _ATTACHED not in found.get(attachment.node_name, ()):
            found.setdefault(attachment.node_name, []).append(_ATTACHED)
    for name, node in _listing(volume, snapshot).items():
        awaited = _AWAITED if name in waiting else _IN_USE
        found.setdefault(name, []).append(awaited if node.ready is True else _LISTED)
    for place in {pod.node_name for pod in volume.pods if runs(pod)} - {None}:
        found.setdefault(str(place), []).append(_RUNS)
    known = {
        holder.node
        for holder in volume.holders
        if holder.node is not None and (holder.mapping or holder.watcher or holder.published)
    }
    known |= {snapshot.node.node_name} if snapshot.node is not None else set()
    return {node: tuple(reasons) for node, reasons in found.items() if node not in known}


def _listing(volume: Volume, snapshot: Snapshot) -> dict[str, Node]:
    """Return the Nodes whose kubelet lists the volume in volumesInUse."""
    using = index_of(snapshot).kube.nodes_using
    return {
        node.name: node
        for name in names_of_volume(volume).in_use_names
        for node in using.get(name, ())
    }


def _dated(reasons: tuple[str, ...], node: Node | None) -> tuple[str, ...]:
    if node is None or node.ready is True:
        return reasons
    at = node.reported_at or "an unknown time"
    return tuple(f"{reason}, at {at}" if reason == _LISTED else reason for reason in reasons)


def _is_evidence(reasons: tuple[str, ...], node: Node | None, snapshot: Snapshot) -> bool:
    """Return whether the list of a kubelet shows that the volume is staged on its node now."""
    if _LISTED in reasons and node is not None:
        return is_young(node.reported_at, snapshot.observed_at) is True
    return _IN_USE in reasons


def _is_alone(volume: Volume) -> bool:
    """Return whether only one client has no node; several cannot all be on one."""
    unknown = [
        holder
        for holder in volume.holders
        if holder.node is None and holder.watcher is not None and holder.daemon is None
    ]
    return len(unknown) == 1
