"""What the life of a volume needs of the Kubernetes API beyond who holds it."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import quote

from msgspec.structs import replace

from rbdagent.model import NotObserved, observed_of
from rbdagent.observe.asking import VOLUMES, all_observed, found_object, listed
from rbdagent.parse import kubernetes as read

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from rbdagent.model import KubeView, PersistentVolume, Pod, StorageClass, Workload
    from rbdagent.observe.api import Api

CLASSES: Final = "/apis/storage.k8s.io/v1/storageclasses"
DRIVERS: Final = "/apis/storage.k8s.io/v1/csidrivers"
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
    volumes: tuple[PersistentVolume, ...] | NotObserved


def with_life(view: KubeView, life: Life) -> KubeView:
    """Give a view with it; every PV takes the place of those that were known by name."""
    volumes = view.persistent_volumes if isinstance(life.volumes, NotObserved) else life.volumes
    return replace(
        view,
        storage_classes=life.storage_classes,
        drivers=life.drivers,
        workloads=life.workloads,
        persistent_volumes=volumes,
        volumes_complete=not isinstance(life.volumes, NotObserved),
    )


def ask_life(api: Api) -> Callable[[Iterable[Pod]], Life]:
    """Send what can be sent at once; give what asks for the controllers of pods, and waits."""
    classes = listed(api, CLASSES, read.storage_class)
    drivers = listed(api, DRIVERS, read.object_name)
    volumes = listed(api, VOLUMES, read.persistent_volume)
    return lambda pods: Life(classes(), drivers(), workloads_of(api, pods), volumes())


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


def list_workloads(api: Api) -> Callable[[], tuple[Workload, ...] | NotObserved]:
    """List every controller there is; give what waits for all of them."""
    begun = [
        listed(api, f"/apis/apps/v1/{plural}", functools.partial(read.workload, kind=kind))
        for kind, plural in _KINDS.items()
    ]

    def wait() -> tuple[Workload, ...] | NotObserved:
        answers = [each() for each in begun]
        missing = next((each for each in answers if isinstance(each, NotObserved)), None)
        return missing or tuple(one for each in answers for one in observed_of(each))

    return wait
