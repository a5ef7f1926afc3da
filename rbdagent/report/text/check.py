"""The output of ``check``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rbdagent.model import CheckState
from rbdagent.report.text.layout import GREEN, RED, YELLOW, Layout, painted, with_escaped_texts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rbdagent.model import CheckResult


@with_escaped_texts
def check_lines(results: Sequence[CheckResult], layout: Layout) -> str:
    """Return the output of ``check``: one line per result, with a hint below each problem."""
    words = {
        CheckState.OK: ("ok     ", GREEN),
        CheckState.WARNING: ("warning", YELLOW),
        CheckState.FAILED: ("FAILED ", RED),
        CheckState.SKIPPED: ("-      ", ""),
    }
    lines: list[str] = []
    source = ""
    for result in results:
        if result.source != source:
            source = result.source
            lines.append(("" if not lines else "\n") + source)
        word, paint = words[result.state]
        detail = f": {result.detail}" if result.detail else ""
        lines.append(f"  {painted(word, paint, layout)} {result.sentence}{detail}")
        if result.hint and result.state in {CheckState.WARNING, CheckState.FAILED}:
            lines.append(f"          -> {result.hint}")
    failed = sum(result.state is CheckState.FAILED for result in results)
    warned = sum(result.state is CheckState.WARNING for result in results)
    if failed:
        last = f"{failed} of {len(results)} checks failed: answers will have gaps, and report them."
    elif warned:
        last = f"All required checks passed; {warned} warnings."
    else:
        last = "All required checks passed."
    return "\n".join([*lines, "", last]) + "\n"
