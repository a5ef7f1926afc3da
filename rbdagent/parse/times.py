"""ISO 8601 times of a snapshot; the pure core reads no clock."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final

_MONTHS: Final = "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec"


def age(then: str | None, now: str) -> timedelta | None:
    """Return the time from ``then`` to ``now``; None if a time is missing or malformed."""
    if then is None:
        return None
    try:
        return _moment(now) - _moment(then)
    except (ValueError, TypeError):
        return None


@lru_cache(maxsize=4096)
def _moment(text: str) -> datetime:
    """Parse a time; each volume is compared with the report of each node."""
    return datetime.fromisoformat(text)


def iso_time(moment: float) -> str:
    """Return a Unix time as ISO 8601 in UTC, in whole seconds.

    Raises:
        OverflowError, ValueError, OSError: the year has no four digits.
    """
    return f"{datetime.fromtimestamp(moment, tz=UTC):%Y-%m-%dT%H:%M:%SZ}"


def later_by(then: str, by: timedelta) -> str:
    """Return an ISO 8601 time in UTC that is later, in whole seconds; unchanged if malformed."""
    try:
        moved = datetime.fromisoformat(then) + by
    except (OverflowError, ValueError):
        return then
    return f"{moved.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"


def seconds_of_http_date(text: str) -> float | None:
    """Return the Unix time of a Date header (``Sun, 06 Nov 1994 08:49:37 GMT``, RFC 9110, 5.6.7).

    None if it is malformed.
    """
    try:
        _, day, month, year, clock, _ = text.split()
        hour, minute, second = map(int, clock.split(":"))
        number = _MONTHS.split().index(month) + 1
        moment = datetime(int(year), number, int(day), hour, minute, second, tzinfo=UTC)
    except (OverflowError, ValueError):
        return None
    return moment.timestamp()
