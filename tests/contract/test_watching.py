"""Watches of the API: which change wakes the agent, and what follows a watch that ends or fails."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlparse

import pytest

from rbdagent.agent.pod_watch import ApiWatch, Pods
from rbdagent.collect.kube.client import StatusError
from rbdagent.collect.kube.kubeconfig import KubeAccess
from rbdagent.errors import SourceError
from tests.support.agent_loop import Log
from tests.support.fake_api import FakeApi, answer, kubeconfig

if TYPE_CHECKING:
    from collections.abc import Iterator
    from http.server import BaseHTTPRequestHandler
    from pathlib import Path

Json = dict[str, Any]
PODS = "/api/v1/pods"


def pod(uid: str = "1", *, phase: str = "Running", version: str = "5", claim: bool = True) -> Json:
    volume = {"persistentVolumeClaim": {"claimName": "data"}} if claim else {"emptyDir": {}}
    return {
        "metadata": {"uid": uid, "resourceVersion": version},
        "spec": {"volumes": [volume]},
        "status": {"phase": phase},
    }


def change(kind: str, changed: Json) -> bytes:
    return json.dumps({"type": kind, "object": changed}).encode() + b"\n"


class Stage:
    """A server that plays one watch after another, and the client of these watches."""

    def __init__(self, api: FakeApi, path: Path) -> None:
        self.api = api
        self.there: list[Json] = []
        self.played: list[bytes] = []
        self.queries: list[dict[str, list[str]]] = []
        self.woken = 0
        self.missed = 0
        api.broken[PODS] = self._play
        path.write_text(json.dumps(kubeconfig(api.url)))
        self.pods = Pods(self._wake)
        self.watch = ApiWatch(
            KubeAccess(kubeconfig=path, context=None, timeout_s=5),
            PODS,
            {"fieldSelector": "spec.nodeName=worker-1"},
            on_change=self.pods.on_change,
            missed=self._miss,
            log=Log().logger,
        )

    def _wake(self) -> None:
        self.woken += 1

    def _miss(self) -> None:
        self.missed += 1

    def _play(self, handler: BaseHTTPRequestHandler) -> None:
        query = parse_qs(urlparse(handler.path).query)
        self.queries.append(query)
        if "watch" not in query:
            answer(handler, 200, {"items": self.there, "metadata": {"resourceVersion": "3"}})
            return
        handler.send_response(200)
        handler.end_headers()
        handler.wfile.write(self.played.pop(0))

    def play(self, *changes: bytes) -> None:
        """Play one watch to its end."""
        self.played.append(b"".join(changes))
        self.watch._once()


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    api = FakeApi()
    yield Stage(api, tmp_path / "kubeconfig")
    api.stop()


def test_added_changed_or_deleted_pod_wakes_the_agent(stage: Stage) -> None:
    stage.play(change("ADDED", pod(phase="Pending")))
    assert stage.woken == 1
    stage.play(change("MODIFIED", pod(phase="Running")))
    assert stage.woken == 2
    stage.play(change("DELETED", pod()))
    assert stage.woken == 3


def test_pods_of_the_first_list_are_known(stage: Stage) -> None:
    stage.there = [pod()]
    stage.play(change("MODIFIED", pod(version="6")))
    assert stage.woken == 1


def test_change_of_the_version_alone_does_not_wake_the_agent(stage: Stage) -> None:
    stage.play(change("ADDED", pod()), change("MODIFIED", pod(version="6")))
    assert stage.woken == 1


def test_pod_without_a_claim_does_not_wake_the_agent(stage: Stage) -> None:
    stage.play(change("ADDED", pod(claim=False)), change("DELETED", pod(claim=False)))
    assert stage.woken == 0


def test_watch_covers_local_pods_from_the_last_version(stage: Stage) -> None:
    bookmark = {"metadata": {"resourceVersion": "9"}}
    stage.play(change("ADDED", pod(version="7")), change("BOOKMARK", bookmark))
    stage.play()
    assert all(query["fieldSelector"] == ["spec.nodeName=worker-1"] for query in stage.queries)
    assert [query["resourceVersion"] for query in stage.queries] == [["0"], ["3"], ["9"]]
    assert stage.woken == 1


def test_version_that_is_too_old_starts_a_new_list(stage: Stage) -> None:
    stage.play(change("ADDED", pod()))
    with pytest.raises(StatusError, match="too old") as caught:
        stage.play(change("ERROR", {"code": 410, "message": "too old resource version"}))
    stage.watch._fail(caught.value)
    assert stage.missed == 1
    stage.play()
    assert [query["resourceVersion"] for query in stage.queries[-2:]] == [["0"], ["3"]]


def test_watch_begins_again_after_the_store_was_restored(stage: Stage) -> None:
    """A watch from a version that the store does not have yet gets no event, and no 410."""
    stage.play(change("ADDED", pod(version="9")))
    stage.watch.begin_again()
    stage.play()
    assert stage.missed == 1
    assert [query["resourceVersion"] for query in stage.queries[-2:]] == [["0"], ["3"]]
    stage.play()
    assert stage.missed == 1


def test_invalid_change_is_an_error_that_names_the_path(stage: Stage) -> None:
    with pytest.raises(
        SourceError, match="/api/v1/pods: the watch returned a line that is not a change"
    ):
        stage.play(b"<html>\n")


def test_refused_watch_reports_the_reason(stage: Stage) -> None:
    def refuse(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(403)
        handler.end_headers()
        handler.wfile.write(b'{"message": "pods is forbidden"}')

    stage.api.broken[PODS] = refuse
    with pytest.raises(StatusError, match="pods is forbidden"):
        stage.play()
