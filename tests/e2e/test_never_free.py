"""`Free` is never the answer on one node while another node can use the image.

Three mappings exist on worker-1, and worker-2 reports on them. Meanwhile worker-1 is
Ready, tainted, cut off or powered off, and its agent reports now, reported recently, reported long
ago, or never.
"""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any, Final

import pytest
from msgspec import Struct

from rbdagent.parse.kubernetes import CONFIRMS, version_of
from tests.lab.install import venv_python
from tests.lab.lab import POOL
from tests.lab.processes import wait_until
from tests.lab.workloads import collection
from tests.support.run_summary import PRINTED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.e2e.scene import Scene
    from tests.lab.vm import Service

Json = dict[str, Any]
_REPORTS: Final = collection("RBDNode")
_LEASES: Final = "/apis/coordination.k8s.io/v1/namespaces/rbdagent/leases"
_MAPPINGS: Final = collection("RBDMapping")
_REPORT: Final = f"{_REPORTS}/worker-1"
_HOLDER: Final = "worker-1"
_ASKED: Final = "worker-2"
_TAINT: Final = {
    "key": "node.kubernetes.io/out-of-service",
    "value": "nodeshutdown",
    "effect": "NoExecute",
}


@pytest.fixture
def agent(scene: Scene) -> Iterator[Service]:
    """Run an agent on worker-1."""
    service = scene.lab.nodes[_HOLDER].define_service(
        "rbdagent", [str(venv_python().parent / "rbdagent"), "agent", "--state-dir", "/run/agent"]
    )
    service.start()
    yield service
    if scene.lab.nodes[_HOLDER].running and service.pid() is not None:
        service.stop()


class Volumes(Struct, frozen=True):
    """PVs by the kind of their mapping on worker-1."""

    watched: str
    unwatched: str
    read_only: str

    @property
    def names(self) -> dict[str, str]:
        """The name of each kind in the table."""
        return {
            self.watched: "rw, watch",
            self.unwatched: "rw, no watch",
            self.read_only: "ro, no watch",
        }


def three_mappings(scene: Scene) -> Volumes:
    """Map three images on worker-1; one client loses its watch as in recordings 23 and 30."""
    unwatched = scene.claim("-unwatched")
    scene.run_pod(_HOLDER, "-unwatched", claim_suffix="-unwatched")
    address = scene.fence(_HOLDER, scene.look(_HOLDER, unwatched).holder(_HOLDER))
    scene.wait_verdict(_HOLDER, unwatched, "Dead")
    scene.lab.ceph.ceph("osd", "blocklist", "rm", address)
    scene.wait_verdict(_HOLDER, unwatched, "Unwatched")
    watched = scene.claim("-watched")
    scene.run_pod(_HOLDER, "-watched", claim_suffix="-watched")
    read_only = scene.claim("-ro")
    image = scene.image_of(read_only).rpartition("/")[2]
    scene.map_by_hand(_HOLDER, f"{POOL}/{image}", "-o", "ro")
    return Volumes(watched, unwatched, read_only)


class Reports:
    """Controls what the agent of worker-1 reports: now, recently, long ago or never."""

    def __init__(self, scene: Scene) -> None:
        self._api = scene.lab.control_plane.api
        self._last: Json = {}
        """Labels and status of the RBDNode."""
        self._mappings: list[Json] = []

    def wait_for(self, volumes: Volumes) -> None:
        """Wait until every mapping is reported, and that one client has lost its watch."""

        def reported() -> bool:
            found = self._api.find(_REPORT) or {"metadata": {}, "status": {}}
            labels = found["metadata"].get("labels") or {}
            self._last = {"metadata": {"labels": labels}, "status": found["status"]}
            self._mappings = self._published()
            statuses = [mapping["status"] for mapping in self._mappings]
            verdicts = {status.get("persistentVolume"): status["verdict"] for status in statuses}
            count = self._last["status"].get("mapped")
            is_whole = {*volumes.names} <= verdicts.keys() and count == len(self._mappings)
            return is_whole and verdicts[volumes.unwatched] == "Unwatched"

        wait_until(reported, timeout_s=120, what="the agent to report its mappings")

    def _published(self) -> list[Json]:
        """Return the RBDMappings of the node."""
        items = self._api.items(_MAPPINGS)
        return [item for item in items if item["status"]["node"] == _HOLDER]

    def reported(self, *, minutes_ago: int) -> None:
        """Set the time of the last report to so many minutes ago."""
        if self._api.find(_REPORT) is None:
            body = {"apiVersion": "rbdagent.dev/v1alpha1", "kind": "RBDNode"}
            self._api.create(_REPORTS, body | {"metadata": {"name": _HOLDER}})
        if not self._published():
            for item in self._mappings:
                metadata = {key: item["metadata"][key] for key in ("name", "labels")}
                self._api.create(_MAPPINGS, item | {"metadata": metadata})
        at = dt.datetime.now(dt.UTC) - dt.timedelta(minutes=minutes_ago)
        status = self._last["status"] | {"observedAt": at.strftime("%Y-%m-%dT%H:%M:%SZ")}
        self._api.patch(_REPORT, self._last | {"status": status})
        self._renew(at)

    def _renew(self, at: dt.datetime) -> None:
        """Set the time of the agent's Lease, which it may never have had."""
        report = self._api.find(_REPORT)
        assert report is not None
        annotations = {CONFIRMS: version_of(report)}
        spec = {"holderIdentity": _HOLDER, "renewTime": at.strftime("%Y-%m-%dT%H:%M:%S.%fZ")}
        if self._api.find(f"{_LEASES}/{_HOLDER}") is None:
            metadata = {"name": _HOLDER, "annotations": annotations}
            self._api.create(_LEASES, {"metadata": metadata, "spec": spec})
        else:
            body = {"metadata": {"annotations": annotations}, "spec": spec}
            self._api.patch(f"{_LEASES}/{_HOLDER}", body)

    def never_reported(self) -> None:
        """Remove the report, as if no agent was ever installed."""
        if self._api.find(_REPORT) is not None:
            self._api.delete(_REPORT)
        for item in self._published():
            self._api.delete(f"{_MAPPINGS}/{item['metadata']['name']}")

    @property
    def ages(self) -> dict[str, Callable[[], None]]:
        """The states of an agent that no longer runs."""
        return {
            "gone for 2 min": lambda: self.reported(minutes_ago=2),
            "gone for 60 min": lambda: self.reported(minutes_ago=60),
            "never installed": self.never_reported,
        }


class Table:
    """What worker-2 answers about each volume, one row for each state of worker-1."""

    def __init__(self, scene: Scene, volumes: Volumes) -> None:
        self._scene = scene
        self._volumes = volumes
        self.rows: list[str] = []
        self.free: list[str] = []

    def ask(self, node: str, agent: str) -> None:
        """Ask about every volume; run diagnose for the volume that Ceph does not show."""
        verdicts = {
            name: self._scene.look(_ASKED, volume).verdict
            for volume, name in self._volumes.names.items()
        }
        report = self._scene.diagnose(_ASKED, self._volumes.unwatched)
        verdicts["diagnose: rw, no watch"] = str(report["verdict"])
        row = f"{node:<24} {agent:<16} " + "  ".join(f"{k}: {v}" for k, v in verdicts.items())
        self.rows.append(row)
        self.free += [f"{row} ({name})" for name, verdict in verdicts.items() if verdict == "Free"]


@pytest.mark.alone
def test_volume_mapped_on_another_node_is_never_free(
    scene: Scene, agent: Service, record_property: Callable[[str, object], None]
) -> None:
    volumes, reports = three_mappings(scene), Reports(scene)
    # No agent follows that would correct the reports made here.
    scene.undo(reports.never_reported)
    reports.wait_for(volumes)
    vm, table = scene.lab.nodes[_HOLDER], Table(scene, volumes)
    table.ask("Ready", "reports")
    assert scene.look(_ASKED, volumes.unwatched).verdict == "Unwatched"
    agent.stop()

    def ask_all(node: str) -> None:
        for name, set_age in reports.ages.items():
            set_age()
            table.ask(node, name)

    ask_all("Ready")
    node = f"/api/v1/nodes/{_HOLDER}"
    api = scene.lab.control_plane.api
    api.patch(node, {"spec": {"taints": [_TAINT]}})
    scene.undo(lambda: api.patch(node, {"spec": {"taints": None}}))
    ask_all("Ready, out-of-service")
    api.patch(node, {"spec": {"taints": None}})

    vm.cut()
    scene.undo(vm.mend)
    scene.workloads.wait_node_ready(_HOLDER, ready=False)
    ask_all("cut off")
    # The controllers now delete its pods and detach its volumes by force.
    api.patch(node, {"spec": {"taints": [_TAINT]}})
    scene.wait_detached(volumes.unwatched, _HOLDER)
    ask_all("cut off, out-of-service")
    vm.mend()
    api.patch(node, {"spec": {"taints": None}})
    scene.workloads.wait_node_ready(_HOLDER)
    ask_all("back without a reboot")

    vm.power_off()
    scene.undo(lambda: scene.workloads.wait_node_ready(_HOLDER))
    scene.undo(vm.wait_until_ready)
    scene.undo(vm.start)
    scene.workloads.wait_node_ready(_HOLDER, ready=False)
    ask_all("powered off")
    reports.reported(minutes_ago=2)
    lost = scene.look(_ASKED, volumes.watched)
    (finding,) = (one for one in lost.data["findings"] if one["code"] == "RBD113")
    assert lost.verdict == "NodeDown"
    assert "Ceph lists no watch of that node" in finding["message"]
    for row in table.rows:
        record_property(PRINTED, row)
    assert table.free == []
