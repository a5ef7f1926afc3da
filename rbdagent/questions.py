"""What to request next about a cluster, from what was observed; the collector requests it.

Only the volumes that may have problems need the reports of agents, Ceph's answer about their images
and the log lines that name them. Triage decides which these are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rbdagent.correlate import correlate
from rbdagent.correlate.index import index_of, with_ceph, with_reports
from rbdagent.correlate.log_names import log_names_of
from rbdagent.correlate.resolve import about
from rbdagent.correlate.target_names import is_on_observed_node
from rbdagent.lifecycle.needed_reports import needed_reports, suspicious_reports
from rbdagent.lifecycle.targets import Scope
from rbdagent.lifecycle.triage import images_to_query, targets_to_diagnose

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rbdagent.correlate.index import Index
    from rbdagent.correlate.log_names import LogNames
    from rbdagent.model import CephView, ImageIdentity, PublishedNode, Snapshot


def index_of_suspects(snapshot: Snapshot, stored: Iterable[PublishedNode] | None) -> Index:
    """Return the index of a cluster, with the reports that its suspects need before Ceph answers.

    Args:
        snapshot: of the cluster.
        stored: the reports of all agents, read several times; None if the snapshot has them.
    """
    index = index_of(snapshot)
    if stored is None:
        return index
    scope = _scope(index)
    index = with_reports(index, suspicious_reports(index, scope, stored))
    return with_reports(index, needed_reports(index, scope, stored))


def reports_after_ceph(
    index: Index, ceph: CephView | None, stored: Iterable[PublishedNode]
) -> tuple[PublishedNode, ...]:
    """Return the reports that the suspects need: Ceph's answer leads to further clients."""
    return needed_reports(with_ceph(index, ceph), _scope(index), stored)


def images_of_suspects(index: Index, ceph: CephView | None = None) -> tuple[ImageIdentity, ...]:
    """Return the images to ask Ceph about, those that a pod waits for first.

    Args:
        index: the cluster.
        ceph: Ceph's answer so far: it shows which clients are on the blocklist.
    """
    return images_to_query(index if ceph is None else with_ceph(index, ceph), _scope(index))


def log_names_of_suspects(index: Index) -> tuple[LogNames, ...]:
    """Return the names that the node's logs use for its volumes that may have problems."""
    own = (
        suspect
        for suspect in targets_to_diagnose(index, _scope(index))
        if is_on_observed_node(suspect, index.snapshot)
    )
    uses = (correlate(about(suspect, index.snapshot)) for suspect in own)
    found = (log_names_of(volume, index.snapshot) for volume in uses)
    return tuple(dict.fromkeys(names for names in found if names.volume or names.kernel))


def _scope(index: Index) -> Scope:
    return Scope(namespace=index.snapshot.target.namespace or None)
