"""Snapshots of states that tests have made on a real Ceph cluster: tests/fixtures/ceph.

A test writes its own with RBDAGENT_RECORD=1, when it has made the state.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any, Final

from rbdagent.report.snapshot import load_snapshot
from tests.support.cli_runner import ROOT

if TYPE_CHECKING:
    from rbdagent.model import Snapshot
    from tests.lab.ceph import CephCluster

RECORDED: Final = ROOT / "tests" / "fixtures" / "ceph"
_MACHINE: Final = "laptop"
"""The name of the machine in each of them."""


def recorded(name: str) -> Snapshot:
    """Return a recorded snapshot."""
    file = RECORDED / f"{name}.json"
    return load_snapshot(file.read_text(), where=file.name)


def record(name: str, cluster: CephCluster, target: str, *flags: str) -> None:
    """Write what ``snapshot TARGET`` shows of a cluster, if recordings are requested."""
    if not os.environ.get("RBDAGENT_RECORD"):
        return
    directory = cluster.conf.parent
    done = subprocess.run(
        [sys.executable, "-m", "rbdagent", "snapshot", target, "--no-node", "--no-kube",
         f"--node-name={_MACHINE}", f"--ceph-conf={cluster.conf}",
         f"--ceph-keyring={directory}/ceph.client.rbdagent.keyring", *flags],
        cwd=ROOT, env={}, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.stdout, done.stderr
    # The directory has the names of the user and of this run.
    snapshot: dict[str, Any] = json.loads(done.stdout.replace(str(directory), "/etc/ceph"))
    RECORDED.mkdir(exist_ok=True)
    (RECORDED / f"{name}.json").write_text(f"{json.dumps(snapshot, indent=1)}\n")
