"""What of the API's objects tells how a pod gets on with its volumes."""

from __future__ import annotations

from typing import Any

import pytest

from rbdagent.parse import kubernetes as read


def pod(*conditions: dict[str, str]) -> Any:  # noqa: ANN401 - an object of the API
    return {
        "metadata": {"name": "web-0", "namespace": "default"},
        "spec": {},
        "status": {"phase": "Pending", "conditions": list(conditions)},
    }


def scheduled(status: str, **parts: str) -> dict[str, str]:
    return {"type": "PodScheduled", "status": status, **parts}


def test_a_pod_that_has_its_node_tells_since_when() -> None:
    at = "2026-11-21T02:00:00Z"
    assert read.pod(pod(scheduled("True", lastTransitionTime=at))).placed_at == at
    assert read.pod(pod(scheduled("False", lastTransitionTime=at))).placed_at is None
    assert read.pod(pod()).placed_at is None


@pytest.mark.parametrize("reason", ["Unschedulable", "SchedulerError", "SchedulingGated"])
def test_whatever_keeps_a_pod_from_a_node_is_told(reason: str) -> None:
    seen = read.pod(pod(scheduled("False", reason=reason, message="why")))
    assert seen.unschedulable == "why"
    assert read.pod(pod(scheduled("True", reason=reason, message="why"))).unschedulable == ""


def event(**parts: Any) -> Any:  # noqa: ANN401 - an object of the API
    return {"metadata": {"creationTimestamp": "2026-11-21T01:00:00Z"}, **parts}


@pytest.mark.parametrize(
    ("parts", "last", "count"),
    [
        ({}, "2026-11-21T01:00:00Z", 1),
        ({"lastTimestamp": "2026-11-21T02:00:00Z", "count": 7}, "2026-11-21T02:00:00Z", 7),
        ({"eventTime": "2026-11-21T02:00:00.5Z"}, "2026-11-21T02:00:00.5Z", 1),
        (
            {
                "eventTime": "2026-11-21T02:00:00.5Z",
                "series": {"count": 3, "lastObservedTime": "2026-11-21T02:30:00.5Z"},
            },
            "2026-11-21T02:30:00.5Z",
            3,
        ),
    ],
)
def test_an_event_was_last_seen_when_its_series_was(
    parts: dict[str, Any], last: str, count: int
) -> None:
    seen = read.event(event(**parts))
    assert (seen.last_seen, seen.count) == (last, count)


def test_the_mount_options_of_a_volume_are_kept() -> None:
    seen = read.persistent_volume(
        {"metadata": {"name": "a"}, "spec": {"nfs": {}, "mountOptions": ["ro", "noatime"]}}
    )
    assert seen.mount_options == ("ro", "noatime")


@pytest.mark.parametrize(
    "secret",
    [
        "AQCx3VZnAAAAABAA5pQ7nPyX3hQk7u8OlkNqSg==",
        # As librados 18 prints a key of type aes256k: "error setting modifier for … val=KEY:".
        "type=key val=AgCx3VZnAAAAACAAR4yM0mCq1hXo9m7QX0lZ3v8wq2mXnq5J0y5b6QfXo1I=:",
        "key=topsecret",
        "secret=topsecret",
    ],
)
def test_a_key_in_somebodys_words_gets_into_no_snapshot(secret: str) -> None:
    words = f"rbd args: [--id admin {secret} map], something is wrong"
    metadata = {"name": "csi-1"}
    spec = {"attacher": "rbd.csi.ceph.com", "nodeName": "n1", "source": {}}
    status = {"attachError": {"message": words}, "detachError": {"message": words}}
    attachment = read.attachment({"metadata": metadata, "spec": spec, "status": status})
    for seen in (attachment, read.event(event(message=words))):
        assert "something is wrong" in str(seen)
        assert "topsecret" not in str(seen)
        assert "x3VZn" not in str(seen)
