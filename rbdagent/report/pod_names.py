"""The names of pods in output, where a process or a mount shows only the uid of its pod."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rbdagent.model import NotObserved

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rbdagent.model import Snapshot


def pod_names_by_uid(snapshot: Snapshot) -> Mapping[str, str]:
    """Return ``namespace/name`` of each pod in the API, by its uid."""
    kube = snapshot.kubernetes
    if kube is None or isinstance(kube.pods, NotObserved):
        return {}
    return {pod.ref.uid: str(pod.ref) for pod in kube.pods if pod.ref.uid}
