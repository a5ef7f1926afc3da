"""Recorded nodes, observed and diagnosed: the data of real systems leads to the right verdict.

A row is one snapshot: a recording (``tests/fixtures/recordings``), the claim of the volume, and the
node that takes the snapshot. The content of the recording determines which verdict is right.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import jsonschema
import msgspec
import pytest

from rbdagent.correlate import correlate, correlate_waiting
from rbdagent.lifecycle.blocked_pods import blocked_volumes
from rbdagent.lifecycle.steps import lifecycle_of
from rbdagent.model import (
    CODES_OF_GAPS,
    Diagnosis,
    LifecycleStep,
    NotObserved,
    Severity,
    Snapshot,
    SourceState,
    StepState,
    Verdict,
)
from rbdagent.report.json.holders import holder_report
from rbdagent.report.schema import schema
from rbdagent.report.snapshot import dump_snapshot, load_snapshot
from rbdagent.report.text.lifecycle import headline
from rbdagent.rules import diagnose
from tests.support.consistency import advice_that_loses_data, contradictions
from tests.support.recordings import recorded_snapshot

if TYPE_CHECKING:
    from pathlib import Path

ORPHAN: Final = frozenset({"RBD101", "RBD110"})
"""Findings that lead a user to remove the volume from the node."""
TROUBLE: Final = ORPHAN | {"RBD102", "RBD103", "RBD104", "RBD105", "RBD106", "RBD107", "RBD108"}


@dataclass(frozen=True, kw_only=True)
class Look:
    """One snapshot and its expected diagnosis."""

    recording: str
    claim: str
    node: str = "n1"
    later: int = 0
    """Minutes after the recording; nothing changed in this time."""
    verdict: Verdict
    here: tuple[Verdict, ...]
    """The verdicts on the holders of the node that takes the snapshot."""
    says: frozenset[str] = frozenset()
    never: frozenset[str] = ORPHAN

    def __str__(self) -> str:
        later = f"-{self.later}-minutes-later" if self.later else ""
        return f"{self.recording}:{self.claim}-from-{self.node}{later}"


def codes(*numbers: int) -> frozenset[str]:
    return frozenset(f"RBD{number}" for number in numbers)


IN_USE, STAGED, ORPHANED, PINNED = (
    Verdict.IN_USE, Verdict.STAGED, Verdict.ORPHANED, Verdict.PINNED,
)  # fmt: skip
DEAD, UNWATCHED, SHARED, CONFLICT = (
    Verdict.DEAD, Verdict.UNWATCHED, Verdict.SHARED, Verdict.CONFLICT,
)  # fmt: skip

HEALTHY: Final = (
    ("01-fs-running", "c1", "n1"),
    ("03-block-running", "cb", "n1"),
    ("20-nbd-running", "cn", "n2"),
    ("21-enc-running", "ce", "n1"),
    ("21-enc-dm-held", "cx", "n1"),
    ("22-xfs-running", "cx", "n1"),
    ("22-xfs-running", "ce", "n1"),
    ("24-read-only-and-shared", "cr", "n1"),
    ("24-read-only-and-shared", "cl", "n2"),
    ("27-after-hang-b", "ch", "n1"),
    ("27-after-hang-b", "cm", "n1"),
)
"""A pod runs with the volume on the node that takes the snapshot, and nothing is wrong."""

ELSEWHERE: Final = (
    ("09b-pinned", "c7", "n1"),
    ("15-plugin-stopped", "c12", "n1"),
    ("18-staging-left-mounted", "c1", "n1"),
    ("24-read-only-and-shared", "cl", "n1"),
)
"""A pod runs with the volume on the other node, and nothing is wrong."""

LOOKS: Final = (
    *(
        Look(recording=recording, claim=claim, node=node, verdict=IN_USE, here=(IN_USE,),
             says=codes(100), never=TROUBLE)
        for recording, claim, node in HEALTHY
    ),
    *(
        Look(recording=recording, claim=claim, node=node, verdict=IN_USE, here=(),
             says=codes(100), never=TROUBLE)
        for recording, claim, node in ELSEWHERE
    ),
    # Deleted by force while kubelet is down: the container continues to write, possibly for hours.
    Look(recording="05-force-delete-kubelet-stopped", claim="c1", verdict=IN_USE, here=(IN_USE,),
         says=codes(109, 202), never=TROUBLE | codes(100)),
    Look(recording="05-force-delete-kubelet-stopped", claim="c1", later=120, verdict=IN_USE,
         here=(IN_USE,), says=codes(109, 202), never=TROUBLE | codes(100)),
    # Since then the controller has detached it by force; the second pod waits on n2.
    Look(recording="06-after-6min-force-detach", claim="c1", verdict=IN_USE, here=(IN_USE,),
         says=codes(109, 202, 402), never=TROUBLE | codes(100)),
    # A bind mount in another mount namespace; Multi-Attach.
    Look(recording="09b-pinned", claim="c1", verdict=PINNED, here=(PINNED,), says=codes(102, 401)),
    Look(recording="09b-pinned", claim="c1", later=120, verdict=PINNED, here=(PINNED,),
         says=codes(102, 401)),
    # A working directory in a detached mount: no mountinfo shows it.
    Look(recording="12-pinned-by-cwd-invisible", claim="c12", verdict=PINNED, here=(PINNED,),
         says=codes(102)),
    # kubelet no longer knows the volume: the volume has no attachment, and is still pinned.
    Look(recording="13-after-kubelet-restart", claim="c12", verdict=PINNED, here=(PINNED,),
         says=codes(102, 402)),
    Look(recording="13-after-kubelet-restart", claim="c12", later=120, verdict=PINNED,
         here=(PINNED,), says=codes(102, 402)),
    # The driver is down, so both mounts stay: kubelet keeps the volume, however long this lasts.
    Look(recording="15-plugin-stopped", claim="c1", verdict=STAGED, here=(STAGED,),
         says=codes(201, 401), never=ORPHAN | codes(109)),
    Look(recording="15-plugin-stopped", claim="c1", later=120, verdict=STAGED, here=(STAGED,),
         says=codes(201, 401)),
    # kubelet restarted between unpublish and unstage: an orphan once the grace period is over.
    Look(recording="18-staging-left-mounted", claim="c7", verdict=STAGED, here=(STAGED,),
         says=codes(120)),
    Look(recording="18-staging-left-mounted", claim="c7", later=30, verdict=ORPHANED,
         here=(ORPHANED,), says=codes(110), never=codes(101)),
    # rbd-nbd was killed under a running pod; later its device remains, with pid and backend.
    Look(recording="20-nbd-killed", claim="cn", node="n2", verdict=DEAD, here=(DEAD,),
         says=codes(104), never=ORPHAN | codes(100)),
    Look(recording="24-read-only-and-shared", claim="cn", node="n2", verdict=DEAD, here=(DEAD,),
         says=codes(104)),
    Look(recording="28-orphan-blocks-delete", claim="cn", node="n2", verdict=DEAD, here=(DEAD,),
         says=codes(104)),
    # A process holds the LUKS mapping open, or a file of a lazily unmounted file system.
    Look(recording="21-enc-dm-held", claim="ce", verdict=PINNED, here=(PINNED,), says=codes(102)),
    Look(recording="22-xfs-lazy", claim="cx", verdict=PINNED, here=(PINNED,), says=codes(102)),
    # An ordinary detach: the image is unmapped, and the attachment is not deleted yet.
    Look(recording="22-xfs-lazy", claim="ce", verdict=STAGED, here=(), says=codes(120),
         never=ORPHAN | codes(408)),
    # One entry of the blocklist makes both volumes of the node fail.
    Look(recording="23-blocklisted", claim="cb1", verdict=DEAD, here=(DEAD,), says=codes(103),
         never=ORPHAN | codes(100, 105)),
    Look(recording="23-blocklisted", claim="cb2", verdict=DEAD, here=(DEAD,), says=codes(103),
         never=ORPHAN | codes(100, 105)),
    # ReadOnlyMany (no watches), and ReadWriteMany on raw block devices: two nodes are allowed.
    *(
        Look(recording="24-read-only-and-shared", claim=claim, node=node, verdict=SHARED,
             here=(IN_USE,), says=codes(114), never=TROUBLE)
        for claim in ("crox", "crwx")
        for node in ("n1", "n2")
    ),
    # The rollback of ceph-csi: while the pod waits, and after the pod is gone.
    Look(recording="25-rollback-failing", claim="cl", verdict=STAGED, here=(STAGED,),
         says=codes(102, 751)),
    Look(recording="25-after", claim="cl", verdict=ORPHANED, here=(ORPHANED,), says=codes(101),
         never=codes(102, 110)),
    # The container was restarted on the directory without the mount.
    Look(recording="26-not-backed", claim="cz", verdict=Verdict.NOT_BACKED, here=(IN_USE,),
         says=codes(108), never=ORPHAN | codes(100)),
    # The claim is deleted, but an orphan on n2 keeps its image.
    Look(recording="28-orphan-blocks-delete", claim="cq", node="n2", verdict=ORPHANED,
         here=(ORPHANED,), says=codes(101, 641), never=codes(102, 110)),
    # The blocklist entry was removed: n1 writes without a watch, and pv-dup let n2 write as well.
    # Two nbd devices have one cookie: the first lost its process, and the second took over.
    Look(recording="30-two-writers-after-blocklist-rm", claim="cn", node="n2", verdict=IN_USE,
         here=(DEAD, IN_USE), says=codes(100, 104), never=ORPHAN | codes(416)),
    Look(recording="30-two-writers-after-blocklist-rm", claim="ch", verdict=CONFLICT,
         here=(UNWATCHED,), says=codes(105, 106), never=ORPHAN | codes(103)),
    Look(recording="30-two-writers-after-blocklist-rm", claim="cm", verdict=UNWATCHED,
         here=(UNWATCHED,), says=codes(105), never=ORPHAN | codes(103, 106)),
    Look(recording="30-two-writers-after-blocklist-rm", claim="ch", node="n2", verdict=CONFLICT,
         here=(IN_USE,), says=codes(106, 416)),
    Look(recording="30-two-writers-after-blocklist-rm", claim="cdup", node="n2", verdict=CONFLICT,
         here=(IN_USE,), says=codes(106, 416)),
)  # fmt: skip


@pytest.fixture(params=LOOKS, ids=str)
def look(request: pytest.FixtureRequest) -> Look:
    found: Look = request.param
    return found


@pytest.fixture
def snapshot(look: Look, tmp_path: Path) -> Snapshot:
    return recorded_snapshot(
        look.recording,
        look.claim,
        node_name=look.node,
        root=tmp_path,
        later_minutes=look.later,
    )


@pytest.fixture
def diagnosis(snapshot: Snapshot) -> Diagnosis:
    return diagnose(correlate(snapshot), snapshot)


def test_the_verdict_on_the_volume_is_right(look: Look, diagnosis: Diagnosis) -> None:
    assert diagnosis.verdict is look.verdict


def test_the_verdicts_on_local_holders_are_right(look: Look, diagnosis: Diagnosis) -> None:
    here = tuple(judged.verdict for judged in diagnosis.holders if judged.holder.is_local)
    assert here == look.here, [judged.reasons for judged in diagnosis.holders]


def test_findings_report_what_is_wrong_and_nothing_else(look: Look, diagnosis: Diagnosis) -> None:
    said = {finding.code for finding in diagnosis.findings}
    assert not look.says - said
    assert not look.never & said


def test_forecast_does_not_contradict_its_finding(diagnosis: Diagnosis) -> None:
    assert list(contradictions(diagnosis)) == []


def test_remedy_saves_the_data_before_it_deletes(diagnosis: Diagnosis) -> None:
    assert advice_that_loses_data(diagnosis.findings) == []


def test_gap_is_never_the_cause(look: Look, snapshot: Snapshot) -> None:
    """The recorders did not copy debugfs: nearly every recording has that gap."""
    life = lifecycle_of(correlate(snapshot), snapshot)
    assert life.first_failed is None or life.first_failed.code not in CODES_OF_GAPS
    assert "RBD90" not in headline(life)
    if (look.recording, look.claim, look.node) in (*HEALTHY, *ELSEWHERE):
        assert headline(life).startswith(
            ("OK", "Nothing is broken", "Nothing that was observed is broken")
        )


def test_headline_of_a_healthy_volume_names_unobserved_facts(tmp_path: Path) -> None:
    snapshot = recorded_snapshot("01-fs-running", "c1", node_name="n1", root=tmp_path)
    found = headline(lifecycle_of(correlate(snapshot), snapshot))
    assert found.startswith("OK as far as observed. Not observed: the kernel's own list of watches")


def test_orphan_is_reported_with_the_deletion_that_it_blocks(tmp_path: Path) -> None:
    snapshot = recorded_snapshot("28-orphan-blocks-delete", "cq", node_name="n2", root=tmp_path)
    findings = lifecycle_of(correlate(snapshot), snapshot).findings
    errors = [finding.code for finding in findings if finding.severity is Severity.ERROR]
    assert errors == ["RBD101", "RBD641"]


def test_unpublish_is_not_done_while_a_lost_pod_exists(snapshot: Snapshot) -> None:
    life = lifecycle_of(correlate(snapshot), snapshot)
    holders = [judged.holder for judged in life.diagnosis.holders]
    lost = {holder.node for holder in holders if holder.unknown_pod_uids}
    states = {
        stage.state
        for way in life.detach_paths
        for stage in way.stages
        if way.node in lost and stage.step is LifecycleStep.UNPUBLISH
    }
    is_reported = any(finding.code == "RBD109" for finding in life.findings)
    assert states <= {StepState.FAILED if is_reported else StepState.WAITING}


def test_the_report_is_valid(snapshot: Snapshot, diagnosis: Diagnosis) -> None:
    report = msgspec.json.encode(holder_report(diagnosis, snapshot))
    jsonschema.validate(msgspec.json.decode(report), schema("HolderReport"))


def test_the_snapshot_replays_to_the_same_report(snapshot: Snapshot, diagnosis: Diagnosis) -> None:
    replayed = load_snapshot(dump_snapshot(snapshot), where="memory")
    again = diagnose(correlate(replayed), replayed)
    assert holder_report(again, replayed) == holder_report(diagnosis, snapshot)


def test_whole_node_was_observed(snapshot: Snapshot) -> None:
    """Only debugfs may be missing: another gap in the tree could hide what pins a device."""
    assert snapshot.sources.node.state is SourceState.OBSERVED
    gaps = {gap.fact for gap in snapshot.sources.node.gaps}
    assert gaps <= {"the kernel's own list of watches and hung requests"}


def test_mount_namespaces_are_distinguished(snapshot: Snapshot) -> None:
    """The mount namespace of init is the host's, whatever other processes are in it."""
    assert snapshot.node is not None
    assert not isinstance(snapshot.node.mappings, NotObserved)
    mounts = [
        mount
        for mapping in snapshot.node.mappings
        if not isinstance(mapping.mounts, NotObserved)
        for mount in mapping.mounts
    ]
    host = {mount.namespace.inode for mount in mounts if mount.namespace.is_host}
    others = {mount.namespace.inode for mount in mounts if not mount.namespace.is_host}
    assert len(host) <= 1
    assert 0 not in host | others
    assert not host & others


@pytest.mark.parametrize(
    ("recording", "claim", "reported"),
    [
        ("25-rollback-failing", "cl", [("pl", STAGED, "n1")]),
        ("22-xfs-running", "ce", []),
    ],
    ids=["left by a failed stage", "being mounted"],
)
def test_failed_stage_blocks_its_pod_and_running_stage_does_not(
    recording: str, claim: str, reported: list[tuple[str, Verdict, str]], tmp_path: Path
) -> None:
    seen = recorded_snapshot(recording, claim, node_name="n1", root=tmp_path)
    found = blocked_volumes(seen, correlate_waiting(seen))
    assert [(blocked.pod, blocked.cause, blocked.holder_node) for blocked in found] == reported
