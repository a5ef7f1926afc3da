"""Runs `rbdagent diagnose` on a node; with RBDAGENT_RECORD=1 it writes the snapshot to a file."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tests.lab.errors import LabError
from tests.lab.install import CHECKOUT, bin_dir, cache_dir
from tests.lab.processes import wait_until
from tests.support.lifecycle_states import CODES_ON_NODES, codes_of

if TYPE_CHECKING:
    from tests.e2e.scene import Scene

Json = dict[str, Any]
FIXTURES: Final = CHECKOUT / "tests" / "fixtures" / "life"
_RECOGNISED_S: Final = 300.0


class Asked(NamedTuple):
    """Holds the target of a diagnosis, and where it runs."""

    target: str
    node: str
    """The node that shows most of the state: a recording is made there."""
    there: bool = False
    """Whether the snapshot is taken on that node; otherwise outside any node, at no cost."""
    pause_s: float = 3.0
    """Pause between two snapshots."""


def findings(scene: Scene, asked: Asked) -> list[Json]:
    """Return the findings at warning or above, the blocking one first."""
    report = scene.diagnose(asked.node if asked.there else None, asked.target)
    return [finding for finding in report["findings"] if finding["severity"] != "info"]


def wait_recognised(scene: Scene, state: str, asked: Asked) -> list[Json]:
    """Wait until diagnose reports exactly the table's codes for a state; return the findings."""
    first, *others = CODES_ON_NODES[state]
    what = f"{state} to be {first}, {others}"
    found: list[Json] = []

    def recognised() -> bool:
        found[:] = findings(scene, asked)
        codes = [finding["code"] for finding in found]
        return codes[:1] == [first] and set(codes) == {first, *others}

    try:
        wait_until(recognised, timeout_s=_RECOGNISED_S, what=what, interval_s=asked.pause_s)
    except LabError as error:
        lines = "\n".join(f"{finding['code']}: {finding['message']}" for finding in found)
        raise LabError(f"{error}\n{lines}") from None
    if os.environ.get("RBDAGENT_RECORD"):
        _record(scene, state, asked)
    return found


def _record(scene: Scene, state: str, asked: Asked) -> None:
    """Write a snapshot of the node that leads to the same findings."""
    taken = scene.lab.rbdagent_warm(asked.node, "snapshot", asked.target)
    (FIXTURES / f"{state}.json").write_text(_anywhere(taken.stdout))
    assert set(codes_of(state)) == set(CODES_ON_NODES[state]), f"the recording of {state}"


def _anywhere(text: str) -> str:
    """Replace the paths of this machine's programs by the paths that a node has."""
    return text.replace(str(bin_dir()), "/usr/bin").replace(str(cache_dir()), "/opt")
