"""The chart on a real cluster: kubelets run its agents, which report an incident and resolve it."""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import time
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode

import pytest
import yaml

from rbdagent.unmap.preconditions import FREEZE
from tests.lab.csi import driver_config
from tests.lab.csi_controller import CLUSTER_ID
from tests.lab.errors import LabError
from tests.lab.install import CHECKOUT
from tests.lab.laptop import Done, Laptop
from tests.lab.network import ADDRESS
from tests.lab.processes import wait_until
from tests.lab.workloads import collection
from tests.support.documented_commands import INSTALL, ORPHANED_RUNBOOK, printed, typed, written
from tests.support.run_summary import PRINTED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.e2e.scene import Scene
    from tests.lab.api import Json
    from tests.lab.lab import Lab

CHART: Final = CHECKOUT / "helm" / "rbdagent"
NAMESPACE: Final = "rbdagent"
CSI_NAMESPACE: Final = "ceph-csi"
NODES: Final = ("worker-1", "worker-2")
PORT: Final = 9090
_SYS_PTRACE: Final = 1 << 19
_FILTERED: Final = "2"
_REFUSED: Final = 4
_SHORT: Final = {r"(?m)^( +for:) \d+m$": r"\1 2s", r"> 600$": "> 5"}
"""Alerts wait for minutes; here they wait for seconds."""


ABSENT_MONITOR: Final = "192.0.2.1:6789"
"""Of a network for documentation (RFC 5737): no host has it."""


class Cluster:
    """The lab's cluster as its administrator uses it: helm, kubectl and the plugin."""

    def __init__(self, lab: Lab, home: Path) -> None:
        self.lab = lab
        admin = lab.control_plane.kubeconfig("admin")
        self.laptop = Laptop(lab.netns, admin, home, ceph_conf=lab.ceph.conf)
        # As in the checkout in which docs/install.md runs its commands.
        (home / "helm").symlink_to(CHART.parent)

    def type(self, heading: str, *, only: str | tuple[str, ...] = "") -> str:
        """Run the commands of docs/install.md below a heading, and return all that they print."""
        commands = [line for line in typed(INSTALL, heading) if line.startswith(only)]
        assert commands, heading
        return "".join(self.laptop.done("bash", "-ec", command) for command in commands)

    def runbook(self, heading: str, volume: str) -> tuple[str, ...]:
        """Return the commands of RBDMappingOrphaned below a heading, for a volume."""
        return tuple(
            line.replace("pv/PV", f"pv/{volume}") for line in printed(ORPHANED_RUNBOOK, heading)
        )

    def list_monitors(self, *monitors: str) -> None:
        """Replace the list of monitors of the CSI driver."""
        config = json.dumps([{"clusterID": CLUSTER_ID, "monitors": monitors}])
        patch = json.dumps({"data": {"config.json": config}})
        target = (f"--namespace={CSI_NAMESPACE}", "configmap", "ceph-csi-config")
        self.laptop.done("kubectl", "patch", *target, "--type=merge", f"--patch={patch}")

    def ceph_state(self, node: str) -> str:
        """Return how Ceph was observed according to the node's RBDNode."""
        path = "jsonpath={.status.sources.ceph.state}"
        return self.laptop.done("kubectl", "get", "rbdnode", node, f"--output={path}")

    def agent_pods(self) -> set[str]:
        """Return the uids of the agents' pods."""
        pods = self.lab.control_plane.api.items(collection("Pod", NAMESPACE))
        return {pod["metadata"]["uid"] for pod in pods}

    def wait_bound(self) -> None:
        """Wait until each node has a pod of the release, which may not be ready."""
        wait_until(
            lambda: self.lab.workloads.bind_daemons(NAMESPACE) == len(NODES),
            timeout_s=60,
            what="a pod of the release on each node",
        )

    def wait_rolled_out(self) -> None:
        """Wait until kubelets have rolled out the release."""
        self.lab.workloads.wait_rolled_out("rbdagent", namespace=NAMESPACE)

    def wait_listed(self, *nodes: str) -> None:
        """Wait until `kubectl get rbdnodes` shows these nodes and no others."""

        def is_shown() -> bool:
            listed = self.laptop.done("kubectl", "get", "rbdnodes", "--no-headers").splitlines()
            return tuple(line.split()[0] for line in listed) == nodes

        wait_until(is_shown, timeout_s=60, what=f"RBDNodes of {', '.join(nodes)}")

    def wait_published(self, node: str, volume: str, *, mapped: bool = True) -> None:
        """Wait until an RBDMapping shows that the volume is mapped on a node, or none does."""
        wanted = f"--selector=rbdagent.dev/persistentvolume={volume}"
        nodes = "--output=jsonpath={.items[*].status.node}"

        def is_shown() -> bool:
            done = self.laptop.run("kubectl", "get", "rbdmap", wanted, nodes)
            return done.code == 0 and (node in done.stdout.split()) is mapped

        try:
            wait_until(is_shown, timeout_s=120, what=f"{volume} mapped on {node}: {mapped}")
        except LabError as error:
            everything = ("kubectl", "get", "rbdnodes,rbdmappings", "--output=yaml")
            published = self.laptop.run(*everything).said
            agents = ("--selector=app.kubernetes.io/name=rbdagent", "--prefix", "--tail=30")
            logs = self.laptop.run("kubectl", "logs", f"--namespace={NAMESPACE}", *agents).said
            raise LabError(f"{error}\n{published}\n{logs}") from error

    def agent(self, node: str) -> Process:
        """Return the agent's process on a node, as its kernel shows it."""
        (pod,) = (
            item
            for item in self.lab.control_plane.api.items(collection("Pod", NAMESPACE))
            if item["spec"]["nodeName"] == node and not item["metadata"].get("deletionTimestamp")
        )
        script = (
            f"for p in $(grep -sl {pod['metadata']['uid']} /proc/[0-9]*/cgroup); do d=${{p%/*}};"
            " tr '\\0' ' ' <$d/cmdline | grep -q 'rbdagent agent' || continue;"
            " cat $d/status $d/mountinfo; break; done"
        )
        return Process(self.lab.nodes[node].run(script).stdout)


class Process:
    """A process, parsed from /proc/PID/status followed by /proc/PID/mountinfo."""

    def __init__(self, text: str) -> None:
        self._status = dict(re.findall(r"(?m)^(\w+):\t(.*)$", text))
        self._mounts = {
            fields[4]: fields
            for fields in (line.split() for line in text.splitlines())
            if len(fields) > 6 and fields[0].isdigit()
        }

    @property
    def capabilities(self) -> int:
        """The mask of its effective capabilities; the bounding set has no more."""
        assert self._status["CapEff"] == self._status["CapBnd"] == self._status["CapPrm"]
        return int(self._status["CapEff"], 16)

    @property
    def is_among_its_own(self) -> bool:
        """Whether its pid namespace is below the host's, and it can address only that one."""
        return len(self._status["NSpid"].split()) > 1

    @property
    def is_filtered(self) -> bool:
        """Whether seccomp filters its system calls, and it can gain no privilege."""
        return (self._status["Seccomp"], self._status["NoNewPrivs"]) == (_FILTERED, "1")

    def is_writable(self, path: str) -> bool:
        """Return whether a mount is writable."""
        return "rw" in self._mounts[path][5].split(",")

    def follows_the_host(self, path: str) -> bool:
        """Return whether mounts and unmounts of the host below it propagate to it."""
        return any(mount.startswith("master:") for mount in self._mounts[path][6:9])


class Prometheus:
    """A real Prometheus in the lab."""

    def __init__(self, lab: Lab, targets: Path) -> None:
        self._lab = lab
        self._targets = targets

    def find_agents(self) -> None:
        """Make it scrape the agents' pods: Debian's Prometheus has no Kubernetes discovery."""
        pods = self._lab.control_plane.api.items(collection("Pod", NAMESPACE))
        agents = [
            f"{pod['status']['podIP']}:9464"
            for pod in pods
            if not pod["metadata"].get("deletionTimestamp")
        ]
        new = self._targets.with_suffix(".new")
        new.write_text(json.dumps([{"targets": agents}]))
        new.replace(self._targets)

    def firing(self) -> dict[str, Json]:
        """Return the labels of the alerts that fire, by their names."""
        connection = http.client.HTTPConnection(ADDRESS, PORT, timeout=20)
        query = urlencode({"query": 'ALERTS{alertstate="firing"}'})
        try:
            connection.sock = self._lab.network.connect(ADDRESS, PORT, timeout_s=20)
            connection.request("GET", f"/api/v1/query?{query}")
            answer = json.loads(connection.getresponse().read())
        except (OSError, ValueError) as error:
            raise LabError(f"Prometheus: {error}") from error
        finally:
            connection.close()
        found = [sample["metric"] for sample in answer["data"]["result"]]
        return {labels["alertname"]: labels for labels in found}


@pytest.fixture
def cluster(lab: Lab, tmp_path: Path) -> Iterator[Cluster]:
    """Yield a cluster that has ceph-csi, and no part of rbdagent."""
    given = Cluster(lab, tmp_path)
    lab.control_plane.forget_rbdnodes()
    # The namespace of the Leases of the lab's agents: the commands of the manual create it.
    given.laptop.done("kubectl", "delete", "namespace", NAMESPACE, "--timeout=120s")
    try:
        given.laptop.done("kubectl", "create", "namespace", CSI_NAMESPACE)
        (config,) = driver_config(lab.ceph.monitor).values()
        given.laptop.done(
            *("kubectl", "create", "configmap", "ceph-csi-config", f"--namespace={CSI_NAMESPACE}"),
            f"--from-literal=config.json={config.decode()}",
        )
        yield given
    finally:
        given.laptop.run("helm", "uninstall", "rbdagent", f"--namespace={NAMESPACE}")
        with contextlib.suppress(LabError):
            lab.control_plane.forget_rbdnodes()
        gone = ("--timeout=120s", "--ignore-not-found")
        given.laptop.run("kubectl", "delete", "namespace", NAMESPACE, CSI_NAMESPACE, *gone)
        lab.control_plane.define_rbdnodes()


@pytest.fixture
def prometheus(lab: Lab, tmp_path: Path) -> Iterator[Prometheus]:
    alerts = (CHART / "files" / "alerts.yaml").read_text()
    for long, short in _SHORT.items():
        alerts, often = re.subn(long, short, alerts, flags=re.MULTILINE)
        assert often
    (tmp_path / "alerts.yaml").write_text(alerts)
    (tmp_path / "prometheus.yml").write_text(yaml.safe_dump(_configuration(tmp_path)))
    lab.processes.start(
        "prometheus",
        [
            "prometheus",
            f"--config.file={tmp_path}/prometheus.yml",
            f"--storage.tsdb.path={tmp_path}/data",
            f"--web.listen-address={ADDRESS}:{PORT}",
            "--log.level=warn",
        ],
        netns=lab.netns,
    )
    yield Prometheus(lab, tmp_path / "agents.json")
    lab.processes.stop("prometheus")


def _configuration(directory: Path) -> Json:
    """Return the chart's PodMonitor as a configuration of Prometheus, with shorter intervals."""
    agents = {
        "job_name": "rbdagent",
        "honor_labels": True,
        "file_sd_configs": [{"files": [f"{directory}/agents.json"]}],
    }
    return {
        "global": {"scrape_interval": "2s", "evaluation_interval": "2s"},
        "rule_files": [f"{directory}/alerts.yaml"],
        "scrape_configs": [agents],
    }


def _values() -> Json:
    """Return the values that docs/install.md asks for, and those that only the lab needs."""
    plain, *_ = written(INSTALL, "### Plain ceph-csi")
    values: Json = yaml.safe_load(plain)
    values["ceph"]["clusters"][0]["monitorsFrom"]["clusterID"] = CLUSTER_ID
    # The image consists of the node's own files.
    image = {
        "registry": "localhost", "repository": "rbdagent", "tag": "lab", "pullPolicy": "Never",
    }  # fmt: skip
    # Both nodes at once: one after the other takes twice as long.
    update = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": len(NODES)}}
    # A detach does not wake an agent: the next observation shows it.
    short = {"resync": "10s", "unmap": {"gracePeriod": "10s"}}
    return {**values, **short, "image": image, "updateStrategy": update}


def _wait_firing(prometheus: Prometheus, *names: str) -> dict[str, Any]:
    def firing() -> dict[str, Json] | None:
        found = prometheus.firing()
        return found if all(name in found for name in names) else None

    return wait_until(firing, timeout_s=120, what=f"{' and '.join(names)} to fire")


@pytest.mark.alone
def test_chart_reports_alerts_on_and_unmaps_an_orphan(
    cluster: Cluster,
    scene: Scene,
    prometheus: Prometheus,
    tmp_path: Path,
    record_property: Callable[[str, object], None],
) -> None:
    """scenarios.md 3 and 4, with each command of docs/install.md."""
    (tmp_path / "my-values.yaml").write_text(json.dumps(_values()))
    volume = scene.claim()
    old = scene.start_pod("worker-1")
    cluster.type("## 2. A user in Ceph")
    cluster.type("## 3. Helm")
    cluster.type("### Install the chart")
    cluster.wait_rolled_out()
    prometheus.find_agents()
    cluster.wait_published("worker-1", volume)
    cluster.wait_listed(*NODES)
    # On a machine that runs two labs the first check may take longer than its own 30 s.
    works = wait_until(
        lambda: cluster.type("### Does it work?"), timeout_s=60, what="rbdagent check to succeed"
    )
    assert all(node in works for node in (*NODES, "successfully rolled out")), works
    _check_observing(cluster.agent("worker-1"))
    done = cluster.laptop.run("kubectl", "rbdagent", "who-holds", f"pv/{volume}")
    assert (done.code, done.stdout[:6], "certain" in done.stdout) == (0, "IN USE", True), done

    with scene.lab.fault("worker-1", "NodeUnstage.unmap", "skip"):
        scene.workloads.delete("Pod", old)
        scene.wait_detached(volume, "worker-1")
    orphaned_at = time.monotonic()
    new = scene.start_pod("worker-2")
    scene.workloads.wait_event(new, reason="FailedMount", contains="is still being used")
    blocked_at = time.monotonic()
    firing = _wait_firing(prometheus, "RBDMappingOrphaned", "RBDVolumeMultiAttachStuck")
    orphaned_s, blocked_s = (time.monotonic() - at for at in (orphaned_at, blocked_at))
    record_property(
        PRINTED, f"alerts {orphaned_s:.0f} s after detach, {blocked_s:.0f} s after event"
    )
    assert firing["RBDMappingOrphaned"]["node"] == "worker-1"
    assert firing["RBDMappingOrphaned"]["persistentvolume"] == volume
    assert firing["RBDVolumeMultiAttachStuck"]["waiting_pod"] == new
    done = cluster.laptop.run("kubectl", "rbdagent", "who-holds", f"pv/{volume}")
    assert (done.code, done.stdout[:8], "RBD101" in done.stdout) == (3, "ORPHANED", True), done

    cluster.type("### Unmap orphans", only="kubectl annotate node")
    cluster.type("### Unmap orphans", only="helm")
    cluster.wait_rolled_out()
    prometheus.find_agents()
    _check_unmapping(cluster.agent("worker-1"))
    record_property(PRINTED, f"the runbook's last command: {_follow_the_runbook(cluster, volume)}")
    scene.workloads.wait_running(new)
    started_at = time.monotonic()
    wait_until(lambda: not prometheus.firing(), timeout_s=120, what="every alert to be resolved")
    record_property(PRINTED, f"resolved {time.monotonic() - started_at:.0f} s after the pod ran")
    cluster.wait_published("worker-1", volume, mapped=False)
    cluster.wait_published("worker-2", volume)
    _fence_and_lift(scene, prometheus, volume, record_property)

    # The user stays: the rest of the lab uses its key for Ceph.
    cluster.type("## Uninstall", only=("helm", "kubectl"))
    crds = ("get", "customresourcedefinitions", "--output=name")
    wait_until(
        lambda: "rbdagent.dev" not in cluster.laptop.done("kubectl", *crds),
        timeout_s=60,
        what="the resources of agents to be gone",
    )


@pytest.mark.alone
def test_agents_follow_the_monitors_without_an_upgrade(
    cluster: Cluster, scene: Scene, tmp_path: Path
) -> None:
    """Play the end of a fail-over: the driver's list names an address where no monitor is left.

    An agent that starts then has no Ceph. When the driver's list has the new monitor, the agent
    connects, in the same pod and with the same configuration.
    """
    (tmp_path / "my-values.yaml").write_text(json.dumps(_values()))
    volume = scene.claim()
    scene.start_pod("worker-1")
    cluster.list_monitors(ABSENT_MONITOR)
    cluster.type("## 2. A user in Ceph")
    cluster.type("## 3. Helm")
    cluster.type("### Install the chart")
    cluster.wait_bound()
    cluster.wait_published("worker-1", volume)
    # An agent writes its RBDNode after its RBDMappings.
    cluster.wait_listed(*NODES)
    assert cluster.ceph_state("worker-1") == "failed"
    pods = cluster.agent_pods()
    cluster.list_monitors(scene.lab.ceph.monitor)
    wait_until(
        lambda: cluster.ceph_state("worker-1") == "observed",
        timeout_s=120,
        what="the agent to reach the new monitor",
    )
    cluster.wait_rolled_out()
    assert cluster.agent_pods() == pods
    done = cluster.laptop.run("kubectl", "rbdagent", "who-holds", f"pv/{volume}")
    assert (done.code, done.stdout[:6], "certain" in done.stdout) == (0, "IN USE", True), done
    # Without the list, the connection follows the monitors that Ceph itself reports.
    cluster.list_monitors()
    cluster.wait_published("worker-1", volume)
    assert cluster.ceph_state("worker-1") == "observed"


def _follow_the_runbook(cluster: Cluster, volume: str) -> str:
    """Type the commands of the runbook that the alert links to, on a frozen node.

    Returns:
        The last line of the answer to the last command.
    """
    who_holds, events = cluster.runbook("## What to check", volume)
    plan, execution = cluster.runbook("## What to do", volume)

    wait_until(
        lambda: "on worker-1 is left mapped" in cluster.laptop.done("bash", "-ec", events),
        timeout_s=60,
        what="an event with the reason why the agent does not unmap",
    )
    done = cluster.laptop.run("bash", "-ec", who_holds)
    assert (done.code, done.stdout[:8]) == (3, "ORPHANED"), done
    done = cluster.laptop.run("bash", "-ec", plan)
    assert done.code == _REFUSED, done
    assert f"worker-1 has the annotation {FREEZE}" in " ".join(done.stdout.split()), done
    cluster.laptop.done("kubectl", "annotate", "node", "worker-1", f"{FREEZE}-")
    # On a terminal: without one, the plugin refuses --wait.
    terminal = ("script", "--quiet", "--return", "--command", execution, "/dev/null")
    answers: list[Done] = []

    def is_answered() -> bool:
        answers.append(cluster.laptop.run(*terminal))
        # While the agent unmaps, the hint is to wait.
        return "another rbdagent operates on" not in answers[-1].said

    wait_until(is_answered, timeout_s=60, what="the agent to end its own unmap")
    done = answers[-1]
    # The agent may be first: the mapping is then gone before or while the command runs.
    is_gone = "no RBDMapping shows" in done.said or "no mapping of" in done.said
    assert done.code in (0, _REFUSED) or is_gone, done
    return done.said.strip().splitlines()[-1]


def _fence_and_lift(
    scene: Scene,
    prometheus: Prometheus,
    volume: str,
    record_property: Callable[[str, object], None],
) -> None:
    """scenarios.md 19 and 50: a range fences worker-2, as csi-addons' NetworkFence does."""
    in_use = scene.wait_verdict("worker-1", volume, "InUse")
    address = in_use.holder("worker-2")["clientAddress"]
    fenced = f"{address.partition(':')[0]}/32"
    fence = ("osd", "blocklist", "range")
    scene.lab.ceph.ceph(*fence, "add", fenced, "3600")
    scene.undo(lambda: scene.lab.ceph.ceph(*fence, "rm", fenced))
    fenced_at = time.monotonic()
    for node in NODES:
        holder = scene.wait_verdict(node, volume, "Dead").holder("worker-2")
        assert f"range {fenced} until 20" in " ".join(holder["reasons"])
    firing = _wait_firing(prometheus, "RBDMappingDead")
    record_property(
        PRINTED, f"RBDMappingDead fires {time.monotonic() - fenced_at:.0f} s after fence"
    )
    assert firing["RBDMappingDead"]["persistentvolume"] == volume
    scene.lab.ceph.ceph(*fence, "rm", fenced)
    for node in NODES:
        scene.wait_verdict(node, volume, "Unwatched")
    _wait_firing(prometheus, "RBDMappingUnwatched")


def _check_observing(agent: Process) -> None:
    """Assert that the agent may only read, as docs/privileges.md states."""
    assert agent.capabilities == _SYS_PTRACE
    assert agent.is_filtered
    assert agent.is_among_its_own
    assert agent.is_writable("/var/lib/rbdagent")
    looked_at = ("/host/proc", "/host/sys", "/host/dev", "/host/var/lib/kubelet")
    for path in ("/", "/etc/rbdagent", "/host/etc/rbdagent", *looked_at):
        assert not agent.is_writable(path), path
    for path in ("/host/sys", "/host/var/lib/kubelet"):
        assert agent.follows_the_host(path), path


def _check_unmapping(agent: Process) -> None:
    """Assert a privileged agent, which writing to sysfs and entering the host's namespace need.

    Apart from sysfs, the agent may not write to the host.
    """
    assert agent.capabilities.bit_count() > 1
    assert agent.is_writable("/host/sys")
    for path in ("/", "/host/proc", "/host/dev", "/host/var/lib/kubelet"):
        assert not agent.is_writable(path), path
