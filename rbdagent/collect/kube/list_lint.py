"""What decides about manifests beside the snapshot: ceph-csi's ConfigMaps, secrets, namespaces.

Everything is requested by its name. Of a secret, only the metadata is requested: the answer is
whether it exists.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeVar

from rbdagent.collect.failure import not_observed
from rbdagent.collect.kube.client import segment
from rbdagent.collect.kube.list_cluster import observe_cluster
from rbdagent.collect.kube.requests import found_object, listed
from rbdagent.model import CollectScope, NotObserved, PersistentVolumeClaim, observed_of, separated
from rbdagent.model.lint import CsiConfig, Manifests, SourceCluster, Surroundings
from rbdagent.parse.csi_config import CONFIG_MAPS, parse_csi_config

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from rbdagent.collect.kube.client import Api
    from rbdagent.collect.kube.connection import Connection
    from rbdagent.model import KubeView

Json = dict[str, Any]

_T = TypeVar("_T")

_ALL_CONFIG_MAPS: Final = "/api/v1/configmaps"
_METADATA: Final = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
"""Of an object, its metadata alone (PartialObjectMetadata in apimachinery's meta/v1/types.go)."""
_MOST: Final = 200
"""Secrets, and namespaces, that are requested."""
_MOST_STORED: Final = 500
"""Objects that exist, which are requested whole."""
_TOO_MANY_STORED: Final = NotObserved(reason=f"at most {_MOST_STORED} are requested by name")
_TOO_MANY: Final = NotObserved(reason=f"at most {_MOST} are requested by name")


def observe_surroundings(
    connection: Connection, manifests: Manifests, view: KubeView | None
) -> Surroundings:
    """Return what only the names in the manifests lead to; what fails is not observed.

    Args:
        connection: to the API server.
        manifests: of all files.
        view: the objects that exist.
    """
    try:
        api = connection.api()
    except Exception as error:  # noqa: BLE001 - the files alone are judged then
        why = not_observed(error, "the Kubernetes API")
        return unobserved_surroundings(why, manifests, view)
    config = _begin_config(api)
    secrets = {key: _secret(*key) for key in _secrets_of(manifests)}
    namespaces = {name: f"/api/v1/namespaces/{segment(name)}" for name in _namespaces_of(manifests)}
    stored = {key: _PATHS[key[0]](*key[1:]) for key in _existing(manifests, view)}
    begun = _begin(api, secrets), _begin(api, namespaces), _begin_stored(api, stored)
    return Surroundings(
        csi_config=config(), secrets=begun[0](), namespaces=begun[1](), stored=begun[2]()
    )


def unobserved_surroundings(
    why: NotObserved, manifests: Manifests, view: KubeView | None
) -> Surroundings:
    """Return that nothing of it was observed."""
    return Surroundings(
        csi_config=why,
        secrets=dict.fromkeys(_secrets_of(manifests), why),
        namespaces=dict.fromkeys(_namespaces_of(manifests), why),
        stored=dict.fromkeys(_existing(manifests, view), why),
    )


def observe_origin(connection: Connection, name: str) -> SourceCluster:
    """Return the cluster that the manifests came from: PVs, claims and attachments.

    Args:
        connection: to its API server.
        name: of the context.
    """
    view, source = observe_cluster(
        connection, namespace=None, node_name="", also=CollectScope.NOTHING
    )
    if view is None:
        unseen = NotObserved(reason=source.reason, hint=source.hint)
        return SourceCluster(name=name, view=unseen, csi_config=unseen)
    return SourceCluster(name=name, view=view, csi_config=_begin_config(connection.api())())


def _secrets_of(manifests: Manifests) -> list[tuple[str, str]]:
    found = {
        (reference.namespace, reference.name)
        for item in manifests.items
        for reference in item.secrets
    }
    return sorted(found - manifests.secrets)


def _namespaces_of(manifests: Manifests) -> list[str]:
    found = {
        item.namespace for item in manifests.items if isinstance(item.object, PersistentVolumeClaim)
    }
    return sorted(found - manifests.namespaces)


def _secret(namespace: str, name: str) -> str:
    return f"/api/v1/namespaces/{segment(namespace)}/secrets/{segment(name)}"


_Named = tuple[str, str, str]
"""Kind, namespace and name."""
_PATHS: Final[dict[str, Callable[[str, str], str]]] = {
    "PersistentVolume": lambda _, name: f"/api/v1/persistentvolumes/{segment(name)}",
    "PersistentVolumeClaim": lambda namespace, name: (
        f"/api/v1/namespaces/{segment(namespace)}/persistentvolumeclaims/{segment(name)}"
    ),
    "StorageClass": lambda _, name: f"/apis/storage.k8s.io/v1/storageclasses/{segment(name)}",
}


def _existing(manifests: Manifests, view: KubeView | None) -> list[_Named]:
    """Return the objects of the manifests that exist: all their fields are compared."""
    if view is None:
        return []
    here = {
        *(("PersistentVolume", "", one.name) for one in observed_of(view.persistent_volumes)),
        *(
            ("PersistentVolumeClaim", one.ref.namespace, one.ref.name)
            for one in observed_of(view.claims)
        ),
        *(("StorageClass", "", one.name) for one in observed_of(view.storage_classes)),
    }
    named = [(item.kind, item.namespace, item.name) for item in manifests.items]
    return [key for key in named if key in here]


def _begin_stored(
    api: Api, paths: Mapping[_Named, str]
) -> Callable[[], dict[_Named, Json | NotObserved | None]]:
    """Request objects; return a function that waits for them."""
    asked = {key: api.ask(path) for key, path in tuple(paths.items())[:_MOST_STORED]}

    def wait() -> dict[_Named, Json | NotObserved | None]:
        found: dict[_Named, Json | NotObserved | None] = dict.fromkeys(paths, _TOO_MANY_STORED)
        found |= {key: found_object(pending, lambda data: data) for key, pending in asked.items()}
        return found

    return wait


def _begin(api: Api, paths: Mapping[_T, str]) -> Callable[[], dict[_T, bool | NotObserved]]:
    """Ask which objects exist; return a function that waits for the answers."""
    asked = {key: api.ask(path, accept=_METADATA) for key, path in tuple(paths.items())[:_MOST]}

    def wait() -> dict[_T, bool | NotObserved]:
        found: dict[_T, bool | NotObserved] = dict.fromkeys(paths, _TOO_MANY)
        for key, pending in asked.items():
            answer = found_object(pending, lambda _: True)
            found[key] = answer if isinstance(answer, NotObserved) else answer is not None
        return found

    return wait


def _begin_config(api: Api) -> Callable[[], CsiConfig | NotObserved]:
    """Request the ConfigMaps of ceph-csi in all namespaces; each driver may have its own."""
    begun = [
        listed(api, _ALL_CONFIG_MAPS, parse_csi_config, fieldSelector=f"metadata.name={name}")
        for name in CONFIG_MAPS
    ]
    return lambda: _joined([wait() for wait in begun])


def _joined(parts: Iterable[tuple[CsiConfig, ...] | NotObserved]) -> CsiConfig | NotObserved:
    observed, unseen = separated(parts)
    if unseen:
        return unseen[0]
    every = [one for part in observed for one in part]
    return CsiConfig(
        clusters=tuple(cluster for one in every for cluster in one.clusters),
        namespaces=tuple(pair for one in every for pair in one.namespaces),
        mappings=tuple(mapping for one in every for mapping in one.mappings),
        places=tuple(place for one in every for place in one.places),
    )
