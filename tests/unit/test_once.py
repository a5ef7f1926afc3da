"""Calls that many threads need, and that run once: connections, and requests for a pool."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from rbdagent.collect.ceph import list_watchers
from rbdagent.collect.ceph.access import CephAccess
from rbdagent.collect.ceph.connection import Cluster
from rbdagent.collect.parallel import all_of, once_for_all_threads

if TYPE_CHECKING:
    from collections.abc import Callable

_THREADS = 8
_ACCESS = CephAccess(
    name="ceph", conf=Path(os.devnull), client_id="rbdagent", keyring=None, timeout_s=3
)


class Meeting:
    """Counts calls, each of which waits a moment for a second one at the same time."""

    def __init__(self) -> None:
        self.calls: list[tuple[object, ...]] = []
        self._both = threading.Barrier(2)

    def call(self, *arguments: object) -> int:
        self.calls.append(arguments)
        try:
            self._both.wait(0.2)
        except threading.BrokenBarrierError:
            self._both.reset()
        return len(self.calls)


def _in_threads(call: Callable[[], object]) -> list[Any]:
    return all_of([call] * _THREADS, time.monotonic() + 60)


def test_one_thread_calls_and_the_others_wait_for_its_result() -> None:
    meeting = Meeting()
    call = once_for_all_threads(meeting.call)
    assert _in_threads(lambda: call("k8s", "")) == [1] * _THREADS
    assert meeting.calls == [("k8s", "")]


def test_each_set_of_arguments_has_its_call() -> None:
    meeting = Meeting()
    call = once_for_all_threads(meeting.call)
    assert [call("a"), call("b"), call("a")] == [1, 2, 1]


def test_call_that_failed_is_repeated() -> None:
    results = iter([OSError("refused"), None])

    def failing_first() -> str:
        error = next(results)
        if error is not None:
            raise error
        return "done"

    call = once_for_all_threads(failing_first)
    with pytest.raises(OSError, match="refused"):
        call()
    assert call() == "done"


def test_threads_share_one_connection_that_lists_watches(monkeypatch: pytest.MonkeyPatch) -> None:
    meeting = Meeting()

    class FakeWatches:
        def __init__(self, *_: object) -> None:
            meeting.call()

    class FakeRados:
        Error = OSError

        class Rados:
            def __init__(self, **_: object) -> None:
                pass

            def connect(self) -> None:
                pass

            def get_fsid(self) -> str:
                return "fsid"

    monkeypatch.setattr(list_watchers, "Watches", FakeWatches)
    monkeypatch.setattr("rbdagent.collect.ceph.connection.rados_module", lambda: FakeRados)
    cluster = Cluster(_ACCESS)
    first, *others = _in_threads(lambda: cluster.watches)
    assert all(other is first for other in others)
    assert len(meeting.calls) == 1
