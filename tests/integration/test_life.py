"""`rbdagent diagnose` on states that real controllers have made, and the hints that it prints.

The snapshots of these states are tests/fixtures/life: RBDAGENT_RECORD=1 writes them again.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Final

import pytest

from tests.integration.states import HERE, LATE, NODE, ROOK, STATES, THERE, Making
from tests.lab.errors import LabError
from tests.lab.install import CHECKOUT, cache_dir
from tests.lab.lab import RBDAGENT_USER, running_lab
from tests.lab.played import PlayedNodes
from tests.lab.processes import wait_until
from tests.lab.workloads import DRIVER
from tests.support.lifecycle_states import (
    CODES,
    FIXED,
    FROM_OUTSIDE,
    PROBABLE,
    RECOVERY,
    lines_in,
    ways,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.lab.api import Json
    from tests.lab.lab import Lab
    from tests.lab.laptop import Done

FIXTURES: Final = CHECKOUT / "tests" / "fixtures" / "life"
_SAID_S: Final = 200.0
"""Seconds until a state is reported: an unmount may take three minutes."""
_AT_ONCE: Final = 8
"""Number of states that are made at the same time: most of the time is spent on waiting."""


class World:
    """A control plane and a Ceph cluster with all states made, and a client that queries them."""

    def __init__(self, lab: Lab, undo: ExitStack) -> None:
        self.lab = lab
        self._laptop = lab.control_plane.laptop("rbdagent")
        self.administrator = lab.control_plane.laptop()
        lab.control_plane.api.create("/api/v1/nodes", {"metadata": {"name": NODE}})
        self.nodes = undo.enter_context(PlayedNodes(lab, undo))
        for namespace in (HERE, THERE):
            self.nodes.add(namespace, drivers=(DRIVER, ROOK))
        threads = undo.enter_context(ThreadPoolExecutor(max_workers=_AT_ONCE))
        # The state that must be the oldest at its query is made first and queried last.
        order = (LATE, *(make for make in reversed(STATES) if make is not LATE))
        self._made = {make.__name__: threads.submit(self._make, make, undo) for make in order}
        for name in self._made.keys() - {LATE.__name__}:
            self.making(name)
        self.nodes.open_all()

    def making(self, state: str) -> Making:
        """Wait until a state is made; return its builder."""
        return self._made[state].result()

    def _make(self, state: Callable[[Making], None], undo: ExitStack) -> Making:
        making = Making(self.lab, self.nodes, state.__name__.replace("_", "-"), undo)
        state(making)
        return making

    def rbdagent(self, verb: str, target: str, *flags: str, node: str = NODE) -> Done:
        """Run a verb on a node, by default on one that has no volume."""
        ceph = self.lab.ceph
        keyring = ceph.conf.parent / f"ceph.client.{RBDAGENT_USER}.keyring"
        return self._laptop.run(
            *("env", f"PYTHONPATH={CHECKOUT}", sys.executable, "-m", "rbdagent", verb, target),
            # It reads /sys of this machine, on which nothing is mapped.
            *(
                f"--node-name={node}",
                f"--ceph-conf={ceph.conf}",
                f"--ceph-keyring={keyring}",
                *flags,
            ),
        )

    def codes(self, target: str) -> frozenset[str]:
        """Return the codes at warning or above."""
        return frozenset(finding["code"] for finding in self.findings(target))

    def findings(self, target: str) -> list[Json]:
        """Return the findings at warning or above; the first one blocks first."""
        return _serious(self._diagnose(target))

    def holders(self, target: str, *, node: str = NODE) -> list[Json]:
        """Return the holders of a volume, as a node shows them."""
        reported = self.rbdagent("who-holds", target, "--output=json", node=node)
        assert reported.stdout, reported.stderr
        found: list[Json] = json.loads(reported.stdout)["holders"]
        return found

    def stuck(self) -> list[Json]:
        """Return the lifecycle of every object that is stuck."""
        items: list[Json] = self._diagnose("-A")["items"]
        return items

    def is_complained_of(self, state: str) -> bool:
        """Return whether an object of a state has a warning event.

        The PV controller writes one if it sees a claim before the PV that was made for it.
        """
        events = self.lab.control_plane.api.items("/api/v1/events")
        named = self.making(state).name
        return any(
            event["type"] == "Warning" and named in event["involvedObject"]["name"]
            for event in events
        )

    def _diagnose(self, target: str) -> Json:
        reported = self.rbdagent("diagnose", target, "--output=json")
        assert reported.code in {0, 1, 3}, reported.stderr
        assert reported.stdout, reported.stderr
        answer: Json = json.loads(reported.stdout)
        return answer


def _serious(life: Json) -> list[Json]:
    return [finding for finding in life["findings"] if finding["severity"] != "info"]


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    state = cache_dir() / f"test-life-{os.getpid()}"
    with running_lab(state, nodes=()) as lab, ExitStack() as undo:
        yield World(lab, undo)
    # The lab itself keeps its logs.
    shutil.rmtree(state)


def test_all_stuck_objects_have_the_findings_of_single_queries(world: World) -> None:
    """This test runs first; the tests of the single states run after it."""
    makings = {make.__name__: world.making(make.__name__) for make in STATES}
    owners = {making.target: state for state, making in makings.items()}
    wanted = {
        state: CODES[state] - {_UNREPORTED}
        for state, making in makings.items()
        if making.while_asked is contextlib.nullcontext
    }
    used, late = "open_outside_and_used_here", "unmount_fails_before_the_pod_is_gone"

    def alike() -> bool:
        """Return True if the findings match; new states are reported a little later."""
        # A healthy object without warning events needs no query to Ceph.
        wanted[used] = CODES[used] if world.is_complained_of(used) else frozenset()
        # Made only a moment ago, it is no problem yet.
        wanted[late] = frozenset(world.codes(makings[late].target))
        reported = dict.fromkeys(wanted, frozenset[str]())
        for item in world.stuck():
            # A problem is reported under one name: for a pod, that may be the name of its claim.
            target = item["target"]["argument"]
            state = owners.get(target) or _owner(target)
            reported[state] = reported.get(state, frozenset()) | _codes(item)
        if reported != wanted:
            other = {state for state in reported if reported[state] != wanted.get(state)}
            said = "; ".join(
                f"{state}: alone {sorted(wanted.get(state, ()))}, "
                f"among all {sorted(reported[state])}"
                for state in sorted(other)
            )
            raise LabError(said)
        return True

    wait_until(
        alike,
        timeout_s=_SAID_S,
        what="diagnose -A to report the same as each diagnose",
        interval_s=2,
    )


_UNREPORTED: Final = "RBD119"
"""The list of all objects omits it: no holder was observed and no pod waits for the volume."""


def _owner(given: str) -> str:
    """Return the state that an object was made for, by its name; ``given`` if there is none."""
    name = given.rpartition("/")[2].removeprefix("data-").replace("-", "_")
    return max((state for state in CODES if name.startswith(state)), key=len, default=given)


def _codes(life: Json) -> frozenset[str]:
    return frozenset(finding["code"] for finding in _serious(life)) - {_UNREPORTED}


@pytest.mark.parametrize("state", [make.__name__ for make in STATES])
def test_a_state_that_controllers_have_made_is_recognised(world: World, state: str) -> None:
    making = world.making(state)
    wanted = CODES[state]
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
    """Remove the objects of other states: a real cluster never has all of them at the same time."""
    names = sorted((make.__name__.replace("_", "-") for make in STATES), key=len, reverse=True)

    def is_others(found: Json) -> bool:
        for name in _NAMED_BY & found.keys():
            value = found[name] or ""
            owner = str(value["name"] if isinstance(value, dict) else value).removeprefix("data-")
            owner = next((candidate for candidate in names if owner.startswith(candidate)), own)
            if owner != own:
                return True
        return False

    return {
        key: [item for item in value if not (isinstance(item, dict) and is_others(item))]
        if isinstance(value, list)
        else value
        for key, value in kube.items()
    }


_NAMED_BY: Final = {"name", "ref", "claim", "persistentVolume"}
"""Fields of an object in a snapshot that show which state it belongs to."""


@pytest.mark.parametrize("state", FIXED)
def test_the_printed_hint_ends_the_state(world: World, state: str) -> None:
    """If the hint has two alternatives, run the second: the first needs real nodes."""
    making = world.making(state)
    reported = world.findings(making.target)
    code = reported[0]["code"]
    assert code in CODES[state]
    first, other = ways(lines_in(reported[0]["commands"]))
    commands = other or first
    assert commands, reported[0]
    for command in commands:
        world.administrator.done("bash", "-ec", command)
    making.afterwards()
    wait_until(
        lambda: code not in world.codes(making.target),
        timeout_s=60,
        what=f"{code} to be over after {commands}",
        interval_s=1,
    )


@pytest.mark.parametrize("state", RECOVERY)
def test_a_state_recovers_after_its_cause_is_gone(world: World, state: str) -> None:
    making = world.making(state)
    reported = world.findings(making.target)[0]
    assert reported["recovery"]["actor"], reported
    assert making.repair is not None
    making.repair()
    wait_until(
        lambda: reported["code"] not in world.codes(making.target),
        timeout_s=reported["recovery"]["withinSeconds"] or _SAID_S,
        what=f"{reported['code']} to be over",
        interval_s=1,
    )


@pytest.mark.parametrize("state", PROBABLE)
def test_a_client_is_named_with_its_probable_node_until_it_ends(world: World, state: str) -> None:
    making = world.making(state)

    def is_named(node: str, reason: str) -> bool:
        holders = world.holders(making.target, node=node)
        named = [one for one in holders if reason in one["reasons"]]
        return holders == named and [one["verdict"] for one in named] == ["Undetermined"]

    for node, reasons in ((NODE, FROM_OUTSIDE), (THERE, PROBABLE)):
        # On a busy machine, the client may lose its watch for a moment.
        wait_until(
            partial(is_named, node, reasons[state]),
            timeout_s=_SAID_S,
            what=f"{reasons[state]!r} on {node}",
            interval_s=2,
        )
    assert making.repair is not None
    making.repair()
    # Ceph ends the watch of a client that does not answer after 30 s.
    wait_until(
        lambda: world.holders(making.target) == [],
        timeout_s=_SAID_S,
        what="the watch of the client to end",
        interval_s=1,
    )
    assert "RBD402" not in world.codes(making.target)
