"""The output of ``diagnose``: the cause, the step that it breaks, and what to do."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Final, NamedTuple

from rbdagent.codes import Code
from rbdagent.commands import for_reader
from rbdagent.model import Severity, StepState, Verdict
from rbdagent.report.text.actions import do_this, remedy_of
from rbdagent.report.text.facts import also_lines, volume_line
from rbdagent.report.text.findings import command_lines, finding_text
from rbdagent.report.text.footer import footer
from rbdagent.report.text.headline import (
    findings_of,
    first_lines,
    verdict_finding,
    verdict_statement,
    waiting_line,
)
from rbdagent.report.text.holders import holder_table
from rbdagent.report.text.layout import (
    BOLD,
    GREEN,
    PAINT,
    RED,
    YELLOW,
    Layout,
    headed,
    labelled,
    painted,
    with_escaped_texts,
    wrapped,
)
from rbdagent.report.text.processes import processes_instead
from rbdagent.rules import FINDINGS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rbdagent.model import Finding, Lifecycle, Snapshot, StepStatus

_PAINT: Final = {
    StepState.DONE: GREEN,
    StepState.FAILED: RED,
    StepState.WAITING: YELLOW,
    StepState.NOT_OBSERVED: YELLOW,
}
_QUIET: Final = frozenset({StepState.DONE, StepState.NOT_STARTED, StepState.SKIPPED})
"""The states of steps that the output names without further words."""


@with_escaped_texts
def story(lifecycle: Lifecycle, snapshot: Snapshot, layout: Layout) -> str:
    """Return the output of ``diagnose``."""
    diagnosis = lifecycle.diagnosis
    commands = for_reader(diagnosis.next_commands, layout.program)
    word, paint = _word(lifecycle)
    paragraphs, recovery = _first_lines(lifecycle, snapshot)
    parts = [headed(word, paint, paragraphs, layout)]
    parts.append("\n".join(_facts(lifecycle, recovery, layout)))
    main = _main_finding(lifecycle)
    remedy = remedy_of(main, commands, layout) if main is not None else ""
    if remedy or commands:
        parts.append(do_this(remedy, commands, layout))
    parts += processes_instead(diagnosis, layout)
    if layout.details:
        printed = frozenset((*paragraphs, *recovery, remedy, *command_lines(commands, layout)))
        parts += [part for part in (_chain(lifecycle, layout), _steps(lifecycle, layout)) if part]
        parts += [finding_text(found, layout, printed) for found in findings_of(diagnosis)]
        parts += [holder_table(diagnosis.holders, snapshot, layout)] if diagnosis.holders else []
    parts.append(footer(main, snapshot, layout))
    return "\n\n".join(parts) + "\n"


def _main_finding(lifecycle: Lifecycle) -> Finding | None:
    """Return the root cause; without one, the finding that explains the verdict."""
    found = findings_of(lifecycle.diagnosis)
    explained = lifecycle.first_failed or _note(lifecycle) or verdict_finding(lifecycle.diagnosis)
    return explained or (found[0] if found else None)


def _note(lifecycle: Lifecycle) -> Finding | None:
    """Return what a volume without holder waits for: that it has none explains less."""
    lead = verdict_finding(lifecycle.diagnosis)
    if lead is None or lead.code not in _NO_HOLDER or lead.severity is not Severity.INFO:
        return None
    found = findings_of(lifecycle.diagnosis)
    return next((one for one in found if FINDINGS[one.code].step and one.code != lead.code), None)


_OF_PODS: Final = frozenset({Code.CONTAINER_DOES_NOT_RUN})
"""The volume is well, and a pod that has it is not."""
_NO_HOLDER: Final = frozenset({Code.NO_HOLDER, Code.HOLDER_UNDETERMINED})


def _word(lifecycle: Lifecycle) -> tuple[str, str]:
    """Return the state of the volume in capitals, and its colour."""
    cause = lifecycle.first_failed
    states = {status.state for status in lifecycle.attach_path}
    if cause is not None:
        is_blocked = StepState.FAILED in states
        return _word_of(cause, lifecycle, is_blocked=is_blocked), PAINT.get(cause.severity, BOLD)
    if _note(lifecycle) is not None:
        return "INFO", BOLD + YELLOW
    if StepState.WAITING in states:
        return "WAITING", BOLD + YELLOW
    if lifecycle.diagnosis.verdict is Verdict.UNDETERMINED:
        return "UNDETERMINED", BOLD + YELLOW
    main = _main_finding(lifecycle)
    if main is not None and main.code in _OF_PODS:
        return "INFO", BOLD + YELLOW
    return "OK", BOLD + GREEN


def _word_of(cause: Finding, lifecycle: Lifecycle, *, is_blocked: bool) -> str:
    if cause.severity is Severity.CRITICAL:
        return "DATA AT RISK"
    if cause.severity is Severity.INFO:
        # Nothing is broken, as the exit code states.
        return "WAITING" if lifecycle.diagnosis.volume.waiting_pods else "INFO"
    return "BLOCKED" if is_blocked else str(cause.severity).upper()


def _first_lines(lifecycle: Lifecycle, snapshot: Snapshot) -> tuple[list[str], list[str]]:
    """Return the paragraphs of the headline, and the text for the label Recovery."""
    diagnosis, main = lifecycle.diagnosis, _main_finding(lifecycle)
    if main is None:
        paragraphs = [str(verdict_statement(diagnosis)), *waiting_line(diagnosis, snapshot)]
        recovery: list[str] = []
    else:
        paragraphs, recovery = first_lines(main, diagnosis, snapshot)
    if lifecycle.first_failed is not None:
        return paragraphs, recovery
    lead = verdict_finding(diagnosis)
    if _note(lifecycle) is not None and lead is not None:
        return [*paragraphs, lead.message], recovery
    return [*_unbroken(lifecycle), *paragraphs], recovery


def _unbroken(lifecycle: Lifecycle) -> Iterator[str]:
    """Yield how far the volume is known to be unbroken; the first word of the answer may be OK."""
    state = _state_of(lifecycle)
    gap = f" Not observed: {state.gap.fact}." if state.gap is not None else ""
    if state.without_ok:
        yield f"{state.without_ok}{gap}"


def _facts(lifecycle: Lifecycle, recovery: list[str], layout: Layout) -> Iterator[str]:
    """Yield the labelled lines."""
    diagnosis = lifecycle.diagnosis
    yield volume_line(diagnosis.volume, layout)
    if not layout.details:
        yield labelled("Attach", _path(lifecycle.attach_path), layout)
        for path in lifecycle.detach_paths:
            yield labelled("Detach", f"from {path.node}: {_path(path.stages)}", layout)
    for text in recovery:
        yield labelled("Recovery", text, layout)
    yield from also_lines(diagnosis, _main_finding(lifecycle), layout)


def _path(stages: Sequence[StepStatus]) -> str:
    """Return the steps in order; those with the same state, and the same words for it, as one."""

    def key(status: StepStatus) -> tuple[StepState, str]:
        return status.state, "" if status.state in _QUIET else _observed(status)

    groups = []
    for (state, _), grouped in itertools.groupby(stages, key=key):
        statuses = [*grouped]
        text = f"{', '.join(str(status.step) for status in statuses)} {_state(state)}"
        if state not in _QUIET:
            text += f": {_observed(statuses[0])}"
        groups.append(text)
    return " -> ".join(groups)


def _state(state: StepState) -> str:
    return state.upper() if state is StepState.FAILED else str(state)


def _observed(status: StepStatus) -> str:
    codes = f" [{', '.join(status.codes)}]" if status.codes else ""
    return f"{status.detail}{codes}"


def _chain(lifecycle: Lifecycle, layout: Layout) -> str:
    """Return the dependency chain: ``pod -> claim -> PV -> image -> node``."""
    return wrapped(" -> ".join(chain(lifecycle)), layout, rest="  ")


def chain(lifecycle: Lifecycle) -> Iterator[str]:
    """Yield each known object of the chain."""
    volume = lifecycle.diagnosis.volume
    if lifecycle.pod is not None:
        yield f"pod {lifecycle.pod.ref}"
    if volume.claim is not None:
        yield f"claim {volume.claim.ref}"
    if volume.persistent_volume is not None:
        yield f"pv {volume.persistent_volume.name}"
    if volume.image is not None:
        yield f"image {volume.image.spec}"
    for node in dict.fromkeys(
        holder_verdict.holder.node for holder_verdict in lifecycle.diagnosis.holders
    ):
        if node is not None:
            yield f"node {node}"


def _steps(lifecycle: Lifecycle, layout: Layout) -> str:
    lines = [_step_line(status, layout) for status in lifecycle.attach_path]
    for path in lifecycle.detach_paths:
        lines.append(f"detach path from {path.node}:")
        lines += [_step_line(status, layout) for status in path.stages]
    return "\n".join(lines)


_STATE_WIDTH: Final = 14


def _step_line(status: StepStatus, layout: Layout) -> str:
    """Return a step, its state and what was observed, under each other where it is long."""
    state, begin = _state(status.state), f"  {status.step:<10} "
    observed = _observed(status)
    indent = " " * (len(begin) + _STATE_WIDTH)
    lines = wrapped(observed, layout, first=indent, rest=indent).removeprefix(indent)
    shown = painted(f"{state:<{_STATE_WIDTH}}", _PAINT.get(status.state, ""), layout)
    return f"{begin}{shown}{lines}".rstrip()


def headline(lifecycle: Lifecycle) -> str:
    """Return the root cause, or the state of the volume as far as it was observed."""
    root_cause = lifecycle.first_failed
    if root_cause is not None:
        return f"Root cause: {root_cause.code}, {root_cause.subject}."
    state = _state_of(lifecycle)
    ok = "OK " if state.is_ok and state.without_ok else "OK." if state.is_ok else ""
    gap = f" {state.gap.message}" if state.gap is not None else ""
    return f"{ok}{state.without_ok}{gap}"


class _State(NamedTuple):
    """The state of a volume of which nothing that was observed is broken."""

    without_ok: str
    is_ok: bool = False
    gap: Finding | None = None


def _state_of(lifecycle: Lifecycle) -> _State:
    pending = next(
        (status for status in lifecycle.attach_path if status.state is StepState.WAITING), None
    )
    gap = next(iter(lifecycle.gaps), None)
    if pending:
        observed = "" if gap is None else " that was observed"
        return _State(f"Nothing{observed} is broken; {pending.step} is pending.", gap=gap)
    if lifecycle.diagnosis.verdict is Verdict.UNDETERMINED:
        return _State("Nothing that was observed is broken. Not everything was observed.")
    if gap is not None:
        return _State("as far as observed.", is_ok=True, gap=gap)
    return _State("", is_ok=True)
