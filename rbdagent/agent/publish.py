"""Writer of the node's RBDNode, after a change."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from rbdagent.collect.kube.client import Api, StatusError, segment
from rbdagent.collect.kube.kubeconfig import credentials
from rbdagent.collect.kube.requests import NOT_FOUND, RBD_NODES
from rbdagent.errors import SourceError
from rbdagent.parse.kubernetes import observation_stored_at, version_of
from rbdagent.parse.labels import published_labels
from rbdagent.report.rbdmapping import without_none

if TYPE_CHECKING:
    from rbdagent.collect.kube.kubeconfig import KubeAccess

Json = dict[str, Any]

_OBSERVED_AT: Final[Json] = {
    "manager": "rbdagent",
    "operation": "Update",
    "apiVersion": "rbdagent.dev/v1alpha1",
    "fieldsType": "FieldsV1",
    "fieldsV1": {"f:status": {"f:observedAt": {}}},
}
"""An entry of managedFields (server-side-apply in Kubernetes' API reference) without labels.

The API server records each label there, and a list of RBDNodes then costs it three times as much
(bench/agents.py). A patch that replaces the entries with this one records only what it changes
itself, and when. An empty list would cost less still, but the API server then records nothing
anymore: it starts at a creation or with server-side apply alone (Update() in apimachinery's
pkg/util/managedfields/internal/skipnonapplied.go@v0.36.3).
"""


def _tracked(stored_at: str | None = None) -> Json:
    """Return metadata of a merge patch that replaces the entries of managedFields.

    Args:
        stored_at: when the API server stored the time of the observation; None if it stores it now.
    """
    time: Json = {} if stored_at is None else {"time": stored_at}
    return {"managedFields": [_OBSERVED_AT | time]}


class Publisher:
    """Writes the RBDNode of one node."""

    def __init__(self, access: KubeAccess, node_name: str) -> None:
        self._access = access
        self._node_name = node_name
        self._path = f"{RBD_NODES}/{segment(node_name)}"
        self._written: Json | None = None
        """What the API server has; None if that is unknown."""
        self._observed_at: str | None = None
        """The time in the object as it was last read or written."""
        self._version: str | None = None

    @property
    def confirmation(self) -> str | None:
        """The version of the RBDNode as it was last read or written; None if it is unknown.

        The agent's Lease names it (:func:`rbdagent.parse.kubernetes.version_of`).
        """
        return self._version

    def verify(self) -> bool:
        """Read the object; return whether the API server has what the agent wrote or read last.

        A watch does not show that etcd was restored from a backup: it continues at a version that
        the store does not have yet, without an event and without 410 Gone.

        Raises:
            SourceError: the API server did not answer.
        """
        written, version = self._written, self._version
        api = Api(credentials(self._access), timeout_s=self._access.timeout_s)
        try:
            self._read(api)
        except StatusError as error:
            if error.status != NOT_FOUND:
                raise
            self._written = self._version = None
            return False
        return (self._written, self._version) == (written, version)

    def _read(self, api: Api) -> Json:
        """Read the object, and return what the API server has."""
        item = api.ask(self._path).answer()
        self._written, self._version = _content(item), version_of(item)
        self._observed_at = (item.get("status") or {}).get("observedAt")
        return self._written

    def forget(self) -> None:
        """Make the next :meth:`publish` write, also without a change; thread-safe."""
        self._written = None

    def is_foreign(self, kind: str, changed: Json) -> bool:
        """Return whether a change that a watch reports is not the agent's, and forget the object.

        The next :meth:`publish` corrects it. Called by the thread of the watch.
        """
        written = self._written
        if written is None:
            return False
        if kind != "DELETED" and _content(changed) == written:
            return False
        self._written = None
        return True

    def publish(self, body: Json, *, node_uid: str | None) -> bool:
        """Write labels and status if they have changed; return whether they were written.

        Args:
            body: labels and status of the object.
            node_uid: of the Node that owns the object; None if it is unknown. The object is then
                not created: garbage collection would not delete it together with the Node.

        Raises:
            SourceError: the API server refused the write.
        """
        before, content = self._written, _content(body)
        if content == before:
            return False
        api = Api(credentials(self._access), timeout_s=self._access.timeout_s)
        try:
            if before is None:
                before = self._read(api)
            if content == before:
                return False
            # Stored before it is sent: the watch may report the write before its answer comes.
            self._written = content
            patch = _as_patch(body, before["labels"], known_at=self._observed_at)
            self._version = version_of(api.patch(self._path, patch).answer())
            self._observed_at = body["status"].get("observedAt")
        except StatusError as error:
            self._written = None
            if error.status != NOT_FOUND or node_uid is None:
                raise
            self._create(api, body, node_uid)
        except SourceError:
            self._written = None
            raise
        return True

    def _create(self, api: Api, body: Json, node_uid: str) -> None:
        self._written = _content(body)
        try:
            made = api.create(RBD_NODES, self._object(body, node_uid)).answer()
            self._version = version_of(made)
            stored_at = observation_stored_at(made)
            if stored_at is not None:
                patch = {"metadata": _tracked(stored_at)}
                self._version = version_of(api.patch(self._path, patch).answer())
            self._observed_at = body["status"].get("observedAt")
        except SourceError:
            self._written = None
            raise

    def _object(self, body: Json, node_uid: str) -> Json:
        return {
            "apiVersion": "rbdagent.dev/v1alpha1",
            "kind": "RBDNode",
            "metadata": {
                "name": self._node_name,
                "ownerReferences": [owned_by_node(self._node_name, node_uid)],
                **body["metadata"],
            },
            "status": without_none(body["status"]),
        }


def _content(item: Json) -> Json:
    """Return the part of an object to compare: its labels, and its status without times."""
    # A merge patch removes what is null.
    status = without_none(item.get("status") or {})
    status.pop("observedAt", None)
    return {"labels": published_labels(item["metadata"].get("labels") or {}), "status": status}


def _as_patch(body: Json, labels: Json, *, known_at: str | None) -> Json:
    """Return a merge patch, in which null removes the labels of images that are gone.

    Readers learn from managedFields when the API server stored the time of the observation
    (:func:`rbdagent.parse.kubernetes.rbd_node`). A second write of the same second does not change
    that time, and must not replace the entry that has it.

    Args:
        body: labels and status of the object.
        labels: of the object that the API server has.
        known_at: the time of the observation there; None if it is unknown.
    """
    metadata: Json = {"labels": dict.fromkeys(labels) | body["metadata"]["labels"]}
    if known_at is None or known_at != body["status"].get("observedAt"):
        metadata |= _tracked()
    return {"metadata": metadata, "status": body["status"]}


def owned_by_node(node_name: str, node_uid: str) -> Json:
    """Return the reference with which an object is deleted together with a Node."""
    return {"apiVersion": "v1", "kind": "Node", "name": node_name, "uid": node_uid}
