"""The life of a volume, on snapshots of what real controllers had made."""

from __future__ import annotations

from typing import Final

SAYS: Final[dict[str, frozenset[str]]] = {}
"""What is said at warning or above of each state of tests/integration/states.py."""
