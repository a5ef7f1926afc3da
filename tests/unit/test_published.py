"""What an agent publishes, and what another node's answer makes of it."""

# ruff: noqa: ANN401 - as the builders

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import jsonschema
import pytest
import yaml
from msgspec.structs import replace

from rbdagent.correlate import correlate, correlate_node
from rbdagent.diagnose import diagnose
from rbdagent.model import (
    Act,
    Confidence,
    NotObserved,
    PublishedMapping,
    PublishedNode,
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
    FSID,
    IMAGE_ID,
    NOW,
    PV,
    SPEC,
    UNSEEN,
    mount,
    opener,
    pod,
    target,
    world,
)
from tests.unit.plans import history, identity, moment

Json = dict[str, Any]
CRD: Final = yaml.safe_load(
    (Path(__file__).parents[2] / "helm/rbdagent/crds/rbdnodes.yaml").read_text()
)
SCHEMA: Final[Json] = CRD["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
AN_HOUR_AGO: Final = "2026-11-21T02:00:00Z"


def node_world(**parts: Any) -> Snapshot:
    return world(target=target(given="", kind=TargetKind.NONE, name=""), **parts)


def status_of(seen: Snapshot, acts: tuple[Act, ...] = ()) -> Json:
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
    published = as_object(status_of(seen, (ACT,)))
    jsonschema.validate(published, SCHEMA)
    node = rbd_node(published)
    assert node.observed_at == NOW
    assert isinstance(node.mappings, NotObserved) is ("mappings" not in published["status"])


def test_a_published_orphan_says_whose_it_is_and_since_when() -> None:
    status = status_of(node_world(), (ACT,))
    (mapping,) = status["mappings"]
    assert (status["mapped"], status["orphaned"], status["problems"]) == (1, 1, 1)
    assert mapping["image"]["name"] == SPEC.name
    assert (mapping["clientID"], mapping["clientAddress"]) == (CLIENT, str(ADDRESS))
    assert (mapping["persistentVolume"], mapping["verdict"]) == (PV, "Orphaned")
    assert [each["outcome"] for each in status["acts"]] == ["unmapped"]


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
    assert "the agent on worker-1 said so" in judged.because[0]
    assert "RBD101" in {each.code for each in diagnosis.findings}
    assert diagnosis.next_commands[0].startswith("ssh worker-1 rbdagent")
    assert not any("unmap" in each for each in diagnosis.next_commands)


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
    (judged,) = diagnose(correlate(seen), seen).holders
    assert judged.holder.confidence is Confidence.PROBABLE
    assert judged.verdict is Verdict.UNDETERMINED


def test_another_image_of_the_same_client_names_the_node_alone() -> None:
    seen = from_worker_2(by_agent(image_id="another"))
    (judged,) = diagnose(correlate(seen), seen).holders
    assert judged.holder.confidence is Confidence.CERTAIN
    assert judged.verdict is Verdict.UNDETERMINED


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
