"""What rbdagent's own processes use: read from real processes, and from no other process."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import threading
import time
from typing import TYPE_CHECKING

import psutil
import pytest

from rbdagent.agent import processes
from rbdagent.agent.processes import ProcessMetrics
from rbdagent.collect.own_processes import use_of_child, use_of_self
from rbdagent.collect.worker import PersistentWorker, WorkerExitedError
from rbdagent.collector import Workers
from tests.support.cli_runner import process

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


def _begin() -> Callable[[int], int]:
    return abs


@pytest.fixture
def worker() -> Iterator[PersistentWorker[int, int]]:
    worker = PersistentWorker(_begin, answers=int)
    yield worker
    worker.end()


@pytest.fixture
def scraped(worker: PersistentWorker[int, int]) -> ProcessMetrics:
    workers: object = worker
    return ProcessMetrics(Workers(ceph=None, node=workers))  # type: ignore[arg-type]


def values(metrics: ProcessMetrics) -> dict[tuple[str, str], float]:
    """Return the values of a scrape by metric and process."""
    return {
        (sample.name.removeprefix("rbdagent_process_"), sample.labels["process"]): sample.value
        for family in metrics.collect()
        for sample in family.samples
    }


def test_each_process_has_its_own_figures(
    scraped: ProcessMetrics, worker: PersistentWorker[int, int]
) -> None:
    # An answer shows that the process has closed the descriptors of its parent.
    assert worker.answer(-1, time.monotonic() + 60) == 1
    found = values(scraped)
    families = ("pss_bytes", "uss_bytes", "open_fds", "cpu_seconds_total")
    assert found.keys() == {
        *((family, name) for family in families for name in ("agent", "node")),
        ("restarts_total", "node"),
    }
    assert found["open_fds", "node"] == 5
    assert found["restarts_total", "node"] == 0
    for name in ("agent", "node"):
        assert 0 < found["uss_bytes", name] <= found["pss_bytes", name]


def test_a_replaced_process_counts_and_has_new_figures(
    scraped: ProcessMetrics,
    worker: PersistentWorker[int, int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(processes, "_FRESH_S", 0.0)
    assert worker.pid is not None
    os.kill(worker.pid, signal.SIGKILL)
    with pytest.raises(WorkerExitedError):
        worker.answer(-1, time.monotonic() + 60)
    assert ("pss_bytes", "node") not in values(scraped)
    assert worker.answer(-2, time.monotonic() + 60) == 2
    found = values(scraped)
    assert found["restarts_total", "node"] == 1
    assert found["pss_bytes", "node"] > 0


def test_scrapes_in_the_same_minute_read_once(
    scraped: ProcessMetrics, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: list[object] = []
    monkeypatch.setattr(processes, "use_of_self", lambda: reads.append(None))
    for _ in range(3):
        values(scraped)
    assert len(reads) == 1


def test_a_read_that_hangs_delays_no_other_scrape(
    scraped: ProcessMetrics, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, released = threading.Event(), threading.Event()

    def hang() -> None:
        begun.set()
        assert released.wait(60)

    monkeypatch.setattr(processes, "use_of_self", hang)
    thread = threading.Thread(target=values, args=(scraped,))
    thread.start()
    assert begun.wait(60)
    assert values(scraped) == {("restarts_total", "node"): 0}
    released.set()
    thread.join()


def test_only_a_child_has_figures() -> None:
    child = subprocess.Popen(["sleep", "1000"])
    try:
        assert use_of_child(child.pid) is not None
    finally:
        child.kill()
        child.wait()
    assert [use_of_child(pid) for pid in (child.pid, 1, os.getppid(), os.getpid())] == [None] * 4


def test_ended_children_count_where_they_are_asked_for() -> None:
    subprocess.run(["sh", "-c", "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done"], check=True)
    alone, with_children = use_of_self(), use_of_self(with_ended_children=True)
    assert alone is not None
    assert with_children is not None
    assert with_children.cpu_s > alone.cpu_s


def test_the_hosts_proc_is_not_that_of_psutil() -> None:
    """With it, ``Process()`` of an agent in a pod is another process of the node."""
    done = process("check", "-v", "--procfs=/none", "--no-ceph", "--no-kube")
    assert re.search(r"this check uses \d+ MiB of memory \(Pss\), [\d.]+ s of proc", done.stdout)
    assert psutil.PROCFS_PATH == "/proc"


def test_check_without_details_has_no_line_about_itself() -> None:
    assert "this check uses" not in process("check", "--no-ceph", "--no-kube").stdout
