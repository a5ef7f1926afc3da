"""The conditions of the safety rules for an unmap, written a second time from their text alone.

No judgement of rbdagent is used here: no correlation, no verdict, no condition of its plan. This
module reads the raw snapshot of one known world (of `snapshots`: one node, one image, one claim)
and its history. A change of the plan must not change this module as well.
"""

from __future__ import annotations

import datetime as dt

from rbdagent.model import (
    History,
    KubeletView,
    KubeView,
    Mapping,
    NodeView,
    NotObserved,
    Snapshot,
    SourceState,
    UnmapPolicy,
)

_HERE = "worker-1"


def objections(
    look: Snapshot, memory: History | None, policy: UnmapPolicy, *, frozen: bool
) -> set[int]:
    """Return the numbers of the conditions that do not hold for ``/dev/rbd0``."""
    node, api = look.node, look.kubernetes
    if node is None or api is None or look.ceph is None or isinstance(node.mappings, NotObserved):
        return {9}
    device = next((mapping for mapping in node.mappings if mapping.device == "/dev/rbd0"), None)
    if device is None:
        return {1}
    grace = policy.grace_s
    found = {
        1: not _same_for(grace, device, node, memory),
        2: not _is_unmounted(device, node, policy),
        3: device.openers != () or not _has_nothing_on_top(device, policy),
        4: not _paths_are_free(node, api),
        5: not _is_not_wanted(look, node, api, memory, grace),
        6: not _is_kubernetes(device, node, api),
        7: _is_worked_on(device, node),
        8: frozen or not policy.may_unmap or not _orphaned_for(grace, node, memory, policy),
        9: not _seen_whole(look, api),
        10: not _no_io_for(grace, device, node, memory),
    }
    return {number for number, objects in found.items() if objects}


def _same_for(grace: float, device: Mapping, node: NodeView, memory: History | None) -> bool:
    for known in memory.mappings if memory else ():
        old = known.identity
        same = (
            old.fsid == device.fsid
            and old.pool_id == device.pool_id
            and old.spec == device.spec
            and old.image_id == device.image_id
            and old.snapshot == device.snapshot
            and old.client_id == device.client_id
            and old.incarnation == device.incarnation
            and None not in (device.fsid, device.pool_id, device.client_id, device.incarnation)
        )
        if same and node.uptime_s is not None:
            return node.uptime_s - known.first_seen.uptime_s >= grace
    return False


def _is_unmounted(device: Mapping, node: NodeView, policy: UnmapPolicy) -> bool:
    if isinstance(device.mounts, NotObserved) or isinstance(device.kernel_traces, NotObserved):
        return False
    if device.mounts == () and device.kernel_traces == ():
        return True
    if not policy.may_unmount_staging or isinstance(node.mappings, NotObserved):
        return False
    here = [mount for mount in device.mounts if mount.namespace.is_host]
    paths = {mount.path for mount in device.mounts}
    return (
        len(here) == 1
        and paths == {here[0].path}
        and "/plugins/kubernetes.io/csi/" in here[0].path
        and not here[0].covered
        and not any(
            mount.path == here[0].path
            for other in node.mappings
            if other is not device and not isinstance(other.mounts, NotObserved)
            for mount in other.mounts
        )
    )


def _has_nothing_on_top(device: Mapping, policy: UnmapPolicy) -> bool:
    if isinstance(device.holders, NotObserved):
        return False
    names = [holder.label for holder in device.holders]
    return names == [] or (
        policy.may_unmount_staging and len(names) == 1 and names[0].startswith("luks-rbd-")
    )


def _paths_are_free(node: NodeView, api: KubeView) -> bool:
    kubelet = node.kubelet
    if isinstance(kubelet, NotObserved) or isinstance(kubelet.staging, NotObserved):
        return False
    if isinstance(kubelet.pod_volumes, NotObserved) or isinstance(api.pods, NotObserved):
        return False
    alive = {pod.ref.uid for pod in api.pods}
    return all(directory.pod_uid not in alive for directory in kubelet.pod_volumes) and (
        not kubelet.pod_volumes or _whole(api)
    )


def _whole(api: KubeView) -> bool:
    everything = api.consistent and api.volumes_complete
    return everything and api.pods_scope in {"cluster", f"node/{_HERE}"}


def _is_not_wanted(
    look: Snapshot, node: NodeView, api: KubeView, memory: History | None, grace: float
) -> bool:
    if isinstance(api.pods, NotObserved) or isinstance(api.attachments, NotObserved):
        return False
    if not _whole(api) or not _is_that_node(node, api):
        return False
    pods_want_it = any(
        pod.node_name == _HERE
        and "data" in pod.claims
        and (pod.phase not in {"Succeeded", "Failed"} or pod.deleting_since is not None)
        for pod in api.pods
    )
    wanted_lately = any(
        known.needed_at is not None
        and (node.uptime_s is None or node.uptime_s - known.needed_at.uptime_s < grace)
        for known in (memory.mappings if memory else ())
    )
    young_ties = any(
        tie.node_name == _HERE
        and tie.deleting_since is None
        and (tie.created_at is None or _age(tie.created_at, look) < grace)
        for tie in api.attachments
    )
    return not (pods_want_it or wanted_lately or young_ties) and _kubelet_is_settled(
        look, node, grace
    )


def _is_that_node(node: NodeView, api: KubeView) -> bool:
    """Return whether the API's Node has the boot id of the machine: its pods run here."""
    nodes = () if isinstance(api.nodes, NotObserved) else api.nodes
    boots = {entry.boot_id for entry in nodes if entry.name == _HERE}
    return boots == {node.boot_id} and None not in boots


def _kubelet_is_settled(look: Snapshot, node: NodeView, grace: float) -> bool:
    kubelet = node.kubelet
    process = kubelet.process if isinstance(kubelet, KubeletView) else None
    if process is None or isinstance(process, NotObserved) or process.started_at is None:
        return False
    return _age(process.started_at, look) >= grace


def _age(then: str, look: Snapshot) -> float:
    now = dt.datetime.fromisoformat(look.observed_at)
    return (now - dt.datetime.fromisoformat(then)).total_seconds()


def _is_kubernetes(device: Mapping, node: NodeView, api: KubeView) -> bool:
    named = not isinstance(device.spec, NotObserved) and device.spec.name.startswith("csi-vol-")
    kubelet = node.kubelet
    staged = isinstance(kubelet, KubeletView) and bool(kubelet.staging)
    return named or staged or bool(api.persistent_volumes)


def _is_worked_on(device: Mapping, node: NodeView) -> bool:
    if isinstance(node.in_flight, NotObserved):
        return True
    if not isinstance(device.hung_requests, NotObserved) and device.hung_requests:
        return True
    return bool(node.in_flight)


def _orphaned_for(
    grace: float, node: NodeView, memory: History | None, policy: UnmapPolicy
) -> bool:
    if memory is None or node.uptime_s is None or isinstance(memory.unmaps, NotObserved):
        return False
    if len(memory.unmaps) >= policy.most_unmaps_an_hour:
        return False
    return any(
        known.orphaned_since is not None
        and node.uptime_s - known.orphaned_since.uptime_s >= grace
        and known.identity.device == "/dev/rbd0"
        for known in memory.mappings
    )


def _seen_whole(look: Snapshot, api: KubeView) -> bool:
    sources = (look.sources.node, look.sources.ceph, look.sources.kubernetes)
    if any(source.state is not SourceState.OBSERVED or source.gaps for source in sources):
        return False
    clusters = look.ceph.clusters if look.ceph is not None else ()
    if any(isinstance(cluster.blocklist, NotObserved) for cluster in clusters):
        return False
    views = [view for cluster in clusters for view in cluster.images]
    unseen = any(
        isinstance(view.watchers, NotObserved) or isinstance(view.presence, NotObserved)
        for view in views
    )
    return bool(views) and not unseen and not isinstance(api.nodes, NotObserved)


def _no_io_for(grace: float, device: Mapping, node: NodeView, memory: History | None) -> bool:
    counted = device.io_counters
    if isinstance(counted, NotObserved) or counted.in_flight > 0 or node.uptime_s is None:
        return False
    return any(
        known.identity.device == "/dev/rbd0"
        and known.io_counters == counted
        and known.no_io_since is not None
        and node.uptime_s - known.no_io_since.uptime_s >= grace
        for known in (memory.mappings if memory is not None else ())
    )
