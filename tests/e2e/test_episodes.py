"""Many random lifecycles of volumes next to agents that may unmap, and are killed repeatedly."""

from __future__ import annotations

import json
import os
import re
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.e2e.episodes import (
    NODES,
    TOGETHER,
    Bare,
    Disturbance,
    Episodes,
    beats_missed,
    draw,
    mapped,
    start_beating,
)
from tests.e2e.scene import Scene
from tests.lab.lab import guest_program
from tests.lab.processes import wait_until
from tests.support.run_summary import PRINTED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from concurrent.futures import Future

    from tests.lab.lab import Lab

COUNT: Final = int(os.environ.get("RBDAGENT_EPISODES", "50"))
SEED: Final = int(os.environ.get("RBDAGENT_EPISODES_SEED", "1"))
"""The same lifecycles in each run of the tier; ``./dev soak`` draws another seed."""
AT_ONCE: Final = 10
_FREE: Final = ("--mode", "unmap", "--grace-period", "5s", "--unmap-staged",
                "--max-unmaps-per-hour", "100000", "--resync", "10s")  # fmt: skip
STATE: Final = "/run/rbdagent-mortal"


@pytest.fixture
def mortals(lab: Lab) -> Iterator[None]:
    """Run an agent on each node that unmaps after five seconds, and kill it repeatedly."""
    for node in NODES:
        lab.nodes[node].define_service(
            "mortal",
            guest_program("mortal", f"{SEED}/{node}", "agent", *_FREE, "--state-dir", STATE),
        ).start()
    yield
    for node in NODES:
        lab.nodes[node].service("mortal").stop()


@pytest.mark.alone
def test_random_lifecycles_lose_no_byte_pod_or_orphan(
    lab: Lab, scene: Scene, mortals: None, record_property: Callable[[str, object], None]
) -> None:
    """The invariants hold in every episode; RBDAGENT_EPISODES_SEED repeats a run."""
    record_property(PRINTED, f"{COUNT} episodes, seed {SEED}")
    residents = [Resident(lab, node, mode) for node in NODES for mode in ("Filesystem", "Block")]
    try:
        with ThreadPoolExecutor(AT_ONCE) as together, Disturbance(lab, SEED) as disturbance:
            begun = [resident.move_in for resident in residents] + [
                episode.play for episode in _episodes(lab)
            ]
            played = [together.submit(action) for action in begun]
            broken = _wait_for(played)
        for node in NODES if broken else ():
            log = lab.nodes[node].service("mortal").logs()
            (lab.state_dir / "log" / f"mortal-{node}.log").write_text(log)
        assert not broken, "\n\n".join(broken)
        for resident in residents:
            resident.check()
        killed = sum(_killed(lab, node) for node in NODES)
        done = sum(_unmapped(lab, node) for node in NODES)
    finally:
        for resident in residents:
            resident.scene.clear()
    record_property(PRINTED, f"{killed} kills, {disturbance.cuts} cuts, {done} unmaps on record")
    for node in NODES:
        wait_until(
            lambda node=node: not lab.nodes[node].run("ls /sys/bus/rbd/devices").stdout.split(),  # type: ignore[misc]
            timeout_s=120,
            what=f"every orphan on {node} to be gone",
        )


def _wait_for(played: list[Future[None]]) -> list[str]:
    """Wait for episodes; print every tenth that ends, and each failure: a soak takes hours.

    Returns:
        What broke, a text for each failure.
    """
    broken = []
    for ended, future in enumerate(as_completed(played), start=1):
        if (error := future.exception()) is not None:
            broken.append(str(error))
            print(f"FAILED: {error}", flush=True)
        if ended % 10 == 0:
            print(f"{ended} of {len(played)} ended, {len(broken)} failed", flush=True)
    return broken


def _episodes(lab: Lab) -> list[Episodes | Bare]:
    """Return COUNT episodes: one in six with a pod, the rest without, in turns."""
    lives = round(COUNT / TOGETHER / 6)
    bare = COUNT - lives * TOGETHER
    found: list[Episodes | Bare] = [Bare(lab, SEED, number) for number in range(bare)]
    for number in range(lives):
        # A pod with its volumes is as much work for its node as many mappings.
        at = number * len(found) // lives
        found.insert(at, Episodes(lab, draw(SEED, number), SEED))
    return found


class Resident:
    """A pod that runs during the whole test."""

    def __init__(self, lab: Lab, node: str, mode: str) -> None:
        self._lab = lab
        self._node = node
        self._mode = mode
        self.scene = Scene(lab, f"resident-{node}-{mode}-{SEED}")

    def move_in(self) -> None:
        """Start the pod."""
        self._image = self.scene.image_of(self.scene.claim(volume_mode=self._mode))
        self._pod = start_beating(self.scene, self._node, self._mode, [self.scene.name])
        self.scene.workloads.wait_running(self._pod, timeout_s=300)
        self._mapped = mapped(self._lab, self._node, self._image)

    def check(self) -> None:
        """Check that no write failed, and that its device is still the same one."""
        assert not beats_missed(self._lab, self._node, self._pod)
        assert mapped(self._lab, self._node, self._image) == self._mapped
        found = self.scene.workloads.find("Pod", self._pod)
        assert found is not None
        assert [status["restartCount"] for status in found["status"]["containerStatuses"]] == [0]


def _killed(lab: Lab, node: str) -> int:
    return len(
        re.findall(r"^mortal: killed", lab.nodes[node].service("mortal").logs(), re.MULTILINE)
    )


def _unmapped(lab: Lab, node: str) -> int:
    """Return the number of unmaps on record at the node's agents, once every unmap is closed."""
    path = f"{STATE}/acts.json"
    vm = lab.nodes[node]
    if vm.run(["test", "-e", path], check=False).exit_code != 0:
        return 0

    def closed() -> dict[str, Any] | None:
        found: dict[str, Any] = json.loads(vm.get(path))
        return found if all(act.get("outcome") for act in found["acts"]) else None

    found: dict[str, Any] = wait_until(
        closed, timeout_s=120, what=f"every act on {node} to be closed"
    )
    kept: int = sum(act["outcome"] == "unmapped" for act in found["acts"])
    forgotten: dict[str, int] = dict(found.get("forgotten") or ())
    return kept + forgotten.get("unmapped", 0)
