"""States of volumes that real controllers can be brought into without any node.

A user could create the same objects; every state has unique names. Nodes are objects whose
kubelets are played (tests/lab/played.py): the tests write the status that a kubelet would write,
and nothing is mounted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tests.integration.states import attaching, binding, drivers, leaving, scheduling
from tests.integration.states.making import HERE, NODE, ROOK, THERE, Making

if TYPE_CHECKING:
    from collections.abc import Callable

LATE: Final = leaving.evicted_from_a_silent_node
"""It takes a minute to make: the other states are queried in the meantime."""
__all__ = ["HERE", "LATE", "NODE", "ROOK", "STATES", "THERE", "Making"]

STATES: Final[tuple[Callable[[Making], None], ...]] = (
    # The controller detaches it by force after six minutes.
    attaching.attachment_of_a_deleted_node,
    *binding.STATES,
    *scheduling.STATES,
    *attaching.STATES,
    *drivers.STATES,
    *leaving.STATES,
    # It restarts the controllers, which then lose their cached state.
    binding.released_though_claimed,
    binding.bound_to_a_gone_claim,
)
"""In the order of the queries. They are made in reverse order, so that the last is the oldest."""
