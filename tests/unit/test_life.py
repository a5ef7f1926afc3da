"""The life of a volume, from recorded snapshots of clusters with real controllers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from rbdagent.catalog import CATALOG
from rbdagent.commands import lines_of, sentence_of
from tests.support.consistency import advice_that_loses_data, contradictions, loses_data
from tests.support.lifecycle_states import (
    CODES,
    CODES_ON_NODES,
    FIXED,
    FIXED_ON_NODES,
    FIXTURES,
    FROM_OUTSIDE,
    NOT_RUN,
    codes_of,
    lifecycle_of,
    ways,
)
from tests.support.rows import each_row

if TYPE_CHECKING:
    from rbdagent.rules.entry import Entry


def test_recordings_are_exactly_those_of_the_known_states() -> None:
    recorded = {file.stem for file in FIXTURES.glob("*.json")}
    assert recorded == CODES.keys() | CODES_ON_NODES.keys()
    assert CODES.keys().isdisjoint(CODES_ON_NODES)


@each_row("state", [*CODES, *CODES_ON_NODES])
def test_recorded_state_is_reported_without_contradiction(state: str) -> None:
    diagnosis = lifecycle_of(state).diagnosis
    assert list(contradictions(diagnosis)) == []
    assert advice_that_loses_data(diagnosis.findings) == []


@each_row("entry", CATALOG.values(), ids=CATALOG)
def test_catalogue_remedy_keeps_the_data(entry: Entry) -> None:
    assert not loses_data(sentence_of(entry.remedy))


@pytest.mark.parametrize(
    ("remedy", "loses"),
    [
        ("Give each PV its own handle; delete the old PV.", True),
        ("Delete the PV. Set Retain.", True),
        ("Make the claim again.", True),
        ("Set Retain on both PVs, then delete the other PV.", False),
        ("Delete the claim, which has no volume yet.", False),
        ("Delete the pods.", False),
    ],
)
def test_remedy_that_loses_data_is_recognised(remedy: str, *, loses: bool) -> None:
    assert loses_data(remedy) is loses


@each_row("state", CODES)
def test_recorded_state_has_its_codes(state: str) -> None:
    assert set(codes_of(state)) == CODES[state]


@pytest.mark.parametrize("state", CODES_ON_NODES)
def test_recorded_state_of_a_node_has_its_codes_and_its_first(state: str) -> None:
    first, *others = CODES_ON_NODES[state]
    codes = codes_of(state)
    assert codes[0] == first
    assert set(codes) == {first, *others}


@each_row("state", [*CODES, *CODES_ON_NODES])
def test_state_is_listed_if_its_remedy_changes_something(state: str) -> None:
    (first, *_) = lifecycle_of(state).findings
    first_way, _ = ways(lines_of(first.commands))
    assert bool(first_way) is (state in {*FIXED, *FIXED_ON_NODES, *NOT_RUN})


@each_row("state", FROM_OUTSIDE)
def test_recorded_client_has_its_probable_node(state: str) -> None:
    holders = lifecycle_of(state).diagnosis.holders
    assert any(FROM_OUTSIDE[state] in holder.reasons for holder in holders)
