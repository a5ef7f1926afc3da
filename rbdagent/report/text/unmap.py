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
    YELLOW,
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
_FEWER_REASONS: Final = 2
"""The same without details."""
_MARGIN: Final = " " * 16
"""In front of the text of a condition: its number and its word."""


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
        _headline("May be unmapped", GREEN, f"{_mapping_of(plan)}.", layout),
        "\n".join(["Steps, each after a new observation:", *steps]),
        _conditions(plan.conditions, layout),
    ]
    return "\n\n".join([*parts, *_expected(plan, layout)]) + "\n"


def unmap_refusal(refusal: UnmapRefusal, layout: Layout) -> str:
    """Return why nothing is unmapped: every condition that is not met, with its evidence."""
    # Commands are not escaped: a name in them stays the name.
    return _refusal(refusal, _after_refusal(refusal), layout)


@with_escaped_texts
def _refusal(refusal: UnmapRefusal, commands: Sequence[Command], layout: Layout) -> str:
    lead = _lead(refusal)
    first = _undecided(refusal, layout) if lead is None else _refused(lead, layout)
    total = len(refusal.conditions)
    unmet = f": {len(refusal.codes)} of {total} conditions are not met" if lead else ""
    second = f"{_mapping_of(refusal)}{unmet}."
    if refusal.prevented_by is not None:
        second = f"{second} {refusal.prevented_by_text}."
    parts = [
        f"{first}\n{wrapped(second, layout, first='  ', rest='  ')}",
        _conditions(refusal.conditions, layout, lead=lead),
        *([next_text(commands, layout)] if commands else []),
        *([] if layout.details else ["details: -v"]),
    ]
    return "\n\n".join(parts) + "\n"


def _lead(refusal: UnmapRefusal) -> Condition | None:
    """Return the condition that decides; None if a snapshot file cannot show the decision."""
    if any(condition.needs_node for condition in refusal.conditions):
        return None
    code = refusal.first_code
    return next(condition for condition in refusal.conditions if condition.code == code)


def _undecided(refusal: UnmapRefusal, layout: Layout) -> str:
    offline = [condition for condition in refusal.conditions if condition.needs_node]
    unmet = [condition for condition in refusal.conditions if not condition.met]
    hard = sum(not (condition.needs_node or condition.pending) for condition in unmet)
    is_or_are = "is" if hard == 1 else "are"
    also = f", and {hard} {is_or_are} not met in the snapshot" if hard else ""
    text = f"{len(offline)} of {len(refusal.conditions)} conditions need the node{also}."
    return _headline("Cannot be decided offline", YELLOW, text, layout)


def _refused(lead: Condition, layout: Layout) -> str:
    word = "Not yet unmapped" if lead.pending else "Not unmapped"
    return _headline(word, RED, f"{lead.observed[0]} ({lead.code}).", layout)


def _headline(word: str, paint: str, text: str, layout: Layout) -> str:
    line = wrapped(f"{word}: {text}", layout, rest="  ")
    return painted(word, BOLD + paint, layout) + line[len(word) :]


def _after_refusal(refusal: UnmapRefusal) -> list[Command]:
    """Return the next commands: on the node if a snapshot cannot decide, else to understand."""
    lead = _lead(refusal)
    if refusal.identity is None:
        return [] if lead is None else [command("rbdagent explain", lead.code)]
    device, volume, node = refusal.identity.device, refusal.persistent_volume, refusal.node
    if lead is None:
        target = device if volume is None else f"pv/{volume}"
        return [command("rbdagent unmap", target, node=node)]
    if lead.pending:
        note = "only time is missing"
        return [command("rbdagent unmap", device, options=("--wait",), node=node, note=note)]
    return [
        command("rbdagent who-holds", device, node=node),
        command("rbdagent explain", lead.code),
    ]


@with_escaped_texts
def unmap_result(result: UnmapResult, layout: Layout) -> str:
    """Return the executed steps, why they stopped if they did, and what to do next."""
    paint = GREEN if result.outcome is UnmapOutcome.UNMAPPED else RED
    parts = [_headline(str(result.outcome), paint, f"{result.message}.", layout)]
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


def _conditions(
    conditions: Sequence[Condition], layout: Layout, *, lead: Condition | None = None
) -> str:
    """Return the conditions that are not met, with reasons; with details, those that are met too.

    Args:
        conditions: all of them.
        layout: the layout.
        lead: the condition whose first reason is in the headline.
    """
    met = [condition for condition in conditions if condition.met]
    lines = ["Conditions:"]
    for condition in conditions:
        if layout.details or not condition.met:
            lines += _condition(condition, layout, is_lead=condition is lead)
    if met and not layout.details:
        codes = ", ".join(condition.code for condition in met)
        all_or_count = "all" if len(met) == len(conditions) else str(len(met))
        lines.append(wrapped(f"    ok          {all_or_count} met: {codes}", layout, rest=_MARGIN))
    return "\n".join(lines)


def _condition(condition: Condition, layout: Layout, *, is_lead: bool) -> list[str]:
    """Return one condition, with the reasons against it that no other line has."""
    word, paint = _word(condition)
    shown = painted(f"{word:<10}", paint, layout)
    text = wrapped(
        f"{condition.requirement} ({condition.code})", layout, first=_MARGIN, rest=_MARGIN
    )
    lines = [f" {condition.number:>2} {shown}  {text[len(_MARGIN) :]}"]
    if condition.met or (condition.needs_node and not layout.details):
        return lines
    reasons = condition.observed[1:] if is_lead else condition.observed
    most = _MOST_REASONS if layout.details else _FEWER_REASONS
    texts = [*reasons[:most]]
    if len(reasons) > most:
        where = "-o json lists all" if layout.details else "-v"
        texts.append(f"and {len(reasons) - most} more: {where}")
    return lines + [
        wrapped(f"- {text}", layout, first=_MARGIN, rest=f"{_MARGIN}  ") for text in texts
    ]


def _word(condition: Condition) -> tuple[str, str]:
    if condition.met:
        return "ok", GREEN
    if condition.needs_node:
        return "needs node", YELLOW
    return ("not yet", YELLOW) if condition.pending else ("REFUSED", RED)


def _expected(plan: UnmapPlan, layout: Layout) -> list[str]:
    if not plan.expects:
        return []
    lines = [wrapped(line, layout, first="  - ", rest="    ") for line in plan.expects]
    return ["\n".join(["What must follow:", *lines])]
