"""Texts that every reader of cluster objects can see: RBDNodes, Events, the unmap record.

They show only the pid and the program of a process: `ProcessRef.is_public`. In what others wrote,
which they quote, no secret can be recognised with certainty, so they quote little of it.
"""

from __future__ import annotations

from rbdagent.parse.brief import brief
from rbdagent.parse.shown import shown


def public_text(text: str) -> str:
    """Return a sentence without long quotations, on one line."""
    return shown(brief(text))
