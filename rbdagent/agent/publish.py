"""Writer of the node's RBDNode, after a change."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rbdagent.collect.kube.client import Api, StatusError
from rbdagent.collect.kube.kubeconfig import credentials
from rbdagent.collect.kube.requests import NOT_FOUND, RBD_NODES

if TYPE_CHECKING:
    from rbdagent.collect.kube.kubeconfig import KubeAccess

Json = dict[str, Any]


def _without_times(status: Json) -> Json:
    """Return the part of a status to compare: without times, and without reasons with ages."""
    mappings = status.get("mappings")
    return {
        **{key: value for key, value in status.items() if key != "observedAt"},
        "mappings": mappings
        and [
            {key: value for key, value in mapping.items() if key != "reasons"}
            for mapping in mappings
        ],
    }


class Publisher:
    """Writes the RBDNode of one node."""

    def __init__(self, access: KubeAccess, node_name: str) -> None:
        self._access = access
        self._node_name = node_name
        self._written: Json | None = None

    def forget(self) -> None:
        """Make the next :meth:`publish` write, also without a change; thread-safe."""
        self._written = None

    def publish(self, status: Json, *, node_uid: str | None) -> bool:
        """Write a status if it has changed; return whether it was written.

        Args:
            status: of the object.
            node_uid: of the Node that owns the object; None if it is unknown. The object is then
                not created: garbage collection would not delete it together with the Node.

        Raises:
            SourceError: the API server refused the write.
        """
        content = _without_times(status)
        if content == self._written:
            return False
        api = Api(credentials(self._access), timeout_s=self._access.timeout_s)
        path = f"{RBD_NODES}/{self._node_name}/status"
        try:
            api.patch(path, {"status": status}).answer()
        except StatusError as error:
            if error.status != NOT_FOUND or node_uid is None:
                raise
            api.create(RBD_NODES, self._object(node_uid)).answer()
            api.patch(path, {"status": status}).answer()
        self._written = content
        return True

    def _object(self, node_uid: str) -> Json:
        return {
            "apiVersion": "rbdagent.dev/v1alpha1",
            "kind": "RBDNode",
            "metadata": {
                "name": self._node_name,
                "ownerReferences": [owned_by_node(self._node_name, node_uid)],
            },
        }


def owned_by_node(node_name: str, node_uid: str) -> Json:
    """Return the reference with which an object is deleted together with a Node."""
    return {"apiVersion": "v1", "kind": "Node", "name": node_name, "uid": node_uid}
