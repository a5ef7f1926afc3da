"""What was requested of the Kubernetes API, and answered: which missing objects do not exist.

The snapshot of one target is incomplete by design, and an agent reads most objects by name. A
missing object is proven not to exist only if the list that would contain it was answered, or a
request for it. A rule asks here before it concludes something from a missing object.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rbdagent.model import NotObserved

if TYPE_CHECKING:
    from collections.abc import Collection

    from rbdagent.model import ImageIdentity, KubeView


class Coverage:
    """Whether the objects of a kind were observed: all of them, or all that a question is about."""

    def __init__(self, view: KubeView | None) -> None:
        """Take what a view contains; None if the API was not observed."""
        self.claims = view is not None and not isinstance(view.claims, NotObserved)
        """Whether claims were observed; the view of one target has only its claims."""
        self.pods = view is not None and not isinstance(view.pods, NotObserved)
        """Whether pods were observed; the lists may still be those of one node or namespace."""
        self.events = view is not None and not isinstance(view.events, NotObserved)
        """Whether events were observed; only then, none means that there is none."""
        self.lifecycle = view is not None and not (
            isinstance(view.storage_classes, NotObserved) and isinstance(view.drivers, NotObserved)
        )
        """Whether the objects that the lifecycle of a volume depends on were requested."""
        self._searched = frozenset(() if view is None else view.searched)
        self._pod_lists = _pod_lists(view) if self.pods else frozenset()
        self._has_volumes = view is not None and not isinstance(
            view.persistent_volumes, NotObserved
        )
        self._has_all_volumes = self._has_volumes and view is not None and view.volumes_complete
        self._has_attachments = view is not None and not isinstance(view.attachments, NotObserved)
        self._has_all_attachments = (
            self._has_attachments and view is not None and view.attachments_complete
        )
        self._has_nodes = view is not None and not isinstance(view.nodes, NotObserved)
        self._has_all_nodes = self._has_nodes and view is not None and view.nodes_complete
        self.csi_nodes = (
            view is not None
            and not isinstance(view.csi_nodes, NotObserved)
            and view.csi_nodes_complete
        )
        """Whether every CSINode was observed; only then, a driver that none lists is on no node."""

    def pods_on(self, node: str | None) -> bool:
        """Return whether every pod that is bound to a node was observed."""
        return self._every_pod or ("node", node or "") in self._pod_lists

    def pods_of(self, claims: Collection[tuple[str, str]]) -> bool:
        """Return whether every pod, on any node, that can use one of these claims was observed.

        Lists of namespaces are enough only if the volume has claims: inline volumes may be in any
        namespace.
        """
        lists = {("namespace", namespace) for namespace, _ in claims}
        return self._every_pod or (bool(lists) and lists <= self._pod_lists)

    def volumes(self, image: ImageIdentity | None = None) -> bool:
        """Return whether every PV was observed, or at least every PV of an image."""
        if self._has_all_volumes:
            return True
        return self._has_volumes and image is not None and str(image.spec) in self._searched

    def attachments(self, names: frozenset[str] | None = None) -> bool:
        """Return whether every VolumeAttachment was observed, or at least those with the names."""
        if self._has_all_attachments:
            return True
        return self._has_attachments and names is not None and names <= self._searched

    def nodes(self, term: str = "") -> bool:
        """Return whether every Node was observed, or at least those with a name or an address."""
        return self._has_all_nodes or (self._has_nodes and term in self._searched)

    @property
    def _every_pod(self) -> bool:
        return ("cluster", "") in self._pod_lists


def _pod_lists(view: KubeView | None) -> frozenset[tuple[str, str]]:
    """Parse ``node/worker-1,namespace/default``: the lists of pods that were observed."""
    scope = "" if view is None else view.pods_scope
    parts = (part.strip().partition("/") for part in scope.split(","))
    return frozenset((kind, name) for kind, _, name in parts)
