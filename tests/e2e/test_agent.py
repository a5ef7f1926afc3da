"""The agent on real nodes: it publishes, resolves an incident, and stops on request."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest

from tests.e2e.written_files import WORDS, read_back, write
from tests.lab.install import venv_python
from tests.lab.processes import wait_until
from tests.lab.workloads import collection

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.e2e.scene import Scene
    from tests.lab.lab import Lab
    from tests.lab.vm import Service

Json = dict[str, Any]
_GET = ("busybox", "wget", "-q", "-O", "-")
"""A node's Debian has no curl."""
_AGENT = "http://127.0.0.1:9464"


@pytest.fixture
def agent(lab: Lab) -> Iterator[Service]:
    """Run an agent on worker-1 that may unmap after five seconds."""
    service = lab.nodes["worker-1"].define_service(
        "rbdagent",
        [str(venv_python().parent / "rbdagent"), "agent", "--mode", "unmap",
         "--grace-period", "5s", "--state-dir", "/run/rbdagent-state"],
    )  # fmt: skip
    service.start()
    yield service
    if service.pid() is not None:
        service.stop()


def published(lab: Lab, node: str = "worker-1") -> Json:
    """Return what an agent published last; an empty object if there is nothing."""
    found = lab.workloads.find("RBDNode", node) or {}
    status: Json = found.get("status") or {}
    return status


def mapping_of(lab: Lab, volume: str) -> Json | None:
    """Return the published mapping of a volume."""
    for item in lab.control_plane.api.items(collection("RBDMapping")):
        found: Json = item["status"]
        if found["node"] == "worker-1" and found.get("persistentVolume") == volume:
            return found
    return None


def wait_published(lab: Lab, volume: str, verdict: str) -> Json:
    """Wait until a mapping is published with a verdict."""

    def found() -> Json | None:
        mapping = mapping_of(lab, volume)
        return mapping if mapping is not None and mapping["verdict"] == verdict else None

    return wait_until(found, timeout_s=120, what=f"{volume} to be published as {verdict}")


@pytest.mark.alone
def test_agent_publishes_its_node_and_resolves_the_incident(scene: Scene, agent: Service) -> None:
    """From any node the holder is certain; the orphan is unmapped, and the waiting pod starts."""
    lab = scene.lab
    volume = scene.claim()
    old = scene.run_pod("worker-1")
    write(scene, old, volume)
    mapping = wait_published(lab, volume, "InUse")
    assert mapping["pods"] == [f"default/{old}"]
    scene.assert_same_elsewhere(volume, "worker-1", "InUse")

    there = scene.look("worker-2", volume).holder("worker-1")
    assert there["confidence"] == "certain"
    assert there["device"] == mapping["device"]
    listed = lab.rbdagent("worker-2", "list", "-A", "--all", "-v").stdout
    assert volume in listed
    assert mapping["device"] in listed

    pin = scene.hold_open("worker-1", mapping["device"])
    scene.lab.set_fault("worker-1", "NodeUnstage.unmap", "skip", volume=scene.handle(volume))
    scene.workloads.delete("Pod", old)
    scene.wait_detached(volume, "worker-1")
    wait_published(lab, volume, "Pinned")
    scene.assert_same_elsewhere(volume, "worker-1", "Pinned")
    scene.workloads.wait_event(scene.name, reason="RBDPinned", contains=mapping["device"])
    new = scene.start_pod("worker-2")
    scene.workloads.wait_event(new, reason="FailedMount", contains="is still being used")
    assert scene.look("worker-2", volume).holder("worker-1")["verdict"] == "Pinned"
    with scene.agent("worker-2"):
        scene.workloads.wait_event(new, reason="RBDVolumeHeld", contains="(Pinned)")
    described = lab.control_plane.kubectl("describe", "pod", new)
    assert f"worker-1 ({mapping['device']}, client." in described
    assert f"Next: rbdagent who-holds pvc/{scene.name} -n default" in described

    scene.kill("worker-1", pin)
    scene.workloads.wait_running(new)
    wait_until(lambda: mapping_of(lab, volume) is None, timeout_s=60, what="the mapping to be gone")
    scene.workloads.wait_event(scene.name, reason="RBDUnmapped", contains=mapping["device"])
    acts = [act for act in published(lab)["acts"] if act["persistentVolume"] == volume]
    # Refusals before the unmap are on record, too.
    assert [(act["by"], act["outcome"]) for act in acts][-1:] == [("agent", "unmapped")]
    metrics = scene.lab.nodes["worker-1"].run([*_GET, f"{_AGENT}/metrics"]).stdout
    assert re.search(r'rbdagent_unmaps_total\{outcome="unmapped"\} [1-9]', metrics), metrics
    lines = [json.loads(line) for line in agent.logs().splitlines() if line.startswith("{")]
    unmaps = [line for line in lines if line["event"] == "unmap"]
    assert volume in [act["persistent_volume"] for act in unmaps]
    assert read_back(scene, new, volume) == WORDS


@pytest.mark.alone
def test_agent_stops_on_sigterm_and_resumes_after_kill(lab: Lab, agent: Service) -> None:
    """SIGTERM ends it within its time; after kill -9 the next one starts, and only one runs."""
    node = lab.nodes["worker-1"]

    def ready() -> bool:
        return node.run([*_GET, f"{_AGENT}/readyz"], check=False).exit_code == 0

    wait_until(ready, timeout_s=60, what="the agent to be ready")
    program = str(venv_python().parent / "rbdagent")
    second = node.run(
        [program, "agent", "--once", "--state-dir", "/run/rbdagent-state"], check=False
    )
    assert "another agent runs on this node" in second.stderr
    agent.kill()
    agent.start()
    wait_until(ready, timeout_s=60, what="the next agent to be ready")
    pid = agent.pid()
    node.run(f"kill -TERM {pid}")
    wait_until(lambda: agent.pid() is None, timeout_s=30, what="the agent to end")
    assert '"event": "ended"' in agent.logs()


def test_running_agent_answers_a_command(scene: Scene) -> None:
    """A process of the agent answers the second command as the first one answered itself."""
    node, volume = scene.lab.nodes["worker-1"], scene.claim()
    scene.run_pod("worker-1")
    program, state = venv_python().parent / "rbdagent", f"/run/{scene.name}-agent"
    sockets = f"{state}/prepared"

    def ask() -> tuple[int, str]:
        words = [f"RBDAGENT_STATE_DIR={state}", str(program), "who-holds", volume, "-o", "name"]
        done = node.run(["env", *words], check=False)
        return done.exit_code, done.stdout

    def exists(name: str) -> bool:
        return node.run(["test", "-S", f"{sockets}/{name}"], check=False).exit_code == 0

    # What it publishes would stay, and other tests would wait for its next report.
    with scene.agent("worker-1", "--answer-for=5m", "--no-kube"):
        wait_until(lambda: exists("wake.sock"), timeout_s=60, what="the agent to offer answers")
        first = ask()
        assert (first[0], first[1].startswith("worker-1/rbd")) == (0, True)
        wait_until(lambda: exists("answers.sock"), timeout_s=60, what="the process to listen")
        assert ask() == first
        assert node.run(["pgrep", "-f", "rbdagent.prepared.server"]).stdout.strip()
    wait_until(lambda: not exists("answers.sock"), timeout_s=60, what="the process to end")
