"""ISO 8601 stamps of a snapshot: the pure core has no clock of its own."""

from __future__ import annotations

from datetime import datetime, timedelta


def age(then: str | None, now: str) -> timedelta | None:
    """Return how long before ``now`` something was; None where a time is missing or unreadable."""
    if then is None:
        return None
    try:
        return datetime.fromisoformat(now) - datetime.fromisoformat(then)
    except (ValueError, TypeError):
        return None
