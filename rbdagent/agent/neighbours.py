"""What the agents of a few other nodes published, of what is written or waited for here.

A conflict is certain when the other node's own agent says so, and only that can tell whether what
keeps a pod waiting is used. RBDNodes are asked for by name, never listed: a cluster may have
thousands.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rbdagent.correlate import NodeUses, uses_of_node
from rbdagent.correlate.strangers import nodes_of_strangers
from rbdagent.diagnose.neighbours import neighbours
from rbdagent.look import with_published
from rbdagent.model import NotObserved, PublishedNode
from rbdagent.observe.kube import rbd_nodes_named

if TYPE_CHECKING:
    from rbdagent.observe.kubeconfig import KubeAccess


class Neighbours:
    """Asks them, once for as long as what the API told before is good enough."""

    def __init__(self, access: KubeAccess | None, node_name: str) -> None:
        self._access = access
        self._node_name = node_name
        self._known: dict[str, PublishedNode | None] = {}

    def forget(self) -> None:
        """Ask all of them anew when they are wanted next."""
        self._known = {}

    def told_of(self, uses: NodeUses) -> NodeUses:
        """Give a look with what was published of those who write, or keep, what is needed here.

        Who watches only the look itself tells: so they are asked after it.
        """
        here = self._node_name
        mapped = (neighbours(use, here) for use in uses.mapped)
        waiting = (nodes_of_strangers(use, here) for use in uses.waited_for)
        names = {name for found in (*mapped, *waiting) for name in found}
        if self._access is None or uses.snapshot.kubernetes is None or not names:
            return uses
        missing = sorted(names - self._known.keys())
        answers = rbd_nodes_named(self._access, missing) if missing else {}
        # What was not observed is asked for again at the next look.
        self._known |= {
            name: told for name, told in answers.items() if not isinstance(told, NotObserved)
        }
        unseen = [each for each in answers.values() if isinstance(each, NotObserved)]
        found = [told for name in sorted(names) if (told := self._known.get(name)) is not None]
        return uses_of_node(with_published(uses.snapshot, [*found, *unseen]))
