"""Ages between two ISO 8601 stamps of a snapshot: the core has no clock of its own."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Final

from rbdagent.parse.times import age

__all__ = ["AGES", "GRACE", "LONG", "MOVING", "age", "is_young", "seconds", "spoken"]

GRACE: Final = timedelta(minutes=10)
"""Above the controller's six minutes (force detach) and ceph-csi's and kubelet's back-off."""


MOVING: Final = timedelta(minutes=1)
"""A volume that is free follows its pod in ten seconds to a minute, by way of two nodes' kubelets,
the controller and the attacher (recorded)."""

LONG: Final = timedelta(minutes=3)
"""kubelet, the controllers and the attacher come back to what failed at most 2m2s later: what
still waits then waits for somebody else."""


def seconds(value: float) -> timedelta:
    """Give a time that was counted in seconds."""
    return timedelta(seconds=value)


def is_young(then: str | None, now: str, grace: timedelta = GRACE) -> bool | None:
    """Tell whether something is younger than the grace period; None where its age is unknown."""
    since = age(then, now)
    return None if since is None else since < grace


AGES: Final = re.compile(r"(?<![\w-])\d+(?:\.\d+)?(?:ms|[smhd])(?:\d+[smh])*\b")
"""Ages and times in a text: by these alone answers to the same state differ."""


def spoken(since: timedelta | None) -> str:
    """Give an age as kubectl writes it, in its largest unit or two: ``45s``, ``7m``, ``3h``."""
    if since is None:
        return "an unknown time"
    seconds = max(int(since.total_seconds()), 0)
    for unit, length in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= 2 * length:
            return f"{seconds // length}{unit}"
    return f"{seconds}s"
