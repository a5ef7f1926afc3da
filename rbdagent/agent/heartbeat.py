"""Renewal of the Lease with which an agent shows that what it published is current."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from rbdagent.agent.publish import owned_by_node
from rbdagent.collect.kube.client import Api, StatusError, segment
from rbdagent.collect.kube.kubeconfig import credentials
from rbdagent.collect.kube.requests import NOT_FOUND, lease_list
from rbdagent.parse.kubernetes import CONFIRMS, revision_of

if TYPE_CHECKING:
    from rbdagent.collect.kube.kubeconfig import KubeAccess

Json = dict[str, Any]


class Heartbeat:
    """Renews the Lease of one node's agent, which has the name of the node."""

    def __init__(
        self, access: KubeAccess, node_name: str, *, namespace: str, interval_s: float
    ) -> None:
        self._access = access
        self._node_name = node_name
        self._leases = lease_list(namespace)
        self._interval_s = interval_s
        self._renewed_at: float | None = None
        self._revision: int | None = None
        """The version of the Lease after the last renewal; it only ever grows."""

    @property
    def is_due(self) -> bool:
        """Return whether the interval since the last renewal has passed."""
        return self._renewed_at is None or time.monotonic() - self._renewed_at >= self._interval_s

    def renew(self, at: str, *, node_uid: str | None, confirms: str | None) -> bool:
        """Renew the Lease; return False if the API server was restored from a backup meanwhile.

        Call it only after everything that was observed has been written: readers rely on what is
        published until ten minutes after the renewal.

        Args:
            at: when the node was observed, as ``2026-11-21T03:00:00Z``.
            node_uid: of the Node that owns the Lease; None if it is unknown. The Lease is then not
                created.
            confirms: the version of the RBDNode that the agent has read or written; None if it is
                unknown. The Lease then confirms none.

        Raises:
            SourceError: the API server refused the write.
        """
        api = Api(credentials(self._access), timeout_s=self._access.timeout_s)
        body = {"metadata": {"annotations": {CONFIRMS: confirms}}, "spec": self._spec(at)}
        try:
            written = api.patch(f"{self._leases}/{segment(self._node_name)}", body).answer()
        except StatusError as error:
            if error.status != NOT_FOUND or node_uid is None:
                raise
            written = api.create(self._leases, self._object(body, node_uid)).answer()
        self._renewed_at = time.monotonic()
        before, self._revision = self._revision, revision_of(written)
        return before is None or self._revision is None or before <= self._revision

    def _spec(self, at: str) -> Json:
        return {
            "holderIdentity": self._node_name,
            "leaseDurationSeconds": max(1, round(2 * self._interval_s)),
            # A MicroTime has exactly six digits (apimachinery pkg/apis/meta/v1/micro_time.go).
            "renewTime": f"{at.removesuffix('Z')}.000000Z",
        }

    def _object(self, body: Json, node_uid: str) -> Json:
        return {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {
                "name": self._node_name,
                "ownerReferences": [owned_by_node(self._node_name, node_uid)],
                **body["metadata"],
            },
            "spec": body["spec"],
        }
