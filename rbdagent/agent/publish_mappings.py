"""Writer of the RBDMappings of one node: one object for each mapping, written when it changes.

The order protects readers. A mapping is written before the RBDNode and the Lease confirm it, and is
deleted after the RBDNode no longer names its image. An agent that ends in between leaves a mapping
too many, or an RBDNode with an image whose mapping is missing: both mean that the image may be
mapped here.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from rbdagent.agent.publish import owned_by_node
from rbdagent.codes import Code
from rbdagent.collect.kube.client import Api, StatusError, segment
from rbdagent.collect.kube.kubeconfig import credentials
from rbdagent.collect.kube.requests import NOT_FOUND, RBD_MAPPINGS
from rbdagent.errors import SourceError
from rbdagent.parse import labels
from rbdagent.report.rbdnode import HEALTHY

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from rbdagent.collect.kube.client import PendingRequest
    from rbdagent.collect.kube.kubeconfig import KubeAccess

Json = dict[str, Any]

_EXISTS: Final = 409
_AT_ONCE: Final = 20
"""Requests that are sent before the first answer is awaited."""
_BURST: Final = 60
_EACH_S: Final = 1.0
"""Descriptions that may be written at once, and the seconds that each further one waits for. A
mapping that alternates between two verdicts must not become a load."""
_VOLATILE: Final = frozenset({"observedAt", "reasons"})
"""Fields that no change is written for: reasons contain ages."""
_WITH_AGE: Final = Code.BETWEEN_STEPS
"""Its sentence is a reason for the verdict, with an age; that of no other code has one."""
_DESCRIPTION: Final = (
    "verdict", "claimNamespace", "claim", "leftBehind", "finding", "findings", "since", "mounts",
    "heldBy", "pods", "reasons",
)  # fmt: skip
_IDENTITY: Final = (
    "device", "image", "clientID", "clientAddress", "readOnly", "persistentVolume",
)  # fmt: skip
_OF_IMAGE: Final = ("fsid", "pool", "radosNamespace", "name", "id")
_LABELS: Final = (labels.NODE, labels.VOLUME, labels.IMAGE, labels.IMAGE_ID, labels.CLIENT)


class _Change(NamedTuple):
    """An object to write, with the content that the API server has; None if it has none."""

    name: str
    body: Json
    before: Json | None

    @property
    def is_limited(self) -> bool:
        """Return whether only the description of the mapping has changed."""
        return self.before is not None and _identity(self.before) == _identity(self.body)

    @property
    def is_healthy(self) -> bool:
        """Return whether the verdict is no problem."""
        return self.body["status"]["verdict"] in HEALTHY


class MappingPublisher:
    """Writes and deletes the RBDMappings of one node."""

    def __init__(
        self,
        access: KubeAccess,
        node_name: str,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._access = access
        self._node_name = node_name
        self._clock = clock
        self._known: dict[str, Json] | None = None
        """What the API server has of this node, by name; None before it was listed."""
        self._unverified: set[str] = set()
        """The names of the objects that were written or deleted since :meth:`verify`."""
        self._verified: dict[str, None] = {}
        """The names of the other objects, the one that was read longest ago first."""
        self._tokens = float(_BURST)
        self._filled_at = clock()

    @property
    def selector(self) -> str:
        """The label selector of this node's objects."""
        return f"{labels.NODE}={labels.label_value(self._node_name)}"

    def forget(self) -> None:
        """Make the next :meth:`write` list this node's objects again; thread-safe."""
        self._known = None

    def verify(self) -> None:
        """Read what was written since the last call, and one other object in turn, by name.

        If one of them is not as it was written, :meth:`write` lists them all again: a watch does
        not show that etcd was restored from a backup. A list with a label selector would read the
        RBDMappings of all nodes at each heartbeat of each agent.

        Raises:
            SourceError: the API server did not answer.
        """
        known = self._known
        if known is None:
            return
        self._verified = {name: None for name in self._verified if name in known}
        self._verified |= dict.fromkeys(known)
        due = sorted(self._unverified)
        due += [name for name in self._verified if name not in self._unverified][:1]
        api = self._api()
        for first in range(0, len(due), _AT_ONCE):
            asked = [(name, api.ask(_path(name))) for name in due[first : first + _AT_ONCE]]
            for name, request in asked:
                if self._stored(request) != known.get(name):
                    self.forget()
        for name in due:
            self._verified.pop(name, None)
            self._verified[name] = None
        self._unverified.clear()

    def _stored(self, request: PendingRequest) -> Json | None:
        """Return what the API server has of an object; None if it has none."""
        try:
            return _content(request.answer())
        except StatusError as error:
            if error.status != NOT_FOUND:
                raise
            return None

    def is_foreign(self, kind: str, changed: Json) -> bool:
        """Record a change that a watch reports; return whether the agent did not make it.

        The next cycle corrects such a change. Called by the thread of the watch.
        """
        known = self._known
        if known is None or not self._is_own(changed):
            return False
        name = str(changed["metadata"]["name"])
        if kind == "DELETED":
            return known.pop(name, None) is not None
        content = _content(changed)
        if known.get(name) == content:
            return False
        known[name] = content
        return True

    def write(self, wanted: dict[str, Json], *, node_uid: str | None) -> None:
        """Create and update the objects of the mappings that are new or have changed.

        Args:
            wanted: labels and status of every mapping of the node, by the name of the object.
            node_uid: of the Node that owns the objects; None if it is unknown. Then none is
                created.

        Raises:
            SourceError: the API server refused a write; the others were made.
        """
        known = self._listed()
        changes = [
            _Change(name, body, known.get(name))
            for name, body in wanted.items()
            if known.get(name) != _content(body)
        ]
        due = [change for change in changes if not change.is_limited]
        limited = [change for change in changes if change.is_limited]
        limited.sort(key=lambda change: change.is_healthy)
        due += limited[: self._allowed(len(limited))]
        if not due:
            return
        api = self._api()
        failed: list[SourceError] = []
        for first in range(0, len(due), _AT_ONCE):
            asked = [
                (change, self._begin(api, known, change, node_uid))
                for change in due[first : first + _AT_ONCE]
            ]
            for change, request in asked:
                try:
                    self._finish(api, change, request, node_uid)
                except SourceError as error:
                    # What the API server has now is unknown: the next cycle writes it again.
                    known.pop(change.name, None)
                    failed.append(error)
        if failed:
            raise failed[0]

    def delete_others(self, wanted: Collection[str]) -> None:
        """Delete the objects of this node that are not among the wanted names.

        Raises:
            SourceError: the API server refused a deletion; the others were made.
        """
        known = self._known or {}
        gone = sorted(known.keys() - set(wanted))
        if not gone:
            return
        self._unverified.update(gone)
        api = self._api()
        failed: list[SourceError] = []
        for first in range(0, len(gone), _AT_ONCE):
            asked = [
                (name, known.pop(name, {}), api.delete(_path(name)))
                for name in gone[first : first + _AT_ONCE]
            ]
            for name, content, request in asked:
                try:
                    request.answer()
                except SourceError as error:
                    if not isinstance(error, StatusError) or error.status != NOT_FOUND:
                        known[name] = content
                        failed.append(error)
        if failed:
            raise failed[0]

    def _api(self) -> Api:
        return Api(credentials(self._access), timeout_s=self._access.timeout_s)

    def _listed(self) -> dict[str, Json]:
        """Return what the API server has of this node; it is listed once, and then watched.

        resourceVersion 0 lists from the server's cache. If that is older than the last writes of an
        agent that ran here before, the watch reports the difference.
        """
        if self._known is None:
            listing = self._api().list(
                RBD_MAPPINGS, labelSelector=self.selector, resourceVersion="0"
            )
            self._known = {
                str(item["metadata"]["name"]): _content(item)
                for item in listing.items()
                if self._is_own(item)
            }
        return self._known

    def _is_own(self, item: Json) -> bool:
        """Return whether an object is this node's: another agent may use the label of this node."""
        return bool((item.get("status") or {}).get("node") == self._node_name)

    def _allowed(self, wanted: int) -> int:
        """Return how many descriptions may be written now, and count them."""
        now = self._clock()
        self._tokens = min(float(_BURST), self._tokens + (now - self._filled_at) / _EACH_S)
        self._filled_at = now
        allowed = min(wanted, int(self._tokens))
        self._tokens -= allowed
        return allowed

    def _begin(
        self, api: Api, known: dict[str, Json], change: _Change, node_uid: str | None
    ) -> PendingRequest:
        # Stored before it is sent: the watch may report the write before its answer comes.
        known[change.name] = _content(change.body)
        self._unverified.add(change.name)
        if change.before is None and node_uid is not None:
            return api.create(RBD_MAPPINGS, self._object(change, node_uid))
        return api.patch(_path(change.name), _as_patch(change.body))

    def _finish(
        self, api: Api, change: _Change, asked: PendingRequest, node_uid: str | None
    ) -> None:
        try:
            asked.answer()
        except StatusError as error:
            if asked.method == "POST" and error.status == _EXISTS:
                api.patch(_path(change.name), _as_patch(change.body)).answer()
            elif asked.method == "PATCH" and error.status == NOT_FOUND and node_uid is not None:
                api.create(RBD_MAPPINGS, self._object(change, node_uid)).answer()
            else:
                raise

    def _object(self, change: _Change, node_uid: str) -> Json:
        return {
            "apiVersion": "rbdagent.dev/v1alpha1",
            "kind": "RBDMapping",
            "metadata": {
                "name": change.name,
                "ownerReferences": [owned_by_node(self._node_name, node_uid)],
                **change.body["metadata"],
            },
            "status": change.body["status"],
        }


def _path(name: str) -> str:
    return f"{RBD_MAPPINGS}/{segment(name)}"


def _content(item: Json) -> Json:
    """Return the part of an object to compare: its labels, and its status without times."""
    given, status = item["metadata"].get("labels") or {}, item.get("status") or {}
    compared = {key: value for key, value in status.items() if key not in _VOLATILE}
    found = compared.get("finding") or {}
    if found.get("code") == _WITH_AGE:
        compared["finding"] = {key: value for key, value in found.items() if key != "message"}
    return {
        "labels": {key: given[key] for key in _LABELS if key in given},
        "status": compared,
    }


def _identity(item: Json) -> Json:
    return {key: item["status"].get(key) for key in _IDENTITY}


def _as_patch(body: Json) -> Json:
    """Return a merge patch, in which null removes what an earlier mapping of the device had."""
    status = dict.fromkeys((*_IDENTITY, *_DESCRIPTION)) | body["status"]
    if status["image"] is not None:
        status["image"] = dict.fromkeys(_OF_IMAGE) | status["image"]
    return {
        "metadata": {"labels": dict.fromkeys(_LABELS) | body["metadata"]["labels"]},
        "status": status,
    }
