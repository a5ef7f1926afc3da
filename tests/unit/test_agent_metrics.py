"""Metrics: of what is done they count what is on record, of what is seen the last look alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace

from rbdagent.agent.metrics import Metrics
from rbdagent.correlate import correlate_node
from rbdagent.diagnose import diagnose
from rbdagent.history import identity_of
from rbdagent.model import (
    BlockedVolume,
    Mapping,
    NotObserved,
    OtherSource,
    Remembered,
    TargetKind,
    UnbackedMount,
    UnmapOutcome,
    Verdict,
)
from tests.unit.builders import (
    ADDRESS,
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
from tests.unit.plans import history, moment, seen
from tests.unit.test_agent_events import looked

if TYPE_CHECKING:
    from prometheus_client.samples import Sample

    from rbdagent.agent.loop import Seen


def samples(look: Seen, family: str) -> list[Sample]:
    return [
        sample
        for each in Metrics(lambda: look).collect()
        if each.name == family
        for sample in each.samples
    ]


def unmaps(look: Seen) -> dict[str, float]:
    told = samples(look, "rbdagent_unmaps")
    return {each.labels["outcome"]: each.value for each in told if each.value}


def test_acts_and_refusals_are_counted_also_when_they_are_kept_no_longer() -> None:
    look = replace(looked(seen()), ended={"unmapped": 120, "refused": 3})
    assert unmaps(look) == {"unmapped": 120, "refused": 3}


def test_acts_that_are_not_observed_are_no_zero() -> None:
    """A counter that went back to zero would be taken for a restart, and its rise for new acts."""
    look = replace(looked(seen()), ended=NotObserved(reason="permission denied"))
    assert samples(look, "rbdagent_unmaps") == []


def test_every_outcome_has_its_series_from_the_start() -> None:
    families = {each.name: each for each in Metrics(lambda: looked(seen())).collect()}
    told = {each.labels["outcome"] for each in families["rbdagent_unmaps"].samples}
    assert told == {str(each) for each in UnmapOutcome}


def test_how_long_each_source_took_is_told_of_those_that_were_asked() -> None:
    look = looked(seen())
    sources = look.snapshot.sources
    asked = replace(sources, ceph=replace(sources.ceph, took_s=0.25))
    look = replace(look, snapshot=replace(look.snapshot, sources=asked))
    families = {each.name: each for each in Metrics(lambda: look).collect()}
    samples = families["rbdagent_observe_duration_seconds"].samples
    assert {each.labels["source"]: each.value for each in samples} == {"ceph": 0.25}


BLOCKED = BlockedVolume(
    namespace="default",
    pod="web-1",
    persistent_volume="pvc-1",
    cause=Verdict.ORPHANED,
    holder_node="worker-2",
)


def test_what_keeps_a_pod_from_starting_is_a_series_with_its_cause_and_holder() -> None:
    unknown = replace(BLOCKED, pod="web-2", cause=Verdict.UNDETERMINED, holder_node=None)
    look = replace(looked(seen()), blocked=(BLOCKED, unknown))
    families = {each.name: each for each in Metrics(lambda: look).collect()}
    labels = {
        "node": "worker-1",
        "namespace": "default",
        "pod": "web-1",
        "persistentvolume": "pvc-1",
        "cause": "Orphaned",
        "holder_node": "worker-2",
    }
    others = {"pod": "web-2", "cause": "Undetermined", "holder_node": ""}
    samples = families["rbdagent_volume_blocked"].samples
    assert [(each.labels, each.value) for each in samples] == [(labels, 1), (labels | others, 1)]


def test_a_conflict_is_told_beside_what_the_node_does_with_the_mapping() -> None:
    """It is a verdict on the image: here the volume is in use, as it should be."""
    both = {"watchers": (watcher(), remote_watcher())}
    look = looked(seen(of_image=both, in_kube={"pods": (pod(),)}))
    told = samples(look, "rbdagent_mapping_verdict")
    assert [each.labels["verdict"] for each in told] == ["InUse", "Conflict"]


BARE = UnbackedMount(
    pod_uid=POD_UID, persistent_volume=PV, path="/data", source="/dev/vda", process=process()
)
SIDECAR = replace(BARE, path="/backup", process=process(pid=77))
NOT_BACKED = {"node": "worker-1", "namespace": "default", "pod": "web-0", "persistentvolume": PV}


@pytest.mark.parametrize("mapped", [(mapping(),), ()], ids=["mapped", "not mapped"])
def test_a_pod_on_the_nodes_own_disk_is_one_series_also_where_nothing_is_mapped(
    mapped: tuple[Mapping, ...],
) -> None:
    on_node = {"mappings": mapped, "unbacked": (BARE, SIDECAR)}
    look = looked(seen(on_node=on_node, in_kube={"pods": (pod(),)}))
    told = samples(look, "rbdagent_volume_not_backed")
    assert [(each.labels, each.value) for each in told] == [(NOT_BACKED, 1)]


def test_a_pod_on_the_nodes_own_disk_that_the_api_has_lost_is_named_by_its_uid() -> None:
    look = looked(seen(on_node={"unbacked": (BARE,)}))
    (told,) = samples(look, "rbdagent_volume_not_backed")
    assert told.labels == NOT_BACKED | {"namespace": "", "pod": POD_UID}


@pytest.mark.parametrize(
    "volumes", [(volume(source=OtherSource(kind="nfs")),), ()], ids=["nfs", "unknown"]
)
def test_what_another_driver_may_have_put_there_is_not_told(volumes: tuple[Any, ...]) -> None:
    parts = {"pods": (pod(),), "persistent_volumes": volumes}
    look = looked(seen(on_node={"unbacked": (BARE,)}, in_kube=parts))
    assert samples(look, "rbdagent_volume_not_backed") == []


COMPLETE = "rbdagent_last_complete_observation_timestamp_seconds"


def test_when_all_was_seen_is_told_as_long_as_anything_is() -> None:
    assert samples(looked(seen()), COMPLETE) == []
    (told,) = samples(replace(looked(seen()), complete_at=NOW), COMPLETE)
    assert told.value == 1795230000


# --------------------------------------------------------------------------------------------------
# How many series there are
# --------------------------------------------------------------------------------------------------

EACH: int = 4
"""Info, verdict, Conflict beside it, and either how long it is orphaned or what pins it."""


def holding(count: int, **mapped: Any) -> Seen:  # noqa: ANN401 - any field of a mapping
    """Give a look at a node with that many mappings, each orphaned for a while."""
    mappings = tuple(
        mapping(
            device=f"/dev/rbd{number}",
            device_id=number,
            spec=replace(SPEC, name=f"csi-vol-{number}"),
            image_id=f"{number:x}",
            **mapped,
        )
        for number in range(count)
    )
    whole = target(given="", kind=TargetKind.NONE, name="")
    images = tuple(image_view(spec=each.spec, image_id=each.image_id) for each in mappings)
    look = seen(target=whole, on_node={"mappings": mappings}, in_ceph={"images": images})
    remembered = tuple(
        Remembered(identity=identity_of(each), first_seen=moment(900), orphaned_since=moment(900))
        for each in mappings
        if not mapped
    )
    return replace(
        looked(look),
        diagnoses=tuple(diagnose(each, look) for each in correlate_node(look)),
        history=replace(history(), mappings=remembered),
    )


def every(look: Seen) -> list[Sample]:
    return [sample for each in Metrics(lambda: look).collect() for sample in each.samples]


PINNED = {"openers": (opener(),)}


@pytest.mark.parametrize("mapped", [{}, PINNED], ids=["orphaned", "pinned"])
def test_series_are_bounded_by_the_mappings_of_the_node(mapped: dict[str, Any]) -> None:
    none, few, many = (len(every(holding(count, **mapped))) for count in (0, 10, 100))
    codes = len({each.labels["code"] for each in every(holding(100)) if "code" in each.labels})
    assert few - none <= 10 * EACH + codes
    assert many - few <= 90 * EACH
    assert many - few == 90 * 3  # it is orphans, and pinned ones, that were counted


@pytest.mark.parametrize("mapped", [{}, PINNED], ids=["orphaned", "pinned"])
def test_nothing_that_changes_from_process_to_process_is_a_label(mapped: dict[str, Any]) -> None:
    values = [value for each in every(holding(3, **mapped)) for value in each.labels.values()]
    passing = (str(process().pid), str(ADDRESS.nonce), str(ADDRESS.ip))
    assert [value for value in values if any(each in value for each in passing)] == []
