"""A day of an agent beside a real cluster: it adds nothing that outlives a look."""

from __future__ import annotations

import contextlib
import json
import os
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rbdagent.act import Leave
from rbdagent.agent.loop import Agent, Seen
from rbdagent.config import Settings
from rbdagent.look import keep_ceph
from rbdagent.model import Moment, Policy, SourceState
from rbdagent.observe.node import NodeRoots
from rbdagent.state import StateDir
from tests.integration.clients import access
from tests.lab.errors import LabError
from tests.lab.processes import wait_until
from tests.unit.test_agent_loop import Log

if TYPE_CHECKING:
    from tests.lab.ceph import CephCluster

MINUTES = 24 * 60
WARM_UP = 30
_OF_THE_MACHINE = ("stat", "swaps", "sys", "fs", "locks", "filesystems")


def test_a_day_of_looks_leaves_no_watch_lock_mount_file_or_thread(
    ceph: CephCluster, tmp_path: Path
) -> None:
    """safety.md's last invariant; the time is played, the looks are real."""
    image = "k8s/day"
    ceph.create_image(image)
    uptime_s = 0.0
    last: list[Seen] = []
    settings = Settings(
        node_name="worker-1",
        roots=_node(tmp_path, ceph, image),
        clusters=(access(ceph),),
        kube=None,
        timeout_s=30.0,
        version="test",
    )
    kept = keep_ceph(settings)
    assert kept is not None
    wake: Any = None
    agent = Agent(
        settings,
        Leave(
            by="agent",
            policy=Policy(may_unmap=True),
            freeze_file=tmp_path / "freeze",
            state=StateDir(tmp_path / "state"),
        ),
        wake,
        resync_s=60.0,
        clock=lambda: Moment(at="2026-11-21T12:00:00Z", uptime_s=uptime_s),
        tell=lambda seen: last.__setitem__(slice(None), [seen]),
        log=Log(),
        ceph=kept,
    )
    try:
        # librados starts some of its threads late.
        for _ in range(WARM_UP):
            agent._cycle("time")
        before = _left(ceph, image)
        for _ in range(MINUTES):
            uptime_s += 60
            agent._cycle("time")
        # A thread that asked for an image may be about to end, now as it may have been then.
        with contextlib.suppress(LabError):
            wait_until(lambda: not _more(_left(ceph, image), before), timeout_s=10, what="calm")
        assert _more(_left(ceph, image), before) == {}
    finally:
        kept.end()
    (seen,) = last
    assert seen.snapshot.sources.ceph.state is SourceState.OBSERVED
    assert [each.holders[0].holder.mapping is not None for each in seen.diagnoses] == [True]


def _node(tmp_path: Path, ceph: CephCluster, image: str) -> NodeRoots:
    """Give a node that has the image mapped, and few processes; this one is among them."""
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
    """Give what is there now and was not before."""
    added = {what: found - before[what] for what, found in now.items()}
    return {what: found for what, found in added.items() if found}


def _left(ceph: CephCluster, image: str) -> dict[str, Counter[str]]:
    """Give what could be left behind: here, in the process that asks Ceph, and in the cluster."""
    (child,) = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()[-1:]
    mounts = Path("/proc/self/mountinfo").read_text().splitlines()
    # Another lab of this machine may begin in the meantime.
    found = {"mounts": Counter(each for each in mounts if " /run/netns/rbdlab-" not in each)}
    for pid in ("self", child):
        links = (
            os.readlink(each) for each in Path(f"/proc/{pid}/fd").iterdir() if each.is_symlink()
        )
        found[f"files of {pid}"] = Counter(link.partition(":")[0] for link in links)
        threads = Path(f"/proc/{pid}/task").glob("*/comm")
        found[f"threads of {pid}"] = Counter(each.read_text().strip() for each in threads)
    locks = Path("/proc/locks").read_text().splitlines()
    # Their numbers, which come first, are of the whole machine.
    ours = (line.partition(": ")[2] for line in locks if str(os.getpid()) in line or child in line)
    found["locks"] = Counter(ours)
    watchers = json.loads(ceph.rbd("status", image, "--format", "json"))["watchers"]
    found["watchers"] = Counter(str(each) for each in watchers)
    lockers = json.loads(ceph.rbd("lock", "ls", image, "--format", "json"))
    found["lockers"] = Counter(str(each) for each in lockers)
    return found
