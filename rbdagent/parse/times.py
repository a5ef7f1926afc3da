"""ISO 8601 times of a snapshot; the pure core reads no clock."""

from __future__ import annotations

from datetime import datetime, timedelta


def age(then: str | None, now: str) -> timedelta | None:
    """Return the time from ``then`` to ``now``; None if a time is missing or malformed."""
    if then is None:
        return None
    try:
        return datetime.fromisoformat(now) - datetime.fromisoformat(then)
    except (ValueError, TypeError):
        return None
