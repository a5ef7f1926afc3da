"""The results of ``rbdagent check``."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct


class CheckState(StrEnum):
    """Result of one check."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"
    SKIPPED = "skipped"


class CheckResult(Struct, frozen=True, kw_only=True):
    """One line of ``check``: a statement that should be true, with a hint if it is not."""

    source: str
    """``node``, ``ceph``, ``kubernetes`` or ``configuration``."""
    sentence: str
    failure: str = ""
    """The statement that is true if the check fails; required for a check that can fail."""
    state: CheckState
    detail: str = ""
    hint: str = ""
