"""What agents publish, as the objects of a fake API server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rbdagent.report.rbdmapping import rbdmapping_objects
from rbdagent.report.rbdnode import rbdnode_object
from tests.support.snapshots import NOW

if TYPE_CHECKING:
    from tests.support.fake_api import FakeApi

Json = dict[str, Any]


def rbd_mappings(node: str, *statuses: Json, at: str = NOW) -> list[Json]:
    """Return the RBDMappings of a node."""
    bodies = rbdmapping_objects(statuses, node, observed_at=at)
    return [
        {**body, "metadata": {**body["metadata"], "name": name}} for name, body in bodies.items()
    ]


def rbd_node(node: str, *statuses: Json, at: str = NOW, observed: bool = True) -> Json:
    """Return the RBDNode of a node with these mappings."""
    status: Json = {"observedAt": at} | ({"mapped": len(statuses)} if observed else {})
    body = rbdnode_object(status, statuses if observed else None)
    return {"metadata": {"name": node, **body["metadata"]}, "status": body["status"]}


def publish(api: FakeApi, node: str, *statuses: Json, at: str = NOW, observed: bool = True) -> None:
    """Add what the agent of a node published to a fake API server."""
    given = api.lists.setdefault("rbdnodes", [])
    given.append(rbd_node(node, *statuses, at=at, observed=observed))
    mappings = rbd_mappings(node, *statuses, at=at) if observed else []
    api.lists.setdefault("rbdmappings", []).extend(mappings)


def publish_only(api: FakeApi, *reports: tuple[str, tuple[Json, ...]]) -> None:
    """Make the fake API server have these reports and no other one."""
    api.lists["rbdnodes"], api.lists["rbdmappings"] = [], []
    for node, statuses in reports:
        publish(api, node, *statuses)


def add_mapping(api: FakeApi, node: str, status: Json, *, at: str = NOW) -> None:
    """Add a mapping to what the agent of a node published."""
    (summary,) = (item for item in api.lists["rbdnodes"] if item["metadata"]["name"] == node)
    summary["status"]["mapped"] += 1
    mappings = api.lists["rbdmappings"]
    last = max(index for index, item in enumerate(mappings) if item["status"]["node"] == node)
    mappings[last + 1 : last + 1] = rbd_mappings(node, status, at=at)
