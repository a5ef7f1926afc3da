"""The lifecycle of a volume as text: its dependency chain, its steps, and its root cause."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rbdagent.model import Severity, StepState, Verdict
from rbdagent.report.text.findings import OF_SOURCES, finding_text, next_text, source_lines
from rbdagent.report.text.holders import holder_table
from rbdagent.report.text.layout import (
    BOLD,
    GREEN,
    RED,
    YELLOW,
    painted,
    with_escaped_texts,
    wrapped,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rbdagent.model import Lifecycle, Snapshot, StepStatus

_PAINT: Final = {
    StepState.DONE: GREEN,
    StepState.FAILED: RED,
    StepState.WAITING: YELLOW,
    StepState.NOT_OBSERVED: YELLOW,
}


@with_escaped_texts
def story(lifecycle: Lifecycle, snapshot: Snapshot, *, wide: bool, colour: bool) -> str:
    """Return the output of ``diagnose``; with ``wide`` also the findings of severity info."""
    diagnosis = lifecycle.diagnosis
    parts = [
        _chain(lifecycle),
        _steps(lifecycle, colour=colour),
        painted(headline(lifecycle), BOLD, colour=colour),
    ]
    findings = [
        finding
        for finding in lifecycle.findings
        if finding.code not in OF_SOURCES and (wide or finding.severity is not Severity.INFO)
    ]
    if not findings:
        findings = [finding for finding in lifecycle.findings if finding.code not in OF_SOURCES]
    parts += [finding_text(finding, colour=colour) for finding in findings]
    if diagnosis.holders:
        parts.append(holder_table(diagnosis.holders, snapshot, wide=wide, colour=colour))
    parts.append(source_lines(snapshot))
    if diagnosis.next_commands:
        parts.append(next_text(diagnosis.next_commands, colour=colour))
    return "\n\n".join(parts) + "\n"


def _chain(lifecycle: Lifecycle) -> str:
    """Return the dependency chain: ``pod -> claim -> PV -> image -> node``."""
    return wrapped(" -> ".join(chain(lifecycle)), first="", rest="  ")


def chain(lifecycle: Lifecycle) -> Iterator[str]:
    """Yield each known object of the chain."""
    use = lifecycle.diagnosis.use
    if lifecycle.pod is not None:
        yield f"pod {lifecycle.pod.ref}"
    if use.claim is not None:
        yield f"claim {use.claim.ref}"
    if use.persistent_volume is not None:
        yield f"pv {use.persistent_volume.name}"
    if use.image is not None:
        yield f"image {use.image.spec}"
    for node in dict.fromkeys(
        holder_verdict.holder.node for holder_verdict in lifecycle.diagnosis.holders
    ):
        if node is not None:
            yield f"node {node}"


def _steps(lifecycle: Lifecycle, *, colour: bool) -> str:
    lines = [_step_line(status, colour=colour) for status in lifecycle.attach_path]
    for path in lifecycle.detach_paths:
        lines.append(f"detach path from {path.node}:")
        lines += [_step_line(status, colour=colour) for status in path.stages]
    return "\n".join(lines)


def _step_line(status: StepStatus, *, colour: bool) -> str:
    state = status.state.upper() if status.state is StepState.FAILED else str(status.state)
    shown = painted(f"{state:<12}", _PAINT.get(status.state, ""), colour=colour)
    codes = f"  [{', '.join(status.codes)}]" if status.codes else ""
    return f"  {status.step:<10} {shown} {status.said}{codes}".rstrip()


def headline(lifecycle: Lifecycle) -> str:
    """Return the root cause, or the state of the volume as far as it was observed."""
    root_cause = lifecycle.first_failed
    if root_cause is not None:
        return f"Root cause: {root_cause.code}, {root_cause.subject}."
    waiting = next(
        (status for status in lifecycle.attach_path if status.state is StepState.WAITING), None
    )
    if waiting:
        return f"Nothing is broken; {waiting.step} is in progress."
    if lifecycle.diagnosis.verdict is Verdict.UNDETERMINED:
        return "Nothing that was observed is broken. Not everything was observed."
    if lifecycle.gaps:
        return f"OK as far as observed. {lifecycle.gaps[0].message}"
    return "OK."
