"""Metrics, made out of the last look when somebody scrapes: nothing is counted twice or kept stale.

No pids, no nonces and no client addresses as labels: series must not churn.
"""

from __future__ import annotations

import platform
import time
from collections import Counter
from datetime import datetime
from typing import TYPE_CHECKING, Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from rbdagent import __version__
from rbdagent.agent.events import CONFLICTING
from rbdagent.correlate.identity import pods_of
from rbdagent.correlate.local import unbacked_on
from rbdagent.model import Mapping, NotObserved, SourceState, UnmapOutcome, Verdict
from rbdagent.parse.shown import in_all_texts, shown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from prometheus_client.metrics_core import Metric

    from rbdagent.agent.loop import Seen
    from rbdagent.model import Diagnosis, JudgedHolder

_MAPPING: Final = (
    "node", "device", "fsid", "pool", "rados_namespace", "image", "persistentvolume", "client",
)  # fmt: skip


class Metrics:
    """A collector of prometheus_client."""

    def __init__(self, seen: Callable[[], Seen | None]) -> None:
        """Take what gives the last look."""
        self._seen = seen

    def collect(self) -> Iterator[Metric]:
        """Give every family; before the first look only what needs none."""
        for family in self._families():
            family.samples = [
                sample._replace(labels=in_all_texts(sample.labels, shown))
                for sample in family.samples
            ]
            yield family

    def _families(self) -> Iterator[Metric]:
        build = GaugeMetricFamily(
            "rbdagent_build_info", "Which rbdagent this is.", labels=("version", "python")
        )
        build.add_metric((__version__, platform.python_version()), 1)
        yield build
        seen = self._seen()
        if seen is not None:
            yield from _of_sources(seen)
            yield from _of_mappings(seen)
            yield _of_blocked(seen)
            yield _of_unbacked(seen)
            yield from _of_findings(seen)
            yield _of_acts(seen)


def _of_sources(seen: Seen) -> Iterator[Metric]:
    success = GaugeMetricFamily(
        "rbdagent_observe_success",
        "Whether the last look at a source went well.",
        labels=("source",),
    )
    took = GaugeMetricFamily(
        "rbdagent_observe_duration_seconds",
        "How long a source took to answer the last time that it was asked.",
        labels=("source",),
    )
    for name, source in seen.snapshot.sources.named:
        if source.state is not SourceState.SKIPPED:
            success.add_metric((name,), float(source.state is SourceState.OBSERVED))
            if source.took_s is not None:
                took.add_metric((name,), source.took_s)
    yield success
    yield took
    if seen.complete_at is not None:
        yield GaugeMetricFamily(
            "rbdagent_last_complete_observation_timestamp_seconds",
            "When the last look was made that no source failed.",
            value=datetime.fromisoformat(seen.complete_at).timestamp(),
        )


def _of_mappings(seen: Seen) -> Iterator[Metric]:
    info = GaugeMetricFamily(
        "rbdagent_mapping_info", "An image that is mapped on this node.", labels=_MAPPING
    )
    verdict = GaugeMetricFamily(
        "rbdagent_mapping_verdict",
        "What is made of a mapping; Conflict stands beside the verdict on what its node does.",
        labels=("node", "device", "verdict"),
    )
    orphaned = GaugeMetricFamily(
        "rbdagent_mapping_orphaned_seconds",
        "For how long nothing has used a mapping, without a break.",
        labels=("node", "device"),
    )
    pinned = GaugeMetricFamily(
        "rbdagent_mapping_pinned",
        "A mapping that Kubernetes has let go and something on the node keeps.",
        labels=("node", "device", "reason"),
    )
    for diagnosis, judged, mapping in _local(seen):
        node = judged.holder.node or ""
        info.add_metric(_labels(diagnosis, judged, mapping), 1)
        verdict.add_metric((node, mapping.device, str(judged.verdict)), 1)
        if any(each.code == CONFLICTING for each in diagnosis.findings):
            verdict.add_metric((node, mapping.device, str(Verdict.CONFLICT)), 1)
        if judged.verdict is Verdict.PINNED:
            pinned.add_metric((node, mapping.device, _pin(mapping)), 1)
    node = _node(seen)
    now = seen.history.last_look.uptime_s if seen.history is not None else 0.0
    now += time.monotonic() - seen.at
    for each in seen.history.mappings if seen.history is not None else ():
        if each.orphaned_since is not None:
            age_s = now - each.orphaned_since.uptime_s
            orphaned.add_metric((node, each.identity.device), age_s)
    yield from (info, verdict, orphaned, pinned)


def _local(seen: Seen) -> Iterator[tuple[Diagnosis, JudgedHolder, Mapping]]:
    for diagnosis in seen.diagnoses:
        for judged, mapping in diagnosis.mapped:
            yield diagnosis, judged, mapping


def _labels(diagnosis: Diagnosis, judged: JudgedHolder, mapping: Mapping) -> tuple[str, ...]:
    spec = None if isinstance(mapping.spec, NotObserved) else mapping.spec
    volume = diagnosis.use.persistent_volume
    return (
        judged.holder.node or "",
        mapping.device,
        mapping.fsid or "",
        spec.pool if spec is not None else "",
        spec.namespace if spec is not None else "",
        spec.name if spec is not None else "",
        volume.name if volume is not None else "",
        str(mapping.client_id or ""),
    )


def _pin(mapping: Mapping) -> str:
    """Give what keeps it, in one word: the first that a look for it would find."""
    for word, found in (
        ("mount", mapping.mounts),
        ("holder", mapping.holders),
        ("process", mapping.openers),
        ("kernel", mapping.kernel_traces),
    ):
        if found and not isinstance(found, NotObserved):
            return word
    return "unknown"


def _of_blocked(seen: Seen) -> Metric:
    family = GaugeMetricFamily(
        "rbdagent_volume_blocked",
        "A pod of this node that cannot start, because the volume is held or nobody could tell.",
        labels=("node", "namespace", "pod", "persistentvolume", "cause", "holder_node"),
    )
    for each in seen.blocked:
        labels = (each.namespace, each.pod, each.persistent_volume, str(each.cause))
        family.add_metric((_node(seen), *labels, each.holder_node or ""), 1)
    return family


def _of_unbacked(seen: Seen) -> Metric:
    """Tell of pods, not of mappings: what a container sees in its place may be mapped nowhere."""
    family = GaugeMetricFamily(
        "rbdagent_volume_not_backed",
        "A pod of this node that writes to the node's own disk instead of the volume.",
        labels=("node", "namespace", "pod", "persistentvolume"),
    )
    pods = {each.ref.uid: each.ref for each in pods_of(seen.snapshot.kubernetes)}
    told: dict[tuple[str, ...], None] = {}
    for each in unbacked_on(seen.snapshot):
        pod = pods.get(each.pod_uid)
        namespace, name = (pod.namespace, pod.name) if pod is not None else ("", each.pod_uid)
        told[_node(seen), namespace, name, each.persistent_volume] = None
    for labels in told:
        family.add_metric(labels, 1)
    return family


def _node(seen: Seen) -> str:
    return seen.snapshot.node.node_name if seen.snapshot.node is not None else ""


def _of_findings(seen: Seen) -> Iterator[Metric]:
    family = GaugeMetricFamily(
        "rbdagent_findings", "Findings of the last look.", labels=("code", "severity")
    )
    found = {each for diagnosis in seen.diagnoses for each in diagnosis.findings}
    counted = Counter((each.code, str(each.severity)) for each in found)
    for labels, number in sorted(counted.items()):
        family.add_metric(labels, number)
    yield family


def _of_acts(seen: Seen) -> Metric:
    """Count what is on record: the record outlives the agent, and so does the counter."""
    family = CounterMetricFamily(
        "rbdagent_unmaps",
        "Unmaps that were begun, or refused when it was time, by how they ended.",
        labels=("outcome",),
    )
    # A counter that is missing is no counter that went back to zero.
    if not isinstance(seen.ended, NotObserved):
        for outcome in UnmapOutcome:
            family.add_metric((str(outcome),), seen.ended.get(str(outcome), 0))
    return family
