"""RBD131, and what Ceph itself reports about I/O that waits, before Ceph or a network is blamed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from rbdagent.codes import Code
from rbdagent.commands import command
from rbdagent.model import (
    LifecycleStep,
    NotObserved,
    Recovery,
    Severity,
    Statement,
    Subject,
    Verdict,
    Words,
    observed_of,
    stated,
)
from rbdagent.parse.foreign import foreign, foreign_name
from rbdagent.parse.recognised import Recognised
from rbdagent.rules.context import Rule, finding
from rbdagent.rules.entry import Entry

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rbdagent.model import ClusterView, Finding, HealthCheck
    from rbdagent.rules.context import RuleContext


ENTRIES: Final = (
    Entry(
        Code.POOL_TAKES_NO_WRITES,
        Severity.WARNING,
        "Ceph takes no writes to the pool of a volume that is in use.",
        remedy="Free or add space, raise the quota (`ceph osd pool set-quota`), or end the pause "
        "(`ceph osd unpause`). Do not restart pods and do not unmap: that waits too.",
        recovery=Recovery(actor="Ceph's clients", condition="Ceph takes writes again"),
        step=LifecycleStep.USE,
    ),
)


def no_writes(context: RuleContext) -> Iterator[Finding]:
    """Yield RBD131 for a volume in use whose pool takes no writes."""
    in_use = any(found.verdict is Verdict.IN_USE for found in context.holder_verdicts)
    spec = context.volume.image.spec if context.volume.image is not None else None
    reported = blocking(context, spec.pool, _WHOLE_POOL) if spec is not None and in_use else ""
    if reported:
        yield finding(
            Code.POOL_TAKES_NO_WRITES,
            Subject.of_volume(context.name),
            stated("Writes to {volume} wait. {}.", reported, volume=context.name),
            commands=(command("ceph health detail"), command("ceph osd pool ls detail")),
        )


_WHOLE_POOL: Final = frozenset({"POOL_FULL", "OSDMAP_FLAGS"})
"""Of an inactive placement group, only some volumes of a pool have objects."""
_OF_POOLS: Final = frozenset({"POOL_FULL", "PG_AVAILABILITY"})
_ALL: Final = _WHOLE_POOL | {"PG_AVAILABILITY"}


def blocking(context: RuleContext, pool: str, checks: frozenset[str] = _ALL) -> Words:
    """Return what keeps I/O to a pool waiting according to ``ceph health``; "" if nothing does.

    Args:
        context: the volume and the snapshot. The cluster of a claim without a PV is not known: if
            several clusters have a pool of that name, none counts.
        pool: the name of the pool; empty if it is unknown.
        checks: those that count.
    """
    cluster = _cluster_with_pool(context, pool)
    if cluster is None:
        return ""
    ids = _ids_of(cluster, pool)
    for check in observed_of(cluster.health):
        if check.name in checks and (text := _meaning(check, pool, ids)):
            return text
    return ""


def is_pool_well(context: RuleContext, *pools: str) -> bool:
    """Return whether `ceph health` reports nothing of the kind, and was read for these pools."""
    named = [pool for pool in pools if pool]
    clusters = [_cluster_with_pool(context, pool) for pool in named]
    return bool(named) and all(
        cluster is not None
        and not isinstance(cluster.health, NotObserved)
        and not any(check.name in _OF_POOLS for check in cluster.health)
        for cluster in clusters
    )


class SlowOsds(NamedTuple):
    """Holds what ``ceph health`` reports about OSDs that answer late, or not."""

    checks: tuple[HealthCheck, ...]
    osds: tuple[str, ...]
    """Their numbers; without one, only pings between OSDs are slow."""

    @property
    def reported(self) -> Statement:
        """Return what Ceph reports, as the beginning of a sentence."""
        reports = [foreign(check.texts[0]) for check in self.checks]
        return stated("Ceph reports {reports:and}", reports=reports)


def slow_osds(context: RuleContext, pool: str) -> SlowOsds | None:
    """Return what ``ceph health`` reports about slow OSDs of the cluster; None if it does not.

    The report names no pool: only a call that waits makes it a cause.

    Args:
        context: the volume and the snapshot.
        pool: the name of a pool of the cluster; empty if it is unknown.
    """
    cluster = _cluster_with_pool(context, pool)
    checks = () if cluster is None else observed_of(cluster.health)
    operations = tuple(check for check in checks if check.name == _SLOW_OPS and _osds_of(check))
    pings = tuple(check for check in checks if check.name in _SLOW_PINGS and check.texts)
    if not operations and not pings:
        return None
    osds = tuple(osd for check in operations for osd in _osds_of(check))
    return SlowOsds((*operations, *pings), osds)


def is_health_known(context: RuleContext, pool: str) -> bool:
    """Return whether ``ceph health`` was read for a pool."""
    cluster = _cluster_with_pool(context, pool)
    return cluster is not None and not isinstance(cluster.health, NotObserved)


_SLOW_OPS: Final = "SLOW_OPS"
_SLOW_PINGS: Final = frozenset({"OSD_SLOW_PING_TIME_FRONT", "OSD_SLOW_PING_TIME_BACK"})


def _osds_of(check: HealthCheck) -> tuple[str, ...]:
    """Return the numbers of the OSDs in the summary of a check: at most ten, without a detail."""
    found = (Recognised.OSD_NAMED.all_in(text) for text in check.texts[:1])
    return tuple(match["osd"] for matches in found for match in matches)


def _cluster_with_pool(context: RuleContext, pool: str) -> ClusterView | None:
    """Return the only cluster with the pool that may be meant; None if several or none are."""
    ceph = context.snapshot.ceph
    fsid = context.volume.image.fsid if context.volume.image is not None else None
    found = [
        cluster
        for cluster in (() if ceph is None else ceph.clusters)
        if fsid in (None, cluster.fsid) and _ids_of(cluster, pool)
    ]
    return found[0] if len(found) == 1 else None


def _ids_of(cluster: ClusterView, pool: str) -> set[str]:
    return {str(number) for number, name in observed_of(cluster.pools) if name == pool and pool}


def _meaning(check: HealthCheck, pool: str, ids: set[str]) -> Words:
    match check.name:
        case "POOL_FULL" if pool in _named(Recognised.POOL_IS_FULL, "pool", check):
            return stated(
                "Ceph reports that pool {pool} is {}: writes and new maps wait, without an error",
                _how_full(check, pool),
                pool=foreign_name(pool),
            )
        case "OSDMAP_FLAGS" if any(map(Recognised.IO_PAUSED.is_in, check.texts)):
            return stated("Ceph's I/O is paused ({report})", report=foreign(check.texts[0]))
        case "PG_AVAILABILITY" if ids & _named(Recognised.GROUP_INACTIVE, "pool_id", check):
            return stated(
                "Ceph reports that some placement groups of pool {pool} serve no I/O ({report})",
                pool=foreign_name(pool),
                report=foreign(check.texts[0]),
            )
    return ""


def _how_full(check: HealthCheck, pool: str) -> str:
    """Return what the detail of the pool states (OSDMap::check_health in src/osd/OSDMap.cc)."""
    own = [text for text in check.texts if f"'{pool}'" in text]
    if any("(no space)" in text for text in own):
        return "full (no space)"
    if any("(running out of quota)" in text for text in own):
        return "at its quota"
    return "full or at its quota"


def _named(row: Recognised, group: str, check: HealthCheck) -> set[str]:
    found = map(row.named_in, check.texts)
    return {names[group] for names in found if names is not None}


RULES: Final = (Rule(237, no_writes),)
