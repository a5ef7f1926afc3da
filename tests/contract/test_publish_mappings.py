"""An agent's writes of RBDMappings: each once, in the right order, corrected and limited."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

from rbdagent.agent.publish_mappings import MappingPublisher
from rbdagent.cli.agent import _Kubernetes
from rbdagent.collect.kube.requests import RBD_MAPPINGS
from rbdagent.errors import SourceError
from rbdagent.report.rbdmapping import rbdmapping_objects
from tests.support.agent_loop import Log, cycle_of
from tests.support.fake_api import FakeApi, access_to, refuse
from tests.support.snapshots import UNSEEN, node
from tests.support.unmap_plans import seen as seen_by_agent

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from rbdagent.agent.cycle import CycleResult

Json = dict[str, Any]
NODE, UID = "worker-1", "node-uid"
AT = "2026-11-21T03:00:00Z"


class World:
    """An API server that keeps what it is sent, and the publisher of a node."""

    def __init__(self, api: FakeApi, path: Path) -> None:
        self.api = api
        self.now = 0.0
        self._access = access_to(api, path)
        api.lists["rbdmappings"] = []
        self.publisher = self.restarted()

    def restarted(self) -> MappingPublisher:
        """Return the publisher of an agent that starts."""
        return MappingPublisher(self._access, NODE, clock=lambda: self.now)

    def write(self, *statuses: Json, uid: str | None = UID) -> list[tuple[str, str]]:
        """Write and delete as in a cycle; return the methods and names of the new writes."""
        self.api.writes.clear()
        wanted = rbdmapping_objects(statuses, NODE, observed_at=AT)
        self.publisher.write(wanted, node_uid=uid)
        self.publisher.delete_others(wanted)
        return self.written()

    def written(self) -> list[tuple[str, str]]:
        """Return the methods and names of the writes by name: they are sent at the same time."""
        found = [
            (method, body.get("metadata", {}).get("name") or path.rpartition("/")[2])
            for method, path, body in self.api.writes
        ]
        return sorted(found, key=lambda write: write[1])

    def store(self) -> None:
        """Make the API server have what was created since the last write."""
        self.api.lists["rbdmappings"] += [
            body for method, _, body in self.api.writes if method == "POST"
        ]


def mapped(number: int, verdict: str = "InUse", **more: object) -> Json:
    image = {"pool": "k8s", "name": f"csi-vol-{number}", "id": f"id{number}"}
    status = {"device": f"/dev/rbd{number}", "verdict": verdict, "image": image}
    return {**status, "clientID": 4154, "reasons": ["used for 3 s"], **more}


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    api = FakeApi()
    yield World(api, tmp_path)
    api.stop()


def test_each_mapping_is_created_once_with_its_node_as_owner(world: World) -> None:
    assert world.write(mapped(0), mapped(1)) == [
        ("POST", "worker-1.rbd0"),
        ("POST", "worker-1.rbd1"),
    ]
    (owner,) = world.api.writes[0][2]["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["uid"]) == ("Node", NODE, UID)
    assert world.write(mapped(0), mapped(1, reasons=["used for 9 s"])) == []


def test_change_is_written_to_its_object_only(world: World) -> None:
    world.write(mapped(0), mapped(1))
    assert world.write(mapped(0), mapped(1, "Staged")) == [("PATCH", "worker-1.rbd1")]
    assert world.api.writes[0][2]["status"]["verdict"] == "Staged"


@pytest.mark.parametrize(("code", "is_written"), [("RBD102", True), ("RBD120", False)])
def test_sentence_is_compared_unless_it_has_an_age(
    world: World, code: str, *, is_written: bool
) -> None:
    finding = {"code": code, "severity": "info", "message": "its VolumeAttachment is 2s old"}
    world.write(mapped(0, finding=finding))
    later = finding | {"message": "its VolumeAttachment is 9s old"}
    assert bool(world.write(mapped(0, finding=later))) is is_written


def test_patch_removes_what_the_device_had_before(world: World) -> None:
    world.write(mapped(0, persistentVolume="pv-1"))
    other = mapped(0)
    del other["image"]["id"]
    world.write(other)
    (_, _, patch) = world.api.writes[0]
    assert patch["status"]["persistentVolume"] is None
    assert patch["status"]["image"]["id"] is None
    assert patch["metadata"]["labels"]["rbdagent.dev/persistentvolume"] is None
    assert patch["metadata"]["labels"]["rbdagent.dev/image-id"] is None


def test_unmapped_device_is_deleted(world: World) -> None:
    world.write(mapped(0), mapped(1))
    assert world.write(mapped(1)) == [("DELETE", "worker-1.rbd0")]
    assert world.write(mapped(1)) == []


def test_agent_that_starts_deletes_what_is_gone_and_keeps_the_rest(world: World) -> None:
    world.write(mapped(0), mapped(1))
    world.store()
    world.publisher = world.restarted()
    assert world.write(mapped(1)) == [("DELETE", "worker-1.rbd0")]
    assert all(
        "labelSelector=rbdagent.dev%2Fnode%3Dworker-1" in path for path in world.api.requests
    )


def test_object_that_only_has_the_label_of_the_node_is_ignored(world: World) -> None:
    world.write(mapped(0))
    world.store()
    world.api.lists["rbdmappings"][0]["status"]["node"] = "worker-2"
    world.publisher = world.restarted()
    assert world.write() == []


@pytest.mark.parametrize("kind", ["MODIFIED", "DELETED"])
def test_change_by_another_client_is_corrected(world: World, kind: str) -> None:
    world.write(mapped(0))
    (_, _, created) = world.api.writes[0]
    assert not world.publisher.is_foreign("ADDED", created)
    changed = {**created, "status": created["status"] | {"verdict": "Dead"}}
    assert world.publisher.is_foreign(kind, changed)
    assert [name for _, name in world.write(mapped(0))] == ["worker-1.rbd0"]


def test_object_that_another_client_adds_is_deleted(world: World) -> None:
    world.write(mapped(0))
    (_, _, created) = world.api.writes[0]
    added = {**created, "metadata": created["metadata"] | {"name": "worker-1.rbd9"}}
    assert world.publisher.is_foreign("ADDED", added)
    assert world.write(mapped(0)) == [("DELETE", "worker-1.rbd9")]


def test_own_deletion_does_not_wake_the_agent(world: World) -> None:
    world.write(mapped(0))
    (_, _, created) = world.api.writes[0]
    world.write()
    assert not world.publisher.is_foreign("DELETED", created)


@pytest.mark.parametrize(("refused", "second"), [("POST", "PATCH"), ("PATCH", "POST")])
def test_object_that_another_writer_made_or_deleted_is_written(
    world: World, refused: str, second: str
) -> None:
    if refused == "PATCH":
        world.write(mapped(0))
    path = RBD_MAPPINGS if refused == "POST" else f"{RBD_MAPPINGS}/worker-1.rbd0"
    world.api.broken[f"{refused} {path}"] = refuse(409 if refused == "POST" else 404)
    assert [method for method, _ in world.write(mapped(0, "Staged"))] == [refused, second]


def test_refused_write_does_not_stop_the_others_and_is_retried(world: World) -> None:
    world.write(mapped(0), mapped(1))
    path = f"PATCH {RBD_MAPPINGS}/worker-1.rbd0"
    world.api.broken[path] = refuse(403)
    with pytest.raises(SourceError):
        world.write(mapped(0, "Staged"), mapped(1, "Staged"))
    assert [name for _, name in world.written()] == ["worker-1.rbd0", "worker-1.rbd1"]
    del world.api.broken[path]
    assert [name for _, name in world.write(mapped(0, "Staged"), mapped(1, "Staged"))] == [
        "worker-1.rbd0"
    ]


def test_refused_deletion_is_retried(world: World) -> None:
    world.write(mapped(0))
    world.api.broken[f"DELETE {RBD_MAPPINGS}/worker-1.rbd0"] = refuse(403)
    with pytest.raises(SourceError):
        world.write()
    world.api.broken[f"DELETE {RBD_MAPPINGS}/worker-1.rbd0"] = refuse(404)
    assert world.write() == [("DELETE", "worker-1.rbd0")]
    assert world.write() == []


def test_mapping_is_not_created_without_the_uid_of_the_node(world: World) -> None:
    world.api.broken[f"PATCH {RBD_MAPPINGS}/worker-1.rbd0"] = refuse(404)
    with pytest.raises(SourceError):
        world.write(mapped(0), uid=None)
    assert [method for method, _ in world.written()] == ["PATCH"]


def test_descriptions_are_limited_and_new_images_are_not(world: World) -> None:
    """A mapping that alternates between two verdicts is written once a second."""
    many = range(100)
    assert len(world.write(*(mapped(number) for number in many))) == 100
    assert len(world.write(*(mapped(number, "Staged") for number in many))) == 60
    world.now = 10.0
    assert len(world.write(*(mapped(number, "Staged") for number in many))) == 10
    moved = [mapped(number, "Staged", clientID=4155) for number in many]
    assert len(world.write(*moved)) == 100


def test_problem_is_written_before_a_healthy_description(world: World) -> None:
    many = range(80)
    world.write(*(mapped(number) for number in many))
    verdicts = [*["Staged"] * 79, "Orphaned"]
    changed = [mapped(number, verdict) for number, verdict in zip(many, verdicts, strict=True)]
    assert "worker-1.rbd79" in [name for _, name in world.write(*changed)]


# --------------------------------------------------------------------------------------------------
# The order of a cycle: an agent may end after each write
# --------------------------------------------------------------------------------------------------

NODES = {"nodes": (node(uid=UID),)}
ORPHAN = cycle_of(seen_by_agent(in_kube=NODES))
UNMAPPED = cycle_of(seen_by_agent(on_node={"mappings": ()}, in_kube=NODES))
BLIND = cycle_of(seen_by_agent(on_node={"mappings": UNSEEN}, in_kube=NODES))


class Cycles:
    """An agent's writers, and what they send in each cycle, without Events."""

    def __init__(self, api: FakeApi, path: Path) -> None:
        self.api = api
        api.lists = {
            "rbdmappings": [],
            "rbdnodes": [{"metadata": {"name": NODE, "uid": "u"}}],
            "leases": [{"metadata": {"name": NODE, "uid": "u"}}],
        }
        api.stores = True
        self._writers = _Kubernetes(
            access_to(api, path), NODE, lease_namespace="rbdagent", heartbeat_s=0, log=Log().logger
        )

    def written(self, cycle: CycleResult) -> list[str]:
        self.api.writes.clear()
        self._writers.tell(cycle)
        sent = (f"{method} {path.split('/')[-2:]}" for method, path, _ in self.api.writes)
        return [re.sub(r"[\[\]',]", "", line) for line in sent if "events" not in line]


@pytest.fixture
def cycles(tmp_path: Path) -> Iterator[Cycles]:
    api = FakeApi()
    yield Cycles(api, tmp_path)
    api.stop()


MAP, SUMMARY = "POST v1alpha1 rbdmappings", f"PATCH rbdnodes {NODE}"
UNMAP, LEASE = f"DELETE rbdmappings {NODE}.rbd0", f"PATCH leases {NODE}"


def test_mapping_is_written_before_the_rbdnode_and_deleted_after_it(cycles: Cycles) -> None:
    assert cycles.written(ORPHAN) == [MAP, SUMMARY, LEASE]
    assert cycles.written(UNMAPPED) == [SUMMARY, UNMAP, LEASE]


def test_unobserved_devices_delete_no_mapping(cycles: Cycles) -> None:
    cycles.written(ORPHAN)
    assert cycles.written(BLIND) == [SUMMARY, LEASE]


def test_refused_mapping_stops_the_rbdnode_and_the_lease(cycles: Cycles) -> None:
    """They would confirm a set of RBDMappings in which this one is missing."""
    cycles.api.broken[f"POST {RBD_MAPPINGS}"] = refuse(403)
    assert cycles.written(ORPHAN) == [MAP]


def test_refused_deletion_stops_the_lease(cycles: Cycles) -> None:
    cycles.written(ORPHAN)
    cycles.api.broken[f"DELETE {RBD_MAPPINGS}/{NODE}.rbd0"] = refuse(403)
    assert cycles.written(UNMAPPED) == [SUMMARY, UNMAP]
