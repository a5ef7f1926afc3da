"""The lifecycle of a volume: which steps are done, which failed, and which finding blocks them.

Findings show why a step failed: each code in the catalogue names its step.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from rbdagent.codes import Code
from rbdagent.correlate.holders import have_containers_ended, is_finished
from rbdagent.correlate.image_identity import are_watchers_observed
from rbdagent.correlate.index import kube_index
from rbdagent.correlate.names import key_of
from rbdagent.correlate.volume_names import names_of, node_named, users_of
from rbdagent.model import (
    WEIGHT,
    DetachPath,
    Diagnosis,
    Finding,
    ImagePresence,
    ImageView,
    InTreeRbdSource,
    Lifecycle,
    LifecycleStep,
    NotObserved,
    Pod,
    Severity,
    Snapshot,
    StepState,
    StepStatus,
    SubjectKind,
    TargetKind,
    Volume,
    observed_of,
)
from rbdagent.rules import FINDINGS, diagnose, next_commands
from rbdagent.rules.context import subject_of
from rbdagent.verdicts.coverage import is_hidden
from rbdagent.verdicts.volume_verdict import may_be_shared, pvs_of

if TYPE_CHECKING:
    from rbdagent.model import HolderVerdict

THERE: Final = (
    LifecycleStep.PROVISION,
    LifecycleStep.BIND,
    LifecycleStep.SCHEDULE,
    LifecycleStep.ATTACH,
    LifecycleStep.STAGE,
    LifecycleStep.PUBLISH,
)
BACK: Final = (LifecycleStep.UNPUBLISH, LifecycleStep.UNSTAGE, LifecycleStep.DETACH)
_BLOCKS_FIRST: Final = (
    LifecycleStep.PROVISION,
    LifecycleStep.BIND,
    LifecycleStep.SCHEDULE,
    LifecycleStep.USE,
    *BACK,
    LifecycleStep.ATTACH,
    LifecycleStep.STAGE,
    LifecycleStep.PUBLISH,
    LifecycleStep.RELEASE,
    LifecycleStep.RECLAIM,
)
"""The detach steps come before the attach steps: a volume that one node has not released cannot be
attached and mapped by the next node."""

_WATCHERS_UNSEEN: Final = "the image's watchers were not observed"
_NODE_UNSEEN: Final = "that node is not known to be Ready, and nothing there was observed"


def lifecycle_of(volume: Volume, snapshot: Snapshot) -> Lifecycle:
    """Return the lifecycle of a volume with its findings, the most blocking one first."""
    diagnosis = diagnose(volume, snapshot)
    findings = tuple(sorted(diagnosis.findings, key=_blocks_first))
    diagnosis = replace(diagnosis, findings=findings, next_commands=next_commands(findings))
    pod = _pod_of(volume, snapshot)
    return Lifecycle(
        diagnosis=diagnosis,
        pod=pod,
        attach_path=_with_findings(_attach_path(volume, diagnosis, pod, snapshot), findings),
        detach_paths=_detach_paths(diagnosis, pod, snapshot),
    )


def _blocks_first(finding: Finding) -> tuple[int, int]:
    step = FINDINGS[finding.code].step
    place = len(_BLOCKS_FIRST) if step is None else _BLOCKS_FIRST.index(step)
    return WEIGHT[finding.severity], place


def _pod_of(volume: Volume, snapshot: Snapshot) -> Pod | None:
    """Return the pod of the target, else a pod that waits, else a pod that uses the volume."""
    kube = kube_index(snapshot.kubernetes)
    target = volume.target
    if target.kind is TargetKind.POD:
        return kube.pod_by_key.get((target.namespace, target.name))
    if volume.waiting_pods:
        return volume.waiting_pods[0]
    if volume.claim is not None and volume.persistent_volume is None:
        return next(iter(kube.pods_by_claim.get(key_of(volume.claim.ref), ())), None)
    names = names_of(volume.image, pvs_of(volume), snapshot)
    users = users_of(names, snapshot)
    remaining = [pod for pod in users if pod.deleting_since is None]
    return next(iter(remaining or users), None)


# --------------------------------------------------------------------------------------------------
# Attach path
# --------------------------------------------------------------------------------------------------


def _attach_path(
    volume: Volume, diagnosis: Diagnosis, pod: Pod | None, snapshot: Snapshot
) -> tuple[StepStatus, ...]:
    kube = snapshot.kubernetes
    no_volumes = not_observed_reason(snapshot, kube.persistent_volumes if kube else None)
    no_volume = "" if volume.persistent_volume else no_volumes
    no_claims = not_observed_reason(snapshot, kube.claims if kube else None)
    no_pods = not_observed_reason(snapshot, kube.pods if kube else None)
    bind = _bind(volume, no_claims or no_volume)
    stages = [_provision(volume, no_volumes), bind, _schedule(pod, no_pods)]
    if pod is None and no_pods:
        on_node = (LifecycleStep.ATTACH, LifecycleStep.STAGE, LifecycleStep.PUBLISH)
        unseen = (_stage_of(step, StepState.NOT_OBSERVED, no_pods) for step in on_node)
        return (*stages, *unseen)
    node = pod.node_name if pod is not None else None
    stages += [_attach(volume, node, snapshot), _stage(diagnosis, node), _publish(pod)]
    return tuple(stages)


def _stage_of(step: LifecycleStep, state: StepState, detail: str) -> StepStatus:
    return StepStatus(step=step, state=state, detail=detail)


def not_observed_reason(snapshot: Snapshot, found: tuple[object, ...] | NotObserved | None) -> str:
    """Return why a kind of object was not observed, or "" if it was.

    ``found`` is None if the Kubernetes API was not observed at all.
    """
    if found is None:
        return snapshot.sources.kubernetes.reason or "the Kubernetes API was not queried"
    return found.reason if isinstance(found, NotObserved) else ""


def _provision(volume: Volume, missing: str) -> StepStatus:
    step, persistent_volume = LifecycleStep.PROVISION, volume.persistent_volume
    if persistent_volume is not None:
        origin = (
            f"provisioned by {persistent_volume.provisioner}"
            if persistent_volume.provisioner
            else "created manually"
        )
        return _stage_of(step, StepState.DONE, f"{persistent_volume.name}, {origin}")
    if volume.image is not None:
        return _provision_of_image(volume, f"image {volume.image.spec}")
    if missing:
        return _stage_of(step, StepState.NOT_OBSERVED, missing)
    return _stage_of(step, StepState.WAITING, "no volume exists yet")


def _provision_of_image(volume: Volume, image: str) -> StepStatus:
    """Return the step of a volume without PV: Ceph or a device shows that the image exists."""
    step, view = LifecycleStep.PROVISION, volume.image_view
    presence = None if view is None else view.presence
    is_mapped = any(holder.mapping is not None for holder in volume.holders)
    if presence is ImagePresence.PRESENT or is_mapped:
        return _stage_of(step, StepState.DONE, image)
    if presence in {ImagePresence.GONE, ImagePresence.TRASH}:
        return _stage_of(step, StepState.SKIPPED, f"{image} was deleted")
    return _stage_of(step, StepState.NOT_OBSERVED, f"whether {image} exists was not observed")


def _bind(volume: Volume, missing: str) -> StepStatus:
    step, claim, persistent_volume = LifecycleStep.BIND, volume.claim, volume.persistent_volume
    if claim is None:
        if missing:
            return _stage_of(step, StepState.NOT_OBSERVED, missing)
        if persistent_volume is None or persistent_volume.claim is None:
            return _stage_of(step, StepState.SKIPPED, "no claim")
        if persistent_volume.phase in {"Released", "Failed"}:
            # The PV controller binds it again only when its claimRef changes (syncVolume in
            # pkg/controller/volume/persistentvolume/pv_controller.go).
            return _stage_of(
                step, StepState.SKIPPED, f"its claim {persistent_volume.claim} is gone"
            )
        return _stage_of(
            step, StepState.WAITING, f"its claim {persistent_volume.claim} does not exist"
        )
    if (
        claim.phase == "Bound"
        and persistent_volume is not None
        and persistent_volume.phase == "Bound"
    ):
        return _stage_of(step, StepState.DONE, f"claim {claim.ref}")
    phases = f"claim {claim.ref} is {claim.phase or 'new'}"
    if persistent_volume is not None:
        phases += f", {persistent_volume.name} is {persistent_volume.phase}"
    return _stage_of(step, StepState.WAITING, phases)


def _schedule(pod: Pod | None, missing: str) -> StepStatus:
    step = LifecycleStep.SCHEDULE
    if pod is None and missing:
        return _stage_of(step, StepState.NOT_OBSERVED, missing)
    if pod is None:
        return _stage_of(step, StepState.SKIPPED, "no pod uses it")
    if pod.node_name:
        return _stage_of(step, StepState.DONE, f"pod {pod.ref} on {pod.node_name}")
    return _stage_of(step, StepState.WAITING, f"pod {pod.ref} is not scheduled to a node")


def _attach(volume: Volume, node: str | None, snapshot: Snapshot) -> StepStatus:
    if node is not None and _is_attached_in_tree(volume):
        return _listed(LifecycleStep.ATTACH, volume, node, snapshot)
    return _attach_by_object(volume, node)


def _attach_by_object(volume: Volume, node: str | None) -> StepStatus:
    step = LifecycleStep.ATTACH
    if node is None:
        return _stage_of(step, StepState.NOT_STARTED, "")
    if isinstance(volume.attachments, NotObserved):
        return _stage_of(step, StepState.NOT_OBSERVED, volume.attachments.reason)
    found = next(
        (attachment for attachment in volume.attachments if attachment.node_name == node), None
    )
    if found is None:
        return _stage_of(step, StepState.WAITING, f"no VolumeAttachment for {node}")
    if found.deleting_since is not None:
        return _stage_of(step, StepState.WAITING, f"{found.name} is being deleted")
    if not found.attached:
        return _stage_of(step, StepState.WAITING, f"{found.name}: not attached")
    return _stage_of(step, StepState.DONE, f"{found.name} to {node}")


def _is_attached_in_tree(volume: Volume) -> bool:
    """Return whether Kubernetes attaches it without a VolumeAttachment: in-tree, not migrated.

    The migration of RBD was never enabled by default (CSIMigrationRBD), and Kubernetes 1.31 has
    removed the plugin (kubernetes#124546).
    """
    of_image = pvs_of(volume)
    return (
        bool(of_image)
        and all(
            isinstance(persistent_volume.source, InTreeRbdSource)
            and persistent_volume.migrated_to is None
            for persistent_volume in of_image
        )
        and not observed_of(volume.attachments)
    )


def _listed(step: LifecycleStep, volume: Volume, name: str, snapshot: Snapshot) -> StepStatus:
    """Return the step of an in-tree volume: the Node lists it in volumesAttached, or not."""
    node = node_named(name, snapshot)
    if isinstance(node, NotObserved):
        return _stage_of(step, StepState.NOT_OBSERVED, node.reason)
    names = names_of(volume.image, pvs_of(volume), snapshot).in_use_names
    is_listed = node is not None and bool(names & node.names_attached)
    is_done = is_listed is (step is LifecycleStep.ATTACH)
    verb = "lists" if is_listed else "does not list"
    detail = f"Node {name} {verb} it as attached"
    return _stage_of(step, StepState.DONE if is_done else StepState.WAITING, detail)


def _stage(diagnosis: Diagnosis, node: str | None) -> StepStatus:
    step = LifecycleStep.STAGE
    if node is None:
        return _stage_of(step, StepState.NOT_STARTED, "")
    here = [
        holder_verdict.holder
        for holder_verdict in diagnosis.holders
        if holder_verdict.holder.node == node
    ]
    for holder in here:
        mapping = holder.mapping
        if mapping is not None:
            return _stage_of(step, StepState.DONE, f"{mapping.device} on {node}")
    watching = [holder for holder in here if holder.watcher is not None]
    if watching and all(holder.is_node_probable for holder in watching):
        detail = f"{subject_of(watching[0])} watches the image"
        return _stage_of(step, StepState.NOT_OBSERVED, detail)
    if watching:
        return _stage_of(step, StepState.DONE, f"{node} watches the image")
    if not are_watchers_observed(diagnosis.volume.image_view):
        return _stage_of(step, StepState.NOT_OBSERVED, _WATCHERS_UNSEEN)
    return _stage_of(step, StepState.WAITING, f"{node} has not mapped it")


def _publish(pod: Pod | None) -> StepStatus:
    step = LifecycleStep.PUBLISH
    if pod is None or pod.node_name is None:
        return _stage_of(step, StepState.NOT_STARTED, "")
    if have_containers_ended((pod,)) and pod.phase == "Running":
        return _stage_of(step, StepState.DONE, f"the containers of pod {pod.ref} have ended")
    if pod.phase == "Running" or any(container.state == "running" for container in pod.containers):
        return _stage_of(step, StepState.DONE, f"pod {pod.ref} is running")
    if pod.phase in {"Succeeded", "Failed"}:
        return _stage_of(step, StepState.SKIPPED, f"pod {pod.ref} has finished")
    return _stage_of(step, StepState.WAITING, f"pod {pod.ref} is {pod.phase}")


def _with_findings(
    stages: tuple[StepStatus, ...], findings: tuple[Finding, ...]
) -> tuple[StepStatus, ...]:
    """Mark steps that have findings as failed, and waiting steps after them as not started."""
    marked = []
    is_ahead = False
    for stage in stages:
        codes = _codes(stage.step, findings)
        state = stage.state
        if codes and state is not StepState.DONE:
            state = StepState.FAILED
        elif is_ahead and state is StepState.WAITING:
            state = StepState.NOT_STARTED
        is_ahead |= state in {StepState.FAILED, StepState.WAITING}
        marked.append(StepStatus(step=stage.step, state=state, detail=stage.detail, codes=codes))
    return tuple(marked)


def _codes(step: LifecycleStep, findings: tuple[Finding, ...]) -> tuple[str, ...]:
    return tuple(
        dict.fromkeys(
            finding.code
            for finding in findings
            if finding.severity is not Severity.INFO and FINDINGS[finding.code].step is step
        )
    )


# --------------------------------------------------------------------------------------------------
# Detach path
# --------------------------------------------------------------------------------------------------


def _detach_paths(
    diagnosis: Diagnosis, pod: Pod | None, snapshot: Snapshot
) -> tuple[DetachPath, ...]:
    """Return the detach path of each other node that holds the volume or has it attached.

    The pod's own node has no detach path, and neither does a node that shares the volume with it.
    A finding about a holder on another node does not block the path.
    """
    volume = diagnosis.volume
    own = pod.node_name if pod is not None and pod.deleting_since is None else None
    nodes = [
        holder_verdict.holder.node
        for holder_verdict in diagnosis.holders
        if not holder_verdict.holder.transient
    ]
    nodes += [attachment.node_name for attachment in observed_of(volume.attachments)]
    sharing = _sharing_nodes(volume)
    return tuple(
        DetachPath(
            node=node,
            stages=_with_findings(
                _leaving(diagnosis, node, snapshot),
                _without_others(diagnosis, node),
            ),
        )
        for node in dict.fromkeys(nodes)
        if node is not None and node != own and node not in sharing
    )


def _sharing_nodes(volume: Volume) -> frozenset[str | None]:
    """Return the nodes whose pods may use the volume at the same time as pods on other nodes."""
    if not may_be_shared(volume):
        return frozenset()
    return frozenset(
        pod.node_name for pod in volume.pods if pod.deleting_since is None and not is_finished(pod)
    )


def _without_others(diagnosis: Diagnosis, node: str) -> tuple[Finding, ...]:
    holders = {
        subject_of(holder_verdict.holder)
        for holder_verdict in diagnosis.holders
        if holder_verdict.holder.node != node
    }
    return tuple(
        finding
        for finding in diagnosis.findings
        if finding.subject not in holders
        and not (finding.subject.kind is SubjectKind.NODE and finding.subject.node != node)
    )


def _leaving(diagnosis: Diagnosis, node: str, snapshot: Snapshot) -> tuple[StepStatus, ...]:
    volume = diagnosis.volume
    held = [
        holder_verdict for holder_verdict in diagnosis.holders if holder_verdict.holder.node == node
    ]
    detach = _detach(volume, node, snapshot)
    if not held and is_hidden(node, snapshot):
        unseen = (
            _stage_of(step, StepState.NOT_OBSERVED, _NODE_UNSEEN)
            for step in (LifecycleStep.UNPUBLISH, LifecycleStep.UNSTAGE)
        )
        return (*unseen, detach)
    unstage = _unstage(held, volume.image_view, unknown_clients=_unknown_clients(diagnosis))
    return (_unpublish(held), unstage, detach)


def _unknown_clients(diagnosis: Diagnosis) -> tuple[str, ...]:
    """Return the watchers whose node is not certain: each of them may run on any node."""
    holders = [holder_verdict.holder for holder_verdict in diagnosis.holders]
    return tuple(
        str(subject_of(holder))
        for holder in holders
        if (holder.node is None or holder.is_node_probable)
        and holder.watcher is not None
        and not holder.transient
    )


def _unpublish(held: list[HolderVerdict]) -> StepStatus:
    step = LifecycleStep.UNPUBLISH
    lost = [uid for holder_verdict in held for uid in holder_verdict.holder.unknown_pod_uids]
    if lost:
        detail = f"the API does not list pod {lost[0]}, but its container or path still exists"
        return _stage_of(step, StepState.WAITING, detail)
    if any(
        Code.POD_LOST_BY_API in holder_verdict.holder.published.findings
        for holder_verdict in held
        if holder_verdict.holder.published
    ):
        detail = "the agent there reports a container or path of a pod that the API does not list"
        return _stage_of(step, StepState.WAITING, detail)
    pods = [pod for holder_verdict in held for pod in observed_of(holder_verdict.holder.pods)]
    if pods:
        named = ", ".join(str(pod.ref) for pod in pods)
        return _stage_of(step, StepState.WAITING, f"{'pod' if len(pods) == 1 else 'pods'} {named}")
    if any(isinstance(holder_verdict.holder.pods, NotObserved) for holder_verdict in held):
        return _stage_of(step, StepState.NOT_OBSERVED, "its pods were not observed")
    return _stage_of(step, StepState.DONE, "no pod uses it there")


def _unstage(
    held: list[HolderVerdict], view: ImageView | None, *, unknown_clients: tuple[str, ...]
) -> StepStatus:
    step = LifecycleStep.UNSTAGE
    if not held and not are_watchers_observed(view):
        return _stage_of(step, StepState.NOT_OBSERVED, _WATCHERS_UNSEEN)
    if not held and unknown_clients:
        detail = f"{', '.join(unknown_clients)} may be on this node"
        return _stage_of(step, StepState.NOT_OBSERVED, detail)
    if not held:
        return _stage_of(step, StepState.DONE, "no client there has it mapped")
    holder, verdict = held[0].holder, held[0].verdict
    if holder.mapping is None and holder.watcher is None:
        detail = f"neither a mapping nor a watch of it was observed: {verdict}"
        return _stage_of(step, StepState.NOT_OBSERVED, detail)
    what = holder.mapping.device if holder.mapping is not None else "its watch"
    return _stage_of(step, StepState.WAITING, f"{what} still exists: {verdict}")


def _detach(volume: Volume, node: str, snapshot: Snapshot) -> StepStatus:
    step, attachments = LifecycleStep.DETACH, volume.attachments
    if _is_attached_in_tree(volume):
        return _listed(step, volume, node, snapshot)
    if isinstance(attachments, NotObserved):
        return _stage_of(step, StepState.NOT_OBSERVED, attachments.reason)
    attached = next(
        (attachment for attachment in attachments if attachment.node_name == node), None
    )
    if attached is None:
        return _stage_of(step, StepState.DONE, "no VolumeAttachment")
    state = "is being deleted" if attached.deleting_since else "still exists"
    return _stage_of(step, StepState.WAITING, f"{attached.name} {state}")
