"""The reports of agents that ``diagnose -A`` needs: those of 250,000 mappings are 400 MiB.

Triage checks each report alone (`Triage.suspects`), so the suspects are those of all reports. Then
only the mappings that concern a suspect are needed: those of its PVs and images, one of each client
that watches its images, those of clients that several nodes have, and those that any target may
need. They contain every report for which their target is a suspect.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from rbdagent.correlate.index import (
    client_of,
    clients_in,
    disputed_clients,
    with_common_only,
    with_reports,
)
from rbdagent.correlate.target_names import TargetNames, target_names
from rbdagent.lifecycle.triage import Triage, targets_to_diagnose

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from rbdagent.correlate.index import ClientKey, ClusterClient, Index
    from rbdagent.lifecycle.targets import Scope
    from rbdagent.model import PublishedMapping, PublishedNode, Target


def suspicious_reports(
    index: Index, scope: Scope, reports: Iterable[PublishedNode]
) -> tuple[PublishedNode, ...]:
    """Return all reports with only the mappings that can make a target a suspect.

    Args:
        index: the snapshot of a cluster; its reports do not matter.
        scope: of the targets.
        reports: of all agents; they are read twice.
    """
    node = index.snapshot.node
    here = None if node is None else node.node_name
    triage, disputed = Triage(index), disputed_clients(reports, here, index.node.mappings)
    return _reduced(
        index,
        reports,
        lambda node, mapping: (
            _is_disputed(mapping, disputed) or triage.suspects(node, mapping, scope)
        ),
    )


def _is_disputed(mapping: PublishedMapping, disputed: frozenset[ClusterClient]) -> bool:
    return not disputed.isdisjoint(clients_in((mapping,)))


def needed_reports(
    index: Index, scope: Scope, reports: Iterable[PublishedNode]
) -> tuple[PublishedNode, ...]:
    """Return all reports with only the mappings that concern suspects.

    A mapping of a PV may name another image than the PV: the mappings of that image are needed too.

    Args:
        index: the snapshot of a cluster, with its :func:`suspicious_reports`, or with those that
            were needed before Ceph answered.
        scope: of the targets.
        reports: of all agents; they are read twice.
    """
    # Further reports of the suspects make no further suspect.
    targets = targets_to_diagnose(index, scope)
    named = _about(index, targets, reports)
    return _about(with_reports(index, named), targets, reports)


def _about(
    index: Index, targets: Sequence[Target], reports: Iterable[PublishedNode]
) -> tuple[PublishedNode, ...]:
    """Return all reports with only the mappings that concern targets, as far as is known."""
    found = [target_names(target, index.snapshot) for target in targets]
    wanted = _Wanted(found, index.reports.disputed)
    return _reduced(index, reports, wanted.has)


class _Wanted:
    """Selects the mappings that concern a suspect."""

    def __init__(self, found: list[TargetNames], disputed: frozenset[ClusterClient]) -> None:
        self._volumes = {name for names in found for name in names.volumes}
        self._images = {name for names in found for name in names.images}
        self._image_ids = {number for names in found for number in names.image_ids}
        self._clients = {client for names in found for client in names.clients}
        self._disputed = disputed
        self._proven: set[tuple[str, ClientKey, str | None]] = set()

    def has(self, node: str, mapping: PublishedMapping) -> bool:
        """Return whether a mapping is wanted; call it once for each mapping, in order."""
        if mapping.persistent_volume in self._volumes:
            return True
        if mapping.spec is not None and mapping.spec.name in self._images:
            return True
        if mapping.image_id in self._image_ids or self._is_proof(node, mapping):
            return True
        return _is_disputed(mapping, self._disputed)

    def _is_proof(self, node: str, mapping: PublishedMapping) -> bool:
        """Return whether it is the node's first mapping of a watcher's client."""
        if mapping.client_address is None:
            return False
        client = client_of(mapping.client_id, mapping.client_address)
        if (client, mapping.fsid) not in self._clients:
            return False
        proof = node, client, mapping.fsid
        is_first = proof not in self._proven
        self._proven.add(proof)
        return is_first


def _reduced(
    index: Index,
    reports: Iterable[PublishedNode],
    is_kept: Callable[[str, PublishedMapping], bool],
) -> tuple[PublishedNode, ...]:
    nonces = index.ceph.blocklisted_nonces
    return tuple(
        with_common_only(report, nonces, partial(is_kept, report.name)) for report in reports
    )
