"""Fields of API objects that show the progress of a pod with its volumes."""

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


def test_scheduled_pod_has_the_time_of_its_condition() -> None:
    at = "2026-11-21T02:00:00Z"
    assert read.pod(pod(scheduled("True", lastTransitionTime=at))).placed_at == at
    assert read.pod(pod(scheduled("False", lastTransitionTime=at))).placed_at is None
    assert read.pod(pod()).placed_at is None


@pytest.mark.parametrize("reason", ["Unschedulable", "SchedulerError", "SchedulingGated"])
def test_unscheduled_pod_has_the_message_of_its_condition(reason: str) -> None:
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
def test_event_has_the_last_time_and_count_of_its_series(
    parts: dict[str, Any], last: str, count: int
) -> None:
    seen = read.event(event(**parts))
    assert (seen.last_seen, seen.count) == (last, count)


def test_mount_options_of_a_volume_are_kept() -> None:
    seen = read.persistent_volume(
        {"metadata": {"name": "a"}, "spec": {"nfs": {}, "mountOptions": ["ro", "noatime"]}}
    )
    assert seen.mount_options == ("ro", "noatime")


@pytest.mark.parametrize(
    "secret",
    [
        "AQCx3VZnAAAAABAA5pQ7nPyX3hQk7u8OlkNqSg==",
        # Output of librados 18 for a key of type aes256k: "error setting modifier for … val=KEY:".
        "type=key val=AgCx3VZnAAAAACAAR4yM0mCq1hXo9m7QX0lZ3v8wq2mXnq5J0y5b6QfXo1I=:",
        "key=topsecret",
        "secret=topsecret",
    ],
)
def test_key_in_a_foreign_message_is_in_no_snapshot(secret: str) -> None:
    words = f"rbd args: [--id admin {secret} map], something is wrong"
    metadata = {"name": "csi-1"}
    spec = {"attacher": "rbd.csi.ceph.com", "nodeName": "n1", "source": {}}
    status = {"attachError": {"message": words}, "detachError": {"message": words}}
    attachment = read.attachment({"metadata": metadata, "spec": spec, "status": status})
    for seen in (attachment, read.event(event(message=words))):
        assert "something is wrong" in str(seen)
        assert "topsecret" not in str(seen)
        assert "x3VZn" not in str(seen)
