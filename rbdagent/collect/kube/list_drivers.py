"""Requests for the Deployments and DaemonSets of the drivers that something waits for.

A driver whose pods are missing is found by these alone: they name it in an argument. What keeps
their pods from running is requested only for those that have too few.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Final, NamedTuple

from msgspec.structs import replace

from rbdagent.collect.kube.requests import listed, merged, within
from rbdagent.model import NotObserved, derived, observed_of, separated
from rbdagent.parse import kubernetes as read

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from rbdagent.collect.kube.client import Api
    from rbdagent.model import DriverWorkload, KubeEvent, Requirement, WorkloadPod

NOTHING_WAITS_FOR_IT: Final = NotObserved(reason="not queried: nothing here waits for the driver")
_GROUP: Final = "/apis/apps/v1"
_MOST_PODS: Final = 2
"""Pods of one workload whose events are requested."""
_MOST_NODES: Final = 8
"""Nodes on which the pod of a DaemonSet is requested."""

_Workloads = tuple["DriverWorkload", ...] | NotObserved


class DriverWorkloads(NamedTuple):
    """Holds the DaemonSets and Deployments of drivers."""

    node_plugins: _Workloads = NOTHING_WAITS_FOR_IT
    controllers: _Workloads = NOTHING_WAITS_FOR_IT


def workloads_of_drivers(api: Api, drivers: Iterable[str], nodes: Sequence[str]) -> DriverWorkloads:
    """Return the workloads that serve one of the drivers, and why their pods do not run.

    Deployments are listed where the DaemonSets of the drivers are, and in all namespaces only if
    none serves one of the drivers there: a cluster has few DaemonSets, and may have many
    Deployments.

    Args:
        api: the API server.
        drivers: their names.
        nodes: where something waits for them.
    """
    known = frozenset(drivers)
    node_plugins = _serving(known, _list(api, "DaemonSet", None)())
    spaces = sorted({found.ref.namespace for found in observed_of(node_plugins)})
    begun = [_list(api, "Deployment", space) for space in spaces]
    controllers = _serving(known, merged([wait() for wait in begun]))
    served = {name for found in observed_of(controllers) for name in found.serves}
    if not known <= served:
        controllers = _serving(known, _list(api, "Deployment", None)())
    return DriverWorkloads(
        derived(node_plugins, lambda found: _explained(api, found, nodes)),
        derived(controllers, lambda found: _explained(api, found, ())),
    )


def _list(api: Api, kind: str, namespace: str | None) -> Callable[[], _Workloads]:
    path = within(namespace, f"{kind.lower()}s", group=_GROUP)
    return listed(api, path, functools.partial(read.driver_workload, kind=kind))


def _serving(drivers: frozenset[str], found: _Workloads) -> _Workloads:
    """Return those that serve one of the drivers; unknown if one may, and no other does."""
    if isinstance(found, NotObserved):
        return found
    serving = tuple(one for one in found if not drivers.isdisjoint(one.serves))
    unclear = [one for one in found if any(_is_variable(name) for name in one.serves)]
    if unclear and not serving:
        return NotObserved(
            reason=f"{unclear[0]} names its driver by a variable that is not in its manifest"
        )
    return serving


def _is_variable(name: str) -> bool:
    return "$(" in name


def _explained(
    api: Api, found: tuple[DriverWorkload, ...], nodes: Sequence[str]
) -> tuple[DriverWorkload, ...]:
    """Return workloads, those with too few pods with what keeps the others from running."""
    begun = [
        (workload, _begin(api, workload, nodes))
        if workload.ready < workload.desired
        else (workload, None)
        for workload in found
    ]
    return tuple(workload if wait is None else wait() for workload, wait in begun)


def _begin(
    api: Api, workload: DriverWorkload, nodes: Sequence[str]
) -> Callable[[], DriverWorkload]:
    """Request the pods and warnings of a workload; return a function that waits for them."""
    namespace = workload.ref.namespace
    own = _pods(api, workload, nodes)
    # The FailedCreate of a Deployment is an event of its ReplicaSet, and a condition of itself.
    warnings = (
        _events(api, namespace, workload.ref.name, workload.kind)
        if workload.kind == "DaemonSet"
        else lambda: ()
    )

    def wait() -> DriverWorkload:
        pods = own()
        waiting = [pod for pod in observed_of(pods) if not pod.ready]
        of_pods = [_events(api, namespace, pod.ref.name, "Pod") for pod in waiting[:_MOST_PODS]]
        events = _all_events([warnings(), *(begun() for begun in of_pods)])
        return replace(workload, pods=pods, events=events)

    return wait


def _pods(
    api: Api, workload: DriverWorkload, nodes: Sequence[str]
) -> Callable[[], tuple[WorkloadPod, ...] | NotObserved]:
    """Request the pods: of a DaemonSet, only those that do not run, and those on the nodes.

    The containers of a pod in phase Running may still fail.
    """
    fields = [""]
    if workload.kind == "DaemonSet":
        fields = ["status.phase!=Running", *(f"spec.nodeName={node}" for node in nodes)]
    begun = [
        listed(
            api,
            within(workload.ref.namespace, "pods"),
            read.workload_pod,
            labelSelector=label_selector(workload.selector or ()),
            **({"fieldSelector": field} if field else {}),
        )
        for field in fields[: _MOST_NODES + 1]
    ]

    def wait() -> tuple[WorkloadPod, ...] | NotObserved:
        observed, missing = separated([one() for one in begun])
        if missing:
            return missing[0]
        return tuple(dict.fromkeys(pod for part in observed for pod in part if pod is not None))

    return wait


def _events(
    api: Api, namespace: str, name: str, kind: str
) -> Callable[[], tuple[KubeEvent, ...] | NotObserved]:
    meant = f"involvedObject.kind={kind},involvedObject.name={name},type=Warning"
    return listed(api, within(namespace, "events"), read.event, fieldSelector=meant)


def _all_events(
    parts: Iterable[tuple[KubeEvent, ...] | NotObserved],
) -> tuple[KubeEvent, ...] | NotObserved:
    observed, missing = separated(parts)
    found = tuple(event for part in observed for event in part)
    return missing[0] if missing and not found else found


def label_selector(selector: tuple[Requirement, ...]) -> str:
    """Return requirements for labels as the API takes them in a query."""
    return ",".join(map(_requirement, selector))


def _requirement(requirement: Requirement) -> str:
    match requirement.operator:
        case "Exists":
            return requirement.key
        case "DoesNotExist":
            return f"!{requirement.key}"
        case operator:
            return f"{requirement.key} {operator.lower()} ({','.join(requirement.values)})"
