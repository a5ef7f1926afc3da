"""Asks `rbdagent diagnose` on a node, and keeps what it saw: RBDAGENT_RECORD=1 writes the file."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tests.lab.errors import LabError
from tests.lab.install import CHECKOUT, bin_dir, cache_dir
from tests.lab.processes import wait_until
from tests.unit.test_life import SAYS_ON_NODES, told_of

if TYPE_CHECKING:
    from tests.e2e.scene import Scene

Json = dict[str, Any]
FIXTURES: Final = CHECKOUT / "tests" / "fixtures" / "life"
_SAID_S: Final = 300.0


class Asked(NamedTuple):
    """What is asked about, and where."""

    target: str
    node: str
    """Which has most to say of it: a recording is made there."""
    there: bool = False
    """It takes a look from that node; else somebody asks from no node, which costs none."""
    pause_s: float = 3.0
    """Between two looks."""


def findings(scene: Scene, asked: Asked) -> list[Json]:
    """Give the findings at warning or above, what blocks first first."""
    told = scene.diagnose(asked.node if asked.there else None, asked.target)
    return [each for each in told["findings"] if each["severity"] != "info"]


def wait_recognised(scene: Scene, state: str, asked: Asked) -> list[Json]:
    """Wait until that is told which the table has for a state, and nothing else; give it."""
    first, *others = SAYS_ON_NODES[state]
    what = f"{state} to be {first}, {others}"
    told: list[Json] = []

    def said() -> bool:
        told[:] = findings(scene, asked)
        codes = [each["code"] for each in told]
        return codes[:1] == [first] and set(codes) == {first, *others}

    try:
        wait_until(said, timeout_s=_SAID_S, what=what, interval_s=asked.pause_s)
    except LabError as error:
        lines = "\n".join(f"{each['code']}: {each['message']}" for each in told)
        raise LabError(f"{error}\n{lines}") from None
    if os.environ.get("RBDAGENT_RECORD"):
        _record(scene, state, asked)
    return told


def _record(scene: Scene, state: str, asked: Asked) -> None:
    """Write a look from the node that tells the same."""
    taken = scene.lab.rbdagent_warm(asked.node, "snapshot", asked.target)
    (FIXTURES / f"{state}.json").write_text(_anywhere(taken.stdout))
    assert set(told_of(state)) == set(SAYS_ON_NODES[state]), f"the recording of {state}"


def _anywhere(text: str) -> str:
    """Have programs be where a node has them, and not where this machine has."""
    return text.replace(str(bin_dir()), "/usr/bin").replace(str(cache_dir()), "/opt")
