"""RBD1xx: the holders and their verdicts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rbdagent.commands import command, kubectl, line_of, over_ssh
from rbdagent.correlate.blocklist import removal_of
from rbdagent.correlate.holders import is_ceph_daemon, is_terminated, runs
from rbdagent.correlate.local import mounts_of, pod_uids_on
from rbdagent.diagnose.case import (
    Case,
    delete_pod,
    finding,
    identity_lines,
    look_again,
    look_there,
    pod_by_uid,
    subject_of,
    then_starts,
)
from rbdagent.diagnose.coverage import missing_of_nodes
from rbdagent.diagnose.elsewhere import outsiders
from rbdagent.diagnose.evidence import (
    Evidence,
    evidence_of,
    foreign_mounts,
    pins,
    pod_names,
    processes_on,
    said_of_process,
)
from rbdagent.diagnose.target import (
    PODS_ELSEWHERE,
    conflicting,
    fresh_word,
    is_left_behind,
    is_read_only,
    maps_by_nbd,
    may_be_shared,
    missing_sources,
    sharing,
)
from rbdagent.diagnose.times import MOVING
from rbdagent.diagnose.waiting import has_waited, is_ending_in_time, knows_every_user
from rbdagent.model import (
    Attachment,
    BlockHolder,
    BlockHolderKind,
    BlocklistEntry,
    Command,
    DeviceKind,
    Finding,
    Heals,
    Holder,
    HolderKind,
    ImagePresence,
    JudgedHolder,
    Mount,
    NotObserved,
    Pod,
    ProcessRef,
    Severity,
    UnbackedMount,
    Verdict,
    observed_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_RETRY = "kubelet retries by itself, at most 2m2s apart"
_RETRY_S = 122.0
_BY_KUBELET_THERE = Heals(by="kubelet and the CSI driver there", note="unless it forgot the volume")


def not_backed(case: Case) -> Iterator[Finding]:
    """RBD108: say before anything else that deleting the pod destroys the data."""
    for each in case.use.unbacked:
        pod = pod_by_uid(each.pod_uid, case)
        name = str(pod.ref) if pod is not None else each.pod_uid
        yield finding(
            "RBD108",
            f"pod {name}",
            f"Pod {name} writes to {case.here}'s own disk: {each.path} is not on {case.volume}. "
            "Do not delete the pod: that destroys what it wrote.",
            evidence=(
                f"{each.path} in {said_of_process(each.process)} lies on {each.source}",
                f"{case.here} has no mapping under that mount",
            ),
            commands=(_rescue(each, case),),
        )


def _rescue(unbacked: UnbackedMount, case: Case) -> Command:
    """Return what saves the data: on the node, so that no program of the pod is trusted with it."""
    root, path = f"/proc/{unbacked.process.pid}/root", f"./{unbacked.path.lstrip('/')}"
    return command("tar --create --file=rescue.tar -C", root, path, node=case.here)


def conflict(case: Case) -> Iterator[Finding]:
    """RBD106: two writers."""
    writers = conflicting(case.use, case.judged, case.snapshot)
    if not writers:
        return
    nodes = ", ".join(sorted(str(each.holder.node) for each in writers))
    volume = case.use.persistent_volume
    modes = ", ".join(volume.access_modes) if volume is not None else "it has no PV"
    first = _first_to_stop(writers)
    commands = tuple(
        delete_pod(pod)
        for writer in writers
        if first is None or writer in first[0]
        for pod in evidence_of(writer.holder).running
    )
    advice = (
        f"Stop {' and '.join(subject_of(writer.holder) for writer in first[0])} first: {first[1]}."
        if first is not None
        else "Nothing shows which of them is right: stop all of them."
    )
    yield finding(
        "RBD106",
        case.volume,
        f"{case.volume} is held read-write on {nodes} at once, and its access mode allows one "
        f"node ({modes}). Two writers destroy the file system. {advice}",
        evidence=(
            *(f"{subject_of(each.holder)}: {each.verdict}, {each.because[0]}" for each in writers),
            *(said for each in writers if (said := _how_sure(each.holder, case))),
        ),
        commands=(
            commands
            or tuple(
                look_there(case, str(each.holder.node))
                for each in writers
                if each.holder.mapping is None
            )
        ),
    )


def _first_to_stop(
    writers: tuple[JudgedHolder, ...],
) -> tuple[tuple[JudgedHolder, ...], str] | None:
    """Return the writers that have no right to the volume, and why; None where all look alike.

    A node that Kubernetes has let go of, and one that Ceph does not see, are refused nowhere: the
    other one is where the controller and the next NodeStage expect the volume.
    """
    for is_wrong, reason in _REASONS_TO_STOP:
        wrong = tuple(writer for writer in writers if is_wrong(writer))
        if wrong and len(wrong) < len(writers):
            return wrong, reason
    return None


_REASONS_TO_STOP: Final[tuple[tuple[Callable[[JudgedHolder], bool], str], ...]] = (
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
        lambda writer: bool(writer.holder.lost_pod_uids),
        "the API does not know its pod any more",
    ),
    (
        lambda writer: writer.holder.attachment is None,
        "no VolumeAttachment ties the volume to its node",
    ),
)
"""In this order: the first that separates the writers decides."""


def _how_sure(holder: Holder, case: Case) -> str:
    """Say how sure it is that a watcher's node has the image mapped read-write."""
    if holder.mapping is not None or holder.watcher is None:
        return ""
    who, node = f"client.{holder.watcher.client}", holder.node
    published, by = fresh_word(holder, case.snapshot), holder.published_by
    if published is not None and published.read_only is False:
        return f"certain: {published.device} on {node} is {who}, read-write, by its agent's word"
    if by is not None:
        return f"{who} is {node}'s, but what it has mapped there now its agent does not tell"
    return f"probable: {who} has an address of {node}; no agent there has told of it"


def unwatched(case: Case) -> Iterator[Finding]:
    """RBD105: live, writable, invisible."""
    for each in case.those(Verdict.UNWATCHED):
        holder = each.holder
        pods = evidence_of(holder).running
        sure = holder.mapping is not None and holder.mapping.watch is False
        is_elsewhere = holder.mapping is None and holder.node is not None
        again = look_there(case, str(holder.node)) if is_elsewhere else look_again(case)
        act = (*_cordon(holder), *(delete_pod(pod) for pod in pods))
        yield finding(
            "RBD105",
            subject_of(holder),
            f"{subject_of(holder)} is writable and invisible to Ceph: its watch is gone. Another "
            "node will be let in beside it. Stop the volume here before it starts anywhere else.",
            evidence=(*each.because, *identity_lines(case, holder)),
            # Without the kernel's own word a mapping that has just gone looks the same: look twice.
            commands=(*act, again) if sure else (again, *act),
        )


def returned_dirty(case: Case) -> Iterator[Finding]:
    """RBD107: the dead man walks."""
    for each in case.those(Verdict.RETURNED_DIRTY):
        node = each.holder.node
        yield finding(
            "RBD107",
            f"node {node}",
            f"{node} was taken out of service, is alive, and still holds {case.volume}. Stop what "
            "runs there and reboot it before you remove the taint.",
            evidence=(*each.because, *identity_lines(case, each.holder)),
            commands=(
                *_cordon(each.holder),
                over_ssh(str(node), command("systemctl reboot")),
            ),
        )


def blocklisted(case: Case) -> Iterator[Finding]:
    """RBD103: one client, all its devices."""
    for each in case.those(Verdict.DEAD):
        holder = each.holder
        entry = holder.blocklisted_by
        if not isinstance(entry, BlocklistEntry):
            continue
        devices = ", ".join(
            (*((holder.mapping.device,) if holder.mapping else ()), *holder.sibling_devices)
        )
        lasts = f" The entry ends {entry.until}." if entry.until else ""
        pods = evidence_of(holder).running
        others = _pods_of_siblings(holder, pods, case)
        shared = (
            f" The same client serves {devices}: all of them are dead, and with them "
            f"{pod_names(others) if others else 'the pods that use them'}."
            if holder.sibling_devices
            else ""
        )
        yield finding(
            "RBD103",
            subject_of(holder),
            f"The Ceph client of {subject_of(holder)} is blocklisted: writes there fail (-108), "
            f"and every new map on {holder.node or 'that machine'} fails too.{shared}{lasts} "
            f"{_lifting(entry)}",
            evidence=(*each.because, *identity_lines(case, holder)),
            commands=(
                *_cordon(holder),
                *(delete_pod(pod) for pod in (*pods, *others)),
                look_again(case),
            ),
        )


def _pods_of_siblings(holder: Holder, own: tuple[Pod, ...], case: Case) -> tuple[Pod, ...]:
    """Return the pods on the other devices of a client: they have to go as well."""
    node = case.snapshot.node
    mappings = observed_of(node.mappings) if node is not None and holder.is_local else ()
    uids = {
        uid
        for mapping in mappings
        if mapping.device in holder.sibling_devices
        for uid in pod_uids_on(mapping)
    }
    found = (pod_by_uid(uid, case) for uid in sorted(uids))
    return tuple(pod for pod in found if pod is not None and pod not in own)


def _cordon(holder: Holder) -> tuple[Command, ...]:
    return () if holder.node is None else (kubectl("cordon", holder.node),)


def _lifting(entry: BlocklistEntry) -> str:
    if entry.nonce != 0:
        return "Do not lift the entry while these mappings live."
    covered = "that range" if entry.is_range else "that host"
    return (
        f"The entry blocks every client of {covered}, a new one too. `{removal_of(entry)}` removes "
        "it: not before the last mapping that it blocks is gone."
    )


def dead_nbd(case: Case) -> Iterator[Finding]:
    """RBD104: the process is gone, the device stays."""
    for each in case.those(Verdict.DEAD):
        holder = each.holder
        if holder.mapping is None or holder.mapping.kind is not DeviceKind.NBD:
            continue
        if isinstance(holder.blocklisted_by, BlocklistEntry):
            continue
        in_place = [one for one in case.those(Verdict.IN_USE) if one.holder.node == holder.node]
        replaced = is_left_behind(each) and bool(in_place)
        pods = () if replaced else evidence_of(holder).running
        advice = (
            f"Delete {pod_names(pods)}: its next start takes a fresh device."
            if pods
            else "Nothing uses it; the dead device harms nobody and goes with a reboot."
        )
        yield finding(
            "RBD104",
            subject_of(holder),
            f"{subject_of(holder)} has no rbd-nbd process any more: I/O on it hangs, then fails. "
            f"{advice}",
            evidence=each.because,
            commands=tuple(delete_pod(pod) for pod in pods),
            severity=None if pods or mounts_of(holder.mapping) else Severity.WARNING,
        )


def lost_pod(case: Case) -> Iterator[Finding]:
    """RBD109: its container runs, its pod is not in the API."""
    for each in case.judged:
        holder = each.holder
        if not holder.lost_pod_uids or each.verdict not in (
            Verdict.IN_USE,
            Verdict.RETURNED_DIRTY,
            Verdict.UNWATCHED,
            Verdict.DEAD,
            Verdict.STAGED,
        ):
            continue
        alive = [
            one for one in processes_on(evidence_of(holder)) if one.pod_uid in holder.lost_pod_uids
        ]
        if not alive and each.verdict is Verdict.STAGED and holder.driver_registered is False:
            # Deleted the usual way; only the driver is missing that would unmount it.
            continue
        uids = ", ".join(holder.lost_pod_uids)
        what = "A container still runs on" if alive else "A pod's path still shows"
        yield finding(
            "RBD109",
            subject_of(holder),
            f"{what} {subject_of(holder)}, and the API does not know its pod ({uids}): it was "
            "force-deleted. Stop it first. Never unmap under it.",
            evidence=(*(said_of_process(one) for one in alive), *identity_lines(case, holder)),
            commands=(
                command("systemctl start kubelet", node=holder.node),
                *(_sandbox(uid, holder) for uid in holder.lost_pod_uids),
            ),
        )


def reported(case: Case) -> Iterator[Finding]:
    """RBD109, RBD201, RBD202 of another node: its agent sees them, and no API object shows them."""
    for judged in case.judged:
        holder = judged.holder
        mapping = fresh_word(holder, case.snapshot)
        if mapping is None or holder.mapping is not None or holder.node is None:
            continue
        for code in mapping.findings:
            if code not in _REPORTED:
                continue
            message = _REPORTED[code].format(device=mapping.device, node=holder.node)
            yield finding(
                code,
                subject_of(holder) if code == "RBD109" else f"node {holder.node}",
                f"The agent on {holder.node} reports: {message}{then_starts(case, holder.node)}",
                evidence=(*mapping.because, *identity_lines(case, holder)),
                commands=(look_there(case, holder.node),),
            )


_REPORTED: Final = {
    "RBD109": "a container or a pod's path still shows {device} there, and the API does not know "
    "its pod: it was force-deleted. Stop it first. Never unmap under it.",
    "RBD201": "the CSI driver does not answer there, so nothing can be unmounted. Bring its node "
    "plugin back.",
    "RBD202": "kubelet does not run there, so containers run on, and nothing is unmounted until it "
    "is back.",
}


def pinned(case: Case) -> Iterator[Finding]:
    """RBD102: name the one that keeps it open, and say what follows when it goes."""
    for each in case.those(Verdict.PINNED, Verdict.STAGED):
        holder = each.holder
        found = evidence_of(holder)
        kept = pins(found, holder) if holder.mapping is not None else ()
        if not kept:
            continue
        after, recovery = _once_released(holder)
        count = f" (and {len(kept) - 1} more)" if len(kept) > 1 else ""
        yield finding(
            "RBD102",
            subject_of(holder),
            f"{subject_of(holder)} is kept open: {kept[0]}{count}. {after}"
            f"{then_starts(case, holder.node)}",
            evidence=(*kept, *identity_lines(case, holder)),
            commands=(*_unpinning(case, holder, found), look_again(case)),
            heals=recovery,
        )


_UNKNOWN_TO_KUBELET = "if it still knows the volume, which was not observed"


def _once_released(holder: Holder) -> tuple[str, Heals]:
    """Return what follows when nothing keeps the device open, as a sentence and as a forecast."""
    released = "nothing keeps the device open"
    match _knows(holder):
        case True:
            return (
                f"When that ends, {_RETRY}, and the volume is free.",
                Heals(by="kubelet", once=released, within_s=_RETRY_S),
            )
        case False:
            return (
                (
                    "kubelet has forgotten this volume: when that ends, look again, and unmap it "
                    "if it is Orphaned then."
                ),
                Heals(note="kubelet has forgotten the volume"),
            )
        case None:
            return (
                (
                    "Whether kubelet still knows this volume was not observed: when that ends, "
                    "wait two minutes, look again, and unmap it if it is Orphaned then."
                ),
                Heals(by="kubelet", once=released, note=_UNKNOWN_TO_KUBELET),
            )


def _knows(holder: Holder) -> bool | None:
    """Return whether kubelet on the holder's node still tries to unstage the volume.

    It lists the volume in volumesInUse until NodeUnstage has succeeded, and only then does the
    controller delete the VolumeAttachment. A kubelet that restarts in between finds neither.
    """
    attachment, listed = holder.attachment, holder.in_volumes_in_use
    if listed is True or (isinstance(attachment, Attachment) and attachment.deleting_since is None):
        return True
    if isinstance(attachment, NotObserved) or isinstance(listed, NotObserved):
        return None
    return False


def _unpinning(case: Case, holder: Holder, found: Evidence) -> tuple[Command, ...]:
    """Give what ends each pin; a process that is nobody's pod is shown, never killed."""
    commands = [
        shown
        for mount in (*foreign_mounts(found, holder), *found.other_mounts)
        if not mount.namespace.is_host
        for shown in _in_namespace(mount, case, holder)
    ]
    for process in processes_on(found):
        pod = pod_by_uid(process.pod_uid, case)
        commands.append(_show(process, holder) if pod is None else delete_pod(pod))
    commands += [_show_stacked(stacked, holder) for stacked in found.stacked]
    commands += [
        command("findmnt", mount.path, node=holder.node)
        for mount in found.other_mounts
        if mount.namespace.is_host
    ]
    if not commands and found.traces:
        drain = ("--ignore-daemonsets",)
        commands.append(kubectl("drain", str(holder.node), options=drain))
    return tuple(commands)


def _show_stacked(stacked: BlockHolder, holder: Holder) -> Command:
    match stacked.kind:
        case BlockHolderKind.LUKS | BlockHolderKind.DM:
            return command("dmsetup info", stacked.label or stacked.name, node=holder.node)
        case BlockHolderKind.LOOP:
            return command("losetup --list", f"/dev/{stacked.name}", node=holder.node)
        case BlockHolderKind.SWAP:
            return command("swapon --show", node=holder.node)
        case _:
            return command("lsblk", f"/dev/{stacked.of or stacked.name}", node=holder.node)


def _in_namespace(mount: Mount, case: Case, holder: Holder) -> Iterator[Command]:
    """Return what shows a mount in a namespace of its own: its process, the mount, its pod."""
    process = mount.namespace.process
    yield _show(process, holder)
    yield command("findmnt --task", str(process.pid), mount.path, node=holder.node)
    pod = pod_by_uid(process.pod_uid, case)
    if pod is not None:
        yield kubectl("describe pod", pod.ref.name, namespace=pod.ref.namespace)
    elif process.pod_uid is not None:
        yield _sandbox(process.pod_uid, holder)


def _sandbox(pod_uid: str, holder: Holder) -> Command:
    return command("crictl pods --label", f"io.kubernetes.pod.uid={pod_uid}", node=holder.node)


def _show(process: ProcessRef, holder: Holder) -> Command:
    return command("ps -o pid,user,lstart,args -p", str(process.pid), node=holder.node)


def orphaned(case: Case) -> Iterator[Finding]:
    """RBD101: nothing uses it, nobody else will clear it."""
    for each in case.those(Verdict.ORPHANED):
        holder = each.holder
        found = evidence_of(holder)
        if holder.mapping is None or found.staging_mounts or found.own_luks:
            continue
        unmap = _ask_to_unmap(case, holder)
        again = look_again(case)
        has_attachment = isinstance(holder.attachment, Attachment)
        yield finding(
            "RBD101",
            subject_of(holder),
            f"{subject_of(holder)} is mapped and nothing there uses it. {_how_it_came(holder)}"
            f"{then_starts(case, holder.node)}",
            evidence=(*each.because, *identity_lines(case, holder)),
            remedy=_orphan_remedy(holder),
            heals=_recovery_of_orphan(holder),
            commands=(again, *unmap) if has_attachment else (*unmap, again),
        )


def _recovery_of_orphan(holder: Holder) -> Heals | None:
    match _knows(holder):
        case True:
            once = "its next NodeUnstage succeeds"
            return Heals(by="kubelet", once=once, within_s=_RETRY_S)
        case False:
            return None
        case None:
            return Heals(by="kubelet", note=_UNKNOWN_TO_KUBELET)


def _ask_to_unmap(case: Case, holder: Holder) -> tuple[Command, ...]:
    """Give the plan, then the act: it looks on for the grace period where no agent did."""
    mapping, volume = holder.mapping, case.use.persistent_volume
    if mapping is None or mapping.kind is not DeviceKind.KRBD:
        return ()
    mapped = [each for each in case.judged if each.holder.mapping is not None]
    by_name = volume is not None and len(mapped) == 1
    target = case.ask if by_name else mapping.device
    act = ("--wait", "--yes")
    return (
        command("rbdagent unmap", target, node=holder.node),
        command("rbdagent unmap", target, options=act, node=holder.node),
    )


def _unmap(holder: Holder) -> tuple[Command, ...]:
    """A plain unmap by device. rbd-nbd has no guard against being in use: no command for it."""
    mapping = holder.mapping
    if mapping is None or mapping.kind is not DeviceKind.KRBD:
        return ()
    return (command("rbd unmap", mapping.device, node=holder.node),)


def _how_it_came(holder: Holder) -> str:
    attachment = holder.attachment
    if isinstance(attachment, Attachment) and attachment.deleting_since is None:
        return (
            "Its VolumeAttachment is still there: kubelet has not finished NodeUnstage, and "
            f"{_RETRY}."
        )
    if isinstance(attachment, Attachment):
        return "Its VolumeAttachment is being deleted: the controller has let it go."
    if not holder.staging and not isinstance(holder.staging, NotObserved):
        return (
            "There is no staging directory and no stash either: a stage that failed left it and "
            "could not unmap it, or an unstage left it out. Nothing will clear it."
        )
    if holder.in_volumes_in_use is True:
        return (
            f"Its VolumeAttachment is gone, and {holder.node} still lists it in volumesInUse: "
            f"kubelet has not finished NodeUnstage, and {_RETRY}."
        )
    return (
        "kubelet has forgotten it: its staging directory is left, its VolumeAttachment is gone. "
        "Nothing will clear it."
    )


def _orphan_remedy(holder: Holder) -> str:
    if holder.mapping is not None and holder.mapping.kind is DeviceKind.NBD:
        return (
            "rbd-nbd devices have no guard against being in use: make sure by a second look, then "
            "unmap it by hand."
        )
    device = holder.mapping.device if holder.mapping is not None else "it"
    unmap = (
        "rbdagent unmap tells its plan or every reason against it, and acts with --yes alone. By "
        f"hand: look directly before, then {line_of(command('rbd unmap', device))}. The kernel "
        "refuses (EBUSY) if anybody has it open: stop then, never use force."
    )
    if isinstance(holder.attachment, Attachment):
        return (
            f"Look again in two minutes. If it is still Orphaned, unmap it. {unmap} "
            "kubelet's next retry then succeeds, and the controller detaches."
        )
    return unmap


def staging_left(case: Case) -> Iterator[Finding]:
    """RBD110: umount, luksClose, unmap; stop at the first refusal."""
    for each in case.those(Verdict.ORPHANED):
        holder = each.holder
        found = evidence_of(holder)
        staged = found.staging_mounts
        if holder.mapping is None or not (staged or found.own_luks):
            continue
        left = "is mounted at its staging path alone" if staged else "has its LUKS mapping left"
        yield finding(
            "RBD110",
            subject_of(holder),
            f"{subject_of(holder)} {left}, and no pod uses it. "
            f"kubelet will not clear it.{then_starts(case, holder.node)}",
            evidence=(*each.because, *identity_lines(case, holder)),
            commands=(
                look_again(case),
                *(command("umount", one.path, node=holder.node) for one in staged),
                *(
                    command("cryptsetup luksClose", one.label or one.name, node=holder.node)
                    for one in found.own_luks
                ),
                *_unmap(holder),
            ),
        )


def running_without_mapping(case: Case) -> Iterator[Finding]:
    """RBD416: the API says that it runs, and neither watch nor mapping says so too."""
    if is_read_only(case.use):
        return
    for each in case.judged:
        holder = each.holder
        if holder.mapping is not None or holder.watcher is not None:
            continue
        if each.verdict not in (Verdict.IN_USE, Verdict.UNDETERMINED):
            continue
        view = case.use.image_view
        seen = view is not None and not isinstance(view.watchers, NotObserved)
        if not holder.is_local and not seen:
            continue
        # One that was killed may stand there long after, with nothing mapped any more.
        running = [one for one in evidence_of(holder).running if not is_terminated(one)]
        if not running:
            continue
        what = "no mapping of it" if holder.is_local else "no watch from that node"
        yield finding(
            "RBD416",
            f"node {holder.node}",
            f"{pod_names(running)} runs on {holder.node} with {case.volume}, and there is {what}. "
            "Look there before you let any other node have it.",
            evidence=each.because,
            commands=() if holder.is_local else (look_there(case, str(holder.node)),),
            severity=_weight_of_missing(holder, running, case),
        )


def _weight_of_missing(holder: Holder, running: list[Pod], case: Case) -> Severity | None:
    # Ceph and the node are looked at after the API, which said that it was about to end.
    if all(is_ending_in_time(each, case) for each in running):
        return Severity.INFO
    return None if holder.is_local or not _unplaced(case) else Severity.WARNING


def _unplaced(case: Case) -> tuple[JudgedHolder, ...]:
    """Give the watchers of no known node: one of them may be that pod's mapping."""
    return tuple(each for each in case.judged if each.holder.watcher and not each.holder.node)


def undetermined(case: Case) -> Iterator[Finding]:
    """RBD119: say where to look."""
    outside = outsiders(case)
    for each in case.those(Verdict.UNDETERMINED):
        holder = each.holder
        if each in outside:
            # RBD771 and its like say who that is.
            continue
        if holder.mapping is None and holder.watcher is None and holder.published is None:
            continue
        if holder.is_local and holder.mapping is None:
            continue
        passing = _may_be_leaving(holder, case)
        shares = _shares(holder, case)
        if holder.is_local:
            message = (
                f"What {subject_of(holder)} is used for could not be fully seen: do not unmap it."
            )
            commands: tuple[Command, ...] = (command("rbdagent check"),)
        elif holder.node is not None and holder.watcher is None:
            message = (
                f"{subject_of(holder)} may still have {case.volume} mapped: {each.because[0]}. "
                f"Do not start it elsewhere before you have looked there."
                f"{then_starts(case, holder.node)}"
            )
            commands = (look_there(case, holder.node),)
        elif holder.node is not None:
            soon = " kubelet there may be about to let it go." if passing else ""
            message = (
                f"{subject_of(holder)} holds {case.volume}; what it does can be seen only there."
                f"{soon}{then_starts(case, holder.node)}"
            )
            commands = (look_there(case, holder.node),)
        else:
            message = (
                f"{subject_of(holder)} holds {case.volume}, and no node is known by that address. "
                f"Run rbdagent on the nodes that may be it.{then_starts(case, None)}"
            )
            commands = tuple(look_there(case, node) for node in _candidates(case))
        yield finding(
            "RBD119",
            subject_of(holder),
            message,
            evidence=(*each.because, *identity_lines(case, holder)),
            commands=commands,
            severity=Severity.INFO if passing or shares else None,
            heals=_BY_KUBELET_THERE if passing else None,
        )


def _shares(holder: Holder, case: Case) -> bool:
    """Return whether a holder of another node is one of several that the access mode allows.

    Without its VolumeAttachment it is not: the control plane then knows of no use there.
    """
    return (
        not holder.is_local
        and holder.node is not None
        and holder.kind in (HolderKind.KRBD, HolderKind.NBD)
        and holder.attachment is not None
        and may_be_shared(case.use)
    )


def _may_be_leaving(holder: Holder, case: Case) -> bool:
    """Tell whether kubelet there may be about to unmap what no pod uses any more.

    It unstages after the pod is gone from the API, and the controller detaches after that: of every
    pod that moves or ends, the watch and the VolumeAttachment are left for some seconds.
    """
    attachment, is_librbd = holder.attachment, holder.kind is HolderKind.LIBRBD
    return (
        (holder.kind is HolderKind.KRBD or (is_librbd and maps_by_nbd(case.use)))
        and not holder.is_local
        and isinstance(attachment, Attachment)
        and not attachment.detach_error
        and knows_every_user(case)
        and not any(has_waited(each, case.snapshot, MOVING) for each in case.use.waiting_pods)
    )


def published(case: Case) -> Iterator[Finding]:
    """RBD101, RBD102 of another node, by the word of its own agent: act there, not here."""
    for verdict, code in ((Verdict.ORPHANED, "RBD101"), (Verdict.PINNED, "RBD102")):
        for each in case.those(verdict):
            holder = each.holder
            if holder.mapping is not None or holder.published is None or holder.node is None:
                continue
            yield finding(
                code,
                subject_of(holder),
                f"{holder.published.device} on {holder.node} is {verdict}, by the word of the "
                f"agent there.{then_starts(case, holder.node)}",
                evidence=(*each.because, *identity_lines(case, holder)),
                commands=(look_there(case, holder.node),),
                heals=_once_released(holder)[1]
                if verdict is Verdict.PINNED
                else _recovery_of_orphan(holder),
            )


def _candidates(case: Case) -> tuple[str, ...]:
    """Give the nodes where an unknown client may be: attached, or with a pod of the volume."""
    attached = () if isinstance(case.use.attachments, NotObserved) else case.use.attachments
    nodes = {each.node_name for each in attached}
    for each in case.judged:
        pods = () if isinstance(each.holder.pods, NotObserved) else each.holder.pods
        nodes |= {pod.node_name for pod in pods if pod.node_name and runs(pod)}
    return tuple(sorted(nodes - {case.here}))


def shared(case: Case) -> Iterator[Finding]:
    """RBD114: several, and rightly so."""
    if case.verdict is not Verdict.SHARED:
        return
    nodes = ", ".join(str(each.holder.node) for each in sharing(case.judged))
    volume = case.use.persistent_volume
    modes = ", ".join(volume.access_modes) if volume is not None else "unknown"
    yield finding(
        "RBD114",
        case.volume,
        f"{case.volume} is in use on {nodes}; its access mode ({modes}) allows that.",
        evidence=tuple(each.because[0] for each in sharing(case.judged)),
    )


def foreign(case: Case) -> Iterator[Finding]:
    """RBD115, RBD116, RBD117: clients that are not Kubernetes' mappings."""
    for each in case.those(Verdict.FOREIGN):
        holder = each.holder
        if holder.passing:
            yield finding(
                "RBD117",
                subject_of(holder),
                f"{subject_of(holder)} opened the image for a moment: it does not hold it.",
                evidence=each.because,
            )
        elif is_ceph_daemon(holder):
            yield finding(
                "RBD116",
                subject_of(holder),
                f"{subject_of(holder)} is {each.because[0]}: it belongs there.",
                evidence=each.because,
            )
        else:
            blocks = bool(case.use.waiting_pods)
            yield finding(
                "RBD115",
                subject_of(holder),
                f"{subject_of(holder)} holds the image and is no mapping of Kubernetes: find its "
                f"owner. rbdagent does not touch it.{then_starts(case, None)}",
                evidence=(*each.because, *identity_lines(case, holder)),
                severity=Severity.ERROR if blocks else None,
            )


def between_steps(case: Case) -> Iterator[Finding]:
    """RBD120: wait."""
    for each in case.those(Verdict.STAGED):
        if each.holder.driver_registered is False:
            continue
        yield finding(
            "RBD120",
            subject_of(each.holder),
            f"{subject_of(each.holder)} is between two steps: {each.because[0]}. Wait, and look "
            "again.",
            evidence=(*each.because, *identity_lines(case, each.holder)),
            commands=(look_again(case),),
        )


def in_use(case: Case) -> Iterator[Finding]:
    """RBD100: rightly held."""
    for each in case.those(Verdict.IN_USE):
        if each.holder.lost_pod_uids and not evidence_of(each.holder).running:
            continue
        if case.use.unbacked and each.holder.is_local:
            # The pod's container is not on this device, whatever the API says.
            continue
        yield finding(
            "RBD100",
            subject_of(each.holder),
            f"{subject_of(each.holder)} is in use: {each.because[0]}.",
            evidence=(*each.because, *identity_lines(case, each.holder)),
        )


def nobody(case: Case) -> Iterator[Finding]:
    """RBD118: only where every source that it needs was observed."""
    if case.verdict is not Verdict.FREE:
        return
    yield finding(
        "RBD118",
        case.volume,
        f"No client holds {case.volume}: it has no watcher, no node has a mapping of it, no pod "
        "runs with it, and it is attached nowhere.",
        evidence=(
            "Ceph lists no watcher",
            f"{case.here} was observed and has no mapping of it",
            "the agent of every other node has reported lately, and none has a mapping of it",
            "no node lists it in volumesInUse, and it has no VolumeAttachment",
        ),
    )


def unknown_whether_nobody(case: Case) -> Iterator[Finding]:
    """RBD119: no holder was seen, and that proves nothing."""
    holding = [each for each in case.judged if not each.holder.passing]
    if holding or case.use.image is None or case.verdict is not Verdict.UNDETERMINED:
        return
    view = case.use.image_view
    if view is not None and view.presence is ImagePresence.GONE:
        return
    sources = missing_sources(case.use, case.snapshot)
    missing = (*sources, *missing_of_nodes(case.use, case.snapshot))
    of_nodes_alone = bool(missing) and not sources
    yield finding(
        "RBD119",
        case.volume,
        f"No holder of {case.volume} was seen, and that does not prove that it is free. Not "
        f"observed: {'; '.join(missing) or 'which cluster is meant'}.",
        evidence=tuple(f"not observed: {fact}" for fact in missing),
        remedy=_REMEDY_OF_NODES if of_nodes_alone else "",
        commands=_how_to_observe(case, missing, of_nodes_alone=of_nodes_alone),
        # Where no agent runs, every unused volume is so: that is no alarm.
        severity=Severity.INFO if of_nodes_alone else None,
    )


_REMEDY_OF_NODES = (
    "Run rbdagent who-holds on each of these nodes, or run the agent there. Prove that a node that "
    "is not Ready is off before the volume starts elsewhere."
)


def _how_to_observe(
    case: Case, missing: tuple[str, ...], *, of_nodes_alone: bool
) -> tuple[Command, ...]:
    if missing == (PODS_ELSEWHERE,) and case.use.target.given != case.ask:
        return (look_again(case),)
    if not of_nodes_alone:
        return (command("rbdagent check"),)
    attached = {attachment.node_name for attachment in observed_of(case.use.attachments)}
    there = (look_there(case, node) for node in sorted(attached - {case.here}))
    return (*there, kubectl("get rbdnodes"))
