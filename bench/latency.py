"""Measure how soon an agent publishes a mapping and unmaps an orphan, in a node of the lab.

The benchmark maps an image of a PV by hand: no pod uses it, so it is an orphan from the agent's
first observation on. Times are those of the node's clock. A program in the node may be slower than
on this machine, most of all on an emulated processor: the ratio is measured and printed.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.e2e.scene import Scene
from tests.lab.install import venv_python
from tests.lab.lab import Lab, running_lab
from tests.lab.processes import wait_until

if TYPE_CHECKING:
    from tests.lab.vm import Vm

_NODE: Final = "worker-1"
_GRACE_S: Final = 10
_QUIET_S: Final = 10.0
_BOUND_S: Final = 2.0
_STATE: Final = "/run/rbdagent-latency"
_MAPPINGS: Final = "/apis/rbdagent.dev/v1alpha1/rbdmappings"
_OBJECT: Final = f"/apis/rbdagent.dev/v1alpha1/rbdnodes/{_NODE}"
_WORK: Final = """
import time
start = time.perf_counter()
sum(i % 7 for i in range(10**6))
print(time.perf_counter() - start)
"""
_UNTIL_GONE: Final = (
    # No program is started in the meantime: it would take processor time from the agent.
    'exec 3<> <(:); while [ -e "$1" ]; do read -t 0.05 -u 3; done; cut -d" " -f1 /proc/uptime'
)


def main() -> int:
    """Measure, print, and return 1 if a bound is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=3)
    times = parser.parse_args().times
    with running_lab() as lab:
        vm = lab.nodes[_NODE]
        program = str(venv_python().parent / "rbdagent")
        flags = ["--mode", "unmap", "--grace-period", f"{_GRACE_S}s", "--state-dir", _STATE]
        flags += ["--log-level", "debug"]
        vm.define_service("rbdagent", [program, "agent", *flags]).start()
        wait_until(lambda: _status(lab), timeout_s=120, what="the agent to have looked")
        measured = []
        for number in range(times):
            _let_rest(vm)
            measured.append(_once(lab, f"latency-{number}"))
        slower = _work(vm.run([str(venv_python()), "-c", _WORK]).stdout) / _work(
            subprocess.check_output([venv_python(), "-c", _WORK], text=True)
        )
    published, unmapped = ([pair[one] for pair in measured] for one in (0, 1))
    _tell("mapped, and published in an RBDMapping, after", published)
    _tell(f"orphaned, and unmapped, {_GRACE_S} s of grace and", unmapped)
    print(f"a program takes {slower:.1f} times as long in the node as on this machine")
    print(f"bounds: {_BOUND_S:g} s each, inside the node")
    return int(max(*published, *unmapped) > _BOUND_S)


def _let_rest(vm: Vm) -> None:
    """Wait until the agent logs nothing for a while: it gathers changes after each observation."""
    log, last, since = vm.service("rbdagent"), "", time.monotonic()
    while time.monotonic() - since < _QUIET_S:
        if (now := log.logs()) != last:
            last, since = now, time.monotonic()
        time.sleep(1)


def _tell(what: str, seconds: list[float]) -> None:
    listed = ", ".join(f"{one:.1f}" for one in seconds)
    print(f"{what} {listed} s (median {statistics.median(seconds):.1f})")


def _work(printed: str) -> float:
    return float(printed)


def _once(lab: Lab, name: str) -> tuple[float, float]:
    """Map one image; return the seconds until it is published and beyond the grace period."""
    scene, vm = Scene(lab, name), lab.nodes[_NODE]
    image = scene.in_tree_volume()
    try:
        device = scene.map_by_hand(_NODE, image)
        began = time.monotonic()
        wait_until(lambda: _is_published(lab, scene.name), timeout_s=60, what="it to be published")
        published = time.monotonic() - began
        since = _orphaned_since(vm, image)
        number = device.removeprefix("/dev/rbd")
        gone = vm.run(["bash", "-c", _UNTIL_GONE, "gone", f"/sys/bus/rbd/devices/{number}"])
        return published, float(gone.stdout) - since - _GRACE_S
    finally:
        scene.clear()


def _orphaned_since(vm: Vm, image: str) -> float:
    """Return when the agent first saw the image as an orphan, in seconds of the node's uptime."""
    for mapping in json.loads(vm.get(f"{_STATE}/history.json"))["mappings"]:
        if mapping["identity"]["spec"]["name"] == image.rpartition("/")[2]:
            return float(mapping["orphanedSince"]["uptimeS"])
    raise AssertionError(f"{image} is not remembered")


def _status(lab: Lab) -> dict[str, Any] | None:
    """Return the published status; None before the agent's first observation."""
    found = lab.control_plane.api.find(_OBJECT) or {}
    status: dict[str, Any] | None = found.get("status")
    return status


def _is_published(lab: Lab, volume: str) -> bool:
    mappings = lab.control_plane.api.items(_MAPPINGS)
    return any(mapping["status"].get("persistentVolume") == volume for mapping in mappings)


if __name__ == "__main__":
    sys.exit(main())
