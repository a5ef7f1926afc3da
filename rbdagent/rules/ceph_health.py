"""What Ceph itself reports about I/O that waits, before Ceph or a network is blamed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rbdagent.model import NotObserved, observed_of
from rbdagent.parse.foreign import foreign, foreign_name
from rbdagent.parse.recognised import Recognised

if TYPE_CHECKING:
    from rbdagent.model import HealthCheck
    from rbdagent.rules.context import RuleContext


def blocking(case: RuleContext, pool: str) -> str:
    """Return what keeps I/O to a pool waiting according to ``ceph health``; "" if nothing does.

    Args:
        case: the volume and the snapshot. The cluster of a claim without a PV is not known: each
            cluster with a pool of that name counts.
        pool: the name of the pool; empty if it is unknown.
    """
    ceph = case.snapshot.ceph
    fsid = case.use.image.fsid if case.use.image is not None else None
    for cluster in () if ceph is None else ceph.clusters:
        if fsid not in (None, cluster.fsid):
            continue
        ids = {str(number) for number, name in observed_of(cluster.pools) if name == pool}
        for check in observed_of(cluster.health) if ids else ():
            if text := _meaning(check, pool, ids):
                return text
    return ""


def is_health_observed(case: RuleContext) -> bool:
    """Return whether each cluster has answered `ceph health`."""
    ceph = case.snapshot.ceph
    clusters = () if ceph is None else ceph.clusters
    return not any(isinstance(cluster.health, NotObserved) for cluster in clusters)


def _meaning(check: HealthCheck, pool: str, ids: set[str]) -> str:
    match check.name:
        case "POOL_FULL" if pool in _named(Recognised.POOL_IS_FULL, "pool", check):
            return (
                f"Ceph reports that pool {foreign_name(pool)} is full or at its quota: writes and "
                "new maps wait, without an error"
            )
        case "OSDMAP_FLAGS" if any(map(Recognised.IO_PAUSED.is_in, check.texts)):
            return f"Ceph's I/O is paused ({foreign(check.texts[0])})"
        case "PG_AVAILABILITY" if ids & _named(Recognised.GROUP_INACTIVE, "pool_id", check):
            return (
                f"Ceph reports that placement groups of pool {foreign_name(pool)} serve no I/O "
                f"({foreign(check.texts[0])})"
            )
    return ""


def _named(row: Recognised, group: str, check: HealthCheck) -> set[str]:
    found = map(row.named_in, check.texts)
    return {names[group] for names in found if names is not None}
