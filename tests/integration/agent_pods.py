"""The agents of a release in an API server: binding, account, DaemonSet and the pods it owns.

The plugin runs commands in these pods alone (plugin/kubectl-rbdagent).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.lab.api import Api, Json

ROLES: Final = "/apis/rbac.authorization.k8s.io/v1"
LABELS: Final = {"app.kubernetes.io/name": "rbdagent", "app.kubernetes.io/instance": "rbdagent"}


def bind(api: Api, name: str) -> None:
    """Create the ClusterRoleBinding of a release, in the namespace of its name."""
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}
    account = {"kind": "ServiceAccount", "namespace": name, "name": "rbdagent"}
    binding = {"metadata": {"name": name, "labels": LABELS}, "roleRef": role}
    api.create(f"{ROLES}/clusterrolebindings", {**binding, "subjects": [account]})


def make_daemonset(api: Api, namespace: str) -> str:
    """Create the ServiceAccount and the DaemonSet of the agents; return the uid of the latter."""
    account = {"metadata": {"name": "rbdagent", "labels": LABELS}}
    api.create(f"/api/v1/namespaces/{namespace}/serviceaccounts", account)
    spec = {
        "serviceAccountName": "rbdagent",
        "containers": [{"name": "rbdagent", "image": "rbdagent"}],
    }
    made = api.create(
        f"/apis/apps/v1/namespaces/{namespace}/daemonsets",
        {
            "metadata": {"name": "rbdagent", "labels": LABELS},
            "spec": {
                "selector": {"matchLabels": LABELS},
                "template": {"metadata": {"labels": LABELS}, "spec": spec},
            },
        },
    )
    return str(made["metadata"]["uid"])


def make_agent(
    api: Api,
    node: str,
    owner: str,
    *,
    namespace: str = "rbdagent",
    prefix: str = "rbdagent",
    ready: bool = False,
    waiting: str = "",
) -> None:
    """Create a pod of a DaemonSet, with the state that a kubelet would report."""
    name = f"{prefix}-{node}"
    owned = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "rbdagent", "uid": owner}
    make_pod(
        api,
        namespace,
        name,
        node=node,
        labels=LABELS,
        owner={**owned, "controller": True},
        account="rbdagent",
    )
    state: Json = {"waiting": {"reason": waiting}} if waiting else {"running": {}}
    container = {"name": "rbdagent", "state": state, "ready": ready, "restartCount": 0}
    status = {
        "phase": "Running",
        "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
        "containerStatuses": [{**container, "image": "rbdagent", "imageID": ""}],
    }
    api.patch(f"/api/v1/namespaces/{namespace}/pods/{name}/status", {"status": status})


def make_pod(
    api: Api,
    namespace: str,
    name: str,
    *,
    node: str,
    labels: Mapping[str, str] | None = None,
    claims: tuple[str, ...] = (),
    owner: Json | None = None,
    account: str = "default",
) -> None:
    """Create a pod on a node; no kubelet runs it."""
    volumes = [{"name": claim, "persistentVolumeClaim": {"claimName": claim}} for claim in claims]
    api.create(
        f"/api/v1/namespaces/{namespace}/pods",
        {
            "metadata": {
                "name": name,
                "labels": labels or {},
                "ownerReferences": [] if owner is None else [owner],
            },
            "spec": {
                "nodeName": node,
                "serviceAccountName": account,
                "automountServiceAccountToken": False,
                "containers": [{"name": "rbdagent", "image": "rbdagent"}],
                "volumes": volumes,
            },
        },
    )
