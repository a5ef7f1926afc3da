"""Which other nodes were observed: what a volume needs before it may be called free.

Ceph shows no client that lost its watch, and no read-only one. Only a node shows its own mappings:
to this snapshot, or to its agent, whose report must be fresh.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Final

from rbdagent.correlate.index import index_of, kube_index, once
from rbdagent.correlate.published_reports import is_fresh, is_nbd, moved_mappings
from rbdagent.correlate.volume_names import names_of_volume, node_named
from rbdagent.model import Node, NotObserved, PublishedNode, Verdict, observed_of
from rbdagent.parse.foreign import foreign
from rbdagent.verdicts.timing import age, age_text, confirmed, is_young

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rbdagent.model import KubeEvent, PublishedMapping, Snapshot, Volume

_MOST_NAMES: Final = 5
_WARNINGS: Final = frozenset({"RBDConflict", "RBDUnwatched", "RBDReturnedDirty", "RBDDead"})
"""Reasons of an agent's events about a mapping that endangers data, as agent/events.py has them."""


def reporting_nodes(snapshot: Snapshot) -> frozenset[str]:
    """Return the other nodes whose agent has recently reported the image of each device."""
    return once(snapshot, _reporting)


def _reporting(snapshot: Snapshot) -> frozenset[str]:
    return frozenset(
        report.name
        for report in index_of(snapshot).reports.of_others
        if is_fresh(report, snapshot.observed_at) and _is_complete(report)
    )


def is_hidden(node: str, snapshot: Snapshot) -> bool:
    """Return whether nothing shows what runs on a node that is not known to be Ready.

    The API may lack the pods of such a node, and its containers may run.
    """
    found = node_named(node, snapshot)
    if isinstance(found, Node) and found.ready is True:
        return False
    here = snapshot.node.node_name if snapshot.node is not None else None
    return node != here and node not in reporting_nodes(snapshot)


def _is_complete(report: PublishedNode) -> bool:
    """Return whether a report has each mapping that was requested, with its image."""
    if isinstance(report.mappings, NotObserved) or report.incomplete:
        return False
    return all(mapping.image is not None or _is_dead_nbd(mapping) for mapping in report.mappings)


def _is_dead_nbd(mapping: PublishedMapping) -> bool:
    """Return whether a report shows an nbd device that no process serves: it has no client."""
    return is_nbd(mapping) and mapping.verdict is Verdict.DEAD


def missing_of_nodes(volume: Volume, snapshot: Snapshot) -> tuple[str, ...]:
    """Return what was not observed of other nodes, or what shows that one may hold the volume.

    The caller has found no holder: neither a watcher, nor a mapping that any agent reports.
    """
    kube = snapshot.kubernetes
    if kube is None or not kube_index(kube).coverage.nodes():
        return ("the nodes of the cluster",)
    if isinstance(kube.published, NotObserved):
        return (f"what agents of other nodes report ({kube.published.reason})",)
    return (
        *once(snapshot, _of_any_volume),
        *_in_another_pool(volume, snapshot),
        *_in_volumes_in_use(volume, snapshot),
        *_attached(volume),
        *_warned_of(volume, snapshot),
    )


def _of_any_volume(snapshot: Snapshot) -> tuple[str, ...]:
    """Return what was not observed of other nodes, whatever the volume."""
    return (*_unreported(snapshot), *_without_node(snapshot))


def _unreported(snapshot: Snapshot) -> Iterator[str]:
    """Yield a line about the nodes without a fresh report, unhealthy ones first.

    At most five nodes are named; many nodes without an agent are only counted.
    """
    index, reporting = index_of(snapshot), {*reporting_nodes(snapshot), _own(snapshot)}
    unreported = [node for node in index.kube.nodes if node.name not in reporting]
    last = {report.name: report for report in index.reports.of_others}
    unreported.sort(key=lambda node: (node.ready is True and not node.out_of_service, node.name))
    states = [_state(node, last.get(node.name), snapshot) for node in unreported]
    more = len(unreported) - _MOST_NAMES
    if more > 0 and len(set(states)) == 1:
        yield f"what is mapped on {len(unreported)} other nodes ({states[0]})"
        return
    names = [node.name for node in unreported]
    described = groupby(zip(states[:_MOST_NAMES], names, strict=False), key=lambda pair: pair[0])
    named = [f"{', '.join(name for _, name in pairs)} ({state})" for state, pairs in described]
    if named:
        yield f"what is mapped on {', '.join(named)}{f' and {more} more nodes' if more > 0 else ''}"


def _without_node(snapshot: Snapshot) -> Iterator[str]:
    """Yield the machines whose agent has reported, and whose Node does not exist.

    A Node may be deleted while its machine runs, and the machine keeps what it has mapped. The
    report is garbage collected after its Node, and then nothing in the API shows the machine.
    """
    index = index_of(snapshot)
    for report in index.reports.of_others:
        if report.name not in index.kube.node_by_name:
            last = confirmed(report, snapshot.observed_at)
            yield f"what is mapped on {report.name} (it has no Node; its agent last {last})"


def _in_another_pool(volume: Volume, snapshot: Snapshot) -> Iterator[str]:
    """Yield the mappings that are of this image if its pool was renamed."""
    for report, mapping in moved_mappings(names_of_volume(volume), snapshot):
        yield (
            f"whether {mapping.device} on {report.name} is this image: {mapping.spec} has the same "
            "name and id in a pool of another name"
        )


def _state(node: Node, report: PublishedNode | None, snapshot: Snapshot) -> str:
    """Return the state of a node without a fresh report, and of its agent."""
    if node.out_of_service:
        state = "out of service, "
    else:
        state = "" if node.ready is True else "not Ready, "
    if report is None:
        return f"{state}no agent reports"
    gap = f"; {report.incomplete}" if report.incomplete else ""
    return f"{state}its agent last {confirmed(report, snapshot.observed_at)}{gap}"


def _in_volumes_in_use(volume: Volume, snapshot: Snapshot) -> Iterator[str]:
    """Yield the nodes whose kubelet lists the volume: it has it mounted, or waits for it."""
    listing = index_of(snapshot).kube.nodes_using
    found = {
        node.name: node
        for name in names_of_volume(volume).in_use_names
        for node in listing.get(name, ())
    }
    for name in sorted(found.keys() - {_own(snapshot)}):
        lists = "lists it in volumesInUse"
        if found[name].ready is not True:
            lists = "listed it in volumesInUse when it last reported"
        yield f"whether {name} has it mapped: its kubelet {lists}"


def _own(snapshot: Snapshot) -> str:
    return "" if snapshot.node is None else snapshot.node.node_name


def _attached(volume: Volume) -> Iterator[str]:
    for attachment in observed_of(volume.attachments):
        if attachment.attached:
            node = attachment.node_name
            yield f"whether {node} has it mapped: VolumeAttachment {attachment.name} is attached"


def _warned_of(volume: Volume, snapshot: Snapshot) -> Iterator[str]:
    """Yield recent warnings of agents about the volume: an event outlives the agent's report."""
    for event in volume.events:
        if _is_recent_warning(event, snapshot):
            since = age_text(age(event.last_seen, snapshot.observed_at))
            yield f"whether this has ended: {event.reason} {since} ago, {foreign(event.message)}"


def _is_recent_warning(event: KubeEvent, snapshot: Snapshot) -> bool:
    is_ours = event.reporter.startswith("rbdagent") and event.reason in _WARNINGS
    return is_ours and is_young(event.last_seen, snapshot.observed_at) is not False
