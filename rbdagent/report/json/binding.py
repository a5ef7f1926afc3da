"""The output of ``explain binding -o json``: the state machine of a claim and its PV."""

from __future__ import annotations

from typing import Literal

from rbdagent.binding import EDGES, ON_NO_EDGE, RACES, RUNS, TOPIC, State, edges_of, number_of
from rbdagent.report.json.output import Code, Object, Output


class Edge(Object, frozen=True, kw_only=True):
    """One branch; `target` is null if the phase stays, `other` is the phase of the other object."""

    number: int
    function: str
    sources: tuple[str, ...]
    target: str | None
    other: str | None
    condition: str
    writes: str
    event: str
    taken: tuple[Code, ...]
    stuck: tuple[Code, ...]


class Function(Object, frozen=True, kw_only=True):
    """What decides: a function of the PV controller, or another component."""

    name: str
    runs: str


class Race(Object, frozen=True, kw_only=True):
    """A precondition under which the order of two steps decides, and its outcome."""

    precondition: str
    outcome: str
    prevention: str
    source: str
    codes: tuple[Code, ...]


class Exempt(Object, frozen=True, kw_only=True):
    """A code of these steps that no edge has."""

    code: Code
    reason: str


class StateMachine(Output, frozen=True, kw_only=True):
    """The output of ``explain TOPIC``."""

    kind: Literal["StateMachine"] = "StateMachine"
    topic: str
    states: tuple[str, ...]
    functions: tuple[Function, ...]
    edges: tuple[Edge, ...]
    races: tuple[Race, ...]
    on_no_edge: tuple[Exempt, ...]


class Branch(Object, frozen=True, kw_only=True):
    """The edge that a finding rests on; `taken` is false if its step is due, and not taken."""

    number: int
    branch: str
    taken: bool


def binding_machine() -> StateMachine:
    """Return the state machine; edges are in their order, functions in that of the text."""
    return StateMachine(
        topic=TOPIC,
        states=tuple(State),
        functions=tuple(Function(name=name, runs=runs) for name, runs in RUNS.items()),
        edges=tuple(
            Edge(
                number=number_of(edge),
                function=edge.function,
                sources=edge.sources,
                target=edge.target,
                other=edge.other,
                condition=edge.condition,
                writes=edge.writes,
                event=edge.event,
                taken=edge.taken,
                stuck=edge.stuck,
            )
            for edge in EDGES
        ),
        races=tuple(
            Race(
                precondition=race.precondition,
                outcome=race.outcome,
                prevention=race.prevention,
                source=race.source,
                codes=race.codes,
            )
            for race in RACES
        ),
        on_no_edge=tuple(Exempt(code=code, reason=why) for code, why in ON_NO_EDGE.items()),
    )


def branches(code: str) -> tuple[Branch, ...]:
    """Return the edges that a code reports."""
    return tuple(
        Branch(number=number_of(edge), branch=edge.branch, taken=code in edge.taken)
        for edge in edges_of(code)
    )
