"""RBD1xx: rules on the holders of a volume and their verdicts."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final, NamedTuple

from rbdagent.commands import command, kubectl, line_of, over_ssh
from rbdagent.correlate.holders import (
    cluster_with,
    have_containers_ended,
    is_ceph_daemon,
    overlay_node_at,
    runs,
)
from rbdagent.model import (
    Command,
    DeviceKind,
    Finding,
    Holder,
    HolderKind,
    HolderVerdict,
    ImagePresence,
    LifecycleStep,
    Mount,
    NotObserved,
    Pod,
    ProcessRef,
    PublishedFinding,
    Recovery,
    Sentence,
    Severity,
    Verb,
    Verdict,
    VolumeAttachment,
    observed_of,
)
from rbdagent.parse.faults import rank_of
from rbdagent.parse.foreign import foreign, foreign_name
from rbdagent.parse.kubelet import pod_uid_of_path
from rbdagent.parse.recognised import Rank
from rbdagent.rules.context import (
    RuleContext,
    at_least,
    check_here,
    delete_pod,
    finding,
    identity_lines,
    placed_pod,
    pod_by_uid,
    query_again,
    query_on_node,
    reported_finding,
    show_sandbox,
    subject_of,
    then_starts,
    unknown_finding,
)
from rbdagent.rules.dead_mapping import pods_of_dead_nbd
from rbdagent.rules.entry import Entry
from rbdagent.rules.facts import is_being_torn_down, ownership_begun
from rbdagent.rules.foreign_clusters import external_holders
from rbdagent.rules.image_renamed import renamed
from rbdagent.rules.node import hanging
from rbdagent.rules.pod_events import (
    decisive_pod_events,
    has_any_waited,
    has_waited,
    is_about_hanging_call,
    knows_every_user,
    waiters,
)
from rbdagent.rules.stacked import release, show_stacked, strange_devices
from rbdagent.rules.termination import fencing
from rbdagent.verdicts.ceph_daemons import not_excluded, supposed
from rbdagent.verdicts.coverage import missing_of_nodes
from rbdagent.verdicts.evidence import (
    Evidence,
    evidence_of,
    foreign_mounts,
    pins,
    pod_names,
    processes_on,
    users_without_pod,
)
from rbdagent.verdicts.timing import MOVING, RETRY_S, age, age_text
from rbdagent.verdicts.volume_traces import left_here, listed_here
from rbdagent.verdicts.volume_verdict import (
    NOT_BACKED,
    PODS_ELSEWHERE,
    attached_on_paper,
    is_left_behind,
    maps_by_nbd,
    may_be_shared,
    missing_sources,
    sharing,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

ENTRIES: Final = (
    Entry(
        "RBD100",
        "InUse",
        Severity.INFO,
        "A pod uses the volume, and the volume is mapped on the pod's node as expected.",
        cause="A pod runs with the volume.",
        evidence="The pod in the API, the container's own mount, or an open device. If the API was "
        "not observed, a container that has the device mounted or open counts as its user.",
        risk="None. Unmapping the volume would break the pod.",
        remedy="Nothing to do. To move the volume, delete or scale down the pod that uses it.",
        recovery=None,
    ),
    Entry(
        "RBD101",
        "MappingOrphaned",
        Severity.ERROR,
        "The image is mapped on a node, and nothing on that node uses it.",
        cause="kubelet's NodeUnstage kept failing, and kubelet restarted and no longer tracks the "
        "volume; or ceph-csi's rollback could not unmap and deleted its image-meta.json; or the "
        "VolumeAttachment or its finalizer was removed by hand; or the map completed after its "
        "timeout.",
        evidence="rbdagent checked every mount namespace, open descriptor, device-mapper, loop and "
        "swap device, kernel file system, operation in progress, pod and VolumeAttachment. None of "
        "them uses the device. A single observation does not show how long this has been so.",
        risk="No other node gets the volume: its pods wait with Multi-Attach or 'still being "
        "used'. No component removes the mapping once kubelet no longer tracks the volume.",
        remedy=(
            "On its node, run `",
            Verb("unmap"),
            (
                "`: it prints its plan, or every reason not to unmap. With --yes it executes the "
                "plan. By hand: run rbdagent a second time. If the result is the same, run a plain "
                "`rbd unmap` of the device, never with force. The kernel refuses (EBUSY) while any "
                "process has the device open, and flushes at the last close."
            ),
        ),
        recovery=Recovery(note="kubelet no longer tracks it; an agent in mode unmap unmaps it"),
        step=LifecycleStep.UNSTAGE,
    ),
    Entry(
        "RBD102",
        "MappingPinned",
        Severity.ERROR,
        "Kubernetes no longer uses the volume, but something on the node keeps its device open.",
        cause="A bind mount of the volume in a container's mount namespace; a process with its "
        "working directory or an open file on the volume, even if the volume is no longer mounted "
        "anywhere; device-mapper or LUKS, a loop device, swap; a file system that was lazily "
        "unmounted.",
        evidence="Mounts in all namespaces, /proc/PID/{cwd,root,fd,map_files}, sysfs holders, "
        "/proc/swaps, and the kernel's own list of live file systems.",
        risk="`rbd unmap` fails with EBUSY, and kubelet retries indefinitely, at most 2m2s apart. "
        "The next pod gets Multi-Attach. A forced unmap loses the data that is not yet written.",
        remedy="End the process or restart the pod that keeps the device open. kubelet then unmaps "
        "the device with its next retry, if it still tracks the volume. If only the kernel holds "
        "the device, drain and reboot the node.",
        recovery=Recovery(
            actor="kubelet", condition="nothing keeps the device open", within_s=RETRY_S
        ),
        step=LifecycleStep.UNSTAGE,
    ),
    Entry(
        "RBD110",
        "StagingLeftMounted",
        Severity.ERROR,
        "Only the staging mount of the volume is left on the node.",
        cause="kubelet restarted between NodeUnpublish and NodeUnstage, or the unmount was busy "
        "and kubelet then restarted (kubernetes#121937).",
        evidence="A mount at the staging path; no pod, no pod path, no process that has the device "
        "open, and no VolumeAttachment that is still needed.",
        risk="The volume stays mapped indefinitely, and no other node gets it.",
        remedy="On the node, in this order: umount (never lazily), luksClose if it is encrypted, "
        "rbd unmap. Stop at the first refusal. Never recreate vol_data.json by hand.",
        recovery=Recovery(
            note="kubelet no longer tracks it; an agent with --unmap-staged unmounts and unmaps it"
        ),
        step=LifecycleStep.UNSTAGE,
    ),
    Entry(
        "RBD114",
        "VolumeShared",
        Severity.INFO,
        "Several nodes hold the volume, and its access mode allows that.",
        cause="ReadOnlyMany, ReadWriteMany on a raw block device, or a live migration.",
        evidence="Access modes and volume mode of the PV.",
        risk="None.",
        remedy="Nothing to do.",
        recovery=None,
    ),
    Entry(
        "RBD115",
        "ForeignHolder",
        Severity.WARNING,
        "A client that is not a mapping of a Kubernetes node holds the image.",
        cause="qemu or another librbd program, an `rbd` shell, a mapping made by hand, another "
        "cluster that uses the same pool.",
        evidence="The client's address and id match no mapping of this node and no node; or "
        "nothing shows that Kubernetes created the mapping.",
        risk="ceph-csi refuses to stage the volume while this client watches the image.",
        remedy="Find the owner of the client by its address. rbdagent never acts on this client.",
        recovery=Recovery(
            actor="kubelet", condition="that client has released the image", within_s=RETRY_S
        ),
        step=LifecycleStep.STAGE,
    ),
    Entry(
        "RBD116",
        "CephDaemonWatches",
        Severity.INFO,
        "A Ceph daemon watches the image as part of its work.",
        cause="mgr tasks (flatten, trash, snapshots) or mirroring.",
        evidence="The watcher's client is the mgr's own (`mgr dump`), or it watches the pool's "
        "`rbd_mirroring`, as only rbd-mirror does. Where these were not observed: probably a "
        "daemon, if no other librbd client watches and the mgr has a task of the image, or the "
        "image is mirrored.",
        risk="None: mgr's watches are short; rbd-mirror keeps one per mirrored image. A client "
        "that is only probably a daemon may be any librbd program: while it watches, the volume "
        "does not count as free.",
        remedy=(
            "Nothing to do. If mgr's watch stays, check `ceph rbd task list`. `",
            Verb("check"),
            "` shows the caps that are needed to recognise mgr's clients.",
        ),
        recovery=None,
    ),
    Entry(
        "RBD117",
        "WatchPassedBy",
        Severity.INFO,
        "A watch was present in one observation and gone in the next.",
        cause="ceph-csi opens the image read-write for about 0.15 s to check whether it is in use, "
        "and repeats this check while NodeStage waits.",
        evidence="Two observations of the watchers.",
        risk="None: the client does not hold the image.",
        remedy="Nothing to do.",
        recovery=None,
    ),
    Entry(
        "RBD118",
        "NoHolder",
        Severity.INFO,
        "No client holds the image.",
        cause="No watch on the header, no mapping on any node, no running pod, no attachment.",
        evidence="The watchers according to Ceph, this node's sysfs, a report of each other node's "
        "agent that is at most ten minutes old, and the API. Each of them was observed.",
        risk="A mapping on a machine that is not a node of the cluster, or whose Node was deleted, "
        "shows only on that machine if it is read-only or has no watch. The clients of a mirrored "
        "image in the peer cluster are not seen.",
        remedy="If a pod still waits, its events show what it waits for.",
        recovery=None,
    ),
    Entry(
        "RBD119",
        "HolderUndetermined",
        Severity.WARNING,
        "What a holder does, or whether a holder exists, could not be observed from here.",
        cause="The holder is on another node, or a required source was not observed: a node "
        "without a recent report of its agent may have the image mapped without a watch. Or the "
        "agent there is newer, and reports a finding that this version of rbdagent does not know.",
        evidence="The missing sources are listed with the holder.",
        risk="Unmapping on a guess destroys data.",
        remedy="Run rbdagent on the holder's own node.",
        recovery=None,
    ),
    Entry(
        "RBD120",
        "BetweenSteps",
        Severity.INFO,
        "kubelet or the CSI driver is between two steps of this volume.",
        cause="A stage or unstage is in progress, or was until recently.",
        evidence="A waiting or terminating pod, an operation in progress, or an attachment younger "
        "than the grace period of ten minutes.",
        risk="Interfering makes the step fail.",
        remedy="Wait, then run rbdagent again.",
        recovery=Recovery(actor="kubelet and the CSI driver"),
    ),
    Entry(
        "RBD125",
        "ClientOnTwoNodes",
        Severity.ERROR,
        "Several nodes have the same client, by reports or by its address, and it is on one node.",
        cause="An agent reports a client that is not its own: it, or its node, is compromised. Or "
        "a node got another name, and the report under its former name is left. Or the traffic of "
        "a node to Ceph leaves through another node, whose address Ceph then sees.",
        evidence="Client id and address with nonce are equal in the RBDMappings of these nodes, or "
        "in one of them and in the sysfs of the node that was observed; or the address is the "
        "InternalIP of another Node than the one that reports it. Ceph gives no id twice.",
        risk="The reports of these nodes cannot be relied on: a holder may be on either node. A "
        "report of danger for the data still counts.",
        remedy="Run rbdagent on each of these nodes: there it reads the kernel, not the reports. "
        "Treat a node that reports the client and does not have it as compromised. After a change "
        "of a node's name, delete the RBDNode and the RBDMappings of the former name.",
        recovery=Recovery(note="an agent corrects only its own reports"),
    ),
    # kubevirt#11375: a second machine starts on a ReadWriteMany disk without a word.
    Entry(
        "RBD128",
        "TwoMachinesOnOneDisk",
        Severity.WARNING,
        "Several virtual machines use one disk, and it is no migration of one machine.",
        cause="Two VirtualMachines name one claim, or a machine was restored or cloned beside its "
        "original. A live migration has two pods of one machine.",
        evidence="The VirtualMachineInstances that own the pods that run with the volume.",
        risk="Each guest has its own cache of the file system: two of them destroy it.",
        remedy="Stop one of the machines, and check the file system in the guest. If both guests "
        "run a cluster file system, nothing is wrong: both machines then mark the disk as "
        "shareable.",
        recovery=Recovery(note="no controller stops a machine for its disk"),
        step=LifecycleStep.USE,
    ),
)

_RETRY = "kubelet retries automatically, at most 2m2s apart"
_BY_KUBELET_THERE = Recovery(
    actor="kubelet and the CSI driver there", note="unless kubelet no longer tracks the volume"
)


def pinned(context: RuleContext) -> Iterator[Finding]:
    """Yield RBD102, with what keeps the device open and what happens after that ends."""
    for holder_verdict in context.observed_with(Verdict.PINNED, Verdict.STAGED):
        holder = holder_verdict.holder
        found = evidence_of(holder)
        kept = pins(found, holder) if holder.mapping is not None else ()
        if not kept:
            continue
        after, recovery = once_released(holder)
        devices = strange_devices(holder)
        # A file system that is left is there because something uses it: it counts only alone.
        others = len(users_without_pod(found, holder)) - 1
        count = f" (and {others} more)" if others > 0 else ""
        yield finding(
            "RBD102",
            subject_of(holder),
            f"{subject_of(holder)} is kept open: {kept[0]}{count}. {after}"
            f"{then_starts(context, holder.node)}",
            evidence=(*kept, *identity_lines(context, holder)),
            remedy=release(devices, str(holder.node)) if devices and not found.openers else "",
            commands=(*_unpinning(context, holder, found), query_again(context)),
            severity=Severity.INFO if is_being_torn_down(context, holder) else None,
            recovery=recovery,
        )


_UNKNOWN_TO_KUBELET = "if kubelet still tracks the volume, which was not observed"


def once_released(holder: Holder) -> tuple[str, Recovery]:
    """Return what happens when nothing keeps the device open, as a sentence and as recovery."""
    released = "nothing keeps the device open"
    match _is_tracked(holder):
        case True:
            return (
                f"When that ends, {_RETRY}, and the volume becomes free.",
                Recovery(actor="kubelet", condition=released, within_s=RETRY_S),
            )
        case False:
            return (
                (
                    "kubelet no longer tracks this volume. When that ends, run rbdagent again, and "
                    "unmap the device if it is Orphaned then."
                ),
                Recovery(note="kubelet no longer tracks the volume"),
            )
        case None:
            return (
                (
                    "Whether kubelet still tracks this volume was not observed. When that ends, "
                    "wait two minutes, run rbdagent again, and unmap the device if it is Orphaned "
                    "then."
                ),
                Recovery(actor="kubelet", condition=released, note=_UNKNOWN_TO_KUBELET),
            )


def _is_tracked(holder: Holder) -> bool | None:
    """Return whether kubelet on the holder's node still tries to unstage the volume.

    kubelet lists the volume in volumesInUse until NodeUnstage has succeeded, and only then does the
    controller delete the VolumeAttachment. A kubelet that restarts in between finds neither
    (recording 13-after-kubelet-restart).
    """
    attachment, listed = holder.attachment, holder.in_volumes_in_use
    if listed is True or (
        isinstance(attachment, VolumeAttachment) and attachment.deleting_since is None
    ):
        return True
    if isinstance(attachment, NotObserved) or isinstance(listed, NotObserved):
        return None
    return False


def _unpinning(context: RuleContext, holder: Holder, found: Evidence) -> tuple[Command, ...]:
    """Return the commands that release the device.

    A process that belongs to no pod is shown, never killed.
    """
    commands = [
        shown
        for mount in (*foreign_mounts(found, holder), *found.other_mounts)
        if not mount.namespace.is_host
        for shown in _in_namespace(mount, context, holder)
    ]
    for process in processes_on(found):
        pod = pod_by_uid(process.pod_uid, context)
        commands.append(_show(process, holder) if pod is None else delete_pod(pod))
    commands += [show_stacked(stacked, holder) for stacked in found.stacked]
    commands += [
        command("findmnt", mount.path, node=holder.node)
        for mount in found.other_mounts
        if mount.namespace.is_host
    ]
    if not commands and found.traces:
        drain = ("--ignore-daemonsets",)
        commands.append(kubectl("drain", str(holder.node), options=drain))
    return tuple(commands)


def _in_namespace(mount: Mount, context: RuleContext, holder: Holder) -> Iterator[Command]:
    """Yield what shows a mount in another namespace: its process, the mount, its pod."""
    process = mount.namespace.process
    yield _show(process, holder)
    yield command("findmnt --task", str(process.pid), mount.path, node=holder.node)
    pod = pod_by_uid(process.pod_uid, context)
    if pod is not None:
        yield kubectl("describe pod", pod.ref.name, namespace=pod.ref.namespace)
    elif process.pod_uid is not None:
        yield show_sandbox(process.pod_uid, holder)


def _show(process: ProcessRef, holder: Holder) -> Command:
    return command("ps -o pid,user,lstart,args -p", str(process.pid), node=holder.node)


def orphaned(context: RuleContext) -> Iterator[Finding]:
    """Yield RBD101 for a mapping that nothing uses and no other component removes."""
    for holder_verdict in context.observed_with(Verdict.ORPHANED):
        holder = holder_verdict.holder
        found = evidence_of(holder)
        if holder.mapping is None or found.staging_mounts or found.own_luks:
            continue
        unmap = _ask_to_unmap(context, holder)
        again = query_again(context)
        has_attachment = isinstance(holder.attachment, VolumeAttachment)
        yield finding(
            "RBD101",
            subject_of(holder),
            f"{subject_of(holder)} is mapped, and nothing there uses it. {_why_orphaned(holder)}"
            f"{then_starts(context, holder.node)}",
            evidence=(*holder_verdict.reasons, *identity_lines(context, holder)),
            remedy=_orphan_remedy(holder),
            recovery=recovery_of_orphan(holder),
            commands=(again, *unmap) if has_attachment else (*unmap, again),
        )


def recovery_of_orphan(holder: Holder) -> Recovery | None:
    """Return who removes an orphaned mapping; None if no component does."""
    match _is_tracked(holder):
        case True:
            once = "its next NodeUnstage succeeds"
            return Recovery(actor="kubelet", condition=once, within_s=RETRY_S)
        case False:
            return None
        case None:
            return Recovery(actor="kubelet", note=_UNKNOWN_TO_KUBELET)


def _ask_to_unmap(context: RuleContext, holder: Holder) -> tuple[Command, ...]:
    """Return the commands that print the plan and execute it.

    The second command first observes the device for the grace period if no agent has done so.
    """
    mapping, volume = holder.mapping, context.volume.persistent_volume
    if mapping is None or mapping.kind is not DeviceKind.KRBD:
        return ()
    mapped = [
        holder_verdict
        for holder_verdict in context.holder_verdicts
        if holder_verdict.holder.mapping is not None
    ]
    by_name = volume is not None and len(mapped) == 1
    target = context.ask if by_name else mapping.device
    execute = ("--wait", "--yes")
    return (
        command("rbdagent unmap", target, node=holder.node),
        command("rbdagent unmap", target, options=execute, node=holder.node),
    )


def _unmap(holder: Holder) -> tuple[Command, ...]:
    """Return the command of a plain unmap by device.

    There is none for rbd-nbd: nothing prevents the disconnect of a device that is in use.
    """
    mapping = holder.mapping
    if mapping is None or mapping.kind is not DeviceKind.KRBD:
        return ()
    return (command("rbd unmap", mapping.device, node=holder.node),)


def _why_orphaned(holder: Holder) -> str:
    attachment = holder.attachment
    if isinstance(attachment, VolumeAttachment) and attachment.deleting_since is None:
        return (
            "Its VolumeAttachment still exists: kubelet has not completed NodeUnstage, and "
            f"{_RETRY}."
        )
    if isinstance(attachment, VolumeAttachment):
        return "Its VolumeAttachment is being deleted: the controller detaches the volume."
    if holder.staging == ():
        return (
            "There is no staging directory and no image-meta.json either: a failed stage left the "
            "mapping and could not unmap it, or an unstage skipped it. No component will remove it."
        )
    if holder.in_volumes_in_use is True:
        return (
            f"Its VolumeAttachment is gone, and {holder.node} still lists it in volumesInUse: "
            f"kubelet has not completed NodeUnstage, and {_RETRY}."
        )
    return (
        "kubelet no longer tracks it: its staging directory is left, its VolumeAttachment is gone. "
        "No component will remove it."
    )


def _orphan_remedy(holder: Holder) -> Sentence:
    if holder.mapping is not None and holder.mapping.kind is DeviceKind.NBD:
        return (
            "An rbd-nbd device can be disconnected while it is in use. Run rbdagent again to make "
            "sure that the device is still Orphaned, then unmap it by hand."
        )
    device = holder.mapping.device if holder.mapping is not None else "it"
    unmap = (
        Verb("unmap"),
        (
            " prints its plan, or every reason not to unmap. It executes the plan only with --yes. "
            "To unmap by hand, run rbdagent again immediately before, then "
            f"{line_of(command('rbd unmap', device))}. The kernel refuses (EBUSY) if any process "
            "has the device open: then stop, and never use force."
        ),
    )
    if isinstance(holder.attachment, VolumeAttachment):
        return (
            "Run rbdagent again in two minutes. If it is still Orphaned, unmap it. ",
            *unmap,
            " kubelet's next retry then succeeds, and the controller detaches.",
        )
    return unmap


def staging_left(context: RuleContext) -> Iterator[Finding]:
    """Yield RBD110, with the commands in order: umount, luksClose, unmap."""
    for holder_verdict in context.observed_with(Verdict.ORPHANED):
        holder = holder_verdict.holder
        found = evidence_of(holder)
        staged = found.staging_mounts
        if holder.mapping is None or not (staged or found.own_luks):
            continue
        left = "is mounted only at its staging path" if staged else "still has its LUKS mapping"
        yield finding(
            "RBD110",
            subject_of(holder),
            f"{subject_of(holder)} {left}, and no pod uses it. "
            f"kubelet will not remove it.{then_starts(context, holder.node)}",
            evidence=(*holder_verdict.reasons, *identity_lines(context, holder)),
            commands=(
                query_again(context),
                *(command("umount", mount.path, node=holder.node) for mount in staged),
                *(
                    command("cryptsetup luksClose", luks.label or luks.name, node=holder.node)
                    for luks in found.own_luks
                ),
                *_unmap(holder),
            ),
        )


def client_on_two_nodes(context: RuleContext) -> Iterator[Finding]:
    """Yield RBD125 for a client that several nodes have, by reports or by its address."""
    clients: dict[str, Holder] = {}
    for holder_verdict in context.holder_verdicts:
        if holder_verdict.holder.claimed_by:
            clients.setdefault(_client_name(holder_verdict.holder), holder_verdict.holder)
    for client, holder in clients.items():
        nodes = holder.claimed_by
        yield finding(
            "RBD125",
            client,
            f"{' and '.join(nodes)} have the same client {client} according to its address and "
            "what agents report, and a client is on one node. A report is wrong, or the address is "
            "that of a gateway: observe these nodes before you rely on either.",
            evidence=identity_lines(context, holder),
            commands=tuple(query_on_node(context, node) for node in nodes if node != context.here),
        )


def _client_name(holder: Holder) -> str:
    """Return the client of a holder: ``client.4154``."""
    known = (holder.mapping, holder.published)
    ids = (found.client_id for found in known if found is not None)
    client = holder.watcher.client if holder.watcher is not None else next(ids, None)
    return f"client.{client}"


def undetermined(context: RuleContext) -> Iterator[Finding]:
    """Yield RBD119 for a holder whose use is unknown, with the nodes on which to observe it."""
    outside = external_holders(context)
    for holder_verdict in context.observed_with(Verdict.UNDETERMINED):
        holder = holder_verdict.holder
        if holder_verdict in outside:
            # RBD771, RBD773 or RBD774 reports this client.
            continue
        if holder.mapping is None and holder.watcher is None and holder.published is None:
            continue
        if holder.is_local and holder.mapping is None:
            continue
        is_transient = _is_unmap_expected(holder, context)
        shares = _shares(holder, context)
        if holder.is_local:
            message = (
                f"The use of {subject_of(holder)} could not be fully observed: do not unmap it."
            )
            commands: tuple[Command, ...] = (check_here(context),)
        elif holder.node is not None and holder.watcher is None:
            message = (
                f"{subject_of(holder)} may still have {context.name} mapped: "
                f"{holder_verdict.reasons[0]}. "
                f"Do not start the volume elsewhere before you have run rbdagent there."
                f"{then_starts(context, holder.node)}"
            )
            commands = (query_on_node(context, holder.node),)
        elif holder.node is not None:
            soon = " kubelet there may be about to unmap it." if is_transient else ""
            message = (
                f"{subject_of(holder)} holds {context.name}. Its use can be observed only on that "
                f"node.{soon}{then_starts(context, holder.node)}"
            )
            commands = (query_on_node(context, holder.node),)
        else:
            likely = _overlay_node(holder, context)
            where = (
                ", and no known node has that address. Find the machine that has it."
                if likely is None
                else f". Its address is most likely that of {likely} in the overlay network of the "
                "cluster."
            )
            message = (
                f"{subject_of(holder)} holds {context.name}{where}{then_starts(context, None)}"
            )
            commands = (
                _where_to_look(context) if likely is None else (query_on_node(context, likely),)
            )
        guess = supposed(holder, context.volume)
        yield finding(
            "RBD119",
            subject_of(holder),
            f"{message} It is {guess}." if guess else message,
            evidence=(
                *holder_verdict.reasons,
                *identity_lines(context, holder),
                *(fencing(context, holder) if holder.node is None else ()),
            ),
            remedy=_remedy_of_unknown(holder, context) if holder.node is None else "",
            commands=commands,
            severity=Severity.INFO if is_transient or shares else None,
            recovery=_BY_KUBELET_THERE if is_transient else None,
        )


def _overlay_node(holder: Holder, context: RuleContext) -> str | None:
    watcher = holder.watcher
    return None if watcher is None else overlay_node_at(watcher.address, context.snapshot)


def _remedy_of_unknown(holder: Holder, context: RuleContext) -> str:
    """Return how to find the machine of a client whose address no Node lists, and what then."""
    ip = holder.watcher.address.ip if holder.watcher is not None else "of the client"
    likely = _overlay_node(holder, context)
    find = (
        f"Find the machine that has the address {ip}: `ip -br address` on a node also shows second "
        "networks and overlays, which no Node lists; else it is a machine outside this cluster."
        if likely is None
        else f"Observe {likely}, which has the address {ip} in the overlay network: if no mapping "
        "there is of this client, it is a machine outside this cluster."
    )
    return (
        f"{find} Release the image there: end what uses it, and then unmap it. The watch of a "
        "machine that is off ends after 30 s."
    )


_FEW_NODES: Final = 3


def _where_to_look(context: RuleContext) -> tuple[Command, ...]:
    """Return the commands for the nodes that an unknown client may be on; none for many nodes."""
    if candidates := _candidates(context):
        return tuple(query_on_node(context, node) for node in candidates)
    if len(context.kube.nodes) > _FEW_NODES + 1:
        return ()
    others = sorted({*context.kube.node_by_name} - {context.here})
    return tuple(over_ssh(node, command("ip -br address")) for node in others)


def _shares(holder: Holder, context: RuleContext) -> bool:
    """Return whether a holder on another node is one of several that the access mode allows.

    A holder without a VolumeAttachment is not: the control plane knows of no use there.
    """
    return (
        not holder.is_local
        and holder.node is not None
        and holder.kind in (HolderKind.KRBD, HolderKind.NBD)
        and holder.attachment is not None
        and may_be_shared(context.volume)
    )


def _is_unmap_expected(holder: Holder, context: RuleContext) -> bool:
    """Return whether kubelet there may be about to unmap a volume that no pod uses any more.

    kubelet unstages after the pod is gone from the API, and the controller detaches after that:
    whenever a pod moves or ends, the watch and the VolumeAttachment remain for some seconds.
    """
    attachment, is_librbd = holder.attachment, holder.kind is HolderKind.LIBRBD
    return (
        (holder.kind is HolderKind.KRBD or (is_librbd and maps_by_nbd(context.volume)))
        and not holder.is_local
        and isinstance(attachment, VolumeAttachment)
        and not attachment.detach_error
        and knows_every_user(context)
        and not has_any_waited(context.volume.waiting_pods, context.snapshot, MOVING)
    )


def published(context: RuleContext) -> Iterator[Finding]:
    """Yield RBD101 and RBD102 of another node, as its own agent reports them."""
    for verdict, code in ((Verdict.ORPHANED, "RBD101"), (Verdict.PINNED, "RBD102")):
        for holder_verdict in context.observed_with(verdict):
            holder = holder_verdict.holder
            if holder.mapping is not None or holder.published is None or holder.node is None:
                continue
            yield finding(
                code,
                subject_of(holder),
                f"{holder.published.device} on {holder.node} is {verdict}, according to the "
                f"agent there.{then_starts(context, holder.node)}",
                evidence=(*holder_verdict.reasons, *identity_lines(context, holder)),
                commands=(query_on_node(context, holder.node),),
                recovery=once_released(holder)[1]
                if verdict is Verdict.PINNED
                else recovery_of_orphan(holder),
            )


def reported(context: RuleContext) -> Iterator[Finding]:
    """Yield what another node's agent reports of its mapping: the same sentence as on that node."""
    for holder_verdict in context.holder_verdicts:
        holder = holder_verdict.holder
        found = reported_finding(holder, context.snapshot)
        if holder.published is None or holder.node is None:
            continue
        if unknown := unknown_finding(holder, context.snapshot):
            yield _unknown(unknown, holder_verdict, context)
        if found is None:
            continue
        is_leading = found.code == NOT_BACKED or holder_verdict.reported is not None
        # Ceph shows here too that the image was renamed, and which image the name leads to.
        is_shown = found.code == "RBD123" and subject_of(holder) in {
            one.subject for one in renamed(context)
        }
        if is_leading and not is_shown:
            yield finding(
                found.code,
                subject_of(holder),
                f"{found.message}{then_starts(context, holder.node)}",
                evidence=(*holder_verdict.reasons, *identity_lines(context, holder)),
                commands=(query_on_node(context, holder.node),),
                severity=at_least(
                    _least_severity(found.code, holder_verdict, context), found.severity
                ),
                recovery=_recovery_elsewhere(holder_verdict),
            )
        for code in holder.published.findings:
            if code in _ALSO_REPORTED and not (is_leading and code == found.code):
                yield finding(
                    code,
                    subject_of(holder),
                    f"{holder.published.device} on {holder.node} has another problem, {code}, as "
                    f"the agent there reports.{then_starts(context, holder.node)}",
                    evidence=identity_lines(context, holder),
                    commands=(query_on_node(context, holder.node),),
                )


def _unknown(
    found: PublishedFinding, holder_verdict: HolderVerdict, context: RuleContext
) -> Finding:
    """Return RBD119 for a finding that only a newer version of rbdagent knows."""
    holder = holder_verdict.holder
    code, severity = foreign_name(found.code), at_least(Severity.WARNING, found.severity)
    return finding(
        "RBD119",
        subject_of(holder),
        f"The agent on {holder.node} reports {code} ({severity}), which this version of "
        f"rbdagent does not know: {foreign(found.message.rstrip('.'))}.",
        evidence=(*holder_verdict.reasons, *identity_lines(context, holder)),
        commands=(query_on_node(context, str(holder.node)),),
        severity=severity,
    )


def _least_severity(code: str, holder_verdict: HolderVerdict, context: RuleContext) -> Severity:
    """Return the least severity that the rule of a code gives, whatever another agent reports."""
    from rbdagent.rules import FINDINGS

    if code == "RBD104":
        is_unused = is_left_behind(holder_verdict) and not pods_of_dead_nbd(holder_verdict, context)
        return Severity.WARNING if is_unused else FINDINGS[code].severity
    # Of RBD123, it is that of a PV whose image does not exist.
    return Severity.ERROR if code == "RBD123" else FINDINGS[code].severity


def _recovery_elsewhere(holder_verdict: HolderVerdict) -> Recovery | None:
    """Return who recovers a holder of another node; None if the entry of the finding has it."""
    match holder_verdict.verdict:
        case Verdict.PINNED:
            return once_released(holder_verdict.holder)[1]
        case Verdict.ORPHANED:
            return recovery_of_orphan(holder_verdict.holder)
        case _:
            return None


_ALSO_REPORTED: Final = frozenset({"RBD101", "RBD102", "RBD103", "RBD104", "RBD105", "RBD110"})
"""Codes of a mapping that are shown beside the one that explains the verdict of its agent."""


def _candidates(context: RuleContext) -> tuple[str, ...]:
    """Return the nodes where an unknown client may run: attached, or with a pod of the volume."""
    nodes = {attachment.node_name for attachment in observed_of(context.volume.attachments)}
    for holder_verdict in context.holder_verdicts:
        pods = observed_of(holder_verdict.holder.pods)
        nodes |= {pod.node_name for pod in pods if pod.node_name and runs(pod)}
    return tuple(sorted(nodes - {context.here}))


def shared(context: RuleContext) -> Iterator[Finding]:
    """Yield RBD114 for several holders that the access mode allows."""
    if context.verdict is not Verdict.SHARED:
        return
    nodes = ", ".join(
        sorted(
            str(holder_verdict.holder.node) for holder_verdict in sharing(context.holder_verdicts)
        )
    )
    volume = context.volume.persistent_volume
    modes = ", ".join(volume.access_modes) if volume is not None else "unknown"
    machines = _machines(context)
    if len(machines) > 1:
        named = ", ".join(f"{name} ({placed_pod(pod)})" for name, pod in machines.items())
        yield finding(
            "RBD128",
            context.name,
            f"{len(machines)} virtual machines use one disk: {named}. Only the migration of one "
            "machine has two pods on its disk, and these are different machines: stop one of them, "
            "unless both mark the disk as shareable.",
            evidence=tuple(f"pod {pod.ref} is of {name}" for name, pod in machines.items()),
            commands=tuple(
                kubectl("describe pod", pod.ref.name, namespace=pod.ref.namespace)
                for pod in machines.values()
            ),
        )
        return
    yield finding(
        "RBD114",
        context.name,
        f"{context.name} is in use on {nodes}; its access mode ({modes}) allows that.",
        evidence=tuple(
            holder_verdict.reasons[0] for holder_verdict in sharing(context.holder_verdicts)
        ),
    )


_MACHINE: Final = "VirtualMachineInstance/"


def _machines(context: RuleContext) -> dict[str, Pod]:
    """Return the virtual machines whose pods run with the volume, each with one of its pods."""
    found: dict[str, Pod] = {}
    for pod in context.volume.pods:
        if _machine_of(pod) and runs(pod):
            found.setdefault(f"{pod.ref.namespace}/{_machine_of(pod)}", pod)
    return found


def _machine_of(pod: Pod) -> str:
    owners = (name for name in pod.owners if name.startswith(_MACHINE))
    return next(owners, "").removeprefix(_MACHINE)


def foreign_client(context: RuleContext) -> Iterator[Finding]:
    """Yield RBD115, RBD116 and RBD117 for clients that are not mappings of Kubernetes."""
    for holder_verdict in context.observed_with(Verdict.FOREIGN):
        holder = holder_verdict.holder
        if holder.transient:
            yield finding(
                "RBD117",
                subject_of(holder),
                f"{subject_of(holder)} opened the image for a moment: it does not hold it.",
                evidence=holder_verdict.reasons,
            )
        elif is_ceph_daemon(holder):
            yield finding(
                "RBD116",
                subject_of(holder),
                f"{subject_of(holder)} is {holder_verdict.reasons[0]}: this is expected.",
                evidence=holder_verdict.reasons,
            )
        elif holder.probable_kind is not None:
            yield finding(
                "RBD116",
                subject_of(holder),
                f"{subject_of(holder)} is {supposed(holder, context.volume)}. Any other librbd "
                "client would look the same.",
                evidence=(*holder_verdict.reasons, *not_excluded(context.volume, context.snapshot)),
                commands=(check_here(context),),
                severity=Severity.WARNING if context.volume.waiting_pods else None,
            )
        else:
            blocks = bool(context.volume.waiting_pods)
            is_librbd = holder.kind is HolderKind.LIBRBD
            yield finding(
                "RBD115",
                subject_of(holder),
                f"{subject_of(holder)} holds the image and is not a mapping of Kubernetes: find "
                f"its owner{(is_librbd and _unknown_daemon(context)) or _NOT_OURS}"
                f"{then_starts(context, None)}",
                evidence=(
                    *holder_verdict.reasons,
                    *identity_lines(context, holder),
                    *(not_excluded(context.volume, context.snapshot) if is_librbd else ()),
                ),
                severity=Severity.ERROR if blocks else None,
            )


_NOT_OURS: Final = ". rbdagent does not act on it."


def _unknown_daemon(context: RuleContext) -> str:
    """Return which of Ceph's daemons a librbd client may be, and what would tell."""
    view = context.volume.image_view
    cluster = cluster_with(view.fsid if view is not None else None, context.snapshot)
    unread = None if cluster is None else cluster.services
    if not isinstance(unread, NotObserved):
        return ""
    return f" (ceph-mgr? {unread.hint})." if unread.hint else ""


def between_steps(context: RuleContext) -> Iterator[Finding]:
    """Yield RBD120 for a holder between two steps."""
    staged = [*context.observed_with(Verdict.STAGED)]
    explained = _explained_nodes(context) if staged else set()
    for holder_verdict in staged:
        holder = holder_verdict.holder
        if holder.driver_registered is False or holder.node in explained:
            continue
        advice = _WAIT if _is_published(context, holder) else _advice(context, holder.node)
        yield finding(
            "RBD120",
            subject_of(holder_verdict.holder),
            f"{subject_of(holder_verdict.holder)} is between two steps: "
            f"{holder_verdict.reasons[0]}. {advice.sentence}",
            severity=advice.severity,
            remedy=advice.remedy,
            evidence=(*holder_verdict.reasons, *identity_lines(context, holder_verdict.holder)),
            commands=(query_again(context),),
        )


class _Advice(NamedTuple):
    """Holds what to do about a step that is not done."""

    sentence: str
    remedy: str = ""
    severity: Severity | None = None


_WAIT: Final = _Advice("Wait, then run the command again.")


def _advice(context: RuleContext, node: str | None) -> _Advice:
    """Return what to do about a node between two steps: to wait, only for the time of a step."""
    if next(hanging(context), None) is not None:
        return _Advice("An operation of this step hangs.", _OF_THE_HANG)
    waited = _waited(context, node)
    if waited is None:
        return _WAIT
    return _Advice(
        f"kubelet has reported for {age_text(waited)} that it fails, and nothing that was observed "
        "shows why: read its log, and that of the CSI node plugin.",
        _READ_THE_LOGS,
        Severity.WARNING,
    )


_OF_THE_HANG: Final = "Follow the finding about the operation that hangs."
_READ_THE_LOGS: Final = (
    "Read the log of kubelet on that node, and that of the CSI node plugin: rbdagent reads both as "
    "root on the node."
)


def _is_published(context: RuleContext, holder: Holder) -> bool:
    """Return whether each pod that waits has the volume at its path: it waits for another one."""
    paths = observed_of(holder.mapping.mounts) if holder.mapping is not None else ()
    there = {pod_uid_of_path(mount.path) for mount in paths}
    waiting = [pod for pod in context.volume.waiting_pods if pod.node_name == holder.node]
    return bool(waiting) and all(pod.ref.uid in there for pod in waiting)


def _explained_nodes(context: RuleContext) -> set[str | None]:
    """Return the nodes on which an event has the cause: a finding about it reports that."""
    found = {
        pod_event.node
        for pod_event in decisive_pod_events(context)
        if rank_of(pod_event.text) is not Rank.GENERAL
    }
    if (begun := ownership_begun(context)) is not None:
        found.add(begun[1].node_name)
    return found


_LONG_STEP: Final = timedelta(minutes=10)
"""kubelet gives a mount about two minutes for each try; a map that waits for Ceph is RBD203."""


def _waited(context: RuleContext, node: str | None) -> timedelta | None:
    """Return for how long kubelet has reported failed mounts on a node; None if not for long."""
    firsts = [
        pod_event.event.first_seen
        for pod_event in decisive_pod_events(context)
        if pod_event.node == node
        and pod_event.event.reason == "FailedMount"
        # RBD203 reports a call that does not return.
        and not is_about_hanging_call(pod_event.text)
    ]
    waited = age(
        min((first for first in firsts if first), default=None), context.snapshot.observed_at
    )
    return waited if waited is not None and waited > _LONG_STEP else None


def attached_not_mapped(context: RuleContext) -> Iterator[Finding]:
    """Yield RBD120 for an attachment of a node that does not have the image mapped.

    The controller detaches a moment after kubelet has reported what it released.
    """
    if context.verdict is not Verdict.STAGED or context.holders_with(Verdict.STAGED):
        return
    attached = observed_of(context.volume.attachments)
    explained = _explained_nodes(context)
    for node in attached_on_paper(context.volume, context.snapshot):
        if node in explained:
            # A finding about the failed mount has the cause.
            continue
        attachment = next(found for found in attached if found.node_name == node)
        leaving = attachment.deleting_since
        advice = _advice_without_mapping(context, node)
        yield finding(
            "RBD120",
            f"node {node}",
            f"{context.name} is attached to {node}, but is not mapped there yet, or is not mapped "
            f"any more. {advice.sentence}",
            severity=advice.severity,
            remedy=advice.remedy,
            evidence=(
                f"VolumeAttachment {attachment.name}: created {attachment.created_at}"
                + (f", being deleted since {leaving}" if leaving else ""),
            ),
            commands=(query_again(context),),
        )


def _advice_without_mapping(context: RuleContext, node: str) -> _Advice:
    """Return what to do about a node that has the volume attached, and no mapping of it."""
    advice = _advice(context, node)
    late = [
        pod
        for pod in waiters(context)
        if pod.node_name == node and has_waited(pod, context.snapshot, _LONG_STEP)
    ]
    if advice is not _WAIT or not late:
        return advice
    return _Advice(
        f"{pod_names(late)} waits there for longer than a map takes, and nothing that was observed "
        "shows why: read the log of kubelet, and that of the CSI node plugin.",
        _READ_THE_LOGS,
    )


def in_use(context: RuleContext) -> Iterator[Finding]:
    """Yield RBD100 for a holder that a pod uses as expected."""
    for holder_verdict in context.observed_with(Verdict.IN_USE):
        if (
            holder_verdict.holder.unknown_pod_uids
            and not evidence_of(holder_verdict.holder).running
        ):
            continue
        if context.volume.unbacked and holder_verdict.holder.is_local:
            # The pod's container does not use this device, whatever the API reports.
            continue
        has_ended = have_containers_ended(evidence_of(holder_verdict.holder).running)
        yield finding(
            "RBD100",
            subject_of(holder_verdict.holder),
            f"{subject_of(holder_verdict.holder)} is {'not free yet' if has_ended else 'in use'}: "
            f"{holder_verdict.reasons[0]}.",
            evidence=(*holder_verdict.reasons, *identity_lines(context, holder_verdict.holder)),
            remedy=_OF_AN_ENDED_POD if has_ended else "",
        )


_OF_AN_ENDED_POD: Final = (
    "kubelet unmounts the volume within a minute after the containers have ended. After that, "
    "follow the finding about the pod."
)


def free(context: RuleContext) -> Iterator[Finding]:
    """Yield RBD118 if no client holds the volume and every source that proves it was observed."""
    if context.verdict is not Verdict.FREE:
        return
    view = context.volume.image_view
    mirrored = False if view is None else view.mirrored
    unseen = "a machine without Node, report and watch"
    if mirrored is True:
        unseen = f"{unseen}; a client in the peer cluster, because the image is mirrored"
    yield finding(
        "RBD118",
        context.name,
        f"No client holds {context.name}: it has no watcher, no node has a mapping of it, no pod "
        f"runs with it, and it is attached to no node. Not visible: {unseen}.",
        evidence=(
            "Ceph lists no watcher",
            f"{context.here} was observed and has no mapping of it",
            "the agent of every other node has reported recently, and none has a mapping of it",
            "no node lists it in volumesInUse, and it has no VolumeAttachment",
            *(
                f"not observed: whether the image is mirrored to a peer cluster ({missing.reason})"
                for missing in (mirrored,)
                if isinstance(missing, NotObserved)
            ),
        ),
    )


def possibly_held(context: RuleContext) -> Iterator[Finding]:
    """Yield RBD119 if no holder was observed, but a source that proves this is missing."""
    holding = [
        holder_verdict
        for holder_verdict in context.holder_verdicts
        if not holder_verdict.holder.transient
    ]
    if holding or context.volume.image is None or context.verdict is not Verdict.UNDETERMINED:
        return
    view = context.volume.image_view
    if view is not None and view.presence is ImagePresence.GONE:
        return
    sources = missing_sources(context.volume, context.snapshot)
    left = left_here(context.volume, context.snapshot)
    traces = (*left, *listed_here(context.volume, context.snapshot))
    missing = (*sources, *traces, *missing_of_nodes(context.volume, context.snapshot))
    of_nodes_alone = bool(missing) and not (sources or traces)
    # kubelet prepares the directories of a volume before the volume is there.
    is_awaited = any(pod.node_name == context.here for pod in context.volume.waiting_pods)
    yield finding(
        "RBD119",
        context.name,
        f"No holder of {context.name} was observed. This does not prove that it is free. Not "
        f"observed: {'; '.join(missing) or 'which cluster is meant'}.",
        evidence=tuple(f"not observed: {fact}" for fact in missing),
        remedy=_REMEDY_OF_NODES if of_nodes_alone else _REMEDY_OF_TRACES if left else "",
        commands=(query_again(context),)
        if traces and not sources
        else _how_to_observe(context, missing, of_nodes_alone=of_nodes_alone),
        # Without agents this applies to every unused volume: no reason for an alarm.
        severity=Severity.INFO if of_nodes_alone or (is_awaited and not sources) else None,
    )


_REMEDY_OF_TRACES: Final = (
    "Let kubelet on this node remove what is left. If kubelet no longer tracks the volume, make "
    "sure that no container of the named pod runs, then remove the named directory by hand: rmdir "
    "refuses a directory that is a mount point or is not empty."
)
_REMEDY_OF_NODES: Final = (
    "Run `",
    Verb("who-holds"),
    (
        "` on each of these nodes, or run the agent there. Verify that a node that is not Ready is "
        "off before the volume starts elsewhere."
    ),
)


def _how_to_observe(
    context: RuleContext, missing: tuple[str, ...], *, of_nodes_alone: bool
) -> tuple[Command, ...]:
    if missing == (PODS_ELSEWHERE,) and context.volume.target.argument != context.ask:
        return (query_again(context),)
    if not of_nodes_alone:
        return (check_here(context),)
    attached = {attachment.node_name for attachment in observed_of(context.volume.attachments)}
    there = tuple(query_on_node(context, node) for node in sorted(attached - {context.here}))
    kube = context.snapshot.kubernetes
    if kube is not None and observed_of(kube.published):
        return (*there, kubectl("get rbdnodes"))
    # No agent publishes in this cluster: it may not even have the resource.
    return there or (command("rbdagent who-holds --print-runbook", context.ask),)


RULES: Final = (
    (125, client_on_two_nodes),
    (130, pinned),
    (140, orphaned),
    (145, reported),
    (150, published),
    (160, staging_left),
    (405, attached_not_mapped),
    (520, foreign_client),
    (550, undetermined),
    (560, possibly_held),
    (640, shared),
    (650, between_steps),
    (660, in_use),
    (670, free),
)
