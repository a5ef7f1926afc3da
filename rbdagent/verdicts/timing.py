"""Ages between two ISO 8601 timestamps of a snapshot: the core reads no clock."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

from rbdagent.parse.times import age

if TYPE_CHECKING:
    from rbdagent.model import PublishedNode

__all__ = [
    "AGES",
    "GRACE",
    "LONG",
    "MOVING",
    "RETRY_S",
    "age",
    "age_text",
    "confirmed",
    "is_young",
    "seconds",
]

GRACE: Final = timedelta(minutes=10)
"""Longer than the six minutes before the controller detaches by force (DefaultTimerConfig in
pkg/controller/volume/attachdetach/attach_detach_controller.go@v1.36.3), and than the back-off of
ceph-csi and kubelet."""


MOVING: Final = timedelta(minutes=1)
"""A free volume follows its pod within ten seconds to one minute, through the kubelets of two
nodes, the controller and the attacher (recording 10-foreign-unmap-before-kubelet-retry)."""

RETRY_S: Final = 122
"""Seconds until kubelet or the attach/detach controller retries a failed operation, at most: 500 ms
after the first failure, and twice as long after each further one (maxDurationBeforeRetry in
pkg/util/goroutinemap/exponentialbackoff/exponential_backoff.go@v1.36.3)."""

LONG: Final = timedelta(minutes=3)
"""Longer than `RETRY_S`: an operation that still waits after that depends on another component."""


def seconds(value: float) -> timedelta:
    """Return a number of seconds as a timedelta."""
    return timedelta(seconds=value)


def is_young(then: str | None, now: str, grace: timedelta = GRACE) -> bool | None:
    """Return whether an object is younger than the grace period; None if its age is unknown."""
    since = age(then, now)
    return None if since is None else since < grace


AGES: Final = r"(?<![\w-])\d+(?:\.\d+)?(?:ms|[smhd])(?:\d+[smh])*\b"
"""Matches ages and times in a text: two outputs about the same state differ only in these."""


def age_text(since: timedelta | None) -> str:
    """Return an age as kubectl prints it, in the largest unit that fits twice: ``45s``, ``7m``."""
    if since is None:
        return "an unknown time"
    seconds = max(int(since.total_seconds()), 0)
    for unit, length in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= 2 * length:
            return f"{seconds // length}{unit}"
    return f"{seconds}s"


def confirmed(report: PublishedNode, now: str) -> str:
    """Return when an agent last confirmed its report, as the end of a sentence."""
    ago = age_text(age(report.observed_at, now))
    if report.lease is None:
        return f"reported {ago} ago"
    return f"wrote {ago} ago; its Lease does not confirm it: {report.lease.reason}"
