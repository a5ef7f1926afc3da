"""Measure an idle agent of a node with 50 mappings beside prometheus-node-exporter for minutes.

Both run on the processor of this machine and are scraped every 15 s. The measurement begins and
ends after an observation of the agent: a part of a cycle, which takes a minute, would count as all
of it or not at all. The agent reads the files of a real node that has mapped 50 images for
running pods. It uses the lab's real Ceph cluster and the lab's real API server, which counts its
requests (an API server metric, with a FlowSchema for only this user).
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.cpu import cpu_s
from bench.who_holds import installed
from tests.lab.lab import RBDAGENT_USER, Lab, running_lab
from tests.lab.processes import wait_until
from tests.lab.recorded_tree import record_tree
from tests.lab.workloads import claim, pod

_NODE: Final = "worker-1"
_VOLUMES_OF_A_POD: Final = 10
_SCRAPE_S: Final = 15
_SETTLE_S: Final = 330
"""Beyond the first heartbeat, which reads each object that was written before it."""
_REQUESTS_A_MINUTE: Final = 2.0
_PERCENT: Final = 0.2
_MIB: Final = 85.0
_OURS: Final = "127.0.0.1:19464"
_THEIRS: Final = "127.0.0.1:19100"
_FLOWS: Final = "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas"
_OBSERVED_AT: Final = "rbdagent_last_complete_observation_timestamp_seconds"
_COUNTED: Final = "apiserver_flowcontrol_dispatched_requests_total"


def main() -> int:
    """Measure, print, and return 1 if a bound is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--mappings", type=int, default=50)
    given = parser.parse_args()
    program, exporter = installed(), _exporter()
    with running_lab() as lab, tempfile.TemporaryDirectory() as directory:
        _count(lab)
        _map(lab, given.mappings)
        tree = Path(directory) / "node"
        record_tree(lab.nodes[_NODE], tree)
        # The uptime there must advance, or the agent would neither remember nor write a state.
        (tree / "proc" / "uptime").symlink_to("/proc/uptime")
        lab.processes.start("agent", _agent(lab, program, tree, directory), netns=lab.netns)
        lab.processes.start(
            "node-exporter", [exporter, f"--web.listen-address={_THEIRS}"], netns=lab.netns
        )
        ours, theirs = (_Usage(lab, name) for name in ("agent", "node-exporter"))
        mapped = wait_until(lambda: _mapped(lab), timeout_s=60, what="the agent to have looked")
        assert mapped == given.mappings, f"{mapped} mappings"
        _scraped(lab, _SETTLE_S)
        _scraped_until_observed(lab)
        before = (ours.cpu_s(), theirs.cpu_s(), _asked(lab), time.monotonic())
        _scraped(lab, 60 * given.minutes)
        _scraped_until_observed(lab)
        took = time.monotonic() - before[3]
        return _tell(
            percent=(100 * (ours.cpu_s() - before[0]) / took),
            exporter=(100 * (theirs.cpu_s() - before[1]) / took),
            requests=(_asked(lab) - before[2]) / took * 60,
            memory=(ours.mib("Pss"), ours.mib("Rss"), theirs.mib("Pss")),
            what=f"{mapped} mappings, {took / 60:.0f} min",
        )


def _tell(
    *,
    percent: float,
    exporter: float,
    requests: float,
    memory: tuple[float, float, float],
    what: str,
) -> int:
    ours, resident, theirs = memory
    print(
        f"idle agent, {what}: {percent:.3f} % of a core"
        f" ({percent / exporter:.1f} times node-exporter's {exporter:.3f} %),"
        f" {ours:.0f} MiB ({ours / theirs:.1f} times node-exporter's {theirs:.0f} MiB;"
        f" {resident:.0f} MiB where pages that its processes share count twice),"
        f" {requests:.1f} API requests a minute, watches among them"
    )
    print(f"bounds: {_PERCENT} %, {_MIB:.0f} MiB, {_REQUESTS_A_MINUTE} requests a minute")
    return int(percent > _PERCENT or ours > _MIB or requests > _REQUESTS_A_MINUTE)


def _exporter() -> str:
    """Return the path of node-exporter; install Debian's package if it is missing."""
    name = "prometheus-node-exporter"
    if shutil.which(name) is None:
        command = ["apt-get", "install", "-y", "-qq", "--no-install-recommends", name]
        # The environment keeps the package from starting its service.
        environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
        subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL)
    found = shutil.which(name)
    assert found is not None
    return found


def _map(lab: Lab, mappings: int) -> None:
    """Run pods on the node that use so many volumes."""
    volumes = [f"idle-{number}" for number in range(mappings)]
    for first in range(0, mappings, _VOLUMES_OF_A_POD):
        claims = volumes[first : first + _VOLUMES_OF_A_POD]
        lab.workloads.apply(*(claim(name) for name in claims))
        for name in claims:
            lab.workloads.wait_bound(name)
        lab.workloads.apply(pod(claims[0], node=_NODE, claims=claims))
        lab.workloads.wait_running(claims[0], timeout_s=600)
        print(f"{first + len(claims)} mappings", file=sys.stderr, flush=True)


def _count(lab: Lab) -> None:
    """Make a FlowSchema, so that the API server counts the requests of rbdagent's user alone."""
    user = {"kind": "User", "user": {"name": f"lab:{RBDAGENT_USER}"}}
    everything = {
        "verbs": ["*"],
        "apiGroups": ["*"],
        "resources": ["*"],
        "namespaces": ["*"],
        "clusterScope": True,
    }
    lab.control_plane.api.create(
        _FLOWS,
        {
            "metadata": {"name": RBDAGENT_USER},
            "spec": {
                # The first free value: only the schema of system:masters has 1.
                "matchingPrecedence": 2,
                "priorityLevelConfiguration": {"name": "workload-low"},
                "rules": [
                    {
                        "subjects": [user],
                        "resourceRules": [everything],
                        "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
                    }
                ],
            },
        },
    )


def _asked(lab: Lab) -> float:
    """Return how many requests of the user the API server has dispatched."""
    text = lab.control_plane.kubectl("get", "--raw", "/metrics")
    pattern = rf'^{_COUNTED}{{flow_schema="{RBDAGENT_USER}".*?}} (\S+)$'
    return sum(float(match) for match in re.findall(pattern, text, re.MULTILINE))


def _agent(lab: Lab, program: Path, tree: Path, directory: str) -> list[str | Path]:
    keyring = lab.ceph.conf.parent / f"ceph.client.{RBDAGENT_USER}.keyring"
    return [
        *(program, "agent", "--node-name", _NODE, "--listen", _OURS),
        *("--procfs", tree / "proc", "--sysfs", tree / "sys", "--host-root", tree / "host"),
        *("--ceph-conf", lab.ceph.conf, "--ceph-keyring", keyring),
        *("--kubeconfig", lab.control_plane.kubeconfig(RBDAGENT_USER)),
        *("--state-dir", Path(directory) / "state"),
    ]


def _mapped(lab: Lab) -> int | None:
    found = lab.control_plane.api.find(f"/apis/rbdagent.dev/v1alpha1/rbdnodes/{_NODE}") or {}
    mapped: int | None = (found.get("status") or {}).get("mapped")
    return mapped


def _scraped(lab: Lab, seconds: float) -> None:
    """Wait, and scrape both as Prometheus would."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        time.sleep(min(_SCRAPE_S, max(0.0, end - time.monotonic())))
        _observed_at(lab)


def _scraped_until_observed(lab: Lab) -> None:
    """Scrape until the agent has observed its node again."""
    known = _observed_at(lab)
    while _observed_at(lab) == known:
        time.sleep(_SCRAPE_S)


def _observed_at(lab: Lab) -> str:
    """Scrape both; return when the agent observed its node last."""
    ours, _ = (
        subprocess.run(
            ["ip", "netns", "exec", lab.netns, "curl", "-sf", f"http://{address}/metrics"],
            check=True,
            stdout=subprocess.PIPE,
            text=True,
        ).stdout
        for address in (_OURS, _THEIRS)
    )
    (at,) = re.findall(rf"^{_OBSERVED_AT}{{.*}} (\S+)$", ours, re.MULTILINE)
    return str(at)


class _Usage:
    """Processor time and memory of a process and its children."""

    def __init__(self, lab: Lab, name: str) -> None:
        process = lab.processes.get(name)
        assert process is not None
        self._pid = process.pid

    def cpu_s(self) -> float:
        """Return the processor seconds, including ended children."""
        return sum(map(cpu_s, self._pids()))

    def mib(self, field: str) -> float:
        """Return a field of smaps_rollup, summed over the processes."""
        kib = 0
        for pid in self._pids():
            text = Path(f"/proc/{pid}/smaps_rollup").read_text()
            kib += int(re.findall(rf"^{field}: +(\d+)", text, re.MULTILINE)[0])
        return kib / 1024

    def _pids(self) -> list[int]:
        found = [self._pid]
        for pid in found:
            children = Path(f"/proc/{pid}/task").glob("*/children")
            found += [int(child) for path in children for child in path.read_text().split()]
        return found


if __name__ == "__main__":
    sys.exit(main())
