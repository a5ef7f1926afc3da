"""Metrics: each scrape computes them from the last cycle, so none is stale or counted twice.

No label contains a pid, a nonce or a client address, because these would create new time series
all the time. No label is named namespace, pod, container, service, endpoint, job or instance: these
are the target's, and a Prometheus that overrides honorLabels replaces them by those of the agent's
own pod. User workload monitoring of OpenShift does (overrideHonorLabels, enforcedNamespaceLabel:
assets/prometheus-user-workload/prometheus.yaml of cluster-monitoring-operator@02787ce).
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
from rbdagent.agent.io_metrics import io_families
from rbdagent.correlate.image_identity import identity_of_mapping
from rbdagent.correlate.index import kube_index
from rbdagent.correlate.machine import is_its_node
from rbdagent.correlate.node_usage import unbacked_on
from rbdagent.model import Mapping, NotObserved, SourceState, UnmapOutcome, Verdict
from rbdagent.parse.shown import shown
from rbdagent.report.rbdnode import HEALTHY

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from prometheus_client.metrics_core import Metric

    from rbdagent.agent.cycle import CycleResult
    from rbdagent.model import Diagnosis, HolderVerdict

_VOLUME: Final = (
    "node", "device", "fsid", "pool", "rados_namespace", "image", "persistentvolume",
    "claim_namespace", "claim",
)  # fmt: skip


class Metrics:
    """A collector of prometheus_client."""

    def __init__(
        self, result: Callable[[], CycleResult | None], *, problems_only: bool = False
    ) -> None:
        """Store what the metrics are computed from.

        Args:
            result: returns the result of the last cycle.
            problems_only: leave out the series of healthy mappings.
        """
        self._seen = result
        self._problems_only = problems_only

    def collect(self) -> Iterator[Metric]:
        """Yield every metric family; before the first cycle, only those that need no snapshot."""
        for family in self._families():
            family.samples = [
                sample._replace(labels={name: shown(text) for name, text in sample.labels.items()})
                for sample in family.samples
            ]
            yield family

    def _families(self) -> Iterator[Metric]:
        build = GaugeMetricFamily(
            "rbdagent_build_info",
            "Version of rbdagent and of Python.",
            labels=("version", "python"),
        )
        build.add_metric((__version__, platform.python_version()), 1)
        yield build
        result = self._seen()
        if result is not None:
            yield from _of_sources(result)
            yield from _of_identity(result)
            yield from _of_mappings(result, problems_only=self._problems_only)
            yield _of_blocked(result)
            yield _of_unbacked(result)
            yield from _of_findings(result)
            yield _of_acts(result)
            yield _of_refusals(result)


def _of_sources(result: CycleResult) -> Iterator[Metric]:
    success = GaugeMetricFamily(
        "rbdagent_observe_success",
        "Whether the last observation of a source succeeded.",
        labels=("node", "source"),
    )
    took = GaugeMetricFamily(
        "rbdagent_observe_duration_seconds",
        "Duration of the last observation of a source.",
        labels=("node", "source"),
    )
    node = _node(result)
    for name, source in result.snapshot.sources.named:
        if source.state is not SourceState.SKIPPED:
            success.add_metric((node, name), float(source.state is SourceState.OBSERVED))
            if source.took_s is not None:
                took.add_metric((node, name), source.took_s)
    yield success
    yield took
    if result.complete_at is not None:
        complete = GaugeMetricFamily(
            "rbdagent_last_complete_observation_timestamp_seconds",
            "Time of the last snapshot in which no source failed.",
            labels=("node",),
        )
        complete.add_metric((node,), datetime.fromisoformat(result.complete_at).timestamp())
        yield complete


def _of_identity(result: CycleResult) -> Iterator[Metric]:
    """Yield whether the machine is its Node; nothing if that was not observed."""
    is_node = is_its_node(result.snapshot)
    if not isinstance(is_node, NotObserved):
        identity = GaugeMetricFamily(
            "rbdagent_is_its_node",
            "Whether the boot id of this machine is that of its Node. If not, the machine counts "
            "as not observed, and the agent publishes nothing.",
            labels=("node",),
        )
        identity.add_metric((_node(result),), float(is_node))
        yield identity


def _of_mappings(result: CycleResult, *, problems_only: bool) -> Iterator[Metric]:
    info = GaugeMetricFamily(
        "rbdagent_mapping_info",
        "An RBD image that is mapped on this node.",
        labels=(*_VOLUME, "client"),
    )
    verdict = GaugeMetricFamily(
        "rbdagent_mapping_verdict",
        "Verdict on a mapping; Conflict is reported in addition to the mapping's own verdict.",
        labels=("node", "device", "verdict"),
    )
    orphaned = GaugeMetricFamily(
        "rbdagent_mapping_orphaned_seconds",
        "Time for which a mapping has been orphaned without interruption.",
        labels=("node", "device"),
    )
    pinned = GaugeMetricFamily(
        "rbdagent_mapping_pinned",
        "A mapping that Kubernetes has released and that something on the node keeps open.",
        labels=("node", "device", "reason"),
    )
    counted = []
    for diagnosis, holder_verdict, mapping in _local(result):
        if problems_only and _is_healthy(diagnosis, holder_verdict, mapping, result):
            continue
        node = holder_verdict.holder.node or ""
        labels = _labels(diagnosis, holder_verdict, mapping)
        info.add_metric((*labels, str(mapping.client_id or "")), 1)
        counted.append((labels, mapping))
        verdict.add_metric((node, mapping.device, str(holder_verdict.verdict)), 1)
        if any(finding.code == CONFLICTING for finding in diagnosis.findings):
            verdict.add_metric((node, mapping.device, str(Verdict.CONFLICT)), 1)
        if holder_verdict.verdict is Verdict.PINNED:
            pinned.add_metric((node, mapping.device, _pin(mapping)), 1)
    node = _node(result)
    now = result.history.last_observed.uptime_s if result.history is not None else 0.0
    now += time.monotonic() - result.at
    for remembered in result.history.mappings if result.history is not None else ():
        if remembered.orphaned_since is not None:
            age_s = now - remembered.orphaned_since.uptime_s
            orphaned.add_metric((node, remembered.identity.device), age_s)
    yield from (info, verdict, orphaned, pinned, *io_families(_VOLUME, counted))


def _local(result: CycleResult) -> Iterator[tuple[Diagnosis, HolderVerdict, Mapping]]:
    for diagnosis in result.diagnoses:
        for holder_verdict, mapping in diagnosis.mapped:
            yield diagnosis, holder_verdict, mapping


def _is_healthy(
    diagnosis: Diagnosis, holder_verdict: HolderVerdict, mapping: Mapping, result: CycleResult
) -> bool:
    """Return whether no alert can concern a mapping; one that was not observed is not healthy."""
    remembered = result.history.mappings if result.history is not None else ()
    orphaned = {entry.identity.device for entry in remembered if entry.orphaned_since is not None}
    return (
        holder_verdict.verdict in HEALTHY
        and mapping.device not in orphaned
        and all(finding.code != CONFLICTING for finding in diagnosis.findings)
    )


def _labels(
    diagnosis: Diagnosis, holder_verdict: HolderVerdict, mapping: Mapping
) -> tuple[str, ...]:
    """Return the values of ``_VOLUME``."""
    image = identity_of_mapping(mapping)
    volume = diagnosis.volume.persistent_volume
    claim = volume.claim if volume is not None else None
    return (
        holder_verdict.holder.node or "",
        mapping.device,
        mapping.fsid or "",
        image.spec.pool if image is not None else "",
        image.spec.namespace if image is not None else "",
        image.spec.name if image is not None else "",
        volume.name if volume is not None else "",
        claim.namespace if claim is not None else "",
        claim.name if claim is not None else "",
    )


def _pin(mapping: Mapping) -> str:
    """Return, in one word, the first reason why a mapping is still open; else ``unknown``."""
    for reason, found in (
        ("mount", mapping.mounts),
        ("holder", mapping.holders),
        ("process", mapping.openers),
        ("kernel", mapping.kernel_traces),
    ):
        if found and not isinstance(found, NotObserved):
            return reason
    return "unknown"


def _of_blocked(result: CycleResult) -> Metric:
    family = GaugeMetricFamily(
        "rbdagent_volume_blocked",
        "A pod of this node that cannot start, because its volume is held or was not observed.",
        labels=(
            "node", "claim_namespace", "claim", "waiting_pod", "persistentvolume", "cause",
            "holder_node",
        ),
    )  # fmt: skip
    for blocked in result.blocked:
        # The claims of a pod are in its namespace.
        claim = (blocked.namespace, blocked.claim or "", blocked.pod)
        labels = (_node(result), *claim, blocked.persistent_volume, str(blocked.cause))
        family.add_metric((*labels, blocked.holder_node or ""), 1)
    return family


def _of_unbacked(result: CycleResult) -> Metric:
    """Count pods and not mappings: the volume of such a pod may be mapped on no node."""
    family = GaugeMetricFamily(
        "rbdagent_volume_not_backed",
        "A pod of this node that writes to the node's own disk instead of the volume.",
        labels=("node", "claim_namespace", "claim", "writing_pod", "persistentvolume"),
    )
    pods = {pod.ref.uid: pod.ref for pod in kube_index(result.snapshot.kubernetes).pods}
    claims = {
        volume.name: volume.claim
        for volume in kube_index(result.snapshot.kubernetes).volumes
        if volume.claim is not None
    }
    written: dict[tuple[str, ...], None] = {}
    for mount in unbacked_on(result.snapshot):
        pod, claim = pods.get(mount.pod_uid), claims.get(mount.persistent_volume)
        owner = pod or claim
        named = (owner.namespace if owner else "", claim.name if claim else "")
        name = pod.name if pod else mount.pod_uid
        written[_node(result), *named, name, mount.persistent_volume] = None
    for labels in written:
        family.add_metric(labels, 1)
    return family


def _node(result: CycleResult) -> str:
    return result.snapshot.node.node_name if result.snapshot.node is not None else ""


def _of_findings(result: CycleResult) -> Iterator[Metric]:
    family = GaugeMetricFamily(
        "rbdagent_findings", "Findings of the last cycle.", labels=("code", "severity")
    )
    found = {finding for diagnosis in result.diagnoses for finding in diagnosis.findings}
    counted = Counter((finding.code, str(finding.severity)) for finding in found)
    for labels, number in sorted(counted.items()):
        family.add_metric(labels, number)
    yield family


def _of_acts(result: CycleResult) -> Metric:
    """Count the unmap records; like the records, the counter survives a restart of the agent."""
    family = CounterMetricFamily(
        "rbdagent_unmaps",
        "Unmaps that were started, or refused after the grace period, by outcome.",
        labels=("outcome",),
    )
    # Prometheus interprets a counter that falls to zero as a reset; a missing counter is no reset.
    if not isinstance(result.ended, NotObserved):
        for outcome in UnmapOutcome:
            family.add_metric((str(outcome),), result.ended.get(str(outcome), 0))
    return family


def _of_refusals(result: CycleResult) -> Metric:
    """Return why each refused orphan stays mapped, as one series per mapping.

    These series end with the mapping; the counter of refusals does not.
    """
    family = GaugeMetricFamily(
        "rbdagent_unmap_refused",
        "An orphan that stays mapped after its grace period: the first condition that does not "
        "hold, and the object that blocks the unmap, where it is exactly one.",
        labels=("node", "device", "condition", "object_kind", "object_namespace", "object_name"),
    )
    for refusal in result.refused:
        if refusal.identity is not None:
            keeper = refusal.prevented_by
            named = ("", "", "") if keeper is None else (keeper.kind, keeper.namespace, keeper.name)
            family.add_metric(
                (refusal.node, refusal.identity.device, refusal.first_code, *named), 1
            )
    return family
