"""Events are sent on transitions only, on the claim and on the node, and each event once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from rbdagent.agent.events import event_object, transitions
from rbdagent.agent.sent_event import SentEvent
from rbdagent.model import (
    Convergence,
    NotObserved,
    ObjectRef,
    Snapshot,
    UnmapOutcome,
    UnmapRecord,
)
from tests.support.agent_loop import IN_USE, ORPHAN, PINNED, cycle_of
from tests.support.snapshots import (
    COOKIE,
    NOW,
    PV,
    UNBACKED,
    claim,
    mapping,
    pod,
    remote_watcher,
    volume,
    watcher,
)
from tests.support.unmap_plans import identity, moment, seen

if TYPE_CHECKING:
    from collections.abc import Iterable


NODE = "worker-1"


def act(outcome: UnmapOutcome | None, message: str = "/dev/rbd0 is unmapped") -> UnmapRecord:
    return UnmapRecord(
        boot_id="b001",
        begun=moment(10),
        by="agent",
        identity=identity(),
        persistent_volume=PV,
        why="",
        outcome=outcome,
        message=message,
    )


def kinds_and_reasons(events: Iterable[SentEvent]) -> list[tuple[str, str]]:
    return [(event.kind, event.reason) for event in events]


BOTH = "PersistentVolumeClaim", "Node"


@pytest.mark.parametrize(
    ("before", "now", "reason"),
    [
        (None, ORPHAN, "RBDOrphaned"),
        (IN_USE, ORPHAN, "RBDOrphaned"),
        (IN_USE, PINNED, "RBDPinned"),
        (PINNED, ORPHAN, "RBDOrphaned"),
        (None, IN_USE, None),
        (ORPHAN, ORPHAN, None),
        (ORPHAN, IN_USE, None),
    ],
)
def test_change_for_the_worse_is_reported_once(
    before: Snapshot | None, now: Snapshot, reason: str | None
) -> None:
    events = transitions(None if before is None else cycle_of(before), cycle_of(now), NODE)
    assert kinds_and_reasons(events) == (
        [] if reason is None else [(kind, reason) for kind in BOTH]
    )


NOT_BACKED = seen(on_node={"mappings": (), "unbacked": (UNBACKED,)}, in_kube={"pods": (pod(),)})


def test_pod_that_writes_beside_its_volume_is_reported_once() -> None:
    """As in recording 26: the volume is not mapped; deleting the pod destroys the files."""
    unmapped = seen(on_node={"mappings": ()})
    events = transitions(cycle_of(unmapped), cycle_of(NOT_BACKED), NODE)
    assert kinds_and_reasons(events) == [(kind, "RBDNotBacked") for kind in BOTH]
    assert events[0].name == "data"
    assert events[0].warns
    assert "default/web-0 writes to worker-1's own disk: /data is not on" in events[0].message
    assert "Do not delete the pod" in events[0].message
    assert transitions(cycle_of(NOT_BACKED), cycle_of(NOT_BACKED), NODE) == ()


def test_event_quotes_a_path_that_reads_like_a_sentence() -> None:
    hostile = replace(UNBACKED, path="/data is on it. Delete the pod")
    written = seen(on_node={"mappings": (), "unbacked": (hostile,)}, in_kube={"pods": (pod(),)})
    first, *_ = transitions(cycle_of(seen(on_node={"mappings": ()})), cycle_of(written), NODE)
    assert 'own disk: "/data is on it. Delete the pod" is not on' in first.message


TWO_WATCH = {"watchers": (watcher(), remote_watcher())}
CONFLICT = seen(of_image=TWO_WATCH, in_kube={"pods": (pod(),)})


def test_conflict_is_reported_once_when_it_begins() -> None:
    """The mapping itself stays in use: Conflict is a verdict on the image."""
    events = transitions(cycle_of(IN_USE), cycle_of(CONFLICT), NODE)
    assert kinds_and_reasons(events) == [(kind, "RBDConflict") for kind in BOTH]
    assert "read-write on worker-1, worker-2 at the same time" in events[0].message
    assert transitions(cycle_of(CONFLICT), cycle_of(CONFLICT), NODE) == ()


def test_orphan_with_a_conflict_is_reported_as_both() -> None:
    both = seen(of_image=TWO_WATCH)
    assert kinds_and_reasons(transitions(cycle_of(ORPHAN), cycle_of(both), NODE)) == [
        (kind, "RBDConflict") for kind in BOTH
    ]
    assert {reason for _, reason in kinds_and_reasons(transitions(None, cycle_of(both), NODE))} == {
        "RBDOrphaned",
        "RBDConflict",
    }


def test_conflict_over_an_image_mapped_twice_is_reported_once() -> None:
    devices = (mapping(), mapping(device="/dev/rbd1", device_id=1))
    twice = seen(
        of_image={"watchers": (watcher(), watcher(cookie=COOKIE + 1), remote_watcher())},
        in_kube={"pods": (pod(),)},
        on_node={"mappings": devices},
    )
    assert kinds_and_reasons(transitions(None, cycle_of(twice), NODE)) == [
        (kind, "RBDConflict") for kind in BOTH
    ]


@pytest.mark.parametrize(
    ("outcome", "reason", "warns"),
    [
        (UnmapOutcome.UNMAPPED, "RBDUnmapped", False),
        (UnmapOutcome.BUSY, "RBDUnmapFailed", True),
        (UnmapOutcome.FAILED, "RBDUnmapFailed", True),
    ],
)
def test_unmap_is_reported_with_its_outcome(
    outcome: UnmapOutcome,
    reason: str,
    warns: bool,  # noqa: FBT001 - a table
) -> None:
    events = transitions(cycle_of(ORPHAN), cycle_of(IN_USE, act(outcome)), NODE)
    assert kinds_and_reasons(events) == [(kind, reason) for kind in BOTH]
    assert {event.warns for event in events} == {warns}
    again = transitions(cycle_of(IN_USE, act(outcome)), cycle_of(IN_USE, act(outcome)), NODE)
    assert again == ()


def test_refused_or_running_unmap_is_not_reported_as_an_unmap() -> None:
    for outcome in (UnmapOutcome.REFUSED, None):
        assert transitions(cycle_of(ORPHAN), cycle_of(ORPHAN, act(outcome)), NODE) == ()


@pytest.mark.parametrize(
    ("came", "reason", "warns", "words"),
    [
        (Convergence.CLEARED, "RBDCleared", False, "is cleared: it is so (/dev/rbd0 was unmapped"),
        (Convergence.BLOCKED, "RBDStillBlocked", True, "is still blocked, because it is so"),
    ],
)
def test_follow_up_is_also_reported_by_a_restarted_agent(
    came: Convergence,
    reason: str,
    warns: bool,  # noqa: FBT001 - a table
    words: str,
) -> None:
    done = replace(act(UnmapOutcome.UNMAPPED), convergence=came, convergence_reasons=("it is so",))
    now = replace(cycle_of(IN_USE, done), news=(done,))
    for before in (None, cycle_of(IN_USE, done)):
        events = transitions(before, now, NODE)
        assert kinds_and_reasons(events) == [(kind, reason) for kind in BOTH]
        assert {event.warns for event in events} == {warns}
        assert f"{PV} {words}" in events[0].message


def test_refusal_is_reported_only_if_it_is_news() -> None:
    refused = act(UnmapOutcome.REFUSED, "RBD505: needed by default/web-0")
    events = transitions(
        cycle_of(ORPHAN), replace(cycle_of(ORPHAN, refused), news=(refused,)), NODE
    )
    assert kinds_and_reasons(events) == [(kind, "RBDUnmapRefused") for kind in BOTH]
    assert events[0].warns
    assert events[0].message == (
        "/dev/rbd0 on worker-1 is left mapped: RBD505: needed by default/web-0"
    )


def test_unmap_with_an_unobserved_end_is_not_an_event() -> None:
    unseen = replace(act(UnmapOutcome.UNMAPPED), convergence=Convergence.NOT_OBSERVED)
    assert transitions(None, replace(cycle_of(IN_USE, unseen), news=(unseen,)), NODE) == ()


def test_unmaps_of_an_earlier_agent_are_not_reported_again() -> None:
    assert transitions(None, cycle_of(IN_USE, act(UnmapOutcome.UNMAPPED)), NODE) == ()


@pytest.mark.parametrize("known_before", [True, False])
def test_record_that_becomes_readable_or_unreadable_is_not_news(*, known_before: bool) -> None:
    unread = replace(cycle_of(ORPHAN), acts=NotObserved(reason="permission denied"))
    done = cycle_of(ORPHAN, act(UnmapOutcome.UNMAPPED))
    before, now = (done, unread) if known_before else (unread, done)
    assert transitions(before, now, NODE) == ()


def test_claim_that_was_not_read_is_named_as_in_its_pv() -> None:
    """An agent reads only the claims of its node's pods, and an orphan has no pod."""
    orphan = seen(
        in_kube={
            "claims": (),
            "persistent_volumes": (
                volume(claim=ObjectRef(namespace="default", name="data", uid="u1")),
            ),
        }
    )
    events = transitions(None, cycle_of(orphan), NODE)
    first = events[0]
    assert (first.kind, first.uid) == ("PersistentVolumeClaim", "u1")


def test_event_without_a_claim_is_sent_on_the_node_only() -> None:
    bare = seen(in_kube={"persistent_volumes": (), "claims": ()}, of_kubelet={"staging": ()})
    assert kinds_and_reasons(transitions(None, cycle_of(bare), NODE)) == [("Node", "RBDOrphaned")]


def test_message_is_cut_at_the_limit_of_the_api_server() -> None:
    long = act(UnmapOutcome.FAILED, "x" * 2000)
    events = transitions(cycle_of(ORPHAN), cycle_of(ORPHAN, long), NODE)
    assert {len(event.message) for event in events} == {1024}
    assert events[0].message.endswith("…")


def test_only_equal_events_have_the_same_name() -> None:
    (one, _), (same, _) = (transitions(None, cycle_of(ORPHAN), NODE) for _ in range(2))
    other = transitions(None, cycle_of(PINNED), NODE)[0]
    assert one.event_name(NODE) == same.event_name(NODE) != other.event_name(NODE)
    body = event_object(one, NODE, NOW)
    assert body["involvedObject"]["uid"] == claim().ref.uid
    assert (body["type"], body["count"]) == ("Warning", 1)
    assert replace(one, warns=False).event_name(NODE) == one.event_name(NODE)


def test_agents_of_two_nodes_write_two_events_about_one_claim() -> None:
    one = SentEvent(
        kind="Node", namespace="", name="n" * 253, uid="", reason="a", message="b", warns=True
    )
    assert one.event_name("worker-1") != one.event_name("worker-2")
    assert len(one.event_name("worker-1")) < 253 - len(".01234567")
