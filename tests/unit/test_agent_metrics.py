"""Metrics: they count the recorded unmaps, and show the observations of the last cycle only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace

from rbdagent.agent.metrics import Metrics
from rbdagent.correlate import correlate_node
from rbdagent.model import (
    BlockedVolume,
    IoBytes,
    Mapping,
    MappingHistory,
    NotObserved,
    OtherSource,
    TargetKind,
    UnbackedMount,
    UnmapOutcome,
    Verdict,
)
from rbdagent.rules import diagnose
from rbdagent.unmap.orphan_history import identity_of
from tests.support.agent_loop import cycle_of, samples
from tests.support.snapshots import (
    ADDRESS,
    FSID,
    NO_IO,
    NOW,
    POD_UID,
    PV,
    SPEC,
    image_view,
    mapping,
    opener,
    pod,
    process,
    remote_watcher,
    target,
    volume,
    watcher,
)
from tests.support.unmap_plans import history, moment, seen

if TYPE_CHECKING:
    from prometheus_client.samples import Sample

    from rbdagent.agent.cycle import CycleResult


DONE = IoBytes(read=10_735_616, written=163_840, uptime_s=100.0)


def unmaps(look: CycleResult) -> dict[str, float]:
    series = samples(look, "rbdagent_unmaps")
    return {sample.labels["outcome"]: sample.value for sample in series if sample.value}


def test_unmaps_stay_counted_when_they_are_no_longer_kept() -> None:
    look = replace(cycle_of(seen()), ended={"unmapped": 120, "refused": 3})
    assert unmaps(look) == {"unmapped": 120, "refused": 3}


def test_unobserved_unmaps_have_no_series() -> None:
    """Assert no series: a counter at zero looks like a restart, and its rise like new unmaps."""
    look = replace(cycle_of(seen()), ended=NotObserved(reason="permission denied"))
    assert samples(look, "rbdagent_unmaps") == []


def test_every_outcome_has_a_series_from_the_start() -> None:
    families = {metric.name: metric for metric in Metrics(lambda: cycle_of(seen())).collect()}
    outcomes = {sample.labels["outcome"] for sample in families["rbdagent_unmaps"].samples}
    assert outcomes == {str(outcome) for outcome in UnmapOutcome}


def test_duration_is_reported_for_queried_sources_only() -> None:
    look = cycle_of(seen())
    sources = look.snapshot.sources
    asked = replace(sources, ceph=replace(sources.ceph, took_s=0.25))
    look = replace(look, snapshot=replace(look.snapshot, sources=asked))
    families = {metric.name: metric for metric in Metrics(lambda: look).collect()}
    samples = families["rbdagent_observe_duration_seconds"].samples
    assert {sample.labels["source"]: sample.value for sample in samples} == {"ceph": 0.25}


BLOCKED = BlockedVolume(
    namespace="default",
    pod="web-1",
    persistent_volume="pvc-1",
    cause=Verdict.ORPHANED,
    holder_node="worker-2",
    claim="data-web-1",
)


def test_blocked_volume_is_a_series_with_its_cause_and_holder() -> None:
    unseen = Verdict.UNDETERMINED
    unknown = replace(BLOCKED, pod="web-2", cause=unseen, holder_node=None, claim=None)
    look = replace(cycle_of(seen()), blocked=(BLOCKED, unknown))
    families = {metric.name: metric for metric in Metrics(lambda: look).collect()}
    labels = {
        "node": "worker-1",
        "claim_namespace": "default",
        "claim": "data-web-1",
        "waiting_pod": "web-1",
        "persistentvolume": "pvc-1",
        "cause": "Orphaned",
        "holder_node": "worker-2",
    }
    others = {"waiting_pod": "web-2", "cause": "Undetermined", "holder_node": "", "claim": ""}
    samples = families["rbdagent_volume_blocked"].samples
    assert [(sample.labels, sample.value) for sample in samples] == [
        (labels, 1),
        (labels | others, 1),
    ]


def test_conflict_is_reported_beside_the_verdict_on_the_mapping() -> None:
    """Assert two verdicts: Conflict is one on the image; the mapping is in use as it should be."""
    both = {"watchers": (watcher(), remote_watcher())}
    look = cycle_of(seen(of_image=both, in_kube={"pods": (pod(),)}))
    series = samples(look, "rbdagent_mapping_verdict")
    assert [sample.labels["verdict"] for sample in series] == ["InUse", "Conflict"]


PER_MAPPING = (
    "rbdagent_mapping_info",
    "rbdagent_mapping_verdict",
    "rbdagent_mapping_pinned",
    "rbdagent_mapping_orphaned_seconds",
    "rbdagent_mapping_reads_completed_total",
    "rbdagent_mapping_read_bytes_total",
    "rbdagent_mapping_writes_completed_total",
    "rbdagent_mapping_written_bytes_total",
    "rbdagent_mapping_requests_in_flight",
)


def series_of(look: CycleResult, *, problems_only: bool) -> list[tuple[str, dict[str, str]]]:
    """Return the series of mappings."""
    metrics = Metrics(lambda: look, problems_only=problems_only)
    samples = [sample for metric in metrics.collect() for sample in metric.samples]
    return [(sample.name, sample.labels) for sample in samples if sample.name in PER_MAPPING]


def test_problems_only_leaves_out_the_series_of_healthy_mappings() -> None:
    healthy = cycle_of(seen(mapped={"io_bytes": DONE}, in_kube={"pods": (pod(),)}))
    assert len(series_of(healthy, problems_only=False)) == 2 + 5
    assert series_of(healthy, problems_only=True) == []


@pytest.mark.parametrize(
    "look",
    [
        cycle_of(seen()),
        cycle_of(seen(mapped={"openers": NotObserved(reason="denied")})),
        cycle_of(seen(of_image={"watchers": NotObserved(reason="denied")})),
        cycle_of(
            seen(of_image={"watchers": (watcher(), remote_watcher())}, in_kube={"pods": (pod(),)})
        ),
        replace(cycle_of(seen()), history=history()),
        replace(cycle_of(seen(in_kube={"pods": (pod(),)})), history=history()),
    ],
    ids=["orphan", "openers", "watchers", "conflict", "age", "age of a mapping in use"],
)
def test_problems_only_keeps_every_series_of_another_mapping(look: CycleResult) -> None:
    """Each alert joins a series with the info of its mapping: without it, no alert would fire."""
    found = series_of(look, problems_only=True)
    assert found == series_of(look, problems_only=False)
    assert "rbdagent_mapping_info" in {name for name, _ in found}


def test_info_of_a_mapping_names_the_claim_of_its_volume() -> None:
    """Alerts are routed to the owner of the claim: each joins this series."""
    (info,) = samples(cycle_of(seen()), "rbdagent_mapping_info")
    assert (info.labels["claim_namespace"], info.labels["claim"]) == ("default", "data")


def test_info_of_a_mapping_without_a_volume_names_no_claim() -> None:
    look = cycle_of(seen(in_kube={"persistent_volumes": (), "claims": ()}))
    (info,) = samples(look, "rbdagent_mapping_info")
    assert (info.labels["claim_namespace"], info.labels["claim"]) == ("", "")


BARE = UnbackedMount(
    pod_uid=POD_UID, persistent_volume=PV, path="/data", source="/dev/vda", process=process()
)
SIDECAR = replace(BARE, path="/backup", process=process(pid=77))
NOT_BACKED = {
    "node": "worker-1",
    "claim_namespace": "default",
    "claim": "data",
    "writing_pod": "web-0",
    "persistentvolume": PV,
}


@pytest.mark.parametrize("mapped", [(mapping(),), ()], ids=["mapped", "not mapped"])
def test_unbacked_pod_is_one_series_even_without_a_mapping(
    mapped: tuple[Mapping, ...],
) -> None:
    on_node = {"mappings": mapped, "unbacked": (BARE, SIDECAR)}
    look = cycle_of(seen(on_node=on_node, in_kube={"pods": (pod(),)}))
    series = samples(look, "rbdagent_volume_not_backed")
    assert [(sample.labels, sample.value) for sample in series] == [(NOT_BACKED, 1)]


def test_unbacked_pod_that_the_api_lacks_is_named_by_its_uid() -> None:
    look = cycle_of(seen(on_node={"unbacked": (BARE,)}))
    (series,) = samples(look, "rbdagent_volume_not_backed")
    assert series.labels == NOT_BACKED | {"writing_pod": POD_UID}


@pytest.mark.parametrize(
    "volumes", [(volume(source=OtherSource(kind="nfs")),), ()], ids=["nfs", "unknown"]
)
def test_mount_that_another_driver_may_have_made_is_not_reported(volumes: tuple[Any, ...]) -> None:
    parts = {"pods": (pod(),), "persistent_volumes": volumes}
    look = cycle_of(seen(on_node={"unbacked": (BARE,)}, in_kube=parts))
    assert samples(look, "rbdagent_volume_not_backed") == []


COMPLETE = "rbdagent_last_complete_observation_timestamp_seconds"


def test_time_of_the_last_complete_observation_is_reported() -> None:
    assert samples(cycle_of(seen()), COMPLETE) == []
    (series,) = samples(replace(cycle_of(seen()), complete_at=NOW), COMPLETE)
    assert series.value == 1795230000


# --------------------------------------------------------------------------------------------------
# I/O
# --------------------------------------------------------------------------------------------------

IO = {
    "rbdagent_mapping_reads_completed": 812,
    "rbdagent_mapping_read_bytes": 10_735_616,
    "rbdagent_mapping_writes_completed": 40,
    "rbdagent_mapping_written_bytes": 163_840,
    "rbdagent_mapping_requests_in_flight": 2,
}
BUSY = {"io_counters": replace(NO_IO, in_flight=2), "io_bytes": DONE}


@pytest.mark.parametrize(("name", "value"), IO.items())
def test_io_of_a_mapping_is_counted_with_the_names_of_its_volume(name: str, value: int) -> None:
    (found,) = samples(cycle_of(seen(mapped=BUSY)), name)
    assert found.value == value
    assert found.labels == {
        "node": "worker-1",
        "device": "/dev/rbd0",
        "fsid": FSID,
        "pool": SPEC.pool,
        "rados_namespace": SPEC.namespace,
        "image": SPEC.name,
        "persistentvolume": PV,
        "claim_namespace": "default",
        "claim": "data",
    }


@pytest.mark.parametrize("name", IO)
@pytest.mark.parametrize("unknown", ["io_counters", "io_bytes"])
def test_io_that_was_not_observed_has_no_series(name: str, unknown: str) -> None:
    """Assert no series: a counter at zero looks like a new mapping."""
    look = cycle_of(seen(mapped=BUSY | {unknown: NotObserved(reason="denied")}))
    assert samples(look, name) == []
    assert len(samples(look, "rbdagent_mapping_info")) == 1


def test_device_of_two_volumes_is_counted_once() -> None:
    look = cycle_of(seen(mapped=BUSY))
    twice = replace(look, diagnoses=look.diagnoses * 2)
    assert len(samples(twice, "rbdagent_mapping_read_bytes")) == 1


# --------------------------------------------------------------------------------------------------
# The number of series
# --------------------------------------------------------------------------------------------------

EACH: int = 4 + 5
"""Info, verdict, an additional Conflict, either the time since it is orphaned or its pins, and the
five of its I/O."""


def holding(count: int, **mapped: Any) -> CycleResult:  # noqa: ANN401 - any field of a mapping
    """Build a cycle result of a node with that many mappings, by default orphaned for a while."""
    mappings = tuple(
        mapping(
            device=f"/dev/rbd{number}",
            device_id=number,
            spec=replace(SPEC, name=f"csi-vol-{number}"),
            image_id=f"{number:x}",
            io_bytes=DONE,
            **mapped,
        )
        for number in range(count)
    )
    whole = target(argument="", kind=TargetKind.NONE, name="")
    images = tuple(image_view(spec=device.spec, image_id=device.image_id) for device in mappings)
    look = seen(target=whole, on_node={"mappings": mappings}, in_ceph={"images": images})
    remembered = tuple(
        MappingHistory(
            identity=identity_of(device), first_seen=moment(900), orphaned_since=moment(900)
        )
        for device in mappings
        if not mapped
    )
    return replace(
        cycle_of(look),
        diagnoses=tuple(diagnose(use, look) for use in correlate_node(look)),
        history=replace(history(), mappings=remembered),
    )


def every(look: CycleResult) -> list[Sample]:
    return [sample for metric in Metrics(lambda: look).collect() for sample in metric.samples]


PINNED = {"openers": (opener(),)}


@pytest.mark.parametrize("mapped", [{}, PINNED], ids=["orphaned", "pinned"])
def test_series_are_bounded_by_the_mappings_of_the_node(mapped: dict[str, Any]) -> None:
    none, few, many = (len(every(holding(count, **mapped))) for count in (0, 10, 100))
    codes = len(
        {sample.labels["code"] for sample in every(holding(100)) if "code" in sample.labels}
    )
    assert few - none <= 10 * EACH + codes
    assert many - few <= 90 * EACH
    assert many - few == 90 * (3 + 5)  # the orphaned or pinned mappings were counted


@pytest.mark.parametrize("mapped", [{}, PINNED], ids=["orphaned", "pinned"])
def test_values_that_change_with_each_process_are_not_labels(mapped: dict[str, Any]) -> None:
    values = [value for sample in every(holding(3, **mapped)) for value in sample.labels.values()]
    transient = (str(process().pid), str(ADDRESS.nonce), str(ADDRESS.ip))
    assert [value for value in values if any(text in value for text in transient)] == []
