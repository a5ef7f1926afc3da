"""docs/binding.svg and the text in docs/binding.md: the state machine in rbdagent/binding.py.

Each lane of the picture has the states of one object. Arrows to the right are above the states,
arrows to the left are below them; the further an arrow leads, the farther it is from the states.
So no two labels are at the same place.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from rbdagent.binding import EDGES, State, number_of
from tests.support.cli_runner import ROOT, process

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rbdagent.binding import Edge

PICTURE: Final = ROOT / "docs" / "binding.svg"
DOCUMENT: Final = ROOT / "docs" / "binding.md"

_QUOTED: Final = re.compile(
    r"(?<=```console\n\$ rbdagent explain binding\n).*?(?=^```$)", re.DOTALL | re.MULTILINE
)
_COLUMNS: Final = 100

_STEP: Final = 190
"""Between the middles of two boxes."""
_BOX: Final = 150
_LEVEL: Final = 58
"""Between two arrows over one another: three lines of a label, and a gap."""
_LINE: Final = 13
_MARGIN: Final = 16
_CODES_IN_LINE: Final = 3

_SVG: Final = """\
<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" \
viewBox="0 0 {width} {height}" role="img">
<title>The states of a claim and of a PV, the branches between them, and the findings</title>
<style>
text {{ font: 12px system-ui, sans-serif; fill: #1f2328; text-anchor: middle; \
stroke: #ffffff; stroke-width: 4px; paint-order: stroke }}
.state {{ font-weight: 600; font-size: 13px }}
.inside text {{ stroke: none }}
.edge {{ font-weight: 600 }}
.code, .note {{ font-size: 11px; fill: #59636e }}
.note {{ text-anchor: start }}
.back {{ fill: #ffffff }}
.box {{ fill: #ddf4ff; stroke: #0969da }}
.arrow {{ fill: none; stroke: #59636e; marker-end: url(#head) }}
#head path {{ fill: #59636e }}
</style>
<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" \
orient="auto"><path d="M0 0 8 4 0 8z"/></marker></defs>
<rect class="back" width="{width}" height="{height}" rx="8"/>
{content}
</svg>
"""


class _Arrow(NamedTuple):
    """All edges from one state to another one, as places in a lane."""

    begin: int
    end: int
    edges: tuple[Edge, ...]

    @property
    def length(self) -> int:
        return abs(self.end - self.begin)


class _Lane(NamedTuple):
    """Where the boxes of a lane begin and end."""

    top: int
    bottom: int


def drawn_today() -> str:
    """Return the picture of the state machine."""
    arcs: list[str] = []
    texts: list[str] = []
    top = _MARGIN
    for states in _lanes():
        arrows = _arrows(states)
        above, below = (max(map(_height, side)) for side in _sides(arrows))
        tall = _LINE * (1 + max(len(_inside(state)) for state in states))
        lane = _Lane(top + above, top + above + tall)
        arcs += [_arc(arrow, lane) for arrow in arrows]
        texts += [line for arrow in arrows for line in _texts(arrow, lane)]
        texts += [line for place, state in enumerate(states) for line in _box(place, state, lane)]
        top = lane.bottom + below
    texts.append(
        f'<text class="note" x="{_MARGIN}" y="{top + _LINE}">Numbers: the branches of `rbdagent '
        "explain binding`. In a state: the branches that stay in it, and their findings.</text>"
    )
    width = 2 * _MARGIN + (max(map(len, _lanes())) - 1) * _STEP + _BOX
    # A label may cover an arc: the labels come last.
    content = "\n".join((*arcs, *texts))
    return _SVG.format(width=width, height=top + _MARGIN + _LINE, content=content)


def _sides(arrows: list[_Arrow]) -> tuple[list[_Arrow], list[_Arrow]]:
    """Return the arrows above the states, and those below them."""
    above = [arrow for arrow in arrows if arrow.end > arrow.begin]
    return above, [arrow for arrow in arrows if arrow not in above]


def _height(arrow: _Arrow) -> int:
    """Return the distance of the farthest line of a label from the box."""
    return _distance(arrow) + len(_label(arrow.edges)) * _LINE + _LINE


def _distance(arrow: _Arrow) -> int:
    """Return the distance of the highest point of an arc from the box: that of a cubic curve."""
    return round(arrow.length * _LEVEL * 0.75)


def _lanes() -> tuple[list[State], list[State]]:
    claim = [state for state in State if state.startswith("claim")]
    return claim, [state for state in State if state not in claim]


def _moves() -> Iterator[tuple[State, State, Edge]]:
    for edge in EDGES:
        for state in edge.sources if edge.target is not None else ():
            yield state, edge.target or state, edge
        if edge.other is not None:
            yield State.PV_AVAILABLE, edge.other, edge


def _arrows(states: list[State]) -> list[_Arrow]:
    found: dict[tuple[int, int], list[Edge]] = {}
    for begin, end, edge in _moves():
        if begin in states and begin != end:
            found.setdefault((states.index(begin), states.index(end)), []).append(edge)
    return [_Arrow(begin, end, tuple(edges)) for (begin, end), edges in sorted(found.items())]


def _ends(arrow: _Arrow) -> tuple[int, int, int]:
    """Return on which side an arrow is, and where it begins and ends: no two heads meet."""
    side = -1 if arrow.end > arrow.begin else 1
    shift = side * (6 + 6 * arrow.length)
    return side, _x(arrow.begin) - shift, _x(arrow.end) + shift


def _arc(arrow: _Arrow, lane: _Lane) -> str:
    side, begin, end = _ends(arrow)
    near = lane.top if side < 0 else lane.bottom
    far = near + side * arrow.length * _LEVEL
    return f'<path class="arrow" d="M{begin} {near} C{begin} {far} {end} {far} {end} {near}"/>'


def _texts(arrow: _Arrow, lane: _Lane) -> Iterator[str]:
    """Yield the label beyond the highest point of an arc: the numbers, then the codes."""
    side, begin, end = _ends(arrow)
    lines = _label(arrow.edges)
    first = (
        lane.top - _distance(arrow) - 4 - (len(lines) - 1) * _LINE
        if side < 0
        else lane.bottom + _distance(arrow) + _LINE
    )
    yield from _lines(lines, (begin + end) // 2, first)


def _lines(lines: list[tuple[str, str]], x: int, first: int) -> Iterator[str]:
    for row, (kind, text) in enumerate(lines):
        yield f'<text class="{kind}" x="{x}" y="{first + row * _LINE}">{text}</text>'


def _label(edges: tuple[Edge, ...]) -> list[tuple[str, str]]:
    codes = list(dict.fromkeys(code for edge in edges for code in (*edge.taken, *edge.stuck)))
    rows = [codes[at : at + _CODES_IN_LINE] for at in range(0, len(codes), _CODES_IN_LINE)]
    return [("edge", _numbers(edges)), *(("code", " ".join(row)) for row in rows)]


def _numbers(edges: tuple[Edge, ...]) -> str:
    """Return the numbers of edges: ``1 2 5-9``."""
    runs: list[list[int]] = []
    for number in sorted(map(number_of, edges)):
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return " ".join(map(_run, runs))


def _run(numbers: list[int]) -> str:
    first, *others = numbers
    return f"{first}-{others[-1]}" if len(others) > 1 else " ".join(map(str, numbers))


def _inside(state: State) -> list[tuple[str, str]]:
    """Return the lines in the box of a state: its name, and the edges that stay in it."""
    waiting = tuple(edge for edge in EDGES if not edge.states and state in edge.sources)
    return [("state", str(state)), *(_label(waiting) if waiting else ())]


def _box(place: int, state: State, lane: _Lane) -> Iterator[str]:
    x, tall = _x(place), lane.bottom - lane.top
    yield (
        f'<rect class="box" x="{x - _BOX // 2}" y="{lane.top}" width="{_BOX}" '
        f'height="{tall}" rx="6"/>'
    )
    lines = _inside(state)
    first = lane.top + (tall - (len(lines) - 1) * _LINE) // 2 + 4
    yield '<g class="inside">' + "".join(_lines(lines, x, first)) + "</g>"


def _x(place: int) -> int:
    return _MARGIN + _BOX // 2 + place * _STEP


def with_current_text(text: str) -> str:
    """Return the document with what ``explain binding`` prints."""
    done = process("explain", "binding", columns=_COLUMNS)
    return _QUOTED.sub(lambda _: done.stdout, text)


def write() -> None:
    """Write the picture, and the text in the document."""
    PICTURE.write_text(drawn_today())
    DOCUMENT.write_text(with_current_text(DOCUMENT.read_text()))
