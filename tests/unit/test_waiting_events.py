"""A pod that waits for a held volume has an Event that names the holder and the next command."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest
from msgspec.structs import replace

from rbdagent.agent import waiting_events as events
from rbdagent.agent.events import event_object
from rbdagent.agent.waiting_events import WaitingEvents, is_about_to_be_reported, waiting_events
from rbdagent.correlate import correlate_waiting
from rbdagent.lifecycle.blocked_pods import blocked_volumes
from rbdagent.model import Verdict
from tests.support.agent_loop import cycle_of
from tests.support.blocked import HERE, THERE, held, report, waiting
from tests.support.snapshots import (
    LIBRBD_COOKIE,
    NOW,
    PV,
    STRANGER_ADDRESS,
    UNSEEN,
    attachment,
    node,
    remote_watcher,
    waiting_pod,
)

if TYPE_CHECKING:
    from rbdagent.agent.cycle import CycleResult
    from rbdagent.model import Snapshot

CLIENT: Final = "client.4239 at 10.77.0.12:0/1932216381"
ASK: Final = "Next: rbdagent who-holds pvc/data -n default"


def cycle(snapshot: Snapshot, at: float = 0.0) -> CycleResult:
    blocked = blocked_volumes(snapshot, correlate_waiting(snapshot))
    return replace(cycle_of(snapshot), blocked=blocked, at=at)


def message(snapshot: Snapshot) -> str:
    (event,) = waiting_events(cycle(snapshot))
    assert (event.kind, event.namespace, event.name) == ("Pod", "default", "web-1")
    assert (event.uid, event.reason, event.warns) == ("web-1-uid", "RBDVolumeHeld", True)
    return event.message


STRANGER: Final = remote_watcher(address=STRANGER_ADDRESS, cookie=LIBRBD_COOKIE)


IN_USE = held(
    published=report(Verdict.IN_USE, pods=("default/web-0", "other/secret")),
)
DOWN = held(nodes=(node(HERE), node(THERE, ready=False)))
MAPPED: Final = f"worker-2 (/dev/rbd7, {CLIENT})"


@pytest.mark.parametrize(
    ("snapshot", "cause", "state"),
    [
        (IN_USE, "InUse", f"{MAPPED} uses it, in pod default/web-0"),
        (
            held(published=report(Verdict.STAGED)),
            "Staged",
            f"it is still staged on {MAPPED}, and no pod uses it there",
        ),
        (
            held(published=report(Verdict.ORPHANED)),
            "Orphaned",
            f"it is still mapped on {MAPPED}, and nothing there uses it",
        ),
        (
            held(published=report(Verdict.PINNED)),
            "Pinned",
            f"it is still mapped on {MAPPED}, and something there keeps the device open",
        ),
        (DOWN, "NodeDown", f"worker-2 ({CLIENT}) holds it, and that node is not Ready"),
        (
            held(),
            "Undetermined",
            f"worker-2 ({CLIENT}) holds it, and whether it still needs it was not observed",
        ),
        (
            waiting(of_image={"watchers": (STRANGER,)}),
            "Foreign",
            "client.4239 at 192.0.2.7:0/5 holds it, and Kubernetes did not map it there",
        ),
        (
            waiting(in_kube={"attachments": (attachment(THERE),)}),
            "StaleAttachment",
            "a VolumeAttachment attaches it to worker-2, and no client watches its image",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) and value.isalpha() else "",
)
def test_event_names_the_holder_and_the_next_command(
    snapshot: Snapshot, cause: str, state: str
) -> None:
    assert message(snapshot) == f"The pod waits for volume {PV}: {state} ({cause}). {ASK}"


def test_every_verdict_on_a_holder_has_a_sentence() -> None:
    """Free, Shared, Conflict and NotBacked are verdicts on a target, never on a holder."""
    of_targets = {Verdict.FREE, Verdict.SHARED, Verdict.CONFLICT, Verdict.NOT_BACKED}
    assert set(events._STATES) == set(Verdict) - of_targets


def test_command_is_that_of_the_plugin_where_the_plugin_is_used() -> None:
    (event,) = waiting_events(cycle(held()), ("kubectl", "rbdagent"))
    assert event.message.endswith("Next: kubectl rbdagent who-holds pvc/data -n default")


@pytest.mark.parametrize(
    "snapshot",
    [
        waiting(),
        waiting(of_image={"watchers": UNSEEN}),
        waiting(of_image={"watchers": UNSEEN}, in_kube={"attachments": (attachment(THERE),)}),
        waiting(ceph=None),
        waiting(in_kube={"attachments_complete": False}),
    ],
    ids=["free", "watchers", "watchers, and an attachment", "Ceph", "attachments"],
)
def test_source_that_was_not_observed_holds_nothing(snapshot: Snapshot) -> None:
    assert waiting_events(cycle(snapshot)) == ()


def after(seconds: int) -> Snapshot:
    """Return a snapshot in which the pod has waited so long."""
    minute, second = divmod(3600 - seconds, 60)
    placed_at = f"2026-11-21T02:{minute:02}:{second:02}Z"
    return held(pods=(waiting_pod(node=HERE, placed_at=placed_at),))


def test_normal_move_of_a_volume_is_not_reported() -> None:
    assert waiting_events(cycle(after(59))) == ()
    assert waiting_events(cycle(after(60))) != ()


def test_loop_observes_again_soon_while_an_event_is_near() -> None:
    assert is_about_to_be_reported(cycle(after(59)))
    assert not is_about_to_be_reported(cycle(after(60)))
    assert not is_about_to_be_reported(cycle(waiting()))


def names(written: WaitingEvents, snapshot: Snapshot, at: float) -> list[str]:
    now = cycle(snapshot, at)
    due = written.due(now)
    for event in due:
        written.answered(event, now)
    return [event.name for event in due]


def test_event_is_written_once_and_repeated_before_the_api_server_deletes_it() -> None:
    written = WaitingEvents()
    assert names(written, held(), 0.0) == ["web-1"]
    assert names(written, held(), 60.0) == []
    assert names(written, waiting(), 120.0) == []
    assert names(written, held(), 180.0) == [], "it alternates"
    assert names(written, held(), events.REPEAT_S) == ["web-1"]


def test_event_that_no_server_answered_is_due_again() -> None:
    written = WaitingEvents()
    assert written.due(cycle(held())) == written.due(cycle(held())) != ()


def test_new_cause_is_a_new_event() -> None:
    written = WaitingEvents()
    assert names(written, held(), 0.0) == ["web-1"]
    assert names(written, held(published=report(Verdict.PINNED)), 60.0) == ["web-1"]


def test_number_of_events_of_a_cycle_is_limited_and_the_longest_wait_is_first() -> None:
    pods = tuple(
        waiting_pod(f"web-{number}", HERE, placed_at=f"2026-11-21T02:{number:02}:00Z")
        for number in reversed(range(events.MOST + 5))
    )
    written, snapshot = WaitingEvents(), held(pods=pods)
    assert names(written, snapshot, 0.0) == [f"web-{number}" for number in range(events.MOST)]
    assert len(names(written, snapshot, 60.0)) == 5


def test_event_is_written_on_the_pod_itself() -> None:
    (event,) = waiting_events(cycle(held()))
    assert event_object(event, HERE, NOW)["involvedObject"] == {
        "kind": "Pod",
        "name": "web-1",
        "namespace": "default",
        "uid": "web-1-uid",
        "apiVersion": "v1",
    }
