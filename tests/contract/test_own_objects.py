"""The API requests of an agent: by name where possible, few, and enough for each verdict."""

# ruff: noqa: ANN401 - as the builders

from __future__ import annotations

import contextlib
import json
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace

from rbdagent import collector as look_module
from rbdagent.agent import loop, objects
from rbdagent.agent.loop import Agent
from rbdagent.agent.objects import OwnObjects
from rbdagent.collect.kube import get_by_name
from rbdagent.collect.kube.connection import Connection
from rbdagent.collect.kube.kubeconfig import KubeAccess
from rbdagent.collect.kube.list_target import observe_kube
from rbdagent.collect.node.roots import NodeRoots
from rbdagent.config import Settings
from rbdagent.correlate import correlate_node, volumes_of_node
from rbdagent.model import (
    BootTime,
    CephView,
    Convergence,
    CsiImageMeta,
    ImageSpec,
    Mapping,
    NodeView,
    NotObserved,
    Snapshot,
    Source,
    Target,
    TargetKind,
    UnmapOutcome,
    UnmapPolicy,
    UnmapRecord,
    Verdict,
    VolumeData,
)
from rbdagent.parse.handle import attachment_name
from rbdagent.rules import diagnose
from rbdagent.unmap.executor import UnmapContext
from rbdagent.unmap.state_store import StateDir
from tests.support.agent_loop import Log
from tests.support.fake_api import FakeApi, kubeconfig, refuse
from tests.support.snapshots import (
    DRIVER,
    FAILED,
    FSID,
    NOW,
    OBSERVED,
    cluster,
    image_view,
    kubelet,
    mapping,
    node_view,
    pod_directory,
    remote_watcher,
    snapshot,
    staging,
    watcher,
)
from tests.support.unmap_plans import identity

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

Json = dict[str, Any]
NODE = "worker-1"
PODS = f"/api/v1/pods?fieldSelector=spec.nodeName%3D{NODE}&limit=500"
ALWAYS = {PODS, f"/api/v1/nodes/{NODE}", f"/apis/storage.k8s.io/v1/csinodes/{NODE}"}
VOLUMES = "/api/v1/persistentvolumes"
ATTACHMENTS = "/apis/storage.k8s.io/v1/volumeattachments"
EVERY_VOLUME, EVERY_NODE = f"{VOLUMES}?limit=500", "/api/v1/nodes?limit=500"
EVERY_ATTACHMENT = f"{ATTACHMENTS}?limit=500"
ALL: Target = Target(argument="", kind=TargetKind.NONE)


# --------------------------------------------------------------------------------------------------
# A cluster
# --------------------------------------------------------------------------------------------------


def spec_of(number: int) -> ImageSpec:
    return ImageSpec(pool="k8s", name=f"csi-vol-{number}")


def handle_of(number: int) -> str:
    return f"handle-{number}"


def volume(number: int, **spec: Any) -> Json:
    attributes = {"pool": "k8s", "imageName": f"csi-vol-{number}", "clusterID": FSID}
    csi = {"driver": DRIVER, "volumeHandle": handle_of(number), "volumeAttributes": attributes}
    claim = {"namespace": "default", "name": f"data-{number}", "uid": f"claim-{number}"}
    default = {"csi": csi, "claimRef": claim, "accessModes": ["ReadWriteOnce"]}
    return {
        "metadata": {"name": f"pv-{number}", "uid": f"pv-{number}"},
        "spec": default | spec,
        "status": {"phase": "Bound"},
    }


def claim(number: int, volume_name: str | None = None) -> Json:
    return {
        "metadata": {"name": f"data-{number}", "namespace": "default", "uid": f"claim-{number}"},
        "spec": {"volumeName": volume_name or f"pv-{number}"},
        "status": {"phase": "Bound"},
    }


def pod(number: int, phase: str = "Running") -> Json:
    source = {"persistentVolumeClaim": {"claimName": f"data-{number}"}}
    return {
        "metadata": {"name": f"web-{number}", "namespace": "default", "uid": f"pod-{number}"},
        "spec": {"nodeName": NODE, "volumes": [{"name": "data"} | source]},
        "status": {"phase": phase},
    }


def attachment(number: int, node: str = NODE) -> Json:
    return {
        "metadata": {
            "name": attachment_name(handle_of(number), DRIVER, node),
            "creationTimestamp": "2026-11-20T00:00:00Z",
        },
        "spec": {
            "attacher": DRIVER,
            "nodeName": node,
            "source": {"persistentVolumeName": f"pv-{number}"},
        },
        "status": {"attached": True},
    }


def node(name: str, address: str) -> Json:
    return {
        "metadata": {"name": name, "uid": f"{name}-uid"},
        "status": {
            "addresses": [{"type": "InternalIP", "address": address}],
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def mapped(number: int, **changes: Any) -> Mapping:
    return mapping(
        device_id=number,
        device=f"/dev/rbd{number}",
        spec=spec_of(number),
        image_id=f"id{number}",
        **changes,
    )


class World:
    """A cluster with three volumes that are not mapped here, its API, and an agent's clock."""

    def __init__(self, api: FakeApi, path: Path, mapped_here: int) -> None:
        self.api = api
        self.now = 1000.0
        self.mappings = [mapped(number) for number in range(mapped_here)]
        self.watchers = {device.spec: [watcher()] for device in self.mappings}
        self.of_kubelet: dict[str, Any] = {"staging": ()}
        numbers = range(mapped_here + 3)
        api.lists = {
            "persistentvolumes": [volume(number) for number in numbers],
            "persistentvolumeclaims": [claim(number) for number in numbers],
            "pods": [pod(number) for number in range(mapped_here)],
            "volumeattachments": [attachment(number) for number in numbers],
            "nodes": [node(NODE, "10.77.0.11"), node("worker-2", "10.77.0.12")],
            "csinodes": [
                {"metadata": {"name": NODE}, "spec": {"drivers": [{"name": DRIVER}]}},
            ],
            "rbdnodes": [],
        }
        file = path / "kubeconfig"
        file.write_text(json.dumps(kubeconfig(api.url)))
        self.access = KubeAccess(kubeconfig=file, context=None, timeout_s=30)
        self.own = OwnObjects(self.access, NODE)

    def node(self) -> NodeView:
        seen = node_view(mappings=tuple(self.mappings), kubelet=kubelet(**self.of_kubelet))
        return replace(seen, uptime_s=self.now)

    def snapshot(self, view: Any, source: Any) -> Snapshot:
        images = tuple(
            image_view(
                spec=device.spec,
                image_id=device.image_id,
                watchers=tuple(self.watchers.get(device.spec, ())),
                metadata=(),
            )
            for device in self.mappings
        )
        ceph = CephView(clusters=(cluster(images=images),))
        seen = snapshot(target=ALL, node=self.node(), ceph=ceph, kubernetes=view)
        return replace(seen, sources=replace(seen.sources, kubernetes=source))

    def look(self) -> Snapshot:
        """Return a snapshot for which the objects of the agent are requested once."""
        return self.own.with_strangers(
            volumes_of_node(self.snapshot(*self.own.observe(self.node())))
        ).snapshot

    def asked(self) -> set[str]:
        """Return the requests since the last call, without those that every cycle makes."""
        found = self.api.requests.copy()
        self.api.requests.clear()
        return set(found) - ALWAYS

    def later(self, seconds: float = 60) -> None:
        self.now += seconds


def verdicts(seen: Snapshot) -> list[Verdict]:
    return [
        holder.verdict for volume in correlate_node(seen) for holder in diagnose(volume, seen).local
    ]


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    api = FakeApi()
    made = World(api, tmp_path, 2)
    clock = SimpleNamespace(monotonic=lambda: made.now)
    for module in (get_by_name, objects, loop):
        monkeypatch.setattr(module, "time", clock)
    yield made
    api.stop()


def object_paths(*numbers: int) -> set[str]:
    """Return the paths of the API objects of some volumes of this node."""
    return {
        path
        for number in numbers
        for path in (
            f"/api/v1/namespaces/default/persistentvolumeclaims/data-{number}",
            f"{VOLUMES}/pv-{number}",
            f"{ATTACHMENTS}/{attachment_name(handle_of(number), DRIVER, NODE)}",
        )
    }


# --------------------------------------------------------------------------------------------------
# By name
# --------------------------------------------------------------------------------------------------


def test_volumes_of_local_pods_are_requested_once_by_name(world: World) -> None:
    assert verdicts(world.look()) == [Verdict.IN_USE, Verdict.IN_USE]
    assert world.asked() == object_paths(0, 1)
    world.later()
    assert verdicts(world.look()) == [Verdict.IN_USE, Verdict.IN_USE]
    assert world.asked() == set()


def test_deleted_pod_causes_a_request_for_its_volume_only(world: World) -> None:
    world.look()
    world.asked()
    del world.api.lists["pods"][0]
    world.later()
    assert verdicts(world.look()) == [Verdict.ORPHANED, Verdict.IN_USE]
    assert world.asked() == object_paths(0) - {
        "/api/v1/namespaces/default/persistentvolumeclaims/data-0"
    }


def test_orphan_is_requested_in_every_cycle_without_a_list(world: World) -> None:
    del world.api.lists["pods"][0]
    world.of_kubelet = {"staging": (), "pod_volumes": (directory(0),)}
    world.look()
    world.of_kubelet = {"staging": ()}
    world.asked()
    for _ in range(3):
        world.later()
        assert verdicts(world.look())[0] is Verdict.ORPHANED
        paths = world.asked()
        assert EVERY_VOLUME not in paths
        assert object_paths(0) & paths


def directory(number: int) -> Any:
    """Return a directory that a deleted pod left behind."""
    return pod_directory(
        pod_uid="gone",
        path=f"/var/lib/kubelet/pods/gone/volumes/kubernetes.io~csi/pv-{number}/mount",
        persistent_volume=f"pv-{number}",
        volume_data=VolumeData(driver=DRIVER, volume_handle=handle_of(number)),
    )


def staged(number: int) -> Any:
    return staging(
        volume_handle=handle_of(number),
        handle_hash=None,
        stash=CsiImageMeta(spec=spec_of(number)),
    )


def test_volume_is_found_from_staging_directory_and_attachment(world: World) -> None:
    """An agent that starts after the deletion of the pod needs no list."""
    del world.api.lists["pods"][0]
    world.of_kubelet = {"staging": (staged(0),)}
    seen = world.look()
    assert EVERY_VOLUME not in world.asked()
    (volume, _) = correlate_node(seen)
    assert volume.persistent_volume is not None
    assert volume.persistent_volume.name == "pv-0"


def test_other_pv_of_the_image_is_found_by_its_claim(
    world: World,
) -> None:
    """Orphaned may be based on requests by name: they find every PV that a pod here uses."""
    other = volume(0) | {"metadata": {"name": "pv-other", "uid": "u"}}
    other["spec"] = other["spec"] | {"claimRef": {"namespace": "default", "name": "data-9"}}
    world.api.lists["persistentvolumes"].append(other)
    world.api.lists["persistentvolumeclaims"].append(claim(9, "pv-other"))
    world.look()
    world.asked()
    world.api.lists["pods"][0] = pod(9)
    assert verdicts(world.look())[0] is Verdict.IN_USE
    assert EVERY_VOLUME not in world.asked()


def test_failed_list_of_pods_requests_and_forgets_nothing(
    world: World,
) -> None:
    world.look()
    world.asked()
    world.api.broken["/api/v1/pods"] = refuse(500)
    assert set(verdicts(world.look())) == {Verdict.UNDETERMINED}
    assert world.asked() == set()
    del world.api.broken["/api/v1/pods"]
    assert set(verdicts(world.look())) == {Verdict.IN_USE}
    assert world.asked() == set()


def test_unobserved_node_forgets_no_volume(world: World) -> None:
    del world.api.lists["pods"][0]
    world.look()
    world.own.observe(None)
    world.asked()
    assert verdicts(world.look())[0] is Verdict.ORPHANED
    assert EVERY_VOLUME not in world.asked()


def test_unobserved_claim_hides_the_volumes_and_is_retried(world: World) -> None:
    (path,) = [object_path for object_path in object_paths(1) if object_path.endswith("/data-1")]
    world.api.broken[path] = refuse(500)
    del world.api.lists["pods"][0]
    seen = world.look()
    assert seen.kubernetes is not None
    assert isinstance(seen.kubernetes.persistent_volumes, NotObserved)
    assert Verdict.ORPHANED not in verdicts(seen)
    del world.api.broken[path]
    world.asked()
    world.later()
    assert verdicts(world.look())[1] is Verdict.IN_USE
    assert path in world.asked()


def test_refused_attachment_is_not_absent(world: World) -> None:
    del world.api.lists["pods"][0]
    world.api.lists["volumeattachments"] = []
    world.of_kubelet = {"staging": (staged(0),)}
    assert verdicts(world.look())[0] is Verdict.ORPHANED
    for path in object_paths(0):
        if path.startswith(ATTACHMENTS):
            world.api.broken[path] = refuse(403)
    world.later()
    assert verdicts(world.look())[0] is Verdict.UNDETERMINED


# --------------------------------------------------------------------------------------------------
# Compared with a snapshot of everything
# --------------------------------------------------------------------------------------------------


def without(kind: str, number: int = 0) -> Callable[[World], None]:
    return lambda world: world.api.lists[kind].__delitem__(number)


def first(kind: str, value: Json) -> Callable[[World], None]:
    return lambda world: world.api.lists[kind].__setitem__(0, value)


def more(kind: str, value: Json) -> Callable[[World], None]:
    return lambda world: world.api.lists[kind].append(value)


def leaving(value: Json) -> Json:
    return value | {"metadata": value["metadata"] | {"deletionTimestamp": NOW}}


def left_staged(world: World) -> None:
    world.of_kubelet = {"staging": (staged(0),)}


def left_directory(world: World) -> None:
    world.of_kubelet = {"staging": (), "pod_volumes": (directory(0),)}


def made_by_hand(world: World) -> None:
    by_hand = ImageSpec(pool="k8s", name="scratch")
    world.mappings[0] = replace(world.mappings[0], spec=by_hand)
    world.watchers[by_hand] = [watcher()]


def watched_elsewhere(world: World) -> None:
    world.watchers[spec_of(0)] = [watcher(), remote_watcher()]


def out_of_service(world: World) -> None:
    taint = {"key": "node.kubernetes.io/out-of-service"}
    world.api.lists["nodes"][0]["spec"] = {"taints": [taint]}


SECOND: Json = volume(0) | {"metadata": {"name": "pv-second", "uid": "u"}}
SECOND["spec"] = SECOND["spec"] | {
    "claimRef": {"namespace": "default", "name": "data-9"},
    "accessModes": ["ReadWriteMany"],
    "volumeMode": "Block",
}
IN_TREE: Json = volume(
    0, csi=None, rbd={"image": "csi-vol-0", "pool": "k8s", "monitors": ["10.77.0.1:6789"]}
)
NO_POD, NO_VOLUME = without("pods"), without("persistentvolumes")
NO_ATTACHMENT = without("volumeattachments")


@pytest.mark.parametrize(
    "changes",
    [
        (),
        (NO_POD,),
        (NO_POD, left_staged),
        (NO_POD, left_directory),
        (NO_POD, NO_ATTACHMENT),
        (NO_POD, NO_ATTACHMENT, left_staged),
        (NO_POD, first("volumeattachments", leaving(attachment(0)))),
        (NO_POD, NO_VOLUME),
        (NO_POD, NO_VOLUME, NO_ATTACHMENT, left_staged),
        (NO_POD, NO_ATTACHMENT, out_of_service),
        (NO_POD, NO_ATTACHMENT, first("persistentvolumes", IN_TREE)),
        (NO_POD, made_by_hand),
        (NO_POD, watched_elsewhere),
        (without("persistentvolumeclaims"),),
        (first("pods", pod(0, "Pending")),),
        (first("pods", pod(0, "Succeeded")),),
        (first("pods", leaving(pod(0, "Succeeded"))),),
        (first("pods", pod(9)), more("persistentvolumes", SECOND)),
        (
            first("pods", pod(9)),
            more("persistentvolumes", SECOND),
            more("persistentvolumeclaims", claim(9, "pv-second")),
        ),
        (watched_elsewhere,),
        (watched_elsewhere, more("persistentvolumes", SECOND)),
        (watched_elsewhere, without("nodes", 1)),
        (made_by_hand,),
        (without("nodes"),),
        (without("csinodes"),),
    ],
)
def test_requests_by_name_lead_to_the_same_verdicts_as_lists(
    world: World, changes: tuple[Callable[[World], None], ...]
) -> None:
    """The verdicts on each mapping and image are the same, in the first cycle and in later ones."""
    world.look()
    fresh = OwnObjects(world.access, NODE)
    for change in changes:
        change(world)
    everything = told_by(
        world.snapshot(*observe_kube(Connection(world.access), ALL, node_name=NODE))
    )
    for _ in range(2):
        assert told_by(world.look()) == everything
        world.later()
    world.own = fresh
    assert told_by(world.look()) == everything


def test_pv_deleted_by_force_is_in_use_while_its_pod_is_unchanged(
    world: World,
) -> None:
    """Cached objects can be wrong in one direction only: towards use."""
    world.look()
    NO_VOLUME(world)
    world.later()
    assert verdicts(world.look())[0] is Verdict.IN_USE
    NO_POD(world)
    assert verdicts(world.look())[0] is Verdict.ORPHANED
    assert f"{VOLUMES}/pv-0" in world.asked()


def told_by(seen: Snapshot) -> list[tuple[Verdict, list[Verdict]]]:
    diagnoses = [diagnose(volume, seen) for volume in correlate_node(seen)]
    return [
        (diagnosis.verdict, [one.verdict for one in diagnosis.holders]) for diagnosis in diagnoses
    ]


# --------------------------------------------------------------------------------------------------
# Lists
# --------------------------------------------------------------------------------------------------


def test_manual_mapping_lists_the_volumes_once_an_hour(world: World) -> None:
    world.mappings.append(mapped(7))
    by_hand = replace(world.mappings[-1], spec=ImageSpec(pool="k8s", name="scratch"))
    world.mappings[-1] = by_hand
    world.watchers[by_hand.spec] = [watcher()]
    lists = 0
    for _ in range(24):
        assert verdicts(world.look())[-1] is Verdict.FOREIGN
        lists += EVERY_VOLUME in world.asked()
        world.later(300)
    assert lists == 2


def test_pv_that_a_list_found_is_requested_by_name_afterwards(
    world: World,
) -> None:
    """When the agent starts, nothing on the node names the PV of the orphan."""
    del world.api.lists["pods"][0]
    for _ in range(2):
        (volume, _) = correlate_node(world.look())
        assert volume.persistent_volume is not None
        world.later()
    assert world.api.requests.count(EVERY_VOLUME) == 1
    assert world.api.requests.count(f"{VOLUMES}/pv-0") == 1


def test_deleted_pv_is_searched_once(world: World) -> None:
    world.look()
    del world.api.lists["pods"][0]
    del world.api.lists["persistentvolumes"][0]
    world.asked()
    assert verdicts(world.look())[0] is Verdict.ORPHANED
    assert EVERY_VOLUME in world.asked()
    assert verdicts(world.look())[0] is Verdict.ORPHANED
    assert EVERY_VOLUME not in world.asked()


def test_failed_list_is_not_absence_and_is_retried(world: World) -> None:
    del world.api.lists["pods"][0]
    world.api.broken[VOLUMES] = refuse(403)
    seen = world.look()
    assert verdicts(seen)[0] is Verdict.UNDETERMINED
    assert [gap.fact for gap in seen.sources.kubernetes.gaps] == ["all PersistentVolumes"]
    del world.api.broken[VOLUMES]
    world.asked()
    assert verdicts(world.look())[0] is Verdict.ORPHANED
    assert EVERY_VOLUME in world.asked()


def test_list_finds_the_volume_of_a_pod_whose_claim_is_gone(world: World) -> None:
    del world.api.lists["persistentvolumeclaims"][0]
    for _ in range(2):
        assert verdicts(world.look())[0] is Verdict.IN_USE
        world.later()
    assert world.api.requests.count(EVERY_VOLUME) == 1


def test_a_finished_pod_whose_claim_is_gone_lists_nothing(world: World) -> None:
    world.api.lists["pods"].append(pod(9, "Succeeded"))
    assert verdicts(world.look()) == [Verdict.IN_USE, Verdict.IN_USE]
    assert EVERY_VOLUME not in world.asked()


# --------------------------------------------------------------------------------------------------
# Watchers on other nodes
# --------------------------------------------------------------------------------------------------


def shared(world: World) -> None:
    """Add a watcher on another node to an image that several nodes may write to."""
    world.api.lists["persistentvolumes"][0] = volume(
        0, accessModes=["ReadWriteMany"], volumeMode="Block"
    )
    world.watchers[spec_of(0)] = [watcher(), remote_watcher()]


def test_node_of_a_stranger_is_listed_once_then_requested(world: World) -> None:
    shared(world)
    for expected in ({EVERY_NODE}, {"/api/v1/nodes/worker-2"}, {"/api/v1/nodes/worker-2"}):
        (volume, _) = correlate_node(world.look())
        assert volume.holders[-1].node == "worker-2"
        assert expected == world.asked() - object_paths(0, 1)
        world.later()


def test_unknown_address_lists_the_nodes_once_an_hour(world: World) -> None:
    shared(world)
    del world.api.lists["nodes"][1]
    lists = 0
    for _ in range(24):
        seen = world.look()
        lists += EVERY_NODE in world.asked()
        world.later(300)
    assert lists == 2
    assert seen.kubernetes is not None
    assert str(remote_watcher().address) in seen.kubernetes.searched


def test_address_that_moves_to_another_node_is_searched_again(world: World) -> None:
    shared(world)
    world.look()
    world.api.lists["nodes"][1] = node("worker-3", "10.77.0.12")
    world.later()
    (volume, _) = correlate_node(world.look())
    assert volume.holders[-1].node == "worker-3"


def test_no_node_is_requested_without_another_watcher(world: World) -> None:
    world.look()
    assert not [path for path in world.asked() if "/nodes" in path]


def test_second_writer_is_a_conflict_after_all_pvs_were_searched(
    world: World,
) -> None:
    world.watchers[spec_of(0)] = [watcher(), remote_watcher()]
    seen = world.look()
    assert diagnose(correlate_node(seen)[0], seen).verdict is Verdict.CONFLICT
    assert {EVERY_VOLUME, EVERY_ATTACHMENT, EVERY_NODE} <= world.asked()
    seen = world.look()
    assert diagnose(correlate_node(seen)[0], seen).verdict is Verdict.CONFLICT
    assert not {EVERY_VOLUME, EVERY_ATTACHMENT, EVERY_NODE} & world.asked()


def test_another_volume_of_the_image_may_allow_a_second_writer(world: World) -> None:
    other = volume(0, accessModes=["ReadWriteMany"], volumeMode="Block", claimRef=None)
    other["metadata"] = {"name": "pv-shared", "uid": "u"}
    world.api.lists["persistentvolumes"].append(other)
    world.watchers[spec_of(0)] = [watcher(), remote_watcher()]
    for _ in range(2):
        seen = world.look()
        assert diagnose(correlate_node(seen)[0], seen).verdict is not Verdict.CONFLICT
        world.later()


def test_attachments_of_a_stranger_without_a_node_are_listed(
    world: World,
) -> None:
    world.watchers[spec_of(0)] = [watcher(), remote_watcher()]
    del world.api.lists["nodes"][1]
    world.api.lists["volumeattachments"].append(attachment(0, "worker-2"))
    for _ in range(2):
        (volume, _) = correlate_node(world.look())
        assert isinstance(volume.attachments, tuple)
        assert {attached.node_name for attached in volume.attachments} == {NODE, "worker-2"}
        world.later()


# --------------------------------------------------------------------------------------------------
# An agent
# --------------------------------------------------------------------------------------------------


def test_snapshot_by_name_uses_the_observed_node_and_no_list(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    roots = NodeRoots(procfs=tmp_path, sysfs=tmp_path, host_root=tmp_path)
    observed = contextlib.nullcontext(lambda: (world.node(), OBSERVED))
    monkeypatch.setattr(look_module, "_begin_node", lambda *_: observed)
    given: list[NodeView | None] = []

    def own(seen: NodeView | None) -> tuple[None, Source]:
        given.append(seen)
        return None, FAILED

    taken = look_module.collect_snapshot(ALL, settings_of(world, roots), now=lambda: NOW, own=own)
    assert given == [taken.node] == [world.node()]
    assert taken.sources.kubernetes.reason == FAILED.reason
    assert world.api.requests == []


def settings_of(world: World, roots: NodeRoots) -> Settings:
    return Settings(
        node_name=NODE,
        roots=roots,
        clusters=None,
        kube=world.access,
        timeout_s=10.0,
        version="test",
    )


def agent_of(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Agent:
    """Return an agent with fake observations of node and Ceph, and with requests to the API."""

    def look(
        asked: Target, _: Settings, *, kube: Any = None, own: Any = None, **__: Any
    ) -> Snapshot:
        if kube is None and own is None:
            kube = observe_kube(Connection(world.access), asked, node_name=NODE)
        return world.snapshot(*(kube or own(world.node())))

    monkeypatch.setattr(loop, "collect_snapshot", look)
    roots = NodeRoots(procfs=tmp_path, sysfs=tmp_path, host_root=tmp_path)
    wake: Any = None
    return Agent(
        settings_of(world, roots),
        UnmapContext(
            by="agent",
            policy=UnmapPolicy(may_unmap=False),
            freeze_file=tmp_path / "freeze",
            state=StateDir(tmp_path / "state"),
        ),
        wake,
        resync_s=60.0,
        clock=lambda: BootTime(at=NOW, uptime_s=world.now),
        report=lambda _: None,
        log=Log().logger,
    )


def requests_of_an_hour(world: World, agent: Agent) -> list[str]:
    """Run an agent for an hour of resyncs; return the requests after the first cycle."""
    agent._cycle("start")
    world.api.requests.clear()
    for _ in range(60):
        world.later(60)
        agent._cycle("time")
    return world.api.requests


@pytest.mark.timeout(120)
def test_idle_agent_makes_at_most_two_requests_a_minute(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What precedes the renewal of the Lease every five minutes counts; the watches do not.

    That are the RBDNode and one RBDMapping (test_restored_store.py).
    """
    world = World(world.api, tmp_path, 50)
    monkeypatch.setattr(get_by_name, "time", SimpleNamespace(monotonic=lambda: world.now))
    monkeypatch.setattr(loop, "time", SimpleNamespace(monotonic=lambda: world.now))
    asked = requests_of_an_hour(world, agent_of(world, tmp_path, monkeypatch))
    heartbeats = 3 * 60 / 5
    assert len(asked) + heartbeats <= 60 * 2
    assert not {EVERY_VOLUME, EVERY_NODE, EVERY_ATTACHMENT} & {*asked}


def test_every_object_is_requested_again_within_an_hour(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = requests_of_an_hour(world, agent_of(world, tmp_path, monkeypatch))
    assert object_paths(0, 1) <= {*asked}


def test_outcome_of_an_unmap_is_searched_in_all_objects(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = agent_of(world, tmp_path, monkeypatch)
    agent._cycle("start")
    assert EVERY_VOLUME not in world.api.requests
    act = UnmapRecord(
        boot_id="b001",
        begun=BootTime(at=NOW, uptime_s=world.now),
        by="root",
        identity=identity(),
        persistent_volume="pv-0",
        why="",
        outcome=UnmapOutcome.UNMAPPED,
        convergence=Convergence.PENDING,
    )
    agent._unmap_context.state.save_act(act)
    agent._cycle("change")
    assert EVERY_VOLUME in world.api.requests
