"""The monitors with which a connection to Ceph begins: listed in a ConfigMap, or last known.

A connection follows the monitors automatically while one of those that it knows answers
(MonClient::handle_monmap, src/mon/MonClient.cc). So a list is read when a connection begins: at the
start, and after every answer of Ceph that was missing or had gaps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from rbdagent.model import NotObserved, observed_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rbdagent.collect.ceph.access import CephAccess
    from rbdagent.collect.kube.kubeconfig import MonitorList
    from rbdagent.model import CephView, EntityAddress


def with_monitors(
    clusters: Sequence[CephAccess],
    lists: Sequence[MonitorList],
    known: Mapping[str, tuple[str, ...]],
) -> tuple[CephAccess, ...]:
    """Return the clusters with the monitors that their ConfigMaps list now.

    Args:
        clusters: those without a list keep the monitors of their ceph.conf.
        lists: where to read the monitors; lists of other clusters are not read.
        known: the last known monitors by the name of the cluster, for a list that is not observed.
    """
    names = {access.name for access in clusters}
    wanted = [listed for listed in lists if listed.cluster in names]
    if not wanted:
        return tuple(clusters)
    from rbdagent.collect.kube.monitors import read_monitor_lists

    found = read_monitor_lists(wanted)
    return tuple(
        _with_list(access, found[access.name], known.get(access.name, ()))
        if access.name in found
        else access
        for access in clusters
    )


def _with_list(
    access: CephAccess, found: tuple[str, ...] | NotObserved, known: tuple[str, ...]
) -> CephAccess:
    if isinstance(found, NotObserved):
        return replace(access, monitors=known, monitors_missing=found)
    return replace(access, monitors=found)


def monitors_in(view: CephView | None) -> dict[str, tuple[str, ...]]:
    """Return the monitors that each cluster reported, as the option mon_host accepts them."""
    if view is None:
        return {}
    found = {
        cluster.name: tuple(_mon_host(daemon.address) for daemon in observed_of(cluster.monitors))
        for cluster in view.clusters
    }
    return {name: monitors for name, monitors in found.items() if monitors}


def _mon_host(address: EntityAddress) -> str:
    ip = f"[{address.ip}]" if ":" in address.ip else address.ip
    return f"{ip}:{address.port}"
