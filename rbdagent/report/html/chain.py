"""The dependency chain: pod, claim, PV and image, and a lane for each holder."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct

from rbdagent.model import LifecycleStep, Severity, StepState
from rbdagent.report.html.boxes import (
    Box,
    BoxState,
    attached_node_box,
    holder_node_box,
    mapping_boxes,
    step_box,
    trunk_boxes,
    watcher_box,
)
from rbdagent.rules import FINDINGS
from rbdagent.rules.context import subject_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from rbdagent.model import (
        Finding,
        HolderVerdict,
        Lifecycle,
        Snapshot,
        StepStatus,
        Verdict,
    )

    Codes = tuple[str, ...]
    DetachPaths = Mapping[str, tuple[StepStatus, ...]]


class Link(Struct, frozen=True, kw_only=True):
    """The connection to a box: a step of the lifecycle, or a plain line."""

    step: str = ""
    state: StepState | None = None
    """None if the connection is not a step."""
    codes: tuple[str, ...] = ()
    is_first: bool = False
    """Whether it is the root cause."""


class LinkedBox(Struct, frozen=True, kw_only=True):
    """A box, and the link that leads to it."""

    link: Link | None
    """None if the chain begins here."""
    box: Box


class Lane(Struct, frozen=True, kw_only=True):
    """A holder, or a node that has not mapped the image yet."""

    name: str
    relation: str
    """To the pod of the target; empty without one."""
    verdict: Verdict | None
    is_detach_path: bool
    boxes: tuple[LinkedBox, ...]


class Chain(Struct, frozen=True, kw_only=True):
    """The boxes that all holders share, and the lanes."""

    trunk: tuple[LinkedBox, ...]
    fork: Link
    """From the image to the lanes; a finding that belongs to no single holder breaks it."""
    lanes: tuple[Lane, ...]


def chain_of(lifecycle: Lifecycle, snapshot: Snapshot) -> Chain:
    """Return the chain as far as it is known; codes that break no other link break the fork."""
    trunk, lanes = _trunk(lifecycle, snapshot), tuple(_lanes(lifecycle, snapshot))
    linked_boxes = (*trunk, *(linked_box for lane in lanes for linked_box in lane.boxes))
    links = [linked_box.link for linked_box in linked_boxes if linked_box.link]
    shown = {code for link in links for code in link.codes}
    steps = {code: step for step in LifecycleStep for code in _codes(lifecycle.findings, step)}
    left = tuple(code for code in steps if code not in shown)
    fork = _link(lifecycle, (), steps[left[0]] if left else None, codes=left)
    return Chain(trunk=trunk, fork=fork, lanes=lanes)


# --------------------------------------------------------------------------------------------------
# Links
# --------------------------------------------------------------------------------------------------


def _link(
    lifecycle: Lifecycle,
    stages: Iterable[StepStatus],
    step: LifecycleStep | None,
    *,
    codes: Codes = (),
) -> Link:
    """Return the link of a step; further finding codes, besides those of its stage, break it."""
    stage = next((stage for stage in stages if stage.step is step), None)
    all_codes = tuple(dict.fromkeys((*(stage.codes if stage else ()), *codes)))
    first = lifecycle.first_failed
    is_first = first is not None and first.code in all_codes
    failed = StepState.FAILED if codes or is_first else None
    state = failed or (stage.state if stage else None)
    return Link(step=str(step) if state else "", state=state, codes=all_codes, is_first=is_first)


def _codes(findings: Iterable[Finding], step: LifecycleStep) -> Codes:
    """Return the codes of a step's findings, except those of severity info."""
    return tuple(
        dict.fromkeys(
            finding.code
            for finding in findings
            if finding.severity is not Severity.INFO and FINDINGS[finding.code].step is step
        )
    )


# --------------------------------------------------------------------------------------------------
# Trunk
# --------------------------------------------------------------------------------------------------


def _trunk(lifecycle: Lifecycle, snapshot: Snapshot) -> tuple[LinkedBox, ...]:
    released = _codes(lifecycle.findings, LifecycleStep.RELEASE)
    reclaimed = _codes(lifecycle.findings, LifecycleStep.RECLAIM)
    links = (
        None,
        Link(),
        _link(lifecycle, lifecycle.attach_path, LifecycleStep.BIND, codes=released),
        _link(lifecycle, lifecycle.attach_path, LifecycleStep.PROVISION, codes=reclaimed),
    )
    boxes = trunk_boxes(lifecycle, snapshot)
    return tuple(LinkedBox(link=link, box=box) for link, box in zip(links, boxes, strict=True))


# --------------------------------------------------------------------------------------------------
# Lanes
# --------------------------------------------------------------------------------------------------

_ATTACH_STEPS: Final = (
    None,
    LifecycleStep.ATTACH,
    LifecycleStep.STAGE,
    LifecycleStep.PUBLISH,
    LifecycleStep.USE,
)
_DETACH_STEPS: Final = (
    None,
    LifecycleStep.DETACH,
    LifecycleStep.UNSTAGE,
    LifecycleStep.UNPUBLISH,
    LifecycleStep.USE,
)
"""The steps that lead to watcher, node, device, mounts and processes."""


def _lanes(lifecycle: Lifecycle, snapshot: Snapshot) -> Iterable[Lane]:
    """Yield a lane for each holder, each node that is only attached, and the pod's node."""
    pod = lifecycle.pod
    detach_paths = {path.node: path.stages for path in lifecycle.detach_paths}
    pod_node = None if pod is None or pod.node_name in detach_paths else pod.node_name
    nodes = set()
    for holder_verdict in lifecycle.diagnosis.holders:
        nodes.add(holder_verdict.holder.node)
        yield _holder_lane(lifecycle, snapshot, holder_verdict, detach_paths, pod_node)
    for node in (*detach_paths, *([pod_node] if pod_node else ())):
        if node not in nodes:
            yield _unmapped_lane(lifecycle, snapshot, node, detach_paths)
    if pod is not None and pod.node_name is None:
        boxes = (Box(kind="node", names=("none yet",), state=BoxState.NONE),)
        relation = f"pod {pod.ref} has no node yet"
        yield _lane(
            lifecycle, "", relation, boxes, lifecycle.attach_path, (LifecycleStep.SCHEDULE,)
        )


def _lane(
    lifecycle: Lifecycle,
    name: str,
    relation: str,
    boxes: tuple[Box, ...],
    stages: tuple[StepStatus, ...],
    steps: tuple[LifecycleStep | None, ...],
    *,
    verdict: Verdict | None = None,
    use_codes: Codes = (),
) -> Lane:
    """Return a lane with linked boxes; ``use_codes`` break its last link."""
    last = len(boxes) - 1
    linked_boxes = tuple(
        LinkedBox(
            link=_link(lifecycle, stages, step, codes=use_codes if n == last else ()), box=box
        )
        for n, (step, box) in enumerate(zip(steps, boxes, strict=False))
    )
    return Lane(
        name=name,
        relation=relation,
        verdict=verdict,
        is_detach_path=steps is _DETACH_STEPS,
        boxes=linked_boxes,
    )


def _pod_relation(lifecycle: Lifecycle) -> str:
    """Return whether the pod of the target runs on its node already; empty without a pod."""
    if lifecycle.pod is None:
        return ""
    is_published = any(
        stage.step is LifecycleStep.PUBLISH and stage.state is StepState.DONE
        for stage in lifecycle.attach_path
    )
    return f"pod {lifecycle.pod.ref} {'runs' if is_published else 'will run'} here"


def _holder_lane(
    lifecycle: Lifecycle,
    snapshot: Snapshot,
    holder_verdict: HolderVerdict,
    detach_paths: DetachPaths,
    pod_node: str | None,
) -> Lane:
    holder = holder_verdict.holder
    findings = (finding for finding in lifecycle.findings if finding.subject == subject_of(holder))
    is_of_pod = pod_node is not None and holder.node == pod_node
    steps = _DETACH_STEPS if holder.node in detach_paths else _ATTACH_STEPS
    stages = lifecycle.attach_path if is_of_pod else detach_paths.get(holder.node or "", ())
    return _lane(
        lifecycle,
        holder.node or "an unknown machine",
        _pod_relation(lifecycle) if is_of_pod else "",
        (
            watcher_box(lifecycle, holder),
            holder_node_box(holder, snapshot),
            *mapping_boxes(holder, snapshot),
        ),
        stages,
        steps,
        verdict=holder_verdict.verdict,
        use_codes=_codes(findings, LifecycleStep.USE),
    )


def _unmapped_lane(
    lifecycle: Lifecycle, snapshot: Snapshot, node: str, detach_paths: DetachPaths
) -> Lane:
    """Return the lane of a node that has not mapped the image, from the states of its stages."""
    steps = _DETACH_STEPS if node in detach_paths else _ATTACH_STEPS
    stages = detach_paths.get(node, lifecycle.attach_path)
    relation = "" if node in detach_paths else _pod_relation(lifecycle)
    boxes = (
        watcher_box(lifecycle, None),
        attached_node_box(node, lifecycle, snapshot),
        step_box("device", stages, steps[2]),
        step_box("mounts", stages, steps[3]),
    )
    return _lane(lifecycle, node, relation, boxes, stages, steps)
