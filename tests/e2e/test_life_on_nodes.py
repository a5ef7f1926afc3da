"""`rbdagent diagnose` on states of real kubelets and krbd, and the remedies that it prints.

Several states at a time are made, diagnosed, ended and cleared. Their snapshots are in
tests/fixtures/life: RBDAGENT_RECORD=1 writes them again.
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
from tests.support.lifecycle_states import FIXED_ON_NODES, lines_in, ways

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.e2e.life import Asked
    from tests.lab.lab import Lab

Json = dict[str, Any]
_AT_ONCE: Final = 4
"""Other tests run on these nodes at the same time."""
_OVER_S: Final = 300.0
"""kubelet's back-off is up to 2m2s."""


class World:
    """Makes every state in a separate scene, some at a time, and runs commands as a user."""

    def __init__(self, lab: Lab, home: Path) -> None:
        self._lab = lab
        self._laptop = Laptop(
            lab.netns, lab.control_plane.kubeconfig("admin"), home, ceph_conf=lab.ceph.conf
        )
        self._recognised: dict[str, Future[None]] = {make.__name__: Future() for make in STATES}
        self._threads = ThreadPoolExecutor(_AT_ONCE)
        self._lives = {make.__name__: self._threads.submit(self._play, make) for make in STATES}

    def close(self) -> None:
        """Wait until every scene is cleared."""
        self._threads.shutdown()

    def wait_recognised(self, state: str) -> None:
        """Wait until diagnose has reported a state as the table expects."""
        self._recognised[state].result()

    def wait_over(self, state: str) -> None:
        """Wait until the printed remedy has ended a state."""
        self._lives[state].result()

    def _play(self, make: Callable[[Scene], Asked]) -> None:
        state = make.__name__
        scene, recognised = Scene(self._lab, state), self._recognised[state]
        try:
            asked = make(scene)
            found = wait_recognised(scene, state, asked)
            recognised.set_result(None)
            if state in FIXED_ON_NODES:
                self._end(scene, asked, found[0])
        except BaseException as error:
            if not recognised.done():
                recognised.set_exception(error)
            raise
        finally:
            scene.clear()

    def _end(self, scene: Scene, asked: Asked, finding: Json) -> None:
        """Run the commands of a finding, and wait until diagnose reports nothing more."""
        commands, _ = ways(lines_in(finding["commands"]))
        assert commands, finding
        for command in commands:
            self._type(command)
        wait_until(
            lambda: not findings(scene, asked),
            timeout_s=_OVER_S,
            what=f"{finding['code']} to be over after {commands}",
            interval_s=asked.pause_s,
        )

    def _type(self, command: str) -> None:
        text, _, node = command.partition("  # on ")
        if not node:
            self._laptop.done("bash", "-ec", text)
            return
        # Shorter than the default, which is minutes.
        settings = f"PATH={venv_python().parent}:$PATH RBDAGENT_GRACE_PERIOD=5s"
        script = f"export {settings} RBDAGENT_STATE_DIR=/run/life-state; {text}"
        self._lab.nodes[node].run(["/bin/bash", "-ec", script], timeout_s=_OVER_S)


@pytest.fixture(scope="module")
def world(lab: Lab, shared_turn: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    world = World(lab, tmp_path_factory.mktemp("laptop"))
    yield world
    world.close()


@pytest.mark.parametrize("state", [make.__name__ for make in STATES])
def test_state_of_a_node_is_recognised(world: World, state: str) -> None:
    world.wait_recognised(state)


@pytest.mark.parametrize("state", FIXED_ON_NODES)
def test_first_finding_has_a_remedy_that_ends_the_state(world: World, state: str) -> None:
    world.wait_over(state)
