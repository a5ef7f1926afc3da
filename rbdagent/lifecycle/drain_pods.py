"""The pods of a node that a drain does not evict, and those that nothing replaces meanwhile."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rbdagent.commands import kubectl
from rbdagent.correlate.holders import is_finished, runs
from rbdagent.correlate.index import kube_index
from rbdagent.model import (
    DisruptionBudget,
    Gap,
    NotObserved,
    OtherSource,
    Pod,
    Snapshot,
    Subject,
    observed_of,
)
from rbdagent.model.drain import DrainItem, DrainMove, DrainStep
from rbdagent.parse.selector import selects
from rbdagent.verdicts.volume_verdict import may_volume_be_shared

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rbdagent.correlate.index import KubeIndex
    from rbdagent.model import PersistentVolume

_STAYING: Final = ("DaemonSet/", "Node/")
"""The controllers of pods that a drain leaves alone: DaemonSets, and kubelet for static pods, whose
mirror pods belong to their Node (pkg/kubelet/pod/mirror_client.go)."""
_ONE_NODE: Final = ("Deployment/", "ReplicaSet/")
"""Controllers whose pods share their claims: all replicas are on the node of the volume."""


def stays(pod: Pod) -> bool:
    """Return whether a drain leaves a pod on its node."""
    return any(owner.startswith(_STAYING) for owner in pod.owners)


def refused_pods(snapshot: Snapshot, node: str) -> Iterator[DrainItem]:
    """Yield the pods of a node that `kubectl drain` refuses to evict, or that the API refuses."""
    for pod in _evicted(snapshot, node):
        if not pod.owners and not is_finished(pod):
            # As unreplicatedFilter() of k8s.io/kubectl/pkg/drain/filters.go does.
            yield _item(
                pod,
                f"Pod {pod.ref} has no controller. A drain stops at it; with --force it deletes "
                "the pod, and nothing creates the pod again.",
            )
        yield from _refused_by_budget(pod, snapshot)


def _refused_by_budget(pod: Pod, snapshot: Snapshot) -> Iterator[DrainItem]:
    """Yield the reason why the API refuses the eviction of a pod.

    As the eviction in pkg/registry/core/pod/storage/eviction.go.
    """
    if is_finished(pod) or pod.phase == "Pending" or pod.deleting_since is not None:
        return
    budgets = _budgets_of(pod, snapshot)
    if len(budgets) > 1:
        names = ", ".join(budget.ref.name for budget in budgets)
        yield _item(
            pod,
            f"Pod {pod.ref} has {len(budgets)} PodDisruptionBudgets: {names}. The API evicts no "
            "pod that has more than one.",
            budgets,
        )
        return
    for budget in budgets:
        if budget.allowed > 0 or (not pod.ready and _may_evict_unhealthy(budget)):
            continue
        yield _item(
            pod,
            f"PodDisruptionBudget {budget.ref} allows no eviction of pod {pod.ref} now. "
            f"{budget.healthy} of its pods are Ready, and {budget.wanted} must be: a drain waits "
            "until there is one more.",
            budgets,
        )


def _may_evict_unhealthy(budget: DisruptionBudget) -> bool:
    """Return whether a pod that is not Ready may be evicted while no disruption is allowed."""
    return budget.evicts_unhealthy or 0 < budget.wanted <= budget.healthy


def _budgets_of(pod: Pod, snapshot: Snapshot) -> tuple[DisruptionBudget, ...]:
    kube = snapshot.kubernetes
    labels = dict(pod.labels)
    found = (
        budget
        for budget in observed_of(kube.budgets if kube is not None else ())
        if budget.ref.namespace == pod.ref.namespace
        and budget.selector is not None
        and selects(budget.selector, labels)
    )
    return tuple(sorted(found, key=lambda budget: budget.ref))


def _item(pod: Pod, statement: str, budgets: tuple[DisruptionBudget, ...] = ()) -> DrainItem:
    shown = tuple(
        kubectl("get poddisruptionbudgets", budget.ref.name, namespace=budget.ref.namespace)
        for budget in budgets
    )
    return DrainItem(
        step=DrainStep.REFUSED_POD,
        subject=Subject.of_pod(pod.ref),
        statement=statement,
        commands=shown or (kubectl("describe pod", pod.ref.name, namespace=pod.ref.namespace),),
    )


def _evicted(snapshot: Snapshot, node: str) -> list[Pod]:
    """Return the pods of a node that a drain evicts, in order of their names."""
    on_node = kube_index(snapshot.kubernetes).pods_on_node.get(node, ())
    return [pod for pod in on_node if not stays(pod)]


def deleted_with_pods(snapshot: Snapshot, node: str) -> Iterator[DrainItem]:
    """Yield the claims that are deleted as soon as their pods are evicted.

    The finalizer kubernetes.io/pvc-protection remains while a pod uses the claim
    (pkg/controller/volume/pvcprotection).
    """
    kube = kube_index(snapshot.kubernetes)
    for pod in _evicted(snapshot, node):
        for name in pod.claims:
            claim = kube.claim_by_key.get((pod.ref.namespace, name))
            if claim is None or is_finished(pod):
                continue
            volumes = kube.volumes_of_claim((pod.ref.namespace, name))
            leaving = claim.deleting_since or any(volume.deleting_since for volume in volumes)
            if not leaving:
                continue
            keeps = all(volume.reclaim_policy == "Retain" for volume in volumes) and volumes
            lost = "its PV is then Released" if keeps else "its image is then deleted too"
            yield DrainItem(
                step=DrainStep.DATA_AT_RISK,
                subject=Subject.of_claim(claim.ref),
                statement=f"Claim {claim.ref} is being deleted, and only pod {pod.ref} keeps it. "
                f"The eviction of the pod ends that: {lost}.",
                commands=(kubectl("describe pvc", claim.ref.name, namespace=claim.ref.namespace),),
            )


def volume_gaps(snapshot: Snapshot, node: str) -> Iterator[Gap]:
    """Yield why the volumes of a node's pods are not known."""
    kube = snapshot.kubernetes
    if kube is None or not any(pod.claims for pod in kube_index(kube).pods_on_node.get(node, ())):
        return
    for fact, listed in (("PersistentVolumes", kube.persistent_volumes), ("claims", kube.claims)):
        if isinstance(listed, NotObserved):
            yield Gap(
                fact=f"the {fact} of the pods on {node}", reason=listed.reason, hint=listed.hint
            )


def volumes_in_use(snapshot: Snapshot, node: str) -> dict[str, Pod]:
    """Return the RBD volumes of the pods that run on a node, by their PV, each with one pod."""
    kube = kube_index(snapshot.kubernetes)
    return {
        volume.name: pod
        for pod in kube.pods_on_node.get(node, ())
        if runs(pod)
        for claim in pod.claims
        for volume in kube.volumes_of_claim((pod.ref.namespace, claim))
        if not isinstance(volume.source, OtherSource)
    }


# --------------------------------------------------------------------------------------------------
# Down during the move
# --------------------------------------------------------------------------------------------------


def moves(snapshot: Snapshot, node: str) -> tuple[DrainMove, ...] | NotObserved:
    """Return the pods whose only replica, or all replicas, move with a volume of one node."""
    gap = pods_gap(snapshot, node)
    if gap is not None:
        return NotObserved(reason=gap.reason, hint=gap.hint)
    kube = kube_index(snapshot.kubernetes)
    found = []
    for pod in _evicted(snapshot, node):
        volume = None if is_finished(pod) else _exclusive_volume(pod, kube)
        if volume is None:
            continue
        controller, replicas = _controller(pod, kube)
        if replicas in {None, 1} or controller.startswith(_ONE_NODE):
            found.append(
                DrainMove(
                    pod=pod.ref,
                    controller=controller,
                    replicas=replicas,
                    persistent_volume=volume.name,
                )
            )
    return tuple(found)


def _exclusive_volume(pod: Pod, kube: KubeIndex) -> PersistentVolume | None:
    """Return the first RBD volume of a pod that only one node may map at a time."""
    volumes = (
        volume
        for claim in pod.claims
        for volume in kube.volumes_of_claim((pod.ref.namespace, claim))
    )
    return next(
        (
            volume
            for volume in volumes
            if not isinstance(volume.source, OtherSource) and not may_volume_be_shared(volume)
        ),
        None,
    )


def _controller(pod: Pod, kube: KubeIndex) -> tuple[str, int | None]:
    """Return the topmost known controller of a pod, and its number of replicas."""
    name = next(iter(pod.owners), "")
    replicas: int | None = None
    seen: set[str] = set()
    while (found := kube.workloads.get((pod.ref.namespace, name))) and name not in seen:
        seen.add(name)
        replicas = found.replicas
        name = next(iter(found.owners), name)
    return name, replicas


# --------------------------------------------------------------------------------------------------
# Not observed
# --------------------------------------------------------------------------------------------------


def pods_gap(snapshot: Snapshot, node: str) -> Gap | None:
    """Return why the pods of a node were not observed; None if they were."""
    kube, source = snapshot.kubernetes, snapshot.sources.kubernetes
    if kube is None:
        reason = source.reason or "the Kubernetes API was not queried"
        return Gap(fact=f"the pods on {node}", reason=reason, hint=source.hint)
    if isinstance(kube.pods, NotObserved):
        return Gap(fact=f"the pods on {node}", reason=kube.pods.reason, hint=kube.pods.hint)
    if kube_index(kube).coverage.pods_on(node):
        return None
    return Gap(fact=f"the pods on {node}", reason="this snapshot has the pods of other nodes only")


def budgets_gap(snapshot: Snapshot) -> Gap | None:
    """Return why PodDisruptionBudgets were not observed; None if they were."""
    kube = snapshot.kubernetes
    if kube is None or not isinstance(kube.budgets, NotObserved):
        # Without the API, the pods are the gap.
        return None
    return Gap(fact="PodDisruptionBudgets", reason=kube.budgets.reason, hint=kube.budgets.hint)
