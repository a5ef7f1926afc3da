"""The answer on another node has the first line and the exit code of the mapping's own node."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest
from msgspec.structs import replace

from rbdagent.cli.output import exit_code
from rbdagent.collect.kube.list_reports import node_report, read_mapping
from rbdagent.correlate import correlate, correlate_node
from rbdagent.correlate.image_identity import mappings_of
from rbdagent.correlate.published_reports import keys_of
from rbdagent.correlate.volume_names import names_of_volume
from rbdagent.lifecycle.steps import lifecycle_of
from rbdagent.model import (
    NotObserved,
    ObjectRef,
    Pod,
    PublishedNode,
    Severity,
    Snapshot,
    TargetKind,
    Verdict,
    VolumeData,
)
from rbdagent.parse import kubernetes as read
from rbdagent.report.public import public_text
from rbdagent.report.rbdmapping import _is_large, mapping_statuses, rbdmapping_objects
from rbdagent.report.rbdnode import rbdnode_object, rbdnode_status
from rbdagent.report.text.headline import (
    culprits_first,
    first_lines,
    verdict_finding,
    verdict_statement,
)
from rbdagent.report.text.lifecycle import _first_lines, _word
from rbdagent.rules import diagnose
from rbdagent.verdicts.volume_traces import keys_of_traces
from tests.support.public_processes import published
from tests.support.rows import each_row
from tests.support.rule_rows.diagnose import DEAD_NBD, OWN_ENTRY, REPORTED
from tests.support.rule_rows.holder_verdicts import EXPECTED
from tests.support.snapshots import (
    POD_UID,
    SPEC,
    UNBACKED,
    UNSEEN,
    container,
    kube,
    mapping,
    mount,
    node,
    node_view,
    opener,
    pod,
    pod_directory,
    reported_by,
    staging,
    target,
    unmapped,
    waiting_pod,
    world,
)

if TYPE_CHECKING:
    from rbdagent.model import Diagnosis

OF_HOLDERS: Final = (
    "RBD100", "RBD101", "RBD102", "RBD103", "RBD104", "RBD105", "RBD107", "RBD109", "RBD110",
    "RBD114", "RBD115", "RBD119", "RBD120",
)  # fmt: skip
LOST: Final = {"mounts": (mount(path="/d", namespace=container()),)}


def is_published(seen: Snapshot) -> bool:
    """Return whether the answer on worker-1 is about a mapping that its agent can publish.

    Without the API, an agent publishes nothing.
    """
    node_seen = seen.node
    if seen.target.kind is TargetKind.DEVICE:
        # Its image is unknown, and the name of a device is valid only on its node.
        return False
    if node_seen is None or node_seen.node_name != "worker-1" or seen.kubernetes is None:
        return False
    holders = culprits_first(diagnose(correlate(seen), seen))
    return bool(holders) and holders[0].holder.mapping is not None


ROWS: Final = {
    f"{code}, {name}": seen for code in OF_HOLDERS for name, seen in REPORTED[code].items()
} | {f"{verdict}, {name}": seen for verdict, table in EXPECTED for name, seen in table.items()}


def replicas(count: int, name: str = "web-frontend-7d9c5b8f6d") -> tuple[Pod, ...]:
    """Return the pods of a Deployment that share a volume on one node."""
    uids = [f"{POD_UID[:-5]}{number:05d}" for number in range(count)]
    refs = [ObjectRef(namespace="default", name=f"{name}-{uid[-5:]}", uid=uid) for uid in uids]
    return tuple(pod(name=ref.name, ref=ref) for ref in refs)


def by_image(seen: Snapshot) -> Snapshot:
    """Return a snapshot whose target is valid on another node, too: a device is not."""
    if seen.target.kind is not TargetKind.DEVICE:
        return seen
    (mapped,) = mappings_of(seen.node)
    if isinstance(mapped.spec, NotObserved):
        return seen
    spec = mapped.spec
    return replace(
        seen, target=target(argument=str(spec), kind=TargetKind.IMAGE, name="", image=spec)
    )


CASES: Final[dict[str, Snapshot]] = {
    name: by_image(seen) for name, seen in ROWS.items() if is_published(by_image(seen))
} | {
    "not backed, with its mapping": world(
        on_node={"unbacked": (UNBACKED,)}, in_kube={"pods": (pod(),)}
    ),
    "in use": world(in_kube={"pods": (pod(),)}),
    "in use by a lost container": world(mapped=LOST),
    "in use by fifty pods": world(in_kube={"pods": replicas(50)}),
    "in use by pods with long names": world(in_kube={"pods": replicas(5, "web-of-a-tenant" * 16)}),
    "starting": world(in_kube={"pods": (waiting_pod(node="worker-1"),)}),
    "pinned, and a pod waits": world(
        mapped={"openers": (opener(),)}, in_kube={"pods": (waiting_pod(),)}
    ),
    "kernel lost its watch": world(mapped={"watch": False}),
    "blocklisted, in use": world(in_ceph={"blocklist": (OWN_ENTRY,)}, in_kube={"pods": (pod(),)}),
    "dead nbd, in use": world(
        on_node={"mappings": (DEAD_NBD,)},
        of_image={"watchers": ()},
        in_kube={"pods": (pod(),)},
    ),
    "dead nbd, replaced and in use": world(
        on_node={"mappings": (DEAD_NBD, mapping())}, in_kube={"pods": (pod(),)}
    ),
    "dead nbd that nothing uses": world(
        on_node={"mappings": (DEAD_NBD,)}, of_image={"watchers": ()}
    ),
    "back, and out of service": world(
        in_kube={"nodes": (node(out_of_service=True), node("worker-2"))}
    ),
    "openers not observed": world(mapped={"openers": UNSEEN}),
}


def statuses_of(seen: Snapshot) -> list[dict[str, object]]:
    """Return what the agent of the observed node publishes about the volume."""
    assert seen.node is not None
    diagnosis = diagnose(correlate(seen), seen)
    bodies = rbdmapping_objects(
        mapping_statuses((diagnosis,), seen, None),
        seen.node.node_name,
        observed_at=seen.observed_at,
    )
    return [body["status"] for body in bodies.values()]


def elsewhere(seen: Snapshot, **forged: str) -> Snapshot:
    """Return the snapshot of a third node, with what the agent of worker-1 published.

    Args:
        seen: the snapshot of worker-1.
        forged: changes of the published findings.
    """
    assert seen.node is not None
    published = tuple(read.rbd_mapping(status) for status in statuses_of(seen))
    mappings = tuple(
        replace(one, finding=replace(one.finding, **forged)) if one.finding else one
        for one in published
    )
    report = PublishedNode(
        name=seen.node.node_name, observed_at=seen.observed_at, mappings=mappings
    )
    view = seen.kubernetes or kube()
    other = node_view(node_name="worker-3", mappings=(), boot_id="b003", addresses=())
    return replace(seen, node=other, kubernetes=replace(view, published=(report,)))


def first_line(diagnosis: Diagnosis, seen: Snapshot) -> str:
    lead = verdict_finding(diagnosis)
    if lead is None:
        return str(verdict_statement(diagnosis))
    return first_lines(lead, diagnosis, seen)[0][0]


def severity_of_lead(diagnosis: Diagnosis) -> Severity | None:
    lead = verdict_finding(diagnosis)
    return None if lead is None else lead.severity


@each_row("name", CASES)
def test_another_node_gives_the_same_answer(name: str) -> None:
    here = published(CASES[name])
    there = elsewhere(here)
    ours, theirs = (diagnose(correlate(seen), seen) for seen in (here, there))
    assert theirs.verdict is ours.verdict
    assert severity_of_lead(ours) in {severity_of_lead(theirs), None}
    assert first_line(theirs, there) == public_text(first_line(ours, here))
    assert exit_code((theirs,), "error") == exit_code((ours,), "error")


@each_row("name", CASES)
def test_diagnose_on_another_node_begins_in_the_same_way(name: str) -> None:
    here = published(CASES[name])
    there = elsewhere(here)
    ours, theirs = (lifecycle_of(correlate(seen), seen) for seen in (here, there))
    assert _word(theirs)[0] == _word(ours)[0]
    (first, *_), (second, *_) = (
        _first_lines(lifecycle, seen)[0] for lifecycle, seen in ((ours, here), (theirs, there))
    )
    assert second == public_text(first)
    assert exit_code((theirs.diagnosis,), "error") == exit_code((ours.diagnosis,), "error")


LEFT: Final = {
    "pod directory": unmapped(of_kubelet={"staging": (), "pod_volumes": (pod_directory(),)}),
    "staging directory": unmapped(of_kubelet={"staging": (staging(path_present=True),)}),
    "not backed, pod not listed": unmapped(on_node={"unbacked": (UNBACKED,)}, in_kube={"pods": ()}),
    "directories not observed": unmapped(of_kubelet={"pod_volumes": UNSEEN}),
    "mounts not observed": unmapped(
        on_node={"mappings": (mapping(spec=replace(SPEC, name="a"), image_id="9", mounts=UNSEEN),)}
    ),
}
"""States of worker-1 in which the volume is not mapped, and not free."""


def with_every_report(seen: Snapshot) -> Snapshot:
    """Return the snapshot of a third node, to which each other node has reported.

    The report of worker-1 is read as readers do, from its RBDNode about this volume.
    """
    diagnoses = [diagnose(volume, seen) for volume in correlate_node(seen)]
    mappings = mapping_statuses(diagnoses, seen, None)
    status = rbdnode_status(diagnoses, seen, ())
    body = rbdnode_object(status, mappings, keys_of_traces(diagnoses, seen))
    item = {"metadata": {"name": "worker-1", **body["metadata"]}, "status": body["status"]}
    keys = keys_of(names_of_volume(correlate(seen)), ())
    summary = read.rbd_node(item)
    bodies = rbdmapping_objects(mappings, "worker-1", observed_at=seen.observed_at)
    found = [one for one in map(read_mapping, bodies.values()) if one.mapping.spec == SPEC]
    report = node_report("worker-1", summary, found, keys)
    there = elsewhere(seen)
    view = there.kubernetes or kube()
    nodes = (*view.nodes, node("worker-3")) if isinstance(view.nodes, tuple) else ()
    reports = (report, reported_by("worker-2"))
    return replace(there, kubernetes=replace(view, published=reports, nodes=nodes))


@pytest.mark.parametrize("name", LEFT)
def test_volume_that_is_not_free_on_its_node_is_free_on_no_other(name: str) -> None:
    """An RBDNode names the volumes that its node does not map, and may still use."""
    there = with_every_report(LEFT[name])
    assert diagnose(correlate(LEFT[name]), LEFT[name]).verdict is not Verdict.FREE
    assert diagnose(correlate(there), there).verdict is Verdict.UNDETERMINED


def test_volume_of_which_no_node_has_a_trace_is_free() -> None:
    there = with_every_report(unmapped())
    assert diagnose(correlate(there), there).verdict is Verdict.FREE


def test_mapped_volume_is_not_named_as_one_that_is_used_without_a_mapping() -> None:
    seen = world(of_kubelet={"staging": (staging(),), "pod_volumes": (pod_directory(),)})
    diagnoses = [diagnose(volume, seen) for volume in correlate_node(seen)]
    assert keys_of_traces(diagnoses, seen) == frozenset()


def test_volume_of_another_driver_is_not_named() -> None:
    other = VolumeData(driver="ebs.csi.aws.com", volume_handle="vol-1")
    seen = unmapped(of_kubelet={"staging": (), "pod_volumes": (pod_directory(volume_data=other),)})
    assert keys_of_traces((), seen) == frozenset()


@each_row("severity", ["info", "not a severity"])
@each_row("name", CASES)
def test_an_agent_cannot_lower_the_severity_of_its_finding(name: str, severity: str) -> None:
    here = published(CASES[name])
    there = elsewhere(here, severity=severity)
    ours, theirs = (diagnose(correlate(seen), seen) for seen in (here, there))
    assert theirs.verdict is ours.verdict
    assert exit_code((theirs,), "error") == exit_code((ours,), "error")


@pytest.mark.parametrize(
    ("severity", "shown"), [("info", Severity.WARNING), ("critical", Severity.CRITICAL)]
)
def test_a_finding_of_a_newer_agent_is_a_problem(severity: str, shown: Severity) -> None:
    there = elsewhere(CASES["in use"], code="RBD199", severity=severity)
    theirs = diagnose(correlate(there), there)
    assert theirs.verdict is Verdict.IN_USE
    (unknown,) = (found for found in theirs.findings if found.code == "RBD119")
    assert unknown.severity is shown
    assert f'reports RBD199 ({shown}), which this version of rbdagent does not know: "' in (
        unknown.message
    )


def test_a_mapping_is_never_reported_as_without_a_holder() -> None:
    there = elsewhere(CASES["in use"], code="RBD118", message="No client holds the volume.")
    theirs = diagnose(correlate(there), there)
    assert theirs.verdict is Verdict.IN_USE
    assert "RBD118" not in {found.code for found in theirs.findings}


def test_an_empty_sentence_is_replaced() -> None:
    there = elsewhere(CASES["not backed, with its mapping"], message="")
    assert "disk instead of the volume" in first_line(diagnose(correlate(there), there), there)


def test_every_verdict_that_a_node_gives_its_mappings_has_a_case() -> None:
    judged = {
        held.verdict
        for seen in CASES.values()
        for held, _ in diagnose(correlate(seen), seen).mapped
    }
    given = {
        Verdict.UNWATCHED, Verdict.RETURNED_DIRTY, Verdict.DEAD, Verdict.IN_USE,
        Verdict.UNDETERMINED, Verdict.STAGED, Verdict.PINNED, Verdict.ORPHANED, Verdict.FOREIGN,
    }  # fmt: skip
    assert judged == given


@each_row("name", CASES)
def test_published_finding_has_code_severity_and_one_sentence(name: str) -> None:
    for status in statuses_of(CASES[name]):
        found = status["finding"]
        assert isinstance(found, dict)
        assert set(found) == {"code", "severity", "message"}
        assert len(found["message"]) <= 300
        assert not _is_large({}, status)


def test_published_sentence_has_no_command_line() -> None:
    (status,) = statuses_of(published(CASES["pinned, and a pod waits"]))
    assert "100000" not in str(status)
    assert status["finding"]["message"].startswith("/dev/rbd0 on worker-1 is kept open: process")  # type: ignore[index]
