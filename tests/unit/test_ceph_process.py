"""The process that queries Ceph: it loads modules early, and then receives the clusters."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import pytest

from rbdagent.__main__ import _loading
from rbdagent.collect.ceph import connection
from rbdagent.collect.ceph import images as ceph_images
from rbdagent.collect.ceph_process import connect, start_loading
from rbdagent.collector import _begin_ceph, _ceph
from rbdagent.model import Source, SourceState
from tests.support.snapshots import NOWHERE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rbdagent.model import CephView


class FakeReader:
    """Fake of the connections: the reason names the process."""

    def __init__(self, _clusters: Sequence[object], **_: object) -> None:
        pass

    def images(self, *_: object, **__: object) -> tuple[CephView | None, Source]:
        return None, Source(state=SourceState.OBSERVED, reason=f"{os.getpid()}")


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "rbd_module", lambda: None)
    monkeypatch.setattr(ceph_images, "CephReader", FakeReader)


def _answered(begun: object) -> Source:
    deadline = time.monotonic() + 60
    _, source = _ceph(begun, (), None, deadline, to_all=True)  # type: ignore[arg-type]
    return source


@pytest.mark.usefixtures("fake")
def test_process_that_loaded_early_answers() -> None:
    loading = start_loading()
    with connect((), (), loading) as process:
        assert process is loading
        assert _answered(process).reason == str(loading.pid)


@pytest.mark.usefixtures("fake")
def test_without_an_early_process_a_new_one_answers() -> None:
    with _begin_ceph(NOWHERE, None) as process:
        assert _answered(process).state is SourceState.OBSERVED


@pytest.mark.usefixtures("fake")
def test_early_process_that_has_ended_is_a_failed_source() -> None:
    loading = start_loading()
    loading.finish()
    os.waitid(os.P_PID, loading.pid, os.WEXITED | os.WNOWAIT)
    with connect((), (), loading) as process:
        source = _answered(process)
    assert source.state is SourceState.FAILED
    assert "ended without an answer" in source.reason


@pytest.mark.parametrize(
    "words",
    [
        "",
        "list",
        "explain RBD101",
        "who-holds --help",
        "diagnose -h",
        "who-holds web --from file.json",
        "who-holds web --from=file.json",
        "diagnose -A --no-ceph",
        "who-holds web --debug",
    ],
)
def test_command_that_does_not_query_ceph_starts_no_process(words: str) -> None:
    assert _loading(words.split()) == []


def test_no_process_starts_if_the_environment_requests_tracebacks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("RBDAGENT_DEBUG", "1")
    assert _loading(["who-holds", "web"]) == []


@pytest.mark.usefixtures("fake")
@pytest.mark.parametrize("words", ["who-holds web", "diagnose -A", "diagnose pvc web -n default"])
def test_command_that_queries_ceph_starts_the_process(words: str) -> None:
    (process,) = _loading(words.split())
    assert process.end()
