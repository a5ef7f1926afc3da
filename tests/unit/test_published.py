"""The report that an agent publishes, and its use in the output on another node."""

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
from rbdagent.correlate.image_identity import are_mappings_observed
from rbdagent.model import (
    BlocklistEntry,
    Confidence,
    Convergence,
    Diagnosis,
    ImagePresence,
    NotObserved,
    PluginSocket,
    PublishedMapping,
    PublishedNode,
    Severity,
    Snapshot,
    TargetKind,
    UnmapOutcome,
    UnmapRecord,
    Verdict,
)
from rbdagent.parse import labels
from rbdagent.parse.kubernetes import rbd_mapping, rbd_node
from rbdagent.report.rbdmapping import mapping_statuses
from rbdagent.report.rbdnode import rbdnode_object, rbdnode_status
from rbdagent.rules import diagnose
from rbdagent.verdicts.neighbours import neighbours
from tests.support import snapshots
from tests.support.snapshots import (
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
from tests.support.unmap_plans import history, identity, moment

Json = dict[str, Any]
CRD: Final = yaml.safe_load(
    (Path(__file__).parents[2] / "helm/rbdagent/files/rbdnodes.yaml").read_text()
)
SCHEMA: Final[Json] = CRD["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
AN_HOUR_AGO: Final = "2026-11-21T02:00:00Z"
IN_AN_HOUR: Final = "2026-11-21T04:00:00Z"


def node_world(**parts: Any) -> Snapshot:
    return world(target=target(argument="", kind=TargetKind.NONE, name=""), **parts)


def status_of(seen: Snapshot, acts: tuple[UnmapRecord, ...] | NotObserved = ()) -> Json:
    status: Json = object_of(seen, acts)["status"]
    return status


def object_of(seen: Snapshot, acts: tuple[UnmapRecord, ...] | NotObserved = ()) -> Json:
    """Return labels and status of an RBDNode, as an agent does."""
    diagnoses = [diagnose(use, seen) for use in correlate_node(seen)]
    mappings = mappings_of(seen) if are_mappings_observed(seen.node) else None
    return rbdnode_object(rbdnode_status(diagnoses, seen, acts), mappings)


def mappings_of(seen: Snapshot) -> list[Json]:
    diagnoses = [diagnose(use, seen) for use in correlate_node(seen)]
    return mapping_statuses(diagnoses, seen, history(of=identity()))


def as_object(body: Json) -> Json:
    """Return the RBDNode that the API server stores: a merge patch removes nulls."""
    status, given = body["status"], body["metadata"]["labels"]
    return {
        "apiVersion": "rbdagent.dev/v1alpha1",
        "kind": "RBDNode",
        "metadata": {"name": "worker-1", "creationTimestamp": AN_HOUR_AGO, "labels": given},
        "status": {key: value for key, value in status.items() if value is not None},
    }


ACT: Final = UnmapRecord(
    boot_id="b001",
    begun=moment(60),
    by="agent",
    identity=identity(),
    persistent_volume=PV,
    why="Orphaned",
    outcome=UnmapOutcome.UNMAPPED,
    message="/dev/rbd1 is unmapped",
    convergence=Convergence.BLOCKED,
    convergence_reasons=("kubelet does not run", "a pod waits"),
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
def test_published_status_is_valid_against_the_crd_schema(seen: Snapshot) -> None:
    of_no_volume = replace(ACT, persistent_volume=None, outcome=None, convergence=None)
    published = as_object(object_of(seen, (ACT, of_no_volume)))
    jsonschema.validate(published, SCHEMA)
    summary = rbd_node(published)
    assert summary.observed_at == NOW
    assert summary.mapped == published["status"].get("mapped")
    assert (summary.images is None) == (summary.mapped is None)


def test_unobserved_acts_are_left_out() -> None:
    published = as_object(object_of(node_world(), UNSEEN))
    assert "acts" not in published["status"]
    jsonschema.validate(published, SCHEMA)


def test_published_orphan_has_its_client_its_pv_and_its_act() -> None:
    status = status_of(node_world(), (ACT,))
    (mapping,) = mappings_of(node_world())
    assert (status["mapped"], status["orphaned"], status["problems"]) == (1, 1, 1)
    assert mapping["image"]["name"] == SPEC.name
    assert (mapping["clientID"], mapping["clientAddress"]) == (CLIENT, str(ADDRESS))
    assert (mapping["persistentVolume"], mapping["verdict"]) == (PV, "Orphaned")
    (act,) = status["acts"]
    assert (act["outcome"], act["convergence"]) == ("unmapped", "still-blocked")
    assert act["convergenceReasons"] == "kubelet does not run; a pod waits"


def test_unobserved_devices_are_null_and_not_an_empty_list() -> None:
    status = status_of(node_world(on_node={"mappings": UNSEEN}))
    assert (status["imageLabels"], status["mapped"]) == (None, None)
    assert status_of(node_world(on_node={"mappings": ()}))["imageLabels"] == 0


def test_clients_are_listed_if_all_are_known() -> None:
    assert status_of(node_world())["clients"] == [str(ADDRESS)]
    assert status_of(node_world(mapped={"client_address": None}))["clients"] is None
    assert status_of(node_world(on_node={"mappings": UNSEEN}))["clients"] is None


def test_labels_name_every_mapped_image_and_client() -> None:
    given = object_of(node_world())["metadata"]["labels"]
    assert labels.image_keys_in(given) == labels.mapping_keys(SPEC.name, IMAGE_ID, PV)
    assert given[labels.client_label(CLIENT)] == "rbd0"
    assert {labels.devices_in(value) for value in given.values()} == {("rbd0",)}
    unknown = object_of(node_world(mapped={"spec": UNSEEN, "image_id": None}))
    assert labels.image_keys_in(unknown["metadata"]["labels"]) == {labels.UNKNOWN_IMAGE}


def test_label_of_an_image_names_all_its_devices() -> None:
    image = {"name": "a", "id": "1"}
    mapped = [{"device": f"/dev/rbd{number}", "image": image} for number in (7, 0)]
    (name, of_id) = rbdnode_object({}, mapped)["metadata"]["labels"].values()
    assert name == of_id == "rbd0_rbd7"
    assert labels.devices_in(name) == ("rbd0", "rbd7")


def test_label_of_more_devices_than_a_value_holds_names_none() -> None:
    value = labels.devices_value(f"/dev/rbd{number}" for number in range(1000, 1010))
    assert len(value) <= 63
    assert labels.devices_in(value) is None


@pytest.mark.parametrize("device", ["rbd0", "nbd0"])
def test_device_of_an_unknown_image_has_the_label_of_any_image(device: str) -> None:
    """rbd-nbd takes no watch either if it maps read-only, or after it has lost its watch."""
    body = rbdnode_object({}, [{"device": f"/dev/{device}"}])
    labelled = {labels.image_label(labels.UNKNOWN_IMAGE): device}
    assert body == {"metadata": {"labels": labelled}, "status": {"imageLabels": 1}}


@pytest.mark.parametrize("given", [{}, {"image.rbdagent.dev/a": "rbd0", "app": "x"}])
def test_labels_that_another_writer_changed_do_not_count(given: dict[str, str]) -> None:
    published = as_object(object_of(node_world()))
    published["metadata"]["labels"] = given
    assert rbd_node(published).images is None


# --------------------------------------------------------------------------------------------------
# Observed from another node
# --------------------------------------------------------------------------------------------------


def from_worker_2(*published: PublishedNode, **parts: Any) -> Snapshot:
    in_kube = {"published": published} | parts.pop("in_kube", {})
    return snapshots.from_worker_2(in_kube=in_kube, **parts)


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
        reasons=("nothing uses it",),
    )
    return PublishedNode(name=name, observed_at=at, mappings=(replace(mapping, **changes),))


def test_published_client_makes_the_holder_certain() -> None:
    seen = from_worker_2(by_agent())
    diagnosis = diagnose(correlate(seen), seen)
    (judged,) = diagnosis.holders
    assert (judged.holder.node, judged.holder.confidence) == ("worker-1", Confidence.CERTAIN)
    assert judged.verdict is Verdict.ORPHANED
    assert "the agent on worker-1 reported /dev/rbd7" in judged.reasons[0]
    assert "RBD101" in {finding.code for finding in diagnosis.findings}
    assert lines_of(diagnosis.next_commands)[0].startswith("ssh worker-1 rbdagent")
    assert not any("unmap" in line for line in lines_of(diagnosis.next_commands))


def test_node_without_a_known_address_is_found_by_its_report() -> None:
    """Find the node with an overlay or a second network: no InternalIP is the client's address."""
    overlay = replace(ADDRESS, ip=OVERLAY.ip)
    seen = from_worker_2(
        by_agent(name="worker-9", client_address=overlay),
        of_image={"watchers": (remote_watcher(client=CLIENT, address=overlay),)},
    )
    (judged,) = diagnose(correlate(seen), seen).holders
    assert (judged.holder.node, judged.holder.confidence) == ("worker-9", Confidence.CERTAIN)


@pytest.mark.parametrize("others", [(), (PublishedNode(name="worker-1", observed_at=NOW),)])
def test_report_of_a_client_with_the_address_of_another_node_is_not_certain(
    others: tuple[PublishedNode, ...],
) -> None:
    """The agent of worker-9 may be compromised; that of worker-1 does not report the client."""
    seen = from_worker_2(by_agent(name="worker-9"), *others)
    diagnosis = diagnose(correlate(seen), seen)
    (judged,) = diagnosis.holders
    assert (judged.holder.node, judged.holder.confidence) == ("worker-1", Confidence.PROBABLE)
    assert judged.verdict is diagnosis.verdict is Verdict.UNDETERMINED
    assert "RBD125" in {finding.code for finding in diagnosis.findings}


def test_old_report_names_the_node_but_not_the_verdict() -> None:
    seen = from_worker_2(by_agent(at=AN_HOUR_AGO))
    (judged,) = diagnose(correlate(seen), seen).holders
    assert judged.holder.confidence is Confidence.CERTAIN
    assert judged.verdict is Verdict.UNDETERMINED
    reason = "the last report of the agent there is 60m old: Orphaned"
    assert reason in judged.reasons


def test_running_pod_outweighs_the_published_verdict() -> None:
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
def test_report_of_another_client_is_not_the_holder(changes: Json) -> None:
    seen = from_worker_2(by_agent(**changes))
    watching, *_ = diagnose(correlate(seen), seen).holders
    assert watching.holder.watcher is not None
    assert watching.holder.confidence is Confidence.PROBABLE
    assert watching.verdict is Verdict.UNDETERMINED


def both_claim(**parts: Any) -> Snapshot:
    """Return a snapshot in which two agents report the client of one watcher."""
    reports = by_agent(Verdict.UNWATCHED), by_agent(Verdict.IN_USE, name="worker-9")
    return from_worker_2(*parts.pop("reports", reports), **parts)


@pytest.mark.parametrize("is_first", [True, False])
def test_client_in_the_reports_of_two_nodes_is_on_neither_with_certainty(*, is_first: bool) -> None:
    reports = [by_agent(Verdict.UNWATCHED), by_agent(Verdict.IN_USE, name="worker-9")]
    seen = both_claim(reports=reports if is_first else reports[::-1], in_kube={"pods": (pod(),)})
    diagnosis = diagnose(correlate(seen), seen)
    (judged,) = diagnosis.holders
    assert judged.holder.confidence is Confidence.PROBABLE
    assert judged.verdict is diagnosis.verdict is Verdict.UNDETERMINED
    found = next(finding for finding in diagnosis.findings if finding.code == "RBD125")
    assert found.severity is Severity.ERROR
    assert f"worker-1 and worker-9 have the same client client.{CLIENT}" in found.message
    assert [line.split()[1] for line in lines_of(found.commands)] == ["worker-1", "worker-9"]
    assert "RBD106" not in {finding.code for finding in diagnosis.findings}


def test_client_without_a_watch_in_two_reports_is_certain_on_neither() -> None:
    reports = by_agent(Verdict.ORPHANED), by_agent(Verdict.IN_USE, name="worker-9")
    nodes = node(), node("worker-2"), node("worker-9", internal_ips=())
    seen = both_claim(of_image={"watchers": ()}, reports=reports, in_kube={"nodes": nodes})
    diagnosis = diagnose(correlate(seen), seen)
    assert {judged.holder.node for judged in diagnosis.holders} == {"worker-1", "worker-9"}
    for judged in diagnosis.holders:
        assert judged.holder.confidence is Confidence.PROBABLE
        assert judged.verdict is Verdict.UNDETERMINED
    assert [finding.code for finding in diagnosis.findings].count("RBD125") == 1


@pytest.mark.parametrize("is_first", [True, False])
def test_report_of_the_same_client_does_not_hide_danger(*, is_first: bool) -> None:
    """An agent that is compromised must not hide that the client of another node lost its watch."""
    reports = [by_agent(Verdict.UNWATCHED), by_agent(Verdict.IN_USE, name="worker-9")]
    if not is_first:
        reports.reverse()
    seen = both_claim(of_image={"watchers": ()}, reports=reports)
    diagnosis = diagnose(correlate(seen), seen)
    assert diagnosis.verdict is Verdict.UNWATCHED
    assert {"RBD105", "RBD125"} <= {finding.code for finding in diagnosis.findings}


def test_own_client_in_the_report_of_another_node_stays_certain_here() -> None:
    """The kernel shows it here; the report of the other agent is wrong, and no second holder."""
    seen = world(in_kube={"published": (by_agent(name="worker-2"),), "pods": (pod(),)})
    diagnosis = diagnose(correlate(seen), seen)
    (judged,) = diagnosis.holders
    assert (judged.holder.node, judged.holder.confidence) == ("worker-1", Confidence.CERTAIN)
    assert judged.verdict is diagnosis.verdict is Verdict.IN_USE
    codes = {finding.code for finding in diagnosis.findings}
    assert "RBD125" in codes
    assert "RBD106" not in codes


def test_other_image_of_the_same_client_names_only_the_node() -> None:
    seen = from_worker_2(by_agent(image_id="another", spec=replace(SPEC, name="another")))
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
def test_fact_known_only_on_the_node_is_reported_elsewhere(parts: Json, code: str) -> None:
    """Assert the finding: only the report of the agent has the fact, not the objects of the API."""
    (mapping,) = mappings_of(node_world(**parts, in_kube={**LISTED}))
    there = PublishedNode(name="worker-1", observed_at=NOW, mappings=(rbd_mapping(mapping),))
    seen = from_worker_2(there, in_kube=WAITS)
    findings = {finding.code: finding for finding in diagnose(correlate(seen), seen).findings}
    assert findings[code].severity is Severity.ERROR
    assert any("agent on worker-1" in line for line in findings[code].evidence)
    assert "RBD724" not in findings


def test_finding_in_an_hour_old_report_is_not_reported() -> None:
    seen = from_worker_2(by_agent(findings=("RBD109",), at=AN_HOUR_AGO))
    assert "RBD109" not in {finding.code for finding in diagnose(correlate(seen), seen).findings}


def test_deleted_image_is_reported_with_the_age_of_the_report() -> None:
    gone = {"presence": ImagePresence.GONE, "image_id": None, "watchers": ()}
    seen = from_worker_2(by_agent(Verdict.DEAD, at=LONG_AGO), of_image=gone)
    (found,) = (
        finding for finding in diagnose(correlate(seen), seen).findings if finding.code == "RBD301"
    )
    assert "It was mapped: the agent on worker-1 reported /dev/rbd7 " in found.message
    assert found.message.endswith(" ago.")


def test_recovery_by_a_remote_kubelet_is_conditional() -> None:
    """Assert the condition: Ready is the last report of kubelet, and the node was not observed."""
    seen = from_worker_2(in_kube=WAITS)
    (unmount_fails,) = (
        finding for finding in diagnose(correlate(seen), seen).findings if finding.code == "RBD724"
    )
    assert "not observed from here: whether kubelet and the CSI driver work on worker-1 now" in (
        unmount_fails.evidence
    )
    assert "once it is running, the CSI driver responds there" in str(unmount_fails.recovery)


# --------------------------------------------------------------------------------------------------
# A reported mapping without a watcher
# --------------------------------------------------------------------------------------------------


def unwatched_seen_from_worker_2(report: PublishedNode, **parts: Any) -> Diagnosis:
    """Return the diagnosis on worker-2 of an image, by default without a watcher."""
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
def test_reported_mapping_without_a_watcher_is_a_holder(case: str) -> None:
    diagnosis, expected = WITHOUT_WATCH[case]
    (judged,) = diagnosis.holders
    assert judged.holder.node == "worker-1"
    assert judged.holder.confidence is Confidence.CERTAIN
    assert (judged.verdict, diagnosis.verdict) == (expected, expected)
    assert "RBD118" not in {finding.code for finding in diagnosis.findings}


RETURNED: Final[dict[str, tuple[Json, Verdict]]] = {
    "its pod runs": ({"pods": (pod(),)}, Verdict.IN_USE),
    "no pod uses it": ({}, Verdict.UNDETERMINED),
}


@pytest.mark.parametrize("case", RETURNED)
def test_client_that_watches_again_after_its_blocklist_entry_is_not_dead(case: str) -> None:
    """The entry was removed before the kernel noticed the lost watch (observed in the lab)."""
    in_kube, expected = RETURNED[case]
    report = by_agent(Verdict.DEAD, read_only=False)
    diagnosis = unwatched_seen_from_worker_2(
        report, of_image={"watchers": (watcher(),)}, in_kube=in_kube
    )
    (judged,) = diagnosis.holders
    assert (judged.verdict, diagnosis.verdict) == (expected, expected)


def test_second_writer_without_a_watcher_is_a_conflict() -> None:
    """Assert the conflict on a third node: one watcher, and two nodes write (recording 30)."""
    seen = world(
        on_node={"node_name": "worker-3", "mappings": (), "addresses": ("10.77.0.13",)},
        of_image={"watchers": (remote_watcher(),)},
        in_kube={"published": (by_agent(Verdict.UNWATCHED, read_only=False),)},
    )
    diagnosis = diagnose(correlate(seen), seen)
    assert diagnosis.verdict is Verdict.CONFLICT
    assert {judged.holder.node for judged in diagnosis.holders} == {"worker-1", "worker-2"}


def test_old_report_is_no_holder_beside_an_observed_one() -> None:
    report = by_agent(at=AN_HOUR_AGO, name="worker-9", client_id=5)
    diagnosis = unwatched_seen_from_worker_2(report, of_image={"watchers": (watcher(),)})
    assert [judged.holder.node for judged in diagnosis.holders] == ["worker-1"]


# --------------------------------------------------------------------------------------------------
# A conflict, observed by the agent of a node with a mapping
# --------------------------------------------------------------------------------------------------


def by_agent_there(**changes: Any) -> PublishedNode:
    """Return the report of the agent on worker-2 about the client that worker-1 sees watching."""
    theirs = {"client_id": 4239, "client_address": REMOTE_ADDRESS, "read_only": False}
    known = {"verdict": Verdict.IN_USE, "name": "worker-2"}
    return by_agent(**{**known, **theirs, **changes})


def from_agent(*published: PublishedNode, **parts: Any) -> Snapshot:
    """Return a snapshot of the agent on worker-1, which lists no pods of other nodes."""
    in_kube = {"published": published, "pods": (pod(),), "pods_scope": "node/worker-1"}
    of_image = {"watchers": (watcher(), remote_watcher(**parts.pop("their_watch", {})))}
    return node_world(in_kube=in_kube | parts.pop("in_kube", {}), of_image=of_image, **parts)


def by_node(seen: Snapshot) -> Diagnosis:
    (use,) = correlate_node(seen)
    return diagnose(use, seen)


def of_conflict(diagnosis: Diagnosis) -> str:
    (found,) = (finding for finding in diagnosis.findings if finding.code == "RBD106")
    return "\n".join((found.message, *found.evidence))


OVERLAY: Final = replace(REMOTE_ADDRESS, ip="192.0.2.7")
BY_OVERLAY: Final[Json] = {"their_watch": {"address": OVERLAY}}


def test_conflict_by_the_address_of_a_client_is_probable() -> None:
    diagnosis = by_node(from_agent())
    assert diagnosis.verdict is Verdict.CONFLICT
    assert "probable: client.4239 has an address of worker-2" in of_conflict(diagnosis)
    assert "certain:" not in of_conflict(diagnosis)


def test_report_of_the_other_agent_makes_a_conflict_certain() -> None:
    diagnosis = by_node(from_agent(by_agent_there()))
    assert diagnosis.verdict is Verdict.CONFLICT
    assert "certain: /dev/rbd7 on worker-2 is client.4239, read-write" in of_conflict(diagnosis)
    assert "worker-1, worker-2 at the same time" in of_conflict(diagnosis)


@pytest.mark.parametrize(
    "reported",
    [
        by_agent_there(at=AN_HOUR_AGO),
        by_agent_there(image_id="another"),
        by_agent_there(read_only=None),
        by_agent_there(read_only=True),
    ],
    ids=["old", "another image", "not reported whether it writes", "reported as read-only"],
)
def test_inconclusive_report_makes_no_conflict_certain(
    reported: PublishedNode,
) -> None:
    """Assert the conflict: the watcher of the kernel client shows it, whatever is published."""
    diagnosis = by_node(from_agent(reported))
    assert diagnosis.verdict is Verdict.CONFLICT
    assert "certain:" not in of_conflict(diagnosis)


def test_client_with_an_unknown_address_needs_a_report() -> None:
    """Assert the conflict with a report only: an overlay address leads to no node."""
    assert by_node(from_agent(**BY_OVERLAY)).verdict is Verdict.IN_USE
    report = by_agent_there(client_address=OVERLAY)
    assert by_node(from_agent(report, **BY_OVERLAY)).verdict is Verdict.CONFLICT


def test_report_is_no_conflict_if_several_nodes_may_write() -> None:
    volumes = (volume(access_modes=("ReadWriteMany",), volume_mode="Block"),)
    diagnosis = by_node(from_agent(by_agent_there(), in_kube={"persistent_volumes": volumes}))
    assert diagnosis.verdict is Verdict.SHARED
    assert "RBD106" not in {finding.code for finding in diagnosis.findings}


def test_lingering_watcher_of_this_node_is_not_a_second_node() -> None:
    """Assert no conflict: the RBDNode of this node may still list a mapping that just ended."""
    gone = remote_watcher(address=replace(ADDRESS, nonce=77))
    own = by_agent(name="worker-1", client_id=gone.client, client_address=gone.address)
    seen = from_agent(own, their_watch={"address": gone.address})
    assert by_node(seen).verdict is not Verdict.CONFLICT


@pytest.mark.parametrize("verdict", [Verdict.SHARED, Verdict.CONFLICT, Verdict.FREE])
def test_published_verdict_that_is_invalid_here_is_ignored(verdict: Verdict) -> None:
    diagnosis = by_node(from_agent(by_agent_there(verdict=verdict)))
    assert [holder.verdict for holder in diagnosis.holders] == [
        Verdict.IN_USE,
        Verdict.UNDETERMINED,
    ]


def test_watcher_belongs_to_the_writable_mapping_of_a_client() -> None:
    reading, writing = by_agent_there(read_only=True), by_agent_there(device="/dev/rbd9")
    assert isinstance(reading.mappings, tuple)
    assert isinstance(writing.mappings, tuple)
    both = replace(reading, mappings=reading.mappings + writing.mappings)
    assert "certain: /dev/rbd9 on worker-2" in of_conflict(by_node(from_agent(both)))


def test_conflict_is_counted_as_a_problem_of_the_node() -> None:
    quiet = node_world(in_kube={"pods": (pod(),)})
    assert (status_of(quiet)["problems"], status_of(from_agent())["problems"]) == (0, 1)


NEIGHBOURS: Final[dict[str, tuple[Snapshot, tuple[str, ...]]]] = {
    "no other client watches": (node_world(), ()),
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
    "its watch is transient": (
        node_world(of_image={"transient_watchers": (remote_watcher(cookie=LIBRBD_COOKIE),)}),
        (),
    ),
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
def test_neighbours_are_the_nodes_that_may_conflict(case: str) -> None:
    seen, wanted = NEIGHBOURS[case]
    assert {name for use in correlate_node(seen) for name in neighbours(use, "worker-1")} == {
        *wanted
    }
