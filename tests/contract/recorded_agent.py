"""What an agent had seen, and served, on the nodes that were recorded."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest

from rbdagent.agent.loop import Seen
from rbdagent.agent.metrics import Metrics
from rbdagent.correlate import uses_of_node
from rbdagent.correlate.identity import mappings_of, volume_image, volumes_of
from rbdagent.diagnose import diagnose
from rbdagent.diagnose.blocked import blocked_volumes
from rbdagent.history import remember
from rbdagent.model import History, NotObserved, Snapshot, Sources, Target, TargetKind
from tests.contract.recordings import recorded_ceph, recorded_snapshot

if TYPE_CHECKING:
    from pathlib import Path

_ALL: Final = Target(given="", kind=TargetKind.NONE)
_LOOKS: Final = 20
_APART_S: Final = 60.0


def recorded_look(recording: str, claim: str, *, root: Path, node_name: str = "n1") -> Seen:
    """Give what the agent of a recorded node had seen after twenty looks a minute apart.

    Args:
        recording: its directory's name.
        claim: whose events are known.
        root: an empty directory for the node's files.
        node_name: the agent's node.
    """
    one = recorded_snapshot(recording, claim, node_name=node_name, root=root)
    ceph = recorded_ceph(recording, _images(one))
    snapshot = replace(one, target=_ALL, ceph=ceph, sources=_timed(one.sources))
    uses = uses_of_node(snapshot)
    diagnoses = tuple(diagnose(each, snapshot) for each in uses.mapped)
    assert snapshot.node is not None
    history: History | None = None
    for number in range(_LOOKS):
        look = replace(snapshot, node=replace(snapshot.node, uptime_s=number * _APART_S))
        history = remember(history, diagnoses, look, longest_gap_s=2 * _APART_S)
    return Seen(
        snapshot=snapshot,
        diagnoses=diagnoses,
        history=history,
        took_s=0.1,
        at=time.monotonic(),
        ended={"unmapped": 1},
        blocked=blocked_volumes(snapshot, uses.waited_for),
        complete_at=snapshot.observed_at,
    )


def _images(snapshot: Snapshot) -> frozenset[str]:
    """Give the names of all images that the node maps, or that a PV stands for."""
    specs = [each.spec for each in mappings_of(snapshot.node)]
    images = [volume_image(each) for each in volumes_of(snapshot.kubernetes)]
    mapped = {each.name for each in specs if not isinstance(each, NotObserved)}
    return frozenset(mapped | {each.spec.name for each in images if each is not None})


def _timed(sources: Sources) -> Sources:
    """A recording does not tell how long its sources took to answer."""
    return Sources(**{name: replace(each, took_s=0.1) for name, each in sources.named})


def exposition(seen: Seen) -> bytes:
    """Give what an agent serves under /metrics."""
    registry = CollectorRegistry()
    registry.register(Metrics(lambda: seen))
    return generate_latest(registry)
