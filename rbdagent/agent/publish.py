"""Writer of the node's RBDNode, after a change."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rbdagent.collect.kube.client import Api, StatusError
from rbdagent.collect.kube.kubeconfig import credentials
from rbdagent.collect.kube.requests import NOT_FOUND, RBD_NODES
from rbdagent.errors import SourceError

if TYPE_CHECKING:
    from rbdagent.collect.kube.kubeconfig import KubeAccess

Json = dict[str, Any]


def _content(status: Json) -> Json:
    """Return the part of a status to compare; a merge patch removes what is null."""
    return {
        key: value for key, value in status.items() if key != "observedAt" and value is not None
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

    def is_foreign(self, kind: str, changed: Json) -> bool:
        """Return whether a change that a watch reports is not the agent's, and forget the status.

        The next :meth:`publish` corrects it. Called by the thread of the watch.
        """
        written = self._written
        if written is None:
            return False
        if kind != "DELETED" and _content(changed.get("status") or {}) == written:
            return False
        self._written = None
        return True

    def publish(self, status: Json, *, node_uid: str | None) -> bool:
        """Write a status if it has changed; return whether it was written.

        Args:
            status: of the object.
            node_uid: of the Node that owns the object; None if it is unknown. The object is then
                not created: garbage collection would not delete it together with the Node.

        Raises:
            SourceError: the API server refused the write.
        """
        content = _content(status)
        if content == self._written:
            return False
        api = Api(credentials(self._access), timeout_s=self._access.timeout_s)
        path = f"{RBD_NODES}/{self._node_name}/status"
        # Stored before it is sent: the watch may report the write before its answer comes.
        self._written = content
        try:
            self._write(api, path, status, node_uid)
        except SourceError:
            self._written = None
            raise
        return True

    def _write(self, api: Api, path: str, status: Json, node_uid: str | None) -> None:
        try:
            api.patch(path, {"status": status}).answer()
        except StatusError as error:
            if error.status != NOT_FOUND or node_uid is None:
                raise
            api.create(RBD_NODES, self._object(node_uid)).answer()
            api.patch(path, {"status": status}).answer()

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
