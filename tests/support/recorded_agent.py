"""What an agent observes and serves on the recorded nodes."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest

from rbdagent.agent.cycle import CycleResult
from rbdagent.agent.metrics import Metrics
from rbdagent.correlate import volumes_of_node
from rbdagent.correlate.image_identity import mappings_of, volume_image
from rbdagent.correlate.index import kube_index
from rbdagent.lifecycle.blocked_pods import blocked_volumes
from rbdagent.model import (
    FreezeState,
    History,
    IoBytes,
    NotObserved,
    Snapshot,
    Sources,
    Target,
    TargetKind,
    UnmapPolicy,
    UnmapRefusal,
    Verdict,
    derived,
)
from rbdagent.rules import diagnose
from rbdagent.unmap.orphan_history import remember
from rbdagent.unmap.preconditions import plan_unmap
from tests.support.recordings import recorded_ceph, recorded_snapshot
from tests.support.snapshots import NO_IO

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from rbdagent.model import Diagnosis, Mapping

_ALL: Final = Target(argument="", kind=TargetKind.NONE)
_LOOKS: Final = 20
_APART_S: Final = 60.0
_UNMAPS: Final = UnmapPolicy(may_unmap=True, grace_s=_LOOKS * _APART_S / 2)


def recorded_cycle(recording: str, claim: str, *, root: Path, node_name: str = "n1") -> CycleResult:
    """Return what the agent of a recorded node knows after twenty cycles, one minute apart.

    Args:
        recording: the name of its directory.
        claim: the claim whose events are known.
        root: an empty directory for the node's files.
        node_name: the agent's node.
    """
    one = recorded_snapshot(recording, claim, node_name=node_name, root=root, is_public=True)
    ceph = recorded_ceph(recording, _images(one))
    assert one.node is not None
    node = replace(one.node, mappings=derived(one.node.mappings, _counted))
    snapshot = replace(one, target=_ALL, node=node, ceph=ceph, sources=_timed(one.sources))
    uses = volumes_of_node(snapshot)
    diagnoses = tuple(diagnose(volume, snapshot) for volume in uses.mapped)
    history: History | None = None
    for number in range(_LOOKS):
        look = replace(snapshot, node=replace(node, uptime_s=number * _APART_S))
        history = remember(history, diagnoses, look, longest_gap_s=2 * _APART_S)
    return CycleResult(
        snapshot=snapshot,
        diagnoses=diagnoses,
        history=history,
        took_s=0.1,
        at=time.monotonic(),
        ended={"unmapped": 1},
        refused=tuple(_refusals(diagnoses, snapshot, history)),
        blocked=blocked_volumes(snapshot, uses.waited_for),
        complete_at=snapshot.observed_at,
    )


def _refusals(
    diagnoses: tuple[Diagnosis, ...], snapshot: Snapshot, history: History | None
) -> Iterator[UnmapRefusal]:
    """Yield the refusal for each orphan: a recording alone is never enough to unmap an image."""
    for diagnosis in diagnoses:
        for judged in diagnosis.local:
            if judged.verdict is Verdict.ORPHANED:
                planned = plan_unmap(
                    judged,
                    diagnosis.volume,
                    snapshot,
                    history=history,
                    policy=_UNMAPS,
                    switches=FreezeState(freeze_file=None),
                    now=None,
                )
                assert isinstance(planned, UnmapRefusal)
                yield planned


def _images(snapshot: Snapshot) -> frozenset[str]:
    """Return the names of all images that the node has mapped, or that a PV refers to."""
    specs = [mapping.spec for mapping in mappings_of(snapshot.node)]
    images = [volume_image(volume) for volume in kube_index(snapshot.kubernetes).volumes]
    mapped = {spec.name for spec in specs if not isinstance(spec, NotObserved)}
    return frozenset(mapped | {image.spec.name for image in images if image is not None})


def _counted(mappings: tuple[Mapping, ...]) -> tuple[Mapping, ...]:
    """Return the mappings with fixed counters of I/O: a recording does not contain them."""
    done = IoBytes(read=10_735_616, written=163_840, uptime_s=100.0)
    return tuple(replace(mapping, io_counters=NO_IO, io_bytes=done) for mapping in mappings)


def _timed(sources: Sources) -> Sources:
    """Return the sources with a fixed duration: a recording does not contain their durations."""
    return Sources(**{name: replace(source, took_s=0.1) for name, source in sources.named})


def exposition(seen: CycleResult) -> bytes:
    """Return what an agent serves under /metrics."""
    registry = CollectorRegistry()
    registry.register(Metrics(lambda: seen))
    return generate_latest(registry)
