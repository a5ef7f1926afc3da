"""The output of ``explain binding``: the state machine of a claim and its PV."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Final

from rbdagent.binding import EDGES, ON_NO_EDGE, RACES, RUNS, number_of
from rbdagent.catalog import CATALOG
from rbdagent.report.text.layout import Layout, wrapped

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rbdagent.binding import Edge, Race, State
    from rbdagent.codes import Code

_WIDEST: Final = 100
"""Longer lines are hard to read, whatever the terminal is."""
_NUMBER: Final = 4
"""The width of an edge's number, with the spaces around it."""
_LABEL: Final = 10
"""The width of a label such as ``reported``."""

_HEAD: Final = """\
How a claim and a PV are bound, released and reclaimed, and which finding reports which branch.

Each number is a branch of a function, in the order in which the function tests its conditions. \
A finding behind `reported` states that the branch was taken, or that the object waits in it; one \
behind `due` states that the step is next, and is not taken, or not yet. \
Kubernetes 1.36 and 1.37 have these branches."""


def binding_text(layout: Layout) -> str:
    """Return the state machine as text: its edges by function, its races, the other codes."""
    narrow = Layout(width=min(layout.width, _WIDEST), details=True)
    parts = [wrapped(text, narrow) for text in _HEAD.split("\n\n")]
    for function, edges in groupby(EDGES, key=lambda edge: edge.function):
        head = wrapped(f"{function}, {RUNS[function]}", narrow)
        parts += [head, *(_edge(edge, narrow) for edge in edges)]
    parts += [wrapped("Races: what decides the outcome before the branch is taken", narrow)]
    parts += [_race(number, race, narrow) for number, race in enumerate(RACES, start=1)]
    parts += [wrapped("Findings of these steps that no branch has", narrow)]
    parts += ["\n".join(_row(_named(code), why, narrow) for code, why in ON_NO_EDGE.items())]
    return "\n\n".join(parts) + "\n"


def _edge(edge: Edge, layout: Layout) -> str:
    rows = (
        ("if", edge.condition),
        ("writes", edge.writes),
        ("event", edge.event),
        ("reported", ", ".join(map(_named, edge.taken))),
        ("due", ", ".join(map(_named, edge.stuck))),
    )
    return "\n".join((_head(number_of(edge), _moves(edge), layout), *_labelled(rows, layout)))


def _head(number: int, text: str, layout: Layout) -> str:
    return wrapped(text, layout, first=f"{number:>{_NUMBER - 1}} ", rest=" " * _NUMBER)


def _moves(edge: Edge) -> str:
    """Return the change of the phase: ``claim Bound or Lost -> claim Lost``."""
    target = " and ".join(edge.states)
    return f"{_alternatives(edge.sources)} {f'-> {target}' if target else 'stays'}"


def _alternatives(states: Sequence[State]) -> str:
    """Return states of one object: ``PV Available, Bound or Released``."""
    first, *others = states
    words = [str(first), *(state.rpartition(" ")[2] for state in others)]
    *before, last = words
    return f"{', '.join(before)} or {last}" if before else last


def _race(number: int, race: Race, layout: Layout) -> str:
    rows = (
        ("then", race.outcome),
        ("prevent", race.prevention),
        ("reported", ", ".join(map(_named, race.codes))),
        ("source", race.source),
    )
    return "\n".join((_head(number, race.precondition, layout), *_labelled(rows, layout)))


def _labelled(rows: Sequence[tuple[str, str]], layout: Layout) -> Iterator[str]:
    for label, text in rows:
        if text:
            yield _row(label, text, layout)


def _row(label: str, text: str, layout: Layout) -> str:
    margin = " " * _NUMBER
    width = max(_LABEL, len(label) + 2)
    return wrapped(
        text, layout, first=f"{margin}{label:<{width}}", rest=margin + " " * min(width, _LABEL)
    )


def _named(code: Code) -> str:
    return f"{code} {CATALOG[code].name}"
