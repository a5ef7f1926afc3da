"""The life of a volume: which step is done, which is broken, and what everything waits for.

What a step is broken by, the findings say: each code of the catalogue names its step.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from rbdagent.catalog import CATALOG
from rbdagent.correlate.holders import is_finished
from rbdagent.correlate.identity import pods_of
from rbdagent.correlate.names import names_of, pods_naming, users_of
from rbdagent.diagnose import WEIGHT, diagnose, next_commands
from rbdagent.diagnose.case import subject_of
from rbdagent.diagnose.target import may_be_shared, volumes_of_use
from rbdagent.model import (
    Attachment,
    Diagnosis,
    Finding,
    ImageView,
    Life,
    LifeStage,
    LifeStep,
    NotObserved,
    Pod,
    Severity,
    Snapshot,
    StepState,
    TargetKind,
    VolumeUse,
    WayBack,
    observed_of,
)

if TYPE_CHECKING:
    from rbdagent.model import JudgedHolder

THERE: Final = (
    LifeStep.PROVISION,
    LifeStep.BIND,
    LifeStep.SCHEDULE,
    LifeStep.ATTACH,
    LifeStep.STAGE,
    LifeStep.PUBLISH,
)
BACK: Final = (LifeStep.UNPUBLISH, LifeStep.UNSTAGE, LifeStep.DETACH)
_BLOCKS_FIRST: Final = (
    LifeStep.PROVISION,
    LifeStep.BIND,
    LifeStep.SCHEDULE,
    LifeStep.USE,
    *BACK,
    LifeStep.ATTACH,
    LifeStep.STAGE,
    LifeStep.PUBLISH,
    LifeStep.RELEASE,
    LifeStep.RECLAIM,
)
"""What one node has not let go, the next one cannot attach and map."""

_WATCHERS_UNSEEN: Final = "the image's watchers were not observed"


def life_of(use: VolumeUse, snapshot: Snapshot) -> Life:
    """Follow a volume through its life."""
    diagnosis = diagnose(use, snapshot)
    findings = tuple(sorted(diagnosis.findings, key=_blocks_first))
    diagnosis = replace(diagnosis, findings=findings, next_commands=next_commands(findings))
    pod = _pod_of(use, snapshot)
    return Life(
        diagnosis=diagnosis,
        pod=pod,
        there=_with_findings(_there(use, diagnosis, pod, snapshot), findings),
        back=_back(diagnosis, pod),
    )


def _blocks_first(finding: Finding) -> tuple[int, int]:
    step = CATALOG[finding.code].step
    place = len(_BLOCKS_FIRST) if step is None else _BLOCKS_FIRST.index(step)
    return WEIGHT[finding.severity], place


def _pod_of(use: VolumeUse, snapshot: Snapshot) -> Pod | None:
    """Give the pod that was asked about, else one that waits, else one that uses the volume."""
    pods = pods_of(snapshot.kubernetes)
    target = use.target
    if target.kind is TargetKind.POD:
        wanted = (target.namespace, target.name)
        return next((each for each in pods if (each.ref.namespace, each.ref.name) == wanted), None)
    if use.waiting_pods:
        return use.waiting_pods[0]
    if use.claim is not None and use.persistent_volume is None:
        return next(iter(pods_naming(use.claim.ref, snapshot.kubernetes)), None)
    names = names_of(use.image, volumes_of_use(use), snapshot.kubernetes, ceph=snapshot.ceph)
    users = users_of(names, snapshot.kubernetes)
    living = [each for each in users if each.deleting_since is None]
    return next(iter(living or users), None)


# --------------------------------------------------------------------------------------------------
# There
# --------------------------------------------------------------------------------------------------


def _there(
    use: VolumeUse, diagnosis: Diagnosis, pod: Pod | None, snapshot: Snapshot
) -> tuple[LifeStage, ...]:
    kube = snapshot.kubernetes
    no_volumes = why_unseen(snapshot, kube.persistent_volumes if kube else None)
    no_volume = "" if use.persistent_volume else no_volumes
    no_claims = why_unseen(snapshot, kube.claims if kube else None)
    no_pods = why_unseen(snapshot, kube.pods if kube else None)
    bind = _bind(use, no_claims or no_volume)
    stages = [_provision(use, no_volumes), bind, _schedule(pod, no_pods)]
    node = pod.node_name if pod is not None else None
    stages += [_attach(use, node), _stage(diagnosis, node), _publish(pod)]
    return tuple(stages)


def _stage_of(step: LifeStep, state: StepState, said: str) -> LifeStage:
    return LifeStage(step=step, state=state, said=said)


def why_unseen(snapshot: Snapshot, found: tuple[object, ...] | NotObserved | None) -> str:
    """Say why a kind of object was not observed; empty where it was. None: no API at all."""
    if found is None:
        return snapshot.sources.kubernetes.reason or "the Kubernetes API was not asked"
    return found.reason if isinstance(found, NotObserved) else ""


def _provision(use: VolumeUse, unseen: str) -> LifeStage:
    step, volume = LifeStep.PROVISION, use.persistent_volume
    if volume is not None:
        by = f"by {volume.provisioner}" if volume.provisioner else "by hand"
        return _stage_of(step, StepState.DONE, f"{volume.name}, made {by}")
    if use.image is not None:
        return _stage_of(step, StepState.DONE, f"image {use.image.spec}")
    if unseen:
        return _stage_of(step, StepState.UNSEEN, unseen)
    return _stage_of(step, StepState.WAITING, "there is no volume yet")


def _bind(use: VolumeUse, unseen: str) -> LifeStage:
    step, claim, volume = LifeStep.BIND, use.claim, use.persistent_volume
    if claim is None:
        if unseen:
            return _stage_of(step, StepState.UNSEEN, unseen)
        if volume is None or volume.claim is None:
            return _stage_of(step, StepState.UNNEEDED, "no claim")
        return _stage_of(step, StepState.WAITING, f"its claim {volume.claim} is not there")
    if claim.phase == "Bound" and volume is not None and volume.phase == "Bound":
        return _stage_of(step, StepState.DONE, f"claim {claim.ref}")
    phases = f"claim {claim.ref} is {claim.phase or 'new'}"
    if volume is not None:
        phases += f", {volume.name} is {volume.phase}"
    return _stage_of(step, StepState.WAITING, phases)


def _schedule(pod: Pod | None, unseen: str) -> LifeStage:
    step = LifeStep.SCHEDULE
    if pod is None and unseen:
        return _stage_of(step, StepState.UNSEEN, unseen)
    if pod is None:
        return _stage_of(step, StepState.UNNEEDED, "no pod uses it")
    if pod.node_name:
        return _stage_of(step, StepState.DONE, f"pod {pod.ref} on {pod.node_name}")
    return _stage_of(step, StepState.WAITING, f"pod {pod.ref} has no node")


def _attach(use: VolumeUse, node: str | None) -> LifeStage:
    step = LifeStep.ATTACH
    if node is None:
        return _stage_of(step, StepState.AHEAD, "")
    if isinstance(use.attachments, NotObserved):
        return _stage_of(step, StepState.UNSEEN, use.attachments.reason)
    found = next((each for each in use.attachments if each.node_name == node), None)
    if found is None:
        return _stage_of(step, StepState.WAITING, f"no VolumeAttachment to {node}")
    if found.deleting_since is not None:
        return _stage_of(step, StepState.WAITING, f"{found.name} is being deleted")
    if not found.attached:
        return _stage_of(step, StepState.WAITING, f"{found.name}: not attached")
    return _stage_of(step, StepState.DONE, f"{found.name} to {node}")


def _stage(diagnosis: Diagnosis, node: str | None) -> LifeStage:
    step = LifeStep.STAGE
    if node is None:
        return _stage_of(step, StepState.AHEAD, "")
    here = [each for each in diagnosis.holders if each.holder.node == node]
    for each in here:
        mapping = each.holder.mapping
        if mapping is not None:
            return _stage_of(step, StepState.DONE, f"{mapping.device} on {node}")
    if here:
        return _stage_of(step, StepState.DONE, f"{node} watches the image")
    view = diagnosis.use.image_view
    if view is None or isinstance(view.watchers, NotObserved):
        return _stage_of(step, StepState.UNSEEN, _WATCHERS_UNSEEN)
    return _stage_of(step, StepState.WAITING, f"{node} has not mapped it")


def _publish(pod: Pod | None) -> LifeStage:
    step = LifeStep.PUBLISH
    if pod is None or pod.node_name is None:
        return _stage_of(step, StepState.AHEAD, "")
    if pod.phase == "Running" or any(each.state == "running" for each in pod.containers):
        return _stage_of(step, StepState.DONE, f"pod {pod.ref} runs")
    if pod.phase in {"Succeeded", "Failed"}:
        return _stage_of(step, StepState.UNNEEDED, f"pod {pod.ref} has ended")
    return _stage_of(step, StepState.WAITING, f"pod {pod.ref} is {pod.phase}")


def _with_findings(
    stages: tuple[LifeStage, ...], findings: tuple[Finding, ...]
) -> tuple[LifeStage, ...]:
    """Mark what is broken, and that what comes after it has to wait."""
    told = []
    is_ahead = False
    for each in stages:
        codes = _codes(each.step, findings)
        state = each.state
        if codes and state is not StepState.DONE:
            state = StepState.BROKEN
        elif is_ahead and state is StepState.WAITING:
            state = StepState.AHEAD
        is_ahead |= state in {StepState.BROKEN, StepState.WAITING}
        told.append(LifeStage(step=each.step, state=state, said=each.said, codes=codes))
    return tuple(told)


def _codes(step: LifeStep, findings: tuple[Finding, ...]) -> tuple[str, ...]:
    return tuple(
        dict.fromkeys(
            each.code
            for each in findings
            if each.severity is not Severity.INFO and CATALOG[each.code].step is step
        )
    )


# --------------------------------------------------------------------------------------------------
# Back
# --------------------------------------------------------------------------------------------------


def _back(diagnosis: Diagnosis, pod: Pod | None) -> tuple[WayBack, ...]:
    """Follow each node that holds the volume, or is attached to it, and is not the pod's own.

    A node that shares the volume with the pod's has no way to go back. What is said of another
    node's holder stands in no way here.
    """
    use = diagnosis.use
    own = pod.node_name if pod is not None and pod.deleting_since is None else None
    nodes = [each.holder.node for each in diagnosis.holders if not each.holder.passing]
    nodes += [each.node_name for each in observed_of(use.attachments)]
    sharing = _sharing_nodes(use)
    return tuple(
        WayBack(
            node=node,
            stages=_with_findings(_leaving(diagnosis, node), _without_others(diagnosis, node)),
        )
        for node in dict.fromkeys(nodes)
        if node is not None and node != own and node not in sharing
    )


def _sharing_nodes(use: VolumeUse) -> frozenset[str | None]:
    """Return the nodes whose pods may go on using the volume beside those of other nodes."""
    if not may_be_shared(use):
        return frozenset()
    return frozenset(
        pod.node_name for pod in use.pods if pod.deleting_since is None and not is_finished(pod)
    )


def _without_others(diagnosis: Diagnosis, node: str) -> tuple[Finding, ...]:
    holders = {subject_of(each.holder) for each in diagnosis.holders if each.holder.node != node}
    return tuple(
        each
        for each in diagnosis.findings
        if each.subject not in holders
        and (each.subject == f"node {node}" or not each.subject.startswith("node "))
    )


def _leaving(diagnosis: Diagnosis, node: str) -> tuple[LifeStage, ...]:
    use = diagnosis.use
    held = [each for each in diagnosis.holders if each.holder.node == node]
    unstage = _unstage(held, use.image_view, strangers=_strangers(diagnosis))
    return (_unpublish(held), unstage, _detach(use.attachments, node))


def _strangers(diagnosis: Diagnosis) -> tuple[str, ...]:
    """Name the watchers that are of no node that is known: they may be of any."""
    return tuple(
        subject_of(each.holder)
        for each in diagnosis.holders
        if each.holder.node is None and each.holder.watcher is not None and not each.holder.passing
    )


def _unpublish(held: list[JudgedHolder]) -> LifeStage:
    step = LifeStep.UNPUBLISH
    lost = [uid for judged in held for uid in judged.holder.lost_pod_uids]
    if lost:
        said = f"a container or a path of pod {lost[0]}, which the API has lost, is still there"
        return _stage_of(step, StepState.WAITING, said)
    if any(
        "RBD109" in judged.holder.published.findings for judged in held if judged.holder.published
    ):
        said = "the agent there reports a container or a path of a pod that the API has lost"
        return _stage_of(step, StepState.WAITING, said)
    pods = [pod for each in held for pod in observed_of(each.holder.pods)]
    if pods:
        named = ", ".join(str(each.ref) for each in pods)
        return _stage_of(step, StepState.WAITING, f"pod {named}")
    if any(isinstance(each.holder.pods, NotObserved) for each in held):
        return _stage_of(step, StepState.UNSEEN, "its pods were not observed")
    return _stage_of(step, StepState.DONE, "no pod uses it there")


def _unstage(
    held: list[JudgedHolder], view: ImageView | None, *, strangers: tuple[str, ...]
) -> LifeStage:
    step = LifeStep.UNSTAGE
    if not held and (view is None or isinstance(view.watchers, NotObserved)):
        return _stage_of(step, StepState.UNSEEN, _WATCHERS_UNSEEN)
    if not held and strangers:
        return _stage_of(step, StepState.UNSEEN, f"{', '.join(strangers)} may be there")
    if not held:
        return _stage_of(step, StepState.DONE, "nothing there has it mapped")
    mapping = held[0].holder.mapping
    what = mapping.device if mapping is not None else "its watch"
    return _stage_of(step, StepState.WAITING, f"{what} is there: {held[0].verdict}")


def _detach(attachments: tuple[Attachment, ...] | NotObserved, node: str) -> LifeStage:
    step = LifeStep.DETACH
    if isinstance(attachments, NotObserved):
        return _stage_of(step, StepState.UNSEEN, attachments.reason)
    attached = next((each for each in attachments if each.node_name == node), None)
    if attached is None:
        return _stage_of(step, StepState.DONE, "no VolumeAttachment")
    leaving = "is being deleted" if attached.deleting_since else "is there"
    return _stage_of(step, StepState.WAITING, f"{attached.name} {leaving}")
