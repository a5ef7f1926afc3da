"""Metrics: of what is done they count what is on record, of what is seen the last look alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from rbdagent.agent.metrics import Metrics
from rbdagent.model import BlockedVolume, UnmapOutcome, Verdict
from tests.unit.plans import seen
from tests.unit.test_agent_events import looked

if TYPE_CHECKING:
    from rbdagent.agent.loop import Seen


def unmaps(look: Seen) -> dict[str, float]:
    families = {each.name: each for each in Metrics(lambda: look).collect()}
    samples = families["rbdagent_unmaps"].samples
    return {each.labels["outcome"]: each.value for each in samples if each.value}


def test_acts_and_refusals_are_counted_also_when_they_are_kept_no_longer() -> None:
    look = replace(looked(seen()), ended={"unmapped": 120, "refused": 3})
    assert unmaps(look) == {"unmapped": 120, "refused": 3}


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
