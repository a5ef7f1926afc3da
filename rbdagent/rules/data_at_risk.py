"""RBD105 to RBD109, RBD416: what endangers the data of a volume.

A second writer, or one that Ceph or Kubernetes does not know of, and writes that miss the volume.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rbdagent.codes import Code
from rbdagent.commands import command, over_ssh
from rbdagent.correlate.holders import is_terminated
from rbdagent.correlate.image_identity import (
    are_watchers_observed,
    identity_of_mapping,
    mappings_of,
    may_be_in_another_namespace,
)
from rbdagent.correlate.node_usage import kubelet_process
from rbdagent.model import (
    Command,
    Finding,
    Holder,
    HolderVerdict,
    LifecycleStep,
    Pod,
    ProcessRef,
    Recovery,
    Severity,
    Subject,
    SubjectKind,
    UnbackedMount,
    Verdict,
    Words,
    joined,
    stated,
)
from rbdagent.parse.foreign import foreign_name
from rbdagent.rules.context import (
    Rule,
    RuleContext,
    agent_findings,
    client_name,
    cordon,
    delete_pod,
    finding,
    identity_lines,
    pod_by_uid,
    pods_of,
    probably,
    query_again,
    query_on_node,
    show_sandbox,
    subject_of,
)
from rbdagent.rules.entry import Entry
from rbdagent.rules.pod_events import is_ending_in_time
from rbdagent.verdicts.evidence import evidence_of, process_text, processes_on
from rbdagent.verdicts.volume_verdict import conflicting, fresh_report, is_read_only

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ENTRIES: Final = (
    Entry(
        Code.MAPPING_UNWATCHED,
        Severity.CRITICAL,
        "The image is mapped read-write without a watch: the mapping works, and Ceph does not "
        "show it.",
        remedy="Remove the volume's pods from that node. Unmount and unmap the volume there before "
        "any other node gets it. Until then, keep pods of the volume from starting elsewhere, and "
        "do not resize, snapshot or flatten the image from anywhere: with exclusive-lock this puts "
        "the whole node on the blocklist again, and without it the mapping writes into the "
        "snapshot. Snapshots and clones that were made meanwhile are not consistent.",
        recovery=Recovery(note="the watch does not come back"),
        step=LifecycleStep.USE,
    ),
    Entry(
        Code.VOLUME_CONFLICT,
        Severity.CRITICAL,
        "Two nodes have the image mapped read-write, and no access mode allows that.",
        remedy="Stop the pods of the volume on all nodes but one, immediately. Unmap the volume on "
        "those nodes. Then check the file system before it is used again.",
        recovery=Recovery(note="both nodes keep writing"),
        step=LifecycleStep.USE,
    ),
    Entry(
        Code.NODE_RETURNED_DIRTY,
        Severity.CRITICAL,
        "A node that was taken out of service runs and still holds the volume.",
        remedy="Stop the workloads on that node and reboot it before you remove the taint.",
        recovery=Recovery(note="NodeUnpublish and NodeUnstage never run on that node"),
        step=LifecycleStep.UNSTAGE,
    ),
    Entry(
        Code.VOLUME_NOT_BACKED,
        Severity.CRITICAL,
        "A container writes to the node's own disk instead of the volume.",
        remedy="Copy the data out of the running container first. Only then delete the pod.",
        recovery=Recovery(note="no component mounts a volume under a running container"),
        step=LifecycleStep.PUBLISH,
    ),
    Entry(
        Code.POD_LOST_BY_API,
        Severity.ERROR,
        "A container uses the volume, and its pod is no longer in the API.",
        remedy="Bring kubelet back: it stops the container and cleans up. Otherwise stop the "
        "container with crictl on that node. Never unmap the device under the container.",
        recovery=Recovery(actor="kubelet", condition="it runs on that node again"),
        step=LifecycleStep.UNPUBLISH,
    ),
    Entry(
        Code.RUNNING_WITHOUT_MAPPING,
        Severity.ERROR,
        "A pod runs with the volume, but its node shows no mapping or watch of the image.",
        remedy="Run rbdagent on the pod's node before anything else.",
        recovery=Recovery(note="no other component checks this"),
        step=LifecycleStep.USE,
    ),
)


def not_backed(context: RuleContext) -> Iterator[Finding]:
    """Yield RBD108, which warns first that deleting the pod destroys the data."""
    for unbacked in context.volume.unbacked:
        pod = pod_by_uid(unbacked.pod_uid, context)
        name = str(pod.ref) if pod is not None else unbacked.pod_uid
        path = foreign_name(unbacked.path)
        yield finding(
            Code.VOLUME_NOT_BACKED,
            Subject.of_pod(pod.ref)
            if pod is not None
            else Subject(kind=SubjectKind.POD, name=unbacked.pod_uid),
            stated(
                "Pod {pod} writes to {node}'s own disk: {path} is not on {volume}. Do not delete "
                "the pod: that destroys the data that it wrote.",
                pod=name,
                node=context.here,
                path=path,
                volume=context.name,
            ),
            evidence=(
                f"{path} in {process_text(unbacked.process)} is on {foreign_name(unbacked.source)}",
                f"{context.here} has no mapping under that mount",
            ),
            commands=(_rescue(unbacked, context),),
        )


def _rescue(unbacked: UnbackedMount, context: RuleContext) -> Command:
    """Return the command that saves the data.

    It runs on the node, so that it does not depend on a program of the pod.
    """
    root, path = f"/proc/{unbacked.process.pid}/root", f"./{unbacked.path.lstrip('/')}"
    return command("tar --create --file=rescue.tar -C", root, path, node=context.here)


def conflict(context: RuleContext) -> Iterator[Finding]:
    """Yield RBD106 for two writers."""
    writers = conflicting(context.volume, context.holder_verdicts, context.snapshot)
    if not writers:
        return
    volume = context.volume.persistent_volume
    modes = stated("{modes}", modes=volume.access_modes) if volume is not None else "it has no PV"
    unproven = [writer.holder for writer in writers if writer.holder.is_node_probable]
    if unproven:
        yield _unproven_conflict(unproven, writers, modes, context)
        return
    nodes = sorted(str(writer.holder.node) for writer in writers)
    first = _first_to_stop(writers)
    commands = tuple(
        delete_pod(pod)
        for writer in writers
        if first is None or writer in first[0]
        for pod in evidence_of(writer.holder).running
    )
    named = () if first is None else [str(subject_of(writer.holder)) for writer in first[0]]
    advice = (
        stated("Stop {holders:and} first: {}.", first[1], holders=named)
        if first is not None
        else "No observation shows which of them is right: stop all of them."
    )
    yield finding(
        Code.VOLUME_CONFLICT,
        Subject.of_volume(context.name),
        stated(
            "{volume} is held read-write on {nodes} at the same time{}, and its access mode allows "
            "one node ({}). Two writers destroy the file system. {}",
            _by_address(writers),
            modes,
            advice,
            volume=context.name,
            nodes=nodes,
        ),
        evidence=_evidence_of_conflict(writers, context),
        pods=pods_of(writers),
        commands=(
            commands
            or tuple(
                query_on_node(context, str(writer.holder.node))
                for writer in writers
                if writer.holder.mapping is None
            )
        ),
    )


def _unproven_conflict(
    unproven: list[Holder], writers: tuple[HolderVerdict, ...], modes: Words, context: RuleContext
) -> Finding:
    """Return RBD106 if the node of a writer is only probable: which one to stop is not known."""
    nodes = [str(one.holder.node) for one in writers if one.holder not in unproven]
    where = [stated("on {nodes}", nodes=nodes)] if nodes else []
    there = dict.fromkeys(str(holder.node) for holder in unproven)
    return finding(
        Code.VOLUME_CONFLICT,
        Subject.of_volume(context.name),
        stated(
            "{volume} is held read-write by {count} clients at the same time, {}, and its access "
            "mode allows one node ({}). Two writers destroy the file system. Start no pod of the "
            "volume and unmap nothing before you have run rbdagent on {nodes}: {clients} may be "
            "on another machine.",
            joined([*where, *map(probably, unproven)], " and "),
            modes,
            volume=context.name,
            count=len(writers),
            nodes=tuple(there),
            clients=[client_name(holder) for holder in unproven],
        ),
        evidence=_evidence_of_conflict(writers, context),
        pods=pods_of(writers),
        remedy="Find the machine that has the client first: rbdagent on the named node shows "
        "whether a mapping there has it, else the machine with its address has it. Then stop the "
        "pods of the volume on all machines but one, unmap it there, and check the file system "
        "before it is used again.",
        commands=tuple(query_on_node(context, node) for node in there),
        recovery=Recovery(note="both clients keep writing"),
    )


def _by_address(writers: tuple[HolderVerdict, ...]) -> Words:
    """Return which of the nodes the address of a client names, in parentheses; empty if none."""
    nodes = [one.holder.node for one in writers if one.holder.is_node_by_address]
    whose = "its client" if len(nodes) == 1 else "their clients"
    return stated(" ({nodes:and} by the address of {})", whose, nodes=nodes) if nodes else ""


def _evidence_of_conflict(
    writers: tuple[HolderVerdict, ...], context: RuleContext
) -> tuple[str, ...]:
    return (
        *(f"{subject_of(one.holder)}: {one.verdict}, {one.reasons[0]}" for one in writers),
        *(certainty for one in writers if (certainty := _certainty(one.holder, context))),
    )


def _first_to_stop(
    writers: tuple[HolderVerdict, ...],
) -> tuple[tuple[HolderVerdict, ...], str] | None:
    """Return the writers to stop first, and the reason; None if nothing separates the writers.

    A node that Kubernetes no longer uses for the volume, or that Ceph does not show, keeps no other
    node from mapping the image. The controller and the next NodeStage expect the volume on the
    other node.
    """
    for is_wrong, reason in _REASONS_TO_STOP:
        wrong = tuple(writer for writer in writers if is_wrong(writer))
        if wrong and len(wrong) < len(writers):
            return wrong, reason
    return None


_REASONS_TO_STOP: Final[tuple[tuple[Callable[[HolderVerdict], bool], str], ...]] = (
    (
        lambda writer: writer.verdict in {Verdict.ORPHANED, Verdict.PINNED},
        "no pod uses the volume there",
    ),
    (
        lambda writer: writer.verdict is Verdict.RETURNED_DIRTY,
        "the node was out of service, and its volumes were detached",
    ),
    (
        lambda writer: writer.verdict is Verdict.UNWATCHED,
        "it has no watch, so Ceph does not show it to any other node",
    ),
    (
        lambda writer: bool(writer.holder.unknown_pod_uids),
        "its pod is no longer in the API",
    ),
    (
        lambda writer: writer.holder.attachment is None,
        "there is no VolumeAttachment of the volume to its node",
    ),
)
"""In order of priority: the first one that applies to some of the writers, not to all, decides."""


def _certainty(holder: Holder, context: RuleContext) -> str:
    """Return how certain it is that a watcher's node has the image mapped read-write."""
    if holder.mapping is not None or holder.watcher is None:
        return ""
    client, node = f"client.{holder.watcher.client}", holder.node
    published, by = fresh_report(holder, context.snapshot), holder.published_by
    if published is not None and published.read_only is False:
        device = f"{published.device} on {node}"
        return f"certain: {device} is {client}, read-write, according to the agent there"
    if holder.is_node_probable:
        return f"{client} is {probably(holder)}; no agent there has reported it"
    if by is not None:
        return f"{client} is on {node}, but the agent there does not report what it has mapped now"
    return f"probable: {client} has an address of {node}; no agent there has reported it"


def unwatched(context: RuleContext) -> Iterator[Finding]:
    """Yield RBD105 for a writable mapping without a watch."""
    for holder_verdict in context.observed_with(Verdict.UNWATCHED):
        holder = holder_verdict.holder
        pods = evidence_of(holder).running
        sure = holder.mapping is not None and holder.mapping.watch is False
        is_elsewhere = holder.mapping is None and holder.node is not None
        again = query_on_node(context, str(holder.node)) if is_elsewhere else query_again(context)
        act = (*cordon(holder), *(delete_pod(pod) for pod in pods))
        yield finding(
            Code.MAPPING_UNWATCHED,
            subject_of(holder),
            stated(
                "{holder} is writable and invisible to Ceph: its watch is gone. Nothing keeps "
                "another node from mapping the image too. Stop the volume there before it starts "
                "anywhere else.",
                holder=subject_of(holder),
            ),
            evidence=(*holder_verdict.reasons, *identity_lines(context, holder)),
            pods=holder_verdict.pods,
            # A mapping that was removed a moment ago looks the same, except where the kernel itself
            # reports the lost watch: observe it again before the other commands.
            commands=(*act, again) if sure else (again, *act),
        )


def returned_dirty(context: RuleContext) -> Iterator[Finding]:
    """Yield RBD107 for a node that was taken out of service, runs and still holds the volume."""
    for holder_verdict in context.observed_with(Verdict.RETURNED_DIRTY):
        node = holder_verdict.holder.node
        yield finding(
            Code.NODE_RETURNED_DIRTY,
            Subject.of_node(node),
            stated(
                "{node} was taken out of service, but it runs and still holds {volume}. Stop the "
                "workloads on it and reboot it before you remove the taint.",
                node=node,
                volume=context.name,
            ),
            evidence=(*holder_verdict.reasons, *identity_lines(context, holder_verdict.holder)),
            pods=holder_verdict.pods,
            commands=(
                *cordon(holder_verdict.holder),
                over_ssh(str(node), command("systemctl reboot")),
            ),
        )


def lost_pod(context: RuleContext) -> Iterator[Finding]:
    """Yield RBD109 for a container or a path whose pod is not in the API."""
    for holder_verdict in context.holder_verdicts:
        holder = holder_verdict.holder
        if not holder.unknown_pod_uids or holder_verdict.verdict not in (
            Verdict.IN_USE,
            Verdict.RETURNED_DIRTY,
            Verdict.UNWATCHED,
            Verdict.DEAD,
            Verdict.STAGED,
        ):
            continue
        alive = [
            process
            for process in processes_on(evidence_of(holder))
            if process.pod_uid in holder.unknown_pod_uids
        ]
        if (
            not alive
            and holder_verdict.verdict is Verdict.STAGED
            and holder.driver_registered is False
        ):
            # The pod was deleted normally, and only the driver that would unmount it is down.
            continue
        what = "A container still runs on" if alive else "A pod's path still refers to"
        start = _start_kubelet(context, holder)
        forgotten = alive and not start
        yield finding(
            Code.POD_LOST_BY_API,
            subject_of(holder),
            stated(
                "{} {holder}, and its pod ({pods}) is no longer in the API: it was "
                "force-deleted.{} Stop its containers first. Never unmap the device under them.",
                what,
                _FORGOTTEN if forgotten else "",
                holder=subject_of(holder),
                pods=holder.unknown_pod_uids,
            ),
            evidence=(
                *(process_text(process) for process in alive),
                *identity_lines(context, holder),
            ),
            commands=(
                *start,
                *(show_sandbox(uid, holder) for uid in holder.unknown_pod_uids),
            ),
        )


_FORGOTTEN: Final = (
    " kubelet runs. If the container does not end within its grace period, kubelet has forgotten "
    "the pod: end the container with crictl."
)


def _start_kubelet(context: RuleContext, holder: Holder) -> tuple[Command, ...]:
    """Return the command that starts kubelet, unless it runs: then it has forgotten the pod."""
    kubelet = kubelet_process(context.snapshot) if holder.is_local else None
    if isinstance(kubelet, ProcessRef):
        return ()
    return (command("systemctl start kubelet", node=holder.node),)


def lost_pod_elsewhere(context: RuleContext) -> Iterator[Finding]:
    """Yield RBD109 of another node: only its agent's report shows it."""
    message = (
        "A container or a pod's path still refers to {device} on {node}, and the pod is no longer "
        "in the API: it was force-deleted. Stop its containers first. Never unmap the device under "
        "them."
    )
    yield from agent_findings(Code.POD_LOST_BY_API, message, subject_of, context)


def running_without_mapping(context: RuleContext) -> Iterator[Finding]:
    """Yield RBD416 for a pod that runs according to the API, with neither watch nor mapping."""
    if is_read_only(context.volume):
        return
    for holder_verdict in context.holder_verdicts:
        holder = holder_verdict.holder
        if holder.mapping is not None or holder.watcher is not None:
            continue
        if holder_verdict.verdict not in (Verdict.IN_USE, Verdict.UNDETERMINED):
            continue
        if not holder.is_local and not are_watchers_observed(context.volume.image_view):
            continue
        if holder.is_local and _may_be_mapped_from_another_namespace(context):
            continue
        # A pod that was killed may stay in the API long after its volume was unmapped.
        running = [pod for pod in evidence_of(holder).running if not is_terminated(pod)]
        if not running:
            continue
        what: Words = "no mapping of it" if holder.is_local else _no_watch(context)
        yield finding(
            Code.RUNNING_WITHOUT_MAPPING,
            Subject.of_node(holder.node),
            stated(
                "{pods} runs on {node} with {volume}, but there is {}. Observe that node before "
                "any other node gets the volume.",
                what,
                pods=[pod.ref for pod in running],
                node=holder.node,
                volume=context.name,
            ),
            evidence=holder_verdict.reasons,
            pods=holder_verdict.pods,
            commands=() if holder.is_local else (query_on_node(context, str(holder.node)),),
            severity=_severity_of_missing(holder, running, context),
        )


def _may_be_mapped_from_another_namespace(context: RuleContext) -> bool:
    """Return whether this node maps an image that may be the volume's: its namespace is unknown."""
    image = context.volume.image
    mapped = (identity_of_mapping(mapping) for mapping in mappings_of(context.snapshot.node))
    return image is not None and any(
        one is not None and may_be_in_another_namespace(image, one) for one in mapped
    )


_MOST_CLIENTS: Final = 3


def _no_watch(context: RuleContext) -> Words:
    """Return that the pod's node has no known watch; a client of no known node may be on it.

    Its address leads to no Node if the node reaches Ceph from a second network, or if Nodes were
    not observed.
    """
    watchers = (one.holder.watcher for one in _unplaced(context))
    clients = [f"client.{watcher.client} at {watcher.address}" for watcher in watchers if watcher]
    if not clients:
        return "no watch from that node"
    return stated(
        "no watch that is known to be from that node ({clients} may be on it)",
        clients=clients[:_MOST_CLIENTS],
    )


def _severity_of_missing(
    holder: Holder, running: list[Pod], context: RuleContext
) -> Severity | None:
    # Ceph and the node are observed after the API: a terminating pod may have ended in between.
    if all(is_ending_in_time(pod, context) for pod in running):
        return Severity.INFO
    return None if holder.is_local or not _unplaced(context) else Severity.WARNING


def _unplaced(context: RuleContext) -> tuple[HolderVerdict, ...]:
    """Return the watchers whose node is not certain: one of them may be the pod's mapping."""
    return tuple(
        holder_verdict
        for holder_verdict in context.holder_verdicts
        if holder_verdict.holder.watcher
        and (holder_verdict.holder.is_node_probable or not holder_verdict.holder.node)
    )


RULES: Final = (
    Rule(10, not_backed),
    Rule(20, conflict),
    Rule(40, unwatched),
    Rule(50, returned_dirty),
    Rule(90, lost_pod),
    Rule(100, lost_pod_elsewhere),
    Rule(220, running_without_mapping),
)
