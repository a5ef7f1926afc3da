"""States of volumes that real controllers can be brought into without any node.

Each is made by what a user would type, in names of its own. Nodes are objects whose kubelets are
played (tests/lab/played.py): what they would write is written, and nothing is mounted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tests.integration.states import attaching, binding, leaving, scheduling
from tests.integration.states.making import HERE, NODE, ROOK, THERE, Making

if TYPE_CHECKING:
    from collections.abc import Callable

LATE: Final = leaving.evicted_from_a_silent_node
"""It takes a minute to make: the rest is asked about meanwhile."""
__all__ = ["HERE", "LATE", "NODE", "ROOK", "STATES", "THERE", "Making"]

STATES: Final[tuple[Callable[[Making], None], ...]] = (
    # The controller detaches it by force, six minutes later.
    attaching.attachment_of_a_deleted_node,
    *binding.STATES,
    *scheduling.STATES,
    *attaching.STATES,
    *leaving.STATES,
    # Its controllers are started anew, and what they knew is forgotten.
    binding.released_though_claimed,
)
"""In the order in which they are asked about; made in the other one, the last is the oldest."""
