"""What an agent publishes, and what another node's answer makes of it."""

# ruff: noqa: ANN401 - as the builders

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import jsonschema
import pytest
import yaml
from msgspec.structs import replace

from rbdagent.commands import lines_of
from rbdagent.correlate import correlate, correlate_node
from rbdagent.diagnose import diagnose
from rbdagent.diagnose.neighbours import neighbours
from rbdagent.model import (
    Act,
    BlocklistEntry,
    Confidence,
    Diagnosis,
    Followed,
    ImagePresence,
    NotObserved,
    PluginSocket,
    PublishedMapping,
    PublishedNode,
    Severity,
    Snapshot,
    TargetKind,
    UnmapOutcome,
    Verdict,
)
from rbdagent.parse.kubernetes import rbd_node
from rbdagent.report.rbdnode import rbdnode_status
from rbdagent.report.text import published_names, published_table
from tests.unit.builders import (
    ADDRESS,
    CLIENT,
    DRIVER,
    FSID,
    IMAGE_ID,
    IN_USE_NAME,
    LIBRBD_COOKIE,
    LONG_AGO,
    NOW,
    PV,
    REMOTE_ADDRESS,
    SPEC,
    UNSEEN,
    attachment,
    container,
    mount,
    node,
    opener,
    pod,
    remote_watcher,
    target,
    volume,
    waiting_pod,
    watcher,
    world,
)
from tests.unit.plans import history, identity, moment

Json = dict[str, Any]
CRD: Final = yaml.safe_load(
    (Path(__file__).parents[2] / "helm/rbdagent/files/rbdnodes.yaml").read_text()
)
SCHEMA: Final[Json] = CRD["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
AN_HOUR_AGO: Final = "2026-11-21T02:00:00Z"
IN_AN_HOUR: Final = "2026-11-21T04:00:00Z"


def node_world(**parts: Any) -> Snapshot:
    return world(target=target(given="", kind=TargetKind.NONE, name=""), **parts)


def status_of(seen: Snapshot, acts: tuple[Act, ...] | NotObserved = ()) -> Json:
    diagnoses = [diagnose(each, seen) for each in correlate_node(seen)]
    return rbdnode_status(diagnoses, seen, history(of=identity()), acts)


def as_object(status: Json) -> Json:
    """Give what the API server keeps of a status: a merge patch takes nulls away."""
    return {
        "apiVersion": "rbdagent.dev/v1alpha1",
        "kind": "RBDNode",
        "metadata": {"name": "worker-1", "creationTimestamp": AN_HOUR_AGO},
        "status": {key: value for key, value in status.items() if value is not None},
    }


ACT: Final = Act(
    boot_id="b001",
    begun=moment(60),
    by="agent",
    identity=identity(),
    persistent_volume=PV,
    why="Orphaned",
    outcome=UnmapOutcome.UNMAPPED,
    message="/dev/rbd1 is unmapped",
    followed=Followed.BLOCKED,
    followed_because=("kubelet does not run", "a pod waits"),
)


@pytest.mark.parametrize(
    "seen",
    [
        node_world(),
        node_world(in_kube={"pods": (pod(),)}, mapped={"mounts": (mount(),)}),
        node_world(mapped={"openers": (opener(),)}),
        node_world(mapped={"mounts": UNSEEN, "openers": UNSEEN, "spec": UNSEEN}),
        node_world(on_node={"mappings": UNSEEN}),
        node_world(on_node={"mappings": ()}),
    ],
    ids=["orphan", "in use", "pinned", "half seen", "not seen", "nothing"],
)
def test_what_is_published_fits_the_schema_of_the_resource(seen: Snapshot) -> None:
    of_no_volume = replace(ACT, persistent_volume=None, outcome=None, followed=None)
    published = as_object(status_of(seen, (ACT, of_no_volume)))
    jsonschema.validate(published, SCHEMA)
    node = rbd_node(published)
    assert node.observed_at == NOW
    assert isinstance(node.mappings, NotObserved) is ("mappings" not in published["status"])


def test_acts_that_are_not_observed_are_left_out() -> None:
    status = status_of(node_world(), UNSEEN)
    assert "acts" not in as_object(status)["status"]
    jsonschema.validate(as_object(status), SCHEMA)


def test_a_published_orphan_says_whose_it_is_and_since_when() -> None:
    status = status_of(node_world(), (ACT,))
    (mapping,) = status["mappings"]
    assert (status["mapped"], status["orphaned"], status["problems"]) == (1, 1, 1)
    assert mapping["image"]["name"] == SPEC.name
    assert (mapping["clientID"], mapping["clientAddress"]) == (CLIENT, str(ADDRESS))
    assert (mapping["persistentVolume"], mapping["verdict"]) == (PV, "Orphaned")
    (act,) = status["acts"]
    assert (act["outcome"], act["followed"]) == ("unmapped", "still-blocked")
    assert act["followedBecause"] == "kubelet does not run; a pod waits"


def test_devices_that_were_not_observed_are_published_as_null_and_never_as_none() -> None:
    status = status_of(node_world(on_node={"mappings": UNSEEN}))
    assert (status["mappings"], status["mapped"]) == (None, None)
    assert status_of(node_world(on_node={"mappings": ()}))["mappings"] == []


# --------------------------------------------------------------------------------------------------
# Seen from another node
# --------------------------------------------------------------------------------------------------


def from_worker_2(*published: PublishedNode, **parts: Any) -> Snapshot:
    on_node = {"node_name": "worker-2", "mappings": (), "addresses": ("10.77.0.12",)}
    in_kube = {"published": published} | parts.pop("in_kube", {})
    return world(on_node=on_node, in_kube=in_kube, **parts)


def by_agent(
    verdict: Verdict = Verdict.ORPHANED, *, at: str = NOW, name: str = "worker-1", **changes: Any
) -> PublishedNode:
    mapping = PublishedMapping(
        device="/dev/rbd7",
        verdict=verdict,
        fsid=FSID,
        spec=SPEC,
        image_id=IMAGE_ID,
        client_id=CLIENT,
        client_address=ADDRESS,
        because=("nothing uses it",),
    )
    return PublishedNode(name=name, observed_at=at, mappings=(replace(mapping, **changes),))


def test_a_published_client_makes_the_holder_certain_with_its_device_and_verdict() -> None:
    seen = from_worker_2(by_agent())
    diagnosis = diagnose(correlate(seen), seen)
    (judged,) = diagnosis.holders
    assert (judged.holder.node, judged.holder.confidence) == ("worker-1", Confidence.CERTAIN)
    assert judged.verdict is Verdict.ORPHANED
    assert "the agent on worker-1 reported /dev/rbd7" in judged.because[0]
    assert "RBD101" in {each.code for each in diagnosis.findings}
    assert lines_of(diagnosis.next_commands)[0].startswith("ssh worker-1 rbdagent")
    assert not any("unmap" in each for each in lines_of(diagnosis.next_commands))


def test_a_node_that_no_address_leads_to_is_found_by_what_it_published() -> None:
    """An overlay or a second network: the InternalIP of no Node is the client's."""
    seen = from_worker_2(by_agent(name="worker-9"))
    (judged,) = diagnose(correlate(seen), seen).holders
    assert judged.holder.node == "worker-9"


def test_an_old_word_names_the_node_but_says_nothing_of_now() -> None:
    seen = from_worker_2(by_agent(at=AN_HOUR_AGO))
    (judged,) = diagnose(correlate(seen), seen).holders
    assert judged.holder.confidence is Confidence.CERTAIN
    assert judged.verdict is Verdict.UNDETERMINED
    assert any("last said Orphaned, 60m ago" in each for each in judged.because)


def test_a_pod_that_runs_there_outweighs_what_was_published() -> None:
    seen = from_worker_2(by_agent(), in_kube={"pods": (pod(),)})
    (judged,) = diagnose(correlate(seen), seen).holders
    assert judged.verdict is Verdict.IN_USE


@pytest.mark.parametrize(
    "changes",
    [
        {"client_id": 1},
        {"client_address": replace(ADDRESS, nonce=1)},
        {"client_address": None},
        {"fsid": "another"},
    ],
    ids=str,
)
def test_another_client_is_not_taken_for_the_holder(changes: Json) -> None:
    seen = from_worker_2(by_agent(**changes))
    watching, *_ = diagnose(correlate(seen), seen).holders
    assert watching.holder.watcher is not None
    assert watching.holder.confidence is Confidence.PROBABLE
    assert watching.verdict is Verdict.UNDETERMINED


def test_another_image_of_the_same_client_names_the_node_alone() -> None:
    seen = from_worker_2(by_agent(image_id="another"))
    (judged,) = diagnose(correlate(seen), seen).holders
    assert judged.holder.confidence is Confidence.CERTAIN
    assert judged.verdict is Verdict.UNDETERMINED


LOST: Final[Json] = {"mapped": {"mounts": (mount(path="/d", namespace=container()),)}}
DRIVER_DOWN: Final[Json] = {
    "mapped": {"mounts": (mount(),)},
    "of_kubelet": {"sockets": (PluginSocket(driver=DRIVER, path="/s", listening=False),)},
}
KUBELET_DOWN: Final[Json] = {"mapped": {"mounts": (mount(),)}, "of_kubelet": {"process": None}}
LISTED: Final[Json] = {
    "attachments": (attachment(),),
    "nodes": (node(volumes_in_use=(IN_USE_NAME,)), node("worker-2")),
}
WAITS: Final[Json] = {**LISTED, "pods": (waiting_pod(placed_at=LONG_AGO),)}


@pytest.mark.parametrize(
    ("parts", "code"),
    [(LOST, "RBD109"), (DRIVER_DOWN, "RBD201"), (KUBELET_DOWN, "RBD202")],
    ids=["lost pod", "driver down", "kubelet down"],
)
def test_what_only_the_node_sees_is_reported_from_another_node(parts: Json, code: str) -> None:
    """The API has neither the pod nor the driver's state: the node's agent publishes them."""
    there = rbd_node(as_object(status_of(node_world(**parts, in_kube={**LISTED}))))
    seen = from_worker_2(there, in_kube=WAITS)
    findings = {each.code: each for each in diagnose(correlate(seen), seen).findings}
    assert findings[code].severity is Severity.ERROR
    assert "The agent on worker-1 reports" in findings[code].message
    assert "RBD724" not in findings


def test_what_an_agent_reported_an_hour_ago_is_no_finding_of_now() -> None:
    seen = from_worker_2(by_agent(findings=("RBD109",), at=AN_HOUR_AGO))
    assert "RBD109" not in {each.code for each in diagnose(correlate(seen), seen).findings}


def test_a_deleted_image_is_reported_with_the_agents_report_and_its_age() -> None:
    gone = {"presence": ImagePresence.GONE, "image_id": None, "watchers": ()}
    seen = from_worker_2(by_agent(Verdict.DEAD, at=LONG_AGO), of_image=gone)
    (found,) = (each for each in diagnose(correlate(seen), seen).findings if each.code == "RBD301")
    assert "It was mapped: the agent on worker-1 reported /dev/rbd7 " in found.message
    assert found.message.endswith(" ago.")


def test_an_unmount_that_is_not_done_elsewhere_is_promised_by_no_kubelet() -> None:
    """Ready is what kubelet last said: neither it nor its CSI driver was looked at."""
    seen = from_worker_2(in_kube=WAITS)
    (told,) = (each for each in diagnose(correlate(seen), seen).findings if each.code == "RBD724")
    assert "not observed from here: whether kubelet and the CSI driver work on worker-1 now" in (
        told.evidence
    )
    assert "once it runs, the CSI driver answers there" in str(told.heals)


# --------------------------------------------------------------------------------------------------
# A mapping that an agent reports and that has no watch
# --------------------------------------------------------------------------------------------------


def unwatched_seen_from_worker_2(report: PublishedNode, **parts: Any) -> Diagnosis:
    """Return the answer on worker-2 about an image that has no watcher at all."""
    of_image = {"watchers": ()} | parts.pop("of_image", {})
    seen = from_worker_2(report, of_image=of_image, **parts)
    return diagnose(correlate(seen), seen)


TAINTED: Final = replace(node(), out_of_service=True)
CUT_OFF: Final = replace(node(), ready=None)
WITHOUT_WATCH: Final[dict[str, tuple[Diagnosis, Verdict]]] = {
    "its agent saw that the watch is gone": (
        unwatched_seen_from_worker_2(by_agent(Verdict.UNWATCHED, read_only=False)),
        Verdict.UNWATCHED,
    ),
    "the same, and its pod runs": (
        unwatched_seen_from_worker_2(
            by_agent(Verdict.UNWATCHED, read_only=False), in_kube={"pods": (pod(),)}
        ),
        Verdict.UNWATCHED,
    ),
    "its agent saw a blocklist entry that is gone now": (
        unwatched_seen_from_worker_2(by_agent(Verdict.DEAD, read_only=False)),
        Verdict.UNWATCHED,
    ),
    "its agent saw a blocklist entry that is still there": (
        unwatched_seen_from_worker_2(
            by_agent(Verdict.DEAD, read_only=False),
            in_ceph={
                "blocklist": (
                    BlocklistEntry(network=ADDRESS.ip, port=0, nonce=ADDRESS.nonce, until=NOW),
                )
            },
        ),
        Verdict.DEAD,
    ),
    "in use, and its watch is gone since": (
        unwatched_seen_from_worker_2(by_agent(Verdict.IN_USE, read_only=False)),
        Verdict.UNDETERMINED,
    ),
    "in use, and its pod runs": (
        unwatched_seen_from_worker_2(
            by_agent(Verdict.IN_USE, read_only=False), in_kube={"pods": (pod(),)}
        ),
        Verdict.IN_USE,
    ),
    "in use read-only, which takes no watch": (
        unwatched_seen_from_worker_2(by_agent(Verdict.IN_USE, read_only=True)),
        Verdict.IN_USE,
    ),
    "in use, and Ceph does not answer": (
        unwatched_seen_from_worker_2(by_agent(Verdict.IN_USE, read_only=False), ceph=None),
        Verdict.IN_USE,
    ),
    "its node is cut off": (
        unwatched_seen_from_worker_2(
            by_agent(Verdict.IN_USE), in_kube={"nodes": (CUT_OFF, node("worker-2"))}
        ),
        Verdict.NODE_DOWN,
    ),
    "its node is tainted out-of-service and alive": (
        unwatched_seen_from_worker_2(
            by_agent(Verdict.IN_USE), in_kube={"nodes": (TAINTED, node("worker-2"))}
        ),
        Verdict.RETURNED_DIRTY,
    ),
    "its Node is deleted": (
        unwatched_seen_from_worker_2(
            by_agent(Verdict.IN_USE, at=AN_HOUR_AGO), in_kube={"nodes": (node("worker-2"),)}
        ),
        Verdict.NODE_DOWN,
    ),
    "its agent reported an hour ago": (
        unwatched_seen_from_worker_2(by_agent(Verdict.IN_USE, at=AN_HOUR_AGO)),
        Verdict.UNDETERMINED,
    ),
    "its agent's clock is an hour ahead": (
        unwatched_seen_from_worker_2(by_agent(Verdict.UNWATCHED, at=IN_AN_HOUR)),
        Verdict.UNDETERMINED,
    ),
    "by the name of its PV alone": (
        unwatched_seen_from_worker_2(
            by_agent(Verdict.UNWATCHED, spec=None, image_id=None, persistent_volume=PV)
        ),
        Verdict.UNWATCHED,
    ),
}


@pytest.mark.parametrize("case", WITHOUT_WATCH)
def test_a_reported_mapping_without_a_watch_is_a_holder(case: str) -> None:
    diagnosis, expected = WITHOUT_WATCH[case]
    (judged,) = diagnosis.holders
    assert judged.holder.node == "worker-1"
    assert judged.holder.confidence is Confidence.CERTAIN
    assert (judged.verdict, diagnosis.verdict) == (expected, expected)
    assert "RBD118" not in {finding.code for finding in diagnosis.findings}


def test_a_second_writer_that_lost_its_watch_is_a_conflict_from_every_node() -> None:
    """Recorded (30): the image shows one watcher, and two nodes write."""
    seen = world(
        on_node={"node_name": "worker-3", "mappings": (), "addresses": ("10.77.0.13",)},
        of_image={"watchers": (remote_watcher(),)},
        in_kube={"published": (by_agent(Verdict.UNWATCHED, read_only=False),)},
    )
    diagnosis = diagnose(correlate(seen), seen)
    assert diagnosis.verdict is Verdict.CONFLICT
    assert {judged.holder.node for judged in diagnosis.holders} == {"worker-1", "worker-2"}


def test_an_old_report_is_no_holder_beside_one_that_is_seen() -> None:
    report = by_agent(at=AN_HOUR_AGO, name="worker-9", client_id=5)
    diagnosis = unwatched_seen_from_worker_2(report, of_image={"watchers": (watcher(),)})
    assert [judged.holder.node for judged in diagnosis.holders] == ["worker-1"]


# --------------------------------------------------------------------------------------------------
# A conflict, seen by the agent of one of its nodes
# --------------------------------------------------------------------------------------------------


def by_agent_there(**changes: Any) -> PublishedNode:
    """Give the word of worker-2's agent, on the client whose watch worker-1 sees."""
    theirs = {"client_id": 4239, "client_address": REMOTE_ADDRESS, "read_only": False}
    known = {"verdict": Verdict.IN_USE, "name": "worker-2"}
    return by_agent(**{**known, **theirs, **changes})


def from_agent(*published: PublishedNode, **parts: Any) -> Snapshot:
    """Give the look of worker-1's agent, which lists no pods of other nodes."""
    in_kube = {"published": published, "pods": (pod(),), "pods_scope": "node/worker-1"}
    of_image = {"watchers": (watcher(), remote_watcher(**parts.pop("their_watch", {})))}
    return node_world(in_kube=in_kube | parts.pop("in_kube", {}), of_image=of_image, **parts)


def by_node(seen: Snapshot) -> Diagnosis:
    (use,) = correlate_node(seen)
    return diagnose(use, seen)


def of_conflict(diagnosis: Diagnosis) -> str:
    (found,) = (each for each in diagnosis.findings if each.code == "RBD106")
    return "\n".join((found.message, *found.evidence))


OVERLAY: Final = replace(REMOTE_ADDRESS, ip="192.0.2.7")
BY_OVERLAY: Final[Json] = {"their_watch": {"address": OVERLAY}}


def test_a_kernel_client_at_another_node_s_address_is_a_conflict_that_is_probable() -> None:
    diagnosis = by_node(from_agent())
    assert diagnosis.verdict is Verdict.CONFLICT
    assert "probable: client.4239 has an address of worker-2" in of_conflict(diagnosis)
    assert "certain:" not in of_conflict(diagnosis)


def test_the_word_of_the_other_node_s_agent_makes_a_conflict_certain() -> None:
    diagnosis = by_node(from_agent(by_agent_there()))
    assert diagnosis.verdict is Verdict.CONFLICT
    assert "certain: /dev/rbd7 on worker-2 is client.4239, read-write" in of_conflict(diagnosis)
    assert "worker-1, worker-2 at once" in of_conflict(diagnosis)


@pytest.mark.parametrize(
    "told",
    [
        by_agent_there(at=AN_HOUR_AGO),
        by_agent_there(image_id="another"),
        by_agent_there(read_only=None),
        by_agent_there(read_only=True),
    ],
    ids=["old", "another image", "not told whether it writes", "told to be read-only"],
)
def test_a_word_that_is_old_or_does_not_tell_makes_no_conflict_certain(
    told: PublishedNode,
) -> None:
    """The kernel client's watch is one all the same: whatever is published, it is not silenced."""
    diagnosis = by_node(from_agent(told))
    assert diagnosis.verdict is Verdict.CONFLICT
    assert "certain:" not in of_conflict(diagnosis)


def test_a_client_of_no_known_address_conflicts_once_its_agent_has_told_of_it() -> None:
    """An overlay or a second network: nobody knows whose it is without."""
    assert by_node(from_agent(**BY_OVERLAY)).verdict is Verdict.IN_USE
    told = by_agent_there(client_address=OVERLAY)
    assert by_node(from_agent(told, **BY_OVERLAY)).verdict is Verdict.CONFLICT


def test_where_several_may_write_nothing_that_is_published_is_a_conflict() -> None:
    volumes = (volume(access_modes=("ReadWriteMany",), volume_mode="Block"),)
    diagnosis = by_node(from_agent(by_agent_there(), in_kube={"persistent_volumes": volumes}))
    assert diagnosis.verdict is Verdict.SHARED
    assert "RBD106" not in {each.code for each in diagnosis.findings}


def test_a_watch_of_this_node_that_lingers_is_no_second_node() -> None:
    """Its own RBDNode may still tell of the mapping that has just gone."""
    gone = remote_watcher(address=replace(ADDRESS, nonce=77))
    own = by_agent(name="worker-1", client_id=gone.client, client_address=gone.address)
    seen = from_agent(own, their_watch={"address": gone.address})
    assert by_node(seen).verdict is not Verdict.CONFLICT


@pytest.mark.parametrize("verdict", [Verdict.SHARED, Verdict.CONFLICT, Verdict.FREE])
def test_a_verdict_that_no_holder_can_have_is_not_taken_over(verdict: Verdict) -> None:
    diagnosis = by_node(from_agent(by_agent_there(verdict=verdict)))
    assert [each.verdict for each in diagnosis.holders] == [Verdict.IN_USE, Verdict.UNDETERMINED]


def test_a_client_that_has_the_image_twice_watches_it_for_the_one_that_writes() -> None:
    reading, writing = by_agent_there(read_only=True), by_agent_there(device="/dev/rbd9")
    assert isinstance(reading.mappings, tuple)
    assert isinstance(writing.mappings, tuple)
    both = replace(reading, mappings=reading.mappings + writing.mappings)
    assert "certain: /dev/rbd9 on worker-2" in of_conflict(by_node(from_agent(both)))


def test_a_conflict_is_a_problem_of_the_node_that_publishes_it() -> None:
    quiet = node_world(in_kube={"pods": (pod(),)})
    assert (status_of(quiet)["problems"], status_of(from_agent())["problems"]) == (0, 1)


NEIGHBOURS: Final[dict[str, tuple[Snapshot, tuple[str, ...]]]] = {
    "nobody else watches": (node_world(), ()),
    "another node's client": (from_agent(), ("worker-2",)),
    "an orphan here, another client there": (from_agent(in_kube={"pods": ()}), ("worker-2",)),
    "an address of no node leads to where the volume is attached": (
        from_agent(
            in_kube={"attachments": (attachment(), attachment("worker-2"), attachment("w-3"))},
            **BY_OVERLAY,
        ),
        ("w-3", "worker-2"),
    ),
    "an address of no node, and attachments were not observed": (
        from_agent(in_kube={"attachments": UNSEEN}, **BY_OVERLAY),
        (),
    ),
    "librbd's, for an nbd device or a shell": (
        from_agent(their_watch={"cookie": LIBRBD_COOKIE}),
        ("worker-2",),
    ),
    "it only passes by": (node_world(of_image={"passing_watchers": (remote_watcher(),)}), ()),
    "several may write": (
        from_agent(
            in_kube={
                "persistent_volumes": (
                    volume(access_modes=("ReadWriteMany",), volume_mode="Block"),
                )
            }
        ),
        (),
    ),
    "this node only reads": (from_agent(mapped={"read_only": True}), ()),
    "whether this node writes was not observed": (
        from_agent(mapped={"read_only": UNSEEN}),
        ("worker-2",),
    ),
    "watchers were not observed": (node_world(of_image={"watchers": UNSEEN}), ()),
}


@pytest.mark.parametrize("case", NEIGHBOURS)
def test_only_who_may_conflict_with_this_node_is_asked_what_he_published(case: str) -> None:
    seen, wanted = NEIGHBOURS[case]
    assert {name for use in correlate_node(seen) for name in neighbours(use, "worker-1")} == {
        *wanted
    }


# --------------------------------------------------------------------------------------------------
# list -A
# --------------------------------------------------------------------------------------------------


def test_the_list_of_all_nodes_tells_how_old_each_word_is() -> None:
    unseen = PublishedNode(
        name="worker-3", observed_at=NOW, mappings=NotObserved(reason="no devices seen")
    )
    table = published_table(
        [by_agent(), by_agent(at=AN_HOUR_AGO, name="worker-2"), unseen],
        now=NOW,
        wide=False,
        colour=False,
    )
    lines = table.splitlines()
    assert lines[1].split()[:3] == ["worker-1", "/dev/rbd7", "Orphaned"]
    assert "worker-2: last heard of 60m ago: what is mapped there now is not known" in lines
    assert "worker-3: not observed: no devices seen (asked 0s ago)" in lines
    assert published_names([by_agent(), unseen]) == "worker-1 /dev/rbd7\n"


def test_nothing_published_is_not_told_as_nothing_mapped() -> None:
    assert "No agent has published" in published_table([], now=NOW, wide=False, colour=False)
    unseen = PublishedNode(name="a", observed_at=NOW, mappings=NotObserved(reason="denied"))
    table = published_table([unseen], now=NOW, wide=False, colour=False)
    assert "Nothing is mapped on the 0 nodes" in table
    assert "a: not observed" in table
