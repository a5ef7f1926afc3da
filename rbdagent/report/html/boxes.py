"""The boxes of the dependency chain: an object, its state, and what was observed of it."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from rbdagent.lifecycle.steps import not_observed_reason
from rbdagent.model import (
    Confidence,
    ImagePresence,
    NotObserved,
    StepState,
    observed_of,
)
from rbdagent.parse.foreign import foreign_name
from rbdagent.parse.kubelet import pod_uid_of_path
from rbdagent.report.pod_names import pod_names_by_uid
from rbdagent.report.sizes import size_text
from rbdagent.verdicts.evidence import (
    block_holder_text,
    evidence_of,
    mount_text,
    opener_text,
    process_text,
    processes_on,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rbdagent.model import (
        Holder,
        ImageView,
        Lifecycle,
        LifecycleStep,
        Mapping,
        Snapshot,
        StepStatus,
        VolumeAttachment,
    )

_MAX_LINES: Final = 4
"""Of one box: a mount can be visible in many mount namespaces."""
_ACCESS_MODES: Final = {
    "ReadWriteOnce": "RWO",
    "ReadOnlyMany": "ROX",
    "ReadWriteMany": "RWX",
    "ReadWriteOncePod": "RWOP",
}
NOT_OBSERVED: Final = "not observed"


class BoxState(StrEnum):
    """Whether the object of a box exists, as far as it was observed. A class in ``page.css``."""

    EXISTS = "there"
    NONE = "none"
    NOT_OBSERVED = "unseen"


class Box(Struct, frozen=True, kw_only=True):
    """One object of the chain."""

    kind: str
    names: tuple[str, ...]
    notes: tuple[str, ...] = ()
    state: BoxState = BoxState.EXISTS


def _absent(kind: str, not_observed: str, name: str) -> Box:
    """Return a box without an object; ``not_observed`` is the reason, empty if it was observed."""
    if not_observed:
        notes = (not_observed,)
        return Box(kind=kind, names=(NOT_OBSERVED,), notes=notes, state=BoxState.NOT_OBSERVED)
    return Box(kind=kind, names=(name,), state=BoxState.NONE)


def _notes(*notes: str | None) -> tuple[str, ...]:
    return tuple(note for note in notes if note)


# --------------------------------------------------------------------------------------------------
# Pod, claim, PV, image
# --------------------------------------------------------------------------------------------------


def trunk_boxes(lifecycle: Lifecycle, snapshot: Snapshot) -> tuple[Box, ...]:
    """Return the boxes that all holders share."""
    kube = snapshot.kubernetes
    return (
        _pod(lifecycle, not_observed_reason(snapshot, kube.pods if kube else None)),
        _claim(lifecycle, not_observed_reason(snapshot, kube.claims if kube else None)),
        _volume(
            lifecycle, not_observed_reason(snapshot, kube.persistent_volumes if kube else None)
        ),
        _image(lifecycle, snapshot),
    )


def _pod(lifecycle: Lifecycle, not_observed: str) -> Box:
    pod = lifecycle.pod
    if pod is None:
        return _absent("pod", not_observed, "none found")
    phase = "being deleted" if pod.deleting_since else pod.phase
    node = f"on {pod.node_name}" if pod.node_name else "no node yet"
    return Box(kind="pod", names=(str(pod.ref),), notes=(phase, node))


def _claim(lifecycle: Lifecycle, not_observed: str) -> Box:
    volume = lifecycle.diagnosis.volume
    if volume.claim is not None:
        claim = volume.claim
        phase = "being deleted" if claim.deleting_since else claim.phase
        return Box(kind="claim", names=(str(claim.ref),), notes=_notes(phase, claim.storage_class))
    claim_ref = volume.persistent_volume.claim if volume.persistent_volume else None
    if claim_ref is None:
        return _absent("claim", not_observed, "none known")
    note = f"{NOT_OBSERVED}: {not_observed}" if not_observed else "does not exist"
    state = BoxState.NOT_OBSERVED if not_observed else BoxState.NONE
    return Box(kind="claim", names=(str(claim_ref),), notes=(note,), state=state)


def _volume(lifecycle: Lifecycle, not_observed: str) -> Box:
    volume = lifecycle.diagnosis.volume
    persistent_volume = volume.persistent_volume
    if persistent_volume is None:
        return _absent("pv", not_observed, "none known")
    phase = "being deleted" if persistent_volume.deleting_since else persistent_volume.phase
    modes = ", ".join(_ACCESS_MODES.get(mode, mode) for mode in persistent_volume.access_modes)
    others = tuple(f"shares its image with {other.name}" for other in volume.other_volumes)
    return Box(
        kind="pv",
        names=(persistent_volume.name,),
        notes=_notes(phase, modes, persistent_volume.reclaim_policy, *others),
    )


def _image(lifecycle: Lifecycle, snapshot: Snapshot) -> Box:
    volume = lifecycle.diagnosis.volume
    image, view = volume.image, volume.image_view
    if image is None:
        return Box(kind="image", names=("none known",), state=BoxState.NONE)
    cluster = f"cluster {image.fsid}" if image.fsid else ""
    if view is None:
        reason = snapshot.sources.ceph.reason or "Ceph was not queried about it"
        notes = _notes(cluster, f"{NOT_OBSERVED}: {reason}")
        return Box(kind="image", names=(str(image.spec),), notes=notes, state=BoxState.NOT_OBSERVED)
    notes = _notes(cluster, _presence(view), size_text(view.size_bytes), _watched(view))
    gone = view.presence in {ImagePresence.GONE, ImagePresence.TRASH}
    state = BoxState.NONE if gone else BoxState.EXISTS
    return Box(kind="image", names=(str(image.spec),), notes=notes, state=state)


def _presence(view: ImageView) -> str:
    if isinstance(view.presence, NotObserved):
        return f"existence {NOT_OBSERVED}"
    gone = {ImagePresence.GONE: "does not exist", ImagePresence.TRASH: "is in the trash"}
    return gone.get(view.presence, "")


def _watched(view: ImageView) -> str:
    if isinstance(view.watchers, NotObserved):
        return f"watchers {NOT_OBSERVED}: {view.watchers.reason}"
    return f"watchers: {len(view.watchers)}"


# --------------------------------------------------------------------------------------------------
# Watcher and node
# --------------------------------------------------------------------------------------------------


def watcher_box(lifecycle: Lifecycle, holder: Holder | None) -> Box:
    """Return the box of a holder's watcher; without a holder, the box has none."""
    watcher = holder.watcher if holder else None
    if holder is not None and watcher is not None:
        transient = "seen in one of two observations" if holder.transient else ""
        locked = "holds the lock" if holder.lockers else ""
        return Box(
            kind="watcher",
            names=(f"client.{watcher.client}",),
            notes=_notes(str(watcher.address), transient, locked),
        )
    view = lifecycle.diagnosis.volume.image_view
    if view is None:
        return _absent("watcher", "Ceph was not queried about the image", "")
    not_observed = view.watchers.reason if isinstance(view.watchers, NotObserved) else ""
    return _absent("watcher", not_observed, "none from this node")


def holder_node_box(holder: Holder, snapshot: Snapshot) -> Box:
    """Return the box of a holder's node, with the confidence of a match by the address."""
    if holder.node is None:
        note = f"{holder.kind}, its address belongs to no known node"
        return Box(kind="node", names=("unknown",), notes=(note,), state=BoxState.NOT_OBSERVED)
    is_certain = holder.confidence is Confidence.CERTAIN
    confidence = "" if is_certain else f"{holder.confidence}, by its address"
    return _node(holder.node, snapshot, confidence, _attachment_state(holder.attachment))


def attached_node_box(name: str, lifecycle: Lifecycle, snapshot: Snapshot) -> Box:
    """Return the box of a node that has not mapped the image, with the state of its attachment."""
    attachment = _attachment_to(name, lifecycle.diagnosis.volume.attachments)
    return _node(name, snapshot, _attachment_state(attachment))


def _node(name: str, snapshot: Snapshot, *notes: str) -> Box:
    kube = snapshot.kubernetes
    nodes = () if kube is None else observed_of(kube.nodes)
    ready = {True: "Ready", False: "not Ready", None: "Unknown: its kubelet is not reporting"}
    state = next((ready[node.ready] for node in nodes if node.name == name), "")
    return Box(kind="node", names=(name,), notes=_notes(state, *notes))


def _attachment_to(
    node: str, attachments: tuple[VolumeAttachment, ...] | NotObserved
) -> VolumeAttachment | NotObserved | None:
    if isinstance(attachments, NotObserved):
        return attachments
    return next((attachment for attachment in attachments if attachment.node_name == node), None)


def _attachment_state(attachment: VolumeAttachment | NotObserved | None) -> str:
    if isinstance(attachment, NotObserved):
        return f"attachment {NOT_OBSERVED}"
    if attachment is None:
        return "no attachment"
    if attachment.deleting_since:
        return "attachment is being deleted"
    return "attached" if attachment.attached else "not attached yet"


# --------------------------------------------------------------------------------------------------
# Device, mounts, processes
# --------------------------------------------------------------------------------------------------


def mapping_boxes(holder: Holder, snapshot: Snapshot) -> tuple[Box, ...]:
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
    node = holder.node or "that machine"
    return (_absent("device", f"{node} was not observed", ""),)


def step_box(kind: str, stages: Iterable[StepStatus], step: LifecycleStep | None) -> Box:
    """Return a box with the state of the step that leads to it; no further facts are known."""
    stage = next(stage for stage in stages if stage.step is step)
    state = BoxState.NOT_OBSERVED if stage.state is StepState.NOT_OBSERVED else BoxState.NONE
    name = NOT_OBSERVED if state is BoxState.NOT_OBSERVED else "none"
    return Box(kind=kind, names=(name,), notes=_notes(stage.detail), state=state)


def _device(mapping: Mapping) -> Box:
    hung = len(observed_of(mapping.hung_requests))
    requests = f"{hung} requests hang" if hung else ""
    notes = _notes(_mode(mapping), size_text(mapping.size_bytes), requests)
    return Box(kind="device", names=(mapping.device,), notes=notes)


def _mode(mapping: Mapping) -> str:
    if isinstance(mapping.read_only, NotObserved):
        return f"mode {NOT_OBSERVED}"
    return "read-only" if mapping.read_only else "read-write"


def _mounts(holder: Holder, mapping: Mapping, snapshot: Snapshot) -> Box:
    if isinstance(mapping.mounts, NotObserved):
        return _absent("mounts", mapping.mounts.reason, "")
    evidence = evidence_of(holder)
    lines = ["staged, once for the node" for _ in evidence.staging_mounts]
    lines += [
        f"in the directory of pod {pod_uid_of_path(mount.path)}, for its container"
        for mount in evidence.pod_mounts
    ]
    lines += [
        f"at {foreign_name(mount.path)} in the mount namespace of "
        f"{process_text(mount.namespace.process)}"
        for mount in evidence.container_mounts
    ]
    lines += [mount_text(mount) for mount in evidence.other_mounts]
    return _lines("mounts", lines, snapshot)


def _processes(holder: Holder, mapping: Mapping, snapshot: Snapshot) -> Box:
    facts = (mapping.openers, mapping.mounts, mapping.holders, mapping.kernel_traces)
    reasons = tuple(dict.fromkeys(fact.reason for fact in facts if isinstance(fact, NotObserved)))
    evidence = evidence_of(holder)
    opener_pids = {opener.process.pid for opener in evidence.openers}
    others = (process for process in processes_on(evidence) if process.pid not in opener_pids)
    lines = [opener_text(opener) for opener in evidence.openers]
    lines += [process_text(process) for process in others]
    lines += [block_holder_text(block) for block in (*evidence.own_luks, *evidence.stacked)]
    if evidence.traces and not mapping.mounts:
        lines.append("the kernel still has a file system on it")
    return _lines("processes", lines, snapshot, not_observed=reasons)


def _lines(
    kind: str, lines: list[str], snapshot: Snapshot, *, not_observed: tuple[str, ...] = ()
) -> Box:
    """Return a box of several lines; the names of pods in the API replace their uids.

    ``not_observed`` has the reasons for which further lines may be missing.
    """
    for uid, name in pod_names_by_uid(snapshot).items():
        lines = [line.replace(f"pod {uid}", f"pod {name}") for line in lines]
    names = tuple(dict.fromkeys(lines))
    if not names:
        return _absent(kind, "; ".join(not_observed), "none")
    more = f"and {len(names) - _MAX_LINES} more" if len(names) > _MAX_LINES else ""
    notes = _notes(more, *(f"not all observed: {reason}" for reason in not_observed))
    return Box(kind=kind, names=names[:_MAX_LINES], notes=notes)
