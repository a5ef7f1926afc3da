"""The API objects of one node, whichever node runs this: what a drain of it depends on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from rbdagent.collect.failure import gaps_in
from rbdagent.collect.kube.list_provisioning import workloads_of
from rbdagent.collect.kube.list_reports import reports_of_nodes
from rbdagent.collect.kube.list_target import observe_kube
from rbdagent.collect.kube.requests import BUDGETS, listed
from rbdagent.errors import ParseError, SourceError
from rbdagent.model import NotObserved, Target, TargetKind, observed_of
from rbdagent.parse import kubernetes as read

if TYPE_CHECKING:
    from rbdagent.collect.kube.connection import Connection
    from rbdagent.collect.kube.kubeconfig import KubeAccess
    from rbdagent.model import KubeView, PublishedNode, Source

_NO_TARGET = Target(argument="", kind=TargetKind.NONE)


def observe_node_objects(
    connection: Connection, access: KubeAccess, node_name: str
) -> tuple[KubeView | None, Source]:
    """Return the objects of one node: what `list` requests there, and what a drain depends on.

    These are the controllers of its pods, all PodDisruptionBudgets, and the report of its agent.

    Args:
        connection: to the API server.
        access: how to connect to it.
        node_name: the node; this machine may be another one.

    Returns:
        The view, or None with the reason why there is none. If the API refused only some kinds,
        these are NotObserved in the view and gaps of the source.
    """
    view, source = observe_kube(connection, _NO_TARGET, node_name=node_name)
    if view is None:
        return view, source
    try:
        api = connection.api()
        budgets = listed(api, BUDGETS, read.disruption_budget)
        workloads = workloads_of(api, observed_of(view.pods))
        view = replace(view, budgets=budgets(), workloads=workloads)
    except (SourceError, ParseError) as error:
        unseen = NotObserved(reason=str(error), hint=error.hint)
        view = replace(view, budgets=unseen, workloads=unseen)
    view = replace(view, published=_report(access, node_name))
    gaps = gaps_in(
        [
            ("PodDisruptionBudgets", view.budgets),
            ("controllers of pods", view.workloads),
            ("RBDNodes", view.published),
        ]
    )
    return view, replace(source, gaps=(*source.gaps, *gaps))


def _report(access: KubeAccess, node_name: str) -> tuple[PublishedNode, ...] | NotObserved:
    """Return the report of the node's agent; empty if no agent has published one."""
    found = reports_of_nodes(access, [node_name])[node_name]
    if found is None or isinstance(found, NotObserved):
        return () if found is None else found
    return (found,)
