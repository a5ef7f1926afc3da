"""RBD401, RBD408 to RBD410, RBD413, RBD71x: attach and detach, from the API objects.

Source: pkg/controller/volume/attachdetach/reconciler/reconciler.go of Kubernetes 1.36, and
pkg/controller/csi_handler.go of external-attacher 4.9. Events show little of it: the controller
sends Multi-Attach once for each node, and events expire after an hour. A detach that fails sends no
event.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

from rbdagent.codes import Code
from rbdagent.commands import command, kubectl, over_ssh, template
from rbdagent.correlate.holders import needs_volumes
from rbdagent.correlate.volume_names import names_of_volume, node_named
from rbdagent.model import (
    CollectScope,
    Command,
    CsiSource,
    Finding,
    LifecycleStep,
    Node,
    NotObserved,
    Pod,
    Recovery,
    Severity,
    Statement,
    Subject,
    Verdict,
    VolumeAttachment,
    joined,
    observed_of,
    stated,
)
from rbdagent.parse.foreign import foreign
from rbdagent.parse.recognised import Recognised
from rbdagent.rules.beside import beside
from rbdagent.rules.context import (
    ATTACHER,
    CONTROLLER,
    LIST_CONTROLLERS,
    Rule,
    RuleContext,
    finding,
    query_again,
    query_on_node,
    quoted,
)
from rbdagent.rules.csi_driver import is_not_installed
from rbdagent.rules.driver_workloads import (
    Outage,
    controller_outage,
    names_no_controller,
    not_observed_lines,
    outage_finding,
)
from rbdagent.rules.entry import Entry
from rbdagent.rules.error_texts import (
    ErrorText,
    attach_errors,
    attach_finding,
    code_of,
    describe_attachment,
    event_finding,
    events_by_code,
    failed_attachments,
    unrecognised_events,
)
from rbdagent.rules.image_in_use import clear_first
from rbdagent.rules.pod_events import (
    PodEvent,
    decisive_pod_events,
    has_any_waited,
    has_waited,
    is_ending_in_time,
    knows_every_user,
    users_on,
    waited,
    waiters,
    waiters_elsewhere,
)
from rbdagent.verdicts.timing import LONG, MOVING, RETRY_S, age, age_text, is_young, seconds
from rbdagent.verdicts.volume_verdict import is_exclusive, nodes_of_stale_attachments, pvs_of

if TYPE_CHECKING:
    from collections.abc import Iterator

ENTRIES: Final = (
    # The text of the event: kubernetes#138837; its backports are #139146 (1.36) and #140283 (1.35).
    Entry(
        Code.MULTI_ATTACH,
        Severity.ERROR,
        "The attach/detach controller will not attach the volume: its cached state still lists it "
        "on another node.",
        remedy="See the findings about the holder. Once the holder has released the volume, the "
        "controller attaches it automatically after kubelet's next retry (at most 2m2s later).",
        recovery=Recovery(
            actor="the attach/detach controller",
            condition="the other node has released the volume",
            within_s=RETRY_S,
        ),
        step=LifecycleStep.ATTACH,
    ),
    Entry(
        Code.STALE_ATTACHMENT,
        Severity.ERROR,
        "The control plane reports the volume as attached, but the node does not hold it.",
        remedy="If no pod on that node needs the volume, restart kube-controller-manager: it then "
        "rebuilds its cached state. Never remove the attachment's finalizer by hand.",
        recovery=Recovery(note="the controller does not check again"),
        step=LifecycleStep.DETACH,
    ),
    Entry(
        Code.DETACH_FAILS,
        Severity.ERROR,
        "The VolumeAttachment is being deleted, and its detach fails.",
        remedy="Repair what the error names. Never remove the finalizer.",
        recovery=Recovery(
            actor=ATTACHER, condition="what the error names is repaired", within_s=300
        ),
        step=LifecycleStep.DETACH,
    ),
    Entry(
        Code.ATTACHMENT_OF_GONE_NODE,
        Severity.WARNING,
        "A VolumeAttachment names a node that does not exist.",
        remedy="Prove that the machine is off. The controller then cleans up.",
        recovery=Recovery(
            actor="the attach/detach controller",
            within_s=440,
            note="80 s until the node's pods are removed, and six minutes from then, or from the "
            "start of kube-controller-manager",
        ),
        step=LifecycleStep.DETACH,
    ),
    Entry(
        Code.ATTACH_FAILS,
        Severity.ERROR,
        "The volume cannot be attached.",
        remedy="Repair what the error names.",
        recovery=Recovery(
            actor="external-attacher and the attach/detach controller",
            condition="what the error names is repaired",
            within_s=422,
        ),
        step=LifecycleStep.ATTACH,
    ),
    Entry(
        Code.ATTACH_NOT_BEGUN,
        Severity.ERROR,
        "The pod has a node, but no VolumeAttachment of its volume to that node exists.",
        remedy="Check that kube-controller-manager is running and is the leader. If it is, restart "
        "it: it then rebuilds its cached state.",
        recovery=Recovery(actor=CONTROLLER, condition="it is running"),
        step=LifecycleStep.ATTACH,
    ),
    Entry(
        Code.ATTACH_NOT_PICKED_UP,
        Severity.ERROR,
        "The VolumeAttachment exists, but external-attacher does not respond to it.",
        remedy="Read the log of the container csi-attacher, if a pod runs that has it: `forbidden` "
        "means that its ClusterRole lacks volumeattachments/status. Apply the RBAC manifests of "
        "the installed version then. If none runs, restore it.",
        recovery=Recovery(actor=ATTACHER, condition="it is running and may write the attachment"),
        step=LifecycleStep.ATTACH,
    ),
    Entry(
        Code.DETACH_NOT_PICKED_UP,
        Severity.ERROR,
        "The VolumeAttachment is being deleted, but its finalizer stays and no error is reported.",
        remedy="Restore the pods that have the container csi-attacher. Never remove the finalizer "
        "by hand: the mapping would stay on the node, and no component would know of it.",
        recovery=Recovery(actor=ATTACHER, condition="it is running"),
        step=LifecycleStep.DETACH,
    ),
    Entry(
        Code.BEING_DETACHED,
        Severity.INFO,
        "The volume is being detached.",
        remedy="Wait, then run the command again.",
        recovery=Recovery(actor=ATTACHER, within_s=120),
    ),
    Entry(
        Code.ATTACHMENT_IDLE,
        Severity.ERROR,
        "The volume is attached to a node that no longer needs it.",
        remedy="Check that node first: if the image is mapped there, the mapping must be removed. "
        "If it is not mapped, restart kube-controller-manager: it then rebuilds its cached state.",
        recovery=Recovery(
            actor=CONTROLLER,
            within_s=60,
            note="if its cached state is stale, only a restart of kube-controller-manager helps",
        ),
        step=LifecycleStep.DETACH,
    ),
    Entry(
        Code.ATTACHMENT_OF_GONE_VOLUME,
        Severity.WARNING,
        "A VolumeAttachment names a PV that does not exist.",
        remedy="Delete the VolumeAttachment once neither that node nor a watcher has the image. "
        "Check both before. A plain kubectl delete does what the controller would do.",
        recovery=Recovery(
            note="after its next restart, kube-controller-manager skips an attachment without a PV"
        ),
        step=LifecycleStep.DETACH,
    ),
    # Kubernetes counts an attachment as uncertain after a failed detach since kubernetes#120595.
    Entry(
        Code.TWO_ATTACHMENTS,
        Severity.WARNING,
        "A volume for one node is attached to two nodes: the controller does not prevent it.",
        # kubernetes#120595, with backports to 1.26, 1.27 and 1.28.
        remedy="Repair the detach from the node that no longer needs the volume. Until then, do "
        "nothing that removes a watch: no blocklist entry, no forced unmap.",
        recovery=Recovery(
            actor=ATTACHER, condition="the older attachment can be detached", within_s=300
        ),
        step=LifecycleStep.DETACH,
    ),
    Entry(
        Code.KUBELET_DOES_NOT_TAKE_IT,
        Severity.ERROR,
        "The volume is attached to the pod's node, but kubelet there does not start to mount it.",
        remedy="Check kubelet's log on that node, and whether kubelet reaches the API server. Do "
        "not restart kubelet while an unmount fails there: it would forget that volume.",
        recovery=Recovery(actor="kubelet", condition="it works again", within_s=10),
        step=LifecycleStep.STAGE,
    ),
)

ERROR_TEXTS: Final = (
    ErrorText(
        (Recognised.ATTACHER_SILENT,),
        Code.ATTACH_NOT_PICKED_UP,
        "external-attacher does not respond",
        (template("kubectl get deployments -A -o wide"),),
    ),
    ErrorText((Recognised.WAIT_FOR_ATTACH,), None),
)
"""In this order; the first that matches applies."""

_VERIFIED: Final = seconds(RETRY_S)
"""The controller checks every minute whether the volumes that its cached state lists as attached
have a VolumeAttachment. It retries a postponed operation at most 2m2s later."""
_DETACHING: Final = timedelta(minutes=2)
"""How long the controller itself waits for a detach (csiTimeout in
pkg/volume/csi/csi_plugin.go@v1.36.3)."""
_FORCED_S: Final = 360.0
"""How long a volume of an unhealthy node stays attached (ReconcilerMaxWaitForUnmountDuration in
pkg/controller/volume/attachdetach/attach_detach_controller.go@v1.36.3)."""
_CONTROLLER: Final = "the attach/detach controller"
_ONCE_PODS_ARE_GONE: Final = Recovery(
    actor=_CONTROLLER, condition="the node's pods are gone", within_s=_FORCED_S
)
_GONE_NODE_S: Final = 80.0
"""How long the pods of a deleted Node stay: podgc runs every 20 s, after 40 s of quarantine
(pkg/controller/podgc/gc_controller.go@v1.36.3)."""


def observed_attachments(context: RuleContext) -> tuple[VolumeAttachment, ...] | None:
    """Return the VolumeAttachments of the volume; None if not all of them were observed."""
    found = context.volume.attachments
    if isinstance(found, NotObserved) or not context.kube.coverage.attachments():
        return None
    return found


def attached_elsewhere(context: RuleContext, node: str | None) -> tuple[str, ...]:
    """Return the other nodes with the volume, from VolumeAttachments and Node status."""
    found = {attachment.node_name for attachment in observed_of(context.volume.attachments)}
    for name in names_of_volume(context.volume).in_use_names:
        found |= {other.name for other in context.kube.nodes_attaching.get(name, ())}
    return tuple(sorted(found - {node}))


# --------------------------------------------------------------------------------------------------
# Multi-Attach
# --------------------------------------------------------------------------------------------------


def multi_attach(context: RuleContext) -> Iterator[Finding]:
    """Report RBD401: the node that the controller waits for, and why the wait may not end."""
    latest = decisive_pod_events(context)
    by_pod = {pod_event.pod: pod_event for pod_event in latest}
    refused = [pod for pod in waiters(context) if _is_refused(pod, by_pod.get(pod), context)]
    events = [
        pod_event
        for pod_event in latest
        if Recognised.MULTI_ATTACH.is_in(pod_event.text)
        and (pod_event.pod is None or pod_event.pod in refused)
    ]
    if not refused and not events:
        return
    pods = [pod.ref for pod in refused] or [pod_event.event.subject for pod_event in events]
    nodes = attached_elsewhere(context, refused[0].node_name if refused else None)
    where = stated(" ({nodes})", nodes=nodes) if nodes else ""
    lost = [node for node in nodes if _is_down(node, context)]
    # A node that is Ready is waited for, however many others are not.
    down = lost if len(lost) == len(nodes) else []
    yield finding(
        Code.MULTI_ATTACH,
        Subject.of_pod(refused[0].ref if refused else events[0].event.subject),
        stated(
            "{pods} {}: the controller will not attach {volume} while its cached state lists the "
            "volume on another node{}. {}{}",
            "wait" if len(refused) > 1 else "waits",
            where,
            _NEVER_BY_FORCE if not down else _by_force(down),
            clear_first(context),
            pods=pods,
            volume=context.name,
        ),
        evidence=(
            *_event_lines(events, context),
            *(
                _attachment_line(attachment)
                for attachment in observed_of(context.volume.attachments)
            ),
        ),
        severity=Severity.INFO if not down and _may_end_soon(refused, nodes, context) else None,
        recovery=_ONCE_PODS_ARE_GONE if down else None,
    )


_NEVER_BY_FORCE: Final = (
    "The controller never checks Ceph, and never detaches a Ready node by force."
)


def _by_force(down: list[str]) -> Statement:
    return stated(
        "{nodes:and} {} not Ready: the controller detaches by force six minutes after the "
        "pods there are gone, whether the machine is off or not.",
        "are" if len(down) > 1 else "is",
        nodes=down,
    )


def _is_refused(pod: Pod, pod_event: PodEvent | None, context: RuleContext) -> bool:
    """Return whether the controller delays a pod until another node has released the volume."""
    attachments = context.volume.attachments
    if any(attachment.node_name == pod.node_name for attachment in observed_of(attachments)):
        # The controller has attached it since: the pod now waits for external-attacher or mount.
        return False
    has_event = pod_event is not None and Recognised.MULTI_ATTACH.is_in(pod_event.text)
    if attached_elsewhere(context, pod.node_name):
        return has_event or is_exclusive(context.volume)
    if pod_event is None or observed_attachments(context) is None:
        return has_event
    since = age(pod_event.event.last_seen, context.snapshot.observed_at)
    return has_event and since is not None and since <= _VERIFIED


def _event_lines(events: list[PodEvent], context: RuleContext) -> tuple[str, ...]:
    """Return the quoted event; the controller sends it once and never withdraws it."""
    kube = context.snapshot.kubernetes
    if kube is not None and isinstance(kube.events, NotObserved):
        return (f"events were not observed: {kube.events.reason}",)
    if not events:
        return (
            "no event shows it: the controller sends it once, and an event expires after an hour",
        )
    since = age(events[0].event.last_seen, context.snapshot.observed_at)
    old = since is not None and since > _VERIFIED
    return (
        *(quoted(pod_event.event) for pod_event in events),
        *((f"sent {age_text(since)} ago: the controller sends it once",) if old else ()),
    )


def _attachment_line(attachment: VolumeAttachment) -> str:
    state = "attached" if attachment.attached else "not attached"
    leaving = ", being deleted" if attachment.deleting_since else ""
    return f"VolumeAttachment {attachment.name}: {attachment.node_name}, {state}{leaving}"


def _may_end_soon(refused: list[Pod], nodes: tuple[str, ...], context: RuleContext) -> bool:
    """Return whether the other node may be about to release the volume, as in every pod move."""
    if refused and not has_any_waited(refused, context.snapshot, MOVING):
        return True
    # A pod that ends gracefully is Succeeded first; its object is removed after its volumes.
    holding = [pod for pod in context.volume.pods if pod.node_name in nodes and needs_volumes(pod)]
    return bool(holding) and all(is_ending_in_time(pod, context) for pod in holding)


# --------------------------------------------------------------------------------------------------
# Attaching
# --------------------------------------------------------------------------------------------------


def attach_waits(context: RuleContext) -> Iterator[Finding]:
    """Report RBD711, RBD712, RBD718: controller, external-attacher or kubelet does not act."""
    with_event = {pod_event.pod for pod_event in decisive_pod_events(context)}
    knows_events = context.kube.coverage.events
    by_node = {
        attachment.node_name: attachment for attachment in observed_of(context.volume.attachments)
    }
    for pod in waiters(context):
        own = by_node.get(str(pod.node_name))
        if own is None:
            yield from _not_begun(pod, context)
        elif own.deleting_since is None and not own.attached and not own.attach_error:
            yield from _not_picked_up(pod, own, context)
        elif own.deleting_since is None and own.attached and knows_events and pod not in with_event:
            yield from _not_mounting(pod, own, context)


def _not_begun(pod: Pod, context: RuleContext) -> Iterator[Finding]:
    volume = context.volume.persistent_volume
    if observed_attachments(context) is None or volume is None or volume.phase != "Bound":
        return
    if not has_waited(pod, context.snapshot, LONG) or not _is_attached_at_all(
        volume.source, context
    ):
        return
    if is_exclusive(context.volume) and attached_elsewhere(context, pod.node_name):
        return
    yield finding(
        Code.ATTACH_NOT_BEGUN,
        Subject.of_pod(pod.ref),
        stated(
            "{pod} has been on {node} for {age}, but no VolumeAttachment of {volume} to that node "
            "exists: the attach/detach controller is not running, or its cached state is stale.",
            pod=pod.ref,
            node=pod.node_name,
            age=age_text(waited(pod, context.snapshot)),
            volume=context.name,
        ),
        evidence=(
            f"no VolumeAttachment of {context.name} to {pod.node_name}",
            "the driver's other volumes are attached",
        ),
        commands=(
            kubectl("get lease kube-controller-manager -o yaml", namespace="kube-system"),
            kubectl(
                "get pods -o wide -l component=kube-controller-manager", namespace="kube-system"
            ),
        ),
    )


def _is_attached_at_all(source: object, context: RuleContext) -> bool:
    """Return whether the driver's volumes are attached: with attachRequired false, none is."""
    return isinstance(source, CsiSource) and context.kube.attaches(source.driver)


def _not_picked_up(
    pod: Pod, attachment: VolumeAttachment, context: RuleContext
) -> Iterator[Finding]:
    since = age(attachment.created_at, context.snapshot.observed_at)
    if since is None or since < MOVING or is_not_installed(attachment.attacher, context):
        # RBD732 reports a driver that was never installed.
        return
    outage = _attacher_outage(attachment, context)
    if outage is not None:
        yield outage_finding(
            Code.ATTACH_NOT_PICKED_UP,
            outage,
            stated("{volume} is not attached.", volume=context.name),
            waiting=(pod,),
            evidence=(_attachment_line(attachment), "no attachError"),
        )
        return
    yield finding(
        Code.ATTACH_NOT_PICKED_UP,
        Subject.of_attachment(attachment.name),
        stated(
            "{pod} waits for {volume} to be attached to {node}: the attach was requested {age} "
            "ago, and external-attacher of {attacher} {}",
            _what_attacher_did(attachment, context),
            pod=pod.ref,
            volume=context.name,
            node=pod.node_name,
            age=age_text(since),
            attacher=attachment.attacher,
        ),
        evidence=(
            _attachment_line(attachment),
            "no attachError",
            *not_observed_lines(context, of_nodes=False),
        ),
        commands=(LIST_CONTROLLERS, describe_attachment(attachment)),
    )


def _attacher_outage(attachment: VolumeAttachment, context: RuleContext) -> Outage | None:
    """Return why no external-attacher of the driver runs; None if one runs, or if it is unknown."""
    return controller_outage(context, attachment.attacher, "attacher", ATTACHER)


def _what_attacher_did(attachment: VolumeAttachment, context: RuleContext) -> str:
    """Return what the end of an attach lacks; the finalizer comes before the call to the driver.

    A driver without ControllerPublish, such as ceph-csi's, needs only the mark (trivial_handler.go
    of external-attacher@e6106024, markAsAttached); an error there is in the log alone.
    """
    if attachment.finalizers:
        return "has begun with it and has not finished: its call to the driver has not returned."
    if names_no_controller(context, attachment.attacher):
        return "has not marked it as done: no Deployment of this cluster names that driver."
    return "has not marked it as done: it does not run, or it may not write it."


def _not_mounting(
    pod: Pod, attachment: VolumeAttachment, context: RuleContext
) -> Iterator[Finding]:
    node = node_named(pod.node_name, context.snapshot)
    names = names_of_volume(context.volume).in_use_names
    if not isinstance(node, Node) or node.ready is not True:
        return
    if not names.isdisjoint(node.names_in_use):
        return
    since = age(attachment.created_at, context.snapshot.observed_at)
    if since is None or since < _DETACHING or not has_waited(pod, context.snapshot, _DETACHING):
        return
    yield finding(
        Code.KUBELET_DOES_NOT_TAKE_IT,
        Subject.of_pod(pod.ref),
        stated(
            "{pod} waits on {node}: {volume} is attached there, but kubelet has not started to "
            "mount it.",
            pod=pod.ref,
            node=node.name,
            volume=context.name,
        ),
        evidence=(
            _attachment_line(attachment),
            f"{node.name} does not list the volume in volumesInUse",
        ),
        commands=(
            kubectl("describe node", node.name),
            over_ssh(node.name, command("journalctl -u kubelet -n 50")),
        ),
    )


def attach_fails(context: RuleContext) -> Iterator[Finding]:
    """Report RBD413, RBD712: the attachError of a VolumeAttachment, if no other family knows it."""
    for code, attachment in attach_errors(ERROR_TEXTS, context):
        yield attach_finding(code, attachment, context)
    for attachment in failed_attachments(context):
        is_ending = Recognised.VOLUME_IS_ENDING.is_in(attachment.attach_error)
        if code_of(attachment.attach_error) is None and not is_ending:
            yield attach_finding(Code.ATTACH_FAILS, attachment, context, note=beside(context))


def attach_events(context: RuleContext) -> Iterator[Finding]:
    """Report RBD413, RBD712: what the event of a waiting pod reports about the attach."""
    for code, pod_events in events_by_code(ERROR_TEXTS, context).items():
        yield event_finding(code, pod_events, context)
    unknown = [
        pod_event
        for pod_event in unrecognised_events(context)
        if Recognised.ATTACH_FAILED.is_in(pod_event.text)
    ]
    # The VolumeAttachments show more than the events.
    if unknown and isinstance(context.volume.attachments, NotObserved):
        yield event_finding(Code.ATTACH_FAILS, unknown, context)


# --------------------------------------------------------------------------------------------------
# Detaching
# --------------------------------------------------------------------------------------------------


def detach_fails(context: RuleContext) -> Iterator[Finding]:
    """Report RBD409, RBD410, RBD713, RBD714, RBD716: attachments that should be gone, but exist."""
    for attachment in observed_of(context.volume.attachments):
        show = (describe_attachment(attachment),)
        has_no_node = node_named(attachment.node_name, context.snapshot) is None
        is_leaving = attachment.deleting_since is not None
        if is_leaving and has_no_node and attachment.detach_error:
            yield _without_node(attachment, show, context)
        elif is_leaving:
            yield from _leaving(attachment, show, context)
        if has_no_node and not (is_leaving and attachment.detach_error):
            yield finding(
                Code.ATTACHMENT_OF_GONE_NODE,
                Subject.of_attachment(attachment.name),
                stated(
                    "{volume} is attached to {node}, but that Node no longer exists. Prove that "
                    "the machine is off before another node gets the volume.",
                    volume=context.name,
                    node=attachment.node_name,
                ),
                evidence=(f"no Node object {attachment.node_name}",),
                commands=show,
                severity=Severity.ERROR if waiters(context) else None,
            )
        if _is_of_gone_volume(attachment, context):
            yield finding(
                Code.ATTACHMENT_OF_GONE_VOLUME,
                Subject.of_attachment(attachment.name),
                stated(
                    "{attachment} attaches {volume} to {node}, but that PV does not exist.",
                    attachment=attachment.name,
                    volume=attachment.persistent_volume,
                    node=attachment.node_name,
                ),
                evidence=(_attachment_line(attachment),),
                commands=show,
            )


def _leaving(
    attachment: VolumeAttachment, show: tuple[Command, ...], context: RuleContext
) -> Iterator[Finding]:
    since = age(attachment.deleting_since, context.snapshot.observed_at)
    if attachment.detach_error:
        gone = Recognised.VOLUME_GONE.is_in(attachment.detach_error)
        yield finding(
            Code.DETACH_FAILS,
            Subject.of_attachment(attachment.name),
            stated(
                "{volume} cannot be detached from {node}: {error}. Repair the cause. Never remove "
                "the finalizer by hand.",
                volume=context.name,
                node=attachment.node_name,
                error=foreign(attachment.detach_error),
            ),
            evidence=(
                f"being deleted since {attachment.deleting_since}",
                foreign(attachment.detach_error),
            ),
            commands=show,
            recovery=Recovery(note="external-attacher does not find the PV again")
            if gone
            else None,
        )
        return
    waiting = waiters(context)
    if since is not None and since <= _DETACHING:
        if waiting:
            yield finding(
                Code.BEING_DETACHED,
                Subject.of_attachment(attachment.name),
                stated(
                    "{volume} has been detaching from {node} for {age}.",
                    volume=context.name,
                    node=attachment.node_name,
                    age=age_text(since),
                ),
                waiting=waiting,
                evidence=(_attachment_line(attachment),),
                commands=(query_again(context),),
            )
        return
    finalizers = ", ".join(attachment.finalizers) or "none observed"
    own = not attachment.finalizers or any(
        finalizer.startswith("external-attacher/") for finalizer in attachment.finalizers
    )
    outage = _attacher_outage(attachment, context) if own else None
    if outage is not None:
        yield outage_finding(
            Code.DETACH_NOT_PICKED_UP,
            outage,
            stated("{volume} is not detached.", volume=context.name),
            waiting=waiting,
            evidence=(_attachment_line(attachment), f"finalizers: {finalizers}", "no detachError"),
            severity=None if waiting else Severity.WARNING,
        )
        return
    reason = (
        "external-attacher does not respond"
        if own
        else "a finalizer of another component prevents it"
    )
    yield finding(
        Code.DETACH_NOT_PICKED_UP,
        Subject.of_attachment(attachment.name),
        stated(
            "The detach of {volume} from {node} was requested {age} ago, and {}.",
            reason,
            volume=context.name,
            node=attachment.node_name,
            age=age_text(since),
        ),
        waiting=waiting,
        evidence=(_attachment_line(attachment), f"finalizers: {finalizers}", "no detachError"),
        commands=(*((LIST_CONTROLLERS,) if own else ()), *show),
        severity=None if waiting else Severity.WARNING,
        recovery=None if own else Recovery(actor="the component that set the finalizer"),
    )


def _without_node(
    attachment: VolumeAttachment, show: tuple[Command, ...], context: RuleContext
) -> Finding:
    """Return RBD409 for a Node that is gone.

    external-attacher takes the node's ID from an annotation of the VolumeAttachment since 1.0
    (cc01f60d), and from the CSINode before.
    """
    return finding(
        Code.DETACH_FAILS,
        Subject.of_attachment(attachment.name),
        stated(
            "{volume} cannot be detached from {node}, a Node that no longer exists: {error}.",
            volume=context.name,
            node=attachment.node_name,
            error=foreign(attachment.detach_error),
        ),
        evidence=(
            f"being deleted since {attachment.deleting_since}",
            f"no Node object {attachment.node_name}",
            foreign(attachment.detach_error),
        ),
        remedy="Make sure that the machine of that Node is off, and that no client of it watches "
        "the image. If the error names the missing Node, update external-attacher, which needs it "
        "up to 0.4 only. Never remove the finalizer while the machine may run.",
        commands=show,
        recovery=Recovery(actor=ATTACHER, condition="what the error names is repaired"),
    )


def _is_of_gone_volume(attachment: VolumeAttachment, context: RuleContext) -> bool:
    if not context.kube.coverage.volumes() or attachment.persistent_volume is None:
        return False
    known = {volume.name for volume in pvs_of(context.volume)}
    volume = attachment.persistent_volume
    return volume not in known and volume not in context.kube.volume_by_name


def attachment_idle(context: RuleContext) -> Iterator[Finding]:
    """Report RBD715: the volume is attached, but no pod and no kubelet there needs it any more."""
    if not knows_every_user(context) or context.verdict is Verdict.STALE_ATTACHMENT:
        return
    names = names_of_volume(context.volume).in_use_names
    seen = {
        holder_verdict.holder.node
        for holder_verdict in context.holder_verdicts
        if holder_verdict.holder.mapping or holder_verdict.holder.published
    }
    for attachment in observed_of(context.volume.attachments):
        name = attachment.node_name
        since = age(attachment.created_at, context.snapshot.observed_at)
        if not attachment.attached or attachment.deleting_since or users_on(name, context):
            continue
        node = None if name in seen else node_named(name, context.snapshot)
        if not isinstance(node, Node) or node.ready is not True:
            continue
        if not names.isdisjoint(node.names_in_use) or since is None or since < MOVING:
            continue
        waiting = waiters_elsewhere(context, name)
        long = has_any_waited(waiting, context.snapshot, LONG)
        yield finding(
            Code.ATTACHMENT_IDLE,
            Subject.of_attachment(attachment.name),
            stated(
                "{volume} is attached to {node}, but no pod there uses it, and kubelet there no "
                "longer lists it: the controller has not detached it yet.",
                volume=context.name,
                node=name,
            ),
            waiting=waiting,
            evidence=(_attachment_line(attachment), f"{name} does not list it in volumesInUse"),
            commands=(query_on_node(context, name),),
            severity=None if long else Severity.INFO,
        )


def two_attachments(context: RuleContext) -> Iterator[Finding]:
    """Report RBD717: the controller does not prevent two writers; only ceph-csi still does."""
    found = observed_of(context.volume.attachments)
    nodes = sorted({attachment.node_name for attachment in found})
    if len(nodes) < 2 or not is_exclusive(context.volume):
        return
    now = context.snapshot.observed_at
    # A volume that follows its pod had two for a moment, on a busy control plane.
    is_new = any(is_young(attachment.created_at, now, MOVING) is True for attachment in found)
    leaving = [attachment.node_name for attachment in found if attachment.deleting_since]
    older = stated(" Being detached: {nodes}.", nodes=leaving) if leaving else ""
    yield finding(
        Code.TWO_ATTACHMENTS,
        Subject.of_volume(context.name),
        stated(
            "{volume} is for one node, but is attached to {nodes:and}: the controller no longer "
            "prevents two writers, only ceph-csi's check of the watchers still does.{}",
            older,
            volume=context.name,
            nodes=nodes,
        ),
        evidence=tuple(_attachment_line(attachment) for attachment in found),
        commands=(query_again(context),),
        severity=Severity.INFO if is_new else None,
    )


# --------------------------------------------------------------------------------------------------
# Stale attachments
# --------------------------------------------------------------------------------------------------


def stale_attachment(context: RuleContext) -> Iterator[Finding]:
    """Report RBD408: attached, but not held by the node; INFO while that may be transient.

    The controller detaches a moment after kubelet has reported what it released. One snapshot
    cannot distinguish this moment from a stale cached state, which does no harm until a pod waits.
    """
    if context.verdict is not Verdict.STALE_ATTACHMENT:
        return
    attached = observed_of(context.volume.attachments)
    long = has_any_waited(waiters(context), context.snapshot, MOVING)
    for node in nodes_of_stale_attachments(context.volume, context.snapshot):
        attachment = next(found for found in attached if found.node_name == node)
        down = _is_down(node, context)
        yield _stale(node, attachment, context, down=down, transient=not (long or down))


def _stale(
    node: str, attachment: VolumeAttachment, context: RuleContext, *, down: bool, transient: bool
) -> Finding:
    seen = knows_every_user(context)
    nothing = "was observed and holds" if node == context.here else "has no watch, and so holds"
    message = [
        stated(
            "The control plane reports {volume} as attached to {node}, but {node} {} nothing. An "
            "unmap will not help: {}the controller's cached state is stale.",
            nothing,
            "the controller is about to detach it, or " if transient else "",
            volume=context.name,
            node=node,
        )
    ]
    if attachment.deleting_since:
        message.append(stated("The VolumeAttachment is already being deleted."))
    if not seen:
        message.append(stated("Whether a pod there is about to use the volume was not observed."))
    if down:
        message.append(
            stated(
                "{node} is not Ready: the controller detaches the volume by force six minutes "
                "after the node's pods are gone.",
                node=node,
            )
        )
    return finding(
        Code.STALE_ATTACHMENT,
        Subject.of_node(node),
        joined(message),
        evidence=(f"VolumeAttachment {attachment.name}: attached {attachment.attached}",),
        commands=(describe_attachment(attachment),),
        severity=_stale_severity(seen=seen, transient=transient),
        recovery=_stale_recovery(down=down, transient=transient),
    )


def _stale_recovery(*, down: bool, transient: bool) -> Recovery | None:
    if down:
        return _ONCE_PODS_ARE_GONE
    if transient:
        return Recovery(actor=_CONTROLLER, note="unless its cached state is stale")
    return None


def _stale_severity(*, seen: bool, transient: bool) -> Severity | None:
    if transient:
        return Severity.INFO
    return None if seen else Severity.WARNING


def _is_down(node: str, context: RuleContext) -> bool:
    """Return whether a node has not been Ready for at least a minute."""
    found = node_named(node, context.snapshot)
    if not isinstance(found, Node) or found.ready is True:
        return False
    return is_young(found.ready_changed_at, context.snapshot.observed_at, MOVING) is not True


RULES: Final = (
    Rule(400, stale_attachment),
    Rule(410, attachment_idle),
    Rule(420, detach_fails, CollectScope.DRIVER_WORKLOADS),
    Rule(430, two_attachments),
    Rule(460, attach_fails),
    Rule(470, attach_waits, CollectScope.CSI_DRIVERS | CollectScope.DRIVER_WORKLOADS),
    Rule(497, attach_events),
    Rule(510, multi_attach),
)
