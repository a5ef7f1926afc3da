"""The outputs of ``unmap``: the plan, the refusal, and the result of an executed plan."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from rbdagent import model
from rbdagent.report.json.output import Code, Object, Output
from rbdagent.report.json.volume import Image, image
from rbdagent.rules.entry import runbook

if TYPE_CHECKING:
    from collections.abc import Iterable


class Step(Object, frozen=True, kw_only=True):
    """One write to the node."""

    kind: model.StepKind
    subject: str


class Condition(Object, frozen=True, kw_only=True):
    """One condition of an unmap, with its evidence."""

    number: int
    code: Code
    requirement: str
    met: bool
    pending: bool
    needs_node: bool
    observed: tuple[str, ...]
    runbook: str


class Preventer(Object, frozen=True, kw_only=True):
    """The only object that prevents the unmap; without it, only time is missing."""

    kind: str
    namespace: str | None
    name: str
    pid: int | None


class UnmapOutput(Output, frozen=True, kw_only=True):
    """The mapping that an output of ``unmap`` is about."""

    node: str
    device: str | None
    persistent_volume: str | None
    image: Image | None
    client_id: int | None


class UnmapPlan(UnmapOutput, frozen=True, kw_only=True):
    """The plan if every condition is met: its steps, and the expected actions of others."""

    kind: Literal["UnmapPlan"] = "UnmapPlan"
    steps: tuple[Step, ...]
    conditions: tuple[Condition, ...]
    expects: tuple[str, ...]


class UnmapRefusal(UnmapOutput, frozen=True, kw_only=True):
    """The refusal if a condition is not met: no step is executed."""

    kind: Literal["UnmapRefusal"] = "UnmapRefusal"
    codes: tuple[Code, ...]
    prevented_by: Preventer | None
    conditions: tuple[Condition, ...]


class UnmapResult(UnmapOutput, frozen=True, kw_only=True):
    """The output of ``unmap --yes``, also after a plan that was executed in part."""

    kind: Literal["UnmapResult"] = "UnmapResult"
    outcome: model.UnmapOutcome
    message: str
    done: tuple[Step, ...]
    refusal: UnmapRefusal | None
    expects: tuple[str, ...]


def unmap_plan(plan: model.UnmapPlan) -> UnmapPlan:
    """Return the plan that ``unmap -o json`` prints."""
    return UnmapPlan(
        **_mapping_of(plan),
        steps=_steps(plan.steps),
        conditions=_conditions(plan.conditions),
        expects=plan.expects,
    )


def unmap_refusal(refusal: model.UnmapRefusal) -> UnmapRefusal:
    """Return the refusal that ``unmap -o json`` prints."""
    return UnmapRefusal(
        **_mapping_of(refusal),
        codes=refusal.codes,
        prevented_by=_prevented_by(refusal.prevented_by),
        conditions=_conditions(refusal.conditions),
    )


def unmap_result(result: model.UnmapResult) -> UnmapResult:
    """Return the result that ``unmap --yes -o json`` prints."""
    return UnmapResult(
        **_mapping_of(result.plan),
        outcome=result.outcome,
        message=result.message,
        done=_steps(result.done),
        refusal=unmap_refusal(result.refusal) if result.refusal else None,
        expects=result.plan.expects,
    )


def _mapping_of(decided: model.UnmapPlan | model.UnmapRefusal) -> dict[str, Any]:
    """Return the fields of `UnmapOutput`."""
    identity = decided.identity
    return {
        "node": decided.node,
        "device": identity.device if identity else None,
        "persistent_volume": decided.persistent_volume,
        "image": image(identity.image) if identity else None,
        "client_id": identity.client_id if identity else None,
    }


def _steps(steps: Iterable[model.Step]) -> tuple[Step, ...]:
    return tuple(Step(kind=step.kind, subject=step.subject) for step in steps)


def _conditions(conditions: Iterable[model.Condition]) -> tuple[Condition, ...]:
    return tuple(
        Condition(
            number=condition.number,
            code=condition.code,
            requirement=condition.requirement,
            met=condition.met,
            pending=condition.pending,
            needs_node=condition.needs_node,
            observed=condition.observed,
            runbook=runbook(condition.code),
        )
        for condition in conditions
    )


def _prevented_by(keeper: model.PreventingObject | None) -> Preventer | None:
    if keeper is None:
        return None
    return Preventer(
        kind=keeper.kind, namespace=keeper.namespace or None, name=keeper.name, pid=keeper.pid
    )
