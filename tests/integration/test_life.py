"""`rbdagent diagnose` on what real controllers have made, and the cures that it tells.

The snapshots of these states are tests/fixtures/life: RBDAGENT_RECORD=1 writes them anew.
"""

from __future__ import annotations

import json
import os
import re
import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final

import pytest

from tests.integration.states import NODE, STATES, Making
from tests.lab.install import CHECKOUT, cache_dir
from tests.lab.lab import RBDAGENT_USER, running_lab
from tests.lab.processes import wait_until
from tests.unit.test_life import CURED, SAYS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.lab.api import Json
    from tests.lab.lab import Lab
    from tests.lab.laptop import Done

FIXTURES: Final = CHECKOUT / "tests" / "fixtures" / "life"
_SAID_S: Final = 100.0
"""What is silent is called so after a minute."""


class World:
    """A control plane and Ceph with every state made in it, and somebody who asks about them."""

    def __init__(self, lab: Lab, undo: ExitStack) -> None:
        self.lab = lab
        self._laptop = lab.control_plane.laptop("rbdagent")
        self.administrator = lab.control_plane.laptop()
        self.makings = {each.__name__: self._make(each, undo) for each in STATES}

    def _make(self, state: Callable[[Making], None], undo: ExitStack) -> Making:
        making = Making(self.lab, state.__name__.replace("_", "-"), undo)
        state(making)
        return making

    def rbdagent(self, verb: str, target: str, *flags: str) -> Done:
        """Run a verb as somebody who looks from no node."""
        ceph = self.lab.ceph
        keyring = ceph.conf.parent / f"ceph.client.{RBDAGENT_USER}.keyring"
        return self._laptop.run(
            *("env", f"PYTHONPATH={CHECKOUT}", sys.executable, "-m", "rbdagent", verb, target),
            # Its /sys is this machine's: nothing is mapped here.
            *(
                f"--node-name={NODE}",
                f"--ceph-conf={ceph.conf}",
                f"--ceph-keyring={keyring}",
                *flags,
            ),
        )

    def codes(self, target: str) -> frozenset[str]:
        """Give the codes at warning or above."""
        return frozenset(each["code"] for each in self.findings(target))

    def findings(self, target: str) -> list[Json]:
        """Give the findings at warning or above, what blocks first first."""
        told = self.rbdagent("diagnose", target, "--output=json")
        assert told.code in {0, 1, 3}, told.stderr
        return [each for each in json.loads(told.stdout)["findings"] if each["severity"] != "info"]


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    with (
        running_lab(cache_dir() / f"test-life-{os.getpid()}", nodes=()) as lab,
        ExitStack() as undo,
    ):
        lab.control_plane.api.create("/api/v1/nodes", {"metadata": {"name": NODE}})
        yield World(lab, undo)


@pytest.mark.parametrize("state", [each.__name__ for each in STATES])
def test_a_state_that_controllers_have_made_is_recognised(world: World, state: str) -> None:
    target = world.makings[state].target
    wanted = SAYS[state]
    seen: list[frozenset[str]] = []

    def said() -> bool:
        seen.append(world.codes(target))
        return seen[-1] == wanted

    wait_until(said, timeout_s=_SAID_S, what=f"{sorted(wanted)}", interval_s=2)
    if os.environ.get("RBDAGENT_RECORD"):
        FIXTURES.mkdir(exist_ok=True)
        snapshot = world.rbdagent("snapshot", target)
        (FIXTURES / f"{state}.json").write_text(snapshot.stdout)


# The commands of a remedy that change something, as they are told.
_CHANGES: Final = re.compile(r"kubectl (-n \S+ )?(patch|annotate|label|delete|taint)\b")


@pytest.mark.parametrize("state", CURED)
def test_the_cure_that_is_told_ends_the_state(world: World, state: str) -> None:
    making = world.makings[state]
    told = world.findings(making.target)
    code = told[0]["code"]
    assert code in SAYS[state]
    commands = [each for each in told[0]["commands"] if _CHANGES.match(each)]
    assert commands, told[0]
    for each in commands:
        world.administrator.done("bash", "-ec", each)
    wait_until(
        lambda: code not in world.codes(making.target),
        timeout_s=60,
        what=f"{code} to be over after {commands}",
        interval_s=1,
    )
