"""An Event as the agent writes it: one object, one reason, one message."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from rbdagent.parse.digests import sha256
from rbdagent.parse.foreign import bounded
from rbdagent.parse.shown import shown

_LONGEST: Final = 1024
"""The API server refuses longer messages (core/v1 Event validation)."""
_LONGEST_STEM: Final = 220
"""Characters of an object's name in that of an Event, which has at most 253."""


class SentEvent(Struct, frozen=True, kw_only=True):
    """An Event to write, about one object."""

    kind: str
    namespace: str
    name: str
    uid: str
    reason: str
    message: str
    warns: bool

    def event_name(self, node_name: str) -> str:
        """Return the name of the Event of a node's agent: its equal Events have equal names."""
        parts = (
            node_name, self.kind, self.namespace, self.name, self.uid, self.reason, self.message
        )  # fmt: skip
        stem = self.name[:_LONGEST_STEM].rstrip("-.")
        return f"{stem}.{sha256(repr(parts).encode()).hexdigest()[:16]}"


def event_message(message: str) -> str:
    """Return a message as an Event may have it: escaped, and not longer than is allowed."""
    return bounded(shown(message), _LONGEST)
