"""RBD701 to RBD706: why a pod gets no node, by the scheduler's own words and the objects.

Texts read in Kubernetes 1.36 (pkg/scheduler/framework/plugins: volumebinding, nodevolumelimits,
volumerestrictions); where older ones differ, both are known.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from rbdagent.commands import command, kubectl
from rbdagent.diagnose.case import Case, finding
from rbdagent.diagnose.target import driver_of, volumes_of_use
from rbdagent.diagnose.times import LONG, MOVING, is_young
from rbdagent.diagnose.waiting import evidence_of_word, has_waited, words
from rbdagent.model import (
    Claim,
    Command,
    CsiSource,
    Finding,
    Heals,
    KubeView,
    Node,
    NodeTerm,
    NotObserved,
    PersistentVolume,
    Pod,
    Requirement,
    Severity,
    observed_of,
)
from rbdagent.parse.handle import in_use_name
from rbdagent.parse.selector import selects

if TYPE_CHECKING:
    from collections.abc import Iterator

_CLAIM: Final = re.compile(
    r'persistentvolumeclaim "(?P<name>[\w.-]+)" (?P<why>not found|is being deleted|bound to .+)'
)
_NO_CLAIM: Final = "not found"
_CLAIMS_UNBOUND: Final = "unbound immediate PersistentVolumeClaims"
_NO_VOLUME: Final = "pvc(s) bound to non-existent pv(s)"
_AFFINITY: Final = (
    "didn't match PersistentVolume's node affinity",
    "volume node affinity conflict",
    "had no available volume zone",
)
_LIMIT: Final = "exceed max volume count"
_NO_DRIVER: Final = re.compile(r"(?P<driver>\S+) CSI driver is not installed on the node")
_OF_VOLUMES: Final = re.compile(
    r"volume|pvc|disk|(?<!ephemeral-)storage|not owner|CSI driver", re.IGNORECASE
)
"""What a text that speaks of volumes has in it; other rules know more of it than its words."""
_ZONES: Final = (
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
)
"""Labels of a PV that tie it to nodes with the same (volumezone); __ joins several zones."""


def without_node(case: Case) -> Iterator[Finding]:
    """RBD701, RBD702, RBD703, RBD706: what keeps a pod from getting a node."""
    for pod in case.use.waiting_pods:
        why = pod.unschedulable
        if pod.node_name is not None or not why or not has_waited(pod, case.snapshot, MOVING):
            continue
        said = [
            *_claims_not_ready(pod, case),
            *(_tied(pod, case) if any(each in why for each in _AFFINITY) else ()),
            *((_limit(pod, case),) if _LIMIT in why else ()),
            *_without_driver(pod, case),
        ]
        if not said and not _OF_VOLUMES.search(why):
            said = [_of_other_reasons(pod)]
        yield from said


_LIMITS: Final = (
    "custom-columns=NODE:.metadata.name,DRIVERS:.spec.drivers[*].name,"
    "LIMITS:.spec.drivers[*].allocatable.count"
)


def _describe(pod: Pod) -> Command:
    return kubectl("describe pod", pod.ref.name, namespace=pod.ref.namespace)


def _scheduler_says(pod: Pod) -> str:
    return f"the scheduler: {pod.unschedulable}"


def _claims_not_ready(pod: Pod, case: Case) -> Iterator[Finding]:
    kube = case.snapshot.kubernetes
    own = {
        each.ref.name: each
        for each in (() if kube is None else observed_of(kube.claims))
        if each.ref.namespace == pod.ref.namespace and each.ref.name in pod.claims
    }
    named = {each["name"]: each["why"] for each in _CLAIM.finditer(pod.unschedulable)}
    if _CLAIMS_UNBOUND in pod.unschedulable or _NO_VOLUME in pod.unschedulable:
        unbound = {name: each.phase for name, each in own.items() if each.phase != "Bound"}
        # Those that were not seen may be the ones.
        unseen = {name: "" for name in pod.claims if name not in own} if not unbound else {}
        named |= {name: f"is {phase or 'not bound'}" for name, phase in (unbound | unseen).items()}
    for name, why in named.items():
        claim = f"{pod.ref.namespace}/{name}"
        mine = case.use.claim is not None and str(case.use.claim.ref) == claim
        yield finding(
            "RBD701",
            f"pod {pod.ref}",
            f"{pod.ref} gets no node: its claim {claim} {_in_a_sentence(why)}.",
            evidence=(_scheduler_says(pod),),
            commands=(kubectl("get pvc", namespace=pod.ref.namespace),)
            if why == _NO_CLAIM
            else (command("rbdagent diagnose", f"pvc/{claim}"),),
            # What keeps the claim that this answer is about, is said of the claim itself.
            severity=Severity.INFO if mine else None,
        )


def _in_a_sentence(why: str) -> str:
    if why == _NO_CLAIM:
        return "does not exist"
    return why if why.startswith("is ") else f"is {why}"


def _tied(pod: Pod, case: Case) -> Iterator[Finding]:
    """RBD702, of each PV that is bound to certain nodes."""
    kube = case.snapshot.kubernetes
    for volume in volumes_of_use(case.use):
        if not _ties(volume) or kube is None:
            continue
        terms = " or ".join(_spoken(each) for each in _ties(volume))
        nodes = _nodes_for(volume, kube)
        if nodes is None:
            where, severity = "", None
        elif not nodes:
            where, severity = " No node has these labels.", None
        else:
            # The scheduler refuses those for other reasons; the volume narrows the choice.
            named = ", ".join(nodes[:5])
            where = (
                f" It may be used on {named}, and the scheduler refuses these for other reasons."
            )
            severity = Severity.WARNING
        yield finding(
            "RBD702",
            f"pod {pod.ref}",
            f"{pod.ref} gets no node: {volume.name} may be used only where {terms}.{where}",
            evidence=(_scheduler_says(pod), f"{volume.name}: {terms}"),
            commands=(kubectl("get nodes --show-labels"), _describe(pod)),
            severity=severity,
        )


def _spoken(term: NodeTerm) -> str:
    return " and ".join(str(each) for each in term)


def _nodes_for(volume: PersistentVolume, kube: KubeView) -> tuple[str, ...] | None:
    """Give the nodes that a PV may be used on; None where not all nodes were observed."""
    if isinstance(kube.nodes, NotObserved) or not kube.nodes_complete:
        return None
    return tuple(sorted(each.name for each in kube.nodes if fits(volume, each)))


def _ties(volume: PersistentVolume) -> tuple[NodeTerm, ...]:
    """Give what a node must have for a PV: its affinity, else its labels of zone and region."""
    if volume.node_affinity:
        return volume.node_affinity
    zones = tuple(
        Requirement(key=key, operator="In", values=tuple(value.split("__")))
        for key, value in volume.labels
        if key in _ZONES
    )
    return (zones,) if zones else ()


def fits(volume: PersistentVolume, node: Node) -> bool:
    """Tell whether a PV may be used on a node: one of its terms must hold, and all of that."""
    terms = _ties(volume)
    labels = {**dict(node.labels), "metadata.name": node.name}
    return not terms or any(term and selects(term, labels) for term in terms)


def _limit(pod: Pod, case: Case) -> Finding:
    """RBD703: the scheduler names no driver, and the pod may have volumes of several."""
    driver = driver_of(case.use)
    mine = driver if driver is not None and _is_limit_of(driver, pod, case) else None
    full = _counts(mine, case) if mine is not None else ()
    of_whom = f"{mine} as it allows" if mine is not None else "a CSI driver as that allows"
    doubt = "" if mine is not None or driver is None else _another_volume(driver)
    return finding(
        "RBD703",
        f"pod {pod.ref}",
        f"{pod.ref} gets no node: nodes that could run it have as many volumes of {of_whom}"
        f"{f' ({full[0]})' if full else ''}.{doubt}",
        evidence=(_scheduler_says(pod), *full[1:]),
        commands=(
            kubectl("get csinodes -o", _LIMITS),
            kubectl("get volumeattachments -o wide"),
        ),
    )


def _another_volume(driver: str) -> str:
    return f" No node is known to limit {driver}: it may be another volume of the pod."


def _is_limit_of(driver: str, pod: Pod, case: Case) -> bool:
    """Tell whether a limit can be that of the driver: it has one, or the pod has no other."""
    kube = case.snapshot.kubernetes
    if kube is None:
        return True
    limited = {name for each in observed_of(kube.csi_nodes) for name, _ in each.limits}
    return driver in limited or _only_of(driver, pod, kube)


def _only_of(driver: str, pod: Pod, kube: KubeView) -> bool:
    """Tell whether every claim of a pod was seen, and has a PV of that driver."""
    names = {
        each.ref.name: each.volume_name
        for each in observed_of(kube.claims)
        if each.ref.namespace == pod.ref.namespace
    }
    volumes = {each.name: each.source for each in observed_of(kube.persistent_volumes)}
    sources = [volumes.get(names.get(each) or "") for each in pod.claims]
    return all(isinstance(each, CsiSource) and each.driver == driver for each in sources)


def _counts(driver: str, case: Case) -> tuple[str, ...]:
    """Count what each node has of the driver against its limit, the fullest first."""
    kube = case.snapshot.kubernetes
    if kube is None:
        return ()
    of_driver = in_use_name(driver, "")
    counts = {
        each.name: sum(name.startswith(of_driver) for name in each.volumes_attached)
        for each in observed_of(kube.nodes)
    }
    limits = {
        each.node_name: limit
        for each in observed_of(kube.csi_nodes)
        for name, limit in each.limits
        if name == driver and each.node_name in counts
    }
    full = sorted(((counts[node], node) for node in limits), reverse=True)
    return tuple(f"{node}: {count} of {limits[node]}" for count, node in full[:5])


def _without_driver(pod: Pod, case: Case) -> Iterator[Finding]:
    """RBD731, of the volume's own driver: the text names the one that is not installed."""
    own = driver_of(case.use)
    named = {each["driver"] for each in _NO_DRIVER.finditer(pod.unschedulable)}
    for driver in sorted(named if case.use.persistent_volume is None else named & {own}):
        yield finding(
            "RBD731",
            f"pod {pod.ref}",
            f"{pod.ref} gets no node: on nodes that could run it the CSI driver {driver} is not "
            "registered.",
            evidence=(_scheduler_says(pod),),
            commands=(kubectl("get csinodes"),),
        )


def _of_other_reasons(pod: Pod) -> Finding:
    return finding(
        "RBD706",
        f"pod {pod.ref}",
        f"{pod.ref} gets no node, and not because of its volumes: {pod.unschedulable}",
        evidence=(_scheduler_says(pod),),
        commands=(_describe(pod),),
    )


def name_taken(case: Case) -> Iterator[Finding]:
    """RBD705: a generic ephemeral volume whose claim's name is another's."""
    told = {each.pod: each for each in words(case) if _NOT_OWNER.search(each.text)}
    for pod in case.use.waiting_pods:
        word = told.get(pod)
        match = _NOT_OWNER.search(word.text if word is not None else pod.unschedulable)
        if match is None:
            continue
        name = match["claim"]
        claim = _claim_named(name, case)
        leaving = claim is not None and claim.deleting_since is not None
        passing = _may_be_collected(claim, pod, case)
        yield finding(
            "RBD705",
            f"pod {pod.ref}",
            f"{pod.ref} gets no volume of its own: claim {name} has the name of its ephemeral "
            f"volume, and was not made for it.{_LEAVING if leaving else ''}",
            evidence=evidence_of_word(word, case) if word is not None else (_scheduler_says(pod),),
            remedy="Ask for that claim: what keeps it is said there." if leaving else "",
            commands=(
                command("rbdagent diagnose", f"pvc/{name}") if leaving else _show_claim(name),
            ),
            severity=Severity.INFO if passing else None,
            heals=_ONCE_FREE if leaving else _IF_COLLECTED if passing else None,
        )


def _show_claim(claim: str) -> Command:
    namespace, _, name = claim.partition("/")
    return kubectl("get pvc", name, namespace=namespace, options=("-o", "yaml"))


def _claim_named(name: str, case: Case) -> Claim | None:
    kube = case.snapshot.kubernetes
    known = () if kube is None else observed_of(kube.claims)
    return next((each for each in known if str(each.ref) == name), None)


def _may_be_collected(claim: Claim | None, pod: Pod, case: Case) -> bool:
    """Tell whether the claim may be that of the pod before, which is still being collected.

    So it is whenever a StatefulSet makes its pod again: the garbage collector deletes the claim
    once its pod is gone, and the new pod may be there first.
    """
    now = case.snapshot.observed_at
    if claim is None:
        return not has_waited(pod, case.snapshot, LONG)
    if claim.deleting_since is None:
        return not has_waited(pod, case.snapshot, MOVING)
    return is_young(claim.deleting_since, now, LONG) is not False


_LEAVING: Final = " It is being deleted."
_IF_COLLECTED: Final = Heals(
    by="the garbage collector and the ephemeral-volume controller",
    note="if the claim is that of the pod before",
)
_ONCE_FREE: Final = Heals(by="the ephemeral-volume controller", once="that claim is gone")
_NOT_OWNER: Final = re.compile(
    r"PVC (?P<claim>[\w.-]+/[\w.-]+) was not created for pod .*pod is not owner"
)
