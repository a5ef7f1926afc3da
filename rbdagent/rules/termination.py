"""RBD113, RBD72x: pods and nodes that do not release a volume.

A pod's deletionTimestamp is the time of the request plus the grace period. IsPodTerminated
(pkg/volume/util/util.go) defines which pods the controllers count as ended. The attach/detach
controller (volume/attachdetach/reconciler/reconciler.go) acts on the out-of-service taint on a
Ready node as well; podgc (podgc/gc_controller.go) acts on it only on a node that is not Ready.
Source: Kubernetes 1.36, the controllers below pkg/controller.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rbdagent.codes import Code
from rbdagent.commands import command, kubectl, line_of, over_ssh
from rbdagent.correlate.holders import cluster_with, daemons_of, is_terminated, needs_volumes
from rbdagent.correlate.image_identity import are_watchers_observed
from rbdagent.correlate.node_usage import kubelet_process, stacked_on
from rbdagent.correlate.volume_names import node_named
from rbdagent.model import (
    ClusterView,
    CollectScope,
    Command,
    Finding,
    Holder,
    ImagePresence,
    ImageSpec,
    LifecycleStep,
    Node,
    NotObserved,
    Pod,
    ProcessRef,
    Recovery,
    Severity,
    Subject,
    Verdict,
    VolumeAttachment,
    Words,
    observed_of,
    stated,
)
from rbdagent.parse.address import same_ip
from rbdagent.parse.foreign import foreign
from rbdagent.parse.recognised import Recognised
from rbdagent.rules.context import (
    Rule,
    RuleContext,
    client_name,
    finding,
    identity_lines,
    list_pods_on,
    probably,
    query_again,
    query_on_node,
    subject_of,
)
from rbdagent.rules.entry import Entry
from rbdagent.rules.facts import kubelet_log_since, plugin_log, unmount_error
from rbdagent.rules.pod_events import (
    has_any_waited,
    is_ending_in_time,
    knows_every_user,
    users_on,
    waiters,
    waiters_elsewhere,
)
from rbdagent.rules.stacked import kept_by, release, show_stacked, strange_devices
from rbdagent.verdicts.coverage import is_hidden
from rbdagent.verdicts.evidence import block_holder_text, command_text, pod_names
from rbdagent.verdicts.timing import GRACE, LONG, MOVING, RETRY_S, age, age_text, is_young, seconds
from rbdagent.verdicts.volume_traces import left_here
from rbdagent.verdicts.volume_verdict import fresh_report, is_listed, may_be_shared, missing_devices

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rbdagent.model import LogEntry

ENTRIES: Final = (
    Entry(
        Code.HOLDER_NODE_DOWN,
        Severity.ERROR,
        "The node that holds the volume is not Ready or no longer exists.",
        remedy="While the node's watch exists, Ceph has a live client on it: bring the node back, "
        "or power it off. Set the out-of-service taint only when the node is off: its pods and "
        "attachments are then removed within 20 s. Remove the taint when the node is back.",
        recovery=Recovery(
            actor="its kubelet",
            condition="the node is back",
            note="six minutes after the node's pods are gone, the controller detaches by force, "
            "whether the machine is off or not, and the mapping stays",
        ),
        step=LifecycleStep.DETACH,
    ),
    Entry(
        Code.POD_ENDING,
        Severity.INFO,
        "A pod with the volume is terminating, and its time limit is not over yet.",
        remedy="Wait, then run the command again. Never delete the pod by force.",
        recovery=Recovery(actor="kubelet", within_s=60),
    ),
    Entry(
        Code.POD_DOES_NOT_END,
        Severity.ERROR,
        "A pod with the volume is past its grace period, and its containers are still running.",
        remedy="Check Ceph first (`ceph health detail`), then the process on that node. If Ceph is "
        "healthy and the process does not end, reboot the node. Never delete the pod by force "
        "before that.",
        recovery=Recovery(
            actor="kubelet", condition="the pod's processes have ended", within_s=RETRY_S
        ),
        step=LifecycleStep.UNPUBLISH,
    ),
    Entry(
        Code.UNMOUNT_FAILS,
        Severity.ERROR,
        "No container on that node uses the volume any more, but kubelet has not released it.",
        remedy="Run rbdagent on that node: it names what keeps the volume there. The error itself "
        "is in the logs of kubelet and of the CSI plugin on that node.",
        recovery=Recovery(
            actor="kubelet",
            condition="it is running, the CSI driver responds there, "
            "and nothing keeps the volume open",
            within_s=133,
        ),
        step=LifecycleStep.UNSTAGE,
    ),
    Entry(
        Code.POD_ON_LOST_NODE,
        Severity.ERROR,
        "A pod is stuck Terminating because kubelet on its node is not reporting.",
        remedy="Bring the node back. If it does not come back, check its watch (`rbd status`): "
        "while the watch is alive, the machine writes. Power the machine off, and only then set "
        "the out-of-service taint: the pod and its attachments are removed within 20 s. Remove "
        "the taint when the node is back.",
        recovery=Recovery(actor="its kubelet", condition="the node is back"),
        step=LifecycleStep.UNPUBLISH,
    ),
    Entry(
        Code.OUT_OF_SERVICE_NODE_ALIVE,
        Severity.CRITICAL,
        "A node is Ready and has the out-of-service taint.",
        remedy="If the machine was off at any time since the taint was set, remove the taint. If "
        "not: stop the pods with volumes there and reboot the machine first.",
        recovery=Recovery(note="no component removes the taint"),
        step=LifecycleStep.UNPUBLISH,
    ),
)

_TAINT: Final = "node.kubernetes.io/out-of-service"
_EXPLAINED: Final = frozenset({Verdict.ORPHANED, Verdict.PINNED, Verdict.DEAD, Verdict.UNWATCHED})
"""Verdicts whose own findings explain why a node does not release a volume."""
_CAUSES: Final = frozenset({Code.POD_LOST_BY_API, Code.CSI_DRIVER_DOWN, Code.KUBELET_DOWN})
"""Codes with such an explanation, as the agent of another node publishes them."""


def pod_terminating(context: RuleContext) -> Iterator[Finding]:
    """Report RBD721 to RBD725: pods with the volume that are being deleted, and the delay."""
    for pod in context.volume.pods:
        if pod.deleting_since is None or pod.node_name is None:
            continue
        over = age(pod.deleting_since, context.snapshot.observed_at)
        if over is None:
            continue
        if is_ending_in_time(pod, context):
            yield _in_time(pod, context)
            continue
        node = node_named(pod.node_name, context.snapshot)
        if isinstance(node, NotObserved):
            continue
        if node is None or node.ready is not True:
            yield from _on_lost_node(pod, node, context)
        elif not is_terminated(pod):
            yield _does_not_end(pod, context)
        else:
            yield from _ended(pod, context)


def _late(pod: Pod, context: RuleContext) -> str:
    return age_text(age(pod.deleting_since, context.snapshot.observed_at))


def _in_time(pod: Pod, context: RuleContext) -> Finding:
    over = age(pod.deleting_since, context.snapshot.observed_at) or seconds(0)
    left = (MOVING - over).total_seconds()
    return finding(
        Code.POD_ENDING,
        Subject.of_pod(pod.ref),
        stated(
            "{pod} on {node} is terminating, and its time limit is not over yet.",
            pod=pod.ref,
            node=pod.node_name,
        ),
        waiting=waiters_elsewhere(context, pod.node_name),
        evidence=(f"its grace period ends at {pod.deleting_since}",),
        commands=(query_again(context),),
        recovery=Recovery(actor="kubelet", within_s=left),
    )


def _does_not_end(pod: Pod, context: RuleContext) -> Finding:
    running = [container.name for container in pod.containers if container.state == "running"]
    return finding(
        Code.POD_DOES_NOT_END,
        Subject.of_pod(pod.ref),
        stated(
            "{pod} on {node} should have ended {age} ago, but its container {containers} is still "
            "running: its process does not end.",
            pod=pod.ref,
            node=pod.node_name,
            age=_late(pod, context),
            containers=running,
        ),
        waiting=waiters_elsewhere(context, pod.node_name),
        evidence=(
            f"its grace period ended at {pod.deleting_since}",
            f"node {pod.node_name} is Ready",
            *_sleeping(pod, context),
        ),
        commands=(command("ceph health detail"), query_on_node(context, str(pod.node_name))),
    )


def _sleeping(pod: Pod, context: RuleContext) -> tuple[str, ...]:
    """Return the pod's processes that cannot be killed, if the pod runs on this node."""
    node = context.snapshot.node
    if node is None or node.node_name != pod.node_name:
        return ()
    return tuple(
        f"process {process.pid} ({command_text(process)}) is in uninterruptible sleep"
        for process in node.processes
        if process.pod_uid == pod.ref.uid and process.state == "D"
    )


def _ended(pod: Pod, context: RuleContext) -> Iterator[Finding]:
    """Report RBD724; a finalizer (RBD654) only keeps the object, and kubelet unmounts anyway."""
    held = any(
        holder_verdict.holder.mapping is not None or holder_verdict.holder.watcher is not None
        for holder_verdict in context.holder_verdicts
        # A mapping that another pod there uses belongs to that pod.
        if holder_verdict.holder.node == pod.node_name
        and not holder_verdict.holder.transient
        and holder_verdict.verdict is not Verdict.IN_USE
    )
    if (held or not pod.finalizers) and not _is_explained(str(pod.node_name), context):
        yield _not_unmounted(pod, context)


def _on_lost_node(pod: Pod, node: Node | None, context: RuleContext) -> Iterator[Finding]:
    if node is None:
        # podgc force-deletes the pods of a Node that no longer exists, within 80 s.
        return
    state = "is NotReady" if node.ready is False else "is not reporting"
    spec = context.volume.image.spec if context.volume.image is not None else None
    watching = [
        holder_verdict.holder
        for holder_verdict in context.holder_verdicts
        if holder_verdict.holder.node == node.name
        and holder_verdict.holder.watcher
        and not holder_verdict.holder.transient
    ]
    alive = [str(subject_of(one)) for one in watching if not one.is_node_probable]
    unproven = [one for one in watching if one.is_node_probable]
    watch: Words = ""
    if alive:
        watch = stated(
            " The node's watch on the image is alive ({holders}): that machine runs and may write.",
            holders=alive,
        )
    elif unproven:
        watch = stated(
            " {client} watches the image and is {}: whichever machine has it runs and may write.",
            probably(unproven[0]),
            client=client_name(unproven[0]),
        )
    counted = (
        ""
        if is_terminated(pod)
        else " As long as its containers are reported as running, the volume stays attached there "
        "indefinitely."
    )
    taint = (
        stated(
            " {node} has the out-of-service taint: the pod is removed within 20 s.", node=node.name
        )
        if node.out_of_service
        else ""
    )
    yield finding(
        Code.POD_ON_LOST_NODE,
        Subject.of_pod(pod.ref),
        stated(
            "{pod} should have ended {age} ago, but {node}, whose kubelet must end it, {}.{}{}{}",
            state,
            counted,
            watch,
            taint,
            pod=pod.ref,
            age=_late(pod, context),
            node=node.name,
        ),
        waiting=waiters_elsewhere(context, node.name),
        evidence=(
            f"its grace period ended at {pod.deleting_since}",
            _ready_since(node),
        ),
        remedy=safe_order(node, spec, is_alive=bool(alive)),
        commands=_look_at_lost(
            node.name, context, kubelet_first=_is_kubelet_silent(node, is_alive=bool(alive))
        ),
        recovery=Recovery(actor="podgc", within_s=20) if node.out_of_service else None,
    )


def _status(image: ImageSpec | None) -> tuple[Command, ...]:
    return () if image is None or not image.pool else (command("rbd status", str(image)),)


def _ready_since(node: Node) -> str:
    status = "False" if node.ready is False else "Unknown"
    since = node.ready_changed_at or "an unknown time"
    return f"node {node.name}: Ready is {status} since {since}"


def _is_kubelet_silent(node: Node | NotObserved | None, *, is_alive: bool) -> bool:
    """Return whether the machine runs, and only its kubelet is not heard: it is the first step.

    With the out-of-service taint, its volumes are detached already: there is no time to look.
    """
    if not is_alive or not isinstance(node, Node):
        return False
    return node.ready is None and not node.out_of_service


def _look_at_lost(node: str, context: RuleContext, *, kubelet_first: bool) -> tuple[Command, ...]:
    """Return the commands that show a node that is not Ready, and its watch.

    The Node has no news from a kubelet that does not report.
    """
    status = command("systemctl status kubelet", node=node)
    kubelet = status if node == context.here else over_ssh(node, status)
    spec = context.volume.image.spec if context.volume.image is not None else None
    return (kubelet if kubelet_first else kubectl("describe node", node), *_status(spec))


def safe_order(node: Node, image: ImageSpec | None, *, is_alive: bool = False) -> str:
    """Return the only safe sequence of steps to release a volume from a node that is down."""
    status = f" ({line_of(command('rbd status', str(image)))})" if image is not None else ""
    taint = line_of(kubectl("taint node", node.name, f"{_TAINT}=nodeshutdown:NoExecute"))
    last = (
        "Its out-of-service taint is set already" if node.out_of_service else f"Only then: {taint}"
    )
    back = line_of(kubectl("taint node", node.name, f"{_TAINT}-"))
    first = (
        f"Start kubelet on {node.name}, or restore its network: that machine runs. It then "
        "finishes automatically. If you cannot"
        if _is_kubelet_silent(node, is_alive=is_alive)
        else f"Bring {node.name} back if you can: its kubelet then finishes automatically. If not"
    )
    return (
        f"{first}, keep to this order. 1. Check whether its watch is alive{status}: while "
        "it is alive, that machine writes, and nothing may be forced. 2. Power "
        f"{node.name} off. 3. {last} (its pods and attachments are removed within 20 s). 4. When "
        f"the node is back: {back}"
    )


def _is_explained(node: str, context: RuleContext) -> bool:
    """Return whether another rule reports why this node does not release the volume."""
    return any(
        holder_verdict.verdict in _EXPLAINED
        or holder_verdict.holder.driver_registered is False
        or (holder_verdict.holder.mapping is not None and _is_kubelet_down(context))
        or _is_reported(holder_verdict.holder, context)
        for holder_verdict in context.holder_verdicts
        if holder_verdict.holder.node == node and not holder_verdict.holder.transient
    )


def _is_kubelet_down(context: RuleContext) -> bool:
    return kubelet_process(context.snapshot) is None


def _is_reported(holder: Holder, context: RuleContext) -> bool:
    """Return whether the agent there reports a lost pod, a CSI driver or a kubelet that is down."""
    published = fresh_report(holder, context.snapshot)
    return published is not None and not _CAUSES.isdisjoint(published.findings)


def _not_unmounted(pod: Pod, context: RuleContext) -> Finding:
    if pod.node_name == context.here and _is_nothing_left(pod, context):
        return finding(
            Code.UNMOUNT_FAILS,
            Subject.of_pod(pod.ref),
            stated(
                "The containers of {pod} have ended, and nothing of the volume is left on {node}: "
                "no mapping, no mount and no process of the pod. kubelet there has not cleaned up "
                "after it for {age}: its log has the error.",
                pod=pod.ref,
                node=pod.node_name,
                age=_late(pod, context),
            ),
            waiting=waiters_elsewhere(context, pod.node_name),
            evidence=(f"being deleted since {pod.deleting_since}",),
            remedy="Restart kubelet on that node, which then forgets the volume. If the pod "
            "remains, it can be deleted by force: nothing of it runs there, and nothing of this "
            "volume is mapped. Check its other volumes before.",
            commands=(
                command("journalctl -u kubelet -n 50", node=pod.node_name),
                query_again(context),
            ),
            recovery=Recovery(note="kubelet tries again, and fails in the same way"),
        )
    if (holder := _holder_with_devices(pod, context)) is not None:
        return _kept_open(pod, holder, context)
    line = unmount_error(context, pod.node_name)
    if line is not None and Recognised.VOLUME_DATA_GONE.is_in(line.text):
        return _without_volume_data(pod, line, context)
    if line is not None and Recognised.VOLUME_DATA_DAMAGED.is_in(line.text):
        return _without_volume_data(pod, line, context, is_there=True)
    if line is None and _has_no_try(pod, context):
        return _not_tried(pod, context)
    how = (
        "an unmount is in progress there, or fails, of this volume or of another volume of the pod"
        if line is None
        else stated("an unmount fails there, of this volume with {error}", error=foreign(line.text))
    )
    late = is_young(pod.deleting_since, context.snapshot.observed_at, LONG) is False
    return finding(
        Code.UNMOUNT_FAILS,
        Subject.of_pod(pod.ref),
        stated(
            "The containers of {pod} have ended, but {node} has not released the pod's volumes "
            "for {age}: {}.",
            how,
            pod=pod.ref,
            node=pod.node_name,
            age=_late(pod, context),
        ),
        waiting=waiters_elsewhere(context, pod.node_name),
        evidence=(
            f"being deleted since {pod.deleting_since}",
            f"node {pod.node_name} is Ready",
            *_not_observed_on(str(pod.node_name), context),
        ),
        remedy="" if line is None else _MEND_THE_LINE,
        commands=_inspect(str(pod.node_name), context),
        # A busy node needed 67 s for an unmount.
        severity=None if late or line is not None else Severity.INFO,
    )


def _holder_with_devices(pod: Pod, context: RuleContext) -> Holder | None:
    """Return the mapping that other devices keep open, unless another pod there may use them."""
    if any(user != pod for user in users_on(str(pod.node_name), context)):
        return None
    local = (found.holder for found in context.holder_verdicts if found.holder.is_local)
    return next(
        (holder for holder in local if holder.node == pod.node_name and strange_devices(holder)),
        None,
    )


def _kept_open(pod: Pod, holder: Holder, context: RuleContext) -> Finding:
    """Return RBD724 for a device with another one on it: no unmount and no restart ends that."""
    devices, node = strange_devices(holder), str(pod.node_name)
    device = holder.mapping.device if holder.mapping is not None else context.name
    return finding(
        Code.UNMOUNT_FAILS,
        Subject.of_pod(pod.ref),
        stated(
            "The containers of {pod} have ended, and kubelet on {node} has not released the "
            "volume for {age}, because {}.",
            kept_by(devices),
            pod=pod.ref,
            node=node,
            age=_late(pod, context),
        ),
        waiting=waiters_elsewhere(context, pod.node_name),
        evidence=(
            f"being deleted since {pod.deleting_since}",
            *map(block_holder_text, stacked_on(holder.mapping)),
        ),
        remedy=f"{release(devices, node)} Do not delete the pod by force.",
        commands=(
            command("lsblk", device, node=node),
            *(show_stacked(stacked, holder) for stacked in devices),
            query_again(context),
        ),
        recovery=Recovery(
            actor="kubelet", condition=f"nothing keeps {device} open", within_s=RETRY_S
        ),
    )


def _has_no_try(pod: Pod, context: RuleContext) -> bool:
    """Return whether the log of this node's kubelet was read, and has no line since the deletion.

    deletionTimestamp is later than the request, by the grace period. A call that hangs is logged
    only when its time is over, and the driver's log has it until then.
    """
    if pod.node_name != context.here_if_known or any(
        line.unanswered for line in plugin_log(context)
    ):
        return False
    begun, late = kubelet_log_since(context), age(pod.deleting_since, context.snapshot.observed_at)
    is_tried_by_now = late is not None and late.total_seconds() > 2 * RETRY_S
    return is_tried_by_now and begun is not None and begun < (pod.deleting_since or "")


def _not_tried(pod: Pod, context: RuleContext) -> Finding:
    process = kubelet_process(context.snapshot)
    started = process.started_at if isinstance(process, ProcessRef) else None
    return finding(
        Code.UNMOUNT_FAILS,
        Subject.of_pod(pod.ref),
        stated(
            "The containers of {pod} have ended, and kubelet on {node} has not released the "
            "volume for {age}: its log has no try to unmount it.",
            pod=pod.ref,
            node=pod.node_name,
            age=_late(pod, context),
        ),
        waiting=waiters_elsewhere(context, pod.node_name),
        evidence=(
            f"being deleted since {pod.deleting_since}",
            f"kubelet's log since {kubelet_log_since(context)} has no line about an unmount of it",
            *(() if started is None else (f"kubelet runs since {started}",)),
        ),
        remedy="Restart kubelet on that node: it then finds out what is mounted, and unmounts what "
        "no pod needs. Then run this command again. Do not delete the pod by force before.",
        commands=_inspect(str(pod.node_name), context),
        recovery=Recovery(note="kubelet has logged no try"),
    )


_MEND_THE_LINE: Final = (
    "Mend what the line of kubelet names; the log of the CSI node plugin there may have more."
)


def _without_volume_data(
    pod: Pod, line: LogEntry, context: RuleContext, *, is_there: bool = False
) -> Finding:
    """Return RBD724 for a pod whose volume's file kubelet cannot read, as before each unmount."""
    return finding(
        Code.UNMOUNT_FAILS,
        Subject.of_pod(pod.ref),
        stated(
            "The containers of {pod} have ended, and kubelet on {node} cannot finish the unmount "
            "for {age}: its file about the volume, vol_data.json in the pod's directory, {}, "
            "so each try fails.",
            "is empty or damaged" if is_there else "is gone",
            pod=pod.ref,
            node=pod.node_name,
            age=_late(pod, context),
        ),
        waiting=waiters_elsewhere(context, pod.node_name),
        evidence=(f"kubelet at {line.at}: {foreign(line.text)}",),
        remedy=_UNMOUNT_BY_HAND if is_there else _LET_IT_FIND_OUT,
        commands=(query_again(context),),
        recovery=Recovery(note="kubelet tries again, and fails in the same way"),
    )


_LET_IT_FIND_OUT: Final = (
    "Restart kubelet on that node: it then finds out from the node itself what is mounted. Then "
    "run this command again: it names what is left of the volume there."
)
# ConstructVolumeSpec (pkg/volume/csi/csi_plugin.go), with which a restarted kubelet finds out what
# is mounted, reads the same file.
_UNMOUNT_BY_HAND: Final = (
    "On that node, `umount` (never lazily) the volume's mount below the pod's directory, then "
    "restart kubelet. A restart alone does not help: kubelet reads the same file again. Then run "
    "this command again: it names what is left of the volume there."
)


def _is_nothing_left(pod: Pod, context: RuleContext) -> bool:
    """Return whether this node was observed, and has nothing of the volume and of the pod."""
    node = context.snapshot.node
    if node is None or isinstance(node.mappings, NotObserved) or context.snapshot.sources.node.gaps:
        return False
    local = [found.holder for found in context.holder_verdicts if found.holder.is_local]
    is_held = any(holder.mapping is not None or holder.watcher is not None for holder in local)
    runs_here = any(process.pod_uid == pod.ref.uid for process in node.processes)
    left = left_here(context.volume, context.snapshot, besides=pod.ref.uid)
    return not (is_held or runs_here or left or missing_devices(context.snapshot))


def _not_observed_on(node: str, context: RuleContext) -> tuple[str, ...]:
    """Return the facts about another node that RBD724 lacks, even if that Node is Ready."""
    if node == context.here:
        return ()
    return (f"not observed from here: whether kubelet and the CSI driver work on {node} now",)


def _inspect(node: str, context: RuleContext) -> tuple[Command, ...]:
    return (
        query_again(context) if node == context.here else query_on_node(context, node),
        list_pods_on(node),
    )


def unmount_fails(context: RuleContext) -> Iterator[Finding]:
    """Report RBD724: no pod is left on the node, but kubelet still lists the volume.

    kubelet also lists the volume while a pod only waits on a node, because the pod needs the
    attachment.
    """
    if not knows_every_user(context):
        return
    for attachment in observed_of(context.volume.attachments):
        name = attachment.node_name
        if attachment.deleting_since or users_on(name, context) or _is_explained(name, context):
            continue
        if name == context.here and context.holders_with(Verdict.STAGED):
            continue
        if any(pod.node_name == name and pod.deleting_since for pod in context.volume.pods):
            continue
        if not is_listed(context.volume, name, context.snapshot):
            continue
        waiting = [pod for pod in waiters(context) if pod.node_name != name]
        long = has_any_waited(waiting, context.snapshot, LONG)
        yield finding(
            Code.UNMOUNT_FAILS,
            Subject.of_node(name),
            stated(
                "No pod on {node} uses {volume} any more, but kubelet there has not released it: "
                "its unmount is in progress, or fails. No event reports it.",
                node=name,
                volume=context.name,
            ),
            waiting=waiters_elsewhere(context, name),
            evidence=(
                f"{name} lists the volume in volumesInUse",
                f"VolumeAttachment {attachment.name}: {name}, not being deleted",
                *_not_observed_on(name, context),
            ),
            commands=_inspect(name, context),
            severity=None if long else Severity.INFO,
        )


# --------------------------------------------------------------------------------------------------
# Nodes
# --------------------------------------------------------------------------------------------------


def out_of_service(context: RuleContext) -> Iterator[Finding]:
    """Report RBD726: a node has the taint for nodes that are off, but is Ready."""
    dirty = {
        holder_verdict.holder.node
        for holder_verdict in context.holders_with(Verdict.RETURNED_DIRTY)
    }
    concerned = {name for name in _nodes_of(context) if name is not None} - dirty
    for name in sorted(concerned & context.kube.node_by_name.keys()):
        node = context.kube.node_by_name[name]
        if not node.out_of_service or node.ready is not True:
            continue
        lately = is_young(node.ready_changed_at, context.snapshot.observed_at, GRACE)
        running = users_on(node.name, context)
        back = line_of(kubectl("taint node", node.name, f"{_TAINT}-"))
        yield finding(
            Code.OUT_OF_SERVICE_NODE_ALIVE,
            Subject.of_node(node.name),
            stated(
                "{node} is Ready and has the out-of-service taint: when a pod leaves the node, "
                "its volumes are detached without waiting for their unmount, and the next node "
                "gets them at once.",
                node=node.name,
            ),
            evidence=(
                f"node {node.name}: Ready since {node.ready_changed_at or 'an unknown time'}",
                *((f"{pod_names(running)} on it uses the volume",) if running else ()),
            ),
            pods=tuple(str(pod.ref) for pod in running),
            remedy=f"If the machine was off at any time since the taint was set, remove the taint: "
            f"{back}. If not, stop the pods with volumes there and reboot the machine first.",
            commands=(kubectl("describe node", node.name),),
            severity=Severity.WARNING if lately and not running else None,
        )


def _nodes_of(context: RuleContext) -> frozenset[str | None]:
    """Return the nodes that hold the volume, are attached to it, or have a pod that needs it."""
    names = {
        holder_verdict.holder.node
        for holder_verdict in context.holder_verdicts
        if not holder_verdict.holder.transient
    }
    names |= {attachment.node_name for attachment in observed_of(context.volume.attachments)}
    return frozenset(names | {pod.node_name for pod in context.volume.pods if needs_volumes(pod)})


def node_down(context: RuleContext) -> Iterator[Finding]:
    """Report RBD113: a node that is not Ready, with or without a watch in Ceph."""
    yield from _down_holders(context)
    yield from _down_probably(context)
    yield from _down_without_client(context)


def _down_holders(context: RuleContext) -> Iterator[Finding]:
    for holder_verdict in context.holders_with(Verdict.NODE_DOWN):
        holder = holder_verdict.holder
        node, node_object = str(holder.node), holder.node_object
        tainted = isinstance(node_object, Node) and node_object.out_of_service
        is_alive = holder.watcher is not None
        if is_alive:
            message = stated(
                "{node} is not Ready, but its watch on {volume} is alive{}: that machine runs "
                "and may write. Do not detach by force. Prove that it is off first.",
                ", by its address" if holder.is_node_by_address else "",
                node=node,
                volume=context.name,
            )
        else:
            message = stated(
                "{node} is not Ready, and {}. {}",
                _watch_of_lost(context),
                _proof(tainted=tainted),
                node=node,
            )
        if tainted and is_alive:
            message = stated(
                "{} {node} already has the out-of-service taint, so its volumes are detached "
                "anyway: stop the volume's pods on other nodes.",
                message,
                node=node,
            )
        spec = context.volume.image.spec if context.volume.image is not None else None
        yield finding(
            Code.HOLDER_NODE_DOWN,
            Subject.of_node(node),
            message,
            evidence=(
                *holder_verdict.reasons,
                *identity_lines(context, holder),
                *fencing(context, holder),
            ),
            pods=holder_verdict.pods,
            remedy=safe_order(node_object, spec, is_alive=is_alive)
            if isinstance(node_object, Node)
            else "",
            commands=_look_at_lost(
                node, context, kubelet_first=_is_kubelet_silent(node_object, is_alive=is_alive)
            ),
            recovery=_DETACHED if tainted else None,
        )


def is_probably_down(holder: Holder) -> bool:
    """Return whether a client is probably on a node that is not Ready, and not certainly."""
    node = holder.node_object
    return holder.is_node_probable and isinstance(node, Node) and node.ready is not True


def _down_probably(context: RuleContext) -> Iterator[Finding]:
    """Report RBD113 of a node that is only probable: the client may be on another machine.

    Nothing may rest on that node, neither that the machine runs nor, once it is off, that the
    client is gone.
    """
    for holder_verdict in context.holders_with(Verdict.UNDETERMINED):
        holder = holder_verdict.holder
        if not is_probably_down(holder) or holder.transient or holder.watcher is None:
            continue
        node, spec = str(holder.node), context.volume.image.spec if context.volume.image else None
        yield finding(
            Code.HOLDER_NODE_DOWN,
            subject_of(holder),
            stated(
                "{client} watches {volume} and is {}, and {node} is not Ready. The machine that "
                "has the client runs and may write, that node or another one: do not detach by "
                "force, and do not start the volume elsewhere.",
                probably(holder),
                client=client_name(holder),
                volume=context.name,
                node=node,
            ),
            evidence=(
                *holder_verdict.reasons,
                *identity_lines(context, holder),
                *fencing(context, holder),
            ),
            pods=holder_verdict.pods,
            remedy=_find_first(node, holder.watcher.address.ip),
            commands=(query_on_node(context, node), *_status(spec)),
            recovery=Recovery(
                actor=f"kubelet on {node}", condition="it works again and the client is there"
            ),
        )


def _find_first(node: str, ip: str) -> str:
    return (
        f"Find the machine that has the client. On {node}, rbdagent shows whether a mapping has "
        f"it; else it is the machine with the address {ip} (`ip -br address`). Bring kubelet back "
        "there, or end what uses the image there and unmap it. That a node is off proves nothing "
        "here: the volume is free only when no watcher is listed any more."
    )


def _down_without_client(context: RuleContext) -> Iterator[Finding]:
    """Report RBD113 of a node that no client shows, and that has the volume attached.

    Ceph removes the watch of a machine that is off after some 30 s, and a force delete or podgc
    removes its pods: the attachment is then all that is left.
    """
    view = context.volume.image_view
    if view is not None and view.presence is ImagePresence.GONE:
        return
    seen = {
        holder_verdict.holder.node
        for holder_verdict in context.holder_verdicts
        if not holder_verdict.holder.transient
    }
    attached = {
        attachment.node_name: attachment
        for attachment in observed_of(context.volume.attachments)
        if attachment.attached and attachment.deleting_since is None
    }
    for name, attachment in attached.items():
        node = node_named(name, context.snapshot)
        if not isinstance(node, Node) or name in seen or not is_hidden(name, context.snapshot):
            continue
        if users_on(name, context):
            # RBD725 reports a pod there that cannot end.
            continue
        yield _attached_to_lost(node, attachment, context)


def _attached_to_lost(node: Node, attachment: VolumeAttachment, context: RuleContext) -> Finding:
    spec = context.volume.image.spec if context.volume.image is not None else None
    waiting = [pod for pod in waiters(context) if pod.node_name != node.name]
    is_new = is_young(node.ready_changed_at, context.snapshot.observed_at, MOVING) is True
    is_quiet = is_new or (not waiting and may_be_shared(context.volume))
    return finding(
        Code.HOLDER_NODE_DOWN,
        Subject.of_node(node.name),
        stated(
            "{node} has {volume} attached and is not Ready, and {}. {}",
            _watch_of_lost(context),
            _proof(tainted=node.out_of_service),
            node=node.name,
            volume=context.name,
        ),
        waiting=waiters_elsewhere(context, node.name),
        evidence=(_ready_since(node), f"VolumeAttachment {attachment.name}: {node.name}"),
        remedy=safe_order(node, spec),
        commands=_look_at_lost(node.name, context, kubelet_first=False),
        severity=Severity.INFO if is_quiet else None if waiting else Severity.WARNING,
        recovery=_DETACHED if node.out_of_service else None,
    )


def _watch_of_lost(context: RuleContext) -> Words:
    """Return what Ceph shows of the clients of a node that no known client belongs to."""
    if not are_watchers_observed(context.volume.image_view):
        return "whether it has a live watch was not observed"
    unknown = [
        holder_verdict.holder
        for holder_verdict in context.holder_verdicts
        if (holder_verdict.holder.node is None or holder_verdict.holder.is_node_probable)
        and holder_verdict.holder.watcher is not None
        and holder_verdict.holder.daemon is None
        and not holder_verdict.holder.transient
    ]
    if unknown:
        is_any_probable = any(holder.is_node_probable for holder in unknown)
        return stated(
            "{holders}, whose node is {}, may be on it: then it may write",
            "not certain" if is_any_probable else "unknown",
            holders=[str(subject_of(holder)) for holder in unknown],
        )
    return stated("Ceph lists no watch of that node on {volume}", volume=context.name)


def _proof(*, tainted: bool) -> str:
    """Return what to do about a node that is not Ready and has no watch, as a sentence."""
    if tainted:
        return "It already has the out-of-service taint: prove that the machine is off."
    return "Prove that the machine is off, then set the out-of-service taint."


_DETACHED: Final = Recovery(
    actor="its kubelet",
    condition="the node is back",
    note="with the out-of-service taint, the controller has detached its volumes already, whether "
    "the machine is off or not, and the mapping stays",
)
"""Within 5 s of the taint (measured)."""


def fencing(context: RuleContext, holder: Holder) -> tuple[str, ...]:
    """Return the blocklist entry for this client only; Ceph daemons may use the same IP address."""
    watcher = holder.watcher
    if watcher is None:
        return ()
    exact = f"{watcher.address.ip}:0/{watcher.address.nonce}"
    if ":" in watcher.address.ip:
        exact = f"[{watcher.address.ip}]:0/{watcher.address.nonce}"
    lines = [f"if you fence it, fence only this client: {exact}, never the whole address"]
    fsid = context.volume.image.fsid if context.volume.image is not None else None
    daemons = _daemons_at(watcher.address.ip, cluster_with(fsid, context.snapshot))
    if daemons:
        lines.append(f"{watcher.address.ip} also hosts {', '.join(daemons)}: fencing it stops Ceph")
    return tuple(lines)


def _daemons_at(ip: str, cluster: ClusterView | None) -> tuple[str, ...]:
    names = {
        f"{daemon.kind}.{daemon.name}"
        for daemon in daemons_of(cluster)
        if same_ip(daemon.address.ip, ip)
    }
    return tuple(sorted(names))


RULES: Final = (
    Rule(60, out_of_service),
    Rule(190, node_down),
    Rule(200, pod_terminating, CollectScope.LOGS),
    Rule(210, unmount_fails),
)
