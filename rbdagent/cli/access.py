"""The access to Kubernetes that the flags describe, for the verbs and for their completion."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rbdagent.collect.kube.kubeconfig import KubeAccess


def kube_access(given: dict[str, Any]) -> KubeAccess:
    """Return the access to Kubernetes from the values of the flags."""
    from rbdagent.collect.kube.kubeconfig import KubeAccess

    variables = ("KUBECONFIG", "HOME", "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT")
    return KubeAccess(
        kubeconfig=path_of(given["kubeconfig"]),
        context=given["context"],
        timeout_s=given["kube_timeout"],
        answer_s=given["timeout"],
        environment=tuple((name, os.environ[name]) for name in variables if name in os.environ),
    )


def path_of(value: str | None) -> Path | None:
    """Return the path that a flag or a key of the configuration has; None without it."""
    return Path(value) if value else None
