"""A day of an agent beside a real cluster: a cycle leaves nothing behind."""

from __future__ import annotations

import contextlib
import json
import os
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rbdagent.agent.loop import Agent
from rbdagent.collect.node.roots import NodeRoots
from rbdagent.collector import start_workers
from rbdagent.config import Settings
from rbdagent.model import BootTime, SourceState, UnmapPolicy
from rbdagent.unmap.executor import UnmapContext
from rbdagent.unmap.state_store import StateDir
from tests.integration.clients import access
from tests.lab.errors import LabError
from tests.lab.processes import wait_until
from tests.support.agent_loop import Log

if TYPE_CHECKING:
    from rbdagent.agent.cycle import CycleResult
    from tests.lab.ceph import CephCluster

MINUTES = 24 * 60
WARM_UP = 30
_OF_THE_MACHINE = ("stat", "swaps", "sys", "fs", "locks", "filesystems")


def test_a_day_of_cycles_leaves_nothing_behind(ceph: CephCluster, tmp_path: Path) -> None:
    """The observations are real; the time is simulated."""
    image = "k8s/day"
    ceph.create_image(image)
    uptime_s = 0.0
    last: list[CycleResult] = []
    settings = Settings(
        node_name="worker-1",
        roots=_node(tmp_path, ceph, image),
        clusters=(access(ceph),),
        kube=None,
        timeout_s=30.0,
        version="test",
    )
    workers = start_workers(settings)
    wake: Any = None
    agent = Agent(
        settings,
        UnmapContext(
            by="agent",
            policy=UnmapPolicy(may_unmap=True),
            freeze_file=tmp_path / "freeze",
            state=StateDir(tmp_path / "state"),
        ),
        wake,
        resync_s=60.0,
        clock=lambda: BootTime(at="2026-11-21T12:00:00Z", uptime_s=uptime_s),
        report=lambda seen: last.__setitem__(slice(None), [seen]),
        log=Log().logger,
        workers=workers,
    )
    try:
        # librados starts some of its threads with a delay.
        for _ in range(WARM_UP):
            agent._cycle("time")
        before = _left(ceph, image)
        for _ in range(MINUTES):
            uptime_s += 60
            agent._cycle("time")
        # A thread that queried an image may still be about to end, in both counts.
        with contextlib.suppress(LabError):
            wait_until(lambda: not _more(_left(ceph, image), before), timeout_s=10, what="calm")
        assert _more(_left(ceph, image), before) == {}
    finally:
        workers.end()
    (seen,) = last
    assert seen.snapshot.sources.ceph.state is SourceState.OBSERVED
    assert [diagnosis.holders[0].holder.mapping is not None for diagnosis in seen.diagnoses] == [
        True
    ]


def _node(tmp_path: Path, ceph: CephCluster, image: str) -> NodeRoots:
    """Return a node with the image mapped and few processes, including this process."""
    info = json.loads(ceph.rbd("info", image, "--format", "json"))
    attributes = {
        "name": image.partition("/")[2],
        "pool": "k8s",
        "pool_id": "1",
        "image_id": info["id"],
        "client_id": "client4100",
        "client_addr": "10.77.0.11:0/1234567",
        "cluster_fsid": ceph.fsid,
        "config_info": "10.77.0.1:6789 name=csi,key=client.csi k8s day -",
        "current_snap": "-",
        "major": "252",
        "minor": "0",
        "features": "0x1",
        "size": str(info["size"]),
        "snap_id": "18446744073709551614",
    }
    device = tmp_path / "sys" / "bus" / "rbd" / "devices" / "0"
    block = tmp_path / "sys" / "block" / "rbd0"
    for directory in (device, block / "holders", tmp_path / "proc", tmp_path / "host"):
        directory.mkdir(parents=True)
    for name, text in attributes.items():
        (device / name).write_text(f"{text}\n")
    for name, text in {"dev": "252:0", "ro": "0", "size": "131072", "diskseq": "9"}.items():
        (block / name).write_text(f"{text}\n")
    for name in (*_OF_THE_MACHINE, "1", str(os.getpid())):
        (tmp_path / "proc" / name).symlink_to(f"/proc/{name}")
    return NodeRoots(procfs=tmp_path / "proc", sysfs=tmp_path / "sys", host_root=tmp_path / "host")


def _more(now: dict[str, Counter[str]], before: dict[str, Counter[str]]) -> dict[str, Counter[str]]:
    """Return what exists now and did not exist before."""
    added = {what: found - before[what] for what, found in now.items()}
    return {what: found for what, found in added.items() if found}


def _left(ceph: CephCluster, image: str) -> dict[str, Counter[str]]:
    """Count what may be left behind: in this process, in its workers and in the cluster."""
    workers = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()[-2:]
    mounts = Path("/proc/self/mountinfo").read_text().splitlines()
    # Another lab of this machine, or another test, may start a network in the meantime.
    found = {"mounts": Counter(mount for mount in mounts if " /run/netns/rbd" not in mount)}
    for pid in ("self", *workers):
        links = (
            os.readlink(path) for path in Path(f"/proc/{pid}/fd").iterdir() if path.is_symlink()
        )
        found[f"files of {pid}"] = Counter(link.partition(":")[0] for link in links)
        threads = Path(f"/proc/{pid}/task").glob("*/comm")
        found[f"threads of {pid}"] = Counter(thread.read_text().strip() for thread in threads)
    locks = Path("/proc/locks").read_text().splitlines()
    pids = (str(os.getpid()), *workers)
    # The numbers at the start of a line are those of the whole machine.
    ours = (line.partition(": ")[2] for line in locks if any(own_pid in line for own_pid in pids))
    found["locks"] = Counter(ours)
    watchers = json.loads(ceph.rbd("status", image, "--format", "json"))["watchers"]
    found["watchers"] = Counter(str(watcher) for watcher in watchers)
    lockers = json.loads(ceph.rbd("lock", "ls", image, "--format", "json"))
    found["lockers"] = Counter(str(lock) for lock in lockers)
    return found
