"""The output of ``unmap``: the plan, the refusal, or the result."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rbdagent.commands import command
from rbdagent.model import StepKind, UnmapOutcome
from rbdagent.report.text.findings import next_text
from rbdagent.report.text.layout import (
    BOLD,
    GREEN,
    RED,
    Layout,
    painted,
    with_escaped_texts,
    wrapped,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rbdagent.model import Command, Condition, UnmapPlan, UnmapRefusal, UnmapResult

_MOST_REASONS: Final = 4
"""Maximum of reasons for one condition: a mount can be visible in many mount namespaces."""


@with_escaped_texts
def unmap_plan(plan: UnmapPlan, layout: Layout) -> str:
    """Return the plan that ``unmap`` prints before it executes it."""
    words = {
        StepKind.UMOUNT: "unmount its staging mount {}",
        StepKind.LUKS_CLOSE: "close its LUKS mapping {}",
        StepKind.UNMAP: "unmap {}",
    }
    steps = [
        f"  {number}. {words[step.kind].format(step.subject)}"
        for number, step in enumerate(plan.steps, start=1)
    ]
    parts = [
        f"{painted('May be unmapped', BOLD + GREEN, layout)}: {_mapping_of(plan)}.",
        "\n".join(["Steps, each after a new observation:", *steps]),
        _conditions(plan.conditions, layout),
    ]
    return "\n\n".join([*parts, *_expected(plan, layout)]) + "\n"


@with_escaped_texts
def unmap_refusal(refusal: UnmapRefusal, layout: Layout) -> str:
    """Return why nothing is unmapped: every condition with its evidence."""
    parts = [
        f"{painted('Not unmapped', BOLD + RED, layout)}: {_mapping_of(refusal)}.",
        _conditions(refusal.conditions, layout),
        *([] if refusal.prevented_by is None else [f"{refusal.prevented_by_text}."]),
        next_text(_after_refusal(refusal), layout),
    ]
    return "\n\n".join(parts) + "\n"


def _after_refusal(refusal: UnmapRefusal) -> list[Command]:
    """Return the next commands: wait if only time is missing, else explain the refusal."""
    hard = [
        condition.code
        for condition in refusal.conditions
        if not condition.met and not condition.pending
    ]
    explained = [command("rbdagent explain", code) for code in hard]
    if refusal.identity is None:
        return explained
    device = refusal.identity.device
    if hard:
        return [command("rbdagent who-holds", device), *explained]
    return [command("rbdagent unmap", device, options=("--wait",), note="only time is missing")]


@with_escaped_texts
def unmap_result(result: UnmapResult, layout: Layout) -> str:
    """Return the executed steps, why they stopped if they did, and what to do next."""
    paint = GREEN if result.outcome is UnmapOutcome.UNMAPPED else RED
    outcome = painted(str(result.outcome), BOLD + paint, layout)
    parts = [f"{outcome}: {result.message}."]
    if result.done:
        parts.append(
            "\n".join(["Done:", *(f"  {step.kind} {step.subject}" for step in result.done)])
        )
    if result.refusal is not None:
        parts.append(_conditions(result.refusal.conditions, layout))
    if any(step.kind is StepKind.UNMAP for step in result.done):
        parts += _expected(result.plan, layout)
    return "\n\n".join(parts) + "\n"


def _mapping_of(plan: UnmapPlan | UnmapRefusal) -> str:
    device = plan.identity.device if plan.identity else "no mapping"
    volume = f" (pv/{plan.persistent_volume})" if plan.persistent_volume else ""
    return f"{device} on {plan.node}{volume}"


def _conditions(conditions: Sequence[Condition], layout: Layout) -> str:
    lines = []
    for condition in conditions:
        word = "ok" if condition.met else "not yet" if condition.pending else "REFUSED"
        shown = painted(f"{word:<7}", GREEN if condition.met else RED, layout)
        lines.append(f" {condition.number:>2} {shown}  {condition.requirement} ({condition.code})")
        if not condition.met:
            reasons = [*condition.observed[:_MOST_REASONS]]
            if len(condition.observed) > _MOST_REASONS:
                reasons.append(
                    f"and {len(condition.observed) - _MOST_REASONS} more: -o json lists all"
                )
            lines += [
                wrapped(f"- {text}", layout, first=" " * 13, rest=" " * 15) for text in reasons
            ]
    return "\n".join(["Conditions:", *lines])


def _expected(plan: UnmapPlan, layout: Layout) -> list[str]:
    if not plan.expects:
        return []
    lines = [wrapped(line, layout, first="  - ", rest="    ") for line in plan.expects]
    return ["\n".join(["What must follow:", *lines])]
