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
from tests.lab.errors import LabError
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
        return _serious(self._diagnose(target))

    def stuck(self) -> list[Json]:
        """Give the life of everything that is stuck."""
        items: list[Json] = self._diagnose("-A")["items"]
        return items

    def _diagnose(self, target: str) -> Json:
        told = self.rbdagent("diagnose", target, "--output=json")
        assert told.code in {0, 1, 3}, told.stderr
        answer: Json = json.loads(told.stdout)
        return answer


def _serious(life: Json) -> list[Json]:
    return [each for each in life["findings"] if each["severity"] != "info"]


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


def test_all_that_is_stuck_is_told_as_it_is_of_each_alone_and_nothing_else(world: World) -> None:
    names = tuple(each.name for each in world.makings.values())

    def alike() -> bool:
        """Compare both; what is young in one of them is told alike a little later."""
        alone = {
            each.target: _said_of(world.findings(each.target)) for each in world.makings.values()
        }
        items = {each["target"]["given"]: each for each in world.stuck()}
        told = {given: _said_of(_serious(each)) for given, each in items.items()}
        everything = {one for each in told.values() for one in each}
        wrong = [
            f"{target}: alone {sorted(said)}, among all {sorted(told.get(target, ()))}"
            for target, said in alone.items()
            # What is said of a claim is not said again of its PV.
            if said != told.get(target, said & everything)
        ]
        wrong += [
            f"{given}: {sorted(told[given])}, and is nobody's"
            for given, each in items.items()
            if given not in alone and not _name_of(each).startswith(names)
        ]
        if wrong:
            raise LabError("; ".join(wrong))
        return True

    wait_until(alike, timeout_s=_SAID_S, what="both to say the same", interval_s=2)


def _said_of(findings: list[Json]) -> frozenset[tuple[str, str]]:
    """Give codes and subjects; that nobody was seen to hold what nobody waits for is no trouble."""
    return frozenset((one["code"], one["subject"]) for one in findings if one["code"] != "RBD119")


def _name_of(item: Json) -> str:
    """Give the name of a claim, else of what it is."""
    target = item["target"]
    return str((target["claim"] or {}).get("name") or target["given"].rpartition("/")[2])


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
