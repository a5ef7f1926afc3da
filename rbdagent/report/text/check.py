"""The output of ``check``: how many checks failed, then each problem with its hint."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rbdagent.model import CheckState
from rbdagent.report.text.layout import (
    BOLD,
    GREEN,
    RED,
    YELLOW,
    Layout,
    headed,
    painted,
    with_escaped_texts,
    wrapped,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rbdagent.model import CheckResult

_WORDS: Final = {
    CheckState.OK: ("ok", GREEN),
    CheckState.WARNING: ("warning", YELLOW),
    CheckState.FAILED: ("FAILED", RED),
    CheckState.SKIPPED: ("-", ""),
}
_PROBLEMS: Final = frozenset({CheckState.WARNING, CheckState.FAILED})
_CONFIGURATION: Final = "configuration"
"""The source of the values of flags, which are no checks: only the details have them."""
_MARGIN: Final = " " * 10


@with_escaped_texts
def check_lines(results: Sequence[CheckResult], layout: Layout) -> str:
    """Return the output of ``check``; with details, also what is fine, and the values of flags."""
    checks = [result for result in results if result.source != _CONFIGURATION]
    shown = [*checks, *(result for result in results if layout.details and result not in checks)]
    parts = [_summary(checks, layout)]
    for source in dict.fromkeys(result.source for result in shown):
        of_source = [result for result in shown if result.source == source]
        parts.append("\n".join([source, *_source_lines(of_source, layout)]))
    if not layout.details:
        parts.append("details: -v")
    return "\n\n".join(parts) + "\n"


def _summary(checks: Sequence[CheckResult], layout: Layout) -> str:
    failed = sum(result.state is CheckState.FAILED for result in checks)
    warned = sum(result.state is CheckState.WARNING for result in checks)
    if failed:
        text = f"{failed} of {len(checks)} checks failed: answers will have gaps, and report them."
        return headed("FAILED", BOLD + RED, [text], layout)
    warnings = f"; {warned} {'warning' if warned == 1 else 'warnings'}" if warned else ""
    return headed("OK", BOLD + GREEN, [f"All required checks passed{warnings}."], layout)


def _source_lines(results: Sequence[CheckResult], layout: Layout) -> list[str]:
    """Return the lines of one source: its problems, and the number of its other checks."""
    if layout.details:
        return [_result(result, layout) for result in results]
    lines = [_result(result, layout) for result in results if result.state in _PROBLEMS]
    passed = sum(result.state is CheckState.OK for result in results)
    skipped = sum(result.state is CheckState.SKIPPED for result in results)
    counts = ((passed, "ok"), (skipped, "not checked"))
    others = ", ".join(f"{count} {word}" for count, word in counts if count)
    return [*lines, f"  {others}"] if others else lines


def _result(result: CheckResult, layout: Layout) -> str:
    """Return one check, and the hint if it is a problem."""
    word, paint = _WORDS[result.state]
    is_problem = result.state in _PROBLEMS
    sentence = result.failure if is_problem else result.sentence
    text = f"{sentence}: {result.detail}" if result.detail else sentence
    body = wrapped(text, layout, first=_MARGIN, rest=_MARGIN)
    line = f"  {painted(f'{word:<7}', paint, layout)} {body[len(_MARGIN) :]}"
    # Never wrap a hint: users copy it.
    return f"{line}\n{_MARGIN}-> {result.hint}" if is_problem and result.hint else line
