"""What agents publish, written to a real API server; no agent runs."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from rbdagent.collect.kube.requests import RBD_MAPPINGS, RBD_NODES
from rbdagent.parse.kubernetes import CONFIRMS, version_of
from tests.lab.workloads import collection
from tests.support.published import rbd_mappings, rbd_node

if TYPE_CHECKING:
    from tests.lab.api import Api, Json

_NAMESPACE: Final = "rbdagent"


def report(api: Api, node: str, *statuses: Json, at: str | None = None) -> None:
    """Publish the mappings of a node instead of its former ones, and renew its Lease.

    Args:
        api: of an administrator.
        node: the node.
        statuses: of its mappings, as an agent writes them.
        at: when the agent observed them; now by default.
    """
    at = at or now()
    for path in (RBD_MAPPINGS, RBD_NODES):
        for found in api.items(path):
            if found["status"].get("node", found["metadata"]["name"]) == node:
                api.delete(f"{path}/{found['metadata']['name']}")
    for mapping in rbd_mappings(node, *statuses, at=at):
        api.create(RBD_MAPPINGS, {**_kind("RBDMapping"), **mapping})
    summary = rbd_node(node, *statuses, at=at)
    # Both have the boot id from the machine. A report of another boot shows nothing of this one.
    boot = f"boot-of-{node}"
    api.patch(f"{collection('Node')}/{node}/status", {"status": {"nodeInfo": {"bootID": boot}}})
    summary["status"] |= {"leaseNamespace": _NAMESPACE, "bootID": boot}
    api.create(RBD_NODES, {**_kind("RBDNode"), **summary})
    renew(api, node)


def renew(api: Api, node: str) -> None:
    """Renew the Lease of a node's agent: what it published is current."""
    leases = collection("Lease", _NAMESPACE)
    version = version_of(api.get(f"{RBD_NODES}/{node}"))
    lease = {
        "metadata": {"name": node, "annotations": {CONFIRMS: version}},
        "spec": {
            "holderIdentity": node,
            "leaseDurationSeconds": 120,
            "renewTime": now().replace("Z", ".000000Z"),
        },
    }
    if api.find(f"{leases}/{node}") is None:
        api.create(leases, lease)
    else:
        api.patch(f"{leases}/{node}", lease)


def now() -> str:
    """Return the time as an agent writes it."""
    return f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"


def _kind(name: str) -> Json:
    return {"apiVersion": "rbdagent.dev/v1alpha1", "kind": name}
