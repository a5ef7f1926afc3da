"""`rbdagent who-holds PV -o json` beside the scripted runbook, in pairs, on a node of the lab.

The runbook is what a user would run instead: kubectl get pv, rbd info, rados listwatchers, a look
at sysfs, kubectl get pods; each a process. Wall time and peak memory are taken inside the node.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.lab.install import bin_dir, venv_python
from tests.lab.lab import POOL, RBDAGENT_USER, Lab, running_lab
from tests.lab.workloads import claim, pod

_BOUND = 0.7
_MEMORY_MIB = 80.0

# Runs both in turn and prints, for each, wall seconds and peak KiB of the largest process.
_MEASURE = """
import json, os, sys, time
answer = []
for _ in range(int(sys.argv[1])):
    pair = []
    for command in sys.argv[2:]:
        start = time.monotonic()
        pid = os.posix_spawn("/bin/sh", ["sh", "-c", command], os.environ, file_actions=[
            (os.POSIX_SPAWN_OPEN, 1, "/dev/null", os.O_WRONLY, 0)])
        _, status, usage = os.wait4(pid, 0)
        pair.append((time.monotonic() - start, usage.ru_maxrss, os.waitstatus_to_exitcode(status)))
    answer.append(pair)
print(json.dumps(answer))
"""


def main() -> int:
    """Measure, print the ratios, and exit 1 where a bound is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=7)
    pairs = parser.parse_args().pairs
    with running_lab() as lab:
        measured = _measure(lab, pairs)
    ratios = sorted(ours[0] / theirs[0] for ours, theirs in measured)
    ratio = statistics.median(ratios)
    memory = max(ours[1] for ours, _ in measured) / 1024
    print(f"who-holds / runbook, wall time, median of {pairs} pairs: {ratio:.2f}", end="")
    print(f" (from {ratios[0]:.2f} to {ratios[-1]:.2f}; bound {_BOUND})")
    print(f"who-holds, peak memory: {memory:.0f} MiB (bound {_MEMORY_MIB:.0f})")
    return int(ratio > _BOUND or memory > _MEMORY_MIB)


def _measure(lab: Lab, pairs: int) -> list[Any]:
    lab.workloads.apply(claim("bench"), pod("bench", node="worker-1", claims=["bench"]))
    volume = lab.workloads.wait_bound("bench")
    lab.workloads.wait_running("bench")
    found = lab.workloads.find("PersistentVolume", volume)
    assert found is not None
    image = found["spec"]["csi"]["volumeAttributes"]["imageName"]
    info = json.loads(lab.ceph.rbd("info", f"{POOL}/{image}", "--format", "json"))
    header = info["block_name_prefix"].replace("rbd_data.", "rbd_header.")
    commands = (
        f"{venv_python().parent / 'rbdagent'} who-holds {volume} -o json",
        _runbook(volume, image, header),
    )
    done = lab.nodes["worker-1"].run(
        ["python3", "-c", _MEASURE, str(pairs + 1), *commands], timeout_s=60 * (pairs + 1)
    )
    answer: list[Any] = json.loads(done.stdout)
    for pair in answer:
        assert [each[2] for each in pair] == [0, 0], f"a command failed: {pair}"
    return answer[1:]  # the first pair warms the caches


def _runbook(volume: str, image: str, header: str) -> str:
    kubectl = f"{bin_dir() / 'kubectl'} --kubeconfig /etc/rbdagent/kubeconfig"
    user = f"--id {RBDAGENT_USER} --log-file= --admin-socket="
    return " && ".join(
        (
            f"{kubectl} get pv {volume} -o json",
            f"rbd {user} info {POOL}/{image}",
            f"rados {user} -p {POOL} listwatchers {header}",
            "grep . /sys/bus/rbd/devices/*/name /sys/bus/rbd/devices/*/client_addr",
            f"{kubectl} get pods -A -o json --field-selector spec.nodeName=worker-1",
        )
    )


if __name__ == "__main__":
    sys.exit(main())
