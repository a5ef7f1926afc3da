"""Writer of the node's RBDNode, after a change and as a heartbeat."""

from __future__ import annotations

import time
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

    def __init__(self, access: KubeAccess, node_name: str, *, heartbeat_s: float) -> None:
        self._access = access
        self._node_name = node_name
        self._heartbeat_s = heartbeat_s
        self._written: Json | None = None
        self._written_at = 0.0

    def forget(self) -> None:
        """Make the next :meth:`publish` write, also without a change; thread-safe."""
        self._written = None

    def publish(self, status: Json, *, node_uid: str | None) -> bool:
        """Write a status if it has changed or the heartbeat is due; return whether it was written.

        Args:
            status: of the object.
            node_uid: of the Node that owns the object; None if it is unknown. The object is then
                not created: garbage collection would not delete it together with the Node.

        Raises:
            SourceError: the API server refused the write.
        """
        content = _without_times(status)
        now = time.monotonic()
        if content == self._written and now - self._written_at < self._heartbeat_s:
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
        self._written, self._written_at = content, now
        return True

    def _object(self, node_uid: str) -> Json:
        return {
            "apiVersion": "rbdagent.dev/v1alpha1",
            "kind": "RBDNode",
            "metadata": {
                "name": self._node_name,
                "ownerReferences": [
                    {
                        "apiVersion": "v1",
                        "kind": "Node",
                        "name": self._node_name,
                        "uid": node_uid,
                    }
                ],
            },
        }
