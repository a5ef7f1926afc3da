"""Metrics of the agent's own processes: the agent, and those that observe the node and Ceph."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any, Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from rbdagent.collect.own_processes import use_of_child, use_of_self
from rbdagent.collect.worker import PersistentWorker

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client.metrics_core import Metric

    from rbdagent.collect.own_processes import ProcessUse
    from rbdagent.collector import Workers

_FRESH_S: Final = 60.0
"""Age up to which the figures are served again: the kernel walks all pages of a process for them.
"""


class ProcessMetrics:
    """A collector of prometheus_client."""

    def __init__(self, workers: Workers) -> None:
        """Store the processes; the agent itself is this process."""
        self._workers: dict[str, PersistentWorker[Any, Any]] = {
            name: worker
            for name, worker in workers._asdict().items()
            if isinstance(worker, PersistentWorker)
        }
        self._known: dict[str, ProcessUse] = {}
        self._read_at = float("-inf")
        self._reading = threading.Lock()

    def collect(self) -> Iterator[Metric]:
        """Yield every metric family; a process that is not running has no figures."""
        self._read()
        pss = GaugeMetricFamily(
            "rbdagent_process_pss_bytes",
            "Memory of a process of the agent; pages that processes share count in parts.",
            labels=("process",),
        )
        uss = GaugeMetricFamily(
            "rbdagent_process_uss_bytes",
            "Memory that the end of a process of the agent would free.",
            labels=("process",),
        )
        descriptors = GaugeMetricFamily(
            "rbdagent_process_open_fds",
            "Open file descriptors of a process of the agent.",
            labels=("process",),
        )
        cpu = CounterMetricFamily(
            "rbdagent_process_cpu_seconds",
            "Processor time of a process of the agent.",
            labels=("process",),
        )
        restarts = CounterMetricFamily(
            "rbdagent_process_restarts",
            "How often the agent replaced a process that observes.",
            labels=("process",),
        )
        for name, volume in self._known.items():
            pss.add_metric((name,), volume.pss_bytes)
            uss.add_metric((name,), volume.uss_bytes)
            descriptors.add_metric((name,), volume.descriptors)
            cpu.add_metric((name,), volume.cpu_s)
        for name, worker in self._workers.items():
            restarts.add_metric((name,), worker.restarts)
        yield from (pss, uss, descriptors, cpu, restarts)

    def _read(self) -> None:
        """Read the figures if they are old; not while another scrape does, which may hang.

        A read waits for a lock of the process (mmap_lock), which a process that hangs may hold.
        """
        if time.monotonic() - self._read_at < _FRESH_S or not self._reading.acquire(blocking=False):
            return
        try:
            pids = {name: worker.pid for name, worker in self._workers.items()}
            uses = {name: use_of_child(pid) for name, pid in pids.items() if pid is not None}
            uses = {"agent": use_of_self(), **uses}
            self._known = {name: volume for name, volume in uses.items() if volume is not None}
            self._read_at = time.monotonic()
        finally:
            self._reading.release()
