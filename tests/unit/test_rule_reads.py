"""What each rule reads beside the volume, against what it declares (`Rule.reads`).

A property records each read of the fields that only a request for the lifecycle fills, while each
rule judges each row of the tables, each reported state and each recorded state.
"""

from __future__ import annotations

from functools import reduce
from operator import or_
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, Final

import pytest

from rbdagent.correlate import correlate
from rbdagent.correlate.index import KubeIndex, index_of
from rbdagent.lifecycle.targets import EVERYTHING
from rbdagent.lifecycle.triage import targets_to_diagnose
from rbdagent.model import CollectScope, KubeView, Mapping, NodeView
from rbdagent.report.snapshot import load_snapshot
from rbdagent.rules import RULES
from rbdagent.rules.context import RuleContext
from rbdagent.verdicts.holder_verdict import judge
from rbdagent.verdicts.timing import GRACE
from rbdagent.verdicts.volume_verdict import target_verdict
from tests.support.random_clusters import some_cluster
from tests.support.rule_rows.families import FAMILIES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rbdagent.model import Snapshot

FIELDS: Final = (
    (KubeView, "storage_classes", CollectScope.STORAGE_CLASSES),
    (KubeView, "drivers", CollectScope.CSI_DRIVERS),
    (KubeView, "version", CollectScope.VERSION),
    (KubeIndex, "workloads", CollectScope.WORKLOADS),
    (KubeIndex, "migrations", CollectScope.MIGRATIONS),
    (KubeIndex, "replications", CollectScope.REPLICATIONS),
    (KubeView, "leases", CollectScope.PROVISIONERS),
    (KubeView, "driver_pods", CollectScope.PROVISIONERS),
    (KubeView, "node_plugins", CollectScope.DRIVER_WORKLOADS),
    (KubeView, "controllers", CollectScope.DRIVER_WORKLOADS),
    (NodeView, "logs", CollectScope.LOGS),
    (Mapping, "file_system", CollectScope.FILE_SYSTEMS),
    (NodeView, "networks", CollectScope.LOGS),
)
FIXTURES: Final = Path(__file__).parents[1] / "fixtures"


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> set[CollectScope]:
    """Return what was read since the set was cleared."""
    seen: set[CollectScope] = set()

    def recorded(owner: type, name: str, kind: CollectScope) -> property:
        field = vars(owner)[name]
        get = getattr(field, "func", None) or field.__get__

        def value(self: object) -> Any:  # noqa: ANN401 - as the field
            seen.add(kind)
            return get(self)

        return property(value)

    for owner, name, kind in FIELDS:
        monkeypatch.setattr(owner, name, recorded(owner, name, kind))
    return seen


def states() -> Iterator[Snapshot]:
    for family in FAMILIES:
        for rows in family.REPORTED.values():
            yield from (row[0] if isinstance(row, tuple) else row for row in rows.values())
    for path in sorted([*FIXTURES.glob("reported/*.json"), *FIXTURES.glob("life/*.json")]):
        yield load_snapshot(path.read_text(), where=path.name)


def context_of(seen: Snapshot) -> RuleContext:
    volume = correlate(seen)
    judged = tuple(judge(holder, volume, seen, GRACE) for holder in volume.holders)
    context = RuleContext(
        volume=volume,
        snapshot=seen,
        holder_verdicts=judged,
        verdict=target_verdict(volume, judged, seen),
    )
    # The index takes the lists when it is made.
    assert context.kube.coverage is not None
    return context


def test_each_rule_reads_what_it_declares_and_nothing_else(read: set[CollectScope]) -> None:
    found = {rule.judge.__name__: CollectScope.NOTHING for rule in RULES}
    for seen in states():
        context = context_of(seen)
        for rule in RULES:
            read.clear()
            list(rule.judge(context))
            found[rule.judge.__name__] |= reduce(or_, read, CollectScope.NOTHING)
    wrong = {
        rule.judge.__name__: f"declares {rule.reads}, reads {found[rule.judge.__name__]}"
        for rule in RULES
        if rule.reads != found[rule.judge.__name__]
    }
    assert wrong == {}


def test_lifecycle_is_what_the_rules_declare() -> None:
    assert reduce(or_, (rule.reads for rule in RULES)) == CollectScope.LIFECYCLE


def test_triage_needs_nothing_that_a_rule_declares(read: set[CollectScope]) -> None:
    # What a rule declares explains why an object waits; that it waits, the object itself shows.
    clusters = [index_of(some_cluster(Random(seed), seed % 9)) for seed in range(50)]
    for index in clusters:
        assert index.kube.coverage is not None
    read.clear()
    selected = [targets_to_diagnose(index, EVERYTHING) for index in clusters]
    assert any(selected)
    assert read == set()
