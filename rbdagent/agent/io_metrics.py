"""Metrics of the I/O of each mapping: the counters that the last cycle has read.

The names are those of node_exporter's disk statistics. Each series has the names of its volume, and
not only its device: the kernel gives the name of a device to the next mapping, whose counters would
else continue those of another claim. Its client is in ``rbdagent_mapping_info``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from rbdagent.correlate.device_io import io_of
from rbdagent.model import NotObserved

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from prometheus_client.metrics_core import Metric

    from rbdagent.model import Mapping

_COUNTED: Final = (
    ("reads", "rbdagent_mapping_reads_completed", "Reads of a mapped device that have ended."),
    ("read_bytes", "rbdagent_mapping_read_bytes", "Bytes read from a mapped device."),
    ("writes", "rbdagent_mapping_writes_completed", "Writes to a mapped device that have ended."),
    ("written_bytes", "rbdagent_mapping_written_bytes", "Bytes written to a mapped device."),
)
"""Field of `DeviceIo`, name without ``_total``, and description."""


def io_families(
    names: Sequence[str], mappings: Iterable[tuple[tuple[str, ...], Mapping]]
) -> tuple[Metric, ...]:
    """Return the families; a mapping whose I/O was not observed has no series in them.

    Args:
        names: the names of the labels.
        mappings: the mappings of the node, each with the values of its labels. If one occurs twice,
            because two volumes have it, only the first one counts.
    """
    in_flight = GaugeMetricFamily(
        "rbdagent_mapping_requests_in_flight",
        "Requests of a mapped device that its driver has not completed.",
        labels=names,
    )
    counters = {
        field: CounterMetricFamily(name, description, labels=names)
        for field, name, description in _COUNTED
    }
    first: dict[str, tuple[tuple[str, ...], Mapping]] = {}
    for labels, mapping in mappings:
        first.setdefault(mapping.device, (labels, mapping))
    for labels, mapping in first.values():
        done = io_of(mapping)
        if isinstance(done, NotObserved):
            continue
        in_flight.add_metric(labels, done.in_flight)
        for field, family in counters.items():
            family.add_metric(labels, getattr(done, field))
    return (*counters.values(), in_flight)
