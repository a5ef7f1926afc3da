"""What the life of a volume needs of the Kubernetes API beyond who holds it."""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar
from urllib.parse import quote

from msgspec.structs import replace

from rbdagent.model import CsiSource, Gap, NotObserved, observed_of
from rbdagent.observe.asking import (
    PODS,
    all_observed,
    found_object,
    listed,
    within,
)
from rbdagent.parse import kubernetes as read
from rbdagent.parse.handle import lease_names

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from rbdagent.model import (
        Claim,
        DriverPod,
        KubeView,
        Lease,
        PersistentVolume,
        Pod,
        StorageClass,
        Workload,
    )
    from rbdagent.observe.api import Api

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
"""Labels ``app`` of provisioners: ceph-csi's manifests and Rook, ceph-csi's chart, what was
external-storage."""
_LABEL: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
NOTHING_WAITS: Final = NotObserved(reason="not asked: nothing here waits for a provisioner")
_KINDS: Final = {
    "ReplicaSet": "replicasets",
    "Deployment": "deployments",
    "StatefulSet": "statefulsets",
}


class Life(NamedTuple):
    """What was found."""

    storage_classes: tuple[StorageClass, ...] | NotObserved
    drivers: tuple[str, ...] | NotObserved
    workloads: tuple[Workload, ...] | NotObserved
    version: str | NotObserved
    provisioners: Provisioners


class Provisioners(NamedTuple):
    """Whether they run who make and delete volumes, and bind them."""

    leases: tuple[Lease, ...] | NotObserved = NOTHING_WAITS
    pods: tuple[DriverPod, ...] | NotObserved = NOTHING_WAITS


class Meant(NamedTuple):
    """What belongs to the target."""

    pods: tuple[Pod, ...]
    claims: tuple[Claim, ...]
    volumes: tuple[PersistentVolume, ...]


def with_life(view: KubeView, life: Life) -> KubeView:
    """Give a view with it."""
    return replace(
        view,
        storage_classes=life.storage_classes,
        drivers=life.drivers,
        workloads=life.workloads,
        version=life.version,
        leases=life.provisioners.leases,
        driver_pods=life.provisioners.pods,
    )


def gaps_of_life(view: KubeView) -> tuple[Gap, ...]:
    """Give the kinds that were asked for, and not observed."""
    return (
        *gap("storage classes", view.storage_classes),
        *gap("controllers of pods", view.workloads),
        *gap("CSIDrivers", view.drivers),
        *gap("leases of controllers", view.leases),
        *gap("pods of provisioners", view.driver_pods),
    )


def gap(fact: str, found: object) -> tuple[Gap, ...]:
    """Give what is missing, if it is."""
    if not isinstance(found, NotObserved) or found == NOTHING_WAITS:
        return ()
    return (Gap(fact=fact, reason=found.reason, cure=found.cure),)


def ask_life(api: Api) -> Callable[[Meant], Life]:
    """Send what can be sent at once; give what asks for what the target leads to, and waits."""
    classes = listed(api, CLASSES, read.storage_class)
    drivers = listed(api, DRIVERS, read.object_name)
    version = api.ask(_VERSION)

    def wait(meant: Meant) -> Life:
        found = classes()
        workloads = workloads_of(api, meant.pods)
        provisioners = Provisioners()
        if _waits(meant):
            provisioners = provisioners_of(api, _provisioners(meant, observed_of(found)))
        told = found_object(version, read.version)
        return Life(
            found,
            drivers(),
            workloads,
            NotObserved(reason=f"{_VERSION} is not there") if told is None else told,
            provisioners,
        )

    return wait


def with_provisioners(api: Api, life: Life, meant: Meant) -> Life:
    """Ask who makes and deletes volumes, where these were known only by what was found."""
    if not _waits(meant):
        return life
    names = _provisioners(meant, observed_of(life.storage_classes))
    return life._replace(provisioners=provisioners_of(api, names))


def _waits(meant: Meant) -> bool:
    """Tell whether anybody but a node has something to do."""
    every: tuple[Claim | PersistentVolume, ...] = (*meant.claims, *meant.volumes)
    return any(each.phase != "Bound" or each.deleting_since is not None for each in every)


def _provisioners(meant: Meant, classes: tuple[StorageClass, ...]) -> set[str]:
    """Name who makes, or has made, the target's volumes."""
    names = {each.storage_class for each in meant.claims}
    found = {each.provisioner for each in classes if each.name in names}
    found |= {each.provisioner for each in meant.claims if each.provisioner}
    found |= {each.provisioner for each in meant.volumes if each.provisioner}
    return found | {
        each.source.driver for each in meant.volumes if isinstance(each.source, CsiSource)
    }


def provisioners_of(api: Api, names: Iterable[str]) -> Provisioners:
    """Ask for the leases of provisioners by their names, and for the pods behind them."""
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
    app = ",".join(each for each in labels if _LABEL.fullmatch(each))
    by_label = listed(
        api, PODS, read.driver_pod, labelSelector=f"app in ({app}),component!=nodeplugin"
    )
    leases = _together([each() for each in begun])
    leaders = [each for each in observed_of(leases) if each.name != _CONTROLLER_MANAGER]
    asked = [
        api.ask(f"/api/v1/namespaces/{quote(each.namespace)}/pods/{quote(each.holder)}")
        for each in leaders
        if each.holder
    ]
    leading = all_observed([found_object(each, read.driver_pod) for each in asked])
    return Provisioners(leases, _together([by_label(), leading]))


def _together(parts: list[tuple[_T, ...] | NotObserved]) -> tuple[_T, ...] | NotObserved:
    """Give all, each once; one that was not observed makes the whole not observed."""
    missing = next((each for each in parts if isinstance(each, NotObserved)), None)
    return missing or tuple(dict.fromkeys(one for each in parts for one in observed_of(each)))


def workloads_of(api: Api, pods: Iterable[Pod]) -> tuple[Workload, ...] | NotObserved:
    """Give the controllers of pods, and theirs, each asked for by its name."""
    owners = {(each.ref.namespace, owner) for each in pods for owner in each.owners}
    found: tuple[Workload, ...] = ()
    while owners:
        answer = _named(api, owners)
        if isinstance(answer, NotObserved):
            return answer
        found += answer
        known = {(each.ref.namespace, each.name) for each in found}
        owners = {(each.ref.namespace, owner) for each in answer for owner in each.owners} - known
    return found


def _named(api: Api, owners: set[tuple[str, str]]) -> tuple[Workload, ...] | NotObserved:
    asked = []
    for namespace, owner in sorted(owners):
        kind, _, name = owner.partition("/")
        if kind in _KINDS:
            path = f"/apis/apps/v1/namespaces/{quote(namespace)}/{_KINDS[kind]}/{quote(name)}"
            asked.append((api.ask(path), functools.partial(read.workload, kind=kind)))
    return all_observed([found_object(each, reader) for each, reader in asked])


def list_workloads(
    api: Api, namespace: str | None
) -> Callable[[], tuple[Workload, ...] | NotObserved]:
    """List every controller there is, or of a namespace; give what waits for all of them."""
    begun = [
        listed(
            api,
            within(namespace, plural, group="/apis/apps/v1"),
            functools.partial(read.workload, kind=kind),
        )
        for kind, plural in _KINDS.items()
    ]

    return lambda: _together([each() for each in begun])
