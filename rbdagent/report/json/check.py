"""The output of ``check``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from rbdagent import model
from rbdagent.report.json.output import Object, Output

if TYPE_CHECKING:
    from collections.abc import Iterable


class Check(Object, frozen=True, kw_only=True):
    """A statement that should be true, with a hint if it is not."""

    source: str
    sentence: str
    state: model.CheckState
    detail: str
    hint: str


class CheckReport(Output, frozen=True, kw_only=True):
    """The output of ``check``."""

    kind: Literal["CheckReport"] = "CheckReport"
    checks: tuple[Check, ...]


def check_report(results: Iterable[model.CheckResult]) -> CheckReport:
    """Return the output of ``check -o json``."""
    return CheckReport(
        checks=tuple(
            Check(
                source=result.source,
                sentence=result.sentence,
                state=result.state,
                detail=result.detail,
                hint=result.hint,
            )
            for result in results
        )
    )
