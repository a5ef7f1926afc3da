"""RBD4xx: attaching, and what the events mean."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rbdagent.correlate.names import handle_of, node_named
from rbdagent.correlate.use import further_volumes
from rbdagent.diagnose.case import Case, finding, look_again, quoted, subject_of
from rbdagent.diagnose.target import attached_on_paper, volumes_of_use
from rbdagent.model import (
    CsiSource,
    Finding,
    InTreeRbdSource,
    KubeEvent,
    NotObserved,
    OtherSource,
    PersistentVolume,
    Severity,
    TargetKind,
    Verdict,
)
from rbdagent.parse.volume import image_of

if TYPE_CHECKING:
    from collections.abc import Iterator


def multi_attach(case: Case) -> Iterator[Finding]:
    """RBD401: whom the controller means, and why it may never end by itself."""
    event = _last(case, "Multi-Attach error")
    if event is None:
        return
    attached = () if isinstance(case.use.attachments, NotObserved) else case.use.attachments
    nodes = sorted({each.node_name for each in attached if each.attached})
    if _node_of(case, event) in nodes:
        # The event outlives its cause: the controller has attached the volume since.
        return
    by_books = f" By its books that is {', '.join(nodes)}." if nodes else ""
    yield finding(
        "RBD401",
        f"pod {event.subject}",
        f"{event.subject} waits: the controller will not attach {case.volume} while another node "
        f"has it.{by_books} It never asks Ceph, and never detaches a Ready node by force."
        f"{_clear_first(case)}",
        evidence=(
            quoted(event),
            *(
                f"VolumeAttachment {each.name}: {each.node_name}, "
                f"{'attached' if each.attached else 'not attached'}"
                for each in attached
            ),
        ),
    )


def _node_of(case: Case, event: KubeEvent) -> str | None:
    """Give the node of the waiting pod that an event is about."""
    return next(
        (
            each.node_name
            for each in case.use.waiting_pods
            if (each.ref.namespace, each.ref.name) == (event.subject.namespace, event.subject.name)
        ),
        None,
    )


def still_being_used(case: Case) -> Iterator[Finding]:
    """RBD402: the watcher that ceph-csi met."""
    event = _last(case, "is still being used", kinds=("Pod",))
    if event is None:
        return
    watching = [
        subject_of(each.holder)
        for each in case.judged
        if each.holder.watcher is not None and not each.holder.passing
    ]
    who = f" That is {', '.join(watching)}." if watching else ""
    yield finding(
        "RBD402",
        f"pod {event.subject}",
        f"{event.subject} waits: ceph-csi will not stage {case.volume} while the image has another "
        f"watcher.{who}{_clear_first(case)}",
        evidence=(quoted(event),),
        remedy=_own_stage_remedy(case, _node_of(case, event)),
    )


def _own_stage_remedy(case: Case, node: str | None) -> str:
    """Say what ends a wait for what an earlier stage on the very node left mapped, if it is that.

    ceph-csi counts its own node's watcher as well: it meets it at every retry, and nobody unmaps
    what a waiting pod needs.
    """
    own = [
        each.holder.mapping
        for each in case.judged
        if each.holder.mapping is not None and each.holder.node == node is not None
    ]
    if not own or any(each.mounts != () or each.openers != () for each in own):
        return ""
    devices = ", ".join(each.device for each in own)
    return (
        f"A stage that failed left {devices} mapped on {node} itself, and kubelet's every retry "
        "meets it there. Delete the waiting pod, or scale its owner to zero: once nothing there "
        "needs the volume it is an orphan, and can be unmapped. Then start the pod again."
    )


def map_refused(case: Case) -> Iterator[Finding]:
    """RBD308: every new map on a node fails while its shared client is blocklisted."""
    event = _last(case, "map failed: (108)") or _last(case, "exit status 108")
    if event is None:
        return
    yield finding(
        "RBD308",
        f"pod {event.subject}",
        f"{event.subject} cannot start: the Ceph client of its node is blocklisted, and every new "
        "map there fails. Evict all pods with RBD volumes from that node.",
        evidence=(quoted(event),),
    )


def _last(case: Case, text: str, kinds: tuple[str, ...] = ()) -> KubeEvent | None:
    """Give the newest event with that text whose pod still waits: an old one explains nothing."""
    kube = case.snapshot.kubernetes
    pods_seen = kube is not None and not isinstance(kube.pods, NotObserved)
    waiting = {(each.ref.namespace, each.ref.name) for each in case.use.waiting_pods}
    found = [
        each
        for each in case.use.events
        if text in each.message
        and (not kinds or each.kind in kinds)
        and (
            each.kind != "Pod"
            or not pods_seen
            or (each.subject.namespace, each.subject.name) in waiting
        )
    ]
    return found[-1] if found else None


def _clear_first(case: Case) -> str:
    """Point to the holder that everything waits for."""
    blocking = case.those(Verdict.ORPHANED, Verdict.PINNED, Verdict.DEAD, Verdict.UNWATCHED)
    return f" Clear {subject_of(blocking[0].holder)} first." if blocking else ""


# --------------------------------------------------------------------------------------------------
# Attachments
# --------------------------------------------------------------------------------------------------


def on_paper(case: Case) -> Iterator[Finding]:
    """RBD408: attached, and nothing there; RBD120 as long as that may be passing."""
    nothing_staged = case.verdict is Verdict.STAGED and not case.those(Verdict.STAGED)
    if case.verdict is not Verdict.ATTACHED_ON_PAPER and not nothing_staged:
        return
    attached = () if isinstance(case.use.attachments, NotObserved) else case.use.attachments
    for node in attached_on_paper(case.use, case.snapshot):
        attachment = next(each for each in attached if each.node_name == node)
        if nothing_staged:
            yield finding(
                "RBD120",
                f"node {node}",
                f"{case.volume} is attached to {node}, and nothing there has mapped it yet, or any "
                "more. Wait, and look again.",
                evidence=(
                    f"VolumeAttachment {attachment.name}: made {attachment.created_at}"
                    + (f", being deleted since {attachment.deleting_since}"
                       if attachment.deleting_since else ""),
                ),
                commands=(look_again(case),),
            )  # fmt: skip
            continue
        looked = "was looked at and" if node == case.here else "has no watch, and so"
        leaving = " It is being deleted already." if attachment.deleting_since else ""
        yield finding(
            "RBD408",
            f"node {node}",
            f"The control plane says that {case.volume} is attached to {node}; {node} {looked} "
            f"holds nothing. No unmap will help: the books are wrong.{leaving}",
            evidence=(f"VolumeAttachment {attachment.name}: attached {attachment.attached}",),
            commands=(f"kubectl describe volumeattachment {attachment.name}",),
        )


def detach_fails(case: Case) -> Iterator[Finding]:
    """RBD409, RBD410, RBD413: what the attacher says, and nodes that are gone."""
    if isinstance(case.use.attachments, NotObserved):
        return
    for each in case.use.attachments:
        show = (f"kubectl describe volumeattachment {each.name}",)
        if each.deleting_since is not None and each.detach_error:
            yield finding(
                "RBD409",
                f"volumeattachment {each.name}",
                f"{case.volume} cannot be detached from {each.node_name}: {each.detach_error}. "
                "Repair that. Never remove the finalizer by hand.",
                evidence=(f"being deleted since {each.deleting_since}", each.detach_error),
                commands=show,
            )
        if each.attach_error and not each.attached:
            yield finding(
                "RBD413",
                f"volumeattachment {each.name}",
                f"{case.volume} cannot be attached to {each.node_name}: {each.attach_error}",
                evidence=(each.attach_error,),
                commands=show,
            )
        if node_named(each.node_name, case.snapshot) is None:
            yield finding(
                "RBD410",
                f"volumeattachment {each.name}",
                f"{case.volume} is attached to {each.node_name}, and there is no such node any "
                "more. Prove that the machine is off before anything else gets the volume.",
                evidence=(f"no Node object {each.node_name}",),
                commands=show,
            )


def duplicate_handle(case: Case) -> Iterator[Finding]:
    """RBD411: two PVs that kubelet takes for one."""
    by_handle: dict[tuple[str, str], list[PersistentVolume]] = {}
    for each in volumes_of_use(case.use):
        pair = handle_of(each.source)
        if pair is not None:
            by_handle.setdefault(pair, []).append(each)
    for (driver, handle), volumes in sorted(by_handle.items()):
        if len(volumes) < 2:
            continue
        named = ", ".join(each.name for each in volumes)
        yield finding(
            "RBD411",
            f"pv {volumes[0].name}",
            f"{named} share the volume handle {handle}: kubelet and the attacher take them for one "
            "volume.",
            evidence=(f"driver {driver}, volumeHandle {handle}",),
        )


# --------------------------------------------------------------------------------------------------
# The target itself
# --------------------------------------------------------------------------------------------------


def not_rbd(case: Case) -> Iterator[Finding]:
    """RBD407, RBD414: another driver's volume, or an image that nobody can name."""
    volume = case.use.persistent_volume
    if volume is None or case.use.image is not None:
        return
    image = image_of(volume)
    match volume.source:
        case OtherSource():
            yield _of_another(volume, volume.source.kind)
        case CsiSource() if image is None:
            yield _of_another(volume, volume.source.driver)
        case CsiSource() | InTreeRbdSource():
            reason = image.reason if isinstance(image, NotObserved) else "its source names none"
            cure = image.cure if isinstance(image, NotObserved) else ""
            yield finding(
                "RBD414",
                f"pv {volume.name}",
                f"Which image {volume.name} stands for cannot be told: {reason}.",
                evidence=(reason,),
                remedy=cure,
                commands=(f"kubectl get pv {volume.name} -o yaml",),
            )


def _of_another(volume: PersistentVolume, owner: str) -> Finding:
    return finding(
        "RBD407",
        f"pv {volume.name}",
        f"{volume.name} is not an RBD image: it belongs to {owner}.",
        evidence=(f"source {owner}",),
        commands=(f"kubectl describe pv {volume.name}",),
    )


def target_not_seen(case: Case) -> Iterator[Finding]:
    """RBD415: say what was looked for, and which source could not be asked."""
    use = case.use
    if use.image is not None or use.persistent_volume or use.claim or use.holders:
        return
    if use.target.kind is TargetKind.POD and _pod_seen(case):
        yield finding(
            "RBD415",
            f"pod {use.target.namespace}/{use.target.name}",
            f"Pod {use.target.namespace}/{use.target.name} has no RBD volume.",
            remedy="Nothing to do here.",
            severity=Severity.INFO,
        )
        return
    states = case.snapshot.sources
    unseen = [
        f"{name}: {source.state}, {source.reason}"
        for name, source in (
            ("node", states.node),
            ("ceph", states.ceph),
            ("kubernetes", states.kubernetes),
        )
        if source.state != "observed"
    ]
    yield finding(
        "RBD415",
        use.target.given,
        f"{use.target.given} was not found"
        f"{', and not every source could be asked' if unseen else ''}.",
        evidence=tuple(unseen),
        commands=("rbdagent check",) if unseen else (),
    )


def _pod_seen(case: Case) -> bool:
    kube = case.snapshot.kubernetes
    if kube is None or isinstance(kube.pods, NotObserved):
        return False
    wanted = (case.use.target.namespace, case.use.target.name)
    return any((each.ref.namespace, each.ref.name) == wanted for each in kube.pods)


def several_volumes(case: Case) -> Iterator[Finding]:
    """RBD412: an answer speaks of one volume, a pod may have more."""
    further = further_volumes(case.use, case.snapshot)
    if not further or case.use.target.kind is not TargetKind.POD:
        return
    yield finding(
        "RBD412",
        f"pod {case.use.target.namespace}/{case.use.target.name}",
        f"This answer is about {case.volume}. The pod also has "
        f"{', '.join(each.name for each in further)}.",
        commands=tuple(f"rbdagent who-holds pv/{each.name}" for each in further),
    )
