"""All API objects that volumes depend on, of the whole cluster or of one namespace.

All lists are requested in parallel, page by page. The correlation assigns the objects to volumes
afterwards. For a namespace, namespaced objects are requested only there, so that a Role is enough.
Objects of the cluster (PVs, Nodes, VolumeAttachments) are a gap if the user may not list them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

from msgspec.structs import replace

from rbdagent.collect.kube.list_provisioning import (
    TargetObjects,
    gap,
    lifecycle_gaps,
    list_workloads,
    request_lifecycle,
    with_driver_workloads,
    with_lifecycle,
    with_provisioners,
)
from rbdagent.collect.kube.list_reports import begin_reports
from rbdagent.collect.kube.list_target import gaps_of
from rbdagent.collect.kube.requests import (
    ATTACHMENTS,
    BUDGETS,
    CSI_NODES,
    NODES,
    PODS,
    VOLUMES,
    listed,
    within,
)
from rbdagent.collect.kube.stored_reports import STORED, StoredReports
from rbdagent.errors import ParseError, SourceError
from rbdagent.model import (
    CollectScope,
    Gap,
    KubeEvent,
    KubeView,
    NotObserved,
    PersistentVolume,
    PersistentVolumeClaim,
    Pod,
    Source,
    SourceState,
    derived,
    observed_of,
    separated,
)
from rbdagent.parse import kubernetes as read

if TYPE_CHECKING:
    from collections.abc import Callable

    from rbdagent.collect.kube.client import Api
    from rbdagent.collect.kube.connection import Connection

_V = TypeVar("_V", PersistentVolumeClaim, PersistentVolume)
_OF_VOLUMES: Final = "involvedObject.kind=PersistentVolume"
_PODS = tuple[Pod, ...] | NotObserved
_EVENTS = tuple[KubeEvent, ...] | NotObserved


def observe_cluster(
    connection: Connection,
    *,
    namespace: str | None,
    node_name: str,
    also: CollectScope = CollectScope.LIFECYCLE,
    stored: StoredReports | None = None,
) -> tuple[KubeView | None, Source]:
    """Return all API objects that volumes depend on.

    Args:
        connection: to the API server.
        namespace: of the claims, pods and events; None for all namespaces.
        node_name: this node, whose pods are also requested.
        also: what is requested of the objects that the lifecycle of a volume depends on.
        stored: keeps what agents published; None to return it in the view.

    Returns:
        The view, or None with the reason why there is none. If the API refused only some kinds,
        these are NotObserved in the view and gaps of the source.
    """
    try:
        api = connection.api()
        view, gaps = _request_all(api, namespace, node_name, also, stored)
    except (SourceError, ParseError) as error:
        return None, Source(state=SourceState.FAILED, reason=str(error), hint=error.hint)
    refused = _refused(view)
    if refused is not None:
        return None, Source(state=SourceState.FAILED, reason=refused.reason, hint=refused.hint)
    return view, Source(state=SourceState.OBSERVED, gaps=(*gaps_of(view), *gaps))


def _refused(view: KubeView) -> NotObserved | None:
    """Return the reason if all required kinds were refused; None if at least one was observed."""
    wanted = (view.claims, view.pods, view.persistent_volumes, view.nodes, view.attachments)
    observed, unseen = separated(wanted)
    return None if observed else unseen[0]


def _request_all(
    api: Api,
    namespace: str | None,
    node_name: str,
    also: CollectScope,
    stored: StoredReports | None,
) -> tuple[KubeView, tuple[Gap, ...]]:
    """Send all requests, then wait for the answers one after the other."""
    pods = _ask_pods(api, namespace, node_name)
    events = _ask_events(api, namespace)
    claims = listed(api, within(namespace, "persistentvolumeclaims"), read.claim)
    volumes = listed(api, VOLUMES, read.persistent_volume)
    attachments = listed(api, ATTACHMENTS, read.attachment)
    nodes = listed(api, NODES, read.node)
    csi_nodes = listed(api, CSI_NODES, read.csi_node)
    life = request_lifecycle(api, also & ~(CollectScope.WORKLOADS | CollectScope.DRIVER_WORKLOADS))
    workloads = list_workloads(api, namespace) if CollectScope.WORKLOADS in also else None
    published = begin_reports(api) if stored is None else stored.begin(api)
    found_pods, scope = pods()
    found_events, further = events()
    found_claims, found_volumes, found_attachments = claims(), volumes(), attachments()
    lifecycle = life(TargetObjects((), (), ()))
    if workloads is not None:
        # The controllers of all pods are listed; no controller is requested by its name.
        lifecycle = lifecycle._replace(workloads=workloads())
    meant = TargetObjects((), _in_progress(found_claims), _in_progress(found_volumes))
    lifecycle = with_provisioners(api, lifecycle, meant, also)
    every = TargetObjects(
        tuple(pod for pod in observed_of(found_pods) if pod.claims or pod.inline_volumes),
        observed_of(found_claims),
        observed_of(found_volumes),
        observed_of(found_attachments),
    )
    lifecycle = with_driver_workloads(api, lifecycle, every, also)
    view = KubeView(
        server=api.server,
        persistent_volumes=found_volumes,
        claims=found_claims,
        pods=found_pods,
        nodes=nodes(),
        csi_nodes=csi_nodes(),
        attachments=found_attachments,
        events=found_events,
        pods_scope=scope,
        # All lists were requested without a resourceVersion: quorum reads.
        consistent=True,
        published=published(),
    )
    view = with_lifecycle(view, lifecycle)
    unseen = () if view.published is STORED else gap("RBDNodes", view.published)
    # A node has pods of other namespaces too, and those need their budgets.
    if CollectScope.BUDGETS in also and namespace is None:
        # No gap of the source: only the check of a drain needs them, and reports that itself.
        view = replace(view, budgets=listed(api, BUDGETS, read.disruption_budget)())
    return view, (*lifecycle_gaps(view), *unseen, *further)


def _in_progress(listed: tuple[_V, ...] | NotObserved) -> tuple[_V, ...]:
    """Return the claims or PVs that are being created, bound or deleted."""
    return tuple(
        item
        for item in observed_of(listed)
        if item.phase not in {"Bound", "Available"} or item.deleting_since is not None
    )


def _ask_pods(api: Api, namespace: str | None, node_name: str) -> Callable[[], tuple[_PODS, str]]:
    """Request the pods; return a function that waits for them and returns the lists' scope."""
    pods = listed(api, within(namespace, "pods"), read.pod)
    if namespace is None:
        return lambda: _all_pods(pods())
    here = listed(api, PODS, read.pod, fieldSelector=f"spec.nodeName={node_name}")
    return lambda: _joined(pods(), here(), namespace, node_name)


def _all_pods(pods: _PODS) -> tuple[_PODS, str]:
    return pods, "" if isinstance(pods, NotObserved) else "cluster"


def _joined(pods: _PODS, here: _PODS, namespace: str, node_name: str) -> tuple[_PODS, str]:
    """Merge the pods of the namespace and of this node; only the former if the latter failed."""
    if isinstance(pods, NotObserved):
        return pods, ""
    if isinstance(here, NotObserved):
        return pods, f"namespace/{namespace}"
    every = {(pod.ref.namespace, pod.ref.name): pod for pod in (*here, *pods)}
    return tuple(every.values()), f"node/{node_name},namespace/{namespace}"


def _ask_events(api: Api, namespace: str | None) -> Callable[[], tuple[_EVENTS, tuple[Gap, ...]]]:
    """Request the events; those of a PV are in namespace default, not in that of its claim."""
    own = listed(api, within(namespace, "events"), read.event)
    if namespace is None:
        return lambda: (own(), ())
    path = within("default", "events")
    of_volumes = listed(api, path, read.event, fieldSelector=_OF_VOLUMES)

    def wait() -> tuple[_EVENTS, tuple[Gap, ...]]:
        found, further = own(), of_volumes()
        gaps = gap("events of PersistentVolumes", further)
        return derived(
            found, lambda events: tuple(dict.fromkeys((*events, *observed_of(further))))
        ), gaps

    return wait
