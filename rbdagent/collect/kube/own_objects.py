"""The objects of rbdagent itself, as the API has them, and the logs of its agents: for bug reports.

An agent may list pods and what agents publish. DaemonSets, ConfigMaps and logs need the rights of
a user (docs/privileges.md): what is not allowed is *not observed*.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from rbdagent.collect.failure import not_observed
from rbdagent.collect.kube.client import segment
from rbdagent.collect.kube.requests import PODS, RBD_MAPPINGS, RBD_NODES, within
from rbdagent.model import NotObserved

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from rbdagent.collect.kube.client import Api, Listing

Json = dict[str, Any]

_APPS: Final = "/apis/apps/v1"
_OWN: Final = {"labelSelector": "app.kubernetes.io/name=rbdagent"}
_CONTAINER: Final = "rbdagent"
_MOST: Final = 16 << 20
"""Maximum size of the objects of one kind in bytes: some 5,000 RBDMappings."""
_MOST_LOGS: Final = 10
"""Maximum number of agents whose log is read: that of this node, then by name."""
_LINES: Final = 2000
_MOST_OF_LOG: Final = 512 << 10


class Found(Struct, frozen=True, kw_only=True):
    """Objects of one kind, as many as the limit allows."""

    items: tuple[Json, ...] | NotObserved
    is_cut: bool = False


class Log(Struct, frozen=True, kw_only=True):
    """The end of the log of an agent's container."""

    node: str
    pod: str
    is_previous: bool
    """Whether it is that of the container's former run."""
    content: bytes | NotObserved


class Own(Struct, frozen=True, kw_only=True):
    """All that the API has of rbdagent."""

    daemon_sets: Found
    config_maps: Found
    pods: Found
    rbd_nodes: Found
    rbd_mappings: Found
    logs: tuple[Log, ...] | NotObserved


def unread(why: NotObserved) -> Own:
    """Return what is known if the API cannot be queried at all."""
    none = Found(items=why)
    return Own(
        daemon_sets=none,
        config_maps=none,
        pods=none,
        rbd_nodes=none,
        rbd_mappings=none,
        logs=why,
    )


def read_own(api: Api, node_name: str) -> Own:
    """Read the objects of rbdagent, and the logs of some agents.

    Args:
        api: the client.
        node_name: the node whose agent's log comes first.
    """
    nodes_asked, mappings_asked = api.list(RBD_NODES, limit=100), api.list(RBD_MAPPINGS)
    pods_asked = api.list(PODS, **_OWN)
    everywhere = api.list(within(None, "daemonsets", group=_APPS), **_OWN)
    rbd_nodes, rbd_mappings = _read(nodes_asked, RBD_NODES), _read(mappings_asked, RBD_MAPPINGS)
    spaces = _agents_namespaces(rbd_nodes)
    pods = _of(spaces, _read(pods_asked, PODS))
    daemon_sets = _read(everywhere, within(None, "daemonsets", group=_APPS))
    if isinstance(daemon_sets.items, NotObserved):
        own = spaces or {_text(pod, "metadata", "namespace") for pod in _items(pods)}
        daemon_sets = _daemon_sets_in(api, sorted(own)) if own else daemon_sets
    daemon_sets = _of(spaces, daemon_sets)
    return Own(
        daemon_sets=daemon_sets,
        config_maps=_config_maps(api, (daemon_sets, pods)),
        pods=pods,
        rbd_nodes=rbd_nodes,
        rbd_mappings=rbd_mappings,
        logs=_logs(api, pods, node_name),
    )


def _agents_namespaces(rbd_nodes: Found) -> set[str]:
    """Return the namespaces of the agents' Leases: only agents write RBDNodes."""
    spaces = {_text(node, "status", "leaseNamespace") for node in _items(rbd_nodes)}
    return {space for space in spaces if space}


def _of(spaces: set[str], found: Found) -> Found:
    """Return the objects in the agents' namespaces: a tenant may give a pod any label."""
    if not spaces or isinstance(found.items, NotObserved):
        return found
    items = tuple(item for item in found.items if _text(item, "metadata", "namespace") in spaces)
    return replace(found, items=items)


def _read(listing: Listing, subject: str) -> Found:
    """Read a list up to the limit."""
    items: list[Json] = []
    size = 0
    try:
        for page in listing.pages():
            for item in page:
                size += len(msgspec.json.encode(item))
                if size > _MOST:
                    return Found(items=tuple(items), is_cut=True)
                items.append(item)
    except Exception as error:  # noqa: BLE001 - a failed list must not hide the others
        return Found(items=not_observed(error, subject))
    return Found(items=tuple(items))


def _items(found: Found) -> tuple[Json, ...]:
    return () if isinstance(found.items, NotObserved) else found.items


def _daemon_sets_in(api: Api, spaces: Iterable[str]) -> Found:
    items: list[Json] = []
    for path in [within(space, "daemonsets", group=_APPS) for space in spaces]:
        found = _read(api.list(path, **_OWN), path)
        if isinstance(found.items, NotObserved):
            return found
        items += found.items
    return Found(items=tuple(items))


def _config_maps(api: Api, owners: Iterable[Found]) -> Found:
    """Read the ConfigMaps that the DaemonSets or the pods mount."""
    owners = tuple(owners)
    if all(isinstance(found.items, NotObserved) for found in owners):
        return Found(
            items=NotObserved(reason="neither DaemonSets nor pods of rbdagent were observed")
        )
    names = sorted({name for found in owners for item in _items(found) for name in _mounted(item)})
    asked = [
        api.ask(f"{within(space, 'configmaps')}/{segment(name)}")
        for space, name in names
        if space and name
    ]
    items: list[Json] = []
    for request in asked:
        try:
            items.append(request.answer())
        except Exception as error:  # noqa: BLE001 - as for lists
            return Found(items=not_observed(error, request.path))
    return Found(items=tuple(items))


def _mounted(item: Json) -> Iterator[tuple[str, str]]:
    """Yield namespace and name of each ConfigMap that a DaemonSet or a pod mounts."""
    space = _text(item, "metadata", "namespace")
    spec = _part(item, "spec")
    volumes = _part(_part(spec, "template"), "spec").get("volumes") or spec.get("volumes") or ()
    for volume in volumes:
        yield space, _text(volume, "configMap", "name")
        for source in _part(volume, "projected").get("sources") or ():
            # Kubernetes adds the second one to each pod: it has the certificate of the API server.
            name = _text(source, "configMap", "name")
            if name != "kube-root-ca.crt":
                yield space, name


def _part(item: object, name: str) -> Json:
    """Return a field that is an object; empty if it is none."""
    found = item.get(name) if isinstance(item, dict) else None
    return found if isinstance(found, dict) else {}


def _text(item: object, name: str, field: str) -> str:
    found = _part(item, name).get(field)
    return found if isinstance(found, str) else ""


def _logs(api: Api, pods: Found, node_name: str) -> tuple[Log, ...] | NotObserved:
    if isinstance(pods.items, NotObserved):
        return pods.items
    placed = sorted(
        ((_text(pod, "spec", "nodeName"), pod) for pod in pods.items if _has_agent(pod)),
        key=lambda one: (one[0] != node_name, one[0], _text(one[1], "metadata", "name")),
    )
    return tuple(log for node, pod in placed[:_MOST_LOGS] for log in _logs_of(api, node, pod))


def _has_agent(pod: Json) -> bool:
    containers = _part(pod, "spec").get("containers") or ()
    return any(one.get("name") == _CONTAINER for one in containers if isinstance(one, dict))


def _logs_of(api: Api, node: str, pod: Json) -> Iterator[Log]:
    space, name = _text(pod, "metadata", "namespace"), _text(pod, "metadata", "name")
    path = f"{within(space, 'pods')}/{segment(name)}/log"
    statuses = _part(pod, "status").get("containerStatuses") or ()
    restarted = any(one.get("restartCount") for one in statuses if isinstance(one, dict))
    for is_previous in (False, True) if restarted else (False,):
        query: dict[str, str | int] = {
            "container": _CONTAINER,
            "tailLines": _LINES,
            "limitBytes": _MOST_OF_LOG,
            "previous": str(is_previous).lower(),
        }
        asked = api.ask(path, query, accept="text/plain, application/json")
        try:
            content: bytes | NotObserved = bytes(asked.content())
        except Exception as error:  # noqa: BLE001 - as for lists
            content = not_observed(error, path)
        yield Log(node=node, pod=name, is_previous=is_previous, content=content)
