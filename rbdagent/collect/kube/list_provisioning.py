"""Requests to the Kubernetes API for a volume's lifecycle, in addition to those for its holders."""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from msgspec.structs import replace

from rbdagent.collect.failure import gaps_in
from rbdagent.collect.kube.client import segment
from rbdagent.collect.kube.list_drivers import (
    NOTHING_WAITS_FOR_IT,
    DriverWorkloads,
    workloads_of_drivers,
)
from rbdagent.collect.kube.requests import (
    PODS,
    all_observed,
    found_object,
    listed,
    within,
)
from rbdagent.model import (
    LIFECYCLE_NOT_REQUESTED,
    CollectScope,
    CsiSource,
    Gap,
    NotObserved,
    observed_of,
    separated,
)
from rbdagent.parse import kubernetes as read
from rbdagent.parse.handle import lease_names

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from rbdagent.collect.kube.client import Api
    from rbdagent.model import (
        DriverPod,
        KubeView,
        Lease,
        PersistentVolume,
        PersistentVolumeClaim,
        Pod,
        StorageClass,
        VolumeAttachment,
        Workload,
    )

_T = TypeVar("_T")

CLASSES: Final = "/apis/storage.k8s.io/v1/storageclasses"
DRIVERS: Final = "/apis/storage.k8s.io/v1/csidrivers"
LEASES: Final = "/apis/coordination.k8s.io/v1/leases"
_SYSTEM_LEASES: Final = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
_CONTROLLER_MANAGER: Final = "kube-controller-manager"
_VERSION: Final = "/version"
_APPS: Final = (
    "csi-rbdplugin-provisioner",
    "ceph-csi-rbd",
    "rbd-provisioner",
    "cephfs-provisioner",
    "nfs-client-provisioner",
)
"""Labels ``app`` of provisioners: the manifests of ceph-csi and Rook, the chart of ceph-csi, the
former external-storage."""
_LABEL: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
NOTHING_WAITS: Final = NotObserved(reason="not queried: nothing here waits for a provisioner")
_KINDS: Final = {
    "ReplicaSet": "replicasets",
    "Deployment": "deployments",
    "StatefulSet": "statefulsets",
}


class ProvisioningSources(NamedTuple):
    """Holds the observed objects of the lifecycle."""

    storage_classes: tuple[StorageClass, ...] | NotObserved
    drivers: tuple[str, ...] | NotObserved
    workloads: tuple[Workload, ...] | NotObserved
    version: str | NotObserved
    provisioners: Provisioners
    of_drivers: DriverWorkloads = DriverWorkloads()


class Provisioners(NamedTuple):
    """Holds the leases and pods of the controllers that create, delete and bind volumes."""

    leases: tuple[Lease, ...] | NotObserved = NOTHING_WAITS
    pods: tuple[DriverPod, ...] | NotObserved = NOTHING_WAITS


class TargetObjects(NamedTuple):
    """Holds the objects that belong to the target."""

    pods: tuple[Pod, ...]
    claims: tuple[PersistentVolumeClaim, ...]
    volumes: tuple[PersistentVolume, ...]
    attachments: tuple[VolumeAttachment, ...] = ()


def with_lifecycle(view: KubeView, lifecycle: ProvisioningSources) -> KubeView:
    """Return a view with the objects of the lifecycle."""
    return replace(
        view,
        storage_classes=lifecycle.storage_classes,
        drivers=lifecycle.drivers,
        workloads=lifecycle.workloads,
        version=lifecycle.version,
        leases=lifecycle.provisioners.leases,
        driver_pods=lifecycle.provisioners.pods,
        node_plugins=lifecycle.of_drivers.node_plugins,
        controllers=lifecycle.of_drivers.controllers,
    )


def lifecycle_gaps(view: KubeView) -> tuple[Gap, ...]:
    """Return gaps for the kinds that were requested but not observed."""
    return (
        *gap("storage classes", view.storage_classes),
        *gap("controllers of pods", view.workloads),
        *gap("CSIDrivers", view.drivers),
        *gap("leases of controllers", view.leases),
        *gap("pods of provisioners", view.driver_pods),
        *gap("DaemonSets of the driver", view.node_plugins),
        *gap("Deployments of the driver", view.controllers),
    )


def gap(fact: str, found: object) -> tuple[Gap, ...]:
    """Return a gap if a fact was requested but not observed."""
    unasked = (NOTHING_WAITS, NOTHING_WAITS_FOR_IT, LIFECYCLE_NOT_REQUESTED)
    return () if found in unasked else gaps_in([(fact, found)])


def request_lifecycle(
    api: Api, also: CollectScope
) -> Callable[[TargetObjects], ProvisioningSources]:
    """Send the first requests; return a function that sends those for the target, and waits."""
    classes = _begin(
        CollectScope.STORAGE_CLASSES, also, lambda: listed(api, CLASSES, read.storage_class)
    )
    drivers = _begin(CollectScope.CSI_DRIVERS, also, lambda: listed(api, DRIVERS, read.object_name))
    version = _begin(CollectScope.VERSION, also, lambda: _ask_version(api))

    def wait(meant: TargetObjects) -> ProvisioningSources:
        found = classes()
        workloads = _begin(
            CollectScope.WORKLOADS, also, lambda: lambda: workloads_of(api, meant.pods)
        )
        lifecycle = ProvisioningSources(found, drivers(), workloads(), version(), Provisioners())
        lifecycle = with_provisioners(api, lifecycle, meant, also)
        return with_driver_workloads(api, lifecycle, meant, also)

    return wait


def _begin(
    kind: CollectScope,
    also: CollectScope,
    begin: Callable[[], Callable[[], _T | NotObserved]],
) -> Callable[[], _T | NotObserved]:
    """Send the request for a kind if it is in the scope; return a function that waits for it."""
    return begin() if kind in also else lambda: LIFECYCLE_NOT_REQUESTED


def _ask_version(api: Api) -> Callable[[], str | NotObserved]:
    request = api.ask(_VERSION)
    missing = NotObserved(reason=f"{_VERSION} does not exist")
    return lambda: found_object(request, read.version) or missing


def with_provisioners(
    api: Api, lifecycle: ProvisioningSources, meant: TargetObjects, also: CollectScope
) -> ProvisioningSources:
    """Request the provisioners that only the observed objects name."""
    if CollectScope.PROVISIONERS not in also:
        unasked = LIFECYCLE_NOT_REQUESTED
        return lifecycle._replace(provisioners=Provisioners(unasked, unasked))
    if not _waits(meant):
        return lifecycle
    names = _provisioners(meant, observed_of(lifecycle.storage_classes))
    return lifecycle._replace(provisioners=provisioners_of(api, names))


def with_driver_workloads(
    api: Api, lifecycle: ProvisioningSources, meant: TargetObjects, also: CollectScope
) -> ProvisioningSources:
    """Request the workloads of the drivers that the observed objects wait for."""
    if CollectScope.DRIVER_WORKLOADS not in also:
        unasked = LIFECYCLE_NOT_REQUESTED
        return lifecycle._replace(of_drivers=DriverWorkloads(unasked, unasked))
    if not _waits_for_driver(meant):
        return lifecycle._replace(of_drivers=DriverWorkloads())
    names = _provisioners(meant, observed_of(lifecycle.storage_classes))
    names |= {attachment.attacher for attachment in meant.attachments}
    waiting = [pod.node_name for pod in meant.pods if pod.phase == "Pending" and pod.node_name]
    nodes = tuple(dict.fromkeys(waiting))
    return lifecycle._replace(of_drivers=workloads_of_drivers(api, names, nodes))


def _waits_for_driver(meant: TargetObjects) -> bool:
    """Return whether a claim, a pod, an attachment or a growth waits for a part of the driver."""
    has = {volume.name: volume.capacity_bytes or 0 for volume in meant.volumes}
    return (
        any(claim.phase == "Pending" for claim in meant.claims)
        or any(pod.phase == "Pending" for pod in meant.pods)
        or any(not one.attached or one.deleting_since for one in meant.attachments)
        or any(
            (claim.requested_bytes or 0) > has[claim.volume_name]
            for claim in meant.claims
            if claim.volume_name in has
        )
    )


def _waits(meant: TargetObjects) -> bool:
    """Return whether a claim or PV waits for a controller, not for a node."""
    every: tuple[PersistentVolumeClaim | PersistentVolume, ...] = (*meant.claims, *meant.volumes)
    return any(item.phase != "Bound" or item.deleting_since is not None for item in every)


def _provisioners(meant: TargetObjects, classes: tuple[StorageClass, ...]) -> set[str]:
    """Return the names of the provisioners that create, or have created, the target's volumes."""
    names = {claim.storage_class for claim in meant.claims}
    found = {storage_class.provisioner for storage_class in classes if storage_class.name in names}
    found |= {claim.provisioner for claim in meant.claims if claim.provisioner}
    found |= {volume.provisioner for volume in meant.volumes if volume.provisioner}
    return found | {
        volume.source.driver for volume in meant.volumes if isinstance(volume.source, CsiSource)
    }


def provisioners_of(api: Api, names: Iterable[str]) -> Provisioners:
    """Request the leases of provisioners by name, and the pods that hold them."""
    known = sorted(names)
    begun = [
        listed(api, LEASES, read.lease, fieldSelector=f"metadata.name={lease}")
        for name in known
        for lease in lease_names(name)
    ]
    begun.append(
        listed(
            api, _SYSTEM_LEASES, read.lease, fieldSelector=f"metadata.name={_CONTROLLER_MANAGER}"
        )
    )
    labels = (*_APPS, *(f"{name}-ctrlplugin" for name in known))
    app = ",".join(label for label in labels if _LABEL.fullmatch(label))
    by_label = listed(
        api, PODS, read.driver_pod, labelSelector=f"app in ({app}),component!=nodeplugin"
    )
    leases = _merged([wait() for wait in begun])
    leaders = [lease for lease in observed_of(leases) if lease.name != _CONTROLLER_MANAGER]
    requests = [
        api.ask(f"/api/v1/namespaces/{segment(lease.namespace)}/pods/{segment(lease.holder)}")
        for lease in leaders
        if lease.holder
    ]
    leading = all_observed([found_object(request, read.driver_pod) for request in requests])
    return Provisioners(leases, _merged([by_label(), leading]))


def _merged(parts: list[tuple[_T, ...] | NotObserved]) -> tuple[_T, ...] | NotObserved:
    """Merge lists without duplicates; NotObserved if one of them was not observed."""
    observed, missing = separated(parts)
    if missing:
        return missing[0]
    return tuple(dict.fromkeys(item for part in observed for item in part))


def workloads_of(api: Api, pods: Iterable[Pod]) -> tuple[Workload, ...] | NotObserved:
    """Return the controllers of pods, and the owners of these, each requested by name."""
    owners = {(pod.ref.namespace, owner) for pod in pods for owner in pod.owners}
    found: tuple[Workload, ...] = ()
    while owners:
        answer = _named(api, owners)
        if isinstance(answer, NotObserved):
            return answer
        found += answer
        known = {(workload.ref.namespace, workload.name) for workload in found}
        owners = {
            (workload.ref.namespace, owner) for workload in answer for owner in workload.owners
        } - known
    return found


def _named(api: Api, owners: set[tuple[str, str]]) -> tuple[Workload, ...] | NotObserved:
    requests = []
    for namespace, owner in sorted(owners):
        kind, _, name = owner.partition("/")
        if kind in _KINDS:
            path = f"/apis/apps/v1/namespaces/{segment(namespace)}/{_KINDS[kind]}/{segment(name)}"
            requests.append((api.ask(path), functools.partial(read.workload, kind=kind)))
    return all_observed([found_object(request, reader) for request, reader in requests])


def list_workloads(
    api: Api, namespace: str | None
) -> Callable[[], tuple[Workload, ...] | NotObserved]:
    """List all controllers, or those of a namespace; return a function that waits for them."""
    begun = [
        listed(
            api,
            within(namespace, plural, group="/apis/apps/v1"),
            functools.partial(read.workload, kind=kind),
        )
        for kind, plural in _KINDS.items()
    ]

    return lambda: _merged([wait() for wait in begun])
