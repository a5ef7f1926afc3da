"""Writing the node's RBDNode: when something changed, and a heartbeat."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from rbdagent.observe.api import Api, StatusError
from rbdagent.observe.asking import NOT_FOUND, RBD_NODES
from rbdagent.observe.kubeconfig import credentials

if TYPE_CHECKING:
    from rbdagent.observe.kubeconfig import KubeAccess

Json = dict[str, Any]


def _without_times(status: Json) -> Json:
    """Give what makes a status differ from another: reasons tell ages, which always differ."""
    mappings = status.get("mappings")
    return {
        **{key: value for key, value in status.items() if key != "observedAt"},
        "mappings": mappings
        and [{key: value for key, value in each.items() if key != "because"} for each in mappings],
    }


class Publisher:
    """Writes one node's object."""

    def __init__(self, access: KubeAccess, node_name: str, *, heartbeat_s: float) -> None:
        self._access = access
        self._node_name = node_name
        self._heartbeat_s = heartbeat_s
        self._written: Json | None = None
        self._written_at = 0.0

    def forget(self) -> None:
        """Write at the next chance, whatever was written before; any thread may call it."""
        self._written = None

    def publish(self, status: Json, *, node_uid: str | None) -> bool:
        """Write a status if it says something new, or the heartbeat is due; tell whether.

        Args:
            status: of the object.
            node_uid: of the Node that owns the object; None where it is unknown: then the object
                is not made, for nobody would take it away with its node.

        Raises:
            SourceError: the API server did not take it.
        """
        said = _without_times(status)
        now = time.monotonic()
        if said == self._written and now - self._written_at < self._heartbeat_s:
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
        self._written, self._written_at = said, now
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
