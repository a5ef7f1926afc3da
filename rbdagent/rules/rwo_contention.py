"""RBD111, RBD112, RBD704, RBD719: two pods need a volume that only one of them can have.

Source of the rules for rolling updates: pkg/controller/deployment/rolling.go and
util/deployment_util.go (ResolveFenceposts), read in Kubernetes 1.36.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, NamedTuple

from rbdagent.codes import Code
from rbdagent.commands import kubectl, with_note
from rbdagent.correlate.holders import is_terminated, waits_for_volumes
from rbdagent.model import (
    CollectScope,
    Command,
    Finding,
    HolderVerdict,
    LifecycleStep,
    Pod,
    Recovery,
    Severity,
    Statement,
    Subject,
    Verdict,
    Workload,
    stated,
)
from rbdagent.parse.foreign import foreign
from rbdagent.parse.recognised import Recognised
from rbdagent.rules.context import CONTROLLER, Rule, RuleContext, finding
from rbdagent.rules.entry import Entry
from rbdagent.rules.pod_events import (
    decisive_pod_event,
    has_waited,
    is_ending_in_time,
    pod_event_evidence,
    waiters,
)
from rbdagent.verdicts.evidence import evidence_of, pod_names
from rbdagent.verdicts.timing import MOVING, RETRY_S
from rbdagent.verdicts.volume_verdict import is_exclusive, pvs_of

if TYPE_CHECKING:
    from collections.abc import Iterator

ENTRIES: Final = (
    Entry(
        Code.ROLLING_UPDATE_DEADLOCK,
        Severity.ERROR,
        "A rolling update is deadlocked: the new pod waits for the volume, and the old pod stays "
        "until the new pod is ready.",
        remedy="Set the Deployment's strategy to Recreate (or maxSurge: 0, maxUnavailable: 1), or "
        "use a StatefulSet. If you delete only the old pod, its ReplicaSet creates another one.",
        recovery=Recovery(note="each of the two pods waits for the other"),
        step=LifecycleStep.ATTACH,
    ),
    Entry(
        Code.WAITING_FOR_USER,
        Severity.ERROR,
        "A pod waits for a volume that a pod on another node uses.",
        remedy="Stop the pod that uses the volume, or run both pods on one node.",
        recovery=Recovery(
            actor="the attach/detach controller",
            condition="the pod that uses it has ended",
            within_s=RETRY_S,
        ),
        step=LifecycleStep.ATTACH,
    ),
    Entry(
        Code.ONCE_POD_IN_USE,
        Severity.ERROR,
        "The volume allows one pod at a time, and another pod uses it.",
        remedy="End the other pod. For a Deployment, set the strategy to Recreate.",
        recovery=Recovery(
            actor="the scheduler and kubelet", condition="the other pod has ended", within_s=RETRY_S
        ),
        step=LifecycleStep.SCHEDULE,
    ),
    Entry(
        Code.REPLICAS_SHARE_VOLUME,
        Severity.ERROR,
        "Two replicas of one controller use one claim, and the volume is for one node only.",
        remedy="Run one replica; or use a StatefulSet with volumeClaimTemplates, which creates a "
        "separate volume for each replica; or use a volume for many nodes (CephFS). Check a "
        "StatefulSet's persistentVolumeClaimRetentionPolicy before scaling it down.",
        recovery=Recovery(
            actor=CONTROLLER, condition="one of the two pods has ended", within_s=RETRY_S
        ),
        step=LifecycleStep.ATTACH,
    ),
)

_QUARTER: Final = "25%"
"""Default of maxSurge and maxUnavailable."""
_RECREATE: Final = '{"type":"Recreate","rollingUpdate":null}'
_NO_SURGE: Final = '{"type":"RollingUpdate","rollingUpdate":{"maxSurge":0,"maxUnavailable":1}}'
"""Sets both values, because maxSurge and maxUnavailable must not both be 0."""
_ONCE: Final = "ReadWriteOncePod"
# pkg/controller/statefulset/stateful_set_utils.go (updateClaimOwnerRefForSetAndPod): with Delete,
# a replica that is to be removed owns its claims, and the garbage collector deletes them with it.
_LOOK_FIRST: Final = (
    "Check its persistentVolumeClaimRetentionPolicy before you scale it down: with whenScaled: "
    "Delete, Kubernetes deletes the claims of the removed replicas and, with reclaim policy "
    "Delete, their images. With Retain, scale it to one replica; or let volumeClaimTemplates "
    "create a separate volume for each replica; or use a shared volume (CephFS)."
)


class Deployment(NamedTuple):
    """The name of the Deployment of a pod, and its object if it was observed."""

    name: str
    found: Workload | None


def blocked_by_user(context: RuleContext) -> Iterator[Finding]:
    """Report RBD111, RBD112, RBD719: a running pod rightly holds it, and a pod elsewhere waits."""
    if pvs_of(context.volume) and not is_exclusive(context.volume):
        return
    for holder_verdict in context.holders_with(Verdict.IN_USE):
        waiting = [one for one in waiters(context) if one.node_name != holder_verdict.holder.node]
        if not waiting:
            continue
        running = [
            one for one in evidence_of(holder_verdict.holder).running if one.deleting_since is None
        ]
        if not running:
            continue
        replicas = [one for one in waiting if any(_owner_of_both(one, old) for old in running)]
        rolling = [
            one
            for one in waiting
            if one not in replicas and any(_is_deadlock(one, old, context) for old in running)
        ]
        others = [one for one in waiting if one not in replicas and one not in rolling]
        if rolling:
            yield _rolling(rolling, running, holder_verdict, context)
        if replicas:
            yield _replicas(replicas, running, holder_verdict, context)
        if others:
            yield _others(others, running, holder_verdict, context)


def _held(running: list[Pod], holder_verdict: HolderVerdict) -> Statement:
    return stated(
        "{users} on {node}", users=[one.ref for one in running], node=holder_verdict.holder.node
    )


# --------------------------------------------------------------------------------------------------
# A rolling update
# --------------------------------------------------------------------------------------------------


def _rolling(
    waiting: list[Pod], running: list[Pod], holder_verdict: HolderVerdict, context: RuleContext
) -> Finding:
    pod = waiting[0]
    mine = _deployment_of(pod, context)
    name, found = mine if mine is not None else Deployment("?", None)
    keeps = "it keeps" if found is not None else "by default (its strategy was not seen) it keeps"
    return finding(
        Code.ROLLING_UPDATE_DEADLOCK,
        Subject.of_pod(pod.ref),
        stated(
            "{pods} waits for the volume that {} uses, and both belong to one workload, "
            "Deployment {workload}: {} the old pod until the new one is ready, so this rolling "
            "update cannot finish.",
            _held(running, holder_verdict),
            keeps,
            pods=[one.ref for one in waiting],
            workload=name,
        ),
        evidence=(
            *holder_verdict.reasons,
            *(f"{one.ref}: {', '.join(one.owners)}" for one in (*waiting, *running)),
            *(_strategy_of(found) if found is not None else ()),
        ),
        pods=holder_verdict.pods,
        remedy=(
            "Set the strategy to Recreate: the update continues immediately, and each later update "
            "ends the old pod first. Or keep the rolling update with maxSurge: 0 and "
            "maxUnavailable: 1 (the second command). Change the chart or manifest in the same way. "
            "A StatefulSet never creates the new pod before the old one is gone."
        ),
        commands=(
            _patched(pod, name, _RECREATE),
            with_note(_patched(pod, name, _NO_SURGE), "instead, to keep rolling"),
        ),
    )


def _patched(pod: Pod, deployment: str, strategy: str) -> Command:
    options = ("--type", "merge", "-p", f'{{"spec":{{"strategy":{strategy}}}}}')
    return kubectl("patch deployment", deployment, namespace=pod.ref.namespace, options=options)


def _strategy_of(deployment: Workload) -> tuple[str, ...]:
    surge = deployment.max_surge or _QUARTER
    fewer = deployment.max_unavailable or _QUARTER
    figures = f"maxSurge {surge}, maxUnavailable {fewer}, replicas {deployment.replicas}"
    return (f"{deployment.name}: {deployment.strategy}, {figures}",)


def _is_deadlock(new: Pod, old: Pod, context: RuleContext) -> bool:
    """Return whether a Deployment keeps the old pod until the new pod is ready.

    The controller scales the old ReplicaSet down by the number of pods that may be unavailable. If
    this number is 0, it removes an old pod only after a new pod is ready. If the waiting pod is the
    older one, there is no deadlock, whether the newer pod is ready or not: the newer pod has the
    volume, so it can become ready, and then the controller removes the waiting pod.
    """
    mine, theirs = _deployment_of(new, context), _deployment_of(old, context)
    if mine is None or theirs is None or mine.name != theirs.name:
        return False
    if new.ref.namespace != old.ref.namespace or _is_older(new, old):
        return False
    return mine.found is None or (
        mine.found.strategy != "Recreate" and _most_unavailable(mine.found) == 0
    )


def _is_older(one: Pod, other: Pod) -> bool:
    return bool(one.created_at and other.created_at and one.created_at < other.created_at)


def _most_unavailable(deployment: Workload) -> int:
    """Resolve maxUnavailable: a percentage is rounded down, that of maxSurge up; not both are 0."""
    surge = _share(deployment.max_surge or _QUARTER, deployment.replicas, up=True)
    fewer = _share(deployment.max_unavailable or _QUARTER, deployment.replicas, up=False)
    return fewer if surge or fewer else 1


def _share(text: str, replicas: int, *, up: bool) -> int:
    if not text.endswith("%"):
        return int(text) if text.isdecimal() else 0
    part = int(text[:-1]) * replicas / 100 if text[:-1].isdecimal() else 0
    return math.ceil(part) if up else math.floor(part)


def _deployment_of(pod: Pod, context: RuleContext) -> Deployment | None:
    """Return the Deployment of a pod, found through its ReplicaSet.

    If the ReplicaSet was not observed, its name shows the Deployment: the name of a ReplicaSet is
    the name of its Deployment and a hash.
    """
    name = next(
        (reference for reference in pod.owners if reference.startswith("ReplicaSet/")), None
    )
    if name is None:
        return None
    replica_set = context.kube.workloads.get((pod.ref.namespace, name))
    if replica_set is None:
        guessed = name.removeprefix("ReplicaSet/").rpartition("-")[0]
        return Deployment(guessed, None) if guessed else None
    owner = next(
        (reference for reference in replica_set.owners if reference.startswith("Deployment/")), None
    )
    if owner is None:
        return None
    found = context.kube.workloads.get((pod.ref.namespace, owner))
    return Deployment(owner.removeprefix("Deployment/"), found)


# --------------------------------------------------------------------------------------------------
# Replicas, and other pods
# --------------------------------------------------------------------------------------------------


def _owner_of_both(one: Pod, other: Pod) -> str | None:
    if one.ref.namespace != other.ref.namespace:
        return None
    return next(iter(sorted({*one.owners} & {*other.owners})), None)


def _replicas(
    waiting: list[Pod], running: list[Pod], holder_verdict: HolderVerdict, context: RuleContext
) -> Finding:
    pod = waiting[0]
    owner = next(name for old in running if (name := _owner_of_both(pod, old)) is not None)
    mine = _deployment_of(pod, context)
    known = mine is not None and mine.found is not None
    workload = f"Deployment/{mine.name}" if mine is not None and known else owner
    kind, _, name = workload.partition("/")
    return finding(
        Code.REPLICAS_SHARE_VOLUME,
        Subject.of_pod(pod.ref),
        stated(
            "{pods} waits for the volume that {} uses: both are replicas of {} {workload}, they "
            "name one claim, and {volume} is for one node only.",
            _held(running, holder_verdict),
            kind,
            pods=[one.ref for one in waiting],
            workload=name,
            volume=context.name,
        ),
        evidence=(
            *holder_verdict.reasons,
            *(f"{one.ref}: {', '.join(one.owners)}" for one in (*waiting, *running)),
        ),
        pods=holder_verdict.pods,
        remedy=_LOOK_FIRST if kind == "StatefulSet" else "",
        commands=_fewer(pod.ref.namespace, kind, name),
    )


def _fewer(namespace: str, kind: str, name: str) -> tuple[Command, ...]:
    """Return the command that scales a workload down; for a StatefulSet, the check before it."""
    if kind == "StatefulSet":
        policy = ("-o", "jsonpath={.spec.persistentVolumeClaimRetentionPolicy}")
        return (kubectl("get statefulset", name, namespace=namespace, options=policy),)
    if kind in {"Deployment", "ReplicaSet"}:
        fewer = ("--replicas", "1")
        return (kubectl("scale", kind.lower(), name, namespace=namespace, options=fewer),)
    return ()


def _show(pod: Pod) -> Command:
    wide = ("-o", "wide")
    return kubectl("get pod", pod.ref.name, namespace=pod.ref.namespace, options=wide)


def _others(
    waiting: list[Pod], running: list[Pod], holder_verdict: HolderVerdict, context: RuleContext
) -> Finding:
    jobs = sorted({name for one in waiting for name in one.owners if name.startswith(_JOB)})
    is_of_jobs = all(any(name.startswith(_JOB) for name in one.owners) for one in waiting)
    return finding(
        Code.WAITING_FOR_USER,
        Subject.of_pod(waiting[0].ref),
        stated(
            "{pods} waits for the volume that {} uses.",
            _held(running, holder_verdict),
            pods=[one.ref for one in waiting],
        ),
        evidence=(*holder_verdict.reasons, *(f"a waiting pod is of {name}" for name in jobs)),
        pods=holder_verdict.pods,
        remedy=_for_others(running, holder_verdict, context, is_of_jobs=is_of_jobs),
        commands=tuple(_show(one) for one in running),
    )


_JOB: Final = "Job/"


def _for_others(
    running: list[Pod], holder_verdict: HolderVerdict, context: RuleContext, *, is_of_jobs: bool
) -> str:
    """Return what ends the wait: a Job ends, what it waits for may be a service (k8up#978)."""
    users, node = pod_names(running), holder_verdict.holder.node
    if any(volume.access_modes == (_ONCE,) for volume in pvs_of(context.volume)):
        return (
            f"Wait until {users} has ended, or stop it: {_ONCE} allows no second pod, not even on "
            "one node."
        )
    if not is_of_jobs or node is None:
        return ""
    return (
        f"Run the pod of the Job on {node} too, where the volume is used by {users}, or wait until "
        f"{users} has ended. What makes the Job sets the node: an affinity, nodeSelector or "
        "nodeName in the pod template, which cannot be changed in the Job. A backup may also read "
        f"a claim that is made from a snapshot of this one. Stop {users} only if its work may be "
        "interrupted."
    )


# --------------------------------------------------------------------------------------------------
# One pod at a time
# --------------------------------------------------------------------------------------------------


def once_pod(context: RuleContext) -> Iterator[Finding]:
    """Report RBD704: another pod has the ReadWriteOncePod volume that a pod waits for.

    Both are on the same node, or the waiting pod has no node yet.
    """
    volume = context.volume.persistent_volume
    if volume is None or volume.access_modes != (_ONCE,):
        return
    pod_event = decisive_pod_event(context, Recognised.ONE_POD_ONLY.is_in)
    reporting = pod_event.pod if pod_event is not None else None
    for pod in context.volume.waiting_pods:
        if not waits_for_volumes(pod):
            continue
        rivals = [other for other in context.volume.pods if _is_rival(other, pod, context)]
        if pod is not reporting and not (rivals and has_waited(pod, context.snapshot, MOVING)):
            continue
        rolling = [rival for rival in rivals if _is_deadlock(pod, rival, context)]
        mine = _deployment_of(pod, context) if rolling else None
        named = (
            stated("{users}", users=[rival.ref for rival in rivals])
            if rivals
            else "a mount that is left of another pod"
        )
        yield finding(
            Code.ONCE_POD_IN_USE,
            Subject.of_pod(pod.ref),
            stated(
                "{pod} waits: {volume} is {}, and {} uses it.",
                _ONCE,
                named,
                pod=pod.ref,
                volume=context.name,
            ),
            evidence=(
                f"access modes {', '.join(volume.access_modes)}",
                *((foreign(pod.unschedulable),) if pod.unschedulable else ()),
                *(
                    pod_event_evidence(pod_event, context)
                    if pod_event is not None and pod is reporting
                    else ()
                ),
            ),
            commands=(_patched(pod, mine.name, _RECREATE),)
            if mine is not None
            else tuple(_show(rival) for rival in rivals),
            recovery=Recovery(note="each of the two pods waits for the other") if rolling else None,
        )


def _is_rival(other: Pod, pod: Pod, context: RuleContext) -> bool:
    if other is pod or other.node_name is None or is_terminated(other):
        return False
    if is_ending_in_time(other, context) or (waits_for_volumes(other) and other.phase == "Pending"):
        return False
    return pod.node_name is None or other.node_name == pod.node_name


RULES: Final = (
    Rule(170, blocked_by_user, CollectScope.WORKLOADS),
    Rule(180, once_pod, CollectScope.WORKLOADS),
)
