"""etcd restored from a backup: an agent notices, and its Lease confirms nothing older."""

from __future__ import annotations

import copy
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace

from rbdagent.agent import heartbeat
from rbdagent.cli.agent import _Kubernetes
from rbdagent.collect.kube.list_reports import published_nodes, reports_of_nodes
from rbdagent.collect.kube.requests import RBD_MAPPINGS
from rbdagent.correlate import correlate_node
from rbdagent.model import ImageSpec, NotObserved, PublishedNode, Verdict
from rbdagent.rules import diagnose
from tests.support.agent_loop import Log, cycle_of
from tests.support.fake_api import FakeApi, access_to
from tests.support.snapshots import mapping, node
from tests.support.unmap_plans import seen as seen_by_agent

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from rbdagent.agent.cycle import CycleResult
    from rbdagent.model import Mapping

Json = dict[str, Any]
NODE = "worker-1"
OBJECTS = ("rbdnodes", "rbdmappings", "leases")
NODES = {"nodes": (node(uid="node-uid"),)}
SECOND = mapping(
    device_id=1,
    device="/dev/rbd1",
    spec=ImageSpec(pool="k8s", name="csi-vol-second"),
    image_id="second",
)


def cycle_with(*mappings: Mapping) -> CycleResult:
    """Return the result of a cycle in which a node has these mappings."""
    seen = seen_by_agent(on_node={"mappings": mappings}, in_kube=NODES)
    diagnoses = tuple(diagnose(volume, seen) for volume in correlate_node(seen))
    return replace(cycle_of(seen), diagnoses=diagnoses)


UNMAPPED, ORPHAN, TWO = cycle_with(), cycle_with(mapping()), cycle_with(mapping(), SECOND)
HEARTBEAT_S = 300.0


class Agent:
    """The writers of an agent, the API server that stores what they send, and a clock."""

    def __init__(self, api: FakeApi, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.api = api
        api.stores = True
        api.lists = {name: [] for name in OBJECTS}
        self.access = access_to(api, path)
        self.log = Log()
        self._now = 0.0
        monkeypatch.setattr(heartbeat, "time", SimpleNamespace(monotonic=lambda: self._now))
        self._writers = _Kubernetes(
            self.access,
            NODE,
            lease_namespace="rbdagent",
            heartbeat_s=HEARTBEAT_S,
            log=self.log.logger,
        )

    def cycle(self, cycle: CycleResult, *, later_s: float = 0.0) -> list[str]:
        """Publish a cycle; return the requests that read."""
        self._now += later_s
        self.api.requests.clear()
        self._writers.tell(cycle)
        return [path.partition("?")[0] for path in self.api.requests]

    def backup(self) -> dict[str, list[Json]]:
        return copy.deepcopy({name: self.api.lists[name] for name in OBJECTS})

    def restore(self, backup: dict[str, list[Json]], *, revision: int | None = None) -> None:
        self.api.lists |= copy.deepcopy(backup)
        self.api.revision = self.api.revision if revision is None else revision

    def mapped(self) -> list[str]:
        return [item["status"]["device"] for item in self.api.lists["rbdmappings"]]


@pytest.fixture
def agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Agent]:
    api = FakeApi()
    yield Agent(api, tmp_path, monkeypatch)
    api.stop()


def test_lease_names_the_version_of_the_rbdnode(agent: Agent) -> None:
    agent.cycle(ORPHAN)
    (node,), (lease,) = agent.api.lists["rbdnodes"], agent.api.lists["leases"]
    version = f"{node['metadata']['uid']}/{node['metadata']['resourceVersion']}"
    assert lease["metadata"]["annotations"] == {"rbdagent.dev/confirms": version}


def test_restored_rbdnode_is_written_again_before_the_lease_confirms_it(agent: Agent) -> None:
    agent.cycle(UNMAPPED)
    before = agent.backup()
    agent.cycle(ORPHAN)
    agent.restore(before)
    agent.cycle(ORPHAN, later_s=HEARTBEAT_S)
    (node,) = agent.api.lists["rbdnodes"]
    assert node["status"]["mapped"] == 1
    assert agent.mapped() == ["/dev/rbd0"]
    (report,) = published_nodes(agent.access)
    assert report.lease is None


def test_lease_of_another_version_confirms_nothing(agent: Agent) -> None:
    """The agent renewed its Lease, and only the RBDNode is older."""
    agent.cycle(UNMAPPED)
    before = agent.backup()
    later = replace(ORPHAN.snapshot, observed_at="2026-11-21T03:05:00Z")
    agent.cycle(replace(ORPHAN, snapshot=later), later_s=HEARTBEAT_S)
    agent.restore({"rbdnodes": before["rbdnodes"]})
    named = reports_of_nodes(agent.access, [NODE])[NODE]
    for report in (*published_nodes(agent.access), named):
        assert isinstance(report, PublishedNode)
        assert report.lease == NotObserved(
            reason="the Lease of the agent confirms another version of its RBDNode"
        )


def test_restored_mapping_is_written_again(agent: Agent) -> None:
    """The RBDNode is the same before and after: only the RBDMapping shows the change."""
    agent.cycle(ORPHAN)
    before = agent.backup()
    (written,) = before["rbdmappings"]
    written["status"]["verdict"] = str(Verdict.IN_USE)
    agent.restore({"rbdmappings": before["rbdmappings"]})
    agent.cycle(ORPHAN, later_s=HEARTBEAT_S)
    (restored,) = agent.api.lists["rbdmappings"]
    assert restored["status"]["verdict"] == "Orphaned"


def test_older_store_is_recognised_by_the_version_of_the_lease(agent: Agent) -> None:
    agent.cycle(TWO)
    before, revision = agent.backup(), agent.api.revision
    for _ in range(3):
        agent.cycle(TWO, later_s=HEARTBEAT_S)
    agent.restore(before, revision=revision)
    agent.api.lists["rbdmappings"].pop()
    agent.cycle(TWO, later_s=HEARTBEAT_S)
    agent.cycle(TWO)
    assert sorted(agent.mapped()) == ["/dev/rbd0", "/dev/rbd1"]


def test_idle_agent_reads_its_rbdnode_and_one_mapping_before_each_renewal(agent: Agent) -> None:
    agent.cycle(TWO)
    agent.cycle(TWO, later_s=HEARTBEAT_S)
    assert agent.cycle(TWO, later_s=HEARTBEAT_S / 2) == []
    read = [sorted(agent.cycle(TWO, later_s=HEARTBEAT_S)) for _ in range(2)]
    node = f"/apis/rbdagent.dev/v1alpha1/rbdnodes/{NODE}"
    assert read == [
        [f"{RBD_MAPPINGS}/{NODE}.rbd0", node],
        [f"{RBD_MAPPINGS}/{NODE}.rbd1", node],
    ]
