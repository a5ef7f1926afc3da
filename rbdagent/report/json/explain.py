"""The outputs of ``explain``: one finding code, or all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from rbdagent import model
from rbdagent.commands import sentence_of
from rbdagent.report.json.binding import Branch, branches
from rbdagent.report.json.findings import Recovery, recovery
from rbdagent.report.json.output import Code, Output

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rbdagent.pages import Page
    from rbdagent.rules.entry import Entry


class Explanation(Output, frozen=True, kw_only=True):
    """The output of ``explain CODE``."""

    kind: Literal["Explanation"] = "Explanation"
    code: Code
    name: str
    severity: model.Severity
    summary: str
    cause: str
    evidence: str
    risk: str
    remedy: str
    recovery: Recovery | None
    step: model.LifecycleStep | None
    branches: tuple[Branch, ...]


class ExplanationList(Output, frozen=True, kw_only=True):
    """The output of ``explain``: all codes."""

    kind: Literal["ExplanationList"] = "ExplanationList"
    items: tuple[Explanation, ...]


def explanation(entry: Entry, page: Page) -> Explanation:
    """Return the output of ``explain CODE -o json``."""
    return Explanation(
        code=entry.code,
        name=entry.name,
        severity=entry.severity,
        summary=entry.summary,
        cause=page.cause,
        evidence=page.evidence,
        risk=page.risk,
        remedy=sentence_of(entry.remedy),
        recovery=recovery(entry.recovery),
        step=entry.step,
        branches=branches(entry.code),
    )


def explanation_list(known: Iterable[tuple[Entry, Page]]) -> ExplanationList:
    """Return the output of ``explain -o json``."""
    return ExplanationList(items=tuple(explanation(entry, page) for entry, page in known))
