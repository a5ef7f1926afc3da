"""Which of several events of a waiting pod decides: the most specific one of the attempt."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from rbdagent.model import observed_of
from rbdagent.parse.faults import rank_of
from rbdagent.parse.recognised import Rank, Recognised
from tests.support.quoted_messages import PLAYS, QUOTES
from tests.support.rows import each_row
from tests.support.rule_tables import kubelet_event, mounting, problem_codes, stage
from tests.support.snapshots import (
    HANDLE,
    NOW,
    PV,
    SPEC,
    diagnosis_of,
    event,
    remote_watcher,
    waiting_pod,
    world,
)

if TYPE_CHECKING:
    from rbdagent.model import Snapshot

SECRET: Final = (
    f'MountVolume.MountDevice failed for volume "{PV}" : fetching NodeStageSecretRef '
    "shop/csi-rbd-secret failed: kubernetes.io/csi: failed to find the secret csi-rbd-secret in "
    'the namespace shop with error: secrets "csi-rbd-secret" not found'
)
IN_USE: Final = stage(f"rbd image {SPEC} is still being used")
WAITS: Final = (
    "Unable to attach or mount volumes: unmounted volumes=[data], unattached volumes=[data "
    "kube-api-access-x7k2p]: timed out waiting for the condition"
)
UNDER_WAY: Final = (
    f'MountVolume.MountDevice failed for volume "{PV}" : rpc error: code = Aborted desc = an '
    f"operation with the given Volume ID {HANDLE} already exists"
)
NO_ANSWER: Final = (
    f'MountVolume.MountDevice failed for volume "{PV}" : rpc error: code = DeadlineExceeded desc '
    "= context deadline exceeded"
)
FAILED_22: Final = stage("rbd: map failed with error: rbd: map failed: (22) Invalid argument")


BLOCKLISTED: Final = stage("rbd: map failed with error: rbd: map failed: (108) Cannot send")
NOT_REGISTERED: Final = (
    f'MountVolume.MountDevice failed for volume "{PV}" : kubernetes.io/csi: attacher.MountDevice '
    "failed to create newCsiDriverClient: driver name rbd.csi.ceph.com not found in the list of "
    "registered CSI drivers"
)
SELINUX: Final = QUOTES[Recognised.SELINUX][0].text
FLATTENING: Final = stage("flatten in progress: flatten is in progress for image csi-vol-1")


def ago(**duration: float) -> str:
    """Return a time before the observation."""
    then = datetime.fromisoformat(NOW).astimezone(UTC) - timedelta(**duration)
    return then.strftime("%Y-%m-%dT%H:%M:%SZ")


def told(*texts: tuple[str, str]) -> Snapshot:
    """Build a snapshot in which kubelet reported texts, each with its time."""
    events = sorted(
        (kubelet_event(text, last_seen=at) for text, at in texts), key=lambda e: e.last_seen or ""
    )
    return mounting(events=tuple(events))


BY_KUBELET: Final = [
    row
    for row in Recognised
    if row.code is not None and row.rank is not Rank.GENERAL and row not in PLAYS
]


CONTRADICTED: Final = (
    *(Recognised.SECRET_MISSING, Recognised.CLAIM_OF_POD, Recognised.WRONG_MODE),
    *(Recognised.SECRET_WITHOUT_NAMESPACE, Recognised.SELINUX, Recognised.NODE_AFFINITY),
    *(Recognised.DRIVER_NOT_REGISTERED, Recognised.DRIVER_SILENT, Recognised.IN_USE),
)
"""By a call of the driver that came later: see the next tests."""


@each_row("row", BY_KUBELET)
@settings(max_examples=15)
@given(
    minutes=st.integers(0, 59),
    others=st.integers(0, 59),
    general=st.sampled_from((WAITS, UNDER_WAY, NO_ANSWER)),
)
def test_general_text_of_any_age_beside_a_text_changes_no_finding(
    row: Recognised, minutes: int, others: int, general: str
) -> None:
    said, at = QUOTES[row][0].text, ago(minutes=minutes)
    if row in CONTRADICTED:
        general = WAITS
    if Recognised.STEP.is_in(said) and "MountDevice" not in said:
        # A call of another step follows: its text is of the current attempt, the older one is not.
        general = WAITS
    if general is not WAITS:
        # A call that runs and began much later is another one: see the next tests.
        others = max(others, minutes - 15)
    alone, beside = told((said, at)), told((said, at), (general, ago(minutes=others)))
    assert _lines(beside) == _lines(alone)


def _lines(seen: Snapshot) -> list[tuple[str, str, str]]:
    return [(f.code, f.severity, f.message) for f in diagnosis_of(seen).findings]


def test_error_before_a_newer_wait_is_quoted_with_its_age_and_the_wait() -> None:
    seen = told((SECRET, ago(minutes=21)), (WAITS, ago(seconds=10)))
    (found,) = [item for item in diagnosis_of(seen).findings if item.code == "RBD733"]
    assert "reported 21m ago" in found.evidence
    assert any("timed out waiting for the condition" in line for line in found.evidence)


@each_row(
    ("first", "then", "code"),
    [
        (SECRET, UNDER_WAY, "RBD203"),
        (SECRET, NO_ANSWER, "RBD203"),
        (stage("rbd image x is still being used"), UNDER_WAY, "RBD203"),
    ],
)
def test_later_call_contradicts_what_would_have_prevented_it(
    first: str, then: str, code: str
) -> None:
    seen = told((first, ago(minutes=4)), (then, ago(minutes=1)))
    assert problem_codes(seen) == {code}


def test_held_image_is_reported_beside_a_call_that_waits_for_it() -> None:
    events = (
        kubelet_event(IN_USE, last_seen=ago(minutes=4)),
        kubelet_event(UNDER_WAY, last_seen=ago(minutes=1)),
    )
    seen = world(
        on_node={"mappings": ()},
        of_image={"watchers": (remote_watcher(),)},
        in_kube={"pods": (waiting_pod(),), "events": events},
    )
    assert "RBD402" in problem_codes(seen)


def test_failed_call_of_a_later_step_ends_the_error_of_an_earlier_one() -> None:
    refused = event(f'Multi-Attach error for volume "{PV}" Volume is already exclusively attached')
    seen = mounting(events=(refused, kubelet_event(FAILED_22)))
    assert "RBD401" not in problem_codes(seen)
    assert "RBD741" in problem_codes(seen)


@each_row(
    ("minutes", "code"),
    [(2.0, "RBD737"), (20.0, "RBD741")],
    ids=["the same round of retries", "an error that was not repeated"],
)
def test_specific_error_outweighs_a_number_of_the_same_round_only(
    minutes: float, code: str
) -> None:
    gone = stage("pool not found: pool (k8s) not found in Ceph cluster")
    seen = told((gone, ago(minutes=minutes)), (FAILED_22, ago(seconds=5)))
    assert problem_codes(seen) == {code}


@each_row(
    ("first", "minutes", "then", "code"),
    [
        (IN_USE, 3, BLOCKLISTED, "RBD308"),
        (SECRET, 3, BLOCKLISTED, "RBD308"),
        (NOT_REGISTERED, 2, FAILED_22, "RBD741"),
        (FAILED_22, 55, UNDER_WAY, "RBD203"),
        (SELINUX, 50, UNDER_WAY, "RBD203"),
        (FLATTENING, 55, NO_ANSWER, "RBD203"),
    ],
)
def test_answer_of_the_driver_contradicts_what_came_before_it(
    first: str, minutes: int, then: str, code: str
) -> None:
    seen = told((first, ago(minutes=minutes)), (then, ago(seconds=5)))
    assert problem_codes(seen) == {code}


def test_failure_after_a_progress_message_is_reported() -> None:
    progress = kubelet_event(
        'Setting volume ownership for "x" is taking longer than expected',
        reason="VolumePermissionChangeInProgress",
        last_seen=ago(seconds=100),
    )
    failed = kubelet_event(
        f'MountVolume.SetUp failed for volume "{PV}" : applyFSGroup failed for vol {HANDLE}: no',
        last_seen=ago(seconds=5),
    )
    assert problem_codes(mounting(events=(progress, failed))) == {"RBD758"}


def test_phrase_outweighs_the_number_in_the_same_text() -> None:
    text = stage("rbd: map failed: (2) No such file or directory: modprobe: FATAL: rbd not found")
    assert rank_of(text) is Rank.SPECIFIC
    assert problem_codes(told((text, ago(minutes=1)))) == {"RBD739"}


@each_row(
    ("text", "rank"),
    [
        (WAITS, Rank.GENERAL),
        (UNDER_WAY, Rank.GENERAL),
        (NO_ANSWER, Rank.GENERAL),
        (FAILED_22, Rank.SYMPTOM),
        ("no text of this kind is known", Rank.SYMPTOM),
        (f"{NO_ANSWER}: rbd: map failed: (110)", Rank.SYMPTOM),
        (SECRET, Rank.SPECIFIC),
    ],
)
def test_rank_of_a_text(text: str, rank: Rank) -> None:
    assert rank_of(text) is rank


CLAIM_WAITS: Final = (
    "rpc error: code = Aborted desc = an operation with the given Volume ID pvc-1 already exists"
)


@each_row("newer", [True, False])
def test_general_failure_of_a_provisioner_hides_no_cause(*, newer: bool) -> None:
    row = Recognised.CLASS_SECRET_MISSING
    alone = PLAYS[row](QUOTES[row][0].text)
    assert alone.kubernetes is not None
    (failed,) = observed_of(alone.kubernetes.events)
    times = (ago(minutes=9), ago(minutes=2)) if newer else (ago(minutes=2), ago(minutes=9))
    said = replace(failed, last_seen=times[0])
    waits = replace(failed, message=CLAIM_WAITS, last_seen=times[1])
    events = (said, waits) if newer else (waits, said)
    beside = replace(alone, kubernetes=replace(alone.kubernetes, events=events))
    (found,) = [one for one in diagnosis_of(beside).findings if one.severity != "info"]
    assert found.code == "RBD607"
    assert "does not exist, or may not be read" in found.message
