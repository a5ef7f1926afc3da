"""`rbdagent diagnose` on what real controllers have made, and the cures that it tells.

The snapshots of these states are tests/fixtures/life: RBDAGENT_RECORD=1 writes them anew.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final

import pytest

from tests.integration.states import HERE, LATE, NODE, ROOK, STATES, THERE, Making
from tests.lab.errors import LabError
from tests.lab.install import CHECKOUT, cache_dir
from tests.lab.lab import RBDAGENT_USER, running_lab
from tests.lab.played import PlayedNodes
from tests.lab.processes import wait_until
from tests.lab.workloads import DRIVER
from tests.unit.test_life import CURED, HEALS, SAYS, lines_in, ways

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.lab.api import Json
    from tests.lab.lab import Lab
    from tests.lab.laptop import Done

FIXTURES: Final = CHECKOUT / "tests" / "fixtures" / "life"
_SAID_S: Final = 100.0
"""What is silent is called so after a minute."""
_AT_ONCE: Final = 8
"""States that are made at one time: mostly somebody is waited for."""


class World:
    """A control plane and Ceph with every state made in it, and somebody who asks about them."""

    def __init__(self, lab: Lab, undo: ExitStack) -> None:
        self.lab = lab
        self._laptop = lab.control_plane.laptop("rbdagent")
        self.administrator = lab.control_plane.laptop()
        lab.control_plane.api.create("/api/v1/nodes", {"metadata": {"name": NODE}})
        self.nodes = undo.enter_context(PlayedNodes(lab, undo))
        for each in (HERE, THERE):
            self.nodes.add(each, drivers=(DRIVER, ROOK))
        threads = undo.enter_context(ThreadPoolExecutor(max_workers=_AT_ONCE))
        # What must be oldest when it is asked about is asked about last, and begun first.
        order = (LATE, *(each for each in reversed(STATES) if each is not LATE))
        self._made = {each.__name__: threads.submit(self._make, each, undo) for each in order}
        for name in self._made.keys() - {LATE.__name__}:
            self.making(name)
        self.nodes.open_all()

    def making(self, state: str) -> Making:
        """Give what made a state, once it is made."""
        return self._made[state].result()

    def _make(self, state: Callable[[Making], None], undo: ExitStack) -> Making:
        making = Making(self.lab, self.nodes, state.__name__.replace("_", "-"), undo)
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

    def is_complained_of(self, state: str) -> bool:
        """Tell whether a controller has warned of an object of a state.

        The PV controller does where it meets a claim before the PV that was made for it.
        """
        events = self.lab.control_plane.api.items("/api/v1/events")
        named = self.making(state).name
        return any(
            each["type"] == "Warning" and named in each["involvedObject"]["name"] for each in events
        )

    def _diagnose(self, target: str) -> Json:
        told = self.rbdagent("diagnose", target, "--output=json")
        assert told.code in {0, 1, 3}, told.stderr
        assert told.stdout, told.stderr
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
        yield World(lab, undo)


def test_all_that_is_stuck_is_told_as_it_is_of_each_alone_and_nothing_else(world: World) -> None:
    """Asked first: what each state says alone follows, and is the same."""
    makings = {each.__name__: world.making(each.__name__) for each in STATES}
    owners = {each.target: state for state, each in makings.items()}
    wanted = {
        state: SAYS[state] - {_UNTOLD}
        for state, each in makings.items()
        if each.while_asked is contextlib.nullcontext
    }
    used = "open_outside_and_used_here"

    def alike() -> bool:
        """Compare; what is young says so a little later."""
        # Whoever is at peace, and of whom nobody has complained, Ceph is not asked about.
        wanted[used] = SAYS[used] if world.is_complained_of(used) else frozenset()
        told = dict.fromkeys(wanted, frozenset[str]())
        for item in world.stuck():
            # One trouble is told by one name: of a pod, that may be its claim's.
            state = owners.get(item["target"]["given"]) or _owner(item["target"]["given"])
            told[state] = told.get(state, frozenset()) | _codes(item)
        if told != wanted:
            other = {each for each in told if told[each] != wanted.get(each)}
            said = "; ".join(
                f"{each}: alone {sorted(wanted.get(each, ()))}, among all {sorted(told[each])}"
                for each in sorted(other)
            )
            raise LabError(said)
        return True

    wait_until(alike, timeout_s=_SAID_S, what="all to say the same", interval_s=2)


_UNTOLD: Final = "RBD119"
"""That nobody was seen to hold what nobody waits for is no trouble among all."""


def _owner(given: str) -> str:
    """Name the state that an object was made for, by its own name; what is nobody's keeps it."""
    name = given.rpartition("/")[2].removeprefix("data-").replace("-", "_")
    return max((each for each in SAYS if name.startswith(each)), key=len, default=given)


def _codes(life: Json) -> frozenset[str]:
    return frozenset(each["code"] for each in _serious(life)) - {_UNTOLD}


@pytest.mark.parametrize("state", [each.__name__ for each in STATES])
def test_a_state_that_controllers_have_made_is_recognised(world: World, state: str) -> None:
    making = world.making(state)
    wanted = SAYS[state]
    with making.while_asked():
        wait_until(
            lambda: world.codes(making.target) == wanted,
            timeout_s=_SAID_S,
            what=f"{sorted(wanted)}",
            interval_s=2,
        )
        if os.environ.get("RBDAGENT_RECORD"):
            FIXTURES.mkdir(exist_ok=True)
            snapshot = json.loads(world.rbdagent("snapshot", making.target).stdout)
            snapshot["kubernetes"] = _cut(snapshot["kubernetes"], making.name)
            (FIXTURES / f"{state}.json").write_text(f"{json.dumps(snapshot, indent=1)}\n")


def _cut(kube: Json, own: str) -> Json:
    """Leave out what belongs to other states: no cluster has all of them at one time."""
    names = sorted((each.__name__.replace("_", "-") for each in STATES), key=len, reverse=True)

    def is_others(found: Json) -> bool:
        for name in _NAMED_BY & found.keys():
            value = found[name] or ""
            owner = str(value["name"] if isinstance(value, dict) else value).removeprefix("data-")
            owner = next((each for each in names if owner.startswith(each)), own)
            if owner != own:
                return True
        return False

    return {
        key: [each for each in value if not (isinstance(each, dict) and is_others(each))]
        if isinstance(value, list)
        else value
        for key, value in kube.items()
    }


_NAMED_BY: Final = {"name", "ref", "claim", "persistentVolume"}
"""Fields of an object in a snapshot that tell whose it is."""


@pytest.mark.parametrize("state", CURED)
def test_the_cure_that_is_told_ends_the_state(world: World, state: str) -> None:
    """Where there are two ways it is the second: the first is typed on real nodes."""
    making = world.making(state)
    told = world.findings(making.target)
    code = told[0]["code"]
    assert code in SAYS[state]
    first, other = ways(lines_in(told[0]["commands"]))
    commands = other or first
    assert commands, told[0]
    for each in commands:
        world.administrator.done("bash", "-ec", each)
    making.afterwards()
    wait_until(
        lambda: code not in world.codes(making.target),
        timeout_s=60,
        what=f"{code} to be over after {commands}",
        interval_s=1,
    )


@pytest.mark.parametrize("state", HEALS)
def test_a_state_that_heals_by_itself_does_once_its_cause_is_gone(world: World, state: str) -> None:
    making = world.making(state)
    told = world.findings(making.target)[0]
    assert told["heals"]["by"], told
    assert making.repair is not None
    making.repair()
    wait_until(
        lambda: told["code"] not in world.codes(making.target),
        timeout_s=told["heals"]["withinSeconds"] or _SAID_S,
        what=f"{told['code']} to be over",
        interval_s=1,
    )
