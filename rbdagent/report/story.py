"""The life of a volume for people: the chain, its steps, and what everything waits for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rbdagent.model import Severity, StepState, Verdict
from rbdagent.report.text import (
    BOLD,
    GREEN,
    OF_SOURCES,
    RED,
    YELLOW,
    finding_text,
    for_people,
    holder_table,
    next_text,
    painted,
    source_lines,
    wrapped,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rbdagent.model import Life, LifeStage, Snapshot

_PAINT: Final = {
    StepState.DONE: GREEN,
    StepState.BROKEN: RED,
    StepState.WAITING: YELLOW,
    StepState.UNSEEN: YELLOW,
}


@for_people
def story(life: Life, snapshot: Snapshot, *, wide: bool, colour: bool) -> str:
    """Give the answer of ``diagnose``; ``wide`` tells what is no trouble as well."""
    diagnosis = life.diagnosis
    parts = [
        _chain(life),
        _steps(life, colour=colour),
        painted(headline(life), BOLD, colour=colour),
    ]
    told = [
        each
        for each in life.findings
        if each.code not in OF_SOURCES and (wide or each.severity is not Severity.INFO)
    ]
    if not told:
        told = [each for each in life.findings if each.code not in OF_SOURCES]
    parts += [finding_text(each, colour=colour) for each in told]
    if diagnosis.holders:
        parts.append(holder_table(diagnosis.holders, snapshot, wide=wide, colour=colour))
    parts.append(source_lines(snapshot))
    if diagnosis.next_commands:
        parts.append(next_text(diagnosis.next_commands, colour=colour))
    return "\n\n".join(parts) + "\n"


def _chain(life: Life) -> str:
    """Name what hangs on what: ``pod -> claim -> PV -> image -> node``."""
    return wrapped(" -> ".join(chain(life)), first="", rest="  ")


def chain(life: Life) -> Iterator[str]:
    """Give each link of the chain, as far as it is known."""
    use = life.diagnosis.use
    if life.pod is not None:
        yield f"pod {life.pod.ref}"
    if use.claim is not None:
        yield f"claim {use.claim.ref}"
    if use.persistent_volume is not None:
        yield f"pv {use.persistent_volume.name}"
    if use.image is not None:
        yield f"image {use.image.spec}"
    for node in dict.fromkeys(each.holder.node for each in life.diagnosis.holders):
        if node is not None:
            yield f"node {node}"


def _steps(life: Life, *, colour: bool) -> str:
    lines = [_line(each, colour=colour) for each in life.there]
    for way in life.back:
        lines.append(f"back from {way.node}:")
        lines += [_line(each, colour=colour) for each in way.stages]
    return "\n".join(lines)


def _line(stage: LifeStage, *, colour: bool) -> str:
    state = stage.state.upper() if stage.state is StepState.BROKEN else str(stage.state)
    shown = painted(f"{state:<12}", _PAINT.get(stage.state, ""), colour=colour)
    codes = f"  [{', '.join(stage.codes)}]" if stage.codes else ""
    return f"  {stage.step:<10} {shown} {stage.said}{codes}".rstrip()


def headline(life: Life) -> str:
    """Return what everything waits for, or how the volume is as far as it was observed."""
    first = life.first_broken
    if first is not None:
        return f"Everything waits for {first.code}, {first.subject}."
    waiting = next((each for each in life.there if each.state is StepState.WAITING), None)
    if waiting:
        return f"Nothing is broken; {waiting.step} is under way."
    if life.diagnosis.verdict is Verdict.UNDETERMINED:
        return "Nothing that was observed is broken. Not everything was observed."
    if life.gaps:
        return f"OK as far as observed. {life.gaps[0].message}"
    return "OK."
