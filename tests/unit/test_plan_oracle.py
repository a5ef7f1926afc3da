"""No plan exists if a safety rule objects, in any observed and remembered state."""

from __future__ import annotations

import os
import random
from typing import TYPE_CHECKING, Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from rbdagent.correlate import correlate_node
from rbdagent.model import (
    FreezeState,
    History,
    Mapping,
    NotObserved,
    Snapshot,
    Target,
    TargetKind,
    UnmapPlan,
    UnmapPolicy,
)
from rbdagent.unmap.preconditions import plan_unmap
from rbdagent.verdicts.holder_verdict import judge
from tests.support.orphan_variations import CHANGES, IN_FLIGHT, ORPHAN, READ, Scene
from tests.support.run_summary import PRINTED
from tests.support.snapshots import UNSEEN, gap, node, volume
from tests.support.unmap_oracle import objections
from tests.support.unmap_plans import (
    GRACE_S,
    INCARNATION,
    LADDER,
    LEAVE,
    UPTIME_S,
    history,
    identity,
    moment,
)

if TYPE_CHECKING:
    from collections.abc import Callable

STATES: Final = int(os.environ.get("RBDAGENT_FUZZ_STATES", "100000"))
SEED: Final = int(os.environ.get("RBDAGENT_FUZZ_SEED", "1"))
"""Each run of the tier has the same states; ``./dev fuzz`` draws another seed."""
EVERYTHING: Final = Target(argument="", kind=TargetKind.NONE)

MEMORIES: Final[tuple[History | None, ...]] = (
    *(history(),) * 4,
    history(needed_ago=GRACE_S + 1),
    history(first_seen=GRACE_S, orphaned_for=GRACE_S),
    None,
    history(first_seen=GRACE_S - 1, orphaned_for=GRACE_S - 1),
    history(orphaned_for=GRACE_S - 1),
    history(orphaned_for=None),
    history(needed_ago=GRACE_S - 1),
    history(no_io_for=GRACE_S),
    history(no_io_for=GRACE_S - 1),
    history(no_io_for=None),
    history(io_counters=READ),
    history(io_counters=IN_FLIGHT),
    history(io_counters=None),
    history(unmaps=5),
    history(unmaps=6),
    replace(history(), unmaps=UNSEEN),
    history(of=identity(client_id=9)),
)
POLICIES: Final = (
    *(LEAVE,) * 5,
    *(LADDER,) * 3,
    UnmapPolicy(),
    replace(LEAVE, grace_s=4 * GRACE_S),
)
LOOKS: Final[tuple[dict[str, Any], ...]] = (
    *({},) * 5,
    {"uptime_s": None},
    {"consistent": False},
    {"volumes_complete": False},
    {"frozen": ("default",)},
    {"frozen": UNSEEN},
    {"incarnation": "diskseq:8"},
    {"incarnation": None},
    {"gap": True},
    {"frozen_node": True},
    {"frozen_volume": True},
    {"file": "/etc/rbdagent/freeze"},
    {"file": UNSEEN},
    {"unwritable": "/var/lib/rbdagent: No space left on device"},
)


class Draw:
    """One state: a scene some changes away from the orphan, with a history and a policy."""

    def __init__(self, changes: list[tuple[str, Any]], choose: Any) -> None:  # noqa: ANN401
        self.parts = {**ORPHAN, **dict(changes)}
        self.memory: History | None = choose(MEMORIES)
        self.policy: UnmapPolicy = choose(POLICIES)
        self.extra: dict[str, Any] = choose(LOOKS)

    @property
    def frozen(self) -> bool:
        """Whether a freeze switch is set or was not observed, or no record can be written."""
        marks = {"frozen", "frozen_node", "frozen_volume", "file", "unwritable"}
        return bool(marks & set(self.extra)) and not self._nothing_to_freeze

    @property
    def _nothing_to_freeze(self) -> bool:
        """Whether the switch has no effect: without a PV, no namespace and no mark is known."""
        seen = self.parts["volumes"] and not isinstance(self.parts["volumes"], NotObserved)
        return not seen and bool({"frozen", "frozen_volume"} & set(self.extra))

    def look(self) -> Snapshot:
        """Build the snapshot of the state."""
        parts, extra = dict(self.parts), self.extra
        if extra.get("frozen_volume") and parts["volumes"] == (volume(),):
            parts["volumes"] = (volume(frozen=True),)
        if extra.get("frozen_node") and not isinstance(parts["nodes"], NotObserved):
            parts["nodes"] = (node(frozen=True), node("worker-2"))
        seen = replace(Scene(parts=parts).seen(), target=EVERYTHING)
        if seen.node is not None:
            uptime = extra.get("uptime_s", UPTIME_S)
            devices = self._devices(seen.node.mappings)
            seen = replace(seen, node=replace(seen.node, uptime_s=uptime, mappings=devices))
        if seen.kubernetes is not None:
            seen = replace(
                seen,
                kubernetes=replace(
                    seen.kubernetes,
                    consistent=extra.get("consistent", True),
                    volumes_complete=extra.get("volumes_complete", True),
                    frozen_namespaces=extra.get("frozen", ()),
                ),
            )
        if extra.get("gap"):
            source = replace(seen.sources.node, gaps=(gap("open files"),))
            seen = replace(seen, sources=replace(seen.sources, node=source))
        return seen

    def _devices(
        self, mappings: tuple[Mapping, ...] | NotObserved
    ) -> tuple[Mapping, ...] | NotObserved:
        if isinstance(mappings, NotObserved):
            return mappings
        incarnation = self.extra.get("incarnation", INCARNATION)
        return tuple(replace(mapping, incarnation=incarnation) for mapping in mappings)

    def plans(self, look: Snapshot) -> list[UnmapPlan]:
        """Return the unmap plans for the local holders of a snapshot."""
        made = [
            plan_unmap(
                judge(holder, volume, look),
                volume,
                look,
                history=self.memory,
                policy=self.policy,
                switches=FreezeState(
                    freeze_file=self.extra.get("file"),
                    unwritable=self.extra.get("unwritable", ""),
                ),
                now=moment(-1),
            )
            for volume in correlate_node(look)
            for holder in volume.holders
            if holder.is_local
        ]
        return [plan for plan in made if isinstance(plan, UnmapPlan)]

    def check(self) -> bool:
        """Assert that no plan exists despite an objection; return whether a plan exists."""
        look = self.look()
        plans = self.plans(look)
        against = objections(look, self.memory, self.policy, frozen=self.frozen)
        assert not (plans and against), f"planned against {against}: {self.__dict__}"
        return bool(plans)


@settings(max_examples=500)
@given(changes=st.lists(st.sampled_from(CHANGES), max_size=4), data=st.data())
def test_no_plan_exists_if_a_rule_objects(
    changes: list[tuple[str, Any]], data: st.DataObject
) -> None:
    Draw(changes, lambda values: data.draw(st.sampled_from(values))).check()


@pytest.mark.fuzz
def test_no_plan_exists_if_a_rule_objects_in_many_states(
    record_property: Callable[[str, object], None],
) -> None:
    """Assert the same for many states from a seeded random walk; hypothesis finds rare states."""
    record_property(PRINTED, f"seed {SEED}, {STATES} states")
    walk = random.Random(SEED)
    planned = 0
    for _ in range(STATES):
        changes = walk.choices(CHANGES, k=walk.choice((0, 0, 1, 1, 2, 3, 4)))
        planned += Draw(changes, walk.choice).check()
    assert planned > STATES // 100, f"only {planned} plans of {STATES} states: seed {SEED}"
