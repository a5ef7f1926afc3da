"""The Kubernetes API: everything that volumes hang on, of the whole cluster or of one namespace.

All of it is listed, page by page, all lists at once: what belongs to which volume is sorted out
afterwards. Of a namespace only what is its own is asked for there, so that a Role is enough for it;
what is the cluster's (PVs, Nodes, VolumeAttachments) is a gap where that is forbidden.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

from rbdagent.errors import ParseError, SourceError
from rbdagent.model import (
    Claim,
    Gap,
    KubeEvent,
    KubeView,
    NotObserved,
    PersistentVolume,
    Pod,
    Source,
    SourceState,
    observed_of,
)
from rbdagent.observe.api import Api
from rbdagent.observe.asking import (
    ATTACHMENTS,
    CSI_NODES,
    NODES,
    PODS,
    VOLUMES,
    listed,
    within,
)
from rbdagent.observe.kube import begin_reports, gaps_of
from rbdagent.observe.kubeconfig import KubeAccess, credentials
from rbdagent.observe.life import (
    Meant,
    ask_life,
    gap,
    gaps_of_life,
    list_workloads,
    with_life,
    with_provisioners,
)
from rbdagent.parse import kubernetes as read

if TYPE_CHECKING:
    from collections.abc import Callable

_V = TypeVar("_V", Claim, PersistentVolume)
_OF_VOLUMES: Final = "involvedObject.kind=PersistentVolume"
_PODS = tuple[Pod, ...] | NotObserved
_EVENTS = tuple[KubeEvent, ...] | NotObserved


def observe_everything(
    access: KubeAccess, *, namespace: str | None, node_name: str
) -> tuple[KubeView | None, Source]:
    """Ask the API for everything.

    Args:
        access: where and as whom.
        namespace: whose claims, pods and events; None: everybody's.
        node_name: this node, whose pods are asked for as well.

    Returns:
        The view, or None with the reason why there is none. A kind that alone was refused is
        NotObserved in the view and a gap of the source.
    """
    try:
        api = Api(credentials(access), timeout_s=access.timeout_s)
        view, gaps = _look(api, namespace, node_name)
    except (SourceError, ParseError) as error:
        return None, Source(state=SourceState.FAILED, reason=str(error), cure=error.hint)
    refused = _refused(view)
    if refused is not None:
        return None, Source(state=SourceState.FAILED, reason=refused.reason, cure=refused.cure)
    return view, Source(state=SourceState.OBSERVED, gaps=(*gaps_of(view), *gaps))


def _refused(view: KubeView) -> NotObserved | None:
    """Give why nothing was told of all that is to be judged; None: something was."""
    asked = (view.claims, view.pods, view.persistent_volumes, view.nodes, view.attachments)
    unseen = [each for each in asked if isinstance(each, NotObserved)]
    return unseen[0] if len(unseen) == len(asked) else None


def _look(api: Api, namespace: str | None, node_name: str) -> tuple[KubeView, tuple[Gap, ...]]:
    """Send everything at once, and wait for one after the other."""
    pods = _ask_pods(api, namespace, node_name)
    events = _ask_events(api, namespace)
    claims = listed(api, within(namespace, "persistentvolumeclaims"), read.claim)
    volumes = listed(api, VOLUMES, read.persistent_volume)
    attachments = listed(api, ATTACHMENTS, read.attachment)
    nodes = listed(api, NODES, read.node)
    csi_nodes = listed(api, CSI_NODES, read.csi_node)
    life = ask_life(api)
    workloads = list_workloads(api, namespace)
    published = begin_reports(api)
    found_pods, scope = pods()
    found_events, further = events()
    found_claims, found_volumes = claims(), volumes()
    # The controllers of all pods are listed, none is asked for by its name.
    told = life(Meant((), (), ()))._replace(workloads=workloads())
    meant = Meant((), _at_work(found_claims), _at_work(found_volumes))
    told = with_provisioners(api, told, meant)
    view = KubeView(
        server=api.server,
        persistent_volumes=found_volumes,
        claims=found_claims,
        pods=found_pods,
        nodes=nodes(),
        csi_nodes=csi_nodes(),
        attachments=attachments(),
        events=found_events,
        pods_scope=scope,
        # Every list was asked for without a resourceVersion: a quorum read.
        consistent=True,
        published=published(),
    )
    view = with_life(view, told)
    return view, (*gaps_of_life(view), *gap("RBDNodes", view.published), *further)


def _at_work(listed: tuple[_V, ...] | NotObserved) -> tuple[_V, ...]:
    """Give the claims or PVs that somebody makes, binds or deletes."""
    return tuple(
        each
        for each in observed_of(listed)
        if each.phase not in {"Bound", "Available"} or each.deleting_since is not None
    )


def _ask_pods(api: Api, namespace: str | None, node_name: str) -> Callable[[], tuple[_PODS, str]]:
    """Ask for them; give what waits, and tells what the lists cover."""
    asked = listed(api, within(namespace, "pods"), read.pod)
    if namespace is None:
        return lambda: _all_pods(asked())
    here = listed(api, PODS, read.pod, fieldSelector=f"spec.nodeName={node_name}")
    return lambda: _joined(asked(), here(), namespace, node_name)


def _all_pods(pods: _PODS) -> tuple[_PODS, str]:
    return pods, "" if isinstance(pods, NotObserved) else "cluster"


def _joined(pods: _PODS, here: _PODS, namespace: str, node_name: str) -> tuple[_PODS, str]:
    """Join a namespace's pods and those of this node; who may not list all nodes' has the first."""
    if isinstance(pods, NotObserved):
        return pods, ""
    if isinstance(here, NotObserved):
        return pods, f"namespace/{namespace}"
    every = {(each.ref.namespace, each.ref.name): each for each in (*here, *pods)}
    return tuple(every.values()), f"node/{node_name},namespace/{namespace}"


def _ask_events(api: Api, namespace: str | None) -> Callable[[], tuple[_EVENTS, tuple[Gap, ...]]]:
    """Ask for them; a PV's are in namespace default, whichever namespace its claim is in."""
    own = listed(api, within(namespace, "events"), read.event)
    if namespace is None:
        return lambda: (own(), ())
    path = within("default", "events")
    of_volumes = listed(api, path, read.event, fieldSelector=_OF_VOLUMES)

    def wait() -> tuple[_EVENTS, tuple[Gap, ...]]:
        found, further = own(), of_volumes()
        gaps = gap("events of PersistentVolumes", further)
        if isinstance(found, NotObserved):
            return found, gaps
        return tuple(dict.fromkeys((*found, *observed_of(further)))), gaps

    return wait
