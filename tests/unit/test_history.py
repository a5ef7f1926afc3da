"""What a series of observations shows, and what it must not count: unobserved time."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from rbdagent.correlate import correlate_node
from rbdagent.model import (
    History,
    IoCounters,
    MappingHistory,
    NotObserved,
    Snapshot,
    Target,
    TargetKind,
)
from rbdagent.rules import diagnose
from rbdagent.unmap.orphan_history import remember
from tests.support.orphan_variations import IN_FLIGHT
from tests.support.snapshots import JUST_NOW, NO_IO, UNSEEN, node_view, pod, waiting_pod
from tests.support.unmap_plans import identity, seen

GAP_S = 90.0
EVERYTHING = Target(argument="", kind=TargetKind.NONE)


def look(uptime_s: float, **parts: Any) -> Snapshot:  # noqa: ANN401 - a builder
    """Return a snapshot of the orphan, changed by the parts, at some uptime."""
    on_node = {"uptime_s": uptime_s} | parts.pop("on_node", {})
    return seen(target=EVERYTHING, on_node=on_node, **parts)


def after(*looks: Snapshot, start: History | None = None) -> History | None:
    """Return the history after these snapshots."""
    memory = start
    for snapshot in looks:
        diagnoses = tuple(diagnose(volume, snapshot) for volume in correlate_node(snapshot))
        memory = remember(memory, diagnoses, snapshot, longest_gap_s=GAP_S)
    return memory


def only(memory: History | None) -> MappingHistory:
    """Return the only mapping of a history."""
    assert memory is not None
    (found,) = memory.mappings
    return found


def test_orphan_time_starts_at_the_first_unbroken_observation() -> None:
    found = only(after(look(100), look(160), look(220)))
    assert found.first_seen.uptime_s == 100
    assert found.orphaned_since is not None
    assert found.orphaned_since.uptime_s == 100


@pytest.mark.parametrize(
    "between",
    [
        pytest.param(look(160, in_kube={"pods": (pod(),)}), id="a pod used it"),
        pytest.param(look(160, in_kube={"pods": UNSEEN}), id="pods were not observed"),
        pytest.param(look(160, mapped={"mounts": UNSEEN}), id="mounts were not observed"),
        pytest.param(look(160, kubernetes=None), id="the API was down"),
        pytest.param(look(160, ceph=None), id="Ceph was down"),
    ],
)
def test_other_verdict_restarts_the_orphan_time(between: Snapshot) -> None:
    found = only(after(look(100), between, look(220)))
    assert found.first_seen.uptime_s == 100
    assert found.orphaned_since is not None
    assert found.orphaned_since.uptime_s == 220


def test_unobserved_time_restarts_the_orphan_time() -> None:
    found = only(after(look(100), look(100 + GAP_S + 1)))
    assert found.first_seen.uptime_s == 100
    assert found.orphaned_since is not None
    assert found.orphaned_since.uptime_s == 100 + GAP_S + 1


@pytest.mark.parametrize(
    "changed", [{"incarnation": "diskseq:8"}, {"client_id": 1}, {"image_id": "other"}]
)
def test_new_mapping_with_the_same_name_has_a_new_history(changed: dict[str, Any]) -> None:
    assert only(after(look(100), look(160, mapped=changed))).first_seen.uptime_s == 160


@pytest.mark.parametrize("on_node", [{"boot_id": "b002"}, {"uptime_s": 40.0}])
def test_boot_ends_the_history(on_node: dict[str, Any]) -> None:
    memory = after(look(100), look(160, on_node=on_node))
    assert only(memory).first_seen.uptime_s != 100


def test_unobserved_node_leaves_the_history_unchanged() -> None:
    before = after(look(100))
    assert after(look(160, node=None), start=before) == before
    unknown = node_view(uptime_s=None)
    assert after(look(160, node=unknown), start=before) == before


@pytest.mark.parametrize(
    ("pods", "needed"),
    [
        ((pod(),), True),
        ((waiting_pod("starting", "worker-1"),), True),
        ((pod(phase="Succeeded", deleting_since=JUST_NOW),), True),
        (UNSEEN, True),
        ((pod(phase="Succeeded"),), False),
        ((pod("remote", "worker-2"),), False),
        ((), False),
    ],
)
def test_last_need_of_a_pod_is_remembered(pods: Any, needed: bool) -> None:  # noqa: ANN401, FBT001
    found = only(after(look(100, in_kube={"pods": pods}), look(160)))
    assert (found.needed_at is not None and found.needed_at.uptime_s == 100) is needed


READ = replace(NO_IO, reads=NO_IO.reads + 3)


def with_io(uptime_s: float, counters: IoCounters | NotObserved) -> Snapshot:
    """Return an observation of the orphan with these counters."""
    return look(uptime_s, mapped={"io_counters": counters})


def no_io_since(*looks: Snapshot) -> float | None:
    """Return the uptime since which these observations saw no I/O."""
    found = only(after(*looks)).no_io_since
    return None if found is None else found.uptime_s


def test_time_without_io_starts_at_the_first_equal_counters() -> None:
    assert no_io_since(look(100), look(160), look(220)) == 100


def test_io_restarts_the_time_without_io_and_is_remembered() -> None:
    found = only(after(look(100), with_io(160, READ), with_io(220, READ)))
    assert found.no_io_since is not None
    assert found.no_io_since.uptime_s == 160
    assert found.orphaned_since is not None
    assert found.orphaned_since.uptime_s == 100
    assert found.last_io is not None
    assert (found.last_io.before, found.last_io.after) == (NO_IO, READ)
    assert (found.last_io.since.uptime_s, found.last_io.at.uptime_s) == (100, 160)


@pytest.mark.parametrize(
    ("between", "since"),
    [
        pytest.param(with_io(160, UNSEEN), 220, id="the counters were not observed"),
        pytest.param(with_io(160, IN_FLIGHT), 220, id="a request was in flight"),
        pytest.param(look(160, in_kube={"pods": (pod(),)}), 220, id="it was not orphaned"),
    ],
)
def test_observation_without_proof_restarts_the_time_without_io(
    between: Snapshot, since: float
) -> None:
    assert no_io_since(look(100), between, look(220)) == since


@pytest.mark.parametrize("counters", [UNSEEN, IN_FLIGHT])
def test_last_observation_without_proof_leaves_no_time_without_io(
    counters: IoCounters | NotObserved,
) -> None:
    assert no_io_since(look(100), with_io(160, counters)) is None


def test_io_before_the_first_orphaned_observation_restarts_nothing() -> None:
    used = look(100, in_kube={"pods": (pod(),)})
    found = only(after(used, with_io(160, READ)))
    assert found.no_io_since is not None
    assert found.no_io_since.uptime_s == 160
    assert found.last_io is None


def test_io_of_an_own_step_restarts_nothing() -> None:
    before = after(look(100))
    now = with_io(160, READ)
    diagnoses = tuple(diagnose(volume, now) for volume in correlate_node(now))
    memory = remember(before, diagnoses, now, longest_gap_s=GAP_S, own_io=identity())
    found = only(memory)
    assert found.no_io_since is not None
    assert found.no_io_since.uptime_s == 100
    assert found.io_counters == READ


COUNTED = st.sampled_from((NO_IO, NO_IO, NO_IO, READ, IN_FLIGHT, UNSEEN))


@given(
    row=st.lists(
        st.tuples(st.sampled_from((10, 60, GAP_S + 1)), COUNTED, st.booleans()),
        min_size=1,
        max_size=8,
    )
)
def test_time_without_io_spans_only_equal_counters_of_an_orphan(
    row: list[tuple[float, IoCounters | NotObserved, bool]],
) -> None:
    """Compare with a search backwards from the last observation; the history goes forwards."""
    at, seen_at = 0.0, []
    for step, counters, orphaned in row:
        at += step
        parts: dict[str, Any] = {} if orphaned else {"in_kube": {"pods": (pod(),)}}
        seen_at.append(
            (at, counters, orphaned, look(at, mapped={"io_counters": counters}, **parts))
        )
    last, expected = seen_at[-1][1], None
    for later, counters, orphaned, _ in reversed(seen_at):
        gap = expected is not None and expected - later > GAP_S
        if gap or not orphaned or counters != last or last in (IN_FLIGHT, UNSEEN):
            break
        expected = later
    assert no_io_since(*(made for *_, made in seen_at)) == expected


UPTIMES = st.lists(st.floats(0, 5000), min_size=1, max_size=8)


@given(steps=UPTIMES, orphaned=st.lists(st.booleans(), min_size=8, max_size=8))
def test_orphan_time_never_spans_another_verdict_or_a_gap(
    steps: list[float], orphaned: list[bool]
) -> None:
    at = 0.0
    looks, row = [], None
    for step, is_orphan in zip(steps, orphaned, strict=False):
        at += step
        if not is_orphan:
            row = None
        elif row is None or step > GAP_S:
            row = at
        looks.append(look(at, in_kube={} if is_orphan else {"pods": (pod(),)}))
    found = only(after(*looks))
    assert (found.orphaned_since.uptime_s if found.orphaned_since else None) == row
