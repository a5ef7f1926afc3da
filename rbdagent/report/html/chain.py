"""The dependency chain as boxes and links: pod, claim, PV, image, and a lane for each holder."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from rbdagent.lifecycle.steps import why_unseen
from rbdagent.model import (
    Confidence,
    ImagePresence,
    LifecycleStep,
    NotObserved,
    Severity,
    StepState,
    observed_of,
)
from rbdagent.parse.kubelet import pod_uid_of_path
from rbdagent.report.pod_names import pod_names
from rbdagent.rules import FINDINGS
from rbdagent.rules.context import subject_of
from rbdagent.verdicts.evidence import (
    evidence_of,
    processes_on,
    said_of_mount,
    said_of_opener,
    said_of_process,
    said_of_stacked,
)

if TYPE_CHECKING:
    from collections.abc import Iterable
    from collections.abc import Mapping as MappingType

    from rbdagent.model import (
        Finding,
        Holder,
        HolderVerdict,
        ImageView,
        Lifecycle,
        Mapping,
        Snapshot,
        StepStatus,
        Verdict,
        VolumeAttachment,
    )

    Codes = tuple[str, ...]
    Ways = MappingType[str, tuple[StepStatus, ...]]

_MOST: Final = 4
"""Maximum of lines in one box: a mount can be visible in many mount namespaces."""
_SHORT: Final = {
    "ReadWriteOnce": "RWO",
    "ReadOnlyMany": "ROX",
    "ReadWriteMany": "RWX",
    "ReadWriteOncePod": "RWOP",
}
NOT_OBSERVED: Final = "not observed"


class Look(StrEnum):
    """Whether the object of a box was observed, and its condition."""

    THERE = "there"
    NONE = "none"
    UNSEEN = "unseen"


class Box(Struct, frozen=True, kw_only=True):
    """One object of the chain."""

    kind: str
    names: tuple[str, ...]
    notes: tuple[str, ...] = ()
    look: Look = Look.THERE


class Link(Struct, frozen=True, kw_only=True):
    """The connection to a box: a step of the lifecycle, or a plain line."""

    word: str = ""
    state: StepState | None = None
    """None if the connection is not a step."""
    codes: tuple[str, ...] = ()
    is_first: bool = False
    """Whether it is the root cause."""


class Stop(Struct, frozen=True, kw_only=True):
    """A box, and the link that leads to it."""

    link: Link | None
    """None if the chain begins here."""
    box: Box


class Lane(Struct, frozen=True, kw_only=True):
    """A holder, or a node that has not mapped the image yet."""

    name: str
    part: str
    """Its relation to the volume."""
    verdict: Verdict | None
    goes_back: bool
    stops: tuple[Stop, ...]


class Picture(Struct, frozen=True, kw_only=True):
    """The whole chain with all lanes."""

    trunk: tuple[Stop, ...]
    fork: Link
    """From the image to the lanes; a finding that belongs to no single holder breaks it."""
    lanes: tuple[Lane, ...]


def picture_of(life: Lifecycle, snapshot: Snapshot) -> Picture:
    """Build the picture of the chain, as far as it is known."""
    trunk, lanes = _trunk(life, snapshot), tuple(_lanes(life, snapshot))
    stops = (*trunk, *(stop for lane in lanes for stop in lane.stops))
    shown = {code for stop in stops if stop.link for code in stop.link.codes}
    steps = {code: step for step in LifecycleStep for code in _codes(life.findings, step)}
    left = tuple(code for code in steps if code not in shown)
    fork = _link(life, (), steps[left[0]] if left else None, codes=left)
    return Picture(trunk=trunk, fork=fork, lanes=lanes)


# --------------------------------------------------------------------------------------------------
# Links
# --------------------------------------------------------------------------------------------------


def _link(
    life: Lifecycle, stages: Iterable[StepStatus], step: LifecycleStep | None, *, codes: Codes = ()
) -> Link:
    """Return the link of a step; further finding codes, besides those of its stage, break it."""
    stage = next((stage for stage in stages if stage.step is step), None)
    all_codes = tuple(dict.fromkeys((*(stage.codes if stage else ()), *codes)))
    first = life.first_failed
    is_first = first is not None and first.code in all_codes
    broken = StepState.FAILED if codes or is_first else None
    state = broken or (stage.state if stage else None)
    return Link(word=str(step) if state else "", state=state, codes=all_codes, is_first=is_first)


def _codes(findings: Iterable[Finding], step: LifecycleStep) -> Codes:
    return tuple(
        dict.fromkeys(
            finding.code
            for finding in findings
            if finding.severity is not Severity.INFO and FINDINGS[finding.code].step is step
        )
    )


# --------------------------------------------------------------------------------------------------
# Pod, claim, PV, image
# --------------------------------------------------------------------------------------------------


def _trunk(life: Lifecycle, snapshot: Snapshot) -> tuple[Stop, ...]:
    kube = snapshot.kubernetes
    released = _codes(life.findings, LifecycleStep.RELEASE)
    reclaimed = _codes(life.findings, LifecycleStep.RECLAIM)
    boxes = (
        _pod(life, why_unseen(snapshot, kube.pods if kube else None)),
        _claim(life, why_unseen(snapshot, kube.claims if kube else None)),
        _volume(life, why_unseen(snapshot, kube.persistent_volumes if kube else None)),
        _image(life, snapshot),
    )
    links = (
        None,
        Link(),
        _link(life, life.there, LifecycleStep.BIND, codes=released),
        _link(life, life.there, LifecycleStep.PROVISION, codes=reclaimed),
    )
    return tuple(Stop(link=link, box=box) for link, box in zip(links, boxes, strict=True))


def _absent(kind: str, unseen: str, words: str) -> Box:
    if unseen:
        return Box(kind=kind, names=(NOT_OBSERVED,), notes=(unseen,), look=Look.UNSEEN)
    return Box(kind=kind, names=(words,), look=Look.NONE)


def _pod(life: Lifecycle, unseen: str) -> Box:
    pod = life.pod
    if pod is None:
        return _absent("pod", unseen, "none found")
    phase = "being deleted" if pod.deleting_since else pod.phase
    where = f"on {pod.node_name}" if pod.node_name else "no node yet"
    return Box(kind="pod", names=(str(pod.ref),), notes=(phase, where))


def _claim(life: Lifecycle, unseen: str) -> Box:
    use = life.diagnosis.use
    if use.claim is not None:
        claim = use.claim
        phase = "being deleted" if claim.deleting_since else claim.phase
        return Box(kind="claim", names=(str(claim.ref),), notes=_notes(phase, claim.storage_class))
    named = use.persistent_volume.claim if use.persistent_volume else None
    if named is None:
        return _absent("claim", unseen, "none known")
    note = f"{NOT_OBSERVED}: {unseen}" if unseen else "does not exist"
    look = Look.UNSEEN if unseen else Look.NONE
    return Box(kind="claim", names=(str(named),), notes=(note,), look=look)


def _volume(life: Lifecycle, unseen: str) -> Box:
    use = life.diagnosis.use
    volume = use.persistent_volume
    if volume is None:
        return _absent("pv", unseen, "none known")
    phase = "being deleted" if volume.deleting_since else volume.phase
    modes = ", ".join(_SHORT.get(mode, mode) for mode in volume.access_modes)
    others = tuple(f"shares its image with {other.name}" for other in use.other_volumes)
    return Box(
        kind="pv", names=(volume.name,), notes=_notes(phase, modes, volume.reclaim_policy, *others)
    )


def _image(life: Lifecycle, snapshot: Snapshot) -> Box:
    use = life.diagnosis.use
    image, view = use.image, use.image_view
    if image is None:
        return Box(kind="image", names=("none known",), look=Look.NONE)
    cluster = f"cluster {image.fsid}" if image.fsid else ""
    if view is None:
        reason = snapshot.sources.ceph.reason or "Ceph was not queried about it"
        notes = _notes(cluster, f"{NOT_OBSERVED}: {reason}")
        return Box(kind="image", names=(str(image.spec),), notes=notes, look=Look.UNSEEN)
    notes = _notes(cluster, _presence(view), _size(view.size_bytes), _watched(view))
    gone = view.presence in {ImagePresence.GONE, ImagePresence.TRASH}
    look = Look.NONE if gone else Look.THERE
    return Box(kind="image", names=(str(image.spec),), notes=notes, look=look)


def _presence(view: ImageView) -> str:
    if isinstance(view.presence, NotObserved):
        return f"existence {NOT_OBSERVED}"
    gone = {ImagePresence.GONE: "does not exist", ImagePresence.TRASH: "is in the trash"}
    return gone.get(view.presence, "")


def _watched(view: ImageView) -> str:
    if isinstance(view.watchers, NotObserved):
        return f"watchers {NOT_OBSERVED}: {view.watchers.reason}"
    return f"watchers: {len(view.watchers)}"


def _notes(*notes: str | None) -> tuple[str, ...]:
    return tuple(note for note in notes if note)


def _size(count: int | None) -> str:
    """Return a size with its unit; empty if it is unknown."""
    if not count:
        return ""
    for unit, shift in (("TiB", 40), ("GiB", 30), ("MiB", 20)):
        if count >= 1 << shift:
            return f"{count / (1 << shift):.4g} {unit}"
    return f"{count} bytes"


# --------------------------------------------------------------------------------------------------
# Lanes
# --------------------------------------------------------------------------------------------------

_THERE: Final = (
    None,
    LifecycleStep.ATTACH,
    LifecycleStep.STAGE,
    LifecycleStep.PUBLISH,
    LifecycleStep.USE,
)
_BACK: Final = (
    None,
    LifecycleStep.DETACH,
    LifecycleStep.UNSTAGE,
    LifecycleStep.UNPUBLISH,
    LifecycleStep.USE,
)
"""The steps that lead to watcher, node, device, mounts and processes."""


def _lanes(life: Lifecycle, snapshot: Snapshot) -> Iterable[Lane]:
    """Yield a lane for each holder, each node that is only attached, and the pod's node."""
    pod = life.pod
    ways = {way.node: way.stages for way in life.back}
    own = None if pod is None or pod.node_name in ways else pod.node_name
    nodes = set()
    for judged in life.diagnosis.holders:
        nodes.add(judged.holder.node)
        yield _held(life, snapshot, judged, ways, own)
    for node in (*ways, *([own] if own else ())):
        if node not in nodes:
            yield _to_be(life, snapshot, node, ways)
    if pod is not None and pod.node_name is None:
        boxes = (Box(kind="node", names=("none yet",), look=Look.NONE),)
        part = f"pod {pod.ref} has no node yet"
        yield _lane(life, "", part, boxes, life.there, (LifecycleStep.SCHEDULE,))


def _lane(
    life: Lifecycle,
    name: str,
    part: str,
    boxes: tuple[Box, ...],
    stages: tuple[StepStatus, ...],
    steps: tuple[LifecycleStep | None, ...],
    *,
    verdict: Verdict | None = None,
    used: Codes = (),
) -> Lane:
    """Return a lane with linked boxes; the codes of ``used`` break its last link."""
    last = len(boxes) - 1
    stops = tuple(
        Stop(link=_link(life, stages, step, codes=used if place == last else ()), box=box)
        for place, (step, box) in enumerate(zip(steps, boxes, strict=False))
    )
    return Lane(name=name, part=part, verdict=verdict, goes_back=steps is _BACK, stops=stops)


def _way_of(life: Lifecycle) -> str:
    if life.pod is None:
        return ""
    runs = any(
        stage.step is LifecycleStep.PUBLISH and stage.state is StepState.DONE
        for stage in life.there
    )
    return f"pod {life.pod.ref} {'runs' if runs else 'will run'} here"


def _held(
    life: Lifecycle, snapshot: Snapshot, judged: HolderVerdict, ways: Ways, own: str | None
) -> Lane:
    holder = judged.holder
    mine = (finding for finding in life.findings if finding.subject == subject_of(holder))
    is_own = own is not None and holder.node == own
    steps = _BACK if holder.node in ways else _THERE
    stages = life.there if is_own else ways.get(holder.node or "", ())
    return _lane(
        life,
        holder.node or "an unknown machine",
        _way_of(life) if is_own else "",
        (_watcher(life, holder), _node_of(holder, snapshot), *_on_node(holder, snapshot)),
        stages,
        steps,
        verdict=judged.verdict,
        used=_codes(mine, LifecycleStep.USE),
    )


def _to_be(life: Lifecycle, snapshot: Snapshot, node: str, ways: Ways) -> Lane:
    """Return the lane of a node that has not mapped the image, from the states of its stages."""
    steps = _BACK if node in ways else _THERE
    stages = ways.get(node, life.there)
    boxes = (
        _watcher(life, None),
        _node(node, snapshot, _attachment(_attached(life.diagnosis.use.attachments, node))),
        _box_of_stage("device", stages, steps[2]),
        _box_of_stage("mounts", stages, steps[3]),
    )
    return _lane(life, node, "" if node in ways else _way_of(life), boxes, stages, steps)


def _box_of_stage(kind: str, stages: Iterable[StepStatus], step: LifecycleStep | None) -> Box:
    """Return a box with the state of its stages; no further facts are known."""
    stage = next(stage for stage in stages if stage.step is step)
    look = Look.UNSEEN if stage.state is StepState.NOT_OBSERVED else Look.NONE
    word = NOT_OBSERVED if look is Look.UNSEEN else "none"
    return Box(kind=kind, names=(word,), notes=_notes(stage.said), look=look)


def _watcher(life: Lifecycle, holder: Holder | None) -> Box:
    watcher = holder.watcher if holder else None
    if holder is not None and watcher is not None:
        transient = "seen in one of two observations" if holder.transient else ""
        locked = "holds the lock" if holder.lockers else ""
        return Box(
            kind="watcher",
            names=(f"client.{watcher.client}",),
            notes=_notes(str(watcher.address), transient, locked),
        )
    view = life.diagnosis.use.image_view
    if view is None:
        return _absent("watcher", "Ceph was not queried about the image", "")
    unseen = view.watchers.reason if isinstance(view.watchers, NotObserved) else ""
    return _absent("watcher", unseen, "none from this node")


def _node_of(holder: Holder, snapshot: Snapshot) -> Box:
    if holder.node is None:
        words = f"{holder.kind}, its address belongs to no known node"
        return Box(kind="node", names=("unknown",), notes=(words,), look=Look.UNSEEN)
    sure = "" if holder.confidence is Confidence.CERTAIN else f"{holder.confidence}, by its address"
    return _node(holder.node, snapshot, sure, _attachment(holder.attachment))


def _node(name: str, snapshot: Snapshot, *notes: str) -> Box:
    kube = snapshot.kubernetes
    nodes = () if kube is None else observed_of(kube.nodes)
    ready = {True: "Ready", False: "not Ready", None: "Unknown: its kubelet is not reporting"}
    state = next((ready[node.ready] for node in nodes if node.name == name), "")
    return Box(kind="node", names=(name,), notes=_notes(state, *notes))


def _attached(
    found: tuple[VolumeAttachment, ...] | NotObserved, node: str
) -> VolumeAttachment | NotObserved | None:
    if isinstance(found, NotObserved):
        return found
    return next((attachment for attachment in found if attachment.node_name == node), None)


def _attachment(found: VolumeAttachment | NotObserved | None) -> str:
    if isinstance(found, NotObserved):
        return f"attachment {NOT_OBSERVED}"
    if found is None:
        return "no attachment"
    if found.deleting_since:
        return "attachment is being deleted"
    return "attached" if found.attached else "not attached yet"


def _on_node(holder: Holder, snapshot: Snapshot) -> tuple[Box, ...]:
    """Return the boxes of device, mounts and processes, as far as they were observed."""
    mapping, published = holder.mapping, holder.published
    if mapping is not None:
        return (
            _device(mapping),
            _mounts(holder, mapping, snapshot),
            _processes(holder, mapping, snapshot),
        )
    if published is not None and holder.published_by is not None:
        note = f"as its agent reported at {holder.published_by.observed_at}"
        return (Box(kind="device", names=(published.device,), notes=(note,)),)
    where = holder.node or "that machine"
    return (_absent("device", f"{where} was not observed", ""),)


def _device(mapping: Mapping) -> Box:
    mode = mapping.read_only
    unseen = isinstance(mode, NotObserved)
    how = f"mode {NOT_OBSERVED}" if unseen else "read-only" if mode else "read-write"
    hung = len(observed_of(mapping.hung_requests))
    notes = _notes(how, _size(mapping.size_bytes), f"{hung} requests hang" if hung else "")
    return Box(kind="device", names=(mapping.device,), notes=notes)


def _mounts(holder: Holder, mapping: Mapping, snapshot: Snapshot) -> Box:
    if isinstance(mapping.mounts, NotObserved):
        return _absent("mounts", mapping.mounts.reason, "")
    found = evidence_of(holder)
    lines = ["staged, once for the node" for _ in found.staging_mounts]
    lines += [
        f"in the directory of pod {pod_uid_of_path(mount.path)}, for its container"
        for mount in found.pod_mounts
    ]
    lines += [
        f"at {mount.path} in the mount namespace of {said_of_process(mount.namespace.process)}"
        for mount in found.container_mounts
    ]
    lines += [said_of_mount(mount) for mount in found.other_mounts]
    return _lines("mounts", lines, snapshot)


def _processes(holder: Holder, mapping: Mapping, snapshot: Snapshot) -> Box:
    facts = (mapping.openers, mapping.mounts, mapping.holders, mapping.kernel_traces)
    unseen = tuple(dict.fromkeys(fact.reason for fact in facts if isinstance(fact, NotObserved)))
    found = evidence_of(holder)
    busy = {opener.process.pid for opener in found.openers}
    lines = [said_of_opener(opener) for opener in found.openers]
    lines += [
        said_of_process(process) for process in processes_on(found) if process.pid not in busy
    ]
    lines += [said_of_stacked(block) for block in (*found.own_luks, *found.stacked)]
    if found.traces and not mapping.mounts:
        lines.append("the kernel still has a file system on it")
    return _lines("processes", lines, snapshot, unseen)


def _lines(kind: str, lines: list[str], snapshot: Snapshot, unseen: Codes = ()) -> Box:
    """Return a box of several lines; the names of pods in the API replace their uids."""
    for uid, name in pod_names(snapshot).items():
        lines = [line.replace(f"pod {uid}", f"pod {name}") for line in lines]
    names = tuple(dict.fromkeys(lines))
    if not names:
        return _absent(kind, "; ".join(unseen), "none")
    more = f"and {len(names) - _MOST} more" if len(names) > _MOST else ""
    notes = _notes(more, *(f"not all observed: {reason}" for reason in unseen))
    return Box(kind=kind, names=names[:_MOST], notes=notes)
