"""Measure a node of the lab from its boot to three running pods: User Mode Linux, and emulated.

The control plane and Ceph run before the node starts, and are not counted. The processor time is
that of the node's program and of all processes that it has started, on this machine.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.cpu import cpu_s
from tests.lab.lab import running_lab
from tests.lab.workloads import pod

_NODE: Final = "worker-1"
_POD_S: Final = 300.0
_RATIO: Final = 5.0


def main() -> int:
    """Measure, print, and return 1 if the bound is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pods", type=int, default=3)
    pods = parser.parse_args().pods
    took = {kind: _measured(kind, pods) for kind in ("uml", "qemu")}
    ratio = took["qemu"] / took["uml"]
    print(f"qemu / uml: {ratio:.1f} (bound: at least {_RATIO:g})")
    return 0 if ratio >= _RATIO else 1


def _measured(kind: str, pods: int) -> float:
    """Return the processor seconds of a node of this kind until its pods run."""
    os.environ["RBDAGENT_LAB_NODE"] = kind
    with running_lab(nodes=(_NODE,)) as lab:
        node = next(process for process in lab.running() if process.name == f"vm-{_NODE}")
        booted_s = _with_children(node.pid)
        started = time.monotonic()
        names = [f"p{number}" for number in range(pods)]
        lab.workloads.apply(*(pod(name, node=_NODE, claims=[]) for name in names))
        for name in names:
            lab.workloads.wait_running(name, timeout_s=_POD_S)
        run_s = _with_children(node.pid)
        wall_s = time.monotonic() - started
    print(
        f"{kind}: {run_s:.1f} s of a processor, {booted_s:.1f} of them until the node was ready;"
        f" the {pods} pods ran after {wall_s:.0f} s",
        flush=True,
    )
    return run_s


def _with_children(pid: int) -> float:
    """Return the processor seconds of a process, of its ended children, and of those that run."""
    try:
        children = [
            int(child)
            for task in Path(f"/proc/{pid}/task").iterdir()
            for child in (task / "children").read_text().split()
        ]
        own_s = cpu_s(pid)
    except (FileNotFoundError, ProcessLookupError):
        # It has ended: its parent's time includes it now, or does a moment later.
        return 0.0
    return own_s + sum(_with_children(child) for child in children)


if __name__ == "__main__":
    sys.exit(main())
