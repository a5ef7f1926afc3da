"""The reports of a few other nodes, for images that this node has mapped or waits for.

A conflict is certain if the RBDMapping of the other node shows it. Only that RBDMapping shows
whether the mapping that blocks a pod is in use. The agent requests them by the name of the node and
never lists those of all nodes, because a cluster may have thousands.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rbdagent.collect.kube.list_reports import reports_of_nodes
from rbdagent.collector import with_published
from rbdagent.correlate import NodeVolumes, volumes_of_node
from rbdagent.correlate.unknown_watchers import nodes_of_watchers_elsewhere
from rbdagent.model import NotObserved, PublishedNode, separated
from rbdagent.verdicts.neighbours import neighbours

if TYPE_CHECKING:
    from rbdagent.collect.kube.kubeconfig import KubeAccess


class Neighbours:
    """Requests the reports, and keeps them until :meth:`forget`."""

    def __init__(self, access: KubeAccess | None, node_name: str) -> None:
        self._access = access
        self._node_name = node_name
        self._known: dict[str, PublishedNode | None] = {}

    def forget(self) -> None:
        """Drop all reports: the next use requests them again."""
        self._known = {}

    def with_results(self, uses: NodeVolumes) -> NodeVolumes:
        """Return the uses with the reports of nodes that hold an image that this node needs.

        The watchers in the snapshot name these nodes, so the requests follow the snapshot.
        """
        here = self._node_name
        mapped = (neighbours(volume, here) for volume in uses.mapped)
        waiting = (nodes_of_watchers_elsewhere(volume, here) for volume in uses.waited_for)
        names = {name for found in (*mapped, *waiting) for name in found}
        if self._access is None or uses.snapshot.kubernetes is None or not names:
            return uses
        missing = sorted(names - self._known.keys())
        answers = reports_of_nodes(self._access, missing) if missing else {}
        # A report that was not observed is requested again in the next cycle.
        self._known |= {
            name: answer for name, answer in answers.items() if not isinstance(answer, NotObserved)
        }
        _, unseen = separated(answers.values())
        found = [node for name in sorted(names) if (node := self._known.get(name)) is not None]
        return volumes_of_node(with_published(uses.snapshot, [*found, *unseen]))
