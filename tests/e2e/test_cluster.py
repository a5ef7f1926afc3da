"""The chart on a real cluster: kubelets run its agents, which tell of an incident and end it."""

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

from tests.conftest import TOLD
from tests.documents import INSTALL, typed, written
from tests.lab.csi import driver_config
from tests.lab.csi_controller import CLUSTER_ID
from tests.lab.errors import LabError
from tests.lab.install import CHECKOUT
from tests.lab.laptop import Laptop
from tests.lab.network import ADDRESS
from tests.lab.processes import wait_until
from tests.lab.workloads import collection

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
_SHORT: Final = {r"(?m)^( +for:) \d+m$": r"\1 2s", r"> 600$": "> 5"}
"""What an alert waits for is minutes, and here seconds."""


class Cluster:
    """The lab's cluster as its administrator has it before him: helm, kubectl and the plugin."""

    def __init__(self, lab: Lab, home: Path) -> None:
        self.lab = lab
        admin = lab.control_plane.kubeconfig("admin")
        self.laptop = Laptop(lab.netns, admin, home, ceph_conf=lab.ceph.conf)
        # As in the checkout that docs/install.md has one sit in.
        (home / "helm").symlink_to(CHART.parent)

    def type(self, heading: str, *, only: str | tuple[str, ...] = "") -> str:
        """Type what docs/install.md says below a heading, and give all that is printed."""
        commands = [each for each in typed(INSTALL, heading) if each.startswith(only)]
        assert commands, heading
        return "".join(self.laptop.done("bash", "-ec", each) for each in commands)

    def wait_rolled_out(self) -> None:
        """Wait for what kubelets make of the release."""
        self.lab.workloads.wait_rolled_out("rbdagent", namespace=NAMESPACE)

    def wait_listed(self, *nodes: str) -> None:
        """Wait until `kubectl get rbdnodes` shows these nodes and no others."""

        def as_told() -> bool:
            listed = self.laptop.done("kubectl", "get", "rbdnodes", "--no-headers").splitlines()
            return tuple(line.split()[0] for line in listed) == nodes

        wait_until(as_told, timeout_s=60, what=f"RBDNodes of {', '.join(nodes)}")

    def wait_published(self, node: str, volume: str, *, mapped: bool = True) -> None:
        """Wait until a node's RBDNode says that the volume is mapped there, or not any more."""
        path = "jsonpath={.status.mappings[*].persistentVolume}"

        def as_told() -> bool:
            told = self.laptop.run("kubectl", "get", "rbdnode", node, f"--output={path}")
            return told.code == 0 and (volume in told.stdout.split()) is mapped

        try:
            wait_until(as_told, timeout_s=120, what=f"{volume} in {node}'s RBDNode: {mapped}")
        except LabError as error:
            published = self.laptop.run("kubectl", "get", "rbdnode", node, "--output=yaml").said
            agents = ("--selector=app.kubernetes.io/name=rbdagent", "--prefix", "--tail=30")
            logs = self.laptop.run("kubectl", "logs", f"--namespace={NAMESPACE}", *agents).said
            raise LabError(f"{error}\n{published}\n{logs}") from error

    def agent(self, node: str) -> Process:
        """Give the agent's process on a node, as its kernel has it."""
        (pod,) = (
            each
            for each in self.lab.control_plane.api.items(collection("Pod", NAMESPACE))
            if each["spec"]["nodeName"] == node and not each["metadata"].get("deletionTimestamp")
        )
        script = (
            f"for p in $(grep -sl {pod['metadata']['uid']} /proc/[0-9]*/cgroup); do d=${{p%/*}};"
            " tr '\\0' ' ' <$d/cmdline | grep -q 'rbdagent agent' || continue;"
            " cat $d/status $d/mountinfo; break; done"
        )
        return Process(self.lab.nodes[node].run(script).stdout)


class Process:
    """A process by /proc/PID/status and /proc/PID/mountinfo, one after the other."""

    def __init__(self, text: str) -> None:
        self._status = dict(re.findall(r"(?m)^(\w+):\t(.*)$", text))
        self._mounts = {
            fields[4]: fields
            for fields in (line.split() for line in text.splitlines())
            if len(fields) > 6 and fields[0].isdigit()
        }

    @property
    def capabilities(self) -> int:
        """What it may do, as a mask; the bounding set says no more."""
        assert self._status["CapEff"] == self._status["CapBnd"] == self._status["CapPrm"]
        return int(self._status["CapEff"], 16)

    @property
    def is_among_its_own(self) -> bool:
        """Whether it is in a pid namespace below the host's, and can address its own alone."""
        return len(self._status["NSpid"].split()) > 1

    @property
    def is_filtered(self) -> bool:
        """Whether seccomp filters what it asks of the kernel, and it can gain no right."""
        return (self._status["Seccomp"], self._status["NoNewPrivs"]) == (_FILTERED, "1")

    def is_writable(self, path: str) -> bool:
        """Tell whether a mount may be written to."""
        return "rw" in self._mounts[path][5].split(",")

    def follows_the_host(self, path: str) -> bool:
        """Tell whether what the host mounts and unmounts below goes there as well."""
        return any(each.startswith("master:") for each in self._mounts[path][6:9])


class Prometheus:
    """A real one in the lab."""

    def __init__(self, lab: Lab, targets: Path) -> None:
        self._lab = lab
        self._targets = targets

    def find_agents(self) -> None:
        """Have it scrape the agents' pods: Debian's cannot ask Kubernetes for them."""
        pods = self._lab.control_plane.api.items(collection("Pod", NAMESPACE))
        agents = [
            f"{each['status']['podIP']}:9464"
            for each in pods
            if not each["metadata"].get("deletionTimestamp")
        ]
        new = self._targets.with_suffix(".new")
        new.write_text(json.dumps([{"targets": agents}]))
        new.replace(self._targets)

    def firing(self) -> dict[str, Json]:
        """Give the labels of the alerts that fire, by their names."""
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
        found = [each["metric"] for each in answer["data"]["result"]]
        return {each["alertname"]: each for each in found}


@pytest.fixture
def cluster(lab: Lab, tmp_path: Path) -> Iterator[Cluster]:
    """Give a cluster that has ceph-csi, and nothing of ours."""
    given = Cluster(lab, tmp_path)
    lab.control_plane.forget_rbdnodes()
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
    """Give the chart's PodMonitor as Prometheus has it, but for its intervals."""
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
    """Give what docs/install.md has one write, and what is particular to the lab."""
    plain, *_ = written(INSTALL, "## 2. Helm")
    values: Json = yaml.safe_load(plain)
    values["ceph"]["clusters"][0]["monitorsFrom"]["clusterID"] = CLUSTER_ID
    # The image that is the node's own files.
    image = {"repository": "localhost/rbdagent", "tag": "lab", "pullPolicy": "Never"}
    # Both nodes at once: one after the other takes twice as long.
    update = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": len(NODES)}}
    # A detach wakes no agent: it is seen by the next look.
    short = {"resync": "10s", "unmap": {"gracePeriod": "10s"}}
    return {**values, **short, "image": image, "updateStrategy": update}


def _wait_firing(prometheus: Prometheus, *names: str) -> dict[str, Any]:
    def firing() -> dict[str, Json] | None:
        found = prometheus.firing()
        return found if all(each in found for each in names) else None

    return wait_until(firing, timeout_s=120, what=f"{' and '.join(names)} to fire")


@pytest.mark.alone
def test_an_installed_chart_tells_of_an_orphan_alerts_and_takes_it_down(
    cluster: Cluster,
    scene: Scene,
    prometheus: Prometheus,
    tmp_path: Path,
    record_property: Callable[[str, object], None],
) -> None:
    """scenarios.md 3 and 4, each command typed as docs/install.md has it."""
    (tmp_path / "my-values.yaml").write_text(json.dumps(_values()))
    volume = scene.claim()
    old = scene.start_pod("worker-1")
    cluster.type("## 1. A user in Ceph")
    cluster.type("## 2. Helm")
    cluster.wait_rolled_out()
    prometheus.find_agents()
    cluster.wait_published("worker-1", volume)
    cluster.wait_listed(*NODES)
    # On a machine that plays two labs the first check may take longer than its own 30 s.
    works = wait_until(
        lambda: cluster.type("### Does it work?"), timeout_s=60, what="rbdagent check to succeed"
    )
    assert all(each in works for each in (*NODES, "successfully rolled out")), works
    _check_observing(cluster.agent("worker-1"))
    told = cluster.laptop.run("kubectl", "rbdagent", "who-holds", f"pv/{volume}")
    assert (told.code, "InUse" in told.stdout, "certain" in told.stdout) == (0, True, True), told

    with scene.lab.fault("worker-1", "NodeUnstage.unmap", "skip"):
        scene.workloads.delete("Pod", old)
        scene.wait_detached(volume, "worker-1")
    orphaned_at = time.monotonic()
    new = scene.start_pod("worker-2")
    scene.workloads.wait_event(new, reason="FailedMount", contains="is still being used")
    blocked_at = time.monotonic()
    firing = _wait_firing(prometheus, "RBDMappingOrphaned", "RBDVolumeMultiAttachStuck")
    orphaned_s, blocked_s = (time.monotonic() - each for each in (orphaned_at, blocked_at))
    record_property(TOLD, f"alerts {orphaned_s:.0f} s after detach, {blocked_s:.0f} s after event")
    assert firing["RBDMappingOrphaned"]["node"] == "worker-1"
    assert firing["RBDMappingOrphaned"]["persistentvolume"] == volume
    assert firing["RBDVolumeMultiAttachStuck"]["pod"] == new
    told = cluster.laptop.run("kubectl", "rbdagent", "who-holds", f"pv/{volume}")
    assert (told.code, "Orphaned" in told.stdout, "RBD101" in told.stdout) == (3, True, True), told

    cluster.type("### Unmap orphans", only="helm")
    cluster.wait_rolled_out()
    prometheus.find_agents()
    _check_unmapping(cluster.agent("worker-1"))
    scene.workloads.wait_running(new)
    started_at = time.monotonic()
    wait_until(lambda: not prometheus.firing(), timeout_s=120, what="every alert to be resolved")
    record_property(TOLD, f"resolved {time.monotonic() - started_at:.0f} s after the pod ran")
    cluster.wait_published("worker-1", volume, mapped=False)
    cluster.wait_published("worker-2", volume)
    _fence_and_lift(scene, prometheus, volume, record_property)

    # The user stays: the rest of the lab asks Ceph by its key.
    cluster.type("## Uninstall", only=("helm", "kubectl"))
    crds = ("get", "customresourcedefinitions", "--output=name")
    wait_until(
        lambda: "rbdnodes" not in cluster.laptop.done("kubectl", *crds),
        timeout_s=60,
        what="the RBDNode resource to be gone",
    )


def _fence_and_lift(
    scene: Scene,
    prometheus: Prometheus,
    volume: str,
    record_property: Callable[[str, object], None],
) -> None:
    """scenarios.md 19 and 50: a range fences worker-2, as csi-addons' NetworkFence has it."""
    address = scene.look("worker-1", volume).holder("worker-2")["clientAddress"]
    fenced = f"{address.partition(':')[0]}/32"
    fence = ("osd", "blocklist", "range")
    scene.lab.ceph.ceph(*fence, "add", fenced, "3600")
    scene.undo(lambda: scene.lab.ceph.ceph(*fence, "rm", fenced))
    fenced_at = time.monotonic()
    for node in NODES:
        holder = scene.wait_verdict(node, volume, "Dead").holder("worker-2")
        assert f"range {fenced} until 20" in " ".join(holder["because"])
    firing = _wait_firing(prometheus, "RBDMappingDead")
    record_property(TOLD, f"RBDMappingDead fires {time.monotonic() - fenced_at:.0f} s after fence")
    assert firing["RBDMappingDead"]["persistentvolume"] == volume
    scene.lab.ceph.ceph(*fence, "rm", fenced)
    for node in NODES:
        scene.wait_verdict(node, volume, "Unwatched")
    _wait_firing(prometheus, "RBDMappingUnwatched")


def _check_observing(agent: Process) -> None:
    """docs/privileges.md: what it may do is look."""
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
    """Privileged, as writing to sysfs and entering the host's namespace takes, and no more."""
    assert agent.capabilities.bit_count() > 1
    assert agent.is_writable("/host/sys")
    for path in ("/", "/host/proc", "/host/dev", "/host/var/lib/kubelet"):
        assert not agent.is_writable(path), path
