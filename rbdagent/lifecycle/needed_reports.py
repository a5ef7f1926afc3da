"""The reports of agents that ``diagnose -A`` needs: those of 250,000 mappings are 400 MiB.

Triage checks each report alone (`Triage.suspects`), so the suspects are those of all reports. Then
only the mappings in the part of a suspect are needed: those of its PVs and images, one of each
client that watches its images, and the devices whose image is unknown. They contain every report
for which their target is a suspect.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from rbdagent.correlate.cluster_index import client_of
from rbdagent.correlate.snapshot_slice import WantedReports, wanted_reports
from rbdagent.lifecycle.triage import Triage, targets_to_diagnose
from rbdagent.model import NotObserved

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from rbdagent.correlate.cluster_index import ClientKey, ClusterIndex
    from rbdagent.lifecycle.targets import Scope
    from rbdagent.model import PublishedMapping, PublishedNode


def suspicious_reports(
    index: ClusterIndex, scope: Scope, reports: Iterable[PublishedNode]
) -> tuple[PublishedNode, ...]:
    """Return all reports with only the mappings that can make a target a suspect.

    Args:
        index: the snapshot of a cluster; its reports do not matter.
        scope: of the targets.
        reports: of all agents.
    """
    triage = Triage(index)
    return _reduced(reports, lambda node, mapping: triage.suspects(node, mapping, scope))


def needed_reports(
    index: ClusterIndex, scope: Scope, reports: Iterable[PublishedNode]
) -> tuple[PublishedNode, ...]:
    """Return all reports with only the mappings in the parts of suspects.

    Args:
        index: the snapshot of a cluster, with its :func:`suspicious_reports`, or with those that
            were needed before Ceph answered.
        scope: of the targets.
        reports: of all agents.
    """
    wanted = _Wanted(wanted_reports(index, targets_to_diagnose(index, scope)))
    return _reduced(reports, lambda _, mapping: wanted.has(mapping))


class _Wanted:
    """Selects the mappings that are in the part of a suspect."""

    def __init__(self, wanted: WantedReports) -> None:
        self._wanted = wanted
        self._unproven: set[tuple[ClientKey, str | None]] = set(wanted.clients)

    def has(self, mapping: PublishedMapping) -> bool:
        """Return whether a mapping is wanted; call it once for each mapping, in order."""
        wanted = self._wanted
        if mapping.persistent_volume in wanted.volumes:
            return True
        if mapping.spec is not None and mapping.spec.name in wanted.images:
            return True
        if mapping.client_address is None:
            return False
        client = client_of(mapping.client_id, mapping.client_address)
        if (client, mapping.fsid) in self._unproven:
            self._unproven.remove((client, mapping.fsid))
            return True
        return (client, mapping.image_id) in wanted.watched


def _reduced(
    reports: Iterable[PublishedNode], is_kept: Callable[[str, PublishedMapping], bool]
) -> tuple[PublishedNode, ...]:
    """Return reports with some mappings, and with those whose image is unknown: it may be any."""
    return tuple(_with_only(report, is_kept) for report in reports)


def _with_only(
    report: PublishedNode, is_kept: Callable[[str, PublishedMapping], bool]
) -> PublishedNode:
    if isinstance(report.mappings, NotObserved):
        return report
    kept = (
        mapping
        for mapping in report.mappings
        if mapping.spec is None or is_kept(report.name, mapping)
    )
    return replace(report, mappings=tuple(kept))
