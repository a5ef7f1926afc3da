"""A node that is not Ready, of which only a VolumeAttachment is left."""

from __future__ import annotations

from typing import Any, Final

import pytest

from rbdagent.correlate import correlate
from rbdagent.lifecycle.steps import lifecycle_of
from rbdagent.model import ImagePresence, Severity, Snapshot, StepState
from tests.support.rows import each_row
from tests.support.rule_tables import attached
from tests.support.snapshots import (
    LONG_AGO,
    UNSEEN,
    codes,
    found,
    node,
    pod,
    remote_watcher,
    reported_by,
    unmapped,
    volume,
    waiting_pod,
)

LOST: Final = node("worker-2", ready=None, ready_changed_at=LONG_AGO)
WAITING: Final = waiting_pod(node="worker-1")
SHARED: Final = (volume(access_modes=("ReadWriteMany",), volume_mode="Block"),)


def lost(**parts: Any) -> Snapshot:  # noqa: ANN401 - as the builders
    """Build a state in which worker-2 is lost, and a pod on worker-1 waits."""
    in_kube = {
        "nodes": (node("worker-1"), LOST),
        "attachments": attached("worker-2"),
        "pods": (WAITING,),
        "published": (),
        **parts.pop("in_kube", {}),
    }
    return unmapped(in_kube=in_kube, **parts)


def test_lost_node_with_an_attachment_is_named() -> None:
    seen = found(lost(), "RBD113")
    assert seen.severity is Severity.ERROR
    assert "Ceph lists no watch of that node" in seen.message
    assert "Prove that the machine is off" in seen.message


def test_its_steps_are_not_observed() -> None:
    seen = lost()
    (path,) = lifecycle_of(correlate(seen), seen).detach_paths
    states = {str(status.step): status.state for status in path.stages}
    assert states["unpublish"] is states["unstage"] is StepState.NOT_OBSERVED


UNKNOWN: Final = remote_watcher(address=remote_watcher().address.__class__(ip="192.0.2.7", nonce=1))
WORDS: Final = {
    "a client of an unknown node": (
        lost(of_image={"watchers": (UNKNOWN,)}),
        "whose node is unknown, may be on it: then it may write",
    ),
    "watchers not observed": (
        lost(of_image={"watchers": UNSEEN}),
        "whether it has a live watch was not observed",
    ),
}


@each_row("name", WORDS)
def test_missing_watch_is_stated_only_if_no_client_may_be_of_that_node(name: str) -> None:
    seen, words = WORDS[name]
    message = found(seen, "RBD113").message
    assert words in message
    assert "lists no watch" not in message


@pytest.mark.parametrize(
    ("in_kube", "severity"),
    [
        ({"nodes": (node("worker-1"), node("worker-2", ready=None))}, Severity.ERROR),
        (
            {
                "nodes": (
                    node("worker-1"),
                    node("worker-2", ready=False, ready_changed_at="2026-11-21T02:59:55Z"),
                )
            },
            Severity.INFO,
        ),
        ({"pods": ()}, Severity.WARNING),
        ({"pods": (), "persistent_volumes": SHARED}, Severity.INFO),
    ],
    ids=["since when is unknown", "for five seconds", "no pod waits", "shared, and no pod waits"],
)
def test_severity_follows_from_who_waits_and_since_when(
    in_kube: dict[str, Any], severity: Severity
) -> None:
    assert found(lost(in_kube=in_kube), "RBD113").severity is severity


SILENT: Final[dict[str, dict[str, Any]]] = {
    "its agent reports": {"in_kube": {"published": (reported_by("worker-2"),)}},
    "attached is false": {"in_kube": {"attachments": attached("worker-2", attached=False)}},
    "being deleted": {"in_kube": {"attachments": attached("worker-2", deleting_since=LONG_AGO)}},
    "a pod is there": {"in_kube": {"pods": (pod("old", "worker-2"), WAITING)}},
    "the image is gone": {"of_image": {"presence": ImagePresence.GONE}},
    "it is Ready": {"in_kube": {"nodes": (node("worker-1"), node("worker-2"))}},
}


@each_row("name", SILENT)
def test_no_node_is_called_lost_by_its_attachment_alone(name: str) -> None:
    seen = lost(**SILENT[name])
    messages = [one.message for one in _findings(seen) if one.code == "RBD113"]
    assert not any("attached and is not Ready" in message for message in messages)


def _findings(seen: Snapshot) -> tuple[Any, ...]:
    return lifecycle_of(correlate(seen), seen).findings


def test_ready_node_beside_a_lost_one_is_never_detached_by_force() -> None:
    both = lost(
        in_kube={
            "nodes": (node("worker-1"), LOST, node("worker-3")),
            "attachments": attached("worker-2", "worker-3"),
        }
    )
    assert "never detaches a Ready node by force" in found(both, "RBD401").message
    assert "detaches by force six minutes" in found(lost(), "RBD401").message
    assert "RBD113" in codes(both)
