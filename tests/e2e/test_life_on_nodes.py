"""`rbdagent diagnose` on what real kubelets and krbd have come to, and the cures that it tells.

Several states are made at a time, asked about, ended and cleared. Their snapshots are
tests/fixtures/life: RBDAGENT_RECORD=1 writes them anew.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.e2e.life import findings, wait_recognised
from tests.e2e.node_states import STATES
from tests.e2e.scene import Scene
from tests.lab.install import venv_python
from tests.lab.laptop import Laptop
from tests.lab.processes import wait_until
from tests.unit.test_life import CURED_ON_NODES, lines_in, ways

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.e2e.life import Asked
    from tests.lab.lab import Lab

Json = dict[str, Any]
_AT_ONCE: Final = 4
"""Others play on these nodes meanwhile."""
_OVER_S: Final = 300.0
"""kubelet's back-off is up to 2m2s."""


class World:
    """Every state, each made in a scene of its own, some at a time, and somebody who types."""

    def __init__(self, lab: Lab, home: Path) -> None:
        self._lab = lab
        self._laptop = Laptop(
            lab.netns, lab.control_plane.kubeconfig("admin"), home, ceph_conf=lab.ceph.conf
        )
        self._recognised: dict[str, Future[None]] = {each.__name__: Future() for each in STATES}
        self._threads = ThreadPoolExecutor(_AT_ONCE)
        self._lives = {each.__name__: self._threads.submit(self._play, each) for each in STATES}

    def close(self) -> None:
        """Wait until every scene is cleared."""
        self._threads.shutdown()

    def wait_recognised(self, state: str) -> None:
        """Wait until a state was told of as it should be."""
        self._recognised[state].result()

    def wait_over(self, state: str) -> None:
        """Wait until a state was ended by what was told."""
        self._lives[state].result()

    def _play(self, make: Callable[[Scene], Asked]) -> None:
        state = make.__name__
        scene, recognised = Scene(self._lab, state), self._recognised[state]
        try:
            asked = make(scene)
            told = wait_recognised(scene, state, asked)
            recognised.set_result(None)
            if state in CURED_ON_NODES:
                self._end(scene, asked, told[0])
        except BaseException as error:
            if not recognised.done():
                recognised.set_exception(error)
            raise
        finally:
            scene.clear()

    def _end(self, scene: Scene, asked: Asked, told: Json) -> None:
        """Type what a finding tells to type, and wait until nothing more is told."""
        commands, _ = ways(lines_in(told["commands"]))
        assert commands, told
        for each in commands:
            self._type(each)
        wait_until(
            lambda: not findings(scene, asked),
            timeout_s=_OVER_S,
            what=f"{told['code']} to be over after {commands}",
            interval_s=asked.pause_s,
        )

    def _type(self, command: str) -> None:
        told, _, node = command.partition("  # on ")
        if not node:
            self._laptop.done("bash", "-ec", told)
            return
        # Whoever set this has minutes less to wait.
        settings = f"PATH={venv_python().parent}:$PATH RBDAGENT_GRACE_PERIOD=5s"
        script = f"export {settings} RBDAGENT_STATE_DIR=/run/life-state; {told}"
        self._lab.nodes[node].run(["/bin/bash", "-ec", script], timeout_s=_OVER_S)


@pytest.fixture(scope="module")
def world(lab: Lab, shared_turn: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    world = World(lab, tmp_path_factory.mktemp("laptop"))
    yield world
    world.close()


@pytest.mark.parametrize("state", [each.__name__ for each in STATES])
def test_a_state_that_a_node_has_come_to_is_recognised(world: World, state: str) -> None:
    world.wait_recognised(state)


@pytest.mark.parametrize("state", CURED_ON_NODES)
def test_what_is_told_first_ends_the_state(world: World, state: str) -> None:
    world.wait_over(state)
