"""RBD101, RBD102, RBD110: a mapping that no pod uses: orphaned, pinned, or left staged."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rbdagent.codes import Code
from rbdagent.commands import command, kubectl, line_of
from rbdagent.model import (
    Command,
    DeviceKind,
    Finding,
    Holder,
    LifecycleStep,
    Mount,
    NotObserved,
    ProcessRef,
    Recovery,
    Sentence,
    Severity,
    Verb,
    Verdict,
    VolumeAttachment,
    Words,
    stated,
)
from rbdagent.rules.context import (
    Rule,
    RuleContext,
    delete_pod,
    finding,
    identity_lines,
    pod_by_uid,
    query_again,
    query_on_node,
    show_sandbox,
    subject_of,
    waiting_elsewhere,
)
from rbdagent.rules.entry import Entry
from rbdagent.rules.facts import is_being_torn_down
from rbdagent.rules.stacked import release, show_stacked, strange_devices
from rbdagent.verdicts.evidence import (
    Evidence,
    evidence_of,
    foreign_mounts,
    kubelets_loops_alone,
    pins,
    processes_on,
    users_without_pod,
)
from rbdagent.verdicts.timing import RETRY_S

if TYPE_CHECKING:
    from collections.abc import Iterator

ENTRIES: Final = (
    Entry(
        Code.MAPPING_ORPHANED,
        Severity.ERROR,
        "The image is mapped on a node, and nothing on that node uses it.",
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
        Code.MAPPING_PINNED,
        Severity.ERROR,
        "Kubernetes no longer uses the volume, but something on the node keeps its device open.",
        remedy="End the process or restart the pod that keeps the device open. kubelet then unmaps "
        "the device with its next retry, if it still tracks the volume. If only the kernel holds "
        "the device, drain and reboot the node.",
        recovery=Recovery(
            actor="kubelet", condition="nothing keeps the device open", within_s=RETRY_S
        ),
        step=LifecycleStep.UNSTAGE,
    ),
    Entry(
        Code.STAGING_LEFT_MOUNTED,
        Severity.ERROR,
        "Only the staging mount of the volume is left on the node.",
        remedy="On the node, in this order: umount (never lazily), luksClose if it is encrypted, "
        "rbd unmap. Stop at the first refusal. Never recreate vol_data.json by hand.",
        recovery=Recovery(
            note="kubelet no longer tracks it; an agent with --unmap-staged unmounts and unmaps it"
        ),
        step=LifecycleStep.UNSTAGE,
    ),
)

_RETRY = "kubelet retries automatically, at most 2m2s apart"


def pinned(context: RuleContext) -> Iterator[Finding]:
    """Yield RBD102, with what keeps the device open and what happens after that ends."""
    for holder_verdict in context.observed_with(Verdict.PINNED, Verdict.STAGED):
        holder = holder_verdict.holder
        found = evidence_of(holder)
        kept = pins(found, holder) if holder.mapping is not None else ()
        # kubelet has yet to detach its own loop device, however long a pod waits (RBD724).
        is_listed = holder.in_volumes_in_use is not False
        is_kubelets = is_listed and bool(kubelets_loops_alone(found, holder))
        if not kept or (is_kubelets and holder_verdict.verdict is Verdict.STAGED):
            continue
        after, recovery = once_released(holder)
        devices = strange_devices(holder)
        # A file system that is left is there because something uses it: it counts only alone.
        others = len(users_without_pod(found, holder)) - 1
        count = stated(" (and {count} more)", count=others) if others > 0 else ""
        yield finding(
            Code.MAPPING_PINNED,
            subject_of(holder),
            stated(
                "{holder} is kept open: {reason}{}. {}",
                count,
                after,
                holder=subject_of(holder),
                reason=kept[0],
            ),
            waiting=waiting_elsewhere(context, holder.node),
            evidence=(*kept, *identity_lines(context, holder)),
            remedy=release(devices, str(holder.node)) if devices and not found.openers else "",
            commands=(*_unpinning(context, holder, found), query_again(context)),
            severity=Severity.INFO if is_being_torn_down(context, holder) else None,
            recovery=recovery,
        )


_UNKNOWN_TO_KUBELET = "if kubelet still tracks the volume, which was not observed"


def once_released(holder: Holder) -> tuple[Words, Recovery]:
    """Return what happens when nothing keeps the device open, as a sentence and as recovery."""
    released = "nothing keeps the device open"
    match _is_tracked(holder):
        case True:
            return (
                stated("When that ends, {}, and the volume becomes free.", _RETRY),
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
            Code.MAPPING_ORPHANED,
            subject_of(holder),
            stated(
                "{holder} is mapped, and nothing there uses it. {}",
                _why_orphaned(holder),
                holder=subject_of(holder),
            ),
            waiting=waiting_elsewhere(context, holder.node),
            evidence=(*holder_verdict.reasons, *identity_lines(context, holder)),
            pods=holder_verdict.pods,
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


def _why_orphaned(holder: Holder) -> Words:
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
        return stated(
            "Its VolumeAttachment is gone, and {node} still lists it in volumesInUse: kubelet "
            "has not completed NodeUnstage, and {}.",
            _RETRY,
            node=holder.node,
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
            Code.STAGING_LEFT_MOUNTED,
            subject_of(holder),
            stated(
                "{holder} {}, and no pod uses it. kubelet will not remove it.",
                left,
                holder=subject_of(holder),
            ),
            waiting=waiting_elsewhere(context, holder.node),
            evidence=(*holder_verdict.reasons, *identity_lines(context, holder)),
            pods=holder_verdict.pods,
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


def published(context: RuleContext) -> Iterator[Finding]:
    """Yield RBD101 and RBD102 of another node, as its own agent reports them."""
    for verdict, code in (
        (Verdict.ORPHANED, Code.MAPPING_ORPHANED),
        (Verdict.PINNED, Code.MAPPING_PINNED),
    ):
        for holder_verdict in context.observed_with(verdict):
            holder = holder_verdict.holder
            if holder.mapping is not None or holder.published is None or holder.node is None:
                continue
            yield finding(
                code,
                subject_of(holder),
                stated(
                    "{device} on {node} is {}, according to the agent there.",
                    verdict,
                    device=holder.published.device,
                    node=holder.node,
                ),
                waiting=waiting_elsewhere(context, holder.node),
                evidence=(*holder_verdict.reasons, *identity_lines(context, holder)),
                pods=holder_verdict.pods,
                commands=(query_on_node(context, holder.node),),
                recovery=once_released(holder)[1]
                if verdict is Verdict.PINNED
                else recovery_of_orphan(holder),
            )


RULES: Final = (
    Rule(130, pinned),
    Rule(140, orphaned),
    Rule(150, published),
    Rule(160, staging_left),
)
