"""RBD701 to RBD703, RBD705, RBD706: why a pod gets no node, or may not use its volume there.

From the scheduler's message, the objects, and the errors of kubelet and external-attacher.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rbdagent.codes import Code
from rbdagent.commands import command, kubectl, template
from rbdagent.correlate.index import by_each, kube_index, once
from rbdagent.model import (
    Command,
    CsiSource,
    Finding,
    KubeView,
    LifecycleStep,
    Node,
    NodeTerm,
    PersistentVolume,
    PersistentVolumeClaim,
    Pod,
    Recovery,
    Requirement,
    Severity,
    Subject,
    Verb,
    Words,
    observed_of,
    stated,
)
from rbdagent.parse.foreign import foreign
from rbdagent.parse.handle import in_use_name
from rbdagent.parse.recognised import Recognised
from rbdagent.parse.selector import selects
from rbdagent.rules.context import SCHEDULER, Rule, RuleContext, finding
from rbdagent.rules.entry import Entry
from rbdagent.rules.error_texts import (
    CSI_NODE,
    ErrorText,
    attach_errors,
    attach_finding,
    event_finding,
    events_by_code,
    field_of_volume,
    meaning_of,
)
from rbdagent.rules.pod_events import (
    PodEvent,
    decisive_pod_events,
    has_waited,
    pod_event_evidence,
    scheduler_message,
    unscheduled,
)
from rbdagent.verdicts.timing import LONG, MOVING, RETRY_S, is_young
from rbdagent.verdicts.volume_verdict import driver_of, pvs_of

if TYPE_CHECKING:
    from collections.abc import Iterator

ENTRIES: Final = (
    Entry(
        Code.POD_CLAIM_NOT_READY,
        Severity.ERROR,
        "A claim that the pod names is not bound, is being deleted, or does not exist.",
        remedy=(
            "Run `",
            Verb("diagnose"),
            "` for that claim: it reports why the claim is not ready.",
        ),
        recovery=Recovery(
            actor="the scheduler and kubelet", condition="the claim is bound", within_s=RETRY_S
        ),
        step=LifecycleStep.SCHEDULE,
    ),
    Entry(
        Code.VOLUME_TIED_TO_OTHER_NODES,
        Severity.ERROR,
        "The volume may be used on certain nodes only, and the pod can run on none of them.",
        remedy="Restore the labels on a node, or let the pod run on the nodes that have them. "
        "The affinity of a PV cannot be changed: to remove it, set the PV to Retain and create "
        "the PV again without it.",
        recovery=Recovery(actor=SCHEDULER, condition="a node with these labels can take the pod"),
        step=LifecycleStep.SCHEDULE,
    ),
    Entry(
        Code.VOLUME_LIMIT_REACHED,
        Severity.ERROR,
        "Every node that could run the pod has as many volumes as its driver allows.",
        remedy="Look for attachments that no pod needs, add a node, or raise the driver's limit.",
        recovery=Recovery(
            actor=SCHEDULER, condition="a volume was detached from one of these nodes"
        ),
        step=LifecycleStep.SCHEDULE,
    ),
    Entry(
        Code.EPHEMERAL_CLAIM_NAME_TAKEN,
        Severity.ERROR,
        "The pod's ephemeral volume gets no claim: another claim already has its name.",
        remedy="Rename the pod or its volume. Or, if nothing needs that claim: set its PV to "
        "Retain, and delete the claim.",
        recovery=Recovery(note="a claim cannot be renamed"),
        step=LifecycleStep.PROVISION,
    ),
    Entry(
        Code.NOT_SCHEDULED_FOR_OTHER_REASONS,
        Severity.INFO,
        "The scheduler finds no node for the pod, and its message does not name a volume.",
        remedy="Read the scheduler's message for the pod. Its volumes are not the cause.",
        recovery=None,
        step=LifecycleStep.SCHEDULE,
    ),
)

ERROR_TEXTS: Final = (
    ErrorText(
        (Recognised.CLAIM_OF_POD,),
        Code.POD_CLAIM_NOT_READY,
        "its claim {claim} is not ready: {why}",
        (template("rbdagent diagnose", "pvc/{claim}"),),
    ),
    ErrorText(
        (Recognised.NODE_AFFINITY,),
        Code.VOLUME_TIED_TO_OTHER_NODES,
        "the PV's node affinity does not allow {volume} on that node",
        (field_of_volume("nodeAffinity"),
         template("kubectl get node", "{node}", options=("--show-labels",))),
    ),
    ErrorText(
        (Recognised.EXHAUSTED,),
        Code.VOLUME_LIMIT_REACHED,
        "the node accepts no more volumes of {driver}: {why}",
        (CSI_NODE,),
    ),
)  # fmt: skip
"""Errors of pods that have a node. In this order; the first that matches applies."""

_NO_CLAIM: Final = "not found"
_CREATE_CLAIM: Final = "Create the claim, or correct its name in the YAML that makes the pod."
_ZONES: Final = (
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
)
"""PV labels that limit a PV to nodes with the same labels; __ joins zones (topologyLabels in
pkg/scheduler/framework/plugins/volumezone/volume_zone.go@v1.36.3)."""


def without_node(context: RuleContext) -> Iterator[Finding]:
    """Report RBD701, RBD702, RBD703, RBD706: what keeps a pod from getting a node."""
    for pod in unscheduled(context):
        why = pod.unschedulable
        findings = [
            *_claims_not_ready(pod, context),
            *(_tied(pod, context) if Recognised.AFFINITY.is_in(why) else ()),
            *((_limit(pod, context),) if Recognised.LIMIT.is_in(why) else ()),
        ]
        if not findings and not Recognised.OF_VOLUMES.is_in(why):
            findings = [_of_other_reasons(pod)]
        yield from findings


_LIMITS: Final = (
    "custom-columns=NODE:.metadata.name,DRIVERS:.spec.drivers[*].name,"
    "LIMITS:.spec.drivers[*].allocatable.count"
)


def _describe(pod: Pod) -> Command:
    return kubectl("describe pod", pod.ref.name, namespace=pod.ref.namespace)


def _claims_not_ready(pod: Pod, context: RuleContext) -> Iterator[Finding]:
    own = {
        name: claim
        for name in sorted(pod.claims)
        if (claim := context.kube.claim_by_key.get((pod.ref.namespace, name))) is not None
    }
    why_not = Recognised.CLAIM_NOT_READY.all_in(pod.unschedulable)
    named = {match["name"]: match["why"] for match in why_not}
    if Recognised.CLAIMS_UNBOUND.is_in(pod.unschedulable) or Recognised.NO_VOLUME.is_in(
        pod.unschedulable
    ):
        unbound = {name: claim.phase for name, claim in own.items() if claim.phase != "Bound"}
        # A claim that was not observed may be the unbound one.
        unseen = {name: "" for name in pod.claims if name not in own} if not unbound else {}
        named |= {name: f"is {phase or 'not bound'}" for name, phase in (unbound | unseen).items()}
    for name, why in named.items():
        full_name = f"{pod.ref.namespace}/{name}"
        mine = context.volume.claim is not None and str(context.volume.claim.ref) == full_name
        yield finding(
            Code.POD_CLAIM_NOT_READY,
            Subject.of_pod(pod.ref),
            stated(
                "{pod} gets no node: its claim {claim} {state}.",
                pod=pod.ref,
                claim=full_name,
                state=_in_a_sentence(why),
            ),
            evidence=(scheduler_message(pod),),
            remedy=_how_to_create(pod, name) if why == _NO_CLAIM else "",
            commands=(kubectl("get pvc", namespace=pod.ref.namespace),)
            if why == _NO_CLAIM
            else (command("rbdagent diagnose", f"pvc/{full_name}"),),
            # The findings about the target's own claim report why it is not ready.
            severity=Severity.INFO if mine else None,
        )


def _how_to_create(pod: Pod, claim: str) -> str:
    """Return how a claim that does not exist is made: a StatefulSet makes those of its templates.

    Their names end with that of the pod (getPersistentVolumeClaimName in
    pkg/controller/statefulset/stateful_set_utils.go).
    """
    owner = next((owner for owner in pod.owners if owner.startswith("StatefulSet/")), "")
    if not owner or not claim.endswith(f"-{pod.ref.name}"):
        return _CREATE_CLAIM
    return (
        f"Delete the pod: {owner} then creates the claim again, with a new and empty volume. What "
        "the former volume had is not in it: to keep that, create the claim by hand with the name "
        "of the former PV (volumeName), if the PV still exists."
    )


def _in_a_sentence(why: str) -> str:
    if why == _NO_CLAIM:
        return "does not exist"
    return why if why.startswith("is ") else f"is {why}"


def _tied(pod: Pod, context: RuleContext) -> Iterator[Finding]:
    """Report RBD702: one finding per PV that is limited to certain nodes."""
    kube = context.snapshot.kubernetes
    for volume in pvs_of(context.volume):
        if not ties_of(volume) or kube is None:
            continue
        terms = " or ".join(term_text(term) for term in ties_of(volume))
        nodes = _nodes_for(volume, kube)
        if nodes is None:
            where, severity = stated(""), None
        elif not nodes:
            where, severity = stated(" No node has these labels."), None
        else:
            # The scheduler rejects these nodes for other reasons; the volume limits the choice.
            where = stated(
                " It may be used on {nodes}, and the scheduler rejects these for other reasons.",
                nodes=nodes[:5],
            )
            severity = Severity.WARNING
        yield finding(
            Code.VOLUME_TIED_TO_OTHER_NODES,
            Subject.of_pod(pod.ref),
            stated(
                "{pod} gets no node: {volume} may be used only where {terms}.{}",
                where,
                pod=pod.ref,
                volume=volume.name,
                terms=terms,
            ),
            evidence=(scheduler_message(pod), f"{volume.name}: {terms}"),
            commands=(kubectl("get nodes --show-labels"), _describe(pod)),
            severity=severity,
        )


def term_text(term: NodeTerm) -> str:
    """Return a node term as a text."""
    return " and ".join(str(requirement) for requirement in term)


def _nodes_for(volume: PersistentVolume, kube: KubeView) -> tuple[str, ...] | None:
    """Return the nodes that a PV may be used on; None if not all nodes were observed."""
    if not kube_index(kube).coverage.nodes():
        return None
    return tuple(sorted(node.name for node in kube_index(kube).nodes if fits(volume, node)))


def ties_of(volume: PersistentVolume) -> tuple[NodeTerm, ...]:
    """Return the node terms of a PV: its affinity, else its labels of zone and region."""
    if volume.node_affinity:
        return volume.node_affinity
    zones = tuple(
        Requirement(key=key, operator="In", values=tuple(value.split("__")))
        for key, value in volume.labels
        if key in _ZONES
    )
    return (zones,) if zones else ()


def fits(volume: PersistentVolume, node: Node) -> bool:
    """Return whether a PV may be used on a node: all requirements of one term must match."""
    terms = ties_of(volume)
    labels = {**dict(node.labels), "metadata.name": node.name}
    return not terms or any(term and selects(term, labels) for term in terms)


def _limit(pod: Pod, context: RuleContext) -> Finding:
    """Report RBD703: the scheduler names no driver; the pod may use volumes of several drivers."""
    driver = driver_of(context.volume)
    mine = driver if driver is not None and _is_limit_of(driver, pod, context) else None
    full = _counts(mine, context) if mine is not None else ()
    of_driver = stated("{driver}", driver=mine) if mine is not None else "a CSI driver"
    doubt = "" if mine is not None or driver is None else _another_volume(driver)
    return finding(
        Code.VOLUME_LIMIT_REACHED,
        Subject.of_pod(pod.ref),
        stated(
            "{pod} gets no node: nodes that could run it are at the volume limit of {}{}.{}",
            of_driver,
            stated(" ({count})", count=full[0]) if full else "",
            doubt,
            pod=pod.ref,
        ),
        evidence=(scheduler_message(pod), *full[1:]),
        commands=(
            kubectl("get csinodes -o", _LIMITS),
            kubectl("get volumeattachments -o wide"),
        ),
    )


def _another_volume(driver: str) -> Words:
    return stated(
        " No node is known to limit {driver}: another volume of the pod may be the cause.",
        driver=driver,
    )


def _is_limit_of(driver: str, pod: Pod, context: RuleContext) -> bool:
    """Return whether the limit can be the driver's: it has one, or the pod uses no other driver."""
    kube = context.snapshot.kubernetes
    if kube is None:
        return True
    return driver in once(kube, _limited_drivers) or _only_of(driver, pod, context)


def _limited_drivers(kube: KubeView) -> frozenset[str]:
    nodes = observed_of(kube.csi_nodes)
    return frozenset(name for csi_node in nodes for name, _ in csi_node.limits)


def _only_of(driver: str, pod: Pod, context: RuleContext) -> bool:
    """Return whether every claim of a pod was observed and has a PV of that driver."""
    for name in pod.claims:
        claim = context.kube.claim_by_key.get((pod.ref.namespace, name))
        volume = context.kube.volume_by_name.get("" if claim is None else claim.volume_name or "")
        source = None if volume is None else volume.source
        if not isinstance(source, CsiSource) or source.driver != driver:
            return False
    return True


def _counts(driver: str, context: RuleContext) -> tuple[str, ...]:
    """Return the volumes of the driver and the limit per node, the fullest node first."""
    kube = context.snapshot.kubernetes
    if kube is None:
        return ()
    full = sorted(once(kube, _fill_levels).get(driver, ()), reverse=True)
    return tuple(f"{node}: {count} of {limit}" for count, node, limit in full[:5])


def _fill_levels(kube: KubeView) -> dict[str, list[tuple[int, str, int]]]:
    """Return by driver the number of its volumes on each node that limits them, and the limit."""
    nodes = {node.name: node for node in observed_of(kube.nodes)}
    return by_each(
        (driver, (_attached(driver, node), node.name, limit))
        for csi_node in observed_of(kube.csi_nodes)
        if (node := nodes.get(csi_node.node_name)) is not None
        for driver, limit in csi_node.limits
    )


def _attached(driver: str, node: Node) -> int:
    of_driver = in_use_name(driver, "")
    return sum(name.startswith(of_driver) for name in node.volumes_attached)


def _of_other_reasons(pod: Pod) -> Finding:
    return finding(
        Code.NOT_SCHEDULED_FOR_OTHER_REASONS,
        Subject.of_pod(pod.ref),
        stated(
            "{pod} gets no node, and not because of its volumes: {reason}",
            pod=pod.ref,
            reason=foreign(pod.unschedulable),
        ),
        evidence=(scheduler_message(pod),),
        commands=(_describe(pod),),
    )


def refused_on_node(context: RuleContext) -> Iterator[Finding]:
    """Report RBD701, RBD702, RBD703: what kubelet's event on a pod that has a node means."""
    for code, pod_events in events_by_code(ERROR_TEXTS, context).items():
        # The rules of binding report why the target's own claim has no volume.
        left = [
            pod_event for pod_event in pod_events if not _is_own_and_not_bound(pod_event, context)
        ]
        if left:
            # The findings of the claim that is the target report what that claim waits for.
            is_minor = _names_own_claim(left[0].text, context)
            severity = Severity.INFO if is_minor else None
            yield event_finding(code, left, context, severity=severity)


def _names_own_claim(text: str, context: RuleContext) -> bool:
    meant, claim = meaning_of(text), context.volume.claim
    return meant is not None and claim is not None and meant[1].get("claim") == str(claim.ref)


def _is_own_and_not_bound(pod_event: PodEvent, context: RuleContext) -> bool:
    """Return whether an event is about the target's own claim, and that claim lacks its volume."""
    claim = context.volume.claim
    is_not_bound = claim is not None and claim.phase in {"Pending", "Lost"}
    return is_not_bound and _names_own_claim(pod_event.text, context)


def refused_by_attacher(context: RuleContext) -> Iterator[Finding]:
    """Report RBD703 from the attachError of a VolumeAttachment."""
    for code, attachment in attach_errors(ERROR_TEXTS, context):
        yield attach_finding(code, attachment, context)


def name_taken(context: RuleContext) -> Iterator[Finding]:
    """Report RBD705: a generic ephemeral volume whose claim name is already in use."""
    not_owned = {
        pod_event.pod: pod_event
        for pod_event in decisive_pod_events(context)
        if Recognised.NOT_OWNER.is_in(pod_event.text)
    }
    for pod in context.volume.waiting_pods:
        pod_event = not_owned.get(pod)
        match = Recognised.NOT_OWNER.search(
            pod_event.text if pod_event is not None else pod.unschedulable
        )
        if match is None:
            continue
        name = match["claim"]
        claim = _claim_named(name, context)
        leaving = claim is not None and claim.deleting_since is not None
        transient = _may_be_collected(claim, pod, context)
        yield finding(
            Code.EPHEMERAL_CLAIM_NAME_TAKEN,
            Subject.of_pod(pod.ref),
            stated(
                "{pod} gets no ephemeral volume: claim {claim} has the name of the volume's "
                "claim, but was not created for this pod.{}",
                _LEAVING if leaving else "",
                pod=pod.ref,
                claim=name,
            ),
            evidence=pod_event_evidence(pod_event, context)
            if pod_event is not None
            else (scheduler_message(pod),),
            remedy=("Run `", Verb("diagnose"), "` for that claim: it reports what keeps the claim.")
            if leaving
            else "",
            commands=(
                command("rbdagent diagnose", f"pvc/{name}") if leaving else _show_claim(name),
            ),
            severity=Severity.INFO if transient else None,
            recovery=_ONCE_FREE if leaving else _IF_COLLECTED if transient else None,
        )


def _show_claim(claim: str) -> Command:
    namespace, _, name = claim.partition("/")
    return kubectl("get pvc", name, namespace=namespace, options=("-o", "yaml"))


def _claim_named(name: str, context: RuleContext) -> PersistentVolumeClaim | None:
    namespace, _, name = name.partition("/")
    return context.kube.claim_by_key.get((namespace, name))


def _may_be_collected(claim: PersistentVolumeClaim | None, pod: Pod, context: RuleContext) -> bool:
    """Return whether the claim may belong to the previous pod and is still being collected.

    This happens when a StatefulSet creates its pod again: the garbage collector deletes the claim
    after its pod is gone, and the new pod may exist before that.
    """
    now = context.snapshot.observed_at
    if claim is None:
        return not has_waited(pod, context.snapshot, LONG)
    if claim.deleting_since is None:
        return not has_waited(pod, context.snapshot, MOVING)
    return is_young(claim.deleting_since, now, LONG) is not False


_LEAVING: Final = " It is being deleted."
_IF_COLLECTED: Final = Recovery(
    actor="the garbage collector and the ephemeral-volume controller",
    note="if the claim belongs to the previous pod",
)
_ONCE_FREE: Final = Recovery(
    actor="the ephemeral-volume controller", condition="that claim is gone"
)


RULES: Final = (
    Rule(380, name_taken),
    Rule(390, without_node),
    Rule(463, refused_by_attacher),
    Rule(494, refused_on_node),
)
